/* SPDX-License-Identifier: BSD-3-Clause
 *
 * .pici files: named tensors, each cut into chunks. A chunk is one pici block, optionally inside a zstd frame. Small
 * tensors, of at most 16 KiB, share chunks. The layout is specified in formats/file.md.
 *
 *   writing   as a stream, also to a pipe. You push data in pieces of any size, after each tensor's name, dtype and
 *             shape. Memory: about three chunks per thread, plus the index: 16 bytes per chunk and the description of
 *             each tensor. The writer collects small tensors until it has 64 KiB, or until another tensor comes.
 *   reading   forward, also from a pipe; or by random access to any range of elements of any tensor. Random access uses
 *             the index at the end of the file, and reads only the chunks that contain the range. Memory: as for
 *             writing; it grows with the bytes in the file, not with the sizes in its fields. The reader checks all
 *             bytes against their hash (XXH64) before it decodes them.
 *
 * The same input and options give the same bytes, at any thread count and on any CPU. With zstd this needs the same
 * version of libzstd.
 *
 * Rules of every function here, unless its comment says otherwise:
 *   threads     only one thread at a time may use a writer, reader or outfile
 *   ownership   the library uses pointers passed in only until the call returns. Pointers passed out belong to the
 *               writer or reader
 *   elements    host byte order, at any address
 *   options     opts == NULL means the initializer's values
 *   structs     those that begin with their size follow the rule in pici.h
 * An _open function of a writer or reader may set its object even if it fails, so that the object can describe the
 * error. Close the object in this case too. */
#ifndef PICI_FILE_H
#define PICI_FILE_H

#include <pici/pici.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Upper limits of the format. */
#define PICI_CHUNK_MAX 4194304u        /* elements of a chunk */
#define PICI_RANK_MAX 32u              /* dimensions of a tensor */
#define PICI_NAME_MAX 1048576u         /* bytes of a tensor's name */
#define PICI_KEY_MAX 255u              /* bytes of an attribute's key */
#define PICI_FILE_META_MAX 268435456u  /* bytes of the file's attributes: keys, values and about 16 for each */
#define PICI_TENSOR_META_MAX 16777216u /* bytes of a tensor's description, name and attributes */

/* An attribute: a key with a value of any bytes, for metadata. The file and each tensor have a list of attributes. */
struct pici_attr {
    const char *key;   /* 1 to PICI_KEY_MAX bytes, NUL-terminated; unique in its list */
    const void *value; /* [len bytes]; may be NULL if len == 0 */
    size_t len;
};

/* ---- Writing ---- */

/* Callback: write all n bytes (n > 0) at p. ctx is the argument of pici_writer_open. Returns 0, or an errno value if
 * not all bytes could be written; the writer then fails with PICI_E_IO. */
typedef int (*pici_write_fn)(void *ctx, const void *p, size_t n);

struct pici_writer;

/* Options of a writer. Set with PICI_WRITER_OPTS_INIT. */
struct pici_writer_opts {
    size_t size;
    enum pici_format format; /* default PICI_AUTO: the smallest format, chosen for each chunk. PICI_PACKED stores
                              * integers as hybrid */
    int threads;             /* default 1. 0: one for each core. Each thread holds one chunk */
    int zstd_level;          /* default 0: no zstd. Else a level of libzstd. The writer stores a chunk as a frame only
                              * if that is shorter than the block */
    uint32_t chunk_elements; /* default 2^20. Elements of a chunk, 1 to PICI_CHUNK_MAX */
    enum pici_zeros zeros;   /* default PICI_ZEROS_EXACT. By value, the writer drops the sign of float zeros (pici.h);
                              * deltas stay exact. The file does not record this option */
    uint64_t version;        /* default 0: the newest version of the file format, 2. 1: for pici 0.2; each small tensor
                              * then takes about 250 bytes more */
    enum pici_pack pack;     /* default PICI_PACK_NONE. For tensors of floats; deltas, and small tensors that share a
                              * chunk with one, are never packed (pici.h). With zstd, the writer tries both and stores
                              * the shorter. Readers of pici 0.2 reject packed chunks: with version 1, pack and
                              * PICI_PACKED are PICI_E_ARG */
    int reserved;            /* 0; anything else is PICI_E_UNSUPPORTED: an option of a later version */
};
#define PICI_WRITER_OPTS_INIT                                                                                          \
    {                                                                                                                  \
        sizeof(struct pici_writer_opts), PICI_AUTO, 1, 0, 1048576u, PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, 0             \
    }

