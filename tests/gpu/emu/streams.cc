/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Tests of the emulated CUDA runtime: its streams do what a GPU's do, and it rejects faulty host code, each with the
 * right message. The last line is "N passed, N failed". */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "cuda_graphs.h"
#include "cuda_runtime.h"
#include "streams_c.h"
#include "tally.h"

using namespace pici;

static const uint64_t SEEDS = 200;

static bool worded(cudaError_t e, const char *words)
{
    return e && strstr(cudaGetErrorString(e), words);
}

/* The call fails with this message, and so do all later calls. */
static void stays(const char *what, cudaError_t e, const char *why)
{
    void *p = nullptr;
    tally(worded(e, why), what, cudaGetErrorString(e));
    tally(cudaGetLastError() == e && cudaGetLastError() == e && cudaStreamQuery(nullptr) == e &&
              cudaStreamSynchronize(nullptr) == e && cudaMalloc(&p, 1) == e && !p,
          what, "the failure does not persist");
    emu::defer(1);
    tally(cudaGetLastError() == cudaSuccess, what, "the failure is still there after defer");
}

/* The function ends the program with this message. */
template <class F> static void ends(const char *what, const char *why, F f)
{
    int ends[2];
    if (pipe(ends))
        abort();
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        alarm(60);
        f();
        _exit(0);
    }
    close(ends[1]);
    std::string said;
    char text[1000];
    for (ssize_t n; (n = read(ends[0], text, sizeof text)) > 0;)
        said.append(text, (size_t)n);
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    tally(child > 0 && status != 0 && said.find(why) != std::string::npos, what, said.c_str());
}

struct things {
    cudaStream_t a, b;
    cudaEvent_t e;
    uint32_t *host, *device; /* a page each */
    things()
    {
        if (cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking) ||
            cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking) ||
            cudaEventCreateWithFlags(&e, cudaEventDisableTiming) || cudaMallocHost((void **)&host, 4096) ||
            cudaMalloc((void **)&device, 4096))
            tally(false, "making things", cudaGetErrorString(cudaPeekAtLastError()));
    }
    ~things()
    {
        cudaFree(device);
        cudaFreeHost(host);
    }
};

static void nothing_deferred()
{
    tally(there_and_back(1000, 0) == 1 && there_and_back(1000, ALL_OF_IT) == 1, "all operations ran", "they did not");
    things t;
    int n = 0;
    emu::enqueue(t.a, [&] { return ++n; });
    tally(n == 1 && cudaStreamQuery(t.a) == cudaSuccess && cudaEventRecord(t.e, t.a) == cudaSuccess &&
              cudaEventQuery(t.e) == cudaSuccess && !emu::step() && emu::settle(),
          "an operation ran", "it did not");
    emu::enqueue(t.a, [] { return false; });
    tally(worded(cudaStreamSynchronize(t.a), "would block") && cudaGetLastError() == cudaSuccess,
          "an operation that cannot run is a failure, once", "");
}

/* The result is right for every seed, or wrong for some. */
static void by_seed(const char *what, int which, bool right)
{
    uint64_t arrived = 0, broke = 0;
    for (uint64_t s = 1; s <= SEEDS; s++) {
        tally(emu::defer(s) == 0, what, "something was left");
        const int good = there_and_back(100, which);
        arrived += good == 1;
        broke += good < 0;
    }
    tally(broke == 0 && (right ? arrived == SEEDS : arrived < SEEDS), what, std::to_string(arrived).c_str());
}

static void order()
{
    by_seed("there and back", ALL_OF_IT, true);
    by_seed("no wait for the event", ALL_OF_IT & ~WAIT, false);
    by_seed("an event that is recorded too early", ALL_OF_IT & ~RECORD_LAST, false);
    by_seed("no wait for the stream", ALL_OF_IT & ~SYNCHRONIZE, false);
    by_seed("a source that is written while it is being sent", ALL_OF_IT & ~KEEP_SOURCE, false);
}

