/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Compare casts and QSGD in device memory with the reference of formats/values.md and the library's codecs on the host,
 * bit for bit. Covers every dtype, width, norm and rounding, and buckets with zeros, infinities, NaNs and denormals.
 * Also any length and alignment, residuals, and arrays that break each rule. Selections of the largest elements
 * likewise. On a GPU, or over the emulator of thread blocks. The last line is "N passed, N failed".
 *   cuda_values [--quick | --smallest] */
#include "cuda_device.cuh"

#include <pici/coll.h>
#include <pici/topk.h>

extern "C" {
#include "formats/ref_values.h"
#include "values/values.h"
}

typedef std::vector<uint8_t> bytes;

/* Elements in buckets of several kinds. */
static bytes make_elements(uint64_t n, enum pici_dtype dtype, uint32_t bucket)
{
    const unsigned width = (unsigned)pici_dtype_width(dtype);
    const unsigned mantissa = dtype == PICI_F64 ? 52 : dtype == PICI_F32 ? 23 : dtype == PICI_F16 ? 10 : 7;
    const uint64_t sign = UINT64_C(1) << (8 * width - 1), one = UINT64_C(1) << mantissa, inf = sign - one;
    bytes v((size_t)n * width + 1);
    for (uint64_t at = 0; at < n; at += bucket) {
        const uint64_t kind = rng_below(&rng, 9), exponent = rng_below(&rng, inf / one);
        for (uint64_t i = at; i < n && i < at + bucket; i++) {
            uint64_t x = rng_next(&rng) % sign, e = exponent + rng_below(&rng, 8);
            x = x % one | (e < inf / one ? e : inf / one - 1) << mantissa; /* near one another */
            if (kind == 0)
                x = 0;
            else if (kind == 1)
                x = x % one; /* denormal */
            else if (kind == 2)
                x = rng_below(&rng, 50) ? 0 : x; /* sparse */
            else if (kind == 3 && rng_below(&rng, bucket) == 0)
                x = inf | (rng_below(&rng, 3) ? 0 : one / 2 | (x & (one - 1))); /* quiet */
            else if (kind == 4)
                x = inf - 1 - rng_below(&rng, 3);
            else if (kind == 5)
                x = x % inf; /* anything finite */
            ref_store(v.data(), i, width, x | (rng_below(&rng, 2) ? sign : 0));
        }
    }
    return v;
}

struct setting {
    enum pici_dtype dtype;
    struct pici_values values;
    struct pici_cuda_quantize_opts opts;
};

static struct values resolved(const struct setting &s)
{
    struct values v;
    if (pici_values_resolve(&v, &s.values, s.dtype, PICI_SUM)) {
        printf("FAIL a setting of the test\n");
        exit(1);
    }
    v.positive = s.opts.positive;
    return v;
}

static struct ref_values reference(const struct setting &s)
{
    const struct values v = resolved(s);
    struct ref_values r = {};
    r.codec = v.cast ? REF_CAST : REF_QSGD;
    r.dtype = s.dtype;
    r.cast = v.cast;
    r.positive = s.opts.positive;
    r.bits = (unsigned)v.bits;
    r.bucket = v.bucket;
    r.l2 = v.norm == PICI_NORM_L2;
    r.nearest = v.rounding == PICI_ROUND_NEAREST;
    r.seed = v.seed;
    r.first = s.opts.first;
    r.sequence = s.opts.sequence;
    r.phase = s.opts.phase;
    r.origin = s.opts.origin;
    return r;
}

/* Arrays of the host's codec, what it lost, and how many buckets or elements were not finite. */
static void quantize_on_host(const struct setting &s, bytes array[2], const bytes &src, uint64_t n, bytes &residual,
                             uint64_t *nonfinite)
{
    const struct values v = resolved(s);
    const struct values_where where = {s.opts.first, s.opts.sequence, (int)s.opts.phase, (int)s.opts.origin};
    struct values_loss loss = {residual.data(), s.opts.times, 0, 0};
    void *const out[2] = {array[0].data(), array[1].data()};
    uint64_t made[2] = {0, 0};
    if (v.codec->quantize(&v, &where, out, made, src.data(), n, &loss))
        exit(1);
    *nonfinite = loss.nonfinite;
}

