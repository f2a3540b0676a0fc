/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Small deltas against formats/ref_small.c and the golden vectors, without a test framework. The last line is "N
 * passed, N failed".
 *   plain_small [DIRECTORY]      of the vectors; formats/vectors otherwise
 * PICI_TEST_FEW=1: every third pair of a size and a step for each type; each size and each step is in some. */
#include <stdlib.h>

#include "formats/ref.h"
#include "formats/ref_small.h"
#include "tests/util/small.h"

static struct rng rng = {1};

static void vector(const struct small_vector *v, void *unused)
{
    (void)unused;
    tally(v->name, v->use == SMALL_MAKE
                       ? check_small(v->base, v->result, v->n, v->dtype, v->holds, v->format, v->checksum,
                                     v->n < 1000 ? 6 : 0, &rng, v->delta, v->len)
                       : check_small_reader(v->base, v->result, v->n, v->dtype, v->delta, v->len, v->status));
}

static void steps_of(enum pici_dtype dtype, enum pici_holds holds, uint64_t n, enum step step, enum pici_format format)
{
    uint8_t *base = test_alloc((size_t)n * 8), *src = test_alloc((size_t)n * 8);
    step_fill(base, src, n, dtype, step, &rng);
    tally(step_name(step),
          check_small(base, src, n, dtype, holds, format, n % 3 == 0, n < 3000 ? 4 : 1, &rng, NULL, 0));
    free(base);
    free(src);
}

static void steps(enum pici_dtype dtype, uint64_t n, enum step step, enum pici_format format)
{
    steps_of(dtype, PICI_HOLDS_ONE, n, step, format);
}

int main(int argc, char **argv)
{
    static const uint64_t sizes[] = {0,   1,   2,   31,  32,  33,  63,   64,   95,   97,   127,  128,
                                     129, 159, 161, 255, 257, 999, 1000, 4095, 4096, 4097, 8192, 12345};
    static const enum pici_dtype dtypes[] = {PICI_BF16, PICI_F16, PICI_F32, PICI_F8E4M3, PICI_F8E5M2};
    const char *directory = argc > 1 ? argv[1] : "formats/vectors";
    if (smalls_read(directory, vector, NULL) < 100)
        tally(directory, "vectors are missing or malformed");
    const unsigned every = test_few() ? 3 : 1;
    for (unsigned d = 0; d < 5; d++)
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (unsigned step = (d + i) % every; step < STEPS; step += every)
                steps(dtypes[d], sizes[i], (enum step)step, (i + step) % 2 ? PICI_HYBRID : PICI_DENSE);
    for (int dtype = PICI_F32; dtype <= PICI_U64; dtype++)
        steps((enum pici_dtype)dtype, 1234, STEP_USUAL, PICI_COO);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned step = i % every; step < STEPS; step += every)
            steps_of(PICI_U8, PICI_HOLDS_E2M1X2, sizes[i], (enum step)step, i % 2 ? PICI_HYBRID : PICI_BITMAP);
    /* several chunks */
    steps(PICI_BF16, 2 * REF_SMALL_CHUNK + 4321, STEP_TINY, PICI_HYBRID);
    steps(PICI_F8E4M3, REF_SMALL_CHUNK + 97, STEP_USUAL, PICI_HYBRID);
    steps_of(PICI_U8, PICI_HOLDS_E2M1X2, REF_SMALL_CHUNK + 4321, STEP_TINY, PICI_HYBRID);
    steps(PICI_F16, REF_SMALL_CHUNK + 4321, STEP_USUAL, PICI_HYBRID);
    steps(PICI_F32, REF_SMALL_CHUNK + 77, STEP_USUAL, PICI_HYBRID);
    return tally_end();
}
