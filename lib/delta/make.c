/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Makes the delta from one state to another. Reads both once, a piece of a tensor at a time. It reads a tensor again
 * only if small deltas do not pay. It collects a tensor's small deltas in memory, because it must know their length
 * before it writes them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "delta/delta.h"
#include "file/file.h"
#include "pici/delta.h"
#include "sized.h"

enum { PIECE_MOST = 256 << 20 }; /* bytes */

struct job {
    struct pici_diff_opts options;
    struct pici_state *base, *next;
    char *reason;
    struct pici_writer *writer;
    uint64_t done;           /* bytes of tensors */
    bool small;              /* small deltas may be made */
    size_t piece;            /* elements read at a time */
    uint8_t *before, *after; /* [piece] of the widest; [DELTA_PIECE] of f32 if small */
    uint64_t *table;         /* [listed + 1][2] the contents of DELTA_HASHES */
    uint8_t *collected;      /* [capacity] small deltas of a tensor */
    size_t capacity;
    bool partial;     /* version 3: list changed tensors only */
    size_t listed;    /* rows of the table so far */
    struct few *few;  /* [next->count], of version 3 */
    uint64_t *hashes; /* [next->count][2]: of base and result */
    /* of version 3: hashes of the pieces of tensors, of base and result */
    uint64_t *pieces;                  /* [piece_room][2] */
    size_t piece_room, piece_first;    /* piece_first: the first piece of the current tensor */
    struct pici_xxh64 piece_so_far[2]; /* of the current piece */
};

/* The changes of a tensor with few changed elements. */
struct few {
    uint8_t *bytes; /* null: no changes, or not few */
    size_t size;
    uint64_t changes;
};

/* LOOK: elements compared at a time. Changes are few if they take at most FEW_MOST bytes, plus FEW_EACH for each small
 * delta that the tensor would have. That is about the size of the small delta and of the tensor's description. */
enum { LOOK = 1 << 16, FEW_MOST = 512, FEW_EACH = 48 };

static enum pici_status nomem(const struct job *job, const char *what)
{
    return pici_why(job->reason, PICI_E_NOMEM, job->next->name, "out of memory for %s", what);
}

/* Report an error of the writer, or of a block. */
static enum pici_status writer_failed(const struct job *job, enum pici_status status)
{
    return pici_why(job->reason, status, job->next->name, "%s",
                    job->writer ? pici_writer_error(job->writer) : pici_strerror(status));
}

/* Whether two tensors of one name can differ only in their elements. */
static bool alike(const struct state_tensor *before, const struct state_tensor *base)
{
    return before->dtype == base->dtype && before->count == base->count && before->rank == base->rank &&
           before->big_endian == base->big_endian && before->fortran == base->fortran &&
           strcmp(before->dtype_text, base->dtype_text) == 0 &&
           memcmp(before->shape, base->shape, before->rank * sizeof *before->shape) == 0;
}

/* Makes the attribute DELTA_REMOVED: the names of tensors that only the base has. The caller frees the value. */
static enum pici_status list_removed(struct job *job, struct pici_attr *removed)
{
    size_t size = 0;
    uint8_t *output = NULL;
    *removed = (struct pici_attr){DELTA_REMOVED, NULL, 0};
    for (size_t i = 0; i < job->base->count; i++) {
        const struct state_tensor *tensor = &job->base->tensors[i];
        if (pici_state_find(job->next, tensor->name, tensor->name_bytes))
            continue;
        uint8_t *bigger = realloc(output, size + 4 + tensor->name_bytes);
        if (!bigger) {
            free(output);
            return nomem(job, "the names of removed tensors");
        }
        output = bigger;
        store_le32(output + size, (uint32_t)tensor->name_bytes);
        memcpy(output + size + 4, tensor->name, tensor->name_bytes);
        size += 4 + tensor->name_bytes;
    }
    removed->value = output;
    removed->len = size;
    return PICI_OK;
}

