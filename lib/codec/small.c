/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici_diff_small, pici_apply_small and pici_diff_small_bound: arguments, the header, the directory, threads. */
#include "codec/small.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "codec/codec.h"
#include "codec/parallel.h"
#include "pici/delta.h"
#include "xxh64.h"

enum { STACK = 512 << 10 };

size_t pici_diff_small_bound(enum pici_format format, enum pici_dtype dtype, uint64_t n)
{
    const uint64_t whole = n / SMALL_CHUNK, rest = n % SMALL_CHUNK;
    const uint64_t each = pici_bound(format, dtype, SMALL_CHUNK), last = rest ? pici_bound(format, dtype, rest) : 0;
    if (!each)
        return 0;
    /* each < 2^24, and whole < 2^45 */
    if (whole > (SIZE_MAX - SMALL_HDR_BYTES - SMALL_ENTRY_BYTES - last) / (each + SMALL_ENTRY_BYTES))
        return 0;
    return (size_t)(SMALL_HDR_BYTES + whole * (each + SMALL_ENTRY_BYTES) + (rest ? last + SMALL_ENTRY_BYTES : 0));
}

static uint64_t hash(const uint8_t *delta, size_t len)
{
    const uint64_t none = 0;
    struct pici_xxh64 h;
    pici_xxh64_init(&h, 0);
    pici_xxh64_update(&h, delta, SMALL_HDR_CHECKSUM);
    pici_xxh64_update(&h, &none, sizeof none);
    pici_xxh64_update(&h, delta + SMALL_HDR_BYTES, len - SMALL_HDR_BYTES);
    return pici_xxh64_digest(&h);
}

/* ---- diff ---- */

struct diff {
    uint8_t *delta;
    size_t cap;
    const uint8_t *base, *src;
    uint64_t n, chunks;
    unsigned width_log2;
    enum pici_dtype dtype;
    enum pici_format format;
    int context; /* context chunks are tried */
    struct small_shape shape;
    atomic_size_t next, turn; /* chunk to take; chunk that is placed next */
    size_t at;                /* where that one goes. Only the thread whose turn it is may use it */
    enum pici_status status;  /* likewise */
};

/* The chunk i. Returns its bytes, at *chunk, which is at `block` or the maker's; 0: none was made. */
static size_t make(const struct diff *d, uint64_t i, struct small_maker *m, uint8_t *block, size_t cap,
                   const uint8_t **chunk, int *context, enum pici_status *status)
{
    const uint64_t n = small_chunk_elements(d->n, i), first = i * SMALL_CHUNK;
    const uint8_t *const base = d->base + (first << d->width_log2), *const src = d->src + (first << d->width_log2);
    struct pici_opts opts = PICI_OPTS_INIT;
    uint64_t least = 0;
    size_t len;
    const size_t bytes = m ? pici_small_make(m, chunk, &least, base, src, (size_t)n) : 0;
    *context = bytes != 0;
    if (bytes && bytes < least)
        return bytes;
    /* an XOR block that is not longer, if there is one */
    const enum pici_status s =
        pici_diff(block, bytes && bytes < cap ? bytes : cap, &len, base, src, n, d->dtype, d->format, &opts);
    if (s == PICI_E_SPACE && bytes)
        return bytes;
    *context = 0;
    *chunk = block;
    *status = s;
    return s ? 0 : len;
}

static void place(struct diff *d, uint64_t i, const uint8_t *chunk, size_t len, int context, enum pici_status s)
{
    if (d->status)
        return;
    if (s || len > d->cap - d->at) {
        d->status = s ? s : PICI_E_SPACE;
        return;
    }
    memcpy(d->delta + d->at, chunk, len);
    store_le32(d->delta + SMALL_HDR_BYTES + SMALL_ENTRY_BYTES * i, (uint32_t)len | (context ? SMALL_KIND_CONTEXT : 0));
    d->at += len;
}

static void diff_thread(void *context, int thread)
{
    struct diff *const d = context;
    const uint64_t most = d->n < SMALL_CHUNK ? d->n : SMALL_CHUNK;
    const size_t cap = pici_bound(d->format, d->dtype, most);
    uint8_t *const block = malloc(cap);
    struct small_maker *const m = d->context ? pici_small_maker(most, &d->shape) : NULL;
    const enum pici_status have = block && (m || !d->context) ? PICI_OK : PICI_E_NOMEM;
    (void)thread;
    for (size_t i; (i = atomic_fetch_add(&d->next, 1)) < d->chunks;) {
        enum pici_status s = have;
        const uint8_t *chunk = NULL;
        int is_context = 0;
        const size_t len = s ? 0 : make(d, i, m, block, cap, &chunk, &is_context, &s);
        while (atomic_load_explicit(&d->turn, memory_order_acquire) != i)
            sched_yield();
        place(d, i, chunk, len, is_context, s);
        if (d->status) /* take no more of them */
            atomic_store(&d->next, (size_t)d->chunks);
        atomic_store_explicit(&d->turn, i + 1, memory_order_release);
    }
    free(block);
    pici_small_maker_free(m);
}

