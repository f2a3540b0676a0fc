/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A peer that sends what it should not. One rank's transport changes one message on its way out, in every way that
 * formats/message.md forbids. All ranks return the status named there. No rank hangs, and no rank that returns PICI_OK
 * has wrong elements. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll/message.h"
#include "tests/util/coll.h"
#include "formats/ref.h"
#include "transport/thread.h"
#include "tests/util/transport.h"
#include "xxh64.h"

enum { HEADER = 48, FAR_TOO_LONG = 8 << 20, TIMEOUT_MS = 20000, RANKS = 5, EARLIER = 64 };

/* Places in a message. */
enum { KIND = 4, DTYPE = 5, OP = 6, ALGORITHM = 7, SEQUENCE = 8, SLICE = 16, STEP = 24, STATUS = 28, BLOCKS = 28 };
enum { B_VERSION = 4, B_FORMAT = 5, B_DTYPE = 6, B_COUNT = 8, B_NNZ = 16, B_OFFSETS = 24, B_CHECKSUM = 40 };

/* ---- lies: each changes a message m of len bytes, behind which there is room, and returns its new length */

typedef size_t change(uint8_t *m, size_t len, struct rng *);

static size_t block_bytes(const uint8_t *block)
{
    const uint64_t values = block[B_FORMAT] == PICI_PACKED ? 0 : ref_get(block + B_NNZ, 8);
    return (size_t)(ref_get(block + 32, 8) + values * ref_width(block[B_DTYPE]));
}

static void add(uint8_t *p, unsigned bytes, uint64_t x)
{
    ref_put(p, bytes, ref_get(p, bytes) + x);
}

#define FIELD(name, what)                                                                                              \
    static size_t name(uint8_t *m, size_t len, struct rng *r)                                                          \
    {                                                                                                                  \
        (void)m;                                                                                                       \
        (void)r;                                                                                                       \
        what;                                                                                                          \
        return len;                                                                                                    \
    }

FIELD(magic, m[rng_below(r, 4)] ^= (uint8_t)(1u << rng_below(r, 8)))
FIELD(kind_agree_call, m[KIND] = MSG_AGREE_CALL)
FIELD(kind_agree_status, m[KIND] = MSG_AGREE_STATUS)
FIELD(kind_poison, m[KIND] = MSG_POISON) /* but status 0 */
FIELD(kind_none, m[KIND] = (uint8_t)(4 + rng_below(r, 252)))
FIELD(dtype, m[DTYPE] = (uint8_t)(m[DTYPE] == PICI_F32 ? PICI_U32 : PICI_F32))
FIELD(dtype_none, m[DTYPE] = 0)
FIELD(op, m[OP] ^= 1)
FIELD(op_none, m[OP] = 0x80)
FIELD(algorithm, m[ALGORITHM] ^= 3)
FIELD(sequence_next, add(m + SEQUENCE, 8, 1))
FIELD(sequence_high, m[SEQUENCE + 7] ^= 0x80)
FIELD(slice_next, add(m + SLICE, 8, 1))
FIELD(slice_last, add(m + SLICE, 8, UINT64_MAX))
FIELD(slice_high, m[SLICE + 7] ^= 0x40)
FIELD(step_next, add(m + STEP, 4, 1))
FIELD(step_last, add(m + STEP, 4, UINT32_MAX))
FIELD(step_high, m[STEP + 3] ^= 0x80)
FIELD(blocks_more, add(m + BLOCKS, 4, 1))
FIELD(blocks_less, add(m + BLOCKS, 4, UINT32_MAX))
FIELD(blocks_many, ref_put(m + BLOCKS, 4, UINT32_MAX))

FIELD(poison_nomem, m[KIND] = MSG_POISON; ref_put(m + STATUS, 4, (uint32_t)PICI_E_NOMEM); len = MSG_BYTES)
FIELD(poison_unknown, m[KIND] = MSG_POISON; ref_put(m + STATUS, 4, (uint32_t)-100); len = MSG_BYTES)
FIELD(poison_unused, m[KIND] = MSG_POISON; ref_put(m + STATUS, 4, (uint32_t)-30); len = MSG_BYTES)
FIELD(poison_positive, m[KIND] = MSG_POISON; ref_put(m + STATUS, 4, 40); len = MSG_BYTES)
FIELD(poison_of_another, m[KIND] = MSG_POISON; ref_put(m + STATUS, 4, (uint32_t)PICI_E_NOMEM);
      add(m + SEQUENCE, 8, UINT64_MAX); len = MSG_BYTES)

