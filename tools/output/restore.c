/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/restore.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "input/attrs.h"
#include "input/deflated.h"
#include "input/source.h"
#include "parse/unzip.h"

/* A tensor being restored. */
struct moved {
    struct restore *restore;
    const struct pici_tensor_info *tensor;
    struct deflater *deflater; /* NULL: it is not deflated */
    struct deflated deflated;
    size_t head_before; /* head bytes before it, without `header` */
    size_t header;      /* head bytes that are deflated with it */
    bool big_endian;
    uint64_t lost; /* losses reported before this tensor */
};

int restore_open(struct restore *restore, struct reading *reading, struct output *output)
{
    struct pici_attr head;
    *restore = (struct restore){.reading = reading, .output = output};
    const uint64_t lost = reading->lost;
    TRY(reading_attr(reading, PICI_FILE, ATTR_HEAD, &head));
    restore->head_lost = reading->lost > lost;
    if (!head.key || !head.len)
        return TOOL_OK;
    restore->head = malloc(head.len); /* reading other attributes moves this one */
    if (!restore->head)
        return tool_nomem(reading->input->name, "the head of the original file");
    memcpy(restore->head, head.value, head.len);
    restore->head_size = head.len;
    TRY(reading_attr(reading, PICI_FILE, ATTR_TYPE, &head));
    for (int type = 0; head.key && type < TYPES; type++) {
        const char *name = tool_type_name((enum tool_type)type);
        restore->in_parts |= tool_type_is_zip((enum tool_type)type) && head.len == strlen(name) &&
                             memcmp(head.value, name, head.len) == 0;
    }
    return TOOL_OK;
}

int restore_no_zlib(const char *file, const char *tensor)
{
    return tool_bad(file, "tensor %s: this build has no zlib to deflate it again; picitool extract gives its elements",
                    tensor);
}

/* Prints the fault. With keep_going, counts it as a loss and continues. */
static int refuse(const struct moved *moved, const char *what, const char *key)
{
    struct reading *reading = moved->restore->reading;
    tool_bad(reading->input->name, "tensor %s %s%s", moved->tensor->name, what, key);
    reading->lost += reading->keep_going;
    return reading->keep_going ? TOOL_OK : TOOL_BAD;
}

static int bad_attr(const struct moved *moved, const char *key)
{
    return refuse(moved, "has no valid attribute ", key);
}

/* The head bytes before a tensor whose attribute is lost. In a zip file, each tensor follows a part of the head: this
 * part is left for later. In other types, the whole head precedes the first tensor. */
static size_t before_unknown(const struct restore *restore)
{
    return restore->in_parts ? 0 : restore->head_size - restore->head_position;
}

/* Reads the number of head bytes before the tensor; by default all that are left. */
static int find_before(struct moved *moved)
{
    const struct restore *restore = moved->restore;
    const size_t remaining = restore->head_size - restore->head_position;
    struct pici_attr attr;
    uint64_t bytes;
    TRY(reading_attr(restore->reading, moved->tensor->index, ATTR_BEFORE, &attr));
    moved->head_before = remaining;
    if (!attr.key || restore->head_lost)
        return TOOL_OK;
    moved->head_before = before_unknown(restore);
    if (!attrs_before(&attr, &bytes))
        return bad_attr(moved, ATTR_BEFORE);
    moved->head_before = bytes < remaining ? (size_t)bytes : remaining;
    return bytes > remaining ? bad_attr(moved, ATTR_BEFORE) : TOOL_OK;
}

/* Reads whether to deflate the tensor. */
static int find_deflated(struct moved *moved)
{
    struct restore *restore = moved->restore;
    struct pici_attr attr;
    TRY(reading_attr(restore->reading, moved->tensor->index, ATTR_DEFLATE, &attr));
    if (!attr.key)
        return TOOL_OK;
    if (!deflated_parse(&moved->deflated, attr.value, attr.len,
                        moved->tensor->count * pici_dtype_width(moved->tensor->dtype)) ||
        (moved->deflated.header > moved->head_before && !restore->head_lost && restore->reading->lost == moved->lost))
        return bad_attr(moved, ATTR_DEFLATE);
    if (!unzip_inflates())
        return restore->reading->keep_going
                   ? refuse(moved, "was deflated; this build has no zlib", ", and writes it unchanged")
                   : restore_no_zlib(restore->reading->input->name, moved->tensor->name);
    moved->header = moved->deflated.header < moved->head_before ? (size_t)moved->deflated.header : moved->head_before;
    moved->head_before -= moved->header;
    moved->deflater = deflater_new((int)moved->deflated.level);
    return moved->deflater ? TOOL_OK : tool_nomem(restore->reading->input->name, "deflating a tensor");
}

