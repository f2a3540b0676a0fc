/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/parse/zip.h"
#include "tests/util/util.h"

enum { ROOM = 4096, LOCAL = 30, ENTRY = 46 };

/* A zip file in the making, with the places that tests damage. */
struct made {
    uint8_t p[ROOM];
    size_t len, directory, entry[8], entries, end64, locator, end;
};

struct how {
    bool zip64, later; /* end records and fields of zip64; sizes in a descriptor after the data */
};

static void put(struct made *m, int bytes, uint64_t v)
{
    while (bytes-- > 0) {
        m->p[m->len++] = (uint8_t)v;
        v >>= 8;
    }
}

static void put_text(struct made *m, const char *s, size_t n)
{
    memcpy(m->p + m->len, s, n);
    m->len += n;
}

static void patch(struct made *m, size_t at, int bytes, uint64_t v)
{
    for (; bytes-- > 0; v >>= 8)
        m->p[at++] = (uint8_t)v;
}

static const struct {
    const char *name;
    unsigned bytes, pad; /* of data; of extra field before them, as torch.save aligns them */
} files[] = {{"m/data.pkl", 20, 0}, {"m/data/0", 64, 25}, {"m/data/1", 0, 10}, {"m/version", 2, 7}};
enum { FILES = sizeof files / sizeof *files };

static void make(struct made *m, struct how how)
{
    size_t at[FILES];
    memset(m, 0, sizeof *m);
    for (int i = 0; i < FILES; i++) {
        const unsigned bytes = files[i].bytes, name = (unsigned)strlen(files[i].name);
        at[i] = m->len;
        put_text(m, "PK\3\4", 4);
        put(m, 2, 45), put(m, 2, how.later ? 8 : 0), put(m, 2, 0), put(m, 4, 0), put(m, 4, 0);
        put(m, 4, how.later ? 0 : bytes), put(m, 4, how.later ? 0 : bytes);
        put(m, 2, name), put(m, 2, files[i].pad);
        put_text(m, files[i].name, name);
        m->len += files[i].pad;
        for (unsigned k = 0; k < bytes; k++)
            put(m, 1, 16 * (unsigned)i + k);
        if (how.later)
            put_text(m, "PK\7\10", 4), put(m, 4, 0), put(m, 4, bytes), put(m, 4, bytes);
    }
    m->directory = m->len;
    for (int i = 0; i < FILES; i++) {
        const unsigned bytes = files[i].bytes, name = (unsigned)strlen(files[i].name);
        m->entry[m->entries++] = m->len;
        put_text(m, "PK\1\2", 4);
        put(m, 2, 0), put(m, 2, 45), put(m, 2, how.later ? 8 : 0), put(m, 2, 0), put(m, 4, 0), put(m, 4, 0);
        put(m, 4, how.zip64 ? UINT32_MAX : bytes), put(m, 4, how.zip64 ? UINT32_MAX : bytes);
        put(m, 2, name), put(m, 2, how.zip64 ? 28 : 0), put(m, 2, 0), put(m, 2, 0), put(m, 2, 0), put(m, 4, 0);
        put(m, 4, how.zip64 ? UINT32_MAX : at[i]);
        put_text(m, files[i].name, name);
        if (how.zip64)
            put(m, 2, 1), put(m, 2, 24), put(m, 8, bytes), put(m, 8, bytes), put(m, 8, at[i]);
    }
    const size_t bytes = m->len - m->directory;
    if (how.zip64) {
        m->end64 = m->len;
        put_text(m, "PK\6\6", 4), put(m, 8, 44), put(m, 2, 45), put(m, 2, 45), put(m, 4, 0), put(m, 4, 0);
        put(m, 8, FILES), put(m, 8, FILES), put(m, 8, bytes), put(m, 8, m->directory);
        m->locator = m->len;
        put_text(m, "PK\6\7", 4), put(m, 4, 0), put(m, 8, m->end64), put(m, 4, 1);
    }
    m->end = m->len;
    put_text(m, "PK\5\6", 4), put(m, 4, 0);
    put(m, 2, how.zip64 ? 0xffff : FILES), put(m, 2, how.zip64 ? 0xffff : FILES);
    put(m, 4, how.zip64 ? UINT32_MAX : bytes), put(m, 4, how.zip64 ? UINT32_MAX : m->directory), put(m, 2, 0);
}

struct source {
    const uint8_t *p;
    size_t len;
    int fail_at; /* the call that fails; 0: none */
};

