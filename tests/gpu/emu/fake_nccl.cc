/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "nccl.h"

namespace {

enum kind { SEND, RECV, GATHER, REDUCE, SCATTER };

/* to[n] = the op of these arrays of each rank. */
using reduction = std::function<void(uint8_t *to, const std::vector<const uint8_t *> &from, size_t bytes)>;

struct op {
    enum kind kind;
    int peer;
    const uint8_t *from;
    uint8_t *to;
    size_t bytes;
    bool done;
    std::vector<uint8_t> copy; /* of a message that went ahead */
    reduction reduce = nullptr;
};

/* What one communicator has in a group. */
struct batch {
    ncclComm *comm;
    cudaStream_t stream;
    std::vector<std::shared_ptr<op>> ops;
    bool started;
};

struct world {
    bool faulty = false; /* all that is under way in it ends as it is */
    std::vector<std::unique_ptr<ncclComm>> comms;
    std::vector<std::deque<std::shared_ptr<op>>> sends, recvs; /* [from * ranks + to] at work, of no match yet */
    std::vector<std::shared_ptr<op>> gathers;                  /* [ranks] */
};

} // namespace

struct ncclComm {
    world *w;
    int rank, device;
    bool gone = false;
    std::deque<std::shared_ptr<batch>> order; /* issued, not ended */
    std::shared_ptr<batch> held;              /* not in its stream yet */
    int slow = 0, looks = 0;
    ncclResult_t async = ncclSuccess, refused = ncclSuccess;
    std::string last;
};

