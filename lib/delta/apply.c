/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Applies a row of deltas. It traces each tensor of the last delta back through the earlier deltas, to where it is
 * stored whole. From there it applies the later deltas, a piece at a time. Before writing anything, it compares the
 * hashes in the deltas to check that these belong together. It hashes the elements while it processes them. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "delta/apply.h"
#include "file/file.h"
#include "parse/parse.h"
#include "pici/delta.h"
#include "sized.h"

enum { PIECE_MOST = 256 << 20 };

static struct step *last(const struct pici_deltas *deltas)
{
    return &deltas->steps[deltas->count - 1];
}

static bool is_part(const struct state_tensor *tensor)
{
    return tensor && tensor->count != tensor->of;
}

static const char *quoted(char output[PICI_QUOTE_CAP], const struct pici_tensor_info *tensor)
{
    return pici_quote(output, tensor->name, tensor->name_len);
}

static enum pici_status reader_failed(const struct step *step, enum pici_status status, char *reason)
{
    return pici_why(reason, status, step->name, "%s", pici_reader_error(step->reader));
}

/* ---- the row */

/* The step that defines the result's tensors and head; NULL: the base does. */
static const struct step *layout_of(const struct pici_deltas *deltas)
{
    return deltas->layout ? &deltas->steps[deltas->layout - 1] : NULL;
}

/* Find the head of the result's file. *head has no key if the head is the base's, or empty. */
static enum pici_status find_head(const struct pici_deltas *deltas, struct pici_attr *head)
{
    const struct step *const layout = layout_of(deltas);
    *head = (struct pici_attr){0};
    return layout ? pici_reader_attr(layout->reader, PICI_FILE, STATE_HEAD, head) : PICI_OK;
}

enum pici_status pici_deltas_get_info(struct pici_deltas *deltas, struct pici_deltas_info *info)
{
    struct pici_deltas_info found = PICI_DELTAS_INFO_INIT;
    struct pici_attr head;
    if (!deltas || !deltas->count || !info)
        return PICI_E_ARG;
    const struct step *const layout = layout_of(deltas);
    enum pici_status status = find_head(deltas, &head);
    if (status)
        return status;
    found.type = deltas->steps[0].delta.type;
    found.head = head.key ? head.value : NULL;
    found.head_len = head.key ? head.len : 0;
    if (deltas->steps[0].delta.tensors) {
        struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
        status = pici_delta_tensor(&deltas->steps[0].delta, deltas->steps[0].reader, 0, &tensor);
        found.dtype = tensor.dtype;
    }
    found.tensors = layout ? layout->delta.tensors : last(deltas)->delta.base_tensors;
    found.bytes = layout ? found.head_len : last(deltas)->delta.result_bytes;
    for (uint64_t i = 0; !status && layout && i < layout->delta.tensors; i++) {
        struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
        status = pici_delta_tensor(&layout->delta, layout->reader, i, &tensor);
        const uint64_t more = status ? 0 : tensor.count * pici_dtype_width(tensor.dtype); /* below 2^63 */
        found.bytes = found.bytes <= UINT64_MAX - more ? found.bytes + more : UINT64_MAX;
    }
    return status ? status : sized_write(info, &found, sizeof found, sizeof found);
}

/* ---- tracing tensors through the deltas */

/* Report that a tensor shows that the first delta was made from another base. */
__attribute__((format(printf, 3, 4))) static enum pici_status not_base(const struct apply_job *job,
                                                                       const struct pici_tensor_info *tensor,
                                                                       const char *what, ...)
{
    char name[PICI_QUOTE_CAP], text[PICI_WHY_BYTES];
    va_list args;
    va_start(args, what);
    vsnprintf(text, sizeof text, what, args);
    va_end(args);
    return pici_why(job->reason, PICI_E_ARG, job->base->name, "not the base of %s: tensor %s: %s",
                    job->deltas->steps[0].name, quoted(name, tensor), text);
}

/* Whether a tensor is of the same dtype and shape. Version 0.2 stored only the number of bytes for elements smaller
 * than a byte (F4, F6). */
