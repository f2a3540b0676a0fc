/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Any bytes as a zip file: unchanged, and with a directory and end records for its entries, which mutations would
 * seldom make. Accepted files are consistent. */
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "tools/parse/zip.h"

#define CHECK(x)                                                                                                       \
    do {                                                                                                               \
        if (!(x))                                                                                                      \
            abort();                                                                                                   \
    } while (0)

struct file {
    const uint8_t *p;
    size_t len;
    int fail_after; /* calls; below 0: never */
};

static int read_at(void *ctx, void *to, size_t n, uint64_t offset)
{
    struct file *f = ctx;
    CHECK(n && offset <= f->len && n <= f->len - offset);
    if (f->fail_after-- == 0)
        return 5;
    memcpy(to, f->p + offset, n);
    return 0;
}

static void parse(const uint8_t *p, size_t len)
{
    struct file f = {p, len, -1};
    struct parse_error err = {.offset = UINT64_MAX};
    struct zip z;
    uint64_t end = 0;
    if (!zip_open(&z, read_at, &f, len, &err)) {
        CHECK(err.offset <= len && err.what[0] && !z.entries && !z.names);
        return;
    }
    for (size_t i = 0; i < z.count; i++) {
        const struct zip_entry *e = &z.entries[i];
        CHECK(e->header >= end && e->header + 30 + e->name_size <= e->begin && e->begin <= e->end && e->end <= len);
        CHECK(strlen(e->name) == e->name_size && memcmp(p + e->header + 30, e->name, e->name_size) == 0);
        for (size_t k = 0; k < i && k < 20; k++)
            CHECK(strcmp(z.entries[k].name, e->name) != 0);
        end = e->end;
    }
    for (int calls = 0; calls < 4; calls++) { /* a failed read is an error, at any call */
        struct zip other;
        f.fail_after = calls;
        CHECK(!zip_open(&other, read_at, &f, len, &err) || f.fail_after >= 0);
        zip_free(&other);
    }
    zip_free(&z);
}

static void put(uint8_t *p, int bytes, uint64_t v)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

/* Make the directory of the local headers in the input, zip64 or not, as the first byte says. */
static void complete(const uint8_t *data, size_t len)
{
    const size_t most = 2 * len + 46 * (len / 30 + 1) + 128;
    uint8_t *p = calloc(1, most);
    if (!p || !len) {
        free(p);
        return;
    }
    memcpy(p, data, len);
    size_t at = len, n = 0;
    for (size_t i = 0; i + 30 <= len; i++) {
        const size_t name = (size_t)(data[i + 26] | data[i + 27] << 8);
        if (memcmp(data + i, "PK\3\4", 4) != 0 || name > len - i - 30)
            continue;
        uint8_t *e = p + at;
        if (most - at < 46 + name + 128)
            break;
        memcpy(e, "PK\1\2", 4);
        memcpy(e + 24, data + i + 22, 4); /* size; the stored size is the same */
        memcpy(e + 20, data + i + 22, 4);
        put(e + 28, 2, name);
        put(e + 42, 4, i);
        memcpy(e + 46, data + i + 30, name);
        at += 46 + name;
        n++;
    }
    const size_t directory = at - len;
    if (data[0] & 1) {
        const size_t end64 = at;
        memcpy(p + at, "PK\6\6", 4);
        put(p + at + 4, 8, 44);
        put(p + at + 24, 8, n);
        put(p + at + 32, 8, n);
        put(p + at + 40, 8, directory);
        put(p + at + 48, 8, len);
        memcpy(p + at + 56, "PK\6\7", 4);
        put(p + at + 64, 8, end64);
        put(p + at + 72, 4, 1);
        at += 76;
    }
    memcpy(p + at, "PK\5\6", 4);
    put(p + at + 8, 2, n);
    put(p + at + 10, 2, n);
    put(p + at + 12, 4, directory);
    put(p + at + 16, 4, len);
    parse(p, at + 22);
    free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    parse(data, len);
    complete(data, len);
    return 0;
}
