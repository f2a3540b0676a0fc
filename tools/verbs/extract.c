/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "folder/make.h"
#include "input/attrs.h"
#include "input/reading.h"
#include "input/source.h"
#include "output/result.h"
#include "output/zipout.h"
#include "parse/npy.h"
#include "suggest.h"
#include "term.h"
#include "tool.h"

/* What is extracted: a tensor of the file, or a view of one. */
struct what {
    const char *name; /* [name_len] */
    size_t name_len;
    enum pici_dtype dtype;
    unsigned rank;
    uint64_t shape[PICI_RANK_MAX];
    uint64_t count;
    struct pici_tensor_info t; /* of a view: the storage */
    struct pici_view v;        /* name NULL: none */
    void *stored;              /* of a view that is not row-major */
};

/* Where elements are written: a file, or an entry of an archive that is one. */
struct sink {
    struct output out;
    struct zipout zip;
    bool zipped;
};

static int sink_write(struct sink *to, const void *p, size_t n)
{
    return to->zipped ? zipout_write(&to->zip, p, n) : output_write(&to->out, p, n);
}

/* Whether elements of a view follow one another in its storage, as they are. */
static bool is_run(const struct pici_view *v)
{
    uint64_t row = 1;
    bool is = !v->conjugate && !v->negative && pici_dtype_width(v->dtype) == pici_dtype_width(v->tensor_dtype);
    for (unsigned i = v->rank; v->count && i-- > 0; row *= v->shape[i])
        is = is && (v->shape[i] == 1 || v->strides[i] == row);
    return is;
}

static int no_tensor(struct reading *r, const struct tool_options *o, uint64_t tensors)
{
    struct suggest near;
    struct reading_views views = {0};
    suggest_start(&near, o->tensor);
    for (uint64_t i = 0; i < tensors; i++) {
        struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
        enum pici_status s = pici_reader_tensor(r->reader, i, &t);
        if (s)
            return reading_failed(r, s);
        TRY(reading_views(r, &t, &views));
        if (!views.unnamed)
            suggest_word(&near, t.name);
        for (uint64_t k = 0; k < views.n; k++) {
            struct pici_view v;
            TRY(reading_view(r, views.first + k, &v));
            suggest_word(&near, v.name);
        }
    }
    return tool_no_tensor(r->in->name, &near);
}

static void take_tensor(struct what *w)
{
    w->name = w->t.name;
    w->name_len = w->t.name_len;
    w->dtype = w->t.dtype;
    w->rank = w->t.rank;
    w->count = w->t.count;
    memcpy(w->shape, w->t.shape, sizeof w->shape);
}

static int take_view(struct reading *r, struct what *w)
{
    w->name = w->v.name;
    w->name_len = w->v.name_len;
    w->dtype = w->v.dtype;
    w->rank = w->v.rank;
    w->count = w->v.count;
    memcpy(w->shape, w->v.shape, sizeof w->shape);
    const enum pici_status s = pici_reader_tensor(r->reader, w->v.tensor, &w->t);
    return s ? reading_failed(r, s) : TOOL_OK;
}

/* Finds the only tensor of the file. */
static int find_only(struct reading *r, struct what *w, uint64_t tensors)
{
    struct reading_views views = {0};
    uint64_t named = 0;
    bool is_view = false;
    for (uint64_t i = 0; i < tensors && named < 2; i++) {
        struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
        const enum pici_status s = pici_reader_tensor(r->reader, i, &t);
        if (s)
            return reading_failed(r, s);
        TRY(reading_views(r, &t, &views));
        named += !views.unnamed + views.n;
        if (views.n)
            TRY(reading_view(r, views.first, &w->v));
        if (!views.unnamed || views.n) {
            w->t = t;
            is_view = views.unnamed;
        }
    }
    if (named != 1)
        return tool_usage(r->in->name, "has %s%" PRIu64 " tensors: --tensor says which, -o OUT.npz takes all",
                          named > 1 && named < tensors ? "at least " : "", named > tensors ? named : tensors);
    if (is_view)
        return take_view(r, w);
    w->v.name = NULL;
    take_tensor(w);
    return TOOL_OK;
}

