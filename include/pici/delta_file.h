/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Deltas of whole sets of tensors, as .pici files (formats/delta.md). A state is such a set: a .safetensors, .gguf,
 * .npy or raw file, or arrays in memory that stand for one. pici_diff_states writes the delta from one state to the
 * next. pici_apply_deltas makes the last state from the first and a sequence of deltas. Both work piece by piece, and
 * check the hash of each tensor.
 *
 *   threads     only one thread at a time may use a state or a sequence of deltas
 *   memory      about 64 MiB, and 30 MiB per thread. Making small deltas also needs the bytes of the largest tensor's
 *               small deltas. Memory to apply grows with the bytes in the files, not with the sizes in their fields
 *   why         NULL, or [PICI_WHY_BYTES] for a description of the error, such as "NAME: tensor 'w': its type or shape
 *               differs"; "" after PICI_OK, and after PICI_E_ARG for wrong arguments
 * The rules of pici.h and file.h about ownership, options and structs hold here too. */
#ifndef PICI_DELTA_FILE_H
#define PICI_DELTA_FILE_H

#include <pici/delta.h>
#include <pici/file.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PICI_WHY_BYTES 512

/* ---- States ---- */

/* The file type of a state. Its bytes are a head, then the tensors, in order and without gaps. */
enum pici_state_type {
    PICI_STATE_RAW = 1,         /* no head. Tensor "data", and "tail" (u8) for an incomplete last element; both have one
                                 * dimension */
    PICI_STATE_NPY = 2,         /* tensor "data", and "tail" for bytes after the array */
    PICI_STATE_SAFETENSORS = 3, /* the length, the JSON text, then the tensors in the order of their bytes */
    PICI_STATE_GGUF = 4         /* the keys and descriptions, then likewise. Bytes between and after tensors become u8
                                 * tensors */
};

struct pici_state;

/* A state without tensors.
 *   s      out; NULL unless PICI_OK
 *   name   for messages, such as the file's path; NUL-terminated
 *   head   [head_len bytes] all bytes before the first tensor; may be NULL if head_len == 0. The call copies head and
 *          name. Only the next state of a diff needs a head
 *   read   NULL, or reads tensors added with an offset (pici_state_add), with ctx
 * PICI_E_ARG: null, or an unknown type. PICI_E_NOMEM. */
PICI_API enum pici_status pici_state_new(struct pici_state **s, const char *name, enum pici_state_type type,
                                         const void *head, size_t head_len, pici_read_at_fn read, void *ctx);

/* Add the next tensor.
 *   t      its description; the call copies it. It uses three attributes. "source.dtype": the type as the file names it
 *          (default: pici_dtype_name). "source.endian": "big" if the elements at data or offset are big-endian
 *          (default: little-endian). "source.order": "F" if the first index varies fastest
 *   data   [elements] as in the file, at any address; must not change until the state is freed. NULL: the state's read
 *          finds them at this offset
 * PICI_E_ARG: null, or a member is out of the limits of file.h. pici_diff_states checks later that names are unique and
 * not too long. PICI_E_NOMEM. */
PICI_API enum pici_status pici_state_add(struct pici_state *s, const struct pici_tensor *t, const void *data,
                                         uint64_t offset);

/* Add a rank's shard of the next tensor: elements [first, first + n). Only pici_update_new supports shards.
 *   t      describes the whole tensor. With one dimension, it matches any tensor with as many elements, and counts as a
 *          part even if it has all of them
 *   data   [n elements]
 * Errors: as pici_state_add; PICI_E_ARG also if the elements are not within the tensor, or data is NULL. Functions that
 * need whole tensors return PICI_E_UNSUPPORTED for a state with parts. */
PICI_API enum pici_status pici_state_add_part(struct pici_state *s, const struct pici_tensor *t, const void *data,
                                              uint64_t first, uint64_t n);

/* The same for a shard of columns, with its elements at data without gaps: stride is 0 or count. With one row, or all
 * columns, this is pici_state_add_part. Errors: as pici_state_add_part; PICI_E_ARG also if columns has other rows than
 * the tensor, or a gap. */
