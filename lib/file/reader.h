/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The reader of .pici files. Each of its files calls only those before it in this list:
 *   reader_record.c     bytes from the source, records, error messages
 *   reader_metadata.c   file header, META and TENS records, index, trailer
 *   reader_chunks.c     the chunks of a tensor
 *   reader.c            opening and closing; the public functions for tensors and attributes
 *   reader_read.c       the public functions that read elements or verify the file
 *   views.c             the public functions for views */
#ifndef PICI_LIB_FILE_READER_H
#define PICI_LIB_FILE_READER_H

#include "file/file.h"

enum { READER_IN_BYTES = 64 << 10 };
enum { COMMON_KEPT = 16 /* common chunks, of any dtypes and tables */ };

/* The part of the file that an error message names. */
enum pici_part { PART_HEADER, PART_META, PART_NEXT, PART_TENS, PART_CHUNK, PART_INDEX, PART_TRAILER };

/* The views of a file, loaded at the first request. */
struct pici_view_name {
    const char *name; /* [size] */
    size_t size, number;
};

struct pici_views {
    int loaded;
    size_t count;
    const uint8_t **rows;         /* [count] their places in the attribute, */
    const uint8_t *table_end;     /* which ends here */
    struct pici_view_name *names; /* [count] sorted */
    const char *stem;             /* [stem_size] of PICI_ATTR_UNNAMED; or NULL */
    size_t stem_size;
};

struct pici_reader {
    pici_read_fn read;       /* of a forward reader; else null */
    pici_read_at_fn read_at; /* of a random-access reader; else null */
    void *context;
    int descriptor, owns_descriptor;
    const uint8_t *memory;
    uint64_t file_bytes; /* random access */

    uint8_t *ahead; /* forward: bytes read ahead */
    size_t ahead_used, ahead_size;
    uint64_t consumed; /* forward: bytes of the file consumed */

    uint32_t version;        /* of the file */
    struct pici_index index; /* forward: of the records read so far */
    uint64_t index_offset;   /* random access */
    struct pici_attrs file_attrs;
    struct pici_attrs attrs; /* of tensor attrs_of; forward: the whole body of its TENS record */
    uint64_t attrs_of;
    int have_file_attrs;
    struct pici_views views;

    uint64_t current;       /* tensor of pici_reader_next and _read; PICI_FILE before the first */
    uint64_t elements_read; /* elements of it read so far */
    int ended;              /* there is no further tensor */

    int slots, threads;
    struct pici_chunk *chunks;  /* [slots] */
    struct pici_chunk part;     /* the last chunk that was read in part */
    struct pici_chunk *common;  /* [COMMON_KEPT] random access: common chunks; null before the first is read */
    unsigned oldest_common;     /* the next to replace */
    struct pici_buf compressed; /* a compressed body */
    struct pici_buf elements;   /* forward: of the current tensor's table, */
    size_t elements_at[DTYPES]; /* where each dtype's begin, */
    int have_elements;          /* once they have been read */

    enum pici_status failed; /* every further call returns it */
    enum pici_part where;    /* the part being read, for error messages */
    uint64_t where_offset, where_tensor, where_chunk;
    char error[PICI_ERROR_CAP];
};

/* The header of a record. */
struct pici_record {
    uint64_t offset, body_bytes, body_hash, hash;
    uint32_t kind, content_bytes; /* content_bytes: of a compressed body's content; 0: it is not compressed */
};

/* ---- reader_record.c ---- */

/* Begin a public call: clears the error message. Returns the status of a failure that has ended the reader. */
enum pici_status pici_reader_enter(struct pici_reader *reader);

/* Set the error message of a failure while reading: where, what, and the rule, if not null. Ends a forward reader.
 * Returns s. */
__attribute__((format(printf, 4, 5))) enum pici_status pici_reader_fail(struct pici_reader *r, enum pici_status s,
                                                                        const char *rule, const char *format, ...);

/* Set the error message of a wrong call. The reader remains usable. Returns s. */
__attribute__((format(printf, 3, 4))) enum pici_status pici_reader_refuse(struct pici_reader *r, enum pici_status s,
                                                                          const char *format, ...);