/* The arrays of a setting on the device, and between bytes that must stay. */
struct arrays {
    uint64_t count[2];
    enum pici_dtype dtype[2];
    size_t length[2];
    buffer *at[2];
    explicit arrays(const struct setting &s, uint64_t n)
    {
        if (pici_quantize_cuda_counts(count, dtype, n, s.dtype, &s.values))
            exit(1);
        for (int a = 0; a < 2; a++) {
            length[a] = (size_t)count[a] * pici_dtype_width(dtype[a]);
            at[a] = new buffer(length[a]);
        }
    }
    ~arrays()
    {
        delete at[0];
        delete at[1];
    }
};

static void check_dequantize(const struct setting &s, const arrays &a, uint64_t n, const bytes want[2],
                             bool expect_good)
{
    const unsigned width = (unsigned)pici_dtype_width(s.dtype);
    const struct ref_values ref = reference(s);
    const void *const in[2] = {want[0].data(), want[1].data()}, *const there[2] = {a.at[0]->at, a.at[1]->at};
    bytes decoded((size_t)n * width + 1);
    const bool good = ref_values_dequantize(decoded.data(), &ref, in, a.count, n) == REF_OK;
    if (expect_good != good)
        tally(false, "the reference of dequantizing says %d", good);
    for (int k = 0; k < 2; k++)
        if (a.length[k])
            a.at[k]->put(want[k].data());
    buffer dst((size_t)n * width, some_skew(s.dtype));
    result_buffer result;
    const enum pici_status status = pici_dequantize_cuda(dst.at, result.to(), n, s.dtype, there, &s.values, stream);
    const struct pici_cuda_result r = result.read();
    tally(!status && r.status == (good ? PICI_OK : PICI_E_CORRUPT) && !r.len && !r.rule &&
              (!good || dst.get((size_t)n * width) == decoded),
          "dequantize %zu of %s, codec %d, bits %d, bucket %u: %d, %d", (size_t)n, pici_dtype_name(s.dtype),
          (int)s.values.codec, s.values.bits, s.values.bucket, (int)status, (int)r.status);
}

/* Both directions. */
static void check(const struct setting &s, uint64_t n)
{
    const unsigned width = (unsigned)pici_dtype_width(s.dtype);
    const struct ref_values ref = reference(s);
    const bytes src = make_elements(n, s.dtype, s.values.bucket ? s.values.bucket : s.values.cast ? 64 : 1024);
    struct setting on = s;
    arrays a(s, n);
    bytes want[2], host[2], residual = make_elements(n, s.dtype, 64);
    for (uint64_t i = 0; i < n; i++) /* no NaN: which one of two is processed a sum is another test's */
        ref_store(residual.data(), i, width, ref_load(residual.data(), i, width) & ~(UINT64_C(1) << (8 * width - 2)));
    for (int k = 0; k < 2; k++)
        want[k] = host[k] = bytes(a.length[k] + 1);
    void *const out[2] = {want[0].data(), want[1].data()};
    ref_values_quantize(out, &ref, src.data(), n);
    buffer from((size_t)n * width, some_skew(s.dtype), src.data()), nonfinite(8),
        lost((size_t)n * width, some_skew(s.dtype), residual.data());
    const uint64_t zero = 0;
    uint64_t other = 0;
    nonfinite.put(&zero);
    device_good();
    quantize_on_host(s, host, src, n, residual, &other);
    if (rng_below(&rng, 3))
        on.values.residual = lost.at;
    void *const to[2] = {a.at[0]->at, a.at[1]->at};
    const enum pici_status status =
        pici_quantize_cuda(to, (uint64_t *)nonfinite.at, from.at, n, s.dtype, &on.values, &on.opts, stream);
    const bool right = !status && device_good() && a.at[0]->get(a.length[0]) == want[0] &&
                       a.at[1]->get(a.length[1]) == want[1] && host[0] == want[0] && host[1] == want[1];
    tally(right, "quantize %zu of %s, codec %d, bits %d, bucket %u, norm %d, rounding %d: %d", (size_t)n,
          pici_dtype_name(s.dtype), (int)s.values.codec, s.values.bits, s.values.bucket, (int)s.values.norm,
          (int)s.values.rounding, (int)status);
    uint64_t counted;
    memcpy(&counted, nonfinite.get(8).data(), 8);
    tally(counted == other, "%zu not finite, not %zu", (size_t)counted, (size_t)other);
    if (on.values.residual)
        tally(lost.get((size_t)n * width) == residual, "what %s of codec %d, bits %d, lost", pici_dtype_name(s.dtype),
              (int)s.values.codec, s.values.bits);
    check_dequantize(s, a, n, want, true);
}

