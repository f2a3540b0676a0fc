/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Settings: the environment, the caller's tuning, and the pages that show both tables. */
#define _POSIX_C_SOURCE 200809L
#include <criterion/criterion.h>

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll/request.h"
#include "tests/util/coll.h"

/* ---- docs/reference/settings.md has the rows of the library's tables ---- */

static char *read_page(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    char *text = calloc(1, 1 << 18);
    cr_assert_not_null(text);
    const size_t n = fread(text, 1, (1 << 18) - 1, f);
    cr_assert(n > 0 && n < (1 << 18) - 1 && !ferror(f));
    fclose(f);
    return text;
}

static int has_line(const char *page, const char *line)
{
    const size_t n = strlen(line);
    for (const char *at = page; (at = strstr(at, line)); at++)
        if ((at == page || at[-1] == '\n') && (at[n] == '\n' || !at[n]))
            return 1;
    return 0;
}

Test(coll_settings, tables_in_docs)
{
    char *page = read_page("docs/reference/settings.md"), line[512], values[256];
    if (!page) {
        fprintf(stderr, "skip: no docs/reference/settings.md below the current folder\n");
        return;
    }
    for (const struct setting *s = pici_settings; s->variable; s++) {
        if (s->type == SETTING_ALGORITHM)
            snprintf(values, sizeof values, "auto, or an [algorithm](algorithms.md)"); /* coll_schedule has that table
            */
        else
            pici_setting_values(s, values, sizeof values);
        snprintf(line, sizeof line, s->option ? "| `%s` | `%s` | %s | %s |" : "| `%s` |%s | %s | %s |", s->variable,
                 s->option ? s->option : "", values, s->usual);
        cr_expect(has_line(page, line), "docs/reference/settings.md lacks this line:\n%s", line);
    }
    free(page);
}

/* ---- the environment: values end where they belong ---- */

