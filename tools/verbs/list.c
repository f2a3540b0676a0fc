/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "folder/folder.h"
#include "input/attrs.h"
#include "input/reading.h"
#include "input/tensors.h"
#include "output/result.h"
#include "parse/npy.h"
#include "show/inputs.h"
#include "show/report.h"
#include "term.h"
#include "tool.h"

enum { VIEW_TEXT = 512 /* the most characters shown */ };

static uint64_t capped_sum(uint64_t a, uint64_t b)
{
    return a <= UINT64_MAX - b ? a + b : UINT64_MAX;
}

/* Adds a tensor. NULL: no memory. */
static struct measured *add(struct report *report, const char *name, size_t len, enum pici_dtype dtype,
                            const uint64_t *shape, unsigned rank, uint64_t count)
{
    struct measured *m = report_add(report, name, len);
    if (!m || !(m->shape = malloc(rank * sizeof *m->shape + 1)))
        return NULL;
    m->dtype = dtype;
    m->rank = rank;
    if (rank)
        memcpy(m->shape, shape, rank * sizeof *m->shape);
    m->elements = count;
    /* A .pt file may claim long tensors, with strides of 0. One has fewer than 2^64 bytes; their sum may have more. */
    report->total.elements = capped_sum(report->total.elements, count);
    report->total.dense_bytes = capped_sum(report->total.dense_bytes, count * pici_dtype_width(dtype));
    return m;
}

/* Keeps what the original calls the type, of booleans and complex numbers alone: there may be millions of tensors. */
static bool keep_meaning(struct measured *m, const char *text, size_t len)
{
    if (pici_npy_meaning_of(text, len, m->dtype) == NPY_NUMBER)
        return true;
    m->dtype_text = strndup(text, len);
    return m->dtype_text != NULL;
}

/* Reads the index, or all of a stream. The sizes in the report are elements and dense bytes only. delta: the tensors
 * that small deltas lead to are shown; or NULL. */
static int gather(struct reading *r, const struct delta *delta, struct report *report, uint64_t *chunks)
{
    for (;;) {
        struct pici_tensor_info t;
        bool more;
        int status = reading_next(r, &t, &more);
        if (status || !more)
            return status;
        struct pici_tensor_info of = t;
        if (delta && t.index < delta->tensors) {
            const enum pici_status s = pici_delta_tensor(delta, r->reader, t.index, &of);
            if (s)
                return reading_failed(r, s);
        }
        struct measured *m = add(report, t.name, t.name_len, of.dtype, of.shape, of.rank, of.count);
        if (!m)
            return tool_nomem(r->in->name, "the list of tensors");
        m->stored = t.stored_bytes;
        m->chunks = t.chunks;
        *chunks += t.chunks;
        report->stored += m->stored;
        status = reading_attr_is(r, t.index, ATTR_ENDIAN, "big", &m->big_endian);
        if (status == TOOL_OK)
            status = reading_attr_is(r, t.index, ATTR_ORDER, "F", &m->fortran);
        struct pici_attr type = {0};
        if (status == TOOL_OK)
            status = reading_attr(r, t.index, ATTR_DTYPE, &type);
        if (status)
            return status;
        if (type.key && !keep_meaning(m, type.value, type.len))
            return tool_nomem(r->in->name, "the list of tensors");
        status = reading_attr(r, t.index, ATTR_VIEW, &type);
        if (status)
            return status;
        if (type.key && !(m->view = strndup(type.value, type.len < VIEW_TEXT ? type.len : VIEW_TEXT)))
            return tool_nomem(r->in->name, "the list of tensors");
    }
}

/* Adds each tensor that the pickle of a .pt file names; several may be in one storage. */
static int gather_torch(struct archive *a, struct report *report)
{
    char view[256];
    uint64_t shape[TORCH_MAX_RANK + 1];
    for (size_t i = 0; i < a->torch.count; i++) {
        const struct torch_tensor *t = &a->torch.tensors[i];
        unsigned rank = t->rank;
        if (rank)
            memcpy(shape, t->shape, rank * sizeof *shape);
        if (t->item_elements > 1)
            shape[rank++] = t->item_elements;
        struct measured *m = add(report, t->name, t->name_len, t->dtype, shape, rank, t->items * t->item_elements);
        if (!m || !(m->dtype_text = strdup(t->source_dtype)))
            return tool_nomem(a->in->name, "the list of tensors");
        archive_view(a, i, view, sizeof view);
        if (view[0] && !(m->view = strdup(view)))
            return tool_nomem(a->in->name, "the list of tensors");
        m->big_endian = a->big_endian && pici_dtype_width(t->dtype) > 1;
    }
    return TOOL_OK;
}

