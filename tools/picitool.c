/* SPDX-License-Identifier: BSD-3-Clause
 *
 * picitool: verbs, options, help. The tables of options and of verbs determine which options a verb takes, what --help
 * prints, and which command lines are errors. */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "names.h"
#include "output/output.h"
#include "predict.h"
#include "recurse.h"
#include "suggest.h"
#include "term.h"
#include "tool.h"
#include "values.h"

enum option_id {
    OPT_FORMAT,
    OPT_DTYPE,
    OPT_TYPE,
    OPT_THREADS,
    OPT_ZSTD,
    OPT_ZEROS,
    OPT_PACK,
    OPT_FILE_VERSION,
    OPT_OUT,
    OPT_FORCE,
    OPT_JSON,
    OPT_TENSOR,
    OPT_RANGE,
    OPT_HEATMAP,
    OPT_PNG,
    OPT_SVG,
    OPT_COMPARE,
    OPT_CHECKSUM,
    OPT_KEEP_GOING,
    OPT_MAX_SIZE,
    OPT_NO_SPARSE,
    OPT_SIZE,
    OPT_SPARSITY,
    OPT_REPS,
    OPT_MACHINE,
    OPT_TUNE,
    OPT_COLLECTIVE,
    OPT_RANKS,
    OPT_PER_NODE,
    OPT_BYTES,
    OPT_DENSITY,
    OPT_PLOT,
    OPT_BASE,
    OPT_SMALL,
    OPT_FAST,
    OPT_IN_PLACE,
    OPT_STDOUT,
    OPT_KEEP,
    OPT_RM,
    OPT_QUIET,
    OPT_VERBOSE,
    OPT_RECURSE,
    OPT_OUT_DIR,
    OPT_ULTRA,
    OPT_NO_PROGRESS,
    OPT_DECOMPRESS, /* these four stand for a verb */
    OPT_COMPRESS,
    OPT_TEST,
    OPT_LIST,
    OPT_HELP,
    OPTIONS
};

static const struct {
    char letter; /* 0: none. letter_of says which one a verb takes */
    const char *name, *value;
    bool value_optional;
    const char *help;
} options[OPTIONS] = {
    [OPT_FORMAT] = {'f', "format", "FORMAT", false,
                    "auto (the smallest; default), dense, bitmap, coo, hybrid, or packed (floats)"},
    [OPT_DTYPE] =
        {'d', "dtype", "DTYPE", false,
         "type of raw elements and of unnamed storages in a .pt: f32 f64 f16 bf16 f8e4m3 f8e5m2\ni8 u8 i16 u16 i32 "
         "u32 i64 u64"},
    [OPT_TYPE] = {'t', "type", "TYPE", false, "what IN is: raw, npy, safetensors, pt or npz (default: by its name)"},
    [OPT_THREADS] = {'T', "threads", "N", false, "threads (default 1; 0: one for each core)"},
    [OPT_ZSTD] = {'z', "zstd", "LEVEL", true,
                  "also compress chunks with zstd where that is smaller;\n-1 to -19 for short"},
    [OPT_ZEROS] = {0, "zeros", "ZEROS", false,
                   "exact (default): restore each bit; value: store float zeros without a sign,\nso that -0.0 becomes "
                   "+0.0"},
    [OPT_PACK] = {0, "pack", "PACK", false,
                  "pack exponents of floats where that is shorter: planes (default of compress, unless a\nformat is "
                  "given); fast: a little longer, and sooner; none"},
    [OPT_FILE_VERSION] = {0, "file-version", "N", false, "2 (default), or 1: what picitool 0.2 reads, without packing"},
    [OPT_OUT] = {'o', "output", "OUT", false, "where to write; - is standard output"},
    [OPT_FORCE] = {'f', "force", NULL, false, "overwrite an existing output without a question"},
    [OPT_JSON] = {'j', "json", NULL, false, "print JSON"},
    [OPT_TENSOR] = {'n', "tensor", "NAME", false, "only the tensor of this name"},
    [OPT_RANGE] = {0, "range", "A:B", false, "elements A to B - 1, counted from 0; A: and :B leave one end open"},
    [OPT_HEATMAP] = {0, "heatmap", "FILE", false, "draw where the nonzeros are, to FILE.png or FILE.svg"},
    [OPT_PNG] = {0, "png", "FILE", false, "the same as a PNG, whatever the file's name"},
    [OPT_SVG] = {0, "svg", "FILE", false, "the same as an SVG"},
    [OPT_COMPARE] = {0, "compare", "LEVEL", true, "also measure zstd on the same chunks (default level 3)"},
    [OPT_CHECKSUM] = {0, "checksum", NULL, false, "store a checksum in the block"},
    [OPT_KEEP_GOING] = {0, "keep-going", NULL, false,
                        "restore the intact parts of a damaged file, zeros for the rest; print\na line for each loss; "
                        "the exit status is then 1"},
    [OPT_MAX_SIZE] = {0, "max-size", "BYTES", false,
                      "most bytes to write, holes not counted, or to decode a bare block to;\nnone is no limit "
                      "(default: 1G, or 1024 times the input if that is more;\nsuffixes K M G T)"},
    [OPT_NO_SPARSE] = {0, "no-sparse", NULL, false, "write zeros, not holes, to files"},
    [OPT_SIZE] = {'s', "size", "BYTES", false, "dense bytes of the synthetic data (default 64M)"},
    [OPT_SPARSITY] = {'S', "sparsity", "LIST", false,
                      "share of zeros in percent, as 90 or 50,90,99.9\n(default 0,50,80,90,95,99,99.9)"},
    [OPT_REPS] = {'r', "reps", "N", false, "repetitions, of which the median counts (default 7)"},
    [OPT_MACHINE] = {'m', "machine", "NAME", false, "a machine that picitool knows: its links, its codec"},
    [OPT_TUNE] = {0, "tune", "FILE", false, "instead, a tune file: constants and points that pici-tune measured"},
    [OPT_COLLECTIVE] = {0, "collective", "LIST", false, "all_gather, reduce_scatter, all_reduce (default: all)"},
    [OPT_RANKS] = {0, "ranks", "LIST", false,
                   "numbers of ranks, as 8,12 or 2..4096, by doublings, or 1..4096/8, by\nfactors (default 2..4096)"},
    [OPT_PER_NODE] = {0, "per-node", "N", false, "ranks of a node (default: the machine's)"},
    [OPT_BYTES] = {0, "bytes", "LIST", false, "dense bytes of the larger buffer (default 64K..4G/4)"},
    [OPT_DENSITY] = {0, "density", "LIST", false,
                     "nonzeros of one rank's data in percent (default 1; for a page\n0.1,1,5,10,20,50,100)"},
    [OPT_PLOT] = {0, "plot", "PLOT", false, "of a picture: bytes (default), sparsity or time"},
    [OPT_BASE] = {0, "base", "BASE", false,
                  "of deltas from BASE: how each tensor is stored, and how many bytes a delta\nmust have at the least"},
    [OPT_SMALL] = {0, "small", NULL, false, "small deltas of all tensors of f32, f16 and bf16"},
    [OPT_FAST] = {0, "fast", NULL, false, "no small deltas, which picitool 0.1.0 cannot apply"},
    [OPT_IN_PLACE] = {0, "in-place", NULL, false, "replace BASE by the result"},
    [OPT_STDOUT] = {'c', "stdout", NULL, false, "write to standard output"},
    [OPT_KEEP] = {'k', "keep", NULL, false, "keep the inputs (default)"},
    [OPT_RM] = {0, "rm", NULL, false, "remove each input when its output is complete"},
    [OPT_QUIET] = {'q', "quiet", NULL, false, "no results, warnings, progress or questions; twice: no errors"},
    [OPT_VERBOSE] = {'v', "verbose", NULL, false, "print results without a terminal too, and each tensor"},
    [OPT_RECURSE] = {'r', "recursive", NULL, false,
                     "of folders, each file by itself, in the folders below too; files that are\nnothing that is read "
                     "are skipped"},
    [OPT_OUT_DIR] = {0, "output-dir-flat", "DIR", false, "write all outputs to the folder DIR"},
    [OPT_ULTRA] = {0, "ultra", NULL, false, "allow -20 to -22"},
    [OPT_NO_PROGRESS] = {0, "no-progress", NULL, false, "no line of progress"},
    [OPT_DECOMPRESS] = {'d', "decompress", NULL, false, "decompress"},
    [OPT_COMPRESS] = {'z', "compress", NULL, false, "compress (default)"},
    [OPT_TEST] = {'t', "test", NULL, false, "test"},
    [OPT_LIST] = {'l', "list", NULL, false, "list"},
    [OPT_HELP] = {'h', "help", NULL, false, "this text"},
};

