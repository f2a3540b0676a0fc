/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Encodes, decodes, adds and verifies blocks by the functions of pici/cuda.h, with several thread blocks in flight, and
 * compares with what the library does on a host. tests/gpu/emu/mutants compiles it with damaged copies of lib/cuda. The
 * exit status is 0 if no error was found. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "cuda_graphs.h"
#include "cuda_runtime.h"
#include "pici/cuda.h"
#include "pici/delta.h"

static unsigned wrong;

static void expect(bool good, const char *what)
{
    const cudaError_t e = cudaGetLastError();
    if ((!good || e) && wrong++ < 3)
        printf("  %s%s%s\n", what, e ? ": " : "", e ? cudaGetErrorString(e) : "");
}

/* Memory of the device, with a copy of some bytes. */
class buffer {
  public:
    explicit buffer(size_t n, const void *from = nullptr)
    {
        void *p;
        cudaMalloc(&p, n);
        at = (uint8_t *)p;
        if (from)
            memcpy(at, from, n);
    }
    ~buffer()
    {
        cudaFree(at);
    }
    buffer(const buffer &) = delete;
    uint8_t *at;
};

template <class T> static void check(enum pici_dtype dtype, enum pici_format format, uint64_t n, unsigned percent)
{
    const size_t bytes = n * sizeof(T), cap = pici_bound(format, dtype, n), space = pici_cuda_workspace(dtype, n);
    std::vector<T> src(n), before(n), sum;
    std::vector<uint8_t> want(cap);
    size_t len;
    for (uint64_t i = 0; i < n; i++) {
        src[i] = (unsigned)rand() % 100 < percent ? (T)(rand() % 250 + 1) : (T)0;
        before[i] = (T)(rand() % 100 + 1);
    }
    sum = before;
    if (pici_compress(want.data(), cap, &len, src.data(), n, dtype, format, NULL) ||
        pici_scatter_add(sum.data(), n, want.data(), len, NULL))
        abort();
    buffer in(bytes, src.data()), block(len), out(bytes), workspace(space), to(sizeof(struct pici_cuda_result));
    struct pici_cuda_result *const result = (struct pici_cuda_result *)to.at;
    expect(!pici_compress_cuda(block.at, len, result, in.at, n, dtype, format, workspace.at, space, NULL) &&
               !result->status && result->len == len && memcmp(block.at, want.data(), len) == 0,
           "compress");
    memcpy(block.at, want.data(), len);
    expect(!pici_decompress_cuda(out.at, n, dtype, block.at, len, NULL, result, workspace.at, space, NULL) &&
               !result->status && memcmp(out.at, src.data(), bytes) == 0,
           "decompress");
    memcpy(out.at, before.data(), bytes);
    expect(!pici_scatter_add_cuda(out.at, n, dtype, block.at, len, NULL, result, workspace.at, space, NULL) &&
               !result->status && memcmp(out.at, sum.data(), bytes) == 0,
           "scatter-add");

    /* faults in several tiles, of which the first counts */
    struct pici_fault fault = PICI_FAULT_INIT;
    for (unsigned k = 0; k < 12; k++)
        block.at[48 + (unsigned)rand() % (len - 48)] = 0;
    memset(block.at + len - 3 * (len / 8), 0, 2 * (len / 8));
    const enum pici_status status = pici_verify_at(block.at, len, &fault);
    expect(!pici_verify_cuda(block.at, len, NULL, result, workspace.at, space, NULL) && result->status == status &&
               result->offset == fault.offset && result->tile == fault.tile &&
               strcmp(pici_cuda_rule(result->rule) ? pici_cuda_rule(result->rule) : "-",
                      fault.rule ? fault.rule : "-") == 0,
           "verify");
}

