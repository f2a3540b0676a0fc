/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives over NCCL among processes of this host, which share its GPUs, or its one GPU. NCCL refuses two ranks of
 * one host on one GPU, so each process says that it is a host of its own (NCCL_HOSTID), and NCCL goes through sockets.
 * First it compares every result with the ranks' elements. Then it times calls beside NCCL's own on the same dense
 * elements. It prints the wire ratio: bytes of the messages if all were dense, divided by the sent bytes. Exit status
 * 77: no GPU.
 *   nccl_fork [--ranks N] [--quick | --mib N] [--json]
 * 2 ranks; calls of up to 256 MiB are timed, with --quick 4 MiB, with --mib N; --json: a line of JSON for each. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pici/cuda.h"
#include "pici/nccl.h"

enum { RANKS_MOST = 8, TIMES = 9, NO_GPU = 77, SECONDS = 540 };

/* What the processes share. */
struct shared {
    pthread_barrier_t all;
    ncclUniqueId id;
    unsigned passed[RANKS_MOST];
    double seconds[RANKS_MOST];
    uint64_t wire[RANKS_MOST],
        dense[RANKS_MOST]; /* bytes that each rank sent in the last call, and if all were dense */
};

struct rank {
    struct shared *shared;
    int rank, ranks;
    ncclComm_t nccl;
    struct pici_comm *comm;
    cudaStream_t stream;
    void *send, *recv, *host;
};

static const char *const names[] = {
    [PICI_ALL_GATHER] = "all-gather", [PICI_REDUCE_SCATTER] = "reduce-scatter", [PICI_ALL_REDUCE] = "all-reduce"};
static int json;

/* Say what is wrong, and end this process; the parent sees it and ends the others. */
__attribute__((format(printf, 2, 3), noreturn)) static void die(const struct rank *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "FAIL rank %d: ", r->rank);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    _exit(1);
}

static void cuda(const struct rank *r, cudaError_t e, const char *what)
{
    if (e)
        die(r, "%s: %s", what, cudaGetErrorString(e));
}

static void nccl(const struct rank *r, ncclResult_t e, const char *what)
{
    if (e != ncclSuccess)
        die(r, "%s: %s: %s", what, ncclGetErrorString(e), ncclGetLastError(NULL));
}

static void meet(const struct rank *r)
{
    pthread_barrier_wait(&r->shared->all);
}

/* A rank's element: small, so that sums are exact in bf16. zeros: of 1000 elements so many are 0. */
static int element(int rank, uint64_t i, unsigned zeros)
{
    uint64_t z = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)rank * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 29) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 32;
    return z % 1000 < zeros ? 0 : (int)(z >> 20 & 15) + 1;
}

static void put(void *to, uint64_t i, enum pici_dtype dtype, int v)
{
    const float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (dtype == PICI_BF16)
        ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
    else
        ((uint32_t *)to)[i] = dtype == PICI_F32 ? bits : (uint32_t)v;
}

static void fill(const struct rank *r, uint64_t count, enum pici_dtype dtype, unsigned zeros)
{
    for (uint64_t i = 0; i < count; i++)
        put(r->host, i, dtype, element(r->rank, i, zeros));
    cuda(r, cudaMemcpyAsync(r->send, r->host, count * pici_dtype_width(dtype), cudaMemcpyHostToDevice, r->stream),
         "cudaMemcpyAsync");
    cuda(r, cudaStreamSynchronize(r->stream), "cudaStreamSynchronize");
}

static int all_reduced(const struct rank *r, uint64_t i, unsigned zeros, enum pici_op op)
{
    int v = element(0, i, zeros);
    for (int k = 1; k < r->ranks; k++) {
        const int x = element(k, i, zeros);
        v = op == PICI_SUM ? v + x : v > x ? v : x;
    }
    return v;
}

