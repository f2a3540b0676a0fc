/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport over NCCL, over a fake of it: one thread drives all ranks through the steps of collectives, in an order
 * that a seed decides, and every byte arrives. Steps have one message a rank each way, several, or none. The last line
 * is "N passed, N failed".
 *     emu_nccl [--quick]      a third of the messages' orders, half of the collectives */
#include <stdlib.h>
#include <string.h>

#include <numeric>
#include <string>

#include "emu_parties.h"

struct traffic {
    std::vector<stage> stages;
    int ranks;
    uint64_t seed;
    bool announced; /* with receives and sends, else each message is a step of its own */
};

static int window_of(const traffic &f)
{
    int most = 1;
    for (const auto &s : f.stages)
        most = std::max(most, s.window);
    return most;
}

/* ---- traffic ---- */

/* What a rank sends to another in a step, known on both sides. */
struct message {
    struct rng rng;
    size_t bytes;
};

static message message_of(const traffic &f, int from, int to, size_t k, bool data)
{
    static const size_t some[] = {0, 1, 8, 136, ON_HOST, CAP - 1, CAP};
    message m = {{f.seed ^ (uint64_t)from << 48 ^ (uint64_t)to << 40 ^ (uint64_t)k << 16}, 0};
    const size_t most = data ? CAP : ON_HOST, n = some[rng_below(&m.rng, sizeof some / sizeof *some)];
    m.bytes = rng_chance(&m.rng, 400000) || n > most ? (size_t)rng_below(&m.rng, most + 1) : n;
    return m;
}

static void fill(std::vector<uint8_t> &to, message m)
{
    to.resize(m.bytes);
    for (auto &b : to)
        b = (uint8_t)rng_next(&m.rng);
}

/* Where the bytes of this side are: short ones of data now and then in host memory. */
static uint8_t *place(party &p, const traffic &f, size_t k, int peer, size_t bytes, bool sends, bool &on_host)
{
    const size_t window = (size_t)window_of(f);
    const size_t slot = (k % window + (sends ? 0 : window)) * (size_t)f.ranks + (size_t)peer;
    struct rng rng = {f.seed + 1000 * k + (uint64_t)p.t.rank * 2 + (uint64_t)peer * 500 + sends};
    on_host = !p.steps[k].data || (bytes <= ON_HOST && rng_chance(&rng, 200000));
    return on_host ? p.host.data() + slot * ON_HOST : p.device + slot * CAP;
}

/* Post the next receive, or announce those of the next step. */
static bool post(party &p, const traffic &f, struct rng *rng)
{
    const size_t k = p.posted;
    if (k == p.steps.size() || k - p.taken >= (size_t)p.steps[k].window)
        return false;
    const std::vector<int> &from = p.steps[k].from;
    if (f.announced && !p.announced_receives)
        p.t.receives(p.t.context, (int)from.size());
    p.announced_receives = true;
    if (p.recvs[k].size() < from.size()) {
        bool on_host;
        const int peer = from[p.recvs[k].size()];
        const message m = message_of(f, peer, p.t.rank, k, p.steps[k].data);
        uint8_t *to = place(p, f, k, peer, m.bytes, false, on_host);
        const size_t most = on_host ? ON_HOST : CAP, cap = rng_below(rng, 2) ? m.bytes : most;
        if (on_host)
            memset(to, 0x11, most);
        else
            cudaMemsetAsync(to, 0x11, most);
        cudaStreamSynchronize(nullptr);
        p.recvs[k].push_back(nullptr);
        const enum pici_status s = p.t.recv(p.t.context, peer, to, cap, &p.recvs[k].back());
        if (s)
            p.wrong = words("recv", s, p.t);
    }
    if (p.recvs[k].size() == from.size()) {
        p.posted++;
        p.announced_receives = false;
    }
    return true;
}

/* Steps, from the first on, whose sends have ended. */
static size_t sends_ended(const party &p)
{
    size_t k = 0;
    while (k < p.sent && !p.sends_left[k])
        k++;
    return k;
}

