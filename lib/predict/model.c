/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Seconds of a call: the cost of a slice's message in each step, on each link and in the codec, and the overlap of the
 * slices in flight. */
#include "predict/model.h"

#include "format.h"
#include "schedule/alltoall.h"
#include "schedule/registry.h"

enum {
    PREFIX = 32,             /* bytes of a message besides its blocks (formats/message.md) */
    SLICES_WORTH = 64 << 10, /* as in layout.c: dense bytes below which a message is not cut further */
    SAMPLES = 12             /* among steps that differ in contributions: the first, then every twelfth part more */
};

/* The encoder's fraction of the additional time of slower kernels for packed blocks
 * (docs/developers/measured/packed.md). */
static const double ENCODER_FRACTION = 0.6;

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
                                           .cost_scale = 1,
                                           .packing = {PICI_PACKING_AUTO, POLICY_AVX512, {0, 0}, {0, 0}}};

const char *pici_model_name(enum pici_collective collective)
{
    static const char *const names[] = {
        [PICI_ALL_GATHER] = "all_gather", [PICI_REDUCE_SCATTER] = "reduce_scatter", [PICI_ALL_REDUCE] = "all_reduce"};
    return (unsigned)collective < sizeof names / sizeof *names ? names[collective] : NULL;
}

/* ---- density and codec */

double pici_model_density(double density, double contributions, double correlation)
{
    const double independent = 1 + (contributions - 1) * correlation;
    const uint64_t whole = (uint64_t)independent;
    double none = 1, power = 1 - density;
    for (uint64_t exponent = whole; exponent; exponent >>= 1, power *= power)
        if (exponent & 1)
            none *= power;
    return 1 - none * (1 - density * (independent - (double)whole));
}

double pici_model_codec(const struct model_machine *machine, enum pici_format format, enum model_work work,
                        enum pici_dtype dtype, double elements, double density)
{
    const struct model_codec *codec = &machine->codec[work == MODEL_COUNT ? PICI_DENSE : format][work];
    const double width_factor = (double)pici_dtype_width(dtype) / 4,
                 narrow_factor = width_factor < 1 ? width_factor : 1;
    double before = 0, density_before = 0;
    int i = 0;
    for (; i < MODEL_POINTS - 1 && density > pici_model_points[i]; i++) {
        before = codec->more[i];
        density_before = pici_model_points[i];
    }
    const double fraction = (density - density_before) / (pici_model_points[i] - density_before);
    return 1e-9 * elements / TILE *
           (width_factor * codec->empty + narrow_factor * (before + fraction * (codec->more[i] - before)));
}

void pici_model_packing(const struct model_machine *machine, double more[2])
{
    static const enum model_work take[2] = {MODEL_ADD, MODEL_DECODE};
    for (int gather = 0; gather < 2; gather++) {
        double packed = 0, dense = 0;
        packed += pici_model_codec(machine, PICI_PACKED, MODEL_ENCODE, PICI_F32, 1, 1);
        packed += pici_model_codec(machine, PICI_PACKED, take[gather], PICI_F32, 1, 1);
        dense += pici_model_codec(machine, PICI_DENSE, MODEL_ENCODE, PICI_F32, 1, 1);
        dense += pici_model_codec(machine, PICI_DENSE, take[gather], PICI_F32, 1, 1);
        more[gather] = machine->packed_measured && packed > dense ? (packed - dense) / 4 : 0;
    }
}

/* ---- a step of one slice */

struct run {
    const struct model_machine *machine;
    const struct model_call *call;
    int dense, window;
    double elements, slices; /* of the call; of a segment */
    double codec_scale;      /* ranks that share a core */
    struct policy_packing packing;
    struct policy_history history[POLICY_LINKS];
    enum pici_format gathered; /* gathered blocks: the format that their owner made */
    int gathered_packed;       /* whether gathered blocks are packed */
};

/* The cost of a slice in a step. */
struct cost {
    double alpha;
    double wire;            /* the link that takes longest */
    double encode, receive; /* counting and encoding; adding or decoding */
};

