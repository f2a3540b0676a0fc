/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A machine with a stack and a memo, as pickletools describes it. Values are indices of nodes. Each opcode makes at
 * most three nodes, and nothing is copied out of the bytes. */
#include "parse/pickle.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum opcode {
    MARK = '(',
    STOP = '.',
    POP = '0',
    POP_MARK = '1',
    DUP = '2',
    BINBYTES = 'B',
    SHORT_BINBYTES = 'C',
    BINFLOAT = 'G',
    BININT = 'J',
    BININT1 = 'K',
    BININT2 = 'M',
    NONE = 'N',
    BINPERSID = 'Q',
    REDUCE = 'R',
    BINSTRING = 'T',
    SHORT_BINSTRING = 'U',
    BINUNICODE = 'X',
    EMPTY_LIST = ']',
    APPEND = 'a',
    BUILD = 'b',
    GLOBAL = 'c',
    DICT = 'd',
    APPENDS = 'e',
    BINGET = 'h',
    LONG_BINGET = 'j',
    LIST = 'l',
    BINPUT = 'q',
    LONG_BINPUT = 'r',
    SETITEM = 's',
    TUPLE = 't',
    SETITEMS = 'u',
    EMPTY_DICT = '}',
    EMPTY_TUPLE = ')',
    PROTO = 0x80,
    NEWOBJ = 0x81,
    TUPLE1 = 0x85,
    TUPLE2 = 0x86,
    TUPLE3 = 0x87,
    NEWTRUE = 0x88,
    NEWFALSE = 0x89,
    LONG1 = 0x8a,
    LONG4 = 0x8b,
    SHORT_BINUNICODE = 0x8c,
    BINUNICODE8 = 0x8d,
    BINBYTES8 = 0x8e,
    EMPTY_SET = 0x8f,
    ADDITEMS = 0x90,
    FROZENSET = 0x91,
    NEWOBJ_EX = 0x92,
    STACK_GLOBAL = 0x93,
    MEMOIZE = 0x94,
    FRAME = 0x95,
    BYTEARRAY8 = 0x96
};

/* An array that grows. */
struct grown {
    uint32_t *p;
    uint32_t n, room;
};

struct machine {
    struct pickle *out;
    struct grown stack, marks, memo; /* of nodes; lengths of the stack; of nodes or PICKLE_NO */
    uint32_t node_room, cell_room;
    const uint8_t *bytes;
    size_t len, at, op; /* the next byte; the opcode that is run */
    uint64_t base;
    struct parse_error *err;
};

static bool fail(const struct machine *m, const char *what)
{
    return pici_parse_fail(m->err, m->base + m->op, "the pickle %s", what);
}

/* Room for n elements of width bytes at *p, which has *room. Doubles it, up to most. */
static bool make_room(const struct machine *m, void **p, uint32_t *room, uint32_t n, size_t width, uint32_t most)
{
    if (n <= *room)
        return true;
    if (n > most)
        return fail(m, "has more values than the limit");
    uint32_t more = *room < 32 ? 64 : *room * 2;
    more = more < n ? n : more > most ? most : more;
    void *bigger = realloc(*p, more * width);
    if (!bigger)
        return pici_parse_fail(m->err, m->base + m->op, "out of memory for the pickle");
    *p = bigger;
    *room = more;
    return true;
}

static bool append(const struct machine *m, struct grown *g, uint32_t value)
{
    void *p = g->p;
    const bool ok = make_room(m, &p, &g->room, g->n + 1, sizeof *g->p, PICKLE_MAX_STACK);
    g->p = p;
    if (ok)
        g->p[g->n++] = value;
    return ok;
}

/* ---- the stack. What is below the last mark is out of reach. */

static uint32_t reachable(const struct machine *m)
{
    return m->stack.n - (m->marks.n ? m->marks.p[m->marks.n - 1] : 0);
}

static bool need(const struct machine *m, uint32_t n)
{
    return reachable(m) >= n || fail(m, "takes more from its stack than there is");
}

static uint32_t pop(struct machine *m)
{
    return m->stack.p[--m->stack.n];
}

