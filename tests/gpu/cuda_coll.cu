/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Compare collectives on buffers in GPU memory with collectives in host memory, bit for bit. The ranks are in this
 * process, over the threads' transport, with messages in GPU memory and in pinned memory. One thread drives all ranks
 * by turns, so that over the emulator a seed decides which rank and which stream gets on. */
#include "cuda_team.cuh"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

extern "C" {
#include "tests/util/coll.h"
#include "transport/thread.h"
}

enum {
    PAST = 16, /* bytes behind a buffer, which must stay as they are */
    MOST_RANKS = 17
};

struct coll {
    enum pici_collective kind;
    enum pici_dtype dtype;
    enum pici_op op;
    uint64_t count; /* the caller's */
    int root;
    uint64_t counts[2 * MOST_RANKS]; /* of all_gatherv; of all_to_allv from rank r to i: counts[r + i] */
    enum pattern pattern;
    uint32_t negative; /* of a million zeros of floats, so many are -0.0 */
    bool in_place;
    struct pici_coll_opts opts;
};

/* Elements of send and of recv. */
static uint64_t sent(const struct coll *c, int ranks, int rank)
{
    switch (c->kind) {
    case PICI_REDUCE_SCATTER: return c->count * (uint64_t)ranks;
    case PICI_ALL_GATHERV: return c->counts[rank];
    case PICI_ALL_TO_ALLV: return std::accumulate(c->counts + rank, c->counts + rank + ranks, (uint64_t)0);
    default: return c->count;
    }
}

static uint64_t received(const struct coll *c, int ranks, int rank)
{
    switch (c->kind) {
    case PICI_ALL_TO_ALLV: return sent(c, ranks, rank);
    case PICI_ALL_GATHER: return c->count * (uint64_t)ranks;
    case PICI_ALL_GATHERV: return std::accumulate(c->counts, c->counts + ranks, (uint64_t)0);
    default: return c->count;
    }
}

static bool gathers(const struct coll *c)
{
    return c->kind == PICI_ALL_GATHER || c->kind == PICI_ALL_GATHERV;
}

static enum pici_status start(const struct coll *c, int rank, const void *send, void *recv, struct pici_comm *comm,
                              struct pici_request **r)
{
    switch (c->kind) {
    case PICI_BROADCAST: return pici_broadcast_start(recv, c->count, c->dtype, c->root, comm, &c->opts, r);
    case PICI_ALL_GATHERV:
        return pici_all_gatherv_start(send, c->counts[rank], recv, c->counts, NULL, c->dtype, comm, &c->opts, r);
    case PICI_ALL_TO_ALLV:
        return pici_all_to_allv_start(send, c->counts + rank, NULL, recv, c->counts + rank, NULL, c->dtype, comm,
                                      &c->opts, r);
    case PICI_ALL_GATHER: return pici_all_gather_start(send, recv, c->count, c->dtype, comm, &c->opts, r);
    case PICI_REDUCE_SCATTER:
        return pici_reduce_scatter_start(send, recv, c->count, c->dtype, c->op, comm, &c->opts, r);
    default: return pici_all_reduce_start(send, recv, c->count, c->dtype, c->op, comm, &c->opts, r);
    }
}

/* One rank's elements, where the call wants them: in one piece of memory if in place. */
struct place {
    size_t send_at, recv_at, bytes;
};

static struct place place_of(const struct coll *c, int ranks, int rank)
{
    const size_t width = pici_dtype_width(c->dtype), send = (size_t)sent(c, ranks, rank) * width,
                 recv = (size_t)received(c, ranks, rank) * width;
    const uint64_t before = c->kind == PICI_ALL_GATHERV ? std::accumulate(c->counts, c->counts + rank, (uint64_t)0)
                                                        : (uint64_t)rank * c->count;
    const size_t own = (size_t)before * width;
    struct place p = {0, align16(send), align16(send) + recv};
    if (c->in_place) {
        p.bytes = send > recv ? send : recv;
        p.send_at = gathers(c) ? own : 0;
        p.recv_at = c->kind == PICI_REDUCE_SCATTER ? own : 0;
    }
    return p;
}

