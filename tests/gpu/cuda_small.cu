/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Small deltas made and applied by kernels, beside the library's on the host: the same bytes, and of damaged deltas the
 * same word. Positions and values, of blocks too. */
#include "cuda_device.cuh"

extern "C" {
#include "pici/delta.h"
#include "tests/util/small.h"
}

/* Let the emulator look for races, or not: not in large inputs. */
#ifdef PICI_DEVICE_HW
static bool large;
static void watch(bool on)
{
    emu::watch_races(on && !large);
}
#else
static void watch(bool on)
{
    (void)on;
}
#endif

static const enum pici_format formats[] = {PICI_BITMAP, PICI_HYBRID, PICI_DENSE, PICI_COO};

/* The elements of one case, and their delta by the host. */
struct sample {
    enum pici_dtype dtype;
    enum pici_format format;
    uint64_t n, first, of;
    enum pici_holds holds;
    std::vector<uint8_t> base, src, delta;
    char name[100];
};

static void encode(struct sample *s, int checksum)
{
    struct pici_opts opts = PICI_OPTS_INIT;
    size_t len = 0;
    opts.checksum = checksum;
    opts.holds = s->holds;
    s->delta.resize(pici_diff_small_bound(s->format, s->dtype, s->n) + 16);
    tally(pici_diff_small_part(s->delta.data(), s->delta.size(), &len, s->base.data(), s->src.data(), s->n, s->first,
                               s->of, s->dtype, s->format, &opts) == PICI_OK,
          "%s: on the host", s->name);
    s->delta.resize(len);
}

/* Pairs of e2m1, some of which become others. */
static void pairs_fill(uint8_t *base, uint8_t *src, uint64_t n, enum step step)
{
    static const unsigned ppm[STEPS] = {0, 10000, 80000, 670000, 1000000, 500000, 200000, 1000000, 200000};
    for (uint64_t i = 0; i < n; i++) {
        base[i] = src[i] = (uint8_t)(step == STEP_ZEROS ? rng_below(&rng, 2) : rng_next(&rng));
        for (int high = 0; high < 2; high++)
            if (rng_chance(&rng, ppm[step]))
                src[i] ^=
                    (uint8_t)((step == STEP_SIGNS ? 8 : 1 + rng_below(&rng, step == STEP_TINY ? 1 : 15)) << 4 * high);
    }
}

/* With `of` elements in the tensor, of which `first` come before these. */
static struct sample part_of(enum pici_dtype dtype, enum pici_holds holds, enum pici_format format, uint64_t n,
                             uint64_t first, uint64_t of, enum step step)
{
    struct sample s = {dtype, format, n, first, of, holds, {}, {}, {}, ""};
    snprintf(s.name, sizeof s.name, "%s, %s, elements %llu, %llu of %llu, %s",
             holds ? "e2m1x2" : pici_dtype_name(dtype), pici_format_name(format), (unsigned long long)first,
             (unsigned long long)n, (unsigned long long)of, step_name(step));
    s.base.resize(n * pici_dtype_width(dtype) + 1);
    s.src.resize(s.base.size());
    if (holds)
        pairs_fill(s.base.data(), s.src.data(), n, step);
    else
        step_fill(s.base.data(), s.src.data(), n, dtype, step, &rng);
    encode(&s, 0);
    return s;
}

static struct sample sample_of(enum pici_dtype dtype, enum pici_format format, uint64_t n, enum step step)
{
    return part_of(dtype, PICI_HOLDS_ONE, format, n, 0, n, step);
}

static bool starts_with(const buffer &b, const std::vector<uint8_t> &bytes, size_t n)
{
    return memcmp(b.get(n).data(), bytes.data(), n) == 0;
}

