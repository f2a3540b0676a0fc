/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reading the chunks of a tensor. Whole chunks are read, one for each thread, and decoded straight to where their
 * elements belong. Where only a part of a chunk is asked for, its block is kept for the next call. */
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"
#include "file/reader.h"
#include "format.h"

/* ---- One chunk ---- */

/* Read the record of a chunk of `count` elements to c, without checking its body. place: null in a forward reader. */
static enum pici_status load_at(struct pici_reader *r, struct pici_chunk *c, uint64_t i, uint64_t number,
                                enum pici_dtype dtype, uint64_t count, const struct pici_place *place)
{
    struct pici_record rec;
    c->tensor = PICI_FILE;
    pici_reader_look_at(r, PART_CHUNK, place ? place->offset : r->at);
    r->where_tensor = i;
    r->where_chunk = number;
    enum pici_status s = place ? pici_reader_header_at(r, &rec, place) : pici_reader_header(r, &rec, 0);
    if (!s && rec.kind != REC_BLCK && rec.kind != REC_ZSTD)
        s = pici_reader_wrong_kind(r);
    if (s)
        return s;
    c->kind = (enum pici_rec)rec.kind;
    c->dtype = dtype;
    c->count = count;
    uint64_t most = pici_chunk_bound(c->dtype, c->count);
    if (c->kind == REC_BLCK ? rec.body_bytes < HDR_BYTES || rec.body_bytes > most
                            : rec.body_bytes < 1 || rec.body_bytes >= most)
        return pici_reader_wrong_length(r, &rec);
    s = pici_reader_body(r, &rec, &c->stored, "the chunk");
    if (!s && r->read && pici_index_chunk(&r->index, rec.offset, rec.hash))
        s = pici_reader_no_memory(r, "the index");
    if (s)
        return s;
    c->number = number;
    c->offset = rec.offset;
    c->body_hash = rec.body_hash;
    c->tensor = i;
    return PICI_OK;
}

/* Read chunk number of tensor i. d's pointers are stale once the index has grown. */
static enum pici_status load(struct pici_reader *r, struct pici_chunk *c, uint64_t i, uint64_t number,
                             const struct pici_desc *d)
{
    struct pici_place place;
    if (r->read)
        return load_at(r, c, i, number, d->dtype, pici_desc_chunk(d, number), NULL);
    pici_index_blck(&r->index, (size_t)i, number, r->index_offset, &place);
    return load_at(r, c, i, number, d->dtype, place.count, &place);
}

/* Set the error message of a chunk that was used without success. */
static enum pici_status report(struct pici_reader *r, const struct pici_chunk *c)
{
    enum pici_status s = c->status;
    const char *rule = c->rule;
    pici_reader_look_at(r, PART_CHUNK, c->offset);
    r->where_tensor = c->tensor;
    r->where_chunk = c->number;
    if (s == PICI_E_NOMEM)
        return pici_reader_no_memory(r, "the chunk");
    if (!rule)
        return pici_reader_fail(r, s, NULL, "%s", pici_strerror(s));
    if (s == PICI_E_CHECKSUM && c->fault.status == PICI_OK)
        return pici_reader_fail(r, s, rule, "checksum mismatch");
    if (c->fault.status)
        return pici_reader_fail(r, s, rule, "its block breaks the rule '%s' at byte %" PRIu64 " of the block",
                                c->fault.rule, c->fault.offset);
    static const struct {
        const char *rule, *words;
    } say[] = {{"zstd", "needs zstd, which this build does not have"},
               {"zstd-frame", "not a zstd frame of a block"},
               {"block-checksum", "its block has no checksum"},
               {"block-tensor", "its block is not of the tensor's dtype or of the chunk's length"}};
    for (size_t i = 0; i < sizeof say / sizeof say[0]; i++)
        if (strcmp(rule, say[i].rule) == 0)
            return pici_reader_fail(r, s, rule, "%s", say[i].words);
    return pici_reader_fail(r, s, rule, "%s", pici_strerror(s));
}

/* ---- Several chunks ---- */

