/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Tune files: every rule of formats/tune.md, numbers, writing, merging, and the residuals of points. */
#include <criterion/criterion.h>

#include <float.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict/machine.h"
#include "predict/number.h"
#include "predict/tune.h"
#include "xxh64.h"
#include "tests/util/util.h"

/* ---- making files ---- */

static char text[2 << 20];

/* Lines between the first and the last; returns the file's bytes. */
static size_t file_of(const char *lines)
{
    const int n = snprintf(text, sizeof text - 64, "pici-tune 1\n%s", lines);
    cr_assert(n > 0 && n < (int)sizeof text - 64);
    return (size_t)n + (size_t)sprintf(text + n, "end %016llx\n", (unsigned long long)pici_xxh64(text, (size_t)n, 0));
}

static struct tune read_lines(const char *lines)
{
    struct tune t;
    char why[TUNE_WHY];
    const size_t len = file_of(lines);
    cr_assert_eq(pici_tune_read(&t, text, len, why), PICI_OK, "%s\n%s", why, lines);
    cr_expect_eq(t.hash, pici_xxh64(text, len - 21, 0), "of all before the last line");
    return t;
}

#define SHAPE "shape ranks 8 nodes 4 map 2,2,2,2 cores 2\n"
#define POINT "point all_reduce f32 67108864 0.01 ring sparse 0.168 0.004"

/* ---- what is right ---- */

/* The example of the specification is a file, whose hash is right. */
Test(coll_tune, example)
{
    static char page[1 << 16];
    struct tune t;
    char why[TUNE_WHY];
    FILE *f = fopen("formats/tune.md", "rb");
    if (!f) {
        fprintf(stderr, "skip: no formats/tune.md below the current folder\n");
        return;
    }
    page[fread(page, 1, sizeof page - 1, f)] = '\0';
    fclose(f);
    const char *begin = strstr(page, "\npici-tune 1\n") + 1, *end = strstr(begin, "```");
    cr_assert(begin && end);
    cr_assert_eq(pici_tune_read(&t, begin, (size_t)(end - begin), why), PICI_OK, "%s", why);
    cr_expect(t.shape_count == 1 && t.shapes->ranks == 8 && t.shapes->nodes.nodes == 4 && t.shapes->cores == 2);
    cr_expect(t.shapes->nodes.begin[1] == 2 && t.shapes->nodes.begin[4] == 8 && t.machine.cores == 2);
    cr_expect_str_eq(t.date, "2026-11-22T20:10:00Z");
    cr_expect_str_eq(t.library, "Open MPI v4.1.4");
    cr_expect_str_eq(t.cpu, "avx512");
    cr_expect(t.machine.link[POLICY_INTER].alpha == 6.1e-05 && t.machine.link[POLICY_INTER].beta == 4.21e-08 &&
              t.machine.node_beta == 4.21e-08 && t.machine.link[POLICY_INTRA].beta == 3.1e-10);
    cr_expect(t.machine.agree == 3.4e-04 && t.machine.agree_ranks == 8);
    const struct model_codec *c = &t.machine.codec[PICI_HYBRID][MODEL_ENCODE];
    cr_expect(c->empty == 690 && c->more[0] == 420 && c->more[4] == 4600);
    cr_expect(t.machine.codec[PICI_DENSE][MODEL_COUNT].empty == 210);
    cr_expect(t.machine.codec[PICI_COO][MODEL_ADD].empty == pici_model_machine.codec[PICI_COO][MODEL_ADD].empty);
    cr_expect(pici_tune_threshold(&t, TUNE_INTER) == 0.15625F && pici_tune_threshold(&t, TUNE_INTRA) == 0.703125F &&
              pici_tune_threshold(&t, TUNE_GATHER) == 0.046875F && pici_tune_threshold(&t, TUNE_STREAM) == 0.921875F);
    cr_expect(t.density == 0.05 && t.correlation == 1 && t.point_count == 3);
    cr_expect(t.points[0].candidate.algorithm == PICI_ALGO_RING && t.points[0].candidate.dense &&
              t.points[0].seconds == 4.61 && t.points[0].spread == 0.02);
    cr_expect(t.points[2].candidate.native && strcmp(t.points[2].native, "ring") == 0);
    pici_tune_free(&t);
}

Test(coll_tune, order_is_free)
{
    struct tune t = read_lines("assume correlation 0.5 density 1\n  # nothing\n\t\n"
                               "point all_gather u8 1 1 ring dense 1e-12 0 nodes 1 ranks 2 # behind\n"
                               "x-new 1 2 \"3\"\nx-\n"
                               "agree 0 ranks 2\nlink inter beta 1 alpha 0.\n"
                               "shape map 1,3 cores 0 nodes 2 ranks 4\n\tshape map 2 cores 65536 nodes 1 ranks 2#x\n"
                               "made 2026-01-01T00:00:00Z library \"\xc3\xbc # b\"\n");
    cr_expect(t.density == 1 && t.correlation == 0.5 && t.machine.link[POLICY_INTER].beta == 1);
    cr_expect_str_eq(t.library, "\xc3\xbc # b");
    cr_assert(t.point_count == 1 && t.shape_count == 2);
    cr_expect(t.shapes[t.points[0].shape].ranks == 2 && t.machine.cores == 0, "cores: of the shape with most nodes");
    pici_tune_free(&t);
}

