/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Making and freeing communicators, and what the environment says about them. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "coll/comm.h"
#include "transport/thread.h"

/* Why the last making failed. */
static _Thread_local char made[sizeof((struct pici_comm *)NULL)->error];

double pici_coll_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void pici_coll_note(struct pici_comm *comm, const char *format, ...)
{
    char *text = comm ? comm->error : made;
    if (comm && text[0])
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof made, format, args);
    va_end(args);
}

enum pici_status pici_coll_lost(struct pici_comm *comm, int peer, enum pici_status s)
{
    const struct pici_transport *t = &comm->transport;
    const char *why = t->error ? t->error(t->context) : "";
    pici_coll_note(comm, "exchange with rank %d: %s", peer, why[0] ? why : pici_strerror(s));
    return s;
}

/* ---- the environment */

static int read_word(const char *text, const char *const *words, int n)
{
    for (int i = 0; i < n; i++)
        if (words[i] && strcmp(text, words[i]) == 0)
            return i;
    return -1;
}

/* An integer in [low, high], whole. */
static int read_int(const char *text, long long low, long long high, long long *value)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && *value >= low && *value <= high;
}

static int read_threshold(const char *text, float *value)
{
    char *end;
    errno = 0;
    *value = strtof(text, &end);
    return errno == 0 && end != text && *end == '\0' && *value >= 0 && *value <= 1; /* not a NaN */
}

static int set_algorithm(struct coll_settings *s, const char *text)
{
    static const char *const words[] = {"auto", "ring", "recursive"};
    int i = read_word(text, words, 3);
    s->algorithm = (enum pici_algorithm)(i < 0 ? 0 : i);
    return i >= 0;
}

static int set_format(struct coll_settings *s, const char *text)
{
    static const enum pici_format formats[] = {PICI_DENSE, PICI_PICI, PICI_COO, PICI_HYBRID, PICI_AUTO};
    const char *words[5];
    for (int i = 0; i < 5; i++)
        words[i] = pici_format_name(formats[i]);
    int i = read_word(text, words, 5);
    s->format = i < 0 ? PICI_AUTO : formats[i];
    return i >= 0;
}

static int set_inter(struct coll_settings *s, const char *text)
{
    return read_threshold(text, &s->threshold[POLICY_INTER]);
}

static int set_intra(struct coll_settings *s, const char *text)
{
    return read_threshold(text, &s->threshold[POLICY_INTRA]);
}

static int set_ag(struct coll_settings *s, const char *text)
{
    return read_threshold(text, &s->threshold[POLICY_AG]);
}

static int set_timeout(struct coll_settings *s, const char *text)
{
    long long v;
    int ok = read_int(text, -1, 1 << 30, &v) && v != 0;
    s->timeout_ms = ok ? (int)v : 1;
    return ok;
}

static int set_checksum(struct coll_settings *s, const char *text)
{
    long long v;
    int ok = read_int(text, 0, 1, &v);
    s->checksum = (int)v;
    return ok;
}

static int set_slice(struct coll_settings *s, const char *text)
{
    long long v;
    int ok = read_int(text, 1, INT64_C(1) << 40, &v);
    s->slice_bytes = (uint64_t)v;
    return ok;
}

static int set_window(struct coll_settings *s, const char *text)
{
    long long v;
    int ok = read_int(text, 1, COLL_MAX_WINDOW, &v);
    s->window = (int)v;
    return ok;
}

static int read_bandwidth(const char *text, double *value)
{
    char *end;
    errno = 0;
    *value = strtod(text, &end);
    return errno == 0 && end != text && *end == '\0' && *value > 0 && *value <= 1e18; /* not a NaN */
}

static int set_inter_bandwidth(struct coll_settings *s, const char *text)
{
    return read_bandwidth(text, &s->bandwidth[POLICY_INTER]);
}

static int set_intra_bandwidth(struct coll_settings *s, const char *text)
{
    return read_bandwidth(text, &s->bandwidth[POLICY_INTRA]);
}

/* Names of formats, with a comma between two. */
static int set_formats(struct coll_settings *s, const char *text)
{
    s->formats = 0;
    for (;;) {
        const size_t len = strcspn(text, ",");
        unsigned f = PICI_DENSE;
        while (f <= PICI_HYBRID && (strlen(pici_format_name((enum pici_format)f)) != len ||
                                    strncmp(text, pici_format_name((enum pici_format)f), len) != 0))
            f++;
        if (f > PICI_HYBRID)
            return 0;
        s->formats |= 1u << f;
        if (!text[len])
            return 1;
        text += len + 1;
    }
}