/* ---- arrays that break a rule */

static void check_damaged(const struct setting &s, uint64_t n)
{
    const struct ref_values ref = reference(s);
    const unsigned wide = s.dtype == PICI_F64 ? 8 : 4, bits = (unsigned)s.values.bits;
    const uint64_t inf = wide == 8 ? UINT64_C(0x7ff) << 52 : UINT64_C(0x7f800000);
    const uint64_t nan = inf | (wide == 8 ? UINT64_C(1) << 51 : 1u << 22), sign = UINT64_C(1) << (8 * wide - 1);
    arrays a(s, n);
    bytes want[2];
    for (int k = 0; k < 2; k++)
        want[k] = bytes(a.length[k] + 1);
    bytes src((size_t)n * pici_dtype_width(s.dtype) + 1);
    for (uint64_t i = 0; i < n; i++) /* 1 to about 2 */
        ref_store(src.data(), i, (unsigned)pici_dtype_width(s.dtype),
                  (s.dtype == PICI_F64   ? UINT64_C(0x3ff) << 52
                   : s.dtype == PICI_F32 ? UINT64_C(0x3f800000)
                   : s.dtype == PICI_F16 ? UINT64_C(0x3c00)
                                         : UINT64_C(0x3f80)) +
                      rng_below(&rng, 100));
    void *const out[2] = {want[0].data(), want[1].data()};
    ref_values_quantize(out, &ref, src.data(), n);
    check_dequantize(s, a, n, want, true);
    const uint64_t scales[] = {inf, inf | 1, nan | 1, nan | sign, nan, sign, sign | 1, 0, inf - 1, 1};
    for (int i = 0; i < 10; i++) {
        bytes bad[2] = {want[0], want[1]};
        ref_store(bad[0].data(), rng_below(&rng, a.count[0]), wide, scales[i]);
        check_dequantize(s, a, n, bad, i >= 8);
    }
    for (int i = 0; i < 6;
         i++) { /* the code that there is not, in each place of a group of four, and in the last one */
        bytes bad[2] = {want[0], want[1]};
        const uint64_t j = i < 4 ? rng_below(&rng, n / 4) * 4 + (unsigned)i : i == 4 ? n - 1 : 0;
        uint8_t *const byte = &bad[1][(size_t)(j * bits / 8)];
        const unsigned shift = (unsigned)(j * bits % 8), mask = (1u << bits) - 1;
        *byte = (uint8_t)((*byte & ~(mask << shift)) | 1u << (bits - 1) << shift);
        check_dequantize(s, a, n, bad, false);
    }
    for (unsigned bit = (unsigned)(n * bits % 8); bit && bit < 8; bit++) { /* spare ones */
        bytes bad[2] = {want[0], want[1]};
        bad[1][a.length[1] - 1] = (uint8_t)(bad[1][a.length[1] - 1] | 1u << bit);
        check_dequantize(s, a, n, bad, false);
    }
}

/* ---- the largest elements of each bucket */

