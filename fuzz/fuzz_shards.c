/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Any bytes as the index of a checkpoint in shards. Accepted indexes are sorted, without duplicates, and name files
 * of one folder only. */
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "tools/parse/shards.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct shards s;
    struct parse_error err = {.offset = UINT64_MAX};
    uint8_t *const text = malloc(len + !len); /* exact size, so that a sanitizer knows its end */
    require(text != NULL);
    if (len)
        memcpy(text, data, len);
    const bool good = shards_parse(&s, text, len, &err);
    free(text);
    require(good == !err.what[0]);
    if (!good) {
        require(err.offset <= len && !s.tensor && !s.shard && !s.text);
        return 0;
    }
    require(s.tensors && s.shards && s.shards <= s.tensors);
    for (size_t i = 0; i < s.shards; i++) {
        const size_t n = strlen(s.shard[i]);
        const char *why;
        require(shards_name_is_plain(s.shard[i], n, &why) && !strchr(s.shard[i], '/') && s.shard[i][n] == 0);
        require(n > strlen(SHARDS_EXTENSION) &&
                strcmp(s.shard[i] + n - strlen(SHARDS_EXTENSION), SHARDS_EXTENSION) == 0);
        require(!i || strcmp(s.shard[i - 1], s.shard[i]) < 0);
    }
    for (size_t i = 0; i < s.tensors; i++) {
        const struct shards_tensor *const t = &s.tensor[i];
        require(t->shard < s.shards && t->name[t->name_size] == 0);
        require(shards_find(&s, t->name, t->name_size) == t);
    }
    require(!shards_find(&s, "\xff", 1)); /* not UTF-8 */
    shards_free(&s);
    return 0;
}
