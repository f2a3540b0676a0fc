/* SPDX-License-Identifier: BSD-3-Clause
 *
 * broadcast and all_gatherv between threads: every root and algorithm, contributions of any length; what one rank gets
 * wrong, which all ranks learn, and nobody writes; what is refused at once. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/util/coll.h"
#include "formats/ref.h"

enum { WATCHDOG_S = 900, N = 5000, RANKS = 6 };

static const struct pici_coll_opts defaults = PICI_COLL_OPTS_INIT;

/* ---- right ones */

static void check(struct coll_team *team, const struct coll_case *c)
{
    const char *wrong = coll_team_check(team, c);
    cr_assert(!wrong, "%s", wrong);
}

/* Also counts below the ranks, from which a scatter has empty segments. */
Test(coll_threads_gather, every_root)
{
    static const int ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 17};
    struct rng rng = {4};
    alarm(WATCHDOG_S);
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        const int p = ranks[i];
        const uint64_t up = (uint64_t)p, counts[] = {up - 1, 3, 700 * up, 30001};
        struct coll_team team;
        coll_team_init(&team, p);
        for (int root = 0; root < p; root++)
            for (int a = 0; a <= coll_algorithms(); a++)
                for (size_t n = 0; n < 4 && coll_has((enum pici_algorithm)a, PICI_BROADCAST); n++) {
                    struct coll_case c = {.collective = PICI_BROADCAST,
                                          .dtype = (enum pici_dtype)(1 + rng_below(&rng, 14)),
                                          .count = counts[n],
                                          .opts.algorithm = (enum pici_algorithm)a};
                    if (n && rng_chance(&rng, 600000))
                        continue;
                    coll_case_options(&c, &rng, p);
                    c.root = root;
                    check(&team, &c);
                }
        coll_team_free(&team);
    }
}

/* One rank has all elements, whichever it is: a broadcast by other means. */
struct one_owner {
    struct coll_team team;
    int owner;
    const char *wrong[COLL_RANKS];
};

static void gather_of_one(void *context, int rank)
{
    struct one_owner *t = context;
    uint64_t counts[COLL_RANKS] = {0};
    uint16_t *send = test_alloc(N * sizeof *send), *recv = test_alloc((N + 1) * sizeof *recv);
    counts[t->owner] = N;
    for (int i = 0; i < N; i++)
        send[i] = (uint16_t)(i % 5 ? 0 : i + t->owner);
    recv[N] = 7;
    if (pici_all_gatherv(rank == t->owner ? send : NULL, counts[rank], recv, counts, NULL, PICI_U16, t->team.comm[rank],
                         NULL))
        t->wrong[rank] = pici_comm_error(t->team.comm[rank]);
    else if (memcmp(send, recv, N * sizeof *send) != 0 || recv[N] != 7)
        t->wrong[rank] = "other elements";
    free(send);
    free(recv);
}

Test(coll_threads_gather, one_has_all)
{
    struct one_owner t;
    memset(&t, 0, sizeof t);
    alarm(WATCHDOG_S);
    for (int p = 1; p <= 9; p++) {
        coll_team_init(&t.team, p);
        for (t.owner = 0; t.owner < p; t.owner++) {
            coll_threads(p, gather_of_one, &t);
            for (int i = 0; i < p; i++)
                cr_assert_null(t.wrong[i], "owner %d, rank %d of %d: %s", t.owner, i, p, t.wrong[i]);
        }
        coll_team_free(&t.team);
    }
}

/* ---- wrong ones */

struct step {
    struct pici_comm *comm[RANKS];
    int p, odd; /* the rank that does otherwise */
    float send[RANKS][N], recv[RANKS][(RANKS + 1) * N];
    uint64_t counts[RANKS][RANKS], displs[RANKS][RANKS];
    enum pici_status (*call)(struct step *, int rank, int odd);
    enum pici_status status[RANKS];
};

static enum pici_status spread(struct step *s, int rank, uint64_t n, enum pici_dtype dtype, int root,
                               const struct pici_coll_opts *o)
{
    return pici_broadcast(s->recv[rank], n, dtype, root, s->comm[rank], o);
}

