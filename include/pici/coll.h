/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives for buffers that are mostly zero: all-gather, reduce-scatter, all-reduce, broadcast and all-to-all among
 * the ranks of a communicator.
 *
 * Each message is sent as a sparse block or as a dense one, whichever is expected to take less time at its density;
 * floats may be packed. This choice does not change results: they are bit-identical to those of the same algorithm with
 * dense messages only, and all ranks end with identical bytes.
 *
 * Calls are collective: all ranks of the communicator make them in the same order, with the same count, dtype, op and
 * algorithm. A call returns the same status on all ranks, unless ranks can no longer exchange messages. Algorithms,
 * tuning and guarantees: docs/reference/collectives.md.
 *
 * Only one thread may use a communicator at a time. An error inside a collective breaks the communicator: every later
 * collective returns PICI_E_BROKEN. All that can be done with a broken communicator is to read its error, rank and
 * size, and to free it. */
#ifndef PICI_COLL_H
#define PICI_COLL_H

#include "pici/pici.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pici_comm;
struct pici_request;

/* Operations. f16, bf16 and f8 are reduced in f32 and rounded to nearest even after every step; integers wrap. A sum of
 * floats is (+0) + a + b + ..., in the order of the algorithm, also in place, and with one rank. So no result of SUM or
 * AVG is -0.0, and its NaNs are quiet. MIN and MAX keep the sign of zeros, and so does all-gather unless opts->zeros
 * says otherwise. */
enum pici_op {
    PICI_SUM = 0,
    PICI_AVG = 1, /* the sum, divided by the number of ranks at the end. Integers truncate toward zero; a float that
                   * becomes zero is +0.0 */
    PICI_MIN = 2, /* NaN if either is NaN; -0 < +0 */
    PICI_MAX = 3
};

/* Algorithms (docs/reference/algorithms.md). AUTO chooses by the call (collective, count, dtype), the number of
 * ranks, the node map and settings that are the same on all ranks; with a tune file (PICI_TUNE) or hints also by that
 * and by densities that all ranks agreed on in earlier calls. It uses neither a clock nor the data of one rank, so all
 * ranks make the same choice, and repeated runs do too. The all-gather phase of SPLIT is that of RECURSIVE
 * for up to 32 KiB a rank, and that of RING for more. */
enum pici_algorithm {
    PICI_ALGO_AUTO = 0,
    PICI_ALGO_RING = 1,       /* p - 1 steps a phase; messages go to the neighbour */
    PICI_ALGO_RECURSIVE = 2,  /* ceil(log2 p) steps a phase, for any p: recursive halving, then recursive doubling, on a
                              * circulant graph */
    PICI_ALGO_SPLIT = 3,      /* p - 1 steps; each contribution goes straight to the rank that sums it */
    PICI_ALGO_DOUBLING = 4,   /* all-reduce only. floor(log2 p) exchanges of all of the data; two steps more if p is not
                               * a power of two */
    PICI_ALGO_NODES_RING = 5, /* on two levels: inside nodes, and between them as RING */
    PICI_ALGO_NODES_RECURSIVE = 6 /* likewise, and between them as RECURSIVE */
};

/* The name of an algorithm, as the environment variable PICI_ALGORITHM takes it: "auto", "ring", ...; NULL if there is
 * no such algorithm. Static. Algorithms are numbered from 0 without gaps. */
PICI_API const char *pici_algorithm_name(enum pici_algorithm);

/* What a call did on this rank. Initialize with PICI_COLL_STATS_INIT. All members but size are written when the call
 * ends, also on errors. If the caller's struct is smaller than the library's, only its own members are written. Until
 * 0.2 the arrays had no room; callers of those versions, known by their size, get the struct that they had. */
