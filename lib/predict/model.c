/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Seconds of a call: for each step what a slice's message costs on each link and in the codec, and how the slices in
 * flight overlap. */
#include "predict/model.h"

#include "format.h"
#include "schedule/registry.h"

enum {
    PREFIX = 32,             /* bytes of a message besides its blocks (formats/message.md) */
    SLICES_WORTH = 64 << 10, /* as in layout.c: dense bytes below which a message is not cut further */
    SAMPLES = 12             /* of steps that differ in contributions: every one, then every twelfth part more */
};

const double pici_model_points[MODEL_POINTS] = {0.01, 0.05, 0.1, 0.2, 1};

const struct model_call pici_model_call = {.kind = PICI_ALL_REDUCE,
                                           .dtype = PICI_F32,
                                           .ranks = 1,
                                           .correlation = 1,
                                           .window = 4,
                                           .slice_bytes = 1 << 20,
                                           .format = PICI_AUTO,
                                           .formats = ~0u,
                                           .threshold = {{-1, -1}, -1},
                                           .bandwidth = {1.25e8, 5e9},
                                           .cost_scale = 1};

const char *pici_model_name(enum pici_collective kind)
{
    static const char *const names[] = {
        [PICI_ALL_GATHER] = "all_gather", [PICI_REDUCE_SCATTER] = "reduce_scatter", [PICI_ALL_REDUCE] = "all_reduce"};
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : NULL;
}

/* ---- density and codec */

double pici_model_density(double d, double k, double c)
{
    const double x = 1 + (k - 1) * c;
    const uint64_t whole = (uint64_t)x;
    double none = 1, power = 1 - d;
    for (uint64_t e = whole; e; e >>= 1, power *= power)
        if (e & 1)
            none *= power;
    return 1 - none * (1 - d * (x - (double)whole));
}

double pici_model_codec(const struct model_machine *m, enum pici_format format, enum model_work work,
                        enum pici_dtype dtype, double n, double density)
{
    const struct model_codec *t = &m->codec[work == MODEL_COUNT ? PICI_DENSE : format][work];
    const double wide = (double)pici_dtype_width(dtype) / 4, narrow = wide < 1 ? wide : 1;
    double before = 0, at = 0;
    int i = 0;
    for (; i < MODEL_POINTS - 1 && density > pici_model_points[i]; i++) {
        before = t->more[i];
        at = pici_model_points[i];
    }
    const double along = (density - at) / (pici_model_points[i] - at);
    return 1e-9 * n / TILE * (wide * t->empty + narrow * (before + along * (t->more[i] - before)));
}

/* ---- a step of one slice */

struct run {
    const struct model_machine *machine;
    const struct model_call *call;
    int dense, window;
    double elements, slices; /* of the call; of a segment */
    double codec_scale;      /* ranks that share a core */
    struct policy_history history[POLICY_LINKS];
    struct { /* blocks that are gathered: as their owner made them */
        enum pici_format format;
        int counted;
    } gathered;
};

/* What a slice costs in a step. */
struct cost {
    double alpha;
    double wire;          /* the link that takes longest */
    double encode, taken; /* counting and encoding; adding or decoding */
};

/* The link whose bandwidth and threshold hold for a message: as in send.c. */
static enum policy_link link_of(const struct model_call *c, enum policy_link link, int gather)
{
    return gather ? (c->nodes && c->nodes->nodes > 1 ? POLICY_INTER : POLICY_INTRA) : link;
}

/* The format of a message by the policy. *counted: its nonzeros are counted first. n, nnz: of a block. */
static enum pici_format choose(struct run *r, enum policy_link link, int gather, int contributions, double density,
                               uint64_t n, uint64_t nnz, int *counted)
{
    const struct model_call *c = r->call;
    const struct policy_auto by = {c->formats, c->bandwidth[link_of(c, link, gather)], gather, c->cost_scale};
    const float threshold = pici_policy_threshold(&c->threshold, c->format, link, gather);
    struct policy_history *h = &r->history[link];
    double predicted;
    *counted = 0;
    if (r->dense || c->format == PICI_DENSE)
        return PICI_DENSE;
    if (threshold <= 0 && c->format != PICI_AUTO)
        return c->format;
    *counted = pici_policy_count(h, threshold, contributions, &predicted);
    const int dense = !*counted || pici_policy_dense(1 - density, threshold);
    pici_policy_sent(h, *counted ? density : predicted, contributions, dense);
    pici_policy_received(h, dense);
    return dense ? PICI_DENSE : pici_policy_format(c->format, c->dtype, &n, &nnz, 1, &by);
}