/* Contributions of i + 1 elements, each in the place of N, from rank 0 on. */
static enum pici_status gather(struct step *s, int rank, const struct pici_coll_opts *o)
{
    return pici_all_gatherv(s->send[rank], (uint64_t)rank + 1, s->recv[rank], s->counts[rank], s->displs[rank],
                            PICI_F32, s->comm[rank], o);
}

static enum pici_status other_root(struct step *s, int rank, int odd)
{
    return spread(s, rank, N, PICI_F32, odd, NULL);
}

static enum pici_status no_root(struct step *s, int rank, int odd)
{
    return spread(s, rank, N, PICI_F32, odd ? s->p : 0, NULL);
}

static enum pici_status negative_root(struct step *s, int rank, int odd)
{
    return spread(s, rank, N, PICI_F32, odd ? -1 : 0, NULL);
}

static enum pici_status null_buffer(struct step *s, int rank, int odd)
{
    return pici_broadcast(odd ? NULL : s->recv[rank], N, PICI_F32, 0, s->comm[rank], NULL);
}

static enum pici_status other_count(struct step *s, int rank, int odd)
{
    return spread(s, rank, (uint64_t)(N - odd), PICI_F32, 0, NULL);
}

static enum pici_status other_dtype(struct step *s, int rank, int odd)
{
    return spread(s, rank, N, odd ? PICI_I32 : PICI_F32, 0, NULL);
}

static enum pici_status other_zeros(struct step *s, int rank, int odd)
{
    struct pici_coll_opts o = defaults;
    o.zeros = odd ? PICI_ZEROS_BY_VALUE : PICI_ZEROS_EXACT;
    return spread(s, rank, N, PICI_F32, 0, &o);
}

static enum pici_status beyond_memory(struct step *s, int rank, int odd)
{
    return spread(s, rank, odd ? UINT64_MAX / 4 : N, PICI_F32, 0, NULL);
}

static enum pici_status other_kind(struct step *s, int rank, int odd)
{
    return odd ? gather(s, rank, NULL) : spread(s, rank, N, PICI_F32, 0, NULL);
}

static enum pici_status not_v(struct step *s, int rank, int odd)
{
    return odd ? pici_all_gather(s->send[rank], s->recv[rank], 1, PICI_F32, s->comm[rank], NULL)
               : gather(s, rank, NULL);
}

static enum pici_status other_counts(struct step *s, int rank, int odd)
{
    s->counts[rank][rank ? 0 : 1] += (uint64_t)odd;
    return gather(s, rank, NULL);
}

/* Of the same sum. */
static enum pici_status exchanged_counts(struct step *s, int rank, int odd)
{
    const int a = rank == 0 ? 1 : 0, b = rank == s->p - 1 ? s->p - 2 : s->p - 1;
    s->counts[rank][a] += (uint64_t)odd;
    s->counts[rank][b] -= (uint64_t)odd;
    return gather(s, rank, NULL);
}

static enum pici_status null_counts(struct step *s, int rank, int odd)
{
    return pici_all_gatherv(s->send[rank], (uint64_t)rank + 1, s->recv[rank], odd ? NULL : s->counts[rank],
                            s->displs[rank], PICI_F32, s->comm[rank], NULL);
}

static enum pici_status own_count(struct step *s, int rank, int odd)
{
    return pici_all_gatherv(s->send[rank], (uint64_t)(rank + 1 + odd), s->recv[rank], s->counts[rank], s->displs[rank],
                            PICI_F32, s->comm[rank], NULL);
}

static enum pici_status null_recv(struct step *s, int rank, int odd)
{
    return pici_all_gatherv(s->send[rank], (uint64_t)rank + 1, odd ? NULL : s->recv[rank], s->counts[rank], NULL,
                            PICI_F32, s->comm[rank], NULL);
}

