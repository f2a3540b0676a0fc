/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The CPU kernels: per instruction set one constant table of functions, the same contracts in each. Kernels know the
 * layout of tiles and entries, not headers; they cannot fail: what they find wrong in untrusted input is returned, and
 * block and codec decide. Nothing here reads or writes outside the ranges named, PICI_SLACK included. */
#ifndef PICI_LIB_CPU_KERNELS_H
#define PICI_LIB_CPU_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "format.h"

/* Bytes that a kernel may write (compress) or read (decompress) past the last value of a run. */
enum { PICI_SLACK = 64 };

/* What of a run to make: threads make words first, of which the counts say where values belong. */
enum pici_pack_what {
    PACK_ALL,
    PACK_WORDS, /* and the index */
    PACK_VALUES /* of words that are there */
};

/* A run of whole tiles to compress. */
struct pici_pack {
    enum pici_pack_what what;
    const uint8_t *src;   /* tiles * TILE elements */
    uint8_t *bits;        /* tiles * TILE_BITS_BYTES */
    uint8_t *index;       /* tiles entries, of index_width bytes */
    unsigned index_width; /* 4 or 8 */
    int stream;           /* the output is larger than the caches: write values past them */
    uint8_t *values;      /* the value numbered 0; writable to number at + tiles * TILE, plus PICI_SLACK */
    uint64_t at;          /* in, out: the number of the next value */
    size_t tiles;
    size_t ahead; /* bytes from a tile to what to ask the memory for while its values are packed */
};

/* A run of whole tiles to decompress, or to add. The index, bits and values are untrusted. */
struct pici_unpack {
    uint8_t *dst;        /* tiles * TILE elements */
    const uint8_t *bits; /* as above */
    const uint8_t *index;
    unsigned index_width;
    int stream;
    const uint8_t *values; /* the value numbered 0 */
    uint64_t at;           /* in, out: the number of the next value */
    uint64_t limit;        /* values that may be read: numbers 0..limit-1, plus PICI_SLACK bytes */
    size_t tiles;
    int zero; /* out: set if a value was zero, else left */
};

/* coo entries that lie in the dense range [first, first + n). Positions and values are untrusted. */
struct pici_scatter {
    uint8_t *dst; /* n elements: position first is dst's first */
    uint64_t first, n;
    const uint8_t *index, *values; /* entry 0 */
    unsigned index_width;
    uint64_t i,
        end;  /* in, out: entries [i, end) are to be placed; i stops at the first that does not rise or is outside */
    int zero; /* out: set if a value was zero, else left */
};

/* A tile of a hybrid block. */
struct pici_tile {
    const uint8_t *payload, *values;
    uint16_t n;        /* nonzeros; 0 exactly if empty */
    uint8_t container; /* TILE_EMPTY, ... */
};

/* A run of whole tiles of a hybrid block to write, one after the other. Payloads are written exactly; values with up to
 * PICI_SLACK bytes too many. */
struct pici_pack_tiles {
    const uint8_t *src;                /* tiles * TILE elements */
    const uint64_t (*word)[TILE_COLS]; /* of each tile a bit an element */
    const struct pici_tile *tile;      /* n and container of each */
    size_t tiles;
    int stream;
    uint8_t *payload, *values; /* in, out: where the next belong */
};

/* A run of whole tiles of a hybrid block to decode, or to add. Payloads and values are untrusted; both may be read to
 * PICI_SLACK bytes past their ends. */
struct pici_unpack_tiles {
    uint8_t *dst; /* tiles * TILE elements */
    const struct pici_tile *tile;
    size_t tiles;
    int stream;
};

