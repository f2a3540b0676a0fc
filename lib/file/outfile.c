/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Atomic output. Names are relative to a descriptor of the directory, so that the file stays in it if the process
 * changes its directory or the directory is renamed. */
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
    int descriptor;
    int directory;  /* of the file; -1: a FIFO or device, written as it is */
    int unreadable; /* the directory may be written but not read, so it cannot be synced */
    int force;
    char *name; /* in directory */
    char temporary[64];
    volatile sig_atomic_t temp_exists;
};

static void release(struct pici_outfile *outfile)
{
    int error_number = errno;
    if (outfile->descriptor >= 0)
        close(outfile->descriptor);
    if (outfile->directory >= 0)
        close(outfile->directory);
    free(outfile->name);
    free(outfile);
    errno = error_number;
}

void pici_outfile_unlink(const struct pici_outfile *outfile)
{
    int error_number = errno;
    if (outfile->temp_exists)
        unlinkat(outfile->directory, outfile->temporary, 0);
    errno = error_number;
}

int pici_fd_sync(int descriptor)
{
    int bad;
    do {
        bad = fsync(descriptor) != 0;
    } while (bad && errno == EINTR);
    return bad && errno != EINVAL && errno != ENOTSUP ? -1 : 0;
}

/* Do not repeat an interrupted close: the descriptor is closed, and another thread may already use its number. fsync
 * has already written the data to disk. */
static int close_fd(int descriptor)
{
    return close(descriptor) == 0 || errno == EINTR ? 0 : -1;
}

/* Open the directory of path as outfile->directory; the rest is outfile->name. */
static enum pici_status place(struct pici_outfile *outfile, const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    if (!*base) {
        errno = EISDIR;
        return PICI_E_IO;
    }
    char *dir = slash ? strndup(path, (size_t)(base - path)) : strdup(".");
    outfile->name = strdup(base);
    if (!dir || !outfile->name) {
        free(dir);
        return PICI_E_NOMEM;
    }
    outfile->directory = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
#ifdef O_PATH
    outfile->unreadable = outfile->directory < 0 && errno == EACCES;
    if (outfile->unreadable)
        outfile->directory = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
#endif
    const int error_number = errno;
    free(dir);
    errno = error_number;
    return outfile->directory < 0 ? PICI_E_IO : PICI_OK;
}

/* Create the temporary file. perms: null for the default permissions. */
static enum pici_status create(struct pici_outfile *outfile, const struct pici_perms *perms)
{
    for (unsigned k = 0; k < 100; k++) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        snprintf(outfile->temporary, sizeof outfile->temporary, ".pici-%ld-%lx%08lx-%u", (long)getpid(),
                 (unsigned long)now.tv_sec, (unsigned long)now.tv_nsec, k);
        outfile->descriptor = openat(outfile->directory, outfile->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                                     perms ? 0600 : 0666);
        if (outfile->descriptor >= 0) {
            outfile->temp_exists = 1;
            break;
        }
        if (errno != EEXIST)
            return PICI_E_IO;
    }
    int error_number = errno;
    if (outfile->descriptor >= 0)
        error_number = perms ? pici_perms_set(perms, outfile->descriptor) : 0;
    if (!error_number)
        return PICI_OK;
    pici_outfile_unlink(outfile);
    errno = error_number;
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

/* The descriptor behind a path such as /dev/stdout, or a link to one, or -1. Writing to it keeps the opener's choices,
 * such as appending. */
static int descriptor_of(const char *path)
{
    enum { LINKS = 8 };
    char target[PATH_MAX];
    int descriptor = descriptor_named(path);
    for (int links = 0; descriptor < 0 && links < LINKS; links++) {
        char next[PATH_MAX];
        const ssize_t moved = readlink(links ? target : path, next, sizeof next - 1);
        if (moved <= 0 || next[0] != '/')
            break;
        memcpy(target, next, (size_t)moved);
        target[moved] = 0;
        descriptor = descriptor_named(target);
    }
    return descriptor;
}

