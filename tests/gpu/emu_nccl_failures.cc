/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport over NCCL, over a fake of it: what goes wrong ends in words, and nobody waits for what is stuck. The
 * last line is "N passed, N failed". */
#include <stdlib.h>
#include <string.h>

#include <string>
#include <thread>

#include "emu_parties.h"

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

int main()
{
    making();
    for (uint64_t seed = 1; seed <= 4; seed++) {
        failures(seed);
        uneven_failures(seed);
    }
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
