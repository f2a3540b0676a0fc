/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What makes a .pici file a delta, and is in it beside the elements: formats/delta.md. */
#ifndef PICI_TOOLS_DELTA_H
#define PICI_TOOLS_DELTA_H

#include "parse/parse.h"
#include "pici/file.h"
#include "tool.h"

#define DELTA_VERSION "delta.version" /* attributes of the file */
#define DELTA_REMOVED "delta.removed"
#define DELTA_KIND "delta.kind"     /* of a tensor */
#define DELTA_HASHES "delta.hashes" /* the last tensor's name begins so */

enum delta_kind { DELTA_XOR, DELTA_ADDED, DELTA_REPLACED, DELTA_KINDS };

/* "xor", "added", "replaced". */
const char *delta_kind_name(enum delta_kind);

struct delta_hashes {
    uint64_t base, result;
};

/* A delta, its rules checked. */
struct delta {
    enum tool_type type;
    uint64_t tensors;            /* of the result: without the table of hashes */
    uint8_t *kind;               /* [tensors] enum delta_kind */
    struct delta_hashes *hash;   /* [tensors] */
    uint64_t kinds[DELTA_KINDS]; /* how many of each */
    uint64_t removed;            /* names in DELTA_REMOVED */
};

/* Whether the file says that it is a delta, of whatever version. Any reader. Errors: the reader's. */
enum pici_status delta_is(struct pici_reader *, bool *is);

/* Check the rules, and read all but elements. A reader at random. An error is the reader's, or, if err->what is not empty, says
 * what is wrong with the delta; d then needs no delta_close. Allocates in proportion to what the file contains. */
enum pici_status delta_open(struct delta *d, struct pici_reader *, struct parse_error *err);

void delta_close(struct delta *d);

/* The names in a value of DELTA_REMOVED: the next from *at on, which begins at 0. False at the end, and, with *good false, where
 * the rule is broken. */
bool delta_removed_next(const struct pici_attr *removed, size_t *at, const char **name, size_t *len, bool *good);

#endif
