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
    struct stat file_info;
    if (fd < 0 || fstat(fd, &file_info) < 0) {
        int error = errno;
        if (fd > STDERR_FILENO)
            close(fd);
        return tool_bad(input->name, "%s", strerror(error));
    }
    input->fd = fd;
    if (S_ISDIR(file_info.st_mode)) {
        input_close(input);
        return tool_bad(input->name, "is a directory");
    }
    if (S_ISFIFO(file_info.st_mode))
        input_widen_pipe(fd);
    input->device = file_info.st_dev;
    input->inode = file_info.st_ino;
    input->size = file_info.st_size;
    input->changed = file_info.st_mtim;
    /* A standard input that is not at its first byte is a stream. So is a file of length 0, since many files in /proc
     * claim that length. */
    input->regular = S_ISREG(file_info.st_mode) && file_info.st_size > 0 && lseek(fd, 0, SEEK_CUR) == 0;
    input->bytes = input->regular ? (uint64_t)file_info.st_size : 0;
    return TOOL_OK;
}

/* Reads `size` bytes from the descriptor, or fewer at the end. Returns 0 or errno. */
static int read_all(struct input *input, void *buffer, size_t size, size_t *received)
{
    char *bytes = buffer;
    *received = 0;
    while (*received < size) {
        size_t want = size - *received < IO_MOST ? size - *received : IO_MOST;
        ssize_t count = read(input->fd, bytes + *received, want);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return errno;
        if (count == 0)
            break;
        *received += (size_t)count;
    }
    return 0;
}

int input_take(void *context, void *buffer, size_t capacity, size_t *received)
{
    struct input *input = context;
    size_t ready = input->peek_size < capacity ? input->peek_size : capacity, more;
    if (ready)
        memcpy(buffer, input->peeked + input->peek_position, ready);
    input->peek_position += (unsigned)ready;
    input->peek_size -= (unsigned)ready;
    input->error = read_all(input, (char *)buffer + ready, capacity - ready, &more);
    *received = ready + more;
    input->position += *received;
    if (input->hashed)
        pici_xxh64_update(&input->hash, buffer, *received);
    if (input->progress)
        progress_at(input->progress, input->position, input->position);
    return input->error;
}

/* Whether size and time of the file are still those at the opening. */
static bool is_unchanged(const struct input *input, const struct stat *file_info)
{
    return file_info->st_size == input->size && file_info->st_mtim.tv_sec == input->changed.tv_sec &&
           file_info->st_mtim.tv_nsec == input->changed.tv_nsec;
}

/* Reopens a resting file. Returns a descriptor, or -1 and errno. */
static int open_again(const struct input *input)
{
    const int fd = open(input->reopen_path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat file_info;
    if (fd < 0)
        return -1;
    int error = fstat(fd, &file_info) < 0 ? errno : 0;
    if (!error && (!input_is_file(input, &file_info) || !is_unchanged(input, &file_info)))
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

bool input_is_unchanged(const struct input *input)
{
    struct stat file_info;
    return fstat(input->fd, &file_info) == 0 && is_unchanged(input, &file_info);
}

int input_expect_unchanged(const struct input *input, const char *name)
{
    struct stat file_info;
    if (fstat(input->fd, &file_info) < 0)
        return tool_bad(name, "%s", strerror(errno));
    return is_unchanged(input, &file_info) ? TOOL_OK : tool_bad(name, "has changed while it was read");
}

/* Reads `size` bytes at an offset. Returns 0 or errno. */
static int read_at(int fd, void *buffer, size_t size, uint64_t offset)
{
    while (size) {
        ssize_t count = pread(fd, buffer, size < IO_MOST ? size : IO_MOST, (off_t)offset);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0) /* 0: the file was truncated after the opening */
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

int input_read(struct input *input, void *buffer, size_t size, size_t *received)
{
    int error = input_take(input, buffer, size, received);
    return error ? tool_bad_at(input->name, input->position, "%s", strerror(error)) : TOOL_OK;
}

int input_seek(struct input *input, uint64_t offset)
{
    input->position = offset;
    input->peek_size = 0;
    return lseek(input->fd, (off_t)offset, SEEK_SET) < 0 ? tool_bad_at(input->name, offset, "%s", strerror(errno))
                                                         : TOOL_OK;
}

int input_peek(struct input *input, uint8_t *buffer, size_t size, size_t *received)
{
    if (!input->peek_size) {
        size_t more;
        int error = read_all(input, input->peeked, INPUT_PEEK, &more);
        if (error)
            return tool_bad_at(input->name, input->position, "%s", strerror(error));
        input->peek_position = 0;
        input->peek_size = (unsigned)more;
    }
    *received = input->peek_size < size ? input->peek_size : size;
    memcpy(buffer, input->peeked + input->peek_position, *received);
    return TOOL_OK;
}

int input_slurp(struct input *input, uint8_t **data, size_t *size)
{
    /* The file's length and one byte, to see the end without growing the buffer. */
    size_t capacity = 1 << 16, filled = 0, received;
    if (input->regular && input->bytes >= input->position && input->bytes - input->position < SIZE_MAX / 2)
        capacity = (size_t)(input->bytes - input->position) + 1;
    uint8_t *content = malloc(capacity);
    while (content) {
        int status = input_read(input, content + filled, capacity - filled, &received);
        filled += received;
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

bool input_is_file(const struct input *input, const struct stat *file_info)
{
    return input && S_ISREG(file_info->st_mode) && input->device == file_info->st_dev &&
           input->inode == file_info->st_ino;
}

void input_hash(struct input *input)
{
    input->hashed = true;
    pici_xxh64_init(&input->hash, 0);
}

bool input_is(const struct input *input, const char *path)
{
    struct stat file_info;
    return stat(path, &file_info) == 0 && input_is_file(input, &file_info);
}

uint64_t input_length(const struct input *input)
{
    return input->regular ? input->bytes : input->position;
}

int input_remove(const struct input *input, const char *path)
{
    struct stat file_info;
    if (strcmp(path, "-") == 0)
        return TOOL_OK;
    if (lstat(path, &file_info) < 0)
        return tool_bad(path, "not removed: %s", strerror(errno));
    if (S_ISLNK(file_info.st_mode))
        return tool_bad(path, "not removed: it is a symbolic link");
    if (!S_ISREG(file_info.st_mode))
        return tool_bad(path, "not removed: it is not a regular file");
    if (!input_is_file(input, &file_info))
        return tool_bad(path, "not removed: it is not the file that was read");
    if (!is_unchanged(input, &file_info))
        return tool_bad(path, "not removed: it has changed while it was read");
    return unlink(path) < 0 ? tool_bad(path, "not removed: %s", strerror(errno)) : TOOL_OK;
}
