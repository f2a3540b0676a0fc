/* SPDX-License-Identifier: BSD-3-Clause
 *
 * .pici files: named tensors, each cut into chunks; a chunk is one pici block, optionally inside one zstd frame.
 * The bytes are specified in formats/file.md.
 *
 *   writing   a stream: works to a pipe. Data is pushed in pieces of any size; nothing but names and shapes need be known
 *             beforehand. Memory: about three chunks for each thread, and 16 bytes for each chunk written.
 *   reading   strictly forward (from a pipe), or at random through the index at the file's end: any tensor, any range
 *             of elements, and only the chunks concerned are read. Memory: as for writing, never by what the file claims
 *             but does not hold. Every byte that is read is checked (XXH64) before anything is made of it.
 *
 * Same input, same options, same bytes: at any thread count, on any CPU (with zstd: for one version of libzstd).
 *
 * A writer, reader or outfile may be used by one thread at a time. Structs that may grow begin with their size: set them
 * with their initializer. A size below that of the struct's first version is PICI_E_ARG. Of a larger struct than this
 * library knows, what it does not know must be zero where it is read (else PICI_E_UNSUPPORTED), and becomes zero where it is
 * written. opts == NULL means the initializer's values. */
#ifndef PICI_FILE_H
#define PICI_FILE_H

#include <pici/pici.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PICI_CHUNK_MAX 4194304u        /* elements of a chunk, at the most */
#define PICI_RANK_MAX 32u              /* dimensions of a tensor */
#define PICI_NAME_MAX 1048576u         /* bytes of a tensor's name */
#define PICI_KEY_MAX 255u              /* bytes of an attribute's key */
#define PICI_FILE_META_MAX 268435456u  /* bytes of all attributes of the file: keys, values and about 16 for each */
#define PICI_TENSOR_META_MAX 16777216u /* bytes of a tensor's description: its name and attributes */

/* One key and its value, any bytes: what a tool wants to keep beside the numbers, as the header of the file that the
 * tensors came from. Both the file and each tensor may have some. */
struct pici_attr {
    const char *key;   /* 1 .. PICI_KEY_MAX bytes, NUL-terminated; unique in its list */
    const void *value; /* [len bytes]; may be null if len == 0 */
    size_t len;
};

/* ---- Writing ---- */

/* Take all n bytes (n > 0). Returns 0, or an errno value that says why not. */
typedef int (*pici_write_fn)(void *ctx, const void *p, size_t n);

struct pici_writer;

struct pici_writer_opts {
    size_t size;
    enum pici_format format; /* PICI_AUTO: each chunk takes its smallest */
    int threads;             /* 1; 0: one for each core */
    int zstd_level;          /* 0: no zstd; else a level of libzstd; a frame is kept only where it is smaller */
    uint32_t chunk_elements; /* 2^20; 1 .. PICI_CHUNK_MAX */
};
#define PICI_WRITER_OPTS_INIT                                                                                          \
    {                                                                                                                  \
        sizeof(struct pici_writer_opts), PICI_AUTO, 1, 0, 1048576u                                                     \
    }

/* A tensor that is about to be written. */
struct pici_tensor {
    size_t size;
    const char *name; /* [name_len bytes] any bytes, by convention UTF-8; unique in the file; may be empty */
    size_t name_len;  /* .. PICI_NAME_MAX */
    enum pici_dtype dtype;
    unsigned rank;         /* .. PICI_RANK_MAX; 0: one element */
    const uint64_t *shape; /* [rank] the product times the dtype's width is below 2^63 */
    const struct pici_attr *attrs;
    size_t n_attrs;
};
#define PICI_TENSOR_INIT                                                                                               \
    {                                                                                                                  \
        sizeof(struct pici_tensor), NULL, 0, PICI_F32, 0, NULL, NULL, 0                                                \
    }

/* Begin a file: its header and attributes (in any order; stored sorted by key).
 * *w is set on an error too, so that pici_writer_error can say what was wrong: close it always. Null: no memory.
 * Output goes to write strictly forward; small pieces are gathered to about 64 KiB.
 * PICI_E_ARG: null, bad options or attributes.  PICI_E_UNSUPPORTED: zstd in a build without it, or options of a newer
 * version.
 * PICI_E_IO: write said so. */
PICI_API enum pici_status pici_writer_open(struct pici_writer **w, pici_write_fn write, void *ctx,
                                           const struct pici_attr *attrs, size_t n_attrs,
                                           const struct pici_writer_opts *opts);

/* The same to a file descriptor: a file, a pipe, a socket. It stays the caller's and is not closed. */
PICI_API enum pici_status pici_writer_open_fd(struct pici_writer **w, int fd, const struct pici_attr *attrs,
                                              size_t n_attrs, const struct pici_writer_opts *opts);

