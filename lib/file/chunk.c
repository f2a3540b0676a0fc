/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One chunk: converts elements to a block, which a zstd frame may compress, and back. Each chunk has its own memory and
 * result, so that threads can work on several chunks in parallel. */
#include <stdlib.h>

#include "codec/block.h"
#include "bytes.h"
#include "file/file.h"
#include "codec/parallel.h"
#include "pici/delta.h"
#include "xxh64.h"

#ifdef PICI_HAVE_ZSTD
#include <zstd.h>
#endif

void pici_chunks_parallel(int threads, void (*work)(void *, int), void *context)
{
    if (threads == 1)
        work(context, 0);
    else
        pici_parallel(threads, 1 << 20, work, context); /* stack of a thread, in bytes; the codec and zstd need less */
}

/* ---- zstd ---- */

#ifdef PICI_HAVE_ZSTD

enum pici_status pici_zstd_level(int level)
{
    return level == 0 || (level >= ZSTD_minCLevel() && level <= ZSTD_maxCLevel()) ? PICI_OK : PICI_E_ARG;
}

/* Compress the block to a frame. */
static enum pici_status squeeze(struct pici_packer *packer, int level)
{
    if (!packer->zstd && !(packer->zstd = ZSTD_createCCtx()))
        return PICI_E_NOMEM;
    enum pici_status status = pici_buf_fit(&packer->frame, ZSTD_compressBound(packer->block.size));
    if (status)
        return status;
    size_t size = ZSTD_compressCCtx(packer->zstd, packer->frame.data, packer->frame.capacity, packer->block.data,
                                    packer->block.size, level);
    if (ZSTD_isError(size))
        return PICI_E_NOMEM; /* the capacity suffices and the level is valid: nothing else fails */
    packer->frame.size = size;
    return PICI_OK;
}

/* Decompress the frame to chunk->block. */
static enum pici_status unsqueeze(struct pici_chunk *chunk)
{
    const void *frame = chunk->stored.data;
    size_t size = chunk->stored.size;
    unsigned long long n = ZSTD_getFrameContentSize(frame, size);
    chunk->rule = "zstd-frame";
    if (size < 4 || load_le32(frame) != ZSTD_MAGICNUMBER) /* libzstd may also read formats older than its 1.0 */
        return PICI_E_CORRUPT;
    if (n == ZSTD_CONTENTSIZE_UNKNOWN || n == ZSTD_CONTENTSIZE_ERROR || n <= size ||
        n > pici_chunk_bound(chunk->dtype, chunk->count) || ZSTD_findFrameCompressedSize(frame, size) != size)
        return PICI_E_CORRUPT;
    enum pici_status status = pici_buf_fit(&chunk->block, n);
    if (!status && !chunk->zstd && !(chunk->zstd = ZSTD_createDCtx()))
        status = PICI_E_NOMEM;
    if (status)
        return status;
    chunk->block.size = (size_t)n;
    return ZSTD_decompressDCtx(chunk->zstd, chunk->block.data, chunk->block.size, frame, size) == n ? PICI_OK
                                                                                                    : PICI_E_CORRUPT;
}

static void free_zstd(void *compress, void *decompress)
{
    ZSTD_freeCCtx(compress);
    ZSTD_freeDCtx(decompress);
}

#else

enum pici_status pici_zstd_level(int level)
{
    return level ? PICI_E_UNSUPPORTED : PICI_OK;
}

static enum pici_status squeeze(struct pici_packer *packer, int level)
{
    (void)packer;
    (void)level;
    return PICI_E_UNSUPPORTED;
}

static enum pici_status unsqueeze(struct pici_chunk *chunk)
{
    chunk->rule = "zstd";
    return PICI_E_UNSUPPORTED;
}

static void free_zstd(void *compress, void *decompress)
{
    (void)compress;
    (void)decompress;
}

#endif

/* ---- Encoding ---- */

static void swap(struct pici_buf *buffer, struct pici_buf *other)
{
    const struct pici_buf held = *buffer;
    *buffer = *other;
    *other = held;
}

/* The length of the record of the block, or of its frame. */
static size_t record_bytes(const struct pici_packer *packer)
{
    return rec_bytes(packer->kind == REC_ZSTD ? packer->frame.size : packer->block.size);
}

/* Encode the elements as a block, and try a frame. Sets kind; returns the status. */
static enum pici_status pack_as(struct pici_packer *packer, const void *base_elements, const void *source,
                                uint64_t count, const struct pici_pack_how *how, enum pici_pack pack)
{
    struct pici_opts options = PICI_OPTS_INIT;
    options.threads = how->threads;
    options.checksum = 1;
    const int integers = how->format == PICI_PACKED && !pici_bound(PICI_PACKED, how->dtype, 1);
    const enum pici_format format = integers ? PICI_HYBRID : how->format;
    options.zeros = how->delta ? PICI_ZEROS_EXACT : how->zeros; /* as pici_diff does, so that both make the same */
    options.pack = pack;
    packer->kind = REC_BLCK;
    enum pici_status status = pici_buf_fit(&packer->block, pici_bound(format, how->dtype, count));
    if (!status && base_elements)
        status = pici_diff(packer->block.data, packer->block.capacity, &packer->block.size, base_elements, source,
                           count, how->dtype, format, &options);
    else if (!status)
        status = pici_compress(packer->block.data, packer->block.capacity, &packer->block.size, source, count,
                               how->dtype, format, &options);
    if (status || !how->zstd_level)
        return status;
    status = squeeze(packer, how->zstd_level);
    if (!status && rec_bytes(packer->frame.size) < rec_bytes(packer->block.size))
        packer->kind = REC_ZSTD;
    return status;
}

