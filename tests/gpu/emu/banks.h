/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Counts how often a GPU would access the banks of shared memory. Lanes run one after the other here, so the accesses
 * of an instruction must be joined again. Steps are shuffles, barriers, and calls of hw::in_step, which all lanes pass.
 * Between two steps, the first accesses of a warp's lanes at one line are one instruction, then their second accesses,
 * and so on. */
#ifndef PICI_TESTS_EMU_BANKS_H
#define PICI_TESTS_EMU_BANKS_H

#include <stddef.h>
#include <stdint.h>

#include <array>
#include <map>
#include <vector>

#include "access.h"

namespace emu {

/* The part of a thread's state that the counter keeps. */
struct bank_thread {
    uint64_t step = 0, counted = 0;     /* counted: the step in which `times` was counted */
    std::map<unsigned, unsigned> times; /* of each line, in this step */
};

class bank_counter {
  public:
    /* An access to bytes [at, at + bytes) of shared memory. */
    void use(bank_thread &, uint64_t block, unsigned thread, size_t at, size_t bytes, unsigned line);
    bank_tally total() const;

  private:
    struct access {
        unsigned lane;
        size_t at, bytes;
    };
    std::map<std::array<uint64_t, 5>, std::vector<access>> instructions;
};

} // namespace emu

#endif
