/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What picitool counts of elements: zeros, negative zeros, and the cells of matrices. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/util/util.h"
#include "tools/measure/count.h"
#include "tools/measure/grid.h"
#include "tools/measure/measure.h"

/* Fills n elements of a width with zeros, negative zeros and others. */
static void fill(uint8_t *p, size_t n, size_t width, struct rng *rng)
{
    memset(p, 0, n * width);
    for (size_t i = 0; i < n; i++) {
        const uint64_t kind = rng_below(rng, 8);
        if (kind == 0)
            p[i * width + width - 1] = 0x80;
        else if (kind == 1) /* any bit */
            p[i * width + rng_below(rng, width)] |= (uint8_t)(1u << rng_below(rng, 8));
        else if (kind == 2)
            memset(p + i * width, 0xff, width);
    }
}

static bool is_zero(const uint8_t *p, size_t width)
{
    for (size_t i = 0; i < width; i++)
        if (p[i])
            return false;
    return true;
}

static bool is_negative_zero(const uint8_t *p, size_t width)
{
    return p[width - 1] == 0x80 && is_zero(p, width - 1);
}

/* Counts against one element at a time, at every width, length and alignment. */
Test(tool_grid, counts)
{
    enum { N = 200 };
    static uint8_t at[N * 8 + 8];
    struct rng rng = {1};
    for (size_t width = 1; width <= 8; width *= 2)
        for (size_t n = 0; n <= N; n++) {
            uint8_t *p = at + n % 8;
            uint64_t nonzeros = 0, negative = 0;
            uint32_t seen[N] = {0};
            fill(p, n, width, &rng);
            for (size_t i = 0; i < n; i++) {
                nonzeros += !is_zero(p + i * width, width);
                negative += is_negative_zero(p + i * width, width);
            }
            cr_assert_eq(count_nonzeros(p, n, width), nonzeros);
            cr_assert_eq(count_negative_zeros(p, n, width), negative);
            count_mark(seen, p, n, width);
            for (size_t i = 0; i < n; i++)
                cr_assert_eq(seen[i], !is_zero(p + i * width, width));
        }
}

/* Only float dtypes have negative zeros. */
Test(tool_grid, negative_zeros_are_of_floats)
{
    static const uint64_t high[1] = {UINT64_C(0x8080808080808080)};
    static const uint8_t f32[8] = {0, 0, 0, 0x80, 1, 0, 0, 0x80};
    cr_expect_eq(measure_negative_zeros(PICI_F8E4M3, high, 8), 8);
    cr_expect_eq(measure_negative_zeros(PICI_F8E5M2, high, 8), 8);
    cr_expect_eq(measure_negative_zeros(PICI_U8, high, 8), 0);
    cr_expect_eq(measure_negative_zeros(PICI_I8, high, 8), 0);
    cr_expect_eq(measure_negative_zeros(PICI_F64, high, 1), 0);
    if (*(const unsigned char *)&(uint16_t){1}) {
        cr_expect_eq(measure_negative_zeros(PICI_F32, f32, 2), 1);
        cr_expect_eq(measure_negative_zeros(PICI_I32, f32, 2), 0);
        cr_expect_eq(measure_negative_zeros(PICI_U32, f32, 2), 0);
    }
}

struct shape {
    unsigned rank;
    uint64_t d[4];
    uint64_t rows, columns; /* of the matrix; 0: wrapped */
};

/* The row and column of element i. */
static void place(const struct grid *g, uint64_t i, uint64_t *row, uint64_t *column)
{
    *row = g->by_column ? i % g->rows : i / g->columns;
    *column = g->by_column ? i / g->rows : i % g->columns;
}