/* The topmost value, of which need has made sure. */
static uint32_t top(const struct machine *m)
{
    return m->stack.p[m->stack.n - 1];
}

/* Makes a node and pushes it. */
static bool push(struct machine *m, struct pickle_node node)
{
    struct pickle *out = m->out;
    void *p = out->nodes;
    const bool ok = make_room(m, &p, &m->node_room, out->node_count + 1, sizeof node, PICKLE_MAX_NODES);
    out->nodes = p;
    if (!ok)
        return false;
    node.state = node.first = node.last = PICKLE_NO;
    out->nodes[out->node_count] = node;
    return append(m, &m->stack, out->node_count++);
}

static bool push_type(struct machine *m, enum pickle_type type)
{
    return push(m, (struct pickle_node){.type = (uint8_t)type});
}

static bool push_number(struct machine *m, enum pickle_type type, int64_t v)
{
    return push(m, (struct pickle_node){.type = (uint8_t)type, .is.number = v});
}

/* Adds a value to the cells of a node. */
static bool add_cell(struct machine *m, uint32_t to, uint32_t key, uint32_t value)
{
    struct pickle *out = m->out;
    void *p = out->cells;
    const bool ok = make_room(m, &p, &m->cell_room, out->cell_count + 1, sizeof *out->cells, PICKLE_MAX_CELLS);
    out->cells = p;
    if (!ok)
        return false;
    struct pickle_node *n = &out->nodes[to];
    const uint32_t cell = out->cell_count++;
    out->cells[cell] = (struct pickle_cell){key, value, PICKLE_NO};
    *(n->last == PICKLE_NO ? &n->first : &out->cells[n->last].next) = cell;
    n->last = cell;
    return true;
}

/* Adds the topmost n values, in their order, to the cells of a node, in pairs if they are keys and values. Takes them
 * from the stack. */
static bool take_cells(struct machine *m, uint32_t to, uint32_t n, bool pairs)
{
    if (pairs && n % 2)
        return fail(m, "has a key without a value");
    const uint32_t *value = m->stack.p + m->stack.n - n;
    for (uint32_t i = 0; i < n; i += pairs ? 2 : 1)
        if (!add_cell(m, to, pairs ? value[i] : PICKLE_NO, value[i + pairs]))
            return false;
    m->stack.n -= n;
    return true;
}

/* Takes the last mark. *n: how many values were above it. */
static bool take_mark(struct machine *m, uint32_t *n)
{
    if (!m->marks.n)
        return fail(m, "lacks a mark on its stack");
    *n = reachable(m);
    m->marks.n--;
    return true;
}

/* Makes a container of the topmost n values. */
static bool make(struct machine *m, enum pickle_type type, uint32_t n)
{
    if (!need(m, n) || !push_type(m, type))
        return false;
    const uint32_t made = pop(m);
    return take_cells(m, made, n, type == PICKLE_DICT) && append(m, &m->stack, made);
}

static bool make_from_mark(struct machine *m, enum pickle_type type)
{
    uint32_t n = 0;
    return take_mark(m, &n) && make(m, type, n);
}

/* Adds the topmost n values to the container below them. */
static bool add_items(struct machine *m, enum pickle_type type, uint32_t n)
{
    if (!need(m, n + 1))
        return false;
    const uint32_t to = m->stack.p[m->stack.n - n - 1];
    const struct pickle_node *c = &m->out->nodes[to];
    if (c->type != type && c->type != PICKLE_CALL)
        return fail(m, "adds to what is no container");
    return take_cells(m, to, n, type == PICKLE_DICT);
}

static bool add_from_mark(struct machine *m, enum pickle_type type)
{
    uint32_t n = 0;
    return take_mark(m, &n) && add_items(m, type, n);
}

static bool push_call(struct machine *m, uint32_t function, uint32_t args)
{
    return push(m, (struct pickle_node){.type = PICKLE_CALL, .is.call = {function, args}});
}

