/* SPDX-License-Identifier: BSD-3-Clause */
#include "parse/torch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse/pickle.h"
#include "pici/file.h"

/* How torch names a dtype: its own word, and the class of its storages. */
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

/* The path from the root to the value that is looked at: a key for each level of walk_cells. A name is made of them
 * only when a tensor is found, since keys may be long and many. */
struct key {
    const char *word; /* [len] in the pickle, or NULL: digits */
    size_t len;
    char digits[24];
};

struct path {
    struct key key[TORCH_MAX_DEPTH + 2];
    size_t keys;
};

struct walker {
    struct pickle pickle;
    struct torch *out;
    struct path path;
    size_t tensor_room, names_len, names_room, dims_len, dims_room;
    size_t memory; /* bytes of names, shapes and strides so far */
    uint64_t base;
    struct parse_error *err;
};

static bool nomem(const struct walker *w)
{
    return pici_parse_fail(w->err, w->base, "out of memory for the pickle's tensors");
}

/* Room for n more elements of width bytes at p, which has *capacity and uses used. NULL: no memory. */
static void *more_room(void *p, size_t *capacity, size_t used, size_t n, size_t width)
{
    if (n <= *capacity - used)
        return p;
    size_t all = *capacity + *capacity / 2 + 64;
    if (all - used < n)
        all = used + n;
    void *bigger = all <= SIZE_MAX / width ? realloc(p, all * width) : NULL;
    if (bigger)
        *capacity = all;
    return bigger;
}

/* ---- tensors */

/* Copies the keys of the path, with dots between, to name, which has room for most bytes. Returns the length of all of
 * them, or a part of it that is more than PICI_NAME_MAX. */
static size_t path_name(const struct path *path, char *name, size_t most)
{
    size_t size = 0;
    for (size_t i = 0; i < path->keys && size <= PICI_NAME_MAX; i++) {
        const struct key *key = &path->key[i];
        if (size && size < most)
            name[size] = '.';
        size += size != 0;
        if (size < most)
            memcpy(name + size, key->word ? key->word : key->digits, key->len < most - size ? key->len : most - size);
        size += key->len <= PICI_NAME_MAX ? key->len : PICI_NAME_MAX + 1;
    }
    return size;
}

static bool bad(struct walker *w, const char *what)
{
    char name[64], text[64];
    const size_t size = path_name(&w->path, name, sizeof name);
    return pici_parse_fail(w->err, w->base, "the pickle's tensor '%s' %s",
                           pici_parse_printable(text, sizeof text, name, size < sizeof name ? size : sizeof name),
                           what);
}

/* The number of a node; false if it is not an integer from 0 on. */
static bool natural(const struct walker *w, uint32_t n, uint64_t *value)
{
    if (pickle_type_of(&w->pickle, n) != PICKLE_INT || w->pickle.nodes[n].is.number < 0)
        return false;
    *value = (uint64_t)w->pickle.nodes[n].is.number;
    return true;
}

/* A tuple, which may be the only argument of a call, as that of torch.Size. */
static uint32_t tuple_of(const struct walker *w, uint32_t n)
{
    if (pickle_type_of(&w->pickle, n) == PICKLE_CALL)
        n = pickle_item(&w->pickle, w->pickle.nodes[n].is.call.args, 0);
    return n;
}

/* Reads a tuple of dimensions. */
static bool take_dims(struct walker *w, uint32_t n, uint64_t dims[TORCH_MAX_RANK], unsigned *rank)
{
    n = tuple_of(w, n);
    if (pickle_type_of(&w->pickle, n) != PICKLE_TUPLE)
        return bad(w, "has a size or strides that are no tuple");
    *rank = 0;
    for (uint32_t c = w->pickle.nodes[n].first; c != PICKLE_NO; c = w->pickle.cells[c].next) {
        if (*rank == TORCH_MAX_RANK)
            return bad(w, "has too many dimensions");
        if (!natural(w, w->pickle.cells[c].value, &dims[(*rank)++]))
            return bad(w, "has a dimension or stride that is no natural number");
    }
    return true;
}

static bool kind_is_float(const struct kind *k)
{
    return k->dtype == PICI_F32 || k->dtype == PICI_F64 || k->dtype == PICI_F16 || k->dtype == PICI_BF16;
}