FIELD(empty, len = 0)
FIELD(cut_prefix, len = 1 + rng_below(r, MSG_BYTES - 1))
FIELD(prefix_alone, len = MSG_BYTES)
FIELD(cut_header, len = MSG_BYTES + 1 + rng_below(r, HEADER - 1))
FIELD(cut_anywhere, len = rng_below(r, len))
FIELD(cut_last, len--)
FIELD(longer, m[len++] = 0)
FIELD(longer_by_a_header, memcpy(m + len, m + MSG_BYTES, HEADER); len += HEADER)
FIELD(far_too_long, memset(m + len, 0, FAR_TOO_LONG); len += FAR_TOO_LONG)

static size_t noise(uint8_t *m, size_t from, size_t len, struct rng *r)
{
    for (size_t i = from; i < len; i++)
        m[i] = (uint8_t)rng_next(r);
    return len;
}
FIELD(garbage, len = noise(m, 0, len, r))
FIELD(garbage_blocks, len = noise(m, MSG_BYTES, len, r))
FIELD(garbage_tail, len = noise(m, len - len / 4 - 1, len, r))
FIELD(zeros, memset(m, 0, len))

FIELD(block_magic, m[MSG_BYTES + rng_below(r, 4)] ^= 0x20)
FIELD(block_version, m[MSG_BYTES + B_VERSION] = 3)
FIELD(block_hybrid,
      m[MSG_BYTES + B_FORMAT] = (uint8_t)(m[MSG_BYTES + B_FORMAT] == PICI_HYBRID ? PICI_COO : PICI_HYBRID))
FIELD(block_unknown, m[MSG_BYTES + B_FORMAT] = PICI_PACKED + 1)
FIELD(block_packed,
      m[MSG_BYTES + B_FORMAT] = (uint8_t)(m[MSG_BYTES + B_FORMAT] == PICI_PACKED ? PICI_HYBRID : PICI_PACKED))
FIELD(block_format,
      m[MSG_BYTES + B_FORMAT] = (uint8_t)(m[MSG_BYTES + B_FORMAT] == PICI_DENSE ? PICI_BITMAP : PICI_DENSE))
FIELD(block_dtype, m[MSG_BYTES + B_DTYPE] = (uint8_t)(m[MSG_BYTES + B_DTYPE] == PICI_F32 ? PICI_U32 : PICI_F32))
FIELD(block_count, add(m + MSG_BYTES + B_COUNT, 8, rng_next(r) | 1))
FIELD(block_nnz, add(m + MSG_BYTES + B_NNZ, 8, rng_next(r) | 1))
FIELD(block_offsets, add(m + MSG_BYTES + B_OFFSETS + 8 * rng_below(r, 2), 8, rng_next(r) | 1))
FIELD(block_checksum, add(m + MSG_BYTES + B_CHECKSUM, 8, rng_next(r) | 1))
FIELD(bit, m[rng_below(r, len)] ^= (uint8_t)(1u << rng_below(r, 8)))
FIELD(block_bit, m[MSG_BYTES + rng_below(r, len - MSG_BYTES)] ^= (uint8_t)(1u << rng_below(r, 8)))

/* A checksum that is right does not make a block of other elements right. */
static size_t another_block(uint8_t *m, uint64_t n, unsigned type)
{
    uint8_t *zeros = calloc((size_t)n + 1, 8);
    size_t bytes;
    uint8_t *block = ref_encode(&bytes, zeros, n, type, REF_COO, 1);
    if (!zeros || !block)
        abort();
    memcpy(m + MSG_BYTES, block, bytes);
    free(zeros);
    free(block);
    return MSG_BYTES + bytes;
}

/* A nonzero more in the header than in the block, whose checksum is right; its length need not tell, because of what it
 * is rounded up to. In a hybrid block the length is right, and descriptors do not add up. */
static size_t block_total(uint8_t *m, size_t len, struct rng *r)
{
    uint8_t *block = m + MSG_BYTES;
    (void)r;
    add(block + B_NNZ, 8, 1);
    if (block[B_FORMAT] == PICI_HYBRID)
        add(block + B_OFFSETS + 8, 8, 0 - (uint64_t)ref_width(block[B_DTYPE]));
    if (block[B_FORMAT] != PICI_DENSE)
        ref_seal(block, block_bytes(block));
    return len;
}

