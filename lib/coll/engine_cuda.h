/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PICI_LIB_COLL_ENGINE_CUDA_H
#define PICI_LIB_COLL_ENGINE_CUDA_H

/* How long a copy of a message from one rank's memory to another's may take, and how long a call that has failed waits
 * for what it left in its streams, in milliseconds. A GPU that takes longer hangs. Tests shorten both. */
extern int pici_cuda_move_ms, pici_cuda_halt_ms;

#endif
