/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A .pt file as parts, and as views of its storages. */
#include "input/archive_cut.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "input/view_text.h"
#include "parse/pickle.h"
#include "term.h"
#include "view_format.h"

/* The storages of a .pt while it is opened: entries PREFIX/data/KEY, by name. */
struct storages {
    const struct zip_entry **entry; /* [n] */
    uint32_t *part;                 /* [n] of the archive, by number of the entry */
    size_t n;
    size_t prefix_len; /* of the entry PREFIX/data.pkl */
};

/* Whether an entry is a storage as torch.save names them: PREFIX/data/NUMBER. */
static bool is_storage(const struct zip_entry *e)
{
    const char *number = strrchr(e->name, '/');
    return number && number - e->name > 5 && memcmp(number - 5, "/data", 5) == 0 && number[1] &&
           strspn(number + 1, "0123456789") == strlen(number + 1);
}

/* The entry PREFIX/name, whose PREFIX has no slash. NULL: there is none. */
static const struct zip_entry *find_entry(const struct zip *z, const char *name)
{
    const size_t len = strlen(name);
    for (size_t i = 0; i < z->count; i++) {
        const struct zip_entry *e = &z->entries[i];
        const size_t prefix = e->name_len > len ? e->name_len - len : 0;
        if (prefix && e->name[prefix - 1] == '/' && !memchr(e->name, '/', prefix - 1) &&
            memcmp(e->name + prefix, name, len) == 0)
            return e;
    }
    return NULL;
}

static int by_entry_name(const void *a, const void *b)
{
    return strcmp((*(const struct zip_entry *const *)a)->name, (*(const struct zip_entry *const *)b)->name);
}

/* The part of the storage of a key; ARCHIVE_NONE if there is none. */
static uint32_t part_of_key(const struct archive *a, const struct storages *s, const char *prefix,
                            const struct torch_tensor *t)
{
    char name[512];
    struct zip_entry wanted = {.name = name};
    const struct zip_entry *key = &wanted;
    const size_t len = s->prefix_len + 5 + t->storage_len;
    if (len >= sizeof name || !s->n)
        return ARCHIVE_NONE;
    memcpy(name, prefix, s->prefix_len);
    memcpy(name + s->prefix_len, "data/", 5);
    memcpy(name + s->prefix_len + 5, t->storage, t->storage_len);
    name[len] = 0;
    const struct zip_entry *const *found = bsearch(&key, s->entry, s->n, sizeof *s->entry, by_entry_name);
    return found ? s->part[*found - a->zip.entries] : ARCHIVE_NONE;
}

/* Whether a tensor is all of a storage of so many bytes, in its order. */
static bool is_whole(const struct torch_tensor *t, uint64_t bytes)
{
    unsigned order[TORCH_MAX_RANK];
    return bytes == t->items * pici_dtype_width(t->dtype) * t->item_elements && torch_is_dense(t, order);
}

/* Whether the first index of a tensor that is all of its storage is the fastest, the last the slowest. */
static bool is_reversed(const struct torch_tensor *t)
{
    unsigned order[TORCH_MAX_RANK];
    bool reversed = t->rank > 1 && torch_is_dense(t, order);
    for (unsigned i = 0; reversed && i < t->rank; i++)
        reversed = order[i] == t->rank - 1 - i;
    return reversed;
}

/* How well a tensor describes a storage: 2, by its shape; 1, by its shape with the first index the fastest; 0: the
 * storage has another shape, or other numbers. */
static int rank_of(const struct torch_tensor *t, uint64_t bytes)
{
    const bool as_is =
        is_whole(t, bytes) && !t->conjugate && !t->negative && t->rank + (t->item_elements > 1) <= PICI_RANK_MAX;
    return !as_is ? 0 : t->row_major ? 2 : is_reversed(t);
}

/* Sets which tensor each storage is called after: the first of those that describe it best. */
static bool match(struct archive *a, const struct storages *s, const char *prefix)
{
    char name[64];
    for (size_t i = 0; i < a->torch.count; i++) {
        const struct torch_tensor *t = &a->torch.tensors[i];
        const uint32_t number = a->part_of[i] = part_of_key(a, s, prefix, t);
        if (number == ARCHIVE_NONE)
            continue;
        struct archive_part *p = &a->part[number];
        const uint64_t item = pici_dtype_width(t->dtype) * t->item_elements;
        if (t->extent > p->bytes / item)
            return pici_parse_fail(&a->err, p->at, "tensor '%s' goes beyond its storage",
                                   pici_parse_printable(name, sizeof name, t->name, t->name_len));
        if (p->tensor != ARCHIVE_NONE && rank_of(t, p->bytes) <= rank_of(&a->torch.tensors[p->tensor], p->bytes))
            continue;
        p->tensor = (uint32_t)i;
    }
    for (size_t i = 0; i < a->parts; i++) {
        struct archive_part *p = &a->part[i];
        const struct torch_tensor *t = p->tensor == ARCHIVE_NONE ? NULL : &a->torch.tensors[p->tensor];
        p->whole = t && is_whole(t, p->bytes);
        p->unnamed = p->unnamed || (t && !rank_of(t, p->bytes));
        p->fortran = t && rank_of(t, p->bytes) == 1;
    }
    return true;
}