FIELD(other_count, len = another_block(m, ref_get(m + MSG_BYTES + B_COUNT, 8) + 1, m[DTYPE]))
FIELD(other_dtype,
      len = another_block(m, ref_get(m + MSG_BYTES + B_COUNT, 8), m[DTYPE] == PICI_F32 ? PICI_U32 : PICI_F32))
FIELD(body_sealed, const size_t block = block_bytes(m + MSG_BYTES); m[MSG_BYTES + HEADER + 7] ^= 0x80;
      if (block == HEADER) len--; /* it has no body */
      else if (m[MSG_BYTES + B_FORMAT] != PICI_DENSE) ref_seal(m + MSG_BYTES, block))

FIELD(first_block_only, len = MSG_BYTES + block_bytes(m + MSG_BYTES) - (ref_get(m + BLOCKS, 4) == 1))
FIELD(first_block_missing, size_t first = block_bytes(m + MSG_BYTES);
      memmove(m + MSG_BYTES, m + MSG_BYTES + first, len - MSG_BYTES - first); len -= first)
FIELD(first_block_twice, size_t first = block_bytes(m + MSG_BYTES); memcpy(m + len, m + MSG_BYTES, first); len += first)

/* Statuses: any that a damaged block can have. */
enum { ANY = 1 };

static const struct untruth {
    const char *name;
    change *tell;
    enum pici_status status; /* that all ranks are to return */
} lies[] = {
#define LIE(fn)                                                                                                        \
    {                                                                                                                  \
#fn, fn, PICI_E_CORRUPT                                                                                        \
    }
    LIE(magic),
    LIE(kind_agree_call),
    LIE(kind_agree_status),
    LIE(kind_poison),
    LIE(kind_none),
    LIE(dtype),
    LIE(dtype_none),
    LIE(op),
    LIE(op_none),
    LIE(algorithm),
    LIE(sequence_next),
    LIE(sequence_high),
    LIE(slice_next),
    LIE(slice_last),
    LIE(slice_high),
    LIE(step_next),
    LIE(step_last),
    LIE(step_high),
    LIE(blocks_more),
    LIE(blocks_less),
    LIE(blocks_many),
    {"poison_nomem", poison_nomem, PICI_E_NOMEM},
    LIE(poison_unknown),
    LIE(poison_unused),
    LIE(poison_positive),
    LIE(poison_of_another),
    LIE(empty),
    LIE(cut_prefix),
    LIE(prefix_alone),
    LIE(cut_header),
    {"cut_anywhere", cut_anywhere, ANY},
    {"cut_last", cut_last, ANY},
    LIE(longer),
    LIE(longer_by_a_header),
    LIE(far_too_long),
    LIE(garbage),
    LIE(garbage_blocks),
    {"garbage_tail", garbage_tail, ANY},
    LIE(zeros),
    LIE(block_magic),
    {"block_version", block_version, PICI_E_VERSION},
    {"block_hybrid", block_hybrid, ANY},
    {"block_unknown", block_unknown, PICI_E_UNSUPPORTED},
    {"block_packed", block_packed, ANY},
    {"block_format", block_format, ANY},
    LIE(block_total),
    LIE(block_dtype),
    LIE(block_count),
    LIE(block_nnz),
    LIE(block_offsets),
    {"block_checksum", block_checksum, PICI_E_CHECKSUM},
    {"bit", bit, ANY},
    {"block_bit", block_bit, ANY},
    LIE(other_count),
    LIE(other_dtype),
    {"body_sealed", body_sealed, ANY},
    LIE(first_block_only),
    {"first_block_missing", first_block_missing, ANY},
    LIE(first_block_twice),
};
enum { LIES = sizeof lies / sizeof *lies };

/* ---- lies of the agreement rounds: a word of another version, or with a status that does not exist, and its hash
 * right */

enum {
    WORD_VERSION = 32,
    WORD_LENGTH = 36,
    WORD_STATUS = 40,
    WORD_01_BYTES = 136,
    WORD_1_BYTES = 148,
    WORD_DENSITY = 264
};