/* The model goes by the thresholds of the file, where a call leaves them to the defaults. */
Test(coll_tune, thresholds)
{
    struct tune none = read_lines(SHAPE), t = read_lines(SHAPE "threshold intra 1 stream 0\n");
    struct model_call call = pici_model_call;
    const struct model_candidate sparse = {.algorithm = PICI_ALGO_RING},
                                 dense = {.algorithm = PICI_ALGO_RING, .dense = 1};
    cr_expect(pici_tune_threshold(&t, TUNE_INTRA) == 1 && pici_tune_threshold(&t, TUNE_STREAM) == 0);
    cr_expect(pici_tune_threshold(&t, TUNE_INTER) < 0 && pici_tune_threshold(&none, TUNE_STREAM) < 0);
    call.kind = PICI_REDUCE_SCATTER;
    call.ranks = 4; /* on one node */
    call.bytes = 1 << 24;
    call.density = 0.001;
    cr_expect(pici_tune_seconds(&none, &call, &sparse) < pici_tune_seconds(&none, &call, &dense));
    cr_expect(pici_tune_seconds(&t, &call, &sparse) == pici_tune_seconds(&t, &call, &dense), "all are dense");
    call.threshold.reduce[POLICY_INTRA] = 0.5F;
    cr_expect(pici_tune_seconds(&t, &call, &sparse) == pici_tune_seconds(&none, &call, &sparse), "the call's count");
    pici_tune_free(&none);
    pici_tune_free(&t);
}

Test(coll_tune, names_until_0_3)
{
    struct tune t =
        read_lines(SHAPE "codec f32 pici add 1 2 3 4 5 6\npoint all_reduce f32 4 1 vendor:ring dense 1 1\n");
    cr_assert(t.point_count == 1 && t.points[0].candidate.native == MODEL_NATIVE);
    cr_expect_str_eq(t.points[0].native, "ring");
    cr_expect(t.machine.codec[PICI_BITMAP][MODEL_ADD].empty == 1 &&
              t.machine.codec[PICI_BITMAP][MODEL_ADD].more[4] == 6);
    pici_tune_free(&t);
}

/* ---- what is wrong: a line, and what is said about it. The line is the third one of the file ---- */

static void refuse(const char *line, const char *words)
{
    static char lines[1 << 16];
    struct tune t;
    char why[TUNE_WHY] = "";
    snprintf(lines, sizeof lines, SHAPE "%s\n", line);
    const size_t len = file_of(lines);
    cr_expect_eq(pici_tune_read(&t, text, len, why), PICI_E_CORRUPT, "taken: %s", line);
    cr_expect(strncmp(why, "line 3: ", 8) == 0 && strstr(why, words), "%s\n  says: %s\n  not: line 3: %s", line, why,
              words);
    cr_expect(!t.points && !t.shapes && !t.point_count);
}

