/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Makes one communicator of two. The ranks exchange short records in rounds. First, over outer, each rank describes its
 * inner communicator. Then, over inner, each rank says which rank of outer it is. Two more rounds over outer share what
 * the ranks found, and whether they have made theirs. After each round over outer all ranks have the same records, so
 * all come to the same verdict. */
#define _POSIX_C_SOURCE 200809L
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bytes.h"
#include "coll/make.h"
#include "coll/message.h"
#include "coll/note.h"
#include "transport/levels.h"

/* A record: 64-bit words. */
enum { WORD_MAGIC, WORD_STATUS, WORD_FAULT, WORD_SIZE, WORD_PLACE, WORD_KIND, WORD_RANK, WORD_NONCE, WORDS };
enum { RECORD_BYTES = WORDS * 8 };

static const uint64_t magic = UINT64_C(0x316c766c69636970); /* "picilvl1" */

/* The faults that a rank may find. */
enum fault { FAULT_NONE, NO_INNER, SAME, NOT_IDLE, OLD, BOTH_STEP, STRANGERS, NO_ANSWER, NOT_MADE };

static const char *const faults[] = {
    "",
    "the inner communicator is NULL",
    "inner and outer are the same communicator",
    "one of the communicators is broken, or has requests in flight",
    "one of the transports has the struct of version 0.1",
    "both communicators are over NCCL, or another transport with steps",
    "its inner communicator has ranks of another outer one",
    "not all ranks of its inner communicator have answered",
    "its communicator cannot be made",
};

struct making {
    struct pici_comm *inner, *outer;
    uint8_t *records, *inside; /* [ranks of outer], [of inner]: records */
    void **requests;           /* [2 * ranks of outer] */
    int *number, *node_of;     /* [ranks of outer] */
    uint8_t *taken;            /* [ranks of outer] */
    enum pici_status status;   /* this rank's error */
    enum fault fault;
    int leaks; /* a transport may still use the records */
};

static uint64_t word(const uint8_t *records, int rank, int which)
{
    return load_le64(records + (size_t)rank * RECORD_BYTES + (size_t)which * 8);
}

static void set_word(uint8_t *records, int rank, int which, uint64_t value)
{
    store_le64(records + (size_t)rank * RECORD_BYTES + (size_t)which * 8, value);
}

static void found(struct making *making, enum pici_status status, enum fault fault)
{
    if (!making->status) {
        making->status = status;
        making->fault = fault;
    }
}

/* ---- rounds */

/* Begin to exchange records with all others: the first half of the requests are receives. */
static enum pici_status begin(struct pici_comm *comm, uint8_t *records, void **requests)
{
    const struct pici_transport *transport = &comm->transport;
    const int ranks = comm->ranks, peers = ranks - 1;
    enum pici_status status = PICI_OK;
    if (transport->receives)
        transport->receives(transport->context, peers);
    for (int i = 0; i < ranks && !status; i++)
        if (i != comm->rank)
            status =
                transport->recv(transport->context, i, records + (size_t)i * RECORD_BYTES, RECORD_BYTES, &requests[i]);
    if (transport->sends && !status)
        transport->sends(transport->context, peers, 0);
    for (int i = 0; i < ranks && !status; i++)
        if (i != comm->rank)
            status = transport->send(transport->context, i, records + (size_t)comm->rank * RECORD_BYTES, RECORD_BYTES,
                                     &requests[ranks + i]);
    return status;
}

/* Test all requests. *left: the number that have not ended. */
static enum pici_status test_all(struct pici_comm *comm, void **requests, int *left)
{
    const struct pici_transport *transport = &comm->transport;
    *left = 0;
    for (int i = 0; i < 2 * comm->ranks; i++) {
        int done = 0;
        size_t bytes = 0;
        if (!requests[i])
            continue;
        enum pici_status status = transport->test(transport->context, requests[i], &done, &bytes);
        requests[i] = done ? NULL : requests[i];
        if (done && !status && bytes != RECORD_BYTES)
            status = PICI_E_PEER; /* the peer makes another call */
        if (status)
            return status;
        *left += !done;
    }
    return PICI_OK;
}

