/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How well a tune file chooses among calls that it was not told of. */
#ifndef PICI_TOOLS_TUNE_REPORT_H
#define PICI_TOOLS_TUNE_REPORT_H

#include "predict/tune.h"

/* Hold out a fifth of the calls, by a hash of the call; choose for each by the rest; and print how often the choice is
 * the fastest, and how much longer it takes than that. Other rules beside it. 0: there is too little, or no memory,
 * which is printed. Changes the order of the points. */
int report_tune(struct tune *);

#endif