Test(coll_tune, refuses)
{
    static const char *const wrong[][2] = {
        {"mode 1", "unknown word \"mode\""},
        {"\"made\" 2026-11-22T20:10:00Z", "unknown word \"made\""},
        {"X-new", "unknown word"},
        {"threshold", "there is no threshold"},
        {"threshold ag 1", "unknown word \"ag\""},
        {"threshold inter", "the value of inter is missing"},
        {"threshold inter 1 inter 1", "inter occurs twice"},
        {"threshold stream 1.5", "the threshold stream is above 1"},
        {"threshold gather -0.5", "the gather is negative"},
        {"made", "the date is missing"},
        {"made 2026-11-22", "a date is like"},
        {"made 2026-11-22T20:10:00z", "a date is like"},
        {"made 2026-11-22T20:10:00Z with x", "unknown word \"with\""},
        {"made 2026-11-22T20:10:00Z cpu", "the value of cpu is missing"},
        {"made 2026-11-22T20:10:00Z cpu a cpu b", "cpu occurs twice"},
        {"made 2026-11-22T20:10:00Z cpu \"\"", "the cpu is empty or has more than 63 bytes"},
        {"made 2026-11-22T20:10:00Z cpu a23456789b123456789c123456789d123456789e123456789f123456789g1234", "63 bytes"},
        {"made 2026-11-22T20:10:00Z cpu \"a", "a quoted string does not end"},
        {"made 2026-11-22T20:10:00Z cpu \"a\"b", "no space behind a quoted string"},
        {"made 2026-11-22T20:10:00Z cpu a\"b\"", "a character in a word"},
        {"made 2026-11-22T20:10:00Z cpu \xc3\xbc", "a character in a word"},
        {"assume density 0.5\r", "a control character, 0x0d"},
        {"# \x1b[2J", "a control character, 0x1b"},
        {"# \x7f", "a control character, 0x7f"},
        {"shape ranks 8 nodes 4 map 2,2,2,2", "cores is missing"},
        {"shape ranks 8 nodes 4 cores 1", "map is missing"},
        {"shape nodes 4 map 2,2,2,2 cores 1", "ranks is missing"},
        {"shape ranks 8 map 8 cores 1", "nodes is missing"},
        {"shape ranks 0 nodes 1 map 0 cores 1", "the ranks is not a whole number from 1"},
        {"shape ranks 1048577 nodes 1 map 1048577 cores 1", "the ranks is not a whole number"},
        {"shape ranks 99999999999999999999999 nodes 1 map 1 cores 1", "the ranks is not a whole number"},
        {"shape ranks 4 nodes 5 map 1,1,1,1,0 cores 1", "the nodes is not a whole number from 1 to 4"},
        {"shape ranks 4 nodes 2 map 4 cores 1", "the map is not one number for each of 2 nodes"},
        {"shape ranks 4 nodes 2 map 1,2,1 cores 1", "the map is not one number for each of 2 nodes"},
        {"shape ranks 4 nodes 2 map 4,0 cores 1", "the map's number 2"},
        {"shape ranks 4 nodes 2 map 4, cores 1", "the map's number 2"},
        {"shape ranks 4 nodes 2 map ,4 cores 1", "the map's number 1"},
        {"shape ranks 4 nodes 2 map 1x,3 cores 1", "the map's number 1"},
        {"shape ranks 4 nodes 2 map 1,3x cores 1", "the map's number 2"},
        {"shape ranks 4 nodes 2 map 3,2 cores 1", "more than 4 together"},
        {"shape ranks 4 nodes 2 map 1,2 cores 1", "the map has 3 ranks, not 4"},
        {"shape ranks 4 nodes 2 map 2,2 cores -1", "the cores is not a whole number"},
        {"shape ranks 4 nodes 2 map 2,2 cores 65537", "the cores is not a whole number"},
        {"shape ranks 4 nodes 2 map 2,2 cores 1.5", "the cores is not a whole number"},
        {"shape ranks 8 nodes 4 map 2,3,2,1 cores 1", "there is a shape of 8 ranks on 4 nodes already"},
        {"link", "the link is missing"},
        {"link outer alpha 1 beta 1", "unknown link \"outer\""},
        {"link inter alpha 1", "beta is missing"},
        {"link inter beta 1", "alpha is missing"},
        {"link inter alpha nan beta 1", "the alpha is no number: \"nan\""},
        {"link inter alpha inf beta 1", "the alpha is no number: \"inf\""},
        {"link inter alpha -1 beta 1", "the alpha is negative: \"-1\""},
        {"link inter alpha -0 beta 1", "the alpha is negative"},
        {"link inter alpha +1 beta 1", "no number"},
        {"link inter alpha 1,5 beta 1", "no number"},
        {"link inter alpha 1.5.5 beta 1", "no number"},
        {"link inter alpha . beta 1", "no number"},
        {"link inter alpha 1e beta 1", "no number"},
        {"link inter alpha 1e+ beta 1", "no number"},
        {"link inter alpha 0x10 beta 1", "no number"},
        {"link inter alpha \"1\" beta 1", "no number"},
        {"link inter alpha 1e400 beta 1", "no number"},
        {"link inter alpha 1e13 beta 1", "the alpha is out of range"},
        {"link intra alpha 1 beta 1 node_beta 1", "node_beta is of the link inter"},
        {"agree", "the time is missing"},
        {"agree 1", "ranks is missing"},
        {"agree 1 ranks 1", "the ranks is not a whole number from 2"},
        {"codec f64 hybrid encode 1 2 3 4 5 6", "the dtype of a codec line is f32"},
        {"codec f32 auto encode 1 2 3 4 5 6", "unknown format \"auto\""},
        {"codec f32 hybrid read 1 2 3 4 5 6", "unknown work \"read\""},
        {"codec f32 hybrid count 1 2 3 4 5 6", "count is a line of the format dense"},
        {"codec f32 hybrid encode", "the time of an empty tile is missing"},
        {"codec f32 hybrid encode 1 2 3 4 5", "the time at a density is missing"},
        {"codec f32 hybrid encode 1 2 3 4 5 6 7", "unexpected \"7\""},
        {"codec f32 hybrid encode 1 2 3 4 -5 6", "a tile takes less than no time"},
        {"codec f32 hybrid encode -1 2 3 4 5 6", "negative"},
        {"codec f32 hybrid encode 5 2 3 4 - 6", "negative"},
        {"codec f32 hybrid encode 5 2 3 4 --1 6", "negative"},
        {"point", "the collective is missing"},
        {"point broadcast f32 4 1 ring dense 1 1", "unknown collective"},
        {"point all_reduce", "the dtype is missing"},
        {"point all_reduce f128 4 1 ring dense 1 1", "unknown dtype"},
        {"point all_reduce f32 0 1 ring dense 1 1", "the number of bytes is not a whole number"},
        {"point all_reduce f32 1125899906842628 1 ring dense 1 1", "the number of bytes"},
        {"point all_reduce f32 6 1 ring dense 1 1", "6 bytes are not a whole number of elements"},
        {"point all_reduce f32 4 0 ring dense 1 1", "the density is out of range"},
        {"point all_reduce f32 4 1.01 ring dense 1 1", "the density is above 1"},
        {"point all_reduce f32 4 1 rang dense 1 1", "unknown algorithm \"rang\""},
        {"point all_reduce f32 4 1 auto dense 1 1", "unknown algorithm \"auto\""},
        {"point all_reduce f32 4 1 natives dense 1 1", "unknown algorithm"},
        {"point all_reduce f32 4 1 native: dense 1 1", "the native collective's algorithm is empty"},
        {"point all_reduce f32 4 1 native:ring sparse 1 1", "the native collective's messages are dense"},
        {"point all_reduce f32 4 1 ring", "the word sparse or dense is missing"},
        {"point all_reduce f32 4 1 ring thick 1 1", "\"thick\" is neither sparse nor dense"},
        {"point all_reduce f32 4 1 ring dense", "the time is missing"},
        {"point all_reduce f32 4 1 ring dense 0 1", "the time is out of range"},
        {"point all_reduce f32 4 1 ring dense nan 1", "the time is no number"},
        {"point all_reduce f32 4 1 ring dense 1", "the spread of the time is missing"},
        {"point all_reduce f32 4 1 ring dense 1 -1", "the spread of the time is negative"},
        {"point all_reduce f32 4 1 ring dense 1 1 1", "unknown word"},
        {"point all_reduce f32 4 1 ring dense 1 1 ranks 8", "nodes is missing"},
        {"point all_reduce f32 4 1 ring dense 1 1 nodes 4", "ranks is missing"},
        {"point all_reduce f32 4 1 ring dense 1 1 ranks 8 nodes 9", "the nodes is not"},
        {"point all_reduce f32 4 1 ring dense 1 1 ranks 8 nodes 8", "there is no shape of 8 ranks on 8 nodes"},
        {"assume", "nothing is assumed"},
        {"assume density 2", "the density is above 1"},
        {"assume density 0", "the density is out of range"},
        {"assume correlation 1.5", "the correlation is above 1"},
        {"assume speed 1", "unknown word \"speed\""},
        {"a b c d e f g h i j k l m n o p q r s t u v w x y", "more than 24 words"},
        {"pici-tune 1", "unknown word"},
        {"end", "end takes a hash"},
        {"end 0123456789ABCDEF", "end takes a hash"},
        {"end 0123456789abcdef0", "end takes a hash"},
        {"end 0123456789abcdef 0", "end takes a hash"},
        {"end 0123456789abcdef", "the file was changed: its hash is "},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refuse(wrong[i][0], wrong[i][1]);
}

/* Lines of packed blocks; a file without them, as of version 0.2, has what hybrid blocks take, and as much more as in
 * the built-in constants. */
Test(coll_tune, packed)
{
    struct tune t = read_lines(SHAPE "codec f32 packed encode 10 20 30 40 50 60\ncodec f32 hybrid encode 1 2 3 4 5 6\n"
                                     "codec f32 hybrid add 7 2000 3000 4000 5000 6000\n");
    const struct model_codec *usual = pici_model_machine.codec[PICI_PACKED];
    const struct model_codec *hybrid = pici_model_machine.codec[PICI_HYBRID], *packed = t.machine.codec[PICI_PACKED];
    cr_expect(packed[MODEL_ENCODE].empty == 10 && packed[MODEL_ENCODE].more[4] == 60);
    cr_expect(packed[MODEL_ADD].empty == 7);
    cr_expect(packed[MODEL_ADD].more[4] == 6000 + usual[MODEL_ADD].more[4] - hybrid[MODEL_ADD].more[4]);
    cr_expect(memcmp(&packed[MODEL_DECODE], &usual[MODEL_DECODE], sizeof usual[MODEL_DECODE]) == 0);
    double more[2];
    struct model_machine measured = pici_model_machine;
    measured.packed_measured = 1;
    pici_model_packing(&measured, more);
    cr_expect(more[0] > 1e-10 && more[0] < 3e-10 && more[1] > 5e-11 && more[1] < more[0], "%g %g", more[0], more[1]);
    cr_expect(t.machine.packed_measured);
    pici_tune_free(&t);
}

/* A file without lines of packed blocks, as in version 0.2. The time of packing depends on the kernels; the points were
 * measured without packing. Such a file is written without these lines again. */
Test(coll_tune, not_packed)
{
    struct tune t = read_lines("shape ranks 4 nodes 4 map 1,1,1,1 cores 0\n"
                               "link inter alpha 1e-5 beta 1e-8 node_beta 1e-8\n"
                               "codec f32 hybrid encode 230 180 260 320 410 570\n"
                               "point all_reduce f32 67108864 1 ring dense 1.25 0.01\n");
    const struct model_candidate ring = {.algorithm = PICI_ALGO_RING, .dense = 1};
    struct policy_packing packing = {PICI_PACKING_AUTO, POLICY_PORTABLE, {3e8, 3e8}, {0, 0}};
    struct model_call call = pici_model_call;
    uint8_t *bytes;
    size_t len;
    char why[TUNE_WHY];
    pici_model_packing(&t.machine, packing.more);
    cr_expect_not(pici_policy_packs(&packing, PICI_DENSE, PICI_F32, 1 << 18, POLICY_INTER, 0, 0));
    packing.kernels = POLICY_AVX512;
    cr_expect(pici_policy_packs(&packing, PICI_DENSE, PICI_F32, 1 << 18, POLICY_INTER, 0, 0));
    call.bytes = 64 << 20;
    call.ranks = 4;
    call.nodes = &t.shapes[0].nodes;
    call.density = 1;
    cr_expect(pici_tune_seconds(&t, &call, &ring) < 0.9 * 1.25, "packed, it is faster than the point");
    call.packing.pack = PICI_PACKING_NONE;
    cr_expect_float_eq(pici_tune_seconds(&t, &call, &ring), 1.25, 1e-9);
    cr_assert_eq(pici_tune_write(&t, &bytes, &len, why), PICI_OK, "%s", why);
    snprintf(text, sizeof text, "%.*s", (int)len, (const char *)bytes);
    cr_expect_not(strstr(text, "codec f32 packed"));
    free(bytes);
    t.machine.packed_measured = 1;
    cr_assert_eq(pici_tune_write(&t, &bytes, &len, why), PICI_OK, "%s", why);
    snprintf(text, sizeof text, "%.*s", (int)len, (const char *)bytes);
    cr_expect(strstr(text, "codec f32 packed"));
    free(bytes);
    pici_tune_free(&t);
}

/* Lines that may be there once, and points that say the same. */
Test(coll_tune, duplicates)
{
    static const char *const line[] = {"made 2026-11-22T20:10:00Z",
                                       "link inter alpha 1 beta 1",
                                       "link intra alpha 1 beta 1",
                                       "agree 1 ranks 8",
                                       "codec f32 hybrid encode 1 2 3 4 5 6",
                                       "codec f32 dense count 1 2 3 4 5 6",
                                       "assume density 1",
                                       POINT,
                                       "point all_reduce f32 4 1 native:a dense 1 1"};
    for (size_t i = 0; i < sizeof line / sizeof *line; i++) {
        char lines[512], why[TUNE_WHY];
        struct tune t;
        snprintf(lines, sizeof lines, SHAPE "%s\n\n%s\n", line[i],
                 strstr(line[i], "native") ? "point all_reduce f32 4 1 native:b dense 2 2" : line[i]);
        const size_t len = file_of(lines);
        cr_expect_eq(pici_tune_read(&t, text, len, why), PICI_E_CORRUPT, "%s", line[i]);
        cr_expect(strncmp(why, "line 5: ", 8) == 0 && (strstr(why, "already") || strstr(why, "as in line 3")), "%s",
                  why);
    }
}

Test(coll_tune, first_and_last)
{
    struct tune t;
    char why[TUNE_WHY];
    static const char *const wrong[][2] = {
        {"", "the file is empty"},
        {"\n", "the first line of a tune file is"},
        {"pici-tune 1", "the first line of a tune file is"},
        {"pici-tune\n", "the first line"},
        {"pici-tune x\n", "the version is not a whole number"},
        {"#\npici-tune 1\n", "the first line"},
        {"pici-tune 1\n", "line 2: the line end is missing"},
        {"pici-tune 1\nshape", "line 2: the line does not end"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_expect_eq(pici_tune_read(&t, wrong[i][0], strlen(wrong[i][0]), why), PICI_E_CORRUPT, "%s", wrong[i][0]);
        cr_expect(strstr(why, wrong[i][1]), "%s: %s", wrong[i][0], why);
    }
    cr_expect_eq(pici_tune_read(&t, "pici-tune 2\n", 12, why), PICI_E_VERSION);
    cr_expect(strstr(why, "version 2"), "%s", why);
    size_t len = file_of("");
    cr_expect_eq(pici_tune_read(&t, text, len, why), PICI_E_CORRUPT);
    cr_expect_str_eq(why, "there is no shape");
    len = file_of(SHAPE);
    strcpy(text + len, "#\n");
    cr_expect_eq(pici_tune_read(&t, text, len + 2, why), PICI_E_CORRUPT);
    cr_expect_str_eq(why, "line 3: something follows the line end");
    len = file_of(SHAPE "shape ranks 4 nodes 4 map 1,1,1,1 cores 1\n" POINT "\n");
    cr_expect_eq(pici_tune_read(&t, text, len, why), PICI_E_CORRUPT);
    cr_expect(strstr(why, "line 4: the file has several shapes"), "%s", why);
}

/* A file that is cut short, or of which a bit is changed, is refused, and nothing outside it is read. */
Test(coll_tune, damaged)
{
    const size_t len = file_of(SHAPE "made 2026-11-22T20:10:00Z cpu \"a b\"\nlink inter alpha 1e-5 beta 4.21e-08 # c\n"
                                     "assume density 0.05\n" POINT "\n");
    struct tune t;
    char why[TUNE_WHY];
    struct guard g;
    guard_init(&g, len);
    for (size_t cut = 0; cut < len; cut++) {
        uint8_t *p = guard_place(&g, cut, GUARD_END, 0);
        memcpy(p, text, cut);
        cr_expect_eq(pici_tune_read(&t, p, cut, why), PICI_E_CORRUPT, "cut at %zu", cut);
        cr_expect(why[0]);
    }
    uint8_t *p = guard_place(&g, len, GUARD_END, 0);
    for (size_t at = 0; at < len; at++)
        for (int bit = 0; bit < 8; bit++) {
            memcpy(p, text, len);
            p[at] ^= (uint8_t)(1u << bit);
            const enum pici_status s = pici_tune_read(&t, p, len, why);
            cr_expect(s == PICI_E_CORRUPT || s == PICI_E_VERSION, "bit %d of byte %zu: %d", bit, at, (int)s);
        }
    guard_free(&g);
}

/* ---- limits ---- */

static char many[2 << 20];

static size_t repeat(const char *format, int n)
{
    size_t at = (size_t)sprintf(many, SHAPE);
    for (int i = 1; i <= n; i++)
        at += (size_t)sprintf(many + at, format, i, i);
    return file_of(many);
}

Test(coll_tune, limits)
{
    static const char point[] = "point all_gather u8 %d 1 ring dense 1 1\n",
                      shape[] = "shape ranks %d nodes 1 map %d cores 1\n";
    struct tune t;
    char why[TUNE_WHY];
    cr_expect_eq(pici_tune_read(&t, text, repeat(point, 10000), why), PICI_OK, "%s", why);
    cr_expect_eq(t.point_count, 10000);
    pici_tune_free(&t);
    cr_expect_eq(pici_tune_read(&t, text, repeat(point, 10001), why), PICI_E_CORRUPT);
    cr_expect_str_eq(why, "line 10003: more than 10000 points");
    cr_expect_eq(pici_tune_read(&t, text, repeat(shape, 63), why), PICI_OK, "%s", why);
    pici_tune_free(&t);
    cr_expect_eq(pici_tune_read(&t, text, repeat(shape, 64), why), PICI_E_CORRUPT);
    cr_expect_str_eq(why, "line 66: more than 64 shapes");
    size_t len = (size_t)sprintf(many, SHAPE "#");
    memset(many + len, '.', (1 << 20) - 33 - 1 - len);
    strcpy(many + (1 << 20) - 33 - 1, "\n");
    len = file_of(many);
    cr_assert_eq(len, 1 << 20);
    cr_expect_eq(pici_tune_read(&t, text, len, why), PICI_OK, "%s", why);
    pici_tune_free(&t);
    many[0] = ' ';
    memmove(many + 1, SHAPE, sizeof SHAPE - 1);
    cr_expect_eq(pici_tune_read(&t, text, (1 << 20) + 1, why), PICI_E_CORRUPT);
    cr_expect_str_eq(why, "the file has more than 1048576 bytes");
}

/* ---- numbers ---- */

static void same_number(double x)
{
    char number[NUMBER_TEXT];
    double again = -1;
    pici_number_print(number, x);
    cr_expect(pici_number_read(number, strlen(number), &again) && memcmp(&again, &x, sizeof x) == 0, "%a as %s is %a",
              x, number, again);
    cr_expect_null(strchr(number, ','));
}

static void numbers(void)
{
    static const struct {
        const char *text;
        double value;
    } good[] = {{"0", 0},
                {"1", 1},
                {"1.5", 1.5},
                {"1.", 1},
                {".5", 0.5},
                {"4.21e-08", 4.21e-8},
                {"1E3", 1000},
                {"1e+3", 1000},
                {"0.1", 0.1},
                {"0.30000000000000004", 0.1 + 0.2},
                {"1e-400", 0},
                {"5e-324", 0x1p-1074},
                {"1.7976931348623157e308", DBL_MAX},
                {"12345678901234567890", 12345678901234567890.0},
                {"9007199254740993", 9007199254740992.0},
                {"0.000000000000000000000000000001", 1e-30}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        double value = -1;
        cr_expect(pici_number_read(good[i].text, strlen(good[i].text), &value) && value == good[i].value, "%s: %a",
                  good[i].text, value);
    }
    struct rng r = {1};
    same_number(0);
    same_number(DBL_MAX);
    same_number(DBL_MIN);
    same_number(0x1p-1074);
    same_number(123456789012345);
    for (int i = 0; i < 20000; i++) {
        double x;
        uint64_t bits = rng_next(&r) >> 1;
        memcpy(&x, &bits, sizeof x);
        if (x <= DBL_MAX)
            same_number(x);
        same_number((double)rng_below(&r, 1000000) / 1e6);
    }
}

Test(coll_tune, numbers)
{
    char number[NUMBER_TEXT];
    numbers();
    pici_number_print(number, 0.05);
    cr_expect_str_eq(number, "5e-02");
    pici_number_print(number, 67108864);
    cr_expect_str_eq(number, "67108864");
    static const char *const bad[] = {"",   ".",   "e1",  "1e",       "1e-", "1..",   "-1",  "+1",    " 1",
                                      "1 ", "nan", "inf", "infinity", "0x1", "1e999", "1,0", "1e1.0", "1f"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        double value;
        cr_expect_not(pici_number_read(bad[i], strlen(bad[i]), &value), "%s", bad[i]);
    }
}

/* Where the decimal point is a comma. */
Test(coll_tune, locale)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8",  "fr_FR.UTF-8",
                                        "nl_NL.UTF-8", "ru_RU.UTF-8", "de_DE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (setlocale(LC_ALL, names[i])) {
            struct tune t = read_lines(SHAPE POINT "\n");
            cr_expect(localeconv()->decimal_point[0] != '.' && t.points[0].density == 0.01);
            pici_tune_free(&t);
            numbers();
            return;
        }
    fprintf(stderr, "skip: no locale whose decimal point is a comma\n");
}

