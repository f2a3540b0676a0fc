/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A part of libpici_coll on macOS. */
#include "linux_names.h"

#undef socket
#undef pthread_cond_timedwait

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Gives the socket its flags. Returns fd, or -1 after closing it. */
static int with_flags(int fd, int flags)
{
    const int on = 1;
    if (fd < 0)
        return fd;
    if ((!(flags & SOCK_CLOEXEC) || fcntl(fd, F_SETFD, FD_CLOEXEC) == 0) &&
        (!(flags & SOCK_NONBLOCK) || fcntl(fd, F_SETFL, O_NONBLOCK) == 0) &&
        setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on) == 0)
        return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

int pici_macos_socket(int domain, int type, int protocol)
{
    return with_flags(socket(domain, type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK), protocol), type);
}

int pici_macos_accept(int listener, void *address, void *size, int flags)
{
    return with_flags(accept(listener, address, size), flags);
}

int pici_macos_timedwait(void *changed, void *lock, const void *until)
{
    const struct timespec *const end = until;
    struct timespec now, left;
    clock_gettime(CLOCK_MONOTONIC, &now);
    left.tv_sec = end->tv_sec - now.tv_sec;
    left.tv_nsec = end->tv_nsec - now.tv_nsec;
    if (left.tv_nsec < 0) {
        left.tv_nsec += 1000000000;
        left.tv_sec--;
    }
    return left.tv_sec < 0 ? ETIMEDOUT : pthread_cond_timedwait_relative_np(changed, lock, &left);
}
