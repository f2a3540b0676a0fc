/* SPDX-License-Identifier: BSD-3-Clause */
#include "input/reading.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "input/looks.h"
#include "tool.h"

enum { PIECE_MOST = 256 << 20 }; /* bytes, unless one chunk is longer */

/* The first bytes of every .pici file: its magic, and version 1. */
static const uint8_t file_header[16] = {0x89, 'P', 'I', 'C', 'I', '\r', '\n', 0x1a, 1};

int reading_kind(struct input *in, const char *path, enum reading_kind *kind)
{
    uint8_t first[8];
    size_t got;
    TRY(input_peek(in, first, sizeof first, &got));
    if (got == 8 && memcmp(first, file_header, 8) == 0)
        *kind = READING_FILE;
    else if (got >= 4 && memcmp(first, "PICI", 4) == 0)
        *kind = READING_BLOCK;
    else
        *kind = tool_has_extension(path, ".pici")  ? READING_FILE
                : tool_has_extension(path, ".blk") ? READING_BLOCK
                                                   : READING_OTHER;
    return TOOL_OK;
}

/* Prints the reader's error, and its consequence: so. */
static int say(const struct reading *r, enum pici_status s, const char *so)
{
    bool of_the_bytes = s == PICI_E_CORRUPT || s == PICI_E_CHECKSUM || s == PICI_E_VERSION || s == PICI_E_UNSUPPORTED;
    if (s == PICI_E_IO && r->in->err && !r->keep_going)
        return tool_bad_at(r->in->name, r->in->at, "%s", strerror(r->in->err));
    if (!r->reader)
        return tool_bad(r->in->name, "%s", pici_strerror(s));
    const char *words = pici_reader_error(r->reader);
    if (!*words) /* of a failure that is not the reader's own */
        words = pici_strerror(s);
    uint64_t offset = pici_reader_error_offset(r->reader);
    if (!of_the_bytes && !(s == PICI_E_IO && r->keep_going))
        return tool_bad(r->in->name, "%s", words);
    /* The reader puts the offset inside its message; errors of the tool have it in front. */
    char midst[48];
    snprintf(midst, sizeof midst, " at byte %" PRIu64 ": ", offset);
    const char *at = strstr(words, midst);
    if (!at)
        return tool_bad_at(r->in->name, offset, "%s%s", words, so);
    return tool_bad_at(r->in->name, offset, "%.*s: %s%s", (int)(at - words), words, at + strlen(midst), so);
}

int reading_failed(const struct reading *r, enum pici_status s)
{
    return say(r, s, "");
}

/* Whether to continue after the error s; then lose reports it. */
static bool goes_on(const struct reading *r, enum pici_status s)
{
    return r->keep_going && s != PICI_E_NOMEM && s != PICI_E_ARG;
}

static void lose(struct reading *r, enum pici_status s, const char *so)
{
    say(r, s, so);
    r->lost++;
}

int reading_open(struct reading *r, struct input *in, int threads, bool at_random)
{
    *r = (struct reading){.in = in, .threads = tool_threads(threads), .at_random = at_random && in->regular};
    TRY(looks_refuse(in));
    uint8_t first[INPUT_PEEK];
    char text[LOOKS_TEXT];
    size_t got = 0;
    if (!in->regular)
        TRY(input_peek(in, first, sizeof first, &got));
    struct pici_reader_opts opts = PICI_READER_OPTS_INIT;
    opts.threads = threads;
    enum pici_status s = r->at_random ? pici_reader_open_at(&r->reader, input_read_at, in, in->bytes, &opts)
                                      : pici_reader_open_stream(&r->reader, input_take, in, &opts);
    return s ? say(r, s, looks_after(in, first, got, TYPE_UNSET, text)) : TOOL_OK;
}

/* Repairs the file header in p, the n bytes of the file at offset. Its bytes are always the same, so a damaged header
 * loses nothing. */
static void mend(uint8_t *p, size_t n, uint64_t offset)
{
    for (uint64_t i = offset; i < sizeof file_header && i - offset < n; i++)
        p[i - offset] = file_header[i];
}

static int mended_at(void *ctx, void *p, size_t n, uint64_t offset)
{
    int err = input_read_at(ctx, p, n, offset);
    if (!err)
        mend(p, n, offset);
    return err;
}