static const struct kind *kind_by(const struct walker *w, uint32_t name, bool storage)
{
    for (int i = 0; i < KINDS; i++)
        if (pickle_is_text(&w->pickle, name, storage ? kinds[i].storage : kinds[i].name))
            return &kinds[i];
    return NULL;
}

/* Reads the persistent id of a storage: ('storage', class, key, location, items). */
static bool take_storage(struct walker *w, uint32_t n, struct torch_tensor *tensor, const struct kind **kind,
                         uint64_t *items)
{
    const struct pickle *p = &w->pickle;
    if (pickle_type_of(p, n) != PICKLE_STORED)
        return bad(w, "has no storage");
    const uint32_t id = p->nodes[n].is.call.args, class = pickle_item(p, id, 1), key = pickle_item(p, id, 2);
    if (!pickle_is_text(p, pickle_item(p, id, 0), "storage") || pickle_type_of(p, class) != PICKLE_GLOBAL ||
        pickle_type_of(p, key) != PICKLE_TEXT || !natural(w, pickle_item(p, id, 4), items))
        return bad(w, "has a storage that is not as torch writes it");
    tensor->storage = (const char *)p->bytes + p->nodes[key].is.text.start;
    tensor->storage_len = p->nodes[key].is.text.len;
    *kind = kind_by(w, p->nodes[class].is.global.name, true);
    if (!*kind)
        *kind = &kinds[UNTYPED];
    return true;
}

/* Sets items, extent and row_major. */
static bool measure(struct walker *w, struct torch_tensor *tensor, const uint64_t *shape, const uint64_t *strides)
{
    uint64_t row = 1, last = tensor->offset;
    tensor->items = 1;
    tensor->row_major = true;
    for (unsigned i = 0; i < tensor->rank; i++)
        tensor->items = shape[i] ? tensor->items : 0;
    for (unsigned i = tensor->rank; tensor->items && i-- > 0;) {
        uint64_t step;
        if (!parse_mul(&tensor->items, tensor->items, shape[i], INT64_MAX / 16) ||
            !parse_mul(&step, strides[i], shape[i] - 1, INT64_MAX / 16 - 1) || last > INT64_MAX / 16 - 1 - step)
            return bad(w, "has a size beyond 59 bits");
        last += step;
        tensor->row_major = tensor->row_major && (shape[i] == 1 || strides[i] == row);
        row *= shape[i];
    }
    if (tensor->items && last > INT64_MAX / 16 - 1)
        return bad(w, "has an offset beyond 59 bits");
    tensor->extent = tensor->items ? last + 1 : 0;
    return true;
}

/* Appends a tensor of the path's name. Its shape and strides are copied; out->dims moves, so that pointers into it are
 * set in the end. */
static bool add_tensor(struct walker *w, struct torch_tensor *tensor, const struct kind *kind, const uint64_t *shape,
                       const uint64_t *strides)
{
    struct torch *out = w->out;
    tensor->source_dtype = kind->name;
    tensor->dtype = kind->dtype;
    tensor->item_elements = kind->item_elements;
    const size_t path_len = path_name(&w->path, NULL, 0);
    tensor->name_len = path_len ? path_len : 4;
    const size_t dims_bytes = 2 * tensor->rank * sizeof *shape;
    w->memory += tensor->name_len + 1 + dims_bytes + sizeof *tensor;
    if (tensor->name_len > PICI_NAME_MAX)
        return pici_parse_fail(w->err, w->base, "the pickle has a tensor of a name of more than %u bytes",
                               PICI_NAME_MAX);
    if (w->memory > TORCH_MAX_MEMORY)
        return pici_parse_fail(w->err, w->base, "the pickle's tensors have longer names and shapes than the limit");
    if (!measure(w, tensor, shape, strides))
        return false;
    struct torch_tensor *tensors = more_room(out->tensors, &w->tensor_room, out->count, 1, sizeof *tensors);
    out->tensors = tensors ? tensors : out->tensors;
    char *names = more_room(out->names, &w->names_room, w->names_len, tensor->name_len + 1, 1);
    out->names = names ? names : out->names;
    uint64_t *dims = more_room(out->dims, &w->dims_room, w->dims_len, 2 * tensor->rank, sizeof *dims);
    out->dims = dims ? dims : out->dims;
    if (!tensors || !names || (!dims && tensor->rank))
        return nomem(w);
    memcpy(names + w->names_len, "data", 4);
    path_name(&w->path, names + w->names_len, path_len);
    names[w->names_len + tensor->name_len] = 0;
    w->names_len += tensor->name_len + 1;
    if (tensor->rank) {
        memcpy(dims + w->dims_len, shape, dims_bytes / 2);
        memcpy(dims + w->dims_len + tensor->rank, strides, dims_bytes / 2);
    }
    w->dims_len += 2 * tensor->rank;
    out->tensors[out->count++] = *tensor;
    return true;
}

