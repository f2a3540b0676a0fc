/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Data-parallel training, four times: with dense collectives, with sparse ones in the format that the library or the
 * environment chooses, and with the formats bitmap and hybrid. Prints the loss curves, which agree bit for bit, and the
 * cost of each. With --values it compares runs that differ: the whole gradient, its largest elements, and lossy codecs.
 * It prints each run's cost and accuracy, and draws the curves.
 *     train --help
 * Ranks are threads, or the processes of pici-run, over sockets (pici-run -n 4 train); if built with PICI_EXAMPLE_MPI
 * (make mpi-examples), they are the processes of mpirun. Exits with status 1 if the runs disagree. */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <pici/topk.h>
#ifdef PICI_EXAMPLE_MPI
#include <pici/mpi.h>
#else
#include <pici/socket.h>
#endif

#include "ascent.h"
#include "curves.h"
#include "model.h"
#include "train_job.h"

enum { REPORTS = 10, ROWS = REPORTS + 1, EVALUATED_AT_ONCE = 64 };

/* A row of the table: the quality of the weights before this step, and what the step sent. */
struct row {
    int step;
    double held_loss, held_right; /* loss and accuracy on the held-out examples */
    uint64_t own, sum;            /* nonzeros of rank 0's gradient, and of the sum */
    uint64_t sent;                /* bytes sent so far by all ranks */
};

enum { DENSE, SPARSE, BITMAP, HYBRID }; /* numbers of runs, unless these are lossy */

/* A training run. */
struct run {
    double *loss; /* [steps] mean loss of each step's batch over all ranks */
    struct row row[ROWS];
    int rows;
    double held_loss, held_right; /* after the last step */
    uint64_t sends[4];            /* blocks sent by all ranks, by format */
    double seconds, seconds_coll; /* of the slowest rank: in all, and in collectives */
    double gap;                   /* coordinate ascent: the objective is at most so much above the least one */
    uint64_t digest;              /* hash of the weights */
};

static const char *ranks_are = "threads";

