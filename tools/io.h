/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Input and output of the verbs. An output appears whole, under its name, or not at all (pici_outfile_open), also if a
 * signal ends the process. Functions that return an int return an exit status (tool.h) and have said why on stderr if it
 * is not TOOL_OK, unless noted. */
#ifndef PICI_TOOLS_IO_H
#define PICI_TOOLS_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "limit.h"
#include "pici/file.h"

enum { INPUT_PEEK = 16 };

struct input {
    const char *name; /* to show */
    int fd;
    uint64_t at;  /* bytes taken */
    bool regular; /* a file, not empty and at its first byte when opened, that knows its size and can seek */
    uint64_t bytes;
    dev_t dev;
    ino_t ino;
    int err;                    /* errno of a failed input_take */
    struct progress *progress;  /* to be told of what is taken; or NULL */
    uint8_t peeked[INPUT_PEEK]; /* [peek_len] bytes read but not taken yet, from peek_at on */
    unsigned peek_at, peek_len;
};

/* path "-": standard input. A directory is refused. */
int input_open(struct input *in, const char *path);

/* The next bytes, up to INPUT_PEEK, without taking them. *got < len only at the end of the file. */
int input_peek(struct input *in, uint8_t *buf, size_t len, size_t *got);

/* Read len bytes, or fewer only at the end of the file. */
int input_read(struct input *in, void *buf, size_t len, size_t *got);

/* Everything that is left, in memory of its own: *data is the caller's to free. */
int input_slurp(struct input *in, uint8_t **data, size_t *len);

/* A pici_read_fn, ctx an input: says nothing and returns errno, which stays in in->err. */
int input_take(void *ctx, void *p, size_t cap, size_t *got);

/* A pici_read_at_fn, ctx an input that is regular: as input_take, but at is where it read, and the next input_take goes on from
 * where the last one ended. */
int input_read_at(void *ctx, void *p, size_t n, uint64_t offset);

/* Whether path is the regular file that is open. in may be NULL. */
bool input_is(const struct input *in, const char *path);

void input_close(struct input *in);

struct output {
    const char *name;          /* to show */
    struct pici_outfile *file; /* NULL: standard output */
    int fd;                    /* -1: closed */
    uint64_t at;               /* bytes written, holes among them */
    int err;                   /* errno of a failed output_put */
    unsigned block;            /* zeros of such blocks become holes; 0: are written */
    struct limit limit;        /* of bytes that are not holes */
    uint64_t stored;           /* these */
    uint64_t claimed;          /* bytes that are to come in all; 0: not known */
    bool over;                 /* output_put failed because of the limit */
};

/* path "-": standard output. Refused, with TOOL_USAGE: an existing file unless force, the file that in reads (in may be
 * NULL), a terminal. Devices and pipes are written in place. A new file gets the permissions of the file that in reads. */
int output_open(struct output *out, const char *path, const struct input *in, bool force);

/* The same; a new file gets the permissions that the files open at from [n] have in common. */
int output_open_from(struct output *out, const char *path, const struct input *in, const int *from, size_t n,
                     bool force);

/* From now on zeros become holes where the output is a regular file of its own, opened by name, on a file system that keeps
 * holes. Before the first byte. Standard output is left alone: others may write to the same file. */
void output_sparse(struct output *out);

/* Before the first byte: claimed bytes are to come, made of the file from. Refused if they exceed the limit, unless some may
 * become holes, and if the file system allows no file of that length. */
int output_claim(struct output *out, const char *from, uint64_t claimed);

int output_write(struct output *out, const void *p, size_t len);

/* A pici_write_fn, ctx an output: says nothing and returns errno, which stays in out->err. EFBIG also if out->limit is exceeded,
 * before anything beyond it is written. */
int output_put(void *ctx, const void *p, size_t len);

/* Say that output_put failed; returns TOOL_BAD. */
int output_failed(const struct output *out);

/* Say why a writer to this output failed: the output's own error comes first. w may be NULL. Returns an exit status. */
int output_writer_failed(const struct output *out, const struct pici_writer *w, enum pici_status);

/* Make the output stay. */
int output_commit(struct output *out);

/* Remove what was written; harmless after output_commit and after an output_open that failed. */
void output_discard(struct output *out);

/* From now on SIGINT, SIGTERM, SIGHUP and SIGPIPE remove temporary files before they end the process (unless ignored by
 * who started it), and SIGXFSZ is an error of write. Also makes descriptors 0 to 2 taken, so that no file is mistaken for
 * a standard stream. Once, first thing. */
void io_start(void);

#endif
