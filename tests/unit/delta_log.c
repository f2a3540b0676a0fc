/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Logs of deltas (pici/delta_log.h) of states in memory. Logs of files, and processes that are killed, are tested by
 * tests/cli/log.sh. */
#define _XOPEN_SOURCE 700 /* truncate */
#include "tests/util/file.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "delta/manifest.h"
#include "pici/delta_log.h"

enum { N = 3000, STATES = 5 };

static uint16_t weights[STATES][N];
static struct pici_state *state[STATES];
static char why[PICI_WHY_BYTES];

/* A state of one tensor with *n elements, which is given here, all or only the `count` from 1 on. */
static struct pici_state *part_of(const uint16_t *w, const uint64_t *n, uint64_t count)
{
    struct pici_state *s;
    struct pici_tensor t = PICI_TENSOR_INIT;
    t.name = "data";
    t.name_len = 4;
    t.dtype = PICI_BF16;
    t.rank = 1;
    t.shape = n;
    cr_assert_eq(pici_state_new(&s, "state", PICI_STATE_RAW, NULL, 0, NULL, NULL), PICI_OK);
    cr_assert_eq(count < *n ? pici_state_add_part(s, &t, w, 1, count) : pici_state_add(s, &t, w, 0), PICI_OK);
    return s;
}

static struct pici_state *state_of(const uint16_t *w, uint64_t n)
{
    return part_of(w, &n, n);
}

static void enter(void)
{
    home_enter();
    for (int k = 0; k < STATES; k++) {
        for (int i = 0; i < N; i++)
            weights[k][i] = (uint16_t)(0x3c00 + i * 7919 % 500 + (i % 9 == 0) * k);
        state[k] = state_of(weights[k], N);
    }
    cr_assert_eq(pici_log_create("log", state[0], ".bin", why), PICI_OK, "%s", why);
}

static void leave(void)
{
    for (int k = 0; k < STATES; k++)
        pici_state_free(state[k]);
    home_leave();
}

TestSuite(delta_log, .init = enter, .fini = leave);

static struct pici_log *opened(int write)
{
    struct pici_log *l;
    cr_assert_eq(pici_log_open(&l, "log", write, why), PICI_OK, "%s", why);
    return l;
}

static void append(int from, int to)
{
    struct pici_log *l = opened(1);
    for (int k = from; k < to; k++)
        cr_assert_eq(pici_log_append(l, state[k], state[k + 1], NULL, why), PICI_OK, "%s", why);
    pici_log_close(l);
}

static struct pici_log_info info_of(const struct pici_log *l)
{
    struct pici_log_info info = PICI_LOG_INFO_INIT;
    cr_assert_eq(pici_log_get_info(l, &info), PICI_OK);
    return info;
}

static bool is_state(const struct sink *k, int number)
{
    return k->len == sizeof weights[0] && memcmp(k->p, weights[number], sizeof weights[0]) == 0;
}

/* From the state `number`, -1: from the base, the log leads to `to`. known: the number is told. */
static void leads(const struct pici_log *l, int number, bool known, int to)
{
    struct sink k = {0};
    uint64_t from = known ? (uint64_t)number : PICI_LOG_UNKNOWN, reached;
    const enum pici_status s = number < 0
                                   ? pici_log_apply(l, NULL, sink_write, &k, &from, &reached, NULL, why)
                                   : pici_log_apply_state(l, state[number], sink_write, &k, &from, &reached, NULL, why);
    cr_assert_eq(s, PICI_OK, "%s", why);
    cr_assert_eq(reached, (uint64_t)to);
    cr_assert(number < 0 ? from == info_of(l).base : from == (uint64_t)number);
    if (number >= 0 && number == to)
        cr_assert_eq(k.len, 0);
    else
        cr_assert(is_state(&k, to), "%d to %d", number, to);
    sink_free(&k);
}

Test(delta_log, no_parts)
{
    static const uint64_t n = N;
    struct pici_state *part = part_of(weights[0], &n, 9);
    cr_expect_eq(pici_log_create("parts", part, ".bin", why), PICI_E_UNSUPPORTED);
    cr_expect(strstr(why, "parts of tensors"), "%s", why);
    cr_expect_eq(pici_log_create_packed("parts", part, ".bin", NULL, why), PICI_E_UNSUPPORTED);
    cr_expect(access("parts", F_OK) != 0);
    pici_state_free(part);
}

