/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse/json.h"

/* The tokens of text [len bytes] as characters: { } [ ], k and s for keys and strings, n for numbers. t f 0 are
 * true, false and null, $ is the end, ! an error. text is copied to memory of its own size, where a sanitizer watches
 * its end. */
static void tokens(char *out, size_t cap, const char *text, size_t len, struct parse_error *err)
{
    static const char names[] = "!${}[]ksntf0";
    struct json j;
    enum json_type type = JSON_NULL;
    char *copy = malloc(len ? len : 1);
    char *scratch = malloc(len ? len : 1);
    size_t n = 0, calls = 0;
    memcpy(copy, text, len);
    pici_json_init(&j, copy, len, 1000, err);
    while (type != JSON_END && type != JSON_ERROR) {
        struct json_token t = pici_json_next(&j);
        type = t.type;
        cr_assert_leq(t.start + t.size, len);
        cr_assert_leq(calls++, len + 1, "more tokens than bytes");
        if (n + 1 < cap)
            out[n++] = names[type];
        if (type == JSON_KEY || type == JSON_STRING)
            cr_assert_leq(pici_json_string(&j, t, scratch), t.size);
    }
    out[n] = '\0';
    cr_assert_eq(pici_json_next(&j).type, type, "the last answer must be repeated");
    if (type == JSON_ERROR) {
        cr_assert_geq(err->offset, 1000);
        cr_assert_leq(err->offset, 1000 + len);
        cr_assert_neq(err->what[0], '\0');
    }
    free(copy);
    free(scratch);
}

Test(json, accepts)
{
    static const char *const cases[][2] = {
        {"{}", "{}$"},
        {"[]", "[]$"},
        {" \t\r\n[ \t\r\n] \t\r\n", "[]$"},
        {"0", "n$"},
        {"-0", "n$"},
        {"true", "t$"},
        {"false", "f$"},
        {"null", "0$"},
        {"\"\"", "s$"},
        {"[1,2]", "[nn]$"},
        {"[1,[2,[]],{}]", "[n[n[]]{}]$"},
        {"{\"a\":1,\"b\":{\"c\":[true,false,null]}}", "{knk{k[tf0]}}$"},
        {"{\"a\" : \"b\" , \"a\" : \"b\"}", "{ksks}$"},
        {"[-1,10,1.5,-0.25,1e5,1E+5,0e-0,12.75e-3]", "[nnnnnnnn]$"},
        {"[123456789012345678901234567890123456789012345678901234567890]", "[n]$"},
        {"\"\\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u00e9\"", "s$"},
        {"\"\\ud83d\\ude00\"", "s$"},
        {"\"\\uD83D\\uDE00\"", "s$"},
        {"\"\\u0000\"", "s$"},
        {"\"\x7f\"", "s$"},
        {"\"\xc2\x80 \xdf\xbf \xe0\xa0\x80 \xed\x9f\xbf \xee\x80\x80 \xf0\x90\x80\x80 \xf4\x8f\xbf\xbf\"", "s$"},
    };
    struct parse_error err;
    char got[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tokens(got, sizeof got, cases[i][0], strlen(cases[i][0]), &err);
        cr_expect_str_eq(got, cases[i][1], "%s: %s", cases[i][0], got);
    }
}

