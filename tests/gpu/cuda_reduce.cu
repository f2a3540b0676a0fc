/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Compare the functions of cuda/reduce.h on dense elements and on messages with the host's, bit for bit. Covers every
 * pair of bytes, every quotient of up to 16 bits, every distance from an aligned address, and messages cut at every
 * byte. On a GPU, or over the emulator of thread blocks. The last line is "N passed, N failed".
 *   cuda_reduce [--quick | --smallest] */
#include "cuda_device.cuh"

#include <limits.h>

#include <algorithm>

#include "cuda/reduce.h"
extern "C" {
#include "cpu/reduce.h"
}

static const enum pici_dtype widths[] = {PICI_U8, PICI_BF16, PICI_F32, PICI_F64};

/* Elements in device memory, so many bytes from an address aligned to 16, and bytes around them which must stay. */
class elements {
  public:
    elements(const std::vector<uint8_t> &from, size_t bytes, size_t skew)
        : skew(skew), bytes(bytes), whole(with(from)), memory(whole.size(), 0, whole.data()), at(memory.at + skew)
    {
    }
    /* Are these there now, and all else as it was? */
    bool are(const std::vector<uint8_t> &want)
    {
        std::copy_n(want.begin(), bytes, whole.begin() + (ptrdiff_t)skew);
        std::vector<uint8_t> now = memory.get(whole.size());
        now.resize(whole.size());
        return now == whole;
    }

  private:
    std::vector<uint8_t> with(const std::vector<uint8_t> &from)
    {
        std::vector<uint8_t> v(skew + bytes + (size_t)rng_below(&rng, 2) * 16, 0xe5);
        std::copy_n(from.begin(), bytes, v.begin() + (ptrdiff_t)skew);
        return v;
    }
    size_t skew, bytes;
    std::vector<uint8_t> whole;
    buffer memory;

  public:
    uint8_t *at;
};

/* ---- values ---- */

/* Of every float's: zeros, the ends of the denormals, of the finite, and of the infinite; NaNs of either kind; and what
 * of these is an integer's. */
static std::vector<uint64_t> specials(enum pici_dtype dtype)
{
    const unsigned bits = 8 * (unsigned)pici_dtype_width(dtype);
    const uint64_t sign = UINT64_C(1) << (bits - 1);
    std::vector<uint64_t> v = {0, 1, 2, 3, sign - 1, sign - 2};
    for (unsigned mantissa : {2, 3, 7, 10, 23, 52})
        if (mantissa < bits - 1) {
            const uint64_t one = UINT64_C(1) << mantissa, inf = sign - one;
            v.insert(v.end(), {one, one - 1, one + 1, inf, inf - 1, inf + 1, inf + one / 2, inf + one / 2 + 1});
        }
    for (size_t i = v.size(); i > 0; i--)
        v.push_back(v[i - 1] | sign);
    return v;
}

static std::vector<uint8_t> elements_of(const std::vector<uint64_t> &values, enum pici_dtype dtype)
{
    std::vector<uint8_t> v(values.size() * pici_dtype_width(dtype) + 1);
    for (size_t i = 0; i < values.size(); i++)
        ref_store(v.data(), i, (unsigned)pici_dtype_width(dtype), values[i]);
    return v;
}

static std::vector<uint8_t> some_elements(uint64_t n, enum pici_dtype dtype)
{
    std::vector<uint8_t> v(n * pici_dtype_width(dtype) + 1);
    pattern_fill(v.data(), n, dtype, (enum pattern)rng_below(&rng, PATTERNS), &rng);
    return v;
}

/* ---- dense elements ---- */

static void check_order(const std::vector<uint8_t> &dst, const std::vector<uint8_t> &src, uint64_t n,
                        enum pici_dtype dtype, size_t skew_dst, size_t skew_src)
{
    const size_t width = pici_dtype_width(dtype), bytes = (size_t)n * width;
    for (int max = 0; max <= 1; max++) {
        std::vector<uint8_t> want = dst;
        pici_reduce(want.data(), src.data(), n, dtype, max);
        elements d(dst, bytes, skew_dst), x(src, bytes, skew_src);
        const cudaError_t e = pici_cuda_order(d.at, x.at, n, dtype, max, stream);
        tally(!e && device_good() && d.are(want) && x.are(src), "%s of %zu %s, %zu and %zu bytes off: %d",
              max ? "greatest" : "least", (size_t)n, pici_dtype_name(dtype), skew_dst, skew_src, (int)e);
    }
}

