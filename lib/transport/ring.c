/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "transport/ring.h"

#include <stdatomic.h>
#include <string.h>

enum { LINE = 64, PIECE = 1 << 16 }; /* PIECE: bytes published at a time, so that both sides copy in parallel */

/* Each counter has one writer. A flag has two: a side that waits sets its flag, and the side that wakes it clears the
 * flag. */
struct ring_state {
    _Alignas(LINE) _Atomic uint32_t written; /* bytes since the beginning, modulo 2^32 */
    _Alignas(LINE) _Atomic uint32_t read;
    _Alignas(LINE) _Atomic uint32_t reader_waits;
    _Alignas(LINE) _Atomic uint32_t writer_waits;
};

_Static_assert(sizeof(struct ring_state) == RING_STATE, "a ring's state has another size");
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "processes cannot share the locks of atomic integers");

struct ring pici_ring(void *state, uint8_t *bytes, uint32_t capacity)
{
    return (struct ring){.state = state, .bytes = bytes, .capacity = capacity};
}

/* Copy between the ring and the caller's part. at: the position in the stream. */
static void copy(const struct ring *ring, uint32_t at, uint8_t *part, uint32_t bytes, int writes)
{
    const uint32_t begin = at & (ring->capacity - 1), to_end = ring->capacity - begin,
                   first = bytes < to_end ? bytes : to_end;
    if (writes) {
        memcpy(ring->bytes + begin, part, first);
        memcpy(ring->bytes, part + first, bytes - first);
    } else {
        memcpy(part, ring->bytes + begin, first);
        memcpy(part + first, ring->bytes, bytes - first);
    }
}

/* The number of bytes that can be written (not counting RING_LAST), or read. Uses the last known position of the other
 * side, and loads it again if that gives fewer than `wanted` bytes. Returns -1 if the other side stored an impossible
 * position. */
static int64_t free_bytes(struct ring *ring, uint32_t wanted)
{
    const uint32_t most = ring->capacity - RING_LAST;
    uint32_t used = ring->moved - ring->other;
    if (used > most || most - used < wanted) {
        ring->other = atomic_load_explicit(&ring->state->read, memory_order_acquire);
        used = ring->moved - ring->other;
    }
    if (used > ring->capacity)
        return -1;
    return used < most ? most - used : 0;
}

static int64_t ready_bytes(struct ring *ring, uint32_t wanted)
{
    uint32_t used = ring->other - ring->moved;
    if (used < wanted) {
        ring->other = atomic_load_explicit(&ring->state->written, memory_order_acquire);
        used = ring->other - ring->moved;
    }
    return used <= ring->capacity ? (int64_t)used : -1;
}

/* Publish this side's position, then check whether the other side waits. Both sides store before they load, in one
 * total order. So either this side sees that the other waits, or the other sees these bytes before it sleeps. */
static void show(_Atomic uint32_t *place, uint32_t moved, _Atomic uint32_t *waits, int *wakes)
{
    atomic_store(place, moved);
    if (atomic_load(waits) && atomic_exchange(waits, 0))
        *wakes = 1;
}

/* Publishes small parts together, and large ones in pieces. */
static int64_t move(struct ring *ring, const struct iovec *part, int parts, int *wakes, int writes)
{
    struct ring_state *state = ring->state;
    _Atomic uint32_t *place = writes ? &state->written : &state->read,
                     *waits = writes ? &state->reader_waits : &state->writer_waits;
    uint32_t shown = ring->moved;
    int64_t can = 1, all = 0;
    for (int i = 0; i < parts && can > 0; i++)
        for (size_t done = 0; done < part[i].iov_len;) {
            const size_t left = part[i].iov_len - done;
            const uint32_t wanted = left < PIECE ? (uint32_t)left : PIECE;
            can = writes ? free_bytes(ring, wanted) : ready_bytes(ring, wanted);
            if (can <= 0)
                break;
            const uint32_t step = can < wanted ? (uint32_t)can : wanted;
            copy(ring, ring->moved, (uint8_t *)part[i].iov_base + done, step, writes);
            ring->moved += step;
            done += step;
            all += step;
            if (ring->moved - shown >= PIECE) {
                show(place, ring->moved, waits, wakes);
                shown = ring->moved;
            }
        }
    if (ring->moved != shown)
        show(place, ring->moved, waits, wakes);
    return can < 0 ? -1 : all;
}

int64_t pici_ring_write(struct ring *ring, const struct iovec *part, int parts, int *wakes)
{
    return move(ring, part, parts, wakes, 1);
}

int64_t pici_ring_read(struct ring *ring, const struct iovec *part, int parts, int *wakes)
{
    return move(ring, part, parts, wakes, 0);
}

void pici_ring_end(struct ring *ring, const uint8_t last[RING_LAST])
{
    uint8_t bytes[RING_LAST];
    memcpy(bytes, last, sizeof bytes);
    copy(ring, ring->moved, bytes, sizeof bytes, 1);
    ring->moved += RING_LAST;
    atomic_store(&ring->state->written, ring->moved);
}

int pici_ring_writable(struct ring *ring)
{
    return free_bytes(ring, 1) != 0;
}

int pici_ring_readable(struct ring *ring)
{
    return ready_bytes(ring, 1) != 0;
}

void pici_ring_writer_waits(struct ring *ring, int waits)
{
    atomic_store(&ring->state->writer_waits, (uint32_t)waits);
    ring->other = atomic_load(&ring->state->read);
}

void pici_ring_reader_waits(struct ring *ring, int waits)
{
    atomic_store(&ring->state->reader_waits, (uint32_t)waits);
    ring->other = atomic_load(&ring->state->written);
}
