/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse/safetensors.h"

#define GOLDEN "../shared/data/golden/safetensors/"

/* What holds of everything that is accepted. */
static void check_invariants(const struct safetensors *s)
{
    uint64_t end = s->data_offset;
    for (size_t i = 0; i < s->count; i++) {
        const struct safetensors_tensor *t = &s->tensors[i];
        uint64_t items = 1;
        for (unsigned d = 0; d < t->rank; d++)
            items *= t->shape[d];
        cr_assert_eq(items, t->items);
        cr_assert_eq(t->begin, end);
        cr_assert_leq(t->begin, t->end);
        cr_assert_eq(t->count * pici_dtype_width(t->dtype), t->end - t->begin);
        if (t->item_elements)
            cr_assert_eq(t->count, t->items * t->item_elements);
        cr_assert_eq(t->name[t->name_bytes], '\0');
        cr_assert_gt(t->header_offset, 8);
        cr_assert_lt(t->header_offset, s->data_offset);
        end = t->end;
    }
    cr_assert_eq(end, s->file_bytes);
}

/* Parse from memory of exactly len bytes, where a sanitizer watches the end; the copy is gone when this returns. */
static bool parse(struct safetensors *s, const void *head, size_t len, uint64_t file_bytes, struct parse_error *err)
{
    uint8_t *copy = malloc(len ? len : 1);
    uint64_t need;
    memcpy(copy, head, len);
    err->offset = UINT64_MAX;
    err->what[0] = '\0';
    bool ok =
        pici_safetensors_header_bytes(&need, copy, len, err) && pici_safetensors_parse(s, copy, len, file_bytes, err);
    memset(copy, 0xaa, len);
    free(copy);
    if (ok)
        check_invariants(s);
    else
        cr_assert(err->what[0] != '\0' && err->offset != UINT64_MAX, "an error without words");
    return ok;
}

/* Header text [len bytes] with its length before it, and data_bytes of data claimed after it. */
static bool parse_text(struct safetensors *s, const char *text, size_t len, uint64_t data_bytes,
                       struct parse_error *err)
{
    uint8_t *head = malloc(8 + len);
    for (int i = 0; i < 8; i++)
        head[i] = (uint8_t)((uint64_t)len >> 8 * i);
    memcpy(head + 8, text, len);
    bool ok = parse(s, head, 8 + len, data_bytes == UINT64_MAX ? UINT64_MAX : 8 + len + data_bytes, err);
    free(head);
    return ok;
}

#define T(dtype, shape, offsets) "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

Test(safetensors, understands)
{
    static const char text[] = " \n{\"b\":" T(
        "F32", "[2,3]",
        "[4,28]") ", \"__metadata__\" : {\"format\":\"pt\",\"\":\"\"},"
                  "\"caf\\u00e9\\u0000\":" T(
                      "I8", "[ 4 ]",
                      "[0,4]") ",\"\":{\"data_offsets\":[28,28],\"shape\":[0,7],\"\\u0064type\":\"F\\u00364\"},"
                               "\"s\":" T("BF16", "[]", "[28,30]") "}\t\r ";
    struct safetensors s;
    struct parse_error err;
    cr_assert(parse_text(&s, text, sizeof text - 1, 30, &err), "%s", err.what);
    cr_assert_eq(s.count, 4);
    cr_assert_eq(s.metadata_count, 2);
    cr_assert_eq(s.data_offset, 8 + sizeof text - 1);
    cr_assert_eq(s.file_bytes, s.data_offset + 30);
    const struct safetensors_tensor *t = s.tensors;
    cr_assert(t[0].name_bytes == 6 && memcmp(t[0].name, "caf\xc3\xa9\0", 7) == 0);
    cr_assert(t[0].dtype == PICI_I8 && t[0].rank == 1 && t[0].shape[0] == 4 && t[0].count == 4);
    cr_assert_str_eq(t[1].name, "b");
    cr_assert_str_eq(t[1].source_dtype, "F32");
    cr_assert(t[1].dtype == PICI_F32 && t[1].rank == 2 && t[1].shape[0] == 2 && t[1].shape[1] == 3);
    cr_assert(t[1].begin == s.data_offset + 4 && t[1].end == s.data_offset + 28 && t[1].count == 6);
    cr_assert_eq(t[1].header_offset, 8 + 3);
    cr_assert(t[2].name_bytes == 0 && t[2].dtype == PICI_F64 && t[2].rank == 2 && t[2].count == 0);
    cr_assert(t[3].dtype == PICI_BF16 && t[3].rank == 0 && t[3].items == 1 && t[3].count == 1);
    pici_safetensors_free(&s);
    cr_assert(!s.tensors && !s.names && !s.shapes);
}

