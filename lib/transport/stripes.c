/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/stripes.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PARTS = 16 }; /* the most parts in a system call */

struct stripes {
    int count;
    uint64_t sent, received; /* bytes so far */
    int fds[STRIPES_MOST];
};

struct stripes *pici_stripes(const int *fds, int count)
{
    struct stripes *stripes = calloc(1, sizeof *stripes);
    if (!stripes)
        return NULL;
    stripes->count = count;
    memcpy(stripes->fds, fds, (size_t)count * sizeof *fds);
    return stripes;
}

void pici_stripes_free(struct stripes *stripes)
{
    for (int i = 1; stripes && i < stripes->count; i++)
        close(stripes->fds[i]);
    free(stripes);
}

static int fd_at(const struct stripes *stripes, uint64_t offset)
{
    return stripes->fds[offset / STRIPE_BYTES % (uint64_t)stripes->count];
}

int pici_stripes_sends(const struct stripes *stripes)
{
    return fd_at(stripes, stripes->sent);
}

int pici_stripes_receives(const struct stripes *stripes)
{
    return fd_at(stripes, stripes->received);
}

int pici_stripes_fd(const struct stripes *stripes, int i)
{
    return i < stripes->count ? stripes->fds[i] : -1;
}

/* Skip `skipped` bytes of the parts, and take at most `most` of the rest. Returns the number of pieces. */
static int cut_out(const struct iovec *part, int parts, size_t skipped, size_t most, struct iovec piece[PARTS])
{
    int pieces = 0;
    for (int i = 0; i < parts && most && pieces < PARTS; i++) {
        const size_t skip = skipped < part[i].iov_len ? skipped : part[i].iov_len, left = part[i].iov_len - skip,
                     bytes = left < most ? left : most;
        skipped -= skip;
        if (!bytes)
            continue;
        piece[pieces++] = (struct iovec){(uint8_t *)part[i].iov_base + skip, bytes};
        most -= bytes;
    }
    return pieces;
}

/* If an error or the end follows some bytes, return those; the next call finds it again. */
static ssize_t move(struct stripes *stripes, const struct iovec *part, int parts, int sends)
{
    uint64_t *offset = sends ? &stripes->sent : &stripes->received;
    size_t all = 0;
    for (;;) {
        struct iovec piece[PARTS];
        const size_t most = STRIPE_BYTES - *offset % STRIPE_BYTES;
        const int pieces = cut_out(part, parts, all, most, piece), fd = fd_at(stripes, *offset);
        if (!pieces)
            return (ssize_t)all;
        struct msghdr message = {.msg_iov = piece, .msg_iovlen = (size_t)pieces};
        const ssize_t moved =
            sends ? sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) : recvmsg(fd, &message, MSG_DONTWAIT);
        if (moved <= 0)
            return all ? (ssize_t)all : moved;
        all += (size_t)moved;
        *offset += (uint64_t)moved;
    }
}

ssize_t pici_stripes_send(struct stripes *stripes, const struct iovec *part, int parts)
{
    return move(stripes, part, parts, 1);
}

ssize_t pici_stripes_recv(struct stripes *stripes, const struct iovec *part, int parts)
{
    return move(stripes, part, parts, 0);
}