/* Finds the tensor of --tensor, or the only one. */
static int find(struct reading *r, const struct tool_options *o, struct what *w)
{
    uint64_t tensors;
    int found;
    w->t = (struct pici_tensor_info)PICI_TENSOR_INFO_INIT;
    w->v = (struct pici_view)PICI_VIEW_INIT;
    enum pici_status s = pici_reader_count(r->reader, &tensors);
    if (!s && !o->tensor)
        return find_only(r, w, tensors);
    if (!s)
        s = pici_reader_find_view(r->reader, o->tensor, strlen(o->tensor), &w->v, &found);
    if (s)
        return reading_failed(r, s);
    if (found)
        return take_view(r, w);
    s = pici_reader_find(r->reader, o->tensor, strlen(o->tensor), &w->t);
    if (s)
        return s == PICI_E_ARG ? no_tensor(r, o, tensors) : reading_failed(r, s);
    take_tensor(w);
    return TOOL_OK;
}

/* Reads what a view needs of its storage, unless its elements are read as they lie there. */
static int read_storage(struct reading *r, struct what *w, const struct limit *limit, uint64_t *read)
{
    const size_t width = pici_dtype_width(w->t.dtype);
    const uint64_t bytes = w->v.stored_count * width;
    if (!w->v.name || is_run(&w->v))
        return TOOL_OK;
    *read += bytes; /* many views may need all of one storage, each for few elements */
    if (*read > limit_now(limit))
        return limit_refused(limit, r->in->name, *read);
    w->stored = malloc((size_t)bytes + 1);
    if (!w->stored)
        return tool_nomem(r->in->name, "the storage of the tensor");
    for (uint64_t at = 0, n; at < w->v.stored_count; at += n) {
        const uint64_t first = w->v.stored_first;
        TRY(reading_range(r, &w->t, first + at, first + w->v.stored_count, &n));
        memcpy((uint8_t *)w->stored + at * width, r->piece, (size_t)n * width);
    }
    return TOOL_OK;
}

/* Writes a header of the type that only .npy files have, if the tensor has one. *done: it has. A range of what several
 * elements are an item of is of elements. */
static int write_typed_header(struct reading *r, const struct what *w, const struct tool_options *o, bool fortran,
                              struct sink *out, bool *done)
{
    struct pici_attr a;
    struct npy_type type;
    const uint64_t n = o->range.last - o->range.first;
    size_t len;
    unsigned rank = w->rank;
    *done = false;
    TRY(reading_attr(r, w->t.index, ATTR_NPY, &a));
    if (!a.key || !pici_npy_type(&type, a.value, a.len) || type.dtype != w->dtype)
        return TOOL_OK;
    if (type.item_elements != 1 && (o->range.given || !rank || w->shape[--rank] != type.item_elements))
        return TOOL_OK;
    char *const header = pici_npy_typed_header(&len, a.value, a.len, fortran && !o->range.given,
                                               o->range.given ? &n : w->shape, o->range.given ? 1 : rank);
    if (!header)
        return tool_nomem(r->in->name, "the header of the array");
    *done = true;
    const int status = sink_write(out, header, len);
    free(header);
    return status;
}

static int write_npy_header(struct reading *r, const struct what *w, const struct tool_options *o, struct sink *out)
{
    char header[NPY_WRITE_ROOM];
    bool fortran = false;
    struct pici_attr a = {ATTR_DTYPE, w->v.word, w->v.name ? strlen(w->v.word) : 0};
    if (!w->v.name) {
        bool done;
        TRY(reading_attr_is(r, w->t.index, ATTR_ORDER, "F", &fortran));
        TRY(write_typed_header(r, w, o, fortran, out, &done));
        if (done)
            return TOOL_OK;
        TRY(reading_attr(r, w->t.index, ATTR_DTYPE, &a));
    }
    enum npy_meaning meaning = a.key ? pici_npy_meaning_of(a.value, a.len, w->dtype) : NPY_NUMBER;
    unsigned rank = w->rank;
    if (meaning == NPY_COMPLEX && (o->range.given || !rank || w->shape[rank - 1] != 2))
        meaning = NPY_NUMBER; /* a range is of parts */
    rank -= meaning == NPY_COMPLEX;
    const uint64_t n = o->range.last - o->range.first;
    size_t len = o->range.given ? pici_npy_write_header(header, w->dtype, meaning, false, &n, 1)
                                : pici_npy_write_header(header, w->dtype, meaning, fortran, w->shape, rank);
    return sink_write(out, header, len);
}

