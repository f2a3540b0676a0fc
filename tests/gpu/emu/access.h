/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the emulator of thread blocks and its parts say about accesses to memory. */
#ifndef PICI_TESTS_EMU_ACCESS_H
#define PICI_TESTS_EMU_ACCESS_H

#include <stdint.h>

namespace emu {

/* Of device memory. */
enum device_use { LOAD, STORE, RELAXED_LOAD, RELAXED_STORE, UPDATE };

/* Of shared memory. An instruction is the same access by the lanes of a warp. There are 32 banks. It takes one
 * wavefront if no two lanes access different words of 4 bytes of one bank; wider elements take at least one for each
 * 128 bytes. */
struct bank_tally {
    uint64_t instructions, least, wavefronts; /* least: wavefronts without any conflict */
};

} // namespace emu

#endif
