/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Logs of deltas. The manifest names the files of the log. Each change first writes files that no manifest names, then
 * replaces the manifest, then removes files that the new one does not name. So the process may be killed at any
 * time. */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "delta/log_files.h"
#include "file/file.h"
#include "pici/delta_log.h"
#include "sized.h"

struct pici_log {
    char *folder;
    int lock;   /* the directory, locked; -1: open to read */
    bool stale; /* manifest may differ from the folder's */
    struct manifest manifest;
};

/* ---- files of the log */

/* The file of the base. */
static const struct manifest_file *stored_base(const struct manifest *manifest)
{
    return manifest->packed ? &manifest->stored : &manifest->whole;
}

/* The paths of the delta to a state in the manifest, and of the base. */
static char *delta_path(const struct pici_log *log, uint64_t state)
{
    char name[MANIFEST_NAME_MOST];
    pici_manifest_delta_name(name, state);
    return pici_log_file_in(log->folder, name, &log->manifest.delta[state - log->manifest.first - 1].delta);
}

static char *base_path(const struct pici_log *log)
{
    char name[MANIFEST_NAME_MOST];
    pici_manifest_base_name(name, &log->manifest);
    return pici_log_file_in(log->folder, name, stored_base(&log->manifest));
}

/* The paths for writing the delta to a new state, and the base of a new manifest. */
static char *new_delta_path(const struct pici_log *log, uint64_t state)
{
    char name[MANIFEST_NAME_MOST];
    pici_manifest_delta_name(name, state);
    return pici_log_path_in(log->folder, name);
}

static char *new_base_path(const struct pici_log *log, const struct manifest *manifest)
{
    char name[MANIFEST_NAME_MOST];
    pici_manifest_base_name(name, manifest);
    return pici_log_path_in(log->folder, name);
}

/* The status for a file that no manifest names yet: if it may not be on the disk, the log does not use it. */
static enum pici_status unused(enum pici_status status)
{
    return status == PICI_E_SYNC ? PICI_E_IO : status;
}

/* ---- creating, opening */

/* Opens a folder and locks it, for one writer at a time. Returns -1 on failure, and sets errno. */
static int lock_folder(const char *folder)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int locked = -1;
    while (fd >= 0 && (locked = flock(fd, LOCK_EX)) != 0 && errno == EINTR)
        ;
    if (locked == 0 || fd < 0)
        return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* Makes the folder if it is missing, so that it survives a crash. */