/* The next elements from `at` on, *n of them, at *p. */
static int next_piece(struct reading *r, struct what *w, uint64_t at, uint64_t last, uint64_t *n, void **p)
{
    enum { PIECE = 1 << 18 };
    static uint64_t piece[PIECE];
    const uint64_t first = w->v.name ? w->v.offset : 0;
    *p = piece;
    if (!w->stored) {
        TRY(reading_range(r, &w->t, first + at, first + last, n));
        *p = r->piece;
        return TOOL_OK;
    }
    *n = last - at < PIECE ? last - at : PIECE;
    const enum pici_status s = pici_view_copy(&w->v, w->stored, at, *n, piece);
    return s ? tool_bad(r->in->name, "tensor %s: %s", w->name, pici_strerror(s)) : TOOL_OK;
}

static int copy_range(struct reading *r, struct what *w, const struct tool_options *o, struct sink *out,
                      struct progress *progress)
{
    const size_t width = pici_dtype_width(w->dtype);
    for (uint64_t at = o->range.first, n; at < o->range.last; at += n) {
        void *p;
        TRY(next_piece(r, w, at, o->range.last, &n, &p));
        source_swap_raw(p, (size_t)n * width, width);
        TRY(sink_write(out, p, (size_t)n * width));
        progress_at(progress, out->out.at, out->out.at);
    }
    return TOOL_OK;
}

static int copy(struct reading *r, struct what *w, const struct tool_options *o, struct sink *out, uint64_t bytes)
{
    struct progress p;
    progress_start(&p, r->in->name, bytes);
    const int status = copy_range(r, w, o, out, &p);
    progress_end(&p);
    return status;
}

/* What is extracted to where. */
struct job {
    struct tool_options o;
    const char *path;   /* of the output */
    bool npy, all;      /* all tensors, or the one that --tensor names, to an archive or a folder */
    const char *folder; /* that the files of all tensors are in; NULL: there is none */
    struct sink to;
    uint64_t stored;  /* bytes of all files that are read */
    uint64_t read;    /* bytes of storages, for views; at most the output's limit */
    uint64_t tensors; /* that have been extracted */
};

static int open_output(struct job *j, const struct reading *r, const char *path, uint64_t bytes)
{
    struct output *const out = &j->to.out;
    TRY(output_open(out, path, r->in, j->o.force));
    out->limit = limit_of(&j->o, j->stored, 0);
    if (!j->o.no_sparse && !j->to.zipped)
        output_sparse(out);
    return bytes ? output_claim(out, r->in->name, bytes) : TOOL_OK;
}

/* Writes what has been found. */
static int write_what(struct job *j, struct reading *r, struct what *w, const char *path)
{
    struct tool_options *const o = &j->o;
    const uint64_t width = pici_dtype_width(w->dtype);
    if (!o->range.given || o->range.to_end)
        o->range.last = w->count;
    if (o->range.first > o->range.last || o->range.last > w->count)
        return tool_bad(r->in->name, "tensor %s has %" PRIu64 " elements: --range goes beyond them", w->name, w->count);
    const uint64_t bytes = (o->range.last - o->range.first) * width;
    if (path)
        TRY(open_output(j, r, path, bytes));
    TRY(read_storage(r, w, &j->to.out.limit, &j->read));
    if (j->npy || j->all)
        TRY(write_npy_header(r, w, o, &j->to));
    return copy(r, w, o, &j->to, bytes);
}

