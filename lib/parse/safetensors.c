/* SPDX-License-Identifier: BSD-3-Clause */
#include "parse/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "parse/json.h"

/* The dtypes of the reference implementation, with the bits of an item, and the dtype in a .pici file. */
static const struct source_dtype {
    char name[12];
    uint8_t bits;
    uint8_t dtype; /* enum pici_dtype */
    uint8_t item_elements;
} source_dtypes[] = {
    {"BOOL", 8, PICI_U8, 1},        {"F4", 4, PICI_U8, 0},          {"F6_E2M3", 6, PICI_U8, 0},
    {"F6_E3M2", 6, PICI_U8, 0},     {"U8", 8, PICI_U8, 1},          {"I8", 8, PICI_I8, 1},
    {"F8_E5M2", 8, PICI_F8E5M2, 1}, {"F8_E4M3", 8, PICI_F8E4M3, 1}, {"F8_E8M0", 8, PICI_U8, 1},
    {"F8_E4M3FNUZ", 8, PICI_U8, 1}, {"F8_E5M2FNUZ", 8, PICI_U8, 1}, {"I16", 16, PICI_I16, 1},
    {"U16", 16, PICI_U16, 1},       {"F16", 16, PICI_F16, 1},       {"BF16", 16, PICI_BF16, 1},
    {"I32", 32, PICI_I32, 1},       {"U32", 32, PICI_U32, 1},       {"F32", 32, PICI_F32, 1},
    {"C64", 64, PICI_F32, 2},       {"F64", 64, PICI_F64, 1},       {"I64", 64, PICI_I64, 1},
    {"U64", 64, PICI_U64, 1},
};

struct key {
    const char *name;
    size_t bytes;
    uint64_t offset; /* in the file */
};

struct keys {
    struct key *list;
    size_t count, cap;
};

struct parser {
    struct json json;
    struct parse_error *err;
    struct safetensors *out;
    struct keys tensors, metadata;
    char *names_end; /* out->names is used up to here; it has room for all keys of the text */
    size_t tensors_cap, shapes_count, shapes_cap;
};

bool pici_safetensors_header_bytes(uint64_t *need, const uint8_t *first, size_t len, struct parse_error *err)
{
    uint64_t n = 0;
    if (len < SAFETENSORS_PREFIX_BYTES)
        return pici_parse_fail(err, len, "the file ends inside the length of the header");
    for (int i = SAFETENSORS_PREFIX_BYTES; i-- > 0;)
        n = n << 8 | first[i];
    if (n > SAFETENSORS_MAX_HEADER_TEXT)
        return pici_parse_fail(err, 0, "a header of %" PRIu64 " bytes, above the limit of %d", n,
                               SAFETENSORS_MAX_HEADER_TEXT);
    *need = SAFETENSORS_PREFIX_BYTES + n;
    return true;
}

/* Makes room for one more than count elements of each bytes. Returns array, perhaps moved; NULL: out of memory. */
static void *grow(void *array, size_t count, size_t *cap, size_t each)
{
    uint64_t bytes;
    if (count < *cap)
        return array;
    size_t more = *cap ? 2 * *cap : 8;
    if (!parse_mul(&bytes, more, each, SIZE_MAX))
        return NULL;
    void *p = realloc(array, (size_t)bytes);
    if (p)
        *cap = more;
    return p;
}

/* The offset of a token in the file. */
static uint64_t place(struct json_token t)
{
    return SAFETENSORS_PREFIX_BYTES + t.start;
}

static bool no_memory(struct parser *p, uint64_t offset)
{
    return pici_parse_fail(p->err, offset, "out of memory for the tensors of the header");
}

/* Appends a key, with its escapes resolved and a NUL. */
static bool add_key(struct parser *p, struct keys *keys, struct json_token t)
{
    struct key *list = grow(keys->list, keys->count, &keys->cap, sizeof *list);
    if (!list)
        return no_memory(p, place(t));
    keys->list = list;
    struct key *k = &list[keys->count++];
    *k = (struct key){p->names_end, pici_json_string(&p->json, t, p->names_end), place(t) - 1};
    p->names_end += k->bytes;
    *p->names_end++ = '\0';
    return true;
}