/* ---- writing and joining ---- */

static void same(const struct tune *a, const struct tune *b)
{
    cr_expect_arr_eq(&a->machine.link, &b->machine.link, sizeof a->machine.link);
    cr_expect_arr_eq(&a->machine.codec, &b->machine.codec, sizeof a->machine.codec);
    cr_expect(a->machine.node_beta == b->machine.node_beta && a->machine.agree == b->machine.agree &&
              a->machine.agree_ranks == b->machine.agree_ranks && a->machine.cores == b->machine.cores);
    cr_expect_str_eq(a->library, b->library);
    cr_expect(a->density == b->density && a->correlation == b->correlation);
    cr_assert(a->point_count == b->point_count && a->shape_count == b->shape_count);
    for (int i = 0; i < a->shape_count; i++) {
        const struct tune_shape *x = &a->shapes[i], *y = &b->shapes[i];
        cr_assert(x->ranks == y->ranks && x->cores == y->cores && x->nodes.nodes == y->nodes.nodes);
        cr_expect_arr_eq(x->nodes.begin, y->nodes.begin, ((size_t)x->nodes.nodes + 1) * sizeof(int));
    }
    for (size_t i = 0; i < a->point_count; i++) {
        const struct tune_point *x = &a->points[i], *y = &b->points[i];
        cr_expect(pici_tune_order(x, y) == 0 && x->seconds == y->seconds && x->spread == y->spread);
        cr_expect_str_eq(x->native, y->native);
    }
}

