/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Atomic output with the permissions of any number of files, which need not be open at the same time. */
#ifndef PICI_LIB_FILE_OUTFILE_H
#define PICI_LIB_FILE_OUTFILE_H

#include "file/perms.h"
#include "pici/file.h"

/* As pici_outfile_open_like, from permissions instead of files. */
enum pici_status pici_outfile_open_as(struct pici_outfile **, const char *path, int force, const struct pici_perms *);

#endif
