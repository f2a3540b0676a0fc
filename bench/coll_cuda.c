/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Elements in a GPU's memory, and NCCL's collectives as peers. Each rank has its own GPU if there are enough.
 * Otherwise ranks share GPUs, which NCCL rejects for ranks of one host. Then each process claims to be its own host
 * (NCCL_HOSTID), and NCCL uses sockets. Threads cannot do this. */
#define _GNU_SOURCE
#include "coll.h"
#include "common.h"
#include "pici/cuda.h"
#include "pici/nccl.h"

struct gpu {
    struct device device;
    cudaStream_t stream;
    ncclComm_t nccl[MAX_ORDERS]; /* or NULL */
    char library[64];
};

static const struct peer peers[] = {
    {PICI_ALL_REDUCE, "ncclAllReduce", "default"},
    {PICI_ALL_GATHER, "ncclAllGather", "default"},
    {PICI_REDUCE_SCATTER, "ncclReduceScatter", "default"},
};

static void cuda_good(cudaError_t e, const char *what)
{
    char words[300];
    if (!e)
        return;
    snprintf(words, sizeof words, "%s: %s", what, cudaGetErrorString(e));
    die(words);
}

static void nccl_good(ncclResult_t r, const char *what)
{
    char words[1000];
    if (r == ncclSuccess)
        return;
    snprintf(words, sizeof words, "%s: %s: %s", what, ncclGetErrorString(r), ncclGetLastError(NULL));
    die(words);
}

/* ---- memory */

static void *memory_new(size_t bytes)
{
    void *p = NULL;
    cuda_good(cudaMalloc(&p, bytes), "cudaMalloc");
    return p;
}

static void memory_free(void *p)
{
    cuda_good(cudaFree(p), "cudaFree");
}

static void finish(struct world *w)
{
    cuda_good(cudaStreamSynchronize(((struct gpu *)w->device)->stream), "cudaStreamSynchronize");
}

static void copy(struct world *w, void *to, const void *from, size_t bytes, int times)
{
    for (int i = 0; i < times; i++)
        cuda_good(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, ((struct gpu *)w->device)->stream),
                  "cudaMemcpyAsync");
    finish(w);
}

/* ---- NCCL */

/* Set *type to NCCL's name for a dtype. Returns 0 if NCCL has none. */
static int datatype(enum pici_dtype t, ncclDataType_t *type)
{
    switch (t) {
    case PICI_F32: *type = ncclFloat32; return 1;
    case PICI_F64: *type = ncclFloat64; return 1;
    case PICI_F16: *type = ncclFloat16; return 1;
    case PICI_BF16: *type = ncclBfloat16; return 1;
    case PICI_I8: *type = ncclInt8; return 1;
    case PICI_U8: *type = ncclUint8; return 1;
    case PICI_I32: *type = ncclInt32; return 1;
    case PICI_U32: *type = ncclUint32; return 1;
    case PICI_I64: *type = ncclInt64; return 1;
    case PICI_U64: *type = ncclUint64; return 1;
    default: return 0;
    }
}

static int run(struct world *w, int i, int order, const void *send, void *recv, uint64_t count, enum pici_dtype t,
               enum pici_op op)
{
    static const ncclRedOp_t ops[] = {ncclSum, ncclAvg, ncclMin, ncclMax};
    struct gpu *g = (struct gpu *)w->device;
    ncclComm_t comm = g->nccl[order];
    ncclDataType_t type;
    if (peers[i].collective == PICI_ALL_GATHER) {
        nccl_good(ncclAllGather(send, recv, count * pici_dtype_width(t), ncclUint8, comm, g->stream), peers[i].call);
        return 1;
    }
    if (!datatype(t, &type))
        return 0;
    if (peers[i].collective == PICI_ALL_REDUCE)
        nccl_good(ncclAllReduce(send, recv, count, type, ops[op], comm, g->stream), peers[i].call);
    else
        nccl_good(ncclReduceScatter(send, recv, count, type, ops[op], comm, g->stream), peers[i].call);
    return 1;
}

static void join(struct world *w, struct gpu *g)
{
    ncclUniqueId id[MAX_ORDERS];
    int version;
    nccl_good(ncclGetVersion(&version), "ncclGetVersion");
    for (int o = 0; o < w->orders && w->rank == 0; o++)
        nccl_good(ncclGetUniqueId(&id[o]), "ncclGetUniqueId");
    w->share(w, id, sizeof id);
    for (int o = 0; o < w->orders; o++)
        nccl_good(ncclCommInitRank(&g->nccl[o], w->ranks, id[o], w->order[o].rank), "ncclCommInitRank");
    snprintf(g->library, sizeof g->library, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    w->library = g->library;
    w->peer = peers;
    w->peers = COUNT_OF(peers);
    w->run = run;
}

/* ---- a run */

void device_begin(struct world *w, const struct settings *s)
{
    struct gpu *g = calloc(1, sizeof *g);
    struct cudaDeviceProp properties;
    int gpus = 0;
    if (!g)
        die("out of memory");
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || !gpus) {
        fprintf(stderr, "skip: no CUDA device: nothing ran on a GPU\n");
        exit(77);
    }
    const int device = w->local % gpus, crowded = w->locals > gpus;
    const int over_nccl = s->device == DEVICE_NCCL || (s->device == DEVICE_DEFAULT && w->processes);
    cuda_good(cudaSetDevice(device), "cudaSetDevice");
    cuda_good(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    cuda_good(cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    snprintf(g->device.name, sizeof g->device.name, "%s", properties.name);
    g->device.transport = over_nccl ? "NCCL" : w->processes ? "MPI" : "threads";
    g->device.note = "";
    g->device.alloc = memory_new;
    g->device.free = memory_free;
    g->device.copy = copy;
    g->device.finish = finish;
    w->device = &g->device;
    w->peers = 0;

    if (crowded && w->processes) {
        char host[32];
        snprintf(host, sizeof host, "rank %d", w->rank);
        setenv("NCCL_HOSTID", host, 0);
        g->device.note = "; ranks share a GPU: to NCCL each is a host of its own";
    } else if (crowded) {
        g->device.note = "; threads share a GPU: no NCCL";
        if (over_nccl)
            die("NCCL wants a GPU for each thread; processes, under mpirun, can share one");
    }
    if (over_nccl || (strcmp(s->peers, "none") != 0 && (w->processes || !crowded)))
        join(w, g);
    for (int o = 0; o < w->orders; o++) {
        struct pici_comm **comm = &w->order[o].comm;
        if (over_nccl) {
            pici_comm_free(*comm);
            if (pici_comm_nccl(comm, g->nccl[o], g->stream))
                die(pici_comm_error(NULL));
        } else if (pici_comm_cuda(*comm, g->stream)) {
            die(pici_comm_error(*comm));
        }
    }
    if (over_nccl && crowded)
        w->nodes = w->ranks;
}

void device_end(struct world *w)
{
    struct gpu *g = (struct gpu *)w->device;
    w->barrier(w);
    for (int o = 0; o < w->orders; o++) {
        pici_comm_free(w->order[o].comm);
        w->order[o].comm = NULL;
        if (g->nccl[o])
            nccl_good(ncclCommDestroy(g->nccl[o]), "ncclCommDestroy");
    }
    cuda_good(cudaStreamDestroy(g->stream), "cudaStreamDestroy");
    free(g);
}
