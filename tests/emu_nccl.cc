/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport over NCCL, over a fake of it: one thread drives all ranks through the steps of collectives, in an order
 * that a seed decides, and every byte arrives. Steps have one message a rank each way, several, or none. What goes
 * wrong ends in words, and nobody waits for what is stuck. The last line is "N passed, N failed". */
#include <stdlib.h>
#include <string.h>

#include <memory>
#include <numeric>
#include <string>
#include <thread>

#include "emu/nccl.h"
#include "emu/tally.h"
#include "emu_exchanges.h"
extern "C" {
#include "pici/cuda.h"
#include "transport/nccl_transport.h"
#include "util.h"
}

enum { CAP = 6000, ON_HOST = 4096 };

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

/* ---- ranks ---- */

struct party {
    ncclComm_t comm = nullptr;
    struct pici_transport t = PICI_TRANSPORT_INIT;
    std::vector<step> steps;
    std::vector<std::vector<void *>> sends, recvs; /* of each step the requests that were begun and have not ended */
    std::vector<size_t> sends_left, recvs_left;    /* of each step, not ended */
    uint8_t *device = nullptr;                     /* [2 * window][ranks][CAP] sent from, received into */
    std::vector<uint8_t> host, want;               /* [2 * window][ranks][ON_HOST]; scratch */
    size_t posted = 0, sent = 0, taken = 0;        /* steps */
    bool announced_receives = false, announced_sends = false; /* of the next of these */
    std::string wrong;
};

static std::string words(const char *what, enum pici_status s, const struct pici_transport &t)
{
    return std::string(what) + ": " + pici_strerror(s) + " " + t.error(t.context);
}

/* Which node a rank says it is on. */
static int node_of(int rank)
{
    return rank % 3 == 2 ? 0 : rank;
}

static std::vector<party> make(int ranks, bool said, bool slow)
{
    std::vector<ncclComm_t> comms((size_t)ranks);
    std::vector<party> all((size_t)ranks);
    ncclCommInitAll(comms.data(), ranks, nullptr);
    for (int r = 0; r < ranks; r++) {
        party &p = all[(size_t)r];
        cudaSetDevice(r);
        if (slow)
            emu::nccl_slow(comms[(size_t)r], r % 3);
        if (said)
            setenv("NCCL_HOSTID", ("host " + std::to_string(node_of(r))).c_str(), 1);
        p.comm = comms[(size_t)r];
        const enum pici_status s = pici_transport_nccl(&p.t, p.comm);
        if (s)
            p.wrong = std::string("making: ") + pici_comm_error(nullptr);
        unsetenv("NCCL_HOSTID");
    }
    return all;
}

static void check_nodes(std::vector<party> &all, bool said)
{
    for (size_t r = 0; r < all.size(); r++) {
        std::vector<int> nodes(all.size(), -1);
        cudaSetDevice((int)r);
        if (all[r].t.nodes(all[r].t.context, nodes.data()))
            all[r].wrong = std::string("nodes: ") + all[r].t.error(all[r].t.context);
        for (size_t i = 0; i < all.size() && all[r].wrong.empty(); i++)
            if (nodes[i] != (said ? node_of((int)i) : 0))
                all[r].wrong = "rank " + std::to_string(i) + " is not on node " + std::to_string(nodes[i]);
    }
}

