/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Positions and values that kernels find in blocks and deltas, beside the host's. To be included by cuda_small.cu. */
#ifndef PICI_TESTS_CUDA_NONZEROS_CUH
#define PICI_TESTS_CUDA_NONZEROS_CUH

/* A block, or a delta of `base`. */
struct stored {
    enum pici_dtype dtype;
    enum pici_format format;
    uint64_t of;
    std::vector<uint8_t> block, base; /* base: empty, or a byte more than its elements have */
    bool small;
    char name[100];
};

/* What is asked of it. */
struct question {
    uint64_t first, n, capacity;
    size_t index_bytes;
    bool indices, values;
};

/* All of it, as a call decodes it: the host's status. */
static enum pici_status decoded(const struct stored &s)
{
    std::vector<uint8_t> to = s.base;
    const void *const deltas[] = {s.block.data()};
    const size_t size = s.block.size();
    to.resize((size_t)s.of * pici_dtype_width(s.dtype) + 1);
    if (s.small && size >= 32 && memcmp(s.block.data(), "PICD", 4) == 0 && s.block[4] == 4)
        return PICI_E_VERSION; /* of columns */
    const enum pici_status status = s.small ? pici_apply_small_range(to.data(), s.of, 0, s.of, deltas, &size, 1, NULL)
                                            : pici_decompress(to.data(), s.of, s.block.data(), size, NULL);
    return !status && (enum pici_dtype)s.block[s.small ? 5 : 6] != s.dtype ? PICI_E_ARG : status;
}

static enum pici_status find(const struct stored &s, const struct question &q, void *indices, void *values,
                             uint64_t *count, const uint8_t *block, const uint8_t *base, size_t space,
                             struct pici_cuda_result *result, const uint64_t *size_at, void *workspace)
{
    const size_t size = s.block.size();
    if (s.small)
        return pici_changes_small_cuda(indices, q.index_bytes, values, q.capacity, count, base, s.of, block, size,
                                       size_at, result, q.first, q.n, s.dtype, workspace, space, stream);
    if (!s.base.empty())
        return pici_changes_cuda(indices, q.index_bytes, values, q.capacity, count, base, s.of, block, size, size_at,
                                 result, q.first, q.n, s.dtype, workspace, space, stream);
    return pici_nonzeros_cuda(indices, q.index_bytes, values, q.capacity, count, block, size, size_at, result, q.first,
                              q.n, s.of, s.dtype, workspace, space, stream);
}

static size_t room_of(const struct stored &s)
{
    return s.small ? pici_changes_small_cuda_workspace(s.dtype, s.of, 1) : pici_nonzeros_cuda_workspace(s.dtype, s.of);
}

/* The host's answer and the GPU's. */
static void check_found(const struct stored &s, const struct question &q, const char *what)
{
    const size_t width = pici_dtype_width(s.dtype), most = (size_t)(q.capacity < q.n ? q.capacity : q.n),
                 space = room_of(s), len = s.block.size();
    std::vector<uint8_t> indices(most * q.index_bytes + 1), values(most * width + 1);
    void *const to_indices = q.indices ? indices.data() : NULL, *const to_values = q.values ? values.data() : NULL;
    uint64_t count = 0;
    enum pici_status expected = decoded(s);
    if (!expected && s.base.empty())
        expected = pici_nonzeros(to_indices, q.index_bytes, to_values, most, &count, s.block.data(), len, q.first, q.n);
    else if (!expected)
        expected = pici_changes(to_indices, q.index_bytes, to_values, most, &count, s.base.data(), s.of, s.block.data(),
                                len, q.first, q.n);
    const uint64_t length = len, stored_count = count < most ? count : most;
    buffer made_indices(most * q.index_bytes, q.index_bytes), made_values(most * width, some_skew(s.dtype)),
        made_count(16), block(len, 0, s.block.data()), workspace(space), size_at(sizeof length, 0, &length),
        base(s.base.empty() ? 0 : s.base.size() - 1, some_skew(s.dtype), s.base.empty() ? NULL : s.base.data());
    result_buffer result;
    const enum pici_status status = find(s, q, q.indices ? made_indices.at : NULL, q.values ? made_values.at : NULL,
                                         (uint64_t *)made_count.at, block.at, base.at, space, result.to(),
                                         rng_below(&rng, 2) ? (const uint64_t *)size_at.at : NULL, workspace.at);
    const struct pici_cuda_result r = result.read();
    tally(!status && r.status == (int)expected && first_word(made_count) == count && r.len == (expected ? 0 : len),
          "%s: %s: %d, %d, %llu found where the host says %d, %llu", s.name, what, (int)status, (int)r.status,
          (unsigned long long)first_word(made_count), (int)expected, (unsigned long long)count);
    if (expected && expected != PICI_E_SPACE)
        return;
    tally(!q.indices || starts_with(made_indices, indices, (size_t)stored_count * q.index_bytes),
          "%s: %s: other positions", s.name, what);
    tally(!q.values || starts_with(made_values, values, (size_t)stored_count * width), "%s: %s: other values", s.name,
          what);
}