/* One round: each rank gets the records of all ranks. A failure breaks the communicator. */
static enum pici_status exchange(struct making *making, struct pici_comm *comm, uint8_t *records, double seconds)
{
    const struct pici_transport *transport = &comm->transport;
    const double end = pici_coll_now() + seconds;
    int left = 1;
    memset(making->requests, 0, 2 * (size_t)comm->ranks * sizeof *making->requests);
    enum pici_status status = begin(comm, records, making->requests);
    while (!status && left) {
        status = test_all(comm, making->requests, &left);
        if (status || !left)
            break;
        if (seconds >= 0 && pici_coll_now() > end)
            status = PICI_E_TIMEOUT;
        else if (transport->wait)
            transport->wait(transport->context, 10);
        else
            sched_yield();
    }
    for (int i = 0; i < comm->ranks && !status; i++)
        if (word(records, i, WORD_MAGIC) != magic)
            status = PICI_E_PEER;
    if (!status)
        return PICI_OK;
    const char *reason = transport->error ? transport->error(transport->context) : "";
    pici_coll_note(NULL, "levels: the ranks of the %s communicator do not all make this call, or are gone: %s%s%s",
                   comm == making->outer ? "outer" : "inner", pici_strerror(status), reason[0] ? ": " : "", reason);
    comm->broken = status;
    if (transport->abandon(transport->context, status))
        comm->leaks = making->leaks = 1;
    return status;
}

static double timeout_of(const struct pici_comm *comm)
{
    return 1e-3 * comm->settings.timeout_ms;
}

/* One round over outer, with this rank's status. Afterwards all ranks know the lowest rank that has an error. */
static enum pici_status tell(struct making *making, double seconds)
{
    struct pici_comm *outer = making->outer;
    set_word(making->records, outer->rank, WORD_MAGIC, magic);
    set_word(making->records, outer->rank, WORD_STATUS, (uint64_t)making->status);
    set_word(making->records, outer->rank, WORD_FAULT, making->fault);
    enum pici_status status = exchange(making, outer, making->records, seconds);
    for (int i = 0; i < outer->ranks && !status; i++) {
        const uint64_t said = word(making->records, i, WORD_STATUS), fault = word(making->records, i, WORD_FAULT);
        if (!said)
            continue;
        status = pici_msg_status((uint32_t)said);
        pici_coll_note(NULL, "levels: rank %d: %s (%s)", i, fault < sizeof faults / sizeof *faults ? faults[fault] : "",
                       pici_strerror(status));
    }
    return status;
}

/* ---- verdicts: the same on all ranks */

/* Whether inner communicators of these sizes can hold each rank of outer exactly once. Among the ranks whose inner
 * communicator has size s, each number from 0 to s - 1 must occur equally often. All must be of one kind. */
static enum pici_status check_claims(const struct making *making)
{
    const int ranks = making->outer->ranks;
    const uint8_t *records = making->records;
    for (int i = 0; i < ranks; i++) {
        const uint64_t size = word(records, i, WORD_SIZE), place = word(records, i, WORD_PLACE);
        int same = 0, first = 0;
        if (word(records, i, WORD_KIND) != word(records, 0, WORD_KIND)) {
            pici_coll_note(NULL, "levels: ranks 0 and %d differ in whether the inner communicator is over NCCL", i);
            return PICI_E_UNSUPPORTED;
        }
        for (int j = 0; j < ranks; j++)
            if (word(records, j, WORD_SIZE) == size) {
                same += word(records, j, WORD_PLACE) == place;
                first += word(records, j, WORD_PLACE) == 0;
            }
        if (place >= size || same != first) {
            pici_coll_note(NULL,
                           "levels: %d ranks of outer are rank %d of an inner communicator of %d, and %d are its rank "
                           "0: together the inner ones must have each rank of outer once",
                           same, (int)place, (int)size, first);
            return PICI_E_PEER;
        }
    }
    return PICI_OK;
}

