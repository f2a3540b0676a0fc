/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The sizes of public structs of callers compiled against another version. They are smaller than the first version,
 * larger with a tail of zeros, or larger with another bit set in the tail. */
#include <criterion/criterion.h>
#include <string.h>

#include "pici/delta.h"
#include "tests/util/util.h"

enum { TAIL = 24, N = 500 };

static float src[N];
static uint8_t block[8192], delta[8192]; /* delta: leads from src to itself */
static size_t block_len, delta_len;

static void set_up(void)
{
    for (unsigned i = 0; i < N; i += 3)
        src[i] = (float)i + 1;
    cr_assert_eq(pici_compress(block, sizeof block, &block_len, src, N, PICI_F32, PICI_HYBRID, NULL), PICI_OK);
    cr_assert_eq(pici_diff_small(delta, sizeof delta, &delta_len, src, src, N, PICI_F32, PICI_AUTO, NULL), PICI_OK);
}

TestSuite(codec_sizes, .init = set_up);

/* ---- a struct that is read ---- */

/* Compress and decode with these options; both must give the same status. */
static enum pici_status with_options(const struct pici_opts *opts)
{
    static uint8_t out[sizeof block];
    static float back[N];
    size_t len;
    const enum pici_status s = pici_compress(out, sizeof out, &len, src, N, PICI_F32, PICI_HYBRID, opts);
    cr_expect_eq(pici_decompress(back, N, block, block_len, opts), s);
    cr_expect_eq(pici_decompress_range(back, 1, 7, block, block_len, opts), s);
    cr_expect_eq(pici_scatter_add(back, N, block, block_len, opts), s);
    cr_expect_eq(pici_apply(back, N, block, block_len, opts), s);
    cr_expect_eq(pici_apply_small(back, N, delta, delta_len, opts), s);
    cr_expect(s || len >= block_len);
    return s;
}

Test(codec_sizes, options_of_a_newer_caller)
{
    struct {
        struct pici_opts opts;
        unsigned char tail[TAIL];
    } newer = {{sizeof newer, 1, 1, PICI_ZEROS_BY_VALUE, 0, PICI_PACK_NONE, 0}, {0}};
    cr_expect_eq(with_options(&newer.opts), PICI_OK);
    for (unsigned i = 0; i < TAIL; i++) {
        newer.tail[i] = 1;
        cr_expect_eq(with_options(&newer.opts), PICI_E_UNSUPPORTED, "byte %u of the tail", i);
        newer.tail[i] = 0;
    }
    /* a wrong option is wrong with any size */
    newer.opts.checksum = 2;
    cr_expect_eq(with_options(&newer.opts), PICI_E_ARG);
}

/* Only the size may be read of a struct that is too small. It ends where memory does. */
Test(codec_sizes, options_that_are_too_small)
{
    struct rig rig;
    rig_init(&rig, 64, 1);
    for (size_t size = 0; size < offsetof(struct pici_opts, zeros); size++) {
        void *p = guard_place(&rig.block, size < sizeof size ? sizeof size : size, GUARD_END, 0);
        memset(p, 0, size < sizeof size ? sizeof size : size);
        memcpy(p, &size, sizeof size);
        cr_expect_eq(with_options(p), PICI_E_ARG, "size %zu", size);
    }
    rig_free(&rig);
}

/* A caller of 0.1.0, whose struct ends with `checksum`, and whose memory may end there too. */
Test(codec_sizes, options_of_an_older_caller)
{
    struct rig rig;
    rig_init(&rig, 64, 1);
    const struct pici_opts now = PICI_OPTS_INIT;
    const size_t size = offsetof(struct pici_opts, zeros);
    void *p = guard_place(&rig.block, size, GUARD_END, 0);
    memcpy(p, &now, size);
    memcpy(p, &size, sizeof size);
    src[1] = -0.0F;
    static uint8_t exact[sizeof block], old[sizeof block];
    size_t exact_len, len;
    cr_expect_eq(with_options(p), PICI_OK);
    cr_expect_eq(pici_compress(exact, sizeof exact, &exact_len, src, N, PICI_F32, PICI_COO, NULL), PICI_OK);
    cr_expect_eq(pici_compress(old, sizeof old, &len, src, N, PICI_F32, PICI_COO, p), PICI_OK);
    cr_expect(len == exact_len && memcmp(old, exact, len) == 0, "its default is not exact");
    src[1] = 0;
    rig_free(&rig);
}

