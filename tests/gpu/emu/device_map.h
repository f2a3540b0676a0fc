/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The uses of device memory by the threads of a launch. Two uses of a byte by two threads, at least one of which
 * writes, are a race unless something orders them, or both are atomic or relaxed accesses. Order comes from
 *   - the program, within a thread;
 *   - barriers, within a thread block or a warp;
 *   - a fence, then an atomic update or a relaxed store of a word; and in another thread an atomic update or a relaxed
 *     load of it, then a fence. All accesses before the first fence, or ordered before it, are ordered before
 *     all accesses after the second. This is all that orders two thread blocks.
 * These are the rules of the PTX memory model, but for fences that a barrier separates from the word's access. */
#ifndef PICI_TESTS_EMU_DEVICE_MAP_H
#define PICI_TESTS_EMU_DEVICE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "access.h"

namespace emu {

/* Where a thread is. Times of the last barriers of its block and its warp, which rise from one to the next. */
struct position {
    uint64_t block; /* number of the thread block */
    unsigned thread, warp;
    uint64_t block_time, warp_time;
};

/* What precedes a fence: all that its thread did up to a segment, and what barriers order before its position. */
struct release {
    position at;
    uint32_t segment;
};

typedef std::shared_ptr<const std::vector<release>> releases; /* null: none */

/* The part of a thread's state that the map keeps. */
struct device_thread {
    uint32_t segment = 0; /* of its uses since its last barrier or fence; 0: none yet */
    releases known;       /* what is ordered before its next use */
    releases seen;        /* what will be, after its next fence */
    releases released;    /* what its next atomic update or relaxed store passes on */
};

class device_map {
  public:
    /* Forget all uses: a launch begins. */
    void begin();
    /* Note a use. Returns the words that describe a race, or "". */
    std::string use(device_thread &, const position &, const void *, size_t bytes, device_use, unsigned line);
    void fence(device_thread &, const position &);
    /* Both sets. */
    static releases join(const releases &, const releases &);

  private:
    /* The last write of a byte and the last read: a segment, twice, plus 1 for an atomic or relaxed access. */
    struct cell {
        uint32_t write = 0, read = 0;
        uint16_t write_line = 0, read_line = 0;
    };
    static constexpr unsigned PAGE = 4096, CACHED = 256;
    struct page {
        cell at[PAGE];
    };
    /* Of a word that is accessed atomically or relaxed: what its value passes on, and who wrote it, unordered. */
    struct word {
        releases passes;
        std::vector<uint32_t> writers;
    };

    uint32_t segment_of(device_thread &, const position &);
    uint32_t add_segment(const position &);
    bool before(uint32_t segment, const device_thread &, const position &) const;
    bool writers_before(const void *, const device_thread &, const position &);
    uint32_t both(uint32_t segment, const position &);
    cell *cells(uintptr_t);
    std::string words(const char *how, uint32_t other, const char *did, unsigned its_line, const void *, unsigned line,
                      const position &) const;

    std::unordered_map<uintptr_t, std::unique_ptr<page>> pages;
    struct {
        uintptr_t number = 0;
        page *at = nullptr;
    } cache[CACHED];
    std::unordered_map<uintptr_t, word> shared;
    std::vector<position> segments;  /* segment i is at i - first */
    uint32_t first = 1, several = 0; /* of this launch; the last segment made by both() */
};

} // namespace emu

#endif
