/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The functions of pici/cuda.h and those of pici/device.cuh, compared with formats/ref.c byte for byte: every width,
 * dtype and format, golden vectors, corrupt blocks. Runs on a GPU; or on a host, over the emulator of thread blocks,
 * with fewer cases. The last line is "N passed, N failed".
 *   cuda_codec [--quick | --smallest] [--share K/N] [DIRECTORY]      of the vectors; formats/vectors otherwise */
#include "cuda_blocks.cuh"

/* Encode elements some of whose zeros have a sign by value: the block is the reference's of those without. Integers
 * have no signs. */
template <class T>
static void check_by_value(const void *of, uint64_t n, enum pici_dtype dtype, enum pici_format format)
{
    static const unsigned ppm[] = {20000, 500000, 1000000};
    const size_t bytes = (size_t)n * sizeof(T), space = pici_cuda_workspace(dtype, n);
    const bool is_float = dtype <= PICI_F8E5M2;
    std::vector<uint8_t> src(bytes + 1);
    memcpy(src.data(), of, bytes);
    if (is_float)
        zeros_clear(src.data(), n, dtype);
    size_t len;
    uint8_t *block = ref_encode(&len, src.data(), n, dtype, (unsigned)format, 0);
    if (is_float)
        zeros_negate(src.data(), n, dtype, ppm[rng_below(&rng, 3)], &rng);
    buffer in(bytes, some_skew(dtype), src.data()), out(len), workspace(space), told(16);
    result_buffer result;
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.zeros = PICI_ZEROS_BY_VALUE;
    const enum pici_status s =
        pici_compress_opts_cuda(out.at, len, result.to(), in.at, n, dtype, format, &opts, workspace.at, space, stream);
    const struct pici_cuda_result r = result.read();
    tally(!s && !r.status && r.len == len && memcmp(out.get(len).data(), block, len) == 0,
          "by value: %s %s n=%zu: %d, %d, length %zu, not %zu", pici_dtype_name(dtype), pici_format_name(format),
          (size_t)n, s, r.status, (size_t)r.len, len);
    if (thorough || n < 9000 || (format == PICI_HYBRID && n < 33 * 4096)) {
        const unsigned threads = 32 << rng_below(&rng, 3);
        buffer made(len);
        const blockwide b = {made.at,         len, len,  n,    in.at, NULL, (uint64_t *)told.at, (unsigned)format,
                             (unsigned)dtype, 0,   true, false};
        launch_blockwide(blockwide_compress<T>, threads, pici::MAKE_BYTES<T>(format, threads), b);
        tally(device_good() && first_word(told) == len && memcmp(made.get(len).data(), block, len) == 0,
              "block_compress by value %s %s n=%zu", pici_dtype_name(dtype), pici_format_name(format), (size_t)n);
    }
    free(block);
}

static void check_zeros(const void *src, uint64_t n, enum pici_dtype dtype, enum pici_format format)
{
    switch (pici_dtype_width(dtype)) {
    case 1: check_by_value<uint8_t>(src, n, dtype, format); break;
    case 2: check_by_value<uint16_t>(src, n, dtype, format); break;
    case 4: check_by_value<uint32_t>(src, n, dtype, format); break;
    default: check_by_value<uint64_t>(src, n, dtype, format);
    }
}

