/* SPDX-License-Identifier: BSD-3-Clause */
#include "parse/torch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse/pickle.h"
#include "pici/file.h"

/* Torch's names for a dtype: its own, and the class of its storages. */
static const struct kind {
    const char *name, *storage;
    enum pici_dtype dtype;
    unsigned item_elements;
} kinds[] = {
    {"float32", "FloatStorage", PICI_F32, 1},
    {"float64", "DoubleStorage", PICI_F64, 1},
    {"float16", "HalfStorage", PICI_F16, 1},
    {"bfloat16", "BFloat16Storage", PICI_BF16, 1},
    {"int8", "CharStorage", PICI_I8, 1},
    {"uint8", "ByteStorage", PICI_U8, 1},
    {"int16", "ShortStorage", PICI_I16, 1},
    {"int32", "IntStorage", PICI_I32, 1},
    {"int64", "LongStorage", PICI_I64, 1},
    {"bool", "BoolStorage", PICI_U8, 1},
    {"complex64", "ComplexFloatStorage", PICI_F32, 2},
    {"complex128", "ComplexDoubleStorage", PICI_F64, 2},
    {"qint8", "QInt8Storage", PICI_I8, 1},
    {"quint8", "QUInt8Storage", PICI_U8, 1},
    {"qint32", "QInt32Storage", PICI_I32, 1},
    {"quint4x2", "QUInt4x2Storage", PICI_U8, 1},
    {"quint2x4", "QUInt2x4Storage", PICI_U8, 1},
    {"complex32", "", PICI_F16, 2},
    {"uint16", "", PICI_U16, 1},
    {"uint32", "", PICI_U32, 1},
    {"uint64", "", PICI_U64, 1},
    {"float8_e4m3fn", "", PICI_F8E4M3, 1},
    {"float8_e5m2", "", PICI_F8E5M2, 1},
    {"float8_e4m3fnuz", "", PICI_U8, 1},
    {"float8_e5m2fnuz", "", PICI_U8, 1},
    {"float8_e8m0fnu", "", PICI_U8, 1},
    {"float4_e2m1fn_x2", "", PICI_U8, 1},
    {"untyped", "UntypedStorage", PICI_U8, 1},
};
enum { KINDS = sizeof kinds / sizeof *kinds, UNTYPED = KINDS - 1 };

/* The path from the root to the current value: a key for each level of walk_cells. Since keys may be long and many, a
 * name is made of them only for a tensor. */
struct key {
    const char *word; /* [size] in the pickle; NULL: see digits */
    size_t size;
    char digits[24];
};

struct path {
    struct key key[TORCH_MAX_DEPTH + 2];
    size_t keys;
};

struct walker {
    struct pickle pickle;
    struct torch *torch;
    struct path path;
    size_t tensor_capacity, names_size, names_capacity, dims_count, dims_capacity;
    size_t memory; /* bytes of names, shapes and strides so far */
    uint64_t base;
    struct parse_error *error;
};

static bool nomem(const struct walker *walker)
{
    return pici_parse_fail(walker->error, walker->base, "out of memory for the pickle's tensors");
}

/* Makes room for `count` more elements of `width` bytes at memory, which has *capacity and uses `used`. NULL: no
 * memory. */
static void *more_room(void *memory, size_t *capacity, size_t used, size_t count, size_t width)
{
    if (count <= *capacity - used)
        return memory;
    size_t total = *capacity + *capacity / 2 + 64;
    if (total - used < count)
        total = used + count;
    void *bigger = total <= SIZE_MAX / width ? realloc(memory, total * width) : NULL;
    if (bigger)
        *capacity = total;
    return bigger;
}

/* ---- tensors */

/* Copies the keys of the path, joined by dots, to name, which has room for `most` bytes. Returns the length of all
 * keys, or a part of it above PICI_NAME_MAX. */
