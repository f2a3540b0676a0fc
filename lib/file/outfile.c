/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Output that appears whole or not at all. All names are relative to a descriptor of the directory, so that neither
 * chdir nor a renamed directory leads elsewhere. */
#define _POSIX_C_SOURCE 200809L
#define _XOPEN_SOURCE 700 /* realpath */
#define _FILE_OFFSET_BITS 64
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "file/file.h"

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

/* fsync; a file system that has no such thing is as good as it gets. */
static int sync_fd(int fd)
{
    return fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : -1;
}

/* Split path into o->dir and o->name. PICI_OK or why not. */
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

/* Create the temporary file, with the permissions of old if there is one. */
static enum pici_status create(struct pici_outfile *o, const struct stat *old)
{
    for (unsigned k = 0; k < 100; k++) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        snprintf(o->temp, sizeof o->temp, ".pici-%ld-%lx%08lx-%u", (long)getpid(), (unsigned long)now.tv_sec,
                 (unsigned long)now.tv_nsec, k);
        o->fd = openat(o->dir, o->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, old ? 0600 : 0666);
        if (o->fd >= 0) {
            o->temp_exists = 1;
            break;
        }
        if (errno != EEXIST)
            return PICI_E_IO;
    }
    if (o->fd >= 0 && (!old || fchmod(o->fd, old->st_mode & 0777) == 0))
        return PICI_OK;
    pici_outfile_unlink(o);
    return PICI_E_IO;
}

static enum pici_status begin(struct pici_outfile *o, const char *path)
{
    struct stat st, *old = NULL;
    char *real = NULL;
    if (stat(path, &st) == 0) {
        if (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)) {
            o->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
            return o->fd < 0 ? PICI_E_IO : PICI_OK;
        }
        if (!S_ISREG(st.st_mode) || !o->force) {
            errno = S_ISDIR(st.st_mode) ? EISDIR : S_ISREG(st.st_mode) ? EEXIST : ENOTSUP;
            return PICI_E_IO;
        }
        old = &st;
        path = real = realpath(path, NULL);
        if (!real)
            return PICI_E_IO;
    } else if (errno != ENOENT) {
        return PICI_E_IO;
    } else if (!o->force && lstat(path, &st) == 0) {
        errno = EEXIST; /* a dangling symlink */
        return PICI_E_IO;
    }
    enum pici_status s = place(o, path);
    if (!s)
        s = create(o, old);
    int e = errno;
    free(real);
    errno = e;
    return s;
}

enum pici_status pici_outfile_open(struct pici_outfile **out, const char *path, int force)
{
    if (!out)
        return PICI_E_ARG;
    *out = NULL;
    if (!path || !*path)
        return PICI_E_ARG;
    struct pici_outfile *o = calloc(1, sizeof *o);
    if (!o)
        return PICI_E_NOMEM;
    o->fd = o->dir = -1;
    o->force = force;
    enum pici_status s = begin(o, path);
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

int pici_outfile_write(void *outfile, const void *p, size_t n)
{
    struct pici_outfile *o = outfile;
    return pici_fd_write(&o->fd, p, n);
}

/* Give the temporary file its name, unless another has it. */
static int link_new(struct pici_outfile *o)
{
    if (linkat(o->dir, o->temp, o->dir, o->name, 0) == 0)
        return unlinkat(o->dir, o->temp, 0);
    if (errno == EEXIST)
        return -1;
    /* A file system without links: claim the name with an empty file, then replace that. */
    int fd = openat(o->dir, o->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return -1;
    close(fd);
    if (renameat(o->dir, o->temp, o->dir, o->name) == 0)
        return 0;
    int e = errno;
    unlinkat(o->dir, o->name, 0);
    errno = e;
    return -1;
}

enum pici_status pici_outfile_commit(struct pici_outfile *o)
{
    if (!o)
        return PICI_E_ARG;
    int special = o->dir < 0, bad = !special && sync_fd(o->fd) != 0;
    int fd = o->fd;
    o->fd = -1;
    int e = errno;
    if (close(fd) != 0 && !bad) {
        bad = 1;
        e = errno;
    }
    errno = e;
    if (!bad && !special) {
        bad = o->force ? renameat(o->dir, o->temp, o->dir, o->name) != 0 : link_new(o) != 0;
        if (!bad) {
            o->temp_exists = 0;
            bad = sync_fd(o->dir) != 0;
        }
    }
    if (bad)
        pici_outfile_unlink(o);
    release(o);
    return bad ? PICI_E_IO : PICI_OK;
}

void pici_outfile_abort(struct pici_outfile *o)
{
    if (!o)
        return;
    pici_outfile_unlink(o);
    release(o);
}