static int set_trace(struct coll_settings *s, const char *text)
{
    s->trace = text;
    return text[0] != '\0';
}

static enum pici_status read_environment(struct coll_settings *s)
{
    static const struct {
        const char *name, *wants;
        int (*set)(struct coll_settings *, const char *);
    } variables[] = {
        {"PICI_ALGORITHM", "auto, ring or recursive", set_algorithm},
        {"PICI_FORMAT", "auto, dense, pici, coo or hybrid", set_format},
        {"PICI_INTER_THRESHOLD", "a number from 0 to 1", set_inter},
        {"PICI_INTRA_THRESHOLD", "a number from 0 to 1", set_intra},
        {"PICI_AG_THRESHOLD", "a number from 0 to 1", set_ag},
        {"PICI_TIMEOUT_MS", "milliseconds, or -1 for none", set_timeout},
        {"PICI_CHECKSUM", "0 or 1", set_checksum},
        {"PICI_SLICE_BYTES", "bytes, from 1 to 2^40", set_slice},
        {"PICI_WINDOW", "a number from 1 to 64", set_window},
        {"PICI_INTER_BANDWIDTH", "bytes per second", set_inter_bandwidth},
        {"PICI_INTRA_BANDWIDTH", "bytes per second", set_intra_bandwidth},
        {"PICI_AUTO_FORMATS", "a list of dense, pici, coo and hybrid, with commas", set_formats},
        {"PICI_TRACE", "the path of a file", set_trace},
    };
    *s = (struct coll_settings){
        .format = PICI_AUTO, .threshold = {-1, -1, -1}, .timeout_ms = 60000, .window = 4, .bandwidth = {1.25e8, 5e9}};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *text = getenv(variables[i].name);
        if (text && !variables[i].set(s, text)) {
            pici_coll_note(NULL, "environment variable %s is \"%.80s\", which is not %s", variables[i].name, text,
                           variables[i].wants);
            return PICI_E_ARG;
        }
    }
    return PICI_OK;
}

/* ---- communicators */

static void order_ranks(struct pici_comm *comm)
{
    pici_plan_order(comm->node_of, comm->ranks, comm->order);
    comm->nodes = 1;
    for (int i = 0; i < comm->ranks; i++) {
        if (comm->order[i] == comm->rank)
            comm->position = i;
        comm->nodes += i > 0 && comm->node_of[comm->order[i]] != comm->node_of[comm->order[i - 1]];
    }
}

static void release(struct pici_comm *comm)
{
    if (comm->scratch && !comm->leak)
        comm->engine->free(comm->scratch, comm->scratch_bytes);
    if (comm->other)
        comm->other->close(comm->other_self, comm->leak);
    if (!comm->leak)
        free(comm->agreements);
    free(comm->spare);
    free(comm->order);
    free(comm->node_of);
    free(comm);
}

static enum pici_status make(struct pici_comm *comm, const struct pici_transport *t)
{
    enum pici_status s = read_environment(&comm->settings);
    if (s)
        return s;
    comm->transport = *t;
    comm->engine = &pici_engine_host;
    comm->rank = t->rank;
    comm->ranks = t->ranks;
    comm->pid = getpid();
    comm->order = malloc((size_t)t->ranks * sizeof *comm->order);
    comm->node_of = calloc((size_t)t->ranks, sizeof *comm->node_of);
    comm->spare = malloc(sizeof *comm->spare);
    comm->agreements = malloc(2 * AGREE_BYTES * (size_t)pici_coll_agree_rounds(t->ranks) + 1);
    if (!comm->order || !comm->node_of || !comm->spare || !comm->agreements) {
        pici_coll_note(NULL, "no memory for a communicator of %d ranks", t->ranks);
        return PICI_E_NOMEM;
    }
    if (t->nodes && (s = t->nodes(t->context, comm->node_of))) {
        pici_coll_note(NULL, "the transport does not say which ranks share a node: %s",
                       t->error ? t->error(t->context) : pici_strerror(s));
        return s;
    }
    order_ranks(comm);
    if (comm->settings.trace && (s = pici_trace_open(&comm->trace, comm->settings.trace, comm->rank)))
        pici_coll_note(NULL, "PICI_TRACE: cannot create %.160s.%d", comm->settings.trace, comm->rank);
    comm->settings.trace = NULL; /* the environment's memory */
    return s;
}

