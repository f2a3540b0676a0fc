/* SPDX-License-Identifier: BSD-3-Clause */
#include "parse/shards.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "parse/json.h"

/* A tensor while the index is read. */
struct entry {
    struct shards_tensor tensor;
    const char *file; /* [file_len], then a NUL */
    size_t file_len;
    uint64_t offset; /* of the tensor's name in the index */
};

struct parser {
    struct json json;
    struct parse_error *err;
    struct shards *out;
    struct entry *entry; /* [count] */
    size_t count, room;
    char *end; /* out->text is used up to here; it has room for all strings of the index */
    bool has_map;
};

bool shards_name_is_plain(const char *name, size_t size, const char **reason)
{
    const uint8_t *p = (const uint8_t *)name, *const end = p + size;
    uint32_t c;
    *reason = !size                     ? "it is empty"
              : size > SHARDS_NAME_MOST ? "it is too long"
              : memchr(name, '/', size) ? "it has a slash"
                                        : NULL;
    if (!*reason && name[0] == '.' && (size == 1 || (size == 2 && name[1] == '.')))
        *reason = "it is a folder";
    if (!*reason && size >= 6 && memcmp(name, ".pici-", 6) == 0)
        *reason = "temporary files begin so";
    for (size_t k; !*reason && p < end; p += k) {
        k = pici_parse_char(p, end, &c);
        if (!k || pici_parse_hidden(c)) {
            *reason = "it has hidden characters";
            break;
        }
    }
    return !*reason;
}

bool shards_path_is_plain(const char *name, size_t size, const char **reason)
{
    *reason = size > SHARDS_NAME_MOST ? "it is too long" : NULL;
    for (size_t at = 0, n; !*reason && at <= size; at += n + 1) {
        const char *const slash = at < size ? memchr(name + at, '/', size - at) : NULL;
        n = slash ? (size_t)(slash - name) - at : size - at;
        (void)shards_name_is_plain(name + at, n, reason);
    }
    return !*reason;
}

static bool no_memory(struct parser *p)
{
    return pici_parse_fail(p->err, 0, "out of memory for the index");
}

/* Skips the value that begins with t. */
static bool skip_from(struct parser *p, struct json_token t)
{
    unsigned depth = 0;
    for (;; t = pici_json_next(&p->json)) {
        if (t.type == JSON_ERROR)
            return false;
        depth += t.type == JSON_OBJECT || t.type == JSON_ARRAY;
        depth -= t.type == JSON_OBJECT_END || t.type == JSON_ARRAY_END;
        if (!depth && t.type != JSON_KEY)
            return true;
    }
}

/* Copies a key or string, with its escapes resolved and a NUL. */
static const char *keep(struct parser *p, struct json_token t, size_t *size)
{
    const char *const text = p->end;
    *size = pici_json_string(&p->json, t, p->end);
    p->end += *size;
    *p->end++ = 0; /* the quotes leave room for it */
    return text;
}

static bool parse_metadata(struct parser *p)
{
    struct json_token t;
    if (!pici_json_expect(&p->json, JSON_OBJECT, "'metadata' is not an object", &t))
        return false;
    while (pici_json_key(&p->json, &t)) {
        const bool total = pici_json_is(&p->json, t, "total_size");
        t = pici_json_next(&p->json);
        if (total)
            p->out->has_total = pici_json_u64(&p->json, t, &p->out->total);
        if (!skip_from(p, t))
            return false;
    }
    return t.type == JSON_OBJECT_END;
}

static bool parse_entry(struct parser *p, struct json_token key)
{
    struct json_token t;
    const char *reason;
    char shown[64];
    if (!pici_json_expect(&p->json, JSON_STRING, "a tensor's file in 'weight_map' is not a string", &t))
        return false;
    if (p->count == p->room) {
        const size_t capacity = p->room ? 2 * p->room : 64;
        struct entry *const bigger = realloc(p->entry, capacity * sizeof *bigger);
        if (!bigger)
            return no_memory(p);
        p->entry = bigger;
        p->room = capacity;
    }
    struct entry *const e = &p->entry[p->count++];
    *e = (struct entry){.offset = key.start - 1};
    e->tensor.name = keep(p, key, &e->tensor.name_len);
    e->file = keep(p, t, &e->file_len);
    const size_t tail = strlen(SHARDS_EXTENSION);
    if (shards_name_is_plain(e->file, e->file_len, &reason) &&
        (e->file_len <= tail || memcmp(e->file + e->file_len - tail, SHARDS_EXTENSION, tail) != 0))
        reason = "it does not end in " SHARDS_EXTENSION;
    return !reason || pici_parse_fail(p->err, t.start - 1, "'%s' is not the name of a shard: %s",
                                      pici_parse_printable(shown, sizeof shown, e->file, e->file_len), reason);
}

static bool parse_map(struct parser *p)
{
    struct json_token t;
    if (!pici_json_expect(&p->json, JSON_OBJECT, "'weight_map' is not an object", &t))
        return false;
    p->has_map = true;
    while (pici_json_key(&p->json, &t))
        if (!parse_entry(p, t))
            return false;
    return t.type == JSON_OBJECT_END;
}