Test(json, refuses)
{
    static const struct {
        const char *text;
        size_t offset;
    } cases[] = {
        {"", 0},
        {"  ", 2},
        {"{", 1},
        {"}", 0},
        {"]", 0},
        {"[", 1},
        {"[1", 2},
        {"[1,", 3},
        {"[1,]", 3},
        {"[,1]", 1},
        {"[1 2]", 3},
        {"[1}", 2},
        {"{]", 1},
        {"{\"a\"}", 4},
        {"{\"a\":}", 5},
        {"{\"a\":1,}", 7},
        {"{\"a\":1 \"b\":2}", 7},
        {"{\"a\" 1}", 5},
        {"{,}", 1},
        {"{1:2}", 1},
        {"{a:1}", 1},
        {"{'a':1}", 1},
        {"{}{}", 2},
        {"{} x", 3},
        {"[]]", 2},
        {"1 2", 2},
        {",", 0},
        {"01", 1},
        {"-", 1},
        {"-a", 1},
        {"+1", 0},
        {".5", 0},
        {"1.", 2},
        {"1.e5", 2},
        {"1e", 2},
        {"1e+", 3},
        {"0x10", 1},
        {"1_0", 1},
        {"NaN", 0},
        {"Infinity", 0},
        {"tru", 3},
        {"trux", 3},
        {"truee", 4},
        {"nul", 3},
        {"True", 0},
        {"\"", 0},
        {"\"a", 0},
        {"\"a\\\"", 0},
        {"\"a\nb\"", 2},
        {"\"a\tb\"", 2},
        {"\"\\x41\"", 1},
        {"\"\\", 1},
        {"\"\\u\"", 1},
        {"\"\\u12\"", 1},
        {"\"\\u123g\"", 1},
        {"\"a\\ud800\"", 2},
        {"\"a\\ud800x\"", 2},
        {"\"a\\ud800\\n\"", 2},
        {"\"a\\ud800\\u0041\"", 2},
        {"\"a\\ud800\\ud800\"", 2},
        {"\"a\\udc00\"", 2},
        {"\"a\\ud83d\\ude0", 2},
        {"\"\xff\"", 1},
        {"\"\x80\"", 1},
        {"\"\xc0\x80\"", 1},
        {"\"\xc1\xbf\"", 1},
        {"\"\xe0\x9f\xbf\"", 1},
        {"\"\xed\xa0\x80\"", 1},
        {"\"\xf0\x8f\xbf\xbf\"", 1},
        {"\"\xf4\x90\x80\x80\"", 1},
        {"\"\xf5\x80\x80\x80\"", 1},
        {"\"\xe2\x82\"", 1},
        {"\"\xf0\x9f\x98", 1},
        {"\xef\xbb\xbf{}", 0},
        {"[1]\xc2\xa0", 3},
        {"// c\n1", 0},
    };
    struct parse_error err;
    char got[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tokens(got, sizeof got, cases[i].text, strlen(cases[i].text), &err);
        cr_expect_eq(got[strlen(got) - 1], '!', "accepted: %s", cases[i].text);
        cr_expect_eq(err.offset, 1000 + cases[i].offset, "%s: offset %d, '%s'", cases[i].text, (int)err.offset - 1000,
                     err.what);
    }
}

Test(json, nul_bytes)
{
    static const struct {
        const char *text;
        size_t len, offset;
    } cases[] = {{"\0", 1, 0},   {"{}\0", 3, 2},        {"\"a\0b\"", 5, 2},
                 {"[\0]", 3, 1}, {"{\"a\0\":1}", 8, 3}, {"1\0", 2, 1}};
    struct parse_error err;
    char got[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tokens(got, sizeof got, cases[i].text, cases[i].len, &err);
        cr_expect_eq(got[strlen(got) - 1], '!', "case %zu", i);
        cr_expect_eq(err.offset, 1000 + cases[i].offset, "case %zu: offset %d", i, (int)err.offset - 1000);
    }
}

Test(json, depth)
{
    struct parse_error err;
    char got[300], text[2 * JSON_MAX_DEPTH + 2];
    for (int object = 0; object < 2; object++) { /* [[...]] and [{"": ... */
        memset(text, '[', JSON_MAX_DEPTH);
        memset(text + JSON_MAX_DEPTH, ']', JSON_MAX_DEPTH);
        if (object) {
            text[JSON_MAX_DEPTH - 1] = '{';
            text[JSON_MAX_DEPTH] = '}';
        }
        tokens(got, sizeof got, text, 2 * JSON_MAX_DEPTH, &err);
        cr_assert_eq(got[2 * JSON_MAX_DEPTH], '$', "%s: %s", got, err.what);
    }
    size_t n = 1000000;
    char *deep = malloc(n);
    memset(deep, '[', n);
    tokens(got, sizeof got, deep, n, &err);
    cr_assert_eq(got[JSON_MAX_DEPTH], '!');
    cr_assert_eq(err.offset, 1000 + JSON_MAX_DEPTH);
    free(deep);
}

