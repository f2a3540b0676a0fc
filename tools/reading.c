/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "reading.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

enum { PIECE_MOST = 256 << 20 }; /* bytes, unless one chunk is longer */

static bool ends_in(const char *s, const char *end)
{
    size_t len = strlen(s), tail = strlen(end);
    return len > tail && strcmp(s + len - tail, end) == 0;
}

int reading_kind(struct input *in, const char *path, enum reading_kind *kind)
{
    static const uint8_t magic[8] = {0x89, 'P', 'I', 'C', 'I', '\r', '\n', 0x1a};
    uint8_t first[8];
    size_t got;
    int status = input_peek(in, first, sizeof first, &got);
    if (status)
        return status;
    if (got == 8 && memcmp(first, magic, 8) == 0)
        *kind = READING_FILE;
    else if (got >= 4 && memcmp(first, "PICI", 4) == 0)
        *kind = READING_BLOCK;
    else
        *kind = ends_in(path, ".pici") ? READING_FILE : ends_in(path, ".blk") ? READING_BLOCK : READING_OTHER;
    return TOOL_OK;
}

int reading_failed(const struct reading *r, enum pici_status s)
{
    if (s == PICI_E_IO && r->in->err)
        return tool_bad_at(r->in->name, r->in->at, "%s", strerror(r->in->err));
    if (!r->reader)
        return tool_bad(r->in->name, "%s", pici_strerror(s));
    const char *words = pici_reader_error(r->reader);
    uint64_t offset = pici_reader_error_offset(r->reader);
    if (s != PICI_E_CORRUPT && s != PICI_E_CHECKSUM && s != PICI_E_VERSION && s != PICI_E_UNSUPPORTED)
        return tool_bad(r->in->name, "%s", words);
    /* The words have the offset in their midst; here it stands first, as in every error of the tool. */
    char midst[48];
    snprintf(midst, sizeof midst, " at byte %" PRIu64 ": ", offset);
    const char *at = strstr(words, midst);
    if (!at)
        return tool_bad_at(r->in->name, offset, "%s", words);
    return tool_bad_at(r->in->name, offset, "%.*s: %s", (int)(at - words), words, at + strlen(midst));
}

int reading_open(struct reading *r, struct input *in, int threads, bool at_random)
{
    long cores = threads ? threads : sysconf(_SC_NPROCESSORS_ONLN);
    *r = (struct reading){.in = in, .threads = cores > 0 ? (int)cores : 1};
    struct pici_reader_opts opts = PICI_READER_OPTS_INIT;
    opts.threads = threads;
    enum pici_status s = at_random && in->regular ? pici_reader_open_at(&r->reader, input_read_at, in, in->bytes, &opts)
                                                  : pici_reader_open_stream(&r->reader, input_take, in, &opts);
    return s ? reading_failed(r, s) : TOOL_OK;
}

int reading_next(struct reading *r, struct pici_tensor_info *t, bool *more)
{
    int yes = 0;
    *t = (struct pici_tensor_info)PICI_TENSOR_INFO_INIT;
    enum pici_status s = pici_reader_next(r->reader, t, &yes);
    *more = yes;
    return s ? reading_failed(r, s) : TOOL_OK;
}

int reading_piece(struct reading *r, const struct pici_tensor_info *t, uint64_t *done, uint64_t *n)
{
    size_t width = pici_dtype_width(t->dtype), chunk = t->chunk_elements * width;
    size_t chunks = PIECE_MOST / chunk;
    if (chunks > (size_t)r->threads)
        chunks = (size_t)r->threads;
    if (chunks == 0)
        chunks = 1;
    uint64_t most = (uint64_t)chunks * t->chunk_elements;
    *n = t->count - *done < most ? t->count - *done : most;
    if (*n == 0)
        return TOOL_OK;
    size_t need = (size_t)*n * width;
    if (need > r->piece_cap) {
        free(r->piece);
        r->piece = malloc(need);
        r->piece_cap = r->piece ? need : 0;
        if (!r->piece)
            return tool_nomem(r->in->name);
    }
    enum pici_status s = pici_reader_read(r->reader, r->piece, *n);
    *done += *n;
    return s ? reading_failed(r, s) : TOOL_OK;
}

int reading_attr(struct reading *r, uint64_t i, const char *key, struct pici_attr *a)
{
    enum pici_status s = pici_reader_attr(r->reader, i, key, a);
    return s ? reading_failed(r, s) : TOOL_OK;
}

int reading_attr_is(struct reading *r, uint64_t i, const char *key, const char *value, bool *is)
{
    struct pici_attr a;
    int status = reading_attr(r, i, key, &a);
    *is = status == TOOL_OK && a.key && a.len == strlen(value) && memcmp(a.value, value, a.len) == 0;
    return status;
}

int reading_is_delta(const struct reading *r, bool *is)
{
    enum pici_status s = delta_is(r->reader, is);
    return s ? reading_failed(r, s) : TOOL_OK;
}

int reading_delta(const struct reading *r, struct delta *d)
{
    struct parse_error err;
    enum pici_status s = delta_open(d, r->reader, &err);
    return !s ? TOOL_OK : err.what[0] ? tool_bad(r->in->name, "%s", err.what) : reading_failed(r, s);
}

void reading_close(struct reading *r)
{
    pici_reader_close(r->reader);
    free(r->piece);
    r->reader = NULL;
    r->piece = NULL;
}
