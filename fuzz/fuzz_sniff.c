/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The first bytes of any file give short printable text or nothing. The sniffer reads nothing beyond them. */
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "tools/parse/sniff.h"

#define CHECK(x)                                                                                                       \
    do {                                                                                                               \
        if (!(x))                                                                                                      \
            abort();                                                                                                   \
    } while (0)

static void check_text(const char *s)
{
    CHECK(!s || (*s && strlen(s) < 80));
    for (; s && *s; s++)
        CHECK(*s >= ' ' && *s <= '~');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    const size_t some = len < SNIFF_BYTES ? len : SNIFF_BYTES;
    uint8_t *copy = malloc(some ? some : 1); /* exact size, so that a sanitizer knows its end */
    if (!copy)
        return 0;
    if (some)
        memcpy(copy, data, some);
    const struct sniff s = sniff(copy, some);
    check_text(s.what);
    check_text(s.type);
    check_text(s.advice);
    CHECK(s.what || (!s.type && !s.advice && s.kind == SNIFF_OTHER));
    free(copy);
    return 0;
}