static bool same_shape(enum pici_dtype dtype, unsigned rank, const uint64_t *shape, uint64_t count,
                       const struct pici_tensor_info *tensor)
{
    if (dtype == PICI_U8 && tensor->dtype == PICI_U8 && (rank == 1) != (tensor->rank == 1))
        return count == tensor->count;
    return dtype == tensor->dtype && rank == tensor->rank &&
           (!rank || memcmp(shape, tensor->shape, rank * sizeof *shape) == 0);
}

static enum pici_status not_result(const struct apply_job *job, size_t step, const struct pici_tensor_info *tensor)
{
    char name[PICI_QUOTE_CAP];
    return pici_why(job->reason, PICI_E_CORRUPT, job->deltas->steps[step].name,
                    "not a delta of the result of %s: tensor %s differs", job->deltas->steps[step - 1].name,
                    quoted(name, tensor));
}

static int by_name(const void *left, const void *right)
{
    const struct apply_name *const first = left, *const second = right;
    return pici_parse_order(first->name, first->bytes, second->name, second->bytes);
}

/* The number of a name among the tensors that `step`, a partial one, starts from. UINT64_MAX: no such name. */
static uint64_t number_of(const struct apply_job *job, size_t step, const struct pici_tensor_info *tensor)
{
    while (step > 0 && job->deltas->steps[step - 1].delta.partial)
        step--;
    if (step > 0) {
        const struct step *const from = &job->deltas->steps[step - 1];
        const struct apply_name key = {tensor->name, tensor->name_len, 0};
        const struct apply_name *const found =
            from->delta.tensors
                ? bsearch(&key, from->sorted, (size_t)from->delta.tensors, sizeof *from->sorted, by_name)
                : NULL;
        return found ? (uint64_t)(found - from->sorted) : UINT64_MAX;
    }
    return pici_state_number(job->base, tensor->name, tensor->name_len);
}

static int by_number(const void *left, const void *right)
{
    const uint64_t first = ((const struct delta_few *)left)->number, second = ((const struct delta_few *)right)->number;
    return (first > second) - (first < second);
}

/* Whether a tensor can be the trail's. */
static bool is_same(const struct trail *trail, enum pici_dtype dtype, unsigned rank, const uint64_t *shape,
                    uint64_t count)
{
    const struct pici_tensor_info *const tensor = &trail->tensor;
    return trail->flat ? dtype == tensor->dtype && count == tensor->count
                       : same_shape(dtype, rank, shape, count, tensor);
}

/* Find what a step does with a tensor. *found: TRAIL_NONE if nothing. PICI_E_ARG: the step should have the tensor. */
static enum pici_status find_in(const struct apply_job *job, size_t step_number, const struct trail *trail,
                                struct trail_step *found, const struct delta_hashes **hash)
{
    const struct step *const step = &job->deltas->steps[step_number];
    const struct pici_tensor_info *const tensor = &trail->tensor;
    struct pici_tensor_info listed = PICI_TENSOR_INFO_INIT;
    *found = (struct trail_step){TRAIL_NONE, 0};
    *hash = NULL;
    const enum pici_status status = pici_reader_find(step->reader, tensor->name, tensor->name_len, &listed);
    if (status && status != PICI_E_ARG)
        return reader_failed(step, status, job->reason);
    if (!status && listed.index < step->delta.tensors) {
        const uint64_t index = listed.index;
        const enum pici_status described = pici_delta_tensor(&step->delta, step->reader, index, &listed);
        if (described)
            return reader_failed(step, described, job->reason);
        if (!is_same(trail, listed.dtype, listed.rank, listed.shape, listed.count))
            return PICI_E_ARG;
        *found = (struct trail_step){TRAIL_TENSOR, index};
        *hash = &step->delta.hash[index];
        return PICI_OK;
    }
    if (!step->delta.partial)
        return PICI_E_ARG;
    const struct delta_few key = {.number = number_of(job, step_number, tensor)};
    if (key.number == UINT64_MAX)
        return PICI_E_ARG;
    const struct delta_few *const few =
        step->delta.few_count ? bsearch(&key, step->delta.few, step->delta.few_count, sizeof key, by_number) : NULL;
    if (few) {
        *found = (struct trail_step){TRAIL_FEW, (uint64_t)(few - step->delta.few)};
        *hash = &few->hash;
    }
    return PICI_OK;
}