static enum pici_status null_send(struct step *s, int rank, int odd)
{
    return pici_all_gatherv(odd ? NULL : s->send[rank], (uint64_t)rank + 1, s->recv[rank], s->counts[rank], NULL,
                            PICI_F32, s->comm[rank], NULL);
}

static enum pici_status slots_overlap(struct step *s, int rank, int odd)
{
    const int last = s->p - 1;
    if (odd)
        s->displs[rank][0] = s->displs[rank][last] + (uint64_t)last; /* its last element */
    return gather(s, rank, NULL);
}

static enum pici_status send_overlaps(struct step *s, int rank, int odd) /* in another rank's place */
{
    const uint64_t slot = s->displs[rank][(rank + odd) % s->p];
    return pici_all_gatherv(s->recv[rank] + slot, (uint64_t)rank + 1, s->recv[rank], s->counts[rank], s->displs[rank],
                            PICI_F32, s->comm[rank], NULL);
}

static enum pici_status beyond_end(struct step *s, int rank, int odd)
{
    if (odd)
        s->displs[rank][0] = UINT64_MAX - 1;
    return gather(s, rank, NULL);
}

static enum pici_status sum_beyond_memory(struct step *s, int rank, int odd)
{
    for (int i = 0; i < s->p && odd; i++)
        s->counts[rank][i] += i == rank ? 0 : UINT64_MAX / 2;
    return gather(s, rank, NULL);
}

static const struct wrong {
    const char *what;
    enum pici_status (*call)(struct step *, int rank, int odd);
    enum pici_status want;
    int least_ranks;   /* with fewer it is nothing wrong */
    const char *words; /* in some rank's error; NULL: any */
} wrongs[] = {
    {"another root", other_root, PICI_E_PEER, 2, "ranks disagree on the root: "},
    {"no such root", no_root, PICI_E_ARG, 1, "root "},
    {"a negative root", negative_root, PICI_E_ARG, 1, "root -1 out of range (world size "},
    {"null", null_buffer, PICI_E_ARG, 1, "the send buffer is null"},
    {"another count", other_count, PICI_E_PEER, 2, "ranks disagree on the count: "},
    {"another dtype", other_dtype, PICI_E_PEER, 2, "ranks disagree on the dtype: "},
    {"another option zeros", other_zeros, PICI_E_PEER, 2, "ranks disagree on the option zeros: "},
    {"a count beyond memory", beyond_memory, PICI_E_ARG, 1, "count 4611686018427387903 exceeds the address space"},
    {"another collective", other_kind, PICI_E_PEER, 2, " calls broadcast"},
    {"all_gather among all_gathervs", not_v, PICI_E_PEER, 2, " calls all-gatherv"},
    {"other recvcounts", other_counts, PICI_E_PEER, 2, "ranks disagree on the sum of recvcounts: "},
    {"other recvcounts of the same sum", exchanged_counts, PICI_E_PEER, 3, "ranks disagree on the recvcounts"},
    {"null recvcounts", null_counts, PICI_E_ARG, 1, "recvcounts is null"},
    {"another sendcount", own_count, PICI_E_ARG, 1, "sendcount is "},
    {"null recv", null_recv, PICI_E_ARG, 1, "the receive buffer is null"},
    {"null send", null_send, PICI_E_ARG, 1, "the send buffer is null"},
    {"slots that overlap", slots_overlap, PICI_E_ARG, 2, "contributions overlap in the receive buffer"},
    {"send overlaps", send_overlaps, PICI_E_ARG, 2,
     "the send and receive buffers overlap, but not as for an in-place call"},
    {"a slot beyond memory", beyond_end, PICI_E_ARG, 1,
     "recvcounts[0] and displs[0]: 1 elements at 18446744073709551614 exceed the address space"},
    {"recvcounts beyond memory", sum_beyond_memory, PICI_E_ARG, 2, " elements at "},
};

static void step_rank(void *context, int rank)
{
    struct step *s = context;
    s->status[rank] = s->call(s, rank, rank == s->odd);
}

