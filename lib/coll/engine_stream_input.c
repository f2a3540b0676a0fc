/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Checks a caller's stream, and puts it in order. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "coll/engine_stream.h"
#include "cpu/kernels.h"

static uint64_t index_at(const void *indices, int width, uint64_t i)
{
    uint32_t narrow;
    uint64_t wide;
    if (width == 4) {
        memcpy(&narrow, (const uint8_t *)indices + 4 * i, 4);
        return narrow;
    }
    memcpy(&wide, (const uint8_t *)indices + 8 * i, 8);
    return wide;
}

/* ---- order */

struct row {
    uint64_t index, place; /* place: in the caller's list */
};

/* Sort rows by index; rows with equal indices keep their order. A radix sort from the least significant digit, which
 * skips digits that all rows share. any, all: OR and AND of all indices. Returns the array that holds the result. */
static struct row *sort(struct row *rows, struct row *other, uint64_t n, uint64_t any, uint64_t all)
{
    enum { BITS = 11, DIGITS = 1 << BITS };
    for (unsigned shift = 0; shift < 64; shift += BITS) {
        uint64_t begin[DIGITS] = {0};
        if (((any ^ all) >> shift & (DIGITS - 1)) == 0)
            continue;
        for (uint64_t i = 0; i < n; i++)
            begin[rows[i].index >> shift & (DIGITS - 1)]++;
        for (uint64_t digit = 0, sum = 0; digit < DIGITS; digit++) {
            const uint64_t here = begin[digit];
            begin[digit] = sum;
            sum += here;
        }
        for (uint64_t i = 0; i < n; i++)
            other[begin[rows[i].index >> shift & (DIGITS - 1)]++] = rows[i];
        struct row *const swap = rows;
        rows = other;
        other = swap;
    }
    return rows;
}

/* Copy the rows in order to memory that the input owns. Adds repeated rows to the first. */
static int put_in_order(struct stream_input *input, const struct pici_stream *stream, enum pici_dtype dtype)
{
    const uint64_t n = stream->nnz;
    const size_t bytes = (size_t)stream->run * pici_dtype_width(dtype); /* of a row */
    const struct pici_add *add = pici_isa()->add[dtype];
    if (n > SIZE_MAX / 2 / sizeof(struct row) || bytes > (SIZE_MAX / 2 - 8 * n) / n)
        return 0;
    struct row *rows = malloc(n * sizeof *rows), *other = malloc(n * sizeof *rows);
    uint64_t *indices = malloc(n * sizeof *indices + n * bytes);
    if (!rows || !other || !indices) {
        free(rows);
        free(other);
        free(indices);
        return 0;
    }
    uint64_t any = 0, all = UINT64_MAX;
    for (uint64_t i = 0; i < n; i++) {
        rows[i] = (struct row){index_at(stream->indices, stream->index_width, i), i};
        any |= rows[i].index;
        all &= rows[i].index;
    }
    const struct row *sorted = sort(rows, other, n, any, all);
    uint8_t *values = (uint8_t *)(indices + n);
    uint64_t made = 0;
    for (uint64_t i = 0; i < n; i++) {
        const uint8_t *source = (const uint8_t *)stream->values + sorted[i].place * bytes;
        if (made && indices[made - 1] == sorted[i].index) {
            add->dense(values + (made - 1) * bytes, source, (size_t)stream->run);
            continue;
        }
        indices[made] = sorted[i].index;
        memcpy(values + made++ * bytes, source, bytes);
    }
    free(rows);
    free(other);
    input->sorted = indices;
    input->indices = indices;
    input->values = values;
    input->index_width = 8;
    input->rows = made;
    return 1;
}

