/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Small deltas. The input starts with a byte of options (format; 64: elements of u8 hold two e2m1; 128: checksum)
 * and a byte of dtype. Then come a byte with the number of changes, three bytes for each, and two halves: base and
 * source. With every ISA, their delta must equal the reference's and lead from base to source. After the changes,
 * every ISA must accept or reject it as the reference does. The same holds for deltas of two parts, and of two
 * shards of columns, in a row. The whole input is also an untrusted delta. */
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "formats/ref.h"
#include "formats/ref_small.h"
#include "fuzz/fuzz.h"
#include "pici/delta.h"

enum { LIMIT = 1 << 16, HEADER = 32, COLUMNS = 56, FIXED = 3, CHANGES = 16 };

static uint64_t get(const uint8_t *p, int bytes)
{
    uint64_t v = 0;
    for (int i = bytes; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

/* Every ISA must return the same status for a delta as the reference. */
static void from_stranger(const uint8_t *delta, size_t len, const uint8_t *base, uint64_t n, unsigned width)
{
    const size_t bytes = (size_t)n * width;
    uint8_t *want = memory(bytes), *got = memory(bytes);
    if (bytes)
        memcpy(want, base, bytes);
    const enum ref_status s = ref_small_apply(want, n, delta, len);
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++)
        for (int threads = 1; threads < 3; threads++) {
            struct pici_opts opts = PICI_OPTS_INIT;
            opts.threads = threads;
            if (bytes)
                memcpy(got, base, bytes);
            pici_isa_force(*isa);
            require((int)pici_apply_small(got, n, delta, len, &opts) == (int)s);
            require(s || !bytes || memcmp(got, want, bytes) == 0);
        }
    uint64_t *at = memory((size_t)n * sizeof *at), found;
    const enum pici_status changes = pici_changes(at, 8, got, n, &found, base, n, delta, len, 0, n);
    const int columns = changes == PICI_E_UNSUPPORTED; /* it does not support these */
    require(columns ? delta[4] == 4 : (int)changes == (int)s);
    for (uint64_t i = 0, next = 0; !s && !columns && i < n; i++) {
        if (memcmp(base + i * width, want + i * width, width) == 0)
            continue;
        require(next < found && at[next] == i && memcmp(got + next * width, want + i * width, width) == 0);
        require(++next == found || i + 1 < n);
    }
    free(at);
    pici_isa_force(NULL);
    free(want);
    free(got);
}

static void there(const uint8_t *base, const uint8_t *src, uint64_t n, unsigned dtype, int pairs, unsigned format,
                  int checksum, const uint8_t *change, unsigned changes)
{
    const unsigned width = ref_width(dtype);
    const size_t bytes = (size_t)n * width;
    const size_t bound = pici_diff_small_bound((enum pici_format)format, (enum pici_dtype)dtype, n);
    uint8_t *got = memory(bound), *now = memory(bytes);
    size_t want_len, len;
    uint8_t *want = pairs ? ref_small_encode_pairs(&want_len, base, src, n, 0, n, format, checksum)
                          : ref_small_encode(&want_len, base, src, n, dtype, format, checksum);
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.checksum = checksum;
    opts.holds = pairs ? PICI_HOLDS_E2M1X2 : PICI_HOLDS_ONE;
    require(want != NULL && bound >= want_len);
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
        pici_isa_force(*isa);
        require(pici_diff_small(got, bound, &len, base, src, n, (enum pici_dtype)dtype, (enum pici_format)format,
                                &opts) == PICI_OK);
        require(len == want_len && memcmp(got, want, len) == 0);
        if (bytes)
            memcpy(now, base, bytes);
        require(pici_apply_small(now, n, got, len, NULL) == PICI_OK && (!bytes || memcmp(now, src, bytes) == 0));
    }
    pici_isa_force(NULL);
    for (unsigned i = 0; i < changes; i++, change += 3)
        want[get(change, 2) % want_len] ^= change[2];
    if (get(want + 8, 8) == n && want[5] == dtype)
        from_stranger(want, want_len, base, n, width);
    free(want);
    free(got);
    free(now);
}

/* Apply a row to elements [first, first + n) of `of`, as the reference does; the reference also reads the rest of an
 * XOR chunk. */
