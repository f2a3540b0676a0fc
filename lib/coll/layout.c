/* SPDX-License-Identifier: BSD-3-Clause */
#include "coll/layout.h"

#include <string.h>

#include "coll/message.h"
#include "coll/rules.h"
#include "format.h"
#include "schedule/registry.h"

static const uint64_t SPARSEST_SLICE = UINT64_C(1) << 31; /* elements: positions have 32 bits */

const char *pici_coll_name(unsigned kind)
{
    static const char *const names[] = {[PICI_ALL_GATHER] = "all-gather",  [PICI_REDUCE_SCATTER] = "reduce-scatter",
                                        [PICI_ALL_REDUCE] = "all-reduce",  [SAID_NEIGHBOR] = "neighbor all-gather",
                                        [PICI_BROADCAST] = "broadcast",    [PICI_ALL_GATHERV] = "all-gatherv",
                                        [PICI_ALL_TO_ALLV] = "all-to-allv"};
    const char *name = kind < sizeof names / sizeof *names ? names[kind] : NULL;
    return name ? name : "?";
}

/* Whether each rank's buffer holds all of the data. */
static int is_whole(const struct coll_call *call)
{
    return call->args.kind == PICI_ALL_REDUCE || call->args.kind == PICI_BROADCAST;
}

/* ---- who owns what */

const char *pici_coll_null(const struct coll_call *call)
{
    if (!call->args.send && call->args.count)
        return "the send buffer is null";
    return !call->args.recv && call->resolved.total ? "the receive buffer is null" : NULL;
}

int pici_coll_in_place(const struct coll_call *call, const struct pici_comm *comm)
{
    const struct call_args *args = &call->args;
    const uint64_t share = (uint64_t)comm->rank * args->count * call->resolved.width;
    switch (args->kind) {
    case PICI_ALL_GATHER: return args->send == args->recv + share;
    case PICI_REDUCE_SCATTER: return args->recv == args->send + share;
    default: return args->send == args->recv;
    }
}

struct coll_span pici_layout_segment(const struct coll_layout *layout, const struct pici_comm *comm,
                                     const struct coll_call *call, int segment)
{
    const struct values *values = &call->opts.values;
    const int rank = comm->order[segment];
    const uint64_t total = call->resolved.total,
                   whole = call->args.kind == PICI_ALL_REDUCE && values->nx ? values->codec->unit(values) : 1;
    const struct schedule_balance *balance = call->resolved.balance;
    uint64_t units = total / whole + (total % whole != 0);
    struct coll_span span = {(uint64_t)rank * call->args.count, call->args.count};
    if (layout->schedule->undivided)
        return (struct coll_span){0, total};
    if (balance) /* weight, not elements */
        units = balance->before[BALANCE_RANGES];
    if (call->args.kind == PICI_ALL_REDUCE && layout->schedule->by_node)
        pici_schedule_segment_by_node(units, &comm->on_nodes, segment, &span.first, &span.count);
    else if (is_whole(call))
        pici_schedule_segment(units, comm->ranks, rank, &span.first, &span.count);
    if (balance) {
        const uint64_t end = pici_balance_place(balance, span.first + span.count);
        span.first = pici_balance_place(balance, span.first);
        span.count = end - span.first;
    }
    if (whole > 1) {
        span.first = span.first * whole < total ? span.first * whole : total;
        span.count = span.count * whole < total - span.first ? span.count * whole : total - span.first;
    }
    return span;
}

struct coll_span pici_coll_segment(const struct pici_comm *comm, const struct coll_call *call, int segment)
{
    return call->args.rules->segment(&call->resolved.layout, comm, call, segment);
}

