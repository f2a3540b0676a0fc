/* SPDX-License-Identifier: BSD-3-Clause
 *
 * "Did you mean": the word of several that is nearest to what was typed. */
#ifndef PICI_TOOLS_SUGGEST_H
#define PICI_TOOLS_SUGGEST_H

#include <stddef.h>

enum { SUGGEST_HINT = 128 };

struct suggest {
    const char *typed;
    char best[SUGGEST_HINT - 32]; /* "": none so far */
    size_t distance;              /* its edits */
};

/* Begin; typed must live on, and may be NULL if nothing is asked. */
void suggest_start(struct suggest *, const char *typed);

/* A word that it may have been. Of equally near ones the first stays. */
void suggest_word(struct suggest *, const char *word);

/* "; did you mean WORD?", or "" if no word is near. prefix: what goes before the word, as "--". Returns buf. */
const char *suggest_hint(const struct suggest *, const char *prefix, char buf[SUGGEST_HINT]);

#endif