/* Are these the same bytes? But for the sign of infinity minus infinity, which is the host's own there. */
static bool same(const uint8_t *got, const uint8_t *want, const struct coll *c, const struct place *p, uint64_t n)
{
    const size_t width = pici_dtype_width(c->dtype), end = p->recv_at + (size_t)n * width;
    if (memcmp(got, want, p->recv_at) != 0 || memcmp(got + end, want + end, p->bytes + PAST - end) != 0)
        return false;
    for (size_t at = p->recv_at; at < end; at += width)
        if (memcmp(got + at, want + at, width) != 0 && !(is_nan(got + at, c->dtype) && is_nan(want + at, c->dtype)))
            return false;
    return true;
}

/* A call on the host, then on the GPU; memory reaches the GPU by way of each rank's stream, which nobody waits for. */
static void compare(const team &t, const struct coll *c, const char *what)
{
    const int ranks = (int)t.comms.size();
    std::vector<std::vector<uint8_t>> host;
    std::vector<uint8_t *> dev, pinned;
    std::vector<struct pici_request *> requests((size_t)ranks);
#ifdef PICI_DEVICE_HW
    static unsigned calls;
    emu::watch_races(calls++ % 8 == 0); /* which takes time; cuda_codec and cuda_reduce do more */
#endif
    for (int i = 0; i < ranks; i++) {
        const struct place p = place_of(c, ranks, i);
        uint8_t *d, *h;
        host.emplace_back(p.bytes + PAST, (uint8_t)0x3c);
        pattern_fill(host.back().data() + p.send_at, sent(c, ranks, i), c->dtype, c->pattern, &rng);
        zeros_negate(host.back().data() + p.send_at, sent(c, ranks, i), c->dtype, c->negative, &rng);
        cudaMalloc((void **)&d, p.bytes + PAST);
        cudaMallocHost((void **)&h, p.bytes + PAST);
        memcpy(h, host.back().data(), p.bytes + PAST);
        dev.push_back(d);
        pinned.push_back(h);
    }
    for (int i = 0; i < ranks; i++) {
        const struct place p = place_of(c, ranks, i);
        uint8_t *at = host[(size_t)i].data();
        start(c, i, at + p.send_at, at + p.recv_at, t.comms[(size_t)i], &requests[(size_t)i]);
    }
    for (enum pici_status s : drive(requests))
        tally(s == PICI_OK, "%s: on the host: %s", what, pici_strerror(s));
    for (int i = 0; i < ranks; i++) {
        const struct place p = place_of(c, ranks, i);
        uint8_t *at = dev[(size_t)i];
        dawdle(t.streams[(size_t)i]);
        cudaMemcpyAsync(at, pinned[(size_t)i], p.bytes + PAST, cudaMemcpyHostToDevice, t.streams[(size_t)i]);
        start(c, i, at + p.send_at, at + p.recv_at, t.comms[(size_t)i], &requests[(size_t)i]);
    }
    const std::vector<enum pici_status> status = drive(requests);
    for (int i = 0; i < ranks; i++) {
        const struct place p = place_of(c, ranks, i);
        tally(!c->count || !received(c, ranks, i) || cudaStreamQuery(t.streams[(size_t)i]) == cudaSuccess,
              "%s: rank %d of %d: kind %d %s: ended before what the stream was given first", what, i, ranks,
              (int)c->kind, c->in_place ? "in place" : "");
        cudaMemcpyAsync(pinned[(size_t)i], dev[(size_t)i], p.bytes + PAST, cudaMemcpyDeviceToHost,
                        t.streams[(size_t)i]);
        cudaStreamSynchronize(t.streams[(size_t)i]);
        tally(status[(size_t)i] == PICI_OK, "%s: rank %d of %d: %s (%s)", what, i, ranks,
              pici_strerror(status[(size_t)i]), pici_comm_error(t.comms[(size_t)i]));
        tally(same(pinned[(size_t)i], host[(size_t)i].data(), c, &p, received(c, ranks, i)),
              "%s: rank %d of %d: kind %d %s op %d count %llu %s: not the host's bytes", what, i, ranks, (int)c->kind,
              pici_dtype_name(c->dtype), (int)c->op, (unsigned long long)c->count, c->in_place ? "in place" : "");
        cudaFree(dev[(size_t)i]);
        cudaFreeHost(pinned[(size_t)i]);
    }
    const cudaError_t e = cudaGetLastError();
    tally(e == cudaSuccess, "%s: %s", what, cudaGetErrorString(e));
}