Test(coll_settings, environment)
{
    struct coll_settings s;
    char why[256];
    cr_assert_eq(pici_settings_read(&s, why, sizeof why), PICI_OK);
    cr_expect(s.algorithm == PICI_ALGO_AUTO && s.format == PICI_AUTO && s.timeout_ms == 60000 && s.window == 4 &&
              s.slice_bytes == 0 && s.checksum == 0 && s.history == 1 && s.formats == 0 && !s.trace && !s.tune &&
              !s.tune_verbose);
    cr_expect(s.rank == -1 && s.ranks == 0 && !s.rendezvous && !s.token && !s.interface && !s.ports[0] && !s.ports[1]);
    cr_expect(s.threshold.reduce[POLICY_INTER] < 0 && s.threshold.reduce[POLICY_INTRA] < 0 && s.threshold.gather < 0 &&
              s.stream_threshold < 0);
    cr_expect(s.pack == PICI_PACKING_AUTO && s.balance == PICI_BALANCE_AUTO && !s.known);
    cr_expect(s.bandwidth[POLICY_INTER] == 1.25e8 && s.bandwidth[POLICY_INTRA] == 5e9);
    static const char *const all[][2] = {
        {"PICI_ALGORITHM", "split"},
        {"PICI_FORMAT", "coo"},
        {"PICI_AUTO_FORMATS", "pici,hybrid"},
        {"PICI_PACK", "planes"},
        {"PICI_BALANCE", "off"},
        {"PICI_INTER_BANDWIDTH", "25e6"},
        {"PICI_INTRA_BANDWIDTH", "1e9"},
        {"PICI_INTER_THRESHOLD", "0.25"},
        {"PICI_INTRA_THRESHOLD", "0.125"},
        {"PICI_AG_THRESHOLD", "1"},
        {"PICI_STREAM_THRESHOLD", "0.75"},
        {"PICI_TIMEOUT_MS", "-1"},
        {"PICI_CHECKSUM", "1"},
        {"PICI_WINDOW", "64"},
        {"PICI_SLICE_BYTES", "1099511627776"},
        {"PICI_NATIVE", "1"},
        {"PICI_TUNE", ""},
        {"PICI_TUNE_VERBOSE", "1"},
        {"PICI_TUNE_HISTORY", "0"},
        {"PICI_TRACE", "somewhere"},
        {"PICI_RANK", "3"},
        {"PICI_RANKS", "1048576"},
        {"PICI_RENDEZVOUS", "[::1]:29500"},
        {"PICI_TOKEN", ""},
        {"PICI_SOCKET_IFNAME", "eth0"},
        {"PICI_SOCKET_PORTS", "1-65535"},
        {"PICI_SOCKET_SHARED", "1"},
        {"PICI_SOCKET_STREAMS", "64"},
        {"PICI_SOCKET_TLS", "1"},
        {"PICI_SOCKET_TLS_CERT", "rank.pem"},
        {"PICI_SOCKET_TLS_KEY", "rank.key"},
        {"PICI_SOCKET_TLS_CA", "ca.pem"},
    };
    size_t n = 0;
    for (const struct setting *row = pici_settings; row->variable; row++)
        n++;
    cr_expect_eq(n, sizeof all / sizeof *all, "this test has every variable");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        setenv(all[i][0], all[i][1], 1);
    cr_assert_eq(pici_settings_read(&s, why, sizeof why), PICI_OK);
    cr_expect(s.algorithm == PICI_ALGO_SPLIT && s.format == PICI_COO &&
              s.formats == (1u << PICI_BITMAP | 1u << PICI_HYBRID));
    cr_expect(s.pack == PICI_PACKING_PLANES && s.balance == PICI_BALANCE_OFF && s.known == 3);
    cr_expect(s.bandwidth[POLICY_INTER] == 25e6 && s.bandwidth[POLICY_INTRA] == 1e9);
    cr_expect(s.threshold.reduce[POLICY_INTER] == 0.25F && s.threshold.reduce[POLICY_INTRA] == 0.125F &&
              s.threshold.gather == 1);
    cr_expect(s.timeout_ms == -1 && s.checksum == 1 && s.history == 0 && s.window == 64 &&
              s.slice_bytes == UINT64_C(1) << 40);
    unsetenv("PICI_NATIVE");
    setenv("PICI_VENDOR", "1", 1); /* the name until version 0.3 */
    cr_expect(pici_settings_read(&s, why, sizeof why) == PICI_OK && s.native == 1);
    cr_expect_eq(s.native, 1);
    cr_expect_str_eq(s.trace, "somewhere");
    cr_expect(s.tls == 1 && !strcmp(s.tls_certificate, "rank.pem") && !strcmp(s.tls_key, "rank.key") &&
              !strcmp(s.tls_authority, "ca.pem"));
    cr_expect(s.tune && !s.tune[0] && s.tune_verbose == 1);
    cr_expect(s.rank == 3 && s.ranks == 1 << 20 && s.ports[0] == 1 && s.ports[1] == 65535 && s.token && !s.token[0]);
    cr_expect_str_eq(s.rendezvous, "[::1]:29500");
    cr_expect_str_eq(s.interface, "eth0");
    static const char *const ranges[] = {
        "",     "1",       "1-",    "-2",    "0-5",           "7-65536",
        "9-8",  "1-2-3",   "x-5",   "5-x",   "1 - 2",         "99999999999999-5",
        "1--2", "0x10-99", "1-2.5", "-1-10", "100000-200000", "1-99999999999999999999"};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        setenv("PICI_SOCKET_PORTS", ranges[i], 1);
        cr_expect_eq(pici_settings_read(&s, why, sizeof why), PICI_E_ARG, "%s", ranges[i]);
    }
    setenv("PICI_SOCKET_PORTS", "29500-29500", 1);
    /* numbers are those of tune files: strtod would read these, and in some locales a comma as the decimal point */
    static const char *const numbers[] = {"0x1p-1", "nan", " 0.5", "+0.5", "0,5", "-0", ""};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        setenv("PICI_AG_THRESHOLD", numbers[i], 1);
        cr_expect_eq(pici_settings_read(&s, why, sizeof why), PICI_E_ARG, "\"%s\"", numbers[i]);
    }
    setenv("PICI_AG_THRESHOLD", "1", 1);
    setenv("PICI_FORMAT", "zip", 1);
    cr_expect_eq(pici_settings_read(&s, why, sizeof why), PICI_E_ARG);
    cr_expect_str_eq(why,
                     "environment variable PICI_FORMAT is \"zip\", which is not auto, dense, bitmap, coo or hybrid");
}

/* Where the decimal point is a comma, settings still have a point. */
Test(coll_settings, locale)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8",  "fr_FR.UTF-8",
                                        "nl_NL.UTF-8", "ru_RU.UTF-8", "de_DE"};
    struct coll_settings s;
    char why[256];
    size_t i = 0;
    while (i < sizeof names / sizeof *names && !setlocale(LC_ALL, names[i]))
        i++;
    if (i == sizeof names / sizeof *names) {
        fprintf(stderr, "skip: no locale whose decimal point is a comma\n");
        return;
    }
    setenv("PICI_AG_THRESHOLD", "0.5", 1);
    cr_assert_eq(pici_settings_read(&s, why, sizeof why), PICI_OK);
    cr_expect_eq(s.threshold.gather, 0.5F);
}

/* ---- the caller ---- */

