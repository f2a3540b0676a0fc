/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a .pici file that is a delta contains besides elements. formats/delta.md specifies it. */
#ifndef PICI_TOOLS_DELTA_H
#define PICI_TOOLS_DELTA_H

#include "parse/parse.h"
#include "pici/file.h"
#include "tool.h"

#define DELTA_VERSION "delta.version" /* attributes of the file */
#define DELTA_REMOVED "delta.removed"
#define DELTA_KIND "delta.kind"     /* of a tensor */
#define DELTA_HASHES "delta.hashes" /* the last tensor's name begins with this */

enum delta_kind { DELTA_XOR, DELTA_ADDED, DELTA_REPLACED, DELTA_KINDS };

/* "xor", "added", "replaced". */
const char *delta_kind_name(enum delta_kind);

struct delta_hashes {
    uint64_t base, result;
};

/* A delta whose rules have been checked. */
struct delta {
    enum tool_type type;
    uint64_t tensors;            /* of the result, without the table of hashes */
    uint8_t *kind;               /* [tensors] enum delta_kind */
    struct delta_hashes *hash;   /* [tensors] */
    uint64_t kinds[DELTA_KINDS]; /* how many of each */
    uint64_t removed;            /* names in DELTA_REMOVED */
};

/* Whether the file says that it is a delta, of any version. Works with any reader and returns its errors. */
enum pici_status delta_is(struct pici_reader *, bool *is);

/* Check the rules and read everything but elements. The reader must be a random-access one. On an error, err->what says
 * what is wrong with the delta; if it is empty, the error is the reader's. d then needs no delta_close. Memory is
 * proportional to what the file contains. */
enum pici_status delta_open(struct delta *d, struct pici_reader *, struct parse_error *err);

void delta_close(struct delta *d);

/* Get the next name in the value of DELTA_REMOVED. *at is the position, 0 at first, and is advanced. False at the end,
 * and where the value is malformed; *good is false then. */
bool delta_removed_next(const struct pici_attr *removed, size_t *at, const char **name, size_t *len, bool *good);

#endif
