/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a file looks like by its first bytes, for messages about files that are not what was expected. */
#ifndef PICI_TOOLS_PARSE_SNIFF_H
#define PICI_TOOLS_PARSE_SNIFF_H

#include <stddef.h>
#include <stdint.h>

enum { SNIFF_BYTES = 512 }; /* as many are looked at; fewer tell less */

/* _CUT is shorter than the header of a .pici file; _STAND_IN stands where another file should be. */
enum sniff_kind { SNIFF_OTHER, SNIFF_PICI, SNIFF_PICI_CUT, SNIFF_BLOCK, SNIFF_STAND_IN };

struct sniff {
    enum sniff_kind kind;
    const char *what;   /* "an HDF5 file"; NULL: nothing that is known */
    const char *type;   /* what --type calls it, if picitool can read it: "npy", "npz", "pt", "gguf" ...; or NULL */
    const char *advice; /* what to do if there is no such type; or NULL */
};

struct sniff sniff(const uint8_t *first, size_t size);

#endif