static struct step *step_new(int p, int odd)
{
    struct step *s = test_alloc(sizeof *s);
    memset(s, 0, sizeof *s);
    s->p = p;
    s->odd = odd;
    cr_assert_eq(pici_comm_threads(s->comm, p), PICI_OK);
    for (int r = 0; r < p; r++)
        for (int i = 0; i < p; i++) {
            s->counts[r][i] = (uint64_t)i + 1;
            s->displs[r][i] = (uint64_t)i * N;
        }
    memset(s->recv, 0x5c, sizeof s->recv);
    return s;
}

static void step_free(struct step *s)
{
    for (int r = 0; r < s->p; r++)
        pici_comm_free(s->comm[r]);
    free(s);
}

Test(coll_threads_gather, one_wrong_all_know)
{
    static const int ranks[] = {1, 2, 3, 6};
    static uint8_t untouched[sizeof((struct step *)0)->recv[0]];
    memset(untouched, 0x5c, sizeof untouched);
    alarm(WATCHDOG_S);
    for (size_t w = 0; w < sizeof wrongs / sizeof *wrongs; w++)
        for (int i = 0; i < 4; i++)
            for (int odd = 0; odd < ranks[i] && ranks[i] >= wrongs[w].least_ranks; odd += ranks[i] > 3 ? 3 : 1) {
                struct step *s = step_new(ranks[i], odd);
                int said = 0;
                s->call = wrongs[w].call;
                coll_threads(s->p, step_rank, s);
                for (int r = 0; r < s->p; r++) {
                    const char *words = pici_comm_error(s->comm[r]);
                    cr_expect_eq(s->status[r], wrongs[w].want, "%s, odd %d, rank %d of %d: %s (%s)", wrongs[w].what,
                                 odd, r, s->p, pici_strerror(s->status[r]), words);
                    cr_expect(words[0]);
                    said |= !wrongs[w].words || strstr(words, wrongs[w].words);
                    cr_expect_eq(memcmp(s->recv[r], untouched, sizeof untouched), 0, "%s: rank %d of %d was written",
                                 wrongs[w].what, r, s->p);
                    cr_expect(wrongs[w].want != PICI_E_PEER || !wrongs[w].words || strstr(words, wrongs[w].words),
                              "%s: rank %d of %d says \"%s\"", wrongs[w].what, r, s->p, words);
                }
                cr_expect(said, "%s: nobody says \"%s\"", wrongs[w].what, wrongs[w].words);
                coll_threads(s->p, step_rank, s);
                for (int r = 0; r < s->p; r++)
                    cr_expect_eq(s->status[r], PICI_E_BROKEN, "%s", wrongs[w].what);
                step_free(s);
            }
}

static enum pici_status in_place(struct step *s, int rank, int odd)
{
    (void)odd;
    return send_overlaps(s, rank, 0);
}

