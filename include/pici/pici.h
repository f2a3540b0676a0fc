/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici: a lossless codec for dense buffers with mostly zero elements.
 *
 * A block is the encoding of n consecutive elements of one dtype. Its header states its size, format and dtype. An
 * element is nonzero if any of its bits is set, so -0.0, NaN payloads and denormals survive exactly; an option drops
 * the sign of -0.0. The same elements, dtype, format and options give the same bytes on every CPU, at any thread count.
 * The layout is specified in formats/block.md, formats/hybrid.md and formats/packed.md.
 *
 * Rules of every function here, unless its comment says otherwise:
 *   lengths     `n`, `first` and `count` are elements; `size`, `capacity` and *_bytes are bytes
 *   elements    in host byte order. Elements and blocks may lie at any address: no alignment is required
 *   ownership   buffers belong to the caller. The library uses them only until the call returns
 *   memory      the library allocates nothing, with one exception: packed blocks with threads > 1 take up to 1.1 MiB
 *               per thread. A call needs up to 160 KiB of stack (384 KiB with threads > 1), or 320 KiB (512 KiB) for
 *               packed blocks
 *   threads     every function is thread-safe. With opts->threads > 1 a call starts threads and joins them
 *   errors      a function returns a status; it prints nothing, and errno has no meaning
 *   options     opts == NULL means PICI_OPTS_INIT
 * The library has one piece of global state: the choice of CPU kernels, made at the first call. It takes the best
 * instruction set that the CPU supports. The environment variable PICI_CPU=scalar|avx2|avx512 (on 64-bit ARM
 * scalar|neon) lowers the choice; any other value is ignored.
 *
 * Structs that may grow in later versions begin with their size. Set them with their initializer. The size tells the
 * library which version of the struct the caller was compiled with:
 *   size below the struct's first version   PICI_E_ARG
 *   size smaller than the library's         the caller is older. Members beyond its size keep their defaults and are
 *                                           never written
 *   size larger than the library's          the caller is newer. Input members that this library does not know must be
 *                                           zero, else PICI_E_UNSUPPORTED. The library sets unknown output members to
 *                                           zero
 * Arrays in these structs have spare entries for later versions. Their lengths never change. */
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
#ifdef __GNUC__ /* of -Wshadow: pici_breakdown is a struct and a function */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif
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

/* The version of the library at run time. PICI_VERSION is the version of the header at compile time. Static. */
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
    PICI_DENSE = 0,          /* all elements */
    PICI_BITMAP = 1,         /* a bitvector in tiles of 64 x 64 bits, a prefix sum for each tile, the nonzero values */
    PICI_COO = 2,            /* the positions and the values of the nonzeros */
    PICI_HYBRID = 3,         /* for each tile of 4096 elements the smallest of: offsets, a bitvector, all elements */
    PICI_PACKED = 4,         /* hybrid, with the exponents of the values packed. Float dtypes only */
    PICI_PICI = PICI_BITMAP, /* deprecated: the name until version 0.3 */
    PICI_AUTO = 255 /* the format with the shortest block; on a tie, the one with the lowest number. Packed takes part
                     * only with the option pack. Later versions may choose differently */
};

/* The length of arrays with one entry per format. Unused entries are 0. */
#define PICI_FORMATS_ROOM 8

/* "dense", "bitmap", "coo", "hybrid", "packed", "auto". Static. NULL for an unknown format. */
PICI_API const char *pici_format_name(enum pici_format);

/* Which elements an encoder treats as zeros. */
enum pici_zeros {
    PICI_ZEROS_EXACT = 0,   /* elements with no bit set: decoding restores every input bit for bit */
    PICI_ZEROS_BY_VALUE = 1 /* float dtypes: elements equal to zero. -0.0 is not stored and decodes as +0.0. All other
                             * elements, NaNs and denormals too, keep their bits. Integers: as PICI_ZEROS_EXACT */
};

/* How pici_compress stores the exponents of floats. */
enum pici_pack {
    PICI_PACK_NONE = 0,   /* unpacked, except in PICI_PACKED */
    PICI_PACK_PLANES = 1, /* packed where that is shorter: PICI_HYBRID yields the shorter of hybrid and packed, and
                           * PICI_AUTO chooses among all formats. Other formats, and integers, ignore this */
    PICI_PACK_FAST = 3    /* the same with one level of codes: 2 to 3% longer, and faster */
};

