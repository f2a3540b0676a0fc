/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the verbs of picitool share: the parsed command line, and how errors are said. A verb returns an exit status and
 * has said why on stderr, in one line, whenever that is not TOOL_OK. */
#ifndef PICI_TOOLS_TOOL_H
#define PICI_TOOLS_TOOL_H

#include <stdbool.h>
#include <stdint.h>

#include "pici/pici.h"

enum { TOOL_OK = 0, TOOL_BAD = 1, TOOL_USAGE = 2 }; /* exit status: done; bad data or I/O; usage */

enum tool_type { TYPE_UNSET, TYPE_RAW, TYPE_NPY, TYPE_SAFETENSORS, TYPE_PT, TYPES };

/* What the command line says. Options that a verb does not take keep their defaults. */
struct tool_options {
    enum pici_format format; /* PICI_AUTO */
    int dtype;               /* enum pici_dtype; 0: not given */
    enum tool_type type;
    int threads; /* 1; 0: all cores */
    int zstd;    /* level; 0: none; so is compare */
    int compare;
    const char *out; /* NULL: not given */
    const char *png; /* NULL: not wanted; so are the next two */
    const char *svg;
    const char *tensor;
    struct {
        bool given, to_end;   /* to_end: last was left out */
        uint64_t first, last; /* elements [first, last) */
    } range;
    bool force, json, checksum, keep_going, in_place, no_sparse;
    struct {
        bool given;
        uint64_t bytes;   /* UINT64_MAX: no limit */
    } max_size;           /* see limit.h */
    uint64_t bench_bytes; /* 64 MiB */
    bool bench_bytes_set;
    int reps;               /* 7 */
    const double *sparsity; /* [sparsities] in [0, 1]; NULL: not given */
    int sparsities;
    char **args; /* [nargs] operands */
    int nargs;
};

int verb_compress(const struct tool_options *);
int verb_decompress(const struct tool_options *);
int verb_test(const struct tool_options *);
int verb_list(const struct tool_options *);
int verb_inspect(const struct tool_options *);
int verb_report(const struct tool_options *);
int verb_extract(const struct tool_options *);
int verb_block_encode(const struct tool_options *);
int verb_block_decode(const struct tool_options *);
int verb_bench(const struct tool_options *);
int verb_diff(const struct tool_options *);
int verb_apply(const struct tool_options *);

/* "picitool: FILE: what" on stderr, as one line whatever the bytes of file and arguments; returns TOOL_BAD. file may be
 * NULL. */
int tool_bad(const char *file, const char *what, ...) __attribute__((format(printf, 2, 3)));

/* "picitool: FILE: offset N: what"; returns TOOL_BAD. */
int tool_bad_at(const char *file, uint64_t offset, const char *what, ...) __attribute__((format(printf, 3, 4)));

/* "picitool: FILE: what"; returns TOOL_USAGE. file may be NULL. */
int tool_usage(const char *file, const char *what, ...) __attribute__((format(printf, 2, 3)));

/* tool_bad: file has no tensor of the name that near was begun with; another is meant, perhaps. */
struct suggest;
int tool_no_tensor(const char *file, const struct suggest *near);

/* What the last of these said, without the program and the file. */
const char *tool_last_error(void);

/* tool_bad: out of memory for what. */
int tool_nomem(const char *file, const char *what);

/* How many threads --threads asks for; 0 is one for each core that is online. At least 1. */
unsigned tool_threads(int asked);

/* The name to show for an operand: "-" is "standard input". */
const char *tool_input_name(const char *path);

/* "raw", "npy", "safetensors" or "pt". */
const char *tool_type_name(enum tool_type);

/* What path ends in, from the last dot of its last part on; "" if there is none. */
const char *tool_extension(const char *path);

/* The default name of what is made of in: in and an extension, or - for -. The caller's to free; NULL: no memory. */
char *tool_output_name(const char *in, const char *extension);

/* The type that a path's extension tells; raw for any other. */
enum tool_type tool_type_of(const char *path);

/* A number with an optional suffix K, M, G or T (powers of 1024, with or without iB). False if it is not one or is
 * beyond 64 bits. */
bool tool_parse_bytes(const char *s, uint64_t *bytes);

/* The digits at *s, which is moved behind them. False if there are none or they are beyond 64 bits. */
bool tool_parse_digits(const char **s, uint64_t *v);

#endif