/* One call of each collective, and its result. */
static void check(const struct rank *r, uint64_t count, enum pici_dtype dtype, enum pici_op op, unsigned zeros)
{
    static const enum pici_collective kinds[] = {PICI_ALL_REDUCE, PICI_ALL_GATHER, PICI_REDUCE_SCATTER};
    const uint64_t each = count / (uint64_t)r->ranks, all = each * (uint64_t)r->ranks;
    const size_t width = pici_dtype_width(dtype);
    uint32_t want = 0;
    fill(r, count, dtype, zeros);
    for (int kind = 0; kind < 3; kind++) {
        const uint64_t got = kind == 0 ? count : kind == 1 ? all : each;
        const enum pici_status s = kind == 0   ? pici_all_reduce(r->send, r->recv, count, dtype, op, r->comm, NULL)
                                   : kind == 1 ? pici_all_gather(r->send, r->recv, each, dtype, r->comm, NULL)
                                               : pici_reduce_scatter(r->send, r->recv, each, dtype, op, r->comm, NULL);
        if (s)
            die(r, "%s of %llu: %s: %s", names[kinds[kind]], (unsigned long long)count, pici_strerror(s),
                pici_comm_error(r->comm));
        cuda(r, cudaMemcpyAsync(r->host, r->recv, got * width, cudaMemcpyDeviceToHost, r->stream), "cudaMemcpyAsync");
        cuda(r, cudaStreamSynchronize(r->stream), "cudaStreamSynchronize");
        for (uint64_t i = 0; i < got; i++) {
            put(&want, 0, dtype,
                kind == 0   ? all_reduced(r, i, zeros, op)
                : kind == 1 ? element((int)(i / each), i % each, zeros)
                            : all_reduced(r, (uint64_t)r->rank * each + i, zeros, op));
            if (memcmp((const uint8_t *)r->host + i * width, &want, width) != 0)
                die(r, "%s of %llu %s: element %llu", names[kinds[kind]], (unsigned long long)count,
                    pici_dtype_name(dtype), (unsigned long long)i);
        }
        r->shared->passed[r->rank]++;
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_time(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* What is timed. count: as in pici_all_reduce and its like, of f32 or bf16. */
struct call {
    enum pici_collective kind;
    enum pici_dtype dtype;
    uint64_t count;
};

static enum pici_status ours_of(const struct rank *r, const struct call *c, const struct pici_coll_opts *o)
{
    return c->kind == PICI_ALL_REDUCE ? pici_all_reduce(r->send, r->recv, c->count, c->dtype, PICI_SUM, r->comm, o)
           : c->kind == PICI_ALL_GATHER
               ? pici_all_gather(r->send, r->recv, c->count, c->dtype, r->comm, o)
               : pici_reduce_scatter(r->send, r->recv, c->count, c->dtype, PICI_SUM, r->comm, o);
}

static ncclResult_t theirs_of(const struct rank *r, const struct call *c)
{
    const ncclDataType_t type = c->dtype == PICI_BF16 ? ncclBfloat16 : ncclFloat32;
    return c->kind == PICI_ALL_REDUCE ? ncclAllReduce(r->send, r->recv, c->count, type, ncclSum, r->nccl, r->stream)
           : c->kind == PICI_ALL_GATHER
               ? ncclAllGather(r->send, r->recv, c->count, type, r->nccl, r->stream)
               : ncclReduceScatter(r->send, r->recv, c->count, type, ncclSum, r->nccl, r->stream);
}

/* The median over calls of the slowest rank's seconds. */
static double time_of(const struct rank *r, const struct call *c, int ours)
{
    double seconds[TIMES];
    struct pici_coll_stats stats = PICI_COLL_STATS_INIT;
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    opts.stats = &stats;
    for (int t = -2; t < TIMES; t++) { /* two to warm up */
        meet(r);
        const double begin = now();
        if (ours) {
            const enum pici_status s = ours_of(r, c, &opts);
            if (s)
                die(r, "%s: %s: %s", names[c->kind], pici_strerror(s), pici_comm_error(r->comm));
        } else {
            nccl(r, theirs_of(r, c), names[c->kind]);
        }
        cuda(r, cudaStreamSynchronize(r->stream), "cudaStreamSynchronize");
        r->shared->seconds[r->rank] = now() - begin;
        r->shared->wire[r->rank] = stats.wire_bytes;
        r->shared->dense[r->rank] = stats.dense_bytes;
        meet(r);
        double slowest = 0;
        for (int k = 0; k < r->ranks; k++)
            slowest = r->shared->seconds[k] > slowest ? r->shared->seconds[k] : slowest;
        if (t >= 0)
            seconds[t] = slowest;
        meet(r);
    }
    qsort(seconds, TIMES, sizeof *seconds, by_time);
    return seconds[TIMES / 2];
}

/* elements: in the longer of the two buffers. */
static void compare(const struct rank *r, enum pici_collective kind, enum pici_dtype dtype, uint64_t elements,
                    unsigned zeros)
{
    const uint64_t each = elements / (uint64_t)r->ranks, bytes = elements * pici_dtype_width(dtype);
    const struct call c = {kind, dtype, kind == PICI_ALL_REDUCE ? elements : each};
    fill(r, kind == PICI_ALL_GATHER ? each : elements, dtype, zeros);
    const double theirs = time_of(r, &c, 0), ours = time_of(r, &c, 1);
    uint64_t wire = 0, dense = 0;
    for (int k = 0; k < r->ranks; k++) {
        wire += r->shared->wire[k];
        dense += r->shared->dense[k];
    }
    meet(r);
    if (r->rank)
        return;
    const double ratio = wire ? (double)dense / (double)wire : 1;
    if (json)
        printf("{\"operation\": \"%s\", \"ranks\": %d, \"dtype\": \"%s\", \"bytes\": %llu, \"sparsity\": %g, "
               "\"us\": %.1f, \"nccl_us\": %.1f, \"times_nccl\": %.3f, \"sent_bytes\": %llu, \"wire_ratio\": %.3f}\n",
               names[kind], r->ranks, pici_dtype_name(dtype), (unsigned long long)bytes, zeros / 1000.0, 1e6 * ours,
               1e6 * theirs, theirs / ours, (unsigned long long)wire, ratio);
    else
        printf("%s, %d ranks, %6.1f MiB of %s, %5.1f%% zeros: %10.1f us, NCCL %10.1f us: %.2f times as fast, "
               "wire ratio %.2f\n",
               names[kind], r->ranks, (double)bytes / (1 << 20), pici_dtype_name(dtype), zeros / 10.0, 1e6 * ours,
               1e6 * theirs, theirs / ours, ratio);
    fflush(stdout);
}

/* most: elements of f32, at least 2^20; if more, other collectives and bf16 are timed, too. */
static int run(struct rank *r, uint64_t most)
{
    static const uint64_t counts[] = {1, 1000, 300007};
    static const unsigned zeros[] = {0, 900, 990};
    int devices = 0;
    char host[64];
    snprintf(host, sizeof host, "pici-%ld-%d", (long)getppid(), r->rank);
    setenv("NCCL_HOSTID", host, 1);
    setenv("NCCL_NET", "Socket", 0); /* not InfiniBand where there is one */
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    alarm(SECONDS);
    if (cudaGetDeviceCount(&devices) || !devices)
        return NO_GPU;
    cuda(r, cudaSetDevice(r->rank % devices), "cudaSetDevice");
    if (r->rank == 0)
        nccl(r, ncclGetUniqueId(&r->shared->id), "ncclGetUniqueId");
    meet(r);
    nccl(r, ncclCommInitRank(&r->nccl, r->ranks, r->shared->id, r->rank), "ncclCommInitRank");
    cuda(r, cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    cuda(r, cudaMalloc(&r->send, most * 4), "cudaMalloc");
    cuda(r, cudaMalloc(&r->recv, most * 4), "cudaMalloc");
    cuda(r, cudaMallocHost(&r->host, most * 4), "cudaMallocHost");
    if (pici_comm_nccl(&r->comm, r->nccl, r->stream))
        die(r, "pici_comm_nccl: %s", pici_comm_error(NULL));
    for (unsigned c = 0; c < sizeof counts / sizeof *counts; c++)
        for (unsigned z = 0; z < sizeof zeros / sizeof *zeros; z++) {
            const uint64_t count = counts[c] < (uint64_t)r->ranks ? (uint64_t)r->ranks : counts[c];
            check(r, count, PICI_F32, PICI_SUM, zeros[z]);
            check(r, count, PICI_BF16, PICI_SUM, zeros[z]);
            check(r, count, PICI_I32, PICI_MAX, zeros[z]);
        }
    for (uint64_t count = (uint64_t)1 << 18; count <= most; count *= 8)
        for (unsigned z = 0; z < sizeof zeros / sizeof *zeros; z++)
            compare(r, PICI_ALL_REDUCE, PICI_F32, count, zeros[z]);
    for (unsigned z = 0; z < sizeof zeros / sizeof *zeros && most > (uint64_t)1 << 20; z++) {
        compare(r, PICI_ALL_REDUCE, PICI_BF16, most, zeros[z]);
        compare(r, PICI_REDUCE_SCATTER, PICI_F32, most / 4, zeros[z]);
        compare(r, PICI_ALL_GATHER, PICI_F32, most / 4, zeros[z]);
    }
    meet(r);
    pici_comm_free(r->comm);
    cuda(r, cudaFree(r->send), "cudaFree");
    cuda(r, cudaFree(r->recv), "cudaFree");
    cuda(r, cudaFreeHost(r->host), "cudaFreeHost");
    nccl(r, ncclCommDestroy(r->nccl), "ncclCommDestroy");
    return 0;
}

int main(int argc, char **argv)
{
    int ranks = 2, status = 0;
    uint64_t mib = 256;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            mib = 4;
        } else if (strcmp(argv[i], "--mib") == 0 && i + 1 < argc) {
            mib = strtoull(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--json") == 0) {
            json = 1;
        } else if (strcmp(argv[i], "--ranks") == 0 && i + 1 < argc) {
            ranks = atoi(argv[++i]);
        } else {
            ranks = 0;
            break;
        }
    }
    if (ranks < 1 || ranks > RANKS_MOST || mib < 4 || mib > 4096) {
        fprintf(stderr, "usage: nccl_fork [--ranks 1..%d] [--quick | --mib 4..4096] [--json]\n", RANKS_MOST);
        return 2;
    }
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t across;
    pid_t child[RANKS_MOST];
    if (shared == MAP_FAILED || pthread_barrierattr_init(&across) ||
        pthread_barrierattr_setpshared(&across, PTHREAD_PROCESS_SHARED) ||
        pthread_barrier_init(&shared->all, &across, (unsigned)ranks)) {
        perror("nccl_fork");
        return 1;
    }
    fflush(stdout);
    for (int k = 0; k < ranks; k++) {
        child[k] = fork(); /* before any call of CUDA, which does not outlive a fork */
        if (child[k] < 0) {
            perror("nccl_fork: fork");
            return 1; /* those that began end by their alarms */
        }
        if (child[k] == 0) {
            struct rank r = {.shared = shared, .rank = k, .ranks = ranks};
            const int s = run(&r, mib << 18);
            fflush(stdout);
            _exit(s);
        }
    }
    for (int left = ranks; left; left--) {
        int s = 0;
        const pid_t ended = wait(&s);
        if (ended < 0)
            break;
        for (int k = 0; k < ranks; k++)
            child[k] = child[k] == ended ? 0 : child[k];
        const int code = WIFEXITED(s) ? WEXITSTATUS(s) : 1;
        if (code && !status) { /* the others may wait for it */
            status = code;
            if (WIFSIGNALED(s))
                fprintf(stderr, "FAIL a rank ended by signal %d\n", WTERMSIG(s));
            for (int k = 0; k < ranks && code != NO_GPU; k++)
                if (child[k])
                    kill(child[k], SIGKILL);
        }
    }
    if (status == NO_GPU) {
        printf("skip: no CUDA device: nothing ran over NCCL\n");
        return NO_GPU;
    }
    unsigned passed = 0;
    for (int k = 0; k < ranks; k++)
        passed += shared->passed[k];
    printf("%u passed, %u failed\n", passed, status ? 1u : 0u);
    return status;
}
