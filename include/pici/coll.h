/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives for buffers that are mostly zero: all-gather, reduce-scatter, all-reduce, broadcast and all-to-all among
 * the ranks of a communicator.
 *
 * A rank sends each message as a sparse or a dense block, whichever it expects to take less time at the message's
 * density. Floats may be packed. This choice does not change results: they are bit-identical to dense messages with the
 * same algorithm, and all ranks end with identical bytes.
 *
 * Calls are collective: all ranks of the communicator make them in the same order, with the same count, dtype, op and
 * algorithm. A call returns the same status on all ranks, unless ranks can no longer exchange messages. Algorithms,
 * tuning and guarantees: docs/reference/collectives.md.
 *
 * Only one thread may use a communicator at a time. An error inside a collective breaks the communicator: every later
 * collective returns PICI_E_BROKEN. You can only read a broken communicator's error, rank and size, and free it. */
#ifndef PICI_COLL_H
#define PICI_COLL_H

#include "pici/pici.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pici_comm;
struct pici_request;

/* Operations. f16, bf16 and f8 are reduced in f32 and rounded to nearest even after every step; integers wrap. A sum of
 * floats is (+0) + a + b + ..., in the order of the algorithm, also in place, and with one rank. So SUM and AVG never
 * give -0.0, and their NaNs are quiet. MIN and MAX keep the sign of zeros, and so does all-gather by default
 * (opts->zeros). */
enum pici_op {
    PICI_SUM = 0,
    PICI_AVG = 1, /* the sum, divided by the number of ranks at the end. Integers truncate toward zero; a float that
                   * becomes zero is +0.0 */
    PICI_MIN = 2, /* NaN if either is NaN; -0 < +0 */
    PICI_MAX = 3
};

/* Algorithms (docs/reference/algorithms.md). AUTO chooses by the call (collective, count, dtype), the number of ranks,
 * the node map and settings that are the same on all ranks. With a tune file (PICI_TUNE) or hints, it also uses these,
 * and the densities that all ranks agreed on in earlier calls. It uses neither a clock nor the data of one rank, so all
 * ranks and all runs make the same choice. SPLIT gathers as RECURSIVE for up to 32 KiB a rank, and as RING for more. */
enum pici_algorithm {
    PICI_ALGO_AUTO = 0,
    PICI_ALGO_RING = 1,       /* p - 1 steps a phase; messages go to the neighbour */
    PICI_ALGO_RECURSIVE = 2,  /* ceil(log2 p) steps a phase, for any p: recursive halving, then recursive doubling, on a
                               * circulant graph */
    PICI_ALGO_SPLIT = 3,      /* p - 1 steps; each contribution goes straight to the rank that sums it */
    PICI_ALGO_DOUBLING = 4,   /* all-reduce only. floor(log2 p) exchanges of all of the data; two steps more if p is not
                               * a power of two */
    PICI_ALGO_NODES_RING = 5, /* two levels: inside nodes, and between them as RING */
    PICI_ALGO_NODES_RECURSIVE = 6 /* inside nodes, and between them as RECURSIVE */
};

/* The name of an algorithm, as the environment variable PICI_ALGORITHM takes it: "auto", "ring", ...; NULL if there is
 * no such algorithm. Static. Algorithms are numbered from 0 without gaps. */
PICI_API const char *pici_algorithm_name(enum pici_algorithm);

/* What a call did on this rank. Initialize with PICI_COLL_STATS_INIT. The library writes all members but size when the
 * call ends, even on errors. If the caller's struct is smaller than the library's, it writes only the caller's members.
 * Until 0.2 the arrays had no spare entries. The library recognizes callers of those versions by their size and fills
 * the struct that they know. */