static int by_name(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    int c = memcmp(x->name, y->name, x->bytes < y->bytes ? x->bytes : y->bytes);
    if (c)
        return c;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Sorts the keys. Of duplicates, reports the one that comes first in the text. */
static bool no_duplicates(struct parser *p, struct keys *keys)
{
    const struct key *worst = NULL;
    char name[64];
    if (keys->count)
        qsort(keys->list, keys->count, sizeof *keys->list, by_name);
    for (size_t i = 1; i < keys->count; i++) {
        const struct key *k = &keys->list[i];
        if (k[-1].bytes == k->bytes && memcmp(k[-1].name, k->name, k->bytes) == 0 &&
            (!worst || k->offset < worst->offset))
            worst = k;
    }
    if (worst)
        return pici_parse_fail(p->err, worst->offset, "duplicate key '%s'",
                               pici_parse_printable(name, sizeof name, worst->name, worst->bytes));
    return true;
}

static bool parse_metadata(struct parser *p)
{
    struct json_token t;
    t = pici_json_next(&p->json);
    if (t.type == JSON_ERROR || t.type == JSON_NULL)
        return t.type == JSON_NULL;
    if (t.type != JSON_OBJECT)
        return pici_parse_fail(p->err, place(t), "'__metadata__' is not an object");
    while (pici_json_key(&p->json, &t))
        if (!add_key(p, &p->metadata, t) ||
            !pici_json_expect(&p->json, JSON_STRING, "a value in '__metadata__' is not a string", &t))
            return false;
    return t.type == JSON_OBJECT_END;
}

static bool parse_dtype(struct parser *p, const struct source_dtype **d)
{
    struct json_token t;
    char text[40];
    if (!pici_json_expect(&p->json, JSON_STRING, "'dtype' is not a string", &t))
        return false;
    for (size_t i = 0; i < sizeof source_dtypes / sizeof *source_dtypes; i++) {
        *d = &source_dtypes[i];
        if (pici_json_is(&p->json, t, (*d)->name))
            return true;
    }
    return pici_parse_fail(p->err, place(t), "unknown dtype '%s'",
                           pici_parse_printable(text, sizeof text, p->json.text + t.start, t.len));
}

static bool parse_shape(struct parser *p, struct safetensors_tensor *tensor, uint64_t *offset)
{
    struct json_token t;
    struct safetensors *out = p->out;
    if (!pici_json_expect(&p->json, JSON_ARRAY, "'shape' is not an array", &t))
        return false;
    *offset = place(t);
    tensor->items = 1;
    for (tensor->rank = 0;; tensor->rank++) {
        uint64_t n;
        t = pici_json_next(&p->json);
        if (t.type == JSON_ARRAY_END)
            return true;
        if (t.type == JSON_ERROR)
            return false;
        if (!pici_json_u64(&p->json, t, &n))
            return pici_parse_fail(p->err, place(t), "a dimension in 'shape' is not an unsigned 64-bit integer");
        if (!parse_mul(&tensor->items, tensor->items, n, UINT64_MAX))
            return pici_parse_fail(p->err, place(t), "the product of 'shape' overflows");
        uint64_t *shapes = grow(out->shapes, p->shapes_count, &p->shapes_cap, sizeof *shapes);
        if (!shapes)
            return no_memory(p, place(t));
        out->shapes = shapes;
        shapes[p->shapes_count++] = n;
    }
}

static bool parse_offsets(struct parser *p, struct safetensors_tensor *tensor, uint64_t *offset)
{
    struct json_token t;
    uint64_t pair[2];
    if (!pici_json_expect(&p->json, JSON_ARRAY, "'data_offsets' is not an array", &t))
        return false;
    *offset = place(t);
    for (int i = 0; i < 2; i++) {
        t = pici_json_next(&p->json);
        if (t.type == JSON_ERROR)
            return false;
        if (!pici_json_u64(&p->json, t, &pair[i]))
            return pici_parse_fail(p->err, place(t), "'data_offsets' is not two unsigned 64-bit integers");
    }
    if (!pici_json_expect(&p->json, JSON_ARRAY_END, "'data_offsets' has more than two numbers", &t))
        return false;
    if (pair[0] > pair[1])
        return pici_parse_fail(p->err, *offset, "'data_offsets' ends before it begins");
    /* all sums of offsets and file positions stay below 2^63 */
    if (pair[1] > (uint64_t)INT64_MAX - p->out->data_offset)
        return pici_parse_fail(p->err, *offset, "'data_offsets' overflows");
    tensor->begin = p->out->data_offset + pair[0];
    tensor->end = p->out->data_offset + pair[1];
    return true;
}

/* Takes the value of a key that means nothing here. */
static bool skip_value(struct parser *p)
{
    unsigned open = 0;
    do {
        const struct json_token t = pici_json_next(&p->json);
        if (t.type == JSON_ERROR)
            return false;
        open += t.type == JSON_OBJECT || t.type == JSON_ARRAY;
        open -= t.type == JSON_OBJECT_END || t.type == JSON_ARRAY_END;
    } while (open);
    return true;
}

static bool parse_tensor(struct parser *p, const struct key *key)
{
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4, ALL = 7 };
    const struct source_dtype *d = NULL;
    struct safetensors_tensor *tensors = grow(p->out->tensors, p->out->count, &p->tensors_cap, sizeof *p->out->tensors);
    struct json_token t;
    uint64_t shape_offset = 0, data_offset = 0, bits = 0;
    unsigned seen = 0;
    char text[64];
    if (!tensors)
        return no_memory(p, key->offset);
    p->out->tensors = tensors;
    struct safetensors_tensor *tensor = &tensors[p->out->count++];
    *tensor = (struct safetensors_tensor){.name = key->name, .name_bytes = key->bytes, .header_offset = key->offset};
    if (!pici_json_expect(&p->json, JSON_OBJECT, "a tensor that is not an object", &t))
        return false;
    while (pici_json_key(&p->json, &t)) {
        unsigned which = pici_json_is(&p->json, t, "dtype")          ? DTYPE
                         : pici_json_is(&p->json, t, "shape")        ? SHAPE
                         : pici_json_is(&p->json, t, "data_offsets") ? OFFSETS
                                                                     : 0;
        if (which == 0 && !skip_value(p))
            return false;
        if (which == 0)
            continue;
        if (seen & which)
            return pici_parse_fail(p->err, place(t) - 1, "duplicate key '%s' in a tensor",
                                   pici_parse_printable(text, sizeof text, p->json.text + t.start, t.len));
        seen |= which;
        bool ok = which == DTYPE   ? parse_dtype(p, &d)
                  : which == SHAPE ? parse_shape(p, tensor, &shape_offset)
                                   : parse_offsets(p, tensor, &data_offset);
        if (!ok)
            return false;
    }
    if (t.type == JSON_ERROR)
        return false;
    if (seen != ALL)
        return pici_parse_fail(p->err, place(t), "a tensor without '%s'",
                               seen & DTYPE ? seen & SHAPE ? "data_offsets" : "shape" : "dtype");
    if (!parse_mul(&bits, tensor->items, d->bits, UINT64_MAX))
        return pici_parse_fail(p->err, shape_offset, "the size of 'shape' in %s overflows", d->name);
    if (bits % 8)
        return pici_parse_fail(p->err, shape_offset, "'shape' in %s is not a whole number of bytes", d->name);
    if (bits / 8 != tensor->end - tensor->begin)
        return pici_parse_fail(p->err, data_offset,
                               "'data_offsets' spans %" PRIu64 " bytes, 'shape' in %s needs %" PRIu64,
                               tensor->end - tensor->begin, d->name, bits / 8);
    tensor->source_dtype = d->name;
    tensor->dtype = (enum pici_dtype)d->dtype;
    tensor->item_elements = d->item_elements;
    tensor->count = d->item_elements ? tensor->items * d->item_elements : bits / 8;
    return true;
}

