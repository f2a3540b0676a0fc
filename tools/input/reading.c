/* SPDX-License-Identifier: BSD-3-Clause */
#include "input/reading.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "input/looks.h"
#include "parse/shards.h"
#include "tool.h"

enum { PIECE_MOST = 256 << 20 }; /* bytes; one longer chunk is still read at once */
enum { ZEROS_CHUNK = 1 << 16 };  /* elements at a time of a lost tensor */

/* The first bytes of a .pici file: its magic and version. A reader of version 2 can read the rest of both versions. */
static const uint8_t file_header[16] = {0x89, 'P', 'I', 'C', 'I', '\r', '\n', 0x1a, 2};
enum { VERSION_AT = 8, VERSION_FIRST = 1 };

int reading_kind(struct input *input, const char *path, enum reading_kind *kind)
{
    uint8_t first[8];
    size_t received;
    TRY(input_peek(input, first, sizeof first, &received));
    if (received == 8 && memcmp(first, file_header, 8) == 0)
        *kind = READING_FILE;
    else if (received >= 4 && memcmp(first, "PICI", 4) == 0)
        *kind = READING_BLOCK;
    else if (tool_has_extension(path, ".pici"))
        *kind = READING_FILE;
    else
        *kind = tool_has_extension(path, ".blk") ? READING_BLOCK : READING_OTHER;
    return TOOL_OK;
}

/* Prints the error of a reader and the consequence. The reader is the reading's, or the one for a reference's
 * target. */
static int say(const struct reading *reading, const struct pici_reader *reader, enum pici_status status,
               const char *consequence)
{
    bool of_the_bytes = status == PICI_E_CORRUPT || status == PICI_E_CHECKSUM || status == PICI_E_VERSION ||
                        status == PICI_E_UNSUPPORTED;
    if (status == PICI_E_IO && reading->input->error && !reading->keep_going)
        return tool_bad_at(reading->input->name, reading->input->position, "%s", strerror(reading->input->error));
    if (!reader)
        return tool_bad(reading->input->name, "%s", pici_strerror(status));
    const char *words = pici_reader_error(reader);
    if (!*words) /* the failure is not the reader's */
        words = pici_strerror(status);
    uint64_t offset = pici_reader_error_offset(reader);
    if (!of_the_bytes && !(status == PICI_E_IO && reading->keep_going))
        return tool_bad(reading->input->name, "%s", words);
    /* The reader has the offset inside its message; picitool's errors begin with it. */
    char midst[48];
    snprintf(midst, sizeof midst, " at byte %" PRIu64 ": ", offset);
    const char *middle = strstr(words, midst);
    if (!middle)
        return tool_bad_at(reading->input->name, offset, "%s%s", words, consequence);
    return tool_bad_at(reading->input->name, offset, "%.*s: %s%s", (int)(middle - words), words, middle + strlen(midst),
                       consequence);
}

int reading_failed(const struct reading *reading, enum pici_status status)
{
    return say(reading, reading->reader, status, "");
}

/* Whether to continue after an error; the caller then reports it with lose. */
static bool goes_on(const struct reading *reading, enum pici_status status)
{
    return reading->keep_going && status != PICI_E_NOMEM && status != PICI_E_ARG;
}

static void lose(struct reading *reading, enum pici_status status, const char *consequence)
{
    say(reading, reading->reader, status, consequence);
    reading->lost++;
}

int reading_open(struct reading *reading, struct input *input, int threads, bool at_random)
{
    *reading = (struct reading){.input = input,
                                .threads = tool_threads(threads),
                                .at_random = at_random && input->regular,
                                .other.index = PICI_FILE};
    TRY(looks_refuse(input));
    uint8_t first[INPUT_PEEK];
    char text[LOOKS_TEXT];
    size_t received = 0;
    if (!input->regular)
        TRY(input_peek(input, first, sizeof first, &received));
    struct pici_reader_opts reader_options = PICI_READER_OPTS_INIT;
    reader_options.threads = threads;
    enum pici_status status =
        reading->at_random ? pici_reader_open_at(&reading->reader, input_read_at, input, input->bytes, &reader_options)
                           : pici_reader_open_stream(&reading->reader, input_take, input, &reader_options);
    return status ? say(reading, reading->reader, status, looks_after(input, first, received, TYPE_UNSET, text))
                  : TOOL_OK;
}