static struct pici_state *raw_of(const char *name, enum pici_dtype dtype, unsigned rank, const uint64_t *shape,
                                 const void *data)
{
    struct pici_state *s;
    struct pici_tensor t = PICI_TENSOR_INIT;
    t.name = name;
    t.name_len = 4;
    t.dtype = dtype;
    t.rank = rank;
    t.shape = shape;
    cr_assert_eq(pici_state_new(&s, "raw", PICI_STATE_RAW, NULL, 0, NULL, NULL), PICI_OK);
    cr_assert_eq(pici_state_add(s, &t, data, 0), PICI_OK);
    return s;
}

/* A reader opens the stored file as one tensor of one dimension, so a log takes no other raw states. */
Test(delta_log, raw_states_of_other_tensors)
{
    static const uint64_t shape[] = {N / 100, 100}, flat = N;
    struct pici_log *l = opened(1);
    for (int i = 0; i < 2; i++) {
        struct pici_state *s =
            i ? raw_of("tada", PICI_BF16, 1, &flat, weights[1]) : raw_of("data", PICI_BF16, 2, shape, weights[1]);
        cr_expect_eq(pici_log_create("other", s, ".bin", why), PICI_E_ARG);
        cr_expect(strstr(why, "one dimension"), "%s", why);
        cr_expect_eq(pici_log_create_packed("other", s, ".bin", NULL, why), PICI_E_ARG);
        cr_expect(access("other", F_OK) != 0);
        cr_expect_eq(pici_log_append(l, state[0], s, NULL, why), PICI_E_ARG);
        pici_state_free(s);
    }
    struct pici_state *tail = raw_of("data", PICI_BF16, 1, &flat, weights[1]);
    struct pici_tensor t = PICI_TENSOR_INIT;
    static const uint64_t one = 1;
    t.name = "tail";
    t.name_len = 4;
    t.dtype = PICI_U8;
    t.rank = 1;
    t.shape = &one;
    cr_assert_eq(pici_state_add(tail, &t, weights[0], 0), PICI_OK);
    cr_expect_eq(pici_log_append(l, state[0], tail, NULL, why), PICI_OK, "%s", why);
    pici_state_free(tail);
    pici_log_close(l);
}

/* The deltas of a log have one type, so the newest state can be reached from the base. */
Test(delta_log, another_dtype)
{
    static const uint64_t half = N / 2;
    struct pici_log *l = opened(1);
    struct sink k = {0};
    uint64_t from, reached;
    cr_assert_eq(pici_log_append(l, state[0], state[1], NULL, why), PICI_OK, "%s", why);
    struct pici_state *wide[] = {raw_of("data", PICI_F32, 1, &half, weights[1]),
                                 raw_of("data", PICI_F32, 1, &half, weights[2])};
    cr_expect_eq(pici_log_append(l, wide[0], wide[1], NULL, why), PICI_E_ARG);
    cr_expect(strstr(why, "another type or dtype than the deltas of log"), "%s", why);
    cr_expect_eq(pici_log_append(l, wide[0], state[2], NULL, why), PICI_E_ARG);
    cr_expect_eq(pici_log_append(l, state[1], wide[1], NULL, why), PICI_E_ARG);
    cr_expect_eq(pici_log_append(l, state[1], state[2], NULL, why), PICI_OK, "%s", why);
    cr_expect_eq(pici_log_apply(l, NULL, sink_write, &k, &from, &reached, NULL, why), PICI_OK, "%s", why);
    cr_expect_eq(reached, 2);
    cr_expect(is_state(&k, 2));
    sink_free(&k);
    pici_state_free(wide[0]);
    pici_state_free(wide[1]);
    pici_log_close(l);
}

Test(delta_log, from_any_state)
{
    append(0, STATES - 1);
    struct pici_log *l = opened(0);
    const struct pici_log_info info = info_of(l);
    cr_assert(info.first == 0 && info.base == 0 && info.newest == STATES - 1);
    cr_assert(info.base_bytes == sizeof weights[0] && strcmp(info.extension, ".bin") == 0);
    for (int k = -1; k < STATES; k++)
        for (int known = 0; known < 1 + (k >= 0); known++) {
            leads(l, k, known, STATES - 1);
            cr_assert_str_eq(why, "");
        }
    struct pici_log_state s = PICI_LOG_STATE_INIT;
    uint64_t bytes, hash;
    cr_assert_eq(pici_log_get_state(l, 2, &s), PICI_OK);
    cr_assert_eq(pici_state_hash(state[2], &bytes, &hash, NULL), PICI_OK);
    cr_assert(s.bytes == bytes && s.hash == hash && s.delta_bytes);
    cr_assert_eq(pici_log_get_state(l, STATES, &s), PICI_E_ARG);
    pici_log_close(l);
}

