/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Compare blocks of lists, and lists of blocks, with pici_compress and with single elements. Compare the union of two
 * lists with a plain one. By every ISA, between guard pages. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "codec/list.h"
#include "cpu/kernels.h"
#include "tests/util/util.h"

static const uint8_t zeros[8];
static const uint64_t lengths[] = {0,   1,    2,    31,   63,     64,     65,     255,   256,
                                   257, 4095, 4096, 4097, 131071, 131072, 131073, 300000};

static int is_zero(const uint8_t *element, size_t width)
{
    return memcmp(element, zeros, width) == 0;
}

/* Is the list that of these elements? */
static int is_list_of(const struct pici_list *list, const uint8_t *elements, uint64_t n, size_t width)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (is_zero(elements + i * width, width))
            continue;
        if (at == list->count || list->positions[at] != i ||
            memcmp(list->values + at * width, elements + i * width, width) != 0)
            return 0;
        at++;
    }
    return at == list->count;
}

static int has_negative_zeros(const uint8_t *elements, uint64_t n, enum pici_dtype dtype)
{
    const size_t width = pici_dtype_width(dtype);
    uint8_t *cleared = test_alloc((size_t)n * width + 1);
    memcpy(cleared, elements, (size_t)n * width);
    zeros_clear(cleared, n, dtype);
    const int has = memcmp(cleared, elements, (size_t)n * width) != 0;
    free(cleared);
    return has;
}

static void check_blocks(const uint8_t *elements, uint64_t n, enum pici_dtype dtype, struct guard *guard)
{
    const size_t width = pici_dtype_width(dtype);
    const unsigned width_log2 = (unsigned)__builtin_ctzll(width);
    struct pici_list list = {.capacity = 0}, again = {.capacity = 0};
    size_t size = 0;
    cr_assert(pici_list_of_dense(&list, elements, n, width_log2, 0));
    cr_assert(is_list_of(&list, elements, n, width), "%s, %lu elements", pici_dtype_name(dtype), (unsigned long)n);
    for (enum pici_format format = PICI_DENSE; format <= PICI_HYBRID; format++) {
        const struct pici_opts opts = {sizeof opts, 1, (int)(n & 1), PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, 0};
        const size_t cap = pici_bound(format, dtype, n);
        uint8_t *block = test_alloc(cap);
        struct pici_block parsed;
        cr_assert_eq(pici_compress(block, cap, &size, elements, n, dtype, format, &opts), PICI_OK);
        cr_assert_eq(pici_block_parse(&parsed, block, size, NULL), PICI_OK);
        cr_assert_eq(pici_block_whole(&parsed, size, NULL), PICI_OK);
        cr_assert_eq(pici_list_read(&again, &parsed, n), PICI_OK);
        cr_assert(is_list_of(&again, elements, n, width), "%s of format %d, %lu elements", pici_dtype_name(dtype),
                  (int)format, (unsigned long)n);
        if (list.count > 1)
            cr_assert_eq(pici_list_read(&again, &parsed, list.count - 1), PICI_E_CORRUPT);
        const int signs = format == PICI_HYBRID && dtype <= PICI_F8E5M2 && has_negative_zeros(elements, n, dtype);
        if (format == PICI_COO || format == PICI_HYBRID) {
            const uint64_t bytes = pici_list_bytes(&list, format, n, dtype);
            uint8_t *made = guard_place(guard, (size_t)bytes, GUARD_END, 0);
            pici_list_write(made, &list, format, n, dtype, (int)(n & 1));
            cr_assert(guard_intact(guard));
            cr_assert_eq(pici_verify(made, (size_t)bytes), PICI_OK, "%s of format %d, %lu elements",
                         pici_dtype_name(dtype), (int)format, (unsigned long)n);
            cr_assert(signs || (bytes == size && memcmp(made, block, size) == 0), "%s of format %d, %lu elements",
                      pici_dtype_name(dtype), (int)format, (unsigned long)n);
        }
        free(block);
    }
    uint8_t *index = guard_place(guard, (size_t)list.count * 8, GUARD_END, 0);
    uint8_t *values = test_alloc((size_t)list.count * width + 1);
    cr_assert_eq(pici_list_extract(index, 8, values, list.count, elements, n, 5, width_log2), list.count);
    cr_assert(guard_intact(guard));
    for (uint64_t i = 0; i < list.count; i++)
        cr_assert_eq(((uint64_t *)(void *)index)[i], (uint64_t)list.positions[i] + 5);
    cr_assert(!list.count || memcmp(values, list.values, (size_t)list.count * width) == 0);
    free(values);
    pici_list_free(&list);
    pici_list_free(&again);
}

