/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Deltas of whole sets of tensors, as .pici files (formats/delta.md). A state is such a set: a .safetensors, .gguf,
 * .npy or raw file, or arrays in memory that are taken for one. pici_diff_states writes what leads from one state to
 * the next. pici_apply_deltas makes the last state of the first and of the deltas in a row. Both read and write a piece
 * at a time, and check the hash of each tensor.
 *
 *   threads     a state, or a row of deltas, is used by one thread at a time
 *   memory      about 64 MiB, and 30 MiB for each thread; making small deltas needs as much more as those of the
 *               largest tensor take. Applying needs memory for what the files contain, not for what their fields state
 *   why         where a function has it: NULL, or [PICI_WHY_BYTES], in which it puts what is wrong in words, as "NAME:
 *               tensor 'w': its type or shape differs"; "" if it returns PICI_OK or PICI_E_ARG for arguments
 * What pici.h and file.h say of ownership, options and structs holds here too. */
#ifndef PICI_DELTA_FILE_H
#define PICI_DELTA_FILE_H

#include <pici/delta.h>
#include <pici/file.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PICI_WHY_BYTES 512

/* ---- States ---- */

/* What kind of file a state is. Its bytes are a head, then the tensors, in order and without a gap. */
enum pici_state_type {
    PICI_STATE_RAW = 1,         /* no head. Tensor "data", and "tail" for the bytes of an incomplete last element */
    PICI_STATE_NPY = 2,         /* tensor "data", and "tail" for bytes after the array */
    PICI_STATE_SAFETENSORS = 3, /* the length, the JSON text, then the tensors in the order of their bytes */
    PICI_STATE_GGUF = 4 /* the keys and descriptions, then likewise. Bytes between and after tensors are u8 tensors */
};

struct pici_state;

/* A state without tensors.
 *   s      out; NULL unless PICI_OK
 *   name   for messages, as the file's path; NUL-terminated
 *   head   [head_len bytes] all bytes before the first tensor; may be NULL if head_len == 0. Copied, as name is. Only
 *          the result of a diff needs it
 *   read   reads tensors that pici_state_add is given an offset of, with ctx; or NULL
 * PICI_E_ARG: null, or an unknown type. PICI_E_NOMEM. */
PICI_API enum pici_status pici_state_new(struct pici_state **s, const char *name, enum pici_state_type type,
                                         const void *head, size_t head_len, pici_read_at_fn read, void *ctx);

/* Add the next tensor.
 *   t      its description, which is copied. Of its attributes these are used: "source.dtype", the type as the file
 *          names it (default: pici_dtype_name); "source.endian", "big" if the elements at data or offset are big-endian
 *          (else they are little-endian); "source.order", "F" if the first index varies fastest
 *   data   [elements] as they are in the file, at any address; must stay as they are until the state is freed. NULL:
 *          they begin at this offset for the state's read
 * PICI_E_ARG: null, or a member is out of the limits of file.h. That names are unique and not too long is checked when
 * a delta of the state is made. PICI_E_NOMEM. */
PICI_API enum pici_status pici_state_add(struct pici_state *s, const struct pici_tensor *t, const void *data,
                                         uint64_t offset);

/* Add elements [first, first + n) of the next tensor, as a rank has them that holds a shard: for pici_update_new alone.
 *   t      describes the whole tensor. If it has one dimension, any tensor with as many elements will do, and this is
 *          a part also if it has all of them
 *   data   [n elements]
 * Errors: as pici_state_add; PICI_E_ARG also if the elements are not within the tensor, or data is NULL. Functions that
 * need whole tensors return PICI_E_UNSUPPORTED for a state that has parts of them. */
PICI_API enum pici_status pici_state_add_part(struct pici_state *s, const struct pici_tensor *t, const void *data,
                                              uint64_t first, uint64_t n);

/* Likewise of a shard of columns, whose elements are at data without a gap: stride is 0 or count. With one row, or all
 * columns, this is pici_state_add_part. Errors: as that; PICI_E_ARG also if the rows of columns are not those of the
 * tensor, or there is a gap. */
