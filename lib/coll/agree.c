/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The agreement: all ranks learn what any rank knows. Before the data, they check that all make the same call and can
 * take part in it; after the data, that it succeeded.
 *
 * Dissemination: in round k, a rank sends everything it knows to the rank 2^k ahead. If the number of ranks is a power
 * of two, it sends to the rank whose number differs in bit k instead, as in doubling. Ranks combine knowledge with
 * idempotent functions (the worst status, the lowest and the highest call), so hearing a thing twice does no harm. The
 * messages do not depend on the call, so ranks that disagree still understand each other. Their format:
 * formats/agreement.md. */
#include <limits.h>
#include <string.h>

#include "bytes.h"
#include "coll/agree.h"
#include "coll/balance.h"
#include "coll/early.h"
#include "coll/mismatch.h"
#include "coll/note.h"
#include "coll/native.h"
#include "coll/packing.h"

/* Offsets of a call's fields in AGREE_CALL_BYTES. Doubles are stored as bits: equal numbers have equal bits, since none
 * is -0.0 or a NaN. */
enum {
    CALL_KIND = 0,
    CALL_DTYPE = 1,
    CALL_OP = 2,
    CALL_ALGORITHM = 3,
    CALL_WINDOW = 4,
    CALL_ZEROS = 5,
    CALL_HISTORY = 6,
    CALL_PLAN = 7,
    CALL_COUNT = 8,
    CALL_SLICE = 16,
    CALL_SEQUENCE = 24,
    CALL_NODES = 32,
    CALL_TUNE = 40,
    CALL_DENSITY = 48,
    CALL_LATENCY = 56,
    CALL_ROOT = 72,   /* of a broadcast */
    CALL_COUNTS = 88, /* of an all-gatherv; these two have no codec */
    CALL_CODEC = 64,  /* the lossy codec, and its parameters but for balance; all zeros if it is exact */
    CALL_PHASES = 65,
    CALL_BITS = 66,
    CALL_NORM = 67,
    CALL_ROUNDING = 68,
    CALL_BALANCE = 69,
    CALL_BUCKET = 72,
    CALL_CAST = 76,
    CALL_PARAM = 80,
    CALL_SEED = 88,
    CALL_NX = 96,
    CALL_NY = 100
};

static int rounds_of(int ranks)
{
    int k = 0;
    while (k < 31 && 1L << k < ranks)
        k++;
    return k;
}

static uint64_t mix(uint64_t hash, int value)
{
    return (hash ^ (uint64_t)value) * UINT64_C(0x9e3779b97f4a7c15) + (hash >> 29);
}

/* Hash the order of ranks and where nodes begin in it: both follow from the node map. Also hash whether only paired
 * schedules are possible, since the choice of the algorithm depends on that. */
static uint64_t hash_nodes(const struct pici_comm *comm)
{
    uint64_t hash = 0;
    for (int i = 0; i < comm->ranks; i++)
        hash = mix(hash, comm->order[i]);
    for (int i = 1; i < comm->nodes; i++)
        hash = mix(hash, comm->begin[i]);
    return mix(hash, comm->paired_only);
}

void pici_agree_values(uint8_t bytes[AGREE_CALL_BYTES], const struct values *values)
{
    bytes[CALL_CODEC] = (uint8_t)values->codec->id;
    bytes[CALL_PHASES] = (uint8_t)values->phases;
    bytes[CALL_BITS] = (uint8_t)values->bits;
    bytes[CALL_NORM] = (uint8_t)values->norm;
    bytes[CALL_ROUNDING] = (uint8_t)values->rounding;
    store_le32(bytes + CALL_BUCKET, values->bucket);
    store_le32(bytes + CALL_CAST, (uint32_t)values->cast);
    store_le64(bytes + CALL_PARAM, double_bits(values->parameter));
    store_le64(bytes + CALL_SEED, values->seed);
    store_le32(bytes + CALL_NX, values->nx);
    store_le32(bytes + CALL_NY, values->ny);
}

