/* SPDX-License-Identifier: BSD-3-Clause */
#include "suggest.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST = sizeof((struct suggest *)0)->best };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The edit distance of a and b, both shorter than LONGEST: insertions, deletions, replacements and swaps of
 * neighbours. */
static size_t edits(const char *a, size_t m, const char *b, size_t n)
{
    size_t rows[3][LONGEST], *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= n; j++)
        last[j] = j;
    for (size_t i = 1; i <= m; i++) {
        now[0] = i;
        for (size_t j = 1; j <= n; j++) {
            now[j] = least(least(last[j], now[j - 1]) + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
        size_t *old = before;
        before = last;
        last = now;
        now = old;
    }
    return last[n];
}

void suggest_start(struct suggest *s, const char *typed)
{
    *s = (struct suggest){.typed = typed, .distance = (size_t)-1};
}

void suggest_word(struct suggest *s, const char *word)
{
    size_t m = strlen(s->typed), n = strlen(word);
    if (m >= LONGEST || n >= LONGEST)
        return;
    size_t d = edits(s->typed, m, word, n);
    /* A third of the word, or one character, may be wrong; or only the beginning was typed. */
    if (m >= 2 && m < n && strncmp(s->typed, word, m) == 0)
        d = least(d, 1);
    if (d > (n < 3 ? 1 : n / 3) || d >= s->distance || d >= n)
        return;
    s->distance = d;
    memcpy(s->best, word, n + 1);
}

const char *suggest_hint(const struct suggest *s, const char *prefix, char buffer[SUGGEST_HINT])
{
    buffer[0] = 0;
    if (s->best[0])
        snprintf(buffer, SUGGEST_HINT, "; did you mean %s%s?", prefix, s->best);
    return buffer;
}
