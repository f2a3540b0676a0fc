/* SPDX-License-Identifier: BSD-3-Clause
 *
 * picitool: parses the command line by the tables of command.h; help and completion. */
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

#include "command/command.h"
#include "names.h"
#include "output/output.h"
#include "predict.h"
#include "recurse.h"
#include "suggest.h"
#include "term.h"
#include "tool.h"
#include "values.h"

enum { ZSTD_DEFAULT = 3 /* zstd's own */ };

static void verb_name(const struct verb *verb, char name[32])
{
    const char *const group = verb->group ? verb->group : "";
    snprintf(name, 32, "%s%s%s", group, *group ? " " : "", verb->name);
}

static void print_usage(void)
{
    puts("Usage: picitool VERB [OPTION]... OPERAND...\n"
         "       picitool [-d | -t | -l] [OPTION]... [FILE]...\n\n"
         "Compress files of mostly zero tensors, and read them. Without a verb, picitool takes zstd's options:\n"
         "it compresses files, or decompresses (-d), tests (-t) or lists (-l) them. See picitool -d --help.\n");
    for (int i = 0; i < command_verb_count; i++) {
        char name[32];
        verb_name(&command_verbs[i], name);
        printf("  %-14s  %s\n", name, command_verbs[i].summary);
    }
    puts("\nSee picitool VERB --help for a verb's options. picitool --version prints the version.\n"
         "Exit status: 0 done, 1 bad data or I/O, 2 usage.");
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
        if (!command_takes(verb, i))
            continue;
        char left[40], letter[8] = "    ";
        const char *value = command_options[i].value ? command_options[i].value : "";
        if (command_letter(verb, i))
            snprintf(letter, sizeof letter, "-%c, ", command_letter(verb, i));
        const char *const with_value = command_options[i].value_optional ? "%s--%s[=%s]" : "%s--%s %s";
        snprintf(left, sizeof left, *value ? with_value : "%s--%s", letter, command_options[i].name, value);
        printf("  %-24s  ", left);
        for (const char *position = command_options[i].help; *position; position++) {
            putchar(*position);
            if (*position == '\n')
                printf("  %-24s  ", "");
        }
        puts("");
    }
    const bool makes = command_takes(verb, OPT_FORCE) && verb->run != verb_log_apply;
    printf("\nExit status: 0 done, 1 bad data or I/O%s, 2 usage%s.\n",
           command_takes(verb, OPT_KEEP_GOING) ? ", or a loss with --keep-going" : "",
           makes ? ", or the output exists" : "");
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
    case OPT_MEMORY:
        TRY(value_bytes("memory", value, &chosen->memory));
        return chosen->memory ? TOOL_OK : tool_usage(NULL, "--memory 0: at least 1");
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
    case OPT_CACHE: return value_bytes("cache", value, &chosen->cache);
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

/* Report a word such as "--tensr=x": the verb has no such option, or the option has no value. */
static int no_option(const struct verb *verb, const char *word)
{
    char typed[64], hint[SUGGEST_HINT];
    struct suggest nearest;
    const char *letters = word + (word[0] == '-') + (word[0] == '-' && word[1] == '-');
    snprintf(typed, sizeof typed, "%.*s", (int)strcspn(letters, "="), letters);
    suggest_start(&nearest, typed);
    for (int i = 0; i < OPTIONS; i++)
        if (command_takes(verb, i) && strcmp(command_options[i].name, typed) == 0)
            return wrong(verb, "--%s takes no value", typed);
        else if (command_takes(verb, i))
            suggest_word(&nearest, command_options[i].name);
    return wrong(verb, "no option %s%s", word, suggest_hint(&nearest, "--", hint));
}

/* Parses "-19": the digit that getopt has found, and the digits after it. The rest of the word is parsed next. */
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

/* Lowers a level given as -N to the maximum, as zstd does. */
static void cap_level(struct tool_options *chosen)
{
    const int most = chosen->ultra ? 22 : 19;
    if (!chosen->zstd_short || chosen->zstd <= most)
        return;
    tool_warn(NULL, "level %d is too high; using %d%s", chosen->zstd, most,
              chosen->ultra ? "" : "; --ultra allows up to 22");
    chosen->zstd = most;
}

/* Parse the words after the verb; argv[0] is the last word of the verb. *given: the set of options. *mode: the last
 * option that selects a verb, if there is one. */
