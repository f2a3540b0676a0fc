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
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/syscall.h>
#endif

#include "parse/folder_list.h"
#include "parse/shards.h"
#include "term.h"
#include "tool.h"

enum { NO_REPLACE = 1, EXCHANGE = 2 }; /* flags of renameat2 */
enum { DEPTH_MOST = 32 };              /* nesting of folders to remove */

/* The temporary folder, for the signal handler. */
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
    const size_t capacity = strlen(folder) + strlen(name) + strlen(extension) + 2;
    char *const path = malloc(capacity);
    if (path)
        snprintf(path, capacity, "%s/%s%s", folder, name, extension);
    else
        tool_nomem(folder, "a path");
    return path;
}

static int remove_folder(int parent, const char *name, unsigned depth);

/* Removes an entry of a folder. For a folder, unlink(2) fails with EISDIR, or with EPERM by POSIX. */
static void remove_entry(int folder, const char *name, unsigned depth)
{
    if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && unlinkat(folder, name, 0) != 0 &&
        (errno == EISDIR || errno == EPERM) && depth < DEPTH_MOST)
        remove_folder(folder, name, depth + 1);
}

#ifdef __linux__

/* An entry of getdents64(2). Its name ends in a NUL. */
struct entry {
    uint64_t inode;
    int64_t next_offset;
    uint16_t length;
    uint8_t type;
    char name[];
};

static void remove_entries(int folder, unsigned depth)
{
    _Alignas(8) char buffer[2048];
    for (long got; (got = syscall(SYS_getdents64, folder, buffer, sizeof buffer)) > 0;)
        for (long at = 0; at < got;) {
            const struct entry *const entry = (const void *)(buffer + at);
            remove_entry(folder, entry->name, depth);
            at += entry->length;
        }
}

#else

/* Uses opendir(3), which is not async-signal-safe: there is no other way. */
static void remove_entries(int folder, unsigned depth)
{
    const int copy = dup(folder);
    DIR *const directory = copy < 0 ? NULL : fdopendir(copy);
    if (!directory && copy >= 0)
        close(copy);
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        remove_entry(folder, entry->d_name, depth);
    if (directory)
        closedir(directory);
}

#endif

/* Removes a folder, to which other threads may still add. Calls only async-signal-safe functions, unlike opendir(3). */
static int remove_folder(int parent, const char *name, unsigned depth)
{
    for (int tries = 0; tries < 1000; tries++) {
        const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            return errno == ENOENT ? 0 : errno;
        remove_entries(fd, depth);
        close(fd);
        if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
            return 0;
    }
    return errno;
}

void outfolder_unlink(void)
{
    const int saved_errno = errno;
    if (temporary.exists)
        remove_folder(temporary.parent, temporary.name, 0);
    errno = saved_errno;
}

static void hold_signals(sigset_t *old)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, old);
}

/* Makes the temporary folder in `parent_path`, the folder of folder->parent, unless the name is taken. Signals are
 * blocked. */
static int make_temporary(struct outfolder *folder, const char *path, const char *parent_path, unsigned tries)
{
    struct timespec now;
    char name[sizeof temporary.name];
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(name, sizeof name, ".pici-%ld-%lx%08lx-%u", (long)getpid(), (unsigned long)now.tv_sec,
             (unsigned long)now.tv_nsec, tries);
    if (mkdirat(folder->parent, name, 0700) != 0)
        return errno == EEXIST && tries < 100 ? TOOL_OK : tool_bad(path, "%s", strerror(errno));
    memcpy(temporary.name, name, sizeof name);
    temporary.parent = folder->parent;
    temporary.exists = 1;
    folder->fd = openat(folder->parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder->fd < 0)
        return tool_bad(path, "%s", strerror(errno));
    folder->path = folder_path(parent_path, name, "");
    return folder->path ? TOOL_OK : TOOL_BAD;
}

