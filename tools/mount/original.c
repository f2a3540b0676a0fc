/* SPDX-License-Identifier: BSD-3-Clause */
#include "mount/original.h"

#include <stdlib.h>
#include <string.h>

#include "input/attrs.h"
#include "input/source.h"

static int read_head(struct original *original, struct reading *reading)
{
    struct pici_attr head;
    TRY(reading_attr(reading, PICI_FILE, ATTR_HEAD, &head));
    if (!head.key || !head.len)
        return TOOL_OK;
    original->head = malloc(head.len);
    if (!original->head)
        return tool_nomem(reading->input->name, "the head of the original file");
    memcpy(original->head, head.value, head.len);
    original->head_size = head.len;
    return TOOL_OK;
}

static int add(struct original *original, const char *file, const struct original_part *part)
{
    if (original->parts == original->capacity) {
        const size_t capacity = 2 * original->capacity + 16;
        struct original_part *const bigger = realloc(original->part, capacity * sizeof *bigger);
        if (!bigger)
            return tool_nomem(file, "the list of tensors");
        original->part = bigger;
        original->capacity = capacity;
    }
    original->part[original->parts++] = *part;
    return TOOL_OK;
}

/* Adds bytes to the length of the original. */
static int grow(struct original *original, const char *file, uint64_t bytes)
{
    if (bytes > (uint64_t)INT64_MAX - original->bytes)
        return tool_bad(file, "the original is longer than a file can be");
    original->bytes += bytes;
    return TOOL_OK;
}

/* Adds the head before a tensor, and the tensor's part. Advances *head, the bytes of the head used so far. */
static int add_tensor(struct original *original, struct reading *reading, const struct pici_tensor_info *tensor,
                      struct original_part *part, size_t *head)
{
    const char *const file = reading->input->name;
    struct pici_attr attr;
    uint64_t before = original->head_size - *head;
    bool big_endian;
    TRY(reading_attr(reading, tensor->index, ATTR_DEFLATE, &attr));
    if (attr.key)
        return tool_bad(file,
                        "tensor %s is deflated in the original, which has no random access: use picitool "
                        "decompress",
                        tensor->name);
    TRY(reading_attr_is(reading, tensor->index, ATTR_ENDIAN, "big", &big_endian));
    TRY(reading_attr(reading, tensor->index, ATTR_BEFORE, &attr));
    if (attr.key && (!attrs_before(&attr, &before) || before > original->head_size - *head))
        return tool_bad(file, "tensor %s has no valid attribute " ATTR_BEFORE, tensor->name);
    *head += (size_t)before;
    TRY(grow(original, file, before));
    part->start = original->bytes;
    part->width = (uint8_t)pici_dtype_width(tensor->dtype);
    part->bytes = tensor->count * part->width; /* below 2^63 by the format's rules */
    part->head = *head;
    part->chunk_elements = tensor->chunk_elements;
    part->swap = big_endian != source_host_is_big_endian() && part->width > 1;
    TRY(grow(original, file, part->bytes));
    return add(original, file, part);
}

int original_open(struct original *original, struct reading *reading, size_t self,
                  size_t (*shard_file)(void *ctx, const char *shard), void *context)
{
    const struct original_part first = {0};
    bool is_delta;
    *original = (struct original){0};
    TRY(reading_is_delta(reading, &is_delta));
    if (is_delta)
        return tool_bad(reading->input->name, "is a delta: restore it with picitool apply and its base");
    TRY(read_head(original, reading));
    TRY(add(original, reading->input->name, &first));
    for (size_t head = 0;;) {
        struct pici_tensor_info tensor;
        bool has_more;
        TRY(reading_next(reading, &tensor, &has_more));
        if (!has_more)
            return grow(original, reading->input->name, original->head_size - head);
        struct original_part part = {.file = self, .tensor = tensor.index};
        TRY(reading_follow(reading, &tensor));
        if (reading->other.index == tensor.index) {
            part.tensor = reading->other.target;
            part.file = reading->other.shard[0] ? shard_file(context, reading->other.shard) : self;
        }
        TRY(add_tensor(original, reading, &tensor, &part, &head));
    }
}

const struct original_part *original_find(const struct original *original, uint64_t offset)
{
    size_t first = 0;
    for (size_t above = original->parts; above - first > 1;) {
        const size_t middle = first + (above - first) / 2;
        if (original->part[middle].start <= offset)
            first = middle;
        else
            above = middle;
    }
    return &original->part[first];
}

void original_free(struct original *original)
{
    free(original->head);
    free(original->part);
    *original = (struct original){0};
}