static struct coll some_case(int ranks)
{
    static const enum pici_dtype dtypes[] = {PICI_F32, PICI_BF16,   PICI_F64, PICI_I32,
                                             PICI_F16, PICI_F8E4M3, PICI_U8,  PICI_I64};
    static const enum pattern patterns[] = {PATTERN_ZERO, PATTERN_FULL, PATTERN_1,
                                            PATTERN_30,   PATTERN_90,   PATTERN_TILES};
    static const enum pici_format formats[] = {PICI_AUTO, PICI_AUTO, PICI_DENSE, PICI_BITMAP, PICI_COO, PICI_HYBRID};
    static const uint64_t counts[] = {0, 1, 3, 100, 4096, 4097, 9000, 20000};
    struct coll c = {};
    const struct pici_coll_opts defaults = PICI_COLL_OPTS_INIT;
    c.kind = coll_collectives[rng_below(&rng, COLL_COLLECTIVES)];
    c.dtype = dtypes[rng_below(&rng, 2) ? rng_below(&rng, 4) : rng_below(&rng, 8)];
    c.op = (enum pici_op)rng_below(&rng, 4);
    c.count = counts[rng_below(&rng, 8)];
    c.pattern = patterns[rng_below(&rng, 6)];
    c.negative = rng_below(&rng, 2) ? 500000 : 0;
    c.root = (int)rng_below(&rng, (uint64_t)ranks);
    for (uint64_t &n : c.counts)
        n = rng_below(&rng, 2) ? c.count : counts[rng_below(&rng, 7)];
    c.in_place = rng_below(&rng, 2) || c.kind == PICI_BROADCAST;
    c.opts = defaults;
    c.opts.algorithm =
        rng_below(&rng, 4) ? coll_algorithm(rng_below(&rng, (uint64_t)coll_algorithms()), c.kind) : PICI_ALGO_AUTO;
    c.opts.format = formats[rng_below(&rng, 6)];
    c.opts.zeros = (gathers(&c) || c.kind == PICI_BROADCAST) && c.negative ? PICI_ZEROS_BY_VALUE : PICI_ZEROS_EXACT;
    c.opts.slice_bytes = rng_below(&rng, 3) ? 1 : 100000;
    c.opts.window = (int)rng_below(&rng, 5);
    if (rng_below(&rng, 3) == 0)
        c.opts.inter_threshold = c.opts.intra_threshold = c.opts.ag_threshold = 0;
    return c;
}

static void all_kinds(void)
{
    static const int ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 17};
    for (int p : ranks)
        for (int direct = 0; direct < 2; direct++) {
            const int cases = thorough ? 200 : p < 6 ? 10 : 3;
            team t(p, direct);
            for (int i = 0; i < cases; i++) {
                const struct coll c = some_case(p);
                compare(t, &c, direct ? "direct" : "through the host");
            }
        }
}

/* Runs of several lengths, some of them of nothing, pairwise and by node. */
static void all_to_all(void)
{
    static const int ranks[] = {1, 2, 3, 4, 5, 7, 12};
    for (int p : ranks)
        for (int way = 0; way < 4; way++) {
            team t(p, way % 2);
            int node_of[MOST_RANKS];
            for (int r = 0; r < p; r++)
                node_of[r] = way < 2 || r == p - 1 ? 0 : r % 2;
            for (struct pici_comm *comm : t.comms)
                tally(pici_comm_set_nodes(comm, node_of) == PICI_OK, "nodes");
            for (int i = 0; i < (thorough ? 40 : 3); i++) {
                struct coll c = some_case(p);
                c.kind = PICI_ALL_TO_ALLV;
                c.in_place = false;
                c.opts.algorithm = PICI_ALGO_AUTO;
                c.opts.zeros = PICI_ZEROS_EXACT;
                std::copy(c.counts, c.counts + p, c.counts + p);
                compare(t, &c, way < 2 ? "pairwise" : "by node");
            }
        }
}

