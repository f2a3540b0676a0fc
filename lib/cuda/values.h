/* SPDX-License-Identifier: BSD-3-Clause
 *
 * GPU functions for collectives with the lossy codecs CAST and QSGD, beyond pici/cuda.h. They take resolved
 * parameters, combine dequantized elements with others, and measure losses. The functions put at most one kernel
 * into the stream and return at once, like the functions of reduce.h. Elements are aligned to their width, arrays to
 * 16; n may be 0. They check the elements of arrays, but not the arguments. */
#ifndef PICI_LIB_CUDA_VALUES_H
#define PICI_LIB_CUDA_VALUES_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct values;
struct values_where;

/* The loss of a quantization: the members of struct values_loss (values/values.h). */
struct pici_cuda_told {
    uint64_t nonfinite;
    double squares;
};

/* Where to write the losses of one quantization. */
struct pici_cuda_losses {
    void *residual;                /* adds times * the loss to it; NULL: no residual */
    int times;                     /* at least 1 */
    struct pici_cuda_told *report; /* out, aligned to 8 */
    void *workspace;               /* pici_cuda_losses_workspace bytes, aligned to 16: zero before, and again after */
};

/* Bytes of that workspace, on the current device. */
cudaError_t pici_cuda_losses_workspace(size_t *bytes);

/* Like the function `quantize` of struct pici_codec. given: NULL if no report is wanted. The order of adding squares
 * depends only on count and the number of multiprocessors. */
cudaError_t pici_cuda_quantize(void *const out[2], const void *src, uint64_t count, const struct values *,
                               const struct values_where *, const struct pici_cuda_losses *given, cudaStream_t);

/* Use of dequantized elements x. dst = x; the same, with +0.0 for -0.0; that with quiet NaNs. dst = dst + x. dst = the
 * smaller, or the greater, of dst and x. */
enum pici_cuda_dequantizing {
    DEQUANTIZED,
    DEQUANTIZED_POSITIVE,
    DEQUANTIZED_QUIET,
    DEQUANTIZED_SUM,
    DEQUANTIZED_MIN,
    DEQUANTIZED_MAX
};

/* Like the function `dequantize` of struct pici_codec, for all count elements. The arrays have as many elements as
 * their codec makes of count. If they break a rule, *bad becomes the status as 32 bits, and dst is unspecified.
 * Otherwise *bad stays. */
cudaError_t pici_cuda_dequantize(void *dst, uint64_t count, const void *const in[2], const struct values *,
                                 enum pici_cuda_dequantizing, uint64_t *bad, cudaStream_t);

#ifdef __cplusplus
}
#endif
#endif