static enum pici_status make_folder(const char *folder, char *why)
{
    if (mkdir(folder, 0777) != 0)
        return errno == EEXIST ? PICI_OK : pici_log_io_failed(folder, why);
    char *const above = pici_log_path_in(folder, "..");
    const int fd = above ? open(above, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    enum pici_status status = !above ? pici_log_nomem(folder, why) : PICI_OK;
    /* without permission to read the folder, it cannot be synced */
    if (fd >= 0 && pici_fd_sync(fd) != 0)
        status = pici_log_io_failed(folder, why);
    const int error = errno;
    if (fd >= 0)
        close(fd);
    free(above);
    errno = error;
    return status;
}

/* Whether a raw state is as pici_state_open makes it of the file that the log stores. */
static enum pici_status check_raw(const struct pici_state *state, char *why)
{
    static const char *const names[] = {"data", "tail"};
    bool good = state->type != PICI_STATE_RAW || state->count <= 2;
    for (size_t i = 0; state->type == PICI_STATE_RAW && good && i < state->count; i++) {
        const struct state_tensor *const tensor = &state->tensors[i];
        good = tensor->rank == 1 && tensor->name_bytes == 4 && memcmp(tensor->name, names[i], 4) == 0 &&
               (i == 0 || tensor->dtype == PICI_U8);
    }
    return good ? PICI_OK
                : pici_why(why, PICI_E_ARG, state->name,
                           "a log has raw states of one dimension alone: tensor 'data', and 'tail' of u8");
}

/* Makes the log. opts: options for packing the base; NULL: the base is a copy. */
static enum pici_status create(const char *folder, struct pici_state *state, const char *extension,
                               const struct pici_diff_opts *opts, char *why)
{
    struct manifest made = {.packed = opts != NULL};
    char name[MANIFEST_NAME_MOST];
    if (why)
        why[0] = 0;
    if (!folder || !state || !extension || !pici_manifest_extension(extension))
        return PICI_E_ARG;
    enum pici_status status = pici_state_whole(state, why);
    if (!status)
        status = check_raw(state, why);
    if (!status)
        status = make_folder(folder, why);
    if (status)
        return status;
    const int lock = lock_folder(folder);
    if (lock < 0)
        return pici_log_io_failed(folder, why);
    strcpy(made.extension, extension);
    pici_manifest_base_name(name, &made);
    char *const manifest = pici_log_path_in(folder, MANIFEST_NAME), *const base = pici_log_path_in(folder, name);
    status = manifest && base ? PICI_OK : pici_log_nomem(folder, why);
    if (!status && access(manifest, F_OK) == 0) {
        errno = EEXIST;
        status = pici_why(why, PICI_E_IO, folder, "is a log already");
    }
    if (!status && opts)
        status = unused(pici_log_pack_state(state, base, opts, &made.whole, &made.stored, why));
    else if (!status)
        status = unused(pici_log_copy_state(state, base, &made.whole, why));
    made.start = made.whole;
    if (!status)
        status = pici_log_write_manifest(folder, &made, why);
    const int error = errno;
    close(lock);
    free(manifest);
    free(base);
    errno = error;
    return status;
}

enum pici_status pici_log_create(const char *folder, struct pici_state *state, const char *extension, char *why)
{
    return create(folder, state, extension, NULL, why);
}

enum pici_status pici_log_create_packed(const char *folder, struct pici_state *state, const char *extension,
                                        const struct pici_diff_opts *theirs, char *why)
{
    struct pici_diff_opts opts = PICI_DIFF_OPTS_INIT;
    if (why)
        why[0] = 0;
    opts.pack = PICI_PACK_PLANES;
    const enum pici_status status =
        theirs ? sized_read(&opts, sizeof opts, SIZED_THROUGH(struct pici_diff_opts, progress_ctx), theirs) : PICI_OK;
    return status ? status : create(folder, state, extension, &opts, why);
}

enum pici_status pici_log_open(struct pici_log **opened, const char *folder, int write, char *why)
{
    if (why)
        why[0] = 0;
    if (!opened)
        return PICI_E_ARG;
    *opened = NULL;
    if (!folder || !*folder)
        return PICI_E_ARG;
    struct pici_log *const log = calloc(1, sizeof *log);
    char *const path = pici_log_path_in(folder, MANIFEST_NAME);
    enum pici_status status = log && path && (log->folder = strdup(folder)) ? PICI_OK : pici_log_nomem(folder, why);
    if (log)
        log->lock = -1;
    if (!status && write) {
        log->lock = lock_folder(folder);
        if (log->lock < 0)
            status = pici_log_io_failed(folder, why);
    }
    if (!status)
        status = pici_log_read_manifest(&log->manifest, path, why);
    const int error = errno;
    free(path);
    if (status)
        pici_log_close(log);
    else
        *opened = log;
    errno = error;
    return status;
}

void pici_log_close(struct pici_log *log)
{
    if (!log)
        return;
    if (log->lock >= 0)
        close(log->lock);
    pici_manifest_free(&log->manifest);
    free(log->folder);
    free(log);
}

enum pici_status pici_log_get_info(const struct pici_log *log, struct pici_log_info *info)
{
    struct pici_log_info found = PICI_LOG_INFO_INIT;
    if (!log || !info)
        return PICI_E_ARG;
    found.first = log->manifest.first;
    found.base = log->manifest.base;
    found.newest = pici_manifest_newest(&log->manifest);
    found.base_bytes = log->manifest.whole.bytes;
    found.base_hash = log->manifest.whole.hash;
    found.extension = log->manifest.extension;
    found.stored_bytes = stored_base(&log->manifest)->bytes;
    return sized_write(info, &found, sizeof found, SIZED_THROUGH(struct pici_log_info, extension));
}

enum pici_status pici_log_get_state(const struct pici_log *log, uint64_t number, struct pici_log_state *state)
{
    struct pici_log_state found = PICI_LOG_STATE_INIT;
    if (!log || !state || number < log->manifest.first || number > pici_manifest_newest(&log->manifest))
        return PICI_E_ARG;
    const struct manifest_file *const file = pici_manifest_state(&log->manifest, number);
    found.bytes = file->bytes;
    found.hash = file->hash;
    if (number > log->manifest.first) {
        found.delta_bytes = log->manifest.delta[number - log->manifest.first - 1].delta.bytes;
        found.delta_hash = log->manifest.delta[number - log->manifest.first - 1].delta.hash;
    }
    return sized_write(state, &found, sizeof found, sizeof found);
}

/* ---- changing it */

/* Whether the folder has this manifest. If it cannot be read, the handle is stale. */
static bool has_manifest(struct pici_log *log, const struct manifest *manifest)
{
    char unread[PICI_WHY_BYTES];
    struct manifest current;
    size_t size = 0, len_now = 0;
    char *const path = pici_log_path_in(log->folder, MANIFEST_NAME);
    log->stale = !path || pici_log_read_manifest(&current, path, unread) != PICI_OK;
    free(path);
    if (log->stale)
        return false;
    char *const text = pici_manifest_text(manifest, &size), *const text_now = pici_manifest_text(&current, &len_now);
    log->stale = !text || !text_now;
    const bool same = !log->stale && size == len_now && memcmp(text, text_now, size) == 0;
    free(text);
    free(text_now);
    pici_manifest_free(&current);
    return same;
}

/* Writes the manifest. PICI_E_SYNC: the folder has it, but perhaps not the disk. Other errors: the folder has the old
 * one. Over a network, a rename can succeed and still report an error, so the function checks the folder. */
static enum pici_status replace_manifest(struct pici_log *log, const struct manifest *manifest, char *why)
{
    const enum pici_status status = pici_log_write_manifest(log->folder, manifest, why);
    const int error = errno;
    const bool changed = status == PICI_E_IO && has_manifest(log, manifest);
    errno = error;
    return changed ? PICI_E_SYNC : status;
}

static enum pici_status check_writable(const struct pici_log *log, char *why)
{
    if (log->lock < 0)
        return PICI_E_ARG;
    if (!log->stale)
        return PICI_OK;
    errno = EIO;
    return pici_why(why, PICI_E_IO, log->folder, "its manifest could not be read after an error: open the log again");
}

/* ---- deltas in a row */

/* Deltas of the log that are open. */
struct row {
    struct pici_deltas *deltas;
    struct pici_reader **readers; /* [n] */
    char **paths;                 /* [count] of the readers' files */
    uint64_t count;
    size_t kept; /* the number of files that stay open */
};

static void row_close(struct row *row)
{
    pici_deltas_free(row->deltas);
    for (uint64_t i = 0; i < row->count; i++) {
        pici_reader_close(row->readers[i]);
        free(row->paths[i]);
    }
    free(row->readers);
    free(row->paths);
}

static int read_by_path(void *path, void *buffer, size_t size, uint64_t offset)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    const int error = pici_fd_read_at(&fd, buffer, size, offset);
    close(fd);
    return error;
}

