/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* F_SETPIPE_SZ */
#include "input/input.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file/file.h"
#include "term.h"
#include "tool.h"

enum { IO_MOST = 1 << 30, PIPE_BYTES = 1 << 20 };

void input_widen_pipe(int fd)
{
#ifdef F_SETPIPE_SZ
    fcntl(fd, F_SETPIPE_SZ, PIPE_BYTES);
#else
    (void)fd;
#endif
}

static bool took_stdin;

bool input_took_stdin(void)
{
    return took_stdin;
}

int input_open(struct input *in, const char *path)
{
    if (strcmp(path, "-") == 0)
        took_stdin = true;
    *in = (struct input){.name = tool_input_name(path), .fd = -1};
    int fd = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0) {
        int err = errno;
        if (fd > STDERR_FILENO)
            close(fd);
        return tool_bad(in->name, "%s", strerror(err));
    }
    in->fd = fd;
    if (S_ISDIR(st.st_mode)) {
        input_close(in);
        return tool_bad(in->name, "is a directory");
    }
    if (S_ISFIFO(st.st_mode))
        input_widen_pipe(fd);
    in->dev = st.st_dev;
    in->ino = st.st_ino;
    in->size = st.st_size;
    in->changed = st.st_mtim;
    /* A standard input that has been read from does not start at its first byte, so it is treated as a stream. So is a
     * file of length 0: many files in /proc have that length and are not empty. */
    in->regular = S_ISREG(st.st_mode) && st.st_size > 0 && lseek(fd, 0, SEEK_CUR) == 0;
    in->bytes = in->regular ? (uint64_t)st.st_size : 0;
    return TOOL_OK;
}

/* Reads len bytes from the descriptor, or fewer at the end. Returns 0 or errno. */
static int read_all(struct input *in, void *buf, size_t len, size_t *got)
{
    char *p = buf;
    *got = 0;
    while (*got < len) {
        size_t want = len - *got < IO_MOST ? len - *got : IO_MOST;
        ssize_t k = read(in->fd, p + *got, want);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return errno;
        if (k == 0)
            break;
        *got += (size_t)k;
    }
    return 0;
}

int input_take(void *ctx, void *p, size_t cap, size_t *got)
{
    struct input *in = ctx;
    size_t ready = in->peek_len < cap ? in->peek_len : cap, more;
    if (ready)
        memcpy(p, in->peeked + in->peek_at, ready);
    in->peek_at += (unsigned)ready;
    in->peek_len -= (unsigned)ready;
    in->err = read_all(in, (char *)p + ready, cap - ready, &more);
    *got = ready + more;
    in->at += *got;
    if (in->hashed)
        pici_xxh64_update(&in->hash, p, *got);
    if (in->progress)
        progress_at(in->progress, in->at, in->at);
    return in->err;
}

/* Whether st is of the file as it was when it was opened. */
static bool is_unchanged(const struct input *in, const struct stat *st)
{
    return st->st_size == in->size && st->st_mtim.tv_sec == in->changed.tv_sec &&
           st->st_mtim.tv_nsec == in->changed.tv_nsec;
}

/* Opens a file that rests. Returns a descriptor, or -1 and errno. */
static int open_again(const struct input *in)
{
    const int fd = open(in->again, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat st;
    if (fd < 0)
        return -1;
    int err = fstat(fd, &st) < 0 ? errno : 0;
    if (!err && (!input_is_file(in, &st) || !is_unchanged(in, &st)))
        err = ESTALE;
    if (!err)
        return fd;
    close(fd);
    errno = err;
    return -1;
}

int input_rest(struct input *in, const char *path, size_t others)
{
    if (in->fd <= STDERR_FILENO || others < pici_files_kept())
        return TOOL_OK;
    in->again = strdup(path);
    if (!in->again)
        return tool_nomem(in->name, "its path");
    close(in->fd);
    in->fd = -1;
    return TOOL_OK;
}

int input_wake(struct input *in)
{
    if (in->fd < 0)
        in->fd = open_again(in);
    if (in->fd >= 0)
        return TOOL_OK;
    return tool_bad(in->again, "%s", errno == ESTALE ? "has changed since it was opened" : strerror(errno));
}

int input_expect_unchanged(const struct input *in, const char *name)
{
    struct stat st;
    if (fstat(in->fd, &st) < 0)
        return tool_bad(name, "%s", strerror(errno));
    return is_unchanged(in, &st) ? TOOL_OK : tool_bad(name, "has changed while it was read");
}

/* Reads n bytes at an offset. Returns 0 or errno. */
static int read_at(int fd, void *p, size_t n, uint64_t offset)
{
    while (n) {
        ssize_t k = pread(fd, p, n < IO_MOST ? n : IO_MOST, (off_t)offset);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) /* 0: the file has become shorter since it was opened */
            return k < 0 ? errno : EIO;
        p = (char *)p + k;
        n -= (size_t)k;
        offset += (uint64_t)k;
    }
    return 0;
}

