/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The CPU kernels: one constant table of functions for each instruction set (ISA), all with the same contracts.
 * Kernels know the layout of tiles and entries, not headers. They cannot fail: they return what they find wrong in
 * untrusted input, and the callers in lib/codec decide. No kernel reads or writes outside the ranges stated here,
 * PICI_SLACK included. */
#ifndef PICI_LIB_CPU_KERNELS_H
#define PICI_LIB_CPU_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "format.h"
#include "shared.h"

/* Bytes that a kernel may write (compress) or read (decompress) past the last value of a run of tiles. */
enum { PICI_SLACK = 64 };

/* Which parts of a run to make. With threads, words come first: their counts tell each thread where its values go. */
enum pici_pack_what {
    PACK_ALL,
    PACK_WORDS, /* words and index; counts the values */
    PACK_VALUES /* values, from words made before */
};

/* A run of whole tiles to compress. */
struct pici_pack_run {
    enum pici_pack_what what;
    const uint8_t *src;   /* tiles * TILE elements */
    uint8_t *bits;        /* tiles * TILE_BITS_BYTES */
    uint8_t *index;       /* `tiles` entries of index_width bytes */
    unsigned index_width; /* 4 or 8 */
    int stream;           /* use non-temporal stores for values, because the output is larger than the caches */
    uint8_t *values;      /* place of value 0; writable up to value next_value + tiles * TILE, plus PICI_SLACK bytes */
    uint64_t next_value;  /* in, out: the number of the next value */
    size_t tiles;
    size_t ahead; /* bytes from a tile to the prefetch address while its values are packed */
};

/* A run of whole tiles to decompress, or to add. Index, bits and values are untrusted. */
struct pici_unpack {
    uint8_t *dst;        /* tiles * TILE elements */
    const uint8_t *bits; /* as above */
    const uint8_t *index;
    unsigned index_width;
    int stream;
    const uint8_t *values; /* the value numbered 0 */
    uint64_t next_value;   /* in, out: the number of the next value */
    uint64_t limit;        /* values that may be read: numbers 0 to limit - 1, plus PICI_SLACK bytes */
    size_t tiles;
    int zero; /* out: set if a value was zero, otherwise left as it was */
};

/* coo entries that lie in the dense range [first, first + n). Positions and values are untrusted. */
struct pici_scatter {
    uint8_t *dst; /* n elements: position first is dst's first */
    uint64_t first, count;
    const uint8_t *index, *values; /* entry 0 */
    unsigned index_width;
    /* In, out: place entries [next, end). next stops at the first that does not rise or is out of range. */
    uint64_t next, end;
    int zero; /* out: set if a value was zero, otherwise left as it was */
};

/* A tile of a hybrid block. */
struct pici_tile {
    const uint8_t *payload, *values;
    uint16_t nonzeros; /* nonzeros; 0 only if empty */
    uint8_t container; /* PICI_EMPTY, ... */
};

/* A run of whole tiles of a hybrid block to write. Payloads are written exactly, values with up to PICI_SLACK excess
 * bytes. */
struct pici_pack_tiles {
    const uint8_t *src;                /* tiles * TILE elements */
    const uint64_t (*word)[TILE_COLS]; /* for each tile, one bit per element */
    const struct pici_tile *tile;      /* nonzeros and container of each */
    size_t tiles;
    int stream;
    int signs;                 /* for pack_alike: stop at a tile with a negative zero, because it may keep signs */
    uint8_t *payload, *values; /* in, out: where the next ones go */
};

/* A run of whole tiles of a hybrid block to decode, or to add. Payloads and values are untrusted. Both may be read
 * up to PICI_SLACK bytes past their ends. */
struct pici_unpack_tiles {
    uint8_t *dst; /* tiles * TILE elements */
    const struct pici_tile *tile;
    size_t tiles;
    int stream;
};

/* Kernels that move elements of one width. Each width has two tables, which make different blocks. In one, an element
 * is nonzero if any of its bits is set. In the other, elements are floats and compared by value: -0.0 is a zero, and
 * stored as +0.0. */