struct pici_coll_stats {
    size_t size;
    uint64_t wire_bytes;                  /* bytes of all messages sent, prefixes and agreement rounds included */
    uint64_t dense_bytes;                 /* the bytes of the same messages if all were dense blocks of the elements */
    uint64_t sends[PICI_FORMATS_ROOM];    /* blocks sent, by enum pici_format; forwarded ones too */
    double encode_s;                      /* seconds: counting nonzeros, encoding, assembling messages */
    double decode_s;                      /* seconds: adding and decoding */
    double wait_s;                        /* seconds: waiting in pici_wait or a blocking call, agreement rounds too */
    uint64_t tiles[PICI_CONTAINERS_ROOM]; /* tiles of the hybrid blocks sent, by enum pici_container; forwarded too */
    uint64_t inter_bytes;                 /* those of wire_bytes that went to ranks of other nodes */
    uint64_t events; /* elements that this rank has quantized with a lossy codec, each as often as it was. If
                               * several ranks quantize the same sum, the lowest of them counts it */
    union {
        double quantize_s; /* seconds of encode_s: quantizing elements */
        double narrow_s;   /* deprecated: the name until version 0.3 */
    };
    union {
        double dequantize_s; /* seconds of decode_s: dequantizing them. Of a GPU's elements the time to begin that */
        double widen_s;      /* deprecated: the name until version 0.3 */
    };
    uint64_t nonfinite; /* buckets (QSGD), units (ZFP) or elements (CAST) that were not finite */
    double lost;        /* the sum over the events of (x - D(x))^2, x an element and D(x) what receivers decode,
                               * where both are finite */
};
#define PICI_COLL_STATS_INIT                                                                                           \
    {                                                                                                                  \
        sizeof(struct pici_coll_stats), 0, 0, {0}, 0, 0, 0, {0}, 0, 0, {0}, {0}, 0, 0                                  \
    }

/* Tuning: parameters of all calls on a communicator. Their initial values are those of the environment when the
 * communicator was made, or else the library's defaults. Each member's comment gives the value that leaves the
 * parameter unchanged ("leave") and the default. Thresholds and bandwidths decide between sparse and dense:
 *
 *   A message is sent dense if its threshold is > 0 and its sparsity (the fraction of zero elements) is at most the
 *   threshold. After a dense message, the sparsity of later ones of the same slice may be estimated instead of counted.
 *   A threshold of 1 or more makes all messages dense; a threshold of 0 makes none dense by this rule. Defaults of
 *   inter, intra and ag: 0.6, 0.7, 0.5 for format COO, else 0.5, 0.6, 0.1.
 *
 *   A message that is not dense by this rule has the format asked for. With AUTO it has the format among bitmap, coo
 *   and hybrid for which the estimated time is least: bytes divided by the link's bandwidth, plus an estimate of the
 *   time to encode and decode so many elements with so many nonzeros. If dense takes no more bytes than that format,
 *   AUTO sends it dense.
 *
 * A message of floats may be packed besides (PICI_PACKED, one level), as enum pici_packing says. */
enum pici_packing {
    PICI_PACKING_UNCHANGED = 0, /* leave */
    PICI_PACKING_AUTO = 1,      /* where that is expected to take less time, if the link's bandwidth is known */
    PICI_PACKING_NONE = 2,      /* never */
    PICI_PACKING_PLANES = 3     /* every message of floats whose format is AUTO or hybrid; for tests */
};

/* Who owns which elements in an all-reduce that cuts the vector into segments, one for each rank. Evenly, all own
 * equally many elements; balanced, all get about equally many nonzeros, wherever these are. That changes the order in
 * which contributions are added, and so how floats are rounded. docs/explanation/messages.md says more. */
enum pici_balance {
    PICI_BALANCE_UNCHANGED = 0, /* leave */
    PICI_BALANCE_AUTO = 1,      /* streams of integers (pici/stream.h): balanced, where evenly one rank would get more
                                 * than 5/4 of the mean. All else: evenly */
    PICI_BALANCE_ON = 2,        /* balanced, wherever that is possible */
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
    unsigned formats; /* formats that AUTO may choose besides dense: bits 1 << enum pici_format; 0: leave. Default: all
                       * of them */
    float inter_threshold;  /* for reducing to another node; < 0: leave */
    float intra_threshold;  /* for reducing inside a node; < 0: leave */
    float ag_threshold;     /* for broadcast, all-gather, and that phase of all-reduce; < 0: leave */
    int checksum;           /* > 0: an XXH64 in each block, which receivers check; < 0: none; 0: leave. Default: none */
    double inter_bandwidth; /* of the link to another node, bytes per second; 0: leave. Default: 1.25e8 */
    double intra_bandwidth; /* of the link inside a node; 0: leave. Default: 5e9 */
    int timeout_ms;         /* a call fails after so long without progress; < 0: never; 0: leave. Default: 60000 */
    int history; /* the same on all ranks. < 0: AUTO does not use the densities counted in earlier calls; > 0: it does;
                  * 0: leave. Default: it does. No effect without a tune file, and a hint of the density */
    enum pici_packing pack;    /* may differ between ranks. Default: AUTO */
    enum pici_balance balance; /* the same on all ranks. Default: AUTO */
};
#define PICI_TUNE_INIT                                                                                                 \
    {                                                                                                                  \
        sizeof(struct pici_tune), PICI_ALGO_AUTO, 0, 0, PICI_AUTO, 0, -1, -1, -1, 0, 0, 0, 0, 0,                       \
            PICI_PACKING_UNCHANGED, PICI_BALANCE_UNCHANGED                                                             \
    }

