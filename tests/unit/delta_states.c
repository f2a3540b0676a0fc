/* SPDX-License-Identifier: BSD-3-Clause
 *
 * States in memory, deltas between them, and deltas in a row (pici/delta_file.h). That files lead to the same is tested
 * by tests/cli/delta.sh. */
#include "tests/util/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bytes.h"
#include "pici/delta.h"
#include "pici/delta_file.h"
#include "xxh64.h"

enum { N = 5000 };
static const char head[] = "the head";

/* A state's tensors: "w" of bf16, "big" of f32 in the other byte order, and "b", "n" of states 1 and 2 alone. */
struct memory {
    uint16_t w[N];
    uint32_t big[N];
    uint8_t b[40];
};

static void fill(struct memory *m, int step)
{
    for (int i = 0; i < N; i++) {
        m->w[i] = (uint16_t)(0x3c00 + i * 7919 % 128 + (i % 7 == 0) * step);
        m->big[i] = (uint32_t)(0x3f800000 + i + (i % 11 == 0) * step * 3);
    }
    memset(m->b, 7 + step, sizeof m->b);
}

static void add(struct pici_state *s, const char *name, enum pici_dtype dtype, uint64_t n, const void *data, bool swap)
{
    struct pici_tensor t = PICI_TENSOR_INIT;
    const bool big = PICI_BIG_ENDIAN != swap;
    const struct pici_attr attr = {"source.endian", "big", 3};
    t.name = name;
    t.name_len = strlen(name);
    t.dtype = dtype;
    t.rank = 1;
    t.shape = &n;
    t.attrs = &attr;
    t.n_attrs = big;
    cr_assert_eq(pici_state_add(s, &t, data, 0), PICI_OK);
}

static struct pici_state *state(const struct memory *m, int step)
{
    struct pici_state *s;
    cr_assert_eq(pici_state_new(&s, "state", PICI_STATE_SAFETENSORS, head, sizeof head, NULL, NULL), PICI_OK);
    add(s, "w", PICI_BF16, N, m->w, false);
    add(s, "big", PICI_F32, N, m->big, true);
    add(s, step < 2 ? "b" : "n", PICI_U8, sizeof m->b, m->b, false);
    return s;
}

static struct sink diff(struct pici_state *from, struct pici_state *to, enum pici_delta_choice choice, int threads)
{
    struct pici_diff_opts opts = PICI_DIFF_OPTS_INIT;
    struct sink k = {0};
    char why[PICI_WHY_BYTES];
    opts.choice = choice;
    opts.threads = threads;
    const enum pici_status s = pici_diff_states(sink_write, &k, from, to, &opts, why);
    cr_assert_eq(s, PICI_OK, "%s", why);
    cr_assert_str_eq(why, "");
    return k;
}

/* The bytes that the file of a state has. */
static size_t bytes_of(uint8_t *out, const struct memory *m)
{
    size_t at = 0;
    memcpy(out, head, sizeof head);
    at += sizeof head;
    memcpy(out + at, m->w, sizeof m->w);
    at += sizeof m->w;
    memcpy(out + at, m->big, sizeof m->big);
    at += sizeof m->big;
    memcpy(out + at, m->b, sizeof m->b);
    return at + sizeof m->b;
}

struct row {
    struct sink file[2];
    struct pici_reader *reader[2];
    struct pici_deltas *deltas;
};

static void row_open(struct row *r, int n)
{
    static const char *const names[] = {"first", "second"};
    char why[PICI_WHY_BYTES];
    cr_assert_eq(pici_deltas_new(&r->deltas), PICI_OK);
    for (int i = 0; i < n; i++) {
        cr_assert_eq(pici_reader_open_memory(&r->reader[i], r->file[i].p, r->file[i].len, NULL), PICI_OK);
        cr_assert_eq(pici_deltas_add(r->deltas, r->reader[i], names[i], why), PICI_OK, "%s", why);
    }
}

static void row_close(struct row *r, int n)
{
    pici_deltas_free(r->deltas);
    for (int i = 0; i < n; i++)
        pici_reader_close(r->reader[i]);
}

static struct memory m[3];
static struct pici_state *s[3];

static void make(void)
{
    for (int i = 0; i < 3; i++) {
        fill(&m[i], i);
        s[i] = state(&m[i], i);
    }
}

static void drop(void)
{
    for (int i = 0; i < 3; i++)
        pici_state_free(s[i]);
}

TestSuite(delta_states, .init = make, .fini = drop);