/* Hybrid or packed, whichever is shorter, of floats with any exponents or with few. */
static void check_pack(uint64_t n, bool any)
{
    const size_t cap = pici_bound(PICI_PACKED, PICI_F32, n), space = pici_cuda_workspace(PICI_F32, n);
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.pack = PICI_PACK_PLANES;
    std::vector<uint32_t> src(n);
    std::vector<uint8_t> want(cap);
    size_t len;
    for (uint32_t &x : src)
        x = rand() % 3 ? 0 : any ? (uint32_t)rand() * 2654435761u | 1 : 0x3f800000u | ((uint32_t)rand() & 0x3ffffff);
    if (pici_compress(want.data(), cap, &len, src.data(), n, PICI_F32, PICI_HYBRID, &opts))
        abort();
    buffer in(n * 4, src.data()), block(cap), workspace(space), to(sizeof(struct pici_cuda_result));
    struct pici_cuda_result *const result = (struct pici_cuda_result *)to.at;
    expect(want[5] == (any ? PICI_HYBRID : PICI_PACKED), "the format of the input");
    for (size_t room : {len, cap}) /* with more room, both fit */
        expect(!pici_compress_opts_cuda(block.at, room, result, in.at, n, PICI_F32, PICI_HYBRID, &opts, workspace.at,
                                        space, NULL) &&
                   !result->status && result->len == len && memcmp(block.at, want.data(), len) == 0,
               "the shorter of hybrid and packed");
}

/* PICI_AUTO: so many percent of n elements are nonzero. Returns the format of the block. */
template <class T> static int check_auto(enum pici_dtype dtype, uint64_t n, unsigned percent, enum pici_pack pack)
{
    const size_t cap = pici_bound(PICI_AUTO, dtype, n), space = pici_cuda_workspace(dtype, n);
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.pack = pack;
    std::vector<T> src(n + 1);
    std::vector<uint8_t> want(cap);
    size_t len;
    for (uint64_t i = 0; i < n; i++)
        src[i] = (unsigned)rand() % 100 < percent ? (T)(rand() % 250 + (pack ? 0x3f80 : 1)) : (T)0;
    if (pici_compress(want.data(), cap, &len, src.data(), n, dtype, PICI_AUTO, &opts))
        abort();
    buffer in(n * sizeof(T) + 1, src.data()), block(cap), workspace(space), to(sizeof(struct pici_cuda_result));
    struct pici_cuda_result *const result = (struct pici_cuda_result *)to.at;
    for (size_t room : {len, cap})
        expect(!pici_compress_opts_cuda(block.at, room, result, in.at, n, dtype, PICI_AUTO, &opts, workspace.at, space,
                                        NULL) &&
                   !result->status && result->len == len && memcmp(block.at, want.data(), len) == 0,
               "the shortest");
    return want[5];
}

static void check_autos()
{
    expect(check_auto<uint8_t>(PICI_U8, 0, 0, PICI_PACK_NONE) == PICI_DENSE, "nothing, dense");
    expect(check_auto<uint8_t>(PICI_U8, 18, 0, PICI_PACK_NONE) == PICI_COO, "zeros, coo");
    expect(check_auto<uint16_t>(PICI_U16, 5000, 99, PICI_PACK_NONE) == PICI_DENSE, "dense");
    expect(check_auto<uint64_t>(PICI_U64, 4096 * 7, 60, PICI_PACK_NONE) == PICI_BITMAP, "bitmap");
    expect(check_auto<uint16_t>(PICI_U16, 4096 * 66, 2, PICI_PACK_NONE) == PICI_HYBRID, "hybrid");
    for (uint64_t n = 1; n < 130; n += 1 + n / 8) {
        check_auto<uint8_t>(PICI_U8, n, 6, PICI_PACK_NONE);
        check_auto<uint16_t>(PICI_BF16, n, n % 2 ? 100 : 60, PICI_PACK_PLANES);
    }
    expect(check_auto<uint16_t>(PICI_BF16, 4096 * 35, 90, PICI_PACK_PLANES) == PICI_PACKED, "packed");
    expect(check_auto<uint16_t>(PICI_BF16, 100, 70, PICI_PACK_PLANES) == PICI_DENSE, "dense, then packed, then hybrid");
}

