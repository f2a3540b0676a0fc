/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Numbers as text, in any locale. */
#ifndef PICI_LIB_PREDICT_NUMBER_H
#define PICI_LIB_PREDICT_NUMBER_H

#include <stddef.h>

enum { NUMBER_TEXT = 32, NUMBER_LONGEST = 64 };

/* A number >= 0 at text [size]: digits with at most one point, then perhaps e or E, a sign, and digits. No spaces, at
 * most NUMBER_LONGEST characters. Sets *value to the nearest double. Returns 0 for text that is no number, or too large
 * for a double. */
int pici_number_read(const char *text, size_t size, double *value);

/* Print a finite number >= 0 with the fewest digits that read back as the same number. */
void pici_number_print(char text[NUMBER_TEXT], double value);

#endif
