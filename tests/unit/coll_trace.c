/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include <criterion/criterion.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coll/trace.h"
#include "parse/json.h"
#include "pici/neighbor.h"

static char folder[] = "/tmp/pici-trace-XXXXXX", path[64], file[80];

static void make_folder(void)
{
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/trace", folder);
    snprintf(file, sizeof file, "%s.3", path);
}

static void remove_folder(void)
{
    unlink(file);
    rmdir(folder);
}

TestSuite(coll_trace, .init = make_folder, .fini = remove_folder);

static char *contents(size_t *len)
{
    static char text[4 << 20];
    FILE *f = fopen(file, "rb");
    cr_assert_not_null(f);
    *len = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[*len] = '\0';
    return text;
}

/* The objects of a JSON array; -1 if it is none. */
static int objects(const char *text, size_t len)
{
    struct parse_error err;
    struct json j;
    int n = 0;
    pici_json_init(&j, text, len, 0, &err);
    if (pici_json_next(&j).type != JSON_ARRAY)
        return -1;
    for (unsigned depth = 1;;) {
        switch (pici_json_next(&j).type) {
        case JSON_ERROR: return -1;
        case JSON_END: return n;
        case JSON_OBJECT: n += depth++ == 1; break;
        case JSON_ARRAY: depth++; break;
        case JSON_OBJECT_END:
        case JSON_ARRAY_END: depth--; break;
        default: break;
        }
    }
}

static const int order[] = {4, 5, 6, 7}, segments[] = {0, 3, 2};

static const struct trace_event
    sent = {"send", 12.5, 12.500001234, 7, 0, 2,    5, 1, 1, PICI_COO, 0.01, 0,   1048624,
            20544,  {0},  NULL,         0, 0, NULL, 0, 0, 0, 0,        NULL, NULL},
    received = {"recv", 1e6, 1e6 + 0.25, 8, 1, 0,    0, 2, 0, PICI_DENSE, 1,    1,   4096,
                4144,   {0}, NULL,       0, 0, NULL, 0, 0, 0, 0,          NULL, NULL},
    waited = {"wait", 3, 3, 0, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, {0}, NULL, 0, 0, NULL, 0, 0, 0, 0, NULL, NULL},
    chosen = {"choose", 3,   3,      9, -1,        -1,   -1, -1, -1, -1, 0.25, -1,  0,
              0,        {0}, "ring", 1, 0.0012345, NULL, 0,  0,  0,  0,  NULL, NULL},
    whole = {"all-reduce", 3,   4,    UINT64_MAX, -1, -1,   -1, -1, -1, -1, -1,   0,   100,
             50,           {0}, NULL, 0,          0,  NULL, 0,  0,  0,  0,  NULL, NULL},
    lossy = {"all-reduce",  3, 4,    5,   -1, -1, -1, -1, -1, -1, -1, 0, 100, 50, {0}, NULL, 0, 0, "qsgd", 300, 2,
             0.00123456789, 0, NULL, NULL},
    relayed = {"recv", 3, 4, 5, 1, 2, 0, 1, 0, -1, -1, 0, 100, 50, {0}, NULL, 0, 0, NULL, 0, 0, 0, 3, segments, order},
    coded = {"send", 3,   4,    5, 0, 0,      0, 1, 0, PICI_DENSE, -1,   0,   100,
             50,     {0}, NULL, 0, 0, "cast", 0, 0, 0, 0,          NULL, NULL};

