/* SPDX-License-Identifier: BSD-3-Clause */
#define BITS 16
#include "cpu/avx2.inc"
