/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The functions of pici/cuda.h: they check arguments, divide up the workspace, and launch kernels for up to BATCH
 * jobs at a time. */
#include "launch.cuh"

#include "format.h"
#include "reduce.h"
#include "sized.h"
#include "small_format.h"

/* pici/device_block.cuh does not include format.h, so compare its constants here. */
static_assert((int)pici::HEADER_BYTES == HDR_BYTES && (int)pici::CHECKSUM_AT == HDR_CHECKSUM &&
                  (int)pici::FLAG_INDEX64 == FLAG_INDEX64 && (int)pici::FLAG_CHECKSUM == FLAG_CHECKSUM &&
                  (int)PICI_DENSE == FMT_DENSE && (int)PICI_BITMAP == FMT_BITMAP && (int)PICI_COO == FMT_COO &&
                  (int)PICI_HYBRID == FMT_HYBRID && (int)PICI_PACKED == FMT_PACKED &&
                  (int)pici::FLAG_ONE_LEVEL == FLAG_ONE_LEVEL && (int)pici::VERSION_SIGNS == FMT_VERSION_SIGNS,
              "device_block.cuh and format.h must agree");
static_assert(
    (int)pici::SMALL_CHUNK == SMALL_CHUNK && (int)pici::SMALL_CLASSES == SMALL_CLASSES &&
        (int)pici::SMALL_TOKENS == SMALL_TOKENS && (int)pici::SMALL_STATE == SMALL_STATE &&
        (int)pici::SMALL_SHARES == SMALL_SHARES && (int)pici::SMALL_LISTED == SMALL_LISTED &&
        (int)pici::SMALL_ESCAPE == SMALL_ESCAPE && (int)pici::SMALL_MOST_DIFFERENCE == SMALL_MOST_DIFFERENCE &&
        (int)pici::SMALL_TREE_LEVELS == SMALL_TREE_LEVELS && (int)pici::SMALL_VERSION == SMALL_FORMAT_VERSION &&
        (int)pici::SMALL_PART_VERSION == SMALL_PART_VERSION &&
        (int)pici::SMALL_NARROW_VERSION == SMALL_NARROW_VERSION &&
        (int)pici::SMALL_COLUMNS_VERSION == SMALL_COLUMNS_VERSION && (int)pici::SMALL_ROW_AT == SMALL_COLUMNS_ROW &&
        (int)pici::SMALL_COLUMNS_HEADER_BYTES == SMALL_COLUMNS_BYTES && (int)pici::SMALL_FIRST_AT == SMALL_PART_FIRST &&
        (int)pici::SMALL_OF_AT == SMALL_PART_OF && (int)pici::SMALL_PART_HEADER_BYTES == SMALL_PART_BYTES &&
        pici::SMALL_E2M1_ZERO == SMALL_WIDE_ZERO && (int)pici::SMALL_HAS_CHECKSUM == SMALL_FLAG_CHECKSUM &&
        (int)pici::SMALL_HEADER_BYTES == SMALL_HDR_BYTES && (int)pici::SMALL_CHECKSUM_AT == SMALL_HDR_CHECKSUM &&
        (int)pici::SMALL_CLASSES_AT == SMALL_CTX_CLASSES && (int)pici::SMALL_WORDS_AT == SMALL_CTX_WORDS &&
        (int)pici::SMALL_STATES_AT == SMALL_CTX_STATES && (int)pici::SMALL_TABLES_AT == SMALL_CTX_TABLES &&
        pici::SMALL_CONTEXT == SMALL_KIND_CONTEXT,
    "device_small.cuh and small_format.h must agree");
static_assert(ENCODE_THREADS<uint8_t> / 32 == encode_tiles(1) && ENCODE_THREADS<uint16_t> / 32 == encode_tiles(2) &&
                  ENCODE_THREADS<uint32_t> / 32 == encode_tiles(4) && ENCODE_THREADS<uint64_t> / 32 == encode_tiles(8),
              "the workspace has a word for each partition");

static_assert(GROUP_TILES >= encode_tiles(1) && GROUP_TILES >= encode_tiles(8), "and a word for each group");

static_assert(sizeof(pici_cuda_control) == PICI_CUDA_READ_WORKSPACE, "PICI_CUDA_READ_WORKSPACE is a control");
static_assert(sizeof(pici_cuda_encode_jobs) <= 4096 && sizeof(pici_cuda_decode_jobs) <= 4096,
              "a kernel has at most 4 KiB of arguments");
static_assert(sizeof(pici_cuda_result) == 32, "the size is part of the ABI");