enum { ZSTD_DEFAULT = 3 /* zstd's own */ };

#define BIT(option) (UINT64_C(1) << (option))
#define INPUT_BITS (BIT(OPT_DTYPE) | BIT(OPT_TYPE))
#define OUTPUT_BITS (BIT(OPT_OUT) | BIT(OPT_FORCE))
#define RESTORE_BITS (BIT(OPT_MAX_SIZE) | BIT(OPT_NO_SPARSE))
#define TALK_BITS (BIT(OPT_QUIET) | BIT(OPT_VERBOSE) | BIT(OPT_NO_PROGRESS))
#define EACH_BITS                                                                                                      \
    (OUTPUT_BITS | BIT(OPT_STDOUT) | BIT(OPT_KEEP) | BIT(OPT_RM) | BIT(OPT_OUT_DIR) | BIT(OPT_RECURSE) | TALK_BITS)
#define COMPRESS_BITS                                                                                                  \
    (INPUT_BITS | BIT(OPT_FORMAT) | BIT(OPT_THREADS) | BIT(OPT_ZSTD) | BIT(OPT_ULTRA) | BIT(OPT_ZEROS) |               \
     BIT(OPT_PACK) | BIT(OPT_FILE_VERSION) | BIT(OPT_MAX_SIZE) | EACH_BITS)
#define DECOMPRESS_BITS (BIT(OPT_THREADS) | BIT(OPT_KEEP_GOING) | RESTORE_BITS | EACH_BITS)
#define TEST_BITS (BIT(OPT_THREADS) | BIT(OPT_JSON) | BIT(OPT_RECURSE) | TALK_BITS)
#define LIST_BITS (INPUT_BITS | BIT(OPT_JSON) | BIT(OPT_RECURSE))
#define VERB_BITS (BIT(OPT_DECOMPRESS) | BIT(OPT_COMPRESS) | BIT(OPT_TEST) | BIT(OPT_LIST))

