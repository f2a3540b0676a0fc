/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What decompress makes of attributes that say how the original was cut up and deflated: good ones, those that another
 * zlib would need, and malformed ones. */
#define _GNU_SOURCE
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/input/attrs.h"
#include "tools/input/deflated.h"
#include "tools/input/source.h"
#include "tools/output/restore.h"
#include "tools/parse/unzip.h"
#include "tools/tool.h"

enum { N = 5000, HEADER = 9, LEVEL = 5 };

static const char head[] = "before it,a header,after it";
#define BEFORE 19 /* bytes of head, HEADER among them */

struct bytes {
    uint8_t p[65536];
    size_t len;
};

static int append(void *ctx, const void *p, size_t n)
{
    struct bytes *b = ctx;
    cr_assert_leq(n, sizeof b->p - b->len);
    memcpy(b->p + b->len, p, n);
    b->len += n;
    return 0;
}

/* The elements, deflated after their header; what: that data's description. */
static void deflated_of(struct bytes *to, const float *elements, struct deflated *what)
{
    struct deflater *d = deflater_new(LEVEL);
    deflater_put(d, head + BEFORE - HEADER, HEADER, false, append, to);
    deflater_put(d, elements, N * sizeof *elements, true, append, to);
    *what = (struct deflated){LEVEL, HEADER, deflater_bytes(d), deflater_crc(d), "9.9"};
    deflater_free(d);
}

static float *elements_of(void)
{
    float *p = calloc(N, sizeof *p);
    for (int i = 0; i < N; i += 7)
        p[i] = (float)(i % 50);
    source_swap_raw(p, N * sizeof *p, sizeof *p); /* as in the original, which is little-endian */
    return p;
}

/* Whether restore damages the file's chunk, which is all but a few bytes of it. */
static bool damaged;

/* Writes a .pici file with these attributes, if they are not NULL, and restores it to out. Returns the exit status. */
static int restore(struct bytes *out, float *elements, const char *before, const char *deflate, bool keep_going)
{
    static struct bytes k;
    struct pici_writer *w;
    const struct pici_attr file = {ATTR_HEAD, head, sizeof head - 1};
    struct pici_attr attrs[2];
    struct pici_tensor t = PICI_TENSOR_INIT;
    const uint64_t shape = N;
    k.len = 0;
    t.name = "w";
    t.name_len = 1;
    t.dtype = PICI_F32;
    t.rank = 1;
    t.shape = &shape;
    t.attrs = attrs;
    if (before)
        attrs[t.n_attrs++] = (struct pici_attr){ATTR_BEFORE, before, strlen(before)};
    if (deflate)
        attrs[t.n_attrs++] = (struct pici_attr){ATTR_DEFLATE, deflate, strlen(deflate)};
    source_swap_raw(elements, N * sizeof *elements, sizeof *elements);
    cr_assert_eq(pici_writer_open(&w, append, &k, &file, 1, NULL), PICI_OK);
    cr_assert_eq(pici_writer_tensor(w, &t), PICI_OK);
    cr_assert_eq(pici_writer_data(w, elements, N * sizeof *elements), PICI_OK);
    cr_assert_eq(pici_writer_finish(w), PICI_OK);
    pici_writer_close(w);
    k.p[k.len / 2] ^= damaged;
    source_swap_raw(elements, N * sizeof *elements, sizeof *elements);

    struct input in = {.name = "in", .fd = memfd_create("in", 0), .regular = true, .bytes = k.len};
    struct output to = {.name = "out", .fd = memfd_create("out", 0)};
    struct reading r;
    struct restore restore;
    struct progress progress = {0};
    struct pici_tensor_info info;
    bool more;
    cr_assert(write(in.fd, k.p, k.len) == (ssize_t)k.len && lseek(in.fd, 0, SEEK_SET) == 0);
    cr_assert_eq(reading_open(&r, &in, 1, false), TOOL_OK);
    r.keep_going = keep_going;
    int status = restore_open(&restore, &r, &to);
    cr_assert_eq(status, TOOL_OK);
    cr_assert(reading_next(&r, &info, &more) == TOOL_OK && more);
    status = restore_tensor(&restore, &info, &progress);
    if (status == TOOL_OK)
        status = restore_end(&restore);
    cr_assert_eq(r.lost, status == TOOL_OK && keep_going);
    restore_close(&restore);
    reading_close(&r);
    out->len = (size_t)to.position;
    cr_assert(pread(to.fd, out->p, out->len, 0) == (ssize_t)out->len);
    close(in.fd);
    close(to.fd);
    return status;
}