/* Bytes of workspace to encode a block: the control, and the words for the format that needs the most. More elements
 * never need fewer bytes. */
static uint64_t encode_bytes(unsigned width, uint64_t count)
{
    const uint64_t tiles = pici::tiles_of(count), each = encode_tiles(width),
                   parts = tiles / each + (tiles % each != 0);
    const uint64_t by_tiles = tiles < TILEWISE_MOST ? tiles : TILEWISE_MOST;
    const uint64_t hybrid = pici::groups_of(by_tiles) + by_tiles, words = parts > hybrid ? parts : hybrid;
    return sizeof(pici_cuda_control) + (words * 8 + 15) / 16 * 16;
}

const char *pici_cuda_rule(uint32_t rule)
{
    static const char names[][16] = {"size",       "magic",       "version",   "format",    "dtype",
                                     "flags",      "index-width", "nnz",       "offsets",   "checksum-flag",
                                     "length",     "checksum",    "padding",   "past-end",  "tile-index",
                                     "rising",     "stored-zero", "directory", "occupancy", "record-length",
                                     "descriptor", "tile-count",  "container", "total",     "signs",
                                     "version",    "run",         "planes",    "choice"};
    static_assert(sizeof names / sizeof *names == pici::RULE_LAST, "each rule has a name");
    return rule < pici::RULE_SIZE || rule > pici::RULE_LAST ? NULL : names[rule - pici::RULE_SIZE];
}

size_t pici_cuda_workspace(enum pici_dtype dtype, uint64_t count)
{
    const int width_log2 = pici::width_log2((unsigned)dtype);
    if (width_log2 < 0)
        return 0;
    const uint64_t bytes = encode_bytes(1u << width_log2, count);
    return bytes > SIZE_MAX ? 0 : (size_t)bytes;
}

/* The rest of a workspace. */
struct workspace {
    uint8_t *next;
    uint64_t bytes_left;
};

/* Take the next bytes of a workspace, or null if there are too few. */
static uint8_t *take(struct workspace *workspace, uint64_t bytes)
{
    if (bytes > workspace->bytes_left)
        return nullptr;
    uint8_t *memory = workspace->next;
    workspace->next += bytes;
    workspace->bytes_left -= bytes;
    return memory;
}

/* ---- encoding ---- */

/* Are these valid as a job's src or base? */
static bool is_input(const struct pici_cuda_encode *call, const void *elements, unsigned width_log2)
{
    return (elements || !call->n) && is_aligned_to(elements, (uintptr_t)1 << width_log2) &&
           !overlap(call->block, call->cap, elements, call->n << width_log2) &&
           !overlap(call->result, sizeof *call->result, elements, call->n << width_log2);
}

/* diff: there is a base. */
static enum pici_status check_encode(const struct pici_cuda_encode *call, bool diff, unsigned dtype, unsigned format)
{
    const unsigned width_log2 = (unsigned)pici::width_log2(dtype);
    if (!call->block || !call->result || !is_aligned_to(call->block, 16) || !is_aligned_to(call->result, 8) ||
        call->n > SIZE_MAX >> width_log2 || !is_input(call, call->src, width_log2) ||
        (diff && !is_input(call, call->base, width_log2)) ||
        overlap(call->result, sizeof *call->result, call->block, call->cap))
        return PICI_E_ARG;
    pici::block_view view = pici::block_view();
    view.format = format == PICI_AUTO ? (unsigned)PICI_COO : format; /* none is shorter than coo without values */
    view.dtype = dtype;
    view.count = call->n;
    view.nnz = format == PICI_DENSE ? call->n : 0;
    return pici::layout(view) && view.block_bytes <= call->cap ? PICI_OK : PICI_E_SPACE;
}

/* How to encode a batch. */
struct encoding {
    bool diff;
    bool by_value; /* not with diff */
    enum pici_pack pack;
};

/* Launch the kernels of a format for some jobs. elements: the elements of the largest job. */
static cudaError_t launch_format(pici_cuda_encode_jobs *batch, enum pici_format format, const encoding &how,
                                 unsigned count, uint64_t elements, cudaStream_t stream)
{
    const bool packs = (format == PICI_HYBRID || format == PICI_AUTO) && how.pack != PICI_PACK_NONE && !how.diff &&
                       pici::is_float(batch->dtype);
    batch->one_level = how.pack == PICI_PACK_FAST;
    batch->of_all = format == PICI_AUTO;
    batch->if_shortest = packs || batch->of_all;
    cudaError_t error = cudaSuccess;
    if (batch->of_all)
        error = pici_cuda_launch_count(batch, count, elements, stream);
    if (!error && (packs || format == PICI_PACKED))
        error = pici_cuda_launch_packed(batch, count, elements, stream);
    if (!error && (batch->of_all || format == PICI_HYBRID))
        error = pici_cuda_launch_hybrid(batch, count, elements, stream);
    if (!error && (batch->of_all || format == PICI_BITMAP))
        error = pici_cuda_launch_encode(batch, count, elements, stream);
    if (!error && (batch->of_all || format == PICI_COO))
        error = pici_cuda_launch_coo(batch, count, elements, stream);
    if (!error && (batch->of_all || format == PICI_DENSE))
        error = pici_cuda_launch_dense(batch, count, elements, stream);
    return error;
}

