/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Input of the verbs. Each thread may have its own inputs. Unless noted, functions that return an int return an exit
 * status (tool.h), and print the reason on stderr if it is not TOOL_OK. */
#ifndef PICI_TOOLS_INPUT_INPUT_H
#define PICI_TOOLS_INPUT_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#include "input/limit.h"
#include "xxh64.h"

enum { INPUT_PEEK = 512 };

struct input {
    const char *name; /* to show */
    int fd;
    uint64_t position; /* bytes taken */
    bool regular;      /* a nonempty regular file, opened at its first byte: it can seek, and its length is known */
    uint64_t bytes;
    dev_t device;
    ino_t inode;
    off_t size; /* this and `changed`: the size and time of the last change, at the opening */
    struct timespec changed;
    int error;                  /* errno of a failed input_take */
    struct progress *progress;  /* NULL, or receives the bytes taken */
    uint8_t peeked[INPUT_PEEK]; /* [peek_size] bytes read but not taken yet, from peek_position on */
    unsigned peek_position, peek_size;
    char *reopen_path; /* the path to reopen it while it rests; or NULL */
    bool hashed;       /* input_hash was called */
    struct pici_xxh64 hash;
};

/* path "-": standard input. Rejects a directory. */
int input_open(struct input *input, const char *path);

/* Copy the next bytes, at most INPUT_PEEK, without taking them. *received < size only at the end of the file. */
int input_peek(struct input *input, uint8_t *buffer, size_t size, size_t *received);

/* Read size bytes, or fewer only at the end of the file. */
int input_read(struct input *input, void *buffer, size_t size, size_t *received);

/* Read the rest into new memory. The caller frees *data, which is set on success. */
int input_slurp(struct input *input, uint8_t **data, size_t *size);

/* The same for the file at path, which must have at most `most` bytes. */
int input_slurp_path(const char *path, uint64_t most, uint8_t **data, size_t *size);

/* A pici_read_fn whose context is an input. Prints nothing; returns errno and keeps it in input->error. */
int input_take(void *context, void *buffer, size_t capacity, size_t *received);

/* Let a regular input, opened at path, rest, unless few others (pici_files_kept) are open. This closes its descriptor;
 * input_read_at then opens the file for each call, until input_wake. The file must not change meanwhile. Standard input
 * never rests. */
int input_rest(struct input *input, const char *path, size_t others);
int input_wake(struct input *input);

/* Reject a file that has changed since it was opened: data read at different times may not match. */
int input_expect_unchanged(const struct input *input, const char *name);
bool input_is_unchanged(const struct input *input);

/* A pici_read_at_fn whose context is a regular input. Handles errors like input_take. Sets input->position to the
 * offset, but does not move the descriptor from which input_take reads. */
int input_read_at(void *context, void *buffer, size_t size, uint64_t offset);

/* Move to an offset of a regular input: input_take reads from there. */
int input_seek(struct input *input, uint64_t offset);

/* Hash all bytes taken. Call it before the first byte is taken. */
void input_hash(struct input *input);

/* Whether path, or the file with the status file_info, is the regular file that input has open. input may be NULL. */
bool input_is(const struct input *input, const char *path);
bool input_is_file(const struct input *input, const struct stat *file_info);

/* Whether standard input is or was an input, and cannot answer prompts. */
bool input_took_stdin(void);

/* Enlarge a pipe to the largest size that Linux allows any user, so that its two ends switch less often. */
void input_widen_pipe(int fd);

/* The input's length in bytes, or for a stream the bytes taken. */
uint64_t input_length(const struct input *input);

/* Delete the input's file at path. Rejects symbolic links, other files, and files that changed after the opening.
 * Ignores standard input, "-". */
int input_remove(const struct input *input, const char *path);

/* The limit on output from the input, which must stay open as long as the limit is used. */
struct limit input_limit(const struct input *input, const struct tool_options *options);

void input_close(struct input *input);

#endif