struct rank {
    const struct job *job;
    struct pici_comm *comm;
    pthread_t thread;
    struct model_place place;
    float *w, *g;   /* [n] weights; the gradient, which becomes the update */
    float *squares; /* [n, or share] sum of the squares of all gradients so far */
    float *pending; /* [n] the part of the gradients that was not sent yet */
    struct ascent ascent;
    struct run run[MAX_RUNS];
    double coll_s; /* seconds in collectives */
    struct pici_coll_stats total;
    char why[512]; /* message of a failure; "" if there is none */
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- one rank */

/* Store the message of a failure. Returns false. */
static bool failed(struct rank *r, const char *what, enum pici_status s)
{
    snprintf(r->why, sizeof r->why, "%s: %s (%s)", what, pici_strerror(s), pici_comm_error(r->comm));
    return false;
}

/* The worst status of all ranks. A rank that cannot continue reports it here, before the others wait for it. */
static enum pici_status agree(struct pici_comm *comm, enum pici_status own)
{
    int32_t worst = own; /* errors are negative */
    const enum pici_status s = pici_all_reduce(&worst, &worst, 1, PICI_I32, PICI_MIN, comm, NULL);
    return s != PICI_OK ? s : (enum pici_status)worst;
}

/* y z of an example whose label y is 1 or -1. */
static double margin(const struct job *j, size_t row, double z)
{
    return j->data.label[row] == j->upper ? z : -z;
}

/* Add the gradient of this rank's part of a batch to g [n]. Returns the mean loss. */
static double learn(struct rank *r, enum loss of, int step, float *g)
{
    const struct job *const j = r->job;
    const size_t batch = (size_t)j->o.batch, ranks = (size_t)j->o.ranks, rank = (size_t)pici_comm_rank(r->comm);
    double loss = 0;
    for (size_t i = 0; i < batch; i++) {
        const size_t row = j->order[(((size_t)step * ranks + rank) * batch + i) % j->taught];
        const double yz = margin(j, row, model_score(&j->model, &r->place, r->w, &j->data, row));
        loss += loss_at(of, yz);
        model_backward(&j->model, &r->place, r->w, g, (float)(-margin(j, row, loss_pull(of, yz)) / (double)batch));
    }
    return loss / (double)batch;
}

/* Keep the largest elements of g + pending in g. The rest stays pending for later steps ("error feedback"). */
static bool keep_largest(struct rank *r)
{
    struct pici_topk_opts opts = PICI_TOPK_OPTS_INIT;
    uint64_t kept;
    opts.select = PICI_SELECT_GLOBAL;
    opts.density = r->job->o.keep / 100;
    const enum pici_status s = pici_topk(r->g, &kept, r->pending, NULL, r->g, r->job->model.weights, PICI_F32, &opts);
    return s == PICI_OK || failed(r, "selecting the largest elements", s);
}

/* Send what was rounded off before, too. */
static void add_pending(struct rank *r)
{
    for (size_t i = 0; i < r->job->n; i++) {
        r->g[i] += r->pending[i];
        r->pending[i] = 0;
    }
}

/* Adagrad, in place: g becomes the update, which is subtracted from the weights. +0 stays +0; -0 has a bit set and
 * would be sent as a nonzero. */
static void update(float *g, float *squares, size_t n, float rate)
{
    for (size_t i = 0; i < n; i++) {
        squares[i] += g[i] * g[i];
        g[i] = rate * g[i] / (sqrtf(squares[i]) + 1e-8f);
    }
}

static uint64_t nonzeros(const float *x, size_t n)
{
    uint64_t nnz = 0;
    for (size_t i = 0; i < n; i++)
        nnz += x[i] != 0;
    return nnz;
}

/* Loss and accuracy on the held-out examples; each rank evaluates its part of them. Meanwhile it progresses *request,
 * and then waits for it. */
static bool evaluate(struct rank *r, enum loss of, double *loss, double *right, struct pici_request **request)
{
    const struct job *const j = r->job;
    const size_t ranks = (size_t)j->o.ranks;
    double sums[2] = {0, 0}, begin;
    size_t n = 0;
    enum pici_status s = PICI_OK;
    for (size_t i = (size_t)pici_comm_rank(r->comm); i < j->held && s == PICI_OK; i += ranks) {
        const size_t row = j->order[j->taught + i];
        const double z = model_score(&j->model, &r->place, r->w, &j->data, row);
        sums[0] += loss_at(of, margin(j, row, z));
        sums[1] += (z > 0) == (j->data.label[row] == j->upper);
        if (++n % EVALUATED_AT_ONCE == 0) {
            int done;
            begin = seconds();
            s = pici_test(request, &done);
            r->coll_s += seconds() - begin;
        }
    }
    begin = seconds();
    if (s == PICI_OK)
        s = pici_wait(request);
    r->coll_s += seconds() - begin;
    if (s == PICI_OK)
        s = pici_all_reduce(sums, sums, 2, PICI_F64, PICI_SUM, r->comm, NULL);
    *loss = sums[0] / (double)j->held;
    *right = sums[1] / (double)j->held;
    return s == PICI_OK || failed(r, "evaluating", s);
}

static void add_stats(struct pici_coll_stats *to, const struct pici_coll_stats *s)
{
    to->wire_bytes += s->wire_bytes;
    for (int f = 0; f < 4; f++)
        to->sends[f] += s->sends[f];
}

static bool take_loss(struct rank *r, struct run *run, int step, double loss)
{
    run->loss[step] = loss;
    if (isfinite(loss)) /* the same on all ranks */
        return true;
    snprintf(r->why, sizeof r->why, "step %d: the loss is not finite: lower --rate, or scale the data", step);
    return false;
}

/* One step of coordinate ascent. */
static bool climb_step(struct rank *r, struct run *run, const struct contestant *c, struct row *row, int step)
{
    struct pici_coll_stats stats = PICI_COLL_STATS_INIT;
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    double losses[2] = {0, 0};
    uint64_t own, sum;
    if (row && !evaluate(r, c->loss, &row->held_loss, &row->held_right, &(struct pici_request *){NULL}))
        return false;
    opts.stats = &stats;
    if (c->dense)
        opts.ag_threshold = 1;
    const enum pici_status s = ascent_step(&r->ascent, r->job, c, r->comm, &r->place, r->w, step, &opts, losses, &own,
                                           &sum, seconds, &r->coll_s);
    if (s != PICI_OK)
        return failed(r, "all-gather of coordinates", s);
    add_stats(&r->total, &stats);
    if (row) {
        row->step = step;
        row->own = own;
        row->sum = sum;
        row->sent = r->total.wire_bytes;
    }
    return take_loss(r, run, step, losses[0] / losses[1]);
}

/* One step: average the gradients of all ranks, compute the update, and apply it on every rank. Either every rank gets
 * the whole average and computes the whole update; or, with --shard, each computes its share, and the updates are
 * gathered. */
static bool train_step(struct rank *r, struct run *run, int step)
{
    const struct job *const j = r->job;
    const size_t first = j->o.shard ? (size_t)pici_comm_rank(r->comm) * j->share : 0;
    const size_t n = j->o.shard ? j->share : j->n;
    const struct contestant *const c = &j->o.run[run - r->run];
    const bool rounds = c->values.codec != PICI_VALUES_EXACT;
    struct row *const row = step % ((j->o.steps + REPORTS - 1) / REPORTS) == 0 ? &run->row[run->rows++] : NULL;
    if (c->coordinates)
        return climb_step(r, run, c, row, step);

    memset(r->g, 0, j->n * sizeof *r->g);
    double loss = learn(r, c->loss, step, r->g);
    if (c->topk && !keep_largest(r))
        return false;
    if (rounds && !c->topk)
        add_pending(r);
    if (row)
        row->own = nonzeros(r->g, j->n);

    struct pici_coll_stats stats = PICI_COLL_STATS_INIT, gather = PICI_COLL_STATS_INIT;
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    opts.stats = &stats;
    struct pici_values values = c->values;
    values.residual = r->pending; /* the call adds rounding errors to it */
    opts.values = rounds ? &values : NULL;
    opts.format = c->format;
    if (c->dense)
        opts.inter_threshold = opts.intra_threshold = opts.ag_threshold = 1;
    struct pici_request *sum = NULL, *mean = NULL;
    double begin = seconds();
    enum pici_status s =
        j->o.shard ? pici_reduce_scatter_start(r->g, r->g + first, n, PICI_F32, PICI_AVG, r->comm, &opts, &sum)
                   : pici_all_reduce_start(r->g, r->g, n, PICI_F32, PICI_AVG, r->comm, &opts, &sum);
    if (s == PICI_OK)
        s = pici_all_reduce_start(&loss, &loss, 1, PICI_F64, PICI_AVG, r->comm, NULL, &mean);
    r->coll_s += seconds() - begin;

    /* The weights do not change until the sum has arrived: evaluate them meanwhile. */
    if (row && s == PICI_OK && !evaluate(r, c->loss, &row->held_loss, &row->held_right, &sum)) {
        pici_wait(&mean);
        return false;
    }
    begin = seconds();
    const enum pici_status of_sum = pici_wait(&sum), of_mean = pici_wait(&mean); /* both, since waiting frees them */
    if (s == PICI_OK)
        s = of_sum != PICI_OK ? of_sum : of_mean;
    r->coll_s += seconds() - begin;
    if (s != PICI_OK)
        return failed(r, j->o.shard ? "reduce-scatter" : "all-reduce", s);
    if (!take_loss(r, run, step, loss))
        return false;
    update(r->g + first, r->squares, n, (float)j->o.rate);
    if (j->o.shard) {
        opts.stats = &gather;
        begin = seconds();
        s = pici_all_gather(r->g + first, r->g, n, PICI_F32, r->comm, &opts);
        r->coll_s += seconds() - begin;
        if (s != PICI_OK)
            return failed(r, "all-gather", s);
    }
    for (size_t i = 0; i < j->n; i++)
        r->w[i] -= r->g[i];

    add_stats(&r->total, &stats);
    add_stats(&r->total, &gather);
    if (row) {
        row->step = step;
        row->sum = nonzeros(r->g, j->n);
        row->sent = r->total.wire_bytes;
    }
    return true;
}

/* A hash of the weights (FNV-1a, by words). False if one of them is not finite. */
static bool digest(const float *w, size_t n, uint64_t *hash)
{
    *hash = UINT64_C(0xcbf29ce484222325);
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &w[i], sizeof u);
        *hash = (*hash ^ u) * UINT64_C(0x100000001b3);
        finite &= isfinite(w[i]) != 0;
    }
    return finite;
}