/* What an element of PICI_U8 holds. Only small deltas use this. */
enum pici_holds {
    PICI_HOLDS_ONE = 0,   /* an integer */
    PICI_HOLDS_E2M1X2 = 1 /* two 4-bit floats (OCP e2m1), the first in the lower bits: the elements of MXFP4 and NVFP4.
                           * Their scales are separate tensors of other dtypes */
};

/* Options of encoders and decoders. Set with PICI_OPTS_INIT. A member out of range is PICI_E_ARG. */
struct pici_opts {
    size_t size;
    int threads;  /* default 1. 0: one for each core in the affinity mask of the calling thread. A call uses at most
                   * 256, and fewer for small blocks. Negative: PICI_E_ARG */
    int checksum; /* default 0. 1: encoders store an XXH64 of the block. No effect on decoders: they always check a
                   * stored checksum, except pici_decompress_range, which never does */
    enum pici_zeros zeros; /* default PICI_ZEROS_EXACT. By value, pici_compress encodes each -0.0 as +0.0, in every
                            * format. No effect on pici_diff and decoders: a block does not record this option */
    int unused;            /* ignored; may hold any bits. Padding until version 0.2 */
    enum pici_pack pack; /* default PICI_PACK_NONE. With the format PICI_PACKED, PICI_PACK_NONE means PICI_PACK_PLANES.
                          * No effect on decoders, or on pici_diff with another format */
    enum pici_holds holds; /* default PICI_HOLDS_ONE. What elements of PICI_U8 hold. Only pici_diff_small and
                            * pici_diff_small_part use it. Unknown values are PICI_E_UNSUPPORTED; until version 0.2,
                            * every value but 0 was */
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
    uint64_t nnz;       /* nonzero elements. Dense blocks: count. Hybrid blocks: without -0.0 whose sign is kept */
    size_t block_bytes; /* bytes of the whole block */
};
#define PICI_INFO_INIT                                                                                                 \
    {                                                                                                                  \
        sizeof(struct pici_info), PICI_DENSE, PICI_F32, 0, 0, 0                                                        \
    }

/* The largest size of a block of n elements in this format, with any options: a capacity that always suffices. For
 * PICI_AUTO, the size of a dense block. At least 48. Returns 0 if format or dtype is unknown, if the format does not
 * support this dtype, or if the size does not fit in size_t. */
PICI_API size_t pici_bound(enum pici_format, enum pici_dtype, uint64_t n);

/* Encode n elements of src as one block.
 *   block [capacity bytes]       output; undefined unless PICI_OK. Must not overlap src
 *   size  out, bytes             of the block; 0 unless PICI_OK
 *   src   [n elements of dtype]  must not change during the call
 * Succeeds whenever the block fits in capacity bytes. pici_bound(format, dtype, n) bytes always suffice. After
 * PICI_E_ARG, block may be untouched. After any other error, block does not begin with a valid header.
 * PICI_E_ARG: unknown dtype or format, null (src only if n > 0), overlap, more bytes than size_t holds, bad options.
 * PICI_E_SPACE: the block does not fit. PICI_E_UNSUPPORTED: options of a later version, or PICI_PACKED of integers.
 * Layout: formats/block.md, formats/hybrid.md, formats/packed.md. */
PICI_API enum pici_status pici_compress(void *block, size_t capacity, size_t *size, const void *src, uint64_t n,
                                        enum pici_dtype, enum pici_format, const struct pici_opts *);

/* Decode a block to its n elements.
 *   dst   [n elements of the block's dtype]   output; unspecified unless PICI_OK. Must not overlap block
 *   n     must equal the block's count: take both from pici_inspect
 *   block [size bytes]                        untrusted. The call checks the checksum, if there is one, and every rule
 *                                             of the format except `choice` of packed, which only pici_verify checks
 * PICI_E_ARG: null (dst only if n > 0), overlap, n is not the block's count, bad options.
 * PICI_E_CORRUPT, PICI_E_VERSION, PICI_E_CHECKSUM, PICI_E_UNSUPPORTED: the block is invalid or not supported. */
PICI_API enum pici_status pici_decompress(void *dst, uint64_t n, const void *block, size_t size,
                                          const struct pici_opts *);