static void describe(uint8_t *bytes, const struct pici_request *request)
{
    const struct coll_call *call = &request->call;
    bytes[CALL_KIND] = (uint8_t)call->resolved.said.kind;
    bytes[CALL_DTYPE] = (uint8_t)call->args.dtype;
    bytes[CALL_OP] = (uint8_t)call->args.op;
    bytes[CALL_ALGORITHM] = (uint8_t)call->opts.algorithm;
    bytes[CALL_WINDOW] = (uint8_t)call->opts.window; /* at most COLL_MAX_WINDOW */
    bytes[CALL_ZEROS] = coll_gathers(call->args.kind) && call->resolved.by_value;
    bytes[CALL_HISTORY] = call->opts.history != 0;
    bytes[CALL_PLAN] = (uint8_t)call->resolved.said.plan;
    store_le64(bytes + CALL_COUNT, call->resolved.said.count);
    store_le64(bytes + CALL_SLICE, call->opts.slice_bytes);
    store_le64(bytes + CALL_SEQUENCE, request->sequence);
    store_le64(bytes + CALL_NODES, hash_nodes(request->comm));
    store_le64(bytes + CALL_TUNE, call->resolved.basis);
    store_le64(bytes + CALL_DENSITY, double_bits(call->opts.density));
    store_le64(bytes + CALL_LATENCY, double_bits(call->opts.latency));
    memset(bytes + CALL_CODEC, 0, AGREE_CALL_BYTES - CALL_CODEC);
    if (call->args.kind == PICI_BROADCAST)
        store_le32(bytes + CALL_ROOT, (uint32_t)call->args.root);
    if (call->args.kind == PICI_ALL_GATHERV)
        store_le64(bytes + CALL_COUNTS, call->resolved.counts_hash);
    if (call->args.kind == PICI_ALL_REDUCE)
        bytes[CALL_BALANCE] = (uint8_t)call->opts.balance;
    if (call->opts.values.phases)
        pici_agree_values(bytes, &call->opts.values);
}

/* Report how two calls differ, if they differ in a non-integer option or in the data from which ranks choose the
 * algorithm. */
static void explain_choice(struct pici_comm *comm, const struct coll_agreement *agreement)
{
    static const struct {
        const char *what;
        int at;
    } field[] = {{"option density", CALL_DENSITY},
                 {"option latency", CALL_LATENCY},
                 {"option values: rate or tolerance", CALL_PARAM}};
    const unsigned long lower = agreement->low_rank, higher = agreement->high_rank;
    for (size_t i = 0; i < sizeof field / sizeof *field; i++) {
        const uint64_t lower_value = load_le64(agreement->low + field[i].at),
                       higher_value = load_le64(agreement->high + field[i].at);
        if (lower_value != higher_value) {
            pici_coll_note(comm, "ranks disagree on the %s: %g on rank %lu, %g on rank %lu", field[i].what,
                           double_of_bits(lower_value), lower, double_of_bits(higher_value), higher);
            return;
        }
    }
    const uint64_t lower_value = load_le64(agreement->low + CALL_TUNE),
                   higher_value = load_le64(agreement->high + CALL_TUNE);
    if (lower_value != higher_value)
        pici_coll_note(comm,
                       "ranks %lu and %lu choose algorithms by different tune files (PICI_TUNE), or, without a file, "
                       "by different bandwidths: hashes %016llx and %016llx; 0 is none",
                       lower, higher, (unsigned long long)lower_value, (unsigned long long)higher_value);
}

static const char *dtype_name(uint64_t t)
{
    return pici_dtype_name((enum pici_dtype)t);
}

static const char *op_name(uint64_t op)
{
    static const char *const names[] = {"sum", "avg", "min", "max"};
    return op < sizeof names / sizeof *names ? names[op] : NULL;
}

static const char *codec_name(uint64_t id)
{
    static const char *const names[] = {"exact", "cast", "QSGD", "ZFP"};
    return id < sizeof names / sizeof *names ? names[id] : NULL;
}

static const char *balance_name(uint64_t balance)
{
    static const char *const names[] = {NULL, "auto", "on", "off"};
    return balance < sizeof names / sizeof *names ? names[balance] : NULL;
}

static const char *algorithm_name(uint64_t a)
{
    return pici_algorithm_name((enum pici_algorithm)a);
}