Test(delta_states, one_and_two_in_a_row)
{
    static uint8_t want[sizeof(struct memory) + 64];
    char why[PICI_WHY_BYTES];
    for (int choice = PICI_DELTA_AUTO; choice <= PICI_DELTA_FASTEST; choice++)
        for (int threads = 1; threads < 3; threads++) {
            struct row r = {.file = {diff(s[0], s[1], (enum pici_delta_choice)choice, threads),
                                     diff(s[1], s[2], (enum pici_delta_choice)choice, 3 - threads)}};
            row_open(&r, 2);
            struct pici_deltas_info info = PICI_DELTAS_INFO_INIT;
            struct sink out = {0};
            int is;
            cr_assert_eq(pici_deltas_get_info(r.deltas, &info), PICI_OK);
            cr_assert_eq(pici_apply_deltas(sink_write, &out, s[0], r.deltas, NULL, why), PICI_OK, "%s", why);
            const size_t len = bytes_of(want, &m[2]);
            cr_assert(out.len == len && memcmp(out.p, want, len) == 0);
            cr_assert(info.bytes == len && info.tensors == 3 && info.type == PICI_STATE_SAFETENSORS);
            cr_assert(info.head_len == sizeof head && memcmp(info.head, head, sizeof head) == 0);
            for (int i = 0; i < 3; i++) {
                cr_assert_eq(pici_deltas_is_result(r.deltas, s[i], &is, why), PICI_OK);
                cr_assert_eq(is, i == 2, "state %d", i);
            }
            row_close(&r, 2);
            sink_free(&out);
            sink_free(&r.file[0]);
            sink_free(&r.file[1]);
        }
}

Test(delta_states, small_deltas_are_smaller)
{
    struct sink small = diff(s[0], s[1], PICI_DELTA_SMALLEST, 1), fast = diff(s[0], s[1], PICI_DELTA_FASTEST, 1);
    cr_assert_lt(small.len, fast.len);
    struct sink choice = diff(s[0], s[1], PICI_DELTA_AUTO, 2);
    cr_assert_leq(choice.len, fast.len);
    sink_free(&small);
    sink_free(&fast);
    sink_free(&choice);
}

/* Small deltas are chosen by the first elements that changed, wherever these are. Nothing fails where nothing did. */
Test(delta_states, decided_by_what_changed)
{
    enum { PIECE = 4 << 20, COUNT = PIECE + 300000 };
    uint16_t *const from = malloc(COUNT * sizeof *from), *const to = malloc(COUNT * sizeof *to);
    cr_assert(from && to);
    for (size_t i = 0; i < COUNT; i++) {
        const uint32_t r = (uint32_t)i * 2654435761u;
        from[i] = (uint16_t)((100 + r % 20) << 7 | r >> 25);
        to[i] = (uint16_t)(from[i] + (i >= PIECE && r % 20 < 4 && r >> 16 & 1));
    }
    for (int changed = 0; changed < 2; changed++) {
        struct sink file[3];
        for (int choice = PICI_DELTA_AUTO; choice <= PICI_DELTA_FASTEST; choice++) {
            struct pici_state *ends[2];
            for (int i = 0; i < 2; i++) {
                cr_assert_eq(pici_state_new(&ends[i], "state", PICI_STATE_RAW, NULL, 0, NULL, NULL), PICI_OK);
                add(ends[i], "data", PICI_BF16, COUNT, i && changed ? to : from, false);
            }
            file[choice] = diff(ends[0], ends[1], (enum pici_delta_choice)choice, 2);
            struct row r = {.file = {file[choice]}};
            struct sink out = {0};
            char why[PICI_WHY_BYTES];
            row_open(&r, 1);
            cr_assert_eq(pici_apply_deltas(sink_write, &out, ends[0], r.deltas, NULL, why), PICI_OK, "%s", why);
            cr_assert(out.len == COUNT * sizeof *to && memcmp(out.p, changed ? to : from, out.len) == 0);
            row_close(&r, 1);
            sink_free(&out);
            for (int i = 0; i < 2; i++)
                pici_state_free(ends[i]);
        }
        cr_assert_eq(file[PICI_DELTA_AUTO].len, file[PICI_DELTA_SMALLEST].len);
        if (changed)
            cr_assert_lt(2 * file[PICI_DELTA_AUTO].len, file[PICI_DELTA_FASTEST].len);
        for (int i = 0; i < 3; i++)
            sink_free(&file[i]);
    }
    free(from);
    free(to);
}

Test(delta_states, hash)
{
    static uint8_t want[sizeof(struct memory) + 64];
    uint64_t bytes, hash;
    const size_t len = bytes_of(want, &m[1]);
    cr_assert_eq(pici_state_hash(s[1], &bytes, &hash, NULL), PICI_OK);
    cr_assert(bytes == len && hash == pici_xxh64(want, len, 0));
}

