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
#include "verbs/extract.h"

/* The item to extract: a tensor of the file, or a view of one. */
struct item {
    const char *name; /* [name_size] */
    size_t name_size;
    enum pici_dtype dtype;
    unsigned rank;
    uint64_t shape[PICI_RANK_MAX];
    uint64_t count;
    struct pici_tensor_info tensor; /* for a view: the storage */
    struct pici_view view;          /* name NULL: none, unless by_column */
    bool by_column;                 /* the first index of the tensor is fastest: `view` gives its row-major order */
    void *stored;                   /* for a view that is not row-major */
};

/* The destination of elements: a file, or an entry of an archive, which is a file itself. */
struct sink {
    struct output output;
    struct zipout zip;
    bool zipped;
};

static int sink_write(struct sink *sink, const void *data, size_t size)
{
    return sink->zipped ? zipout_write(&sink->zip, data, size) : output_write(&sink->output, data, size);
}

/* Whether the elements of a view are consecutive and unchanged in its storage. */
static bool is_run(const struct pici_view *view)
{
    uint64_t stride = 1;
    bool matches =
        !view->conjugate && !view->negative && pici_dtype_width(view->dtype) == pici_dtype_width(view->tensor_dtype);
    for (unsigned i = view->rank; view->count && i-- > 0; stride *= view->shape[i])
        matches = matches && (view->shape[i] == 1 || view->strides[i] == stride);
    return matches;
}

static int no_tensor(struct reading *reading, const struct tool_options *options, uint64_t tensors)
{
    struct suggest nearest;
    struct reading_views views = {0};
    suggest_start(&nearest, options->tensor);
    for (uint64_t i = 0; i < tensors; i++) {
        struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
        enum pici_status status = pici_reader_tensor(reading->reader, i, &tensor);
        if (status)
            return reading_failed(reading, status);
        TRY(reading_views(reading, &tensor, &views));
        if (!views.unnamed)
            suggest_word(&nearest, tensor.name);
        for (uint64_t number = 0; number < views.count; number++) {
            struct pici_view view;
            TRY(reading_view(reading, views.first + number, &view));
            suggest_word(&nearest, view.name);
        }
    }
    return tool_no_tensor(reading->input->name, &nearest);
}

static void take_tensor(struct item *item)
{
    item->name = item->tensor.name;
    item->name_size = item->tensor.name_len;
    item->dtype = item->tensor.dtype;
    item->rank = item->tensor.rank;
    item->count = item->tensor.count;
    memcpy(item->shape, item->tensor.shape, sizeof item->shape);
}

static int take_view(struct reading *reading, struct item *item)
{
    item->name = item->view.name;
    item->name_size = item->view.name_len;
    item->dtype = item->view.dtype;
    item->rank = item->view.rank;
    item->count = item->view.count;
    memcpy(item->shape, item->view.shape, sizeof item->shape);
    const enum pici_status status = pici_reader_tensor(reading->reader, item->view.tensor, &item->tensor);
    return status ? reading_failed(reading, status) : TOOL_OK;
}

/* Finds the only tensor of the file. */
static int find_only(struct reading *reading, struct item *item, uint64_t tensors)
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
            TRY(reading_view(reading, views.first, &item->view));
        if (!views.unnamed || views.count) {
            item->tensor = tensor;
            is_view = views.unnamed;
        }
    }
    if (named != 1) {
        const char *const least = named > 1 && named < tensors ? "at least " : "";
        return tool_usage(reading->input->name, "has %s%" PRIu64 " tensors: --tensor says which, -o OUT.npz takes all",
                          least, named > tensors ? named : tensors);
    }
    if (is_view)
        return take_view(reading, item);
    item->view.name = NULL;
    TRY(reading_follow(reading, &item->tensor));
    take_tensor(item);
    return TOOL_OK;
}