/* Report how two calls differ. */
static void explain(struct pici_comm *comm, const struct coll_agreement *agreement)
{
    static const struct {
        const char *what;
        int at, bytes;
        const char *(*name)(uint64_t); /* NULL: it is a number */
        int kind;                      /* the kind of call that has this field; 0: all */
    } field[] = {{"dtype", CALL_DTYPE, 1, dtype_name, 0},
                 {"root", CALL_ROOT, 4, NULL, PICI_BROADCAST},
                 {"sum of recvcounts", CALL_COUNT, 8, NULL, PICI_ALL_GATHERV},
                 {"recvcounts, shown as hashes", CALL_COUNTS, 8, NULL, PICI_ALL_GATHERV},
                 {"op", CALL_OP, 1, op_name, 0},
                 {"count", CALL_COUNT, 8, NULL, 0},
                 {"algorithm", CALL_ALGORITHM, 1, algorithm_name, 0},
                 {"bytes of a slice", CALL_SLICE, 8, NULL, 0},
                 {"window", CALL_WINDOW, 1, NULL, 0},
                 {"option zeros", CALL_ZEROS, 1, NULL, 0},
                 {"number of the call", CALL_SEQUENCE, 8, NULL, 0},
                 {"plan", CALL_PLAN, 1, NULL, 0},
                 {"node map", CALL_NODES, 8, NULL, 0},
                 {"use of the density history (PICI_TUNE_HISTORY)", CALL_HISTORY, 1, NULL, 0},
                 {"option balance (PICI_BALANCE)", CALL_BALANCE, 1, balance_name, 0},
                 {"option values: codec", CALL_CODEC, 1, codec_name, 0},
                 {"option values: phases", CALL_PHASES, 1, NULL, 0},
                 {"option values: cast", CALL_CAST, 4, dtype_name, 0},
                 {"option values: bits, or rate and tolerance", CALL_BITS, 1, NULL, 0},
                 {"option values: norm, or version of ZFP's streams", CALL_NORM, 1, NULL, 0},
                 {"option values: rounding", CALL_ROUNDING, 1, NULL, 0},
                 {"option values: bucket", CALL_BUCKET, 4, NULL, 0},
                 {"option values: seed", CALL_SEED, 8, NULL, 0},
                 {"option values: nx", CALL_NX, 4, NULL, 0},
                 {"option values: ny", CALL_NY, 4, NULL, 0}};
    const uint8_t *lower = agreement->low, *higher = agreement->high;
    if (lower[CALL_KIND] != higher[CALL_KIND]) {
        pici_coll_note(comm, "rank %lu calls %s, rank %lu calls %s", (unsigned long)agreement->low_rank,
                       pici_coll_name(lower[CALL_KIND]), (unsigned long)agreement->high_rank,
                       pici_coll_name(higher[CALL_KIND]));
        return;
    }
    for (size_t i = 0; i < sizeof field / sizeof *field; i++) {
        uint64_t lower_value = 0, higher_value = 0;
        if (field[i].kind && field[i].kind != lower[CALL_KIND])
            continue;
        for (int byte = field[i].bytes; byte--;) {
            lower_value = lower_value << 8 | lower[field[i].at + byte];
            higher_value = higher_value << 8 | higher[field[i].at + byte];
        }
        const char *const lower_name = field[i].name ? field[i].name(lower_value) : NULL;
        const char *const higher_name = field[i].name ? field[i].name(higher_value) : NULL;
        if (lower_value != higher_value && lower_name && higher_name) {
            pici_coll_note(comm, "ranks disagree on the %s: %s on rank %lu, %s on rank %lu", field[i].what, lower_name,
                           (unsigned long)agreement->low_rank, higher_name, (unsigned long)agreement->high_rank);
            return;
        }
        if (lower_value != higher_value) {
            pici_coll_note(comm, "ranks disagree on the %s: %llu on rank %lu, %llu on rank %lu", field[i].what,
                           (unsigned long long)lower_value, (unsigned long)agreement->low_rank,
                           (unsigned long long)higher_value, (unsigned long)agreement->high_rank);
            return;
        }
    }
    explain_choice(comm, agreement);
}

