/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "transport/meet.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

enum { STEP_MS = 1000 };

int64_t pici_meet_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t pici_meet_deadline(int timeout_ms)
{
    return timeout_ms < 0 ? INT64_MAX : pici_meet_now() + timeout_ms;
}

int pici_meet_left(int64_t deadline)
{
    const int64_t left = deadline == INT64_MAX ? STEP_MS : deadline - pici_meet_now();
    return left < 0 ? 0 : left > STEP_MS ? STEP_MS : (int)left;
}

static void end(struct meet_side *s, enum pici_status status)
{
    s->status = status;
    s->ended = 1;
}

/* Whether a call that returned n <= 0 is to be made again later. */
static int later(ssize_t n)
{
    return n < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK);
}

static void move(struct meet_side *s)
{
    while (s->sent < s->out_bytes && !s->deaf) {
        const ssize_t n = send(s->fd, s->out + s->sent, s->out_bytes - s->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (later(n))
            break;
        if (n <= 0)
            s->deaf = 1; /* what it has sent before may still be read */
        else
            s->sent += (size_t)n;
    }
    while (s->got < s->in_bytes) {
        const ssize_t n = recv(s->fd, s->in + s->got, s->in_bytes - s->got, MSG_DONTWAIT);
        if (later(n))
            return;
        if (n <= 0) {
            s->error = n < 0 ? errno : 0;
            end(s, n == 0 || errno == ECONNRESET || errno == EPIPE ? PICI_E_PEER : PICI_E_TRANSPORT);
            return;
        }
        s->got += (size_t)n;
    }
    if (s->sent == s->out_bytes || s->deaf)
        end(s, s->deaf && !s->in_bytes ? PICI_E_PEER : PICI_OK);
}

/* Returns how many sides have not ended. */
static int wait_for(struct meet_side *side, int n, struct pollfd *polls, int timeout_ms)
{
    int open = 0;
    for (int i = 0; i < n; i++) {
        const struct meet_side *s = &side[i];
        const int sends = s->sent < s->out_bytes && !s->deaf, receives = s->got < s->in_bytes;
        if (!s->ended)
            polls[open++] =
                (struct pollfd){.fd = s->fd, .events = (short)((sends ? POLLOUT : 0) | (receives ? POLLIN : 0))};
    }
    if (open)
        (void)poll(polls, (nfds_t)open, timeout_ms); /* if it fails, all are tried */
    return open;
}

enum pici_status pici_meet(struct meet_side *side, int n, int64_t deadline, int grace_ms)
{
    struct pollfd *polls = calloc((size_t)n + 1, sizeof *polls);
    if (!polls)
        return PICI_E_NOMEM;
    for (int i = 0; i < n; i++) {
        side[i].sent = side[i].got = 0;
        side[i].deaf = side[i].error = 0;
        side[i].ended = side[i].fd < 0;
        side[i].status = PICI_OK;
    }
    for (int late = 0;;) {
        int failed = 0;
        for (int i = 0; i < n; i++) {
            if (!side[i].ended)
                move(&side[i]);
            failed |= side[i].status != PICI_OK;
        }
        if (failed && !late && pici_meet_deadline(grace_ms) < deadline)
            deadline = pici_meet_deadline(grace_ms);
        late = failed;
        const int left = pici_meet_left(deadline);
        if (!wait_for(side, n, polls, left))
            break;
        if (left == 0)
            for (int i = 0; i < n; i++)
                if (!side[i].ended)
                    end(&side[i], PICI_E_TIMEOUT);
    }
    free(polls);
    return PICI_OK;
}
