/* SPDX-License-Identifier: BSD-3-Clause */
#include "suggest.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST = sizeof((struct suggest *)0)->best };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The edit distance of two words shorter than LONGEST: insertions, deletions, replacements, and swaps of neighbours. */
static size_t edits(const char *first, size_t size_a, const char *second, size_t size_b)
{
    size_t rows[3][LONGEST], *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= size_b; j++)
        last[j] = j;
    for (size_t i = 1; i <= size_a; i++) {
        now[0] = i;
        for (size_t j = 1; j <= size_b; j++) {
            now[j] = least(least(last[j], now[j - 1]) + 1, last[j - 1] + (first[i - 1] != second[j - 1]));
            if (i > 1 && j > 1 && first[i - 1] == second[j - 2] && first[i - 2] == second[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
        size_t *old = before;
        before = last;
        last = now;
        now = old;
    }
    return last[size_b];
}

void suggest_start(struct suggest *suggestion, const char *typed)
{
    *suggestion = (struct suggest){.typed = typed, .distance = (size_t)-1};
}

void suggest_word(struct suggest *suggestion, const char *word)
{
    size_t typed_size = strlen(suggestion->typed), word_size = strlen(word);
    if (typed_size >= LONGEST || word_size >= LONGEST)
        return;
    size_t distance = edits(suggestion->typed, typed_size, word, word_size);
    /* Accept a word with up to a third of its characters wrong, or one character, or a typed prefix of it. */
    if (typed_size >= 2 && typed_size < word_size && strncmp(suggestion->typed, word, typed_size) == 0)
        distance = least(distance, 1);
    if (distance > (word_size < 3 ? 1 : word_size / 3) || distance >= suggestion->distance || distance >= word_size)
        return;
    suggestion->distance = distance;
    memcpy(suggestion->best, word, word_size + 1);
}

const char *suggest_hint(const struct suggest *suggestion, const char *prefix, char buffer[SUGGEST_HINT])
{
    buffer[0] = 0;
    if (suggestion->best[0])
        snprintf(buffer, SUGGEST_HINT, "; did you mean %s%s?", prefix, suggestion->best);
    return buffer;
}
