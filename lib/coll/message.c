/* SPDX-License-Identifier: BSD-3-Clause */
#include "coll/message.h"

#include <string.h>

#include "bytes.h"
#include "xxh64.h"

/* Byte offsets in a prefix. */
enum {
    AT_MAGIC = 0,
    AT_KIND = 4,
    AT_DTYPE = 5,
    AT_OP = 6,
    AT_ALGORITHM = 7,
    AT_SEQUENCE = 8,
    AT_SLICE = 16,
    AT_STEP = 24,
    AT_VALUE = 28 /* data: blocks; poison: status */
};

void pici_msg_put(uint8_t p[MSG_BYTES], const struct msg_prefix *m)
{
    store_le32(p + AT_MAGIC, MSG_MAGIC);
    p[AT_KIND] = (uint8_t)m->kind;
    p[AT_DTYPE] = (uint8_t)m->dtype;
    p[AT_OP] = (uint8_t)m->op;
    p[AT_ALGORITHM] = (uint8_t)m->algorithm;
    store_le64(p + AT_SEQUENCE, m->sequence);
    store_le64(p + AT_SLICE, m->slice);
    store_le32(p + AT_STEP, m->step);
    store_le32(p + AT_VALUE, m->kind == MSG_POISON ? (uint32_t)m->status : m->blocks);
}

enum pici_status pici_msg_get(struct msg_prefix *m, const uint8_t *p, size_t len)
{
    if (len < MSG_BYTES || load_le32(p + AT_MAGIC) != MSG_MAGIC || p[AT_KIND] > MSG_CODED)
        return PICI_E_CORRUPT;
    const uint32_t value = load_le32(p + AT_VALUE);
    *m = (struct msg_prefix){
        .kind = p[AT_KIND],
        .dtype = p[AT_DTYPE],
        .op = p[AT_OP],
        .algorithm = p[AT_ALGORITHM],
        .sequence = load_le64(p + AT_SEQUENCE),
        .slice = load_le64(p + AT_SLICE),
        .step = load_le32(p + AT_STEP),
        .blocks = p[AT_KIND] == MSG_POISON ? 0 : value,
        .status = p[AT_KIND] == MSG_POISON ? (int32_t)value : 0,
    };
    return PICI_OK;
}

/* ---- hello and closing */

/* Byte offsets, behind the prefix. */
enum {
    AT_VERSION = MSG_BYTES,
    AT_LENGTH = AT_VERSION + 4,
    AT_WORST = AT_VERSION + 8,
    AT_CULPRIT = AT_WORST + 4,
    AT_LOW_RANK = AT_WORST + 8,
    AT_HIGH_RANK = AT_WORST + 12,
    AT_LOW = AT_WORST + 16,
    AT_HIGH = AT_LOW + AGREE_CALL_BYTES,
    AT_DENSITY = AT_HIGH + AGREE_CALL_BYTES,
    AT_CAN = AT_DENSITY + DENSITIES * 8,
    AT_HASH = AT_CAN + 4
};

enum { OLD_BYTES = 136 }; /* of this message in version 0, which did not say its version */

void pici_msg_put_word(uint8_t p[AGREE_BYTES], const struct msg_word *w)
{
    pici_msg_put(p, &w->prefix);
    store_le32(p + AT_VERSION, MSG_VERSION);
    store_le32(p + AT_LENGTH, AGREE_BYTES);
    store_le32(p + AT_WORST, w->status);
    store_le32(p + AT_CULPRIT, w->culprit);
    store_le32(p + AT_LOW_RANK, w->low_rank);
    store_le32(p + AT_HIGH_RANK, w->high_rank);
    store_le32(p + AT_CAN, w->can);
    memcpy(p + AT_LOW, w->low, AGREE_CALL_BYTES);
    memcpy(p + AT_HIGH, w->high, AGREE_CALL_BYTES);
    for (int i = 0; i < DENSITIES; i++)
        store_le64(p + AT_DENSITY + 8 * i, double_bits(w->density[i]));
    store_le64(p + AT_HASH, pici_xxh64(p, AT_HASH, 0));
}

static int sealed(const uint8_t *p, size_t len)
{
    return load_le64(p + len - 8) == pici_xxh64(p, len - 8, 0);
}

/* Every version has the prefix at the front and a hash at the end; from version 1 on it has its version and its
 * length. */
enum pici_status pici_msg_get_word(struct msg_word *w, const uint8_t *p, size_t len, enum msg_kind kind)
{
    *w = (struct msg_word){.version = 0};
    if (pici_msg_get(&w->prefix, p, len) || w->prefix.kind != kind || len < OLD_BYTES)
        return PICI_E_CORRUPT;
    if (len == OLD_BYTES && sealed(p, len))
        return PICI_E_PEER;
    const size_t length = load_le32(p + AT_LENGTH);
    if (length < OLD_BYTES || length > AGREE_ROOM || length > len || !sealed(p, length) ||
        (length < len && !w->prefix.blocks))
        return PICI_E_CORRUPT;
    w->version = load_le32(p + AT_VERSION);
    if (w->version != MSG_VERSION)
        return PICI_E_PEER;
    if (length != AGREE_BYTES)
        return PICI_E_CORRUPT;
    w->status = load_le32(p + AT_WORST);
    w->culprit = load_le32(p + AT_CULPRIT);
    w->low_rank = load_le32(p + AT_LOW_RANK);
    w->high_rank = load_le32(p + AT_HIGH_RANK);
    w->can = load_le32(p + AT_CAN);
    memcpy(w->low, p + AT_LOW, AGREE_CALL_BYTES);
    memcpy(w->high, p + AT_HIGH, AGREE_CALL_BYTES);
    for (int i = 0; i < DENSITIES; i++) {
        const uint64_t bits = load_le64(p + AT_DENSITY + 8 * i);
        if (bits > double_bits(1)) /* the bits of 0 to 1 are the integers from 0 to these */
            return PICI_E_CORRUPT;
        w->density[i] = double_of_bits(bits);
    }
    return PICI_OK;
}

/* ---- statuses and blocks */

enum pici_status pici_msg_status(uint32_t status)
{
    const int32_t s = (int32_t)status;
    const int known = (s <= PICI_E_ARG && s >= PICI_E_UNSUPPORTED) || (s <= PICI_E_CORRUPT && s >= PICI_E_CHECKSUM) ||
                      (s <= PICI_E_NOMEM && s >= PICI_E_SYNC);
    return known || s == PICI_OK ? (enum pici_status)s : PICI_E_CORRUPT;
}

enum pici_status pici_msg_block(struct pici_block *b, const uint8_t *header, size_t left, enum pici_dtype dtype,
                                uint64_t n)
{
    enum pici_status s = pici_msg_array(b, header, left, dtype, n);
    return !s && b->count != n ? PICI_E_CORRUPT : s;
}

enum pici_status pici_msg_array(struct pici_block *b, const uint8_t *header, size_t left, enum pici_dtype dtype,
                                uint64_t most)
{
    enum pici_status s = pici_block_parse(b, header, left, NULL);
    if (s)
        return s;
    return b->dtype == (unsigned)dtype && b->count <= most && b->at.block_bytes <= left ? PICI_OK : PICI_E_CORRUPT;
}
