/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The engine for elements in the host's memory: the codec, and the kernels below it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"
#include "coll/engine.h"
#include "cpu/kernels.h"
#include "cpu/reduce.h"

struct pici_lane {
    const uint8_t *looked; /* the message that was looked at last */
};

struct host {
    uint8_t *scratch;
    size_t bytes;
    struct pici_lane lane[COLL_MAX_WINDOW];
    char error[120];
};

/* ---- memory */

void *pici_engine_host_new(void)
{
    return calloc(1, sizeof(struct host));
}

enum pici_status pici_engine_host_reserve(void *self, size_t bytes)
{
    struct host *h = self;
    if (bytes <= h->bytes)
        return PICI_OK;
    uint8_t *more =
        bytes > SIZE_MAX - COLL_ALIGN ? NULL : aligned_alloc(COLL_ALIGN, (bytes + COLL_ALIGN) & -(size_t)COLL_ALIGN);
    if (!more)
        return PICI_E_NOMEM;
    free(h->scratch);
    h->scratch = more;
    h->bytes = bytes;
    return PICI_OK;
}

size_t pici_engine_host_scratch(const void *self)
{
    const struct host *h = self;
    return h->bytes;
}

static enum pici_status host_room(void *self, const struct engine_needs *needs, struct engine_room *room,
                                  struct pici_lane **lanes)
{
    struct host *h = self;
    const size_t temp = needs->temp ? needs->temp : COLL_TEMP_BYTES;
    const size_t all = needs->messages + needs->sums + needs->arrays + temp + COLL_ALIGN;
    h->error[0] = '\0';
    for (int i = 0; i < needs->lanes; i++)
        lanes[i] = &h->lane[i];
    *room = (struct engine_room){0};
    if (!needs->messages)
        return PICI_OK; /* there is no data to exchange */
    if (needs->memory && needs->memory_bytes < all) {
        snprintf(h->error, sizeof h->error, "%zu bytes of scratch where %zu are needed", needs->memory_bytes, all);
        return PICI_E_SPACE;
    }
    if (!needs->memory && pici_engine_host_reserve(h, all)) {
        snprintf(h->error, sizeof h->error, "no memory for %zu bytes of scratch", all);
        return PICI_E_NOMEM;
    }
    uint8_t *at = needs->memory ? needs->memory : h->scratch;
    at += -(uintptr_t)at % COLL_ALIGN;
    room->messages = at;
    room->sums = at + needs->messages;
    room->arrays = room->sums + needs->sums;
    room->temp = room->arrays + needs->arrays;
    return PICI_OK;
}

static void host_close(void *self, int leak)
{
    struct host *h = self;
    if (!leak)
        free(h->scratch);
    free(h);
}

static const char *host_error(void *self)
{
    const struct host *h = self;
    return h->error;
}

/* ---- trivial functions: all memory is the host's, and work has ended when a function returns */

static int host_owns(void *self, const void *p)
{
    (void)self;
    (void)p;
    return 1;
}

static enum pici_status host_enter(void *self, void **mark)
{
    (void)self;
    *mark = NULL;
    return PICI_OK;
}

static enum pici_status host_begin(void *self, void *mark, int lanes)
{
    (void)self;
    (void)mark;
    (void)lanes;
    return PICI_OK;
}

static int host_holds(void *self, const void *p)
{
    (void)self;
    (void)p;
    return 0;
}

static int host_move(void *self, void *to, const void *from, size_t bytes)
{
    (void)self;
    memcpy(to, from, bytes);
    return 1;
}

static int host_halt(void *self)
{
    (void)self;
    return 0;
}

static enum pici_status host_ready(struct pici_lane *lane, int *done)
{
    (void)lane;
    *done = 1;
    return PICI_OK;
}

static void host_look(struct pici_lane *lane, const uint8_t *message, size_t bytes, int blocks)
{
    (void)bytes;
    (void)blocks;
    lane->looked = message;
}

static const uint8_t *host_head(struct pici_lane *lane, int i, size_t at)
{
    return lane->looked + (i < 0 ? 0 : at);
}

/* ---- elements */

static void host_copy(struct pici_lane *lane, void *dst, const void *src, uint64_t n, enum pici_dtype dtype)
{
    (void)lane;
    if (n)
        memcpy(dst, src, (size_t)n * pici_dtype_width(dtype));
}

