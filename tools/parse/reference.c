/* SPDX-License-Identifier: BSD-3-Clause */
#include "parse/reference.h"

#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "file/file.h"
#include "parse/shards.h"

bool reference_parse(struct reference *reference, const void *value, size_t size, const struct pici_tensor_info *stored,
                     struct parse_error *error)
{
    const uint8_t *const bytes = value;
    const char *reason;
    if (stored->dtype != PICI_U8 || stored->rank != 1 || stored->count)
        return pici_parse_fail(error, 0, "a reference that is not u8 of shape [0]");
    if (size < REFERENCE_HEAD || load_le32(bytes + 4))
        return pici_parse_fail(error, 0, "a malformed reference");
    *reference = (struct reference){
        .dtype = (enum pici_dtype)bytes[0], .rank = bytes[1], .shard_size = (size_t)(bytes[2] | bytes[3] << 8)};
    const size_t names_at = REFERENCE_HEAD + 8 * (size_t)reference->rank;
    if (!pici_dtype_width(reference->dtype) || reference->rank > PICI_RANK_MAX || size < names_at ||
        size - names_at < reference->shard_size || size - names_at - reference->shard_size > PICI_NAME_MAX)
        return pici_parse_fail(error, 0, "a malformed reference");
    for (unsigned i = 0; i < reference->rank; i++)
        reference->shape[i] = load_le64(bytes + REFERENCE_HEAD + 8 * i);
    if (!pici_shape_count(&reference->count, reference->rank, reference->shape, pici_dtype_width(reference->dtype)))
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
    value[0] = (char)reference->dtype;
    value[1] = (char)reference->rank;
    value[2] = (char)reference->shard_size;
    value[3] = (char)(reference->shard_size >> 8);
    for (unsigned i = 0; i < reference->rank; i++)
        store_le64(value + REFERENCE_HEAD + 8 * i, reference->shape[i]);
    if (reference->shard_size)
        memcpy(value + names_at, reference->shard, reference->shard_size);
    if (reference->name_size)
        memcpy(value + names_at + reference->shard_size, reference->name, reference->name_size);
    return value;
}