struct batch {
    struct pici_reader *r;
    enum pici_chunk_use use;
    uint8_t *dst;
    size_t stride; /* bytes from a chunk's elements to the next chunk's */
    int threads;   /* inside each block */
};

static void use_one(void *context, int k)
{
    const struct batch *b = context;
    pici_use_chunk(&b->r->chunks[k], b->use, b->use >= CHUNK_DECODE ? b->dst + (size_t)k * b->stride : NULL,
                   b->threads);
}

enum pici_status pici_reader_chunks(struct pici_reader *r, uint64_t i, const struct pici_desc *d, uint64_t first, int n,
                                    enum pici_chunk_use use, void *dst)
{
    enum pici_status unread = PICI_OK;
    int loaded = 0;
    while (loaded < n && !unread) {
        unread = load(r, &r->chunks[loaded], i, first + (uint64_t)loaded, d);
        loaded += !unread;
    }
    struct batch b = {.r = r, .use = use, .dst = dst, .stride = d->chunk_elements * d->width};
    b.threads = n == 1 ? r->threads : 1;
    if (loaded)
        pici_chunks_parallel(loaded, use_one, &b);
    for (int k = 0; k < loaded; k++) /* the first chunk with a fault is reported */
        if (r->chunks[k].status)
            return report(r, &r->chunks[k]);
    return unread;
}

/* The chunk that is kept for parts of tensor i: of a small one, that of its dtype. *have: it is the right one. */
static struct pici_chunk *kept(struct pici_reader *r, uint64_t i, const struct pici_desc *d, uint64_t number, int *have)
{
    const struct pici_table *t = pici_index_table_of(&r->index, (size_t)i);
    if (!t) {
        *have = r->part.tensor == i && r->part.number == number;
        return &r->part;
    }
    if (!r->common && (r->common = calloc(DTYPES, sizeof *r->common)))
        for (int k = 0; k < DTYPES; k++)
            r->common[k].tensor = PICI_FILE;
    struct pici_chunk *c = r->common ? &r->common[d->dtype] : NULL;
    *have = c && c->tensor != PICI_FILE && pici_index_table_of(&r->index, (size_t)c->tensor) == t;
    return c;
}

enum pici_status pici_reader_open_part(struct pici_reader *r, uint64_t i, const struct pici_desc *d, uint64_t number,
                                       struct pici_chunk **part)
{
    int have;
    struct pici_chunk *c = *part = kept(r, i, d, number, &have);
    if (have)
        return PICI_OK;
    enum pici_status s = c ? load(r, c, i, number, d) : pici_reader_no_memory(r, "the common chunks");
    if (s)
        return s;
    pici_use_chunk(c, r->read ? CHUNK_VERIFY : CHUNK_OPEN, NULL,
                   1); /* forward: all of it is checked, as reads may end in it */
    if (!c->status)
        return PICI_OK;
    s = report(r, c);
    c->tensor = PICI_FILE;
    return s;
}

/* Decode or apply n elements of a chunk, from element `from` of the chunk on. */
static enum pici_status read_part(struct pici_reader *r, uint64_t i, const struct pici_desc *d, uint64_t number,
                                  uint64_t from, uint64_t n, enum pici_chunk_use use, void *dst)
{
    struct pici_chunk *c;
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.threads = r->threads;
    enum pici_status s = pici_reader_open_part(r, i, d, number, &c);
    if (s)
        return s;
    size_t len;
    const uint8_t *block = pici_chunk_block(c, &len);
    s = (use == CHUNK_APPLY ? pici_apply_range : pici_decompress_range)(dst, from, n, block, len, &opts);
    if (!s)
        return PICI_OK;
    pici_use_chunk(c, CHUNK_VERIFY, NULL, 1); /* find the rule that is broken */
    if (!c->status)
        c->status = s;
    s = report(r, c);
    c->tensor = PICI_FILE;
    return s;
}

/* ---- Small tensors ---- */

/* The first tensor of a table with elements of that dtype, of which there are some. */
static size_t first_of(const struct pici_reader *r, const struct pici_table *t, enum pici_dtype dtype)
{
    struct pici_desc d;
    size_t i = t->first;
    for (pici_index_desc(&r->index, i, &d); d.dtype != dtype || !d.count; pici_index_desc(&r->index, i, &d))
        i++;
    return i;
}

