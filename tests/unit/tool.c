/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Parts of picitool that are functions: numbers as people write and read them, densities, sizes, JSON. */
#define _POSIX_C_SOURCE 200809L
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "parse/json.h"
#include "tools/input/input.h"
#include "tools/input/source.h"
#include "tools/measure/density.h"
#include "tools/measure/measure.h"
#include "tools/output/sparse.h"
#include "tools/show/heat.h"
#include "tools/show/jsonout.h"
#include "tools/suggest.h"
#include "tools/term.h"
#include "tools/tool.h"

Test(tool, byte_counts)
{
    static const struct {
        const char *text;
        bool ok;
        uint64_t bytes;
    } cases[] = {
        {"0", true, 0},
        {"4096", true, 4096},
        {"1K", true, 1024},
        {"3m", true, 3 << 20},
        {"2GiB", true, UINT64_C(2) << 30},
        {"1T", true, UINT64_C(1) << 40},
        {"18446744073709551615", true, UINT64_MAX},
        {"16777215T", true, UINT64_C(16777215) << 40},
        {"18446744073709551616", false, 0},
        {"16777216T", false, 0},
        {"", false, 0},
        {"-1", false, 0},
        {"+1", false, 0},
        {" 1", false, 0},
        {"1 ", false, 0},
        {"1Q", false, 0},
        {"K", false, 0},
        {"1KB", false, 0},
        {"1KiBs", false, 0},
        {"0x10", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t bytes = 0;
        cr_expect_eq(tool_parse_bytes(cases[i].text, &bytes), cases[i].ok, "'%s'", cases[i].text);
        cr_expect(!cases[i].ok || bytes == cases[i].bytes, "'%s'", cases[i].text);
    }
}

Test(tool, types_by_name)
{
    cr_expect_eq(tool_type_of("a.npy"), TYPE_NPY);
    cr_expect_eq(tool_type_of("d.npy/a"), TYPE_RAW);
    cr_expect_eq(tool_type_of("d/a.safetensors"), TYPE_SAFETENSORS);
    cr_expect_eq(tool_type_of("a.GGUF"), TYPE_GGUF);
    cr_expect_eq(tool_type_of("a.npy.bak"), TYPE_RAW);
    cr_expect_eq(tool_type_of("-"), TYPE_RAW);
    cr_expect_eq(tool_type_of(""), TYPE_RAW);
}

Test(tool, short_texts)
{
    char b[TERM_TEXT], shape[16];
    cr_expect_str_eq(term_bytes(b, 0), "0 B");
    cr_expect_str_eq(term_bytes(b, 1023), "1023 B");
    cr_expect_str_eq(term_bytes(b, 1024), "1.00 KiB");
    cr_expect_str_eq(term_bytes(b, 1048575), "1.00 MiB");
    cr_expect_str_eq(term_bytes(b, UINT64_MAX), "16.0 EiB");
    cr_expect_str_eq(term_percent(b, 0, 0), "-");
    cr_expect_str_eq(term_percent(b, 0, 7), "0%");
    cr_expect_str_eq(term_percent(b, 7, 7), "100%");
    cr_expect_str_eq(term_percent(b, 1, 3), "33.3%");
    cr_expect_str_eq(term_percent(b, 1, 4096), "0.024%");
    cr_expect_str_eq(term_percent(b, UINT64_MAX - 1, UINT64_MAX), "~100%"); /* not all, and does not look as if */
    cr_expect_str_eq(term_percent(b, 9999, 10000), "99.99%");
    const uint64_t dims[] = {3, 224, 224, UINT64_MAX};
    cr_expect_str_eq(term_shape(shape, sizeof shape, dims, 0), "[]");
    cr_expect_str_eq(term_shape(shape, sizeof shape, dims, 2), "[3, 224]");
    cr_expect_str_eq(term_shape(shape, sizeof shape, dims, 4), "[3, 224, ...]");
}

/* What term_column writes. */
static void column(char *out, size_t cap, const char *s, size_t width, bool cut)
{
    FILE *f = fmemopen(out, cap, "w");
    cr_assert_not_null(f);
    term_column(f, s, width, cut);
    fclose(f);
}

Test(tool, columns_and_strangers)
{
    char out[64];
    setlocale(LC_CTYPE, "C.UTF-8");
    column(out, sizeof out, "abc", 5, true);
    cr_expect_str_eq(out, "abc  ");
    column(out, sizeof out, "abcdefghij", 5, true);
    cr_expect_str_eq(out, "ab…ij");
    column(out, sizeof out, "abcdefghij", 5, false);
    cr_expect_str_eq(out, "abcdefghij");
    column(out, sizeof out,
           "a\033[31m\n\x7f\xff\xc2\x9b"
           "é",
           0, false);
    cr_expect_str_eq(out, "a\\x1b[31m\\x0a\\x7f\\xff\\xc2\\x9bé");
    cr_expect_eq(term_puts(NULL, "\033é\xff"), 9);
}

Test(tool, heat_is_a_scale)
{
    cr_expect_eq(heat_level(0, 1), 0);
    cr_expect_eq(heat_level(1, UINT64_MAX), 1);
    cr_expect_eq(heat_level(1, 1), HEAT_TOP);
    cr_expect_eq(heat_level(1, 8), HEAT_TOP / 2);
    for (uint64_t nnz = 1, last = 0; nnz <= 4096; nnz++) {
        unsigned level = heat_level(nnz, 4096);
        cr_assert(level >= last && level <= HEAT_TOP);
        last = level;
    }
    uint8_t none[3], least[3];
    heat_colour(0, none);
    heat_colour(1, least);
    cr_expect(memcmp(none, least, 3) != 0);
}

/* Densities against a plain count, for every width, in pieces of all kinds, across the folding of cells. */
Test(tool, density_counts)
{
    enum { N = DENSITY_ROW * DENSITY_CELLS * 2 + 12345 };
    struct density *d = malloc(sizeof *d);
    uint8_t *p = calloc(N, 8);
    cr_assert(d && p);
    for (size_t width = 1; width <= 8; width *= 2) {
        uint64_t nnz = 0;
        memset(p, 0, (size_t)N * 8);
        for (size_t i = 0; i < N; i++)
            if (i % 7 == 0 || (i > N / 2 && i < N / 2 + 5000)) {
                p[i * width + i % width] = 1 + i % 255; /* one byte of it is enough */
                nnz++;
            }
        density_init(d);
        uint64_t counted = 0;
        for (size_t at = 0, k = 1; at < N; at += k, k = k * 3 % 100003) {
            if (k > N - at)
                k = N - at;
            counted += density_add(d, p + at * width, k, width);
        }
        cr_assert(counted == nnz && d->nonzeros == nnz && d->elements == N);
        cr_assert(d->cell_elements > DENSITY_ROW && density_cells(d) <= DENSITY_CELLS);
        for (size_t parts = 1; parts <= density_cells(d); parts = parts * 2 + 1) {
            uint64_t first = 0, sum = 0;
            for (size_t i = 0; i < parts; i++) {
                uint64_t n, elements, plain = 0;
                density_part(d, i, parts, &n, &elements);
                for (uint64_t e = first; e < first + elements; e++)
                    plain += p[e * width + e % width] != 0;
                cr_assert_eq(n, plain, "part %zu of %zu", i, parts);
                first += elements;
                sum += n;
            }
            cr_assert(first == N && sum == nnz);
        }
    }
    free(p);
    free(d);
}

/* The sizes that are foretold are those of the blocks that are made. */
Test(tool, sizes_of_blocks)
{
    enum { MOST = 3 * 4096 + 5 };
    static uint64_t src[MOST];
    static uint8_t block[MOST * 14 + 4096];
    struct scratch scratch = {0};
    for (int dtype = PICI_F32; dtype <= PICI_U64; dtype++) {
        size_t width = pici_dtype_width((enum pici_dtype)dtype);
        for (uint64_t n = 0; n <= MOST; n = n * 3 + 1) {
            for (uint64_t every = 1; every <= 10000; every *= 10) {
                uint64_t nnz = 0;
                memset(src, 0, sizeof src);
                for (uint64_t i = 0; i < n; i += every, nnz++)
                    ((uint8_t *)src)[i * width] = 1;
                struct sizes s = {0};
                struct pici_breakdown breakdown;
                cr_assert(measure_breakdown(&breakdown, &scratch, (enum pici_dtype)dtype, src, n, PICI_ZEROS_EXACT));
                sizes_add(&s, (enum pici_dtype)dtype, n, nnz, &breakdown);
                size_t len;
                for (int f = PICI_DENSE; f <= PICI_HYBRID; f++) {
                    cr_assert_eq(pici_compress(block, sizeof block, &len, src, n, (enum pici_dtype)dtype,
                                               (enum pici_format)f, NULL),
                                 PICI_OK);
                    cr_assert_eq(s.bytes[f], len);
                }
                cr_assert_eq(pici_compress(block, sizeof block, &len, src, n, (enum pici_dtype)dtype, PICI_AUTO, NULL),
                             PICI_OK);
                cr_assert_eq(s.best, len);
                cr_assert_eq(sizes_best(&s), (enum pici_format)block[5]);
            }
        }
    }
    free(scratch.memory);
}

/* Runs cover all bytes; holes are zeros, begin and end with blocks or pieces, and no block of zeros is left to be
 * written. */
Test(tool, runs_of_zeros)
{
    enum { BLOCK = 64, N = 64 * 40 };
    uint8_t p[N];
    unsigned seed = 1;
    for (int round = 0; round < 2000; round++) {
        memset(p, 0, sizeof p);
        for (int i = 0; i < round % 20; i++)
            p[(seed = seed * 1103515245 + 12345) >> 8 & 2047] = 1;
        const uint64_t at = seed % 200;
        const size_t len = 1 + (seed >> 4) % N;
        for (size_t done = 0, n; done < len; done += n) {
            bool hole, some = false;
            n = sparse_run(p + done, len - done, at + done, BLOCK, &hole);
            cr_assert(n > 0 && n <= len - done);
            cr_assert(done == 0 || (at + done) % BLOCK == 0);
            for (size_t i = done; i < done + n; i++) {
                const bool first = (at + i) % BLOCK == 0;
                cr_assert(hole || !first || i == done || some, "a block of zeros is to be written");
                some = first ? p[i] != 0 : some || p[i] != 0;
                cr_assert(!hole || !p[i], "byte %zu is not zero", i);
            }
            cr_assert(hole || some);
        }
    }
}

Test(tool, swapping)
{
    uint8_t a[18], b[18];
    for (size_t width = 1; width <= 8; width *= 2) {
        for (uint8_t i = 0; i < sizeof a; i++)
            a[i] = b[i] = i;
        source_swap(a + 1, 16, width);
        for (size_t i = 0; i < 16; i++)
            cr_assert_eq(a[1 + i], b[1 + i / width * width + (width - 1 - i % width)]);
        cr_assert(a[0] == 0 && a[17] == 17);
    }
}

/* What is written as JSON is read as JSON, whatever the text. */
Test(tool, json_is_json)
{
    char *text;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    cr_assert_not_null(f);
    struct jsonout j = {.file = f};
    char all[256];
    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    jsonout_begin(&j, NULL, '{');
    jsonout_text(&j, "a\"\n", all, sizeof all);
    jsonout_u64(&j, "most", UINT64_MAX);
    jsonout_real(&j, "third", 1.0 / 3);
    jsonout_real(&j, "nan", 0.0 / 0.0);
    jsonout_begin(&j, "empty", '[');
    jsonout_end(&j, ']');
    jsonout_begin(&j, "list", '[');
    jsonout_bool(&j, NULL, true);
    jsonout_null(&j, NULL);
    jsonout_begin(&j, NULL, '{');
    jsonout_end(&j, '}');
    jsonout_end(&j, ']');
    jsonout_end(&j, '}');
    fclose(f);

    struct json in;
    struct parse_error err;
    static const enum json_type expected[] = {
        JSON_OBJECT, JSON_KEY,  JSON_STRING, JSON_KEY,        JSON_NUMBER,    JSON_KEY,        JSON_NUMBER,
        JSON_KEY,    JSON_NULL, JSON_KEY,    JSON_ARRAY,      JSON_ARRAY_END, JSON_KEY,        JSON_ARRAY,
        JSON_TRUE,   JSON_NULL, JSON_OBJECT, JSON_OBJECT_END, JSON_ARRAY_END, JSON_OBJECT_END, JSON_END,
    };
    pici_json_init(&in, text, len, 0, &err);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct json_token t = pici_json_next(&in);
        cr_assert_eq(t.type, expected[i], "token %zu of %s", i, text);
        if (i == 2) {
            char back[1024];
            size_t n = pici_json_string(&in, t, back);
            cr_assert(n == 128 + 128 * 3 && memcmp(back, all, 128) == 0, "ASCII as it is, else U+FFFD");
        }
        uint64_t v;
        if (i == 4)
            cr_assert(pici_json_u64(&in, t, &v) && v == UINT64_MAX);
        if (i == 6)
            cr_assert_eq(strtod(text + t.start, NULL), 1.0 / 3);
    }
    free(text);
}