static bool parse_index(struct parser *p)
{
    struct json_token t;
    bool has_metadata = false;
    if (!pici_json_expect(&p->json, JSON_OBJECT, "the index is not a JSON object", &t))
        return false;
    while (pici_json_key(&p->json, &t)) {
        const bool map = pici_json_is(&p->json, t, "weight_map"), metadata = pici_json_is(&p->json, t, "metadata");
        if ((map && p->has_map) || (metadata && has_metadata))
            return pici_parse_fail(p->err, t.start - 1, "duplicate key '%s'", map ? "weight_map" : "metadata");
        has_metadata = has_metadata || metadata;
        if (!(map ? parse_map(p) : metadata ? parse_metadata(p) : skip_from(p, pici_json_next(&p->json))))
            return false;
    }
    if (t.type == JSON_ERROR || !pici_json_expect(&p->json, JSON_END, "", &t))
        return false;
    return p->count ||
           pici_parse_fail(p->err, 0, p->has_map ? "'weight_map' is empty" : "an index without 'weight_map'");
}

static int compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
    const int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order ? order : (a_len > b_len) - (a_len < b_len);
}

static int by_file(const void *left, const void *right)
{
    const struct entry *x = left, *y = right;
    return compare(x->file, x->file_len, y->file, y->file_len);
}

static int by_name(const void *left, const void *right)
{
    const struct shards_tensor *first = left, *second = right;
    return compare(first->name, first->name_len, second->name, second->name_len);
}

static int by_name_and_shard(const void *left, const void *right)
{
    const struct shards_tensor *first = left, *second = right;
    const int order = by_name(first, second);
    return order ? order : (first->shard > second->shard) - (first->shard < second->shard);
}

/* Of duplicates, the one that comes last in the text is reported. */
static int by_name_and_place(const void *left, const void *right)
{
    const struct entry *x = left, *y = right;
    const int order = by_name(&x->tensor, &y->tensor);
    return order ? order : (x->offset > y->offset) - (x->offset < y->offset);
}

/* Numbers the shards, and sorts the tensors. */
static bool arrange(struct parser *p)
{
    struct shards *const out = p->out;
    char shown[64];
    out->tensor = malloc(p->count * sizeof *out->tensor);
    out->shard = malloc(p->count * sizeof *out->shard);
    if (!out->tensor || !out->shard)
        return no_memory(p);
    qsort(p->entry, p->count, sizeof *p->entry, by_file);
    for (size_t i = 0; i < p->count; i++) {
        if (!i || by_file(&p->entry[i - 1], &p->entry[i]) != 0)
            out->shard[out->shards++] = p->entry[i].file;
        p->entry[i].tensor.shard = (uint32_t)(out->shards - 1);
    }
    qsort(p->entry, p->count, sizeof *p->entry, by_name_and_place);
    for (size_t i = 0; i < p->count; i++) {
        out->tensor[i] = p->entry[i].tensor;
        if (i && by_name(&out->tensor[i - 1], &out->tensor[i]) == 0)
            return pici_parse_fail(
                p->err, p->entry[i].offset, "tensor '%s' is there twice",
                pici_parse_printable(shown, sizeof shown, out->tensor[i].name, out->tensor[i].name_len));
    }
    out->tensors = p->count;
    return true;
}

bool shards_parse(struct shards *out, const void *text, size_t size, struct parse_error *error)
{
    struct parser p = {.err = error, .out = out};
    *out = (struct shards){0};
    if (size > SHARDS_TEXT_MOST)
        return pici_parse_fail(error, 0, "an index of %zu bytes, above the limit of %d", size, SHARDS_TEXT_MOST);
    pici_json_init(&p.json, text, size, 0, error);
    p.end = out->text = malloc(size + 1);
    const bool ok = (out->text || no_memory(&p)) && parse_index(&p) && arrange(&p);
    free(p.entry);
    if (!ok)
        shards_free(out);
    return ok;
}

const struct shards_tensor *shards_find(const struct shards *s, const char *name, size_t size)
{
    const struct shards_tensor key = {.name = name, .name_len = size};
    size_t low = 0;
    for (size_t high = s->tensors; low < high;) {
        const size_t middle = low + (high - low) / 2;
        if (by_name(&s->tensor[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->tensors && by_name(&s->tensor[low], &key) == 0 ? &s->tensor[low] : NULL;
}

const struct shards_tensor *shards_find_in(const struct shards *s, const char *name, size_t size, size_t shard)
{
    const struct shards_tensor *const first = shards_find(s, name, size), *const end = s->tensor + s->tensors;
    for (const struct shards_tensor *tensor = first; tensor && tensor < end && by_name(tensor, first) == 0; tensor++)
        if (tensor->shard == shard)
            return tensor;
    return first;
}

void shards_sort(struct shards *s)
{
    if (s->tensors)
        qsort(s->tensor, s->tensors, sizeof *s->tensor, by_name_and_shard);
}

void shards_free(struct shards *s)
{
    free(s->tensor);
    free(s->shard);
    free(s->text);
    *s = (struct shards){0};
}
