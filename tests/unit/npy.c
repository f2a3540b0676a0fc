/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse/npy.h"

#define DATA "../shared/data/"

/* What holds of everything that is accepted. */
static void check_invariants(const struct npy *a, uint64_t file_bytes)
{
    uint64_t items = 1;
    cr_assert_leq(a->rank, NPY_MAX_RANK);
    for (unsigned i = 0; i < a->rank; i++)
        items *= a->shape[i];
    cr_assert_eq(a->items, items);
    cr_assert_eq(a->count, a->items * a->item_elements);
    cr_assert_eq(a->data_bytes, a->count * pici_dtype_width(a->dtype));
    cr_assert_leq(a->data_offset + a->data_bytes, (uint64_t)INT64_MAX);
    cr_assert(!a->swap || pici_dtype_width(a->dtype) > 1);
    if (file_bytes != UINT64_MAX)
        cr_assert_eq(a->data_offset + a->data_bytes + a->trailing_bytes, file_bytes);
    for (const char *p = a->descr; *p; p++)
        cr_assert(*p >= 0x20 && *p < 0x7f);
}

/* Parse from memory of exactly len bytes, where a sanitizer watches the end. */
static bool parse(struct npy *a, const void *head, size_t len, uint64_t file_bytes, struct parse_error *err)
{
    uint8_t *copy = malloc(len ? len : 1);
    uint64_t need;
    memcpy(copy, head, len);
    err->offset = UINT64_MAX;
    err->what[0] = '\0';
    bool ok = pici_npy_header_bytes(&need, copy, len, err) && pici_npy_parse(a, copy, len, file_bytes, err);
    free(copy);
    if (ok)
        check_invariants(a, file_bytes);
    else
        cr_assert(err->what[0] != '\0' && err->offset != UINT64_MAX, "an error without words");
    return ok;
}

/* A header of that version and text; returns its length. Room: 12 + strlen(text). */
static size_t make(uint8_t *head, int version, const char *text)
{
    size_t n = strlen(text), prefix = version == 1 ? 10 : 12;
    memcpy(head, "\x93NUMPY", 6);
    head[6] = (uint8_t)version;
    head[7] = 0;
    for (size_t i = 8; i < prefix; i++)
        head[i] = (uint8_t)(n >> 8 * (i - 8));
    memcpy(head + prefix, text, n);
    return prefix + n;
}

static bool parse_text(struct npy *a, int version, const char *text, uint64_t data_bytes, struct parse_error *err)
{
    uint8_t *head = malloc(12 + strlen(text));
    size_t n = make(head, version, text);
    bool ok = parse(a, head, n, data_bytes == UINT64_MAX ? UINT64_MAX : n + data_bytes, err);
    free(head);
    return ok;
}

#define H(descr, order, shape) "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }"

Test(npy, understands)
{
    struct npy a;
    struct parse_error err;
    cr_assert(parse_text(&a, 1, H("'<f4'", "False", "(2, 3)") "   \n", 24 + 7, &err), "%s", err.what);
    cr_assert(a.dtype == PICI_F32 && !a.swap && !a.fortran_order && a.rank == 2 && a.shape[0] == 2 && a.shape[1] == 3);
    cr_assert(a.items == 6 && a.item_elements == 1 && a.count == 6 && a.data_bytes == 24 && a.trailing_bytes == 7);
    cr_assert_eq(a.data_offset, 10 + strlen(H("'<f4'", "False", "(2, 3)") "   \n"));
    cr_assert_str_eq(a.descr, "<f4");
    cr_assert(parse_text(&a, 2, H("'>c16'", "True", "()"), 16, &err), "%s", err.what);
    cr_assert(a.dtype == PICI_F64 && a.swap && a.fortran_order && a.rank == 0 && a.items == 1 && a.count == 2);
    cr_assert_eq(a.data_offset, 12 + strlen(H("'>c16'", "True", "()")));
    cr_assert(parse_text(&a, 3, H("'|u1'", "False", "(0, 5)"), UINT64_MAX, &err), "%s", err.what);
    cr_assert(a.dtype == PICI_U8 && a.count == 0 && a.data_bytes == 0 && a.trailing_bytes == 0);
}