static void events()
{
    for (uint64_t s = 1; s <= SEEDS / 10; s++) {
        emu::defer(s);
        things t;
        tally(cudaEventQuery(t.e) == cudaSuccess && cudaEventSynchronize(t.e) == cudaSuccess &&
                  cudaStreamWaitEvent(t.a, t.e, 0) == cudaSuccess && cudaStreamSynchronize(t.a) == cudaSuccess,
              "an event that was never recorded has happened", "");
        bool first = false, second = false;
        emu::enqueue(t.a, [&] { return first; });
        cudaEventRecord(t.e, t.a);
        cudaStreamWaitEvent(t.b, t.e, 0);
        emu::enqueue(t.a, [&] { return second; });
        cudaEventRecord(t.e, t.a);
        tally(!emu::settle() && cudaStreamQuery(t.b) == cudaErrorNotReady, "a wait for a record to come", "");
        tally(cudaGetLastError() == cudaErrorNotReady && cudaGetLastError() == cudaSuccess, "not ready is an error",
              "");
        first = true;
        tally(cudaStreamSynchronize(t.b) == cudaSuccess && cudaEventQuery(t.e) == cudaErrorNotReady,
              "recorded twice: a wait is for the record before it, the event for the last", "");
        second = true;
        tally(cudaEventSynchronize(t.e) == cudaSuccess && cudaEventQuery(t.e) == cudaSuccess && emu::settle(),
              "recorded twice: both", "");
        cudaGetLastError();
    }
}

static void blocked()
{
    const auto never = [] { return false; };
    emu::defer(1);
    things t;
    emu::enqueue(t.a, never);
    stays("a stream that is blocked for ever", cudaStreamSynchronize(t.a), "blocked for ever");
    emu::enqueue(t.a, never);
    cudaEventRecord(t.e, t.a);
    stays("an event behind what is blocked for ever", cudaEventSynchronize(t.e), "blocked for ever");
    emu::enqueue(t.a, never);
    stays("a device that is blocked for ever", cudaDeviceSynchronize(), "blocked for ever");
    emu::enqueue(nullptr, never);
    stays("a copy behind what is blocked for ever", cudaMemcpy(t.host, t.device, 4, cudaMemcpyDefault), "blocked for");

    bool open = false;
    emu::enqueue(t.a, [&] { return open; });
    cudaEventRecord(t.e, t.a);
    cudaStreamWaitEvent(t.b, t.e, 0);
    cudaMemsetAsync(t.device, 1, 4, t.b);
    tally(!emu::step() && !emu::settle() && cudaGetLastError() == cudaSuccess, "no operation is ready", "one was");
    tally(emu::defer(2) == 4, "defer clears the queues", "not all of them");
    tally(cudaStreamSynchronize(t.b) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess, "and blocks nothing",
          "");
    unsigned tries = 0;
    emu::enqueue(t.a, [&] { return ++tries == 20; });
    tally(cudaStreamSynchronize(t.a) == cudaSuccess && tries == 20, "an operation is tried until it happens", "");

    ends("memory freed, and its device is blocked", "blocked for ever", [&] {
        emu::enqueue(t.a, never);
        cudaFree(t.device);
    });
    ends("pinned memory freed, and its device is blocked", "blocked for ever", [&] {
        emu::enqueue(t.a, never);
        cudaFreeHost(t.host);
    });
    ends("an operation that waits", "must not wait", [&] {
        emu::enqueue(t.a, [&] { return cudaStreamSynchronize(t.b) == cudaSuccess; });
        emu::settle();
    });
    bool happened = false;
    cudaMallocHost((void **)&t.device, 8);
    emu::enqueue(t.a, [&] { return happened = true; });
    tally(cudaFreeHost(t.device) == cudaSuccess && happened, "freeing waits for what is queued", "");
    cudaMalloc((void **)&t.device, 8);
    cudaSetDevice(1);
    cudaMemsetAsync(t.device, 1, 8);
    emu::enqueue(nullptr, never);
    cudaSetDevice(0);
    tally(cudaFree(t.device) == cudaSuccess && !emu::settle(), "freeing does not wait for another device", "");
    for (const bool copy : {false, true}) {
        emu::defer(1);
        cudaMalloc((void **)&t.device, 8);
        cudaSetDevice(1);
        open = false;
        emu::enqueue(nullptr, [&] { return open; });
        if (copy)
            cudaMemcpyAsync(t.host, t.device, 8, cudaMemcpyDefault);
        else
            cudaMemsetAsync(t.device, 1, 8);
        cudaSetDevice(0);
        tally(cudaFree(t.device) == cudaSuccess && !emu::settle(), "even for one that uses the memory", "");
        open = true;
        tally(emu::settle(), "which then makes progress", "blocked");
        stays("memory that was freed before it is used", cudaGetLastError(), "freed before");
    }
    t.device = nullptr;
}

