/* SPDX-License-Identifier: BSD-3-Clause
 *
 * picitool apply. Each tensor of the last delta is traced back, through the earlier deltas, to where it is stored
 * whole. From there the later deltas are applied to it, a piece at a time. Before anything is written, the hashes in
 * the deltas show whether these belong together. The elements are hashed while they are processed. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attrs.h"
#include "delta.h"
#include "pici/delta.h"
#include "reading.h"
#include "result.h"
#include "tensors.h"
#include "term.h"
#include "xxh64.h"

enum { PIECE_MOST = 256 << 20, QUOTE = 96 };

/* One of the deltas. */
struct step {
    struct input in;
    struct reading r;
    struct delta d;
    struct delta_pieces pieces; /* of the tensor that is being made */
};

struct job {
    const struct tool_options *o;
    struct tensors base;
    struct step *step; /* [steps] */
    int steps;
    struct output out;
    struct progress progress;
    uint8_t *piece;
    size_t piece_cap;
    uint64_t *at;  /* [steps]: the trail */
    int *from;     /* [steps + 1]: descriptors of the deltas and the base */
    bool not_base; /* the base is not that of the first delta; why names the tensor */
    char why[256];
};

/* Where a tensor of the last result comes from: it is whole in the base or in step `first`. In step `first` and each
 * later one, its delta is tensor job.at[step]. */
struct trail {
    const struct tensor_at *base; /* or NULL */
    int first;
    struct pici_tensor_info t; /* of the last */
};

static const struct step *last(const struct job *j)
{
    return &j->step[j->steps - 1];
}

static int open_step(struct step *k, const char *path, const struct tool_options *o)
{
    bool is;
    int status = input_open(&k->in, path);
    if (status)
        return status;
    if (!k->in.regular)
        return tool_bad(k->in.name, "empty, or not a file that can be read at random");
    status = reading_open(&k->r, &k->in, o->threads, true);
    if (status)
        return status;
    status = reading_is_delta(&k->r, &is);
    if (status == TOOL_OK && !is)
        status = tool_bad(k->in.name, "not a delta: picitool decompress is for other .pici files");
    return status ? status : reading_delta(&k->r, &k->d);
}

/* Opens the base, as a file of the type that the first delta names. */
static int open_base(struct job *j)
{
    const struct step *first = &j->step[0];
    struct tool_options o = {.type = first->d.type};
    struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
    if (o.type == TYPE_RAW) { /* the dtype of the first tensor, "data", which always exists */
        enum pici_status s = delta_tensor(&first->d, first->r.reader, 0, &t);
        if (s)
            return reading_failed(&first->r, s);
        o.dtype = t.dtype;
    }
    return tensors_open(&j->base, j->o->args[0], &o);
}

/* ---- checks before anything is written */

__attribute__((format(printf, 3, 4))) static int not_base(struct job *j, const struct pici_tensor_info *t,
                                                          const char *what, ...)
{
    char name[QUOTE];
    va_list args;
    int n = snprintf(j->why, sizeof j->why, "not the base of %s: tensor '%s': ", j->step[0].in.name,
                     parse_printable(name, sizeof name, t->name, t->name_len));
    va_start(args, what);
    if (n > 0 && (size_t)n < sizeof j->why)
        vsnprintf(j->why + n, sizeof j->why - (size_t)n, what, args);
    va_end(args);
    j->not_base = true;
    return TOOL_BAD;
}

static bool same_shape(enum pici_dtype dtype, unsigned rank, const uint64_t *shape, const struct pici_tensor_info *t)
{
    return dtype == t->dtype && rank == t->rank && memcmp(shape, t->shape, rank * sizeof *shape) == 0;
}

/* Traces tensor i of the last result. */
static int trace(struct job *j, uint64_t i, struct trail *to)
{
    struct pici_tensor_info t = PICI_TENSOR_INFO_INIT, before = PICI_TENSOR_INFO_INIT;
    char name[QUOTE];
    int k = j->steps - 1;
    *to = (struct trail){.t = PICI_TENSOR_INFO_INIT};
    enum pici_status s = delta_tensor(&j->step[k].d, j->step[k].r.reader, i, &to->t);
    if (s)
        return reading_failed(&j->step[k].r, s);
    for (t = to->t, j->at[k] = i; delta_needs_base(j->step[k].d.kind[i]); t = before, j->at[--k] = i = before.index) {
        if (k == 0) {
            to->base = tensors_find(&j->base, t.name, t.name_len);
            if (!to->base)
                return not_base(j, &t, "the base has none");
            if (!same_shape(to->base->dtype, to->base->rank, to->base->shape, &t))
                return not_base(j, &t, "its type or shape differs");
            break;
        }
        s = pici_reader_find(j->step[k - 1].r.reader, t.name, t.name_len, &before);
        if (!s)
            s = delta_tensor(&j->step[k - 1].d, j->step[k - 1].r.reader, before.index, &before);
        if (s && s != PICI_E_ARG)
            return reading_failed(&j->step[k - 1].r, s);
        if (s || before.index >= j->step[k - 1].d.tensors || !same_shape(before.dtype, before.rank, before.shape, &t) ||
            j->step[k].d.hash[i].base != j->step[k - 1].d.hash[before.index].result)
            return tool_bad(j->step[k].in.name, "not a delta of the result of %s: tensor '%s' differs",
                            j->step[k - 1].in.name, parse_printable(name, sizeof name, t.name, t.name_len));
    }
    to->first = k;
    return TOOL_OK;
}