/* PICI_AUTO makes the shortest block: `block`. */
static void check_auto(const void *src, uint64_t n, enum pici_dtype dtype, const uint8_t *block, size_t len,
                       const char *what)
{
    const size_t bytes = (size_t)n * pici_dtype_width(dtype), space = pici_cuda_workspace(dtype, n);
    std::vector<uint8_t> before(bytes + 1), flipped(bytes + 1);
    pattern_fill(before.data(), n, dtype, PATTERN_50, &rng);
    for (size_t i = 0; i < bytes; i++)
        flipped[i] = ((const uint8_t *)src)[i] ^ before[i];
    buffer in(bytes, some_skew(dtype), src), base(bytes, some_skew(dtype), before.data()),
        changed(bytes, some_skew(dtype), flipped.data()), workspace(space);
    result_buffer result;
#ifdef PICI_DEVICE_HW
    static unsigned inputs;
    emu::watch_races(thorough || inputs++ % 4 == 0);
#endif
    for (unsigned i = 0; i < 4; i++) {
        const size_t room = i < 2 ? len : len - 1 - rng_below(&rng, len > 48 ? len - 48 : 1);
        buffer out(room);
        set_way((unsigned)rng_below(&rng, ways(PICI_HYBRID)));
        const enum pici_status s = i % 2 ? pici_diff_cuda(out.at, room, result.to(), base.at, changed.at, n, dtype,
                                                          PICI_AUTO, workspace.at, space, stream)
                                         : pici_compress_cuda(out.at, room, result.to(), in.at, n, dtype, PICI_AUTO,
                                                              workspace.at, space, stream);
        set_way(0);
        const struct pici_cuda_result r = result.read();
        const bool good = i < 2 ? !s && !r.status && r.len == len && memcmp(out.get(len).data(), block, len) == 0
                                : s == PICI_E_SPACE || (!s && r.status == PICI_E_SPACE && r.len == 0);
        tally(good, "auto %s %s %s n=%zu into %zu bytes: %d, %d, length %zu, not %zu in %s", what,
              i % 2 ? "diff" : "compress", pici_dtype_name(dtype), (size_t)n, room, s, s ? 0 : r.status,
              s ? (size_t)0 : (size_t)r.len, len, pici_format_name((enum pici_format)block[5]));
    }
}

/* Every format of one input. */
static void check_formats(uint64_t n, enum pici_dtype dtype, enum pattern pattern)
{
    if (!is_own())
        return;
    void *src = test_alloc((size_t)n * pici_dtype_width(dtype) + 1);
    pattern_fill(src, n, dtype, pattern, &rng);
    std::vector<uint8_t> shortest;
    for (int format = PICI_DENSE; format <= PICI_HYBRID; format++) {
        size_t len;
        uint8_t *block = ref_encode(&len, src, n, dtype, (unsigned)format, 0);
        check_block(src, n, dtype, (enum pici_format)format, 0, block, len, pattern_name(pattern));
        check_zeros(src, n, dtype, (enum pici_format)format);
        if (shortest.empty() || len < shortest.size())
            shortest.assign(block, block + len);
        free(block);
    }
    check_auto(src, n, dtype, shortest.data(), shortest.size(), pattern_name(pattern));
    free(src);
}

/* Hybrid only: n elements in which the tiles of a group have different containers. kinds[] has for each the number
 * of nonzeros; with RUN_AND, a run of 256 besides. */
static void check_containers(uint64_t n, enum pici_dtype dtype)
{
    enum { RUN_AND = 10000 };
    static const unsigned kinds[] = {
        0,   1,   2,    31,   32,   33,   495,  496,  497,  1,    RUN_AND,       RUN_AND + 100,
        512, 513, 2000, 3900, 4032, 4064, 4079, 4088, 4095, 4096, RUN_AND + 239, RUN_AND + 300};
    const size_t width = pici_dtype_width(dtype);
    std::vector<uint8_t> src((size_t)n * width + 1);
    for (uint64_t t = 0; t * 4096 < n; t++) {
        const unsigned kind = kinds[rng_below(&rng, sizeof kinds / sizeof *kinds)];
        const uint64_t exist = n - t * 4096 < 4096 ? n - t * 4096 : 4096;
        const unsigned run = kind >= RUN_AND ? (unsigned)rng_below(&rng, 16) : 16, some = kind % RUN_AND;
        for (uint64_t i = 0, left = some; i < exist; i++)
            if (i / 256 == run || rng_below(&rng, exist - i) < left) {
                left -= i / 256 != run && left;
                ref_store(src.data(), t * 4096 + i, (unsigned)width, value_random(&rng, dtype));
            }
    }
    size_t len;
    uint8_t *block = ref_encode(&len, src.data(), n, dtype, PICI_HYBRID, 0);
    check_block(src.data(), n, dtype, PICI_HYBRID, 0, block, len, "containers");
    check_zeros(src.data(), n, dtype, PICI_HYBRID);
    free(block);
}

