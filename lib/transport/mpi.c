/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport over MPI. MPI counts bytes in an int, so a message is one piece or several. All have pici_mpi_piece
 * bytes but the last, which is shorter and may be empty: it tells the receiver, who does not know the length, that the
 * message is complete. Each piece is begun when the one before has ended. The pieces of a message share a tag; messages
 * in flight between two ranks have different tags. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/mpi_dense.h"
#include "transport/mpi_transport.h"
#include "transport/nap.h"
#include "transport/pool.h"

#if defined OPEN_MPI && defined __has_include
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#endif

enum { TAGS = 32768 }; /* the least that MPI guarantees; far more than messages in flight */

enum { WORDS = MPI_MAX_ERROR_STRING + 320 };

int pici_mpi_piece = 1 << 30;

struct request {
    struct pool_item item;
    MPI_Request mpi; /* of the piece in flight; MPI_REQUEST_NULL: not in use */
    int sends, peer, tag;
    uint8_t *data;
    size_t bytes, at; /* length or capacity; bytes of pieces that have ended */
    int piece;        /* bytes of the piece in flight, at most if it is received */
#ifdef PICI_SMPI
    int ended; /* found by mpi_wait and not tested since */
    MPI_Status got;
#endif
};

struct mpi {
    MPI_Comm comm;
    int rank, ranks;
    uint16_t *sent, *received; /* [ranks] messages so far, modulo TAGS: their tags */
    int *node_of;              /* [ranks] */
    struct pool requests;
    struct mpi_dense dense;
    int looks; /* without success, since something ended */
    int cores; /* each rank of this machine has one */
    int abandoned;
    int kept;                  /* close does nothing */
    enum pici_status no_nodes; /* why node_of is not known */
    char error[WORDS];
};

/* MPI's return code as a status; what failed is noted in words. */
static enum pici_status status_of(struct mpi *m, int rc, const char *what)
{
    if (rc == MPI_SUCCESS)
        return PICI_OK;
    int class = MPI_ERR_UNKNOWN, len = 0;
    char text[MPI_MAX_ERROR_STRING] = "";
    MPI_Error_class(rc, &class);
    MPI_Error_string(rc, text, &len);
    snprintf(m->error, sizeof m->error, "%s: %s", what, text);
    return class == MPI_ERR_TRUNCATE ? PICI_E_CORRUPT : class == MPI_ERR_NO_MEM ? PICI_E_NOMEM : PICI_E_TRANSPORT;
}

/* MPI_Test. Open MPI raises its errors on the communicator of the request. MPICH raises them on MPI_COMM_WORLD, where
 * by default they end the job. So the error handler of MPI_COMM_WORLD is replaced meanwhile, by one thread at a time: a
 * second would take ours for the program's. */
static int test_request(MPI_Request *request, int *ended, MPI_Status *got)
{
#if defined OPEN_MPI
    return MPI_Test(request, ended, got);
#else
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    MPI_Errhandler theirs;
    pthread_mutex_lock(&one);
    int rc = MPI_Comm_get_errhandler(MPI_COMM_WORLD, &theirs);
    if (rc == MPI_SUCCESS) {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        rc = MPI_Test(request, ended, got);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, theirs);
        MPI_Errhandler_free(&theirs);
    }
    pthread_mutex_unlock(&one);
    return rc;
#endif
}

/* ---- Requests ---- */

static void request_end(struct mpi *m, struct request *q)
{
    q->mpi = MPI_REQUEST_NULL;
    pool_give(&m->requests, &q->item);
}

/* Begin the piece at q->at. */
static enum pici_status begin(struct mpi *m, struct request *q)
{
    const size_t left = q->bytes - q->at;
    q->piece = left < (size_t)pici_mpi_piece ? (int)left : pici_mpi_piece;
    uint8_t *data = q->at ? q->data + q->at : q->data; /* it may be null */
    const int rc = q->sends ? MPI_Isend(data, q->piece, MPI_BYTE, q->peer, q->tag, m->comm, &q->mpi)
                            : MPI_Irecv(data, q->piece, MPI_BYTE, q->peer, q->tag, m->comm, &q->mpi);
    return status_of(m, rc, q->sends ? "MPI_Isend" : "MPI_Irecv");
}

