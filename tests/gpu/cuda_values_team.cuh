/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives with lossy codecs on buffers in a GPU's memory, beside the same ones in the host's: results, residuals
 * and what was lost, bit for bit. Random rounding depends on the number of the call, so there is one team of ranks for
 * the host and one for the GPU, and both make the same calls. */
#ifndef PICI_TESTS_CUDA_VALUES_TEAM_CUH
#define PICI_TESTS_CUDA_VALUES_TEAM_CUH

#include "cuda_team.cuh"

#include <math.h>

extern "C" {
#include "tests/util/coll.h"
#include "tests/util/coll_values.h"
}

static inline enum pici_status start(const struct values_case *c, const struct pici_coll_opts *o, void *send,
                                     void *recv, struct pici_comm *comm, struct pici_request **r)
{
    switch (c->collective) {
    case PICI_ALL_GATHER: return pici_all_gather_start(send, recv, c->count, c->dtype, comm, o, r);
    case PICI_REDUCE_SCATTER: return pici_reduce_scatter_start(send, recv, c->count, c->dtype, c->op, comm, o, r);
    default: return pici_all_reduce_start(send, recv, c->count, c->dtype, c->op, comm, o, r);
    }
}

/* A rank's buffers, and on a GPU what they are copied to. */
struct rank {
    struct values_rank at;
    uint8_t *send, *recv, *residual, *pinned; /* send: NULL, or what is sent is a part of recv */
    size_t sends, receives, room;             /* bytes; room: of recv */
};

static inline void make(struct rank *k, const struct values_case *c, int rank, int p, bool gpu)
{
    const size_t width = pici_dtype_width(c->dtype);
    *k = {};
    values_rank_make(&k->at, c, rank, p);
    k->sends = (size_t)k->at.sends * width;
    k->receives = (size_t)k->at.receives * width;
    k->room = k->sends > k->receives ? k->sends : k->receives;
    if (!gpu)
        return;
    cudaMallocHost((void **)&k->pinned, 2 * k->sends + k->room + 1);
    cudaMalloc((void **)&k->recv, k->room + 1);
    if (!c->in_place)
        cudaMalloc((void **)&k->send, k->sends + 1);
    if (c->residual)
        cudaMalloc((void **)&k->residual, k->sends + 1);
}

/* Copy the buffers to the GPU, in the stream's order, or from there. */
static inline void copy(struct rank *k, cudaStream_t s, bool back)
{
    uint8_t *const pinned[] = {k->pinned, k->pinned + k->sends, k->pinned + 2 * k->sends};
    uint8_t *const gpu[] = {k->send, k->residual, k->recv}, *const host[] = {k->at.send, k->at.residual, k->at.recv};
    const size_t bytes[] = {k->sends, k->sends, k->room};
    for (int i = 0; i < 3; i++) {
        if (!gpu[i])
            continue;
        if (!back)
            memcpy(pinned[i], host[i], bytes[i]);
        cudaMemcpyAsync(back ? pinned[i] : gpu[i], back ? gpu[i] : pinned[i], bytes[i], cudaMemcpyDefault, s);
        if (!back)
            continue;
        cudaStreamSynchronize(s);
        memcpy(host[i], pinned[i], bytes[i]);
    }
}

static inline void drop(struct rank *k)
{
    cudaFree(k->send);
    cudaFree(k->recv);
    cudaFree(k->residual);
    if (k->pinned)
        cudaFreeHost(k->pinned);
    values_rank_free(&k->at);
}

/* Make a call, on the GPU or on the host. */
static inline std::vector<enum pici_status> call(const team &t, std::vector<struct rank> &all,
                                                 const struct values_case *c, bool gpu)
{
    static const struct pici_coll_stats none = PICI_COLL_STATS_INIT;
    const size_t p = t.comms.size();
    std::vector<struct pici_request *> requests(p);
    all.resize(p);
    for (size_t i = 0; i < p; i++) {
        struct rank *k = &all[i];
        struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
        struct pici_values values = c->values;
        t.turn_to(i);
        make(k, c, (int)i, (int)p, gpu);
        const size_t own = i * (size_t)c->count * pici_dtype_width(c->dtype);
        uint8_t *recv = gpu ? k->recv : k->at.recv, *send = gpu ? k->send : k->at.apart;
        if (c->in_place)
            send = recv + (c->collective == PICI_ALL_GATHER ? own : 0);
        if (c->in_place && c->collective == PICI_REDUCE_SCATTER)
            recv += own;
        k->at.stats = none;
        values.residual = gpu ? k->residual : k->at.residual;
        o.algorithm = c->algorithm;
        o.format = c->format;
        o.slice_bytes = 1;
        o.window = c->window;
        o.timeout_ms = c->timeout_ms;
        o.stats = &k->at.stats;
        o.values = c->exact ? NULL : &values;
        if (gpu) {
            dawdle(t.streams[i]);
            copy(k, t.streams[i], false);
        }
        const enum pici_status s = start(c, &o, send, recv, t.comms[i], &requests[i]);
        if (s)
            return std::vector<enum pici_status>(p, s);
    }
    const std::vector<enum pici_status> status = drive(requests, t.devices);
    for (size_t i = 0; i < p && gpu; i++) {
        t.turn_to(i);
        copy(&all[i], t.streams[i], true);
    }
    t.turn_to(0);
    return status;
}

