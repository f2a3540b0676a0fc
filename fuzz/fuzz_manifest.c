/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Manifests of logs of deltas (formats/delta-log.md): the input as it is, and with the end that its hash asks for. What
 * is accepted must be printed as it was. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "delta/manifest.h"
#include "xxh64.h"

static void parse(const char *text, size_t len)
{
    struct manifest m;
    struct parse_error err = {0};
    char name[MANIFEST_NAME_MOST];
    size_t again;
    const int good = pici_manifest_parse(&m, text, len, &err);
    require(good == !err.what[0]);
    if (!good)
        return;
    char *const p = pici_manifest_text(&m, &again);
    require(p && again == len && memcmp(p, text, len) == 0);
    free(p);
    require(m.base >= m.first && m.base <= pici_manifest_newest(&m));
    pici_manifest_base_name(name, &m);
    require(!strchr(name, '/'));
    for (uint64_t k = m.first; k <= pici_manifest_newest(&m) && k - m.first < 100; k++)
        require(pici_manifest_state(&m, k) != NULL);
    pici_manifest_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    parse((const char *)data, len);
    char *const text = malloc(len + 32);
    require(text != NULL);
    memcpy(text, data, len);
    const int end = snprintf(text + len, 32, "end %016" PRIx64 "\n", pici_xxh64(text, len, 0));
    parse(text, len + (size_t)end);
    free(text);
    return 0;
}