/* Every shape, order and number of cells against counting one element at a time; elements come in pieces. */
Test(tool_grid, cells)
{
    static const struct shape shapes[] = {
        {0, {0}, 0, 0},
        {1, {0}, 0, 0},
        {1, {7}, 0, 0},
        {1, {100000}, 0, 0},
        {2, {1, 5000}, 0, 0},
        {2, {5000, 1}, 0, 0},
        {2, {0, 9}, 0, 0},
        {2, {64, 64}, 64, 64},
        {2, {300, 517}, 300, 517},
        {2, {2, 40000}, 2, 40000},
        {2, {40000, 2}, 40000, 2},
        {2, {9, 20011}, 9, 20011},
        {3, {12, 64, 76}, 768, 76},
        {3, {1, 100, 90}, 100, 90},
        {4, {64, 3, 7, 7}, 64, 147},
        {4, {16, 16, 3, 3}, 16, 144},
    };
    static const unsigned sides[] = {16, 22, 144, 256};
    struct rng rng = {2};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (unsigned k = 0; k < 8; k++) {
            const struct shape *s = &shapes[i];
            const bool fortran = k % 2;
            const unsigned side = sides[k / 2];
            const size_t width = (size_t)1 << (i + k) % 4;
            uint64_t n = 1;
            for (unsigned d = 0; d < s->rank; d++)
                n *= s->d[d];
            struct grid g;
            cr_assert(grid_init(&g, s->d, s->rank, n, fortran, side));
            cr_assert(g.high <= side && g.wide <= side);
            if (!n) {
                cr_assert(!g.high && !g.wide && !g.cell);
                continue;
            }
            cr_assert_eq(g.wrapped, s->rows == 0);
            cr_assert(g.wrapped || (g.rows == s->rows && g.columns == s->columns), "%zu: %lu x %lu", i,
                      (unsigned long)g.rows, (unsigned long)g.columns);
            cr_assert(g.wrapped || g.cell_rows == g.cell_columns || g.high >= side / GRID_ASPECT / 2 ||
                      g.high == g.rows);
            uint8_t *p = malloc((size_t)n * width);
            uint64_t *plain = calloc((size_t)g.high * g.wide, sizeof *plain);
            uint64_t *of = calloc((size_t)g.high * g.wide, sizeof *of);
            cr_assert(p && plain && of);
            fill(p, (size_t)n, width, &rng);
            for (uint64_t e = 0, row, column; e < n; e++) {
                place(&g, e, &row, &column);
                const size_t cell = (size_t)(row / g.cell_rows * g.wide + column / g.cell_columns);
                cr_assert_lt(cell, (size_t)g.high * g.wide);
                plain[cell] += !is_zero(p + e * width, width);
                of[cell]++;
            }
            for (uint64_t at = 0, some = 1; at < n; at += some, some = some * 7 % 9973 + 1)
                grid_add(&g, p + at * width, some < n - at ? some : n - at, width);
            for (unsigned y = 0; y < g.high; y++)
                for (unsigned x = 0; x < g.wide; x++) {
                    uint64_t nnz, elements;
                    grid_part(&g, y, g.high, x, g.wide, &nnz, &elements);
                    cr_assert_eq(nnz, plain[y * g.wide + x], "shape %zu, %u cells, order %d: cell %u, %u", i, side,
                                 fortran, y, x);
                    cr_assert_eq(elements, of[y * g.wide + x]);
                }
            uint64_t sum = 0, elements = 0;
            for (unsigned y = 0; y < (g.high + 2) / 3; y++) {
                uint64_t a, b;
                grid_part(&g, y, (g.high + 2) / 3, 0, 1, &a, &b);
                sum += a;
                elements += b;
            }
            cr_assert(sum == count_nonzeros(p, (size_t)n, width) && elements == n);
            grid_free(&g);
            free(p);
            free(plain);
            free(of);
        }
}

/* How a tensor became a matrix is said in words. */
Test(tool_grid, texts)
{
    static const uint64_t shape[] = {12, 64, 768}, flat[] = {100000}, matrix[] = {1000, 100};
    char text[GRID_TEXT];
    struct grid g;
    cr_assert(grid_init(&g, shape, 3, 12 * 64 * 768, false, 144));
    cr_expect_str_eq(grid_fold_text(text, &g, shape, 3), "rows [12, 64], columns [768]");
    cr_expect_str_eq(grid_cell_text(text, &g), "a cell: 6 x 6 elements");
    grid_free(&g);
    cr_assert(grid_init(&g, flat, 1, 100000, false, 144));
    cr_expect_str_eq(grid_fold_text(text, &g, flat, 1), "wrapped, 2048 elements a row");
    cr_expect_str_eq(grid_cell_text(text, &g), "a cell: 16 elements");
    grid_free(&g);
    cr_assert(grid_init(&g, matrix, 2, 100000, false, 1000));
    cr_expect_str_eq(grid_fold_text(text, &g, matrix, 2), "");
    cr_expect_str_eq(grid_cell_text(text, &g), "");
    grid_free(&g);
}