/* Begin the next tensor; the one before must have got all its elements. What t points at is copied.
 * PICI_E_ARG: the last tensor is incomplete, the name is in use, or something is out of its limits. PICI_E_UNSUPPORTED: t is
 * of a newer version. Of both, nothing was written and the writer goes on as if not called. */
PICI_API enum pici_status pici_writer_tensor(struct pici_writer *w, const struct pici_tensor *t);

/* The next bytes of the tensor's elements (row-major by convention, host byte order); a piece may end inside an element.
 * PICI_E_ARG: more than the tensor's elements; nothing of the piece was taken.
 * After any other error the file cannot be completed, and each later call returns the same. */
PICI_API enum pici_status pici_writer_data(struct pici_writer *w, const void *p, size_t bytes);

/* The same of the elements' delta from base [bytes], base ^ p: see pici/delta.h. Of the pieces of a tensor each may come by
 * either function. */
PICI_API enum pici_status pici_writer_diff(struct pici_writer *w, const void *base, const void *p, size_t bytes);

/* Write the index and what is still buffered. Only then is the file whole. PICI_E_ARG: the last tensor is incomplete. */
PICI_API enum pici_status pici_writer_finish(struct pici_writer *w);

/* What went wrong in the last call that failed, one line, as "tensor 'w': 3 of 12 bytes are missing"; "" if none did.
 * Lives until the next call. w may be NULL. */
PICI_API const char *pici_writer_error(const struct pici_writer *w);

/* Free the writer; w may be NULL. A file that was not finished stays as far as it was written. */
PICI_API void pici_writer_close(struct pici_writer *w);

/* ---- Reading ---- */

/* Give up to cap bytes (cap > 0), *got of them; *got == 0 is the end. Returns 0, or an errno value. */
typedef int (*pici_read_fn)(void *ctx, void *p, size_t cap, size_t *got);

/* Give the n bytes (n > 0) at offset; never asked beyond the file's length. Returns 0, or an errno value. */
typedef int (*pici_read_at_fn)(void *ctx, void *p, size_t n, uint64_t offset);

struct pici_reader;

struct pici_reader_opts {
    size_t size;
    int threads; /* 1; 0: one for each core. For reads that span chunks, and for verify */
};
#define PICI_READER_OPTS_INIT                                                                                          \
    {                                                                                                                  \
        sizeof(struct pici_reader_opts), 1                                                                             \
    }

/* What a file says of a tensor. Set size with PICI_TENSOR_INFO_INIT. */
struct pici_tensor_info {
    size_t size;
    uint64_t index;   /* its number in the file, from 0 */
    const char *name; /* [name_len bytes], then a NUL. Lives until the next pici_reader_next, or close */
    size_t name_len;
    enum pici_dtype dtype;
    unsigned rank;
    uint64_t shape[PICI_RANK_MAX];
    uint64_t count;          /* elements: the shape's product */
    uint32_t chunk_elements; /* of each chunk but the last, which has what remains */
    uint64_t chunks;
    uint32_t attrs;        /* how many attributes it has */
    uint64_t stored_bytes; /* of the file, this tensor's alone; 0 in a forward reader, which cannot know yet */
};
#define PICI_TENSOR_INFO_INIT                                                                                          \
    {                                                                                                                  \
        sizeof(struct pici_tensor_info), 0, NULL, 0, PICI_F32, 0, {0}, 0, 0, 0, 0, 0                                   \
    }

/* One chunk as it is stored. Set size with PICI_CHUNK_INFO_INIT. */
struct pici_chunk_info {
    size_t size;
    uint64_t offset;        /* of its record in the file */
    uint64_t stored_bytes;  /* of the block, or of the zstd frame around it */
    uint64_t first;         /* its first element in the tensor */
    int zstd;               /* 1: the block is inside a zstd frame */
    struct pici_info block; /* of the block itself */
};
#define PICI_CHUNK_INFO_INIT                                                                                           \
    {                                                                                                                  \
        sizeof(struct pici_chunk_info), 0, 0, 0, 0, PICI_INFO_INIT                                                     \
    }

/* Open for strictly forward reading: the header and the file's attributes are read at once.
 * *r is set on an error too, so that pici_reader_error can say what was wrong: close it always. Null: no memory, or an
 * argument is null or out of range.
 * The errors of every call on a reader:
 *   PICI_E_ARG           the call is wrong; nothing was read
 *   PICI_E_CORRUPT       a rule of formats/file.md or formats/block.md is broken, a truncated file included
 *   PICI_E_CHECKSUM      some bytes are not those that were written
 *   PICI_E_VERSION       a version of the format that this library does not know
 *   PICI_E_UNSUPPORTED   a chunk needs zstd, which this build does not have (the rest of the file can be read at random); on
 *                        opening also: options of a newer version
 *   PICI_E_IO, _NOMEM */