/* Another thread captures: what would end that fails, in every mode but the relaxed one and that of the thread. */
static void captures()
{
    emu::defer(1);
    things t;
    const auto each = [&](bool good) {
        const auto call = [&](const char *what, auto f) {
            emu::captured_elsewhere(true);
            const cudaError_t e = f();
            emu::captured_elsewhere(false);
            tally(good ? !e || e == cudaErrorNotReady : worded(e, "ends a capture"), what, cudaGetErrorString(e));
            cudaGetLastError();
            if (!good)
                emu::defer(1);
        };
        void *p = nullptr;
        call("a query of an event and a capture", [&] { return cudaEventQuery(t.e); });
        call("a wait for an event and a capture", [&] { return cudaEventSynchronize(t.e); });
        call("a query of a stream and a capture", [&] { return cudaStreamQuery(t.a); });
        call("a wait for a stream and a capture", [&] { return cudaStreamSynchronize(t.a); });
        call("a wait for a device and a capture", [&] { return cudaDeviceSynchronize(); });
        call("an allocation and a capture", [&] { return cudaMalloc(&p, 8); });
        tally(!p == !good, "an allocation and a capture", "and memory");
        if (!good)
            cudaMalloc(&p, 8);
        call("freeing and a capture", [&] { return cudaFree(p); });
        if (!good)
            cudaFree(p);
        call("pinned memory and a capture", [&] { return cudaHostAlloc(&p, 8, cudaHostAllocDefault); });
        if (!good)
            cudaHostAlloc(&p, 8, cudaHostAllocDefault);
        call("freeing pinned memory and a capture", [&] { return cudaFreeHost(p); });
        if (!good)
            cudaFreeHost(p);
    };
    each(false);
    for (const cudaStreamCaptureMode mode : {cudaStreamCaptureModeRelaxed, cudaStreamCaptureModeThreadLocal}) {
        cudaStreamCaptureMode m = mode;
        tally(!cudaThreadExchangeStreamCaptureMode(&m) && m == cudaStreamCaptureModeGlobal, "a mode",
              "not the one before");
        each(true);
        tally(!cudaThreadExchangeStreamCaptureMode(&m) && m == mode, "a mode again", "not the one before");
    }
    each(false);
}

static void memory()
{
    emu::defer(5);
    things t;
    uint32_t here[4] = {1, 2, 3, 4};
    volatile uint32_t *device = t.device;
    ends("host code that reads device memory", "host code touches byte 4 of a buffer of 4096",
         [&] { t.host[0] = device[1]; });
    ends("host code that writes device memory", "host code touches byte 8 of a buffer of 4096", [&] { device[2] = 1; });
    ends("the same while others use it", "host code touches byte 0 of", [&] {
        emu::enqueue(t.a, [&] {
            t.device[0] = 7;
            return true;
        });
        emu::settle();
        device[0] = 1;
    });
    ends("beyond device memory", "an operation touches byte 4096 of", [&] {
        emu::enqueue(t.a, [&] { return device[1024] != 0; });
        emu::settle();
    });
    ends("memory freed twice", "was not allocated", [&] {
        cudaFree(t.device);
        cudaFree(t.device);
    });
    ends("pinned memory freed as if it was the device's", "was not allocated", [&] { cudaFree(t.host); });

    tally(cudaMemcpyAsync(t.device, here, sizeof here, cudaMemcpyDefault, t.b) == cudaSuccess,
          "a copy from pageable memory, with nothing to wait for", "");
    cudaStreamSynchronize(t.b);
    emu::enqueue(t.a, [] { return false; }); /* until the next defer */
    stays("a copy from pageable memory", cudaMemcpyAsync(t.device, here, sizeof here, cudaMemcpyDefault, t.a),
          "not pinned: waits for the stream");
    emu::enqueue(t.a, [] { return false; });
    stays("a copy to pageable memory", cudaMemcpyAsync(here, t.device, sizeof here, cudaMemcpyDeviceToHost, t.a),
          "not pinned: waits for the stream");
    tally(cudaMemcpy(t.device, here, sizeof here, cudaMemcpyHostToDevice) == cudaSuccess &&
              cudaMemcpy(here + 1, t.device, 4, cudaMemcpyDefault) == cudaSuccess && here[1] == 1 && here[2] == 3,
          "pageable memory, and waiting", "");
    stays("a copy from beyond a buffer", cudaMemcpyAsync(t.host, t.device + 1, 4096, cudaMemcpyDefault, t.a),
          "not within a buffer");
    stays("a copy to before a buffer", cudaMemcpyAsync(t.device - 1, t.host, 8, cudaMemcpyDefault, t.a),
          "not within a buffer");
    stays("a copy beyond pinned memory", cudaMemcpy(t.host + 1023, t.device, 5, cudaMemcpyDefault),
          "not within a buffer");
    stays("a copy onto itself", cudaMemcpyAsync(t.device + 1, t.device, 8, cudaMemcpyDefault, t.a), "overlap");
    stays("a fill beyond a buffer", cudaMemsetAsync(t.device, 0, 4097, t.a), "not within a buffer");
    stays("a fill of pageable memory", cudaMemsetAsync(here, 0, 4, t.a), "not in a buffer");
    stays("a copy in another direction", cudaMemcpyAsync(t.device, t.host, 4, cudaMemcpyDeviceToHost, t.a),
          "from host to device");
    {
        void *p;
        cudaMalloc(&p, 41);
        cudaMemsetAsync(p, 0, 41, t.a);
#ifndef EMU_ASAN /* it would end the program */
        emu::enqueue(t.a, [p] {
            ((volatile uint8_t *)p)[41] = 1;
            return true;
        });
        stays("a byte written beyond a buffer", cudaFree(p), "written outside a buffer of 41 bytes, at 41");
#else
        cudaFree(p);
#endif
    }

    struct cudaPointerAttributes a;
    tally(cudaPointerGetAttributes(&a, t.device + 1) == cudaSuccess && a.type == cudaMemoryTypeDevice &&
              a.devicePointer == t.device + 1 && !a.hostPointer && a.device == 0,
          "attributes of device memory", "");
    tally(cudaPointerGetAttributes(&a, t.host) == cudaSuccess && a.type == cudaMemoryTypeHost &&
              a.hostPointer == t.host,
          "attributes of pinned memory", "");
    tally(cudaPointerGetAttributes(&a, here) == cudaSuccess && a.type == cudaMemoryTypeUnregistered &&
              a.hostPointer == here && !a.devicePointer,
          "attributes of other memory", "");
    tally(emu::is_device(t.device, 4096) && emu::is_device(t.device + 1024, 0) && !emu::is_device(t.device + 1, 4096) &&
              !emu::is_device(t.host, 4) && !emu::is_device(here, 4) && !emu::is_device(nullptr, 0),
          "is_device", "");
}