/* Begin the next send, or announce those of the next step. */
static bool send(party &p, const traffic &f)
{
    const size_t k = p.sent;
    if (k == p.posted || p.steps[k].after >= (long)p.taken)
        return false;
    if (k - sends_ended(p) >= (size_t)p.steps[k].window)
        return false;
    const std::vector<int> &to = p.steps[k].to;
    if (f.announced && !p.announced_sends)
        p.t.sends(p.t.context, (int)to.size(), p.steps[k].more);
    p.announced_sends = true;
    if (p.sends[k].size() < to.size()) {
        bool on_host;
        const int peer = to[p.sends[k].size()];
        const message m = message_of(f, p.t.rank, peer, k, p.steps[k].data);
        uint8_t *from = place(p, f, k, peer, m.bytes, true, on_host);
        fill(p.want, m);
        if (m.bytes)
            cudaMemcpy(from, p.want.data(), m.bytes, cudaMemcpyDefault);
        if (!f.announced)
            p.t.more(p.t.context, p.steps[k].more);
        p.sends[k].push_back(nullptr);
        const enum pici_status s = p.t.send(p.t.context, peer, m.bytes ? from : nullptr, m.bytes, &p.sends[k].back());
        if (s)
            p.wrong = words("send", s, p.t);
    }
    if (p.sends[k].size() == to.size()) {
        p.sent++;
        p.announced_sends = false;
    }
    return true;
}

/* What came is what was sent, and nothing behind it was touched. */
static void look(party &p, const traffic &f, size_t k, int peer, size_t bytes)
{
    bool on_host;
    const message m = message_of(f, peer, p.t.rank, k, p.steps[k].data);
    const uint8_t *at = place(p, f, k, peer, m.bytes, false, on_host);
    std::vector<uint8_t> got(on_host ? ON_HOST : CAP);
    cudaMemcpy(got.data(), at, got.size(), cudaMemcpyDefault);
    fill(p.want, m);
    p.want.resize(got.size(), 0x11);
    if (bytes != m.bytes || got != p.want)
        p.wrong = "step " + std::to_string(k) + ", from rank " + std::to_string(peer) +
                  (bytes != m.bytes ? ": a message of the wrong length" : ": wrong bytes");
}

/* One of those that are in flight, whichever. */
static bool test(party &p, const traffic &f, struct rng *rng)
{
    const size_t from = std::min(p.taken, sends_ended(p)), to = std::min(p.posted + 1, p.steps.size());
    if (to == from)
        return false;
    const size_t k = from + (size_t)rng_below(rng, to - from);
    const bool sends = rng_below(rng, 2);
    std::vector<void *> &requests = sends ? p.sends[k] : p.recvs[k];
    if (requests.empty())
        return false;
    const size_t i = (size_t)rng_below(rng, requests.size());
    int done = 0;
    size_t bytes = (size_t)-1;
    if (!requests[i])
        return false;
    const enum pici_status s = p.t.test(p.t.context, requests[i], &done, &bytes);
    if (s)
        p.wrong = words("test", s, p.t);
    if (!done || s)
        return s != PICI_OK;
    requests[i] = nullptr;
    if (!sends)
        look(p, f, k, p.steps[k].from[i], bytes);
    (sends ? p.sends_left : p.recvs_left)[k]--;
    return true;
}

static bool take(party &p)
{
    if (p.taken == p.sent || p.recvs_left[p.taken])
        return false;
    p.taken++;
    return true;
}

/* All ranks through all steps. "": all is well. */
static std::string play(const traffic &f)
{
    struct rng rng = {f.seed};
    emu::defer(f.seed);
    emu::nccl_eager(f.seed % 3 ? 0 : f.seed % 2 ? 100 : CAP);
    const bool said = f.seed & 1, slow = f.seed & 2;
    std::vector<party> all = make(f.ranks, said, slow);
    if (!slow) /* else rank 0 waits for others, which this thread must move on */
        check_nodes(all, said);
    size_t left = 0, idle = 0;
    for (int r = 0; r < f.ranks; r++) {
        party &p = all[(size_t)r];
        cudaSetDevice(r);
        if (rng_below(&rng, 2))
            emu::nccl_slow(p.comm, (int)rng_below(&rng, 4));
        p.steps = steps_of(f.stages, r);
        left += p.steps.size();
        p.sends.resize(p.steps.size());
        p.recvs = p.sends;
        for (const auto &s : p.steps) {
            p.sends_left.push_back(s.to.size());
            p.recvs_left.push_back(s.from.size());
        }
        const size_t places = (size_t)window_of(f) * 2 * (size_t)f.ranks;
        p.host.resize(places * ON_HOST);
        if (cudaMalloc((void **)&p.device, places * CAP))
            p.wrong = "no memory";
    }
    while (left && idle < 3000 * all.size()) {
        const size_t r = (size_t)rng_below(&rng, all.size());
        party &p = all[r];
        cudaSetDevice((int)r);
        const size_t before = p.taken;
        bool moved = false;
        for (uint64_t turns = rng_below(&rng, 12); turns && p.wrong.empty(); turns--)
            switch (rng_below(&rng, 4)) {
            case 0: moved |= post(p, f, &rng); break;
            case 1: moved |= send(p, f); break;
            case 2: moved |= test(p, f, &rng); break;
            case 3: moved |= take(p); break;
            }
        if (cudaPeekAtLastError())
            p.wrong = "CUDA's last error is not what it was";
        idle = moved ? 0 : idle + 1;
        left -= p.taken - before;
        if (!p.wrong.empty())
            return "rank " + std::to_string(r) + ": " + p.wrong;
    }
    if (left)
        return "stuck, with " + std::to_string(left) + " steps left; " + emu::nccl_fault();
    bool sending = true; /* sends end after receives, or before */
    for (size_t tries = 0; sending && tries < 3000; tries++) {
        sending = false;
        for (size_t r = 0; r < all.size(); r++)
            for (auto &step : all[r].sends)
                for (auto &request : step) {
                    if (!request)
                        continue;
                    int done = 0;
                    cudaSetDevice((int)r);
                    if (all[r].t.test(all[r].t.context, request, &done, nullptr))
                        return "a send failed";
                    if (done)
                        request = nullptr;
                    sending = true;
                }
    }
    drop(all);
    if (!emu::settle() || cudaGetLastError())
        return "something is left in a stream";
    return emu::nccl_fault();
}

