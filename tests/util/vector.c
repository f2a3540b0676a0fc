/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Golden vectors, read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/ref.h"
#include "util.h"

enum { LONGEST = 1 << 23 /* byte string */ };

struct text {
    char *all, *next;
};

static int text_open(struct text *t, const char *directory, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        return 0;
    }
    size_t cap = 1 << 20, n;
    t->all = t->next = test_alloc(cap);
    n = fread(t->all, 1, cap - 1, f);
    t->all[n] = 0;
    fclose(f);
    return n < cap - 1;
}

/* The next token; null at the end. */
static char *token(struct text *t)
{
    for (;;) {
        t->next += strspn(t->next, " \n");
        if (*t->next != '#')
            break;
        t->next += strcspn(t->next, "\n");
    }
    char *start = t->next;
    t->next += strcspn(t->next, " \n");
    if (*t->next)
        *t->next++ = 0;
    return *start ? start : NULL;
}

/* A byte string into a fresh buffer; null if it is not one. */
static uint8_t *byte_string(struct text *t, size_t *len)
{
    size_t cap = 1 << 16, n = 0;
    uint8_t *p = test_alloc(cap);
    const char *s;
    while ((s = token(t)) && strcmp(s, ".") != 0) {
        size_t digits = strspn(s, "0123456789abcdef"), unit = digits / 2, times = 1;
        if (s[digits] == '*')
            times = strtoul(s + digits + 1, NULL, 10);
        if (!unit || digits % 2 || times > LONGEST / unit || n > LONGEST - unit * times)
            break;
        if (n + unit * times > cap) {
            cap = 2 * (n + unit * times);
            if (!(p = realloc(p, cap)))
                abort();
        }
        for (size_t i = 0; i < unit; i++) {
            const char pair[3] = {s[2 * i], s[2 * i + 1], 0};
            p[n + i] = (uint8_t)strtoul(pair, NULL, 16);
        }
        for (size_t i = unit; i < unit * times; i++)
            p[n + i] = p[n + i - unit];
        n += unit * times;
    }
    *len = n;
    if (s && strcmp(s, ".") == 0)
        return p;
    free(p);
    return NULL;
}

static unsigned dtype_named(const char *name)
{
    for (unsigned d = PICI_F32; d <= PICI_U64; d++)
        if (name && strcmp(name, pici_dtype_name((enum pici_dtype)d)) == 0)
            return d;
    return 0;
}

int blocks_read(const char *directory, const char *file, void (*fn)(const struct roundtrip *, void *), void *context)
{
    struct text t;
    struct roundtrip c = {.name = ""};
    uint8_t *dense = NULL;
    const char *word;
    int calls = 0;
    if (!text_open(&t, directory, file))
        return -1;
    while ((word = token(&t))) {
        size_t bytes;
        if (strcmp(word, "case") == 0) {
            c.name = token(&t);
        } else if (strcmp(word, "dense") == 0) {
            unsigned dtype = dtype_named(token(&t)), width = ref_width(dtype);
            const char *n = token(&t);
            free(dense);
            dense = byte_string(&t, &bytes);
            c.dtype = (enum pici_dtype)dtype;
            c.n = n ? strtoull(n, NULL, 10) : 0;
            if (!dense || !width || bytes != c.n * width)
                break;
            for (uint64_t i = 0; i < c.n; i++)
                ref_store(dense, i, width, ref_get(dense + i * width, width));
            c.dense = dense;
        } else {
            const char *format = token(&t), *checksum = token(&t);
            uint8_t *block = byte_string(&t, &c.len);
            if (!block || !dense)
                break;
            for (int f = PICI_DENSE; f <= PICI_PACKED; f++)
                if (strcmp(format, pici_format_name((enum pici_format)f)) == 0)
                    c.format = (enum pici_format)f;
            c.checksum = strcmp(checksum, "checksum") == 0;
            c.earlier = strcmp(checksum, "earlier") == 0;
            c.one_level = strcmp(checksum, "fast") == 0;
            c.block = block;
            fn(&c, context);
            calls++;
            free(block);
        }
    }
    free(dense);
    free(t.all);
    return word ? -1 : calls;
}

