/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A machine with a stack and a memo, as pickletools describes it. Values are indices of nodes. Each opcode makes at
 * most three nodes; nothing is copied from the bytes. */
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
    uint32_t *values;
    uint32_t count, capacity;
};

struct machine {
    struct pickle *pickle;
    struct grown stack, marks, memo; /* nodes; stack lengths at the marks; nodes or PICKLE_NO */
    uint32_t node_capacity, cell_capacity;
    const uint8_t *bytes;
    size_t size, position, op_position; /* position: the next byte; op_position: the current opcode */
    uint64_t base;
    struct parse_error *error;
};

static bool fail(const struct machine *machine, const char *what)
{
    return pici_parse_fail(machine->error, machine->base + machine->op_position, "the pickle %s", what);
}

/* Makes room for `count` elements of `width` bytes at *memory, which has *room. Doubles it, up to `most`. */
static bool make_room(const struct machine *machine, void **memory, uint32_t *room, uint32_t count, size_t width,
                      uint32_t most)
{
    if (count <= *room)
        return true;
    if (count > most)
        return fail(machine, "has more values than the limit");
    uint32_t more = *room < 32 ? 64 : *room * 2;
    if (more < count)
        more = count;
    else if (more > most)
        more = most;
    void *bigger = realloc(*memory, more * width);
    if (!bigger)
        return pici_parse_fail(machine->error, machine->base + machine->op_position, "out of memory for the pickle");
    *memory = bigger;
    *room = more;
    return true;
}

static bool append(const struct machine *machine, struct grown *array, uint32_t value)
{
    void *memory = array->values;
    const bool fits =
        make_room(machine, &memory, &array->capacity, array->count + 1, sizeof *array->values, PICKLE_MAX_STACK);
    array->values = memory;
    if (fits)
        array->values[array->count++] = value;
    return fits;
}

/* ---- the stack. Values below the last mark are out of reach. */

static uint32_t reachable(const struct machine *machine)
{
    return machine->stack.count - (machine->marks.count ? machine->marks.values[machine->marks.count - 1] : 0);
}

static bool need(const struct machine *machine, uint32_t count)
{
    return reachable(machine) >= count || fail(machine, "takes more from its stack than it has");
}

static uint32_t pop(struct machine *machine)
{
    return machine->stack.values[--machine->stack.count];
}

/* The topmost value. `need` has checked that there is one. */
static uint32_t top(const struct machine *machine)
{
    return machine->stack.values[machine->stack.count - 1];
}

/* Makes a node and pushes it. */
static bool push(struct machine *machine, struct pickle_node node)
{
    struct pickle *out = machine->pickle;
    void *memory = out->nodes;
    const bool fits =
        make_room(machine, &memory, &machine->node_capacity, out->node_count + 1, sizeof node, PICKLE_MAX_NODES);
    out->nodes = memory;
    if (!fits)
        return false;
    node.state = node.first = node.last = PICKLE_NO;
    out->nodes[out->node_count] = node;
    return append(machine, &machine->stack, out->node_count++);
}

static bool push_type(struct machine *machine, enum pickle_type type)
{
    return push(machine, (struct pickle_node){.type = (uint8_t)type});
}

static bool push_number(struct machine *machine, enum pickle_type type, int64_t value)
{
    return push(machine, (struct pickle_node){.type = (uint8_t)type, .is.number = value});
}

/* Adds a value to the cells of a node. */
static bool add_cell(struct machine *machine, uint32_t container, uint32_t key, uint32_t value)
{
    struct pickle *out = machine->pickle;
    void *memory = out->cells;
    const bool fits =
        make_room(machine, &memory, &machine->cell_capacity, out->cell_count + 1, sizeof *out->cells, PICKLE_MAX_CELLS);
    out->cells = memory;
    if (!fits)
        return false;
    struct pickle_node *node = &out->nodes[container];
    const uint32_t cell = out->cell_count++;
    out->cells[cell] = (struct pickle_cell){key, value, PICKLE_NO};
    *(node->last == PICKLE_NO ? &node->first : &out->cells[node->last].next) = cell;
    node->last = cell;
    return true;
}