static size_t sealed(uint8_t *m, size_t len)
{
    ref_put(m + len - 8, 8, pici_xxh64(m, len - 8, 0));
    return len;
}

static size_t word(uint8_t *m, size_t len, uint32_t version, uint32_t said)
{
    ref_put(m + WORD_VERSION, 4, version);
    ref_put(m + WORD_LENGTH, 4, said);
    return sealed(m, len);
}

FIELD(word_version_1, len = word(m, WORD_1_BYTES, 1, WORD_1_BYTES))
FIELD(word_version_next, len = word(m, len, MSG_VERSION + 1, (uint32_t)len))
FIELD(word_version_none, len = word(m, len, UINT32_MAX, (uint32_t)len))
FIELD(word_longer, memset(m + len, 0, 40); len = word(m, len + 40, MSG_VERSION + 1, (uint32_t)len + 40))
FIELD(word_shorter, len = word(m, len - 8, MSG_VERSION + 1, (uint32_t)len - 8))
FIELD(word_of_01, memmove(m + 32, m + WORD_STATUS, WORD_01_BYTES - 32); len = sealed(m, WORD_01_BYTES))

FIELD(word_unsealed, ref_put(m + WORD_VERSION, 4, MSG_VERSION + 1))
FIELD(word_other_length, len = word(m, len, MSG_VERSION, (uint32_t)len + 8))
FIELD(word_longer_of_this_version, memset(m + len, 0, 8); len = word(m, len + 8, MSG_VERSION, (uint32_t)len + 8))
FIELD(word_longer_than_it_says, memset(m + len, 0, 8); len = word(m, len + 8, MSG_VERSION + 1, (uint32_t)len))
FIELD(word_too_long, memset(m + len, 0, 4096); len = word(m, len + 4096, MSG_VERSION + 1, (uint32_t)len + 4096))
FIELD(word_too_short, len = sealed(m, WORD_01_BYTES - 8))

/* Not from 0 to 1: the next double above 1, infinity, NaNs, -0, the least double below 0. */
static const uint64_t no_density[] = {UINT64_C(0x3ff0000000000001), UINT64_C(0x7ff0000000000000),
                                      UINT64_C(0x7ff8000000000000), UINT64_C(0x7ff0000000000001),
                                      UINT64_C(0x8000000000000000), UINT64_C(0x8000000000000001)};
enum { NO_DENSITY = sizeof no_density / sizeof *no_density };

FIELD(word_density, ref_put(m + WORD_DENSITY + 8 * rng_below(r, 2), 8, no_density[rng_below(r, NO_DENSITY)]);
      len = sealed(m, len))

/* Numbers between, above and below those of enum pici_status. */
static const int32_t no_status[] = {1, 40, INT32_MAX, -4, -19, -23, -30, -39, -48, -100, INT32_MIN, INT32_MIN + 1};
enum { NO_STATUS = sizeof no_status / sizeof *no_status };

FIELD(word_status_none, ref_put(m + WORD_STATUS, 4, (uint32_t)no_status[rng_below(r, NO_STATUS)]); len = sealed(m, len))
FIELD(word_status_nomem, ref_put(m + WORD_STATUS, 4, (uint32_t)PICI_E_NOMEM); len = sealed(m, len))
FIELD(poison_none, m[KIND] = MSG_POISON; ref_put(m + STATUS, 4, (uint32_t)no_status[rng_below(r, NO_STATUS)]);
      len = MSG_BYTES)

static const struct untruth version_lies[] = {
    {"word_version_1", word_version_1, PICI_E_PEER},       {"word_version_next", word_version_next, PICI_E_PEER},
    {"word_version_none", word_version_none, PICI_E_PEER}, {"word_longer", word_longer, PICI_E_PEER},
    {"word_shorter", word_shorter, PICI_E_PEER},           {"word_of_01", word_of_01, PICI_E_PEER},
};
static const struct untruth sealed_lies[] = {
    LIE(word_unsealed),
    LIE(word_other_length),
    LIE(word_longer_of_this_version),
    LIE(word_longer_than_it_says),
    LIE(word_too_long),
    LIE(word_too_short),
    LIE(word_density),
    LIE(word_status_none),
    {"word_status_nomem", word_status_nomem, PICI_E_NOMEM},
};
static const struct untruth poison_lies[] = {LIE(poison_none)};

/* ---- a transport that lies once */