/* With so many chunks at a time. */
static void check_diff(const struct sample &s, unsigned at_once)
{
    const size_t bytes = (size_t)s.n * pici_dtype_width(s.dtype), skew = some_skew(s.dtype), len = s.delta.size();
    const size_t space = pici_diff_small_cuda_workspace(s.format, s.dtype, s.n, at_once);
    buffer base(bytes, skew, s.base.data()), src(bytes, some_skew(s.dtype), s.src.data()), workspace(space);
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.holds = s.holds;
    for (int less = 0; less < 2; less++) {
        const size_t cap = less ? len - 1 : len;
        buffer delta(cap);
        result_buffer result;
        const bool plain = !s.holds && s.n == s.of;
        const enum pici_status status =
            plain ? pici_diff_small_cuda(delta.at, cap, result.to(), base.at, src.at, s.n, s.dtype, s.format,
                                         workspace.at, space, stream)
                  : pici_diff_small_part_cuda(delta.at, cap, result.to(), base.at, src.at, s.n, s.first, s.of, s.dtype,
                                              s.format, &opts, workspace.at, space, stream);
        const struct pici_cuda_result r = result.read();
        if (less) {
            tally(status == PICI_E_SPACE || (!status && r.status == PICI_E_SPACE && r.len == 0), "%s: in a byte less",
                  s.name);
            tally(status || cap < 4 || memcmp(delta.get(4).data(), "PICD", 4) != 0, "%s: a header in a byte less",
                  s.name);
        } else {
            tally(!status && !r.status && r.len == len, "%s: diff: %d, %d, %llu bytes for %zu", s.name, (int)status,
                  (int)r.status, (unsigned long long)r.len, len);
            tally(starts_with(delta, s.delta, len), "%s: another delta", s.name);
        }
    }
}

/* Apply a delta to the elements of s in its tensor: the host's status, and with PICI_OK what it makes. */
static void check_apply(const struct sample &s, const std::vector<uint8_t> &delta, unsigned at_once, bool length_there,
                        const char *what)
{
    const size_t bytes = (size_t)s.n * pici_dtype_width(s.dtype), len = delta.size();
    const size_t space = pici_apply_small_cuda_workspace(s.dtype, s.n, at_once);
    std::vector<uint8_t> want = s.base;
    const void *const deltas[] = {delta.data()};
    enum pici_status expected = pici_apply_small_range(want.data(), s.n, s.first, s.of, deltas, &len, 1, NULL);
    if (len >= 32 && memcmp(delta.data(), "PICD", 4) == 0 && delta[4] == 4)
        expected = PICI_E_VERSION;                                      /* of columns, which the host reads */
    const bool other = len > 5 && (enum pici_dtype)delta[5] != s.dtype; /* which the host is not told */
    if (!expected && other)
        expected = PICI_E_ARG;
    const uint64_t length = len;
    buffer dst(bytes, some_skew(s.dtype), s.base.data()), in(len, 0, delta.data()), workspace(space),
        len_at(sizeof length, 0, &length);
    result_buffer result;
    const uint64_t *const there = length_there ? (const uint64_t *)len_at.at : NULL;
    const enum pici_status status =
        s.n == s.of
            ? pici_apply_small_cuda(dst.at, s.n, s.dtype, in.at, len, there, result.to(), workspace.at, space, stream)
            : pici_apply_small_range_cuda(dst.at, s.n, s.first, s.of, s.dtype, in.at, len, there, result.to(),
                                          workspace.at, space, stream);
    const struct pici_cuda_result r = result.read();
    tally(!status && (r.status == (int)expected || (other && r.status == PICI_E_ARG)) && r.len == (expected ? 0 : len),
          "%s: %s: %d, %d where the host says %d", s.name, what, (int)status, (int)r.status, (int)expected);
    if (!expected)
        tally(starts_with(dst, want, bytes), "%s: %s: another result", s.name, what);
}

static void check_damaged(const struct sample &s, const std::vector<uint8_t> &valid, unsigned times)
{
    watch(s.format != PICI_COO); /* positions that are not in order may be the same */
    for (unsigned i = 0; i < times; i++) {
        std::vector<uint8_t> delta = valid;
        for (uint64_t k = 1 + rng_below(&rng, 2); k; k--) {
            const uint64_t most = rng_below(&rng, 3) ? delta.size() : delta.size() < 200 ? delta.size() : 200;
            delta[(size_t)rng_below(&rng, most)] ^= (uint8_t)(1 << rng_below(&rng, 8));
        }
        if (rng_below(&rng, 6) == 0)
            delta.resize((size_t)rng_below(&rng, delta.size()));
        check_apply(s, delta, 1, i & 1, "damaged");
    }
    watch(true);
}

