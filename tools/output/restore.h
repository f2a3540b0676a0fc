/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Makes the original file from a .pici file: its head and its tensors, deflated where they were. Functions return an
 * exit status and print the reason, as those of input.h do. */
#ifndef PICI_TOOLS_OUTPUT_RESTORE_H
#define PICI_TOOLS_OUTPUT_RESTORE_H

#include "input/reading.h"
#include "output/output.h"
#include "term.h"

struct restore {
    struct reading *reading;
    struct output *output;
    uint8_t *head; /* [head_size] */
    size_t head_size, head_position;
    bool head_lost; /* it is damaged, which has been reported */
    bool in_parts;  /* each tensor has a part of the head before it: the original is a zip file */
};

/* Both must outlive the restore. Unless this fails, end with restore_close. */
int restore_open(struct restore *, struct reading *, struct output *);

/* Refuse to restore a tensor that was deflated, in a build without zlib. Returns TOOL_BAD. */
int restore_no_zlib(const char *file, const char *tensor);

/* Write a tensor, and what of the head precedes it. It must be the reader's current one. */
int restore_tensor(struct restore *, const struct pici_tensor_info *, struct progress *);

/* Write the rest of the head, after the last tensor. */
int restore_end(struct restore *);

void restore_close(struct restore *);

#endif
