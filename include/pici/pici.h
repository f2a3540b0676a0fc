/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici: lossless blocks for dense buffers that are mostly zero.
 *
 * A block is one run of n elements of one dtype, encoded; it carries its own length, format and dtype. "Nonzero" means
 * that some bit of the element is set, so that -0.0, NaN payloads and denormals survive exactly. The bytes of a block are
 * specified in formats/block.md and formats/hybrid.md and are the same from every CPU, at any thread count.
 *
 * Every function returns a status and is thread-safe. The codec allocates nothing, needs up to 160 KiB of stack (384 KiB
 * with threads > 1), and keeps no state but the choice of CPU kernels, made at the first call (environment variable
 * PICI_CPU=scalar|avx2|avx512 lowers it; any other value is ignored). opts == NULL means PICI_OPTS_INIT. */
#ifndef PICI_PICI_H
#define PICI_PICI_H

#include <stddef.h>
#include <stdint.h>

#if defined(PICI_BUILD) && defined(__GNUC__)
#define PICI_API __attribute__((visibility("default")))
#else
#define PICI_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define PICI_VERSION "0.1.0"

enum pici_status {
    PICI_OK = 0,

    /* your call */
    PICI_E_ARG = -1,         /* null, out of range, overlapping, or a struct size that never existed */
    PICI_E_SPACE = -2,       /* the output does not fit in its capacity */
    PICI_E_UNSUPPORTED = -3, /* valid, but not in this build or version */

    /* your data */
    PICI_E_CORRUPT = -20,  /* breaks a rule of the format */
    PICI_E_VERSION = -21,  /* a version of the format that this library does not know */
    PICI_E_CHECKSUM = -22, /* the bytes are not those that were written */

    /* the world */
    PICI_E_NOMEM = -40,
    PICI_E_IO = -41,
    PICI_E_PEER = -42,
    PICI_E_TRANSPORT = -43,
    PICI_E_TIMEOUT = -44,
    PICI_E_DEVICE = -45,
    PICI_E_BROKEN = -46 /* a communicator after an error */
};

/* A sentence without a full stop; static. Any value is answered. */
PICI_API const char *pici_strerror(enum pici_status);

/* The version of the library that runs, as PICI_VERSION is that of the header compiled against; static. */
PICI_API const char *pici_version(void);

enum pici_dtype {
    PICI_F32 = 1,
    PICI_F64,
    PICI_F16,
    PICI_BF16,
    PICI_F8E4M3, /* OCP: no infinity */
    PICI_F8E5M2,
    PICI_I8,
    PICI_U8,
    PICI_I16,
    PICI_U16,
    PICI_I32,
    PICI_U32,
    PICI_I64,
    PICI_U64
};

/* Bytes of an element: 1, 2, 4 or 8; 0 for a dtype that does not exist. */
PICI_API size_t pici_dtype_width(enum pici_dtype);

/* "f32", "bf16", ...; NULL for a dtype that does not exist; static. */
PICI_API const char *pici_dtype_name(enum pici_dtype);

enum pici_format {
    PICI_DENSE = 0,  /* the elements as they are */
    PICI_PICI = 1,   /* a bitvector in 64 x 64 tiles, a prefix sum a tile, the nonzero values */
    PICI_COO = 2,    /* positions and values */
    PICI_HYBRID = 3, /* in each tile of 4096 elements the smallest of offsets, a bitvector and the elements */
    PICI_AUTO = 255  /* the smallest; ties go to the lowest number; the choice may change between versions */
};

/* "dense", "pici", "coo", "hybrid", "auto"; NULL for a format that does not exist; static. */
PICI_API const char *pici_format_name(enum pici_format);

/* Options. Set with PICI_OPTS_INIT; size tells versions of the struct apart: what a later version added must be zero
 * (PICI_E_UNSUPPORTED), and less than this one is PICI_E_ARG. */
struct pici_opts {
    size_t size;
    int threads;  /* 1; 0: one for each core of the process's affinity mask; never more than the work is worth */
    int checksum; /* 0; 1: store an XXH64 of the block. Readers check it wherever it is present */
};
#define PICI_OPTS_INIT {sizeof(struct pici_opts), 1, 0}

/* What a header says. Set size with PICI_INFO_INIT. */
struct pici_info {
    size_t size;
    enum pici_format format;
    enum pici_dtype dtype;
    uint64_t count;     /* elements of the dense run */
    uint64_t nnz;       /* values stored (dense: count) */
    size_t block_bytes; /* length of the whole block */
};
#define PICI_INFO_INIT {sizeof(struct pici_info), PICI_DENSE, PICI_F32, 0, 0, 0}

/* Bytes of the longest block of n elements (AUTO: of dense's). 0 if format or dtype is unknown or the length is beyond
 * size_t. Never less than 48 otherwise. */
PICI_API size_t pici_bound(enum pici_format, enum pici_dtype, uint64_t n);

