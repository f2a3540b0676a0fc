/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Logs of deltas (formats/delta-log.md). A log is a folder with one complete state of a file of tensors, the base, and
 * the deltas from each state to the next. States may be the weights after each training step. A reader with any of
 * these states reaches the newest, even after a break, or from an incomplete copy of the folder.
 *
 * Each change of the folder is atomic, even if the process is killed: the library writes new files first, then the
 * manifest that names them, and removes old files last. The rules of delta_file.h about states, threads, memory and why
 * hold here too. */
#ifndef PICI_DELTA_LOG_H
#define PICI_DELTA_LOG_H

#include <pici/delta_file.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pici_log;

/* Make a log in the folder dir, and create the folder if it is missing. State 0 is a copy of the file of `state`.
 *   extension   ends the name of this copy: "", or a dot and up to 14 more bytes without white space and '/'
 * PICI_E_ARG: null, a bad extension, or a raw state of other tensors than pici_state_open makes (why says which).
 * PICI_E_IO: errno says why; EEXIST: dir already is a log. PICI_E_NOMEM. PICI_E_UNSUPPORTED: the state has parts of
 * tensors. */
PICI_API enum pici_status pici_log_create(const char *dir, struct pici_state *state, const char *extension, char *why);

/* The same, with a smaller base: the log stores state 0, and the bases of later compactions, as .pici files. All states
 * must then have the type of state 0, and raw ones its dtype. A compaction needs space for a complete state. Readers of
 * pici 0.2 reject such a log: its manifest has version 2.
 *   opts   as of pici_diff_states, for state 0. NULL: the defaults with PICI_PACK_PLANES, which compactions use too
 * Errors: as pici_log_create and pici_diff_states. */
PICI_API enum pici_status pici_log_create_packed(const char *dir, struct pici_state *state, const char *extension,
                                                 const struct pici_diff_opts *opts, char *why);

/* Open the log in the folder dir: read its manifest. This view does not change until you close the log, even if others
 * change the folder.
 *   l       out; NULL unless PICI_OK
 *   write   nonzero: open to write. Waits while anyone else has the log open to write
 * PICI_E_ARG: null. PICI_E_IO: errno says why. PICI_E_CORRUPT: the manifest is incomplete or damaged. PICI_E_NOMEM. */
PICI_API enum pici_status pici_log_open(struct pici_log **l, const char *dir, int write, char *why);

/* The contents of a log. Set with PICI_LOG_INFO_INIT. */
struct pici_log_info {
    size_t size;
    uint64_t first;        /* number of the oldest state with deltas to the newest */
    uint64_t base;         /* number of the complete state */
    uint64_t newest;       /* first + the number of deltas */
    uint64_t base_bytes;   /* size of the file of the base */
    uint64_t base_hash;    /* XXH64 of that file, with seed 0 */
    const char *extension; /* of the base's name; valid until the log is closed or changed. ".pici" follows if it is
                            * packed */
    uint64_t stored_bytes; /* stored size of the base. Less than base_bytes only if it is packed */
};
#define PICI_LOG_INFO_INIT                                                                                             \
    {                                                                                                                  \
        sizeof(struct pici_log_info), 0, 0, 0, 0, 0, NULL, 0                                                           \
    }

/* PICI_E_ARG: null. */
PICI_API enum pici_status pici_log_get_info(const struct pici_log *l, struct pici_log_info *info);

/* A state of a log, and the delta that leads to it. Set with PICI_LOG_STATE_INIT. */
struct pici_log_state {
    size_t size;
    uint64_t bytes, hash;             /* of its file */
    uint64_t delta_bytes, delta_hash; /* of the delta from the previous state; 0 for `first` */
};
#define PICI_LOG_STATE_INIT                                                                                            \
    {                                                                                                                  \
        sizeof(struct pici_log_state), 0, 0, 0, 0                                                                      \
    }

/* PICI_E_ARG: null, or number is not in `first` to `newest`. */
PICI_API enum pici_status pici_log_get_state(const struct pici_log *l, uint64_t number, struct pici_log_state *state);

/* Append the delta from the newest state to another, which becomes the newest. The log must be open to write, and shows
 * the new state afterwards.
 *   newest   must be the log's newest state
 *   opts     as of pici_diff_states; or NULL
 * PICI_E_ARG: null, a log open to read, or newest is another state. Also: a state differs in type, or a raw one in
 * dtype, from the log's deltas or packed base, or from the other state; why describes the cause. PICI_E_SPACE: the log
 * has 2^19 deltas; pici_log_compact drops at least half of them. Others: as pici_diff_states. PICI_E_SYNC: the log has
 * the new state, but a power failure may undo that. After any other error the log is unchanged. */
PICI_API enum pici_status pici_log_append(struct pici_log *l, struct pici_state *newest, struct pici_state *next,
                                          const struct pici_diff_opts *opts, char *why);

/* Write the bytes of the newest reachable state's file through write.
 *   path       the file of any state of the log, with any name; NULL: start from the base of the log
 *   from, to   out: the numbers of the state at path, or of the base, and of the written state. If path is not NULL and
 *              both are equal, the call wrote nothing
 * If a delta is missing, incomplete or damaged, as while someone copies the folder, the call stops at the state before
 * it: it returns PICI_OK, and why names that delta. Otherwise why is "". Files are also missing if another process
 * compacted the log after you opened it. So open it again, and retry if `first` or `base` changed. As with
 * pici_apply_deltas, discard the output unless the call returns PICI_OK: write to a pici_outfile.
 * PICI_E_ARG: null, or path is not a state in the log (why describes the cause). PICI_E_IO: errno says why; ENOENT:
 * there is no file at path, or a compaction removed a delta during the call. PICI_E_CORRUPT: the base is missing or
 * damaged. Others: as pici_apply_deltas. */
PICI_API enum pici_status pici_log_apply(const struct pici_log *l, const char *path, pici_write_fn write, void *ctx,
                                         uint64_t *from, uint64_t *to, const struct pici_apply_opts *opts, char *why);

#define PICI_LOG_UNKNOWN UINT64_MAX

/* The same for a state that is not a file, or is already open.
 *   from   in too: the number of the state, which saves hashing it; or PICI_LOG_UNKNOWN */
PICI_API enum pici_status pici_log_apply_state(const struct pici_log *l, struct pici_state *state, pici_write_fn write,
                                               void *ctx, uint64_t *from, uint64_t *to,
                                               const struct pici_apply_opts *opts, char *why);

/* Make the newest state the base, drop old deltas, and remove files that do not belong to the log. For readers that are
 * behind, the call keeps the last deltas, up to the size of the base in bytes and up to 2^18 deltas. The log must be
 * open to write.
 * PICI_E_ARG: null, or a log open to read. PICI_E_CORRUPT: the base or a delta is missing or damaged. PICI_E_IO,
 * PICI_E_NOMEM: the log is unchanged, or compacted with some old files left. PICI_E_SYNC: the log is compacted, but a
 * power failure may undo that, so the call removed no file. */
PICI_API enum pici_status pici_log_compact(struct pici_log *l, const struct pici_apply_opts *opts, char *why);

/* Close the log, so that others can open it to write. NULL is ignored. */
PICI_API void pici_log_close(struct pici_log *l);

#ifdef __cplusplus
}
#endif
#endif