/* A delta that is not there, or that is cut off, ends the way before it. */
Test(delta_log, part_of_a_folder)
{
    append(0, 3);
    struct pici_log *l = opened(0);
    cr_assert_eq(truncate("log/delta-000000003.pici", 100), 0);
    leads(l, 0, false, 2);
    cr_assert(strstr(why, "log/delta-000000003.pici: is incomplete or damaged"), "%s", why);
    cr_assert_eq(unlink("log/delta-000000001.pici"), 0);
    leads(l, 0, true, 0);
    cr_assert(strstr(why, "log/delta-000000001.pici: is not there yet"), "%s", why);
    leads(l, -1, false, 0);
    leads(l, 1, false, 2);
    pici_log_close(l);
}

Test(delta_log, compact)
{
    append(0, 3);
    struct pici_log *old = opened(0), *l = opened(1);
    make_file("log/delta-000000009.pici", "left over", 0644);
    make_file("log/.pici-1", "left over", 0644);
    cr_assert_eq(mkdir("log/.pici-2", 0755), 0); /* no file of the log */
    make_file("log/notes", "mine", 0644);
    cr_assert_eq(pici_log_compact(l, NULL, why), PICI_OK, "%s", why);
    cr_assert_eq(info_of(l).base, 3);
    cr_assert(access("log/delta-000000009.pici", F_OK) && access("log/.pici-1", F_OK) && !access("log/notes", F_OK));
    leads(l, 0, false, 3);
    cr_assert_eq(pici_log_append(l, state[3], state[4], NULL, why), PICI_OK, "%s", why);
    leads(l, -1, false, 4);
    uint64_t from, to;
    struct sink k = {0}; /* a reader of the old manifest is told that its base is gone */
    cr_assert_eq(pici_log_apply(old, NULL, sink_write, &k, &from, &to, NULL, why), PICI_E_CORRUPT);
    cr_assert(strstr(why, "base-000000000.bin: is not there yet, or has been removed"), "%s", why);
    /* two states that differ everywhere: their deltas are longer than the base, and dropped */
    static uint16_t other[2][N];
    struct pici_state *s[2];
    for (int i = 0; i < 2 * N; i++)
        other[i / N][i % N] = (uint16_t)(i * 2654435761u >> 13);
    for (int i = 0; i < 2; i++)
        s[i] = state_of(other[i], N);
    cr_assert_eq(pici_log_append(l, state[4], s[0], NULL, why), PICI_OK, "%s", why);
    cr_assert_eq(pici_log_append(l, s[0], s[1], NULL, why), PICI_OK, "%s", why);
    cr_assert_eq(pici_log_compact(l, NULL, why), PICI_OK, "%s", why);
    const struct pici_log_info info = info_of(l);
    cr_assert(info.base == 6 && info.newest == 6 && info.first > 0);
    from = 0;
    cr_assert_eq(pici_log_apply_state(l, state[0], sink_write, &k, &from, &to, NULL, why), PICI_E_ARG);
    cr_assert(strstr(why, "log: has no state 0 now"), "%s", why);
    from = PICI_LOG_UNKNOWN;
    cr_assert_eq(pici_log_apply_state(l, state[0], sink_write, &k, &from, &to, NULL, why), PICI_E_ARG);
    cr_assert(strstr(why, "state: is none of the states of log"), "%s", why);
    cr_assert_eq(pici_log_append(l, s[1], state[0], NULL, why), PICI_OK, "%s", why);
    pici_log_close(old);
    pici_log_close(l);
    pici_state_free(s[0]);
    pici_state_free(s[1]);
}