/* Buffers on the device, [ranks] of so many bytes, zero. */
class buffers {
  public:
    buffers(size_t n, size_t bytes) : at(n)
    {
        for (void *&p : at) {
            cudaMalloc(&p, bytes);
            cudaMemsetAsync(p, 0, bytes, stream);
        }
        cudaStreamSynchronize(stream);
    }
    ~buffers()
    {
        for (void *p : at)
            cudaFree(p);
    }
    buffers(const buffers &) = delete;
    std::vector<void *> at;
};

/* All ranks call all-reduce on a buffer each; rank 0 with these options and with its buffer moved by so
 * many bytes. */
static std::vector<enum pici_status> reduce(team &t, const std::vector<void *> &at, uint64_t count, size_t skew,
                                            const struct pici_coll_opts *opts)
{
    std::vector<struct pici_request *> requests(t.comms.size());
    for (size_t i = 0; i < requests.size(); i++) {
        uint8_t *p = (uint8_t *)at[i] + (i ? 0 : skew);
        enum pici_status s =
            pici_all_reduce_start(p, p, count, PICI_F32, PICI_SUM, t.comms[i], i ? NULL : opts, &requests[i]);
        if (s)
            return std::vector<enum pici_status>(requests.size(), s);
    }
    return drive(requests);
}

static void refused(const char *what, const std::vector<enum pici_status> &status, enum pici_status want)
{
    for (enum pici_status s : status)
        tally(s == want, "%s: %s", what, pici_strerror(s));
}

/* A sum of data with -0.0 among its zeros sends as many bytes as one without. */
static void bytes_sent(void)
{
    enum { N = 20000 };
    for (int direct = 0; direct < 2; direct++) {
        uint64_t bytes[2] = {0};
        for (unsigned negative = 0; negative < 2; negative++) {
            team t(2, direct);
            buffers b(2, N * 4);
            std::vector<uint32_t> host(N);
            struct pici_coll_stats stats = PICI_COLL_STATS_INIT;
            struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
            o.stats = &stats;
            for (size_t i = 0; i < N; i++)
                host[i] = i % 50 == 0 ? 0x3f800000 + (uint32_t)i : negative && i % 2 ? 0x80000000 : 0;
            for (void *p : b.at)
                cudaMemcpy(p, host.data(), N * 4, cudaMemcpyHostToDevice);
            refused("a sum with -0.0", reduce(t, b.at, N, 0, &o), PICI_OK);
            cudaMemcpy(host.data(), b.at[0], N * 4, cudaMemcpyDeviceToHost);
            size_t wrong = 0;
            for (size_t i = 0; i < N; i++)
                wrong += i % 50 ? host[i] != 0 : host[i] != 0x40000000 + (uint32_t)i;
            tally(wrong == 0, "a sum with -0.0: %zu wrong elements", wrong);
            bytes[negative] = stats.wire_bytes;
        }
        tally(bytes[0] == bytes[1], "a sum with -0.0 sends %zu bytes, not %zu", (size_t)bytes[1], (size_t)bytes[0]);
    }
}

/* What a rank cannot do, all ranks hear of. */
static void errors(void)
{
    enum { N = 5000 };
    buffers b(3, N * 4 + 8);
    struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
    uint8_t memory[64];
    {
        team t(3, true);
        refused("misaligned", reduce(t, b.at, N, 2, NULL), PICI_E_ARG);
        refused("afterwards", reduce(t, b.at, N, 0, NULL), PICI_E_BROKEN);
    }
    {
        team t(3, true);
        o.checksum = 1;
        refused("checksum", reduce(t, b.at, N, 0, &o), PICI_E_UNSUPPORTED);
        o.checksum = 0;
    }
    {
        team t(3, true);
        o.scratch = memory;
        o.scratch_bytes = sizeof memory;
        refused("scratch", reduce(t, b.at, N, 0, &o), PICI_E_UNSUPPORTED);
    }
    {
        team t(3, true);
        std::vector<float> host(N);
        std::vector<struct pici_request *> requests(3);
        for (size_t i = 0; i < 3; i++)
            pici_all_reduce_start(i ? b.at[i] : host.data(), b.at[i], N, PICI_F32, PICI_SUM, t.comms[i], NULL,
                                  &requests[i]);
        refused("one buffer here, one there", drive(requests), PICI_E_ARG);
    }
    int devices = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 1) {
        team t(3, true);
        std::vector<void *> at = b.at;
        cudaSetDevice(1);
        cudaMalloc(&at[0], N * 4);
        cudaSetDevice(0);
        refused("another GPU's memory", reduce(t, at, N, 0, NULL), PICI_E_ARG);
        cudaFree(at[0]);
    } else {
        printf("skip: memory of another GPU: there is one\n");
    }
    tally(pici_comm_cuda(NULL, NULL) == PICI_E_ARG, "no communicator");
    tally(cudaGetLastError() == cudaSuccess, "after errors");
}