static void handles()
{
    for (unsigned which = 0; which < 5; which++) {
        emu::defer(which);
        things t;
        bool happened = false;
        emu::enqueue(t.a, [&] { return happened = true; });
        cudaEventRecord(t.e, t.a);
        cudaStreamWaitEvent(t.b, t.e, 0);
        if (which < 3)
            cudaStreamDestroy(t.a);
        else
            cudaEventDestroy(t.e);
        const cudaError_t e = which == 0   ? cudaMemsetAsync(t.device, 0, 1, t.a)
                              : which == 1 ? cudaStreamQuery(t.a)
                              : which == 2 ? cudaStreamDestroy(t.a)
                              : which == 3 ? cudaEventRecord(t.e, t.b)
                                           : cudaStreamWaitEvent(t.b, t.e, 0);
        tally(emu::settle() && happened, "what is queued in a stream that is destroyed happens", "it does not");
        stays("a handle that was destroyed", e, "destroyed is used");
    }
    cudaStream_t none = (cudaStream_t)&none;
    tally(cudaStreamQuery(none) == cudaErrorInvalidResourceHandle &&
              cudaGetLastError() == cudaErrorInvalidResourceHandle && cudaGetLastError() == cudaSuccess,
          "no handle", "");
    tally(cudaEventQuery(nullptr) == cudaErrorInvalidResourceHandle && cudaGetLastError(), "no event", "");
    tally(!strcmp(cudaGetErrorName(cudaErrorNotReady), "cudaErrorNotReady") &&
              !strcmp(cudaGetErrorString(cudaErrorNotReady), "device not ready"),
          "names of errors", cudaGetErrorName(cudaErrorNotReady));
}

struct addends {
    uint32_t *sum;
    const uint32_t *x;
    uint32_t n, more;
};

static void add(addends a)
{
    for (uint32_t i = hw::thread(); i < a.n; i += hw::threads())
        hw::store(a.sum + i, hw::load(a.sum + i) + hw::load(a.x + i) + a.more);
}

static void misaligned(addends a)
{
    hw::load((const uint32_t *)((const uint8_t *)a.x + 1));
}