const char *pici_stream_take(struct stream_input *input, const struct pici_stream *stream, enum pici_dtype dtype,
                             int *no_memory, char *explanation, size_t bytes)
{
    *no_memory = 0;
    *input = (struct stream_input){.n = stream->n,
                                   .run = stream->run,
                                   .rows = stream->nnz,
                                   .indices = stream->indices,
                                   .index_width = stream->index_width,
                                   .values = stream->values,
                                   .dense = stream->dense};
    if (stream->dense)
        return stream->nnz ? "the stream has both rows and a dense vector" : NULL;
    if (!stream->run || stream->n % stream->run) {
        snprintf(explanation, bytes, "the stream's n, %" PRIu64 ", is not a multiple of its run, %" PRIu64, stream->n,
                 stream->run);
        return explanation;
    }
    if (stream->index_width != 4 && stream->index_width != 8) {
        snprintf(explanation, bytes, "the stream's index_width is %d, which is neither 4 nor 8", stream->index_width);
        return explanation;
    }
    if (stream->nnz && (!stream->indices || !stream->values))
        return stream->indices ? "the stream's values are null" : "the stream's indices are null";
    const uint64_t rows = stream->n / stream->run;
    int rising = 1;
    for (uint64_t i = 0, last = 0; i < stream->nnz; i++) {
        const uint64_t index = index_at(stream->indices, stream->index_width, i);
        if (index >= rows) {
            snprintf(explanation, bytes,
                     "index %" PRIu64 " of the stream, at place %" PRIu64 ", is not below n / run, which is %" PRIu64,
                     index, i, rows);
            return explanation;
        }
        rising &= !i || index > last;
        last = index;
    }
    if (rising || put_in_order(input, stream, dtype))
        return NULL;
    *no_memory = 1;
    return "no memory to put the stream in order";
}

/* ---- views */

/* The first row whose index is not below this one. */
static uint64_t row_from(const struct stream_input *input, uint64_t index)
{
    uint64_t low = 0, high = input->rows;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (index_at(input->indices, input->index_width, middle) < index)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* How many listed elements are before this one. */
static uint64_t elements_before(const struct stream_input *input, uint64_t element)
{
    const uint64_t index = element / input->run, row = row_from(input, index);
    const int within = row < input->rows && index_at(input->indices, input->index_width, row) == index;
    return row * input->run + (within ? element % input->run : 0);
}

const uint8_t *pici_stream_values(const struct stream_input *input, uint64_t first, uint64_t *count, size_t width)
{
    const uint64_t before = elements_before(input, first);
    *count = elements_before(input, first + *count) - before;
    return *count ? input->values + before * width : NULL;
}

const uint8_t *pici_stream_view(struct pici_list *view, struct pici_list *positions, const struct stream_input *input,
                                uint64_t first, uint64_t count, size_t width)
{
    static uint8_t none;
    *view = (struct pici_list){.positions = positions->positions, .values = &none};
    if (input->dense)
        return input->dense + first * width;
    if (!count || !input->rows)
        return NULL;
    const uint64_t run = input->run, end = first + count, begin_row = row_from(input, first / run),
                   end_row = row_from(input, (end - 1) / run + 1);
    if (begin_row == end_row)
        return NULL;
    /* the range may cut the first row and the last one */
    const uint64_t begin_first = index_at(input->indices, input->index_width, begin_row) * run,
                   last_end = index_at(input->indices, input->index_width, end_row - 1) * run + run;
    const uint64_t before = begin_first < first ? first - begin_first : 0, behind = last_end > end ? last_end - end : 0;
    view->count = (end_row - begin_row) * run - before - behind;
    if (!pici_list_reserve(positions, view->count, (unsigned)__builtin_ctzll(width))) {
        view->values = NULL;
        return NULL;
    }
    uint32_t *next = view->positions = positions->positions;
    /* a view is only read */
    view->values = (uint8_t *)(uintptr_t)(input->values + (begin_row * run + before) * width);
    if (run == 1 && input->index_width == 4) {
        for (uint64_t row = begin_row; row < end_row; row++) {
            uint32_t index;
            memcpy(&index, (const uint8_t *)input->indices + 4 * row, 4);
            *next++ = index - (uint32_t)first;
        }
        return NULL;
    }
    for (uint64_t row = begin_row; row < end_row; row++) {
        const uint64_t element = index_at(input->indices, input->index_width, row) * run;
        const uint64_t from = element < first ? first : element, to = element + run < end ? element + run : end;
        for (uint64_t i = from; i < to; i++)
            *next++ = (uint32_t)(i - first);
    }
    return NULL;
}
