/* SPDX-License-Identifier: BSD-3-Clause
 *
 * .pici files made by someone who knows how the hashes go: each rule of formats/file.md broken by itself. */
#define _XOPEN_SOURCE 700
#include "tests/util/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "bytes.h"
#include "file/lz4.h"
#include "xxh64.h"

#ifdef PICI_HAVE_ZSTD
#include <zstd.h>
#endif

/* A file taken apart: its records, to be changed and put together with hashes that fit. */
struct part {
    char kind[5], place[5]; /* what it says that it is, and what it is to the index */
    uint8_t body[4096];
    size_t len;
    uint8_t pad;       /* value of the padding bytes */
    uint32_t reserved; /* of the header: bytes of a compressed body's content */
    int bad_hash;      /* 1: the body's, 2: the header's */
    uint64_t claims;   /* body_bytes, if not 0 */
};

struct parts {
    struct part part[24]; /* all but the INDX record */
    int n;
    unsigned in_tables; /* tensors of a TABL record */
    struct part index;  /* if its len is not 0, instead of what fits */
    uint32_t version, reserved;
    int bad_magic, bad_end_magic, bad_trailer_hash;
    int64_t index_moved;
    uint64_t bad_index_hash;
};

static size_t padded(size_t n)
{
    return (n + 15) & ~(size_t)15;
}

static void take_apart(struct parts *f, const struct sink *k)
{
    memset(f, 0, sizeof *f);
    f->version = load_le32(k->p + 8);
    f->in_tables = 2; /* of small_file */
    for (size_t at = 16;;) {
        struct part *p = &f->part[f->n];
        size_t len = (size_t)load_le64(k->p + at + 8);
        memcpy(p->kind, k->p + at, 4);
        if (strcmp(p->kind, "INDX") == 0)
            break;
        cr_assert(len <= sizeof p->body && f->n < 24);
        memcpy(p->body, k->p + at + 32, len);
        p->reserved = load_le32(k->p + at + 4);
        p->len = len;
        memcpy(p->place, p->kind, 5);
        f->n++;
        at += 32 + padded(len);
    }
}

static void append(struct sink *k, const void *p, size_t n)
{
    if (n)
        sink_write(k, p, n);
}

static void append_part(struct sink *k, const struct part *p)
{
    uint8_t h[32], pad[16];
    memset(pad, p->pad, sizeof pad);
    memcpy(h, p->kind, 4);
    store_le32(h + 4, p->reserved);
    store_le64(h + 8, p->claims ? p->claims : p->len);
    store_le64(h + 16, (strcmp(p->kind, "BLCK") == 0 && p->len >= 48 ? load_le64(p->body + 40)
                                                                     : pici_xxh64(p->body, p->len, 0)) ^
                           (p->bad_hash == 1));
    store_le64(h + 24, pici_xxh64(h, 24, 0) ^ (p->bad_hash == 2));
    append(k, h, sizeof h);
    append(k, p->body, p->len);
    append(k, pad, padded(p->len) - p->len);
}

/* The block of a BLCK record gets the checksum that fits. */
static void seal(struct part *p)
{
    memset(p->body + 40, 0, 8);
    store_le64(p->body + 40, pici_xxh64(p->body, p->len, 0));
}

static void put_together(struct sink *k, const struct parts *f)
{
    struct part index = {.kind = "INDX", .len = 16};
    uint8_t trailer[32], header[16] = "\x89PICI\r\n\x1a";
    uint64_t tensors = 0;
    k->len = 0;
    header[0] ^= (uint8_t)f->bad_magic;
    store_le32(header + 8, f->version);
    store_le32(header + 12, f->reserved);
    append(k, header, 16);
    for (int i = 0; i < f->n; i++) {
        const struct part *p = &f->part[i];
        size_t at = k->len;
        append_part(k, p);
        if (strcmp(p->place, "META") == 0) {
            memcpy(index.body + 8, k->p + at + 24, 8);
            continue;
        }
        uint8_t *entry = index.body + index.len;
        store_le64(entry, at);
        memcpy(entry + 8, k->p + at + 24, 8);
        index.len += 16;
        if (strcmp(p->place, "TABL") == 0) {
            memset(index.body + index.len, 0, 16 + p->len + 8);
            store_le32(index.body + index.len + 4, p->reserved);
            store_le64(index.body + index.len + 8, p->len);
            memcpy(index.body + index.len + 16, p->body, p->len);
            index.len += 16 + (p->len + 7) / 8 * 8;
            tensors += f->in_tables;
        }
        if (strcmp(p->place, "TENS") == 0) {
            size_t desc = 16 + 8 * (size_t)p->body[1] + (((size_t)load_le32(p->body + 8) | 7) + 1);
            desc = desc < p->len ? desc : p->len;
            memcpy(index.body + index.len, p->body, desc);
            index.len += desc;
            tensors++;
        }
        cr_assert_lt(index.len, sizeof index.body - 512);
    }
    store_le64(index.body, tensors);
    if (f->index.len) {
        memcpy(index.body, f->index.body, f->index.len);
        index.len = f->index.len;
    }
    index.pad = f->index.pad;
    index.bad_hash = f->index.bad_hash;
    index.claims = f->index.claims;
    size_t at = k->len;
    append_part(k, &index);
    store_le64(trailer, at + (uint64_t)f->index_moved);
    store_le64(trailer + 8, load_le64(k->p + at + 24) ^ f->bad_index_hash);
    store_le64(trailer + 16, pici_xxh64(trailer, 16, 0) ^ (uint64_t)f->bad_trailer_hash);
    memcpy(trailer + 24, f->bad_end_magic ? "PICI.BAD" : "PICI.END", 8);
    append(k, trailer, 32);
}

