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

/* A cursor over the blocks of a message. */
struct msg_cursor {
    const uint8_t *at, *end;
};

/* The next block, which must hold n elements of dtype; its header is checked, its length is within the message.
 * PICI_E_CORRUPT, _VERSION, _UNSUPPORTED. */
enum pici_status pici_msg_block(struct msg_cursor *, enum pici_dtype, uint64_t n, const uint8_t **block, size_t *len,
                                struct pici_info *);

#endif
