/* SPDX-License-Identifier: BSD-3-Clause
 *
 * bench_coll --stream: all-reduce of indices and values beside all-reduce of the same data in dense buffers. The
 * streams are made beforehand. Calls take turns. With --balance, turns alternate between evenly cut and balanced
 * segments. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "coll.h"
#include "common.h"
#include "pici/stream.h"

enum { MOST_CALLS = 4 };

/* All others are compared with the first. */
static const struct call {
    const char *name;
    int is_dense;
    enum pici_stream_form want;
    enum pici_balance balance;
} usual_calls[MOST_CALLS] = {{"dense", 1, 0, PICI_BALANCE_UNCHANGED},
                             {"stream", 0, PICI_STREAM_SPARSE, PICI_BALANCE_UNCHANGED},
                             {"stream to dense", 0, PICI_STREAM_DENSE, PICI_BALANCE_UNCHANGED},
                             {NULL, 0, 0, PICI_BALANCE_UNCHANGED}},
  balance_calls[MOST_CALLS] = {{"dense", 1, 0, PICI_BALANCE_OFF},
                               {"dense balanced", 1, 0, PICI_BALANCE_ON},
                               {"stream", 0, PICI_STREAM_SPARSE, PICI_BALANCE_OFF},
                               {"stream balanced", 0, PICI_STREAM_SPARSE, PICI_BALANCE_ON}};

struct data {
    void *send, *recv;
    uint64_t count;
    struct pici_stream in;
    uint32_t *indices;
    uint8_t *values;
    void *kept[2]; /* arrays for the results of successive calls */
    size_t kept_bytes[2];
    int next;
    void *dense;
};

/* Reuse memory, as a training loop does. */
static void *keep(void *context, size_t bytes)
{
    struct data *d = context;
    const int i = d->next++ % 2;
    if (bytes > d->kept_bytes[i]) {
        free(d->kept[i]);
        d->kept[i] = malloc(bytes);
        d->kept_bytes[i] = bytes;
    }
    return d->kept[i];
}

static void gather_rows(struct data *d, enum pici_dtype dtype)
{
    const size_t width = pici_dtype_width(dtype);
    const uint8_t *elements = d->send, zeros[8] = {0};
    struct pici_stream in = PICI_STREAM_INIT;
    for (uint64_t i = 0; i < d->count; i++)
        in.nnz += memcmp(elements + i * width, zeros, width) != 0;
    d->indices = malloc(in.nnz * sizeof *d->indices + 1);
    d->values = malloc(in.nnz * width + 1);
    if (!d->indices || !d->values)
        die("out of memory");
    for (uint64_t i = 0, at = 0; i < d->count; i++)
        if (memcmp(elements + i * width, zeros, width) != 0) {
            d->indices[at] = (uint32_t)i;
            memcpy(d->values + at++ * width, elements + i * width, width);
        }
    in.n = d->count;
    in.indices = d->indices;
    in.values = d->values;
    in.index_width = sizeof *d->indices;
    d->in = in;
}

/* Returns nonzero if a result differs from the dense call's. */
static double differs(const struct data *d, const struct pici_stream_out *out, const uint8_t *want, size_t width)
{
    uint64_t wrong = 0, row = 0;
    const uint8_t zeros[8] = {0};
    if (out->form == PICI_STREAM_DENSE)
        return memcmp(out->dense, want, d->count * width) != 0;
    for (uint64_t i = 0; i < d->count; i++) {
        const int here = row < out->nnz && ((const uint32_t *)out->indices)[row] == i;
        const uint8_t *value = here ? (const uint8_t *)out->values + row * width : zeros;
        wrong += memcmp(want + i * width, value, width) != 0;
        row += (uint64_t)here;
    }
    return (double)wrong + (double)(out->nnz - row);
}