/* The description of a tensor to be written. Set with PICI_TENSOR_INIT. */
struct pici_tensor {
    size_t size;
    const char *name;              /* [name_len bytes] any bytes, by convention UTF-8; unique in the file */
    size_t name_len;               /* 0 to PICI_NAME_MAX */
    enum pici_dtype dtype;         /* of all elements */
    unsigned rank;                 /* 0 to PICI_RANK_MAX. 0: a tensor of one element */
    const uint64_t *shape;         /* [rank] dimensions; their product times the dtype's width is below 2^63 */
    const struct pici_attr *attrs; /* [n_attrs] in any order */
    size_t n_attrs;
};
#define PICI_TENSOR_INIT                                                                                               \
    {                                                                                                                  \
        sizeof(struct pici_tensor), NULL, 0, PICI_F32, 0, NULL, NULL, 0                                                \
    }

/* Begin a file: write its header and its attributes.
 *   w        out. Also set on most errors, so that pici_writer_error can describe the error; always close it. NULL only
 *            without memory
 *   write    called with ctx, strictly in file order; the writer gathers small pieces to about 64 KiB
 *   attrs    [n_attrs] the file's attributes, in any order; the file stores them sorted by key
 * PICI_E_ARG: null, bad options or attributes. PICI_E_UNSUPPORTED: zstd in a build without it. PICI_E_IO: write failed;
 * errno is then what it returned, here and in later calls. PICI_E_NOMEM. Layout: formats/file.md. */
PICI_API enum pici_status pici_writer_open(struct pici_writer **w, pici_write_fn write, void *ctx,
                                           const struct pici_attr *attrs, size_t n_attrs,
                                           const struct pici_writer_opts *opts);

/* The same, writing to a file descriptor: a file, pipe or socket. The library does not close it; keep it open until
 * pici_writer_close. */
PICI_API enum pici_status pici_writer_open_fd(struct pici_writer **w, int fd, const struct pici_attr *attrs,
                                              size_t n_attrs, const struct pici_writer_opts *opts);

/* Begin the next tensor, after all elements of the previous one. The call copies *t and all that it points to.
 * PICI_E_ARG: the previous tensor is incomplete, the name is in use, or a member is out of its limits; the call wrote
 * nothing, and the writer remains usable. PICI_E_IO, PICI_E_NOMEM: the file cannot be completed. */
PICI_API enum pici_status pici_writer_tensor(struct pici_writer *w, const struct pici_tensor *t);

/* Append elements to the current tensor.
 *   p   [bytes bytes]   the next elements, row-major by convention; a piece may end inside an element
 * PICI_E_ARG: null, or more bytes than the tensor still needs; the call used no byte of the piece, and the writer
 * remains usable. After any other error the file cannot be completed, and every later call returns that error. */
PICI_API enum pici_status pici_writer_data(struct pici_writer *w, const void *p, size_t bytes);

/* Append base ^ p to the current tensor: a piece of a delta (pici/delta.h). Calls of this function and of
 * pici_writer_data may alternate within a tensor.
 *   base, p   [bytes bytes] each
 * Errors: as pici_writer_data. */
PICI_API enum pici_status pici_writer_diff(struct pici_writer *w, const void *base, const void *p, size_t bytes);

/* Write the index and all buffered data. Without this call the file is truncated, and readers report that.
 * PICI_E_ARG: the last tensor is incomplete, or the file is already finished. PICI_E_IO. */
PICI_API enum pici_status pici_writer_finish(struct pici_writer *w);

/* A description of the last failure: one line, such as "tensor 'w': 3 of 12 bytes are missing"; "" if no call failed.
 * Valid until the next call on w. w may be NULL, after a failed open. */
PICI_API const char *pici_writer_error(const struct pici_writer *w);

/* Free the writer; NULL is ignored. Writes nothing, and removes nothing of an unfinished file. */
PICI_API void pici_writer_close(struct pici_writer *w);

/* ---- Reading ---- */

/* Callback: read 1 to capacity bytes (capacity > 0) to p, and set *got to their number; 0 means the end of the file.
 * ctx is the argument of pici_reader_open_stream. Returns 0, or an errno value. */
typedef int (*pici_read_fn)(void *ctx, void *p, size_t capacity, size_t *got);