/* Decode only elements [first, first + n) of a block. Reads and checks the header, and the tiles and index entries of
 * these elements. In a coo block it also reads the positions that a binary search visits, and in a hybrid or packed
 * block the metadata of their groups. Does not check the checksum.
 *   dst   [n elements of the block's dtype]   output; unspecified unless PICI_OK. Must not overlap block
 *   block [size bytes]                        untrusted, as in pici_decompress
 * PICI_E_ARG: null, overlap, the range is not within the block's count, bad options. Other errors: as pici_decompress.
 * Runs on the calling thread alone and ignores opts->threads. */
PICI_API enum pici_status pici_decompress_range(void *dst, uint64_t first, uint64_t n, const void *block, size_t size,
                                                const struct pici_opts *);

/* Extract the positions and values of the nonzeros among elements [first, first + n) of a block, in order. An element
 * with only its sign bit set counts as nonzero.
 *   indices [capacity]   out: positions, uint32_t or uint64_t, counted from `first`. NULL: not stored
 *   index_bytes          bytes of a position, 4 or 8. With 4, n is at most 2^32
 *   values [capacity elements of the block's dtype]   out. NULL: not stored. Both NULL: capacity must be 0
 *   count   out: the number of nonzeros, even if it exceeds capacity; 0 after other errors
 *   block [size bytes]   untrusted, as in pici_decompress_range. If n is the block's count, the call checks all that
 *                        pici_verify checks
 * The outputs must not overlap each other or block. Entries beyond `count` are unspecified. To learn the capacity you
 * need, call with capacity 0 and read count.
 * PICI_E_SPACE: capacity < *count; the outputs hold the first `capacity` nonzeros. PICI_E_ARG: null, the range is not
 * within the block's count, index_bytes is not 4 or 8, or it is 4 and n is above 2^32. Other errors: as
 * pici_decompress_range. */
PICI_API enum pici_status pici_nonzeros(void *indices, size_t index_bytes, void *values, uint64_t capacity,
                                        uint64_t *count, const void *block, size_t size, uint64_t first, uint64_t n);

/* Scatter-add: dst[i] += x for each nonzero element x of the block. Other elements of dst keep their bits.
 *   dst   [n elements of the block's dtype]   read and written; unspecified unless PICI_OK. Must not overlap block
 *   block [size bytes]                        untrusted, as in pici_decompress
 * The addition depends on the dtype. Its result has the same bits on every instruction set:
 *   f32, f64             IEEE 754
 *   f16, bf16, f8        in f32, rounded once to nearest even; f8e4m3 overflows to NaN, the others to infinity
 *   integers             modulo 2^bits
 *   NaN                  the NaN of dst if there is one, else the NaN of the block; made quiet
 * Errors: as pici_decompress. Specification: formats/block.md, "Adding". */
PICI_API enum pici_status pici_scatter_add(void *dst, uint64_t n, const void *block, size_t size,
                                           const struct pici_opts *);

/* Read a block's header, and check every rule that needs only the header.
 *   info  out; unchanged unless PICI_OK
 *   block [size bytes]  untrusted. The first 48 bytes suffice: a reader of a stream then learns the block's size from
 *                       info->block_bytes
 * PICI_E_ARG: null. PICI_E_CORRUPT: size < 48, or the header breaks a rule. PICI_E_VERSION: an unknown version of the
 * format. PICI_E_UNSUPPORTED: an unknown format, or a block whose size does not fit in size_t. */
PICI_API enum pici_status pici_inspect(struct pici_info *info, const void *block, size_t size);

/* Check a block [size bytes] against every rule of the format, and its checksum if it has one. Decodes nothing.
 * PICI_E_ARG: null. PICI_E_CORRUPT, PICI_E_VERSION, PICI_E_CHECKSUM, PICI_E_UNSUPPORTED: the block is invalid or not
 * supported. */
PICI_API enum pici_status pici_verify(const void *block, size_t size);