/* Whether gather_torch has listed what is in this part of the file. */
static bool is_listed(const struct archive *a, size_t part)
{
    return a->torch.count && part < a->parts && a->part[part].tensor != ARCHIVE_NONE;
}

/* Reads the header of a file that is not a .pici file. */
static int gather_source(const char *path, const struct tool_options *o, struct report *report, const char **type,
                         uint64_t *bytes)
{
    struct tensors all;
    int status = tensors_open(&all, path, o);
    if (status)
        return status;
    *type = tool_type_name(all.source.type);
    *bytes = all.in.bytes;
    status = gather_torch(&all.source.archive, report);
    for (size_t i = 0; i < all.n && status == TOOL_OK; i++) {
        if (is_listed(&all.source.archive, i))
            continue;
        const struct tensor_at *t = &all.tensor[i];
        struct measured *m =
            t->filler ? NULL : add(report, t->name, t->name_len, t->dtype, t->shape, t->rank, t->count);
        if (m) {
            m->big_endian = t->big_endian;
            m->fortran = t->fortran;
            if (!keep_meaning(m, t->dtype_text, strlen(t->dtype_text)))
                status = tool_nomem(all.in.name, "the list of tensors");
        } else if (!t->filler) {
            status = tool_nomem(all.in.name, "the list of tensors");
        }
    }
    tensors_close(&all);
    return status;
}

/* What list shows of a delta. */
struct listed_delta {
    bool is, whole; /* whole: d and removed are set; not for a stream */
    struct delta d;
    struct pici_attr removed;
};

static int gather_delta(struct reading *r, struct listed_delta *d)
{
    int status = reading_is_delta(r, &d->is);
    if (status || !d->is || !r->in->regular)
        return status;
    status = reading_delta(r, &d->d);
    d->whole = status == TOOL_OK;
    return status ? status : reading_attr(r, PICI_FILE, DELTA_REMOVED, &d->removed);
}

static void list_delta_json(struct jsonout *j, const struct listed_delta *d)
{
    size_t at = 0, len;
    const char *name;
    bool good;
    jsonout_begin(j, "delta", '{');
    for (int k = 0; d->whole && k < DELTA_KINDS; k++)
        jsonout_u64(j, pici_delta_kind_name((enum delta_kind)k), d->d.kinds[k]);
    if (d->whole) {
        jsonout_begin(j, "removed", '[');
        while (pici_delta_removed_next(&d->removed, &at, &name, &len, &good))
            jsonout_text(j, NULL, name, len);
        jsonout_end(j, ']');
    }
    jsonout_end(j, '}');
}

static void list_delta(const struct listed_delta *d)
{
    size_t at = 0, len;
    const char *name;
    bool good;
    for (int k = 0; k < DELTA_KINDS; k++)
        printf("%s%" PRIu64 " %s", k ? ", " : "\n", d->d.kinds[k], pici_delta_kind_name((enum delta_kind)k));
    printf(", %" PRIu64 " removed%s", d->d.removed, d->d.removed ? ":" : "");
    while (pici_delta_removed_next(&d->removed, &at, &name, &len, &good)) {
        char text[256];
        printf(" %s", pici_parse_printable(text, sizeof text, name, len));
    }
    puts("");
}

static void list_json(struct jsonout *j, const struct report *r, uint64_t chunks, const struct listed_delta *d)
{
    jsonout_begin(j, NULL, '{');
    jsonout_string(j, "file", r->file);
    jsonout_string(j, "source", r->type);
    if (r->file_bytes)
        jsonout_u64(j, "file_bytes", r->file_bytes);
    jsonout_begin(j, "tensors", '[');
    for (size_t i = 0; i < r->tensors; i++) {
        const struct measured *m = &r->tensor[i];
        jsonout_begin(j, NULL, '{');
        measured_json(j, m);
        jsonout_u64(j, "elements", m->elements);
        jsonout_u64(j, "bytes", m->elements * pici_dtype_width(m->dtype));
        if (m->stored)
            jsonout_u64(j, "stored_bytes", m->stored);
        jsonout_u64(j, "chunks", m->chunks);
        jsonout_end(j, '}');
    }
    jsonout_end(j, ']');
    jsonout_begin(j, "total", '{');
    jsonout_u64(j, "elements", r->total.elements);
    jsonout_u64(j, "bytes", r->total.dense_bytes);
    if (r->stored)
        jsonout_u64(j, "stored_bytes", r->stored);
    jsonout_u64(j, "chunks", chunks);
    jsonout_end(j, '}');
    if (d->is)
        list_delta_json(j, d);
    jsonout_end(j, '}');
}