/* Nonzeros counted, blocks of a batch, and a length that only the device knows. */
static void check_batch()
{
    enum { JOBS = 5, N = 4096 * 9 + 77 };
    const size_t cap = pici_bound(PICI_BITMAP, PICI_F32, N), space = JOBS * pici_cuda_workspace(PICI_F32, N);
    std::vector<uint32_t> src[JOBS];
    buffer workspace(space), to(2 * JOBS * sizeof(struct pici_cuda_result));
    struct pici_cuda_result *const result = (struct pici_cuda_result *)to.at;
    struct pici_cuda_encode make[JOBS];
    struct pici_cuda_decode read[JOBS];
    std::vector<buffer *> all;
    for (unsigned i = 0; i < JOBS; i++) {
        src[i].resize(N);
        for (uint32_t &x : src[i])
            x = rand() % 10 == 0 ? (uint32_t)rand() : 0;
        all.push_back(new buffer(N * 4, src[i].data()));
        all.push_back(new buffer(cap));
        all.push_back(new buffer(N * 4));
        make[i] = {all[3 * i + 1]->at, cap, result + i, all[3 * i]->at, N, nullptr};
        read[i] = {all[3 * i + 2]->at, N, all[3 * i + 1]->at, cap, &result[i].len, result + JOBS + i};
    }
    expect(!pici_compress_batch_cuda(make, JOBS, PICI_U32, PICI_BITMAP, workspace.at, space, NULL) &&
               !pici_decompress_batch_cuda(read, JOBS, PICI_U32, workspace.at, space, NULL),
           "a batch");
    for (unsigned i = 0; i < JOBS; i++)
        expect(!result[i].status && !result[JOBS + i].status && memcmp(read[i].dst, src[i].data(), N * 4) == 0,
               "a block of a batch");
    for (buffer *b : all)
        delete b;
}

/* A block that is made and read by a graph, which is launched again on other elements. */
static void check_graph()
{
    enum { N = 4096 * 5 + 7 };
    const size_t cap = pici_bound(PICI_BITMAP, PICI_U32, N), space = pici_cuda_workspace(PICI_U32, N);
    buffer in(N * 4), block(cap), out(N * 4), workspace(space), to(2 * sizeof(struct pici_cuda_result));
    struct pici_cuda_result *const result = (struct pici_cuda_result *)to.at;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    const bool called =
        !pici_compress_cuda(block.at, cap, result, in.at, N, PICI_U32, PICI_BITMAP, workspace.at, space, stream) &&
        !pici_decompress_cuda(out.at, N, PICI_U32, block.at, cap, &result->len, result + 1, workspace.at, space,
                              stream);
    const bool captured = !cudaStreamEndCapture(stream, &graph) && !cudaGraphInstantiate(&executable, graph, 0);
    expect(called && captured, "a graph");
    for (uint32_t round = 1; captured && round <= 2; round++) {
        for (unsigned i = 0; i < N; i++)
            ((uint32_t *)in.at)[i] = i % (3 * round) ? 0 : i + round;
        expect(!cudaGraphLaunch(executable, stream) && !result[0].status && !result[1].status &&
                   memcmp(in.at, out.at, N * 4) == 0,
               "a graph's block");
    }
    cudaStreamDestroy(stream);
    if (!captured)
        return;
    cudaGraphDestroy(graph);
    cudaGraphExecDestroy(executable);
}

/* A small delta: of so many elements of a million, those before `random` change; all after it become others. */
static void check_small(enum pici_format format, uint64_t n, unsigned ppm, uint64_t random, unsigned at_once)
{
    const size_t cap = pici_diff_small_bound(format, PICI_BF16, n),
                 make = pici_diff_small_cuda_workspace(format, PICI_BF16, n, at_once),
                 read = pici_apply_small_cuda_workspace(PICI_BF16, n, at_once), space = make > read ? make : read;
    std::vector<uint16_t> base(n), src(n);
    std::vector<uint8_t> want(cap);
    size_t len;
    for (uint64_t i = 0; i < n; i++) {
        base[i] = src[i] = (uint16_t)(0x3f00 - (rand() & 0x3ff));
        if ((unsigned)rand() % 1000000 < ppm)
            src[i] ^= 1;
        if (i >= random)
            src[i] = (uint16_t)rand();
    }
    if (pici_diff_small(want.data(), cap, &len, base.data(), src.data(), n, PICI_BF16, format, NULL))
        abort();
    buffer a(2 * n, base.data()), b(2 * n, src.data()), delta(len), workspace(space),
        to(sizeof(struct pici_cuda_result));
    struct pici_cuda_result *const result = (struct pici_cuda_result *)to.at;
    expect(!pici_diff_small_cuda(delta.at, len, result, a.at, b.at, n, PICI_BF16, format, workspace.at, space, NULL) &&
               !result->status && result->len == len && memcmp(delta.at, want.data(), len) == 0,
           "a small delta");
    memcpy(delta.at, want.data(), len);
    expect(!pici_apply_small_cuda(a.at, n, PICI_BF16, delta.at, len, NULL, result, workspace.at, space, NULL) &&
               !result->status && memcmp(a.at, src.data(), 2 * n) == 0,
           "a small delta is applied");
    want[len / 2] = delta.at[len / 2] ^= 255;
    const enum pici_status status = pici_apply_small(src.data(), n, want.data(), len, NULL); /* another base */
    expect(!pici_apply_small_cuda(b.at, n, PICI_BF16, delta.at, len, NULL, result, workspace.at, space, NULL) &&
               result->status == (int)status,
           "a small delta that is damaged, of another base");
}

