/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Invalid coded messages: cut at every byte, changed in every byte, against each rule of a codec. Also a transport that
 * loses, delays and changes messages by a seed. Nobody hangs, all ranks return an error, and who is told PICI_OK has
 * the right bytes. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coll/message.h"
#include "tests/util/coll.h"
#include "tests/util/coll_values.h"
#include "transport/thread.h"
#include "tests/util/transport.h"
#include "values/values.h"

enum { WATCHDOG_S = 600, RANKS = 6, KIND = 4, BYTES = 4096 };

/* ---- a transport that changes one coded message */

struct liar {
    struct pici_transport inner;
    int number, seen; /* the message that is changed, and how many there were */
    size_t at;        /* which byte of it */
    enum { CUT, FLIP, SET } how;
    uint8_t byte;
    uint8_t more[8]; /* of SET: what the bytes after it become, `extra` of them */
    size_t extra;
    size_t bytes; /* of that message, as it was */
    uint8_t was;  /* the byte */
    uint8_t copy[BYTES];
};

static enum pici_status liar_send(void *context, int to, const void *data, size_t bytes, void **request)
{
    struct liar *l = context;
    const int coded = bytes > KIND && ((const uint8_t *)data)[KIND] == MSG_CODED;
    l->seen += coded;
    if (coded && l->seen - 1 == l->number && bytes <= sizeof l->copy && l->at < bytes) {
        memcpy(l->copy, data, bytes);
        l->bytes = bytes;
        l->was = l->copy[l->at];
        l->copy[l->at] = l->how == FLIP ? (uint8_t)(l->was ^ l->byte) : l->how == SET ? l->byte : l->was;
        memcpy(l->copy + l->at + 1, l->more, l->at + 1 + l->extra <= bytes ? l->extra : 0);
        bytes = l->how == CUT ? l->at : bytes;
        data = l->copy;
    }
    return l->inner.send(l->inner.context, to, data, bytes, request);
}

/* ---- a call of two ranks or more, of which the last lies, or whose transport has faults */

struct run {
    int p;
    struct values_case c;
    struct liar liar;
    const struct pici_thread_faults *faults;
    struct pici_comm *comm[RANKS];
    struct values_rank rank[RANKS];
    enum pici_status status[RANKS];
};

static void run_rank(void *context, int rank)
{
    struct run *run = context;
    values_rank_make(&run->rank[rank], &run->c, rank, run->p);
    run->status[rank] = values_rank_call(&run->rank[rank], &run->c, run->comm[rank]);
}

static void run_call(struct run *run)
{
    struct pici_transport t[RANKS];
    if (pici_transport_threads(t, run->p))
        abort();
    if (run->faults)
        pici_transport_threads_faults(&t[0], run->faults);
    run->liar.seen = 0;
    if (!run->faults) {
        transport_wrap(&t[run->p - 1], &run->liar.inner);
        t[run->p - 1].send = liar_send;
    }
    for (int i = 0; i < run->p; i++)
        if (pici_comm_transport(&run->comm[i], &t[i]))
            abort();
    coll_threads(run->p, run_rank, run);
}

static void run_free(struct run *run)
{
    for (int i = 0; i < run->p; i++) {
        pici_comm_free(run->comm[i]);
        values_rank_free(&run->rank[i]);
    }
}

/* Returns whether all ranks had the status `want`. */
static int all_had(const struct run *run, enum pici_status want)
{
    for (int i = 0; i < run->p; i++)
        if (run->status[i] != want)
            return 0;
    return 1;
}

static int is_bad_data(enum pici_status s)
{
    return s == PICI_E_CORRUPT || s == PICI_E_CHECKSUM || s == PICI_E_VERSION || s == PICI_E_UNSUPPORTED;
}

static struct values_case small(int codec)
{
    struct values_case c = {.collective = PICI_ALL_REDUCE,
                            .algorithm = PICI_ALGO_RING,
                            .count = 240,
                            .data = DATA_GAUSS,
                            .format = PICI_DENSE,
                            .window = 1,
                            .checksum = 1,
                            .seed = 7};
    c.values = values_codec(codec, &c.dtype);
    return c;
}