static void check_divide(const std::vector<uint8_t> &dst, uint64_t n, enum pici_dtype dtype, int by, size_t skew)
{
    std::vector<uint8_t> want = dst;
    pici_divide(want.data(), n, dtype, by);
    elements d(dst, (size_t)n * pici_dtype_width(dtype), skew);
    const cudaError_t e = pici_cuda_divide(d.at, n, dtype, by, stream);
    tally(!e && device_good() && d.are(want), "%zu %s / %d, %zu bytes off: %d", (size_t)n, pici_dtype_name(dtype), by,
          skew, (int)e);
}

static void check_zeros(const std::vector<uint8_t> &src, uint64_t n, enum pici_dtype dtype, size_t skew_dst,
                        size_t skew_src)
{
    const size_t bytes = (size_t)n * pici_dtype_width(dtype);
    for (int quiet = 0; quiet <= 1; quiet++) {
        std::vector<uint8_t> want = src;
        pici_positive_zeros(want.data(), src.data(), n, dtype, quiet);
        elements d(src, bytes, skew_dst), x(src, bytes, skew_src);
        cudaError_t e = pici_cuda_positive_zeros(d.at, x.at, n, dtype, quiet, stream);
        tally(!e && device_good() && d.are(want) && x.are(src), "signs of zeros of %zu %s, %zu and %zu bytes off: %d",
              (size_t)n, pici_dtype_name(dtype), skew_dst, skew_src, (int)e);
        e = pici_cuda_positive_zeros(x.at, x.at, n, dtype, quiet, stream);
        tally(!e && device_good() && x.are(want), "signs of zeros of %zu %s, in place, %zu bytes off: %d", (size_t)n,
              pici_dtype_name(dtype), skew_src, (int)e);
    }
}

/* Arrays of random lengths, or of these; more than one launch takes. */
static void check_count(const std::vector<uint64_t> &lengths, enum pici_dtype dtype)
{
    enum { AROUND = 0x5a };
    const unsigned width = (unsigned)pici_dtype_width(dtype), count = (unsigned)lengths.size();
    std::vector<struct pici_cuda_count> jobs(count);
    const std::vector<uint64_t> zeros(2 * count + 1);
    buffer scratch(zeros.size() * 8, 0, zeros.data());
    std::vector<elements *> held;
    std::vector<uint64_t> want[2]; /* exact, and by value */
    const uint64_t sign = dtype <= PICI_F8E5M2 ? UINT64_C(1) << (8 * width - 1) : 0;
    want[0] = want[1] = std::vector<uint64_t>(count + 1, 0x0101010101010101 * AROUND);
    buffer out(8 * (count + 1));
    cudaMemsetAsync(out.at, AROUND, out.bytes, stream);
    for (unsigned i = 0; i < count; i++) {
        std::vector<uint8_t> src = some_elements(lengths[i], dtype);
        zeros_negate(src.data(), lengths[i], dtype, 300000, &rng);
        elements *e = new elements(src, (size_t)lengths[i] * width, some_skew(dtype));
        held.push_back(e);
        jobs[i] = {e->at, lengths[i], (uint64_t *)out.at + i, (uint64_t *)scratch.at + 2 * i};
        want[0][i] = want[1][i] = 0;
        for (uint64_t k = 0; k < lengths[i]; k++) {
            const uint64_t v = ref_load(src.data(), k, width);
            want[0][i] += v != 0;
            want[1][i] += v != 0 && v != sign;
        }
    }
    for (int again = 0; again <= 2; again++) { /* not added to what was there */
        const int by_value = sign && again == 1;
        const cudaError_t e = pici_cuda_count(jobs.data(), count, dtype, by_value, stream);
        tally(!e && device_good() && memcmp(out.get(out.bytes).data(), want[by_value].data(), out.bytes) == 0,
              "count of %u arrays of %s%s: %d", count, pici_dtype_name(dtype), by_value ? " by value" : "", (int)e);
        tally(memcmp(scratch.get(16 * count).data(), zeros.data(), 16 * count) == 0, "scratch after %u counts", count);
    }
    for (elements *e : held)
        delete e;
}

