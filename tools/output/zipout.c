/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "output/zipout.h"

#include <stdlib.h>
#include <string.h>

#include "parse/crc32.h"
#include "parse/parse.h"
#include "tool.h"

/* The length and the CRC-32 of an entry follow its data, since they are not known before. Lengths have 64 bits. */
enum {
    LATER = 1 << 3, /* flags: what follows the data; */
    UTF8 = 1 << 11, /* the name */
    VERSION = 45,   /* that reads lengths of 64 bits */
    DATE = 33       /* 1 January 1980, the first that there is */
};

struct record {
    uint8_t p[128];
    size_t len;
};

static void put(struct record *r, unsigned bytes, uint64_t v)
{
    for (unsigned i = 0; i < bytes; i++)
        r->p[r->len++] = (uint8_t)(v >> 8 * i);
}

static int write_record(struct zipout *z, const struct record *r)
{
    return output_write(z->out, r->p, r->len);
}

/* Flags: readers refuse a whole archive for one name that is said to be UTF-8 and is not. */
static unsigned flags_of(const char *name)
{
    const uint8_t *p = (const uint8_t *)name, *const end = p + strlen(name);
    for (size_t k = 1; p < end && k; p += k)
        k = pici_parse_utf8(p, end);
    return p == end ? LATER | UTF8 : LATER;
}

int zipout_begin(struct zipout *z, const char *name)
{
    struct record r = {.len = 0};
    if (z->entries == z->room) {
        const size_t room = 2 * z->room + 16;
        struct zipout_entry *const bigger = realloc(z->entry, room * sizeof *bigger);
        if (!bigger)
            return tool_nomem(z->out->name, "the list of its entries");
        z->entry = bigger;
        z->room = room;
    }
    char *const copy = strdup(name);
    if (!copy)
        return tool_nomem(z->out->name, "the list of its entries");
    z->entry[z->entries++] = (struct zipout_entry){.name = copy, .at = z->out->at};
    if (strlen(name) > UINT16_MAX)
        return tool_bad(z->out->name, "an entry has a name of %zu bytes, and %d can be stored", strlen(name),
                        UINT16_MAX);
    put(&r, 4, 0x04034b50);
    put(&r, 2, VERSION);
    put(&r, 2, flags_of(name));
    put(&r, 4, 0); /* method: stored; time */
    put(&r, 2, DATE);
    put(&r, 4, 0); /* CRC-32 */
    put(&r, 8, UINT64_MAX);
    put(&r, 2, strlen(name));
    put(&r, 2, 20);
    TRY(write_record(z, &r));
    TRY(output_write(z->out, name, strlen(name)));
    r.len = 0;
    put(&r, 2, 1); /* lengths of 64 bits */
    put(&r, 2, 16);
    put(&r, 8, 0);
    put(&r, 8, 0);
    return write_record(z, &r);
}

int zipout_write(struct zipout *z, const void *p, size_t n)
{
    struct zipout_entry *const e = &z->entry[z->entries - 1];
    e->crc = parse_crc32(e->crc, p, n);
    e->bytes += n;
    return output_write(z->out, p, n);
}

int zipout_end(struct zipout *z)
{
    const struct zipout_entry *const e = &z->entry[z->entries - 1];
    struct record r = {.len = 0};
    put(&r, 4, 0x08074b50);
    put(&r, 4, e->crc);
    put(&r, 8, e->bytes);
    put(&r, 8, e->bytes);
    return write_record(z, &r);
}

static int write_entry(struct zipout *z, const struct zipout_entry *e)
{
    struct record r = {.len = 0};
    put(&r, 4, 0x02014b50);
    put(&r, 2, VERSION);
    put(&r, 2, VERSION);
    put(&r, 2, flags_of(e->name));
    put(&r, 4, 0);
    put(&r, 2, DATE);
    put(&r, 4, e->crc);
    put(&r, 8, UINT64_MAX);
    put(&r, 2, strlen(e->name));
    put(&r, 2, 28);
    put(&r, 8, 0); /* comment, disk, attributes */
    put(&r, 2, 0);
    put(&r, 4, UINT32_MAX);
    TRY(write_record(z, &r));
    TRY(output_write(z->out, e->name, strlen(e->name)));
    r.len = 0;
    put(&r, 2, 1);
    put(&r, 2, 24);
    put(&r, 8, e->bytes);
    put(&r, 8, e->bytes);
    put(&r, 8, e->at);
    return write_record(z, &r);
}

int zipout_finish(struct zipout *z)
{
    const uint64_t at = z->out->at;
    for (size_t i = 0; i < z->entries; i++)
        TRY(write_entry(z, &z->entry[i]));
    const uint64_t end = z->out->at;
    struct record r = {.len = 0};
    put(&r, 4, 0x06064b50); /* the end of the directory, in 64 bits, */
    put(&r, 8, 44);
    put(&r, 2, VERSION);
    put(&r, 2, VERSION);
    put(&r, 8, 0);
    put(&r, 8, z->entries);
    put(&r, 8, z->entries);
    put(&r, 8, end - at);
    put(&r, 8, at);
    put(&r, 4, 0x07064b50); /* where that is, */
    put(&r, 4, 0);
    put(&r, 8, end);
    put(&r, 4, 1);
    put(&r, 4, 0x06054b50); /* and the end that all readers look for */
    put(&r, 4, 0);
    put(&r, 4, UINT32_MAX);
    put(&r, 8, UINT64_MAX);
    put(&r, 2, 0);
    return write_record(z, &r);
}

void zipout_free(struct zipout *z)
{
    for (size_t i = 0; i < z->entries; i++)
        free(z->entry[i].name);
    free(z->entry);
    *z = (struct zipout){.out = NULL};
}