static void try_traffic(const std::string &what, const traffic &f)
{
    const std::string wrong = play(f);
    tally(wrong.empty(), ("traffic of " + what + ", seed " + std::to_string(f.seed)).c_str(), wrong.c_str());
}

static void all_traffic(bool quick)
{
    uint64_t seed = 1;
    for (const int p : {1, 2, 3, 4, 5, 8})
        for (const auto algorithm : {PICI_ALGO_RING, PICI_ALGO_RECURSIVE, PICI_ALGO_SPLIT, PICI_ALGO_DOUBLING})
            for (const int window : {1, 2, 4})
                for (int i = quick ? (int)(seed % 3) : 0; i < 3; i += quick ? 3 : 1, seed++) {
                    const collective c = {flat(pici_schedule(algorithm), p), window, 2 * window - (window > 1)};
                    try_traffic(name_of(c), {stages_of(c), p, seed, i == 1 || !c.of.paired});
                }
    struct rng rng = {seed};
    for (const int p : {2, 3, 5, 6, 8})
        for (const int window : {1, 2, 4}) {
            const auto sizes = some_nodes(p, 3, &rng);
            for (const auto &s : {doubling(p), on_nodes(PICI_ALGO_NODES_RING, sizes),
                                  on_nodes(PICI_ALGO_NODES_RECURSIVE, sizes), stars(p), random_steps(p, 8, &rng)}) {
                const collective c = {s, window, 2 * window - (window > 1)};
                try_traffic(name_of(c), {stages_of(c), p, seed++, true});
            }
            for (int i = 0; i < 3; i++)
                try_traffic(std::to_string(p) + " ranks, any order",
                            {random_stages(random_steps(p, 40, &rng), &rng), p, seed++, true});
        }
}

/* ---- collectives ---- */

/* Begin a call in place, of n integers in all: an all-reduce; a broadcast of the last rank's; or an all_gatherv of
 * contributions that grow by rank. The first contribution is empty. */
static enum pici_status start(enum pici_collective kind, uint32_t *data, uint64_t n,
                              const std::vector<uint64_t> &counts, struct pici_comm *comm,
                              const struct pici_coll_opts *o, struct pici_request **request)
{
    const int rank = pici_comm_rank(comm), ranks = pici_comm_size(comm);
    if (kind == PICI_BROADCAST)
        return pici_broadcast_start(data, n, PICI_U32, ranks - 1, comm, o, request);
    if (kind == PICI_ALL_REDUCE)
        return pici_all_reduce_start(data, data, n, PICI_U32, PICI_SUM, comm, o, request);
    const uint64_t first = std::accumulate(counts.begin(), counts.begin() + rank, UINT64_C(0));
    return pici_all_gatherv_start(data + first, counts[(size_t)rank], data, counts.data(), nullptr, PICI_U32, comm, o,
                                  request);
}

