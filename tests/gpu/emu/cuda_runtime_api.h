/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PICI_TESTS_EMU_CUDA_RUNTIME_API_H
#define PICI_TESTS_EMU_CUDA_RUNTIME_API_H

#include "cuda_runtime.h"

#endif