Test(npy, types_as_literals)
{
    static const char *const good[] = {"'<f4'",
                                       "'>M8[ns]'",
                                       "u'|S5'",
                                       "\"<U3\"",
                                       "[]",
                                       "[('x', '<f4')]",
                                       "[('x', [('y', '>i2', (3L, 2))], 4)]",
                                       "[(('title', 'n'), '|b1')]",
                                       "[('\xc3\xa9', '<c8')]"};
    static const char *const bad[] = {"",
                                      "<f4",
                                      "'<f4",
                                      "'<f4' ",
                                      " '<f4'",
                                      "'<f4', ",
                                      "'<f4'}",
                                      "'|O'",
                                      "[('x', '|O')]",
                                      "'<f4' # x",
                                      "{'a': 1}",
                                      "('<f4')",
                                      "'<f3'",
                                      "[('\xe9', '<f4')]",
                                      "['<f4']",
                                      "[('x', '<f4')]]",
                                      "'<f4\n'",
                                      "\"<f4'"};
    struct npy_type type;
    struct parse_error err;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct npy a;
        size_t len;
        cr_assert(pici_npy_type(&type, good[i], strlen(good[i])), "%s", good[i]);
        char *h = pici_npy_typed_header(&len, good[i], strlen(good[i]), true, (const uint64_t[]){2, 1, 3}, 3);
        cr_assert(h && pici_npy_parse(&a, (const uint8_t *)h, len, UINT64_MAX, &err), "%s: %s", good[i], err.what);
        cr_assert(a.rank == 3 && a.items == 6 && a.fortran_order && !a.swap && a.data_offset == len);
        cr_assert(a.dtype == type.dtype && a.item_elements == type.item_elements && a.plain == type.plain);
        cr_assert_eq(h[6], strchr(good[i], '\xc3') ? 3 : 1);
        free(h);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t len;
        cr_assert(!pici_npy_type(&type, bad[i], strlen(bad[i])), "%s", bad[i]);
        cr_assert_null(pici_npy_typed_header(&len, bad[i], strlen(bad[i]), false, NULL, 0));
    }
    cr_assert(!pici_npy_type(&type, "'<f\0'", 6));
    static char structure[70000] = "[('x', '<f4')";
    size_t n = strlen(structure), len;
    for (int i = 0; n < 65000; i++)
        n += (size_t)snprintf(structure + n, sizeof structure - n, ", ('x%d', '<f4')", i);
    structure[n++] = ']';
    struct npy a;
    char *h = pici_npy_typed_header(&len, structure, n, false, NULL, 0);
    cr_assert(h && h[6] == 2 && pici_npy_parse(&a, (const uint8_t *)h, len, UINT64_MAX, &err), "%s", err.what);
    free(h);
}

Test(npy, comments)
{
    static const char *const texts[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }# made by hand",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } # made by hand  \n",
        "# first\n{'descr': '<f4', # '>f8'\n'fortran_order':# }\r\n False, 'shape': (2 #\n, 3)\n#\n}\n##\xe9\n #",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct npy a;
        struct parse_error err;
        cr_assert(parse_text(&a, 1, texts[i], 24, &err), "%zu: %s", i, err.what);
        cr_assert(a.dtype == PICI_F32 && !a.swap && a.rank == 2 && a.shape[0] == 2 && a.shape[1] == 3);
    }
}

Test(npy, types)
{
    static const struct {
        const char *descr;
        enum pici_dtype dtype;
        uint64_t elements;
        bool swap;
        const char *shown;
    } cases[] = {
        {"'|b1'", PICI_U8, 1, false, "|b1"},
        {"'|i1'", PICI_I8, 1, false, "|i1"},
        {"'|u1'", PICI_U8, 1, false, "|u1"},
        {"'>u1'", PICI_U8, 1, false, ">u1"},
        {"'<i2'", PICI_I16, 1, false, "<i2"},
        {"'>i2'", PICI_I16, 1, true, ">i2"},
        {"'<u2'", PICI_U16, 1, false, "<u2"},
        {"'<i4'", PICI_I32, 1, false, "<i4"},
        {"'>u4'", PICI_U32, 1, true, ">u4"},
        {"'<i8'", PICI_I64, 1, false, "<i8"},
        {"'>u8'", PICI_U64, 1, true, ">u8"},
        {"'<f2'", PICI_F16, 1, false, "<f2"},
        {"'>f4'", PICI_F32, 1, true, ">f4"},
        {"'=f8'", PICI_F64, 1, false, "=f8"},
        {"'|f8'", PICI_F64, 1, false, "|f8"},
        {"'f8'", PICI_F64, 1, false, "f8"},
        {"\"<f8\"", PICI_F64, 1, false, "<f8"},
        {"u'<f8'", PICI_F64, 1, false, "<f8"},
        {"'<c8'", PICI_F32, 2, false, "<c8"},
        {"'>c16'", PICI_F64, 2, true, ">c16"},
        {"'<f16'", PICI_U8, 16, false, "<f16"},
        {"'>f12'", PICI_U8, 12, false, ">f12"},
        {"'<c24'", PICI_U8, 24, false, "<c24"},
        {"'<c32'", PICI_U8, 32, false, "<c32"},
        {"'<M8[ns]'", PICI_I64, 1, false, "<M8[ns]"},
        {"'>m8[25s]'", PICI_I64, 1, true, ">m8[25s]"},
        {"'<M8'", PICI_I64, 1, false, "<M8"},
        {"'|S5'", PICI_U8, 5, false, "|S5"},
        {"'|S0'", PICI_U8, 0, false, "|S0"},
        {"'|S'", PICI_U8, 0, false, "|S"},
        {"'|V7'", PICI_U8, 7, false, "|V7"},
        {"'<U3'", PICI_U32, 3, false, "<U3"},
        {"'>U3'", PICI_U32, 3, true, ">U3"},
        {"'<U0'", PICI_U32, 0, false, "<U0"},
        {"[]", PICI_U8, 0, false, "[]"},
        {"[('x', '>f8'), ('y', '<i2')]", PICI_U8, 10, false, "[('x', '>f8'), ('y', '<i2')]"},
        {"[('x', '<f8'),]", PICI_U8, 8, false, "[('x', '<f8'),]"},
        {"[('x', '<f4', 3), ('y', '|u1', (2, 3))]", PICI_U8, 18, false, "[('x', '<f4', 3), ('y', '|u1', (2, 3))]"},
        {"[('x', '<f4', ()), ('y', '<f4', (0,)),]", PICI_U8, 4, false, "[('x', '<f4', ()), ('y', '<f4', (0,)),]"},
        {"[(('t', 'x'), '<U2'), ('', '|V2')]", PICI_U8, 10, false, "[(('t', 'x'), '<U2'), ('', '|V2')]"},
        {"[('s', [('a', '<c8'), ('b', [('c', '|b1')], (5,))], (2,))]", PICI_U8, 26, false,
         "[('s', [('a', '<c8'), ('b', [('c', '|b1')], (5,))], (2,))]"},
        {"[('a\\'b', '<i2'), (\"c'd\", '|S1')]", PICI_U8, 3, false, "[('a\\'b', '<i2'), (\"c'd\", '|S1')]"},
        {"[('donn\xc3\xa9"
         "es', '<f8')]",
         PICI_U8, 8, false, "[('donn\\xc3\\xa9es', '<f8')]"},
        {"[('a name that is too long for a table, so it is cut', '<f8')]", PICI_U8, 8, false,
         "[('a name that is too long for a table, so it is cut', '<f8')]"},
        {"[('a name that is too long for a table, so that it is cut', '<f8')]", PICI_U8, 8, false,
         "[('a name that is too long for a table, so that it is cut', ..."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct npy a;
        struct parse_error err;
        char text[256];
        snprintf(text, sizeof text, H("%s", "False", "(3,)"), cases[i].descr);
        cr_assert(parse_text(&a, 3, text, UINT64_MAX, &err), "%s: %s", cases[i].descr, err.what);
        cr_expect_eq(a.dtype, cases[i].dtype, "%s", cases[i].descr);
        cr_expect_eq(a.swap, cases[i].swap, "%s", cases[i].descr);
        cr_expect_eq(a.item_elements, cases[i].elements, "%s: %" PRIu64, cases[i].descr, a.item_elements);
        cr_expect_eq(a.count, 3 * cases[i].elements, "%s", cases[i].descr);
        cr_expect_str_eq(a.descr, cases[i].shown);
    }
}

Test(npy, spellings)
{
    static const char *const cases[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4,)}",
        "{'shape':(4,),'fortran_order':False,'descr':'<f4'}\n",
        "{\"fortran_order\":False,\"shape\":(4,),\"descr\":\"<f4\",}",
        "{ 'descr' : '<f4' , 'fortran_order' : False , 'shape' : ( 4 , ) , } \n",
        "{u'descr': u'<f4', u'fortran_order': False, u'shape': (4L,)}",
        "\t{\n'descr':\n'<f4',\n'fortran_order':\tFalse,\n'shape':\n(2\n,2\t,)\n}\n\n  \n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 1, 1)}\r\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 2L,),}",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct npy a;
        struct parse_error err;
        cr_assert(parse_text(&a, 1, cases[i], 16, &err), "%s: %s", cases[i], err.what);
        cr_assert(a.dtype == PICI_F32 && a.count == 4 && !a.fortran_order, "%s", cases[i]);
        cr_assert_str_eq(a.descr, "<f4");
    }
}