/* Messages over one class of links. */
static void add_link(struct cost *cost, struct run *r, const struct traffic_step *s, enum policy_link link,
                     int contributions)
{
    const struct model_machine *m = r->machine;
    const struct model_call *c = r->call;
    const struct traffic_load *t = link == POLICY_INTER ? &s->between : &s->inside;
    const int gather = s->phase == PHASE_GATHER, sums = c->kind == PICI_ALL_GATHER ? 1 : contributions;
    if (t->segments <= 0)
        return;
    const double density = pici_model_density(c->density, sums, c->correlation);
    const double elements = t->share * r->elements / r->slices, taken = s->take_share * r->elements / r->slices;
    const uint64_t n = (uint64_t)(elements / t->segments + 0.5), nnz = (uint64_t)((double)n * density + 0.5);
    enum pici_format format = r->gathered.format;
    int counted = 0;
    if (s->encode) {
        format = choose(r, link, gather, contributions, density, n, nnz, &counted);
        r->gathered.format = format;
    }
    const double bytes = t->segments * (double)pici_policy_bytes(format, c->dtype, &n, &nnz, 1) + t->messages * PREFIX;
    double encode = counted ? pici_model_codec(m, PICI_DENSE, MODEL_COUNT, c->dtype, elements, density) : 0;
    if (s->encode)
        encode += pici_model_codec(m, format, MODEL_ENCODE, c->dtype, elements, density);
    double take = pici_model_codec(m, format, gather ? MODEL_DECODE : MODEL_ADD, c->dtype, taken, density);
    if (s->reversed)
        take += pici_model_codec(m, format, MODEL_DECODE, c->dtype, taken, density);
    cost->alpha = model_greater(cost->alpha, m->link[link].alpha);
    cost->wire = model_greater(cost->wire, bytes * m->link[link].beta);
    if (link == POLICY_INTER)
        cost->wire = model_greater(cost->wire, bytes * m->node_beta * s->node_share / t->share);
    cost->encode = model_greater(cost->encode, r->codec_scale * encode);
    cost->taken = model_greater(cost->taken, r->codec_scale * take);
}

static struct cost cost_of(struct run *r, const struct traffic_step *s, int contributions)
{
    struct cost cost = {0};
    for (int link = 0; link < POLICY_LINKS; link++)
        add_link(&cost, r, s, (enum policy_link)link, contributions);
    return cost;
}

/* ---- slices in flight. All of a round take a step before any takes the next but one. So a step of w slices takes as
 * long as the busiest resource works on w slices, and at least as long as one slice takes from its encoding to its
 * being taken in. */

static double once(const struct cost *c)
{
    return c->alpha + c->encode + c->wire + c->taken;
}

static double busiest(const struct cost *c)
{
    return model_greater(c->wire, c->encode + c->taken);
}

static double step_seconds(const struct cost *c, double slices)
{
    return slices > 0 ? model_greater(slices * busiest(c), once(c)) : 0;
}

/* After the last step of the first slice in a round: until the last slice is through. */
static double rest_seconds(const struct cost *c, double slices)
{
    return once(c) + (slices - 1) * busiest(c) - step_seconds(c, slices);
}

/* ---- a call */

/* How many segments as long as the longest one the data would have. */
static double segments_of(const struct schedule *schedule, const struct schedule_call *c)
{
    int least = c->ranks;
    if (schedule->undivided || c->kind != PICI_ALL_REDUCE || !schedule->by_node)
        return schedule->undivided ? 1 : c->ranks;
    for (int i = 0; i < nodes_of(c); i++)
        least = nodes_size(c, i) < least ? nodes_size(c, i) : least;
    return (double)nodes_of(c) * least;
}

