/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reads a Python pickle as data: its containers, strings, numbers, class names and calls. It imports, calls and builds
 * nothing. A call is a node with the name of the function and its arguments.
 *
 * Reads the opcodes of protocols 2 to 5, except those for the extension registry, for buffers outside the pickle, and
 * for protocols 0 and 1 only. */
#ifndef PICI_TOOLS_PARSE_PICKLE_H
#define PICI_TOOLS_PARSE_PICKLE_H

#include "parse/parse.h"

enum {
    PICKLE_MAX_BYTES = 64 << 20, /* of a pickle; longer ones are rejected */
    PICKLE_MAX_NODES = 1 << 22,  /* values */
    PICKLE_MAX_CELLS = 1 << 23,  /* entries in containers */
    PICKLE_MAX_STACK = 1 << 22   /* entries of the stack, and of the memo */
};

enum pickle_type {
    PICKLE_NONE,
    PICKLE_BOOL,   /* number */
    PICKLE_INT,    /* number */
    PICKLE_BIG,    /* an integer beyond 64 bits */
    PICKLE_FLOAT,  /* value not kept */
    PICKLE_TEXT,   /* start, len */
    PICKLE_BYTES,  /* start, len */
    PICKLE_TUPLE,  /* cells */
    PICKLE_LIST,   /* cells */
    PICKLE_SET,    /* cells */
    PICKLE_DICT,   /* cells with keys */
    PICKLE_GLOBAL, /* a class or a function: texts of its module and name */
    PICKLE_CALL,   /* function, args, and state (PICKLE_NO: none). Items added to the result are cells, with or without
                   * keys */
    PICKLE_STORED  /* a persistent id: args is the id */
};

#define PICKLE_NO UINT32_MAX /* no node, or no cell */

struct pickle_node {
    uint8_t type; /* enum pickle_type */
    bool seen;    /* initially false; for the caller's use */
    union {
        int64_t number;
        struct {
            uint32_t start, len; /* in the pickle's bytes */
        } text;
        struct {
            uint32_t module, name; /* nodes */
        } global;
        struct {
            uint32_t function, args; /* nodes */
        } call;
    } is;
    uint32_t state;       /* a node */
    uint32_t first, last; /* cells */
};

struct pickle_cell {
    uint32_t key, value; /* nodes; key is PICKLE_NO without keys */
    uint32_t next;       /* a cell */
};

struct pickle {
    const uint8_t *bytes; /* the caller's */
    struct pickle_node *nodes;
    struct pickle_cell *cells;
    uint32_t node_count, cell_count;
    uint32_t root; /* node of the whole value */
    size_t size;   /* of the pickle, up to the opcode STOP */
};

/* Read a pickle. Containers may hold themselves, and one value may be in several places.
 *   out    the caller frees it with pickle_free, unless the result is false
 *   bytes  [size], must outlive out. Ignores the bytes after the opcode STOP, as Python does
 *   base   the pickle's offset in the file, for errors
 * Memory is proportional to size, and limited by the constants above. False, with *error set: the pickle has an
 * unsupported opcode, is malformed, or exceeds a limit, or memory ran out. */
bool pickle_parse(struct pickle *out, const uint8_t *bytes, size_t size, uint64_t base, struct parse_error *error);

void pickle_free(struct pickle *);

/* Whether a node is this text; whether it is the global with this module and name. node may be PICKLE_NO. */
bool pickle_is_text(const struct pickle *, uint32_t node, const char *text);
bool pickle_is_global(const struct pickle *, uint32_t node, const char *module, const char *name);

/* The type of a node; PICKLE_NONE for PICKLE_NO. */
enum pickle_type pickle_type_of(const struct pickle *, uint32_t node);

/* The value at an index of a tuple or list, from 0. PICKLE_NO if the node is neither, or shorter. */
uint32_t pickle_item(const struct pickle *, uint32_t node, unsigned index);

#endif