/* Callback: read exactly n bytes (n > 0) at offset to p. Never called for bytes beyond the file's end. Returns 0, or an
 * errno value. */
typedef int (*pici_read_at_fn)(void *ctx, void *p, size_t n, uint64_t offset);

struct pici_reader;

/* Options of a reader. Set with PICI_READER_OPTS_INIT. */
struct pici_reader_opts {
    size_t size;
    int threads; /* default 1. 0: one for each core. For reads that span chunks, and for pici_reader_verify */
};
#define PICI_READER_OPTS_INIT                                                                                          \
    {                                                                                                                  \
        sizeof(struct pici_reader_opts), 1                                                                             \
    }

/* The description of a tensor in a file. Set with PICI_TENSOR_INFO_INIT. */
struct pici_tensor_info {
    size_t size;
    uint64_t index;   /* its number in the file, from 0 */
    const char *name; /* [name_len bytes], then a NUL. Valid until the next pici_reader_next or pici_reader_close */
    size_t name_len;
    enum pici_dtype dtype;
    unsigned rank;
    uint64_t shape[PICI_RANK_MAX]; /* the first `rank` are set */
    uint64_t count;                /* elements: the product of the dimensions */
    uint32_t chunk_elements;       /* elements of each chunk except the last, which has the rest */
    uint64_t chunks;
    uint32_t attrs;        /* number of attributes */
    uint64_t stored_bytes; /* bytes of its records in the file; a small tensor counts its part of shared records. 0 in a
                            * forward reader */
};
#define PICI_TENSOR_INFO_INIT                                                                                          \
    {                                                                                                                  \
        sizeof(struct pici_tensor_info), 0, NULL, 0, PICI_F32, 0, {0}, 0, 0, 0, 0, 0                                   \
    }

/* How a chunk is stored. Set with PICI_CHUNK_INFO_INIT. */
struct pici_chunk_info {
    size_t size;
    uint64_t offset;        /* byte offset of its record in the file */
    uint64_t stored_bytes;  /* bytes of the block, or of the zstd frame that holds it */
    uint64_t first;         /* index of its first element in the tensor */
    int zstd;               /* 1: the block is inside a zstd frame */
    struct pici_info block; /* the header of the block */
};
#define PICI_CHUNK_INFO_INIT                                                                                           \
    {                                                                                                                  \
        sizeof(struct pici_chunk_info), 0, 0, 0, 0, PICI_INFO_INIT                                                     \
    }

/* Open a file for forward reading. Reads the header and the file's attributes.
 *   r      out. Also set on most errors, so that pici_reader_error can describe the error; always close it. NULL only
 *          without memory, or if another argument is null or out of range
 *   read   called with ctx
 * Statuses of all functions on a reader, besides PICI_OK:
 *   PICI_E_ARG           the call is wrong; nothing was read
 *   PICI_E_CORRUPT       the file breaks a rule of formats/file.md, formats/block.md or formats/hybrid.md, or is
 *                        truncated
 *   PICI_E_CHECKSUM      a hash does not match
 *   PICI_E_VERSION       this library does not know the version of the format
 *   PICI_E_UNSUPPORTED   a chunk needs zstd, which this build does not have; random access still reads the other chunks
 *   PICI_E_IO            the callback or the descriptor failed
 *   PICI_E_NOMEM */
PICI_API enum pici_status pici_reader_open_stream(struct pici_reader **r, pici_read_fn read, void *ctx,
                                                  const struct pici_reader_opts *opts);

/* The same, from a file descriptor. The library does not close it; keep it open until pici_reader_close. */
PICI_API enum pici_status pici_reader_open_fd(struct pici_reader **r, int fd, const struct pici_reader_opts *opts);

/* Open a file of file_bytes bytes for random access. Reads the header, and the index at the end of the file. r and
 * errors: as pici_reader_open_stream. */
PICI_API enum pici_status pici_reader_open_at(struct pici_reader **r, pici_read_at_fn read_at, void *ctx,
                                              uint64_t file_bytes, const struct pici_reader_opts *opts);

/* The same, from the regular file at path. PICI_E_IO: cannot open it; errno says why. PICI_E_ARG: not a regular file.
 * To read a pipe forward, use pici_reader_open_fd. */
PICI_API enum pici_status pici_reader_open_path(struct pici_reader **r, const char *path,
                                                const struct pici_reader_opts *opts);

