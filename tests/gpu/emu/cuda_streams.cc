/* SPDX-License-Identifier: BSD-3-Clause */
#include "cuda_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

/* Handles are never reused, so that the use of a destroyed one is detected. */
struct CUstream_st {
    int device;
    size_t number;
    bool destroyed;
    std::deque<emu::operation> queued;
    uint64_t issued, done; /* operations so far */
};

/* An event is its last record, which a wait refers to. */
struct CUevent_st {
    int device;
    bool destroyed;
    std::shared_ptr<bool> happened;                              /* null: never recorded, which counts as completed */
    std::shared_ptr<std::chrono::steady_clock::time_point> when; /* of that */
};

namespace {

constexpr int DEVICES = 64;
constexpr unsigned ROUNDS = 100; /* without progress, after which a deadlock is assumed */
constexpr auto NAP = std::chrono::milliseconds(20);

struct world {
    std::recursive_mutex lock;
    std::condition_variable_any changed;
    uint64_t changes = 0;                                    /* number of operations queued and run */
    std::map<std::pair<int, const void *>, unsigned> shared; /* bytes that a kernel may have on a device */
    unsigned naps = 500;                                     /* time for other threads to change something */
    unsigned depth = 0;                                      /* nesting of calls */
    bool deferred = false;
    uint64_t seed = 1, random = 1;
    cudaError_t fault = cudaSuccess,
                worded = cudaSuccess; /* worded: what the error string describes, also after the fault was cleared */
    char words[400] = "";
    char blocked[200] = "";
    std::map<const void *, std::unique_ptr<CUstream_st>> streams;
    std::map<const void *, std::unique_ptr<CUevent_st>> events;
    CUstream_st *null_stream[DEVICES] = {};
    std::vector<CUstream_st *> busy;        /* streams with operations queued */
    std::map<std::string, uint64_t> counts; /* of each kind of operation, those that calls put into streams */
    const char *hung = nullptr;             /* operations of this kind do not end */
    int hung_device = -1;                   /* on this device, or on all */
} w;

std::atomic<unsigned> threads; /* threads that have made a call */

struct registered {
    registered()
    {
        threads++;
    }
    ~registered()
    {
        threads--;
    }
};

thread_local cudaError_t last = cudaSuccess;
thread_local int device = 0;
thread_local bool inside;    /* this thread is running an operation */
thread_local bool elsewhere; /* another thread captures in the global mode */
thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;

template <class T> T *keep(std::map<const void *, std::unique_ptr<T>> &all, T *made)
{
    all[made].reset(made);
    return made;
}

template <class T> T *known(const std::map<const void *, std::unique_ptr<T>> &all, const T *handle)
{
    const auto found = all.find(handle);
    return found == all.end() ? nullptr : found->second.get();
}

CUstream_st *make_stream()
{
    return keep(w.streams, new CUstream_st{device, w.streams.size(), false, {}, 0, 0});
}

/* The stream of a handle. Null: it cannot be used, and the fault has been recorded. */
CUstream_st *find(cudaStream_t handle)
{
    if (!handle) {
        if (!w.null_stream[device])
            w.null_stream[device] = make_stream();
        return w.null_stream[device];
    }
    CUstream_st *s = known(w.streams, handle);
    if (s && s->destroyed)
        emu::fault(cudaErrorInvalidResourceHandle, "a stream that was destroyed is used");
    return s && !s->destroyed ? s : nullptr;
}

CUevent_st *find(cudaEvent_t handle)
{
    CUevent_st *e = known(w.events, handle);
    if (e && e->destroyed)
        emu::fault(cudaErrorInvalidResourceHandle, "an event that was destroyed is used");
    return e && !e->destroyed ? e : nullptr;
}

/* The result of a call with a handle that cannot be used. */
cudaError_t bad_handle()
{
    return emu::sticky() ? emu::sticky() : emu::refuse(cudaErrorInvalidResourceHandle);
}

/* The seed makes some streams slow: they run if no other can, and otherwise rarely. Some errors show only if the
 * first of several dependent operations is late. */
bool slow(const CUstream_st *s)
{
    uint64_t state = w.seed + s->number;
    return emu::next_random(state) % 3 == 0 && emu::next_random(w.random) % 64;
}

/* How many operations a call runs: depending on the seed, sometimes one, or several each time. */
uint64_t some_operations()
{
    static const struct {
        unsigned most, one_in;
    } kinds[] = {{1, 10}, {1, 1}, {3, 1}, {12, 1}};
    const auto &kind = kinds[w.seed % 4];
    return w.deferred && emu::next_random(w.random) % kind.one_in == 0 ? emu::next_random(w.random) % (kind.most + 1)
                                                                       : 0;
}

/* Run the first operation of a stream if it is ready. */
bool execute(CUstream_st *s)
{
    if (w.hung && !strcmp(w.hung, s->queued.front().what) && (w.hung_device < 0 || w.hung_device == s->device))
        return false;
    inside = true;
    const bool happened = s->queued.front().run();
    inside = false;
    if (!happened)
        return false;
    s->queued.pop_front();
    s->done++;
    if (s->queued.empty())
        w.busy.erase(std::find(w.busy.begin(), w.busy.end(), s));
    w.changes++;
    w.changed.notify_all();
    return true;
}

/* Run one operation: the first of a random stream where it is ready. */
bool execute()
{
    if (inside)
        return false;
    std::vector<CUstream_st *> order = w.busy;
    for (size_t i = order.size(); i > 1; i--)
        std::swap(order[i - 1], order[emu::next_random(w.random) % i]);
    std::stable_partition(order.begin(), order.end(), [](const CUstream_st *s) { return !slow(s); });
    return std::any_of(order.begin(), order.end(), [](CUstream_st *s) { return execute(s); });
}

void enter(CUstream_st *s, const emu::operation &o)
{
    if (s->queued.empty())
        w.busy.push_back(s);
    s->queued.push_back(o);
    s->issued++;
    w.changes++;
    w.changed.notify_all();
}

/* Run operations until `holds` returns true. False after a deadlock: no operation is ready, and no other thread
 * changes anything. */
template <class F> bool until(F holds)
{
    unsigned rounds = 0, naps = 0;
    uint64_t seen = w.changes;
    if (inside)
        emu::die("an operation must not wait");
    while (!holds()) {
        if (execute()) {
            rounds = 0;
        } else if (++rounds >= ROUNDS) {
            if (w.changes != seen)
                naps = 0;
            seen = w.changes;
            if (threads == 1 || ++naps > w.naps) {
                const CUstream_st *s = w.busy.empty() ? nullptr : w.busy.front();
                snprintf(w.blocked, sizeof w.blocked, "stream %zu of device %d, %zu operations, the first a %s",
                         s ? s->number : 0, s ? s->device : 0, s ? s->queued.size() : 0,
                         s ? s->queued.front().what : "lost one");
                return false;
            }
            emu::shut_memory();
            w.depth = 0; /* depth is 1 here: no operation waits */
            w.changed.wait_for(w.lock, NAP);
            w.depth = 1;
        }
    }
    return true;
}

/* The result of waiting for a device or a stream. */
cudaError_t waited(bool done)
{
    if (!done)
        return emu::fault(cudaErrorLaunchTimeout, "blocked for ever: %s", w.blocked);
    return w.deferred ? w.fault : cudaGetLastError();
}

cudaError_t queried(bool done)
{
    if (w.deferred && w.fault)
        return w.fault;
    return done ? cudaSuccess : emu::refuse(cudaErrorNotReady);
}

} // namespace

