/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Predicts the seconds of a collective: pure functions of numbers. A machine is a few constants (links, codec,
 * agreement); a call is its sizes and densities. docs/explanation/predict.md has the equation and its limits. The
 * functions use only +, -, * and / on doubles, in a fixed order, so all ranks compute the same.
 *
 * SI units: seconds and bytes; a bandwidth is seconds per byte. */
#ifndef PICI_LIB_PREDICT_MODEL_H
#define PICI_LIB_PREDICT_MODEL_H

#include <stddef.h>

#include "predict/policy.h"
#include "schedule/traffic.h"

/* ---- the machine */

/* A message of b bytes takes alpha + b * beta. */
struct model_link {
    double alpha, beta;
};

/* Work on elements: count nonzeros; encode; add a block to a sum; decode a block into a result. Encoding and decoding a
 * dense block are copies; adding it adds all elements. */
enum model_work { MODEL_COUNT, MODEL_ENCODE, MODEL_ADD, MODEL_DECODE, MODEL_WORKS };

enum { MODEL_FORMATS = PICI_PACKED + 1, MODEL_POINTS = 5 };

/* Densities of the points of struct model_codec: 0.01, 0.05, 0.1, 0.2 and 1. */
extern const double pici_model_points[MODEL_POINTS];

/* Nanoseconds for a tile of 4096 elements of f32: without nonzeros, and in addition at each of the points. Between
 * points they are interpolated linearly. For other widths `empty` is proportional to the bytes of a tile, and so is
 * `more` for narrower types; for wider types `more` is f32's. */
struct model_codec {
    double empty, more[MODEL_POINTS];
};

/* Dense collectives of other libraries, for comparison. */
enum model_native {
    MODEL_OURS,         /* none: ours */
    MODEL_NATIVE,       /* the fastest one of the machine (model_machine.natives) */
    MODEL_RING,         /* p - 1 steps a phase */
    MODEL_RABENSEIFNER, /* recursive halving and doubling: ceil(log2 p) steps a phase */
    MODEL_TREE,         /* all-reduce only: NCCL's double binary trees */
    MODEL_TWO_LEVELS,   /* recursive between nodes, ring inside, then a transpose */
    MODEL_NATIVES
};

struct model_machine {
    struct model_link link[POLICY_LINKS]; /* of a pair of ranks: on two nodes; on one */
    double node_beta;                     /* seconds a byte out of a node, by all its ranks together; 0: no limit */
    double agree; /* the agreement rounds together, among agree_ranks ranks; grows by ceil(log2 p) */
    int agree_ranks;
    int cores;                                            /* of a node, which its ranks share; 0: each has its own */
    struct model_codec codec[MODEL_FORMATS][MODEL_WORKS]; /* MODEL_COUNT: in the row of PICI_DENSE, for all formats */
    int packed_measured;      /* 1: codec[PICI_PACKED] was measured with the ranks' kernels; 0: with AVX-512 */
    unsigned natives;         /* bits 1 << enum model_native */
    struct model_link native; /* of a step of the native ring and trees over all ranks; beta 0: as `link` */
    double memory_beta;       /* MODEL_TWO_LEVELS: seconds a byte read or written by the transpose */
};

/* ---- the call */

struct model_call {
    enum pici_collective kind;
    enum pici_dtype dtype;
    uint64_t bytes;                     /* dense, of all segments together: of the larger buffer */
    int ranks;                          /* >= 1 */
    const struct schedule_nodes *nodes; /* NULL: one node has all ranks */
    double density;                     /* of one rank's data, 0 to 1 */
    double correlation;                 /* 1: independent positions; 0: all ranks have the same (pici_model_density) */
    int window;                         /* slices in flight */
    uint64_t slice_bytes;
    int late;                /* small data does not travel with the call agreement */
    enum pici_format format; /* of sparse messages; AUTO: by the policy */
    unsigned formats;        /* that AUTO may choose */
    struct policy_thresholds threshold;
    double bandwidth[POLICY_LINKS]; /* bytes per second: the settings that AUTO uses, not the machine's */
    double cost_scale;              /* as in struct policy_auto */
    struct policy_packing packing;  /* its bandwidths and measurements come from the machine instead */
};

/* The inputs of its schedule. */
static inline struct schedule_call model_shape(const struct model_call *call)
{
    const struct schedule_call shape = {call->kind, call->ranks, 0, 0, call->bytes, call->nodes, NULL};
    return shape;
}

/* The name of a collective whose times are predicted, in tune files and tables; NULL for others. */
const char *pici_model_name(enum pici_collective);

/* The library's defaults: f32, independent positions, one node of one rank, no data. */
extern const struct model_call pici_model_call;

/* An algorithm, with sparse messages or all dense; or the dense call of another library. */
struct model_candidate {
    enum pici_algorithm algorithm;
    int dense;
    int native; /* enum model_native; unless it is MODEL_OURS, the other members do not matter */
};

/* ---- predictions */

/* Expected seconds of the call; < 0: the candidate cannot do it. Of PICI_ALL_TO_ALLV with equal runs: its schedule
 * follows from their length, so the candidate's algorithm does not matter. */
double pici_model_seconds(const struct model_machine *, const struct model_call *, const struct model_candidate *);

/* Density of the sum of k >= 1 contributions of density d with the correlation c: 1 - (1-d)^x, x = 1 + (k-1)c. Between
 * whole x, (1-d)^x is interpolated linearly. */
double pici_model_density(double density, double contributions, double correlation);

/* Seconds of work on this many elements in a format (counting: any). */
double pici_model_codec(const struct model_machine *, enum pici_format, enum model_work, enum pici_dtype,
                        double elements, double density);

/* The cost of packing on a machine: `more` of struct policy_packing. Zeros: not measured. */
void pici_model_packing(const struct model_machine *, double more[2]);

/* Seconds of another library's dense call (MODEL_NATIVE and up); < 0: it cannot do it. All-to-all: only MODEL_NATIVE,
 * pairwise. (model_native.c) */
double pici_model_native(const struct model_machine *, const struct model_call *, enum model_native);

/* ---- for model.c and model_native.c */

static inline double model_greater(double one, double other)
{
    return one > other ? one : other;
}

/* ceil(log2 p) */
static inline int model_doublings(int p)
{
    int doublings = 0;
    while (p > 1 && (p - 1) >> doublings)
        doublings++;
    return doublings;
}

#endif