static int parse_options(const struct verb *verb, int argc, char **argv, struct tool_options *chosen, uint64_t *given,
                         int *mode)
{
    char letters[3 * (OPTIONS + 9) + 2] = ":";
    struct option longs[OPTIONS + 1] = {{0}};
    int count = 0;
    size_t used = 1;
    for (int i = 0; i < OPTIONS; i++) {
        if (!command_takes(verb, i))
            continue;
        int has = required_argument;
        if (!command_options[i].value)
            has = no_argument;
        else if (command_options[i].value_optional)
            has = optional_argument;
        longs[count++] = (struct option){command_options[i].name, has, NULL, 256 + i};
        if (command_letter(verb, i)) {
            letters[used++] = command_letter(verb, i);
            /* required_argument (1) and optional_argument (2) are the number of colons */
            for (int colons = has; colons; colons--)
                letters[used++] = ':';
        }
    }
    for (char digit = '1'; command_takes(verb, OPT_ZSTD) && digit <= '9'; digit++) {
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
            if (command_takes(verb, i) && command_letter(verb, i) == letter)
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
    .format = PICI_AUTO, .threads = 1, .bench_bytes = UINT64_C(64) << 20, .reps = 7, .cache = UINT64_C(256) << 20};

static int run_parsed(const struct verb *verb, const struct tool_options *chosen)
{
    term_set_talk(chosen->talk);
    term_set_progress(!chosen->no_progress);
    return verb->run(chosen);
}

/* Runs a verb for --recursive, with the files below each folder operand. */
static int run_recursive(const struct verb *verb, struct tool_options *chosen)
{
    struct recursed found;
    int worst = recurse(&found, chosen, verb->run == verb_compress), status = TOOL_OK;
    chosen->args = found.args;
    chosen->nargs = found.nargs;
    if (found.nargs)
        status = run_parsed(verb, chosen);
    else if (!worst)
        status = tool_bad(NULL, "no files are found in the folders");
    worst = status > worst ? status : worst;
    recurse_free(&found);
    return worst;
}

/* Checks the operands and runs a verb. If an operand is missing and standard input is no terminal, uses standard
 * input. */
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
    TRY(tool_bound_memory(chosen));
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
    for (int i = 0; i < command_verb_count; i++)
        if (!command_verbs[i].group && strcmp(command_verbs[i].name, name) == 0)
            return &command_verbs[i];
    return NULL;
}

/* Runs a command line without a verb. */
static int run_bare(int argc, char **argv)
{
    struct tool_options chosen = defaults;
    uint64_t given = 0;
    int mode = OPT_COMPRESS;
    TRY(parse_options(&command_bare, argc, argv, &chosen, &given, &mode));
    if (given & BIT(OPT_HELP)) {
        print_verb_help(&command_bare);
        return TOOL_OK;
    }
    const struct verb *verb = verb_of(command_options[mode].name);
    if (chosen.zstd_short && !command_takes(verb, OPT_ZSTD)) /* such as -df9: zstd ignores the level too */
        given &= ~(BIT(OPT_ZSTD) | BIT(OPT_ULTRA));
    given &= verb->takes | ~(TALK_BITS | BIT(OPT_THREADS)); /* such as -lT0: ignore options that the verb does not
                                                             * use */
    for (int i = 0; i < OPTIONS; i++)
        if ((given & ~VERB_BITS) >> i & 1 && !command_takes(verb, i))
            return wrong(verb, "no option --%s", command_options[i].name);
    return run_operands(verb, &command_bare, &chosen);
}

