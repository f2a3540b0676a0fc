/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The tables of picitool's options and verbs. They determine the options of each verb, the texts of --help, the
 * completions, and which command lines are errors. */
#ifndef PICI_TOOLS_COMMAND_COMMAND_H
#define PICI_TOOLS_COMMAND_COMMAND_H

#include "tool.h"

enum option_id {
    OPT_FORMAT,
    OPT_DTYPE,
    OPT_TYPE,
    OPT_THREADS,
    OPT_MEMORY,
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
    OPT_CACHE,
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
    OPT_DECOMPRESS, /* this and the next three select a verb */
    OPT_COMPRESS,
    OPT_TEST,
    OPT_LIST,
    OPT_HELP,
    OPTIONS
};

struct command_option {
    char letter; /* 0: none. See command_letter */
    const char *name, *value;
    bool value_optional;
    const char *help;
};
extern const struct command_option command_options[OPTIONS];

#define BIT(option) (UINT64_C(1) << (option))
#define TALK_BITS (BIT(OPT_QUIET) | BIT(OPT_VERBOSE) | BIT(OPT_NO_PROGRESS))
#define VERB_BITS (BIT(OPT_DECOMPRESS) | BIT(OPT_COMPRESS) | BIT(OPT_TEST) | BIT(OPT_LIST))

struct verb {
    const char *group, *name; /* group: the word before the name, or NULL */
    int (*run)(const struct tool_options *);
    const char *operands, *summary, *details;
    int least, most; /* operands */
    uint64_t takes;  /* options */
};

extern const struct verb command_verbs[];
extern const int command_verb_count;

/* A command line without a verb: its options have zstd's letters. One of them may select a verb; the default is
 * compress. */
extern const struct verb command_bare;

/* Whether a verb takes an option. */
bool command_takes(const struct verb *, int option);

/* The letter that an option has for a verb; 0: none. Where two options share a letter, only one has it: after a verb,
 * the option with a value; without a verb, the option without one. */
char command_letter(const struct verb *, int option);

#endif