static void list_row(uint64_t elements, uint64_t dense_bytes, uint64_t stored, uint64_t chunks)
{
    char bytes[TERM_TEXT];
    printf("  %12" PRIu64 "  %8s", elements, term_bytes(bytes, dense_bytes));
    if (stored)
        printf("  %8s  %6.2f", term_bytes(bytes, stored), (double)dense_bytes / (double)stored);
    else
        printf("  %8s  %6s", "-", "-");
    printf("  %6" PRIu64, chunks);
    columns_end();
}

/* other: the file is not a .pici file. */
static void list_print(const struct report *r, bool other, uint64_t chunks, const struct listed_delta *d)
{
    char bytes[TERM_TEXT];
    term_puts(stdout, r->file);
    if (other)
        printf(": %s", r->type);
    else
        printf(d->is ? ": delta" : ": pici");
    if (*r->type && !other) {
        printf(", from ");
        term_puts(stdout, r->type);
    }
    if (r->file_bytes)
        printf(", %s", term_bytes(bytes, r->file_bytes));
    printf(", %zu tensor%s\n\n", r->tensors, r->tensors == 1 ? "" : "s");
    if (!r->tensors)
        return;
    struct columns c;
    columns_fit(&c, r, 2 + 12 + 2 + 8 + 2 + 8 + 2 + 6 + 2 + 6);
    columns_head(&c);
    printf("  %12s  %8s  %8s  %6s  %6s", "ELEMENTS", "BYTES", "STORED", "RATIO", "CHUNKS");
    columns_end();
    for (size_t i = 0; i < r->tensors; i++) {
        const struct measured *m = &r->tensor[i];
        columns_row(&c, m);
        list_row(m->elements, m->elements * pici_dtype_width(m->dtype), m->stored, m->chunks);
    }
    columns_total(&c);
    list_row(r->total.elements, r->total.dense_bytes, r->stored, chunks);
    if (d->whole)
        list_delta(d);
}

/* Prints what was found. other: not a .pici file. */
static void list_show(struct inputs *inputs, const struct report *report, bool other, uint64_t chunks,
                      const struct listed_delta *delta)
{
    if (inputs->o->json) {
        list_json(&inputs->json, report, chunks, delta);
    } else {
        inputs_next(inputs);
        list_print(report, other, chunks, delta);
    }
}

/* Adds the counts and the removed names of a delta to those of a folder. The caller frees all->removed.value. */
static int add_delta(struct listed_delta *all, const struct listed_delta *d)
{
    all->is = all->is || d->is;
    all->whole = all->whole || d->whole;
    for (int k = 0; k < DELTA_KINDS; k++)
        all->d.kinds[k] += d->d.kinds[k];
    all->d.removed += d->d.removed;
    if (!d->removed.len)
        return TOOL_OK;
    uint8_t *const p = realloc((void *)all->removed.value, all->removed.len + d->removed.len);
    if (!p)
        return TOOL_BAD;
    memcpy(p + all->removed.len, d->removed.value, d->removed.len);
    all->removed = (struct pici_attr){DELTA_REMOVED, p, all->removed.len + d->removed.len};
    return TOOL_OK;
}

/* Reads the descriptions of the tensors of one shard, which picitool made. */
static int gather_made(const char *path, struct report *report, uint64_t *chunks, struct listed_delta *all)
{
    struct input in;
    struct reading r;
    struct listed_delta delta = {0};
    int status = input_open(&in, path);
    if (status)
        return status;
    status = reading_open(&r, &in, 1, true);
    if (status == TOOL_OK)
        status = gather_delta(&r, &delta);
    if (status == TOOL_OK)
        status = gather(&r, delta.whole ? &delta.d : NULL, report, chunks);
    if (status == TOOL_OK && add_delta(all, &delta))
        status = tool_nomem(path, "the names of removed tensors");
    pici_delta_close(&delta.d);
    reading_close(&r);
    input_close(&in);
    return status;
}

