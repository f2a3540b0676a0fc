/* SPDX-License-Identifier: BSD-3-Clause */
#include "parse/reference.h"

#include <stdlib.h>
#include <string.h>

#include "parse/shards.h"

static uint64_t take(const uint8_t *bytes, unsigned size)
{
    uint64_t number = 0;
    for (unsigned i = size; i-- > 0;)
        number = number << 8 | bytes[i];
    return number;
}

static void put(char *bytes, uint64_t number, unsigned size)
{
    for (unsigned i = 0; i < size; i++)
        bytes[i] = (char)(number >> 8 * i);
}

/* The number of elements of the shape, if they have less than 2^63 bytes. */
static bool multiply(struct reference *reference)
{
    const uint64_t most = (UINT64_C(1) << 63) - 1;
    const size_t width = pici_dtype_width(reference->dtype);
    bool empty = false;
    for (unsigned i = 0; i < reference->rank; i++)
        empty = empty || !reference->shape[i];
    reference->count = !empty;
    for (unsigned i = 0; !empty && i < reference->rank; i++) {
        if (reference->shape[i] > most / width / reference->count)
            return false;
        reference->count *= reference->shape[i];
    }
    return true;
}

bool reference_parse(struct reference *reference, const void *value, size_t size, const struct pici_tensor_info *stored,
                     struct parse_error *error)
{
    const uint8_t *const bytes = value;
    const char *reason;
    if (stored->dtype != PICI_U8 || stored->rank != 1 || stored->count)
        return pici_parse_fail(error, 0, "a reference that is not u8 of shape [0]");
    if (size < REFERENCE_HEAD || take(bytes + 4, 4))
        return pici_parse_fail(error, 0, "a malformed reference");
    *reference = (struct reference){
        .dtype = (enum pici_dtype)bytes[0], .rank = bytes[1], .shard_size = (size_t)take(bytes + 2, 2)};
    const size_t names_at = REFERENCE_HEAD + 8 * (size_t)reference->rank;
    if (!pici_dtype_width(reference->dtype) || reference->rank > PICI_RANK_MAX || size < names_at ||
        size - names_at < reference->shard_size || size - names_at - reference->shard_size > PICI_NAME_MAX)
        return pici_parse_fail(error, 0, "a malformed reference");
    for (unsigned i = 0; i < reference->rank; i++)
        reference->shape[i] = take(bytes + REFERENCE_HEAD + 8 * i, 8);
    if (!multiply(reference))
        return pici_parse_fail(error, REFERENCE_HEAD, "a reference to more than 2^63 bytes");
    reference->shard = (const char *)bytes + names_at;
    reference->name = reference->shard + reference->shard_size;
    reference->name_size = size - names_at - reference->shard_size;
    if (reference->shard_size && !shards_path_is_plain(reference->shard, reference->shard_size, &reason))
        return pici_parse_fail(error, names_at, "a reference to a shard whose name is not valid: %s", reason);
    return true;
}

char *reference_value(const struct reference *reference, size_t *size)
{
    const size_t names_at = REFERENCE_HEAD + 8 * (size_t)reference->rank;
    *size = names_at + reference->shard_size + reference->name_size;
    char *const value = calloc(1, *size + 1);
    if (!value)
        return NULL;
    put(value, (uint64_t)reference->dtype, 1);
    put(value + 1, reference->rank, 1);
    put(value + 2, reference->shard_size, 2);
    for (unsigned i = 0; i < reference->rank; i++)
        put(value + REFERENCE_HEAD + 8 * i, reference->shape[i], 8);
    if (reference->shard_size)
        memcpy(value + names_at, reference->shard, reference->shard_size);
    if (reference->name_size)
        memcpy(value + names_at + reference->shard_size, reference->name, reference->name_size);
    return value;
}
