/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writes a zip file of uncompressed entries, front to end, as numpy.savez does. Functions that return an int return an
 * exit status (tool.h), and have printed the reason if it is not TOOL_OK. */
#ifndef PICI_TOOLS_OUTPUT_ZIPOUT_H
#define PICI_TOOLS_OUTPUT_ZIPOUT_H

#include "output/output.h"

struct zipout_entry {
    char *name;
    uint64_t offset, bytes; /* offset of its header; length of its data */
    uint32_t crc;
};

struct zipout {
    struct output *output; /* the caller opens and commits it */
    struct zipout_entry *entry;
    size_t entries, capacity;
};

/* Begin an entry with a new name; write its data with zipout_write; end it with zipout_end. */
int zipout_begin(struct zipout *, const char *name);
int zipout_write(struct zipout *, const void *data, size_t size);
int zipout_end(struct zipout *);

/* Write the directory, after the last entry. */
int zipout_finish(struct zipout *);

void zipout_free(struct zipout *);

#endif