/* The file, however it is read, breaks a rule: which a forward reader finds, and which one at random ("": any). */
static void expect_rule(const struct parts *f, enum pici_status status, const char *forward, const char *random)
{
    struct sink k = {0};
    char words[512], onward[64], rule[64] = "";
    put_together(&k, f);
    snprintf(onward, sizeof onward, "(%s)", forward);
    if (*random)
        snprintf(rule, sizeof rule, "(%s)", random);
    for (int verify = 0; verify < 2; verify++) {
        enum pici_status s = all_forward(k.p, k.len, !verify, words);
        cr_assert(s == status && strstr(words, onward), "forward: %d, %s, but not %d %s", s, words, status, onward);
        s = all_random(k.p, k.len, verify, words); /* which verifies forward, if it opens the file */
        cr_assert(data_error(s) && (strstr(words, rule) || (verify && strstr(words, onward))),
                  "at random: %d, %s, but not %s", s, words, rule);
    }
    sink_free(&k);
}

/* The parts of small_file(1, 0): META, TENS coo, 3 BLCK, TENS dense, BLCK, TENS empty, TENS same, 2 BLCK. */
enum { META, COO, COO_0, COO_1, COO_2, DENSE, DENSE_0, EMPTY, SAME, SAME_0, SAME_1, PARTS };

static struct parts *fresh(void)
{
    static struct parts f;
    struct sink k = small_file(1, 0), again = {0};
    take_apart(&f, &k);
    cr_assert_eq(f.n, PARTS);
    put_together(&again, &f);
    cr_assert(again.len == k.len && memcmp(again.p, k.p, k.len) == 0, "taking apart and putting together");
    sink_free(&again);
    sink_free(&k);
    return &f;
}

static void drop(struct parts *f, int i)
{
    memmove(&f->part[i], &f->part[i + 1], (size_t)(f->n - i - 1) * sizeof f->part[0]);
    f->n--;
}

static void insert(struct parts *f, int i, const struct part *p)
{
    struct part copy = *p;
    memmove(&f->part[i + 1], &f->part[i], (size_t)(f->n - i) * sizeof f->part[0]);
    f->part[i] = copy;
    f->n++;
}

/* Change the parts of the small file, F, and expect that rule broken. */
#define BREAK(status, forward, random, change)                                                                         \
    do {                                                                                                               \
        struct parts *F = fresh();                                                                                     \
        change;                                                                                                        \
        expect_rule(F, status, forward, random);                                                                       \
    } while (0)

Test(file_rules, rules_of_the_frame)
{
    BREAK(PICI_E_CORRUPT, "magic", "magic", F->bad_magic = 1);
    BREAK(PICI_E_VERSION, "version", "version", F->version = 3);
    BREAK(PICI_E_CORRUPT, "reserved", "reserved", F->reserved = 1);
    BREAK(PICI_E_CORRUPT, "trailer-magic", "trailer-magic", F->bad_end_magic = 1);
    BREAK(PICI_E_CHECKSUM, "trailer-hash", "trailer-hash", F->bad_trailer_hash = 1);
    BREAK(PICI_E_CORRUPT, "trailer", "trailer", F->bad_index_hash = 1);
    BREAK(PICI_E_CORRUPT, "trailer", "trailer", F->index_moved = 8);
    BREAK(PICI_E_CORRUPT, "trailer", "header-hash", F->index_moved = -16);
    BREAK(PICI_E_CORRUPT, "trailer", "trailer", F->index_moved = INT64_MAX);
    BREAK(PICI_E_CORRUPT, "trailer", "header-hash", F->index_moved = 32);
}