/* The link whose bandwidth and threshold apply to a message, as in send.c. */
static enum policy_link link_of(const struct model_call *call, enum policy_link link, int gather)
{
    if (!gather)
        return link;
    return call->nodes && call->nodes->nodes > 1 ? POLICY_INTER : POLICY_INTRA;
}

/* The format of a message by the policy. *counted: its nonzeros are counted first. block_elements, nonzeros: of a
 * block. */
static enum pici_format choose(struct run *run, enum policy_link link, int gather, int contributions, double density,
                               uint64_t block_elements, uint64_t nonzeros, int *counted)
{
    const struct model_call *call = run->call;
    const struct policy_auto auto_options = {call->formats, call->bandwidth[link_of(call, link, gather)], gather,
                                             call->cost_scale};
    const float threshold = pici_policy_threshold(&call->threshold, call->format, link, gather);
    struct policy_history *history = &run->history[link];
    double predicted;
    *counted = 0;
    if (run->dense || call->format == PICI_DENSE)
        return PICI_DENSE;
    if (threshold <= 0 && call->format != PICI_AUTO)
        return call->format;
    *counted = pici_policy_count(history, threshold, contributions, &predicted);
    const int dense = !*counted || pici_policy_dense(1 - density, threshold);
    pici_policy_sent(history, *counted ? density : predicted, contributions, dense);
    pici_policy_received(history, dense);
    return dense ? PICI_DENSE
                 : pici_policy_format(call->format, call->dtype, &block_elements, &nonzeros, 1, &auto_options);
}

/* Whether the cost of packed blocks is known. */
static int knows_packed(const struct model_machine *machine)
{
    return pici_model_codec(machine, PICI_PACKED, MODEL_ENCODE, PICI_F32, 1, 1) > 0;
}

/* Additional seconds for an element of packed messages over the constants, for encoding and receiving together. */
static double slower_kernels(const struct run *run, int gather, double density)
{
    const enum pici_dtype dtype = run->call->dtype;
    const double values = run->gathered == PICI_DENSE ? 1 : density;
    return run->gathered_packed && !run->machine->packed_measured
               ? values * (double)pici_dtype_width(dtype) *
                     pici_policy_slower(run->packing.kernels, run->gathered, dtype, gather)
               : 0;
}

/* Messages over one class of links. */
static void add_link(struct cost *cost, struct run *run, const struct traffic_step *step, enum policy_link link,
                     int contributions)
{
    const struct model_machine *machine = run->machine;
    const struct model_call *call = run->call;
    const struct traffic_load *load = link == POLICY_INTER ? &step->between : &step->inside;
    const int gather = step->phase == PHASE_GATHER, sums = call->kind == PICI_ALL_GATHER ? 1 : contributions;
    if (load->segments <= 0)
        return;
    const double density = pici_model_density(call->density, sums, call->correlation);
    const double elements = load->fraction * run->elements / run->slices,
                 received_elements = step->receive_fraction * run->elements / run->slices;
    const uint64_t block_elements = (uint64_t)(elements / load->segments + 0.5),
                   nonzeros = (uint64_t)((double)block_elements * density + 0.5);
    enum pici_format format = run->gathered;
    int counted = 0;
    if (step->encode) {
        format = choose(run, link, gather, contributions, density, block_elements, nonzeros, &counted);
        run->gathered = format;
    }
    const double values = (double)(format == PICI_DENSE ? block_elements : nonzeros);
    if (step->encode)
        run->gathered_packed =
            call->format == PICI_AUTO &&
            pici_policy_packs(&run->packing, format, call->dtype, values, link_of(call, link, gather), gather, 0);
    double block_bytes = (double)pici_policy_bytes(format, call->dtype, &block_elements, &nonzeros, 1);
    if (run->gathered_packed) {
        block_bytes -= values * (double)pici_dtype_width(call->dtype) - pici_policy_packed(call->dtype, values, 0);
        format = PICI_PACKED;
    }
    const double bytes = load->segments * block_bytes + load->messages * PREFIX;
    const double slower = slower_kernels(run, gather, density);
    double encode = counted ? pici_model_codec(machine, PICI_DENSE, MODEL_COUNT, call->dtype, elements, density) : 0;
    if (step->encode)
        encode += pici_model_codec(machine, format, MODEL_ENCODE, call->dtype, elements, density) +
                  elements * ENCODER_FRACTION * slower;
    double receive =
        pici_model_codec(machine, format, gather ? MODEL_DECODE : MODEL_ADD, call->dtype, received_elements, density) +
        received_elements * (1 - ENCODER_FRACTION) * slower;
    if (step->reversed)
        receive += pici_model_codec(machine, format, MODEL_DECODE, call->dtype, received_elements, density);
    cost->alpha = model_greater(cost->alpha, machine->link[link].alpha);
    cost->wire = model_greater(cost->wire, bytes * machine->link[link].beta);
    if (link == POLICY_INTER)
        cost->wire = model_greater(cost->wire, bytes * machine->node_beta * step->node_fraction / load->fraction);
    cost->encode = model_greater(cost->encode, run->codec_scale * encode);
    cost->receive = model_greater(cost->receive, run->codec_scale * receive);
}