static int has(const struct values_case *c)
{
    struct values v;
    return pici_values_resolve(&v, &c->values, c->dtype, c->op) == PICI_OK;
}

/* Blocks have a checksum here, so that no change goes unseen. */
Test(coll_values_hostile, a_byte_less_or_another)
{
    struct rng rng = {5};
    alarm(WATCHDOG_S);
    for (int codec = 0; codec < values_codecs(); codec++)
        for (int number = 0; number < 2; number++) { /* while reducing, and while gathering */
            struct run run = {.p = 2, .c = small(codec)};
            size_t bytes = 1;
            if (!has(&run.c))
                continue;
            run.liar.number = number;
            for (size_t at = 0; at < bytes; at++)
                for (int how = CUT; how <= FLIP; how++) {
                    if (bytes > 1 && left_out(&rng))
                        continue;
                    run.liar.at = at;
                    run.liar.how = how;
                    run.liar.byte = (uint8_t)(1 << at % 8);
                    run_call(&run);
                    cr_expect(all_had(&run, run.status[0]) && is_bad_data(run.status[0]),
                              "%s: message %d, byte %zu, %s: %s, %s", values_words(&run.c, 2), number, at,
                              how == CUT ? "cut" : "changed", pici_strerror(run.status[0]),
                              pici_strerror(run.status[1]));
                    bytes = run.liar.bytes;
                    run_free(&run);
                }
            cr_expect_gt(bytes, 100);
        }
}

/* ---- each rule: the blocks are valid, what they hold is not. All are dense, and without a checksum. */

enum { HEADER = 48, FIRST = MSG_BYTES + HEADER, ZFP_RATE = 10, ZFP_TOLERANCE = 11 /* of values_codecs */ };

struct rule {
    const char *what;
    int codec;      /* of values_codecs */
    uint64_t count; /* of elements of the call; a segment is half of them */
    size_t at;      /* the byte that is changed */
    enum pici_status want;
    uint8_t byte, extra, more[8]; /* what it becomes, and bytes after it */
};

/* q8: a segment of 120 has a scale, and a code in each byte. q4 with buckets of 256: 121 elements have 61 bytes. q2:
 * 30. q8 of f64: a scale of 8 bytes. zfp:8: a unit, so one length, and 30 blocks of 32 bits, so 15 words of 8 bytes. */
