/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Untrusted text in every kind of output: what cannot be seen, or changes how the rest is seen, is escaped. */
#define _GNU_SOURCE /* memfd_create */
#include <criterion/criterion.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "parse/json.h"
#include "tools/show/jsonout.h"
#include "tools/show/markup.h"
#include "tools/show/report.h"
#include "tools/show/svg.h"
#include "tools/term.h"
#include "tools/tool.h"

/* The first and last code points of ranges that must be escaped. */
static const uint32_t hidden[][2] = {
    {0x01, 0x1f},       {0x7f, 0x9f},                                             /* controls */
    {0x200e, 0x200f},   {0x202a, 0x202e},                                         /* direction of writing */
    {0x2066, 0x2069},   {0x61c, 0x61c},     {0x200b, 0x200d},   {0x2060, 0x2064}, /* nothing to be seen */
    {0xad, 0xad},       {0x34f, 0x34f},     {0xfeff, 0xfeff},   {0x115f, 0x1160},   {0x3164, 0x3164},
    {0xffa0, 0xffa0},   {0x180b, 0x180e},   {0xfe00, 0xfe0f},   {0xe0100, 0xe01ef}, /* variants */
    {0x2028, 0x2029},                                                               /* separators of lines */
    {0x206a, 0x206f},   {0xfff9, 0xfffb},   {0x600, 0x605},     {0x6dd, 0x6dd},     {0x70f, 0x70f}, /* formats */
    {0x1d173, 0x1d17a}, {0xe0001, 0xe0001}, {0xe0020, 0xe007f}, {0xfffe, 0xffff},   {0x10fffe, 0x10ffff},
};
enum { HIDDEN = sizeof hidden / sizeof *hidden };

/* Neighbours of these, and characters of many scripts, that must come out as they are. */
static const uint32_t shown[] = {'a',    0xa0,   0xac,   0xae,   0xe9,   0x34e,   0x350,   0x3b1,   0x5d0,  0x61b,
                                 0x61d,  0x627,  0x200a, 0x2010, 0x2027, 0x202f,  0x205f,  0x2070,  0x2588, 0x4e2d,
                                 0xac00, 0xfdcf, 0xfdf0, 0xfe10, 0xfffd, 0x10000, 0x1f600, 0x1fffd, 0xf0000};

static size_t encode(char *p, uint32_t c)
{
    if (c < 0x80) {
        p[0] = (char)c;
        return 1;
    }
    const size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6)
        p[i] = (char)(0x80 | (c & 0x3f));
    p[0] = (char)(n == 2 ? 0xc0 | c : n == 3 ? 0xe0 | c : 0xf0 | c);
    return n;
}

/* "a<c>b" as the tool shows it, and escaped byte by byte. */
static void texts(uint32_t c, char name[8], char escaped[24])
{
    char *to = escaped + sprintf(escaped, "a");
    size_t n = encode(name + 1, c);
    name[0] = 'a';
    memcpy(name + 1 + n, "b", 2);
    for (size_t i = 0; i < n; i++)
        to += sprintf(to, "\\x%02x", (unsigned char)name[1 + i]);
    strcpy(to, "b");
}

static const char *on_terminal(const char *name)
{
    static char out[64];
    FILE *f = fmemopen(out, sizeof out, "w");
    cr_assert_not_null(f);
    term_column(f, name, 0, false);
    fclose(f);
    return out;
}

static const char *in_page(const char *name)
{
    static char text[4096];
    struct output out = {.name = "page", .fd = memfd_create("page", 0)};
    struct markup *m = calloc(1, sizeof *m);
    cr_assert(m && out.fd >= 0);
    m->output = &out;
    markup_text(m, name, strlen(name));
    cr_assert_eq(markup_flush(m), TOOL_OK);
    ssize_t n = pread(out.fd, text, sizeof text - 1, 0);
    cr_assert_geq(n, 0);
    text[n] = 0;
    close(out.fd);
    free(m);
    return text;
}

