/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The files of a log of deltas: measured, and written atomically. */
#ifndef PICI_LIB_DELTA_LOG_FILES_H
#define PICI_LIB_DELTA_LOG_FILES_H

#include "delta/delta.h"
#include "delta/manifest.h"

/* Set why, and return the status: PICI_E_NOMEM, or by errno. Keep errno. */
enum pici_status pici_log_nomem(const char *name, char *why);
enum pici_status pici_log_io_failed(const char *name, char *why);

/* FOLDER/NAME. The caller frees it. NULL: no memory. */
char *pici_log_path_in(const char *folder, const char *name);

/* The path of a file of the log. If the folder is a copy of a store and has the file's store name, that name; else
 * `name`. The caller frees it. NULL: no memory. */
char *pici_log_file_in(const char *folder, const char *name, const struct manifest_file *file);

static inline bool manifest_file_equal(const struct manifest_file *file, const struct manifest_file *other)
{
    return file->bytes == other->bytes && file->hash == other->hash;
}

/* The length and the hash of a file. */
enum pici_status pici_log_measure(const char *path, struct manifest_file *file, char *why);

/* Check that a file of the log exists, complete and unchanged: else PICI_E_CORRUPT. */
enum pici_status pici_log_check_file(const char *path, const struct manifest_file *want, char *why);

/* An output file that hashes its bytes. */
struct hashed {
    struct pici_outfile *out;
    struct pici_xxh64 hash;
    uint64_t bytes;
};

/* Open files whose common mode and owner a new file gets; -1: none. */
struct like {
    int fd, other;
};

/* Open both files. Close them with pici_log_like_close, also after an error. */
enum pici_status pici_log_like(struct like *like, const char *path, const char *other, char *why);
void pici_log_like_close(struct like *like);

/* like NULL: the default mode. */
enum pici_status pici_hashed_open(struct hashed *hashed, const char *path, const struct like *like, char *why);

/* A pici_write_fn. */
int pici_hashed_write(void *hashed, const void *bytes, size_t size);

/* Ends the output, and commits it if status is PICI_OK. Returns `status`, or the error of the commit; PICI_E_SYNC: from
 * pici_outfile_commit. */
enum pici_status pici_hashed_end(struct hashed *hashed, enum pici_status status, const char *path,
                                 struct manifest_file *file, char *why);

/* Write the manifest into the folder, or read it from `path`. */
enum pici_status pici_log_write_manifest(const char *folder, const struct manifest *manifest, char *why);
enum pici_status pici_log_read_manifest(struct manifest *manifest, const char *path, char *why);

/* Writes the file of a state. *file: its length and hash. */
enum pici_status pici_log_copy_state(struct pici_state *state, const char *path, struct manifest_file *file, char *why);

/* Writes a state as a delta from a state without tensors. The file gets the mode of the state's file. *whole: length
 * and hash of that file; *packed: of the written file. */
enum pici_status pici_log_pack_state(struct pici_state *state, const char *path, const struct pici_diff_opts *opts,
                                     struct manifest_file *whole, struct manifest_file *packed, char *why);

#endif
