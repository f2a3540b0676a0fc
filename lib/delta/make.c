/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Makes the delta from one state to another. Reads both a piece of a tensor at a time, and once; but if small deltas
 * turn out not to pay, what was read of that tensor is read again. The small deltas of a tensor are collected in
 * memory, since their length must be known before they are written. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "delta/delta.h"
#include "file/file.h"
#include "pici/delta.h"
#include "sized.h"

enum { PIECE_MOST = 256 << 20 }; /* bytes */

struct job {
    struct pici_diff_opts o;
    struct pici_state *base, *next;
    char *why;
    struct pici_writer *writer;
    uint64_t done;      /* bytes of tensors */
    bool small;         /* small deltas may be made */
    size_t piece;       /* elements read at a time */
    uint8_t *from, *to; /* [piece] of the widest; [DELTA_PIECE] of f32 if small */
    uint64_t *table;    /* [next->n][2]: hashes of base and result */
    uint8_t *collected; /* [room] small deltas of a tensor */
    size_t room;
};

static enum pici_status nomem(const struct job *j, const char *what)
{
    return pici_why(j->why, PICI_E_NOMEM, j->next->name, "out of memory for %s", what);
}

/* A status of the writer, or of a block. */
static enum pici_status writer_failed(const struct job *j, enum pici_status s)
{
    return pici_why(j->why, s, j->next->name, "%s", j->writer ? pici_writer_error(j->writer) : pici_strerror(s));
}