/* path: of a delta; the row frees it. NULL: no memory. */
static enum pici_status row_add(struct row *row, const struct pici_log *log, char *path, uint64_t bytes, int threads,
                                char *why)
{
    struct pici_reader_opts opts = PICI_READER_OPTS_INIT;
    if (!path)
        return pici_log_nomem(log->folder, why);
    struct pici_reader **const reader = &row->readers[row->count];
    opts.threads = threads;
    row->paths[row->count++] = path;
    enum pici_status status = row->count > row->kept ? pici_reader_open_at(reader, read_by_path, path, bytes, &opts)
                                                     : pici_reader_open_path(reader, path, &opts);
    if (status)
        return *reader ? pici_why(why, status, path, "%s", pici_reader_error(*reader)) : pici_log_nomem(path, why);
    return pici_deltas_add(row->deltas, *reader, path, why);
}

/* Opens the deltas from state `version` to state `last`. base: also the packed base, which is state `version`. */
static enum pici_status row_open(struct row *row, const struct pici_log *log, bool base, uint64_t version,
                                 uint64_t last, int threads, char *why)
{
    const struct manifest *const manifest = &log->manifest;
    const size_t count = (size_t)(last - version) + base;
    *row = (struct row){NULL, calloc(count, sizeof *row->readers), calloc(count, sizeof(char *)), 0, pici_files_kept()};
    const bool made = row->readers && row->paths && !pici_deltas_new(&row->deltas);
    enum pici_status status = made ? PICI_OK : pici_log_nomem(log->folder, why);
    if (!status && base)
        status = row_add(row, log, base_path(log), manifest->stored.bytes, threads, why);
    for (; !status && version < last; version++)
        status = row_add(row, log, delta_path(log, version + 1), manifest->delta[version - manifest->first].delta.bytes,
                         threads, why);
    return status;
}

