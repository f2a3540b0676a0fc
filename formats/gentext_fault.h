/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the generators of vectors of invalid blocks share. Syntax: vectors/README.md. */
#ifndef PICI_FORMATS_GENTEXT_FAULT_H
#define PICI_FORMATS_GENTEXT_FAULT_H

#include "gentext.h"
#include "ref.h"

#define NONE REF_NO_TILE
#define CORRUPT REF_E_CORRUPT

static inline const char *status_word(enum ref_status status)
{
    switch (status) {
    case REF_OK: return "OK";
    case REF_E_CORRUPT: return "CORRUPT";
    case REF_E_VERSION: return "VERSION";
    case REF_E_UNSUPPORTED: return "UNSUPPORTED";
    default: return "CHECKSUM";
    }
}

/* Write a case: what a reader must say of the block. The reference must say it too. rule NULL: nothing is wrong. */
static inline void put_fault(const char *name, const uint8_t *block, size_t len, const char *rule,
                             enum ref_status status, uint64_t offset, uint64_t tile)
{
    struct ref_fault f;
    ref_verify(block, len, &f);
    if (f.status != status || f.offset != offset || f.tile != tile || (rule == NULL) != (f.rule == NULL) ||
        (rule && strcmp(rule, f.rule) != 0)) {
        fprintf(stderr, "ref: %s %d %" PRIu64 " %" PRIu64 "\n", f.rule ? f.rule : "-", f.status, f.offset, f.tile);
        fail("the reference disagrees", name);
    }
    fprintf(out, "case %s\nfault %s %s %" PRIu64, name, rule ? rule : "-", status_word(status), offset);
    if (tile == NONE)
        fprintf(out, " -\n");
    else
        fprintf(out, " %" PRIu64 "\n", tile);
    column = (size_t)fprintf(out, "block");
    put_bytes(block, len);
}

#endif
