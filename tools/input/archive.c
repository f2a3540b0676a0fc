/* SPDX-License-Identifier: BSD-3-Clause */
#include "input/archive.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "input/looks.h"
#include "parse/pickle.h"
#include "term.h"

enum {
    SCRATCH = 1 << 16,
    NUMBER_ROOM = 24,
    SPARE_LEAST = 128 << 20, /* bytes that may be deflated more than once, to find levels; */
    SPARE_FACTOR = 32        /* and so many for each byte of the file */
};

/* What has been taken of the file while it is cut into parts. */
struct cut {
    struct archive *a;
    uint64_t done;    /* bytes of the file in parts and head */
    uint64_t pending; /* of the head, since the last part */
    uint32_t fillers;
};

static int refuse(const struct archive *a)
{
    return tool_bad_at(a->in->name, a->err.offset, "%s", a->err.what);
}

static int read_at(struct archive *a, void *buf, size_t bytes, uint64_t at)
{
    const int err = bytes ? input_read_at(a->in, buf, bytes, at) : 0;
    return err ? tool_bad_at(a->in->name, at, "cannot be read") : TOOL_OK;
}

/* Room for so many more bytes of head; the end of the head, or NULL. */
static uint8_t *more_head(struct archive *a, size_t bytes)
{
    if (a->head_room - a->head_len < bytes) {
        const size_t room = a->head_len + bytes + a->head_room / 2 + SCRATCH;
        uint8_t *bigger = realloc(a->head, room);
        if (!bigger)
            return NULL;
        a->head = bigger;
        a->head_room = room;
    }
    return a->head + a->head_len;
}

static int add_part(struct cut *c, struct archive_part part)
{
    struct archive *a = c->a;
    if (a->parts == a->room) {
        const size_t room = a->room + a->room / 2 + 16;
        struct archive_part *bigger = realloc(a->part, room * sizeof *bigger);
        if (!bigger)
            return tool_nomem(a->in->name, "the list of tensors");
        a->part = bigger;
        a->room = room;
    }
    part.before = c->pending;
    a->part[a->parts++] = part;
    c->pending = 0;
    return TOOL_OK;
}

/* Takes the bytes from done up to an offset, which are in no tensor. */
static int take_gap(struct cut *c, uint64_t to)
{
    struct archive *a = c->a;
    const uint64_t bytes = to - c->done;
    if (bytes > ARCHIVE_GAP_MOST || bytes > ARCHIVE_HEAD_MOST - a->head_len) {
        TRY(add_part(c, (struct archive_part){.at = c->done,
                                              .bytes = bytes,
                                              .kind = ARCHIVE_FILLER,
                                              .number = c->fillers++,
                                              .tensor = ARCHIVE_NONE}));
    } else if (bytes) {
        uint8_t *p = more_head(a, (size_t)bytes);
        if (!p)
            return tool_nomem(a->in->name, "the bytes around the tensors");
        TRY(read_at(a, p, (size_t)bytes, c->done));
        a->head_len += (size_t)bytes;
        c->pending += bytes;
    }
    c->done = to;
    return TOOL_OK;
}

/* Finds a name for fillers that begins no other name: "zip", and as many + as it takes. */
static int name_fillers(struct archive *a)
{
    static const char stem[] = "zip";
    size_t plus = 0;
    for (size_t i = 0; i < a->parts; i++) {
        size_t len;
        const char *name = a->part[i].kind == ARCHIVE_FILLER ? "" : archive_name(a, &a->part[i], &len);
        const size_t run = strncmp(name, stem, 3) == 0 ? strspn(name + 3, "+") + 1 : 0;
        plus = run > plus ? run : plus;
    }
    a->filler_len = 3 + plus;
    a->filler = malloc(a->filler_len + NUMBER_ROOM);
    if (!a->filler)
        return tool_nomem(a->in->name, "the names of tensors");
    memset(a->filler, '+', a->filler_len);
    memcpy(a->filler, stem, 3);
    return TOOL_OK;
}