PICI_API enum pici_status pici_state_add_columns(struct pici_state *s, const struct pici_tensor *t, const void *data,
                                                 const struct pici_columns *columns);

/* Open a file as a state: read the descriptions of its tensors. It stays open until the state is freed, and must not be
 * changed until then.
 *   type    0: by the name, .npy, .safetensors or .gguf; else raw
 *   dtype   of a raw file's elements; of no effect on others
 * PICI_E_ARG: null, a dtype out of range, or the file is not a regular one or is empty; of this why tells. PICI_E_IO:
 * errno says why. PICI_E_CORRUPT: it is not such a file, or cut off. PICI_E_NOMEM. */
PICI_API enum pici_status pici_state_open(struct pici_state **s, const char *path, int type, enum pici_dtype dtype,
                                          char *why);

/* What kind of file a state is. s must not be NULL. */
PICI_API enum pici_state_type pici_state_get_type(const struct pici_state *s);

/* The size of the state's file, and its XXH64 with seed 0. Reads all tensors.
 * PICI_E_ARG: null. PICI_E_IO: its read failed. */
PICI_API enum pici_status pici_state_hash(struct pici_state *s, uint64_t *bytes, uint64_t *hash, char *why);

/* Free the state; NULL is ignored. */
PICI_API void pici_state_free(struct pici_state *s);

/* ---- Making a delta ---- */

/* Callback: so many bytes are done. */
typedef void (*pici_progress_fn)(void *ctx, uint64_t bytes);

/* Callback: make the small delta of elements [first, first + n) of a tensor in place of pici_diff_small, as of a whole
 * tensor of n elements: with those of base and next on a GPU, for example. What it makes must lead from these to those.
 *   name   [name_bytes], of the tensor; not terminated
 *   block  out, [capacity bytes], enough for pici_diff_small_bound; size: out, bytes
 * An error other than PICI_E_UNSUPPORTED ends the call; after that one pici_diff_small makes it. */
typedef enum pici_status (*pici_small_fn)(void *ctx, const char *name, size_t name_bytes, uint64_t first, uint64_t n,
                                          void *block, size_t capacity, size_t *size);

/* How tensors of f32, f16 and bf16 are stored that the base also has, with the same name, type and shape. */
enum pici_delta_choice {
    /* as small deltas where those are at least an eighth shorter, of the first 4 Mi elements of which some changed;
     * also a tensor of more elements that did not change at all */
    PICI_DELTA_AUTO = 0,
    PICI_DELTA_SMALLEST = 1, /* as small deltas */
    PICI_DELTA_FASTEST = 2   /* as the XOR, which takes less time; version 1 of the delta's format */
};

/* Options of pici_diff_states. Set with PICI_DIFF_OPTS_INIT. */
struct pici_diff_opts {
    size_t size;
    enum pici_delta_choice choice;
    enum pici_format format; /* default PICI_AUTO: of what is not a small delta, the smallest, chosen for each chunk */
    int threads;             /* default 1. 0: one for each core */
    int zstd_level;          /* default 0: no zstd; as in struct pici_writer_opts */
    pici_progress_fn progress; /* NULL, or told how many bytes of tensors are done */
    void *progress_ctx;
    int list_all; /* default 0. 1: every tensor is listed, as in versions 1 and 2 of the delta's format, so that a base
                   * with more tensors than those of next, and in another order, will do */
    enum pici_pack pack; /* default PICI_PACK_NONE. Of tensors that are added or replaced; as in struct
                          * pici_writer_opts. PICI_E_UNSUPPORTED: unknown, of a later version */
    pici_small_fn small; /* NULL, or makes the small deltas */
    void *small_ctx;
};
#define PICI_DIFF_OPTS_INIT                                                                                            \
    {                                                                                                                  \
        sizeof(struct pici_diff_opts), PICI_DELTA_AUTO, PICI_AUTO, 1, 0, NULL, NULL, 0, PICI_PACK_NONE, NULL, NULL     \
    }

