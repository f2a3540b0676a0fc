/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The reference codec's part for packed: runs of values. */
#ifndef PICI_FORMATS_REF_PACKED_H
#define PICI_FORMATS_REF_PACKED_H

#include "ref_base.h"

enum { REF_RUN_DESCRIPTOR = 5, REF_RUN = 4096 };

/* What a run descriptor says of n values. */
struct ref_run {
    unsigned n, k1, k2, t, n2, n3;
    int raw;
    uint64_t bytes; /* of the run */
};

/* Read a run descriptor. Returns 0 if it breaks the rule `run`. */
int ref_run_read(struct ref_run *, const struct ref_header *h, const uint8_t *descriptor, unsigned n);

/* Decode the run at p. Returns the rule that is broken, with its place in the run in *at, or NULL. */
const char *ref_run_decode(uint64_t *value, uint64_t *at, const struct ref_header *h, const struct ref_run *run,
                           const uint8_t *p);

/* Encode n values. The run has room for 16 bytes each, all zero. Returns its bytes. */
uint64_t ref_run_encode(uint8_t *descriptor, uint8_t *run, const struct ref_header *h, const uint64_t *value,
                        unsigned n);

#endif
