/* SPDX-License-Identifier: BSD-3-Clause */
#include "codec/signs.h"

#include "bytes.h"
#include "cpu/kernels.h"

size_t pici_signs_bytes(const struct pici_signs *signs)
{
    return fmt_signs(signs->listed, signs->zeros, signs->unary);
}

unsigned pici_signs_negative(const struct pici_signs *signs)
{
    return signs->flip ? signs->zeros - signs->listed : signs->listed;
}

/* Set a bit for each existing element of the tile without a bit in word. Returns their number. */
static unsigned others(uint64_t zero[TILE_COLS], const uint64_t word[TILE_COLS], unsigned elements)
{
    unsigned count = 0;
    for (unsigned i = 0; i < TILE_COLS; i++) {
        const unsigned remaining = elements > i * 64 ? elements - i * 64 : 0;
        zero[i] = ~word[i] & (remaining < 64 ? (UINT64_C(1) << remaining) - 1 : UINT64_MAX);
        count += (unsigned)__builtin_popcountll(zero[i]);
    }
    return count;
}

/* Invert the first count bits of a list. */
static void flip(uint64_t list[TILE_COLS], unsigned count)
{
    for (unsigned i = 0; i < count / 64; i++)
        list[i] = ~list[i];
    if (count % 64)
        list[count / 64] ^= (UINT64_C(1) << count % 64) - 1;
}

void pici_signs_make(struct pici_signs *signs, uint64_t list[TILE_COLS], const uint64_t word[TILE_COLS],
                     const uint64_t negative[TILE_COLS], unsigned elements)
{
    uint64_t zero[TILE_COLS];
    unsigned count = 0, last = 0, unary = 0;
    const unsigned zeros = others(zero, word, elements);
    pici_isa()->bits->gather(list, negative, zero);
    for (unsigned i = 0; i < TILE_COLS; i++)
        count += (unsigned)__builtin_popcountll(list[i]);
    *signs = (struct pici_signs){.zeros = (uint16_t)zeros, .flip = count > zeros - count};
    if (signs->flip) {
        flip(list, zeros);
        count = zeros - count;
    }
    const unsigned k = count ? fmt_rice(count, zeros) : 0;
    for (unsigned i = 0; count && i < TILE_COLS; i++) {
        if (!k && list[i])
            unary = i * 64 + 64 - (unsigned)__builtin_clzll(list[i]);
        for (uint64_t remaining = k ? list[i] : 0; remaining; remaining &= remaining - 1) {
            const unsigned position = i * 64 + (unsigned)__builtin_ctzll(remaining);
            unary += ((position - last) >> k) + 1;
            last = position + 1;
        }
    }
    signs->listed = (uint16_t)count;
    signs->unary = (uint16_t)unary;
}

void pici_signs_write_descriptor(uint8_t *output, const struct pici_signs *signs)
{
    store_le32(output, (uint32_t)(signs->listed | (signs->flip ? SIGN_FLIP : 0)) | (uint32_t)signs->unary << 16);
}

/* The size of a buffer for the signs of a tile, with space to load or store 8 bytes at each. */
enum { ROOM = (SIGNS_MOST + 15) / 8 * 8 };

/* OR a value < 2^16 into the bits from `position` on. */
static void put_bits(uint8_t *bits, size_t position, unsigned value)
{
    uint8_t *bytes = bits + position / 8;
    store_le32(bytes, load_le32(bytes) | (uint32_t)value << position % 8);
}