Test(safetensors, dtypes)
{
    static const struct {
        const char *name;
        enum pici_dtype dtype;
        unsigned bytes, count; /* of 8 items */
    } cases[] = {
        {"BOOL", PICI_U8, 8, 8},        {"F4", PICI_U8, 4, 4},          {"F6_E2M3", PICI_U8, 6, 6},
        {"F6_E3M2", PICI_U8, 6, 6},     {"U8", PICI_U8, 8, 8},          {"I8", PICI_I8, 8, 8},
        {"F8_E5M2", PICI_F8E5M2, 8, 8}, {"F8_E4M3", PICI_F8E4M3, 8, 8}, {"F8_E8M0", PICI_U8, 8, 8},
        {"F8_E4M3FNUZ", PICI_U8, 8, 8}, {"F8_E5M2FNUZ", PICI_U8, 8, 8}, {"I16", PICI_I16, 16, 8},
        {"U16", PICI_U16, 16, 8},       {"F16", PICI_F16, 16, 8},       {"BF16", PICI_BF16, 16, 8},
        {"I32", PICI_I32, 32, 8},       {"U32", PICI_U32, 32, 8},       {"F32", PICI_F32, 32, 8},
        {"C64", PICI_F32, 64, 16},      {"F64", PICI_F64, 64, 8},       {"I64", PICI_I64, 64, 8},
        {"U64", PICI_U64, 64, 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int wrong = -1; wrong <= 1; wrong++) {
            char text[128];
            struct safetensors s;
            struct parse_error err;
            unsigned bytes = cases[i].bytes + (unsigned)wrong;
            int n = snprintf(text, sizeof text, "{\"x\":" T("%s", "[2,4]", "[0,%u]") "}", cases[i].name, bytes);
            bool ok = parse_text(&s, text, (size_t)n, bytes, &err);
            cr_assert_eq(ok, wrong == 0, "%s %+d: %s", cases[i].name, wrong, err.what);
            if (!ok)
                continue;
            cr_assert_str_eq(s.tensors[0].source_dtype, cases[i].name);
            cr_assert_eq(s.tensors[0].dtype, cases[i].dtype, "%s", cases[i].name);
            cr_assert_eq(s.tensors[0].count, cases[i].count, "%s", cases[i].name);
            pici_safetensors_free(&s);
        }
    }
}

