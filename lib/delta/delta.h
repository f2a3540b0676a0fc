/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Deltas of sets of tensors (formats/delta.md): the contents of a delta file besides elements, and the states before
 * and after it. */
#ifndef PICI_LIB_DELTA_DELTA_H
#define PICI_LIB_DELTA_DELTA_H

#include <stdbool.h>

#include "bytes.h"
#include "pici/delta_file.h"
#include "xxh64.h"

#define DELTA_VERSION "delta.version" /* attributes of the file */
#define DELTA_REMOVED "delta.removed"
#define DELTA_KIND "delta.kind"   /* of a tensor */
#define DELTA_DTYPE "delta.dtype" /* of a tensor of the kind "small" */
#define DELTA_SHAPE "delta.shape"
#define DELTA_HASHES "delta.hashes" /* the last tensor's name begins with this */
#define DELTA_FEW "delta.few"       /* version 3: the name of the tensor before begins with this */
#define DELTA_BASE "delta.base"     /* of the file, of version 3 */

#define STATE_TYPE "source.type" /* of the file, and of tensors: from the state's file */
#define STATE_HEAD "source.head"
#define STATE_DTYPE "source.dtype"
#define STATE_ENDIAN "source.endian"
#define STATE_ORDER "source.order"

enum delta_kind { DELTA_XOR, DELTA_SMALL, DELTA_ADDED, DELTA_REPLACED, DELTA_KINDS };

/* Elements of each small delta of a tensor, except for the last. */
enum { DELTA_PIECE = 1 << 22 };

/* Version 3: elements of each piece with hashes of its own, except a tensor's last. Pieces match the chunks of small
 * deltas. */
enum { DELTA_HASHED = 1 << 19 };

/* "xor", "small", "added", "replaced". */
const char *pici_delta_kind_name(enum delta_kind);

struct delta_hashes {
    uint64_t base, result;
};

/* The result of a small delta. */
struct delta_small {
    enum pici_dtype dtype;
    unsigned rank;
    uint64_t *shape; /* [rank] */
    uint64_t count;
};

/* A tensor of the base with few changed elements. */
struct delta_few {
    uint64_t number; /* among the base's tensors in the order of their names */
    struct delta_hashes hash;
    uint64_t changes;   /* their number */
    size_t offset, end; /* their bytes in few_bytes */
};

/* A delta with checked rules. Not checked: the contents of tensors of the kind "small", and positions in few. */
struct delta {
    enum pici_state_type type;
    unsigned version;
    uint64_t tensors;            /* of the result, without the table of hashes */
    uint8_t *kind;               /* [tensors] enum delta_kind */
    struct delta_hashes *hash;   /* [tensors] */
    struct delta_small *small;   /* [tensors]; set for tensors of that kind */
    uint64_t kinds[DELTA_KINDS]; /* tensors of each kind */
    uint64_t removed;            /* names in DELTA_REMOVED */
    bool partial;                /* version 3: tensors that are neither listed nor in few do not change */
    uint64_t base_tensors;       /* version 3: tensors of the base, and of the result */
    uint64_t result_bytes;       /* version 3: the size of the result's file */
    struct delta_hashes identity;
    uint64_t *piece_row;   /* [tensors] version 3: first row of its pieces in the table of hashes */
    struct delta_few *few; /* [few_count] in the order of their numbers */
    size_t few_count;
    uint8_t *few_bytes;
};

/* Whether the file claims to be a delta, of any version. Works with any reader and returns its errors. */
enum pici_status pici_delta_is(struct pici_reader *, bool *is_delta);

/* Check the rules and read everything but elements. The reader must be a random-access one. On an error, reason
 * [PICI_WHY_BYTES] describes the fault of the delta; if it is empty, the error is the reader's. The delta then needs no
 * pici_delta_close. Memory is proportional to the contents of the file. */
enum pici_status pici_delta_open(struct delta *delta, struct pici_reader *, char *reason);

void pici_delta_close(struct delta *delta);