/* A base that is packed is led from, compacted and damaged as one that is whole. */
Test(delta_log, packed_base)
{
    struct pici_log *l;
    struct sink k = {0};
    struct stat found;
    uint64_t from, to;
    cr_assert_eq(pici_log_create_packed("packed", state[0], ".bin", NULL, why), PICI_OK, "%s", why);
    cr_assert_eq(pici_log_open(&l, "packed", 1, why), PICI_OK, "%s", why);
    cr_assert_eq(stat("packed/base-000000000.bin.pici", &found), 0);
    cr_assert(info_of(l).base_bytes == sizeof weights[0] && info_of(l).stored_bytes == (uint64_t)found.st_size);
    cr_assert_lt(info_of(l).stored_bytes, sizeof weights[0] * 8 / 10);
    leads(l, -1, false, 0);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(pici_log_append(l, state[i], state[i + 1], NULL, why), PICI_OK, "%s", why);
    leads(l, -1, false, 3);
    leads(l, 1, false, 3);
    cr_assert_eq(pici_log_compact(l, NULL, why), PICI_OK, "%s", why);
    cr_assert(access("packed/base-000000000.bin.pici", F_OK) && access("packed/base-000000003.bin", F_OK));
    cr_assert_eq(stat("packed/base-000000003.bin.pici", &found), 0);
    cr_assert(info_of(l).base == 3 && info_of(l).stored_bytes == (uint64_t)found.st_size);
    pici_log_close(l);
    cr_assert_eq(pici_log_open(&l, "packed", 1, why), PICI_OK, "%s", why);
    leads(l, -1, false, 3);
    cr_assert_eq(pici_log_append(l, state[3], state[4], NULL, why), PICI_OK, "%s", why);
    leads(l, -1, false, 4);
    leads(l, 0, false, 4);
    cr_assert_eq(truncate("packed/delta-000000004.pici", 100), 0);
    leads(l, -1, false, 3); /* a part of a folder */
    cr_assert_eq(truncate("packed/base-000000003.bin.pici", found.st_size - 1), 0);
    cr_assert_eq(pici_log_apply(l, NULL, sink_write, &k, &from, &to, NULL, why), PICI_E_CORRUPT);
    cr_assert(strstr(why, "base-000000003.bin.pici: is incomplete or damaged"), "%s", why);
    pici_log_close(l);
    sink_free(&k);
}

/* What a packed base cannot be in a row with is refused, and so are options of later versions. */
Test(delta_log, packed_base_refused)
{
    struct pici_log *l;
    struct pici_diff_opts opts = PICI_DIFF_OPTS_INIT;
    const uint64_t n = N;
    struct pici_tensor t = PICI_TENSOR_INIT;
    struct pici_state *other;
    opts.pack = (enum pici_pack)99;
    cr_assert_eq(pici_log_create_packed("packed", state[0], ".bin", &opts, why), PICI_E_UNSUPPORTED);
    cr_assert(access("packed/manifest", F_OK));
    opts.pack = PICI_PACK_FAST;
    cr_assert_eq(pici_log_create_packed("packed", state[0], ".bin", &opts, why), PICI_OK, "%s", why);
    cr_assert_eq(pici_log_create_packed("packed", state[0], ".bin", &opts, why), PICI_E_IO);
    cr_assert_eq(pici_log_open(&l, "packed", 1, why), PICI_OK, "%s", why);
    t.name = "data";
    t.name_len = 4;
    t.dtype = PICI_F16;
    t.rank = 1;
    t.shape = &n;
    cr_assert_eq(pici_state_new(&other, "other", PICI_STATE_RAW, NULL, 0, NULL, NULL), PICI_OK);
    cr_assert_eq(pici_state_add(other, &t, weights[1], 0), PICI_OK);
    cr_assert_eq(pici_log_append(l, state[0], other, NULL, why), PICI_E_ARG);
    cr_assert(strstr(why, "other: is of another type or dtype than the base of packed"), "%s", why);
    cr_assert_eq(info_of(l).newest, 0);
    pici_state_free(other);
    pici_log_close(l);
}

Test(delta_log, refused)
{
    struct pici_log *l = opened(0);
    cr_assert_eq(pici_log_append(l, state[0], state[1], NULL, why), PICI_E_ARG);
    cr_assert_eq(pici_log_compact(l, NULL, why), PICI_E_ARG);
    pici_log_close(l);
    l = opened(1);
    cr_assert_eq(pici_log_append(l, state[1], state[2], NULL, why), PICI_E_ARG);
    cr_assert(strstr(why, "is not the newest state of log"), "%s", why);
    cr_assert_eq(info_of(l).newest, 0);
    pici_log_close(l);
    errno = 0;
    cr_assert_eq(pici_log_create("log", state[1], "", why), PICI_E_IO);
    cr_assert(errno == EEXIST && strstr(why, "is a log already"));
    cr_assert_eq(pici_log_create("other", state[1], "/x", why), PICI_E_ARG);
    cr_assert_eq(pici_log_create("other", state[1], ". x", why), PICI_E_ARG);
    cr_assert_eq(pici_log_open(&l, "none", 0, why), PICI_E_IO);
    cr_assert(!l && strstr(why, "none/manifest: "), "%s", why);
    make_file("log/manifest", "pici-log 1\n", 0644);
    cr_assert_eq(pici_log_open(&l, "log", 1, why), PICI_E_CORRUPT);
}