namespace {

/* Guards all that follows and what it leads to. Taken inside the emulator's lock, so the emulator is not called under
 * it. */
std::mutex lock;
std::vector<std::unique_ptr<world>> worlds; /* for good: streams may speak of them */
size_t eager;
bool stalled; /* reductions do not end */

struct faults {
    std::string first;
    ~faults()
    {
        if (!first.empty()) {
            fprintf(stderr, "NCCL was misused, and nobody asked: %s\n", first.c_str());
            _exit(1);
        }
    }
} fault;

thread_local int depth;
thread_local std::vector<std::shared_ptr<batch>> group;

/* Under the lock. */
__attribute__((format(printf, 2, 3))) void wrong(world *w, const char *format, ...)
{
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (fault.first.empty())
        fault.first = text;
    if (w)
        w->faulty = true;
}

/* ---- in a stream ---- */

void match(world *w, int from, int to)
{
    const size_t at = (size_t)from * w->comms.size() + (size_t)to;
    auto &sends = w->sends[at], &recvs = w->recvs[at];
    while (!sends.empty() && !recvs.empty()) {
        op &s = *sends.front(), &r = *recvs.front();
        if (s.bytes != r.bytes)
            wrong(w, "rank %d sends %zu bytes where rank %d receives %zu", from, s.bytes, to, r.bytes);
        else
            memcpy(r.to, s.copy.empty() ? s.from : s.copy.data(), s.bytes);
        s.done = r.done = true;
        sends.pop_front();
        recvs.pop_front();
    }
}

/* What all ranks do together, once they are all at it. */
void gather(world *w)
{
    const size_t ranks = w->gathers.size();
    std::vector<const uint8_t *> from;
    for (const auto &g : w->gathers) {
        if (!g)
            return;
        from.push_back(g->from);
    }
    const op &first = *w->gathers[0];
    const size_t all = first.kind == REDUCE ? first.bytes : first.bytes * ranks;
    std::vector<uint8_t> result(all);
    for (const auto &g : w->gathers)
        if (g->kind != first.kind || g->bytes != first.bytes) {
            wrong(w, "ranks gather %zu and %zu bytes", first.bytes, g->bytes);
            return;
        }
    if (first.kind != GATHER)
        first.reduce(result.data(), from, all);
    for (size_t r = 0; r < ranks && first.kind == GATHER; r++)
        memcpy(result.data() + r * first.bytes, from[r], first.bytes);
    for (size_t r = 0; r < ranks; r++) {
        op &g = *w->gathers[r];
        memcpy(g.to, result.data() + (g.kind == SCATTER ? r * g.bytes : 0), g.kind == SCATTER ? g.bytes : all);
        g.done = true;
    }
    for (auto &g : w->gathers)
        g = nullptr;
}

void start(batch &l)
{
    world *w = l.comm->w;
    const int ranks = (int)w->comms.size(), me = l.comm->rank;
    l.started = true;
    for (const auto &o : l.ops) {
        const size_t parts = o->kind == RECV ? 1 : o->kind == GATHER ? (size_t)ranks : 0;
        for (size_t i = 0; i < parts; i++) /* but for what is gathered in place */
            if (o->kind == RECV || o->to + i * o->bytes != o->from)
                memset(o->to + i * o->bytes, 0xee, o->bytes);
        if (o->kind == SEND) {
            if (o->bytes <= eager) {
                o->copy.assign(o->from, o->from + o->bytes);
                o->done = true;
            }
            w->sends[(size_t)(me * ranks + o->peer)].push_back(o);
        } else if (o->kind == RECV)
            w->recvs[(size_t)(o->peer * ranks + me)].push_back(o);
        else
            w->gathers[(size_t)me] = o;
    }
}

/* Try to do it. */
bool proceed(const std::shared_ptr<batch> &l)
{
    const std::lock_guard<std::mutex> guard(lock);
    ncclComm *comm = l->comm;
    if (comm->gone || comm->w->faulty)
        return true;
    if (comm->order.front() != l)
        return false;
    if (!l->started)
        start(*l);
    bool done = true;
    for (const auto &o : l->ops) {
        if (stalled && o->kind >= REDUCE)
            return false;
        if (o->kind == SEND)
            match(comm->w, comm->rank, o->peer);
        else if (o->kind == RECV)
            match(comm->w, o->peer, comm->rank);
        else
            gather(comm->w);
        done = done && o->done;
    }
    if (done)
        comm->order.pop_front();
    return done;
}

/* ---- calls ---- */

void submit(const std::shared_ptr<batch> &l)
{
    {
        const std::lock_guard<std::mutex> guard(lock);
        l->comm->order.push_back(l);
    }
    emu::enqueue(l->stream, [l] { return proceed(l); });
}

ncclResult_t end_group(void)
{
    ncclResult_t r = ncclSuccess;
    std::vector<std::shared_ptr<batch>> batches;
    batches.swap(group);
    for (const auto &l : batches) {
        if (l->comm->slow) {
            l->comm->held = l;
            l->comm->looks = l->comm->slow;
            r = ncclInProgress;
        } else
            submit(l);
    }
    return r;
}

ncclResult_t add(ncclComm *comm, cudaStream_t stream, const op &like, bool on_device)
{
    ncclResult_t r = ncclSuccess;
    {
        const std::lock_guard<std::mutex> guard(lock);
        const int ranks = (int)comm->w->comms.size();
        if (comm->refused) {
            comm->last = "refused, as was asked for";
            r = comm->refused;
            comm->refused = ncclSuccess;
            return r;
        }
        if (comm->gone)
            wrong(comm->w, "rank %d uses a communicator that is no more", comm->rank);
        else if (comm->held)
            wrong(comm->w, "rank %d uses a communicator that is not ready", comm->rank);
        else if (!on_device)
            wrong(comm->w, "rank %d: %zu bytes that are not the device's", comm->rank, like.bytes);
        else if (like.kind <= RECV && (like.peer < 0 || like.peer >= ranks || like.peer == comm->rank))
            wrong(comm->w, "rank %d has no peer %d", comm->rank, like.peer);
        if (comm->w->faulty)
            return ncclInvalidUsage;
        std::shared_ptr<batch> l;
        for (const auto &g : group)
            if (g->comm == comm)
                l = g;
        if (!l) {
            l = std::make_shared<batch>(batch{comm, stream, {}, false});
            group.push_back(l);
        }
        if (l->stream != stream) {
            wrong(comm->w, "rank %d: a group in two streams", comm->rank);
            return ncclInvalidUsage;
        }
        l->ops.push_back(std::make_shared<op>(like));
    }
    return depth ? ncclSuccess : end_group();
}

size_t width(ncclDataType_t type)
{
    switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: return 4;
    }
}

