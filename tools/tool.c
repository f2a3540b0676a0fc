/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "tool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

#include "suggest.h"
#include "term.h"

/* Enough for any message with names of readable length; longer messages are cut. */
enum { MESSAGE = 4096 };

static _Thread_local char message[MESSAGE];
static _Thread_local char kept[MESSAGE]; /* the result of tool_unmute */
static _Thread_local bool muted;
static uint64_t memory_bound; /* bytes; 0: none */
static char last[MESSAGE];    /* the last error of any thread; the terminal's lock protects it */

/* Prints the message, if the amount of output is at least `least`. */
static void print(const char *file, int least)
{
    if (term_talk() < least)
        return;
    term_lock(); /* keeps a message on one line, beside other threads' output */
    progress_wipe();
    fflush(stdout); /* keeps the order of both streams on one terminal */
    term_on(stderr, TERM_RED);
    fputs("picitool:", stderr);
    term_off(stderr);
    putc(' ', stderr);
    if (file) {
        term_puts(stderr, file);
        fputs(": ", stderr);
    }
    term_puts(stderr, message);
    putc('\n', stderr);
    term_unlock();
}

static void say(const char *file, const char *place, const char *what, va_list args)
{
    int used = snprintf(message, sizeof message, "%s", place);
    vsnprintf(message + used, sizeof message - (size_t)used, what, args);
    if (memory_bound && strstr(message, "out of memory")) {
        const size_t size = strlen(message);
        snprintf(message + size, sizeof message - size, "; --memory is %" PRIu64 " bytes", memory_bound);
    }
    if (muted)
        return;
    term_lock();
    memcpy(last, message, sizeof last);
    term_unlock();
    print(file, TERM_QUIET);
}

void tool_warn(const char *file, const char *what, ...)
{
    va_list args;
    if (muted)
        return;
    int used = snprintf(message, sizeof message, "warning: ");
    va_start(args, what);
    vsnprintf(message + used, sizeof message - (size_t)used, what, args);
    va_end(args);
    print(file, TERM_NORMAL);
}

void tool_mute(void)
{
    muted = true;
    message[0] = 0;
}

const char *tool_unmute(void)
{
    muted = false;
    return memcpy(kept, message, sizeof kept);
}

const char *tool_last_error(void)
{
    return last;
}

int tool_bad(const char *file, const char *what, ...)
{
    va_list args;
    va_start(args, what);
    say(file, "", what, args);
    va_end(args);
    return TOOL_BAD;
}

int tool_bad_at(const char *file, uint64_t offset, const char *what, ...)
{
    char place[40];
    snprintf(place, sizeof place, "offset %" PRIu64 ": ", offset);
    va_list args;
    va_start(args, what);
    say(file, place, what, args);
    va_end(args);
    return TOOL_BAD;
}

int tool_usage(const char *file, const char *what, ...)
{
    va_list args;
    va_start(args, what);
    say(file, "", what, args);
    va_end(args);
    return TOOL_USAGE;
}

int tool_no_tensor(const char *file, const struct suggest *nearest)
{
    char hint[SUGGEST_HINT];
    return tool_bad(file, "has no tensor %s%s", nearest->typed, suggest_hint(nearest, "", hint));
}

int tool_nomem(const char *file, const char *what)
{
    return tool_bad(file, "out of memory for %s", what);
}

int tool_failed(const char *file, enum pici_status status, const char *reason)
{
    if (!status)
        return TOOL_OK;
    return reason[0] ? tool_bad(NULL, "%s", reason) : tool_bad(file, "%s", pici_strerror(status));
}

/* Bytes for a run, and for a thread with chunks of 2^20 f64. */
static const uint64_t memory_fixed = 8 << 20, memory_each = 24 << 20;

uint64_t tool_memory_left(const struct tool_options *options)
{
    const uint64_t used = memory_fixed + tool_threads(options->threads) * memory_each;
    if (!options->memory)
        return UINT64_MAX;
    return options->memory > used ? options->memory - used : 0;
}