struct pici_move {
    /* Returns the nonzeros among n elements. */
    uint64_t (*count)(const uint8_t *src, size_t n);
    /* Copy n elements to stored order. stream: use non-temporal stores. */
    void (*dense)(uint8_t *dst, const uint8_t *src, size_t n, int stream);
    /* dst[i] = a[i] ^ b[i] for n elements; dst overlaps neither. Prefetches what follows a and b. */
    void (*difference)(uint8_t *dst, const uint8_t *a, const uint8_t *b, size_t n);
    void (*pack)(struct pici_pack_run *);
    /* Returns the number of tiles done: all, or those before the first that is wrong. In a wrong tile, the index entry
     * is not next_value, or values go beyond limit. */
    size_t (*unpack)(struct pici_unpack *);
    /* Store positions (first + i) and values of the nonzeros among n <= TILE elements. Writes up to PICI_SLACK bytes
     * past the last of each. Returns the number of nonzeros. */
    size_t (*pack_coo)(uint8_t *index, unsigned index_width, uint8_t *values, const uint8_t *src, size_t n,
                       uint64_t first);
    /* Fill dst with zeros, then store the entries. */
    void (*unpack_coo)(struct pici_scatter *);
    /* Make the row words of whole tiles, one bit per element, and set each tile's nonzeros. */
    void (*masks)(uint64_t (*word)[TILE_COLS], struct pici_tile *, const uint8_t *src, size_t tiles);
    /* masks and dense in one pass. */
    void (*copy_masks)(uint8_t *dst, uint64_t (*word)[TILE_COLS], struct pici_tile *, const uint8_t *src, size_t tiles,
                       int stream);
    void (*pack_tiles)(struct pici_pack_tiles *);
    /* masks and pack_tiles in one pass, for one tile with at most `most` <= OFFSETS8_MOST nonzeros and no run of 256.
     * Writes the payload of its list, and its values with up to PICI_SLACK excess bytes. Returns its nonzeros, or more
     * than `most` for any other tile. Slower than two passes if there are few nonzeros. */
    unsigned (*pack_sparse)(uint8_t *payload, uint8_t *values, const uint8_t *src, unsigned most);
    /* masks and pack_tiles in one pass, for tiles that are expected to have the container of tile[0], a bitvector or
     * raw. Ignores the run's word and tile; sets nonzeros and container of the tiles done. Returns the number of tiles
     * done: all, or those before the first with another container. */
    size_t (*pack_alike)(struct pici_pack_tiles *, struct pici_tile *tile);
    /* Returns the number of tiles done: all, or those before the first that is wrong. In a wrong tile, the payload
     * breaks a rule of the format (the rule "container" is not checked), or a value is zero. */
    size_t (*unpack_tiles)(const struct pici_unpack_tiles *);
    /* Is one of n elements a negative zero: is only its highest bit set? stored: they are in stored order. */
    int (*any_negative)(const uint8_t *src, size_t n, int stored);
    /* Set the highest bit of each element of a tile, in host order, whose bit is set in word: one row per word. */
    void (*negate)(uint8_t *tile, const uint64_t word[TILE_COLS]);
    /* Copy n bytes with non-temporal stores. Null: this ISA has none. If not null, a run with stream set is written
     * exactly, without PICI_SLACK. */
    void (*copy)(uint8_t *dst, const uint8_t *src, size_t n);
    unsigned sparse_many;  /* from this many nonzeros of a tile on, pack_sparse is faster than masks and pack_tiles */
    unsigned stream_least; /* from this many bytes of a group's values on, non-temporal stores are faster */
};

/* Two lists of entries with rising positions, and their union. Each position of the union has the values of both lists;
 * a list without this position gives 0. Values are in host order, at any alignment. The outputs have room for the
 * entries of both lists, and overlap nothing. */
struct pici_union {
    const uint32_t *first, *second;
    const uint8_t *first_values, *second_values;
    size_t first_count, second_count;
    uint32_t *positions;           /* out */
    uint8_t *of_first, *of_second; /* out */
};

/* Kernels of lists of entries with values of one width. */
struct pici_lists {
    uint64_t (*unite)(const struct pici_union *); /* returns the number of positions of the union */
};

/* Kernels that add elements of one dtype, in the arithmetic of pici_scatter_add. A table of the same type XORs
 * elements of one width, for pici_apply: there, read + as ^. */