/* Each is wrong in one way. The offset to be reported is where mark is first found in text ("": at its end). */
Test(npy, refuses)
{
    static const struct {
        const char *text, *mark, *what;
    } cases[] = {
        {"  ", "", "ends where '{'"},
        {"[]", "[]", "'[' where '{'"},
        {"{}", "}", "without 'descr'"},
        {"{'descr': '<f4', 'fortran_order': False}", "}", "without 'shape'"},
        {"{'descr': '<f4', 'shape': (1,)}", "}", "without 'fortran_order'"},
        {"{'fortran_order': False, 'shape': (1,)}", "}", "without 'descr'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", "x", "unknown key 'x'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'shape': (1,)}", "shape': (1,)}", "duplicate key"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)", "", "ends where"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,),", "", "ends where"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,),,}", ",}", "',' where a key"},
        {"{,'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", ",", "',' where a key"},
        {"{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}", "'fort", "where a comma"},
        {"{'descr' '<f4', 'fortran_order': False, 'shape': (1,)}", "'<f4", "where a colon"},
        {"{descr: '<f4', 'fortran_order': False, 'shape': (1,)}", "descr", "'d' where a key"},
        {"{b'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "b'", "'b' where a key"},
        {"{'d\\x65scr': '<f4', 'fortran_order': False, 'shape': (1,)}", "d\\x", "unknown key"},
        {H("'<f4'", "False", "(1,)") "x", "x", "'x' where the end"},
        {H("'<f4'", "False", "(1,)") "# x\r y", "\r", "'\\x0d' where the end"},
        {"{'descr': '<f4', # 'fortran_order': False, 'shape': (1,)}", "", "ends where a key"},
        {H("'<f4'", "False", "(1,)") "\r   ", "\r", "'\\x0d' where the end"},
        {"\xef\xbb\xbf" H("'<f4'", "False", "(1,)"), "\xef", "'\\xef' where '{'"},
        {H("'<f4'", "false", "(1,)"), "false", "True or False"},
        {H("'<f4'", "0", "(1,)"), "0", "True or False"},
        {H("'<f4'", "'True'", "(1,)"), "'True", "True or False"},
        {H("'<f4'", "Tru", "(1,)"), "Tru,", "True or False"},
        {H("'<f4'", "Truee", "(1,)"), "e, 's", "where a comma"},
        {H("'<f4'", "False", "[1]"), "[1]", "a tuple of dimensions"},
        {H("'<f4'", "False", "1"), "1, }", "a tuple of dimensions"},
        {H("'<f4'", "False", "None"), "None", "a tuple of dimensions"},
        {H("'<f4'", "False", "(1)"), "), }", "where a comma"},
        {H("'<f4'", "False", "(,)"), ",)", "',' where a dimension"},
        {H("'<f4'", "False", "(1,,)"), ",)", "',' where a dimension"},
        {H("'<f4'", "False", "(1,2"), "}", "where a dimension"},
        {H("'<f4'", "False", "(1 2)"), "2)", "where a comma"},
        {H("'<f4'", "False", "(1, -2)"), "-2", "'shape' has a negative dimension"},
        {H("'<f4'", "False", "(-0,)"), "-0", "'shape' has a negative dimension"},
        {H("'<f4'", "False", "(+1,)"), "+1", "where a dimension"},
        {H("'<f4'", "False", "(1.0,)"), ".0", "where a comma"},
        {H("'<f4'", "False", "(02,)"), "02", "leading zero"},
        {H("'<f4'", "False", "(0x2,)"), "x2", "where a comma"},
        {H("'<f4'", "False", "(2LL,)"), "L,", "where a comma"},
        {H("'<f4'", "False", "(True,)"), "True", "where a dimension"},
        {H("'<f4'", "False", "((1,),)"), "(1,)", "where a dimension"},
        {H("'|u1'", "False", "(9223372036854775808,)"), "92", "beyond 63 bits"},
        {H("'|u1'", "False", "(18446744073709551617,)"), "18", "beyond 63 bits"},
        {H("'|u1'", "False", "(9223372036854775807,)"), "(9", "beyond 2^63"},
        {H("'|u1'", "False", "(4294967296, 4294967296)"), "(4", "beyond 2^63"},
        {H("'|u1'", "False", "(0, 4294967296, 4294967296)"), "(0", "beyond 2^63"},
        {H("'|S0'", "False", "(4294967296, 4294967296)"), "(4", "beyond 2^63"},
        {H("'<f8'", "False", "(1152921504606846976,)"), "(1", "beyond 2^63"},
        {"{'shape': (1152921504606846976,), 'descr': '<f8', 'fortran_order': False}", "(1", "beyond 2^63"},
        {H("'|O'", "False", "(1,)"), "|O", "Python objects"},
        {H("'O'", "False", "(1,)"), "O'", "Python objects"},
        {H("'|O8'", "False", "(1,)"), "|O8", "Python objects"},
        {H("[('a', '<f4'), ('b', '|O')]", "False", "(1,)"), "|O", "Python objects"},
        {H("''", "False", "(1,)"), "', 'f", "unknown type ''"},
        {H("'<'", "False", "(1,)"), "<'", "unknown type '<'"},
        {H("'<f'", "False", "(1,)"), "<f", "unknown type '<f'"},
        {H("'<f1'", "False", "(1,)"), "<f1", "unknown type '<f1'"},
        {H("'<f3'", "False", "(1,)"), "<f3", "unknown type"},
        {H("'<i16'", "False", "(1,)"), "<i16", "unknown type"},
        {H("'<i0'", "False", "(1,)"), "<i0", "unknown type"},
        {H("'<b2'", "False", "(1,)"), "<b2", "unknown type"},
        {H("'<c4'", "False", "(1,)"), "<c4", "unknown type"},
        {H("'<c9'", "False", "(1,)"), "<c9", "unknown type"},
        {H("'<M4'", "False", "(1,)"), "<M4", "unknown type"},
        {H("'<M8[]'", "False", "(1,)"), "<M8", "unknown type"},
        {H("'<M8[xs]'", "False", "(1,)"), "<M8", "unknown type"},
        {H("'<M8['", "False", "(1,)"), "<M8", "unknown type"},
        {H("'<M8[25'", "False", "(1,)"), "<M8", "unknown type"},
        {H("'<M8s]'", "False", "(1,)"), "<M8", "unknown type"},
        {H("'<M8[2147483648s]'", "False", "(1,)"), "<M8", "unknown type"},
        {H("'<M8[ns'", "False", "(1,)"), "<M8", "unknown type"},
        {H("'<M8[ns]]'", "False", "(1,)"), "<M8", "unknown type"},
        {H("'<f4[ns]'", "False", "(1,)"), "<f4", "unknown type"},
        {H("'!f4'", "False", "(1,)"), "!f4", "unknown type '!f4'"},
        {H("'<<f4'", "False", "(1,)"), "<<f4", "unknown type"},
        {H("'<f4 '", "False", "(1,)"), "<f4", "unknown type '<f4 '"},
        {H("'<f4,<i4'", "False", "(1,)"), "<f4,", "unknown type"},
        {H("'float32'", "False", "(1,)"), "float32", "unknown type 'float32'"},
        {H("'<\xff'", "False", "(1,)"), "<\xff", "unknown type '<\\xff'"},
        {H("'|S2147483648'", "False", "(1,)"), "|S2", "2 GiB"},
        {H("'<U536870912'", "False", "(1,)"), "<U5", "2 GiB"},
        {H("'|S99999999999999999999'", "False", "(1,)"), "|S9", "2 GiB"},
        {H("'<f4", "False", "(1,)"), "<f4", "unknown type '<f4, '"},
        {H("'<f4\n'", "False", "(1,)"), "\n", "control character"},
        {H("('<f4', (2,))", "False", "(1,)"), "('<f4", "where a type"},
        {H("{'names': ['a']}", "False", "(1,)"), "{'names", "where a type"},
        {H("[('a', '<f4')", "False", "(1,)"), "'fort", "'(name, type)'"},
        {H("['a', '<f4']", "False", "(1,)"), "'a'", "a field, '(name, type)'"},
        {H("[['a', '<f4']]", "False", "(1,)"), "['a'", "a field, '(name, type)'"},
        {H("[('a',)]", "False", "(1,)"), ")]", "where a type"},
        {H("[('a', '<f4', 2, 3)]", "False", "(1,)"), "3)", "where ')'"},
        {H("[(0, '<f4')]", "False", "(1,)"), "0", "where a name"},
        {H("[(('t',), '<f4')]", "False", "(1,)"), "), '<", "where a name"},
        {H("[(('t', 'a', 'b'), '<f4')]", "False", "(1,)"), "'b'", "where ')'"},
        {H("[('a', '<f4', -1)]", "False", "(1,)"), "-1", "'descr' has a negative dimension"},
        {H("[('a', '|S0', 3)]", "False", "(1,)"), "3)", "no shape"},
        {H("[('a', '<f4', (2))]", "False", "(1,)"), "))]", "where a comma"},
        {H("[('a', '<f4', [2])]", "False", "(1,)"), "[2]", "where a dimension"},
        {H("[('a', '|S1073741824'), ('b', '|S1073741824')]", "False", "(1,)"), ", '|S1073741824')]", "2 GiB"},
        {H("[('a', '<f4', (65536, 65536))]", "False", "(1,)"), ", '<f4'", "2 GiB"},
        {H("[('a', '<f4', (0, 4294967296))]", "False", "(1,)"), ", '<f4'", "2 GiB"},
        {"{'descr", "'", "string without an end"},
        {"{'descr\\'", "'", "string without an end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct npy a;
        struct parse_error err;
        const char *text = cases[i].text;
        bool ok = parse_text(&a, 1, text, UINT64_MAX, &err);
        cr_expect_not(ok, "accepted: %s", text);
        if (ok)
            continue;
        const char *mark = *cases[i].mark ? strstr(text, cases[i].mark) : text + strlen(text);
        cr_assert_not_null(mark, "case %zu marks nothing", i);
        cr_expect_eq(err.offset, (uint64_t)(mark - text) + 10, "%s: offset %" PRIu64 ", '%s'", text, err.offset,
                     err.what);
        cr_expect_not_null(strstr(err.what, cases[i].what), "%s: '%s'", text, err.what);
    }
}