/* What elements can be. */
static const struct {
    enum pici_dtype dtype;
    enum pici_holds holds;
} sorts[] = {{PICI_BF16, PICI_HOLDS_ONE},   {PICI_F32, PICI_HOLDS_ONE},    {PICI_F16, PICI_HOLDS_ONE},
             {PICI_F8E4M3, PICI_HOLDS_ONE}, {PICI_F8E5M2, PICI_HOLDS_ONE}, {PICI_U8, PICI_HOLDS_E2M1X2},
             {PICI_I16, PICI_HOLDS_ONE},    {PICI_F64, PICI_HOLDS_ONE},    {PICI_U8, PICI_HOLDS_ONE}};

/* Chunks of all sorts, of one length each; some as parts of a tensor. */
static void small_ones(void)
{
    static const uint64_t counts[] = {0, 1, 31, 32, 129, 1000, 5000};
    for (const auto &sort : sorts)
        for (uint64_t n : counts)
            for (int step = 0; step < STEPS; step++) {
                if (!thorough && (smallest || n != 5000) && (n + (unsigned)step) % (smallest ? 7 : 3))
                    continue;
                const uint64_t first = rng_below(&rng, 3) ? 0 : rng_below(&rng, 1000),
                               of = first + n + (rng_below(&rng, 3) ? 0 : rng_below(&rng, 1000));
                struct sample s =
                    part_of(sort.dtype, sort.holds, formats[rng_below(&rng, 4)], n, first, of, (enum step)step);
                check_diff(s, 1 + (unsigned)rng_below(&rng, 3));
                check_apply(s, s.delta, 1, false, "apply");
                check_damaged(s, s.delta, n > 100 ? 3 : 1);
                encode(&s, 1);
                check_apply(s, s.delta, 1, true, "with a checksum");
                check_damaged(s, s.delta, 1);
            }
}

/* Several chunks, of both kinds, in slots that are fewer; and a whole one. */
static void several(void)
{
    const uint64_t chunk = 1 << 19, n = 2 * chunk + 4097;
    for (enum pici_dtype dtype : {PICI_BF16, PICI_F32, PICI_U8}) {
        if (!thorough && dtype != PICI_BF16)
            continue;
        struct sample s = sample_of(dtype, PICI_HYBRID, n, STEP_TINY);
        const size_t width = pici_dtype_width(dtype);
        /* the second one is random */
        for (size_t i = chunk * width; i < 2 * chunk * width; i += thorough ? 1 : 64)
            s.src[i] = (uint8_t)rng_next(&rng);
        encode(&s, 0);
        check_diff(s, 2);
        check_apply(s, s.delta, 2, true, "three chunks");
        check_damaged(s, s.delta, thorough ? 20 : 1);
    }
}

static void append(std::vector<uint8_t> *row, const struct sample &s)
{
    row->insert(row->end(), s.delta.begin(), s.delta.end());
}

/* The deltas of several ranks in a row, at any address, with checksums and without; of all elements and of some. */
static void rows(void)
{
    for (const auto &sort : sorts) {
        const uint64_t counts[] = {100, 1, 777, 0, 2000}, of = 3000;
        struct sample whole = part_of(sort.dtype, sort.holds, PICI_HYBRID, 2878, 22, of, STEP_NONE);
        std::vector<uint8_t> row, last;
        const size_t width = pici_dtype_width(sort.dtype);
        uint64_t first = whole.first;
        for (unsigned i = 0; i < 5; i++) {
            struct sample part = part_of(sort.dtype, sort.holds, formats[i % 4], counts[i], first, of,
                                         i == 2 ? STEP_RANDOM : STEP_USUAL);
            encode(&part, (int)i % 2);
            memcpy(whole.base.data() + (first - whole.first) * width, part.base.data(), counts[i] * width);
            append(&row, part);
            last = part.delta;
            first += counts[i];
        }
        check_apply(whole, row, 1, true, "a row");
        check_damaged(whole, row, thorough ? 40 : 8);
        std::vector<uint8_t> again = row;
        again.insert(again.end(), last.begin(), last.end());
        check_apply(whole, again, 1, false, "a row with a part twice");
        again = last;
        again.insert(again.end(), row.begin(), row.end());
        check_apply(whole, again, 1, false, "a row in another order");
        row.resize(row.size() - last.size());
        check_apply(whole, row, 1, false, "a row without its end");
        struct sample some = whole; /* of two of the parts */
        some.first += 100;
        some.n = 778;
        some.base.assign(whole.base.begin() + 100 * (ptrdiff_t)width, whole.base.begin() + 878 * (ptrdiff_t)width + 1);
        check_apply(some, row, 1, false, "some of a row");
        some.of++;
        check_apply(some, row, 1, false, "a row of another tensor");
        some.of--;
        some.n = 0;
        check_apply(some, row, 1, false, "nothing of a row");
    }
}