static const struct verb {
    const char *group, *name; /* group: the word before the name, or NULL */
    int (*run)(const struct tool_options *);
    const char *operands, *summary, *details;
    int least, most; /* operands */
    uint64_t takes;  /* options */
} verbs[] = {
    {NULL, "compress", verb_compress, "IN...", "compress raw, .npy, .npz, .safetensors or .pt files to .pici",
     "IN may be -, standard input, or a folder with .safetensors files; OUT is a folder then too. The type is what\n"
     "the file looks like, unless --type says otherwise. OUT is by default IN.pici, or standard output if IN is -.",
     1, INT32_MAX, COMPRESS_BITS},
    {NULL, "decompress", verb_decompress, "IN...", "restore exactly the bytes that were compressed",
     "OUT is by default IN without .pici, or standard output if IN is -. IN may be a folder that compress made.", 1,
     INT32_MAX, DECOMPRESS_BITS},
    {NULL, "test", verb_test, "IN...", "check every byte of .pici files and bare blocks",
     "Prints one line for each bad file: its name, the offset, and the first error. (decompress --keep-going reports\n"
     "all losses.) IN may be a folder of shards.",
     1, INT32_MAX, TEST_BITS},
    {NULL, "list", verb_list, "IN...", "list the tensors of files",
     "IN is a .pici, .npy, .npz, .safetensors, .pt or raw file, or a folder of shards. JSON of several files is an\n"
     "array.",
     1, INT32_MAX, LIST_BITS},
    {NULL, "inspect", verb_inspect, "IN...", "show where a file's nonzeros are, and its size in each format",
     "IN is a .pici, .npy, .npz, .safetensors, .pt or raw file, or a bare block, or a folder of these in shards. JSON\n"
     "of several files is an array.",
     1, INT32_MAX,
     INPUT_BITS | BIT(OPT_JSON) | BIT(OPT_TENSOR) | BIT(OPT_HEATMAP) | BIT(OPT_PNG) | BIT(OPT_SVG) | BIT(OPT_COMPARE) |
         BIT(OPT_FORCE) | BIT(OPT_THREADS) | BIT(OPT_MAX_SIZE) | BIT(OPT_QUIET) | BIT(OPT_BASE)},
    {NULL, "report", verb_report, "IN", "make a page of where a file's nonzeros are, to look at in a browser",
     "The page is one HTML file without references to others. OUT is by default IN.html, or standard\n"
     "output if IN is -.",
     1, 1, INPUT_BITS | BIT(OPT_TENSOR) | OUTPUT_BITS | BIT(OPT_THREADS) | BIT(OPT_MAX_SIZE) | BIT(OPT_QUIET)},
    {NULL, "extract", verb_extract, "IN", "write a tensor of a .pici file, or a range of its elements",
     "OUT is .npy if its name says so, else raw little-endian elements; standard output by default. OUT.npz, or a new\n"
     "folder OUT/, gets all tensors. Only the chunks needed are read. --tensor may be left out if there is one "
     "tensor.\n"
     "IN may be a folder that compress made.",
     1, 1, BIT(OPT_TENSOR) | BIT(OPT_RANGE) | OUTPUT_BITS | BIT(OPT_THREADS) | RESTORE_BITS | TALK_BITS},
    {NULL, "diff", verb_diff, "BASE NEW", "write the delta from one file of tensors to another",
     "BASE and NEW are .safetensors, .npy or raw files. Tensors of the same name, type and shape are stored as the\n"
     "bits that differ, others whole. By default, a tensor of f32, f16 or bf16 is stored as small deltas, which are\n"
     "decoded with the base, if these are at least an eighth shorter for the first 4 Mi elements of which some\n"
     "changed. BASE and NEW may also be folders of shards; so is DELTA then.",
     2, 2,
     INPUT_BITS | BIT(OPT_SMALL) | BIT(OPT_FAST) | BIT(OPT_FORMAT) | BIT(OPT_THREADS) | BIT(OPT_ZSTD) |
         BIT(OPT_MAX_SIZE) | OUTPUT_BITS | TALK_BITS},
    {NULL, "apply", verb_apply, "BASE DELTA...", "apply one delta, or several in a row",
     "BASE must be what the first delta was made from: the hash of each tensor is checked, and that of each result.\n"
     "The delta of a folder of shards is applied to one.",
     2, INT32_MAX, BIT(OPT_THREADS) | OUTPUT_BITS | BIT(OPT_IN_PLACE) | RESTORE_BITS | TALK_BITS},
    {"block", "encode", verb_block_encode, "IN OUT", "encode raw elements as one bare block", NULL, 2, 2,
     BIT(OPT_FORMAT) | BIT(OPT_DTYPE) | BIT(OPT_THREADS) | BIT(OPT_ZEROS) | BIT(OPT_PACK) | BIT(OPT_CHECKSUM) |
         BIT(OPT_FORCE) | BIT(OPT_MAX_SIZE) | TALK_BITS},
    {"block", "decode", verb_block_decode, "IN OUT", "decode a bare block to raw elements", NULL, 2, 2,
     BIT(OPT_THREADS) | BIT(OPT_FORCE) | RESTORE_BITS | TALK_BITS},
    {"log", "init", verb_log_init, "LOG BASE", "begin a log of deltas with a copy of BASE",
     "BASE is a .safetensors, .npy or raw file. --pack, not of raw files, stores the base as a .pici file, also after\n"
     "log compact; picitool 0.2 does not read such a log.",
     2, 2, BIT(OPT_TYPE) | BIT(OPT_PACK) | BIT(OPT_THREADS) | TALK_BITS},
    {"log", "append", verb_log_append, "LOG OLD NEW", "append the delta from the newest state, OLD, to NEW",
     "OLD must be the newest state of the log. NEW is that from then on.", 3, 3,
     INPUT_BITS | BIT(OPT_SMALL) | BIT(OPT_FAST) | BIT(OPT_FORMAT) | BIT(OPT_THREADS) | BIT(OPT_ZSTD) |
         BIT(OPT_MAX_SIZE) | TALK_BITS},
    {"log", "apply", verb_log_apply, "LOG FILE", "bring FILE, in any state of the log, to the newest",
     "Replaces FILE in one step, as apply --in-place does; makes it from the base if there is none. If the last files "
     "of\n"
     "the log have not been copied yet, applies those before them, says so, and ends with status 1. --force: FILE may\n"
     "be any file; unless it is a state of the log, it is made from the base.",
     2, 2, BIT(OPT_THREADS) | BIT(OPT_FORCE) | RESTORE_BITS | TALK_BITS},
    {"log", "compact", verb_log_compact, "LOG", "store the newest state whole, and drop old deltas",
     "Keeps the last deltas whose bytes are together at most those of the base: for a reader that is further behind,\n"
     "the base is shorter.",
     1, 1, BIT(OPT_THREADS) | RESTORE_BITS | TALK_BITS},
    {"log", "list", verb_log_list, "LOG", "list the states of a log", NULL, 1, 1, TALK_BITS},
    {NULL, "bench", verb_bench, "[FILE]",
     "measure the codec against memcpy, on synthetic data or a file's largest tensor",
     "Synthetic data are of --dtype, f32 by default, at uniformly random positions. --format auto is every format.\n"
     "Prints medians, in GB/s of dense bytes and as multiples of memcpy in the same run.",
     0, 1,
     INPUT_BITS | BIT(OPT_FORMAT) | BIT(OPT_THREADS) | BIT(OPT_JSON) | BIT(OPT_SIZE) | BIT(OPT_SPARSITY) |
         BIT(OPT_REPS) | BIT(OPT_TENSOR)},
    {NULL, "predict", verb_predict, "", "predict how long collectives take on a machine, sparse and dense",
     "Prints the speedup over the best dense call of another library, and which algorithm is fastest. With -o writes\n"
     "a page (HTML), or one picture if OUT ends in .svg or .png. What is predicted, and how:\n"
     "docs/predict.md.",
     0, 0,
     BIT(OPT_MACHINE) | BIT(OPT_TUNE) | BIT(OPT_COLLECTIVE) | BIT(OPT_RANKS) | BIT(OPT_PER_NODE) | BIT(OPT_BYTES) |
         BIT(OPT_DENSITY) | BIT(OPT_PLOT) | BIT(OPT_DTYPE) | BIT(OPT_JSON) | OUTPUT_BITS | BIT(OPT_QUIET)},
};
enum { VERBS = sizeof verbs / sizeof *verbs };

