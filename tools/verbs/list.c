/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "folder/folder.h"
#include "input/attrs.h"
#include "input/looks.h"
#include "input/reading.h"
#include "input/tensors.h"
#include "input/view_text.h"
#include "output/result.h"
#include "parse/npy.h"
#include "show/inputs.h"
#include "show/report.h"
#include "term.h"
#include "tool.h"

enum { TYPE_TEXT = 16 }; /* the most characters shown, and one */

static uint64_t capped_sum(uint64_t a, uint64_t b)
{
    return a <= UINT64_MAX - b ? a + b : UINT64_MAX;
}

/* What list shows of a delta. */
struct listed_delta {
    bool is, whole; /* whole: d and removed are set; not for a stream */
    struct delta d;
    struct pici_attr removed;
};

/* What list shows of a file or a folder. */
struct listing {
    struct report report; /* its sizes are elements and dense bytes only */
    struct listed_delta delta;
    uint64_t chunks;
    char type[64]; /* of the original, or of a folder */
    bool other;    /* not a .pici file */
};

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

/* Keeps what the original calls the type, where elements do not say it: there may be millions of tensors. */
static bool keep_meaning(struct measured *m, const char *text, size_t len)
{
    if (pici_npy_meaning_of(text, len, m->dtype) == NPY_NUMBER)
        return true;
    m->dtype_text = strndup(text, len);
    return m->dtype_text != NULL;
}

static void count_stored(struct listing *l, struct measured *m, const struct pici_tensor_info *t)
{
    m->stored = t->stored_bytes;
    m->chunks = t->chunks;
    l->chunks += t->chunks;
    l->report.stored += m->stored;
}

/* Adds a view of tensor t of a .pici file; whole: as the row that stands for t. */
static int add_view(struct listing *l, struct reading *r, const struct pici_tensor_info *t, const struct pici_view *v,
                    bool unnamed, bool whole)
{
    char text[VIEW_TEXT];
    const struct sizes was = l->report.total;
    struct measured *m = add(&l->report, v->name, v->name_len, v->dtype, v->shape, v->rank, v->count);
    if (!m || !keep_meaning(m, v->word, strlen(v->word)))
        return tool_nomem(r->in->name, "the list of tensors");
    view_text_of(text, sizeof text, v, t, unnamed);
    if (text[0] && !(m->view = strdup(text)))
        return tool_nomem(r->in->name, "the list of tensors");
    if (whole) {
        count_stored(l, m, t);
        return reading_attr_is(r, t->index, ATTR_ENDIAN, "big", &m->big_endian);
    }
    l->report.total = was; /* which has the elements of the storage */
    return TOOL_OK;
}

/* Adds a tensor of a .pici file. of: the tensor itself, or that of a small delta which leads to it. */
static int add_tensor(struct listing *l, struct reading *r, const struct pici_tensor_info *t,
                      const struct pici_tensor_info *of)
{
    struct pici_attr type = {0};
    struct measured *m = add(&l->report, t->name, t->name_len, of->dtype, of->shape, of->rank, of->count);
    if (!m)
        return tool_nomem(r->in->name, "the list of tensors");
    count_stored(l, m, t);
    TRY(reading_attr_is(r, t->index, ATTR_ENDIAN, "big", &m->big_endian));
    TRY(reading_attr_is(r, t->index, ATTR_ORDER, "F", &m->fortran));
    TRY(reading_attr(r, t->index, ATTR_DTYPE, &type));
    if (type.key && !keep_meaning(m, type.value, type.len))
        return tool_nomem(r->in->name, "the list of tensors");
    TRY(reading_attr(r, t->index, ATTR_VIEW, &type));
    if (type.key && !(m->view = strndup(type.value, type.len < VIEW_TEXT ? type.len : VIEW_TEXT)))
        return tool_nomem(r->in->name, "the list of tensors");
    return TOOL_OK;
}

/* Adds a tensor of a .pici file and its views. A storage without a name that
 * the first of them is all of gets its row, and bytes between tensors get none. */