/* A row of more deltas than the workspace lists, and one that has just as many. */
static void long_rows(void)
{
    for (uint64_t n : {UINT64_C(1025), UINT64_C(1026)}) {
        struct sample whole = part_of(PICI_BF16, PICI_HOLDS_ONE, PICI_DENSE, n, 0, 2000, STEP_NONE);
        std::vector<uint8_t> row;
        for (uint64_t i = 0; i < n; i++) {
            struct sample one = part_of(PICI_BF16, PICI_HOLDS_ONE, PICI_DENSE, 1, i, 2000, STEP_RANDOM);
            memcpy(whole.base.data() + 2 * i, one.base.data(), 2);
            append(&row, one);
        }
        if (n == 1025) {
            check_apply(whole, row, 1, false, "a row of very many");
            continue;
        }
        const size_t space = pici_apply_small_cuda_workspace(PICI_BF16, n, 1);
        buffer dst(2 * n, 0, whole.base.data()), in(row.size(), 0, row.data()), workspace(space);
        result_buffer result;
        const enum pici_status status = pici_apply_small_range_cuda(dst.at, n, 0, 2000, PICI_BF16, in.at, row.size(),
                                                                    NULL, result.to(), workspace.at, space, stream);
        tally(!status && result.read().status == PICI_E_UNSUPPORTED, "a row of too many");
        tally(starts_with(dst, whole.base, 2 * n), "a row of too many: elements changed");
    }
}

/* Parts of 2^19 elements and more, of which a range has some chunks. */
static void ranges(void)
{
    const uint64_t chunk = 1 << 19;
    struct sample s = part_of(PICI_F8E4M3, PICI_HOLDS_ONE, PICI_HYBRID, 2 * chunk + 100, 5, 3 * chunk, STEP_TINY);
    check_diff(s, 1);
    const std::vector<uint8_t> base = s.base;
    const auto range = [&](uint64_t from, uint64_t n, const char *what) {
        struct sample some = s;
        some.first = s.first + from;
        some.n = n;
        some.base.assign(base.begin() + (ptrdiff_t)from, base.begin() + (ptrdiff_t)(from + n));
        some.base.push_back(0);
        check_apply(some, s.delta, 2, false, what);
    };
    range(chunk, chunk, "a chunk");
    range(chunk, chunk + 100, "the last chunks");
    range(chunk, chunk - 1, "a part of a chunk");
    range(1, chunk - 1, "another part of a chunk");
}

