/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "reading.h"

#include <errno.h>
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

/* A pici_read_at_fn. */
static int read_at(void *ctx, void *p, size_t n, uint64_t offset)
{
    struct input *in = ctx;
    in->at = offset;
    while (n) {
        ssize_t k = pread(in->fd, p, n, (off_t)offset);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) /* 0: the file has become shorter since it was opened */
            return in->err = k < 0 ? errno : EIO;
        p = (char *)p + k;
        n -= (size_t)k;
        offset += (uint64_t)k;
    }
    return 0;
}

int reading_open(struct reading *r, struct input *in, int threads, bool at_random)
{
    *r = (struct reading){.in = in, .threads = tool_threads(threads), .at_random = at_random && in->regular};
    struct pici_reader_opts opts = PICI_READER_OPTS_INIT;
    opts.threads = threads;
    enum pici_status s = r->at_random ? pici_reader_open_at(&r->reader, read_at, in, in->bytes, &opts)
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

/* Whole chunks, as many as there are threads, but for the first and the last of a range. */
int reading_range(struct reading *r, const struct pici_tensor_info *t, uint64_t first, uint64_t last, uint64_t *n)
{
    size_t width = pici_dtype_width(t->dtype), chunk = t->chunk_elements * width;
    size_t chunks = PIECE_MOST / chunk;
    if (chunks > r->threads)
        chunks = r->threads;
    if (chunks == 0)
        chunks = 1;
    uint64_t most = (uint64_t)chunks * t->chunk_elements - first % t->chunk_elements;
    *n = last - first < most ? last - first : most;
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
    enum pici_status s = r->at_random ? pici_reader_read_range(r->reader, t->index, first, *n, r->piece)
                                      : pici_reader_read(r->reader, r->piece, *n);
    return s ? reading_failed(r, s) : TOOL_OK;
}

int reading_piece(struct reading *r, const struct pici_tensor_info *t, uint64_t *done, uint64_t *n)
{
    int status = reading_range(r, t, *done, t->count, n);
    *done += *n;
    return status;
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

void reading_close(struct reading *r)
{
    pici_reader_close(r->reader);
    free(r->piece);
    r->reader = NULL;
    r->piece = NULL;
}