Test(codec_list, blocks, .timeout = 300)
{
    struct rng rng = {46};
    struct guard guard;
    guard_init(&guard, 300000 * 16 + 4096);
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
        pici_isa_force(*isa);
        for (enum pici_dtype dtype = PICI_F32; dtype <= PICI_U64; dtype++)
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
                for (int pattern = 0; pattern < PATTERNS; pattern++) {
                    if (lengths[i] > 5000 && ((unsigned)pattern + i + dtype) % 9)
                        continue;
                    const size_t width = pici_dtype_width(dtype);
                    uint8_t *memory = test_alloc((size_t)lengths[i] * width + 3),
                            *elements = memory + 1; /* of any alignment */
                    pattern_fill(elements, lengths[i], dtype, (enum pattern)pattern, &rng);
                    check_blocks(elements, lengths[i], dtype, &guard);
                    free(memory);
                }
    }
    pici_isa_force(NULL);
    guard_free(&guard);
}

/* A list with about so many in a million of the positions. */
static void make_list(struct pici_list *list, uint64_t n, unsigned ppm, size_t width, struct rng *rng)
{
    cr_assert(pici_list_reserve(list, n, (unsigned)__builtin_ctzll(width)));
    list->count = 0;
    for (uint64_t i = 0; i < n; i++)
        if (rng_chance(rng, ppm)) {
            const uint64_t value = rng_next(rng);
            memcpy(list->values + list->count * width, &value, width);
            list->positions[list->count++] = (uint32_t)i;
        }
}

Test(codec_list, unions)
{
    static const unsigned densities[] = {0, 1000, 100000, 500000, 1000000};
    struct rng rng = {47};
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++)
        for (size_t width = 1; width <= 8; width *= 2)
            for (int one = 0; one < 5; one++)
                for (int other = 0; other < 5; other++)
                    for (size_t i = 0; i < 12; i++) {
                        const uint64_t n = lengths[i];
                        const unsigned width_log2 = (unsigned)__builtin_ctzll(width);
                        struct pici_list a = {.capacity = 0}, b = {.capacity = 0};
                        uint32_t *positions = test_alloc(8 * (size_t)n + 8);
                        uint8_t *first = test_alloc(2 * (size_t)n * width + 8),
                                *second = test_alloc(2 * (size_t)n * width + 8),
                                *dense = test_alloc((size_t)n * width + 8);
                        pici_isa_force(*isa);
                        make_list(&a, n, densities[one], width, &rng);
                        make_list(&b, n, densities[other], width, &rng);
                        const uint64_t count = pici_list_union(positions, first, second, &a, &b, width_log2);
                        uint64_t at_a = 0, at_b = 0, at = 0;
                        for (uint64_t p = 0; p < n; p++) {
                            const int in_a = at_a < a.count && a.positions[at_a] == p,
                                      in_b = at_b < b.count && b.positions[at_b] == p;
                            if (!in_a && !in_b)
                                continue;
                            cr_assert(at < count && positions[at] == p);
                            cr_assert_eq(memcmp(first + at * width, in_a ? a.values + at_a * width : zeros, width), 0);
                            cr_assert_eq(memcmp(second + at * width, in_b ? b.values + at_b * width : zeros, width), 0);
                            at_a += (uint64_t)in_a;
                            at_b += (uint64_t)in_b;
                            at++;
                        }
                        cr_assert_eq(at, count);
                        memset(dense, 0, (size_t)n * width);
                        pici_list_scatter(dense, &a, width_log2);
                        for (uint64_t k = 0; k < a.count; k++)
                            cr_assert_eq(memcmp(dense + a.positions[k] * width, a.values + k * width, width), 0);
                        free(positions);
                        free(first);
                        free(second);
                        free(dense);
                        pici_list_free(&a);
                        pici_list_free(&b);
                    }
    pici_isa_force(NULL);
}
