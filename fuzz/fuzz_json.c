/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Any bytes as JSON: no token outside the text, brackets that pair up, strings that do not grow, an end. */
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "parse/json.h"

#define CHECK(x)                                                                                                       \
    do {                                                                                                               \
        if (!(x))                                                                                                      \
            abort();                                                                                                   \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct parse_error err;
    struct json j;
    char *out = malloc(len + 1);
    bool objects[JSON_MAX_DEPTH];
    size_t depth = 0, calls = 0, end = 0;
    bool after_key = false;
    if (!out)
        return 0;
    pici_json_init(&j, data, len, 0, &err);
    for (;;) {
        struct json_token t = pici_json_next(&j);
        CHECK(calls++ <= len);
        if (t.type == JSON_ERROR) {
            CHECK(err.offset <= len && err.what[0]);
            break;
        }
        CHECK(t.start >= end && t.start + t.size <= len); /* tokens rise and do not overlap */
        end = t.start + t.size;
        if (t.type == JSON_END) {
            CHECK(depth == 0 && calls > 1 && end == len);
            break;
        }
        CHECK(!after_key || (t.type != JSON_KEY && t.type != JSON_OBJECT_END && t.type != JSON_ARRAY_END));
        CHECK((t.type == JSON_KEY || after_key || t.type == JSON_OBJECT_END) == (depth && objects[depth - 1]));
        after_key = t.type == JSON_KEY;
        if (t.type == JSON_OBJECT || t.type == JSON_ARRAY) {
            CHECK(depth < JSON_MAX_DEPTH);
            objects[depth++] = t.type == JSON_OBJECT;
        }
        if (t.type == JSON_OBJECT_END || t.type == JSON_ARRAY_END) {
            CHECK(depth && objects[depth - 1] == (t.type == JSON_OBJECT_END));
            depth--;
        }
        if (t.type == JSON_KEY || t.type == JSON_STRING) {
            size_t n = pici_json_string(&j, t, out);
            CHECK(n <= t.size);
            for (size_t i = 0; i < n;) { /* the output is UTF-8 */
                size_t u = pici_parse_utf8((const uint8_t *)out + i, (const uint8_t *)out + n);
                CHECK(u > 0);
                i += u;
            }
        }
        if (t.type == JSON_NUMBER) {
            uint64_t v;
            memcpy(out, data + t.start, t.size);
            out[t.size] = '\0';
            if (pici_json_u64(&j, t, &v))
                CHECK(strtoull(out, NULL, 10) == v);
        }
    }
    CHECK(pici_json_next(&j).type == JSON_ERROR || pici_json_next(&j).type == JSON_END);
    free(out);
    return 0;
}