/* What a command line without a verb takes: the options and letters of zstd. An option says which verb it stands for,
 * compress by default. */
static const struct verb bare = {NULL,
                                 "",
                                 NULL,
                                 "[FILE]...",
                                 "compress files, or with -d decompress, -t test, -l list them",
                                 "The options are those of these four verbs. Without FILE, standard input is read.",
                                 0,
                                 INT32_MAX,
                                 VERB_BITS | COMPRESS_BITS | DECOMPRESS_BITS | TEST_BITS | LIST_BITS};

static void verb_name(const struct verb *verb, char name[32])
{
    const char *const group = verb->group ? verb->group : "";
    snprintf(name, 32, "%s%s%s", group, *group ? " " : "", verb->name);
}

static void print_usage(void)
{
    puts("Usage: picitool VERB [OPTION]... OPERAND...\n"
         "       picitool [-d | -t | -l] [OPTION]... [FILE]...\n\n"
         "Tensors that are mostly zero, in a small file, and back. Without a verb, files are compressed, or "
         "decompressed\n"
         "(-d), tested (-t) or listed (-l), with the letters of zstd; picitool -d --help tells them.\n");
    for (int i = 0; i < VERBS; i++) {
        char name[32];
        verb_name(&verbs[i], name);
        printf("  %-14s  %s\n", name, verbs[i].summary);
    }
    puts("\npicitool VERB --help and picitool help VERB tell a verb's options, picitool --version the version.\n"
         "Exit status: 0 done, 1 bad data or I/O, 2 usage.");
}

/* Whether a verb takes an option. */
static bool takes(const struct verb *verb, int option)
{
    return (verb->takes | BIT(OPT_HELP)) >> option & 1;
}

/* The letter of an option that a verb takes; 0: none. If two options have it, it is that of a verb's option without a
 * verb, and that of the option with a value, --format, after a verb. */
static char letter_of(const struct verb *verb, int option)
{
    for (int i = 0; i < OPTIONS; i++) {
        const bool first = verb == &bare ? !options[i].value : options[i].value != NULL;
        if (i != option && options[i].letter == options[option].letter && takes(verb, i) && first)
            return 0;
    }
    return options[option].letter;
}