static void to_range(const uint8_t *row, size_t len, const uint8_t *base, uint64_t n, uint64_t first, uint64_t of,
                     unsigned width)
{
    const size_t bytes = (size_t)n * width;
    const void *deltas[2] = {row, row};
    const size_t sizes[2] = {len, len};
    uint8_t *want = memory(bytes), *got = memory(bytes);
    if (bytes) {
        memcpy(want, base + first * width, bytes);
        memcpy(got, want, bytes);
    }
    const enum ref_status s = ref_small_apply_range(want, n, first, of, row, len);
    const enum pici_status found = pici_apply_small_range(got, n, first, of, deltas, sizes, 1, NULL);
    require((int)found == (int)s || (s == REF_E_CORRUPT && found == PICI_OK));
    require(s || !bytes || memcmp(got, want, bytes) == 0);
    if (!s) { /* once more, and both at once */
        const enum ref_status again = ref_small_apply_range(want, n, first, of, row, len);
        if (bytes)
            memcpy(got, base + first * width, bytes);
        const enum pici_status folded = pici_apply_small_range(got, n, first, of, deltas, sizes, 2, NULL);
        require((int)folded == (int)again || (again == REF_E_CORRUPT && folded == PICI_OK));
        require(again || !bytes || memcmp(got, want, bytes) == 0);
    }
    free(want);
    free(got);
}

/* The deltas of two parts of n >= 2 elements. cut: the elements of the first part. */
static void parts(const uint8_t *base, const uint8_t *src, uint64_t n, uint64_t cut, unsigned dtype, int pairs,
                  unsigned format, const uint8_t *change, unsigned changes)
{
    const unsigned width = ref_width(dtype);
    const size_t bound = pici_diff_small_bound((enum pici_format)format, (enum pici_dtype)dtype, n) + 16;
    uint8_t *row = memory(2 * bound), *got = memory(bound);
    size_t len = 0;
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.holds = pairs ? PICI_HOLDS_E2M1X2 : PICI_HOLDS_ONE;
    for (int i = 0; i < 2; i++) {
        const uint64_t first = i ? cut : 0, count = i ? n - cut : cut;
        size_t want_len, got_len;
        const uint8_t *const from = base + first * width, *const to = src + first * width;
        uint8_t *want = pairs ? ref_small_encode_pairs(&want_len, from, to, count, first, n, format, 0)
                              : ref_small_encode_part(&want_len, from, to, count, first, n, dtype, format, 0);
        require(want != NULL);
        require(pici_diff_small_part(got, bound, &got_len, from, to, count, first, n, (enum pici_dtype)dtype,
                                     (enum pici_format)format, &opts) == PICI_OK);
        require(got_len == want_len && memcmp(got, want, got_len) == 0);
        memcpy(row + len, want, want_len);
        len += want_len;
        free(want);
    }
    uint8_t *exact = memory(len);
    memcpy(exact, row, len);
    for (unsigned i = 0; i < changes; i++, change += 3)
        exact[get(change, 2) % len] ^= change[2];
    to_range(exact, len, base, n, 0, n, width);
    to_range(exact, len, base, cut, 0, n, width);
    to_range(exact, len, base, n - cut, cut, n, width);
    to_range(exact, len, base, n / 2, n / 3, n, width);
    free(exact);
    free(row);
    free(got);
}

/* The deltas of two shards of columns. Each row of `row` elements is cut at `cut`: 0 < cut < row. Apply them to each
 * shard, within its rows and packed, and to both. */
