/* SPDX-License-Identifier: BSD-3-Clause */
#include "input/archive_cut.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "input/looks.h"
#include "parse/torch_old.h"
#include "term.h"

enum {
    SCRATCH = 1 << 16,
    SPARE_LEAST = 128 << 20, /* bytes for deflating at several levels, to find the level: at least this */
    SPARE_FACTOR = 32        /* plus this many per byte of the file */
};

static int read_at(struct archive *archive, void *buffer, size_t bytes, uint64_t offset)
{
    const int error = bytes ? input_read_at(archive->input, buffer, bytes, offset) : 0;
    return error ? tool_bad_at(archive->input->name, offset, "cannot be read") : TOOL_OK;
}

uint8_t *archive_more_head(struct archive *archive, size_t bytes)
{
    if (archive->head_capacity - archive->head_size < bytes) {
        const size_t capacity = archive->head_size + bytes + archive->head_capacity / 2 + SCRATCH;
        uint8_t *bigger = realloc(archive->head, capacity);
        if (!bigger)
            return NULL;
        archive->head = bigger;
        archive->head_capacity = capacity;
    }
    return archive->head + archive->head_size;
}

int cut_part(struct cut *cut, struct archive_part part)
{
    struct archive *archive = cut->archive;
    if (archive->parts == archive->capacity) {
        const size_t capacity = archive->capacity + archive->capacity / 2 + 16;
        struct archive_part *bigger = realloc(archive->part, capacity * sizeof *bigger);
        if (!bigger)
            return tool_nomem(archive->input->name, "the list of tensors");
        archive->part = bigger;
        archive->capacity = capacity;
    }
    part.head_before = cut->pending;
    archive->part[archive->parts++] = part;
    cut->pending = 0;
    return TOOL_OK;
}

int cut_gap(struct cut *cut, uint64_t end)
{
    struct archive *archive = cut->archive;
    const uint64_t bytes = end - cut->done;
    if (bytes > ARCHIVE_GAP_MOST || bytes > ARCHIVE_HEAD_MOST - archive->head_size) {
        TRY(cut_part(
            cut,
            (struct archive_part){
                .offset = cut->done, .bytes = bytes, .kind = ARCHIVE_FILLER, .unnamed = true, .tensor = ARCHIVE_NONE}));
    } else if (bytes) {
        uint8_t *head_end = archive_more_head(archive, (size_t)bytes);
        if (!head_end)
            return tool_nomem(archive->input->name, "the bytes around the tensors");
        TRY(read_at(archive, head_end, (size_t)bytes, cut->done));
        archive->head_size += (size_t)bytes;
        cut->pending += bytes;
    }
    cut->done = end;
    return TOOL_OK;
}

int archive_number_unnamed(struct archive *archive)
{
    static const char stem[] = "zip";
    size_t plus = 0;
    uint32_t unnamed = 0;
    for (size_t i = 0; i < archive->parts; i++) {
        size_t size;
        if (archive->part[i].unnamed) {
            archive->part[i].unnamed_number = unnamed++;
            continue;
        }
        const char *name = archive_name(archive, &archive->part[i], &size);
        const size_t run = strncmp(name, stem, 3) == 0 ? strspn(name + 3, "+") + 1 : 0;
        plus = run > plus ? run : plus;
    }
    archive->stem_size = 3 + plus;
    archive->stem = malloc(archive->stem_size + ARCHIVE_NUMBER_ROOM);
    if (!archive->stem)
        return tool_nomem(archive->input->name, "the names of tensors");
    memset(archive->stem, '+', archive->stem_size);
    memcpy(archive->stem, stem, 3);
    return TOOL_OK;
}

int archive_same_name(const void *left, const void *right)
{
    const struct archive_name *first = left, *second = right;
    const int order = memcmp(first->text, second->text, first->size < second->size ? first->size : second->size);
    return order ? order : (first->size > second->size) - (first->size < second->size);
}