template <class T> reduction reduction_of(ncclRedOp_t how)
{
    return [how](uint8_t *to, const std::vector<const uint8_t *> &from, size_t bytes) {
        for (size_t at = 0; at < bytes; at += sizeof(T)) {
            T sum, x;
            memcpy(&sum, from[0] + at, sizeof sum);
            for (size_t r = 1; r < from.size(); r++) {
                memcpy(&x, from[r] + at, sizeof x);
                sum = how == ncclMin ? std::min(sum, x) : how == ncclMax ? std::max(sum, x) : (T)(sum + x);
            }
            if (how == ncclAvg)
                sum = (T)(sum / (T)from.size());
            memcpy(to + at, &sum, sizeof sum);
        }
    };
}

/* Null: it does not know how. */
reduction reduction_of(ncclDataType_t type, ncclRedOp_t how)
{
    if (how == ncclProd)
        return nullptr;
    switch (type) {
    case ncclInt32: return reduction_of<int32_t>(how);
    case ncclUint32: return reduction_of<uint32_t>(how);
    case ncclInt64: return reduction_of<int64_t>(how);
    case ncclUint64: return reduction_of<uint64_t>(how);
    case ncclFloat32: return reduction_of<float>(how);
    case ncclFloat64: return reduction_of<double>(how);
    default: return nullptr;
    }
}

/* It is the device's, all of it. */
bool in_device(const void *p, size_t bytes)
{
    return !bytes || emu::is_device(p, bytes);
}

/* Forget what it has under way. */
void leave(ncclComm *comm)
{
    comm->gone = true;
    comm->held = nullptr;
    for (const auto &l : comm->order)
        for (const auto &o : l->ops)
            for (auto *channels : {&comm->w->sends, &comm->w->recvs})
                for (auto &c : *channels)
                    for (size_t i = 0; i < c.size();)
                        if (c[i] == o)
                            c.erase(c.begin() + (std::ptrdiff_t)i);
                        else
                            i++;
    comm->order.clear();
    comm->w->gathers[(size_t)comm->rank] = nullptr;
}

} // namespace

/* Under the lock. */
static world *new_world(int ranks)
{
    worlds.push_back(std::make_unique<world>());
    world *w = worlds.back().get();
    const size_t n = (size_t)ranks;
    w->sends.resize(n * n);
    w->recvs.resize(n * n);
    w->gathers.resize(n);
    for (int r = 0; r < ranks; r++) {
        w->comms.push_back(std::make_unique<ncclComm>());
        w->comms.back()->w = w;
        w->comms.back()->rank = r;
    }
    return w;
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int ranks, const int *devices)
{
    const std::lock_guard<std::mutex> guard(lock);
    world *w = new_world(ranks);
    for (int r = 0; r < ranks; r++) {
        comms[r] = w->comms[(size_t)r].get();
        comms[r]->device = devices ? devices[r] : r;
    }
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static int n;
    const std::lock_guard<std::mutex> guard(lock);
    snprintf(id->internal, sizeof id->internal, "%d", n++);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
    struct party {
        world *w = nullptr;
        int here = 0;
    };
    static std::map<std::string, party> parties;
    static std::condition_variable come;
    std::unique_lock<std::mutex> guard(lock);
    party &p = parties[id.internal];
    if (!p.w)
        p.w = new_world(ranks);
    *comm = p.w->comms[(size_t)rank].get();
    cudaGetDevice(&(*comm)->device);
    p.here++;
    come.notify_all();
    come.wait(guard, [&] { return p.here >= ranks; });
    return ncclSuccess;
}

