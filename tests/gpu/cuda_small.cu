/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Small deltas made and applied by kernels, beside the library's on the host: the same bytes, and of damaged deltas the
 * same word. */
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
    uint64_t n;
    std::vector<uint8_t> base, src, delta;
    char name[100];
};

static void encode(struct sample *s, int checksum)
{
    struct pici_opts opts = PICI_OPTS_INIT;
    size_t len = 0;
    opts.checksum = checksum;
    s->delta.resize(pici_diff_small_bound(s->format, s->dtype, s->n));
    tally(pici_diff_small(s->delta.data(), s->delta.size(), &len, s->base.data(), s->src.data(), s->n, s->dtype,
                          s->format, &opts) == PICI_OK,
          "%s: on the host", s->name);
    s->delta.resize(len);
}

static struct sample sample_of(enum pici_dtype dtype, enum pici_format format, uint64_t n, enum step step)
{
    struct sample s = {dtype, format, n, {}, {}, {}, ""};
    snprintf(s.name, sizeof s.name, "%s, %s, %llu elements, %s", pici_dtype_name(dtype), pici_format_name(format),
             (unsigned long long)n, step_name(step));
    s.base.resize(n * pici_dtype_width(dtype) + 1);
    s.src.resize(s.base.size());
    step_fill(s.base.data(), s.src.data(), n, dtype, step, &rng);
    encode(&s, 0);
    return s;
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
    for (int less = 0; less < 2; less++) {
        const size_t cap = less ? len - 1 : len;
        buffer delta(cap);
        result_buffer result;
        const enum pici_status status = pici_diff_small_cuda(delta.at, cap, result.to(), base.at, src.at, s.n, s.dtype,
                                                             s.format, workspace.at, space, stream);
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

/* Apply a delta to the base: the host's status, and with PICI_OK what it makes. */
static void check_apply(const struct sample &s, const std::vector<uint8_t> &delta, unsigned at_once, bool length_there,
                        const char *what)
{
    const size_t bytes = (size_t)s.n * pici_dtype_width(s.dtype), len = delta.size();
    const size_t space = pici_apply_small_cuda_workspace(s.dtype, s.n, at_once);
    std::vector<uint8_t> want = s.base;
    enum pici_status expected = pici_apply_small(want.data(), s.n, delta.data(), len, NULL);
    if (len >= 32 && memcmp(delta.data(), "PICD", 4) == 0 && (delta[4] == 2 || delta[4] == 3))
        expected = PICI_E_VERSION;                                      /* which the host reads */
    const bool other = len > 5 && (enum pici_dtype)delta[5] != s.dtype; /* which the host is not told */
    if (!expected && other)
        expected = PICI_E_ARG;
    const uint64_t length = len;
    buffer dst(bytes, some_skew(s.dtype), s.base.data()), in(len, 0, delta.data()), workspace(space),
        len_at(sizeof length, 0, &length);
    result_buffer result;
    const enum pici_status status =
        pici_apply_small_cuda(dst.at, s.n, s.dtype, in.at, len, length_there ? (const uint64_t *)len_at.at : NULL,
                              result.to(), workspace.at, space, stream);
    const struct pici_cuda_result r = result.read();
    tally(!status && (r.status == (int)expected || (other && r.status == PICI_E_ARG)) && r.len == (expected ? 0 : len),
          "%s: %s: %d, %d where the host says %d", s.name, what, (int)status, (int)r.status, (int)expected);
    if (!expected)
        tally(starts_with(dst, want, bytes), "%s: %s: another result", s.name, what);
}

static void check_damaged(const struct sample &s, unsigned times)
{
    watch(s.format != PICI_COO); /* positions that are not in order may be the same */
    for (unsigned i = 0; i < times; i++) {
        std::vector<uint8_t> delta = s.delta;
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

/* Chunks of all sorts, of one length each. */
static void small_ones(void)
{
    static const uint64_t counts[] = {0, 1, 31, 32, 129, 1000, 5000};
    static const enum pici_dtype dtypes[] = {PICI_BF16, PICI_F32, PICI_F16, PICI_I16, PICI_F64, PICI_U8};
    for (enum pici_dtype dtype : dtypes)
        for (uint64_t n : counts)
            for (int step = 0; step < STEPS; step++) {
                if (!thorough && (n + (unsigned)step) % 3 && n != 5000)
                    continue;
                struct sample s = sample_of(dtype, formats[rng_below(&rng, 4)], n, (enum step)step);
                check_diff(s, 1 + (unsigned)rng_below(&rng, 3));
                check_apply(s, s.delta, 1, false, "apply");
                check_damaged(s, n > 100 ? 3 : 1);
                encode(&s, 1);
                check_apply(s, s.delta, 1, true, "with a checksum");
                check_damaged(s, 1);
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
        check_damaged(s, thorough ? 20 : 1);
    }
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
    tally(diff(delta.at, 4000, base.at, PICI_F8E4M3, PICI_BITMAP, made) == PICI_E_UNSUPPORTED, "diff of f8");
    const struct sample f8 = sample_of(PICI_F8E5M2, PICI_BITMAP, 1000, STEP_USUAL);
    check_apply(f8, f8.delta, 1, false, "a delta of f8");
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

int main(int argc, char **argv)
{
    thorough = on_gpu && !(argc > 1 && strcmp(argv[1], "--quick") == 0);
    rng.state = argc > 1 && argv[1][0] != '-' ? strtoull(argv[1], NULL, 0) : 1;
    if (!device_begin())
        return 77;
#ifdef PICI_DEVICE_HW
    emu::seed(rng.state);
#endif
    small_ones();
    arguments();
#ifdef PICI_DEVICE_HW
    large = true;
#endif
    watch(false);
    several();
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