const char *archive_name(struct archive *a, const struct archive_part *p, size_t *len)
{
    if (p->kind == ARCHIVE_FILLER) {
        a->filler[a->filler_len] = 0;
        if (p->number)
            snprintf(a->filler + a->filler_len, NUMBER_ROOM, ".%" PRIu32, p->number);
        *len = strlen(a->filler);
        return a->filler;
    }
    if (p->tensor != ARCHIVE_NONE) {
        *len = a->torch.tensors[p->tensor].name_len;
        return a->torch.tensors[p->tensor].name;
    }
    *len = a->zip.entries[p->number].name_len;
    return a->zip.entries[p->number].name;
}

struct name {
    const char *p;
    size_t len;
};

static int by_name(const void *a, const void *b)
{
    const struct name *x = a, *y = b;
    const int order = memcmp(x->p, y->p, x->len < y->len ? x->len : y->len);
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

/* Whether two parts other than fillers have one name. */
static int find_duplicates(struct archive *a, bool *there)
{
    struct name *names = malloc((a->parts + 1) * sizeof *names);
    size_t n = 0;
    *there = false;
    if (!names)
        return tool_nomem(a->in->name, "the names of tensors");
    for (size_t i = 0; i < a->parts; i++)
        if (a->part[i].kind != ARCHIVE_FILLER) {
            names[n].p = archive_name(a, &a->part[i], &names[n].len);
            n++;
        }
    qsort(names, n, sizeof *names, by_name);
    for (size_t i = 1; i < n && !*there; i++)
        *there = by_name(&names[i - 1], &names[i]) == 0;
    free(names);
    return TOOL_OK;
}

static int open_zip(struct archive *a, struct input *in, enum tool_type type)
{
    char looks[LOOKS_TEXT];
    *a = (struct archive){.in = in};
    if (!in->regular)
        return tool_usage(in->name, "is empty or cannot be read at random: a zip file cannot come through a pipe");
    if (zip_open(&a->zip, input_read_at, in, in->bytes, &a->err))
        return TOOL_OK;
    return tool_bad_at(in->name, a->err.offset, "%s%s", a->err.what, looks_after(in, NULL, 0, type, looks));
}

static void stop_unzipping(struct archive *a)
{
    if (a->unzipping)
        unzip_close(&a->unzip);
    a->unzipping = false;
}

/* Takes bytes of the entry that are not the part's. */
static int take_over(struct archive *a, uint64_t bytes)
{
    uint8_t scratch[4096];
    bool ok = true;
    for (size_t n; ok && bytes; bytes -= n) {
        n = bytes < sizeof scratch ? (size_t)bytes : sizeof scratch;
        ok = unzip_take(&a->unzip, scratch, n);
    }
    return ok ? TOOL_OK : refuse(a);
}

/* ---- .npz */

/* The arrays of a .npz while it is opened. */
struct arrays {
    struct cut cut;
    const struct limit *exact;
    struct unzip_effort effort;
    uint64_t inflated;      /* bytes of all deflated entries so far */
    uint8_t *header;        /* [NPY_MAX_HEADER_BYTES] */
    size_t kept;            /* entries */
    uint32_t first;         /* of those */
    struct parse_error why; /* it was kept */
};

static bool ends_in_npy(const struct zip_entry *e)
{
    return e->name_len > 4 && memcmp(e->name + e->name_len - 4, ".npy", 4) == 0;
}

/* Reads the .npy header of an entry. *is: it has one, and what follows it can be read as an array; else err says why
 * not. */
static int read_header(struct arrays *s, const struct zip_entry *e, struct npy *npy, bool *is)
{
    struct archive *a = s->cut.a;
    uint64_t need = NPY_PREFIX_BYTES;
    *is = false;
    if (!ends_in_npy(e) || e->bytes < need)
        return pici_parse_fail(&a->err, 0, "it is no .npy file"), TOOL_OK;
    if (e->method != ZIP_STORED && e->method != ZIP_DEFLATED)
        return pici_parse_fail(&a->err, 0, "method %u of compression is not read", e->method), TOOL_OK;
    if (!unzip_open(&a->unzip, e, input_read_at, a->in, &a->err))
        return refuse(a);
    a->unzipping = true;
    if (!unzip_take(&a->unzip, s->header, (size_t)need))
        return refuse(a);
    if (!pici_npy_header_bytes(&need, s->header, NPY_PREFIX_BYTES, &a->err))
        return TOOL_OK;
    if (need > e->bytes)
        return pici_parse_fail(&a->err, 0, "it ends inside its header"), TOOL_OK;
    if (!unzip_take(&a->unzip, s->header + NPY_PREFIX_BYTES, (size_t)need - NPY_PREFIX_BYTES))
        return refuse(a);
    *is = pici_npy_parse(npy, s->header, (size_t)need, e->bytes, &a->err);
    if (*is && e->method == ZIP_DEFLATED && npy->trailing_bytes)
        *is = pici_parse_fail(&a->err, 0, "bytes follow its array");
    if (*is && need > ARCHIVE_HEAD_MOST - a->head_len)
        *is = pici_parse_fail(&a->err, 0, "the headers before it are too long");
    return TOOL_OK;
}

/* Finds the level of a deflated array. *is becomes false if there is none. */
static int find_level(struct arrays *s, const struct zip_entry *e, int *level, uint32_t *crc, bool *is)
{
    struct archive *a = s->cut.a;
    if (!unzip_level(level, crc, &s->effort, e, input_read_at, a->in, &a->err))
        return refuse(a);
    if (!*level)
        *is = pici_parse_fail(&a->err, 0, "zlib %s does not make the same deflated bytes again", unzip_version());
    return TOOL_OK;
}

/* Reads a deflated entry that is kept, to check it. */
static int check_kept(struct arrays *s, const struct zip_entry *e)
{
    struct archive *a = s->cut.a;
    const struct parse_error why = a->err;
    if (!unzip_open(&a->unzip, e, input_read_at, a->in, &a->err))
        return refuse(a);
    a->unzipping = true;
    const int status = take_over(a, a->unzip.left);
    stop_unzipping(a);
    a->err = status ? a->err : why;
    return status;
}

static int take_array(struct arrays *s, uint32_t number, const struct npy *npy, int level, uint32_t crc)
{
    struct archive *a = s->cut.a;
    const struct zip_entry *e = &a->zip.entries[number];
    const size_t header = (size_t)npy->data_offset;
    uint8_t *p = more_head(a, header);
    if (!p)
        return tool_nomem(a->in->name, "the headers of the arrays");
    memcpy(p, s->header, header);
    a->head_len += header;
    s->cut.pending += header;
    s->cut.done = e->stored ? e->begin + header + npy->data_bytes : e->end;
    return add_part(&s->cut, (struct archive_part){.at = e->stored ? e->begin + header : e->begin,
                                                   .bytes = npy->data_bytes,
                                                   .number = number,
                                                   .header = (uint32_t)header,
                                                   .tensor = ARCHIVE_NONE,
                                                   .kind = ARCHIVE_ARRAY,
                                                   .level = (uint8_t)level,
                                                   .crc = crc});
}

static int take_entry(struct arrays *s, uint32_t number)
{
    struct archive *a = s->cut.a;
    const struct zip_entry *e = &a->zip.entries[number];
    struct npy npy;
    bool is;
    uint32_t crc = 0;
    int level = 0;
    TRY(take_gap(&s->cut, e->begin));
    if (e->begin == e->end)
        return TOOL_OK;
    const int status = read_header(s, e, &npy, &is);
    stop_unzipping(a);
    TRY(status);
    if (s->exact && e->method == ZIP_DEFLATED && (is || unzip_inflates())) {
        s->inflated = e->bytes <= UINT64_MAX - s->inflated ? s->inflated + e->bytes : UINT64_MAX;
        if (s->inflated > limit_now(s->exact))
            return limit_refused(s->exact, a->in->name, s->inflated);
        TRY(is ? find_level(s, e, &level, &crc, &is) : check_kept(s, e));
    }
    if (is)
        return take_array(s, number, &npy, level, crc);
    if (!s->kept++) {
        s->first = number;
        s->why = a->err;
    }
    s->cut.done = e->end;
    return add_part(&s->cut, (struct archive_part){.at = e->begin,
                                                   .bytes = e->end - e->begin,
                                                   .number = number,
                                                   .tensor = ARCHIVE_NONE,
                                                   .kind = ARCHIVE_KEPT});
}

/* Takes .npy from the names of arrays, or puts it back. */
static void shorten(struct archive *a, bool shorter)
{
    for (size_t i = 0; i < a->parts; i++) {
        if (a->part[i].kind != ARCHIVE_ARRAY)
            continue;
        struct zip_entry *e = &a->zip.entries[a->part[i].number];
        char *dot = a->zip.names + (e->name - a->zip.names) + e->name_len - (shorter ? 4 : 0);
        *dot = shorter ? 0 : '.';
        e->name_len = (size_t)(dot - e->name) + (shorter ? 0 : 4);
    }
}

static int name_arrays(struct archive *a)
{
    bool twice;
    shorten(a, true);
    TRY(find_duplicates(a, &twice));
    if (twice)
        shorten(a, false);
    return name_fillers(a);
}

static void tell_kept(const struct arrays *s)
{
    char name[64];
    const struct zip_entry *e = &s->cut.a->zip.entries[s->first];
    if (s->exact && s->kept)
        tool_warn(s->cut.a->in->name, "%zu of %zu entries %s kept as %s: '%s': %s", s->kept, s->cut.a->zip.count,
                  s->kept == 1 ? "is" : "are", s->kept == 1 ? "it is" : "they are, the first",
                  pici_parse_printable(name, sizeof name, e->name, e->name_len), s->why.what);
}

static int take_arrays(struct arrays *s)
{
    struct archive *const a = s->cut.a;
    s->header = malloc(NPY_MAX_HEADER_BYTES);
    if (!s->header)
        return tool_nomem(a->in->name, "the headers of the arrays");
    for (size_t i = 0; i < a->zip.count; i++)
        TRY(take_entry(s, (uint32_t)i));
    TRY(take_gap(&s->cut, a->in->bytes));
    TRY(name_arrays(a));
    tell_kept(s);
    return TOOL_OK;
}

int archive_open_npz(struct archive *a, struct input *in, const struct limit *exact)
{
    struct arrays s = {.cut = {.a = a}, .exact = exact, .effort.spare = SPARE_LEAST + SPARE_FACTOR * in->bytes};
    TRY(open_zip(a, in, TYPE_NPZ));
    const int status = take_arrays(&s);
    free(s.header);
    if (status)
        archive_close(a);
    return status;
}

/* ---- .pt */

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

/* Sets which tensor each storage is called after: the first that is all of it, in row-major order, or else the first
 * that is all of it, or else the first of all. */
static bool match(struct archive *a, const struct storages *s, const char *prefix)
{
    unsigned order[TORCH_MAX_RANK];
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
        const bool dense = p->bytes == t->items * item && torch_is_dense(t, order);
        const int rank = dense + (dense && t->row_major);
        if (p->tensor != ARCHIVE_NONE && rank <= p->dense + (p->dense && a->torch.tensors[p->tensor].row_major))
            continue;
        p->tensor = (uint32_t)i;
        p->dense = dense;
    }
    return true;
}