/* Elements without infinities and NaNs if they are scaled; many of one magnitude: `ties`. */
static bytes make_gradient(uint64_t n, enum pici_dtype dtype, uint32_t bucket, bool ties, bool tame)
{
    const unsigned width = (unsigned)pici_dtype_width(dtype);
    const uint64_t top = UINT64_C(1) << (8 * width - 2); /* an exponent without it is of less than 2 */
    bytes v = make_elements(n, dtype, bucket);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t x = ref_load(v.data(), i, width);
        if (ties && i % 3)
            x = ref_load(v.data(), i / bucket * bucket, width) ^ (i & 1) << (8 * width - 1);
        ref_store(v.data(), i, width, tame ? x & ~top : x);
    }
    return v;
}

static void check_topk(enum pici_dtype dtype, uint64_t n, const struct pici_topk_opts &o, unsigned turn)
{
    const size_t length = (size_t)n * pici_dtype_width(dtype);
    const bool has_residual = turn % 3 != 0, has_velocity = o.momentum > 0, in_place = turn % 5 == 0;
    bytes gradient = make_gradient(n, dtype, o.bucket, turn % 2, has_residual || has_velocity);
    bytes residual = make_gradient(n, dtype, 64, false, true), velocity = make_gradient(n, dtype, 64, false, true);
    buffer from(length, some_skew(dtype), gradient.data()), rest(length, some_skew(dtype), residual.data()),
        moved(length, some_skew(dtype), velocity.data()), apart(length, some_skew(dtype)), nnz(8);
    uint8_t *const to = in_place ? from.at : apart.at;
    bytes out(length + 1);
    uint64_t want = 0, got;
    device_good();
    const enum pici_status host = pici_topk(out.data(), &want, has_residual ? residual.data() : NULL,
                                            has_velocity ? velocity.data() : NULL, gradient.data(), n, dtype, &o);
    const enum pici_status status = pici_topk_cuda(to, (uint64_t *)nnz.at, has_residual ? rest.at : NULL,
                                                   has_velocity ? moved.at : NULL, from.at, n, dtype, &o, stream);
    const bool good = !host && !status && device_good();
    memcpy(&got, nnz.get(8).data(), 8);
    tally(good && got == want && (in_place ? from : apart).get(length) == out,
          "the %u largest of %u, %zu of %s: %d, %zu and not %zu", o.k, o.bucket, (size_t)n, pici_dtype_name(dtype),
          (int)status, (size_t)got, (size_t)want);
    tally((in_place || from.get(length) == gradient) && rest.get(length) == residual && moved.get(length) == velocity,
          "what is left of the %u largest of %u of %s, momentum %g", o.k, o.bucket, pici_dtype_name(dtype),
          (double)o.momentum);
}

static void check_topk_refusals(void)
{
    buffer a(4096 * 4), b(4096 * 4), c(4096 * 4), nnz(8);
    uint64_t *const count = (uint64_t *)nnz.at;
    const auto call = [&](void *out, void *residual, void *velocity, const struct pici_topk_opts &o) {
        return pici_topk_cuda(out, count, residual, velocity, a.at, 4096, PICI_F32, &o, stream);
    };
    const struct pici_topk_opts usual = PICI_TOPK_OPTS_INIT;
    struct pici_topk_opts o = usual;
    o.select = PICI_SELECT_GLOBAL;
    tally(call(b.at, NULL, NULL, o) == PICI_E_UNSUPPORTED, "a selection among all");
    o = usual;
    o.bucket = 4097;
    tally(call(b.at, NULL, NULL, o) == PICI_E_UNSUPPORTED, "a long bucket");
    o.bucket = 3;
    tally(call(b.at, NULL, NULL, o) == PICI_E_ARG, "more than a bucket");
    tally(call(b.at, b.at, NULL, usual) == PICI_E_ARG, "a residual over the output");
    tally(call(b.at, a.at, NULL, usual) == PICI_E_ARG, "a residual over the gradient");
    tally(call(b.at, NULL, c.at, usual) == PICI_E_ARG, "a velocity without momentum");
    tally(call(b.at + 2, NULL, NULL, usual) == PICI_E_ARG, "an output that is not aligned");
    tally(call(NULL, NULL, NULL, usual) == PICI_E_ARG, "no output");
    tally(pici_topk_cuda(b.at, NULL, NULL, NULL, a.at, 4096, PICI_F32, NULL, stream) == PICI_E_ARG, "no count");
    tally(pici_topk_cuda(b.at, (uint64_t *)b.at, NULL, NULL, a.at, 4096, PICI_F32, NULL, stream) == PICI_E_ARG,
          "a count in the output");
    tally(pici_topk_cuda(b.at, count, NULL, NULL, a.at, 4096, PICI_I32, NULL, stream) == PICI_E_UNSUPPORTED,
          "integers");
    tally(pici_topk_cuda(NULL, count, NULL, NULL, NULL, 0, PICI_F32, NULL, stream) == PICI_OK && device_good() &&
              first_word(nnz) == 0,
          "of nothing");
}