struct coll_span pici_coll_slice(const struct pici_comm *comm, const struct coll_call *call, int segment,
                                 uint64_t slice)
{
    const struct coll_layout *layout = &call->resolved.layout;
    const struct coll_span all = pici_coll_segment(comm, call, segment);
    uint64_t each = layout->slice;
    if (layout->unit) { /* not more than a slice */
        each = (all.count + layout->slices - 1) / layout->slices;
        each = (each + layout->unit - 1) / layout->unit * layout->unit;
    }
    const uint64_t offset = slice * each < all.count ? slice * each : all.count, left = all.count - offset;
    return (struct coll_span){all.first + offset, left < each ? left : each};
}

/* ---- the layout */

int pici_layout_window(const struct coll_call *call, uint64_t slices)
{
    if ((uint64_t)call->opts.window <= slices)
        return call->opts.window;
    return slices ? (int)slices : 1;
}

/* A slice of lists has more elements, in proportion to their sparsity. */
static uint64_t stretched(const struct coll_call *call, uint64_t elements)
{
    if (!call->resolved.fill)
        return elements;
    const uint64_t times = call->resolved.total / call->resolved.fill;
    return elements < SPARSEST_SLICE / times ? elements * times : SPARSEST_SLICE;
}

struct lengths {
    uint64_t longest, shortest;
};

static struct lengths lengths_of(const struct coll_layout *layout, const struct pici_comm *comm,
                                 const struct coll_call *call)
{
    struct lengths lengths = {0, UINT64_MAX};
    for (int i = 0; i < layout->segments; i++) {
        const uint64_t count = call->args.rules->segment(layout, comm, call, i).count;
        lengths.longest = count > lengths.longest ? count : lengths.longest;
        lengths.shortest = count < lengths.shortest ? count : lengths.shortest;
    }
    return lengths;
}

/* Set the number of slices, and how segments shorter than the longest are cut. */
static void count_slices(struct coll_layout *layout, const struct coll_call *call, struct lengths lengths)
{
    /* without steps there is nothing to exchange */
    layout->slices = layout->steps ? lengths.longest / layout->slice + (lengths.longest % layout->slice != 0) : 0;

    /* Segments differ on uneven nodes, in all_gatherv, and with balanced owners. Shorter ones are then cut evenly.
     * Otherwise only the long ones would have last slices, and other links would be idle. */
    const int uneven = layout->slices > 1 && lengths.shortest <= (layout->slices - 1) * layout->slice;
    layout->unit = 0;
    if (uneven)
        layout->unit = call->opts.values.phases ? call->opts.values.codec->unit(&call->opts.values) : LAYOUT_PART;
}

/* Set the elements of a slice, the number of slices, and the window. Returns the elements of the longest segment. */
static uint64_t cut(struct coll_layout *layout, const struct pici_comm *comm, const struct coll_call *call)
{
    const uint64_t widest = layout->limits.segments ? (uint64_t)layout->limits.segments : 1;
    const uint64_t unit = call->opts.values.codec->unit(&call->opts.values);
    const struct lengths lengths = lengths_of(layout, comm, call);

    /* one window of slices per segment, unless that makes slices too short, or the call wants them shorter */
    const uint64_t most = stretched(call, call->opts.slice_bytes / call->resolved.width / widest);
    const uint64_t least = stretched(call, LAYOUT_SLICES_WORTH / call->resolved.width / widest);
    uint64_t slice = lengths.longest / (uint64_t)call->opts.window;
    slice = slice > least ? slice : least;
    slice = slice < most ? slice : most;
    layout->slice = pici_layout_units(slice, unit);
    count_slices(layout, call, lengths);
    layout->window = pici_layout_window(call, layout->slices);
    return lengths.longest;
}

size_t pici_layout_longest(const struct coll_call *call, uint64_t count)
{
    const struct values *values = &call->opts.values;
    const size_t exact = pici_policy_longest(call->args.dtype, count);
    size_t coded = 0;
    for (int i = 0; i < values->codec->arrays && values->phases && exact; i++) {
        const size_t block =
            pici_policy_longest(values->codec->dtype(values, i), values->codec->most(values, i, count));
        if (!block || block > SIZE_MAX / 2 - coded)
            return 0;
        coded += block;
    }
    return coded > exact ? coded : exact;
}

