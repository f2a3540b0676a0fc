/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One chunk: elements to a block, which may be put into a zstd frame, and back. A chunk has its own memory and its own
 * result, so that several can be worked on at once, one thread each. */
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

void pici_chunks_parallel(int n, void (*work)(void *, int), void *context)
{
    if (n == 1)
        work(context, 0);
    else
        pici_parallel(n, 1 << 20, work, context); /* stack of a thread, in bytes; the codec and zstd need less */
}

/* ---- zstd ---- */

#ifdef PICI_HAVE_ZSTD

enum pici_status pici_zstd_level(int level)
{
    return level == 0 || (level >= ZSTD_minCLevel() && level <= ZSTD_maxCLevel()) ? PICI_OK : PICI_E_ARG;
}

/* Compress the block to a frame. */
static enum pici_status squeeze(struct pici_packer *k, int level)
{
    if (!k->zstd && !(k->zstd = ZSTD_createCCtx()))
        return PICI_E_NOMEM;
    enum pici_status s = pici_buf_fit(&k->frame, ZSTD_compressBound(k->block.len));
    if (s)
        return s;
    size_t n = ZSTD_compressCCtx(k->zstd, k->frame.p, k->frame.cap, k->block.p, k->block.len, level);
    if (ZSTD_isError(n))
        return PICI_E_NOMEM; /* the capacity suffices and the level is valid: nothing else fails */
    k->frame.len = n;
    return PICI_OK;
}