/* The wrong base is PICI_E_ARG and why names the tensor; deltas in the wrong order are PICI_E_CORRUPT. */
Test(delta_states, refused)
{
    char why[PICI_WHY_BYTES];
    struct sink out = {0};
    struct row r = {.file = {diff(s[0], s[1], PICI_DELTA_SMALLEST, 1), diff(s[1], s[2], PICI_DELTA_SMALLEST, 1)}};
    row_open(&r, 1);
    cr_assert_eq(pici_apply_deltas(sink_write, &out, s[1], r.deltas, NULL, why), PICI_E_ARG);
    cr_assert(strstr(why, "state: not the base of first: tensor 'w': its XXH64 is"), "%s", why);
    cr_assert_eq(pici_apply_deltas(sink_write, &out, s[2], r.deltas, NULL, why), PICI_E_ARG);
    m[0].w[N - 1] ^= 0x4000;
    cr_assert_eq(pici_apply_deltas(sink_write, &out, s[0], r.deltas, NULL, why), PICI_E_ARG);
    cr_assert(why[0]);
    m[0].w[N - 1] ^= 0x4000;
    cr_assert_eq(pici_apply_deltas(NULL, &out, s[0], r.deltas, NULL, why), PICI_E_ARG);
    cr_assert_str_eq(why, "");
    sink_free(&out);
    out = (struct sink){.fail_at = 2};
    cr_assert_eq(pici_apply_deltas(sink_write, &out, s[0], r.deltas, NULL, why), PICI_E_IO);
    cr_assert(errno && why[0]);
    row_close(&r, 1);
    sink_free(&out);

    struct row back = {.file = {r.file[1], r.file[0]}};
    row_open(&back, 2);
    cr_assert_eq(pici_apply_deltas(sink_write, &out, s[1], back.deltas, NULL, why), PICI_E_CORRUPT);
    cr_assert(strstr(why, "second: not a delta of the result of first: tensor 'w' differs"), "%s", why);
    row_close(&back, 2);

    struct pici_state *npy;
    struct pici_diff_opts opts = PICI_DIFF_OPTS_INIT;
    cr_assert_eq(pici_state_new(&npy, "a", PICI_STATE_NPY, NULL, 0, NULL, NULL), PICI_OK);
    cr_assert_eq(pici_diff_states(sink_write, &out, s[0], npy, NULL, why), PICI_E_ARG);
    opts.choice = 3;
    cr_assert_eq(pici_diff_states(sink_write, &out, s[0], s[1], &opts, why), PICI_E_ARG);
    add(s[1], "w", PICI_U8, 1, m[1].b, false);
    cr_assert_eq(pici_diff_states(sink_write, &out, s[0], s[1], NULL, why), PICI_E_ARG);
    cr_assert(strstr(why, "'w'"), "%s", why);
    pici_state_free(npy);
    sink_free(&r.file[0]);
    sink_free(&r.file[1]);
    sink_free(&out);
}

/* Small deltas of "w" are made by a function, and those of "big" are not. */
struct maker {
    int made, asked;
    enum pici_status status;
};

static enum pici_status make_w(void *context, const char *name, size_t name_bytes, uint64_t first, uint64_t n,
                               void *block, size_t capacity, size_t *size)
{
    struct maker *const maker = context;
    maker->asked++;
    if (name_bytes != 1 || name[0] != 'w')
        return PICI_E_UNSUPPORTED;
    maker->made++;
    cr_assert_eq(first, 0u);
    cr_assert_eq(n, (uint64_t)N);
    const enum pici_status status =
        pici_diff_small(block, capacity, size, m[0].w, m[1].w, n, PICI_BF16, PICI_AUTO, NULL);
    return maker->status ? maker->status : status;
}

Test(delta_states, small_deltas_of_the_caller)
{
    char why[PICI_WHY_BYTES];
    struct pici_diff_opts opts = PICI_DIFF_OPTS_INIT;
    struct maker maker = {0};
    struct sink want = diff(s[0], s[1], PICI_DELTA_SMALLEST, 1), out = {0};
    opts.choice = PICI_DELTA_SMALLEST;
    opts.small = make_w;
    opts.small_ctx = &maker;
    cr_assert_eq(pici_diff_states(sink_write, &out, s[0], s[1], &opts, why), PICI_OK, "%s", why);
    cr_assert_eq(maker.made, 1);
    cr_assert_gt(maker.asked, 1);
    cr_assert_eq(out.len, want.len);
    cr_assert_eq(memcmp(out.p, want.p, out.len), 0);
    sink_free(&out);
    out = (struct sink){0};
    maker.status = PICI_E_DEVICE;
    cr_assert_eq(pici_diff_states(sink_write, &out, s[0], s[1], &opts, why), PICI_E_DEVICE);
    cr_assert(why[0]);
    sink_free(&out);
    sink_free(&want);
}

