/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the files of the .pici container share: the layout's constants, the index, attributes, and chunks.
 * Specification: formats/file.md. */
#ifndef PICI_LIB_FILE_FILE_H
#define PICI_LIB_FILE_FILE_H

#include <inttypes.h>
#include <stdarg.h>

#include "bytes.h"
#include "pici/file.h"

/* ---- Layout ---- */

#define FILE_MAGIC "\x89PICI\r\n\x1a"
#define FILE_END_MAGIC "PICI.END"

enum { FILE_VERSION_FIRST = 1, FILE_VERSION = 2 };
enum { FILE_VERSION_AT = 8, FILE_RESERVED_AT = 12, FILE_HEADER_BYTES = 16 };
enum { REC_KIND = 0, REC_CONTENT = 4, REC_BODY_BYTES = 8, REC_BODY_HASH = 16, REC_HASH = 24, REC_BYTES = 32 };
enum { META_HEADER_BYTES = 8, ATTR_HEADER_BYTES = 8 };
enum { DESC_DTYPE = 0, DESC_RANK = 1, DESC_RESERVED = 2, DESC_CHUNK = 4, DESC_NAME_LEN = 8, DESC_ATTRS = 12 };
enum { DESC_HEADER_BYTES = 16 /* then the shape and the name */ };
enum { INDEX_HEADER_BYTES = 16, INDEX_ENTRY_BYTES = 16 /* then the description */, INDEX_CHUNK_BYTES = 16 };
enum { INDEX_TABLE_ZERO = 16, INDEX_TABLE_CONTENT = 20, INDEX_TABLE_BODY = 24, INDEX_TABLE_BYTES = 32 };
enum { TRAILER_INDEX = 0, TRAILER_INDEX_HASH = 8, TRAILER_HASH = 16, TRAILER_MAGIC = 24, TRAILER_BYTES = 32 };
enum { REC_LEAST = 48 /* the shortest record, with its body and padding */ };
enum { LZ4_RATIO = 64 /* the content of a compressed body has at most this many times its length */ };

/* Small tensors: a table describes several tensors. Their elements share common chunks, one for each dtype. */
enum { TABLE_MOST = 1 << 20 /* bytes of a table's content */, COMMON_MOST = 1 << 20 /* bytes of its elements */ };
enum { DTYPES = PICI_U64 + 1 };

/* A record's kind, as a little-endian integer. */
enum pici_rec {
    REC_META = 'M' | 'E' << 8 | 'T' << 16 | 'A' << 24,
    REC_TENS = 'T' | 'E' << 8 | 'N' << 16 | 'S' << 24,
    REC_TABL = 'T' | 'A' << 8 | 'B' << 16 | 'L' << 24,
    REC_BLCK = 'B' | 'L' << 8 | 'C' << 16 | 'K' << 24,
    REC_ZSTD = 'Z' | 'S' << 8 | 'T' << 16 | 'D' << 24,
    REC_INDX = 'I' | 'N' << 8 | 'D' << 16 | 'X' << 24
};

/* Bytes of a record whose body is at most 2^63. */
static inline uint64_t rec_bytes(uint64_t body_bytes)
{
    return REC_BYTES + ((body_bytes + 15) & ~UINT64_C(15));
}

/* size bytes and one to eight zero bytes, up to a multiple of 8. */
static inline size_t text_bytes(size_t size)
{
    return (size | 7) + 1;
}

/* ---- Memory ---- */

struct pici_buf {
    uint8_t *data;
    size_t size, capacity;
};

/* Make room for this many bytes in total. PICI_E_NOMEM: the buffer is unchanged. */
enum pici_status pici_buf_fit(struct pici_buf *, uint64_t needed);
void pici_buf_free(struct pici_buf *);

int pici_all_zero(const uint8_t *bytes, size_t size);

/* Whether a compressed body of `bytes` bytes may have a content of content_bytes. */
int pici_lz4_fits(uint64_t bytes, uint64_t content_bytes);

/* ---- Error messages ---- */

enum { PICI_ERROR_CAP = 512, PICI_QUOTE_CAP = 80 };

/* Write the name in single quotes to `quoted`. Escapes bytes other than printable ASCII, and cuts a long name. Returns
 * `quoted`. */
const char *pici_quote(char quoted[PICI_QUOTE_CAP], const char *name, size_t size);

/* Write the text of the errno value error_number to `message`. Returns `message`. */
const char *pici_errno_text(int error_number, char *message, size_t capacity);

/* ---- Descriptors ---- */

/* The number of files to keep open when reading many in turn: a quarter of the process's limit, at most 200. Others are
 * opened for each read. */
size_t pici_files_kept(void);

/* ---- Descriptions and attributes ---- */

