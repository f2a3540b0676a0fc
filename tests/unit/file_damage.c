/* SPDX-License-Identifier: BSD-3-Clause
 *
 * .pici files that are cut short, changed, or cannot be read. */
#include "tests/util/file.h"

#include <stdlib.h>
#include <string.h>

/* Whichever way it is read, this is not a .pici file. */
static void expect_refused(const uint8_t *p, size_t len, const char *what, size_t at)
{
    char words[512];
    for (int k = 0; k < 2; k++) {
        enum pici_status s = all_forward(p, len, k, words);
        cr_assert(data_error(s) && words[0], "%s %zu, %s: %d, %s", what, at, k ? "forward" : "verified", s, words);
        s = all_random(p, len, k, words);
        cr_assert(data_error(s) && words[0], "%s %zu, at random: %d, %s", what, at, s, words);
    }
}

static int have_zstd(void)
{
#ifdef PICI_HAVE_ZSTD
    return 1;
#else
    return 0;
#endif
}

Test(file_damage, truncated_anywhere)
{
    for (unsigned how = 0; how < 2 + 2 * (unsigned)have_zstd(); how++) {
        struct sink k = small_file(1 + how % 2, how / 2 != 0);
        for (size_t n = 0; n < k.len; n++) {
            uint8_t *copy = test_alloc(n ? n : 1); /* of that length, where a sanitizer watches the end */
            memcpy(copy, k.p, n);
            expect_refused(copy, n, "cut at byte", n);
            free(copy);
        }
        sink_free(&k);
    }
}

Test(file_damage, every_byte_changed)
{
    static const uint8_t flips[] = {0x01, 0x80, 0xff};
    for (unsigned how = 0; how < 2 + 2 * (unsigned)have_zstd(); how++) {
        struct sink k = small_file(1 + how % 2, how / 2 != 0);
        for (size_t i = 0; i < k.len; i++)
            for (size_t f = 0; f < sizeof flips; f++) {
                k.p[i] ^= flips[f];
                expect_refused(k.p, k.len, "changed at byte", i);
                k.p[i] ^= flips[f];
            }
        sink_free(&k);
    }
}

Test(file_damage, bytes_behind_the_end)
{
    struct sink k = small_file(2, 0);
    uint8_t *more = test_alloc(2 * k.len);
    memcpy(more, k.p, k.len);
    memcpy(more + k.len, k.p, k.len);
    for (size_t n = 1; n < 100; n++)
        expect_refused(more, k.len + n, "longer by", n);
    expect_refused(more, 2 * k.len, "longer by", k.len);
    char words[512];
    cr_assert_eq(all_forward(more, k.len + 1, 1, words), PICI_E_CORRUPT);
    cr_assert_not_null(strstr(words, "more bytes follow (trailing)"));
    free(more);
    sink_free(&k);
}

/* Whenever the callback fails, that is what is said, and nothing else happens. */
Test(file_damage, read_errors)
{
    struct sink k = small_file(2, 0);
    for (int random = 0; random < 2; random++) {
        unsigned failures = 0;
        for (unsigned fail_at = 1;; fail_at++, failures++) {
            struct source from = {.p = k.p, .len = k.len, .piece = 100, .fail_at = fail_at};
            struct pici_reader *r;
            enum pici_status s = random ? pici_reader_open_at(&r, source_read_at, &from, k.len, NULL)
                                        : pici_reader_open_stream(&r, source_read, &from, NULL);
            if (!s)
                s = pici_reader_verify(r);
            if (!s) {
                cr_assert_lt(from.calls, fail_at);
                pici_reader_close(r);
                break;
            }
            cr_assert_eq(s, PICI_E_IO);
            cr_assert_not_null(strstr(pici_reader_error(r), "read error: Input/output error"));
            pici_reader_close(r);
        }
        cr_assert_geq(failures, 5);
    }
    sink_free(&k);
}
