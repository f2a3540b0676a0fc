/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Any bytes as a pickle, as one of torch.save, and as a file of torch before version 1.6. The parser must end and
 * stay within its limits. Accepted input is consistent. */
#include <string.h>

#include "fuzz/fuzz.h"
#include "tools/parse/pickle.h"
#include "tools/parse/torch.h"
#include "tools/parse/torch_old.h"

static void check_node(const struct pickle *p, const struct pickle_node *n, size_t len)
{
    require(n->type <= PICKLE_STORED && !n->seen);
    require(n->state == PICKLE_NO || n->state < p->node_count);
    if (n->type == PICKLE_TEXT || n->type == PICKLE_BYTES)
        require(n->is.text.start <= len && n->is.text.len <= len - n->is.text.start);
    if (n->type == PICKLE_GLOBAL)
        require(pickle_type_of(p, n->is.global.module) == PICKLE_TEXT &&
                pickle_type_of(p, n->is.global.name) == PICKLE_TEXT);
    if (n->type == PICKLE_CALL)
        require(n->is.call.function < p->node_count);
    if (n->type == PICKLE_CALL || n->type == PICKLE_STORED)
        require(n->is.call.args < p->node_count);
}

static void read_pickle(const uint8_t *data, size_t len)
{
    struct pickle p;
    struct parse_error err = {.offset = UINT64_MAX};
    if (!pickle_parse(&p, data, len, 1000, &err)) {
        require(err.offset >= 1000 && err.offset <= 1000 + len && err.what[0] && !p.nodes && !p.cells);
        return;
    }
    require(p.root < p.node_count && p.node_count <= 3 * len && p.cell_count <= len);
    for (uint32_t i = 0; i < p.node_count; i++)
        check_node(&p, &p.nodes[i], len);
    uint32_t cells = 0;
    for (uint32_t i = 0; i < p.node_count; i++)
        for (uint32_t c = p.nodes[i].first; c != PICKLE_NO; c = p.cells[c].next, cells++)
            require(c < p.cell_count && p.cells[c].value < p.node_count &&
                    (p.cells[c].key == PICKLE_NO || p.cells[c].key < p.node_count) && cells <= p.cell_count);
    require(cells == p.cell_count);
    pickle_free(&p);
}

static void check_tensor(const struct torch_tensor *t, const uint8_t *data, size_t len)
{
    unsigned order[TORCH_MAX_RANK], seen[TORCH_MAX_RANK] = {0};
    uint64_t items = 1;
    require(t->rank <= TORCH_MAX_RANK && t->name[t->name_size] == 0 && t->source_dtype);
    require((const uint8_t *)t->storage >= data && (const uint8_t *)t->storage + t->storage_size <= data + len);
    require(!t->conjugate || t->item_elements == 2);
    require(pici_dtype_width(t->dtype) && (t->item_elements == 1 || t->item_elements == 2));
    for (unsigned i = 0; i < t->rank; i++)
        items *= t->shape[i]; /* a zero makes up for an overflow */
    require(items == t->items && (t->items == 0) == (t->extent == 0) && t->extent <= INT64_MAX / 16);
    if (!torch_is_dense(t, order))
        return;
    require(t->offset == 0 && t->extent == t->items);
    for (unsigned i = 0; i < t->rank; i++) {
        require(order[i] < t->rank && !seen[order[i]]);
        seen[order[i]] = 1;
    }
}

struct file {
    const uint8_t *bytes;
    size_t size;
};

static int read_at(void *context, void *target, size_t size, uint64_t offset)
{
    const struct file *file = context;
    require(size && offset <= file->size && size <= file->size - offset);
    memcpy(target, file->bytes + offset, size);
    return 0;
}

static void read_old(const uint8_t *data, size_t len)
{
    struct file file = {data, len};
    struct parse_error err = {.offset = UINT64_MAX};
    struct zip zip;
    uint64_t end = 0;
    if (!torch_old_open(&zip, read_at, &file, len, &err)) {
        require(err.offset <= len && err.what[0] && !zip.entries && !zip.names);
        return;
    }
    require(zip.count && strcmp(zip.entries[0].name, "old/data.pkl") == 0);
    for (size_t i = 0; i < zip.count; i++) {
        const struct zip_entry *entry = &zip.entries[i];
        require(entry->stored && entry->header >= end && entry->begin == entry->header + (i ? 8 : 0));
        require(entry->end >= entry->begin && entry->end - entry->begin == entry->bytes && entry->end <= len);
        require(strlen(entry->name) == entry->name_size && memcmp(entry->name, "old/data", 8) == 0);
        end = entry->end;
    }
    zip_free(&zip);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct torch t;
    struct parse_error err = {.offset = UINT64_MAX};
    read_pickle(data, len);
    read_old(data, len);
    if (!torch_parse(&t, data, len, 0, &err)) {
        require(err.offset <= len && err.what[0] && !t.tensors && !t.names && !t.dims);
        return 0;
    }
    for (size_t i = 0; i < t.count; i++)
        check_tensor(&t.tensors[i], data, len);
    torch_free(&t);
    return 0;
}