static cudaError_t launch(void (*kernel)(addends), unsigned threads, const addends &a, cudaStream_t stream)
{
    void *args[] = {(void *)&a};
    return cudaLaunchKernel(kernel, dim3(1), dim3(threads), args, 0, stream);
}

/* The launch itself is refused, and what follows is not. */
static void limits()
{
    emu::defer(7);
    things t;
    addends a = {t.device, t.host, 100, 1};
    const auto most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    void *args[] = {&a};
    const auto with = [&](unsigned y, unsigned threads, size_t shared) {
        return cudaLaunchKernel(add, dim3(1, y), dim3(threads), args, shared, t.a);
    };
    tally(!with(1, 64, 48 << 10), "48 KiB of shared memory", "refused");
    tally(with(1, 64, (48 << 10) + 1) == cudaErrorInvalidValue && cudaGetLastError() == cudaErrorInvalidValue,
          "shared memory that nobody asked for", "not refused");
    tally(!cudaFuncSetAttribute((const void *)add, most, 100 << 10) && !with(1, 64, 100 << 10), "100 KiB, asked for",
          "refused");
    tally(with(1, 64, (100 << 10) + 1) == cudaErrorInvalidValue, "more than was asked for", "not refused");
    tally(cudaFuncSetAttribute((const void *)add, most, (163 << 10) + 1) == cudaErrorInvalidValue, "more than there is",
          "allowed");
    cudaSetDevice(1);
    cudaStream_t there;
    cudaStreamCreateWithFlags(&there, cudaStreamNonBlocking);
    tally(cudaLaunchKernel(add, dim3(1), dim3(64), args, 100 << 10, there) == cudaErrorInvalidValue,
          "asked for on another device", "not refused");
    cudaStreamDestroy(there);
    cudaSetDevice(0);
    tally(with(1, 1025, 0) == cudaErrorInvalidConfiguration && with(65536, 64, 0) == cudaErrorInvalidConfiguration &&
              with(0, 64, 0) == cudaErrorInvalidConfiguration,
          "too many threads or thread blocks", "not refused");
    (void)cudaGetLastError();
    tally(!with(1, 64, 0) && !cudaStreamSynchronize(t.a), "after launches that were refused", "fails");
}

static void kernels()
{
    for (uint64_t s = 1; s <= SEEDS / 10; s++) {
        emu::defer(s);
        things t;
        for (uint32_t i = 0; i < 100; i++)
            t.host[i] = i;
        cudaMemcpyAsync(t.device, t.host, 400, cudaMemcpyHostToDevice, t.a);
        addends a = {t.device, t.host, 100, 1};
        launch(add, 64, a, t.a);
        a.more = 1000; /* too late */
        cudaMemcpyAsync(t.host + 500, t.device, 400, cudaMemcpyDeviceToHost, t.a);
        tally(cudaStreamSynchronize(t.a) == cudaSuccess && t.host[500] == 1 && t.host[599] == 199,
              "a kernel's arguments are those of its launch", std::to_string(t.host[599]).c_str());
        cudaSetDevice(3);
        tally(launch(add, 64, a, t.a) == cudaErrorInvalidResourceHandle &&
                  cudaEventRecord(t.e, nullptr) == cudaErrorInvalidResourceHandle,
              "a stream of another device", "not refused");
        cudaSetDevice(0);
        tally(launch(misaligned, 32, a, t.a) == cudaSuccess, "a kernel fails after its launch", "before");
        stays("a kernel that fails", cudaStreamSynchronize(t.a), "not aligned");
    }
    limits();
    tally(cudaSetDevice(-1) == cudaErrorInvalidDevice && cudaSetDevice(1 << 20) == cudaErrorInvalidDevice &&
              cudaGetLastError() == cudaErrorInvalidDevice,
          "no device", "");
}

/* Each rank runs on its own thread. In each round, the operations of a rank's stream depend on those of its
 * neighbour's. */