static void check_damaged_ones(const struct stored &s, unsigned times)
{
    watch(s.format != PICI_COO); /* positions that are not in order may be the same */
    for (unsigned i = 0; i < times; i++) {
        struct stored damaged = s;
        const uint64_t most = rng_below(&rng, 3) && s.block.size() > 64 ? 64 : s.block.size();
        damaged.block[(size_t)rng_below(&rng, most)] ^= (uint8_t)(1 << rng_below(&rng, 8));
        if (rng_below(&rng, 6) == 0)
            damaged.block.resize((size_t)rng_below(&rng, damaged.block.size()));
        const struct question all = {0, s.of, s.of, 4, true, true};
        check_found(damaged, all, "damaged");
    }
    watch(true);
}

/* Questions of all sorts. */
static void ask(const struct stored &s)
{
    const uint64_t of = s.of, from = of / 3, some = of / 2;
    const struct question questions[] = {{0, of, of, 4, true, true},        {0, of, of, 8, true, true},
                                         {from, some, some, 4, true, true}, {from, some, some, 8, true, false},
                                         {0, of, of / 50, 4, true, true},   {from, some, 1, 8, true, true},
                                         {0, of, of + 3, 4, false, true},   {of, 0, 0, 4, true, true},
                                         {from, some, 0, 8, false, false},  {0, of, UINT64_MAX, 8, true, true}};
    const unsigned each = thorough ? 1 : 3;
    for (size_t i = rng_below(&rng, each); i < sizeof questions / sizeof *questions; i += each)
        check_found(s, questions[i], "found");
    check_damaged_ones(s, thorough ? 4 : 1);
}

static struct stored block_of(enum pici_dtype dtype, enum pici_format format, uint64_t n, bool of_base)
{
    static const enum pattern patterns[] = {PATTERN_50, PATTERN_FULL, PATTERN_ZERO, PATTERN_EQUAL};
    struct stored s = {dtype, format, n, {}, {}, false, ""};
    const enum pattern pattern = patterns[rng_below(&rng, 8) % 5 % 4];
    const size_t bytes = (size_t)n * pici_dtype_width(dtype);
    std::vector<uint8_t> src(bytes + 1);
    size_t len;
    pattern_fill(src.data(), n, dtype, pattern, &rng);
    if (dtype <= PICI_F8E5M2)
        zeros_negate(src.data(), n, dtype, 20000, &rng);
    if (of_base) {
        s.base.resize(bytes + 1);
        for (size_t i = 0; i < bytes; i++)
            s.base[i] = (uint8_t)rng_next(&rng);
    }
    snprintf(s.name, sizeof s.name, "%s%s, %s, %llu elements, %s", of_base ? "a delta of " : "", pici_dtype_name(dtype),
             pici_format_name(format), (unsigned long long)n, pattern_name(pattern));
    s.block.resize(pici_bound(format, dtype, n));
    tally(!pici_compress(s.block.data(), s.block.size(), &len, src.data(), n, dtype, format, NULL), "%s: on the host",
          s.name);
    s.block.resize(len);
    return s;
}

static void nonzeros_of_blocks(void)
{
    static const uint64_t counts[] = {0, 1, 63, 5000, 4096 * 5 + 77};
    for (int dtype = 1; pici_dtype_width((enum pici_dtype)dtype); dtype++)
        for (uint64_t n : counts)
            for (int format = PICI_DENSE; format <= PICI_PACKED; format++) {
                const bool of_base = rng_below(&rng, 2);
                if ((format == PICI_PACKED && dtype > PICI_F8E5M2) ||
                    (!thorough && (dtype + format + (int)(n % 1000)) % (smallest ? 11 : 3)))
                    continue;
                ask(block_of((enum pici_dtype)dtype, (enum pici_format)format, n, of_base));
            }
}

static void changes_of_small_deltas(void)
{
    for (const auto &sort : sorts)
        for (uint64_t n : {UINT64_C(0), UINT64_C(33), UINT64_C(9000)}) {
            if (smallest && n != 33)
                continue;
            const struct sample s = part_of(sort.dtype, sort.holds, formats[rng_below(&rng, 4)], n, 0, n,
                                            sort.dtype == PICI_I16 ? STEP_RANDOM : STEP_USUAL);
            struct stored delta = {sort.dtype, s.format, n, s.delta, s.base, true, ""};
            snprintf(delta.name, sizeof delta.name, "%s", s.name);
            ask(delta);
        }
}

