/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Evaluates how well a tune file chooses for calls that it does not contain. */
#ifndef PICI_TOOLS_TUNE_REPORT_H
#define PICI_TOOLS_TUNE_REPORT_H

#include "predict/tune.h"

/* Hold out half of the calls, selected by a hash of the call, and choose an algorithm for each by the rest. Print how
 * often the choice is the fastest, and how much slower it is otherwise, beside other rules. 0: too few points, or no
 * memory; the reason is printed. Changes the order of the points. */
int report_tune(struct tune *);

#endif
