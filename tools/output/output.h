/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Output of the verbs. It appears under its name whole or not at all (pici_outfile_open), even if a signal ends the
 * process. Several threads may have outputs, each of its own. Unless noted, functions that return an int return an exit
 * status (tool.h), and have printed the reason on stderr if it is not TOOL_OK. */
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
    uint64_t position;         /* bytes written, holes among them */
    int error;                 /* errno of a failed output_put */
    bool is_stdout;
    bool lasting; /* a regular file, which appears when it is complete */
    dev_t device; /* of that file */
    ino_t inode;
    unsigned block;     /* aligned blocks of so many zeros become holes; 0: none do */
    struct limit limit; /* on bytes that are not holes */
    uint64_t stored;    /* bytes written that are not holes */
    uint64_t claimed;   /* the length that the output will have; 0: not known */
    bool over_limit;    /* output_put failed because of the limit */
    bool timed;         /* it gets the times of last access and change */
    struct timespec times[2];
    bool hashed; /* by output_hash */
    struct pici_xxh64 hash;
};

/* path "-": standard output. Refuses, with TOOL_USAGE, an existing file unless force or the user, asked on a terminal,
 * agrees, the file that input reads (input may be NULL), an output that this run has committed, and a terminal. Devices
 * and pipes are written in place. A new file gets the permissions of the file that input reads. */
int output_open(struct output *output, const char *path, const struct input *input, bool force);

/* The same; a new file gets these permissions. */
int output_open_as(struct output *output, const char *path, const struct input *input, const struct pici_perms *,
                   bool force);

/* Narrow permissions to those of a file, which is open. */
int output_perms(struct pici_perms *, const char *path, int fd);

/* Leave holes in place of zeros, if the output is a new regular file on a file system that keeps holes. Call it before
 * the first byte is written. Has no effect on standard output, since other processes may write to the same file. */
void output_sparse(struct output *output);

/* Say how long the output will be, according to the file from. Call it before the first byte is written. Refuses a
 * length above the limit, unless zeros become holes, and a length that the file system does not allow. */
int output_claim(struct output *output, const char *from, uint64_t claimed);

/* Give the output, when it is committed, the times of the input, if both are regular files. */
void output_times(struct output *output, const struct input *input);

/* Hash what is written, before the first byte is. */
void output_hash(struct output *output);

int output_write(struct output *output, const void *data, size_t size);

/* A pici_write_fn whose context is an output. Prints nothing; returns errno and keeps it in output->error. Returns
 * EFBIG, and writes nothing, if output->limit would be exceeded, and ECANCELED if another job has failed (jobs.h), of
 * which output_failed prints nothing. */
int output_put(void *context, const void *data, size_t size);

/* Print why output_put failed. Returns TOOL_BAD. */
int output_failed(const struct output *output);

/* Print why a writer to this output failed: the output's own error if it has one. writer may be NULL. Returns an exit
 * status. */
int output_writer_failed(const struct output *output, const struct pici_writer *writer, enum pici_status);

/* Give the complete output its name. */
int output_commit(struct output *output);

/* Remove what was written. Does nothing after output_commit and after a failed output_open. */
void output_discard(struct output *output);

/* Set up signals and standard descriptors; call it once, before anything else. SIGINT, SIGTERM, SIGHUP and SIGPIPE
 * remove temporary files before they end the process, unless they were ignored when it started. SIGXFSZ is ignored, so
 * that write(2) fails instead. Closed descriptors among 0 to 2 are opened, so that no file takes the place of a
 * stream. Returns TOOL_OK, or says what there is no memory for. */
int output_start(void);

#endif