static void forget_names(struct archive *a)
{
    torch_free(&a->torch);
    for (size_t i = 0; i < a->parts; i++) {
        a->part[i].tensor = ARCHIVE_NONE;
        a->part[i].unnamed = a->part[i].kind == ARCHIVE_FILLER;
        a->part[i].whole = a->part[i].fortran = false;
    }
}

/* ---- names */

/* Gives each tensor but the first of those of one name another: the name, a tilde and the least number from 2 on that
 * makes a new one. names: [n] all, of tensors and of the storages that are called after their entries, sorted. */
static int rename_tensors(struct archive *a, struct archive_name *names, size_t n)
{
    size_t room = 1, at = 0, twice = 0;
    char shown[64], other[64];
    for (size_t i = 1; i < n; i++)
        if (names[i].number < a->torch.count && archive_same_name(&names[i], &names[i - 1]) == 0)
            room += names[i].len + ARCHIVE_NUMBER_ROOM;
    if (room == 1)
        return TOOL_OK;
    a->renamed = malloc(room);
    if (!a->renamed)
        return tool_nomem(a->in->name, "the names of tensors");
    const struct archive_name *of = &names[0];
    uint64_t k = 2;
    for (size_t i = 1; i < n; i++) {
        const bool same = archive_same_name(&names[i], of) == 0;
        if (!same) {
            of = &names[i];
            k = 2;
        }
        if (!same || names[i].number >= a->torch.count)
            continue;
        struct torch_tensor *t = &a->torch.tensors[names[i].number];
        struct archive_name key = {a->renamed + at, 0, 0};
        bool taken;
        memcpy(a->renamed + at, of->p, of->len);
        do {
            key.len = of->len + (size_t)snprintf(a->renamed + at + of->len, ARCHIVE_NUMBER_ROOM, "~%" PRIu64, k++);
            taken = bsearch(&key, names, n, sizeof *names, archive_same_name) != NULL;
        } while (taken);
        if (key.len > PICI_NAME_MAX)
            return tool_bad(a->in->name, "two tensors have one name, of %zu bytes, which leaves no room for a suffix",
                            of->len);
        if (!twice++)
            snprintf(shown, sizeof shown, "%s", pici_parse_printable(other, sizeof other, key.p, key.len));
        t->name = key.p;
        t->name_len = key.len;
        at += key.len + 1;
    }
    tool_warn(a->in->name, "%zu tensor%s the name of another and get%s another, the first '%s'", twice,
              twice == 1 ? " has" : "s have", twice == 1 ? "s" : "", shown);
    return TOOL_OK;
}

/* Makes the names of all tensors, and of the storages that are called after their entries, differ. */
static int settle_names(struct archive *a)
{
    size_t n = a->torch.count;
    struct archive_name *names = malloc((n + a->parts + 1) * sizeof *names);
    if (!names)
        return tool_nomem(a->in->name, "the names of tensors");
    for (size_t i = 0; i < n; i++)
        names[i] = (struct archive_name){a->torch.tensors[i].name, a->torch.tensors[i].name_len, i};
    for (size_t i = 0; i < a->parts; i++) {
        const struct archive_part *p = &a->part[i];
        if (p->unnamed || p->tensor != ARCHIVE_NONE)
            continue;
        names[n].p = archive_name(a, p, &names[n].len);
        names[n].number = SIZE_MAX;
        n++;
    }
    if (n)
        qsort(names, n, sizeof *names, archive_by_name);
    const int status = n ? rename_tensors(a, names, n) : TOOL_OK;
    free(names);
    return status;
}

/* ---- views */

struct view_of {
    uint32_t part, tensor;
};

