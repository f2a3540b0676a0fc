/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/util/expect.h"

#include <stdio.h>

#include "tests/util/util.h"

void expect(int holds, const char *what, long which)
{
    if (tally_count(holds))
        printf("FAIL %s, %ld\n", what, which);
}