int faults_read(const char *directory, const char *file, void (*fn)(const struct verdict *, void *), void *context)
{
    struct text t;
    struct verdict c = {.name = ""};
    const char *word;
    int calls = 0;
    if (!text_open(&t, directory, file))
        return -1;
    while ((word = token(&t))) {
        if (strcmp(word, "case") == 0) {
            c.name = token(&t);
        } else if (strcmp(word, "fault") == 0) {
            const char *status, *offset, *tile;
            c.rule = token(&t);
            status = token(&t);
            offset = token(&t);
            if (!(tile = token(&t)))
                break;
            if (strcmp(c.rule, "-") == 0)
                c.rule = NULL;
            c.status = strcmp(status, "OK") == 0            ? PICI_OK
                       : strcmp(status, "CORRUPT") == 0     ? PICI_E_CORRUPT
                       : strcmp(status, "VERSION") == 0     ? PICI_E_VERSION
                       : strcmp(status, "UNSUPPORTED") == 0 ? PICI_E_UNSUPPORTED
                                                            : PICI_E_CHECKSUM;
            c.offset = strtoull(offset, NULL, 10);
            c.tile = strcmp(tile, "-") == 0 ? PICI_NO_TILE : strtoull(tile, NULL, 10);
        } else {
            uint8_t *block = byte_string(&t, &c.len);
            if (!block)
                break;
            c.block = block;
            fn(&c, context);
            calls++;
            free(block);
        }
    }
    free(t.all);
    return word ? -1 : calls;
}

int roundtrips_read(const char *directory, void (*fn)(const struct roundtrip *, void *), void *context)
{
    return blocks_read(directory, "roundtrip.txt", fn, context);
}

int verdicts_read(const char *directory, void (*fn)(const struct verdict *, void *), void *context)
{
    return faults_read(directory, "verify.txt", fn, context);
}

/* A byte string of n elements, in host order; null if it is not one. */
static uint8_t *elements(struct text *t, uint64_t n, unsigned width)
{
    size_t bytes;
    uint8_t *p = byte_string(t, &bytes);
    if (p && (!width || bytes != n * width)) {
        free(p);
        return NULL;
    }
    for (uint64_t i = 0; p && i < n; i++)
        ref_store(p, i, width, ref_get(p + i * width, width));
    return p;
}

int smalls_read(const char *directory, void (*fn)(const struct small_vector *, void *), void *context)
{
    struct text t;
    struct small_vector c = {.name = ""};
    uint8_t *base = NULL, *result = NULL;
    const char *word;
    int calls = 0;
    if (!text_open(&t, directory, "small.txt"))
        return -1;
    while ((word = token(&t))) {
        if (strcmp(word, "case") == 0) {
            c.name = token(&t);
        } else if (strcmp(word, "base") == 0) {
            const char *name = token(&t);
            c.holds = name && strcmp(name, "e2m1x2") == 0 ? PICI_HOLDS_E2M1X2 : PICI_HOLDS_ONE;
            const unsigned dtype = c.holds ? (unsigned)PICI_U8 : dtype_named(name);
            const char *n = token(&t);
            c.dtype = (enum pici_dtype)dtype;
            c.n = n ? strtoull(n, NULL, 10) : 0;
            free(base);
            if (!(base = elements(&t, c.n, ref_width(dtype))))
                break;
        } else if (strcmp(word, "result") == 0) {
            free(result);
            if (!(result = elements(&t, c.n, ref_width(c.dtype))))
                break;
        } else {
            const char *status = NULL;
            c.use = strcmp(word, "accept") == 0   ? SMALL_ACCEPT
                    : strcmp(word, "refuse") == 0 ? SMALL_REFUSE
                                                  : SMALL_MAKE;
            c.status = PICI_OK;
            if (c.use == SMALL_REFUSE) {
                status = token(&t);
                c.status = status && strcmp(status, "VERSION") == 0    ? PICI_E_VERSION
                           : status && strcmp(status, "CHECKSUM") == 0 ? PICI_E_CHECKSUM
                                                                       : PICI_E_CORRUPT;
            } else if (c.use == SMALL_MAKE) {
                const char *format = token(&t), *checksum = token(&t);
                for (int f = PICI_DENSE; format && f <= PICI_HYBRID; f++)
                    if (strcmp(format, pici_format_name((enum pici_format)f)) == 0)
                        c.format = (enum pici_format)f;
                c.checksum = checksum && strcmp(checksum, "checksum") == 0;
            }
            uint8_t *delta = byte_string(&t, &c.len);
            if (!delta || !base || !result)
                break;
            c.base = base;
            c.result = result;
            c.delta = delta;
            fn(&c, context);
            calls++;
            free(delta);
        }
    }
    free(base);
    free(result);
    free(t.all);
    return word ? -1 : calls;
}

