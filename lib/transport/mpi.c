/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport over MPI. MPI counts bytes in an int, so a message is one piece or several. Each has pici_mpi_piece
 * bytes except the last, which is shorter and may be empty. By its length, the receiver knows that the message is
 * complete. A piece begins when the one before it has ended. The pieces of a message share a tag; messages in flight
 * between two ranks have different tags. */
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

enum { TAGS = 32768 }; /* tags that MPI guarantees at least; far more than messages in flight */

enum { ERROR_BYTES = MPI_MAX_ERROR_STRING + 320 };

int pici_mpi_piece = 1 << 30;

struct request {
    struct pool_item item;
    MPI_Request mpi; /* the piece in flight; MPI_REQUEST_NULL: not in use */
    int sends, peer, tag;
    uint8_t *data;
    size_t bytes, offset; /* bytes: length or capacity; offset: bytes of pieces that have ended */
    int piece;            /* bytes of the piece in flight; of a receive, the most that it may have */
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
    int looks; /* waits since a request last ended */
    int cores; /* each rank of this machine has a core */
    int abandoned;
    int kept;                  /* close does nothing */
    enum pici_status no_nodes; /* not PICI_OK: why node_of is unknown */
    char error[ERROR_BYTES];
};

/* MPI's return code as a status; notes an error message. */
static enum pici_status status_of(struct mpi *mpi, int rc, const char *operation)
{
    if (rc == MPI_SUCCESS)
        return PICI_OK;
    int class = MPI_ERR_UNKNOWN, size = 0;
    char text[MPI_MAX_ERROR_STRING] = "";
    MPI_Error_class(rc, &class);
    MPI_Error_string(rc, text, &size);
    snprintf(mpi->error, sizeof mpi->error, "%s: %s", operation, text);
    switch (class) {
    case MPI_ERR_TRUNCATE: return PICI_E_CORRUPT;
    case MPI_ERR_NO_MEM: return PICI_E_NOMEM;
    default: return PICI_E_TRANSPORT;
    }
}

/* MPI_Test. Open MPI raises its errors on the communicator of the request. MPICH raises them on MPI_COMM_WORLD, where
 * by default they end the job. So this function replaces the error handler of MPI_COMM_WORLD during the test. Only one
 * thread does so at a time: a second one would save ours as the program's. */
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

static void request_end(struct mpi *mpi, struct request *request)
{
    request->mpi = MPI_REQUEST_NULL;
    pool_give(&mpi->requests, &request->item);
}

/* Begin the piece at request->offset. */
static enum pici_status begin(struct mpi *mpi, struct request *request)
{
    const size_t remaining = request->bytes - request->offset;
    request->piece = remaining < (size_t)pici_mpi_piece ? (int)remaining : pici_mpi_piece;
    uint8_t *data = request->offset ? request->data + request->offset : request->data; /* data may be null */
    const int rc =
        request->sends
            ? MPI_Isend(data, request->piece, MPI_BYTE, request->peer, request->tag, mpi->comm, &request->mpi)
            : MPI_Irecv(data, request->piece, MPI_BYTE, request->peer, request->tag, mpi->comm, &request->mpi);
    return status_of(mpi, rc, request->sends ? "MPI_Isend" : "MPI_Irecv");
}

static enum pici_status start(struct mpi *mpi, struct request like, uint16_t *messages, void **request)
{
    struct request *pending = pool_take(&mpi->requests, sizeof *pending);
    if (!pending)
        return PICI_E_NOMEM;
    like.item = pending->item;
    like.mpi = MPI_REQUEST_NULL;
    like.tag = *messages;
    *messages = (uint16_t)((*messages + 1) % TAGS);
    *pending = like;
    enum pici_status status = begin(mpi, pending);
    if (status)
        request_end(mpi, pending);
    else
        *request = pending;
    return status;
}

/* ---- What a communicator calls ---- */

static enum pici_status mpi_send(void *context, int receiver, const void *data, size_t bytes, void **request)
{
    struct mpi *mpi = context;
    struct request like = {.sends = 1, .peer = receiver, .data = (uint8_t *)data, .bytes = bytes};
    return start(mpi, like, &mpi->sent[receiver], request);
}

