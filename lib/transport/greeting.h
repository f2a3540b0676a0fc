/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The fixed-length messages that ranks exchange over sockets before they form a communicator. Pure functions of bytes.
 * All integers are little-endian.
 *
 * A greeting begins every connection. A receiver reads only these bytes until it has accepted the greeting.
 *     0  magic "PICIMEET"
 *     8  version of greetings, 4 bytes
 *    12  version of the messages of collectives, 4 bytes
 *    16  kind, 4 bytes: enum greeting_kind
 *    20  rank of the sender, 4 bytes
 *    24  number of ranks, 4 bytes
 *    28  rank that the sender expects the receiver to be, 4 bytes
 *    32  place where the sender listens, 24 bytes (below); none: zeros
 *    56  token, 64 bytes, padded with zeros
 *   120  host, 64 bytes: opaque; equal on ranks that share a node
 *   184  zeros, 8 bytes
 * Up to the token all versions are the same.
 *
 * A verdict tells whether the sender can continue, and if not, why.
 *     0  magic "PICISAYS"
 *     8  status, 4 bytes: enum pici_status
 *    12  rank that found the error, 4 bytes
 *    16  error message, 240 bytes, padded with at least one zero
 *
 * An offer follows good verdicts, from the lower rank of two.
 *     0  magic "PICIPAIR"
 *     8  kind, 4 bytes: 0 nothing, 1 memory, 2 connections
 *    12  process that has it open, 4 bytes; 16: its descriptor, 4 bytes
 *    20  bytes of each ring, 4 bytes
 *    24  device and inode of the memory, 8 bytes each
 *    40  connections in all, 4 bytes
 *    44  port that accepts the additional ones, 4 bytes
 *    48  token for the additional ones, 16 bytes
 * The other rank accepts with an offer of the same kind, or declines with kind 0 and an errno at 12. If it has made
 * connections, the lower rank confirms in the same way that it has accepted all of them. Otherwise both use one.
 *
 * A place is an address of TCP.
 *     0  family, 4 bytes: 0 (no address), 4 or 6
 *     4  port, 4 bytes: 1 to 65535
 *     8  address, 16 bytes, in network order; of IPv4 the first 4, the others zeros */
#ifndef PICI_LIB_TRANSPORT_GREETING_H
#define PICI_LIB_TRANSPORT_GREETING_H

#include "pici/coll.h"

enum {
    GREETING_BYTES = 192,
    GREETING_VERSION = 2,
    GREETING_TOKEN = 64,
    GREETING_HOST = 64,
    VERDICT_BYTES = 256,
    VERDICT_TEXT = 240,
    OFFER_BYTES = 64,
    OFFER_TOKEN = 16,
    PLACE_BYTES = 24
};

enum greeting_kind {
    GREETING_JOIN = 1, /* to rank 0, by ranks that need the places of the others */
    GREETING_LINK = 2, /* to another rank, at the place from rank 0 */
    GREETING_MEET = 3  /* to the rank at the other end of a connection that is made for a communicator */
};

struct place {
    int family; /* 0, 4 or 6 */
    int port;
    uint8_t address[16];
};

struct greeting {
    uint32_t version, messages;
    enum greeting_kind kind;
    uint32_t rank, ranks, peer;
    struct place place;
    char token[GREETING_TOKEN], host[GREETING_HOST];
};

struct greeting_verdict {
    enum pici_status status;
    uint32_t rank;
    char text[VERDICT_TEXT];
};

enum offer_kind { OFFER_NOTHING = 0, OFFER_MEMORY = 1, OFFER_CONNECTIONS = 2 };

struct greeting_offer {
    enum offer_kind kind;
    uint32_t process; /* kind 0: the errno; 0 if the rank does not want what was offered */
    uint32_t descriptor, ring_bytes;
    uint64_t device, inode;
    uint32_t connections, port;
    uint8_t token[OFFER_TOKEN];
};

/* A greeting of this version of the library: no place, no token, no host. */
struct greeting pici_greeting(enum greeting_kind, int rank, int ranks, int peer);

void pici_greeting_put(uint8_t bytes[GREETING_BYTES], const struct greeting *);

/* PICI_E_CORRUPT: not a greeting. With another version, reads only the bytes before the token. pici_greeting_wrong
 * checks that it is the expected one. */
enum pici_status pici_greeting_get(struct greeting *, const uint8_t bytes[GREETING_BYTES]);

/* Whether two tokens are equal, in constant time. */
int pici_greeting_token(const char one[GREETING_TOKEN], const char other[GREETING_TOKEN]);

/* Check a received greeting against the greeting `own` that this rank sent, or would send. sender: the expected rank,
 * or -1. Returns 0 if it is right; else explanation [bytes] describes the error. */
int pici_greeting_wrong(const struct greeting *, const struct greeting *own, int sender, char *explanation,
                        size_t bytes);

void pici_verdict_put(uint8_t bytes[VERDICT_BYTES], const struct greeting_verdict *);

/* PICI_E_CORRUPT: not a verdict. An unknown status becomes PICI_E_CORRUPT, and bytes of the message that are not
 * printable UTF-8 become question marks. */
enum pici_status pici_verdict_get(struct greeting_verdict *, const uint8_t message[VERDICT_BYTES]);

void pici_offer_put(uint8_t bytes[OFFER_BYTES], const struct greeting_offer *);

/* PICI_E_CORRUPT: not an offer. Its members may be any numbers. */
enum pici_status pici_offer_get(struct greeting_offer *, const uint8_t bytes[OFFER_BYTES]);

void pici_place_put(uint8_t bytes[PLACE_BYTES], const struct place *);

/* PICI_E_CORRUPT: not a place. */
enum pici_status pici_place_get(struct place *, const uint8_t bytes[PLACE_BYTES]);

/* Whether only its own host can reach a place. */
int pici_place_loopback(const struct place *);

#endif