/* Stored bytes as elements in host order; how many there are. */
static uint64_t to_host(void *bytes, size_t len, unsigned width)
{
    for (uint64_t i = 0; i < len / width; i++)
        ref_store(bytes, i, width, ref_get((uint8_t *)bytes + i * width, width));
    return len / width;
}

static uint64_t number(struct text *t)
{
    const char *s = token(t);
    return s ? strtoull(s, NULL, 10) : 0;
}

static int is(struct text *t, const char *what)
{
    const char *s = token(t);
    return s && strcmp(s, what) == 0;
}

int values_read(const char *directory, const char *file, void (*fn)(const struct value_vector *, void *), void *context)
{
    struct text t;
    struct value_vector c = {.name = ""};
    uint8_t *src = NULL, *result = NULL, *array[2] = {NULL, NULL};
    const char *word;
    int calls = 0;
    if (!text_open(&t, directory, file))
        return -1;
    while ((word = token(&t))) {
        size_t len[2];
        if (strcmp(word, "case") == 0) {
            c = (struct value_vector){.name = token(&t)};
        } else if (strcmp(word, "cast") == 0) {
            c.v.codec = REF_CAST;
            c.v.cast = dtype_named(token(&t));
            c.v.positive = is(&t, "positive");
        } else if (strcmp(word, "qsgd") == 0) {
            c.v.codec = REF_QSGD;
            c.v.bits = (unsigned)number(&t);
            c.v.l2 = is(&t, "l2");
            c.v.nearest = is(&t, "nearest");
            c.v.bucket = (unsigned)number(&t);
            c.v.seed = number(&t);
            c.v.first = number(&t);
            c.v.sequence = number(&t);
            c.v.phase = (uint32_t)number(&t);
            c.v.origin = (uint32_t)number(&t);
        } else if (strcmp(word, "zfp") == 0) {
            c.v.codec = REF_ZFP;
            double *const param = is(&t, "rate") ? &c.v.rate : &c.v.tolerance;
            *param = strtod(token(&t), NULL);
            c.v.nx = (uint32_t)number(&t);
            c.v.ny = (uint32_t)number(&t);
        } else if (strcmp(word, "elements") == 0) {
            c.v.dtype = dtype_named(token(&t));
            c.n = number(&t);
            free(src);
            if (!(src = byte_string(&t, len)) || !ref_width(c.v.dtype) ||
                to_host(src, len[0], ref_width(c.v.dtype)) != c.n)
                break;
            c.src = src;
        } else if (strcmp(word, "result") == 0) {
            free(result);
            if (!(result = byte_string(&t, len)) || to_host(result, len[0], ref_width(c.v.dtype)) != c.n)
                break;
            c.result = result;
        } else { /* arrays, refuse */
            unsigned width[2];
            c.refuse = strcmp(word, "refuse") == 0;
            ref_values_counts(c.count, width, &c.v, c.n);
            for (int a = 0; a < 2; a++) {
                free(array[a]);
                array[a] = byte_string(&t, &len[a]);
                c.count[a] = array[a] ? to_host(array[a], len[a], width[a]) : 0;
                c.array[a] = array[a];
            }
            if (!array[0] || !array[1])
                break;
            fn(&c, context);
            calls++;
        }
    }
    free(src);
    free(result);
    free(array[0]);
    free(array[1]);
    free(t.all);
    return word ? -1 : calls;
}