/* Repairs the file header in the `size` bytes at `offset`. The header is constant, so its damage loses nothing. */
static void mend(uint8_t *bytes, size_t size, uint64_t offset)
{
    for (uint64_t i = offset; i < sizeof file_header && i - offset < size; i++)
        bytes[i - offset] = file_header[i];
}

static int mended_at(void *context, void *buffer, size_t size, uint64_t offset)
{
    int error = input_read_at(context, buffer, size, offset);
    if (!error)
        mend(buffer, size, offset);
    return error;
}

static int mended_take(void *context, void *buffer, size_t capacity, size_t *received)
{
    const uint64_t offset = ((struct input *)context)->position;
    int error = input_take(context, buffer, capacity, received);
    if (!error)
        mend(buffer, *received, offset);
    return error;
}

int reading_salvage(struct reading *reading, struct input *input, int threads, uint64_t fill_most)
{
    uint8_t header[sizeof file_header];
    size_t received;
    *reading = (struct reading){.input = input, .keep_going = true, .fill_most = fill_most, .other.index = PICI_FILE};
    TRY(input_peek(input, header, sizeof header, &received));
    if (received > VERSION_AT && header[VERSION_AT] == VERSION_FIRST)
        header[VERSION_AT] = file_header[VERSION_AT];
    if (received < sizeof header || memcmp(header, file_header, received) != 0) {
        tool_bad_at(input->name, 0, "damaged file header; trying to read it as a .pici file of version 1 or 2");
        reading->lost++;
    }
    struct pici_reader_opts reader_options = PICI_READER_OPTS_INIT;
    reader_options.threads = threads;
    enum pici_status status = PICI_E_CORRUPT;
    if (input->regular) {
        status = pici_reader_open_at(&reading->reader, mended_at, input, input->bytes, &reader_options);
        if (!status || !goes_on(reading, status)) {
            reading->at_random = true;
            reading->threads = tool_threads(threads);
            return status ? reading_failed(reading, status) : TOOL_OK;
        }
        pici_reader_close(reading->reader);
        input->position = 0;
    }
    reading->threads = 1; /* one chunk at a time, to read all chunks before an error */
    status = pici_reader_open_stream(&reading->reader, mended_take, input, NULL);
    return status ? reading_failed(reading, status) : TOOL_OK;
}

/* Whether an error at offset is in the index or the trailer, after all data. If the header of the index is damaged, the
 * trailer still has the index's offset. */
static bool of_the_end(const struct reading *reading, uint64_t offset)
{
    enum { TRAILER = 32 };
    uint8_t trailer[TRAILER];
    uint64_t index = 0;
    const char *words = pici_reader_error(reading->reader);
    if (strncmp(words, "the index", 9) == 0 || strncmp(words, "the trailer", 11) == 0)
        return true;
    if (!reading->input->regular || reading->input->bytes < TRAILER ||
        input_read_at(reading->input, trailer, TRAILER, reading->input->bytes - TRAILER))
        return false;
    for (int i = 8; i-- > 0;)
        index = index << 8 | trailer[i];
    return index == offset && memcmp(trailer + 24, "PICI.END", 8) == 0;
}

int reading_next(struct reading *reading, struct pici_tensor_info *tensor, bool *has_more)
{
    int found = 0;
    *tensor = (struct pici_tensor_info)PICI_TENSOR_INFO_INIT;
    *has_more = false;
    if (reading->broke_off)
        return TOOL_OK;
    enum pici_status status = pici_reader_next(reading->reader, tensor, &found);
    *has_more = !status && found;
    if (!status || !goes_on(reading, status))
        return status ? reading_failed(reading, status) : TOOL_OK;
    bool none = of_the_end(reading, pici_reader_error_offset(reading->reader));
    lose(reading, status, none ? "; no elements are lost" : "; all tensors that come after it are lost");
    reading->broke_off = true;
    return TOOL_OK;
}

