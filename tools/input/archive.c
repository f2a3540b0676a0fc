/* SPDX-License-Identifier: BSD-3-Clause */
#include "input/archive.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "term.h"

int archive_refuse(const struct archive *a)
{
    return tool_bad_at(a->in->name, a->err.offset, "%s", a->err.what);
}

const char *archive_name(struct archive *a, const struct archive_part *p, size_t *len)
{
    if (p->unnamed) {
        a->stem[a->stem_len] = 0;
        if (p->place)
            snprintf(a->stem + a->stem_len, ARCHIVE_NUMBER_ROOM, ".%" PRIu32, p->place);
        *len = strlen(a->stem);
        return a->stem;
    }
    return archive_title(a, p, len);
}

const char *archive_title(struct archive *a, const struct archive_part *p, size_t *len)
{
    if (p->kind == ARCHIVE_FILLER)
        return archive_name(a, p, len);
    if (p->tensor != ARCHIVE_NONE) {
        *len = a->torch.tensors[p->tensor].name_len;
        return a->torch.tensors[p->tensor].name;
    }
    *len = a->zip.entries[p->number].name_len;
    return a->zip.entries[p->number].name;
}

void archive_stop_unzipping(struct archive *a)
{
    if (a->unzipping)
        unzip_close(&a->unzip);
    a->unzipping = false;
}

int archive_skip(struct archive *a, uint64_t bytes)
{
    uint8_t scratch[4096];
    bool ok = true;
    for (size_t n; ok && bytes; bytes -= n) {
        n = bytes < sizeof scratch ? (size_t)bytes : sizeof scratch;
        ok = unzip_take(&a->unzip, scratch, n);
    }
    return ok ? TOOL_OK : archive_refuse(a);
}

/* ---- reading */

static int read_at(struct archive *a, void *buf, size_t bytes, uint64_t at)
{
    const int err = bytes ? input_read_at(a->in, buf, bytes, at) : 0;
    return err ? tool_bad_at(a->in->name, at, "cannot be read") : TOOL_OK;
}

/* Whether a part's bytes are read through unzip, which checks them. */
static bool is_checked(const struct archive *a, const struct archive_part *p)
{
    const bool filler = p->kind == ARCHIVE_FILLER, stored = !filler && a->zip.entries[p->number].stored;
    return p->kind == ARCHIVE_ARRAY || (p->kind == ARCHIVE_KEPT && stored) || (p->kind == ARCHIVE_STORAGE && !stored);
}

/* Checks the entry's end, once the part has been taken. */
static int end_part(struct archive *a)
{
    const int status = a->unzip.left ? archive_skip(a, a->unzip.left) : TOOL_OK;
    archive_stop_unzipping(a);
    return status;
}

int archive_begin(struct archive *a, const struct archive_part *p)
{
    archive_stop_unzipping(a);
    if (!is_checked(a, p))
        return TOOL_OK;
    if (!unzip_open(&a->unzip, &a->zip.entries[p->number], input_read_at, a->in, &a->err))
        return archive_refuse(a);
    a->unzipping = true;
    TRY(archive_skip(a, p->header));
    return p->bytes ? TOOL_OK : end_part(a);
}

int archive_take(struct archive *a, const struct archive_part *p, void *buf, size_t bytes, uint64_t left)
{
    if (!a->unzipping)
        return read_at(a, buf, bytes, p->at + (p->bytes - left));
    if (!unzip_take(&a->unzip, buf, bytes))
        return archive_refuse(a);
    return bytes == left ? end_part(a) : TOOL_OK;
}

void archive_close(struct archive *a)
{
    archive_stop_unzipping(a);
    zip_free(&a->zip);
    torch_free(&a->torch);
    free(a->pickle);
    free(a->part_of);
    free(a->head);
    free(a->part);
    free(a->stem);
    free(a->renamed);
    free(a->views);
    *a = (struct archive){.in = a->in};
}
