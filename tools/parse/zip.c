/* SPDX-License-Identifier: BSD-3-Clause */
#include "parse/zip.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    END_BYTES = 22, /* of the end record, without its comment */
    COMMENT_MOST = 65535,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    DIRECTORY_BYTES = 46, /* of an entry of the directory, without name, extra fields and comment */
    LOCAL_BYTES = 30      /* of a local header, without name and extra fields */
};

struct parser {
    struct zip *out;
    pici_read_at_fn read_at;
    void *ctx;
    uint64_t file_bytes;
    struct parse_error *err;
    uint64_t entries, directory, directory_bytes; /* as the end records say */
};

static uint64_t le(const uint8_t *p, int bytes)
{
    uint64_t value = 0;
    while (bytes-- > 0)
        value = value << 8 | p[bytes];
    return value;
}

/* Reads n bytes at offset. The caller has checked that they are within the file. */
static bool get(struct parser *p, void *to, size_t n, uint64_t offset)
{
    return !n || p->read_at(p->ctx, to, n, offset) == 0 || pici_parse_fail(p->err, offset, "cannot be read");
}

/* The value of a field that zip64 repeats: a, unless a is all ones. */
static bool agree(uint64_t a, int bytes, uint64_t b)
{
    return a == b || a == (UINT64_C(1) << 8 * bytes) - 1;
}

/* Reads the records at the end of the file, which say where the directory is. */
static bool find_directory(struct parser *p)
{
    uint8_t *tail = malloc(END_BYTES + COMMENT_MOST), end64[END64_BYTES], locator[LOCATOR_BYTES];
    size_t size = p->file_bytes < END_BYTES + COMMENT_MOST ? (size_t)p->file_bytes : END_BYTES + COMMENT_MOST;
    if (!tail)
        return pici_parse_fail(p->err, 0, "out of memory for the end of the file");
    bool found = false, read = get(p, tail, size, p->file_bytes - size);
    uint8_t e[END_BYTES];
    uint64_t at = 0;
    size_t zeros = 0; /* at the end of the file */
    while (read && zeros < size && tail[size - 1 - zeros] == 0)
        zeros++;
    for (size_t i = size; read && !found && i-- >= END_BYTES;) { /* zeros may follow the comment */
        const uint8_t *q = tail + i + 1 - END_BYTES;
        const size_t after = size - (i + 1), comment = (size_t)le(q + 20, 2);
        found = memcmp(q, "PK\5\6", 4) == 0 && comment <= after && after - comment <= zeros;
        memcpy(e, q, sizeof e);
        at = p->file_bytes - after - END_BYTES;
    }
    free(tail);
    if (!read)
        return false;
    if (!found)
        return pici_parse_fail(p->err, p->file_bytes, "not a zip file: it does not end as one");
    p->entries = le(e + 10, 2);
    p->directory_bytes = le(e + 12, 4);
    p->directory = le(e + 16, 4);
    bool one_disk = le(e + 4, 4) == 0 && le(e + 8, 2) == p->entries;
    uint64_t ends = at;
    if (at >= LOCATOR_BYTES && !get(p, locator, sizeof locator, at - LOCATOR_BYTES))
        return false;
    if (at >= LOCATOR_BYTES && memcmp(locator, "PK\6\7", 4) == 0) {
        ends = le(locator + 8, 8);
        if (ends > at - LOCATOR_BYTES || at - LOCATOR_BYTES - ends != END64_BYTES)
            return pici_parse_fail(p->err, at - LOCATOR_BYTES, "the end record of zip64 is not where it must be");
        if (!get(p, end64, sizeof end64, ends))
            return false;
        one_disk = le(locator + 4, 4) == 0 && le(locator + 16, 4) == 1 && le(end64 + 16, 8) == 0 &&
                   le(end64 + 24, 8) == le(end64 + 32, 8);
        if (memcmp(end64, "PK\6\6", 4) != 0 || le(end64 + 4, 8) != END64_BYTES - 12 ||
            !agree(p->entries, 2, le(end64 + 32, 8)) || !agree(p->directory_bytes, 4, le(end64 + 40, 8)) ||
            !agree(p->directory, 4, le(end64 + 48, 8)))
            return pici_parse_fail(p->err, ends, "the end records of zip and zip64 do not agree");
        p->entries = le(end64 + 32, 8);
        p->directory_bytes = le(end64 + 40, 8);
        p->directory = le(end64 + 48, 8);
    }
    if (!one_disk)
        return pici_parse_fail(p->err, at, "a zip file of several disks");
    if (p->directory_bytes > ends || p->directory != ends - p->directory_bytes)
        return pici_parse_fail(p->err, at, "the directory does not end where the end records begin");
    if (p->directory_bytes > ZIP_MAX_DIRECTORY)
        return pici_parse_fail(p->err, at, "a directory of %" PRIu64 " bytes, above the limit of %d",
                               p->directory_bytes, ZIP_MAX_DIRECTORY);
    if (p->entries > p->directory_bytes / DIRECTORY_BYTES)
        return pici_parse_fail(p->err, at, "more entries than the directory has room for");
    return true;
}