/* Finds the parent of the new folder, and its name there. dir: path without trailing slashes; changed */
static int place_at(struct outfolder *folder, const char *path, char *dir)
{
    char *const slash = strrchr(dir, '/');
    const char *const base = slash ? slash + 1 : dir;
    const char *const in = slash ? dir : ".";
    if (!*base || strcmp(base, ".") == 0 || strcmp(base, "..") == 0)
        return tool_usage(path, "is not the name of a new folder");
    folder->base_name = strdup(base);
    if (!folder->base_name)
        return tool_nomem(path, "a path");
    if (slash)
        slash[slash == dir] = 0;
    folder->parent = open(in, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
#ifdef O_PATH
    folder->unreadable = folder->parent < 0 && errno == EACCES;
    if (folder->unreadable)
        folder->parent = open(in, O_PATH | O_DIRECTORY | O_CLOEXEC);
#endif
    if (folder->parent < 0)
        return tool_bad(path, "%s: %s", in, strerror(errno));
    for (unsigned tries = 0; folder->fd < 0; tries++) {
        sigset_t old;
        hold_signals(&old);
        const int status = make_temporary(folder, path, in, tries);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        TRY(status);
    }
    return TOOL_OK;
}

static int place(struct outfolder *folder, const char *path)
{
    char *const dir = strdup(path);
    size_t size = dir ? strlen(dir) : 0;
    if (!dir)
        return tool_nomem(path, "a path");
    while (size > 1 && dir[size - 1] == '/')
        dir[--size] = 0;
    const int status = place_at(folder, path, dir);
    free(dir);
    return status;
}

/* A check of the folder to replace. */
struct replaced {
    const char *path;               /* to show */
    const struct folder_list *list; /* of the new folder; NULL: the old folder is the input */
    const char *lacks;              /* while checking a subfolder that the new folder lacks, its name; or NULL */
    bool is_known, has_any;         /* it has a file of a checkpoint; it has any entry */
};

/* Whether a file of the list is in the folder. */
static bool is_in_list(const struct folder_list *list, const char *folder)
{
    const size_t n = strlen(folder);
    size_t i = 0;
    while (i < list->files && (strncmp(list->file[i].name, folder, n) != 0 || list->file[i].name[n] != '/'))
        i++;
    return i < list->files;
}

static int look_through(struct replaced *replaced, const char *folder);

static int look_at(struct replaced *replaced, const char *folder, DIR *directory, const char *name)
{
    struct stat file_info;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return TOOL_OK;
    replaced->has_any = true;
    const char *const lacks = replaced->lacks;
    if (fstatat(dirfd(directory), name, &file_info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(file_info.st_mode)) {
        if (lacks)
            return tool_usage(replaced->path,
                              "not replaced: it has folders that the new one lacks, such as %s; remove it first",
                              lacks);
        replaced->is_known = replaced->is_known || strcmp(name, FOLDER_LIST_NAME) == 0 ||
                             tool_has_extension(name, SHARDS_INDEX) || tool_has_extension(name, SHARDS_EXTENSION) ||
                             tool_has_extension(name, ".distcp");
        return TOOL_OK;
    }
    char *const path = *folder ? folder_path(folder, name, "") : strdup(name);
    const bool may = replaced->list ? path && is_in_list(replaced->list, path) : name[0] != '.';
    if (!may && !lacks)
        replaced->lacks = name;
    const int status = path ? look_through(replaced, path) : tool_nomem(replaced->path, "a path");
    replaced->lacks = lacks;
    free(path);
    return status;
}

/* Checks all entries of a folder below replaced->path, or of that folder for "". */
static int look_through(struct replaced *replaced, const char *folder)
{
    char *const path = folder_path(replaced->path, folder, "");
    DIR *const directory = path ? opendir(path) : NULL;
    int status = path ? TOOL_OK : TOOL_BAD;
    if (path && !directory)
        status = tool_bad(path, "%s", strerror(errno));
    for (struct dirent *entry; !status && (entry = readdir(directory));)
        status = look_at(replaced, folder, directory, entry->d_name);
    if (directory)
        closedir(directory);
    free(path);
    return status;
}

/* Whether an existing folder may be replaced. */
static int check_replaced(const char *path, const struct folder_list *list)
{
    struct stat file_info;
    struct replaced replaced = {.path = path, .list = list};
    if (lstat(path, &file_info) != 0 || !S_ISDIR(file_info.st_mode))
        return tool_usage(path, "exists and is not a folder");
    TRY(look_through(&replaced, ""));
    return replaced.is_known || !replaced.has_any
               ? TOOL_OK
               : tool_usage(path, "not replaced: it is not a checkpoint; remove it first");
}

static int replace(struct outfolder *folder, const char *path, const struct folder_list *list)
{
    TRY(check_replaced(path, list));
    char *const real = realpath(path, NULL);
    if (!real)
        return tool_bad(path, "%s", strerror(errno));
    const int status = place(folder, real);
    free(real);
    return status;
}

int outfolder_open(struct outfolder *folder, const char *path, mode_t mode, bool force, const struct folder_list *list)
{
    struct stat file_info;
    *folder = (struct outfolder){.name = path, .parent = -1, .fd = -1, .mode = (mode & 0777) | 0700};
    folder->replaces = lstat(path, &file_info) == 0;
    if (folder->replaces && !force) {
        if (!term_can_ask())
            return tool_usage(path, "already exists; not overwritten: --force overwrites it");
        if (!term_ask(path, "already exists; overwrite it?"))
            return tool_usage(path, "already exists; not overwritten");
    }
    const int status = folder->replaces ? replace(folder, path, list) : place(folder, path);
    if (status)
        outfolder_discard(folder);
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

static int rename_with(const struct outfolder *folder, unsigned flags)
{
#ifdef SYS_renameat2
    return (int)syscall(SYS_renameat2, folder->parent, temporary.name, folder->parent, folder->base_name, flags);
#else
    (void)folder;
    (void)flags;
    errno = ENOSYS;
    return -1;
#endif
}

/* Renames the folder to its final name, unless something else has it. rename(2) replaces only an empty folder. */
static int name_new(const struct outfolder *folder)
{
    struct stat file_info;
    if (rename_with(folder, NO_REPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    if (fstatat(folder->parent, folder->base_name, &file_info, AT_SYMLINK_NOFOLLOW) == 0)
        errno = EEXIST;
    return errno == ENOENT ? renameat(folder->parent, temporary.name, folder->parent, folder->base_name) : -1;
}

/* Prints why the rename failed, by errno. Returns an exit status. */
static int not_named(const struct outfolder *folder)
{
    if (errno == EEXIST || errno == ENOTEMPTY)
        return tool_usage(folder->name, "was created meanwhile; not overwritten: --force overwrites it");
    if (folder->replaces && (errno == EINVAL || errno == ENOSYS))
        return tool_bad(folder->name, "the file system cannot exchange two folders: remove this one first");
    return tool_bad(folder->name, "%s", strerror(errno));
}

int outfolder_commit(struct outfolder *folder)
{
    sigset_t old;
    int status = TOOL_OK;
    if (fchmod(folder->fd, folder->mode) != 0 || outfolder_sync(folder->fd) != 0)
        return tool_bad(folder->name, "%s", strerror(errno));
    hold_signals(&old);
    if ((folder->replaces ? rename_with(folder, EXCHANGE) : name_new(folder)) != 0) {
        status = not_named(folder);
    } else {
        temporary.exists = folder->replaces; /* the old one has the temporary name now */
        if (!folder->unreadable && outfolder_sync(folder->parent) != 0) {
            status = tool_bad(folder->name, "written, but not synced to disk: %s", strerror(errno));
            if (temporary.exists) /* a power failure may undo the rename */
                tool_warn(folder->name, "the old folder is kept as %s", temporary.name);
            temporary.exists = 0;
        }
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return status;
}

void outfolder_discard(struct outfolder *folder)
{
    sigset_t old;
    hold_signals(&old);
    if (temporary.exists && temporary.parent == folder->parent) {
        const int error = remove_folder(folder->parent, temporary.name, 0);
        if (error)
            tool_warn(folder->name, "%s is left behind: %s", temporary.name, strerror(error));
        temporary.exists = 0;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (folder->fd >= 0)
        close(folder->fd);
    if (folder->parent >= 0)
        close(folder->parent);
    free(folder->base_name);
    free(folder->path);
    *folder = (struct outfolder){.parent = -1, .fd = -1};
}