/* Forward: read the common chunks of the current tensor's table, unless they have been. */
static enum pici_status read_common(struct pici_reader *r)
{
    const struct pici_table *t = pici_index_table_of(&r->index, (size_t)r->current);
    struct pici_chunk *c = &r->chunks[0];
    size_t at = 0;
    if (r->have_elements)
        return PICI_OK;
    if (pici_buf_fit(&r->elements, t->element_bytes))
        return pici_reader_no_memory(r, "the elements of small tensors");
    for (int k = 0; k < DTYPES; k++) {
        const enum pici_dtype dtype = (enum pici_dtype)k;
        if (!t->count[k])
            continue;
        enum pici_status s = load_at(r, c, first_of(r, t, dtype), 0, dtype, t->count[k], NULL);
        if (s)
            return s;
        pici_use_chunk(c, CHUNK_DECODE, r->elements.p + at, 1);
        if (c->status)
            return report(r, c);
        r->elements_at[k] = at;
        at += t->count[k] * pici_dtype_width(dtype);
    }
    r->have_elements = 1;
    return PICI_OK;
}

/* Elements of a small tensor. Forward: of the current one. */
static enum pici_status small_elements(struct pici_reader *r, uint64_t i, const struct pici_desc *d, uint64_t first,
                                       uint64_t n, enum pici_chunk_use use, void *dst)
{
    if (!n)
        return PICI_OK;
    first += pici_index_first(&r->index, (size_t)i);
    if (!r->read)
        return read_part(r, i, d, 0, first, n, use, dst);
    enum pici_status s = read_common(r);
    if (!s)
        memcpy(dst, r->elements.p + r->elements_at[d->dtype] + (size_t)first * d->width, (size_t)n * d->width);
    return s;
}

/* ---- All of them ---- */

enum pici_status pici_reader_elements(struct pici_reader *r, uint64_t i, const struct pici_desc *d, uint64_t first,
                                      uint64_t n, enum pici_chunk_use use, void *dst)
{
    const uint64_t chunk = d->chunk_elements;
    uint8_t *to = dst;
    if (pici_index_table_of(&r->index, (size_t)i))
        return small_elements(r, i, d, first, n, use, dst);
    while (n) {
        uint64_t number = first / chunk, from = first % chunk, here = pici_desc_chunk(d, number) - from;
        enum pici_status s;
        if (from || here > n) {
            here = here < n ? here : n;
            s = read_part(r, i, d, number, from, here, use, to);
        } else {
            uint64_t whole = first + n == d->count ? d->chunks - number : n / chunk;
            int k = whole < (uint64_t)r->slots ? (int)whole : r->slots;
            s = pici_reader_chunks(r, i, d, number, k, use, to);
            here = number + (uint64_t)k == d->chunks ? d->count - first : (uint64_t)k * chunk;
        }
        if (s)
            return s;
        to += (size_t)here * d->width;
        first += here;
        n -= here;
    }
    return PICI_OK;
}

/* ---- The current tensor ---- */

void pici_reader_current(const struct pici_reader *r, struct pici_desc *d)
{
    if (r->read)
        pici_desc_parse(d, r->attrs.body.p, r->attrs.body.len);
    else
        pici_index_desc(&r->index, (size_t)r->current, d);
}

enum pici_status pici_reader_pass(struct pici_reader *r)
{
    struct pici_desc d;
    if (r->current == PICI_FILE)
        return PICI_OK;
    pici_reader_current(r, &d);
    if (pici_index_table_of(&r->index, (size_t)r->current)) {
        r->pos = d.count;
        return r->current + 1 < r->index.n ? PICI_OK : read_common(r);
    }
    uint64_t c = r->pos / d.chunk_elements + (r->pos % d.chunk_elements != 0);
    for (enum pici_status s; c < d.chunks; c++)
        if ((s = pici_reader_chunks(r, r->current, &d, c, 1, CHUNK_HASH, NULL)) != PICI_OK)
            return s;
    r->pos = d.count;
    return PICI_OK;
}
