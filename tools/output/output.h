/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Output of the verbs. Writes are atomic (pici_outfile_open), even if a signal ends the process. Each thread may have
 * its own outputs. Unless noted, functions that return an int return an exit status (tool.h), and have printed the
 * reason on stderr if it is not TOOL_OK. */
#ifndef PICI_TOOLS_OUTPUT_OUTPUT_H
#define PICI_TOOLS_OUTPUT_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "file/perms.h"
#include "input/input.h"
#include "input/limit.h"
#include "pici/file.h"
#include "xxh64.h"

struct output {
    const char *name;          /* to show */
    struct pici_outfile *file; /* NULL: standard output */
    int fd;                    /* -1: closed */
    uint64_t position;         /* bytes written, including holes */
    int error;                 /* errno of a failed output_put */
    bool is_stdout;
    bool lasting; /* a regular file, which appears at the commit */
    dev_t device; /* of that file */
    ino_t inode;
    unsigned block;     /* aligned blocks of this many zeros become holes; 0: none do */
    struct limit limit; /* on bytes that are not holes */
    uint64_t stored;    /* bytes written that are not holes */
    uint64_t claimed;   /* the expected length of the output; 0: unknown */
    bool over_limit;    /* output_put failed because of the limit */
    bool timed;         /* set `times`, of last access and change, at the commit */
    struct timespec times[2];
    bool hashed; /* output_hash was called */
    struct pici_xxh64 hash;
};

/* path "-": standard output. Writes directly to devices and pipes. A new file gets the permissions of the file that
 * input reads; input may be NULL. Rejects with TOOL_USAGE: a terminal, the file that input reads, and an output that
 * this run has committed. Also rejects an existing file, unless force is set or the user agrees on a terminal. */
int output_open(struct output *output, const char *path, const struct input *input, bool force);

/* The same, with these permissions for a new file. */
int output_open_as(struct output *output, const char *path, const struct input *input, const struct pici_perms *,
                   bool force);

/* Restrict permissions to an open file's. */
int output_perms(struct pici_perms *, const char *path, int fd);

/* Leave holes in place of zeros, if the output is a new regular file and its file system supports holes. Call it before
 * the first byte is written. Has no effect on standard output, since other processes may write to it. */
void output_sparse(struct output *output);

/* State the length of the output, as the file `from` gives it. Call it before the first byte is written. Rejects a
 * length above the limit, unless zeros become holes, and a length that the file system does not allow. */
int output_claim(struct output *output, const char *from, uint64_t claimed);

/* At the commit, give the output the times of the input, if both are regular files. */
void output_times(struct output *output, const struct input *input);

/* Hash all written bytes. Call it before the first byte is written. */
void output_hash(struct output *output);

int output_write(struct output *output, const void *data, size_t size);

/* A pici_write_fn whose context is an output. Prints nothing; returns errno and keeps it in output->error. Returns
 * EFBIG, and writes nothing, if this would exceed output->limit. Returns ECANCELED if another job has failed (jobs.h);
 * output_failed then prints nothing. */
int output_put(void *context, const void *data, size_t size);

/* Print why output_put failed. Returns TOOL_BAD. */
int output_failed(const struct output *output);

/* Print why a writer to this output failed: the output's own error if it has one. writer may be NULL. Returns an exit
 * status. */
int output_writer_failed(const struct output *output, const struct pici_writer *writer, enum pici_status);

/* Rename the complete output to its final name. */
int output_commit(struct output *output);

/* Whether this run has committed the file or folder at `path`, and not in a folder. */
bool output_is_made(const char *path);

/* Note that this run has committed a folder. */
int output_add_made(const char *path);

/* Remove the written data. Does nothing after output_commit and after a failed output_open. */
void output_discard(struct output *output);

/* Set up signals and standard descriptors; call it once, before anything else. SIGINT, SIGTERM, SIGHUP and SIGPIPE
 * remove temporary files before they end the process, unless they were ignored when it started. SIGXFSZ is ignored, so
 * that write(2) fails instead. Closed descriptors among 0 to 2 are opened, so that no file takes the place of a
 * stream. Returns TOOL_OK, or reports a failed allocation. */
int output_start(void);

#endif
