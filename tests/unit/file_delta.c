/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Deltas in .pici files: pici_writer_diff, pici_reader_apply_range, and what lib/delta/read.c makes of such a file. */
#include "tests/util/file.h"

#include <stdlib.h>
#include <string.h>

#include "delta/delta.h"

enum { N = 23000 };

/* Two f32 buffers of N elements, of which some differ. */
static void make_pair(uint8_t *base, uint8_t *next, enum pattern changed, struct rng *rng)
{
    pattern_fill(base, N, PICI_F32, PATTERN_FULL, rng);
    pattern_fill(next, N, PICI_F32, changed, rng);
    for (size_t i = 0; i < (size_t)N * 4; i++)
        next[i] ^= base[i];
}

/* A file of one tensor, the delta, pushed in pieces (0: at once). */
static struct sink delta_file(const uint8_t *base, const uint8_t *next, const struct pici_writer_opts *opts,
                              size_t piece)
{
    struct sink k = {0};
    struct pici_writer *w;
    struct pici_tensor t = PICI_TENSOR_INIT;
    const uint64_t shape[] = {N};
    t.name = "w";
    t.name_len = 1;
    t.rank = 1;
    t.shape = shape;
    cr_assert_eq(pici_writer_open(&w, sink_write, &k, NULL, 0, opts), PICI_OK);
    WRITE_OK(w, pici_writer_tensor(w, &t));
    for (size_t at = 0, n; at < (size_t)N * 4; at += n) {
        n = piece && piece < (size_t)N * 4 - at ? piece : (size_t)N * 4 - at;
        WRITE_OK(w, pici_writer_diff(w, base + at, next + at, n));
    }
    WRITE_OK(w, pici_writer_finish(w));
    pici_writer_close(w);
    return k;
}

/* The file is that of the XOR, whatever the pieces; any range of it can be applied. */
Test(file_delta, there_and_back)
{
    static const size_t pieces[] = {0, 1, 3, 4, 999, 4000, 20001};
    uint8_t *base = test_alloc(N * 4), *next = test_alloc(N * 4), *flip = test_alloc(N * 4), *now = test_alloc(N * 4);
    struct rng rng = {1};
    for (int round = 0; round < 6; round++) {
        struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
        opts.chunk_elements = 5000;
        opts.threads = 1 + round % 3;
        opts.format = round < 4 ? (enum pici_format)round : PICI_AUTO;
        make_pair(base, next, round % 2 ? PATTERN_1 : PATTERN_RUNS, &rng);
        for (size_t i = 0; i < (size_t)N * 4; i++)
            flip[i] = base[i] ^ next[i];
        struct item it = {0};
        it.t = (struct pici_tensor)PICI_TENSOR_INIT;
        it.t.name = "w";
        it.t.name_len = 1;
        it.t.rank = 1;
        it.shape[0] = it.count = N;
        it.data = flip;
        it.bytes = (size_t)N * 4;
        struct sink want = {0};
        write_items(&want, &it, 1, NULL, 0, &opts, 0);
        for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
            struct sink k = delta_file(base, next, &opts, pieces[p]);
            cr_assert(k.len == want.len && memcmp(k.p, want.p, k.len) == 0, "pieces of %zu", pieces[p]);
            sink_free(&k);
        }
        struct pici_reader *r;
        struct pici_reader_opts ropts = PICI_READER_OPTS_INIT;
        ropts.threads = opts.threads;
        cr_assert_eq(pici_reader_open_memory(&r, want.p, want.len, &ropts), PICI_OK);
        memcpy(now, base, N * 4);
        READ_OK(r, pici_reader_apply_range(r, 0, 0, N, now));
        cr_assert_arr_eq(now, next, N * 4);
        READ_OK(r, pici_reader_apply_range(r, 0, 0, N, now));
        cr_assert_arr_eq(now, base, N * 4);
        for (int k = 0; k < 40; k++) {
            const uint64_t first = rng_below(&rng, N + 1), n = rng_below(&rng, N + 1 - first);
            READ_OK(r, pici_reader_apply_range(r, 0, first, n, now + first * 4));
            cr_assert_eq(memcmp(now + first * 4, next + first * 4, n * 4), 0);
            cr_assert_eq(memcmp(now, base, first * 4), 0);
            cr_assert_eq(memcmp(now + (first + n) * 4, base + (first + n) * 4, (N - first - n) * 4), 0);
            READ_OK(r, pici_reader_apply_range(r, 0, first, n, now + first * 4));
        }
        cr_assert_eq(pici_reader_apply_range(r, 0, 1, N, now), PICI_E_ARG);
        cr_assert_eq(pici_reader_apply_range(r, 0, N + 1, 0, now), PICI_E_ARG);
        cr_assert_eq(pici_reader_apply_range(r, 1, 0, 1, now), PICI_E_ARG);
        cr_assert_eq(pici_reader_apply_range(r, 0, 0, 1, NULL), PICI_E_ARG);
        pici_reader_close(r);
        sink_free(&want);
    }
    free(base);
    free(next);
    free(flip);
    free(now);
}

