/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "coll.h"
#include "common.h"

const char *const collective_name[COLLECTIVES] = {
    [PICI_ALL_GATHER] = "all_gather", [PICI_REDUCE_SCATTER] = "reduce_scatter", [PICI_ALL_REDUCE] = "all_reduce",
    [PICI_BROADCAST] = "broadcast",   [PICI_ALL_GATHERV] = "all_gatherv",       [PICI_ALL_TO_ALLV] = "all_to_all",
};
const char *const op_name[PICI_MAX + 1] = {"sum", "avg", "min", "max"};

static int records; /* in the JSON array so far */

/* The project's targets, for f32, 64 MiB a rank, uniform positions, sum, links of 200 Mbit/s: a fraction of the ideal
 * speedup, or a speedup. */
static const struct {
    enum pici_collective collective;
    double sparsity, of_ideal, speedup;
} targets[] = {
    {PICI_ALL_REDUCE, 0, 0, 0.97},     {PICI_ALL_REDUCE, 20, 0, 0.97},     {PICI_ALL_REDUCE, 50, 0, 0.97},
    {PICI_ALL_REDUCE, 90, 0.8, 0},     {PICI_ALL_REDUCE, 95, 0.8, 0},      {PICI_ALL_REDUCE, 99, 0.8, 0},
    {PICI_REDUCE_SCATTER, 0, 0, 0.97}, {PICI_REDUCE_SCATTER, 20, 0, 0.97}, {PICI_REDUCE_SCATTER, 50, 0, 0.97},
    {PICI_REDUCE_SCATTER, 99, 0.8, 0}, {PICI_ALL_GATHER, 0, 0, 0.97},      {PICI_ALL_GATHER, 20, 0, 0.97},
    {PICI_ALL_GATHER, 50, 0, 0.97},    {PICI_ALL_GATHER, 90, 0.8, 0},      {PICI_ALL_GATHER, 99, 0.6, 0},
};

/* The results of an entry. */
struct figures {
    double median, best, algbw, busbw; /* s, s, GB/s of dense bytes */
    double speedup;                    /* over the best dense */
    double ideal;                      /* dense wire bytes / wire bytes; 0: unknown */
    double of_ideal, least_speedup;    /* targets, or 0 */
    double sent, node; /* bytes that a rank sends on average, that leave the busiest node: % of the larger buffer; < 0:
                        * unknown */
    double predicted;  /* s; <= 0: is not */
    double copy;       /* GB/s of a GPU; 0: none was asked */
    double encode, decode; /* dense bytes a second, as a part of what the GPU copies */
};

static double bus_factor(enum pici_collective c, int ranks) /* as nccl-tests has it */
{
    return c == PICI_BROADCAST ? 1 : (c == PICI_ALL_REDUCE ? 2.0 : 1.0) * (ranks - 1) / ranks;
}

static double copy_rate(const struct settings *s, const struct point *p) /* GB/s */
{
    return (double)p->copied / median(p->copy, (size_t)s->reps) / 1e9;
}

static struct figures figures_of(const struct world *w, const struct settings *s, const struct point *p,
                                 const struct entry *e, double yardstick)
{
    struct figures f = {.median = median(e->time, (size_t)s->reps), .best = least(e->time, (size_t)s->reps)};
    f.algbw = (double)p->bytes / f.median / 1e9;
    f.busbw = f.algbw * bus_factor(p->collective, w->ranks);
    f.speedup = yardstick / f.median;
    f.ideal = e->wire_bytes > 0 ? e->dense_bytes / e->wire_bytes : 0;
    f.sent = e->wire_bytes > 0 ? 100 * e->wire_bytes / w->ranks / (double)p->bytes : -1;
    f.node = e->left ? 0 : -1;
    for (int i = 0; e->left && i < w->nodes; i++)
        if (100 * e->left[i] / (double)p->bytes > f.node)
            f.node = 100 * e->left[i] / (double)p->bytes;
    f.predicted = s->predictor ? predictor_seconds(s->predictor, w, s, p, e) : 0;
    if (p->copied)
        f.copy = copy_rate(s, p);
    if (p->copied && e->encode_s > 0 && e->decode_s > 0) {
        f.encode = e->dense_bytes / e->encode_s / 1e9 / f.copy;
        f.decode = e->dense_bytes / e->decode_s / 1e9 / f.copy;
    }
    if (s->targets && !e->dense && p->spread == SPREAD_UNIFORM && e->algorithm == PICI_ALGO_AUTO &&
        e->format == PICI_AUTO)
        for (size_t i = 0; i < COUNT_OF(targets); i++)
            if (targets[i].collective == p->collective && targets[i].sparsity == e->sparsity) {
                f.of_ideal = targets[i].of_ideal;
                f.least_speedup = targets[i].speedup;
            }
    return f;
}

