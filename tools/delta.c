/* SPDX-License-Identifier: BSD-3-Clause */
#include "delta.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "attrs.h"

const char *delta_kind_name(enum delta_kind k)
{
    static const char *const names[DELTA_KINDS] = {"xor", "added", "replaced"};
    return names[k];
}

static bool is_text(const struct pici_attr *a, const char *text)
{
    return a->key && a->len == strlen(text) && memcmp(a->value, text, a->len) == 0;
}

static enum pici_status broken(struct parse_error *err, const char *rule, const char *why)
{
    parse_fail(err, 0, "not a valid delta: %s (%s)", why, rule);
    return PICI_E_CORRUPT;
}

enum pici_status delta_is(struct pici_reader *r, bool *is)
{
    struct pici_attr a;
    enum pici_status s = pici_reader_attr(r, PICI_FILE, DELTA_VERSION, &a);
    *is = !s && a.key;
    return s;
}

bool delta_removed_next(const struct pici_attr *removed, size_t *at, const char **name, size_t *len, bool *good)
{
    const uint8_t *p = removed->value;
    const size_t left = removed->len - *at;
    *good = true;
    if (!removed->key || !left)
        return false;
    *good = left >= 4;
    if (!*good)
        return false;
    p += *at;
    *len = p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
    *name = (const char *)p + 4;
    *good = *len <= left - 4;
    if (*good)
        *at += 4 + *len;
    return *good;
}

/* Reads the attributes of the file. */
static enum pici_status read_file(struct delta *d, struct pici_reader *r, struct parse_error *err)
{
    struct pici_attr a;
    const char *name;
    size_t at = 0, len;
    bool good;
    enum pici_status s = pici_reader_attr(r, PICI_FILE, DELTA_VERSION, &a);
    if (s)
        return s;
    if (!a.key)
        return broken(err, "delta-version", "the attribute delta.version is missing");
    if (!is_text(&a, "1")) {
        broken(err, "delta-version", "its version is unknown");
        return PICI_E_VERSION;
    }
    s = pici_reader_attr(r, PICI_FILE, ATTR_TYPE, &a);
    if (s)
        return s;
    for (d->type = TYPE_RAW; d->type <= TYPE_SAFETENSORS && !is_text(&a, tool_type_name(d->type));)
        d->type++;
    if (d->type > TYPE_SAFETENSORS)
        return broken(err, "delta-type", "its source.type is unknown");
    s = pici_reader_attr(r, PICI_FILE, DELTA_REMOVED, &a);
    if (s)
        return s;
    while (delta_removed_next(&a, &at, &name, &len, &good))
        d->removed++;
    return good ? PICI_OK : broken(err, "delta-removed", "the list of removed tensors is malformed");
}

/* Reads the table of hashes, which is the last tensor. */
static enum pici_status read_hashes(struct delta *d, struct pici_reader *r, struct parse_error *err)
{
    struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
    uint64_t all, *table;
    enum pici_status s = pici_reader_count(r, &all);
    if (s)
        return s;
    if (!all)
        return broken(err, "delta-hashes", "there is no table of hashes");
    d->tensors = all - 1;
    s = pici_reader_tensor(r, d->tensors, &t);
    if (s)
        return s;
    if (t.dtype != PICI_U64 || t.rank != 2 || t.shape[0] != d->tensors || t.shape[1] != 2)
        return broken(err, "delta-hashes", "the last tensor is not a table of hashes");
    /* d->tensors is bounded by the index, which has been read */
    d->kind = calloc((size_t)d->tensors + 1, sizeof *d->kind);
    d->hash = calloc((size_t)d->tensors + 1, sizeof *d->hash);
    table = calloc((size_t)d->tensors + 1, 2 * sizeof *table);
    if (!d->kind || !d->hash || !table)
        parse_fail(err, 0, "out of memory for the table of hashes");
    s = err->what[0] ? PICI_E_NOMEM : pici_reader_read_range(r, d->tensors, 0, 2 * d->tensors, table);
    for (uint64_t i = 0; !s && i < d->tensors; i++)
        d->hash[i] = (struct delta_hashes){table[2 * i], table[2 * i + 1]};
    free(table);
    return s;
}

static enum pici_status read_kind(struct delta *d, uint64_t i, struct pici_reader *r, struct parse_error *err)
{
    struct pici_attr a;
    enum delta_kind k = DELTA_XOR;
    enum pici_status s = pici_reader_attr(r, i, DELTA_KIND, &a);
    if (s)
        return s;
    while (k < DELTA_KINDS && !is_text(&a, delta_kind_name(k)))
        k++;
    if (k == DELTA_KINDS)
        return broken(err, "delta-kind", "a tensor has no valid delta.kind");
    if (k != DELTA_XOR && d->hash[i].base)
        return broken(err, "delta-hashes", "a hash of a base tensor that does not exist");
    d->kind[i] = (uint8_t)k;
    d->kinds[k]++;
    return PICI_OK;
}

enum pici_status delta_open(struct delta *d, struct pici_reader *r, struct parse_error *err)
{
    *d = (struct delta){0};
    err->what[0] = 0;
    enum pici_status s = read_file(d, r, err);
    if (!s)
        s = read_hashes(d, r, err);
    for (uint64_t i = 0; !s && i < d->tensors; i++)
        s = read_kind(d, i, r, err);
    if (s)
        delta_close(d);
    return s;
}

void delta_close(struct delta *d)
{
    free(d->kind);
    free(d->hash);
    d->kind = NULL;
    d->hash = NULL;
}
