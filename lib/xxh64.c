/* SPDX-License-Identifier: BSD-3-Clause */
#include "xxh64.h"

#include "bytes.h"

static const uint64_t P1 = UINT64_C(0x9E3779B185EBCA87), P2 = UINT64_C(0xC2B2AE3D27D4EB4F),
                      P3 = UINT64_C(0x165667B19E3779F9), P4 = UINT64_C(0x85EBCA77C2B2AE63),
                      P5 = UINT64_C(0x27D4EB2F165667C5);

static uint64_t rotl(uint64_t x, int r)
{
    return x << r | x >> (64 - r);
}

static uint64_t round64(uint64_t lane, uint64_t in)
{
    return rotl(lane + in * P2, 31) * P1;
}

static const uint8_t *stripes(uint64_t lane[4], const uint8_t *p, size_t n)
{
    uint64_t a = lane[0], b = lane[1], c = lane[2], d = lane[3];
    for (; n >= 32; n -= 32, p += 32) {
        a = round64(a, load_le64(p));
        b = round64(b, load_le64(p + 8));
        c = round64(c, load_le64(p + 16));
        d = round64(d, load_le64(p + 24));
    }
    lane[0] = a, lane[1] = b, lane[2] = c, lane[3] = d;
    return p;
}

void pici_xxh64_init(struct pici_xxh64 *s, uint64_t seed)
{
    *s = (struct pici_xxh64){.lane = {seed + P1 + P2, seed + P2, seed, seed - P1}, .seed = seed};
}

void pici_xxh64_update(struct pici_xxh64 *s, const void *data, size_t n)
{
    const uint8_t *p = data;
    size_t have = s->total % 32;
    if (!n)
        return;
    s->total += n;
    if (have) {
        size_t take = n < 32 - have ? n : 32 - have;
        memcpy(s->held + have, p, take);
        if (have + take < 32)
            return;
        stripes(s->lane, s->held, 32);
        p += take, n -= take;
    }
    p = stripes(s->lane, p, n);
    memcpy(s->held, p, n % 32);
}

uint64_t pici_xxh64_digest(const struct pici_xxh64 *s)
{
    const uint64_t *l = s->lane;
    uint64_t h;
    if (s->total < 32) {
        h = s->seed + P5;
    } else {
        h = rotl(l[0], 1) + rotl(l[1], 7) + rotl(l[2], 12) + rotl(l[3], 18);
        for (int i = 0; i < 4; i++)
            h = (h ^ round64(0, l[i])) * P1 + P4;
    }
    h += s->total;

    const uint8_t *p = s->held, *end = p + s->total % 32;
    for (; end - p >= 8; p += 8)
        h = rotl(h ^ round64(0, load_le64(p)), 27) * P1 + P4;
    if (end - p >= 4) {
        h = rotl(h ^ load_le32(p) * P1, 23) * P2 + P3;
        p += 4;
    }
    for (; p < end; p++)
        h = rotl(h ^ *p * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

uint64_t pici_xxh64(const void *p, size_t n, uint64_t seed)
{
    struct pici_xxh64 s;
    pici_xxh64_init(&s, seed);
    pici_xxh64_update(&s, p, n);
    return pici_xxh64_digest(&s);
}
