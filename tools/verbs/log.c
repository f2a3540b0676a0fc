/* SPDX-License-Identifier: BSD-3-Clause
 *
 * picitool log: logs of deltas, by pici/delta_log.h. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "delta/delta.h"
#include "input/looks.h"
#include "input/tensors.h"
#include "output/output.h"
#include "pici/delta_log.h"
#include "term.h"

/* Finds the type of the base, and rejects a base that log append would reject. */
static int check_base(const char *path, const struct tool_options *options, enum tool_type *found)
{
    struct input input;
    enum tool_type type = TYPE_RAW;
    TRY(input_open(&input, path));
    int status = looks_type(&input, path, options, &type);
    *found = type;
    if (!status && options->type != TYPE_RAW)
        status = looks_refuse(&input);
    input_close(&input);
    TRY(status);
    return tool_type_is_zip(type) ? tool_usage(path, "log is not for .%s files", tool_type_name(type)) : TOOL_OK;
}

int verb_log_init(const struct tool_options *options)
{
    const char *extension = tool_extension(options->args[1]);
    char reason[PICI_WHY_BYTES];
    struct pici_state *state;
    struct pici_diff_opts packing = PICI_DIFF_OPTS_INIT;
    enum pici_state_type state_type = PICI_STATE_RAW;
    enum tool_type type;
    TRY(check_base(options->args[1], options, &type));
    packing.pack = options->pack;
    packing.threads = options->threads;
    if (options->pack && type == TYPE_RAW)
        return tool_usage(options->args[1], "log init --pack is for .safetensors, .gguf and .npy files");
    if (options->pack)
        state_type = (enum pici_state_type)type; /* tensors.c asserts that the values agree */
    enum pici_status status = pici_state_open(&state, options->args[1], (int)state_type, PICI_U8, reason);
    if (status)
        return tool_failed(options->args[1], status, reason);
    if (strlen(extension) > 15 || strpbrk(extension, " \t\n\v\f\r"))
        extension = "";
    if (options->pack)
        status = pici_log_create_packed(options->args[0], state, extension, &packing, reason);
    else
        status = pici_log_create(options->args[0], state, extension, reason);
    const int error = errno;
    pici_state_free(state);
    return status == PICI_E_IO && error == EEXIST ? tool_usage(NULL, "%s", reason)
                                                  : tool_failed(options->args[0], status, reason);
}

/* The two states of a delta to append. */
struct pair {
    struct tensors base, next;
    struct pici_state *from, *to;
};

static int append_pair(const struct tool_options *options, struct pici_log *delta_log, struct pair *pair)
{
    const struct pici_diff_opts diff_options = tensors_diff_opts(options);
    char reason[PICI_WHY_BYTES];
    TRY(tensors_open_pair(&pair->base, &pair->next, options->args + 1, options));
    TRY(tensors_state(&pair->base, &pair->from));
    TRY(tensors_state(&pair->next, &pair->to));
    pair->from->fd = fcntl(pair->base.input.fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1); /* the delta permits what */
    pair->to->fd = fcntl(pair->next.input.fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);   /* both files do */
    if (pair->from->fd < 0 || pair->to->fd < 0)
        return tool_bad(options->args[0], "%s", strerror(errno));
    return tool_failed(options->args[0], pici_log_append(delta_log, pair->from, pair->to, &diff_options, reason),
                       reason);
}

static int append(const struct tool_options *options, struct pici_log *delta_log)
{
    struct pair pair = {.base.input.fd = -1, .next.input.fd = -1};
    const int status = append_pair(options, delta_log, &pair);
    pici_state_free(pair.from);
    pici_state_free(pair.to);
    tensors_close(&pair.base);
    tensors_close(&pair.next);
    return status;
}

/* Whether the log has been compacted since `delta_log` was opened: then its files may be gone. */
static bool compacted(const char *dir, const struct pici_log *delta_log)
{
    struct pici_log_info then = PICI_LOG_INFO_INIT, now = PICI_LOG_INFO_INIT;
    struct pici_log *again;
    if (pici_log_open(&again, dir, 0, NULL))
        return false;
    pici_log_get_info(delta_log, &then);
    pici_log_get_info(again, &now);
    pici_log_close(again);
    return now.first != then.first || now.base != then.base;
}

enum { AGAIN = -1 }; /* a status: nothing was done; retry with the current log */

/* Updates the file at `output` to the newest state. exists: the file exists. */
static int apply(const struct tool_options *options, const struct pici_log *delta_log, struct output *output,
                 bool exists)
{
    struct pici_apply_opts apply_options = PICI_APPLY_OPTS_INIT;
    char reason[PICI_WHY_BYTES];
    uint64_t from, to;
    apply_options.threads = options->threads;
    enum pici_status status =
        pici_log_apply(delta_log, exists ? output->name : NULL, output_put, output, &from, &to, &apply_options, reason);
    if (status == PICI_E_ARG && exists && !output->position) {
        if (!options->force)
            return tool_bad(NULL, "%s: --force makes it from the base", reason);
        exists = false;
        status = pici_log_apply(delta_log, NULL, output_put, output, &from, &to, &apply_options, reason);
    }
    if (status == PICI_E_IO && output->error)
        return output_failed(output);
    if ((status || reason[0]) && (output->lasting || !output->position) && compacted(options->args[0], delta_log))
        return AGAIN;
    if (status)
        return tool_failed(options->args[0], status, reason);
    if (!exists || from != to)
        TRY(output_commit(output));
    return reason[0] ? tool_bad(NULL, "%s", reason) : TOOL_OK;
}

