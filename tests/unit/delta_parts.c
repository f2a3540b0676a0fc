/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Deltas of whole tensors are applied to parts of them (pici_state_add_part). */
#include "tests/util/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pici/delta_file.h"

enum { ROW = 1 << 19, ROWS = 11, W = ROWS * ROW, V = 3000, X = 50000 };
static const char head[] = "the head";

/* "w", of which a twentieth changes, so that it has several small deltas; "v", of which little changes; "x", XORs;
 * "same"; and "b", which is whole everywhere. */
struct weights {
    uint16_t *w;
    uint32_t v[V], same[V];
    uint8_t x[X], b[40];
};

static struct weights weights[3];

static void make(void)
{
    for (int step = 0; step < 3; step++) {
        struct weights *const now = &weights[step];
        now->w = malloc(W * sizeof *now->w);
        cr_assert_not_null(now->w);
        for (uint32_t i = 0; i < W; i++)
            now->w[i] = (uint16_t)(0x3c00 + i * 7919u % 128 + (i * 2654435761u >> 8) % 20 / 19 * (uint32_t)step);
        for (uint32_t i = 0; i < V; i++) {
            now->v[i] = 0x3f800000 + i + (i % 301 == 0) * (uint32_t)step;
            now->same[i] = i;
        }
        for (uint32_t i = 0; i < X; i++)
            now->x[i] = (uint8_t)(i % 3 ? i : i * (uint32_t)(step + 1));
        memset(now->b, 7 + step, sizeof now->b);
    }
}

static void drop(void)
{
    for (int step = 0; step < 3; step++)
        free(weights[step].w);
}

TestSuite(delta_parts, .init = make, .fini = drop);

/* Elements [first, first + n) of a tensor. */
struct part {
    uint64_t first, n;
};

/* The parts that a rank has of w, in rows, and of v and x, in elements. */
struct rank {
    struct part w, v, x;
    bool flat; /* w has no shape */
};
static const struct rank whole = {{0, ROWS}, {0, V}, {0, X}, false};

static void add(struct pici_state *s, const char *name, enum pici_dtype dtype, unsigned rank, const uint64_t *shape,
                const struct part *part, const void *data)
{
    struct pici_tensor t = PICI_TENSOR_INIT;
    t.name = name;
    t.name_len = strlen(name);
    t.dtype = dtype;
    t.rank = rank;
    t.shape = shape;
    cr_assert_eq(part ? pici_state_add_part(s, &t, data, part->first, part->n) : pici_state_add(s, &t, data, 0),
                 PICI_OK);
}

/* A rank's state: its parts, which begin at these arrays. */
static struct pici_state *state(const struct rank *rank, const uint16_t *w, struct weights *of)
{
    static const uint64_t shape[2] = {ROWS, ROW}, elements = W, v = V, x = X, b = sizeof of->b;
    const struct part rows = {rank->w.first * ROW, rank->w.n * ROW};
    const bool parts = rank != &whole;
    struct pici_state *s;
    cr_assert_eq(pici_state_new(&s, "rank", PICI_STATE_SAFETENSORS, head, sizeof head, NULL, NULL), PICI_OK);
    add(s, "w", PICI_BF16, rank->flat ? 1 : 2, rank->flat ? &elements : shape, parts ? &rows : NULL, w);
    add(s, "v", PICI_F32, 1, &v, parts ? &rank->v : NULL, of->v + rank->v.first);
    add(s, "x", PICI_U8, 1, &x, parts ? &rank->x : NULL, of->x + rank->x.first);
    add(s, "same", PICI_F32, 1, &v, NULL, of->same);
    add(s, "b", PICI_U8, 1, &b, NULL, of->b);
    return s;
}

static struct sink diff(int from, int to, int list_all, enum pici_delta_choice choice)
{
    struct pici_diff_opts opts = PICI_DIFF_OPTS_INIT;
    struct pici_state *const ends[2] = {state(&whole, weights[from].w, &weights[from]),
                                        state(&whole, weights[to].w, &weights[to])};
    struct sink k = {0};
    char why[PICI_WHY_BYTES];
    opts.choice = choice;
    opts.list_all = list_all;
    cr_assert_eq(pici_diff_states(sink_write, &k, ends[0], ends[1], &opts, why), PICI_OK, "%s", why);
    pici_state_free(ends[0]);
    pici_state_free(ends[1]);
    return k;
}