/* Whether the ranks that name the same lowest rank form one inner communicator. Sets node_of and number. */
static enum pici_status check_nodes(struct making *making)
{
    const struct pici_comm *outer = making->outer;
    const uint8_t *records = making->records;
    const int ranks = outer->ranks;
    uint64_t used = 0;
    for (int i = 0; i < ranks; i++) {
        const uint64_t lowest = word(records, i, WORD_RANK), size = word(records, i, WORD_SIZE);
        if (lowest >= (uint64_t)ranks || word(records, (int)lowest, WORD_RANK) != lowest ||
            word(records, (int)lowest, WORD_SIZE) != size) {
            pici_coll_note(NULL, "levels: the ranks of rank %d's inner communicator do not agree on who they are", i);
            return PICI_E_PEER;
        }
        making->node_of[i] = (int)lowest;
        if (lowest == (uint64_t)i) {
            making->number[i] = (int)used; /* for now: the index in `taken` where its node's places begin */
            used = size <= (uint64_t)ranks - used ? used + size : (uint64_t)ranks + 1;
        }
        if (used > (uint64_t)ranks)
            break;
    }
    for (int i = 0; i < ranks && used == (uint64_t)ranks; i++) {
        uint8_t *taken = &making->taken[making->number[making->node_of[i]] + (int)word(records, i, WORD_PLACE)];
        used += *taken; /* two ranks have this place, so another place is empty */
        *taken = 1;
    }
    if (used != (uint64_t)ranks) {
        pici_coll_note(NULL, "levels: together the inner communicators do not have each rank of outer once");
        return PICI_E_PEER;
    }
    for (int i = 0; i < ranks; i++)
        making->number[i] = making->node_of[i] == making->node_of[outer->rank] ? (int)word(records, i, WORD_PLACE) : -1;
    return PICI_OK;
}

/* ---- making it */

static int idle(const struct pici_comm *comm)
{
    return !comm->broken && !comm->head && comm->generation == pici_coll_generation();
}

/* Check the arguments on this rank. */
static void look(struct making *making)
{
    const struct pici_comm *inner = making->inner, *outer = making->outer;
    if (!inner)
        found(making, PICI_E_ARG, NO_INNER);
    else if (inner == outer)
        found(making, PICI_E_ARG, SAME);
    else if (!idle(inner) || inner->failed || outer->failed)
        found(making, PICI_E_BROKEN, NOT_IDLE);
    else if (inner->paired_only || outer->paired_only)
        found(making, PICI_E_UNSUPPORTED, OLD);
    else if (inner->transport.receives && outer->transport.receives)
        found(making, PICI_E_UNSUPPORTED, BOTH_STEP);
}

/* The round over inner: its ranks exchange their ranks in outer. Returns the lowest. */
static uint64_t meet_inside(struct making *making)
{
    struct pici_comm *inner = making->inner, *outer = making->outer;
    const uint64_t nonce = word(making->records, 0, WORD_NONCE);
    uint64_t lowest = (uint64_t)outer->rank;
    memset(making->inside, 0, (size_t)inner->ranks * RECORD_BYTES);
    set_word(making->inside, inner->rank, WORD_MAGIC, magic);
    set_word(making->inside, inner->rank, WORD_NONCE, nonce);
    set_word(making->inside, inner->rank, WORD_RANK, lowest);
    const enum pici_status status = exchange(making, inner, making->inside, timeout_of(outer));
    if (status) {
        found(making, status, NO_ANSWER);
        return lowest;
    }
    for (int i = 0; i < inner->ranks; i++) {
        const uint64_t rank = word(making->inside, i, WORD_RANK);
        if (word(making->inside, i, WORD_NONCE) != nonce)
            found(making, PICI_E_PEER, STRANGERS);
        lowest = rank < lowest ? rank : lowest;
    }
    return lowest;
}

/* A number that identifies this outer communicator. */
static uint64_t nonce_of(const struct making *making)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec + (uint64_t)(uintptr_t)making->outer;
}

/* Keep the hints that the caller gave for the two links. */
static void keep_hints(struct pici_comm *comm, const struct pici_comm *inner, const struct pici_comm *outer)
{
    const struct coll_settings *of[POLICY_LINKS] = {
        [POLICY_INTER] = &outer->settings, [POLICY_INTRA] = &inner->settings};
    for (int i = 0; i < POLICY_LINKS; i++)
        if (of[i]->known >> i & 1) {
            comm->settings.bandwidth[i] = of[i]->bandwidth[i];
            comm->settings.known |= 1u << i;
        }
}