/* Finds the tensor of --tensor, or the only one. */
static int find(struct reading *reading, const struct tool_options *options, struct item *item)
{
    uint64_t tensors;
    int found;
    item->tensor = (struct pici_tensor_info)PICI_TENSOR_INFO_INIT;
    item->view = (struct pici_view)PICI_VIEW_INIT;
    enum pici_status status = pici_reader_count(reading->reader, &tensors);
    if (!status && !options->tensor)
        return find_only(reading, item, tensors);
    if (!status)
        status = pici_reader_find_view(reading->reader, options->tensor, strlen(options->tensor), &item->view, &found);
    if (status)
        return reading_failed(reading, status);
    if (found)
        return take_view(reading, item);
    status = pici_reader_find(reading->reader, options->tensor, strlen(options->tensor), &item->tensor);
    if (status)
        return status == PICI_E_ARG ? no_tensor(reading, options, tensors) : reading_failed(reading, status);
    TRY(reading_follow(reading, &item->tensor));
    take_tensor(item);
    return TOOL_OK;
}

/* Elements of an item of the tensor: the last dimension, if they are several, and the fastest in either order. */
static int item_elements(struct reading *reading, const struct item *item, uint64_t *elements)
{
    struct pici_attr attr;
    struct npy_type type;
    *elements = 1;
    TRY(reading_attr(reading, item->tensor.index, ATTR_NPY, &attr));
    if (attr.key && pici_npy_type(&type, attr.value, attr.len) && type.dtype == item->dtype)
        *elements = type.item_elements;
    TRY(reading_attr(reading, item->tensor.index, ATTR_DTYPE, &attr));
    const enum npy_meaning meaning = attr.key ? pici_npy_meaning_of(attr.value, attr.len, item->dtype) : NPY_NUMBER;
    if (meaning == NPY_COMPLEX || (meaning == NPY_OTHER && item->dtype == PICI_F16)) /* the latter: torch's complex32 */
        *elements = 2;
    if (!item->rank || item->shape[item->rank - 1] != *elements)
        *elements = 1;
    return TOOL_OK;
}

/* Views a tensor whose first index is fastest in row-major order. */
static int view_rows(struct reading *reading, struct item *item)
{
    uint64_t stride;
    if (item->view.name)
        return TOOL_OK;
    TRY(reading_attr_is(reading, item->tensor.index, ATTR_ORDER, "F", &item->by_column));
    if (!item->by_column)
        return TOOL_OK;
    TRY(item_elements(reading, item, &stride));
    struct pici_view *const view = &item->view;
    *view = (struct pici_view)PICI_VIEW_INIT;
    view->dtype = view->tensor_dtype = item->dtype;
    view->rank = item->rank;
    view->count = view->stored_count = item->count;
    memcpy(view->shape, item->shape, sizeof item->shape);
    const unsigned dims = item->rank - (stride != 1);
    if (dims < item->rank)
        view->strides[dims] = 1;
    for (unsigned i = 0; i < dims; stride *= view->shape[i++])
        view->strides[i] = stride;
    return TOOL_OK;
}

/* Restricts a view's part of the storage to what the elements [first, last) need. The indices of the first and the last
 * element agree up to a dimension; the dimensions after the next one take all indices. */
static void narrow(struct pici_view *view, uint64_t first, uint64_t last)
{
    uint64_t low = view->offset, high = low, row = view->count;
    bool agree = true;
    if (first == last || pici_dtype_width(view->dtype) != pici_dtype_width(view->tensor_dtype))
        return;
    last--;
    for (unsigned i = 0; i < view->rank; i++) {
        row /= view->shape[i];
        const uint64_t from = agree ? first / row : 0, to = agree ? last / row : view->shape[i] - 1;
        low += from * view->strides[i];
        high += to * view->strides[i];
        agree = agree && from == to;
        first %= row;
        last %= row;
    }
    view->stored_first = low;
    view->stored_count = high - low + 1;
}