namespace emu {

call::call()
{
    static thread_local registered once;
    (void)once;
    w.lock.lock();
    if (w.depth++ == 0)
        for (uint64_t n = some_operations(); n && execute(); n--)
            ;
}

call::~call()
{
    if (--w.depth == 0)
        shut_memory();
    w.lock.unlock();
}

bool deferred()
{
    return w.deferred;
}

bool executing()
{
    return inside;
}

int current_device()
{
    return device;
}

cudaError_t fault(cudaError_t e, const char *format, ...)
{
    if (w.fault)
        return w.fault;
    va_list args;
    va_start(args, format);
    vsnprintf(w.words, sizeof w.words, format, args);
    va_end(args);
    return w.fault = w.worded = e;
}

cudaError_t sticky()
{
    return w.deferred ? w.fault : cudaSuccess;
}

cudaError_t refuse(cudaError_t e)
{
    return last = e;
}

void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "emulated CUDA: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    abort();
}

cudaError_t queue(cudaStream_t stream, const operation &o)
{
    CUstream_st *s = find(stream);
    if (!s)
        return bad_handle();
    if (sticky())
        return sticky();
    if (captures(stream))
        return capture(stream, o, strstr(o.what, "event") != nullptr);
    w.counts[o.what]++;
    if (w.deferred)
        enter(s, o);
    else if (!o.run())
        return fault(cudaErrorLaunchTimeout, "a %s would block, and operations are not deferred", o.what);
    return cudaSuccess;
}