/* Decompress the frame to c->block. */
static enum pici_status unsqueeze(struct pici_chunk *c)
{
    const void *frame = c->stored.p;
    size_t len = c->stored.len;
    unsigned long long n = ZSTD_getFrameContentSize(frame, len);
    c->rule = "zstd-frame";
    if (len < 4 || load_le32(frame) != ZSTD_MAGICNUMBER) /* libzstd may also read the formats before its 1.0 */
        return PICI_E_CORRUPT;
    if (n == ZSTD_CONTENTSIZE_UNKNOWN || n == ZSTD_CONTENTSIZE_ERROR || n <= len ||
        n > pici_chunk_bound(c->dtype, c->count) || ZSTD_findFrameCompressedSize(frame, len) != len)
        return PICI_E_CORRUPT;
    enum pici_status s = pici_buf_fit(&c->block, n);
    if (!s && !c->zstd && !(c->zstd = ZSTD_createDCtx()))
        s = PICI_E_NOMEM;
    if (s)
        return s;
    c->block.len = (size_t)n;
    return ZSTD_decompressDCtx(c->zstd, c->block.p, c->block.len, frame, len) == n ? PICI_OK : PICI_E_CORRUPT;
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

static enum pici_status squeeze(struct pici_packer *k, int level)
{
    (void)k;
    (void)level;
    return PICI_E_UNSUPPORTED;
}

static enum pici_status unsqueeze(struct pici_chunk *c)
{
    c->rule = "zstd";
    return PICI_E_UNSUPPORTED;
}

static void free_zstd(void *compress, void *decompress)
{
    (void)compress;
    (void)decompress;
}

#endif

/* ---- Encoding ---- */

void pici_pack_chunk(struct pici_packer *k, const void *base, const void *src, uint64_t n,
                     const struct pici_pack_how *how)
{
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.threads = how->threads;
    opts.checksum = 1;
    opts.zeros = how->zeros;
    opts.pack = how->pack;
    const int integers = how->format == PICI_PACKED && !pici_bound(PICI_PACKED, how->dtype, 1);
    const enum pici_format format = integers ? PICI_HYBRID : how->format;
    k->kind = REC_BLCK;
    k->status = pici_buf_fit(&k->block, pici_bound(format, how->dtype, n));
    if (!k->status && base)
        k->status = pici_diff(k->block.p, k->block.cap, &k->block.len, base, src, n, how->dtype, format, &opts);
    else if (!k->status)
        k->status = pici_compress(k->block.p, k->block.cap, &k->block.len, src, n, how->dtype, format, &opts);
    if (k->status || !how->zstd_level)
        return;
    k->status = squeeze(k, how->zstd_level);
    if (!k->status && rec_bytes(k->frame.len) < rec_bytes(k->block.len))
        k->kind = REC_ZSTD;
}

void pici_packer_free(struct pici_packer *k)
{
    pici_buf_free(&k->block);
    pici_buf_free(&k->frame);
    free_zstd(k->zstd, NULL);
    k->zstd = NULL;
}

/* ---- Decoding ---- */

const uint8_t *pici_chunk_block(const struct pici_chunk *c, size_t *len)
{
    const struct pici_buf *b = c->kind == REC_ZSTD ? &c->block : &c->stored;
    *len = b->len;
    return b->p;
}

static enum pici_status check_hash(struct pici_chunk *c)
{
    uint64_t h =
        c->kind == REC_BLCK ? pici_block_hash(c->stored.p, c->stored.len) : pici_xxh64(c->stored.p, c->stored.len, 0);
    c->rule = "body-hash";
    if (h != c->body_hash || (c->kind == REC_BLCK && h != load_le64(c->stored.p + HDR_CHECKSUM)))
        return PICI_E_CHECKSUM;
    return PICI_OK;
}

/* Check the rules of the chunk in their order, but for those inside the block. */
static enum pici_status open_chunk(struct pici_chunk *c)
{
    enum pici_status s = c->kind == REC_ZSTD ? unsqueeze(c) : PICI_OK;
    if (s)
        return s;
    size_t len;
    const uint8_t *p = pici_chunk_block(c, &len);
    struct pici_block b;
    c->rule = "block";
    s = pici_block_parse(&b, p, len, &c->fault);
    if (!s)
        s = pici_block_whole(&b, len, &c->fault);
    if (s)
        return s;
    c->rule = "block-checksum";
    if (!(b.flags & FLAG_CHECKSUM))
        return PICI_E_CORRUPT;
    c->rule = "block-tensor";
    return b.dtype == (unsigned)c->dtype && b.count == c->count ? PICI_OK : PICI_E_CORRUPT;
}

/* Check all rules, in their order. */
static enum pici_status check_all(struct pici_chunk *c)
{
    enum pici_status s = check_hash(c);
    if (!s)
        s = open_chunk(c);
    if (s)
        return s;
    size_t len;
    const uint8_t *p = pici_chunk_block(c, &len);
    c->rule = "block";
    return pici_verify_at(p, len, &c->fault);
}

static enum pici_status decode(struct pici_chunk *c, enum pici_chunk_use use, void *dst, int threads)
{
    struct pici_opts opts = PICI_OPTS_INIT;
    size_t len;
    const uint8_t *p = pici_chunk_block(c, &len);
    opts.threads = threads;
    return (use == CHUNK_APPLY ? pici_apply : pici_decompress)(dst, c->count, p, len, &opts);
}

static enum pici_status use(struct pici_chunk *c, enum pici_chunk_use use, void *dst, int threads)
{
    enum pici_status s;
    if (use == CHUNK_VERIFY)
        return check_all(c);
    if (use < CHUNK_DECODE) {
        s = check_hash(c);
        return s || use == CHUNK_HASH ? s : open_chunk(c);
    }
    /* In a BLCK record the codec checks the block's checksum, which is the record's hash, so it is not checked twice.
     * Where something is wrong, check_all finds the first rule that is broken. */
    s = c->kind == REC_ZSTD ? check_hash(c) : PICI_OK;
    if (!s)
        s = open_chunk(c);
    if (!s && c->kind == REC_BLCK && c->body_hash != load_le64(c->stored.p + HDR_CHECKSUM))
        s = PICI_E_CHECKSUM;
    if (!s)
        s = decode(c, use, dst, threads);
    if (!s || s == PICI_E_NOMEM)
        return s;
    enum pici_status first = check_all(c);
    return first ? first : s;
}

void pici_use_chunk(struct pici_chunk *c, enum pici_chunk_use how, void *dst, int threads)
{
    static const struct pici_fault none = PICI_FAULT_INIT;
    c->fault = none;
    c->rule = NULL;
    c->status = use(c, how, dst, threads);
}

void pici_chunk_free(struct pici_chunk *c)
{
    pici_buf_free(&c->stored);
    pici_buf_free(&c->block);
    free_zstd(NULL, c->zstd);
    c->zstd = NULL;
}
