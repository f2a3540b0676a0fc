/* SPDX-License-Identifier: BSD-3-Clause */
#include "message.h"

#include "bytes.h"

/* Byte offsets in a prefix. */
enum {
    AT_MAGIC = 0,
    AT_KIND = 4,
    AT_DTYPE = 5,
    AT_OP = 6,
    AT_ALGORITHM = 7,
    AT_SEQUENCE = 8,
    AT_COUNT = 16,
    AT_STATUS = 24,
    AT_BLOCKS = 28
};

void pici_msg_put(uint8_t p[MSG_BYTES], const struct msg_prefix *m)
{
    store_le32(p + AT_MAGIC, MSG_MAGIC);
    p[AT_KIND] = (uint8_t)m->kind;
    p[AT_DTYPE] = (uint8_t)m->dtype;
    p[AT_OP] = (uint8_t)m->op;
    p[AT_ALGORITHM] = (uint8_t)m->algorithm;
    store_le64(p + AT_SEQUENCE, m->sequence);
    store_le64(p + AT_COUNT, m->count);
    store_le32(p + AT_STATUS, (uint32_t)m->status);
    store_le32(p + AT_BLOCKS, m->blocks);
}

enum pici_status pici_msg_get(struct msg_prefix *m, const uint8_t *p, size_t len)
{
    if (len < MSG_BYTES || load_le32(p + AT_MAGIC) != MSG_MAGIC || p[AT_KIND] > MSG_CLOSING)
        return PICI_E_CORRUPT;
    *m = (struct msg_prefix){
        .kind = p[AT_KIND],
        .dtype = p[AT_DTYPE],
        .op = p[AT_OP],
        .algorithm = p[AT_ALGORITHM],
        .sequence = load_le64(p + AT_SEQUENCE),
        .count = load_le64(p + AT_COUNT),
        .status = (int32_t)load_le32(p + AT_STATUS),
        .blocks = load_le32(p + AT_BLOCKS),
    };
    return PICI_OK;
}

enum pici_status pici_msg_block(const uint8_t *header, size_t left, enum pici_dtype dtype, uint64_t n,
                                struct pici_info *info)
{
    enum pici_status s = pici_inspect(info, header, left);
    if (s)
        return s;
    return info->dtype == dtype && info->count == n && info->block_bytes <= left ? PICI_OK : PICI_E_CORRUPT;
}
