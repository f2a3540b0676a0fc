/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Any bytes as a .npy file, and as the header text of one. Accepted headers are consistent, and give the same result
 * whether the file's length is known or not. */
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "parse/npy.h"

#define CHECK(x)                                                                                                       \
    do {                                                                                                               \
        if (!(x))                                                                                                      \
            abort();                                                                                                   \
    } while (0)

static void check(const struct npy *a)
{
    uint64_t items = 1;
    CHECK(a->rank <= NPY_MAX_RANK);
    for (unsigned i = 0; i < a->rank; i++)
        items *= a->shape[i]; /* an overflow on the way does not matter if a zero follows */
    CHECK(items == a->items && a->count == items * a->item_elements);
    CHECK(a->data_bytes == a->count * pici_dtype_width(a->dtype));
    CHECK(a->data_offset <= NPY_MAX_HEADER_BYTES && a->data_bytes <= (uint64_t)INT64_MAX - a->data_offset);
    CHECK(memchr(a->descr, 0, sizeof a->descr));
}

/* The type of an accepted header must parse as the same type, alone and in a new header. */
static void check_type(const struct npy *a, const uint8_t *head)
{
    struct npy_type type;
    struct npy b;
    struct parse_error err;
    size_t len, header_len;
    char *literal = pici_npy_literal(&len, head, a);
    CHECK(literal && len >= a->type_bytes);
    if (len <= NPY_MAX_HEADER_TEXT / 2) {
        CHECK(pici_npy_type(&type, literal, len) && type.plain == a->plain);
        CHECK(type.dtype == a->dtype && type.item_elements == a->item_elements && type.swap == a->swap);
        const unsigned rank = a->rank < NPY_WRITE_RANK ? a->rank : NPY_WRITE_RANK;
        char *header = pici_npy_typed_header(&header_len, literal, len, a->fortran_order, a->shape, rank);
        CHECK(header && header_len % 64 == 0);
        if (rank == a->rank) {
            CHECK(pici_npy_parse(&b, (const uint8_t *)header, header_len, UINT64_MAX, &err));
            CHECK(b.dtype == a->dtype && b.count == a->count && !b.swap && b.plain == a->plain);
        }
        free(header);
    }
    free(literal);
}

static void parse(const uint8_t *file, size_t len)
{
    struct npy a, b;
    struct parse_error err = {.offset = UINT64_MAX};
    uint64_t need;
    uint8_t first[NPY_PREFIX_BYTES] = {0};
    size_t have = len < sizeof first ? len : sizeof first;
    memcpy(first, file, have);
    if (!pici_npy_header_bytes(&need, first, have, &err)) {
        CHECK(err.offset <= len && err.what[0]);
        return;
    }
    CHECK(need >= NPY_PREFIX_BYTES && need <= NPY_MAX_HEADER_BYTES);
    size_t n = need < len ? (size_t)need : len;
    uint8_t *head = malloc(n); /* exact size, so that a sanitizer knows its end */
    if (!head)
        return;
    memcpy(head, file, n);
    bool unknown = pici_npy_parse(&a, head, n, UINT64_MAX, &err);
    if (unknown)
        check(&a), check_type(&a, head);
    else
        CHECK(err.offset <= n && err.what[0]);
    if (pici_npy_parse(&b, head, n, len, &err)) {
        CHECK(unknown && b.data_offset + b.data_bytes + b.trailing_bytes == len);
        b.trailing_bytes = 0;
        CHECK(a.dtype == b.dtype && a.count == b.count && strcmp(a.descr, b.descr) == 0);
    } else {
        CHECK(err.offset <= len && err.what[0]);
        CHECK(!unknown || a.data_offset + a.data_bytes > len);
    }
    free(head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    parse(data, len);
    if (len > 0xffff)
        return 0;
    for (uint8_t version = 1; version <= 3; version += 2) { /* as text, after a matching prefix */
        size_t prefix = version == 1 ? 10 : 12;
        uint8_t *file = malloc(prefix + len);
        if (!file)
            return 0;
        memcpy(file, "\x93NUMPY", 6);
        memcpy(file + 6, (uint8_t[]){version, 0, (uint8_t)len, (uint8_t)(len >> 8), 0, 0}, prefix - 6);
        memcpy(file + prefix, data, len);
        parse(file, prefix + len);
        free(file);
    }
    return 0;
}
