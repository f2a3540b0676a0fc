/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Small deltas of shards of columns: where the shards lie in memory, which deltas change which elements, and what is
 * refused. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

#include "formats/ref.h"
#include "formats/ref_small.h"
#include "pici/delta.h"
#include "small_format.h"
#include "tests/util/util.h"

enum { ROWS = 250, ROW = 2600, COUNT = ROWS * ROW, STEPS = 2, SHARDS = 3 };
static const uint64_t ends[SHARDS + 1] = {0, 1, 300, ROW}; /* the last has two chunks */

struct tensor {
    uint8_t *step[STEPS + 1];      /* its elements after each */
    uint8_t *delta[STEPS][SHARDS]; /* those of the shards, in a row: delta[k][0] begins it */
    size_t size[STEPS][SHARDS], width;
    enum pici_dtype dtype;
    enum pici_holds holds;
};

static struct pici_columns shard(uint64_t first, uint64_t end, uint64_t stride)
{
    struct pici_columns columns = PICI_COLUMNS_INIT;
    columns.rows = ROWS;
    columns.row_length = ROW;
    columns.first = first;
    columns.count = end - first;
    columns.stride = stride;
    return columns;
}

/* The columns of a tensor, without a gap. */
static uint8_t *cut(const struct tensor *tensor, int step, uint64_t first, uint64_t end)
{
    const size_t bytes = (size_t)(end - first) * tensor->width;
    uint8_t *const elements = test_alloc(ROWS * bytes);
    for (size_t row = 0; row < ROWS; row++)
        memcpy(elements + row * bytes, tensor->step[step] + (row * ROW + first) * tensor->width, bytes);
    return elements;
}

static struct tensor make_tensor(enum pici_dtype dtype, enum pici_holds holds)
{
    struct tensor tensor = {.dtype = dtype, .holds = holds, .width = ref_width((unsigned)dtype)};
    struct rng rng = {(uint64_t)dtype};
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.holds = holds;
    for (int step = 0; step <= STEPS; step++) {
        tensor.step[step] = test_alloc(COUNT * tensor.width);
        for (uint64_t i = 0; i < COUNT; i++) {
            const uint64_t old = step ? ref_load(tensor.step[step - 1], i, (unsigned)tensor.width)
                                      : UINT64_C(0x3c003c) + rng_below(&rng, 700);
            ref_store(tensor.step[step], i, (unsigned)tensor.width, old + (step && rng_chance(&rng, 20000)));
        }
    }
    for (int step = 0; step < STEPS; step++) {
        const size_t capacity = pici_diff_small_bound(PICI_AUTO, dtype, COUNT) + 3 * 24 + 3 * SMALL_ENTRY_BYTES;
        uint8_t *next = test_alloc(capacity);
        for (int i = 0; i < SHARDS; i++) {
            const struct pici_columns columns = shard(ends[i], ends[i + 1], ROW),
                                      dense = shard(ends[i], ends[i + 1], 0);
            uint8_t *const from = cut(&tensor, step, ends[i], ends[i + 1]), *const to = cut(&tensor, step + 1, ends[i],
                                                                                            ends[i + 1]);
            const uint64_t n = ROWS * columns.count;
            const size_t room = pici_diff_small_bound(PICI_AUTO, dtype, n) + 24;
            uint8_t *const packed = test_alloc(room);
            const enum pici_format format = i == 0 ? PICI_HYBRID : PICI_AUTO;
            size_t size;
            opts.threads = 1 + i;
            cr_assert_eq(pici_diff_small_columns(packed, room, &size, from, to, &dense, dtype, format, &opts), 0);
            cr_assert_eq(
                pici_diff_small_columns(next, room, &tensor.size[step][i], tensor.step[step] + ends[i] * tensor.width,
                                        tensor.step[step + 1] + ends[i] * tensor.width, &columns, dtype, format, &opts),
                PICI_OK);
            cr_expect(size == tensor.size[step][i] && memcmp(packed, next, size) == 0, "shard %d", i);
            cr_expect_eq(packed[SMALL_HDR_VERSION], 4);
            if (i == 0) {
                const struct ref_columns ref = {ROWS, ROW, ends[i], columns.count};
                size_t bytes;
                uint8_t *const want = ref_small_encode_columns(&bytes, from, to, &ref, (unsigned)dtype, REF_HYBRID, 0,
                                                               holds == PICI_HOLDS_E2M1X2);
                cr_expect(want && bytes == size && memcmp(want, packed, size) == 0);
                free(want);
            }
            tensor.delta[step][i] = next;
            next += size;
            free(packed);
            free(from);
            free(to);
        }
    }
    return tensor;
}

static size_t row_bytes(const struct tensor *tensor, int step, int first, int end)
{
    size_t bytes = 0;
    for (int i = first; i < end; i++)
        bytes += tensor->size[step][i];
    return bytes;
}