int input_read_at(void *ctx, void *p, size_t n, uint64_t offset)
{
    struct input *in = ctx;
    in->at = offset;
    const int fd = in->fd < 0 ? open_again(in) : in->fd;
    if (fd < 0)
        return in->err = errno;
    const int err = read_at(fd, p, n, offset);
    if (fd != in->fd)
        close(fd);
    if (err)
        in->err = err;
    return err;
}

int input_read(struct input *in, void *buf, size_t len, size_t *got)
{
    int err = input_take(in, buf, len, got);
    return err ? tool_bad_at(in->name, in->at, "%s", strerror(err)) : TOOL_OK;
}

int input_seek(struct input *in, uint64_t offset)
{
    in->at = offset;
    in->peek_len = 0;
    return lseek(in->fd, (off_t)offset, SEEK_SET) < 0 ? tool_bad_at(in->name, offset, "%s", strerror(errno)) : TOOL_OK;
}

int input_peek(struct input *in, uint8_t *buf, size_t len, size_t *got)
{
    if (!in->peek_len) {
        size_t more;
        int err = read_all(in, in->peeked, INPUT_PEEK, &more);
        if (err)
            return tool_bad_at(in->name, in->at, "%s", strerror(err));
        in->peek_at = 0;
        in->peek_len = (unsigned)more;
    }
    *got = in->peek_len < len ? in->peek_len : len;
    memcpy(buf, in->peeked + in->peek_at, *got);
    return TOOL_OK;
}

int input_slurp(struct input *in, uint8_t **data, size_t *len)
{
    /* One byte more than the file's length, so that its end is seen without growing the buffer. */
    size_t cap = 1 << 16, have = 0, got;
    if (in->regular && in->bytes >= in->at && in->bytes - in->at < SIZE_MAX / 2)
        cap = (size_t)(in->bytes - in->at) + 1;
    uint8_t *p = malloc(cap);
    while (p) {
        int status = input_read(in, p + have, cap - have, &got);
        have += got;
        if (status) {
            free(p);
            return status;
        }
        if (have < cap) {
            *data = p;
            *len = have;
            return TOOL_OK;
        }
        uint8_t *bigger = cap <= SIZE_MAX / 2 ? realloc(p, cap * 2) : NULL;
        if (!bigger)
            break;
        p = bigger;
        cap *= 2;
    }
    free(p);
    return tool_nomem(in->name, "the whole input");
}

int input_slurp_path(const char *path, uint64_t most, uint8_t **data, size_t *len)
{
    struct input in;
    TRY(input_open(&in, path));
    const int status = in.bytes > most ? tool_bad(in.name, "longer than the limit of %" PRIu64 " bytes", most)
                                       : input_slurp(&in, data, len);
    input_close(&in);
    return status;
}

struct limit input_limit(const struct input *in, const struct tool_options *o)
{
    return in->regular ? limit_of(o, in->bytes, 0) : limit_of_stream(o, &in->at);
}

void input_close(struct input *in)
{
    if (in->fd > STDERR_FILENO)
        close(in->fd);
    free(in->again);
    in->again = NULL;
    in->fd = -1;
}

bool input_is_file(const struct input *in, const struct stat *st)
{
    return in && S_ISREG(st->st_mode) && in->dev == st->st_dev && in->ino == st->st_ino;
}

void input_hash(struct input *in)
{
    in->hashed = true;
    pici_xxh64_init(&in->hash, 0);
}

bool input_is(const struct input *in, const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && input_is_file(in, &st);
}

uint64_t input_length(const struct input *in)
{
    return in->regular ? in->bytes : in->at;
}

int input_remove(const struct input *in, const char *path)
{
    struct stat st;
    if (strcmp(path, "-") == 0)
        return TOOL_OK;
    if (lstat(path, &st) < 0)
        return tool_bad(path, "not removed: %s", strerror(errno));
    if (!input_is_file(in, &st))
        return tool_bad(path, "not removed: %s",
                        S_ISREG(st.st_mode)   ? "it is another file than the one that was read"
                        : S_ISLNK(st.st_mode) ? "it is a symbolic link"
                                              : "it is not a regular file");
    if (!is_unchanged(in, &st))
        return tool_bad(path, "not removed: it has changed while it was read");
    return unlink(path) < 0 ? tool_bad(path, "not removed: %s", strerror(errno)) : TOOL_OK;
}