static void print_verb_help(const struct verb *verb)
{
    char name[32];
    verb_name(verb, name);
    printf("Usage: picitool %s%s[OPTION]... %s\n\n%c%s.\n", name, *name ? " " : "", verb->operands,
           verb->summary[0] - 'a' + 'A', verb->summary + 1);
    if (verb->details)
        puts(verb->details);
    puts("");
    for (int i = 0; i < OPTIONS; i++) {
        if (!takes(verb, i))
            continue;
        char left[40], letter[8] = "    ";
        const char *value = options[i].value ? options[i].value : "";
        if (letter_of(verb, i))
            snprintf(letter, sizeof letter, "-%c, ", letter_of(verb, i));
        const char *const with_value = options[i].value_optional ? "%s--%s[=%s]" : "%s--%s %s";
        snprintf(left, sizeof left, *value ? with_value : "%s--%s", letter, options[i].name, value);
        printf("  %-24s  ", left);
        for (const char *position = options[i].help; *position; position++) {
            putchar(*position);
            if (*position == '\n')
                printf("  %-24s  ", "");
        }
        puts("");
    }
}

/* ---- the command line */

static int value_path(const char *value, const char *option, const char **chosen)
{
    *chosen = value;
    return *value ? TOOL_OK : tool_usage(NULL, "the name after --%s is empty", option);
}

static int take_option(enum option_id id, const char *value, struct tool_options *chosen)
{
    switch (id) {
    case OPT_FORMAT: return value_format(value, chosen);
    case OPT_DTYPE: return value_dtype(value, chosen);
    case OPT_TYPE: return value_type(value, chosen);
    case OPT_THREADS: return value_int("threads", value, 0, 4096, &chosen->threads);
    case OPT_ZSTD: chosen->zstd = ZSTD_DEFAULT; return value ? value_int("zstd", value, 1, 22, &chosen->zstd) : TOOL_OK;
    case OPT_ZEROS: return value_zeros(value, chosen);
    case OPT_PACK: return value_pack(value, chosen);
    case OPT_FILE_VERSION: return value_int("file-version", value, 1, 2, &chosen->file_version);
    case OPT_OUT: return value_path(value, "output", &chosen->out);
    case OPT_OUT_DIR: return value_path(value, "output-dir-flat", &chosen->out_dir);
    case OPT_RECURSE: chosen->recurse = true; return TOOL_OK;
    case OPT_ULTRA: chosen->ultra = true; return TOOL_OK;
    case OPT_NO_PROGRESS: chosen->no_progress = true; return TOOL_OK;
    case OPT_FORCE: chosen->force = true; return TOOL_OK;
    case OPT_JSON: chosen->json = true; return TOOL_OK;
    case OPT_TENSOR: chosen->tensor = value; return TOOL_OK;
    case OPT_RANGE: return value_range(value, chosen);
    case OPT_HEATMAP: return value_heatmap(value, chosen);
    case OPT_PNG: return value_path(value, "png", &chosen->png);
    case OPT_SVG: return value_path(value, "svg", &chosen->svg);
    case OPT_COMPARE:
        chosen->compare = ZSTD_DEFAULT;
        return value ? value_int("compare", value, 1, 22, &chosen->compare) : TOOL_OK;
    case OPT_CHECKSUM: chosen->checksum = true; return TOOL_OK;
    case OPT_KEEP_GOING: chosen->keep_going = true; return TOOL_OK;
    case OPT_MAX_SIZE: return value_max_size(value, chosen);
    case OPT_NO_SPARSE: chosen->no_sparse = true; return TOOL_OK;
    case OPT_SIZE: chosen->bench_bytes_set = true; return value_bytes("size", value, &chosen->bench_bytes);
    case OPT_SPARSITY: return value_sparsity(value, chosen);
    case OPT_BASE: return value_path(value, "base", &chosen->base);
    case OPT_SMALL: chosen->delta = DELTA_SMALLEST; return TOOL_OK;
    case OPT_FAST: chosen->delta = DELTA_FASTEST; return TOOL_OK;
    case OPT_IN_PLACE: chosen->in_place = true; return TOOL_OK;
    case OPT_REPS: return value_int("reps", value, 1, 10000, &chosen->reps);
    case OPT_MACHINE: chosen->predict.machine = value; return TOOL_OK;
    case OPT_TUNE: chosen->predict.tune = value; return TOOL_OK;
    case OPT_COLLECTIVE: chosen->predict.collective = value; return TOOL_OK;
    case OPT_RANKS: chosen->predict.ranks = value; return TOOL_OK;
    case OPT_PER_NODE: chosen->predict.per_node = value; return TOOL_OK;
    case OPT_BYTES: chosen->predict.bytes = value; return TOOL_OK;
    case OPT_DENSITY: chosen->predict.density = value; return TOOL_OK;
    case OPT_PLOT: chosen->predict.plot = value; return TOOL_OK;
    case OPT_STDOUT: chosen->to_stdout = true; return TOOL_OK;
    case OPT_KEEP: chosen->remove = false; return TOOL_OK;
    case OPT_RM: chosen->remove = true; return TOOL_OK;
    case OPT_QUIET: chosen->talk = chosen->talk < 0 ? TERM_SILENT : TERM_QUIET; return TOOL_OK;
    case OPT_VERBOSE: chosen->talk = TERM_VERBOSE; return TOOL_OK;
    case OPT_DECOMPRESS:
    case OPT_COMPRESS:
    case OPT_TEST:
    case OPT_LIST:
    case OPT_HELP:
    case OPTIONS: break;
    }
    return TOOL_OK;
}

/* Print "VERB: what; see picitool VERB --help". Returns TOOL_USAGE. */
__attribute__((format(printf, 2, 3))) static int wrong(const struct verb *verb, const char *what, ...)
{
    char name[32], text[512];
    va_list args;
    verb_name(verb, name);
    va_start(args, what);
    vsnprintf(text, sizeof text, what, args);
    va_end(args);
    if (!*name)
        return tool_usage(NULL, "%s; see picitool -d --help", text);
    return tool_usage(NULL, "%s: %s; see picitool %s --help", name, text, name);
}