Test(file_rules, rules_of_records)
{
    for (int i = META; i < PARTS; i++) {
        BREAK(PICI_E_CHECKSUM, "header-hash", "header-hash", F->part[i].bad_hash = 2);
        BREAK(PICI_E_CHECKSUM, "body-hash", "body-hash", F->part[i].bad_hash = 1);
        BREAK(PICI_E_CORRUPT, "kind", "kind", F->part[i].reserved = 1);
        if (fresh()->part[i].len % 16)
            BREAK(PICI_E_CORRUPT, "padding", "padding", F->part[i].pad = 1);
    }
    BREAK(PICI_E_CHECKSUM, "header-hash", "header-hash", F->index.bad_hash = 2);
    BREAK(PICI_E_CHECKSUM, "body-hash", "body-hash", F->index.bad_hash = 1);
    BREAK(PICI_E_CORRUPT, "kind", "kind", memcpy(F->part[META].kind, "TENS", 5));
    BREAK(PICI_E_CORRUPT, "kind", "kind", memcpy(F->part[COO_1].kind, "XXXX", 5));
    BREAK(PICI_E_CORRUPT, "body-length", "index", F->part[META].claims = (1 << 28) + 1);
    BREAK(PICI_E_CORRUPT, "body-length", "index", F->part[COO].claims = (1 << 24) + 1);
    BREAK(PICI_E_CORRUPT, "body-length", "index", F->part[COO].claims = 15);
    BREAK(PICI_E_CORRUPT, "body-length", "index", F->part[COO_0].claims = 47);
    BREAK(PICI_E_CORRUPT, "body-length", "index", F->part[COO_0].claims = UINT64_MAX);
    BREAK(PICI_E_CORRUPT, "body-length", "index", F->part[COO_0].claims = 1000); /* pici's longest of 50: 848 */
    BREAK(PICI_E_CORRUPT, "body-length", "body-length", F->index.claims = UINT64_MAX);
    BREAK(PICI_E_CORRUPT, "body-length", "body-length", F->index.claims = 16);
}

/* Set `len` bytes of a body; where they lie in the description the index gets them too. */
static void set(struct part *p, size_t at, uint64_t v, size_t len)
{
    for (size_t i = 0; i < len; i++)
        p->body[at + i] = (uint8_t)(v >> 8 * i);
}

Test(file_rules, rules_of_descriptions)
{
    BREAK(PICI_E_CORRUPT, "description", "description", set(&F->part[COO], 0, 0, 1));
    BREAK(PICI_E_CORRUPT, "description", "description", set(&F->part[COO], 0, 15, 1));
    BREAK(PICI_E_CORRUPT, "description", "description", set(&F->part[COO], 1, 33, 1));
    BREAK(PICI_E_CORRUPT, "description", "description", set(&F->part[COO], 1, 255, 1));
    BREAK(PICI_E_CORRUPT, "description", "description", set(&F->part[COO], 2, 1, 2));
    BREAK(PICI_E_CORRUPT, "description", "description", set(&F->part[COO], 4, 0, 4));
    BREAK(PICI_E_CORRUPT, "description", "description", set(&F->part[COO], 4, (1 << 22) + 1, 4));
    BREAK(PICI_E_CORRUPT, "description", "description", set(&F->part[COO], 8, (1 << 20) + 1, 4));
    BREAK(PICI_E_CORRUPT, "description", "description", set(&F->part[COO], 8, UINT32_MAX, 4));
    BREAK(PICI_E_CORRUPT, "description", "description", set(&F->part[COO], 16, UINT64_C(1) << 61, 8));
    BREAK(PICI_E_CORRUPT, "description", "description", set(&F->part[COO], 16, UINT64_MAX, 8));
    BREAK(PICI_E_CORRUPT, "description", "description", set(&F->part[COO], 24 + 3, 1, 1)); /* behind the name: coo */
    BREAK(PICI_E_CORRUPT, "description", "description", set(&F->part[COO], 24 + 7, 1, 1));
    BREAK(PICI_E_CORRUPT, "name", "name", memcpy(F->part[COO].body + 24, "dense\0\0", 8); set(&F->part[COO], 8, 5, 4));
    BREAK(PICI_E_CORRUPT, "name", "name", F->n = EMPTY + 1; insert(F, F->n, &F->part[EMPTY]));
}

Test(file_rules, rules_of_attributes)
{
    /* META: 8, then "kind" = "test" (8 + 8 + 8 bytes), "more" = "x" (the same) */
    struct part *m = &fresh()->part[META];
    cr_assert(m->len == 56 && memcmp(m->body + 16, "kind", 4) == 0 && memcmp(m->body + 40, "more", 4) == 0);
    BREAK(PICI_E_CORRUPT, "attributes", "attributes", set(&F->part[META], 0, 1, 4));
    BREAK(PICI_E_CORRUPT, "attributes", "attributes", set(&F->part[META], 0, 3, 4));
    BREAK(PICI_E_CORRUPT, "attributes", "attributes", set(&F->part[META], 0, UINT32_MAX, 4));
    BREAK(PICI_E_CORRUPT, "attributes", "attributes", set(&F->part[META], 4, 1, 4));
    BREAK(PICI_E_CORRUPT, "attributes", "attributes", set(&F->part[META], 8, 0, 4));
    BREAK(PICI_E_CORRUPT, "attributes", "attributes", set(&F->part[META], 8, 256, 4));
    BREAK(PICI_E_CORRUPT, "attributes", "attributes", set(&F->part[META], 8, UINT32_MAX, 4));
    BREAK(PICI_E_CORRUPT, "attributes", "attributes", set(&F->part[META], 12, UINT32_MAX, 4));
    BREAK(PICI_E_CORRUPT, "attributes", "attributes", set(&F->part[META], 12, 1 << 28, 4));
    BREAK(PICI_E_CORRUPT, "attributes", "attributes", set(&F->part[META], 12, 8, 4));
    BREAK(PICI_E_CORRUPT, "attributes", "attributes", set(&F->part[META], 16 + 1, 0, 1)); /* a zero in a key */
    BREAK(PICI_E_CORRUPT, "attributes", "attributes", set(&F->part[META], 16 + 4, 1, 1)); /* behind a key */
    BREAK(PICI_E_CORRUPT, "attributes", "attributes", set(&F->part[META], 24 + 7, 1, 1)); /* behind a value */
    BREAK(PICI_E_CORRUPT, "attributes", "attributes", set(&F->part[META], 55, 1, 1));
    BREAK(PICI_E_CORRUPT, "attributes", "attributes", memcpy(F->part[META].body + 40, "kind", 4)); /* twice */
    BREAK(PICI_E_CORRUPT, "attributes", "attributes", memcpy(F->part[META].body + 40, "aaaa", 4)); /* not rising */
    BREAK(PICI_E_CORRUPT, "attributes", "attributes", F->part[META].len += 8);
    BREAK(PICI_E_CORRUPT, "attributes", "attributes", F->part[META].len -= 8);
    BREAK(PICI_E_CORRUPT, "attributes", "attributes", set(&F->part[DENSE], 12, 2, 4));
    BREAK(PICI_E_CORRUPT, "attributes", "attributes", set(&F->part[DENSE], 12, 0, 4));
}

