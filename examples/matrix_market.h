/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Square sparse matrices: a parser of Matrix Market's coordinate files, and two generators. Rows are compressed, with
 * columns rising. Values are rounded to integers of at most 8 bits, so that sums of products are exact in any order. */
#ifndef EXAMPLES_MATRIX_MARKET_H
#define EXAMPLES_MATRIX_MARKET_H

#include <ctype.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MATRIX_MOST_ROWS = 1 << 24, MATRIX_MOST_ENTRIES = 1 << 28, MATRIX_LINE = 1100 };

struct matrix {
    uint32_t rows;
    size_t *begin; /* [rows + 1] */
    uint32_t *column;
    double *value;
};

struct matrix_entry {
    uint32_t row, column;
    double value;
};

static inline void matrix_free(struct matrix *x)
{
    free(x->begin);
    free(x->column);
    free(x->value);
}

static inline int matrix_order(const void *a, const void *b)
{
    const struct matrix_entry *x = a, *y = b;
    if (x->row != y->row)
        return x->row < y->row ? -1 : 1;
    return (x->column > y->column) - (x->column < y->column);
}

/* Sort entries and compress them; of entries with the same place the first stays. 0: no memory. */
static inline int matrix_compress(struct matrix *x, uint32_t rows, struct matrix_entry *e, size_t n)
{
    *x = (struct matrix){.rows = rows,
                         .begin = calloc((size_t)rows + 1, sizeof *x->begin),
                         .column = malloc((n + 1) * sizeof *x->column),
                         .value = malloc((n + 1) * sizeof *x->value)};
    if (!x->begin || !x->column || !x->value) {
        matrix_free(x);
        return 0;
    }
    if (n)
        qsort(e, n, sizeof *e, matrix_order);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (i && e[i].row == e[i - 1].row && e[i].column == e[i - 1].column)
            continue;
        x->column[kept] = e[i].column;
        x->value[kept++] = e[i].value;
        x->begin[e[i].row + 1] = kept;
    }
    for (uint32_t r = 0; r < rows; r++)
        x->begin[r + 1] = x->begin[r + 1] > x->begin[r] ? x->begin[r + 1] : x->begin[r];
    return 1;
}

/* ---- Matrix Market */

enum matrix_symmetry { MATRIX_GENERAL, MATRIX_SYMMETRIC, MATRIX_SKEW };

struct matrix_head {
    int pattern;
    enum matrix_symmetry symmetry;
};

/* The first line: "%%MatrixMarket matrix coordinate FIELD SYMMETRY". Returns NULL, or the error. */
static inline const char *matrix_head(struct matrix_head *h, const char *line)
{
    char word[5][32] = {"", "", "", "", ""};
    if (sscanf(line, "%31s %31s %31s %31s %31s", word[0], word[1], word[2], word[3], word[4]) != 5 ||
        strcmp(word[0], "%%MatrixMarket") != 0)
        return "not a Matrix Market file";
    for (int i = 1; i < 5; i++)
        for (char *c = word[i]; *c; c++)
            *c = (char)tolower((unsigned char)*c);
    if (strcmp(word[1], "matrix") != 0 || strcmp(word[2], "coordinate") != 0)
        return "not a matrix in coordinates";
    h->pattern = strcmp(word[3], "pattern") == 0;
    if (!h->pattern && strcmp(word[3], "real") != 0 && strcmp(word[3], "integer") != 0)
        return "elements are neither real nor integer nor a pattern";
    if (strcmp(word[4], "general") == 0)
        h->symmetry = MATRIX_GENERAL;
    else if (strcmp(word[4], "symmetric") == 0)
        h->symmetry = MATRIX_SYMMETRIC;
    else if (strcmp(word[4], "skew-symmetric") == 0)
        h->symmetry = MATRIX_SKEW;
    else
        return "a symmetry other than general, symmetric and skew-symmetric";
    return NULL;
}

/* Parse a positive integer of at most `most`, and move *at behind it. 0: there is none. */
static inline uint64_t matrix_number(const char **at, uint64_t most)
{
    uint64_t x = 0;
    while (**at == ' ' || **at == '\t')
        ++*at;
    for (; **at >= '0' && **at <= '9'; ++*at) {
        x = x * 10 + (uint64_t)(**at - '0');
        if (x > most)
            return 0;
    }
    return x;
}

static inline double matrix_small(double v)
{
    const double r = fabs(v) <= 1e15 ? fmod(trunc(v), 127) : 1;
    return r != 0 ? r : 1;
}