/* Add up the cost of a run over all ranks, and check that all ranks have the same weights. */
static bool conclude(struct rank *r, struct run *run)
{
    uint64_t sums[4 + ROWS] = {0}, low, high;
    if (!digest(r->w, r->job->n, &run->digest)) {
        snprintf(r->why, sizeof r->why, "a weight is not finite: lower --rate, or scale the data");
        return false;
    }
    low = high = run->digest;
    memcpy(sums, r->total.sends, sizeof run->sends);
    for (int i = 0; i < run->rows; i++)
        sums[4 + i] = run->row[i].sent;
    double times[2] = {run->seconds, r->coll_s};
    enum pici_status s = pici_all_reduce(sums, sums, 4 + ROWS, PICI_U64, PICI_SUM, r->comm, NULL);
    if (s == PICI_OK)
        s = pici_all_reduce(times, times, 2, PICI_F64, PICI_MAX, r->comm, NULL);
    if (s == PICI_OK)
        s = pici_all_reduce(&low, &low, 1, PICI_U64, PICI_MIN, r->comm, NULL);
    if (s == PICI_OK)
        s = pici_all_reduce(&high, &high, 1, PICI_U64, PICI_MAX, r->comm, NULL);
    if (s != PICI_OK)
        return failed(r, "summing up", s);
    if (low != high) {
        snprintf(r->why, sizeof r->why, "ranks end with different weights");
        return false;
    }
    memcpy(run->sends, sums, sizeof run->sends);
    for (int i = 0; i < run->rows; i++)
        run->row[i].sent = sums[4 + i];
    run->seconds = times[0];
    run->seconds_coll = times[1];
    return true;
}