/* A delta and elements as they are, one chunk of this and one of that, or a delta only: the same bytes from any threads
 * and pieces. Deltas are exact, and are not packed but in packed blocks. */
Test(file_delta, exact_in_any_pieces)
{
    enum { C = 5000, BYTES = N * 4 };
    static uint32_t base[N], next[N], now[N];
    static const enum pici_format formats[] = {PICI_AUTO, PICI_HYBRID, PICI_PACKED, PICI_DENSE};
    static const enum pici_pack packs[] = {PICI_PACK_NONE, PICI_PACK_PLANES, PICI_PACK_FAST};
    static const size_t pieces[] = {C * 4, 3 * C * 4, BYTES, 999};
    struct rng rng = {3};
    for (unsigned i = 0; i < N; i++) {
        base[i] = i % 7 ? 0x3f800000 | (uint32_t)(rng_next(&rng) >> 41) : 0;
        next[i] = i % 7 ? 0x3f800000 | (uint32_t)(rng_next(&rng) >> 41) : 0x80000000; /* -0.0, as a delta too */
    }
    for (unsigned round = 0; round < 4 * 3 * 2 * 2; round++) {
        const int mixed = round % 2, by_value = round / 2 % 2;
        struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
        struct sink first = {0};
        opts.chunk_elements = C;
        opts.zeros = by_value ? PICI_ZEROS_BY_VALUE : PICI_ZEROS_EXACT;
        opts.format = formats[round / 4 % 4];
        opts.pack = packs[round / 16];
        for (unsigned way = 0; way < 3 * 4; way++) {
            struct pici_tensor t = PICI_TENSOR_INIT;
            const uint64_t shape[] = {N};
            struct sink k = {0};
            struct pici_writer *w;
            t.rank = 1;
            t.shape = shape;
            opts.threads = 1 + (int)(way % 3);
            enum pici_status s = pici_writer_open(&w, sink_write, &k, NULL, 0, &opts);
            WRITE_OK(w, s);
            WRITE_OK(w, pici_writer_tensor(w, &t));
            for (size_t at = 0, n; at < BYTES; at += n) {
                const uint8_t *from = (const uint8_t *)base + at, *to = (const uint8_t *)next + at;
                const size_t end = mixed && (at / (C * 4) + 1) * C * 4 < BYTES ? (at / (C * 4) + 1) * C * 4 : BYTES;
                n = end - at < pieces[way / 3] ? end - at : pieces[way / 3];
                if (mixed && at / (C * 4) % 2)
                    WRITE_OK(w, pici_writer_data(w, to, n));
                else
                    WRITE_OK(w, pici_writer_diff(w, from, to, n));
            }
            WRITE_OK(w, pici_writer_finish(w));
            pici_writer_close(w);
            if (way) {
                cr_assert(k.len == first.len && memcmp(k.p, first.p, k.len) == 0, "round %u, way %u", round, way);
                sink_free(&k);
            } else {
                first = k;
            }
        }
        struct pici_reader *r;
        open_memory(&r, &first);
        READ_OK(r, pici_reader_read_range(r, 0, 0, N, now));
        for (unsigned i = 0; i < N; i++) {
            const int plain = mixed && i / C % 2;
            const uint32_t want = !plain ? base[i] ^ next[i] : by_value && i % 7 == 0 ? 0 : next[i];
            cr_assert_eq(now[i], want, "round %u, element %u", round, i);
        }
        for (unsigned number = 0; number < 2; number++) {
            struct pici_chunk_info chunk = PICI_CHUNK_INFO_INIT;
            const int plain = mixed && number;
            READ_OK(r, pici_reader_chunk(r, 0, number, &chunk));
            const int packed =
                opts.format == PICI_PACKED || (plain && opts.pack != PICI_PACK_NONE && opts.format != PICI_DENSE);
            cr_assert_eq(chunk.block.format == PICI_PACKED, packed, "round %u, chunk %u", round, number);
        }
        pici_reader_close(r);
        sink_free(&first);
    }
}