/* Change the parameters of later calls on a communicator. Not collective: the call is local, but the members that must
 * be the same on all ranks must be changed on all. On an error nothing is changed.
 * PICI_E_ARG: null, or a value out of range. PICI_E_UNSUPPORTED: an algorithm, a format or a member that this version
 * does not have. PICI_E_BROKEN: the communicator is broken, or requests are in flight. */
PICI_API enum pici_status pici_comm_tune(struct pici_comm *, const struct pici_tune *);

/* Lossy codecs: what the elements of a call are rounded to when they are sent. No other option loses anything, and
 * no environment variable selects a codec. docs/explanation/values.md: what they do to results; formats/values.md has
 * their arithmetic. */
enum pici_value_codec {
    PICI_VALUES_EXACT = 0, /* not at all */
    PICI_VALUES_CAST = 1,  /* to a narrower float. f32, f64; all operations */
    PICI_VALUES_QSGD = 2,  /* to 3, 15 or 255 levels of a bucket's scale. f32, f16, bf16, f64; SUM, AVG, all-gather */
    PICI_VALUES_ZFP = 3    /* by libzfp, for smooth fields. f32, f64; SUM, AVG, all-gather. PICI_E_UNSUPPORTED if the
                            * library was built without libzfp, or for buffers in GPU memory */
};
enum pici_norm {
    PICI_NORM_MAX = 0, /* a bucket's scale is its greatest magnitude */
    PICI_NORM_L2 = 1   /* its 2-norm */
};
enum pici_rounding {
    PICI_ROUND_RANDOM = 0, /* up or down at random, so that the mean is exact: unbiased */
    PICI_ROUND_NEAREST = 1 /* less error; use it with a residual */
};

/* A lossy codec with its parameters. 0 stands for the default of each member; members that the codec does not use are
 * ignored. All but `residual` must be the same on all ranks.
 *   PICI_E_ARG           size below that of the first version, or a member out of range
 *   PICI_E_UNSUPPORTED   an unknown codec or member, or a dtype or operation that the codec does not have
 * With buffers in GPU memory CAST and QSGD have the bits that they have in host memory. With ZFP a call that a rank
 * makes with such buffers ends with PICI_E_UNSUPPORTED on all ranks. */
struct pici_values {
    size_t size; /* PICI_VALUES_INIT */
    enum pici_value_codec codec;
    unsigned phases;             /* in which messages are quantized: 1 those that reduce (in DOUBLING all), 2 those that
                                  * gather; 3 or 0: both */
    enum pici_dtype cast;        /* CAST: PICI_BF16 (default) or PICI_F16 for f32; PICI_F32 (default) for f64 */
    int bits;                    /* QSGD: of an element: 2, 4 or 8 (default) */
    enum pici_norm norm;         /* QSGD */
    enum pici_rounding rounding; /* QSGD */
    uint32_t bucket;             /* QSGD: elements that share a scale, a power of two, 64 to 4096; default 1024 */
    uint64_t seed;               /* QSGD, random rounding: the same seed gives the same results */
    double rate;                 /* ZFP: bits of an element; from 2.25 (f32), 3 (f64) in 1-D, and less in 2-D and 3-D,
                                  * to 32, 64. One of rate and tolerance is > 0, the other 0 */
    double tolerance;            /* ZFP: the greatest absolute error of each encoding */
    uint32_t nx, ny;             /* ZFP: elements of a row, rows of a plane; both 0: 1-D; ny 0: 2-D. The count of a call
                                  * must be a multiple of nx, and of nx * ny */
    void *residual; /* what this rank's encodings lose is added to it; or NULL. As long as send, in its kind of memory,
                     * and apart from all other buffers */
};
#define PICI_VALUES_INIT                                                                                               \
    {                                                                                                                  \
        sizeof(struct pici_values), PICI_VALUES_EXACT, 0, (enum pici_dtype)0, 0, PICI_NORM_MAX, PICI_ROUND_RANDOM, 0,  \
            0, 0, 0, 0, 0, NULL                                                                                        \
    }