/* Kernels that move elements of one width. */
struct pici_move {
    /* Nonzero elements among n. */
    uint64_t (*count)(const uint8_t *src, size_t n);
    /* dst[i] = a[i] ^ b[i] for n elements; dst overlaps neither. Asks for what follows them. */
    void (*difference)(uint8_t *dst, const uint8_t *a, const uint8_t *b, size_t n);
    void (*pack)(struct pici_pack *);
    /* Returns the tiles done: all of them, or those before the first whose index entry is not at, or that needs values
     * from limit on. */
    size_t (*unpack)(struct pici_unpack *);
    /* Positions (first + i) and values of the nonzero elements among n <= TILE. Writes up to PICI_SLACK bytes past the
     * last of each. Returns how many. */
    size_t (*pack_coo)(uint8_t *index, unsigned index_width, uint8_t *values, const uint8_t *src, size_t n,
                       uint64_t first);
    /* Fills dst with zeros and the entries. */
    void (*unpack_coo)(struct pici_scatter *);
    /* A bit an element of so many whole tiles, and each tile's nonzeros. */
    void (*masks)(uint64_t (*word)[TILE_COLS], struct pici_tile *, const uint8_t *src, size_t tiles);
    void (*pack_tiles)(struct pici_pack_tiles *);
    /* Both for one tile in one pass, if it has at most `most` <= OFFSETS8_MOST nonzeros, and no run of 256: the payload of its
     * list, and its values, with up to PICI_SLACK bytes too many. Returns its nonzeros, or, of another tile, more than most.
     * Slower than the two where there are few. */
    unsigned (*pack_sparse)(uint8_t *payload, uint8_t *values, const uint8_t *src, unsigned most);
    /* The same of tiles that are expected to be of the container of tile[0], a bitvector or raw, without words and n given:
     * sets the n of all. Returns the tiles done: all, or those before the first that is of another. */
    size_t (*pack_alike)(struct pici_pack_tiles *, struct pici_tile *tile);
    /* Returns the tiles done: all of them, or those before the first of which a payload is not as the rules have it (but
     * for `container`), or a value is zero. */
    size_t (*unpack_tiles)(const struct pici_unpack_tiles *);
};

/* Kernels that add elements of one dtype; the arithmetic is that of pici_scatter_add. Or, for pici_apply, those that XOR
 * elements of one width: read + as ^. */
struct pici_add {
    /* dst[i] += src[i] wherever src[i] is nonzero; both in host order, at any alignment. */
    void (*dense)(uint8_t *dst, const uint8_t *src, size_t n);
    size_t (*unpack)(struct pici_unpack *); /* as unpack above */
    void (*unpack_coo)(struct pici_scatter *);
    size_t (*unpack_tiles)(const struct pici_unpack_tiles *); /* so too */
};

/* Kernels of other arithmetic on dense elements in host order, at any alignment, of a dtype whose bits are described: as
 * pici_reduce and pici_divide in reduce.h have it. */
struct pici_kind;
struct pici_reduce {
    void (*order[4])(uint8_t *dst, const uint8_t *src, size_t n, const struct pici_kind *, int max); /* by log2 width */
    void (*divide[4])(uint8_t *dst, size_t n, const struct pici_kind *, int by);         /* floats, so too */
    void (*divide_16_by_many)(uint8_t *dst, size_t n, const struct pici_kind *, int by); /* where by > 4096 */
};

struct pici_isa {
    const char *name;
    const struct pici_move *move[4];            /* by log2 of the width */
    const struct pici_add *add[DTYPE_LAST + 1]; /* by dtype; [0] is null */
    const struct pici_add *flip[4];             /* XOR, by log2 of the width */
    const struct pici_reduce *reduce;
    /* Past the caches; null: there are no such stores. Where there are, a run to stream is written exactly. */
    void (*copy)(uint8_t *dst, const uint8_t *src, size_t n);
};

/* The best table that this host can run and PICI_CPU allows. Chosen at the first call. */
const struct pici_isa *pici_isa(void);

/* The tables that this host can run, from the lowest, and a null. */
const struct pici_isa *const *pici_isas(void);

/* For tests and benchmarks: use this table from now on; null: back to the choice. */
void pici_isa_force(const struct pici_isa *);

extern const struct pici_isa pici_isa_scalar;
#if defined(__x86_64__) || defined(__i386__)
#define PICI_HAVE_X86 1
extern const struct pici_isa pici_isa_avx2;
extern const struct pici_isa pici_isa_avx512;
#else
#define PICI_HAVE_X86 0
#endif

#endif