static enum pici_status row_info(const struct row *row, const struct pici_log *log, struct pici_deltas_info *info,
                                 char *why)
{
    const enum pici_status status = pici_deltas_get_info(row->deltas, info);
    return status ? pici_why(why, status, log->folder, "%s", pici_reader_error(row->readers[row->count - 1])) : PICI_OK;
}

/* The type of the states of a log, and the dtype of raw ones: of its packed base, else of its last delta. */
static enum pici_status log_type(const struct pici_log *log, struct pici_deltas_info *info, char *why)
{
    const bool packed = log->manifest.packed;
    const uint64_t last = packed ? log->manifest.base : pici_manifest_newest(&log->manifest);
    struct row row;
    enum pici_status status = row_open(&row, log, packed, packed ? last : last - 1, last, 1, why);
    if (!status)
        status = row_info(&row, log, info, why);
    const int error = errno;
    row_close(&row);
    errno = error;
    return status;
}

/* ---- append */

/* Whether the log can have a delta between these states: all deltas of a row have one type. A plain base alone has
 * none. */
static enum pici_status check_types(const struct pici_log *log, const struct pici_state *newest,
                                    const struct pici_state *next, char *why)
{
    const struct pici_state *const states[] = {newest, next};
    struct pici_deltas_info info = PICI_DELTAS_INFO_INIT;
    enum pici_status status = check_raw(next, why);
    if (status || (!log->manifest.packed && !log->manifest.deltas))
        return status;
    status = log_type(log, &info, why);
    if (status == PICI_E_IO && errno == ENOENT && !log->manifest.packed) /* the last delta is missing */
        return PICI_OK;
    for (int i = 0; i < 2 && !status; i++) {
        const struct pici_state *const state = states[i];
        const bool dtype = state->type != PICI_STATE_RAW || !state->count || state->tensors[0].dtype == info.dtype;
        if (state->type != info.type || !dtype)
            status = pici_why(why, PICI_E_ARG, state->name, "is of another type or dtype than the %s of %s",
                              log->manifest.packed ? "base" : "deltas", log->folder);
    }
    return status;
}

static enum pici_status append(struct pici_log *log, struct pici_state *newest, struct pici_state *next,
                               const struct pici_diff_opts *opts, struct manifest_delta *delta, const char *path,
                               char *why)
{
    struct manifest_file previous, after;
    struct hashed hashed;
    const struct like like = {newest->fd, next->fd};
    enum pici_status status = pici_state_hash(newest, &previous.bytes, &previous.hash, why);
    if (!status &&
        !manifest_file_equal(&previous, pici_manifest_state(&log->manifest, pici_manifest_newest(&log->manifest))))
        status = pici_why(why, PICI_E_ARG, newest->name, "is not the newest state of %s", log->folder);
    if (!status)
        status = check_types(log, newest, next, why);
    if (!status)
        status = pici_state_hash(next, &delta->state.bytes, &delta->state.hash, why);
    if (!status) /* an existing file of this name is from a killed append */
        status = pici_hashed_open(&hashed, path, &like, why);
    if (status)
        return status;
    status = pici_diff_states(pici_hashed_write, &hashed, newest, next, opts, why);
    if (!status)
        status = pici_state_hash(next, &after.bytes, &after.hash, why);
    if (!status && !manifest_file_equal(&after, &delta->state))
        status = pici_why(why, PICI_E_ARG, next->name, "has changed meanwhile; nothing is appended");
    return unused(pici_hashed_end(&hashed, status, path, &delta->delta, why));
}