static bool train(struct rank *r, struct run *run)
{
    const struct job *const j = r->job;
    const struct contestant *const c = &j->o.run[run - r->run];
    uint64_t state = j->o.seed;
    for (size_t i = 0; i < j->n; i++) /* for a network, small random weights */
        r->w[i] = j->o.network && i < j->model.weights ? (float)(0.2 * uniform(&state) - 0.1) : 0;
    memset(r->squares, 0, (j->o.shard ? j->share : j->n) * sizeof *r->squares);
    if (r->pending)
        memset(r->pending, 0, j->n * sizeof *r->pending);
    if (c->coordinates)
        ascent_begin(&r->ascent, j);
    memset(&r->total, 0, sizeof r->total);
    r->coll_s = 0;

    const double begin = seconds();
    for (int step = 0; step < j->o.steps; step++)
        if (!train_step(r, run, step))
            return false;
    run->seconds = seconds() - begin;
    run->row[run->rows++] = (struct row){.step = j->o.steps, .sent = r->total.wire_bytes};
    if (!evaluate(r, c->loss, &run->held_loss, &run->held_right, &(struct pici_request *){NULL}) || !conclude(r, run))
        return false;
    if (!c->coordinates)
        return true;
    const enum pici_status s = ascent_gap(&r->ascent, j, c->loss, r->comm, &r->place, r->w, &run->gap);
    return s == PICI_OK || failed(r, "the duality gap", s);
}

static void rank_free(struct rank *r)
{
    model_place_free(&r->place);
    free(r->w);
    free(r->g);
    free(r->squares);
    free(r->pending);
    ascent_free(&r->ascent);
    for (int k = 0; k < MAX_RUNS; k++)
        free(r->run[k].loss);
    pici_comm_free(r->comm);
}

/* All training runs of one rank. On a failure r->why has the message. The caller calls rank_free in any case. */
static void *run_rank(void *argument)
{
    struct rank *const r = argument;
    const struct job *const j = r->job;
    const bool waits = j->o.keep < 100 || j->o.lossy;
    r->w = calloc(j->n, sizeof *r->w);
    r->g = calloc(j->n, sizeof *r->g);
    r->squares = calloc(j->o.shard ? j->share : j->n, sizeof *r->squares);
    r->pending = waits ? calloc(j->n, sizeof *r->pending) : NULL;
    bool memory = model_place_init(&r->place, &j->model) && r->w && r->g && r->squares && (!waits || r->pending);
    memory = (!j->o.descent || ascent_init(&r->ascent, j)) && memory;
    for (int k = 0; k < j->o.runs; k++)
        memory = (r->run[k].loss = calloc((size_t)j->o.steps, sizeof(double))) && memory;
    const enum pici_status s = agree(r->comm, memory ? PICI_OK : PICI_E_NOMEM);
    if (s != PICI_OK)
        failed(r, "beginning", s);
    else
        for (int k = 0; k < j->o.runs && train(r, &r->run[k]); k++)
            ;
    pici_comm_free(r->comm); /* now, so that no rank waits for one that failed alone */
    r->comm = NULL;
    return NULL;
}