#define REST                                                                                                           \
    "made 2026-11-22T20:10:00Z library \"Open MPI v4.1.4\"\nlink inter alpha 0.1 beta 0.30000000000000004\n"           \
    "codec f32 coo add 1.1 2.2 -1.1 4.4 -0.1 6.6\nthreshold gather 0.1 stream 0.3\nassume density 0.3 correlation "    \
    "0.7\n"                                                                                                            \
    "point all_gather bf16 4096 0.1 recursive sparse 0.001 0.0001\npoint all_reduce f32 4 1 native:a dense 1 "         \
    "1\n" POINT "\n"

Test(coll_tune, writes)
{
    struct tune t = read_lines(SHAPE REST), again;
    uint8_t *bytes;
    size_t len;
    char why[TUNE_WHY];
    cr_assert_eq(pici_tune_write(&t, &bytes, &len, why), PICI_OK, "%s", why);
    cr_assert_eq(pici_tune_read(&again, bytes, len, why), PICI_OK, "%s\n%.*s", why, (int)len, (char *)bytes);
    same(&t, &again);
    cr_expect_eq(t.hash, again.hash);
    free(bytes);
    t.points[0].seconds = 0;
    cr_expect_eq(pici_tune_write(&t, &bytes, &len, why), PICI_E_ARG);
    cr_expect(!bytes && strstr(why, "the time is out of range"), "%s", why);
    t.points[0].seconds = 1;
    strcpy(t.library, "a\"b");
    cr_expect_eq(pici_tune_write(&t, &bytes, &len, why), PICI_E_ARG, "%s", why);
    pici_tune_free(&t);
    pici_tune_free(&again);
}