enum pici_status pici_log_append(struct pici_log *log, struct pici_state *newest, struct pici_state *next,
                                 const struct pici_diff_opts *opts, char *why)
{
    struct manifest_delta delta;
    if (why)
        why[0] = 0;
    if (!log || !newest || !next)
        return PICI_E_ARG;
    enum pici_status status = check_writable(log, why);
    if (status)
        return status;
    struct manifest manifest = log->manifest;
    if (pici_manifest_newest(&manifest) >= PICI_LOG_UNKNOWN - 1)
        return pici_why(why, PICI_E_SPACE, log->folder, "has no numbers left for new states");
    if (manifest.deltas >= MANIFEST_DELTAS_MOST)
        return pici_why(why, PICI_E_SPACE, log->folder, "has as many deltas as a log can have: compact it");
    char *const path = new_delta_path(log, pici_manifest_newest(&manifest) + 1);
    manifest.delta = malloc(((size_t)manifest.deltas + 1) * sizeof *manifest.delta);
    status =
        path && manifest.delta ? append(log, newest, next, opts, &delta, path, why) : pici_log_nomem(log->folder, why);
    if (!status) {
        if (manifest.deltas)
            memcpy(manifest.delta, log->manifest.delta, (size_t)manifest.deltas * sizeof *manifest.delta);
        manifest.delta[manifest.deltas++] = delta;
        status = replace_manifest(log, &manifest, why);
    }
    const int error = errno;
    const bool changed = status == PICI_OK || status == PICI_E_SYNC;
    free(path);
    free(changed ? log->manifest.delta : manifest.delta);
    if (changed)
        log->manifest = manifest;
    errno = error;
    return status;
}

/* ---- apply */

/* Writes state `last`, made from state `version`: from `state` if it is not NULL, else from the file at path, or if
 * that is NULL too, from the packed base. last > version, except for the packed base. *gone: set if the file of a delta
 * has been removed; nothing was written then. */
static enum pici_status apply_deltas(const struct pici_log *log, const char *path, struct pici_state *state,
                                     uint64_t version, uint64_t last, pici_write_fn write, void *context,
                                     const struct pici_apply_opts *opts, bool *gone, char *why)
{
    struct pici_deltas_info info = PICI_DELTAS_INFO_INIT;
    struct pici_state *opened = NULL;
    struct row row;
    const bool base = !state && !path;
    enum pici_status status = row_open(&row, log, base, version, last, opts->threads, why);
    *gone = status == PICI_E_IO && errno == ENOENT && row.count > base;
    if (!status)
        status = row_info(&row, log, &info, why);
    if (!status && base)
        status = pici_state_new(&opened, log->folder, info.type, NULL, 0, NULL, NULL) ? pici_log_nomem(log->folder, why)
                                                                                      : PICI_OK;
    else if (!status && !state)
        status = pici_state_open(&opened, path, (int)info.type, info.dtype, why);
    if (!status)
        status = pici_apply_deltas(write, context, state ? state : opened, row.deltas, opts, why);
    const int error = errno;
    pici_state_free(opened);
    row_close(&row);
    errno = error;
    return status;
}

/* The last state that complete deltas reach from `version`. If it is not the newest, *late is the reason. */
static uint64_t whole_deltas(const struct pici_log *log, uint64_t version, enum pici_status *late, char *why)
{
    uint64_t last = version;
    *late = PICI_OK;
    for (; last < pici_manifest_newest(&log->manifest); last++) {
        char *const path = delta_path(log, last + 1);
        *late = path ? pici_log_check_file(path, &log->manifest.delta[last - log->manifest.first].delta, why)
                     : pici_log_nomem(log->folder, why);
        free(path);
        if (*late)
            break;
    }
    return last;
}

