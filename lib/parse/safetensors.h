/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Parses the header of .safetensors files: eight bytes of length, a JSON object, then the data of all tensors without
 * gaps.
 *
 * Reading has two steps, so that it works on a pipe:
 *     read SAFETENSORS_PREFIX_BYTES bytes;   pici_safetensors_header_bytes() gives the length of the header
 *     read the rest of the header;           pici_safetensors_parse() parses it
 *
 * The parser enforces all rules of the format. The header is strict JSON in valid UTF-8, without duplicates of keys
 * that have a meaning. "__metadata__" is a map of text to text. Each tensor has dtype, shape and data_offsets. Offsets
 * begin at 0, leave no gap and end with the file. A tensor's size is dtype x shape, without overflow, in whole bytes.
 * Like the reference implementation, which goes beyond its specification, this parser accepts null as "__metadata__",
 * and white space before the opening brace. It also accepts other keys in a tensor, with any values. The reference
 * implementation also accepts duplicate names, and a tensor as a list; this parser does not. */
#ifndef PICI_LIB_PARSE_SAFETENSORS_H
#define PICI_LIB_PARSE_SAFETENSORS_H

#include "pici/pici.h"

#include "parse/parse.h"

enum {
    SAFETENSORS_PREFIX_BYTES = 8,
    SAFETENSORS_MAX_HEADER_TEXT = 100000000 /* the reference implementation's limit */
};

/* One tensor. Its end - begin bytes are taken as count elements of dtype, little-endian as all data of the format.
 *
 *   source dtype                                      dtype  item_elements
 *   F32 F64 F16 BF16 F8_E4M3 F8_E5M2, I8 ... U64      its namesake          1
 *   BOOL F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ              u8                    1
 *   C64                                               f32                   2 (so that a zero component is seen)
 *   F4 F6_E2M3 F6_E3M2                                u8                    0: items are smaller than a byte */
struct safetensors_tensor {
    const char *name;         /* UTF-8, escapes resolved, NUL-terminated; may be empty, may hold NULs and controls */
    size_t name_bytes;        /* without the terminator */
    const char *source_dtype; /* the file's own word, as "BF16"; static */
    enum pici_dtype dtype;    /* in a .pici file */
    unsigned item_elements;   /* elements of dtype that make up one item; 0: items are smaller than a byte */
    unsigned item_bits;
    unsigned rank;          /* dimensions; 0: a scalar, of one item */
    const uint64_t *shape;  /* [rank] as in the file, in items; NULL if rank is 0 */
    uint64_t items;         /* product of shape */
    uint64_t count;         /* elements of dtype: (end - begin) / width */
    uint64_t begin, end;    /* bytes of the file, from its very beginning (data_offsets + header) */
    uint64_t header_offset; /* of its name in the header, for messages */
};

/* A parsed header. */
struct safetensors {
    struct safetensors_tensor *tensors; /* [count] in the order of their data: each begins where the one before it ends
                                           (empty tensors at the same place: in the order of the header) */
    size_t count;
    size_t metadata_count; /* entries of "__metadata__" */
    uint64_t data_offset;  /* length of the header, prefix included; the first tensor's begin */
    uint64_t file_bytes;   /* what the file's length must be: the end of the last tensor */
    char *names;           /* owned: the storage of all names, */
    uint64_t *shapes;      /* and of all shapes */
};

/* How many bytes the header has.
 *   first [size bytes]  the beginning of the file, size >= SAFETENSORS_PREFIX_BYTES unless the file is shorter (error)
 *   need  out          length of the header, prefix included
 * False, with *error set: a file too short, or a header above the limit. */
bool pici_safetensors_header_bytes(uint64_t *need, const uint8_t *first, size_t size, struct parse_error *error);

/* Parse a header.
 *   output            freed by the caller with pici_safetensors_free; needs none after false
 *   head [size bytes]  the beginning of the file, as long as pici_safetensors_header_bytes says. Later bytes are
 *   ignored.
 *                     head may be freed afterwards
 *   file_bytes        length of the whole file, or UINT64_MAX when unknown (a pipe: the caller must then check that
 *                     the file ends at output->file_bytes)
 * Memory is proportional to the text's length, not to its claims. False, with *error set: a rule is broken, or out of
 * memory. */
bool pici_safetensors_parse(struct safetensors *output, const uint8_t *head, size_t size, uint64_t file_bytes,
                            struct parse_error *error);

/* The shape of a tensor in a .pici file, in elements of its dtype, as pici_parse_shape gives it. For items smaller than
 * a byte, the last dimension counts bytes if it fills whole bytes; else the shape is [count]. */
void pici_safetensors_shape(const struct safetensors_tensor *tensor, uint64_t shape[PICI_RANK_MAX], unsigned *rank);

/* Release what pici_safetensors_parse allocated. */
void pici_safetensors_free(struct safetensors *);

#endif