/* ---- any bytes at all ---- */

static void try_roundtrip(const struct roundtrip *v, void *context)
{
    unsigned *number = (unsigned *)context;
    if (!thorough && (*number)++ % (smallest ? 40 : 3)) /* the others still have all sizes, dtypes and formats */
        return;
    if (!is_own())
        return;
    if (v->earlier)
        check_hostile(v->block, v->len, v->name);
    else
        check_block(v->dense, v->n, v->dtype, v->format, v->checksum, v->block, v->len, v->name);
    if (v->len > 1200)
        return;
    std::vector<uint8_t> copy(v->len);
    for (int i = 0; i < 4; i++) {
        memcpy(copy.data(), v->block, v->len);
        copy[rng_below(&rng, i % 2 || v->len < 49 ? v->len : v->len / 2 + 24)] ^= (uint8_t)(1u << rng_below(&rng, 8));
        check_hostile(copy.data(), v->len, v->name);
    }
}

static void try_verdict(const struct verdict *v, void *unused)
{
    (void)unused;
    check_hostile(v->block, v->len, v->name);
}

/* Valid blocks of several tiles with some bytes changed, mostly in words, entries and positions. */
static void check_damaged(unsigned times)
{
    static const enum pici_dtype dtypes[] = {PICI_U8, PICI_BF16, PICI_F32, PICI_F64};
    for (unsigned i = 0; i < times; i++) {
        const enum pici_dtype dtype = dtypes[rng_below(&rng, 4)];
        const uint64_t n = 1 + rng_below(&rng, 3 * 4096);
        void *src = test_alloc((size_t)n * pici_dtype_width(dtype));
        size_t len;
        pattern_fill(src, n, dtype, i % 2 ? PATTERN_3 : PATTERN_RUNS, &rng);
        const enum pici_format format = i % 5 < 2 ? PICI_BITMAP : i % 5 == 2 ? PICI_COO : PICI_HYBRID;
        uint8_t *block = ref_encode(&len, src, n, dtype, format, i % 8 == 0);
        /* in hybrid each record has metadata, then values */
        const uint64_t values = format == PICI_HYBRID ? 48 + (len - 48) / 4 : ref_get(block + 32, 8);
        for (unsigned k = 0; k < 1 + i % 3; k++) {
            const size_t at =
                rng_chance(&rng, 800000) && values > 48 ? 48 + rng_below(&rng, values - 48) : rng_below(&rng, len);
            if (rng_chance(&rng, 500000))
                block[at] ^= (uint8_t)(1u << rng_below(&rng, 8));
            else
                block[at] = rng_chance(&rng, 500000) ? 0 : 255;
        }
        check_hostile(block, len, "a damaged block");
        free(block);
        free(src);
    }
}

/* Hybrid with directory entries of 64 bits: 2^32 zeros and a one; then with some faults near its end. */
static void check_wide_index(void)
{
    const uint64_t n = (UINT64_C(1) << 32) + 1, groups = n / (32 * 4096) + 1, body = (48 + 8 * groups + 15) / 16 * 16;
    const size_t len = (size_t)body + 8;
    static const uint8_t head[8] = {'P', 'I', 'C', 'I', 1, PICI_HYBRID, PICI_U8, 1};
    static const uint8_t record[8] = {1, 0, 0, 0, 0xb0, 0, 7, 0}; /* one tile, raw, of one element */
    const uint64_t fields[4] = {n, 1, 48, len - 1};
    std::vector<uint8_t> block(len);
    memcpy(block.data(), head, sizeof head);
    memcpy(&block[8], fields, sizeof fields);
    memcpy(&block[body], record, sizeof record);
    for (unsigned i = 0; i < 4; i++) {
        const size_t at = i == 1 ? 48 + 8 * (size_t)(groups - 1) + 4 : i == 2 ? (size_t)body + 4 : (size_t)body + 6;
        std::vector<uint8_t> damaged = block;
        damaged[at] ^= (uint8_t)(i ? 1 + i : 0);
        if (i == 3)
            damaged[at] = 0;
        struct pici_fault want = PICI_FAULT_INIT;
        const enum pici_status status = pici_verify_at(damaged.data(), len, &want);
        buffer in(len, 0, damaged.data()), workspace(PICI_CUDA_READ_WORKSPACE);
        result_buffer result;
        pici_verify_cuda(in.at, len, NULL, result.to(), workspace.at, workspace.bytes, stream);
        const struct pici_cuda_result r = result.read();
        const char *rule = pici_cuda_rule(r.rule);
        tally((i == 0) == (status == PICI_OK) && r.status == (int)status && r.offset == want.offset &&
                  r.tile == want.tile && strcmp(rule ? rule : "-", want.rule ? want.rule : "-") == 0,
              "verify 2^32 elements, fault %u: %d %s at %zu tile %zu, not %d %s at %zu tile %zu", i, r.status,
              rule ? rule : "-", (size_t)r.offset, (size_t)r.tile, (int)status, want.rule ? want.rule : "-",
              (size_t)want.offset, (size_t)want.tile);
    }
}

