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

void pici_msg_put(uint8_t message[MSG_BYTES], const struct msg_prefix *prefix)
{
    store_le32(message + AT_MAGIC, MSG_MAGIC);
    message[AT_KIND] = (uint8_t)prefix->kind;
    message[AT_DTYPE] = (uint8_t)prefix->dtype;
    message[AT_OP] = (uint8_t)prefix->op;
    message[AT_ALGORITHM] = (uint8_t)prefix->algorithm;
    store_le64(message + AT_SEQUENCE, prefix->sequence);
    store_le64(message + AT_SLICE, prefix->slice);
    store_le32(message + AT_STEP, prefix->step);
    store_le32(message + AT_VALUE, prefix->kind == MSG_POISON ? (uint32_t)prefix->status : prefix->blocks);
}

enum pici_status pici_msg_get(struct msg_prefix *prefix, const uint8_t *message, size_t size)
{
    if (size < MSG_BYTES || load_le32(message + AT_MAGIC) != MSG_MAGIC || message[AT_KIND] > MSG_CODED)
        return PICI_E_CORRUPT;
    const uint32_t value = load_le32(message + AT_VALUE);
    *prefix = (struct msg_prefix){
        .kind = message[AT_KIND],
        .dtype = message[AT_DTYPE],
        .op = message[AT_OP],
        .algorithm = message[AT_ALGORITHM],
        .sequence = load_le64(message + AT_SEQUENCE),
        .slice = load_le64(message + AT_SLICE),
        .step = load_le32(message + AT_STEP),
        .blocks = message[AT_KIND] == MSG_POISON ? 0 : value,
        .status = message[AT_KIND] == MSG_POISON ? (int32_t)value : 0,
    };
    return PICI_OK;
}

/* ---- the agreement rounds */

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
    AT_STORED = AT_CAN + 4,
    AT_COUNTS = AT_STORED + 8 /* if there are counts; then the hash, which is the last 8 bytes */
};

enum { OLD_BYTES = 136 }; /* of this message in version 0, which has no version number */

size_t pici_msg_put_word(uint8_t message[AGREE_MOST], const struct msg_word *word)
{
    const size_t bytes = word->counts ? AGREE_MOST : AGREE_BYTES;
    pici_msg_put(message, &word->prefix);
    store_le32(message + AT_VERSION, MSG_VERSION);
    store_le32(message + AT_LENGTH, (uint32_t)bytes);
    store_le32(message + AT_WORST, word->status);
    store_le32(message + AT_CULPRIT, word->culprit);
    store_le32(message + AT_LOW_RANK, word->low_rank);
    store_le32(message + AT_HIGH_RANK, word->high_rank);
    store_le32(message + AT_CAN, word->abilities);
    memcpy(message + AT_LOW, word->low, AGREE_CALL_BYTES);
    memcpy(message + AT_HIGH, word->high, AGREE_CALL_BYTES);
    for (int i = 0; i < DENSITIES; i++)
        store_le64(message + AT_DENSITY + 8 * i, double_bits(word->density[i]));
    store_le64(message + AT_STORED, word->stored);
    if (word->counts)
        memcpy(message + AT_COUNTS, word->counts, AGREE_COUNTS_BYTES);
    store_le64(message + bytes - 8, pici_xxh64(message, bytes - 8, 0));
    return bytes;
}

static int sealed(const uint8_t *message, size_t size)
{
    return load_le64(message + size - 8) == pici_xxh64(message, size - 8, 0);
}

/* Every version has the prefix at the front and a hash at the end; from version 1 on it has its version and its
 * length. */
enum pici_status pici_msg_get_word(struct msg_word *word, const uint8_t *message, size_t size, enum msg_kind kind)
{
    *word = (struct msg_word){.version = 0};
    if (pici_msg_get(&word->prefix, message, size) || word->prefix.kind != kind || size < OLD_BYTES)
        return PICI_E_CORRUPT;
    if (size == OLD_BYTES && sealed(message, size))
        return PICI_E_PEER;
    const size_t length = load_le32(message + AT_LENGTH);
    if (length < OLD_BYTES || length > AGREE_ROOM || length > size || !sealed(message, length) ||
        (length < size && !word->prefix.blocks))
        return PICI_E_CORRUPT;
    word->version = load_le32(message + AT_VERSION);
    if (word->version != MSG_VERSION)
        return PICI_E_PEER;
    const int has_counts = kind == MSG_AGREE_CALL && length == AGREE_MOST;
    if (length != AGREE_BYTES && !has_counts)
        return PICI_E_CORRUPT;
    word->counts = has_counts ? message + AT_COUNTS : NULL;
    word->status = load_le32(message + AT_WORST);
    word->culprit = load_le32(message + AT_CULPRIT);
    word->low_rank = load_le32(message + AT_LOW_RANK);
    word->high_rank = load_le32(message + AT_HIGH_RANK);
    word->abilities = load_le32(message + AT_CAN);
    word->stored = load_le64(message + AT_STORED);
    memcpy(word->low, message + AT_LOW, AGREE_CALL_BYTES);
    memcpy(word->high, message + AT_HIGH, AGREE_CALL_BYTES);
    for (int i = 0; i < DENSITIES; i++) {
        const uint64_t bits = load_le64(message + AT_DENSITY + 8 * i);
        if (bits > double_bits(1)) /* doubles from 0 to 1 have the bits from 0 to these */
            return PICI_E_CORRUPT;
        word->density[i] = double_of_bits(bits);
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

enum pici_status pici_msg_block(struct pici_block *parsed, const uint8_t *header, size_t remaining,
                                enum pici_dtype dtype, uint64_t count)
{
    enum pici_status status = pici_msg_array(parsed, header, remaining, dtype, count);
    return !status && parsed->count != count ? PICI_E_CORRUPT : status;
}

enum pici_status pici_msg_array(struct pici_block *parsed, const uint8_t *header, size_t remaining,
                                enum pici_dtype dtype, uint64_t most)
{
    enum pici_status status = pici_block_parse(parsed, header, remaining, NULL);
    if (status)
        return status;
    return parsed->dtype == (unsigned)dtype && parsed->count <= most && parsed->layout.block_bytes <= remaining
               ? PICI_OK
               : PICI_E_CORRUPT;
}