/* Write the delta that leads from base to next, a .pici file, through write. If both are of .safetensors files and have
 * the same head, and the same tensors in the same order, and choice is not PICI_DELTA_FASTEST, it is of version 3 of
 * the format (formats/delta.md): a tensor that does not change takes nothing, and one of which little changes about 25
 * bytes.
 * PICI_E_ARG: null, bad options, base and next differ in type, or next has a name twice, or one that is too long for a
 * .pici file; of these two why tells. PICI_E_UNSUPPORTED: zstd in a build without it.
 * PICI_E_IO: write or a state's read failed; errno is what that returned. PICI_E_NOMEM. Other errors: why. */
PICI_API enum pici_status pici_diff_states(pici_write_fn write, void *ctx, struct pici_state *base,
                                           struct pici_state *next, const struct pici_diff_opts *opts, char *why);

/* ---- Applying deltas ---- */

/* Deltas in a row: each leads from the result of the one before. */
struct pici_deltas;

/* A row without deltas. PICI_E_ARG: null. PICI_E_NOMEM. */
PICI_API enum pici_status pici_deltas_new(struct pici_deltas **d);

/* Add the next delta, and check its rules except for what is in small deltas. r: a random-access reader of it, which
 * must stay open until the row is freed; name: for messages.
 * PICI_E_ARG: null. PICI_E_CORRUPT, PICI_E_VERSION: it is no delta, or a rule of formats/delta.md is broken.
 * PICI_E_NOMEM, and the reader's errors. After an error the row can only be freed. */
PICI_API enum pici_status pici_deltas_add(struct pici_deltas *d, struct pici_reader *r, const char *name, char *why);

/* What a row leads to. Set with PICI_DELTAS_INFO_INIT. */
struct pici_deltas_info {
    size_t size;
    enum pici_state_type type; /* of the base */
    enum pici_dtype dtype;     /* of the base's elements if it is raw */
    uint64_t bytes;            /* the size of the result's file, as a delta states it; at most UINT64_MAX. If head is
                                * NULL: that of the file which the last delta leads to, if it has the base's head */
    uint64_t tensors;          /* how many the result has */
    const void *head;          /* [head_len bytes] of the result; valid until the row is freed. NULL: that of the base,
                                * or none */
    size_t head_len;
};
#define PICI_DELTAS_INFO_INIT                                                                                          \
    {                                                                                                                  \
        sizeof(struct pici_deltas_info), PICI_STATE_RAW, PICI_U8, 0, 0, NULL, 0                                        \
    }

/* PICI_E_ARG: null, or the row is empty. The reader's errors. */
PICI_API enum pici_status pici_deltas_get_info(struct pici_deltas *d, struct pici_deltas_info *info);

/* Options of pici_apply_deltas. Set with PICI_APPLY_OPTS_INIT. */
struct pici_apply_opts {
    size_t size;
    int threads;               /* default 1. 0: one for each core */
    pici_progress_fn progress; /* NULL, or told how many bytes of the result are done */
    void *progress_ctx;
};
#define PICI_APPLY_OPTS_INIT                                                                                           \
    {                                                                                                                  \
        sizeof(struct pici_apply_opts), 1, NULL, NULL                                                                  \
    }

/* Write the last result, the bytes of its file, through write. What was written is to be thrown away unless PICI_OK:
 * hashes are checked after the elements that they are of.
 * PICI_E_ARG: null, an empty row, or base is not what the first delta was made from; why then is not empty.
 * PICI_E_CORRUPT: a delta is invalid, or is not one of the result of the delta before. PICI_E_IO: write or the base's
 * read failed; errno is what that returned. PICI_E_NOMEM, and the readers' errors. */
PICI_API enum pici_status pici_apply_deltas(pici_write_fn write, void *ctx, struct pici_state *base,
                                            struct pici_deltas *d, const struct pici_apply_opts *opts, char *why);

