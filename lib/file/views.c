/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Views: named tensors that address elements of another tensor of the file, with their own strides. The file's
 * attribute "source.views" lists them. */
#include <stdlib.h>
#include <string.h>

#include "file/reader.h"
#include "format.h"
#include "sized.h"
#include "view_format.h"

/* ---- Checking a view */

/* Measure the range of elements of its dtype that a view spans from `offset` on. Returns 0 if it exceeds 63 bits in
 * bytes. */
static int measure(struct pici_view *view)
{
    const uint64_t element_width = pici_dtype_width(view->dtype), maximum = (uint64_t)INT64_MAX / element_width;
    uint64_t last_element = view->offset;
    view->stored_first = view->stored_count = 0;
    if (!pici_shape_count(&view->count, view->rank, view->shape, (size_t)element_width) || view->offset > maximum)
        return 0;
    if (!view->count)
        return 1;
    for (unsigned i = 0; i < view->rank; i++) {
        const uint64_t steps = view->shape[i] - 1;
        if (steps && view->strides[i] > (maximum - last_element) / steps)
            return 0;
        last_element += steps * view->strides[i];
    }
    if (last_element >= maximum)
        return 0;
    view->stored_first = view->offset;
    view->stored_count = last_element + 1 - view->offset;
    return 1;
}

/* Turns the range of the view's own elements into one of the tensor's. Returns 0 if the tensor has fewer. */
static int place(struct pici_view *view, enum pici_dtype dtype, uint64_t count)
{
    const uint64_t view_width = pici_dtype_width(view->dtype), element_width = pici_dtype_width(dtype);
    const uint64_t first_element = view->stored_first * view_width / element_width;
    const uint64_t end_element =
        ((view->stored_first + view->stored_count) * view_width + element_width - 1) / element_width;
    view->tensor_dtype = dtype;
    if (!view->stored_count)
        return 1;
    view->stored_first = first_element;
    view->stored_count = end_element - first_element;
    return end_element <= count;
}

/* Parses the view at bytes, without its pointers into the tensor. *used_bytes: its length. Returns 0 if it is
 * malformed. */
static int parse(struct pici_view *view, const uint8_t *bytes, size_t left, size_t *used_bytes)
{
    *view = (struct pici_view)PICI_VIEW_INIT;
    if (left < PICI_VIEW_FIXED)
        return 0;
    const unsigned rank = bytes[PICI_VIEW_RANK], flags = bytes[PICI_VIEW_FLAGS];
    const size_t name_size = load_le32(bytes + PICI_VIEW_NAME), word_size = bytes[PICI_VIEW_WORD],
                 dims_size = 16 * (size_t)rank;
    if (rank > PICI_RANK_MAX || flags & ~(unsigned)(PICI_VIEW_CONJUGATE | PICI_VIEW_NEGATIVE) ||
        name_size > PICI_NAME_MAX)
        return 0;
    const size_t text_size = text_bytes(name_size + 1 + word_size);
    if (left - PICI_VIEW_FIXED < dims_size + text_size)
        return 0;
    *used_bytes = PICI_VIEW_FIXED + dims_size + text_size;
    view->tensor = load_le64(bytes + PICI_VIEW_TENSOR);
    view->offset = load_le64(bytes + PICI_VIEW_OFFSET);
    view->dtype = (enum pici_dtype)bytes[PICI_VIEW_DTYPE];
    view->rank = rank;
    view->conjugate = flags & PICI_VIEW_CONJUGATE ? 1 : 0;
    view->negative = flags & PICI_VIEW_NEGATIVE ? 1 : 0;
    bytes += PICI_VIEW_FIXED;
    for (unsigned i = 0; i < rank; i++) {
        view->shape[i] = load_le64(bytes + 8 * (size_t)i);
        view->strides[i] = load_le64(bytes + 8 * ((size_t)rank + i));
    }
    bytes += dims_size;
    view->name = (const char *)bytes;
    view->name_len = name_size;
    view->word = (const char *)bytes + name_size + 1;
    if (bytes[name_size] || memchr(view->word, 0, word_size) ||
        !pici_all_zero(bytes + name_size + 1 + word_size, text_size - name_size - 1 - word_size))
        return 0;
    if (!pici_dtype_width(view->dtype) || ((view->conjugate || view->negative) && !fmt_is_float(view->dtype)))
        return 0;
    return (!view->conjugate || (rank && view->shape[rank - 1] == 2)) && measure(view);
}

/* ---- The table of a reader */

static int by_name(const void *left_item, const void *right_item)
{
    const struct pici_view_name *left = left_item, *right = right_item;
    const int order = memcmp(left->name, right->name, left->size < right->size ? left->size : right->size);
    return order ? order : (left->size > right->size) - (left->size < right->size);
}