/* Deltas of parts of a tensor of f8 in a row: elements [first, first + n) of `of` after those before. */
struct row {
    std::vector<uint8_t> base, src, bytes;
    uint64_t of;

    void add(uint64_t first, uint64_t n, bool checksum)
    {
        const size_t cap = pici_diff_small_bound(PICI_BITMAP, PICI_F8E4M3, n) + 16, before = bytes.size();
        size_t len;
        struct pici_opts opts = PICI_OPTS_INIT;
        opts.checksum = checksum;
        bytes.resize(before + cap);
        if (pici_diff_small_part(bytes.data() + before, cap, &len, base.data() + first, src.data() + first, n, first,
                                 of, PICI_F8E4M3, PICI_BITMAP, &opts))
            abort();
        bytes.resize(before + len);
    }

    /* Applied to elements [first, first + n): what the host says and makes, or the status. */
    void check(uint64_t first, uint64_t n, const char *what, int status = 1) const
    {
        const size_t space = pici_apply_small_cuda_workspace(PICI_F8E4M3, n, 2), len = bytes.size();
        std::vector<uint8_t> dst(base.begin() + (ptrdiff_t)first, base.begin() + (ptrdiff_t)(first + n));
        buffer a(n, dst.data()), delta(len, bytes.data()), workspace(space), to(sizeof(struct pici_cuda_result));
        struct pici_cuda_result *const result = (struct pici_cuda_result *)to.at;
        const void *const deltas[] = {bytes.data()};
        const int host = pici_apply_small_range(dst.data(), n, first, of, deltas, &len, 1, NULL);
        expect(!pici_apply_small_range_cuda(a.at, n, first, of, PICI_F8E4M3, delta.at, len, NULL, result, workspace.at,
                                            space, NULL) &&
                   result->status == (status == 1 ? host : status) &&
                   (result->status || memcmp(a.at, dst.data(), n) == 0),
               what);
    }
};

static void check_rows(void)
{
    const uint64_t chunk = 1 << 19;
    row r;
    r.of = chunk + 6000;
    for (uint64_t i = 0; i < r.of; i++) {
        r.base.push_back((uint8_t)rand());
        r.src.push_back((uint8_t)(r.base[i] ^ (rand() % 50 ? 0 : 1)));
    }
    const row none = r;
    r.add(0, 1000, true);
    r.add(1000, 700, false);
    r.add(1700, 1300, true);
    r.check(0, 3000, "a row");
    r.check(1000, 2000, "some of a row");
    r.check(0, 3001, "more than a row", PICI_E_ARG);
    r.check(0, 2999, "a cut chunk", PICI_E_ARG);
    r.bytes[r.bytes.size() - 1] ^= 255;
    r.check(0, 3000, "a row with a wrong checksum", PICI_E_CHECKSUM);
    r = none;
    r.add(0, 1000, false);
    r.add(999, 100, false);
    r.check(0, 1099, "an element twice", PICI_E_CORRUPT);
    r = none;
    r.add(0, 1000, false);
    r.add(1001, 100, false);
    r.check(0, 1101, "a gap", PICI_E_ARG);
    r = none;
    r.add(900, chunk + 5000, false);
    r.check(900, chunk, "a chunk of two");
    r.check(900 + chunk, 5000, "the second chunk");
}

/* A delta of columns of f8, which lie in a tensor, and of the next column: what the host makes, and what it says of
 * them. */