uint64_t pici_apply_tensors(const struct apply_job *job)
{
    return job->deltas->layout ? job->deltas->steps[job->deltas->layout - 1].delta.tensors : job->base->count;
}

/* Describes tensor i of the result. */
static enum pici_status describe(struct apply_job *job, uint64_t i, struct trail *trail)
{
    struct pici_attr endian;
    *trail = (struct trail){.tensor = PICI_TENSOR_INFO_INIT};
    if (!job->deltas->layout) {
        const struct state_tensor *const base = &job->base->tensors[i];
        trail->tensor.name = base->name;
        trail->tensor.name_len = base->name_bytes;
        trail->tensor.dtype = base->dtype;
        trail->tensor.rank = base->rank;
        if (base->rank)
            memcpy(trail->tensor.shape, base->shape, base->rank * sizeof *base->shape);
        trail->tensor.count = base->of;
        trail->tensor.chunk_elements = 1 << 20;
        trail->big_endian = base->big_endian;
        return PICI_OK;
    }
    const struct step *const step = &job->deltas->steps[job->deltas->layout - 1];
    enum pici_status status = pici_delta_tensor(&step->delta, step->reader, i, &trail->tensor);
    if (!status)
        status = pici_reader_attr(step->reader, i, STATE_ENDIAN, &endian);
    if (status)
        return reader_failed(step, status, job->reason);
    trail->big_endian = endian.key && endian.len == 3 && memcmp(endian.value, "big", 3) == 0;
    return PICI_OK;
}

enum pici_status pici_apply_trace(struct apply_job *job, uint64_t i, struct trail *trail)
{
    struct pici_deltas *const deltas = job->deltas;
    enum pici_status status = describe(job, i, trail);
    if (status)
        return status;
    const struct pici_tensor_info *const tensor = &trail->tensor;
    const struct state_tensor *const base = pici_state_find(job->base, tensor->name, tensor->name_len);
    trail->flat = base && base->flat;
    for (size_t step = deltas->count; step-- > 0;) {
        const struct delta_hashes *hash;
        status = find_in(job, step, trail, &deltas->trail[step], &hash);
        if (status == PICI_E_ARG && step == 0 && deltas->steps[0].delta.partial)
            return not_base(job, tensor, "%s",
                            number_of(job, 0, tensor) == UINT64_MAX ? "the base has none"
                                                                    : "its type or shape differs");
        if (status == PICI_E_ARG || (hash && trail->earliest && trail->earliest->base != hash->result))
            return not_result(job, step + 1 < deltas->count ? step + 1 : step, tensor);
        if (status)
            return status;
        if (!hash)
            continue;
        if (!trail->latest) {
            trail->latest = hash;
            trail->latest_step = step;
        }
        trail->earliest = hash;
        trail->earliest_step = step;
        if (deltas->trail[step].kind == TRAIL_TENSOR &&
            !delta_needs_base(deltas->steps[step].delta.kind[deltas->trail[step].index])) {
            trail->first = step;
            return PICI_OK;
        }
    }
    trail->base = base;
    if (!base)
        return not_base(job, tensor, "the base has none");
    if (!is_same(trail, base->dtype, base->rank, base->shape, base->of))
        return not_base(job, tensor, "its type or shape differs");
    return PICI_OK;
}

/* Sorts the names in the result of a step before a partial one. */
static enum pici_status sort_names(struct apply_job *job, struct step *step)
{
    const uint64_t count = step->delta.tensors;
    if (step->sorted)
        return PICI_OK;
    step->sorted = calloc((size_t)count + 1, sizeof *step->sorted);
    if (!step->sorted)
        return pici_why(job->reason, PICI_E_NOMEM, step->name, "out of memory for the names of its tensors");
    for (uint64_t i = 0; i < count; i++) {
        struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
        const enum pici_status status = pici_reader_tensor(step->reader, i, &tensor);
        if (status)
            return reader_failed(step, status, job->reason);
        step->sorted[i] = (struct apply_name){tensor.name, tensor.name_len, i};
    }
    qsort(step->sorted, (size_t)count, sizeof *step->sorted, by_name);
    return PICI_OK;
}