/* Every byte of the file changed: an error, or nothing of the tensor is concerned. */
Test(file_delta, damaged)
{
    uint8_t *base = test_alloc(N * 4), *next = test_alloc(N * 4), *now = test_alloc(N * 4);
    struct rng rng = {2};
    make_pair(base, next, PATTERN_0_1, &rng);
    struct sink k = delta_file(base, next, NULL, 0);
    unsigned errors = 0;
    for (size_t at = 0; at < k.len; at++) {
        struct pici_reader *r;
        k.p[at] ^= 32;
        enum pici_status s = pici_reader_open_memory(&r, k.p, k.len, NULL);
        memcpy(now, base, N * 4);
        if (!s)
            s = pici_reader_apply_range(r, 0, 0, N, now);
        cr_assert(s ? data_error(s) : memcmp(now, next, N * 4) == 0, "byte %zu", at);
        errors += s != PICI_OK;
        pici_reader_close(r);
        k.p[at] ^= 32;
    }
    cr_assert_gt(errors, k.len / 2);
    sink_free(&k);
    free(base);
    free(next);
    free(now);
}

Test(file_delta, wrong_calls)
{
    static const uint8_t some[8];
    struct sink k = {0};
    struct pici_writer *w;
    struct pici_tensor t = PICI_TENSOR_INIT;
    const uint64_t shape[] = {2};
    t.rank = 1;
    t.shape = shape;
    cr_assert_eq(pici_writer_diff(NULL, some, some, 1), PICI_E_ARG);
    cr_assert_eq(pici_writer_open(&w, sink_write, &k, NULL, 0, NULL), PICI_OK);
    cr_assert_eq(pici_writer_diff(w, some, some, 1), PICI_E_ARG);
    WRITE_OK(w, pici_writer_tensor(w, &t));
    cr_assert_eq(pici_writer_diff(w, NULL, some, 1), PICI_E_ARG);
    cr_assert_str_eq(pici_writer_error(w), "the base is null");
    cr_assert_eq(pici_writer_diff(w, some, NULL, 1), PICI_E_ARG);
    cr_assert_eq(pici_writer_diff(w, some, some, 9), PICI_E_ARG);
    WRITE_OK(w, pici_writer_diff(w, NULL, NULL, 0));
    WRITE_OK(w, pici_writer_diff(w, some, some, 5));
    WRITE_OK(w, pici_writer_data(w, some, 3)); /* either function */
    WRITE_OK(w, pici_writer_finish(w));
    cr_assert_eq(pici_writer_diff(w, some, some, 1), PICI_E_ARG);
    pici_writer_close(w);
    sink_free(&k);
}

/* ---- the rules of formats/delta.md ---- */

/* A delta of three tensors, broken in one way. */
struct plan {
    const char *version, *type, *removed;
    size_t removed_len;
    const char *kind[3];
    uint64_t table[6], rows, columns;
    enum pici_dtype dtype;
    int no_table;
};

static const struct plan good = {
    "1",      "npy", "\1\0\0\0a\0\0\0\0\3\0\0\0bcd", 16, {"xor", "added", "replaced"}, {5, 6, 0, 7, 0, 8}, 3, 2,
    PICI_U64, 0};

static void write_tensor(struct pici_writer *w, const char *name, enum pici_dtype dtype, unsigned rank,
                         const uint64_t *shape, const char *kind, const void *data, size_t bytes)
{
    struct pici_tensor t = PICI_TENSOR_INIT;
    const struct pici_attr attr = {DELTA_KIND, kind, kind ? strlen(kind) : 0};
    t.name = name;
    t.name_len = strlen(name);
    t.dtype = dtype;
    t.rank = rank;
    t.shape = shape;
    t.attrs = &attr;
    t.n_attrs = kind != NULL;
    WRITE_OK(w, pici_writer_tensor(w, &t));
    WRITE_OK(w, pici_writer_data(w, data, bytes));
}

