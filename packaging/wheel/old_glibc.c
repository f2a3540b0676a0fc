/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Lets libraries that are linked with a new glibc be loaded by glibc 2.17, as the platform tag manylinux_2_17 of a
 * wheel promises. Only wheels have this file inside (tools/dev/wheels).
 *
 * A linker binds a call to the newest version of a symbol. The functions below got new versions when glibc moved them
 * between its libraries (2.28, 2.33, 2.34), without a change of what they do. Each is defined here, hidden, and calls
 * the version that glibc had first, which it keeps for old programs. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined __x86_64__ && defined __LP64__
#define FIRST "GLIBC_2.2.5"
#define SETCLOCK "GLIBC_2.3.3"
#define FSTATAT "GLIBC_2.4"
#define STAT_VERSION 1
#elif defined __aarch64__ && defined __LP64__
#define FIRST "GLIBC_2.17"
#define SETCLOCK FIRST
#define FSTATAT FIRST
#define STAT_VERSION 0
#else
#error "the first versions of glibc's symbols are not known for this machine"
#endif

#define HIDDEN __attribute__((visibility("hidden")))
#define BIND(name, symbol, version) __asm__(".symver " #name ", " #symbol "@" version)

BIND(first_create, pthread_create, FIRST);
BIND(first_join, pthread_join, FIRST);
BIND(first_once, pthread_once, FIRST);
BIND(first_setstacksize, pthread_attr_setstacksize, FIRST);
BIND(first_setclock, pthread_condattr_setclock, SETCLOCK);
BIND(first_fcntl, fcntl, FIRST);
BIND(first_stat, __xstat64, FIRST);
BIND(first_lstat, __lxstat64, FIRST);
BIND(first_fstat, __fxstat64, FIRST);
BIND(first_dlopen, dlopen, FIRST);
BIND(first_dlsym, dlsym, FIRST);
BIND(first_dlerror, dlerror, FIRST);
BIND(first_fstatat, __fxstatat64, FSTATAT);

int first_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int first_join(pthread_t, void **);
int first_once(pthread_once_t *, void (*)(void));
int first_setstacksize(pthread_attr_t *, size_t);
int first_setclock(pthread_condattr_t *, clockid_t);
int first_fcntl(int, int, ...);
int first_stat(int, const char *, struct stat64 *);
int first_lstat(int, const char *, struct stat64 *);
int first_fstat(int, int, struct stat64 *);
void *first_dlopen(const char *, int);
void *first_dlsym(void *, const char *);
char *first_dlerror(void);
int first_fstatat(int, int, const char *, struct stat64 *, int);

HIDDEN int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    return first_create(thread, attr, run, arg);
}

HIDDEN int pthread_join(pthread_t thread, void **result)
{
    return first_join(thread, result);
}

HIDDEN int pthread_once(pthread_once_t *once, void (*run)(void))
{
    return first_once(once, run);
}

HIDDEN int pthread_attr_setstacksize(pthread_attr_t *attr, size_t bytes)
{
    return first_setstacksize(attr, bytes);
}

HIDDEN int pthread_condattr_setclock(pthread_condattr_t *attr, clockid_t clock)
{
    return first_setclock(attr, clock);
}

/* An argument that is missing or an int is passed on unchanged: it arrives in the register of a pointer. */
HIDDEN int fcntl64(int fd, int command, ...)
{
    va_list args;
    va_start(args, command);
    void *arg = va_arg(args, void *);
    va_end(args);
    return first_fcntl(fd, command, arg);
}

HIDDEN int stat64(const char *path, struct stat64 *st)
{
    return first_stat(STAT_VERSION, path, st);
}

HIDDEN int lstat64(const char *path, struct stat64 *st)
{
    return first_lstat(STAT_VERSION, path, st);
}

HIDDEN int fstat64(int fd, struct stat64 *st)
{
    return first_fstat(STAT_VERSION, fd, st);
}

HIDDEN int fstatat64(int dir, const char *path, struct stat64 *st, int flags)
{
    return first_fstatat(STAT_VERSION, dir, path, st, flags);
}

HIDDEN void *dlopen(const char *path, int mode)
{
    return first_dlopen(path, mode);
}

HIDDEN void *dlsym(void *library, const char *name)
{
    return first_dlsym(library, name);
}

HIDDEN char *dlerror(void)
{
    return first_dlerror();
}

/* New in glibc 2.28, for a system call of Linux 3.15: ENOSYS before that, which callers expect. */
HIDDEN int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}