PICI_API enum pici_status pici_state_add_columns(struct pici_state *s, const struct pici_tensor *t, const void *data,
                                                 const struct pici_columns *columns);

/* Open a file as a state: read the descriptions of its tensors. The file stays open until the state is freed, and must
 * not change until then.
 *   type    0: by the file name: .npy, .safetensors or .gguf, else raw
 *   dtype   of a raw file's elements; ignored for other files
 * PICI_E_ARG: null, a dtype out of range, or the file is empty or not a regular file; why describes the last two.
 * PICI_E_IO: errno says why. PICI_E_CORRUPT: the file has another type, or is truncated. PICI_E_NOMEM. */
PICI_API enum pici_status pici_state_open(struct pici_state **s, const char *path, int type, enum pici_dtype dtype,
                                          char *why);

/* The file type of a state. s must not be NULL. */
PICI_API enum pici_state_type pici_state_get_type(const struct pici_state *s);

/* The size of the state's file, and its XXH64 with seed 0. Reads all tensors.
 * PICI_E_ARG: null. PICI_E_IO: its read failed. */
PICI_API enum pici_status pici_state_hash(struct pici_state *s, uint64_t *bytes, uint64_t *hash, char *why);

/* Free the state; NULL is ignored. */
PICI_API void pici_state_free(struct pici_state *s);

/* ---- Making a delta ---- */

/* Callback: `bytes` bytes are done. */
typedef void (*pici_progress_fn)(void *ctx, uint64_t bytes);

/* Callback: make the small delta of elements [first, first + n) of a tensor, instead of pici_diff_small: for example on
 * a GPU that holds base and next. The delta is as of a whole tensor of n elements, and must lead from base to next.
 *   name   [name_bytes] the tensor's name; not NUL-terminated
 *   block  out, [capacity bytes], at least pici_diff_small_bound; size: out, bytes
 * On PICI_E_UNSUPPORTED, pici_diff_small makes the delta instead. Any other error ends the call. */
typedef enum pici_status (*pici_small_fn)(void *ctx, const char *name, size_t name_bytes, uint64_t first, uint64_t n,
                                          void *block, size_t capacity, size_t *size);

/* How to store f32, f16 and bf16 tensors that the base has too, with the same name, type and shape. */
enum pici_delta_choice {
    /* small deltas where these are at least an eighth shorter, judged by the first 4 Mi elements with changes; also for
     * longer tensors without any change */
    PICI_DELTA_AUTO = 0,
    PICI_DELTA_SMALLEST = 1, /* small deltas */
    PICI_DELTA_FASTEST = 2   /* the XOR, which takes less time; version 1 of the delta format */
};

/* Options of pici_diff_states. Set with PICI_DIFF_OPTS_INIT. */
struct pici_diff_opts {
    size_t size;
    enum pici_delta_choice choice;
    enum pici_format format;   /* default PICI_AUTO: the smallest, chosen for each chunk. Small deltas ignore it */
    int threads;               /* default 1. 0: one for each core */
    int zstd_level;            /* default 0: no zstd; as in struct pici_writer_opts */
    pici_progress_fn progress; /* NULL, or receives the number of tensor bytes done */
    void *progress_ctx;
    int list_all; /* default 0. 1: list every tensor, as in versions 1 and 2 of the delta format. The delta then also
                   * applies to a base with more tensors, or with another order */
    enum pici_pack pack; /* default PICI_PACK_NONE. For added and replaced tensors, as in struct pici_writer_opts.
                          * PICI_E_UNSUPPORTED: a value of a later version */
    pici_small_fn small; /* NULL, or makes the small deltas */
    void *small_ctx;
};
#define PICI_DIFF_OPTS_INIT                                                                                            \
    {                                                                                                                  \
        sizeof(struct pici_diff_opts), PICI_DELTA_AUTO, PICI_AUTO, 1, 0, NULL, NULL, 0, PICI_PACK_NONE, NULL, NULL     \
    }