/* given: the permissions for a new file. */
static enum pici_status begin(struct pici_outfile *outfile, const char *path, const struct pici_perms *given)
{
    struct pici_perms replaced = {0};
    struct stat file_status;
    enum pici_status status = PICI_OK;
    const int stream = descriptor_of(path);
    if (stream >= 0) {
        outfile->descriptor = fcntl(stream, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        return outfile->descriptor < 0 ? PICI_E_IO : PICI_OK;
    }
    if (stat(path, &file_status) == 0) {
        if (S_ISFIFO(file_status.st_mode) || S_ISCHR(file_status.st_mode)) {
            outfile->descriptor = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
            return outfile->descriptor < 0 ? PICI_E_IO : PICI_OK;
        }
        if (!S_ISREG(file_status.st_mode) || !outfile->force) {
            errno = S_ISREG(file_status.st_mode) ? EEXIST : ENOTSUP;
            if (S_ISDIR(file_status.st_mode))
                errno = EISDIR;
            return PICI_E_IO;
        }
        status = pici_perms_of_path(&replaced, path, &file_status) ? PICI_E_NOMEM : PICI_OK;
    } else if (errno != ENOENT) {
        return PICI_E_IO;
    } else if (!outfile->force && lstat(path, &file_status) == 0) {
        errno = EEXIST; /* a dangling symlink */
        return PICI_E_IO;
    }
    const struct pici_perms *const perms = replaced.files ? &replaced : given;
    if (!status)
        status = place(outfile, path);
    if (!status)
        status = create(outfile, perms->files ? perms : NULL);
    int error_number = errno;
    pici_perms_free(&replaced);
    errno = error_number;
    return status;
}

enum pici_status pici_outfile_open(struct pici_outfile **outfile, const char *path, int force)
{
    return pici_outfile_open_like(outfile, path, force, NULL, 0);
}

enum pici_status pici_outfile_open_like(struct pici_outfile **outfile, const char *path, int force, const int *from,
                                        size_t file_count)
{
    struct pici_perms perms = {0};
    enum pici_status s = file_count && !from ? PICI_E_ARG : PICI_OK;
    if (!outfile)
        return PICI_E_ARG;
    *outfile = NULL;
    for (size_t i = 0; !s && i < file_count; i++)
        s = pici_perms_add(&perms, from[i]) ? PICI_E_NOMEM : PICI_OK;
    if (!s)
        s = pici_outfile_open_as(outfile, path, force, &perms);
    const int error_number = errno;
    pici_perms_free(&perms);
    errno = error_number;
    return s;
}

enum pici_status pici_outfile_open_as(struct pici_outfile **out, const char *path, int force,
                                      const struct pici_perms *perms)
{
    *out = NULL;
    if (!path || !*path)
        return PICI_E_ARG;
    struct pici_outfile *outfile = calloc(1, sizeof *outfile);
    if (!outfile)
        return PICI_E_NOMEM;
    outfile->descriptor = outfile->directory = -1;
    outfile->force = force;
    enum pici_status status = begin(outfile, path, perms);
    if (status)
        release(outfile);
    else
        *out = outfile;
    return status;
}

int pici_outfile_fd(const struct pici_outfile *outfile)
{
    return outfile->descriptor;
}

int pici_outfile_is_stream(const struct pici_outfile *outfile)
{
    return outfile->directory < 0;
}

int pici_outfile_write(void *outfile, const void *bytes, size_t size)
{
    struct pici_outfile *to = outfile;
    return pici_fd_write(&to->descriptor, bytes, size);
}

/* renameat2 with RENAME_NOREPLACE; fails where the system or the file system lacks it. */
static int rename_new(int dir, const char *temporary_path, const char *target)
{
#if defined(RENAME_NOREPLACE)
    return renameat2(dir, temporary_path, dir, target, RENAME_NOREPLACE);
#elif defined(SYS_renameat2)
    return (int)syscall(SYS_renameat2, dir, temporary_path, dir, target, 1u /* RENAME_NOREPLACE */);
#else
    (void)dir;
    (void)temporary_path;
    (void)target;
    errno = ENOSYS;
    return -1;
#endif
}

/* Give the temporary file its name, unless another file has it. Only the complete file ever has the name, even if the
 * process is killed between two of these calls. */
static int name_new(struct pici_outfile *outfile)
{
    struct stat file_status;
    if (rename_new(outfile->directory, outfile->temporary, outfile->name) == 0)
        return 0;
    if (errno == EEXIST)
        return -1;
    if (linkat(outfile->directory, outfile->temporary, outfile->directory, outfile->name, 0) == 0) {
        (void)unlinkat(outfile->directory, outfile->temporary,
                       0); /* the file has its name; at worst the temporary one stays too */
        return 0;
    }
    if (errno == EEXIST)
        return -1;
    /* The file system supports neither. Claiming the name with an empty file would leave that file if the process is
     * killed. So this replaces a file that another process creates between these two calls. */
    if (fstatat(outfile->directory, outfile->name, &file_status, AT_SYMLINK_NOFOLLOW) == 0)
        errno = EEXIST;
    if (errno != ENOENT)
        return -1;
    return renameat(outfile->directory, outfile->temporary, outfile->directory, outfile->name);
}

/* Give the file its name, once its data are on the disk. */
static enum pici_status appear(struct pici_outfile *outfile)
{
    if ((outfile->force ? renameat(outfile->directory, outfile->temporary, outfile->directory, outfile->name)
                        : name_new(outfile)) != 0)
        return PICI_E_IO;
    outfile->temp_exists = 0;
    return !outfile->unreadable && pici_fd_sync(outfile->directory) ? PICI_E_SYNC : PICI_OK;
}

enum pici_status pici_outfile_commit(struct pici_outfile *outfile)
{
    if (!outfile)
        return PICI_E_ARG;
    const int special = outfile->directory < 0, fd = outfile->descriptor;
    enum pici_status status = !special && pici_fd_sync(fd) ? PICI_E_IO : PICI_OK;
    const int error_number = errno;
    outfile->descriptor = -1;
    if (close_fd(fd) != 0 && !status)
        status = PICI_E_IO;
    else
        errno = error_number;
    if (!status && !special)
        status = appear(outfile);
    if (status == PICI_E_IO)
        pici_outfile_unlink(outfile);
    release(outfile);
    return status;
}

void pici_outfile_abort(struct pici_outfile *outfile)
{
    if (!outfile)
        return;
    pici_outfile_unlink(outfile);
    release(outfile);
}