static int run_group(const char *group, int argc, char **argv)
{
    bool help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    for (int i = 0; i < command_verb_count; i++) {
        if (!command_verbs[i].group || strcmp(command_verbs[i].group, group) != 0)
            continue;
        if (help) {
            print_verb_help(&command_verbs[i]);
            puts("");
        } else if (argc > 1 && strcmp(argv[1], command_verbs[i].name) == 0) {
            return run_verb(&command_verbs[i], argc - 1, argv + 1);
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

/* Offer the values of an option: its words, or the tensors of the files among the other words. */
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
        offer(begun, "", word(i), command_options[id].name);
    for (int i = 0; id == OPT_TENSOR && i < count; i++)
        names_each(words[i], begun, offer);
}

/* The option in `word`, if its value is the next word; else -1. */
static int option_before(const struct verb *verb, const char *word)
{
    for (int i = 0; i < OPTIONS; i++) {
        const char letter[] = {'-', command_takes(verb, i) ? command_letter(verb, i) : 0, 0};
        if (command_takes(verb, i) && command_options[i].value && !command_options[i].value_optional &&
            word[0] == '-' &&
            (strcmp(word, letter) == 0 || (word[1] == '-' && strcmp(word + 2, command_options[i].name) == 0)))
            return i;
    }
    return -1;
}

static void complete_verb(const struct verb *verb, char **words, int count)
{
    const bool no_help = verb == &command_bare && count == 1; /* already offered */
    const char *begun = words[count - 1];
    int id = count > 1 ? option_before(verb, words[count - 2]) : -1;
    if (id >= 0)
        offer_values((enum option_id)id, begun, words, count - 2);
    if (id < 0 && begun[0] != '-' && verb->run == verb_cat && count > 1)
        offer_values(OPT_TENSOR, begun, words, count - 1);
    for (int i = 0; id < 0 && begun[0] == '-' && i < OPTIONS; i++)
        if (command_takes(verb, i) && !(no_help && i == OPT_HELP))
            offer(begun, "--", command_options[i].name, command_options[i].help);
}

static void complete(char **words, int count)
{
    const char *begun = count ? words[count - 1] : "";
    for (int i = 0; i < command_verb_count; i++) {
        const struct verb *verb = &command_verbs[i];
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
        offer(begun, "--", "help", "list the verbs");
        offer(begun, "--", "version", "print the version");
    }
    if (count && (begun[0] == '-' || count > 1) && (words[0][0] == '-' || (count > 1 && access(words[0], F_OK) == 0)))
        complete_verb(&command_bare, words, count);
}

/* help, help VERB, help GROUP VERB */
static int run_help(int argc, char **argv)
{
    if (argc < 2)
        print_usage();
    for (int i = 0; argc == 2 && i < command_verb_count; i++)
        if (command_verbs[i].group && strcmp(argv[1], command_verbs[i].group) == 0) {
            char help[] = "--help", *words[] = {argv[1], help, NULL};
            return run_group(argv[1], 2, words);
        }
    for (int i = 0; argc > 1 && i < command_verb_count; i++) {
        const int name_at = command_verbs[i].group && argc > 2 && strcmp(argv[1], command_verbs[i].group) == 0 ? 2 : 1;
        if (argc == name_at + 1 && (name_at == 2) == (command_verbs[i].group != NULL) &&
            strcmp(argv[name_at], command_verbs[i].name) == 0) {
            print_verb_help(&command_verbs[i]);
            return TOOL_OK;
        }
    }
    return argc < 2 ? TOOL_OK : tool_usage(NULL, "no verb %s; see picitool --help", argv[argc - 1]);
}

/* Whether an unknown word is probably a file's name and not a mistyped verb. */
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
    for (int i = 0; i < command_verb_count; i++) {
        if (command_verbs[i].group && strcmp(word, command_verbs[i].group) == 0)
            return run_group(command_verbs[i].group, argc - 1, argv + 1);
        if (!command_verbs[i].group && strcmp(word, command_verbs[i].name) == 0)
            return run_verb(&command_verbs[i], argc - 1, argv + 1);
    }
    if (word[0] == '-' || is_path(word))
        return run_bare(argc, argv);
    struct suggest nearest;
    char hint[SUGGEST_HINT];
    suggest_start(&nearest, word);
    for (int i = 0; i < command_verb_count; i++)
        suggest_word(&nearest, command_verbs[i].group ? command_verbs[i].group : command_verbs[i].name);
    suggest_hint(&nearest, "", hint);
    if (!hint[0]) /* no similar verb either */
        return tool_usage(word, "No such file or directory, and no verb; see picitool --help");
    return tool_usage(NULL, "no verb %s%s see picitool --help", word, hint);
}

int main(int argc, char **argv)
{
    term_whole_lines();
    int status = output_start();
    setlocale(LC_CTYPE, "");
    if (!status)
        status = run(argc, argv);
    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == TOOL_OK)
        status = tool_bad("standard output", "%s", strerror(errno ? errno : EIO));
    return status;
}