static enum pici_status encode_batch(const struct pici_cuda_encode *jobs, size_t count, const encoding &how,
                                     enum pici_dtype dtype, enum pici_format format, void *workspace,
                                     size_t workspace_bytes, cudaStream_t stream)
{
    const bool diff = how.diff;
    const int width_log2 = pici::width_log2((unsigned)dtype);
    struct workspace space = {(uint8_t *)workspace, workspace_bytes};
    if ((!jobs && count) || width_log2 < 0 || (!workspace && count) || !is_aligned_to(workspace, 16))
        return PICI_E_ARG;
    if (format == PICI_PACKED && !pici::is_float((unsigned)dtype))
        return PICI_E_UNSUPPORTED;
    if (format != PICI_DENSE && format != PICI_BITMAP && format != PICI_COO && format != PICI_HYBRID &&
        format != PICI_PACKED && format != PICI_AUTO)
        return PICI_E_ARG;
    for (size_t i = 0; i < count; i++) {
        const enum pici_status status = check_encode(jobs + i, diff, (unsigned)dtype, (unsigned)format);
        if (status)
            return status;
        if (!take(&space, encode_bytes(1u << width_log2, jobs[i].n)))
            return PICI_E_ARG;
    }
    if (!count)
        return PICI_OK;
    const uint64_t used = workspace_bytes - space.bytes_left;
    space = {(uint8_t *)workspace, used};
    for (size_t i = 0; i < count; i++)
        if (overlap(workspace, used, jobs[i].block, jobs[i].cap) ||
            overlap(workspace, used, jobs[i].src, jobs[i].n << width_log2) ||
            (diff && overlap(workspace, used, jobs[i].base, jobs[i].n << width_log2)) ||
            overlap(workspace, used, jobs[i].result, sizeof *jobs[i].result))
            return PICI_E_ARG;
    cudaError_t error = cudaSuccess;
    if (format != PICI_DENSE)
        error = cudaMemsetAsync(workspace, 0, (size_t)used, stream);
    for (size_t i = 0; i < count && !error; i += BATCH) {
        struct pici_cuda_encode_jobs batch = {};
        uint64_t most = 0;
        unsigned k = 0;
        for (; k < BATCH && i + k < count; k++) {
            const uint64_t elements = jobs[i + k].n;
            uint8_t *memory = take(&space, encode_bytes(1u << width_log2, elements));
            batch.job[k].call = jobs[i + k];
            if (!diff)
                batch.job[k].call.base = nullptr;
            batch.job[k].control = (pici_cuda_control *)memory;
            batch.job[k].state = (uint64_t *)(memory + sizeof(pici_cuda_control));
            most = elements > most ? elements : most;
        }
        batch.dtype = (unsigned)dtype;
        batch.by_value = how.by_value && pici::is_float((unsigned)dtype);
        error = launch_format(&batch, format, how, k, most, stream);
    }
    return error ? PICI_E_DEVICE : PICI_OK;
}

enum pici_status pici_compress_batch_cuda(const struct pici_cuda_encode *jobs, size_t count, enum pici_dtype dtype,
                                          enum pici_format format, void *workspace, size_t workspace_bytes,
                                          cudaStream_t stream)
{
    return encode_batch(jobs, count, {false, false, PICI_PACK_NONE}, dtype, format, workspace, workspace_bytes, stream);
}

enum pici_status pici_diff_batch_cuda(const struct pici_cuda_encode *jobs, size_t count, enum pici_dtype dtype,
                                      enum pici_format format, void *workspace, size_t workspace_bytes,
                                      cudaStream_t stream)
{
    return encode_batch(jobs, count, {true, false, PICI_PACK_NONE}, dtype, format, workspace, workspace_bytes, stream);
}