/* The nearest word, or none. */
Test(tool, suggestions)
{
    static const char *const words[] = {"compress", "decompress", "test", "list", "inspect", "f16", "f32", "bf16", "x"};
    static const struct {
        const char *typed, *hint;
    } cases[] = {
        {"compress", "; did you mean --compress?"},
        {"comprss", "; did you mean --compress?"},
        {"ocmpress", "; did you mean --compress?"},
        {"decomprs", "; did you mean --decompress?"},
        {"tets", "; did you mean --test?"},
        {"ins", "; did you mean --inspect?"},
        {"f61", "; did you mean --f16?"},
        {"f33", "; did you mean --f32?"},
        {"bf6", "; did you mean --bf16?"},
        {"", ""},
        {"y", ""},
        {"zzzz", ""},
        {"completely different", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct suggest near;
        char hint[SUGGEST_HINT];
        suggest_start(&near, cases[i].typed);
        for (size_t k = 0; k < sizeof words / sizeof *words; k++)
            suggest_word(&near, words[k]);
        cr_expect_str_eq(suggest_hint(&near, "--", hint), cases[i].hint, "%s: %s", cases[i].typed, hint);
    }
    char longest[512];
    struct suggest near;
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    for (size_t n = 1; n < sizeof longest; n += 7) {
        suggest_start(&near, longest + n);
        for (size_t k = 0; k < sizeof longest; k += 11)
            suggest_word(&near, longest + k);
        char hint[SUGGEST_HINT];
        cr_assert_lt(strlen(suggest_hint(&near, "--", hint)), sizeof hint);
    }
}

Test(tool, names_of_outputs)
{
    char *out = tool_output_name("d.x/a", ".pici", NULL);
    cr_assert_str_eq(out, "d.x/a.pici");
    free(out);
    out = tool_output_name("-", ".pici", "d");
    cr_assert_str_eq(out, "-");
    free(out);
    out = tool_output_name("d.x/a", ".pici", "y/z");
    cr_assert_str_eq(out, "y/z/a.pici");
    free(out);
    cr_assert_str_eq(tool_extension("d.x/a"), "");
    cr_assert_str_eq(tool_extension("d.x/a.svg.png"), ".png");
    cr_assert_eq(tool_type_of("m.pth"), TYPE_PT);
    cr_assert_eq(tool_type_of("m.pt"), TYPE_PT);
    cr_assert_eq(tool_threads(3), 3);
    cr_assert_geq(tool_threads(0), 1);
}

static void put(const char *path, const char *text)
{
    FILE *const f = fopen(path, "w");
    cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

/* An input that rests holds no descriptor. What it is opened from for a read must be the same file, unchanged. */
Test(tool, inputs_rest)
{
    char folder[] = "/tmp/pici_rest_XXXXXX", text[8] = "";
    struct input in;
    cr_assert(mkdtemp(folder) && chdir(folder) == 0);
    put("a", "abcdefgh");
    cr_assert_eq(input_open(&in, "a"), TOOL_OK);
    const int fd = in.fd;
    cr_assert_eq(input_rest(&in, "a", 0), TOOL_OK); /* few others are open */
    cr_assert_eq(in.fd, fd);
    cr_assert_eq(input_rest(&in, "a", SIZE_MAX), TOOL_OK);
    cr_assert(in.fd == -1 && fcntl(fd, F_GETFD) == -1);
    cr_assert_eq(input_read_at(&in, text, 3, 2), 0);
    cr_assert_str_eq(text, "cde");
    cr_assert_eq(fcntl(fd, F_GETFD), -1);
    cr_assert_eq(input_wake(&in), TOOL_OK);
    cr_assert_geq(in.fd, 0);
    cr_assert_eq(input_read_at(&in, text, 3, 5), 0);
    cr_assert_str_eq(text, "fgh");
    input_close(&in);

    cr_assert_eq(input_open(&in, "a"), TOOL_OK);
    cr_assert_eq(input_rest(&in, "a", SIZE_MAX), TOOL_OK);
    put("b", "abcdefgh");
    cr_assert_eq(rename("b", "a"), 0); /* another file */
    cr_assert_eq(input_read_at(&in, text, 3, 2), ESTALE);
    cr_assert_eq(unlink("a"), 0);
    cr_assert_eq(input_read_at(&in, text, 3, 2), ENOENT);
    input_close(&in);

    put("a", "abcdefgh");
    cr_assert_eq(input_open(&in, "a"), TOOL_OK);
    cr_assert_eq(input_rest(&in, "a", SIZE_MAX), TOOL_OK);
    put("a", "abcdefghi"); /* changed */
    cr_assert_eq(input_read_at(&in, text, 3, 2), ESTALE);
    input_close(&in);
    cr_assert(unlink("a") == 0 && chdir("/") == 0 && rmdir(folder) == 0);
}