static const struct rule rules[] = {
    {"a scale below 0", 3, 240, FIRST + 3, PICI_E_CORRUPT, 0xc0, 0, {0}},
    {"code -128", 3, 240, FIRST + 4 + HEADER + 5, PICI_E_CORRUPT, 0x80, 0, {0}},
    {"code 127", 3, 240, FIRST + 4 + HEADER + 5, PICI_OK, 0x7f, 0, {0}},
    {"code -8", 4, 242, FIRST + 4 + HEADER + 5, PICI_E_CORRUPT, 0x18, 0, {0}},
    {"spare bits", 4, 242, FIRST + 4 + HEADER + 60, PICI_E_CORRUPT, 0x10, 0, {0}},
    {"data that are not coded", 3, 240, KIND, PICI_E_CORRUPT, MSG_DATA, 0, {0}},
    {"too few blocks", 3, 240, 28, PICI_E_CORRUPT, 1, 0, {0}},
    {"too many blocks", 3, 240, 28, PICI_E_CORRUPT, 3, 0, {0}},
    {"scales of another dtype", 3, 240, MSG_BYTES + 6, PICI_E_CORRUPT, PICI_I32, 0, {0}},
    {"codes of another dtype", 3, 240, FIRST + 4 + 6, PICI_E_CORRUPT, PICI_I8, 0, {0}},
    {"fewer codes", 3, 240, FIRST + 4 + 8, PICI_E_CORRUPT, 119, 0, {0}},
    {"more codes", 3, 240, FIRST + 4 + 8, PICI_E_CORRUPT, 121, 0, {0}},
    {"a scale that is infinite", 3, 240, FIRST + 2, PICI_E_CORRUPT, 0x80, 1, {0x7f}},
    {"a NaN as scale of codes", 3, 240, FIRST, PICI_E_CORRUPT, 0, 3, {0, 0xc0, 0x7f}},
    {"0 as scale of codes", 3, 240, FIRST, PICI_E_CORRUPT, 0, 3, {0, 0, 0}},
    {"code -2", 5, 240, FIRST + 4 + HEADER + 5, PICI_E_CORRUPT, 0x20, 0, {0}},
    {"a scale of f64 below 0", 7, 240, FIRST + 7, PICI_E_CORRUPT, 0xc0, 0, {0}},
    {"a scale of f64 that is infinite", 7, 240, FIRST + 6, PICI_E_CORRUPT, 0xf0, 1, {0x7f}},
    {"a NaN as scale of codes of f64", 7, 240, FIRST + 6, PICI_E_CORRUPT, 0xf8, 1, {0x7f}},
    {"zfp: another length than the rate's", ZFP_RATE, 240, FIRST, PICI_E_CORRUPT, 14, 0, {0}},
    {"zfp: a length beyond the payload", ZFP_RATE, 240, FIRST, PICI_E_CORRUPT, 16, 0, {0}},
    {"zfp: zeros, and a payload", ZFP_RATE, 240, FIRST, PICI_E_CORRUPT, 0, 0, {0}},
    {"zfp: raw, and a short payload", ZFP_RATE, 240, FIRST, PICI_E_CORRUPT, 0xff, 3, {0xff, 0xff, 0xff}},
    {"zfp: a length that is not shorter than raw", ZFP_TOLERANCE, 240, FIRST, PICI_E_CORRUPT, 60, 0, {0}},
    {"zfp: a length that overflows", ZFP_TOLERANCE, 240, FIRST + 3, PICI_E_CORRUPT, 0x20, 0, {0}},
    {"zfp: more lengths", ZFP_RATE, 240, MSG_BYTES + 8, PICI_E_CORRUPT, 2, 0, {0}},
    {"zfp: no lengths", ZFP_RATE, 240, MSG_BYTES + 8, PICI_E_CORRUPT, 0, 0, {0}},
    {"zfp: lengths of another dtype", ZFP_RATE, 240, MSG_BYTES + 6, PICI_E_CORRUPT, PICI_I32, 0, {0}},
    {"zfp: a payload of another dtype", ZFP_RATE, 240, FIRST + 4 + 6, PICI_E_CORRUPT, PICI_I8, 0, {0}},
    {"zfp: a shorter payload", ZFP_RATE, 240, FIRST + 4 + 8, PICI_E_CORRUPT, 119, 0, {0}},
    {"zfp: a longer payload", ZFP_RATE, 240, FIRST + 4 + 8, PICI_E_CORRUPT, 121, 0, {0}},
    {"zfp: another stream", ZFP_RATE, 240, FIRST + 4 + HEADER + 3, PICI_OK, 0x55, 0, {0}},
    {"a cast of another dtype", 0, 240, MSG_BYTES + 6, PICI_E_CORRUPT, PICI_F16, 0, {0}},
    {"fewer values of a cast", 0, 240, MSG_BYTES + 8, PICI_E_CORRUPT, 119, 0, {0}},
};

Test(coll_values_hostile, rules)
{
    alarm(WATCHDOG_S);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        for (int number = 0; number < 2; number++) {
            const struct rule *rule = &rules[i];
            struct run run = {.p = 2, .c = small(rule->codec)};
            if (!has(&run.c))
                continue;
            run.c.count = rule->count;
            run.c.checksum = 0;
            run.liar.number = number;
            run.liar.how = SET;
            run.liar.at = rule->at;
            run.liar.byte = rule->byte;
            run.liar.extra = rule->extra;
            memcpy(run.liar.more, rule->more, sizeof rule->more);
            run_call(&run);
            cr_expect(all_had(&run, rule->want), "%s, message %d (byte %zu was %#x, of %zu): %s, %s", rule->what,
                      number, rule->at, run.liar.was, run.liar.bytes, pici_strerror(run.status[0]),
                      pici_strerror(run.status[1]));
            cr_expect_neq(run.liar.was, rule->byte, "%s changes nothing", rule->what);
            run_free(&run);
        }
}

