/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "term.h"

#include <errno.h>
#include <langinfo.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "parse/parse.h"

/* The number of decimals: two below one limit, one below another. */
static int decimals(double amount, double two_below, double one_below)
{
    if (amount < two_below)
        return 2;
    return amount < one_below ? 1 : 0;
}

const char *term_bytes(char buffer[TERM_TEXT], uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double amount = (double)bytes;
    int unit = 0;
    while (amount >= 1023.995 && unit < 6) { /* would print as 1024.00 */
        amount /= 1024;
        unit++;
    }
    if (unit == 0)
        snprintf(buffer, TERM_TEXT, "%u B", (unsigned)bytes);
    else
        snprintf(buffer, TERM_TEXT, "%.*f %s", decimals(amount, 10, 100), amount, units[unit]);
    return buffer;
}

const char *term_percent(char buffer[TERM_TEXT], uint64_t part, uint64_t whole)
{
    double percent = whole ? 100 * (double)part / (double)whole : 0;
    if (!whole)
        snprintf(buffer, TERM_TEXT, "-");
    else if (part == 0 || part == whole)
        snprintf(buffer, TERM_TEXT, "%s", part ? "100%" : "0%");
    else if (percent >= 99.95) /* must not look like 100% */
        snprintf(buffer, TERM_TEXT, percent < 99.995 ? "%.2f%%" : "~100%%", percent);
    else if (percent >= 1)
        snprintf(buffer, TERM_TEXT, "%.*f%%", percent >= 10 ? 1 : 2, percent);
    else
        snprintf(buffer, TERM_TEXT, "%.2g%%", percent);
    return buffer;
}

const char *term_shape(char *buffer, size_t capacity, const uint64_t *shape, unsigned dims)
{
    size_t used = (size_t)snprintf(buffer, capacity, "[");
    for (unsigned i = 0; i < dims; i++) {
        char number[TERM_TEXT];
        int size = snprintf(number, sizeof number, "%s%llu", i ? ", " : "", (unsigned long long)shape[i]);
        if (used + (size_t)size + sizeof ", ...]" > capacity) { /* keep room for the ellipsis */
            used += (size_t)snprintf(buffer + used, capacity - used, "%s...", i ? ", " : "");
            break;
        }
        used += (size_t)snprintf(buffer + used, capacity - used, "%s", number);
    }
    snprintf(buffer + used, capacity - used, "]");
    return buffer;
}

/* Writes the next character of text, escaped if necessary, and a NUL to out. Returns its length in text. */
static size_t harmless(const char *text, size_t size, char out[8])
{
    const uint8_t *bytes = (const uint8_t *)text;
    uint32_t character;
    size_t step = pici_parse_char(bytes, bytes + size, &character);
    if (step == 0 || pici_parse_hidden(character) || (step > 1 && !term_utf8())) {
        snprintf(out, 8, "\\x%02x", bytes[0]);
        return 1; /* the rest of the sequence is not UTF-8 either: each byte gets its own \xNN */
    }
    memcpy(out, text, step);
    out[step] = 0;
    return step;
}

static size_t columns_of(const char *shown)
{
    return shown[0] == '\\' && shown[1] == 'x' ? 4 : 1;
}

size_t term_text(FILE *stream, const char *text, size_t size)
{
    size_t columns = 0;
    for (size_t i = 0; i < size;) {
        char shown[8];
        i += harmless(text + i, size - i, shown);
        columns += columns_of(shown);
        if (stream)
            fputs(shown, stream);
    }
    return columns;
}

size_t term_puts(FILE *stream, const char *text)
{
    return term_text(stream, text, strlen(text));
}

void term_column(FILE *stream, const char *text, size_t width, bool cut)
{
    size_t all = term_puts(NULL, text), columns = 0, size = strlen(text);
    if (all <= width || !cut || !width) {
        columns = term_puts(stream, text);
    } else { /* cut the middle: names differ at their ends */
        size_t head = (width - 1) / 2, tail = width - 1 - head, column = 0;
        bool gap = false;
        for (size_t i = 0; i < size;) {
            char shown[8];
            i += harmless(text + i, size - i, shown);
            size_t next = column + columns_of(shown);
            if (next <= head || column >= all - tail) {
                fputs(shown, stream);
                columns += next - column;
            } else if (!gap) {
                fputs(term_utf8() ? "…" : "~", stream);
                columns++;
                gap = true;
            }
            column = next;
        }
    }
    for (; columns < width; columns++)
        putc(' ', stream);
}