Test(npy, beginning)
{
    uint8_t head[256];
    size_t n = make(head, 1, H("'<f4'", "False", "(1,)"));
    struct npy a;
    struct parse_error err;
    for (size_t i = 0; i < 6; i++) {
        head[i] ^= 1;
        cr_assert_not(parse(&a, head, n, n + 4, &err));
        cr_assert_eq(err.offset, i);
        cr_assert_str_eq(err.what, "not a .npy file");
        cr_assert_not(parse(&a, head, i + 1, i + 1, &err));
        cr_assert_eq(err.offset, i, "a short file that is something else");
        head[i] ^= 1;
    }
    for (int major = 0; major < 256; major++) {
        for (int minor = 0; minor < 3; minor++) {
            head[6] = (uint8_t)major;
            head[7] = (uint8_t)minor;
            bool ok = parse(&a, head, n, n + 4, &err);
            cr_assert_eq(ok, major == 1 && minor == 0, "%d.%d", major, minor);
            if (!ok && (major < 1 || major > 3 || minor))
                cr_assert_eq(err.offset, 6);
        }
    }
}

Test(npy, length_of_the_header)
{
    static const struct {
        uint8_t version, length[4];
        uint64_t need; /* 0: refused */
    } cases[] = {
        {1, {0, 0, 0xff, 0xff}, 0},
        {1, {1, 0, 0xff, 0xff}, 0},
        {1, {2, 0, 0xff, 0xff}, 12},
        {1, {0x76, 0, 0xff, 0xff}, 10 + 0x76},
        {1, {0xff, 0xff, 0xff, 0xff}, 10 + 0xffff},
        {2, {0, 0, 0, 0}, 0},
        {2, {0x74, 0, 0, 0}, 12 + 0x74},
        {2, {0xb4, 0x67, 1, 0}, 12 + 0x167b4},
        {2, {0, 0, 0x10, 0}, NPY_MAX_HEADER_BYTES},
        {3, {0, 0, 0x10, 0}, NPY_MAX_HEADER_BYTES},
        {3, {1, 0, 0x10, 0}, 0},
        {2, {0, 0, 0, 1}, 0},
        {3, {0xff, 0xff, 0xff, 0xff}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t first[12] = {0x93, 'N', 'U', 'M', 'P', 'Y', cases[i].version};
        struct parse_error err;
        uint64_t need = 0;
        memcpy(first + 8, cases[i].length, 4);
        bool ok = pici_npy_header_bytes(&need, first, sizeof first, &err);
        cr_assert_eq(need, cases[i].need, "case %zu: %" PRIu64, i, need);
        cr_assert(ok ? need != 0 : err.offset == 8, "case %zu", i);
    }
}

Test(npy, longest_header)
{
    static const char text[] = H("'<f4'", "False", "(1,)");
    uint8_t *head = malloc(NPY_MAX_HEADER_BYTES);
    struct npy a;
    struct parse_error err;
    memset(head, ' ', NPY_MAX_HEADER_BYTES);
    make(head, 2, text);
    memcpy(head + 8, "\0\0\x10\0", 4);
    cr_assert(parse(&a, head, NPY_MAX_HEADER_BYTES, NPY_MAX_HEADER_BYTES + 4, &err), "%s", err.what);
    head[NPY_MAX_HEADER_BYTES - 1] = 'x';
    cr_assert_not(parse(&a, head, NPY_MAX_HEADER_BYTES, NPY_MAX_HEADER_BYTES + 4, &err));
    cr_assert_eq(err.offset, NPY_MAX_HEADER_BYTES - 1);
    free(head);
}

Test(npy, rank)
{
    for (int rank = NPY_MAX_RANK - 1; rank <= NPY_MAX_RANK + 1; rank++) {
        char shape[4 * NPY_MAX_RANK] = "(", text[6 * NPY_MAX_RANK];
        struct npy a;
        struct parse_error err;
        for (int i = 0; i < rank; i++)
            strcat(shape, "1,");
        strcat(shape, ")");
        snprintf(text, sizeof text, H("'<f4'", "False", "%s"), shape);
        bool ok = parse_text(&a, 1, text, 4, &err);
        cr_assert_eq(ok, rank <= NPY_MAX_RANK, "%d: %s", rank, err.what);
        if (ok)
            cr_assert_eq(a.rank, (unsigned)rank);
        else
            cr_assert_str_eq(err.what, "'shape' has more than 64 dimensions");
    }
}

Test(npy, structures_in_structures)
{
    for (int depth = 15; depth <= 1000; depth += depth < 18 ? 1 : 982) {
        char *text = malloc(20 * (size_t)depth + 100), *p = text;
        struct npy a;
        struct parse_error err;
        p += sprintf(p, "{'descr': ");
        for (int i = 0; i < depth; i++)
            p += sprintf(p, "[('a', ");
        p += sprintf(p, "'<f4'");
        for (int i = 0; i < depth; i++)
            p += sprintf(p, ")]");
        sprintf(p, ", 'fortran_order': False, 'shape': (1,)}");
        bool ok = parse_text(&a, 2, text, 4, &err);
        cr_assert_eq(ok, depth <= 16, "%d: %s", depth, err.what);
        cr_assert(ok ? a.count == 4 : strcmp(err.what, "'descr' is nested too deep") == 0);
        free(text);
    }
}

Test(npy, utf8_in_version_3_only)
{
    static const char text[] = H("[('\xff', '<f8')]", "False", "(1,)");
    struct npy a;
    struct parse_error err;
    cr_assert(parse_text(&a, 1, text, 8, &err), "%s", err.what);
    cr_assert(parse_text(&a, 2, text, 8, &err), "%s", err.what);
    cr_assert_not(parse_text(&a, 3, text, 8, &err));
    cr_assert_eq(err.offset, 12 + (uint64_t)(strchr(text, '\xff') - text));
    cr_assert_str_eq(err.what, "invalid UTF-8");
}

Test(npy, long_integers_of_python_2)
{
    static const char text[] = H("[('a', '<f8', (1L,))]", "False", "(1,)");
    struct npy a;
    struct parse_error err;
    for (int version = 1; version <= 3; version++)
        cr_assert_eq(parse_text(&a, version, text, 8, &err), version < 3, "version %d: %s", version, err.what);
    cr_assert_eq(err.offset, 12 + (uint64_t)(strchr(text, 'L') - text));
}

Test(npy, nul_bytes)
{
    static const char text[] = H("'<f4'", "False", "(1,)") " \n";
    uint8_t head[12 + sizeof text];
    struct npy a;
    struct parse_error err;
    size_t n = make(head, 1, text);
    for (size_t i = 10; i < n; i++) {
        uint8_t old = head[i];
        head[i] = 0;
        cr_assert_not(parse(&a, head, n, n + 4, &err), "at %zu", i);
        head[i] = old;
    }
    n = make(head, 1, "{'descr': '\\\x01'"); /* a NUL behind a backslash, too */
    head[n - 2] = 0;
    cr_assert_not(parse(&a, head, n, n + 4, &err));
    cr_assert_eq(err.offset, n - 2);
}

Test(npy, length_of_the_file)
{
    static const char text[] = H("'<f4'", "False", "(2, 5)");
    const uint64_t n = 10 + strlen(text);
    struct npy a;
    struct parse_error err;
    for (uint64_t data = 0; data < 50; data++) {
        bool ok = parse_text(&a, 1, text, data, &err);
        cr_assert_eq(ok, data >= 40, "%" PRIu64, data);
        if (ok)
            cr_assert_eq(a.trailing_bytes, data - 40);
        else
            cr_assert_eq(err.offset, n + data);
    }
    cr_assert_not(parse_text(&a, 1, text, 39, &err));
    cr_assert_str_eq(err.what, "the file ends 1 bytes before the data do");
    cr_assert(parse_text(&a, 1, H("'|u1'", "False", "(9223372036854775700,)"), UINT64_MAX, &err), "%s", err.what);
    cr_assert_eq(a.data_bytes, 9223372036854775700u);
}

static const char rich[] = "{'descr': [('x', '>f4', (2, 2)), (('t', 'y'), [('z', '<U3')])], "
                           "\"fortran_order\": True, 'shape': (2L, 3), } \n";

Test(npy, truncated_at_every_byte)
{
    uint8_t head[12 + sizeof rich];
    size_t n = make(head, 1, rich);
    struct npy a;
    struct parse_error err;
    cr_assert(parse(&a, head, n, n + 6 * 28, &err), "%s", err.what);
    cr_assert_eq(a.data_bytes, 6 * 28);
    size_t dict = strlen(rich) - 2; /* the text is complete without the white space at its end */
    for (size_t i = 0; i < n; i++) {
        cr_assert_not(parse(&a, head, i, n + 6 * 28, &err), "%zu bytes", i); /* memory ends */
        cr_assert_eq(err.offset, i);
        cr_assert_not(parse(&a, head, i, i, &err), "%zu bytes", i); /* the file ends */
        cr_assert_eq(err.offset, i);
        if (i >= 12) { /* the text ends, and its length says so */
            head[8] = (uint8_t)(i - 10);
            cr_assert_eq(parse(&a, head, i, UINT64_MAX, &err), i >= 10 + dict, "%zu bytes", i);
            head[8] = (uint8_t)(n - 10);
        }
    }
}

Test(npy, every_byte_changed)
{
    uint8_t head[12 + sizeof rich];
    size_t n = make(head, 1, rich);
    struct npy a;
    struct parse_error err;
    unsigned refused = 0;
    for (size_t i = 0; i < n; i++) {
        uint8_t old = head[i];
        for (int c = 0; c < 256; c++) {
            head[i] = (uint8_t)c;
            refused += !parse(&a, head, n, n + 6 * 28, &err);
        }
        head[i] = old;
    }
    cr_assert_gt(refused, 200 * n, "only %u refused", refused);
}

/* ---- other people's files */

/* Elements of the data that are not zero. */
static uint64_t nonzeros(const struct npy *a, const uint8_t *data)
{
    static const uint8_t zero[8];
    size_t width = pici_dtype_width(a->dtype);
    uint64_t n = 0;
    for (uint64_t i = 0; i < a->count; i++)
        n += memcmp(data + i * width, zero, width) != 0;
    return n;
}

/* Check one file against what NumPy said of it: "v1.0 <f4[2, 3] nz=0.8333 F", or "v1.0 NUMPY REFUSES: ..." */
static void check_golden(const char *path, char *said)
{
    char descr[32] = "", shape[128] = "(", want[128];
    int version, at = 0;
    double density = -1;
    bool refused = strstr(said, "NUMPY REFUSES") != NULL;
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f, "%s", path);
    static uint8_t data[1 << 18];
    size_t len = fread(data, 1, sizeof data, f);
    fclose(f);
    cr_assert_lt(len, sizeof data);

    struct npy a;
    struct parse_error err;
    uint64_t need;
    bool ok =
        pici_npy_header_bytes(&need, data, len, &err) && parse(&a, data, need < len ? (size_t)need : len, len, &err);
    if (strstr(path, "version2_large_header")) { /* NumPy's own limit is 10,000 bytes; the header is sound */
        cr_assert(ok, "%s: %s", path, err.what);
        cr_assert_eq(a.item_elements * a.items, len - need);
        return;
    }
    cr_assert_eq(ok, !refused, "%s: %s", path, ok ? "accepted" : err.what);
    if (refused) {
        cr_assert_not_null(strstr(err.what, strstr(said, "Object arrays") ? "Python objects" : "'\\x0d' where the end"),
                           "%s: %s", path, err.what);
        return;
    }
    cr_assert_eq(sscanf(said, "v%d.0 %31[^[]%n", &version, descr, &at), 2, "%s: %s", path, said);
    cr_assert_eq(version, data[6], "%s", path);
    char *end = strchr(said + at, ']');
    cr_assert_not_null(end);
    snprintf(want, sizeof want, "(%.*s)", (int)(end - said) - at - 1, said + at + 1);
    unsigned long_dims = 0; /* NumPy reports an order only where there is a difference */
    for (unsigned i = 0; i < a.rank; i++) {
        long_dims += a.shape[i] > 1;
        sprintf(shape + strlen(shape), "%s%" PRIu64, i ? ", " : "", a.shape[i]);
    }
    strcat(shape, ")");
    cr_expect_str_eq(shape, want, "%s: %s, not %s", path, shape, want);
    if (long_dims > 1)
        cr_expect_eq(a.fortran_order, strstr(end, " F") != NULL, "%s", path);
    if (descr[0] == '/') /* a table of the list's kind cannot hold a bar */
        descr[0] = '|';
    if (a.descr[0] == '[')
        cr_expect_eq(a.item_elements, strtoull(descr + 2, NULL, 10), "%s: %s", path, descr);
    else
        cr_expect_str_eq(a.descr, descr, "%s", path);
    cr_expect_eq(a.trailing_bytes, 0, "%s", path);
    if (a.item_elements == 1 && sscanf(end, "] nz=%lf", &density) == 1) {
        double d = (double)nonzeros(&a, data + a.data_offset) / (double)a.count;
        cr_expect(d > density - 0.0001 && d < density + 0.0001, "%s: density %f, not %f", path, d, density);
    }
}