/* pici_log_apply for a file that is state `from`. base: that is the log's base, which is written in any case, and has
 * no path if it is packed. */
static enum pici_status apply(const struct pici_log *log, const char *path, struct pici_state *state, bool base,
                              uint64_t from, pici_write_fn write, void *context, uint64_t *last,
                              const struct pici_apply_opts *opts, char *why)
{
    char missing[PICI_WHY_BYTES] = "";
    enum pici_status late, status = PICI_OK;
    const bool packed = base && !path;
    bool gone = false;
    do {
        *last = whole_deltas(log, from, &late, missing);
        if (late && late != PICI_E_CORRUPT && late != PICI_E_IO) {
            if (why)
                memcpy(why, missing, sizeof missing);
            return late;
        }
        gone = false;
        status = *last > from || packed ? apply_deltas(log, path, state, from, *last, write, context, opts, &gone, why)
                                        : PICI_OK;
    } while (gone);
    if (*last == from && base && !packed) {
        struct pici_state *whole;
        status = pici_state_open(&whole, path, PICI_STATE_RAW, PICI_U8, why);
        uint8_t piece[1 << 16];
        for (uint64_t offset = 0, count; !status && offset < log->manifest.whole.bytes; offset += count) {
            const uint64_t left = log->manifest.whole.bytes - offset;
            count = left < sizeof piece ? left : sizeof piece;
            status = pici_state_read(whole, &whole->tensors[0], offset, piece, (size_t)count, why);
            if (!status && (errno = write(context, piece, (size_t)count)) != 0)
                status = pici_log_io_failed("the result", why);
        }
        const int error = errno;
        pici_state_free(whole);
        errno = error;
    }
    if (!status && why)
        memcpy(why, missing, sizeof missing);
    return status;
}

/* The number of a state that the log knows. */
static enum pici_status number_of(const struct pici_log *log, const struct manifest_file *found, const char *name,
                                  uint64_t *number, char *why)
{
    *number = pici_manifest_newest(&log->manifest);
    while (*number > log->manifest.first && !manifest_file_equal(found, pici_manifest_state(&log->manifest, *number)))
        --*number;
    return manifest_file_equal(found, pici_manifest_state(&log->manifest, *number))
               ? PICI_OK
               : pici_why(why, PICI_E_ARG, name, "is none of the states of %s, or older than its first", log->folder);
}

static enum pici_status apply_any(const struct pici_log *log, const char *path, struct pici_state *state,
                                  pici_write_fn write, void *context, uint64_t *from, uint64_t *target,
                                  const struct pici_apply_opts *theirs, char *why)
{
    struct pici_apply_opts opts = PICI_APPLY_OPTS_INIT;
    struct manifest_file found;
    char *base = NULL;
    if (why)
        why[0] = 0;
    enum pici_status status = theirs ? sized_read(&opts, sizeof opts, sizeof opts, theirs) : PICI_OK;
    if (status)
        return status;
    if (!log || !write || !from || !target)
        return PICI_E_ARG;
    if (!path && !state) {
        base = base_path(log);
        status = base ? pici_log_check_file(base, stored_base(&log->manifest), why) : pici_log_nomem(log->folder, why);
        *from = log->manifest.base;
    } else if (state && *from != PICI_LOG_UNKNOWN) {
        if (*from < log->manifest.first || *from > pici_manifest_newest(&log->manifest))
            status = pici_why(why, PICI_E_ARG, log->folder, "has no state %" PRIu64 " now, but %" PRIu64 " to %" PRIu64,
                              *from, log->manifest.first, pici_manifest_newest(&log->manifest));
    } else {
        status = state ? pici_state_hash(state, &found.bytes, &found.hash, why) : pici_log_measure(path, &found, why);
        if (!status)
            status = number_of(log, &found, state ? state->name : path, from, why);
    }
    if (!status)
        status = apply(log, base && !log->manifest.packed ? base : path, state, base != NULL, *from, write, context,
                       target, &opts, why);
    const int error = errno;
    free(base);
    errno = error;
    return status;
}