/* Nothing is wrong with the wrong ones but what is said; and what is refused at once needs nobody else. */
Test(coll_threads_gather, refused_at_once)
{
    struct pici_coll_opts o = defaults;
    struct pici_values values = PICI_VALUES_INIT;
    struct pici_request *request = (struct pici_request *)&o;
    struct step *s = step_new(3, -1);
    float buf[4] = {0};
    const uint64_t counts[3] = {1, 1, 1};
    alarm(WATCHDOG_S);
    values.codec = PICI_VALUES_CAST;
    o.values = &values;
    cr_expect_eq(pici_broadcast(buf, 1, PICI_F32, 0, s->comm[0], &o), PICI_E_UNSUPPORTED);
    cr_expect_eq(pici_all_gatherv(buf, 1, buf, counts, NULL, PICI_F32, s->comm[0], &o), PICI_E_UNSUPPORTED);
    o = defaults;
    o.algorithm = PICI_ALGO_DOUBLING;
    cr_expect_eq(pici_broadcast(buf, 1, PICI_F32, 0, s->comm[0], &o), PICI_E_UNSUPPORTED);
    cr_expect_eq(pici_all_gatherv(buf, 1, buf, counts, NULL, PICI_F32, s->comm[0], &o), PICI_E_UNSUPPORTED);
    cr_expect_eq(pici_comm_scratch(s->comm[0], PICI_BROADCAST, 1, PICI_F32, PICI_SUM, &o), 0u);
    cr_expect_eq(pici_broadcast(buf, 1, (enum pici_dtype)15, 0, s->comm[0], NULL), PICI_E_UNSUPPORTED);
    cr_expect_eq(pici_broadcast(buf, 1, PICI_F32, 0, NULL, NULL), PICI_E_ARG);
    cr_expect_eq(pici_all_gatherv(buf, 1, buf, counts, NULL, PICI_F32, NULL, NULL), PICI_E_ARG);
    cr_expect_eq(pici_broadcast_start(buf, 1, PICI_F32, 0, NULL, NULL, &request), PICI_E_ARG);
    cr_expect_null(request);
    cr_expect_eq(pici_all_gatherv_start(buf, 1, buf, counts, NULL, PICI_F32, s->comm[0], NULL, NULL), PICI_E_ARG);
    cr_expect_str_eq(pici_comm_error(s->comm[0]), "");
    for (int i = 0; i < 2; i++) {
        s->call = i ? in_place : other_root;
        coll_threads(s->p, step_rank, s);
        for (int r = 0; r < s->p; r++)
            cr_expect_eq(s->status[r], PICI_OK, "%s", pici_comm_error(s->comm[r]));
    }
    step_free(s);
}

/* Without elements no buffers are needed, but counts are. */
static enum pici_status nothing(struct step *s, int rank, int odd)
{
    static const uint64_t none[RANKS] = {0};
    enum pici_status status = pici_broadcast(NULL, 0, PICI_F32, s->p - 1, s->comm[rank], NULL);
    (void)odd;
    return status ? status : pici_all_gatherv(NULL, 0, NULL, none, NULL, PICI_F64, s->comm[rank], NULL);
}

Test(coll_threads_gather, no_elements)
{
    alarm(WATCHDOG_S);
    for (int p = 1; p <= RANKS; p++) {
        struct step *s = step_new(p, -1);
        s->call = nothing;
        coll_threads(p, step_rank, s);
        for (int r = 0; r < p; r++)
            cr_expect_eq(s->status[r], PICI_OK, "%s", pici_comm_error(s->comm[r]));
        step_free(s);
    }
}

/* Where an empty contribution would be does not matter: here it is beyond memory, and in another's place. Every second
 * rank sends nothing; the first one, which may be this one, or the last. */
static enum pici_status placed_nowhere(struct step *s, int rank, int odd)
{
    static const uint64_t anywhere[] = {UINT64_MAX, UINT64_MAX / sizeof(float) - 3, 1};
    const int sends = rank % 2 == s->odd;
    (void)odd;
    for (int i = 0; i < s->p; i++) {
        s->counts[rank][i] = i % 2 == s->odd ? N - 1 : 0;
        s->displs[rank][i] = s->counts[rank][i] ? (uint64_t)i * N : anywhere[(rank + i) % 3];
        s->send[rank][i] = (float)(rank + i);
    }
    return pici_all_gatherv(sends ? s->send[rank] : NULL, s->counts[rank][rank], s->recv[rank], s->counts[rank],
                            s->displs[rank], PICI_F32, s->comm[rank], NULL);
}

Test(coll_threads_gather, empty_contributions_have_no_place)
{
    alarm(WATCHDOG_S);
    for (int p = 2; p <= RANKS; p++)
        for (int odd = 0; odd < 2; odd++) {
            struct step *s = step_new(p, odd);
            s->call = placed_nowhere;
            coll_threads(p, step_rank, s);
            for (int r = 0; r < p; r++) {
                cr_expect_eq(s->status[r], PICI_OK, "%s", pici_comm_error(s->comm[r]));
                for (int i = 0; i < p; i++) {
                    const float *slot = s->recv[r] + i * N, untouched = s->recv[r][RANKS * N];
                    cr_expect(i % 2 == odd ? memcmp(slot, s->send[i], (N - 1) * sizeof *slot) == 0
                                           : slot[0] == untouched && slot[N - 1] == untouched,
                              "slot %d on rank %d of %d", i, r, p);
                }
            }
            step_free(s);
        }
}