static struct sink plan_file(const struct plan *p)
{
    static const uint8_t zero[4];
    static const char *const names[] = {"a", "b", "c"};
    struct sink k = {0};
    struct pici_writer *w;
    struct pici_attr attrs[3];
    const uint64_t shape[] = {p->rows, p->columns};
    size_t n = 0;
    if (p->version)
        attrs[n++] = (struct pici_attr){DELTA_VERSION, p->version, strlen(p->version)};
    if (p->type)
        attrs[n++] = (struct pici_attr){"source.type", p->type, strlen(p->type)};
    if (p->removed)
        attrs[n++] = (struct pici_attr){DELTA_REMOVED, p->removed, p->removed_len};
    cr_assert_eq(pici_writer_open(&w, sink_write, &k, attrs, n, NULL), PICI_OK);
    for (int i = 0; i < 3; i++)
        write_tensor(w, names[i], PICI_F32, 0, NULL, p->kind[i], zero, 4);
    if (!p->no_table)
        write_tensor(w, DELTA_HASHES, p->dtype, 2, shape, NULL, p->table, (size_t)(p->rows * p->columns) * 8);
    WRITE_OK(w, pici_writer_finish(w));
    pici_writer_close(w);
    return k;
}

static void expect_rule(const struct plan *p, enum pici_status status, const char *rule)
{
    struct sink k = plan_file(p);
    struct pici_reader *r;
    struct delta d;
    char err[PICI_WHY_BYTES];
    open_memory(&r, &k);
    cr_expect_eq(pici_delta_open(&d, r, err), status, "%s", rule);
    cr_expect(strstr(err, rule) != NULL, "%s, but not %s", err, rule);
    pici_reader_close(r);
    sink_free(&k);
}

Test(file_delta, rules)
{
    struct sink k = plan_file(&good);
    struct pici_reader *r;
    struct delta d;
    char err[PICI_WHY_BYTES];
    struct plan p;
    bool is;
    open_memory(&r, &k);
    READ_OK(r, pici_delta_is(r, &is));
    cr_assert(is);
    READ_OK(r, pici_delta_open(&d, r, err));
    cr_assert_str_eq(err, "");
    cr_assert(d.tensors == 3 && d.removed == 3 && d.type == PICI_STATE_NPY);
    for (int i = 0; i < 3; i++) {
        static const enum delta_kind kinds[] = {DELTA_XOR, DELTA_ADDED, DELTA_REPLACED};
        cr_assert_eq(d.kind[i], kinds[i]);
        cr_assert_eq(d.kinds[kinds[i]], 1u);
        cr_assert(d.hash[i].base == good.table[2 * i] && d.hash[i].result == good.table[2 * i + 1]);
    }
    pici_delta_close(&d);
    pici_reader_close(r);
    sink_free(&k);

#define BROKEN(status, rule, change)                                                                                   \
    do {                                                                                                               \
        p = good;                                                                                                      \
        change;                                                                                                        \
        expect_rule(&p, status, rule);                                                                                 \
    } while (0)
    BROKEN(PICI_E_CORRUPT, "delta-version", p.version = NULL);
    BROKEN(PICI_E_VERSION, "delta-version", p.version = "4");
    BROKEN(PICI_E_CORRUPT, "delta-base", p.version = "3");
    BROKEN(PICI_E_VERSION, "delta-version", p.version = "");
    BROKEN(PICI_E_CORRUPT, "delta-type", p.type = NULL);
    BROKEN(PICI_E_CORRUPT, "delta-type", p.type = "np");
    BROKEN(PICI_E_CORRUPT, "delta-type", p.type = "");
    for (size_t len = 1; len < good.removed_len; len++)
        if (len != 5 && len != 9)
            BROKEN(PICI_E_CORRUPT, "delta-removed", p.removed_len = len);
    BROKEN(PICI_E_CORRUPT, "delta-removed", (p.removed = "\377\377\377\377a", p.removed_len = 5));
    BROKEN(PICI_E_CORRUPT, "delta-kind", p.kind[1] = NULL);
    BROKEN(PICI_E_CORRUPT, "delta-kind", p.kind[2] = "xo");
    BROKEN(PICI_E_CORRUPT, "delta-kind", p.kind[0] = "");
    BROKEN(PICI_E_CORRUPT, "delta-kind", p.kind[0] = "small"); /* in version 1 */
    BROKEN(PICI_E_CORRUPT, "delta-small", (p.version = "2", p.kind[0] = "small"));
    BROKEN(PICI_E_CORRUPT, "delta-hashes", p.table[2] = 1);
    BROKEN(PICI_E_CORRUPT, "delta-hashes", p.table[4] = 1);
    BROKEN(PICI_E_CORRUPT, "delta-hashes", p.rows = 2);
    BROKEN(PICI_E_CORRUPT, "delta-hashes", (p.rows = 6, p.columns = 1));
    BROKEN(PICI_E_CORRUPT, "delta-hashes", p.dtype = PICI_I64);
    BROKEN(PICI_E_CORRUPT, "delta-hashes", p.no_table = 1);
#undef BROKEN
}