enum pici_status pici_log_apply(const struct pici_log *log, const char *path, pici_write_fn write, void *context,
                                uint64_t *from, uint64_t *target, const struct pici_apply_opts *opts, char *why)
{
    return apply_any(log, path, NULL, write, context, from, target, opts, why);
}

enum pici_status pici_log_apply_state(const struct pici_log *log, struct pici_state *state, pici_write_fn write,
                                      void *context, uint64_t *from, uint64_t *target,
                                      const struct pici_apply_opts *opts, char *why)
{
    if (!state) {
        if (why)
            why[0] = 0;
        return PICI_E_ARG;
    }
    return apply_any(log, NULL, state, write, context, from, target, opts, why);
}

/* ---- compact */

/* The number of deltas to keep: as many of the last as have no more bytes together than the base, and leave room for
 * more. */
static uint64_t kept(const struct manifest *manifest)
{
    uint64_t count = 0, bytes = 0;
    while (count < manifest->deltas && count < MANIFEST_DELTAS_MOST / 2 &&
           manifest->delta[manifest->deltas - 1 - count].delta.bytes <= manifest->whole.bytes - bytes)
        bytes += manifest->delta[manifest->deltas - 1 - count++].delta.bytes;
    return count;
}

/* Whether to remove a file of this name: a temporary file, or a base or delta of this log that the manifest does not
 * name. A base or delta may have its name on disk or in a store. Any other file is not the log's. */
static bool is_rest(const struct pici_log *log, const char *file)
{
    char name[MANIFEST_NAME_MOST], plain[MANIFEST_NAME_MOST];
    struct manifest other = log->manifest;
    uint64_t hash;
    if (strncmp(file, ".pici-", 6) == 0)
        return true;
    const bool stored = pici_manifest_plain_name(plain, &hash, file);
    if (strncmp(plain, "base-", 5) == 0) {
        other.base = strtoull(plain + 5, NULL, 10);
        for (int packed = 0; packed < 2; packed++) {
            other.packed = packed;
            pici_manifest_base_name(name, &other);
            if (strcmp(plain, name) == 0)
                return other.base != log->manifest.base || other.packed != log->manifest.packed ||
                       (stored && hash != stored_base(&log->manifest)->hash);
        }
        return false;
    }
    if (strncmp(plain, "delta-", 6) == 0) {
        const uint64_t state = strtoull(plain + 6, NULL, 10);
        pici_manifest_delta_name(name, state);
        if (strcmp(plain, name) != 0)
            return false;
        return state <= log->manifest.first || state > pici_manifest_newest(&log->manifest) ||
               (stored && hash != log->manifest.delta[state - log->manifest.first - 1].delta.hash);
    }
    return false;
}