static void free_tensor(struct tensor *tensor)
{
    for (int step = 0; step <= STEPS; step++)
        free(tensor->step[step]);
    for (int step = 0; step < STEPS; step++)
        free(tensor->delta[step][0]);
}

/* Applies the deltas [low, high) of the first steps, in a row, to the columns [first, end), within a tensor and without
 * a gap. Returns the status, which must be the same. */
static enum pici_status apply_to(const struct tensor *tensor, uint64_t first, uint64_t end, int low, int high,
                                 size_t steps, int threads)
{
    struct pici_opts opts = PICI_OPTS_INIT;
    const void *deltas[STEPS];
    size_t sizes[STEPS];
    for (int step = 0; step < STEPS; step++) {
        deltas[step] = tensor->delta[step][low];
        sizes[step] = row_bytes(tensor, step, low, high);
    }
    opts.threads = threads;
    const struct pici_columns within = shard(first, end, ROW), dense = shard(first, end, 0);
    uint8_t *const whole = test_alloc(COUNT * tensor->width), *const packed = cut(tensor, 0, first, end),
                   *const want = cut(tensor, (int)steps, first, end);
    memcpy(whole, tensor->step[0], COUNT * tensor->width);
    const enum pici_status status =
        pici_apply_small_columns(whole + first * tensor->width, &within, deltas, sizes, steps, &opts);
    cr_expect_eq(pici_apply_small_columns(packed, &dense, deltas, sizes, steps, &opts), status);
    if (!status) {
        cr_expect_eq(memcmp(packed, want, ROWS * (size_t)(end - first) * tensor->width), 0);
        for (size_t i = 0; i < COUNT; i++) {
            const bool inside = i % ROW >= first && i % ROW < end;
            cr_assert_eq(
                memcmp(whole + i * tensor->width, tensor->step[inside ? steps : 0] + i * tensor->width, tensor->width),
                0, "element %zu", i);
        }
    } else
        cr_expect_eq(memcmp(whole, tensor->step[0], COUNT * tensor->width), 0);
    free(whole);
    free(packed);
    free(want);
    return status;
}

static void check_tensor(enum pici_dtype dtype, enum pici_holds holds)
{
    struct tensor tensor = make_tensor(dtype, holds);
    for (int i = 0; i < SHARDS; i++)
        for (int k = 0; k < SHARDS; k++) {
            cr_expect_eq(apply_to(&tensor, ends[k], ends[k + 1], i, i + 1, 1, 1), i == k ? PICI_OK : PICI_E_ARG);
            cr_expect_eq(apply_to(&tensor, ends[k], ends[k + 1], 0, SHARDS, STEPS, 1 + k), PICI_OK);
        }
    cr_expect_eq(apply_to(&tensor, ends[1], ends[3], 0, SHARDS, STEPS, 2), PICI_OK, "columns of two deltas");
    cr_expect_eq(apply_to(&tensor, ends[1], ends[3], 1, 2, 1, 1), PICI_E_ARG, "columns that no delta has");
    cr_expect_eq(apply_to(&tensor, ends[1], ends[3], 0, 2, 1, 1), PICI_E_ARG);
    cr_expect_eq(apply_to(&tensor, ends[1] + 1, ends[3], 0, SHARDS, 1, 1), PICI_E_ARG, "some columns of a delta");
    cr_expect_eq(apply_to(&tensor, ends[1], ends[3] - 1, 0, SHARDS, 1, 1), PICI_E_ARG);
    cr_expect_eq(apply_to(&tensor, 0, ROW, 0, SHARDS, STEPS, 2), PICI_OK, "all columns");
    /* the whole, where nothing is said of rows */
    uint8_t *const whole = test_alloc(COUNT * tensor.width);
    memcpy(whole, tensor.step[0], COUNT * tensor.width);
    cr_expect_eq(pici_apply_small(whole, COUNT, tensor.delta[0][0], row_bytes(&tensor, 0, 0, 2), NULL), PICI_E_ARG);
    cr_expect_eq(pici_apply_small(whole, COUNT, tensor.delta[0][0], row_bytes(&tensor, 0, 0, SHARDS), NULL), PICI_OK);
    cr_expect_eq(memcmp(whole, tensor.step[1], COUNT * tensor.width), 0);
    free(whole);
    free_tensor(&tensor);
}

Test(codec_columns, bf16)
{
    check_tensor(PICI_BF16, PICI_HOLDS_ONE);
}

Test(codec_columns, f32)
{
    check_tensor(PICI_F32, PICI_HOLDS_ONE);
}

Test(codec_columns, narrow)
{
    check_tensor(PICI_F8E4M3, PICI_HOLDS_ONE);
    check_tensor(PICI_U8, PICI_HOLDS_E2M1X2);
}