static void forget_names(struct archive *a)
{
    torch_free(&a->torch);
    for (size_t i = 0; i < a->parts; i++)
        a->part[i].tensor = ARCHIVE_NONE;
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
    if (!e->stored)
        return pici_parse_fail(&a->err, e->begin, "the pickle is compressed");
    if (e->bytes && input_read_at(a->in, a->pickle, (size_t)e->bytes, e->begin))
        return pici_parse_fail(&a->err, e->begin, "the pickle cannot be read");
    return torch_parse(&a->torch, a->pickle, (size_t)e->bytes, e->begin, &a->err);
}

static bool read_byte_order(struct archive *a)
{
    const struct zip_entry *e = find_entry(&a->zip, "byteorder");
    char word[4] = "";
    if (e && e->stored && e->bytes == 3 && input_read_at(a->in, word, 3, e->begin))
        return pici_parse_fail(&a->err, e->begin, "cannot be read");
    a->big_endian = strcmp(word, "big") == 0;
    return true;
}

/* Reads the pickle and names the storages by it. */
static int name_storages(struct archive *a, struct storages *s)
{
    const struct zip_entry *e = find_entry(&a->zip, "data.pkl");
    bool twice = false;
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
    if (ok) {
        TRY(find_duplicates(a, &twice));
        ok = !twice || pici_parse_fail(&a->err, e->begin, "two tensors have one name");
    }
    if (!ok) {
        forget_names(a);
        tool_warn(a->in->name, "offset %" PRIu64 ": %s; storages are named after their entries", a->err.offset,
                  a->err.what);
    }
    return name_fillers(a);
}