struct pici_coll_stats {
    size_t size;
    uint64_t wire_bytes;                  /* bytes of all messages sent, prefixes and agreement rounds included */
    uint64_t dense_bytes;                 /* the bytes of the same messages if all were dense blocks of the elements */
    uint64_t sends[PICI_FORMATS_ROOM];    /* blocks sent or forwarded, by enum pici_format */
    double encode_s;                      /* seconds: counting nonzeros, encoding, assembling messages */
    double decode_s;                      /* seconds: adding and decoding */
    double wait_s;                        /* seconds: waiting in pici_wait or a blocking call, agreement rounds too */
    uint64_t tiles[PICI_CONTAINERS_ROOM]; /* tiles of hybrid blocks sent or forwarded, by enum pici_container */
    uint64_t inter_bytes;                 /* the part of wire_bytes that went to other nodes */
    uint64_t events; /* elements that this rank quantized with a lossy codec, counted once each time. If several ranks
                      * quantize the same sum, only the lowest counts it */
    union {
        double quantize_s; /* seconds of encode_s: quantizing elements */
        double narrow_s;   /* deprecated: the name until version 0.3 */
    };
    union {
        double dequantize_s; /* seconds of decode_s: dequantizing. On a GPU: only launching it */
        double widen_s;      /* deprecated: the name until version 0.3 */
    };
    uint64_t nonfinite; /* buckets (QSGD), units (ZFP) or elements (CAST) that were not finite */
    double lost;        /* squared error: the sum of (x - D(x))^2 over the events, where x is the element and D(x) its
                         * decoded value; only where both are finite */
};
#define PICI_COLL_STATS_INIT                                                                                           \
    {                                                                                                                  \
        sizeof(struct pici_coll_stats), 0, 0, {0}, 0, 0, 0, {0}, 0, 0, {0}, {0}, 0, 0                                  \
    }

/* Tuning: parameters of all calls on a communicator. They start with the environment's values when the communicator is
 * made, or else with the library's defaults. Each member's comment gives the value that leaves the parameter unchanged
 * ("leave") and the default. Thresholds and bandwidths decide between sparse and dense:
 *
 *   A rank sends a message dense if its threshold is > 0 and its sparsity (the fraction of zero elements) is at most
 *   the threshold. After a dense message, the rank may estimate the sparsity of the slice's later messages instead of
 *   counting. A threshold of 1 or more makes all messages dense; a threshold of 0 makes none dense by this rule.
 *   Defaults of inter, intra and ag: 0.6, 0.7, 0.5 for format COO, else 0.5, 0.6, 0.1.
 *
 *   A message that is not dense by this rule has the requested format. AUTO takes the format among bitmap, coo and
 *   hybrid with the least estimated time: bytes divided by the link's bandwidth, plus the estimated time to encode and
 *   decode. If dense takes no more bytes than that format, AUTO sends it dense.
 *
 * enum pici_packing decides whether messages of floats are also packed (PICI_PACKED, one level). */
enum pici_packing {
    PICI_PACKING_UNCHANGED = 0, /* leave */
    PICI_PACKING_AUTO = 1,      /* where packing should take less time, if the link's bandwidth is known */
    PICI_PACKING_NONE = 2,      /* never */
    PICI_PACKING_PLANES = 3     /* every message of floats whose format is AUTO or hybrid; for tests */
};

/* How an all-reduce cuts the vector into segments, one for each rank. Evenly: all ranks own equally many elements.
 * Balanced: all ranks get about equally many nonzeros. Balancing changes the order of additions, and so the rounding of
 * floats. See docs/explanation/messages.md. */
enum pici_balance {
    PICI_BALANCE_UNCHANGED = 0, /* leave */
    PICI_BALANCE_AUTO = 1,      /* streams of integers (pici/stream.h): balanced if even segments would give one rank
                                 * more than 5/4 of the mean. All else: evenly */
    PICI_BALANCE_ON = 2,        /* balanced wherever possible */
    PICI_BALANCE_OFF = 3        /* evenly */
};

struct pici_tune {
    size_t size; /* PICI_TUNE_INIT */

    /* must be the same on all ranks */
    enum pici_algorithm algorithm; /* used for those collectives that it supports; AUTO: leave. Default: AUTO */
    int window;                    /* slices in flight, 1 to 64; 0: leave. Default: 4 */
    uint64_t slice_bytes; /* dense bytes of a message; 0: leave. Default: 1 MiB, over NCCL 8 MiB, over sockets of one
                           * node 256 KiB */

