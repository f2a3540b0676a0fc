/* SPDX-License-Identifier: BSD-3-Clause */
#include "input/archive_cut.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "input/looks.h"
#include "term.h"

enum {
    SCRATCH = 1 << 16,
    SPARE_LEAST = 128 << 20, /* bytes that may be deflated more than once, to find levels; */
    SPARE_FACTOR = 32        /* and so many for each byte of the file */
};

static int read_at(struct archive *a, void *buf, size_t bytes, uint64_t at)
{
    const int err = bytes ? input_read_at(a->in, buf, bytes, at) : 0;
    return err ? tool_bad_at(a->in->name, at, "cannot be read") : TOOL_OK;
}

uint8_t *archive_more_head(struct archive *a, size_t bytes)
{
    if (a->head_room - a->head_len < bytes) {
        const size_t room = a->head_len + bytes + a->head_room / 2 + SCRATCH;
        uint8_t *bigger = realloc(a->head, room);
        if (!bigger)
            return NULL;
        a->head = bigger;
        a->head_room = room;
    }
    return a->head + a->head_len;
}

int cut_part(struct cut *c, struct archive_part part)
{
    struct archive *a = c->a;
    if (a->parts == a->room) {
        const size_t room = a->room + a->room / 2 + 16;
        struct archive_part *bigger = realloc(a->part, room * sizeof *bigger);
        if (!bigger)
            return tool_nomem(a->in->name, "the list of tensors");
        a->part = bigger;
        a->room = room;
    }
    part.before = c->pending;
    a->part[a->parts++] = part;
    c->pending = 0;
    return TOOL_OK;
}

int cut_gap(struct cut *c, uint64_t to)
{
    struct archive *a = c->a;
    const uint64_t bytes = to - c->done;
    if (bytes > ARCHIVE_GAP_MOST || bytes > ARCHIVE_HEAD_MOST - a->head_len) {
        TRY(cut_part(
            c, (struct archive_part){
                   .at = c->done, .bytes = bytes, .kind = ARCHIVE_FILLER, .unnamed = true, .tensor = ARCHIVE_NONE}));
    } else if (bytes) {
        uint8_t *p = archive_more_head(a, (size_t)bytes);
        if (!p)
            return tool_nomem(a->in->name, "the bytes around the tensors");
        TRY(read_at(a, p, (size_t)bytes, c->done));
        a->head_len += (size_t)bytes;
        c->pending += bytes;
    }
    c->done = to;
    return TOOL_OK;
}

int archive_number_unnamed(struct archive *a)
{
    static const char stem[] = "zip";
    size_t plus = 0;
    uint32_t unnamed = 0;
    for (size_t i = 0; i < a->parts; i++) {
        size_t len;
        if (a->part[i].unnamed) {
            a->part[i].place = unnamed++;
            continue;
        }
        const char *name = archive_name(a, &a->part[i], &len);
        const size_t run = strncmp(name, stem, 3) == 0 ? strspn(name + 3, "+") + 1 : 0;
        plus = run > plus ? run : plus;
    }
    a->stem_len = 3 + plus;
    a->stem = malloc(a->stem_len + ARCHIVE_NUMBER_ROOM);
    if (!a->stem)
        return tool_nomem(a->in->name, "the names of tensors");
    memset(a->stem, '+', a->stem_len);
    memcpy(a->stem, stem, 3);
    return TOOL_OK;
}

int archive_same_name(const void *a, const void *b)
{
    const struct archive_name *x = a, *y = b;
    const int order = memcmp(x->p, y->p, x->len < y->len ? x->len : y->len);
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

int archive_by_name(const void *a, const void *b)
{
    const struct archive_name *x = a, *y = b;
    const int order = archive_same_name(a, b);
    return order ? order : (x->number > y->number) - (x->number < y->number);
}

int cut_open(struct cut *c, struct input *in, enum tool_type type)
{
    struct archive *const a = c->a;
    char looks[LOOKS_TEXT];
    *a = (struct archive){.in = in};
    c->effort.spare = SPARE_LEAST + SPARE_FACTOR * in->bytes;
    if (!in->regular)
        return tool_usage(in->name, "is empty or cannot be read at random: a zip file cannot come through a pipe");
    if (zip_open(&a->zip, input_read_at, in, in->bytes, &a->err))
        return TOOL_OK;
    return tool_bad_at(in->name, a->err.offset, "%s%s", a->err.what, looks_after(in, NULL, 0, type, looks));
}

/* ---- deflated entries, and those that are kept */

int cut_deflated(struct cut *c, const struct zip_entry *e, int *level, uint32_t *crc, bool *is)
{
    struct archive *a = c->a;
    if (!c->exact || e->method != ZIP_DEFLATED || (!*is && !unzip_inflates()))
        return TOOL_OK;
    c->inflated = e->bytes <= UINT64_MAX - c->inflated ? c->inflated + e->bytes : UINT64_MAX;
    if (c->inflated > limit_now(c->exact))
        return limit_refused(c->exact, a->in->name, c->inflated);
    if (!*is) {
        const struct parse_error why = a->err;
        if (!unzip_open(&a->unzip, e, input_read_at, a->in, &a->err))
            return archive_refuse(a);
        a->unzipping = true;
        const int status = archive_skip(a, a->unzip.left);
        archive_stop_unzipping(a);
        a->err = status ? a->err : why;
        return status;
    }
    if (!unzip_level(level, crc, &c->effort, e, input_read_at, a->in, &a->err))
        return archive_refuse(a);
    if (!*level)
        *is = pici_parse_fail(&a->err, 0, "zlib %s does not make the same deflated bytes again", unzip_version());
    return TOOL_OK;
}

int cut_kept(struct cut *c, uint32_t number)
{
    const struct zip_entry *e = &c->a->zip.entries[number];
    if (!c->kept++) {
        c->first = number;
        c->why = c->a->err;
    }
    c->done = e->end;
    return cut_part(c, (struct archive_part){.at = e->begin,
                                             .bytes = e->end - e->begin,
                                             .number = number,
                                             .tensor = ARCHIVE_NONE,
                                             .kind = ARCHIVE_KEPT});
}

void cut_tell_kept(const struct cut *c)
{
    char name[64];
    const struct zip_entry *e = &c->a->zip.entries[c->first];
    if (c->exact && c->kept)
        tool_warn(c->a->in->name, "%zu of %zu entries %s kept as %s: '%s': %s", c->kept, c->a->zip.count,
                  c->kept == 1 ? "is" : "are", c->kept == 1 ? "it is" : "they are, the first",
                  pici_parse_printable(name, sizeof name, e->name, e->name_len), c->why.what);
}