/* The most bytes of a block if no rank has dense data: a list, unless `longest` is shorter. */
static size_t longest_list(const struct coll_call *call, size_t longest)
{
    struct fmt_layout list;
    if (fmt_layout(&list, FMT_COO, (unsigned)call->args.dtype, SPARSEST_SLICE, call->resolved.fill) &&
        (list.block_bytes < longest || !longest))
        return (size_t)list.block_bytes;
    return longest;
}

int pici_layout_arrays(struct coll_layout *layout, const struct coll_call *call, int quantized)
{
    const struct values *values = &call->opts.values;
    uint64_t arrays;
    layout->temp = COLL_TEMP_BYTES;
    layout->quantized = quantized;
    if (!values->phases)
        return 0;
    for (int i = 0; i < values->codec->arrays; i++) { /* fits, since a message of them does */
        layout->part[i] = pici_layout_aligned((size_t)values->codec->most(values, i, layout->slice) *
                                              pici_dtype_width(values->codec->dtype(values, i)));
        layout->parts += layout->part[i];
    }
    const uint64_t unit = values->codec->unit(values) * call->resolved.width; /* not more than a slice */
    layout->temp = unit > COLL_TEMP_BYTES ? (size_t)unit : COLL_TEMP_BYTES;
    if (!fmt_muladd(&arrays, layout->parts, ((uint64_t)quantized + 1) * (uint64_t)layout->window, 0) ||
        arrays > SIZE_MAX / 4)
        return 1;
    layout->arrays = layout->slices ? (size_t)arrays : 0;
    return 0;
}

struct schedule_call pici_layout_shape(const struct pici_comm *comm, const struct coll_call *call)
{
    int root = 0;
    while (call->args.kind == PICI_BROADCAST && comm->order[root] != call->args.root)
        root++;
    return (struct schedule_call){.kind = call->args.kind == PICI_ALL_GATHERV ? PICI_ALL_GATHER : call->args.kind,
                                  .ranks = comm->ranks,
                                  .virtual_rank = comm->virtual_rank,
                                  .root = root,
                                  .bytes = call->resolved.total * call->resolved.width,
                                  .nodes = &comm->on_nodes};
}

static enum pici_status new_layout(struct coll_layout *layout, const struct schedule *schedule,
                                   const struct pici_comm *comm, const struct coll_call *call)
{
    *layout = (struct coll_layout){.schedule = schedule,
                                   .segments = schedule->undivided ? 1 : comm->ranks,
                                   .shape = pici_layout_shape(comm, call)};
    if (comm->paired_only && !pici_schedule_paired(schedule, comm->ranks))
        return PICI_E_UNSUPPORTED;
    schedule->limits(schedule, &layout->shape, &layout->limits);
    layout->steps = schedule->steps(schedule, &layout->shape);
    const uint64_t longest = cut(layout, comm, call);
    const struct schedule_limits *most = &layout->limits;
    size_t blocks = pici_layout_longest(call, layout->slice); /* of a segment */
    if (call->args.small)
        blocks = pici_bound(PICI_DENSE, call->args.dtype, longest < layout->slice ? longest : layout->slice);
    if (call->resolved.fill)
        blocks = layout->block = longest_list(call, blocks);
    layout->buffers = layout->window * (most->receives + most->sends + most->kept);
    const uint64_t sum = call->resolved.fill ? 0 : layout->slice * call->resolved.width; /* sums of lists are lists */
    uint64_t message, messages, sums, total;
    if (!blocks || !fmt_muladd(&message, blocks, (uint64_t)most->segments, MSG_BYTES + COLL_ALIGN - 1) ||
        !fmt_muladd(&messages, message &= ~(uint64_t)(COLL_ALIGN - 1), (uint64_t)layout->buffers, 0) ||
        !fmt_muladd(&sums, sum, (uint64_t)most->sums * (uint64_t)layout->window, 0) ||
        !fmt_muladd(&total, 1, messages, sums) || total > SIZE_MAX / 2 ||
        pici_layout_arrays(layout, call, most->segments))
        return PICI_E_ARG;
    layout->message = (size_t)message;
    layout->messages = layout->slices ? (size_t)messages : 0;
    layout->sums = layout->slices ? (size_t)sums : 0;
    return PICI_OK;
}

