/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/parse/crc32.h"
#include "tools/parse/unzip.h"

enum { N = 300000 };

struct file {
    uint8_t *p;
    size_t len;
};

static int read_at(void *ctx, void *to, size_t n, uint64_t offset)
{
    const struct file *f = ctx;
    if (offset > f->len || n > f->len - offset)
        return 5;
    memcpy(to, f->p + offset, n);
    return 0;
}

static int append(void *ctx, const void *p, size_t n)
{
    struct file *f = ctx;
    f->p = realloc(f->p, f->len + n);
    memcpy(f->p + f->len, p, n);
    f->len += n;
    return 0;
}

/* Bytes that repeat at some distance, so that levels differ in what they find. */
static uint8_t *bytes_of(size_t n)
{
    uint8_t *p = malloc(n + 1);
    uint32_t x = 1;
    for (size_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        p[i] = i > 5000 && x >> 28 ? p[i - 1 - (x >> 8) % 5000] : (uint8_t)(x >> 30);
    }
    return p;
}

static struct zip_entry entry_of(unsigned method, const struct file *f, const uint8_t *bytes, size_t n)
{
    return (struct zip_entry){.name = "a.npy",
                              .name_size = 5,
                              .stored = method == ZIP_STORED,
                              .method = method,
                              .crc = parse_crc32(0, bytes, n),
                              .bytes = n,
                              .end = f->len};
}

static bool take_all(const struct zip_entry *e, struct file *f, uint8_t *to, size_t piece, struct parse_error *err)
{
    struct unzip u;
    *err = (struct parse_error){.offset = UINT64_MAX};
    bool ok = unzip_open(&u, e, read_at, f, err);
    if (!ok)
        return false;
    do {
        const size_t n = u.remaining < piece ? (size_t)u.remaining : piece;
        ok = unzip_take(&u, to, n);
        to += n;
    } while (ok && u.remaining);
    unzip_close(&u);
    cr_assert(ok || err->what[0]);
    return ok;
}