/* Reads the part of the storage that a view needs, unless its elements are consecutive there. */
static int read_storage(struct reading *reading, struct item *item, const struct tool_options *options,
                        const struct limit *limit, uint64_t *read)
{
    const size_t width = pici_dtype_width(item->tensor.dtype);
    if ((!item->view.name && !item->by_column) || is_run(&item->view))
        return TOOL_OK;
    narrow(&item->view, options->range.first, options->range.last);
    const uint64_t bytes = item->view.stored_count * width;
    *read += bytes; /* many views may each need all of a storage for few elements */
    if (*read > limit_now(limit))
        return limit_refused(limit, reading->input->name, *read);
    item->stored = malloc((size_t)bytes + 1);
    if (!item->stored)
        return tool_nomem(reading->input->name, "the storage of the tensor");
    for (uint64_t done = 0, count; done < item->view.stored_count; done += count) {
        const uint64_t first = item->view.stored_first;
        TRY(reading_range(reading, &item->tensor, first + done, first + item->view.stored_count, &count));
        memcpy((uint8_t *)item->stored + done * width, reading->piece, (size_t)count * width);
    }
    return TOOL_OK;
}

/* Writes a header with a type that only .npy files have, if the tensor has one. *done: it has. A range counts elements,
 * even if an item has several. */
static int write_typed_header(struct reading *reading, const struct item *item, const struct tool_options *options,
                              bool fortran, struct sink *sink, bool *done)
{
    struct pici_attr attr;
    struct npy_type type;
    const uint64_t range_count = options->range.last - options->range.first;
    size_t size;
    unsigned rank = item->rank;
    *done = false;
    TRY(reading_attr(reading, item->tensor.index, ATTR_NPY, &attr));
    if (!attr.key || !pici_npy_type(&type, attr.value, attr.len) || type.dtype != item->dtype)
        return TOOL_OK;
    if (type.item_elements != 1 && (options->range.given || !rank || item->shape[--rank] != type.item_elements))
        return TOOL_OK;
    const uint64_t *const shape = options->range.given ? &range_count : item->shape;
    if (options->range.given)
        rank = 1;
    char *const header =
        pici_npy_typed_header(&size, attr.value, attr.len, fortran && !options->range.given, shape, rank);
    if (!header)
        return tool_nomem(reading->input->name, "the header of the array");
    *done = true;
    const int status = sink_write(sink, header, size);
    free(header);
    return status;
}

static int write_npy_header(struct reading *reading, const struct item *item, const struct tool_options *options,
                            struct sink *sink)
{
    char header[NPY_WRITE_ROOM];
    bool fortran = false;
    struct pici_attr attr = {ATTR_DTYPE, item->view.word, item->view.name ? strlen(item->view.word) : 0};
    if (!item->view.name) {
        bool done;
        TRY(reading_attr_is(reading, item->tensor.index, ATTR_ORDER, "F", &fortran));
        TRY(write_typed_header(reading, item, options, fortran, sink, &done));
        if (done)
            return TOOL_OK;
        TRY(reading_attr(reading, item->tensor.index, ATTR_DTYPE, &attr));
    }
    enum npy_meaning meaning = attr.key ? pici_npy_meaning_of(attr.value, attr.len, item->dtype) : NPY_NUMBER;
    unsigned rank = item->rank;
    if (meaning == NPY_COMPLEX && (options->range.given || !rank || item->shape[rank - 1] != 2))
        meaning = NPY_NUMBER; /* a range counts parts */
    rank -= meaning == NPY_COMPLEX;
    const uint64_t range_count = options->range.last - options->range.first;
    size_t size = options->range.given
                      ? pici_npy_write_header(header, item->dtype, meaning, false, &range_count, 1)
                      : pici_npy_write_header(header, item->dtype, meaning, fortran, item->shape, rank);
    return sink_write(sink, header, size);
}

/* Gets the next *count elements from `position`, at *elements. */
static int next_piece(struct reading *reading, struct item *item, uint64_t position, uint64_t last, uint64_t *count,
                      void **elements)
{
    enum { PIECE = 1 << 15 };
    static uint64_t piece[PIECE];
    const uint64_t first = item->view.name ? item->view.offset : 0;
    *elements = piece;
    if (!item->stored) {
        TRY(reading_range(reading, &item->tensor, first + position, first + last, count));
        *elements = reading->piece;
        return TOOL_OK;
    }
    *count = last - position < PIECE ? last - position : PIECE;
    const enum pici_status status = pici_view_copy(&item->view, item->stored, position, *count, piece);
    return status ? tool_bad(reading->input->name, "tensor %s: %s", item->name, pici_strerror(status)) : TOOL_OK;
}