static enum pici_status mpi_recv(void *context, int sender, void *data, size_t capacity, void **request)
{
    struct mpi *mpi = context;
    struct request like = {.peer = sender, .data = data, .bytes = capacity};
    return start(mpi, like, &mpi->received[sender], request);
}

/* Whether the piece in flight has ended. */
static int piece_ended(struct request *request, int *ended, MPI_Status *got)
{
#ifdef PICI_SMPI
    if (request->ended) {
        *ended = 1;
        *got = request->got;
        request->ended = 0;
        return MPI_SUCCESS;
    }
#endif
    return test_request(&request->mpi, ended, got);
}

static enum pici_status mpi_test(void *context, void *request, int *done, size_t *bytes)
{
    struct mpi *mpi = context;
    struct request *pending = request;
    MPI_Status got;
    int ended = 0, size = pending->piece;
    *done = 0;
    enum pici_status status = status_of(mpi, piece_ended(pending, &ended, &got), "MPI_Test");
    if (!status && !ended)
        return PICI_OK;
    mpi->looks = 0;
    if (!status && !pending->sends)
        status = status_of(mpi, MPI_Get_count(&got, MPI_BYTE, &size), "MPI_Get_count");
    if (!status) {
        pending->offset += (size_t)size;
        if (size == pici_mpi_piece) {
            status = begin(mpi, pending);
            if (!status)
                return PICI_OK;
        }
    }
    *done = 1;
    if (bytes)
        *bytes = status ? 0 : pending->offset;
    request_end(mpi, pending);
    return status;
}

#ifdef PICI_SMPI
/* For SimGrid's MPI, which simulates time: polling would round each wait up to the next poll. So wait until a request
 * ends, without a timeout. If none ever ends, SimGrid reports a deadlock. Returns 0 if there is nothing to wait for. */
static int wait_any(struct mpi *mpi)
{
    int requests = 0, count = 0, which = MPI_UNDEFINED;
    for (struct pool_item *item = mpi->requests.all; item; item = item->older)
        requests++;
    struct request *requests_of[requests + 1];
    MPI_Request live[requests + 1];
    MPI_Status got;
    for (struct pool_item *item = mpi->requests.all; item; item = item->older) {
        struct request *request = (struct request *)item;
        if (request->mpi == MPI_REQUEST_NULL) /* includes requests that an earlier wait found ended */
            continue;
        requests_of[count] = request;
        live[count++] = request->mpi;
    }
    if (MPI_Waitany(count, live, &which, &got) != MPI_SUCCESS || which == MPI_UNDEFINED)
        return 0;
    requests_of[which]->mpi = live[which];
    requests_of[which]->ended = 1;
    requests_of[which]->got = got;
    return 1;
}
#endif

/* MPI makes progress only while it is called, and has no wait with a timeout. */
static void mpi_wait(void *context, int timeout_ms)
{
    struct mpi *mpi = context;
#ifdef PICI_SMPI
    if (wait_any(mpi))
        return;
#endif
    pici_transport_nap(&mpi->looks, mpi->cores, timeout_ms);
}

/* MPI can neither cancel a send nor stop a receive that a message has begun to fill. */
static int mpi_abandon(void *context, enum pici_status reason)
{
    struct mpi *mpi = context;
    int in_use = 0;
    (void)reason; /* the peers have a timeout of their own */
    mpi->abandoned = 1;
    for (struct pool_item *item = mpi->requests.all; item; item = item->older) {
        struct request *request = (struct request *)item;
        if (request->mpi == MPI_REQUEST_NULL)
            continue;
        int ended = 0;
        if (!request->sends)
            MPI_Cancel(&request->mpi);
        if (test_request(&request->mpi, &ended, MPI_STATUS_IGNORE) == MPI_SUCCESS && !ended)
            in_use = 1;
    }
    return in_use;
}

/* After abandon, close does not free the communicator: a late message for it would reach a later communicator with the
 * same number. */
