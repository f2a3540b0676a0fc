/* SPDX-License-Identifier: BSD-3-Clause */
#include "parse/unzip.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "parse/crc32.h"

#ifdef PICI_HAVE_ZLIB
#include <zlib.h>
#endif

enum {
    BUFFER = 32 << 10,      /* deflated bytes at a time */
    MOST_AT_ONCE = 1 << 30, /* bytes for zlib at a time; its lengths have 32 bits */
    RATIO_MOST = 1032       /* the most bytes that a byte of deflated data can make */
};

bool unzip_inflates(void)
{
#ifdef PICI_HAVE_ZLIB
    return true;
#else
    return false;
#endif
}

static bool fail(const struct unzip *unzip, const char *what)
{
    char name[64];
    return pici_parse_fail(unzip->error, unzip->entry->begin, "entry '%s' %s",
                           pici_parse_printable(name, sizeof name, unzip->entry->name, unzip->entry->name_size), what);
}

/* Checks the CRC-32, after all bytes have been taken. */
static bool check_crc(struct unzip *unzip)
{
    unzip->ended = true;
    return unzip->crc == unzip->entry->crc || fail(unzip, "does not have the CRC-32 in the directory");
}

static bool take_stored(struct unzip *unzip, void *buffer, size_t size)
{
    if (size && unzip->read_at(unzip->context, buffer, size, unzip->position))
        return pici_parse_fail(unzip->error, unzip->position, "cannot be read");
    unzip->position += size;
    return true;
}

#ifdef PICI_HAVE_ZLIB

struct inflating {
    z_stream stream;
    uint8_t input[BUFFER];
};

const char *unzip_version(void)
{
    return zlibVersion();
}

static bool begin_inflating(struct unzip *unzip)
{
    const uint64_t packed = unzip->entry->end - unzip->entry->begin;
    if (unzip->entry->bytes / RATIO_MOST > packed)
        return fail(unzip, "claims more bytes than its deflated data can hold");
    unzip->inflating = calloc(1, sizeof *unzip->inflating);
    if (unzip->inflating && inflateInit2(&unzip->inflating->stream, -MAX_WBITS) == Z_OK)
        return true;
    free(unzip->inflating);
    return pici_parse_fail(unzip->error, unzip->entry->begin, "out of memory for inflating");
}

static void end_inflating(struct unzip *unzip)
{
    if (unzip->inflating)
        inflateEnd(&unzip->inflating->stream);
    free(unzip->inflating);
}

/* Inflates up to *size bytes, at most MOST_AT_ONCE. Sets *size to the number of bytes, fewer only at the end of the
 * data. */
static bool inflate_some(struct unzip *unzip, uint8_t *target, size_t *size)
{
    struct inflating *inflating = unzip->inflating;
    inflating->stream.next_out = target;
    inflating->stream.avail_out = (uInt)*size;
    while (inflating->stream.avail_out && !unzip->ended) {
        const uint64_t remaining = unzip->entry->end - unzip->position;
        if (!inflating->stream.avail_in && remaining) {
            const size_t want = remaining < BUFFER ? (size_t)remaining : BUFFER;
            if (unzip->read_at(unzip->context, inflating->input, want, unzip->position))
                return pici_parse_fail(unzip->error, unzip->position, "cannot be read");
            unzip->position += want;
            inflating->stream.next_in = inflating->input;
            inflating->stream.avail_in = (uInt)want;
        }
        const int result = inflate(&inflating->stream, Z_NO_FLUSH);
        unzip->ended = result == Z_STREAM_END;
        if (result == Z_MEM_ERROR)
            return pici_parse_fail(unzip->error, unzip->entry->begin, "out of memory for inflating");
        if (result != Z_OK && result != Z_STREAM_END)
            return fail(unzip, result == Z_BUF_ERROR ? "has truncated deflated data" : "has damaged deflated data");
    }
    *size -= inflating->stream.avail_out;
    return true;
}

static bool take_inflated(struct unzip *unzip, void *buffer, size_t size)
{
    uint8_t *target = buffer;
    while (size) {
        const size_t want = size < MOST_AT_ONCE ? size : MOST_AT_ONCE;
        size_t received = want;
        if (!inflate_some(unzip, target, &received))
            return false;
        if (received < want)
            return fail(unzip, "inflates to fewer bytes than the directory says");
        target += received;
        size -= received;
    }
    return true;
}

static bool end_inflated(struct unzip *unzip)
{
    uint8_t more;
    size_t size = 1;
    if (!inflate_some(unzip, &more, &size))
        return false;
    if (size)
        return fail(unzip, "inflates to more bytes than the directory says");
    return (!unzip->inflating->stream.avail_in && unzip->position == unzip->entry->end) ||
           fail(unzip, "has bytes after its deflated data");
}