/* Whether a tensor of the kind needs the base's tensor. */
static inline bool delta_needs_base(enum delta_kind kind)
{
    return kind == DELTA_XOR || kind == DELTA_SMALL;
}

/* The name in delta.dtype of a dtype for which small deltas can be shorter; null for others. A u8 holds two e2m1. */
static inline const char *delta_small_name(enum pici_dtype dtype)
{
    switch (dtype) {
    case PICI_F32:
    case PICI_F16:
    case PICI_BF16:
    case PICI_F8E4M3:
    case PICI_F8E5M2: return pici_dtype_name(dtype);
    case PICI_U8: return "f4e2m1x2";
    default: return NULL;
    }
}

/* Whether small deltas of the dtype need version 3. */
static inline bool delta_is_narrow(enum pici_dtype dtype)
{
    return dtype > PICI_BF16;
}

/* Version 3: rows of the table of hashes for the pieces of a tensor of `count` elements. */
static inline uint64_t delta_piece_rows(uint64_t count)
{
    return count > DELTA_HASHED ? (count - 1) / DELTA_HASHED + 1 : 0;
}

/* Read the base's or the result's hash of a piece of tensor i, which has several pieces. Returns the reader's
 * errors. */
enum pici_status pici_delta_piece_hash(const struct delta *, struct pici_reader *, uint64_t i, uint64_t piece,
                                       bool result, uint64_t *hash);

/* Describe tensor i of the result, even if the delta stores it as small deltas. Returns the reader's errors. */
enum pici_status pici_delta_tensor(const struct delta *delta, struct pici_reader *, uint64_t i,
                                   struct pici_tensor_info *tensor);

/* The small deltas of a tensor, from the first on. */
struct delta_pieces {
    struct pici_reader *reader;
    uint64_t tensor, offset, end; /* bytes */
    uint8_t *delta;               /* [capacity] */
    size_t capacity, size;
    uint64_t passed; /* elements before the next one */
};

/* Begin with tensor i, of the kind "small". Reuses the previous tensor's memory; *pieces must be zero before the first
 * call. */
enum pici_status pici_delta_pieces_begin(struct delta_pieces *pieces, struct pici_reader *, uint64_t i);

/* Read the next small delta, of count elements of dtype: pieces->size bytes at pieces->delta. PICI_E_CORRUPT: it has
 * another count, or there is none. */
enum pici_status pici_delta_pieces_next(struct delta_pieces *pieces, enum pici_dtype dtype, uint64_t count);

/* Pass the next small delta, of count elements of dtype, without reading it. Returns what pici_delta_pieces_next does.
 */
enum pici_status pici_delta_pieces_pass(struct delta_pieces *pieces, enum pici_dtype dtype, uint64_t count);

/* Whether all small deltas were read. */
bool pici_delta_pieces_done(const struct delta_pieces *pieces);

void pici_delta_pieces_free(struct delta_pieces *pieces);

/* Get the next name in the value of DELTA_REMOVED. *offset is the position, 0 at first, which the call advances.
 * Returns false at the end, and for a malformed value; *good is then false. */
bool pici_delta_removed_next(const struct pici_attr *removed, size_t *offset, const char **name, size_t *size,
                             bool *good);

/* ---- Few changes, and identities ---- */

enum { DELTA_VARINT_MOST = 10 }; /* bytes */

/* Write a number in groups of 7 bits. Returns its bytes. */
size_t pici_varint_put(uint8_t *output, uint64_t value);

/* Parse the entries of a table of few changes from byte `from` on that are complete in its first `size` bytes. Appends
 * to delta->few. Returns the offset of the first incomplete entry; SIZE_MAX if a rule is broken. *nomem: no memory. */
size_t pici_few_parse(struct delta *delta, const uint8_t *table, size_t from, size_t size, bool *nomem);

/* A position in the changes of one tensor. */
struct few_cursor {
    const uint8_t *next, *end;
    uint64_t remaining; /* changes */
    uint64_t element;   /* the first possible place of the next change */
};