static size_t path_name(const struct path *path, char *name, size_t most)
{
    size_t size = 0;
    for (size_t i = 0; i < path->keys && size <= PICI_NAME_MAX; i++) {
        const struct key *key = &path->key[i];
        if (size && size < most)
            name[size] = '.';
        size += size != 0;
        if (size < most) {
            const size_t fits = key->size < most - size ? key->size : most - size;
            memcpy(name + size, key->word ? key->word : key->digits, fits);
        }
        size += key->size <= PICI_NAME_MAX ? key->size : PICI_NAME_MAX + 1;
    }
    return size;
}

static bool bad(struct walker *walker, const char *what)
{
    char name[64], text[64];
    const size_t size = path_name(&walker->path, name, sizeof name);
    return pici_parse_fail(walker->error, walker->base, "the pickle's tensor '%s' %s",
                           pici_parse_printable(text, sizeof text, name, size < sizeof name ? size : sizeof name),
                           what);
}

/* Gets the integer of a node; false if it is not an integer >= 0. */
static bool natural(const struct walker *walker, uint32_t node, uint64_t *value)
{
    if (pickle_type_of(&walker->pickle, node) != PICKLE_INT || walker->pickle.nodes[node].is.number < 0)
        return false;
    *value = (uint64_t)walker->pickle.nodes[node].is.number;
    return true;
}

/* A tuple, directly or as the only argument of a call such as torch.Size. */
static uint32_t tuple_of(const struct walker *walker, uint32_t node)
{
    if (pickle_type_of(&walker->pickle, node) == PICKLE_CALL)
        node = pickle_item(&walker->pickle, walker->pickle.nodes[node].is.call.args, 0);
    return node;
}

/* Reads a tuple of dimensions. */
static bool take_dims(struct walker *walker, uint32_t node, uint64_t dims[TORCH_MAX_RANK], unsigned *rank)
{
    node = tuple_of(walker, node);
    if (pickle_type_of(&walker->pickle, node) != PICKLE_TUPLE)
        return bad(walker, "has a size or strides that are not a tuple");
    *rank = 0;
    for (uint32_t cell = walker->pickle.nodes[node].first; cell != PICKLE_NO; cell = walker->pickle.cells[cell].next) {
        if (*rank == TORCH_MAX_RANK)
            return bad(walker, "has too many dimensions");
        if (!natural(walker, walker->pickle.cells[cell].value, &dims[(*rank)++]))
            return bad(walker, "has a dimension or stride that is not a natural number");
    }
    return true;
}

static bool kind_is_float(const struct kind *kind)
{
    return kind->dtype == PICI_F32 || kind->dtype == PICI_F64 || kind->dtype == PICI_F16 || kind->dtype == PICI_BF16;
}

static const struct kind *kind_by(const struct walker *walker, uint32_t name, bool storage)
{
    for (int i = 0; i < KINDS; i++)
        if (pickle_is_text(&walker->pickle, name, storage ? kinds[i].storage : kinds[i].name))
            return &kinds[i];
    return NULL;
}

/* Reads the persistent id of a storage: ('storage', class, key, location, items). */
static bool take_storage(struct walker *walker, uint32_t node, struct torch_tensor *tensor, const struct kind **kind,
                         uint64_t *items)
{
    const struct pickle *pickle = &walker->pickle;
    if (pickle_type_of(pickle, node) != PICKLE_STORED)
        return bad(walker, "has no storage");
    const uint32_t id = pickle->nodes[node].is.call.args, class = pickle_item(pickle, id, 1),
                   key = pickle_item(pickle, id, 2);
    if (!pickle_is_text(pickle, pickle_item(pickle, id, 0), "storage") ||
        pickle_type_of(pickle, class) != PICKLE_GLOBAL || pickle_type_of(pickle, key) != PICKLE_TEXT ||
        !natural(walker, pickle_item(pickle, id, 4), items) ||
        pickle_type_of(pickle, pickle_item(pickle, id, 5)) != PICKLE_NONE) /* a view of another storage, before torch
                                                                            * 0.4 */
        return bad(walker, "has a storage that is not as torch writes it");
    tensor->storage = (const char *)pickle->bytes + pickle->nodes[key].is.text.start;
    tensor->storage_size = pickle->nodes[key].is.text.len;
    *kind = kind_by(walker, pickle->nodes[class].is.global.name, true);
    if (!*kind)
        *kind = &kinds[UNTYPED];
    tensor->storage_item = (unsigned)pici_dtype_width((*kind)->dtype) * (*kind)->item_elements;
    return true;
}