static int read_at(void *ctx, void *to, size_t n, uint64_t offset)
{
    struct source *s = ctx;
    cr_assert(n && offset <= s->len && n <= s->len - offset, "reads outside the file");
    if (s->fail_at && --s->fail_at == 0)
        return EIO;
    memcpy(to, s->p + offset, n);
    return 0;
}

/* Open the first len bytes; what is accepted is consistent. */
static bool opens(const uint8_t *p, size_t len, struct parse_error *err)
{
    struct source s = {p, len, 0};
    struct zip z;
    *err = (struct parse_error){.offset = UINT64_MAX};
    if (!zip_open(&z, read_at, &s, len, err)) {
        cr_assert(err->what[0] && err->offset <= len, "an error without words or place");
        return false;
    }
    for (size_t i = 0; i < z.count; i++) {
        const struct zip_entry *e = &z.entries[i];
        cr_assert(e->header + LOCAL + e->name_size <= e->begin && e->begin <= e->end && e->end <= len);
        cr_assert(i == 0 || z.entries[i - 1].end <= e->header);
    }
    zip_free(&z);
    return true;
}

static const struct how hows[] = {{false, false}, {true, false}, {false, true}, {true, true}};
enum { HOWS = sizeof hows / sizeof *hows };

Test(zip, entries)
{
    for (int h = 0; h < HOWS; h++)
        for (unsigned comment = 0; comment <= 300; comment += 100) {
            struct made m;
            struct zip z;
            struct parse_error err;
            make(&m, hows[h]);
            patch(&m, m.end + 20, 2, comment);
            struct source s = {m.p, m.len + comment, 0};
            cr_assert(zip_open(&z, read_at, &s, s.len, &err), "%s", err.what);
            cr_assert_eq(z.count, FILES);
            for (size_t i = 0; i < FILES; i++) {
                cr_assert(strcmp(z.entries[i].name, files[i].name) == 0 && z.entries[i].stored);
                cr_assert_eq(z.entries[i].end - z.entries[i].begin, files[i].bytes);
                for (unsigned k = 0; k < files[i].bytes; k++)
                    cr_assert_eq(m.p[z.entries[i].begin + k], (uint8_t)(16 * i + k));
            }
            zip_free(&z);
        }
}

Test(zip, zeros_at_the_end)
{
    static const size_t zeros[] = {1, 2, 22, 1000, 65535};
    for (int h = 0; h < HOWS; h++)
        for (size_t i = 0; i < sizeof zeros / sizeof *zeros; i++)
            for (size_t wrong = 0; wrong < 3; wrong++) {
                struct made m;
                struct zip z;
                struct parse_error err;
                make(&m, hows[h]);
                uint8_t *longer = calloc(1, m.len + zeros[i]);
                memcpy(longer, m.p, m.len);
                if (wrong)
                    longer[m.len + (wrong == 1 ? 0 : zeros[i] - 1)] = 1;
                struct source s = {longer, m.len + zeros[i], 0};
                const bool opened = zip_open(&z, read_at, &s, s.len, &err);
                cr_assert_eq(opened, !wrong, "%zu zeros: %s", zeros[i], opened ? "opened" : err.what);
                if (opened)
                    zip_free(&z);
                free(longer);
            }
}

Test(zip, cut_anywhere)
{
    for (int h = 0; h < HOWS; h++) {
        struct made m;
        struct parse_error err;
        make(&m, hows[h]);
        for (size_t len = 0; len < m.len; len++) {
            uint8_t *copy = test_alloc(len ? len : 1);
            memcpy(copy, m.p, len);
            cr_assert_not(opens(copy, len, &err), "cut to %zu", len);
            free(copy);
        }
    }
}

Test(zip, every_byte_changed)
{
    for (int h = 0; h < HOWS; h++) {
        struct made m;
        struct parse_error err;
        make(&m, hows[h]);
        for (size_t i = 0; i < m.len; i++)
            for (int v = 0; v < 256; v++) {
                uint8_t old = m.p[i];
                m.p[i] = (uint8_t)v;
                opens(m.p, m.len, &err);
                m.p[i] = old;
            }
        cr_assert(opens(m.p, m.len, &err));
    }
}