struct pici_add {
    /* dst[i] += src[i] wherever src[i] is nonzero; both in host order, at any alignment. */
    void (*dense)(uint8_t *dst, const uint8_t *src, size_t n);
    size_t (*unpack)(struct pici_unpack *); /* returns the same as unpack above */
    void (*unpack_coo)(struct pici_scatter *);
    size_t (*unpack_tiles)(const struct pici_unpack_tiles *); /* returns the same as unpack_tiles above */
};

/* The layout of a dtype for arithmetic. A magnitude is the bits below the sign. */
struct pici_kind {
    enum { PICI_IS_SIGNED, PICI_IS_UNSIGNED, PICI_IS_FLOAT } type;
    unsigned mantissa;  /* bits; this and the rest are for floats */
    uint64_t finite;    /* the greatest finite magnitude */
    uint64_t largest;   /* the greatest magnitude that is not a NaN; for integers the greatest magnitude */
    uint64_t quiet_bit; /* the bit that makes a NaN quiet */
};

/* Kernels of other arithmetic on dense elements, in host order, at any alignment. reduce.h has the contracts:
 * pici_reduce, pici_positive_zeros, pici_divide. */
struct pici_reduce {
    void (*order)(uint8_t *dst, const uint8_t *src, size_t n, const struct pici_kind *, int max);
    void (*positive_zeros)(uint8_t *dst, const uint8_t *src, size_t n, const struct pici_kind *, int quiet);
    void (*divide)(uint8_t *dst, size_t n, const struct pici_kind *, int by); /* floats; 16 bits: by up to 4096 */
    void (*divide_by_many)(uint8_t *dst, size_t n, const struct pici_kind *, int by); /* floats; any by */
};

struct pici_planes;         /* planes.h */
struct pici_topk_kernels;   /* topk.h */
struct pici_values_kernels; /* values.h */

/* The classes of elements by their exponents, with the share of a 0 for each: its bit is 0 with a probability of
 * zero / 2^15 (formats/small-delta.md). */
struct pici_classes {
    unsigned shift;               /* of the exponent in an element */
    unsigned exponents;           /* the largest one: 7 to 255, all bits of it set */
    unsigned low_exponent;        /* class c has exponent low + c; class 0 also those below, class 31 those above */
    uint16_t zero_share[32];      /* by class */
    uint16_t exponent_share[256]; /* the same by exponent */
};

/* The properties of n changed elements, and the numbering of their bits: formats/small-delta.md. */
struct pici_differences {
    const uint8_t *old_values, *new_values; /* may be read up to PICI_SLACK bytes past the last */
    size_t elements;
    unsigned shift, exponents, low_exponent; /* as in pici_classes */
    int literals;                            /* class 0 is of literals */
    uint8_t *class, *token;                  /* out: per element; no tokens for literals. Room for 32 more */
    uint32_t *magnitude;                     /* out: magnitudes; any number for literals. Room for 32 more */
    uint32_t *sign;                          /* out: bits */
    uint32_t *literal;                       /* out: numbers of the literals. Room for 32 more than n */
    size_t literal_count;                    /* out: how many */
    size_t more;                             /* out: elements that differ in more than the sign */
    uint32_t count[2][32 * 32]; /* in, out: at c * 32 + t, adds the differences of class c and token t; sum both */
};

/* The classes of n changed elements, and the first list of the differences among them. */
struct pici_first_list {
    const uint8_t *old_values; /* may be read up to PICI_SLACK bytes past the last */
    size_t elements;
    unsigned shift, exponents, low_exponent; /* as in pici_classes */
    int literals;                            /* class 0 is of literals */
    int list_all;                            /* also list differences whose share is 2^15 */
    const uint16_t *zero_share;              /* [32] shares of a 0 by class */
    uint8_t *class;                          /* out: of each element. This and the next arrays have room for 32 more */
    uint32_t *element;                       /* out: numbers of the elements that are listed */
    uint16_t *share;                         /* out: their shares */
    uint32_t *literal;                       /* out: numbers of the literals */
    size_t listed, literal_count;            /* out: how many */
};

/* The coder's lanes, and its next word. */
struct pici_lanes {
    uint32_t states[32];
    const uint16_t *next_word; /* host order */
};

/* Kernels of small deltas for elements of 1, 2 or 4 bytes. Bit i of an array of 32-bit words is bit i % 32 of word i /
 * 32. */