/* Options of one call. NULL stands for PICI_COLL_OPTS_INIT. A member marked T overrides, for this call, the member of
 * struct pici_tune with the same name. The value that means "leave" there means here: use the communicator's. New
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
    void *scratch; /* memory to use instead of the communicator's, with any alignment; or NULL. pici_comm_scratch gives
                    * the bytes needed. In use until the call ends; over MPI after PICI_E_TIMEOUT until MPI_Finalize,
                    * since messages may still arrive in it */
    size_t scratch_bytes;
    double inter_bandwidth; /* T */
    double intra_bandwidth; /* T */
    unsigned formats;       /* T */
    int unused;             /* never read: padding in the struct of 0.1 */
    enum pici_zeros zeros;  /* =. Of all-gather, all-gatherv and broadcast: with PICI_ZEROS_BY_VALUE a -0.0 of a float
                             * dtype becomes +0.0, and takes no room in sparse messages; the default, PICI_ZEROS_EXACT,
                             * keeps all bits. No effect on integers, and on SUM and AVG, which are always by value. MIN
                             * and MAX keep all bits: there PICI_ZEROS_BY_VALUE is PICI_E_UNSUPPORTED */
    union {
        int native; /* > 0: this call may be made as the dense collective of the transport's library (MPI_Allreduce,
                     * ncclAllReduce, ...), whose result may have other bits, and of whose time reference/collectives.md
                     * says who limits it. < 0: it may not. 0: as the environment variable PICI_NATIVE says, by default
                     * not. docs/reference/collectives.md says when it is */
        int vendor; /* deprecated: the name until version 0.3 */
    };
    double density; /* =. A hint for AUTO: the fraction of elements of one rank's data that are not zero, 0 to 1; 0: not
                     * known. docs/reference/algorithms.md says when it counts */
    double latency; /* =. A hint for AUTO: seconds from the begin of a short message to its end at the receiver; 0:
                     * 50e-6 */
    int agree; /* =. Of calls on neighbourhood plans (pici/neighbor.h): > 0: they end with a round in which all ranks
                * learn whether the call succeeded everywhere; 0: they do not. No effect on others, which always do */
    unsigned reserved;                /* 0 */
    const struct pici_values *values; /* = but for its residual. The codec that rounds the elements of messages; NULL:
                                       * results are exact. It is copied; the residual is in use until the call ends.
                                       * Calls on neighbourhood plans: PICI_E_UNSUPPORTED */
    enum pici_packing pack;           /* T. Messages that a lossy codec makes are not packed, nor is what goes to or
                                       * comes from a GPU's memory */
    enum pici_balance balance;        /* T =. Of all-reduces; no effect with a lossy codec */
};
#define PICI_COLL_OPTS_INIT                                                                                            \
    {                                                                                                                  \
        sizeof(struct pici_coll_opts), PICI_ALGO_AUTO, PICI_AUTO, -1, -1, -1, 0, NULL, 0, 0, 0, NULL, 0, 0, 0, 0, 0,   \
            PICI_ZEROS_EXACT, {0}, 0, 0, 0, 0, NULL, PICI_PACKING_UNCHANGED, PICI_BALANCE_UNCHANGED                    \
    }

