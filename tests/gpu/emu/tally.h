/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Counts passed and failed checks, for the tests of the emulator. Include it once a program. */
#ifndef PICI_TESTS_EMU_TALLY_H
#define PICI_TESTS_EMU_TALLY_H

#include <stdio.h>

static unsigned passed, failed;

static void tally(bool good, const char *what, const char *got)
{
    if (good) {
        passed++;
    } else {
        failed++;
        printf("FAIL %s: %s\n", what, got);
    }
}

#endif