/* Reads the descriptions of all tensors of a folder. Of a checkpoint, folder_check has been called. */
static int gather_folder(const struct folder *f, struct report *report, uint64_t *chunks, struct listed_delta *delta)
{
    const struct tool_options o = {.type = TYPE_SAFETENSORS};
    int status = TOOL_OK;
    for (size_t i = 0; status == TOOL_OK && i < (f->made ? f->list.files : f->index.shards); i++) {
        const struct folder_file *const file = f->made ? &f->list.file[i] : NULL;
        const char *const name = file ? file->name : f->index.shard[i], *type;
        const size_t before = report->tensors;
        uint64_t bytes;
        if (file && file->kind != FOLDER_SHARD)
            continue;
        char *const path = folder_path(f->path, name, file ? FOLDER_EXTENSION : "");
        status = !path  ? TOOL_BAD
                 : file ? gather_made(path, report, chunks, delta)
                        : gather_source(path, &o, report, &type, &bytes);
        for (size_t k = before; k < report->tensors; k++)
            report->tensor[k].shard = name;
        free(path);
    }
    return status;
}

static int list_folder(const char *path, const struct tool_options *o, struct inputs *inputs)
{
    struct folder f;
    struct report report = {0};
    struct listed_delta delta = {0};
    char type[64];
    uint64_t chunks = 0;
    size_t shards = 0;
    int status = folder_open(&f, path);
    if (status)
        return status;
    if (o->type || o->dtype)
        status = tool_usage(path, "is a folder: --type and --dtype are for files");
    if (status == TOOL_OK && !f.made)
        status = folder_check(&f, NULL);
    if (status == TOOL_OK)
        status = gather_folder(&f, &report, &chunks, &delta);
    for (size_t i = 0; i < f.list.files; i++)
        shards += f.list.file[i].kind == FOLDER_SHARD;
    shards += f.index.shards;
    snprintf(type, sizeof type, "%s in %zu shard%s",
             !f.made        ? "checkpoint"
             : f.list.delta ? "delta"
                            : "compressed",
             shards, shards == 1 ? "" : "s");
    report.file = path;
    report.type = type;
    for (size_t i = 0; i < f.entries; i++)
        report.file_bytes += f.entry[i].bytes;
    if (status == TOOL_OK)
        list_show(inputs, &report, true, chunks, &delta);
    free((void *)delta.removed.value);
    report_free(&report);
    folder_close(&f);
    return status;
}

static int list(const char *path, const struct tool_options *o, void *ctx)
{
    struct inputs *inputs = ctx;
    if (folder_is(path))
        return list_folder(path, o, inputs);
    struct input in;
    struct reading r = {0};
    struct report report = {0};
    struct listed_delta delta = {0};
    struct pici_attr type = {0};
    char type_text[16] = "";
    uint64_t chunks = 0;
    enum reading_kind kind = READING_OTHER;
    int status = input_open(&in, path);
    if (status)
        return status;
    report.type = type_text;
    report.file_bytes = in.bytes;
    status = o->type || o->dtype ? TOOL_OK : reading_kind(&in, path, &kind);
    const bool other = kind == READING_OTHER && (o->type || o->dtype || tool_type_of(path) != TYPE_RAW);
    if (status == TOOL_OK && other)
        status = gather_source(path, o, &report, &report.type, &report.file_bytes);
    if (status == TOOL_OK && !other) {
        status = reading_open(&r, &in, 1, true);
        if (status == TOOL_OK)
            status = reading_attr(&r, PICI_FILE, ATTR_TYPE, &type);
        if (status == TOOL_OK && type.key && type.len < sizeof type_text)
            memcpy(type_text, type.value, type.len);
        if (status == TOOL_OK)
            status = gather_delta(&r, &delta);
        if (status == TOOL_OK)
            status = gather(&r, delta.whole ? &delta.d : NULL, &report, &chunks);
    }
    if (status == TOOL_OK) {
        report.file = in.name;
        list_show(inputs, &report, other, chunks, &delta);
    }
    pici_delta_close(&delta.d);
    report_free(&report);
    reading_close(&r);
    input_close(&in);
    return status;
}

int verb_list(const struct tool_options *o)
{
    int status = results_check(o, "list");
    return status ? status : inputs_print(o, list);
}
