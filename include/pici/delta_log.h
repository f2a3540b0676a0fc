/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Logs of deltas (formats/delta-log.md): a folder that holds one state of a file of tensors whole, and the deltas from
 * each state to the next, as the weights after each step of training. A reader that has any of these states gets to the
 * newest, also when it was away, and when the folder was copied in part.
 *
 * Each change of the folder is whole or not at all, also if the process is killed: new files appear first, then the
 * manifest that names them, then old files are removed. What delta_file.h says of states, threads, memory and why holds
 * here too. */
#ifndef PICI_DELTA_LOG_H
#define PICI_DELTA_LOG_H

#include <pici/delta_file.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pici_log;

/* Make a log in the folder dir, which is created if it is missing. State 0 is a copy of the file of `state`.
 *   extension   what the name of this copy ends in: "" or a dot and up to 14 more bytes without white space and '/'
 * PICI_E_ARG: null, or a bad extension. PICI_E_IO: errno says why; EEXIST: dir is a log already. PICI_E_NOMEM.
 * PICI_E_UNSUPPORTED: the state has parts of tensors. */
PICI_API enum pici_status pici_log_create(const char *dir, struct pici_state *state, const char *extension, char *why);

/* The same, with a base that takes fewer bytes: state 0, and what later compactions make the base, is stored as a .pici
 * file. All states must be of the type of state 0 then, and raw ones of its dtype. A compaction needs room for a state
 * that is whole. Readers of pici 0.2 refuse such a log: its manifest is of version 2.
 *   opts   of pici_diff_states, for state 0. NULL: the defaults, with PICI_PACK_PLANES, as compactions take them
 * Errors: as pici_log_create and pici_diff_states. */
PICI_API enum pici_status pici_log_create_packed(const char *dir, struct pici_state *state, const char *extension,
                                                 const struct pici_diff_opts *opts, char *why);

/* Open the log in the folder dir: read its manifest. It does not change until the log is closed, whatever others do.
 *   l       out; NULL unless PICI_OK
 *   write   not 0: to change the log. Waits until nobody else has it open so
 * PICI_E_ARG: null. PICI_E_IO: errno says why. PICI_E_CORRUPT: the manifest is incomplete or damaged. PICI_E_NOMEM. */
PICI_API enum pici_status pici_log_open(struct pici_log **l, const char *dir, int write, char *why);

/* What a log holds. Set with PICI_LOG_INFO_INIT. */
struct pici_log_info {
    size_t size;
    uint64_t first;        /* number of the oldest state from which there are deltas to the newest */
    uint64_t base;         /* of the state that is whole */
    uint64_t newest;       /* first + the number of deltas */
    uint64_t base_bytes;   /* size of the file of the base */
    uint64_t base_hash;    /* and its XXH64 with seed 0 */
    const char *extension; /* of its name; valid until the log is closed or changed. ".pici" follows if it is packed */
    uint64_t stored_bytes; /* of the base as it is stored. Fewer than base_bytes only if it is packed */
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
    uint64_t delta_bytes, delta_hash; /* of the delta from the state before; 0 for `first` */
};
#define PICI_LOG_STATE_INIT                                                                                            \
    {                                                                                                                  \
        sizeof(struct pici_log_state), 0, 0, 0, 0                                                                      \
    }

/* PICI_E_ARG: null, or no number from `first` to `newest`. */
PICI_API enum pici_status pici_log_get_state(const struct pici_log *l, uint64_t number, struct pici_log_state *state);

/* Append the delta from the newest state to another, which becomes the newest. The log must be open to write; it then
 * is as it was read again.
 *   newest   must be that state of the log
 *   opts     of pici_diff_states; or NULL
 * PICI_E_ARG: null, a log open to read, newest is another state or of another type than next, or than a packed base
 * (why tells). PICI_E_SPACE:
 * the log has 2^19 deltas; pici_log_compact drops half of them at least. Others: as pici_diff_states.
 * PICI_E_SYNC: the log has the new state, but a power failure may undo that. Unless it is this or PICI_OK, the log is
 * unchanged. */
PICI_API enum pici_status pici_log_append(struct pici_log *l, struct pici_state *newest, struct pici_state *next,
                                          const struct pici_diff_opts *opts, char *why);

/* Write the newest state that can be reached, the bytes of its file, through write.
 *   path       the file of a state of the log, of any name; or NULL: from the base of the log
 *   from, to   out: the numbers of the state at path, or of the base, and of the state that was written. If path is
 *              given and both are the same, nothing was written
 * If a delta is missing, incomplete or damaged, as in a folder that is being copied, the state before it is reached:
 * PICI_OK, and why names that delta. Otherwise why is "". If another process compacts the log after it was opened,
 * files are missing too: open it again if `first` or `base` are others then. As with pici_apply_deltas, what was
 * written is to be thrown away unless PICI_OK: write to a pici_outfile.
 * PICI_E_ARG: null, or path is none of the states that the log knows (why tells). PICI_E_IO: errno says why; ENOENT if
 * there is no file at path, or if a compaction removed a delta while it was read. PICI_E_CORRUPT: the base is missing
 * or damaged. Others: as pici_apply_deltas. */
PICI_API enum pici_status pici_log_apply(const struct pici_log *l, const char *path, pici_write_fn write, void *ctx,
                                         uint64_t *from, uint64_t *to, const struct pici_apply_opts *opts, char *why);

#define PICI_LOG_UNKNOWN UINT64_MAX

/* The same for a state that is not a file, or that is open already.
 *   from   in too: the number of the state if it is known, which saves hashing it; or PICI_LOG_UNKNOWN */
PICI_API enum pici_status pici_log_apply_state(const struct pici_log *l, struct pici_state *state, pici_write_fn write,
                                               void *ctx, uint64_t *from, uint64_t *to,
                                               const struct pici_apply_opts *opts, char *why);

/* Make the newest state the base, drop old deltas, and remove files that do not belong to the log. The last deltas stay
 * whose bytes are together at most those of the base, but at most 2^18, for readers that are behind. The log must be
 * open to write.
 * PICI_E_ARG: null, or a log open to read. PICI_E_CORRUPT: the base or a delta is missing or damaged. PICI_E_IO,
 * PICI_E_NOMEM: the log is unchanged, or as it would be with PICI_OK but for files to be removed. PICI_E_SYNC: it is as
 * with PICI_OK, but a power failure may undo that, so no file was removed. */
PICI_API enum pici_status pici_log_compact(struct pici_log *l, const struct pici_apply_opts *opts, char *why);

/* Close the log, and let others change it; NULL is ignored. */
PICI_API void pici_log_close(struct pici_log *l);

#ifdef __cplusplus
}
#endif
#endif