/* Whether the result of a step has the identity of the next delta's base. The next delta is partial. */
static enum pici_status check_identity(const struct apply_job *job, const struct step *step, const struct step *next)
{
    struct pici_xxh64 identity;
    const uint64_t count = step->delta.partial ? step->delta.base_tensors : step->delta.tensors;
    uint64_t found = step->delta.identity.result;
    pici_xxh64_init(&identity, 0);
    for (uint64_t i = 0; !step->delta.partial && i < count; i++) {
        const struct apply_name *const name = &step->sorted[i];
        struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
        struct pici_attr dtype;
        enum pici_status status = pici_delta_tensor(&step->delta, step->reader, name->index, &tensor);
        if (!status)
            status = pici_reader_attr(step->reader, name->index, STATE_DTYPE, &dtype);
        if (status)
            return reader_failed(step, status, job->reason);
        const char *const word = pici_dtype_name(tensor.dtype);
        pici_identity_add(&identity, name->name, name->bytes, dtype.key ? dtype.value : word,
                          dtype.key ? dtype.len : strlen(word), tensor.rank, tensor.shape,
                          step->delta.hash[name->index].result);
    }
    if (!step->delta.partial)
        found = pici_xxh64_digest(&identity);
    return count == next->delta.base_tensors && found == next->delta.identity.base
               ? PICI_OK
               : pici_why(job->reason, PICI_E_CORRUPT, next->name, "not a delta of the result of %s", step->name);
}

enum pici_status pici_apply_check(struct apply_job *job)
{
    struct step *const step = job->deltas->steps;
    struct trail trail;
    enum pici_status status = PICI_OK;
    for (size_t step_number = 1; step_number < job->deltas->count; step_number++)
        if (step[step_number].delta.type != step[0].delta.type)
            return pici_why(job->reason, PICI_E_CORRUPT, step[step_number].name,
                            "is a delta of type %s, but %s is of type %s",
                            pici_state_type_name(step[step_number].delta.type), step[0].name,
                            pici_state_type_name(step[0].delta.type));
    if (job->base->type != step[0].delta.type)
        return pici_why(job->reason, PICI_E_ARG, job->base->name, "not the base of %s: of type %s, not %s",
                        step[0].name, pici_state_type_name(job->base->type), pici_state_type_name(step[0].delta.type));
    if (step[0].delta.partial && step[0].delta.base_tensors != job->base->count)
        return pici_why(job->reason, PICI_E_ARG, job->base->name,
                        "not the base of %s: it has %zu tensors, not %" PRIu64, step[0].name, job->base->count,
                        step[0].delta.base_tensors);
    for (size_t next = 1; !status && next < job->deltas->count; next++)
        if (step[next].delta.partial && !step[next - 1].delta.partial)
            status = sort_names(job, &step[next - 1]);
    for (uint64_t i = 0; !status && i < pici_apply_tensors(job); i++)
        status = pici_apply_trace(job, i, &trail);
    for (size_t next = 1; !status && next < job->deltas->count; next++)
        if (step[next].delta.partial)
            status = check_identity(job, &step[next - 1], &step[next]);
    return status;
}

/* ---- making the result */

/* Checks the hash of the base's tensor against the first delta that changes it. so_far: has the bytes before `from`. */
static enum pici_status check_base(struct apply_job *job, const struct trail *trail, uint64_t from,
                                   struct pici_xxh64 *so_far)
{
    const enum pici_status status = pici_state_hash_tensor(job->base, trail->base, from, so_far, job->reason);
    if (status)
        return status;
    const uint64_t found = pici_xxh64_digest(so_far);
    if (job->base_hash)
        job->base_hash[trail->base - job->base->tensors] = found;
    return !trail->earliest || trail->earliest->base == found
               ? PICI_OK
               : not_base(job, &trail->tensor, "its XXH64 is %016" PRIx64 ", not %016" PRIx64, found,
                          trail->earliest->base);
}