/* Writes a tensor as NAME.npy, an entry of the archive or a file in the folder. */
static int write_named(struct job *j, struct reading *r, struct what *w)
{
    const char *why;
    const size_t len = strlen(w->name);
    if (len != w->name_len)
        return tool_bad(r->in->name, "tensor '%s' has a zero byte in its name, and no file or entry can", w->name);
    char *const name = malloc(len + 5);
    if (!name)
        return tool_nomem(r->in->name, "the name of a tensor");
    snprintf(name, len + 5, "%s.npy", w->name);
    char *const path = j->folder ? folder_path(j->folder, name, "") : NULL;
    int status = j->folder && !path ? TOOL_BAD : TOOL_OK;
    if (!status && j->folder && !shards_name_is_plain(name, len + 4, &why))
        status = tool_bad(r->in->name, "tensor '%s' cannot be a file of its name: %s; extract it with --tensor",
                          w->name, why);
    if (!status && !j->folder)
        status = zipout_begin(&j->to.zip, name);
    if (!status)
        status = write_what(j, r, w, path);
    if (!status)
        status = j->folder ? output_commit(&j->to.out) : zipout_end(&j->to.zip);
    if (j->folder)
        output_discard(&j->to.out);
    j->tensors++;
    free(path);
    free(name);
    return status;
}

/* Writes each tensor of a file, or the one of --tensor. */
static int write_all(struct job *j, struct reading *r)
{
    struct reading_views views = {0};
    uint64_t tensors;
    enum pici_status s = pici_reader_count(r->reader, &tensors);
    for (uint64_t i = 0; !s && i < tensors; i++) {
        struct what w = {.t = PICI_TENSOR_INFO_INIT, .v = PICI_VIEW_INIT};
        s = pici_reader_tensor(r->reader, i, &w.t);
        if (s)
            break;
        TRY(reading_views(r, &w.t, &views));
        for (uint64_t k = 0; k < views.n + !views.unnamed; k++) {
            struct what one = w;
            int status = TOOL_OK;
            if (k < views.n) {
                TRY(reading_view(r, views.first + k, &one.v));
                TRY(take_view(r, &one));
            } else {
                take_tensor(&one);
            }
            if (!j->o.tensor ||
                (strlen(j->o.tensor) == one.name_len && memcmp(j->o.tensor, one.name, one.name_len) == 0))
                status = write_named(j, r, &one);
            free(one.stored);
            TRY(status);
        }
    }
    return s ? reading_failed(r, s) : TOOL_OK;
}

static int write_one(struct job *j, struct reading *r)
{
    struct what w = {0};
    TRY(find(r, &j->o, &w));
    const double start = term_now();
    int status = write_what(j, r, &w, j->path);
    free(w.stored);
    TRY(status);
    j->tensors++;
    const double seconds = term_now() - start;
    TRY(output_commit(&j->to.out));
    result_print(r->in->name, r->in->bytes, &j->to.out, true, seconds);
    return TOOL_OK;
}

/* Extracts from a .pici file. of_many: it is one of a folder, and need not have the tensor. */
static int from_opened(struct job *j, struct input *in, struct reading *r, bool of_many)
{
    struct pici_view v = PICI_VIEW_INIT;
    struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
    int found = 1;
    if (!in->regular)
        return tool_usage(in->name, "is empty or cannot be read at random: extract needs a file, not a pipe");
    TRY(reading_open(r, in, j->o.threads, true));
    if (j->all)
        return write_all(j, r);
    if (of_many) {
        const size_t len = strlen(j->o.tensor);
        if (pici_reader_find_view(r->reader, j->o.tensor, len, &v, &found) == PICI_OK && !found &&
            pici_reader_find(r->reader, j->o.tensor, len, &t) == PICI_E_ARG)
            return TOOL_OK;
    }
    return write_one(j, r);
}

static int from_file(struct job *j, const char *path, bool of_many)
{
    struct input in;
    struct reading r = {0};
    TRY(input_open(&in, path));
    if (!of_many) {
        j->stored = input_length(&in);
        j->to.out.limit = limit_of(&j->o, j->stored, 0);
    }
    const int status = from_opened(j, &in, &r, of_many);
    reading_close(&r);
    input_close(&in);
    return status;
}