static void mpi_close(void *context)
{
    struct mpi *mpi = context;
    int finalized = 0;
    if (mpi->kept)
        return;
    MPI_Finalized(&finalized);
    if (!finalized && !mpi->abandoned && mpi->comm != MPI_COMM_NULL)
        MPI_Comm_free(&mpi->comm);
    pool_free(&mpi->requests);
    free(mpi->sent);
    free(mpi->received);
    free(mpi->node_of);
    free(mpi->dense.room);
    free(mpi);
}

static enum pici_status mpi_nodes(void *context, int *node_of)
{
    struct mpi *mpi = context;
    memcpy(node_of, mpi->node_of, (size_t)mpi->ranks * sizeof *node_of);
    return mpi->no_nodes;
}

static const char *mpi_error(void *context)
{
    struct mpi *mpi = context;
    return mpi->error;
}

static enum pici_status mpi_dense_ready(void *context, enum pici_collective collective, const void *send,
                                        const void *recv, uint64_t count, enum pici_dtype dtype, enum pici_op operation)
{
    struct mpi *mpi = context;
    mpi->dense.piece = pici_mpi_piece;
    return pici_mpi_dense_ready(&mpi->dense, collective, send, recv, count, dtype, operation);
}

static enum pici_status mpi_dense(void *context, enum pici_collective collective, const void *send, void *recv,
                                  uint64_t count, enum pici_dtype dtype, enum pici_op operation, int timeout_ms)
{
    struct mpi *mpi = context;
    (void)timeout_ms;
    mpi->looks = 0;
    return status_of(mpi, pici_mpi_dense(&mpi->dense, collective, send, recv, count, dtype, operation),
                     "a dense collective of MPI");
}

/* ---- Making one ---- */

/* All ranks return the worst status of any rank, with the explanation of the lowest rank that has it. */
static enum pici_status agree(MPI_Comm comm, enum pici_status mine, char explanation[ERROR_BYTES])
{
    struct {
        int status, rank;
    } own = {mine, 0}, worst;
    MPI_Comm_rank(comm, &own.rank);
    worst = own;
    if (MPI_Allreduce(&own, &worst, 1, MPI_2INT, MPI_MINLOC, comm) != MPI_SUCCESS)
        return mine ? mine : PICI_E_TRANSPORT;
    if (worst.status && MPI_Bcast(explanation, ERROR_BYTES, MPI_CHAR, worst.rank, comm) != MPI_SUCCESS)
        explanation[0] = '\0';
    return (enum pici_status)worst.status;
}

/* Duplicate a communicator. The duplicate returns errors, and so does the original during the call. */
static int duplicate(MPI_Comm comm, MPI_Comm *dup)
{
    MPI_Errhandler theirs;
    int rc = MPI_Comm_get_errhandler(comm, &theirs);
    if (rc != MPI_SUCCESS)
        return rc;
    rc = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (rc == MPI_SUCCESS) {
        rc = MPI_Comm_dup(comm, dup); /* inherits the handler */
        MPI_Comm_set_errhandler(comm, theirs);
    }
    MPI_Errhandler_free(&theirs);
    return rc;
}

/* Whether messages may be in GPU memory: by PICI_MPI_CUDA if it is set, else by this MPI. */
static enum pici_status find_memory(enum pici_memory *memory, char explanation[ERROR_BYTES])
{
    const char *said = getenv("PICI_MPI_CUDA");
    int supported = 0;
    if (said && strcmp(said, "0") != 0 && strcmp(said, "1") != 0) {
        snprintf(explanation, ERROR_BYTES, "environment variable PICI_MPI_CUDA is \"%.80s\", which is not 0 or 1",
                 said);
        return PICI_E_ARG;
    }
    if (said)
        supported = said[0] == '1';
    else {
#if defined MPIX_GPU_SUPPORT_CUDA /* MPICH, from version 4 on */
        if (MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &supported) != MPI_SUCCESS)
            supported = 0;
#elif defined MPIX_CUDA_AWARE_SUPPORT /* Open MPI with the extension: 0 or 1 */
        supported = MPIX_Query_cuda_support();
#endif
    }
    *memory = supported ? PICI_MEMORY_ANY : PICI_MEMORY_HOST;
    return PICI_OK;
}