static bool is_folder(int folder, const char *name)
{
    struct stat found;
    return fstatat(folder, name, &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(found.st_mode);
}

/* Removes the files of logs that the manifest does not name, and temporary files of killed processes. */
static enum pici_status clean(const struct pici_log *log, char *why)
{
    DIR *const folder = opendir(log->folder);
    enum pici_status s = folder ? PICI_OK : pici_log_io_failed(log->folder, why);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (is_rest(log, entry->d_name) && !is_folder(dirfd(folder), entry->d_name) &&
            unlinkat(dirfd(folder), entry->d_name, 0) != 0 && errno != ENOENT)
            s = pici_log_io_failed(entry->d_name, why);
    if (folder)
        closedir(folder);
    return s;
}

/* Packs the state at `path` to the file `to`, which gets its mode, as the manifest's base. */
static enum pici_status pack_base(const struct pici_log *log, struct manifest *manifest, const char *path,
                                  const char *to, int threads, char *why)
{
    struct pici_deltas_info info = PICI_DELTAS_INFO_INIT;
    struct pici_diff_opts opts = PICI_DIFF_OPTS_INIT;
    struct pici_state *state = NULL;
    struct manifest_file whole;
    opts.pack = PICI_PACK_PLANES;
    opts.threads = threads;
    enum pici_status status = log_type(log, &info, why);
    if (!status)
        status = pici_state_open(&state, path, (int)info.type, info.dtype, why);
    if (!status)
        status = unused(pici_log_pack_state(state, to, &opts, &whole, &manifest->stored, why));
    const int error = errno;
    pici_state_free(state);
    errno = error;
    return status;
}

/* Makes the newest state, the manifest's new base, from the log's base. If bases are packed, the unpacked file exists
 * for a while; clean() removes it. */
static enum pici_status make_base(const struct pici_log *log, struct manifest *manifest,
                                  const struct pici_apply_opts *opts, char *why)
{
    const uint64_t newest = pici_manifest_newest(manifest);
    const struct manifest_file want = *pici_manifest_state(manifest, newest);
    struct manifest_file found;
    struct hashed hashed;
    enum pici_status late;
    bool gone;
    manifest->base = newest;
    manifest->whole = want;
    struct manifest plain = *manifest;
    plain.packed = false;
    char *const from = base_path(log), *const last = delta_path(log, newest), *const to = new_base_path(log, manifest),
                *const whole = new_base_path(log, &plain);
    enum pici_status status = from && last && to && whole ? pici_log_check_file(from, stored_base(&log->manifest), why)
                                                          : pici_log_nomem(log->folder, why);
    if (!status && whole_deltas(log, log->manifest.base, &late, why) < newest)
        status = late;
    struct like like = {-1, -1}; /* the new base must not be readable to more users than the old one and that delta */
    if (!status)
        status = pici_log_like(&like, from, last, why);
    if (!status)
        status = pici_hashed_open(&hashed, whole, &like, why);
    if (!status) {
        status = apply_deltas(log, manifest->packed ? NULL : from, NULL, log->manifest.base, newest, pici_hashed_write,
                              &hashed, opts, &gone, why);
        found = (struct manifest_file){hashed.bytes, pici_xxh64_digest(&hashed.hash)};
        if (!status && !manifest_file_equal(&found, &want))
            status = pici_why(why, PICI_E_CORRUPT, whole, "is not the newest state; the log stays as it was");
        status = unused(pici_hashed_end(&hashed, status, whole, &found, why));
    }
    if (!status && manifest->packed)
        status = pack_base(log, manifest, whole, to, opts->threads, why);
    const int error = errno;
    pici_log_like_close(&like);
    free(from);
    free(last);
    free(whole);
    free(to);
    errno = error;
    return status;
}

enum pici_status pici_log_compact(struct pici_log *log, const struct pici_apply_opts *theirs, char *why)
{
    struct pici_apply_opts opts = PICI_APPLY_OPTS_INIT;
    if (why)
        why[0] = 0;
    enum pici_status status = theirs ? sized_read(&opts, sizeof opts, sizeof opts, theirs) : PICI_OK;
    if (status)
        return status;
    if (!log)
        return PICI_E_ARG;
    status = check_writable(log, why);
    if (status)
        return status;
    struct manifest manifest = log->manifest; /* shares the deltas of log */
    const bool advance = manifest.base < pici_manifest_newest(&manifest);
    if (advance)
        status = make_base(log, &manifest, &opts, why);
    if (status)
        return status;
    const uint64_t count = kept(&manifest), gone = manifest.deltas - count;
    if (gone) {
        manifest.start = manifest.delta[gone - 1].state;
        manifest.delta += gone; /* only for writing the manifest */
        manifest.first += gone;
        manifest.deltas = count;
    }
    if (gone || advance)
        status = replace_manifest(log, &manifest, why);
    if (status && status != PICI_E_SYNC)
        return status;
    manifest.delta = log->manifest.delta;
    if (count)
        memmove(manifest.delta, manifest.delta + gone, (size_t)count * sizeof *manifest.delta);
    log->manifest = manifest;
    return status ? status
                  : clean(log, why); /* after PICI_E_SYNC the old manifest may come back, and it names the old files */
}