static int copy_range(struct reading *reading, struct item *item, const struct tool_options *options, struct sink *sink,
                      struct progress *progress)
{
    const size_t width = pici_dtype_width(item->dtype);
    for (uint64_t position = options->range.first, count; position < options->range.last; position += count) {
        void *elements;
        TRY(next_piece(reading, item, position, options->range.last, &count, &elements));
        source_swap_raw(elements, (size_t)count * width, width);
        TRY(sink_write(sink, elements, (size_t)count * width));
        progress_at(progress, sink->output.position, sink->output.position);
    }
    return TOOL_OK;
}

static int copy(struct reading *reading, struct item *item, const struct tool_options *options, struct sink *sink,
                uint64_t bytes)
{
    struct progress progress;
    progress_start(&progress, reading->input->name, bytes);
    const int status = copy_range(reading, item, options, sink, &progress);
    progress_end(&progress);
    return status;
}

/* The source and the destination. */
struct job {
    struct tool_options options;
    const char *path;   /* of the output */
    bool npy, all;      /* extract all tensors, or the one of --tensor, to an archive or a folder */
    const char *folder; /* output folder for the files of all tensors; or NULL */
    struct sink to;
    struct reading_shards shards; /* of the input folder */
    const char *shard;            /* the current shard; NULL: the file is not in a folder */
    uint64_t stored;              /* bytes of all input files */
    uint64_t read;                /* bytes of storages read for views; at most the output's limit */
    char *const *names;           /* [count] tensors to write one after the other; NULL: --tensor, or the only one */
    int count;
    uint64_t tensors; /* count of extracted tensors */
};

static int open_output(struct job *job, const struct reading *reading, const char *path, uint64_t bytes)
{
    struct output *const output = &job->to.output;
    TRY(output_open(output, path, reading->input, job->options.force));
    output->limit = limit_of(&job->options, job->stored, 0);
    if (!job->options.no_sparse && !job->to.zipped)
        output_sparse(output);
    return bytes ? output_claim(output, reading->input->name, bytes) : TOOL_OK;
}

/* Writes an item. */
static int write_item(struct job *job, struct reading *reading, struct item *item, const char *path)
{
    struct tool_options *const options = &job->options;
    const uint64_t width = pici_dtype_width(item->dtype);
    if (!options->range.given || options->range.to_end)
        options->range.last = item->count;
    if (options->range.first > options->range.last || options->range.last > item->count)
        return tool_bad(reading->input->name, "tensor %s has %" PRIu64 " elements: --range exceeds them", item->name,
                        item->count);
    const uint64_t bytes = (options->range.last - options->range.first) * width;
    if (path)
        TRY(open_output(job, reading, path, bytes));
    if (options->range.given || !(job->npy || job->all)) /* else the header says the order */
        TRY(view_rows(reading, item));
    TRY(read_storage(reading, item, options, &job->to.output.limit, &job->read));
    if (job->npy || job->all)
        TRY(write_npy_header(reading, item, options, &job->to));
    return copy(reading, item, options, &job->to, bytes);
}

/* Writes a tensor as NAME.npy, an entry of the archive or a file in the folder. */
static int write_named(struct job *job, struct reading *reading, struct item *item)
{
    const char *reason;
    const size_t size = strlen(item->name);
    if (size != item->name_size)
        return tool_bad(reading->input->name, "tensor '%s' has a zero byte in its name: files and entries cannot",
                        item->name);
    char *const name = malloc(size + 5);
    if (!name)
        return tool_nomem(reading->input->name, "the name of a tensor");
    snprintf(name, size + 5, "%s.npy", item->name);
    char *const path = job->folder ? folder_path(job->folder, name, "") : NULL;
    int status = job->folder && !path ? TOOL_BAD : TOOL_OK;
    if (!status && job->folder && !shards_name_is_plain(name, size + 4, &reason))
        status = tool_bad(reading->input->name,
                          "tensor '%s' cannot be a file of its name: %s; extract it with --tensor", item->name, reason);
    if (!status && !job->folder)
        status = zipout_begin(&job->to.zip, name);
    if (!status)
        status = write_item(job, reading, item, path);
    if (!status)
        status = job->folder ? output_commit(&job->to.output) : zipout_end(&job->to.zip);
    if (job->folder)
        output_discard(&job->to.output);
    job->tensors++;
    free(path);
    free(name);
    return status;
}