enum pici_status pici_comm_transport(struct pici_comm **out, const struct pici_transport *t)
{
    made[0] = '\0';
    if (out)
        *out = NULL;
    if (!t) {
        pici_coll_note(NULL, "no transport");
        return PICI_E_ARG;
    }
    enum pici_status s = PICI_E_ARG;
    struct pici_comm *comm = NULL;
    if (!out)
        pici_coll_note(NULL, "no place for the communicator");
    else if (t->size != sizeof *t || !t->send || !t->recv || !t->test || !t->abandon || !t->close)
        pici_coll_note(NULL, "the transport's struct lacks a function, or was not made for this version");
    else if (t->ranks < 1 || t->ranks > COLL_MAX_RANKS || t->rank < 0 || t->rank >= t->ranks)
        pici_coll_note(NULL, "rank %d of %d", t->rank, t->ranks);
    else if (!(comm = calloc(1, sizeof *comm))) {
        pici_coll_note(NULL, "no memory for a communicator");
        s = PICI_E_NOMEM;
    } else if ((s = make(comm, t)) == PICI_OK) {
        *out = comm;
        return PICI_OK;
    }
    if (comm)
        release(comm);
    if (t->size == sizeof *t && t->close)
        t->close(t->context);
    return s;
}

enum pici_status pici_comm_set_nodes(struct pici_comm *comm, const int *node_of)
{
    if (!comm || !node_of)
        return PICI_E_ARG;
    if (comm->broken || comm->head || comm->pid != getpid())
        return PICI_E_BROKEN;
    memcpy(comm->node_of, node_of, (size_t)comm->ranks * sizeof *node_of);
    order_ranks(comm);
    return PICI_OK;
}

enum pici_status pici_comm_engine(struct pici_comm *comm, const struct pici_engine *engine, void *self)
{
    if (comm->broken || comm->head || comm->pid != getpid())
        return PICI_E_BROKEN;
    if (comm->other)
        comm->other->close(comm->other_self, 0);
    comm->other = engine;
    comm->other_self = self;
    const struct pici_mover mover = {.self = self, .owns = engine->holds, .move = engine->move};
    pici_transport_threads_mover(&comm->transport, &mover);
    return PICI_OK;
}

const char *pici_comm_error(const struct pici_comm *comm)
{
    return comm ? comm->error : made;
}

void pici_comm_failed(const char *why)
{
    pici_coll_note(NULL, "%s", why ? why : "");
}

int pici_comm_rank(const struct pici_comm *comm)
{
    return comm ? comm->rank : -1;
}

int pici_comm_size(const struct pici_comm *comm)
{
    return comm ? comm->ranks : 0;
}

enum pici_status pici_comm_grow(struct pici_comm *comm, size_t bytes)
{
    uint8_t *more = comm->engine->alloc(bytes);
    if (!more)
        return PICI_E_NOMEM;
    if (comm->scratch)
        comm->engine->free(comm->scratch, comm->scratch_bytes);
    comm->scratch = more;
    comm->scratch_bytes = bytes;
    return PICI_OK;
}

enum pici_status pici_comm_reserve(struct pici_comm *comm, size_t bytes)
{
    if (!comm)
        return PICI_E_ARG;
    if (comm->broken || comm->pid != getpid())
        return PICI_E_BROKEN;
    if (bytes <= comm->scratch_bytes)
        return PICI_OK;
    if (comm->head)
        return PICI_E_BROKEN; /* a collective works in it */
    return pici_comm_grow(comm, bytes);
}

void pici_comm_free(struct pici_comm *comm)
{
    if (!comm)
        return;
    if (comm->pid != getpid())
        return; /* a child's copy: memory, threads and connections are the parent's business */
    if (comm->head)
        pici_coll_break(comm, PICI_E_BROKEN, PICI_E_PEER);
    (void)pici_trace_close(comm->trace); /* there is nobody left to tell */
    comm->transport.close(comm->transport.context);
    release(comm);
}
