/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PICI_LIB_COLL_ENGINE_CUDA_H
#define PICI_LIB_COLL_ENGINE_CUDA_H

/* Timeouts in milliseconds, which tests shorten: of a message's copy between the memory of two ranks, and of a failed
 * call's wait for the work left in its streams. A GPU that takes longer counts as hung. */
extern int pici_cuda_move_ms, pici_cuda_halt_ms;

#endif