/* The elements of the small delta that begins with element `from` of the tensor. */
static uint64_t count_from(const struct trail *trail, uint64_t from)
{
    const uint64_t remaining = trail->tensor.count - from;
    return remaining < DELTA_PIECE ? remaining : (uint64_t)DELTA_PIECE;
}

/* Reports that a small delta of a step does not fit. The message reports another base if that is the reason. base: the
 * hash of the base's tensor up to byte `end`, which shows it. */
static enum pici_status small_wrong(struct apply_job *job, const struct trail *trail, const struct step *step,
                                    uint64_t end, struct pici_xxh64 *base)
{
    char name[PICI_QUOTE_CAP];
    const bool part = is_part(trail->base);
    const enum pici_status status = trail->base && !part ? check_base(job, trail, end, base) : PICI_OK;
    return status ? status
                  : pici_why(job->reason, PICI_E_CORRUPT, step->name,
                             "not a valid delta%s: the small deltas of tensor %s (delta-small)",
                             part ? ", or not of these elements" : "", quoted(name, &trail->tensor));
}

/* Reports that a part lacks some elements of a chunk, which needs all. */
static enum pici_status part_wrong(const struct apply_job *job, const struct trail *trail, const struct step *step)
{
    char name[PICI_QUOTE_CAP];
    return pici_why(job->reason, PICI_E_UNSUPPORTED, step->name,
                    "elements [%" PRIu64 ", %" PRIu64 ") of tensor %s: a part must begin and end at a multiple of %d",
                    trail->base->first, trail->base->first + trail->base->count, quoted(name, &trail->tensor), 1 << 19);
}

/* Applies the next small delta of a step to the count elements at job->piece, which begin with element `from`. base:
 * the hash of the base's tensor up to their end. */
static enum pici_status apply_small(struct apply_job *job, const struct trail *trail, size_t step_number, uint64_t from,
                                    uint64_t count, struct pici_xxh64 *base)
{
    struct step *const step = &job->deltas->steps[step_number];
    struct delta_pieces *const pieces = &step->pieces;
    const uint64_t first = from % DELTA_PIECE, begin = from - first, of = count_from(trail, begin);
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.threads = job->options.threads;
    enum pici_status status = PICI_OK;
    for (; !status && pieces->passed < begin; pieces->passed += DELTA_PIECE)
        status = pici_delta_pieces_pass(pieces, trail->tensor.dtype, DELTA_PIECE);
    if (!status)
        status = pici_delta_pieces_next(pieces, trail->tensor.dtype, of);
    pieces->passed = begin + of;
    if (status && status != PICI_E_CORRUPT && status != PICI_E_NOMEM)
        return reader_failed(step, status, job->reason);
    const void *const delta = pieces->delta;
    if (!status)
        status = pici_apply_small_range(job->piece, count, first, of, &delta, &pieces->size, 1, &opts);
    switch (status) {
    case PICI_OK: return PICI_OK;
    case PICI_E_NOMEM: return pici_why(job->reason, status, step->name, "out of memory for a small delta");
    case PICI_E_ARG:
        if (is_part(trail->base))
            return part_wrong(job, trail, step);
        __attribute__((fallthrough));
    default: return small_wrong(job, trail, step, (from + count) * pici_dtype_width(trail->tensor.dtype), base);
    }
}

static enum pici_status few_wrong(const struct apply_job *job, const struct trail *trail, size_t step)
{
    char name[PICI_QUOTE_CAP];
    return pici_why(job->reason, PICI_E_CORRUPT, job->deltas->steps[step].name,
                    "not a valid delta: the few changes of tensor %s (delta-few)", quoted(name, &trail->tensor));
}

/* Makes elements [from, from + count) of a tensor at job->piece, in host order. base: the hash of the bytes read from
 * the base. */