/* Whether a node is no dict, or one of few keys: many tensors may share it, and each looks at all of them. */
static bool is_short(const struct walker *w, uint32_t n)
{
    unsigned keys = 0;
    if (pickle_type_of(&w->pickle, n) != PICKLE_DICT)
        return true;
    for (uint32_t c = w->pickle.nodes[n].first; c != PICKLE_NO && keys <= TORCH_MAX_METADATA; keys++)
        c = w->pickle.cells[c].next;
    return keys <= TORCH_MAX_METADATA;
}

/* Whether a dict has True under a key. */
static bool is_set(const struct walker *w, uint32_t n, const char *key)
{
    if (pickle_type_of(&w->pickle, n) != PICKLE_DICT)
        return false;
    bool set = false; /* of equal keys the last one counts */
    for (uint32_t c = w->pickle.nodes[n].first; c != PICKLE_NO; c = w->pickle.cells[c].next)
        if (pickle_is_text(&w->pickle, w->pickle.cells[c].key, key)) {
            const uint32_t value = w->pickle.cells[c].value;
            set = pickle_type_of(&w->pickle, value) == PICKLE_BOOL && w->pickle.nodes[value].is.number;
        }
    return set;
}

/* Reads a tensor: the arguments of torch._utils._rebuild_tensor_v2 and its like. dtype: the number of the argument that
 * names it; 0: the storage does. metadata: of the argument that says which bits are set. */
static bool take_tensor(struct walker *w, uint32_t args, unsigned dtype, unsigned metadata)
{
    struct torch_tensor tensor = {0};
    const struct kind *kind;
    uint64_t shape[TORCH_MAX_RANK], strides[TORCH_MAX_RANK], all;
    unsigned rank;
    if (!take_storage(w, pickle_item(&w->pickle, args, 0), &tensor, &kind, &all))
        return false;
    if (!natural(w, pickle_item(&w->pickle, args, 1), &tensor.offset))
        return bad(w, "has an offset that is no natural number");
    if (!take_dims(w, pickle_item(&w->pickle, args, 2), shape, &tensor.rank) ||
        !take_dims(w, pickle_item(&w->pickle, args, 3), strides, &rank))
        return false;
    if (rank != tensor.rank)
        return bad(w, "has not as many strides as dimensions");
    const uint32_t named = dtype ? pickle_item(&w->pickle, args, dtype) : PICKLE_NO;
    if (pickle_type_of(&w->pickle, named) == PICKLE_GLOBAL)
        kind = kind_by(w, w->pickle.nodes[named].is.global.name, false);
    if (!kind)
        return bad(w, "has a dtype that is not known");
    const uint32_t bits = metadata ? pickle_item(&w->pickle, args, metadata) : PICKLE_NO;
    if (!is_short(w, bits))
        return bad(w, "has more metadata than torch writes");
    tensor.conjugate = kind->item_elements > 1 && is_set(w, bits, "conj");
    tensor.negative = is_set(w, bits, "neg");
    if (tensor.negative && !kind_is_float(kind))
        return bad(w, "is negative, and of no floats");
    return add_tensor(w, &tensor, kind, shape, strides);
}

/* Reads a storage that no tensor surrounds. */
static bool take_bare_storage(struct walker *w, uint32_t n)
{
    struct torch_tensor tensor = {.rank = 1};
    const struct kind *kind;
    uint64_t items, stride = 1;
    return take_storage(w, n, &tensor, &kind, &items) && add_tensor(w, &tensor, kind, &items, &stride);
}