/* Version 0.2 lists F4 and F6 of a .safetensors file as so many bytes, without their shape. */
Test(delta_states, bytes_without_a_shape)
{
    char why[PICI_WHY_BYTES];
    struct sink out = {0};
    static uint8_t want[sizeof(struct memory) + 64];
    struct row r = {.file = {diff(s[0], s[1], PICI_DELTA_FASTEST, 1)}};
    for (int wrong = 0; wrong <= 1; wrong++) {
        struct pici_state *base;
        struct pici_tensor t = PICI_TENSOR_INIT;
        const uint64_t shape[] = {8, 5};
        cr_assert_eq(pici_state_new(&base, "state", PICI_STATE_SAFETENSORS, head, sizeof head, NULL, NULL), PICI_OK);
        add(base, "w", PICI_BF16, N, m[0].w, false);
        add(base, "big", PICI_F32, N, m[0].big, true);
        t.name = "b";
        t.name_len = 1;
        t.dtype = wrong ? PICI_I8 : PICI_U8;
        t.rank = 2;
        t.shape = shape;
        cr_assert_eq(pici_state_add(base, &t, m[0].b, 0), PICI_OK);
        row_open(&r, 1);
        const enum pici_status status = pici_apply_deltas(sink_write, &out, base, r.deltas, NULL, why);
        cr_assert_eq(status, wrong ? PICI_E_ARG : PICI_OK, "%s", why);
        if (!wrong) {
            cr_assert_eq(out.len, bytes_of(want, &m[1]));
            cr_assert_eq(memcmp(out.p, want, out.len), 0);
        }
        row_close(&r, 1);
        pici_state_free(base);
        sink_free(&out);
    }
    sink_free(&r.file[0]);
}

/* ---- only what changes is listed: version 3 ---- */

enum { MANY = 3000, EACH = 64 };
static uint16_t experts[4][MANY][EACH];
static char names[MANY][64];

static struct pici_state *experts_of(int step)
{
    struct pici_state *made;
    cr_assert_eq(pici_state_new(&made, "experts", PICI_STATE_SAFETENSORS, head, sizeof head, NULL, NULL), PICI_OK);
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "model.layers.%d.mlp.experts.%d.up_proj.weight", i / 128, i % 128);
        add(made, names[i], PICI_BF16, EACH, experts[step][i], i % 5 == 4);
    }
    return made;
}

static void expect_experts(struct row *r, int n, struct pici_state *from, int to)
{
    struct sink out = {0};
    char why[PICI_WHY_BYTES];
    int is = 0;
    struct pici_state *const last = experts_of(to);
    row_open(r, n);
    cr_assert_eq(pici_apply_deltas(sink_write, &out, from, r->deltas, NULL, why), PICI_OK, "%s", why);
    cr_assert_eq(out.len, sizeof head + sizeof experts[0]);
    cr_assert_eq(memcmp(out.p + sizeof head, experts[to], sizeof experts[0]), 0);
    cr_assert_eq(pici_deltas_is_result(r->deltas, last, &is, why), PICI_OK);
    cr_assert_eq(is, 1);
    cr_assert_eq(pici_deltas_is_result(r->deltas, from, &is, why), PICI_OK);
    cr_assert_eq(is, 0);
    struct pici_deltas_info info = PICI_DELTAS_INFO_INIT;
    cr_assert_eq(pici_deltas_get_info(r->deltas, &info), PICI_OK);
    cr_assert_eq(info.bytes, out.len);
    cr_assert_eq(info.tensors, (uint64_t)MANY);
    pici_state_free(last);
    row_close(r, n);
    sink_free(&out);
}