/* Whether base and next can differ only in elements, and begin with the same head. */
static bool same_layout(struct job *job)
{
    const size_t head_bytes = job->next->head_bytes;
    bool same = job->next->type == PICI_STATE_SAFETENSORS && job->base->count == job->next->count &&
                job->base->head_bytes == head_bytes &&
                (!head_bytes || memcmp(job->next->head, job->base->head, head_bytes) == 0);
    for (size_t i = 0; same && i < job->next->count; i++) {
        const struct state_tensor *const tensor = &job->next->tensors[i], *const base = &job->base->tensors[i];
        same = tensor->name_bytes == base->name_bytes && memcmp(tensor->name, base->name, base->name_bytes) == 0 &&
               alike(base, tensor);
    }
    /* false for duplicate names: the writer reports them */
    struct state_tensor *const *const ordered = pici_state_by_name(job->next);
    for (size_t i = 1; same && i < job->next->count; i++)
        same = ordered[i - 1]->name_bytes != ordered[i]->name_bytes ||
               memcmp(ordered[i - 1]->name, ordered[i]->name, ordered[i]->name_bytes) != 0;
    return same;
}

/* The size of a state's file. */
static uint64_t state_bytes(const struct pici_state *state)
{
    uint64_t bytes = state->head_bytes;
    for (size_t i = 0; i < state->count; i++)
        bytes = bytes <= UINT64_MAX - state->tensors[i].bytes ? bytes + state->tensors[i].bytes : UINT64_MAX;
    return bytes;
}

/* Whether a tensor may be stored as small deltas. U8 may be: most checkpoints store 4-bit floats as U8. */
static bool may_be_small(struct job *job, const struct state_tensor *tensor)
{
    const struct state_tensor *base = pici_state_find(job->base, tensor->name, tensor->name_bytes);
    if (tensor->dtype == PICI_U8 && strcmp(tensor->dtype_text, "U8") != 0 && strcmp(tensor->dtype_text, "F4") != 0)
        return false;
    return job->options.choice != PICI_DELTA_FASTEST && delta_small_name(tensor->dtype) && tensor->count && base &&
           (job->partial || !delta_is_narrow(tensor->dtype)) && alike(base, tensor);
}

static enum pici_status begin(struct job *job, pici_write_fn write, void *context)
{
    const char *type = pici_state_type_name(job->next->type);
    struct pici_attr removed;
    job->partial = job->options.choice != PICI_DELTA_FASTEST && !job->options.list_all && same_layout(job);
    for (size_t i = 0; i < job->next->count && !job->small; i++)
        job->small = may_be_small(job, &job->next->tensors[i]);
    enum pici_status status = list_removed(job, &removed);
    if (status)
        return status;
    const char *const version = job->small ? "2" : "1";
    uint8_t base[16];
    struct pici_attr attributes[5] = {{DELTA_VERSION, job->partial ? "3" : version, 1},
                                      {STATE_TYPE, type, strlen(type)}};
    size_t count = 2;
    if (job->partial) {
        store_le64(base, job->next->count);
        store_le64(base + 8, state_bytes(job->next));
        attributes[count++] = (struct pici_attr){DELTA_BASE, base, sizeof base};
    }
    if (job->next->head_bytes && !job->partial)
        attributes[count++] = (struct pici_attr){STATE_HEAD, job->next->head, job->next->head_bytes};
    if (removed.len)
        attributes[count++] = removed;
    struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    opts.format = job->options.format;
    opts.threads = job->options.threads;
    opts.zstd_level = job->options.zstd_level;
    opts.pack = job->options.pack;
    status = pici_writer_open(&job->writer, write, context, attributes, count, &opts);
    free((void *)removed.value);
    if (status)
        return writer_failed(job, status);
    const size_t threads = (size_t)pici_delta_threads(job->options.threads);
    const size_t most = PIECE_MOST / sizeof(uint64_t) / opts.chunk_elements;
    job->piece = opts.chunk_elements * (threads < most ? threads : most);
    size_t bytes = job->piece * sizeof(uint64_t);
    if (job->small && bytes < DELTA_PIECE * sizeof(float))
        bytes = DELTA_PIECE * sizeof(float);
    job->before = malloc(bytes);
    job->after = malloc(bytes);
    job->table = calloc(job->next->count + 1, 2 * sizeof *job->table);
    job->few = calloc(job->next->count + 1, sizeof *job->few);
    job->hashes = calloc(job->next->count + 1, 2 * sizeof *job->hashes);
    return job->before && job->after && job->table && job->few && job->hashes
               ? PICI_OK
               : nomem(job, "the elements and the hashes");
}