bool finish_device(int d)
{
    std::vector<std::pair<CUstream_st *, uint64_t>> all;
    for (CUstream_st *s : w.busy)
        if (s->device == d)
            all.push_back({s, s->issued});
    return until(
        [&] { return std::all_of(all.begin(), all.end(), [](const auto &p) { return p.first->done >= p.second; }); });
}

static bool finish_stream(cudaStream_t stream)
{
    CUstream_st *s = find(stream);
    const uint64_t issued = s ? s->issued : 0;
    return !s || until([&] { return s->done >= issued; });
}

bool is_idle(cudaStream_t stream)
{
    const CUstream_st *s = find(stream);
    return s && s->queued.empty();
}

const char *blocked()
{
    return w.blocked;
}

void patience(unsigned milliseconds)
{
    const call c;
    w.naps = milliseconds / (unsigned)NAP.count();
}

void captured_elsewhere(bool on)
{
    elsewhere = on;
}

bool ends_capture(const char *name)
{
    if (mode != cudaStreamCaptureModeGlobal)
        return false;
    if (elsewhere)
        fault(cudaErrorStreamCaptureUnsupported, "%s ends a capture in another thread", name);
    return breaks_capture(nullptr) || elsewhere;
}

size_t defer(uint64_t seed)
{
    const call c;
    if (inside)
        die("an operation must not call defer");
    size_t forgotten = 0;
    for (CUstream_st *s : w.busy) {
        forgotten += s->queued.size();
        s->done += s->queued.size();
        s->queued.clear();
    }
    w.busy.clear();
    w.deferred = true;
    w.seed = w.random = seed;
    w.fault = last = cudaSuccess;
    watch_memory();
    return forgotten;
}

void enqueue(cudaStream_t stream, std::function<bool()> run)
{
    const call c;
    CUstream_st *s = find(stream);
    if (!s)
        die("an operation for a handle that is not a stream");
    const operation o = {"foreign operation", std::move(run)};
    if (w.deferred)
        enter(s, o);
    else
        queue(stream, o);
}

cudaError_t allow_shared(const void *kernel, int bytes)
{
    const call c;
    if (bytes < 0 || (unsigned)bytes > SHARED_MOST)
        return refuse(cudaErrorInvalidValue);
    w.shared[{device, kernel}] = (unsigned)bytes;
    return cudaSuccess;
}

cudaError_t enqueue_kernel(const shape &l, cudaStream_t stream, std::function<bool()> run)
{
    const call c;
    const CUstream_st *s = find(stream);
    if (s && s->device != device)
        return refuse(cudaErrorInvalidResourceHandle);
    if (!lacking(l.x, l.y, l.threads, 0).empty())
        return refuse(cudaErrorInvalidConfiguration);
    const auto allowed = w.shared.find({device, l.kernel});
    if (l.shared > (allowed == w.shared.end() ? SHARED_UNASKED : allowed->second))
        return refuse(cudaErrorInvalidValue);
    return queue(stream, {"kernel", [run] {
                              if (!run())
                                  fault(cudaErrorLaunchFailure, "%s", error());
                              return true;
                          }});
}

uint64_t operations(const char *kind)
{
    const call c;
    return w.counts[kind];
}

void hang(const char *kind, int on)
{
    const call c;
    w.hung = kind;
    w.hung_device = on;
}

bool step()
{
    const std::lock_guard<std::recursive_mutex> held(w.lock);
    w.depth++;
    const bool happened = execute();
    if (--w.depth == 0)
        shut_memory();
    return happened;
}

bool settle()
{
    const call c;
    return until([] { return w.busy.empty(); });
}

} // namespace emu

using emu::call;

cudaError_t cudaGetLastError(void)
{
    const call c;
    const cudaError_t e = w.fault ? w.fault : last;
    last = cudaSuccess;
    if (!w.deferred)
        w.fault = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void)
{
    const call c;
    return w.fault ? w.fault : last;
}

#define EMU_ERROR_CASE(name, value, words)                                                                             \
    case name: *text = words; return #name;

static const char *look_up(cudaError_t e, const char **text)
{
    switch (e) {
        EMU_ERRORS(EMU_ERROR_CASE)
    default: *text = "unrecognized error code"; return *text;
    }
}

const char *cudaGetErrorString(cudaError_t e)
{
    const call c;
    const char *text;
    look_up(e, &text);
    return e != cudaSuccess && e == w.worded ? w.words : text;
}

const char *cudaGetErrorName(cudaError_t e)
{
    const char *text;
    return look_up(e, &text);
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = DEVICES;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *d)
{
    *d = device;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int d)
{
    const call c;
    if (d < 0 || d >= DEVICES)
        return emu::refuse(cudaErrorInvalidDevice);
    device = d;
    return emu::sticky();
}

