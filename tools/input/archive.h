/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A zip file of tensors, .npz or .pt, as a head of bytes and parts, for source.h. The file has a share of the head, a
 * part, the next share, the next part, and so on, then the rest of the head. For a deflated part, the last bytes of its
 * share and the part are one deflated stream.
 *
 *   .npz  an array is a part, and the head has its .npy header. An entry that is not a readable array is kept: its
 *         stored bytes are a part. With `exact`, the same holds for a deflated array whose bytes zlib does not
 *         reproduce
 *   .pt   a storage is a part; the pickle names it after a tensor that covers all of it, in order. Other tensors are
 *         views, and a storage that only views use has no name. A deflated storage is like a deflated array. Among
 *         tensors with one name, all but the first get a suffix
 *
 * Bytes between parts are in the head. Long runs of them are parts called fillers, without names. Functions return an
 * exit status and print the reason, as in input.h. */
#ifndef PICI_TOOLS_INPUT_ARCHIVE_H
#define PICI_TOOLS_INPUT_ARCHIVE_H

#include "input/input.h"
#include "parse/npy.h"
#include "parse/torch.h"
#include "parse/unzip.h"

enum archive_kind { ARCHIVE_ARRAY, ARCHIVE_STORAGE, ARCHIVE_KEPT, ARCHIVE_FILLER };

enum {
    ARCHIVE_GAP_MOST = 1 << 20,
    ARCHIVE_HEAD_MOST = 64 << 20 /* bytes, of a gap that is in the head; of the head */
};

enum { ARCHIVE_NUMBER_ROOM = 24 /* characters of a suffix of a name */ };

#define ARCHIVE_NONE UINT32_MAX

struct archive_part {
    uint64_t offset;         /* of its bytes in the file; for a deflated array, of the deflated data */
    uint64_t bytes;          /* of it, inflated */
    uint64_t head_before;    /* bytes of the head that precede it */
    uint32_t number;         /* of its entry; not of a filler */
    uint32_t header;         /* bytes of its .npy header, the last ones of head_before */
    uint32_t tensor;         /* for a storage, the number of the tensor that describes it, or ARCHIVE_NONE */
    uint32_t unnamed_number; /* of a part without a name, its number among these */
    uint8_t kind;            /* enum archive_kind */
    uint8_t level;           /* at which zlib reproduces the entry's bytes; 0: not deflated, or not tried */
    uint32_t crc;            /* CRC-32 of those bytes */
    bool unnamed;            /* it is not a tensor, but a filler, or a storage that only views use */
    bool whole;              /* that tensor is all of the storage, in some order */
    bool fortran;            /* and its first index is the fastest */
    bool viewed;             /* views lie in it */
};

struct archive {
    struct input *input;
    struct zip zip;
    struct torch torch; /* none if the pickle could not be read */
    uint8_t *pickle;
    uint32_t *part_of; /* [torch.count] the part of each tensor's storage, or ARCHIVE_NONE */
    bool big_endian;   /* the storages' elements */
    uint8_t *head;     /* [head_size] */
    size_t head_size, head_capacity;
    struct archive_part *part; /* [parts] in the order of the file */
    size_t parts, capacity;
    char *stem; /* [stem_size] of the names of parts without one, room for a number after it */
    size_t stem_size;
    char *renamed;  /* names of tensors whose names another has */
    uint8_t *views; /* [views_size] of .pt, the table that formats/attributes.md specifies; or NULL */
    size_t views_size;

    struct unzip unzip; /* of the current part, if unzipping */
    bool unzipping;
    struct parse_error error;
};

/* exact: NULL; or the limit for a file that must be restored exactly: then this inflates deflated arrays and deflates
 * them again, unless all of them have more bytes than the limit. Prints a line if entries are kept. */
int archive_open_npz(struct archive *, struct input *, const struct limit *exact);

/* The same. Prints a line if the pickle cannot be read: storages are then named after their entries. */
int archive_open_pt(struct archive *, struct input *, const struct limit *exact);

/* The name of a part, then a NUL; valid until the next call. archive_title: for people; for a storage without a name,
 * the name of the tensor that describes it. */
const char *archive_name(struct archive *, const struct archive_part *, size_t *size);
const char *archive_title(struct archive *, const struct archive_part *, size_t *size);

/* Move to the first byte of a part. */
int archive_begin(struct archive *, const struct archive_part *);

/* Whether the file has the bytes of a part uncompressed. */
bool archive_in_place(const struct archive *, const struct archive_part *);

/* Read the next bytes of the part. With the last ones, checks the entry's CRC-32, except for storages of a .pt file
 * that are not deflated. */
int archive_take(struct archive *, const struct archive_part *, void *buffer, size_t bytes, uint64_t remaining);

/* The place of tensor i of torch in its storage, in words: "strides [1, 3]", "from 12 of embed.weight"; "" if it is the
 * whole storage, in row-major order, and describes it. Returns buffer. */
const char *archive_view(struct archive *, size_t index, char *buffer, size_t capacity);

/* Print archive->error. Returns TOOL_BAD. */
int archive_refuse(const struct archive *);

/* Take bytes of the entry that is unzipped; end that. */
int archive_skip(struct archive *, uint64_t bytes);
void archive_stop_unzipping(struct archive *);

void archive_close(struct archive *);

#endif
