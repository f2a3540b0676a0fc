/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Output that appears whole or not at all. Names are relative to a descriptor of the directory, so that the file stays
 * in it if the process changes its directory or the directory is renamed. */
#define _GNU_SOURCE /* renameat2 */
#define _FILE_OFFSET_BITS 64
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/syscall.h>
#endif

#include "file/file.h"
#include "file/outfile.h"
#include "file/perms.h"

struct pici_outfile {
    int fd;
    int dir; /* of the file; -1: a FIFO or device, written as it is */
    int force;
    char *name; /* in dir */
    char temp[64];
    volatile sig_atomic_t temp_exists;
};

static void release(struct pici_outfile *o)
{
    int e = errno;
    if (o->fd >= 0)
        close(o->fd);
    if (o->dir >= 0)
        close(o->dir);
    free(o->name);
    free(o);
    errno = e;
}

void pici_outfile_unlink(const struct pici_outfile *o)
{
    int e = errno;
    if (o->temp_exists)
        unlinkat(o->dir, o->temp, 0);
    errno = e;
}

int pici_fd_sync(int fd)
{
    int bad;
    do {
        bad = fsync(fd) != 0;
    } while (bad && errno == EINTR);
    return bad && errno != EINVAL && errno != ENOTSUP ? -1 : 0;
}

/* An interrupted close is not repeated: the descriptor is closed, and its number may be another thread's by now. The
 * data of a file are on the disk already, by fsync. */
static int close_fd(int fd)
{
    return close(fd) == 0 || errno == EINTR ? 0 : -1;
}

/* Open the directory of path as o->dir; the rest is o->name. */
static enum pici_status place(struct pici_outfile *o, const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    if (!*base) {
        errno = EISDIR;
        return PICI_E_IO;
    }
    char *dir = slash ? strndup(path, (size_t)(base - path)) : strdup(".");
    o->name = strdup(base);
    if (!dir || !o->name) {
        free(dir);
        return PICI_E_NOMEM;
    }
    o->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(dir);
    return o->dir < 0 ? PICI_E_IO : PICI_OK;
}

/* Create the temporary file. perms: null for those of any new file. */
static enum pici_status create(struct pici_outfile *o, const struct pici_perms *perms)
{
    for (unsigned k = 0; k < 100; k++) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        snprintf(o->temp, sizeof o->temp, ".pici-%ld-%lx%08lx-%u", (long)getpid(), (unsigned long)now.tv_sec,
                 (unsigned long)now.tv_nsec, k);
        o->fd = openat(o->dir, o->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, perms ? 0600 : 0666);
        if (o->fd >= 0) {
            o->temp_exists = 1;
            break;
        }
        if (errno != EEXIST)
            return PICI_E_IO;
    }
    int e = o->fd < 0 ? errno : perms ? pici_perms_set(perms, o->fd) : 0;
    if (!e)
        return PICI_OK;
    pici_outfile_unlink(o);
    errno = e;
    return PICI_E_IO;
}

static int descriptor_named(const char *path)
{
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    if (strcmp(path, "/dev/stdout") == 0)
        return STDOUT_FILENO;
    if (strcmp(path, "/dev/stderr") == 0)
        return STDERR_FILENO;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const char *number = path + strlen(folders[i]);
        char *end;
        if (strncmp(path, folders[i], strlen(folders[i])) != 0 || *number < '0' || *number > '9')
            continue;
        const long fd = strtol(number, &end, 10);
        return *end || fd > INT_MAX ? -1 : (int)fd;
    }
    return -1;
}

/* The descriptor that a path is another name of, as /dev/stdout is, or a link to such a name: what is written there is
 * appended or goes into a pipe, as its opener wants. -1: none. */
static int descriptor_of(const char *path)
{
    enum { LINKS = 8 };
    char target[PATH_MAX];
    int fd = descriptor_named(path);
    for (int links = 0; fd < 0 && links < LINKS; links++) {
        char next[PATH_MAX];
        const ssize_t n = readlink(links ? target : path, next, sizeof next - 1);
        if (n <= 0 || next[0] != '/')
            break;
        memcpy(target, next, (size_t)n);
        target[n] = 0;
        fd = descriptor_named(target);
    }
    return fd;
}

/* new: the permissions of a new file. */
static enum pici_status begin(struct pici_outfile *o, const char *path, const struct pici_perms *new)
{
    struct pici_perms old = {0};
    struct stat st;
    enum pici_status s = PICI_OK;
    const int stream = descriptor_of(path);
    if (stream >= 0) {
        o->fd = fcntl(stream, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        return o->fd < 0 ? PICI_E_IO : PICI_OK;
    }
    if (stat(path, &st) == 0) {
        if (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)) {
            o->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
            return o->fd < 0 ? PICI_E_IO : PICI_OK;
        }
        if (!S_ISREG(st.st_mode) || !o->force) {
            errno = S_ISDIR(st.st_mode) ? EISDIR : S_ISREG(st.st_mode) ? EEXIST : ENOTSUP;
            return PICI_E_IO;
        }
        s = pici_perms_of_path(&old, path, &st) ? PICI_E_NOMEM : PICI_OK;
    } else if (errno != ENOENT) {
        return PICI_E_IO;
    } else if (!o->force && lstat(path, &st) == 0) {
        errno = EEXIST; /* a dangling symlink */
        return PICI_E_IO;
    }
    const struct pici_perms *const perms = old.files ? &old : new;
    if (!s)
        s = place(o, path);
    if (!s)
        s = create(o, perms->files ? perms : NULL);
    int e = errno;
    pici_perms_free(&old);
    errno = e;
    return s;
}