static enum pici_status malformed(struct pici_reader *reader)
{
    pici_reader_look_at(reader, PART_META, FILE_HEADER_BYTES);
    return pici_reader_refuse(reader, PICI_E_CORRUPT, "the attribute " PICI_ATTR_VIEWS " is malformed");
}

static enum pici_status parse_table(struct pici_reader *reader, struct pici_views *views, const uint8_t *bytes,
                                    size_t size)
{
    struct pici_view view;
    uint64_t previous = 0;
    size_t position = PICI_VIEWS_HEADER, used_bytes;
    const uint64_t count = size < PICI_VIEWS_HEADER ? 0 : load_le64(bytes);
    if (size < PICI_VIEWS_HEADER || count > size / PICI_VIEW_FIXED)
        return malformed(reader);
    views->rows = malloc((size_t)count * sizeof *views->rows + 1);
    views->names = malloc((size_t)count * sizeof *views->names + 1);
    if (!views->rows || !views->names)
        return pici_reader_no_memory(reader, "the views");
    for (size_t i = 0; i < count; i++, position += used_bytes) {
        if (!parse(&view, bytes + position, size - position, &used_bytes) || view.tensor < previous)
            return malformed(reader);
        previous = view.tensor;
        views->rows[i] = bytes + position;
        views->names[i] = (struct pici_view_name){view.name, view.name_len, i};
    }
    if (position != size)
        return malformed(reader);
    if (count)
        qsort(views->names, (size_t)count, sizeof *views->names, by_name);
    for (size_t i = 1; i < count; i++)
        if (by_name(&views->names[i - 1], &views->names[i]) == 0)
            return malformed(reader);
    views->count = (size_t)count;
    views->table_end = bytes + size;
    return PICI_OK;
}

static void forget(struct pici_views *views)
{
    free(views->rows);
    free(views->names);
    *views = (struct pici_views){0};
}

/* Reads the table, once. */
static enum pici_status load(struct pici_reader *reader)
{
    struct pici_attr table, stem;
    enum pici_status status = pici_reader_attr(reader, PICI_FILE, PICI_ATTR_VIEWS, &table);
    if (status || reader->views.loaded)
        return status;
    pici_reader_attr(reader, PICI_FILE, PICI_ATTR_UNNAMED, &stem);
    if (table.key)
        status = parse_table(reader, &reader->views, table.value, table.len);
    if (status)
        forget(&reader->views);
    reader->views.loaded = !status;
    reader->views.stem = status ? NULL : stem.value;
    reader->views.stem_size = stem.len;
    return status;
}

enum pici_status pici_reader_view_count(struct pici_reader *reader, uint64_t *views)
{
    const enum pici_status status = load(reader);
    if (status)
        return status;
    if (!views)
        return pici_reader_refuse(reader, PICI_E_ARG, "null");
    *views = reader->views.count;
    return PICI_OK;
}

/* Copy an existing view to the caller's struct. */
static enum pici_status give(struct pici_reader *reader, size_t number, struct pici_view *theirs)
{
    struct pici_view view;
    struct pici_desc description;
    size_t used_bytes;
    parse(&view, reader->views.rows[number], (size_t)(reader->views.table_end - reader->views.rows[number]),
          &used_bytes);
    if (view.tensor >= reader->index.count)
        return reader->read && !reader->ended ? pici_reader_refuse(reader, PICI_E_ARG, "its tensor has not been read")
                                              : malformed(reader);
    pici_index_desc(&reader->index, (size_t)view.tensor, &description);
    if (!place(&view, description.dtype, description.count))
        return malformed(reader);
    return sized_write(theirs, &view, sizeof view, sizeof view);
}

enum pici_status pici_reader_view(struct pici_reader *reader, uint64_t number, struct pici_view *view)
{
    const enum pici_status status = load(reader);
    if (status)
        return status;
    if (!view || sized_of(view) < sizeof *view)
        return pici_reader_refuse(reader, PICI_E_ARG, "null, or not initialized");
    if (number >= reader->views.count)
        return pici_reader_refuse(reader, PICI_E_ARG, "no view %" PRIu64 ": there are %zu", number,
                                  reader->views.count);
    return give(reader, (size_t)number, view);
}

enum pici_status pici_reader_find_view(struct pici_reader *reader, const char *name, size_t name_len,
                                       struct pici_view *view, int *found)
{
    const enum pici_status status = load(reader);
    if (status)
        return status;
    if (!view || sized_of(view) < sizeof *view || !found || (name_len && !name))
        return pici_reader_refuse(reader, PICI_E_ARG, "null, or not initialized");
    const struct pici_view_name key = {name ? name : "", name_len, 0};
    const struct pici_view_name *at =
        reader->views.count ? bsearch(&key, reader->views.names, reader->views.count, sizeof key, by_name) : NULL;
    *found = at != NULL;
    return at ? give(reader, at->number, view) : PICI_OK;
}