static enum pici_status take(struct reading *reading, const struct pici_tensor_info *tensor, uint64_t first,
                             uint64_t count, void *target)
{
    if (tensor->index == reading->other.index)
        return pici_reader_read_range(reading->other.reader, reading->other.target, first, count, target);
    return reading->at_random ? pici_reader_read_range(reading->reader, tensor->index, first, count, target)
                              : pici_reader_read(reading->reader, target, count);
}

/* Reads elements [first, first + count), each chunk separately. Lost chunks become zeros. */
static int take_what_is_there(struct reading *reading, const struct pici_tensor_info *tensor, uint64_t first,
                              uint64_t count)
{
    const size_t width = pici_dtype_width(tensor->dtype);
    struct pici_reader *const reader = tensor->index == reading->other.index ? reading->other.reader : reading->reader;
    for (uint64_t done = 0, step; done < count; done += step) {
        uint8_t *target = (uint8_t *)reading->piece + (size_t)done * width;
        step = tensor->chunk_elements - (first + done) % tensor->chunk_elements;
        step = step < count - done ? step : count - done;
        enum pici_status status = take(reading, tensor, first + done, step, target);
        if (status && !goes_on(reading, status))
            return reading_failed(reading, status);
        if (status) {
            say(reading, reader, status, "; set to zero");
            reading->lost++;
            memset(target, 0, (size_t)step * width);
        }
    }
    return TOOL_OK;
}

/* Handles an error of a forward reader at element `first`. The rest of the tensor becomes zeros; it is left out if it
 * exceeds fill_most. */
static int break_off(struct reading *reading, const struct pici_tensor_info *tensor, uint64_t first, uint64_t *count,
                     enum pici_status status)
{
    char consequence[160];
    const size_t width = pici_dtype_width(tensor->dtype);
    bool too_many = tensor->count - first > reading->fill_most / width;
    snprintf(consequence, sizeof consequence,
             "; elements %" PRIu64 " to %" PRIu64 " are %s, all tensors that come after them are lost", first,
             tensor->count - 1, too_many ? "left out, more than --max-size" : "set to zero");
    lose(reading, status, consequence);
    reading->broke_off = true;
    if (too_many)
        *count = 0;
    memset(reading->piece, 0, (size_t)*count * width);
    return TOOL_OK;
}

/* Reads a whole chunk for each thread, except at the ends of a range. */
int reading_range(struct reading *reading, const struct pici_tensor_info *tensor, uint64_t first, uint64_t last,
                  uint64_t *count)
{
    size_t width = pici_dtype_width(tensor->dtype), chunk = tensor->chunk_elements * width;
    size_t chunks = PIECE_MOST / chunk;
    if (chunks > reading->threads)
        chunks = reading->threads;
    if (chunks == 0)
        chunks = 1;
    uint64_t most = (uint64_t)chunks * tensor->chunk_elements - first % tensor->chunk_elements;
    *count = last - first < most ? last - first : most;
    if (*count == 0)
        return TOOL_OK;
    size_t need = (size_t)*count * width;
    if (need > reading->piece_capacity) {
        free(reading->piece);
        reading->piece = malloc(need);
        reading->piece_capacity = reading->piece ? need : 0;
        if (!reading->piece)
            return tool_nomem(reading->input->name, "the elements of the chunks");
    }
    const bool refers = tensor->index == reading->other.index;
    if (reading->broke_off || (refers && reading->other.target == PICI_FILE)) {
        memset(reading->piece, 0, need);
        return TOOL_OK;
    }
    enum pici_status status = take(reading, tensor, first, *count, reading->piece);
    if (status && refers && !goes_on(reading, status))
        return tool_bad(reading->other.path, "%s", pici_reader_error(reading->other.reader));
    if (!status || !goes_on(reading, status))
        return status ? reading_failed(reading, status) : TOOL_OK;
    return reading->at_random || refers ? take_what_is_there(reading, tensor, first, *count)
                                        : break_off(reading, tensor, first, count, status);
}