static int check(struct job *j)
{
    struct trail trail;
    int status = TOOL_OK;
    for (int k = 1; k < j->steps; k++)
        if (j->step[k].d.type != j->step[0].d.type)
            return tool_bad(j->step[k].in.name, "is a delta of type %s, but %s is of type %s",
                            tool_type_name(j->step[k].d.type), j->step[0].in.name, tool_type_name(j->step[0].d.type));
    for (uint64_t i = 0; status == TOOL_OK && i < last(j)->d.tensors; i++)
        status = trace(j, i, &trail);
    return status;
}

/* ---- making the result */

/* The hash of the base's tensor, of which `so_far` has the bytes before `from`, is not the one in the first delta. */
static int check_base(struct job *j, const struct trail *trail, uint64_t from, struct pici_xxh64 *so_far)
{
    uint8_t piece[1 << 16];
    const uint64_t want = j->step[0].d.hash[j->at[0]].base;
    for (uint64_t n; from < trail->base->bytes; from += n) {
        n = trail->base->bytes - from < sizeof piece ? trail->base->bytes - from : sizeof piece;
        int status = tensors_read(&j->base, trail->base, from, piece, (size_t)n);
        if (status)
            return status;
        pici_xxh64_update(so_far, piece, (size_t)n);
    }
    const uint64_t was = pici_xxh64_digest(so_far);
    return was == want ? TOOL_OK : not_base(j, &trail->t, "its XXH64 is %016" PRIx64 ", not %016" PRIx64, was, want);
}

/* Applies the next small delta of step k to n elements at job.piece. It may be found to be invalid since these are not
 * what it was made of: then says so, with base, the hash of the base's tensor up to byte `end`. */
static int apply_small(struct job *j, const struct trail *trail, int k, uint64_t n, uint64_t end,
                       struct pici_xxh64 *base)
{
    struct step *const step = &j->step[k];
    struct pici_opts opts = PICI_OPTS_INIT;
    char name[QUOTE];
    opts.threads = j->o->threads;
    enum pici_status s = delta_pieces_next(&step->pieces, trail->t.dtype, n);
    if (s && s != PICI_E_CORRUPT)
        return reading_failed(&step->r, s);
    if (!s)
        s = pici_apply_small(j->piece, n, step->pieces.delta, step->pieces.len, &opts);
    if (s == PICI_E_NOMEM)
        return tool_nomem(j->out.name, "a small delta");
    if (!s)
        return TOOL_OK;
    const int status = trail->base ? check_base(j, trail, end, base) : TOOL_OK;
    return status ? status
                  : tool_bad(step->in.name, "not a valid delta: the small deltas of tensor '%s' (delta-small)",
                             parse_printable(name, sizeof name, trail->t.name, trail->t.name_len));
}

/* Makes elements [from, from + n) of a tensor at job.piece, in host order. base: the hash of what is read of the
 * base. */
static int make_piece(struct job *j, const struct trail *trail, uint64_t from, uint64_t n, struct pici_xxh64 *base)
{
    const size_t width = pici_dtype_width(trail->t.dtype), bytes = (size_t)n * width;
    int k = trail->first;
    enum pici_status s = PICI_OK;
    if (trail->base) {
        int status = tensors_read(&j->base, trail->base, from * width, j->piece, bytes);
        if (status)
            return status;
        pici_xxh64_update(base, j->piece, bytes);
        tensor_swap(trail->base->big_endian, width, j->piece, bytes);
    } else {
        s = pici_reader_read_range(j->step[k].r.reader, j->at[k], from, n, j->piece);
        if (s)
            return reading_failed(&j->step[k].r, s);
        k++;
    }
    for (; k < j->steps; k++) {
        if (j->step[k].d.kind[j->at[k]] == DELTA_SMALL) {
            const int status = apply_small(j, trail, k, n, from * width + bytes, base);
            if (status)
                return status;
            continue;
        }
        s = pici_reader_apply_range(j->step[k].r.reader, j->at[k], from, n, j->piece);
        if (s)
            return reading_failed(&j->step[k].r, s);
    }
    return TOOL_OK;
}

