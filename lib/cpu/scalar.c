/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Kernels in plain C and compiler vectors of 16 bytes: for any host. */
#include "cpu/common.inc"
#include "cpu/arith.inc"

#define VECTOR_BYTES 16
#define BITS 8
#include "cpu/move.inc"
#define BITS 16
#include "cpu/move.inc"
#define BITS 32
#include "cpu/move.inc"
#define BITS 64
#include "cpu/move.inc"

#define DENSE_ADD 1024
#define ISA_TABLE pici_isa_scalar
#define ISA_NAME "scalar"
#include "cpu/table.inc"
