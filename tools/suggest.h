/* SPDX-License-Identifier: BSD-3-Clause
 *
 * "Did you mean": finds the word nearest to the typed one. */
#ifndef PICI_TOOLS_SUGGEST_H
#define PICI_TOOLS_SUGGEST_H

#include <stddef.h>

enum { SUGGEST_HINT = 128 };

struct suggest {
    const char *typed;
    char best[SUGGEST_HINT - 32]; /* "": none so far */
    size_t distance;              /* edits between typed and best */
};

/* Start a search. typed must stay valid; NULL: no search. */
void suggest_start(struct suggest *, const char *typed);

/* Consider a word. On a tie, the first one stays. */
void suggest_word(struct suggest *, const char *word);

/* "; did you mean WORD?", or "" if no word is near. prefix: goes before the word, such as "--". Returns buffer. */
const char *suggest_hint(const struct suggest *, const char *prefix, char buffer[SUGGEST_HINT]);

#endif