/* The collectives. Counts are elements, here called [count]. Buffers are in host byte order and may have any
 * alignment (GPU memory: pici/cuda.h). send is not written. send and recv must not overlap, except in place:
 *   all_gather      send [sendcount]               recv [ranks * sendcount]   in place: send == recv + rank*sendcount
 *   reduce_scatter  send [ranks * recvcount]       recv [recvcount]           in place: recv == send + rank*recvcount
 *   all_reduce      send [count]                   recv [count]               in place: send == recv
 * recv is unspecified unless PICI_OK is returned.
 *
 * Errors found before anything is sent; they do not break the communicator:
 *   PICI_E_ARG          null communicator, a size in opts, stats or values below that of the first version, or a
 *                       member of values out of range
 *   PICI_E_UNSUPPORTED  a dtype, op, algorithm, format or option that this version does not have, or an algorithm that
 *                       cannot do this collective
 *   PICI_E_BROKEN       an earlier call failed
 * Errors that all ranks return; they break the communicator:
 *   PICI_E_ARG          on some rank: null buffer, overlap (of a residual too), more bytes than an address space
 *                       holds, an option out of range
 *   PICI_E_PEER         ranks made different calls, run different versions of the library, or a peer is gone
 *   PICI_E_UNSUPPORTED  the transport cannot carry this algorithm's messages
 *   PICI_E_SPACE        opts->scratch is too small on some rank
 *   PICI_E_NOMEM        an allocation failed on some rank
 *   PICI_E_CORRUPT, _CHECKSUM, _VERSION, _UNSUPPORTED   a rank received a message that is not valid
 *   PICI_E_TIMEOUT, _TRANSPORT            no progress, or a failure of the transport; ranks that can no longer reach
 *                                         each other may return different ones
 *   PICI_E_DEVICE, _UNSUPPORTED           with buffers in GPU memory (pici/cuda.h)
 * pici_comm_error describes what broke the communicator. */
PICI_API enum pici_status pici_all_gather(const void *send, void *recv, uint64_t sendcount, enum pici_dtype,
                                          struct pici_comm *, const struct pici_coll_opts *);
PICI_API enum pici_status pici_reduce_scatter(const void *send, void *recv, uint64_t recvcount, enum pici_dtype,
                                              enum pici_op, struct pici_comm *, const struct pici_coll_opts *);
PICI_API enum pici_status pici_all_reduce(const void *send, void *recv, uint64_t count, enum pici_dtype, enum pici_op,
                                          struct pici_comm *, const struct pici_coll_opts *);

/* Copy the data of one rank to all. buf [count] on every rank; the root's is only read, except as below. count, dtype
 * and root, a rank, must be the same on all ranks.
 * All ranks end with the root's bits. With opts->zeros PICI_ZEROS_BY_VALUE a -0.0 becomes +0.0, in the root's buf too.
 * Options and errors as above, but: opts->values is PICI_E_UNSUPPORTED; density, latency and native have no effect. A
 * transport with the struct of 0.1 is PICI_E_UNSUPPORTED; PICI_E_ARG also: there is no such root. */
PICI_API enum pici_status pici_broadcast(void *buf, uint64_t count, enum pici_dtype, int root, struct pici_comm *,
                                         const struct pici_coll_opts *);

/* All-gather of contributions that differ in length, as MPI_Allgatherv.
 *   send        [sendcount]     may be NULL without elements
 *   recv                        rank i's contribution becomes its elements displs[i] to displs[i] + recvcounts[i] - 1.
 *                               All others are left alone
 *   recvcounts  [ranks]         elements that each rank sends, 0 too: the same on all ranks; this rank's is sendcount
 *   displs      [ranks]         elements; in any order, but contributions must not overlap. May differ from rank to
 *                               rank. That of an empty contribution is not read. NULL: contributions lie one after the
 *                               other, in the order of ranks
 * send and recv must not overlap, except in place: send == recv + displs[rank]. The arrays must stay valid until the
 * call ends. Options and errors as for all_gather, but: opts->values is PICI_E_UNSUPPORTED; density, latency and native
 * have no effect. PICI_E_ARG also: recvcounts is NULL, or its entry of this rank is not sendcount. PICI_E_PEER also:
 * ranks pass different recvcounts. */
PICI_API enum pici_status pici_all_gatherv(const void *send, uint64_t sendcount, void *recv, const uint64_t *recvcounts,
                                           const uint64_t *displs, enum pici_dtype, struct pici_comm *,
                                           const struct pici_coll_opts *);

