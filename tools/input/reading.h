/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reads a .pici file, tensor by tensor and piece by piece. Functions return an exit status and print the reason, as
 * in input.h. */
#ifndef PICI_TOOLS_INPUT_READING_H
#define PICI_TOOLS_INPUT_READING_H

#include "delta/delta.h"
#include "input/input.h"
#include "parse/folder_list.h"
#include "parse/reference.h"

/* The kind of a file, by its first bytes, or else by its name (path) if it ends in .pici or .blk. */
enum reading_kind { READING_OTHER, READING_FILE, READING_BLOCK };
int reading_kind(struct input *input, const char *path, enum reading_kind *kind);

/* The shards of a compressed folder. References lead from one to another. */
struct reading_shards {
    const char *folder; /* path of the folder; NULL: no shards */
    const struct folder_list *list;
};

/* The file that the current references lead to. */
struct reading_other {
    struct input input;
    struct pici_reader *reader; /* NULL: none is open */
    char *shard, *path;         /* the shard's name, "" for the reading's own file; and the path */
    uint64_t index;             /* the reading's tensor that is a reference; PICI_FILE: none */
    uint64_t target;            /* the tensor with its elements; PICI_FILE: they are lost, and read as zeros */
};

struct reading {
    struct input *input;
    struct reading_shards shards; /* of its folder */
    const char *shard;            /* the shard that this file stores; NULL: the file is read alone */
    struct reading_other other;
    struct pici_reader *reader;
    bool at_random;
    bool keep_going;    /* report losses, replace lost data by zeros, and continue */
    bool broke_off;     /* a forward reader cannot read any further */
    uint64_t lost;      /* losses reported so far */
    uint64_t fill_most; /* in bytes: limit on the zeros for the rest of a tensor, and for references */
    void *piece;        /* elements of a tensor */
    size_t piece_capacity;
    unsigned threads;
};

/* at_random: read by the index at the end if the input can seek, else forward. A forward reader checks the whole file;
 * a random-access reader checks only the parts it reads. */
int reading_open(struct reading *reading, struct input *input, int threads, bool at_random);

/* The file is a shard: reading_follow follows references to all shards of the folder. Without this call, it follows
 * them only within a regular file. */
void reading_in_folder(struct reading *reading, struct reading_shards shards, const char *shard);

/* reading_reference parses the reference of a tensor, and sets *is to whether it is one. *reference is valid as long as
 * an attribute. reading_follow also gives the tensor the target's elements: it sets all members but index, name and
 * stored_bytes. It rejects a reference that leads nowhere, out of the folder, or to a reference. With keep_going, that
 * is a loss, and the elements become zeros, at most fill_most bytes for all references. */
int reading_reference(struct reading *reading, const struct pici_tensor_info *tensor, struct reference *reference,
                      bool *is);
int reading_follow(struct reading *reading, struct pici_tensor_info *tensor);

/* Like reading_open, to restore as much as possible of a damaged file. With an intact index, only damaged chunks are
 * lost. Else the file is read forward, and everything after the first error is lost; the rest of that tensor becomes
 * zeros, at most fill_most bytes. The functions below then report losses and succeed. */
int reading_salvage(struct reading *reading, struct input *input, int threads, uint64_t fill_most);

/* Go to the next tensor. *has_more is false after the last; a forward reader has then checked the whole file. */
int reading_next(struct reading *reading, struct pici_tensor_info *tensor, bool *has_more);

/* Read the next *count elements of `tensor`, from element *done, into reading->piece. *count is 0 at the tensor's end.
 * Advances *done. */
int reading_piece(struct reading *reading, const struct pici_tensor_info *tensor, uint64_t *done, uint64_t *count);

/* Read *count elements of [first, last), from `first`. A forward reader must continue where it stopped. */
int reading_range(struct reading *reading, const struct pici_tensor_info *tensor, uint64_t first, uint64_t last,
                  uint64_t *count);

/* Get an attribute of tensor `index` or of PICI_FILE. attr->key is NULL if there is none. */
int reading_attr(struct reading *reading, uint64_t index, const char *key, struct pici_attr *attr);

/* Whether the attributes of tensor `index` can be read. If not, with keep_going, reports one loss; the message ends
 * with `consequence`. */
int reading_has_attrs(struct reading *reading, uint64_t index, const char *consequence, bool *has);

/* Whether an attribute exists and has this value. */
int reading_attr_is(struct reading *reading, uint64_t index, const char *key, const char *value, bool *matches);

/* Whether the file is a delta. */
int reading_is_delta(const struct reading *reading, bool *is_delta);

/* Read the tables of a delta, with random access. After success, free delta with pici_delta_close. */
int reading_delta(const struct reading *reading, struct delta *delta);

/* The views of a tensor: numbers [first, first + count). Zero it before the first tensor. */
struct reading_views {
    uint64_t first, count;
    bool unnamed; /* the tensor is a storage that only views use, or bytes between tensors */
};

/* Find the views of a tensor. Call it for tensors in file order. */
int reading_views(struct reading *reading, const struct pici_tensor_info *tensor, struct reading_views *views);

/* Get view `index`. */
int reading_view(struct reading *reading, uint64_t index, struct pici_view *view);

/* Print the reader's error. Returns TOOL_BAD. */
int reading_failed(const struct reading *reading, enum pici_status status);

void reading_close(struct reading *reading);

#endif