/* Whether slices and arrays have the same lengths. */
static int same_values(const struct values *one, const struct values *other)
{
    return one->codec == other->codec && one->phases == other->phases && one->cast == other->cast &&
           one->bits == other->bits && one->bucket == other->bucket && one->parameter == other->parameter &&
           one->nx == other->nx && one->ny == other->ny;
}

/* Reuses the last layout: a small call would spend most of its time here. */
static enum pici_status lay_out(struct coll_layout *layout, const struct schedule *schedule,
                                const struct pici_comm *comm, const struct coll_call *call)
{
    struct coll_call *last = comm->last_laid;
    const struct call_args *args = &call->args, *last_args = &last->args;
    const struct call_resolved *resolved = &call->resolved, *last_resolved = &last->resolved;
    if (last_resolved->layout.schedule == schedule && last_args->kind == args->kind && last_args->root == args->root &&
        last_args->dtype == args->dtype && last_args->small == args->small && last_resolved->total == resolved->total &&
        last_resolved->longest == resolved->longest && last_resolved->fill == resolved->fill &&
        last_resolved->counts_hash == resolved->counts_hash && last->opts.window == call->opts.window &&
        last->opts.slice_bytes == call->opts.slice_bytes && same_values(&last->opts.values, &call->opts.values)) {
        *layout = last_resolved->layout;
        return PICI_OK;
    }
    enum pici_status status = new_layout(layout, schedule, comm, call);
    if (!status) {
        *last = *call;
        last->resolved.layout = *layout;
    }
    return status;
}

size_t pici_layout_scratch(const struct coll_layout *layout)
{
    return layout->messages ? layout->messages + layout->sums + layout->arrays + layout->temp + COLL_ALIGN : 0;
}

/* AUTO without a prediction. Takes an undivided schedule only for data of one slice. */
static enum pici_status lay_out_usual(struct coll_layout *layout, const struct pici_comm *comm,
                                      const struct coll_call *call)
{
    const struct schedule_call shape = pici_layout_shape(comm, call);
    if (comm->forced)
        return lay_out(layout, comm->forced, comm, call);
    if (call->opts.values.phases) /* the fewest encodings, unless links are shared */
        return lay_out(layout, pici_schedule(comm->nodes == comm->ranks ? PICI_ALGO_SPLIT : PICI_ALGO_RING), comm,
                       call);
    const struct schedule *usual =
        pici_schedule_for(pici_schedule_usual(&shape, comm->paired_only, !call->resolved.basis), call->args.kind);
    if (usual->undivided) {
        struct coll_call dense = *call; /* lists take the algorithm that dense data take */
        dense.resolved.fill = 0;
        if (!lay_out(layout, usual, comm, &dense) && layout->slices <= 1)
            return call->resolved.fill ? lay_out(layout, usual, comm, call) : PICI_OK;
        usual = pici_schedule_for(pici_schedule_usual(&shape, comm->paired_only, 0), call->args.kind);
    }
    return lay_out(layout, usual, comm, call);
}

/* Whether the algorithm is chosen by predicted time. */
static int is_predicted(const struct pici_comm *comm, const struct coll_call *call)
{
    return !call->opts.algorithm && !comm->forced && call->resolved.basis && call->resolved.total && comm->ranks > 1;
}