static struct cost cost_of(struct run *run, const struct traffic_step *step, int contributions)
{
    struct cost cost = {0};
    for (int link = 0; link < POLICY_LINKS; link++)
        add_link(&cost, run, step, (enum policy_link)link, contributions);
    return cost;
}

/* ---- slices in flight. All slices of a round take a step before any takes the next but one. So a step of w slices
 * takes as long as the busiest resource works on w slices. It takes at least as long as one slice from encoding to the
 * end of its processing. */

static double once(const struct cost *cost)
{
    return cost->alpha + cost->encode + cost->wire + cost->receive;
}

static double busiest(const struct cost *cost)
{
    return model_greater(cost->wire, cost->encode + cost->receive);
}

static double step_seconds(const struct cost *cost, double slices)
{
    return slices > 0 ? model_greater(slices * busiest(cost), once(cost)) : 0;
}

/* The time from the last step of the first slice in a round to the end of the last slice. */
static double rest_seconds(const struct cost *cost, double slices)
{
    return once(cost) + (slices - 1) * busiest(cost) - step_seconds(cost, slices);
}

/* ---- a call */

/* The number of segments in the data if all were as long as the longest one. */
static double segments_of(const struct schedule *schedule, const struct schedule_call *call)
{
    int least = call->ranks;
    if (schedule->undivided || call->kind != PICI_ALL_REDUCE || !schedule->by_node)
        return schedule->undivided ? 1 : call->ranks;
    for (int i = 0; i < nodes_of(call); i++)
        least = nodes_size(call, i) < least ? nodes_size(call, i) : least;
    return (double)nodes_of(call) * least;
}

/* Set the slices of a segment, and the number in flight, as layout.c and alltoall.c do. */
static void cut(struct run *run, const struct schedule *schedule, const struct schedule_call *shape)
{
    const struct model_call *call = run->call;
    struct schedule_limits limits;
    schedule->limits(schedule, shape, &limits);
    const int together = call->kind == PICI_ALL_TO_ALLV ? limits.receives : limits.segments;
    const double width = (double)pici_dtype_width(call->dtype), widest = together > 0 ? together : 1;
    const double longest = run->elements / segments_of(schedule, shape);
    const double worth = SLICES_WORTH / width, least = call->kind == PICI_ALL_TO_ALLV ? worth : worth / widest;
    double most = (double)call->slice_bytes / width / widest;
    if (call->kind == PICI_ALL_TO_ALLV && most < worth)
        most = worth;
    const double fair = model_greater(longest / call->window, least), slice = most < fair ? most : fair;
    const uint64_t tiles = (uint64_t)(slice / TILE), each = (tiles ? tiles : 1) * TILE;
    const uint64_t slices = (uint64_t)(longest / (double)each);
    run->slices = (double)slices * (double)each < longest ? (double)slices + 1 : (double)slices;
    run->window = run->slices < call->window ? (int)run->slices : call->window;
}

