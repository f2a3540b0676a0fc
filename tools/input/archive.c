/* SPDX-License-Identifier: BSD-3-Clause */
#include "input/archive.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "term.h"

int archive_refuse(const struct archive *archive)
{
    return tool_bad_at(archive->input->name, archive->error.offset, "%s", archive->error.what);
}

const char *archive_name(struct archive *archive, const struct archive_part *part, size_t *size)
{
    if (part->unnamed) {
        archive->stem[archive->stem_size] = 0;
        if (part->unnamed_number)
            snprintf(archive->stem + archive->stem_size, ARCHIVE_NUMBER_ROOM, ".%" PRIu32, part->unnamed_number);
        *size = strlen(archive->stem);
        return archive->stem;
    }
    return archive_title(archive, part, size);
}

const char *archive_title(struct archive *archive, const struct archive_part *part, size_t *size)
{
    if (part->kind == ARCHIVE_FILLER)
        return archive_name(archive, part, size);
    if (part->tensor != ARCHIVE_NONE) {
        *size = archive->torch.tensors[part->tensor].name_size;
        return archive->torch.tensors[part->tensor].name;
    }
    *size = archive->zip.entries[part->number].name_size;
    return archive->zip.entries[part->number].name;
}

void archive_stop_unzipping(struct archive *archive)
{
    if (archive->unzipping)
        unzip_close(&archive->unzip);
    archive->unzipping = false;
}

int archive_skip(struct archive *archive, uint64_t bytes)
{
    uint8_t scratch[4096];
    bool complete = true;
    for (size_t step; complete && bytes; bytes -= step) {
        step = bytes < sizeof scratch ? (size_t)bytes : sizeof scratch;
        complete = unzip_take(&archive->unzip, scratch, step);
    }
    return complete ? TOOL_OK : archive_refuse(archive);
}

/* ---- reading */

static int read_at(struct archive *archive, void *buffer, size_t bytes, uint64_t offset)
{
    const int error = bytes ? input_read_at(archive->input, buffer, bytes, offset) : 0;
    return error ? tool_bad_at(archive->input->name, offset, "cannot be read") : TOOL_OK;
}

bool archive_in_place(const struct archive *archive, const struct archive_part *part)
{
    return part->kind == ARCHIVE_FILLER || part->kind == ARCHIVE_KEPT || archive->zip.entries[part->number].stored;
}

/* Whether unzip reads, and so checks, the part's bytes. */
static bool is_checked(const struct archive *archive, const struct archive_part *part)
{
    if (part->kind == ARCHIVE_KEPT)
        return archive->zip.entries[part->number].stored;
    return part->kind == ARCHIVE_ARRAY || !archive_in_place(archive, part);
}

/* Checks the end of the entry, after the part has been read. */
static int end_part(struct archive *archive)
{
    const int status = archive->unzip.remaining ? archive_skip(archive, archive->unzip.remaining) : TOOL_OK;
    archive_stop_unzipping(archive);
    return status;
}

int archive_begin(struct archive *archive, const struct archive_part *part)
{
    archive_stop_unzipping(archive);
    if (!is_checked(archive, part))
        return TOOL_OK;
    if (!unzip_open(&archive->unzip, &archive->zip.entries[part->number], input_read_at, archive->input,
                    &archive->error))
        return archive_refuse(archive);
    archive->unzipping = true;
    TRY(archive_skip(archive, part->header));
    return part->bytes ? TOOL_OK : end_part(archive);
}

int archive_take(struct archive *archive, const struct archive_part *part, void *buffer, size_t bytes,
                 uint64_t remaining)
{
    if (!archive->unzipping)
        return read_at(archive, buffer, bytes, part->offset + (part->bytes - remaining));
    if (!unzip_take(&archive->unzip, buffer, bytes))
        return archive_refuse(archive);
    return bytes == remaining ? end_part(archive) : TOOL_OK;
}

void archive_close(struct archive *archive)
{
    archive_stop_unzipping(archive);
    zip_free(&archive->zip);
    torch_free(&archive->torch);
    free(archive->pickle);
    free(archive->part_of);
    free(archive->head);
    free(archive->part);
    free(archive->stem);
    free(archive->renamed);
    free(archive->views);
    *archive = (struct archive){.input = archive->input};
}