/* Sets items, extent and row_major. */
static bool measure(struct walker *walker, struct torch_tensor *tensor, const uint64_t *shape, const uint64_t *strides)
{
    uint64_t stride = 1, last = tensor->offset;
    tensor->items = 1;
    tensor->row_major = true;
    for (unsigned i = 0; i < tensor->rank; i++)
        tensor->items = shape[i] ? tensor->items : 0;
    for (unsigned i = tensor->rank; tensor->items && i-- > 0;) {
        uint64_t step;
        if (!parse_mul(&tensor->items, tensor->items, shape[i], INT64_MAX / 16) ||
            !parse_mul(&step, strides[i], shape[i] - 1, INT64_MAX / 16 - 1) || last > INT64_MAX / 16 - 1 - step)
            return bad(walker, "has a size beyond 59 bits");
        last += step;
        tensor->row_major = tensor->row_major && (shape[i] == 1 || strides[i] == stride);
        stride *= shape[i];
    }
    if (tensor->items && last > INT64_MAX / 16 - 1)
        return bad(walker, "has an offset beyond 59 bits");
    tensor->extent = tensor->items ? last + 1 : 0;
    return true;
}

/* Appends a tensor with the path's name. Copies shape and strides. out->dims moves, so the pointers into it are set at
 * the end. */
static bool add_tensor(struct walker *walker, struct torch_tensor *tensor, const struct kind *kind,
                       const uint64_t *shape, const uint64_t *strides)
{
    struct torch *out = walker->torch;
    tensor->source_dtype = kind->name;
    tensor->dtype = kind->dtype;
    tensor->item_elements = kind->item_elements;
    const size_t path_size = path_name(&walker->path, NULL, 0);
    tensor->name_size = path_size ? path_size : 4;
    const size_t dims_bytes = 2 * tensor->rank * sizeof *shape;
    walker->memory += tensor->name_size + 1 + dims_bytes + sizeof *tensor;
    if (tensor->name_size > PICI_NAME_MAX)
        return pici_parse_fail(walker->error, walker->base, "the pickle has a tensor with a name of more than %u bytes",
                               PICI_NAME_MAX);
    if (walker->memory > TORCH_MAX_MEMORY)
        return pici_parse_fail(walker->error, walker->base,
                               "the pickle's tensors have longer names and shapes than the limit");
    if (!measure(walker, tensor, shape, strides))
        return false;
    struct torch_tensor *tensors = more_room(out->tensors, &walker->tensor_capacity, out->count, 1, sizeof *tensors);
    out->tensors = tensors ? tensors : out->tensors;
    char *names = more_room(out->names, &walker->names_capacity, walker->names_size, tensor->name_size + 1, 1);
    out->names = names ? names : out->names;
    uint64_t *dims = more_room(out->dims, &walker->dims_capacity, walker->dims_count, 2 * tensor->rank, sizeof *dims);
    out->dims = dims ? dims : out->dims;
    if (!tensors || !names || (!dims && tensor->rank))
        return nomem(walker);
    memcpy(names + walker->names_size, "data", 4);
    path_name(&walker->path, names + walker->names_size, path_size);
    names[walker->names_size + tensor->name_size] = 0;
    walker->names_size += tensor->name_size + 1;
    if (tensor->rank) {
        memcpy(dims + walker->dims_count, shape, dims_bytes / 2);
        memcpy(dims + walker->dims_count + tensor->rank, strides, dims_bytes / 2);
    }
    walker->dims_count += 2 * tensor->rank;
    out->tensors[out->count++] = *tensor;
    return true;
}

/* Whether a node is not a dict, or a dict with few keys. Many tensors may share a dict, and each looks at all keys. */
static bool is_short(const struct walker *walker, uint32_t node)
{
    unsigned keys = 0;
    if (pickle_type_of(&walker->pickle, node) != PICKLE_DICT)
        return true;
    for (uint32_t cell = walker->pickle.nodes[node].first; cell != PICKLE_NO && keys <= TORCH_MAX_METADATA; keys++)
        cell = walker->pickle.cells[cell].next;
    return keys <= TORCH_MAX_METADATA;
}