Test(coll_tune, merges)
{
    struct tune a = read_lines("shape ranks 4 nodes 4 map 1,1,1,1 cores 1\nagree 1 ranks 4\n" POINT "\n"),
                b = read_lines(SHAPE REST "agree 2 ranks 8\n"), out, again;
    const struct tune *const files[] = {&a, &b}, *const twice[] = {&a, &b, &a};
    uint8_t *bytes;
    size_t len;
    char why[TUNE_WHY];
    cr_assert_eq(pici_tune_merge(&out, files, 2, why), PICI_OK, "%s", why);
    cr_expect(out.shape_count == 2 && out.point_count == 4);
    cr_expect(out.machine.agree_ranks == 8 && out.density == 0.3, "constants of the file with more ranks");
    cr_assert_eq(pici_tune_write(&out, &bytes, &len, why), PICI_OK, "%s", why);
    cr_assert_eq(pici_tune_read(&again, bytes, len, why), PICI_OK, "%s", why);
    same(&out, &again);
    int of_a = 0;
    for (size_t i = 0; i < again.point_count; i++)
        of_a += again.shapes[again.points[i].shape].ranks == 4;
    cr_expect_eq(of_a, 1);
    free(bytes);
    pici_tune_free(&again);
    pici_tune_free(&out);
    cr_expect_eq(pici_tune_merge(&out, twice, 3, why), PICI_E_ARG);
    cr_expect(!out.shapes && strstr(why, "two files were made with 4 ranks on 4 nodes"), "%s", why);
    cr_expect_eq(pici_tune_merge(&out, NULL, 0, why), PICI_E_ARG);
    pici_tune_free(&a);
    pici_tune_free(&b);
}