Test(coll_settings, tune_refuses)
{
    static const struct pici_tune none = PICI_TUNE_INIT;
    struct pici_comm *comm[1];
    cr_assert_eq(pici_comm_threads(comm, 1), PICI_OK);
    const struct coll_settings before = comm[0]->settings;
    struct {
        struct pici_tune t;
        unsigned char later[8];
    } later = {none, {0}};
    struct pici_tune t = none;
    cr_expect_eq(pici_comm_tune(NULL, &t), PICI_E_ARG);
    cr_expect_eq(pici_comm_tune(comm[0], NULL), PICI_E_ARG);
#define REFUSED(member, value, status)                                                                                 \
    t = none;                                                                                                          \
    t.window = 7;                                                                                                      \
    t.member = value;                                                                                                  \
    cr_expect_eq(pici_comm_tune(comm[0], &t), status, "%s", #member)
    REFUSED(size, sizeof t - 1, PICI_E_ARG);
    REFUSED(size, 0, PICI_E_ARG);
    REFUSED(algorithm, (enum pici_algorithm)(coll_algorithms() + 1), PICI_E_UNSUPPORTED);
    REFUSED(format, (enum pici_format)4, PICI_E_UNSUPPORTED);
    REFUSED(formats, 1u << (PICI_HYBRID + 1), PICI_E_UNSUPPORTED);
    REFUSED(window, 65, PICI_E_ARG);
    REFUSED(window, -1, PICI_E_ARG);
    REFUSED(inter_threshold, NAN, PICI_E_ARG);
    REFUSED(intra_threshold, NAN, PICI_E_ARG);
    REFUSED(ag_threshold, NAN, PICI_E_ARG);
    REFUSED(inter_bandwidth, NAN, PICI_E_ARG);
    REFUSED(inter_bandwidth, INFINITY, PICI_E_ARG);
    REFUSED(intra_bandwidth, -1, PICI_E_ARG);
    cr_expect_arr_eq(&comm[0]->settings, &before, sizeof before, "nothing was changed");
    later.t.size = sizeof later;
    later.t.window = 5;
    cr_expect_eq(pici_comm_tune(comm[0], &later.t), PICI_OK);
    cr_expect_eq(comm[0]->settings.window, 5);
    later.later[7] = 1;
    cr_expect_eq(pici_comm_tune(comm[0], &later.t), PICI_E_UNSUPPORTED);
    pici_comm_free(comm[0]);
}

/* Two ranks, tuned, and what their calls do; options override the tuning. */
struct team {
    struct pici_comm *comm[2];
    struct pici_coll_stats tuned[2], overridden[2];
    enum pici_status status[2], busy[2];
};

static void rank(void *context, int r)
{
    struct team *t = context;
    static float send[20000];
    float *recv = calloc(20000, sizeof *recv);
    struct pici_tune tune = PICI_TUNE_INIT;
    struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
    struct pici_request *q;
    tune.algorithm = PICI_ALGO_SPLIT;
    tune.format = PICI_COO;
    tune.inter_threshold = tune.intra_threshold = tune.ag_threshold = 0;
    tune.slice_bytes = 1;
    t->status[r] = pici_comm_tune(t->comm[r], &tune);
    t->tuned[r].size = t->overridden[r].size = sizeof *t->tuned;
    o.stats = &t->tuned[r];
    if (!t->status[r])
        t->status[r] = pici_all_reduce(send, recv, 20000, PICI_F32, PICI_SUM, t->comm[r], &o);
    o.stats = &t->overridden[r];
    o.format = PICI_BITMAP;
    if (!t->status[r])
        t->status[r] = pici_all_reduce_start(send, recv, 20000, PICI_F32, PICI_SUM, t->comm[r], &o, &q);
    t->busy[r] = pici_comm_tune(t->comm[r], &tune);
    if (!t->status[r])
        t->status[r] = pici_wait(&q);
    free(recv);
}

Test(coll_settings, tune)
{
    struct team t = {.status = {PICI_OK}};
    cr_assert_eq(pici_comm_threads(t.comm, 2), PICI_OK);
    coll_threads(2, rank, &t);
    for (int r = 0; r < 2; r++) {
        cr_expect_eq(t.status[r], PICI_OK, "%s", pici_comm_error(t.comm[r]));
        cr_expect_eq(t.busy[r], PICI_E_BROKEN, "not while a request is in flight");
        cr_expect(t.tuned[r].sends[PICI_COO] > 2 && !t.tuned[r].sends[PICI_BITMAP] && !t.tuned[r].sends[PICI_DENSE]);
        cr_expect(t.overridden[r].sends[PICI_BITMAP] == t.tuned[r].sends[PICI_COO] && !t.overridden[r].sends[PICI_COO]);
        pici_comm_free(t.comm[r]);
    }
}

/* Ranks that are tuned to other algorithms are told so. */
static void differ(void *context, int r)
{
    struct team *t = context;
    float send[10] = {0}, recv[10];
    struct pici_tune tune = PICI_TUNE_INIT;
    tune.algorithm = r ? PICI_ALGO_RING : PICI_ALGO_SPLIT;
    t->status[r] = pici_comm_tune(t->comm[r], &tune);
    if (!t->status[r])
        t->status[r] = pici_all_reduce(send, recv, 10, PICI_F32, PICI_SUM, t->comm[r], NULL);
}

Test(coll_settings, tuned_differently)
{
    struct team t = {.status = {PICI_OK}};
    cr_assert_eq(pici_comm_threads(t.comm, 2), PICI_OK);
    coll_threads(2, differ, &t);
    for (int r = 0; r < 2; r++) {
        cr_expect_eq(t.status[r], PICI_E_PEER);
        cr_expect(strstr(pici_comm_error(t.comm[r]), "algorithm"), "%s", pici_comm_error(t.comm[r]));
        pici_comm_free(t.comm[r]);
    }
}
