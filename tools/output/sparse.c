/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "output/sparse.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Blocks smaller than the file system's save no space, and larger ones find fewer holes. Network file systems report a
 * transfer size, which is far larger than a block: hence the upper limit. */
enum { BLOCK_LEAST = 4096, BLOCK_MOST = 65536, TRIED = 16 /* blocks */, SECTOR = 512 /* unit of st_blocks */ };

int sparse_resize(int fd, uint64_t bytes)
{
    int error = bytes > INT64_MAX ? EFBIG : 0;
    while (!error && ftruncate(fd, (off_t)bytes) != 0)
        if (errno != EINTR)
            error = errno;
    return error;
}

unsigned sparse_block(int fd)
{
    struct stat file_info;
    if (fstat(fd, &file_info) < 0 || !S_ISREG(file_info.st_mode) || file_info.st_size != 0)
        return 0;
    unsigned block = BLOCK_LEAST;
    while (block < BLOCK_MOST && block < (uint64_t)file_info.st_blksize)
        block *= 2;
    const uint64_t tried = (uint64_t)block * TRIED;
    const bool grew = sparse_resize(fd, tried) == 0 && fstat(fd, &file_info) == 0;
    const bool hole = grew && (uint64_t)file_info.st_blocks * SECTOR < tried;
    return sparse_resize(fd, 0) || hole ? block : 0; /* if the truncation fails, the caller sets the length at the
                                                      * end */
}

static bool is_zero(const uint8_t *bytes, size_t size)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0;
}

size_t sparse_run(const uint8_t *bytes, size_t size, uint64_t offset, unsigned block, bool *hole)
{
    size_t run = 0;
    while (run < size) {
        const size_t remaining = block - (size_t)((offset + run) % block),
                     part = remaining < size - run ? remaining : size - run;
        const bool zero = is_zero(bytes + run, part);
        if (run == 0)
            *hole = zero;
        else if (zero != *hole)
            break;
        run += part;
    }
    return run;
}