/* ---- calls ---- */

/* diff: encode deltas and apply them. Otherwise compress, ignoring the bases, and decompress. */
static void check_batch(enum pici_dtype dtype, enum pici_format format, bool diff)
{
    enum { JOBS = 37 };
    std::vector<struct pici_cuda_encode> make(JOBS);
    std::vector<struct pici_cuda_decode> read(JOBS);
    std::vector<uint8_t> dense[JOBS], expected[JOBS];
    std::vector<buffer *> held;
    const unsigned each = 6;
    size_t space = 0;
    for (unsigned i = 0; i < JOBS; i++) {
        const uint64_t more = format == PICI_HYBRID && i == 14 ? 150000 : 30000; /* two groups */
        const uint64_t n =
            i % 5 == 0 ? rng_below(&rng, 3) : rng_below(&rng, i % 7 ? 3000 : more) + (more > 30000) * 110000;
        const size_t bytes = (size_t)n * pici_dtype_width(dtype), bound = pici_bound(format, dtype, n);
        size_t len;
        dense[i].resize(bytes + 1);
        pattern_fill(dense[i].data(), n, dtype, PATTERN_12, &rng);
        uint8_t *block = ref_encode(&len, dense[i].data(), n, dtype, format, 0);
        expected[i].assign(block, block + len);
        free(block);
        std::vector<uint8_t> before(bytes + 1);
        pattern_fill(before.data(), n, dtype, PATTERN_50, &rng);
        for (size_t k = 0; k < bytes && diff; k++)
            dense[i][k] ^= before[k];
        buffer *src = new buffer(bytes, 0, dense[i].data()), *out = new buffer(bound),
               *base = new buffer(bytes, 0, before.data()), *back = new buffer(bytes, 0, before.data());
        result_buffer *result = new result_buffer, *result2 = new result_buffer;
        held.insert(held.end(), {src, out, back, result, result2, base});
        make[i] = {out->at, bound, result->to(), src->at, n, base->at};
        read[i] = {back->at, n, out->at, bound, &result->to()->len, result2->to()};
        space += align16(pici_cuda_workspace(dtype, n));
    }
    buffer workspace(space);
    const auto encode = diff ? pici_diff_batch_cuda : pici_compress_batch_cuda;
    const auto decode = diff ? pici_apply_batch_cuda : pici_decompress_batch_cuda;
    set_way(diff ? 0 : ways(format) - 1);
    enum pici_status s = encode(make.data(), JOBS, dtype, format, workspace.at, space, stream);
    set_way(0);
    /* the lengths stay on the device */
    const enum pici_status s2 = decode(read.data(), JOBS, dtype, workspace.at, space, stream);
    device_good();
    for (unsigned i = 0; i < JOBS; i++) {
        struct pici_cuda_result r[2] = {};
        cudaMemcpyAsync(&r[0], make[i].result, sizeof r[0], cudaMemcpyDeviceToHost, stream);
        cudaMemcpyAsync(&r[1], read[i].result, sizeof r[1], cudaMemcpyDeviceToHost, stream);
        device_good();
        tally(!s && !s2 && !r[0].status && !r[1].status && r[0].len == expected[i].size() &&
                  memcmp(held[each * i + 1]->get(expected[i].size()).data(), expected[i].data(), expected[i].size()) ==
                      0 &&
                  memcmp(held[each * i + 2]->get(held[each * i + 2]->bytes).data(), dense[i].data(),
                         held[each * i + 2]->bytes) == 0,
              "batch %s%s %s, job %u: %d %d, %d %d", diff ? "of deltas " : "", pici_dtype_name(dtype),
              pici_format_name(format), i, s, s2, r[0].status, r[1].status);
    }
    s = pici_verify_batch_cuda(read.data(), JOBS, workspace.at, space, stream);
    device_good();
    for (unsigned i = 0; i < JOBS; i++) {
        struct pici_cuda_result r;
        cudaMemcpyAsync(&r, read[i].result, sizeof r, cudaMemcpyDeviceToHost, stream);
        device_good();
        tally(!s && !r.status && r.len == expected[i].size(), "verify in a batch, job %u: %d", i, r.status);
    }
    s = encode(make.data(), JOBS, dtype, format, workspace.at, space - 16, stream);
    tally(s == PICI_E_ARG, "batch with too small a workspace: %d", s);
    for (buffer *b : held)
        delete b;
}

