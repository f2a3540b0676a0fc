/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Parses the directory of a zip file as torch.save (.pt) and numpy.savez (.npz) write it, with or without zip64. It
 * finds the bytes of the entries, and whether they are compressed. unzip.h decompresses them.
 *
 * Enforces these rules. Values that a zip file stores twice agree. Local headers and data do not overlap. The directory
 * ends at the end records, and only zeros, in the last 64 KiB, follow these. There is one disk, and nothing is
 * encrypted. Names are unique, relative, and without a component "..". Does not check the CRC-32 of data. */
#ifndef PICI_TOOLS_PARSE_ZIP_H
#define PICI_TOOLS_PARSE_ZIP_H

#include "pici/file.h"

#include "parse/parse.h"

enum { ZIP_MAX_DIRECTORY = 256 << 20 /* bytes; longer ones are rejected */ };

struct zip_entry {
    const char *name; /* [name_size], then a NUL; any bytes but NUL */
    size_t name_size;
    bool stored;         /* not compressed */
    unsigned method;     /* compression method */
    uint32_t crc;        /* CRC-32 of its uncompressed bytes */
    uint64_t bytes;      /* its uncompressed length */
    uint64_t header;     /* offset of its local header */
    uint64_t begin, end; /* offsets of its data in the file */
};

struct zip {
    struct zip_entry *entries; /* [count] in file order */
    size_t count;
    char *names; /* owned: the storage of all names */
};

/* Parse the directory of a file of file_bytes bytes; reads with read_at.
 *   out   the caller frees it with zip_free, unless the result is false
 * Memory is proportional to the directory. False, with *error set: not such a zip file, memory ran out, or read_at
 * failed. */
bool zip_open(struct zip *out, pici_read_at_fn read_at, void *context, uint64_t file_bytes, struct parse_error *error);

void zip_free(struct zip *);

#endif