Test(codec_columns, blocks)
{
    check_tensor(PICI_U8, PICI_HOLDS_ONE);
    check_tensor(PICI_F64, PICI_HOLDS_ONE);
}

/* Deltas of columns, of rows and of the whole are not taken for each other, though they have as many elements. */
Test(codec_columns, other_shards)
{
    enum { N = 40 * 30 };
    static uint16_t from[N], to[N], dst[N];
    static uint8_t columns_delta[8192], rows_delta[8192], whole_delta[8192];
    struct pici_columns half = PICI_COLUMNS_INIT, found = PICI_COLUMNS_INIT;
    size_t columns_size, rows_size, whole_size;
    half.rows = 40;
    half.row_length = 30;
    half.count = 15;
    for (int i = 0; i < N; i++) {
        from[i] = (uint16_t)(0x3c00 + i % 90);
        to[i] = (uint16_t)(from[i] + (i % 7 == 0));
    }
    cr_assert_eq(pici_diff_small_columns(columns_delta, sizeof columns_delta, &columns_size, from, to, &half, PICI_BF16,
                                         PICI_AUTO, NULL),
                 PICI_OK);
    cr_assert_eq(pici_diff_small_part(rows_delta, sizeof rows_delta, &rows_size, from, to, N / 2, 0, N, PICI_BF16,
                                      PICI_AUTO, NULL),
                 PICI_OK);
    cr_assert_eq(pici_diff_small(whole_delta, sizeof whole_delta, &whole_size, from, to, N, PICI_BF16, PICI_AUTO, NULL),
                 PICI_OK);
    const void *const columns_row[] = {columns_delta}, *const rows_row[] = {rows_delta},
                      *const whole_row[] = {whole_delta};
    memcpy(dst, from, sizeof dst);
    cr_expect_eq(pici_apply_small_range(dst, N / 2, 0, N, columns_row, &columns_size, 1, NULL), PICI_E_ARG);
    cr_expect_eq(pici_apply_small_columns(dst, &half, rows_row, &rows_size, 1, NULL), PICI_E_ARG);
    cr_expect_eq(pici_apply_small_columns(dst, &half, whole_row, &whole_size, 1, NULL), PICI_E_ARG);
    struct pici_columns other = half; /* as many elements in all, in rows of another length */
    other.rows = 30;
    other.row_length = 40;
    other.count = 20;
    cr_expect_eq(pici_apply_small_columns(dst, &other, columns_row, &columns_size, 1, NULL), PICI_E_ARG);
    cr_expect_eq(memcmp(dst, from, sizeof dst), 0);
    uint64_t at[N], count;
    cr_expect_eq(pici_changes(at, 8, dst, N, &count, from, N, columns_delta, columns_size, 0, N), PICI_E_ARG);

    cr_expect_eq(pici_small_get_columns(&found, columns_delta, columns_size), PICI_OK);
    cr_expect(found.rows == 40 && found.row_length == 30 && found.first == 0 && found.count == 15 && !found.stride);
    cr_expect_eq(pici_small_get_columns(&found, rows_delta, rows_size), PICI_OK);
    cr_expect(found.rows == 1 && found.row_length == N && found.first == 0 && found.count == N / 2);
    cr_expect_eq(pici_small_get_columns(&found, columns_delta, columns_size - 1), PICI_E_CORRUPT);
    cr_expect_eq(pici_small_get_columns(NULL, columns_delta, columns_size), PICI_E_ARG);
    cr_expect_eq(pici_small_get_columns(&found, NULL, 0), PICI_E_ARG);

    /* with the other half it is of the whole, whose changes are not in the order of its elements */
    size_t rest;
    half.first = 15;
    half.stride = 30;
    cr_assert_eq(pici_diff_small_columns(columns_delta + columns_size, sizeof columns_delta - columns_size, &rest,
                                         from + 15, to + 15, &half, PICI_BF16, PICI_AUTO, NULL),
                 PICI_OK);
    cr_expect_eq(pici_changes(at, 8, dst, N, &count, from, N, columns_delta, columns_size + rest, 0, N),
                 PICI_E_UNSUPPORTED);
}