static bool parse_header(struct parser *p)
{
    struct json_token t;
    if (!pici_json_expect(&p->json, JSON_OBJECT, "the header is not a JSON object", &t))
        return false;
    while (pici_json_key(&p->json, &t))
        if (!add_key(p, &p->tensors, t) ||
            !(pici_json_is(&p->json, t, "__metadata__") ? parse_metadata(p)
                                                        : parse_tensor(p, &p->tensors.list[p->tensors.count - 1])))
            return false;
    return t.type == JSON_OBJECT_END && pici_json_expect(&p->json, JSON_END, "", &t) &&
           no_duplicates(p, &p->metadata) && no_duplicates(p, &p->tensors);
}

static int by_data(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return x->header_offset < y->header_offset ? -1 : x->header_offset > y->header_offset;
}

/* Checks that the tensors' data leave no gap, do not overlap and end with the file. */
static bool check_layout(struct safetensors *out, uint64_t file_bytes, struct parse_error *err)
{
    char name[64];
    uint64_t end = out->data_offset;
    if (out->count)
        qsort(out->tensors, out->count, sizeof *out->tensors, by_data);
    for (size_t i = 0; i < out->count; i++) {
        const struct safetensors_tensor *t = &out->tensors[i];
        if (t->begin != end)
            return pici_parse_fail(err, t->header_offset, "the data of tensor '%s' %s",
                                   pici_parse_printable(name, sizeof name, t->name, t->name_bytes),
                                   t->begin > end ? "leave a hole before them" : "overlap those of another");
        end = t->end;
    }
    out->file_bytes = end;
    if (file_bytes == UINT64_MAX || file_bytes == end)
        return true;
    if (file_bytes < end)
        return pici_parse_fail(err, file_bytes, "the file ends %" PRIu64 " bytes before the last tensor does",
                               end - file_bytes);
    return pici_parse_fail(err, end, "%" PRIu64 " bytes that belong to no tensor", file_bytes - end);
}

