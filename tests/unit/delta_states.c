/* SPDX-License-Identifier: BSD-3-Clause
 *
 * States in memory, deltas between them, and deltas in a row (pici/delta_file.h). That files lead to the same is tested
 * by tests/cli/delta.sh. */
#include "tests/util/file.h"

#include <errno.h>
#include <string.h>

#include "bytes.h"
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
