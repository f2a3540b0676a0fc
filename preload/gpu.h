/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PICI_PRELOAD_GPU_H
#define PICI_PRELOAD_GPU_H

/* Whether this process may have buffers in GPU memory, which crashes code that reads it as host memory: it has a CUDA
 * context, or has loaded HIP's runtime. Loads nothing and makes no context. */
int pmpi_gpu(void);

#endif
