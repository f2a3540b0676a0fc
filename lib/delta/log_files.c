/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* asprintf */
#define _FILE_OFFSET_BITS 64
#include "delta/log_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/file.h"

enum pici_status pici_log_io_failed(const char *name, char *why)
{
    char text[128];
    const int error = errno;
    pici_why(why, PICI_E_IO, name, "%s", pici_errno_text(error, text, sizeof text));
    errno = error;
    return PICI_E_IO;
}

enum pici_status pici_log_nomem(const char *name, char *why)
{
    return pici_why(why, PICI_E_NOMEM, name, "out of memory for the log");
}

char *pici_log_path_in(const char *folder, const char *name)
{
    char *path = NULL;
    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

char *pici_log_file_in(const char *folder, const char *name, const struct manifest_file *file)
{
    char stored[MANIFEST_NAME_MOST];
    pici_manifest_store_name(stored, name, file);
    char *const path = pici_log_path_in(folder, stored);
    if (!path || access(path, F_OK) == 0)
        return path;
    free(path);
    return pici_log_path_in(folder, name);
}

enum pici_status pici_log_measure(const char *path, struct manifest_file *file, char *why)
{
    struct pici_state *state;
    enum pici_status status = pici_state_open(&state, path, PICI_STATE_RAW, PICI_U8, why);
    if (status)
        return status;
    status = pici_state_hash(state, &file->bytes, &file->hash, why);
    pici_state_free(state);
    return status;
}

enum pici_status pici_log_check_file(const char *path, const struct manifest_file *want, char *why)
{
    struct manifest_file found;
    struct stat file_stat;
    if (stat(path, &file_stat) != 0 && errno == ENOENT)
        return pici_why(why, PICI_E_CORRUPT, path, "is not there yet, or has been removed since: copy the log again");
    const enum pici_status status = pici_log_measure(path, &found, why);
    if (status && status != PICI_E_ARG) /* PICI_E_ARG: the file is empty */
        return status;
    if (!status && manifest_file_equal(&found, want))
        return PICI_OK;
    return pici_why(why, PICI_E_CORRUPT, path, "is incomplete or damaged: copy the log again");
}

int pici_hashed_write(void *context, const void *bytes, size_t size)
{
    struct hashed *const hashed = context;
    pici_xxh64_update(&hashed->hash, bytes, size);
    hashed->bytes += size;
    return pici_outfile_write(hashed->out, bytes, size);
}

enum pici_status pici_log_like(struct like *like, const char *path, const char *other, char *why)
{
    *like = (struct like){open(path, O_RDONLY | O_CLOEXEC), -1};
    if (like->fd < 0)
        return pici_log_io_failed(path, why);
    like->other = open(other, O_RDONLY | O_CLOEXEC);
    return like->other < 0 ? pici_log_io_failed(other, why) : PICI_OK;
}

void pici_log_like_close(struct like *like)
{
    if (like->fd >= 0)
        close(like->fd);
    if (like->other >= 0)
        close(like->other);
}

enum pici_status pici_hashed_open(struct hashed *hashed, const char *path, const struct like *like, char *why)
{
    int from[2];
    size_t count = 0;
    if (like && like->fd >= 0)
        from[count++] = like->fd;
    if (like && like->other >= 0)
        from[count++] = like->other;
    *hashed = (struct hashed){0};
    pici_xxh64_init(&hashed->hash, 0);
    const enum pici_status status = pici_outfile_open_like(&hashed->out, path, 1, from, count);
    if (!status)
        return PICI_OK;
    return status == PICI_E_IO ? pici_log_io_failed(path, why) : pici_log_nomem(path, why);
}

enum pici_status pici_hashed_end(struct hashed *hashed, enum pici_status status, const char *path,
                                 struct manifest_file *file, char *why)
{
    if (status) {
        const int error = errno;
        pici_outfile_abort(hashed->out);
        errno = error;
        return status;
    }
    *file = (struct manifest_file){hashed->bytes, pici_xxh64_digest(&hashed->hash)};
    status = pici_outfile_commit(hashed->out);
    if (status)
        (void)pici_log_io_failed(path, why);
    return status;
}

enum pici_status pici_log_write_manifest(const char *folder, const struct manifest *manifest, char *why)
{
    struct hashed hashed;
    struct manifest_file file;
    size_t size = 0;
    char *const path = pici_log_path_in(folder, MANIFEST_NAME), *const text = pici_manifest_text(manifest, &size);
    enum pici_status status = path && text ? pici_hashed_open(&hashed, path, NULL, why) : pici_log_nomem(folder, why);
    if (!status) {
        errno = pici_hashed_write(&hashed, text, size);
        status = pici_hashed_end(&hashed, errno ? pici_log_io_failed(path, why) : PICI_OK, path, &file, why);
    }
    free(path);
    free(text);
    return status;
}

enum pici_status pici_log_read_manifest(struct manifest *manifest, const char *path, char *why)
{
    struct parse_error fault = {0};
    struct stat found;
    char *text = NULL;
    enum pici_status status = PICI_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &found) != 0)
        status = pici_log_io_failed(path, why);
    else if (!S_ISREG(found.st_mode) || found.st_size > MANIFEST_BYTES_MOST)
        status = pici_why(why, PICI_E_CORRUPT, path, "is not a manifest, or too long for one");
    else if (!(text = malloc((size_t)found.st_size + 1)))
        status = pici_log_nomem(path, why);
    else if ((errno = found.st_size ? pici_fd_read_at(&fd, text, (size_t)found.st_size, 0) : 0) != 0)
        status = pici_log_io_failed(path, why);
    else if (!pici_manifest_parse(manifest, text, (size_t)found.st_size, &fault))
        status = pici_why(why, fault.no_memory ? PICI_E_NOMEM : PICI_E_CORRUPT, path, "offset %" PRIu64 ": %s",
                          fault.offset, fault.what);
    const int error = errno;
    if (fd >= 0)
        close(fd);
    free(text);
    errno = error;
    return status;
}

