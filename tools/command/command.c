/* SPDX-License-Identifier: BSD-3-Clause */
#include "command/command.h"

#include <stddef.h>

const struct command_option command_options[OPTIONS] = {
    [OPT_FORMAT] = {'f', "format", "FORMAT", false,
                    "auto (the smallest; default), dense, bitmap, coo, hybrid, or packed (floats)"},
    [OPT_DTYPE] =
        {'d', "dtype", "DTYPE", false,
         "type of raw elements and of unnamed storages in a .pt: f32 f64 f16 bf16 f8e4m3 f8e5m2\ni8 u8 i16 u16 i32 "
         "u32 i64 u64"},
    [OPT_TYPE] = {'t', "type", "TYPE", false, "what IN is: raw, npy, safetensors, gguf, pt, npz (default: by name)"},
    [OPT_THREADS] = {'T', "threads", "N", false, "threads (default 1; 0: one for each core)"},
    [OPT_MEMORY] = {0, "memory", "BYTES", false,
                    "most memory to use: as many threads as fit, and a failure where one does not\n(suffixes K M G T)"},
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
    [OPT_CACHE] = {0, "cache", "BYTES", false, "bytes of decoded chunks to keep (default 256M; suffixes K M G T)"},
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
     "IN is a .pici, .npy, .npz, .safetensors, .gguf, .pt or raw file, or a folder of shards. JSON of several files\n"
     "is an array.",
     1, INT32_MAX, LIST_BITS},
    {NULL, "inspect", verb_inspect, "IN...", "show where a file's nonzeros are, and its size in each format",
     "IN is a .pici, .npy, .npz, .safetensors, .gguf, .pt or raw file, or a bare block, or a folder of these in\n"
     "shards. JSON of several files is an array.",
     1, INT32_MAX,
     INPUT_BITS | BIT(OPT_JSON) | BIT(OPT_TENSOR) | BIT(OPT_HEATMAP) | BIT(OPT_PNG) | BIT(OPT_SVG) | BIT(OPT_COMPARE) |
         BIT(OPT_FORCE) | MEMORY_BITS | BIT(OPT_MAX_SIZE) | BIT(OPT_QUIET) | BIT(OPT_BASE)},
    {NULL, "report", verb_report, "IN", "make a page of where a file's nonzeros are, to look at in a browser",
     "The page is one HTML file without references to others. OUT is by default IN.html, or standard\n"
     "output if IN is -.",
     1, 1, INPUT_BITS | BIT(OPT_TENSOR) | OUTPUT_BITS | MEMORY_BITS | BIT(OPT_MAX_SIZE) | BIT(OPT_QUIET)},
    {NULL, "extract", verb_extract, "IN", "write a tensor of a .pici file, or a range of its elements",
     "OUT is .npy if its name says so, else raw little-endian elements; standard output by default. OUT.npz, or a new\n"
     "folder OUT/, gets all tensors. Only the chunks needed are read. --tensor may be left out if there is one "
     "tensor.\n"
     "IN may be a folder that compress made.",
     1, 1, BIT(OPT_TENSOR) | BIT(OPT_RANGE) | OUTPUT_BITS | MEMORY_BITS | RESTORE_BITS | TALK_BITS},
    {NULL, "cat", verb_cat, "IN [NAME]...", "write an original, or tensors by name, to standard output",
     "Without NAME, the bytes that were compressed, as decompress -o - does. With names, the elements of these "
     "tensors\n"
     "of a .pici file, one after the other, little-endian, as extract -n NAME does. IN may be a folder that compress\n"
     "made, with names.",
     1, INT32_MAX, BIT(OPT_RANGE) | MEMORY_BITS | BIT(OPT_MAX_SIZE) | TALK_BITS},
    {NULL, "diff", verb_diff, "BASE NEW", "write the delta from one file of tensors to another",
     "BASE and NEW are .safetensors, .gguf, .npy or raw files. Tensors of the same name, type and shape are stored as\n"
     "the bits that differ, others whole. By default, a tensor of f32, f16 or bf16 is stored as small deltas, which\n"
     "are decoded with the base, if these are at least an eighth shorter for the first 4 Mi elements of which some\n"
     "changed. BASE and NEW may also be folders of shards; so is DELTA then.",
     2, 2,
     INPUT_BITS | BIT(OPT_SMALL) | BIT(OPT_FAST) | BIT(OPT_FORMAT) | MEMORY_BITS | BIT(OPT_ZSTD) | BIT(OPT_MAX_SIZE) |
         OUTPUT_BITS | TALK_BITS},
    {NULL, "apply", verb_apply, "BASE DELTA...", "apply one delta, or several in a row",
     "BASE must be what the first delta was made from: the hash of each tensor is checked, and that of each result.\n"
     "The delta of a folder of shards is applied to one.",
     2, INT32_MAX, MEMORY_BITS | OUTPUT_BITS | BIT(OPT_IN_PLACE) | RESTORE_BITS | TALK_BITS},
    {"block", "encode", verb_block_encode, "IN OUT", "encode raw elements as one bare block", NULL, 2, 2,
     BIT(OPT_FORMAT) | BIT(OPT_DTYPE) | MEMORY_BITS | BIT(OPT_ZEROS) | BIT(OPT_PACK) | BIT(OPT_CHECKSUM) |
         BIT(OPT_FORCE) | BIT(OPT_MAX_SIZE) | TALK_BITS},
    {"block", "decode", verb_block_decode, "IN OUT", "decode a bare block to raw elements", NULL, 2, 2,
     MEMORY_BITS | BIT(OPT_FORCE) | RESTORE_BITS | TALK_BITS},
    {"log", "init", verb_log_init, "LOG BASE", "begin a log of deltas with a copy of BASE",
     "BASE is a .safetensors, .gguf, .npy or raw file. --pack, not of raw files, stores the base as a .pici file,\n"
     "also after log compact; picitool 0.2 does not read such a log.",
     2, 2, BIT(OPT_TYPE) | BIT(OPT_PACK) | MEMORY_BITS | TALK_BITS},
    {"log", "append", verb_log_append, "LOG OLD NEW", "append the delta from the newest state, OLD, to NEW",
     "OLD must be the newest state of the log. NEW is that from then on.", 3, 3,
     INPUT_BITS | BIT(OPT_SMALL) | BIT(OPT_FAST) | BIT(OPT_FORMAT) | MEMORY_BITS | BIT(OPT_ZSTD) | BIT(OPT_MAX_SIZE) |
         TALK_BITS},
    {"log", "apply", verb_log_apply, "LOG FILE", "bring FILE, in any state of the log, to the newest",
     "Replaces FILE in one step, as apply --in-place does; makes it from the base if there is none. If the last files "
     "of\n"
     "the log have not been copied yet, applies those before them, says so, and ends with status 1. --force: FILE may\n"
     "be any file; unless it is a state of the log, it is made from the base.",
     2, 2, MEMORY_BITS | BIT(OPT_FORCE) | RESTORE_BITS | TALK_BITS},
    {"log", "compact", verb_log_compact, "LOG", "store the newest state whole, and drop old deltas",
     "Keeps the last deltas whose bytes are together at most those of the base: for a reader that is further behind,\n"
     "the base is shorter.",
     1, 1, MEMORY_BITS | RESTORE_BITS | TALK_BITS},
    {"log", "list", verb_log_list, "LOG", "list the states of a log", NULL, 1, 1, TALK_BITS},
    {NULL, "mount", verb_mount, "IN DIR", "show the original files of IN, read only, in the folder DIR",
     "IN is a folder that compress made, or a .pici file. Any program opens the files; only the chunks that it reads "
     "are\n"
     "decoded. Runs until a signal ends it or fusermount3 -u DIR. Damaged chunks, and damaged copies, are errors of\n"
     "reading (EIO), with a line here. --threads: chunks decoded at a time.",
     2, 2, MEMORY_BITS | BIT(OPT_CACHE) | BIT(OPT_QUIET) | BIT(OPT_VERBOSE)},
    {NULL, "bench", verb_bench, "[FILE]",
     "measure the codec against memcpy, on synthetic data or a file's largest tensor",
     "Synthetic data are of --dtype, f32 by default, at uniformly random positions. --format auto is every format.\n"
     "Prints medians, in GB/s of dense bytes and as multiples of memcpy in the same run.",
     0, 1,
     INPUT_BITS | BIT(OPT_FORMAT) | MEMORY_BITS | BIT(OPT_JSON) | BIT(OPT_SIZE) | BIT(OPT_SPARSITY) | BIT(OPT_REPS) |
         BIT(OPT_TENSOR)},
    {NULL, "predict", verb_predict, "", "predict how long collectives take on a machine, sparse and dense",
     "Prints the speedup over the best dense call of another library, and which algorithm is fastest. With -o writes\n"
     "a page (HTML), or one picture if OUT ends in .svg or .png. What is predicted, and how:\n"
     "docs/explanation/predict.md.",
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
                                  "The options are those of these four verbs. Without FILE, standard input is read.",
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
