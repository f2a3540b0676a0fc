/* SPDX-License-Identifier: BSD-3-Clause */
#include "stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll.h"

enum { REPEATS = 3 };

void stream_case_random(struct stream_case *c, struct rng *r, int p, uint64_t most_rows)
{
    static const struct pici_coll_opts defaults = PICI_COLL_OPTS_INIT;
    static const unsigned densities[] = {0, 10, 100, 1000, 10000, 50000, 300000, 900000};
    static const enum pici_collective kinds[] = {PICI_ALL_REDUCE, PICI_ALL_REDUCE, PICI_REDUCE_SCATTER, PICI_ALL_GATHER,
                                                 PICI_BROADCAST};
    *c = (struct stream_case){.collective = kinds[rng_below(r, 5)],
                              .dtype = (enum pici_dtype)(1 + rng_below(r, 14)),
                              .op = (enum pici_op)rng_below(r, 4),
                              .rows = rng_below(r, 4) ? rng_below(r, most_rows + 1) : rng_below(r, 20),
                              .run = rng_below(r, 3) ? 1 : 1 + rng_below(r, 9),
                              .root = (int)rng_below(r, (uint64_t)p),
                              .ppm = densities[rng_below(r, 8)],
                              .shuffled = rng_below(r, 3) == 0,
                              .index_width = rng_below(r, 2) ? 4 : 8,
                              .want = (enum pici_stream_form)rng_below(r, 3),
                              .starts = rng_below(r, 3) == 0,
                              .seed = rng_next(r),
                              .opts = defaults};
    if (rng_below(r, 3) == 0)
        c->dense = (unsigned)rng_next(r) & (unsigned)rng_next(r);
    if (rng_below(r, 3) == 0)
        c->ordinary = (unsigned)rng_next(r) & (unsigned)rng_next(r);
    if (rng_below(r, 4))
        c->opts.algorithm = coll_algorithm(rng_next(r), c->collective);
    if (rng_below(r, 3) == 0)
        c->opts.slice_bytes = 1 + rng_below(r, 100000);
    c->opts.window = (int)rng_below(r, 7);
    c->opts.checksum = rng_below(r, 4) == 0;
    static const enum pici_format formats[] = {PICI_AUTO, PICI_AUTO, PICI_COO, PICI_HYBRID, PICI_BITMAP, PICI_DENSE};
    c->opts.format = formats[rng_below(r, 6)];
    if (coll_is_gather(c->collective) && rng_below(r, 3) == 0)
        c->opts.zeros = PICI_ZEROS_BY_VALUE;
}

const char *stream_case_words(const struct stream_case *c, int p, char words[240])
{
    snprintf(
        words, 240,
        "collective %d %s op %d, %d ranks, %lu rows of %lu, %u ppm%s, dense %x, ordinary %x, form %d, algorithm %s, "
        "format %d, slice %lu, window %d, zeros %d, seed %lu",
        (int)c->collective, pici_dtype_name(c->dtype), (int)c->op, p, (unsigned long)c->rows, (unsigned long)c->run,
        c->ppm, c->shuffled ? " shuffled" : "", c->dense, c->ordinary, (int)c->want,
        pici_algorithm_name(c->opts.algorithm), (int)c->opts.format, (unsigned long)c->opts.slice_bytes, c->opts.window,
        (int)c->opts.zeros, (unsigned long)c->seed);
    return words;
}

/* A rank's list, and the vector that it stands for. */
struct list {
    uint64_t nnz;
    uint8_t *indices, *values, *dense;
};

static uint64_t load(const uint8_t *p, size_t width)
{
    uint8_t one;
    uint16_t two;
    uint32_t four;
    uint64_t eight;
    switch (width) {
    case 1: memcpy(&one, p, 1); return one;
    case 2: memcpy(&two, p, 2); return two;
    case 4: memcpy(&four, p, 4); return four;
    default: memcpy(&eight, p, 8); return eight;
    }
}

static void store(uint8_t *p, size_t width, uint64_t v)
{
    const uint8_t one = (uint8_t)v;
    const uint16_t two = (uint16_t)v;
    const uint32_t four = (uint32_t)v;
    switch (width) {
    case 1: memcpy(p, &one, 1); break;
    case 2: memcpy(p, &two, 2); break;
    case 4: memcpy(p, &four, 4); break;
    default: memcpy(p, &v, 8); break;
    }
}