Test(delta_states, unchanged_tensors_take_nothing)
{
    struct rng rng = {3};
    char why[PICI_WHY_BYTES];
    for (int i = 0; i < MANY * EACH; i++)
        experts[0][i / EACH][i % EACH] = (uint16_t)(0x3c00 + rng_below(&rng, 500));
    memcpy(experts[1], experts[0], sizeof experts[0]);
    struct pici_state *state0 = experts_of(0), *state1 = experts_of(1);
    struct row r = {.file = {diff(state0, state1, PICI_DELTA_AUTO, 1)}};
    cr_expect_lt(r.file[0].len, 600u, "nothing changed: %zu bytes", r.file[0].len);
    sink_free(&r.file[0]);

    /* an element of a third of them, and many of one */
    for (int i = 0; i < MANY; i += 3)
        experts[1][i][i % EACH] ^= 1;
    for (int i = 0; i < EACH; i++)
        experts[1][7][i] = (uint16_t)rng_below(&rng, 65536);
    memcpy(experts[2], experts[1], sizeof experts[0]);
    experts[2][7][3] ^= 9;
    experts[2][8][63] ^= 0x8000;
    memcpy(experts[3], experts[2], sizeof experts[0]);
    for (int i = 0; i < MANY; i++)
        experts[3][i][5] += 2;
    pici_state_free(state0);
    pici_state_free(state1);
    struct pici_state *all[4];
    for (int i = 0; i < 4; i++)
        all[i] = experts_of(i);
    r.file[0] = diff(all[0], all[1], PICI_DELTA_AUTO, 1);
    cr_expect_lt(r.file[0].len, 1000u + MANY / 3 * 26, "%zu bytes", r.file[0].len);
    expect_experts(&r, 1, all[0], 1);
    r.file[1] = diff(all[1], all[2], PICI_DELTA_AUTO, 1);
    expect_experts(&r, 2, all[0], 2);

    /* what no delta lists counts too */
    struct sink out = {0};
    row_open(&r, 2);
    experts[0][1][2] ^= 1;
    cr_assert_eq(pici_apply_deltas(sink_write, &out, all[0], r.deltas, NULL, why), PICI_E_ARG);
    cr_assert(strstr(why, "not the base of first: a tensor that it does not change differs"), "%s", why);
    experts[0][1][2] ^= 1;
    row_close(&r, 2);
    sink_free(&out);

    /* deltas that list all tensors before, between and after */
    struct row mixed = {.file = {diff(all[0], all[1], PICI_DELTA_FASTEST, 1), r.file[1]}};
    expect_experts(&mixed, 2, all[0], 2);
    struct row after = {.file = {r.file[0], diff(all[1], all[2], PICI_DELTA_FASTEST, 1)}};
    expect_experts(&after, 2, all[0], 2);

    /* not of the one before */
    struct row wrong = {.file = {mixed.file[0], diff(all[2], all[3], PICI_DELTA_AUTO, 1)}};
    row_open(&wrong, 2);
    cr_assert_eq(pici_apply_deltas(sink_write, &out, all[0], wrong.deltas, NULL, why), PICI_E_CORRUPT);
    cr_assert(strstr(why, "second: not a delta of the result of first"), "%s", why);
    row_close(&wrong, 2);
    sink_free(&out);

    /* whatever byte of such a delta is changed: refused, or one that is not needed (the index has a copy) */
    struct sink whole = diff(all[1], all[2], PICI_DELTA_AUTO, 1);
    for (size_t i = 0; i<whole.len; i += whole.len> 4000 ? 7 : 1) {
        struct pici_reader *reader;
        struct pici_deltas *deltas = NULL;
        whole.p[i] ^= 0x10;
        enum pici_status found = pici_reader_open_memory(&reader, whole.p, whole.len, NULL);
        if (!found)
            found = pici_deltas_new(&deltas);
        if (!found)
            found = pici_deltas_add(deltas, reader, "damaged", why);
        if (!found)
            found = pici_apply_deltas(sink_write, &out, all[1], deltas, NULL, why);
        cr_expect(found || memcmp(out.p + sizeof head, experts[2], sizeof experts[2]) == 0, "byte %zu", i);
        pici_deltas_free(deltas);
        pici_reader_close(reader);
        sink_free(&out);
        whole.p[i] ^= 0x10;
    }
    for (int i = 0; i < 4; i++)
        pici_state_free(all[i]);
    sink_free(&whole);
    sink_free(&r.file[0]);
    sink_free(&r.file[1]);
    sink_free(&mixed.file[0]);
    sink_free(&after.file[1]);
    sink_free(&wrong.file[1]);
}

static struct pici_state *two_of(const char *text, const char *first, const uint16_t *a, const char *second,
                                 const uint16_t *b)
{
    struct pici_state *made;
    cr_assert_eq(pici_state_new(&made, "two", PICI_STATE_SAFETENSORS, text, strlen(text), NULL, NULL), PICI_OK);
    add(made, first, PICI_BF16, N, a, false);
    add(made, second, PICI_BF16, N, b, false);
    return made;
}