enum pici_status pici_reader_is_unnamed(struct pici_reader *reader, const char *name, size_t name_len, int *matches)
{
    const enum pici_status status = load(reader);
    if (status)
        return status;
    if (!matches || (name_len && !name))
        return pici_reader_refuse(reader, PICI_E_ARG, "null");
    const size_t stem_size = reader->views.stem_size;
    *matches = reader->views.stem && name_len >= stem_size && memcmp(name, reader->views.stem, stem_size) == 0;
    if (!*matches || name_len == stem_size)
        return PICI_OK;
    *matches = name[stem_size] == '.' && name_len > stem_size + 1;
    for (size_t i = stem_size + 1; i < name_len; i++)
        *matches = *matches && name[i] >= '0' && name[i] <= '9';
    return PICI_OK;
}

/* ---- Elements */

/* The layout of a view's elements in the tensor's, which are in host order. */
struct layout {
    const uint8_t *source;
    size_t width, stored; /* bytes of an element of the view; of the tensor */
    int negative, conjugate;
};

/* Copy the element that begins at byte `at` of the tensor in little-endian order. */
static void copy_mixed(const struct layout *layout, uint8_t *target, uint64_t at)
{
    for (size_t k = 0; k < layout->width; k++) {
        const uint64_t b = at + k;
        target[layout->width - 1 - k] =
            layout->source[b / layout->stored * layout->stored + (layout->stored - 1 - b % layout->stored)];
    }
}

#define COPY_RUN(bytes)                                                                                                \
    for (uint64_t i = 0; i < elements; i++, source += stride * (bytes))                                                \
    memcpy(target + i * (bytes), source, bytes)

/* Copy elements from byte `at` on, `stride` elements apart. */
static void copy_run(const struct layout *layout, uint8_t *target, uint64_t at, uint64_t stride, uint64_t elements)
{
    const uint8_t *source = layout->source + at;
    if (PICI_BIG_ENDIAN && layout->width != layout->stored)
        for (uint64_t i = 0; i < elements; i++)
            copy_mixed(layout, target + i * layout->width, at + i * stride * layout->width);
    else if (stride == 1 || elements == 1)
        memcpy(target, source, elements * layout->width);
    else if (layout->width == 1)
        COPY_RUN(1);
    else if (layout->width == 2)
        COPY_RUN(2);
    else if (layout->width == 4)
        COPY_RUN(4);
    else
        COPY_RUN(8);
}

/* Changes the signs in a run of elements. index: the last index of the first one. */
static void change_signs(const struct layout *layout, uint8_t *bytes, uint64_t index, uint64_t elements)
{
    const size_t sign = PICI_BIG_ENDIAN ? 0 : layout->width - 1;
    for (uint64_t i = 0; i < elements; i++)
        if (layout->negative != (layout->conjugate && index + i == 1))
            bytes[i * layout->width + sign] ^= 0x80;
}

enum pici_status pici_view_copy(const struct pici_view *view, const void *stored, uint64_t first_element,
                                uint64_t elements, void *destination)
{
    if (!view || sized_of(view) < sizeof *view || first_element > view->count ||
        elements > view->count - first_element || (elements && (!stored || !destination)))
        return PICI_E_ARG;
    const struct layout layout = {.source = stored,
                                  .width = pici_dtype_width(view->dtype),
                                  .stored = pici_dtype_width(view->tensor_dtype),
                                  .negative = view->negative,
                                  .conjugate = view->conjugate};
    const unsigned rank = view->rank;
    uint64_t at[PICI_RANK_MAX + 1] = {0}, remaining = first_element, position = view->offset;
    uint8_t *target = destination;
    if (!layout.width || !layout.stored || rank > PICI_RANK_MAX)
        return PICI_E_ARG;
    for (unsigned i = rank; elements && i-- > 0;) { /* elements > 0: no dimension is 0 */
        at[i] = remaining % view->shape[i];
        remaining /= view->shape[i];
        position += at[i] * view->strides[i];
    }
    for (uint64_t k; elements; elements -= k, target += k * layout.width) {
        const unsigned last = rank ? rank - 1 : 0;
        const uint64_t row_left = rank ? view->shape[last] - at[last] : 1;
        const uint64_t stride = rank ? view->strides[last] : 1;
        k = row_left < elements ? row_left : elements;
        copy_run(&layout, target, position * layout.width - view->stored_first * layout.stored, stride, k);
        if (layout.negative || layout.conjugate)
            change_signs(&layout, target, at[last], k);
        position += k * stride;
        at[last] += k;
        for (unsigned i = rank; i-- > 0 && at[i] == view->shape[i];) {
            position -= view->shape[i] * view->strides[i];
            at[i] = 0;
            if (i) {
                at[i - 1]++;
                position += view->strides[i - 1];
            }
        }
    }
    return PICI_OK;
}