/* Whether a state is the last result already. Reads it. Errors: as pici_apply_deltas. */
PICI_API enum pici_status pici_deltas_is_result(struct pici_deltas *d, struct pici_state *s, int *is, char *why);

/* ---- Changing a state where it is ---- */

/* What deltas in a row change in a state: a server checks it all, then switches, and goes back if it must. */
struct pici_update;

/* Find what deltas in a row change in base, of which all tensors are in memory (pici_state_add with data), that may be
 * written to. All hashes are checked; nothing is changed yet. Several deltas take one pass over base. Memory: for XOR
 * blocks of what changes. Two tensors may be the same memory, as tied weights are, if they change alike.
 *   u     out; NULL unless PICI_OK. It refers to the memory of the tensors, not to base or to the row
 *   opts  threads are used by pici_update_switch too
 *
 * Of a part of a tensor (pici_state_add_part) only what changes in it is decoded. Deltas of version 3 have hashes of
 * whole tensors, and of pieces of 2^19 elements of those that they list: of a part, the pieces that it has all of are
 * checked (`verified` of struct pici_update_part), before anything changes. Of other elements what small deltas tell of
 * a wrong base is little, and XORs tell nothing. If there are parts, tensors that no delta lists are not checked. A
 * part of a tensor that is stored as small deltas must begin and end at a multiple of 2^19
 * elements, or at the end of the tensor. Of a shard of columns (pici_state_add_columns) no hash is checked, and of a
 * tensor that is stored as small deltas there can be none: make the delta with PICI_DELTA_FASTEST.
 * PICI_E_UNSUPPORTED: the deltas add, replace or remove a tensor, tensors share memory in another way, a part begins
 * or ends elsewhere, or columns are of a tensor that is stored as small deltas. PICI_E_ARG: null, an empty row, a
 * tensor that is not in memory, or base is not what the first delta was made from (of the last two why tells). Others:
 * as pici_apply_deltas. */
PICI_API enum pici_status pici_update_new(struct pici_update **u, struct pici_state *base, struct pici_deltas *d,
                                          const struct pici_apply_opts *opts, char *why);

/* Change the memory of the tensors to what the deltas lead to; called again, back, and so on. It must be as it was left
 * by the call before, or by pici_update_new: hashes are not checked again. PICI_E_ARG: null. PICI_E_NOMEM: nothing has
 * changed. */
PICI_API enum pici_status pici_update_switch(struct pici_update *u);

/* A part of what changes. Set with PICI_UPDATE_PART_INIT. */
struct pici_update_part {
    size_t size;
    uint64_t tensor;   /* its number in the state, from 0 */
    uint64_t first;    /* number of the part's first element among those that the state has of the tensor: of a shard
                        * (pici_state_add_part), not of the whole */
    uint64_t count;    /* elements */
    const void *block; /* [block_bytes] the XOR of the elements before and after, as of pici_diff; of a tensor that is
                         * stored in the other byte order, of elements in that order. Valid until u is freed */
    size_t block_bytes;
    int verified; /* 1: hashes of all elements that the state has of the tensor were right. 0: it has a shard that
                   * begins or ends within a piece, or the deltas have no hashes of its pieces */
    int unused;   /* 0 */
};
#define PICI_UPDATE_PART_INIT                                                                                          \
    {                                                                                                                  \
        sizeof(struct pici_update_part), 0, 0, 0, NULL, 0, 0, 0                                                        \
    }

/* How many parts there are; those in which nothing changes are none. 0 if u is NULL. */
PICI_API uint64_t pici_update_count(const struct pici_update *u);

/* Part i, in the order of the state. PICI_E_ARG: null, or there is no part i. */
PICI_API enum pici_status pici_update_get(const struct pici_update *u, uint64_t i, struct pici_update_part *part);

/* Free it, and keep the memory of the tensors as it is; NULL is ignored. */
PICI_API void pici_update_free(struct pici_update *u);

/* Free the row; NULL is ignored. */
PICI_API void pici_deltas_free(struct pici_deltas *d);

#ifdef __cplusplus
}
#endif
#endif
