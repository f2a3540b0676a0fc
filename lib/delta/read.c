/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reads and checks what a delta contains besides elements, and the small deltas of a tensor one by one. */
#include "delta/delta.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "pici/delta.h"

const char *pici_delta_kind_name(enum delta_kind k)
{
    static const char *const names[DELTA_KINDS] = {"xor", "small", "added", "replaced"};
    return names[k];
}

static bool is_text(const struct pici_attr *a, const char *text)
{
    return a->key && a->len == strlen(text) && memcmp(a->value, text, a->len) == 0;
}

static enum pici_status broken(char *why, const char *rule, const char *what)
{
    snprintf(why, PICI_WHY_BYTES, "not a valid delta: %s (%s)", what, rule);
    return PICI_E_CORRUPT;
}

enum pici_status pici_delta_is(struct pici_reader *r, bool *is)
{
    struct pici_attr a;
    enum pici_status s = pici_reader_attr(r, PICI_FILE, DELTA_VERSION, &a);
    *is = !s && a.key;
    return s;
}

bool pici_delta_removed_next(const struct pici_attr *removed, size_t *at, const char **name, size_t *len, bool *good)
{
    const uint8_t *p = removed->value;
    const size_t left = removed->len - *at;
    *good = true;
    if (!removed->key || !left)
        return false;
    *good = left >= 4;
    if (!*good)
        return false;
    p += *at;
    *len = load_le32(p);
    *name = (const char *)p + 4;
    *good = *len <= left - 4;
    if (*good)
        *at += 4 + *len;
    return *good;
}

/* Reads the attributes of the file. */
static enum pici_status read_file(struct delta *d, struct pici_reader *r, char *why)
{
    struct pici_attr a;
    const char *name;
    size_t at = 0, len;
    bool good;
    enum pici_status s = pici_reader_attr(r, PICI_FILE, DELTA_VERSION, &a);
    if (s)
        return s;
    if (!a.key)
        return broken(why, "delta-version", "the attribute delta.version is missing");
    d->version = is_text(&a, "1") ? 1 : is_text(&a, "2") ? 2 : 0;
    if (!d->version) {
        broken(why, "delta-version", "its version is unknown");
        return PICI_E_VERSION;
    }
    s = pici_reader_attr(r, PICI_FILE, STATE_TYPE, &a);
    if (s)
        return s;
    for (d->type = PICI_STATE_RAW; d->type <= PICI_STATE_SAFETENSORS && !is_text(&a, pici_state_type_name(d->type));)
        d->type++;
    if (d->type > PICI_STATE_SAFETENSORS)
        return broken(why, "delta-type", "its source.type is unknown");
    s = pici_reader_attr(r, PICI_FILE, DELTA_REMOVED, &a);
    if (s)
        return s;
    while (pici_delta_removed_next(&a, &at, &name, &len, &good))
        d->removed++;
    return good ? PICI_OK : broken(why, "delta-removed", "the list of removed tensors is malformed");
}

/* Reads the table of hashes, which is the last tensor. */
static enum pici_status read_hashes(struct delta *d, struct pici_reader *r, char *why)
{
    struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
    uint64_t all, *table;
    enum pici_status s = pici_reader_count(r, &all);
    if (s)
        return s;
    if (!all)
        return broken(why, "delta-hashes", "there is no table of hashes");
    d->tensors = all - 1;
    s = pici_reader_tensor(r, d->tensors, &t);
    if (s)
        return s;
    if (t.dtype != PICI_U64 || t.rank != 2 || t.shape[0] != d->tensors || t.shape[1] != 2)
        return broken(why, "delta-hashes", "the last tensor is not a table of hashes");
    /* d->tensors is bounded by the index, which has been read */
    d->kind = calloc((size_t)d->tensors + 1, sizeof *d->kind);
    d->hash = calloc((size_t)d->tensors + 1, sizeof *d->hash);
    d->small = calloc((size_t)d->tensors + 1, sizeof *d->small);
    table = calloc((size_t)d->tensors + 1, 2 * sizeof *table);
    if (!d->kind || !d->hash || !d->small || !table)
        snprintf(why, PICI_WHY_BYTES, "out of memory for the table of hashes");
    s = why[0] ? PICI_E_NOMEM : pici_reader_read_range(r, d->tensors, 0, 2 * d->tensors, table);
    for (uint64_t i = 0; !s && i < d->tensors; i++)
        d->hash[i] = (struct delta_hashes){table[2 * i], table[2 * i + 1]};
    free(table);
    return s;
}