static int mended_take(void *ctx, void *p, size_t cap, size_t *got)
{
    const uint64_t offset = ((struct input *)ctx)->at;
    int err = input_take(ctx, p, cap, got);
    if (!err)
        mend(p, *got, offset);
    return err;
}

int reading_salvage(struct reading *r, struct input *in, int threads, uint64_t fill_most)
{
    uint8_t header[sizeof file_header];
    size_t got;
    *r = (struct reading){.in = in, .keep_going = true, .fill_most = fill_most};
    TRY(input_peek(in, header, sizeof header, &got));
    if (got < sizeof header || memcmp(header, file_header, got) != 0) {
        tool_bad_at(in->name, 0, "the file header is not that of a .pici file of version 1; read as one nevertheless");
        r->lost++;
    }
    struct pici_reader_opts opts = PICI_READER_OPTS_INIT;
    opts.threads = threads;
    enum pici_status s = PICI_E_CORRUPT;
    if (in->regular) {
        s = pici_reader_open_at(&r->reader, mended_at, in, in->bytes, &opts);
        if (!s || !goes_on(r, s)) {
            r->at_random = true;
            r->threads = tool_threads(threads);
            return s ? reading_failed(r, s) : TOOL_OK;
        }
        pici_reader_close(r->reader);
        in->at = 0;
    }
    r->threads = 1; /* one chunk at a time, so that all chunks before an error are read */
    s = pici_reader_open_stream(&r->reader, mended_take, in, NULL);
    return s ? reading_failed(r, s) : TOOL_OK;
}

/* Whether an error at offset is in the index or the trailer, which follow all data. If the header of the index is
 * damaged, the trailer still says where the index begins. */
static bool of_the_end(const struct reading *r, uint64_t offset)
{
    enum { TRAILER = 32 };
    uint8_t t[TRAILER];
    uint64_t index = 0;
    const char *words = pici_reader_error(r->reader);
    if (strncmp(words, "the index", 9) == 0 || strncmp(words, "the trailer", 11) == 0)
        return true;
    if (!r->in->regular || r->in->bytes < TRAILER || input_read_at(r->in, t, TRAILER, r->in->bytes - TRAILER))
        return false;
    for (int i = 8; i-- > 0;)
        index = index << 8 | t[i];
    return index == offset && memcmp(t + 24, "PICI.END", 8) == 0;
}

int reading_next(struct reading *r, struct pici_tensor_info *t, bool *more)
{
    int yes = 0;
    *t = (struct pici_tensor_info)PICI_TENSOR_INFO_INIT;
    *more = false;
    if (r->broke_off)
        return TOOL_OK;
    enum pici_status s = pici_reader_next(r->reader, t, &yes);
    *more = !s && yes;
    if (!s || !goes_on(r, s))
        return s ? reading_failed(r, s) : TOOL_OK;
    bool none = of_the_end(r, pici_reader_error_offset(r->reader));
    lose(r, s, none ? "; no elements are lost" : "; all tensors that come after it are lost");
    r->broke_off = true;
    return TOOL_OK;
}

static enum pici_status take(struct reading *r, const struct pici_tensor_info *t, uint64_t first, uint64_t n, void *dst)
{
    return r->at_random ? pici_reader_read_range(r->reader, t->index, first, n, dst)
                        : pici_reader_read(r->reader, dst, n);
}

/* Reads elements [first, first + n), each chunk separately, with zeros for lost chunks. */
static int take_what_is_there(struct reading *r, const struct pici_tensor_info *t, uint64_t first, uint64_t n)
{
    const size_t width = pici_dtype_width(t->dtype);
    for (uint64_t done = 0, k; done < n; done += k) {
        uint8_t *to = (uint8_t *)r->piece + (size_t)done * width;
        k = t->chunk_elements - (first + done) % t->chunk_elements;
        k = k < n - done ? k : n - done;
        enum pici_status s = take(r, t, first + done, k, to);
        if (s && !goes_on(r, s))
            return reading_failed(r, s);
        if (s) {
            lose(r, s, "; set to zero");
            memset(to, 0, (size_t)k * width);
        }
    }
    return TOOL_OK;
}

/* Handles the error s of a forward reader at element first: the rest of the tensor is zeros, or is left out if it is
 * longer than fill_most. */
