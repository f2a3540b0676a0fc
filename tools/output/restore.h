/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Restores the original file from a .pici file: its head and its tensors, which it deflates again if the original does.
 * Functions return an exit status and print the reason, as in input.h. */
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
    bool head_lost; /* it is damaged; this has been reported */
    bool in_parts;  /* parts of the head precede the tensors: the original is a zip file */
};

/* `reading` and `output` must outlive the restore. After success, end with restore_close. */
int restore_open(struct restore *, struct reading *, struct output *);

/* Reject a tensor that must be deflated, in a build without zlib. Returns TOOL_BAD. */
int restore_no_zlib(const char *file, const char *tensor);

/* Write a tensor, and the part of the head that precedes it. It must be the reader's current tensor. */
int restore_tensor(struct restore *, const struct pici_tensor_info *, struct progress *);

/* Write the rest of the head, after the last tensor. */
int restore_end(struct restore *);

void restore_close(struct restore *);

#endif