static enum pici_status start(struct mpi *m, struct request like, uint16_t *messages, void **request)
{
    struct request *q = pool_take(&m->requests, sizeof *q);
    if (!q)
        return PICI_E_NOMEM;
    like.item = q->item;
    like.mpi = MPI_REQUEST_NULL;
    like.tag = *messages;
    *messages = (uint16_t)((*messages + 1) % TAGS);
    *q = like;
    enum pici_status s = begin(m, q);
    if (s)
        request_end(m, q);
    else
        *request = q;
    return s;
}

/* ---- What a communicator calls ---- */

static enum pici_status mpi_send(void *context, int to, const void *data, size_t bytes, void **request)
{
    struct mpi *m = context;
    struct request like = {.sends = 1, .peer = to, .data = (uint8_t *)data, .bytes = bytes};
    return start(m, like, &m->sent[to], request);
}

static enum pici_status mpi_recv(void *context, int from, void *data, size_t cap, void **request)
{
    struct mpi *m = context;
    struct request like = {.peer = from, .data = data, .bytes = cap};
    return start(m, like, &m->received[from], request);
}

/* Whether the piece in flight has ended. */
static int piece_ended(struct request *q, int *ended, MPI_Status *got)
{
#ifdef PICI_SMPI
    if (q->ended) {
        *ended = 1;
        *got = q->got;
        q->ended = 0;
        return MPI_SUCCESS;
    }
#endif
    return test_request(&q->mpi, ended, got);
}

static enum pici_status mpi_test(void *context, void *request, int *done, size_t *bytes)
{
    struct mpi *m = context;
    struct request *q = request;
    MPI_Status got;
    int ended = 0, len = q->piece;
    *done = 0;
    enum pici_status s = status_of(m, piece_ended(q, &ended, &got), "MPI_Test");
    if (!s && !ended)
        return PICI_OK;
    m->looks = 0;
    if (!s && !q->sends)
        s = status_of(m, MPI_Get_count(&got, MPI_BYTE, &len), "MPI_Get_count");
    if (!s) {
        q->at += (size_t)len;
        if (len == pici_mpi_piece) {
            s = begin(m, q);
            if (!s)
                return PICI_OK;
        }
    }
    *done = 1;
    if (bytes)
        *bytes = s ? 0 : q->at;
    request_end(m, q);
    return s;
}

#ifdef PICI_SMPI
/* SimGrid's MPI, which simulates time: there, polling would make a wait last until the next poll. Wait until a request
 * ends, without a timeout: if none ever does, SimGrid reports a deadlock. 0: there is nothing to wait for. */
static int wait_any(struct mpi *m)
{
    int requests = 0, n = 0, which = MPI_UNDEFINED;
    for (struct pool_item *item = m->requests.all; item; item = item->older)
        requests++;
    struct request *of[requests + 1];
    MPI_Request live[requests + 1];
    MPI_Status got;
    for (struct pool_item *item = m->requests.all; item; item = item->older) {
        struct request *q = (struct request *)item;
        if (q->mpi == MPI_REQUEST_NULL) /* also those that an earlier wait has found */
            continue;
        of[n] = q;
        live[n++] = q->mpi;
    }
    if (MPI_Waitany(n, live, &which, &got) != MPI_SUCCESS || which == MPI_UNDEFINED)
        return 0;
    of[which]->mpi = live[which];
    of[which]->ended = 1;
    of[which]->got = got;
    return 1;
}
#endif

/* MPI makes progress only while it is called, and has no wait with a timeout. */
static void mpi_wait(void *context, int timeout_ms)
{
    struct mpi *m = context;
#ifdef PICI_SMPI
    if (wait_any(m))
        return;
#endif
    pici_transport_nap(&m->looks, m->cores, timeout_ms);
}

/* MPI can neither cancel a send nor stop a receive that a message has begun to fill. */
static int mpi_abandon(void *context, enum pici_status why)
{
    struct mpi *m = context;
    int in_use = 0;
    (void)why; /* the peers have a timeout of their own */
    m->abandoned = 1;
    for (struct pool_item *item = m->requests.all; item; item = item->older) {
        struct request *q = (struct request *)item;
        if (q->mpi == MPI_REQUEST_NULL)
            continue;
        int ended = 0;
        if (!q->sends)
            MPI_Cancel(&q->mpi);
        if (test_request(&q->mpi, &ended, MPI_STATUS_IGNORE) == MPI_SUCCESS && !ended)
            in_use = 1;
    }
    return in_use;
}

