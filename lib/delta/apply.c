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
    struct delta d;
    struct delta_pieces pieces; /* of the tensor that is being made */
};

struct pici_deltas {
    struct step *step; /* [n] */
    size_t n;
    uint64_t *at; /* [n]: the trail: in each delta the number of the tensor that is being made */
};

struct job {
    struct pici_apply_opts o;
    struct pici_state *base;
    struct pici_deltas *deltas;
    pici_write_fn write;
    void *ctx;
    char *why;
    uint64_t written;
    uint8_t *piece;
    size_t piece_cap;
};

/* Where a tensor of the last result comes from: it is whole in the base or in step `first`. In step `first` and each
 * later one, its delta is tensor deltas->at[step]. */
struct trail {
    const struct state_tensor *base; /* or NULL */
    size_t first;
    struct pici_tensor_info t; /* of the last */
};

static struct step *last(const struct pici_deltas *d)
{
    return &d->step[d->n - 1];
}

static const char *quoted(char out[PICI_QUOTE_CAP], const struct pici_tensor_info *t)
{
    return pici_quote(out, t->name, t->name_len);
}

static enum pici_status reader_failed(const struct step *k, enum pici_status s, char *why)
{
    return pici_why(why, s, k->name, "%s", pici_reader_error(k->reader));
}

/* ---- the row */

enum pici_status pici_deltas_new(struct pici_deltas **d)
{
    if (!d)
        return PICI_E_ARG;
    *d = calloc(1, sizeof **d);
    return *d ? PICI_OK : PICI_E_NOMEM;
}

enum pici_status pici_deltas_add(struct pici_deltas *d, struct pici_reader *r, const char *name, char *why)
{
    char what[PICI_WHY_BYTES];
    bool is = false;
    if (why)
        why[0] = 0;
    if (!d || !r || !name)
        return PICI_E_ARG;
    struct step *const steps = realloc(d->step, (d->n + 1) * sizeof *steps);
    if (steps)
        d->step = steps;
    uint64_t *const at = realloc(d->at, (d->n + 1) * sizeof *at);
    if (at)
        d->at = at;
    char *const copy = strdup(name);
    if (!steps || !at || !copy) {
        free(copy);
        return pici_why(why, PICI_E_NOMEM, name, "out of memory for the list of deltas");
    }
    struct step *const k = &d->step[d->n++];
    *k = (struct step){.reader = r, .name = copy};
    enum pici_status s = pici_delta_is(r, &is);
    if (!s && !is)
        return pici_why(why, PICI_E_CORRUPT, name, "not a delta");
    if (!s) {
        s = pici_delta_open(&k->d, r, what);
        if (s && what[0])
            return pici_why(why, s, name, "%s", what);
    }
    return s ? reader_failed(k, s, why) : PICI_OK;
}

void pici_deltas_free(struct pici_deltas *d)
{
    if (!d)
        return;
    for (size_t k = 0; k < d->n; k++) {
        pici_delta_pieces_free(&d->step[k].pieces);
        pici_delta_close(&d->step[k].d);
        free(d->step[k].name);
    }
    free(d->step);
    free(d->at);
    free(d);
}

enum pici_status pici_deltas_get_info(struct pici_deltas *d, struct pici_deltas_info *info)
{
    struct pici_deltas_info is = PICI_DELTAS_INFO_INIT;
    struct pici_attr head;
    if (!d || !d->n || !info)
        return PICI_E_ARG;
    const struct step *const end = last(d);
    enum pici_status s = pici_reader_attr(end->reader, PICI_FILE, STATE_HEAD, &head);
    if (s)
        return s;
    is.type = d->step[0].d.type;
    is.tensors = end->d.tensors;
    is.head = head.key ? head.value : NULL;
    is.head_len = head.key ? head.len : 0;
    is.bytes = is.head_len;
    if (d->step[0].d.tensors) {
        struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
        s = pici_delta_tensor(&d->step[0].d, d->step[0].reader, 0, &t);
        is.dtype = t.dtype;
    }
    for (uint64_t i = 0; !s && i < end->d.tensors; i++) {
        struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
        s = pici_delta_tensor(&end->d, end->reader, i, &t);
        const uint64_t more = s ? 0 : t.count * pici_dtype_width(t.dtype); /* below 2^63 */
        is.bytes = is.bytes <= UINT64_MAX - more ? is.bytes + more : UINT64_MAX;
    }
    return s ? s : sized_write(info, &is, sizeof is, sizeof is);
}