enum pici_status pici_cuda_options(struct pici_opts *checked, const struct pici_opts *given)
{
    static const struct pici_opts defaults = PICI_OPTS_INIT;
    *checked = defaults;
    const enum pici_status status =
        given ? sized_read(checked, sizeof *checked, SIZED_THROUGH(struct pici_opts, checksum), given) : PICI_OK;
    if (status)
        return status;
    if (checked->threads < 0 || checked->checksum < 0 || checked->checksum > 1 ||
        (checked->zeros != PICI_ZEROS_EXACT && checked->zeros != PICI_ZEROS_BY_VALUE) ||
        (checked->pack != PICI_PACK_NONE && checked->pack != PICI_PACK_PLANES && checked->pack != PICI_PACK_FAST))
        return PICI_E_ARG;
    return checked->checksum || (unsigned)checked->holds > PICI_HOLDS_E2M1X2 ? PICI_E_UNSUPPORTED : PICI_OK;
}

enum pici_status pici_compress_batch_opts_cuda(const struct pici_cuda_encode *jobs, size_t count, enum pici_dtype dtype,
                                               enum pici_format format, const struct pici_opts *given, void *workspace,
                                               size_t workspace_bytes, cudaStream_t stream)
{
    struct pici_opts options;
    const enum pici_status status = pici_cuda_options(&options, given);
    return status ? status
                  : encode_batch(jobs, count, {false, options.zeros == PICI_ZEROS_BY_VALUE, options.pack}, dtype,
                                 format, workspace, workspace_bytes, stream);
}

enum pici_status pici_compress_opts_cuda(void *block, size_t capacity, struct pici_cuda_result *result, const void *src,
                                         uint64_t count, enum pici_dtype dtype, enum pici_format format,
                                         const struct pici_opts *options, void *workspace, size_t workspace_bytes,
                                         cudaStream_t stream)
{
    const struct pici_cuda_encode job = {block, capacity, result, src, count, nullptr};
    return pici_compress_batch_opts_cuda(&job, 1, dtype, format, options, workspace, workspace_bytes, stream);
}

enum pici_status pici_compress_cuda(void *block, size_t capacity, struct pici_cuda_result *result, const void *src,
                                    uint64_t count, enum pici_dtype dtype, enum pici_format format, void *workspace,
                                    size_t workspace_bytes, cudaStream_t stream)
{
    const struct pici_cuda_encode job = {block, capacity, result, src, count, nullptr};
    return pici_compress_batch_cuda(&job, 1, dtype, format, workspace, workspace_bytes, stream);
}

enum pici_status pici_diff_cuda(void *block, size_t capacity, struct pici_cuda_result *result, const void *base,
                                const void *src, uint64_t count, enum pici_dtype dtype, enum pici_format format,
                                void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    const struct pici_cuda_encode job = {block, capacity, result, src, count, base};
    return pici_diff_batch_cuda(&job, 1, dtype, format, workspace, workspace_bytes, stream);
}

/* ---- decoding and checking ---- */

typedef cudaError_t launch_reader(const struct pici_cuda_decode_jobs *, unsigned jobs, uint64_t n, cudaStream_t);

/* dtype: 0 for verify. cleared: the workspace is zero. */
static enum pici_status read_batch(launch_reader *reader, const struct pici_cuda_decode *jobs, size_t count,
                                   unsigned dtype, bool cleared, void *workspace, size_t workspace_bytes,
                                   cudaStream_t stream)
{
    const unsigned width_log2 = dtype ? (unsigned)pici::width_log2(dtype) : 0;
    if ((!jobs && count) || (!workspace && count) || !is_aligned_to(workspace, 16) ||
        workspace_bytes / sizeof(pici_cuda_control) < count)
        return PICI_E_ARG;
    const uint64_t used = count * sizeof(pici_cuda_control);
    for (size_t i = 0; i < count; i++) {
        const struct pici_cuda_decode *call = jobs + i;
        if (!call->block || !call->result || !is_aligned_to(call->block, 16) || !is_aligned_to(call->result, 8) ||
            !is_aligned_to(call->len_at, 8) || overlap(workspace, used, call->block, call->len) ||
            overlap(workspace, used, call->result, sizeof *call->result) ||
            (call->len_at && overlap(workspace, used, call->len_at, sizeof *call->len_at)))
            return PICI_E_ARG;
        if (dtype &&
            ((!call->dst && call->n) || !is_aligned_to(call->dst, (uintptr_t)1 << width_log2) ||
             call->n > SIZE_MAX >> width_log2 || overlap(call->dst, call->n << width_log2, call->block, call->len) ||
             overlap(call->dst, call->n << width_log2, workspace, used) ||
             overlap(call->dst, call->n << width_log2, call->result, sizeof *call->result)))
            return PICI_E_ARG;
    }
    if (!count)
        return PICI_OK;
    pici_cuda_control *control = (pici_cuda_control *)workspace;
    cudaError_t error = cleared ? cudaSuccess : cudaMemsetAsync(workspace, 0, (size_t)used, stream);
    for (size_t i = 0; i < count && !error; i += BATCH) {
        struct pici_cuda_decode_jobs batch = {};
        uint64_t most = 0;
        unsigned k = 0;
        for (; k < BATCH && i + k < count; k++) {
            const uint64_t work = dtype ? jobs[i + k].n : jobs[i + k].len;
            batch.job[k].call = jobs[i + k];
            batch.job[k].control = control + i + k;
            most = work > most ? work : most;
        }
        batch.dtype = dtype;
        error = reader(&batch, k, most, stream);
    }
    return error ? PICI_E_DEVICE : PICI_OK;
}