Test(file_rules, rules_of_chunks)
{
    BREAK(PICI_E_CORRUPT, "block", "block", set(&F->part[COO_0], 0, 'Q', 1); seal(&F->part[COO_0]));
    BREAK(PICI_E_VERSION, "block", "block", set(&F->part[COO_0], 4, 3, 1); seal(&F->part[COO_0]));
    BREAK(PICI_E_CORRUPT, "block", "block", set(&F->part[COO_0], 16, 51, 8); seal(&F->part[COO_0]));
    BREAK(PICI_E_CORRUPT, "block", "block", F->part[COO_0].len += 1; seal(&F->part[COO_0]));
    BREAK(PICI_E_CORRUPT, "block", "block", set(&F->part[COO_0], 48, 50, 4); seal(&F->part[COO_0])); /* a position */
    BREAK(PICI_E_CHECKSUM, "body-hash", "body-hash", set(&F->part[COO_0], 48, 50, 4));
    BREAK(PICI_E_CORRUPT, "block-tensor", "block-tensor", set(&F->part[COO_0], 6, PICI_I32, 1); seal(&F->part[COO_0]));
    BREAK(PICI_E_CORRUPT, "block-tensor", "block-tensor", set(&F->part[COO_0], 8, 51, 8); seal(&F->part[COO_0]));
    BREAK(PICI_E_CORRUPT, "block-tensor", "block-tensor", F->part[COO_2] = F->part[COO_1]);

    /* a checksum that is right but whose flag is not set is a breach of the block; none at all is one of the file */
    BREAK(PICI_E_CORRUPT, "block", "block", F->part[DENSE_0].body[7] = 0; seal(&F->part[DENSE_0]));
    BREAK(PICI_E_CHECKSUM, "body-hash", "body-hash", F->part[DENSE_0].body[7] = 0;
          memset(F->part[DENSE_0].body + 40, 0, 8));

    /* what a decoder of parts never looks at: padding, in the middle of the data */
    struct sink k = {0};
    char words[512];
    struct parts *f = fresh();
    cr_assert(f->part[COO_1].body[5] == PICI_COO && f->part[COO_1].len == 64 + 3 * 4);
    f->part[COO_1].body[61] = 1;
    seal(&f->part[COO_1]);
    put_together(&k, f);
    enum pici_status s = all_forward(k.p, k.len, 1, words);
    cr_assert(s == PICI_E_CORRUPT && strstr(words, "chunk 1 of tensor 'coo'") && strstr(words, "'padding' at byte 61"),
              "%d, %s", s, words);
    sink_free(&k);

    /* too few, too many, out of turn */
    BREAK(PICI_E_CORRUPT, "block-tensor", "", drop(F, COO_1)); /* the last is a short one */
    BREAK(PICI_E_CORRUPT, "block-tensor", "", insert(F, COO_1, &F->part[COO_1]));
    BREAK(PICI_E_CORRUPT, "kind", "", insert(F, SAME, &F->part[DENSE_0])); /* of the tensor that has none */
    BREAK(PICI_E_CORRUPT, "kind", "", drop(F, SAME_1));
    BREAK(PICI_E_CORRUPT, "kind", "", insert(F, DENSE, &F->part[META]));
}