/* ---- output */

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

static bool same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static const char *model_name(const struct options *o)
{
    if (o->network)
        return "Network";
    if (o->descent)
        return "Linear models";
    return o->loss == LOSS_HINGE ? "Support vector machine" : "Logistic regression";
}

static void print_heading(const struct job *j)
{
    const struct options *const o = &j->o;
    printf("%s: %zu examples of %u features, %.1f of them not zero.\n", o->path ? o->path : "Generated data",
           j->data.rows, (unsigned)j->data.features, (double)j->data.start[j->data.rows] / (double)j->data.rows);
    if (o->network)
        printf("A network of %d hidden units: %zu weights, %.2f MiB.\n", o->hidden, j->model.weights, mib(4 * j->n));
    else
        printf("%s on products of up to %d features: %zu weights, %.2f MiB.\n", model_name(o), o->order,
               j->model.weights, mib(4 * j->n));
    printf("%d ranks (%s), %d examples a rank and step. ", o->ranks, ranks_are, o->batch);
    if (o->descent) {
        printf("Gradients: all-reduced.\nCoordinates of examples: those that changed are all-gathered.\n\n");
        return;
    }
    if (o->lossy)
        printf("topk: of a gradient, the largest %g%%.\nWhat is not sent or is rounded off waits.\n", o->keep);
    else if (o->keep < 100)
        printf("A rank sends the largest %g%% of its gradient; the rest waits.\n", o->keep);
    else
        printf("A rank sends its whole gradient.\n");
    printf("%s.\n\n", o->shard ? "Sharded: reduce-scatter of gradients, all-gather of updates"
                               : "All-reduce of gradients; every rank makes the whole update");
}

/* Whether two runs computed the same. */
static bool same_run(const struct job *j, const struct run *a, const struct run *b)
{
    bool same = a->digest == b->digest && same_bits(a->held_loss, b->held_loss) &&
                same_bits(a->held_right, b->held_right) && a->rows == b->rows;
    for (int i = 0; i < j->o.steps; i++)
        same &= same_bits(a->loss[i], b->loss[i]);
    for (int i = 0; i + 1 < a->rows && same; i++)
        same &= same_bits(a->row[i].held_loss, b->row[i].held_loss) &&
                same_bits(a->row[i].held_right, b->row[i].held_right);
    return same;
}

/* Print rank 0's tables of all runs. Returns true if the runs agree. */
static bool print_table(const struct job *j, const struct run *run)
{
    const struct run *const dense = &run[DENSE], *const sparse = &run[SPARSE];
    const struct run *const bitmap = &run[BITMAP], *const hybrid = &run[HYBRID];
    const bool same = same_run(j, dense, sparse) && same_run(j, dense, bitmap) && same_run(j, dense, hybrid);

    printf("         loss of the batch     right of  not zero, %%       MiB sent so far\n"
           "  step     dense      sparse   held-out  rank 0   sum     dense  bitmap  hybrid\n");
    for (int i = 0; i + 1 < dense->rows; i++) {
        const struct row *const d = &dense->row[i], *const s = &sparse->row[i];
        const double a = dense->loss[d->step], b = sparse->loss[s->step];
        printf("  %4d  %.7f %c %.7f  %6.2f%%  %5.2f %6.2f  %8.2f %7.2f %7.2f\n", d->step + 1, a,
               same_bits(a, b) ? '=' : '#', b, 100 * d->held_right, 100 * (double)s->own / (double)j->model.weights,
               100 * (double)s->sum / (double)j->model.weights, mib(d->sent), mib(bitmap->row[i].sent),
               mib(hybrid->row[i].sent));
    }
    printf("\n           held-out         MiB   %% of          blocks sent           seconds\n"
           "           loss  right     sent  dense  dense bitmap  coo hybrid    coll.   all\n");
    const uint64_t whole = dense->row[dense->rows - 1].sent;
    for (int k = 0; k < j->o.runs; k++) {
        const struct run *const x = &run[k];
        const uint64_t sent = x->row[x->rows - 1].sent;
        printf("  %-6s %.5f %6.2f%% %7.2f %6.1f %6llu %5llu %5llu %6llu  %6.2f %6.2f\n", j->o.run[k].name, x->held_loss,
               100 * x->held_right, mib(sent), whole ? 100 * (double)sent / (double)whole : 100.0,
               (unsigned long long)x->sends[PICI_DENSE], (unsigned long long)x->sends[PICI_BITMAP],
               (unsigned long long)x->sends[PICI_COO], (unsigned long long)x->sends[PICI_HYBRID], x->seconds_coll,
               x->seconds);
    }
    printf("\n  %s: %d losses, and weights of %d ranks", same ? "The same bit for bit" : "NOT THE SAME", j->o.steps,
           j->o.ranks);
    for (int k = 0; k < (same ? 1 : j->o.runs); k++)
        printf("%s %016llx", k ? "," : "", (unsigned long long)run[k].digest);
    printf("\n");
    return same;
}

