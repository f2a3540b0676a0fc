/* SPDX-License-Identifier: BSD-3-Clause */
#include "codec/signs.h"

#include "bytes.h"
#include "cpu/kernels.h"

size_t pici_signs_bytes(const struct pici_signs *s)
{
    return fmt_signs(s->listed, s->zeros, s->unary);
}

unsigned pici_signs_negative(const struct pici_signs *s)
{
    return s->flip ? s->zeros - s->listed : s->listed;
}

/* A bit for each of the tile's elements that exists and is not set in word; returns how many. */
static unsigned others(uint64_t zero[TILE_COLS], const uint64_t word[TILE_COLS], unsigned len)
{
    unsigned n = 0;
    for (unsigned i = 0; i < TILE_COLS; i++) {
        const unsigned left = len > i * 64 ? len - i * 64 : 0;
        zero[i] = ~word[i] & (left < 64 ? (UINT64_C(1) << left) - 1 : UINT64_MAX);
        n += (unsigned)__builtin_popcountll(zero[i]);
    }
    return n;
}

/* Set the bits of a list below n that were clear, and clear those that were set. */
static void flip(uint64_t list[TILE_COLS], unsigned n)
{
    for (unsigned i = 0; i < n / 64; i++)
        list[i] = ~list[i];
    if (n % 64)
        list[n / 64] ^= (UINT64_C(1) << n % 64) - 1;
}

void pici_signs_make(struct pici_signs *s, uint64_t list[TILE_COLS], const uint64_t word[TILE_COLS],
                     const uint64_t negative[TILE_COLS], unsigned len)
{
    uint64_t zero[TILE_COLS];
    unsigned n = 0, last = 0, unary = 0;
    const unsigned zeros = others(zero, word, len);
    pici_isa()->bits->gather(list, negative, zero);
    for (unsigned i = 0; i < TILE_COLS; i++)
        n += (unsigned)__builtin_popcountll(list[i]);
    *s = (struct pici_signs){.zeros = (uint16_t)zeros, .flip = n > zeros - n};
    if (s->flip) {
        flip(list, zeros);
        n = zeros - n;
    }
    const unsigned k = n ? fmt_rice(n, zeros) : 0;
    for (unsigned i = 0; n && i < TILE_COLS; i++) {
        if (!k && list[i])
            unary = i * 64 + 64 - (unsigned)__builtin_clzll(list[i]);
        for (uint64_t w = k ? list[i] : 0; w; w &= w - 1) {
            const unsigned at = i * 64 + (unsigned)__builtin_ctzll(w);
            unary += ((at - last) >> k) + 1;
            last = at + 1;
        }
    }
    s->listed = (uint16_t)n;
    s->unary = (uint16_t)unary;
}

void pici_signs_write_descriptor(uint8_t *out, const struct pici_signs *s)
{
    store_le32(out, (uint32_t)(s->listed | (s->flip ? SIGN_FLIP : 0)) | (uint32_t)s->unary << 16);
}

/* A buffer for the signs of a tile, with room to load or store 8 bytes at each of them. */
enum { ROOM = (SIGNS_MOST + 15) / 8 * 8 };

/* Or v < 2^16 into the bits from `at` on. */
static void put_bits(uint8_t *bits, size_t at, unsigned v)
{
    uint8_t *p = bits + at / 8;
    store_le32(p, load_le32(p) | (uint32_t)v << at % 8);
}

uint8_t *pici_signs_write(uint8_t *out, const struct pici_signs *s, const uint64_t list[TILE_COLS])
{
    uint8_t bits[ROOM] = {0};
    const size_t bytes = pici_signs_bytes(s), unary = (s->unary + 7u) / 8;
    const unsigned k = s->listed ? fmt_rice(s->listed, s->zeros) : 0;
    size_t one = 0, rest = 8 * unary;
    unsigned last = 0;
    for (unsigned i = 0; !k && 64 * i < s->unary; i++)
        store_le64(bits + 8 * (size_t)i, list[i]);
    for (unsigned i = 0; k && i < TILE_COLS; i++)
        for (uint64_t w = list[i]; w; w &= w - 1, one++, rest += k) {
            const unsigned at = i * 64 + (unsigned)__builtin_ctzll(w), gap = at - last;
            one += gap >> k;
            put_bits(bits, one, 1);
            put_bits(bits, rest, gap & ((1u << k) - 1));
            last = at + 1;
        }
    memcpy(out, bits, bytes);
    return out + bytes;
}

int pici_signs_read_descriptor(struct pici_signs *s, const uint8_t *descriptor, unsigned zeros)
{
    const uint32_t v = load_le32(descriptor);
    const unsigned m = v & (SIGN_FLIP - 1), unary = v >> 16;
    *s = (struct pici_signs){.zeros = (uint16_t)zeros, .flip = (v & SIGN_FLIP) != 0};
    if (2 * m + s->flip > zeros || (!m && (unary || !s->flip)))
        return 0;
    if (m && (unary < m || unary > m + ((zeros - m) >> fmt_rice(m, zeros))))
        return 0;
    s->listed = (uint16_t)m;
    s->unary = (uint16_t)unary;
    return 1;
}

/* Read the list. 0 if it breaks a rule. */
static int read_list(uint64_t list[TILE_COLS], const struct pici_signs *s)
{
    uint8_t bits[ROOM] = {0};
    const size_t bytes = pici_signs_bytes(s), unary = (s->unary + 7u) / 8;
    const unsigned m = s->listed, k = m ? fmt_rice(m, s->zeros) : 0;
    unsigned ones = 0, next = 0;
    memset(list, 0, TILE_COLS * sizeof *list);
    if (!m)
        return 1;
    memcpy(bits, s->bytes, bytes);
    const unsigned past = s->unary % 8, over = m * k % 8;
    if (!(bits[(s->unary - 1) / 8] >> (s->unary - 1) % 8 & 1) || (past && bits[unary - 1] >> past) ||
        (over && bits[bytes - 1] >> over))
        return 0;
    for (size_t i = 0; i < unary; i++)
        ones += (unsigned)__builtin_popcount(bits[i]);
    if (ones != m)
        return 0;
    for (unsigned i = 0; !k && 64 * i < s->unary; i++) {
        const unsigned left = s->unary - 64 * i;
        list[i] = load_le64(bits + 8 * (size_t)i) & (left < 64 ? (UINT64_C(1) << left) - 1 : UINT64_MAX);
    }
    size_t rest = 8 * unary;
    unsigned done = 0; /* unary bits */
    for (unsigned i = 0; k && i < unary; i += 8) {
        const uint64_t all = load_le64(bits + i), left = s->unary - 8 * i;
        for (uint64_t w = left < 64 ? all & ((UINT64_C(1) << left) - 1) : all; w; w &= w - 1, rest += k) {
            const unsigned at = 8 * i + (unsigned)__builtin_ctzll(w);
            const unsigned remainder = load_le32(bits + rest / 8) >> rest % 8 & ((1u << k) - 1);
            next += ((at - done) << k) + remainder;
            if (next >= s->zeros)
                return 0;
            list[next / 64] |= UINT64_C(1) << next % 64;
            next++;
            done = at + 1;
        }
    }
    return 1;
}

int pici_signs_read(uint64_t negative[TILE_COLS], const struct pici_signs *s, const uint64_t word[TILE_COLS],
                    unsigned len)
{
    uint64_t list[TILE_COLS], zero[TILE_COLS];
    if (others(zero, word, len) != s->zeros || !read_list(list, s))
        return 0;
    if (s->flip)
        flip(list, s->zeros);
    pici_isa()->bits->spread(negative, list, zero);
    return 1;
}
