/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the test programs share: buffers between guard pages, random numbers, patterns of zeros, golden vectors, and the
 * comparison of the codec with formats/ref.c. No test framework: a check returns null, or what is wrong in words. */
#ifndef PICI_TESTS_UTIL_H
#define PICI_TESTS_UTIL_H

#include <stddef.h>
#include <stdint.h>

#include "formats/ref_values.h"
#include "pici/pici.h"

/* Whether the program is built with a sanitizer, which has a malloc of its own and takes many times as long. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

/* ---- plain programs ---- */

/* Count a test. bad: null, or what is wrong, which is printed. */
void tally(const char *what, const char *bad);

/* Count a test, and print nothing. Returns 0 for a good one, else the number of bad ones so far. */
unsigned tally_count(int good);

/* Print "N passed, N failed", the last line. Returns the exit status. */
int tally_end(void);

/* ---- random numbers: SplitMix64 ---- */

struct rng {
    uint64_t state;
};

uint64_t rng_next(struct rng *);
/* 0 <= x < n; n > 0 */
uint64_t rng_below(struct rng *, uint64_t n);
/* True with a probability of ppm in a million. */
int rng_chance(struct rng *, unsigned ppm);
/* Whether to leave a case out: five of six in a build with a sanitizer, two of three in clang's, none in gcc's. For
 * tests of many random cases, which take minutes. */
int left_out(struct rng *);
/* Whether the environment asks for all cases, however long they take: PICI_TEST_FULL. */
int test_full(void);
/* Whether it asks for fewer inputs, in a short run on an emulated CPU: PICI_TEST_FEW. Each kind of input has some. */
int test_few(void);

/* ---- memory between guard pages ---- */

/* A stretch of pages with an inaccessible page before it and one after it, which holds one buffer at a time. */
struct guard {
    uint8_t *map;
    size_t map_bytes, cap; /* of the mapping; of the stretch */
    uint8_t *at;           /* the buffer */
    size_t bytes;
};

enum guard_side { GUARD_END, GUARD_START };

/* Room for buffers of up to cap bytes. Aborts without memory. */
void guard_init(struct guard *, size_t cap);
/* A buffer of so many bytes, skew bytes from the inaccessible page at its end or start. What lies between the buffer
 * and the pages is painted, up to 256 bytes of it on either side. */
uint8_t *guard_place(struct guard *, size_t bytes, enum guard_side, size_t skew);
/* Whether that paint is whole. */
int guard_intact(const struct guard *);
void guard_free(struct guard *);

/* malloc that aborts; never null. */
void *test_alloc(size_t bytes);

/* ---- data ---- */

/* A value of dtype that is not all zero bits. Floats: mostly near one another, so that sums round, cancel and carry;
 * also -0, denormals, the greatest, infinities, NaNs of either kind, and any bits at all. */
uint64_t value_random(struct rng *, enum pici_dtype);

enum pattern {
    PATTERN_ZERO,
    PATTERN_FULL,
    PATTERN_EQUAL, /* all elements one value */
    PATTERN_EVEN,
    PATTERN_ODD,
    PATTERN_SINGLE,
    PATTERN_FIRST,
    PATTERN_LAST,
    PATTERN_0_01, /* percent nonzero */
    PATTERN_0_1,
    PATTERN_1,
    PATTERN_3,
    PATTERN_8,
    PATTERN_12,
    PATTERN_30,
    PATTERN_50,
    PATTERN_70,
    PATTERN_90,
    PATTERN_99,
    PATTERN_RUNS,   /* runs of nonzeros and of zeros */
    PATTERN_COLUMN, /* one column of the tiles */
    PATTERN_ROW,
    PATTERN_TILES,  /* each tile its own density, empty and full among them */
    PATTERN_MASKED, /* 5% of floats nonzero; half of the zeros negative, as a product with a mask leaves them */
    PATTERN_SIGNS,  /* each tile its own density, and its own share of negative zeros among the zeros of floats */
    PATTERNS
};

const char *pattern_name(enum pattern);

/* n elements, in host order. */
void pattern_fill(void *dst, uint64_t n, enum pici_dtype, enum pattern, struct rng *);

/* Make zeros among n floats negative, each with a chance of so many in a million. */
void zeros_negate(void *dst, uint64_t n, enum pici_dtype, uint32_t ppm, struct rng *);
/* Make the negative zeros among n floats positive. */
void zeros_clear(void *dst, uint64_t n, enum pici_dtype);

/* ---- golden vectors ---- */

struct roundtrip {
    const char *name;
    enum pici_dtype dtype;
    uint64_t n;
    const void *dense; /* host order */
    enum pici_format format;
    int checksum;
    int earlier;   /* decoders must accept it, and encoders write another one */
    int one_level; /* packed */
    const uint8_t *block;
    size_t len;
};