/* Replaces a function and its arguments by a call. */
static bool call(struct machine *m)
{
    if (!need(m, 2))
        return false;
    const uint32_t args = pop(m), function = pop(m);
    return push_call(m, function, args);
}

/* The same with arguments that have names, which become the state. */
static bool call_named(struct machine *m)
{
    if (!need(m, 3))
        return false;
    const uint32_t named = pop(m), args = pop(m), function = pop(m);
    if (!push_call(m, function, args))
        return false;
    m->out->nodes[top(m)].state = named;
    return true;
}

/* Sets the state of the call below it. */
static bool build(struct machine *m)
{
    if (!need(m, 2))
        return false;
    const uint32_t state = pop(m);
    struct pickle_node *n = &m->out->nodes[top(m)];
    if (n->type != PICKLE_CALL)
        return fail(m, "sets the state of what no call made");
    n->state = state;
    return true;
}

static bool push_global(struct machine *m, uint32_t module, uint32_t name)
{
    return push(m, (struct pickle_node){.type = PICKLE_GLOBAL, .is.global = {module, name}});
}

/* ---- reading */

static bool left(const struct machine *m, uint64_t n)
{
    return m->len - m->at >= n || fail(m, "ends inside an opcode");
}

/* Reads a little-endian number of so many bytes. */
static bool number(struct machine *m, unsigned bytes, uint64_t *value)
{
    if (!left(m, bytes))
        return false;
    *value = 0;
    for (unsigned i = 0; i < bytes; i++)
        *value |= (uint64_t)m->bytes[m->at + i] << 8 * i;
    m->at += bytes;
    return true;
}

static bool push_text(struct machine *m, enum pickle_type type, size_t start, size_t size)
{
    return push(m, (struct pickle_node){.type = (uint8_t)type, .is.text = {(uint32_t)start, (uint32_t)size}});
}

/* Reads a length of so many bytes, and then that many bytes. */
static bool counted(struct machine *m, enum pickle_type type, unsigned bytes)
{
    uint64_t n;
    if (!number(m, bytes, &n) || !left(m, n))
        return false;
    m->at += (size_t)n;
    return push_text(m, type, m->at - (size_t)n, (size_t)n);
}

/* Reads a signed number of so many bytes. */
static bool small_int(struct machine *m, unsigned bytes)
{
    uint64_t value;
    if (!number(m, bytes, &value))
        return false;
    return push_number(m, PICKLE_INT, bytes == 4 ? (int32_t)(uint32_t)value : (int64_t)value);
}

/* Reads a two's complement number of any length. */
static bool long_int(struct machine *m, unsigned length_bytes)
{
    uint64_t n, value = 0;
    if (!number(m, length_bytes, &n) || !left(m, n))
        return false;
    const uint8_t *p = m->bytes + m->at;
    m->at += (size_t)n;
    if (n > 8)
        return push_type(m, PICKLE_BIG);
    if (n && p[n - 1] & 0x80)
        value = UINT64_MAX;
    for (size_t i = (size_t)n; i-- > 0;)
        value = value << 8 | p[i];
    return push_number(m, PICKLE_INT, (int64_t)value);
}

/* Reads a line as a text. */
static bool line(struct machine *m)
{
    const uint8_t *from = m->bytes + m->at, *end = memchr(from, '\n', m->len - m->at);
    if (!end)
        return fail(m, "ends inside an opcode");
    const size_t start = m->at;
    m->at += (size_t)(end - from) + 1;
    return push_text(m, PICKLE_TEXT, start, (size_t)(end - from));
}

/* Reads a global that is two lines; or takes its two texts from the stack. */
static bool global(struct machine *m, bool lines)
{
    if ((lines && (!line(m) || !line(m))) || !need(m, 2))
        return false;
    const uint32_t name = pop(m), module = pop(m);
    const struct pickle_node *nodes = m->out->nodes;
    if (nodes[name].type != PICKLE_TEXT || nodes[module].type != PICKLE_TEXT)
        return fail(m, "names a class by what is no text");
    return push_global(m, module, name);
}

/* ---- the memo */