/* The curves of all runs. False: the file cannot be written. */
static bool draw(const struct job *j, const struct run *run)
{
    struct curve curve[MAX_RUNS];
    char note[MAX_RUNS][64], title[64];
    for (int k = 0; k < j->o.runs; k++) {
        const struct run *const x = &run[k];
        snprintf(note[k], sizeof note[k], "%.2f%% right, %.2f MiB", 100 * x->held_right, mib(x->row[x->rows - 1].sent));
        curve[k] = (struct curve){j->o.run[k].name, note[k], x->loss};
    }
    snprintf(title, sizeof title, "%s on %d ranks: loss of the batch", model_name(&j->o), j->o.ranks);
    if (!j->o.curves || curves_write(j->o.curves, title, curve, j->o.runs, j->o.steps)) /* the same in every run */
        return true;
    complain("%s: %s", j->o.curves, strerror(errno));
    return false;
}

/* Print rank 0's table of runs that differ. */
static bool print_lossy(const struct job *j, const struct run *run)
{
    printf("                   held-out             MiB    %% of     seconds\n"
           "                   loss   right        sent   dense   coll.    all\n");
    const uint64_t whole = run[DENSE].row[run[DENSE].rows - 1].sent;
    for (int k = 0; k < j->o.runs; k++) {
        const struct run *const x = &run[k];
        const uint64_t sent = x->row[x->rows - 1].sent;
        printf("  %-12s %.5f %6.2f%% %11.2f %7.2f  %6.2f %6.2f\n", j->o.run[k].name, x->held_loss, 100 * x->held_right,
               mib(sent), whole ? 100 * (double)sent / (double)whole : 100.0, x->seconds_coll, x->seconds);
    }
    printf("\n  All %d ranks have the same weights after each run.\n", j->o.ranks);
    return draw(j, run);
}

/* Print rank 0's table of gradient descent and coordinate ascent. Returns true if dense and stream agree. */
static bool print_descent(const struct job *j, const struct run *run)
{
    bool same = true;
    printf("                        held-out    duality      MiB     seconds\n"
           "                      loss   right      gap     sent   coll.    all\n");
    for (int k = 0; k < j->o.runs; k++) {
        const struct run *const x = &run[k];
        char gap[16] = "";
        if (j->o.run[k].coordinates)
            snprintf(gap, sizeof gap, "%.5f", x->gap);
        printf("  %-17s %.5f %6.2f%%  %7s %8.2f  %6.2f %6.2f\n", j->o.run[k].name, x->held_loss, 100 * x->held_right,
               gap, mib(x->row[x->rows - 1].sent), x->seconds_coll, x->seconds);
        for (int other = 0; other < k; other++) /* the same loss, gathered as another vector */
            if (j->o.run[k].coordinates && j->o.run[other].coordinates && j->o.run[k].loss == j->o.run[other].loss)
                same &= same_run(j, x, &run[other]) && same_bits(x->gap, run[other].gap);
    }
    printf("\n  %s: coordinates gathered dense, and as streams\n", same ? "The same bit for bit" : "NOT THE SAME");
    return draw(j, run) && same;
}

/* ---- ranks */

