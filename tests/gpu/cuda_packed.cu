/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Packed blocks on a GPU, or over the emulator of thread blocks, compared with formats/ref.c byte for byte. Covers
 * every float dtype, both levels, all kinds of exponents, golden vectors, and damaged blocks. The last line is "N
 * passed, N failed".
 *   cuda_packed [--quick | --smallest] [DIRECTORY]      of the vectors; formats/vectors otherwise */
#include "cuda_blocks.cuh"

enum { FLOATS = 6, MOST = 35 * 4096 };
static bool few; /* --smallest, and --quick over the emulator: a third of the inputs */
static const enum pici_dtype floats[FLOATS] = {PICI_F32, PICI_F64, PICI_F16, PICI_BF16, PICI_F8E4M3, PICI_F8E5M2};

/* What the exponents of values are. */
enum exponents {
    EXP_ANY,      /* any bits */
    EXP_FALLING,  /* half have the highest, a quarter the one below, ... */
    EXP_ONE,      /* all the same */
    EXP_TWO,      /* two that are far apart */
    EXP_MIXED,    /* zeros, denormals, infinities, NaNs, and values */
    EXP_OUTLIERS, /* as EXP_FALLING, but one in 50 has any */
    EXP_KINDS
};

/* Run `use` on n elements. zero: how many in a million are zero; negative: how many of these have a sign. brief: low
 * bytes of mantissas are zero. cleared: every second one of this many first elements is zero. */
template <class USE>
static void with_floats(uint64_t n, enum pici_dtype dtype, enum exponents kind, unsigned zero, unsigned negative,
                        bool brief, unsigned cleared, USE use)
{
    const pici::fmt_kind k = pici::fmt_kind_of((unsigned)dtype);
    const unsigned width = (unsigned)pici_dtype_width(dtype), most = (1u << k.exponent) - 1,
                   top = (unsigned)rng_below(&rng, most + 1);
    std::vector<uint8_t> src((size_t)n * width + 1);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t x = rng_next(&rng), fall = (unsigned)__builtin_ctzll(x | UINT64_C(1) << 40);
        uint64_t exponent = x >> 8, mantissa = rng_next(&rng) & ((UINT64_C(1) << k.mantissa) - 1);
        switch (kind) {
        case EXP_FALLING: exponent = top - fall; break;
        case EXP_ONE: exponent = top; break;
        case EXP_TWO: exponent = x & 1 ? top : top / 2; break;
        case EXP_MIXED: exponent = x % 3 ? 0 : x % 2 ? most : top - fall; break;
        case EXP_OUTLIERS: exponent = x % 50 ? top - fall : x >> 8; break;
        default: break;
        }
        if (kind == EXP_MIXED && rng_chance(&rng, 500000))
            mantissa = 0;
        if (brief && k.low)
            mantissa = mantissa >> 8 * (k.low - 1) << 8 * (k.low - 1);
        uint64_t value = (x >> 63) << (8 * width - 1) | (exponent & most) << k.mantissa | mantissa;
        if (rng_chance(&rng, zero) || (i % 2 == 0 && i / 2 < cleared))
            value = 0;
        ref_store(src.data(), i, width, value);
    }
    zeros_negate(src.data(), n, dtype, negative, &rng);
    use(src.data());
}

static void check(uint64_t n, enum pici_dtype dtype, enum exponents kind, unsigned zero, unsigned negative, bool brief,
                  unsigned cleared = 0)
{
    with_floats(n, dtype, kind, zero, negative, brief, cleared, [&](const uint8_t *src) {
        const unsigned levels = 1 + (unsigned)rng_below(&rng, 2);
        size_t len;
        uint8_t *block = ref_encode_packed(&len, src, n, (unsigned)dtype, 0, REF_ZEROS_EXACT, levels);
        char what[64];
        snprintf(what, sizeof what, "exponents %d, %u zeros, %u levels", (int)kind, zero, levels);
        check_block(src, n, dtype, PICI_PACKED, 0, block, len, what, levels == 1);
        free(block);
    });
}

/* What pici_compress makes with these options, in hybrid, packed or AUTO: the pack option makes it packed where that is
 * shorter. less: how many bytes too few there are for the block. */