/* A caller of 0.2, whose struct ends with `zeros` and four bytes of padding with any bits. */
Test(codec_sizes, options_with_padding)
{
    static uint8_t out[2][sizeof block], usual[2][sizeof block];
    static float rough[N];
    const enum pici_format formats[] = {PICI_HYBRID, PICI_AUTO};
    struct {
        size_t size;
        int threads, checksum;
        enum pici_zeros zeros;
        unsigned char padding[4];
    } old = {24, 1, 0, PICI_ZEROS_EXACT, {0}};
    for (unsigned i = 0; i < N; i++) /* which are packed, if that is asked for */
        rough[i] = 1 + (float)i / N;
    for (unsigned v = 0; v < 256; v++)
        for (unsigned f = 0; f < 2; f++) {
            size_t len, expected;
            memset(old.padding, v == 255 ? 255 : 0, sizeof old.padding);
            old.padding[0] = (unsigned char)v;
            cr_assert_eq(with_options((void *)&old), PICI_OK, "padding %u", v);
            cr_assert_eq(pici_compress(out[f], sizeof *out, &len, rough, N, PICI_F32, formats[f], (void *)&old),
                         PICI_OK);
            cr_assert_eq(pici_compress(usual[f], sizeof *usual, &expected, rough, N, PICI_F32, formats[f], NULL),
                         PICI_OK);
            cr_assert(len == expected && memcmp(out[f], usual[f], len) == 0, "padding %u is an option", v);
        }
    const struct pici_opts packs = {sizeof packs, 1, 0, PICI_ZEROS_EXACT, -1, PICI_PACK_PLANES, 0};
    size_t len, packed;
    cr_expect_eq(pici_compress(usual[0], sizeof *usual, &len, rough, N, PICI_F32, PICI_HYBRID, NULL), PICI_OK);
    cr_expect_eq(pici_compress(out[0], sizeof *out, &packed, rough, N, PICI_F32, PICI_HYBRID, &packs), PICI_OK);
    cr_expect_lt(packed, len, "packing is no shorter: the test tells nothing");
}

/* What elements hold matters to small deltas alone. Values of a later version are refused. */
Test(codec_sizes, options_holds)
{
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.holds = PICI_HOLDS_E2M1X2;
    cr_expect_eq(with_options(&opts), PICI_OK);
    opts.holds = (enum pici_holds)2;
    cr_expect_eq(with_options(&opts), PICI_E_UNSUPPORTED);
    opts.holds = (enum pici_holds) - 1;
    cr_expect_eq(with_options(&opts), PICI_E_UNSUPPORTED);
}

/* ---- structs that are written ---- */

typedef enum pici_status written_fn(void *out);

static enum pici_status info(void *out)
{
    return pici_inspect(out, block, block_len);
}

static enum pici_status fault(void *out)
{
    return pici_verify_at(block, block_len, out);
}

static enum pici_status fault_of_a_bad_block(void *out)
{
    return pici_verify_at(block, block_len - 1, out);
}

/* Compare member by member: padding may differ. */
typedef int same_fn(const void *a, const void *b);

static int same_info(const void *a, const void *b)
{
    const struct pici_info *x = a, *y = b;
    return x->format == y->format && x->dtype == y->dtype && x->count == y->count && x->nnz == y->nnz &&
           x->block_bytes == y->block_bytes && x->count == N;
}

static int same_fault(const void *a, const void *b)
{
    const struct pici_fault *x = a, *y = b;
    return x->status == y->status && x->offset == y->offset && x->tile == y->tile && x->rule == y->rule;
}

