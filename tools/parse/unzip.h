/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reads the bytes of a zip entry piece by piece; inflates deflated ones, if the build has zlib. Finds the level at
 * which zlib deflates them to the same bytes as the file's. */
#ifndef PICI_TOOLS_PARSE_UNZIP_H
#define PICI_TOOLS_PARSE_UNZIP_H

#include "parse/zip.h"

enum { ZIP_STORED = 0, ZIP_DEFLATED = 8 }; /* methods */
enum { UNZIP_LEVELS = 9 };                 /* deflate levels 1 to 9 */

/* Whether this build has zlib; and its version, "" without it. */
bool unzip_inflates(void);
const char *unzip_version(void);

struct unzip {
    const struct zip_entry *entry;
    pici_read_at_fn read_at;
    void *context;
    struct parse_error *error;
    uint64_t position;  /* file offset of the next byte to read */
    uint64_t remaining; /* bytes of the entry not taken yet */
    uint32_t crc;       /* CRC-32 of the bytes taken */
    bool ended;
    struct inflating *inflating; /* NULL: the entry is stored */
};

/* Begin to read an entry. The entry and error must outlive unzip. False, with *error set: this build does not support
 * the method, the length is impossible for deflated data, or memory ran out. unzip then needs no unzip_close. */
bool unzip_open(struct unzip *unzip, const struct zip_entry *, pici_read_at_fn read_at, void *context,
                struct parse_error *error);

/* Take the next `size` bytes, at most unzip->remaining. With the last of them, or with size 0 if none are left, checks
 * the end of the data and the CRC-32. False, with *error set: the data is damaged, or read_at failed. */
bool unzip_take(struct unzip *unzip, void *buffer, size_t size);

void unzip_close(struct unzip *unzip);

/* The limit and the cost of finding the levels of all entries of a file. */
struct unzip_effort {
    int level;         /* tried first: the last level found; 0: zlib's default */
    uint64_t spare;    /* bytes left for deflating at several levels at a time, in addition to one level's */
    uint64_t deflated; /* bytes deflated so far, at all levels */
};

/* Read and check a whole deflated entry, and find the level at which zlib reproduces its bytes, with zlib's other
 * parameters at their defaults. *level is 0 if there is none; else *crc is the CRC-32 of the deflated bytes. A level is
 * dropped at its first byte that differs. If several levels remain when `spare` is used up, only one is tried to the
 * end. So the entry is inflated at most twice, and deflated at most twice plus `spare`. Memory does not depend on the
 * entry. False, with *error set, as above. */
bool unzip_level(int *level, uint32_t *crc, struct unzip_effort *, const struct zip_entry *, pici_read_at_fn read_at,
                 void *context, struct parse_error *error);

/* Deflates bytes with zlib at a level, and counts the output. */
struct deflater;

/* NULL: out of memory, or this build has no zlib. */
struct deflater *deflater_new(int level);

/* Deflate the next `size` bytes and pass the output to put; after the last bytes, also the output that zlib has kept.
 * Returns 0, or the first result of put that is not 0. */
int deflater_put(struct deflater *deflater, const void *bytes, size_t size, bool last, pici_write_fn put,
                 void *context);

/* The length and the CRC-32 of the output so far. */
uint64_t deflater_bytes(const struct deflater *);
uint32_t deflater_crc(const struct deflater *);

void deflater_free(struct deflater *);

#endif