/* Adds the next bytes of a tensor, of base or result, to the hashes of its pieces. */
static void add_to_pieces(struct job *job, bool result, const struct state_tensor *tensor, uint64_t from,
                          const uint8_t *bytes, size_t count)
{
    const uint64_t most = (uint64_t)DELTA_HASHED * tensor->width;
    struct pici_xxh64 *const so_far = &job->piece_so_far[result];
    if (!job->partial || !delta_piece_rows(tensor->count))
        return;
    for (size_t some; count > 0; from += some, bytes += some, count -= some) {
        const uint64_t remaining = most - from % most;
        some = remaining < count ? (size_t)remaining : count;
        if (from % most == 0)
            pici_xxh64_init(so_far, 0);
        pici_xxh64_update(so_far, bytes, some);
        if (some == remaining || from + some == tensor->bytes)
            job->pieces[2 * (job->piece_first + from / most) + result] = pici_xxh64_digest(so_far);
    }
}

/* Makes room for the hashes of a tensor's pieces. */
static enum pici_status room_for_pieces(struct job *job, const struct state_tensor *tensor)
{
    const uint64_t room = job->piece_first + (job->partial ? delta_piece_rows(tensor->count) : 0);
    if (room <= job->piece_room)
        return PICI_OK;
    uint64_t *const more = room <= SIZE_MAX / 64 ? realloc(job->pieces, (size_t)room * 2 * 2 * sizeof *more)
                                                 : NULL; /* with as much room again */
    if (!more)
        return nomem(job, "the hashes of pieces");
    job->pieces = more;
    job->piece_room = (size_t)room * 2;
    return PICI_OK;
}

/* Reads the next bytes of a tensor. They are hashed as they are in the file, then swapped to host order. */
static enum pici_status take(struct job *job, struct pici_state *of, const struct state_tensor *tensor, uint64_t from,
                             uint8_t *buffer, size_t bytes, struct pici_xxh64 *hash)
{
    const enum pici_status status = pici_state_read(of, tensor, from, buffer, bytes, job->reason);
    if (status)
        return status;
    pici_xxh64_update(hash, buffer, bytes);
    add_to_pieces(job, of == job->next, tensor, from, buffer, bytes);
    pici_state_swap(tensor->big_endian, tensor->width, buffer, bytes);
    return PICI_OK;
}

/* Reads count bytes of both tensors at the offset. base: the tensor of the base, or NULL. */
static enum pici_status take_both(struct job *job, const struct state_tensor *base, const struct state_tensor *tensor,
                                  uint64_t offset, size_t count, struct pici_xxh64 hash[2])
{
    enum pici_status status = base ? take(job, job->base, base, offset, job->before, count, &hash[0]) : PICI_OK;
    if (!status)
        status = take(job, job->next, tensor, offset, job->after, count, &hash[1]);
    if (job->options.progress)
        job->options.progress(job->options.progress_ctx, job->done + offset + count);
    return status;
}

static struct pici_opts threads_of(const struct job *job)
{
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.threads = job->options.threads;
    return opts;
}

/* Makes the small delta of elements [first, first + count), at job->before and job->after. Uses the caller's function
 * if there is one. */
static enum pici_status make_small(const struct job *job, const struct state_tensor *tensor, uint64_t first,
                                   size_t count, uint8_t *block, size_t capacity, size_t *size)
{
    const enum pici_dtype dtype = tensor->dtype;
    if (job->options.small) {
        *size = 0;
        const enum pici_status status = job->options.small(job->options.small_ctx, tensor->name, tensor->name_bytes,
                                                           first, count, block, capacity, size);
        if (status != PICI_E_UNSUPPORTED)
            return !status && *size > capacity ? PICI_E_SPACE : status;
    }
    struct pici_opts opts = threads_of(job);
    opts.holds = dtype == PICI_U8 ? PICI_HOLDS_E2M1X2 : PICI_HOLDS_ONE;
    return pici_diff_small(block, capacity, size, job->before, job->after, count, dtype, job->options.format, &opts);
}