struct verdict {
    const char *name;
    const char *rule; /* null: the block is valid */
    enum pici_status status;
    uint64_t offset, tile;
    const uint8_t *block;
    size_t len;
};

/* Call fn for each block of DIRECTORY/FILE, of the syntax of roundtrip.txt or verify.txt. Returns how many, or -1 if
 * the file is missing or not as its README says. */
int blocks_read(const char *directory, const char *file, void (*fn)(const struct roundtrip *, void *), void *context);
int faults_read(const char *directory, const char *file, void (*fn)(const struct verdict *, void *), void *context);

/* The same of roundtrip.txt and verify.txt. */
int roundtrips_read(const char *directory, void (*fn)(const struct roundtrip *, void *), void *context);
int verdicts_read(const char *directory, void (*fn)(const struct verdict *, void *), void *context);

/* A small delta from base to result, n elements each in host order. */
struct small_vector {
    const char *name;
    enum pici_dtype dtype;
    enum pici_holds holds;
    uint64_t n;
    const void *base, *result;
    enum { SMALL_MAKE, SMALL_ACCEPT, SMALL_REFUSE } use; /* made by an encoder; else decoded only */
    enum pici_format format;
    int checksum;
    enum pici_status status;
    const uint8_t *delta;
    size_t len;
};

/* The same for small.txt. */
int smalls_read(const char *directory, void (*fn)(const struct small_vector *, void *), void *context);

/* Elements, and the arrays of a lossy codec for them; or arrays alone, which must be refused. Host order. */
struct value_vector {
    const char *name;
    struct ref_values v;
    uint64_t n, count[REF_VALUES_ARRAYS];
    const void *src, *result, *array[REF_VALUES_ARRAYS];
    int refuse;
};

/* The same for values.txt, or for another file of such vectors. */
int values_read(const char *directory, const char *file, void (*fn)(const struct value_vector *, void *),
                void *context);

struct vector_attribute {
    const char *key;
    uint8_t *value;
    size_t len;
};

enum { VECTOR_PARTS = 8 };

/* A tensor of a golden file, or a view of one. */
struct vector_tensor {
    const char *name;
    enum pici_dtype dtype;
    enum pici_format format;
    uint32_t chunk_elements;
    unsigned rank, attributes;
    uint64_t shape[3];
    uint8_t *elements; /* host order */
    size_t bytes;
    struct vector_attribute attribute[2];
};

struct file_vector {
    const char *name;
    unsigned version;
    int written; /* a writer makes these bytes of these tensors */
    uint8_t *file;
    size_t len;
    unsigned attributes, tensors, views;
    struct vector_attribute attribute[VECTOR_PARTS];
    struct vector_tensor tensor[VECTOR_PARTS], view[VECTOR_PARTS];
};

/* The same for files.txt. */
int files_read(const char *directory, void (*fn)(const struct file_vector *, void *), void *context);

/* ---- the codec against the reference ---- */

/* What a check was made on. */
struct subject {
    const void *src; /* n elements, host order */
    uint64_t n;
    enum pici_dtype dtype;
    enum pici_format format; /* not AUTO */
    int checksum, threads;
    enum pici_zeros zeros;
};

/* The three buffers of a check: made once, used by many. */
struct rig {
    struct guard src, block, dst;
    struct rng rng;
    int one_level; /* packed blocks have one level */
};

/* Room for inputs of up to bytes. */
void rig_init(struct rig *, size_t bytes, uint64_t seed);
void rig_free(struct rig *);

/* Encode, verify, inspect, decode, decode ranges, add, and make and apply as a delta. Do so with every ISA of this
 * host, in guarded buffers at either end and at odd addresses, and compare each result with the reference's. Then
 * encode the same elements with signs on some of their zeros by value, and compare with the reference's block of them
 * without. Null if all is well; else what is not, in a static buffer. Leaves the automatic choice of an ISA. */
const char *check_codec(struct rig *, const struct subject *);

struct pici_isa; /* cpu/kernels.h */

/* The tables of kernels to compare: all that this CPU can run, or only the last one if the environment has
 * PICI_TEST_LAST. That is for an emulated CPU, which would take minutes for the others; they run elsewhere. Ends with
 * NULL. */
const struct pici_isa *const *tested_isas(void);

/* As check_codec, of a given block that the encoder must produce as well. */
const char *check_block(struct rig *, const struct subject *, const uint8_t *block, size_t len);

/* Decode, and run all readers on, a given block that the encoder does not produce. The reference must decode it to the
 * subject's elements, and every ISA must agree with the reference. */
const char *check_earlier(struct rig *, const struct subject *, const uint8_t *block, size_t len);

/* Any bytes, claiming up to the `room` elements of 8 bytes that the rig was made for. With every ISA, every reader must
 * accept or reject them with the reference's status. pici_verify_at must name the same fault, and decoded elements must
 * agree. Null if all is well. */
const char *check_readers(struct rig *, const uint8_t *block, size_t len, uint64_t room);

#endif