    /* may differ between ranks */
    enum pici_format format; /* of sparse messages; AUTO: leave. Default: AUTO */
    unsigned formats;        /* AUTO's choices besides dense: bits 1 << enum pici_format; 0: leave. Default: all */
    float inter_threshold;   /* for reducing to another node; < 0: leave */
    float intra_threshold;   /* for reducing inside a node; < 0: leave */
    float ag_threshold;      /* for broadcast, all-gather, and that phase of all-reduce; < 0: leave */
    int checksum;           /* > 0: an XXH64 in each block, which receivers check; < 0: none; 0: leave. Default: none */
    double inter_bandwidth; /* of the link to another node, bytes per second; 0: leave. Default: 1.25e8 */
    double intra_bandwidth; /* of the link inside a node; 0: leave. Default: 5e9 */
    int timeout_ms;         /* a call fails after this time without progress; < 0: never; 0: leave. Default: 60000 */
    int history; /* the same on all ranks. > 0: AUTO uses the densities of earlier calls; < 0: it does not; 0: leave.
                  * Default: it does. No effect without a tune file or a hint */
    enum pici_packing pack;    /* may differ between ranks. Default: AUTO */
    enum pici_balance balance; /* the same on all ranks. Default: AUTO */
};
#define PICI_TUNE_INIT                                                                                                 \
    {                                                                                                                  \
        sizeof(struct pici_tune), PICI_ALGO_AUTO, 0, 0, PICI_AUTO, 0, -1, -1, -1, 0, 0, 0, 0, 0,                       \
            PICI_PACKING_UNCHANGED, PICI_BALANCE_UNCHANGED                                                             \
    }

/* Change the parameters of later calls on a communicator. The call is local, but members that must be the same on all
 * ranks must be changed on all. On an error nothing changes.
 * PICI_E_ARG: null, or a value out of range. PICI_E_UNSUPPORTED: an algorithm, a format or a member that this version
 * does not have. PICI_E_BROKEN: the communicator is broken, or requests are in flight. */
PICI_API enum pici_status pici_comm_tune(struct pici_comm *, const struct pici_tune *);

/* Lossy codecs: how a call rounds the elements that it sends. No other option is lossy, and no environment variable
 * selects a codec. docs/explanation/values.md describes their effect on results, formats/values.md their arithmetic. */
enum pici_value_codec {
    PICI_VALUES_EXACT = 0, /* no rounding */
    PICI_VALUES_CAST = 1,  /* to a narrower float. f32, f64; all operations */
    PICI_VALUES_QSGD = 2,  /* to 3, 15 or 255 levels of a bucket's scale. f32, f16, bf16, f64; SUM, AVG, all-gather */
    PICI_VALUES_ZFP = 3    /* by libzfp, for smooth fields. f32, f64; SUM, AVG, all-gather. PICI_E_UNSUPPORTED if the
                            * library was built without libzfp, or for buffers in GPU memory */
};
enum pici_norm {
    PICI_NORM_MAX = 0, /* a bucket's scale is its largest magnitude */
    PICI_NORM_L2 = 1   /* its 2-norm */
};
enum pici_rounding {
    PICI_ROUND_RANDOM = 0, /* up or down at random; unbiased */
    PICI_ROUND_NEAREST = 1 /* less error; use it with a residual */
};

/* A lossy codec with its parameters. 0 stands for the default of each member; members that the codec does not use are
 * ignored. All but `residual` must be the same on all ranks.
 *   PICI_E_ARG           size below the first version's, or a member out of range
 *   PICI_E_UNSUPPORTED   an unknown codec or member, or a dtype or operation that the codec does not have
 * CAST and QSGD give the same bits in GPU memory as in host memory. If any rank passes GPU buffers with ZFP, the call
 * ends with PICI_E_UNSUPPORTED on all ranks. */