static enum pici_status diff(struct diff *d, int threads, int checksum, size_t *len)
{
    if (d->cap < SMALL_HDR_BYTES)
        return PICI_E_SPACE;
    memset(d->delta, 0, SMALL_HDR_BYTES); /* an unfinished delta must not begin with a valid header */
    if (d->chunks > (d->cap - SMALL_HDR_BYTES) / SMALL_ENTRY_BYTES)
        return PICI_E_SPACE;
    d->at = SMALL_HDR_BYTES + SMALL_ENTRY_BYTES * (size_t)d->chunks;
    threads = pici_thread_count(threads, d->chunks);
    if (threads > 1)
        pici_parallel(threads, STACK, diff_thread, d);
    else if (d->chunks)
        diff_thread(d, 0);
    if (d->status)
        return d->status;
    uint8_t *const p = d->delta;
    p[SMALL_HDR_VERSION] = SMALL_FORMAT_VERSION;
    p[SMALL_HDR_DTYPE] = (uint8_t)d->dtype;
    p[SMALL_HDR_FLAGS] = checksum ? SMALL_FLAG_CHECKSUM : 0;
    store_le64(p + SMALL_HDR_COUNT, d->n);
    store_le64(p + SMALL_HDR_LENGTH, d->at);
    memcpy(p + SMALL_HDR_MAGIC, "PICD", 4);
    if (checksum)
        store_le64(p + SMALL_HDR_CHECKSUM, hash(p, d->at));
    *len = d->at;
    return PICI_OK;
}

enum pici_status pici_diff_small(void *block, size_t cap, size_t *len, const void *base, const void *src, uint64_t n,
                                 enum pici_dtype dtype, enum pici_format format, const struct pici_opts *opts)
{
    struct pici_opts o;
    const int w = fmt_width_log2((unsigned)dtype);
    if (len)
        *len = 0;
    if (!block || !len || (n && (!base || !src)) || w < 0 || !pici_format_name(format) || n > SIZE_MAX >> w ||
        pici_overlap(block, cap, src, n << w) || pici_overlap(block, cap, base, n << w))
        return PICI_E_ARG;
    const enum pici_status s = pici_opts_get(&o, opts);
    if (s)
        return s;
    struct diff d = {.delta = block,
                     .cap = cap,
                     .base = base,
                     .src = src,
                     .n = n,
                     .chunks = small_chunks(n),
                     .width_log2 = (unsigned)w,
                     .dtype = dtype,
                     .format = format,
                     .status = PICI_OK};
    d.context = small_shape(&d.shape, (unsigned)dtype);
    atomic_init(&d.next, 0);
    atomic_init(&d.turn, 0);
    return diff(&d, o.threads, o.checksum, len);
}

/* ---- apply ---- */

/* Check the rules "size" to "directory". */
static enum pici_status check_header(const uint8_t *p, size_t len)
{
    if (len < SMALL_HDR_BYTES || memcmp(p, "PICD", 4) != 0)
        return PICI_E_CORRUPT;
    if (p[SMALL_HDR_VERSION] != SMALL_FORMAT_VERSION)
        return PICI_E_VERSION;
    const unsigned flags = p[SMALL_HDR_FLAGS];
    if (fmt_width_log2(p[SMALL_HDR_DTYPE]) < 0 || flags > SMALL_FLAG_CHECKSUM || p[SMALL_HDR_FLAGS + 1] ||
        (!flags && load_le64(p + SMALL_HDR_CHECKSUM)) || load_le64(p + SMALL_HDR_LENGTH) != len)
        return PICI_E_CORRUPT;
    const uint64_t chunks = small_chunks(load_le64(p + SMALL_HDR_COUNT));
    if (chunks > (len - SMALL_HDR_BYTES) / SMALL_ENTRY_BYTES)
        return PICI_E_CORRUPT;
    uint64_t end = SMALL_HDR_BYTES + SMALL_ENTRY_BYTES * chunks;
    for (uint64_t i = 0; i < chunks; i++)
        end += load_le32(p + SMALL_HDR_BYTES + SMALL_ENTRY_BYTES * i) & ~SMALL_KIND_CONTEXT;
    return end == len ? PICI_OK : PICI_E_CORRUPT;
}

struct apply {
    uint8_t *dst;
    const uint8_t *delta;
    uint64_t n, chunks;
    unsigned width_log2, dtype;
    int context; /* context chunks exist */
    struct small_shape shape;
    uint64_t group;     /* chunks that a thread takes at once */
    atomic_size_t next; /* group to take */
    atomic_int status;
};