/* What deltas change in a rank's state. */
static enum pici_status update(struct pici_update **made, struct pici_state *s, const struct sink *files, int n,
                               char *why)
{
    struct pici_reader *reader[2];
    struct pici_deltas *deltas;
    struct pici_apply_opts opts = PICI_APPLY_OPTS_INIT;
    opts.threads = 2;
    cr_assert_eq(pici_deltas_new(&deltas), PICI_OK);
    for (int i = 0; i < n; i++) {
        cr_assert_eq(pici_reader_open_memory(&reader[i], files[i].p, files[i].len, NULL), PICI_OK);
        cr_assert_eq(pici_deltas_add(deltas, reader[i], "delta", why), PICI_OK, "%s", why);
    }
    const enum pici_status status = pici_update_new(made, s, deltas, &opts, why);
    pici_deltas_free(deltas);
    for (int i = 0; i < n; i++)
        pici_reader_close(reader[i]);
    return status;
}

/* A rank's parts become those of the last step, and go back. */
static void check_rank(const struct rank *rank, const struct sink *files, int n)
{
    static struct weights live;
    const size_t bytes = (size_t)rank->w.n * ROW * sizeof *live.w;
    uint16_t *const w = malloc(bytes + 1);
    struct pici_update *made;
    char why[PICI_WHY_BYTES];
    cr_assert_not_null(w);
    live = weights[0];
    memcpy(w, weights[0].w + rank->w.first * ROW, bytes);
    struct pici_state *const s = state(rank, w, &live);
    cr_assert_eq(update(&made, s, files, n, why), PICI_OK, "%s", why);
    for (int to = n; to >= 0; to -= n) {
        struct weights want = weights[0];
        cr_assert_eq(pici_update_switch(made), PICI_OK);
        memcpy(want.v + rank->v.first, weights[to].v + rank->v.first, rank->v.n * sizeof *want.v);
        memcpy(want.x + rank->x.first, weights[to].x + rank->x.first, rank->x.n);
        memcpy(want.b, weights[to].b, sizeof want.b);
        cr_expect_eq(memcmp(w, weights[to].w + rank->w.first * ROW, bytes), 0, "w of step %d", to);
        cr_expect_arr_eq(live.v, want.v, sizeof want.v);
        cr_expect_arr_eq(live.x, want.x, sizeof want.x);
        cr_expect_arr_eq(live.b, want.b, sizeof want.b);
    }
    pici_update_free(made);
    pici_state_free(s);
    free(w);
}

Test(delta_parts, ranks)
{
    static const struct rank ranks[] = {
        {{0, 4}, {0, 300}, {0, 1}, false},           {{4, 5}, {300, 302}, {1, 40000}, false},
        {{9, 2}, {602, 2398}, {40001, 9999}, false}, {{3, 7}, {0, V}, {7, 0}, true},
        {{8, 1}, {1, V - 1}, {0, X}, true},          {{5, 0}, {V, 0}, {X, 0}, false},
        {{0, ROWS}, {0, V}, {0, X}, false},          {{0, ROWS}, {0, V}, {0, X}, true}};
    for (int choice = 0; choice < 3; choice++)
        for (int list_all = 0; list_all < 2; list_all++) {
            struct sink files[2];
            for (int i = 0; i < 2; i++)
                files[i] = diff(i, i + 1, list_all, (enum pici_delta_choice)choice);
            for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
                for (int n = 1; n < (choice || list_all ? 2 : 3); n++)
                    check_rank(&ranks[i], files, n);
            sink_free(&files[0]);
            sink_free(&files[1]);
        }
}