struct liar {
    struct pici_transport inner;
    const struct untruth *lie;
    enum msg_kind kind; /* of the message that it changes */
    size_t word;        /* bytes in front of what it changes: where that is the data behind a word, of the word */
    int number;         /* which of this kind, from 0 */
    int sent;           /* of this kind */
    struct rng rng;
    uint8_t *copy; /* the message as it went out; NULL: it was not told */
    uint8_t *earlier[EARLIER];
    size_t earlier_bytes[EARLIER]; /* where the lie is none: the messages before, of which one is sent again */
};

/* The last of the messages before that is as long as this one; or NULL. Keeps this one. */
static const uint8_t *replay(struct liar *l, const void *data, size_t bytes)
{
    const int at = l->sent - 1;
    const uint8_t *again = NULL;
    for (int i = 0; i < at && i < EARLIER; i++)
        if (l->earlier_bytes[i] == bytes)
            again = l->earlier[i];
    if (at < EARLIER) {
        l->earlier[at] = test_alloc(bytes);
        l->earlier_bytes[at] = bytes;
        memcpy(l->earlier[at], data, bytes);
    }
    return at == l->number ? again : NULL;
}

static enum pici_status liar_send(void *context, int to, const void *data, size_t bytes, void **request)
{
    struct liar *l = context;
    const int ours = bytes > KIND && ((const uint8_t *)data)[KIND] == l->kind && bytes > l->word;
    l->sent += ours;
    if (ours && !l->lie->tell) {
        const uint8_t *again = replay(l, data, bytes);
        if (again) {
            l->copy = test_alloc(bytes);
            data = memcpy(l->copy, again, bytes);
        }
    } else if (ours && l->sent - 1 == l->number) {
        l->copy = test_alloc(2 * bytes + FAR_TOO_LONG + HEADER);
        memcpy(l->copy, data, bytes);
        bytes = l->word + l->lie->tell(l->copy + l->word, bytes - l->word, &l->rng);
        if (l->word && bytes > l->word) { /* the word says how long the data are */
            ref_put(l->copy + BLOCKS, 4, bytes - l->word);
            sealed(l->copy, l->word);
        }
        data = l->copy;
    }
    return l->inner.send(l->inner.context, to, data, bytes, request);
}

/* ---- runs */

struct run {
    const struct coll_case *c;
    struct coll_job job;
    struct liar liar;
    struct pici_comm *comm[RANKS];
    struct coll_rank rank[RANKS];
    enum pici_status status[RANKS], again[RANKS];
    const char *wrong[RANKS];
};

static void run_rank(void *context, int rank)
{
    struct run *run = context;
    struct coll_rank *k = &run->rank[rank];
    coll_rank_place(k, run->c, &run->job, run->comm[rank]);
    run->status[rank] = coll_rank_call(k, run->c, run->comm[rank]);
    run->wrong[rank] = run->status[rank] ? NULL : coll_rank_judge(k, run->c, &run->job, rank);
    if (run->status[rank])
        run->again[rank] = coll_rank_call(k, run->c, run->comm[rank]);
}

/* Whether all ranks returned a status that this lie may have. */
static int agreed(const struct run *run, enum pici_status want)
{
    const enum pici_status s = run->status[0];
    for (int i = 1; i < run->job.p; i++)
        if (run->status[i] != s)
            return 0;
    return s == want || (want == (enum pici_status)ANY && (s == PICI_E_CORRUPT || s == PICI_E_CHECKSUM ||
                                                           s == PICI_E_VERSION || s == PICI_E_UNSUPPORTED));
}

/* One rank tells one lie in message `number` of a kind; early: in the data behind a message of the call agreement.
 * Returns whether there was such a message. */