/* bytes: our size of the struct. status: what the call returns if the size is good. */
static void check_written(const char *what, written_fn *call, same_fn *same, size_t bytes, enum pici_status status)
{
    _Alignas(16) unsigned char ours[512], theirs[512];
    cr_assert_lt(bytes + TAIL, sizeof ours);
    memset(ours, 0xa5, sizeof ours);
    memcpy(ours, &bytes, sizeof bytes);
    cr_expect_eq(call(ours), status, "%s", what);
    cr_expect_eq(ours[bytes], 0xa5, "%s: writes past its size", what);

    for (size_t size = 0; size < bytes; size++) {
        unsigned char before[512];
        memset(theirs, 0xa5, sizeof theirs);
        memcpy(theirs, &size, sizeof size);
        memcpy(before, theirs, sizeof before);
        cr_expect_eq(call(theirs), PICI_E_ARG, "%s of size %zu", what, size);
        cr_expect_eq(memcmp(theirs, before, sizeof before), 0, "%s of size %zu was written to", what, size);
    }

    const size_t larger = bytes + TAIL;
    memset(theirs, 0xa5, sizeof theirs);
    memcpy(theirs, &larger, sizeof larger);
    cr_expect_eq(call(theirs), status, "%s of a newer caller", what);
    cr_expect_eq(memcmp(theirs, &larger, sizeof larger), 0, "%s: its size changed", what);
    cr_expect(same(theirs, ours), "%s of a newer caller differs", what);
    for (size_t i = bytes; i < larger; i++)
        cr_expect_eq(theirs[i], 0, "%s: byte %zu of the tail", what, i - bytes);
    cr_expect_eq(theirs[larger], 0xa5, "%s: writes past the caller's size", what);
}

Test(codec_sizes, written_structs)
{
    check_written("info", info, same_info, sizeof(struct pici_info), PICI_OK);
    check_written("fault", fault, same_fault, sizeof(struct pici_fault), PICI_OK);
    check_written("fault of a bad block", fault_of_a_bad_block, same_fault, sizeof(struct pici_fault), PICI_E_CORRUPT);
}

/* ---- a struct that had another layout ---- */

/* Of 0.2.0, as its header has it; that of 0.1.0 ends with other_bytes. */
struct breakdown_0_2 {
    size_t size;
    uint64_t tiles[5];
    uint64_t nnz[5];
    uint64_t position_bytes[5];
    uint64_t value_bytes[5];
    uint64_t other_bytes;
    uint64_t sign_tiles;
    uint64_t sign_bytes;
    uint64_t negative_zeros;
};

/* Every size, in memory that ends where the struct does. */
Test(codec_sizes, breakdown)
{
    enum {
        FIRST = offsetof(struct breakdown_0_2, sign_tiles),
        OLD = sizeof(struct breakdown_0_2),
        NOW = sizeof(struct pici_breakdown)
    };
    struct pici_breakdown m = PICI_BREAKDOWN_INIT;
    struct rig rig;
    rig_init(&rig, 512, 1);
    for (unsigned i = 0; i < N; i++)
        src[i] = i % 3 ? -0.0F : (float)i;
    cr_assert_eq(pici_compress(block, sizeof block, &block_len, src, N, PICI_F32, PICI_HYBRID, NULL), PICI_OK);
    cr_assert_eq(pici_breakdown(&m, block, block_len), PICI_OK);
    cr_assert(m.tiles[PICI_OFFSETS8] == 1 && m.nnz[PICI_OFFSETS8] == N / 3 && m.position_bytes[PICI_OFFSETS8] &&
              m.value_bytes[PICI_OFFSETS8] && m.other_bytes && m.sign_tiles == 1 && m.sign_bytes && m.negative_zeros);

    struct breakdown_0_2 old = {.other_bytes = m.other_bytes,
                                .sign_tiles = m.sign_tiles,
                                .sign_bytes = m.sign_bytes,
                                .negative_zeros = m.negative_zeros};
    for (int c = 0; c < PICI_CONTAINERS; c++) {
        old.tiles[c] = m.tiles[c];
        old.nnz[c] = m.nnz[c];
        old.position_bytes[c] = m.position_bytes[c];
        old.value_bytes[c] = m.value_bytes[c];
    }
    for (size_t size = 0; size <= NOW + TAIL; size++) {
        const size_t bytes = size < sizeof size ? sizeof size : size;
        const int older = size >= FIRST && size <= OLD;
        unsigned char want[NOW + TAIL] = {0};
        unsigned char *p = guard_place(&rig.block, bytes, GUARD_END, 0);
        memset(p, 0xa5, bytes);
        memcpy(p, &size, sizeof size);
        if (older)
            memcpy(want, &old, OLD);
        else if (size >= NOW)
            memcpy(want, &m, NOW);
        else
            memset(want, 0xa5, sizeof want);
        memcpy(want, &size, sizeof size);
        cr_expect_eq(pici_breakdown((void *)p, block, block_len), older || size >= NOW ? PICI_OK : PICI_E_ARG, "%zu",
                     size);
        cr_expect_eq(memcmp(p, want, bytes), 0, "size %zu", size);
    }
    rig_free(&rig);
}
