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
    BUFFER = 32 << 10,      /* bytes of deflated data at a time */
    MOST_AT_ONCE = 1 << 30, /* what zlib is given at a time; its lengths have 32 bits */
    RATIO_MOST = 1032       /* no byte of deflated data makes more */
};

bool unzip_inflates(void)
{
#ifdef PICI_HAVE_ZLIB
    return true;
#else
    return false;
#endif
}

static bool fail(const struct unzip *u, const char *what)
{
    char name[64];
    return pici_parse_fail(u->err, u->entry->begin, "entry '%s' %s",
                           pici_parse_printable(name, sizeof name, u->entry->name, u->entry->name_len), what);
}

/* Checks what is known once all bytes have been taken. */
static bool check_crc(struct unzip *u)
{
    u->ended = true;
    return u->crc == u->entry->crc || fail(u, "does not have the CRC-32 that the directory says");
}

static bool take_stored(struct unzip *u, void *buffer, size_t n)
{
    if (n && u->read_at(u->ctx, buffer, n, u->at))
        return pici_parse_fail(u->err, u->at, "cannot be read");
    u->at += n;
    return true;
}

#ifdef PICI_HAVE_ZLIB

struct inflating {
    z_stream z;
    uint8_t in[BUFFER];
};

const char *unzip_version(void)
{
    return zlibVersion();
}

static bool begin_inflating(struct unzip *u)
{
    const uint64_t packed = u->entry->end - u->entry->begin;
    if (u->entry->bytes / RATIO_MOST > packed)
        return fail(u, "claims more bytes than its deflated data can hold");
    u->inflating = calloc(1, sizeof *u->inflating);
    if (u->inflating && inflateInit2(&u->inflating->z, -MAX_WBITS) == Z_OK)
        return true;
    free(u->inflating);
    return pici_parse_fail(u->err, u->entry->begin, "out of memory for inflating");
}

static void end_inflating(struct unzip *u)
{
    if (u->inflating)
        inflateEnd(&u->inflating->z);
    free(u->inflating);
}

/* Inflates up to *n bytes, at most MOST_AT_ONCE; *n: how many there were, fewer only at the end of the data. */
static bool inflate_some(struct unzip *u, uint8_t *to, size_t *n)
{
    struct inflating *i = u->inflating;
    i->z.next_out = to;
    i->z.avail_out = (uInt)*n;
    while (i->z.avail_out && !u->ended) {
        const uint64_t there = u->entry->end - u->at;
        if (!i->z.avail_in && there) {
            const size_t want = there < BUFFER ? (size_t)there : BUFFER;
            if (u->read_at(u->ctx, i->in, want, u->at))
                return pici_parse_fail(u->err, u->at, "cannot be read");
            u->at += want;
            i->z.next_in = i->in;
            i->z.avail_in = (uInt)want;
        }
        const int r = inflate(&i->z, Z_NO_FLUSH);
        u->ended = r == Z_STREAM_END;
        if (r == Z_MEM_ERROR)
            return pici_parse_fail(u->err, u->entry->begin, "out of memory for inflating");
        if (r != Z_OK && r != Z_STREAM_END)
            return fail(u, r == Z_BUF_ERROR ? "has deflated data that are cut short" : "has damaged deflated data");
    }
    *n -= i->z.avail_out;
    return true;
}

static bool take_inflated(struct unzip *u, void *buffer, size_t n)
{
    uint8_t *to = buffer;
    while (n) {
        const size_t want = n < MOST_AT_ONCE ? n : MOST_AT_ONCE;
        size_t got = want;
        if (!inflate_some(u, to, &got))
            return false;
        if (got < want)
            return fail(u, "inflates to fewer bytes than the directory says");
        to += got;
        n -= got;
    }
    return true;
}

static bool end_inflated(struct unzip *u)
{
    uint8_t more;
    size_t n = 1;
    if (!inflate_some(u, &more, &n))
        return false;
    if (n)
        return fail(u, "inflates to more bytes than the directory says");
    return (!u->inflating->z.avail_in && u->at == u->entry->end) || fail(u, "has bytes after its deflated data");
}

struct deflater {
    z_stream z;
    uint64_t bytes;
    uint32_t crc;
    uint8_t out[BUFFER];
};

