/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For programs that know nothing of the emulator, linked with -Wl,--wrap=main: operations are deferred. */
#include "cuda_runtime.h"

extern "C" int __real_main(int argc, char **argv);
extern "C" int __wrap_main(int argc, char **argv);

extern "C" int __wrap_main(int argc, char **argv)
{
    emu::defer(1);
    return __real_main(argc, argv);
}
