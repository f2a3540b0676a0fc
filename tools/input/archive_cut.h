/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What archive_npz.c and archive_pt.c, which cut a zip file into parts, share. Functions that return an int return an
 * exit status, and have printed the reason. */
#ifndef PICI_TOOLS_INPUT_ARCHIVE_CUT_H
#define PICI_TOOLS_INPUT_ARCHIVE_CUT_H

#include "input/archive.h"

/* What has been taken of the file while it is cut into parts. */
struct cut {
    struct archive *archive;
    const struct limit *exact; /* as archive_open_npz has it */
    uint64_t done;             /* bytes of the file in parts and head */
    uint64_t pending;          /* of the head, since the last part */
    struct unzip_effort effort;
    uint64_t inflated;              /* bytes of all deflated entries so far */
    size_t kept;                    /* entries */
    uint32_t first_kept;            /* of those */
    struct parse_error kept_reason; /* it was kept */
};

/* Open the zip file. */
int cut_open(struct cut *, struct input *, enum tool_type);

/* Room for so many more bytes of head; the end of the head, or NULL. */
uint8_t *archive_more_head(struct archive *, size_t bytes);

int cut_part(struct cut *, struct archive_part);

/* Take the bytes from done up to an offset, which are in no tensor. */
int cut_gap(struct cut *, uint64_t end);

/* If the file is to be restored from what is read: find the level of an entry, which is deflated, or, unless
 * *is_readable, check it. *is_readable becomes false, and archive->error says why, if no level makes its bytes
 * again. */
int cut_deflated(struct cut *, const struct zip_entry *, int *level, uint32_t *crc, bool *is_readable);

/* Keep an entry: a part of its bytes as they are. archive->error says why. */
int cut_kept(struct cut *, uint32_t number);

/* Tell of entries that are kept. */
void cut_tell_kept(const struct cut *);

/* Number the parts without names, and find the stem of these, which begins no name of another part: "zip", and as many
 * + as it takes. */
int archive_number_unnamed(struct archive *);

struct archive_name {
    const char *text; /* [size] */
    size_t size, number;
};

/* For qsort and bsearch: by the name alone; by name, then by number. */
int archive_same_name(const void *, const void *);
int archive_by_name(const void *, const void *);

#endif
