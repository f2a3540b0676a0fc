/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "output/zipout.h"

#include <stdlib.h>
#include <string.h>

#include "parse/crc32.h"
#include "parse/parse.h"
#include "tool.h"

/* The length and CRC-32 of an entry are not known at its start, so they follow its data. Lengths have 64 bits. */
enum {
    LATER = 1 << 3, /* flag: length and CRC-32 follow the data */
    UTF8 = 1 << 11, /* flag: the name is UTF-8 */
    VERSION = 45,   /* the first version with lengths of 64 bits */
    DATE = 33       /* 1 January 1980, the earliest possible date */
};

struct record {
    uint8_t bytes[128];
    size_t size;
};

static void put(struct record *record, unsigned bytes, uint64_t value)
{
    for (unsigned i = 0; i < bytes; i++)
        record->bytes[record->size++] = (uint8_t)(value >> 8 * i);
}

static int write_record(struct zipout *zip, const struct record *record)
{
    return output_write(zip->output, record->bytes, record->size);
}

/* Flags. Readers reject a whole archive for one name that is marked as UTF-8 and is not. */
static unsigned flags_of(const char *name)
{
    const uint8_t *position = (const uint8_t *)name, *const end = position + strlen(name);
    for (size_t step = 1; position < end && step; position += step)
        step = pici_parse_utf8(position, end);
    return position == end ? LATER | UTF8 : LATER;
}

int zipout_begin(struct zipout *zip, const char *name)
{
    struct record record = {.size = 0};
    if (zip->entries == zip->capacity) {
        const size_t capacity = 2 * zip->capacity + 16;
        struct zipout_entry *const bigger = realloc(zip->entry, capacity * sizeof *bigger);
        if (!bigger)
            return tool_nomem(zip->output->name, "the list of its entries");
        zip->entry = bigger;
        zip->capacity = capacity;
    }
    char *const copy = strdup(name);
    if (!copy)
        return tool_nomem(zip->output->name, "the list of its entries");
    zip->entry[zip->entries++] = (struct zipout_entry){.name = copy, .offset = zip->output->position};
    if (strlen(name) > UINT16_MAX)
        return tool_bad(zip->output->name, "an entry has a name of %zu bytes, above the limit of %d", strlen(name),
                        UINT16_MAX);
    put(&record, 4, 0x04034b50);
    put(&record, 2, VERSION);
    put(&record, 2, flags_of(name));
    put(&record, 4, 0); /* method: stored; time */
    put(&record, 2, DATE);
    put(&record, 4, 0); /* CRC-32 */
    put(&record, 8, UINT64_MAX);
    put(&record, 2, strlen(name));
    put(&record, 2, 20);
    TRY(write_record(zip, &record));
    TRY(output_write(zip->output, name, strlen(name)));
    record.size = 0;
    put(&record, 2, 1); /* lengths of 64 bits */
    put(&record, 2, 16);
    put(&record, 8, 0);
    put(&record, 8, 0);
    return write_record(zip, &record);
}

int zipout_write(struct zipout *zip, const void *data, size_t size)
{
    struct zipout_entry *const entry = &zip->entry[zip->entries - 1];
    entry->crc = parse_crc32(entry->crc, data, size);
    entry->bytes += size;
    return output_write(zip->output, data, size);
}

int zipout_end(struct zipout *zip)
{
    const struct zipout_entry *const entry = &zip->entry[zip->entries - 1];
    struct record record = {.size = 0};
    put(&record, 4, 0x08074b50);
    put(&record, 4, entry->crc);
    put(&record, 8, entry->bytes);
    put(&record, 8, entry->bytes);
    return write_record(zip, &record);
}

static int write_entry(struct zipout *zip, const struct zipout_entry *entry)
{
    struct record record = {.size = 0};
    put(&record, 4, 0x02014b50);
    put(&record, 2, VERSION);
    put(&record, 2, VERSION);
    put(&record, 2, flags_of(entry->name));
    put(&record, 4, 0);
    put(&record, 2, DATE);
    put(&record, 4, entry->crc);
    put(&record, 8, UINT64_MAX);
    put(&record, 2, strlen(entry->name));
    put(&record, 2, 28);
    put(&record, 8, 0); /* comment, disk, attributes */
    put(&record, 2, 0);
    put(&record, 4, UINT32_MAX);
    TRY(write_record(zip, &record));
    TRY(output_write(zip->output, entry->name, strlen(entry->name)));
    record.size = 0;
    put(&record, 2, 1);
    put(&record, 2, 24);
    put(&record, 8, entry->bytes);
    put(&record, 8, entry->bytes);
    put(&record, 8, entry->offset);
    return write_record(zip, &record);
}

int zipout_finish(struct zipout *zip)
{
    const uint64_t directory = zip->output->position;
    for (size_t i = 0; i < zip->entries; i++)
        TRY(write_entry(zip, &zip->entry[i]));
    const uint64_t end = zip->output->position;
    struct record record = {.size = 0};
    put(&record, 4, 0x06064b50); /* zip64 end of the directory */
    put(&record, 8, 44);
    put(&record, 2, VERSION);
    put(&record, 2, VERSION);
    put(&record, 8, 0);
    put(&record, 8, zip->entries);
    put(&record, 8, zip->entries);
    put(&record, 8, end - directory);
    put(&record, 8, directory);
    put(&record, 4, 0x07064b50); /* locator of the zip64 end */
    put(&record, 4, 0);
    put(&record, 8, end);
    put(&record, 4, 1);
    put(&record, 4, 0x06054b50); /* end of the directory, for all readers */
    put(&record, 4, 0);
    put(&record, 4, UINT32_MAX);
    put(&record, 8, UINT64_MAX);
    put(&record, 2, 0);
    return write_record(zip, &record);
}

void zipout_free(struct zipout *zip)
{
    for (size_t i = 0; i < zip->entries; i++)
        free(zip->entry[i].name);
    free(zip->entry);
    *zip = (struct zipout){.output = NULL};
}