/* Begins with the small deltas of a tensor. *most: the elements to make at a time, which are these deltas' if there are
 * some. */
static int begin_small(struct job *j, const struct trail *trail, uint64_t *most)
{
    for (int k = trail->first; k < j->steps; k++) {
        if (j->step[k].d.kind[j->at[k]] != DELTA_SMALL)
            continue;
        *most = DELTA_PIECE;
        const enum pici_status s = delta_pieces_begin(&j->step[k].pieces, j->step[k].r.reader, j->at[k]);
        if (s)
            return reading_failed(&j->step[k].r, s);
    }
    return TOOL_OK;
}

/* Whether all small deltas of the tensor have been used. */
static int end_small(const struct job *j, const struct trail *trail)
{
    char name[QUOTE];
    for (int k = trail->first; k < j->steps; k++)
        if (j->step[k].d.kind[j->at[k]] == DELTA_SMALL && !delta_pieces_done(&j->step[k].pieces))
            return tool_bad(j->step[k].in.name, "not a valid delta: tensor '%s' has bytes after its small deltas",
                            parse_printable(name, sizeof name, trail->t.name, trail->t.name_len));
    return TOOL_OK;
}

static int make_tensor(struct job *j, uint64_t i)
{
    struct trail trail;
    struct pici_xxh64 base, result;
    struct step *end = &j->step[j->steps - 1];
    bool big_endian; /* the byte order of the output */
    char name[QUOTE];
    int status = trace(j, i, &trail);
    if (status == TOOL_OK)
        status = reading_attr_is(&end->r, i, ATTR_ENDIAN, "big", &big_endian);
    if (status)
        return status;
    pici_xxh64_init(&base, 0);
    pici_xxh64_init(&result, 0);
    const size_t width = pici_dtype_width(trail.t.dtype);
    const uint64_t chunks = PIECE_MOST / width / trail.t.chunk_elements, threads = (uint64_t)end->r.threads;
    uint64_t most = trail.t.chunk_elements * (chunks < 1 ? 1 : chunks < threads ? chunks : threads);
    status = begin_small(j, &trail, &most);
    if (status)
        return status;
    for (uint64_t at = 0, n; at < trail.t.count; at += n) {
        n = trail.t.count - at < most ? trail.t.count - at : most;
        const size_t bytes = (size_t)n * width;
        if (bytes > j->piece_cap) {
            free(j->piece);
            j->piece = malloc(bytes);
            j->piece_cap = j->piece ? bytes : 0;
            if (!j->piece)
                return tool_nomem(j->out.name, "a piece of the result");
        }
        status = make_piece(j, &trail, at, n, &base);
        if (status)
            return status;
        tensor_swap(big_endian, width, j->piece, bytes);
        pici_xxh64_update(&result, j->piece, bytes);
        status = output_write(&j->out, j->piece, bytes);
        if (status)
            return status;
        progress_at(&j->progress, j->out.at, j->out.at);
    }
    const struct delta_hashes *want = &end->d.hash[i];
    const uint64_t is = pici_xxh64_digest(&result);
    if (trail.base)
        status = check_base(j, &trail, trail.base->bytes, &base);
    if (status == TOOL_OK)
        status = end_small(j, &trail);
    if (status)
        return status;
    if (is != want->result)
        return tool_bad(end->in.name, "the result of tensor '%s' has the XXH64 %016" PRIx64 ", not %016" PRIx64,
                        parse_printable(name, sizeof name, trail.t.name, trail.t.name_len), is, want->result);
    return TOOL_OK;
}

static int make(struct job *j)
{
    struct step *end = &j->step[j->steps - 1];
    struct pici_attr head;
    int status = reading_attr(&end->r, PICI_FILE, ATTR_HEAD, &head);
    if (status == TOOL_OK && head.key && head.len)
        status = output_write(&j->out, head.value, head.len);
    progress_start(&j->progress, j->base.in.name, j->base.in.bytes);
    for (uint64_t i = 0; status == TOOL_OK && i < end->d.tensors; i++)
        status = make_tensor(j, i);
    progress_end(&j->progress);
    return status;
}

