/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Applies deltas in a row. Each tensor of the last delta is traced back, through the earlier deltas, to where it is
 * stored whole. From there the later deltas are applied to it, a piece at a time. Before anything is written, the
 * hashes in the deltas show whether these belong together. The elements are hashed while they are processed. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "delta/delta.h"
#include "file/file.h"
#include "pici/delta.h"
#include "sized.h"

enum { PIECE_MOST = 256 << 20, HASH_PIECE = 1 << 16 };

/* One of the deltas. */
struct step {
    struct pici_reader *reader;
    char *name;
    struct delta delta;
    struct delta_pieces pieces; /* of the tensor that is being made */
};

struct pici_deltas {
    struct step *steps; /* [n] */
    size_t count;
    uint64_t *trail; /* [n]: the trail: in each delta the number of the tensor that is being made */
};

struct job {
    struct pici_apply_opts options;
    struct pici_state *base;
    struct pici_deltas *deltas;
    pici_write_fn write;
    void *context;
    char *reason;
    uint64_t written;
    uint8_t *piece;
    size_t piece_capacity;
};

/* Where a tensor of the last result comes from: it is whole in the base or in step `first`. In step `first` and each
 * later one, its delta is tensor deltas->trail[step]. */
struct trail {
    const struct state_tensor *base; /* or NULL */
    size_t first;
    struct pici_tensor_info tensor; /* of the last */
};

