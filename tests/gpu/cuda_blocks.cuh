/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What tests of blocks share: encoding and decoding one in all ways, beside formats/ref.c, and reading any bytes at
 * all. To be included once in a program. */
#ifndef PICI_TESTS_CUDA_BLOCKS_CUH
#define PICI_TESTS_CUDA_BLOCKS_CUH

#include "cuda_device.cuh"

/* Change the reference's sums to those of a GPU: on some hosts infinity minus infinity gives a NaN with the other
 * sign. */
static void as_on_gpu(uint8_t *after, const uint8_t *before, const uint8_t *x, uint64_t n, enum pici_dtype dtype)
{
    static const struct {
        enum pici_dtype dtype;
        uint64_t magnitude, inf;
    } kinds[] = {{PICI_F32, 0x7fffffff, 0x7f800000},
                 {PICI_F64, UINT64_C(0x7fffffffffffffff), UINT64_C(0x7ff0000000000000)},
                 {PICI_F16, 0x7fff, 0x7c00},
                 {PICI_BF16, 0x7fff, 0x7f80},
                 {PICI_F8E5M2, 0x7f, 0x7c}};
    const unsigned w = (unsigned)pici_dtype_width(dtype);
    for (const auto &k : kinds)
        for (uint64_t i = 0; k.dtype == dtype && i < n; i++)
            if ((ref_load(before, i, w) & k.magnitude) == k.inf && (ref_load(x, i, w) & k.magnitude) == k.inf &&
                (ref_load(after, i, w) & k.magnitude) > k.inf)
                ref_store(after, i, w, ref_load(after, i, w) & k.magnitude);
}

/* ---- whole blocks by one thread block ---- */

struct blockwide {
    uint8_t *block;
    uint64_t cap, len, n;
    void *dense;
    const void *base; /* compress: the base of a delta, or null */
    uint64_t *out;    /* the length or status that thread 0 got, and whether all threads got the same */
    unsigned format, dtype;
    unsigned shared; /* bytes of shared memory */
    bool by_value;   /* compress */
    bool one_level;  /* compress, packed */
};

/* Report what each thread got. Overwrites the shared memory, which belongs to the caller again: any later use of it
 * fails the test. */
PICI_DEV void answer(const blockwide &b, uint8_t *memory, uint64_t told)
{
    for (unsigned i = pici::hw::thread(); i < b.shared / 4; i += pici::hw::threads())
        pici::hw::put((uint32_t *)memory + i, 0xdeadbeefu);
    if (pici::hw::thread() == 0)
        pici::hw::store(b.out, told);
    pici::hw::atomic_add(b.out + 1, told);
}

template <class T> PICI_KERNEL(1024, 1) blockwide_compress(const blockwide b)
{
    PICI_BLOCK_MEMORY(memory);
    const T *src = (const T *)b.dense, *base = (const T *)b.base;
    uint64_t len = 0;
    if (b.format == PICI_DENSE)
        len = pici::block_compress<PICI_DENSE>(b.block, b.cap, src, b.n, b.dtype, memory, base, b.by_value);
    else if (b.format == PICI_BITMAP)
        len = pici::block_compress<PICI_BITMAP>(b.block, b.cap, src, b.n, b.dtype, memory, base, b.by_value);
    else if (b.format == PICI_COO)
        len = pici::block_compress<PICI_COO>(b.block, b.cap, src, b.n, b.dtype, memory, base, b.by_value);
    else if (b.format == PICI_HYBRID)
        len = pici::block_compress<PICI_HYBRID>(b.block, b.cap, src, b.n, b.dtype, memory, base, b.by_value);
    else
        len =
            pici::block_compress<PICI_PACKED>(b.block, b.cap, src, b.n, b.dtype, memory, base, b.by_value, b.one_level);
    answer(b, memory, len);
}

template <class T> PICI_KERNEL(1024, 1) blockwide_decompress(const blockwide b)
{
    PICI_BLOCK_MEMORY(memory);
    const int status = pici::block_decompress((T *)b.dense, b.n, b.dtype, b.block, b.len, memory);
    answer(b, memory, (uint64_t)status);
}