static void arguments(void)
{
    const struct sample s = sample_of(PICI_BF16, PICI_BITMAP, 1000, STEP_USUAL);
    const size_t made = pici_diff_small_cuda_workspace(PICI_BITMAP, PICI_BF16, s.n, 0),
                 read = pici_apply_small_cuda_workspace(PICI_BF16, s.n, 0);
    buffer base(2000, 0, s.base.data()), src(2000, 0, s.src.data()), delta(4000), workspace(made > read ? made : read);
    result_buffer result;
    const auto diff = [&](uint8_t *to, size_t cap, const void *from, enum pici_dtype dtype, enum pici_format format,
                          size_t space) {
        return pici_diff_small_cuda(to, cap, result.to(), from, src.at, s.n, dtype, format, workspace.at, space,
                                    stream);
    };
    const auto apply = [&](uint8_t *to, enum pici_dtype dtype, const uint8_t *from, size_t space) {
        return pici_apply_small_cuda(to, s.n, dtype, from, 4000, NULL, result.to(), workspace.at, space, stream);
    };
    tally(diff(NULL, 4000, base.at, PICI_BF16, PICI_BITMAP, made) == PICI_E_ARG, "diff to null");
    tally(diff(delta.at + 8, 3000, base.at, PICI_BF16, PICI_BITMAP, made) == PICI_E_ARG, "diff to an odd address");
    tally(diff(delta.at, 4000, delta.at, PICI_BF16, PICI_BITMAP, made) == PICI_E_ARG, "diff in place");
    tally(diff(delta.at, 4000, NULL, PICI_BF16, PICI_BITMAP, made) == PICI_E_ARG, "diff without a base");
    tally(diff(delta.at, 4000, base.at + 1, PICI_BF16, PICI_BITMAP, made) == PICI_E_ARG, "a base that is not aligned");
    tally(diff(delta.at, 4000, base.at, (enum pici_dtype)15, PICI_BITMAP, made) == PICI_E_ARG, "diff of no dtype");
    tally(diff(delta.at, 4000, base.at, PICI_BF16, (enum pici_format)9, made) == PICI_E_ARG, "diff in no format");
    tally(diff(delta.at, 4000, base.at, PICI_BF16, PICI_AUTO, made) == PICI_E_UNSUPPORTED, "diff in the shortest");
    tally(diff(delta.at, 4000, base.at, PICI_BF16, PICI_BITMAP, made - 16) == PICI_E_ARG, "diff in too little memory");
    tally(diff(delta.at, 35, base.at, PICI_BF16, PICI_BITMAP, made) == PICI_E_SPACE, "diff to too few bytes");
    tally(apply(NULL, PICI_BF16, delta.at, read) == PICI_E_ARG, "apply to null");
    tally(apply(base.at, PICI_BF16, NULL, read) == PICI_E_ARG, "apply null");
    tally(apply(delta.at, PICI_BF16, delta.at, read) == PICI_E_ARG, "apply to itself");
    tally(apply(base.at + 1, PICI_BF16, delta.at, read) == PICI_E_ARG, "apply to an odd address");
    tally(apply(base.at, (enum pici_dtype)0, delta.at, read) == PICI_E_ARG, "apply of no dtype");
    tally(apply(base.at, PICI_BF16, delta.at, read - 16) == PICI_E_ARG, "apply in too little memory");
    tally(!pici_diff_small_cuda_workspace(PICI_AUTO, PICI_F32, 10, 0) &&
              !pici_diff_small_cuda_workspace(PICI_BITMAP, (enum pici_dtype)0, 10, 0) &&
              !pici_apply_small_cuda_workspace((enum pici_dtype)15, 10, 0) &&
              !pici_diff_small_cuda_workspace(PICI_COO, PICI_F32, UINT64_MAX / 8, 0),
          "no workspace");
    check_apply(s, s.delta, 0, false, "afterwards");
    struct sample other = s;
    other.dtype = PICI_F16;
    check_apply(other, s.delta, 0, false, "another dtype");
}

/* Options and parts that are refused; and f8 as 0.2 stored it. */
static void options(void)
{
    const struct sample s = sample_of(PICI_U8, PICI_BITMAP, 1000, STEP_USUAL);
    const size_t space = pici_diff_small_cuda_workspace(PICI_BITMAP, PICI_U8, s.n, 1);
    buffer base(1000, 0, s.base.data()), src(1000, 0, s.src.data()), delta(4000), workspace(space);
    result_buffer result;
    struct pici_opts opts = PICI_OPTS_INIT;
    const auto diff = [&](uint64_t first, uint64_t of, enum pici_dtype dtype) {
        return pici_diff_small_part_cuda(delta.at, 4000, result.to(), base.at, src.at, s.n, first, of, dtype,
                                         PICI_BITMAP, &opts, workspace.at, space, stream);
    };
    tally(diff(1, 1000, PICI_U8) == PICI_E_ARG && diff(0, 999, PICI_U8) == PICI_E_ARG, "a part beyond the tensor");
    opts.holds = PICI_HOLDS_E2M1X2;
    tally(diff(0, 1000, PICI_I8) == PICI_E_ARG, "pairs in i8");
    opts.holds = (enum pici_holds)2;
    tally(diff(0, 1000, PICI_U8) == PICI_E_UNSUPPORTED, "unknown holds");
    opts.holds = PICI_HOLDS_ONE;
    opts.checksum = 1;
    tally(diff(0, 1000, PICI_U8) == PICI_E_UNSUPPORTED, "diff with a checksum");
    tally(pici_apply_small_range_cuda(base.at, s.n, 1, s.n, PICI_U8, delta.at, 4000, NULL, result.to(), workspace.at,
                                      space, stream) == PICI_E_ARG,
          "apply beyond the tensor");
    struct sample old = s; /* one of u8 is one of f8, of version 1, when it says so */
    old.dtype = PICI_F8E4M3;
    std::vector<uint8_t> block(pici_bound(PICI_BITMAP, PICI_F8E4M3, s.n));
    size_t size = 0;
    tally(
        !pici_diff(block.data(), block.size(), &size, s.base.data(), s.src.data(), s.n, PICI_F8E4M3, PICI_BITMAP, NULL),
        "a block of f8");
    old.delta.resize(36);
    memcpy(old.delta.data(), s.delta.data(), 32);
    old.delta[5] = PICI_F8E4M3;
    const uint64_t length = 36 + size;
    const uint32_t entry = (uint32_t)size, context = entry | UINT32_C(1) << 31;
    memcpy(old.delta.data() + 16, &length, 8);
    memcpy(old.delta.data() + 32, &entry, 4);
    old.delta.insert(old.delta.end(), block.begin(), block.begin() + (ptrdiff_t)size);
    check_apply(old, old.delta, 1, false, "f8 of version 1");
    memcpy(old.delta.data() + 32, &context, 4);
    check_apply(old, old.delta, 1, false, "a context chunk of f8 of version 1");
}