/* Pops the topmost `count` values, and adds them in order to the cells of a node; as keys and values, if `pairs`. */
static bool take_cells(struct machine *machine, uint32_t container, uint32_t count, bool pairs)
{
    if (pairs && count % 2)
        return fail(machine, "has a key without a value");
    const uint32_t *value = machine->stack.values + machine->stack.count - count;
    const uint32_t step = pairs ? 2 : 1;
    for (uint32_t i = 0; i < count; i += step)
        if (!add_cell(machine, container, pairs ? value[i] : PICKLE_NO, value[i + pairs]))
            return false;
    machine->stack.count -= count;
    return true;
}

/* Pops the last mark. *count: the number of values above it. */
static bool take_mark(struct machine *machine, uint32_t *count)
{
    if (!machine->marks.count)
        return fail(machine, "lacks a mark on its stack");
    *count = reachable(machine);
    machine->marks.count--;
    return true;
}

/* Makes a container of the topmost `count` values. */
static bool make(struct machine *machine, enum pickle_type type, uint32_t count)
{
    if (!need(machine, count) || !push_type(machine, type))
        return false;
    const uint32_t made = pop(machine);
    return take_cells(machine, made, count, type == PICKLE_DICT) && append(machine, &machine->stack, made);
}

static bool make_from_mark(struct machine *machine, enum pickle_type type)
{
    uint32_t count = 0;
    return take_mark(machine, &count) && make(machine, type, count);
}

/* Adds the topmost `count` values to the container below them. */
static bool add_items(struct machine *machine, enum pickle_type type, uint32_t count)
{
    if (!need(machine, count + 1))
        return false;
    const uint32_t container = machine->stack.values[machine->stack.count - count - 1];
    const struct pickle_node *node = &machine->pickle->nodes[container];
    if (node->type != type && node->type != PICKLE_CALL)
        return fail(machine, "adds to a value that is not a container");
    return take_cells(machine, container, count, type == PICKLE_DICT);
}

static bool add_from_mark(struct machine *machine, enum pickle_type type)
{
    uint32_t count = 0;
    return take_mark(machine, &count) && add_items(machine, type, count);
}

static bool push_call(struct machine *machine, uint32_t function, uint32_t args)
{
    return push(machine, (struct pickle_node){.type = PICKLE_CALL, .is.call = {function, args}});
}

/* Replaces a function and its arguments by a call. */
static bool call(struct machine *machine)
{
    if (!need(machine, 2))
        return false;
    const uint32_t args = pop(machine), function = pop(machine);
    return push_call(machine, function, args);
}

/* The same with named arguments, which become the state. */
static bool call_named(struct machine *machine)
{
    if (!need(machine, 3))
        return false;
    const uint32_t named = pop(machine), args = pop(machine), function = pop(machine);
    if (!push_call(machine, function, args))
        return false;
    machine->pickle->nodes[top(machine)].state = named;
    return true;
}

/* Sets the state of the call below it. */
static bool build(struct machine *machine)
{
    if (!need(machine, 2))
        return false;
    const uint32_t state = pop(machine);
    struct pickle_node *node = &machine->pickle->nodes[top(machine)];
    if (node->type != PICKLE_CALL)
        return fail(machine, "sets the state of a value that no call made");
    node->state = state;
    return true;
}

static bool push_global(struct machine *machine, uint32_t module, uint32_t name)
{
    return push(machine, (struct pickle_node){.type = PICKLE_GLOBAL, .is.global = {module, name}});
}

/* ---- reading */

static bool left(const struct machine *machine, uint64_t bytes)
{
    return machine->size - machine->position >= bytes || fail(machine, "ends inside an opcode");
}