static void predict(struct choice *choice, const struct pici_comm *comm, const struct coll_call *call)
{
    struct choose_call choose = {.model = pici_model_call,
                                 .count = call->args.count,
                                 .hint = call->opts.density,
                                 .latency = call->opts.latency,
                                 .bandwidth = {call->opts.bandwidth[POLICY_INTER], call->opts.bandwidth[POLICY_INTRA]},
                                 .history = call->opts.history,
                                 .paired_only = comm->paired_only,
                                 .native = call->resolved.native};
    choose.model.kind = call->args.kind;
    choose.model.dtype = call->args.dtype;
    choose.model.bytes = call->resolved.total * call->resolved.width;
    choose.model.ranks = comm->ranks;
    choose.model.nodes = &comm->on_nodes;
    choose.model.window = call->opts.window;
    choose.model.slice_bytes = call->opts.slice_bytes;
    choose.model.packing = call->resolved.predicted;
    if (call->resolved.fill) { /* lists: the ranks know the longest */
        const uint64_t parts = call->args.kind == PICI_ALL_GATHER ? (uint64_t)comm->ranks : 1;
        choose.exact = (double)call->resolved.stored / ((double)call->resolved.total / (double)parts);
    }
    choose.model.late = !comm->in_order || call->resolved.native || comm->transport.memory == PICI_MEMORY_DEVICE;
    pici_choose(comm->chooser, &choose, &comm->densities, choice);
}

/* The layout with segments of equally many elements. */
static enum pici_status choose_even(struct coll_layout *layout, const struct pici_comm *comm,
                                    const struct coll_call *call)
{
    struct choice choice = {.candidate = {.algorithm = call->opts.algorithm}, .seconds = -1};
    if (is_predicted(comm, call))
        predict(&choice, comm, call);
    const enum pici_algorithm id = choice.candidate.algorithm;
    enum pici_status status =
        id ? lay_out(layout, pici_schedule_for(id, call->args.kind), comm, call) : lay_out_usual(layout, comm, call);
    layout->choice = choice;
    layout->dense = choice.candidate.dense && call->opts.format == PICI_AUTO && !call->resolved.fill;
    return status;
}

enum pici_status pici_layout_choose(struct coll_layout *layout, const struct pici_comm *comm,
                                    const struct coll_call *call)
{
    struct coll_call even = *call;
    even.resolved.balance = NULL;
    enum pici_status status = choose_even(layout, comm, &even);
    if (status || !call->resolved.balance || layout->schedule->undivided)
        return status;
    if (!call->resolved.fill) { /* memory is sized for slices of this length, so longer segments have more of them */
        count_slices(layout, call, lengths_of(layout, comm, call));
        return PICI_OK;
    }
    const struct coll_layout chosen = *layout;
    status = new_layout(layout, chosen.schedule, comm, call);
    layout->choice = chosen.choice;
    layout->dense = chosen.dense;
    return status;
}

#define KEEP_MOST(member) most->member = most->member > layout->member ? most->member : layout->member

static void keep_most(struct coll_layout *most, const struct coll_layout *layout)
{
    KEEP_MOST(limits.sends);
    KEEP_MOST(limits.receives);
    KEEP_MOST(limits.segments);
    KEEP_MOST(limits.sums);
    KEEP_MOST(limits.kept);
    KEEP_MOST(segments);
    KEEP_MOST(slice);
    KEEP_MOST(slices);
    KEEP_MOST(window);
    KEEP_MOST(buffers);
    KEEP_MOST(message);
    KEEP_MOST(messages);
    KEEP_MOST(sums);
    KEEP_MOST(temp);
}

enum pici_status pici_layout_most(struct coll_layout *most, const struct pici_comm *comm, const struct coll_call *call)
{
    const struct schedule *schedule;
    if (!is_predicted(comm, call))
        return pici_layout_choose(most, comm, call);
    for (int i = 0; (schedule = pici_choose_schedule(i, call->args.kind, comm->ranks, comm->nodes, comm->paired_only));
         i++) {
        struct coll_layout layout;
        enum pici_status status = lay_out(&layout, schedule, comm, call);
        if (status)
            return status;
        if (i)
            keep_most(most, &layout);
        else
            *most = layout;
    }
    return PICI_OK;
}
