/* SPDX-License-Identifier: BSD-3-Clause */
#define BITS 32
#include "cpu/avx512.inc"