/* sent: bytes of the busiest rank, and of all ranks. */
static double measure(struct world *w, const struct settings *s, struct data *d, const struct call *call, double *wrong,
                      double sent[2])
{
    struct pici_stream_out out = PICI_STREAM_OUT_INIT;
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    struct pici_coll_stats stats = PICI_COLL_STATS_INIT;
    struct pici_comm *comm = w->order[0].comm;
    enum pici_status status = PICI_OK;
    opts.stats = &stats;
    opts.algorithm = (enum pici_algorithm)s->algorithms.v[0];
    double wire = 0;
    opts.balance = call->balance;
    w->barrier(w);
    double took = seconds(CLOCK_MONOTONIC);
    for (int i = 0; i < s->calls && !status; i++) {
        if (call->is_dense) {
            status = pici_all_reduce(d->send, d->recv, d->count, s->dtype, s->op, comm, &opts);
        } else {
            d->next = 0;
            out.allocate = keep;
            out.context = d;
            out.dense = d->dense;
            out.want = call->want;
            status = pici_all_reduce_stream(&d->in, &out, s->dtype, s->op, comm, &opts);
        }
        wire += (double)stats.wire_bytes;
    }
    took = (seconds(CLOCK_MONOTONIC) - took) / s->calls;
    if (status)
        die(pici_comm_error(comm));
    if (!call->is_dense && wrong)
        *wrong += differs(d, &out, d->recv, pici_dtype_width(s->dtype));
    pici_stream_free(&out);
    sent[0] = sent[1] = wire / s->calls;
    w->max(w, &took, 1);
    w->max(w, &sent[0], 1);
    w->sum(w, &sent[1], 1);
    return took;
}

double run_streams(struct world *w, const struct settings *s)
{
    const size_t width = pici_dtype_width(s->dtype);
    const struct call *calls = s->balance ? balance_calls : usual_calls;
    double wrong = 0;
    if (w->rank == 0 && s->table)
        fprintf(s->table,
                "all-reduce of streams, %d ranks over %s, %s %s; medians of %d, seconds; bytes sent by the busiest "
                "rank, and how many times the mean that is\n%-12s %12s  %-9s %-16s %12s %8s %12s %6s\n",
                w->ranks, w->library, pici_dtype_name(s->dtype), op_name[s->op], s->reps, "elements", "sparsity, %",
                "pattern", "call", "seconds", "times", "bytes", "mean");
    for (size_t bytes = s->first; bytes <= s->last; bytes = (size_t)((double)bytes * s->factor))
        for (int spread = 0; spread < s->spreads.n; spread++)
            for (int i = 0; i < s->sparsities; i++) {
                struct data d = {.count = bytes / width};
                double of[MOST_CALLS][MAX_REPS], sent[MOST_CALLS][2] = {{0}};
                const struct source source = {.dtype = s->dtype,
                                              .op = s->op,
                                              .spread = (enum spread)s->spreads.v[spread],
                                              .density = 1 - s->sparsity[i] / 100,
                                              .ranks = w->ranks,
                                              .n = d.count};
                d.send = malloc(bytes);
                d.recv = malloc(bytes);
                d.dense = malloc(bytes);
                if (!d.send || !d.recv || !d.dense)
                    die("out of memory");
                source_fill(&source, d.send, w->rank, d.count);
                gather_rows(&d, s->dtype);
                for (int rep = -s->warmup; rep < s->reps; rep++)
                    for (int call = 0; call < MOST_CALLS && calls[call].name; call++) {
                        const double took =
                            measure(w, s, &d, &calls[call], s->check && rep + 1 == s->reps ? &wrong : NULL, sent[call]);
                        if (rep >= 0)
                            of[call][rep] = took;
                    }
                for (int call = 0; call < MOST_CALLS && calls[call].name && w->rank == 0; call++) {
                    const double middle = median(of[call], (size_t)s->reps),
                                 times = median(of[0], (size_t)s->reps) / middle,
                                 mean = sent[call][1] > 0 ? sent[call][0] * w->ranks / sent[call][1] : 1;
                    if (s->table)
                        fprintf(s->table, "%-12llu %12g  %-9s %-16s %12.6f %8.2f %12.0f %6.2f\n",
                                (unsigned long long)d.count, s->sparsity[i], spread_name[source.spread],
                                calls[call].name, middle, times, sent[call][0], mean);
                    if (s->json)
                        fprintf(s->json,
                                "{\"bench\":\"stream\",\"ranks\":%d,\"library\":\"%s\",\"dtype\":\"%s\",\"count\":%llu,"
                                "\"sparsity\":%g,\"pattern\":\"%s\",\"call\":\"%s\",\"median_s\":%.9g,\"times\":%.4g,"
                                "\"bytes\":%.0f,\"of_mean\":%.4g}\n",
                                w->ranks, w->library, pici_dtype_name(s->dtype), (unsigned long long)d.count,
                                s->sparsity[i], spread_name[source.spread], calls[call].name, middle, times,
                                sent[call][0], mean);
                }
                free(d.send);
                free(d.recv);
                free(d.dense);
                free(d.kept[0]);
                free(d.kept[1]);
                free(d.indices);
                free(d.values);
            }
    w->sum(w, &wrong, 1);
    if (w->rank == 0 && s->table)
        fprintf(s->table, "%s\n",
                wrong > 0 ? "WRONG: results differ from the dense call's" : "results are the dense call's");
    return wrong;
}