/* A call, by ranks that one thread drives by turns. "": the result is right. */
static std::string call(enum pici_collective kind, enum pici_algorithm algorithm, int ranks, int window, uint64_t n,
                        unsigned ppm, uint64_t seed)
{
    static const int maps[][5] = {{0, 0, 0, 0, 0}, {0, 0, 1, 1, 1}, {0, 1, 0, 1, 0}, {0, 0, 0, 1, 2}};

    struct rng rng = {seed};
    const int *nodes = maps[rng_below(&rng, sizeof maps / sizeof *maps)];
    emu::defer(seed);
    emu::nccl_eager(seed % 3 ? 0 : 100);
    std::vector<party> all = make(ranks, false, seed & 1);
    std::vector<struct pici_comm *> comms(all.size());
    std::vector<struct pici_request *> requests(all.size());
    std::vector<uint32_t> sum(n), own(n);
    std::vector<uint64_t> counts(all.size());
    std::string wrong;
    for (size_t r = 0; r < all.size(); r++)
        counts[r] = ranks == 1 ? n : n * 2 * r / (all.size() * (all.size() - 1));
    counts.back() += n - std::accumulate(counts.begin(), counts.end(), UINT64_C(0));
    for (size_t r = 0, first = 0; r < all.size(); first += counts[r++]) {
        cudaSetDevice((int)r);
        all[r].t.nodes = nullptr; /* it would wait */
        cudaMalloc((void **)&all[r].device, n * 4);
        for (uint64_t i = 0; i < n; i++)
            own[i] = rng_chance(&rng, ppm) ? (uint32_t)rng_next(&rng) : 0;
        for (uint64_t i = 0; i < n; i++) /* its own part only; what it has elsewhere is lost */
            if (kind == PICI_ALL_REDUCE)
                sum[i] += own[i];
            else if (kind == PICI_BROADCAST ? r + 1 == all.size() : i >= first && i < first + counts[r])
                sum[i] = own[i];
        cudaMemcpy(all[r].device, own.data(), n * 4, cudaMemcpyHostToDevice);
        struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
        o.algorithm = algorithm;
        o.window = window;
        o.slice_bytes = 1;
        if (pici_comm_transport(&comms[r], &all[r].t) || pici_comm_cuda(comms[r], nullptr) ||
            pici_comm_set_nodes(comms[r], nodes) ||
            start(kind, (uint32_t *)all[r].device, n, counts, comms[r], &o, &requests[r]))
            return std::string("begin: ") + pici_comm_error(nullptr);
    }
    for (size_t left = all.size(); left;) {
        const size_t r = (size_t)rng_below(&rng, all.size());
        int done = 0;
        cudaSetDevice((int)r);
        if (!requests[r])
            continue;
        const enum pici_status s = pici_test(&requests[r], &done);
        if (s)
            wrong = "rank " + std::to_string(r) + ": " + pici_strerror(s) + ": " + pici_comm_error(comms[r]);
        left -= (size_t)done;
    }
    for (size_t r = 0; r < all.size(); r++) {
        cudaSetDevice((int)r);
        cudaMemcpy(own.data(), all[r].device, n * 4, cudaMemcpyDeviceToHost);
        if (wrong.empty() && own != sum)
            wrong = "rank " + std::to_string(r) + ": another result";
        pici_comm_free(comms[r]);
        all[r].t.context = nullptr;
    }
    drop(all);
    return !wrong.empty() ? wrong : !emu::settle() || cudaGetLastError() ? "not all is well" : emu::nccl_fault();
}

static void collectives(bool quick)
{
    static const int windows[] = {1, 3};
    static const enum pici_collective kinds[] = {PICI_ALL_REDUCE, PICI_BROADCAST, PICI_ALL_GATHERV};
    uint64_t seed = 1;
    for (int p = 1; p <= 5; p++)
        for (const struct schedule *s = pici_schedules; s->name; s++)
            for (int i = 0; i < 6; i++) {
                const enum pici_collective kind = kinds[i / 2];
                const int window = windows[i % 2];
                const uint64_t n = (uint64_t)p * 4096 * (2 * (uint64_t)window - (window > 1)) - seed;
                if (!pici_schedule_for(s->id, kind) || (quick && (i + p + s->id) % 2))
                    continue;
                const std::string wrong = call(kind, s->id, p, window, n, seed % 4 ? 5000 : 900000, seed);
                tally(wrong.empty(),
                      ("collective " + std::to_string((int)kind) + " of " + std::to_string(p) + " ranks, window " +
                       std::to_string(window) + ", seed " + std::to_string(seed))
                          .c_str(),
                      wrong.c_str());
                seed++;
            }
}

int main(int argc, char **argv)
{
    const bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    all_traffic(quick);
    collectives(quick);
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