/* A head says where each tensor is, so that it goes with one order of them. */
Test(delta_states, another_order_of_the_base)
{
    static uint16_t old[2][N], new[2][N];
    for (int i = 0; i < 2 * N; i++) {
        old[i / N][i % N] = (uint16_t)(0x3c00 + i % 301);
        new[i / N][i % N] = (uint16_t)(old[i / N][i % N] + (i % 1000 == 0));
    }
    struct pici_state *from = two_of("step 1", "a", old[0], "b", old[1]),
                      *same = two_of("step 1", "a", new[0], "b", new[1]),
                      *to = two_of("step 2", "a", new[0], "b", new[1]),
                      *turned = two_of("a longer head", "b", old[1], "a", old[0]);
    for (int own = 0; own < 2; own++) {
        struct row r = {.file = {diff(from, own ? to : same, PICI_DELTA_AUTO, 1)}};
        struct sink out = {0};
        struct pici_deltas_info info = PICI_DELTAS_INFO_INIT;
        char why[PICI_WHY_BYTES];
        const char *const head_text = own ? "step 2" : "a longer head";
        const size_t skip = strlen(head_text);
        row_open(&r, 1);
        cr_assert_eq(pici_deltas_get_info(r.deltas, &info), PICI_OK);
        cr_expect_eq(!!info.head, own, "the head is stored if it is another");
        cr_assert_eq(pici_apply_deltas(sink_write, &out, turned, r.deltas, NULL, why), PICI_OK, "%s", why);
        cr_assert_eq(out.len, skip + sizeof new);
        cr_expect_eq(memcmp(out.p, head_text, skip), 0);
        cr_expect_eq(memcmp(out.p + skip, new[own ? 0 : 1], sizeof new[0]), 0, "head %d", own);
        cr_expect_eq(memcmp(out.p + skip + sizeof new[0], new[own ? 1 : 0], sizeof new[0]), 0, "head %d", own);
        row_close(&r, 1);
        sink_free(&out);
        if (own) { /* a delta with a head, and one without that was made from a file with another */
            struct pici_state *const long_to = two_of("an even longer head", "b", new[1], "a", new[0]);
            r.file[1] = diff(long_to, long_to, PICI_DELTA_AUTO, 1);
            row_open(&r, 2);
            cr_assert_eq(pici_deltas_get_info(r.deltas, &info), PICI_OK);
            cr_assert_eq(pici_apply_deltas(sink_write, &out, turned, r.deltas, NULL, why), PICI_OK, "%s", why);
            cr_expect_eq(info.bytes, out.len);
            cr_expect_eq(memcmp(out.p, "step 2", 6), 0);
            row_close(&r, 2);
            sink_free(&out);
            sink_free(&r.file[1]);
            pici_state_free(long_to);
        }
        sink_free(&r.file[0]);
    }
    pici_state_free(from);
    pici_state_free(same);
    pici_state_free(to);
    pici_state_free(turned);
}

Test(delta_states, no_head_in_version_3)
{
    static const uint8_t base[16] = {1};
    const uint64_t none = 0, shape[2] = {1, 2}, hashes[2] = {3, 4};
    for (size_t count = 3; count < 5; count++) {
        const struct pici_attr attrs[4] = {{"delta.version", "3", 1},
                                           {"source.type", "safetensors", 11},
                                           {"delta.base", base, sizeof base},
                                           {"source.head", "head", 4}};
        struct sink made = {0};
        struct pici_writer *w;
        struct pici_reader *reader;
        struct pici_deltas *deltas;
        struct pici_tensor t = PICI_TENSOR_INIT;
        char why[PICI_WHY_BYTES];
        cr_assert_eq(pici_writer_open(&w, sink_write, &made, attrs, count, NULL), PICI_OK);
        t.name = "delta.few";
        t.name_len = strlen(t.name);
        t.dtype = PICI_U8;
        t.rank = 1;
        t.shape = &none;
        cr_assert_eq(pici_writer_tensor(w, &t), PICI_OK);
        t.name = "delta.hashes";
        t.name_len = strlen(t.name);
        t.dtype = PICI_U64;
        t.rank = 2;
        t.shape = shape;
        cr_assert_eq(pici_writer_tensor(w, &t), PICI_OK);
        cr_assert_eq(pici_writer_data(w, hashes, sizeof hashes), PICI_OK);
        cr_assert_eq(pici_writer_finish(w), PICI_OK);
        pici_writer_close(w);
        cr_assert_eq(pici_reader_open_memory(&reader, made.p, made.len, NULL), PICI_OK);
        cr_assert_eq(pici_deltas_new(&deltas), PICI_OK);
        cr_expect_eq(pici_deltas_add(deltas, reader, "made", why), count == 3 ? PICI_OK : PICI_E_CORRUPT, "%s", why);
        cr_expect(count == 3 || strstr(why, "(delta-base)"), "%s", why);
        pici_deltas_free(deltas);
        pici_reader_close(reader);
        sink_free(&made);
    }
}