/* The next line that is neither empty nor a comment; 0: there is none, or it is too long. */
static inline int matrix_line(FILE *in, char line[MATRIX_LINE])
{
    while (fgets(line, MATRIX_LINE, in)) {
        if (!strchr(line, '\n') && !feof(in))
            return 0;
        if (line[0] != '%' && line[strspn(line, " \t\r\n")])
            return 1;
    }
    return 0;
}

/* Returns NULL, or the error. Allocates entries as they come, not by the number that the file states. */
static inline const char *matrix_entries(struct matrix_entry **e, size_t *n, uint32_t *rows, FILE *in)
{
    struct matrix_head head;
    char line[MATRIX_LINE];
    size_t room = 0;
    const char *at = line, *wrong = fgets(line, sizeof line, in) ? matrix_head(&head, line) : "an empty file";
    if (wrong)
        return wrong;
    if (!matrix_line(in, line))
        return "no line of sizes";
    *rows = (uint32_t)matrix_number(&at, MATRIX_MOST_ROWS);
    const uint64_t columns = matrix_number(&at, MATRIX_MOST_ROWS), stored = matrix_number(&at, MATRIX_MOST_ENTRIES);
    if (!*rows || *rows != columns)
        return "not a square matrix, or too large";
    for (uint64_t k = 0; k < stored; k++) {
        if (!matrix_line(in, line))
            return "fewer entries than it says";
        at = line;
        const uint64_t row = matrix_number(&at, *rows), column = matrix_number(&at, *rows);
        char *end;
        const double value = head.pattern ? 1 : strtod(at, &end);
        if (!row || !column || (!head.pattern && (end == at || !isfinite(value))))
            return "a line that is no entry";
        if (*n + 2 > room) {
            room = room ? 2 * room : 1024;
            struct matrix_entry *more = realloc(*e, room * sizeof *more);
            if (!more)
                return "no memory";
            *e = more;
        }
        const double v = matrix_small(value);
        (*e)[(*n)++] = (struct matrix_entry){(uint32_t)row - 1, (uint32_t)column - 1, v};
        if (head.symmetry != MATRIX_GENERAL && row != column)
            (*e)[(*n)++] =
                (struct matrix_entry){(uint32_t)column - 1, (uint32_t)row - 1, head.symmetry == MATRIX_SKEW ? -v : v};
    }
    return matrix_line(in, line) ? "more entries than it says" : NULL;
}

/* Read from a stream. Returns NULL, or the error. */
static inline const char *matrix_parse(struct matrix *x, FILE *in)
{
    struct matrix_entry *e = NULL;
    size_t n = 0;
    uint32_t rows = 0;
    const char *wrong = matrix_entries(&e, &n, &rows, in);
    if (!wrong && !matrix_compress(x, rows, e, n))
        wrong = "no memory";
    free(e);
    return wrong;
}

/* 0: `why` has the error. */
static inline int matrix_read(struct matrix *x, const char *path, char *why, size_t bytes)
{
    FILE *in = fopen(path, "r");
    const char *wrong = in ? matrix_parse(x, in) : "cannot be opened";
    if (in)
        fclose(in);
    if (wrong)
        snprintf(why, bytes, "%s", wrong);
    return !wrong;
}

/* ---- generated ones */

/* BODY: 3600 rows, nonzeros in blocks of 6 along a wide band, as of finite elements with 6 unknowns a node. FIELD: 1500
 * rows, a few bands, and rows that couple with all others. */
enum matrix_kind { MATRIX_BODY, MATRIX_FIELD, MATRIX_KINDS };

static inline const char *matrix_kind_name(enum matrix_kind kind)
{
    return kind == MATRIX_BODY ? "body" : "field";
}

static inline int matrix_generate(struct matrix *x, enum matrix_kind kind)
{
    const uint32_t rows = kind == MATRIX_BODY ? 3600 : 1500;
    struct matrix_entry *e = malloc((size_t)rows * 1024 * sizeof *e);
    uint64_t state = 1;
    size_t n = 0;
    for (uint32_t r = 0; r < rows && e; r++)
        for (uint32_t c = 0; c < rows; c++) {
            const uint32_t apart = r > c ? r - c : c - r;
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            const uint32_t draw = (uint32_t)(state >> 40) & 1023;
            const int keep = kind == MATRIX_BODY
                                 ? (apart / 6 < 10 || (apart < 900 && (r / 6 * 31 + c / 6 * 17) % 5 == 0))
                                 : apart < 12 || (apart > 480 && apart < 500) || (r % 40 == 7 && draw < 300);
            if (keep && (n < (size_t)rows * 1024))
                e[n++] = (struct matrix_entry){r, c, (double)(1 + draw % 9)};
        }
    const int made = e && matrix_compress(x, rows, e, n);
    free(e);
    return made;
}

#endif