static void host_positive_zeros(struct pici_lane *lane, void *dst, const void *src, uint64_t n, enum pici_dtype dtype,
                                int quiet)
{
    (void)lane;
    if (n)
        pici_positive_zeros(dst, src, (size_t)n, (unsigned)dtype, quiet);
}

static void host_count(struct pici_lane *lane, const void *const *src, const uint64_t *n, int runs,
                       const struct engine_array *array, int arrays, uint64_t *nnz)
{
    const struct pici_isa *isa = pici_isa();
    (void)lane;
    for (int k = 0; k < arrays * runs; k++) {
        const struct engine_array *a = &array[k / runs];
        const struct pici_move *move = (a->by_value ? isa->by_value : isa->move)[fmt_width_log2((unsigned)a->dtype)];
        nnz[k] = n[k] ? move->count(src[k], (size_t)n[k]) : 0;
    }
}

static void host_put(struct pici_lane *lane, uint8_t *to, const uint8_t *from, size_t bytes)
{
    (void)lane;
    memcpy(to, from, bytes);
}

static enum pici_status host_encode(struct pici_lane *lane, uint8_t *message, size_t at, size_t cap, size_t *len,
                                    const void *const *src, const uint64_t *n, int runs,
                                    const struct engine_array *array, int arrays, int checksum)
{
    struct pici_opts opts = PICI_OPTS_INIT;
    enum pici_status s = PICI_OK;
    (void)lane;
    opts.checksum = checksum;
    for (int i = 0; i < runs * arrays && !s; i++) {
        const struct engine_array *a = &array[i % arrays];
        const int k = i % arrays * runs + i / arrays;
        opts.zeros = a->by_value && a->format != PICI_DENSE ? PICI_ZEROS_BY_VALUE : PICI_ZEROS_EXACT;
        s = pici_compress(message + at, cap - at, &len[k], src[k], n[k], a->dtype, a->format, &opts);
        at += len[k];
    }
    return s;
}

/* A block whose header was parsed from a copy, with pointers to where its bytes are. */
static struct pici_block at_bytes(const struct pici_block *b, const uint8_t *bytes)
{
    struct pici_block whole = *b;
    whole.bytes = bytes;
    (void)pici_block_whole(&whole, (size_t)b->at.block_bytes,
                           NULL); /* sets pointers; cannot fail, since the length is the header's */
    return whole;
}

static enum pici_status host_decode(struct pici_lane *lane, void *dst, const uint8_t *block, const struct pici_block *b,
                                    uint64_t output)
{
    const struct pici_block whole = at_bytes(b, block);
    (void)lane;
    return pici_block_decode(dst, &whole, output);
}

static void host_containers(struct pici_lane *lane, uint64_t tiles[PICI_CONTAINERS], const uint8_t *block, size_t len)
{
    struct pici_mix mix = PICI_MIX_INIT;
    (void)lane;
    (void)pici_mix(&mix, block, len); /* adds no tiles if the block is not hybrid */
    for (int i = 0; i < PICI_CONTAINERS; i++)
        tiles[i] += mix.tiles[i];
}

/* The rules of a block that pici_decompress_range does not check: checksum, padding, hybrid's total and version. */
static enum pici_status check_whole(const struct pici_block *b, size_t len)
{
    struct pici_mix mix = PICI_MIX_INIT;
    uint64_t nnz = 0;
    enum pici_status s = pici_block_checksum(b, NULL);
    if (!s)
        s = pici_block_padding(b, NULL);
    if (s || b->format != FMT_HYBRID || (s = pici_mix(&mix, b->bytes, len)) != PICI_OK)
        return s;
    for (int i = 0; i < PICI_CONTAINERS; i++)
        nnz += mix.nnz[i];
    const int signs = b->at.version == FMT_VERSION_SIGNS;
    return nnz == b->nnz && (!signs || mix.sign_tiles) ? PICI_OK : PICI_E_CORRUPT;
}

/* Decode in pieces that stay in a core's cache until they are reduced. */
static enum pici_status fold_order(uint8_t *dst, const struct pici_block *b, size_t len, int max, void *temp,
                                   uint64_t temp_elements)
{
    const unsigned w = b->at.width_log2;
    const uint64_t most = UINT64_C(64 << 10) >> w, piece = (temp_elements < most ? temp_elements : most) / TILE * TILE;
    enum pici_status s = check_whole(b, len);
    for (uint64_t at = 0, now; !s && at < b->count; at += now) {
        now = b->count - at < piece ? b->count - at : piece;
        s = pici_decompress_range(temp, at, now, b->bytes, len, NULL);
        if (!s)
            pici_reduce(dst + (at << w), temp, (size_t)now, b->dtype, max);
    }
    return s;
}

