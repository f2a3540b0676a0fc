/* SPDX-License-Identifier: BSD-3-Clause */
#define BITS 64
#include "cpu/scalar.inc"