static enum pici_status make_piece(struct apply_job *job, const struct trail *trail, uint64_t from, uint64_t count,
                                   struct pici_xxh64 *base)
{
    const size_t width = pici_dtype_width(trail->tensor.dtype), bytes = (size_t)count * width;
    const struct pici_deltas *const deltas = job->deltas;
    size_t step = trail->first;
    enum pici_status status;
    if (trail->base) {
        const uint64_t at = (from - trail->base->first) * width;
        status = pici_state_read(job->base, trail->base, at, job->piece, bytes, job->reason);
        if (status)
            return status;
        pici_xxh64_update(base, job->piece, bytes);
        status = pici_pieces_add(&job->pieces[0], job->piece, from, count, job->reason);
        if (status)
            return status;
        pici_state_swap(trail->base->big_endian, width, job->piece, bytes);
    } else {
        status = pici_reader_read_range(deltas->steps[step].reader, deltas->trail[step].index, from, count, job->piece);
        if (status)
            return reader_failed(&deltas->steps[step], status, job->reason);
        step++;
    }
    for (; step < deltas->count; step++) {
        struct step *const now = &deltas->steps[step];
        const struct trail_step *const what = &deltas->trail[step];
        if (what->kind == TRAIL_NONE)
            continue;
        if (what->kind == TRAIL_FEW) {
            if (!pici_few_apply(&now->few, job->piece, from, count, (unsigned)width))
                return few_wrong(job, trail, step);
        } else if (now->delta.kind[what->index] == DELTA_SMALL) {
            status = apply_small(job, trail, step, from, count, base);
            if (status)
                return status;
        } else {
            status = pici_reader_apply_range(now->reader, what->index, from, count, job->piece);
            if (status)
                return reader_failed(now, status, job->reason);
        }
    }
    return PICI_OK;
}

/* Begins with the changes of a tensor. *most: the elements to make at a time; with small deltas, the elements of
 * one. */
static enum pici_status begin_changes(struct apply_job *job, const struct trail *trail, uint64_t *most)
{
    const struct pici_deltas *const deltas = job->deltas;
    for (size_t step = trail->first; step < deltas->count; step++) {
        const struct trail_step *const what = &deltas->trail[step];
        struct step *const now = &deltas->steps[step];
        if (what->kind == TRAIL_FEW)
            pici_few_begin(&now->few, &now->delta, &now->delta.few[what->index]);
        if (what->kind != TRAIL_TENSOR || now->delta.kind[what->index] != DELTA_SMALL)
            continue;
        *most = DELTA_PIECE;
        const enum pici_status status = pici_delta_pieces_begin(&now->pieces, now->reader, what->index);
        if (status)
            return reader_failed(now, status, job->reason);
    }
    return PICI_OK;
}

/* Whether all changes of the tensor have been used. */
static enum pici_status end_changes(const struct apply_job *job, const struct trail *trail)
{
    const struct pici_deltas *const deltas = job->deltas;
    char name[PICI_QUOTE_CAP];
    for (size_t step = trail->first; step < deltas->count; step++) {
        const struct trail_step *const what = &deltas->trail[step];
        const struct step *const now = &deltas->steps[step];
        if (what->kind == TRAIL_FEW && now->few.remaining)
            return few_wrong(job, trail, step);
        if (what->kind == TRAIL_TENSOR && now->delta.kind[what->index] == DELTA_SMALL &&
            !pici_delta_pieces_done(&now->pieces))
            return pici_why(job->reason, PICI_E_CORRUPT, now->name,
                            "not a valid delta: tensor %s has bytes after its small deltas",
                            quoted(name, &trail->tensor));
    }
    return PICI_OK;
}

static enum pici_status write_out(struct apply_job *job, const void *bytes, size_t size)
{
    char text[128];
    const int error = size ? job->write(job->write_context, bytes, size) : 0;
    if (error) {
        errno = error;
        return pici_why(job->reason, PICI_E_IO, last(job->deltas)->name, "the result: %s",
                        pici_errno_text(error, text, sizeof text));
    }
    job->written += size;
    if (job->options.progress)
        job->options.progress(job->options.progress_ctx, job->written);
    return PICI_OK;
}

enum pici_status pici_apply_room(struct apply_job *job, size_t bytes)
{
    if (bytes <= job->piece_capacity)
        return PICI_OK;
    free(job->piece);
    job->piece = malloc(bytes);
    job->piece_capacity = job->piece ? bytes : 0;
    return job->piece ? PICI_OK
                      : pici_why(job->reason, PICI_E_NOMEM, last(job->deltas)->name,
                                 "out of memory for a piece of the result");
}