/* Reads from the zip64 extra field the values of fields that are all ones: sizes and offset, in this order. */
static bool wide_fields(const uint8_t *extra, size_t size, uint64_t *const field[3])
{
    static const uint32_t ones = UINT32_MAX;
    bool wanted = *field[0] == ones || *field[1] == ones || *field[2] == ones;
    while (size >= 4) {
        size_t n = (size_t)le(extra + 2, 2);
        if (n > size - 4)
            return false;
        if (le(extra, 2) == 1) {
            const uint8_t *p = extra + 4, *end = p + n;
            for (int i = 0; i < 3; i++) {
                if (*field[i] != ones)
                    continue;
                if (end - p < 8)
                    return false;
                *field[i] = le(p, 8);
                p += 8;
            }
            return true;
        }
        extra += 4 + n;
        size -= 4 + n;
    }
    return size == 0 && !wanted;
}

/* Whether a file of this name may lie outside the folder that the archive is unpacked into. */
static bool climbs(const char *name)
{
    if (name[0] == '/' || name[0] == '\\')
        return true;
    for (const char *p = name; *p; p += strcspn(p, "/\\"), p += *p != 0)
        if (p[0] == '.' && p[1] == '.' && (!p[2] || p[2] == '/' || p[2] == '\\'))
            return true;
    return false;
}

/* Parses the entry at q, which is at offset at of the directory, with left bytes left there. *used: its length. */
static bool take_entry(struct parser *p, const uint8_t *q, uint64_t left, uint64_t at, char **names, uint64_t *used)
{
    struct zip_entry *entry = &p->out->entries[p->out->count];
    char name[64];
    if (left < DIRECTORY_BYTES || memcmp(q, "PK\1\2", 4) != 0)
        return pici_parse_fail(p->err, at, "not an entry of a zip directory");
    size_t name_len = (size_t)le(q + 28, 2), extra = (size_t)le(q + 30, 2), comment = (size_t)le(q + 32, 2);
    *used = (uint64_t)DIRECTORY_BYTES + name_len + extra + comment;
    if (*used > left)
        return pici_parse_fail(p->err, at, "an entry that is longer than the directory");
    memcpy(*names, q + DIRECTORY_BYTES, name_len);
    (*names)[name_len] = 0;
    *entry = (struct zip_entry){.name = *names, .name_len = name_len};
    *names += name_len + 1;
    p->out->count++;
    pici_parse_printable(name, sizeof name, entry->name, entry->name_len);
    if (memchr(entry->name, 0, entry->name_len))
        return pici_parse_fail(p->err, at, "an entry with a NUL in its name");
    if (climbs(entry->name))
        return pici_parse_fail(p->err, at, "entry '%s' has a name that leaves its folder", name);
    uint64_t packed = le(q + 20, 4), bytes = le(q + 24, 4), *const wide[3] = {&bytes, &packed, &entry->header};
    entry->header = le(q + 42, 4);
    if (!wide_fields(q + DIRECTORY_BYTES + name_len, extra, wide))
        return pici_parse_fail(p->err, at, "entry '%s' has extra fields that are none", name);
    if (le(q + 8, 2) & 1)
        return pici_parse_fail(p->err, at, "entry '%s' is encrypted", name);
    entry->method = (unsigned)le(q + 10, 2);
    entry->stored = entry->method == 0;
    if ((entry->stored && packed != bytes) || le(q + 34, 2) != 0)
        return pici_parse_fail(p->err, at,
                               "entry '%s' is stored in %" PRIu64 " bytes, but has %" PRIu64 ", or is elsewhere", name,
                               packed, bytes);
    if (entry->header > p->directory || p->directory - entry->header < LOCAL_BYTES ||
        packed > p->directory - entry->header - LOCAL_BYTES)
        return pici_parse_fail(p->err, at, "entry '%s' is not before the directory", name);
    entry->crc = (uint32_t)le(q + 16, 4);
    entry->bytes = bytes;
    entry->end = packed; /* relative until the local header has been read */
    return true;
}

