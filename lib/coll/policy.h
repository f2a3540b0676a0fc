/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Dense or sparse, and which format, for each message: pure functions and a few numbers of state. */
#ifndef PICI_LIB_COLL_POLICY_H
#define PICI_LIB_COLL_POLICY_H

#include "pici/coll.h"

enum policy_link { POLICY_INTER, POLICY_INTRA, POLICY_AG, POLICY_LINKS };

/* The default threshold of a link for a format (AUTO: pici's; dense: always). */
float pici_policy_default(enum policy_link, enum pici_format);

/* Sparsity of n elements of which nnz are not zero; of none: 1. */
double pici_policy_sparsity(uint64_t nnz, uint64_t n);

/* Is a message of this sparsity sent dense? threshold > 0 and (float)sparsity <= threshold. */
int pici_policy_dense(double sparsity, float threshold);

/* The messages of one slice through the steps of a phase: its density is followed from send to send, so that nonzeros
 * need not be counted where the outcome is plain. After a dense send the next is taken to hold one more contribution as
 * dense as the first, at independent positions: d_next = 1 - (1 - d_prev)(1 - d_first). It goes dense uncounted if that is
 * still at or below the threshold.
 *
 * Why this does not oscillate without gain: an extrapolated density never falls, so with one threshold a chain that has
 * gone dense stays dense until something is measured. It leaves dense only for a message that was counted and is above the
 * threshold, which is the gain. And it counts again only when there is reason to: a threshold that differs (another link),
 * or a received message that came sparse, in other words a neighbour that measured what the extrapolation denies (segments
 * unlike each other, or zeros at the same positions on all ranks). Where it is wrong all the same, a message costs what
 * dense costs. */
struct policy_chain {
    double first;   /* density of the first send */
    double last;    /* of the last, counted or extrapolated */
    int sends;      /* so far, but for those whose density is unknown */
    int last_dense; /* the last of these was dense */
    int doubted;    /* since then a message came sparse */
};

enum { POLICY_UNKNOWN = -1 }; /* a density */

void pici_policy_begin(struct policy_chain *); /* a new phase decides anew */

/* Before a message: must its nonzeros be counted to decide? If not (0), it goes dense, and *density is what it is taken to
 * have: extrapolated, or POLICY_UNKNOWN if the threshold is 1 (always). */
int pici_policy_count(const struct policy_chain *, float threshold, double *density);

/* After it was decided: the density, counted or extrapolated or POLICY_UNKNOWN, and whether it went dense. */
void pici_policy_sent(struct policy_chain *, double density, int dense);

/* A message came in whose elements go into later ones of this chain: were its blocks dense? */
void pici_policy_received(struct policy_chain *, int dense);

/* Bytes of the blocks of a message if all had this format; n and nnz per block, blocks of them. 0 if they do not fit in
 * size_t, or the format is AUTO or none that this version has. Exact but for hybrid, whose length depends on where the
 * nonzeros are: what is expected of independent positions, which in blocks of 300000 elements and more is within 2% and some
 * 24 bytes of what these come to. Nonzeros that cluster only make hybrid blocks shorter. */
size_t pici_policy_bytes(enum pici_format, enum pici_dtype, const uint64_t *n, const uint64_t *nnz, int blocks);

/* What AUTO chooses by. */
struct policy_auto {
    unsigned formats; /* that it may choose, a bit 1 << format each; dense it always may */
    double bandwidth; /* of the link, bytes per second, above 0 */
    int gather;       /* who receives the blocks decodes them, rather than add them */
    double coding;    /* the time that coding takes, as a part of what it takes the host; 0: the same */
};

/* The seconds that a message of this format (pici, coo or hybrid) is expected to take: its bytes over the link, and its coding on
 * both sides, by constants and never a clock, so that runs can be repeated. < 0 where pici_policy_bytes says 0. */
double pici_policy_seconds(enum pici_format, enum pici_dtype, const uint64_t *n, const uint64_t *nnz, int blocks,
                           const struct policy_auto *);

/* The format of a sparse message: `format` itself; for AUTO that of pici, coo and hybrid which takes the least time (ties: the
 * lowest number), or dense if that has no more bytes. */
enum pici_format pici_policy_format(enum pici_format, enum pici_dtype, const uint64_t *n, const uint64_t *nnz,
                                    int blocks, const struct policy_auto *);

#endif