/* Slices of a segment, and how many are in flight: as layout.c cuts them. */
static void cut(struct run *r, const struct schedule *schedule, const struct schedule_call *shape)
{
    const struct model_call *c = r->call;
    struct schedule_limits limits;
    schedule->limits(schedule, shape, &limits);
    const double width = (double)pici_dtype_width(c->dtype), widest = limits.segments ? limits.segments : 1;
    const double longest = r->elements / segments_of(schedule, shape);
    const double most = (double)c->slice_bytes / width / widest, least = SLICES_WORTH / width / widest;
    const double fair = model_greater(longest / c->window, least), slice = most < fair ? most : fair;
    const uint64_t tiles = (uint64_t)(slice / TILE), each = (tiles ? tiles : 1) * TILE;
    const uint64_t slices = (uint64_t)(longest / (double)each);
    r->slices = (double)slices * (double)each < longest ? (double)slices + 1 : (double)slices;
    r->window = r->slices < c->window ? (int)r->slices : c->window;
}

/* Whether the messages travel with those of hello: then they have no latencies of their own. */
static int is_early(const struct run *r, const struct schedule *schedule)
{
    const struct model_call *c = r->call;
    return schedule->with_hello && !c->late && r->slices <= 1 &&
           pici_early_fits(c->ranks, c->dtype, c->bytes / pici_dtype_width(c->dtype));
}

/* Hello and closing. */
static double agree_seconds(const struct model_machine *m, int ranks)
{
    return ranks > 1 ? m->agree * model_doublings(ranks) / model_doublings(m->agree_ranks > 2 ? m->agree_ranks : 2) : 0;
}

/* Ranks of a node that share a core. */
static double codec_scale(const struct model_machine *m, const struct model_call *c)
{
    int most = c->nodes ? 0 : c->ranks;
    for (int i = 0; c->nodes && i < c->nodes->nodes; i++) {
        const int size = c->nodes->begin[i + 1] - c->nodes->begin[i];
        most = size > most ? size : most;
    }
    return m->cores > 0 && most > m->cores ? (double)most / m->cores : 1;
}

static double ours(const struct model_machine *m, const struct model_call *c, const struct model_candidate *candidate)
{
    const struct schedule *schedule = pici_schedule(candidate->algorithm);
    const struct schedule_call shape = model_shape(c);
    struct schedule_traffic t;
    struct run r = {.machine = m, .call = c, .dense = candidate->dense, .codec_scale = codec_scale(m, c)};
    if (!schedule || !pici_schedule_traffic(schedule, &shape, &t))
        return -1;
    r.elements = (double)(c->bytes / pici_dtype_width(c->dtype));
    if (!t.count)
        return pici_model_codec(m, PICI_DENSE, MODEL_DECODE, c->dtype, r.elements, 1);
    double seconds = agree_seconds(m, c->ranks);
    if (r.elements <= 0)
        return seconds;
    cut(&r, schedule, &shape);
    const double rounds = (double)(uint64_t)(r.slices / r.window), over = r.slices - rounds * r.window;
    const int early = is_early(&r, schedule);
    struct cost cost = {0};
    for (int i = 0; i < t.count; i++) {
        const struct traffic_step *s = &t.step[i];
        if (!i || s->phase != s[-1].phase)
            r.history[POLICY_INTER] = r.history[POLICY_INTRA] = (struct policy_history){0};
        for (int k = 0, run; k < s->repeat; k += run) {
            const int at = s->contributions + k * s->grow;
            run = !s->grow ? s->repeat : 1 + at / s->grow / SAMPLES;
            run = k + run < s->repeat ? run : s->repeat - k;
            cost = cost_of(&r, s, at + (run - 1) / 2 * s->grow);
            cost.alpha = early ? 0 : cost.alpha;
            seconds += run * (rounds * step_seconds(&cost, r.window) + step_seconds(&cost, over));
        }
    }
    return seconds + rest_seconds(&cost, over > 0 ? over : r.window);
}

double pici_model_seconds(const struct model_machine *m, const struct model_call *c, const struct model_candidate *what)
{
    return what->vendor ? pici_model_vendor(m, c, (enum model_vendor)what->vendor) : ours(m, c, what);
}