int archive_by_name(const void *left, const void *right)
{
    const struct archive_name *first = left, *second = right;
    const int order = archive_same_name(left, right);
    return order ? order : (first->number > second->number) - (first->number < second->number);
}

/* Whether the input is a file of torch.save before version 1.6. */
static bool begins_old(struct input *input)
{
    uint8_t first[16];
    return input->bytes >= sizeof first && !input_read_at(input, first, sizeof first, 0) &&
           torch_old_begins(first, sizeof first);
}

int cut_open(struct cut *cut, struct input *input, enum tool_type type)
{
    struct archive *const archive = cut->archive;
    char looks[LOOKS_TEXT];
    *archive = (struct archive){.input = input};
    cut->effort.spare = SPARE_LEAST + SPARE_FACTOR * input->bytes;
    if (!input->regular)
        return tool_usage(input->name, "is empty or not seekable: .%s cannot be read from a pipe, only from a file",
                          type == TYPE_PT ? "pt" : "npz");
    const bool is_old = type == TYPE_PT && begins_old(input);
    if ((is_old ? torch_old_open : zip_open)(&archive->zip, input_read_at, input, input->bytes, &archive->error))
        return TOOL_OK;
    return tool_bad_at(input->name, archive->error.offset, "%s%s", archive->error.what,
                       looks_after(input, NULL, 0, type, looks));
}

/* ---- deflated and kept entries */

int cut_deflated(struct cut *cut, const struct zip_entry *entry, int *level, uint32_t *crc, bool *is_readable)
{
    struct archive *archive = cut->archive;
    if (!cut->exact || entry->method != ZIP_DEFLATED || (!*is_readable && !unzip_inflates()))
        return TOOL_OK;
    cut->inflated = entry->bytes <= UINT64_MAX - cut->inflated ? cut->inflated + entry->bytes : UINT64_MAX;
    if (cut->inflated > limit_now(cut->exact))
        return limit_refused(cut->exact, archive->input->name, cut->inflated);
    if (!*is_readable) {
        const struct parse_error kept_reason = archive->error;
        if (!unzip_open(&archive->unzip, entry, input_read_at, archive->input, &archive->error))
            return archive_refuse(archive);
        archive->unzipping = true;
        const int status = archive_skip(archive, archive->unzip.remaining);
        archive_stop_unzipping(archive);
        archive->error = status ? archive->error : kept_reason;
        return status;
    }
    if (!unzip_level(level, crc, &cut->effort, entry, input_read_at, archive->input, &archive->error))
        return archive_refuse(archive);
    if (!*level)
        *is_readable =
            pici_parse_fail(&archive->error, 0, "zlib %s does not reproduce its deflated bytes", unzip_version());
    return TOOL_OK;
}

int cut_kept(struct cut *cut, uint32_t number)
{
    const struct zip_entry *entry = &cut->archive->zip.entries[number];
    if (!cut->kept++) {
        cut->first_kept = number;
        cut->kept_reason = cut->archive->error;
    }
    cut->done = entry->end;
    return cut_part(cut, (struct archive_part){.offset = entry->begin,
                                               .bytes = entry->end - entry->begin,
                                               .number = number,
                                               .tensor = ARCHIVE_NONE,
                                               .kind = ARCHIVE_KEPT});
}

void cut_tell_kept(const struct cut *cut)
{
    char name[64];
    const struct zip_entry *entry = &cut->archive->zip.entries[cut->first_kept];
    if (!cut->exact || !cut->kept)
        return;
    pici_parse_printable(name, sizeof name, entry->name, entry->name_size);
    if (cut->kept == 1)
        tool_warn(cut->archive->input->name, "1 of %zu entries is kept unchanged: '%s': %s", cut->archive->zip.count,
                  name, cut->kept_reason.what);
    else
        tool_warn(cut->archive->input->name, "%zu of %zu entries are kept as they are, the first: '%s': %s", cut->kept,
                  cut->archive->zip.count, name, cut->kept_reason.what);
}
