/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "transport/meet.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "transport/secure.h"

enum { STEP_MS = 1000 };

int64_t pici_meet_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

int64_t pici_meet_deadline(int timeout_ms)
{
    return timeout_ms < 0 ? INT64_MAX : pici_meet_now() + timeout_ms;
}

int pici_meet_left(int64_t deadline)
{
    const int64_t remaining = deadline == INT64_MAX ? STEP_MS : deadline - pici_meet_now();
    if (remaining < 0)
        return 0;
    return remaining > STEP_MS ? STEP_MS : (int)remaining;
}

static void end(struct meet_side *side, enum pici_status status)
{
    side->status = status;
    side->ended = 1;
}

/* Whether to repeat a call that returned moved <= 0. */
static int later(ssize_t moved)
{
    return moved < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK);
}

static void move(struct meet_side *side)
{
    while (side->sent < side->out_bytes && !side->deaf) {
        const struct iovec rest = {(uint8_t *)side->outgoing + side->sent, side->out_bytes - side->sent};
        const ssize_t moved = pici_secure_send(side->secure, side->fd, &rest, 1); /* send only reads it */
        if (later(moved))
            break;
        /* bytes that it sent before may still arrive */
        if (moved <= 0)
            side->deaf = 1;
        else
            side->sent += (size_t)moved;
    }
    while (side->received < side->in_bytes) {
        const ssize_t moved =
            pici_secure_recv(side->secure, side->fd, side->incoming + side->received, side->in_bytes - side->received);
        if (later(moved))
            return;
        if (moved <= 0) {
            side->error = moved < 0 ? errno : 0;
            end(side, moved == 0 || errno == ECONNRESET || errno == EPIPE ? PICI_E_PEER : PICI_E_TRANSPORT);
            return;
        }
        side->received += (size_t)moved;
    }
    if (side->sent == side->out_bytes || side->deaf)
        end(side, side->deaf && !side->in_bytes ? PICI_E_PEER : PICI_OK);
}

/* Returns the number of sides that have not ended. */
static int wait_for(struct meet_side *side, int count, struct pollfd *polls, int timeout_ms)
{
    int open = 0;
    for (int i = 0; i < count; i++) {
        const struct meet_side *current = &side[i];
        const int sends = current->sent < current->out_bytes && !current->deaf,
                  receives = current->received < current->in_bytes;
        if (current->ended)
            continue;
        struct pollfd *const entry = &polls[open++];
        *entry = (struct pollfd){.fd = current->fd};
        const int reads = sends && pici_secure_reads(current->secure);
        entry->events |= sends && !reads ? POLLOUT : 0;
        entry->events |= receives || reads ? POLLIN : 0;
    }
    /* if poll fails, the caller tries all sides */
    if (open)
        (void)poll(polls, (nfds_t)open, timeout_ms);
    return open;
}

enum pici_status pici_meet(struct meet_side *side, int count, int64_t deadline, int grace_ms)
{
    struct pollfd *polls = calloc((size_t)count + 1, sizeof *polls);
    if (!polls)
        return PICI_E_NOMEM;
    for (int i = 0; i < count; i++) {
        side[i].sent = side[i].received = 0;
        side[i].deaf = side[i].error = 0;
        side[i].ended = side[i].fd < 0;
        side[i].secure = side[i].ended ? NULL : pici_secure_of(side[i].fd);
        side[i].status = PICI_OK;
    }
    for (int late = 0;;) {
        int failed = 0;
        for (int i = 0; i < count; i++) {
            if (!side[i].ended)
                move(&side[i]);
            failed |= side[i].status != PICI_OK;
        }
        if (failed && !late && pici_meet_deadline(grace_ms) < deadline)
            deadline = pici_meet_deadline(grace_ms);
        late = failed;
        const int remaining = pici_meet_left(deadline);
        if (!wait_for(side, count, polls, remaining))
            break;
        if (remaining == 0)
            for (int i = 0; i < count; i++)
                if (!side[i].ended)
                    end(&side[i], PICI_E_TIMEOUT);
    }
    free(polls);
    return PICI_OK;
}