/* Remembers the topmost value. A writer numbers values in order; an index above the pickle's length is none of its. */
static bool put(struct machine *m, uint64_t index)
{
    if (!need(m, 1))
        return false;
    if (index > m->len)
        return fail(m, "has an index of its memo that is beyond its length");
    while (m->memo.n <= index)
        if (!append(m, &m->memo, PICKLE_NO))
            return false;
    m->memo.p[index] = top(m);
    return true;
}

static bool put_at(struct machine *m, unsigned bytes)
{
    uint64_t index;
    return number(m, bytes, &index) && put(m, index);
}

/* MEMOIZE: the index is the number of values in the memo. */
static bool memoize(struct machine *m)
{
    return need(m, 1) && append(m, &m->memo, top(m));
}

static bool get(struct machine *m, unsigned bytes)
{
    uint64_t index;
    if (!number(m, bytes, &index))
        return false;
    if (index >= m->memo.n || m->memo.p[index] == PICKLE_NO)
        return fail(m, "takes from its memo what is not there");
    return append(m, &m->stack, m->memo.p[index]);
}

/* ---- opcodes */

static bool persistent(struct machine *m)
{
    if (!need(m, 1))
        return false;
    const uint32_t id = pop(m);
    return push(m, (struct pickle_node){.type = PICKLE_STORED, .is.call = {PICKLE_NO, id}});
}

static bool protocol(struct machine *m)
{
    uint64_t value;
    return number(m, 1, &value) && ((value >= 2 && value <= 5) || fail(m, "is of a protocol other than 2 to 5"));
}

static bool discard(struct machine *m)
{
    if (!reachable(m) && m->marks.n) { /* POP takes a mark too */
        m->marks.n--;
        return true;
    }
    return need(m, 1) && (pop(m), true);
}

static bool discard_to_mark(struct machine *m)
{
    uint32_t n = 0;
    if (!take_mark(m, &n))
        return false;
    m->stack.n -= n;
    return true;
}

static bool skip_bytes(struct machine *m, unsigned bytes)
{
    uint64_t value;
    return number(m, bytes, &value);
}

static bool unknown(const struct machine *m, uint8_t op)
{
    return pici_parse_fail(m->err, m->base + m->op, "the pickle has the opcode 0x%02x, which is not read", op);
}

/* Runs one opcode other than STOP. */
static bool run(struct machine *m, uint8_t op)
{
    switch ((enum opcode)op) {
    case PROTO: return protocol(m);
    case FRAME: return skip_bytes(m, 8);
    case MARK: return append(m, &m->marks, m->stack.n);
    case POP: return discard(m);
    case POP_MARK: return discard_to_mark(m);
    case DUP: return need(m, 1) && append(m, &m->stack, top(m));
    case NONE: return push_type(m, PICKLE_NONE);
    case NEWTRUE: return push_number(m, PICKLE_BOOL, 1);
    case NEWFALSE: return push_number(m, PICKLE_BOOL, 0);
    case BININT: return small_int(m, 4);
    case BININT1: return small_int(m, 1);
    case BININT2: return small_int(m, 2);
    case LONG1: return long_int(m, 1);
    case LONG4: return long_int(m, 4);
    case BINFLOAT: return skip_bytes(m, 8) && push_type(m, PICKLE_FLOAT);
    case SHORT_BINSTRING:
    case SHORT_BINUNICODE: return counted(m, PICKLE_TEXT, 1);
    case BINSTRING:
    case BINUNICODE: return counted(m, PICKLE_TEXT, 4);
    case BINUNICODE8: return counted(m, PICKLE_TEXT, 8);
    case SHORT_BINBYTES: return counted(m, PICKLE_BYTES, 1);
    case BINBYTES: return counted(m, PICKLE_BYTES, 4);
    case BINBYTES8:
    case BYTEARRAY8: return counted(m, PICKLE_BYTES, 8);
    case EMPTY_TUPLE: return make(m, PICKLE_TUPLE, 0);
    case TUPLE1: return make(m, PICKLE_TUPLE, 1);
    case TUPLE2: return make(m, PICKLE_TUPLE, 2);
    case TUPLE3: return make(m, PICKLE_TUPLE, 3);
    case TUPLE: return make_from_mark(m, PICKLE_TUPLE);
    case EMPTY_LIST: return push_type(m, PICKLE_LIST);
    case LIST: return make_from_mark(m, PICKLE_LIST);
    case EMPTY_DICT: return push_type(m, PICKLE_DICT);
    case DICT: return make_from_mark(m, PICKLE_DICT);
    case EMPTY_SET: return push_type(m, PICKLE_SET);
    case FROZENSET: return make_from_mark(m, PICKLE_SET);
    case APPEND: return add_items(m, PICKLE_LIST, 1);
    case APPENDS: return add_from_mark(m, PICKLE_LIST);
    case ADDITEMS: return add_from_mark(m, PICKLE_SET);
    case SETITEM: return add_items(m, PICKLE_DICT, 2);
    case SETITEMS: return add_from_mark(m, PICKLE_DICT);
    case GLOBAL: return global(m, true);
    case STACK_GLOBAL: return global(m, false);
    case REDUCE:
    case NEWOBJ: return call(m);
    case NEWOBJ_EX: return call_named(m);
    case BUILD: return build(m);
    case BINPERSID: return persistent(m);
    case BINPUT: return put_at(m, 1);
    case LONG_BINPUT: return put_at(m, 4);
    case MEMOIZE: return memoize(m);
    case BINGET: return get(m, 1);
    case LONG_BINGET: return get(m, 4);
    case STOP: break;
    }
    return unknown(m, op);
}