/* Messages that its peers sent ahead and that it never received. */
static void check_unmatched(const ncclComm *comm)
{
    const size_t ranks = comm->w->comms.size(), me = (size_t)comm->rank;
    for (size_t from = 0; from < ranks; from++)
        for (const auto &o : comm->w->sends[from * ranks + me])
            wrong(comm->w, "rank %zu sent %zu bytes that rank %zu never receives", from, o->bytes, me);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    const std::lock_guard<std::mutex> guard(lock);
    check_unmatched(comm);
    if (!comm->order.empty() || comm->held)
        wrong(comm->w, "rank %d destroys a communicator at work", comm->rank);
    leave(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    const std::lock_guard<std::mutex> guard(lock);
    leave(comm);
    return ncclSuccess;
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = 22809;
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *ranks)
{
    *ranks = (int)comm->w->comms.size();
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    *rank = comm->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    *device = comm->device;
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
    std::shared_ptr<batch> ready;
    {
        const std::lock_guard<std::mutex> guard(lock);
        *result = comm->async ? comm->async : comm->w->faulty ? ncclInternalError : ncclSuccess;
        if (comm->async)
            comm->last = "broken, as was asked for";
        if (comm->gone)
            wrong(comm->w, "rank %d asks of a communicator that is no more", comm->rank);
        if (comm->held && comm->looks-- > 0)
            *result = ncclInProgress;
        else
            ready.swap(comm->held);
    }
    if (ready)
        submit(ready);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t r)
{
    static const char *const words[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return words[r];
}

const char *ncclGetLastError(ncclComm_t comm)
{
    const std::lock_guard<std::mutex> guard(lock);
    return fault.first.empty() ? comm->last.c_str() : fault.first.c_str();
}

ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (!depth) {
        const std::lock_guard<std::mutex> guard(lock);
        wrong(nullptr, "a group ends that did not start");
        return ncclInvalidUsage;
    }
    return --depth ? ncclSuccess : end_group();
}

ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    const size_t bytes = count * width(type);
    return add(comm, stream, {SEND, peer, (const uint8_t *)data, nullptr, bytes, false, {}, nullptr},
               in_device(data, bytes));
}

ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    const size_t bytes = count * width(type);
    return add(comm, stream, {RECV, peer, nullptr, (uint8_t *)data, bytes, false, {}, nullptr}, in_device(data, bytes));
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t sendcount, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    const size_t bytes = sendcount * width(type);
    return add(comm, stream, {GATHER, -1, (const uint8_t *)send, (uint8_t *)recv, bytes, false, {}, nullptr},
               in_device(send, bytes) && in_device(recv, bytes * comm->w->comms.size()));
}

static ncclResult_t reduce(enum kind kind, const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t how, ncclComm_t comm, cudaStream_t stream)
{
    const size_t bytes = count * width(type), all = kind == SCATTER ? bytes * comm->w->comms.size() : bytes;
    const reduction r = reduction_of(type, how);
    if (!r)
        return ncclInvalidArgument;
    return add(comm, stream, {kind, -1, (const uint8_t *)send, (uint8_t *)recv, bytes, false, {}, r},
               in_device(send, all) && in_device(recv, bytes));
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t how,
                           ncclComm_t comm, cudaStream_t stream)
{
    return reduce(REDUCE, send, recv, count, type, how, comm, stream);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t recvcount, ncclDataType_t type, ncclRedOp_t how,
                               ncclComm_t comm, cudaStream_t stream)
{
    return reduce(SCATTER, send, recv, recvcount, type, how, comm, stream);
}

/* ---- what a test wants ---- */

std::string emu::nccl_fault()
{
    const std::lock_guard<std::mutex> guard(lock);
    std::string was;
    was.swap(fault.first);
    return was;
}

void emu::nccl_break(ncclComm_t comm, ncclResult_t r)
{
    const std::lock_guard<std::mutex> guard(lock);
    comm->async = r;
}

void emu::nccl_refuse(ncclComm_t comm, ncclResult_t r)
{
    const std::lock_guard<std::mutex> guard(lock);
    comm->refused = r;
}

void emu::nccl_slow(ncclComm_t comm, int looks)
{
    const std::lock_guard<std::mutex> guard(lock);
    comm->slow = looks;
}

void emu::nccl_stall(bool on)
{
    const std::lock_guard<std::mutex> guard(lock);
    stalled = on;
}

void emu::nccl_eager(size_t bytes)
{
    const std::lock_guard<std::mutex> guard(lock);
    eager = bytes;
}