/* From the middle of a call on, the current device is not the communicator's. A failed launch gives the runtime's error
 * text, and does not leave that error to the program. */
static void other_device(void)
{
    enum { N = 5000 };
    team t(2, true);
    buffers b(2, N * 4);
    std::vector<struct pici_request *> requests(2);
    struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
    int done;
    o.format = PICI_BITMAP;
    o.inter_threshold = o.intra_threshold = o.ag_threshold = 0;
    for (size_t i = 0; i < 2; i++)
        pici_all_reduce_start(b.at[i], b.at[i], N, PICI_F32, PICI_SUM, t.comms[i], &o, &requests[i]);
    for (struct pici_request *&r : requests) /* rank 0 waits for the other's word then */
        tally(pici_test(&r, &done) == PICI_OK && !done, "a call begins");
    if (cudaSetDevice(1) == cudaSuccess) {
        refused("another device", drive(requests), PICI_E_DEVICE);
        cudaSetDevice(0);
        tally(strstr(pici_comm_error(t.comms[0]), "encoding: ") != NULL, "words: %s", pici_comm_error(t.comms[0]));
    } else {
        (void)cudaGetLastError();
        refused("one device", drive(requests), PICI_OK);
    }
    tally(cudaGetLastError() == cudaSuccess, "after another device");
}

/* One rank has its elements in the host's memory, the others theirs in the GPU's; and two calls are in flight. */
static void mixed(void)
{
    enum { N = 9001 };
    for (int direct = 0; direct < 2; direct++) {
        team t(3, direct);
        buffers b(3, N * 4), more(3, N * 4);
        std::vector<uint32_t> host(N), got(N);
        uint32_t *pinned;
        cudaMallocHost((void **)&pinned, N * 4);
        for (size_t i = 0; i < N; i++)
            host[i] = pinned[i] = i % 7 ? 0 : (uint32_t)i;
        std::vector<struct pici_request *> first(3), second(3);
        for (size_t i = 0; i < 3; i++) {
            void *p = i ? b.at[i] : host.data();
            if (i)
                cudaMemcpyAsync(p, pinned, N * 4, cudaMemcpyHostToDevice, t.streams[i]);
            pici_all_reduce_start(p, p, N, PICI_U32, PICI_SUM, t.comms[i], NULL, &first[i]);
            cudaMemcpyAsync(more.at[i], pinned, N * 4, cudaMemcpyHostToDevice, t.streams[i]);
            pici_all_reduce_start(more.at[i], more.at[i], N, PICI_U32, PICI_MAX, t.comms[i], NULL, &second[i]);
        }
        refused("mixed", drive(first), PICI_OK);
        refused("the second in flight", drive(second), PICI_OK);
        for (size_t i = 0; i < 3; i++) {
            if (i)
                cudaMemcpy(host.data(), b.at[i], N * 4, cudaMemcpyDeviceToHost);
            cudaMemcpy(got.data(), more.at[i], N * 4, cudaMemcpyDeviceToHost);
            bool sums = true, maxima = true;
            for (size_t k = 0; k < N; k++) {
                sums &= host[k] == 3 * pinned[k];
                maxima &= got[k] == pinned[k];
            }
            tally(sums && maxima, "mixed: rank %zu", i);
        }
        cudaFreeHost(pinned);
        tally(cudaGetLastError() == cudaSuccess, "after mixed");
    }
}