/* "bitmap+coo" */
static void format_words(int format, char *words, size_t bytes)
{
    size_t at = 0;
    if (format < AUTO_AMONG)
        snprintf(words, bytes, "%s", pici_format_name((enum pici_format)format));
    for (unsigned f = PICI_DENSE; format >= AUTO_AMONG && f <= PICI_HYBRID; f++)
        if ((unsigned)(format - AUTO_AMONG) >> f & 1 && at < bytes)
            at +=
                (size_t)snprintf(words + at, bytes - at, "%s%s", at ? "+" : "", pici_format_name((enum pici_format)f));
}

static void entry_name(const struct world *w, const struct entry *e, char *name, size_t bytes)
{
    const int lossy = e->values && e->values->values.codec != PICI_VALUES_EXACT;
    char format[32] = "dense";
    if (!e->dense)
        format_words(e->format, format, sizeof format);
    if (e->peer >= 0)
        snprintf(name, bytes, "%s %s", w->peer[e->peer].call, w->peer[e->peer].algorithm);
    else
        snprintf(name, bytes, "pici %s %s%s%s", pici_algorithm_name(e->algorithm), format, lossy ? " " : "",
                 lossy ? e->values->name : "");
}

void print_head(const struct world *w, const struct settings *s)
{
    char line[256];
    if (s->json)
        fprintf(s->json, "[");
    if (!s->table)
        return;
    fprintf(s->table, "# pici %s, %s; %s; cpu: %s\n", pici_version(), COMPILER, w->library,
            cpu_model(line, sizeof line));
    fprintf(s->table, "# %d ranks on %d node%s; times: median of %d, of the slowest rank; GB/s of dense bytes\n",
            w->ranks, w->nodes, w->nodes > 1 ? "s" : "", s->reps);
    fprintf(s->table, "# speedup: over the fastest dense; ideal: dense wire bytes / wire bytes; wire: of all ranks\n");
    fprintf(s->table, "# sent: bytes that a rank sends on average%s; %% of size\n",
            w->nodes > 1 ? "; node: bytes that leave the busiest node" : "");
    if (s->codecs > 1 || s->codec[0].values.codec != PICI_VALUES_EXACT)
        fprintf(s->table, "# error: with a lossy codec: rms of what results are off / rms of the exact results\n");
    for (int i = 0; i < s->zeros.n; i++)
        if (s->zeros.v[i])
            fprintf(s->table, "# zeros with a minus: half of them are -0.0\n");
    if (w->device)
        fprintf(s->table,
                "# in the memory of %s; pici over %s%s\n"
                "# enc, dec: dense bytes / time encoding, and adding or decoding, in the last repetition;\n"
                "# as a part of what the GPU copies while those of all ranks do\n",
                w->device->name, w->device->transport, w->device->note);
}

void print_left_out(const struct world *w, const struct settings *s, const struct entry *e, double behind)
{
    char name[80];
    entry_name(w, e, name, sizeof name);
    if (s->table && behind > 0)
        fprintf(s->table, "# left out, %.1f times the best at %zu KiB: %s, order %s\n", behind, s->screen >> 10, name,
                w->order[e->order].name);
}

static void print_share(const struct settings *s, double percent)
{
    if (percent < 0)
        fprintf(s->table, " %8s", "-");
    else
        fprintf(s->table, " %8.3f", percent);
}

/* Seconds of a node's slowest rank: the median over repetitions. */
static double node_seconds(const struct world *w, const struct settings *s, const struct entry *e, int node)
{
    double time[MAX_REPS];
    for (int rep = 0; rep < s->reps; rep++)
        time[rep] = e->took[rep * w->nodes + node];
    return median(time, (size_t)s->reps);
}

static void print_nodes(const struct world *w, const struct settings *s, const struct point *p, const struct entry *e)
{
    for (int i = 0; i < w->nodes; i++) {
        int n = 0;
        fprintf(s->table, "#   node %d: ", i);
        if (e->left)
            fprintf(s->table, "%.3f MiB left (%.3f%%), ", e->left[i] / (1 << 20), 100 * e->left[i] / (double)p->bytes);
        fprintf(s->table, "%.1f us; ranks", node_seconds(w, s, e, i) * 1e6);
        for (int r = 0; r < w->ranks; r++)
            if (w->node_of[r] == i)
                fprintf(s->table, "%s%d", n++ ? "," : " ", r);
        fprintf(s->table, "\n");
    }
}