static enum pici_status write_piece(struct apply_job *job, const struct trail *trail, uint64_t offset, size_t bytes)
{
    (void)trail;
    (void)offset;
    return write_out(job, job->piece, bytes);
}

/* Makes the elements of a tensor. base, result: hashes of the bytes read and made. */
static enum pici_status make_elements(struct apply_job *job, const struct trail *trail, struct pici_xxh64 *base,
                                      struct pici_xxh64 *result)
{
    if (trail->base && trail->base->row)
        return job->columns(job, trail);
    const size_t width = pici_dtype_width(trail->tensor.dtype);
    const uint64_t chunks = PIECE_MOST / width / trail->tensor.chunk_elements;
    const uint64_t threads = (uint64_t)pici_delta_threads(job->options.threads);
    uint64_t at_once = chunks < threads ? chunks : threads;
    if (at_once < 1)
        at_once = 1;
    uint64_t most = trail->tensor.chunk_elements * at_once;
    const uint64_t first = trail->base ? trail->base->first : 0,
                   end = trail->base ? first + trail->base->count : trail->tensor.count;
    enum pici_status status = begin_changes(job, trail, &most);
    for (uint64_t offset = first, count; offset < end && !status; offset += count) {
        count = most - offset % most; /* so that pieces match small deltas, which begin at element 0 */
        count = end - offset < count ? end - offset : count;
        const size_t bytes = (size_t)count * width;
        status = pici_apply_room(job, bytes);
        if (!status)
            status = make_piece(job, trail, offset, count, base);
        if (status)
            return status;
        pici_state_swap(trail->big_endian, width, job->piece, bytes);
        pici_xxh64_update(result, job->piece, bytes);
        status = pici_pieces_add(&job->pieces[1], job->piece, offset, count, job->reason);
        if (status)
            return status;
        status = job->take(job, trail, (offset - first) * width, bytes);
    }
    return status;
}

/* Finds the hashes of a part's pieces: the base's in the first delta that changes the part, the result's in the
 * last. */
static void find_pieces(struct apply_job *job, const struct trail *trail)
{
    for (int result = 0; result < 2; result++) {
        const size_t number = result ? trail->latest_step : trail->earliest_step;
        const struct step *const step = &job->deltas->steps[number];
        const struct trail_step *const what = &job->deltas->trail[number];
        const bool hashed = is_part(trail->base) && !trail->base->row && trail->latest && what->kind == TRAIL_TENSOR;
        job->pieces[result] = (struct piece_hashes){.delta = hashed ? &step->delta : NULL,
                                                    .reader = step->reader,
                                                    .index = what->index,
                                                    .tensor = &trail->tensor,
                                                    .result = result,
                                                    .name = result ? step->name : job->base->name,
                                                    .first = job->deltas->steps[0].name};
    }
}

static enum pici_status make_tensor(struct apply_job *job, uint64_t i)
{
    struct trail trail;
    struct pici_xxh64 base, result;
    char name[PICI_QUOTE_CAP];
    enum pici_status status = pici_apply_trace(job, i, &trail);
    if (status)
        return status;
    pici_xxh64_init(&base, 0);
    pici_xxh64_init(&result, 0);
    find_pieces(job, &trail);
    status = make_elements(job, &trail, &base, &result);
    if (is_part(trail.base)) { /* a part has no hash of its own */
        if (job->verified)
            job->verified[trail.base - job->base->tensors] =
                job->pieces[0].verified == trail.base->count || job->pieces[1].verified == trail.base->count;
        return status;
    }
    if (!status && trail.base)
        status = check_base(job, &trail, trail.base->bytes, &base);
    if (!status)
        status = end_changes(job, &trail);
    if (status || !trail.latest)
        return status;
    const uint64_t made = pici_xxh64_digest(&result), want = trail.latest->result;
    if (made != want)
        return pici_why(job->reason, PICI_E_CORRUPT, job->deltas->steps[trail.latest_step].name,
                        "the result of tensor %s has the XXH64 %016" PRIx64 ", not %016" PRIx64,
                        quoted(name, &trail.tensor), made, want);
    return PICI_OK;
}