/* A thread a rank, which waits in its call; and a rank that comes late, or never. */
static void threads(void)
{
    enum { N = 9001, RANKS = 3 };
    for (int direct = 0; direct < 2; direct++)
        for (int late = 0; late < 3; late++) {
            team t(RANKS, direct);
            buffers b(RANKS, N * 4);
            std::vector<std::thread> ranks;
            std::vector<enum pici_status> status(RANKS, PICI_OK);
            struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
            o.slice_bytes = 1;
            o.timeout_ms = late == 2 ? 200 : 60000;
            std::vector<uint32_t> host(N);
            for (size_t i = 0; i < N; i++)
                host[i] = i % 9 ? 0 : (uint32_t)i;
            for (void *p : b.at)
                cudaMemcpy(p, host.data(), N * 4, cudaMemcpyHostToDevice);
            for (size_t i = 0; i < RANKS; i++)
                ranks.emplace_back([&, i] {
                    if (i == 0 && late)
                        std::this_thread::sleep_for(std::chrono::milliseconds(50));
                    if (i == 0 && late == 2)
                        return;
                    status[i] = pici_all_reduce(b.at[i], b.at[i], N, PICI_U32, PICI_SUM, t.comms[i], &o);
                });
            for (std::thread &rank : ranks)
                rank.join();
            for (size_t i = late == 2; i < RANKS; i++) {
                std::vector<uint32_t> got(N);
                tally(status[i] == (late == 2 ? PICI_E_TIMEOUT : PICI_OK), "threads, late %d: %s", late,
                      pici_strerror(status[i]));
                cudaMemcpy(got.data(), b.at[i], N * 4, cudaMemcpyDeviceToHost);
                bool good = true;
                for (size_t k = 0; k < N; k++)
                    good &= late == 2 || got[k] == RANKS * host[k];
                tally(good, "threads: rank %zu", i);
            }
            tally(cudaGetLastError() == cudaSuccess, "after threads");
        }
}

/* A communicator is freed while its work is under way. */
static void freed(void)
{
    enum { N = 30000, RANKS = 2 };
    for (unsigned steps = 0; steps < 60; steps += 4) {
        team t(RANKS, steps % 8 == 0);
        buffers b(RANKS, N * 4);
        std::vector<struct pici_request *> requests(RANKS);
        struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
        o.slice_bytes = 1;
        o.format = PICI_HYBRID;
        for (size_t i = 0; i < RANKS; i++)
            pici_all_reduce_start(b.at[i], b.at[i], N, PICI_F32, PICI_SUM, t.comms[i], &o, &requests[i]);
        for (unsigned k = 0; k < steps; k++) {
            int done;
            tally(pici_test(&requests[k % RANKS], &done) == PICI_OK, "before it is freed");
        }
        bool ended = !requests[0];
        pici_comm_free(t.comms[0]);
        t.comms[0] = NULL;
        tally(pici_wait(&requests[0]) == (ended ? PICI_OK : PICI_E_BROKEN), "freed");
        const enum pici_status s = pici_wait(&requests[1]);
        tally(ended || s == PICI_E_PEER || s == PICI_OK, "the peer of one that is gone: %s", pici_strerror(s));
        tally(cudaGetLastError() == cudaSuccess, "after one was freed: %s", cudaGetErrorString(cudaPeekAtLastError()));
    }
}

/* Messages are damaged on their way. Every rank ends, with an error or with the sum. The emulator or the GPU's checkers
 * verify that nothing else is touched. */