static void check_option(const uint8_t *src, uint64_t n, enum pici_dtype dtype, enum pici_format format,
                         const struct pici_opts &opts, size_t less)
{
    const size_t cap = pici_bound(PICI_PACKED, dtype, n) + 64, space = pici_cuda_workspace(dtype, n),
                 bytes = (size_t)n * pici_dtype_width(dtype);
    std::vector<uint8_t> want(cap);
    size_t len;
    if (pici_compress(want.data(), cap, &len, src, n, dtype, format, &opts))
        abort();
    const size_t room = len - (len > 48 + less ? less : 0);
    const enum pici_status expected = pici_compress(want.data(), room, &len, src, n, dtype, format, &opts);
    buffer in(bytes, some_skew(dtype), src), out(room), workspace(space);
    result_buffer result;
    set_way((unsigned)rng_below(&rng, ways(PICI_HYBRID)));
    const enum pici_status s =
        pici_compress_opts_cuda(out.at, room, result.to(), in.at, n, dtype, format, &opts, workspace.at, space, stream);
    set_way(0);
    const struct pici_cuda_result r = result.read();
    tally((s ? s : r.status) == expected &&
              (expected || (r.len == len && memcmp(out.get(len).data(), want.data(), len) == 0)),
          "%s to %s, pack %d, zeros %d, n=%zu, %zu too few: %d, %d, not %d; %zu bytes, not %zu", pici_dtype_name(dtype),
          pici_format_name(format), (int)opts.pack, (int)opts.zeros, (size_t)n, less, s, r.status, expected,
          (size_t)r.len, len);
}

static void check_options(unsigned times)
{
    static const unsigned zeros[] = {0, 500000, 900000, 990000};
    struct pici_opts opts = PICI_OPTS_INIT;
    for (unsigned i = 0; i < times; i++) {
        const enum pici_dtype dtype = floats[i % FLOATS];
        const uint64_t n = i % 8 == 7 ? 33 * 4096 + 5 : rng_below(&rng, 5 * 4096);
        with_floats(n, dtype, i % 3 == 0 ? EXP_ANY : EXP_FALLING, zeros[rng_below(&rng, 4)], i % 2 ? 400000 : 0, false,
                    0, [&](const uint8_t *src) {
                        opts.pack = i % 5 == 0 ? PICI_PACK_NONE : i % 5 == 1 ? PICI_PACK_FAST : PICI_PACK_PLANES;
                        opts.zeros = i % 4 == 1 ? PICI_ZEROS_BY_VALUE : PICI_ZEROS_EXACT;
                        check_option(src, n, dtype,
                                     i % 5 == 4   ? PICI_PACKED
                                     : i % 2 == 0 ? PICI_HYBRID
                                                  : PICI_AUTO,
                                     opts, i % 6 == 5 ? 8 : 0);
                    });
    }
    opts = PICI_OPTS_INIT;
    opts.pack = PICI_PACK_PLANES;
    buffer src(400), out(2000), workspace(pici_cuda_workspace(PICI_F32, 100));
    result_buffer result;
    const auto call = [&](enum pici_dtype dtype, enum pici_format format) {
        return pici_compress_opts_cuda(out.at, 2000, result.to(), src.at, 100, dtype, format, &opts, workspace.at,
                                       workspace.bytes, stream);
    };
    cudaMemsetAsync(src.at, 0, 400, stream);
    tally(call(PICI_I32, PICI_PACKED) == PICI_E_UNSUPPORTED, "packed of integers");
    for (unsigned i = 0; i < 2; i++) {
        const enum pici_status s = call(i ? PICI_F32 : PICI_I32, i ? PICI_BITMAP : PICI_HYBRID);
        const struct pici_cuda_result r = result.read();
        tally(!s && !r.status && out.get((size_t)r.len)[5] == (i ? PICI_BITMAP : PICI_HYBRID),
              "integers and other formats do not pack: %d, %d", s, r.status);
    }
    opts.pack = (enum pici_pack)2;
    tally(call(PICI_F32, PICI_HYBRID) == PICI_E_ARG, "an unknown way to pack");
}

/* ---- vectors, and any bytes at all ---- */