/* Where a block breaks a rule, and which rule. Set with PICI_FAULT_INIT. */
struct pici_fault {
    size_t size;
    enum pici_status status; /* the returned status. PICI_OK: the block is valid, offset and tile are 0, rule is NULL */
    uint64_t offset;         /* byte offset in the block of the broken rule */
    uint64_t tile;           /* the faulty tile, which begins at element tile * 4096. PICI_NO_TILE: the fault is not in
                              * one tile */
    const char *rule;        /* the rule's name in formats/block.md, hybrid.md or packed.md, such as "tile-index".
                              * Static */
};
#define PICI_FAULT_INIT                                                                                                \
    {                                                                                                                  \
        sizeof(struct pici_fault), PICI_OK, 0, 0, NULL                                                                 \
    }
#define PICI_NO_TILE UINT64_MAX

/* As pici_verify, and report the broken rule. If several are broken, report the first in the specification's order.
 *   fault   out, written unless PICI_E_ARG; may be NULL */
PICI_API enum pici_status pici_verify_at(const void *block, size_t size, struct pici_fault *fault);

/* The containers of tiles in hybrid blocks. formats/hybrid.md numbers the first four. */
enum pici_container {
    PICI_OFFSETS12 = 0, /* a list of 12-bit offsets */
    PICI_OFFSETS8 = 1,  /* 16 lists of 8-bit offsets */
    PICI_BITVECTOR = 2, /* one bit for each element */
    PICI_RAW = 3,       /* all elements */
    PICI_EMPTY = 4,     /* nothing: the tile has no nonzeros */
    PICI_CONTAINERS = 5 /* the number of containers */
};

/* The length of arrays with one entry per container. Unused entries are 0. */
#define PICI_CONTAINERS_ROOM 8

/* "offsets12", "offsets8", "bitvector", "raw", "empty". Static. NULL for an unknown container. */
PICI_API const char *pici_container_name(enum pici_container);

/* The bytes of a hybrid or packed block, by container and use. Set with PICI_BREAKDOWN_INIT. position_bytes,
 * value_bytes and other_bytes add up to the size of the block. Until 0.2 the arrays had no spare entries. The library
 * recognizes callers of those versions by their size and fills the struct that they know. */
struct pici_breakdown {
    size_t size;
    uint64_t tiles[PICI_CONTAINERS_ROOM];          /* tiles with this container */
    uint64_t nnz[PICI_CONTAINERS_ROOM];            /* nonzeros in those tiles */
    uint64_t position_bytes[PICI_CONTAINERS_ROOM]; /* descriptors, payloads and signs of those tiles */
    uint64_t value_bytes[PICI_CONTAINERS_ROOM]; /* values of those tiles. Packed: their share of their group's runs */
    uint64_t other_bytes;                       /* header, directory, occupancy bits, run descriptors, padding */
    uint64_t sign_tiles;                        /* tiles that keep the signs of zeros */
    uint64_t sign_bytes;                        /* the part of position_bytes that holds signs and their descriptors */
    uint64_t negative_zeros;                    /* negative zeros in those tiles; not counted in nnz */
    uint64_t runs, packed_runs;                 /* packed blocks: runs of values, and runs that are not raw */
    uint64_t unpacked_bytes;                    /* bytes of the values of all runs before packing */
    uint64_t exponent_bytes; /* the part of value_bytes that holds packed exponents. The rest: signs, mantissas, raw
                              * runs */
};
#define PICI_BREAKDOWN_INIT                                                                                            \
    {                                                                                                                  \
        sizeof(struct pici_breakdown), {0}, {0}, {0}, {0}, 0, 0, 0, 0, 0, 0, 0, 0                                      \
    }

/* Count the tiles of a hybrid or packed block and their bytes. Checks the header, the directory and all descriptors,
 * but not payloads, values or the checksum.
 *   breakdown   out: overwritten; unchanged unless PICI_OK
 *   block [size bytes]  untrusted
 * PICI_E_ARG: null, or the block is neither hybrid nor packed. PICI_E_CORRUPT, PICI_E_VERSION, PICI_E_UNSUPPORTED: the
 * block is invalid or not supported. Layout: formats/hybrid.md, formats/packed.md. */
PICI_API enum pici_status pici_breakdown(struct pici_breakdown *breakdown, const void *block, size_t size);

/* Deprecated: names until version 0.3. */
#define pici_mix pici_breakdown
#define PICI_MIX_INIT PICI_BREAKDOWN_INIT

#ifdef __cplusplus
#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif
}
#endif
#endif
