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

enum { MOST_AT_ONCE = 1 << 30 }; /* systems have limits of bytes for one call, of which none is lower */

int pici_fd_write(void *fd, const void *p, size_t n)
{
    const char *at = p;
    while (n) {
        ssize_t k = write(*(int *)fd, at, n < MOST_AT_ONCE ? n : MOST_AT_ONCE);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k < 0 ? errno : EIO;
        at += k;
        n -= (size_t)k;
    }
    return 0;
}

int pici_fd_read(void *fd, void *p, size_t cap, size_t *got)
{
    ssize_t k;
    do {
        k = read(*(int *)fd, p, cap < MOST_AT_ONCE ? cap : MOST_AT_ONCE);
    } while (k < 0 && errno == EINTR);
    *got = k < 0 ? 0 : (size_t)k;
    return k < 0 ? errno : 0;
}

int pici_fd_read_at(void *fd, void *p, size_t n, uint64_t offset)
{
    char *at = p;
    while (n) {
        ssize_t k = pread(*(int *)fd, at, n < MOST_AT_ONCE ? n : MOST_AT_ONCE, (off_t)offset);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k < 0 ? errno : EIO; /* EIO: the file has become shorter */
        at += k;
        n -= (size_t)k;
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

const char *pici_errno_text(int e, char *out, size_t cap)
{
    if (strerror_r(e, out, cap) != 0)
        snprintf(out, cap, "error %d", e);
    return out;
}

const char *pici_quote(char out[PICI_QUOTE_CAP], const char *name, size_t len)
{
    static const char hex[] = "0123456789abcdef", cut[] = "...'";
    size_t at = 0;
    out[at++] = '\'';
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)name[i];
        if (at + 4 + sizeof cut > PICI_QUOTE_CAP) {
            memcpy(out + at, cut, sizeof cut);
            return out;
        }
        if (c < 0x20 || c > 0x7e || c == '\'' || c == '\\') {
            out[at++] = '\\';
            out[at++] = 'x';
            out[at++] = hex[c >> 4];
            out[at++] = hex[c & 15];
        } else {
            out[at++] = (char)c;
        }
    }
    out[at++] = '\'';
    out[at] = '\0';
    return out;
}