static size_t write_word(uint8_t *message, const struct pici_request *request, enum msg_kind kind, size_t data)
{
    uint8_t counts[AGREE_COUNTS_BYTES];
    const struct coll_agreement *agreement = &request->agree;
    struct msg_word word = {.prefix = {.kind = kind,
                                       .dtype = (unsigned)request->call.args.dtype,
                                       .op = (unsigned)request->call.args.op,
                                       .algorithm = (unsigned)request->call.opts.algorithm,
                                       .sequence = request->sequence,
                                       .blocks = (uint32_t)data},
                            .status = (uint32_t)agreement->status,
                            .culprit = (uint32_t)agreement->culprit,
                            .low_rank = agreement->low_rank,
                            .high_rank = agreement->high_rank,
                            .abilities = agreement->abilities,
                            .stored = agreement->stored,
                            .counts = kind == MSG_AGREE_CALL ? pici_balance_say(request, counts) : NULL};
    memcpy(word.low, agreement->low, AGREE_CALL_BYTES);
    memcpy(word.high, agreement->high, AGREE_CALL_BYTES);
    memcpy(word.density, agreement->density, sizeof word.density);
    return pici_msg_put_word(message, &word);
}

static void learn(struct coll_agreement *agreement, enum pici_status status, int culprit)
{
    if (status < agreement->status || (status == agreement->status && culprit < agreement->culprit)) {
        agreement->status = status;
        agreement->culprit = culprit;
    }
}

/* Whether this rank knows of no disagreement and no error. */
static int agreed(const struct coll_agreement *agreement)
{
    return !agreement->status && memcmp(agreement->low, agreement->high, AGREE_CALL_BYTES) == 0;
}

/* Combine what a peer knows with what this rank knows. Returns the bytes of data that should follow. */
static size_t read_word(struct pici_request *request, const uint8_t *message, size_t size, enum msg_kind kind, int peer)
{
    struct coll_agreement *agreement = &request->agree;
    struct msg_word word;
    enum pici_status status = pici_msg_get_word(&word, message, size, kind);
    if (status) {
        if (status == PICI_E_PEER)
            pici_coll_note(request->comm,
                           "rank %d runs an incompatible version of pici: message version %lu, here %d; install the "
                           "same version on all ranks",
                           peer, (unsigned long)word.version, MSG_VERSION);
        else
            pici_coll_note(request->comm, "rank %d sent an invalid message instead of its %s", peer,
                           kind == MSG_AGREE_CALL ? "call" : "verdict");
        learn(agreement, status, peer);
        return 0;
    }
    if (kind == MSG_AGREE_CALL)
        pici_balance_hear(request, word.counts);
    agreement->abilities &= word.abilities;
    agreement->stored = word.stored > agreement->stored ? word.stored : agreement->stored;
    if (word.status)
        learn(agreement, pici_msg_status(word.status), (int)(word.culprit & INT_MAX));
    for (int i = 0; i < DENSITIES; i++)
        agreement->density[i] = word.density[i] > agreement->density[i] ? word.density[i] : agreement->density[i];
    if (memcmp(word.low, agreement->low, AGREE_CALL_BYTES) < 0) {
        memcpy(agreement->low, word.low, AGREE_CALL_BYTES);
        agreement->low_rank = word.low_rank;
    }
    if (memcmp(word.high, agreement->high, AGREE_CALL_BYTES) > 0) {
        memcpy(agreement->high, word.high, AGREE_CALL_BYTES);
        agreement->high_rank = word.high_rank;
    }
    return word.prefix.blocks;
}

void pici_coll_agree_begin(struct pici_request *request, enum msg_kind kind)
{
    struct coll_agreement *agreement = &request->agree;
    agreement->round = agreement->posted = 0;
    agreement->rounds = rounds_of(request->comm->ranks);
    agreement->status = request->status;
    agreement->culprit = request->culprit;
    if (kind == MSG_AGREE_CALL) {
        describe(agreement->low, request);
        memcpy(agreement->high, agreement->low, AGREE_CALL_BYTES);
        agreement->low_rank = agreement->high_rank = (uint32_t)request->comm->rank;
        agreement->abilities = pici_native_can(request) | pici_packing_can(request) | pici_balance_can(request);
        agreement->stored = request->call.resolved.stored;
    } else {
        pici_mismatch_say(agreement->low, request);
    }
    for (int i = 0; i < DENSITIES; i++)
        agreement->density[i] = kind == MSG_AGREE_CALL ? 0 : pici_density_of(&request->counted[i]);
    if (kind == MSG_AGREE_CALL && request->call.resolved.agreement == AGREE_LONGEST &&
        !request->status) /* else it may be out of range */
        agreement->density[DENSITY_ONE] = (double)request->call.resolved.longest / (double)COLL_LONGEST;
}