int reading_piece(struct reading *reading, const struct pici_tensor_info *tensor, uint64_t *done, uint64_t *count)
{
    int status = reading_range(reading, tensor, *done, tensor->count, count);
    *done += *count;
    return status;
}

int reading_attr(struct reading *reading, uint64_t index, const char *key, struct pici_attr *attr)
{
    enum pici_status status = pici_reader_attr(reading->reader, index, key, attr);
    if (!status || !goes_on(reading, status))
        return status ? reading_failed(reading, status) : TOOL_OK;
    lose(reading, status,
         index == PICI_FILE ? "; the bytes before the first tensor are lost" : "; taken as little-endian");
    *attr = (struct pici_attr){NULL, NULL, 0};
    return TOOL_OK;
}

int reading_has_attrs(struct reading *reading, uint64_t index, const char *consequence, bool *has)
{
    struct pici_attr attr;
    enum pici_status status = pici_reader_attr(reading->reader, index, "", &attr);
    *has = !status;
    if (!status || !goes_on(reading, status))
        return status ? reading_failed(reading, status) : TOOL_OK;
    lose(reading, status, consequence);
    return TOOL_OK;
}

int reading_attr_is(struct reading *reading, uint64_t index, const char *key, const char *value, bool *matches)
{
    struct pici_attr attr;
    *matches = false;
    TRY(reading_attr(reading, index, key, &attr));
    *matches = attr.key && attr.len == strlen(value) && memcmp(attr.value, value, attr.len) == 0;
    return TOOL_OK;
}

int reading_is_delta(const struct reading *reading, bool *is_delta)
{
    enum pici_status status = pici_delta_is(reading->reader, is_delta);
    if (!status || !goes_on(reading, status))
        return status ? reading_failed(reading, status) : TOOL_OK;
    *is_delta = false; /* a caller that needs the attributes reports their loss */
    return TOOL_OK;
}

int reading_delta(const struct reading *reading, struct delta *delta)
{
    char reason[PICI_WHY_BYTES];
    enum pici_status status = pici_delta_open(delta, reading->reader, reason);
    if (!status)
        return TOOL_OK;
    return reason[0] ? tool_bad(reading->input->name, "%s", reason) : reading_failed(reading, status);
}

int reading_view(struct reading *reading, uint64_t index, struct pici_view *view)
{
    *view = (struct pici_view)PICI_VIEW_INIT;
    const enum pici_status status = pici_reader_view(reading->reader, index, view);
    return status ? reading_failed(reading, status) : TOOL_OK;
}

int reading_views(struct reading *reading, const struct pici_tensor_info *tensor, struct reading_views *views)
{
    struct pici_view view;
    uint64_t total;
    int unnamed = 0;
    enum pici_status status = pici_reader_view_count(reading->reader, &total);
    if (!status)
        status = pici_reader_is_unnamed(reading->reader, tensor->name, tensor->name_len, &unnamed);
    if (!status && !unnamed) { /* if a view has the same name, the name is the view's */
        view = (struct pici_view)PICI_VIEW_INIT;
        status = pici_reader_find_view(reading->reader, tensor->name, tensor->name_len, &view, &unnamed);
        status = status == PICI_E_ARG ? PICI_OK : status; /* forward: the view of a later tensor */
    }
    if (status)
        return reading_failed(reading, status);
    *views = (struct reading_views){views->first + views->count, 0, unnamed != 0};
    for (; views->first + views->count < total; views->count++) {
        view = (struct pici_view)PICI_VIEW_INIT;
        status = pici_reader_view(reading->reader, views->first + views->count, &view);
        if (status == PICI_E_ARG) /* forward: the view of a later tensor */
            break;
        if (status)
            return reading_failed(reading, status);
        if (view.tensor < tensor->index) { /* of a tensor that the caller skipped */
            views->first++;
            views->count--;
        } else if (view.tensor > tensor->index) {
            break;
        }
    }
    return TOOL_OK;
}

