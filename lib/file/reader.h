/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A reader of .pici files, between its three files: record.c has bytes, records and words for what is wrong,
 * reader.c opens a file and reads what describes its tensors, read.c reads chunks. */
#ifndef PICI_LIB_FILE_READER_H
#define PICI_LIB_FILE_READER_H

#include "file/file.h"

enum { READER_IN_BYTES = 64 << 10 };

enum pici_part { PART_HEADER, PART_META, PART_NEXT, PART_TENS, PART_CHUNK, PART_INDEX, PART_TRAILER };

struct pici_reader {
    pici_read_fn read;       /* a forward reader's; else null */
    pici_read_at_fn read_at; /* a reader's at random */
    void *ctx;
    int fd, own_fd;
    const uint8_t *memory;
    uint64_t file_bytes; /* at random */

    uint8_t *in; /* forward: what has been read ahead */
    size_t in_at, in_len;
    uint64_t at; /* forward: bytes of the file that have been used */

    struct pici_index index; /* forward: as far as it has been seen */
    uint64_t index_offset;   /* at random */
    struct pici_attrs file_attrs;
    struct pici_attrs attrs; /* of tensor attrs_of; forward: the whole TENS record's body */
    uint64_t attrs_of;
    int have_file_attrs;

    uint64_t current; /* of next and read; PICI_FILE before the first */
    uint64_t pos;     /* elements of it that have been read */
    int ended;        /* no tensor is left */

    int slots, threads;
    struct pici_chunk *chunks; /* [slots] */
    struct pici_chunk part;    /* the last chunk that was read in part */

    enum pici_status failed; /* forward: no further */
    enum pici_part where;    /* what is being read, for words; */
    uint64_t where_offset, where_tensor, where_chunk;
    char error[PICI_ERROR_CAP];
};

/* The header of a record. */
struct pici_record {
    uint64_t offset, body_bytes, body_hash, hash;
    uint32_t kind;
};

/* A call on a reader: may it go on? Clears the words of the last. */
enum pici_status pici_reader_enter(struct pici_reader *r);

/* Put what is wrong in words, with where it is. rule may be null. Returns s. */
__attribute__((format(printf, 4, 5))) enum pici_status pici_reader_fail(struct pici_reader *r, enum pici_status s,
                                                                        const char *rule, const char *format, ...);
enum pici_status pici_reader_no_memory(struct pici_reader *r);

enum pici_status pici_reader_wrong_kind(struct pici_reader *r);
enum pici_status pici_reader_wrong_length(struct pici_reader *r, const struct pici_record *rec);

/* What follows is about this part of the file. */
void pici_reader_look_at(struct pici_reader *r, enum pici_part part, uint64_t offset);

/* Forward: the next n bytes; or up to n, and 0 only at the end. */
enum pici_status pici_reader_take(struct pici_reader *r, void *p, size_t n);
enum pici_status pici_reader_take_some(struct pici_reader *r, uint8_t *p, size_t n, size_t *got);

/* At random: the n bytes at offset. */
enum pici_status pici_reader_pull(struct pici_reader *r, uint64_t offset, void *p, size_t n);

/* The header of the next record, or at random of the one at offset. */
enum pici_status pici_reader_header(struct pici_reader *r, struct pici_record *rec, uint64_t offset);

/* At random: the header of a record that must be as the index has it. */
enum pici_status pici_reader_header_at(struct pici_reader *r, struct pici_record *rec, const struct pici_place *place);

/* The body of a record whose length has been found within its limits; checks its padding. */
enum pici_status pici_reader_body(struct pici_reader *r, const struct pici_record *rec, struct pici_buf *body);

/* Go over what is left of the current tensor. */
enum pici_status pici_reader_pass(struct pici_reader *r);

#endif