/* A valid description of a tensor. Its pointers point into the bytes that it was parsed from. */
struct pici_desc {
    enum pici_dtype dtype;
    unsigned rank;
    uint32_t chunk_elements, attribute_count;
    const uint8_t *shape; /* little-endian */
    const char *name;
    size_t name_size, width; /* of an element */
    uint64_t count, chunks;
    size_t bytes; /* of the description itself */
};

/* Parse the description at bytes. Returns 0 if it breaks the rule "description". */
int pici_desc_parse(struct pici_desc *, const uint8_t *bytes, size_t size);

/* The product of shape. Returns 0 if the product times width is not below 2^63. */
int pici_shape_count(uint64_t *count, unsigned rank, const uint64_t *shape, size_t width);

static inline uint64_t pici_desc_chunk(const struct pici_desc *description,
                                       uint64_t chunk_number) /* elements of that chunk */
{
    uint64_t remaining = description->count - chunk_number * description->chunk_elements;
    return remaining < description->chunk_elements ? remaining : description->chunk_elements;
}

/* Bytes of the longest block of count elements. */
size_t pici_chunk_bound(enum pici_dtype, uint64_t count);

/* The attributes in the body of a META or TENS record. */
struct pici_attrs {
    struct pici_buf body;
    struct pici_buf offsets; /* a size_t for each attribute: its offset in body */
    uint32_t count;
};

/* Check the attributes that follow the first `skipped` bytes of attributes->body, and fill attributes->offsets.
 * PICI_E_CORRUPT: they break the rule "attributes".  PICI_E_NOMEM. */
enum pici_status pici_attrs_parse(struct pici_attrs *attributes, size_t skipped, uint32_t count);
void pici_attrs_get(const struct pici_attrs *attributes, uint32_t number, struct pici_attr *attribute);
int pici_attrs_find(const struct pici_attrs *attributes, const char *key, uint32_t *number);
void pici_attrs_free(struct pici_attrs *);

/* ---- The index ---- */

#define NO_TABLE UINT32_MAX

/* The place of a tensor in the index. */
struct pici_entry {
    size_t position; /* of its entry in the index; of a small tensor, of its description in small */
    uint32_t table;  /* NO_TABLE: it has a TENS record of its own */
    uint32_t within; /* of its description in its table */
    uint32_t first;  /* of its elements in the common chunk */
    uint32_t before; /* bytes of the elements of tensors before it in its table */
};

/* A TABL record and its chunks. */
struct pici_table {
    size_t entry, chunks;      /* offsets in the index: of its entry, and of its chunks' places */
    size_t first, count;       /* its tensors */
    size_t bytes;              /* of its content */
    uint32_t element_bytes;    /* of all its tensors */
    uint32_t elements[DTYPES]; /* elements of each dtype: a chunk, if there are any */
    int checked;               /* random access: its record was read and matches the index */
};

/* The content of a table. */
struct pici_body {
    struct pici_buf bytes;
    size_t table; /* its number, plus 1; 0: none */
};

enum { BODIES_KEPT = 8 };

/* The body of an INDX record, the tables of small tensors, and the order of names. */
struct pici_index {
    struct pici_buf bytes;
    struct pici_buf entries; /* a struct pici_entry for each tensor */
    struct pici_buf small;   /* the descriptions of small tensors */
    struct pici_buf tables;  /* a struct pici_table for each */
    int open;                /* the last table has no record yet, and takes more tensors */
    struct pici_body bodies[BODIES_KEPT];
    unsigned newest; /* the body of the open table, or the last one decompressed */
    struct pici_buf
        order;    /* a size_t for each tensor: their numbers, in runs sorted by name; then as much space for merging */
    size_t count; /* tensors */
    int run_count;
    size_t run_starts[64]; /* first place of each run in order; each run is at least twice as long as the next */
};

enum pici_status pici_index_begin(struct pici_index *, uint64_t meta_hash);
enum pici_status pici_index_tensor(struct pici_index *, uint64_t offset, uint64_t header_hash,
                                   const uint8_t *description, size_t bytes);
enum pici_status pici_index_chunk(struct pici_index *, uint64_t offset, uint64_t header_hash);

/* Add a small tensor, whose description and attributes [bytes] are as in a TENS record, to the open table; to a new one
 * if none is open. */
enum pici_status pici_index_small(struct pici_index *, const uint8_t *body, size_t bytes);

/* As pici_index_small, for all tensors of a table. PICI_E_CORRUPT: *broken_rule is the broken rule. PICI_E_NOMEM. */
enum pici_status pici_index_table(struct pici_index *, const uint8_t *data, size_t bytes, const char **broken_rule);

/* Add the record of the open table, whose body [bytes] may be compressed, and close it. Its chunks follow. */
enum pici_status pici_index_close(struct pici_index *, uint64_t offset, uint64_t header_hash, const uint8_t *body,
                                  size_t bytes, uint32_t content_bytes);

/* The table that contains the tensor; null if it has a record of its own. */
struct pici_table *pici_index_table_of(const struct pici_index *, size_t tensor);