/* Items that are smaller than a byte: the last dimension of the stored shape counts bytes. */
Test(safetensors, stored_shapes)
{
    static const struct {
        const char *dtype, *shape;
        unsigned bytes, rank;
        uint64_t stored[3];
    } cases[] = {
        {"F4", "[2,3,4]", 12, 3, {2, 3, 2}},
        {"F4", "[2,3]", 3, 1, {3}},
        {"F4", "[4]", 2, 1, {2}},
        {"F4", "[0,3]", 0, 1, {0}},
        {"F4", "[0,4]", 0, 2, {0, 2}},
        {"F6_E2M3", "[3,8]", 18, 2, {3, 6}},
        {"F6_E3M2", "[2,2,1]", 3, 1, {3}},
        {"F6_E3M2", "[4,0]", 0, 2, {4, 0}},
        {"BF16", "[2,3]", 12, 2, {2, 3}},
        {"C64", "[2,3]", 48, 3, {2, 3, 2}},
        {"BOOL", "[]", 1, 0, {0}},
        {"F4", "[0,18446744073709551614,2]", 0, 1, {0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128];
        struct safetensors s;
        struct parse_error err;
        uint64_t shape[PICI_RANK_MAX];
        unsigned rank;
        const int n = snprintf(text, sizeof text, "{\"x\":" T("%s", "%s", "[0,%u]") "}", cases[i].dtype, cases[i].shape,
                               cases[i].bytes);
        cr_assert(parse_text(&s, text, (size_t)n, cases[i].bytes, &err), "%s: %s", text, err.what);
        pici_safetensors_shape(&s.tensors[0], shape, &rank);
        cr_assert_eq(rank, cases[i].rank, "%s", text);
        for (unsigned k = 0; k < rank; k++)
            cr_assert_eq(shape[k], cases[i].stored[k], "%s", text);
        pici_safetensors_free(&s);
    }
}

Test(safetensors, accepts)
{
    static const struct {
        const char *text;
        uint64_t data;
    } cases[] = {
        {"{}", 0},
        {"  {}", 0},
        {"{}        ", 0},
        {"{\"__metadata__\":{}}", 0},
        {"{\"a\":" T("U8", "[]", "[0,1]") "}", 1},
        {"{\"a\":" T("U8", "[0]", "[0,0]") ",\"b\":" T("U8", "[1]", "[0,1]") ",\"c\":" T("U8", "[0]", "[1,1]") "}", 1},
        {"{\"b\":" T("U8", "[1]", "[0,1]") ",\"a\":" T("U8", "[0]", "[0,0]") "}", 1},
        {"{\"a\":" T("U8", "[0,18446744073709551615,2]", "[0,0]") "}", 0},
        {"{\"a\":" T("U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
                     "[0,1]") "}",
         1},
        {"{\"__metadata__\":null}", 0},
        {"{\"__metadata__\":null,\"a\":{\"x\":{\"shape\":[[],{}],\"k\":null},\"dtype\":\"U8\",\"shape\":[1],"
         "\"data_offsets\":[0,1],\"y\":-1.5e3,\"x\":true}}",
         1},
        {"{\"__metadata__x\":" T("U8", "[1]", "[0,1]") "}", 1},
        {"{\"a\":" T("F4", "[3,2]", "[0,3]") "}", 3},
        {"{\"a\":" T("F4", "[0,3]", "[0,0]") "}", 0},
        {"{\"a\":" T("U8", "[2305843009213693951]", "[0,2305843009213693951]") "}", UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct safetensors s;
        struct parse_error err;
        cr_expect(parse_text(&s, cases[i].text, strlen(cases[i].text), cases[i].data, &err), "%s: %s", cases[i].text,
                  err.what);
        pici_safetensors_free(&s);
    }
}

/* Each is wrong in one way. The offset to be reported is where mark is first found in text ("": at its end). */
Test(safetensors, refuses)
{
    static const struct {
        const char *text, *mark, *what;
        uint64_t data;
    } cases[] = {
        {"", "", "ends", 0},
        {"   ", "", "ends", 0},
        {"[]", "[]", "not a JSON object", 0},
        {"null", "null", "not a JSON object", 0},
        {"{", "", "ends", 0},
        {"{}x", "x", "'x' where the end", 0},
        {"{}[]", "[]", "where the end", 0},
        {"\xef\xbb\xbf{}", "\xef", "\\xef", 0},
        {"{\"\xff\":1}", "\xff", "UTF-8", 0},
        {"{\"a\":1}", "1", "not an object", 0},
        {"{\"a\":[]}", "[]", "not an object", 0},
        {"{\"a\":{}}", "}}", "without 'dtype'", 0},
        {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", "}}", "without 'shape'", 1},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", "}}", "without 'data_offsets'", 1},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", "}}", "without 'dtype'", 1},
        {"{\"a\":{\"x\":[{\"y\":1}],\"dtype\":\"U8\",\"shape\":[1],\"z\":[1 2],\"data_offsets\":[0,1]}}", "2]", "", 1},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"shape\":[1]}}", "\"shape\":[1]}", "duplicate",
         1},
        {"{\"a\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}}", "8", "not a string", 1},
        {"{\"a\":" T("u8", "[1]", "[0,1]") "}", "u8", "unknown dtype 'u8'", 1},
        {"{\"a\":" T("", "[1]", "[0,1]") "}", "\",\"shape", "unknown dtype ''", 1},
        {"{\"a\":" T("F128", "[1]", "[0,16]") "}", "F128", "unknown dtype 'F128'", 16},
        {"{\"a\":" T("U8", "1", "[0,1]") "}", "1,", "not an array", 1},
        {"{\"a\":" T("U8", "{}", "[0,1]") "}", "{}", "not an array", 1},
        {"{\"a\":" T("U8", "[-1]", "[0,1]") "}", "-1", "not an unsigned", 1},
        {"{\"a\":" T("U8", "[-0]", "[0,0]") "}", "-0", "not an unsigned", 0},
        {"{\"a\":" T("U8", "[1.0]", "[0,1]") "}", "1.0", "not an unsigned", 1},
        {"{\"a\":" T("U8", "[1e0]", "[0,1]") "}", "1e0", "not an unsigned", 1},
        {"{\"a\":" T("U8", "[\"1\"]", "[0,1]") "}", "1\"]", "not an unsigned", 1},
        {"{\"a\":" T("U8", "[[1]]", "[0,1]") "}", "[1]]", "not an unsigned", 1},
        {"{\"a\":" T("U8", "[null]", "[0,1]") "}", "null", "not an unsigned", 1},
        {"{\"a\":" T("U8", "[18446744073709551616]", "[0,0]") "}", "184", "not an unsigned", 0},
        {"{\"a\":" T("U8", "[4294967296,4294967296]", "[0,0]") "}", "4294967296]", "overflows", 0},
        {"{\"a\":" T("U8", "[9223372036854775808,2,0]", "[0,0]") "}", "2,0]", "overflows", 0},
        {"{\"a\":" T("I32", "[2,9223372036854775807]", "[0,16]") "}", "[2,", "overflows", 16},
        {"{\"a\":" T("U8", "[2305843009213693952]", "[0,0]") "}", "[23", "overflows", 0},
        {"{\"a\":" T("F4", "[3]", "[0,1]") "}", "[3]", "whole number of bytes", 1},
        {"{\"a\":" T("F6_E2M3", "[2]", "[0,1]") "}", "[2]", "whole number of bytes", 1},
        {"{\"a\":" T("U8", "[1]", "0") "}", "0}", "not an array", 1},
        {"{\"a\":" T("U8", "[1]", "[]") "}", "]}}", "not two", 1},
        {"{\"a\":" T("U8", "[1]", "[1]") "}", "]}}", "not two", 1},
        {"{\"a\":" T("U8", "[1]", "[0,1,2]") "}", "2]", "more than two", 1},
        {"{\"a\":" T("U8", "[1]", "[0,-1]") "}", "-1", "not two", 1},
        {"{\"a\":" T("U8", "[1]", "[0,1.0]") "}", "1.0", "not two", 1},
        {"{\"a\":" T("U8", "[1]", "[1,0]") "}", "[1,0]", "ends before", 1},
        {"{\"a\":" T("U8", "[1]", "[0,9223372036854775808]") "}", "[0,9", "overflows", 1},
        {"{\"a\":" T("U8", "[1]", "[0,18446744073709551615]") "}", "[0,1", "overflows", 1},
        {"{\"a\":" T("U8", "[2]", "[0,1]") "}", "[0,1]", "spans 1 bytes, 'shape' in U8 needs 2", 1},
        {"{\"a\":" T("I32", "[2,2]", "[0,4]") "}", "[0,4]", "spans 4 bytes, 'shape' in I32 needs 16", 4},
        {"{\"a\":" T("U8", "[1]", "[1,2]") "}", "\"a\"", "hole", 2},
        {"{\"a\":" T("U8", "[1]", "[0,1]") ",\"b\":" T("U8", "[1]", "[2,3]") "}", "\"b\"", "'b' leave a hole", 3},
        {"{\"a\":" T("U8", "[1]", "[0,1]") ",\"b\":" T("U8", "[1]", "[0,1]") "}", "\"b\"", "'b' overlap", 1},
        {"{\"a\":" T("U8", "[2]", "[0,2]") ",\"b\":" T("U8", "[2]", "[1,3]") "}", "\"b\"", "'b' overlap", 3},
        {"{\"a\":" T("U8", "[2]", "[0,2]") ",\"b\":" T("U8", "[0]", "[1,1]") "}", "\"b\"", "'b' overlap", 2},
        {"{\"a\":" T("U8", "[1]", "[0,1]") ",\"a\":" T("U8", "[1]", "[1,2]") "}",
         "\"a\":{\"dtype\":\"U8\",\"shape\":[1],"
         "\"data_offsets\":[1",
         "duplicate key 'a'", 2},
        {"{\"a\":" T("U8", "[1]", "[0,1]") ",\"\\u0061\":" T("U8", "[1]", "[1,2]") "}", "\"\\u0061",
         "duplicate key 'a'", 2},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", "\"__metadata__\":{}}", "duplicate key '__metadata__'", 0},
        {"{\"__metadata__\":1}", "1", "not an object", 0},
        {"{\"__metadata__\":{\"a\":1}}", "1", "not a string", 0},
        {"{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", "{\"b\"", "not a string", 0},
        {"{\"__metadata__\":{\"a\":null}}", "null", "not a string", 0},
        {"{\"__metadata__\":{\"a\":\"\\ud800\"}}", "\\ud800", "escape", 0},
        {"{\"__metadata__\":{\"x\":\"1\",\"y\":\"2\",\"x\":\"3\",\"y\":\"4\"}}", "\"x\":\"3", "duplicate key 'x'", 0},
        {"{\"\x1b[31m\":0}", "\x1b", "control", 0},
        {"{\"a\":" T("\\u001b[31m\xc3\xa9", "[1]", "[0,1]") "}", "\\u001b", "unknown dtype '\\u001b[31m\\xc3\\xa9'", 1},
        {"{\"\\u001b[31m\":" T("U8", "[1]", "[1,2]") "}", "\"\\u001b", "tensor '\\x1b[31m'", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct safetensors s;
        struct parse_error err;
        const char *text = cases[i].text;
        if (parse_text(&s, text, strlen(text), cases[i].data, &err)) {
            pici_safetensors_free(&s);
            cr_expect_fail("accepted: %s", text);
            continue;
        }
        const char *mark = *cases[i].mark ? strstr(text, cases[i].mark) : text + strlen(text);
        cr_assert_not_null(mark, "case %zu marks nothing", i);
        cr_expect_eq(err.offset, (uint64_t)(mark - text) + 8, "%s: offset %" PRIu64 ", '%s'", text, err.offset,
                     err.what);
        cr_expect_not_null(strstr(err.what, cases[i].what), "%s: '%s'", text, err.what);
        cr_expect(!s.tensors && !s.names && !s.shapes, "%s: something is left to free", text);
    }
}

