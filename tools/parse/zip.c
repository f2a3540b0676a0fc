/* SPDX-License-Identifier: BSD-3-Clause */
#include "parse/zip.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    END_BYTES = 22, /* the end record, without comment */
    COMMENT_MOST = 65535,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    DIRECTORY_BYTES = 46, /* a directory entry, without name, extra fields and comment */
    LOCAL_BYTES = 30      /* a local header, without name and extra fields */
};

struct parser {
    struct zip *zip;
    pici_read_at_fn read_at;
    void *context;
    uint64_t file_bytes;
    struct parse_error *error;
    uint64_t entries, directory, directory_bytes; /* from the end records */
};

static uint64_t le(const uint8_t *field, int size)
{
    uint64_t value = 0;
    while (size-- > 0)
        value = value << 8 | field[size];
    return value;
}

/* Reads `size` bytes at offset. The caller has checked that the file has them. */
static bool get(struct parser *parser, void *buffer, size_t size, uint64_t offset)
{
    return !size || parser->read_at(parser->context, buffer, size, offset) == 0 ||
           pici_parse_fail(parser->error, offset, "cannot be read");
}

/* Whether a narrow field agrees with its zip64 value: it is equal, or all ones. */
static bool agree(uint64_t narrow, int size, uint64_t wide)
{
    return narrow == wide || narrow == (UINT64_C(1) << 8 * size) - 1;
}

/* Reads the records at the end of the file, which locate the directory. */
static bool find_directory(struct parser *parser)
{
    uint8_t *tail = malloc(END_BYTES + COMMENT_MOST), end64[END64_BYTES], locator[LOCATOR_BYTES];
    size_t size = parser->file_bytes < END_BYTES + COMMENT_MOST ? (size_t)parser->file_bytes : END_BYTES + COMMENT_MOST;
    if (!tail)
        return pici_parse_fail(parser->error, 0, "out of memory for the end of the file");
    bool found = false, read = get(parser, tail, size, parser->file_bytes - size);
    uint8_t end_record[END_BYTES];
    uint64_t end_offset = 0;
    size_t zeros = 0; /* at the end of the file */
    while (read && zeros < size && tail[size - 1 - zeros] == 0)
        zeros++;
    for (size_t i = size; read && !found && i-- >= END_BYTES;) { /* zeros may follow the comment */
        const uint8_t *candidate = tail + i + 1 - END_BYTES;
        const size_t after = size - (i + 1), comment = (size_t)le(candidate + 20, 2);
        found = memcmp(candidate, "PK\5\6", 4) == 0 && comment <= after && after - comment <= zeros;
        memcpy(end_record, candidate, sizeof end_record);
        end_offset = parser->file_bytes - after - END_BYTES;
    }
    free(tail);
    if (!read)
        return false;
    if (!found)
        return pici_parse_fail(parser->error, parser->file_bytes, "not a zip file: it does not end as one");
    parser->entries = le(end_record + 10, 2);
    parser->directory_bytes = le(end_record + 12, 4);
    parser->directory = le(end_record + 16, 4);
    bool one_disk = le(end_record + 4, 4) == 0 && le(end_record + 8, 2) == parser->entries;
    uint64_t ends = end_offset;
    if (end_offset >= LOCATOR_BYTES && !get(parser, locator, sizeof locator, end_offset - LOCATOR_BYTES))
        return false;
    if (end_offset >= LOCATOR_BYTES && memcmp(locator, "PK\6\7", 4) == 0) {
        ends = le(locator + 8, 8);
        if (ends > end_offset - LOCATOR_BYTES || end_offset - LOCATOR_BYTES - ends != END64_BYTES)
            return pici_parse_fail(parser->error, end_offset - LOCATOR_BYTES,
                                   "the end record of zip64 is not where it must be");
        if (!get(parser, end64, sizeof end64, ends))
            return false;
        one_disk = le(locator + 4, 4) == 0 && le(locator + 16, 4) == 1 && le(end64 + 16, 8) == 0 &&
                   le(end64 + 24, 8) == le(end64 + 32, 8);
        if (memcmp(end64, "PK\6\6", 4) != 0 || le(end64 + 4, 8) != END64_BYTES - 12 ||
            !agree(parser->entries, 2, le(end64 + 32, 8)) || !agree(parser->directory_bytes, 4, le(end64 + 40, 8)) ||
            !agree(parser->directory, 4, le(end64 + 48, 8)))
            return pici_parse_fail(parser->error, ends, "the end records of zip and zip64 do not agree");
        parser->entries = le(end64 + 32, 8);
        parser->directory_bytes = le(end64 + 40, 8);
        parser->directory = le(end64 + 48, 8);
    }
    if (!one_disk)
        return pici_parse_fail(parser->error, end_offset, "a zip file of several disks");
    if (parser->directory_bytes > ends || parser->directory != ends - parser->directory_bytes)
        return pici_parse_fail(parser->error, end_offset, "the directory does not end where the end records begin");
    if (parser->directory_bytes > ZIP_MAX_DIRECTORY)
        return pici_parse_fail(parser->error, end_offset, "a directory of %" PRIu64 " bytes, above the limit of %d",
                               parser->directory_bytes, ZIP_MAX_DIRECTORY);
    if (parser->entries > parser->directory_bytes / DIRECTORY_BYTES)
        return pici_parse_fail(parser->error, end_offset, "more entries than the directory has room for");
    return true;
}