static int cut_storages(struct archive *a, struct storages *s)
{
    struct cut c = {.a = a};
    for (size_t i = 0; i < a->zip.count; i++) {
        const struct zip_entry *e = &a->zip.entries[i];
        if (!is_storage(e))
            continue;
        if (!e->stored)
            return tool_bad_at(a->in->name, e->header, "entry '%s' is compressed: storages must be stored", e->name);
        TRY(take_gap(&c, e->begin));
        s->entry[s->n++] = e;
        s->part[i] = (uint32_t)a->parts;
        TRY(add_part(&c, (struct archive_part){.at = e->begin,
                                               .bytes = e->end - e->begin,
                                               .number = (uint32_t)i,
                                               .tensor = ARCHIVE_NONE,
                                               .kind = ARCHIVE_STORAGE}));
        c.done = e->end;
    }
    return take_gap(&c, a->in->bytes);
}

static int take_storages(struct archive *a, struct storages *s)
{
    s->entry = malloc((a->zip.count + 1) * sizeof *s->entry);
    s->part = malloc((a->zip.count + 1) * sizeof *s->part);
    if (!s->entry || !s->part)
        return tool_nomem(a->in->name, "the list of storages");
    TRY(cut_storages(a, s));
    return name_storages(a, s);
}

int archive_open_pt(struct archive *a, struct input *in)
{
    struct storages s = {0};
    TRY(open_zip(a, in, TYPE_PT));
    const int status = take_storages(a, &s);
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
    const bool part = p && (p->tensor != i || !p->dense);
    char strides[256] = "", of[128];
    if (!t->row_major) {
        memcpy(strides, "strides ", 8);
        term_shape(strides + 8, sizeof strides - 8, t->strides, t->rank);
    }
    snprintf(buf, cap, "%s", strides);
    if (part && p->tensor != ARCHIVE_NONE) {
        const struct torch_tensor *after = &a->torch.tensors[p->tensor];
        const size_t n = strlen(buf);
        snprintf(buf + n, cap - n, "%sfrom %" PRIu64 " of %s", n ? " " : "", t->offset,
                 p->tensor == i ? "its storage" : pici_parse_printable(of, sizeof of, after->name, after->name_len));
    }
    return buf;
}