/* All-to-all of runs that differ in length, as MPI_Alltoallv. Elements sdispls[i] to sdispls[i] + sendcounts[i] - 1 of
 * send go to rank i; those of rank i become elements rdispls[i] to rdispls[i] + recvcounts[i] - 1 of recv. All others
 * are left alone.
 *   sendcounts, recvcounts  [ranks]  elements, 0 too. recvcounts[i] is what rank i has as its sendcounts of this rank
 *   sdispls, rdispls        [ranks]  elements; in any order, but received runs must not overlap. That of an empty run
 *                                    is not read. NULL: runs lie one after the other, in the order of ranks
 * send and recv must not overlap, from the first to the last of their elements: there is no call in place. Either may
 * be NULL without elements. The arrays must stay valid until the call ends.
 * Options and errors as for all_gather, but: algorithm and zeros other than the default, and opts->values, are
 * PICI_E_UNSUPPORTED; density, latency, native and scratch have no effect. PICI_E_PEER also: recvcounts[i] is not what
 * rank i sends; the error names the two ranks, on all ranks. PICI_E_ARG also: sendcounts or recvcounts is NULL, or they
 * differ in this rank's entry for itself. A rank that has no memory for the messages returns PICI_E_NOMEM, and the
 * others PICI_E_PEER, or over a transport that does not tell them PICI_E_TIMEOUT. */
PICI_API enum pici_status pici_all_to_allv(const void *send, const uint64_t *sendcounts, const uint64_t *sdispls,
                                           void *recv, const uint64_t *recvcounts, const uint64_t *rdispls,
                                           enum pici_dtype, struct pici_comm *, const struct pici_coll_opts *);

/* The same collectives, nonblocking. The call returns at once; the work is done inside pici_test and pici_wait, by the
 * thread that calls them. Several requests may be in flight on a communicator. They run in the order in which they were
 * started, whichever of them is waited for. The buffers, *opts->stats and opts->scratch must stay valid until the
 * request ends; opts itself is copied.
 * *request is NULL unless PICI_OK is returned. Errors returned here: those that do not break the communicator, and
 * PICI_E_NOMEM. All other errors are returned by the pici_test or pici_wait that ends the request. */
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

/* Make progress without waiting. If the collective has ended: *done = 1, its status is returned, and *request is freed
 * and set to NULL. Otherwise: *done = 0, and PICI_OK is returned. If *request is NULL: *done = 1 and PICI_OK.
 * PICI_E_ARG: request or done is NULL. */
PICI_API enum pici_status pici_test(struct pici_request **request, int *done);

/* Wait until the collective has ended. Its status is returned; *request is freed and set to NULL. If *request is NULL:
 * PICI_OK. PICI_E_ARG: request is NULL. */
PICI_API enum pici_status pici_wait(struct pici_request **request);

/* As pici_wait, but for at most about timeout_ms milliseconds; < 0: without a limit. If the collective has ended: *done
 * = 1. Otherwise: *done = 0, PICI_OK is returned, and the collective goes on with the next call of this function,
 * pici_wait or pici_test. So a program can look after something else now and then, such as a signal.
 * PICI_E_ARG: request or done is NULL. */
PICI_API enum pici_status pici_wait_for(struct pici_request **request, int timeout_ms, int *done);

/* Make communicators among threads of this process: comms[ranks]. comms[r] is rank r's; only one thread may use it at a
 * time. The caller frees each. All are NULL unless PICI_OK is returned.
 * PICI_E_ARG: null, ranks < 1 or too many, or an environment variable with an invalid value (pici_comm_error(NULL)
 * names it). PICI_E_NOMEM. PICI_E_IO: the file of PICI_TRACE cannot be written. */
PICI_API enum pici_status pici_comm_threads(struct pici_comm **comms, int ranks);

