/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici: a lossless codec for dense buffers that are mostly zero.
 *
 * A block is the encoding of n consecutive elements of one dtype. Its header states its size, format and dtype. An
 * element is nonzero if any of its bits is set, so -0.0, NaN payloads and denormals survive exactly; an option drops
 * the sign of -0.0. The same elements, dtype, format and options give the same bytes on every CPU, at any thread count.
 * The layout is specified in formats/block.md, formats/hybrid.md and formats/packed.md.
 *
 * What holds for every function here, unless it says otherwise:
 *   lengths     `n`, `first` and `count` are elements; `size`, `capacity` and *_bytes are bytes
 *   elements    in host byte order, at any address: no alignment is required. Blocks too may lie at any address
 *   ownership   buffers belong to the caller and are used until the call returns. Nothing is kept
 *   memory      nothing is allocated, but with threads > 1 up to 1.1 MiB for each to make a packed block. A call needs
 *               up to 160 KiB of stack (384 KiB with threads > 1); for packed blocks, 320 KiB (512 KiB)
 *   threads     every function is thread-safe. With opts->threads > 1 a call starts threads and joins them
 *   errors      a function returns a status; it prints nothing and does not set errno
 *   options     opts == NULL means PICI_OPTS_INIT
 * The library has one piece of global state: the choice of CPU kernels, made at the first call. It takes the best
 * instruction set that the CPU supports. The environment variable PICI_CPU=scalar|avx2|avx512 (on 64-bit ARM
 * scalar|neon) lowers the choice; any other value is ignored.
 *
 * Structs that may grow in later versions begin with their size. Set them with their initializer. From the size the
 * library knows which version of the struct the caller was compiled with:
 *   size below the struct's first version   PICI_E_ARG
 *   size smaller than the library's         the caller is older. Members beyond its size have their defaults; they are
 *                                           not written
 *   size larger than the library's          the caller is newer. Input members that this library does not know must be
 *                                           zero, else PICI_E_UNSUPPORTED; output members that it does not know are set
 *                                           to zero
 * Arrays in these structs have room for what later versions may count: their lengths never change. */
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

#define PICI_VERSION "0.3.0"

enum pici_status {
    PICI_OK = 0,

    /* the call is wrong */
    PICI_E_ARG = -1,         /* null, out of range, overlapping, or a struct size below its first version */
    PICI_E_SPACE = -2,       /* the output does not fit in its capacity */
    PICI_E_UNSUPPORTED = -3, /* valid, but not in this build or version */

    /* the input is invalid */
    PICI_E_CORRUPT = -20,  /* it breaks a rule of the format */
    PICI_E_VERSION = -21,  /* it has a version of the format that this library does not know */
    PICI_E_CHECKSUM = -22, /* a checksum does not match */

    /* the system, or another rank, failed */
    PICI_E_NOMEM = -40,     /* an allocation failed */
    PICI_E_IO = -41,        /* a file, pipe or callback failed */
    PICI_E_PEER = -42,      /* another rank is gone, or made a different call */
    PICI_E_TRANSPORT = -43, /* the transport under a communicator failed */
    PICI_E_TIMEOUT = -44,   /* no message made progress within the time limit */
    PICI_E_DEVICE = -45,    /* a call of the CUDA runtime failed */
    PICI_E_BROKEN = -46,    /* an earlier failure broke the communicator (pici/coll.h) */
    PICI_E_SYNC = -47       /* written and visible, but a power failure may undo it */
};

/* The meaning of a status in English, without a full stop. Static; never NULL, for any value. */
PICI_API const char *pici_strerror(enum pici_status);

/* The version of the library at run time. PICI_VERSION is that of the header at compile time. Static. */
PICI_API const char *pici_version(void);

