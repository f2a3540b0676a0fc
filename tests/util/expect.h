/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Tests of plain programs that have a number, such as the number of ranks. Ends with tally_end (util.h). */
#ifndef PICI_TESTS_EXPECT_H
#define PICI_TESTS_EXPECT_H

/* Count a test. If it does not hold, print what was tested, and which one. */
void expect(int holds, const char *what, long which);

#endif