Test(coll_trace, lines)
{
    struct trace *t;
    size_t len;
    cr_assert_eq(pici_trace_open(&t, path, 3), PICI_OK);
    pici_trace_add(t, &sent);
    pici_trace_add(t, &received);
    pici_trace_add(t, &waited);
    pici_trace_add(t, &chosen);
    pici_trace_add(t, &whole);
    pici_trace_add(t, &lossy);
    pici_trace_add(t, &coded);
    pici_trace_add(t, &relayed);
    cr_assert_eq(pici_trace_close(t), PICI_OK);
    cr_expect_str_eq(
        contents(&len),
        "[{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":3,\"tid\":0,\"args\":{\"name\":\"rank 3\"}},\n"
        "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":3,\"tid\":0,\"args\":{\"name\":\"sends\"}},\n"
        "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":3,\"tid\":1,\"args\":{\"name\":\"receives\"}},\n"
        "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":3,\"tid\":2,\"args\":{\"name\":\"waits\"}},\n"
        "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":3,\"tid\":3,\"args\":{\"name\":\"collectives\"}},\n"
        "{\"name\":\"send\",\"ph\":\"X\",\"pid\":3,\"tid\":0,\"ts\":12500000.000,\"dur\":1.234,\"args\":{\"sequence\":"
        "7,"
        "\"phase\":\"reduce-scatter\",\"step\":2,\"slice\":5,\"peer\":1,\"inter\":1,\"format\":\"coo\","
        "\"density\":0.010000000,\"extrapolated\":0,\"dense_bytes\":1048624,\"wire_bytes\":20544}},\n"
        "{\"name\":\"recv\",\"ph\":\"X\",\"pid\":3,\"tid\":1,\"ts\":1000000000000.000,\"dur\":250000.000,\"args\":"
        "{\"sequence\":8,\"phase\":\"all-gather\",\"step\":0,\"slice\":0,\"peer\":2,\"inter\":0,\"format\":\"dense\","
        "\"density\":1.000000000,\"extrapolated\":1,\"dense_bytes\":4096,\"wire_bytes\":4144}},\n"
        "{\"name\":\"wait\",\"ph\":\"X\",\"pid\":3,\"tid\":2,\"ts\":3000000.000,\"dur\":0.000,\"args\":{\"sequence\":0}"
        "},\n"
        "{\"name\":\"choose\",\"ph\":\"X\",\"pid\":3,\"tid\":3,\"ts\":3000000.000,\"dur\":0.000,\"args\":{\"sequence\":"
        "9,"
        "\"density\":0.250000000,\"algorithm\":\"ring\",\"dense\":1,\"predicted_us\":1234.500}},\n"
        "{\"name\":\"all-reduce\",\"ph\":\"X\",\"pid\":3,\"tid\":3,\"ts\":3000000.000,\"dur\":1000000.000,\"args\":"
        "{\"sequence\":18446744073709551615,\"dense_bytes\":100,\"wire_bytes\":50}},\n"
        "{\"name\":\"all-reduce\",\"ph\":\"X\",\"pid\":3,\"tid\":3,\"ts\":3000000.000,\"dur\":1000000.000,\"args\":"
        "{\"sequence\":5,\"dense_bytes\":100,\"wire_bytes\":50,\"values\":\"qsgd\",\"events\":300,\"nonfinite\":2,"
        "\"lost\":1.234568e-3}},\n"
        "{\"name\":\"send\",\"ph\":\"X\",\"pid\":3,\"tid\":0,\"ts\":3000000.000,\"dur\":1000000.000,\"args\":{"
        "\"sequence\":5,"
        "\"phase\":\"reduce-scatter\",\"step\":0,\"slice\":0,\"peer\":1,\"inter\":0,\"format\":\"dense\",\"dense_"
        "bytes\":100,"
        "\"wire_bytes\":50,\"values\":\"cast\"}},\n"
        "{\"name\":\"recv\",\"ph\":\"X\",\"pid\":3,\"tid\":1,\"ts\":3000000.000,\"dur\":1000000.000,\"args\":{"
        "\"sequence\":5,\"phase\":\"all-gather\",\"step\":2,\"slice\":0,\"peer\":1,\"inter\":0,\"dense_bytes\":100,"
        "\"wire_bytes\":50,\"blocks\":3,\"owners\":[4,7,6]}}]\n");
}

/* More than a buffer of the longest events there can be. */
Test(coll_trace, many)
{
    enum { N = 2500 };
    static const int zeros[TRACE_OWNERS + 1], far = INT32_MAX;
    struct trace_event e = {"reduce-scatter",
                            1e9,
                            1e10,
                            UINT64_MAX,
                            0,
                            INT32_MAX,
                            INT32_MAX,
                            INT32_MAX,
                            1,
                            PICI_HYBRID,
                            0.999999999,
                            1,
                            UINT64_MAX,
                            UINT64_MAX,
                            {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX},
                            "nodes-recursive",
                            1,
                            1e9,
                            "qsgd",
                            UINT64_MAX,
                            UINT64_MAX,
                            1e300,
                            TRACE_OWNERS + 1,
                            zeros,
                            &far};
    struct trace *t;
    size_t len;
    cr_assert_eq(pici_trace_open(&t, path, 3), PICI_OK);
    for (int i = 0; i < N; i++) {
        e.name = i % 100 ? "send" : "reduce-scatter";
        pici_trace_add(t, &e);
    }
    cr_assert_eq(pici_trace_close(t), PICI_OK);
    const char *text = contents(&len);
    cr_expect_eq(objects(text, len), 5 + N);
}