struct pici_small {
    /* Set bit i where base[i] and src[i] differ, for n elements; bits beyond n are 0. Append both elements to old and
     * now. Returns the number of differences. May write PICI_SLACK bytes past the last of either. */
    size_t (*changes)(uint32_t *bits, uint8_t *old, uint8_t *now, const uint8_t *base, const uint8_t *src, size_t n);
    /* The largest of n elements, where only the bits of `field` count; 0 if n is 0. field excludes the sign. */
    uint32_t (*largest)(const uint8_t *p, size_t n, uint32_t field);
    /* Append to old the elements whose bit is set. Returns their number. May write PICI_SLACK bytes past the last. */
    size_t (*pick)(uint8_t *old, const uint8_t *base, const uint32_t *bits, size_t n);
    /* Replace these elements, in order, by those at now. May read PICI_SLACK bytes past the last of now. */
    void (*place)(uint8_t *dst, const uint32_t *bits, const uint8_t *now, size_t n);
    void (*differences)(struct pici_differences *);
    void (*first_list)(struct pici_first_list *);
    /* now[i]: the float next to old[i], below it if bit i of sign is set; n of them. May access up to PICI_SLACK bytes
     * past the last of either. sign: (n + 7) / 8 bytes, at any alignment. Null for 4 bytes. */
    void (*neighbours)(uint8_t *now, const uint8_t *old, const uint8_t *sign, size_t n);
    /* zero[i]: the share of a 0 of element i's class, for n elements. */
    void (*shares)(uint16_t *zero, const uint8_t *p, size_t n, const struct pici_classes *);
    /* Split n bytes of two e2m1 each into 2 * n floats of 8 bits (formats/small-delta.md), and merge them again. Only
     * in the table for 1 byte. */
    void (*widen)(uint8_t *wide, const uint8_t *packed, size_t n);
    void (*narrow)(uint8_t *packed, const uint8_t *wide, size_t n);
};

/* The coder of small deltas. */
struct pici_coder {
    /* Encode steps of 32 bits with these shares of a 0, the last step first. Words go before *word, which moves down by
     * at most 32 per step. May overwrite PICI_SLACK bytes before the words. */
    void (*encode)(uint32_t x[32], uint16_t **word, const uint16_t *zero, const uint32_t *bits, size_t steps);
    /* Decode steps to bits. Uses at most 32 words per step, and may read PICI_SLACK bytes past them. */
    void (*decode)(struct pici_lanes *, uint32_t *bits, const uint16_t *zero, size_t steps);
    /* Decode for two independent coders, faster than one after the other. */
    void (*decode_two)(struct pici_lanes *, uint32_t *bits, const uint16_t *zero, struct pici_lanes *, uint32_t *bits2,
                       const uint16_t *zero2, size_t steps);
};

/* Bits of 64 words. gather appends the bits of word that mask selects to list, row after row. spread reverses this; its
 * list has no more bits than the mask. */
struct pici_bits {
    void (*gather)(uint64_t *list, const uint64_t *word, const uint64_t *mask);
    void (*spread)(uint64_t *word, const uint64_t *list, const uint64_t *mask);
};

struct pici_isa {
    const char *name;
    const struct pici_move *move[4];            /* by log2 of the width */
    const struct pici_move *by_value[4];        /* the same for floats whose -0.0 is a zero */
    const struct pici_add *add[DTYPE_LAST + 1]; /* by dtype; [0] is null */
    const struct pici_add *xors[4];             /* by log2 of the width */
    const struct pici_lists *lists[4];          /* likewise */
    const struct pici_reduce *reduce[4];        /* likewise */
    const struct pici_small *small[4];          /* likewise; null for widths that have none */
    const struct pici_coder *coder;
    const struct pici_bits *bits;
    const struct pici_planes *planes[DTYPE_FLOAT_LAST + 1];   /* by dtype; [0] is null */
    const struct pici_topk_kernels *topk[DTYPE_LAST + 1];     /* by dtype; null for all but f32, f64, f16 and bf16 */
    const struct pici_values_kernels *values[DTYPE_LAST + 1]; /* likewise */
};

/* The best table that this host can run and PICI_CPU allows, found at the first call. */
PICI_SHARED const struct pici_isa *pici_isa(void);

/* The tables that this host can run, the slowest ISA first; ends with a null. */
const struct pici_isa *const *pici_isas(void);

/* For tests and benchmarks: use this table from now on; null: the best one again. */
void pici_isa_force(const struct pici_isa *);

#endif