void pici_pack_chunk(struct pici_packer *packer, const void *base_elements, const void *source, uint64_t count,
                     const struct pici_pack_how *how)
{
    const enum pici_pack pack = how->delta && how->format != PICI_PACKED ? PICI_PACK_NONE : how->pack;
    packer->status = pack_as(packer, base_elements, source, count, how, pack);
    if (packer->status || !how->zstd_level || !pack || how->format == PICI_PACKED ||
        packer->block.data[HDR_FORMAT] != PICI_PACKED)
        return;
    /* zstd gains less from packed values, so try the block without packing too. */
    const enum pici_rec kind = packer->kind;
    const size_t packed_bytes = record_bytes(packer);
    swap(&packer->block, &packer->other_block);
    swap(&packer->frame, &packer->other_frame);
    packer->status = pack_as(packer, base_elements, source, count, how, PICI_PACK_NONE);
    if (packer->status || record_bytes(packer) < packed_bytes)
        return;
    swap(&packer->block, &packer->other_block);
    swap(&packer->frame, &packer->other_frame);
    packer->kind = kind;
}

void pici_packer_free(struct pici_packer *packer)
{
    pici_buf_free(&packer->block);
    pici_buf_free(&packer->frame);
    pici_buf_free(&packer->other_block);
    pici_buf_free(&packer->other_frame);
    free_zstd(packer->zstd, NULL);
    packer->zstd = NULL;
}

/* ---- Decoding ---- */

const uint8_t *pici_chunk_block(const struct pici_chunk *chunk, size_t *size)
{
    const struct pici_buf *buffer = chunk->kind == REC_ZSTD ? &chunk->block : &chunk->stored;
    *size = buffer->size;
    return buffer->data;
}

static enum pici_status check_hash(struct pici_chunk *chunk)
{
    uint64_t actual = chunk->kind == REC_BLCK ? pici_block_hash(chunk->stored.data, chunk->stored.size)
                                              : pici_xxh64(chunk->stored.data, chunk->stored.size, 0);
    chunk->rule = "body-hash";
    if (actual != chunk->body_hash ||
        (chunk->kind == REC_BLCK && actual != load_le64(chunk->stored.data + HDR_CHECKSUM)))
        return PICI_E_CHECKSUM;
    return PICI_OK;
}

/* Check the rules of the chunk in their order, except those inside the block. */
static enum pici_status open_chunk(struct pici_chunk *chunk)
{
    enum pici_status status = chunk->kind == REC_ZSTD ? unsqueeze(chunk) : PICI_OK;
    if (status)
        return status;
    size_t size;
    const uint8_t *bytes = pici_chunk_block(chunk, &size);
    struct pici_block parsed;
    chunk->rule = "block";
    status = pici_block_parse(&parsed, bytes, size, &chunk->fault);
    if (!status)
        status = pici_block_whole(&parsed, size, &chunk->fault);
    if (status)
        return status;
    chunk->rule = "block-checksum";
    if (!(parsed.flags & FLAG_CHECKSUM))
        return PICI_E_CORRUPT;
    chunk->rule = "block-tensor";
    return parsed.dtype == (unsigned)chunk->dtype && parsed.count == chunk->count ? PICI_OK : PICI_E_CORRUPT;
}

/* Check all rules, in their order. */
static enum pici_status check_all(struct pici_chunk *chunk)
{
    enum pici_status status = check_hash(chunk);
    if (!status)
        status = open_chunk(chunk);
    if (status)
        return status;
    size_t size;
    const uint8_t *bytes = pici_chunk_block(chunk, &size);
    chunk->rule = "block";
    return pici_verify_at(bytes, size, &chunk->fault);
}

static enum pici_status decode(struct pici_chunk *chunk, enum pici_chunk_use use, void *destination, int threads)
{
    struct pici_opts options = PICI_OPTS_INIT;
    size_t size;
    const uint8_t *bytes = pici_chunk_block(chunk, &size);
    options.threads = threads;
    return (use == CHUNK_APPLY ? pici_apply : pici_decompress)(destination, chunk->count, bytes, size, &options);
}

static enum pici_status use(struct pici_chunk *chunk, enum pici_chunk_use use, void *destination, int threads)
{
    enum pici_status status;
    if (use == CHUNK_VERIFY)
        return check_all(chunk);
    if (use < CHUNK_DECODE) {
        status = check_hash(chunk);
        return status || use == CHUNK_HASH ? status : open_chunk(chunk);
    }
    /* In a BLCK record the codec checks the block's checksum, which is the record's hash, so it is not checked twice.
     * On an error, check_all finds the first broken rule. */
    status = chunk->kind == REC_ZSTD ? check_hash(chunk) : PICI_OK;
    if (!status)
        status = open_chunk(chunk);
    if (!status && chunk->kind == REC_BLCK && chunk->body_hash != load_le64(chunk->stored.data + HDR_CHECKSUM))
        status = PICI_E_CHECKSUM;
    if (!status)
        status = decode(chunk, use, destination, threads);
    if (!status || status == PICI_E_NOMEM)
        return status;
    enum pici_status first = check_all(chunk);
    return first ? first : status;
}

void pici_use_chunk(struct pici_chunk *chunk, enum pici_chunk_use how, void *destination, int threads)
{
    static const struct pici_fault no_fault = PICI_FAULT_INIT;
    chunk->fault = no_fault;
    chunk->rule = NULL;
    chunk->status = use(chunk, how, destination, threads);
}

void pici_chunk_free(struct pici_chunk *chunk)
{
    pici_buf_free(&chunk->stored);
    pici_buf_free(&chunk->block);
    free_zstd(NULL, chunk->zstd);
    chunk->zstd = NULL;
}