static bool write_weights(const char *path, const float *w, size_t n)
{
    FILE *const f = fopen(path, "wb");
    const bool written = f && fwrite(w, sizeof *w, n, f) == n;
    const bool good = f && fclose(f) == 0 && written;
    if (!good)
        complain("%s: %s", path, strerror(errno));
    return good;
}

/* Print the results of rank 0. Returns the exit status. */
static int report(const struct job *j, const struct rank *r)
{
    print_heading(j);
    bool same;
    if (j->o.descent)
        same = print_descent(j, r->run);
    else
        same = j->o.lossy ? print_lossy(j, r->run) : print_table(j, r->run);
    if (fflush(stdout) || ferror(stdout)) {
        complain("standard output: %s", strerror(errno));
        return 1;
    }
    if (j->o.weights && !write_weights(j->o.weights, r->w, j->model.weights))
        return 1;
    return !same;
}

/* Make a communicator among processes. */
static enum pici_status connect_processes(struct pici_comm **comm)
{
#ifdef PICI_EXAMPLE_MPI
    ranks_are = "MPI";
    MPI_Comm_rank(MPI_COMM_WORLD, &own_rank);
    return pici_comm_mpi(comm, MPI_COMM_WORLD);
#else
    ranks_are = "sockets";
    return pici_comm_rendezvous(comm, NULL, 0, 0, NULL); /* where and with whom: the environment says */
#endif
}

/* This process is one rank. */
static int run_process(int argc, char **argv)
{
    struct options o = {0};
    struct job j = {0};
    struct rank r = {.job = &j};
    enum pici_status s = connect_processes(&r.comm);
    if (s != PICI_OK) {
        complain("%s (%s)", pici_strerror(s), pici_comm_error(NULL));
        return 1;
    }
    own_rank = pici_comm_rank(r.comm);
    o.ranks = pici_comm_size(r.comm);
    int status = parse_options(argc, argv, &o);
    if (status >= 0) {
        pici_comm_free(r.comm);
        return status;
    }
    status = 1;
    s = agree(r.comm, job_init(&j, &o) ? PICI_OK : PICI_E_IO);
    if (s == PICI_OK) {
        run_rank(&r);
        if (r.why[0])
            complain("%s", r.why);
        else
            status = own_rank == 0 ? report(&j, &r) : 0;
    }
    rank_free(&r);
    job_free(&j);
    return status;
}

#ifdef PICI_EXAMPLE_MPI

int main(int argc, char **argv)
{
    if (MPI_Init(&argc, &argv) != MPI_SUCCESS)
        return 1;
    const int status = run_process(argc, argv);
    MPI_Finalize();
    return status;
}

#else

int main(int argc, char **argv)
{
    struct options o = {0};
    struct job j;
    if (getenv("PICI_RANKS"))
        return run_process(argc, argv);
    int status = parse_options(argc, argv, &o);
    if (status >= 0)
        return status;
    const int ranks = o.ranks;
    struct rank *const r = calloc((size_t)ranks, sizeof *r);
    struct pici_comm *comms[MAX_RANKS];
    if (!r) {
        complain("no memory");
        return 1;
    }
    status = 1;
    if (!job_init(&j, &o))
        goto end;
    const enum pici_status s = pici_comm_threads(comms, ranks);
    if (s != PICI_OK) {
        complain("%s (%s)", pici_strerror(s), pici_comm_error(NULL));
        goto end;
    }
    int started = 0;
    for (int i = 0; i < ranks; i++)
        r[i] = (struct rank){.job = &j, .comm = comms[i]};
    while (started < ranks && pthread_create(&r[started].thread, NULL, run_rank, &r[started]) == 0)
        started++;
    for (int i = started; i < ranks; i++) { /* so that the others see that it is gone */
        pici_comm_free(r[i].comm);
        r[i].comm = NULL;
    }
    const char *why = NULL; /* of the first rank that failed */
    for (int i = 0; i < started; i++) {
        pthread_join(r[i].thread, NULL);
        if (!why && r[i].why[0])
            why = r[i].why;
    }
    if (started < ranks)
        complain("no thread for rank %d", started);
    else if (why)
        complain("%s", why);
    else
        status = report(&j, r);
    for (int i = 0; i < ranks; i++)
        rank_free(&r[i]);
end:
    job_free(&j);
    free(r);
    return status;
}

#endif
