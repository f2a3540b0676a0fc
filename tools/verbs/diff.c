/* SPDX-License-Identifier: BSD-3-Clause
 *
 * picitool diff. Reads both files once, a piece of a tensor at a time. The small deltas of a tensor are collected in
 * memory, since their length must be known before they are written. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attrs.h"
#include "delta.h"
#include "pici/delta.h"
#include "result.h"
#include "tensors.h"
#include "term.h"
#include "xxh64.h"

enum { PIECE_MOST = 256 << 20 }; /* bytes */

struct job {
    const struct tool_options *o;
    struct tensors base, next;
    struct output out;
    struct pici_writer *writer;
    struct progress progress;
    bool small;         /* small deltas may be made */
    size_t piece;       /* elements read at a time */
    uint8_t *from, *to; /* [piece] of the widest; [DELTA_PIECE] of f32 if small */
    uint64_t *table;    /* [next.n][2]: hashes of base and result */
    uint8_t *collected; /* [room] small deltas of a tensor */
    size_t room;
};

static int writer_failed(const struct job *j, enum pici_status s)
{
    return output_writer_failed(&j->out, j->writer, s);
}

/* Whether two tensors of one name differ in their elements at most. */
static bool alike(const struct tensor_at *a, const struct tensor_at *b)
{
    return a->dtype == b->dtype && a->count == b->count && a->rank == b->rank && a->big_endian == b->big_endian &&
           a->fortran == b->fortran && strcmp(a->dtype_text, b->dtype_text) == 0 &&
           memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

/* Makes the attribute DELTA_REMOVED: the names of tensors that only the base has. The caller frees the value. */
static int list_removed(const struct job *j, struct pici_attr *removed)
{
    size_t len = 0;
    uint8_t *p = NULL;
    *removed = (struct pici_attr){DELTA_REMOVED, NULL, 0};
    for (size_t i = 0; i < j->base.n; i++) {
        const struct tensor_at *t = &j->base.tensor[i];
        if (tensors_find(&j->next, t->name, t->name_len))
            continue;
        uint8_t *bigger = realloc(p, len + 4 + t->name_len);
        if (!bigger) {
            free(p);
            return tool_nomem(j->out.name, "the names of removed tensors");
        }
        p = bigger;
        for (int k = 0; k < 4; k++)
            p[len + (size_t)k] = (uint8_t)(t->name_len >> 8 * k);
        memcpy(p + len + 4, t->name, t->name_len);
        len += 4 + t->name_len;
    }
    removed->value = p;
    removed->len = len;
    return TOOL_OK;
}

/* Whether a tensor may be stored as small deltas. */
static bool may_be_small(const struct job *j, const struct tensor_at *t)
{
    const struct tensor_at *b = tensors_find(&j->base, t->name, t->name_len);
    return j->o->delta != DELTA_FASTEST && delta_has_small(t->dtype) && t->count && b && alike(b, t);
}

static int begin(struct job *j)
{
    const char *type = tool_type_name(j->next.source.type);
    struct pici_attr removed;
    for (size_t i = 0; i < j->next.n && !j->small; i++)
        j->small = may_be_small(j, &j->next.tensor[i]);
    int status = list_removed(j, &removed);
    if (status)
        return status;
    struct pici_attr attrs[4] = {{DELTA_VERSION, j->small ? "2" : "1", 1}, {ATTR_TYPE, type, strlen(type)}};
    size_t n = 2;
    if (j->next.source.head_len)
        attrs[n++] = (struct pici_attr){ATTR_HEAD, j->next.source.head, j->next.source.head_len};
    if (removed.len)
        attrs[n++] = removed;
    struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    opts.format = j->o->format;
    opts.threads = j->o->threads;
    opts.zstd_level = j->o->zstd;
    enum pici_status s = pici_writer_open(&j->writer, output_put, &j->out, attrs, n, &opts);
    free((void *)removed.value);
    if (s)
        return writer_failed(j, s);
    long threads = j->o->threads ? j->o->threads : sysconf(_SC_NPROCESSORS_ONLN);
    size_t most = PIECE_MOST / sizeof(uint64_t) / opts.chunk_elements;
    j->piece = opts.chunk_elements * (threads < 1 ? 1 : (size_t)threads < most ? (size_t)threads : most);
    size_t bytes = j->piece * sizeof(uint64_t);
    if (j->small && bytes < DELTA_PIECE * sizeof(float))
        bytes = DELTA_PIECE * sizeof(float);
    j->from = malloc(bytes);
    j->to = malloc(bytes);
    j->table = calloc(j->next.n + 1, 2 * sizeof *j->table);
    return j->from && j->to && j->table ? TOOL_OK : tool_nomem(j->out.name, "the elements and the hashes");
}

static int write_tensor(struct job *j, const struct pici_tensor *t)
{
    enum pici_status s = pici_writer_tensor(j->writer, t);
    if (s == PICI_E_ARG) /* as a name that is too long for a .pici file */
        return tool_bad(j->next.in.name, "%s", pici_writer_error(j->writer));
    return s ? writer_failed(j, s) : TOOL_OK;
}

/* Reads the next bytes of a tensor. They are hashed as they are in the file, then swapped to host order. */
static int take(struct tensors *s, const struct tensor_at *t, uint64_t from, uint8_t *buf, size_t bytes,
                struct pici_xxh64 *hash)
{
    int status = tensors_read(s, t, from, buf, bytes);
    if (status)
        return status;
    pici_xxh64_update(hash, buf, bytes);
    tensor_swap(t->big_endian, t->width, buf, bytes);
    return TOOL_OK;
}

/* Reads n bytes of both tensors at the offset. b: of the base; or NULL. */
static int take_both(struct job *j, const struct tensor_at *b, const struct tensor_at *t, uint64_t at, size_t n,
                     struct pici_xxh64 hash[2])
{
    int status = b ? take(&j->base, b, at, j->from, n, &hash[0]) : TOOL_OK;
    if (status == TOOL_OK)
        status = take(&j->next, t, at, j->to, n, &hash[1]);
    progress_at(&j->progress, t->at + at + n, t->at + at + n);
    return status;
}

static struct pici_opts threads_of(const struct job *j)
{
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.threads = j->o->threads;
    return opts;
}

/* Appends the small delta of n elements at j->from and j->to to what has been collected. */
static int collect(struct job *j, size_t *len, size_t n, enum pici_dtype dtype)
{
    const struct pici_opts opts = threads_of(j);
    const size_t most = pici_diff_small_bound(j->o->format, dtype, n);
    size_t more;
    if (most > j->room - *len) {
        const size_t room = *len + *len / 2 + most;
        uint8_t *p = room > *len ? realloc(j->collected, room) : NULL;
        if (!p)
            return tool_nomem(j->out.name, "the small deltas of a tensor");
        j->collected = p;
        j->room = room;
    }
    const enum pici_status s =
        pici_diff_small(j->collected + *len, j->room - *len, &more, j->from, j->to, n, dtype, j->o->format, &opts);
    if (s == PICI_E_NOMEM)
        return tool_nomem(j->out.name, "a small delta");
    if (s)
        return tool_bad(j->out.name, "%s", pici_strerror(s));
    *len += more;
    return TOOL_OK;
}

/* Whether a small delta of so many bytes pays: decides by the other delta of the n elements at j->from and j->to. */
static int pays(struct job *j, size_t small, size_t n, enum pici_dtype dtype, bool *yes)
{
    const struct pici_opts opts = threads_of(j);
    const size_t cap = pici_bound(j->o->format, dtype, n);
    size_t len = 0;
    uint8_t *block = malloc(cap);
    if (!block)
        return tool_nomem(j->out.name, "a delta to compare with");
    const enum pici_status s = pici_diff(block, cap, &len, j->from, j->to, n, dtype, j->o->format, &opts);
    free(block);
    *yes = small < len - len / 8;
    return s ? tool_bad(j->out.name, "%s", pici_strerror(s)) : TOOL_OK;
}

/* Describes the tensor of small deltas of a tensor, and writes it. */
static int write_small(struct job *j, const struct tensor_at *t, size_t len)
{
    struct pici_attr attrs[SOURCE_ATTRS + 3];
    uint8_t shape[8 * PICI_RANK_MAX];
    const uint64_t bytes = len;
    const struct source_tensor source = tensors_source(t);
    struct pici_tensor out = source_describe(&source, attrs);
    for (unsigned i = 0; i < 8 * out.rank; i++)
        shape[i] = (uint8_t)(out.shape[i / 8] >> 8 * (i % 8));
    const char *const dtype = pici_dtype_name(t->dtype);
    attrs[out.n_attrs++] = (struct pici_attr){DELTA_KIND, "small", 5};
    attrs[out.n_attrs++] = (struct pici_attr){DELTA_DTYPE, dtype, strlen(dtype)};
    attrs[out.n_attrs++] = (struct pici_attr){DELTA_SHAPE, shape, 8 * out.rank};
    out.dtype = PICI_U8;
    out.rank = 1;
    out.shape = &bytes;
    const int status = write_tensor(j, &out);
    const enum pici_status s = status ? PICI_OK : pici_writer_data(j->writer, j->collected, len);
    return s ? writer_failed(j, s) : status;
}

/* Writes a tensor as small deltas. *done: false if they do not pay; nothing has been written then. */
static int diff_small(struct job *j, const struct tensor_at *b, const struct tensor_at *t, struct pici_xxh64 hash[2],
                      bool *done)
{
    size_t len = 0;
    *done = true;
    for (uint64_t at = 0, n; at < t->count; at += n) {
        n = t->count - at < DELTA_PIECE ? t->count - at : DELTA_PIECE;
        int status = take_both(j, b, t, at * t->width, (size_t)n * t->width, hash);
        if (status == TOOL_OK)
            status = collect(j, &len, (size_t)n, t->dtype);
        if (status == TOOL_OK && at == 0 && j->o->delta == DELTA_CHOICE)
            status = pays(j, len, (size_t)n, t->dtype, done);
        if (status || !*done)
            return status;
    }
    return write_small(j, t, len);
}

/* Writes a tensor as the XOR of both, or whole. */
static int diff_whole(struct job *j, const struct tensor_at *b, const struct tensor_at *t, enum delta_kind kind,
                      struct pici_xxh64 hash[2])
{
    struct pici_attr attrs[SOURCE_ATTRS + 1];
    const struct source_tensor source = tensors_source(t);
    struct pici_tensor out = source_describe(&source, attrs);
    attrs[out.n_attrs++] = (struct pici_attr){DELTA_KIND, delta_kind_name(kind), strlen(delta_kind_name(kind))};
    int status = write_tensor(j, &out);
    for (uint64_t at = 0; status == TOOL_OK && at < t->bytes;) {
        const uint64_t left = t->bytes - at, most = j->piece * t->width;
        const size_t n = left < most ? (size_t)left : (size_t)most;
        status = take_both(j, kind == DELTA_XOR ? b : NULL, t, at, n, hash);
        if (status)
            return status;
        enum pici_status s =
            kind == DELTA_XOR ? pici_writer_diff(j->writer, j->from, j->to, n) : pici_writer_data(j->writer, j->to, n);
        if (s)
            return writer_failed(j, s);
        at += n;
    }
    return status;
}

static void hash_begin(struct pici_xxh64 hash[2])
{
    pici_xxh64_init(&hash[0], 0);
    pici_xxh64_init(&hash[1], 0);
}

static int diff_tensor(struct job *j, size_t i)
{
    const struct tensor_at *t = &j->next.tensor[i], *b = tensors_find(&j->base, t->name, t->name_len);
    const enum delta_kind kind = !b ? DELTA_ADDED : alike(b, t) ? DELTA_XOR : DELTA_REPLACED;
    struct pici_xxh64 hash[2];
    bool done = false;
    int status = TOOL_OK;
    hash_begin(hash);
    if (may_be_small(j, t))
        status = diff_small(j, b, t, hash, &done);
    if (status == TOOL_OK && !done) {
        hash_begin(hash);
        status = diff_whole(j, b, t, kind, hash);
    }
    j->table[2 * i] = kind == DELTA_XOR ? pici_xxh64_digest(&hash[0]) : 0;
    j->table[2 * i + 1] = pici_xxh64_digest(&hash[1]);
    return status;
}

/* Writes the last tensor, the table of hashes. */
static int write_table(struct job *j)
{
    const uint64_t shape[] = {j->next.n, 2};
    size_t len = strlen(DELTA_HASHES);
    char *name = malloc(len + j->next.n + 1); /* each tensor may have one of the names */
    if (!name)
        return tool_nomem(j->out.name, "the name of the table of hashes");
    memcpy(name, DELTA_HASHES, len);
    while (tensors_find(&j->next, name, len))
        name[len++] = '+';
    struct pici_tensor t = PICI_TENSOR_INIT;
    t.name = name;
    t.name_len = len;
    t.dtype = PICI_U64;
    t.rank = 2;
    t.shape = shape;
    int status = write_tensor(j, &t);
    free(name);
    enum pici_status s = status ? PICI_OK : pici_writer_data(j->writer, j->table, j->next.n * 2 * sizeof *j->table);
    return s ? writer_failed(j, s) : status;
}

static int diff(struct job *j)
{
    int status = begin(j);
    progress_start(&j->progress, j->next.in.name, j->next.in.bytes);
    for (size_t i = 0; status == TOOL_OK && i < j->next.n; i++)
        status = diff_tensor(j, i);
    if (status == TOOL_OK)
        status = write_table(j);
    if (status == TOOL_OK) {
        enum pici_status s = pici_writer_finish(j->writer);
        status = s ? writer_failed(j, s) : TOOL_OK;
    }
    progress_end(&j->progress);
    return status;
}

int verb_diff(const struct tool_options *o)
{
    struct job j = {.o = o, .out.fd = -1};
    if (!o->out)
        return tool_usage(NULL, "diff: needs -o DELTA");
    int status = tensors_open(&j.base, o->args[0], o);
    if (status)
        return status;
    status = tensors_open(&j.next, o->args[1], o);
    if (status == TOOL_OK && j.base.source.type != j.next.source.type)
        status = tool_usage(o->args[1], "taken as %s, and the base as %s: use --type",
                            tool_type_name(j.next.source.type), tool_type_name(j.base.source.type));
    if (status == TOOL_OK && tool_type_is_zip(j.next.source.type))
        status = tool_usage(o->args[1], "diff is not for .%s files", tool_type_name(j.next.source.type));
    if (status == TOOL_OK && input_is(&j.base.in, o->out))
        status = tool_usage(o->out, "is the base");
    if (status == TOOL_OK)
        status = output_open_from(&j.out, o->out, &j.next.in, (const int[]){j.next.in.fd, j.base.in.fd}, 2, o->force);
    j.out.limit = limit_of(o, j.base.in.bytes + j.next.in.bytes, 0);
    const double start = term_now();
    if (status == TOOL_OK)
        status = diff(&j);
    const double seconds = term_now() - start;
    if (status == TOOL_OK)
        status = output_commit(&j.out);
    if (status == TOOL_OK)
        result_print(j.next.in.name, j.next.in.bytes, &j.out, false, seconds);
    pici_writer_close(j.writer);
    output_discard(&j.out);
    free(j.from);
    free(j.to);
    free(j.table);
    free(j.collected);
    tensors_close(&j.next);
    tensors_close(&j.base);
    return status;
}