Test(file_rules, rules_of_zstd)
{
    struct parts *f = fresh();
    char words[512];
    struct sink k = {0};
#ifdef PICI_HAVE_ZSTD
    uint8_t block[1024], frame[2048];
    size_t len = f->part[SAME_0].len;
    memcpy(block, f->part[SAME_0].body, len);
    size_t n = ZSTD_compress(frame, sizeof frame, block, len, 3);
    cr_assert(!ZSTD_isError(n) && n < len);
    struct part z = {.kind = "ZSTD", .len = n};
    memcpy(z.body, frame, n);
    f->part[SAME_0] = z;
    put_together(&k, f);
    cr_assert_eq(all_forward(k.p, k.len, 1, words), PICI_OK, "%s", words);
    cr_assert_eq(all_random(k.p, k.len, 1, words), PICI_OK, "%s", words);

    BREAK(PICI_E_CORRUPT, "zstd-frame", "zstd-frame", F->part[SAME_0] = z; F->part[SAME_0].body[0]++);
    BREAK(PICI_E_CORRUPT, "zstd-frame", "zstd-frame", F->part[SAME_0] = z; F->part[SAME_0].len--);
    BREAK(PICI_E_CORRUPT, "zstd-frame", "zstd-frame", F->part[SAME_0] = z; F->part[SAME_0].len++);
    BREAK(PICI_E_CORRUPT, "zstd-frame", "zstd-frame", F->part[SAME_0] = z; /* two frames */
          memcpy(F->part[SAME_0].body + n, z.body, n); F->part[SAME_0].len = 2 * n);
    BREAK(PICI_E_CORRUPT, "zstd-frame", "zstd-frame", F->part[SAME_0] = z; /* one more that holds nothing */
          memcpy(F->part[SAME_0].body + n, "\x50\x2a\x4d\x18\0\0\0\0", 8); F->part[SAME_0].len = n + 8);
    BREAK(PICI_E_CORRUPT, "body-length", "body-length", F->part[SAME_0] = z; F->part[SAME_0].len = 4000);

    /* a frame of zstd 0.7, which libzstd may be built to decode: 48 raw bytes, 152 times one byte, the end */
    struct part old = {.kind = "ZSTD"};
    static const uint8_t start[] = {0x27, 0xb5, 0x2f, 0xfd, 0x20, 200, 0x40, 0, 48},
                         end[] = {0x80, 0, 152, 0, 0xc0, 0, 0};
    memcpy(old.body, start, sizeof start);
    memcpy(old.body + sizeof start, block, 48);
    memcpy(old.body + sizeof start + 48, end, sizeof end);
    old.len = sizeof start + 48 + sizeof end;
    BREAK(PICI_E_CORRUPT, "zstd-frame", "zstd-frame", F->part[SAME_0] = old);

    /* a frame that is not shorter; one of another length; one of too much; one that keeps its length to itself */
    ZSTD_CCtx *c = ZSTD_createCCtx();
    struct part longer = {.kind = "ZSTD"};
    uint8_t noise[4000];
    struct rng rng = {5};
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)rng_next(&rng);
    longer.len = ZSTD_compressCCtx(c, longer.body, sizeof longer.body, noise, len, 3);
    BREAK(PICI_E_CORRUPT, "zstd-frame", "zstd-frame", F->part[SAME_0] = longer);
    memset(noise, 0, sizeof noise);
    longer.len = ZSTD_compressCCtx(c, longer.body, sizeof longer.body, noise, sizeof noise, 3);
    BREAK(PICI_E_CORRUPT, "zstd-frame", "zstd-frame", F->part[SAME_0] = longer);
    longer.len = ZSTD_compressCCtx(c, longer.body, sizeof longer.body, noise, 200, 3);
    BREAK(PICI_E_CORRUPT, "block", "block", F->part[SAME_0] = longer);
    ZSTD_CCtx_setParameter(c, ZSTD_c_contentSizeFlag, 0);
    longer.len = ZSTD_compress2(c, longer.body, sizeof longer.body, block, len);
    BREAK(PICI_E_CORRUPT, "zstd-frame", "zstd-frame", F->part[SAME_0] = longer);
    ZSTD_freeCCtx(c);

    /* a block in a frame has its rules too */
    block[8]++;
    z.len = ZSTD_compress(z.body, sizeof z.body, block, len, 3);
    BREAK(PICI_E_CORRUPT, "block", "block", F->part[SAME_0] = z); /* the length of a dense block */
    block[8]--;
    block[60] ^= 1;
    z.len = ZSTD_compress(z.body, sizeof z.body, block, len, 3);
    BREAK(PICI_E_CHECKSUM, "block", "block", F->part[SAME_0] = z);
    block[60] ^= 1;
    block[7] = 0;
    memset(block + 40, 0, 8);
    z.len = ZSTD_compress(z.body, sizeof z.body, block, len, 3);
    BREAK(PICI_E_CORRUPT, "block-checksum", "block-checksum", F->part[SAME_0] = z);
#else
    struct part z = {.kind = "ZSTD", .len = 9};
    f->part[SAME_0] = z;
    put_together(&k, f);
    cr_assert_eq(all_forward(k.p, k.len, 1, words), PICI_E_UNSUPPORTED);
    cr_assert(strstr(words, "chunk 0 of tensor 'same'") && strstr(words, "needs zstd, which this build does not have"),
              "%s", words);
    cr_assert_eq(all_random(k.p, k.len, 1, words), PICI_E_UNSUPPORTED);
    uint64_t data[50];
    struct pici_reader *r;
    open_memory(&r, &k); /* what does not need it can be read */
    READ_OK(r, pici_reader_read_range(r, 0, 0, 50, data));
    READ_OK(r, pici_reader_read_range(r, 3, 50, 14, data));
    cr_assert_eq(pici_reader_read_range(r, 3, 0, 1, data), PICI_E_UNSUPPORTED);
    pici_reader_close(r);