static void is(const struct bytes *out, const struct bytes *want)
{
    cr_assert(out->len == want->len && memcmp(out->p, want->p, want->len) == 0, "%zu bytes, not %zu", out->len,
              want->len);
}

Test(restore, the_head_is_shared_out)
{
    static struct bytes out, want;
    float *elements = elements_of();
    append(&want, head, sizeof head - 1);
    append(&want, elements, N * sizeof *elements);
    cr_assert_eq(restore(&out, elements, NULL, NULL, false), TOOL_OK); /* all of it first, without the attribute */
    is(&out, &want);
    for (size_t cut = 0; cut < sizeof head; cut++) {
        char before[24];
        snprintf(before, sizeof before, "%zu", cut);
        want.len = 0;
        append(&want, head, cut);
        append(&want, elements, N * sizeof *elements);
        append(&want, head + cut, sizeof head - 1 - cut);
        cr_assert_eq(restore(&out, elements, before, NULL, false), TOOL_OK);
        is(&out, &want);
    }
    static const char *const bad[] = {
        "", "28", "x", "1x", " 1", "-1", "99999999999999999999", "000000000000000000000001"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert_eq(restore(&out, elements, bad[i], NULL, false), TOOL_BAD, "%s", bad[i]);
        cr_assert(strstr(tool_last_error(), ATTR_BEFORE));
        cr_assert_eq(out.len, 0);
        cr_assert_eq(restore(&out, elements, bad[i], NULL, true), TOOL_OK, "%s", bad[i]); /* all of it first */
        is(&out, &want);
    }
    free(elements);
}

Test(restore, no_zlib)
{
    static struct bytes out, want;
    if (unzip_inflates())
        cr_skip_test("built with zlib");
    float *elements = elements_of();
    append(&want, head, BEFORE);
    append(&want, elements, N * sizeof *elements);
    append(&want, head + BEFORE, sizeof head - 1 - BEFORE);
    cr_assert_eq(restore(&out, elements, "19", "5 9 1000 1 9.9", false), TOOL_BAD);
    cr_assert(out.len == 0 && strstr(tool_last_error(), "no zlib"), "%s", tool_last_error());
    cr_assert(strstr(tool_last_error(), "extract gives the elements"), "%s", tool_last_error());
    cr_assert_eq(restore(&out, elements, "19", "5 9 1000 1 9.9", true), TOOL_OK);
    is(&out, &want);
    free(elements);
}

Test(restore, deflated_tensors)
{
    if (!unzip_inflates()) {
        printf("skip: deflated entries restored: built without zlib\n");
        return;
    }
    static struct bytes out, want;
    char text[DEFLATED_TEXT];
    struct deflated d;
    float *elements = elements_of();
    append(&want, head, BEFORE - HEADER);
    deflated_of(&want, elements, &d);
    append(&want, head + BEFORE, sizeof head - 1 - BEFORE);
    deflated_format(text, &d);
    cr_assert_eq(restore(&out, elements, "19", text, false), TOOL_OK);
    is(&out, &want);

    /* zlib makes other bytes than were seen: an error that says so, and a loss for --keep-going */
    const struct deflated good = d;
    for (int i = 0; i < 3; i++) {
        d = good;
        d.level = i == 0 ? 1 : d.level;
        d.crc ^= i == 1;
        d.bytes += i == 2;
        deflated_format(text, &d);
        cr_assert_eq(restore(&out, elements, "19", text, false), TOOL_BAD);
        cr_assert(strstr(tool_last_error(), "as 9.9 did; extract gives the elements"), "%s", tool_last_error());
        cr_assert_eq(restore(&out, elements, "19", text, true), TOOL_OK);
    }

    /* a chunk that is damaged: one loss, of which zlib is not the cause */
    deflated_format(text, &good);
    damaged = true;
    cr_assert_eq(restore(&out, elements, "19", text, true), TOOL_OK);
    cr_assert(!strstr(tool_last_error(), "zlib"), "%s", tool_last_error());
    damaged = false;

    /* malformed, or not possible */
    static const char *const bad[] = {"",
                                      "5",
                                      "5 9 100 1",
                                      "0 9 100 1 v",
                                      "10 9 100 1 v",
                                      "5 20 100 1 v",
                                      "5 9 100 4294967296 v",
                                      "5 9 0 1 v",
                                      "5 9  100 1 v",
                                      "-5 9 100 1 v",
                                      "5 9 100 1 1234567890123456789012345"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert_eq(restore(&out, elements, "19", bad[i], false), TOOL_BAD, "%s", bad[i]);
        cr_assert(strstr(tool_last_error(), ATTR_DEFLATE), "%s: %s", bad[i], tool_last_error());
        cr_assert_eq(out.len, 0);
    }
    free(elements);
}