/* Whatever is in the file while it is written is whole events. */
Test(coll_trace, whole_at_any_time)
{
    struct trace *t;
    size_t len, last = 0;
    cr_assert_eq(pici_trace_open(&t, path, 3), PICI_OK);
    for (int i = 1; i <= 1000; i++) {
        pici_trace_add(t, i == 700 ? &whole : &sent);
        char *text = contents(&len);
        if (len == last)
            continue;
        last = len;
        text[len] = ']';
        int n = objects(text, len + 1);
        cr_assert_geq(n, 0);
        if (i == 700)
            cr_assert_eq(n, 5 + i, "a collective that has ended is in the file");
    }
    cr_assert_gt(last, 0);
    cr_assert_eq(pici_trace_close(t), PICI_OK);
    const char *text = contents(&len);
    cr_assert_eq(objects(text, len), 1005);
}

Test(coll_trace, empty)
{
    struct trace *t;
    size_t len;
    pici_trace_add(NULL, &sent);
    cr_assert_eq(pici_trace_close(NULL), PICI_OK);
    cr_assert_eq(pici_trace_open(&t, path, 3), PICI_OK);
    cr_assert_eq(pici_trace_close(t), PICI_OK);
    const char *text = contents(&len);
    cr_assert_eq(objects(text, len), 5);
}

Test(coll_trace, cannot_write)
{
    struct trace *t;
    char nowhere[128];
    snprintf(nowhere, sizeof nowhere, "%s/nowhere/trace", folder);
    cr_expect_eq(pici_trace_open(&t, nowhere, 0), PICI_E_IO);
    cr_expect_null(t);
    if (access("/dev/full", W_OK) != 0)
        return;
    cr_assert_eq(symlink("/dev/full", file), 0);
    cr_assert_eq(pici_trace_open(&t, path, 3), PICI_OK);
    for (int i = 0; i < 1000; i++)
        pici_trace_add(t, &sent);
    cr_expect_eq(pici_trace_close(t), PICI_E_IO);
    cr_assert_eq(pici_trace_open(&t, path, 3), PICI_OK);
    cr_expect_eq(pici_trace_close(t), PICI_E_IO);
}

static void *reduce_half_zero(void *comm)
{
    static const uint64_t n = 1 << 20;
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    float *x = calloc(n, sizeof *x);
    opts.algorithm = PICI_ALGO_RING;
    opts.format = PICI_BITMAP;
    for (uint64_t i = 0; i < n; i += 2)
        x[i] = 1;
    enum pici_status s = pici_all_reduce(x, x, n, PICI_F32, PICI_SUM, comm, &opts);
    free(x);
    return s ? comm : NULL;
}

static int occurrences(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text++)
        n++;
    return n;
}

/* A communicator that is not made, here for lack of its tune file, keeps no trace open. */
Test(coll_trace, no_communicator)
{
    struct pici_comm *comm;
    const int before = dup(STDERR_FILENO);
    cr_assert(before >= 0 && close(before) == 0);
    cr_assert_eq(setenv("PICI_TRACE", path, 1), 0);
    cr_assert_eq(setenv("PICI_TUNE", file, 1), 0);
    cr_expect_eq(pici_comm_threads(&comm, 1), PICI_E_IO);
    const int after = dup(STDERR_FILENO);
    cr_expect_eq(after, before, "%d, %d", after, before);
    close(after);
    cr_assert_eq(unsetenv("PICI_TRACE"), 0);
    cr_assert_eq(unsetenv("PICI_TUNE"), 0);
    snprintf(file, sizeof file, "%s.0", path);
}

/* Four ranks of a node, all with the same half of their elements. Reducing is dense, first by count, then by estimate.
 * Gathering is sparse, counted anew, then forwarded. */
