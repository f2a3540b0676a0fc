/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reads the bytes of an entry of a zip file piece by piece, inflating them if they are deflated (which takes zlib), and
 * finds the level at which zlib would deflate them to the very bytes that the file has. */
#ifndef PICI_TOOLS_PARSE_UNZIP_H
#define PICI_TOOLS_PARSE_UNZIP_H

#include "parse/zip.h"

enum { ZIP_STORED = 0, ZIP_DEFLATED = 8 }; /* methods */
enum { UNZIP_LEVELS = 9 };                 /* of deflating: 1 to 9 */

/* Whether this build has zlib; and its version, "" without it. */
bool unzip_inflates(void);
const char *unzip_version(void);

struct unzip {
    const struct zip_entry *entry;
    pici_read_at_fn read_at;
    void *context;
    struct parse_error *error;
    uint64_t position;  /* of the file: the next byte of the entry's data to read */
    uint64_t remaining; /* bytes of the entry that have not been taken */
    uint32_t crc;       /* of those that have */
    bool ended;
    struct inflating *inflating; /* NULL: the entry is stored */
};

/* Begin to read an entry, which must outlive unzip, as error must. False, with *error set: a method that this build
 * does not read, a length that no deflated data have, or out of memory. unzip then needs no unzip_close. */
bool unzip_open(struct unzip *unzip, const struct zip_entry *, pici_read_at_fn read_at, void *context,
                struct parse_error *error);

/* Take the next size bytes, at most unzip->left. With the last of them, or with size of 0 if there are none left, the
 * data's end and CRC-32 are checked. False, with *err set: the data are damaged, or read_at failed. */
bool unzip_take(struct unzip *unzip, void *buffer, size_t size);

void unzip_close(struct unzip *unzip);

/* What finding the levels of all entries of a file may cost, and has cost. */
struct unzip_effort {
    int level;         /* the one that is tried first: of the last entry that had one; 0: zlib's default */
    uint64_t spare;    /* bytes that several levels at a time may still deflate, beyond those of one */
    uint64_t deflated; /* bytes that all levels have deflated */
};

/* Read and check a whole deflated entry, and find the level of zlib that makes the same bytes of it again, with zlib's
 * other parameters at their defaults. *level is 0 if none was found; *crc is the CRC-32 of the deflated bytes
 * otherwise. A level is given up at the first byte that differs. If several differ from none for so long that nothing
 * is to spare, only one of them is tried to the end. So the entry is inflated at most twice, and deflated at most twice
 * and what there was to spare. Memory does not depend on the entry. False, with *error set, as above. */
bool unzip_level(int *level, uint32_t *crc, struct unzip_effort *, const struct zip_entry *, pici_read_at_fn read_at,
                 void *context, struct parse_error *error);

/* Deflates bytes, as zlib does at a level, and counts what comes out. */
struct deflater;

/* NULL: out of memory, or this build has no zlib. */
struct deflater *deflater_new(int level);

/* Deflate the next size bytes and give put what comes out; after the last ones, also what zlib has kept. Returns 0, or
 * what put returned if it is not 0. */
int deflater_put(struct deflater *deflater, const void *bytes, size_t size, bool last, pici_write_fn put,
                 void *context);

/* The length and the CRC-32 of all that has come out. */
uint64_t deflater_bytes(const struct deflater *);
uint32_t deflater_crc(const struct deflater *);

void deflater_free(struct deflater *);

#endif