/* Reads the values of fields that are all ones from the zip64 extra field: the sizes, then the offset. */
static bool wide_fields(const uint8_t *extra, size_t size, uint64_t *const field[3])
{
    static const uint32_t ones = UINT32_MAX;
    bool wanted = *field[0] == ones || *field[1] == ones || *field[2] == ones;
    while (size >= 4) {
        size_t field_size = (size_t)le(extra + 2, 2);
        if (field_size > size - 4)
            return false;
        if (le(extra, 2) == 1) {
            const uint8_t *next = extra + 4, *end = next + field_size;
            for (int i = 0; i < 3; i++) {
                if (*field[i] != ones)
                    continue;
                if (end - next < 8)
                    return false;
                *field[i] = le(next, 8);
                next += 8;
            }
            return true;
        }
        extra += 4 + field_size;
        size -= 4 + field_size;
    }
    return size == 0 && !wanted;
}

/* Whether a file with this name may be outside the folder into which the archive is unpacked. */
static bool climbs(const char *name)
{
    if (name[0] == '/' || name[0] == '\\')
        return true;
    for (const char *part = name; *part; part += strcspn(part, "/\\"), part += *part != 0)
        if (part[0] == '.' && part[1] == '.' && (!part[2] || part[2] == '/' || part[2] == '\\'))
            return true;
    return false;
}

/* Parses the entry at `record`, at `offset` of the directory, with `remaining` bytes left there. *used: its length. */
static bool take_entry(struct parser *parser, const uint8_t *record, uint64_t remaining, uint64_t offset, char **names,
                       uint64_t *used)
{
    struct zip_entry *entry = &parser->zip->entries[parser->zip->count];
    char name[64];
    if (remaining < DIRECTORY_BYTES || memcmp(record, "PK\1\2", 4) != 0)
        return pici_parse_fail(parser->error, offset, "not an entry of a zip directory");
    size_t name_len = (size_t)le(record + 28, 2), extra = (size_t)le(record + 30, 2),
           comment = (size_t)le(record + 32, 2);
    *used = (uint64_t)DIRECTORY_BYTES + name_len + extra + comment;
    if (*used > remaining)
        return pici_parse_fail(parser->error, offset, "an entry that is longer than the directory");
    memcpy(*names, record + DIRECTORY_BYTES, name_len);
    (*names)[name_len] = 0;
    *entry = (struct zip_entry){.name = *names, .name_size = name_len};
    *names += name_len + 1;
    parser->zip->count++;
    pici_parse_printable(name, sizeof name, entry->name, entry->name_size);
    if (memchr(entry->name, 0, entry->name_size))
        return pici_parse_fail(parser->error, offset, "an entry with a NUL in its name");
    if (climbs(entry->name))
        return pici_parse_fail(parser->error, offset, "entry '%s' has a name that leaves its folder", name);
    uint64_t packed = le(record + 20, 4),
             bytes = le(record + 24, 4), *const wide[3] = {&bytes, &packed, &entry->header};
    entry->header = le(record + 42, 4);
    if (!wide_fields(record + DIRECTORY_BYTES + name_len, extra, wide))
        return pici_parse_fail(parser->error, offset, "entry '%s' has malformed extra fields", name);
    if (le(record + 8, 2) & 1)
        return pici_parse_fail(parser->error, offset, "entry '%s' is encrypted", name);
    entry->method = (unsigned)le(record + 10, 2);
    entry->stored = entry->method == 0;
    if ((entry->stored && packed != bytes) || le(record + 34, 2) != 0)
        return pici_parse_fail(parser->error, offset,
                               "entry '%s' is stored in %" PRIu64 " bytes, but has %" PRIu64 ", or is elsewhere", name,
                               packed, bytes);
    if (entry->header > parser->directory || parser->directory - entry->header < LOCAL_BYTES ||
        packed > parser->directory - entry->header - LOCAL_BYTES)
        return pici_parse_fail(parser->error, offset, "entry '%s' is not before the directory", name);
    entry->crc = (uint32_t)le(record + 16, 4);
    entry->bytes = bytes;
    entry->end = packed; /* relative until the local header has been read */
    return true;
}