PICI_API enum pici_status pici_reader_open_stream(struct pici_reader **r, pici_read_fn read, void *ctx,
                                                  const struct pici_reader_opts *opts);

/* The same from a file descriptor, which stays the caller's. */
PICI_API enum pici_status pici_reader_open_fd(struct pici_reader **r, int fd, const struct pici_reader_opts *opts);

/* Open for random access: the header and the index at the end of the file_bytes are read at once. */
PICI_API enum pici_status pici_reader_open_at(struct pici_reader **r, pici_read_at_fn read_at, void *ctx,
                                              uint64_t file_bytes, const struct pici_reader_opts *opts);

/* The same from a regular file (else PICI_E_ARG: a pipe can be read forward, with pici_reader_open_fd). Where it cannot be
 * opened, PICI_E_IO, and errno says why. */
PICI_API enum pici_status pici_reader_open_path(struct pici_reader **r, const char *path,
                                                const struct pici_reader_opts *opts);

/* The same from memory, which must stay as it is until the reader is closed. file may be null if len is 0: no bytes are a
 * truncated file, PICI_E_CORRUPT. */
PICI_API enum pici_status pici_reader_open_memory(struct pici_reader **r, const void *file, size_t len,
                                                  const struct pici_reader_opts *opts);

/* Go to the next tensor, the first at first; *more is 0, and t not set, if there is none. Works in both kinds of reader.
 * Data of the current tensor that was not read is passed over (a forward reader still checks its checksums). A forward
 * reader finds its end by the index: it is checked against everything that was read, and so is that nothing follows.
 * Only when *more is 0 is a file that was read forward known to be whole, and its names to be unique. */
PICI_API enum pici_status pici_reader_next(struct pici_reader *r, struct pici_tensor_info *t, int *more);

/* The next n elements of the current tensor to dst, host byte order. PICI_E_ARG: fewer remain. Fastest in whole chunks;
 * with threads, in many. On an error dst is unspecified, and a forward reader is at its end: each later call of next or
 * read returns the same. */
PICI_API enum pici_status pici_reader_read(struct pici_reader *r, void *dst, uint64_t n);

/* Random access only (else PICI_E_ARG): how many tensors there are; the i-th; the one of that name (PICI_E_ARG: none). */
PICI_API enum pici_status pici_reader_count(struct pici_reader *r, uint64_t *tensors);
PICI_API enum pici_status pici_reader_tensor(struct pici_reader *r, uint64_t i, struct pici_tensor_info *t);
PICI_API enum pici_status pici_reader_find(struct pici_reader *r, const char *name, size_t name_len,
                                           struct pici_tensor_info *t);

/* Elements [first, first + n) of the i-th tensor to dst. Random access only. A chunk that is read is read whole and its
 * checksum checked, then only the elements asked for are decoded; the last chunk that was read in part is kept, so that
 * small reads near each other cost one read. Does not move pici_reader_next and _read.
 * PICI_E_ARG: no such tensor, or the range is not within it. */
PICI_API enum pici_status pici_reader_read_range(struct pici_reader *r, uint64_t i, uint64_t first, uint64_t n,
                                                 void *dst);

/* The same, XORed into dst: the tensor is a delta, see pici/delta.h. Chunks are read whole and checked before they are
 * applied; on an error dst is unspecified nevertheless. */
PICI_API enum pici_status pici_reader_apply_range(struct pici_reader *r, uint64_t i, uint64_t first, uint64_t n,
                                                  void *dst);

/* How chunk c of the i-th tensor is stored. Random access only. Reads the whole chunk and checks its checksum. */
PICI_API enum pici_status pici_reader_chunk(struct pici_reader *r, uint64_t i, uint64_t c,
                                            struct pici_chunk_info *info);

#define PICI_FILE UINT64_MAX /* as a tensor number: the file itself */

/* An attribute of a tensor or of PICI_FILE, by its key or by its number in the order of keys. A forward reader has those
 * of the file and of its current tensor. What *a points at lives until the next call on the reader that asks for the
 * attributes of another tensor, pici_reader_next, or close; the file's own until close. A value is followed by a NUL.
 * By key, where there is none: PICI_OK, and a->key is NULL. */
PICI_API enum pici_status pici_reader_attr(struct pici_reader *r, uint64_t i, const char *key, struct pici_attr *a);
PICI_API enum pici_status pici_reader_attr_at(struct pici_reader *r, uint64_t i, uint32_t number, struct pici_attr *a);
PICI_API enum pici_status pici_reader_attr_count(struct pici_reader *r, uint64_t i, uint32_t *n);

