/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The rounds in which all ranks learn what any rank knows: before the data, whether all make the same call and can take
 * part in it; after the data, whether it succeeded. Dissemination: in round k a rank sends all it knows to the rank 2^k
 * ahead; if the number of ranks is a power of two, to the one whose number differs in bit k, as in doubling. Knowledge
 * is combined by functions that are idempotent (the worst status, the lowest and the highest call), so hearing a thing
 * twice does no harm. The messages do not depend on the call, so ranks that disagree still understand each other. Their
 * bytes: formats/message.md. */
#include <limits.h>
#include <string.h>

#include "bytes.h"
#include "coll/agree.h"
#include "coll/early.h"
#include "coll/note.h"
#include "coll/vendor.h"

/* A call, of AGREE_CALL_BYTES. Of doubles, bits: equal numbers have equal ones, since none is -0.0 or a NaN. */
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
    CALL_CODEC = 64,  /* the value codec, and its parameters; all zeros if it is exact */
    CALL_PHASES = 65,
    CALL_BITS = 66,
    CALL_NORM = 67,
    CALL_ROUNDING = 68,
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

/* A hash of what follows from the node map: the order of ranks, and where nodes begin in it; and of whether only paired
 * schedules are possible, since the choice of the algorithm depends on that too. */
static uint64_t hash_nodes(const struct pici_comm *comm)
{
    uint64_t hash = 0;
    for (int i = 0; i < comm->ranks; i++)
        hash = mix(hash, comm->order[i]);
    for (int i = 1; i < comm->nodes; i++)
        hash = mix(hash, comm->begin[i]);
    return mix(hash, comm->paired_only);
}

static void describe_values(uint8_t *p, const struct values *v)
{
    p[CALL_CODEC] = (uint8_t)v->codec->id;
    p[CALL_PHASES] = (uint8_t)v->phases;
    p[CALL_BITS] = (uint8_t)v->bits;
    p[CALL_NORM] = (uint8_t)v->norm;
    p[CALL_ROUNDING] = (uint8_t)v->rounding;
    store_le32(p + CALL_BUCKET, v->bucket);
    store_le32(p + CALL_CAST, (uint32_t)v->cast);
    store_le64(p + CALL_PARAM, double_bits(v->param));
    store_le64(p + CALL_SEED, v->seed);
    store_le32(p + CALL_NX, v->nx);
    store_le32(p + CALL_NY, v->ny);
}

static void describe(uint8_t *p, const struct pici_request *r)
{
    const struct coll_call *c = &r->call;
    p[CALL_KIND] = (uint8_t)c->resolved.said.kind;
    p[CALL_DTYPE] = (uint8_t)c->args.dtype;
    p[CALL_OP] = (uint8_t)c->args.op;
    p[CALL_ALGORITHM] = (uint8_t)c->opts.algorithm;
    p[CALL_WINDOW] = (uint8_t)c->opts.window; /* at most COLL_MAX_WINDOW */
    p[CALL_ZEROS] = coll_gathers(c->args.kind) && c->resolved.by_value;
    p[CALL_HISTORY] = c->opts.history != 0;
    p[CALL_PLAN] = (uint8_t)c->resolved.said.plan;
    store_le64(p + CALL_COUNT, c->resolved.said.count);
    store_le64(p + CALL_SLICE, c->opts.slice_bytes);
    store_le64(p + CALL_SEQUENCE, r->sequence);
    store_le64(p + CALL_NODES, hash_nodes(r->comm));
    store_le64(p + CALL_TUNE, c->resolved.basis);
    store_le64(p + CALL_DENSITY, double_bits(c->opts.density));
    store_le64(p + CALL_LATENCY, double_bits(c->opts.latency));
    memset(p + CALL_CODEC, 0, AGREE_CALL_BYTES - CALL_CODEC);
    if (c->args.kind == PICI_BROADCAST)
        store_le32(p + CALL_ROOT, (uint32_t)c->args.root);
    if (c->args.kind == PICI_ALL_GATHERV)
        store_le64(p + CALL_COUNTS, c->resolved.counts_hash);
    if (c->opts.values.phases)
        describe_values(p, &c->opts.values);
}