Test(zip, hostile)
{
    static const struct {
        const char *what, *words;
        bool zip64;
        int of; /* what the place is in: an entry, or END and so on */
        size_t at;
        int bytes;
        uint64_t v;
    } cases[] = {
        {"no end record", "does not end as one", false, -1, 0, 4, 0},
        {"a second disk", "several disks", false, -1, 4, 2, 1},
        {"more entries than there are", "room for", false, -1, 8, 4, 5 | 5 << 16},
        {"far more entries", "room for", false, -1, 8, 4, 0xfffe | 0xfffeu << 16},
        {"fewer entries than there are", "goes on", false, -1, 8, 4, 3 | 3 << 16},
        {"a directory before its place", "does not end where", false, -1, 16, 4, 3},
        {"a directory beyond the file", "does not end where", false, -1, 12, 8, UINT64_MAX - 1},
        {"zip64 elsewhere", "not where it must be", true, -2, 8, 8, 0},
        {"zip64 beyond the file", "not where it must be", true, -2, 8, 8, UINT64_MAX - 50},
        {"zip64 of several disks", "several disks", true, -2, 16, 4, 2},
        {"zip64 that says otherwise", "do not agree", true, -1, 10, 2, 3},
        {"zip64 of another length", "do not agree", true, -3, 4, 8, 45},
        {"zip64 of one entry", "goes on", true, -3, 24, 16, 1},
        {"zip64 of 2^62 entries", "room for", true, -3, 24, 16, UINT64_C(1) << 62},
        {"zip64 with a directory of 2^63 bytes", "does not end where", true, -3, 40, 8, UINT64_C(1) << 63},
        {"encrypted", "encrypted", false, 1, 8, 2, 1},
        {"compressed, but not in its header", "does not match the directory", false, 1, 10, 2, 8},
        {"stored in fewer bytes", "is stored in 63 bytes", false, 1, 20, 4, 63},
        {"of another length than its header says", "does not match the directory", false, 1, 20, 8,
         63 | UINT64_C(63) << 32},
        {"longer than the file", "not before the directory", false, 1, 20, 8, 0x7fffffff7fffffff},
        {"in another place", "does not match the directory", false, 1, 42, 4, 3},
        {"in the directory", "not before the directory", false, 1, 42, 4, 0x7fffffff},
        {"inside another", "begins inside another", false, 0, 20, 8, 200 | UINT64_C(200) << 32},
        {"a name longer than the directory", "longer than the directory", false, 3, 28, 2, 60000},
        {"a name of NUL", "NUL in its name", false, 1, 46, 1, 0},
        {"another name", "does not match the directory", false, 1, 46, 1, 'n'},
        {"a twin", "two entries are named", false, 2, 46 + 7, 1, '0'},
        {"zip64 fields that are cut", "malformed extra fields", true, 1, 46 + 8 + 2, 2, 16},
        {"zip64 fields that are too long", "malformed extra fields", true, 1, 46 + 8 + 2, 2, 60},
        {"zip64 with a length of 2^64", "not before the directory", true, 1, 46 + 8 + 4, 16, UINT64_MAX},
        {"zip64 far away", "not before the directory", true, 1, 46 + 8 + 20, 8, UINT64_MAX - 20},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct made m;
        struct parse_error err;
        make(&m, (struct how){cases[i].zip64, false});
        size_t base = cases[i].of == -1   ? m.end
                      : cases[i].of == -2 ? m.locator
                      : cases[i].of == -3 ? m.end64
                                          : m.entry[cases[i].of];
        patch(&m, base + cases[i].at, cases[i].bytes < 8 ? cases[i].bytes : 8, cases[i].v);
        if (cases[i].bytes == 16) /* a field and the next, of one value */
            patch(&m, base + cases[i].at + 8, 8, cases[i].v);
        if (strcmp(cases[i].what, "a twin") == 0) /* in its header too */
            m.p[m.directory - 41 - 18] = '0', m.p[m.directory - 41 - 17] = '0';
        if (strcmp(cases[i].what, "inside another") == 0) /* the first one's header agrees */
            patch(&m, 18, 8, cases[i].v);
        bool accepted = opens(m.p, m.len, &err);
        cr_expect_not(accepted, "%s: accepted", cases[i].what);
        cr_expect(accepted || strstr(err.what, cases[i].words), "%s: '%s'", cases[i].what, err.what);
    }
}

Test(zip, reads_that_fail)
{
    struct made m;
    make(&m, (struct how){true, true});
    for (int call = 1;; call++) {
        struct source s = {m.p, m.len, call};
        struct parse_error err = {.offset = UINT64_MAX};
        struct zip z;
        if (zip_open(&z, read_at, &s, m.len, &err)) {
            cr_assert_gt(s.fail_at, 0);
            cr_assert_gt(call, 4 + FILES);
            zip_free(&z);
            break;
        }
        cr_assert_str_eq(err.what, "cannot be read");
    }
}
