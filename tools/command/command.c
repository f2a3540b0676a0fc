/* SPDX-License-Identifier: BSD-3-Clause */
#include "command/command.h"

#include <stddef.h>

const struct command_option command_options[OPTIONS] = {
    [OPT_FORMAT] = {'f', "format", "FORMAT", false,
                    "auto (the smallest; default), dense, bitmap, coo, hybrid, or packed (floats)"},
    [OPT_DTYPE] =
        {'d', "dtype", "DTYPE", false,
         "dtype of raw elements and of unnamed .pt storages: f32 f64 f16 bf16 f8e4m3 f8e5m2\ni8 u8 i16 u16 i32 "
         "u32 i64 u64"},
    [OPT_TYPE] = {'t', "type", "TYPE", false, "type of IN: raw, npy, safetensors, gguf, pt, npz (default: by name)"},
    [OPT_THREADS] = {'T', "threads", "N", false, "threads (default 1; 0: one for each core)"},
    [OPT_MEMORY] =
        {0, "memory", "BYTES", false,
         "memory limit: use fewer threads to stay below it, and fail if one does not fit\n(suffixes K M G T)"},
    [OPT_ZSTD] = {'z', "zstd", "LEVEL", true,
                  "also compress chunks with zstd where that is smaller;\nshort forms: -1 to -19"},
    [OPT_ZEROS] = {0, "zeros", "ZEROS", false,
                   "exact (default): restore each bit; value: store float zeros without sign:\n-0.0 becomes +0.0"},
    [OPT_PACK] =
        {0, "pack", "PACK", false,
         "pack exponents of floats where that is shorter: planes (default of compress without\na format); fast "
         "(less time, a little longer); none"},
    [OPT_FILE_VERSION] = {0, "file-version", "N", false, "2 (default), or 1: for picitool 0.2, without packing"},
    [OPT_OUT] = {'o', "output", "OUT", false, "output; - is standard output"},
    [OPT_FORCE] = {'f', "force", NULL, false, "overwrite existing output without asking"},
    [OPT_JSON] = {'j', "json", NULL, false, "print JSON"},
    [OPT_TENSOR] = {'n', "tensor", "NAME", false, "only the tensor with this name"},
    [OPT_RANGE] = {0, "range", "A:B", false,
                   "elements A to B - 1 in row-major order, from 0; A: to the end, :B from 0"},
    [OPT_HEATMAP] = {0, "heatmap", "FILE", false, "draw a map of the nonzeros to FILE.png or FILE.svg"},
    [OPT_PNG] = {0, "png", "FILE", false, "the same, always as PNG"},
    [OPT_SVG] = {0, "svg", "FILE", false, "the same, always as SVG"},
    [OPT_COMPARE] = {0, "compare", "LEVEL", true, "also measure zstd on the same chunks (default level 3)"},
    [OPT_CHECKSUM] = {0, "checksum", NULL, false, "store a checksum in the block"},
    [OPT_KEEP_GOING] =
        {0, "keep-going", NULL, false,
         "restore the intact parts of a damaged file, and zeros for the rest; print\na line for each loss; "
         "exit with status 1"},
    [OPT_MAX_SIZE] = {0, "max-size", "BYTES", false,
                      "limit on bytes to write, without holes, or to decode from a bare block; none: no\nlimit "
                      "(default: 1G, or 1024 times the input if that is more; suffixes K M G T)"},
    [OPT_CACHE] = {0, "cache", "BYTES", false, "cache of decoded chunks, in bytes (default 256M; suffixes K M G T)"},
    [OPT_NO_SPARSE] = {0, "no-sparse", NULL, false, "write zeros to files instead of holes"},
    [OPT_SIZE] = {'s', "size", "BYTES", false, "dense bytes of the synthetic data (default 64M)"},
    [OPT_SPARSITY] = {'S', "sparsity", "LIST", false,
                      "percentage of zeros, such as 90 or 50,90,99.9\n(default 0,50,80,90,95,99,99.9)"},
    [OPT_REPS] = {'r', "reps", "N", false, "repetitions; bench prints their median (default 7)"},
    [OPT_MACHINE] = {'m', "machine", "NAME", false, "a machine that picitool knows: its links and codec"},
    [OPT_TUNE] = {0, "tune", "FILE", false, "a tune file of pici-tune instead of a machine"},
    [OPT_COLLECTIVE] = {0, "collective", "LIST", false,
                        "all_gather, reduce_scatter, all_reduce, all_to_all (default: the first three)"},
    [OPT_RANKS] = {0, "ranks", "LIST", false,
                   "numbers of ranks: 8,12; or 2..4096, by doubling; or 1..4096/8, by factors\nof 8 (default 2..4096)"},
    [OPT_PER_NODE] = {0, "per-node", "N", false, "ranks per node (default: the machine's)"},
    [OPT_BYTES] = {0, "bytes", "LIST", false, "dense bytes of the larger buffer (default 64K..4G/4)"},
    [OPT_DENSITY] = {0, "density", "LIST", false,
                     "percentage of nonzeros in one rank's data (default 1; for a page\n0.1,1,5,10,20,50,100)"},
    [OPT_PLOT] = {0, "plot", "PLOT", false, "kind of picture: bytes (default), sparsity or time"},
    [OPT_BASE] = {0, "base", "BASE", false,
                  "for a delta from BASE: show how it stores each tensor, and the least bytes that\na delta needs"},
    [OPT_SMALL] = {0, "small", NULL, false,
                   "small deltas for all tensors of f32, f16, bf16 and f8, and of u8 in .safetensors\nfiles"},
    [OPT_FAST] = {0, "fast", NULL, false, "no small deltas (picitool 0.1.0 cannot apply these)"},
    [OPT_IN_PLACE] = {0, "in-place", NULL, false, "replace BASE with the result"},
    [OPT_STDOUT] = {'c', "stdout", NULL, false, "write to standard output"},
    [OPT_KEEP] = {'k', "keep", NULL, false, "keep the inputs (default)"},
    [OPT_RM] = {0, "rm", NULL, false, "delete each input when its output is complete"},
    [OPT_QUIET] = {'q', "quiet", NULL, false, "no results, warnings, progress or prompts; twice: no errors"},
    [OPT_VERBOSE] = {'v', "verbose", NULL, false, "print each tensor, and results even without a terminal"},
    [OPT_RECURSE] = {'r', "recursive", NULL, false,
                     "process each file in folders and subfolders; skip files of other types"},
    [OPT_OUT_DIR] = {0, "output-dir-flat", "DIR", false, "write all outputs to the folder DIR"},
    [OPT_ULTRA] = {0, "ultra", NULL, false, "allow -20 to -22"},
    [OPT_NO_PROGRESS] = {0, "no-progress", NULL, false, "no progress line"},
    [OPT_DECOMPRESS] = {'d', "decompress", NULL, false, "decompress"},
    [OPT_COMPRESS] = {'z', "compress", NULL, false, "compress (default)"},
    [OPT_TEST] = {'t', "test", NULL, false, "test"},
    [OPT_LIST] = {'l', "list", NULL, false, "list"},
    [OPT_HELP] = {'h', "help", NULL, false, "this text"},
};