#endif
    sink_free(&k);
}

static void rules_of_the_index(unsigned version)
{
    struct sink k = small_file(version, 0);
    size_t at = (size_t)load_le64(k.p + k.len - 32), len = (size_t)load_le64(k.p + at + 8);
    uint8_t body[4096];
    memcpy(body, k.p + at + 32, len);
    char words[512];
    struct sink out = {0};
    /* Any bit of it changed, its hashes right: nobody who reads all there is takes it. */
    for (size_t i = 0; i < len; i++)
        for (int flip = 1; flip < 256; flip *= 2) {
            struct parts f;
            take_apart(&f, &k);
            memcpy(f.index.body, body, len);
            f.index.len = len;
            f.index.body[i] ^= (uint8_t)flip;
            put_together(&out, &f);
            enum pici_status s = all_forward(out.p, out.len, 0, words);
            cr_assert(s == PICI_E_CORRUPT && strstr(words, "(index)"), "byte %zu: %d, %s", i, s, words);
            s = all_random(out.p, out.len, 1, words);
            cr_assert(data_error(s), "byte %zu: %d, %s", i, s, words);
            s = all_random(out.p, out.len, 0, words);
            cr_assert(data_error(s), "byte %zu: %d, %s", i, s, words);
        }
    /* Offsets that cannot be are found at once: chunk 1 of the first tensor, whose description is 32 bytes. */
    static const int64_t moves[] = {8, -8, 1, -1000, 1000000, -80, -96, INT64_MIN};
    const size_t entry = 16 + 16 + 32 + 16;
    for (size_t i = 0; i < sizeof moves / sizeof moves[0]; i++) {
        struct parts f;
        take_apart(&f, &k);
        memcpy(f.index.body, body, len);
        f.index.len = len;
        store_le64(f.index.body + entry, load_le64(body + entry) + (uint64_t)moves[i]);
        put_together(&out, &f);
        struct pici_reader *r;
        enum pici_status s = pici_reader_open_memory(&r, out.p, out.len, NULL);
        cr_assert(s == PICI_E_CORRUPT && strstr(pici_reader_error(r), "(index)"), "%ld: %d, %s", (long)moves[i], s,
                  pici_reader_error(r));
        pici_reader_close(r);
    }
    for (size_t n = 16; n < len + 64; n += 8) { /* shorter and longer than it must be */
        struct parts f;
        if (n == len)
            continue;
        take_apart(&f, &k);
        memcpy(f.index.body, body, n);
        f.index.len = n;
        put_together(&out, &f);
        enum pici_status s = all_forward(out.p, out.len, 0, words);
        cr_assert(s == PICI_E_CORRUPT && strstr(words, "(body-length)"), "%zu: %d, %s", n, s, words);
        s = all_random(out.p, out.len, 0, words);
        cr_assert(s == PICI_E_CORRUPT, "%zu: %d, %s", n, s, words);
    }
    sink_free(&out);
    sink_free(&k);
}

Test(file_rules, rules_of_the_index)
{
    rules_of_the_index(1);
}

Test(file_rules, rules_of_the_index_with_tables)
{
    rules_of_the_index(2);
}

/* ---- tables ---- */

/* Its parts in version 2: "dense" and "empty" are in a table, whose only chunk is of "dense". */
enum { IN_TABLE = DENSE, COMMON, SAME_AFTER, PARTS_2 = SAME_AFTER + 3 };

/* The parts of small_file(2, 0), with an uncompressed table. "dense" has 2 dimensions, and "more" = "x" at byte 40.
 * Then follows "empty", of 1 dimension, at byte 64. */
static struct parts *tabled(void)
{
    static struct parts f;
    uint8_t table[4096];
    struct sink k = small_file(2, 0), again = {0};
    char words[512];
    take_apart(&f, &k);
    cr_assert_eq(f.n, PARTS_2);
    put_together(&again, &f);
    cr_assert(again.len == k.len && memcmp(again.p, k.p, k.len) == 0, "taking apart and putting together");
    struct part *t = &f.part[IN_TABLE];
    cr_assert(t->reserved == 96 && t->len < 96 && pici_lz4_decompress(table, t->reserved, t->body, t->len));
    memcpy(t->body, table, t->reserved);
    t->len = t->reserved;
    t->reserved = 0;
    put_together(&again, &f);
    cr_assert_eq(all_forward(again.p, again.len, 0, words), PICI_OK, "%s", words);
    cr_assert_eq(all_random(again.p, again.len, 0, words), PICI_OK, "%s", words);
    sink_free(&again);
    sink_free(&k);
    return &f;
}

/* Change the parts of the small file, T its table, and expect that rule broken. */
#define BREAK_TABLE(status, forward, random, change)                                                                   \
    do {                                                                                                               \
        struct parts *F = tabled();                                                                                    \
        struct part *T = &F->part[IN_TABLE];                                                                           \
        (void)T;                                                                                                       \
        change;                                                                                                        \
        expect_rule(F, status, forward, random);                                                                       \
    } while (0)