/* All columns, or one row, are a delta of the whole, or a part; also where the rows have a gap. */
Test(codec_columns, no_columns)
{
    static uint16_t from[6 * 50], to[6 * 50], packed_from[6 * 40], packed_to[6 * 40], dst[6 * 50];
    static uint8_t delta[4096], want[4096];
    struct pici_columns all = PICI_COLUMNS_INIT;
    size_t size, want_size;
    all.rows = 6;
    all.row_length = all.count = 40;
    all.stride = 50;
    for (int i = 0; i < 300; i++) {
        from[i] = (uint16_t)(0x3c00 + i % 50);
        to[i] = (uint16_t)(from[i] + (i % 3 == 0));
    }
    for (int i = 0; i < 240; i++) {
        packed_from[i] = from[i / 40 * 50 + i % 40];
        packed_to[i] = to[i / 40 * 50 + i % 40];
    }
    cr_assert_eq(pici_diff_small_columns(delta, sizeof delta, &size, from, to, &all, PICI_BF16, PICI_AUTO, NULL), 0);
    cr_assert_eq(
        pici_diff_small(want, sizeof want, &want_size, packed_from, packed_to, 240, PICI_BF16, PICI_AUTO, NULL),
        PICI_OK);
    cr_expect(size == want_size && memcmp(delta, want, size) == 0);
    memcpy(dst, from, sizeof dst);
    const void *const row[] = {delta};
    cr_expect_eq(pici_apply_small_columns(dst, &all, row, &size, 1, NULL), PICI_OK);
    for (int i = 0; i < 300; i++)
        cr_expect_eq(dst[i], i % 50 < 40 ? to[i] : from[i], "element %d", i);

    struct pici_columns one = PICI_COLUMNS_INIT;
    one.rows = 1;
    one.row_length = 300;
    one.first = 50;
    one.count = 100;
    cr_assert_eq(
        pici_diff_small_columns(delta, sizeof delta, &size, from + 50, to + 50, &one, PICI_BF16, PICI_AUTO, NULL),
        PICI_OK);
    cr_assert_eq(pici_diff_small_part(want, sizeof want, &want_size, from + 50, to + 50, 100, 50, 300, PICI_BF16,
                                      PICI_AUTO, NULL),
                 PICI_OK);
    cr_expect(size == want_size && memcmp(delta, want, size) == 0);
}

Test(codec_columns, wrong_calls)
{
    static uint16_t from[200], to[200];
    static uint8_t delta[4096];
    const void *const row[] = {delta};
    size_t size;
    struct pici_columns good = PICI_COLUMNS_INIT;
    good.rows = 10;
    good.row_length = 20;
    good.first = 5;
    good.count = 15;
    cr_assert_eq(pici_diff_small_columns(delta, sizeof delta, &size, from, to, &good, PICI_BF16, PICI_AUTO, NULL), 0);
    for (int i = 0; i < 7; i++) {
        struct pici_columns bad = good;
        switch (i) {
        case 0: bad.size = sizeof bad - 1; break;
        case 1: bad.count = 16; break;
        case 2: bad.first = UINT64_MAX; break;
        case 3: bad.stride = 14; break;
        case 4: bad.rows = UINT64_MAX / 10; break;
        case 5: bad.stride = UINT64_MAX / 4; break;
        default: bad.stride = UINT64_MAX / 18; break; /* fits, but in bytes */
        }
        size_t none = 1;
        cr_expect_eq(pici_diff_small_columns(delta + 2048, 2048, &none, from, to, &bad, PICI_BF16, PICI_AUTO, NULL),
                     PICI_E_ARG, "case %d", i);
        cr_expect_eq(none, 0u);
        cr_expect_eq(pici_apply_small_columns(from, &bad, row, &size, 1, NULL), PICI_E_ARG, "case %d", i);
    }
    struct {
        struct pici_columns columns;
        uint64_t more;
    } later = {good, 1};
    later.columns.size = sizeof later;
    cr_expect_eq(pici_apply_small_columns(from, &later.columns, row, &size, 1, NULL), PICI_E_UNSUPPORTED);
    later.more = 0;
    cr_expect_eq(pici_apply_small_columns(from, &later.columns, row, &size, 1, NULL), PICI_OK);
    cr_expect_eq(pici_apply_small_columns(from, NULL, row, &size, 1, NULL), PICI_E_ARG);
    cr_expect_eq(pici_apply_small_columns(NULL, &good, row, &size, 1, NULL), PICI_E_ARG);
    cr_expect_eq(pici_diff_small_columns(delta, sizeof delta, NULL, from, to, &good, PICI_BF16, PICI_AUTO, NULL),
                 PICI_E_ARG);
    good.count = 0; /* a rank that has none */
    cr_assert_eq(pici_diff_small_columns(delta, sizeof delta, &size, NULL, NULL, &good, PICI_BF16, PICI_AUTO, NULL), 0);
    cr_expect_eq(size, 56u);
    cr_expect_eq(pici_apply_small_columns(NULL, &good, row, &size, 1, NULL), PICI_OK);
    good.rows = 0; /* a tensor without elements */
    good.count = 15;
    cr_assert_eq(pici_diff_small_columns(delta, sizeof delta, &size, NULL, NULL, &good, PICI_F8E4M3, PICI_AUTO, NULL),
                 PICI_OK);
    cr_expect_eq(pici_apply_small_columns(NULL, &good, row, &size, 1, NULL), PICI_OK);
    cr_expect_eq(pici_apply_small(NULL, 0, delta, size, NULL), PICI_OK);
}
