/* SPDX-License-Identifier: BSD-3-Clause */
#include "banks.h"

#include <algorithm>
#include <set>

namespace emu {

void bank_counter::use(bank_thread &t, uint64_t block, unsigned thread, size_t at, size_t bytes, unsigned line)
{
    if (t.counted != t.step) {
        t.times.clear();
        t.counted = t.step;
    }
    instructions[{block, thread / 32, t.step, line, t.times[line]++}].push_back({thread % 32, at, bytes});
}

bank_tally bank_counter::total() const
{
    constexpr unsigned BANKS = 32, WORD = 4;
    bank_tally sum = {0, 0, 0};
    for (const auto &entry : instructions) {
        /* at most 128 bytes at once: elements of 8 bytes go by halves of a warp, those of 16 by quarters */
        std::set<size_t> words[4][BANKS];
        for (const access &a : entry.second)
            for (size_t b = a.at; b < a.at + a.bytes; b += WORD)
                words[a.bytes <= WORD ? 0 : a.lane / (32 * WORD / a.bytes)][b / WORD % BANKS].insert(b / WORD);
        sum.instructions++;
        for (const auto &part : words) {
            size_t most = 0;
            for (const auto &bank : part)
                most = std::max(most, bank.size());
            sum.least += most ? 1 : 0;
            sum.wavefronts += most;
        }
    }
    return sum;
}

} // namespace emu