/* What is whole and listed is checked, and so are pieces of parts; without hashes of pieces, small deltas find some. */
Test(delta_parts, refused)
{
    static const struct rank rank = {{4, 5}, {300, 302}, {1, 40000}, false};
    struct sink file = diff(0, 1, 0, PICI_DELTA_AUTO), without = diff(0, 1, 1, PICI_DELTA_AUTO), out = {0};
    struct weights live = weights[0];
    uint16_t *const w = malloc(5 * ROW * sizeof *w);
    struct pici_update *made;
    char why[PICI_WHY_BYTES];
    cr_assert_not_null(w);
    memcpy(w, weights[0].w + 4 * ROW, 5 * ROW * sizeof *w);
    struct pici_state *const s = state(&rank, w, &live);
    live.b[0]++;
    cr_expect_eq(update(&made, s, &file, 1, why), PICI_E_ARG);
    cr_expect(strstr(why, "tensor 'b'"), "%s", why);
    live.b[0]--;
    for (size_t i = 0; i < 5 * ROW; i++)
        w[i] ^= i % 5 ? 0 : 0x2000; /* exponents */
    cr_expect_eq(update(&made, s, &without, 1, why), PICI_E_CORRUPT);
    cr_expect(strstr(why, "tensor 'w'") && strstr(why, "not of these elements"), "%s", why);
    cr_expect_eq(update(&made, s, &file, 1, why), PICI_E_ARG);
    cr_expect(strstr(why, "tensor 'w'") && strstr(why, "the XXH64 of elements"), "%s", why);

    /* whole tensors are needed elsewhere */
    struct pici_reader *reader;
    struct pici_deltas *deltas;
    uint64_t bytes, hash;
    int is;
    cr_assert_eq(pici_reader_open_memory(&reader, file.p, file.len, NULL), PICI_OK);
    cr_assert_eq(pici_deltas_new(&deltas), PICI_OK);
    cr_assert_eq(pici_deltas_add(deltas, reader, "delta", why), PICI_OK);
    cr_expect_eq(pici_apply_deltas(sink_write, &out, s, deltas, NULL, why), PICI_E_UNSUPPORTED);
    cr_expect(strstr(why, "parts of tensors"), "%s", why);
    cr_expect_eq(pici_deltas_is_result(deltas, s, &is, why), PICI_E_UNSUPPORTED);
    cr_expect_eq(pici_diff_states(sink_write, &out, s, s, NULL, why), PICI_E_UNSUPPORTED);
    cr_expect_eq(pici_state_hash(s, &bytes, &hash, why), PICI_E_UNSUPPORTED);
    pici_deltas_free(deltas);
    pici_reader_close(reader);
    pici_state_free(s);
    free(w);
    sink_free(&file);
    sink_free(&without);
    sink_free(&out);
}

/* Flat, a part that is all of a tensor is one of any shape: its hash is checked if a delta lists it. */
Test(delta_parts, flat_whole)
{
    static const uint64_t shape[2] = {40, V / 40}, elements = V;
    struct sink file = {0}, nothing = {0};
    struct pici_update *made;
    char why[PICI_WHY_BYTES];
    for (int change = 0; change < 2; change++)
        for (int list_all = 0; list_all < 2; list_all++) {
            static uint32_t before[2][V], after[2][V];
            struct pici_state *ends[2], *s;
            struct pici_diff_opts opts = PICI_DIFF_OPTS_INIT;
            opts.list_all = list_all;
            memcpy(before[0], weights[0].v, sizeof *before);
            memcpy(before[1], weights[0].same, sizeof *before);
            memcpy(after, before, sizeof after);
            for (int i = 0; i < V; i += change ? 2 : V) /* few, and many */
                after[0][i] ^= 5;
            for (int i = 0; i < 2; i++) {
                const uint32_t *const at = i ? after[0] : before[0];
                cr_assert_eq(pici_state_new(&ends[i], "end", PICI_STATE_SAFETENSORS, head, sizeof head, NULL, NULL), 0);
                add(ends[i], "v", PICI_F32, 2, shape, NULL, at);
                add(ends[i], "same", PICI_F32, 2, shape, NULL, at + V);
            }
            cr_assert_eq(pici_diff_states(sink_write, &file, ends[0], ends[1], &opts, why), PICI_OK, "%s", why);
            static const struct part all = {0, V};
            cr_assert_eq(pici_state_new(&s, "rank", PICI_STATE_SAFETENSORS, head, sizeof head, NULL, NULL), PICI_OK);
            add(s, "v", PICI_F32, 1, &elements, &all, before[0]);
            add(s, "same", PICI_F32, 1, &elements, &all, before[1]);
            cr_expect_eq(pici_diff_states(sink_write, &nothing, s, ends[1], &opts, why), PICI_E_UNSUPPORTED);
            before[0][7]++;
            cr_expect_eq(update(&made, s, &file, 1, why), PICI_E_ARG);
            cr_expect(strstr(why, "XXH64"), "%s", why);
            before[0][7]--;
            cr_assert_eq(update(&made, s, &file, 1, why), PICI_OK, "%s", why);
            cr_expect_eq(pici_update_switch(made), PICI_OK);
            cr_expect_arr_eq(before, after, sizeof after);
            pici_update_free(made);
            pici_state_free(s);
            pici_state_free(ends[0]);
            pici_state_free(ends[1]);
            sink_free(&file);
            sink_free(&nothing);
            file = nothing = (struct sink){0};
        }
}

