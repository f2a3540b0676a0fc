/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Exchanges messages of known lengths over many sockets at once, with a deadline. Ranks greet by it before they have a
 * transport. */
#ifndef PICI_LIB_TRANSPORT_MEET_H
#define PICI_LIB_TRANSPORT_MEET_H

#include "pici/coll.h"

/* Milliseconds of a clock that is never set. */
int64_t pici_meet_now(void);

/* The deadline of a timeout that begins now; < 0: never. */
int64_t pici_meet_deadline(int timeout_ms);

/* A timeout for poll: the milliseconds until the deadline, 0 or more; without a deadline, a second. */
int pici_meet_left(int64_t deadline);

struct meet_side {
    int fd;                  /* -1: this side is left out */
    const uint8_t *outgoing; /* [out_bytes] to send */
    uint8_t *incoming;       /* [in_bytes] to receive, never more */
    size_t out_bytes, in_bytes;

    size_t sent, received;
    enum pici_status status; /* how it ended: PICI_OK, PICI_E_PEER (closed), PICI_E_TIMEOUT or PICI_E_TRANSPORT */
    int error;               /* errno of PICI_E_TRANSPORT */
    int deaf;                /* the peer takes no more bytes */
    int ended;               /* used by pici_meet alone */
    struct secure *secure;   /* used by pici_meet alone: the connection, if it is encrypted */
};

/* Exchange the bytes of count sides. After a side fails, the others have at most grace_ms left. PICI_E_NOMEM: no
 * memory. A peer that closes after it has sent everything is PICI_OK, unless nothing is due from it. */
enum pici_status pici_meet(struct meet_side *, int count, int64_t deadline, int grace_ms);

#endif