/* ---- calls that are refused */

static void check_refusals(void)
{
    buffer src(4096 * 4), array(4096 * 4), codes(4096 * 4), result(sizeof(struct pici_cuda_result));
    struct pici_values q = PICI_VALUES_INIT, cast = PICI_VALUES_INIT, v;
    q.codec = PICI_VALUES_QSGD;
    cast.codec = PICI_VALUES_CAST;
    void *to[2] = {array.at, codes.at};
    const auto quantize = [&](const struct pici_values *values, enum pici_dtype dtype, const void *from) {
        return pici_quantize_cuda(to, NULL, from, 4096, dtype, values, NULL, stream);
    };
    const auto dequantize = [&](void *dst, void *r) {
        return pici_dequantize_cuda(dst, (struct pici_cuda_result *)r, 4096, PICI_F32, to, &q, stream);
    };
    tally(quantize(NULL, PICI_F32, src.at) == PICI_E_ARG, "no codec");
    tally(quantize(&q, PICI_I32, src.at) == PICI_E_UNSUPPORTED, "QSGD of integers");
    tally(quantize(&cast, PICI_BF16, src.at) == PICI_E_UNSUPPORTED, "a cast of bf16");
    tally(quantize(&q, (enum pici_dtype)99, src.at) == PICI_E_ARG, "an unknown dtype");
    tally(quantize(&q, PICI_F32, src.at + 1) == PICI_E_ARG, "elements that are not aligned");
    tally(quantize(&q, PICI_F32, array.at) == PICI_E_ARG, "an array over its elements");
    tally(quantize(&q, PICI_F32, NULL) == PICI_E_ARG, "no elements");
    v = q;
    v.codec = PICI_VALUES_ZFP;
    v.rate = 8;
    tally(quantize(&v, PICI_F32, src.at) == PICI_E_UNSUPPORTED, "zfp");
    v.codec = PICI_VALUES_EXACT;
    tally(quantize(&v, PICI_F32, src.at) == PICI_E_UNSUPPORTED, "no codec at all");
    v = q;
    v.bits = 3;
    tally(quantize(&v, PICI_F32, src.at) == PICI_E_ARG, "3 bits");
    v = q;
    v.bucket = 32;
    tally(quantize(&v, PICI_F32, src.at) == PICI_E_ARG, "a bucket of 32");
    v = q;
    v.residual = src.at;
    tally(quantize(&v, PICI_F32, src.at) == PICI_E_ARG, "a residual over the elements");
    v = q;
    v.size = 1;
    tally(quantize(&v, PICI_F32, src.at) == PICI_E_ARG, "no size");
    struct pici_cuda_quantize_opts o = PICI_CUDA_QUANTIZE_OPTS_INIT;
    o.times = 0;
    tally(pici_quantize_cuda(to, NULL, src.at, 4096, PICI_F32, &q, &o, stream) == PICI_E_ARG, "losses 0 times");
    tally(dequantize(src.at, NULL) == PICI_E_ARG, "no result");
    tally(dequantize(src.at, src.at) == PICI_E_ARG, "a result over the elements");
    to[1] = codes.at + 8;
    tally(quantize(&q, PICI_F32, src.at) == PICI_E_ARG && dequantize(src.at, result.at) == PICI_E_ARG,
          "codes that are not aligned");
    to[1] = to[0];
    tally(quantize(&q, PICI_F32, src.at) == PICI_E_ARG, "codes over scales");
    tally(pici_quantize_cuda_counts(NULL, NULL, 1, PICI_F32, &q) == PICI_E_ARG, "no counts");
    tally(device_good(), "after refusals");
}