static int put_head(struct restore *restore, size_t bytes)
{
    const int status = bytes ? output_write(restore->output, restore->head + restore->head_position, bytes) : TOOL_OK;
    restore->head_position += bytes;
    return status;
}

static int put(struct moved *moved, const void *data, size_t bytes, bool last)
{
    struct output *output = moved->restore->output;
    if (!moved->deflater)
        return output_write(output, data, bytes);
    return deflater_put(moved->deflater, data, bytes, last, output_put, output) ? output_failed(output) : TOOL_OK;
}

/* Checks the deflated data. Reported losses of a damaged file change it, and are no error here. */
static int check(const struct moved *moved)
{
    struct reading *reading = moved->restore->reading;
    if (!moved->deflater || moved->restore->head_lost || reading->lost > moved->lost ||
        (deflater_bytes(moved->deflater) == moved->deflated.bytes &&
         deflater_crc(moved->deflater) == moved->deflated.crc))
        return TOOL_OK;
    tool_bad(reading->input->name, "tensor %s: zlib %s does not reproduce the original's deflated bytes, as %s did%s",
             moved->tensor->name, unzip_version(), moved->deflated.version,
             reading->keep_going ? "" : "; extract gives the elements");
    reading->lost += reading->keep_going;
    return reading->keep_going ? TOOL_OK : TOOL_BAD;
}

static int move(struct moved *moved, struct progress *progress)
{
    struct restore *restore = moved->restore;
    struct reading *reading = restore->reading;
    const size_t width = pici_dtype_width(moved->tensor->dtype);
    TRY(put_head(restore, moved->head_before));
    if (moved->deflater)
        TRY(put(moved, restore->head + restore->head_position, moved->header, false));
    restore->head_position += moved->header;
    for (uint64_t done = 0, count;;) {
        TRY(reading_piece(reading, moved->tensor, &done, &count));
        if (!count)
            break;
        if (moved->big_endian != source_host_is_big_endian())
            source_swap(reading->piece, (size_t)count * width, width);
        TRY(put(moved, reading->piece, (size_t)count * width, false));
        progress_at(progress, reading->input->position, restore->output->position);
    }
    if (moved->deflater)
        TRY(put(moved, "", 0, true));
    return check(moved);
}

/* Reads how the tensor was stored, and writes it. */
static int find_and_move(struct moved *moved, struct progress *progress)
{
    struct reading *const reading = moved->restore->reading;
    bool attrs;
    TRY(reading_has_attrs(reading, moved->tensor->index,
                          moved->restore->in_parts
                              ? "; taken as little-endian and not deflated, and what stood before it comes "
                                "after it"
                              : "; taken as little-endian",
                          &attrs));
    if (attrs) {
        TRY(reading_attr_is(reading, moved->tensor->index, ATTR_ENDIAN, "big", &moved->big_endian));
        TRY(find_before(moved));
        TRY(find_deflated(moved));
    }
    return move(moved, progress);
}

int restore_tensor(struct restore *restore, const struct pici_tensor_info *tensor, struct progress *progress)
{
    struct moved moved = {
        .restore = restore, .tensor = tensor, .head_before = before_unknown(restore), .lost = restore->reading->lost};
    const int status = find_and_move(&moved, progress);
    deflater_free(moved.deflater);
    return status;
}

int restore_end(struct restore *restore)
{
    return put_head(restore, restore->head_size - restore->head_position);
}

void restore_close(struct restore *restore)
{
    free(restore->head);
    restore->head = NULL;
}
