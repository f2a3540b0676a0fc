/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages as formats/message.md has them: the prefix byte by byte, and the cursor over blocks, whatever is in them. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "coll/message.h"
#include "formats/ref.h"
#include "tests/util/util.h"

static const uint8_t known[MSG_BYTES] = {
    'P',  'I',  'C',  'M',  1,    14,   3,    2,    0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01,
    0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21, 0xd8, 0xff, 0xff, 0xff,
};

Test(coll_message, prefix)
{
    const struct msg_prefix m = {.kind = MSG_POISON,
                                 .dtype = PICI_U64,
                                 .op = 3,
                                 .algorithm = 2,
                                 .sequence = UINT64_C(0x0102030405060708),
                                 .slice = UINT64_C(0x1112131415161718),
                                 .step = 0x21222324,
                                 .status = PICI_E_NOMEM};
    struct msg_prefix got;
    uint8_t bytes[MSG_BYTES];
    pici_msg_put(bytes, &m);
    cr_assert_arr_eq(bytes, known, MSG_BYTES);
    cr_assert_eq(pici_msg_get(&got, bytes, MSG_BYTES), PICI_OK);
    cr_expect(got.kind == m.kind && got.dtype == m.dtype && got.op == m.op && got.algorithm == m.algorithm &&
              got.sequence == m.sequence && got.slice == m.slice && got.step == m.step && got.status == m.status &&
              got.blocks == 0);
    bytes[4] = MSG_DATA; /* what was the status is the number of blocks */
    cr_assert_eq(pici_msg_get(&got, bytes, MSG_BYTES), PICI_OK);
    cr_expect(got.blocks == (uint32_t)PICI_E_NOMEM && got.status == 0);
}

Test(coll_message, bad_prefix)
{
    struct msg_prefix m;
    struct guard g;
    guard_init(&g, 64);
    for (size_t len = 0; len <= 40; len++) {
        uint8_t *p = guard_place(&g, len, GUARD_END, 0);
        memcpy(p, known, len < MSG_BYTES ? len : MSG_BYTES);
        cr_expect_eq(pici_msg_get(&m, p, len), len < MSG_BYTES ? PICI_E_CORRUPT : PICI_OK, "%zu bytes", len);
    }
    uint8_t bytes[MSG_BYTES];
    for (unsigned at = 0; at < 4; at++)
        for (unsigned bit = 0; bit < 8; bit++) {
            memcpy(bytes, known, MSG_BYTES);
            bytes[at] ^= (uint8_t)(1u << bit);
            cr_expect_eq(pici_msg_get(&m, bytes, MSG_BYTES), PICI_E_CORRUPT);
        }
    memcpy(bytes, known, MSG_BYTES);
    for (unsigned kind = 0; kind < 256; kind++) {
        bytes[4] = (uint8_t)kind;
        cr_expect_eq(pici_msg_get(&m, bytes, MSG_BYTES), kind > MSG_CODED ? PICI_E_CORRUPT : PICI_OK, "kind %u", kind);
    }
    memset(bytes + 5, 0xff, MSG_BYTES - 5); /* nothing else is judged */
    bytes[4] = MSG_DATA;
    cr_expect_eq(pici_msg_get(&m, bytes, MSG_BYTES), PICI_OK);
    cr_expect(m.dtype == 255 && m.op == 255 && m.algorithm == 255 && m.sequence == UINT64_MAX &&
              m.slice == UINT64_MAX && m.step == UINT32_MAX && m.status == 0 && m.blocks == UINT32_MAX);
    guard_free(&g);
}

/* ---- blocks ---- */

enum { BLOCKS = 4 };
static const uint64_t counts[BLOCKS] = {130, 0, 4097, 1};

/* The blocks of a message, one after the other, and where each begins. */
static uint8_t *make(size_t at[BLOCKS + 1])
{
    uint8_t *all = test_alloc(1 << 16);
    uint32_t *src = test_alloc(5000 * sizeof *src);
    at[0] = 0;
    for (int i = 0; i < BLOCKS; i++) {
        struct rng r = {(uint64_t)i};
        size_t len;
        pattern_fill(src, counts[i], PICI_F32, PATTERN_12, &r);
        uint8_t *block = ref_encode(&len, src, counts[i], PICI_F32, (unsigned)i % 3, i & 1);
        cr_assert_not_null(block);
        memcpy(all + at[i], block, len);
        at[i + 1] = at[i] + len;
        free(block);
    }
    free(src);
    return all;
}