int main(int argc, char **argv)
{
    static const enum pici_dtype dtypes[] = {PICI_F32, PICI_F64, PICI_F16, PICI_BF16};
    static const uint32_t buckets[] = {64, 1024, 4096, 0, 128, 256, 512, 2048};
    static const int widths[] = {8, 4, 2};
    for (int i = 1; i < argc; i++)
        if (!device_option(argv[i], argv[i + 1], &i))
            return 2;
    if (!device_begin())
        return 77;
    uint64_t turn = 0;
    for (enum pici_dtype dtype : dtypes)
        for (int bits : widths)
            for (int norm = 0; norm < 2; norm++)
                for (int rounding = 0; rounding < 2; rounding++)
                    for (unsigned i = 0; i < (thorough ? 16u : 2u); i++, turn++) {
                        struct setting s = {dtype, PICI_VALUES_INIT, PICI_CUDA_QUANTIZE_OPTS_INIT};
                        s.values.codec = PICI_VALUES_QSGD;
                        s.values.bits = bits;
                        s.values.norm = (enum pici_norm)norm;
                        s.values.rounding = (enum pici_rounding)rounding;
                        s.values.bucket = buckets[turn % 8];
                        s.values.seed = rng_next(&rng);
                        s.opts.first = turn % 4 + (turn % 3 ? 0 : UINT64_C(0x3fffffffe));
                        s.opts.sequence = rng_next(&rng);
                        s.opts.phase = turn & 1;
                        s.opts.origin = (uint32_t)rng_below(&rng, 100);
                        s.opts.times = 1 + (int)(turn % 3);
                        check(s, i ? rng_below(&rng, 3 * 4096) : rng_below(&rng, 70));
                        if (!norm && !rounding && i == 0) {
                            s.values.bucket = 64;
                            for (unsigned n : {509u, 256u + (unsigned)(turn % 7)})
                                check_damaged(s, n);
                        }
                    }
    for (int kind = 0; kind < 3; kind++)
        for (unsigned i = 0; i < (thorough ? 60u : 8u); i++) {
            struct setting s = {kind < 2 ? PICI_F32 : PICI_F64, PICI_VALUES_INIT, PICI_CUDA_QUANTIZE_OPTS_INIT};
            s.values.codec = PICI_VALUES_CAST;
            s.values.cast = kind == 0 ? PICI_BF16 : kind == 1 ? PICI_F16 : PICI_F32;
            s.opts.positive = (int)(i & 1);
            s.opts.times = 1 + (int)(i % 3);
            check(s, i < 4 ? i : rng_below(&rng, i % 2 ? 40 : 20000));
        }
    check_refusals();
    static const uint32_t selections[][2] = {{512, 4}, {512, 16}, {64, 64}, {1, 1}, {100, 7}, {4096, 41}, {33, 32}};
    turn = 0;
    for (enum pici_dtype dtype : dtypes)
        for (const uint32_t *s : selections)
            for (unsigned i = 0; i < (thorough ? 12u : 2u); i++, turn++) {
                struct pici_topk_opts o = PICI_TOPK_OPTS_INIT;
                o.bucket = s[0];
                o.k = s[1];
                o.momentum = turn % 4 == 1 ? .9f : 0;
                o.leak = turn % 8 < 4 ? 1 : .5f;
                o.rate = turn % 7 ? 1 : .1f;
                check_topk(dtype, i ? rng_below(&rng, 5000) : rng_below(&rng, 50), o, (unsigned)turn);
            }
    check_topk_refusals();
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
