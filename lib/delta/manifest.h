/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The manifest of a log of deltas (formats/delta-log.md). */
#ifndef PICI_LIB_DELTA_MANIFEST_H
#define PICI_LIB_DELTA_MANIFEST_H

#include <stdint.h>

#include "parse/parse.h"

#define MANIFEST_NAME "manifest"
enum {
    MANIFEST_NAME_MOST = 64,
    MANIFEST_BYTES_MOST = 1 << 26, /* readers accept at most this length */
    MANIFEST_DELTAS_MOST = 1 << 19 /* writers stop here; each line has at most 103 bytes */
};

/* A whole file: its length and its XXH64. */
struct manifest_file {
    uint64_t bytes, hash;
};

struct manifest_delta {
    struct manifest_file delta, state; /* state: the file of its result */
};

struct manifest {
    uint64_t first;             /* number of the first delta's base */
    struct manifest_file start; /* this state */
    uint64_t base;              /* number of the state that is stored whole */
    struct manifest_file whole; /* this state */
    char extension[16];         /* of its name, with a dot; or empty */
    bool packed;                /* the log stores the base as a delta from a state without tensors: */
    struct manifest_file stored;
    uint64_t deltas;
    struct manifest_delta *delta; /* [deltas] */
};

/* Parse text of size bytes. On an error, error->what describes it, and the manifest needs no pici_manifest_free. */
bool pici_manifest_parse(struct manifest *manifest, const char *text, size_t size, struct parse_error *error);

/* The text of a manifest. The caller frees it. NULL: no memory. */
char *pici_manifest_text(const struct manifest *manifest, size_t *size);

/* Whether this may be the extension of a base's name. */
bool pici_manifest_extension(const char *e);

/* The names of files in the log: of the stored base, and of the delta that makes a state. */
void pici_manifest_base_name(char name[MANIFEST_NAME_MOST], const struct manifest *manifest);
void pici_manifest_delta_name(char name[MANIFEST_NAME_MOST], uint64_t state);

/* The name of a file in a store; and back, which returns whether `name` is a store name. If not, plain becomes `name`,
 * cut to its room. */
void pici_manifest_store_name(char name[MANIFEST_NAME_MOST], const char *plain, const struct manifest_file *file);
bool pici_manifest_plain_name(char plain[MANIFEST_NAME_MOST], uint64_t *hash, const char *name);

/* The number of the newest state. */
uint64_t pici_manifest_newest(const struct manifest *manifest);

/* The state of this number, from manifest->first to the newest. */
const struct manifest_file *pici_manifest_state(const struct manifest *manifest, uint64_t state);

void pici_manifest_free(struct manifest *manifest);

#endif