/* The number of a node is the lowest rank on it. */
static enum pici_status find_nodes(struct mpi *mpi)
{
    MPI_Comm node = MPI_COMM_NULL;
    int lowest = mpi->rank, ranks;
    int rc = MPI_Comm_split_type(mpi->comm, MPI_COMM_TYPE_SHARED, mpi->rank, MPI_INFO_NULL, &node);
    enum pici_status status = status_of(mpi, rc, "MPI_Comm_split_type");
    if (status)
        return status;
    if (MPI_Comm_size(node, &ranks) == MPI_SUCCESS)
        mpi->cores = pici_transport_cores(ranks);
    status = status_of(mpi, MPI_Allreduce(&mpi->rank, &lowest, 1, MPI_INT, MPI_MIN, node), "MPI_Allreduce");
    if (!status)
        status =
            status_of(mpi, MPI_Allgather(&lowest, 1, MPI_INT, mpi->node_of, 1, MPI_INT, mpi->comm), "MPI_Allgather");
    MPI_Comm_free(&node);
    return status;
}

enum pici_status pici_transport_mpi(struct pici_transport *transport, MPI_Comm comm)
{
    int initialized = 0, finalized = 0, inter = 0;
    char explanation[ERROR_BYTES] = "no memory for a transport over MPI";
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (!initialized || finalized || comm == MPI_COMM_NULL || MPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS ||
        inter) {
        const char *wrong = inter ? "an intercommunicator" : "not an MPI communicator";
        if (finalized)
            wrong = "MPI is finalized";
        if (!initialized)
            wrong = "MPI is not initialized";
        pici_comm_failed(wrong);
        return PICI_E_ARG;
    }
    struct mpi none = {.comm = MPI_COMM_NULL}, *mpi = NULL;
    enum pici_status status = status_of(&none, duplicate(comm, &none.comm), "MPI_Comm_dup");
    if (status) {
        pici_comm_failed(none.error);
        return status;
    }
    MPI_Comm_rank(none.comm, &none.rank);
    MPI_Comm_size(none.comm, &none.ranks);
    mpi = malloc(sizeof *mpi);
    if (mpi) {
        *mpi = none;
        mpi->sent = calloc((size_t)mpi->ranks, sizeof *mpi->sent);
        mpi->received = calloc((size_t)mpi->ranks, sizeof *mpi->received);
        mpi->node_of = calloc((size_t)mpi->ranks, sizeof *mpi->node_of);
    }
    enum pici_memory memory = PICI_MEMORY_HOST;
    status = PICI_E_NOMEM;
    if (mpi && mpi->sent && mpi->received && mpi->node_of)
        status = find_memory(&memory, explanation);
    status = agree(none.comm, status, explanation);
    if (status) {
        if (mpi)
            mpi_close(mpi);
        else
            MPI_Comm_free(&none.comm);
        pici_comm_failed(explanation);
        return status;
    }
    mpi->no_nodes = find_nodes(mpi);
    mpi->dense = (struct mpi_dense){.comm = mpi->comm, .rank = mpi->rank, .ranks = mpi->ranks};
    *transport = (struct pici_transport){
        .size = sizeof *transport,
        .context = mpi,
        .rank = mpi->rank,
        .ranks = mpi->ranks,
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

enum pici_status pici_comm_mpi(struct pici_comm **output, MPI_Comm comm)
{
    struct pici_transport transport;
    if (output)
        *output = NULL;
    enum pici_status status = pici_transport_mpi(&transport, comm);
    if (status)
        return status;
    struct mpi *mpi = transport.context;
    char explanation[ERROR_BYTES];
    mpi->kept = 1; /* agree still needs the duplicate if this fails */
    status = pici_comm_transport(output, &transport);
    mpi->kept = 0;
    snprintf(explanation, sizeof explanation, "rank %d: %.300s", mpi->rank, pici_comm_error(NULL));
    const enum pici_status all = agree(mpi->comm, status, explanation);
    if (!all)
        return PICI_OK;
    if (status)
        mpi_close(mpi);
    else {
        pici_comm_free(*output);
        *output = NULL;
    }
    pici_comm_failed(explanation);
    return all;
}