Test(npy, golden)
{
    FILE *list = fopen(DATA "MANIFEST.md", "r");
    static char line[4096];
    char name[200], path[300];
    int files = 0;
    if (!list) {
        printf("skip: no " DATA "MANIFEST.md, so none of the golden .npy files\n");
        return;
    }
    while (fgets(line, sizeof line, list)) {
        if (sscanf(line, "| golden/npy/%199s |", name) != 1 || strcmp(name + strlen(name) - 4, ".npy") != 0)
            continue;
        char *said = strstr(line, "; v"); /* the last column, after what the file is */
        cr_assert_not_null(said, "%s", line);
        snprintf(path, sizeof path, DATA "golden/npy/%s", name);
        check_golden(path, said + 2);
        files++;
    }
    fclose(list);
    cr_assert_gt(files, 100, "only %d files", files);
}

Test(npy, golden_overflow)
{
    static const char path[] = DATA "golden/npy/JetBrains/overflow.npy";
    FILE *f = fopen(path, "rb");
    uint8_t data[256];
    struct npy a;
    struct parse_error err;
    if (!f) {
        printf("skip: no %s\n", path);
        return;
    }
    size_t len = fread(data, 1, sizeof data, f);
    fclose(f);
    cr_assert_not(parse(&a, data, len, len, &err));
    cr_assert_eq(err.offset, 80);
    data[80] = ' '; /* without its stray carriage return the header is sound, but there are no data */
    cr_assert_not(parse(&a, data, len, len, &err));
    cr_assert_eq(err.offset, len);
    cr_assert_str_eq(err.what, "the file ends 34359738368 bytes before the data do");
    cr_assert(parse(&a, data, len, UINT64_MAX, &err), "%s", err.what);
    cr_assert_eq(a.count, UINT64_C(1) << 32);
}