/* Writes all tensors of a file, or the one of --tensor. */
static int write_all(struct job *job, struct reading *reading)
{
    struct reading_views views = {0};
    uint64_t tensors;
    enum pici_status failed = pici_reader_count(reading->reader, &tensors);
    for (uint64_t i = 0; !failed && i < tensors; i++) {
        struct item item = {.tensor = PICI_TENSOR_INFO_INIT, .view = PICI_VIEW_INIT};
        failed = pici_reader_tensor(reading->reader, i, &item.tensor);
        if (failed)
            break;
        TRY(reading_views(reading, &item.tensor, &views));
        for (uint64_t number = 0; number < views.count + !views.unnamed; number++) {
            struct item each = item;
            int status = TOOL_OK;
            if (number < views.count) {
                TRY(reading_view(reading, views.first + number, &each.view));
                TRY(take_view(reading, &each));
            } else {
                TRY(reading_follow(reading, &each.tensor));
                take_tensor(&each);
            }
            if (!job->options.tensor || (strlen(job->options.tensor) == each.name_size &&
                                         memcmp(job->options.tensor, each.name, each.name_size) == 0))
                status = write_named(job, reading, &each);
            free(each.stored);
            TRY(status);
        }
    }
    return failed ? reading_failed(reading, failed) : TOOL_OK;
}

static int write_one(struct job *job, struct reading *reading)
{
    struct item item = {0};
    TRY(find(reading, &job->options, &item));
    const double start = term_now();
    int status = write_item(job, reading, &item, job->path);
    free(item.stored);
    TRY(status);
    job->tensors++;
    const double seconds = term_now() - start;
    TRY(output_commit(&job->to.output));
    result_print(reading->input->name, reading->input->bytes, &job->to.output, true, seconds);
    return TOOL_OK;
}

/* Writes the tensors that the job names. */
static int write_names(struct job *job, struct reading *reading)
{
    for (int i = 0; i < job->count; i++) {
        job->options.tensor = job->names[i];
        job->read = 0;
        TRY(write_one(job, reading));
    }
    return TOOL_OK;
}

/* Extracts from a .pici file. of_many: the file is in a folder, and may lack the tensor. */
static int from_opened(struct job *job, struct input *input, struct reading *reading, bool of_many)
{
    struct pici_view view = PICI_VIEW_INIT;
    struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
    int found = 1;
    if (!input->regular)
        return tool_usage(input->name, "is empty or not seekable: reading a tensor needs a regular file, not a pipe");
    TRY(reading_open(reading, input, job->options.threads, true));
    if (job->shard)
        reading_in_folder(reading, job->shards, job->shard);
    if (job->all)
        return write_all(job, reading);
    if (of_many) {
        const size_t size = strlen(job->options.tensor);
        if (pici_reader_find_view(reading->reader, job->options.tensor, size, &view, &found) == PICI_OK && !found &&
            pici_reader_find(reading->reader, job->options.tensor, size, &tensor) == PICI_E_ARG)
            return TOOL_OK;
    }
    return job->names ? write_names(job, reading) : write_one(job, reading);
}

static int from_file(struct job *job, const char *path, bool of_many)
{
    struct input input;
    struct reading reading = {0};
    TRY(input_open(&input, path));
    if (!of_many) {
        job->stored = input_length(&input);
        job->to.output.limit = limit_of(&job->options, job->stored, 0);
    }
    const int status = from_opened(job, &input, &reading, of_many);
    reading_close(&reading);
    input_close(&input);
    return status;
}