/* Whether a dict has True under a key. */
static bool is_set(const struct walker *walker, uint32_t node, const char *key)
{
    if (pickle_type_of(&walker->pickle, node) != PICKLE_DICT)
        return false;
    bool set = false; /* the last of equal keys counts */
    for (uint32_t cell = walker->pickle.nodes[node].first; cell != PICKLE_NO; cell = walker->pickle.cells[cell].next)
        if (pickle_is_text(&walker->pickle, walker->pickle.cells[cell].key, key)) {
            const uint32_t value = walker->pickle.cells[cell].value;
            set = pickle_type_of(&walker->pickle, value) == PICKLE_BOOL && walker->pickle.nodes[value].is.number;
        }
    return set;
}

/* Reads a tensor from the arguments of torch._utils._rebuild_tensor_v2 or a similar function. dtype: the index of the
 * argument that names the dtype; 0: the storage does. metadata: the index of the argument with the state bits. */
static bool take_tensor(struct walker *walker, uint32_t args, unsigned dtype, unsigned metadata)
{
    struct torch_tensor tensor = {0};
    const struct kind *kind;
    uint64_t shape[TORCH_MAX_RANK], strides[TORCH_MAX_RANK], storage_items;
    unsigned rank;
    if (!take_storage(walker, pickle_item(&walker->pickle, args, 0), &tensor, &kind, &storage_items))
        return false;
    if (!natural(walker, pickle_item(&walker->pickle, args, 1), &tensor.offset))
        return bad(walker, "has an offset that is not a natural number");
    if (!take_dims(walker, pickle_item(&walker->pickle, args, 2), shape, &tensor.rank) ||
        !take_dims(walker, pickle_item(&walker->pickle, args, 3), strides, &rank))
        return false;
    if (rank != tensor.rank)
        return bad(walker, "does not have as many strides as dimensions");
    const uint32_t named = dtype ? pickle_item(&walker->pickle, args, dtype) : PICKLE_NO;
    if (pickle_type_of(&walker->pickle, named) == PICKLE_GLOBAL)
        kind = kind_by(walker, walker->pickle.nodes[named].is.global.name, false);
    if (!kind)
        return bad(walker, "has an unknown dtype");
    const uint32_t bits = metadata ? pickle_item(&walker->pickle, args, metadata) : PICKLE_NO;
    if (!is_short(walker, bits))
        return bad(walker, "has more metadata than torch writes");
    tensor.conjugate = kind->item_elements > 1 && is_set(walker, bits, "conj");
    tensor.negative = is_set(walker, bits, "neg");
    if (tensor.negative && !kind_is_float(kind))
        return bad(walker, "is negative, but not of floats");
    return add_tensor(walker, &tensor, kind, shape, strides);
}

/* Reads a storage outside of any tensor. */
static bool take_bare_storage(struct walker *walker, uint32_t node)
{
    struct torch_tensor tensor = {.rank = 1};
    const struct kind *kind;
    uint64_t items, stride = 1;
    return take_storage(walker, node, &tensor, &kind, &items) && add_tensor(walker, &tensor, kind, &items, &stride);
}

/* ---- walking */

/* Whether a persistent id is the class of a module, with its source, as in files before torch 1.6. */
static bool is_class(const struct walker *walker, uint32_t node)
{
    const struct pickle *pickle = &walker->pickle;
    return pickle_is_text(pickle, pickle_item(pickle, pickle->nodes[node].is.call.args, 0), "module");
}

static bool walk(struct walker *walker, uint32_t node, int depth);

/* Appends a key to the path: a text or an integer as it is; for other keys, their index in the container. */
static void enter_key(struct walker *walker, uint32_t key, uint64_t index)
{
    struct key *target = &walker->path.key[walker->path.keys++];
    const struct pickle_node *node = key == PICKLE_NO ? NULL : &walker->pickle.nodes[key];
    if (node && node->type == PICKLE_TEXT) {
        target->word = (const char *)walker->pickle.bytes + node->is.text.start;
        target->size = node->is.text.len;
        return;
    }
    target->word = NULL;
    target->size = (size_t)(node && node->type == PICKLE_INT
                                ? snprintf(target->digits, sizeof target->digits, "%" PRId64, node->is.number)
                                : snprintf(target->digits, sizeof target->digits, "%" PRIu64, index));
}