struct pici_values {
    size_t size; /* PICI_VALUES_INIT */
    enum pici_value_codec codec;
    unsigned phases;             /* messages to quantize. 1: those that reduce (all in DOUBLING); 2: those that gather;
                                  * 3 or 0: both */
    enum pici_dtype cast;        /* CAST: PICI_BF16 (default) or PICI_F16 for f32; PICI_F32 (default) for f64 */
    int bits;                    /* QSGD: bits of an element: 2, 4 or 8 (default) */
    enum pici_norm norm;         /* QSGD */
    enum pici_rounding rounding; /* QSGD */
    uint32_t bucket;             /* QSGD: elements that share a scale, a power of two, 64 to 4096; default 1024 */
    uint64_t seed;               /* QSGD, random rounding: the same seed gives the same results */
    double rate;                 /* ZFP: bits of an element; from 2.25 (f32), 3 (f64) in 1-D, and less in 2-D and 3-D,
                                  * to 32, 64. One of rate and tolerance is > 0, the other 0 */
    double tolerance;            /* ZFP: the greatest absolute error of each encoding */
    uint32_t nx, ny;             /* ZFP: elements of a row, rows of a plane; both 0: 1-D; ny 0: 2-D. The count of a call
                                  * must be a multiple of nx, and of nx * ny */
    void *residual; /* NULL, or an array to which the library adds this rank's quantization errors. It has the length of
                     * send and its kind of memory, and overlaps no other buffer */
};
#define PICI_VALUES_INIT                                                                                               \
    {                                                                                                                  \
        sizeof(struct pici_values), PICI_VALUES_EXACT, 0, (enum pici_dtype)0, 0, PICI_NORM_MAX, PICI_ROUND_RANDOM, 0,  \
            0, 0, 0, 0, 0, NULL                                                                                        \
    }

/* Options of one call. NULL stands for PICI_COLL_OPTS_INIT. A member marked T overrides the member of struct pici_tune
 * with the same name for this call. The value that means "leave" there means "use the communicator's" here. New
 * programs should use pici_comm_tune. A member marked = must be the same on all ranks. */
struct pici_coll_opts {
    size_t size;
    enum pici_algorithm algorithm; /* T =. If AUTO here and in the tuning, the library chooses */
    enum pici_format format;       /* T */
    float inter_threshold;         /* T */
    float intra_threshold;         /* T */
    float ag_threshold;            /* T */
    int timeout_ms;                /* T */
    struct pici_coll_stats *stats; /* or NULL; written when the call ends */
    int checksum;                  /* T */
    uint64_t slice_bytes;          /* T = */
    int window;                    /* T = */
    void *scratch; /* NULL, or memory to use instead of the communicator's, with any alignment. pici_comm_scratch gives
                    * its size. The library uses it until the call ends. Over MPI after PICI_E_TIMEOUT, it uses it until
                    * MPI_Finalize: messages may still arrive in it */
    size_t scratch_bytes;
    double inter_bandwidth; /* T */
    double intra_bandwidth; /* T */
    unsigned formats;       /* T */
    int unused;             /* never read: padding in the struct of 0.1 */
    enum pici_zeros zeros;  /* =. For all-gather, all-gatherv and broadcast. The default, PICI_ZEROS_EXACT, keeps all
                             * bits. With PICI_ZEROS_BY_VALUE a -0.0 of a float dtype becomes +0.0, and takes no space
                             * in sparse messages. No effect on integers, or on SUM and AVG, which are always by value.
                             * MIN and MAX keep all bits: PICI_ZEROS_BY_VALUE is PICI_E_UNSUPPORTED */
    union {
        int native; /* > 0: the call may use the dense collective of the transport's library (MPI_Allreduce,
                     * ncclAllReduce, ...), whose result may have other bits. < 0: it may not. 0: as the environment
                     * variable PICI_NATIVE says, by default not. docs/reference/collectives.md has the conditions and
                     * the time limit */
        int vendor; /* deprecated: the name until version 0.3 */
    };
    double density; /* =. A hint for AUTO: the fraction of nonzero elements in one rank's data, 0 to 1; 0: unknown.
                     * docs/reference/algorithms.md says when AUTO uses it */
    double latency; /* =. A hint for AUTO: seconds that a short message takes; 0: 50e-6 */
    int agree; /* =. For calls on neighbourhood plans (pici/neighbor.h). > 0: the call ends with a round in which all
                * ranks learn whether it succeeded everywhere; 0: no such round. Other calls always have it */
    unsigned reserved;                /* 0 */
    const struct pici_values *values; /* =, except its residual. The codec that rounds the elements of messages; NULL:
                                       * results are exact. The library copies it, and uses the residual until the call
                                       * ends */
    enum pici_packing pack;           /* T. Messages of a lossy codec, and messages from or to GPU memory, are never
                                       * packed */
    enum pici_balance balance;        /* T =. For all-reduce; no effect with a lossy codec */
};
#define PICI_COLL_OPTS_INIT                                                                                            \
    {                                                                                                                  \
        sizeof(struct pici_coll_opts), PICI_ALGO_AUTO, PICI_AUTO, -1, -1, -1, 0, NULL, 0, 0, 0, NULL, 0, 0, 0, 0, 0,   \
            PICI_ZEROS_EXACT, {0}, 0, 0, 0, 0, NULL, PICI_PACKING_UNCHANGED, PICI_BALANCE_UNCHANGED                    \
    }