/* Reads a little-endian number of `bytes` bytes. */
static bool number(struct machine *machine, unsigned bytes, uint64_t *value)
{
    if (!left(machine, bytes))
        return false;
    *value = 0;
    for (unsigned i = 0; i < bytes; i++)
        *value |= (uint64_t)machine->bytes[machine->position + i] << 8 * i;
    machine->position += bytes;
    return true;
}

static bool push_text(struct machine *machine, enum pickle_type type, size_t start, size_t size)
{
    return push(machine, (struct pickle_node){.type = (uint8_t)type, .is.text = {(uint32_t)start, (uint32_t)size}});
}

/* Reads a length of `bytes` bytes, and then as many bytes as it says. */
static bool counted(struct machine *machine, enum pickle_type type, unsigned bytes)
{
    uint64_t size;
    if (!number(machine, bytes, &size) || !left(machine, size))
        return false;
    machine->position += (size_t)size;
    return push_text(machine, type, machine->position - (size_t)size, (size_t)size);
}

/* Reads a signed number of `bytes` bytes. */
static bool small_int(struct machine *machine, unsigned bytes)
{
    uint64_t value;
    if (!number(machine, bytes, &value))
        return false;
    return push_number(machine, PICKLE_INT, bytes == 4 ? (int32_t)(uint32_t)value : (int64_t)value);
}

/* Reads a two's complement number of any length. */
static bool long_int(struct machine *machine, unsigned length_bytes)
{
    uint64_t size, value = 0;
    if (!number(machine, length_bytes, &size) || !left(machine, size))
        return false;
    const uint8_t *bytes = machine->bytes + machine->position;
    machine->position += (size_t)size;
    if (size > 8)
        return push_type(machine, PICKLE_BIG);
    if (size && bytes[size - 1] & 0x80)
        value = UINT64_MAX;
    for (size_t i = (size_t)size; i-- > 0;)
        value = value << 8 | bytes[i];
    return push_number(machine, PICKLE_INT, (int64_t)value);
}

/* Reads a line as a text. */
static bool line(struct machine *machine)
{
    const uint8_t *from = machine->bytes + machine->position,
                  *end = memchr(from, '\n', machine->size - machine->position);
    if (!end)
        return fail(machine, "ends inside an opcode");
    const size_t start = machine->position;
    machine->position += (size_t)(end - from) + 1;
    return push_text(machine, PICKLE_TEXT, start, (size_t)(end - from));
}

/* Reads a global from two lines, or pops its two texts. */
static bool global(struct machine *machine, bool lines)
{
    if ((lines && (!line(machine) || !line(machine))) || !need(machine, 2))
        return false;
    const uint32_t name = pop(machine), module = pop(machine);
    const struct pickle_node *nodes = machine->pickle->nodes;
    if (nodes[name].type != PICKLE_TEXT || nodes[module].type != PICKLE_TEXT)
        return fail(machine, "names a class with a value that is not text");
    return push_global(machine, module, name);
}

/* ---- the memo */

/* Stores the topmost value in the memo. Writers number values in order, so an index above the pickle's length is an
 * error. */
static bool put(struct machine *machine, uint64_t index)
{
    if (!need(machine, 1))
        return false;
    if (index > machine->size)
        return fail(machine, "has a memo index beyond its length");
    while (machine->memo.count <= index)
        if (!append(machine, &machine->memo, PICKLE_NO))
            return false;
    machine->memo.values[index] = top(machine);
    return true;
}

static bool put_at(struct machine *machine, unsigned bytes)
{
    uint64_t index;
    return number(machine, bytes, &index) && put(machine, index);
}

/* MEMOIZE: the index is the length of the memo. */
static bool memoize(struct machine *machine)
{
    return need(machine, 1) && append(machine, &machine->memo, top(machine));
}