Test(safetensors, length_of_the_header)
{
    static const struct {
        uint8_t first[8];
        bool ok;
        uint64_t need;
    } cases[] = {
        {{0}, true, 8},
        {{2}, true, 10},
        {{0x00, 0xe1, 0xf5, 0x05}, true, 100000008},
        {{0x01, 0xe1, 0xf5, 0x05}, false, 0},
        {{0x3c, 0, 0, 0, 0, 0xff, 0xff, 0xff}, false, 0},
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, false, 0},
    };
    struct parse_error err;
    uint64_t need;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool ok = pici_safetensors_header_bytes(&need, cases[i].first, 8, &err);
        cr_assert_eq(ok, cases[i].ok, "case %zu", i);
        cr_assert(ok ? need == cases[i].need : err.offset == 0, "case %zu", i);
    }
    for (size_t n = 0; n < 8; n++) {
        cr_assert_not(pici_safetensors_header_bytes(&need, cases[1].first, n, &err));
        cr_assert_eq(err.offset, n);
    }
}

Test(safetensors, length_of_the_file)
{
    static const char text[] = "{\"a\":" T("U8", "[5]", "[0,5]") "}";
    const uint64_t n = 8 + sizeof text - 1;
    struct safetensors s;
    struct parse_error err;
    cr_assert_not(parse_text(&s, text, sizeof text - 1, 4, &err));
    cr_assert_eq(err.offset, n + 4);
    cr_assert_not_null(strstr(err.what, "ends 1 bytes before"), "%s", err.what);
    cr_assert_not(parse_text(&s, text, sizeof text - 1, 8, &err));
    cr_assert_eq(err.offset, n + 5);
    cr_assert_not_null(strstr(err.what, "3 bytes that belong to no tensor"), "%s", err.what);
    cr_assert(parse_text(&s, text, sizeof text - 1, UINT64_MAX, &err));
    cr_assert_eq(s.file_bytes, n + 5);
    pici_safetensors_free(&s);
}