/* The number of a table's tensor's first element in its common chunk. */
uint64_t pici_index_first(const struct pici_index *, size_t tensor);

/* The description and attributes of a tensor in a table. *body is valid until the next call. */
enum pici_status pici_index_body(struct pici_index *, size_t tensor, const uint8_t **body, size_t *bytes);

/* Check index->bytes, just read, for all that needs no other record: descriptions, offsets (of records before
 * index_offset) and extent. PICI_E_CORRUPT: *broken_rule is the broken rule. PICI_E_NOMEM. */
enum pici_status pici_index_load(struct pici_index *index, uint64_t index_offset, uint32_t version,
                                 const char **broken_rule);

/* Find the tensor of that name. Returns 0 if there is none. */
int pici_index_find(const struct pici_index *, const char *name, size_t size, size_t *tensor);

/* Sort all names into one run. Returns 0 if two are equal: *tensor is one of the two. */
int pici_index_unique(struct pici_index *, size_t *tensor);

/* The description of an existing tensor. */
void pici_index_desc(const struct pici_index *, size_t tensor, struct pici_desc *);

/* The place of a record by the index: the TENS or TABL record of a tensor, or one of its chunks. */
struct pici_place {
    uint64_t offset, end, hash;
    uint64_t count; /* of a chunk: its elements */
};
void pici_index_tens(const struct pici_index *, size_t tensor, uint64_t index_offset, struct pici_place *);
void pici_index_blck(const struct pici_index *, size_t tensor, uint64_t chunk_number, uint64_t index_offset,
                     struct pici_place *);

/* Bytes of a tensor in the file: of its records, or its share of common ones. */
uint64_t pici_index_stored(const struct pici_index *, size_t tensor, uint64_t index_offset);
void pici_index_free(struct pici_index *);

/* ---- Chunks ---- */

/* Encoding: the memory and the result of one chunk. */
struct pici_packer {
    struct pici_buf block, frame;
    struct pici_buf other_block, other_frame; /* the same without packing, while trying both */
    void *zstd;
    enum pici_rec kind; /* the body is block (REC_BLCK) or frame (REC_ZSTD) */
    enum pici_status status;
};

struct pici_pack_how {
    enum pici_dtype dtype;
    enum pici_format format;
    int threads; /* inside the block */
    int zstd_level;
    enum pici_zeros zeros;
    enum pici_pack pack;
    int delta; /* some or all elements are a delta: exact, and packed only in PICI_PACKED */
};

/* Encode count elements of source; base_elements: null, or the base of a delta. Sets kind and status. */
void pici_pack_chunk(struct pici_packer *, const void *base_elements, const void *source, uint64_t count,
                     const struct pici_pack_how *);
void pici_packer_free(struct pici_packer *);

/* Decoding: the record of one chunk, and the result of checking it. */
struct pici_chunk {
    uint64_t tensor, number, offset; /* tensor: PICI_FILE if none is loaded; offset: of the record */
    uint64_t body_hash;              /* of its record */
    enum pici_rec kind;
    enum pici_dtype dtype; /* of the tensor */
    uint64_t count;
    struct pici_buf stored, block; /* the record's body; the content of the zstd frame */
    void *zstd;

    enum pici_status status;
    const char *rule;        /* the broken rule of formats/file.md, by the status */
    struct pici_fault fault; /* if the rule is "block": the rule of formats/block.md */
};

enum pici_chunk_use {
    CHUNK_HASH,   /* check body-hash only */
    CHUNK_OPEN,   /* check all rules except those inside the block; pici_decompress_range may follow */
    CHUNK_VERIFY, /* check all rules */
    CHUNK_DECODE, /* the same, and decode to destination */
    CHUNK_APPLY   /* the same, and XOR into destination */
};

/* Sets status, and rule and fault. threads: inside the block. */
void pici_use_chunk(struct pici_chunk *, enum pici_chunk_use, void *destination, int threads);

/* The block of a chunk that is open. */
const uint8_t *pici_chunk_block(const struct pici_chunk *, size_t *size);
void pici_chunk_free(struct pici_chunk *);

/* PICI_E_UNSUPPORTED: a build without zstd. PICI_E_ARG: zstd has no such level. Level 0 means no zstd. */
enum pici_status pici_zstd_level(int level);

/* Run work(context, i) for i in [0, threads), on that many threads. */
void pici_chunks_parallel(int threads, void (*work)(void *context, int i), void *context);

/* ---- Descriptors ---- */

/* Callbacks whose context is an int *. */
int pici_fd_write(void *descriptor, const void *bytes, size_t size);
/* fsync, if the file system supports it. Returns -1 with errno set on failure. */
int pici_fd_sync(int descriptor);
int pici_fd_read(void *descriptor, void *bytes, size_t capacity, size_t *received);
int pici_fd_read_at(void *descriptor, void *bytes, size_t size, uint64_t offset);

#endif
