/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The directory of a zip file, as torch.save writes them (.pt), with or without zip64: where the bytes of its entries are.
 * Whether these are compressed is said, and nothing is decompressed.
 *
 * What a zip says in two places must agree, and entries are byte ranges of their own: local headers and data do not
 * overlap; the directory ends where the end records begin, and these end the file; there is one disk; nothing is encrypted;
 * names are unique. All else is an error. Checksums of data are not looked at. */
#ifndef PICI_TOOLS_PARSE_ZIP_H
#define PICI_TOOLS_PARSE_ZIP_H

#include "pici/file.h"

#include "parse/parse.h"

enum { ZIP_MAX_DIRECTORY = 256 << 20 /* bytes; longer is refused */ };

struct zip_entry {
    const char *name; /* [name_len], then a NUL; any bytes but NUL */
    size_t name_len;
    bool stored;         /* as it is */
    unsigned method;     /* of compression */
    uint64_t header;     /* where its local header begins */
    uint64_t begin, end; /* its bytes in the file */
};

struct zip {
    struct zip_entry *entries; /* [count] in the order of their bytes */
    size_t count;
    char *names; /* owned: the storage of all names */
};

/* Understand a file of file_bytes bytes, of which read_at gives any.
 *   out   freed by the caller with zip_free; needs none after false
 * Allocates in proportion to the directory that is there. False, with *err set: no such zip, out of memory, or read_at
 * failed. */
bool zip_open(struct zip *out, pici_read_at_fn read_at, void *ctx, uint64_t file_bytes, struct parse_error *err);

void zip_free(struct zip *);

#endif