/* Report word, as "--tensr=x": either it is no option of the verb, or the option takes no value. */
static int no_option(const struct verb *verb, const char *word)
{
    char typed[64], hint[SUGGEST_HINT];
    struct suggest nearest;
    const char *letters = word + (word[0] == '-') + (word[0] == '-' && word[1] == '-');
    snprintf(typed, sizeof typed, "%.*s", (int)strcspn(letters, "="), letters);
    suggest_start(&nearest, typed);
    for (int i = 0; i < OPTIONS; i++)
        if (takes(verb, i) && strcmp(options[i].name, typed) == 0)
            return wrong(verb, "--%s takes no value", typed);
        else if (takes(verb, i))
            suggest_word(&nearest, options[i].name);
    return wrong(verb, "no option %s%s", word, suggest_hint(&nearest, "--", hint));
}

/* "-19": the digit that getopt has found, and the rest of its word, of which what follows the digits is parsed next. */
static int parse_level(int digit, char **argv, struct tool_options *chosen)
{
    char *rest = optarg;
    int level = digit - '0';
    for (; rest && *rest >= '0' && *rest <= '9'; rest++)
        level = level < 100 ? 10 * level + *rest - '0' : level;
    if (rest && *rest) {
        *--rest = '-';
        argv[--optind] = rest;
    }
    chosen->zstd = level;
    chosen->zstd_short = true;
    return TOOL_OK;
}

/* Lowers a level given as -N to the highest that there is, as zstd does. */
static void cap_level(struct tool_options *chosen)
{
    const int most = chosen->ultra ? 22 : 19;
    if (!chosen->zstd_short || chosen->zstd <= most)
        return;
    tool_warn(NULL, "level %d is too high; using %d%s", chosen->zstd, most,
              chosen->ultra ? "" : "; --ultra allows up to 22");
    chosen->zstd = most;
}

/* Parse what follows the verb; argv[0] is the last word of the verb. *given: the options. *mode: the last of those that
 * stand for a verb, if there is one. */
static int parse_options(const struct verb *verb, int argc, char **argv, struct tool_options *chosen, uint64_t *given,
                         int *mode)
{
    char letters[3 * (OPTIONS + 9) + 2] = ":";
    struct option longs[OPTIONS + 1] = {{0}};
    int count = 0;
    size_t used = 1;
    for (int i = 0; i < OPTIONS; i++) {
        if (!takes(verb, i))
            continue;
        int has = required_argument;
        if (!options[i].value)
            has = no_argument;
        else if (options[i].value_optional)
            has = optional_argument;
        longs[count++] = (struct option){options[i].name, has, NULL, 256 + i};
        if (letter_of(verb, i)) {
            letters[used++] = letter_of(verb, i);
            /* required_argument is 1 and optional_argument 2: as many colons */
            for (int colons = has; colons; colons--)
                letters[used++] = ':';
        }
    }
    for (char digit = '1'; takes(verb, OPT_ZSTD) && digit <= '9'; digit++) {
        letters[used++] = digit;
        letters[used++] = ':';
        letters[used++] = ':';
    }
    opterr = 0;
    for (int letter; (letter = getopt_long(argc, argv, letters, longs, NULL)) != -1;) {
        if (letter == ':')
            return wrong(verb, "%s needs a value", argv[optind - 1]);
        if (letter == '?' && optopt > 0 && optopt < 256)
            return wrong(verb, "no option -%c", optopt);
        if (letter == '?')
            return no_option(verb, argv[optind - 1]);
        int id = letter - 256;
        if (letter >= '1' && letter <= '9')
            id = OPT_ZSTD;
        for (int i = 0; id < 0 && i < OPTIONS; i++)
            if (takes(verb, i) && letter_of(verb, i) == letter)
                id = i;
        *given |= BIT(id);
        if (BIT(id) & VERB_BITS)
            *mode = id;
        if (letter == 'f' && id == OPT_FORMAT && !value_is_format(optarg) && access(optarg, F_OK) == 0)
            return wrong(verb, "-f is --format here, and %s is a file; --force overwrites outputs", optarg);
        const char *const value = id == OPT_THREADS && optarg && *optarg == '=' ? optarg + 1 : optarg; /* -T=2 */
        TRY(letter >= '1' && letter <= '9' ? parse_level(letter, argv, chosen)
                                           : take_option((enum option_id)id, value, chosen));
        chosen->zstd_short = chosen->zstd_short && !(letter == 256 + OPT_ZSTD);
    }
    chosen->args = argv + optind;
    chosen->nargs = argc - optind;
    if (chosen->to_stdout && chosen->out && strcmp(chosen->out, "-") != 0 && !(*given & BIT(OPT_HELP)))
        return wrong(verb, "--stdout and -o %s exclude each other: use one of them", chosen->out);
    if (chosen->to_stdout)
        chosen->out = "-";
    return TOOL_OK;
}

static const struct tool_options defaults = {
    .format = PICI_AUTO, .threads = 1, .bench_bytes = UINT64_C(64) << 20, .reps = 7};

static int run_parsed(const struct verb *verb, const struct tool_options *chosen)
{
    term_set_talk(chosen->talk);
    term_set_progress(!chosen->no_progress);
    return verb->run(chosen);
}

