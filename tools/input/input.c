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

int input_open(struct input *input, const char *path)
{
    if (strcmp(path, "-") == 0)
        took_stdin = true;
    *input = (struct input){.name = tool_input_name(path), .fd = -1};
    int fd = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) < 0) {
        int error = errno;
        if (fd > STDERR_FILENO)
            close(fd);
        return tool_bad(input->name, "%s", strerror(error));
    }
    input->fd = fd;
    if (S_ISDIR(info.st_mode)) {
        input_close(input);
        return tool_bad(input->name, "is a directory");
    }
    if (S_ISFIFO(info.st_mode))
        input_widen_pipe(fd);
    input->device = info.st_dev;
    input->inode = info.st_ino;
    input->size = info.st_size;
    input->changed = info.st_mtim;
    /* A standard input that has been read from does not start at its first byte, so it is treated as a stream. So is a
     * file of length 0: many files in /proc have that length and are not empty. */
    input->regular = S_ISREG(info.st_mode) && info.st_size > 0 && lseek(fd, 0, SEEK_CUR) == 0;
    input->bytes = input->regular ? (uint64_t)info.st_size : 0;
    return TOOL_OK;
}

/* Reads size bytes from the descriptor, or fewer at the end. Returns 0 or errno. */
static int read_all(struct input *input, void *buffer, size_t size, size_t *got)
{
    char *bytes = buffer;
    *got = 0;
    while (*got < size) {
        size_t want = size - *got < IO_MOST ? size - *got : IO_MOST;
        ssize_t count = read(input->fd, bytes + *got, want);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return errno;
        if (count == 0)
            break;
        *got += (size_t)count;
    }
    return 0;
}

int input_take(void *context, void *buffer, size_t capacity, size_t *got)
{
    struct input *input = context;
    size_t ready = input->peek_size < capacity ? input->peek_size : capacity, more;
    if (ready)
        memcpy(buffer, input->peeked + input->peek_position, ready);
    input->peek_position += (unsigned)ready;
    input->peek_size -= (unsigned)ready;
    input->error = read_all(input, (char *)buffer + ready, capacity - ready, &more);
    *got = ready + more;
    input->position += *got;
    if (input->hashed)
        pici_xxh64_update(&input->hash, buffer, *got);
    if (input->progress)
        progress_at(input->progress, input->position, input->position);
    return input->error;
}

/* Whether info is of the file as it was when it was opened. */
static bool is_unchanged(const struct input *input, const struct stat *info)
{
    return info->st_size == input->size && info->st_mtim.tv_sec == input->changed.tv_sec &&
           info->st_mtim.tv_nsec == input->changed.tv_nsec;
}

/* Opens a file that rests. Returns a descriptor, or -1 and errno. */
static int open_again(const struct input *input)
{
    const int fd = open(input->reopen_path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat info;
    if (fd < 0)
        return -1;
    int error = fstat(fd, &info) < 0 ? errno : 0;
    if (!error && (!input_is_file(input, &info) || !is_unchanged(input, &info)))
        error = ESTALE;
    if (!error)
        return fd;
    close(fd);
    errno = error;
    return -1;
}

int input_rest(struct input *input, const char *path, size_t others)
{
    if (input->fd <= STDERR_FILENO || others < pici_files_kept())
        return TOOL_OK;
    input->reopen_path = strdup(path);
    if (!input->reopen_path)
        return tool_nomem(input->name, "its path");
    close(input->fd);
    input->fd = -1;
    return TOOL_OK;
}

int input_wake(struct input *input)
{
    if (input->fd < 0)
        input->fd = open_again(input);
    if (input->fd >= 0)
        return TOOL_OK;
    return tool_bad(input->reopen_path, "%s", errno == ESTALE ? "has changed since it was opened" : strerror(errno));
}

int input_expect_unchanged(const struct input *input, const char *name)
{
    struct stat info;
    if (fstat(input->fd, &info) < 0)
        return tool_bad(name, "%s", strerror(errno));
    return is_unchanged(input, &info) ? TOOL_OK : tool_bad(name, "has changed while it was read");
}

/* Reads size bytes at an offset. Returns 0 or errno. */
static int read_at(int fd, void *buffer, size_t size, uint64_t offset)
{
    while (size) {
        ssize_t count = pread(fd, buffer, size < IO_MOST ? size : IO_MOST, (off_t)offset);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0) /* 0: the file has become shorter since it was opened */
            return count < 0 ? errno : EIO;
        buffer = (char *)buffer + count;
        size -= (size_t)count;
        offset += (uint64_t)count;
    }
    return 0;
}