/* Checks the local header. With bit 3 of the flags, the sizes are in a descriptor after the data. */
static bool take_local(struct parser *parser, struct zip_entry *entry)
{
    char name[64];
    static const uint32_t ones = UINT32_MAX;
    uint8_t header[LOCAL_BYTES], stored_name[256];
    pici_parse_printable(name, sizeof name, entry->name, entry->name_size);
    if (!get(parser, header, sizeof header, entry->header))
        return false;
    const uint64_t bytes = entry->end, packed = le(header + 18, 4), whole = le(header + 22, 4),
                   available = parser->directory - entry->header;
    uint64_t head = LOCAL_BYTES + le(header + 26, 2) + le(header + 28, 2);
    bool later = le(header + 6, 2) & 8,
         sizes_agree = (packed == bytes || packed == ones) && (whole == entry->bytes || whole == ones);
    bool agrees = memcmp(header, "PK\3\4", 4) == 0 && !(le(header + 6, 2) & 1) && le(header + 8, 2) == entry->method &&
                  le(header + 26, 2) == entry->name_size && (sizes_agree || (later && packed == 0 && whole == 0)) &&
                  head <= available && bytes <= available - head;
    for (size_t compared = 0, step; agrees && compared < entry->name_size; compared += step) {
        step = entry->name_size - compared < sizeof stored_name ? entry->name_size - compared : sizeof stored_name;
        if (!get(parser, stored_name, step, entry->header + LOCAL_BYTES + compared))
            return false;
        agrees = memcmp(stored_name, entry->name + compared, step) == 0;
    }
    if (!agrees)
        return pici_parse_fail(parser->error, entry->header, "the header of entry '%s' does not match the directory",
                               name);
    entry->begin = entry->header + head;
    entry->end = entry->begin + bytes;
    return true;
}

static int by_header(const void *left, const void *right)
{
    const struct zip_entry *first = left, *second = right;
    return (first->header > second->header) - (first->header < second->header);
}

static int by_name(const void *left, const void *right)
{
    return strcmp(((const struct zip_entry *)left)->name, ((const struct zip_entry *)right)->name);
}

/* Sorts the entries in file order; checks that they do not overlap and that names are unique. */
static bool check_entries(struct parser *parser)
{
    struct zip *zip = parser->zip;
    char name[64];
    if (zip->count)
        qsort(zip->entries, zip->count, sizeof *zip->entries, by_name);
    for (size_t i = 1; i < zip->count; i++)
        if (strcmp(zip->entries[i - 1].name, zip->entries[i].name) == 0)
            return pici_parse_fail(
                parser->error, zip->entries[i].header, "two entries are named '%s'",
                pici_parse_printable(name, sizeof name, zip->entries[i].name, zip->entries[i].name_size));
    if (zip->count)
        qsort(zip->entries, zip->count, sizeof *zip->entries, by_header);
    for (size_t i = 1; i < zip->count; i++)
        if (zip->entries[i].header < zip->entries[i - 1].end)
            return pici_parse_fail(
                parser->error, zip->entries[i].header, "entry '%s' begins inside another",
                pici_parse_printable(name, sizeof name, zip->entries[i].name, zip->entries[i].name_size));
    return true;
}

static bool read_entries(struct parser *parser)
{
    struct zip *zip = parser->zip;
    uint8_t *directory = malloc((size_t)parser->directory_bytes + 1);
    zip->entries = malloc((size_t)parser->entries * sizeof *zip->entries + 1);
    zip->names = malloc((size_t)parser->directory_bytes + 1); /* an entry is longer than its name and a NUL */
    char *names = zip->names;
    bool valid = directory && zip->entries && zip->names;
    if (!valid)
        pici_parse_fail(parser->error, 0, "out of memory for the directory");
    valid = valid && get(parser, directory, (size_t)parser->directory_bytes, parser->directory);
    uint64_t position = 0, used = 0;
    for (uint64_t i = 0; valid && i < parser->entries; i++, position += used)
        valid = take_entry(parser, directory + position, parser->directory_bytes - position,
                           parser->directory + position, &names, &used);
    free(directory);
    if (valid && position != parser->directory_bytes)
        valid =
            pici_parse_fail(parser->error, parser->directory + position, "the directory goes on after its last entry");
    for (size_t i = 0; valid && i < zip->count; i++)
        valid = take_local(parser, &zip->entries[i]);
    return valid && check_entries(parser);
}

bool zip_open(struct zip *out, pici_read_at_fn read_at, void *context, uint64_t file_bytes, struct parse_error *error)
{
    struct parser parser = {
        .zip = out, .read_at = read_at, .context = context, .file_bytes = file_bytes, .error = error};
    *out = (struct zip){0};
    if (file_bytes > INT64_MAX)
        return pici_parse_fail(error, 0, "a file beyond 63 bits");
    bool valid = find_directory(&parser) && read_entries(&parser);
    if (!valid)
        zip_free(out);
    return valid;
}

void zip_free(struct zip *zip)
{
    free(zip->entries);
    free(zip->names);
    *zip = (struct zip){0};
}