/* ---- which tensors the deltas lead through */

/* The base is not what the first delta was made from: its tensor shows it. */
__attribute__((format(printf, 3, 4))) static enum pici_status not_base(const struct job *j,
                                                                       const struct pici_tensor_info *t,
                                                                       const char *what, ...)
{
    char name[PICI_QUOTE_CAP], text[PICI_WHY_BYTES];
    va_list args;
    va_start(args, what);
    vsnprintf(text, sizeof text, what, args);
    va_end(args);
    return pici_why(j->why, PICI_E_ARG, j->base->name, "not the base of %s: tensor %s: %s", j->deltas->step[0].name,
                    quoted(name, t), text);
}

static bool same_shape(enum pici_dtype dtype, unsigned rank, const uint64_t *shape, const struct pici_tensor_info *t)
{
    return dtype == t->dtype && rank == t->rank && (!rank || memcmp(shape, t->shape, rank * sizeof *shape) == 0);
}

/* Traces tensor i of the last result. */
static enum pici_status trace(struct job *j, uint64_t i, struct trail *to)
{
    struct pici_tensor_info t = PICI_TENSOR_INFO_INIT, before = PICI_TENSOR_INFO_INIT;
    struct pici_deltas *const d = j->deltas;
    char name[PICI_QUOTE_CAP];
    size_t k = d->n - 1;
    *to = (struct trail){.t = PICI_TENSOR_INFO_INIT};
    enum pici_status s = pici_delta_tensor(&d->step[k].d, d->step[k].reader, i, &to->t);
    if (s)
        return reader_failed(&d->step[k], s, j->why);
    for (t = to->t, d->at[k] = i; delta_needs_base(d->step[k].d.kind[i]); t = before, d->at[--k] = i = before.index) {
        if (k == 0) {
            to->base = pici_state_find(j->base, t.name, t.name_len);
            if (!to->base)
                return not_base(j, &t, "the base has none");
            if (!same_shape(to->base->dtype, to->base->rank, to->base->shape, &t))
                return not_base(j, &t, "its type or shape differs");
            break;
        }
        const struct step *const from = &d->step[k - 1];
        s = pici_reader_find(from->reader, t.name, t.name_len, &before);
        if (!s)
            s = pici_delta_tensor(&from->d, from->reader, before.index, &before);
        if (s && s != PICI_E_ARG)
            return reader_failed(from, s, j->why);
        if (s || before.index >= from->d.tensors || !same_shape(before.dtype, before.rank, before.shape, &t) ||
            d->step[k].d.hash[i].base != from->d.hash[before.index].result)
            return pici_why(j->why, PICI_E_CORRUPT, d->step[k].name,
                            "not a delta of the result of %s: tensor %s differs", from->name, quoted(name, &t));
    }
    to->first = k;
    return PICI_OK;
}

static enum pici_status check(struct job *j)
{
    const struct step *const step = j->deltas->step;
    struct trail trail;
    enum pici_status s = PICI_OK;
    for (size_t k = 1; k < j->deltas->n; k++)
        if (step[k].d.type != step[0].d.type)
            return pici_why(j->why, PICI_E_CORRUPT, step[k].name, "is a delta of type %s, but %s is of type %s",
                            pici_state_type_name(step[k].d.type), step[0].name, pici_state_type_name(step[0].d.type));
    if (j->base->type != step[0].d.type)
        return pici_why(j->why, PICI_E_ARG, j->base->name, "not the base of %s: of type %s, not %s", step[0].name,
                        pici_state_type_name(j->base->type), pici_state_type_name(step[0].d.type));
    for (uint64_t i = 0; !s && i < last(j->deltas)->d.tensors; i++)
        s = trace(j, i, &trail);
    return s;
}