bool pickle_parse(struct pickle *out, const uint8_t *bytes, size_t size, uint64_t base, struct parse_error *error)
{
    struct machine m = {.out = out, .bytes = bytes, .len = size, .base = base, .err = error};
    *out = (struct pickle){.bytes = bytes, .root = PICKLE_NO};
    bool ok = size <= PICKLE_MAX_BYTES ||
              pici_parse_fail(error, base, "the pickle has %zu bytes, above the limit of %d", size, PICKLE_MAX_BYTES);
    for (bool more = true; ok && more;) {
        m.op = m.at;
        ok = left(&m, 1);
        if (!ok)
            break;
        const uint8_t op = bytes[m.at++];
        more = op != STOP;
        ok = more ? run(&m, op) : need(&m, 1);
    }
    if (ok)
        out->root = top(&m);
    free(m.stack.p);
    free(m.marks.p);
    free(m.memo.p);
    if (!ok)
        pickle_free(out);
    return ok;
}

void pickle_free(struct pickle *p)
{
    free(p->nodes);
    free(p->cells);
    *p = (struct pickle){.root = PICKLE_NO};
}

enum pickle_type pickle_type_of(const struct pickle *p, uint32_t n)
{
    return n == PICKLE_NO ? PICKLE_NONE : (enum pickle_type)p->nodes[n].type;
}

bool pickle_is_text(const struct pickle *p, uint32_t n, const char *text)
{
    if (pickle_type_of(p, n) != PICKLE_TEXT)
        return false;
    const struct pickle_node *t = &p->nodes[n];
    return t->is.text.len == strlen(text) && memcmp(p->bytes + t->is.text.start, text, t->is.text.len) == 0;
}

bool pickle_is_global(const struct pickle *p, uint32_t n, const char *module, const char *name)
{
    return pickle_type_of(p, n) == PICKLE_GLOBAL && pickle_is_text(p, p->nodes[n].is.global.module, module) &&
           pickle_is_text(p, p->nodes[n].is.global.name, name);
}

uint32_t pickle_item(const struct pickle *p, uint32_t n, unsigned i)
{
    const enum pickle_type type = pickle_type_of(p, n);
    if (type != PICKLE_TUPLE && type != PICKLE_LIST)
        return PICKLE_NO;
    uint32_t cell = p->nodes[n].first;
    while (cell != PICKLE_NO && i--)
        cell = p->cells[cell].next;
    return cell == PICKLE_NO ? PICKLE_NO : p->cells[cell].value;
}