static const char *in_svg(const char *name)
{
    static char text[4096];
    struct output out = {.name = "picture", .fd = memfd_create("picture", 0)};
    struct canvas *c = canvas_svg(&out, 100, 100);
    cr_assert(c && out.fd >= 0);
    c->text(c, 1, 1, name, ANCHOR_LEFT, INK_TEXT);
    cr_assert_eq(c->finish(c), TOOL_OK);
    ssize_t n = pread(out.fd, text, sizeof text - 1, 0);
    cr_assert_geq(n, 0);
    text[n] = 0;
    close(out.fd);
    return text;
}

/* The JSON of a name, which must be read back as the name. */
static const char *in_json(const char *name)
{
    static char out[64];
    char back[64];
    FILE *f = fmemopen(out, sizeof out, "w");
    struct jsonout j = {.file = f};
    struct json in;
    struct parse_error err;
    cr_assert_not_null(f);
    jsonout_string(&j, NULL, name);
    fclose(f);
    pici_json_init(&in, out, strlen(out), 0, &err);
    struct json_token t = pici_json_next(&in);
    cr_assert_eq(t.type, JSON_STRING, "%s", out);
    size_t n = pici_json_string(&in, t, back);
    cr_assert(n == strlen(name) && memcmp(back, name, n) == 0, "%s", out);
    return out;
}

Test(tool_text, hidden_characters_are_escaped)
{
    setlocale(LC_CTYPE, "C.UTF-8");
    for (size_t r = 0; r < HIDDEN; r++)
        for (uint32_t c = hidden[r][0]; c <= hidden[r][1]; c++) {
            char name[8], escaped[24];
            texts(c, name, escaped);
            cr_expect_str_eq(on_terminal(name), escaped, "U+%04X on a terminal", c);
            cr_expect_str_eq(in_page(name), escaped, "U+%04X in a page", c);
            cr_expect(strstr(in_svg(name), escaped), "U+%04X in a picture", c);
            cr_expect_eq(strlen(in_json(name)), c > 0xffff ? 16 : 10, "U+%04X in JSON: %s", c, in_json(name));
            cr_expect_not_null(strstr(in_json(name), "\"a\\u"));
        }
}

Test(tool_text, other_characters_are_shown)
{
    setlocale(LC_CTYPE, "C.UTF-8");
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        char name[8], escaped[24], quoted[12];
        texts(shown[i], name, escaped);
        snprintf(quoted, sizeof quoted, "\"%s\"", name);
        cr_expect_str_eq(on_terminal(name), name, "U+%04X", shown[i]);
        cr_expect_str_eq(in_page(name), name, "U+%04X", shown[i]);
        cr_expect_str_eq(in_json(name), quoted, "U+%04X", shown[i]);
    }
}

/* Every code point is decoded to itself; surrogates and other broken sequences to none. */
Test(tool_text, characters_are_decoded)
{
    for (uint32_t c = 1; c <= 0x10ffff; c++) {
        char p[4];
        uint32_t back = 0;
        const size_t n = encode(p, c), got = pici_parse_char((uint8_t *)p, (uint8_t *)p + n, &back);
        if (c >= 0xd800 && c <= 0xdfff)
            cr_assert_eq(got, 0, "U+%04X", c);
        else
            cr_assert(got == n && back == c, "U+%04X: %zu bytes, U+%04X", c, got, back);
    }
}

/* A file's words about the shape of a tensor, in a table. */
Test(tool_text, words_of_a_shape_are_escaped)
{
    char text[512], name[] = "w", view[] = "from \033]0;x\007 \302\233m of v";
    struct measured m = {.name = name, .view = view, .dtype = PICI_F32};
    const struct report report = {.tensor = &m, .tensors = 1};
    struct columns c;
    const int real = dup(STDOUT_FILENO), to = memfd_create("to", 0);
    fflush(stdout);
    dup2(to, STDOUT_FILENO);
    columns_fit(&c, &report, 0);
    columns_row(&c, &m);
    fputs("END", stdout);
    fflush(stdout);
    dup2(real, STDOUT_FILENO);
    const ssize_t n = pread(to, text, sizeof text - 1, 0);
    cr_assert_gt(n, 0);
    text[n] = 0;
    cr_assert_str_eq(text, "w      f32    [] from \\x1b]0;x\\x07 \\xc2\\x9bm of vEND");
    close(real);
    close(to);
}