/* Whether a key of a module's state is not a part of its parameters' names. */
static bool is_layer_of_module(const struct walker *walker, uint32_t key)
{
    return pickle_is_text(&walker->pickle, key, "_parameters") || pickle_is_text(&walker->pickle, key, "_buffers") ||
           pickle_is_text(&walker->pickle, key, "_modules");
}

/* Walks the values in a node's cells. state: the cells are an object's attributes. */
static bool walk_cells(struct walker *walker, uint32_t node, bool state, int depth)
{
    const size_t keys = walker->path.keys;
    uint64_t index = 0;
    for (uint32_t number = walker->pickle.nodes[node].first; number != PICKLE_NO;
         number = walker->pickle.cells[number].next) {
        const struct pickle_cell *cell = &walker->pickle.cells[number];
        if (!(state && is_layer_of_module(walker, cell->key)))
            enter_key(walker, cell->key, index);
        if (!walk(walker, cell->value, depth + 1))
            return false;
        walker->path.keys = keys;
        index++;
    }
    return true;
}

/* Walks the values of a container unless it has been seen. */
static bool walk_container(struct walker *walker, uint32_t number, bool state, int depth)
{
    struct pickle_node *node = &walker->pickle.nodes[number];
    if (node->seen)
        return true;
    if (depth > TORCH_MAX_DEPTH)
        return pici_parse_fail(walker->error, walker->base, "the pickle has more than %d containers in one another",
                               TORCH_MAX_DEPTH);
    node->seen = true;
    return walk_cells(walker, number, state, depth);
}

/* The function of a call, and its arguments. For _rebuild_from_type_v2, the arguments of the call that it wraps. */
static uint32_t function_of(const struct pickle *pickle, uint32_t node, uint32_t *args)
{
    const uint32_t function = pickle->nodes[node].is.call.function;
    *args = pickle->nodes[node].is.call.args;
    if (!pickle_is_global(pickle, function, "torch._tensor",
                          "_rebuild_from_type_v2")) /* (function, type, args, state) */
        return function;
    const uint32_t wrapped = pickle_item(pickle, *args, 0);
    *args = pickle_item(pickle, *args, 2);
    return wrapped;
}

/* The state for a call's result: from BUILD, or from _rebuild_from_type_v2. */
static uint32_t state_of(const struct pickle *pickle, uint32_t node)
{
    const struct pickle_node *call = &pickle->nodes[node];
    const bool wraps = pickle_is_global(pickle, call->is.call.function, "torch._tensor", "_rebuild_from_type_v2");
    return call->state == PICKLE_NO && wraps ? pickle_item(pickle, call->is.call.args, 3) : call->state;
}

static bool is_parameter(const struct pickle *pickle, uint32_t function)
{
    return pickle_is_global(pickle, function, "torch._utils", "_rebuild_parameter") ||
           pickle_is_global(pickle, function, "torch._utils", "_rebuild_parameter_with_state");
}

/* The value inside nested Parameters, from the outermost one, `node`; PICKLE_NO if there is none. Each Parameter keeps
 * this value in `first`, so that a chain is walked only once, however often the pickle has it. */
static uint32_t parameter_of(struct walker *walker, uint32_t node)
{
    struct pickle *pickle = &walker->pickle;
    uint32_t args, end = node, value;
    while (pickle_type_of(pickle, end) == PICKLE_CALL && !pickle->nodes[end].seen &&
           is_parameter(pickle, function_of(pickle, end, &args))) {
        pickle->nodes[end].seen = true;
        pickle->nodes[end].first = PICKLE_NO;
        end = pickle_item(pickle, args, 0);
    }
    const bool known =
        pickle_type_of(pickle, end) == PICKLE_CALL && is_parameter(pickle, function_of(pickle, end, &args));
    value = known ? pickle->nodes[end].first : end;
    for (uint32_t next; node != end && pickle->nodes[node].first == PICKLE_NO; node = next) {
        (void)function_of(pickle, node, &args);
        next = pickle_item(pickle, args, 0);
        pickle->nodes[node].first = value;
    }
    return value;
}

