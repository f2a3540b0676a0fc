/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A zip file of tensors, .npz or .pt, as a head of bytes and parts, for source.h. In the file, the bytes of the head
 * alternate with the parts: a share of the head, a part, the next share, and so on. For a deflated part, one deflated
 * stream holds the last bytes of its share and the part.
 *
 *   .npz  an array is a part, and the head has its .npy header. An entry that is not a readable array is kept: its
 *         stored bytes are a part. With `exact`, this also applies to a deflated array that zlib does not reproduce
 *   .pt   a storage is a part, with the name of a tensor that covers all of it, in order. Other tensors are views.
 *         A storage that only views use has no name. Deflated storages are treated like deflated arrays. If tensors
 *         share a name, all but the first get a suffix
 *
 * The head has the bytes between parts. Long runs of them are parts without names, called fillers. Functions return
 * an exit status and print the reason, as in input.h. */
#ifndef PICI_TOOLS_INPUT_ARCHIVE_H
#define PICI_TOOLS_INPUT_ARCHIVE_H

#include "input/input.h"
#include "parse/npy.h"
#include "parse/torch.h"
#include "parse/unzip.h"

enum archive_kind { ARCHIVE_ARRAY, ARCHIVE_STORAGE, ARCHIVE_KEPT, ARCHIVE_FILLER };

enum {
    ARCHIVE_GAP_MOST = 1 << 20,
    ARCHIVE_HEAD_MOST = 64 << 20 /* bytes: the longest gap in the head; the longest head */
};

enum { ARCHIVE_NUMBER_ROOM = 24 /* characters of a name's suffix */ };

#define ARCHIVE_NONE UINT32_MAX

struct archive_part {
    uint64_t offset;         /* of its bytes in the file; if deflated, of the deflated data */
    uint64_t bytes;          /* its length, inflated */
    uint64_t head_before;    /* bytes of the head that precede it */
    uint32_t number;         /* its entry; a filler has none */
    uint32_t header;         /* bytes of its .npy header, the last ones of head_before */
    uint32_t tensor;         /* for a storage, the number of the tensor that describes it, or ARCHIVE_NONE */
    uint32_t unnamed_number; /* its number among the parts without a name */
    uint8_t kind;            /* enum archive_kind */
    uint8_t level;           /* the level at which zlib reproduces the entry's bytes; 0: not deflated, or not tried */
    uint32_t crc;            /* CRC-32 of the deflated bytes */
    bool unnamed;            /* it is a filler, or a storage that only views use */
    bool whole;              /* `tensor` covers the whole storage, in some order */
    bool fortran;            /* the first index of `tensor` varies fastest */
    bool viewed;             /* views lie in it */
};

struct archive {
    struct input *input;
    struct zip zip;
    struct torch torch; /* empty if the pickle could not be read */
    uint8_t *pickle;
    uint32_t *part_of; /* [torch.count] the part of each tensor's storage, or ARCHIVE_NONE */
    bool big_endian;   /* the elements of the storages are big-endian */
    uint8_t *head;     /* [head_size] */
    size_t head_size, head_capacity;
    struct archive_part *part; /* [parts] in the order of the file */
    size_t parts, capacity;
    char *stem; /* [stem_size] the prefix of names for parts without one; has room for a number */
    size_t stem_size;
    char *renamed;  /* new names for tensors with duplicate names */
    uint8_t *views; /* [views_size] of .pt: the table of formats/attributes.md; or NULL */
    size_t views_size;

    struct unzip unzip; /* of the current part, while unzipping is set */
    bool unzipping;
    struct parse_error error;
};

/* exact: NULL, or a limit if the caller must be able to restore the exact file. The function then inflates and deflates
 * each deflated array to find its level. It rejects the file if the arrays exceed the limit in total. Warns if it keeps
 * entries. */
int archive_open_npz(struct archive *, struct input *, const struct limit *exact);

/* The same. Warns if the pickle cannot be read; storages then have the names of their entries. */
int archive_open_pt(struct archive *, struct input *, const struct limit *exact);

/* The name of a part, then a NUL; valid until the next call. archive_title is for people: for a storage without a name,
 * it gives the name of the tensor that describes the storage. */
const char *archive_name(struct archive *, const struct archive_part *, size_t *size);
const char *archive_title(struct archive *, const struct archive_part *, size_t *size);

/* Move to the first byte of a part. */
int archive_begin(struct archive *, const struct archive_part *);

/* Whether the file has the part's bytes uncompressed. */
bool archive_in_place(const struct archive *, const struct archive_part *);

/* Read the next bytes of the part. After the last ones, checks the entry's CRC-32, except for uncompressed storages of
 * a .pt file. */
int archive_take(struct archive *, const struct archive_part *, void *buffer, size_t bytes, uint64_t remaining);

/* How tensor `index` of torch lies in its storage, in words: "strides [1, 3]", "from 12 of embed.weight". "" if the
 * tensor describes the storage and covers it in row-major order. Returns buffer. */
const char *archive_view(struct archive *, size_t index, char *buffer, size_t capacity);

/* Print archive->error. Returns TOOL_BAD. */
int archive_refuse(const struct archive *);

/* Skip bytes of the entry that is being unzipped; stop unzipping. */
int archive_skip(struct archive *, uint64_t bytes);
void archive_stop_unzipping(struct archive *);

void archive_close(struct archive *);

#endif
