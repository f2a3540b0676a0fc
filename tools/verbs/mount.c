/* SPDX-License-Identifier: BSD-3-Clause
 *
 * picitool mount: serves mount/mounted.h as a file system through libfuse, which numbers nodes from 1. */
#define _GNU_SOURCE
#include "tool.h"

#ifdef PICI_HAVE_FUSE

#define FUSE_USE_VERSION 312
#include <errno.h>
#include <fuse_lowlevel.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mount/mounted.h"
#include "term.h"

/* Mounted files never change, so the kernel may cache everything. */
static const double seconds_kept = 86400;
enum { READ_AHEAD_MOST = 1 << 20, IDLE_THREADS_MOST = 16, BLOCK = 4096 };

static bool node_of(fuse_req_t request, fuse_ino_t number, size_t *node)
{
    *node = (size_t)number - 1;
    if (number >= 1 && *node < mounted_count(fuse_req_userdata(request)))
        return true;
    fuse_reply_err(request, ENOENT);
    return false;
}

static struct stat stat_of(const struct mounted *mounted, size_t number)
{
    const struct mounted_node *const node = mounted_node(mounted, number);
    struct stat status = {0};
    status.st_ino = number + 1;
    status.st_mode = node->is_folder ? S_IFDIR | 0555 : S_IFREG | 0444;
    status.st_nlink = node->is_folder ? 2 : 1;
    status.st_uid = getuid();
    status.st_gid = getgid();
    status.st_size = (off_t)node->bytes;
    status.st_blocks = (blkcnt_t)(node->bytes / 512 + (node->bytes % 512 != 0));
    status.st_blksize = BLOCK;
    status.st_mtim = status.st_ctim = status.st_atim = node->changed;
    return status;
}

static void look_up(fuse_req_t request, fuse_ino_t parent, const char *name)
{
    const struct mounted *const mounted = fuse_req_userdata(request);
    size_t folder, node;
    if (!node_of(request, parent, &folder))
        return;
    struct fuse_entry_param entry = {.attr_timeout = seconds_kept, .entry_timeout = seconds_kept};
    if (mounted_find(mounted, folder, name, &node)) { /* else number 0 tells the kernel to cache the absence */
        entry.ino = node + 1;
        entry.attr = stat_of(mounted, node);
    }
    fuse_reply_entry(request, &entry);
}

static void get_attr(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *file)
{
    size_t node;
    (void)file;
    if (!node_of(request, number, &node))
        return;
    const struct stat status = stat_of(fuse_req_userdata(request), node);
    fuse_reply_attr(request, &status, seconds_kept);
}

/* Appends an entry to the list, unless there is no room for it. next: the position after it. */
static bool list(fuse_req_t request, char *room, size_t size, size_t *used, const char *name, size_t node, off_t next)
{
    const struct stat status = stat_of(fuse_req_userdata(request), node);
    const size_t needed = fuse_add_direntry(request, room + *used, size - *used, name, &status, next);
    if (needed > size - *used)
        return false;
    *used += needed;
    return true;
}

/* Positions in the list: 0 and 1 for . and .., then the number of the previous node + 2. */
static void read_dir(fuse_req_t request, fuse_ino_t number, size_t size, off_t from, struct fuse_file_info *file)
{
    const struct mounted *const mounted = fuse_req_userdata(request);
    size_t folder, used = 0;
    (void)file;
    if (!node_of(request, number, &folder))
        return;
    char *const room = malloc(size ? size : 1);
    if (!room) {
        fuse_reply_err(request, ENOMEM);
        return;
    }
    bool fits = from > 0 || list(request, room, size, &used, ".", folder, 1);
    fits = fits && (from > 1 || list(request, room, size, &used, "..", mounted_parent(mounted, folder), 2));
    size_t node = from > 2 ? (size_t)from - 2 : folder;
    for (const char *name; fits && mounted_next(mounted, folder, node, &node, &name);)
        fits = list(request, room, size, &used, name, node, (off_t)node + 2);
    fuse_reply_buf(request, room, used);
    free(room);
}

static void open_node(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *file)
{
    size_t node;
    if (!node_of(request, number, &node))
        return;
    if ((file->flags & O_ACCMODE) != O_RDONLY) {
        fuse_reply_err(request, EROFS);
        return;
    }
    const int error = mounted_start(fuse_req_userdata(request), node);
    file->keep_cache = 1;
    if (error)
        fuse_reply_err(request, error);
    else
        fuse_reply_open(request, file);
}

static void read_node(fuse_req_t request, fuse_ino_t number, size_t size, off_t from, struct fuse_file_info *file)
{
    size_t node, received;
    (void)file;
    if (!node_of(request, number, &node))
        return;
    /* read everything: a shorter result would mean the end of the file */
    uint8_t *const buffer = malloc(size ? size : 1);
    const int error = buffer && from >= 0
                          ? mounted_read(fuse_req_userdata(request), node, buffer, (uint64_t)from, size, &received)
                          : ENOMEM;
    if (error)
        fuse_reply_err(request, error);
    else
        fuse_reply_buf(request, (const char *)buffer, received);
    free(buffer);
}

static void stat_all(fuse_req_t request, fuse_ino_t number)
{
    const struct mounted *const mounted = fuse_req_userdata(request);
    (void)number;
    const struct statvfs status = {.f_bsize = BLOCK,
                                   .f_frsize = BLOCK,
                                   .f_blocks = mounted_bytes(mounted) / BLOCK + 1,
                                   .f_files = mounted_count(mounted),
                                   .f_namemax = NAME_MAX};
    fuse_reply_statfs(request, &status);
}