Test(safetensors, many_tensors)
{
    enum { N = 20000 };
    char *text = malloc(N * 80), *p = text;
    struct safetensors s;
    struct parse_error err;
    for (int duplicate = 0; duplicate < 2; duplicate++) { /* in the order of the header last to first */
        p = text;
        for (int i = N; i-- > 0;)
            p += sprintf(p, "%s\"t%d\":" T("U16", "[2,1]", "[%d,%d]"), i == N - 1 ? "{" : ",",
                         duplicate && i == 7 ? 12345 : i, 4 * i, 4 * i + 4);
        *p++ = '}';
        bool ok = parse_text(&s, text, (size_t)(p - text), 4 * N, &err);
        cr_assert_eq(ok, !duplicate, "%s", err.what);
        if (!ok)
            break;
        cr_assert_eq(s.count, N);
        for (int i = 0; i < N; i++) {
            char name[16];
            sprintf(name, "t%d", i);
            cr_assert_str_eq(s.tensors[i].name, name);
            cr_assert(s.tensors[i].shape[0] == 2 && s.tensors[i].shape[1] == 1);
        }
        pici_safetensors_free(&s);
    }
    *p = '\0';
    cr_assert_str_eq(err.what, "duplicate key 't12345'");
    cr_assert_eq(err.offset, 8 + (uint64_t)(strstr(strstr(text, "\"t12345\"") + 1, "\"t12345\"") - text));
    free(text);
}