/* Appends the small delta of elements [first, first + count), at job->before and job->after, to job->collected. */
static enum pici_status collect(struct job *job, size_t *size, const struct state_tensor *tensor, uint64_t first,
                                size_t count)
{
    const enum pici_dtype dtype = tensor->dtype;
    const size_t most = pici_diff_small_bound(job->options.format, dtype, count);
    size_t more;
    if (most > job->capacity - *size) {
        const size_t capacity = *size + *size / 2 + most;
        uint8_t *output = capacity > *size ? realloc(job->collected, capacity) : NULL;
        if (!output)
            return nomem(job, "the small deltas of a tensor");
        job->collected = output;
        job->capacity = capacity;
    }
    const enum pici_status status =
        make_small(job, tensor, first, count, job->collected + *size, job->capacity - *size, &more);
    if (status)
        return status == PICI_E_NOMEM ? nomem(job, "a small delta") : writer_failed(job, status);
    *size += more;
    return PICI_OK;
}

/* Whether a small delta of `small` bytes pays: compares it with the XOR block of the count elements at job->before and
 * job->after. */
static enum pici_status pays(struct job *job, size_t small, size_t count, enum pici_dtype dtype, bool *pays_off)
{
    const struct pici_opts opts = threads_of(job);
    const size_t capacity = pici_bound(job->options.format, dtype, count);
    size_t size = 0;
    uint8_t *block = malloc(capacity);
    if (!block)
        return nomem(job, "a delta to compare with");
    const enum pici_status status =
        pici_diff(block, capacity, &size, job->before, job->after, count, dtype, job->options.format, &opts);
    free(block);
    *pays_off = small < size - size / 8;
    return status ? writer_failed(job, status) : PICI_OK;
}

/* A description for the writer, with these attributes. Shares the tensor's pointers. */
enum { ATTRS = 6 };
static struct pici_tensor describe(const struct state_tensor *tensor, struct pici_attr attributes[ATTRS],
                                   enum delta_kind kind)
{
    struct pici_tensor output = PICI_TENSOR_INIT;
    output.name = tensor->name;
    output.name_len = tensor->name_bytes;
    output.dtype = tensor->dtype;
    output.rank = tensor->rank;
    output.shape = tensor->shape;
    output.attrs = attributes;
    attributes[output.n_attrs++] = (struct pici_attr){STATE_DTYPE, tensor->dtype_text, strlen(tensor->dtype_text)};
    if (tensor->big_endian)
        attributes[output.n_attrs++] = (struct pici_attr){STATE_ENDIAN, "big", 3};
    if (tensor->fortran)
        attributes[output.n_attrs++] = (struct pici_attr){STATE_ORDER, "F", 1};
    const char *const word = pici_delta_kind_name(kind);
    attributes[output.n_attrs++] = (struct pici_attr){DELTA_KIND, word, strlen(word)};
    return output;
}

static enum pici_status write_tensor(struct job *job, const struct pici_tensor *tensor)
{
    const enum pici_status status = pici_writer_tensor(job->writer, tensor);
    return status ? writer_failed(job, status) : PICI_OK;
}

/* Describes the tensor of small deltas of a tensor, and writes it. */
static enum pici_status write_small(struct job *job, const struct state_tensor *tensor, size_t size)
{
    struct pici_attr attributes[ATTRS];
    uint8_t shape[8 * PICI_RANK_MAX];
    const uint64_t bytes = size;
    struct pici_tensor output = describe(tensor, attributes, DELTA_SMALL);
    for (unsigned i = 0; i < output.rank; i++)
        store_le64(shape + 8 * i, output.shape[i]);
    const char *const dtype = delta_small_name(tensor->dtype);
    attributes[output.n_attrs++] = (struct pici_attr){DELTA_DTYPE, dtype, strlen(dtype)};
    attributes[output.n_attrs++] = (struct pici_attr){DELTA_SHAPE, shape, 8 * output.rank};
    output.dtype = PICI_U8;
    output.rank = 1;
    output.shape = &bytes;
    enum pici_status status = write_tensor(job, &output);
    if (status)
        return status;
    status = pici_writer_data(job->writer, job->collected, size);
    return status ? writer_failed(job, status) : PICI_OK;
}

