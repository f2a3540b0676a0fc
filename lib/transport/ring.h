/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A ring: a stream of bytes through memory that two processes share. One writes, the other reads, and neither takes a
 * lock. The memory is untrusted: for any bytes that the other side stores there, this side never touches a byte outside
 * of the ring.
 *
 * A side without work may announce that it waits, before it sleeps. The other side sees this when it next moves bytes,
 * and must wake it; the ring does not define how. */
#ifndef PICI_LIB_TRANSPORT_RING_H
#define PICI_LIB_TRANSPORT_RING_H

#include <stdint.h>
#include <sys/uio.h>

enum {
    RING_LEAST = 1 << 12,
    RING_MOST = 1 << 24,
    RING_LAST = 8 /* bytes that only pici_ring_end may write */
};

struct ring_state; /* in the shared memory, RING_STATE bytes, zeros at first */
enum { RING_STATE = 256 };

struct ring {
    struct ring_state *state;
    uint8_t *bytes;
    uint32_t capacity; /* a power of two, RING_LEAST to RING_MOST */
    uint32_t moved;    /* by this side since the beginning, modulo 2^32 */
    uint32_t other;    /* by the other side, when this side last looked */
};

/* One side's view. `state` is aligned to RING_STATE. */
struct ring pici_ring(void *state, uint8_t *bytes, uint32_t capacity);

/* Copy as many bytes as are available and fit. Return their number; -1: the other side stored an impossible state.
 * *wakes becomes 1 if the other side must be woken, and does not change otherwise. */
int64_t pici_ring_write(struct ring *, const struct iovec *, int parts, int *wakes);
int64_t pici_ring_read(struct ring *, const struct iovec *, int parts, int *wakes);

/* Write the last bytes of the stream, for which there is always room. */
void pici_ring_end(struct ring *, const uint8_t last[RING_LAST]);

/* Whether a writer could write, or a reader read. Also true if the other side stored an impossible state. */
int pici_ring_writable(struct ring *);
int pici_ring_readable(struct ring *);

/* Announce that this side waits, or no longer does. After announcing, check the ring once more before sleeping. */
void pici_ring_writer_waits(struct ring *, int waits);
void pici_ring_reader_waits(struct ring *, int waits);

#endif