/* The element at dst and what is listed for it again. */
static void add(uint8_t *dst, uint64_t value, enum pici_dtype dtype)
{
    const size_t width = pici_dtype_width(dtype);
    const uint64_t before = load(dst, width);
    if (value) /* pici_scatter_add adds no zeros */
        store(dst, width, coll_reduce(dtype, PICI_SUM, before, value));
}

static void append(struct list *l, const struct stream_case *c, uint64_t row, struct rng *r, uint8_t *listed)
{
    const size_t width = pici_dtype_width(c->dtype);
    store(l->indices + l->nnz * (size_t)c->index_width, (size_t)c->index_width, row);
    for (uint64_t i = 0; i < c->run; i++) {
        const uint64_t value = rng_below(r, 8) ? value_random(r, c->dtype) : 0;
        store(l->values + (l->nnz * c->run + i) * width, width, value);
        if (listed[row])
            add(l->dense + (row * c->run + i) * width, value, c->dtype);
        else
            store(l->dense + (row * c->run + i) * width, width, value);
    }
    listed[row] = 1;
    l->nnz++;
}

static void make(struct list *l, const struct stream_case *c, uint64_t rows, int rank)
{
    const size_t width = pici_dtype_width(c->dtype);
    struct rng r = {c->seed + (uint64_t)rank * 1000003};
    const unsigned ppm = c->ppm / (1 + (unsigned)rank % 3);
    const uint64_t most = rows * REPEATS + 1;
    uint8_t *listed = test_alloc(rows + 1);
    memset(listed, 0, rows + 1);
    l->nnz = 0;
    l->indices = test_alloc(most * 8);
    l->values = test_alloc(most * c->run * width);
    l->dense = test_alloc(rows * c->run * width + 1);
    memset(l->dense, 0, rows * c->run * width);
    if (!c->shuffled) {
        for (uint64_t row = 0; row < rows; row++)
            if (rng_chance(&r, ppm))
                append(l, c, row, &r, listed);
    } else {
        for (uint64_t i = 0; i < rows * REPEATS / 2; i++)
            if (rng_chance(&r, ppm))
                append(l, c, rng_below(&r, rows), &r, listed);
    }
    free(listed);
}

static enum pici_status dense_call(const struct stream_case *c, const void *send, void *recv, uint64_t count,
                                   struct pici_comm *comm)
{
    switch (c->collective) {
    case PICI_ALL_REDUCE: return pici_all_reduce(send, recv, count, c->dtype, c->op, comm, &c->opts);
    case PICI_REDUCE_SCATTER: return pici_reduce_scatter(send, recv, count, c->dtype, c->op, comm, &c->opts);
    case PICI_ALL_GATHER: return pici_all_gather(send, recv, count, c->dtype, comm, &c->opts);
    default: break;
    }
    if (send)
        memcpy(recv, send, count * pici_dtype_width(c->dtype));
    return pici_broadcast(recv, count, c->dtype, c->root, comm, &c->opts);
}

static enum pici_status stream_call(const struct stream_case *c, const struct pici_stream *in,
                                    struct pici_stream_out *out, struct pici_comm *comm)
{
    struct pici_request *request = NULL;
    enum pici_status status;
    if (!c->starts) {
        switch (c->collective) {
        case PICI_ALL_REDUCE: return pici_all_reduce_stream(in, out, c->dtype, c->op, comm, &c->opts);
        case PICI_REDUCE_SCATTER: return pici_reduce_scatter_stream(in, out, c->dtype, c->op, comm, &c->opts);
        case PICI_ALL_GATHER: return pici_all_gather_stream(in, out, c->dtype, comm, &c->opts);
        default: return pici_broadcast_stream(in, out, c->dtype, c->root, comm, &c->opts);
        }
    }
    switch (c->collective) {
    case PICI_ALL_REDUCE:
        status = pici_all_reduce_stream_start(in, out, c->dtype, c->op, comm, &c->opts, &request);
        break;
    case PICI_REDUCE_SCATTER:
        status = pici_reduce_scatter_stream_start(in, out, c->dtype, c->op, comm, &c->opts, &request);
        break;
    case PICI_ALL_GATHER: status = pici_all_gather_stream_start(in, out, c->dtype, comm, &c->opts, &request); break;
    default: status = pici_broadcast_stream_start(in, out, c->dtype, c->root, comm, &c->opts, &request); break;
    }
    return status ? status : pici_wait(&request);
}