static void damage(const uint8_t *block, size_t len, const char *what, unsigned times)
{
    std::vector<uint8_t> copy(len);
    for (unsigned i = 0; i < times; i++) {
        memcpy(copy.data(), block, len);
        /* mostly near the beginning of a record */
        const size_t at = i % 4 == 0 || len < 49 ? rng_below(&rng, len)
                          : i % 4 == 1           ? 48 + rng_below(&rng, len - 48)
                                                 : 48 + rng_below(&rng, len - 48 < 60 ? len - 48 : 60);
        if (rng_chance(&rng, 600000))
            copy[at] ^= (uint8_t)(1u << rng_below(&rng, 8));
        else
            copy[at] = rng_chance(&rng, 500000) ? 0 : 255;
        check_hostile(copy.data(), len, what);
    }
}

static void try_roundtrip(const struct roundtrip *v, void *context)
{
    unsigned *number = (unsigned *)context;
    if (!thorough && (*number)++ % (smallest ? 27 : few ? 9 : 3))
        return;
    if (v->earlier)
        check_hostile(v->block, v->len, v->name);
    else
        check_block(v->dense, v->n, v->dtype, v->format, v->checksum, v->block, v->len, v->name, v->one_level != 0);
    if (v->len < 3000)
        damage(v->block, v->len, v->name, thorough ? 16 : 4);
}

static void try_verdict(const struct verdict *v, void *unused)
{
    (void)unused;
    check_hostile(v->block, v->len, v->name);
}

static void check_damaged(unsigned times)
{
    static const unsigned zeros[] = {0, 500000, 900000, 990000};
    for (unsigned i = 0; i < times; i++) {
        const enum pici_dtype dtype = floats[rng_below(&rng, FLOATS)];
        const uint64_t n = 1 + rng_below(&rng, i % 3 ? 700 : 3 * 4096);
        with_floats(n, dtype, (enum exponents)(i % EXP_KINDS), zeros[rng_below(&rng, 4)], i % 7 == 0 ? 500000 : 0,
                    i % 5 == 0, 0, [&](const uint8_t *src) {
                        size_t len;
                        uint8_t *block =
                            ref_encode_packed(&len, src, n, (unsigned)dtype, i % 8 == 0, REF_ZEROS_EXACT, 1 + i % 2);
                        damage(block, len, "a damaged block", 4);
                        free(block);
                    });
    }
}

int main(int argc, char **argv)
{
    static const unsigned zeros[] = {0, 500000, 900000, 990000};
    static const uint64_t sizes[] = {0,   1,    7,    63,   64,       65,           127,  200, 255,
                                     256, 1000, 4095, 4096, 4096 + 1, 4096 * 2 + 7, 9000, 300};
    const char *directory = "formats/vectors";
    for (int i = 1; i < argc; i++) {
        if (device_option(argv[i], argv[i + 1], &i))
            few = smallest || (!thorough && !on_gpu);
        else
            directory = argv[i];
    }
    if (!device_begin())
        return 77;
    unsigned number = 0, turn = 0;
    tally(blocks_read(directory, "packed.txt", try_roundtrip, &number) > 120 &&
              faults_read(directory, "packed-verify.txt", try_verdict, NULL) > 40,
          "%s: vectors are missing or malformed", directory);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned k = thorough ? 0 : EXP_KINDS - 1; k < EXP_KINDS; k++, turn++)
            if (!few || turn % 2)
                check(sizes[i], floats[turn % FLOATS], (enum exponents)((turn + i) % EXP_KINDS), zeros[turn % 4],
                      turn % 3 == 0 ? 400000 : 0, turn % 5 == 0);
    for (unsigned d = few ? 2 : 0; d < FLOATS; d++) /* full tiles whose values begin at an odd place of a run */
        check(3 * 4096, floats[d], EXP_ONE, 0, 0, false, 601 + 2 * d);
    for (unsigned d = 0; d < FLOATS;
         d += few ? 3 : 1) /* more than a group, and lists of offsets in a run of many tiles */
        for (unsigned z = thorough ? 0 : d % 2 ? 3 : 1; z < 4; z += thorough ? 1 : 4)
            check(z == 3 ? (uint64_t)MOST - 77 : 4096 * 9 + 5, floats[d], z % 2 ? EXP_FALLING : EXP_OUTLIERS, zeros[z],
                  d == 0 ? 400000 : 0, d == 3);
    check_options(thorough ? 240 : few ? 12 : 24);
    check_damaged(thorough ? 600 : few ? 20 : 60);
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
