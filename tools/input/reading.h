/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reads a .pici file, tensor by tensor and piece by piece. Functions return an exit status and print the reason, as
 * those of input.h do. */
#ifndef PICI_TOOLS_INPUT_READING_H
#define PICI_TOOLS_INPUT_READING_H

#include "delta/delta.h"
#include "input/input.h"
#include "parse/folder_list.h"
#include "parse/reference.h"

/* What a file is, by its first bytes, or else by its name (path) if that ends in .pici or .blk. */
enum reading_kind { READING_OTHER, READING_FILE, READING_BLOCK };
int reading_kind(struct input *input, const char *path, enum reading_kind *kind);

/* The shards of a compressed folder, in which references lead from one to another. */
struct reading_shards {
    const char *folder; /* its path; NULL: there are none */
    const struct folder_list *list;
};

/* What references of a file lead to, as long as they lead to one shard. */
struct reading_other {
    struct input input;
    struct pici_reader *reader; /* NULL: none is open */
    char *shard, *path;         /* its name, "" of the file of the reading itself; and where it is */
    uint64_t index;             /* the tensor of the reading that is a reference; PICI_FILE: none is */
    uint64_t target;            /* the tensor that has its elements; PICI_FILE: they are lost, and zeros */
};

struct reading {
    struct input *input;
    struct reading_shards shards; /* of its folder */
    const char *shard;            /* whose file this is; NULL: the file is read alone */
    struct reading_other other;
    struct pici_reader *reader;
    bool at_random;
    bool keep_going;    /* report what is lost, replace it by zeros, and continue */
    bool broke_off;     /* forward: nothing more can be read */
    uint64_t lost;      /* how many losses have been reported */
    uint64_t fill_most; /* limit on the zeros that replace the rest of a tensor, and references, in bytes */
    void *piece;        /* elements of a tensor */
    size_t piece_capacity;
    unsigned threads;
};

/* at_random: read by the index at the end if the input can seek, else forward. Forward reading checks the whole file;
 * random access checks only what is read. */
int reading_open(struct reading *reading, struct input *input, int threads, bool at_random);

/* The file is that of a shard: references are followed to all shards of the folder. Without this call, they are
 * followed within a regular file. */
void reading_in_folder(struct reading *reading, struct reading_shards shards, const char *shard);

/* If the tensor is a reference, *is, and it becomes what it refers to, but for index, name and stored_bytes: its
 * elements are then read as those of others. reading_reference: without following it; *reference is valid as long as an
 * attribute. Refused if it leads nowhere, or out of the folder, or to a reference; with
 * keep_going, that is a loss, and its elements become zeros, of all such references at most fill_most bytes. */
int reading_reference(struct reading *reading, const struct pici_tensor_info *tensor, struct reference *reference,
                      bool *is);
int reading_follow(struct reading *reading, struct pici_tensor_info *tensor);

/* The same for restoring what can be restored from a damaged file. If the index is intact, only damaged chunks are
 * lost. Else the file is read forward, and everything from the first error on is lost; the rest of that tensor becomes
 * zeros, at most fill_most bytes. The functions below then report losses and succeed. */
int reading_salvage(struct reading *reading, struct input *input, int threads, uint64_t fill_most);

/* Go to the next tensor. *has_more is false after the last; a file read forward is then known to be complete. */
int reading_next(struct reading *reading, struct pici_tensor_info *tensor, bool *has_more);

/* Read the next elements of `tensor`, from element *done on: *count of them, at reading->piece. *count is 0 at the
 * tensor's end. Advances *done. */
int reading_piece(struct reading *reading, const struct pici_tensor_info *tensor, uint64_t *done, uint64_t *count);

/* The same for elements [first, last): *count of them from first on. A forward reader must continue where it
 * stopped. */
int reading_range(struct reading *reading, const struct pici_tensor_info *tensor, uint64_t first, uint64_t last,
                  uint64_t *count);

/* Get an attribute of tensor i or of PICI_FILE. attr->key is NULL if there is none. */
int reading_attr(struct reading *reading, uint64_t index, const char *key, struct pici_attr *attr);

/* Whether the attributes of tensor i can be read. If not, and with keep_going, that is one loss; its line ends with the
 * consequence, so. */
int reading_has_attrs(struct reading *reading, uint64_t index, const char *consequence, bool *has);

/* Whether an attribute exists and has this value. */
int reading_attr_is(struct reading *reading, uint64_t index, const char *key, const char *value, bool *matches);

/* Whether the file is a delta. */
int reading_is_delta(const struct reading *reading, bool *is_delta);

/* Read the tables of a delta, with random access. Unless that fails, free delta with pici_delta_close. */
int reading_delta(const struct reading *reading, struct delta *delta);

/* The views of a tensor: numbers [first, first + count). Zero before the first tensor. */
struct reading_views {
    uint64_t first, count;
    bool unnamed; /* the tensor is a storage of which views alone have names, or bytes between tensors */
};

/* Find the views of the next tensor, in the order of the file, that is looked at. */
int reading_views(struct reading *reading, const struct pici_tensor_info *tensor, struct reading_views *views);

/* View i. */
int reading_view(struct reading *reading, uint64_t index, struct pici_view *view);

/* Print the reader's error. Returns TOOL_BAD. */
int reading_failed(const struct reading *reading, enum pici_status status);

void reading_close(struct reading *reading);

#endif