/* A log with so many deltas that the manifest would become too long for readers: compact makes room. */
Test(delta_log, full)
{
    struct manifest m = {.base = MANIFEST_DELTAS_MOST, .extension = ".bin", .deltas = MANIFEST_DELTAS_MOST};
    cr_assert_eq(pici_state_hash(state[0], &m.whole.bytes, &m.whole.hash, NULL), PICI_OK);
    m.start = m.whole;
    m.delta = malloc(MANIFEST_DELTAS_MOST * sizeof *m.delta);
    cr_assert(m.delta);
    for (int k = 0; k < MANIFEST_DELTAS_MOST; k++)
        m.delta[k] = (struct manifest_delta){.state = m.whole};
    size_t len;
    char *const text = pici_manifest_text(&m, &len);
    cr_assert(text);
    make_file("log/manifest", text, 0644);
    free(text);
    pici_manifest_free(&m);
    struct pici_log *l = opened(1);
    cr_assert_eq(pici_log_append(l, state[0], state[1], NULL, why), PICI_E_SPACE);
    cr_assert(strstr(why, "log: has as many deltas as a log can have: compact it"), "%s", why);
    cr_assert_eq(pici_log_compact(l, NULL, why), PICI_OK, "%s", why);
    cr_assert(info_of(l).newest - info_of(l).first == MANIFEST_DELTAS_MOST / 2);
    cr_assert_eq(pici_log_append(l, state[0], state[1], NULL, why), PICI_OK, "%s", why);
    pici_log_close(l);
    l = opened(0);
    cr_assert_eq(info_of(l).newest, MANIFEST_DELTAS_MOST + 1);
    pici_log_close(l);
}

/* Whether anyone who opens the log now gets from its base, and from state 0, to a state that was appended. */
static void readers_get_to(uint64_t least, uint64_t most)
{
    struct pici_log *l = opened(0);
    const struct pici_log_info info = info_of(l);
    cr_assert(info.newest >= least && info.newest <= most);
    leads(l, -1, false, (int)info.newest);
    leads(l, 0, false, (int)info.newest);
    cr_assert_str_eq(why, "");
    pici_log_close(l);
}

/* What is done by a handle after a call through it has failed. */
struct retry {
    struct pici_log *log;
    int now; /* the newest state */
    bool compact;
};

static void retry(const struct retry *r)
{
    cr_assert_eq(pici_log_append(r->log, state[r->now], state[r->now + 1], NULL, why), PICI_OK, "%s", why);
    cr_assert(!r->compact || pici_log_compact(r->log, NULL, why) == PICI_OK, "%s", why);
}

/* Does it in processes that are killed before call `first` and each fifth one after it, with PICI_TEST_FULL=1 before
 * each. Returns how many are. */
static int killed_retries(const struct retry *r, int first)
{
    const int step = getenv("PICI_TEST_FULL") ? 1 : 5;
    int kills = 0, status;
    cr_assert_eq(system("rm -rf saved && cp -r log saved"), 0);
    for (bool done = false; !done; kills += !done) {
        const pid_t child = fork();
        if (child == 0) {
            calls_until_kill = first % step + kills * step;
            retry(r);
            _exit(0);
        }
        cr_assert(child > 0 && waitpid(child, &status, 0) == child);
        done = WIFEXITED(status);
        cr_assert(done ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGKILL);
        readers_get_to((uint64_t)(r->now + done), (uint64_t)r->now + 1);
        cr_assert_eq(system("rm -rf log/* log/.pici-* && cp saved/* log"), 0); /* the folder is the handle's */
    }
    return kills;
}

/* One system call fails during an append. Then the same handle appends the state again, or the next one if the log
 * already has it. Also with a process that is killed meanwhile. A delta that a manifest names is never replaced. */
