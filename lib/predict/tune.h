/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Tune files: measurements of a cluster, as text. The reader, the writer, and the time that a file predicts for a call.
 * Specification: formats/tune.md. */
#ifndef PICI_LIB_PREDICT_TUNE_H
#define PICI_LIB_PREDICT_TUNE_H

#include "predict/model.h"

enum {
    TUNE_VERSION = 1,
    TUNE_BYTES_MOST = 1 << 20, /* of a file */
    TUNE_POINTS_MOST = 10000,
    TUNE_SHAPES_MOST = 64,
    TUNE_TEXT = 64, /* bytes of a word or a quoted string, with the terminating zero */
    TUNE_WHY = 200  /* bytes of an error in words, with the terminating zero */
};

#define TUNE_DENSITY 0.05 /* the default */

/* The ranks and nodes with which a part of the file was measured. No two shapes of a file have the same ranks and
 * nodes. */
struct tune_shape {
    int ranks, cores; /* cores: of a node, shared by all its ranks */
    struct schedule_nodes nodes;
};

struct tune_point {
    enum pici_collective collective;
    enum pici_dtype dtype;
    uint64_t bytes; /* dense, of the larger buffer */
    double density; /* of one rank's data, in (0, 1] */
    struct model_candidate candidate;
    char native[TUNE_TEXT]; /* the native call's algorithm; "": not set, or not the native collective's */
    double seconds, spread; /* the median, and half of the interquartile range */
    int shape;              /* index of the shape that it was measured at */
    int line;               /* of the file; 0: not read from one */
    double residual;        /* seconds / the model's prediction; 0: not computed yet (pici_tune_seconds does that) */
};

/* Thresholds that a file may set: the sparsity up to which data is dense. The first POLICY_LINKS are for reducing. */
enum tune_threshold {
    TUNE_INTER = POLICY_INTER,
    TUNE_INTRA = POLICY_INTRA,
    TUNE_GATHER = POLICY_LINKS, /* a message that is gathered */
    TUNE_STREAM,                /* a slice of a stream, in memory */
    TUNE_THRESHOLDS
};

struct tune_thresholds {
    unsigned said; /* bits 1 << enum tune_threshold */
    float at[TUNE_THRESHOLDS];
};

extern const char *const pici_tune_threshold_names[TUNE_THRESHOLDS + 1]; /* in files; then NULL */

struct tune {
    char date[TUNE_TEXT];                                                           /* 2026-11-22T20:10:00Z */
    char pici[TUNE_TEXT], transport[TUNE_TEXT], library[TUNE_TEXT], cpu[TUNE_TEXT]; /* for people; "": not set */
    struct model_machine machine;
    struct tune_shape *shapes; /* [shape_count], at least one; by rising ranks, then nodes */
    int shape_count;
    struct tune_point *points; /* [point_count], in the order of pici_tune_sort */
    size_t point_count;
    struct tune_thresholds thresholds;
    double density, correlation; /* assumed where nothing was counted */
    uint64_t hash;               /* of the file's bytes before its end; the writer sets it too */
};

/* Read a file of size bytes. Every rule of formats/tune.md is checked. On success the caller frees it with
 * pici_tune_free. PICI_E_CORRUPT: the file is invalid, and reason [TUNE_WHY] describes the error, with the number of
 * the line. PICI_E_VERSION: it has another version. PICI_E_NOMEM. On an error *tune is empty. */
enum pici_status pici_tune_read(struct tune *, const void *bytes, size_t size, char *reason);

/* Read a file at a path. PICI_E_IO: it cannot be read, and reason has the system's error message. */
enum pici_status pici_tune_open(struct tune *, const char *path, char *reason);

/* Write a file into memory: *output [*size bytes] is the caller's to free. Reading it gives the same numbers, bit for
 * bit. PICI_E_ARG: tune breaks a rule of the format; reason [TUNE_WHY]. PICI_E_NOMEM. On an error *output is NULL. */
enum pici_status pici_tune_write(struct tune *, uint8_t **output, size_t *size, char *reason);

/* Join files of one cluster, measured with different numbers of ranks. Links, codec, agreement and assumptions come
 * from the file with the most nodes; on a tie, the most ranks; then the first. PICI_E_ARG: two of them have a shape in
 * common, or together they have too many points or shapes; reason [TUNE_WHY]. PICI_E_NOMEM. On an error *output is
 * empty. */
enum pici_status pici_tune_merge(struct tune *output, const struct tune *const *files, int count, char *reason);

/* The file that has the shape with the most nodes, then ranks, and that shape; the first of several. NULL: no file has
 * a shape. */
const struct tune *pici_tune_largest(const struct tune *const *files, int count, struct tune_shape *);

void pici_tune_free(struct tune *); /* leaves it empty */

/* The order of points: < 0, 0 or > 0. 0: the same measurement; a file has only one of each. */
int pici_tune_order(const struct tune_point *, const struct tune_point *);
/* Bring points into that order, which pici_tune_seconds needs, after points were added. */
void pici_tune_sort(struct tune *);

/* Seconds of a call: the model's prediction, times the residual (measured / model) at the file's points of this
 * candidate and collective. The residual is interpolated in log bytes, log density and log ranks, is the nearest
 * point's beyond them, and stays between 1/4 and 4. < 0: the candidate cannot do the call. The same on all ranks, on
 * any CPUs: only +, -, * and / on doubles, in a fixed order, and the library is compiled without contraction
 * (Makefile). */
double pici_tune_seconds(struct tune *, const struct model_call *, const struct model_candidate *);

/* < 0: the file does not set it. */
float pici_tune_threshold(const struct tune *, enum tune_threshold);

/* The logarithm to base 2 of a normal number above 0, within 1e-12; the same on every CPU. */
double pici_tune_log2(double number);

#endif