/* The collectives. Counts are elements, here called [count]. Buffers are in host byte order and may have any alignment
 * (GPU memory: pici/cuda.h). The library never writes to send. send and recv must not overlap, except in place:
 *   all_gather      send [sendcount]               recv [ranks * sendcount]   in place: send == recv + rank*sendcount
 *   reduce_scatter  send [ranks * recvcount]       recv [recvcount]           in place: recv == send + rank*recvcount
 *   all_reduce      send [count]                   recv [count]               in place: send == recv
 * recv is unspecified unless PICI_OK is returned.
 *
 * Errors found before anything is sent; they do not break the communicator:
 *   PICI_E_ARG          null communicator, a size in opts, stats or values below the first version's, or a member of
 *                       values out of range
 *   PICI_E_UNSUPPORTED  a dtype, op, algorithm, format or option that this version does not have, or an algorithm that
 *                       cannot do this collective
 *   PICI_E_BROKEN       an earlier call failed
 * Errors that all ranks return; they break the communicator:
 *   PICI_E_ARG          on some rank: null buffer, overlap (of a residual too), more bytes than an address space
 *                       holds, an option out of range
 *   PICI_E_PEER         ranks made different calls or run different versions of the library, or a peer is gone
 *   PICI_E_UNSUPPORTED  the transport cannot carry this algorithm's messages
 *   PICI_E_SPACE        opts->scratch is too small on some rank
 *   PICI_E_NOMEM        an allocation failed on some rank
 *   PICI_E_CORRUPT, _CHECKSUM, _VERSION, _UNSUPPORTED   a rank received an invalid message
 *   PICI_E_TIMEOUT, _TRANSPORT            no progress, or the transport failed. Ranks that can no longer reach each
 *                                         other may return different statuses
 *   PICI_E_DEVICE, _UNSUPPORTED           with buffers in GPU memory (pici/cuda.h)
 * pici_comm_error describes what broke the communicator. */
PICI_API enum pici_status pici_all_gather(const void *send, void *recv, uint64_t sendcount, enum pici_dtype,
                                          struct pici_comm *, const struct pici_coll_opts *);
PICI_API enum pici_status pici_reduce_scatter(const void *send, void *recv, uint64_t recvcount, enum pici_dtype,
                                              enum pici_op, struct pici_comm *, const struct pici_coll_opts *);
PICI_API enum pici_status pici_all_reduce(const void *send, void *recv, uint64_t count, enum pici_dtype, enum pici_op,
                                          struct pici_comm *, const struct pici_coll_opts *);

