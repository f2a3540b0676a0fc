/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reading a .pici file, tensor by tensor and piece by piece. Functions return an exit status and have said why, as
 * those of io.h. */
#ifndef PICI_TOOLS_READING_H
#define PICI_TOOLS_READING_H

#include "delta.h"
#include "io.h"

/* What the first bytes of a file say that it is, or else its name (path), if that ends in .pici or .blk. */
enum reading_kind { READING_OTHER, READING_FILE, READING_BLOCK };
int reading_kind(struct input *in, const char *path, enum reading_kind *kind);

struct reading {
    struct input *in;
    struct pici_reader *reader;
    bool at_random;
    bool keep_going;    /* what is lost is said and zero, and reading goes on */
    bool broke_off;     /* forward: nothing more can be read */
    uint64_t lost;      /* how often that was said */
    uint64_t fill_most; /* bytes of zeros in the place of what a file that broke off would have had */
    void *piece;        /* elements of a tensor */
    size_t piece_cap;
    unsigned threads;
};

/* at_random: by the index at the end if the input can seek, else forward. Forward reading checks the file as a whole, at
 * random only what is read. */
int reading_open(struct reading *r, struct input *in, int threads, bool at_random);

/* The same to restore what can be restored. At random, where the index is good, each chunk stands or falls alone. Forward all
 * is lost from the first fault on: the rest of its tensor is zeros, up to fill_most bytes. From then on the other functions
 * say what is lost and succeed. */
int reading_salvage(struct reading *r, struct input *in, int threads, uint64_t fill_most);

/* Go to the next tensor; *more is false after the last, and then a file read forward is known to be whole. */
int reading_next(struct reading *r, struct pici_tensor_info *t, bool *more);

/* The next elements of tensor t, as many as are convenient, from element *done on: *n of them at r->piece, none at its
 * end. Advances *done. */
int reading_piece(struct reading *r, const struct pici_tensor_info *t, uint64_t *done, uint64_t *n);

/* The same of elements [first, last): *n of them from first on. Unless at random, first is where the last call ended. */
int reading_range(struct reading *r, const struct pici_tensor_info *t, uint64_t first, uint64_t last, uint64_t *n);

/* An attribute of tensor i or of PICI_FILE; *a has a null key if there is none. */
int reading_attr(struct reading *r, uint64_t i, const char *key, struct pici_attr *a);

/* Whether an attribute is there and has this value. */
int reading_attr_is(struct reading *r, uint64_t i, const char *key, const char *value, bool *is);

/* Whether the file is a delta. */
int reading_is_delta(const struct reading *r, bool *is);

/* Read what makes the file, which is a delta and read at random, one: d is for delta_close unless that fails. */
int reading_delta(const struct reading *r, struct delta *d);

/* Say what the reader says is wrong. Returns TOOL_BAD. */
int reading_failed(const struct reading *r, enum pici_status s);

void reading_close(struct reading *r);

#endif