static int run_one(const struct coll_case *c, int p, const struct untruth *lie, enum msg_kind kind, int early,
                   int number, uint64_t seed)
{
    struct run run = {
        .c = c, .liar = {.lie = lie, .kind = kind, .word = early ? AGREE_BYTES : 0, .number = number, .rng = {seed}}};
    struct pici_transport t[RANKS];
    const int teller = (int)(seed % (uint64_t)p);
    char statuses[400] = "";
    coll_job_make(&run.job, c, p);
    cr_assert_eq(pici_transport_threads(t, p), PICI_OK);
    transport_wrap(&t[teller], &run.liar.inner);
    t[teller].send = liar_send;
    for (int i = 0; i < p; i++)
        cr_assert_eq(pici_comm_transport(&run.comm[i], &t[i]), PICI_OK);
    coll_threads(p, run_rank, &run);

    int failed = 0, honest = 1, names_it = lie->status != PICI_E_PEER;
    for (int i = 0; i < p; i++) {
        failed += run.status[i] != PICI_OK;
        names_it |= strstr(pici_comm_error(run.comm[i]), "version") != NULL;
        honest &= !run.wrong[i] && (!run.status[i] || (run.again[i] == PICI_E_BROKEN && *pici_comm_error(run.comm[i])));
        const size_t at = strlen(statuses);
        snprintf(statuses + at, sizeof statuses - at, " %d%s%s", (int)run.status[i], run.wrong[i] ? " with " : "",
                 run.wrong[i] ? run.wrong[i] : "");
    }
    const char *bad = !honest          ? "a wrong result, or no error"
                      : !run.liar.copy ? failed ? "failed without a lie" : NULL
                      : kind == MSG_AGREE_STATUS /* the last of it reaches some ranks only */
                          ? !failed ? "believed" : NULL
                          : !agreed(&run, lie->status) ? "not the same and right status"
                            : names_it                 ? NULL
                                                       : "nobody names the version";
    cr_expect_null(bad, "%s: %s in message %d of kind %d by rank %d: %s; statuses%s", bad, lie->name, number, (int)kind,
                   teller, coll_case_words(c, p), statuses);
    const int told = run.liar.copy != NULL;
    for (int i = 0; i < p; i++) {
        pici_comm_free(run.comm[i]);
        coll_rank_free(&run.rank[i]);
    }
    coll_job_free(&run.job);
    free(run.liar.copy);
    for (int i = 0; i < EARLIER; i++)
        free(run.liar.earlier[i]);
    return told;
}

/* Every lie, in the first message of a kind and in later ones, in calls of all sorts. */
static void try_lies(enum msg_kind kind, const struct untruth *lie, size_t many, int rounds)
{
    struct rng r = {kind};
    int told = 0;
    for (int i = 0; i < rounds; i++)
        for (size_t l = 0; l < many; l++) {
            static const int ranks[] = {2, 3, 5};
            const int p = ranks[rng_below(&r, 3)];
            struct coll_case c = {.count = 1 + rng_below(&r, 9000)};
            coll_case_random(&c, &r, p);
            c.opts.slice_bytes = 16384;
            c.opts.checksum = 1;
            c.opts.timeout_ms = TIMEOUT_MS;
            if (kind == MSG_AGREE_CALL && c.opts.algorithm == PICI_ALGO_DOUBLING)
                c.opts.algorithm = PICI_ALGO_RECURSIVE; /* the word alone: below, data are behind it */
            told += run_one(&c, p, &lie[l], kind, 0, (int)rng_below(&r, i < rounds / 2 ? 2 : 6), rng_next(&r));
        }
    cr_expect_gt(told, (int)many * rounds / 3, "too few lies were told: %d", told);
}

Test(coll_hostile, data, .timeout = 300)
{
    try_lies(MSG_DATA, lies, LIES, 12);
}

/* Of these no lie is too small. */
static const struct untruth word_lies[] = {
    LIE(magic),      LIE(kind_none),    LIE(sequence_high), LIE(slice_next), LIE(step_next), LIE(empty),
    LIE(cut_prefix), LIE(prefix_alone), LIE(cut_anywhere),  LIE(cut_last),   LIE(longer),    LIE(far_too_long),
    LIE(garbage),    LIE(garbage_tail), LIE(zeros),         LIE(bit),        LIE(block_bit),
};

