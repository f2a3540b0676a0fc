/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport over MPI. A message is one piece or many, for MPI counts in int: all of pici_mpi_piece bytes but the
 * last, which is shorter, maybe empty. So the receiver, who does not know the length, knows when it has all. The pieces
 * of a message follow each other, each begun when the one before has ended, and share a tag; messages in flight differ
 * in theirs. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/mpi_transport.h"
#include "transport/nap.h"

#if defined OPEN_MPI && defined __has_include
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#endif

enum { TAGS = 32768 }; /* every MPI has these; far more than messages in flight */

enum { WORDS = MPI_MAX_ERROR_STRING + 64 };

int pici_mpi_piece = 1 << 30;

struct request {
    struct request *kin;  /* the next of all requests */
    struct request *next; /* idle */
    MPI_Request mpi;      /* of the piece under way; MPI_REQUEST_NULL: idle */
    int sends, peer, tag;
    uint8_t *data;
    size_t bytes, at; /* length or capacity; bytes that are through */
    int piece;        /* bytes of the piece under way: of a receive at the most */
};

struct mpi {
    MPI_Comm comm;
    int rank, ranks;
    uint16_t *sent, *received; /* [ranks] messages so far, modulo TAGS: their tags */
    int *node_of;              /* [ranks] */
    struct request *requests, *idle;
    int looks; /* in vain, since something ended */
    int abandoned;
    int kept;                  /* close leaves it as it is */
    enum pici_status no_nodes; /* node_of could not be found out */
    char error[WORDS];
};

/* What MPI returned, in our words. */
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

/* MPI_Test. MPICH raises its errors on MPI_COMM_WORLD, whatever the communicator of the request: there they would end
 * the job if the program has not changed that. One thread at a time, lest one take our handler for the program's. */
static int test_request(MPI_Request *request, int *ended, MPI_Status *got)
{
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
}

/* ---- Requests ---- */

static struct request *request_new(struct mpi *m)
{
    struct request *q = m->idle;
    if (q) {
        m->idle = q->next;
        return q;
    }
    q = malloc(sizeof *q);
    if (!q)
        return NULL;
    q->mpi = MPI_REQUEST_NULL;
    q->kin = m->requests;
    m->requests = q;
    return q;
}

static void request_end(struct mpi *m, struct request *q)
{
    q->mpi = MPI_REQUEST_NULL;
    q->next = m->idle;
    m->idle = q;
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
    struct request *q = request_new(m);
    if (!q)
        return PICI_E_NOMEM;
    like.kin = q->kin;
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

static enum pici_status mpi_test(void *context, void *request, int *done, size_t *bytes)
{
    struct mpi *m = context;
    struct request *q = request;
    MPI_Status got;
    int ended = 0, len = q->piece;
    *done = 0;
    enum pici_status s = status_of(m, test_request(&q->mpi, &ended, &got), "MPI_Test");
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

/* MPI moves nothing on while nobody calls it, and has no wait that ends in time. */
static void mpi_wait(void *context, int timeout_ms)
{
    struct mpi *m = context;
    pici_transport_nap(&m->looks, timeout_ms);
}

/* MPI may not be asked to cancel a send, nor does it stop a receive that a message has begun to fill. */
static int mpi_abandon(void *context, enum pici_status why)
{
    struct mpi *m = context;
    int in_use = 0;
    (void)why; /* the peers have a timeout of their own */
    m->abandoned = 1;
    for (struct request *q = m->requests; q; q = q->kin) {
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

/* After abandon a late message may still come for this communicator: were it freed, a later one could get its number,
 * and the message. */
static void mpi_close(void *context)
{
    struct mpi *m = context;
    int finalized = 0;
    if (m->kept)
        return;
    MPI_Finalized(&finalized);
    if (!finalized && !m->abandoned && m->comm != MPI_COMM_NULL)
        MPI_Comm_free(&m->comm);
    for (struct request *q = m->requests, *kin; q; q = kin) {
        kin = q->kin;
        free(q);
    }
    free(m->sent);
    free(m->received);
    free(m->node_of);
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

/* ---- Making one ---- */

/* The worst status of all ranks, on all ranks, and the words of the first that has it. */
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

/* The duplicate returns its errors; so does the original meanwhile. */
static int duplicate(MPI_Comm comm, MPI_Comm *dup)
{
    MPI_Errhandler theirs;
    int rc = MPI_Comm_get_errhandler(comm, &theirs);
    if (rc != MPI_SUCCESS)
        return rc;
    rc = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (rc == MPI_SUCCESS) {
        rc = MPI_Comm_dup(comm, dup); /* copies it */
        MPI_Comm_set_errhandler(comm, theirs);
    }
    MPI_Errhandler_free(&theirs);
    return rc;
}

/* May messages be in a GPU's memory? As PICI_MPI_CUDA says, or else this MPI. */
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
#elif defined MPIX_CUDA_AWARE_SUPPORT /* Open MPI: with the extension, whether it is 0 or 1 */
        yes = MPIX_Query_cuda_support();
#endif
    }
    *memory = yes ? PICI_MEMORY_ANY : PICI_MEMORY_HOST;
    return PICI_OK;
}

/* A node is known by the lowest rank on it. */
static enum pici_status find_nodes(struct mpi *m)
{
    MPI_Comm node = MPI_COMM_NULL;
    int lowest = m->rank;
    int rc = MPI_Comm_split_type(m->comm, MPI_COMM_TYPE_SHARED, m->rank, MPI_INFO_NULL, &node);
    enum pici_status s = status_of(m, rc, "MPI_Comm_split_type");
    if (s)
        return s;
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
    m->kept = 1; /* over it they agree */
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