/* PICI_E_NOMEM: there is no memory for `purpose`. */
enum pici_status pici_reader_no_memory(struct pici_reader *reader, const char *purpose);

enum pici_status pici_reader_wrong_kind(struct pici_reader *reader);
enum pici_status pici_reader_wrong_length(struct pici_reader *reader, const struct pici_record *record);

/* Error messages name this part of the file from now on. */
void pici_reader_look_at(struct pici_reader *reader, enum pici_part part, uint64_t offset);

/* Forward: the next size bytes; or up to size, and 0 only at the end. */
enum pici_status pici_reader_take(struct pici_reader *reader, void *bytes, size_t size);
enum pici_status pici_reader_take_some(struct pici_reader *reader, uint8_t *bytes, size_t size, size_t *received);

/* Random access: the size bytes at offset. */
enum pici_status pici_reader_pull(struct pici_reader *reader, uint64_t offset, void *bytes, size_t size);

/* The header of the record at offset; of a forward reader, of the next record. */
enum pici_status pici_reader_header(struct pici_reader *reader, struct pici_record *record, uint64_t offset);

/* Random access: the header of the record at place; it must be the one that the index lists. */
enum pici_status pici_reader_header_at(struct pici_reader *reader, struct pici_record *record,
                                       const struct pici_place *place);

/* The body of a record, whose length the caller has checked; checks the padding. `purpose`: for a lack of memory. */
enum pici_status pici_reader_body(struct pici_reader *reader, const struct pici_record *record, struct pici_buf *body,
                                  const char *purpose);

/* ---- reader_metadata.c ---- */

enum pici_status pici_reader_file_header(struct pici_reader *reader);

/* The META record to reader->file_attrs; *header_hash is its header_hash. place: null in a forward reader. */
enum pici_status pici_reader_meta(struct pici_reader *reader, const struct pici_place *place, uint64_t *header_hash);

/* Forward: the TABL record whose header has been read, to reader->index. */
enum pici_status pici_reader_table(struct pici_reader *reader, const struct pici_record *record);

/* The description and attributes of the tensor, which stands in a table, to reader->attrs. */
enum pici_status pici_reader_small(struct pici_reader *reader, uint64_t tensor);

/* The TENS record of the tensor, whose header has been read, to reader->attrs. */
enum pici_status pici_reader_tens(struct pici_reader *reader, const struct pici_record *record, uint64_t tensor,
                                  struct pici_desc *description);

/* Random access: the attributes of the tensor or of PICI_FILE. */
enum pici_status pici_reader_load_attrs(struct pici_reader *reader, uint64_t tensor);

/* Random access: the trailer and the index to reader->index. */
enum pici_status pici_reader_index(struct pici_reader *reader);

/* Forward: the rest of the file from the INDX record on, whose header has been read. */
enum pici_status pici_reader_end(struct pici_reader *reader, const struct pici_record *record);

/* ---- reader_chunks.c ---- */

/* The description of the current tensor. */
void pici_reader_current(const struct pici_reader *reader, struct pici_desc *description);

/* Read chunk_count <= reader->slots chunks of the tensor from first_chunk on, and use them. destination: null unless
 * they are decoded or applied. */
enum pici_status pici_reader_chunks(struct pici_reader *reader, uint64_t tensor, const struct pici_desc *description,
                                    uint64_t first_chunk, int chunk_count, enum pici_chunk_use use, void *destination);

/* Read chunk number of the tensor; the block of *part is open. */
enum pici_status pici_reader_open_part(struct pici_reader *reader, uint64_t tensor, const struct pici_desc *description,
                                       uint64_t number, struct pici_chunk **part);

/* Elements [first_element, first_element + elements) of the tensor, decoded or applied. */
enum pici_status pici_reader_elements(struct pici_reader *reader, uint64_t tensor, const struct pici_desc *description,
                                      uint64_t first_element, uint64_t elements, enum pici_chunk_use use,
                                      void *destination);

/* Forward: skip the rest of the current tensor, checking checksums. */
enum pici_status pici_reader_pass(struct pici_reader *reader);

#endif
