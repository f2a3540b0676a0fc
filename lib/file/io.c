/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Callbacks that read and write descriptors, and how many to keep; text for error messages. */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "file/file.h"

enum { MOST_AT_ONCE = 1 << 30 }; /* below every system's limit for one call */

int pici_fd_write(void *descriptor, const void *bytes, size_t size)
{
    const char *next = bytes;
    while (size) {
        ssize_t k = write(*(int *)descriptor, next, size < MOST_AT_ONCE ? size : MOST_AT_ONCE);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k < 0 ? errno : EIO;
        next += k;
        size -= (size_t)k;
    }
    return 0;
}

int pici_fd_read(void *descriptor, void *bytes, size_t capacity, size_t *received)
{
    ssize_t k;
    do {
        k = read(*(int *)descriptor, bytes, capacity < MOST_AT_ONCE ? capacity : MOST_AT_ONCE);
    } while (k < 0 && errno == EINTR);
    *received = k < 0 ? 0 : (size_t)k;
    return k < 0 ? errno : 0;
}

int pici_fd_read_at(void *descriptor, void *bytes, size_t size, uint64_t offset)
{
    char *next = bytes;
    while (size) {
        ssize_t k = pread(*(int *)descriptor, next, size < MOST_AT_ONCE ? size : MOST_AT_ONCE, (off_t)offset);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k < 0 ? errno : EIO; /* EIO: the file has become shorter */
        next += k;
        size -= (size_t)k;
        offset += (uint64_t)k;
    }
    return 0;
}

size_t pici_files_kept(void)
{
    enum { MOST = 200 };
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / 4 < MOST ? (size_t)(limit.rlim_cur / 4) : MOST;
}

const char *pici_errno_text(int error_number, char *message, size_t capacity)
{
    if (strerror_r(error_number, message, capacity) != 0)
        snprintf(message, capacity, "error %d", error_number);
    return message;
}

const char *pici_quote(char quoted[PICI_QUOTE_CAP], const char *name, size_t size)
{
    static const char digits[] = "0123456789abcdef", cut[] = "...'";
    size_t position = 0;
    quoted[position++] = '\'';
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)name[i];
        if (position + 4 + sizeof cut > PICI_QUOTE_CAP) {
            memcpy(quoted + position, cut, sizeof cut);
            return quoted;
        }
        if (c < 0x20 || c > 0x7e || c == '\'' || c == '\\') {
            quoted[position++] = '\\';
            quoted[position++] = 'x';
            quoted[position++] = digits[c >> 4];
            quoted[position++] = digits[c & 15];
        } else {
            quoted[position++] = (char)c;
        }
    }
    quoted[position++] = '\'';
    quoted[position] = '\0';
    return quoted;
}
