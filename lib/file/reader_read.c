/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The public functions that read elements of a .pici file, or verify the whole file. */
#include <stdio.h>

#include "file/reader.h"
#include "sized.h"

enum pici_status pici_reader_read(struct pici_reader *r, void *dst, uint64_t n)
{
    struct pici_desc d;
    enum pici_status s = pici_reader_enter(r);
    if (s)
        return s;
    if (r->current == PICI_FILE)
        return pici_reader_refuse(r, PICI_E_ARG, "there is no current tensor");
    pici_reader_current(r, &d);
    if (n > d.count - r->pos || (n && !dst))
        return pici_reader_refuse(r, PICI_E_ARG, "null, or %" PRIu64 " elements where %" PRIu64 " remain", n,
                                  (d.count - r->pos));
    s = pici_reader_elements(r, r->current, &d, r->pos, n, CHUNK_DECODE, dst);
    if (!s)
        r->pos += n;
    return s;
}

/* Random access: the description of tensor i. */
static enum pici_status describe(struct pici_reader *r, uint64_t i, struct pici_desc *d)
{
    enum pici_status s = pici_reader_enter(r);
    if (s)
        return s;
    if (r->read)
        return pici_reader_refuse(r, PICI_E_ARG, "a forward reader has no random access");
    if (i >= r->index.n)
        return pici_reader_refuse(r, PICI_E_ARG, "no tensor %" PRIu64 ": there are %zu", i, r->index.n);
    pici_index_desc(&r->index, (size_t)i, d);
    return PICI_OK;
}

static enum pici_status range(struct pici_reader *r, uint64_t i, uint64_t first, uint64_t n, enum pici_chunk_use use,
                              void *dst)
{
    struct pici_desc d;
    enum pici_status s = describe(r, i, &d);
    if (s)
        return s;
    if (first > d.count || n > d.count - first || (n && !dst))
        return pici_reader_refuse(r, PICI_E_ARG, "null, or elements [%" PRIu64 ", +%" PRIu64 ") of %" PRIu64, first, n,
                                  d.count);
    return pici_reader_elements(r, i, &d, first, n, use, dst);
}

enum pici_status pici_reader_read_range(struct pici_reader *r, uint64_t i, uint64_t first, uint64_t n, void *dst)
{
    return range(r, i, first, n, CHUNK_DECODE, dst);
}

enum pici_status pici_reader_apply_range(struct pici_reader *r, uint64_t i, uint64_t first, uint64_t n, void *dst)
{
    return range(r, i, first, n, CHUNK_APPLY, dst);
}

enum pici_status pici_reader_chunk(struct pici_reader *r, uint64_t i, uint64_t c, struct pici_chunk_info *info)
{
    struct pici_desc d;
    enum pici_status s = describe(r, i, &d);
    if (s)
        return s;
    if (!info || sized_of(info) < sizeof *info || c >= d.chunks)
        return pici_reader_refuse(r, PICI_E_ARG, "null, not initialized, or no chunk %" PRIu64 " of %" PRIu64, c,
                                  d.chunks);
    struct pici_chunk *part;
    s = pici_reader_open_part(r, i, &d, c, &part);
    if (s)
        return s;
    struct pici_chunk_info own = PICI_CHUNK_INFO_INIT;
    size_t len;
    const uint8_t *block = pici_chunk_block(part, &len);
    own.offset = part->offset;
    own.stored_bytes = part->stored.len;
    own.first = c * d.chunk_elements;
    own.zstd = part->kind == REC_ZSTD;
    s = pici_inspect(&own.block, block, len);
    return s ? s : sized_write(info, &own, sizeof own, sizeof own);
}

/* ---- Verification ---- */

static enum pici_status verify_forward(struct pici_reader *r)
{
    for (;;) {
        struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
        struct pici_desc d;
        int more;
        enum pici_status s = pici_reader_next(r, &t, &more);
        if (s || !more)
            return s;
        pici_reader_current(r, &d);
        if (pici_index_table_of(&r->index, (size_t)r->current))
            continue; /* its chunk is checked when it is read, before the next record */
        for (uint64_t c = 0; c < d.chunks && !s;) {
            int k = d.chunks - c < (uint64_t)r->slots ? (int)(d.chunks - c) : r->slots;
            s = pici_reader_chunks(r, r->current, &d, c, k, CHUNK_VERIFY, NULL);
            c += (uint64_t)k;
        }
        if (s)
            return s;
        r->pos = d.count;
    }
}

/* The file of a random-access reader as the source of a forward reader. */
struct source {
    struct pici_reader *r;
    uint64_t at;
};

static int read_on(void *ctx, void *p, size_t cap, size_t *got)
{
    struct source *from = ctx;
    uint64_t left = from->r->file_bytes - from->at;
    *got = left < cap ? (size_t)left : cap;
    int e = *got ? from->r->read_at(from->r->ctx, p, *got, from->at) : 0;
    from->at += *got;
    return e;
}

enum pici_status pici_reader_verify(struct pici_reader *r)
{
    enum pici_status s = pici_reader_enter(r);
    if (s)
        return s;
    if (r->read && (r->current != PICI_FILE || r->ended))
        return pici_reader_refuse(r, PICI_E_ARG, "the file has been read in part");
    if (r->read)
        return verify_forward(r);
    struct source from = {.r = r};
    struct pici_reader_opts opts = PICI_READER_OPTS_INIT;
    struct pici_reader *whole;
    opts.threads = r->threads;
    s = pici_reader_open_stream(&whole, read_on, &from, &opts);
    if (!s)
        s = verify_forward(whole);
    if (s) {
        snprintf(r->error, sizeof r->error, "%s", pici_reader_error(whole));
        r->where_offset = pici_reader_error_offset(whole);
    }
    pici_reader_close(whole);
    return s;
}
