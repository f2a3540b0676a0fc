/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Views: named tensors whose elements lie in another tensor of the file, with strides of their own. The file's
 * attribute "source.views" lists them. */
#include <stdlib.h>
#include <string.h>

#include "file/reader.h"
#include "format.h"
#include "sized.h"
#include "view_format.h"

/* ---- Checking a view */

/* The elements of its dtype, from `offset` on, that a view reaches over. 0: beyond 63 bits in bytes. */
static int measure(struct pici_view *v)
{
    const uint64_t width = pici_dtype_width(v->dtype), most = (uint64_t)INT64_MAX / width;
    uint64_t last = v->offset;
    v->stored_first = v->stored_count = 0;
    if (!pici_shape_count(&v->count, v->rank, v->shape, (size_t)width) || v->offset > most)
        return 0;
    if (!v->count)
        return 1;
    for (unsigned i = 0; i < v->rank; i++) {
        const uint64_t steps = v->shape[i] - 1;
        if (steps && v->strides[i] > (most - last) / steps)
            return 0;
        last += steps * v->strides[i];
    }
    if (last >= most)
        return 0;
    v->stored_first = v->offset;
    v->stored_count = last + 1 - v->offset;
    return 1;
}

/* Turns the range of the view's own elements into one of the tensor's. 0: the tensor has not so many. */
static int place(struct pici_view *v, enum pici_dtype dtype, uint64_t count)
{
    const uint64_t own = pici_dtype_width(v->dtype), width = pici_dtype_width(dtype);
    const uint64_t first = v->stored_first * own / width;
    const uint64_t last = ((v->stored_first + v->stored_count) * own + width - 1) / width;
    v->tensor_dtype = dtype;
    if (!v->stored_count)
        return 1;
    v->stored_first = first;
    v->stored_count = last - first;
    return last <= count;
}

/* Parses the view at p, without its pointers into the tensor. *used: its length. 0: malformed. */
static int parse(struct pici_view *v, const uint8_t *p, size_t left, size_t *used)
{
    *v = (struct pici_view)PICI_VIEW_INIT;
    if (left < PICI_VIEW_FIXED)
        return 0;
    const unsigned rank = p[PICI_VIEW_RANK], flags = p[PICI_VIEW_FLAGS];
    const size_t name = load_le32(p + PICI_VIEW_NAME), word = p[PICI_VIEW_WORD], dims = 16 * (size_t)rank;
    if (rank > PICI_RANK_MAX || flags & ~(unsigned)(PICI_VIEW_CONJUGATE | PICI_VIEW_NEGATIVE) || name > PICI_NAME_MAX)
        return 0;
    const size_t text = text_bytes(name + 1 + word);
    if (left - PICI_VIEW_FIXED < dims + text)
        return 0;
    *used = PICI_VIEW_FIXED + dims + text;
    v->tensor = load_le64(p + PICI_VIEW_TENSOR);
    v->offset = load_le64(p + PICI_VIEW_OFFSET);
    v->dtype = (enum pici_dtype)p[PICI_VIEW_DTYPE];
    v->rank = rank;
    v->conjugate = flags & PICI_VIEW_CONJUGATE ? 1 : 0;
    v->negative = flags & PICI_VIEW_NEGATIVE ? 1 : 0;
    p += PICI_VIEW_FIXED;
    for (unsigned i = 0; i < rank; i++) {
        v->shape[i] = load_le64(p + 8 * (size_t)i);
        v->strides[i] = load_le64(p + 8 * ((size_t)rank + i));
    }
    p += dims;
    v->name = (const char *)p;
    v->name_len = name;
    v->word = (const char *)p + name + 1;
    if (p[name] || memchr(v->word, 0, word) || !pici_all_zero(p + name + 1 + word, text - name - 1 - word))
        return 0;
    if (!pici_dtype_width(v->dtype) || ((v->conjugate || v->negative) && !fmt_is_float(v->dtype)))
        return 0;
    return (!v->conjugate || (rank && v->shape[rank - 1] == 2)) && measure(v);
}

/* ---- The table of a reader */