/* Write the delta from base to next, a .pici file, through write. It has version 3 of the format (formats/delta.md) if
 * both are .safetensors files with the same head and the same tensors in the same order, and choice is not
 * PICI_DELTA_FASTEST. In version 3 an unchanged tensor takes no bytes, and one with few changes about 25 bytes.
 * PICI_E_ARG: null, bad options, base and next differ in type, or next has a duplicate name, or a name too long for a
 * .pici file; why describes the last two. PICI_E_UNSUPPORTED: zstd in a build without it.
 * PICI_E_IO: write or a state's read failed; errno is what that returned. PICI_E_NOMEM. Other errors: why. */
PICI_API enum pici_status pici_diff_states(pici_write_fn write, void *ctx, struct pici_state *base,
                                           struct pici_state *next, const struct pici_diff_opts *opts, char *why);

/* ---- Applying deltas ---- */

/* A sequence of deltas: each applies to the result of the one before. */
struct pici_deltas;

/* Make an empty sequence. PICI_E_ARG: null. PICI_E_NOMEM. */
PICI_API enum pici_status pici_deltas_new(struct pici_deltas **d);

/* Append the next delta, and check its rules except the contents of small deltas. r: a random-access reader of the
 * delta, which must stay open until the sequence is freed. name: for messages.
 * PICI_E_ARG: null. PICI_E_CORRUPT, PICI_E_VERSION: not a delta, or it breaks a rule of formats/delta.md. PICI_E_NOMEM,
 * and the reader's errors. After an error you can only free the sequence. */
PICI_API enum pici_status pici_deltas_add(struct pici_deltas *d, struct pici_reader *r, const char *name, char *why);

/* The result of a sequence. Set with PICI_DELTAS_INFO_INIT. */
struct pici_deltas_info {
    size_t size;
    enum pici_state_type type; /* of the base */
    enum pici_dtype dtype;     /* of the base's elements if it is raw */
    uint64_t bytes;            /* the size of the result's file, as the last delta states it. If head is NULL, this
                                * holds only if the result has the base's head */
    uint64_t tensors;          /* number of tensors in the result */
    const void *head;          /* [head_len bytes] the result's head; valid until the sequence is freed. NULL: the
                                * base's head, or none */
    size_t head_len;
};
#define PICI_DELTAS_INFO_INIT                                                                                          \
    {                                                                                                                  \
        sizeof(struct pici_deltas_info), PICI_STATE_RAW, PICI_U8, 0, 0, NULL, 0                                        \
    }

/* PICI_E_ARG: null, or the sequence is empty. The reader's errors. */
PICI_API enum pici_status pici_deltas_get_info(struct pici_deltas *d, struct pici_deltas_info *info);

/* Options of pici_apply_deltas. Set with PICI_APPLY_OPTS_INIT. */
struct pici_apply_opts {
    size_t size;
    int threads;               /* default 1. 0: one for each core */
    pici_progress_fn progress; /* NULL, or receives the number of result bytes done */
    void *progress_ctx;
};
#define PICI_APPLY_OPTS_INIT                                                                                           \
    {                                                                                                                  \
        sizeof(struct pici_apply_opts), 1, NULL, NULL                                                                  \
    }

/* Write the bytes of the last result's file through write. Discard the output unless the call returns PICI_OK: it
 * checks hashes after it has written the elements.
 * PICI_E_ARG: null, an empty sequence, or base is not the first delta's base; why describes the latter. PICI_E_CORRUPT:
 * a delta is invalid, or does not apply to the result of the one before. PICI_E_IO: write or the base's read failed;
 * errno is what it returned. PICI_E_NOMEM, and the readers' errors. */
PICI_API enum pici_status pici_apply_deltas(pici_write_fn write, void *ctx, struct pici_state *base,
                                            struct pici_deltas *d, const struct pici_apply_opts *opts, char *why);