enum pici_status pici_log_copy_state(struct pici_state *state, const char *path, struct manifest_file *file, char *why)
{
    enum { PIECE = 1 << 18 };
    struct hashed hashed;
    uint8_t *const piece = malloc(PIECE);
    const struct like like = {state->fd, -1};
    enum pici_status status = piece ? pici_hashed_open(&hashed, path, &like, why) : pici_log_nomem(path, why);
    if (status) {
        free(piece);
        return status;
    }
    errno = state->head_bytes ? pici_hashed_write(&hashed, state->head, state->head_bytes) : 0;
    if (errno)
        status = pici_log_io_failed(path, why);
    for (size_t i = 0; i < state->count; i++)
        for (uint64_t offset = 0, count; offset < state->tensors[i].bytes && !status; offset += count) {
            count = state->tensors[i].bytes - offset < PIECE ? state->tensors[i].bytes - offset : PIECE;
            status = pici_state_read(state, &state->tensors[i], offset, piece, (size_t)count, why);
            if (!status && (errno = pici_hashed_write(&hashed, piece, (size_t)count)) != 0)
                status = pici_log_io_failed(path, why);
        }
    free(piece);
    return pici_hashed_end(&hashed, status, path, file, why);
}

enum pici_status pici_log_pack_state(struct pici_state *state, const char *path, const struct pici_diff_opts *opts,
                                     struct manifest_file *whole, struct manifest_file *packed, char *why)
{
    struct manifest_file after;
    struct hashed hashed;
    struct pici_state *empty;
    const struct like like = {state->fd, -1};
    enum pici_status status = pici_state_hash(state, &whole->bytes, &whole->hash, why);
    if (!status && pici_state_new(&empty, path, state->type, NULL, 0, NULL, NULL))
        status = pici_log_nomem(path, why);
    if (status)
        return status;
    status = pici_hashed_open(&hashed, path, &like, why);
    if (!status) {
        status = pici_diff_states(pici_hashed_write, &hashed, empty, state, opts, why);
        if (!status)
            status = pici_state_hash(state, &after.bytes, &after.hash, why);
        if (!status && !manifest_file_equal(&after, whole))
            status = pici_why(why, PICI_E_ARG, state->name, "has changed meanwhile");
        status = pici_hashed_end(&hashed, status, path, packed, why);
    }
    const int error = errno;
    pici_state_free(empty);
    errno = error;
    return status;
}