/* Copy the data of one rank to all. buf [count] on every rank; the root's is only read, except as below. count, dtype
 * and root must be the same on all ranks. All ranks end with the root's bits. With opts->zeros PICI_ZEROS_BY_VALUE a
 * -0.0 becomes +0.0, in the root's buf too. Options and errors as above, but: opts->values is PICI_E_UNSUPPORTED;
 * density, latency and native have no effect. A transport with the struct of 0.1 is PICI_E_UNSUPPORTED. PICI_E_ARG
 * also: root is not a rank. */
PICI_API enum pici_status pici_broadcast(void *buf, uint64_t count, enum pici_dtype, int root, struct pici_comm *,
                                         const struct pici_coll_opts *);

/* All-gather of contributions with different lengths, as MPI_Allgatherv.
 *   send        [sendcount]     may be NULL without elements
 *   recv                        rank i's contribution becomes elements displs[i] to displs[i] + recvcounts[i] - 1. All
 *                               other elements stay unchanged
 *   recvcounts  [ranks]         elements that each rank sends; may be 0. The same on all ranks; this rank's entry is
 *                               sendcount
 *   displs      [ranks]         elements, in any order; contributions must not overlap. May differ from rank to rank.
 *                               Entries of empty contributions are ignored. NULL: contributions follow each other
 *                               without gaps, in the order of ranks
 * send and recv must not overlap, except in place: send == recv + displs[rank]. The arrays must stay valid until the
 * call ends. Options and errors as for all_gather, but: opts->values is PICI_E_UNSUPPORTED; density, latency and native
 * have no effect. PICI_E_ARG also: recvcounts is NULL, or this rank's entry is not sendcount. PICI_E_PEER also: ranks
 * pass different recvcounts. */
PICI_API enum pici_status pici_all_gatherv(const void *send, uint64_t sendcount, void *recv, const uint64_t *recvcounts,
                                           const uint64_t *displs, enum pici_dtype, struct pici_comm *,
                                           const struct pici_coll_opts *);

/* All-to-all of runs with different lengths, as MPI_Alltoallv. Elements sdispls[i] to sdispls[i] + sendcounts[i] - 1 of
 * send go to rank i. The run from rank i becomes elements rdispls[i] to rdispls[i] + recvcounts[i] - 1 of recv. All
 * other elements stay unchanged.
 *   sendcounts, recvcounts  [ranks]  elements; may be 0. recvcounts[i] must equal the entry for this rank in rank i's
 *                                    sendcounts
 *   sdispls, rdispls        [ranks]  elements, in any order; received runs must not overlap. Entries of empty runs are
 *                                    ignored. NULL: runs follow each other without gaps, in the order of ranks
 * send and recv must not overlap, from the first to the last of their elements: there is no in-place call. Either may
 * be NULL if it has no elements. The arrays must stay valid until the call ends.
 * Options and errors as for all_gather, with these differences. PICI_E_UNSUPPORTED: algorithm and zeros other than the
 * default, opts->values, a transport with the struct of 0.1. Density, latency, native and scratch have no effect.
 * PICI_E_PEER also: recvcounts[i] is not what rank i sends; the error names the two ranks, on all ranks. PICI_E_ARG
 * also: sendcounts or recvcounts is NULL, or they differ in this rank's entry for itself. If a rank has no memory for
 * the messages, it returns PICI_E_NOMEM. The others return PICI_E_PEER, or PICI_E_TIMEOUT over a transport that does
 * not notify them. */
PICI_API enum pici_status pici_all_to_allv(const void *send, const uint64_t *sendcounts, const uint64_t *sdispls,
                                           void *recv, const uint64_t *recvcounts, const uint64_t *rdispls,
                                           enum pici_dtype, struct pici_comm *, const struct pici_coll_opts *);

/* The same collectives, nonblocking. The call returns at once. The thread that calls pici_test or pici_wait does the
 * work, inside these calls. Several requests may be in flight on a communicator. They run in the order in which you
 * started them, even if you wait for a later one first. The buffers, *opts->stats and opts->scratch must stay valid
 * until the request ends; opts itself is copied.
 * *request is NULL unless the call returns PICI_OK. Errors returned here: those that do not break the communicator, and
 * PICI_E_NOMEM. The pici_test or pici_wait that ends the request returns all other errors. */
