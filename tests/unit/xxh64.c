/* SPDX-License-Identifier: BSD-3-Clause
 *
 * XXH64: published values always, libxxhash where it is installed. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/util/util.h"
#include "xxh64.h"

#ifdef PICI_TEST_XXHASH
#include <xxhash.h>
#endif

Test(xxh64, known_values)
{
    static const char text[] = "Call me Ishmael. Some years ago--never mind how long precisely-";
    cr_assert_eq(pici_xxh64("", 0, 0), UINT64_C(0xef46db3751d8e999));
    cr_assert_eq(pici_xxh64("a", 1, 0), UINT64_C(0xd24ec4f1a98c6e5b));
    cr_assert_eq(pici_xxh64("as", 2, 0), UINT64_C(0x1c330fb2d66be179));
    cr_assert_eq(pici_xxh64("asd", 3, 0), UINT64_C(0x631c37ce72a97393));
    cr_assert_eq(pici_xxh64("asdf", 4, 0), UINT64_C(0x415872f599cea71e));
    cr_assert_eq(pici_xxh64(text, 63, 0), UINT64_C(0x02a2e85470d6fd96));
}

/* Every length near the stripes' edges, at every address, in one piece and in random ones. */
Test(xxh64, pieces_make_the_whole)
{
    struct rng rng = {7};
    uint8_t data[1200];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)rng_next(&rng);
    for (size_t n = 0; n <= 1100; n = n < 300 ? n + 1 : n + 97) {
        uint64_t seed = n % 3 ? rng_next(&rng) : 0;
        const uint8_t *p = data + n % 17;
        uint64_t whole = pici_xxh64(p, n, seed);
        for (int round = 0; round < 5; round++) {
            struct pici_xxh64 h;
            pici_xxh64_init(&h, seed);
            for (size_t at = 0, some; at < n; at += some) {
                some = rng_below(&rng, (n - at < 80 ? n - at : 80) + 1);
                pici_xxh64_update(&h, p + at, some);
            }
            cr_assert_eq(pici_xxh64_digest(&h), whole, "length %zu", n);
            cr_assert_eq(pici_xxh64_digest(&h), whole, "a digest changes the state");
        }
    }
}

Test(xxh64, agrees_with_libxxhash)
{
#ifdef PICI_TEST_XXHASH
    struct rng rng = {11};
    size_t most = 1 << 20;
    uint8_t *data = test_alloc(most + 16);
    for (size_t i = 0; i < most + 16; i++)
        data[i] = (uint8_t)rng_next(&rng);
    for (size_t n = 0; n <= most; n = n < 600 ? n + 1 : n * 2 + rng_below(&rng, 9))
        for (int round = 0; round < 4; round++) {
            uint64_t seed = round ? rng_next(&rng) : 0;
            const uint8_t *p = data + rng_below(&rng, 16);
            cr_assert_eq(pici_xxh64(p, n, seed), XXH64(p, n, seed), "length %zu", n);
        }
    free(data);
#else
    printf("skip: XXH64 beside libxxhash: it is not installed\n");
#endif
}