enum pici_status pici_decompress_batch_cuda(const struct pici_cuda_decode *jobs, size_t count, enum pici_dtype dtype,
                                            void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    if (pici::width_log2((unsigned)dtype) < 0)
        return PICI_E_ARG;
    return read_batch(pici_cuda_launch_decode, jobs, count, (unsigned)dtype, false, workspace, workspace_bytes, stream);
}

enum pici_status pici_scatter_add_batch_cuda(const struct pici_cuda_decode *jobs, size_t count, enum pici_dtype dtype,
                                             void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    if (pici::width_log2((unsigned)dtype) < 0)
        return PICI_E_ARG;
    return read_batch(pici_cuda_launch_add, jobs, count, (unsigned)dtype, false, workspace, workspace_bytes, stream);
}

enum pici_status pici_apply_batch_cuda(const struct pici_cuda_decode *jobs, size_t count, enum pici_dtype dtype,
                                       void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    if (pici::width_log2((unsigned)dtype) < 0)
        return PICI_E_ARG;
    return read_batch(pici_cuda_launch_apply, jobs, count, (unsigned)dtype, false, workspace, workspace_bytes, stream);
}

enum pici_status pici_cuda_read_cleared(const struct pici_cuda_decode *jobs, size_t count, enum pici_dtype dtype,
                                        int add, void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    return read_batch(add ? pici_cuda_launch_add : pici_cuda_launch_decode, jobs, count, (unsigned)dtype, true,
                      workspace, workspace_bytes, stream);
}

enum pici_status pici_verify_batch_cuda(const struct pici_cuda_decode *jobs, size_t count, void *workspace,
                                        size_t workspace_bytes, cudaStream_t stream)
{
    return read_batch(pici_cuda_launch_verify, jobs, count, 0, false, workspace, workspace_bytes, stream);
}

enum pici_status pici_decompress_cuda(void *dst, uint64_t count, enum pici_dtype dtype, const void *block, size_t size,
                                      const uint64_t *len_at, struct pici_cuda_result *result, void *workspace,
                                      size_t workspace_bytes, cudaStream_t stream)
{
    const struct pici_cuda_decode job = {dst, count, block, size, len_at, result};
    return pici_decompress_batch_cuda(&job, 1, dtype, workspace, workspace_bytes, stream);
}

enum pici_status pici_scatter_add_cuda(void *dst, uint64_t count, enum pici_dtype dtype, const void *block, size_t size,
                                       const uint64_t *len_at, struct pici_cuda_result *result, void *workspace,
                                       size_t workspace_bytes, cudaStream_t stream)
{
    const struct pici_cuda_decode job = {dst, count, block, size, len_at, result};
    return pici_scatter_add_batch_cuda(&job, 1, dtype, workspace, workspace_bytes, stream);
}

enum pici_status pici_apply_cuda(void *dst, uint64_t count, enum pici_dtype dtype, const void *block, size_t size,
                                 const uint64_t *len_at, struct pici_cuda_result *result, void *workspace,
                                 size_t workspace_bytes, cudaStream_t stream)
{
    const struct pici_cuda_decode job = {dst, count, block, size, len_at, result};
    return pici_apply_batch_cuda(&job, 1, dtype, workspace, workspace_bytes, stream);
}

enum pici_status pici_verify_cuda(const void *block, size_t size, const uint64_t *len_at,
                                  struct pici_cuda_result *result, void *workspace, size_t workspace_bytes,
                                  cudaStream_t stream)
{
    const struct pici_cuda_decode job = {nullptr, 0, block, size, len_at, result};
    return pici_verify_batch_cuda(&job, 1, workspace, workspace_bytes, stream);
}