/* Several partitions for a thread block, and two chunks. */
static void long_ones(void)
{
    const uint64_t n = (1 << 19) + 9000;
    ask(block_of(PICI_U8, PICI_HYBRID, n, true));
    const struct sample s = sample_of(PICI_F8E4M3, PICI_BITMAP, n, STEP_TINY);
    struct stored delta = {PICI_F8E4M3, PICI_BITMAP, n, s.delta, s.base, true, "two chunks"};
    ask(delta);
}

/* The base is in pinned memory of the host, which the GPU reads. To be called last: it defers operations. */
static void pinned_base(void)
{
#ifdef PICI_DEVICE_HW
    emu::defer(rng.state);
#endif
    const uint64_t n = 3000;
    const struct sample s = sample_of(PICI_BF16, PICI_BITMAP, n, STEP_USUAL);
    const size_t space = pici_changes_small_cuda_workspace(PICI_BF16, n, 1), len = s.delta.size();
    std::vector<uint8_t> indices(4 * n + 1), values(2 * n + 1);
    uint64_t count = 0;
    tally(!pici_changes(indices.data(), 4, values.data(), n, &count, s.base.data(), n, s.delta.data(), len, 0, n),
          "%s: changes on the host", s.name);
    void *base = NULL;
    buffer made_indices(4 * n), made_values(2 * n), made_count(16), delta(len, 0, s.delta.data()), workspace(space);
    result_buffer result;
    cudaMallocHost(&base, 2 * n);
    memcpy(base, s.base.data(), 2 * n);
    const enum pici_status status =
        pici_changes_small_cuda(made_indices.at, 4, made_values.at, n, (uint64_t *)made_count.at, base, n, delta.at,
                                len, NULL, result.to(), 0, n, PICI_BF16, workspace.at, space, stream);
    const bool good = device_good(); /* what is read is not in pinned memory: the stream must be idle */
    const struct pici_cuda_result r = result.read();
    tally(good && !status && !r.status && r.len == len && first_word(made_count) == count &&
              starts_with(made_indices, indices, 4 * (size_t)count) &&
              starts_with(made_values, values, 2 * (size_t)count),
          "%s: of a base in pinned memory: %d, %d", s.name, (int)status, (int)r.status);
    cudaFreeHost(base);
}

static void questions_that_are_wrong(void)
{
    const struct stored s = block_of(PICI_BF16, PICI_BITMAP, 1000, true);
    const size_t space = room_of(s);
    buffer indices(8000, 0), values(2000, 0), count(16), block(s.block.size(), 0, s.block.data()), base(2000),
        workspace(space);
    result_buffer result;
    const struct question good = {100, 500, 500, 8, true, true};
    const auto status = [&](const struct question &q, uint8_t *to_indices, uint8_t *to_values, uint8_t *to_count,
                            const uint8_t *from, size_t room) {
        return find(s, q, to_indices, to_values, (uint64_t *)to_count, block.at, from, room, result.to(), NULL,
                    workspace.at);
    };
    const auto asked = [&](const struct question &q) {
        return status(q, indices.at, values.at, count.at, base.at, space);
    };
    tally(!asked(good), "a question that is right");
    struct question q = good;
    q.index_bytes = 2;
    tally(asked(q) == PICI_E_ARG, "positions of two bytes");
    q = good;
    q.n = 901;
    tally(asked(q) == PICI_E_ARG, "elements beyond the last");
    q.first = UINT64_MAX;
    tally(asked(q) == PICI_E_ARG, "elements that begin beyond the last");
    tally(status(good, NULL, NULL, count.at, base.at, space) == PICI_E_ARG, "room that is not there");
    tally(status(good, indices.at, values.at, NULL, base.at, space) == PICI_E_ARG, "no count");
    tally(status(good, indices.at, values.at, count.at, NULL, space) == PICI_E_ARG, "no base");
    tally(status(good, indices.at, values.at, count.at, base.at, space - 16) == PICI_E_ARG, "too little memory");
    tally(status(good, indices.at, values.at, count.at, base.at, 8) == PICI_E_ARG, "hardly any memory");
    tally(status(good, indices.at + 4, values.at, count.at, base.at, space) == PICI_E_ARG, "positions between words");
    tally(status(good, indices.at, indices.at + 3998, count.at, base.at, space) == PICI_E_ARG, "values over positions");
    tally(status(good, indices.at, base.at + 1998, count.at, base.at, space) == PICI_E_ARG, "values over the base");
    tally(status(good, indices.at, values.at, indices.at + 3992, base.at, space) == PICI_E_ARG,
          "a count over positions");
    tally(status(good, indices.at, workspace.at, count.at, base.at, space) == PICI_E_ARG, "values over the workspace");
    tally(!pici_nonzeros_cuda_workspace((enum pici_dtype)99, 1) && !pici_nonzeros_cuda_workspace(PICI_U8, UINT64_MAX) &&
              !pici_changes_small_cuda_workspace((enum pici_dtype)99, 1, 1),
          "memory for no dtype");
}

#endif