/* What is written is read as what was meant, at every dtype and rank. */
Test(npy, headers_are_written)
{
    char head[NPY_WRITE_ROOM];
    uint64_t shape[NPY_WRITE_RANK];
    for (int dtype = PICI_F32; dtype <= PICI_U64; dtype++)
        for (unsigned rank = 0; rank <= NPY_WRITE_RANK; rank++)
            for (int fortran = 0; fortran < 2; fortran++) {
                struct npy a;
                struct parse_error err;
                for (unsigned d = 0; d < rank; d++)
                    shape[d] = d ? 1 : rank + 5;
                size_t len = pici_npy_write_header(head, (enum pici_dtype)dtype, NPY_NUMBER, fortran, shape, rank);
                cr_assert(parse(&a, head, len, UINT64_MAX, &err), "%s", err.what);
                cr_assert_eq(a.data_offset, len);
                cr_assert_eq(len % 64, 0);
                cr_assert_eq(a.fortran_order, fortran);
                cr_assert(a.rank == rank && (!rank || memcmp(a.shape, shape, rank * sizeof *shape) == 0));
                cr_assert_eq(a.data_bytes, (rank ? rank + 5 : 1) * pici_dtype_width((enum pici_dtype)dtype));
                bool named = dtype != PICI_BF16 && dtype != PICI_F8E4M3 && dtype != PICI_F8E5M2;
                cr_assert(!named || (a.dtype == (enum pici_dtype)dtype && !a.swap));
            }
    for (unsigned d = 0; d < NPY_WRITE_RANK; d++)
        shape[d] = INT64_MAX; /* the longest text */
    cr_assert_leq(pici_npy_write_header(head, PICI_U64, NPY_NUMBER, false, shape, NPY_WRITE_RANK), sizeof head);
    shape[0] = 7;
    cr_assert_not_null(strstr(head + 10, "'shape': (9223372036854775807, "));
    pici_npy_write_header(head, PICI_F32, NPY_NUMBER, false, shape, 1);
    cr_assert_eq(strncmp(head + 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (7,), }  ", 59), 0);
}

/* Booleans and complex numbers have types of NumPy, whatever the original file calls them. */
Test(npy, meanings)
{
    static const struct {
        const char *word;
        enum pici_dtype dtype;
        enum npy_meaning meaning;
        const char *descr;
    } cases[] = {{"|b1", PICI_U8, NPY_BOOL, "|b1"},         {"BOOL", PICI_U8, NPY_BOOL, "|b1"},
                 {"bool", PICI_U8, NPY_BOOL, "|b1"},        {">c8", PICI_F32, NPY_COMPLEX, "<c8"},
                 {"C64", PICI_F32, NPY_COMPLEX, "<c8"},     {"complex128", PICI_F64, NPY_COMPLEX, "<c16"},
                 {"<c16", PICI_F64, NPY_COMPLEX, "<c16"},   {"<c16", PICI_F32, NPY_NUMBER, "<f4"},
                 {"complex32", PICI_F16, NPY_OTHER, "<f2"}, {"F8_E8M0", PICI_U8, NPY_OTHER, "|u1"},
                 {"F8_E8M0", PICI_I8, NPY_NUMBER, "|i1"},   {"|b1", PICI_F32, NPY_NUMBER, "<f4"},
                 {"", PICI_U8, NPY_NUMBER, "|u1"},          {"<", PICI_U8, NPY_NUMBER, "|u1"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char head[NPY_WRITE_ROOM], descr[32];
        const uint64_t n = 5;
        const char *word = cases[i].word;
        const enum npy_meaning meaning = pici_npy_meaning_of(word, strlen(word), cases[i].dtype);
        cr_assert_eq(meaning, cases[i].meaning, "%s", word);
        pici_npy_write_header(head, cases[i].dtype, meaning, false, &n, 1);
        snprintf(descr, sizeof descr, "{'descr': '%s', ", cases[i].descr);
        cr_assert_eq(strncmp(head + 10, descr, strlen(descr)), 0, "%s", word);
    }
}