/* ---- walking */

static bool walk(struct walker *w, uint32_t n, int depth);

/* Appends a key to the path: a text or an integer as it is, of other keys their number in the container. */
static void enter_key(struct walker *w, uint32_t key, uint64_t index)
{
    struct key *to = &w->path.key[w->path.keys++];
    const struct pickle_node *k = key == PICKLE_NO ? NULL : &w->pickle.nodes[key];
    if (k && k->type == PICKLE_TEXT) {
        to->word = (const char *)w->pickle.bytes + k->is.text.start;
        to->len = k->is.text.len;
        return;
    }
    to->word = NULL;
    to->len = (size_t)(k && k->type == PICKLE_INT ? snprintf(to->digits, sizeof to->digits, "%" PRId64, k->is.number)
                                                  : snprintf(to->digits, sizeof to->digits, "%" PRIu64, index));
}

/* Whether a key of a module's state stands for no part of a parameter's name. */
static bool is_layer_of_module(const struct walker *w, uint32_t key)
{
    return pickle_is_text(&w->pickle, key, "_parameters") || pickle_is_text(&w->pickle, key, "_buffers") ||
           pickle_is_text(&w->pickle, key, "_modules");
}

/* Walks the values in a node's cells. state: they are the attributes of an object. */
static bool walk_cells(struct walker *w, uint32_t n, bool state, int depth)
{
    const size_t keys = w->path.keys;
    uint64_t index = 0;
    for (uint32_t c = w->pickle.nodes[n].first; c != PICKLE_NO; c = w->pickle.cells[c].next) {
        const struct pickle_cell *cell = &w->pickle.cells[c];
        if (!(state && is_layer_of_module(w, cell->key)))
            enter_key(w, cell->key, index);
        if (!walk(w, cell->value, depth + 1))
            return false;
        w->path.keys = keys;
        index++;
    }
    return true;
}

/* Walks the values of a container unless it has been seen. */
static bool walk_container(struct walker *w, uint32_t n, bool state, int depth)
{
    struct pickle_node *node = &w->pickle.nodes[n];
    if (node->seen)
        return true;
    if (depth > TORCH_MAX_DEPTH)
        return pici_parse_fail(w->err, w->base, "the pickle has more than %d containers in one another",
                               TORCH_MAX_DEPTH);
    node->seen = true;
    return walk_cells(w, n, state, depth);
}

/* What a call calls, and with which arguments; of _rebuild_from_type_v2, what that calls. */
static uint32_t function_of(const struct pickle *p, uint32_t n, uint32_t *args)
{
    const uint32_t function = p->nodes[n].is.call.function;
    *args = p->nodes[n].is.call.args;
    if (!pickle_is_global(p, function, "torch._tensor", "_rebuild_from_type_v2")) /* (function, type, args, state) */
        return function;
    const uint32_t wrapped = pickle_item(p, *args, 0);
    *args = pickle_item(p, *args, 2);
    return wrapped;
}

/* The state that a call's result gets: by BUILD, or that of _rebuild_from_type_v2. */
static uint32_t state_of(const struct pickle *p, uint32_t n)
{
    const struct pickle_node *call = &p->nodes[n];
    const bool wraps = pickle_is_global(p, call->is.call.function, "torch._tensor", "_rebuild_from_type_v2");
    return call->state == PICKLE_NO && wraps ? pickle_item(p, call->is.call.args, 3) : call->state;
}

static bool is_parameter(const struct pickle *p, uint32_t function)
{
    return pickle_is_global(p, function, "torch._utils", "_rebuild_parameter") ||
           pickle_is_global(p, function, "torch._utils", "_rebuild_parameter_with_state");
}

/* The value at the end of Parameters of Parameters, of which n is the first; PICKLE_NO if there is none. Each of them
 * keeps it where it has no cells, so that a chain is walked once, however often it is in the pickle. */