/* The engine for elements in a GPU's memory moves to the new communicator. */
static enum pici_status move_engine(struct pici_comm *comm, struct pici_comm *inner, struct pici_comm *outer)
{
    struct pici_comm *from = inner->other ? inner : outer;
    const enum pici_status status = from->other ? pici_comm_engine(comm, from->other, from->other_self) : PICI_OK;
    if (!status)
        from->other = NULL;
    return status;
}

/* All ranks fit together: make the communicator, and tell the others. */
static enum pici_status make(struct making *making, struct pici_comm **out)
{
    struct pici_comm *inner = making->inner, *outer = making->outer, *comm = NULL;
    struct pici_transport transport;
    enum pici_status status =
        pici_transport_levels(&transport, &inner->transport, &outer->transport, making->number, making->node_of);
    /* the new communicator's trace may have the same path */
    (void)pici_trace_close(inner->trace);
    (void)pici_trace_close(outer->trace);
    inner->trace = outer->trace = NULL;
    if (!status)
        status = pici_comm_transport(&comm, &transport);
    if (status)
        found(making, status, NOT_MADE);
    status = tell(making, timeout_of(outer));
    if (status) {
        if (comm)
            pici_comm_free(comm); /* its transport does not own the two yet */
        return status;
    }
    pici_transport_levels_own(&transport);
    keep_hints(comm, inner, outer);
    status = move_engine(comm, inner, outer); /* fails only if parts of the library do not match */
    pici_comm_shell(inner);
    pici_comm_shell(outer);
    if (status) {
        pici_comm_free(comm);
        return status;
    }
    *out = comm;
    return PICI_OK;
}

static int allocate(struct making *making)
{
    const size_t ranks = (size_t)making->outer->ranks, inside = making->inner ? (size_t)making->inner->ranks : 0,
                 most = ranks > inside ? ranks : inside;
    making->records = calloc(ranks, RECORD_BYTES);
    making->inside = calloc(inside + 1, RECORD_BYTES);
    making->requests = calloc(2 * most, sizeof *making->requests);
    making->number = malloc(ranks * sizeof *making->number);
    making->node_of = malloc(ranks * sizeof *making->node_of);
    making->taken = calloc(ranks, 1);
    return making->records && making->inside && making->requests && making->number && making->node_of && making->taken;
}

static void release(struct making *making)
{
    if (!making->leaks) {
        free(making->records);
        free(making->inside);
    }
    free(making->requests);
    free(making->number);
    free(making->node_of);
    free(making->taken);
}

static enum pici_status run(struct making *making, struct pici_comm **out)
{
    struct pici_comm *inner = making->inner, *outer = making->outer;
    look(making);
    if (inner) {
        set_word(making->records, outer->rank, WORD_SIZE, (uint64_t)inner->ranks);
        set_word(making->records, outer->rank, WORD_PLACE, (uint64_t)inner->rank);
        set_word(making->records, outer->rank, WORD_KIND,
                 (uint64_t)(inner->transport.memory == PICI_MEMORY_DEVICE) << 1 | (inner->transport.receives != NULL));
    }
    set_word(making->records, outer->rank, WORD_NONCE, nonce_of(making));
    enum pici_status status = tell(making, timeout_of(outer));
    if (status || (status = check_claims(making)))
        return status;
    set_word(making->records, outer->rank, WORD_RANK, meet_inside(making));
    /* meanwhile, others may wait for a rank of their inner communicator */
    status = tell(making, 2 * timeout_of(outer));
    if (status || (status = check_nodes(making)))
        return status;
    return make(making, out);
}

enum pici_status pici_comm_levels(struct pici_comm **out, struct pici_comm *inner, struct pici_comm *outer)
{
    struct making making = {.inner = inner, .outer = outer};
    pici_coll_note(NULL, "%s", "");
    if (out)
        *out = NULL;
    if (!out || !outer) {
        pici_coll_note(NULL,
                       out ? "levels: the outer communicator is NULL" : "the pointer to the new communicator is NULL");
        return PICI_E_ARG;
    }
    if (!idle(outer)) {
        pici_coll_note(NULL, "levels: the outer communicator is broken, or has requests in flight");
        return PICI_E_BROKEN;
    }
    enum pici_status status = PICI_E_NOMEM;
    if (allocate(&making))
        status = run(&making, out);
    else
        pici_coll_note(NULL, "levels: no memory for %d ranks", outer->ranks);
    release(&making);
    return status;
}