/* The same, from size bytes of memory, which must not change until the reader is closed. file may be null if size is 0;
 * that is a truncated file: PICI_E_CORRUPT. */
PICI_API enum pici_status pici_reader_open_memory(struct pici_reader **r, const void *file, size_t size,
                                                  const struct pici_reader_opts *opts);

/* Move to the next tensor; the first call moves to the first. Works in both kinds of reader.
 *   t      out: its description, if *more is 1
 *   more   out: 1, or 0 if there is no other tensor
 * The call skips unread data of the current tensor; a forward reader still checks its hashes. At the end of the file, a
 * forward reader checks the index against all that it has read, that names are unique, and that no bytes follow. Only
 * after *more == 0 do you know that the file is complete. */
PICI_API enum pici_status pici_reader_next(struct pici_reader *r, struct pici_tensor_info *t, int *more);

/* Read the next n elements of the current tensor to dst [n elements]. Fastest for whole chunks; with threads, for
 * several chunks at a time. On an error dst is unspecified, and a forward reader returns the same error from every
 * later call of pici_reader_next and pici_reader_read. PICI_E_ARG: fewer than n elements remain, or null; the reader
 * remains usable. */
PICI_API enum pici_status pici_reader_read(struct pici_reader *r, void *dst, uint64_t n);

/* Random access only (else PICI_E_ARG). pici_reader_count: the number of tensors. pici_reader_tensor: the description
 * of tensor i, from 0. pici_reader_find: the description of the tensor with this name [name_len bytes]; PICI_E_ARG if
 * there is none. */
PICI_API enum pici_status pici_reader_count(struct pici_reader *r, uint64_t *tensors);
PICI_API enum pici_status pici_reader_tensor(struct pici_reader *r, uint64_t i, struct pici_tensor_info *t);
PICI_API enum pici_status pici_reader_find(struct pici_reader *r, const char *name, size_t name_len,
                                           struct pici_tensor_info *t);

/* Read elements [first, first + n) of tensor i to dst [n elements]. Random access only. The call reads whole chunks and
 * checks their hashes, but decodes only the elements in the range. The reader keeps the last chunk that it needed only
 * in part, and the last 16 chunks shared by small tensors. So small reads near each other read a chunk once. The
 * position of pici_reader_next and pici_reader_read does not change. On an error dst is unspecified. PICI_E_ARG: no
 * such tensor, the range is not within it, or null. */
PICI_API enum pici_status pici_reader_read_range(struct pici_reader *r, uint64_t i, uint64_t first, uint64_t n,
                                                 void *dst);

/* The same for a tensor that is a delta: XOR its elements into dst (pici/delta.h). The call checks the hash of each
 * chunk before applying it. If a later chunk is invalid, earlier ones have already been applied, so on an error dst is
 * unspecified. Tensors of small deltas (formats/delta.md) have no ranges; use pici_apply_deltas. */
PICI_API enum pici_status pici_reader_apply_range(struct pici_reader *r, uint64_t i, uint64_t first, uint64_t n,
                                                  void *dst);

/* How chunk c of tensor i is stored. Random access only. Reads the whole chunk and checks its hash. A chunk shared by
 * small tensors has the elements of all of them: info->block.count is then more than the tensor has, and info->first is
 * 0. The call does not give the tensor's place in the chunk.
 *   info   out; unspecified unless PICI_OK
 * PICI_E_ARG: no such tensor or chunk, or null. */
PICI_API enum pici_status pici_reader_chunk(struct pici_reader *r, uint64_t i, uint64_t c,
                                            struct pici_chunk_info *info);

#define PICI_FILE UINT64_MAX /* in place of a tensor's number: the file itself */

/* The attributes of tensor i, or of the file (i == PICI_FILE). A forward reader has only the attributes of the file and
 * of its current tensor (else PICI_E_ARG).
 *   pici_reader_attr         by key. If there is no such key: PICI_OK, and a->key is NULL
 *   pici_reader_attr_at      by number, from 0, in the order of keys. PICI_E_ARG: no such number
 *   pici_reader_attr_count   the number of attributes
 * The reader owns the memory that *a points to. A file's attribute is valid until pici_reader_close. A tensor's
 * attribute is valid until the next pici_reader_next, until a call for attributes of another tensor, or until
 * pici_reader_close. A NUL follows each value. */