template <unsigned DTYPE> PICI_KERNEL(1024, 1) blockwide_add(const blockwide b)
{
    PICI_BLOCK_MEMORY(memory);
    typedef typename pici::arith<DTYPE>::element T;
    const int status = pici::block_scatter_add<DTYPE>((T *)b.dense, b.n, b.block, b.len, memory);
    answer(b, memory, (uint64_t)status);
}

template <class T> PICI_KERNEL(1024, 1) blockwide_apply(const blockwide b)
{
    PICI_BLOCK_MEMORY(memory);
    const int status = pici::block_apply((T *)b.dense, b.n, b.dtype, b.block, b.len, memory);
    answer(b, memory, (uint64_t)status);
}

static void launch_blockwide(void (*kernel)(blockwide), unsigned threads, unsigned shared, blockwide b)
{
    b.shared = shared;
    cudaMemsetAsync(b.out, 0, 16, stream);
    tally(launch(kernel, 1, 1, threads, shared, b, stream) == cudaSuccess, "launch with %u bytes of shared memory",
          shared);
}

template <class T>
static void check_blockwide(const void *src, uint64_t n, enum pici_dtype dtype, enum pici_format format,
                            const uint8_t *block, size_t len, const void *before, const void *sum, const void *flipped,
                            bool one_level)
{
    const unsigned threads = 32 << rng_below(&rng, 3);
    const size_t bytes = (size_t)n * sizeof(T), skew = some_skew(dtype);
    buffer dense(bytes, skew, src), made(len), out(16);
    blockwide b = {made.at,         len, len,   n,        dense.at, NULL, (uint64_t *)out.at, (unsigned)format,
                   (unsigned)dtype, 0,   false, one_level};
    launch_blockwide(blockwide_compress<T>, threads, pici::MAKE_BYTES<T>(format, threads), b);
    tally(device_good() && first_word(out) == len && first_word(out, 1) == len * threads,
          "block_compress %s %s n=%zu: length %zu, not %zu", pici_dtype_name(dtype), pici_format_name(format),
          (size_t)n, (size_t)first_word(out), len);
    tally(memcmp(made.get(len).data(), block, len) == 0, "block_compress %s %s n=%zu differs", pici_dtype_name(dtype),
          pici_format_name(format), (size_t)n);
    {
        buffer base(bytes, some_skew(dtype), before), changed(bytes, some_skew(dtype), flipped), delta(len);
        blockwide d = b;
        d.block = delta.at;
        d.dense = changed.at;
        d.base = base.at;
        d.by_value = rng_chance(&rng, 500000); /* no effect on a delta */
        launch_blockwide(blockwide_compress<T>, threads, pici::MAKE_BYTES<T>(format, threads), d);
        tally(device_good() && first_word(out) == len && memcmp(delta.get(len).data(), block, len) == 0,
              "block_compress with a base %s %s n=%zu", pici_dtype_name(dtype), pici_format_name(format), (size_t)n);
    }
    if (len > 48) {
        buffer less(len - 1);
        b.block = less.at;
        b.cap = len - 1;
        launch_blockwide(blockwide_compress<T>, threads, pici::MAKE_BYTES<T>(format, threads), b);
        tally(device_good() && first_word(out) == 0, "block_compress into a byte less");
    }

    made.put(block);
    b.block = made.at;
    cudaMemsetAsync(dense.at, 0x5a, bytes, stream);
    launch_blockwide(blockwide_decompress<T>, threads, pici::READ_BYTES<T>(threads), b);
    tally(device_good() && first_word(out) == 0 && memcmp(dense.get(bytes).data(), src, bytes) == 0,
          "block_decompress %s %s n=%zu", pici_dtype_name(dtype), pici_format_name(format), (size_t)n);
    dense.put(before);
    launch_blockwide(blockwide_apply<T>, threads, pici::READ_BYTES<T>(threads), b);
    tally(device_good() && first_word(out) == 0 && memcmp(dense.get(bytes).data(), flipped, bytes) == 0,
          "block_apply %s %s n=%zu", pici_dtype_name(dtype), pici_format_name(format), (size_t)n);
    if (dtype == PICI_F32 || dtype == PICI_BF16) {
        dense.put(before);
        launch_blockwide(dtype == PICI_F32 ? blockwide_add<PICI_F32> : blockwide_add<PICI_BF16>, threads,
                         pici::READ_BYTES<T>(threads), b);
        tally(device_good() && first_word(out) == 0 && memcmp(dense.get(bytes).data(), sum, bytes) == 0,
              "block_scatter_add %s %s n=%zu", pici_dtype_name(dtype), pici_format_name(format), (size_t)n);
    }
    if (len > 48) { /* a value is missing */
        b.len = len - 1;
        launch_blockwide(blockwide_decompress<T>, threads, pici::READ_BYTES<T>(threads), b);
        tally(device_good() && (int64_t)first_word(out) == PICI_E_CORRUPT, "block_decompress of less");
    }
}

