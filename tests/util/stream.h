/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Shared by the tests of collectives of streams, over any transport. A case describes a call; its seed gives every
 * rank's vector. A rank makes the dense call and the call with streams, and compares their bits. */
#ifndef PICI_TESTS_STREAM_UTIL_H
#define PICI_TESTS_STREAM_UTIL_H

#include "pici/stream.h"
#include "util.h"

struct stream_case {
    enum pici_collective collective;
    enum pici_dtype dtype;
    enum pici_op op;
    uint64_t rows, run; /* of what `count` counts in the dense call */
    int root;
    unsigned ppm; /* of rows that are listed, in a million, on rank 0; other ranks have other numbers */
    int shuffled; /* rows are in any order, and some are listed several times */
    int index_width;
    unsigned dense, ordinary; /* bits: ranks that pass dense elements, or make the dense call */
    enum pici_stream_form want;
    int starts; /* by the nonblocking call */
    uint64_t seed;
    struct pici_coll_opts opts;
};

void stream_case_random(struct stream_case *, struct rng *, int p, uint64_t most_rows);
const char *stream_case_words(const struct stream_case *, int p, char words[240]);

/* A rank makes both calls. NULL, or what is wrong, in said. */
const char *stream_check(const struct stream_case *, struct pici_comm *, char said[240]);

#endif