Test(file_rules, rules_of_tables)
{
    BREAK_TABLE(PICI_E_CORRUPT, "kind", "description", F->version = 1);
    BREAK_TABLE(PICI_E_CORRUPT, "kind", "kind", F->part[COMMON].reserved = 100);
    BREAK_TABLE(PICI_E_CORRUPT, "kind", "", drop(F, COMMON));
    BREAK_TABLE(PICI_E_CORRUPT, "kind", "", insert(F, COMMON, &F->part[COMMON]));
    BREAK_TABLE(PICI_E_CORRUPT, "body-length", "index", T->claims = 15);
    BREAK_TABLE(PICI_E_CORRUPT, "body-length", "index", T->claims = (1 << 20) + 1);
    BREAK_TABLE(PICI_E_CORRUPT, "body-length", "body-length", T->reserved = 15);
    BREAK_TABLE(PICI_E_CORRUPT, "body-length", "body-length", T->reserved = (1 << 20) + 1);
    BREAK_TABLE(PICI_E_CORRUPT, "body-length", "body-length", T->reserved = UINT32_MAX);

    BREAK_TABLE(PICI_E_CORRUPT, "compressed", "compressed", T->reserved = (uint32_t)T->len);
    BREAK_TABLE(PICI_E_CORRUPT, "compressed", "compressed", T->reserved = (uint32_t)T->len + 1);
    BREAK_TABLE(PICI_E_CORRUPT, "compressed", "compressed", T->reserved = (uint32_t)T->len * 64 + 64);
    BREAK_TABLE(PICI_E_CORRUPT, "compressed", "compressed", T->reserved = (uint32_t)T->len * 64 + 1);
    BREAK_TABLE(PICI_E_CORRUPT, "compressed", "compressed", T->reserved = (uint32_t)T->len * 64);
    BREAK_TABLE(PICI_E_CORRUPT, "compressed", "compressed", F->part[META].reserved = (uint32_t)F->part[META].len + 1);

    BREAK_TABLE(PICI_E_CORRUPT, "description", "description", set(T, 0, 0, 1));
    BREAK_TABLE(PICI_E_CORRUPT, "description", "description", set(T, 0, 15, 1));
    BREAK_TABLE(PICI_E_CORRUPT, "description", "description", set(T, 8, 1 << 20, 4));
    BREAK_TABLE(PICI_E_CORRUPT, "description", "description", set(T, 64, 0, 1));
    BREAK_TABLE(PICI_E_CORRUPT, "description", "description", T->len -= 8);
    BREAK_TABLE(PICI_E_CORRUPT, "description", "description", memset(T->body + T->len, 0, 8); T->len += 8);
    BREAK_TABLE(PICI_E_CORRUPT, "attributes", "attributes", set(T, 12, UINT32_MAX, 4));
    BREAK_TABLE(PICI_E_CORRUPT, "attributes", "attributes", set(T, 40, 0, 4));
    BREAK_TABLE(PICI_E_CORRUPT, "attributes", "attributes", set(T, 44, UINT32_MAX, 4));
    BREAK_TABLE(PICI_E_CORRUPT, "table", "table", set(T, 4, 32, 4));                              /* of 33 elements */
    BREAK_TABLE(PICI_E_CORRUPT, "table", "table", set(T, 4, 1 << 22, 4); set(T, 16, 1 << 17, 8)); /* 2.75 MiB */
    BREAK_TABLE(PICI_E_CORRUPT, "table", "table", set(T, 16, UINT64_C(1) << 40, 8));
    BREAK_TABLE(PICI_E_CORRUPT, "name", "name", memcpy(T->body + 32, "empty", 5));
    BREAK_TABLE(PICI_E_CORRUPT, "name", "name", memcpy(T->body + 32, "coo\0\0", 5); set(T, 8, 3, 4));

    BREAK_TABLE(PICI_E_CORRUPT, "block-tensor", "block-tensor", set(T, 16, 1, 8)); /* 11 elements of 33 */
    BREAK_TABLE(PICI_E_CORRUPT, "block-tensor", "block-tensor", set(T, 0, PICI_I16, 1));
    BREAK_TABLE(PICI_E_CORRUPT, "block-tensor", "", set(T, 64 + 16, 1, 8)); /* "empty" has one, and so a chunk */
    BREAK_TABLE(PICI_E_CHECKSUM, "body-hash", "body-hash", set(&F->part[COMMON], 50, 7, 1));

    /* the tensor with the fault is named, not the first of the table */
    struct sink k = {0};
    char words[512];
    struct parts *f = tabled();
    set(&f->part[IN_TABLE], 64, 0, 1);
    put_together(&k, f);
    cr_assert_eq(all_forward(k.p, k.len, 0, words), PICI_E_CORRUPT);
    cr_assert(strstr(words, "tensor 2 at byte"), "%s", words);

    /* an index that tells something else of the table than its record */
    f = tabled();
    put_together(&k, f);
    const size_t at = (size_t)load_le64(k.p + k.len - 32), len = (size_t)load_le64(k.p + at + 8);
    memcpy(f->index.body, k.p + at + 32, len);
    f->index.len = len;
    uint8_t *name = NULL;
    for (size_t i = 0; i + 5 <= len && !name; i++)
        name = memcmp(f->index.body + i, "dense", 5) ? NULL : f->index.body + i;
    cr_assert_not_null(name);
    name[0] = 'D';
    put_together(&k, f);
    enum pici_status s = all_forward(k.p, k.len, 0, words);
    cr_assert(s == PICI_E_CORRUPT && strstr(words, "(index)"), "%d, %s", s, words);
    s = all_random(k.p, k.len, 0, words);
    cr_assert(s == PICI_E_CORRUPT && strstr(words, "not as the index describes the tensors (index)"), "%d, %s", s,
              words);
    sink_free(&k);
}

