/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Manifests of logs of deltas (formats/delta-log.md): the input unchanged, and with the last line that its hash
 * requires. Accepted manifests must print as the same bytes. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "delta/manifest.h"
#include "xxh64.h"

/* The name of a file in a store must lead back to the name on disk. */
static void store_name(const char *plain, const struct manifest_file *file)
{
    char stored[MANIFEST_NAME_MOST], back[MANIFEST_NAME_MOST];
    uint64_t hash = 0;
    pici_manifest_store_name(stored, plain, file);
    require(pici_manifest_plain_name(back, &hash, stored) && strcmp(back, plain) == 0 && hash == file->hash);
}

/* Any name: if the parser accepts it as a name in a store, its parts must make the same name. */
static void any_name(const uint8_t *data, size_t len)
{
    char name[2 * MANIFEST_NAME_MOST], plain[MANIFEST_NAME_MOST], again[MANIFEST_NAME_MOST];
    struct manifest_file file = {0};
    const size_t bytes = len < sizeof name - 1 ? len : sizeof name - 1;
    if (bytes)
        memcpy(name, data, bytes);
    name[bytes] = 0;
    if (pici_manifest_plain_name(plain, &file.hash, name)) {
        pici_manifest_store_name(again, plain, &file);
        require(strcmp(again, name) == 0);
    } else
        require(strncmp(plain, name, MANIFEST_NAME_MOST - 1) == 0);
}

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
    store_name(name, m.packed ? &m.stored : &m.whole);
    for (uint64_t k = 0; k < m.deltas && k < 100; k++) {
        pici_manifest_delta_name(name, m.first + 1 + k);
        store_name(name, &m.delta[k].delta);
    }
    for (uint64_t k = m.first; k <= pici_manifest_newest(&m) && k - m.first < 100; k++)
        require(pici_manifest_state(&m, k) != NULL);
    pici_manifest_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    parse((const char *)data, len);
    any_name(data, len);
    char *const text = malloc(len + 32);
    require(text != NULL);
    memcpy(text, data, len);
    const int end = snprintf(text + len, 32, "end %016" PRIx64 "\n", pici_xxh64(text, len, 0));
    parse(text, len + (size_t)end);
    free(text);
    return 0;
}