/* Writes a tensor as small deltas. *done: false if they do not pay; then nothing was written. The first changed piece
 * decides. Unchanged pieces do not: their small deltas are XOR blocks too. So an unchanged tensor is written as XOR,
 * which has fewer attributes, only if it is one piece. */
static enum pici_status diff_small(struct job *job, const struct state_tensor *base, const struct state_tensor *tensor,
                                   struct pici_xxh64 hash[2], bool *done)
{
    bool decided = job->options.choice != PICI_DELTA_AUTO;
    size_t size = 0;
    *done = true;
    for (uint64_t offset = 0, count; offset < tensor->count; offset += count) {
        const size_t before = size;
        count = tensor->count - offset < DELTA_PIECE ? tensor->count - offset : DELTA_PIECE;
        enum pici_status status =
            take_both(job, base, tensor, offset * tensor->width, (size_t)count * tensor->width, hash);
        if (!status)
            status = collect(job, &size, tensor, offset, (size_t)count);
        if (!status && !decided &&
            (count == tensor->count || memcmp(job->before, job->after, (size_t)count * tensor->width) != 0)) {
            status = pays(job, size - before, (size_t)count, tensor->dtype, done);
            decided = true;
        }
        if (status || !*done)
            return status;
    }
    return write_small(job, tensor, size);
}

/* Writes a tensor as the XOR of both, or whole. */
static enum pici_status diff_whole(struct job *job, const struct state_tensor *base, const struct state_tensor *tensor,
                                   enum delta_kind kind, struct pici_xxh64 hash[2])
{
    struct pici_attr attributes[ATTRS];
    const struct pici_tensor output = describe(tensor, attributes, kind);
    enum pici_status status = write_tensor(job, &output);
    for (uint64_t offset = 0; !status && offset < tensor->bytes;) {
        const uint64_t remaining = tensor->bytes - offset, most = job->piece * tensor->width;
        const size_t count = remaining < most ? (size_t)remaining : (size_t)most;
        status = take_both(job, kind == DELTA_XOR ? base : NULL, tensor, offset, count, hash);
        if (status)
            return status;
        status = kind == DELTA_XOR ? pici_writer_diff(job->writer, job->before, job->after, count)
                                   : pici_writer_data(job->writer, job->after, count);
        if (status)
            return writer_failed(job, status);
        offset += count;
    }
    return status;
}

static void hash_begin(struct pici_xxh64 hash[2])
{
    pici_xxh64_init(&hash[0], 0);
    pici_xxh64_init(&hash[1], 0);
}

/* Appends the changes among count elements at job->before and job->after to few, which has room for `most` bytes and
 * two numbers. *element: the first possible place of the next change, counted from the first of these elements. Returns
 * false if the changes do not fit. */
static bool add_changes(const struct job *job, struct few *few, size_t most, size_t count, unsigned width,
                        uint64_t *element)
{
    const uint64_t zero = 0;
    for (size_t i = 0; i < count; i++) {
        enum { SKIP = 512 };
        const uint8_t *const before = job->before + i * width, *const after = job->after + i * width;
        if (i % SKIP == 0 && count - i >= SKIP && memcmp(before, after, (size_t)SKIP * width) == 0) {
            i += SKIP - 1;
            continue;
        }
        if (memcmp(before, after, width) == 0)
            continue;
        uint8_t xored[8];
        memcpy(xored, &zero, sizeof xored);
        for (unsigned byte = 0; byte < width; byte++) {
            const unsigned from = PICI_BIG_ENDIAN ? width - 1 - byte : byte;
            xored[byte] = before[from] ^ after[from];
        }
        few->size += pici_varint_put(few->bytes + few->size, i - *element);
        few->size += pici_varint_put(few->bytes + few->size, load_le64(xored));
        few->changes++;
        *element = i + 1;
        if (few->size > most)
            return false;
    }
    return true;
}