static void damaged(void)
{
    enum { N = 20000, RANKS = 3 };
    unsigned fine = 0, failed_calls = 0;
    for (uint64_t seed = 0; seed < (thorough ? 300 : 40); seed++) {
        struct pici_transport transports[RANKS];
        struct pici_thread_faults faults = {};
        faults.seed = seed;
        faults.flip = 0.02;
        faults.truncate = seed % 3 ? 0 : 0.02;
        tally(pici_transport_threads(transports, RANKS) == PICI_OK, "transports");
        pici_transport_threads_faults(&transports[0], &faults);
        buffers b(RANKS, N * 2);
        uint16_t *pinned;
        cudaMallocHost((void **)&pinned, N * 2);
        pattern_fill(pinned, N, PICI_BF16, seed & 1 ? PATTERN_1 : PATTERN_30, &rng);
        std::vector<struct pici_comm *> comms(RANKS);
        std::vector<struct pici_request *> requests(RANKS);
        struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
        o.slice_bytes = 1;
        o.timeout_ms = 2000;
        o.format = (enum pici_format)(1 + seed % 3);
        o.algorithm = coll_algorithm(seed / 4, PICI_ALL_REDUCE);
        for (size_t i = 0; i < RANKS; i++) {
            cudaMemcpy(b.at[i], pinned, N * 2, cudaMemcpyHostToDevice);
            tally(pici_comm_transport(&comms[i], &transports[i]) == PICI_OK, "communicator");
            tally(pici_comm_cuda(comms[i], NULL) == PICI_OK, "pici_comm_cuda");
            comms[i]->transport.memory = PICI_MEMORY_HOST;
            pici_all_reduce_start(b.at[i], b.at[i], N, PICI_BF16, PICI_SUM, comms[i], &o, &requests[i]);
        }
        for (enum pici_status s : drive(requests)) {
            fine += s == PICI_OK;
            failed_calls += s != PICI_OK;
            tally(s == PICI_OK || s == PICI_E_CORRUPT || s == PICI_E_VERSION || s == PICI_E_UNSUPPORTED ||
                      s == PICI_E_PEER || s == PICI_E_TIMEOUT || s == PICI_E_CHECKSUM,
                  "damaged: %s", pici_strerror(s));
        }
        for (struct pici_comm *comm : comms)
            pici_comm_free(comm);
        cudaFreeHost(pinned);
    }
    tally(fine && failed_calls, "damaged: %u calls fine, %u failed", fine, failed_calls);
    printf("damaged messages: %u calls fine, %u failed\n", fine, failed_calls);
    tally(cudaGetLastError() == cudaSuccess, "after damage: %s", cudaGetErrorString(cudaPeekAtLastError()));
}

/* Another thread captures a stream into a graph, in the mode that forbids all threads what would end that. On a GPU
 * that thread is this one, and the ranks' another. */
static void captured(void)
{
    enum { N = 20000, RANKS = 3 };
    for (int direct = 0; direct < 2; direct++) {
        buffers b(RANKS, N * 4);
        std::vector<enum pici_status> status;
        const auto call = [&] {
            team t(RANKS, direct);
            for (uint64_t n : {(uint64_t)N / 10, (uint64_t)N}) /* memory grows */
                status = reduce(t, b.at, n, 0, NULL);
        };
#ifdef PICI_DEVICE_HW
        emu::captured_elsewhere(true);
        call();
        emu::captured_elsewhere(false);
#else
        cudaStream_t s;
        cudaGraph_t graph;
        cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
        cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
        cudaMemsetAsync(b.at[0], 0, 4, s);
        std::thread(call).join();
        const cudaError_t e = cudaStreamEndCapture(s, &graph);
        tally(e == cudaSuccess, "a capture during collectives: %s", cudaGetErrorString(e));
        if (!e)
            cudaGraphDestroy(graph);
        cudaStreamDestroy(s);
#endif
        refused("while another thread captures", status, PICI_OK);
        tally(cudaGetLastError() == cudaSuccess, "after a capture: %s", cudaGetErrorString(cudaPeekAtLastError()));
    }
}

int main(int argc, char **argv)
{
    thorough = on_gpu && !(argc > 1 && strcmp(argv[1], "--quick") == 0);
    rng.state = argc > 1 && argv[1][0] != '-' ? strtoull(argv[1], NULL, 0) : 1;
    if (!device_begin())
        return 77;
#ifdef PICI_DEVICE_HW
    emu::seed(rng.state);
    emu::defer(rng.state);
#endif
    all_kinds();
    all_to_all();
    bytes_sent();
    errors();
    other_device();
    mixed();
    threads();
    freed();
    captured();
    damaged();
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