/* Encode n elements of src as one block.
 *   block [cap bytes]            undefined unless PICI_OK; any alignment; must not overlap src
 *   len   out, bytes             0 unless PICI_OK
 *   src   [n elements of dtype]  any alignment, host byte order
 * Fits whenever cap >= pici_bound(format, dtype, n), and whenever the block itself fits in cap. On an
 * error block either was not touched (a bad argument) or does not begin with a valid header.
 * PICI_E_ARG: unknown dtype or format, null (src: with n > 0), overlap, n beyond memory. PICI_E_SPACE: did not fit.
 * Allocates nothing; threads > 1 start and join threads. Layout: formats/block.md, formats/hybrid.md. */
PICI_API enum pici_status pici_compress(void *block, size_t cap, size_t *len, const void *src, uint64_t n,
                                        enum pici_dtype, enum pici_format, const struct pici_opts *);

/* Decode a block to the n elements that it was made of.
 *   dst   [n elements]  any alignment, host byte order; unspecified unless PICI_OK; must not overlap block
 *   block [len bytes]   any bytes at all: every rule of the format is checked
 * PICI_E_ARG: null, overlap, n is not the block's count. PICI_E_CORRUPT, _VERSION, _CHECKSUM, _UNSUPPORTED: the block. */
PICI_API enum pici_status pici_decompress(void *dst, uint64_t n, const void *block, size_t len,
                                          const struct pici_opts *);

/* Decode elements [first, first + n) only. Reads the header, the tiles concerned and their index entries (coo: a binary
 * search of the positions, then those in the range; hybrid: the metadata of the tiles' groups too), and checks what it
 * reads; not the checksum.
 * PICI_E_ARG: as above, or the range is not within the block's count. */
PICI_API enum pici_status pici_decompress_range(void *dst, uint64_t first, uint64_t n, const void *block, size_t len,
                                                const struct pici_opts *);

/* dst[i] += x for each stored x, in the dtype's own arithmetic; other elements keep their bits. (A dense block stores all
 * elements; there too those that are zero in all bits are not added.)
 *   f32, f64             IEEE addition
 *   f16, bf16, f8        in f32, rounded once to nearest even; f8e4m3 overflows to NaN, the others to infinity
 *   integers             wrap
 * A NaN in dst stays, made quiet; else a NaN in the block is taken, made quiet. The same bits on every ISA.
 * dst as for pici_decompress; so are the errors. */
PICI_API enum pici_status pici_scatter_add(void *dst, uint64_t n, const void *block, size_t len,
                                           const struct pici_opts *);

/* What the header says, checked as far as a header can be. len >= 48: a block's beginning is enough, so that a reader of
 * a stream learns how many bytes follow (info->block_bytes). PICI_E_CORRUPT if len < 48. */
PICI_API enum pici_status pici_inspect(struct pici_info *info, const void *block, size_t len);

/* Check every rule of the format, the checksum included when there is one. */
PICI_API enum pici_status pici_verify(const void *block, size_t len);

/* Where and why a block is not valid. Set size with PICI_FAULT_INIT. */
struct pici_fault {
    size_t size;
    enum pici_status status; /* as returned; PICI_OK: nothing is wrong, and the rest is zero and null */
    uint64_t offset;         /* byte of the block where the breach shows */
    uint64_t tile;           /* the tile (elements tile*4096 ...) that it concerns, or PICI_NO_TILE */
    const char *rule;        /* the rule's name in formats/block.md or hybrid.md, as "tile-index"; static */
};
#define PICI_FAULT_INIT {sizeof(struct pici_fault), PICI_OK, 0, 0, NULL}
#define PICI_NO_TILE UINT64_MAX

/* As pici_verify, and says where and what. One fault, the first in the order of the specification. fault may be NULL. */
PICI_API enum pici_status pici_verify_at(const void *block, size_t len, struct pici_fault *fault);

/* The containers of a hybrid tile, by the number that the block has for them; and one without nonzeros. */
enum pici_container {
    PICI_OFFSETS12 = 0,
    PICI_OFFSETS8 = 1,
    PICI_BITVECTOR = 2,
    PICI_RAW = 3,
    PICI_EMPTY = 4,
    PICI_CONTAINERS = 5
};

/* "offsets12", "offsets8", "bitvector", "raw", "empty"; NULL for a container that does not exist; static. */
PICI_API const char *pici_container_name(enum pici_container);

/* What the tiles of a hybrid block are kept in. Set size with PICI_MIX_INIT. */
struct pici_mix {
    size_t size;
    uint64_t tiles[PICI_CONTAINERS];
    uint64_t nnz[PICI_CONTAINERS];            /* nonzeros in them */
    uint64_t position_bytes[PICI_CONTAINERS]; /* descriptors and payloads */
    uint64_t value_bytes[PICI_CONTAINERS];
    uint64_t other_bytes; /* header, directory, occupancy, padding: with these the block's length */
};
#define PICI_MIX_INIT {sizeof(struct pici_mix), {0}, {0}, {0}, {0}, 0}

/* Count the block's tiles and their bytes; mix gets the counts of this block alone, whatever it held before. Checks the
 * header, the directory and all descriptors, but neither payloads and values nor the checksum.
 * PICI_E_ARG: null, or the block is not hybrid. Other errors: the block. */
PICI_API enum pici_status pici_mix(struct pici_mix *mix, const void *block, size_t len);

#ifdef __cplusplus
}
#endif
#endif
