/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The magnitude of the k-th largest of n numbers, to keep only the largest elements of a gradient. */
#ifndef EXAMPLES_TOPK_H
#define EXAMPLES_TOPK_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { TOPK_COUNTS = 65536 };

static inline uint32_t magnitude(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u & 0x7fffffff; /* has the same order as |x| */
}

/* The exact magnitude of the k-th largest element of g [n], 1 <= k <= n. Two counting passes: over the upper, then the
 * lower 16 bits. count: scratch memory for them. */
static inline uint32_t kth_largest(const float *g, size_t n, size_t k, size_t count[TOPK_COUNTS])
{
    uint32_t upper = 0, bucket = TOPK_COUNTS;

    for (int pass = 0; pass < 2; pass++) {
        memset(count, 0, TOPK_COUNTS * sizeof *count);
        for (size_t i = 0; i < n; i++) {
            const uint32_t m = magnitude(g[i]);
            if (pass == 0)
                count[m >> 16]++;
            else if (m >> 16 == upper)
                count[m & 0xffff]++;
        }
        for (bucket = TOPK_COUNTS; bucket-- > 0 && count[bucket] < k;)
            k -= count[bucket];
        if (pass == 0)
            upper = bucket;
    }
    return upper << 16 | bucket;
}

#endif
