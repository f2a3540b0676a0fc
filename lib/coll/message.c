/* SPDX-License-Identifier: BSD-3-Clause */
#include "coll/message.h"

#include "bytes.h"

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
    if (len < MSG_BYTES || load_le32(p + AT_MAGIC) != MSG_MAGIC || p[AT_KIND] > MSG_CLOSING)
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

enum pici_status pici_msg_status(uint32_t status)
{
    const int32_t s = (int32_t)status;
    const int known = (s <= PICI_E_ARG && s >= PICI_E_UNSUPPORTED) || (s <= PICI_E_CORRUPT && s >= PICI_E_CHECKSUM) ||
                      (s <= PICI_E_NOMEM && s >= PICI_E_BROKEN);
    return known || s == PICI_OK ? (enum pici_status)s : PICI_E_CORRUPT;
}

enum pici_status pici_msg_block(struct pici_block *b, const uint8_t *header, size_t left, enum pici_dtype dtype,
                                uint64_t n)
{
    enum pici_status s = pici_block_parse(b, header, left, NULL);
    if (s)
        return s;
    return b->dtype == (unsigned)dtype && b->count == n && b->at.block_bytes <= left ? PICI_OK : PICI_E_CORRUPT;
}