/* Lies in messages of the call agreement with data: in the data, or anywhere. */
static void try_early(const struct untruth *lie, size_t many, int in_data)
{
    enum { ROUNDS = 12 };
    struct rng r = {99 + (uint64_t)in_data};
    int told = 0;
    for (int i = 0; i < ROUNDS; i++)
        for (size_t l = 0; l < many; l++) {
            const int p = i % 2 ? 2 : 4;
            struct untruth told_here = lie[l];
            struct coll_case c = {.collective = PICI_ALL_REDUCE,
                                  .op = (enum pici_op)rng_below(&r, 4),
                                  .dtype = (enum pici_dtype)(1 + rng_below(&r, 14)),
                                  .count = 1 + rng_below(&r, 800)};
            coll_case_options(&c, &r, p);
            memset(c.node_of, 0, sizeof c.node_of);
            c.opts.algorithm = PICI_ALGO_DOUBLING;
            c.opts.checksum = 1;
            c.opts.timeout_ms = TIMEOUT_MS;
            if (!in_data)
                told_here.status = (enum pici_status)ANY; /* it may be a block's */
            told +=
                run_one(&c, p, &told_here, MSG_AGREE_CALL, in_data, (int)rng_below(&r, (uint64_t)p / 2), rng_next(&r));
        }
    cr_expect_eq(told, ROUNDS * (int)many);
}

Test(coll_hostile, early_data, .timeout = 300)
{
    try_early(lies, LIES, 1);
}

Test(coll_hostile, call_agreement_with_data, .timeout = 300)
{
    try_early(word_lies, sizeof word_lies / sizeof *word_lies, 0);
}

Test(coll_hostile, call_agreement, .timeout = 300)
{
    try_lies(MSG_AGREE_CALL, word_lies, sizeof word_lies / sizeof *word_lies, 20);
}

Test(coll_hostile, status_agreement, .timeout = 300)
{
    try_lies(MSG_AGREE_STATUS, word_lies, sizeof word_lies / sizeof *word_lies, 20);
}

/* A rank of another version of the library: whatever else its words say, the error names the version. */
Test(coll_hostile, call_agreement_of_another_version, .timeout = 300)
{
    try_lies(MSG_AGREE_CALL, version_lies, sizeof version_lies / sizeof *version_lies, 20);
}

Test(coll_hostile, call_agreement_with_its_hash, .timeout = 300)
{
    try_lies(MSG_AGREE_CALL, sealed_lies, sizeof sealed_lies / sizeof *sealed_lies, 30);
}

Test(coll_hostile, status_agreement_with_its_hash, .timeout = 300)
{
    try_lies(MSG_AGREE_STATUS, sealed_lies, sizeof sealed_lies / sizeof *sealed_lies, 30);
}

Test(coll_hostile, poison_of_no_status, .timeout = 300)
{
    try_lies(MSG_DATA, poison_lies, 1, 100);
}

/* A message of the same call, as it was sent before, instead of a later one of the same length. Its blocks and their
 * checksums are right, but it is about another slice or step. */
Test(coll_hostile, replay, .timeout = 300)
{
    static const struct untruth again = {"replay", NULL, PICI_E_CORRUPT};
    struct rng r = {77};
    for (int i = 0; i < COLL_COLLECTIVES; i++) {
        int all = 0; /* of broadcast and all_gatherv, where a rank may send few messages with elements */
        for (int a = 1; a <= coll_algorithms(); a++)
            for (int p = 2; p <= RANKS && coll_has((enum pici_algorithm)a, coll_collectives[i]); p++) {
                const enum pici_collective kind = coll_collectives[i];
                int told = 0;
                for (int number = 1; number < 16; number++) {
                    struct coll_case c = {.collective = kind,
                                          .dtype = PICI_F32,
                                          .op = PICI_SUM,
                                          .count = (kind == PICI_ALL_REDUCE ? (uint64_t)p : 1) * 4 * 4096,
                                          .pattern = PATTERN_50,
                                          .seed = rng_next(&r),
                                          .tame = 1,
                                          .opts = PICI_COLL_OPTS_INIT};
                    c.opts.algorithm = (enum pici_algorithm)a;
                    c.opts.format = PICI_DENSE;
                    c.opts.slice_bytes = 1;
                    c.opts.window = 1 + number % 4;
                    c.opts.checksum = number % 2 ? 1 : -1;
                    c.opts.timeout_ms = TIMEOUT_MS;
                    told += run_one(&c, p, &again, MSG_DATA, 0, number, rng_next(&r));
                }
                all += told;
                cr_expect_geq(told, kind > PICI_ALL_REDUCE ? 0 : 3, "%s, collective %d, %d ranks: too few replays: %d",
                              pici_algorithm_name((enum pici_algorithm)a), (int)kind, p, told);
            }
        cr_expect_geq(all, 25, "collective %d: too few replays: %d", (int)coll_collectives[i], all);
    }
}