static const char rich[] =
    "{\"__metadata__\":{\"k\":\"v\"},\"a\\u00e9\":" T("F32", "[1,2]", "[0,8]") ",\"b\":" T("F4", "[4]", "[8,10]") "} ";

Test(safetensors, truncated_at_every_byte)
{
    uint8_t head[8 + sizeof rich - 1] = {sizeof rich - 1};
    struct safetensors s;
    struct parse_error err;
    memcpy(head + 8, rich, sizeof rich - 1);
    cr_assert(parse(&s, head, sizeof head, sizeof head + 10, &err), "%s", err.what);
    pici_safetensors_free(&s);
    for (size_t n = 0; n < sizeof head; n++) {
        cr_assert_not(parse(&s, head, n, sizeof head + 10, &err), "%zu bytes", n); /* memory ends */
        cr_assert_eq(err.offset, n);
        cr_assert_not(parse(&s, head, n, n, &err), "%zu bytes", n); /* the file ends */
        cr_assert_eq(err.offset, n);
        cr_assert_not(parse(&s, head, sizeof head, n, &err), "%zu bytes", n);
        cr_assert_eq(err.offset, n);
        if (n >= 8) { /* the text ends, and its length says so */
            uint8_t first = head[0];
            head[0] = (uint8_t)(n - 8);
            cr_assert_eq(parse(&s, head, n, n + 10, &err), n == sizeof head - 1, "%zu bytes", n);
            if (n == sizeof head - 1)
                pici_safetensors_free(&s);
            head[0] = first;
        }
    }
}