unsigned term_width(FILE *stream)
{
    struct winsize size;
    if (!isatty(fileno(stream)))
        return 0;
    return ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

bool term_colours(FILE *stream)
{
    const char *term = getenv("TERM"), *no = getenv("NO_COLOR");
    return isatty(fileno(stream)) && term && strcmp(term, "dumb") != 0 && !(no && *no);
}

void term_on(FILE *stream, enum term_style style)
{
    if (term_colours(stream))
        fprintf(stream, "\033[%s%dm", style == TERM_BOLD ? "" : "1;", (int)style);
}

void term_off(FILE *stream)
{
    if (term_colours(stream))
        fputs("\033[0m", stream);
}

bool term_utf8(void)
{
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

const char *term_speed(char buffer[TERM_TEXT], uint64_t bytes, double seconds)
{
    static const char *const units[] = {"kB/s", "MB/s", "GB/s", "TB/s"};
    double amount = (double)bytes / (seconds > 1e-9 ? seconds : 1e-9) / 1000;
    int unit = 0;
    while (amount >= 999.5 && unit < 3) { /* would print as 1000 */
        amount /= 1000;
        unit++;
    }
    snprintf(buffer, TERM_TEXT, "%.*f %s", decimals(amount, 9.995, 99.95), amount, units[unit]);
    return buffer;
}

void term_whole_lines(void)
{
    static char buffer[8192]; /* a message and a name of readable length */
    setvbuf(stderr, buffer, _IOLBF, sizeof buffer);
}

static int talk = TERM_NORMAL;
static bool with_progress = true;

void term_set_progress(bool is)
{
    with_progress = is;
}

void term_set_talk(int level)
{
    if (level < TERM_SILENT)
        level = TERM_SILENT;
    talk = level > TERM_VERBOSE ? TERM_VERBOSE : level;
}

int term_talk(void)
{
    return talk;
}

bool term_can_ask(void)
{
    return talk >= TERM_NORMAL && isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

bool term_ask(const char *file, const char *question)
{
    char first[4] = "", character;
    size_t size = 0;
    ssize_t got;
    progress_wipe();
    fflush(stdout);
    fputs("picitool: ", stderr);
    term_puts(stderr, file);
    fprintf(stderr, ": %s [y/N] ", question);
    fflush(stderr);
    /* One byte at a time: the bytes after the line stay for later questions. */
    while (((got = read(STDIN_FILENO, &character, 1)) == 1 && character != '\n') || (got < 0 && errno == EINTR)) {
        if (got == 1 && size < sizeof first)
            first[size] = character;
        size += got == 1;
    }
    if (got <= 0)
        putc('\n', stderr);
    return (size == 1 && strchr("yY", first[0])) || (size == 3 && strncasecmp(first, "yes", 3) == 0);
}

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

void term_lock(void)
{
    pthread_mutex_lock(&lock);
}

void term_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* Progress. At most one line is shown at a time; errors erase it first. The lock protects all of this. */
static struct progress *up;
static struct progress all; /* sum over several files */
static bool all_is;

double term_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void progress_start(struct progress *progress, const char *what, uint64_t total)
{
    double now = term_now();
    *progress = (struct progress){.what = what, .total = total, .start = now, .shown = now, .live = false};
    progress->live = with_progress && talk >= TERM_NORMAL && isatty(STDERR_FILENO);
    progress->part = all_is;
}

void progress_all_start(const char *what, uint64_t total)
{
    progress_start(&all, what, total);
    all_is = true;
}

void progress_all_end(void)
{
    all_is = false;
    progress_end(&all);
}

static void draw(struct progress *progress, uint64_t done, uint64_t dense)
{
    double now = term_now(), lasted = now - progress->start;
    if (lasted < 1 || (progress->drawn && now - progress->shown < 0.1))
        return;
    char bytes[TERM_TEXT], speed[TERM_TEXT];
    size_t width = term_width(stderr), name = term_puts(NULL, progress->what), capacity = width > 60 ? width - 50 : 10;
    putc('\r', stderr);
    term_column(stderr, progress->what, name < capacity ? name : capacity, true);
    fprintf(stderr, "  %s  %s/s", term_bytes(bytes, dense), term_bytes(speed, (uint64_t)((double)dense / lasted)));
    if (done && done < progress->total) {
        double part = (double)done / (double)progress->total;
        fprintf(stderr, "  %u%%  %.0f s left", (unsigned)(100 * part), lasted / part - lasted);
    }
    fputs("\033[K", stderr);
    fflush(stderr);
    progress->shown = now;
    progress->drawn = true;
    up = progress;
}

void progress_at(struct progress *progress, uint64_t done, uint64_t dense)
{
    if (!progress->live)
        return;
    term_lock();
    if (progress->part) { /* add the new bytes of the file; an offset may also decrease */
        all.done += done > progress->done ? done - progress->done : 0;
        all.dense += dense > progress->dense ? dense - progress->dense : 0;
        progress->done = done > progress->done ? done : progress->done;
        progress->dense = dense > progress->dense ? dense : progress->dense;
        draw(&all, all.done, all.dense);
    } else {
        draw(progress, done, dense);
    }
    term_unlock();
}

/* Erases the line that is shown, if it belongs to `progress`, or if that is NULL. */
static void wipe(const struct progress *progress)
{
    term_lock();
    if (up && (!progress || up == progress)) {
        if (up->drawn) {
            fputs("\r\033[K", stderr);
            fflush(stderr);
            up->drawn = false;
        }
        up = NULL;
    }
    term_unlock();
}

void progress_wipe(void)
{
    wipe(NULL);
}

void progress_end(struct progress *progress)
{
    if (progress->live)
        wipe(progress);
    progress->live = false;
}