/* ---- shards of columns ---- */

static struct pici_columns columns_of(uint64_t rows, uint64_t row_length, uint64_t first, uint64_t count,
                                      uint64_t stride)
{
    struct pici_columns columns = PICI_COLUMNS_INIT;
    columns.rows = rows;
    columns.row_length = row_length;
    columns.first = first;
    columns.count = count;
    columns.stride = stride;
    return columns;
}

/* The bytes from the first element of columns to the last. */
static size_t extent_of(const struct pici_columns &columns, size_t width)
{
    const uint64_t stride = columns.stride ? columns.stride : columns.count;
    return columns.rows && columns.count ? (size_t)((columns.rows - 1) * stride + columns.count) * width : 0;
}

/* A delta of columns of s, a whole tensor: on the host, and the same on the GPU. s has the columns of a tensor of rows
 * of `stride` elements, or as many as the shard has. */
static std::vector<uint8_t> check_diff_columns(const struct sample &s, const struct pici_columns &columns)
{
    const size_t width = pici_dtype_width(s.dtype), bytes = extent_of(columns, width),
                 cap = pici_diff_small_bound(s.format, s.dtype, columns.rows * columns.count) + 24,
                 space = pici_diff_small_columns_cuda_workspace(s.format, s.dtype, &columns, 1);
    const size_t skip = columns.stride ? (size_t)columns.first * width : 0;
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.holds = s.holds;
    std::vector<uint8_t> delta(cap);
    size_t len = 0;
    tally(!pici_diff_small_columns(delta.data(), cap, &len, s.base.data() + skip, s.src.data() + skip, &columns,
                                   s.dtype, s.format, &opts),
          "%s: columns on the host", s.name);
    delta.resize(len);
    buffer base(bytes, some_skew(s.dtype), s.base.data() + skip), src(bytes, some_skew(s.dtype), s.src.data() + skip),
        workspace(space), out(len);
    result_buffer result;
    for (size_t less = 0; less < 2; less++) {
        const enum pici_status status =
            pici_diff_small_columns_cuda(out.at, len - less, result.to(), base.at, src.at, &columns, s.dtype, s.format,
                                         &opts, workspace.at, space, stream);
        const struct pici_cuda_result r = result.read();
        if (less)
            tally(status == PICI_E_SPACE || (!status && r.status == PICI_E_SPACE), "%s: columns in a byte less",
                  s.name);
        else
            tally(!status && !r.status && r.len == len && starts_with(out, delta, len), "%s: columns: %d, %d, %llu",
                  s.name, (int)status, (int)r.status, (unsigned long long)r.len);
    }
    return delta;
}

