/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A slice whose messages are made by a value codec: its elements become arrays, which are sent as blocks, and arrays
 * that were received become elements.
 *
 * All ranks end with the same bytes, because a rank that still uses elements that it has sent first replaces them
 * by what the receivers will decode:
 * - the owner of a segment, when it sends the segment's result; the others forward its blocks as they are;
 * - in doubling both ranks of an exchange, and these add the same two operands in the same order. Ranks that hold the
 *   same sum make the same arrays of it, since they draw the same random numbers. */
#include "coll/slice.h"

int pici_slice_coded(const struct pici_request *r, const struct slice_run *run)
{
    const struct coll_layout *l = layout_of(r);
    const int gather = run->now.phase == PHASE_GATHER;
    if (gather && l->schedule->undivided) /* these ranks have no part in the exchanges, after which all is the same */
        return 0;
    return (r->call.opts.values.phases & (gather ? VALUES_GATHERING : VALUES_REDUCING)) != 0;
}

/* The places for the arrays of a segment, the number `at` in a message, or of a received one. */
static void places(const struct pici_request *r, const struct slice_run *run, int at, void *out[VALUES_ARRAYS])
{
    const struct coll_layout *l = layout_of(r);
    uint8_t *next = run->narrowed + (size_t)at * l->parts;
    for (int i = 0; i < VALUES_ARRAYS; i++) {
        out[i] = next;
        next += l->part[i];
    }
}

void pici_slice_received(const struct pici_request *r, const struct slice_run *run, void *out[VALUES_ARRAYS])
{
    places(r, run, layout_of(r)->limits.segments, out);
}

/* Whether this rank accounts for what the encodings of a message lose. Of ranks that make the same ones it is the
 * lowest. */
static int accounts(const struct pici_request *r, const struct schedule_message *m)
{
    return !m->group || m->group == r->comm->position + 1;
}

/* Where in the residual the losses of elements belong; NULL: nowhere. */
static uint8_t *residual_at(const struct pici_request *r, uint64_t first)
{
    const struct coll_call *c = &r->call;
    const uint64_t base = c->args.kind == PICI_ALL_GATHER ? (uint64_t)r->comm->rank * c->args.count : 0;
    return c->opts.residual ? c->opts.residual + (first - base) * c->resolved.width : NULL;
}

/* Of an average, results are losses of all ranks' sum divided by their number. */
static int times_of(const struct pici_request *r, const struct slice_run *run)
{
    const int average = r->call.args.kind == PICI_ALL_REDUCE && r->call.args.op == PICI_AVG;
    return average && run->now.phase == PHASE_GATHER ? r->comm->ranks : 1;
}

/* What tells the random numbers of an encoding from those of others in the phase. Ranks that hold the same sum draw the
 * same. A rank of doubling narrows an element in every step; if it drew the same number each time, its errors would add
 * up. */
static int origin_of(const struct pici_request *r, const struct slice_run *run, const struct schedule_message *m)
{
    return m->group ? m->group - 1 + run->step * r->comm->ranks : r->comm->position;
}

enum pici_status pici_slice_narrow(struct pici_request *r, struct slice_run *run, const struct schedule_message *m)
{
    const struct coll_call *c = &r->call;
    const int wanted = accounts(r, m) && (c->opts.residual || c->opts.stats || r->comm->trace);
    struct values_where where = {
        .sequence = r->sequence, .gather = run->now.phase == PHASE_GATHER, .origin = origin_of(r, run, m)};
    enum pici_status s = PICI_OK;
    run->loss = (struct values_loss){.times = times_of(r, run)};
    for (int i = 0; i < m->count && !s; i++) {
        void *out[VALUES_ARRAYS];
        uint64_t made[VALUES_ARRAYS] = {0}, n;
        const uint8_t *src = pici_slice_source(r, run, m->segments[i], &n);
        where.first = pici_coll_slice(r->comm, c, m->segments[i], run->slice).first;
        places(r, run, i, out);
        run->loss.residual = residual_at(r, where.first);
        s = r->engine->narrow(run->lane, &c->opts.values, &where, out, made, src, n, wanted ? &run->loss : NULL);
        for (int a = 0; a < run->arrays; a++) {
            run->src[a * m->count + i] = out[a];
            run->n[a * m->count + i] = made[a];
        }
        if (accounts(r, m))
            r->stats.events += n;
    }
    return s;
}

enum pici_status pici_slice_widen(struct pici_request *r, const struct slice_run *run, enum engine_widen how,
                                  uint8_t *dst, uint64_t n, const void *const in[VALUES_ARRAYS],
                                  const uint64_t have[VALUES_ARRAYS])
{
    const struct coll_call *c = &r->call;
    const struct engine_values e = {.values = &c->opts.values,
                                    .op = c->args.op,
                                    .by_value = c->resolved.by_value,
                                    .quiet = c->args.kind != PICI_ALL_GATHER};
    const double begin = pici_slice_now(r);
    enum pici_status s = r->engine->widen(run->lane, &e, how, dst, n, in, have, r->room.temp, layout_of(r)->temp);
    r->stats.widen_s += pici_slice_now(r) - begin;
    return s;
}

enum pici_status pici_slice_widen_own(struct pici_request *r, const struct slice_run *run,
                                      const struct schedule_message *m, int i, enum engine_widen how, uint8_t *dst)
{
    const void *in[VALUES_ARRAYS] = {NULL};
    uint64_t have[VALUES_ARRAYS] = {0};
    for (int a = 0; a < run->arrays; a++) {
        in[a] = run->src[a * m->count + i];
        have[a] = run->n[a * m->count + i];
    }
    return pici_slice_widen(r, run, how, dst, pici_coll_slice(r->comm, &r->call, m->segments[i], run->slice).n, in,
                            have);
}

/* Of the two ranks of an exchange, the one whose elements are the second operand keeps its message and adds it to what
 * it receives. */
enum pici_status pici_slice_narrowed(struct pici_request *r, struct slice_run *run, const struct schedule_message *m)
{
    const int gather = run->now.phase == PHASE_GATHER;
    enum pici_status s = PICI_OK;
    r->stats.narrow_s += pici_slice_now(r) - run->begin;
    r->stats.nonfinite += run->loss.nonfinite;
    r->stats.lost += run->loss.squares;
    for (int i = 0; i < m->count && !s && (gather || (m->group && !m->keep)); i++) {
        const uint64_t first = pici_coll_slice(r->comm, &r->call, m->segments[i], run->slice).first;
        s = pici_slice_widen_own(r, run, m, i, WIDEN_PLACE,
                                 gather ? pici_slice_result(r, m->segments[i], first)
                                        : pici_slice_new_sum(r, run, m->segments[i], first));
    }
    return s;
}
