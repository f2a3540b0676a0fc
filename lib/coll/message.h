/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The format of messages: a prefix of 32 bytes, then whole blocks. In agreement rounds, the sender's knowledge replaces
 * the blocks. Specifications: formats/message.md, formats/agreement.md. */
#ifndef PICI_LIB_COLL_MESSAGE_H
#define PICI_LIB_COLL_MESSAGE_H

#include "codec/block.h"
#include "predict/density.h"

enum { MSG_BYTES = 32, MSG_VERSION = 4 };
enum { MSG_MAGIC = 0x4d434950 }; /* "PICM" */
enum msg_kind { MSG_DATA = 0, MSG_POISON = 1, MSG_AGREE_CALL = 2, MSG_AGREE_STATUS = 3, MSG_CODED = 4 };

struct msg_prefix {
    unsigned kind, dtype, op, algorithm;
    uint64_t sequence; /* of the collective, on its communicator */
    uint64_t slice;    /* data, coded data and poison: which slice the message is about; else 0 */
    uint32_t step;     /* likewise: the step of the schedule; else 0 */
    uint32_t blocks;   /* data and coded data: how many follow; call agreement: bytes of data that follow; else 0 */
    int32_t status;    /* poison: why; else 0 */
};

void pici_msg_put(uint8_t message[MSG_BYTES], const struct msg_prefix *);

/* Read a prefix from a message of size bytes. PICI_E_CORRUPT if it is too short, or magic or kind are wrong. Nothing
 * else is checked. */
enum pici_status pici_msg_get(struct msg_prefix *, const uint8_t *message, size_t size);

/* ---- the agreement rounds */

enum {
    AGREE_CALL_BYTES = 104,
    AGREE_BYTES = MSG_BYTES + 8 + 16 + 2 * AGREE_CALL_BYTES + DENSITIES * 8 + 4 + 8 + 8,
    AGREE_COUNTS_BYTES = 2 * 64 * 8, /* optional: two counts for each of 64 ranges */
    AGREE_MOST = AGREE_BYTES + AGREE_COUNTS_BYTES,
    AGREE_ROOM = 2048 /* for such a message of any later version */
};

/* What the sender of an agreement message knows. low and high are calls, compared byte by byte. */
struct msg_word {
    struct msg_prefix prefix;
    uint32_t version;
    uint32_t status, culprit;
    uint32_t low_rank, high_rank; /* who made the calls */
    uint32_t abilities;           /* bits: the abilities that all known ranks have in this call */
    uint8_t low[AGREE_CALL_BYTES], high[AGREE_CALL_BYTES];
    double density[DENSITIES]; /* the largest that a rank counted, 0 to 1; 0: none was counted */
    uint64_t stored;           /* the most elements that a rank has; UINT64_MAX: one has dense data */
    const uint8_t *counts;     /* of nonzeros, AGREE_COUNTS_BYTES as in the message; or NULL. Read: in the message */
};

/* Write a message of our version; ignores the struct's version. Returns its bytes. */
size_t pici_msg_put_word(uint8_t message[AGREE_MOST], const struct msg_word *);

/* Read a message of this kind, of size bytes. If its prefix announces data, ignores the bytes behind the word.
 * PICI_E_CORRUPT: invalid. PICI_E_PEER: a message of another version; only the prefix and the version are set. */
enum pici_status pici_msg_get_word(struct msg_word *, const uint8_t *message, size_t size, enum msg_kind);

/* A status that a peer sent: itself if it is one of enum pici_status, else PICI_E_CORRUPT. */
enum pici_status pici_msg_status(uint32_t);

/* Parse the header of a block when `remaining` bytes of the message remain. The block must hold count elements of dtype
 * and end within the message. Only the header is read, from a copy or from the message; parsed->bytes points to it.
 * PICI_E_CORRUPT, _VERSION, _UNSUPPORTED. */
enum pici_status pici_msg_block(struct pici_block *parsed, const uint8_t *header, size_t remaining,
                                enum pici_dtype dtype, uint64_t count);

/* Like pici_msg_block, for an array of a lossy codec with at most `most` elements. */
enum pici_status pici_msg_array(struct pici_block *parsed, const uint8_t *header, size_t remaining,
                                enum pici_dtype dtype, uint64_t most);

#endif