static uint32_t parameter_of(struct walker *w, uint32_t n)
{
    struct pickle *p = &w->pickle;
    uint32_t args, end = n, value;
    while (pickle_type_of(p, end) == PICKLE_CALL && !p->nodes[end].seen &&
           is_parameter(p, function_of(p, end, &args))) {
        p->nodes[end].seen = true;
        p->nodes[end].first = PICKLE_NO;
        end = pickle_item(p, args, 0);
    }
    const bool known = pickle_type_of(p, end) == PICKLE_CALL && is_parameter(p, function_of(p, end, &args));
    value = known ? p->nodes[end].first : end;
    for (uint32_t next; n != end && p->nodes[n].first == PICKLE_NO; n = next) {
        (void)function_of(p, n, &args);
        next = pickle_item(p, args, 0);
        p->nodes[n].first = value;
    }
    return value;
}

static bool walk_call(struct walker *w, uint32_t n, int depth)
{
    static const struct {
        const char *name;
        unsigned dtype, metadata;
    } tensors[] = {{"_rebuild_tensor", 0, 0},
                   {"_rebuild_tensor_v2", 0, 6},
                   {"_rebuild_tensor_v3", 6, 7},
                   {"_rebuild_qtensor", 0, 0}};
    const struct pickle *p = &w->pickle;
    uint32_t args;
    const uint32_t function = function_of(p, n, &args), state = state_of(p, n);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (pickle_is_global(p, function, "torch._utils", tensors[i].name))
            return take_tensor(w, args, tensors[i].dtype, tensors[i].metadata);
    if (depth > TORCH_MAX_DEPTH)
        return pici_parse_fail(w->err, w->base, "the pickle has more than %d containers in one another",
                               TORCH_MAX_DEPTH);
    if (is_parameter(p, function))
        return walk(w, parameter_of(w, n), depth + 1);
    if (p->nodes[n].seen)
        return true;
    w->pickle.nodes[n].seen = true;
    if (args != PICKLE_NO && !walk(w, args, depth + 1))
        return false;
    if (!walk_cells(w, n, false, depth))
        return false;
    if (pickle_type_of(p, state) == PICKLE_DICT)
        return walk_container(w, state, true, depth + 1);
    return state == PICKLE_NO || walk(w, state, depth + 1);
}

static bool walk(struct walker *w, uint32_t n, int depth)
{
    switch (pickle_type_of(&w->pickle, n)) {
    case PICKLE_STORED: return take_bare_storage(w, n);
    case PICKLE_CALL: return walk_call(w, n, depth);
    case PICKLE_TUPLE:
    case PICKLE_LIST:
    case PICKLE_SET:
    case PICKLE_DICT: return walk_container(w, n, false, depth);
    default: return true;
    }
}

bool torch_parse(struct torch *out, const uint8_t *bytes, size_t size, uint64_t base, struct parse_error *error)
{
    struct walker w = {.out = out, .base = base, .err = error};
    *out = (struct torch){0};
    bool ok = pickle_parse(&w.pickle, bytes, size, base, error) && walk(&w, w.pickle.root, 0);
    const char *name = out->names;
    const uint64_t *dims = out->dims;
    for (size_t i = 0; ok && i < out->count; i++) {
        struct torch_tensor *tensor = &out->tensors[i];
        tensor->name = name;
        name += tensor->name_len + 1;
        if (!tensor->rank)
            continue;
        tensor->shape = dims;
        tensor->strides = dims + tensor->rank;
        dims += 2 * tensor->rank;
    }
    pickle_free(&w.pickle);
    if (!ok)
        torch_free(out);
    return ok;
}

void torch_free(struct torch *t)
{
    free(t->tensors);
    free(t->names);
    free(t->dims);
    *t = (struct torch){0};
}

bool torch_is_dense(const struct torch_tensor *tensor, unsigned order[TORCH_MAX_RANK])
{
    if (tensor->offset || tensor->extent != tensor->items)
        return false;
    for (unsigned i = 0; i < tensor->rank; i++) { /* insertion; of equal strides, the first dimension stays first */
        unsigned k = i;
        for (; k && tensor->strides[order[k - 1]] < tensor->strides[i]; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    uint64_t row = 1;
    for (unsigned k = tensor->rank; tensor->items && k-- > 0;) {
        const uint64_t n = tensor->shape[order[k]];
        if (n != 1 && tensor->strides[order[k]] != row)
            return false;
        row *= n;
    }
    return true;
}
