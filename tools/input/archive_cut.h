/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Functions that archive_npz.c and archive_pt.c share to cut a zip file into parts. Functions that return an int
 * return an exit status, and have printed the reason. */
#ifndef PICI_TOOLS_INPUT_ARCHIVE_CUT_H
#define PICI_TOOLS_INPUT_ARCHIVE_CUT_H

#include "input/archive.h"

/* The state of cutting a file into parts. */
struct cut {
    struct archive *archive;
    const struct limit *exact; /* see archive_open_npz */
    uint64_t done;             /* bytes of the file that are in the parts or the head so far */
    uint64_t pending;          /* bytes of the head since the last part */
    struct unzip_effort effort;
    uint64_t inflated;              /* bytes of all deflated entries so far */
    size_t kept;                    /* entries */
    uint32_t first_kept;            /* the number of the first one */
    struct parse_error kept_reason; /* why it was kept */
};

/* Open the zip file. */
int cut_open(struct cut *, struct input *, enum tool_type);

/* Make room for `bytes` more bytes of head. Returns the end of the head, or NULL. */
uint8_t *archive_more_head(struct archive *, size_t bytes);

int cut_part(struct cut *, struct archive_part);

/* Add the bytes from done to `end`, which are in no tensor, to the head or as a filler. */
int cut_gap(struct cut *, uint64_t end);

/* For cut->exact: find the level of a deflated entry, or only check the entry if *is_readable is false. If no level
 * reproduces the entry's bytes, sets *is_readable to false, and archive->error to the reason. */
int cut_deflated(struct cut *, const struct zip_entry *, int *level, uint32_t *crc, bool *is_readable);

/* Keep an entry: its stored bytes become a part. archive->error has the reason. */
int cut_kept(struct cut *, uint32_t number);

/* Warn about kept entries. */
void cut_tell_kept(const struct cut *);

/* Number the parts without names and choose their stem: "zip" and enough "+" that no other part's name begins
 * with it. */
int archive_number_unnamed(struct archive *);

struct archive_name {
    const char *text; /* [size] */
    size_t size, number;
};

/* For qsort and bsearch: by the name alone; by name, then by number. */
int archive_same_name(const void *, const void *);
int archive_by_name(const void *, const void *);

#endif