#define INPUT_BITS (BIT(OPT_DTYPE) | BIT(OPT_TYPE))
#define OUTPUT_BITS (BIT(OPT_OUT) | BIT(OPT_FORCE))
#define MEMORY_BITS (BIT(OPT_THREADS) | BIT(OPT_MEMORY))
#define RESTORE_BITS (BIT(OPT_MAX_SIZE) | BIT(OPT_NO_SPARSE))
#define EACH_BITS                                                                                                      \
    (OUTPUT_BITS | BIT(OPT_STDOUT) | BIT(OPT_KEEP) | BIT(OPT_RM) | BIT(OPT_OUT_DIR) | BIT(OPT_RECURSE) | TALK_BITS)
#define COMPRESS_BITS                                                                                                  \
    (INPUT_BITS | BIT(OPT_FORMAT) | MEMORY_BITS | BIT(OPT_ZSTD) | BIT(OPT_ULTRA) | BIT(OPT_ZEROS) | BIT(OPT_PACK) |    \
     BIT(OPT_FILE_VERSION) | BIT(OPT_MAX_SIZE) | EACH_BITS)
#define DECOMPRESS_BITS (MEMORY_BITS | BIT(OPT_KEEP_GOING) | RESTORE_BITS | EACH_BITS)
#define TEST_BITS (MEMORY_BITS | BIT(OPT_JSON) | BIT(OPT_RECURSE) | TALK_BITS)
#define LIST_BITS (INPUT_BITS | BIT(OPT_MEMORY) | BIT(OPT_JSON) | BIT(OPT_RECURSE))

