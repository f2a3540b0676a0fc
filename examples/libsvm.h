/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Examples in LIBSVM's text format, one on each line:
 *     LABEL INDEX:VALUE INDEX:VALUE ...      # a comment until the end of the line
 * Labels and values are finite decimal numbers. Indices are integers from 1, in rising order. Features that are not
 * listed are zero. */
#ifndef EXAMPLES_LIBSVM_H
#define EXAMPLES_LIBSVM_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LIBSVM_MAX_FEATURES INT32_MAX

struct libsvm {
    size_t rows;
    uint32_t features; /* the highest index */
    size_t *start;     /* [rows + 1]: row r has the entries [start[r], start[r + 1]) */
    float *label;      /* [rows] */
    uint32_t *index;   /* [entries] features, from 0, rising within a row */
    float *value;      /* [entries] */
};

struct libsvm_error {
    size_t line; /* from 1; 0: no line in particular */
    const char *why;
};

static inline void libsvm_free(struct libsvm *d)
{
    free(d->start);
    free(d->label);
    free(d->index);
    free(d->value);
    memset(d, 0, sizeof *d);
}

/* Allocate arrays for so many rows and entries. False if there is no memory. The caller calls libsvm_free in any
 * case. */
static inline bool libsvm_allocate(struct libsvm *d, size_t rows, size_t entries)
{
    memset(d, 0, sizeof *d);
    if (rows == SIZE_MAX || entries == SIZE_MAX)
        return false;
    d->start = calloc(rows + 1, sizeof *d->start);
    d->label = calloc(rows + 1, sizeof *d->label); /* one more, since calloc(0) may return NULL */
    d->index = calloc(entries + 1, sizeof *d->index);
    d->value = calloc(entries + 1, sizeof *d->value);
    return d->start && d->label && d->index && d->value;
}

struct libsvm_cursor {
    const char *at, *end;
};

static inline void libsvm_skip_blanks(struct libsvm_cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\r'))
        c->at++;
}

/* The number of characters from the cursor on that are in set. */
static inline size_t libsvm_span(const struct libsvm_cursor *c, const char *set)
{
    size_t n = 0;
    while (c->at + n < c->end && c->at[n] && strchr(set, c->at[n]))
        n++;
    return n;
}

/* Parse a decimal number. Refuses the hexadecimal numbers, infinities and NaNs of strtod, and what a float cannot
 * hold. */
static inline bool libsvm_number(struct libsvm_cursor *c, float *number)
{
    char copy[64], *end;
    const size_t n = libsvm_span(c, "+-.0123456789eE");
    if (n == 0 || n >= sizeof copy)
        return false;
    memcpy(copy, c->at, n);
    copy[n] = '\0';
    *number = (float)strtod(copy, &end);
    c->at += n;
    return *end == '\0' && isfinite(*number);
}

static inline bool libsvm_index(struct libsvm_cursor *c, uint32_t *index)
{
    const size_t n = libsvm_span(c, "0123456789");
    uint64_t v = 0;
    for (size_t i = 0; i < n && v <= LIBSVM_MAX_FEATURES; i++)
        v = 10 * v + (uint64_t)(c->at[i] - '0');
    c->at += n;
    *index = (uint32_t)(v - 1);
    return v >= 1 && v <= LIBSVM_MAX_FEATURES;
}

/* Parse the line at the cursor and append it to *d, which has room for it. Returns NULL, or the error. */
static inline const char *libsvm_line(struct libsvm *d, struct libsvm_cursor *c)
{
    libsvm_skip_blanks(c);
    if (c->at == c->end || *c->at == '#')
        return NULL;
    size_t n = d->start[d->rows];
    if (!libsvm_number(c, &d->label[d->rows]))
        return "the label is not a finite number";
    for (;;) {
        const char *const before = c->at;
        libsvm_skip_blanks(c);
        if (c->at == c->end || *c->at == '#')
            break;
        if (c->at == before)
            return "no blank between two fields";
        if (!libsvm_index(c, &d->index[n]) || c->at == c->end || *c->at != ':')
            return "a field is not INDEX:VALUE, with an index from 1 to 2147483647";
        c->at++;
        if (n > d->start[d->rows] && d->index[n] <= d->index[n - 1])
            return "indices do not rise";
        if (!libsvm_number(c, &d->value[n]))
            return "a value is not a finite number";
        if (d->features <= d->index[n])
            d->features = d->index[n] + 1;
        n++;
    }
    d->start[++d->rows] = n;
    return NULL;
}

/* Parse len bytes of untrusted text. True: *d is set, for libsvm_free. False: *err is set, and nothing is to be freed.
 * Memory is proportional to len. */
static inline bool libsvm_parse(struct libsvm *d, const char *text, size_t len, struct libsvm_error *err)
{
    size_t lines = 1, colons = 0;
    for (size_t i = 0; i < len; i++) {
        lines += text[i] == '\n';
        colons += text[i] == ':';
    }
    *err = (struct libsvm_error){0, NULL};
    if (!libsvm_allocate(d, lines, colons + 1)) /* one more: an index is stored before its colon is checked */
        err->why = "no memory";
    for (size_t at = 0; at < len && !err->why;) {
        const char *const newline = memchr(text + at, '\n', len - at);
        const size_t n = newline ? (size_t)(newline - (text + at)) : len - at;
        err->line++;
        err->why = libsvm_line(d, &(struct libsvm_cursor){text + at, text + at + n});
        at += n + (newline != NULL);
    }
    if (!err->why && d->rows == 0)
        *err = (struct libsvm_error){0, "no examples"};
    if (err->why)
        libsvm_free(d);
    return !err->why;
}

#endif