/* ---- making the result */

/* The hash of the base's tensor, of which `so_far` has the bytes before `from`, must be the one in the first delta. */
static enum pici_status check_base(struct job *j, const struct trail *trail, uint64_t from, struct pici_xxh64 *so_far)
{
    uint8_t piece[HASH_PIECE];
    const uint64_t want = j->deltas->step[0].d.hash[j->deltas->at[0]].base;
    for (uint64_t n; from < trail->base->bytes; from += n) {
        n = trail->base->bytes - from < sizeof piece ? trail->base->bytes - from : sizeof piece;
        const enum pici_status s = pici_state_read(j->base, trail->base, from, piece, (size_t)n, j->why);
        if (s)
            return s;
        pici_xxh64_update(so_far, piece, (size_t)n);
    }
    const uint64_t was = pici_xxh64_digest(so_far);
    return was == want ? PICI_OK : not_base(j, &trail->t, "its XXH64 is %016" PRIx64 ", not %016" PRIx64, was, want);
}

/* Applies the next small delta of step k to n elements at job.piece. It may be found to be invalid since these are not
 * what it was made of: then says so, with base, the hash of the base's tensor up to byte `end`. */
static enum pici_status apply_small(struct job *j, const struct trail *trail, size_t k, uint64_t n, uint64_t end,
                                    struct pici_xxh64 *base)
{
    struct step *const step = &j->deltas->step[k];
    struct pici_opts opts = PICI_OPTS_INIT;
    char name[PICI_QUOTE_CAP];
    opts.threads = j->o.threads;
    enum pici_status s = pici_delta_pieces_next(&step->pieces, trail->t.dtype, n);
    if (s == PICI_E_NOMEM)
        return pici_why(j->why, s, step->name, "out of memory for a small delta");
    if (s && s != PICI_E_CORRUPT)
        return reader_failed(step, s, j->why);
    if (!s)
        s = pici_apply_small(j->piece, n, step->pieces.delta, step->pieces.len, &opts);
    if (!s)
        return PICI_OK;
    if (s == PICI_E_NOMEM)
        return pici_why(j->why, s, step->name, "out of memory for a small delta");
    s = trail->base ? check_base(j, trail, end, base) : PICI_OK;
    return s ? s
             : pici_why(j->why, PICI_E_CORRUPT, step->name,
                        "not a valid delta: the small deltas of tensor %s (delta-small)", quoted(name, &trail->t));
}

/* Makes elements [from, from + n) of a tensor at job.piece, in host order. base: the hash of what is read of the
 * base. */
static enum pici_status make_piece(struct job *j, const struct trail *trail, uint64_t from, uint64_t n,
                                   struct pici_xxh64 *base)
{
    const size_t width = pici_dtype_width(trail->t.dtype), bytes = (size_t)n * width;
    const struct pici_deltas *const d = j->deltas;
    size_t k = trail->first;
    enum pici_status s;
    if (trail->base) {
        s = pici_state_read(j->base, trail->base, from * width, j->piece, bytes, j->why);
        if (s)
            return s;
        pici_xxh64_update(base, j->piece, bytes);
        pici_state_swap(trail->base->big_endian, width, j->piece, bytes);
    } else {
        s = pici_reader_read_range(d->step[k].reader, d->at[k], from, n, j->piece);
        if (s)
            return reader_failed(&d->step[k], s, j->why);
        k++;
    }
    for (; k < d->n; k++) {
        if (d->step[k].d.kind[d->at[k]] == DELTA_SMALL) {
            s = apply_small(j, trail, k, n, from * width + bytes, base);
            if (s)
                return s;
            continue;
        }
        s = pici_reader_apply_range(d->step[k].reader, d->at[k], from, n, j->piece);
        if (s)
            return reader_failed(&d->step[k], s, j->why);
    }
    return PICI_OK;
}