static enum pici_status host_fold(struct pici_lane *lane, void *dst, const uint8_t *block, const struct pici_block *b,
                                  enum pici_op op, void *temp, uint64_t temp_elements)
{
    const struct pici_block whole = at_bytes(b, block);
    (void)lane;
    if (op == PICI_MIN || op == PICI_MAX)
        return fold_order(dst, &whole, (size_t)b->at.block_bytes, op == PICI_MAX, temp, temp_elements);
    return pici_block_add(dst, &whole);
}

static enum pici_status host_fold_own(struct pici_lane *lane, void *dst, const uint8_t *block, size_t len, uint64_t n,
                                      enum pici_dtype dtype, enum pici_op op, void *temp, uint64_t temp_elements)
{
    struct pici_block b;
    (void)n;
    (void)dtype;
    const enum pici_status s = pici_block_parse(&b, block, len, NULL);
    return s ? s : host_fold(lane, dst, block, &b, op, temp, temp_elements);
}

/* ---- values */

static enum pici_status host_narrow(struct pici_lane *lane, const struct values *v, const struct values_where *where,
                                    void *const out[VALUES_ARRAYS], uint64_t made[VALUES_ARRAYS], const void *src,
                                    uint64_t n, struct values_loss *loss)
{
    (void)lane;
    return v->codec->narrow(v, where, out, made, src, n, loss);
}

/* Add widened elements, which are not in blocks. */
static void add(uint8_t *dst, const uint8_t *src, uint64_t n, enum pici_dtype dtype, enum pici_op op)
{
    if (op == PICI_MIN || op == PICI_MAX)
        pici_reduce(dst, src, (size_t)n, (unsigned)dtype, op == PICI_MAX);
    else
        pici_isa()->add[dtype]->dense(dst, src, (size_t)n);
}

/* In pieces that stay in a core's cache until they are added, or until their zeros have lost their signs. Arrays of no
 * elements are checked too. */
static enum pici_status host_widen(struct pici_lane *lane, const struct engine_values *e, enum engine_widen how,
                                   void *dst, uint64_t n, const void *const in[VALUES_ARRAYS],
                                   const uint64_t have[VALUES_ARRAYS], void *temp, size_t temp_bytes)
{
    const struct values *v = e->values;
    const size_t width = pici_dtype_width(v->dtype), most = COLL_TEMP_BYTES < temp_bytes ? COLL_TEMP_BYTES : temp_bytes;
    const uint64_t unit = v->codec->unit(v), piece = most / width >= unit ? most / width / unit * unit : unit;
    enum pici_status s;
    uint64_t at = 0, now;
    (void)lane;
    do {
        uint8_t *there = (uint8_t *)dst + at * width, *to = how == WIDEN_FOLD ? temp : there;
        now = n - at < piece ? n - at : piece;
        s = v->codec->widen(v, to, at, now, n, in, have);
        if (s || !now)
            break;
        if (how == WIDEN_FOLD)
            add(there, to, now, v->dtype, e->op);
        else if (e->by_value)
            pici_positive_zeros(to, to, (size_t)now, (unsigned)v->dtype, e->quiet);
        at += now;
    } while (at < n);
    return s;
}

static void host_divide(struct pici_lane *lane, void *dst, uint64_t n, enum pici_dtype dtype, int ranks)
{
    (void)lane;
    if (n)
        pici_divide(dst, (size_t)n, (unsigned)dtype, ranks);
}

const struct pici_engine pici_engine_host = {
    .size = sizeof(struct pici_engine),
    .name = "host",
    .cost_scale = 1,
    .owns = host_owns,
    .enter = host_enter,
    .begin = host_begin,
    .room = host_room,
    .holds = host_holds,
    .move = host_move,
    .halt = host_halt,
    .close = host_close,
    .error = host_error,
    .ready = host_ready,
    .copy = host_copy,
    .positive_zeros = host_positive_zeros,
    .count = host_count,
    .prefix = host_put,
    .encode = host_encode,
    .put = host_put,
    .look = host_look,
    .head = host_head,
    .decode = host_decode,
    .fold = host_fold,
    .fold_own = host_fold_own,
    .narrow = host_narrow,
    .widen = host_widen,
    .containers = host_containers,
    .divide = host_divide,
};