PICI_API enum pici_status pici_all_gather_start(const void *send, void *recv, uint64_t sendcount, enum pici_dtype,
                                                struct pici_comm *, const struct pici_coll_opts *,
                                                struct pici_request **request);
PICI_API enum pici_status pici_reduce_scatter_start(const void *send, void *recv, uint64_t recvcount, enum pici_dtype,
                                                    enum pici_op, struct pici_comm *, const struct pici_coll_opts *,
                                                    struct pici_request **request);
PICI_API enum pici_status pici_all_reduce_start(const void *send, void *recv, uint64_t count, enum pici_dtype,
                                                enum pici_op, struct pici_comm *, const struct pici_coll_opts *,
                                                struct pici_request **request);

PICI_API enum pici_status pici_broadcast_start(void *buf, uint64_t count, enum pici_dtype, int root, struct pici_comm *,
                                               const struct pici_coll_opts *, struct pici_request **request);
PICI_API enum pici_status pici_all_gatherv_start(const void *send, uint64_t sendcount, void *recv,
                                                 const uint64_t *recvcounts, const uint64_t *displs, enum pici_dtype,
                                                 struct pici_comm *, const struct pici_coll_opts *,
                                                 struct pici_request **request);
PICI_API enum pici_status pici_all_to_allv_start(const void *send, const uint64_t *sendcounts, const uint64_t *sdispls,
                                                 void *recv, const uint64_t *recvcounts, const uint64_t *rdispls,
                                                 enum pici_dtype, struct pici_comm *, const struct pici_coll_opts *,
                                                 struct pici_request **request);

/* Make progress without waiting. If the collective has ended: sets *done = 1, frees *request, sets it to NULL, and
 * returns the collective's status. Otherwise: sets *done = 0 and returns PICI_OK. If *request is NULL: *done = 1 and
 * PICI_OK. PICI_E_ARG: request or done is NULL. */
PICI_API enum pici_status pici_test(struct pici_request **request, int *done);

/* Wait until the collective has ended. Frees *request, sets it to NULL, and returns the collective's status. If
 * *request is NULL: PICI_OK. PICI_E_ARG: request is NULL. */
PICI_API enum pici_status pici_wait(struct pici_request **request);

/* As pici_wait, but for at most about timeout_ms milliseconds; < 0: without a limit. If the collective has ended: *done
 * = 1. Otherwise: *done = 0 and PICI_OK; the next call of this function, pici_wait or pici_test continues the
 * collective. So a program can handle other events in between, such as signals.
 * PICI_E_ARG: request or done is NULL. */
PICI_API enum pici_status pici_wait_for(struct pici_request **request, int timeout_ms, int *done);

/* Make communicators among threads of this process: comms[ranks]. comms[r] is rank r's; only one thread may use it at a
 * time. The caller frees each. All are NULL unless the call returns PICI_OK.
 * PICI_E_ARG: null, ranks < 1 or too many, or an environment variable with an invalid value (pici_comm_error(NULL)
 * names it). PICI_E_NOMEM. PICI_E_IO: the file of PICI_TRACE cannot be written. */
PICI_API enum pici_status pici_comm_threads(struct pici_comm **comms, int ranks);