/* A part that has some of the elements of a chunk; parts that are none. */
Test(delta_parts, wrong_parts)
{
    static const uint64_t shape[2] = {ROWS, ROW}, v = V, x = X, b = sizeof weights->b;
    struct sink file = diff(0, 1, 1, PICI_DELTA_SMALLEST);
    struct pici_update *made;
    char why[PICI_WHY_BYTES];
    static const struct part parts[] = {{1, ROW}, {0, ROW + 1}, {4 * ROW - 1, 5 * ROW}, {W - 7, 7}};
    for (int i = 0; i < 4; i++) {
        struct pici_state *s;
        cr_assert_eq(pici_state_new(&s, "rank", PICI_STATE_SAFETENSORS, head, sizeof head, NULL, NULL), PICI_OK);
        add(s, "w", PICI_BF16, 2, shape, &parts[i], weights[0].w + parts[i].first);
        add(s, "v", PICI_F32, 1, &v, NULL, weights[0].v);
        add(s, "x", PICI_U8, 1, &x, NULL, weights[0].x);
        add(s, "same", PICI_F32, 1, &v, NULL, weights[0].same);
        add(s, "b", PICI_U8, 1, &b, NULL, weights[0].b);
        cr_expect_eq(update(&made, s, &file, 1, why), PICI_E_UNSUPPORTED);
        cr_expect(strstr(why, "multiple of 524288"), "%s", why);
        pici_state_free(s);
    }
    struct pici_state *s;
    struct pici_tensor t = PICI_TENSOR_INIT;
    t.name = "w";
    t.name_len = 1;
    t.dtype = PICI_BF16;
    t.rank = 2;
    t.shape = shape;
    cr_assert_eq(pici_state_new(&s, "rank", PICI_STATE_SAFETENSORS, head, sizeof head, NULL, NULL), PICI_OK);
    cr_expect_eq(pici_state_add_part(s, &t, weights[0].w, W, 1), PICI_E_ARG);
    cr_expect_eq(pici_state_add_part(s, &t, weights[0].w, UINT64_MAX, 2), PICI_E_ARG);
    cr_expect_eq(pici_state_add_part(s, &t, weights[0].w, 0, W + 1), PICI_E_ARG);
    cr_expect_eq(pici_state_add_part(s, &t, NULL, 0, 1), PICI_E_ARG);
    cr_expect_eq(pici_state_add_part(NULL, &t, weights[0].w, 0, 1), PICI_E_ARG);
    struct pici_columns columns = PICI_COLUMNS_INIT;
    columns.rows = shape[0];
    columns.row_length = shape[1];
    columns.first = 1;
    columns.count = 1;
    cr_expect_eq(pici_state_add_columns(s, &t, NULL, &columns), PICI_E_ARG);
    cr_expect_eq(pici_state_add_columns(s, &t, weights[0].w, NULL), PICI_E_ARG);
    for (int i = 0; i < 6; i++) {
        struct pici_columns bad = columns;
        switch (i) {
        case 0: bad.size--; break;
        case 1: bad.rows++; break;
        case 2: bad.first = shape[1]; break;
        case 3: bad.count = UINT64_MAX; break;
        case 4: bad.stride = 2; break;
        default: bad.rows = UINT64_MAX / 2;
        }
        cr_expect_eq(pici_state_add_columns(s, &t, weights[0].w, &bad), PICI_E_ARG, "case %d", i);
    }
    cr_expect_eq(pici_state_add_columns(s, &t, weights[0].w, &columns), PICI_OK);
    pici_state_free(s);
    sink_free(&file);
}
