/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Parses the header of NumPy's .npy files, versions 1.0, 2.0 and 3.0. The result says how the data that follow are
 * stored in a .pici file: as which dtype, how many elements, and from which byte order.
 *
 * Reading has two steps, so that it works on a pipe:
 *     read NPY_PREFIX_BYTES bytes;   pici_npy_header_bytes() gives the length of the header
 *     read the rest of the header;   pici_npy_parse() parses it
 * Nothing is allocated. Nothing is read outside the bytes given. Every number is checked before it is used. */
#ifndef PICI_LIB_PARSE_NPY_H
#define PICI_LIB_PARSE_NPY_H

#include "pici/pici.h"

#include "parse/parse.h"

enum {
    NPY_PREFIX_BYTES = 12,        /* magic, version, length of the text. Every .npy file is longer */
    NPY_MAX_HEADER_TEXT = 1 << 20 /* bytes of header text, from its length field; longer is refused */
};
#define NPY_MAX_HEADER_BYTES (NPY_PREFIX_BYTES + NPY_MAX_HEADER_TEXT) /* room for any header accepted */

enum { NPY_MAX_RANK = 64 }; /* as in NumPy 2 */

/* A parsed header. The data are data_bytes bytes from data_offset on, and are taken as count elements of dtype.
 *
 *   descr                 dtype  item_elements
 *   b1 (any byte value)   u8     1
 *   i1 ... i8, u1 ... u8  i8 ... i64, u8 ... u64   1
 *   f2 f4 f8              f16, f32, f64            1
 *   c8 c16                f32, f64                 2 (so that a zero component is seen)
 *   f12 f16 c24 c32       u8     bytes of the item (long doubles of the machine that wrote them)
 *   M8 m8 [unit]          i64    1
 *   Sn Vn, structured     u8     bytes of the item
 *   Un                    u32    n
 *   O, and structures that hold one: rejected, because their data are a pickle */
struct npy {
    enum pici_dtype dtype;
    bool swap;                    /* the file's bytes are big-endian, in units of dtype; false for one-byte dtypes.
                                     '=' and '|' and no mark at all count as little-endian */
    bool fortran_order;           /* the first index is the fastest. The order of the data does not change */
    unsigned rank;                /* dimensions; 0: a scalar, of one item */
    uint64_t shape[NPY_MAX_RANK]; /* as the header has it, in items */
    uint64_t items;               /* product of shape */
    uint64_t item_elements;       /* elements of dtype that make up one item; 0 for items of no bytes ('S0') */
    uint64_t count;               /* items * item_elements */
    uint64_t data_offset;         /* length of the header, prefix included */
    uint64_t data_bytes;          /* count * width of dtype; data_offset + data_bytes is below 2^63 */
    uint64_t trailing_bytes;      /* bytes of the file after the data; 0 where the file's length is unknown */
    bool plain;                   /* dtype (for c8 and c16, two of it) describes the type completely */
    uint32_t type_at, type_bytes; /* where 'descr' is in the header, as a literal with its quotes */
    char descr[64]; /* 'descr' for messages: <f4, |b1, [('x', '<f8'), ...; printable ASCII, shortened to fit */
};

/* How many bytes the header has.
 *   first [size bytes]  the beginning of the file, size >= NPY_PREFIX_BYTES unless the file is shorter (an error)
 *   need  out          length of the header, prefix included: data_offset. At most NPY_MAX_HEADER_BYTES
 * False, with *error set: not a .npy file, a version other than 1.0, 2.0, 3.0, or a header above the limit. */
bool pici_npy_header_bytes(uint64_t *need, const uint8_t *first, size_t size, struct parse_error *error);

/* Parse a header.
 *   head [size bytes]  the beginning of the file, as long as pici_npy_header_bytes says; later bytes are ignored
 *   file_bytes        length of the whole file, or UINT64_MAX when unknown (a pipe: the caller must then check that
 *                     data_bytes bytes follow, and keep what comes after them)
 * False, with *error set and *output unspecified: a header that is not NumPy's, an object dtype, a shape whose data
 * exceed 2^63 bytes, a file too short for its shape. This is stricter than NumPy, which uses Python's parser, about
 * spellings that no known writer uses (hexadecimal numbers, dtype names as 'float32', duplicate keys). It is laxer in
 * two points: names of fields may be equal, and long doubles of other machines are accepted. */
bool pici_npy_parse(struct npy *output, const uint8_t *head, size_t size, uint64_t file_bytes,
                    struct parse_error *error);

/* A type as 'descr' has it. */
struct npy_type {
    enum pici_dtype dtype;
    uint64_t item_elements; /* elements of dtype that make up one item */
    bool swap;              /* its elements are big-endian */
    bool plain;             /* as in struct npy */
};

/* Parse a type: the literal [size bytes], with quotes or brackets, as UTF-8, and nothing else. False: not a type, or
 * out of memory. */
bool pici_npy_type(struct npy_type *, const char *literal, size_t size);

/* Write a header for elements of such a type, which are little-endian unless it is a structure or of single bytes.
 * shape counts items. New memory of *size bytes, or NULL: it is no type, or out of memory. */
char *pici_npy_typed_header(size_t *size, const char *literal, size_t literal_len, bool fortran_order,
                            const uint64_t *shape, unsigned rank);

/* The literal of a header that pici_npy_parse has accepted, as UTF-8, in new memory of *size bytes. NULL: out of
 * memory. */
char *pici_npy_literal(size_t *size, const uint8_t *head, const struct npy *);

enum { NPY_WRITE_RANK = 32, NPY_WRITE_ROOM = 1024 };

/* The meaning of a dtype's elements: numbers; booleans (u8); the two parts of complex numbers (f32 and f64). OTHER:
 * types of safetensors and of torch that NumPy lacks, such as FNUZ and complex32. */
enum npy_meaning { NPY_NUMBER, NPY_BOOL, NPY_COMPLEX, NPY_OTHER };

/* The meaning of elements of a dtype, from the name of their type in the original file: a descr of NumPy, or a name of
 * safetensors or torch. NPY_NUMBER if NumPy has no such type. */
enum npy_meaning pici_npy_meaning_of(const char *source_dtype, size_t size, enum pici_dtype);

/* Write a header of version 1.0 for little-endian elements of a shape of at most NPY_WRITE_RANK dimensions, which
 * counts complex numbers, not their parts; returns its length. NumPy has no names for bf16 and f8; they become V2 and
 * V1, as NumPy writes ml_dtypes' types. */
size_t pici_npy_write_header(char output[NPY_WRITE_ROOM], enum pici_dtype, enum npy_meaning, bool fortran_order,
                             const uint64_t *shape, unsigned rank);

#endif
