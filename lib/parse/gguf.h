/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Parses the header of GGUF files of version 2 and 3, little- and big-endian: keys with values, then for each tensor
 * its name, type, dimensions and offset. The tensors follow, aligned.
 *
 * The header does not say how long it is, so reading it is a loop, which works on a pipe:
 *     struct gguf_scan scan = {0};
 *     for (uint64_t need = 0;;) {
 *         pici_gguf_header_bytes(&scan, &need, head, size, &error);
 *         if (need <= size) break;
 *         read up to need bytes in all, or to the end of the file;
 *     }
 *     pici_gguf_parse(...)
 *
 * The parser skips values, except general.alignment. It enforces these rules of the format. Types of values and tensors
 * are known. There are no arrays of arrays. The alignment is a power of two. Names of tensors are unique. A tensor has
 * at most four dimensions, and a size without overflow in whole blocks. Tensors do not overlap, and lie inside the
 * file. Unlike the reference implementation, this parser accepts gaps of any length between tensors. */
#ifndef PICI_LIB_PARSE_GGUF_H
#define PICI_LIB_PARSE_GGUF_H

#include "pici/pici.h"

#include "parse/parse.h"

enum {
    GGUF_MAX_RANK = 4,
    GGUF_MAX_HEADER = 100000000,
    GGUF_MAX_ALIGNMENT = 1 << 20,
    GGUF_NAME_ROOM = 64 /* bytes of the name of a filler, with its NUL */
};

/* The state of scanning a header. Begin with zeros. */
struct gguf_scan {
    enum { GGUF_PREFIX, GGUF_KEYS, GGUF_TENSORS, GGUF_END } stage;
    bool big_endian, aligned; /* aligned: the alignment was given */
    uint32_t alignment;
    uint64_t position;         /* bytes scanned so far */
    uint64_t asked;            /* what the last call returned as *need */
    uint64_t strings, keys;    /* still to come */
    uint64_t tensors, left;    /* all tensors of the file; those still to come */
    uint64_t tensors_position; /* where they begin in the header */
};

/* One tensor, or a filler: bytes of the file that are in no tensor. Its end - begin bytes are taken as count elements
 * of dtype, in the file's byte order. Quantized blocks are u8, as they are. */
struct gguf_tensor {
    const char *name; /* NUL-terminated; may be empty, may hold NULs and controls. NULL: a filler, */
    size_t name_bytes;
    uint64_t number;          /* and its number among these */
    const char *source_dtype; /* the format's name, such as "BF16" or "Q4_K"; static */
    enum pici_dtype dtype;
    unsigned rank;
    uint64_t shape[GGUF_MAX_RANK]; /* [rank] the last index is the fastest, other than in the file; of blocks, the last
                                      counts bytes */
    uint64_t count;                /* the product of shape */
    uint64_t begin, end;           /* bytes of the file */
    uint64_t header_offset;        /* of its description, for messages */
};

/* A parsed header. */
struct gguf {
    struct gguf_tensor *tensors; /* [count] in the order of their data: each begins where the one before it ends, the
                                    first at data_offset */
    size_t count;
    uint64_t fillers; /* fillers among them */
    uint64_t data_offset;
    uint64_t end; /* of the last one; the file's length, if that is known */
    bool big_endian;
    char stem[32]; /* the beginning of fillers' names */
    char *names;   /* owned: the storage of names */
};

/* Find the least number of bytes that the header needs.
 *   head [size bytes]  the beginning of the file, at least as long as the last *need unless the file is shorter (error)
 *   need  out          <= size: it is complete, and so long
 * Each call continues where the last one ended. False, with *error set: a rule is broken, or a header above the
 * limit. */
bool pici_gguf_header_bytes(struct gguf_scan *scan, uint64_t *need, const uint8_t *head, size_t size,
                            struct parse_error *error);

/* Parse a header.
 *   output      freed by the caller with pici_gguf_free; needs none after false
 *   scan, head  of a complete header; head may be freed afterwards
 *   file_bytes  length of the whole file, or UINT64_MAX when unknown (a pipe: bytes after output->end are the last
 *               filler then, which output does not list)
 * Memory is proportional to the header. False, with *error set: a rule is broken, or out of memory. */
bool pici_gguf_parse(struct gguf *output, const struct gguf_scan *scan, const uint8_t *head, uint64_t file_bytes,
                     struct parse_error *error);

/* The name of a filler. Returns buffer. */
char *pici_gguf_filler(const struct gguf *, uint64_t number, char buffer[GGUF_NAME_ROOM]);

/* Release what pici_gguf_parse allocated. */
void pici_gguf_free(struct gguf *);

#endif
