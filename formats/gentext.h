/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the generators of golden vectors share: the file that is written, its byte strings, and random numbers. Syntax
 * and generator of values: vectors/README.md. */
#ifndef PICI_FORMATS_GENTEXT_H
#define PICI_FORMATS_GENTEXT_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *out;

static inline void fail(const char *what, const char *name)
{
    fprintf(stderr, "%s: %s\n", name, what);
    exit(1);
}

static inline void *memory(size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p)
        fail("no memory", "calloc");
    return p;
}

static uint64_t cases;
static uint64_t state;

static inline uint64_t next(void)
{
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static size_t column;

static inline void put_token(const char *token)
{
    size_t n = strlen(token);
    if (column + n + 1 > 118)
        column = (size_t)fprintf(out, "\n ") - 1;
    column += (size_t)fprintf(out, " %s", token);
}

/* The longest run of equal units at p, in bytes covered. Returns its length in units and sets *unit; 0 if no run is
 * worth a token. */
static inline size_t best_run(size_t *unit, const uint8_t *p, size_t len)
{
    size_t covered = 0, best = 1;
    for (size_t u = 1; u <= 8 && u <= len; u *= 2) {
        size_t n = u;
        while (n < len && p[n] == p[n - u])
            n++;
        n -= n % u;
        if (n > covered) {
            covered = n;
            best = u;
        }
    }
    int worth = covered >= 6 && covered >= 3 * best;
    *unit = worth ? best : 1;
    return worth ? covered / best : 0;
}

static inline void put_bytes(const uint8_t *p, size_t len)
{
    char token[100];
    size_t used = 0;
    for (size_t i = 0; i < len;) {
        size_t unit, times = best_run(&unit, p + i, len - i);
        if (used && (times || used >= 64)) {
            put_token(token);
            used = 0;
        }
        for (size_t k = 0; k < unit; k++)
            used += (size_t)snprintf(token + used, sizeof token - used, "%02x", p[i + k]);
        if (times) {
            snprintf(token + used, sizeof token - used, "*%zu", times);
            put_token(token);
            used = 0;
        }
        i += times ? unit * times : 1;
    }
    if (used)
        put_token(token);
    put_token(".");
    fprintf(out, "\n");
    column = 0;
}

static inline void open_file(const char *directory, const char *name, const char *generator)
{
    char path[1024];
    int n = snprintf(path, sizeof path, "%s/%s", directory, name);
    if (n < 0 || (size_t)n >= sizeof path || !(out = fopen(path, "w")))
        fail("cannot be written", name);
    fprintf(out, "# SPDX-License-Identifier: BSD-3-Clause\n# Written by %s; see README.md.\n", generator);
    cases = 0;
}

static inline void close_file(const char *name)
{
    if (ferror(out) | fclose(out))
        fail("cannot be written", name);
}

#endif
