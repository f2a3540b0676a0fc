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
#define DELTA_KIND "delta.kind"   /* of a tensor */
#define DELTA_DTYPE "delta.dtype" /* of a tensor of the kind "small" */
#define DELTA_SHAPE "delta.shape"
#define DELTA_HASHES "delta.hashes" /* the last tensor's name begins with this */

enum delta_kind { DELTA_XOR, DELTA_SMALL, DELTA_ADDED, DELTA_REPLACED, DELTA_KINDS };

/* Elements of each small delta of a tensor, except for the last. */
enum { DELTA_PIECE = 1 << 22 };

/* "xor", "small", "added", "replaced". */
const char *delta_kind_name(enum delta_kind);

struct delta_hashes {
    uint64_t base, result;
};

/* What a small delta leads to. */
struct delta_small {
    enum pici_dtype dtype;
    unsigned rank;
    uint64_t *shape; /* [rank] */
    uint64_t count;
};

/* A delta whose rules have been checked, except for what is in tensors of the kind "small". */
struct delta {
    enum tool_type type;
    unsigned version;
    uint64_t tensors;            /* of the result, without the table of hashes */
    uint8_t *kind;               /* [tensors] enum delta_kind */
    struct delta_hashes *hash;   /* [tensors] */
    struct delta_small *small;   /* [tensors]; set for tensors of that kind */
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

/* Whether a tensor of the kind needs the base's tensor. */
static inline bool delta_needs_base(enum delta_kind k)
{
    return k == DELTA_XOR || k == DELTA_SMALL;
}

/* Whether small deltas of the dtype can be shorter than others. */
static inline bool delta_has_small(enum pici_dtype dtype)
{
    return dtype == PICI_F32 || dtype == PICI_F16 || dtype == PICI_BF16;
}

/* Describe tensor i of the result, also where a small delta is stored. Returns the reader's errors. */
enum pici_status delta_tensor(const struct delta *d, struct pici_reader *, uint64_t i, struct pici_tensor_info *t);

/* The small deltas of a tensor, from the first on. */
struct delta_pieces {
    struct pici_reader *reader;
    uint64_t tensor, at, end; /* bytes */
    uint8_t *delta;           /* [cap] */
    size_t cap, len;
};

/* Begin with tensor i, of the kind "small". Keeps the memory of the tensor before; *p was zero before the first. */
enum pici_status delta_pieces_begin(struct delta_pieces *p, struct pici_reader *, uint64_t i);

/* Read the next small delta, of n elements of dtype: len bytes at p->delta. PICI_E_CORRUPT: it is not of so many, or
 * the tensor has no more. */
enum pici_status delta_pieces_next(struct delta_pieces *p, enum pici_dtype dtype, uint64_t n);

/* Whether all were read. */
bool delta_pieces_done(const struct delta_pieces *p);

void delta_pieces_free(struct delta_pieces *p);

/* Get the next name in the value of DELTA_REMOVED. *at is the position, 0 at first, and is advanced. False at the end,
 * and where the value is malformed; *good is false then. */
bool delta_removed_next(const struct pici_attr *removed, size_t *at, const char **name, size_t *len, bool *good);

#endif
