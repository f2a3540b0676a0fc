/* SPDX-License-Identifier: BSD-3-Clause */
#define BITS 8
#include "cpu/avx512.inc"