/* After abandon the communicator is not freed: a message may still arrive for it, and a later communicator with the
 * same number would receive that. */
static void mpi_close(void *context)
{
    struct mpi *m = context;
    int finalized = 0;
    if (m->kept)
        return;
    MPI_Finalized(&finalized);
    if (!finalized && !m->abandoned && m->comm != MPI_COMM_NULL)
        MPI_Comm_free(&m->comm);
    pool_free(&m->requests);
    free(m->sent);
    free(m->received);
    free(m->node_of);
    free(m->dense.room);
    free(m);
}

static enum pici_status mpi_nodes(void *context, int *node_of)
{
    struct mpi *m = context;
    memcpy(node_of, m->node_of, (size_t)m->ranks * sizeof *node_of);
    return m->no_nodes;
}

static const char *mpi_error(void *context)
{
    struct mpi *m = context;
    return m->error;
}

static enum pici_status mpi_dense_ready(void *context, enum pici_collective kind, const void *send, const void *recv,
                                        uint64_t count, enum pici_dtype dtype, enum pici_op op)
{
    struct mpi *m = context;
    m->dense.piece = pici_mpi_piece;
    return pici_mpi_dense_ready(&m->dense, kind, send, recv, count, dtype, op);
}

static enum pici_status mpi_dense(void *context, enum pici_collective kind, const void *send, void *recv,
                                  uint64_t count, enum pici_dtype dtype, enum pici_op op, int timeout_ms)
{
    struct mpi *m = context;
    (void)timeout_ms;
    m->looks = 0;
    return status_of(m, pici_mpi_dense(&m->dense, kind, send, recv, count, dtype, op), "a dense collective of MPI");
}

/* ---- Making one ---- */

/* Returns the worst status of all ranks on all ranks, with the words of the first rank that has it. */
static enum pici_status agree(MPI_Comm comm, enum pici_status mine, char words[WORDS])
{
    struct {
        int status, rank;
    } own = {mine, 0}, worst;
    MPI_Comm_rank(comm, &own.rank);
    worst = own;
    if (MPI_Allreduce(&own, &worst, 1, MPI_2INT, MPI_MINLOC, comm) != MPI_SUCCESS)
        return mine ? mine : PICI_E_TRANSPORT;
    if (worst.status && MPI_Bcast(words, WORDS, MPI_CHAR, worst.rank, comm) != MPI_SUCCESS)
        words[0] = '\0';
    return (enum pici_status)worst.status;
}

/* Duplicate a communicator so that the duplicate, and the original while it is duplicated, return errors. */
static int duplicate(MPI_Comm comm, MPI_Comm *dup)
{
    MPI_Errhandler theirs;
    int rc = MPI_Comm_get_errhandler(comm, &theirs);
    if (rc != MPI_SUCCESS)
        return rc;
    rc = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (rc == MPI_SUCCESS) {
        rc = MPI_Comm_dup(comm, dup); /* which inherits the handler */
        MPI_Comm_set_errhandler(comm, theirs);
    }
    MPI_Errhandler_free(&theirs);
    return rc;
}

/* Whether messages may be in a GPU's memory: PICI_MPI_CUDA tells, or else this MPI. */
static enum pici_status find_memory(enum pici_memory *memory, char words[WORDS])
{
    const char *said = getenv("PICI_MPI_CUDA");
    int yes = 0;
    if (said && strcmp(said, "0") != 0 && strcmp(said, "1") != 0) {
        snprintf(words, WORDS, "environment variable PICI_MPI_CUDA is \"%.80s\", which is not 0 or 1", said);
        return PICI_E_ARG;
    }
    if (said)
        yes = said[0] == '1';
    else {
#if defined MPIX_GPU_SUPPORT_CUDA /* MPICH, from version 4 on */
        if (MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &yes) != MPI_SUCCESS)
            yes = 0;
#elif defined MPIX_CUDA_AWARE_SUPPORT /* Open MPI: defined, as 0 or 1, if there is the extension */
        yes = MPIX_Query_cuda_support();
#endif
    }
    *memory = yes ? PICI_MEMORY_ANY : PICI_MEMORY_HOST;
    return PICI_OK;
}