/* Combine two communicators into one with two levels: `inner` inside nodes, over threads, sockets, MPI or NCCL; `outer`
 * between nodes, over any other transport. A message goes over inner if its receiver is in inner, else over outer. All
 * algorithms work. Those on two levels (PICI_ALGO_NODES_*) do each step over one of the two.
 *   outer  joins all ranks. The new communicator takes its rank and size
 *   inner  joins the ranks of this rank's node, in any order. Each rank of outer is in exactly one inner communicator.
 *          A rank alone in its node has an inner communicator of one rank
 * The inner communicators give the node map. pici_comm_set_nodes may change it later; messages still take the same
 * route. The new communicator keeps the bandwidths that inner (intra) and outer (inter) know, and their support for GPU
 * memory. All other settings come from the environment.
 *
 * Collective: all ranks make the call at about the same time, with idle communicators. Each returns the same status,
 * within the timeout of outer (PICI_TIMEOUT_MS). On PICI_OK the new communicator owns both: do not use or free them
 * again. Otherwise the caller still frees both; a communicator over which the ranks could not agree is broken.
 *
 * If one of the two takes only messages in GPU memory (NCCL), so does the new one. It copies messages of the other
 * level through host memory. If either level notices that a rank died, calls on both end. NCCL inside nodes ends some 2
 * s after outer notices. NCCL on a level was tested with an emulation, never on a GPU.
 *
 * PICI_E_ARG: null, or the two are one. PICI_E_PEER: a rank of outer is not in exactly one inner communicator, makes
 * another call, or is gone. PICI_E_BROKEN: a communicator is broken, or has requests in flight. PICI_E_UNSUPPORTED:
 * both are over NCCL, only some ranks' inner ones are, or a transport has the struct of 0.1. PICI_E_TIMEOUT,
 * PICI_E_NOMEM, PICI_E_TRANSPORT, PICI_E_IO. pici_comm_error(NULL) gives details. If out or outer is null, or outer is
 * not idle or has no memory, only that rank returns at once; the others wait for it. */
PICI_API enum pici_status pici_comm_levels(struct pici_comm **out, struct pici_comm *inner, struct pici_comm *outer);

/* Set which ranks share a node: node_of[ranks]. Ranks with the same number share a node; the numbers are arbitrary. The
 * call is local and copies the array. All ranks must pass the same array before their next collective. The map
 * determines the order of ranks in an algorithm, and which thresholds and bandwidths apply. PICI_E_ARG: null.
 * PICI_E_BROKEN: the communicator is broken, or requests are in flight. */
PICI_API enum pici_status pici_comm_set_nodes(struct pici_comm *, const int *node_of);

/* A description of the first failure that broke the communicator, with its rank if known. Until there is one: of the
 * last neighbourhood plan that was not made; "" if there was none. Valid until the communicator is freed. For NULL: why
 * this thread's last attempt to make a communicator failed. */
PICI_API const char *pici_comm_error(const struct pici_comm *);

/* This rank, from 0, and the number of ranks. For NULL: -1 and 0. */
PICI_API int pici_comm_rank(const struct pici_comm *);
PICI_API int pici_comm_size(const struct pici_comm *);

/* Scratch memory. A communicator allocates what a call needs, keeps it, and enlarges it for a larger call.
 * pici_comm_scratch returns the bytes that a call with these arguments needs (count as in the call; 0 if an argument is
 * invalid). To avoid large allocations inside a call, reserve these bytes with pici_comm_reserve, or pass your own
 * memory in opts->scratch. The call still allocates small tables. pici_comm_reserve: PICI_E_NOMEM, PICI_E_ARG (null),
 * PICI_E_BROKEN (the communicator is broken, or requests are in flight). */
enum pici_collective {
    PICI_ALL_GATHER = 1,
    PICI_REDUCE_SCATTER = 2,
    PICI_ALL_REDUCE = 3,
    PICI_BROADCAST = 5,
    PICI_ALL_GATHERV = 6, /* in pici_comm_scratch, count is the largest of recvcounts */
    PICI_ALL_TO_ALLV = 7  /* pici_comm_scratch: 0, since the size depends on the counts of all ranks */
};
PICI_API size_t pici_comm_scratch(const struct pici_comm *, enum pici_collective, uint64_t count, enum pici_dtype,
                                  enum pici_op, const struct pici_coll_opts *);
PICI_API enum pici_status pici_comm_reserve(struct pici_comm *, size_t bytes);

/* Free a communicator. Not collective. Requests in flight end with PICI_E_BROKEN (pici_wait still frees them), and
 * peers see this rank as gone. After a fork, the child may call only this function; this does not affect the parent.
 * NULL is ignored. */
PICI_API void pici_comm_free(struct pici_comm *);

#ifdef __cplusplus
}
#endif
#endif