static int is_context(const struct apply *a, uint64_t i, size_t *len)
{
    const uint32_t entry = load_le32(a->delta + SMALL_HDR_BYTES + SMALL_ENTRY_BYTES * i);
    *len = entry & ~SMALL_KIND_CONTEXT;
    return (entry & SMALL_KIND_CONTEXT) != 0;
}

static enum pici_status apply_xor(const struct apply *a, uint8_t *dst, uint64_t n, const uint8_t *chunk, size_t len)
{
    struct pici_block b;
    enum pici_status s = pici_block_parse(&b, chunk, len, NULL);
    if (s || b.dtype != a->dtype || b.count != n || b.flags & FLAG_CHECKSUM)
        return PICI_E_CORRUPT;
    s = pici_apply(dst, n, chunk, len, NULL);
    return s == PICI_E_ARG || s == PICI_E_VERSION || s == PICI_E_UNSUPPORTED ? PICI_E_CORRUPT : s;
}

/* Apply the chunks [i, end), which begin at chunk. */
static enum pici_status apply_group(const struct apply *a, struct small_reader **r, uint64_t i, uint64_t end,
                                    const uint8_t *chunk)
{
    while (i < end) {
        struct small_part part[2];
        int parts = 0;
        size_t len;
        for (; parts < 2 && i < end && is_context(a, i, &len); i++, chunk += len)
            part[parts++] = (struct small_part){chunk, len, (size_t)small_chunk_elements(a->n, i),
                                                a->dst + (i * SMALL_CHUNK << a->width_log2)};
        enum pici_status s = PICI_OK;
        if (parts) {
            if (!a->context)
                return PICI_E_CORRUPT;
            if (!*r && !(*r = pici_small_reader(a->n, &a->shape)))
                return PICI_E_NOMEM;
            s = pici_small_apply(*r, part, parts) ? PICI_OK : PICI_E_CORRUPT;
        } else {
            is_context(a, i, &len);
            s = apply_xor(a, a->dst + (i * SMALL_CHUNK << a->width_log2), small_chunk_elements(a->n, i), chunk, len);
            i++;
            chunk += len;
        }
        if (s)
            return s;
    }
    return PICI_OK;
}

static void apply_thread(void *context, int thread)
{
    struct apply *const a = context;
    struct small_reader *r = NULL;
    uint64_t at = 0;
    const uint8_t *chunk = a->delta + SMALL_HDR_BYTES + SMALL_ENTRY_BYTES * (size_t)a->chunks;
    (void)thread;
    for (uint64_t i; (i = atomic_fetch_add(&a->next, 1) * a->group) < a->chunks;) {
        const uint64_t end = a->chunks - i < a->group ? a->chunks : i + a->group;
        size_t len;
        for (; at < i; at++, chunk += len)
            is_context(a, at, &len);
        const enum pici_status s = apply_group(a, &r, i, end, chunk);
        if (s) {
            atomic_store(&a->status, s);
            atomic_store(&a->next, (size_t)(a->chunks / a->group + 1));
        }
    }
    pici_small_reader_free(r);
}

enum pici_status pici_apply_small(void *dst, uint64_t n, const void *block, size_t len, const struct pici_opts *opts)
{
    struct pici_opts o;
    enum pici_status s = block ? pici_opts_get(&o, opts) : PICI_E_ARG;
    if (s || (s = check_header(block, len)) != PICI_OK)
        return s;
    const uint8_t *const p = block;
    struct apply a = {.dst = dst, .delta = p, .n = n, .chunks = small_chunks(n), .dtype = p[SMALL_HDR_DTYPE]};
    a.width_log2 = (unsigned)fmt_width_log2(a.dtype);
    if (n != load_le64(p + SMALL_HDR_COUNT) || (n && !dst) || n > SIZE_MAX >> a.width_log2 ||
        pici_overlap(dst, n << a.width_log2, block, len))
        return PICI_E_ARG;
    if (p[SMALL_HDR_FLAGS] && load_le64(p + SMALL_HDR_CHECKSUM) != hash(p, len))
        return PICI_E_CHECKSUM;
    a.context = small_shape(&a.shape, a.dtype);
    const int threads = pici_thread_count(o.threads, a.chunks);
    a.group = a.chunks > (uint64_t)threads ? 2 : 1;
    atomic_init(&a.next, 0);
    atomic_init(&a.status, PICI_OK);
    if (threads > 1)
        pici_parallel(threads, STACK, apply_thread, &a);
    else if (a.chunks)
        apply_thread(&a, 0);
    return (enum pici_status)atomic_load(&a.status);
}
