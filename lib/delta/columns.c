/* SPDX-License-Identifier: BSD-3-Clause */
#include "delta/columns.h"

#include <stdlib.h>
#include <string.h>

#include "file/file.h"

/* Begins with the changes of the tensor. */
static enum pici_status begin(struct apply_job *job, const struct trail *trail)
{
    const struct pici_deltas *const deltas = job->deltas;
    char name[PICI_QUOTE_CAP];
    for (size_t step = trail->first; step < deltas->count; step++) {
        const struct trail_step *const what = &deltas->trail[step];
        struct step *const now = &deltas->steps[step];
        if (what->kind == TRAIL_FEW)
            pici_few_begin(&now->few, &now->delta, &now->delta.few[what->index]);
        if (what->kind == TRAIL_TENSOR && now->delta.kind[what->index] == DELTA_SMALL)
            return pici_why(job->reason, PICI_E_UNSUPPORTED, now->name,
                            "tensor %s is stored as small deltas, which do not apply to columns: make the delta "
                            "without them (PICI_DELTA_FASTEST)",
                            pici_quote(name, trail->tensor.name, trail->tensor.name_len));
    }
    return PICI_OK;
}

/* Finds the deltas' changes in elements [from, from + count) of the tensor, as an XOR, in host order. Call it for
 * rising elements. */
static enum pici_status find_xor(struct apply_job *job, const struct trail *trail, uint64_t from, uint64_t count,
                                 uint8_t *xored)
{
    const unsigned width = trail->base->width;
    const struct pici_deltas *const deltas = job->deltas;
    char name[PICI_QUOTE_CAP];
    memset(xored, 0, (size_t)count * width);
    for (size_t step = trail->first; step < deltas->count; step++) {
        struct step *const now = &deltas->steps[step];
        const struct trail_step *const what = &deltas->trail[step];
        enum pici_status status = PICI_OK;
        if (what->kind == TRAIL_FEW && !pici_few_apply(&now->few, xored, from, count, width))
            return pici_why(job->reason, PICI_E_CORRUPT, now->name,
                            "not a valid delta: the few changes of tensor %s (delta-few)",
                            pici_quote(name, trail->tensor.name, trail->tensor.name_len));
        if (what->kind == TRAIL_TENSOR)
            status = pici_reader_apply_range(now->reader, what->index, from, count, xored);
        if (status)
            return pici_why(job->reason, status, now->name, "%s", pici_reader_error(now->reader));
    }
    return PICI_OK;
}

/* Makes some columns of some rows of a shard, from row `row` and column `column` on. All columns, unless it is one
 * row. */
static enum pici_status make_rows(struct apply_job *job, const struct trail *trail, uint64_t row, uint64_t rows,
                                  uint64_t column, uint64_t columns, uint8_t *xored)
{
    const struct state_tensor *const base = trail->base;
    const size_t width = base->width, bytes = (size_t)(rows * columns) * width;
    const uint64_t place = (row * base->columns + column) * width;
    enum pici_status status = pici_apply_room(job, bytes);
    if (!status)
        status = pici_state_read(job->base, base, place, job->piece, bytes, job->reason);
    if (!status)
        status = find_xor(job, trail, row * base->row + base->first + column, (rows - 1) * base->row + columns, xored);
    if (status)
        return status;
    pici_state_swap(base->big_endian, width, job->piece, bytes);
    for (size_t i = 0; i < rows; i++) {
        uint8_t *const piece = job->piece + i * (size_t)columns * width;
        const uint8_t *const change = xored + i * (size_t)base->row * width;
        for (size_t byte = 0; byte < (size_t)columns * width; byte++)
            piece[byte] ^= change[byte];
    }
    pici_state_swap(trail->big_endian, width, job->piece, bytes);
    return job->take(job, trail, place, bytes);
}

enum pici_status pici_columns_make(struct apply_job *job, const struct trail *trail)
{
    const struct state_tensor *const base = trail->base;
    const uint64_t rows = base->of / base->row, most = trail->tensor.chunk_elements,
                   at_once = base->row < most ? most / base->row : 1,
                   wide = base->columns < most ? base->columns : most; /* all, if it makes several rows at once */
    uint64_t some, columns;
    enum pici_status status = begin(job, trail);
    if (status)
        return status;
    uint8_t *const xored = malloc((size_t)((at_once - 1) * base->row + wide) * base->width + 1);
    if (!xored)
        return pici_why(job->reason, PICI_E_NOMEM, job->base->name, "out of memory for the changes");
    for (uint64_t row = 0; row < rows && !status; row += some) {
        some = at_once < rows - row ? at_once : rows - row;
        for (uint64_t column = 0; column < base->columns && !status; column += columns) {
            columns = wide < base->columns - column ? wide : base->columns - column;
            status = make_rows(job, trail, row, some, column, columns, xored);
        }
    }
    free(xored);
    return status;
}
