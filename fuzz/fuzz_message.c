/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The input is a receiver's expectation and the message that it gets:
 *   byte 0    dtype
 *   byte 1    bits 0, 1: op; bits 2, 3: blocks expected; bit 4: the counts expected are those that the blocks claim
 *   24 bits for each block: otherwise, the count expected
 *   the rest  the message
 * The fuzzer decodes and passes its blocks, each into memory of exactly the expected size. If verify rejects a
 * block, both must return the same status. The exception is a packed block that an encoder would make in another
 * way. Otherwise the elements must equal the reference's. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "coll/engine.h"
#include "coll/message.h"
#include "formats/ref.h"

enum { LIMIT = 1 << 18 }; /* elements */

/* The target of a reduction: all kinds of bits. */
static void fill(uint8_t *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        p[i] = (uint8_t)(i * i >> 3 ^ i * 151);
}

static void receive_block(const uint8_t *block, size_t len, size_t n, enum pici_dtype dtype, enum pici_op op)
{
    const struct pici_engine *e = &pici_engine_host;
    const size_t width = pici_dtype_width(dtype), bytes = n * width;
    uint8_t *got = memory(bytes), *want = memory(bytes), *temp = memory(TILE * width),
            *more = memory(bytes + TILE * width);
    struct pici_fault fault = PICI_FAULT_INIT;
    enum pici_status verdict = pici_verify_at(block, len, &fault);
    if (verdict && !strcmp(fault.rule, "choice")) /* packed: only verifiers check this rule */
        verdict = PICI_OK;
    struct pici_block b;
    require(pici_msg_block(&b, block, len, dtype, n) == PICI_OK);
    require(e->decode(NULL, got, block, &b, n) == verdict);
    if (!verdict)
        require(ref_decode_any(want, n, block, len, 0) == REF_OK && (!n || memcmp(got, want, bytes) == 0));

    fill(got, bytes);
    fill(want, bytes);
    require(e->reduce(NULL, got, block, &b, op, temp, TILE) == verdict);
    if (!verdict && (op == PICI_SUM || op == PICI_AVG))
        require(ref_decode_any(want, n, block, len, 1) == REF_OK && (!n || memcmp(got, want, bytes) == 0));
    if (!verdict && (op == PICI_MIN || op == PICI_MAX)) { /* in one piece, and once more */
        require(e->reduce(NULL, want, block, &b, op, more, n + TILE) == PICI_OK);
        require(!n || memcmp(got, want, bytes) == 0);
        require(e->reduce(NULL, want, block, &b, op, temp, TILE) == PICI_OK);
        require(!n || memcmp(got, want, bytes) == 0);
    }
    e->positive_zeros(NULL, got, got, n, dtype, (int)(len & 1));
    e->divide(NULL, got, n, dtype, 1 + (int)(len % 6000));
    free(got);
    free(want);
    free(temp);
    free(more);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len < 2)
        return 0;
    const enum pici_dtype dtype = (enum pici_dtype)(1 + data[0] % 14);
    const enum pici_op op = (enum pici_op)(data[1] & 3);
    const size_t blocks = data[1] >> 2 & 3, head = 2 + 3 * blocks;
    if (len < head)
        return 0;
    struct msg_prefix prefix;
    uint8_t *message = memory(len - head), again[MSG_BYTES]; /* exact size, so that the sanitizer knows its end */
    memcpy(message, data + head, len - head);
    enum pici_status s = pici_msg_get(&prefix, message, len - head);
    require(s == PICI_OK || s == PICI_E_CORRUPT);
    if (!s) {
        pici_msg_put(again, &prefix);
        require(memcmp(again, message, MSG_BYTES) == 0);
        const uint8_t *block = message + MSG_BYTES;
        for (size_t i = 0; i < blocks && !s; i++) {
            struct pici_block b;
            const size_t left = (size_t)(message + (len - head) - block);
            uint64_t n = ref_get(data + 2 + 3 * i, 3);
            if ((data[1] & 16) && left >= 48)
                n = ref_get(block + 8, 8);
            if (n > LIMIT)
                break;
            s = pici_msg_block(&b, block, left, dtype, n);
            require(s == PICI_OK || s == PICI_E_CORRUPT || s == PICI_E_VERSION || s == PICI_E_UNSUPPORTED);
            if (s)
                break;
            require(b.layout.block_bytes <= left);
            receive_block(block, (size_t)b.layout.block_bytes, (size_t)n, dtype, op);
            block += b.layout.block_bytes;
        }
    }
    free(message);
    return 0;
}