/* Contributions of other lengths, with the same maximum and sum, are cut into other slices. Also on a rank that has
 * asked for another call's memory between. */
struct lengths {
    struct pici_comm *comm[4];
    int wrong[4];
};

static void other_lengths(void *context, int rank)
{
    enum { K = 1 << 10 };
    static const uint64_t counts[2][4] = {{128 * K, 128 * K, 128 * K, 80 * K}, {128 * K, 112 * K, 112 * K, 112 * K}};
    struct lengths *l = context;
    float *const send = test_alloc(128 * K * sizeof *send), *const recv = test_alloc(464 * K * sizeof *recv);
    for (int i = 0; i < 128 * K; i++)
        send[i] = (float)(rank + 1);
    for (int call = 0; call < 2; call++) {
        const uint64_t *n = counts[call];
        uint64_t at = 0;
        l->wrong[rank] += pici_all_gatherv(send, n[rank], recv, n, NULL, PICI_F32, l->comm[rank], NULL) != PICI_OK;
        for (int r = 0; r < 4; r++)
            for (const uint64_t end = at + n[r]; at < end; at++)
                l->wrong[rank] += recv[at] != (float)(r + 1);
        if (!rank)
            l->wrong[rank] += !pici_comm_scratch(l->comm[rank], PICI_ALL_REDUCE, 1000, PICI_F32, PICI_SUM, NULL);
    }
    free(send);
    free(recv);
}

Test(coll_threads_gather, other_lengths_of_the_same_sum)
{
    struct lengths l = {.wrong = {0}};
    alarm(WATCHDOG_S);
    cr_assert_eq(pici_comm_threads(l.comm, 4), PICI_OK);
    coll_threads(4, other_lengths, &l);
    for (int r = 0; r < 4; r++) {
        cr_expect_eq(l.wrong[r], 0, "rank %d: %s", r, pici_comm_error(l.comm[r]));
        pici_comm_free(l.comm[r]);
    }
}

/* ---- bytes */

static void wire_of(void *context, int rank)
{
    struct step *s = context;
    struct pici_coll_stats *stats = test_alloc(sizeof *stats);
    struct pici_coll_opts o = defaults;
    *stats = (struct pici_coll_stats)PICI_COLL_STATS_INIT;
    o.algorithm = (enum pici_algorithm)s->odd;
    o.format = PICI_DENSE;
    o.stats = stats;
    s->status[rank] = spread(s, rank, N, PICI_F32, 1, &o);
    s->counts[0][rank] = stats->wire_bytes;
    free(stats);
}

/* A tree sends the data to each rank once, and to the root never; a scatter divides the work among the ranks. */
Test(coll_threads_gather, bytes_sent)
{
    const uint64_t data = N * sizeof(float), slack = 6000; /* prefixes, the agreement rounds */
    static const enum pici_algorithm algorithms[] = {PICI_ALGO_RING, PICI_ALGO_RECURSIVE, PICI_ALGO_SPLIT};
    alarm(WATCHDOG_S);
    for (int i = 0; i < 3; i++) {
        struct step *s = step_new(RANKS, (int)algorithms[i]);
        uint64_t all = 0, most = 0;
        coll_threads(RANKS, wire_of, s);
        for (int r = 0; r < RANKS; r++) {
            cr_expect_eq(s->status[r], PICI_OK);
            all += s->counts[0][r];
            most = s->counts[0][r] > most ? s->counts[0][r] : most;
        }
        if (algorithms[i] == PICI_ALGO_SPLIT)
            cr_expect_leq(most, 2 * data + slack, "%llu", (unsigned long long)most);
        else
            cr_expect(all >= (RANKS - 1) * data && all <= (RANKS - 1) * data + RANKS * slack, "%llu",
                      (unsigned long long)all);
        step_free(s);
    }
}
