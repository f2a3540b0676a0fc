/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Hashes of a .pici file made to fit, which no mutation would ever hit. */
#ifndef PICI_FUZZ_SEAL_H
#define PICI_FUZZ_SEAL_H

#include <string.h>

#include "formats/ref.h"
#include "fuzz/fuzz.h"

static inline uint64_t load(const uint8_t *p)
{
    uint64_t v = 0;
    for (int i = 8; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

static inline void store(uint8_t *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

enum { RECORDS = 512 };

/* The entry at body of the index, if it describes the table at h, gets the table's body, if that has its length. */
static inline void repeat_table(uint8_t *entry, size_t room, const uint8_t *h)
{
    const uint64_t n = load(h + 8);
    if (memcmp(h, "TABL", 4) == 0 && room >= 32 && n <= room - 32 && load(entry + 24) == n) {
        memcpy(entry + 20, h + 4, 4);
        memcpy(entry + 32, h + 32, (size_t)n);
    }
}

/* Each record's hashes, in order; where an index or the trailer has the old one, the new one instead. */
static inline void seal(uint8_t *p, size_t len)
{
    static uint64_t old[RECORDS], new[RECORDS];
    static const uint8_t *header[RECORDS];
    size_t records = 0;
    for (size_t at = 16; records < RECORDS && len >= at && len - at >= 32;) {
        uint8_t *h = p + at, *body = h + 32;
        uint64_t n = load(h + 8);
        if (n > len - at - 32)
            break;
        if (memcmp(h, "INDX", 4) == 0)
            for (size_t i = 0; i + 8 <= n; i += 8)
                for (size_t r = 0; r < records; r++)
                    if (load(body + i) == old[r]) {
                        store(body + i, new[r]);
                        if (i >= 8)
                            repeat_table(body + i - 8, (size_t)n - i + 8, header[r]);
                    }
        if (memcmp(h, "BLCK", 4) == 0 && n >= 48 && (body[7] & 2)) {
            store(body + 40, 0);
            store(body + 40, ref_xxh64(body, (size_t)n));
            store(h + 16, load(body + 40));
        } else {
            store(h + 16, ref_xxh64(body, (size_t)n));
        }
        header[records] = h;
        old[records] = load(h + 24);
        new[records] = ref_xxh64(h, 24);
        store(h + 24, new[records++]);
        uint64_t step = 32 + ((n + 15) & ~UINT64_C(15));
        if (step > len - at)
            break;
        at += (size_t)step;
    }
    if (len >= 32) {
        uint8_t *t = p + len - 32;
        for (size_t r = 0; r < records; r++)
            if (load(t + 8) == old[r])
                store(t + 8, new[r]);
        store(t + 16, ref_xxh64(t, 16));
    }
}

#endif