/* Adds a tensor of zeros to a file; kind: its delta.kind, or NULL. */
static void put_zeros(struct pici_writer *w, const char *name, enum pici_dtype dtype, unsigned rank,
                      const uint64_t *shape, uint64_t bytes, const char *kind)
{
    const struct pici_attr attr = {"delta.kind", kind, kind ? strlen(kind) : 0};
    struct pici_tensor t = PICI_TENSOR_INIT;
    uint8_t *const zeros = test_alloc((size_t)bytes + 1);
    memset(zeros, 0, (size_t)bytes);
    t.name = name;
    t.name_len = strlen(name);
    t.dtype = dtype;
    t.rank = rank;
    t.shape = shape;
    t.attrs = &attr;
    t.n_attrs = kind != NULL;
    cr_assert_eq(pici_writer_tensor(w, &t), PICI_OK);
    cr_assert_eq(pici_writer_data(w, zeros, (size_t)bytes), PICI_OK);
    free(zeros);
}

Test(delta_states, rows_of_pieces)
{
    static const uint8_t base[16] = {1};
    const struct pici_attr attrs[] = {
        {"delta.version", "3", 1}, {"source.type", "safetensors", 11}, {"delta.base", base, sizeof base}};
    static const struct {
        uint64_t elements, rows;
        bool good;
    } cases[] = {{1 << 19, 2, true},        {1 << 19, 1, false},       {1 << 19, 3, false},
                 {(1 << 19) + 1, 4, true},  {(1 << 19) + 1, 3, false}, {(1 << 19) + 1, 5, false},
                 {(1 << 19) + 1, 2, false}, {3 << 19, 5, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint64_t none = 0, shape[2] = {cases[i].rows, 2};
        struct sink made = {0};
        struct pici_writer *w;
        struct pici_reader *reader;
        struct pici_deltas *deltas;
        char why[PICI_WHY_BYTES];
        cr_assert_eq(pici_writer_open(&w, sink_write, &made, attrs, 3, NULL), PICI_OK);
        put_zeros(w, "w", PICI_U8, 1, &cases[i].elements, cases[i].elements, "xor");
        put_zeros(w, "delta.few", PICI_U8, 1, &none, 0, NULL);
        put_zeros(w, "delta.hashes", PICI_U64, 2, shape, 16 * cases[i].rows, NULL);
        cr_assert_eq(pici_writer_finish(w), PICI_OK);
        pici_writer_close(w);
        cr_assert_eq(pici_reader_open_memory(&reader, made.p, made.len, NULL), PICI_OK);
        cr_assert_eq(pici_deltas_new(&deltas), PICI_OK);
        cr_expect_eq(pici_deltas_add(deltas, reader, "made", why), cases[i].good ? PICI_OK : PICI_E_CORRUPT, "%zu: %s",
                     i, why);
        cr_expect(cases[i].good || strstr(why, "(delta-hashes)"), "%s", why);
        pici_deltas_free(deltas);
        pici_reader_close(reader);
        sink_free(&made);
    }
}

/* ---- in place ---- */

static struct pici_update *update_of(struct pici_state *base, struct row *r, int n, enum pici_status want,
                                     const char *words)
{
    struct pici_update *update;
    char why[PICI_WHY_BYTES];
    row_open(r, n);
    cr_expect_eq(pici_update_new(&update, base, r->deltas, NULL, why), want, "%s", why);
    cr_expect(!want == !!update && strstr(why, words), "%s", why);
    row_close(r, n);
    return update;
}

Test(delta_states, in_place)
{
    struct memory was = m[0];
    for (int choice = 0; choice < 3; choice++) {
        struct row r = {.file = {diff(s[0], s[1], (enum pici_delta_choice)choice, 1)}};
        struct pici_update *update = update_of(s[0], &r, 1, PICI_OK, "");
        cr_assert_eq(memcmp(&m[0], &was, sizeof was), 0, "nothing yet");
        cr_expect_eq(pici_update_count(update), 3u);
        struct pici_update_part part = PICI_UPDATE_PART_INIT;
        cr_expect_eq(pici_update_get(update, 1, &part), PICI_OK);
        cr_expect(part.tensor == 1 && part.first == 0 && part.count == N);
        cr_expect_eq(pici_update_get(update, 3, &part), PICI_E_ARG);
        cr_assert_eq(pici_update_switch(update), PICI_OK);
        cr_assert_eq(memcmp(&m[0], &m[1], sizeof was), 0);
        cr_assert_eq(pici_update_switch(update), PICI_OK);
        cr_assert_eq(memcmp(&m[0], &was, sizeof was), 0);
        pici_update_free(update);

        /* of another base nothing is changed */
        m[0].b[3] ^= 1;
        cr_expect_null(update_of(s[0], &r, 1, PICI_E_ARG, "not the base of first"));
        m[0].b[3] ^= 1;
        r.file[1] = diff(s[1], s[2], (enum pici_delta_choice)choice, 1);
        cr_expect_null(update_of(s[0], &r, 2, PICI_E_UNSUPPORTED, "adds or replaces tensor 'n'"));
        sink_free(&r.file[0]);
        sink_free(&r.file[1]);
    }
    struct row r = {.file = {diff(s[0], s[1], PICI_DELTA_AUTO, 1)}};
    struct pici_update *none = NULL;
    char why[PICI_WHY_BYTES];
    row_open(&r, 1);
    cr_expect_eq(pici_update_new(NULL, s[0], r.deltas, NULL, why), PICI_E_ARG);
    cr_expect_eq(pici_update_new(&none, NULL, r.deltas, NULL, why), PICI_E_ARG);
    cr_expect_eq(pici_update_new(&none, s[0], NULL, NULL, why), PICI_E_ARG);
    cr_expect_eq(pici_update_switch(NULL), PICI_E_ARG);
    row_close(&r, 1);
    sink_free(&r.file[0]);
    pici_update_free(NULL);
}

/* Tied weights are one piece of memory with two names. */
Test(delta_states, shared_memory)
{
    static uint16_t before[N], after[N], other[N];
    struct pici_state *tied[2], *loose;
    for (int i = 0; i < N; i++) {
        before[i] = other[i] = (uint16_t)(0x3c00 + i % 99);
        after[i] = (uint16_t)(before[i] + (i % 9 == 0));
    }
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(pici_state_new(&tied[i], "tied", PICI_STATE_SAFETENSORS, head, sizeof head, NULL, NULL), PICI_OK);
        add(tied[i], "head", PICI_BF16, N, i ? after : before, false);
        add(tied[i], "tokens", PICI_BF16, N, i ? after : before, false);
    }
    struct row r = {.file = {diff(tied[0], tied[1], PICI_DELTA_AUTO, 1)}};
    struct pici_update *update = update_of(tied[0], &r, 1, PICI_OK, "");
    cr_assert_eq(pici_update_switch(update), PICI_OK);
    cr_expect_arr_eq(before, after, sizeof after);
    cr_assert_eq(pici_update_switch(update), PICI_OK);
    cr_expect_arr_eq(before, other, sizeof after);
    pici_update_free(update);
    sink_free(&r.file[0]);
    cr_assert_eq(pici_state_new(&loose, "loose", PICI_STATE_SAFETENSORS, head, sizeof head, NULL, NULL), PICI_OK);
    add(loose, "head", PICI_BF16, N, after, false);
    add(loose, "tokens", PICI_BF16, N, other, false);
    r.file[0] = diff(tied[0], loose, PICI_DELTA_AUTO, 1);
    cr_expect_null(update_of(tied[0], &r, 1, PICI_E_UNSUPPORTED, "share memory"));
    sink_free(&r.file[0]);
    for (int i = 0; i < 2; i++)
        pici_state_free(tied[i]);
    pici_state_free(loose);

    /* by a delta that lists them in another order than the state */
    struct pici_state *const listed[2] = {two_of("head", "tokens", before, "head", before),
                                          two_of("head", "tokens", after, "head", after)},
                             *const live = two_of("head", "head", before, "tokens", before);
    r.file[0] = diff(listed[0], listed[1], PICI_DELTA_FASTEST, 1);
    update = update_of(live, &r, 1, PICI_OK, "");
    for (uint64_t i = 0; i < 2; i++) {
        struct pici_update_part part = PICI_UPDATE_PART_INIT;
        cr_expect(pici_update_get(update, i, &part) == PICI_OK && part.tensor == i);
    }
    cr_assert_eq(pici_update_switch(update), PICI_OK);
    cr_expect_arr_eq(before, after, sizeof after);
    pici_update_free(update);
    sink_free(&r.file[0]);
    for (int i = 0; i < 2; i++)
        pici_state_free(listed[i]);
    pici_state_free(live);
}

/* Of three tensors in a chain only the last changes, and with it the end of the second. */
Test(delta_states, shared_in_part)
{
    static uint8_t all[40];
    uint8_t copy[15];
    struct pici_state *chain[2];
    memset(copy, 9, sizeof copy);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(pici_state_new(&chain[i], "chain", PICI_STATE_SAFETENSORS, head, sizeof head, NULL, NULL),
                     PICI_OK);
        add(chain[i], "a", PICI_U8, 10, all, false);
        add(chain[i], "b", PICI_U8, 15, all + 5, false);
        add(chain[i], "c", PICI_U8, 13, i ? copy : all + 12, false);
    }
    struct row r = {.file = {diff(chain[0], chain[1], PICI_DELTA_AUTO, 1)}};
    cr_expect_null(update_of(chain[0], &r, 1, PICI_E_UNSUPPORTED, "'b' and 'c' share memory"));
    sink_free(&r.file[0]);
    for (int i = 0; i < 2; i++)
        pici_state_free(chain[i]);
}