Test(safetensors, every_byte_changed)
{
    uint8_t head[8 + sizeof rich - 1] = {sizeof rich - 1};
    struct safetensors s;
    struct parse_error err;
    unsigned refused = 0;
    memcpy(head + 8, rich, sizeof rich - 1);
    for (size_t i = 0; i < sizeof head; i++) {
        uint8_t old = head[i];
        for (int c = 0; c < 256; c++) {
            head[i] = (uint8_t)c;
            if (parse(&s, head, sizeof head, sizeof head + 10, &err))
                pici_safetensors_free(&s);
            else
                refused++;
        }
        head[i] = old;
    }
    cr_assert_gt(refused, 200 * sizeof head, "only %u refused", refused);
}

/* ---- other people's files */

static uint8_t *slurp(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    size_t cap = 1 << 16;
    uint8_t *data = malloc(cap);
    for (*len = 0;;) {
        *len += fread(data + *len, 1, cap - *len, f);
        if (*len < cap)
            break;
        data = realloc(data, cap *= 2);
    }
    fclose(f);
    return data;
}

/* Parse a whole file as a tool would: the header's length first, then just the header. */
static bool parse_file(struct safetensors *s, const char *path, struct parse_error *err)
{
    size_t len = 0;
    uint8_t *data = slurp(path, &len);
    uint64_t need;
    cr_assert_not_null(data, "%s", path);
    bool ok = pici_safetensors_header_bytes(&need, data, len, err) &&
              parse(s, data, need < len ? (size_t)need : len, len, err);
    free(data);
    return ok;
}

Test(safetensors, golden_expected)
{
    FILE *list = fopen(GOLDEN "huggingface/EXPECTED.txt", "r");
    char line[256], name[128], verdict[64], path[300];
    int files = 0;
    if (!list) {
        printf("skip: no " GOLDEN "huggingface\n");
        return;
    }
    while (fgets(line, sizeof line, list)) {
        struct safetensors s;
        struct parse_error err;
        cr_assert_eq(sscanf(line, "%127s %*s %63s", name, verdict), 2, "%s", line);
        snprintf(path, sizeof path, GOLDEN "huggingface/%s", name);
        bool ok = parse_file(&s, path, &err);
        cr_expect_eq(ok, strcmp(verdict, "accept") == 0, "%s: %s, but %s", name, verdict, ok ? "accepted" : err.what);
        if (ok)
            pici_safetensors_free(&s);
        files++;
    }
    fclose(list);
    cr_assert_eq(files, 17);
}

Test(safetensors, golden_models)
{
    static const struct {
        const char *path;
        size_t tensors;
        uint64_t values;
    } cases[] = {
        {GOLDEN "burn/multi_layer.safetensors", 9, 4241},
        {GOLDEN "syoyo/model.safetensors", 2, 320},
        {"../shared/data/nn/burn_mnist.safetensors", 20, 376940},
        {"../shared/data/nn/silero_vad_16k.safetensors", 15, 309633},
        {"../shared/data/nn/squeezenet_pruned.safetensors", 52, 1248424},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FILE *f = fopen(cases[i].path, "rb");
        struct safetensors s;
        struct parse_error err;
        uint64_t values = 0;
        if (!f) {
            printf("skip: no %s\n", cases[i].path);
            continue;
        }
        fclose(f);
        cr_assert(parse_file(&s, cases[i].path, &err), "%s: %s", cases[i].path, err.what);
        cr_assert_eq(s.count, cases[i].tensors, "%s", cases[i].path);
        for (size_t t = 0; t < s.count; t++)
            values += s.tensors[t].count;
        cr_assert_eq(values, cases[i].values, "%s: %" PRIu64, cases[i].path, values);
        pici_safetensors_free(&s);
    }
}

Test(safetensors, golden_abuse)
{
    static const char path[] = GOLDEN "syoyo/safetensors_abuse_attempt_1.safetensors";
    FILE *f = fopen(path, "rb");
    struct safetensors s;
    struct parse_error err;
    if (!f) {
        printf("skip: no %s\n", path);
        return;
    }
    fclose(f);
    cr_assert_not(parse_file(&s, path, &err));
    cr_assert_eq(err.offset, 88);
    cr_assert_str_eq(err.what, "the file ends inside the header");
}