/* ---- references */

void reading_in_folder(struct reading *reading, struct reading_shards shards, const char *shard)
{
    reading->shards = shards;
    reading->shard = shard;
}

int reading_reference(struct reading *reading, const struct pici_tensor_info *tensor, struct reference *reference,
                      bool *is)
{
    struct parse_error error;
    struct pici_attr attr;
    *is = false;
    const enum pici_status status = pici_reader_attr(reading->reader, tensor->index, REFERENCE_ATTR, &attr);
    if (status) /* with keep_going, a caller that needs attributes reports their loss */
        return goes_on(reading, status) ? TOOL_OK : reading_failed(reading, status);
    if (!attr.key)
        return TOOL_OK;
    *is = true;
    return reference_parse(reference, attr.value, attr.len, tensor, &error)
               ? TOOL_OK
               : tool_bad(reading->input->name, "tensor %s: %s", tensor->name, error.what);
}

static void close_other(struct reading_other *other)
{
    pici_reader_close(other->reader);
    if (other->shard && other->shard[0])
        input_close(&other->input);
    free(other->shard);
    free(other->path);
    *other = (struct reading_other){.index = PICI_FILE};
}

/* Opens the file of a shard, or with "" the reading's own file again, unless it is open. other->reader is NULL if the
 * own file has no random access. */
static int open_other(struct reading *reading, const char *shard)
{
    struct reading_other *const other = &reading->other;
    struct pici_reader_opts reader_options = PICI_READER_OPTS_INIT;
    const bool own = !shard[0];
    other->index = PICI_FILE;
    if (other->shard && strcmp(other->shard, shard) == 0)
        return TOOL_OK;
    close_other(other);
    const char *const folder = own ? reading->input->name : reading->shards.folder;
    const size_t size = strlen(folder) + strlen(shard) + sizeof "/" FOLDER_EXTENSION;
    other->input.fd = -1;
    other->path = malloc(size);
    other->shard = malloc(strlen(shard) + 1);
    if (!other->path || !other->shard)
        return tool_nomem(reading->input->name, "the name of a shard");
    snprintf(other->path, size, "%s%s%s%s", folder, own ? "" : "/", shard, own ? "" : FOLDER_EXTENSION);
    strcpy(other->shard, shard);
    if (own)
        other->input = *reading->input; /* a copy: the reading's own position stays */
    else
        TRY(input_open(&other->input, other->path));
    if (!other->input.regular)
        return tool_bad(other->path, "is empty or not seekable");
    reader_options.threads = (int)reading->threads;
    const enum pici_status status = pici_reader_open_at(&other->reader, reading->keep_going ? mended_at : input_read_at,
                                                        &other->input, other->input.bytes, &reader_options);
    if (!status)
        return TOOL_OK;
    if (!own)
        return tool_bad(other->path, "%s", pici_reader_error(other->reader));
    pici_reader_close(other->reader);
    other->reader = NULL;
    return TOOL_OK;
}

/* The number of zeros for a broken reference; 0 if they exceed fill_most. */
static uint64_t zeros_of(const struct reading *reading, const struct reference *reference)
{
    return reference->count <= reading->fill_most / pici_dtype_width(reference->dtype) ? reference->count : 0;
}

/* Prints the fault of a reference. Returns TOOL_BAD; with keep_going, counts it as a loss. */
static int bad_reference(struct reading *reading, const struct pici_tensor_info *tensor,
                         const struct reference *reference, const char *what)
{
    char name[96], shard[96];
    const char *consequence = "";
    if (reading->keep_going)
        consequence =
            zeros_of(reading, reference) == reference->count ? "; set to zero" : "; left out, more than --max-size";
    tool_bad(reading->input->name, "tensor %s refers to tensor '%s' of %s, which %s%s", tensor->name,
             pici_parse_printable(name, sizeof name, reference->name, reference->name_size),
             reference->shard_size ? pici_parse_printable(shard, sizeof shard, reference->shard, reference->shard_size)
                                   : "this file",
             what, consequence);
    reading->lost += reading->keep_going;
    return TOOL_BAD;
}