Test(delta_log, append_fails)
{
    bool undone = false, unsynced = false, done = false;
    int kills = 0;
    for (int k = 0; !done; k++) {
        cr_assert(k < 100);
        cr_assert_eq(system("rm -rf log"), 0);
        cr_assert_eq(pici_log_create("log", state[0], ".bin", why), PICI_OK);
        struct pici_log *l = opened(1);
        calls_until_failure = k;
        const enum pici_status s = pici_log_append(l, state[0], state[1], NULL, why);
        done = calls_until_failure >= 0;
        calls_until_failure = -1;
        cr_assert(s == PICI_E_IO || s == PICI_E_SYNC || (s == PICI_OK && done));
        cr_assert(done || strstr(why, "Input/output error"), "%s", why);
        const int now = s != PICI_E_IO;
        cr_assert_eq(info_of(l).newest, (uint64_t)now);
        readers_get_to((uint64_t)now, (uint64_t)now);
        const struct retry again = {l, now, false};
        kills += killed_retries(&again, k);
        retry(&again);
        readers_get_to((uint64_t)now + 1, (uint64_t)now + 1);
        pici_log_close(l);
        undone |= s == PICI_E_IO;
        unsynced |= s == PICI_E_SYNC;
    }
    cr_assert(undone && unsynced && kills > 20, "%d kills", kills);
}

/* Whether the log has the base of a state, in a file of this extension. */
static bool has_base(int number, const char *extension)
{
    char path[64];
    snprintf(path, sizeof path, "log/base-%09d%s", number, extension);
    return access(path, F_OK) == 0;
}

/* The same for compact. Until the new manifest is on the disk, the files of the old one stay; if one of them cannot be
 * removed, that is an error too. */
static void compact_fails(bool packed)
{
    const char *const extension = packed ? ".bin.pici" : ".bin";
    bool unsynced = false, unclean = false, done = false;
    int kills = 0;
    for (int k = 0; !done; k++) {
        cr_assert(k < 100);
        cr_assert_eq(system("rm -rf log"), 0);
        cr_assert_eq(packed ? pici_log_create_packed("log", state[0], ".bin", NULL, why)
                            : pici_log_create("log", state[0], ".bin", why),
                     PICI_OK);
        append(0, 2);
        struct pici_log *l = opened(1);
        calls_until_failure = k;
        const enum pici_status s = pici_log_compact(l, NULL, why);
        done = calls_until_failure >= 0;
        calls_until_failure = -1;
        cr_assert(s == PICI_E_IO || s == PICI_E_SYNC || (s == PICI_OK && done), "%d at call %d: %s", s, k, why);
        const bool new = info_of(l).base == 2;
        cr_assert(new || (s == PICI_E_IO && info_of(l).base == 0));
        readers_get_to(2, 2);
        cr_assert((new &&s != PICI_E_SYNC) || has_base(0, extension));
        const struct retry again = {l, 2, true};
        kills += killed_retries(&again, k);
        retry(&again);
        cr_assert(!has_base(0, extension) && !has_base(2, extension) && has_base(3, extension));
        readers_get_to(3, 3);
        pici_log_close(l);
        unsynced |= s == PICI_E_SYNC;
        unclean |= s == PICI_E_IO && new;
    }
    cr_assert(unsynced && unclean && kills > 20, "%d kills", kills);
}

Test(delta_log, compact_fails)
{
    compact_fails(false);
}

Test(delta_log, compact_of_a_packed_base_fails)
{
    compact_fails(true);
}

/* 2^64 - 1 means that a state is not known. */
Test(delta_log, last_number)
{
    struct manifest m = {.first = UINT64_MAX - 2, .base = UINT64_MAX - 2, .extension = ".bin"};
    cr_assert_eq(pici_state_hash(state[0], &m.whole.bytes, &m.whole.hash, NULL), PICI_OK);
    m.start = m.whole;
    size_t len;
    char *const text = pici_manifest_text(&m, &len);
    cr_assert(text);
    make_file("log/manifest", text, 0644);
    free(text);
    struct pici_log *l = opened(1);
    cr_assert_eq(pici_log_append(l, state[0], state[1], NULL, why), PICI_OK, "%s", why);
    cr_assert_eq(pici_log_append(l, state[1], state[2], NULL, why), PICI_E_SPACE);
    cr_assert(strstr(why, "log: has no numbers left for new states"), "%s", why);
    pici_log_close(l);
    l = opened(0);
    cr_assert_eq(info_of(l).newest, UINT64_MAX - 1);
    pici_log_close(l);
}

/* An output that fails leaves the log, and says why. */
Test(delta_log, output_fails)
{
    append(0, 2);
    struct pici_log *l = opened(0);
    struct sink k = {.fail_at = 1};
    uint64_t from, to;
    cr_assert_eq(pici_log_apply(l, NULL, sink_write, &k, &from, &to, NULL, why), PICI_E_IO);
    cr_assert(errno && why[0]);
    leads(l, -1, false, 2);
    pici_log_close(l);
    sink_free(&k);
}