/* Runs a verb with the files below folders in their place. */
static int run_recursive(const struct verb *verb, struct tool_options *chosen)
{
    struct recursed found;
    int status = recurse(&found, chosen, verb->run == verb_compress);
    if (!status) {
        chosen->args = found.args;
        chosen->nargs = found.nargs;
        status = found.nargs ? run_parsed(verb, chosen) : tool_bad(NULL, "no files are found in the folders");
    }
    recurse_free(&found);
    return status;
}

/* Checks the operands, takes standard input for a missing one if it is no terminal, and runs a verb. */
static int run_operands(const struct verb *verb, const struct verb *as, struct tool_options *chosen)
{
    static char dash[] = "-", *standard_input[] = {dash, NULL};
    struct stat file_info;
    if (!chosen->nargs && as->most == INT32_MAX && as->least <= 1) {
        if (fstat(STDIN_FILENO, &file_info) != 0 || S_ISCHR(file_info.st_mode))
            return wrong(as, "no input file given, and standard input is %s",
                         isatty(STDIN_FILENO) ? "a terminal" : "no file and no pipe");
        chosen->args = standard_input;
        chosen->nargs = 1;
    }
    if (chosen->nargs < as->least)
        return wrong(as, "missing operands: expected %s", as->operands);
    if (chosen->nargs > as->most)
        return wrong(as, "unexpected operand: %s", chosen->args[as->most]);
    if (chosen->out && chosen->out_dir)
        return wrong(as, "-o %s and --output-dir-flat %s exclude each other: use one of them", chosen->out,
                     chosen->out_dir);
    term_set_talk(chosen->talk);
    cap_level(chosen);
    return chosen->recurse ? run_recursive(verb, chosen) : run_parsed(verb, chosen);
}

static int run_verb(const struct verb *verb, int argc, char **argv)
{
    struct tool_options chosen = defaults;
    uint64_t given = 0;
    int mode = -1;
    TRY(parse_options(verb, argc, argv, &chosen, &given, &mode));
    if (given & BIT(OPT_HELP)) {
        print_verb_help(verb);
        return TOOL_OK;
    }
    return run_operands(verb, verb, &chosen);
}