enum pici_status pici_apply_make(struct apply_job *job)
{
    const struct step *const first = job->deltas->steps;
    enum pici_status status = PICI_OK;
    if (!job->deltas->layout && !job->base->parts) {
        job->base_hash = calloc(job->base->count + 1, sizeof *job->base_hash);
        if (!job->base_hash)
            status = pici_why(job->reason, PICI_E_NOMEM, job->base->name, "out of memory for the hashes");
    }
    for (uint64_t i = 0; !status && i < pici_apply_tensors(job); i++)
        status = make_tensor(job, i);
    if (!status && job->base_hash && pici_state_identity(job->base, job->base_hash) != first->delta.identity.base)
        status = pici_why(job->reason, PICI_E_ARG, job->base->name,
                          "not the base of %s: a tensor that it does not change differs", first->name);
    const int error = errno;
    free(job->base_hash);
    free(job->piece);
    job->base_hash = NULL;
    job->piece = NULL;
    errno = error;
    return status;
}

enum pici_status pici_apply_deltas(pici_write_fn write, void *context, struct pici_state *base,
                                   struct pici_deltas *deltas, const struct pici_apply_opts *opts, char *reason)
{
    struct apply_job job = {.options = PICI_APPLY_OPTS_INIT,
                            .base = base,
                            .deltas = deltas,
                            .take = write_piece,
                            .write = write,
                            .write_context = context,
                            .reason = reason};
    struct pici_attr head;
    if (reason)
        reason[0] = 0;
    enum pici_status status = opts ? sized_read(&job.options, sizeof job.options, sizeof job.options, opts) : PICI_OK;
    if (status)
        return status;
    if (!write || !base || !deltas || !deltas->count || job.options.threads < 0)
        return PICI_E_ARG;
    status = pici_state_whole(base, reason);
    if (!status)
        status = pici_apply_check(&job);
    if (status)
        return status;
    status = find_head(deltas, &head);
    if (status)
        status = reader_failed(layout_of(deltas), status, reason);
    else if (!deltas->layout)
        status = write_out(&job, base->head, base->head_bytes);
    else if (head.key)
        status = write_out(&job, head.value, head.len);
    return status ? status : pici_apply_make(&job);
}

/* Whether a state is the result of the last delta, a partial one. */
static enum pici_status has_identity(struct pici_deltas *deltas, struct pici_state *state, int *is_result, char *reason)
{
    if (state->count != last(deltas)->delta.base_tensors)
        return PICI_OK;
    uint64_t *const hash = calloc(state->count + 1, sizeof *hash);
    enum pici_status status =
        hash ? PICI_OK : pici_why(reason, PICI_E_NOMEM, state->name, "out of memory for the hashes");
    for (size_t i = 0; !status && i < state->count; i++)
        status = pici_state_tensor_hash(state, i, &hash[i], reason);
    *is_result = !status && pici_state_identity(state, hash) == last(deltas)->delta.identity.result;
    free(hash);
    return status;
}

enum pici_status pici_deltas_is_result(struct pici_deltas *deltas, struct pici_state *state, int *is_result,
                                       char *reason)
{
    struct pici_attr head;
    if (reason)
        reason[0] = 0;
    if (!deltas || !deltas->count || !state || !is_result)
        return PICI_E_ARG;
    *is_result = 0;
    if (state->parts)
        return pici_state_whole(state, reason);
    const struct step *const end = last(deltas);
    enum pici_status status = find_head(deltas, &head);
    if (status)
        return reader_failed(layout_of(deltas), status, reason);
    if (state->type != end->delta.type)
        return PICI_OK;
    if (deltas->layout && (state->head_bytes != (head.key ? head.len : 0) ||
                           (head.key && head.len && memcmp(state->head, head.value, head.len) != 0)))
        return PICI_OK;
    if (end->delta.partial)
        return has_identity(deltas, state, is_result, reason);
    if (state->count != end->delta.tensors)
        return PICI_OK;
    for (size_t i = 0; i < state->count; i++) {
        uint64_t hash;
        status = pici_state_tensor_hash(state, i, &hash, reason);
        if (status || hash != end->delta.hash[i].result)
            return status;
    }
    *is_result = 1;
    return PICI_OK;
}