bool pici_safetensors_parse(struct safetensors *out, const uint8_t *head, size_t len, uint64_t file_bytes,
                            struct parse_error *err)
{
    struct parser p = {.err = err, .out = out};
    *out = (struct safetensors){0};
    if (!pici_safetensors_header_bytes(&out->data_offset, head, len, err))
        return false;
    if (len < out->data_offset || file_bytes < out->data_offset)
        return pici_parse_fail(err, len < file_bytes ? len : file_bytes, "the file ends inside the header");
    size_t text_bytes = (size_t)(out->data_offset - SAFETENSORS_PREFIX_BYTES);
    pici_json_init(&p.json, head + SAFETENSORS_PREFIX_BYTES, text_bytes, SAFETENSORS_PREFIX_BYTES, err);
    /* A key's two quotes leave room for its NUL. One byte more, since malloc(0) may return NULL. */
    p.names_end = out->names = malloc(text_bytes + 1);
    bool ok = out->names ? parse_header(&p) : pici_parse_fail(err, 0, "out of memory for the names of the header");
    const uint64_t *shape = out->shapes;
    for (size_t i = 0; ok && i < out->count; i++) {
        if (out->tensors[i].rank == 0)
            continue;
        out->tensors[i].shape = shape;
        shape += out->tensors[i].rank;
    }
    out->metadata_count = p.metadata.count;
    free(p.tensors.list);
    free(p.metadata.list);
    ok = ok && check_layout(out, file_bytes, err);
    if (!ok)
        pici_safetensors_free(out);
    return ok;
}

void pici_safetensors_free(struct safetensors *s)
{
    free(s->tensors);
    free(s->names);
    free(s->shapes);
    *s = (struct safetensors){0};
}
