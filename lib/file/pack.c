/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Bodies of records that describe something, as LZ4 blocks. The format of such a block is that of LZ4, so that other
 * programs can read it. It says no length: both that of the block and that of its content are known from elsewhere. */
#include <string.h>

#include "file/pack.h"

/* A block is sequences: a byte with two lengths of 4 bits, literals, and a copy of 4 or more earlier bytes by its
 * distance, which the last sequence has not. A length that begins with 15 goes on in bytes, up to one below 255. */
enum { COPY_LEAST = 4, DISTANCE_MOST = 65535, LENGTH_SHORT = 15 };
enum { LAST_LITERALS = 5, COPY_BEFORE_END = 12 /* LZ4 ends no copy and begins none later */ };
enum { SLOT_BITS = 12 };

static unsigned slot_of(const uint8_t *p)
{
    return load_le32(p) * UINT32_C(2654435761) >> (32 - SLOT_BITS);
}

/* The block so far; full once something did not fit. */
struct packing {
    uint8_t *to;
    size_t len, cap;
    int full;
};

static void put_length(struct packing *out, size_t length)
{
    for (; length >= 255 && out->len < out->cap; length -= 255)
        out->to[out->len++] = 255;
    out->full = out->full || out->len >= out->cap;
    if (!out->full)
        out->to[out->len++] = (uint8_t)length;
}

/* A sequence; copied is 0 in the last. */
static void put_sequence(struct packing *out, const uint8_t *literals, size_t n, size_t distance, size_t copied)
{
    const size_t more = copied ? copied - COPY_LEAST : 0;
    out->full = out->full || out->cap - out->len < 1 + n + 2;
    if (out->full)
        return;
    out->to[out->len++] =
        (uint8_t)((n < LENGTH_SHORT ? n : LENGTH_SHORT) << 4 | (more < LENGTH_SHORT ? more : LENGTH_SHORT));
    if (n >= LENGTH_SHORT)
        put_length(out, n - LENGTH_SHORT);
    if (out->full || out->cap - out->len < n + 2) {
        out->full = 1;
        return;
    }
    if (n)
        memcpy(out->to + out->len, literals, n);
    out->len += n;
    if (!copied)
        return;
    out->to[out->len++] = (uint8_t)distance;
    out->to[out->len++] = (uint8_t)(distance >> 8);
    if (more >= LENGTH_SHORT)
        put_length(out, more - LENGTH_SHORT);
}

size_t pici_pack(uint8_t *dst, size_t cap, const uint8_t *src, size_t n)
{
    uint32_t last[1 << SLOT_BITS] = {0}; /* where these 4 bytes, or others of their slot, were seen last; plus 1 */
    struct packing out = {.to = dst, .cap = cap};
    size_t literals = 0, at = 0;
    while (n >= COPY_BEFORE_END && at <= n - COPY_BEFORE_END && !out.full) {
        uint32_t *const slot = &last[slot_of(src + at)];
        const size_t before = *slot ? *slot - 1 : SIZE_MAX;
        *slot = (uint32_t)at + 1;
        if (before == SIZE_MAX || at - before > DISTANCE_MOST || memcmp(src + before, src + at, COPY_LEAST) != 0) {
            at++;
            continue;
        }
        size_t from = before, copied = COPY_LEAST;
        while (at + copied < n - LAST_LITERALS && src[from + copied] == src[at + copied])
            copied++;
        for (; at > literals && from && src[from - 1] == src[at - 1]; from--, at--)
            copied++;
        put_sequence(&out, src + literals, at - literals, at - from, copied);
        for (size_t end = at + copied; at < end; at++)
            if (at <= n - COPY_BEFORE_END)
                last[slot_of(src + at)] = (uint32_t)at + 1;
        literals = at;
    }
    put_sequence(&out, src + literals, n - literals, 0, 0);
    return out.full ? 0 : out.len;
}

/* Adds the bytes that follow a short length of 15. 0: the block ends before they do, or it is more than `most`. */
static int take_length(const uint8_t *src, size_t len, size_t *at, size_t *length, size_t most)
{
    uint8_t more = 255;
    while (more == 255) {
        if (*at == len || *length > most)
            return 0;
        more = src[(*at)++];
        *length += more;
    }
    return 1;
}

int pici_unpack(uint8_t *dst, size_t n, const uint8_t *src, size_t len)
{
    size_t at = 0, made = 0;
    while (at < len) {
        const unsigned lengths = src[at++];
        size_t literals = lengths >> 4, copied = lengths & 15;
        if (literals == LENGTH_SHORT && !take_length(src, len, &at, &literals, n))
            return 0;
        if (literals > len - at || literals > n - made)
            return 0;
        memcpy(dst + made, src + at, literals);
        at += literals;
        made += literals;
        if (at == len)
            return made == n && !copied;
        if (len - at < 2)
            return 0;
        const size_t distance = src[at] | (size_t)src[at + 1] << 8;
        at += 2;
        if (copied == LENGTH_SHORT && !take_length(src, len, &at, &copied, n))
            return 0;
        copied += COPY_LEAST;
        if (!distance || distance > made || copied > n - made)
            return 0;
        for (const uint8_t *from = dst + made - distance; copied; copied--)
            dst[made++] = *from++;
    }
    return 0;
}
