/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Tune files on disk. On an error, functions print the reason and return 0. */
#ifndef PICI_TOOLS_TUNE_FILES_H
#define PICI_TOOLS_TUNE_FILES_H

#include "predict/tune.h"

/* Read a file; the caller frees it with pici_tune_free. */
int file_read(const char *path, struct tune *);

/* Check that the file can be written, before the measurements take their time. */
int file_probe(const char *path);

/* Write a file, atomically. */
int file_write(const char *path, struct tune *);

/* Join files [count] into one. */
int file_merge(const char *path, char *const *files, int count);

#endif