/* Apply deltas in a row to columns of s, as the host does; without PICI_OK nothing is changed. */
static void check_apply_columns(const struct sample &s, const struct pici_columns &columns,
                                const std::vector<uint8_t> &delta, const char *what)
{
    const size_t width = pici_dtype_width(s.dtype), bytes = extent_of(columns, width), len = delta.size(),
                 space = pici_apply_small_columns_cuda_workspace(s.dtype, &columns, 2);
    const uint8_t *const from = s.base.data() + (columns.stride ? (size_t)columns.first * width : 0);
    const std::vector<uint8_t> before(from, from + bytes);
    std::vector<uint8_t> want = before;
    want.push_back(0);
    const void *const deltas[] = {delta.data()};
    enum pici_status expected = pici_apply_small_columns(want.data(), &columns, deltas, &len, 1, NULL);
    const bool other = len > 5 && (enum pici_dtype)delta[5] != s.dtype; /* which the host is not told */
    if (!expected && other)
        expected = PICI_E_ARG;
    buffer dst(bytes, some_skew(s.dtype), before.data()), in(len, 0, delta.data()), workspace(space);
    result_buffer result;
    const enum pici_status status = pici_apply_small_columns_cuda(dst.at, &columns, s.dtype, in.at, len, NULL,
                                                                  result.to(), workspace.at, space, stream);
    const struct pici_cuda_result r = result.read();
    tally(!status && (r.status == (int)expected || (other && r.status == PICI_E_ARG)) && r.len == (expected ? 0 : len),
          "%s: %s: columns: %d, %d where the host says %d", s.name, what, (int)status, (int)r.status, (int)expected);
    tally(starts_with(dst, expected ? before : want, bytes), "%s: %s: columns: another result", s.name, what);
}

/* The deltas of a tensor's columns in three shards, in place in the tensor and copied without gaps. They are applied in
 * a row, to the whole tensor, to some columns, and damaged. */
static void columns(void)
{
    enum { ROWS = 13, ROW = 97 };
    static const uint64_t ends[] = {0, 1, 40, ROW};
    for (const auto &sort : sorts) {
        const struct sample s = part_of(sort.dtype, sort.holds, formats[rng_below(&rng, 4)], ROWS * ROW, 0, ROWS * ROW,
                                        sort.dtype == PICI_I16 ? STEP_RANDOM : STEP_USUAL);
        std::vector<uint8_t> row, last;
        for (int i = 0; i < 3; i++) {
            last = check_diff_columns(s, columns_of(ROWS, ROW, ends[i], ends[i + 1] - ends[i], ROW));
            row.insert(row.end(), last.begin(), last.end());
        }
        check_apply_columns(s, columns_of(ROWS, ROW, 0, ROW, ROW), row, "all");
        check_apply_columns(s, columns_of(ROWS / 13, ROWS * ROW, 0, ROWS * ROW, 0), row, "all, told as one row");
        check_apply_columns(s, columns_of(ROWS, ROW, 1, 39, ROW), row, "one of three");
        check_apply_columns(s, columns_of(ROWS, ROW, 1, 96, ROW), row, "two of three");
        check_apply_columns(s, columns_of(ROWS, ROW, 0, 39, ROW), row, "a shard that is cut");
        check_apply_columns(s, columns_of(ROWS, ROW, 5, 0, ROW), row, "no columns");
        check_apply_columns(s, columns_of(ROW, ROWS, 1, 3, ROWS), row, "other rows");
        check_apply_columns(s, columns_of(ROWS, ROW, 40, 57, ROW), last, "the last alone");
        check_apply_columns(s, columns_of(ROWS, ROW, 1, 96, ROW), last, "the last for two");
        check_apply_columns(s, columns_of(ROWS, ROW, 0, ROW, ROW), s.delta, "of the whole");
        check_apply_columns(s, columns_of(ROWS, ROW, 1, 39, ROW), s.delta, "of the whole on columns");
        struct sample shard = s; /* without a gap */
        const size_t width = pici_dtype_width(s.dtype);
        for (size_t i = 0; i < ROWS; i++) {
            memcpy(shard.base.data() + 39 * width * i, s.base.data() + (ROW * i + 1) * width, 39 * width);
            memcpy(shard.src.data() + 39 * width * i, s.src.data() + (ROW * i + 1) * width, 39 * width);
        }
        const struct pici_columns dense = columns_of(ROWS, ROW, 1, 39, 0);
        check_apply_columns(shard, dense, check_diff_columns(shard, dense), "without a gap");
        check_apply_columns(shard, dense, row, "without a gap, one of three");
        watch(s.format != PICI_COO); /* as in check_damaged */
        for (unsigned i = 0; i < (thorough ? 60u : 8u); i++) {
            std::vector<uint8_t> damaged = i % 2 ? row : last;
            const uint64_t most = rng_below(&rng, 3) ? 64 : damaged.size();
            damaged[(size_t)rng_below(&rng, most)] ^= (uint8_t)(1 << rng_below(&rng, 8));
            if (rng_below(&rng, 6) == 0)
                damaged.resize((size_t)rng_below(&rng, damaged.size()));
            check_apply_columns(s, i % 2 ? columns_of(ROWS, ROW, 0, ROW, ROW) : columns_of(ROWS, ROW, 40, 57, ROW),
                                damaged, "damaged");
        }
        watch(true);
    }
}