/* ---- files ---- */

static void forget_tensor(struct vector_tensor *v)
{
    free(v->elements);
    for (unsigned i = 0; i < v->attributes; i++)
        free(v->attribute[i].value);
}

static void forget_file(struct file_vector *v)
{
    free(v->file);
    for (unsigned i = 0; i < v->attributes; i++)
        free(v->attribute[i].value);
    for (unsigned i = 0; i < v->tensors; i++)
        forget_tensor(&v->tensor[i]);
    for (unsigned i = 0; i < v->views; i++)
        forget_tensor(&v->view[i]);
}

static int read_attribute(struct text *t, struct vector_attribute *attribute, unsigned *n, unsigned most)
{
    if (*n == most)
        return 0;
    struct vector_attribute *const a = &attribute[(*n)++];
    a->key = token(t);
    return a->key && (a->value = byte_string(t, &a->len));
}

/* A tensor, or with its elements alone a view. */
static int read_tensor(struct text *t, struct vector_tensor *v, int view)
{
    v->name = token(t);
    if (v->name && strcmp(v->name, "-") == 0)
        v->name = "";
    v->dtype = (enum pici_dtype)dtype_named(token(t));
    const unsigned width = ref_width((unsigned)v->dtype);
    if (!view) {
        v->format = is(t, "coo") ? PICI_COO : PICI_DENSE;
        v->chunk_elements = (uint32_t)number(t);
        v->rank = (unsigned)number(t);
        for (unsigned i = 0; i < v->rank && i < 3; i++)
            v->shape[i] = number(t);
    }
    v->elements = byte_string(t, &v->bytes);
    return v->elements && width && v->rank <= 3 && to_host(v->elements, v->bytes, width) * width == v->bytes;
}

int files_read(const char *directory, void (*fn)(const struct file_vector *, void *), void *context)
{
    struct text t;
    struct file_vector v = {.name = NULL};
    const char *word;
    int calls = 0, good = text_open(&t, directory, "files.txt");
    if (!good)
        return -1;
    while (good && ((word = token(&t)) || v.name)) {
        struct vector_tensor *const last = v.tensors ? &v.tensor[v.tensors - 1] : NULL;
        if (!word || strcmp(word, "case") == 0) {
            if (v.name) {
                fn(&v, context);
                calls++;
            }
            forget_file(&v);
            v = (struct file_vector){.name = word ? token(&t) : NULL};
        } else if (strcmp(word, "file") == 0) {
            v.version = (unsigned)number(&t);
            v.written = is(&t, "written");
            good = (v.file = byte_string(&t, &v.len)) != NULL;
        } else if (strcmp(word, "attribute") == 0) {
            good = last ? read_attribute(&t, last->attribute, &last->attributes, 2)
                        : read_attribute(&t, v.attribute, &v.attributes, VECTOR_PARTS);
        } else if (strcmp(word, "tensor") == 0) {
            good = v.tensors < VECTOR_PARTS && read_tensor(&t, &v.tensor[v.tensors++], 0);
        } else {
            good = v.views < VECTOR_PARTS && read_tensor(&t, &v.view[v.views++], 1);
        }
    }
    forget_file(&v);
    free(t.all);
    return good ? calls : -1;
}