Test(unzip, crc32_is_that_of_zip)
{
    static const char text[] = "123456789";
    cr_assert_eq(parse_crc32(0, text, 9), 0xcbf43926u);
    cr_assert_eq(parse_crc32(0, NULL, 0), 0);
    for (size_t cut = 0; cut <= 9; cut++)
        cr_assert_eq(parse_crc32(parse_crc32(0, text, cut), text + cut, 9 - cut), 0xcbf43926u);
    uint8_t *p = bytes_of(N); /* against the definition, bit by bit */
    uint32_t crc = ~0u;
    for (size_t i = 0; i < N; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    cr_assert_eq(parse_crc32(0, p, N), ~crc);
    free(p);
}

Test(unzip, stored_entries_are_checked)
{
    uint8_t *p = bytes_of(N), *to = malloc(N);
    struct file f = {p, N};
    struct parse_error err;
    struct zip_entry e = entry_of(ZIP_STORED, &f, p, N);
    cr_assert(take_all(&e, &f, to, 1000, &err) && memcmp(to, p, N) == 0, "%s", err.what);
    p[N / 2] ^= 1;
    cr_assert(!take_all(&e, &f, to, 1000, &err) && strstr(err.what, "CRC-32"), "%s", err.what);
    e = entry_of(ZIP_STORED, &f, p, 0);
    e.end = 0;
    cr_assert(take_all(&e, &f, to, 1000, &err), "%s", err.what);
    e.crc = 1;
    cr_assert(!take_all(&e, &f, to, 1000, &err) && strstr(err.what, "CRC-32"), "%s", err.what);
    e.method = 12;
    cr_assert(!take_all(&e, &f, to, 1000, &err) && strstr(err.what, "method"), "%s", err.what);
    free(p);
    free(to);
}

Test(unzip, the_level_is_found)
{
    if (!unzip_inflates()) {
        printf("skip: deflated entries: built without zlib\n");
        return;
    }
    uint8_t *p = bytes_of(N), *to = malloc(N);
    unsigned distinct = 0;
    for (int level = 1; level <= UNZIP_LEVELS; level++) {
        struct file f = {NULL, 0}, again = {NULL, 0};
        struct parse_error err;
        struct unzip_effort effort = {.spare = UINT64_MAX};
        int found = -1;
        uint32_t crc = 0;
        struct deflater *d = deflater_new(level);
        for (size_t at = 0; at < N; at += 7777)
            deflater_put(d, p + at, N - at < 7777 ? N - at : 7777, at + 7777 >= N, append, &f);
        cr_assert(deflater_bytes(d) == f.len && deflater_crc(d) == parse_crc32(0, f.p, f.len));
        deflater_free(d);
        struct zip_entry e = entry_of(ZIP_DEFLATED, &f, p, N);
        cr_assert(take_all(&e, &f, to, 12345, &err) && memcmp(to, p, N) == 0, "%s", err.what);
        cr_assert(unzip_level(&found, &crc, &effort, &e, read_at, &f, &err), "%s", err.what);
        cr_assert(found >= 1 && crc == parse_crc32(0, f.p, f.len), "level %d: found %d", level, found);
        distinct += found == level;
        d = deflater_new(found);
        deflater_put(d, p, N, true, append, &again);
        deflater_free(d);
        cr_assert(again.len == f.len && memcmp(again.p, f.p, f.len) == 0);

        /* valid deflated data that no level makes: an empty stored block in front */
        struct file other = {NULL, 0};
        append(&other, "\0\0\0\xff\xff", 5);
        append(&other, f.p, f.len);
        e = entry_of(ZIP_DEFLATED, &other, p, N);
        cr_assert(unzip_level(&found, &crc, &effort, &e, read_at, &other, &err) && found == 0, "%s", err.what);
        other.p[other.len / 2] ^= 4;
        cr_assert(!unzip_level(&found, &crc, &effort, &e, read_at, &other, &err));
        free(other.p);
        free(again.p);
        free(f.p);
    }
    cr_assert_geq(distinct, 5, "levels make the same bytes: the test tests little");
    free(p);
    free(to);
}

/* Zeros are the same at most levels: without a limit, all of these go on to the end. */
Test(unzip, finding_a_level_is_bounded)
{
    if (!unzip_inflates()) {
        printf("skip: deflated entries: built without zlib\n");
        return;
    }
    enum { ZEROS = 30 << 20, SPARE = 8 << 20 };
    uint8_t *p = calloc(1, ZEROS);
    struct parse_error err;
    for (int level = 1; level <= UNZIP_LEVELS; level++) {
        struct file f = {NULL, 0};
        struct deflater *d = deflater_new(level);
        deflater_put(d, p, ZEROS, true, append, &f);
        deflater_free(d);
        struct zip_entry e = entry_of(ZIP_DEFLATED, &f, p, ZEROS);
        struct unzip_effort effort = {.spare = SPARE};
        int found = -1;
        uint32_t crc = 0;
        cr_assert(unzip_level(&found, &crc, &effort, &e, read_at, &f, &err), "%s", err.what);
        cr_assert(effort.deflated <= 2 * (uint64_t)ZEROS + SPARE, "level %d: %llu bytes", level,
                  (unsigned long long)effort.deflated);
        if (level == 6 || level == 9)
            cr_assert(found > 0, "level %d is not found", level);
        cr_assert(!found || (effort.level == found && crc == parse_crc32(0, f.p, f.len)));
        const struct unzip_effort before = effort;
        cr_assert(unzip_level(&found, &crc, &effort, &e, read_at, &f, &err), "%s", err.what);
        if (before.level) /* it is tried first */
            cr_assert(found == before.level && effort.deflated - before.deflated == ZEROS);

        free(f.p);
    }
    free(p);
}

Test(unzip, damaged_deflated_entries)
{
    if (!unzip_inflates()) {
        printf("skip: deflated entries: built without zlib\n");
        return;
    }
    uint8_t *p = bytes_of(N), *to = malloc(N + 1);
    struct file f = {NULL, 0};
    struct parse_error err;
    struct deflater *d = deflater_new(6);
    deflater_put(d, p, N, true, append, &f);
    deflater_free(d);
    const struct zip_entry good = entry_of(ZIP_DEFLATED, &f, p, N);
    struct zip_entry e = good;
    e.bytes = N + 1;
    cr_assert(!take_all(&e, &f, to, N + 1, &err) && strstr(err.what, "fewer bytes"), "%s", err.what);
    e.bytes = N - 1;
    cr_assert(!take_all(&e, &f, to, N, &err) && strstr(err.what, "more bytes"), "%s", err.what);
    e = good;
    e.crc ^= 1;
    cr_assert(!take_all(&e, &f, to, N, &err) && strstr(err.what, "CRC-32"), "%s", err.what);
    e = good;
    e.end -= 10;
    cr_assert(!take_all(&e, &f, to, N, &err) && strstr(err.what, "truncated"), "%s", err.what);
    e = good;
    e.bytes = UINT64_C(1) << 60; /* no deflated data can hold that */
    cr_assert(!take_all(&e, &f, to, 1000, &err) && strstr(err.what, "claims"), "%s", err.what);
    append(&f, "x", 1);
    e = good;
    e.end++;
    cr_assert(!take_all(&e, &f, to, N, &err) && strstr(err.what, "after its deflated data"), "%s", err.what);
    e = good;
    f.len = 100; /* reading fails */
    cr_assert(!take_all(&e, &f, to, N, &err) && strstr(err.what, "cannot be read"), "%s", err.what);
    free(f.p);
    free(p);
    free(to);
}