uint8_t *pici_signs_write(uint8_t *output, const struct pici_signs *signs, const uint64_t list[TILE_COLS])
{
    uint8_t bits[ROOM] = {0};
    const size_t bytes = pici_signs_bytes(signs), unary = (signs->unary + 7u) / 8;
    const unsigned k = signs->listed ? fmt_rice(signs->listed, signs->zeros) : 0;
    size_t one = 0, remainder = 8 * unary;
    unsigned last = 0;
    for (unsigned i = 0; !k && 64 * i < signs->unary; i++)
        store_le64(bits + 8 * (size_t)i, list[i]);
    for (unsigned i = 0; k && i < TILE_COLS; i++)
        for (uint64_t remaining = list[i]; remaining; remaining &= remaining - 1, one++, remainder += k) {
            const unsigned position = i * 64 + (unsigned)__builtin_ctzll(remaining), gap = position - last;
            one += gap >> k;
            put_bits(bits, one, 1);
            put_bits(bits, remainder, gap & ((1u << k) - 1));
            last = position + 1;
        }
    memcpy(output, bits, bytes);
    return output + bytes;
}

int pici_signs_read_descriptor(struct pici_signs *signs, const uint8_t *descriptor, unsigned zeros)
{
    const uint32_t value = load_le32(descriptor);
    const unsigned listed = value & (SIGN_FLIP - 1), unary = value >> 16;
    *signs = (struct pici_signs){.zeros = (uint16_t)zeros, .flip = (value & SIGN_FLIP) != 0};
    if (2 * listed + signs->flip > zeros || (!listed && (unary || !signs->flip)))
        return 0;
    if (listed && (unary < listed || unary > listed + ((zeros - listed) >> fmt_rice(listed, zeros))))
        return 0;
    signs->listed = (uint16_t)listed;
    signs->unary = (uint16_t)unary;
    return 1;
}

/* Read the list. Returns 0 if it breaks a rule. */
static int read_list(uint64_t list[TILE_COLS], const struct pici_signs *signs)
{
    uint8_t bits[ROOM] = {0};
    const size_t bytes = pici_signs_bytes(signs), unary = (signs->unary + 7u) / 8;
    const unsigned listed = signs->listed, k = listed ? fmt_rice(listed, signs->zeros) : 0;
    unsigned ones = 0, next = 0;
    memset(list, 0, TILE_COLS * sizeof *list);
    if (!listed)
        return 1;
    memcpy(bits, signs->bytes, bytes);
    const unsigned past = signs->unary % 8, over = listed * k % 8;
    if (!(bits[(signs->unary - 1) / 8] >> (signs->unary - 1) % 8 & 1) || (past && bits[unary - 1] >> past) ||
        (over && bits[bytes - 1] >> over))
        return 0;
    for (size_t i = 0; i < unary; i++)
        ones += (unsigned)__builtin_popcount(bits[i]);
    if (ones != listed)
        return 0;
    for (unsigned i = 0; !k && 64 * i < signs->unary; i++) {
        const unsigned left = signs->unary - 64 * i;
        list[i] = load_le64(bits + 8 * (size_t)i) & (left < 64 ? (UINT64_C(1) << left) - 1 : UINT64_MAX);
    }
    size_t rest = 8 * unary;
    unsigned done = 0; /* unary bits */
    for (unsigned i = 0; k && i < unary; i += 8) {
        const uint64_t all = load_le64(bits + i), left = signs->unary - 8 * i;
        for (uint64_t remaining = left < 64 ? all & ((UINT64_C(1) << left) - 1) : all; remaining;
             remaining &= remaining - 1, rest += k) {
            const unsigned position = 8 * i + (unsigned)__builtin_ctzll(remaining);
            const unsigned remainder = load_le32(bits + rest / 8) >> rest % 8 & ((1u << k) - 1);
            next += ((position - done) << k) + remainder;
            if (next >= signs->zeros)
                return 0;
            list[next / 64] |= UINT64_C(1) << next % 64;
            next++;
            done = position + 1;
        }
    }
    return 1;
}

int pici_signs_read(uint64_t negative[TILE_COLS], const struct pici_signs *signs, const uint64_t word[TILE_COLS],
                    unsigned elements)
{
    uint64_t list[TILE_COLS], zero[TILE_COLS];
    if (others(zero, word, elements) != signs->zeros || !read_list(list, signs))
        return 0;
    if (signs->flip)
        flip(list, signs->zeros);
    pici_isa()->bits->spread(negative, list, zero);
    return 1;
}