static const struct verb *verb_of(const char *name)
{
    for (int i = 0; i < VERBS; i++)
        if (!verbs[i].group && strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

/* A command line without a verb. */
static int run_bare(int argc, char **argv)
{
    struct tool_options chosen = defaults;
    uint64_t given = 0;
    int mode = OPT_COMPRESS;
    TRY(parse_options(&bare, argc, argv, &chosen, &given, &mode));
    if (given & BIT(OPT_HELP)) {
        print_verb_help(&bare);
        return TOOL_OK;
    }
    const struct verb *verb = verb_of(options[mode].name);
    if (chosen.zstd_short && !takes(verb, OPT_ZSTD)) /* as -df9: zstd has no use for a level there either */
        given &= ~(BIT(OPT_ZSTD) | BIT(OPT_ULTRA));
    given &= verb->takes | ~(TALK_BITS | BIT(OPT_THREADS)); /* as -lT0: what a verb has no use for does no harm */
    for (int i = 0; i < OPTIONS; i++)
        if ((given & ~VERB_BITS) >> i & 1 && !takes(verb, i))
            return wrong(verb, "no option --%s", options[i].name);
    return run_operands(verb, &bare, &chosen);
}

static int run_group(const char *group, int argc, char **argv)
{
    bool help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    for (int i = 0; i < VERBS; i++) {
        if (!verbs[i].group || strcmp(verbs[i].group, group) != 0)
            continue;
        if (help) {
            print_verb_help(&verbs[i]);
            puts("");
        } else if (argc > 1 && strcmp(argv[1], verbs[i].name) == 0) {
            return run_verb(&verbs[i], argc - 1, argv + 1);
        }
    }
    if (help)
        return TOOL_OK;
    return tool_usage(NULL, "%s: needs %s; see picitool %s --help", group,
                      strcmp(group, "log") == 0 ? "init, append, apply, compact or list" : "encode or decode", group);
}

/* ---- completion: shells run picitool --complete WORD..., whose last word is being typed. Prints a line for each
 * possible completion: the word, a tab, and its meaning. Prints nothing where the names of files belong. */

static void offer(const char *begun, const char *dashes, const char *word, const char *meaning)
{
    char whole[1024];
    snprintf(whole, sizeof whole, "%s%s", dashes, word);
    if (strlen(dashes) + strlen(word) < sizeof whole && strncmp(whole, begun, strlen(begun)) == 0)
        printf("%s\t%.*s\n", whole, (int)strcspn(meaning, "\n"), meaning);
}

/* Offer the values of an option: its words, or the tensors of the files named by the other words. */
static void offer_values(enum option_id id, const char *begun, char **words, int count)
{
    static const struct {
        enum option_id id;
        const char *(*word)(int);
    } lists[] = {{OPT_FORMAT, value_format_word},      {OPT_DTYPE, value_dtype_word}, {OPT_TYPE, value_type_word},
                 {OPT_ZEROS, value_zeros_word},        {OPT_PACK, value_pack_word},   {OPT_MACHINE, value_machine_word},
                 {OPT_COLLECTIVE, predict_collective}, {OPT_PLOT, predict_plot_name}};
    const char *(*word)(int) = NULL;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (lists[i].id == id)
            word = lists[i].word;
    for (int i = 0; word && word(i); i++)
        offer(begun, "", word(i), options[id].name);
    for (int i = 0; id == OPT_TENSOR && i < count; i++)
        names_each(words[i], begun, offer);
}

/* The option that word is, if its value comes next; else -1. */
static int option_before(const struct verb *verb, const char *word)
{
    for (int i = 0; i < OPTIONS; i++) {
        const char letter[] = {'-', takes(verb, i) ? letter_of(verb, i) : 0, 0};
        if (takes(verb, i) && options[i].value && !options[i].value_optional && word[0] == '-' &&
            (strcmp(word, letter) == 0 || (word[1] == '-' && strcmp(word + 2, options[i].name) == 0)))
            return i;
    }
    return -1;
}

static void complete_verb(const struct verb *verb, char **words, int count)
{
    const bool no_help = verb == &bare && count == 1; /* it is offered already */
    const char *begun = words[count - 1];
    int id = count > 1 ? option_before(verb, words[count - 2]) : -1;
    if (id >= 0)
        offer_values((enum option_id)id, begun, words, count - 2);
    for (int i = 0; id < 0 && begun[0] == '-' && i < OPTIONS; i++)
        if (takes(verb, i) && !(no_help && i == OPT_HELP))
            offer(begun, "--", options[i].name, options[i].help);
}

static void complete(char **words, int count)
{
    const char *begun = count ? words[count - 1] : "";
    for (int i = 0; i < VERBS; i++) {
        const struct verb *verb = &verbs[i];
        const char *first = verb->group ? verb->group : verb->name;
        bool again = i && verb->group && verb[-1].group && strcmp(verb->group, verb[-1].group) == 0;
        if (count <= 1 && !again)
            offer(begun, "", first,
                  verb->group ? strcmp(verb->group, "log") == 0 ? "logs of deltas" : "bare blocks" : verb->summary);
        if (count < 2 || strcmp(words[0], first) != 0)
            continue;
        if (!verb->group)
            complete_verb(verb, words + 1, count - 1);
        else if (count == 2)
            offer(begun, "", verb->name, verb->summary);
        else if (strcmp(words[1], verb->name) == 0)
            complete_verb(verb, words + 2, count - 2);
    }
    if (count <= 1) {
        offer(begun, "--", "help", "what the verbs are");
        offer(begun, "--", "version", "which version this is");
    }
    if (count && (begun[0] == '-' || count > 1) && (words[0][0] == '-' || (count > 1 && access(words[0], F_OK) == 0)))
        complete_verb(&bare, words, count);
}

/* help, help VERB, help GROUP VERB */
static int run_help(int argc, char **argv)
{
    if (argc < 2)
        print_usage();
    for (int i = 0; argc == 2 && i < VERBS; i++)
        if (verbs[i].group && strcmp(argv[1], verbs[i].group) == 0) {
            char help[] = "--help", *words[] = {argv[1], help, NULL};
            return run_group(argv[1], 2, words);
        }
    for (int i = 0; argc > 1 && i < VERBS; i++) {
        const int name_at = verbs[i].group && argc > 2 && strcmp(argv[1], verbs[i].group) == 0 ? 2 : 1;
        if (argc == name_at + 1 && (name_at == 2) == (verbs[i].group != NULL) &&
            strcmp(argv[name_at], verbs[i].name) == 0) {
            print_verb_help(&verbs[i]);
            return TOOL_OK;
        }
    }
    return argc < 2 ? TOOL_OK : tool_usage(NULL, "no verb %s; see picitool --help", argv[argc - 1]);
}

/* Whether a word that is no verb and no file is the name of one, and not a mistyped verb. */
static bool is_path(const char *word)
{
    return !*word || strpbrk(word, "./") || access(word, F_OK) == 0;
}

static int run(int argc, char **argv)
{
    struct stat file_info;
    if (argc < 2 && (fstat(STDIN_FILENO, &file_info) != 0 || S_ISCHR(file_info.st_mode)))
        return tool_usage(NULL, "needs a verb; see picitool --help");
    if (argc < 2)
        return run_bare(argc, argv);
    const char *word = argv[1];
    if (strcmp(word, "help") == 0 && access(word, F_OK) != 0)
        return run_help(argc - 1, argv + 1);
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        print_usage();
        return TOOL_OK;
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("picitool %s\n", pici_version());
        return TOOL_OK;
    }
    if (strcmp(word, "--complete") == 0) {
        complete(argv + 2, argc - 2);
        return TOOL_OK;
    }
    for (int i = 0; i < VERBS; i++) {
        if (verbs[i].group && strcmp(word, verbs[i].group) == 0)
            return run_group(verbs[i].group, argc - 1, argv + 1);
        if (!verbs[i].group && strcmp(word, verbs[i].name) == 0)
            return run_verb(&verbs[i], argc - 1, argv + 1);
    }
    if (word[0] == '-' || is_path(word))
        return run_bare(argc, argv);
    struct suggest nearest;
    char hint[SUGGEST_HINT];
    suggest_start(&nearest, word);
    for (int i = 0; i < VERBS; i++)
        suggest_word(&nearest, verbs[i].group ? verbs[i].group : verbs[i].name);
    suggest_hint(&nearest, "", hint);
    if (!hint[0]) /* nor is it like a verb */
        return tool_usage(word, "No such file or directory, and no verb; see picitool --help");
    return tool_usage(NULL, "no verb %s%s see picitool --help", word, hint);
}

int main(int argc, char **argv)
{
    int status = output_start();
    setlocale(LC_CTYPE, "");
    if (!status)
        status = run(argc, argv);
    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == TOOL_OK)
        status = tool_bad("standard output", "%s", strerror(errno ? errno : EIO));
    return status;
}
