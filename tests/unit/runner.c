/* SPDX-License-Identifier: BSD-3-Clause */
/* What the leak sanitizer is told of the unit tests' runner. Criterion runs each test in a process of its own, which
 * gets the variable BXFI_MAP; the runner's other thread frees the last test's time limit, perhaps after the runner's
 * end. So leaks are sought in the tests' processes alone. */
#include <stdlib.h>

int __lsan_is_turned_off(void); /* sanitizer/lsan_interface.h */

int __lsan_is_turned_off(void)
{
    return getenv("BXFI_MAP") == NULL;
}