/* Make one communicator of two, for ranks that reach those of their node by another way than all others: `inner` over
 * threads, sockets, MPI or NCCL, `outer` over any other. A message goes over inner if its receiver is in inner, and
 * over outer if not. All algorithms may be used; those on two levels (PICI_ALGO_NODES_*) do each step over one of them.
 *   outer  joins all ranks. The new communicator has its rank and size
 *   inner  joins the ranks of this rank's node, in any order. The inner communicators of all ranks together have each
 *          rank of outer exactly once. A rank that is alone in its node has an inner communicator of one rank
 * The node map is that of the inner communicators. pici_comm_set_nodes may change it later; messages go the same way.
 * Bandwidths that inner (intra) and outer (inter) know stay, and so does what makes either fit for a GPU's memory; all
 * else is as the environment says.
 *
 * Collective: all ranks make the call at about the same time, with idle communicators, and each returns the same
 * status, within the timeout of outer (PICI_TIMEOUT_MS). On PICI_OK both communicators have become part of the new one:
 * they are freed, and must not be used again. Otherwise both stay the caller's to free; those that ranks could not
 * agree over are broken.
 *
 * Where one of the two takes messages in GPU memory only (NCCL) so does the new one; those over the other are copied
 * through host memory. A rank that dies is noticed if either level notices it, and ends calls on both: over NCCL inside
 * nodes some 2 s after outer has noticed. NCCL on a level was tested over a stand-in for it, never on a GPU.
 *
 * PICI_E_ARG: null, or the two are one. PICI_E_PEER: the inner communicators do not have each rank of outer once, or a
 * rank makes another call or is gone. PICI_E_BROKEN: a communicator is broken, or has requests in flight.
 * PICI_E_UNSUPPORTED: both are over NCCL, only some ranks' inner ones are, or a transport has the struct of 0.1.
 * PICI_E_TIMEOUT, PICI_E_NOMEM, PICI_E_TRANSPORT, PICI_E_IO. pici_comm_error(NULL) says more. If out or outer is null,
 * or outer is not idle or has no memory, that rank alone returns at once; the others miss it. */
PICI_API enum pici_status pici_comm_levels(struct pici_comm **out, struct pici_comm *inner, struct pici_comm *outer);

/* Set which ranks share a node: node_of[ranks]. Ranks with the same number share a node; the numbers are arbitrary. The
 * call is local and copies the array. All ranks must pass the same array before their next collective. It decides the
 * order of ranks in an algorithm, and which thresholds and bandwidths apply. PICI_E_ARG: null. PICI_E_BROKEN: the
 * communicator is broken, or requests are in flight. */
PICI_API enum pici_status pici_comm_set_nodes(struct pici_comm *, const int *node_of);

/* A description of the first failure, with the rank where it happened if that is known; "" if there was none. Valid
 * until the communicator is freed. For NULL: why this thread's last attempt to make a communicator failed. */
PICI_API const char *pici_comm_error(const struct pici_comm *);

/* This rank, from 0, and the number of ranks. For NULL: -1 and 0. */
PICI_API int pici_comm_rank(const struct pici_comm *);
PICI_API int pici_comm_size(const struct pici_comm *);

/* Scratch memory. A communicator allocates what a call needs, keeps it, and enlarges it for a larger call.
 * pici_comm_scratch returns the bytes that a call with these arguments needs (count as in the call; 0 if an argument is
 * invalid). To avoid large allocations inside a call, allocate them beforehand with pici_comm_reserve, or pass your own
 * memory in opts->scratch. The call still allocates small tables. pici_comm_reserve: PICI_E_NOMEM, PICI_E_ARG (null),
 * PICI_E_BROKEN (the communicator is broken, or requests are in flight). */
enum pici_collective {
    PICI_ALL_GATHER = 1,
    PICI_REDUCE_SCATTER = 2,
    PICI_ALL_REDUCE = 3,
    PICI_BROADCAST = 5,
    PICI_ALL_GATHERV = 6, /* in pici_comm_scratch, count is the largest of recvcounts */
    PICI_ALL_TO_ALLV = 7  /* pici_comm_scratch: 0, since that depends on the counts of all ranks */
};
PICI_API size_t pici_comm_scratch(const struct pici_comm *, enum pici_collective, uint64_t count, enum pici_dtype,
                                  enum pici_op, const struct pici_coll_opts *);
PICI_API enum pici_status pici_comm_reserve(struct pici_comm *, size_t bytes);

/* Free a communicator. Not collective. Requests in flight end with PICI_E_BROKEN (pici_wait still frees them), and
 * peers see this rank as gone. After a fork, the child may call only this function; the parent is not affected. NULL is
 * ignored. */
PICI_API void pici_comm_free(struct pici_comm *);

#ifdef __cplusplus
}
#endif
#endif
