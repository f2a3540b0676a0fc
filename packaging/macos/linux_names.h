/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What of Linux the sources call and macOS lacks, in its POSIX form. Builds for macOS include this file before each
 * source, by -include. It includes little, since sources have names of their own that system headers have too. */
#ifndef PICI_MACOS_LINUX_NAMES_H
#define PICI_MACOS_LINUX_NAMES_H

#define _DARWIN_C_SOURCE 1

/* The times of struct stat. */
#define st_atim st_atimespec
#define st_mtim st_mtimespec
#define st_ctim st_ctimespec

/* POLLHUP, which is always reported, tells the same a little later. */
#define POLLRDHUP 0

#define PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP PTHREAD_RECURSIVE_MUTEX_INITIALIZER

/* Sockets that another program does not inherit, that do not block, and that raise no SIGPIPE: in several calls,
 * between which another thread's fork may inherit one. */
#define SOCK_CLOEXEC (1 << 28)
#define SOCK_NONBLOCK (1 << 29)
#define socket(domain, type, protocol) pici_macos_socket(domain, type, protocol)
#define accept4(listener, address, size, flags) pici_macos_accept(listener, address, size, flags)
int pici_macos_socket(int domain, int type, int protocol);
int pici_macos_accept(int listener, void *address, void *size, int flags);

#include <pthread.h> /* before the name in it is another's */

/* Waits until a time of the monotonic clock, as all waits here are. */
#define pthread_condattr_setclock(attribute, clock) ((void)(attribute), (void)(clock), 0)
#define pthread_cond_timedwait(changed, lock, until) pici_macos_timedwait(changed, lock, until)
int pici_macos_timedwait(void *changed, void *lock, const void *until);

#endif