/* Post the receive of a round, and send its message. */
static enum pici_status begin_round(struct pici_request *request, enum msg_kind kind)
{
    struct pici_comm *comm = request->comm;
    const struct pici_transport *transport = &comm->transport;
    struct coll_agreement *agreement = &request->agree;
    const int p = comm->ranks, far = 1 << agreement->round, pairs = pici_early_ranks(p);
    const int to = pairs ? comm->rank ^ far : (int)(((long)comm->rank + far) % p);
    const int from = pairs ? to : (int)(((long)comm->rank + p - far) % p);
    size_t data = 0;
    agreement->incoming = (struct coll_flight){.peer = from};
    agreement->outgoing = (struct coll_flight){.peer = to};
    agreement->said = comm->agreements;
    agreement->heard = agreement->said + pici_early_place(comm);
    if (kind == MSG_AGREE_CALL && request->early) {
        pici_early_make(request);
        agreement->said = agreement->outgoing.buffer->bytes - AGREE_BYTES;
        agreement->heard = agreement->incoming.buffer->bytes - AGREE_BYTES;
        data = agreement->outgoing.buffer->size;
    }
    pici_step_receives(comm, 1);
    enum pici_status status = transport->recv(transport->context, from, agreement->heard, pici_early_place(comm),
                                              &agreement->incoming.request);
    if (status)
        return pici_coll_lost(comm, from, status);
    const size_t bytes = data + write_word(agreement->said, request, kind, data);
    pici_step_sends(comm, 1, 0); /* the next message depends on the peer's */
    status = transport->send(transport->context, to, agreement->said, bytes, &agreement->outgoing.request);
    if (status)
        return pici_coll_lost(comm, to, status);
    agreement->posted = 1;
    pici_request_sent(request, to, bytes);
    request->stats.dense_bytes += bytes - data;
    return PICI_OK;
}

/* Test the two messages of a round. Sets *ended if both have completed. */
static enum pici_status round_ended(struct pici_request *request, int *progressed, int *ended)
{
    struct pici_comm *comm = request->comm;
    const struct pici_transport *transport = &comm->transport;
    struct coll_flight *flights[] = {&request->agree.incoming, &request->agree.outgoing};
    for (int i = 0; i < 2; i++) {
        struct coll_flight *flight = flights[i];
        if (flight->done)
            continue;
        enum pici_status status = transport->test(transport->context, flight->request, &flight->done, &flight->bytes);
        /* longer than any version's message: not valid */
        if (status == PICI_E_CORRUPT && flight->done)
            flight->bytes = 0;
        else if (status)
            return pici_coll_lost(comm, flight->peer, status);
        *progressed |= flight->done;
    }
    *ended = flights[0]->done && flights[1]->done;
    return PICI_OK;
}

enum pici_status pici_coll_agree(struct pici_request *request, enum msg_kind kind, int *progressed, int *done)
{
    struct coll_agreement *agreement = &request->agree;
    for (; agreement->round < agreement->rounds; agreement->round++, agreement->posted = 0) {
        enum pici_status status;
        int ended = 0;
        if (!agreement->posted) {
            if ((status = begin_round(request, kind)))
                return status;
            *progressed = 1;
        }
        if ((status = round_ended(request, progressed, &ended)) || !ended)
            return status;
        const size_t data =
            read_word(request, agreement->heard, agreement->incoming.bytes, kind, agreement->incoming.peer);
        if (kind == MSG_AGREE_CALL && request->early)
            pici_early_receive(request, data, agreed(agreement));
    }
    if (kind == MSG_AGREE_CALL && !agreement->status && !agreed(agreement)) {
        explain(request->comm, agreement);
        learn(agreement, PICI_E_PEER, (int)agreement->high_rank);
    }
    if (kind == MSG_AGREE_CALL && request->call.resolved.agreement == AGREE_LONGEST)
        request->call.resolved.longest = (uint64_t)(agreement->density[DENSITY_ONE] * (double)COLL_LONGEST);
    if (kind == MSG_AGREE_STATUS && agreement->status)
        pici_mismatch_explain(request, agreement->low);
    if (agreement->status) { /* replaces the error that this rank alone found in its data */
        request->status = agreement->status;
        request->culprit = agreement->culprit;
    }
    *done = 1;
    return PICI_OK;
}
