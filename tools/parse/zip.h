/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Parses the directory of a zip file as torch.save (.pt) and numpy.savez (.npz) write them, with or without zip64:
 * where the bytes of the entries are, and whether these are compressed. Nothing is decompressed; unzip.h does that.
 *
 * A file is refused unless all this holds: values that a zip file stores twice agree; local headers and data do not
 * overlap; the directory ends where the end records begin, and these end the file, but for zeros in its last 64 KiB;
 * there is one disk; nothing is encrypted; names are unique, relative, and without a component "..". Checksums of data
 * are not checked. */
#ifndef PICI_TOOLS_PARSE_ZIP_H
#define PICI_TOOLS_PARSE_ZIP_H

#include "pici/file.h"

#include "parse/parse.h"

enum { ZIP_MAX_DIRECTORY = 256 << 20 /* bytes; longer is refused */ };

struct zip_entry {
    const char *name; /* [name_size], then a NUL; any bytes but NUL */
    size_t name_size;
    bool stored;         /* not compressed */
    unsigned method;     /* of compression */
    uint32_t crc;        /* CRC-32 of its bytes before compression */
    uint64_t bytes;      /* their number */
    uint64_t header;     /* where its local header begins */
    uint64_t begin, end; /* offsets of its data in the file */
};

struct zip {
    struct zip_entry *entries; /* [count] in the order of their bytes */
    size_t count;
    char *names; /* owned: the storage of all names */
};

/* Parse the directory of a file of file_bytes bytes, which are read with read_at.
 *   out   freed by the caller with zip_free; needs none after false
 * Memory is proportional to the directory. False, with *error set: not such a zip file, out of memory, or read_at
 * failed. */
bool zip_open(struct zip *out, pici_read_at_fn read_at, void *context, uint64_t file_bytes, struct parse_error *error);

void zip_free(struct zip *);

#endif