Test(json, strings)
{
    static const struct {
        const char *text, *want;
        size_t want_len;
    } cases[] = {
        {"\"\"", "", 0},
        {"\"abc\"", "abc", 3},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 8},
        {"\"a\\u0000b\"", "a\0b", 3},
        {"\"\\u0041\\u007f\\u0080\\u07ff\"", "A\x7f\xc2\x80\xdf\xbf", 6},
        {"\"\\u0800\\uFFFD\\ud7ff\\ue000\"", "\xe0\xa0\x80\xef\xbf\xbd\xed\x9f\xbf\xee\x80\x80", 12},
        {"\"\\ud800\\udc00\\uDBFF\\uDFFF\"", "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", 8},
        {"\"\xf0\x9f\x98\x80=\\ud83d\\ude00\"", "\xf0\x9f\x98\x80=\xf0\x9f\x98\x80", 9},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parse_error err;
        struct json j;
        char got[64];
        pici_json_init(&j, cases[i].text, strlen(cases[i].text), 0, &err);
        struct json_token t = pici_json_next(&j);
        cr_assert_eq(t.type, JSON_STRING, "case %zu", i);
        cr_assert_eq(pici_json_string(&j, t, got), cases[i].want_len, "case %zu", i);
        cr_assert_arr_eq(got, cases[i].want, cases[i].want_len, "case %zu", i);
    }
}

Test(json, integers)
{
    static const struct {
        const char *text;
        bool ok;
        uint64_t want;
    } cases[] = {
        {"0", true, 0},
        {"7", true, 7},
        {"9223372036854775808", true, UINT64_C(1) << 63},
        {"18446744073709551615", true, UINT64_MAX},
        {"18446744073709551616", false, 0},
        {"18446744073709551620", false, 0},
        {"99999999999999999999999999999999", false, 0},
        {"-0", false, 0},
        {"-1", false, 0},
        {"1.0", false, 0},
        {"1e2", false, 0},
        {"\"1\"", false, 0},
        {"true", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parse_error err;
        struct json j;
        uint64_t v = 42;
        pici_json_init(&j, cases[i].text, strlen(cases[i].text), 0, &err);
        cr_assert_eq(pici_json_u64(&j, pici_json_next(&j), &v), cases[i].ok, "%s", cases[i].text);
        cr_assert_eq(v, cases[i].ok ? cases[i].want : 42, "%s", cases[i].text);
    }
}

static const char document[] = "{\"a\": [1, -2.5e+3, \"x\\u00e9\\ud83d\\ude00\"], \"b\\n\": {\"\": null}, "
                               "\"\xe2\x82\xac\": [true, false, [[]], {}]}";

Test(json, truncated_at_every_byte)
{
    struct parse_error err;
    char got[128];
    for (size_t n = 0; n < sizeof document - 1; n++) {
        tokens(got, sizeof got, document, n, &err);
        cr_assert_eq(got[strlen(got) - 1], '!', "accepted %zu bytes", n);
    }
    tokens(got, sizeof got, document, sizeof document - 1, &err);
    cr_assert_str_eq(got, "{k[nns]k{k0}k[tf[[]]{}]}$");
}

Test(json, every_byte_changed)
{
    struct parse_error err;
    char got[128], text[sizeof document];
    unsigned refused = 0;
    memcpy(text, document, sizeof text);
    for (size_t i = 0; i < sizeof document - 1; i++) {
        for (int c = 0; c < 256; c++) {
            text[i] = (char)c;
            tokens(got, sizeof got, text, sizeof document - 1, &err);
            refused += got[strlen(got) - 1] == '!';
        }
        text[i] = document[i];
    }
    cr_assert_gt(refused, 100 * (sizeof document - 1), "only %u refused", refused);
}