int input_read_at(void *context, void *buffer, size_t size, uint64_t offset)
{
    struct input *input = context;
    input->position = offset;
    const int fd = input->fd < 0 ? open_again(input) : input->fd;
    if (fd < 0)
        return input->error = errno;
    const int error = read_at(fd, buffer, size, offset);
    if (fd != input->fd)
        close(fd);
    if (error)
        input->error = error;
    return error;
}

int input_read(struct input *input, void *buffer, size_t size, size_t *got)
{
    int error = input_take(input, buffer, size, got);
    return error ? tool_bad_at(input->name, input->position, "%s", strerror(error)) : TOOL_OK;
}

int input_seek(struct input *input, uint64_t offset)
{
    input->position = offset;
    input->peek_size = 0;
    return lseek(input->fd, (off_t)offset, SEEK_SET) < 0 ? tool_bad_at(input->name, offset, "%s", strerror(errno))
                                                         : TOOL_OK;
}

int input_peek(struct input *input, uint8_t *buffer, size_t size, size_t *got)
{
    if (!input->peek_size) {
        size_t more;
        int error = read_all(input, input->peeked, INPUT_PEEK, &more);
        if (error)
            return tool_bad_at(input->name, input->position, "%s", strerror(error));
        input->peek_position = 0;
        input->peek_size = (unsigned)more;
    }
    *got = input->peek_size < size ? input->peek_size : size;
    memcpy(buffer, input->peeked + input->peek_position, *got);
    return TOOL_OK;
}

int input_slurp(struct input *input, uint8_t **data, size_t *size)
{
    /* One byte more than the file's length, so that its end is seen without growing the buffer. */
    size_t capacity = 1 << 16, filled = 0, got;
    if (input->regular && input->bytes >= input->position && input->bytes - input->position < SIZE_MAX / 2)
        capacity = (size_t)(input->bytes - input->position) + 1;
    uint8_t *content = malloc(capacity);
    while (content) {
        int status = input_read(input, content + filled, capacity - filled, &got);
        filled += got;
        if (status) {
            free(content);
            return status;
        }
        if (filled < capacity) {
            *data = content;
            *size = filled;
            return TOOL_OK;
        }
        uint8_t *bigger = capacity <= SIZE_MAX / 2 ? realloc(content, capacity * 2) : NULL;
        if (!bigger)
            break;
        content = bigger;
        capacity *= 2;
    }
    free(content);
    return tool_nomem(input->name, "the whole input");
}

int input_slurp_path(const char *path, uint64_t most, uint8_t **data, size_t *size)
{
    struct input input;
    TRY(input_open(&input, path));
    const int status = input.bytes > most ? tool_bad(input.name, "longer than the limit of %" PRIu64 " bytes", most)
                                          : input_slurp(&input, data, size);
    input_close(&input);
    return status;
}

struct limit input_limit(const struct input *input, const struct tool_options *options)
{
    return input->regular ? limit_of(options, input->bytes, 0) : limit_of_stream(options, &input->position);
}

void input_close(struct input *input)
{
    if (input->fd > STDERR_FILENO)
        close(input->fd);
    free(input->reopen_path);
    input->reopen_path = NULL;
    input->fd = -1;
}

bool input_is_file(const struct input *input, const struct stat *info)
{
    return input && S_ISREG(info->st_mode) && input->device == info->st_dev && input->inode == info->st_ino;
}

void input_hash(struct input *input)
{
    input->hashed = true;
    pici_xxh64_init(&input->hash, 0);
}

bool input_is(const struct input *input, const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && input_is_file(input, &info);
}

uint64_t input_length(const struct input *input)
{
    return input->regular ? input->bytes : input->position;
}

int input_remove(const struct input *input, const char *path)
{
    struct stat info;
    if (strcmp(path, "-") == 0)
        return TOOL_OK;
    if (lstat(path, &info) < 0)
        return tool_bad(path, "not removed: %s", strerror(errno));
    if (S_ISLNK(info.st_mode))
        return tool_bad(path, "not removed: it is a symbolic link");
    if (!S_ISREG(info.st_mode))
        return tool_bad(path, "not removed: it is not a regular file");
    if (!input_is_file(input, &info))
        return tool_bad(path, "not removed: it is another file than the one that was read");
    if (!is_unchanged(input, &info))
        return tool_bad(path, "not removed: it has changed while it was read");
    return unlink(path) < 0 ? tool_bad(path, "not removed: %s", strerror(errno)) : TOOL_OK;
}