static void check_columns(uint64_t rows, uint64_t row, uint64_t first, uint64_t count)
{
    const uint64_t n = rows * row;
    struct pici_columns columns = PICI_COLUMNS_INIT;
    columns.rows = rows;
    columns.row_length = columns.stride = row;
    columns.first = first;
    columns.count = count;
    struct pici_columns beside = columns, both = columns;
    beside.first += count;
    beside.count = 1;
    both.count++;
    const size_t cap = pici_diff_small_bound(PICI_BITMAP, PICI_F8E4M3, rows * count) + 24,
                 make = pici_diff_small_columns_cuda_workspace(PICI_BITMAP, PICI_F8E4M3, &columns, 1),
                 read = pici_apply_small_columns_cuda_workspace(PICI_F8E4M3, &both, 1),
                 space = make > read ? make : read, extent = (size_t)((rows - 1) * row + count + 1);
    std::vector<uint8_t> base(n), src(n), want(cap), next(cap);
    size_t len, next_len;
    for (uint64_t i = 0; i < n; i++) {
        base[i] = (uint8_t)rand();
        src[i] = (uint8_t)(base[i] ^ (rand() % 50 ? 0 : 1));
    }
    if (pici_diff_small_columns(want.data(), cap, &len, base.data() + first, src.data() + first, &columns, PICI_F8E4M3,
                                PICI_BITMAP, NULL) ||
        pici_diff_small_columns(next.data(), cap, &next_len, base.data() + beside.first, src.data() + beside.first,
                                &beside, PICI_F8E4M3, PICI_BITMAP, NULL))
        abort();
    want.resize(len);
    std::vector<uint8_t> in_a_row = want;
    in_a_row.insert(in_a_row.end(), next.begin(), next.begin() + (ptrdiff_t)next_len);
    buffer a(extent, base.data() + first), b(extent, src.data() + first), delta(in_a_row.size()), workspace(space),
        to(sizeof(struct pici_cuda_result));
    struct pici_cuda_result *const result = (struct pici_cuda_result *)to.at;
    expect(!pici_diff_small_columns_cuda(delta.at, len, result, a.at, b.at, &columns, PICI_F8E4M3, PICI_BITMAP, NULL,
                                         workspace.at, space, NULL) &&
               !result->status && result->len == len && memcmp(delta.at, want.data(), len) == 0,
           "a delta of columns");
    const auto check = [&](const struct pici_columns &to_columns, const std::vector<uint8_t> &from, const char *what) {
        std::vector<uint8_t> is = base;
        const void *const deltas[] = {from.data()};
        const size_t size = from.size();
        const int status = pici_apply_small_columns(is.data() + first, &to_columns, deltas, &size, 1, NULL);
        memcpy(a.at, base.data() + first, extent);
        memcpy(delta.at, from.data(), size);
        expect(!pici_apply_small_columns_cuda(a.at, &to_columns, PICI_F8E4M3, delta.at, size, NULL, result,
                                              workspace.at, space, NULL) &&
                   result->status == status &&
                   memcmp(a.at, status ? base.data() + first : is.data() + first, extent) == 0,
               what);
    };
    check(columns, want, "columns are changed");
    check(both, in_a_row, "columns are changed by two deltas");
    struct pici_columns fewer = columns;
    fewer.count--;
    check(fewer, want, "columns that are cut");
    want[len - 1] ^= 255;
    check(columns, want, "columns that are damaged");
}