/* ---- residuals ---- */

/* Seconds of a ring's call divided by what the model says. */
static double residual(struct tune *t, enum pici_dtype dtype, uint64_t bytes, double density, int ranks,
                       const struct schedule_nodes *nodes)
{
    const struct model_candidate c = {.algorithm = PICI_ALGO_RING, .dense = 1};
    struct model_call call = pici_model_call;
    call.dtype = dtype;
    call.bytes = bytes;
    call.density = density;
    call.ranks = ranks;
    call.nodes = nodes;
    return pici_tune_seconds(t, &call, &c) / pici_model_seconds(&t->machine, &call, &c);
}

/* A point whose residual is to be so much: its seconds are what the model says, times that. */
static size_t point(char *to, const struct tune *t, const char *dtype, uint64_t bytes, double density, int ranks,
                    double times)
{
    const struct model_candidate c = {.algorithm = PICI_ALGO_RING, .dense = 1};
    struct model_call call = pici_model_call;
    const int begin[] = {0, ranks};
    const struct schedule_nodes nodes = {1, begin};
    char seconds[NUMBER_TEXT];
    call.dtype = strcmp(dtype, "f64") == 0 ? PICI_F64 : PICI_F32;
    call.bytes = bytes;
    call.density = density;
    call.ranks = ranks;
    call.nodes = &nodes;
    pici_number_print(seconds, times * pici_model_seconds(&t->machine, &call, &c));
    return (size_t)sprintf(to, "point all_reduce %s %llu %g ring dense %s 0 ranks %d nodes 1\n", dtype,
                           (unsigned long long)bytes, density, seconds, ranks);
}