/* Whether two tensors of one name differ in their elements at most. */
static bool alike(const struct state_tensor *a, const struct state_tensor *b)
{
    return a->dtype == b->dtype && a->count == b->count && a->rank == b->rank && a->big_endian == b->big_endian &&
           a->fortran == b->fortran && strcmp(a->dtype_text, b->dtype_text) == 0 &&
           memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

/* Makes the attribute DELTA_REMOVED: the names of tensors that only the base has. The caller frees the value. */
static enum pici_status list_removed(struct job *j, struct pici_attr *removed)
{
    size_t len = 0;
    uint8_t *p = NULL;
    *removed = (struct pici_attr){DELTA_REMOVED, NULL, 0};
    for (size_t i = 0; i < j->base->n; i++) {
        const struct state_tensor *t = &j->base->tensor[i];
        if (pici_state_find(j->next, t->name, t->name_len))
            continue;
        uint8_t *bigger = realloc(p, len + 4 + t->name_len);
        if (!bigger) {
            free(p);
            return nomem(j, "the names of removed tensors");
        }
        p = bigger;
        store_le32(p + len, (uint32_t)t->name_len);
        memcpy(p + len + 4, t->name, t->name_len);
        len += 4 + t->name_len;
    }
    removed->value = p;
    removed->len = len;
    return PICI_OK;
}

/* Whether a tensor may be stored as small deltas. */
static bool may_be_small(struct job *j, const struct state_tensor *t)
{
    const struct state_tensor *b = pici_state_find(j->base, t->name, t->name_len);
    return j->o.choice != PICI_DELTA_FASTEST && delta_has_small(t->dtype) && t->count && b && alike(b, t);
}

static enum pici_status begin(struct job *j, pici_write_fn write, void *ctx)
{
    const char *type = pici_state_type_name(j->next->type);
    struct pici_attr removed;
    for (size_t i = 0; i < j->next->n && !j->small; i++)
        j->small = may_be_small(j, &j->next->tensor[i]);
    enum pici_status s = list_removed(j, &removed);
    if (s)
        return s;
    struct pici_attr attrs[4] = {{DELTA_VERSION, j->small ? "2" : "1", 1}, {STATE_TYPE, type, strlen(type)}};
    size_t n = 2;
    if (j->next->head_len)
        attrs[n++] = (struct pici_attr){STATE_HEAD, j->next->head, j->next->head_len};
    if (removed.len)
        attrs[n++] = removed;
    struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    opts.format = j->o.format;
    opts.threads = j->o.threads;
    opts.zstd_level = j->o.zstd_level;
    s = pici_writer_open(&j->writer, write, ctx, attrs, n, &opts);
    free((void *)removed.value);
    if (s)
        return writer_failed(j, s);
    const size_t threads = (size_t)pici_delta_threads(j->o.threads);
    const size_t most = PIECE_MOST / sizeof(uint64_t) / opts.chunk_elements;
    j->piece = opts.chunk_elements * (threads < most ? threads : most);
    size_t bytes = j->piece * sizeof(uint64_t);
    if (j->small && bytes < DELTA_PIECE * sizeof(float))
        bytes = DELTA_PIECE * sizeof(float);
    j->from = malloc(bytes);
    j->to = malloc(bytes);
    j->table = calloc(j->next->n + 1, 2 * sizeof *j->table);
    return j->from && j->to && j->table ? PICI_OK : nomem(j, "the elements and the hashes");
}

/* Reads the next bytes of a tensor. They are hashed as they are in the file, then swapped to host order. */
static enum pici_status take(struct job *j, struct pici_state *of, const struct state_tensor *t, uint64_t from,
                             uint8_t *buf, size_t bytes, struct pici_xxh64 *hash)
{
    const enum pici_status s = pici_state_read(of, t, from, buf, bytes, j->why);
    if (s)
        return s;
    pici_xxh64_update(hash, buf, bytes);
    pici_state_swap(t->big_endian, t->width, buf, bytes);
    return PICI_OK;
}

/* Reads n bytes of both tensors at the offset. b: of the base; or NULL. */
static enum pici_status take_both(struct job *j, const struct state_tensor *b, const struct state_tensor *t,
                                  uint64_t at, size_t n, struct pici_xxh64 hash[2])
{
    enum pici_status s = b ? take(j, j->base, b, at, j->from, n, &hash[0]) : PICI_OK;
    if (!s)
        s = take(j, j->next, t, at, j->to, n, &hash[1]);
    if (j->o.progress)
        j->o.progress(j->o.progress_ctx, j->done + at + n);
    return s;
}

static struct pici_opts threads_of(const struct job *j)
{
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.threads = j->o.threads;
    return opts;
}

/* Appends the small delta of n elements at j->from and j->to to what has been collected. */
static enum pici_status collect(struct job *j, size_t *len, size_t n, enum pici_dtype dtype)
{
    const struct pici_opts opts = threads_of(j);
    const size_t most = pici_diff_small_bound(j->o.format, dtype, n);
    size_t more;
    if (most > j->room - *len) {
        const size_t room = *len + *len / 2 + most;
        uint8_t *p = room > *len ? realloc(j->collected, room) : NULL;
        if (!p)
            return nomem(j, "the small deltas of a tensor");
        j->collected = p;
        j->room = room;
    }
    const enum pici_status s =
        pici_diff_small(j->collected + *len, j->room - *len, &more, j->from, j->to, n, dtype, j->o.format, &opts);
    if (s)
        return s == PICI_E_NOMEM ? nomem(j, "a small delta") : writer_failed(j, s);
    *len += more;
    return PICI_OK;
}

/* Whether a small delta of so many bytes pays: decides by the other delta of the n elements at j->from and j->to. */
static enum pici_status pays(struct job *j, size_t small, size_t n, enum pici_dtype dtype, bool *yes)
{
    const struct pici_opts opts = threads_of(j);
    const size_t cap = pici_bound(j->o.format, dtype, n);
    size_t len = 0;
    uint8_t *block = malloc(cap);
    if (!block)
        return nomem(j, "a delta to compare with");
    const enum pici_status s = pici_diff(block, cap, &len, j->from, j->to, n, dtype, j->o.format, &opts);
    free(block);
    *yes = small < len - len / 8;
    return s ? writer_failed(j, s) : PICI_OK;
}

/* A description for the writer, with attributes at attrs. Shares t's pointers. */
enum { ATTRS = 6 };
static struct pici_tensor describe(const struct state_tensor *t, struct pici_attr attrs[ATTRS], enum delta_kind kind)
{
    struct pici_tensor out = PICI_TENSOR_INIT;
    out.name = t->name;
    out.name_len = t->name_len;
    out.dtype = t->dtype;
    out.rank = t->rank;
    out.shape = t->shape;
    out.attrs = attrs;
    attrs[out.n_attrs++] = (struct pici_attr){STATE_DTYPE, t->dtype_text, strlen(t->dtype_text)};
    if (t->big_endian)
        attrs[out.n_attrs++] = (struct pici_attr){STATE_ENDIAN, "big", 3};
    if (t->fortran)
        attrs[out.n_attrs++] = (struct pici_attr){STATE_ORDER, "F", 1};
    const char *const word = pici_delta_kind_name(kind);
    attrs[out.n_attrs++] = (struct pici_attr){DELTA_KIND, word, strlen(word)};
    return out;
}

static enum pici_status write_tensor(struct job *j, const struct pici_tensor *t)
{
    const enum pici_status s = pici_writer_tensor(j->writer, t);
    return s ? writer_failed(j, s) : PICI_OK;
}

/* Describes the tensor of small deltas of a tensor, and writes it. */
static enum pici_status write_small(struct job *j, const struct state_tensor *t, size_t len)
{
    struct pici_attr attrs[ATTRS];
    uint8_t shape[8 * PICI_RANK_MAX];
    const uint64_t bytes = len;
    struct pici_tensor out = describe(t, attrs, DELTA_SMALL);
    for (unsigned i = 0; i < out.rank; i++)
        store_le64(shape + 8 * i, out.shape[i]);
    const char *const dtype = pici_dtype_name(t->dtype);
    attrs[out.n_attrs++] = (struct pici_attr){DELTA_DTYPE, dtype, strlen(dtype)};
    attrs[out.n_attrs++] = (struct pici_attr){DELTA_SHAPE, shape, 8 * out.rank};
    out.dtype = PICI_U8;
    out.rank = 1;
    out.shape = &bytes;
    enum pici_status s = write_tensor(j, &out);
    if (s)
        return s;
    s = pici_writer_data(j->writer, j->collected, len);
    return s ? writer_failed(j, s) : PICI_OK;
}

/* Writes a tensor as small deltas. *done: false if they do not pay; nothing has been written then. Whether they pay is
 * decided by the first piece that changed. Unchanged ones say nothing: their small deltas are XOR blocks too. So a
 * tensor that did not change at all is only written as XOR, which has fewer attributes, if it is one piece. */
static enum pici_status diff_small(struct job *j, const struct state_tensor *b, const struct state_tensor *t,
                                   struct pici_xxh64 hash[2], bool *done)
{
    bool decided = j->o.choice != PICI_DELTA_AUTO;
    size_t len = 0;
    *done = true;
    for (uint64_t at = 0, n; at < t->count; at += n) {
        const size_t before = len;
        n = t->count - at < DELTA_PIECE ? t->count - at : DELTA_PIECE;
        enum pici_status s = take_both(j, b, t, at * t->width, (size_t)n * t->width, hash);
        if (!s)
            s = collect(j, &len, (size_t)n, t->dtype);
        if (!s && !decided && (n == t->count || memcmp(j->from, j->to, (size_t)n * t->width) != 0)) {
            s = pays(j, len - before, (size_t)n, t->dtype, done);
            decided = true;
        }
        if (s || !*done)
            return s;
    }
    return write_small(j, t, len);
}

/* Writes a tensor as the XOR of both, or whole. */
static enum pici_status diff_whole(struct job *j, const struct state_tensor *b, const struct state_tensor *t,
                                   enum delta_kind kind, struct pici_xxh64 hash[2])
{
    struct pici_attr attrs[ATTRS];
    const struct pici_tensor out = describe(t, attrs, kind);
    enum pici_status s = write_tensor(j, &out);
    for (uint64_t at = 0; !s && at < t->bytes;) {
        const uint64_t left = t->bytes - at, most = j->piece * t->width;
        const size_t n = left < most ? (size_t)left : (size_t)most;
        s = take_both(j, kind == DELTA_XOR ? b : NULL, t, at, n, hash);
        if (s)
            return s;
        s = kind == DELTA_XOR ? pici_writer_diff(j->writer, j->from, j->to, n) : pici_writer_data(j->writer, j->to, n);
        if (s)
            return writer_failed(j, s);
        at += n;
    }
    return s;
}

static void hash_begin(struct pici_xxh64 hash[2])
{
    pici_xxh64_init(&hash[0], 0);
    pici_xxh64_init(&hash[1], 0);
}

static enum pici_status diff_tensor(struct job *j, size_t i)
{
    const struct state_tensor *t = &j->next->tensor[i], *b = pici_state_find(j->base, t->name, t->name_len);
    const enum delta_kind kind = !b ? DELTA_ADDED : alike(b, t) ? DELTA_XOR : DELTA_REPLACED;
    struct pici_xxh64 hash[2];
    bool done = false;
    enum pici_status s = PICI_OK;
    hash_begin(hash);
    if (may_be_small(j, t))
        s = diff_small(j, b, t, hash, &done);
    if (!s && !done) {
        hash_begin(hash);
        s = diff_whole(j, b, t, kind, hash);
    }
    j->table[2 * i] = kind == DELTA_XOR ? pici_xxh64_digest(&hash[0]) : 0;
    j->table[2 * i + 1] = pici_xxh64_digest(&hash[1]);
    j->done += t->bytes;
    return s;
}

/* Writes the last tensor, the table of hashes. */
static enum pici_status write_table(struct job *j)
{
    const uint64_t shape[] = {j->next->n, 2};
    size_t len = strlen(DELTA_HASHES);
    char *name = malloc(len + j->next->n + 1); /* each tensor may have one of the names */
    if (!name)
        return nomem(j, "the name of the table of hashes");
    memcpy(name, DELTA_HASHES, len);
    while (pici_state_find(j->next, name, len))
        name[len++] = '+';
    struct pici_tensor t = PICI_TENSOR_INIT;
    t.name = name;
    t.name_len = len;
    t.dtype = PICI_U64;
    t.rank = 2;
    t.shape = shape;
    enum pici_status s = write_tensor(j, &t);
    free(name);
    if (s)
        return s;
    s = pici_writer_data(j->writer, j->table, j->next->n * 2 * sizeof *j->table);
    return s ? writer_failed(j, s) : PICI_OK;
}

enum pici_status pici_diff_states(pici_write_fn write, void *ctx, struct pici_state *base, struct pici_state *next,
                                  const struct pici_diff_opts *opts, char *why)
{
    struct job j = {.o = PICI_DIFF_OPTS_INIT, .base = base, .next = next, .why = why};
    if (why)
        why[0] = 0;
    enum pici_status s = opts ? sized_read(&j.o, sizeof j.o, sizeof j.o, opts) : PICI_OK;
    if (s)
        return s;
    if (!write || !base || !next || base->type != next->type || j.o.threads < 0 || j.o.choice < PICI_DELTA_AUTO ||
        j.o.choice > PICI_DELTA_FASTEST || !pici_bound(j.o.format, PICI_U8, 1))
        return PICI_E_ARG;
    s = begin(&j, write, ctx);
    for (size_t i = 0; !s && i < next->n; i++)
        s = diff_tensor(&j, i);
    if (!s)
        s = write_table(&j);
    if (!s) {
        s = pici_writer_finish(j.writer);
        if (s)
            s = writer_failed(&j, s);
    }
    const int e = errno;
    pici_writer_close(j.writer);
    free(j.from);
    free(j.to);
    free(j.table);
    free(j.collected);
    errno = e;
    return s;
}