/* Begins with the small deltas of a tensor. *most: the elements to make at a time, which are these deltas' if there are
 * some. */
static enum pici_status begin_small(struct job *j, const struct trail *trail, uint64_t *most)
{
    const struct pici_deltas *const d = j->deltas;
    for (size_t k = trail->first; k < d->n; k++) {
        if (d->step[k].d.kind[d->at[k]] != DELTA_SMALL)
            continue;
        *most = DELTA_PIECE;
        const enum pici_status s = pici_delta_pieces_begin(&d->step[k].pieces, d->step[k].reader, d->at[k]);
        if (s)
            return reader_failed(&d->step[k], s, j->why);
    }
    return PICI_OK;
}

/* Whether all small deltas of the tensor have been used. */
static enum pici_status end_small(const struct job *j, const struct trail *trail)
{
    const struct pici_deltas *const d = j->deltas;
    char name[PICI_QUOTE_CAP];
    for (size_t k = trail->first; k < d->n; k++)
        if (d->step[k].d.kind[d->at[k]] == DELTA_SMALL && !pici_delta_pieces_done(&d->step[k].pieces))
            return pici_why(j->why, PICI_E_CORRUPT, d->step[k].name,
                            "not a valid delta: tensor %s has bytes after its small deltas", quoted(name, &trail->t));
    return PICI_OK;
}

static enum pici_status write_out(struct job *j, const void *p, size_t n)
{
    char text[128];
    const int e = n ? j->write(j->ctx, p, n) : 0;
    if (e) {
        errno = e;
        return pici_why(j->why, PICI_E_IO, last(j->deltas)->name, "the result: %s",
                        pici_errno_text(e, text, sizeof text));
    }
    j->written += n;
    if (j->o.progress)
        j->o.progress(j->o.progress_ctx, j->written);
    return PICI_OK;
}

static enum pici_status room_for(struct job *j, size_t bytes)
{
    if (bytes <= j->piece_cap)
        return PICI_OK;
    free(j->piece);
    j->piece = malloc(bytes);
    j->piece_cap = j->piece ? bytes : 0;
    return j->piece ? PICI_OK
                    : pici_why(j->why, PICI_E_NOMEM, last(j->deltas)->name, "out of memory for a piece of the result");
}

/* Makes the elements of a tensor and writes them. base, result: hashes of what is read and written. */
static enum pici_status make_elements(struct job *j, const struct trail *trail, bool big_endian,
                                      struct pici_xxh64 *base, struct pici_xxh64 *result)
{
    const size_t width = pici_dtype_width(trail->t.dtype);
    const uint64_t chunks = PIECE_MOST / width / trail->t.chunk_elements;
    const uint64_t threads = (uint64_t)pici_delta_threads(j->o.threads);
    uint64_t most = trail->t.chunk_elements * (chunks < 1 ? 1 : chunks < threads ? chunks : threads);
    enum pici_status s = begin_small(j, trail, &most);
    for (uint64_t at = 0, n; at < trail->t.count && !s; at += n) {
        n = trail->t.count - at < most ? trail->t.count - at : most;
        const size_t bytes = (size_t)n * width;
        s = room_for(j, bytes);
        if (!s)
            s = make_piece(j, trail, at, n, base);
        if (s)
            return s;
        pici_state_swap(big_endian, width, j->piece, bytes);
        pici_xxh64_update(result, j->piece, bytes);
        s = write_out(j, j->piece, bytes);
    }
    return s;
}

