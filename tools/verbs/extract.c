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
static bool is_run(const struct pici_view *view)
{
    uint64_t row = 1;
    bool is =
        !view->conjugate && !view->negative && pici_dtype_width(view->dtype) == pici_dtype_width(view->tensor_dtype);
    for (unsigned i = view->rank; view->count && i-- > 0; row *= view->shape[i])
        is = is && (view->shape[i] == 1 || view->strides[i] == row);
    return is;
}

static int no_tensor(struct reading *reading, const struct tool_options *options, uint64_t tensors)
{
    struct suggest near;
    struct reading_views views = {0};
    suggest_start(&near, options->tensor);
    for (uint64_t i = 0; i < tensors; i++) {
        struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
        enum pici_status status = pici_reader_tensor(reading->reader, i, &tensor);
        if (status)
            return reading_failed(reading, status);
        TRY(reading_views(reading, &tensor, &views));
        if (!views.unnamed)
            suggest_word(&near, tensor.name);
        for (uint64_t k = 0; k < views.count; k++) {
            struct pici_view view;
            TRY(reading_view(reading, views.first + k, &view));
            suggest_word(&near, view.name);
        }
    }
    return tool_no_tensor(reading->input->name, &near);
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

static int take_view(struct reading *reading, struct what *w)
{
    w->name = w->v.name;
    w->name_len = w->v.name_len;
    w->dtype = w->v.dtype;
    w->rank = w->v.rank;
    w->count = w->v.count;
    memcpy(w->shape, w->v.shape, sizeof w->shape);
    const enum pici_status status = pici_reader_tensor(reading->reader, w->v.tensor, &w->t);
    return status ? reading_failed(reading, status) : TOOL_OK;
}

/* Finds the only tensor of the file. */
static int find_only(struct reading *reading, struct what *w, uint64_t tensors)
{
    struct reading_views views = {0};
    uint64_t named = 0;
    bool is_view = false;
    for (uint64_t i = 0; i < tensors && named < 2; i++) {
        struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
        const enum pici_status status = pici_reader_tensor(reading->reader, i, &tensor);
        if (status)
            return reading_failed(reading, status);
        TRY(reading_views(reading, &tensor, &views));
        named += !views.unnamed + views.count;
        if (views.count)
            TRY(reading_view(reading, views.first, &w->v));
        if (!views.unnamed || views.count) {
            w->t = tensor;
            is_view = views.unnamed;
        }
    }
    if (named != 1)
        return tool_usage(reading->input->name, "has %s%" PRIu64 " tensors: --tensor says which, -o OUT.npz takes all",
                          named > 1 && named < tensors ? "at least " : "", named > tensors ? named : tensors);
    if (is_view)
        return take_view(reading, w);
    w->v.name = NULL;
    take_tensor(w);
    return TOOL_OK;
}

/* Finds the tensor of --tensor, or the only one. */
static int find(struct reading *reading, const struct tool_options *options, struct what *w)
{
    uint64_t tensors;
    int found;
    w->t = (struct pici_tensor_info)PICI_TENSOR_INFO_INIT;
    w->v = (struct pici_view)PICI_VIEW_INIT;
    enum pici_status status = pici_reader_count(reading->reader, &tensors);
    if (!status && !options->tensor)
        return find_only(reading, w, tensors);
    if (!status)
        status = pici_reader_find_view(reading->reader, options->tensor, strlen(options->tensor), &w->v, &found);
    if (status)
        return reading_failed(reading, status);
    if (found)
        return take_view(reading, w);
    status = pici_reader_find(reading->reader, options->tensor, strlen(options->tensor), &w->t);
    if (status)
        return status == PICI_E_ARG ? no_tensor(reading, options, tensors) : reading_failed(reading, status);
    take_tensor(w);
    return TOOL_OK;
}

/* Reads what a view needs of its storage, unless its elements are read as they lie there. */
static int read_storage(struct reading *reading, struct what *w, const struct limit *limit, uint64_t *read)
{
    const size_t width = pici_dtype_width(w->t.dtype);
    const uint64_t bytes = w->v.stored_count * width;
    if (!w->v.name || is_run(&w->v))
        return TOOL_OK;
    *read += bytes; /* many views may need all of one storage, each for few elements */
    if (*read > limit_now(limit))
        return limit_refused(limit, reading->input->name, *read);
    w->stored = malloc((size_t)bytes + 1);
    if (!w->stored)
        return tool_nomem(reading->input->name, "the storage of the tensor");
    for (uint64_t at = 0, n; at < w->v.stored_count; at += n) {
        const uint64_t first = w->v.stored_first;
        TRY(reading_range(reading, &w->t, first + at, first + w->v.stored_count, &n));
        memcpy((uint8_t *)w->stored + at * width, reading->piece, (size_t)n * width);
    }
    return TOOL_OK;
}

/* Writes a header of the type that only .npy files have, if the tensor has one. *done: it has. A range of what several
 * elements are an item of is of elements. */
static int write_typed_header(struct reading *reading, const struct what *w, const struct tool_options *options,
                              bool fortran, struct sink *out, bool *done)
{
    struct pici_attr attr;
    struct npy_type type;
    const uint64_t n = options->range.last - options->range.first;
    size_t size;
    unsigned rank = w->rank;
    *done = false;
    TRY(reading_attr(reading, w->t.index, ATTR_NPY, &attr));
    if (!attr.key || !pici_npy_type(&type, attr.value, attr.len) || type.dtype != w->dtype)
        return TOOL_OK;
    if (type.item_elements != 1 && (options->range.given || !rank || w->shape[--rank] != type.item_elements))
        return TOOL_OK;
    char *const header = pici_npy_typed_header(&size, attr.value, attr.len, fortran && !options->range.given,
                                               options->range.given ? &n : w->shape, options->range.given ? 1 : rank);
    if (!header)
        return tool_nomem(reading->input->name, "the header of the array");
    *done = true;
    const int status = sink_write(out, header, size);
    free(header);
    return status;
}

static int write_npy_header(struct reading *reading, const struct what *w, const struct tool_options *options,
                            struct sink *out)
{
    char header[NPY_WRITE_ROOM];
    bool fortran = false;
    struct pici_attr attr = {ATTR_DTYPE, w->v.word, w->v.name ? strlen(w->v.word) : 0};
    if (!w->v.name) {
        bool done;
        TRY(reading_attr_is(reading, w->t.index, ATTR_ORDER, "F", &fortran));
        TRY(write_typed_header(reading, w, options, fortran, out, &done));
        if (done)
            return TOOL_OK;
        TRY(reading_attr(reading, w->t.index, ATTR_DTYPE, &attr));
    }
    enum npy_meaning meaning = attr.key ? pici_npy_meaning_of(attr.value, attr.len, w->dtype) : NPY_NUMBER;
    unsigned rank = w->rank;
    if (meaning == NPY_COMPLEX && (options->range.given || !rank || w->shape[rank - 1] != 2))
        meaning = NPY_NUMBER; /* a range is of parts */
    rank -= meaning == NPY_COMPLEX;
    const uint64_t n = options->range.last - options->range.first;
    size_t size = options->range.given ? pici_npy_write_header(header, w->dtype, meaning, false, &n, 1)
                                       : pici_npy_write_header(header, w->dtype, meaning, fortran, w->shape, rank);
    return sink_write(out, header, size);
}

/* The next elements from `at` on, *n of them, at *p. */
static int next_piece(struct reading *reading, struct what *w, uint64_t at, uint64_t last, uint64_t *n, void **p)
{
    enum { PIECE = 1 << 18 };
    static uint64_t piece[PIECE];
    const uint64_t first = w->v.name ? w->v.offset : 0;
    *p = piece;
    if (!w->stored) {
        TRY(reading_range(reading, &w->t, first + at, first + last, n));
        *p = reading->piece;
        return TOOL_OK;
    }
    *n = last - at < PIECE ? last - at : PIECE;
    const enum pici_status status = pici_view_copy(&w->v, w->stored, at, *n, piece);
    return status ? tool_bad(reading->input->name, "tensor %s: %s", w->name, pici_strerror(status)) : TOOL_OK;
}

static int copy_range(struct reading *reading, struct what *w, const struct tool_options *options, struct sink *out,
                      struct progress *progress)
{
    const size_t width = pici_dtype_width(w->dtype);
    for (uint64_t at = options->range.first, n; at < options->range.last; at += n) {
        void *p;
        TRY(next_piece(reading, w, at, options->range.last, &n, &p));
        source_swap_raw(p, (size_t)n * width, width);
        TRY(sink_write(out, p, (size_t)n * width));
        progress_at(progress, out->out.position, out->out.position);
    }
    return TOOL_OK;
}

static int copy(struct reading *reading, struct what *w, const struct tool_options *options, struct sink *out,
                uint64_t bytes)
{
    struct progress p;
    progress_start(&p, reading->input->name, bytes);
    const int status = copy_range(reading, w, options, out, &p);
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

static int open_output(struct job *j, const struct reading *reading, const char *path, uint64_t bytes)
{
    struct output *const output = &j->to.out;
    TRY(output_open(output, path, reading->input, j->o.force));
    output->limit = limit_of(&j->o, j->stored, 0);
    if (!j->o.no_sparse && !j->to.zipped)
        output_sparse(output);
    return bytes ? output_claim(output, reading->input->name, bytes) : TOOL_OK;
}

/* Writes what has been found. */
static int write_what(struct job *j, struct reading *reading, struct what *w, const char *path)
{
    struct tool_options *const options = &j->o;
    const uint64_t width = pici_dtype_width(w->dtype);
    if (!options->range.given || options->range.to_end)
        options->range.last = w->count;
    if (options->range.first > options->range.last || options->range.last > w->count)
        return tool_bad(reading->input->name, "tensor %s has %" PRIu64 " elements: --range goes beyond them", w->name,
                        w->count);
    const uint64_t bytes = (options->range.last - options->range.first) * width;
    if (path)
        TRY(open_output(j, reading, path, bytes));
    TRY(read_storage(reading, w, &j->to.out.limit, &j->read));
    if (j->npy || j->all)
        TRY(write_npy_header(reading, w, options, &j->to));
    return copy(reading, w, options, &j->to, bytes);
}

/* Writes a tensor as NAME.npy, an entry of the archive or a file in the folder. */
static int write_named(struct job *j, struct reading *reading, struct what *w)
{
    const char *why;
    const size_t size = strlen(w->name);
    if (size != w->name_len)
        return tool_bad(reading->input->name, "tensor '%s' has a zero byte in its name, and no file or entry can",
                        w->name);
    char *const name = malloc(size + 5);
    if (!name)
        return tool_nomem(reading->input->name, "the name of a tensor");
    snprintf(name, size + 5, "%s.npy", w->name);
    char *const path = j->folder ? folder_path(j->folder, name, "") : NULL;
    int status = j->folder && !path ? TOOL_BAD : TOOL_OK;
    if (!status && j->folder && !shards_name_is_plain(name, size + 4, &why))
        status = tool_bad(reading->input->name,
                          "tensor '%s' cannot be a file of its name: %s; extract it with --tensor", w->name, why);
    if (!status && !j->folder)
        status = zipout_begin(&j->to.zip, name);
    if (!status)
        status = write_what(j, reading, w, path);
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
static int write_all(struct job *j, struct reading *reading)
{
    struct reading_views views = {0};
    uint64_t tensors;
    enum pici_status failed = pici_reader_count(reading->reader, &tensors);
    for (uint64_t i = 0; !failed && i < tensors; i++) {
        struct what w = {.t = PICI_TENSOR_INFO_INIT, .v = PICI_VIEW_INIT};
        failed = pici_reader_tensor(reading->reader, i, &w.t);
        if (failed)
            break;
        TRY(reading_views(reading, &w.t, &views));
        for (uint64_t k = 0; k < views.count + !views.unnamed; k++) {
            struct what one = w;
            int status = TOOL_OK;
            if (k < views.count) {
                TRY(reading_view(reading, views.first + k, &one.v));
                TRY(take_view(reading, &one));
            } else {
                take_tensor(&one);
            }
            if (!j->o.tensor ||
                (strlen(j->o.tensor) == one.name_len && memcmp(j->o.tensor, one.name, one.name_len) == 0))
                status = write_named(j, reading, &one);
            free(one.stored);
            TRY(status);
        }
    }
    return failed ? reading_failed(reading, failed) : TOOL_OK;
}

static int write_one(struct job *j, struct reading *reading)
{
    struct what w = {0};
    TRY(find(reading, &j->o, &w));
    const double start = term_now();
    int status = write_what(j, reading, &w, j->path);
    free(w.stored);
    TRY(status);
    j->tensors++;
    const double seconds = term_now() - start;
    TRY(output_commit(&j->to.out));
    result_print(reading->input->name, reading->input->bytes, &j->to.out, true, seconds);
    return TOOL_OK;
}

/* Extracts from a .pici file. of_many: it is one of a folder, and need not have the tensor. */
static int from_opened(struct job *j, struct input *input, struct reading *reading, bool of_many)
{
    struct pici_view view = PICI_VIEW_INIT;
    struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
    int found = 1;
    if (!input->regular)
        return tool_usage(input->name, "is empty or cannot be read at random: extract needs a file, not a pipe");
    TRY(reading_open(reading, input, j->o.threads, true));
    if (j->all)
        return write_all(j, reading);
    if (of_many) {
        const size_t size = strlen(j->o.tensor);
        if (pici_reader_find_view(reading->reader, j->o.tensor, size, &view, &found) == PICI_OK && !found &&
            pici_reader_find(reading->reader, j->o.tensor, size, &tensor) == PICI_E_ARG)
            return TOOL_OK;
    }
    return write_one(j, reading);
}

static int from_file(struct job *j, const char *path, bool of_many)
{
    struct input input;
    struct reading reading = {0};
    TRY(input_open(&input, path));
    if (!of_many) {
        j->stored = input_length(&input);
        j->to.out.limit = limit_of(&j->o, j->stored, 0);
    }
    const int status = from_opened(j, &input, &reading, of_many);
    reading_close(&reading);
    input_close(&input);
    return status;
}

static int from_files(struct job *j, const struct folder *folder)
{
    TRY(folder_expect_made(folder, false));
    if (!j->all && !j->o.tensor)
        return tool_usage(folder->path,
                          "is a folder: --tensor says which tensor, or -o OUT.npz or -o FOLDER/ all of them");
    for (size_t i = 0; i < folder->list.files; i++)
        j->stored += folder->list.file[i].stored.bytes;
    j->to.out.limit = limit_of(&j->o, j->stored, 0);
    for (size_t i = 0; i < folder->list.files && (j->all || !j->tensors); i++) {
        const char *const name = folder->list.file[i].name;
        if (folder->list.file[i].kind != FOLDER_SHARD || !tool_has_extension(name, SHARDS_EXTENSION))
            continue;
        char *const path = folder_path(folder->path, name, FOLDER_EXTENSION);
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
    struct folder folder;
    if (folder_is(path)) {
        TRY(folder_open(&folder, path));
        const int status = from_files(j, &folder);
        folder_close(&folder);
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
    struct input input;
    TRY(input_open(&input, path));
    const int status = output_perms(perms, path, input.fd);
    input_close(&input);
    return status;
}

/* What all files permit that are read. */
static int perms_of_operand(struct pici_perms *perms, const char *path)
{
    struct folder folder;
    int status = TOOL_OK;
    if (!folder_is(path))
        return add_perms(perms, path);
    TRY(folder_open(&folder, path));
    for (size_t i = 0; !status && i < folder.list.files; i++) {
        if (folder.list.file[i].kind != FOLDER_SHARD)
            continue;
        char *const one = folder_path(path, folder.list.file[i].name, FOLDER_EXTENSION);
        status = one ? add_perms(perms, one) : TOOL_BAD;
        free(one);
    }
    folder_close(&folder);
    return status;
}

static int to_archive(struct job *j)
{
    struct pici_perms perms = {0};
    const double start = term_now();
    j->to.zipped = true;
    j->to.zip.output = &j->to.out;
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
    struct stat info;
    if (stat(j->o.args[0], &info) != 0)
        return tool_bad(j->o.args[0], "%s", strerror(errno));
    TRY(outfolder_open(&to, j->path, info.st_mode | (info.st_mode & 0444) >> 2, j->o.force, &none));
    j->folder = to.path;
    int status = from_operand(j);
    if (!status)
        status = outfolder_commit(&to);
    outfolder_discard(&to);
    return status;
}

int verb_extract(const struct tool_options *options)
{
    struct job j = {.o = *options, .path = options->out ? options->out : "-", .to.out.fd = -1};
    const size_t size = strlen(j.path);
    const bool folder = j.path[size - 1] == '/', zip = tool_type_of(j.path) == TYPE_NPZ;
    j.npy = tool_type_of(j.path) == TYPE_NPY;
    j.all = folder || zip;
    if (j.all && options->range.given)
        return tool_usage(j.path, "gets whole tensors: --range is for one");
    const int status = folder ? to_folder(&j) : zip ? to_archive(&j) : from_operand(&j);
    output_discard(&j.to.out);
    zipout_free(&j.to.zip);
    return status;
}