static const struct tool_options *serve_options;

/* Announces the mount: a thread serves, and the kernel waits for its answers. */
static void start(void *context, struct fuse_conn_info *connection)
{
    char bytes[TERM_TEXT];
    connection->max_readahead = READ_AHEAD_MOST; /* the kernel may lower it */
    if (term_talk() < TERM_NORMAL)
        return;
    printf("%s: %s of %s, until a signal ends this or it is unmounted\n", serve_options->args[1],
           term_bytes(bytes, mounted_bytes(context)), serve_options->args[0]);
    fflush(stdout);
}

static const struct fuse_lowlevel_ops operations = {.init = start,
                                                    .lookup = look_up,
                                                    .getattr = get_attr,
                                                    .readdir = read_dir,
                                                    .open = open_node,
                                                    .read = read_node,
                                                    .statfs = stat_all};

/* Whether `path` is `folder`, or below it. */
static bool is_below(const char *path, const char *folder)
{
    const size_t size = strlen(folder);
    return strncmp(path, folder, size) == 0 && (path[size] == 0 || path[size] == '/' || size == 1);
}

/* Rejects a mount point that would hide the mounted input, or that is inside it. */
static int check_place(const char *from, const char *to)
{
    struct stat status;
    if (stat(to, &status) != 0)
        return tool_bad(to, "%s", strerror(errno));
    if (!S_ISDIR(status.st_mode))
        return tool_usage(to, "is not a folder");
    int result = TOOL_OK;
    char *const real_from = realpath(from, NULL);
    if (!real_from)
        return tool_bad(from, "%s", strerror(errno));
    char *const real_to = realpath(to, NULL);
    if (!real_to)
        result = tool_bad(to, "%s", strerror(errno));
    else if (is_below(real_from, real_to) || is_below(real_to, real_from))
        result = tool_usage(to, "is in %s, or contains it: mount it elsewhere", from);
    free(real_from);
    free(real_to);
    return result;
}

/* Serves until a signal or an unmount. */
static int serve(struct fuse_session *session, const struct tool_options *options)
{
    enum { NO_THREAD = -1 }; /* what libfuse returns, with a message of its own, if it cannot start a thread */
    struct fuse_loop_config *const config = fuse_loop_cfg_create();
    const unsigned threads = tool_threads(options->threads);
    if (!config)
        return tool_nomem(options->args[1], "its threads");
    fuse_loop_cfg_set_max_threads(config, threads);
    fuse_loop_cfg_set_idle_threads(config, threads < IDLE_THREADS_MOST ? threads : IDLE_THREADS_MOST);
    const int result = fuse_session_loop_mt(session, config);
    fuse_loop_cfg_destroy(config);
    if (result == NO_THREAD)
        return options->memory ? tool_nomem(options->args[0], "its threads")
                               : tool_bad(options->args[0], "has no thread: see the message of libfuse");
    return result < 0 ? tool_bad(options->args[1], "%s", strerror(-result)) : TOOL_OK;
}

static struct fuse_session *served;

/* libfuse's loop looks for the end, then waits. A signal between the two would not end the wait, so another one follows
 * in a second. */
static void end_serving(int number)
{
    (void)number;
    fuse_session_exit(served);
    alarm(1);
}

/* Signals that end a mount; those that are ignored stay so. Without SA_RESTART: the wait must end. */
static void at_end_signals(void (*handler)(int))
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction old, action = {.sa_handler = handler};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (sigaction(ends[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(ends[i], &action, NULL);
    if (handler == SIG_DFL)
        action.sa_handler = SIG_IGN; /* an alarm may still come */
    sigaction(SIGALRM, &action, NULL);
}

/* Raises the limit of open files, since each file of a folder stays open. */
static void allow_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

static int serve_at(struct fuse_session *session, const struct tool_options *options)
{
    int status = TOOL_OK;
    served = session;
    serve_options = options;
    signal(SIGPIPE, SIG_IGN);
    at_end_signals(end_serving); /* in place of picitool's own, which end the process at once */
    if (fuse_session_mount(session, options->args[1]) != 0) {
        status = tool_bad(options->args[1], "cannot be mounted: see the message of libfuse");
    } else {
        status = serve(session, options);
        alarm(0);
        fuse_session_unmount(session);
    }
    at_end_signals(SIG_DFL); /* the session is about to be freed */
    return status;
}

static int mount_opened(struct mounted *mounted, const struct tool_options *options)
{
    char name[] = "picitool", option[] = "-o", words[] = "ro,default_permissions,subtype=pici,fsname=picitool";
    char *arguments[] = {name, option, words, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(3, arguments);
    struct fuse_session *const session = fuse_session_new(&args, &operations, sizeof operations, mounted);
    const int status = session ? serve_at(session, options) : tool_bad(options->args[1], "libfuse has failed");
    if (session)
        fuse_session_destroy(session);
    fuse_opt_free_args(&args);
    return status;
}

int verb_mount(const struct tool_options *options)
{
    struct mounted *mounted;
    TRY(check_place(options->args[0], options->args[1]));
    allow_files();
    const uint64_t left = tool_memory_left(options);
    TRY(mounted_open(&mounted, options->args[0], options->cache < left ? options->cache : left));
    const int status = mount_opened(mounted, options);
    mounted_close(mounted);
    return status;
}

#else

int verb_mount(const struct tool_options *options)
{
    return tool_bad(options->args[0], "this build has no libfuse3, so it cannot mount");
}

#endif