/* Is a result of n elements what the dense call gave? */
static const char *judge(const struct stream_case *c, const struct pici_stream_out *out, const uint8_t *want,
                         uint64_t n, char said[240])
{
    const size_t width = pici_dtype_width(c->dtype);
    uint64_t rows = 0, last = 0;
    if (out->n != n || (c->want != PICI_STREAM_SHORTER && out->form != c->want))
        return "another length, or another form";
    if (out->form == PICI_STREAM_DENSE) {
        for (uint64_t i = 0; i < n * width; i++)
            if (((const uint8_t *)out->dense)[i] != want[i]) {
                snprintf(said, 240, "element %lu of the dense result differs", (unsigned long)(i / width));
                return said;
            }
        return NULL;
    }
    for (uint64_t row = 0; row < n / c->run; row++) {
        const uint8_t *elements = want + row * c->run * width;
        int any = 0;
        for (size_t i = 0; i < c->run * width; i++)
            any |= elements[i];
        if (!any)
            continue;
        const uint64_t index = rows < out->nnz ? load((const uint8_t *)out->indices + rows * (size_t)out->index_width,
                                                      (size_t)out->index_width)
                                               : UINT64_MAX;
        if (index != row || (rows && index <= last)) {
            snprintf(said, 240, "row %lu is missing: there is %ld", (unsigned long)row, (long)index);
            return said;
        }
        if (memcmp((const uint8_t *)out->values + rows * c->run * width, elements, c->run * width) != 0) {
            snprintf(said, 240, "the values of row %lu differ", (unsigned long)row);
            return said;
        }
        last = index;
        rows++;
    }
    return rows == out->nnz ? NULL : "more rows than there are";
}

const char *stream_check(const struct stream_case *c, struct pici_comm *comm, char said[240])
{
    const int rank = pici_comm_rank(comm), p = pici_comm_size(comm), root = c->collective == PICI_BROADCAST;
    const size_t width = pici_dtype_width(c->dtype);
    const uint64_t shares = c->collective == PICI_REDUCE_SCATTER ? (uint64_t)p : 1, rows = c->rows * shares,
                   count = c->rows * c->run, n = count * (c->collective == PICI_ALL_GATHER ? (uint64_t)p : 1);
    struct list list;
    struct pici_stream in = PICI_STREAM_INIT;
    struct pici_stream_out out = PICI_STREAM_OUT_INIT;
    uint8_t *want = test_alloc(n * width + 1), *again = test_alloc(n * width + 1);
    make(&list, c, rows, rank);
    memset(want, 0, n * width + 1);
    memset(again, 0, n * width + 1);
    const void *send = !root || rank == c->root ? list.dense : NULL;
    const char *wrong = NULL;
    enum pici_status status = dense_call(c, send, want, count, comm);
    if (!status && c->ordinary >> rank & 1) {
        status = dense_call(c, send, again, count, comm);
        if (!status && memcmp(want, again, n * width) != 0)
            wrong = "the dense call differs beside a stream";
    } else if (!status) {
        in.n = rows * c->run;
        in.run = c->run;
        in.index_width = c->index_width;
        out.want = c->want;
        out.run = c->run;
        if (c->dense >> rank & 1) {
            in.dense = list.dense;
        } else {
            in.nnz = list.nnz;
            in.indices = list.indices;
            in.values = list.values;
        }
        if (c->seed % 2 && c->want == PICI_STREAM_DENSE)
            out.dense = again;
        status = stream_call(c, &in, &out, comm);
        if (!status)
            wrong = judge(c, &out, want, n, said);
        if (!status && !wrong && c->seed % 2 && c->want == PICI_STREAM_DENSE && out.dense != again)
            wrong = "the dense result is elsewhere";
        pici_stream_free(&out);
    }
    if (status) {
        snprintf(said, 240, "%s: %s", pici_strerror(status), pici_comm_error(comm));
        wrong = said;
    }
    free(list.indices);
    free(list.values);
    free(list.dense);
    free(want);
    free(again);
    return wrong;
}