static int add_stored(struct listing *l, struct reading *r, const struct pici_tensor_info *t,
                      const struct pici_tensor_info *of, struct reading_views *views)
{
    struct pici_view v;
    bool row = false;
    TRY(reading_views(r, t, views));
    for (uint64_t i = 0; i < views->n; i++) {
        TRY(reading_view(r, views->first + i, &v));
        const bool whole = views->unnamed && i == 0 && v.stored_count == t->count && v.count == t->count;
        if (i == 0 && !whole)
            TRY(add_tensor(l, r, t, of));
        TRY(add_view(l, r, t, &v, views->unnamed, whole));
        row = true;
    }
    return row || views->unnamed ? TOOL_OK : add_tensor(l, r, t, of);
}

/* Reads the index, or all of a stream. delta: the tensors that small deltas lead to are shown; or NULL. */
static int gather(struct listing *l, struct reading *r, const struct delta *delta)
{
    struct reading_views views = {0};
    for (;;) {
        struct pici_tensor_info t;
        bool more;
        TRY(reading_next(r, &t, &more));
        if (!more)
            return TOOL_OK;
        struct pici_tensor_info of = t;
        if (delta && t.index < delta->tensors) {
            const enum pici_status s = pici_delta_tensor(delta, r->reader, t.index, &of);
            if (s)
                return reading_failed(r, s);
        }
        TRY(add_stored(l, r, &t, &of, &views));
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

static int add_tensors(struct report *report, struct tensors *all)
{
    TRY(gather_torch(&all->source.archive, report));
    for (size_t i = 0; i < all->n; i++) {
        const struct tensor_at *t = &all->tensor[i];
        if (t->filler || is_listed(&all->source.archive, i))
            continue;
        struct measured *m = add(report, t->name, t->name_len, t->dtype, t->shape, t->rank, t->count);
        if (!m || !keep_meaning(m, t->dtype_text, strlen(t->dtype_text)))
            return tool_nomem(all->in.name, "the list of tensors");
        m->big_endian = t->big_endian;
        m->fortran = t->fortran;
    }
    return TOOL_OK;
}

/* Reads the header of a file that is not a .pici file. */
static int gather_source(struct report *report, const char *path, const struct tool_options *o)
{
    struct tensors all;
    TRY(tensors_open(&all, path, o));
    report->type = tool_type_name(all.source.type);
    report->file_bytes = all.in.bytes;
    const int status = add_tensors(report, &all);
    tensors_close(&all);
    return status;
}

static int gather_delta(struct reading *r, struct listed_delta *d)
{
    TRY(reading_is_delta(r, &d->is));
    if (!d->is || !r->in->regular)
        return TOOL_OK;
    TRY(reading_delta(r, &d->d));
    d->whole = true;
    return reading_attr(r, PICI_FILE, DELTA_REMOVED, &d->removed);
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
        putchar(' ');
        term_text(stdout, name, len);
    }
    puts("");
}

static void list_json(struct jsonout *j, const struct listing *l)
{
    const struct report *const r = &l->report;
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
    jsonout_u64(j, "chunks", l->chunks);
    jsonout_end(j, '}');
    if (l->delta.is)
        list_delta_json(j, &l->delta);
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

static void list_print(const struct listing *l)
{
    const struct report *const r = &l->report;
    char bytes[TERM_TEXT];
    term_puts(stdout, r->file);
    if (l->other) {
        fputs(": ", stdout);
        term_puts(stdout, r->type);
    } else {
        printf(l->delta.is ? ": delta" : ": pici");
    }
    if (*r->type && !l->other) {
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
    list_row(r->total.elements, r->total.dense_bytes, r->stored, l->chunks);
    if (l->delta.whole)
        list_delta(&l->delta);
}

/* Prints what was found. */
static void list_show(struct inputs *inputs, const struct listing *l)
{
    if (inputs->o->json) {
        list_json(&inputs->json, l);
    } else {
        inputs_next(inputs);
        list_print(l);
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
static int gather_opened(struct listing *l, struct input *in, struct reading *r, struct listed_delta *delta)
{
    TRY(reading_open(r, in, 1, true));
    TRY(gather_delta(r, delta));
    TRY(gather(l, r, delta->whole ? &delta->d : NULL));
    return add_delta(&l->delta, delta) ? tool_nomem(in->name, "the names of removed tensors") : TOOL_OK;
}

static int gather_made(struct listing *l, const char *path)
{
    struct input in;
    struct reading r;
    struct listed_delta delta = {0};
    TRY(input_open(&in, path));
    const int status = gather_opened(l, &in, &r, &delta);
    pici_delta_close(&delta.d);
    reading_close(&r);
    input_close(&in);
    return status;
}

/* Reads the descriptions of all tensors of a folder. Of a checkpoint, folder_check has been called. */
static int gather_folder(struct listing *l, const struct folder *f)
{
    for (size_t i = 0; i < (f->made ? f->list.files : f->entries); i++) {
        const struct folder_file *const file = f->made ? &f->list.file[i] : NULL;
        const char *const name = file ? file->name : f->entry[i].name;
        const size_t before = l->report.tensors;
        struct tool_options o = {.type = file ? TYPE_UNSET : folder_part_type(&f->entry[i])};
        o.dtype = o.type == TYPE_RAW ? PICI_U8 : 0;
        if (file ? file->kind != FOLDER_SHARD : o.type == TYPE_UNSET)
            continue;
        char *const path = folder_path(f->path, name, file ? FOLDER_EXTENSION : "");
        const int status = !path ? TOOL_BAD : file ? gather_made(l, path) : gather_source(&l->report, path, &o);
        free(path);
        TRY(status);
        for (size_t k = before; k < l->report.tensors; k++)
            l->report.tensor[k].shard = name;
    }
    return TOOL_OK;
}

static int list_opened(struct listing *l, struct folder *f, const struct tool_options *o)
{
    size_t shards = 0;
    if (o->type || o->dtype)
        return tool_usage(f->path, "is a folder: --type and --dtype are for files");
    if (!f->made)
        TRY(folder_check(f, NULL, NULL, NULL));
    TRY(gather_folder(l, f));
    for (size_t i = 0; i < f->list.files; i++)
        shards += f->list.file[i].kind == FOLDER_SHARD;
    for (size_t i = 0; !f->made && i < f->entries; i++)
        shards += folder_part_type(&f->entry[i]) != TYPE_UNSET;
    snprintf(l->type, sizeof l->type, "%s in %zu shard%s",
             !f->made        ? "checkpoint"
             : f->list.delta ? "delta"
                             : "compressed",
             shards, shards == 1 ? "" : "s");
    l->report.file = f->path;
    l->report.type = l->type;
    l->report.file_bytes = 0;
    for (size_t i = 0; i < f->entries; i++)
        l->report.file_bytes += f->entry[i].bytes;
    return TOOL_OK;
}

static int list_folder(const char *path, const struct tool_options *o, struct inputs *inputs)
{
    struct folder f;
    struct listing l = {.other = true};
    TRY(folder_open(&f, path));
    const int status = list_opened(&l, &f, o);
    if (!status)
        list_show(inputs, &l);
    free((void *)l.delta.removed.value);
    report_free(&l.report);
    folder_close(&f);
    return status;
}

static int list_file(struct listing *l, struct input *in, struct reading *r, const char *path,
                     const struct tool_options *o)
{
    enum reading_kind kind = READING_OTHER;
    struct pici_attr type;
    l->report.file = in->name;
    l->report.file_bytes = in->bytes;
    l->report.type = l->type;
    if (!o->type && !o->dtype)
        TRY(reading_kind(in, path, &kind));
    enum tool_type looks = TYPE_RAW;
    if (kind == READING_OTHER)
        TRY(looks_type(in, path, o, &looks));
    l->other = kind == READING_OTHER && (o->type || o->dtype || looks != TYPE_RAW);
    if (l->other)
        return gather_source(&l->report, path, o);
    TRY(reading_open(r, in, 1, true));
    TRY(reading_attr(r, PICI_FILE, ATTR_TYPE, &type));
    if (type.key && type.len < TYPE_TEXT)
        memcpy(l->type, type.value, type.len);
    TRY(gather_delta(r, &l->delta));
    return gather(l, r, l->delta.whole ? &l->delta.d : NULL);
}

static int list(const char *path, const struct tool_options *o, void *ctx)
{
    if (folder_is(path))
        return list_folder(path, o, ctx);
    struct input in;
    struct reading r = {0};
    struct listing l = {.other = false};
    TRY(input_open(&in, path));
    const int status = list_file(&l, &in, &r, path, o);
    if (!status)
        list_show(ctx, &l);
    pici_delta_close(&l.delta.d);
    report_free(&l.report);
    reading_close(&r);
    input_close(&in);
    return status;
}

int verb_list(const struct tool_options *o)
{
    TRY(results_check(o, "list"));
    return inputs_print(o, list);
}
