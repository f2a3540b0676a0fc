/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The ranks of an MPI job, and MPI's own collectives as peers. Open MPI's tools interface (MPI_T) can force an
 * algorithm for new communicators. So all of its algorithms run in one job, with a communicator each. Other
 * libraries do not have these variables, and run only their default. SimGrid's MPI has no such interface. pici's own
 * messages may use sockets instead of MPI, or MPI inside nodes and sockets between. */
#define _GNU_SOURCE
#include <mpi.h>

#include <limits.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "coll.h"
#include "common.h"
#include "pici/mpi.h"
#include "pici/socket.h"

enum { MAX_PEERS = 64, SEGMENT = 1 << 20 };

enum call { ALLREDUCE, ALLGATHER, REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, BCAST, ALLGATHERV, ALLTOALLV, CALLS };
static const struct {
    enum pici_collective collective;
    const char *name, *variable;
} calls[CALLS] = {
    [ALLREDUCE] = {PICI_ALL_REDUCE, "allreduce", "coll_tuned_allreduce_algorithm"},
    [ALLGATHER] = {PICI_ALL_GATHER, "allgather", "coll_tuned_allgather_algorithm"},
    [REDUCE_SCATTER] = {PICI_REDUCE_SCATTER, "reduce_scatter", "coll_tuned_reduce_scatter_algorithm"},
    [REDUCE_SCATTER_BLOCK] = {PICI_REDUCE_SCATTER, "rs_block", "coll_tuned_reduce_scatter_block_algorithm"},
    [BCAST] = {PICI_BROADCAST, "bcast", "coll_tuned_bcast_algorithm"},
    [ALLGATHERV] = {PICI_ALL_GATHERV, "allgatherv", "coll_tuned_allgatherv_algorithm"},
    [ALLTOALLV] = {PICI_ALL_TO_ALLV, "alltoallv", "coll_tuned_alltoallv_algorithm"},
};

struct mpi_world {
    struct world world;
    int peers; /* as in world, until the world has others */
    struct peer peer[MAX_PEERS];
    struct {
        enum call call;
        MPI_Comm comm[MAX_ORDERS];
    } means[MAX_PEERS]; /* of each peer */
    MPI_Comm comm[MAX_ORDERS];
    int *node_of; /* [ranks] */
};

static void barrier(struct world *w)
{
    MPI_Barrier(((struct mpi_world *)w)->comm[0]);
}

static void sum(struct world *w, double *v, int n)
{
    MPI_Allreduce(MPI_IN_PLACE, v, n, MPI_DOUBLE, MPI_SUM, ((struct mpi_world *)w)->comm[0]);
}

static void max(struct world *w, double *v, int n)
{
    MPI_Allreduce(MPI_IN_PLACE, v, n, MPI_DOUBLE, MPI_MAX, ((struct mpi_world *)w)->comm[0]);
}