static int break_off(struct reading *r, const struct pici_tensor_info *t, uint64_t first, uint64_t *n,
                     enum pici_status s)
{
    char so[160];
    const size_t width = pici_dtype_width(t->dtype);
    bool too_many = t->count - first > r->fill_most / width;
    snprintf(so, sizeof so, "; elements %" PRIu64 " to %" PRIu64 " are %s, all tensors that come after them are lost",
             first, t->count - 1, too_many ? "left out, more than --max-size" : "set to zero");
    lose(r, s, so);
    r->broke_off = true;
    if (too_many)
        *n = 0;
    memset(r->piece, 0, (size_t)*n * width);
    return TOOL_OK;
}

/* Reads whole chunks, one for each thread, except at both ends of a range. */
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
            return tool_nomem(r->in->name, "the elements of the chunks");
    }
    if (r->broke_off) {
        memset(r->piece, 0, need);
        return TOOL_OK;
    }
    enum pici_status s = take(r, t, first, *n, r->piece);
    if (!s || !goes_on(r, s))
        return s ? reading_failed(r, s) : TOOL_OK;
    return r->at_random ? take_what_is_there(r, t, first, *n) : break_off(r, t, first, n, s);
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
    if (!s || !goes_on(r, s))
        return s ? reading_failed(r, s) : TOOL_OK;
    lose(r, s, i == PICI_FILE ? "; what stood before the first tensor is lost" : "; taken as little-endian");
    *a = (struct pici_attr){NULL, NULL, 0};
    return TOOL_OK;
}

int reading_has_attrs(struct reading *r, uint64_t i, const char *so, bool *has)
{
    struct pici_attr a;
    enum pici_status s = pici_reader_attr(r->reader, i, "", &a);
    *has = !s;
    if (!s || !goes_on(r, s))
        return s ? reading_failed(r, s) : TOOL_OK;
    lose(r, s, so);
    return TOOL_OK;
}

int reading_attr_is(struct reading *r, uint64_t i, const char *key, const char *value, bool *is)
{
    struct pici_attr a;
    *is = false;
    TRY(reading_attr(r, i, key, &a));
    *is = a.key && a.len == strlen(value) && memcmp(a.value, value, a.len) == 0;
    return TOOL_OK;
}

int reading_is_delta(const struct reading *r, bool *is)
{
    enum pici_status s = pici_delta_is(r->reader, is);
    if (!s || !goes_on(r, s))
        return s ? reading_failed(r, s) : TOOL_OK;
    *is = false; /* the caller that needs the attributes reports that they are lost */
    return TOOL_OK;
}

int reading_delta(const struct reading *r, struct delta *d)
{
    char why[PICI_WHY_BYTES];
    enum pici_status s = pici_delta_open(d, r->reader, why);
    return !s ? TOOL_OK : why[0] ? tool_bad(r->in->name, "%s", why) : reading_failed(r, s);
}

int reading_view(struct reading *r, uint64_t i, struct pici_view *v)
{
    *v = (struct pici_view)PICI_VIEW_INIT;
    const enum pici_status s = pici_reader_view(r->reader, i, v);
    return s ? reading_failed(r, s) : TOOL_OK;
}

int reading_views(struct reading *r, const struct pici_tensor_info *t, struct reading_views *of)
{
    struct pici_view v;
    uint64_t views;
    int unnamed = 0;
    enum pici_status s = pici_reader_view_count(r->reader, &views);
    if (!s)
        s = pici_reader_is_unnamed(r->reader, t->name, t->name_len, &unnamed);
    if (!s && !unnamed) { /* a name that a view has too means the view */
        v = (struct pici_view)PICI_VIEW_INIT;
        s = pici_reader_find_view(r->reader, t->name, t->name_len, &v, &unnamed);
        s = s == PICI_E_ARG ? PICI_OK : s; /* forward: of a tensor that comes later */
    }
    if (s)
        return reading_failed(r, s);
    *of = (struct reading_views){of->first + of->n, 0, unnamed != 0};
    for (; of->first + of->n < views; of->n++) {
        v = (struct pici_view)PICI_VIEW_INIT;
        s = pici_reader_view(r->reader, of->first + of->n, &v);
        if (s == PICI_E_ARG) /* forward: of a tensor that comes later */
            break;
        if (s)
            return reading_failed(r, s);
        if (v.tensor < t->index) { /* of a tensor that was not looked at */
            of->first++;
            of->n--;
        } else if (v.tensor > t->index) {
            break;
        }
    }
    return TOOL_OK;
}

void reading_close(struct reading *r)
{
    pici_reader_close(r->reader);
    free(r->piece);
    r->reader = NULL;
    r->piece = NULL;
}