static void threads()
{
    enum { RANKS = 4, ROUNDS = 50 };
    emu::defer(11);
    unsigned done[RANKS] = {0};
    bool good[RANKS] = {false};
    std::vector<std::thread> ranks;
    for (int r = 0; r < RANKS; r++)
        ranks.emplace_back([&, r] {
            cudaSetDevice(r);
            things t;
            bool all = true;
            for (uint32_t k = 1; k <= ROUNDS; k++) {
                t.host[0] = k;
                cudaMemcpyAsync(t.device, t.host, 4, cudaMemcpyHostToDevice, t.a);
                emu::enqueue(t.a, [&, r, k] {
                    const unsigned left = done[(r + RANKS - 1) % RANKS];
                    if (r && left < k)
                        return false;
                    done[r] = k;
                    return true;
                });
                cudaMemcpyAsync(t.host + 1, t.device, 4, cudaMemcpyDeviceToHost, t.a);
                all &= k % 5 ? cudaStreamSynchronize(t.a) == cudaSuccess : true;
                while (cudaStreamQuery(t.a) == cudaErrorNotReady)
                    std::this_thread::yield();
                all &= t.host[1] == k;
            }
            good[r] = all;
        });
    for (std::thread &rank : ranks)
        rank.join();
    for (int r = 0; r < RANKS; r++)
        tally(good[r] && done[r] == ROUNDS, "ranks on threads", cudaGetErrorString(cudaPeekAtLastError()));

    emu::patience(100);
    std::atomic<int> stage(0);
    std::thread other([&] {
        cudaSetDevice(1);
        cudaStreamQuery(nullptr); /* two threads have called from now on */
        stage = 1;
        for (unsigned i = 0; i < 6; i++) { /* longer than patience, but with progress */
            usleep(40000);
            emu::enqueue(nullptr, [] { return true; });
        }
        stage = 2;
        while (stage < 3)
            usleep(1000);
    });
    while (stage == 0)
        usleep(1000);
    emu::enqueue(nullptr, [&] { return stage == 2; });
    tally(cudaStreamSynchronize(nullptr) == cudaSuccess, "what another thread lets happen, late", "blocked");
    emu::enqueue(nullptr, [&] { return stage == 3; });
    tally(worded(cudaStreamSynchronize(nullptr), "blocked for ever"), "what another thread does not let happen", "");
    stage = 3;
    other.join();
    tally(emu::settle(), "what it lets happen in the end", "blocked");
}

/* What is captured runs with each launch of its graph, and only then; calls that would end the capture do. */
static void graphs()
{
    emu::defer(1);
    things t;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaStreamCaptureStatus status;
    cudaMemsetAsync(t.device, 1, 4096, t.a);
    tally(emu::settle(), "before a capture", "blocked");
    tally(!cudaStreamBeginCapture(t.a, cudaStreamCaptureModeGlobal), "a capture", "refused");
    tally(!cudaStreamIsCapturing(t.a, &status) && status == cudaStreamCaptureStatusActive, "a captured stream",
          "is not");
    tally(!cudaStreamIsCapturing(t.b, &status) && status == cudaStreamCaptureStatusNone, "another stream", "is too");
    const uint64_t before = emu::operations("copy");
    cudaMemcpyAsync(t.host, t.device, 4, cudaMemcpyDeviceToHost, t.a);
    cudaMemsetAsync(t.device, 2, 4096, t.a);
    tally(!cudaStreamEndCapture(t.a, &graph) && graph, "a capture's end", "no graph");
    *t.host = 0;
    tally(emu::settle() && *t.host == 0 && emu::operations("copy") == before, "what is captured", "ran");
    tally(!cudaGraphInstantiate(&executable, graph, 0) && !cudaGraphDestroy(graph), "a graph", "is not");
    for (uint32_t value : {0x01010101u, 0x02020202u}) {
        tally(!cudaGraphLaunch(executable, t.b), "a graph's launch", "refused");
        tally(!cudaStreamSynchronize(t.b) && *t.host == value, "a graph's launch", "other bytes");
    }
    cudaGraphExecDestroy(executable);
    const auto ended = [&](const char *what, auto f) {
        cudaStreamBeginCapture(t.a, cudaStreamCaptureModeGlobal);
        f();
        tally(cudaStreamEndCapture(t.a, &graph) == cudaErrorStreamCaptureInvalidated && !graph, what, "in a graph");
        cudaGetLastError();
    };
    void *memory = nullptr;
    ended("a wait in a capture", [&] { cudaStreamSynchronize(t.a); });
    ended("a query in a capture", [&] { cudaStreamQuery(t.a); });
    ended("a wait for another stream", [&] { cudaStreamSynchronize(t.b); });
    ended("an allocation in a capture", [&] { cudaMalloc(&memory, 8); });
    ended("an event in a capture", [&] { cudaEventRecord(t.e, t.a); });
    tally(!memory && emu::settle(), "after a capture that was ended", "memory");
}

int main(void)
{
    nothing_deferred();
    order();
    events();
    blocked();
    captures();
    graphs();
    memory();
    handles();
    kernels();
    threads();
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