static bool is_shard(const struct folder_list *list, const char *name)
{
    const struct folder_file *const file = folder_list_find(list, name);
    return file && file->kind == FOLDER_SHARD;
}

/* Finds the target of a reference. Invalidates attributes of the reading. */
static int find_target(struct reading *reading, const struct pici_tensor_info *tensor,
                       const struct reference *reference, struct pici_tensor_info *target)
{
    char shard[SHARDS_NAME_MOST + 1];
    struct pici_attr attr = {0};
    const bool alone = !reading->shard; /* references to the same file need no folder */
    if (!reading->shards.folder && (!alone || reference->shard_size))
        return bad_reference(reading, tensor, reference, "is in its folder only: read the folder, not this file");
    if (alone && !reading->input->regular)
        return bad_reference(reading, tensor, reference, "is in a regular file only, not in a pipe");
    snprintf(shard, sizeof shard, "%.*s", (int)reference->shard_size, reference->shard);
    if (reference->shard_size && !is_shard(reading->shards.list, shard))
        return bad_reference(reading, tensor, reference, "is not a shard of the folder");
    TRY(open_other(reading, reference->shard_size || alone ? shard : reading->shard));
    struct pici_reader *const reader = reading->other.reader;
    const enum pici_status status =
        reader ? pici_reader_find(reader, reference->name, reference->name_size, target) : PICI_E_CORRUPT;
    if (status == PICI_E_ARG)
        return bad_reference(reading, tensor, reference, "is not there");
    if (status || pici_reader_attr(reader, target->index, REFERENCE_ATTR, &attr))
        return alone ? bad_reference(reading, tensor, reference, "cannot be found: the index is damaged")
                     : tool_bad(reading->other.path, "%s", pici_reader_error(reader));
    if (attr.key)
        return bad_reference(reading, tensor, reference, "is a reference itself");
    if (target->dtype != reference->dtype || target->count != reference->count)
        return bad_reference(reading, tensor, reference, "has another type, or another number of elements");
    return TOOL_OK;
}

static int follow(struct reading *reading, struct pici_tensor_info *tensor, const struct reference *reference)
{
    struct pici_tensor_info target = PICI_TENSOR_INFO_INIT;
    const uint64_t lost = reading->lost;
    const int status = find_target(reading, tensor, reference, &target);
    const bool is_lost = status && reading->lost > lost;
    if (status && !is_lost)
        return status;
    tensor->dtype = reference->dtype;
    tensor->rank = reference->rank;
    memcpy(tensor->shape, reference->shape, sizeof tensor->shape);
    tensor->count = is_lost ? zeros_of(reading, reference) : reference->count;
    tensor->chunk_elements = is_lost ? ZEROS_CHUNK : target.chunk_elements;
    reading->other.index = tensor->index;
    reading->other.target = is_lost ? PICI_FILE : target.index;
    if (is_lost)
        reading->fill_most -= tensor->count * pici_dtype_width(tensor->dtype);
    return TOOL_OK;
}

int reading_follow(struct reading *reading, struct pici_tensor_info *tensor)
{
    struct reference reference;
    bool is;
    const int status = reading_reference(reading, tensor, &reference, &is);
    if (status && is && reading->keep_going) { /* its number of elements is lost too */
        reading->lost++;
        return TOOL_OK;
    }
    TRY(status);
    return is ? follow(reading, tensor, &reference) : TOOL_OK;
}

void reading_close(struct reading *reading)
{
    close_other(&reading->other);
    pici_reader_close(reading->reader);
    free(reading->piece);
    reading->reader = NULL;
    reading->piece = NULL;
}