/* Whether the messages travel with the call agreement, and so have no latencies of their own. */
static int is_early(const struct run *run, const struct schedule *schedule)
{
    const struct model_call *call = run->call;
    return schedule->with_agreement && !call->late && run->slices <= 1 &&
           pici_early_fits(call->ranks, call->dtype, call->bytes / pici_dtype_width(call->dtype));
}

/* The agreement rounds. */
static double agree_seconds(const struct model_machine *machine, int ranks)
{
    return ranks > 1 ? machine->agree * model_doublings(ranks) /
                           model_doublings(machine->agree_ranks > 2 ? machine->agree_ranks : 2)
                     : 0;
}

/* Ranks of a node that share a core. */
static double codec_scale(const struct model_machine *machine, const struct model_call *call)
{
    int most = call->nodes ? 0 : call->ranks;
    for (int i = 0; call->nodes && i < call->nodes->nodes; i++) {
        const int size = call->nodes->begin[i + 1] - call->nodes->begin[i];
        most = size > most ? size : most;
    }
    return machine->cores > 0 && most > machine->cores ? (double)most / machine->cores : 1;
}

static double ours(const struct model_machine *machine, const struct model_call *call,
                   const struct model_candidate *candidate)
{
    const struct schedule_call shape = model_shape(call);
    const struct schedule *schedule = call->kind == PICI_ALL_TO_ALLV
                                          ? pici_alltoall_choose(&shape, call->bytes / (uint64_t)call->ranks)
                                          : pici_schedule(candidate->algorithm);
    struct schedule_traffic traffic;
    struct run progress = {.machine = machine,
                           .call = call,
                           .dense = candidate->dense,
                           .codec_scale = codec_scale(machine, call),
                           .packing = call->packing};
    for (int i = 0; i < POLICY_LINKS; i++)
        progress.packing.bandwidth[i] = machine->link[i].beta > 0 ? 1 / machine->link[i].beta : 0;
    pici_model_packing(machine, progress.packing.more);
    if (!knows_packed(machine) && progress.packing.pack == PICI_PACKING_AUTO)
        progress.packing.pack = PICI_PACKING_NONE;
    if (!schedule || !pici_schedule_traffic(schedule, &shape, &traffic))
        return -1;
    progress.elements = (double)(call->bytes / pici_dtype_width(call->dtype));
    if (!traffic.count)
        return pici_model_codec(machine, PICI_DENSE, MODEL_DECODE, call->dtype, progress.elements, 1);
    double seconds = agree_seconds(machine, call->ranks);
    if (progress.elements <= 0)
        return seconds;
    cut(&progress, schedule, &shape);
    const double rounds = (double)(uint64_t)(progress.slices / progress.window),
                 over = progress.slices - rounds * progress.window;
    const int early = is_early(&progress, schedule);
    struct cost cost = {0};
    for (int i = 0; i < traffic.count; i++) {
        const struct traffic_step *step = &traffic.step[i];
        if (!i || step->phase != step[-1].phase || call->kind == PICI_ALL_TO_ALLV)
            progress.history[POLICY_INTER] = progress.history[POLICY_INTRA] = (struct policy_history){0};
        for (int k = 0, alike; k < step->repeat; k += alike) {
            const int contributions = step->contributions + k * step->growth;
            alike = !step->growth ? step->repeat : 1 + contributions / step->growth / SAMPLES;
            alike = k + alike < step->repeat ? alike : step->repeat - k;
            cost = cost_of(&progress, step, contributions + (alike - 1) / 2 * step->growth);
            cost.alpha = early ? 0 : cost.alpha;
            seconds += alike * (rounds * step_seconds(&cost, progress.window) + step_seconds(&cost, over));
        }
    }
    return seconds + rest_seconds(&cost, over > 0 ? over : progress.window);
}

double pici_model_seconds(const struct model_machine *machine, const struct model_call *call,
                          const struct model_candidate *what)
{
    return what->native ? pici_model_native(machine, call, (enum model_native)what->native) : ours(machine, call, what);
}
