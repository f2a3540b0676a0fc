/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Shared by picitool's verbs: the parsed command line, and error messages. A verb returns an exit status; unless that
 * is TOOL_OK, it has printed the reason on stderr, in one line. */
#ifndef PICI_TOOLS_TOOL_H
#define PICI_TOOLS_TOOL_H

#include <stdbool.h>
#include <stdint.h>

#include "pici/pici.h"

enum { TOOL_OK = 0, TOOL_BAD = 1, TOOL_USAGE = 2 }; /* exit status: done; bad data or I/O; usage */

/* Return the status of a call at once, unless it is TOOL_OK. picitool propagates all failures this way. An outer
 * function owns resources, and releases them after an inner function, which may return early. */
#define TRY(...)                                                                                                       \
    do {                                                                                                               \
        const int tried = (__VA_ARGS__);                                                                               \
        if (tried)                                                                                                     \
            return tried;                                                                                              \
    } while (0)

enum tool_type { TYPE_UNSET, TYPE_RAW, TYPE_NPY, TYPE_SAFETENSORS, TYPE_GGUF, TYPE_PT, TYPE_NPZ, TYPES };

/* The parsed command line. Options that a verb does not have keep their defaults, given here. */
struct tool_options {
    enum pici_format format; /* PICI_AUTO */
    enum pici_zeros zeros;   /* PICI_ZEROS_EXACT */
    enum pici_pack pack;     /* PICI_PACK_NONE */
    bool pack_given;
    int file_version; /* 0: not given */
    int dtype;        /* enum pici_dtype; 0: not given */
    enum tool_type type;
    int threads;     /* 1; 0: all cores */
    uint64_t memory; /* bytes; 0: not given */
    int zstd;        /* level; 0: none. compare: likewise */
    int compare;
    const char *out;  /* NULL: not given */
    const char *base; /* likewise */
    const char *png;  /* this and the next two: NULL: not given */
    const char *svg;
    const char *tensor;
    struct {
        bool given, to_end;   /* to_end: no `last` was given */
        uint64_t first, last; /* elements [first, last) */
    } range;
    enum { DELTA_CHOICE, DELTA_SMALLEST, DELTA_FASTEST } delta; /* of diff; the last of --small and --fast */
    bool force, json, checksum, keep_going, in_place, no_sparse;
    bool recurse, ultra, no_progress;
    bool zstd_short;     /* zstd was given as -N */
    const char *out_dir; /* NULL: not given */
    bool remove;         /* delete inputs with complete outputs */
    bool to_stdout;      /* then out is "-" */
    int talk;            /* enum term_talk */
    struct {
        bool given;
        uint64_t bytes;   /* UINT64_MAX: no limit */
    } max_size;           /* see limit.h */
    uint64_t cache;       /* 256 MiB */
    uint64_t bench_bytes; /* 64 MiB */
    bool bench_bytes_set;
    int reps;               /* 7 */
    const double *sparsity; /* [sparsities] in [0, 1]; NULL: not given */
    int sparsities;
    struct { /* as given; NULL: not given */
        const char *machine, *tune, *collective, *ranks, *per_node, *bytes, *density, *plot;
    } predict;
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
int verb_cat(const struct tool_options *);
int verb_block_encode(const struct tool_options *);
int verb_block_decode(const struct tool_options *);
int verb_bench(const struct tool_options *);
int verb_diff(const struct tool_options *);
int verb_apply(const struct tool_options *);
int verb_predict(const struct tool_options *);
int verb_log_init(const struct tool_options *);
int verb_log_append(const struct tool_options *);
int verb_log_apply(const struct tool_options *);
int verb_log_compact(const struct tool_options *);
int verb_log_list(const struct tool_options *);
int verb_mount(const struct tool_options *);

/* inspect --base: print a delta and its bound. context: a struct inputs (show/inputs.h). */
int inspect_delta(const char *path, const struct tool_options *, void *context);

/* Print "picitool: FILE: what" on stderr, always as one line. file may be NULL. With --quiet twice, prints nothing.
 * Returns TOOL_BAD. */
int tool_bad(const char *file, const char *what, ...) __attribute__((format(printf, 2, 3)));

/* The same, as "picitool: FILE: offset N: what". Returns TOOL_BAD. */
int tool_bad_at(const char *file, uint64_t offset, const char *what, ...) __attribute__((format(printf, 3, 4)));

/* tool_bad for wrong usage. Returns TOOL_USAGE. */
int tool_usage(const char *file, const char *what, ...) __attribute__((format(printf, 2, 3)));

/* Print "picitool: FILE: warning: what" on stderr, as one line. With --quiet, prints nothing. */
void tool_warn(const char *file, const char *what, ...) __attribute__((format(printf, 2, 3)));

/* Suppress errors and warnings of this thread until tool_unmute. That returns the last suppressed message, without
 * program and file, or "". It is valid until the thread's next call. */
void tool_mute(void);
const char *tool_unmute(void);

/* tool_bad for a file without the tensor in question; suggests the nearest name. */
struct suggest;
int tool_no_tensor(const char *file, const struct suggest *nearest);

/* The last message of these functions on this thread, without program and file. */
const char *tool_last_error(void);

/* tool_bad for a lack of memory for `what`. */
int tool_nomem(const char *file, const char *what);

/* tool_bad for a failed call of the library. reason: its description of the error, or "". TOOL_OK if the call
 * succeeded. */
int tool_failed(const char *file, enum pici_status, const char *reason);

/* Use no more memory than options->memory, if given. Lowers the number of threads, and sets a system limit, which
 * errors then mention. */
int tool_bound_memory(struct tool_options *options);

/* The bytes that options->memory leaves for a cache beside the threads; UINT64_MAX if it is not given. */
uint64_t tool_memory_left(const struct tool_options *options);

/* The number of threads for a value of --threads, at least 1. 0: the number of online cores. */
unsigned tool_threads(int asked);

/* The name to show for an operand: "-" is "standard input". */
const char *tool_input_name(const char *path);

/* "raw", "npy", "safetensors", "gguf", "pt" or "npz". */
const char *tool_type_name(enum tool_type);

/* Whether --type knows the word. */
bool tool_type_exists(const char *name);

/* Whether the name of the file at path ends in the extension, in any case, after at least one character. */
bool tool_has_extension(const char *path, const char *extension);

/* Whether files of this type are zip files. */
bool tool_type_is_zip(enum tool_type);

/* The extension of path with its dot, "" if it has none. Dots in the names of directories do not count. */
const char *tool_extension(const char *path);

/* The default name of an output: input_path with the extension appended, in `folder` if given; "-" for "-". The caller
 * frees it. NULL: no memory. */
char *tool_output_name(const char *input_path, const char *extension, const char *folder);

/* The type for the extension of path, in any case; raw if the extension is unknown. */
enum tool_type tool_type_of(const char *path);

/* Parse a number with an optional suffix K, M, G or T (powers of 1024, with or without iB). False: malformed, or longer
 * than 64 bits. */
bool tool_parse_bytes(const char *text, uint64_t *bytes);

/* Parse the digits at *text and advance *text past them. False: no digits, or longer than 64 bits. */
bool tool_parse_digits(const char **text, uint64_t *value);

#endif