static void share(struct world *w, void *data, size_t bytes)
{
    (void)w;
    MPI_Bcast(data, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

/* ---- a control variable of the library */

#ifdef MPI_T_ENUM_NULL
struct variable {
    MPI_T_cvar_handle handle;
    MPI_T_enum names; /* of its values; MPI_T_ENUM_NULL */
    int values;       /* that have names */
};

static int variable_open(struct variable *v, const char *name)
{
    char text[256], described[64];
    int i, count, verbosity, bind, scope, bytes = sizeof text, more = sizeof described;
    MPI_Datatype type;
    if (MPI_T_cvar_get_index(name, &i) ||
        MPI_T_cvar_get_info(i, text, &bytes, &verbosity, &type, &v->names, described, &more, &bind, &scope) ||
        type != MPI_INT || MPI_T_cvar_handle_alloc(i, NULL, &v->handle, &count))
        return 0;
    bytes = sizeof text;
    if (v->names == MPI_T_ENUM_NULL || MPI_T_enum_get_info(v->names, &v->values, text, &bytes))
        v->values = 0;
    return 1;
}

static int variable_set(const char *name, int value)
{
    struct variable v;
    if (!variable_open(&v, name))
        return 0;
    const int failed = MPI_T_cvar_write(v.handle, &value);
    MPI_T_cvar_handle_free(&v.handle);
    return !failed;
}
#endif

/* ---- peers */

static void add_peer(struct mpi_world *m, enum call call, const char *algorithm)
{
    struct world *w = &m->world;
    if (w->peers == MAX_PEERS)
        return;
    const int i = w->peers++;
    m->peer[i].collective = calls[call].collective;
    m->peer[i].call = calls[call].name;
    snprintf(m->peer[i].algorithm, sizeof m->peer[i].algorithm, "%s", algorithm);
    m->means[i].call = call;
    for (int o = 0; o < w->orders; o++) {
        MPI_Comm_dup(m->comm[o], &m->means[i].comm[o]);
        MPI_Comm_set_errhandler(m->means[i].comm[o], MPI_ERRORS_RETURN);
    }
}

static void add_peers(struct mpi_world *m, enum call call)
{
    add_peer(m, call, "default");
#ifdef MPI_T_ENUM_NULL
    struct variable v;
    char segment[128];
    if (!variable_open(&v, calls[call].variable))
        return;
    snprintf(segment, sizeof segment, "%s_segmentsize", calls[call].variable);
    for (int i = 0; i < v.values; i++) {
        int value, bytes = 64;
        char name[64];
        if (MPI_T_enum_get_item(v.names, i, &value, name, &bytes) || value == 0 || /* 0: not forced */
            (!strcmp(name, "two_proc") && m->world.ranks != 2) || MPI_T_cvar_write(v.handle, &value))
            continue;
        const int segmented = strstr(name, "segmented") != NULL; /* if forced, it uses no segments by default */
        if (segmented)
            variable_set(segment, SEGMENT);
        add_peer(m, call, name);
        if (segmented)
            variable_set(segment, 0);
    }
    MPI_T_cvar_write(v.handle, &(int){0});
    MPI_T_cvar_handle_free(&v.handle);
#endif
}

static MPI_Datatype datatype(enum pici_dtype t)
{
    switch (t) {
    case PICI_F32: return MPI_FLOAT;
    case PICI_F64: return MPI_DOUBLE;
    case PICI_I8: return MPI_INT8_T;
    case PICI_U8: return MPI_UINT8_T;
    case PICI_I16: return MPI_INT16_T;
    case PICI_U16: return MPI_UINT16_T;
    case PICI_I32: return MPI_INT32_T;
    case PICI_U32: return MPI_UINT32_T;
    case PICI_I64: return MPI_INT64_T;
    case PICI_U64: return MPI_UINT64_T;
    default: return MPI_DATATYPE_NULL;
    }
}

static int run(struct world *w, int i, int order, const void *send, void *recv, uint64_t count, enum pici_dtype t,
               enum pici_op op)
{
    struct mpi_world *m = (struct mpi_world *)w;
    MPI_Comm comm = m->means[i].comm[order];
    const enum call call = m->means[i].call;
    const MPI_Op reduction = op == PICI_MIN ? MPI_MIN : op == PICI_MAX ? MPI_MAX : MPI_SUM;
    MPI_Datatype type = datatype(t);
    if (!reduces(calls[call].collective) && type == MPI_DATATYPE_NULL)
        type = pici_dtype_width(t) == 1 ? MPI_UINT8_T : MPI_UINT16_T;
    if (type == MPI_DATATYPE_NULL || op == PICI_AVG || count > INT_MAX / (unsigned)w->ranks)
        return 0;
    const int n = (int)count;
    int each[w->ranks], from[w->ranks], rank;
    for (int r = 0; r < w->ranks; r++) {
        from[r] = (int)gathered_from(calls[call].collective, count, r, w->ranks);
        each[r] = (int)gathered_from(calls[call].collective, count, r + 1, w->ranks) - from[r];
    }
    MPI_Comm_rank(comm, &rank);
    switch (call) {
    case ALLREDUCE: return !MPI_Allreduce(send, recv, n, type, reduction, comm);
    case ALLGATHER: return !MPI_Allgather(send, n, type, recv, n, type, comm);
    case ALLGATHERV: return !MPI_Allgatherv(send, each[rank], type, recv, each, from, type, comm);
    case ALLTOALLV: return !MPI_Alltoallv(send, each, from, type, recv, each, from, type, comm);
    case BCAST: return !MPI_Bcast(recv, n, type, BROADCAST_ROOT, comm);
    case REDUCE_SCATTER: return !MPI_Reduce_scatter(send, recv, each, type, reduction, comm);
    default: return !MPI_Reduce_scatter_block(send, recv, n, type, reduction, comm);
    }
}

/* ---- the orders of ranks */

/* Set each rank's place, sorted by its place on its node (turn), or by node (near). node: for each rank, the lowest
 * rank of its node. Returns the number of nodes. */
static int place(const int *node, int ranks, int *turn, int *near)
{
    const size_t n = (size_t)ranks;
    int *size = calloc(n, sizeof *size), *end = calloc(n, sizeof *end), *sorted = calloc(n, sizeof *sorted);
    int nodes = 0;
    if (!size || !end || !sorted)
        die("out of memory");
    for (int r = 0; r < ranks; r++)
        size[node[r]]++;
    for (int r = 0, at = 0; r < ranks; at += size[r++]) {
        end[r] = at;
        nodes += size[r] > 0;
    }
    for (int r = 0; r < ranks; r++) {
        near[r] = end[node[r]]++;
        sorted[near[r]] = r;
    }
    for (int i = 0, at = 0; at < ranks; i++) /* the ith of each node */
        for (int r = 0; r < ranks; r++)
            if (i < size[r])
                turn[sorted[end[r] - size[r] + i]] = at++;
    free(size);
    free(end);
    free(sorted);
    return nodes;
}

/* A free port on loopback. */
static int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) || getsockname(fd, (struct sockaddr *)&at, &length))
        die("no port is free");
    close(fd);
    return ntohs(at.sin_port);
}