PICI_API enum pici_status pici_reader_attr(struct pici_reader *r, uint64_t i, const char *key, struct pici_attr *a);
PICI_API enum pici_status pici_reader_attr_at(struct pici_reader *r, uint64_t i, uint32_t number, struct pici_attr *a);
PICI_API enum pici_status pici_reader_attr_count(struct pici_reader *r, uint64_t i, uint32_t *n);

/* ---- Views ---- */

/* File attributes that formats/attributes.md defines, under "Views". */
#define PICI_ATTR_VIEWS "source.views"
#define PICI_ATTR_UNNAMED "source.unnamed"

/* A view: a named tensor without its own elements. It addresses elements of another tensor of the file, its storage, by
 * strides. In .pt files, two names of one tensor, slices, and tensors not in row-major order are views. Set with
 * PICI_VIEW_INIT. */
struct pici_view {
    size_t size;
    const char *name; /* [name_len bytes], then a NUL. Valid until pici_reader_close, as word is */
    size_t name_len;
    const char *word;             /* its type as the original names it, as the attribute "source.dtype" of a tensor;
                                   * NUL-terminated */
    uint64_t tensor;              /* number of the storage tensor */
    enum pici_dtype dtype;        /* of its elements; the storage may have another */
    enum pici_dtype tensor_dtype; /* the storage's */
    unsigned rank;
    uint64_t shape[PICI_RANK_MAX];       /* the first `rank` are set, */
    uint64_t strides[PICI_RANK_MAX];     /* in elements of dtype */
    uint64_t offset;                     /* position of its first element in the storage, in elements of dtype */
    uint64_t count;                      /* elements: the product of shape; may exceed the storage's */
    uint64_t stored_first, stored_count; /* the storage elements, of tensor_dtype, that it needs */
    int conjugate;                       /* 1: negate the second element of each pair; the last dimension is 2 */
    int negative;                        /* 1: negate all elements */
};
#define PICI_VIEW_INIT                                                                                                 \
    {                                                                                                                  \
        sizeof(struct pici_view), NULL, 0, NULL, 0, PICI_F32, PICI_F32, 0, {0}, {0}, 0, 0, 0, 0, 0, 0                  \
    }

/* The views of a file, sorted by storage. A forward reader knows only the views of tensors that it has read.
 *   pici_reader_view_count   the number of views
 *   pici_reader_view         view i, from 0
 *   pici_reader_find_view    the view of this name; *found is 0 if there is none
 *   pici_reader_is_unnamed   *yes: the tensor of this name is not a tensor of the original, but bytes between tensors,
 *                            or a storage whose views alone have names
 * PICI_E_CORRUPT: the attribute is malformed, or a view exceeds its storage. PICI_E_ARG: no view i, or null. */
PICI_API enum pici_status pici_reader_view_count(struct pici_reader *r, uint64_t *views);
PICI_API enum pici_status pici_reader_view(struct pici_reader *r, uint64_t i, struct pici_view *v);
PICI_API enum pici_status pici_reader_find_view(struct pici_reader *r, const char *name, size_t name_len,
                                                struct pici_view *v, int *found);
PICI_API enum pici_status pici_reader_is_unnamed(struct pici_reader *r, const char *name, size_t name_len, int *yes);

/* Copy elements [first, first + n) of a view, counted in row-major order, with the view's negations.
 *   stored   [v->stored_count elements] of the storage from element v->stored_first on, as from pici_reader_read_range
 *   dst      [n elements of v->dtype]
 * PICI_E_ARG: null, or the range is not within the view. */
PICI_API enum pici_status pici_view_copy(const struct pici_view *v, const void *stored, uint64_t first, uint64_t n,
                                         void *dst);

/* Check the whole file: every rule of every record and block, every hash, and that the index agrees with the records.
 * Memory is bounded. The call decodes only chunks shared by small tensors. Call it on a forward reader before its first
 * tensor (else PICI_E_ARG); the reader is then at its end. A random-access reader reads the file once from beginning to
 * end, and keeps its position. */
PICI_API enum pici_status pici_reader_verify(struct pici_reader *r);

/* A description of the last failure: one line, such as "chunk 3 of tensor 'w' (elements 3145728 to 4194303) at byte
 * 123456: checksum mismatch (body-hash)". The word in parentheses names the rule in formats/file.md. "" if no call
 * failed. Valid until the next call on r. r may be NULL, after a failed open. */