/* ---- reading */

/* Whether a part's bytes are read through unzip, which checks them. */
static bool is_checked(const struct archive *a, const struct archive_part *p)
{
    return p->kind == ARCHIVE_ARRAY || (p->kind == ARCHIVE_KEPT && a->zip.entries[p->number].stored);
}

/* Checks the entry's end, once the part has been taken. */
static int end_part(struct archive *a)
{
    const int status = a->unzip.left ? take_over(a, a->unzip.left) : TOOL_OK;
    stop_unzipping(a);
    return status;
}

int archive_begin(struct archive *a, const struct archive_part *p)
{
    stop_unzipping(a);
    if (!is_checked(a, p))
        return TOOL_OK;
    if (!unzip_open(&a->unzip, &a->zip.entries[p->number], input_read_at, a->in, &a->err))
        return refuse(a);
    a->unzipping = true;
    TRY(take_over(a, p->header));
    return p->bytes ? TOOL_OK : end_part(a);
}

int archive_take(struct archive *a, const struct archive_part *p, void *buf, size_t bytes, uint64_t left)
{
    if (!a->unzipping)
        return read_at(a, buf, bytes, p->at + (p->bytes - left));
    if (!unzip_take(&a->unzip, buf, bytes))
        return refuse(a);
    return bytes == left ? end_part(a) : TOOL_OK;
}

void archive_close(struct archive *a)
{
    stop_unzipping(a);
    zip_free(&a->zip);
    torch_free(&a->torch);
    free(a->pickle);
    free(a->part_of);
    free(a->head);
    free(a->part);
    free(a->filler);
    *a = (struct archive){.in = a->in};
}