/* The ranks meet at the address in the environment, or else on this host. */
static struct pici_comm *over_sockets(MPI_Comm mpi, int rank, int ranks)
{
    struct pici_comm *comm;
    char address[32];
    const char *said = getenv("PICI_RENDEZVOUS");
    int port = rank ? 0 : free_port();
    MPI_Bcast(&port, 1, MPI_INT, 0, mpi);
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    if (pici_comm_rendezvous(&comm, said ? said : address, rank, ranks, NULL))
        die(pici_comm_error(NULL));
    return comm;
}

static struct pici_comm *over_mpi(MPI_Comm mpi)
{
    struct pici_comm *comm;
    if (pici_comm_mpi(&comm, mpi))
        die(pici_comm_error(NULL));
    return comm;
}

static struct pici_comm *make_comm(MPI_Comm mpi, int rank, int ranks, enum bench_over over)
{
    struct pici_comm *comm, *outer;
    MPI_Comm node;
    if (over == OVER_DEFAULT)
        return over_mpi(mpi);
    outer = over_sockets(mpi, rank, ranks);
    if (over == OVER_SOCKETS)
        return outer;
    MPI_Comm_split_type(mpi, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    if (pici_comm_levels(&comm, over_mpi(node), outer))
        die(pici_comm_error(NULL));
    MPI_Comm_free(&node);
    return comm;
}

static void make_orders(struct mpi_world *m, enum bench_over over)
{
    static const char *const name[] = {"turn", "near"};
    struct world *w = &m->world;
    MPI_Comm shared;
    const size_t bytes = (size_t)w->ranks * sizeof(int);
    int *node = m->node_of = malloc(bytes), leader = w->rank;
    int *at[] = {malloc(bytes), malloc(bytes)};
    if (!node || !at[0] || !at[1])
        die("out of memory");
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared);
    MPI_Bcast(&leader, 1, MPI_INT, 0, shared);
    MPI_Comm_rank(shared, &w->local);
    MPI_Comm_size(shared, &w->locals);
    MPI_Comm_free(&shared);
    MPI_Allgather(&leader, 1, MPI_INT, node, 1, MPI_INT, MPI_COMM_WORLD);

    w->nodes = place(node, w->ranks, at[0], at[1]);
    const int differ = memcmp(at[0], at[1], bytes) != 0;
    w->orders = differ ? 2 : 1;
    for (int o = 0; o < w->orders; o++) {
        struct order *order = &w->order[o];
        order->name = differ ? name[o] : "-";
        MPI_Comm_split(MPI_COMM_WORLD, 0, at[o][w->rank], &m->comm[o]);
        MPI_Comm_rank(m->comm[o], &order->rank);
        order->comm = make_comm(m->comm[o], order->rank, w->ranks, over);
    }
    free(at[0]);
    free(at[1]);
    /* turn leaders into numbers, in the order of leaders: a leader comes after all leaders of lower nodes */
    for (int r = 0, n = 0; r < w->ranks; r++)
        node[r] = node[r] == r ? n++ : node[node[r]];
    w->node_of = node;
}

int world_mpi(enum bench_over over, world_body *body, const void *argument)
{
    static const char *const over_name[] = {[OVER_DEFAULT] = "",
                                            [OVER_SOCKETS] = ", pici over sockets",
                                            [OVER_LEVELS] = ", pici over MPI inside nodes and sockets"};
    static struct mpi_world m;
    static char library[MPI_MAX_LIBRARY_VERSION_STRING + 64];
    struct world *w = &m.world;
    int length;
    /* Open MPI reads forced algorithms only with this setting. Its default stays the default. */
    setenv("OMPI_MCA_coll_tuned_use_dynamic_rules", "1", 0);
    if (MPI_Init(NULL, NULL))
        die("MPI does not start");
#ifdef MPI_T_ENUM_NULL
    if (MPI_T_init_thread(MPI_THREAD_SINGLE, &(int){0}))
        die("MPI's tools interface does not start");
#endif
    MPI_Comm_rank(MPI_COMM_WORLD, &w->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &w->ranks);
    MPI_Get_library_version(library, &length);
    library[strcspn(library, ",\n")] = 0;
    strcat(library, over_name[over]);
    w->library = library;
    w->barrier = barrier;
    w->sum = sum;
    w->max = max;
    w->share = share;
    w->processes = 1;
    w->run = run;
    w->peer = m.peer;
    make_orders(&m, over);
    for (enum call c = 0; c < CALLS; c++)
        add_peers(&m, c);
    m.peers = w->peers;

    const int status = body(w, argument);

    for (int o = 0; o < w->orders; o++) {
        pici_comm_free(w->order[o].comm);
        for (int i = 0; i < m.peers; i++)
            MPI_Comm_free(&m.means[i].comm[o]);
        MPI_Comm_free(&m.comm[o]);
    }
    free(m.node_of);
#ifdef MPI_T_ENUM_NULL
    MPI_T_finalize();
#endif
    MPI_Finalize();
    return status;
}