/* Positions and values of 5 to 8 tiles of 16-bit elements, of which the block is damaged or not: as on the host. */
static void check_nonzeros(enum pici_format format)
{
    const uint64_t n = 4096 * (5 + (unsigned)rand() % 3) + 100, first = 77, some = n - 200;
    std::vector<uint16_t> src(n), base(n), now(n);
    for (uint64_t i = 0; i < n; i++) {
        src[i] = (uint16_t)(rand() % 20 ? 0 : 1 + rand() % 9);
        base[i] = (uint16_t)rand();
        now[i] = base[i] ^ src[i];
    }
    std::vector<uint8_t> block(pici_bound(format, PICI_U16, n)), small(pici_diff_small_bound(format, PICI_U16, n));
    size_t len, small_len;
    if (pici_compress(block.data(), block.size(), &len, src.data(), n, PICI_U16, format, NULL) ||
        pici_diff_small(small.data(), small.size(), &small_len, base.data(), now.data(), n, PICI_U16, format, NULL))
        abort();
    const size_t space = pici_nonzeros_cuda_workspace(PICI_U16, n),
                 small_space = pici_changes_small_cuda_workspace(PICI_U16, n, 1);
    buffer in(len, block.data()), small_in(small_len, small.data()), old(2 * n, base.data()),
        workspace(space > small_space ? space : small_space), to(sizeof(struct pici_cuda_result)), count(8);
    struct pici_cuda_result *const result = (struct pici_cuda_result *)to.at;
    uint64_t *const found = (uint64_t *)count.at;
    enum { BLOCK, DELTA, SMALL, KINDS };
    const auto check = [&](uint64_t capacity, int kind, const char *what) {
        std::vector<uint32_t> indices(some);
        std::vector<uint16_t> values(some);
        uint64_t want = 0;
        buffer made_indices(4 * capacity), made_values(2 * capacity);
        int status, made;
        if (kind == SMALL) {
            status = pici_changes(indices.data(), 4, values.data(), capacity, &want, base.data(), n, small.data(),
                                  small_len, first, some);
            made = pici_changes_small_cuda(made_indices.at, 4, made_values.at, capacity, found, old.at, n, small_in.at,
                                           small_len, NULL, result, first, some, PICI_U16, workspace.at, small_space,
                                           NULL);
        } else if (kind == DELTA) {
            status = pici_changes(indices.data(), 4, values.data(), capacity, &want, base.data(), n, block.data(), len,
                                  first, some);
            made = pici_changes_cuda(made_indices.at, 4, made_values.at, capacity, found, old.at, n, in.at, len, NULL,
                                     result, first, some, PICI_U16, workspace.at, space, NULL);
        } else {
            status = pici_nonzeros(indices.data(), 4, values.data(), capacity, &want, block.data(), len, first, some);
            made = pici_nonzeros_cuda(made_indices.at, 4, made_values.at, capacity, found, in.at, len, NULL, result,
                                      first, some, n, PICI_U16, workspace.at, space, NULL);
        }
        const uint64_t stored = want < capacity ? want : capacity;
        expect(!made && result->status == status && *found == want &&
                   memcmp(made_indices.at, indices.data(), 4 * stored) == 0 &&
                   memcmp(made_values.at, values.data(), 2 * stored) == 0,
               what);
    };
    for (int kind = 0; kind < KINDS; kind++) {
        check(some, kind, "positions and values");
        check(100, kind, "positions and values in too little room");
    }
    in.at[len - 1] = in.at[0] = 0;
    *found = 1;
    expect(!pici_nonzeros_cuda(NULL, 4, NULL, 0, found, in.at, len, NULL, result, first, some, n, PICI_U16,
                               workspace.at, space, NULL) &&
               result->status == PICI_E_CORRUPT && *found == 0,
           "positions of no block");
}

int main(void)
{
    for (unsigned seed = 1; seed <= 3; seed++) {
        srand(seed);
        emu::seed(seed);
        emu::resident(1 + 2 * seed);
        check<uint8_t>(PICI_U8, PICI_BITMAP, 4096 * 21 + 5, 30);
        check<uint32_t>(PICI_U32, PICI_BITMAP, 4096 * 21 + 5, 5);
        check<uint16_t>(PICI_U16, PICI_COO, 4096 * 14, 20);
        check<uint32_t>(PICI_U32, PICI_HYBRID, 4096 * 130 + 99, 2);
        check<uint16_t>(PICI_BF16, PICI_PACKED, 4096 * 66 + 99, 5);
        check_pack(4096 * 66 + 5, true);
        check_pack(4096 * 34 + 5, false);
        emu::multiprocessors(64); /* so that this is encoded by tiles, by many warps at once */
        emu::resident(100);
        check<uint16_t>(PICI_U16, PICI_HYBRID, 4096 * 70 + 99, 30);
        check<uint32_t>(PICI_U32, PICI_HYBRID, 4096 * 4 + 9, 30); /* nearly all tiles are surveyed at once */
        check_pack(4096 * 66 + 5, true);                          /* a group may look back too early */
        emu::multiprocessors(1);
        emu::resident(1 + 2 * seed);
        check<uint64_t>(PICI_U64, PICI_DENSE, 4096 * 2 + 1, 100);
        check_batch();
        check_autos();
        check_small(PICI_BITMAP, 700, 30000, 700, 1);
        check_small(PICI_HYBRID, 700, 5000, 700, 1);
        check_small(PICI_BITMAP, 9000, 0, 0, 1);
    }
    check_small(PICI_BITMAP, (2 << 19) + 5000, 3000, 1 << 19, 2);
    check_rows();
    check_columns(30, 20, 3, 7);
    check_columns(((1 << 19) + 4000) / 7, 9, 1, 7);
    for (unsigned seed = 1; seed <= 3; seed++) {
        emu::seed(seed);
        for (enum pici_format format : {PICI_DENSE, PICI_BITMAP, PICI_HYBRID})
            check_nonzeros(format);
    }
    check_graph();
    return wrong != 0;
}