/* Describe how two calls differ, if that is in a number that is not an integer, or in what the algorithm is chosen
 * from. */
static void explain_choice(struct pici_comm *comm, const struct coll_agreement *a)
{
    static const struct {
        const char *what;
        int at;
    } field[] = {{"option density", CALL_DENSITY},
                 {"option latency", CALL_LATENCY},
                 {"option values: rate or tolerance", CALL_PARAM}};
    const unsigned long lower = a->low_rank, higher = a->high_rank;
    for (size_t i = 0; i < sizeof field / sizeof *field; i++) {
        const uint64_t x = load_le64(a->low + field[i].at), y = load_le64(a->high + field[i].at);
        if (x != y) {
            pici_coll_note(comm, "ranks disagree on the %s: %g on rank %lu, %g on rank %lu", field[i].what,
                           double_of_bits(x), lower, double_of_bits(y), higher);
            return;
        }
    }
    const uint64_t x = load_le64(a->low + CALL_TUNE), y = load_le64(a->high + CALL_TUNE);
    if (x != y)
        pici_coll_note(comm,
                       "ranks %lu and %lu choose algorithms by different tune files (PICI_TUNE), or, without a file, "
                       "by different bandwidths: hashes %016llx and %016llx; 0 is none",
                       lower, higher, (unsigned long long)x, (unsigned long long)y);
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

static const char *algorithm_name(uint64_t a)
{
    return pici_algorithm_name((enum pici_algorithm)a);
}

/* Describe how two calls differ. */
static void explain(struct pici_comm *comm, const struct coll_agreement *a)
{
    static const struct {
        const char *what;
        int at, bytes;
        const char *(*name)(uint64_t); /* NULL: it is a number */
        int kind;                      /* it has this meaning in calls of this kind only; 0: of all */
    } field[] = {{"dtype", CALL_DTYPE, 1, dtype_name, 0},
                 {"root", CALL_ROOT, 4, NULL, PICI_BROADCAST},
                 {"sum of recvcounts", CALL_COUNT, 8, NULL, PICI_ALL_GATHERV},
                 {"recvcounts, of which these are hashes", CALL_COUNTS, 8, NULL, PICI_ALL_GATHERV},
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
    const uint8_t *l = a->low, *h = a->high;
    if (l[CALL_KIND] != h[CALL_KIND]) {
        pici_coll_note(comm, "rank %lu calls %s, rank %lu calls %s", (unsigned long)a->low_rank,
                       pici_coll_name(l[CALL_KIND]), (unsigned long)a->high_rank, pici_coll_name(h[CALL_KIND]));
        return;
    }
    for (size_t i = 0; i < sizeof field / sizeof *field; i++) {
        uint64_t x = 0, y = 0;
        if (field[i].kind && field[i].kind != l[CALL_KIND])
            continue;
        for (int b = field[i].bytes; b--;) {
            x = x << 8 | l[field[i].at + b];
            y = y << 8 | h[field[i].at + b];
        }
        const char *const name_x = field[i].name ? field[i].name(x) : NULL;
        const char *const name_y = field[i].name ? field[i].name(y) : NULL;
        if (x != y && name_x && name_y) {
            pici_coll_note(comm, "ranks disagree on the %s: %s on rank %lu, %s on rank %lu", field[i].what, name_x,
                           (unsigned long)a->low_rank, name_y, (unsigned long)a->high_rank);
            return;
        }
        if (x != y) {
            pici_coll_note(comm, "ranks disagree on the %s: %llu on rank %lu, %llu on rank %lu", field[i].what,
                           (unsigned long long)x, (unsigned long)a->low_rank, (unsigned long long)y,
                           (unsigned long)a->high_rank);
            return;
        }
    }
    explain_choice(comm, a);
}

static void write_word(uint8_t *p, const struct pici_request *r, enum msg_kind kind, size_t data)
{
    const struct coll_agreement *a = &r->agree;
    struct msg_word w = {.prefix = {.kind = kind,
                                    .dtype = (unsigned)r->call.args.dtype,
                                    .op = (unsigned)r->call.args.op,
                                    .algorithm = (unsigned)r->call.opts.algorithm,
                                    .sequence = r->sequence,
                                    .blocks = (uint32_t)data},
                         .status = (uint32_t)a->status,
                         .culprit = (uint32_t)a->culprit,
                         .low_rank = a->low_rank,
                         .high_rank = a->high_rank,
                         .can = a->can};
    memcpy(w.low, a->low, AGREE_CALL_BYTES);
    memcpy(w.high, a->high, AGREE_CALL_BYTES);
    memcpy(w.density, a->density, sizeof w.density);
    pici_msg_put_word(p, &w);
}

static void learn(struct coll_agreement *a, enum pici_status s, int culprit)
{
    if (s < a->status || (s == a->status && culprit < a->culprit)) {
        a->status = s;
        a->culprit = culprit;
    }
}

/* Whether nothing speaks against the call, as far as this rank knows. */
static int agreed(const struct coll_agreement *a)
{
    return !a->status && memcmp(a->low, a->high, AGREE_CALL_BYTES) == 0;
}

/* Combine what a peer knows with what this rank knows. Returns the bytes of data that should follow. */
static size_t read_word(struct pici_request *r, const uint8_t *p, size_t len, enum msg_kind kind, int peer)
{
    struct coll_agreement *a = &r->agree;
    struct msg_word w;
    enum pici_status s = pici_msg_get_word(&w, p, len, kind);
    if (s) {
        if (s == PICI_E_PEER)
            pici_coll_note(r->comm,
                           "rank %d runs another version of the library: its messages are of version %lu, ours of %d",
                           peer, (unsigned long)w.version, MSG_VERSION);
        else
            pici_coll_note(r->comm, "rank %d sent garbage where its %s was due", peer,
                           kind == MSG_HELLO ? "call" : "verdict");
        learn(a, s, peer);
        return 0;
    }
    a->can &= w.can;
    if (w.status)
        learn(a, pici_msg_status(w.status), (int)(w.culprit & INT_MAX));
    for (int i = 0; i < DENSITIES; i++)
        a->density[i] = w.density[i] > a->density[i] ? w.density[i] : a->density[i];
    if (memcmp(w.low, a->low, AGREE_CALL_BYTES) < 0) {
        memcpy(a->low, w.low, AGREE_CALL_BYTES);
        a->low_rank = w.low_rank;
    }
    if (memcmp(w.high, a->high, AGREE_CALL_BYTES) > 0) {
        memcpy(a->high, w.high, AGREE_CALL_BYTES);
        a->high_rank = w.high_rank;
    }
    return w.prefix.blocks;
}

void pici_coll_agree_begin(struct pici_request *r, enum msg_kind kind)
{
    struct coll_agreement *a = &r->agree;
    a->round = a->posted = 0;
    a->rounds = rounds_of(r->comm->ranks);
    a->status = r->status;
    a->culprit = r->culprit;
    if (kind == MSG_HELLO) {
        describe(a->low, r);
        memcpy(a->high, a->low, AGREE_CALL_BYTES);
        a->low_rank = a->high_rank = (uint32_t)r->comm->rank;
        a->can = pici_vendor_can(r);
    }
    for (int i = 0; i < DENSITIES; i++)
        a->density[i] = kind == MSG_HELLO ? 0 : pici_density_of(&r->counted[i]);
    if (kind == MSG_HELLO && r->call.resolved.hello == HELLO_LONGEST && !r->status) /* else it may be out of range */
        a->density[DENSITY_ONE] = (double)r->call.args.count / (double)COLL_LONGEST;
}

/* Post the receive of a round, and send its message. */
static enum pici_status begin_round(struct pici_request *r, enum msg_kind kind)
{
    struct pici_comm *comm = r->comm;
    const struct pici_transport *t = &comm->transport;
    struct coll_agreement *a = &r->agree;
    const int p = comm->ranks, far = 1 << a->round, pairs = pici_early_ranks(p);
    const int to = pairs ? comm->rank ^ far : (int)(((long)comm->rank + far) % p);
    const int from = pairs ? to : (int)(((long)comm->rank + p - far) % p);
    size_t data = 0;
    a->in = (struct coll_flight){.peer = from};
    a->out = (struct coll_flight){.peer = to};
    a->said = comm->agreements;
    a->heard = a->said + pici_early_place(comm);
    if (kind == MSG_HELLO && r->early) {
        pici_early_make(r);
        a->said = a->out.buffer->bytes - AGREE_BYTES;
        a->heard = a->in.buffer->bytes - AGREE_BYTES;
        data = a->out.buffer->len;
    }
    pici_step_receives(comm, 1);
    enum pici_status s = t->recv(t->context, from, a->heard, pici_early_place(comm), &a->in.request);
    if (s)
        return pici_coll_lost(comm, from, s);
    write_word(a->said, r, kind, data);
    pici_step_sends(comm, 1, 0); /* the next message depends on the peer's */
    s = t->send(t->context, to, a->said, AGREE_BYTES + data, &a->out.request);
    if (s)
        return pici_coll_lost(comm, to, s);
    a->posted = 1;
    pici_request_sent(r, to, AGREE_BYTES + data);
    r->stats.dense_bytes += AGREE_BYTES;
    return PICI_OK;
}

/* Have the two messages of a round ended? */
static enum pici_status round_ended(struct pici_request *r, int *moved, int *ended)
{
    struct pici_comm *comm = r->comm;
    const struct pici_transport *t = &comm->transport;
    struct coll_flight *flights[] = {&r->agree.in, &r->agree.out};
    for (int i = 0; i < 2; i++) {
        struct coll_flight *f = flights[i];
        if (f->done)
            continue;
        enum pici_status s = t->test(t->context, f->request, &f->done, &f->bytes);
        if (s == PICI_E_CORRUPT && f->done)
            f->bytes = 0; /* longer than any version's message: not valid */
        else if (s)
            return pici_coll_lost(comm, f->peer, s);
        *moved |= f->done;
    }
    *ended = flights[0]->done && flights[1]->done;
    return PICI_OK;
}

enum pici_status pici_coll_agree(struct pici_request *r, enum msg_kind kind, int *moved, int *done)
{
    struct coll_agreement *a = &r->agree;
    for (; a->round < a->rounds; a->round++, a->posted = 0) {
        enum pici_status s;
        int ended = 0;
        if (!a->posted) {
            if ((s = begin_round(r, kind)))
                return s;
            *moved = 1;
        }
        if ((s = round_ended(r, moved, &ended)) || !ended)
            return s;
        const size_t data = read_word(r, a->heard, a->in.bytes, kind, a->in.peer);
        if (kind == MSG_HELLO && r->early)
            pici_early_take(r, data, agreed(a));
    }
    if (kind == MSG_HELLO && !a->status && !agreed(a)) {
        explain(r->comm, a);
        learn(a, PICI_E_PEER, (int)a->high_rank);
    }
    if (kind == MSG_HELLO && r->call.resolved.hello == HELLO_LONGEST)
        r->call.resolved.longest = (uint64_t)(a->density[DENSITY_ONE] * (double)COLL_LONGEST);
    if (a->status) { /* instead of what this rank alone found in its data */
        r->status = a->status;
        r->culprit = a->culprit;
    }
    *done = 1;
    return PICI_OK;
}