static enum pici_status make_tensor(struct job *j, uint64_t i)
{
    struct trail trail;
    struct pici_xxh64 base, result;
    struct pici_attr endian; /* the byte order of the output */
    const struct step *const end = last(j->deltas);
    char name[PICI_QUOTE_CAP];
    enum pici_status s = trace(j, i, &trail);
    if (s)
        return s;
    s = pici_reader_attr(end->reader, i, STATE_ENDIAN, &endian);
    if (s)
        return reader_failed(end, s, j->why);
    const bool big_endian = endian.key && endian.len == 3 && memcmp(endian.value, "big", 3) == 0;
    pici_xxh64_init(&base, 0);
    pici_xxh64_init(&result, 0);
    s = make_elements(j, &trail, big_endian, &base, &result);
    if (!s && trail.base)
        s = check_base(j, &trail, trail.base->bytes, &base);
    if (!s)
        s = end_small(j, &trail);
    if (s)
        return s;
    const uint64_t is = pici_xxh64_digest(&result), want = end->d.hash[i].result;
    if (is != want)
        return pici_why(j->why, PICI_E_CORRUPT, end->name,
                        "the result of tensor %s has the XXH64 %016" PRIx64 ", not %016" PRIx64, quoted(name, &trail.t),
                        is, want);
    return PICI_OK;
}

enum pici_status pici_apply_deltas(pici_write_fn write, void *ctx, struct pici_state *base, struct pici_deltas *d,
                                   const struct pici_apply_opts *opts, char *why)
{
    struct job j = {PICI_APPLY_OPTS_INIT, base, d, write, ctx, why, 0, NULL, 0};
    struct pici_attr head;
    if (why)
        why[0] = 0;
    enum pici_status s = opts ? sized_read(&j.o, sizeof j.o, sizeof j.o, opts) : PICI_OK;
    if (s)
        return s;
    if (!write || !base || !d || !d->n || j.o.threads < 0)
        return PICI_E_ARG;
    s = check(&j);
    if (s)
        return s;
    s = pici_reader_attr(last(d)->reader, PICI_FILE, STATE_HEAD, &head);
    s = s ? reader_failed(last(d), s, why) : head.key ? write_out(&j, head.value, head.len) : PICI_OK;
    for (uint64_t i = 0; !s && i < last(d)->d.tensors; i++)
        s = make_tensor(&j, i);
    const int e = errno;
    free(j.piece);
    errno = e;
    return s;
}

enum pici_status pici_deltas_is_result(struct pici_deltas *d, struct pici_state *state, int *is, char *why)
{
    struct pici_attr head;
    uint8_t piece[HASH_PIECE];
    if (why)
        why[0] = 0;
    if (!d || !d->n || !state || !is)
        return PICI_E_ARG;
    *is = 0;
    const struct step *const end = last(d);
    enum pici_status s = pici_reader_attr(end->reader, PICI_FILE, STATE_HEAD, &head);
    if (s)
        return reader_failed(end, s, why);
    if (state->type != end->d.type || state->n != end->d.tensors || state->head_len != (head.key ? head.len : 0) ||
        (head.key && head.len && memcmp(state->head, head.value, head.len) != 0))
        return PICI_OK;
    for (size_t i = 0; i < state->n; i++) {
        const struct state_tensor *t = &state->tensor[i];
        struct pici_xxh64 hash;
        pici_xxh64_init(&hash, 0);
        for (uint64_t at = 0, n; at < t->bytes; at += n) {
            n = t->bytes - at < sizeof piece ? t->bytes - at : sizeof piece;
            s = pici_state_read(state, t, at, piece, (size_t)n, why);
            if (s)
                return s;
            pici_xxh64_update(&hash, piece, (size_t)n);
        }
        if (pici_xxh64_digest(&hash) != end->d.hash[i].result)
            return PICI_OK;
    }
    *is = 1;
    return PICI_OK;
}