const struct verb command_verbs[] = {
    {NULL, "compress", verb_compress, "IN...", "compress raw, .npy, .npz, .safetensors, .gguf or .pt files to .pici",
     "IN may be - (standard input), or a folder with .safetensors files; OUT is then a folder too. picitool detects "
     "the\n"
     "type of a file, unless you pass --type. OUT is IN.pici by default, or standard output if IN is -.",
     1, INT32_MAX, COMPRESS_BITS},
    {NULL, "decompress", verb_decompress, "IN...", "restore the original files, byte for byte",
     "OUT is IN without .pici by default, or standard output if IN is -. IN may be a folder of compress.", 1, INT32_MAX,
     DECOMPRESS_BITS},
    {NULL, "test", verb_test, "IN...", "check every byte of .pici files and bare blocks",
     "Prints one line for each bad file: its name, the offset, and the first error. decompress --keep-going reports "
     "all\n"
     "losses. IN may be a folder of shards.",
     1, INT32_MAX, TEST_BITS},
    {NULL, "list", verb_list, "IN...", "list the tensors of files",
     "IN is a .pici, .npy, .npz, .safetensors, .gguf, .pt or raw file, or a folder of shards. JSON of several files\n"
     "is an array.",
     1, INT32_MAX, LIST_BITS},
    {NULL, "inspect", verb_inspect, "IN...", "show the nonzeros of a file, and its size in each format",
     "IN is a .pici, .npy, .npz, .safetensors, .gguf, .pt or raw file, a bare block, or a folder of shards. JSON of\n"
     "several files is an array.",
     1, INT32_MAX,
     INPUT_BITS | BIT(OPT_JSON) | BIT(OPT_TENSOR) | BIT(OPT_HEATMAP) | BIT(OPT_PNG) | BIT(OPT_SVG) | BIT(OPT_COMPARE) |
         BIT(OPT_FORCE) | MEMORY_BITS | BIT(OPT_MAX_SIZE) | BIT(OPT_QUIET) | BIT(OPT_BASE)},
    {NULL, "report", verb_report, "IN", "make an HTML page with maps of a file's nonzeros",
     "The page is one self-contained file. OUT is IN.html by default, or standard output if IN is -.", 1, 1,
     INPUT_BITS | BIT(OPT_TENSOR) | OUTPUT_BITS | MEMORY_BITS | BIT(OPT_MAX_SIZE) | BIT(OPT_QUIET)},
    {NULL, "extract", verb_extract, "IN", "write a tensor of a .pici file, or a range of its elements",
     "OUT.npy gets a .npy file, other names raw little-endian elements in row-major order. The default is standard\n"
     "output. OUT.npz, or a new folder OUT/, gets all tensors. Reads only the chunks that it needs. You may omit\n"
     "--tensor if there is only one tensor. IN may be a folder of compress.",
     1, 1, BIT(OPT_TENSOR) | BIT(OPT_RANGE) | OUTPUT_BITS | MEMORY_BITS | RESTORE_BITS | TALK_BITS},
    {NULL, "cat", verb_cat, "IN [NAME]...", "write an original, or tensors by name, to standard output",
     "Without NAME, writes the original bytes, as decompress -o - does. With names, writes the little-endian elements\n"
     "of these tensors, one after the other, as extract -n NAME does. With names, IN may be a folder of compress.",
     1, INT32_MAX, BIT(OPT_RANGE) | MEMORY_BITS | BIT(OPT_MAX_SIZE) | TALK_BITS},
    {NULL, "diff", verb_diff, "BASE NEW", "write the delta from one file of tensors to another",
     "BASE and NEW are .safetensors, .gguf, .npy or raw files, or folders of shards; DELTA is then a folder too. A "
     "delta\n"
     "stores the bits that differ in tensors of the same name, type and shape, and other tensors whole. By default,\n"
     "it stores a tensor of f32, f16, bf16 or f8, or of u8 in .safetensors files, as small deltas if these are at "
     "least\n"
     "an eighth shorter for the first 4 Mi elements with changes. Decoding small deltas needs the base.",
     2, 2,
     INPUT_BITS | BIT(OPT_SMALL) | BIT(OPT_FAST) | BIT(OPT_FORMAT) | MEMORY_BITS | BIT(OPT_ZSTD) | BIT(OPT_MAX_SIZE) |
         OUTPUT_BITS | TALK_BITS},
    {NULL, "apply", verb_apply, "BASE DELTA...", "apply one delta, or several in order",
     "BASE must be the base of the first delta. apply checks the hash of each tensor before and after. A delta of a\n"
     "folder of shards applies to a folder of shards.",
     2, INT32_MAX, MEMORY_BITS | OUTPUT_BITS | BIT(OPT_IN_PLACE) | RESTORE_BITS | TALK_BITS},
    {"block", "encode", verb_block_encode, "IN OUT", "encode raw elements as one bare block", NULL, 2, 2,
     BIT(OPT_FORMAT) | BIT(OPT_DTYPE) | MEMORY_BITS | BIT(OPT_ZEROS) | BIT(OPT_PACK) | BIT(OPT_CHECKSUM) |
         BIT(OPT_FORCE) | BIT(OPT_MAX_SIZE) | TALK_BITS},
    {"block", "decode", verb_block_decode, "IN OUT", "decode a bare block to raw elements", NULL, 2, 2,
     MEMORY_BITS | BIT(OPT_FORCE) | RESTORE_BITS | TALK_BITS},
    {"log", "init", verb_log_init, "LOG BASE", "begin a log of deltas with a copy of BASE",
     "BASE is a .safetensors, .gguf, .npy or raw file. --pack stores the base as a .pici file, also after log "
     "compact.\n"
     "It does not work with raw files, and picitool 0.2 cannot read such a log.",
     2, 2, BIT(OPT_TYPE) | BIT(OPT_PACK) | MEMORY_BITS | TALK_BITS},
    {"log", "append", verb_log_append, "LOG OLD NEW", "append the delta from the newest state, OLD, to NEW",
     "OLD must be the newest state of the log. NEW becomes the newest.", 3, 3,
     INPUT_BITS | BIT(OPT_SMALL) | BIT(OPT_FAST) | BIT(OPT_FORMAT) | MEMORY_BITS | BIT(OPT_ZSTD) | BIT(OPT_MAX_SIZE) |
         TALK_BITS},
    {"log", "apply", verb_log_apply, "LOG FILE", "update FILE from any state of the log to the newest",
     "Replaces FILE atomically, as apply --in-place does; makes it from the base if it is missing. If the newest "
     "files\n"
     "of the log have not been copied yet, applies the deltas before them, prints a message, and exits with status 1.\n"
     "--force: if FILE is not a state of the log, replace it, starting from the base.",
     2, 2, MEMORY_BITS | BIT(OPT_FORCE) | RESTORE_BITS | TALK_BITS},
    {"log", "compact", verb_log_compact, "LOG", "store the newest state as the base, and drop old deltas",
     "Keeps the last deltas, up to the size of the base. A reader that is further behind reads fewer bytes from the\n"
     "base.",
     1, 1, MEMORY_BITS | RESTORE_BITS | TALK_BITS},
    {"log", "list", verb_log_list, "LOG", "list the states of a log", NULL, 1, 1, TALK_BITS},
    {NULL, "mount", verb_mount, "IN DIR", "show the original files of IN, read-only, in the folder DIR",
     "IN is a folder of compress, or a .pici file. Any program can open the files; mount decodes only the chunks that\n"
     "it reads. Runs until a signal or fusermount3 -u DIR ends it. Damaged chunks and copies give read errors (EIO),\n"
     "and mount prints a line for each. --threads: chunks to decode at a time.",
     2, 2, MEMORY_BITS | BIT(OPT_CACHE) | BIT(OPT_QUIET) | BIT(OPT_VERBOSE)},
    {NULL, "bench", verb_bench, "[FILE]",
     "measure the codec against memcpy, on synthetic data or a file's largest tensor",
     "Synthetic data has --dtype, f32 by default, and nonzeros at uniformly random positions. --format auto measures\n"
     "every format. Prints medians, in GB/s of dense bytes and as multiples of memcpy in the same run.",
     0, 1,
     INPUT_BITS | BIT(OPT_FORMAT) | MEMORY_BITS | BIT(OPT_JSON) | BIT(OPT_SIZE) | BIT(OPT_SPARSITY) | BIT(OPT_REPS) |
         BIT(OPT_TENSOR)},
    {NULL, "predict", verb_predict, "", "predict how long collectives take on a machine, sparse and dense",
     "Prints the speedup over the best dense call of another library, and the fastest algorithm. -o writes an HTML\n"
     "page, or one picture if OUT ends in .svg or .png. See docs/explanation/predict.md for the model.",
     0, 0,
     BIT(OPT_MACHINE) | BIT(OPT_TUNE) | BIT(OPT_COLLECTIVE) | BIT(OPT_RANKS) | BIT(OPT_PER_NODE) | BIT(OPT_BYTES) |
         BIT(OPT_DENSITY) | BIT(OPT_PLOT) | BIT(OPT_DTYPE) | BIT(OPT_JSON) | OUTPUT_BITS | BIT(OPT_QUIET)},
};
const int command_verb_count = sizeof command_verbs / sizeof *command_verbs;

const struct verb command_bare = {NULL,
                                  "",
                                  NULL,
                                  "[FILE]...",
                                  "compress files, or with -d decompress, -t test, -l list them",
                                  "Takes the options of these four verbs. Without FILE, reads standard input.",
                                  0,
                                  INT32_MAX,
                                  VERB_BITS | COMPRESS_BITS | DECOMPRESS_BITS | TEST_BITS | LIST_BITS};

bool command_takes(const struct verb *verb, int option)
{
    return (verb->takes | BIT(OPT_HELP)) >> option & 1;
}

char command_letter(const struct verb *verb, int option)
{
    for (int i = 0; i < OPTIONS; i++) {
        const bool first = verb == &command_bare ? !command_options[i].value : command_options[i].value != NULL;
        if (i != option && command_options[i].letter == command_options[option].letter && command_takes(verb, i) &&
            first)
            return 0;
    }
    return command_options[option].letter;
}