static int from_files(struct job *j, const struct folder *f)
{
    TRY(folder_expect_made(f, false));
    if (!j->all && !j->o.tensor)
        return tool_usage(f->path, "is a folder: --tensor says which tensor, or -o OUT.npz or -o FOLDER/ all of them");
    for (size_t i = 0; i < f->list.files; i++)
        j->stored += f->list.file[i].stored.bytes;
    j->to.out.limit = limit_of(&j->o, j->stored, 0);
    for (size_t i = 0; i < f->list.files && (j->all || !j->tensors); i++) {
        const char *const name = f->list.file[i].name;
        if (f->list.file[i].kind != FOLDER_SHARD || !tool_has_extension(name, SHARDS_EXTENSION))
            continue;
        char *const path = folder_path(f->path, name, FOLDER_EXTENSION);
        const int status = path ? from_file(j, path, true) : TOOL_BAD;
        free(path);
        TRY(status);
    }
    return TOOL_OK;
}

/* Extracts from the operand, to what has been begun. */
static int from_operand(struct job *j)
{
    const char *const path = j->o.args[0];
    struct folder f;
    if (folder_is(path)) {
        TRY(folder_open(&f, path));
        const int status = from_files(j, &f);
        folder_close(&f);
        TRY(status);
    } else {
        TRY(from_file(j, path, false));
    }
    return j->tensors || (j->all && !j->o.tensor) ? TOOL_OK
           : j->o.tensor                          ? tool_bad(path, "has no tensor %s", j->o.tensor)
                                                  : TOOL_OK;
}

static int add_perms(struct pici_perms *perms, const char *path)
{
    struct input in;
    TRY(input_open(&in, path));
    const int status = output_perms(perms, path, in.fd);
    input_close(&in);
    return status;
}

/* What all files permit that are read. */
static int perms_of_operand(struct pici_perms *perms, const char *path)
{
    struct folder f;
    int status = TOOL_OK;
    if (!folder_is(path))
        return add_perms(perms, path);
    TRY(folder_open(&f, path));
    for (size_t i = 0; !status && i < f.list.files; i++) {
        if (f.list.file[i].kind != FOLDER_SHARD)
            continue;
        char *const one = folder_path(path, f.list.file[i].name, FOLDER_EXTENSION);
        status = one ? add_perms(perms, one) : TOOL_BAD;
        free(one);
    }
    folder_close(&f);
    return status;
}

static int to_archive(struct job *j)
{
    struct pici_perms perms = {0};
    const double start = term_now();
    j->to.zipped = true;
    j->to.zip.out = &j->to.out;
    int status = perms_of_operand(&perms, j->o.args[0]);
    if (!status)
        status = output_open_as(&j->to.out, j->path, NULL, &perms, j->o.force);
    pici_perms_free(&perms);
    TRY(status);
    TRY(from_operand(j));
    TRY(zipout_finish(&j->to.zip));
    TRY(output_commit(&j->to.out));
    result_print(j->o.args[0], j->stored, &j->to.out, true, term_now() - start);
    return TOOL_OK;
}

static int to_folder(struct job *j)
{
    const struct folder_list none = {.files = 0};
    struct outfolder to;
    struct stat st;
    if (stat(j->o.args[0], &st) != 0)
        return tool_bad(j->o.args[0], "%s", strerror(errno));
    TRY(outfolder_open(&to, j->path, st.st_mode | (st.st_mode & 0444) >> 2, j->o.force, &none));
    j->folder = to.path;
    int status = from_operand(j);
    if (!status)
        status = outfolder_commit(&to);
    outfolder_discard(&to);
    return status;
}

int verb_extract(const struct tool_options *o)
{
    struct job j = {.o = *o, .path = o->out ? o->out : "-", .to.out.fd = -1};
    const size_t len = strlen(j.path);
    const bool folder = j.path[len - 1] == '/', zip = tool_type_of(j.path) == TYPE_NPZ;
    j.npy = tool_type_of(j.path) == TYPE_NPY;
    j.all = folder || zip;
    if (j.all && o->range.given)
        return tool_usage(j.path, "gets whole tensors: --range is for one");
    const int status = folder ? to_folder(&j) : zip ? to_archive(&j) : from_operand(&j);
    output_discard(&j.to.out);
    zipout_free(&j.to.zip);
    return status;
}