void pici_few_begin(struct few_cursor *, const struct delta *, const struct delta_few *);

/* Apply the changes among elements [from, from + count), which have this width and host order. Returns 0 if a change is
 * wider. Continues after the last call, and skips changes before `from`. */
int pici_few_apply(struct few_cursor *, uint8_t *elements, uint64_t from, uint64_t count, unsigned width);

/* Adds a tensor to the identity of a state (formats/delta.md). Add tensors in the order of their names. */
void pici_identity_add(struct pici_xxh64 *, const char *name, size_t name_bytes, const char *dtype, size_t dtype_bytes,
                       unsigned rank, const uint64_t *shape, uint64_t hash);

/* The identity of a state, from the hashes of its tensors. */
uint64_t pici_state_identity(struct pici_state *, const uint64_t *hash);

/* ---- Errors ---- */

/* Put "name: what" in why [PICI_WHY_BYTES], unless that is NULL. Returns s. Keeps errno. */
__attribute__((format(printf, 4, 5))) enum pici_status pici_why(char *why, enum pici_status s, const char *name,
                                                                const char *what, ...);

/* ---- States ---- */

/* A tensor of a state, kept small: there may be millions. */
struct state_tensor {
    uint64_t *shape;  /* [rank] */
    const char *name; /* [name_bytes]; in the memory of shape, as dtype_text is */
    size_t name_bytes;
    const char *dtype_text;
    const uint8_t *data;   /* or NULL: */
    uint64_t offset;       /* for the state's read */
    uint64_t bytes, count; /* of the part, if it is one */
    uint64_t first, of;    /* of a part: elements before it, and of the whole, which has this shape; else 0, count */
    uint64_t row, columns; /* columns from `first` on: elements of the whole's rows, and of its own; else 0 */
    enum pici_dtype dtype;
    uint8_t rank, width;
    bool big_endian, fortran;
    bool flat; /* some or all elements of a tensor of unknown shape */
};

struct pici_state {
    char *name;
    enum pici_state_type type;
    uint8_t *head; /* [head_bytes] */
    size_t head_bytes;
    pici_read_at_fn read;
    void *context;
    int fd;                       /* of pici_state_open, whose context it is; else -1 */
    struct state_tensor *tensors; /* [count] in the order of the file */
    size_t count, capacity;
    struct state_tensor **by_name; /* [count], if sorted */
    bool sorted;
    bool parts; /* some tensors are parts, or flat */
};

/* "raw", "npy", "safetensors". */
const char *pici_state_type_name(enum pici_state_type);

/* The tensor of this name, or NULL. */
const struct state_tensor *pici_state_find(struct pici_state *, const char *name, size_t size);

/* Copy bytes [from, from + bytes) of a tensor in the file's form. PICI_E_IO. */
enum pici_status pici_state_read(struct pici_state *, const struct state_tensor *, uint64_t from, void *buffer,
                                 size_t bytes, char *reason);

/* PICI_E_UNSUPPORTED if some tensors are parts. */
enum pici_status pici_state_whole(const struct pici_state *, char *reason);

/* Hash the tensor's bytes from byte `from` on. */
enum pici_status pici_state_hash_tensor(struct pici_state *, const struct state_tensor *, uint64_t from,
                                        struct pici_xxh64 *, char *reason);

/* The hash of tensor i. */
enum pici_status pici_state_tensor_hash(struct pici_state *, size_t i, uint64_t *found, char *reason);

/* The tensors [state->count] in the order of their names. */
struct state_tensor **pici_state_by_name(struct pici_state *);

/* The number of a name in that order. UINT64_MAX: no such name. */
uint64_t pici_state_number(struct pici_state *, const char *name, size_t size);

/* Swap the bytes of each element between the tensor's order and the host's. */
void pici_state_swap(bool big_endian, size_t width, void *buffer, size_t bytes);

/* The number of threads for an option; 0 stands for the number of online cores. */
int pici_delta_threads(int asked);

#endif
