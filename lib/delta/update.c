/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Changes a state in place. Keeps the changes as XOR blocks, so that applying them again undoes them. */
#include <stdlib.h>
#include <string.h>

#include "delta/apply.h"
#include "delta/columns.h"
#include "file/file.h"
#include "pici/delta.h"
#include "sized.h"

struct part {
    struct pici_update_part info;
    uint8_t *elements; /* in the state's memory */
};

struct pici_update {
    struct part *parts; /* [count] */
    size_t count, capacity;
    int threads;
};

static enum pici_status nomem(const struct apply_job *job)
{
    return pici_why(job->reason, PICI_E_NOMEM, job->base->name, "out of memory for the changes");
}

/* An apply_take_fn: keeps how a piece differs from the state. */
static enum pici_status keep(struct apply_job *job, const struct trail *trail, uint64_t offset, size_t bytes)
{
    struct pici_update *const update = job->context;
    const struct state_tensor *const tensor = trail->base;
    uint8_t *const elements = (uint8_t *)(uintptr_t)tensor->data + offset;
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.threads = job->options.threads;
    job->written += bytes;
    if (job->options.progress)
        job->options.progress(job->options.progress_ctx, job->written);
    if (memcmp(elements, job->piece, bytes) == 0)
        return PICI_OK;
    if (update->count == update->capacity) {
        const size_t capacity = 2 * update->capacity + 16;
        struct part *const more = realloc(update->parts, capacity * sizeof *more);
        if (!more)
            return nomem(job);
        update->parts = more;
        update->capacity = capacity;
    }
    const uint64_t n = bytes / tensor->width;
    const size_t capacity = pici_bound(PICI_AUTO, tensor->dtype, n);
    size_t size;
    uint8_t *const block = malloc(capacity);
    if (!block)
        return nomem(job);
    const enum pici_status status =
        pici_diff(block, capacity, &size, elements, job->piece, n, tensor->dtype, PICI_AUTO, &opts);
    if (status) {
        free(block);
        return pici_why(job->reason, status, job->base->name, "%s", pici_strerror(status));
    }
    uint8_t *const shorter = realloc(block, size);
    update->parts[update->count++] = (struct part){.info = {.size = sizeof(struct pici_update_part),
                                                            .tensor = (uint64_t)(tensor - job->base->tensors),
                                                            .first = offset / tensor->width,
                                                            .count = n,
                                                            .block = shorter ? shorter : block,
                                                            .block_bytes = size},
                                                   .elements = elements};
    return PICI_OK;
}

/* Checks that the result has the tensors of the base, and that these are in memory. */
static enum pici_status check_tensors(struct apply_job *job)
{
    const struct pici_state *const base = job->base;
    char name[PICI_QUOTE_CAP];
    struct trail trail;
    for (size_t i = 0; i < base->count; i++)
        if (base->tensors[i].bytes && !base->tensors[i].data)
            return pici_why(job->reason, PICI_E_ARG, base->name, "tensor %s is not in memory",
                            pici_quote(name, base->tensors[i].name, base->tensors[i].name_bytes));
    for (uint64_t i = 0; i < pici_apply_tensors(job); i++) {
        const enum pici_status status = pici_apply_trace(job, i, &trail);
        if (status)
            return status;
        if (!trail.base)
            return pici_why(job->reason, PICI_E_UNSUPPORTED, job->deltas->steps[trail.first].name,
                            "adds or replaces tensor %s, which cannot be done in place",
                            pici_quote(name, trail.tensor.name, trail.tensor.name_len));
    }
    return pici_apply_tensors(job) == base->count
               ? PICI_OK
               : pici_why(job->reason, PICI_E_UNSUPPORTED, job->base->name,
                          "the deltas remove a tensor, which cannot be done in place");
}

/* Notes the parts with checked hashes. */
static void set_verified(struct pici_update *update, const struct apply_job *job)
{
    for (size_t i = 0; i < update->count; i++) {
        struct pici_update_part *const part = &update->parts[i].info;
        const struct state_tensor *const tensor = &job->base->tensors[part->tensor];
        part->verified = tensor->count == tensor->of || job->verified[part->tensor];
    }
}

static int by_tensor(const void *left, const void *right)
{
    const struct pici_update_part *const first = &((const struct part *)left)->info;
    const struct pici_update_part *const second = &((const struct part *)right)->info;
    if (first->tensor != second->tensor)
        return first->tensor < second->tensor ? -1 : 1;
    return (first->first > second->first) - (first->first < second->first);
}

/* The parts of a tensor. */
static size_t parts_of(const struct pici_update *update, uint64_t tensor, const struct part **first)
{
    size_t count = 0;
    *first = NULL;
    for (size_t low = 0, high = update->count; low < high;) { /* parts are in the order of their tensors */
        const size_t middle = low + (high - low) / 2;
        if (update->parts[middle].info.tensor < tensor)
            low = middle + 1;
        else
            high = middle;
        *first = &update->parts[low];
    }
    while (*first && *first + count < update->parts + update->count && (*first)[count].info.tensor == tensor)
        count++;
    return count;
}

static int by_place(const void *left, const void *right)
{
    const struct state_tensor *const first = *(const struct state_tensor *const *)left,
                                     *const second = *(const struct state_tensor *const *)right;
    if (first->data != second->data)
        return (uintptr_t)first->data < (uintptr_t)second->data ? -1 : 1;
    if (first->bytes != second->bytes)
        return first->bytes > second->bytes ? -1 : 1;
    return (first > second) - (first < second);
}