struct deflater *deflater_new(int level)
{
    struct deflater *d = calloc(1, sizeof *d);
    if (d && deflateInit2(&d->z, level, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK)
        return d;
    free(d);
    return NULL;
}

int deflater_put(struct deflater *d, const void *bytes, size_t n, bool last, pici_write_fn put, void *context)
{
    const uint8_t *p = bytes;
    for (bool more = true; more;) {
        const size_t now = n < MOST_AT_ONCE ? n : MOST_AT_ONCE;
        n -= now;
        d->z.next_in = (Bytef *)p;
        d->z.avail_in = (uInt)now;
        p += now;
        do {
            d->z.next_out = d->out;
            d->z.avail_out = BUFFER;
            deflate(&d->z, last && !n ? Z_FINISH : Z_NO_FLUSH); /* has no errors to report here */
            const size_t got = BUFFER - d->z.avail_out;
            d->bytes += got;
            d->crc = parse_crc32(d->crc, d->out, got);
            const int error = got ? put(context, d->out, got) : 0;
            if (error)
                return error;
        } while (!d->z.avail_out);
        more = n != 0;
    }
    return 0;
}

uint64_t deflater_bytes(const struct deflater *d)
{
    return d->bytes;
}

uint32_t deflater_crc(const struct deflater *d)
{
    return d->crc;
}

void deflater_free(struct deflater *d)
{
    if (d)
        deflateEnd(&d->z);
    free(d);
}

#else

struct inflating {
    char none;
};

const char *unzip_version(void)
{
    return "";
}

static bool begin_inflating(struct unzip *u)
{
    return fail(u, "is deflated, and this build has no zlib to inflate it");
}

static void end_inflating(struct unzip *u)
{
    (void)u;
}

static bool take_inflated(struct unzip *u, void *buf, size_t n)
{
    (void)buf, (void)n;
    return fail(u, "is deflated");
}

static bool end_inflated(struct unzip *u)
{
    return fail(u, "is deflated");
}

struct deflater *deflater_new(int level)
{
    (void)level;
    return NULL;
}

int deflater_put(struct deflater *d, const void *bytes, size_t n, bool last, pici_write_fn put, void *ctx)
{
    (void)d, (void)bytes, (void)n, (void)last, (void)put, (void)ctx;
    return 0;
}

uint64_t deflater_bytes(const struct deflater *d)
{
    (void)d;
    return 0;
}

uint32_t deflater_crc(const struct deflater *d)
{
    (void)d;
    return 0;
}

void deflater_free(struct deflater *d)
{
    (void)d;
}

#endif

bool unzip_open(struct unzip *u, const struct zip_entry *entry, pici_read_at_fn read_at, void *context,
                struct parse_error *error)
{
    *u = (struct unzip){
        .entry = entry, .read_at = read_at, .ctx = context, .err = error, .at = entry->begin, .left = entry->bytes};
    if (entry->method == ZIP_DEFLATED)
        return begin_inflating(u);
    return entry->method == ZIP_STORED || fail(u, "is compressed by a method that is not read");
}

bool unzip_take(struct unzip *u, void *buffer, size_t n)
{
    if (!(u->inflating ? take_inflated(u, buffer, n) : take_stored(u, buffer, n)))
        return false;
    u->crc = n ? parse_crc32(u->crc, buffer, n) : u->crc;
    u->left -= n;
    if (u->left)
        return true;
    return (!u->inflating || end_inflated(u)) && check_crc(u);
}

void unzip_close(struct unzip *u)
{
    end_inflating(u);
    u->inflating = NULL;
}

/* ---- finding the level */

/* The entry's data again, to compare deflated bytes with. */
struct likeness {
    const struct zip_entry *entry;
    pici_read_at_fn read_at;
    void *ctx;
    uint64_t at;
    bool failed; /* read_at has */
    struct deflater *deflater;
    uint8_t there[BUFFER];
};

enum { LIKE_DIFFERS = 1 };

/* A pici_write_fn: compares. */
static int compare(void *context, const void *bytes, size_t n)
{
    struct likeness *l = context;
    if (n > l->entry->end - l->at)
        return LIKE_DIFFERS;
    l->failed = l->read_at(l->ctx, l->there, n, l->at) != 0;
    l->at += n;
    return l->failed || memcmp(l->there, bytes, n) != 0 ? LIKE_DIFFERS : 0;
}

static void drop(struct likeness **l)
{
    if (*l)
        deflater_free((*l)->deflater);
    free(*l);
    *l = NULL;
}

/* Drops all levels but one, which most writers take if it is not zlib's default: 9, 1, or the lowest. */
static void drop_most(struct likeness *like[UNZIP_LEVELS + 1])
{
    int kept = like[9] ? 9 : 1;
    while (kept < UNZIP_LEVELS && !like[kept])
        kept++;
    for (int k = 1; k <= UNZIP_LEVELS; k++)
        if (k != kept)
            drop(&like[k]);
}

/* Deflates n bytes at each level that is left. *left: how many levels have not differed. */
static bool put_all(struct likeness *like[UNZIP_LEVELS + 1], struct unzip_effort *effort, const uint8_t *bytes,
                    size_t n, bool last, int *left, struct parse_error *error)
{
    int tried = 0;
    *left = 0;
    for (int k = 1; k <= UNZIP_LEVELS; k++)
        tried += like[k] != NULL;
    const uint64_t more = tried > 1 ? (uint64_t)(tried - 1) * n : 0;
    if (more > effort->spare)
        drop_most(like);
    else
        effort->spare -= more;
    for (int k = 1; k <= UNZIP_LEVELS; k++) {
        if (!like[k])
            continue;
        effort->deflated += n;
        if (deflater_put(like[k]->deflater, bytes, n, last, compare, like[k])) {
            if (like[k]->failed)
                return pici_parse_fail(error, like[k]->at, "cannot be read");
            drop(&like[k]);
        }
        *left += like[k] != NULL;
    }
    return true;
}

/* Inflates the entry, and deflates it at each level that levels has a bit for, until all of them have differed; if
 * whole, until its end. *level: the lowest that has not differed by then, or 0; *crc: of what it makes. */
static bool try_levels(int *level, uint32_t *crc, struct unzip_effort *effort, unsigned levels, bool whole,
                       const struct zip_entry *entry, pici_read_at_fn read_at, void *context, struct parse_error *error)
{
    struct likeness *like[UNZIP_LEVELS + 1] = {0};
    struct unzip u;
    uint8_t *piece = malloc(BUFFER);
    bool opened = unzip_open(&u, entry, read_at, context, error);
    bool ok = opened;
    *level = 0;
    if (ok && !piece)
        ok = pici_parse_fail(error, entry->begin, "out of memory for inflating");
    for (int k = 1; ok && k <= UNZIP_LEVELS; k++) {
        if (!(levels >> k & 1))
            continue;
        like[k] = calloc(1, sizeof *like[k]);
        if (like[k])
            *like[k] = (struct likeness){.entry = entry, .read_at = read_at, .ctx = context, .at = entry->begin};
        if (!like[k] || !(like[k]->deflater = deflater_new(k)))
            ok = pici_parse_fail(error, entry->begin, "out of memory for deflating");
    }
    for (bool more = true; ok && more;) {
        const size_t n = u.left < BUFFER ? (size_t)u.left : BUFFER;
        int left = 0;
        ok = unzip_take(&u, piece, n) && put_all(like, effort, piece, n, !u.left, &left, error);
        more = u.left && (left || whole);
    }
    for (int k = 1; k <= UNZIP_LEVELS; k++) {
        if (ok && like[k] && !*level && like[k]->at == entry->end) {
            *level = k;
            *crc = deflater_crc(like[k]->deflater);
        }
        drop(&like[k]);
    }
    if (opened)
        unzip_close(&u);
    free(piece);
    return ok;
}

bool unzip_level(int *level, uint32_t *crc, struct unzip_effort *effort, const struct zip_entry *entry,
                 pici_read_at_fn read_at, void *context, struct parse_error *error)
{
    /* Most writers use zlib's default, and one level for a whole file, so that it alone is tried first. */
    enum { DEFAULT = 6, ALL = (1 << (UNZIP_LEVELS + 1)) - 2 };
    const unsigned first = 1u << (effort->level ? effort->level : DEFAULT);
    if (!try_levels(level, crc, effort, first, false, entry, read_at, context, error) ||
        (!*level && !try_levels(level, crc, effort, ALL & ~first, true, entry, read_at, context, error)))
        return false;
    if (*level)
        effort->level = *level;
    return true;
}