/* Check the whole file: every rule of every record and block, every checksum, and that the index agrees with what a
 * forward reading sees. Bounded memory; nothing is decoded to elements. A forward reader must not have gone to its first
 * tensor yet (else PICI_E_ARG), and is at its end afterwards; a random-access reader reads the file once from its
 * beginning to its end and goes on as before. */
PICI_API enum pici_status pici_reader_verify(struct pici_reader *r);

/* What went wrong in the last call that failed, one line, as "chunk 3 of tensor 'w' (elements 3145728 to 4194303) at byte
 * 123456: checksum mismatch (body-hash)"; the last word in parentheses is the rule in formats/file.md. "" if none failed.
 * Lives until the next call. r may be NULL. */
PICI_API const char *pici_reader_error(const struct pici_reader *r);

/* Which byte of the file those words are about: where the record begins that has the breach. Only of a failure that the
 * file's bytes caused: PICI_E_CORRUPT, _CHECKSUM, _VERSION, and _UNSUPPORTED but for the options. */
PICI_API uint64_t pici_reader_error_offset(const struct pici_reader *r);

/* Free the reader; r may be NULL. */
PICI_API void pici_reader_close(struct pici_reader *r);

/* ---- Output that appears whole or not at all ---- */

struct pici_outfile;

/* Begin to write the file at path under a temporary name (".pici-" and more) in the same directory.
 *   force == 0   an existing path, a dangling symlink too, is refused now (PICI_E_IO, errno EEXIST), and again at the
 *                commit should it have appeared meanwhile
 *   force != 0   an existing regular file is replaced at the commit; the new one keeps its permissions (below). If path is
 *                a symlink the file that it points to is replaced; a dangling symlink is replaced itself
 * A FIFO or a character device (/dev/null, /dev/stdout of a terminal or a pipe) is opened and written as it is, with or
 * without force: it is neither replaced nor removed. A directory, block device or socket is refused.
 * A new file has mode 0666 without the bits of the umask.
 * On PICI_E_IO errno says why. PICI_E_ARG: null. *o is NULL unless PICI_OK. */
PICI_API enum pici_status pici_outfile_open(struct pici_outfile **o, const char *path, int force);

/* The same for a file that is made from others: a new file gets the permissions of the regular files among the n open
 * descriptors, whatever the umask; of several, what they all permit. Without a regular file among them, as above. Where
 * an existing file is replaced, the new one keeps the permissions of that one.
 * Permissions are the mode's read, write and execute bits (never set-user-ID or set-group-ID), an access control list, the
 * group, and the owner; the last two are set where this process may (the owner: as root). They are set on the temporary
 * file before anything is written to it, and at no moment does it permit more. Where the group cannot be kept, or differs
 * among the n, group and others get what both had. Where an access control list cannot be kept, or one of several files has
 * one, group and others get nothing. PICI_E_ARG: also if from is null with n > 0. */
PICI_API enum pici_status pici_outfile_open_like(struct pici_outfile **o, const char *path, int force, const int *from,
                                                 size_t n);

/* The descriptor to write to. The file's until commit or abort. */
PICI_API int pici_outfile_fd(const struct pici_outfile *o);

/* Write n bytes; ctx is the outfile, so that this is a pici_write_fn. Returns 0 or an errno value. */
PICI_API int pici_outfile_write(void *outfile, const void *p, size_t n);

/* Make it appear: fsync, close, rename, fsync the directory. Frees o. Interrupted calls are repeated.
 * Whatever ends the process, path is as it was or has the whole new file. Without force the rename is one that fails where
 * the name exists (renameat2 with RENAME_NOREPLACE); where the file system has no such rename, a link, after which the
 * temporary name is removed; where it has no links either, the name is looked up and then the file renamed, so that a file
 * which another process creates at path between these two calls is replaced.
 * On PICI_E_IO errno says why, and the temporary file is gone; path is as it was, except when only what comes
 * after the rename or link failed: then the new file is there whole, but may not survive a power failure. */
PICI_API enum pici_status pici_outfile_commit(struct pici_outfile *o);

/* Remove the temporary file and free o, which may be NULL. */
PICI_API void pici_outfile_abort(struct pici_outfile *o);

/* Remove the temporary file, and nothing else: for a handler of SIGINT or SIGTERM that ends the process. Safe in a signal
 * handler, also while another function works on o, apart from those that free it: block signals around these, and around
 * pici_outfile_open until its result is where the handler finds it. */
PICI_API void pici_outfile_unlink(const struct pici_outfile *o);

#ifdef __cplusplus
}
#endif
#endif
