/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "delta/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xxh64.h"

static const char head[] = "pici-log 1\n";

static int print_file(char *to, size_t cap, const struct manifest_file *f)
{
    return snprintf(to, cap, " %" PRIu64 " %016" PRIx64, f->bytes, f->hash);
}

/* The line of a state or a delta: a word, a number, one or two files, and an extension or nothing. */
static int print_line(char line[256], const char *word, uint64_t number, const struct manifest_file *a,
                      const struct manifest_file *b, const char *extension)
{
    int n = snprintf(line, 256, "%s %" PRIu64, word, number);
    n += print_file(line + n, 256 - (size_t)n, a);
    if (b)
        n += print_file(line + n, 256 - (size_t)n, b);
    return n + snprintf(line + n, 256 - (size_t)n, "%s%s\n", *extension ? " " : "", extension);
}

char *pici_manifest_text(const struct manifest *m, size_t *len)
{
    char *text = NULL, line[256];
    FILE *f = open_memstream(&text, len);
    if (!f)
        return NULL;
    fputs(head, f);
    print_line(line, "first", m->first, &m->start, NULL, "");
    fputs(line, f);
    print_line(line, "base", m->base, &m->whole, NULL, m->extension);
    fputs(line, f);
    for (uint64_t i = 0; i < m->deltas; i++) {
        print_line(line, "delta", m->first + 1 + i, &m->delta[i].delta, &m->delta[i].state, "");
        fputs(line, f);
    }
    fflush(f);
    fprintf(f, "end %016" PRIx64 "\n", pici_xxh64(text, *len, 0));
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

bool pici_manifest_extension(const char *e)
{
    return strlen(e) < sizeof((struct manifest *)0)->extension && (!*e || *e == '.') && !strpbrk(e, "/ \t\n\v\f\r");
}

/* Reads the line that must be next: scans it, prints what was read, and compares, so that a manifest has one form. */
static bool take_line(const char *text, size_t len, size_t *at, const char *word, uint64_t *number,
                      struct manifest_file *a, struct manifest_file *b, char extension[16])
{
    char line[256], again[256], found[16] = "";
    const char *const end = memchr(text + *at, '\n', len - *at);
    const size_t n = end ? (size_t)(end - text) - *at + 1 : 0;
    char read[8];
    if (!n || n >= sizeof line)
        return false;
    memcpy(line, text + *at, n);
    line[n] = 0;
    if (strlen(line) != n)
        return false;
    const int got =
        b ? sscanf(line, "%7s %" SCNu64 " %" SCNu64 " %" SCNx64 " %" SCNu64 " %" SCNx64, read, number, &a->bytes,
                   &a->hash, &b->bytes, &b->hash)
          : sscanf(line, "%7s %" SCNu64 " %" SCNu64 " %" SCNx64 " %15s", read, number, &a->bytes, &a->hash, found);
    if (got < (b ? 6 : 4) || strcmp(read, word) != 0 || (*found && (!extension || !pici_manifest_extension(found))))
        return false;
    print_line(again, word, *number, a, b, found);
    if (strcmp(again, line) != 0)
        return false;
    if (extension)
        memcpy(extension, found, sizeof found);
    *at += n;
    return true;
}

bool pici_manifest_parse(struct manifest *m, const char *text, size_t len, struct parse_error *err)
{
    enum { END = 4 + 16 + 1 };
    char end[32];
    size_t at = sizeof head - 1;
    *m = (struct manifest){0};
    if (len < at + END || memcmp(text, head, at) != 0)
        return pici_parse_fail(err, 0, "not a manifest of a log of deltas, or cut off");
    snprintf(end, sizeof end, "end %016" PRIx64 "\n", pici_xxh64(text, len - END, 0));
    if (memcmp(text + len - END, end, END) != 0)
        return pici_parse_fail(err, len - END, "the manifest is incomplete or damaged");
    const size_t most = len - END;
    if (!take_line(text, most, &at, "first", &m->first, &m->start, NULL, NULL) ||
        !take_line(text, most, &at, "base", &m->base, &m->whole, NULL, m->extension))
        return pici_parse_fail(err, at, "a malformed line of a state");
    size_t room = 1;
    for (size_t i = at; i < most; i++)
        room += text[i] == '\n';
    m->delta = calloc(room, sizeof *m->delta);
    if (!m->delta)
        return pici_parse_fail(err, 0, "out of memory for the manifest");
    for (uint64_t number; at < most; m->deltas++) {
        struct manifest_delta *const d = &m->delta[m->deltas];
        if (!take_line(text, most, &at, "delta", &number, &d->delta, &d->state, NULL) ||
            number != m->first + 1 + m->deltas) {
            pici_manifest_free(m);
            return pici_parse_fail(err, at, "a malformed line of a delta, or out of order");
        }
    }
    if (m->first > UINT64_MAX - m->deltas || m->base < m->first || m->base > pici_manifest_newest(m) ||
        memcmp(&m->whole, pici_manifest_state(m, m->base), sizeof m->whole) != 0) {
        pici_manifest_free(m);
        return pici_parse_fail(err, 0, "the base is none of the states");
    }
    return true;
}

void pici_manifest_base_name(char name[MANIFEST_NAME_MOST], const struct manifest *m)
{
    snprintf(name, MANIFEST_NAME_MOST, "base-%09" PRIu64 "%s", m->base, m->extension);
}

void pici_manifest_delta_name(char name[MANIFEST_NAME_MOST], uint64_t state)
{
    snprintf(name, MANIFEST_NAME_MOST, "delta-%09" PRIu64 ".pici", state);
}

uint64_t pici_manifest_newest(const struct manifest *m)
{
    return m->first + m->deltas;
}

const struct manifest_file *pici_manifest_state(const struct manifest *m, uint64_t state)
{
    return state == m->first ? &m->start : &m->delta[state - m->first - 1].state;
}

void pici_manifest_free(struct manifest *m)
{
    free(m->delta);
    *m = (struct manifest){0};
}
