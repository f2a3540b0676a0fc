/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Dense or sparse, and which format, for each message: pure functions and a few numbers of state. */
#ifndef PICI_LIB_COLL_POLICY_H
#define PICI_LIB_COLL_POLICY_H

#include "pici/coll.h"

enum policy_link { POLICY_INTER, POLICY_INTRA, POLICY_LINKS }; /* to another node; inside one */

/* The sparsity up to which a message is sent dense; < 0: the default of the format. */
struct policy_thresholds {
    float reduce[POLICY_LINKS], gather;
};

/* Which of them holds for a message: one that is reduced over a link, or one that is gathered, over any. */
float pici_policy_threshold(const struct policy_thresholds *, enum pici_format, enum policy_link, int gather);

/* Sparsity of n elements of which nnz are not zero; of none: 1. */
double pici_policy_sparsity(uint64_t nnz, uint64_t n);

/* Is a message of this sparsity sent dense? threshold > 0 and (float)sparsity <= threshold. */
int pici_policy_dense(double sparsity, float threshold);

/* The densities of one slice's messages through the steps of a phase. They are predicted from send to send, so that nonzeros
 * are counted only where the count can change the outcome. A message of m more contributions than the dense one before is
 * predicted to have d_next = 1 - (1 - d_prev)(1 - d_first)^m: contributions as dense as the first, at independent
 * positions. It is sent dense without a count if the predicted sparsity is still at or below the threshold.
 *
 * Why this does not alternate between dense and sparse without gain: a predicted density never falls, so with one threshold
 * a slice whose messages are dense stays dense until a density is counted. It becomes sparse only for a message that was
 * counted and is above the threshold, which is the gain. A count is made again only for a reason: a threshold that differs
 * (another link), or a received message that was sparse, that is, a peer counted what the prediction denies (segments
 * unlike each other, or zeros at the same positions on all ranks). A wrong prediction costs no more than a dense message. */
struct policy_history {
    double first;      /* density of the first send */
    double last;       /* of the last send, counted or predicted */
    int contributions; /* in the last send */
    int sends;         /* so far, without those whose density is unknown */
    int last_dense;    /* the last of these was dense */
    int doubted;       /* a message was received sparse since then */
};

enum { POLICY_UNKNOWN = -1 }; /* a density */

void pici_policy_begin(struct policy_history *); /* at the start of each phase */

/* Before a message whose elements have so many contributions: must its nonzeros be counted to decide? If not (0), it is
 * sent dense, and *density is the predicted one, or POLICY_UNKNOWN if the threshold is 1 (always dense). */
int pici_policy_count(const struct policy_history *, float threshold, int contributions, double *density);

/* After the decision: the density, counted or predicted or POLICY_UNKNOWN, and whether the message was sent dense. */
void pici_policy_sent(struct policy_history *, double density, int contributions, int dense);

/* A message was received whose elements go into later ones of this slice: were its blocks dense? */
void pici_policy_received(struct policy_history *, int dense);

/* Bytes of the blocks of a message if all had this format; n and nnz per block, blocks of them. 0 if they do not fit in
 * size_t, or the format is AUTO or none that this version has. Exact but for hybrid, whose length depends on where the
 * nonzeros are: what is expected of independent positions, which in blocks of 300000 elements and more is within 2% and some
 * 24 bytes of what these come to. Nonzeros that cluster only make hybrid blocks shorter. */
size_t pici_policy_bytes(enum pici_format, enum pici_dtype, const uint64_t *n, const uint64_t *nnz, int blocks);

/* What AUTO chooses by. */
struct policy_auto {
    unsigned formats;  /* that it may choose, a bit 1 << format each; dense it always may */
    double bandwidth;  /* of the link, bytes per second, above 0 */
    int gather;        /* the receiver decodes the blocks; else it adds them */
    double cost_scale; /* seconds of coding on this engine / seconds on the host; 0: 1 */
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