static int by_part(const void *a, const void *b)
{
    const struct view_of *x = a, *y = b;
    return x->part != y->part ? (x->part > y->part) - (x->part < y->part)
                              : (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static unsigned view_rank(const struct torch_tensor *t)
{
    return t->rank + (t->item_elements > 1);
}

static size_t view_bytes(const struct torch_tensor *t)
{
    return PICI_VIEW_FIXED + 16 * (size_t)view_rank(t) + ((t->name_len + 1 + strlen(t->source_dtype)) | 7) + 1;
}

/* Writes a view as formats/file.md has it. */
static uint8_t *put_view(uint8_t *p, const struct torch_tensor *t, uint32_t part)
{
    const unsigned rank = view_rank(t);
    const size_t word = strlen(t->source_dtype);
    uint8_t *const end = p + view_bytes(t);
    memset(p, 0, (size_t)(end - p));
    store_le64(p + PICI_VIEW_TENSOR, part);
    store_le64(p + PICI_VIEW_OFFSET, t->items ? t->offset * t->item_elements : 0);
    p[PICI_VIEW_DTYPE] = (uint8_t)t->dtype;
    p[PICI_VIEW_RANK] = (uint8_t)rank;
    p[PICI_VIEW_FLAGS] = (uint8_t)((t->conjugate ? PICI_VIEW_CONJUGATE : 0) | (t->negative ? PICI_VIEW_NEGATIVE : 0));
    p[PICI_VIEW_WORD] = (uint8_t)word;
    store_le32(p + PICI_VIEW_NAME, (uint32_t)t->name_len);
    p += PICI_VIEW_FIXED;
    for (unsigned i = 0; i < t->rank; i++) {
        store_le64(p + 8 * (size_t)i, t->shape[i]);
        store_le64(p + 8 * ((size_t)rank + i), t->items && t->shape[i] > 1 ? t->strides[i] * t->item_elements : 0);
    }
    if (rank > t->rank) {
        store_le64(p + 8 * (size_t)t->rank, t->item_elements);
        store_le64(p + 8 * ((size_t)rank + t->rank), 1);
    }
    p += 16 * (size_t)rank;
    memcpy(p, t->name, t->name_len);
    memcpy(p + t->name_len + 1, t->source_dtype, word);
    return end;
}

/* Makes the table of tensors that are not a stored tensor themselves. */
static int make_views(struct archive *a)
{
    struct view_of *views = malloc((a->torch.count + 1) * sizeof *views);
    size_t n = 0, bytes = PICI_VIEWS_HEADER;
    if (!views)
        return tool_nomem(a->in->name, "the list of views");
    for (size_t i = 0; i < a->torch.count; i++) {
        const struct torch_tensor *t = &a->torch.tensors[i];
        const uint32_t part = a->part_of[i];
        if (part == ARCHIVE_NONE || (a->part[part].tensor == i && !a->part[part].unnamed))
            continue;
        if (view_rank(t) > PICI_RANK_MAX) {
            char name[64];
            tool_warn(a->in->name, "tensor '%s' has more than %u dimensions: its elements have no name",
                      pici_parse_printable(name, sizeof name, t->name, t->name_len), PICI_RANK_MAX);
            continue;
        }
        views[n++] = (struct view_of){part, (uint32_t)i};
        bytes += view_bytes(t);
    }
    if (n) {
        qsort(views, n, sizeof *views, by_part);
        a->views = malloc(bytes);
    }
    uint8_t *p = a->views ? a->views + PICI_VIEWS_HEADER : NULL;
    if (p)
        store_le64(a->views, n);
    for (size_t i = 0; p && i < n; i++)
        p = put_view(p, &a->torch.tensors[views[i].tensor], views[i].part);
    a->views_len = p ? bytes : 0;
    free(views);
    return p || !n ? TOOL_OK : tool_nomem(a->in->name, "the list of views");
}

/* Reads a whole entry. Nothing checks the CRC-32 of one that is not deflated. */
static bool read_entry(struct archive *a, const struct zip_entry *e, void *to)
{
    if (e->stored)
        return !e->bytes || !input_read_at(a->in, to, (size_t)e->bytes, e->begin) ||
               pici_parse_fail(&a->err, e->begin, "entry '%s' cannot be read", e->name);
    if (!unzip_open(&a->unzip, e, input_read_at, a->in, &a->err))
        return false;
    const bool ok = unzip_take(&a->unzip, to, (size_t)e->bytes);
    unzip_close(&a->unzip);
    return ok;
}

/* Reads the entry data.pkl into new memory. False, with a->err set: there is none that can be read. */
static bool read_pickle(struct archive *a, const struct zip_entry *e)
{
    if (!e)
        return pici_parse_fail(&a->err, 0, "it has no entry data.pkl");
    if (e->bytes > PICKLE_MAX_BYTES)
        return pici_parse_fail(&a->err, e->begin, "the pickle has %" PRIu64 " bytes, too many", e->bytes);
    a->pickle = malloc((size_t)e->bytes + 1);
    if (!a->pickle)
        return pici_parse_fail(&a->err, e->begin, "out of memory for the pickle");
    if (!read_entry(a, e, a->pickle))
        return false;
    return torch_parse(&a->torch, a->pickle, (size_t)e->bytes, e->begin, &a->err);
}

static bool read_byte_order(struct archive *a)
{
    const struct zip_entry *e = find_entry(&a->zip, "byteorder");
    char word[4] = "";
    if (e && e->bytes == 3 && !read_entry(a, e, word))
        return false;
    a->big_endian = strcmp(word, "big") == 0;
    return true;
}

/* Reads the pickle and names the storages by it. */
static int name_storages(struct archive *a, struct storages *s)
{
    const struct zip_entry *e = find_entry(&a->zip, "data.pkl");
    bool ok = read_pickle(a, e) && read_byte_order(a);
    if (ok) {
        s->prefix_len = e->name_len - strlen("data.pkl");
        a->part_of = malloc((a->torch.count + 1) * sizeof *a->part_of);
        if (!a->part_of)
            return tool_nomem(a->in->name, "the names of tensors");
        if (s->n)
            qsort(s->entry, s->n, sizeof *s->entry, by_entry_name);
        ok = match(a, s, e->name);
    }
    if (!ok) {
        forget_names(a);
        tool_warn(a->in->name, "offset %" PRIu64 ": %s; storages are named after their entries", a->err.offset,
                  a->err.what);
    }
    TRY(settle_names(a));
    TRY(make_views(a));
    return archive_number_unnamed(a);
}

/* Takes the storage that entry i is. */
static int take_storage(struct cut *c, struct storages *s, uint32_t i)
{
    struct archive *const a = c->a;
    const struct zip_entry *e = &a->zip.entries[i];
    bool is = e->stored || (e->method == ZIP_DEFLATED && unzip_inflates());
    uint32_t crc = 0;
    int level = 0;
    if (!is && e->method == ZIP_DEFLATED)
        pici_parse_fail(&a->err, 0, "this build has no zlib");
    else if (!is)
        pici_parse_fail(&a->err, 0, "method %u of compression is not read", e->method);
    TRY(cut_gap(c, e->begin));
    TRY(cut_deflated(c, e, &level, &crc, &is));
    if (!is)
        return cut_kept(c, i);
    s->entry[s->n++] = e;
    s->part[i] = (uint32_t)a->parts;
    c->done = e->end;
    return cut_part(c, (struct archive_part){.at = e->begin,
                                             .bytes = e->bytes,
                                             .number = i,
                                             .tensor = ARCHIVE_NONE,
                                             .kind = ARCHIVE_STORAGE,
                                             .level = (uint8_t)level,
                                             .crc = crc});
}

static int take_storages(struct cut *c, struct storages *s)
{
    struct archive *const a = c->a;
    s->entry = malloc((a->zip.count + 1) * sizeof *s->entry);
    s->part = malloc((a->zip.count + 1) * sizeof *s->part);
    if (!s->entry || !s->part)
        return tool_nomem(a->in->name, "the list of storages");
    for (size_t i = 0; i < a->zip.count; i++)
        if (is_storage(&a->zip.entries[i]))
            TRY(take_storage(c, s, (uint32_t)i));
    TRY(cut_gap(c, a->in->bytes));
    cut_tell_kept(c);
    return name_storages(a, s);
}

int archive_open_pt(struct archive *a, struct input *in, const struct limit *exact)
{
    struct cut c = {.a = a, .exact = exact};
    struct storages s = {0};
    TRY(cut_open(&c, in, TYPE_PT));
    const int status = take_storages(&c, &s);
    free(s.entry);
    free(s.part);
    if (status)
        archive_close(a);
    return status;
}

const char *archive_view(struct archive *a, size_t i, char *buf, size_t cap)
{
    const struct torch_tensor *t = &a->torch.tensors[i];
    const struct archive_part *p = a->part_of[i] == ARCHIVE_NONE ? NULL : &a->part[a->part_of[i]];
    const bool part = p && p->tensor != ARCHIVE_NONE && (p->tensor != i || !p->whole);
    const struct torch_tensor *after = part && p->tensor != i ? &a->torch.tensors[p->tensor] : NULL;
    return view_text(buf, cap,
                     &(struct view_words){.rank = t->rank,
                                          .strides = t->row_major ? NULL : t->strides,
                                          .is_part = part,
                                          .offset = t->offset,
                                          .of = after ? after->name : NULL,
                                          .of_len = after ? after->name_len : 0,
                                          .conjugate = t->conjugate,
                                          .negative = t->negative});
}