enum pici_dtype {
    PICI_F32 = 1,
    PICI_F64,
    PICI_F16,
    PICI_BF16,
    PICI_F8E4M3, /* OCP: no infinities, one NaN of either sign */
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

/* Bytes of one element: 1, 2, 4 or 8. 0 for an unknown dtype. */
PICI_API size_t pici_dtype_width(enum pici_dtype);

/* "f32", "bf16", ... Static. NULL for an unknown dtype. */
PICI_API const char *pici_dtype_name(enum pici_dtype);

enum pici_format {
    PICI_DENSE = 0,  /* all elements */
    PICI_BITMAP = 1, /* a bitvector in tiles of 64 x 64 bits, a prefix sum for each tile, and the nonzero values */
    PICI_COO = 2,    /* the positions and the values of the nonzeros */
    PICI_HYBRID = 3, /* for each tile of 4096 elements the smallest of: offsets, a bitvector, all elements */
    PICI_PACKED = 4, /* hybrid, with the exponents of the values packed. Float dtypes only */
    PICI_PICI = PICI_BITMAP, /* deprecated: the name until version 0.3 */
    PICI_AUTO = 255 /* the format with the shortest block, of those but packed, which the option pack adds; if several
                      * are shortest, the one with the lowest number.
                      * Later versions may choose differently */
};

/* Formats that an array of a struct has room for; those that there are not are 0. */
#define PICI_FORMATS_ROOM 8

/* "dense", "bitmap", "coo", "hybrid", "packed", "auto". Static. NULL for an unknown format. */
PICI_API const char *pici_format_name(enum pici_format);

/* Which elements an encoder takes for zeros. */
enum pici_zeros {
    PICI_ZEROS_EXACT = 0,   /* those without a bit set: every input is restored bit for bit */
    PICI_ZEROS_BY_VALUE = 1 /* float dtypes: those equal to zero. -0.0 is not stored, and is decoded as +0.0; all other
                             * elements, NaNs and denormals too, keep their bits. Integers: as PICI_ZEROS_EXACT */
};

/* How pici_compress stores the exponents of floats. */
enum pici_pack {
    PICI_PACK_NONE = 0,   /* as they are, but in PICI_PACKED */
    PICI_PACK_PLANES = 1, /* packed where that is shorter: the block of PICI_HYBRID is the shorter of hybrid and packed,
                           * and PICI_AUTO chooses among all formats. Other formats, and integers, ignore this */
    PICI_PACK_FAST = 3    /* the same with one level of codes: 2 to 3% longer, and faster */
};

/* What an element of PICI_U8 holds, where a small delta is made of it. */
enum pici_holds {
    PICI_HOLDS_ONE = 0,   /* an integer */
    PICI_HOLDS_E2M1X2 = 1 /* two floats of 4 bits, e2m1 of the OCP, the first in the lower bits: the elements of MXFP4
                           * and NVFP4. Their scales are tensors of their own, of other dtypes */
};

/* Options of encoders and decoders. Set with PICI_OPTS_INIT. PICI_E_ARG: a member out of its range. */
struct pici_opts {
    size_t size;
    int threads;  /* default 1. 0: one for each core in the affinity mask of the calling thread. At most 256 are used,
                   * and fewer for small blocks. Negative: PICI_E_ARG */
    int checksum; /* default 0. 1: encoders store an XXH64 of the block. No effect on decoders: they check the checksum
                   * of each block that has one, but pici_decompress_range does not */
    enum pici_zeros zeros; /* default PICI_ZEROS_EXACT. By value, pici_compress makes, in every format, the block of the
                            * same elements with +0.0 in place of each -0.0. No effect on pici_diff and on decoders: a
                            * block does not tell how it was made */
    int unused;            /* ignored: padding until version 0.2, with any bits */
    enum pici_pack pack; /* default PICI_PACK_NONE. With the format PICI_PACKED, that is PICI_PACK_PLANES. No effect on
                            * pici_diff with another format, and on decoders */
    enum pici_holds holds; /* default PICI_HOLDS_ONE. What the elements that are given as PICI_U8 hold, for
                            * pici_diff_small and pici_diff_small_part alone. Until version 0.2 this was reserved, and
                            * anything but 0 PICI_E_UNSUPPORTED, as unknown values still are */
};
#define PICI_OPTS_INIT                                                                                                 \
    {                                                                                                                  \
        sizeof(struct pici_opts), 1, 0, PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, PICI_HOLDS_ONE                            \
    }

/* The contents of a block's header. Set with PICI_INFO_INIT. */
struct pici_info {
    size_t size;
    enum pici_format format;
    enum pici_dtype dtype;
    uint64_t count;     /* elements that were encoded */
    uint64_t nnz;       /* nonzero elements; in a dense block, count; in hybrid, without -0.0 whose sign is kept */
    size_t block_bytes; /* bytes of the whole block */
};
#define PICI_INFO_INIT                                                                                                 \
    {                                                                                                                  \
        sizeof(struct pici_info), PICI_DENSE, PICI_F32, 0, 0, 0                                                        \
    }

/* The size of the longest block of n elements in this format: a capacity that always suffices. For
 * PICI_AUTO, that of a dense block. Holds for every option. At least 48. 0 if format or dtype is unknown, if the format
 * does not have this dtype, or if the size does not fit in size_t. */
PICI_API size_t pici_bound(enum pici_format, enum pici_dtype, uint64_t n);

/* Encode n elements of src as one block.
 *   block [capacity bytes]       output; undefined unless PICI_OK. Must not overlap src
 *   size  out, bytes             of the block; 0 unless PICI_OK
 *   src   [n elements of dtype]  must not change during the call
 * Succeeds whenever the block fits in capacity bytes; capacity >= pici_bound(format, dtype, n) always suffices. After
 * PICI_E_ARG, block may be untouched. After any other error, block does not begin with a valid header.
 * PICI_E_ARG: unknown dtype or format, null (src only if n > 0), overlap, more bytes than size_t holds, bad options.
 * PICI_E_SPACE: the block does not fit. PICI_E_UNSUPPORTED: options of a later version, or PICI_PACKED of integers.
 * Layout: formats/block.md, formats/hybrid.md, formats/packed.md. */
PICI_API enum pici_status pici_compress(void *block, size_t capacity, size_t *size, const void *src, uint64_t n,
                                        enum pici_dtype, enum pici_format, const struct pici_opts *);

/* Decode a block to the n elements that it was made of.
 *   dst   [n elements of the block's dtype]   output; unspecified unless PICI_OK. Must not overlap block
 *   n     must equal the block's count: take both from pici_inspect
 *   block [size bytes]                        untrusted: every rule of the format is checked, but `choice` of packed,
 *                                             which is for pici_verify; and the checksum if there is one
 * PICI_E_ARG: null (dst only if n > 0), overlap, n is not the block's count, bad options.
 * PICI_E_CORRUPT, PICI_E_VERSION, PICI_E_CHECKSUM, PICI_E_UNSUPPORTED: what is wrong with the block. */
PICI_API enum pici_status pici_decompress(void *dst, uint64_t n, const void *block, size_t size,
                                          const struct pici_opts *);

/* Decode only elements [first, first + n) of a block. Reads and checks the header, and only those parts of the rest
 * that these elements need: their tiles and index entries; in a coo block, the positions visited by a binary search; in
 * a hybrid or packed block, the metadata of their groups. Does not check the checksum.
 *   dst   [n elements of the block's dtype]   output; unspecified unless PICI_OK. Must not overlap block
 *   block [size bytes]                        untrusted, as in pici_decompress
 * PICI_E_ARG: null, overlap, the range is not within the block's count, bad options. Other errors: as pici_decompress.
 * Runs on the calling thread alone, whatever opts->threads is. */
PICI_API enum pici_status pici_decompress_range(void *dst, uint64_t first, uint64_t n, const void *block, size_t size,
                                                const struct pici_opts *);

/* The positions and the values of the nonzero elements among elements [first, first + n) of a block, in order. An
 * element of which only the sign is set is one.
 *   indices [capacity]   positions, uint32_t or uint64_t, counted from `first`; NULL: they are not stored
 *   index_bytes          of a position, 4 or 8. With 4, n is at most 2^32
 *   values [capacity elements of the block's dtype]   NULL: they are not stored
 *   count   out: how many there are, also if that is more than capacity; 0 after other errors
 *   block [size bytes]   untrusted, as in pici_decompress_range; if n is the block's count, all is checked that
 *                        pici_verify checks
 * The outputs must not overlap each other or block. Beyond the first `count` they are unspecified. capacity may be 0:
 * count tells how much room the next call needs.
 * PICI_E_SPACE: capacity < *count; the first `capacity` are stored. PICI_E_ARG: null, the range is not within the
 * block's count, index_bytes is not 4 or 8, or it is 4 and n is above 2^32. Other errors: as pici_decompress_range. */
PICI_API enum pici_status pici_nonzeros(void *indices, size_t index_bytes, void *values, uint64_t capacity,
                                        uint64_t *count, const void *block, size_t size, uint64_t first, uint64_t n);

/* Scatter-add: dst[i] += x for each nonzero element x that the block stores. Other elements of dst keep their bits.
 *   dst   [n elements of the block's dtype]   read and written; unspecified unless PICI_OK. Must not overlap block
 *   block [size bytes]                        untrusted, as in pici_decompress
 * The addition depends on the dtype. Its result has the same bits on every instruction set:
 *   f32, f64             IEEE 754
 *   f16, bf16, f8        in f32, rounded once to nearest even; f8e4m3 overflows to NaN, the others to infinity
 *   integers             modulo 2^bits
 *   NaN                  if the element of dst is a NaN, the result is that NaN, else that of the block; made quiet
 * Errors: as pici_decompress. Specification: formats/block.md, "Adding". */
PICI_API enum pici_status pici_scatter_add(void *dst, uint64_t n, const void *block, size_t size,
                                           const struct pici_opts *);

/* Read a block's header, and check every rule that can be checked with the header alone.
 *   info  out; unchanged unless PICI_OK
 *   block [size bytes]  untrusted. The first 48 bytes suffice: info->block_bytes then tells a reader of a stream how
 *                       many bytes the block has
 * PICI_E_ARG: null. PICI_E_CORRUPT: size < 48, or the header breaks a rule. PICI_E_VERSION: an unknown version of the
 * format. PICI_E_UNSUPPORTED: an unknown format, or a block whose size does not fit in size_t. */
PICI_API enum pici_status pici_inspect(struct pici_info *info, const void *block, size_t size);

/* Check a block [size bytes] against every rule of the format, and its checksum if there is one; decodes nothing.
 * PICI_E_ARG: null. PICI_E_CORRUPT, PICI_E_VERSION, PICI_E_CHECKSUM, PICI_E_UNSUPPORTED: what is wrong with the
 * block. */
PICI_API enum pici_status pici_verify(const void *block, size_t size);

/* Where a block breaks a rule, and which rule. Set with PICI_FAULT_INIT. */
struct pici_fault {
    size_t size;
    enum pici_status status; /* as returned. PICI_OK: the block is valid, offset and tile are 0, rule is NULL */
    uint64_t offset;         /* offset in the block, in bytes, at which the rule is broken */
    uint64_t tile;           /* the tile that breaks it, which begins at element tile * 4096; PICI_NO_TILE: the fault is
                              * not in one tile */
    const char *rule;        /* its name in formats/block.md, hybrid.md or packed.md, such as "tile-index". Static */
};
#define PICI_FAULT_INIT                                                                                                \
    {                                                                                                                  \
        sizeof(struct pici_fault), PICI_OK, 0, 0, NULL                                                                 \
    }
#define PICI_NO_TILE UINT64_MAX

/* As pici_verify, and report which rule is broken. If several are, report the first in the order of the specification.
 *   fault   out, written unless PICI_E_ARG; may be NULL */
PICI_API enum pici_status pici_verify_at(const void *block, size_t size, struct pici_fault *fault);

/* The containers that a tile of a hybrid block may have; the first four have their numbers in formats/hybrid.md. */
enum pici_container {
    PICI_OFFSETS12 = 0, /* a list of 12-bit offsets */
    PICI_OFFSETS8 = 1,  /* 16 lists of 8-bit offsets */
    PICI_BITVECTOR = 2, /* one bit for each element */
    PICI_RAW = 3,       /* all elements */
    PICI_EMPTY = 4,     /* nothing: the tile has no nonzeros */
    PICI_CONTAINERS = 5 /* how many there are */
};

/* Containers that an array of a struct has room for; those that there are not are 0. */
#define PICI_CONTAINERS_ROOM 8

/* "offsets12", "offsets8", "bitvector", "raw", "empty". Static. NULL for an unknown container. */
PICI_API const char *pici_container_name(enum pici_container);

/* What the bytes of a hybrid or packed block are used for, by container. Set with PICI_BREAKDOWN_INIT. position_bytes,
 * value_bytes and other_bytes add up to the size of the block. Until 0.2 the arrays had no room; callers of those
 * versions, known by their size, get the struct that they had. */
struct pici_breakdown {
    size_t size;
    uint64_t tiles[PICI_CONTAINERS_ROOM];          /* tiles with this container */
    uint64_t nnz[PICI_CONTAINERS_ROOM];            /* nonzeros in those tiles */
    uint64_t position_bytes[PICI_CONTAINERS_ROOM]; /* descriptors, payloads and signs of those tiles */
    uint64_t value_bytes[PICI_CONTAINERS_ROOM]; /* values of those tiles; packed: their share of their group's runs */
    uint64_t other_bytes;                       /* header, directory, occupancy bits, run descriptors, padding */
    uint64_t sign_tiles;                        /* tiles that keep the signs of zeros */
    uint64_t sign_bytes;                        /* of position_bytes, those of signs and their descriptors */
    uint64_t negative_zeros;                    /* zeros that are negative in those tiles; not counted in nnz */
    uint64_t runs, packed_runs;                 /* packed blocks: runs of values, and those that are not raw */
    uint64_t unpacked_bytes;                    /* the values of all runs, without packing */
    uint64_t exponent_bytes; /* of value_bytes, those of packed exponents; the rest are signs, mantissas, raw runs */
};
#define PICI_BREAKDOWN_INIT                                                                                            \
    {                                                                                                                  \
        sizeof(struct pici_breakdown), {0}, {0}, {0}, {0}, 0, 0, 0, 0, 0, 0, 0, 0                                      \
    }

/* Count the tiles of a hybrid or packed block and their bytes. Checks the header, the directory and all descriptors;
 * does not check payloads, values or the checksum.
 *   breakdown   out: overwritten, not added to; unchanged unless PICI_OK
 *   block [size bytes]  untrusted
 * PICI_E_ARG: null, or the block is neither hybrid nor packed. PICI_E_CORRUPT, PICI_E_VERSION, PICI_E_UNSUPPORTED: what
 * is wrong with the block. Layout: formats/hybrid.md, formats/packed.md. */
PICI_API enum pici_status pici_breakdown(struct pici_breakdown *breakdown, const void *block, size_t size);

/* Deprecated: names until version 0.3. */
#define pici_mix pici_breakdown
#define PICI_MIX_INIT PICI_BREAKDOWN_INIT

#ifdef __cplusplus
}
#endif
#endif