static int from_files(struct job *job, const struct folder *folder)
{
    TRY(folder_expect_made(folder, false));
    if (!job->all && !job->options.tensor)
        return tool_usage(folder->path,
                          "is a folder: --tensor says which tensor, or -o OUT.npz or -o FOLDER/ all of them");
    job->stored = folder_stored_bytes(folder);
    job->to.output.limit = limit_of(&job->options, job->stored, 0);
    job->shards = folder_shards(folder);
    for (size_t i = 0; i < folder->list.files && (job->all || !job->tensors); i++) {
        const char *const name = folder->list.file[i].name;
        if (folder->list.file[i].kind != FOLDER_SHARD || !tool_has_extension(name, SHARDS_EXTENSION))
            continue;
        char *const path = folder_path(folder->path, name, FOLDER_EXTENSION);
        job->shard = name;
        const int status = path ? from_file(job, path, true) : TOOL_BAD;
        free(path);
        TRY(status);
    }
    return TOOL_OK;
}

/* Extracts from the operand to the open output. */
static int from_operand(struct job *job)
{
    const char *const path = job->options.args[0];
    struct folder folder;
    if (folder_is(path)) {
        TRY(folder_open(&folder, path));
        const int status = from_files(job, &folder);
        folder_close(&folder);
        TRY(status);
    } else {
        TRY(from_file(job, path, false));
    }
    if (job->tensors || !job->options.tensor)
        return TOOL_OK;
    return tool_bad(path, "has no tensor %s", job->options.tensor);
}

static int add_perms(struct pici_perms *perms, const char *path)
{
    struct input input;
    TRY(input_open(&input, path));
    const int status = output_perms(perms, path, input.fd);
    input_close(&input);
    return status;
}

/* The common permissions of all input files. */
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

static int to_archive(struct job *job)
{
    struct pici_perms perms = {0};
    const double start = term_now();
    job->to.zipped = true;
    job->to.zip.output = &job->to.output;
    int status = perms_of_operand(&perms, job->options.args[0]);
    if (!status)
        status = output_open_as(&job->to.output, job->path, NULL, &perms, job->options.force);
    pici_perms_free(&perms);
    TRY(status);
    TRY(from_operand(job));
    TRY(zipout_finish(&job->to.zip));
    TRY(output_commit(&job->to.output));
    result_print(job->options.args[0], job->stored, &job->to.output, true, term_now() - start);
    return TOOL_OK;
}

static int to_folder(struct job *job)
{
    const struct folder_list none = {.files = 0};
    struct outfolder folder;
    struct stat file_info;
    if (stat(job->options.args[0], &file_info) != 0)
        return tool_bad(job->options.args[0], "%s", strerror(errno));
    TRY(outfolder_open(&folder, job->path, file_info.st_mode | (file_info.st_mode & 0444) >> 2, job->options.force,
                       &none));
    job->folder = folder.path;
    int status = from_operand(job);
    if (!status)
        status = outfolder_commit(&folder);
    outfolder_discard(&folder);
    return status;
}

int extract_names(const struct tool_options *options, char *const *names, int count)
{
    struct job job = {.options = *options, .path = "-", .to.output.fd = -1, .names = names, .count = count};
    const int status = from_file(&job, options->args[0], false);
    output_discard(&job.to.output);
    return status;
}

int verb_extract(const struct tool_options *options)
{
    struct job job = {.options = *options, .path = options->out ? options->out : "-", .to.output.fd = -1};
    const size_t size = strlen(job.path);
    const bool folder = job.path[size - 1] == '/', zip = tool_type_of(job.path) == TYPE_NPZ;
    job.npy = tool_type_of(job.path) == TYPE_NPY;
    job.all = folder || zip;
    if (job.all && options->range.given)
        return tool_usage(job.path, "gets whole tensors: --range is for one");
    int status;
    if (folder)
        status = to_folder(&job);
    else
        status = zip ? to_archive(&job) : from_operand(&job);
    output_discard(&job.to.output);
    zipout_free(&job.to.zip);
    return status;
}