/* Columns of two chunks, in rows that are short, and longer than a chunk. */
static void long_columns(void)
{
    const uint64_t chunk = 1 << 19, n = chunk + 700;
    for (uint64_t rows : {n / 4, UINT64_C(2)}) {
        const uint64_t row = rows == 2 ? n + 5 : 5, count = rows == 2 ? n : 4;
        const struct sample s = sample_of(PICI_F8E4M3, PICI_BITMAP, rows * row, STEP_TINY);
        const struct pici_columns columns = columns_of(rows, row, 1, count, row);
        check_apply_columns(s, columns, check_diff_columns(s, columns), "two chunks");
    }
}

static void columns_arguments(void)
{
    const struct sample s = sample_of(PICI_BF16, PICI_BITMAP, 1000, STEP_USUAL);
    struct pici_columns columns = columns_of(10, 100, 3, 50, 100);
    const size_t made = pici_diff_small_columns_cuda_workspace(PICI_BITMAP, PICI_BF16, &columns, 0),
                 read = pici_apply_small_columns_cuda_workspace(PICI_BF16, &columns, 0);
    buffer base(2000, 0, s.base.data()), src(2000, 0, s.src.data()), delta(4000), workspace(made > read ? made : read);
    result_buffer result;
    const auto diff = [&](uint8_t *from, size_t space) {
        return pici_diff_small_columns_cuda(delta.at, 4000, result.to(), from, src.at, &columns, PICI_BF16, PICI_BITMAP,
                                            NULL, workspace.at, space, stream);
    };
    const auto apply = [&](uint8_t *to, size_t space) {
        return pici_apply_small_columns_cuda(to, &columns, PICI_BF16, delta.at, 4000, NULL, result.to(), workspace.at,
                                             space, stream);
    };
    tally(diff(base.at, made - 16) == PICI_E_ARG && apply(base.at, read - 16) == PICI_E_ARG &&
              diff(base.at, 8) == PICI_E_ARG && apply(base.at, 8) == PICI_E_ARG,
          "columns in too little memory");
    tally(diff(NULL, made) == PICI_E_ARG && apply(NULL, read) == PICI_E_ARG, "columns of null");
    tally(diff(delta.at, made) == PICI_E_ARG && apply(delta.at + 2000, read) == PICI_E_ARG, "columns that overlap");
    columns.stride = 49;
    tally(diff(base.at, made) == PICI_E_ARG && apply(base.at, read) == PICI_E_ARG &&
              !pici_diff_small_columns_cuda_workspace(PICI_BITMAP, PICI_BF16, &columns, 0) &&
              !pici_apply_small_columns_cuda_workspace(PICI_BF16, &columns, 0),
          "columns that are more than the stride");
    columns.stride = UINT64_MAX / 16;
    tally(diff(base.at, made) == PICI_E_ARG && apply(base.at, read) == PICI_E_ARG, "columns that are too far apart");
}

#include "cuda_small_graphs.cuh"

#include "cuda_nonzeros.cuh"

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!device_option(argv[i], argv[i + 1], &i))
            rng.state = strtoull(argv[i], NULL, 0);
    if (!device_begin())
        return 77;
#ifdef PICI_DEVICE_HW
    emu::seed(rng.state);
#endif
    small_ones();
    rows();
    long_rows();
    arguments();
    options();
    graphs();
    columns();
    columns_arguments();
    nonzeros_of_blocks();
    changes_of_small_deltas();
    questions_that_are_wrong();
#ifdef PICI_DEVICE_HW
    large = true;
#endif
    watch(false);
    if (!smallest) {
        several();
        ranges();
        long_columns();
        long_ones();
    }
    pinned_base();
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