static bool walk_call(struct walker *walker, uint32_t node, int depth)
{
    static const struct {
        const char *name;
        unsigned dtype, metadata;
    } tensors[] = {{"_rebuild_tensor", 0, 0},
                   {"_rebuild_tensor_v2", 0, 6},
                   {"_rebuild_tensor_v3", 6, 7},
                   {"_rebuild_qtensor", 0, 0}};
    const struct pickle *pickle = &walker->pickle;
    uint32_t args;
    const uint32_t function = function_of(pickle, node, &args), state = state_of(pickle, node);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (pickle_is_global(pickle, function, "torch._utils", tensors[i].name))
            return take_tensor(walker, args, tensors[i].dtype, tensors[i].metadata);
    if (depth > TORCH_MAX_DEPTH)
        return pici_parse_fail(walker->error, walker->base, "the pickle has more than %d containers in one another",
                               TORCH_MAX_DEPTH);
    if (is_parameter(pickle, function))
        return walk(walker, parameter_of(walker, node), depth + 1);
    if (pickle->nodes[node].seen)
        return true;
    walker->pickle.nodes[node].seen = true;
    if (args != PICKLE_NO && !walk(walker, args, depth + 1))
        return false;
    if (!walk_cells(walker, node, false, depth))
        return false;
    if (pickle_type_of(pickle, state) == PICKLE_DICT)
        return walk_container(walker, state, true, depth + 1);
    return state == PICKLE_NO || walk(walker, state, depth + 1);
}

static bool walk(struct walker *walker, uint32_t node, int depth)
{
    switch (pickle_type_of(&walker->pickle, node)) {
    case PICKLE_STORED: return is_class(walker, node) || take_bare_storage(walker, node);
    case PICKLE_CALL: return walk_call(walker, node, depth);
    case PICKLE_TUPLE:
    case PICKLE_LIST:
    case PICKLE_SET:
    case PICKLE_DICT: return walk_container(walker, node, false, depth);
    default: return true;
    }
}

bool torch_parse(struct torch *out, const uint8_t *bytes, size_t size, uint64_t base, struct parse_error *error)
{
    struct walker walker = {.torch = out, .base = base, .error = error};
    *out = (struct torch){0};
    bool valid = pickle_parse(&walker.pickle, bytes, size, base, error) && walk(&walker, walker.pickle.root, 0);
    const char *name = out->names;
    const uint64_t *dims = out->dims;
    for (size_t i = 0; valid && i < out->count; i++) {
        struct torch_tensor *tensor = &out->tensors[i];
        tensor->name = name;
        name += tensor->name_size + 1;
        if (!tensor->rank)
            continue;
        tensor->shape = dims;
        tensor->strides = dims + tensor->rank;
        dims += 2 * tensor->rank;
    }
    pickle_free(&walker.pickle);
    if (!valid)
        torch_free(out);
    return valid;
}

void torch_free(struct torch *torch)
{
    free(torch->tensors);
    free(torch->names);
    free(torch->dims);
    *torch = (struct torch){0};
}

bool torch_is_dense(const struct torch_tensor *tensor, unsigned order[TORCH_MAX_RANK])
{
    if (tensor->offset || tensor->extent != tensor->items)
        return false;
    for (unsigned i = 0; i < tensor->rank; i++) { /* insertion sort; on equal strides, the first dimension stays
                                                   * first */
        unsigned k = i;
        for (; k && tensor->strides[order[k - 1]] < tensor->strides[i]; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    uint64_t stride = 1;
    for (unsigned k = tensor->rank; tensor->items && k-- > 0;) {
        const uint64_t extent = tensor->shape[order[k]];
        if (extent != 1 && tensor->strides[order[k]] != stride)
            return false;
        stride *= extent;
    }
    return true;
}
