/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* renameat2 */
#include "output/outfolder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "parse/folder_list.h"
#include "parse/shards.h"
#include "term.h"
#include "tool.h"

enum { NO_REPLACE = 1, EXCHANGE = 2 }; /* flags of renameat2 */
enum { DEPTH_MOST = 32 };              /* of folders in one another that are removed */

/* The temporary folder, for the handler of signals. */
static struct {
    volatile sig_atomic_t exists;
    int parent;
    char name[64];
} temporary;

bool outfolder_is_open(void)
{
    return temporary.exists;
}

char *folder_path(const char *folder, const char *name, const char *extension)
{
    const size_t cap = strlen(folder) + strlen(name) + strlen(extension) + 2;
    char *const path = malloc(cap);
    if (path)
        snprintf(path, cap, "%s/%s%s", folder, name, extension);
    else
        tool_nomem(folder, "a path");
    return path;
}

/* An entry as getdents64(2) gives it, of which the name is followed by a NUL. */
struct entry {
    uint64_t ino;
    int64_t off;
    uint16_t length;
    uint8_t type;
    char name[];
};

/* Removes a folder, which others may add to meanwhile. Only calls what a handler of signals may call, as opendir(3) is
 * not. */
static int remove_folder(int parent, const char *name, unsigned depth)
{
    _Alignas(8) char buf[2048];
    for (int tries = 0; tries < 1000; tries++) {
        long got;
        const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            return errno == ENOENT ? 0 : errno;
        while ((got = syscall(SYS_getdents64, fd, buf, sizeof buf)) > 0)
            for (long at = 0; at < got;) {
                const struct entry *const e = (const void *)(buf + at);
                if (strcmp(e->name, ".") != 0 && strcmp(e->name, "..") != 0 && unlinkat(fd, e->name, 0) != 0 &&
                    errno == EISDIR && depth < DEPTH_MOST)
                    remove_folder(fd, e->name, depth + 1);
                at += e->length;
            }
        close(fd);
        if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
            return 0;
    }
    return errno;
}

void outfolder_unlink(void)
{
    const int e = errno;
    if (temporary.exists)
        remove_folder(temporary.parent, temporary.name, 0);
    errno = e;
}

static void hold_signals(sigset_t *old)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, old);
}