/* How many elements differ: of NaNs the sign may, which infinity minus infinity has from the CPU. */
static inline size_t differ(const uint8_t *a, const uint8_t *b, size_t bytes, enum pici_dtype dtype)
{
    const size_t width = pici_dtype_width(dtype);
    size_t n = 0;
    for (size_t at = 0; at < bytes; at += width)
        n += memcmp(a + at, b + at, width) != 0 && !(is_nan(a + at, dtype) && is_nan(b + at, dtype));
    return n;
}

static inline void same(const struct rank *got, const struct rank *want, const struct values_case *c, const char *words,
                        int i)
{
    const struct pici_coll_stats *a = &got->at.stats, *b = &want->at.stats;
    const size_t results = differ(got->at.recv, want->at.recv, want->room, c->dtype);
    const size_t rests = c->residual ? differ(got->at.residual, want->at.residual, want->sends, c->dtype) : 0;
    tally(results == 0 && rests == 0, "%s: rank %d: %zu results and %zu of the residual are not the host's", words, i,
          results, rests);
    tally(a->events == b->events && a->nonfinite == b->nonfinite && a->dense_bytes == b->dense_bytes,
          "%s: rank %d: events %llu, not %llu; nonfinite %llu, not %llu", words, i, (unsigned long long)a->events,
          (unsigned long long)b->events, (unsigned long long)a->nonfinite, (unsigned long long)b->nonfinite);
    tally(fabs(a->lost - b->lost) <= 1e-9 * b->lost || (isinf(a->lost) && isinf(b->lost)),
          "%s: rank %d: lost %.17g, not %.17g", words, i, a->lost, b->lost);
}

static inline void compare(const team &host, const team &gpu, const struct values_case *c)
{
    const int p = (int)host.comms.size();
    char words[300];
    std::vector<struct rank> want, got;
    snprintf(words, sizeof words, "%s", values_words(c, p));
    const std::vector<enum pici_status> there = call(host, want, c, false), here = call(gpu, got, c, true);
    for (int i = 0; i < p; i++) {
        const size_t k = (size_t)i;
        tally(there[k] == PICI_OK && here[k] == PICI_OK, "%s: rank %d: %s, on the host %s (%s)", words, i,
              pici_strerror(here[k]), pici_strerror(there[k]), pici_comm_error(gpu.comms[k]));
        if (!there[k] && !here[k])
            same(&got[k], &want[k], c, words, i);
        drop(&want[k]);
        drop(&got[k]);
    }
    tally(cudaGetLastError() == cudaSuccess, "%s: after it: an error of CUDA", words);
}

/* Casts and QSGD; not ZFP, which needs the host. */
static inline int codecs(void)
{
    enum pici_dtype dtype;
    int n = 0;
    while (n < values_codecs() && values_codec(n, &dtype).codec != PICI_VALUES_ZFP)
        n++;
    return n;
}

/* A case of this codec; what else it has goes by the seed. */
static inline struct values_case some_case(int codec, int p)
{
    static const enum pici_collective kinds[] = {PICI_ALL_REDUCE, PICI_REDUCE_SCATTER, PICI_ALL_GATHER};
    static const enum pici_format formats[] = {PICI_AUTO, PICI_DENSE, PICI_BITMAP, PICI_COO, PICI_HYBRID};
    const uint64_t counts[] = {0, 1, (uint64_t)p - 1, 700, 4097, 9001};
    struct values_case c = {};
    c.values = values_codec(codec, &c.dtype);
    c.values.phases = (unsigned)rng_below(&rng, 4);
    c.collective = kinds[rng_below(&rng, 5) % 3];
    c.algorithm = coll_algorithm(rng_next(&rng), c.collective);
    const bool any = c.values.codec == PICI_VALUES_CAST;
    c.op = (enum pici_op)rng_below(&rng, any ? 4 : 2);
    c.count = counts[rng_below(&rng, 8) < 5 ? 3 + rng_below(&rng, 3) : rng_below(&rng, 6)];
    c.data = (enum values_data)rng_below(&rng, DATA_KINDS);
    c.seed = rng_next(&rng) % 10000;
    c.format = formats[rng_below(&rng, 5)];
    c.window = 1 + (int)rng_below(&rng, 3);
    c.in_place = (int)rng_below(&rng, 2);
    c.residual = rng_below(&rng, 3) != 0;
    return c;
}

/* Ranks of both teams share nodes as this says. */
static inline void set_nodes(const team &host, const team &gpu, const std::vector<int> &node_of)
{
    for (size_t i = 0; i < node_of.size(); i++)
        tally(pici_comm_set_nodes(host.comms[i], node_of.data()) == PICI_OK &&
                  pici_comm_set_nodes(gpu.comms[i], node_of.data()) == PICI_OK,
              "nodes");
}

/* So many cases. stride: how many ranks share a node, or how many nodes there are. */
static inline void some_cases(const team &gpu, int stride, bool shared, int cases, unsigned *turn)
{
    const int p = (int)gpu.comms.size();
    const team host(p, true);
    std::vector<int> node_of;
    for (int i = 0; i < p; i++)
        node_of.push_back(shared ? i / stride : i % stride);
    set_nodes(host, gpu, node_of);
    for (int i = 0; i < cases; i++, ++*turn) {
        const struct values_case c = some_case((int)*turn % codecs(), p);
        compare(host, gpu, &c);
    }
}

#endif