static bool get(struct machine *machine, unsigned bytes)
{
    uint64_t index;
    if (!number(machine, bytes, &index))
        return false;
    if (index >= machine->memo.count || machine->memo.values[index] == PICKLE_NO)
        return fail(machine, "reads a memo entry that does not exist");
    return append(machine, &machine->stack, machine->memo.values[index]);
}

/* ---- opcodes */

static bool persistent(struct machine *machine)
{
    if (!need(machine, 1))
        return false;
    const uint32_t id = pop(machine);
    return push(machine, (struct pickle_node){.type = PICKLE_STORED, .is.call = {PICKLE_NO, id}});
}

static bool protocol(struct machine *machine)
{
    uint64_t value;
    return number(machine, 1, &value) &&
           ((value >= 2 && value <= 5) || fail(machine, "is of a protocol other than 2 to 5"));
}

static bool discard(struct machine *machine)
{
    if (!reachable(machine) && machine->marks.count) { /* POP also pops a mark */
        machine->marks.count--;
        return true;
    }
    return need(machine, 1) && (pop(machine), true);
}

static bool discard_to_mark(struct machine *machine)
{
    uint32_t count = 0;
    if (!take_mark(machine, &count))
        return false;
    machine->stack.count -= count;
    return true;
}

static bool skip_bytes(struct machine *machine, unsigned bytes)
{
    uint64_t value;
    return number(machine, bytes, &value);
}

static bool unknown(const struct machine *machine, uint8_t opcode)
{
    return pici_parse_fail(machine->error, machine->base + machine->op_position,
                           "the pickle has the opcode 0x%02x, which is not supported", opcode);
}

/* Runs one opcode other than STOP. */
static bool run(struct machine *machine, uint8_t opcode)
{
    switch ((enum opcode)opcode) {
    case PROTO: return protocol(machine);
    case FRAME: return skip_bytes(machine, 8);
    case MARK: return append(machine, &machine->marks, machine->stack.count);
    case POP: return discard(machine);
    case POP_MARK: return discard_to_mark(machine);
    case DUP: return need(machine, 1) && append(machine, &machine->stack, top(machine));
    case NONE: return push_type(machine, PICKLE_NONE);
    case NEWTRUE: return push_number(machine, PICKLE_BOOL, 1);
    case NEWFALSE: return push_number(machine, PICKLE_BOOL, 0);
    case BININT: return small_int(machine, 4);
    case BININT1: return small_int(machine, 1);
    case BININT2: return small_int(machine, 2);
    case LONG1: return long_int(machine, 1);
    case LONG4: return long_int(machine, 4);
    case BINFLOAT: return skip_bytes(machine, 8) && push_type(machine, PICKLE_FLOAT);
    case SHORT_BINSTRING:
    case SHORT_BINUNICODE: return counted(machine, PICKLE_TEXT, 1);
    case BINSTRING:
    case BINUNICODE: return counted(machine, PICKLE_TEXT, 4);
    case BINUNICODE8: return counted(machine, PICKLE_TEXT, 8);
    case SHORT_BINBYTES: return counted(machine, PICKLE_BYTES, 1);
    case BINBYTES: return counted(machine, PICKLE_BYTES, 4);
    case BINBYTES8:
    case BYTEARRAY8: return counted(machine, PICKLE_BYTES, 8);
    case EMPTY_TUPLE: return make(machine, PICKLE_TUPLE, 0);
    case TUPLE1: return make(machine, PICKLE_TUPLE, 1);
    case TUPLE2: return make(machine, PICKLE_TUPLE, 2);
    case TUPLE3: return make(machine, PICKLE_TUPLE, 3);
    case TUPLE: return make_from_mark(machine, PICKLE_TUPLE);
    case EMPTY_LIST: return push_type(machine, PICKLE_LIST);
    case LIST: return make_from_mark(machine, PICKLE_LIST);
    case EMPTY_DICT: return push_type(machine, PICKLE_DICT);
    case DICT: return make_from_mark(machine, PICKLE_DICT);
    case EMPTY_SET: return push_type(machine, PICKLE_SET);
    case FROZENSET: return make_from_mark(machine, PICKLE_SET);
    case APPEND: return add_items(machine, PICKLE_LIST, 1);
    case APPENDS: return add_from_mark(machine, PICKLE_LIST);
    case ADDITEMS: return add_from_mark(machine, PICKLE_SET);
    case SETITEM: return add_items(machine, PICKLE_DICT, 2);
    case SETITEMS: return add_from_mark(machine, PICKLE_DICT);
    case GLOBAL: return global(machine, true);
    case STACK_GLOBAL: return global(machine, false);
    case REDUCE:
    case NEWOBJ: return call(machine);
    case NEWOBJ_EX: return call_named(machine);
    case BUILD: return build(machine);
    case BINPERSID: return persistent(machine);
    case BINPUT: return put_at(machine, 1);
    case LONG_BINPUT: return put_at(machine, 4);
    case MEMOIZE: return memoize(machine);
    case BINGET: return get(machine, 1);
    case LONG_BINGET: return get(machine, 4);
    case STOP: break;
    }
    return unknown(machine, opcode);
}