static void check_arguments(void)
{
    enum { N = 100 };
    const size_t cap = pici_bound(PICI_BITMAP, PICI_F32, N), space = pici_cuda_workspace(PICI_F32, N);
    std::vector<uint8_t> zero(4 * N);
    buffer src(4 * N, 0, zero.data()), out(cap + 16), workspace(space + 16), dst(4 * N), at(16);
    result_buffer result;
    uint64_t *length = (uint64_t *)at.at;
    struct pici_cuda_result *to = result.to();
#define COMPRESS(b, c, r, s, n, t, f, w, ws) pici_compress_cuda(b, c, r, s, n, t, f, w, ws, stream)
#define REFUSES(what, call) tally((call) == what, "%s", #call)
    REFUSES(PICI_E_ARG, COMPRESS(NULL, cap, to, src.at, N, PICI_F32, PICI_BITMAP, workspace.at, space));
    REFUSES(PICI_E_ARG, COMPRESS(out.at + 8, cap, to, src.at, N, PICI_F32, PICI_BITMAP, workspace.at, space));
    REFUSES(PICI_E_ARG, COMPRESS(out.at, cap, NULL, src.at, N, PICI_F32, PICI_BITMAP, workspace.at, space));
    REFUSES(PICI_E_ARG, COMPRESS(out.at, cap, to, NULL, N, PICI_F32, PICI_BITMAP, workspace.at, space));
    REFUSES(PICI_E_ARG, COMPRESS(out.at, cap, to, src.at + 2, N - 1, PICI_F32, PICI_BITMAP, workspace.at, space));
    REFUSES(PICI_E_ARG, COMPRESS(out.at, cap, to, src.at, N, (enum pici_dtype)15, PICI_BITMAP, workspace.at, space));
    REFUSES(PICI_E_ARG, COMPRESS(out.at, cap, to, src.at, N, PICI_F32, (enum pici_format)5, workspace.at, space));
    REFUSES(PICI_E_ARG, COMPRESS(out.at, cap, to, src.at, N, PICI_F32, PICI_BITMAP, NULL, space));
    REFUSES(PICI_E_ARG, COMPRESS(out.at, cap, to, src.at, N, PICI_F32, PICI_BITMAP, workspace.at + 8, space));
    REFUSES(PICI_E_ARG, COMPRESS(out.at, cap, to, src.at, N, PICI_F32, PICI_BITMAP, workspace.at, space - 1));
    REFUSES(PICI_E_ARG, COMPRESS(out.at, cap, to, src.at, UINT64_MAX / 2, PICI_F32, PICI_BITMAP, workspace.at, space));
    REFUSES(PICI_E_ARG, COMPRESS(out.at, cap, to, out.at + 16, 4, PICI_F32, PICI_BITMAP, workspace.at, space));
    REFUSES(PICI_E_SPACE, COMPRESS(out.at, 47, to, src.at, N, PICI_F32, PICI_AUTO, workspace.at, space));
    /* the workspace overlaps the block, the elements, the result */
    REFUSES(PICI_E_ARG, COMPRESS(out.at, cap, to, src.at, N, PICI_F32, PICI_BITMAP, out.at + 48, space));
    REFUSES(PICI_E_ARG, COMPRESS(workspace.at, cap, to, src.at, N, PICI_F32, PICI_DENSE, workspace.at, space));
    REFUSES(PICI_E_ARG, COMPRESS(out.at, cap, to, workspace.at + 16, 4, PICI_F32, PICI_COO, workspace.at, space));
    REFUSES(PICI_E_ARG, COMPRESS(out.at, cap, (struct pici_cuda_result *)(workspace.at + space - 8), src.at, N,
                                 PICI_F32, PICI_HYBRID, workspace.at, space));
    struct pici_opts opts = PICI_OPTS_INIT;
#define OPTS()                                                                                                         \
    pici_compress_opts_cuda(out.at, cap, to, src.at, N, PICI_F32, PICI_BITMAP, &opts, workspace.at, space, stream)
    REFUSES(PICI_OK, OPTS());
    opts.size = offsetof(struct pici_opts, zeros);
    opts.zeros = (enum pici_zeros)77; /* beyond the struct of 0.1.0 */
    REFUSES(PICI_OK, OPTS());
    opts.size--;
    REFUSES(PICI_E_ARG, OPTS());
    opts = PICI_OPTS_INIT;
    opts.zeros = (enum pici_zeros)2;
    REFUSES(PICI_E_ARG, OPTS());
    opts = PICI_OPTS_INIT;
    opts.threads = -1;
    REFUSES(PICI_E_ARG, OPTS());
    opts = PICI_OPTS_INIT;
    opts.checksum = 1;
    REFUSES(PICI_E_UNSUPPORTED, OPTS());
#define DIFF(b, r, base, s, n, w, ws) pici_diff_cuda(b, cap, r, base, s, n, PICI_F32, PICI_BITMAP, w, ws, stream)
    REFUSES(PICI_E_ARG, DIFF(out.at, to, NULL, src.at, N, workspace.at, space));
    REFUSES(PICI_E_ARG, DIFF(out.at, to, src.at, NULL, N, workspace.at, space));
    REFUSES(PICI_E_ARG, DIFF(out.at, to, src.at + 2, src.at, N - 1, workspace.at, space));
    REFUSES(PICI_E_ARG, DIFF(out.at, to, out.at + 16, src.at, 4, workspace.at, space));
    REFUSES(PICI_E_ARG, DIFF(out.at, to, workspace.at + 16, src.at, 4, workspace.at, space));
    REFUSES(PICI_E_ARG, DIFF(out.at, (struct pici_cuda_result *)src.at, src.at, dst.at, N, workspace.at, space));
    REFUSES(PICI_OK, DIFF(out.at, to, NULL, NULL, 0, workspace.at, space));
    REFUSES(PICI_OK, DIFF(out.at, to, src.at, src.at, N, workspace.at, space));
    REFUSES(PICI_E_SPACE, COMPRESS(out.at, 48 + 512 + 15, to, src.at, N, PICI_F32, PICI_BITMAP, workspace.at, space));
    REFUSES(PICI_E_SPACE, COMPRESS(out.at, 63, to, src.at, N, PICI_F32, PICI_HYBRID, workspace.at, space));
    REFUSES(PICI_OK, COMPRESS(out.at, 64, to, src.at, N, PICI_F32, PICI_HYBRID, workspace.at, space));
    REFUSES(PICI_E_SPACE, COMPRESS(out.at, 47, to, src.at, N, PICI_F32, PICI_COO, workspace.at, space));
    REFUSES(PICI_E_SPACE, COMPRESS(out.at, 48 + 4 * N - 1, to, src.at, N, PICI_F32, PICI_DENSE, workspace.at, space));
    REFUSES(PICI_OK, COMPRESS(out.at, cap, to, src.at, N, PICI_F32, PICI_BITMAP, workspace.at, space));
    const struct pici_cuda_result r = result.read();
    tally(!r.status && r.len == 48 + 512 + 16, "compress of zeros: %d, %zu", r.status, (size_t)r.len);
    const size_t len = (size_t)r.len;
    cudaMemcpyAsync(length, &len, sizeof len, cudaMemcpyHostToDevice, stream);
#define READ(d, n, t, b, l, la, r, w, ws) pici_decompress_cuda(d, n, t, b, l, la, r, w, ws, stream)
    REFUSES(PICI_E_ARG, READ(NULL, N, PICI_F32, out.at, len, NULL, to, workspace.at, space));
    REFUSES(PICI_E_ARG, READ(dst.at + 1, N - 1, PICI_F32, out.at, len, NULL, to, workspace.at, space));
    REFUSES(PICI_E_ARG, READ(dst.at, N, PICI_F32, NULL, len, NULL, to, workspace.at, space));
    REFUSES(PICI_E_ARG, READ(dst.at, N, PICI_F32, out.at + 4, len, NULL, to, workspace.at, space));
    REFUSES(PICI_E_ARG, READ(dst.at, N, PICI_F32, out.at, len, (uint64_t *)(at.at + 4), to, workspace.at, space));
    REFUSES(PICI_E_ARG, READ(dst.at, N, PICI_F32, out.at, len, NULL, NULL, workspace.at, space));
    REFUSES(PICI_E_ARG, READ(dst.at, N, PICI_F32, out.at, len, NULL, to, workspace.at, 63));
    REFUSES(PICI_E_ARG, READ(out.at + 16, 16, PICI_F32, out.at, len, NULL, to, workspace.at, space));
    REFUSES(PICI_E_ARG, READ(dst.at, N, PICI_F32, out.at, len, NULL, to, out.at + 16, 64));
    REFUSES(PICI_E_ARG, READ(workspace.at, N, PICI_F32, out.at, len, NULL, to, workspace.at + 32, space - 32));
    REFUSES(PICI_E_ARG, READ(dst.at, N, PICI_F32, out.at, len, (uint64_t *)workspace.at, to, workspace.at, space));
    REFUSES(PICI_E_ARG, READ(dst.at, N, PICI_F32, out.at, len, NULL, (struct pici_cuda_result *)(workspace.at + 32),
                             workspace.at, space));
    REFUSES(PICI_E_ARG, READ(dst.at, N, (enum pici_dtype)0, out.at, len, NULL, to, workspace.at, space));
#define ANSWERS(what, call)                                                                                            \
    tally((call) == PICI_OK && result.read().status == what, "%s: %d", #call, result.read().status)
    ANSWERS(PICI_E_ARG, READ(dst.at, N - 1, PICI_F32, out.at, len, NULL, to, workspace.at, space));
    ANSWERS(PICI_E_ARG, READ(dst.at, N, PICI_I32, out.at, len, NULL, to, workspace.at, space));
    ANSWERS(PICI_E_ARG, READ(dst.at, N, PICI_F32, out.at, len - 1, length, to, workspace.at, space));
    ANSWERS(PICI_OK, READ(dst.at, N, PICI_F32, out.at, len + 1, length, to, workspace.at, space));
    ANSWERS(PICI_E_CORRUPT, READ(dst.at, N, PICI_F32, out.at, len + 1, NULL, to, workspace.at, space));
    ANSWERS(PICI_E_CORRUPT, READ(dst.at, N, PICI_F32, out.at, 47, NULL, to, workspace.at, space));
    ANSWERS(PICI_E_CORRUPT, READ(dst.at, N, PICI_F32, out.at, 0, NULL, to, workspace.at, space));
    REFUSES(PICI_OK, pici_decompress_batch_cuda(NULL, 0, PICI_F32, NULL, 0, stream));
    REFUSES(0, pici_cuda_workspace((enum pici_dtype)0, 1));
    tally(!pici_cuda_rule(0) && !pici_cuda_rule(30) && strcmp(pici_cuda_rule(1), "size") == 0 &&
              strcmp(pici_cuda_rule(24), "total") == 0 && strcmp(pici_cuda_rule(25), "signs") == 0 &&
              strcmp(pici_cuda_rule(26), "version") == 0 && strcmp(pici_cuda_rule(29), "choice") == 0,
          "names of rules");
}

#ifndef PICI_DEVICE_HW
#include "cuda_codec_gpu.cuh"
#endif
#include "cuda_graphs.cuh"

int main(int argc, char **argv)
{
    static const uint64_t sizes[] = {0,    1,    2,    31,   63,   64,   65,    127,   128,   129,   1000, 4031,
                                     4095, 4096, 4097, 4160, 8191, 8192, 12287, 12293, 16384, 20001, 40000};
    static const enum pici_dtype widths[] = {PICI_U8, PICI_BF16, PICI_F32, PICI_F64};
    const char *directory = "formats/vectors";
    for (int i = 1; i < argc; i++) {
        if (!device_option(argv[i], argv[i + 1], &i))
            directory = argv[i];
    }
    if (!device_begin())
        return 77;
    check_arguments();
    unsigned number = 0;
    tally(roundtrips_read(directory, try_roundtrip, &number) > 500 && verdicts_read(directory, try_verdict, NULL) > 140,
          "%s: vectors are missing or malformed", directory);
    for (unsigned w = 0; w < 4; w++)
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes && (!smallest || sizes[i] <= 4097); i++) {
            check_formats(sizes[i], widths[w], (enum pattern)((i + 5 * w) % PATTERNS));
            if (thorough)
                for (unsigned p = 0; p < PATTERNS; p++)
                    check_formats(sizes[i], widths[w], (enum pattern)p);
        }
    for (unsigned dtype = PICI_F32; dtype <= PICI_U64; dtype++)
        for (unsigned p = PATTERN_3; p <= PATTERN_TILES; p += thorough ? 1 : smallest ? 6 : 3)
            check_formats(4096 + 70 + 4096 * (p % 3), (enum pici_dtype)dtype, (enum pattern)p);
    for (unsigned w = 0; w < 4 && !smallest; w++)
        for (unsigned p = thorough ? 0 : PATTERN_TILES; p < PATTERNS; p++) /* many partitions, claimed in any order */
            check_formats(thorough ? 6000001 : 70 * 4096 + 33, widths[w], (enum pattern)p);
    for (unsigned w = 0; w < 4; w++) {
        const uint64_t group = 32 * 4096;
        unsigned turn = w;
        for (uint64_t n : {group - 1, group, group + 1, 2 * group - 300, 3 * group + 5 * 4096 + 700, (uint64_t)10000})
            if ((thorough || turn++ % 2) && (!smallest || n < group) && is_own())
                check_containers(n, widths[w]);
    }
    if (thorough && is_own())
        check_wide_index();
    else if (!thorough)
        printf("skip: 2^32 elements in hybrid, which take the emulator minutes\n");
    check_damaged((thorough ? 2000 : smallest ? 16 : 400) / shares);
    for (int diff = 0; diff <= 1; diff++) {
        if (!is_own()) /* each process counts the turns of all */
            continue;
        check_batch(PICI_F32, PICI_BITMAP, diff);
        check_batch(PICI_BF16, PICI_COO, diff);
        check_batch(PICI_U8, PICI_DENSE, diff);
        check_batch(PICI_F32, PICI_HYBRID, diff);
    }
#ifndef PICI_DEVICE_HW
    if (thorough && is_own()) /* all by one process: together they need more memory than there is */
        for (int format = PICI_DENSE; format <= PICI_HYBRID; format++)
            check_long((enum pici_format)format);
#else
    emu::defer(rng.state);
#endif
    for (enum pici_format format : {PICI_BITMAP, PICI_HYBRID})
        if (!smallest && is_own())
            check_streams(format);
    if (stream)
        cudaStreamDestroy(stream);
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