/* The number of a node is the lowest rank on it. */
static enum pici_status find_nodes(struct mpi *m)
{
    MPI_Comm node = MPI_COMM_NULL;
    int lowest = m->rank, ranks;
    int rc = MPI_Comm_split_type(m->comm, MPI_COMM_TYPE_SHARED, m->rank, MPI_INFO_NULL, &node);
    enum pici_status s = status_of(m, rc, "MPI_Comm_split_type");
    if (s)
        return s;
    if (MPI_Comm_size(node, &ranks) == MPI_SUCCESS)
        m->cores = pici_transport_cores(ranks);
    s = status_of(m, MPI_Allreduce(&m->rank, &lowest, 1, MPI_INT, MPI_MIN, node), "MPI_Allreduce");
    if (!s)
        s = status_of(m, MPI_Allgather(&lowest, 1, MPI_INT, m->node_of, 1, MPI_INT, m->comm), "MPI_Allgather");
    MPI_Comm_free(&node);
    return s;
}

enum pici_status pici_transport_mpi(struct pici_transport *t, MPI_Comm comm)
{
    int initialized = 0, finalized = 0, inter = 0;
    char words[WORDS] = "no memory for a transport over MPI";
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (!initialized || finalized || comm == MPI_COMM_NULL || MPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS ||
        inter) {
        pici_comm_failed(!initialized ? "MPI is not initialized"
                         : finalized  ? "MPI is finalized"
                         : inter      ? "an intercommunicator"
                                      : "not an MPI communicator");
        return PICI_E_ARG;
    }
    struct mpi none = {.comm = MPI_COMM_NULL}, *m = NULL;
    enum pici_status s = status_of(&none, duplicate(comm, &none.comm), "MPI_Comm_dup");
    if (s) {
        pici_comm_failed(none.error);
        return s;
    }
    MPI_Comm_rank(none.comm, &none.rank);
    MPI_Comm_size(none.comm, &none.ranks);
    m = malloc(sizeof *m);
    if (m) {
        *m = none;
        m->sent = calloc((size_t)m->ranks, sizeof *m->sent);
        m->received = calloc((size_t)m->ranks, sizeof *m->received);
        m->node_of = calloc((size_t)m->ranks, sizeof *m->node_of);
    }
    enum pici_memory memory = PICI_MEMORY_HOST;
    s = PICI_E_NOMEM;
    if (m && m->sent && m->received && m->node_of)
        s = find_memory(&memory, words);
    s = agree(none.comm, s, words);
    if (s) {
        if (m)
            mpi_close(m);
        else
            MPI_Comm_free(&none.comm);
        pici_comm_failed(words);
        return s;
    }
    m->no_nodes = find_nodes(m);
    m->dense = (struct mpi_dense){.comm = m->comm, .rank = m->rank, .ranks = m->ranks};
    *t = (struct pici_transport){
        .size = sizeof *t,
        .context = m,
        .rank = m->rank,
        .ranks = m->ranks,
        .send = mpi_send,
        .recv = mpi_recv,
        .test = mpi_test,
        .wait = mpi_wait,
        .abandon = mpi_abandon,
        .close = mpi_close,
        .nodes = mpi_nodes,
        .error = mpi_error,
        .memory = memory,
        .dense_ready = mpi_dense_ready,
        .dense = mpi_dense,
    };
    return PICI_OK;
}

enum pici_status pici_comm_mpi(struct pici_comm **out, MPI_Comm comm)
{
    struct pici_transport t;
    if (out)
        *out = NULL;
    enum pici_status s = pici_transport_mpi(&t, comm);
    if (s)
        return s;
    struct mpi *m = t.context;
    char words[WORDS];
    m->kept = 1; /* if this fails, agree still needs the duplicate */
    s = pici_comm_transport(out, &t);
    m->kept = 0;
    snprintf(words, sizeof words, "rank %d: %.300s", m->rank, pici_comm_error(NULL));
    const enum pici_status all = agree(m->comm, s, words);
    if (!all)
        return PICI_OK;
    if (s)
        mpi_close(m);
    else {
        pici_comm_free(*out);
        *out = NULL;
    }
    pici_comm_failed(words);
    return all;
}