/* ---- one block, both directions ---- */

/* Hybrid blocks of few tiles are encoded in one way where there are many multiprocessors, and in another where there
 * are few. The emulator has one, unless a test sets another number. */
static unsigned ways(enum pici_format format)
{
#ifdef PICI_DEVICE_HW
    return format == PICI_HYBRID ? 2 : 1;
#else
    (void)format;
    return 1;
#endif
}

static void set_way(unsigned way)
{
#ifdef PICI_DEVICE_HW
    emu::multiprocessors(way ? 256 : 1);
#else
    (void)way;
#endif
}

static void check_block(const void *src, uint64_t n, enum pici_dtype dtype, enum pici_format format, int checksum,
                        const uint8_t *block, size_t len, const char *what, bool one_level = false)
{
    const size_t width = pici_dtype_width(dtype), bytes = (size_t)n * width;
    struct pici_opts fast = PICI_OPTS_INIT;
    fast.pack = PICI_PACK_FAST;
    const size_t space = pici_cuda_workspace(dtype, n);
    buffer workspace(space);
    result_buffer result;
    struct pici_cuda_result r;
    enum pici_status s;
    std::vector<uint8_t> before(bytes + 1), after, flipped;
#ifdef PICI_DEVICE_HW
    static unsigned blocks;
    emu::watch_races(thorough || blocks++ % 4 == 0); /* which takes half as long again */
#endif
    pattern_fill(before.data(), n, dtype, rng_chance(&rng, 500000) ? PATTERN_FULL : PATTERN_50, &rng);
    after = flipped = before;
    ref_scatter_add(after.data(), n, block, len);
    as_on_gpu(after.data(), before.data(), (const uint8_t *)src, n, dtype);
    for (size_t i = 0; i < bytes; i++)
        flipped[i] ^= ((const uint8_t *)src)[i];

    for (int diff = 0; diff <= (one_level ? 0 : 1) && !checksum; diff++) {
        const char *const name = diff ? "diff" : "compress";
        buffer base(bytes, some_skew(dtype), before.data()), in(bytes, some_skew(dtype), diff ? flipped.data() : src),
            out(len);
        const auto make = [&](void *to, size_t cap) {
            return diff ? pici_diff_cuda(to, cap, result.to(), base.at, in.at, n, dtype, format, workspace.at, space,
                                         stream)
                   : one_level
                       ? pici_compress_opts_cuda(to, cap, result.to(), in.at, n, dtype, format, &fast, workspace.at,
                                                 space, stream)
                       : pici_compress_cuda(to, cap, result.to(), in.at, n, dtype, format, workspace.at, space, stream);
        };
        for (unsigned way = 0; way < ways(format); way++) {
            set_way(way);
            s = make(out.at, len);
            r = result.read();
            tally(!s && !r.status && r.len == len, "%s %s %s %s n=%zu: %d, %d, length %zu, not %zu", name, what,
                  pici_dtype_name(dtype), pici_format_name(format), (size_t)n, s, r.status, (size_t)r.len, len);
            tally(memcmp(out.get(len).data(), block, len) == 0, "%s %s %s %s n=%zu differs", name, what,
                  pici_dtype_name(dtype), pici_format_name(format), (size_t)n);
        }
        if (len > 48) {
            const size_t less = rng_chance(&rng, 500000) ? len - 1 : 48 + rng_below(&rng, len - 48);
            buffer small(less, 0, block);
            set_way((unsigned)rng_below(&rng, ways(format)));
            s = make(small.at, less);
            r = result.read();
            struct pici_info info = PICI_INFO_INIT;
            tally(s == PICI_E_SPACE || (!s && r.status == PICI_E_SPACE && r.len == 0 &&
                                        pici_inspect(&info, small.get(less).data(), less) != PICI_OK),
                  "%s %s %s %s n=%zu into %zu bytes: %d, %d", name, what, pici_dtype_name(dtype),
                  pici_format_name(format), (size_t)n, less, s, r.status);
        }
        set_way(0);
    }

    buffer in(len, 0, block), at(8, 0, &len);
    const bool from_device = rng_chance(&rng, 500000);
    s = pici_verify_cuda(in.at, len, from_device ? (uint64_t *)at.at : NULL, result.to(), workspace.at,
                         PICI_CUDA_READ_WORKSPACE, stream);
    r = result.read();
    tally(!s && !r.status && r.len == len && !r.rule && !r.offset && !r.tile, "verify %s %s n=%zu: %d %s", what,
          pici_format_name(format), (size_t)n, r.status, r.rule ? pici_cuda_rule(r.rule) : "");
    {
        buffer out(bytes, some_skew(dtype));
        s = pici_decompress_cuda(out.at, n, dtype, in.at, len, from_device ? (uint64_t *)at.at : NULL, result.to(),
                                 workspace.at, PICI_CUDA_READ_WORKSPACE, stream);
        r = result.read();
        tally(!s && !r.status && r.len == len && memcmp(out.get(bytes).data(), src, bytes) == 0,
              "decompress %s %s %s n=%zu: %d", what, pici_dtype_name(dtype), pici_format_name(format), (size_t)n,
              r.status);
    }
    {
        buffer out(bytes, some_skew(dtype), before.data());
        s = pici_scatter_add_cuda(out.at, n, dtype, in.at, len, NULL, result.to(), workspace.at,
                                  PICI_CUDA_READ_WORKSPACE, stream);
        r = result.read();
        const std::vector<uint8_t> got = out.get(bytes);
        uint64_t i = 0;
        while (i < n && memcmp(&got[i * width], &after[i * width], width) == 0)
            i++;
        tally(!s && !r.status && i == n, "scatter-add %s %s %s n=%zu: %d, element %zu: %llx + %llx gave %llx, not %llx",
              what, pici_dtype_name(dtype), pici_format_name(format), (size_t)n, r.status, (size_t)i,
              i < n ? (unsigned long long)ref_load(before.data(), i, (unsigned)width) : 0,
              i < n ? (unsigned long long)ref_load(src, i, (unsigned)width) : 0,
              i < n ? (unsigned long long)ref_load(got.data(), i, (unsigned)width) : 0,
              i < n ? (unsigned long long)ref_load(after.data(), i, (unsigned)width) : 0);
    }
    {
        buffer out(bytes, some_skew(dtype), before.data());
        for (int again = 0; again <= 1; again++) {
            s = pici_apply_cuda(out.at, n, dtype, in.at, len, from_device ? (uint64_t *)at.at : NULL, result.to(),
                                workspace.at, PICI_CUDA_READ_WORKSPACE, stream);
            r = result.read();
            tally(!s && !r.status && r.len == len &&
                      memcmp(out.get(bytes).data(), (again ? before : flipped).data(), bytes) == 0,
                  "apply %s%s %s %s n=%zu: %d", again ? "again " : "", what, pici_dtype_name(dtype),
                  pici_format_name(format), (size_t)n, r.status);
        }
    }
    if (!checksum && (thorough || n < 9000 || (format == PICI_HYBRID && n < 33 * 4096))) { /* more than a group */
        if (width == 1)
            check_blockwide<uint8_t>(src, n, dtype, format, block, len, before.data(), after.data(), flipped.data(),
                                     one_level);
        else if (width == 2)
            check_blockwide<uint16_t>(src, n, dtype, format, block, len, before.data(), after.data(), flipped.data(),
                                      one_level);
        else if (width == 4)
            check_blockwide<uint32_t>(src, n, dtype, format, block, len, before.data(), after.data(), flipped.data(),
                                      one_level);
        else
            check_blockwide<uint64_t>(src, n, dtype, format, block, len, before.data(), after.data(), flipped.data(),
                                      one_level);
    }
}