/* Looks for the changes of a tensor. *found: they are few, or there are none; else the caller reads the elements
 * again. */
static enum pici_status diff_few(struct job *job, size_t i, const struct state_tensor *base,
                                 const struct state_tensor *tensor, struct pici_xxh64 hash[2], bool *found)
{
    struct few *const few = &job->few[i];
    const size_t most = FEW_MOST + (size_t)(tensor->count / (UINT64_C(1) << 19)) * FEW_EACH;
    uint64_t element = 0;
    few->bytes = malloc(most + 2 * DELTA_VARINT_MOST);
    if (!few->bytes)
        return nomem(job, "the changes of a tensor");
    *found = true;
    for (uint64_t offset = 0, count; *found && offset < tensor->count; offset += count, element -= count) {
        count = tensor->count - offset < LOOK ? tensor->count - offset : LOOK;
        const enum pici_status status =
            take_both(job, base, tensor, offset * tensor->width, (size_t)count * tensor->width, hash);
        if (status)
            return status;
        *found = add_changes(job, few, most, (size_t)count, tensor->width, &element);
    }
    if (!*found || !few->changes) {
        free(few->bytes);
        *few = (struct few){0};
    } else {
        uint8_t *const shorter = realloc(few->bytes, few->size);
        few->bytes = shorter ? shorter : few->bytes;
    }
    return PICI_OK;
}

static enum pici_status diff_tensor(struct job *job, size_t i)
{
    const struct state_tensor *tensor = &job->next->tensors[i],
                              *base = pici_state_find(job->base, tensor->name, tensor->name_bytes);
    enum delta_kind kind = DELTA_ADDED;
    if (base)
        kind = alike(base, tensor) ? DELTA_XOR : DELTA_REPLACED;
    struct pici_xxh64 hash[2];
    bool done = false, few = false;
    enum pici_status status = room_for_pieces(job, tensor);
    hash_begin(hash);
    if (!status && job->partial)
        status = diff_few(job, i, base, tensor, hash, &few);
    if (!few)
        hash_begin(hash);
    if (!status && !few && may_be_small(job, tensor))
        status = diff_small(job, base, tensor, hash, &done);
    if (!status && !few && !done) {
        hash_begin(hash);
        status = diff_whole(job, base, tensor, kind, hash);
    }
    const uint64_t before = kind == DELTA_XOR ? pici_xxh64_digest(&hash[0]) : 0, after = pici_xxh64_digest(&hash[1]);
    job->hashes[2 * i] = before;
    job->hashes[2 * i + 1] = after;
    if (!few) {
        job->table[2 * job->listed] = before;
        job->table[2 * job->listed++ + 1] = after;
        job->piece_first += job->partial ? (size_t)delta_piece_rows(tensor->count) : 0;
    }
    job->done += tensor->bytes;
    return status;
}

/* Writes a table as a tensor with a unique name. */
static enum pici_status write_table_of(struct job *job, const char *table_name, enum pici_dtype dtype, unsigned rank,
                                       const uint64_t *shape, const void *elements, size_t bytes)
{
    size_t size = strlen(table_name);
    char *name = malloc(size + job->next->count + 1); /* every tensor may already have such a name */
    if (!name)
        return nomem(job, "the name of a table");
    memcpy(name, table_name, size);
    while (pici_state_find(job->next, name, size))
        name[size++] = '+';
    struct pici_tensor tensor = PICI_TENSOR_INIT;
    tensor.name = name;
    tensor.name_len = size;
    tensor.dtype = dtype;
    tensor.rank = rank;
    tensor.shape = shape;
    enum pici_status status = write_tensor(job, &tensor);
    free(name);
    if (status || !bytes)
        return status;
    status = pici_writer_data(job->writer, elements, bytes);
    return status ? writer_failed(job, status) : PICI_OK;
}

