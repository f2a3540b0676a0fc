/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Text for people: short forms of sizes and shares, untrusted text with escapes, colours, and progress. */
#ifndef PICI_TOOLS_TERM_H
#define PICI_TOOLS_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { TERM_TEXT = 32 }; /* buffer size for the short texts below */

/* "0 B", "1023 B", "4.77 MiB". Returns buffer. */
const char *term_bytes(char buffer[TERM_TEXT], uint64_t bytes);

/* part of whole as "33.6%", "0.024%", "100%"; "-" if whole is 0. Returns buffer. */
const char *term_percent(char buffer[TERM_TEXT], uint64_t part, uint64_t whole);

/* "[3, 224, 224]", cut to what fits in capacity bytes; "[]" for a scalar. Returns buffer. */
const char *term_shape(char *buffer, size_t capacity, const uint64_t *shape, unsigned dims);

/* Write an untrusted string to stream: characters that parse_hidden names, and bytes that are not UTF-8, become \xNN.
 * Returns the width in columns, counting one per code point. stream NULL: only count. All text from files, and all file
 * names, must reach a terminal through this function; the functions below use it. */
size_t term_text(FILE *stream, const char *text, size_t size);
size_t term_puts(FILE *stream, const char *text); /* up to its NUL */

/* Like term_puts, padded to width columns. cut: shorten a longer text to the width, with an ellipsis in the middle. */
void term_column(FILE *stream, const char *text, size_t width, bool cut);

/* The width of the terminal; 0 if stream is not one. */
unsigned term_width(FILE *stream);

/* Whether stream supports colours: it is a terminal, TERM is not "dumb", and NO_COLOR is not set. */
bool term_colours(FILE *stream);

/* Switch a style on, and all styles off, if stream supports colours. */
enum term_style { TERM_BOLD = 1, TERM_RED = 31, TERM_GREEN = 32 };
void term_on(FILE *stream, enum term_style);
void term_off(FILE *stream);

/* Whether the locale's characters are UTF-8. */
bool term_utf8(void);

/* Bytes per second, in powers of ten as usual for memory: "2.10 GB/s". Returns buffer. */
const char *term_speed(char buffer[TERM_TEXT], uint64_t bytes, double seconds);

/* Make stderr write whole lines, so that they stay whole beside what other programs write. Call this first: before any
 * output. A line without its end needs fflush. */
void term_whole_lines(void);

/* The amount of output on stderr. Set once, before a verb begins. */
enum term_talk {
    TERM_SILENT = -2, /* nothing, not even errors */
    TERM_QUIET = -1,  /* errors; no questions */
    TERM_NORMAL = 0,  /* also warnings; on a terminal also progress, results and questions */
    TERM_VERBOSE = 1  /* also results, and each tensor, even without a terminal */
};
void term_set_talk(int);
void term_set_progress(bool); /* whether to show progress */
int term_talk(void);

/* Whether a prompt is possible: stdin and stderr are terminals, and talk is not restricted. */
bool term_can_ask(void);

/* Prompt with "picitool: FILE: question [y/N] " and read the answer. True: yes. */
bool term_ask(const char *file, const char *question);

/* Progress of a verb: one line on stderr, rewritten in place. It appears only on a terminal, and only after a
 * second. */
struct progress {
    const char *what; /* the file */
    uint64_t total;   /* bytes of the input; 0: unknown */
    double start, shown;
    bool live, drawn;
    bool part; /* part of the total progress */
    uint64_t done, dense;
};

void progress_start(struct progress *progress, const char *what, uint64_t total);
void progress_at(struct progress *progress, uint64_t done,
                 uint64_t dense);             /* done of total; dense: bytes of tensors so far */
void progress_end(struct progress *progress); /* erases the line; call it before other output */

/* Progress over several files, on several threads. Until progress_all_end, one line shows the sum over all files. */
void progress_all_start(const char *what, uint64_t total);
void progress_all_end(void);

/* Block other threads' output to stderr through picitool's functions, for lines of several parts. May be nested. */
void term_lock(void);
void term_unlock(void);

/* Erase the progress line, if there is one, so that an error starts on its own line. */
void progress_wipe(void);

/* Seconds of a monotonic clock. */
double term_now(void);

#endif
