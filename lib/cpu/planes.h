/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Kernels for the runs of packed blocks, for one float dtype. Values are in stored order, at any alignment. Every ISA
 * makes the same bytes. Specification: formats/packed.md. */
#ifndef PICI_LIB_CPU_PLANES_H
#define PICI_LIB_CPU_PLANES_H

#include <stddef.h>
#include <stdint.h>

#include "packed_format.h"

struct pici_planes {
    /* Encode n values, 1 to RUN_MOST, as a run to out and *run. Returns the size of the run in bytes, at most a raw
     * run's size, even if values change meanwhile. The parts before the second planes are shorter, and the parts after
     * them are written when their size is known. */
    unsigned (*pack)(uint8_t *out, struct fmt_run *run, const uint8_t *values, unsigned n, int one_level);
    /* Decode a packed run that fmt_run_read accepted, and count the values without a set bit. Reads up to PICI_SLACK
     * bytes past it. stream: use non-temporal stores; values must be aligned to 64 bytes. Returns 0 if the run breaks
     * the rule "planes". */
    int (*unpack)(uint8_t *values, const struct fmt_run *run, const uint8_t *at, int stream, unsigned *zeros);
};

#endif
