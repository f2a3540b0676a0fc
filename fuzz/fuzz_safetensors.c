/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Any bytes as a .safetensors file, and as the header text of one. Accepted headers are consistent, and give the
 * same result whether the file's length is known or not. */
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "parse/safetensors.h"

#define CHECK(x)                                                                                                       \
    do {                                                                                                               \
        if (!(x))                                                                                                      \
            abort();                                                                                                   \
    } while (0)

static void check(const struct safetensors *s)
{
    uint64_t end = s->data_offset;
    for (size_t i = 0; i < s->count; i++) {
        const struct safetensors_tensor *t = &s->tensors[i];
        uint64_t items = 1;
        for (unsigned d = 0; d < t->rank; d++)
            CHECK(parse_mul(&items, items, t->shape[d], UINT64_MAX));
        CHECK(items == t->items && t->begin == end && t->begin <= t->end);
        CHECK(t->count * pici_dtype_width(t->dtype) == t->end - t->begin);
        CHECK(!t->item_elements || t->count == items * t->item_elements);
        CHECK(t->name[t->name_bytes] == '\0');
        CHECK(t->header_offset >= SAFETENSORS_PREFIX_BYTES && t->header_offset < s->data_offset);
        for (size_t k = 0; k < i && k < 20; k++)
            CHECK(t->name_bytes != s->tensors[k].name_bytes || memcmp(t->name, s->tensors[k].name, t->name_bytes));
        end = t->end;
    }
    CHECK(end == s->file_bytes && end <= (uint64_t)INT64_MAX);
}

static void parse(const uint8_t *file, size_t len)
{
    struct safetensors a, b;
    struct parse_error err = {.offset = UINT64_MAX};
    uint64_t need;
    if (!pici_safetensors_header_bytes(&need, file, len < 8 ? len : 8, &err)) {
        CHECK(err.offset <= len && err.what[0]);
        return;
    }
    size_t n = need < len ? (size_t)need : len;
    uint8_t *head = malloc(n); /* exact size, so that a sanitizer knows its end */
    if (!head)
        return;
    memcpy(head, file, n);
    bool unknown = pici_safetensors_parse(&a, head, n, UINT64_MAX, &err);
    if (!unknown)
        CHECK(err.offset <= n && err.what[0] && !a.tensors && !a.names && !a.shapes);
    bool known = pici_safetensors_parse(&b, head, n, len, &err);
    CHECK(known || (err.offset <= len && err.what[0]));
    CHECK(known == (unknown && a.file_bytes == len));
    if (unknown) {
        check(&a);
        CHECK(!known || (a.count == b.count && a.file_bytes == b.file_bytes));
    }
    if (known)
        pici_safetensors_free(&b);
    if (unknown) { /* it must accept the length that it asks for */
        CHECK(pici_safetensors_parse(&b, head, n, a.file_bytes, &err) && b.count == a.count);
        pici_safetensors_free(&b);
        pici_safetensors_free(&a);
    }
    free(head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    parse(data, len);
    uint8_t *file = malloc(8 + len); /* as text, after its length */
    if (!file)
        return 0;
    for (int i = 0; i < 8; i++)
        file[i] = (uint8_t)((uint64_t)len >> 8 * i);
    if (len)
        memcpy(file + 8, data, len);
    parse(file, 8 + len);
    free(file);
    return 0;
}