/* ---- a transport with faults */

struct faulty {
    struct pici_thread_faults faults;
    uint64_t seed;
    int fine, failed;
    char wrong[400];
};

static void draw(struct values_case *c, struct rng *r)
{
    do {
        *c = small((int)rng_below(r, (uint64_t)values_codecs()));
        c->collective = (enum pici_collective)(1 + rng_below(r, 3));
        c->algorithm = coll_algorithm(rng_next(r), c->collective);
        c->values.phases = (unsigned)rng_below(r, 4);
    } while (!has(c));
    c->count = 60 * (1 + rng_below(r, 300));
    c->data = (enum values_data)rng_below(r, DATA_KINDS);
    c->format = rng_below(r, 2) ? PICI_AUTO : PICI_HYBRID;
    c->window = 1 + (int)rng_below(r, 3);
    c->seed = rng_below(r, 1000);
}

/* The same call without faults tells what is right. */
static void faulty_run(struct faulty *f)
{
    struct rng r = {f->seed};
    struct run right = {.p = 2 + (int)rng_below(&r, RANKS - 1)}, run;
    draw(&right.c, &r);
    right.liar.number = -1;
    right.c.timeout_ms = 20000; /* where nothing is lost, a slow machine is not to fail */
    run = right;
    if (f->faults.drop > 0 || f->faults.stall > 0 || f->faults.delay <= 0)
        run.c.timeout_ms = 100;
    f->faults.seed = f->seed;
    run.faults = &f->faults;
    run_call(&right);
    run_call(&run);
    for (int i = 0; i < run.p; i++) {
        const size_t bytes = (size_t)run.rank[i].receives * pici_dtype_width(run.c.dtype);
        if (right.status[i])
            snprintf(f->wrong, sizeof f->wrong, "%s: without faults: %s", values_words(&run.c, run.p),
                     pici_strerror(right.status[i]));
        else if (!run.status[i] && memcmp(run.rank[i].recv, right.rank[i].recv, bytes) != 0)
            snprintf(f->wrong, sizeof f->wrong, "%s: wrong bytes", values_words(&run.c, run.p));
        f->fine += !run.status[i];
        f->failed += run.status[i] != PICI_OK;
    }
    run_free(&right);
    run_free(&run);
}

Test(coll_values_hostile, faults)
{
    enum {
        WITH_TIMEOUTS = 30,
#ifdef SANITIZED /* takes minutes there */
        SEEDS = 50
#else
        SEEDS = 150
#endif
    };
    const double chance = 0.01;
    const struct pici_thread_faults kinds[] = {
        {.drop = chance},
        {.truncate = chance},
        {.flip = chance},
        {.stall = chance},
        {.refuse = chance},
        {.delay = 0.1, .delay_ms = 3},
        {.drop = chance / 4, .truncate = chance, .flip = chance, .refuse = chance, .delay = chance, .delay_ms = 3}};
    alarm(WATCHDOG_S);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct faulty f = {.faults = kinds[i]};
        const uint64_t last = f.faults.drop > 0 || f.faults.stall > 0 ? WITH_TIMEOUTS : SEEDS;
        for (f.seed = 1; f.seed <= last && !f.wrong[0]; f.seed++)
            faulty_run(&f);
        cr_expect(!f.wrong[0], "faults %zu, seed %llu: %s", i, (unsigned long long)f.seed - 1, f.wrong);
        cr_expect_gt(f.fine, 0);
        cr_expect((f.failed > 0) == !(f.faults.delay > 0 && f.faults.flip <= 0), "faults %zu: %d failed", i, f.failed);
    }
}