Test(coll_message, cursor)
{
    size_t at[BLOCKS + 1];
    uint8_t *all = make(at);
    struct pici_block b;
    for (int i = 0; i < BLOCKS; i++) {
        cr_assert_eq(pici_msg_block(&b, all + at[i], at[BLOCKS] - at[i], PICI_F32, counts[i]), PICI_OK);
        cr_expect(b.count == counts[i] && b.layout.block_bytes == at[i + 1] - at[i] && b.format == (unsigned)i % 3);
    }
    cr_expect_eq(pici_msg_block(&b, all + at[BLOCKS], 0, PICI_F32, 0), PICI_E_CORRUPT, "no block is left");
    free(all);
}

static void refuse(const uint8_t *p, size_t len, enum pici_dtype dtype, uint64_t n, enum pici_status want)
{
    struct pici_block b;
    cr_expect_eq(pici_msg_block(&b, p, len, dtype, n), want, "%zu bytes, n %llu", len, (unsigned long long)n);
}

Test(coll_message, bad_blocks)
{
    size_t at[BLOCKS + 1];
    uint8_t *all = make(at);
    struct guard g;
    guard_init(&g, at[BLOCKS]);
    for (int i = 0; i < BLOCKS; i++) {
        const size_t len = at[i + 1] - at[i];
        const uint64_t n = counts[i];
        for (size_t cut = 0; cut < len; cut++) {
            uint8_t *p = guard_place(&g, cut, GUARD_END, 0);
            memcpy(p, all + at[i], cut);
            refuse(p, cut, PICI_F32, n, PICI_E_CORRUPT);
        }
        uint8_t *p = guard_place(&g, len, GUARD_END, 0);
        memcpy(p, all + at[i], len);
        refuse(p, len, PICI_F64, n, PICI_E_CORRUPT);
        refuse(p, len, PICI_U32, n, PICI_E_CORRUPT);
        refuse(p, len, PICI_F32, n + 1, PICI_E_CORRUPT);
        refuse(p, len, PICI_F32, n - 1, PICI_E_CORRUPT);
        refuse(p, len, PICI_F32, n + (UINT64_C(1) << 32), PICI_E_CORRUPT);
        p[4] = 3;
        refuse(p, len, PICI_F32, n, PICI_E_VERSION);
        p[4] = 1;
        p[5] = PICI_PACKED + 1;
        refuse(p, len, PICI_F32, n, PICI_E_UNSUPPORTED);
    }
    guard_free(&g);
    free(all);
}

/* A header can claim anything; what it claims is compared with what is there before it is believed. */
Test(coll_message, claims)
{
    const uint64_t n = (UINT64_C(1) << 61) - 12;
    uint8_t p[48] = {'P', 'I', 'C', 'I', 1, PICI_DENSE, PICI_F64};
    ref_put(p + 8, 8, n);
    ref_put(p + 16, 8, n);
    ref_put(p + 24, 8, 48);
    ref_put(p + 32, 8, 48);
    refuse(p, sizeof p, PICI_F64, n, PICI_E_CORRUPT); /* the block would be 48 + 8n bytes, nearly 2^64 */
    refuse(p, sizeof p, PICI_F64, 1000, PICI_E_CORRUPT);
    p[5] = PICI_COO;
    p[7] = 1;
    ref_put(p + 16, 8, 0); /* none of them stored: a true block of 2^61 zeros */
    refuse(p, sizeof p, PICI_F64, 1000, PICI_E_CORRUPT);
}

/* A peer's status is one of ours, or it is corrupt. */
Test(coll_message, statuses)
{
    for (int s = -100; s <= 100; s++) {
        const int ours = strcmp(pici_strerror((enum pici_status)s), pici_strerror((enum pici_status)1)) != 0;
        cr_expect_eq((int)pici_msg_status((uint32_t)s), ours ? s : PICI_E_CORRUPT, "%d: %s", s,
                     pici_strerror((enum pici_status)s));
    }
    cr_expect_eq(pici_msg_status(UINT32_MAX / 2), PICI_E_CORRUPT);
    cr_expect_eq(pici_msg_status(UINT32_C(1) << 31), PICI_E_CORRUPT);
}