/* Verify, decode and add give the status of the reference; verify also gives its fault. */
static void check_hostile(const uint8_t *block, size_t len, const char *what)
{
    enum { ROOM = 3 * 4096 + 5 };
    struct ref_fault want;
#ifdef PICI_DEVICE_HW
    /* positions of an invalid coo block may repeat: several threads then add to an element, of no meaning */
    emu::watch_races(len < 6 || block[5] == PICI_BITMAP || block[5] == PICI_HYBRID || block[5] == PICI_PACKED);
#endif
    struct ref_header h;
    const int header = ref_header(&h, block, len, NULL), status = ref_verify(block, len, &want);
    const bool good = !header && h.block_bytes == len, fits = good && h.count <= ROOM;
    const uint64_t n = fits ? h.count : 5;
    const enum pici_dtype dtype = good ? (enum pici_dtype)h.dtype : PICI_U8;
    const size_t bytes = (size_t)n * pici_dtype_width(dtype);
    buffer in(len, 0, block), workspace(PICI_CUDA_READ_WORKSPACE), out(bytes, some_skew(dtype));
    /* readers but verify do not check the rule "choice" */
    std::vector<uint8_t> dense(bytes + 1);
    const int read_status = fits ? ref_decode_any(dense.data(), n, block, len, 0) : status;
    result_buffer result;
    pici_verify_cuda(in.at, len, NULL, result.to(), workspace.at, workspace.bytes, stream);
    struct pici_cuda_result r = result.read();
    const char *rule = pici_cuda_rule(r.rule);
    tally(r.status == (int)want.status && r.offset == want.offset && r.tile == want.tile &&
              strcmp(rule ? rule : "-", want.rule ? want.rule : "-") == 0 && r.len == (status ? 0 : len),
          "verify %s: %d %s at %zu tile %zu, not %d %s at %zu tile %zu", what, r.status, rule ? rule : "-",
          (size_t)r.offset, (size_t)r.tile, (int)want.status, want.rule ? want.rule : "-", (size_t)want.offset,
          (size_t)want.tile);
    static const struct {
        const char *name;
        decltype(pici_decompress_cuda) *call;
    } readers[] = {
        {"decompress", pici_decompress_cuda}, {"scatter-add", pici_scatter_add_cuda}, {"apply", pici_apply_cuda}};
    for (const auto &reader : readers) {
        cudaMemsetAsync(out.at, 0, bytes, stream);
        reader.call(out.at, n, dtype, in.at, len, NULL, result.to(), workspace.at, workspace.bytes, stream);
        r = result.read();
        const int expected = good && !fits ? PICI_E_ARG : read_status;
        tally(r.status == expected, "%s %s: %d, not %d", reader.name, what, r.status, expected);
        if (!expected && bytes) {
            /* zero plus x, except for NaNs, which become quiet */
            tally(reader.call == pici_scatter_add_cuda || memcmp(out.get(bytes).data(), dense.data(), bytes) == 0,
                  "%s %s differs", reader.name, what);
        }
    }
#ifdef PICI_DEVICE_HW
    emu::watch_races(true);
#endif
}

#endif