static void print_line(const struct world *w, const struct settings *s, const struct point *p, const struct entry *e,
                       const struct figures *f)
{
    char name[80], zeros[16] = "any", wrong[24] = "-";
    entry_name(w, e, name, sizeof name);
    if (!e->dense)
        snprintf(zeros, sizeof zeros, "%g%%%s", e->sparsity, e->negative ? "-" : "");
    if (e->wrong >= 0)
        snprintf(wrong, sizeof wrong, "%.0f", e->wrong);
    fprintf(s->table, "%12zu %12llu %7s %5s %6s  %-34s %6s %11.1f %8.4g %8.4g %7s", p->bytes,
            (unsigned long long)p->count, pici_dtype_name(s->dtype), reduces(p->collective) ? op_name[s->op] : "none",
            w->order[e->order].name, name, zeros, f->median * 1e6, f->algbw, f->busbw, wrong);
    if (e->wire_bytes > 0)
        fprintf(s->table, " %9.2f", e->wire_bytes / (1 << 20));
    else
        fprintf(s->table, " %9s", "-");
    print_share(s, f->sent);
    if (w->nodes > 1)
        print_share(s, f->node);
    if (s->predictor && f->predicted > 0)
        fprintf(s->table, " %11.1f %+6.1f%%", f->predicted * 1e6, 100 * (f->predicted / f->median - 1));
    else if (s->predictor)
        fprintf(s->table, " %11s %7s", "-", "-");
    fprintf(s->table, " %8.3f", f->speedup);
    if (!e->dense && f->ideal > 0)
        fprintf(s->table, " %8.2f %6.2f", f->ideal, f->speedup / f->ideal);
    else if (f->encode > 0)
        fprintf(s->table, " %8s %6s", "", "");
    if (f->encode > 0)
        fprintf(s->table, " %6.3f %6.3f", f->encode, f->decode);
    if (e->error >= 0)
        fprintf(s->table, "  error %.3g", e->error);
    if (f->of_ideal > 0)
        fprintf(s->table, "  >= %.2f of ideal%s", f->of_ideal, f->speedup < f->of_ideal * f->ideal ? " !" : "");
    if (f->least_speedup > 0)
        fprintf(s->table, "  >= %.2f%s", f->least_speedup, f->speedup < f->least_speedup ? " !" : "");
    fprintf(s->table, "\n");
}