static void columns(const uint8_t *base, const uint8_t *src, uint64_t rows, uint64_t row, uint64_t cut, unsigned dtype,
                    int pairs, unsigned format, const uint8_t *change, unsigned changes)
{
    const unsigned width = ref_width(dtype);
    const size_t bytes = (size_t)(rows * row) * width;
    const size_t bound = pici_diff_small_bound((enum pici_format)format, (enum pici_dtype)dtype, rows * row) + 24;
    uint8_t *exact, *both = memory(2 * bound), *got = memory(bound), *from = memory(bytes), *to = memory(bytes);
    size_t len = 0, one;
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.holds = pairs ? PICI_HOLDS_E2M1X2 : PICI_HOLDS_ONE;
    for (int i = 0; i < 2; i++) {
        const struct ref_columns c = {rows, row, i ? cut : 0, i ? row - cut : cut};
        struct pici_columns shard = PICI_COLUMNS_INIT;
        shard.rows = rows;
        shard.row_length = row;
        shard.first = c.first;
        shard.count = c.count;
        shard.stride = row;
        for (uint64_t k = 0; k < rows * c.count; k++) {
            const size_t at = (size_t)(k / c.count * row + c.first + k % c.count) * width;
            memcpy(from + k * width, base + at, width);
            memcpy(to + k * width, src + at, width);
        }
        uint8_t *want = ref_small_encode_columns(&one, from, to, &c, dtype, format, 0, pairs);
        size_t got_len;
        require(want != NULL);
        require(pici_diff_small_columns(got, bound, &got_len, base + c.first * width, src + c.first * width, &shard,
                                        (enum pici_dtype)dtype, (enum pici_format)format, &opts) == PICI_OK);
        require(got_len == one && memcmp(got, want, one) == 0);
        memcpy(both + len, want, one);
        len += one;
        free(want);
    }
    exact = memory(len);
    memcpy(exact, both, len);
    for (unsigned i = 0; i < changes; i++, change += 3)
        exact[get(change, 2) % len] ^= change[2];
    to_range(exact, len, base, rows * row, 0, rows * row, width);
    to_range(exact, len, base, rows * row / 2, 0, rows * row, width);
    for (int i = 0; i < 2; i++) {
        const struct ref_columns c = {rows, row, i ? cut : 0, i ? row - cut : cut};
        struct pici_columns shard = PICI_COLUMNS_INIT;
        const void *const deltas[1] = {exact};
        shard.rows = rows;
        shard.row_length = row;
        shard.first = c.first;
        shard.count = c.count;
        for (uint64_t k = 0; k < rows * c.count; k++)
            memcpy(from + k * width, base + (size_t)(k / c.count * row + c.first + k % c.count) * width, width);
        memcpy(to, from, (size_t)(rows * c.count) * width);
        const enum ref_status s = ref_small_apply_columns(from, &c, exact, len);
        require((int)pici_apply_small_columns(to, &shard, deltas, &len, 1, NULL) == (int)s);
        require(s || memcmp(from, to, (size_t)(rows * c.count) * width) == 0);
    }
    free(exact);
    free(both);
    free(got);
    free(from);
    free(to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint8_t *copy = memory(len);
    if (len)
        memcpy(copy, data, len);
    const size_t count_at = len >= COLUMNS && copy[4] == 4 ? 40 : 8; /* for columns: the count of the whole */
    if (len >= HEADER && get(copy + count_at, 8) <= LIMIT && ref_width(copy[5])) {
        const uint64_t n = get(copy + count_at, 8);
        uint8_t *base = memory((size_t)n * 8);
        for (size_t i = 0; i < n * 8; i++)
            base[i] = (uint8_t)(i % 4 == 3 ? 0x3c : i * 7 / 4);
        from_stranger(copy, len, base, n, ref_width(copy[5]));
        free(base);
    }
    if (len >= FIXED) {
        static const unsigned often[4] = {REF_BF16, REF_F16, REF_F32, REF_BF16};
        const unsigned dtype = copy[1] & 128 ? often[copy[1] & 3] : 1u + copy[1] % 14, changes = copy[2] % CHANGES;
        const int pairs = dtype == REF_U8 && copy[0] & 64;
        if (len >= FIXED + 3 * changes) {
            const uint8_t *const elements = copy + FIXED + 3 * changes;
            const uint64_t n = (len - FIXED - 3 * changes) / 2 / ref_width(dtype);
            there(elements, elements + n * ref_width(dtype), n, dtype, pairs, copy[0] & 3, copy[0] >> 7, copy + FIXED,
                  changes);
            if (n >= 2)
                parts(elements, elements + n * ref_width(dtype), n, 1 + (copy[1] * 7 + copy[2]) % (n - 1), dtype, pairs,
                      copy[0] & 3, copy + FIXED, changes);
            const uint64_t rows = 2 + copy[0] / 4 % 4, row = n / rows;
            if (row >= 2)
                columns(elements, elements + n * ref_width(dtype), rows, row, 1 + (copy[1] * 7 + copy[2]) % (row - 1),
                        dtype, pairs, copy[0] & 3, copy + FIXED, changes);
        }
    }
    free(copy);
    return 0;
}