/* Whether a state already is the last result. Reads the state. Errors: as pici_apply_deltas. */
PICI_API enum pici_status pici_deltas_is_result(struct pici_deltas *d, struct pici_state *s, int *is, char *why);

/* ---- Updating a state in place ---- */

/* The changes of a sequence of deltas to a state. A server checks them all, then switches, and can switch back. */
struct pici_update;

/* Find the changes of a sequence of deltas to base. All tensors of base are in writable memory (pici_state_add with
 * data). The call checks all hashes, and changes nothing yet. Several deltas take one pass over base. Memory: the XOR
 * blocks of the changes. Two tensors may share memory, as tied weights do, if they change alike.
 *   u     out; NULL unless PICI_OK. It refers to the memory of the tensors, not to base or the sequence
 *   opts  pici_update_switch uses its threads too
 *
 * Shards. For a part of a tensor (pici_state_add_part), the call decodes only the part's changes. Deltas of version 3
 * have hashes of whole tensors, and of pieces of 2^19 elements of listed tensors. Before anything changes, the call
 * checks those pieces that the part covers fully (`verified` of struct pici_update_part). For other elements, small
 * deltas rarely detect a wrong base, and XORs never do. If there are parts, the call does not check tensors that no
 * delta lists. A part of a tensor stored as small deltas must begin and end at a multiple of 2^19 elements, or at the
 * end of the tensor. For a shard of columns (pici_state_add_columns), the call checks no hash, and does not support
 * tensors stored as small deltas: make the delta with PICI_DELTA_FASTEST.
 * PICI_E_UNSUPPORTED: the deltas add, replace or remove a tensor; tensors share memory in another way; a part begins or
 * ends elsewhere; or a shard of columns has small deltas. PICI_E_ARG: null, an empty sequence, a tensor that is not in
 * memory, or base is not the first delta's base (why describes the last two). Others: as pici_apply_deltas. */
PICI_API enum pici_status pici_update_new(struct pici_update **u, struct pici_state *base, struct pici_deltas *d,
                                          const struct pici_apply_opts *opts, char *why);

/* Switch the tensors in memory to the result of the deltas; each further call switches back or forth. The memory must
 * be as the last call, or pici_update_new, left it: the call does not check hashes again. PICI_E_ARG: null.
 * PICI_E_NOMEM: nothing has changed. */
PICI_API enum pici_status pici_update_switch(struct pici_update *u);

/* A part of the changes. Set with PICI_UPDATE_PART_INIT. */
struct pici_update_part {
    size_t size;
    uint64_t tensor;   /* its number in the state, from 0 */
    uint64_t first;    /* the part's first element, counted from the first element that the state has of the tensor: in
                        * the shard (pici_state_add_part), not in the whole tensor */
    uint64_t count;    /* elements */
    const void *block; /* [block_bytes] the XOR of the elements before and after, as from pici_diff; in the tensor's
                        * byte order. Valid until u is freed */
    size_t block_bytes;
    int verified; /* 1: hashes covered all of the state's elements of the tensor, and matched. 0: its shard begins or
                   * ends within a piece, or the deltas have no hashes of its pieces */
    int unused;   /* 0 */
};
#define PICI_UPDATE_PART_INIT                                                                                          \
    {                                                                                                                  \
        sizeof(struct pici_update_part), 0, 0, 0, NULL, 0, 0, 0                                                        \
    }

/* The number of parts with changes. 0 if u is NULL. */
PICI_API uint64_t pici_update_count(const struct pici_update *u);

/* Part i, in the order of the state. PICI_E_ARG: null, or there is no part i. */
PICI_API enum pici_status pici_update_get(const struct pici_update *u, uint64_t i, struct pici_update_part *part);

/* Free the update. The tensors in memory do not change. NULL is ignored. */
PICI_API void pici_update_free(struct pici_update *u);

/* Free the sequence; NULL is ignored. */
PICI_API void pici_deltas_free(struct pici_deltas *d);

#ifdef __cplusplus
}
#endif
#endif