struct deflater {
    z_stream stream;
    uint64_t bytes;
    uint32_t crc;
    uint8_t output[BUFFER];
};

struct deflater *deflater_new(int level)
{
    struct deflater *deflater = calloc(1, sizeof *deflater);
    if (deflater && deflateInit2(&deflater->stream, level, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK)
        return deflater;
    free(deflater);
    return NULL;
}

int deflater_put(struct deflater *deflater, const void *bytes, size_t size, bool last, pici_write_fn put, void *context)
{
    const uint8_t *next = bytes;
    for (bool has_more = true; has_more;) {
        const size_t now = size < MOST_AT_ONCE ? size : MOST_AT_ONCE;
        size -= now;
        deflater->stream.next_in = (Bytef *)next;
        deflater->stream.avail_in = (uInt)now;
        next += now;
        do {
            deflater->stream.next_out = deflater->output;
            deflater->stream.avail_out = BUFFER;
            deflate(&deflater->stream, last && !size ? Z_FINISH : Z_NO_FLUSH); /* cannot fail here */
            const size_t received = BUFFER - deflater->stream.avail_out;
            deflater->bytes += received;
            deflater->crc = parse_crc32(deflater->crc, deflater->output, received);
            const int error = received ? put(context, deflater->output, received) : 0;
            if (error)
                return error;
        } while (!deflater->stream.avail_out);
        has_more = size != 0;
    }
    return 0;
}

uint64_t deflater_bytes(const struct deflater *deflater)
{
    return deflater->bytes;
}

uint32_t deflater_crc(const struct deflater *deflater)
{
    return deflater->crc;
}

void deflater_free(struct deflater *deflater)
{
    if (deflater)
        deflateEnd(&deflater->stream);
    free(deflater);
}

#else

struct inflating {
    char none;
};

const char *unzip_version(void)
{
    return "";
}

static bool begin_inflating(struct unzip *unzip)
{
    return fail(unzip, "is deflated, and this build has no zlib to inflate it");
}

static void end_inflating(struct unzip *unzip)
{
    (void)unzip;
}

static bool take_inflated(struct unzip *unzip, void *buffer, size_t size)
{
    (void)buffer, (void)size;
    return fail(unzip, "is deflated");
}

static bool end_inflated(struct unzip *unzip)
{
    return fail(unzip, "is deflated");
}

struct deflater *deflater_new(int level)
{
    (void)level;
    return NULL;
}

int deflater_put(struct deflater *deflater, const void *bytes, size_t size, bool last, pici_write_fn put, void *context)
{
    (void)deflater, (void)bytes, (void)size, (void)last, (void)put, (void)context;
    return 0;
}

uint64_t deflater_bytes(const struct deflater *deflater)
{
    (void)deflater;
    return 0;
}

uint32_t deflater_crc(const struct deflater *deflater)
{
    (void)deflater;
    return 0;
}

void deflater_free(struct deflater *deflater)
{
    (void)deflater;
}

#endif

bool unzip_open(struct unzip *unzip, const struct zip_entry *entry, pici_read_at_fn read_at, void *context,
                struct parse_error *error)
{
    *unzip = (struct unzip){.entry = entry,
                            .read_at = read_at,
                            .context = context,
                            .error = error,
                            .position = entry->begin,
                            .remaining = entry->bytes};
    if (entry->method == ZIP_DEFLATED)
        return begin_inflating(unzip);
    return entry->method == ZIP_STORED || fail(unzip, "is compressed by an unsupported method");
}

bool unzip_take(struct unzip *unzip, void *buffer, size_t size)
{
    if (!(unzip->inflating ? take_inflated(unzip, buffer, size) : take_stored(unzip, buffer, size)))
        return false;
    unzip->crc = size ? parse_crc32(unzip->crc, buffer, size) : unzip->crc;
    unzip->remaining -= size;
    if (unzip->remaining)
        return true;
    return (!unzip->inflating || end_inflated(unzip)) && check_crc(unzip);
}

void unzip_close(struct unzip *unzip)
{
    end_inflating(unzip);
    unzip->inflating = NULL;
}

/* ---- finding the level */

/* The entry's data, to compare deflated bytes with. */
struct likeness {
    const struct zip_entry *entry;
    pici_read_at_fn read_at;
    void *context;
    uint64_t position;
    bool failed; /* read_at has failed */
    struct deflater *deflater;
    uint8_t original[BUFFER];
};

enum { LIKE_DIFFERS = 1 };

/* A pici_write_fn that compares the bytes with the entry's. */
static int compare(void *context, const void *bytes, size_t size)
{
    struct likeness *likeness = context;
    if (size > likeness->entry->end - likeness->position)
        return LIKE_DIFFERS;
    likeness->failed = likeness->read_at(likeness->context, likeness->original, size, likeness->position) != 0;
    likeness->position += size;
    return likeness->failed || memcmp(likeness->original, bytes, size) != 0 ? LIKE_DIFFERS : 0;
}

static void drop(struct likeness **likeness)
{
    if (*likeness)
        deflater_free((*likeness)->deflater);
    free(*likeness);
    *likeness = NULL;
}

/* Drops all levels but the likeliest one besides zlib's default: 9, else 1, else the lowest. */
static void drop_most(struct likeness *like[UNZIP_LEVELS + 1])
{
    int kept = like[9] ? 9 : 1;
    while (kept < UNZIP_LEVELS && !like[kept])
        kept++;
    for (int level = 1; level <= UNZIP_LEVELS; level++)
        if (level != kept)
            drop(&like[level]);
}

/* Deflates `size` bytes at each remaining level. *remaining: the number of levels that still match. */
static bool put_all(struct likeness *like[UNZIP_LEVELS + 1], struct unzip_effort *effort, const uint8_t *bytes,
                    size_t size, bool last, int *remaining, struct parse_error *error)
{
    int tried = 0;
    *remaining = 0;
    for (int level = 1; level <= UNZIP_LEVELS; level++)
        tried += like[level] != NULL;
    const uint64_t more = tried > 1 ? (uint64_t)(tried - 1) * size : 0;
    if (more > effort->spare)
        drop_most(like);
    else
        effort->spare -= more;
    for (int level = 1; level <= UNZIP_LEVELS; level++) {
        if (!like[level])
            continue;
        effort->deflated += size;
        if (deflater_put(like[level]->deflater, bytes, size, last, compare, like[level])) {
            if (like[level]->failed)
                return pici_parse_fail(error, like[level]->position, "cannot be read");
            drop(&like[level]);
        }
        *remaining += like[level] != NULL;
    }
    return true;
}

/* Inflates the entry, and deflates it at each level whose bit is set in `levels`, until no level matches; if `whole`,
 * to its end. *level: the lowest level that matches to the end, or 0; *crc: the CRC-32 of its output. */
static bool try_levels(int *level, uint32_t *crc, struct unzip_effort *effort, unsigned levels, bool whole,
                       const struct zip_entry *entry, pici_read_at_fn read_at, void *context, struct parse_error *error)
{
    struct likeness *like[UNZIP_LEVELS + 1] = {0};
    struct unzip unzip;
    uint8_t *piece = malloc(BUFFER);
    bool opened = unzip_open(&unzip, entry, read_at, context, error);
    bool readable = opened;
    *level = 0;
    if (readable && !piece)
        readable = pici_parse_fail(error, entry->begin, "out of memory for inflating");
    for (int k = 1; readable && k <= UNZIP_LEVELS; k++) {
        if (!(levels >> k & 1))
            continue;
        like[k] = calloc(1, sizeof *like[k]);
        if (like[k])
            *like[k] =
                (struct likeness){.entry = entry, .read_at = read_at, .context = context, .position = entry->begin};
        if (!like[k] || !(like[k]->deflater = deflater_new(k)))
            readable = pici_parse_fail(error, entry->begin, "out of memory for deflating");
    }
    for (bool has_more = true; readable && has_more;) {
        const size_t size = unzip.remaining < BUFFER ? (size_t)unzip.remaining : BUFFER;
        int remaining = 0;
        readable =
            unzip_take(&unzip, piece, size) && put_all(like, effort, piece, size, !unzip.remaining, &remaining, error);
        has_more = unzip.remaining && (remaining || whole);
    }
    for (int k = 1; k <= UNZIP_LEVELS; k++) {
        if (readable && like[k] && !*level && like[k]->position == entry->end) {
            *level = k;
            *crc = deflater_crc(like[k]->deflater);
        }
        drop(&like[k]);
    }
    if (opened)
        unzip_close(&unzip);
    free(piece);
    return readable;
}

bool unzip_level(int *level, uint32_t *crc, struct unzip_effort *effort, const struct zip_entry *entry,
                 pici_read_at_fn read_at, void *context, struct parse_error *error)
{
    /* Most writers use zlib's default, and the same level for a whole file. So try this level alone first. */
    enum { DEFAULT = 6, ALL = (1 << (UNZIP_LEVELS + 1)) - 2 };
    const unsigned first = 1u << (effort->level ? effort->level : DEFAULT);
    if (!try_levels(level, crc, effort, first, false, entry, read_at, context, error) ||
        (!*level && !try_levels(level, crc, effort, ALL & ~first, true, entry, read_at, context, error)))
        return false;
    if (*level)
        effort->level = *level;
    return true;
}