#define NEAR(a, b) cr_expect_float_eq(a, b, 1e-9, "%s: %.12g, not %.12g", #a, a, (double)(b))

Test(coll_tune, residuals)
{
    static const int begin[] = {0, 4}, begin64[] = {0, 64}, begin3[] = {0, 3};
    const struct schedule_nodes on4 = {1, begin}, on64 = {1, begin64}, on3 = {1, begin3};
    static const char shapes[] = "shape ranks 4 nodes 1 map 4 cores 0\nshape ranks 16 nodes 1 map 16 cores 0\n";
    struct tune none = read_lines(shapes);
    char lines[4096];
    size_t at = (size_t)sprintf(lines, "%s", shapes);
    at += point(lines + at, &none, "f32", 1 << 12, 0.01, 4, 1.5);
    at += point(lines + at, &none, "f32", 1 << 20, 0.01, 4, 2.5);
    at += point(lines + at, &none, "f32", 1 << 12, 0.16, 4, 0.5);
    at += point(lines + at, &none, "f32", 1 << 12, 1, 4, 100);
    at += point(lines + at, &none, "f32", 1 << 12, 0.01, 16, 3.5);
    at += point(lines + at, &none, "f64", 1 << 12, 0.01, 16, 0.001);
    struct tune t = read_lines(lines);
    NEAR(residual(&none, PICI_F32, 1 << 16, 0.01, 4, &on4), 1);
    NEAR(residual(&t, PICI_F32, 1 << 12, 0.01, 4, &on4), 1.5);
    NEAR(residual(&t, PICI_F32, 1 << 20, 0.01, 4, &on4), 2.5);
    NEAR(residual(&t, PICI_F32, 1 << 16, 0.01, 4, &on4), 2);
    NEAR(residual(&t, PICI_F32, 1 << 14, 0.01, 4, &on4), 1.75);
    NEAR(residual(&t, PICI_F32, 4, 0.01, 4, &on4), 1.5);
    NEAR(residual(&t, PICI_F32, 1 << 30, 0.0001, 4, &on4), 2.5);
    NEAR(residual(&t, PICI_F32, 1 << 12, 0.16, 4, &on4), 0.5);
    NEAR(residual(&t, PICI_F32, 1 << 12, 0.04, 4, &on4), 1);
    NEAR(residual(&t, PICI_F32, 1 << 12, 1, 4, &on4), 4);
    NEAR(residual(&t, PICI_F32, 1 << 12, 0.4, 4, &on4), 2.25);
    NEAR(residual(&t, PICI_F32, 1 << 12, 0.01, 64, &on64), 3.5);
    NEAR(residual(&t, PICI_F32, 1 << 12, 0.01, 3, &on3), 1.5);
    static const int begin8[] = {0, 8};
    const struct schedule_nodes on8 = {1, begin8};
    NEAR(residual(&t, PICI_F32, 1 << 12, 0.01, 8, &on8), 2.5);
    NEAR(residual(&t, PICI_U32, 1 << 12, 0.01, 8, &on8), 2.5); /* the same width */
    NEAR(residual(&t, PICI_U8, 1 << 12, 0.01, 4, &on4), 1.5);  /* the nearest width */
    NEAR(residual(&t, PICI_U64, 1 << 12, 0.01, 4, &on4), 0.25);
    struct model_call call = pici_model_call;
    call.bytes = 1 << 12;
    call.ranks = 4;
    call.density = 0.01;
    const struct model_candidate other = {.algorithm = PICI_ALGO_RECURSIVE, .dense = 1},
                                 sparse = {.algorithm = PICI_ALGO_RING};
    cr_expect_eq(pici_tune_seconds(&t, &call, &other), pici_model_seconds(&t.machine, &call, &other));
    cr_expect_eq(pici_tune_seconds(&t, &call, &sparse), pici_model_seconds(&t.machine, &call, &sparse));
    pici_tune_free(&t);
    pici_tune_free(&none);
}

Test(coll_tune, logarithm)
{
    cr_expect_eq(pici_tune_log2(1), 0);
    cr_expect_eq(pici_tune_log2(0x1p-64), -64);
    cr_expect_float_eq(pici_tune_log2(10), 3.321928094887362, 1e-12);
    cr_expect_float_eq(pici_tune_log2(0.3), -1.7369655941662063, 1e-12);
    cr_expect_float_eq(pici_tune_log2(1.4142135), 0.49999993637074397, 1e-12);
}
