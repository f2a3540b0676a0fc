/* SPDX-License-Identifier: BSD-3-Clause */
#include "files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pici/file.h"
#include "term.h"

static int complain(const char *path, const char *reason)
{
    fputs("pici-tune: ", stderr);
    term_puts(stderr, path);
    fputs(": ", stderr);
    term_puts(stderr, reason);
    putc('\n', stderr);
    return 0;
}

int file_read(const char *path, struct tune *tune)
{
    char reason[TUNE_WHY];
    return pici_tune_open(tune, path, reason) ? complain(path, reason) : 1;
}

static int begin(const char *path, struct pici_outfile **opened)
{
    errno = 0;
    const enum pici_status status = pici_outfile_open(opened, path, 1);
    return status ? complain(path, errno ? strerror(errno) : pici_strerror(status)) : 1;
}

int file_probe(const char *path)
{
    struct pici_outfile *file;
    if (!begin(path, &file))
        return 0;
    pici_outfile_abort(file);
    return 1;
}

int file_write(const char *path, struct tune *tune)
{
    char reason[TUNE_WHY];
    uint8_t *bytes;
    size_t size;
    struct pici_outfile *file;
    if (pici_tune_write(tune, &bytes, &size, reason))
        return complain(path, reason);
    if (!begin(path, &file)) {
        free(bytes);
        return 0;
    }
    const int wrong = pici_outfile_write(file, bytes, size);
    free(bytes);
    if (wrong) {
        pici_outfile_abort(file);
        return complain(path, strerror(wrong));
    }
    errno = 0;
    const enum pici_status status = pici_outfile_commit(file);
    return status ? complain(path, errno ? strerror(errno) : pici_strerror(status)) : 1;
}

int file_merge(const char *path, char *const *files, int count)
{
    char reason[TUNE_WHY];
    struct tune joined, *tune = calloc((size_t)count, sizeof *tune);
    const struct tune **each = calloc((size_t)count, sizeof *each);
    int good = tune && each ? 1 : complain(path, strerror(ENOMEM)), read = 0;
    for (; good && read < count; read++) {
        good = file_read(files[read], &tune[read]);
        each[read] = &tune[read];
    }
    if (good && pici_tune_merge(&joined, each, count, reason))
        good = complain(path, reason);
    else if (good) {
        good = file_write(path, &joined);
        if (good) {
            fputs("pici-tune: ", stdout);
            term_puts(stdout, path);
            printf(": %d shapes, %zu points\n", joined.shape_count, joined.point_count);
        }
        pici_tune_free(&joined);
    }
    for (int i = 0; i < read; i++)
        pici_tune_free(&tune[i]);
    free(tune);
    free(each);
    return good;
}
