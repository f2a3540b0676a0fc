/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Defers operations in programs that do not use the emulator's interface. They are linked with -Wl,--wrap=main. */
#include "cuda_runtime.h"

extern "C" int __real_main(int argc, char **argv);
extern "C" int __wrap_main(int argc, char **argv);

extern "C" int __wrap_main(int argc, char **argv)
{
    emu::defer(1);
    return __real_main(argc, argv);
}