/* Reads what the small deltas of tensor i lead to. */
static enum pici_status read_small(struct delta *d, uint64_t i, struct pici_reader *r, char *why)
{
    struct delta_small *const small = &d->small[i];
    struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
    struct pici_attr a;
    enum pici_dtype dtype = PICI_F32;
    enum pici_status s = pici_reader_tensor(r, i, &t);
    if (!s && d->version < 2)
        return broken(why, "delta-kind", "a tensor has no valid delta.kind");
    if (!s && (t.dtype != PICI_U8 || t.rank != 1))
        return broken(why, "delta-small", "small deltas that are not u8 of one dimension");
    if (!s)
        s = pici_reader_attr(r, i, DELTA_DTYPE, &a);
    if (s)
        return s;
    while (dtype <= PICI_BF16 && !is_text(&a, pici_dtype_name(dtype)))
        dtype++;
    if (dtype > PICI_BF16 || !delta_has_small(dtype))
        return broken(why, "delta-small", "a tensor has no valid delta.dtype");
    s = pici_reader_attr(r, i, DELTA_SHAPE, &a);
    if (s)
        return s;
    if (!a.key || a.len % 8 || a.len > 8 * PICI_RANK_MAX)
        return broken(why, "delta-small", "a tensor has no valid delta.shape");
    *small = (struct delta_small){dtype, (unsigned)(a.len / 8), malloc(a.len + 1), 1};
    if (!small->shape) {
        snprintf(why, PICI_WHY_BYTES, "out of memory for a shape");
        return PICI_E_NOMEM;
    }
    const uint8_t *p = a.value;
    for (unsigned k = 0; k < small->rank; k++, p += 8) {
        const uint64_t dim = load_le64(p);
        small->shape[k] = dim;
        if (!dim || dim > (UINT64_C(1) << 61) / small->count)
            return broken(why, "delta-small", "a tensor has no valid delta.shape");
        small->count *= dim;
    }
    return PICI_OK;
}

static enum pici_status read_kind(struct delta *d, uint64_t i, struct pici_reader *r, char *why)
{
    struct pici_attr a;
    enum delta_kind k = DELTA_XOR;
    enum pici_status s = pici_reader_attr(r, i, DELTA_KIND, &a);
    if (s)
        return s;
    while (k < DELTA_KINDS && !is_text(&a, pici_delta_kind_name(k)))
        k++;
    if (k == DELTA_KINDS)
        return broken(why, "delta-kind", "a tensor has no valid delta.kind");
    if (!delta_needs_base(k) && d->hash[i].base)
        return broken(why, "delta-hashes", "a hash of a base tensor that does not exist");
    d->kind[i] = (uint8_t)k;
    d->kinds[k]++;
    return k == DELTA_SMALL ? read_small(d, i, r, why) : PICI_OK;
}

enum pici_status pici_delta_open(struct delta *d, struct pici_reader *r, char *why)
{
    *d = (struct delta){0};
    why[0] = 0;
    enum pici_status s = read_file(d, r, why);
    if (!s)
        s = read_hashes(d, r, why);
    for (uint64_t i = 0; !s && i < d->tensors; i++)
        s = read_kind(d, i, r, why);
    if (s)
        pici_delta_close(d);
    return s;
}

void pici_delta_close(struct delta *d)
{
    for (uint64_t i = 0; d->small && i < d->tensors; i++)
        free(d->small[i].shape);
    free(d->kind);
    free(d->hash);
    free(d->small);
    d->kind = NULL;
    d->hash = NULL;
    d->small = NULL;
}

enum pici_status pici_delta_tensor(const struct delta *d, struct pici_reader *r, uint64_t i, struct pici_tensor_info *t)
{
    const enum pici_status s = pici_reader_tensor(r, i, t);
    if (s || i >= d->tensors || d->kind[i] != DELTA_SMALL)
        return s;
    const struct delta_small *const small = &d->small[i];
    t->dtype = small->dtype;
    t->rank = small->rank;
    if (small->rank)
        memcpy(t->shape, small->shape, small->rank * sizeof *small->shape);
    t->count = small->count;
    t->chunk_elements = DELTA_PIECE;
    t->chunks = small->count / DELTA_PIECE + (small->count % DELTA_PIECE != 0);
    return s;
}

/* ---- small deltas */

enum { HEAD = 32, HEAD_DTYPE = 5, HEAD_COUNT = 8, HEAD_LENGTH = 16 }; /* formats/small-delta.md */

enum pici_status pici_delta_pieces_begin(struct delta_pieces *p, struct pici_reader *r, uint64_t i)
{
    struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
    const enum pici_status s = pici_reader_tensor(r, i, &t);
    p->reader = r;
    p->tensor = i;
    p->at = 0;
    p->end = s ? 0 : t.count;
    return s;
}

enum pici_status pici_delta_pieces_next(struct delta_pieces *p, enum pici_dtype dtype, uint64_t n)
{
    uint8_t head[HEAD];
    if (p->end - p->at < HEAD)
        return PICI_E_CORRUPT;
    enum pici_status s = pici_reader_read_range(p->reader, p->tensor, p->at, HEAD, head);
    if (s)
        return s;
    const uint64_t len = load_le64(head + HEAD_LENGTH);
    if (load_le64(head + HEAD_COUNT) != n || head[HEAD_DTYPE] != (uint8_t)dtype || len < HEAD || len > p->end - p->at ||
        len > pici_diff_small_bound(PICI_HYBRID, dtype, n))
        return PICI_E_CORRUPT;
    if (len > p->cap) {
        free(p->delta);
        p->delta = malloc((size_t)len);
        p->cap = p->delta ? (size_t)len : 0;
        if (!p->delta)
            return PICI_E_NOMEM;
    }
    s = pici_reader_read_range(p->reader, p->tensor, p->at, len, p->delta);
    p->at += len;
    p->len = (size_t)len;
    return s;
}

bool pici_delta_pieces_done(const struct delta_pieces *p)
{
    return p->at == p->end;
}

void pici_delta_pieces_free(struct delta_pieces *p)
{
    free(p->delta);
    *p = (struct delta_pieces){0};
}