int tool_bound_memory(struct tool_options *options)
{
    struct rlimit limit;
    if (!options->memory)
        return TOOL_OK;
    const uint64_t fit =
        options->memory > memory_fixed + memory_each ? (options->memory - memory_fixed) / memory_each : 1;
    const unsigned threads = tool_threads(options->threads);
    options->threads = threads < fit ? (int)threads : (int)fit;
    if (getrlimit(RLIMIT_DATA, &limit) != 0)
        return tool_bad(NULL, "--memory: %s", strerror(errno));
    if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > options->memory)
        limit.rlim_cur = (rlim_t)options->memory;
    if (setrlimit(RLIMIT_DATA, &limit) != 0)
        return tool_bad(NULL, "--memory: %s", strerror(errno));
    memory_bound = options->memory;
    return TOOL_OK;
}

unsigned tool_threads(int asked)
{
    long threads = asked ? asked : sysconf(_SC_NPROCESSORS_ONLN);
    return threads > 0 ? (unsigned)threads : 1;
}

const char *tool_input_name(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

/* The name of a type for --type, and the lower-case extensions of its files. */
static const struct {
    const char *name, *extensions[2];
} types[TYPES] = {
    [TYPE_UNSET] = {"", {NULL}},       [TYPE_RAW] = {"raw", {NULL}},
    [TYPE_NPY] = {"npy", {".npy"}},    [TYPE_SAFETENSORS] = {"safetensors", {".safetensors"}},
    [TYPE_GGUF] = {"gguf", {".gguf"}}, [TYPE_PT] = {"pt", {".pt", ".pth"}},
    [TYPE_NPZ] = {"npz", {".npz"}},
};

const char *tool_type_name(enum tool_type type)
{
    return types[type].name;
}

bool tool_type_exists(const char *name)
{
    for (int type = TYPE_RAW; type < TYPES; type++)
        if (strcmp(name, types[type].name) == 0)
            return true;
    return false;
}

bool tool_type_is_zip(enum tool_type type)
{
    return type == TYPE_PT || type == TYPE_NPZ;
}

const char *tool_extension(const char *path)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    return dot ? dot : "";
}

char *tool_output_name(const char *input_path, const char *extension, const char *folder)
{
    const bool stream = strcmp(input_path, "-") == 0;
    const char *const slash = folder && !stream ? strrchr(input_path, '/') : NULL;
    const char *const name = slash ? slash + 1 : input_path;
    size_t capacity = strlen(name) + strlen(extension) + 2 + (folder ? strlen(folder) : 0);
    char *name_out = malloc(capacity);
    const char *const in = folder && !stream ? folder : "";
    if (stream)
        extension = "";
    if (name_out)
        snprintf(name_out, capacity, "%s%s%s%s", in, *in ? "/" : "", name, extension);
    return name_out;
}

enum tool_type tool_type_of(const char *path)
{
    const char *extension = tool_extension(path);
    for (int type = TYPE_RAW; type < TYPES; type++)
        for (int i = 0; i < 2 && types[type].extensions[i]; i++)
            if (strcasecmp(extension, types[type].extensions[i]) == 0)
                return (enum tool_type)type;
    return TYPE_RAW;
}

bool tool_has_extension(const char *path, const char *extension)
{
    const size_t size = strlen(path), tail = strlen(extension);
    return size > tail && strcasecmp(path + size - tail, extension) == 0 && path[size - tail - 1] != '/';
}

bool tool_parse_digits(const char **text, uint64_t *value)
{
    if (**text < '0' || **text > '9')
        return false;
    for (*value = 0; **text >= '0' && **text <= '9'; ++*text) {
        unsigned digit = (unsigned)(**text - '0');
        if (*value > (UINT64_MAX - digit) / 10)
            return false;
        *value = *value * 10 + digit;
    }
    return true;
}

bool tool_parse_bytes(const char *text, uint64_t *bytes)
{
    static const char suffixes[] = "KMGT";
    uint64_t value;
    if (!tool_parse_digits(&text, &value))
        return false;
    const char *suffix = *text ? strchr(suffixes, *text >= 'a' ? *text - 'a' + 'A' : *text) : NULL;
    if (suffix) {
        unsigned shift = 10 * (unsigned)(suffix - suffixes + 1);
        if (value > UINT64_MAX >> shift)
            return false;
        value <<= shift;
        text++;
        if (strcmp(text, "iB") == 0)
            text += 2;
    }
    *bytes = value;
    return *text == 0;
}