/* Writes the table of few changes, and puts the identities of base and result in the table of hashes. */
static enum pici_status write_few(struct job *job)
{
    struct state_tensor *const *const ordered = pici_state_by_name(job->next);
    struct pici_xxh64 identity[2];
    uint64_t size = 0, first = 0;
    hash_begin(identity);
    for (size_t i = 0; i < job->next->count; i++)
        size += job->few[i].bytes ? job->few[i].size + 2 * DELTA_VARINT_MOST + 16 : 0;
    uint8_t *const table = size <= SIZE_MAX - 1 ? malloc((size_t)size + 1) : NULL;
    if (!table)
        return nomem(job, "the table of few changes");
    size = 0;
    for (size_t number = 0; number < job->next->count; number++) {
        const struct state_tensor *const tensor = ordered[number];
        const size_t i = (size_t)(tensor - job->next->tensors);
        for (int k = 0; k < 2; k++)
            pici_identity_add(&identity[k], tensor->name, tensor->name_bytes, tensor->dtype_text,
                              strlen(tensor->dtype_text), tensor->rank, tensor->shape, job->hashes[2 * i + k]);
        const struct few *const few = &job->few[i];
        if (!few->bytes)
            continue;
        size += pici_varint_put(table + size, number - first);
        store_le64(table + size, job->hashes[2 * i]);
        store_le64(table + size + 8, job->hashes[2 * i + 1]);
        size += 16;
        size += pici_varint_put(table + size, few->changes - 1);
        memcpy(table + size, few->bytes, few->size);
        size += few->size;
        first = number + 1;
    }
    job->table[2 * job->listed] = pici_xxh64_digest(&identity[0]);
    job->table[2 * job->listed++ + 1] = pici_xxh64_digest(&identity[1]);
    const enum pici_status status = write_table_of(job, DELTA_FEW, PICI_U8, 1, &size, table, (size_t)size);
    free(table);
    return status;
}

/* Writes the last tensor, the table of hashes. */
static enum pici_status write_table(struct job *job)
{
    const size_t rows = job->listed + job->piece_first;
    const uint64_t shape[] = {rows, 2};
    uint64_t *const table = realloc(job->table, (rows + 1) * 2 * sizeof *table);
    if (!table)
        return nomem(job, "the table of hashes");
    job->table = table;
    if (job->piece_first)
        memcpy(table + 2 * job->listed, job->pieces, job->piece_first * 2 * sizeof *table);
    return write_table_of(job, DELTA_HASHES, PICI_U64, 2, shape, table, rows * 2 * sizeof *table);
}

enum pici_status pici_diff_states(pici_write_fn write, void *context, struct pici_state *base, struct pici_state *next,
                                  const struct pici_diff_opts *opts, char *reason)
{
    struct job job = {.options = PICI_DIFF_OPTS_INIT, .base = base, .next = next, .reason = reason};
    if (reason)
        reason[0] = 0;
    enum pici_status status =
        opts ? sized_read(&job.options, sizeof job.options, SIZED_THROUGH(struct pici_diff_opts, progress_ctx), opts)
             : PICI_OK;
    if (status)
        return status;
    if (job.options.pack != PICI_PACK_NONE && job.options.pack != PICI_PACK_PLANES &&
        job.options.pack != PICI_PACK_FAST)
        return PICI_E_UNSUPPORTED;
    if (!write || !base || !next || base->type != next->type || job.options.threads < 0 ||
        job.options.choice < PICI_DELTA_AUTO || job.options.choice > PICI_DELTA_FASTEST ||
        !pici_bound(job.options.format, PICI_U8, 1))
        return PICI_E_ARG;
    if ((status = pici_state_whole(base, reason)) != PICI_OK || (status = pici_state_whole(next, reason)) != PICI_OK)
        return status;
    status = begin(&job, write, context);
    for (size_t i = 0; !status && i < next->count; i++)
        status = diff_tensor(&job, i);
    if (!status && job.partial)
        status = write_few(&job);
    if (!status)
        status = write_table(&job);
    if (!status) {
        status = pici_writer_finish(job.writer);
        if (status)
            status = writer_failed(&job, status);
    }
    const int error = errno;
    pici_writer_close(job.writer);
    free(job.before);
    free(job.after);
    free(job.table);
    free(job.collected);
    for (size_t i = 0; job.few && i < next->count; i++)
        free(job.few[i].bytes);
    free(job.few);
    free(job.hashes);
    free(job.pieces);
    errno = error;
    return status;
}