static int by_name(const void *a, const void *b)
{
    const struct pici_view_name *x = a, *y = b;
    const int order = memcmp(x->name, y->name, x->len < y->len ? x->len : y->len);
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

static enum pici_status malformed(struct pici_reader *r)
{
    pici_reader_look_at(r, PART_META, FILE_HEADER_BYTES);
    return pici_reader_refuse(r, PICI_E_CORRUPT, "the attribute " PICI_ATTR_VIEWS " is not as it must be");
}

static enum pici_status parse_table(struct pici_reader *r, struct pici_views *to, const uint8_t *p, size_t len)
{
    struct pici_view v;
    uint64_t last = 0;
    size_t at = PICI_VIEWS_HEADER, used;
    const uint64_t n = len < PICI_VIEWS_HEADER ? 0 : load_le64(p);
    if (len < PICI_VIEWS_HEADER || n > len / PICI_VIEW_FIXED)
        return malformed(r);
    to->at = malloc((size_t)n * sizeof *to->at + 1);
    to->names = malloc((size_t)n * sizeof *to->names + 1);
    if (!to->at || !to->names)
        return pici_reader_no_memory(r, "the views");
    for (size_t i = 0; i < n; i++, at += used) {
        if (!parse(&v, p + at, len - at, &used) || v.tensor < last)
            return malformed(r);
        last = v.tensor;
        to->at[i] = p + at;
        to->names[i] = (struct pici_view_name){v.name, v.name_len, i};
    }
    if (at != len)
        return malformed(r);
    if (n)
        qsort(to->names, (size_t)n, sizeof *to->names, by_name);
    for (size_t i = 1; i < n; i++)
        if (by_name(&to->names[i - 1], &to->names[i]) == 0)
            return malformed(r);
    to->n = (size_t)n;
    to->end = p + len;
    return PICI_OK;
}

static void forget(struct pici_views *v)
{
    free(v->at);
    free(v->names);
    *v = (struct pici_views){0};
}

/* Reads the table, once. */
static enum pici_status load(struct pici_reader *r)
{
    struct pici_attr table, stem;
    enum pici_status s = pici_reader_attr(r, PICI_FILE, PICI_ATTR_VIEWS, &table);
    if (s || r->views.loaded)
        return s;
    pici_reader_attr(r, PICI_FILE, PICI_ATTR_UNNAMED, &stem);
    if (table.key)
        s = parse_table(r, &r->views, table.value, table.len);
    if (s)
        forget(&r->views);
    r->views.loaded = !s;
    r->views.stem = s ? NULL : stem.value;
    r->views.stem_len = stem.len;
    return s;
}

enum pici_status pici_reader_view_count(struct pici_reader *r, uint64_t *views)
{
    const enum pici_status s = load(r);
    if (s)
        return s;
    if (!views)
        return pici_reader_refuse(r, PICI_E_ARG, "null");
    *views = r->views.n;
    return PICI_OK;
}

/* View i, which there is, to the caller's struct. */
static enum pici_status give(struct pici_reader *r, size_t i, struct pici_view *to)
{
    struct pici_view v;
    struct pici_desc d;
    size_t used;
    parse(&v, r->views.at[i], (size_t)(r->views.end - r->views.at[i]), &used);
    if (v.tensor >= r->index.n)
        return r->read && !r->ended ? pici_reader_refuse(r, PICI_E_ARG, "its tensor has not been read") : malformed(r);
    pici_index_desc(&r->index, (size_t)v.tensor, &d);
    if (!place(&v, d.dtype, d.count))
        return malformed(r);
    return sized_write(to, &v, sizeof v, sizeof v);
}

enum pici_status pici_reader_view(struct pici_reader *r, uint64_t i, struct pici_view *v)
{
    const enum pici_status s = load(r);
    if (s)
        return s;
    if (!v || sized_of(v) < sizeof *v)
        return pici_reader_refuse(r, PICI_E_ARG, "null, or not initialized");
    if (i >= r->views.n)
        return pici_reader_refuse(r, PICI_E_ARG, "no view %" PRIu64 ": there are %zu", i, r->views.n);
    return give(r, (size_t)i, v);
}

enum pici_status pici_reader_find_view(struct pici_reader *r, const char *name, size_t name_len, struct pici_view *v,
                                       int *found)
{
    const enum pici_status s = load(r);
    if (s)
        return s;
    if (!v || sized_of(v) < sizeof *v || !found || (name_len && !name))
        return pici_reader_refuse(r, PICI_E_ARG, "null, or not initialized");
    const struct pici_view_name key = {name ? name : "", name_len, 0};
    const struct pici_view_name *at =
        r->views.n ? bsearch(&key, r->views.names, r->views.n, sizeof key, by_name) : NULL;
    *found = at != NULL;
    return at ? give(r, at->number, v) : PICI_OK;
}

enum pici_status pici_reader_is_unnamed(struct pici_reader *r, const char *name, size_t name_len, int *yes)
{
    const enum pici_status s = load(r);
    if (s)
        return s;
    if (!yes || (name_len && !name))
        return pici_reader_refuse(r, PICI_E_ARG, "null");
    const size_t stem = r->views.stem_len;
    *yes = r->views.stem && name_len >= stem && memcmp(name, r->views.stem, stem) == 0;
    if (!*yes || name_len == stem)
        return PICI_OK;
    *yes = name[stem] == '.' && name_len > stem + 1;
    for (size_t i = stem + 1; i < name_len; i++)
        *yes = *yes && name[i] >= '0' && name[i] <= '9';
    return PICI_OK;
}

/* ---- Elements */

/* How a view's elements lie in the tensor's, which are in the host's order. */
struct layout {
    const uint8_t *from;
    size_t width, stored; /* bytes of an element of the view; of the tensor */
    int negative, conjugate;
};

/* The element whose first byte, of all in little-endian order, is byte `at`. */
static void copy_mixed(const struct layout *l, uint8_t *to, uint64_t at)
{
    for (size_t k = 0; k < l->width; k++) {
        const uint64_t b = at + k;
        to[l->width - 1 - k] = l->from[b / l->stored * l->stored + (l->stored - 1 - b % l->stored)];
    }
}

#define COPY_RUN(bytes)                                                                                                \
    for (uint64_t i = 0; i < n; i++, from += step * (bytes))                                                           \
    memcpy(to + i * (bytes), from, bytes)

/* n elements from byte `at` on, each `step` elements after the one before. */
static void copy_run(const struct layout *l, uint8_t *to, uint64_t at, uint64_t step, uint64_t n)
{
    const uint8_t *from = l->from + at;
    if (PICI_BIG_ENDIAN && l->width != l->stored)
        for (uint64_t i = 0; i < n; i++)
            copy_mixed(l, to + i * l->width, at + i * step * l->width);
    else if (step == 1 || n == 1)
        memcpy(to, from, n * l->width);
    else if (l->width == 1)
        COPY_RUN(1);
    else if (l->width == 2)
        COPY_RUN(2);
    else if (l->width == 4)
        COPY_RUN(4);
    else
        COPY_RUN(8);
}

/* Changes the signs of elements of a run of which the first has the last index `index`. */
static void change_signs(const struct layout *l, uint8_t *p, uint64_t index, uint64_t n)
{
    const size_t sign = PICI_BIG_ENDIAN ? 0 : l->width - 1;
    for (uint64_t i = 0; i < n; i++)
        if (l->negative != (l->conjugate && index + i == 1))
            p[i * l->width + sign] ^= 0x80;
}

enum pici_status pici_view_copy(const struct pici_view *v, const void *stored, uint64_t first, uint64_t n, void *dst)
{
    if (!v || sized_of(v) < sizeof *v || first > v->count || n > v->count - first || (n && (!stored || !dst)))
        return PICI_E_ARG;
    const struct layout l = {.from = stored,
                             .width = pici_dtype_width(v->dtype),
                             .stored = pici_dtype_width(v->tensor_dtype),
                             .negative = v->negative,
                             .conjugate = v->conjugate};
    const unsigned rank = v->rank;
    uint64_t at[PICI_RANK_MAX + 1] = {0}, left = first, place = v->offset;
    uint8_t *to = dst;
    if (!l.width || !l.stored || rank > PICI_RANK_MAX)
        return PICI_E_ARG;
    for (unsigned i = rank; n && i-- > 0;) { /* n > 0: no dimension is 0 */
        at[i] = left % v->shape[i];
        left /= v->shape[i];
        place += at[i] * v->strides[i];
    }
    for (uint64_t k; n; n -= k, to += k * l.width) {
        const unsigned last = rank ? rank - 1 : 0;
        const uint64_t row = rank ? v->shape[last] - at[last] : 1, step = rank ? v->strides[last] : 1;
        k = row < n ? row : n;
        copy_run(&l, to, place * l.width - v->stored_first * l.stored, step, k);
        if (l.negative || l.conjugate)
            change_signs(&l, to, at[last], k);
        place += k * step;
        at[last] += k;
        for (unsigned i = rank; i-- > 0 && at[i] == v->shape[i];) {
            place -= v->shape[i] * v->strides[i];
            at[i] = 0;
            if (i) {
                at[i - 1]++;
                place += v->strides[i - 1];
            }
        }
    }
    return PICI_OK;
}