/* Whatever the alignment: in quads, beside them, or not at all. */
static void check_places(enum pici_dtype dtype)
{
    const size_t width = pici_dtype_width(dtype);
    for (uint64_t n : {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 47, 64, 100, 1031})
        for (size_t skew = 0; skew < 16; skew += width) {
            const std::vector<uint8_t> dst = some_elements(n, dtype), src = some_elements(n, dtype);
            check_order(dst, src, n, dtype, skew, skew);
            check_order(dst, src, n, dtype, skew, (size_t)rng_below(&rng, 16 / width) * width);
            check_divide(dst, n, dtype, 3, skew);
            check_zeros(src, n, dtype, skew, skew);
            check_zeros(src, n, dtype, skew, (size_t)rng_below(&rng, 16 / width) * width);
            check_count({n}, dtype);
        }
    const uint64_t n = 300001 / width; /* several rounds of all threads */
    for (size_t skew : {(size_t)0, width}) {
        const std::vector<uint8_t> dst = some_elements(n, dtype), src = some_elements(n, dtype);
        check_order(dst, src, n, dtype, skew, skew);
        check_divide(dst, n, dtype, 5, skew);
        check_zeros(src, n, dtype, skew, 0);
        check_count({n, 7, n - 100, 0, n}, dtype);
    }
}

static void check_values(enum pici_dtype dtype)
{
    static const int by[] = {1,    2,    3,    4,     6,       7,        17,        100,         255,    4095,
                             4096, 4097, 8192, 65537, 1000003, 16777217, 100000007, INT_MAX - 1, INT_MAX};
    const unsigned width = (unsigned)pici_dtype_width(dtype);
    const std::vector<uint64_t> special = specials(dtype);
    std::vector<uint64_t> a, b, all;
    for (uint64_t x : special)
        for (uint64_t y : special) {
            a.push_back(x);
            b.push_back(y);
        }
    for (unsigned i = 0; i < 65536; i++) {
        a.push_back(width == 1 ? i >> 8 : width == 2 ? i : value_random(&rng, dtype));
        b.push_back(width == 1 ? i & 255 : value_random(&rng, dtype));
    }
    check_order(elements_of(a, dtype), elements_of(b, dtype), a.size(), dtype, 0, 0);
    check_order(elements_of(b, dtype), elements_of(a, dtype), a.size(), dtype, 0, width);
    const std::vector<uint8_t> dividends = elements_of(a, dtype); /* all, of up to 16 bits */
    check_zeros(dividends, a.size(), dtype, 0, 0);
    for (int ranks : by)
        check_divide(dividends, a.size(), dtype, ranks, 0);
    std::vector<uint64_t> lengths;
    for (unsigned i = 0; i < 2 * BATCH + 5; i++)
        lengths.push_back(rng_chance(&rng, 300000) ? rng_below(&rng, 3) : rng_below(&rng, 3000));
    check_count(lengths, dtype);
    check_count({}, dtype);
}

/* ---- messages ---- */

/* Look for so many blocks in a message, which lies at some address, and compare with what pici_inspect finds. */
static void check_look(const std::vector<uint8_t> &message, size_t bytes, unsigned blocks, const char *what)
{
    enum { AROUND = 0x5a };
    struct pici_cuda_heads want = {{0}, 0, bytes < 32 ? bytes : 32};
    std::vector<struct pici_cuda_head> heads(blocks + 1);
    memset(heads.data(), AROUND, sizeof heads[0] * heads.size());
    memcpy(want.prefix, message.data(), (size_t)want.end);
    for (; want.found < blocks; want.found++) {
        struct pici_cuda_head &head = heads[(size_t)want.found];
        struct pici_info info = PICI_INFO_INIT;
        const size_t left = bytes - (size_t)want.end;
        const uint8_t *at = message.data() + want.end;
        head = {want.end, {0}};
        memcpy(head.header, at, left < 48 ? left : 48);
        if (pici_inspect(&info, at, left) || info.block_bytes > left)
            break;
        want.end += info.block_bytes;
    }
    elements in(message, bytes, (size_t)rng_below(&rng, 16));
    buffer out(sizeof want), places(sizeof heads[0] * heads.size());
    cudaMemsetAsync(places.at, AROUND, places.bytes, stream);
    const cudaError_t e = pici_cuda_look((struct pici_cuda_heads *)out.at, (struct pici_cuda_head *)places.at, in.at,
                                         bytes, blocks, stream);
    struct pici_cuda_heads got;
    const bool good = !e && device_good();
    memcpy(&got, out.get(sizeof got).data(), sizeof got);
    tally(good && memcmp(&got, &want, sizeof got) == 0 &&
              memcmp(places.get(places.bytes).data(), heads.data(), places.bytes) == 0,
          "look for %u blocks in %zu bytes, %s: %zu to %zu, not %zu to %zu", blocks, bytes, what, (size_t)got.found,
          (size_t)got.end, (size_t)want.found, (size_t)want.end);
}