Test(coll_trace, of_a_collective)
{
    enum { RANKS = 4, SLICES = 4 };
    struct pici_comm *comms[RANKS];
    pthread_t threads[RANKS];
    size_t len;
    cr_assert_eq(setenv("PICI_TRACE", path, 1), 0);
    cr_assert_eq(pici_comm_threads(comms, RANKS), PICI_OK);
    for (int i = 0; i < RANKS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, reduce_half_zero, comms[i]), 0);
    for (int i = 0; i < RANKS; i++) {
        void *failed;
        cr_assert_eq(pthread_join(threads[i], &failed), 0);
        cr_expect_null(failed);
    }
    for (int i = 0; i < RANKS; i++)
        pici_comm_free(comms[i]);
    const char *text = contents(&len);
    cr_expect_geq(objects(text, len), 5 + 2 * 6 * SLICES + 1);
    cr_expect_eq(occurrences(text, "{\"name\":\"send\""), 6 * SLICES);
    cr_expect_eq(occurrences(text, "{\"name\":\"recv\""), 6 * SLICES);
    cr_expect_eq(occurrences(text, "{\"name\":\"all-reduce\""), 1);
    /* known: of a slice's first sends in either phase, and of what came in encoded */
    cr_expect_eq(occurrences(text, "\"density\":0.500000000,\"extrapolated\":0,\"dense_bytes\":"), (2 + 3) * SLICES);
    cr_expect_eq(occurrences(text, "\"density\":0.750000000,\"extrapolated\":1"), SLICES);
    cr_expect_eq(occurrences(text, "\"density\":0.875000000,\"extrapolated\":1"), SLICES);
    for (int i = 0; i < RANKS; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s.%d", path, i);
        cr_expect_eq(unlink(name), 0);
    }
}

static void *gather_around(void *comm)
{
    static const int node_of[] = {0, 1, 1, 0};
    struct pici_neighbor_opts opts = PICI_NEIGHBOR_OPTS_INIT;
    struct pici_neighbor_plan *plan = NULL;
    const uint32_t send = 1;
    uint32_t recv[3];
    int others[3], n = 0;
    opts.route = PICI_ROUTE_HALVING;
    for (int i = 0; i < 4; i++)
        if (i != pici_comm_rank(comm))
            others[n++] = i;
    enum pici_status s = pici_comm_set_nodes(comm, node_of);
    s = s ? s : pici_neighbor_plan_create(&plan, comm, n, others, n, others, &opts);
    s = s ? s : pici_neighbor_all_gather(&send, recv, 1, PICI_U32, plan, NULL);
    pici_neighbor_plan_free(plan);
    return s ? comm : NULL;
}

/* Whether some event of this name has these words. */
static int has_event(const char *text, const char *name, const char *peer, const char *blocks)
{
    for (const char *line = text, *end; *line; line = *end ? end + 1 : end) {
        char event[512];
        end = line + strcspn(line, "\n");
        snprintf(event, sizeof event, "%.*s", (int)(end - line), line);
        if (strstr(event, name) && strstr(event, peer) && strstr(event, blocks))
            return 1;
    }
    return 0;
}

/* Ranks 0 and 3 share a node, 1 and 2 the other. Rank 3 hands its block to rank 2 and gets that one's; then ranks 0 and
 * 3 exchange what they have. */
Test(coll_trace, of_a_neighborhood)
{
    enum { RANKS = 4 };
    struct pici_comm *comms[RANKS];
    pthread_t threads[RANKS];
    size_t len;
    cr_assert_eq(setenv("PICI_TRACE", path, 1), 0);
    cr_assert_eq(pici_comm_threads(comms, RANKS), PICI_OK);
    for (int i = 0; i < RANKS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, gather_around, comms[i]), 0);
    for (int i = 0; i < RANKS; i++) {
        void *failed;
        cr_assert_eq(pthread_join(threads[i], &failed), 0);
        cr_expect_null(failed);
    }
    for (int i = 0; i < RANKS; i++)
        pici_comm_free(comms[i]);
    const char *text = contents(&len);
    cr_expect(has_event(text, "\"send\"", "\"step\":0,\"slice\":0,\"peer\":2,", "\"blocks\":1,\"owners\":[3]"));
    cr_expect(has_event(text, "\"recv\"", "\"step\":0,\"slice\":0,\"peer\":2,", "\"blocks\":1,\"owners\":[2]"));
    cr_expect(has_event(text, "\"send\"", "\"step\":1,\"slice\":0,\"peer\":0,", "\"blocks\":2,\"owners\":[3,2]"));
    cr_expect(has_event(text, "\"recv\"", "\"step\":1,\"slice\":0,\"peer\":0,", "\"blocks\":2,\"owners\":[0,1]"));
    cr_expect_eq(occurrences(text, "{\"name\":\"neighbor-all-gather\""), 1);
    for (int i = 0; i < RANKS; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s.%d", path, i);
        cr_expect_eq(unlink(name), 0);
    }
}