/* If two tensors of the state share memory, as tied weights do, change it once. */
static enum pici_status check_shared(struct apply_job *job, struct pici_update *update)
{
    struct pici_state *const base = job->base;
    const struct state_tensor **const placed = calloc(base->count + 1, sizeof *placed);
    enum pici_status status = placed ? PICI_OK : nomem(job);
    size_t count = 0;
    char name[PICI_QUOTE_CAP], other[PICI_QUOTE_CAP];
    for (size_t i = 0; placed && i < base->count; i++)
        if (base->tensors[i].bytes)
            placed[count++] = &base->tensors[i];
    if (placed)
        qsort(placed, count, sizeof *placed, by_place);
    const struct state_tensor *before = count ? placed[0] : NULL; /* the tensor that ends last so far */
    for (size_t i = 1; !status && i < count; i++) {
        const struct state_tensor *const now = placed[i];
        if ((uintptr_t)now->data >= (uintptr_t)before->data + before->bytes) {
            before = now;
            continue;
        }
        const struct part *mine, *theirs;
        const size_t parts = parts_of(update, (uint64_t)(now - base->tensors), &mine),
                     before_parts = parts_of(update, (uint64_t)(before - base->tensors), &theirs);
        if (!parts && !before_parts) {
            if ((uintptr_t)now->data + now->bytes > (uintptr_t)before->data + before->bytes)
                before = now;
            continue;
        }
        bool same = now->data == before->data && now->bytes == before->bytes && now->width == before->width &&
                    parts == before_parts;
        for (size_t k = 0; same && k < parts; k++)
            same = mine[k].info.first == theirs[k].info.first &&
                   mine[k].info.block_bytes == theirs[k].info.block_bytes &&
                   memcmp(mine[k].info.block, theirs[k].info.block, mine[k].info.block_bytes) == 0;
        if (!same)
            status = pici_why(
                job->reason, PICI_E_UNSUPPORTED, base->name, "tensors %s and %s share memory and do not change alike",
                pici_quote(name, before->name, before->name_bytes), pici_quote(other, now->name, now->name_bytes));
        for (size_t k = 0; same && k < parts; k++)
            update->parts[mine - update->parts + (ptrdiff_t)k].elements =
                NULL; /* the other tensor changes this memory */
    }
    free(placed);
    return status;
}

enum pici_status pici_update_new(struct pici_update **output, struct pici_state *base, struct pici_deltas *deltas,
                                 const struct pici_apply_opts *opts, char *reason)
{
    struct apply_job job = {.options = PICI_APPLY_OPTS_INIT,
                            .base = base,
                            .deltas = deltas,
                            .take = keep,
                            .columns = pici_columns_make,
                            .reason = reason};
    if (reason)
        reason[0] = 0;
    if (!output)
        return PICI_E_ARG;
    *output = NULL;
    enum pici_status status = opts ? sized_read(&job.options, sizeof job.options, sizeof job.options, opts) : PICI_OK;
    if (status)
        return status;
    if (!base || !deltas || !deltas->count || job.options.threads < 0)
        return PICI_E_ARG;
    status = pici_apply_check(&job);
    if (!status)
        status = check_tensors(&job);
    if (status)
        return status;
    struct pici_update *const update = calloc(1, sizeof *update);
    job.verified = calloc(base->count + 1, sizeof *job.verified);
    if (!update || !job.verified) {
        free(update);
        free(job.verified);
        return nomem(&job);
    }
    job.context = update;
    update->threads = job.options.threads;
    status = pici_apply_make(&job);
    set_verified(update, &job);
    free(job.verified);
    if (update->count) /* until here in the order of the result */
        qsort(update->parts, update->count, sizeof *update->parts, by_tensor);
    if (!status)
        status = check_shared(&job, update);
    if (status)
        pici_update_free(update);
    else
        *output = update;
    return status;
}

static enum pici_status switch_part(const struct part *part, int threads)
{
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.threads = threads;
    return part->elements
               ? pici_apply(part->elements, part->info.count, part->info.block, part->info.block_bytes, &opts)
               : PICI_OK;
}

enum pici_status pici_update_switch(struct pici_update *update)
{
    enum pici_status status = PICI_OK;
    size_t done = 0;
    if (!update)
        return PICI_E_ARG;
    while (done < update->count && !(status = switch_part(&update->parts[done], update->threads)))
        done++;
    while (status && done > 0) /* undo: one thread needs the least memory */
        switch_part(&update->parts[--done], 1);
    return status;
}

uint64_t pici_update_count(const struct pici_update *update)
{
    return update ? update->count : 0;
}

enum pici_status pici_update_get(const struct pici_update *update, uint64_t i, struct pici_update_part *part)
{
    if (!update || i >= update->count || !part)
        return PICI_E_ARG;
    return sized_write(part, &update->parts[i].info, sizeof update->parts[i].info, sizeof update->parts[i].info);
}

void pici_update_free(struct pici_update *update)
{
    if (!update)
        return;
    for (size_t i = 0; i < update->count; i++)
        free((void *)(uintptr_t)update->parts[i].info.block);
    free(update->parts);
    free(update);
}