/* A message of so many blocks, of up to n elements, which need not be of one dtype here. at: where each begins, then
 * where the message ends. */
static std::vector<uint8_t> make_message(unsigned blocks, uint64_t n, std::vector<size_t> *at)
{
    std::vector<uint8_t> m(32);
    for (uint8_t &byte : m)
        byte = (uint8_t)rng_next(&rng);
    at->assign(1, m.size());
    for (unsigned i = 0; i < blocks; i++) {
        const enum pici_dtype dtype = (enum pici_dtype)(PICI_F32 + rng_below(&rng, PICI_U64));
        const uint64_t count = rng_below(&rng, n + 1);
        const std::vector<uint8_t> src = some_elements(count, dtype);
        size_t len;
        uint8_t *block = ref_encode(&len, src.data(), count, dtype, (unsigned)rng_below(&rng, 4), i % 3 == 0);
        m.insert(m.end(), block, block + len);
        free(block);
        at->push_back(m.size());
    }
    return m;
}

static void check_messages(void)
{
    std::vector<size_t> at;
    for (unsigned blocks = 0; blocks < 40; blocks++) {
        std::vector<uint8_t> m = make_message(blocks, blocks % 4 ? 3000 : 50, &at);
        for (unsigned wanted : {0u, blocks / 2, blocks, blocks + 1})
            check_look(m, m.size(), wanted, "whole");
        m.resize(m.size() + 50);
        check_look(m, m.size(), blocks + 1, "with zeros behind it");
    }
    const std::vector<uint8_t> m = make_message(4, 100, &at);
    for (size_t cut = 0; cut <= m.size(); cut += smallest ? 97 : 1)
        check_look(m, cut, 4, "cut");
    for (unsigned i = 0; i < (thorough ? 20000u : smallest ? 50u : 2000u); i++) {
        std::vector<uint8_t> bad = m;
        const size_t head = at[rng_below(&rng, 4)];
        for (unsigned k = 0; k < 1 + i % 2; k++) {
            uint8_t *byte = &bad[head + rng_below(&rng, 48)];
            *byte = rng_chance(&rng, 300000) ? 255 : (uint8_t)(*byte ^ 1u << rng_below(&rng, 8));
        }
        check_look(bad, bad.size(), 4, "damaged");
    }
    for (uint64_t count : {UINT64_MAX, UINT64_MAX / 4, UINT64_MAX / 4 - 11, UINT64_MAX / 4 - 12, UINT64_C(1) << 62}) {
        std::vector<uint8_t> vast = m; /* a dense block of f32; the length wraps, or nearly */
        static const uint8_t start[8] = {'P', 'I', 'C', 'I', 1, PICI_DENSE, PICI_F32, 0};
        const uint64_t fields[5] = {count, count, 48, 48, 0};
        memcpy(&vast[at[1]], start, sizeof start);
        memcpy(&vast[at[1] + 8], fields, sizeof fields);
        check_look(vast, vast.size(), 4, "of a vast block");
    }
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!device_option(argv[i], argv[i + 1], &i))
            return 2;
    if (!device_begin())
        return 77;
    for (enum pici_dtype dtype : widths)
        check_places(dtype);
    for (unsigned dtype = PICI_F32; dtype <= PICI_U64; dtype++)
        check_values((enum pici_dtype)dtype);
    check_messages();
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