/* Whether the base is the last result already. Prints nothing if it is not. */
static int is_result(struct job *j, bool *is)
{
    struct step *end = &j->step[j->steps - 1];
    struct pici_attr head;
    uint8_t piece[1 << 16];
    int status = reading_attr(&end->r, PICI_FILE, ATTR_HEAD, &head);
    *is = false;
    if (status || j->base.n != end->d.tensors || j->base.source.head_len != (head.key ? head.len : 0) ||
        (head.key && memcmp(j->base.source.head, head.value, head.len) != 0))
        return status;
    for (size_t i = 0; i < j->base.n; i++) {
        const struct tensor_at *t = &j->base.tensor[i];
        struct pici_xxh64 hash;
        pici_xxh64_init(&hash, 0);
        for (uint64_t at = 0, n; at < t->bytes; at += n) {
            n = t->bytes - at < sizeof piece ? t->bytes - at : sizeof piece;
            status = tensors_read(&j->base, t, at, piece, (size_t)n);
            if (status)
                return status;
            pici_xxh64_update(&hash, piece, (size_t)n);
        }
        if (pici_xxh64_digest(&hash) != end->d.hash[i].result)
            return TOOL_OK;
    }
    *is = true;
    return TOOL_OK;
}

/* The base is not that of the first delta, which is an error; but in place, it may be the result of an earlier run. */
static int another_base(struct job *j)
{
    bool is = false;
    int status = j->o->in_place ? is_result(j, &is) : TOOL_OK;
    if (status)
        return status;
    return is ? TOOL_OK : tool_bad(j->base.in.name, "%s", j->why);
}

static uint64_t delta_bytes(const struct job *j)
{
    uint64_t bytes = 0;
    for (int k = 0; k < j->steps; k++)
        bytes += j->step[k].in.bytes;
    return bytes;
}

/* Sets the limit of the result and checks the length that the index of the last delta gives. */
static int claim(struct job *j)
{
    const struct step *end = last(j);
    struct pici_attr head;
    enum pici_status s = pici_reader_attr(end->r.reader, PICI_FILE, ATTR_HEAD, &head);
    uint64_t bytes = !s && head.key ? head.len : 0;
    for (uint64_t i = 0; !s && i < end->d.tensors; i++) {
        struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
        s = delta_tensor(&end->d, end->r.reader, i, &t);
        const uint64_t more = s ? 0 : t.count * pici_dtype_width(t.dtype); /* below 2^63 */
        bytes = bytes <= UINT64_MAX - more ? bytes + more : UINT64_MAX;
    }
    if (s)
        return reading_failed(&end->r, s);
    j->out.limit = limit_of(j->o, delta_bytes(j), 2 * j->base.in.bytes);
    return output_claim(&j->out, end->in.name, bytes);
}

static int apply(struct job *j)
{
    const char *path = j->o->in_place ? j->o->args[0] : j->o->out;
    for (int k = 0; k < j->steps; k++) {
        if (input_is(&j->step[k].in, path))
            return tool_usage(path, "is one of the deltas");
        j->from[k] = j->step[k].in.fd;
    }
    j->from[j->steps] = j->base.in.fd;
    int status = check(j);
    if (status == TOOL_OK)
        status = j->o->in_place
                     ? output_open(&j->out, path, NULL, true)
                     : output_open_from(&j->out, path, &j->base.in, j->from, (size_t)j->steps + 1, j->o->force);
    if (status == TOOL_OK && !j->o->no_sparse)
        output_sparse(&j->out);
    const double start = term_now();
    if (status == TOOL_OK)
        status = claim(j);
    if (status == TOOL_OK)
        status = make(j);
    const double seconds = term_now() - start;
    if (j->not_base) {
        status = another_base(j);
    } else if (status == TOOL_OK) {
        status = output_commit(&j->out);
        if (status == TOOL_OK)
            result_print(last(j)->in.name, delta_bytes(j), &j->out, true, seconds);
    }
    output_discard(&j->out);
    return status;
}

int verb_apply(const struct tool_options *o)
{
    if (!o->out == !o->in_place)
        return tool_usage(NULL, "apply: needs either -o NEW or --in-place");
    struct job j = {.o = o, .steps = o->nargs - 1, .out.fd = -1, .base.in.fd = -1};
    j.step = calloc((size_t)j.steps, sizeof *j.step);
    j.at = calloc((size_t)j.steps, sizeof *j.at);
    j.from = calloc((size_t)j.steps + 1, sizeof *j.from);
    int status = j.step && j.at && j.from ? TOOL_OK : tool_nomem(o->args[0], "the list of deltas");
    for (int k = 0; status == TOOL_OK && k < j.steps; k++)
        status = open_step(&j.step[k], o->args[1 + k], o);
    if (status == TOOL_OK)
        status = open_base(&j);
    if (status == TOOL_OK)
        status = apply(&j);
    for (int k = 0; j.step && k < j.steps; k++) {
        delta_pieces_free(&j.step[k].pieces);
        delta_close(&j.step[k].d);
        reading_close(&j.step[k].r);
        input_close(&j.step[k].in);
    }
    tensors_close(&j.base);
    free(j.step);
    free(j.at);
    free(j.from);
    free(j.piece);
    return status;
}
