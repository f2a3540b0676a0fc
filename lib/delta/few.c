/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Tensors with few changed elements, as one table for all of them; identities of states. */
#include <stdlib.h>
#include <string.h>

#include "delta/delta.h"

size_t pici_varint_put(uint8_t *output, uint64_t value)
{
    size_t bytes = 0;
    for (; value > 127; value >>= 7)
        output[bytes++] = (uint8_t)(value | 128);
    output[bytes++] = (uint8_t)value;
    return bytes;
}

/* Reads a number that ends before `end`. Returns its bytes; 0 if there is none, or its encoding is not the shortest. */
static size_t get_number(uint64_t *value, const uint8_t *input, const uint8_t *end)
{
    uint64_t total = 0;
    for (size_t i = 0; i < DELTA_VARINT_MOST && input + i < end; i++) {
        const uint64_t bits = input[i] & 127;
        if (i == DELTA_VARINT_MOST - 1 && bits > 1)
            return 0;
        total |= bits << 7 * i;
        if (input[i] < 128) {
            *value = total;
            return i && !bits ? 0 : i + 1;
        }
    }
    return 0;
}

/* Reads the next number. Returns 1, 0 if it may be incomplete, or -1 if it is malformed. */
static int next_number(uint64_t *value, const uint8_t **next, const uint8_t *end)
{
    const size_t bytes = get_number(value, *next, end);
    *next += bytes;
    if (bytes)
        return 1;
    size_t more = 0;
    while (*next + more < end && (*next)[more] > 127)
        more++;
    return *next + more == end && more < DELTA_VARINT_MOST ? 0 : -1;
}

/* Parses one entry. Returns 1, 0 if it may be incomplete, or -1 if it breaks a rule. */
static int parse_entry(struct delta_few *entry, const uint8_t *table, size_t from, size_t size, uint64_t first)
{
    const uint8_t *next = table + from, *const end = table + size;
    uint64_t gap, changes;
    int have = next_number(&gap, &next, end);
    if (have < 1)
        return have;
    if (end - next < 16)
        return 0;
    if (gap > UINT64_MAX - first)
        return -1;
    entry->number = first + gap;
    entry->hash = (struct delta_hashes){load_le64(next), load_le64(next + 8)};
    next += 16;
    if ((have = next_number(&changes, &next, end)) < 1)
        return have;
    if (changes == UINT64_MAX)
        return -1;
    entry->changes = changes + 1;
    entry->offset = (size_t)(next - table);
    for (uint64_t i = 0, element = 0, xored; i < entry->changes; i++) {
        if ((have = next_number(&gap, &next, end)) < 1 || (have = next_number(&xored, &next, end)) < 1)
            return have;
        if (!xored || gap >= UINT64_MAX - element)
            return -1;
        element += gap + 1;
    }
    entry->end = (size_t)(next - table);
    return 1;
}

size_t pici_few_parse(struct delta *delta, const uint8_t *table, size_t from, size_t size, bool *nomem)
{
    *nomem = false;
    while (from < size) {
        struct delta_few entry;
        const uint64_t first = delta->few_count ? delta->few[delta->few_count - 1].number + 1 : 0;
        const int have = parse_entry(&entry, table, from, size, first);
        if (have == 0)
            break;
        if (have < 0 || entry.number >= delta->base_tensors)
            return SIZE_MAX;
        if ((delta->few_count & (delta->few_count - 1)) == 0) {
            struct delta_few *const more =
                realloc(delta->few, (delta->few_count ? 2 * delta->few_count : 1) * sizeof *more);
            *nomem = !more;
            if (!more)
                return SIZE_MAX;
            delta->few = more;
        }
        delta->few[delta->few_count++] = entry;
        from = entry.end;
    }
    return from;
}

void pici_few_begin(struct few_cursor *cursor, const struct delta *delta, const struct delta_few *few)
{
    *cursor = (struct few_cursor){delta->few_bytes + few->offset, delta->few_bytes + few->end, few->changes, 0};
}

int pici_few_apply(struct few_cursor *cursor, uint8_t *elements, uint64_t from, uint64_t count, unsigned width)
{
    while (cursor->remaining) {
        uint64_t gap = 0, xored = 0;
        size_t bytes = get_number(&gap, cursor->next, cursor->end);
        const uint64_t element = cursor->element + gap;
        if (element >= from && element - from >= count)
            return 1;
        bytes += get_number(&xored, cursor->next + bytes, cursor->end);
        if (width < 8 && xored >> 8 * width)
            return 0;
        uint8_t stored[8];
        store_le64(stored, xored);
        for (unsigned byte = 0; element >= from && byte < width; byte++)
            elements[(element - from) * width + byte] ^= stored[PICI_BIG_ENDIAN ? width - 1 - byte : byte];
        cursor->next += bytes;
        cursor->element = element + 1;
        cursor->remaining--;
    }
    return 1;
}

static void add_number(struct pici_xxh64 *hash, uint64_t number)
{
    uint8_t stored[8];
    store_le64(stored, number);
    pici_xxh64_update(hash, stored, sizeof stored);
}

void pici_identity_add(struct pici_xxh64 *identity, const char *name, size_t name_bytes, const char *dtype,
                       size_t dtype_bytes, unsigned rank, const uint64_t *shape, uint64_t hash)
{
    add_number(identity, name_bytes);
    pici_xxh64_update(identity, name, name_bytes);
    add_number(identity, dtype_bytes);
    pici_xxh64_update(identity, dtype, dtype_bytes);
    add_number(identity, rank);
    for (unsigned i = 0; i < rank; i++)
        add_number(identity, shape[i]);
    add_number(identity, hash);
}

uint64_t pici_state_identity(struct pici_state *state, const uint64_t *hash)
{
    struct state_tensor *const *const ordered = pici_state_by_name(state);
    struct pici_xxh64 identity;
    pici_xxh64_init(&identity, 0);
    for (size_t i = 0; i < state->count; i++)
        pici_identity_add(&identity, ordered[i]->name, ordered[i]->name_bytes, ordered[i]->dtype_text,
                          strlen(ordered[i]->dtype_text), ordered[i]->rank, ordered[i]->shape,
                          hash[ordered[i] - state->tensors]);
    return pici_xxh64_digest(&identity);
}