static void drop(std::vector<party> &all)
{
    for (size_t r = 0; r < all.size(); r++) {
        cudaSetDevice((int)r);
        if (all[r].t.context)
            all[r].t.close(all[r].t.context);
        cudaFree(all[r].device);
        ncclCommDestroy(all[r].comm);
    }
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
    for (size_t tries = 0; tries < 3000; tries++) /* sends end after receives, or before */
        for (size_t r = 0; r < all.size(); r++)
            for (auto &step : all[r].sends)
                for (auto &request : step) {
                    int done = 0;
                    cudaSetDevice((int)r);
                    if (request && all[r].t.test(all[r].t.context, request, &done, nullptr))
                        return "a send failed";
                    if (done)
                        request = nullptr;
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

static void all_traffic()
{
    uint64_t seed = 1;
    for (const int p : {1, 2, 3, 4, 5, 8})
        for (const auto algorithm : {PICI_ALGO_RING, PICI_ALGO_RECURSIVE, PICI_ALGO_SPLIT, PICI_ALGO_DOUBLING})
            for (const int window : {1, 2, 4})
                for (int i = 0; i < 3; i++, seed++) {
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

/* ---- what goes wrong ---- */

struct pair_of_messages {
    void *send = nullptr, *recv = nullptr;
};

/* Ranks, each with memory on its device. */
static std::vector<party> some(int ranks, uint64_t seed)
{
    emu::defer(seed);
    emu::nccl_eager(0);
    std::vector<party> all = make(ranks, false, false);
    check_nodes(all, false);
    for (int r = 0; r < ranks; r++) {
        cudaSetDevice(r);
        cudaMalloc((void **)&all[(size_t)r].device, 4 * CAP);
        tally(all[(size_t)r].wrong.empty() && all[(size_t)r].device, "some ranks", all[(size_t)r].wrong.c_str());
    }
    return all;
}

static std::vector<party> two(uint64_t seed)
{
    return some(2, seed);
}

static pair_of_messages begin(party &p, size_t bytes, size_t cap)
{
    pair_of_messages m;
    cudaSetDevice(p.t.rank);
    const int peer = 1 - p.t.rank;
    p.t.more(p.t.context, 0);
    tally(!p.t.recv(p.t.context, peer, p.device + CAP, cap, &m.recv) &&
              !p.t.send(p.t.context, peer, p.device, bytes, &m.send),
          "an exchange begins", p.t.error(p.t.context));
    return m;
}

enum { NEVER = 1 };

struct request_of {
    size_t rank;
    void *request;
};

/* The end of each, in order; NEVER: for a long while there is none. All ranks move on. */
static std::vector<int> ends(std::vector<party> &all, const std::vector<request_of> &requests)
{
    std::vector<int> status(requests.size(), NEVER);
    for (int tries = 0; tries < 300; tries++)
        for (size_t i = 0; i < requests.size(); i++) {
            const struct pici_transport &t = all[requests[i].rank].t;
            int done = 0;
            if (status[i] != NEVER || !requests[i].request)
                continue;
            cudaSetDevice(t.rank);
            const enum pici_status s = t.test(t.context, requests[i].request, &done, nullptr);
            if (done)
                status[i] = s;
            t.wait(t.context, tries & 1);
        }
    return status;
}

/* The first messages are rank 0's. */
static std::vector<int> ends(std::vector<party> &all, const std::vector<pair_of_messages> &messages)
{
    std::vector<request_of> requests;
    for (size_t r = 0; r < messages.size(); r++) {
        requests.push_back({r, messages[r].recv});
        requests.push_back({r, messages[r].send});
    }
    return ends(all, requests);
}

/* A message of a step; in memory of the device, each of its rank in another part. */
struct part {
    int peer;
    size_t bytes;
};

/* A rank begins a step; what it begins is added to the requests, receives first. */
static void begin_step(party &p, const std::vector<part> &from, const std::vector<part> &to,
                       std::vector<request_of> &requests)
{
    const struct pici_transport &t = p.t;
    size_t at = 0;
    cudaSetDevice(t.rank);
    t.receives(t.context, (int)from.size());
    for (const auto &m : from) {
        requests.push_back({(size_t)t.rank, nullptr});
        if (t.recv(t.context, m.peer, p.device + CAP * at++, m.bytes, &requests.back().request))
            p.wrong = words("recv", PICI_E_TRANSPORT, t);
    }
    t.sends(t.context, (int)to.size(), 0);
    for (const auto &m : to) {
        requests.push_back({(size_t)t.rank, nullptr});
        if (t.send(t.context, m.peer, p.device + CAP * at++, m.bytes, &requests.back().request))
            p.wrong = words("send", PICI_E_TRANSPORT, t);
    }
}

/* Given up and closed, at once; what is left in streams ends with the communicators. */
static void give_up(const char *what, std::vector<party> &all, const std::vector<int> &in_use, bool abort_first)
{
    for (size_t r = 0; r < all.size(); r++) {
        cudaSetDevice((int)r);
        tally(all[r].t.abandon(all[r].t.context, PICI_E_TIMEOUT) == in_use[r], what, "in use");
    }
    for (int when = 0; when < 2; when++)
        for (size_t r = 0; r < all.size(); r++) {
            cudaSetDevice((int)r);
            if (when == abort_first)
                all[r].t.close(all[r].t.context);
            else
                ncclCommAbort(all[r].comm);
        }
    tally(emu::settle() && cudaGetLastError() == cudaSuccess, what, "something is stuck");
    const std::string fault = emu::nccl_fault();
    tally(fault.empty(), what, fault.c_str());
    for (auto &p : all)
        cudaFree(p.device);
}

typedef std::vector<int> statuses;

static void say(const char *what, const std::vector<party> &all, size_t rank, const char *said)
{
    const char *error = all[rank].t.error(all[rank].t.context);
    tally(strstr(error, said), what, error);
}

static void failures(uint64_t seed)
{
    const bool abort_first = seed & 1;
    {
        const char *what = "a message that is too long";
        std::vector<party> all = two(seed);
        const auto a = begin(all[0], 100, CAP), b = begin(all[1], 200, 99);
        tally(ends(all, {a, b}) == statuses{NEVER, NEVER, PICI_E_CORRUPT, PICI_E_TRANSPORT}, what, "ends otherwise");
        say(what, all, 1, "rank 0 announced 100 bytes where there is room for 99");
        void *request;
        tally(all[1].t.send(all[1].t.context, 0, nullptr, 0, &request) == PICI_E_TRANSPORT &&
                  all[1].t.recv(all[1].t.context, 0, nullptr, 0, &request) == PICI_E_TRANSPORT,
              what, "there is one after it");
        give_up(what, all, {1, 0}, abort_first);
    }
    {
        const char *what = "a peer that does not come";
        std::vector<party> all = two(seed);
        tally(ends(all, {begin(all[0], 100, CAP)}) == statuses{NEVER, NEVER}, what, "it came");
        give_up(what, all, {1, 0}, abort_first);
    }
    {
        const char *what = "an asynchronous error";
        std::vector<party> all = two(seed);
        const auto a = begin(all[0], 100, CAP), b = begin(all[1], 100, CAP);
        tally(ends(all, {a, b}) == statuses{0, 0, 0, 0}, what, "there was one before");
        const auto c = begin(all[0], 0, 0);
        emu::nccl_break(all[0].comm, ncclRemoteError);
        tally(ends(all, {c}) == statuses{PICI_E_TRANSPORT, PICI_E_TRANSPORT}, what, "went unnoticed");
        say(what, all, 0, "remote process exited or there was a network error: broken, as was asked for");
        give_up(what, all, {1, 0}, abort_first);
    }
    {
        const char *what = "NCCL refuses";
        std::vector<party> all = two(seed);
        emu::nccl_refuse(all[0].comm, ncclSystemError);
        const auto a = begin(all[0], 1, 1), b = begin(all[1], 1, 1);
        tally(ends(all, {a, b}) == statuses{PICI_E_TRANSPORT, PICI_E_TRANSPORT, NEVER, NEVER}, what, "ends otherwise");
        say(what, all, 0, "ncclSend: unhandled system error: refused");
        tally(ncclGroupEnd() == ncclInvalidUsage && !emu::nccl_fault().empty(), what, "a group is left open");
        give_up(what, all, {1, 1}, abort_first);
    }
    {
        const char *what = "a long message of the host's";
        std::vector<party> all = two(seed);
        std::vector<uint8_t> host(ON_HOST + 1);
        void *request;
        cudaSetDevice(0);
        const struct pici_transport &t = all[0].t;
        tally(t.send(t.context, 1, host.data(), host.size(), &request) == PICI_E_ARG, what, "is sent");
        say(what, all, 0, "4097 bytes in host memory");
        tally(t.recv(t.context, 1, host.data(), host.size(), &request) == PICI_E_ARG, what, "is received");
        const auto a = begin(all[0], CAP, CAP), b = begin(all[1], 0, CAP);
        tally(ends(all, {a, b}) == statuses{0, 0, 0, 0}, what, "was not all");
        give_up(what, all, {0, 0}, abort_first);
    }
    {
        const char *what = "a failure of the device";
        std::vector<party> all = two(seed);
        const auto a = begin(all[0], 100, CAP);
        cudaMemsetAsync(all[0].device, 0, 4 * CAP + 1, nullptr); /* a failure that stays */
        tally(ends(all, {a}) == statuses{PICI_E_DEVICE, PICI_E_DEVICE}, what, "went unnoticed");
        say(what, all, 0, "not within a buffer");
        cudaSetDevice(0);
        tally(all[0].t.abandon(all[0].t.context, PICI_E_DEVICE) == 1, what, "not in use");
        for (auto &p : all) {
            p.t.close(p.t.context);
            ncclCommAbort(p.comm);
        }
    }
}

/* Steps in which ranks have several messages, or none. */
static void uneven_failures(uint64_t seed)
{
    const bool abort_first = seed & 1;
    {
        const char *what = "a message that is too long, among others";
        std::vector<party> all = some(3, seed);
        std::vector<request_of> requests;
        begin_step(all[0], {}, {{2, 100}}, requests);
        begin_step(all[1], {}, {{2, 200}}, requests);
        begin_step(all[2], {{0, 100}, {1, 199}}, {}, requests);
        tally(ends(all, requests) == statuses{NEVER, NEVER, PICI_E_TRANSPORT, PICI_E_CORRUPT}, what, "ends otherwise");
        say(what, all, 2, "rank 1 announced 200 bytes where there is room for 199");
        give_up(what, all, {1, 1, 0}, abort_first);
    }
    {
        const char *what = "a peer that stops, among others";
        std::vector<party> all = some(3, seed);
        std::vector<request_of> requests;
        begin_step(all[0], {{1, 10}}, {{1, 20}, {2, 30}}, requests);
        begin_step(all[1], {{0, 20}}, {{0, 10}}, requests);
        begin_step(all[2], {{0, 30}}, {}, requests);
        tally(ends(all, requests) == statuses{0, 0, 0, 0, 0, 0}, what, "does not begin");
        requests.clear();
        begin_step(all[0], {{1, 10}}, {{1, 20}, {2, 30}}, requests);
        begin_step(all[1], {{0, 20}}, {{0, 10}}, requests);
        tally(ends(all, requests) == statuses{NEVER, NEVER, NEVER, NEVER, NEVER}, what, "goes on");
        give_up(what, all, {1, 1, 0}, abort_first);
    }
    {
        const char *what = "a rank without messages";
        std::vector<party> all = some(3, seed);
        std::vector<request_of> none;
        for (int k = 0; k < 60; k++) { /* whose steps are before those of the others, or after them */
            std::vector<request_of> requests;
            for (int i = 0; k == 30 && i < 60; i++)
                begin_step(all[2], {}, {}, none);
            begin_step(all[0], {{1, 10}}, {{1, (size_t)k}}, requests);
            begin_step(all[1], {{0, CAP}}, {{0, 10}}, requests);
            if (ends(all, requests) != statuses{0, 0, 0, 0})
                all[0].wrong = "does not end";
        }
        std::vector<request_of> last;
        begin_step(all[0], {}, {{2, CAP}, {1, 0}}, last);
        begin_step(all[1], {{2, 1}, {0, 0}}, {}, last);
        begin_step(all[2], {{0, CAP}}, {{1, 1}}, last);
        tally(none.empty() && ends(all, last) == statuses{0, 0, 0, 0, 0, 0}, what, "does not end");
        for (const auto &p : all)
            tally(p.wrong.empty(), what, p.wrong.c_str());
        give_up(what, all, {0, 0, 0}, abort_first);
    }
    {
        const char *what = "a message, then more steps without any than are in flight at a time";
        std::vector<party> all = some(3, seed);
        std::vector<request_of> requests;
        for (int k = 0; k <= 8; k++) { /* rank 0 sends in steps 0, 4 and 8 */
            const size_t bytes = 1000 + (size_t)k;
            const int to = k ? 2 : 1;
            for (int r = 0; r < 3; r++)
                begin_step(all[(size_t)r], k % 4 == 0 && r == to ? std::vector<part>{{0, bytes}} : std::vector<part>{},
                           k % 4 == 0 && r == 0 ? std::vector<part>{{to, bytes}} : std::vector<part>{}, requests);
        }
        tally(ends(all, requests) == statuses(6, 0), what, "does not end");
        give_up(what, all, {0, 0, 0}, abort_first);
    }
    {
        const char *what = "a step that is not complete";
        for (const int wrong : {0, 1, 2}) {
            std::vector<party> all = two(seed);
            const struct pici_transport &t = all[0].t;
            void *request = nullptr;
            cudaSetDevice(0);
            t.receives(t.context, 2);
            tally(!t.recv(t.context, 1, all[0].device, 1, &request), what, "does not begin");
            t.sends(t.context, wrong == 2 ? -1 : 1, 0);
            if (wrong == 0)
                t.receives(t.context, 1);
            else if (wrong == 1)
                t.sends(t.context, 0, 0);
            tally(ends(all, std::vector<request_of>{{0, request}}) == statuses{PICI_E_ARG} &&
                      t.send(t.context, 1, nullptr, 0, &request) == PICI_E_ARG,
                  what, "goes on");
            say(what, all, 0, wrong == 2 ? "a step of -1 messages" : "where 1 of the one before are missing");
            give_up(what, all, {0, 0}, abort_first);
        }
    }
}

static void making()
{
    emu::defer(3);
    emu::nccl_eager(0);
    struct pici_transport t;
    struct pici_comm *comm = nullptr;
    ncclComm_t comms[3];
    ncclCommInitAll(comms, 3, nullptr);
    tally(pici_transport_nccl(nullptr, comms[0]) == PICI_E_ARG && pici_transport_nccl(&t, nullptr) == PICI_E_ARG &&
              pici_comm_nccl(nullptr, comms[0], nullptr) == PICI_E_ARG &&
              pici_comm_nccl(&comm, nullptr, nullptr) == PICI_E_ARG && !comm && pici_comm_error(nullptr)[0],
          "null", "");
    cudaSetDevice(2);
    tally(pici_transport_nccl(&t, comms[1]) == PICI_E_ARG && strstr(pici_comm_error(nullptr), "device 1"),
          "another device", pici_comm_error(nullptr));
    emu::nccl_refuse(comms[2], ncclInternalError);
    tally(pici_transport_nccl(&t, comms[2]) == PICI_E_TRANSPORT && strstr(pici_comm_error(nullptr), "ncclAllGather"),
          "NCCL refuses", pici_comm_error(nullptr));
    pici_nccl_seconds = 1;
    tally(pici_comm_nccl(&comm, comms[2], nullptr) == PICI_E_TIMEOUT && !comm &&
              strstr(pici_comm_error(nullptr), "some rank"),
          "a rank that does not make its communicator", pici_comm_error(nullptr));
    pici_nccl_seconds = 60;
    for (auto c : comms)
        ncclCommAbort(c);
    tally(emu::settle(), "a rank that does not make its communicator", "something is stuck");

    ncclCommInitAll(comms, 1, nullptr);
    cudaSetDevice(0);
    tally(!pici_comm_nccl(&comm, comms[0], nullptr) && pici_comm_size(comm) == 1, "one rank", pici_comm_error(nullptr));
    pici_comm_free(comm);
    ncclCommDestroy(comms[0]);

    ncclCommInitAll(comms, 3, nullptr);
    std::vector<std::thread> ranks;
    int good[3] = {0};
    for (int r = 0; r < 3; r++)
        ranks.emplace_back([&, r] {
            struct pici_comm *c;
            cudaSetDevice(r);
            good[r] = pici_comm_nccl(&c, comms[r], nullptr) == PICI_OK && pici_comm_rank(c) == r;
            pici_comm_free(c);
        });
    for (auto &r : ranks)
        r.join();
    tally(good[0] && good[1] && good[2], "three ranks, on threads", pici_comm_error(nullptr));
    for (auto c : comms)
        ncclCommDestroy(c);
    const std::string fault = emu::nccl_fault();
    tally(fault.empty() && emu::settle(), "making communicators", fault.c_str());
}

/* ---- collectives ---- */

/* Begin a call in place, of n integers in all: an all-reduce; a broadcast of the last rank's; an all_gatherv of
 * contributions that grow by rank, of which the first is empty. */
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

static void collectives()
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
                if (!pici_schedule_for(s->id, kind))
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

int main()
{
    making();
    for (uint64_t seed = 1; seed <= 4; seed++) {
        failures(seed);
        uneven_failures(seed);
    }
    all_traffic();
    collectives();
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