PICI_API const char *pici_reader_error(const struct pici_reader *r);

/* The byte offset in the file of the record that the last failure describes. Meaningful only after PICI_E_CORRUPT,
 * PICI_E_CHECKSUM, PICI_E_VERSION and PICI_E_UNSUPPORTED. */
PICI_API uint64_t pici_reader_error_offset(const struct pici_reader *r);

/* Free the reader; NULL is ignored. */
PICI_API void pici_reader_close(struct pici_reader *r);

/* ---- atomic writes ---- */

struct pici_outfile;

/* Begin to write the file at path. Until pici_outfile_commit the data is in a temporary file (".pici-...") in the same
 * directory, and path does not change.
 *   o       out; NULL unless PICI_OK
 *   force   0: if path exists, even as a dangling symlink, the call fails (PICI_E_IO, errno EEXIST). The commit fails
 *           in the same way if path has appeared since.
 *           else: the commit replaces an existing regular file, and keeps its permission bits. If path is a symlink,
 *           the commit replaces the symlink, not its target, and takes the target's permission bits
 * The outfile writes directly to a FIFO, a character device (/dev/null) or a descriptor of this process (/dev/stdout,
 * /dev/stderr, /dev/fd/N, /proc/self/fd/N), even if that is a regular file. `force` has no effect then. The call
 * rejects a directory, block device or socket. PICI_E_ARG: null or empty. PICI_E_IO: errno says why. PICI_E_NOMEM. */
PICI_API enum pici_status pici_outfile_open(struct pici_outfile **o, const char *path, int force);

/* The same for a file made from other files. from[n] are open descriptors. A new file gets the permissions of the
 * regular files among them, for any umask; with several files, those permissions that all have. If none is a regular
 * file, as pici_outfile_open. A file that replaces another keeps the old permissions.
 *
 * Permissions are the mode's read, write and execute bits (never set-user-ID or set-group-ID), an access control list,
 * the group, and the owner. The call sets group and owner if this process may set them (the owner: as root). It sets
 * permissions on the temporary file before writing to it, and never grants more. If the group cannot be kept, or
 * differs among the n files, group and others get only the permissions that both had. If an access control list cannot
 * be kept, or if one of several files has one, group and others get no permissions. PICI_E_ARG also: from is null with
 * n > 0. */
PICI_API enum pici_status pici_outfile_open_like(struct pici_outfile **o, const char *path, int force, const int *from,
                                                 size_t n);

/* The descriptor to write to. It belongs to o: valid until the commit or abort. */
PICI_API int pici_outfile_fd(const struct pici_outfile *o);

/* Whether the outfile writes directly: to a FIFO, a character device, or a descriptor of this process. */
PICI_API int pici_outfile_is_stream(const struct pici_outfile *o);

/* Write n bytes. A pici_write_fn: pass the outfile as ctx. Returns 0, or an errno value. */
PICI_API int pici_outfile_write(void *outfile, const void *p, size_t n);

/* Put the file at path, atomically: fsync, close, rename, fsync of the directory. Always frees o. If the process is
 * killed during this call, path is either unchanged or the complete new file. A FIFO or character device is only
 * closed.
 * Without force the rename must not replace a file. The call uses renameat2 with RENAME_NOREPLACE, or else link. If the
 * file system supports neither, it checks that path does not exist and then renames; a file that another process
 * creates in between is replaced.
 * PICI_E_IO: errno says why. The call has removed the temporary file, and path is unchanged.
 * PICI_E_SYNC: path is the complete new file, but the fsync of its directory failed (errno says why): a power failure
 * may undo the change. A directory that the process may not read is not synced, and that is no error. */
PICI_API enum pici_status pici_outfile_commit(struct pici_outfile *o);

/* Remove the temporary file and free o; NULL is ignored. */
PICI_API void pici_outfile_abort(struct pici_outfile *o);

/* Remove the temporary file and do nothing else, for a handler of SIGINT or SIGTERM that ends the process.
 * Async-signal-safe; may interrupt any other function on o, except one that frees it. So block the signals around
 * pici_outfile_commit and pici_outfile_abort. Block them around pici_outfile_open too, until the handler can find its
 * result. */
PICI_API void pici_outfile_unlink(const struct pici_outfile *o);

#ifdef __cplusplus
}
#endif
#endif