/* No bytes, in memory that is there or null, by each way to open: a truncated file. */
Test(file_rules, no_bytes)
{
    struct source from = {.p = NULL};
    struct pici_reader *r;
    for (int how = 0; how < 4; how++) {
        enum pici_status s = how == 0   ? pici_reader_open_memory(&r, NULL, 0, NULL)
                             : how == 1 ? pici_reader_open_memory(&r, "", 0, NULL)
                             : how == 2 ? pici_reader_open_stream(&r, source_read, &from, NULL)
                                        : pici_reader_open_path(&r, "/dev/null", NULL);
        if (how == 3) {
            cr_assert(s == PICI_E_ARG && strstr(pici_reader_error(r), "not a regular file"));
        } else {
            cr_assert_eq(s, PICI_E_CORRUPT, "%d: %d", how, s);
            cr_assert_not_null(strstr(pici_reader_error(r), "(truncated)"), "%s", pici_reader_error(r));
            cr_assert_eq(pici_reader_error_offset(r), 0);
            cr_assert_eq(pici_reader_verify(r), PICI_E_CORRUPT);
        }
        pici_reader_close(r);
    }
    cr_assert_eq(pici_reader_open_memory(&r, NULL, 1, NULL), PICI_E_ARG);
    cr_assert_null(r);
}

/* ---- claims ---- */

/* No more memory than this from now on. */
static void limit_memory(size_t more)
{
#ifdef SANITIZED
    (void)more; /* a sanitizer's own memory is beyond any such limit */
#else
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%lu", &pages) != 1) {
        printf("skip: limiting memory: no /proc/self/statm\n");
        return;
    }
    fclose(f);
    struct rlimit l;
    cr_assert_eq(getrlimit(RLIMIT_AS, &l), 0);
    l.rlim_cur = pages * 4096 + more;
    cr_assert_eq(setrlimit(RLIMIT_AS, &l), 0);
#endif
}

/* What a file claims but does not hold costs no memory. */
Test(file_rules, claims)
{
    limit_memory(24 << 20);
    for (int shift = 24; shift < 61; shift += 4) { /* elements */
        BREAK(PICI_E_CORRUPT, "block-tensor", "index", set(&F->part[COO], 16, UINT64_C(1) << shift, 8);
              set(&F->part[COO], 4, 1 << 22, 4));
        BREAK(PICI_E_CORRUPT, "block-tensor", "index", set(&F->part[COO], 16, UINT64_C(1) << shift, 8));
    }
    BREAK(PICI_E_CORRUPT, "block-tensor", "index", set(&F->part[SAME], 16, 1000, 8)); /* the last in the index */
    for (int shift = 4; shift < 22; shift++)                                          /* a name */
        BREAK(PICI_E_CORRUPT, "description", "description", set(&F->part[COO], 8, 1 << shift, 4));
    for (int shift = 5; shift < 32; shift++) { /* attributes, and how many */
        BREAK(PICI_E_CORRUPT, "attributes", "attributes", set(&F->part[META], 12, UINT32_C(1) << shift, 4));
        BREAK(PICI_E_CORRUPT, "attributes", "attributes", set(&F->part[META], 0, UINT32_C(1) << shift, 4));
        BREAK(PICI_E_CORRUPT, "attributes", "attributes", set(&F->part[DENSE], 12, UINT32_C(1) << shift, 4));
    }
    /* lengths of bodies within their limits, which the file ends before */
    BREAK(PICI_E_CORRUPT, "truncated", "index", F->part[META].claims = 1 << 28);
    BREAK(PICI_E_CORRUPT, "truncated", "index", F->part[COO].claims = 1 << 24);
    BREAK(PICI_E_CORRUPT, "truncated", "index", set(&F->part[SAME], 4, 1 << 22, 4); set(&F->part[SAME], 16, 1 << 22, 8);
          F->part[SAME_0].claims = (1 << 22) * 8 + 48);
    for (int shift = 8; shift < 64; shift++) { /* of tensors, by the index */
        struct sink k = {0};
        char words[512];
        struct parts *f = fresh();
        f->index.len = 40;
        store_le64(f->index.body, UINT64_C(1) << shift);
        put_together(&k, f);
        cr_assert_eq(all_random(k.p, k.len, 0, words), PICI_E_CORRUPT);
        sink_free(&k);
    }
}