/* The bytes of the files in a folder, to check the numbers in a manifest against. */
static int stored_bytes(const char *folder, uint64_t *bytes)
{
    struct stat file_info;
    DIR *const directory = opendir(folder);
    *bytes = 0;
    if (!directory)
        return tool_bad(folder, "%s", strerror(errno));
    for (struct dirent *entry; (entry = readdir(directory));)
        if (fstatat(dirfd(directory), entry->d_name, &file_info, 0) == 0 && S_ISREG(file_info.st_mode))
            *bytes += (uint64_t)file_info.st_size;
    closedir(directory);
    return TOOL_OK;
}

/* Writes the newest state, of `bytes` bytes, to the file at `output`. */
static int write_newest(const struct tool_options *options, const struct pici_log *delta_log, struct output *output,
                        bool exists, uint64_t bytes)
{
    struct pici_log_info info = PICI_LOG_INFO_INIT;
    struct pici_log_state newest = PICI_LOG_STATE_INIT;
    uint64_t stored;
    if (!options->no_sparse)
        output_sparse(output);
    pici_log_get_info(delta_log, &info);
    pici_log_get_state(delta_log, info.newest, &newest);
    TRY(stored_bytes(options->args[0], &stored));
    stored += bytes;
    output->limit = limit_of(options, stored, 2 * stored);
    TRY(output_claim(output, options->args[0], newest.bytes));
    return apply(options, delta_log, output, exists);
}

/* Restricts permissions to what a file of a log permits. Skips all but bases and deltas, and what has been removed
 * meanwhile. */
static int restrict_to(struct pici_perms *perms, DIR *directory, const char *entry)
{
    if (strncmp(entry, "base-", 5) != 0 && strncmp(entry, "delta-", 6) != 0)
        return TOOL_OK;
    const int fd = openat(dirfd(directory), entry, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return TOOL_OK;
    const int status = output_perms(perms, entry, fd);
    close(fd);
    return status;
}

/* The permissions for a new file: what all bases and deltas of the log permit. */
static int perms_of_log(struct pici_perms *perms, const char *folder)
{
    int status = TOOL_OK;
    DIR *const directory = opendir(folder);
    if (!directory)
        return tool_bad(folder, "%s", strerror(errno));
    for (struct dirent *entry; !status && (entry = readdir(directory));)
        status = restrict_to(perms, directory, entry->d_name);
    closedir(directory);
    return status;
}

static int open_and_apply(const struct tool_options *options, struct pici_log *delta_log)
{
    struct output output = {.fd = -1};
    struct pici_perms perms = {0};
    struct stat file_info = {0};
    const bool exists = stat(options->args[1], &file_info) == 0 || errno != ENOENT;
    int opened = exists ? TOOL_OK : perms_of_log(&perms, options->args[0]);
    if (!opened)
        opened = output_open_as(&output, options->args[1], NULL, &perms, true);
    pici_perms_free(&perms);
    TRY(opened);
    const int status = write_newest(options, delta_log, &output, exists, (uint64_t)file_info.st_size);
    output_discard(&output);
    return status;
}

static int list(const struct tool_options *options, struct pici_log *delta_log)
{
    (void)options;
    struct pici_log_info info = PICI_LOG_INFO_INIT;
    pici_log_get_info(delta_log, &info);
    printf("state %" PRIu64 ": base-%09" PRIu64, info.base, info.base);
    term_puts(stdout, info.extension);
    if (info.stored_bytes == info.base_bytes)
        printf(", %" PRIu64 " bytes\n", info.base_bytes);
    else
        printf(".pici, %" PRIu64 " bytes of %" PRIu64 "\n", info.stored_bytes, info.base_bytes);
    for (uint64_t state = info.first; state < info.newest; state++) {
        struct pici_log_state next = PICI_LOG_STATE_INIT;
        pici_log_get_state(delta_log, state + 1, &next);
        printf("state %" PRIu64 " to %" PRIu64 ": delta-%09" PRIu64 ".pici, %" PRIu64 " bytes\n", state, state + 1,
               state + 1, next.delta_bytes);
    }
    return TOOL_OK;
}

static int compact(const struct tool_options *options, struct pici_log *delta_log)
{
    struct pici_apply_opts apply_options = PICI_APPLY_OPTS_INIT;
    char reason[PICI_WHY_BYTES];
    apply_options.threads = options->threads;
    return tool_failed(options->args[0], pici_log_compact(delta_log, &apply_options, reason), reason);
}

/* Opens the log for writing or reading, and calls `work` with it. */
static int with_log(const struct tool_options *options, int write,
                    int (*work)(const struct tool_options *, struct pici_log *))
{
    char reason[PICI_WHY_BYTES];
    struct pici_log *delta_log;
    TRY(tool_failed(options->args[0], pici_log_open(&delta_log, options->args[0], write, reason), reason));
    const int status = work(options, delta_log);
    pici_log_close(delta_log);
    return status;
}

int verb_log_append(const struct tool_options *options)
{
    return with_log(options, 1, append);
}

int verb_log_apply(const struct tool_options *options)
{
    int status;
    do
        status = with_log(options, 0, open_and_apply);
    while (status == AGAIN);
    return status;
}

int verb_log_compact(const struct tool_options *options)
{
    return with_log(options, 1, compact);
}

int verb_log_list(const struct tool_options *options)
{
    return with_log(options, 0, list);
}
