/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Bodies of META, TENS and TABL records as LZ4 blocks. The format is LZ4's, so other programs can read it. A block does
 * not contain its length or its content's length: the record's header, or the index, has both. */
#include <string.h>

#include "file/lz4.h"

/* A block is sequences: a byte with two lengths of 4 bits, literals, and a copy of 4 or more earlier bytes, given by
 * its distance. The last sequence has no copy. A length of 15 continues in bytes, up to one below 255. */
enum { COPY_LEAST = 4, DISTANCE_MOST = 65535, LENGTH_SHORT = 15 };
enum { LAST_LITERALS = 5, COPY_BEFORE_END = 12 }; /* least bytes of content after a copy's end, and after its begin */
enum { SLOT_BITS = 12 };

static unsigned slot_of(const uint8_t *bytes)
{
    return load_le32(bytes) * UINT32_C(2654435761) >> (32 - SLOT_BITS);
}

/* The block so far. full: something did not fit. */
struct output {
    uint8_t *block;
    size_t size, capacity;
    int full;
};

static void put_length(struct output *output, size_t length)
{
    for (; length >= 255 && output->size < output->capacity; length -= 255)
        output->block[output->size++] = 255;
    output->full = output->full || output->size >= output->capacity;
    if (!output->full)
        output->block[output->size++] = (uint8_t)length;
}

/* The 4 bits of a length in the byte that a sequence begins with. */
static unsigned short_length(size_t length)
{
    return length < LENGTH_SHORT ? (unsigned)length : LENGTH_SHORT;
}

/* A sequence; copied is 0 in the last. */
static void put_sequence(struct output *output, const uint8_t *literals, size_t literal_count, size_t distance,
                         size_t copied)
{
    const size_t copy_excess = copied ? copied - COPY_LEAST : 0;
    output->full = output->full || output->capacity - output->size < 1 + literal_count + 2;
    if (output->full)
        return;
    output->block[output->size++] = (uint8_t)(short_length(literal_count) << 4 | short_length(copy_excess));
    if (literal_count >= LENGTH_SHORT)
        put_length(output, literal_count - LENGTH_SHORT);
    if (output->full || output->capacity - output->size < literal_count + 2) {
        output->full = 1;
        return;
    }
    if (literal_count)
        memcpy(output->block + output->size, literals, literal_count);
    output->size += literal_count;
    if (!copied)
        return;
    output->block[output->size++] = (uint8_t)distance;
    output->block[output->size++] = (uint8_t)(distance >> 8);
    if (copy_excess >= LENGTH_SHORT)
        put_length(output, copy_excess - LENGTH_SHORT);
}

size_t pici_lz4_compress(uint8_t *destination, size_t capacity, const uint8_t *source, size_t size)
{
    uint32_t last[1 << SLOT_BITS] = {0}; /* 1 + the last position of 4 bytes with this slot; 0: none */
    struct output output = {.block = destination, .capacity = capacity};
    size_t literals = 0, position = 0;
    while (size >= COPY_BEFORE_END && position <= size - COPY_BEFORE_END && !output.full) {
        uint32_t *const slot = &last[slot_of(source + position)];
        const size_t before = *slot ? *slot - 1 : SIZE_MAX;
        *slot = (uint32_t)position + 1;
        if (before == SIZE_MAX || position - before > DISTANCE_MOST ||
            memcmp(source + before, source + position, COPY_LEAST) != 0) {
            position++;
            continue;
        }
        size_t source_at = before, copied = COPY_LEAST;
        while (position + copied < size - LAST_LITERALS && source[source_at + copied] == source[position + copied])
            copied++;
        for (; position > literals && source_at && source[source_at - 1] == source[position - 1];
             source_at--, position--)
            copied++;
        put_sequence(&output, source + literals, position - literals, position - source_at, copied);
        for (size_t copy_end = position + copied; position < copy_end; position++)
            if (position <= size - COPY_BEFORE_END)
                last[slot_of(source + position)] = (uint32_t)position + 1;
        literals = position;
    }
    put_sequence(&output, source + literals, size - literals, 0, 0);
    return output.full ? 0 : output.size;
}

/* Adds the bytes that follow a short length of 15. Returns 0 if the block ends before they do, or the length exceeds
 * `maximum`. */
static int take_length(const uint8_t *source, size_t size, size_t *position, size_t *length, size_t maximum)
{
    uint8_t excess = 255;
    while (excess == 255) {
        if (*position == size || *length > maximum)
            return 0;
        excess = source[(*position)++];
        *length += excess;
    }
    return 1;
}

int pici_lz4_decompress(uint8_t *destination, size_t count, const uint8_t *source, size_t size)
{
    size_t position = 0, output_size = 0;
    while (position < size) {
        const unsigned lengths = source[position++];
        size_t literals = lengths >> 4, copied = lengths & 15;
        if (literals == LENGTH_SHORT && !take_length(source, size, &position, &literals, count))
            return 0;
        if (literals > size - position || literals > count - output_size)
            return 0;
        memcpy(destination + output_size, source + position, literals);
        position += literals;
        output_size += literals;
        if (position == size)
            return output_size == count;
        if (size - position < 2 || count - output_size < COPY_BEFORE_END)
            return 0;
        const size_t distance = source[position] | (size_t)source[position + 1] << 8;
        position += 2;
        if (copied == LENGTH_SHORT && !take_length(source, size, &position, &copied, count))
            return 0;
        copied += COPY_LEAST;
        if (!distance || distance > output_size || copied > count - output_size - LAST_LITERALS)
            return 0;
        for (const uint8_t *from = destination + output_size - distance; copied; copied--)
            destination[output_size++] = *from++;
    }
    return 0;
}
