/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a message looks like: a prefix of 32 bytes, then whole blocks, one after the other. Specification:
 * formats/message.md. */
#ifndef PICI_LIB_COLL_MESSAGE_H
#define PICI_LIB_COLL_MESSAGE_H

#include "pici/pici.h"

enum { MSG_BYTES = 32 };
enum { MSG_MAGIC = 0x4d434950 }; /* "PICM" */
enum msg_kind { MSG_DATA = 0, MSG_POISON = 1, MSG_HELLO = 2, MSG_CLOSING = 3 };

struct msg_prefix {
    unsigned kind, dtype, op, algorithm;
    uint64_t sequence; /* of the collective, on its communicator */
    uint64_t count;    /* total elements */
    int32_t status;    /* poison: why; else 0 */
    uint32_t blocks;
};

void pici_msg_put(uint8_t p[MSG_BYTES], const struct msg_prefix *);

/* Read a prefix from a message of len bytes. PICI_E_CORRUPT if it is too short, or magic or kind are wrong. Nothing
 * else is judged. */
enum pici_status pici_msg_get(struct msg_prefix *, const uint8_t *p, size_t len);

/* Of a block, the header, which begins where so many bytes of the message are left: the block must hold n elements of dtype and be
 * within the message. Only the header is read. PICI_E_CORRUPT, _VERSION, _UNSUPPORTED. */
enum pici_status pici_msg_block(const uint8_t *header, size_t left, enum pici_dtype dtype, uint64_t n,
                                struct pici_info *);

#endif
