/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What collectives need of the lossy codecs CAST and QSGD beyond pici/cuda.h: parameters that are resolved, dequantized
 * elements that are added to others, and what is lost. The functions put at most one kernel into the stream and return
 * at once, as those of reduce.h. Elements are aligned to their width, arrays to 16; n may be 0. Arguments are not
 * checked, but the elements of arrays are. */
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

/* What a quantizing lost: the members of struct values_loss (values/values.h). */
struct pici_cuda_told {
    uint64_t nonfinite;
    double squares;
};

/* Where the losses of one quantization are written. */
struct pici_cuda_losses {
    void *residual;                /* times * the loss is added to it; NULL: nothing is */
    int times;                     /* at least 1 */
    struct pici_cuda_told *report; /* out, aligned to 8 */
    void *workspace;               /* pici_cuda_losses_workspace bytes, aligned to 16: zero before, and again after */
};

/* Bytes of that workspace, on the current device. */
cudaError_t pici_cuda_losses_workspace(size_t *bytes);

/* As the function `quantize` of struct pici_codec. given: NULL if no report is wanted. The squares are added in an
 * order that depends on count and on the number of multiprocessors alone. */
cudaError_t pici_cuda_quantize(void *const out[2], const void *src, uint64_t count, const struct values *,
                               const struct values_where *, const struct pici_cuda_losses *given, cudaStream_t);

/* What becomes of dequantized elements: dst = they; the same, but +0.0 for -0.0, with quiet NaNs; dst = dst + they; dst
 * = the smaller, or the greater, of dst and they. */
enum pici_cuda_dequantizing {
    DEQUANTIZED,
    DEQUANTIZED_POSITIVE,
    DEQUANTIZED_QUIET,
    DEQUANTIZED_SUM,
    DEQUANTIZED_MIN,
    DEQUANTIZED_MAX
};

/* As the function `dequantize` of struct pici_codec, for all count elements; the arrays have as many elements as their
 * codec makes of count. If they break a rule, *bad becomes the status as 32 bits, and dst is unspecified; else it
 * stays. */
cudaError_t pici_cuda_dequantize(void *dst, uint64_t count, const void *const in[2], const struct values *,
                                 enum pici_cuda_dequantizing, uint64_t *bad, cudaStream_t);

#ifdef __cplusplus
}
#endif
#endif
