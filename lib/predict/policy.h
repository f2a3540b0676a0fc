/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Dense or sparse, and which format, for each message: pure functions and a few numbers of state. */
#ifndef PICI_LIB_PREDICT_POLICY_H
#define PICI_LIB_PREDICT_POLICY_H

#include "pici/coll.h"

enum policy_link { POLICY_INTER, POLICY_INTRA, POLICY_LINKS }; /* to another node; inside one */

/* The sparsity up to which a message is sent dense; < 0: the default of the format. */
struct policy_thresholds {
    float reduce[POLICY_LINKS], gather;
};

/* The threshold of a message. If it is gathered, the link does not matter. */
float pici_policy_threshold(const struct policy_thresholds *, enum pici_format, enum policy_link, int gather);

/* Sparsity of elements with this many nonzeros; 1 if there are no elements. */
double pici_policy_sparsity(uint64_t nonzeros, uint64_t elements);

/* Whether a message of this sparsity is sent dense: threshold > 0 and (float)sparsity <= threshold. */
int pici_policy_dense(double sparsity, float threshold);

/* The densities of one slice's messages through the steps of a phase. The policy predicts them from send to send, so
 * that a rank counts nonzeros only where the count can change the decision. If a message has m more contributions than
 * the dense message before it, its predicted density is d_next = 1 - (1 - d_prev)(1 - d_first)^m. It assumes m more
 * contributions as dense as the first message, at independent positions. The message is sent dense without a count if
 * the predicted sparsity is still at or below the threshold.
 *
 * Why this does not alternate between dense and sparse without gain: a predicted density never falls. So with one
 * threshold, a slice whose messages are dense stays dense until nonzeros are counted. A message is sparse only if it
 * was counted and its sparsity is above the threshold, which is the gain. Nonzeros are counted again only if the
 * threshold is a different one (another link), or a sparse message was received. Then a peer's count contradicts the
 * prediction: segments differ, or zeros are at the same positions on all ranks. A wrong prediction costs no more than a
 * dense message. */
struct policy_history {
    double first_density; /* density of the first send */
    double last_density;  /* of the last send, counted or predicted */
    int contributions;    /* in the last send */
    int sends;            /* so far, without those whose density is unknown */
    int last_dense;       /* the last of these was dense */
    int doubted;          /* a message was received sparse since then */
};

enum { POLICY_UNKNOWN = -1 }; /* a density */

void pici_policy_begin(struct policy_history *); /* at the start of each phase */

/* Before a message whose elements have this many contributions: must its nonzeros be counted to decide? If not (0), it
 * is sent dense, and *density is predicted, or POLICY_UNKNOWN if the threshold is 1 (always dense). */
int pici_policy_count(const struct policy_history *, float threshold, int contributions, double *density);

/* After the decision: the density, counted or predicted or POLICY_UNKNOWN, and whether the message was sent dense. */
void pici_policy_sent(struct policy_history *, double density, int contributions, int dense);

/* After receiving a message whose elements go into later ones of this slice: were its blocks dense? */
void pici_policy_received(struct policy_history *, int dense);

/* Bytes of the blocks of a message if all have this format; elements [blocks], nonzeros [blocks]. 0 if they do not fit
 * in size_t, or if the format is AUTO or unknown. Exact except for hybrid, whose length depends on the positions of the
 * nonzeros. For hybrid it is the expected length for independent positions, within 2% and 24 bytes for blocks of 300000
 * elements or more. Nonzeros that cluster only make hybrid blocks shorter. */
size_t pici_policy_bytes(enum pici_format, enum pici_dtype, const uint64_t *elements, const uint64_t *nonzeros,
                         int blocks);

/* The inputs of AUTO's choice, besides the elements. */
struct policy_auto {
    unsigned formats;  /* allowed formats: bits 1 << format; dense is always allowed */
    double bandwidth;  /* of the link, bytes per second, above 0 */
    int gather;        /* 1: the receiver decodes the blocks; 0: it adds them */
    double cost_scale; /* time of encoding and decoding on this engine / on the host; 0 means 1 */
};

/* The expected seconds of a message in this format (bitmap, coo or hybrid): its bytes over the link, and encoding and
 * decoding. From constants, never from a clock, so that runs can be repeated. < 0 if pici_policy_bytes is 0. */
double pici_policy_seconds(enum pici_format, enum pici_dtype, const uint64_t *elements, const uint64_t *nonzeros,
                           int blocks, const struct policy_auto *);

/* Whether a message has less than a tile of elements in all, and crosses the link dense in less time than coding an
 * empty tile takes. That is the least time for coding a part of a tile. Then AUTO sends it dense. */
int pici_policy_tiny(enum pici_dtype, const uint64_t *elements, int blocks, const struct policy_auto *);

/* The format of a sparse message: `format` itself. For AUTO the one of bitmap, coo and hybrid with the least expected
 * time (the lowest number of several), or dense if that has no more bytes. */
enum pici_format pici_policy_format(enum pici_format, enum pici_dtype, const uint64_t *elements,
                                    const uint64_t *nonzeros, int blocks, const struct policy_auto *);

/* ---- packed messages
 *
 * A packed block has the values of a hybrid or a dense block in fewer bytes, which costs time for each byte on both
 * sides. So packing pays where the link is slower than a break-even bandwidth. That depends only on the dtype, the
 * speed of the kernels, and how well the values pack, not on the number of zeros. */

/* The slowest kernels for packed blocks that a rank of the call has. */
enum policy_kernels { POLICY_PORTABLE, POLICY_AVX2, POLICY_AVX512, POLICY_KERNELS };

struct policy_packing {
    enum pici_packing pack; /* AUTO or PLANES; else nothing is packed */
    enum policy_kernels kernels;
    double bandwidth[POLICY_LINKS]; /* bytes per second; 0: not known, and then AUTO does not pack */
    double more[2]; /* measured: additional seconds for a packed byte of f32, to encode and add [0], and to encode and
                     * decode [1]; 0: not measured */
};

/* The packed size of this many values. ratio: packed bytes to bytes of other values of this kind; 0: unknown. Values
 * that do not pack, and integers, keep their size. */
double pici_policy_packed(enum pici_dtype, double values, double ratio);

/* Whether to pack a message with this many values and this format over this link. gather: the receiver decodes the
 * values; else it adds them. */
int pici_policy_packs(const struct policy_packing *, enum pici_format, enum pici_dtype, double values, enum policy_link,
                      int gather, double ratio);

/* Additional seconds for a byte of packed values with these kernels instead of AVX-512; may be below 0. */
double pici_policy_slower(enum policy_kernels, enum pici_format unpacked, enum pici_dtype, int gather);

/* The size of the longest block of this many elements in any format; 0: more than size_t holds. */
size_t pici_policy_longest(enum pici_dtype, uint64_t elements);

/* Limits of early data (early.h): bytes of a call, and of its longest message in any format. Up to these the time of a
 * message hardly depends on its length, so fewer messages are faster. */
enum { EARLY_DATA = 16 << 10, EARLY_MESSAGE = 33 << 10 };

/* Whether this many ranks may have early data: a power of two. */
static inline int pici_early_ranks(int ranks)
{
    return ranks > 1 && (ranks & (ranks - 1)) == 0;
}

/* Whether the data of an all-reduce of this many elements may travel with the call agreement, by its size. */
int pici_early_fits(int ranks, enum pici_dtype, uint64_t elements);

#endif