/* Checks the local header. With bit 3 of the flags, the sizes are in a descriptor after the data. */
static bool take_local(struct parser *p, struct zip_entry *entry)
{
    char name[64];
    static const uint32_t ones = UINT32_MAX;
    uint8_t h[LOCAL_BYTES], own[256];
    pici_parse_printable(name, sizeof name, entry->name, entry->name_len);
    if (!get(p, h, sizeof h, entry->header))
        return false;
    const uint64_t bytes = entry->end, packed = le(h + 18, 4), whole = le(h + 22, 4),
                   room = p->directory - entry->header;
    uint64_t head = LOCAL_BYTES + le(h + 26, 2) + le(h + 28, 2);
    bool later = le(h + 6, 2) & 8,
         said = (packed == bytes || packed == ones) && (whole == entry->bytes || whole == ones);
    bool ok = memcmp(h, "PK\3\4", 4) == 0 && !(le(h + 6, 2) & 1) && le(h + 8, 2) == entry->method &&
              le(h + 26, 2) == entry->name_len && (said || (later && packed == 0 && whole == 0)) && head <= room &&
              bytes <= room - head;
    for (size_t at = 0, n; ok && at < entry->name_len; at += n) {
        n = entry->name_len - at < sizeof own ? entry->name_len - at : sizeof own;
        if (!get(p, own, n, entry->header + LOCAL_BYTES + at))
            return false;
        ok = memcmp(own, entry->name + at, n) == 0;
    }
    if (!ok)
        return pici_parse_fail(p->err, entry->header, "the header of entry '%s' is not as the directory says", name);
    entry->begin = entry->header + head;
    entry->end = entry->begin + bytes;
    return true;
}

static int by_header(const void *left, const void *right)
{
    const struct zip_entry *x = left, *y = right;
    return (x->header > y->header) - (x->header < y->header);
}

static int by_name(const void *left, const void *right)
{
    return strcmp(((const struct zip_entry *)left)->name, ((const struct zip_entry *)right)->name);
}

/* Sorts the entries by their bytes; checks that none overlap and that names are unique. */
static bool check_entries(struct parser *p)
{
    struct zip *zip = p->out;
    char name[64];
    if (zip->count)
        qsort(zip->entries, zip->count, sizeof *zip->entries, by_name);
    for (size_t i = 1; i < zip->count; i++)
        if (strcmp(zip->entries[i - 1].name, zip->entries[i].name) == 0)
            return pici_parse_fail(
                p->err, zip->entries[i].header, "two entries are named '%s'",
                pici_parse_printable(name, sizeof name, zip->entries[i].name, zip->entries[i].name_len));
    if (zip->count)
        qsort(zip->entries, zip->count, sizeof *zip->entries, by_header);
    for (size_t i = 1; i < zip->count; i++)
        if (zip->entries[i].header < zip->entries[i - 1].end)
            return pici_parse_fail(
                p->err, zip->entries[i].header, "entry '%s' begins inside another",
                pici_parse_printable(name, sizeof name, zip->entries[i].name, zip->entries[i].name_len));
    return true;
}

static bool read_entries(struct parser *p)
{
    struct zip *zip = p->out;
    uint8_t *directory = malloc((size_t)p->directory_bytes + 1);
    zip->entries = malloc((size_t)p->entries * sizeof *zip->entries + 1);
    zip->names = malloc((size_t)p->directory_bytes + 1); /* an entry is longer than its name and a NUL */
    char *names = zip->names;
    bool ok = directory && zip->entries && zip->names;
    if (!ok)
        pici_parse_fail(p->err, 0, "out of memory for the directory");
    ok = ok && get(p, directory, (size_t)p->directory_bytes, p->directory);
    uint64_t at = 0, used = 0;
    for (uint64_t i = 0; ok && i < p->entries; i++, at += used)
        ok = take_entry(p, directory + at, p->directory_bytes - at, p->directory + at, &names, &used);
    free(directory);
    if (ok && at != p->directory_bytes)
        ok = pici_parse_fail(p->err, p->directory + at, "the directory goes on after its last entry");
    for (size_t i = 0; ok && i < zip->count; i++)
        ok = take_local(p, &zip->entries[i]);
    return ok && check_entries(p);
}

bool zip_open(struct zip *out, pici_read_at_fn read_at, void *context, uint64_t file_bytes, struct parse_error *error)
{
    struct parser p = {.out = out, .read_at = read_at, .ctx = context, .file_bytes = file_bytes, .err = error};
    *out = (struct zip){0};
    if (file_bytes > INT64_MAX)
        return pici_parse_fail(error, 0, "a file beyond 63 bits");
    bool ok = find_directory(&p) && read_entries(&p);
    if (!ok)
        zip_free(out);
    return ok;
}

void zip_free(struct zip *zip)
{
    free(zip->entries);
    free(zip->names);
    *zip = (struct zip){0};
}
