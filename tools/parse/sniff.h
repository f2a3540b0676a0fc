/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Guesses the kind of a file by its first bytes, for messages about unexpected files. */
#ifndef PICI_TOOLS_PARSE_SNIFF_H
#define PICI_TOOLS_PARSE_SNIFF_H

#include <stddef.h>
#include <stdint.h>

enum { SNIFF_BYTES = 512 }; /* bytes to look at; fewer give worse guesses */

/* _CUT: shorter than the header of a .pici file. _STAND_IN: a placeholder for another file. */
enum sniff_kind { SNIFF_OTHER, SNIFF_PICI, SNIFF_PICI_CUT, SNIFF_BLOCK, SNIFF_STAND_IN };

struct sniff {
    enum sniff_kind kind;
    const char *what;   /* "an HDF5 file"; NULL: unknown */
    const char *type;   /* its name for --type, if picitool can read it: "npy", "npz", "pt", "gguf" ...; or NULL */
    const char *advice; /* advice if there is no such type; or NULL */
};

struct sniff sniff(const uint8_t *first, size_t size);

#endif