/* Makes the temporary folder in `in`, which o->parent is, unless something has its name. Signals are held. */
static int make_temporary(struct outfolder *o, const char *path, const char *in, unsigned tries)
{
    struct timespec now;
    char name[sizeof temporary.name];
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(name, sizeof name, ".pici-%ld-%lx%08lx-%u", (long)getpid(), (unsigned long)now.tv_sec,
             (unsigned long)now.tv_nsec, tries);
    if (mkdirat(o->parent, name, 0700) != 0)
        return errno == EEXIST && tries < 100 ? TOOL_OK : tool_bad(path, "%s", strerror(errno));
    memcpy(temporary.name, name, sizeof name);
    temporary.parent = o->parent;
    temporary.exists = 1;
    o->fd = openat(o->parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (o->fd < 0)
        return tool_bad(path, "%s", strerror(errno));
    o->path = folder_path(in, name, "");
    return o->path ? TOOL_OK : TOOL_BAD;
}

/* Finds the folder that the new one is to be in, and its name there. dir: path without slashes at its end; changed */
static int place_at(struct outfolder *o, const char *path, char *dir)
{
    char *const slash = strrchr(dir, '/');
    const char *const base = slash ? slash + 1 : dir, *const in = slash ? dir : ".";
    if (!*base || strcmp(base, ".") == 0 || strcmp(base, "..") == 0)
        return tool_usage(path, "is not the name of a new folder");
    o->base = strdup(base);
    if (!o->base)
        return tool_nomem(path, "a path");
    if (slash)
        slash[slash == dir] = 0;
    o->parent = open(in, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (o->parent < 0)
        return tool_bad(path, "%s: %s", in, strerror(errno));
    for (unsigned tries = 0; o->fd < 0; tries++) {
        sigset_t old;
        hold_signals(&old);
        const int status = make_temporary(o, path, in, tries);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        TRY(status);
    }
    return TOOL_OK;
}

static int place(struct outfolder *o, const char *path)
{
    char *const dir = strdup(path);
    size_t len = dir ? strlen(dir) : 0;
    if (!dir)
        return tool_nomem(path, "a path");
    while (len > 1 && dir[len - 1] == '/')
        dir[--len] = 0;
    const int status = place_at(o, path, dir);
    free(dir);
    return status;
}

/* What is known of a folder that is to be replaced. */
struct replaced {
    const char *path;               /* to show */
    const struct folder_list *list; /* of the new one; NULL: the old one is the input */
    bool known, any;                /* it has a file of a checkpoint, or anything */
};

/* Whether a file of the list is in the folder. */
static bool is_in_list(const struct folder_list *l, const char *folder)
{
    const size_t n = strlen(folder);
    size_t i = 0;
    while (i < l->files && (strncmp(l->file[i].name, folder, n) != 0 || l->file[i].name[n] != '/'))
        i++;
    return i < l->files;
}

static int look_through(struct replaced *r, const char *folder);

static int look_at(struct replaced *r, const char *folder, DIR *d, const char *name)
{
    struct stat st;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return TOOL_OK;
    r->any = true;
    if (fstatat(dirfd(d), name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode)) {
        r->known = r->known || strcmp(name, FOLDER_LIST_NAME) == 0 || tool_has_extension(name, SHARDS_INDEX) ||
                   tool_has_extension(name, SHARDS_EXTENSION) || tool_has_extension(name, ".distcp");
        return TOOL_OK;
    }
    char *const path = *folder ? folder_path(folder, name, "") : strdup(name);
    const bool may = !path ? false : r->list ? is_in_list(r->list, path) : name[0] != '.';
    const int status = !path ? tool_nomem(r->path, "a path")
                       : may ? look_through(r, path)
                             : tool_usage(r->path,
                                          "has folders in it that the new one has not, as %s, "
                                          "so it is not replaced: remove it first",
                                          name);
    free(path);
    return status;
}

/* Looks at all that is in a folder below r->path, or "". */
static int look_through(struct replaced *r, const char *folder)
{
    char *const path = folder_path(r->path, folder, "");
    DIR *const d = path ? opendir(path) : NULL;
    int status = !path ? TOOL_BAD : !d ? tool_bad(path, "%s", strerror(errno)) : TOOL_OK;
    for (struct dirent *e; !status && (e = readdir(d));)
        status = look_at(r, folder, d, e->d_name);
    if (d)
        closedir(d);
    free(path);
    return status;
}

/* Whether what is in an existing folder may be removed. */
static int check_replaced(const char *path, const struct folder_list *list)
{
    struct stat st;
    struct replaced r = {.path = path, .list = list};
    if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return tool_usage(path, "exists and is not a folder");
    TRY(look_through(&r, ""));
    return r.known || !r.any ? TOOL_OK
                             : tool_usage(path, "is not a checkpoint, so it is not replaced: remove it first");
}

static int replace(struct outfolder *o, const char *path, const struct folder_list *list)
{
    TRY(check_replaced(path, list));
    char *const real = realpath(path, NULL);
    if (!real)
        return tool_bad(path, "%s", strerror(errno));
    const int status = place(o, real);
    free(real);
    return status;
}

int outfolder_open(struct outfolder *o, const char *path, mode_t mode, bool force, const struct folder_list *list)
{
    struct stat st;
    *o = (struct outfolder){.name = path, .parent = -1, .fd = -1, .mode = (mode & 0777) | 0700};
    o->replace = lstat(path, &st) == 0;
    if (o->replace && !force) {
        if (!term_can_ask())
            return tool_usage(path, "exists; --force overwrites it");
        if (!term_ask(path, "exists; overwrite it?"))
            return tool_usage(path, "exists and is kept");
    }
    const int status = o->replace ? replace(o, path, list) : place(o, path);
    if (status)
        outfolder_discard(o);
    return status;
}

int outfolder_sync(int fd)
{
    int bad;
    do {
        bad = fsync(fd) != 0;
    } while (bad && errno == EINTR);
    return bad && errno != EINVAL && errno != ENOTSUP ? -1 : 0;
}

static int rename_with(const struct outfolder *o, unsigned flags)
{
#ifdef SYS_renameat2
    return (int)syscall(SYS_renameat2, o->parent, temporary.name, o->parent, o->base, flags);
#else
    (void)flags;
    errno = ENOSYS;
    return -1;
#endif
}

/* Gives the folder its name, unless something else has it. rename(2) replaces nothing but an empty folder. */
static int name_new(const struct outfolder *o)
{
    struct stat st;
    if (rename_with(o, NO_REPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    if (fstatat(o->parent, o->base, &st, AT_SYMLINK_NOFOLLOW) == 0)
        errno = EEXIST;
    return errno == ENOENT ? renameat(o->parent, temporary.name, o->parent, o->base) : -1;
}

int outfolder_commit(struct outfolder *o)
{
    sigset_t old;
    int status = TOOL_OK;
    if (fchmod(o->fd, o->mode) != 0 || outfolder_sync(o->fd) != 0)
        return tool_bad(o->name, "%s", strerror(errno));
    hold_signals(&old);
    if ((o->replace ? rename_with(o, EXCHANGE) : name_new(o)) != 0) {
        status = errno == EEXIST || errno == ENOTEMPTY
                     ? tool_usage(o->name, "appeared meanwhile; --force overwrites it")
                 : o->replace && (errno == EINVAL || errno == ENOSYS)
                     ? tool_bad(o->name, "the file system cannot exchange two folders: remove this one first")
                     : tool_bad(o->name, "%s", strerror(errno));
    } else {
        temporary.exists = o->replace; /* the old one has the temporary name now */
        if (outfolder_sync(o->parent) != 0) {
            status = tool_bad(o->name, "written, but perhaps not on the disk: %s", strerror(errno));
            if (temporary.exists) /* after a power failure it may have its name again */
                tool_warn(o->name, "the folder before is kept as %s", temporary.name);
            temporary.exists = 0;
        }
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return status;
}

void outfolder_discard(struct outfolder *o)
{
    sigset_t old;
    hold_signals(&old);
    if (temporary.exists && temporary.parent == o->parent) {
        const int err = remove_folder(o->parent, temporary.name, 0);
        if (err)
            tool_warn(o->name, "%s is left behind: %s", temporary.name, strerror(err));
        temporary.exists = 0;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (o->fd >= 0)
        close(o->fd);
    if (o->parent >= 0)
        close(o->parent);
    free(o->base);
    free(o->path);
    *o = (struct outfolder){.parent = -1, .fd = -1};
}
