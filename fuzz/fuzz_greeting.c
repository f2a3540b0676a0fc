/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The input arrives over a socket before there is a communicator. Byte 0 selects a greeting, a verdict, a place or
 * an offer; zeros pad the rest. Accepted input must be written again as the same bytes, except for fields that the
 * reader replaces. A wrong greeting must give a terminated error message. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "transport/greeting.h"

static void take_greeting(const uint8_t *p)
{
    struct greeting g;
    uint8_t again[GREETING_BYTES];
    char text[VERDICT_TEXT];
    if (pici_greeting_get(&g, p))
        return;
    if (g.version == GREETING_VERSION) {
        pici_greeting_put(again, &g);
        require(memcmp(again, p, sizeof again) == 0);
    }
    for (int from = -1; from < 3; from++) {
        const struct greeting own = pici_greeting(g.kind, 1, 3, 0);
        memset(text, 'x', sizeof text);
        const int wrong = pici_greeting_wrong(&g, &own, from, text, sizeof text);
        require(wrong ? memchr(text, '\0', sizeof text) != NULL
                      : g.rank < 3 && g.rank != 1 && g.ranks == 3 && g.peer == 1);
    }
    require(pici_greeting_token(g.token, (const char *)p + 56));
    g.token[g.rank % GREETING_TOKEN] ^= 1;
    require(!pici_greeting_token(g.token, (const char *)p + 56));
}

static void take_verdict(const uint8_t *p)
{
    struct greeting_verdict v, same;
    uint8_t again[VERDICT_BYTES];
    if (pici_verdict_get(&v, p))
        return;
    require(v.status <= 0 && memchr(v.text, '\0', sizeof v.text));
    for (const char *c = v.text; *c; c++)
        require((unsigned char)*c >= ' ' && *c != 0x7f);
    pici_verdict_put(again, &v);
    require(pici_verdict_get(&same, again) == PICI_OK && same.status == v.status && same.rank == v.rank &&
            strcmp(same.text, v.text) == 0);
}

static void take_place(const uint8_t *p)
{
    struct place place;
    uint8_t again[PLACE_BYTES];
    if (pici_place_get(&place, p))
        return;
    require(!place.family || (place.port > 0 && place.port < 65536));
    require(!pici_place_loopback(&place) || place.family);
    pici_place_put(again, &place);
    require(memcmp(again, p, sizeof again) == 0);
}

static void take_offer(const uint8_t *p)
{
    struct greeting_offer offer;
    uint8_t again[OFFER_BYTES];
    if (pici_offer_get(&offer, p))
        return;
    pici_offer_put(again, &offer);
    require(memcmp(again, p, sizeof again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static void (*const take[])(const uint8_t *) = {take_greeting, take_verdict, take_place, take_offer};
    static const size_t bytes[] = {GREETING_BYTES, VERDICT_BYTES, PLACE_BYTES, OFFER_BYTES};
    if (len < 1)
        return 0;
    const size_t kind = data[0] % 4;
    uint8_t *p = memory(bytes[kind]); /* exact size, so that the sanitizer knows its end */
    memset(p, 0, bytes[kind]);
    memcpy(p, data + 1, len - 1 < bytes[kind] ? len - 1 : bytes[kind]);
    take[kind](p);
    free(p);
    return 0;
}