static struct step *last(const struct pici_deltas *deltas)
{
    return &deltas->steps[deltas->count - 1];
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

enum pici_status pici_deltas_new(struct pici_deltas **deltas)
{
    if (!deltas)
        return PICI_E_ARG;
    *deltas = calloc(1, sizeof **deltas);
    return *deltas ? PICI_OK : PICI_E_NOMEM;
}

enum pici_status pici_deltas_add(struct pici_deltas *deltas, struct pici_reader *reader, const char *name, char *reason)
{
    char what[PICI_WHY_BYTES];
    bool is_delta = false;
    if (reason)
        reason[0] = 0;
    if (!deltas || !reader || !name)
        return PICI_E_ARG;
    struct step *const steps = realloc(deltas->steps, (deltas->count + 1) * sizeof *steps);
    if (steps)
        deltas->steps = steps;
    uint64_t *const offset = realloc(deltas->trail, (deltas->count + 1) * sizeof *offset);
    if (offset)
        deltas->trail = offset;
    char *const copy = strdup(name);
    if (!steps || !offset || !copy) {
        free(copy);
        return pici_why(reason, PICI_E_NOMEM, name, "out of memory for the list of deltas");
    }
    struct step *const step = &deltas->steps[deltas->count++];
    *step = (struct step){.reader = reader, .name = copy};
    enum pici_status status = pici_delta_is(reader, &is_delta);
    if (!status && !is_delta)
        return pici_why(reason, PICI_E_CORRUPT, name, "not a delta");
    if (!status) {
        status = pici_delta_open(&step->delta, reader, what);
        if (status && what[0])
            return pici_why(reason, status, name, "%s", what);
    }
    return status ? reader_failed(step, status, reason) : PICI_OK;
}

void pici_deltas_free(struct pici_deltas *deltas)
{
    if (!deltas)
        return;
    for (size_t step = 0; step < deltas->count; step++) {
        pici_delta_pieces_free(&deltas->steps[step].pieces);
        pici_delta_close(&deltas->steps[step].delta);
        free(deltas->steps[step].name);
    }
    free(deltas->steps);
    free(deltas->trail);
    free(deltas);
}

enum pici_status pici_deltas_get_info(struct pici_deltas *deltas, struct pici_deltas_info *info)
{
    struct pici_deltas_info found = PICI_DELTAS_INFO_INIT;
    struct pici_attr head;
    if (!deltas || !deltas->count || !info)
        return PICI_E_ARG;
    const struct step *const end = last(deltas);
    enum pici_status status = pici_reader_attr(end->reader, PICI_FILE, STATE_HEAD, &head);
    if (status)
        return status;
    found.type = deltas->steps[0].delta.type;
    found.tensors = end->delta.tensors;
    found.head = head.key ? head.value : NULL;
    found.head_len = head.key ? head.len : 0;
    found.bytes = found.head_len;
    if (deltas->steps[0].delta.tensors) {
        struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
        status = pici_delta_tensor(&deltas->steps[0].delta, deltas->steps[0].reader, 0, &tensor);
        found.dtype = tensor.dtype;
    }
    for (uint64_t i = 0; !status && i < end->delta.tensors; i++) {
        struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
        status = pici_delta_tensor(&end->delta, end->reader, i, &tensor);
        const uint64_t more = status ? 0 : tensor.count * pici_dtype_width(tensor.dtype); /* below 2^63 */
        found.bytes = found.bytes <= UINT64_MAX - more ? found.bytes + more : UINT64_MAX;
    }
    return status ? status : sized_write(info, &found, sizeof found, sizeof found);
}

/* ---- which tensors the deltas lead through */

/* The base is not what the first delta was made from: its tensor shows it. */
__attribute__((format(printf, 3, 4))) static enum pici_status not_base(const struct job *job,
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

static bool same_shape(enum pici_dtype dtype, unsigned rank, const uint64_t *shape,
                       const struct pici_tensor_info *tensor)
{
    return dtype == tensor->dtype && rank == tensor->rank &&
           (!rank || memcmp(shape, tensor->shape, rank * sizeof *shape) == 0);
}

/* Traces tensor i of the last result. */
static enum pici_status trace(struct job *job, uint64_t i, struct trail *trail)
{
    struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT, before = PICI_TENSOR_INFO_INIT;
    struct pici_deltas *const deltas = job->deltas;
    char name[PICI_QUOTE_CAP];
    size_t step = deltas->count - 1;
    *trail = (struct trail){.tensor = PICI_TENSOR_INFO_INIT};
    enum pici_status status =
        pici_delta_tensor(&deltas->steps[step].delta, deltas->steps[step].reader, i, &trail->tensor);
    if (status)
        return reader_failed(&deltas->steps[step], status, job->reason);
    for (tensor = trail->tensor, deltas->trail[step] = i; delta_needs_base(deltas->steps[step].delta.kind[i]);
         tensor = before, deltas->trail[--step] = i = before.index) {
        if (step == 0) {
            trail->base = pici_state_find(job->base, tensor.name, tensor.name_len);
            if (!trail->base)
                return not_base(job, &tensor, "the base has none");
            if (!same_shape(trail->base->dtype, trail->base->rank, trail->base->shape, &tensor))
                return not_base(job, &tensor, "its type or shape differs");
            break;
        }
        const struct step *const from = &deltas->steps[step - 1];
        status = pici_reader_find(from->reader, tensor.name, tensor.name_len, &before);
        if (!status)
            status = pici_delta_tensor(&from->delta, from->reader, before.index, &before);
        if (status && status != PICI_E_ARG)
            return reader_failed(from, status, job->reason);
        if (status || before.index >= from->delta.tensors ||
            !same_shape(before.dtype, before.rank, before.shape, &tensor) ||
            deltas->steps[step].delta.hash[i].base != from->delta.hash[before.index].result)
            return pici_why(job->reason, PICI_E_CORRUPT, deltas->steps[step].name,
                            "not a delta of the result of %s: tensor %s differs", from->name, quoted(name, &tensor));
    }
    trail->first = step;
    return PICI_OK;
}

static enum pici_status check(struct job *job)
{
    const struct step *const step = job->deltas->steps;
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
    for (uint64_t i = 0; !status && i < last(job->deltas)->delta.tensors; i++)
        status = trace(job, i, &trail);
    return status;
}

/* ---- making the result */

/* The hash of the base's tensor, of which `so_far` has the bytes before `from`, must be the one in the first delta. */
static enum pici_status check_base(struct job *job, const struct trail *trail, uint64_t from, struct pici_xxh64 *so_far)
{
    uint8_t piece[HASH_PIECE];
    const uint64_t want = job->deltas->steps[0].delta.hash[job->deltas->trail[0]].base;
    for (uint64_t count; from < trail->base->bytes; from += count) {
        count = trail->base->bytes - from < sizeof piece ? trail->base->bytes - from : sizeof piece;
        const enum pici_status status =
            pici_state_read(job->base, trail->base, from, piece, (size_t)count, job->reason);
        if (status)
            return status;
        pici_xxh64_update(so_far, piece, (size_t)count);
    }
    const uint64_t expected = pici_xxh64_digest(so_far);
    return expected == want
               ? PICI_OK
               : not_base(job, &trail->tensor, "its XXH64 is %016" PRIx64 ", not %016" PRIx64, expected, want);
}

/* Applies the next small delta of a step to count elements at job.piece. It may be found to be invalid since these are
 * not what it was made of: then says so, with base, the hash of the base's tensor up to byte `end`. */
static enum pici_status apply_small(struct job *job, const struct trail *trail, size_t step_number, uint64_t count,
                                    uint64_t end, struct pici_xxh64 *base)
{
    struct step *const step = &job->deltas->steps[step_number];
    struct pici_opts opts = PICI_OPTS_INIT;
    char name[PICI_QUOTE_CAP];
    opts.threads = job->options.threads;
    enum pici_status status = pici_delta_pieces_next(&step->pieces, trail->tensor.dtype, count);
    if (status == PICI_E_NOMEM)
        return pici_why(job->reason, status, step->name, "out of memory for a small delta");
    if (status && status != PICI_E_CORRUPT)
        return reader_failed(step, status, job->reason);
    if (!status)
        status = pici_apply_small(job->piece, count, step->pieces.delta, step->pieces.size, &opts);
    if (!status)
        return PICI_OK;
    if (status == PICI_E_NOMEM)
        return pici_why(job->reason, status, step->name, "out of memory for a small delta");
    status = trail->base ? check_base(job, trail, end, base) : PICI_OK;
    return status ? status
                  : pici_why(job->reason, PICI_E_CORRUPT, step->name,
                             "not a valid delta: the small deltas of tensor %s (delta-small)",
                             quoted(name, &trail->tensor));
}

/* Makes elements [from, from + count) of a tensor at job.piece, in host order. base: the hash of what is read of the
 * base. */
static enum pici_status make_piece(struct job *job, const struct trail *trail, uint64_t from, uint64_t count,
                                   struct pici_xxh64 *base)
{
    const size_t width = pici_dtype_width(trail->tensor.dtype), bytes = (size_t)count * width;
    const struct pici_deltas *const deltas = job->deltas;
    size_t step = trail->first;
    enum pici_status status;
    if (trail->base) {
        status = pici_state_read(job->base, trail->base, from * width, job->piece, bytes, job->reason);
        if (status)
            return status;
        pici_xxh64_update(base, job->piece, bytes);
        pici_state_swap(trail->base->big_endian, width, job->piece, bytes);
    } else {
        status = pici_reader_read_range(deltas->steps[step].reader, deltas->trail[step], from, count, job->piece);
        if (status)
            return reader_failed(&deltas->steps[step], status, job->reason);
        step++;
    }
    for (; step < deltas->count; step++) {
        if (deltas->steps[step].delta.kind[deltas->trail[step]] == DELTA_SMALL) {
            status = apply_small(job, trail, step, count, from * width + bytes, base);
            if (status)
                return status;
            continue;
        }
        status = pici_reader_apply_range(deltas->steps[step].reader, deltas->trail[step], from, count, job->piece);
        if (status)
            return reader_failed(&deltas->steps[step], status, job->reason);
    }
    return PICI_OK;
}

/* Begins with the small deltas of a tensor. *most: the elements to make at a time, which are these deltas' if there are
 * some. */
static enum pici_status begin_small(struct job *job, const struct trail *trail, uint64_t *most)
{
    const struct pici_deltas *const deltas = job->deltas;
    for (size_t step = trail->first; step < deltas->count; step++) {
        if (deltas->steps[step].delta.kind[deltas->trail[step]] != DELTA_SMALL)
            continue;
        *most = DELTA_PIECE;
        const enum pici_status status =
            pici_delta_pieces_begin(&deltas->steps[step].pieces, deltas->steps[step].reader, deltas->trail[step]);
        if (status)
            return reader_failed(&deltas->steps[step], status, job->reason);
    }
    return PICI_OK;
}

/* Whether all small deltas of the tensor have been used. */
static enum pici_status end_small(const struct job *job, const struct trail *trail)
{
    const struct pici_deltas *const deltas = job->deltas;
    char name[PICI_QUOTE_CAP];
    for (size_t step = trail->first; step < deltas->count; step++)
        if (deltas->steps[step].delta.kind[deltas->trail[step]] == DELTA_SMALL &&
            !pici_delta_pieces_done(&deltas->steps[step].pieces))
            return pici_why(job->reason, PICI_E_CORRUPT, deltas->steps[step].name,
                            "not a valid delta: tensor %s has bytes after its small deltas",
                            quoted(name, &trail->tensor));
    return PICI_OK;
}

static enum pici_status write_out(struct job *job, const void *bytes, size_t size)
{
    char text[128];
    const int error = size ? job->write(job->context, bytes, size) : 0;
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

static enum pici_status room_for(struct job *job, size_t bytes)
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

/* Makes the elements of a tensor and writes them. base, result: hashes of what is read and written. */
static enum pici_status make_elements(struct job *job, const struct trail *trail, bool big_endian,
                                      struct pici_xxh64 *base, struct pici_xxh64 *result)
{
    const size_t width = pici_dtype_width(trail->tensor.dtype);
    const uint64_t chunks = PIECE_MOST / width / trail->tensor.chunk_elements;
    const uint64_t threads = (uint64_t)pici_delta_threads(job->options.threads);
    uint64_t at_once = chunks < threads ? chunks : threads;
    if (at_once < 1)
        at_once = 1;
    uint64_t most = trail->tensor.chunk_elements * at_once;
    enum pici_status status = begin_small(job, trail, &most);
    for (uint64_t offset = 0, count; offset < trail->tensor.count && !status; offset += count) {
        count = trail->tensor.count - offset < most ? trail->tensor.count - offset : most;
        const size_t bytes = (size_t)count * width;
        status = room_for(job, bytes);
        if (!status)
            status = make_piece(job, trail, offset, count, base);
        if (status)
            return status;
        pici_state_swap(big_endian, width, job->piece, bytes);
        pici_xxh64_update(result, job->piece, bytes);
        status = write_out(job, job->piece, bytes);
    }
    return status;
}

static enum pici_status make_tensor(struct job *job, uint64_t i)
{
    struct trail trail;
    struct pici_xxh64 base, result;
    struct pici_attr endian; /* the byte order of the output */
    const struct step *const end = last(job->deltas);
    char name[PICI_QUOTE_CAP];
    enum pici_status status = trace(job, i, &trail);
    if (status)
        return status;
    status = pici_reader_attr(end->reader, i, STATE_ENDIAN, &endian);
    if (status)
        return reader_failed(end, status, job->reason);
    const bool big_endian = endian.key && endian.len == 3 && memcmp(endian.value, "big", 3) == 0;
    pici_xxh64_init(&base, 0);
    pici_xxh64_init(&result, 0);
    status = make_elements(job, &trail, big_endian, &base, &result);
    if (!status && trail.base)
        status = check_base(job, &trail, trail.base->bytes, &base);
    if (!status)
        status = end_small(job, &trail);
    if (status)
        return status;
    const uint64_t written = pici_xxh64_digest(&result), want = end->delta.hash[i].result;
    if (written != want)
        return pici_why(job->reason, PICI_E_CORRUPT, end->name,
                        "the result of tensor %s has the XXH64 %016" PRIx64 ", not %016" PRIx64,
                        quoted(name, &trail.tensor), written, want);
    return PICI_OK;
}

enum pici_status pici_apply_deltas(pici_write_fn write, void *context, struct pici_state *base,
                                   struct pici_deltas *deltas, const struct pici_apply_opts *opts, char *reason)
{
    struct job job = {PICI_APPLY_OPTS_INIT, base, deltas, write, context, reason, 0, NULL, 0};
    struct pici_attr head;
    if (reason)
        reason[0] = 0;
    enum pici_status status = opts ? sized_read(&job.options, sizeof job.options, sizeof job.options, opts) : PICI_OK;
    if (status)
        return status;
    if (!write || !base || !deltas || !deltas->count || job.options.threads < 0)
        return PICI_E_ARG;
    status = check(&job);
    if (status)
        return status;
    status = pici_reader_attr(last(deltas)->reader, PICI_FILE, STATE_HEAD, &head);
    if (status)
        status = reader_failed(last(deltas), status, reason);
    else if (head.key)
        status = write_out(&job, head.value, head.len);
    for (uint64_t i = 0; !status && i < last(deltas)->delta.tensors; i++)
        status = make_tensor(&job, i);
    const int error = errno;
    free(job.piece);
    errno = error;
    return status;
}

enum pici_status pici_deltas_is_result(struct pici_deltas *deltas, struct pici_state *state, int *is_result,
                                       char *reason)
{
    struct pici_attr head;
    uint8_t piece[HASH_PIECE];
    if (reason)
        reason[0] = 0;
    if (!deltas || !deltas->count || !state || !is_result)
        return PICI_E_ARG;
    *is_result = 0;
    const struct step *const end = last(deltas);
    enum pici_status status = pici_reader_attr(end->reader, PICI_FILE, STATE_HEAD, &head);
    if (status)
        return reader_failed(end, status, reason);
    if (state->type != end->delta.type || state->count != end->delta.tensors ||
        state->head_bytes != (head.key ? head.len : 0) ||
        (head.key && head.len && memcmp(state->head, head.value, head.len) != 0))
        return PICI_OK;
    for (size_t i = 0; i < state->count; i++) {
        const struct state_tensor *tensor = &state->tensors[i];
        struct pici_xxh64 hash;
        pici_xxh64_init(&hash, 0);
        for (uint64_t offset = 0, count; offset < tensor->bytes; offset += count) {
            count = tensor->bytes - offset < sizeof piece ? tensor->bytes - offset : sizeof piece;
            status = pici_state_read(state, tensor, offset, piece, (size_t)count, reason);
            if (status)
                return status;
            pici_xxh64_update(&hash, piece, (size_t)count);
        }
        if (pici_xxh64_digest(&hash) != end->delta.hash[i].result)
            return PICI_OK;
    }
    *is_result = 1;
    return PICI_OK;
}