bool pickle_parse(struct pickle *out, const uint8_t *bytes, size_t size, uint64_t base, struct parse_error *error)
{
    struct machine machine = {.pickle = out, .bytes = bytes, .size = size, .base = base, .error = error};
    *out = (struct pickle){.bytes = bytes, .root = PICKLE_NO};
    bool valid =
        size <= PICKLE_MAX_BYTES ||
        pici_parse_fail(error, base, "the pickle has %zu bytes, above the limit of %d", size, PICKLE_MAX_BYTES);
    for (bool has_more = true; valid && has_more;) {
        machine.op_position = machine.position;
        valid = left(&machine, 1);
        if (!valid)
            break;
        const uint8_t opcode = bytes[machine.position++];
        has_more = opcode != STOP;
        valid = has_more ? run(&machine, opcode) : need(&machine, 1);
    }
    if (valid) {
        out->root = top(&machine);
        out->size = machine.position;
    }
    free(machine.stack.values);
    free(machine.marks.values);
    free(machine.memo.values);
    if (!valid)
        pickle_free(out);
    return valid;
}

void pickle_free(struct pickle *pickle)
{
    free(pickle->nodes);
    free(pickle->cells);
    *pickle = (struct pickle){.root = PICKLE_NO};
}

enum pickle_type pickle_type_of(const struct pickle *pickle, uint32_t node)
{
    return node == PICKLE_NO ? PICKLE_NONE : (enum pickle_type)pickle->nodes[node].type;
}

bool pickle_is_text(const struct pickle *pickle, uint32_t node, const char *text)
{
    if (pickle_type_of(pickle, node) != PICKLE_TEXT)
        return false;
    const struct pickle_node *found = &pickle->nodes[node];
    return found->is.text.len == strlen(text) &&
           memcmp(pickle->bytes + found->is.text.start, text, found->is.text.len) == 0;
}

bool pickle_is_global(const struct pickle *pickle, uint32_t node, const char *module, const char *name)
{
    return pickle_type_of(pickle, node) == PICKLE_GLOBAL &&
           pickle_is_text(pickle, pickle->nodes[node].is.global.module, module) &&
           pickle_is_text(pickle, pickle->nodes[node].is.global.name, name);
}

uint32_t pickle_item(const struct pickle *pickle, uint32_t node, unsigned index)
{
    const enum pickle_type type = pickle_type_of(pickle, node);
    if (type != PICKLE_TUPLE && type != PICKLE_LIST)
        return PICKLE_NO;
    uint32_t cell = pickle->nodes[node].first;
    while (cell != PICKLE_NO && index--)
        cell = pickle->cells[cell].next;
    return cell == PICKLE_NO ? PICKLE_NO : pickle->cells[cell].value;
}