static int multiprocessor_count = 1;

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int d)
{
    const call c;
    if (!p || d < 0 || d >= DEVICES)
        return emu::refuse(cudaErrorInvalidDevice);
    *p = {"no GPU: an emulator", 9, 0, multiprocessor_count, 0};
    return cudaSuccess;
}

void emu::multiprocessors(int count)
{
    const call c;
    multiprocessor_count = count;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int d)
{
    const call c;
    if (d < 0 || d >= DEVICES)
        return emu::refuse(cudaErrorInvalidDevice);
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = multiprocessor_count; return cudaSuccess;
    case cudaDevAttrUnifiedAddressing: *value = 1; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; return cudaSuccess;
    }
    return emu::refuse(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceSynchronize(void)
{
    const call c;
    if (emu::ends_capture("cudaDeviceSynchronize"))
        return cudaErrorStreamCaptureUnsupported;
    return waited(emu::finish_device(device));
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    const call c;
    if (!stream || flags > cudaStreamNonBlocking)
        return emu::refuse(cudaErrorInvalidValue);
    if (emu::sticky())
        return emu::sticky();
    *stream = make_stream();
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    const call c;
    CUstream_st *s = stream ? find(stream) : nullptr;
    if (!s)
        return bad_handle();
    s->destroyed = true;
    return emu::sticky();
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *m)
{
    const call c;
    if (!m || *m > cudaStreamCaptureModeRelaxed)
        return emu::refuse(cudaErrorInvalidValue);
    std::swap(*m, mode);
    return emu::sticky();
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    const call c;
    *status = emu::captures(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return find(stream) ? emu::sticky() : bad_handle();
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    const call c;
    if (emu::ends_capture("cudaStreamQuery") || (stream && emu::breaks_capture(stream)))
        return cudaErrorStreamCaptureUnsupported;
    const CUstream_st *s = find(stream);
    return s ? queried(s->queued.empty()) : bad_handle();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    const call c;
    if (emu::ends_capture("cudaStreamSynchronize") || (stream && emu::breaks_capture(stream)))
        return cudaErrorStreamCaptureUnsupported;
    return find(stream) ? waited(emu::finish_stream(stream)) : bad_handle();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    const call c;
    const CUevent_st *e = find(event);
    if (!e)
        return bad_handle();
    if (flags)
        return emu::refuse(cudaErrorInvalidValue);
    const std::shared_ptr<bool> happened = e->happened;
    return emu::queue(stream, {"wait for an event", [happened] { return !happened || *happened; }});
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    const call c;
    if (!event || flags > (cudaEventBlockingSync | cudaEventDisableTiming))
        return emu::refuse(cudaErrorInvalidValue);
    if (emu::sticky())
        return emu::sticky();
    *event = keep(w.events, new CUevent_st{device, false, nullptr, nullptr});
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    const call c;
    CUevent_st *e = find(event);
    const CUstream_st *s = find(stream);
    if (!e || !s || e->device != s->device)
        return bad_handle();
    const std::shared_ptr<bool> happened = std::make_shared<bool>(false);
    const auto when = std::make_shared<std::chrono::steady_clock::time_point>();
    const cudaError_t error = emu::queue(stream, {"record of an event", [happened, when] {
                                                      *when = std::chrono::steady_clock::now();
                                                      return *happened = true;
                                                  }});
    if (!error)
        e->happened = happened, e->when = when;
    return error;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    const call c;
    const CUevent_st *from = find(begin), *to = find(end);
    if (!from || !to || !from->happened || !to->happened)
        return bad_handle();
    if (!ms)
        return emu::refuse(cudaErrorInvalidValue);
    if (!*from->happened || !*to->happened)
        return cudaErrorNotReady;
    *ms = std::chrono::duration<float, std::milli>(*to->when - *from->when).count();
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    const call c;
    if (emu::ends_capture("cudaEventQuery"))
        return cudaErrorStreamCaptureUnsupported;
    const CUevent_st *e = find(event);
    return e ? queried(!e->happened || *e->happened) : bad_handle();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    const call c;
    if (emu::ends_capture("cudaEventSynchronize"))
        return cudaErrorStreamCaptureUnsupported;
    const CUevent_st *e = find(event);
    if (!e)
        return bad_handle();
    const std::shared_ptr<bool> happened = e->happened;
    return waited(until([&] { return !happened || *happened; }));
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    const call c;
    CUevent_st *e = find(event);
    if (!e)
        return bad_handle();
    e->destroyed = true;
    return emu::sticky();
}