enum pici_status pici_outfile_open(struct pici_outfile **out, const char *path, int force)
{
    return pici_outfile_open_like(out, path, force, NULL, 0);
}

enum pici_status pici_outfile_open_like(struct pici_outfile **out, const char *path, int force, const int *from,
                                        size_t n)
{
    struct pici_perms perms = {0};
    enum pici_status s = n && !from ? PICI_E_ARG : PICI_OK;
    if (!out)
        return PICI_E_ARG;
    *out = NULL;
    for (size_t i = 0; !s && i < n; i++)
        s = pici_perms_add(&perms, from[i]) ? PICI_E_NOMEM : PICI_OK;
    if (!s)
        s = pici_outfile_open_as(out, path, force, &perms);
    const int e = errno;
    pici_perms_free(&perms);
    errno = e;
    return s;
}

enum pici_status pici_outfile_open_as(struct pici_outfile **out, const char *path, int force,
                                      const struct pici_perms *perms)
{
    *out = NULL;
    if (!path || !*path)
        return PICI_E_ARG;
    struct pici_outfile *o = calloc(1, sizeof *o);
    if (!o)
        return PICI_E_NOMEM;
    o->fd = o->dir = -1;
    o->force = force;
    enum pici_status s = begin(o, path, perms);
    if (s)
        release(o);
    else
        *out = o;
    return s;
}

int pici_outfile_fd(const struct pici_outfile *o)
{
    return o->fd;
}

int pici_outfile_is_stream(const struct pici_outfile *o)
{
    return o->dir < 0;
}

int pici_outfile_write(void *outfile, const void *p, size_t n)
{
    struct pici_outfile *o = outfile;
    return pici_fd_write(&o->fd, p, n);
}

/* renameat2 with RENAME_NOREPLACE; fails where the system or the file system lacks it. */
static int rename_new(int dir, const char *from, const char *to)
{
#if defined(RENAME_NOREPLACE)
    return renameat2(dir, from, dir, to, RENAME_NOREPLACE);
#elif defined(SYS_renameat2)
    return (int)syscall(SYS_renameat2, dir, from, dir, to, 1u /* RENAME_NOREPLACE */);
#else
    (void)dir;
    (void)from;
    (void)to;
    errno = ENOSYS;
    return -1;
#endif
}

/* Give the temporary file its name, unless another file has it. Nothing but the whole file ever has the name: a process
 * that is killed between two of these calls leaves no other. */
static int name_new(struct pici_outfile *o)
{
    struct stat st;
    if (rename_new(o->dir, o->temp, o->name) == 0)
        return 0;
    if (errno == EEXIST)
        return -1;
    if (linkat(o->dir, o->temp, o->dir, o->name, 0) == 0) {
        (void)unlinkat(o->dir, o->temp, 0); /* the file has its name; at worst the temporary one stays too */
        return 0;
    }
    if (errno == EEXIST)
        return -1;
    /* A file system with neither. Claiming the name with an empty file would leave that behind when killed; so a file
     * that another process creates between these two calls is replaced. */
    if (fstatat(o->dir, o->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        errno = EEXIST;
    if (errno != ENOENT)
        return -1;
    return renameat(o->dir, o->temp, o->dir, o->name);
}

/* Give the file its name, once its data are on the disk. */
static enum pici_status appear(struct pici_outfile *o)
{
    if ((o->force ? renameat(o->dir, o->temp, o->dir, o->name) : name_new(o)) != 0)
        return PICI_E_IO;
    o->temp_exists = 0;
    return pici_fd_sync(o->dir) ? PICI_E_SYNC : PICI_OK;
}

enum pici_status pici_outfile_commit(struct pici_outfile *o)
{
    if (!o)
        return PICI_E_ARG;
    const int special = o->dir < 0, fd = o->fd;
    enum pici_status s = !special && pici_fd_sync(fd) ? PICI_E_IO : PICI_OK;
    const int e = errno;
    o->fd = -1;
    if (close_fd(fd) != 0 && !s)
        s = PICI_E_IO;
    else
        errno = e;
    if (!s && !special)
        s = appear(o);
    if (s == PICI_E_IO)
        pici_outfile_unlink(o);
    release(o);
    return s;
}

void pici_outfile_abort(struct pici_outfile *o)
{
    if (!o)
        return;
    pici_outfile_unlink(o);
    release(o);
}