static void print_record(const struct world *w, const struct settings *s, const struct point *p, const struct entry *e,
                         const struct figures *f)
{
    char name[80], format[32] = "dense";
    entry_name(w, e, name, sizeof name);
    if (e->peer < 0 && !e->dense)
        format_words(e->format, format, sizeof format);
    fprintf(
        s->json,
        "%s\n  {\"collective\":\"%s\",\"dtype\":\"%s\",\"op\":\"%s\",\"pattern\":\"%s\",\"bytes\":%zu,\"count\":%llu,"
        "\"ranks\":%d,\"nodes\":%d,\"order\":\"%s\",\"what\":\"%s\",\"dense\":%s,\"repetitions\":%d,"
        "\"median_s\":%.9g,\"best_s\":%.9g,\"algbw_gb_s\":%.6g,\"busbw_gb_s\":%.6g,\"speedup\":%.5g",
        records++ ? "," : "", collective_name[p->collective], pici_dtype_name(s->dtype), op_name[s->op],
        spread_name[p->spread], p->bytes, (unsigned long long)p->count, w->ranks, w->nodes, w->order[e->order].name,
        name, e->dense ? "true" : "false", s->reps, f->median, f->best, f->algbw, f->busbw, f->speedup);
    if (!e->dense)
        fprintf(s->json, ",\"sparsity\":%g,\"negative_zeros\":%s", e->sparsity, e->negative ? "true" : "false");
    if (e->peer < 0)
        fprintf(s->json,
                ",\"algorithm\":\"%s\",\"format\":\"%s\",\"wire_bytes\":%.0f,\"dense_wire_bytes\":%.0f,\"ideal\":%.5g,"
                "\"encode_s\":%.6g,\"decode_s\":%.6g,\"wait_s\":%.6g",
                pici_algorithm_name(e->algorithm), format, e->wire_bytes, e->dense_bytes, f->ideal, e->encode_s,
                e->decode_s, e->wait_s);
    if (e->events > 0)
        fprintf(
            s->json,
            ",\"values\":\"%s\",\"quantize_s\":%.6g,\"dequantize_s\":%.6g,\"events\":%.0f,\"lost\":%.6g,\"error\":%.6g",
            e->values->name, e->quantize_s, e->dequantize_s, e->events, e->lost, e->error);
    if (w->device)
        fprintf(s->json, ",\"device\":\"%s\",\"transport\":\"%s\",\"copy_gb_s\":%.6g", w->device->name,
                w->device->transport, f->copy);
    if (f->sent >= 0)
        fprintf(s->json, ",\"sent_percent\":%.5g", f->sent);
    if (f->node >= 0)
        fprintf(s->json, ",\"node_percent\":%.5g", f->node);
    for (int i = 0; e->took && i < w->nodes; i++) {
        fprintf(s->json, "%s{\"median_s\":%.9g", i ? "," : ",\"by_node\":[", node_seconds(w, s, e, i));
        if (e->left)
            fprintf(s->json, ",\"bytes_left\":%.0f", e->left[i]);
        fprintf(s->json, i + 1 < w->nodes ? "}" : "}]");
    }
    if (f->predicted > 0)
        fprintf(s->json, ",\"predicted_s\":%.6g", f->predicted);
    if (f->encode > 0)
        fprintf(s->json, ",\"encode_of_copy\":%.4g,\"decode_of_copy\":%.4g", f->encode, f->decode);
    if (e->wrong >= 0)
        fprintf(s->json, ",\"wrong\":%.0f", e->wrong);
    if (f->of_ideal > 0)
        fprintf(s->json, ",\"target_of_ideal\":%g", f->of_ideal);
    if (f->least_speedup > 0)
        fprintf(s->json, ",\"target_speedup\":%g", f->least_speedup);
    fprintf(s->json, "}");
}

void print_point(const struct world *w, const struct settings *s, const struct point *p)
{
    double yardstick = 0;
    for (int i = 0; i < p->entries; i++) {
        const struct entry *e = &p->entry[i];
        const double t = median(e->time, (size_t)s->reps);
        if (e->dense && !e->out && (yardstick == 0 || t < yardstick))
            yardstick = t;
    }
    if (s->table && p->first) {
        fprintf(s->table, "\n# %s, %s\n", collective_name[p->collective], spread_name[p->spread]);
        fprintf(s->table, "#%11s %12s %7s %5s %6s  %-34s %6s %11s %8s %8s %7s %9s %8s%s%s %8s %8s %6s%s%s\n", "size",
                "count", "type", "op", "order", "what", "zeros", "time", "algbw", "busbw", "#wrong", "wire", "sent",
                w->nodes > 1 ? "     node" : "", s->predictor ? "   predicted   error" : "", "speedup", "ideal",
                "ratio", w->device ? "    enc    dec" : "", s->targets ? "  target (! missed)" : "");
        fprintf(s->table, "#%11s %12s %7s %5s %6s  %-34s %6s %11s %8s %8s %7s %9s %8s%s\n", "(B)", "(elements)", "", "",
                "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(MiB)", "(%)", w->nodes > 1 ? "      (%)" : "");
    }
    if (s->table && p->copied)
        fprintf(s->table, "# %zu bytes: a GPU copies %.4g GB/s\n", p->copied, copy_rate(s, p));
    for (int i = 0; i < p->entries; i++) {
        const struct entry *e = &p->entry[i];
        if (e->out)
            continue;
        const struct figures f = figures_of(w, s, p, e, yardstick);
        if (f.predicted > 0)
            predictor_note(s->predictor, f.predicted, f.median);
        if (s->table)
            print_line(w, s, p, e, &f);
        if (s->table && e->took)
            print_nodes(w, s, p, e);
        if (s->json)
            print_record(w, s, p, e, &f);
    }
    if (s->table)
        fflush(s->table);
}

void print_foot(const struct settings *s, double wrong)
{
    if (s->table)
        fprintf(s->table, "\n# wrong elements: %.0f%s\n", wrong, s->check ? "" : " (not checked)");
    if (s->table && s->predictor)
        predictor_print(s->predictor, s->table);
    if (s->json)
        fprintf(s->json, "\n]\n");
}
