/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Any bytes as a GGUF file. Accepted files are consistent. The result must not depend on whether the header arrives
 * at once or piece by piece, or on whether the file's length is known. */
#include <string.h>

#include "fuzz/fuzz.h"
#include "parse/gguf.h"

static void check(const struct gguf *file, uint64_t file_bytes)
{
    uint64_t end = file->data_offset, fillers = 0;
    for (size_t i = 0; i < file->count; i++) {
        const struct gguf_tensor *t = &file->tensors[i];
        uint64_t count = 1;
        char filler[GGUF_NAME_ROOM];
        require(t->rank <= GGUF_MAX_RANK);
        for (unsigned d = 0; d < t->rank; d++)
            count *= t->shape[d];
        require(t->begin == end && t->begin <= t->end && t->count == count);
        require(t->count * pici_dtype_width(t->dtype) == t->end - t->begin);
        require(!t->name || t->name[t->name_bytes] == 0);
        fillers += !t->name;
        require(!t->name || t->header_offset < file->data_offset);
        require(strlen(pici_gguf_filler(file, t->number, filler)) < sizeof filler);
        for (size_t k = 0; k < i && k < 20; k++)
            require(!t->name || !file->tensors[k].name || t->name_bytes != file->tensors[k].name_bytes ||
                    memcmp(t->name, file->tensors[k].name, t->name_bytes) != 0);
        require(!t->name || strcmp(t->name, pici_gguf_filler(file, i, filler)) != 0);
        end = t->end;
    }
    require(fillers == file->fillers && end == file->end && end <= (uint64_t)INT64_MAX);
    require(file_bytes == UINT64_MAX || end == file_bytes);
}

/* Scan with only the requested bytes, or with all bytes at once. */
static bool scan(struct gguf_scan *state, uint64_t *need, const uint8_t *file, size_t len, bool at_once,
                 struct parse_error *err)
{
    size_t size = at_once ? len : 0;
    *state = (struct gguf_scan){0};
    for (;;) {
        uint8_t *head = memory(size); /* exact size, so that a sanitizer knows its end */
        if (size)
            memcpy(head, file, size);
        const bool good = pici_gguf_header_bytes(state, need, head, size, err);
        free(head);
        require(good || (err->offset <= len && err->what[0]));
        if (!good || *need <= size)
            return good;
        size = *need < len ? (size_t)*need : len;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct gguf_scan once, steps;
    struct gguf known, unknown, same;
    struct parse_error err = {.offset = UINT64_MAX};
    uint64_t need, other;
    const bool good = scan(&steps, &need, data, len, false, &err);
    require(scan(&once, &other, data, len, true, &err) == good);
    if (!good)
        return 0;
    require(need == other && once.position == need && once.tensors == steps.tensors && need <= len);
    const bool parsed = pici_gguf_parse(&unknown, &steps, data, UINT64_MAX, &err);
    require(parsed || (err.offset <= need && err.what[0] && !unknown.tensors && !unknown.names));
    const bool with_length = pici_gguf_parse(&known, &steps, data, len, &err);
    require(with_length || (err.offset <= len && err.what[0]));
    require(with_length == (parsed && unknown.end <= len));
    if (parsed) { /* it must accept the length that it asks for */
        check(&unknown, UINT64_MAX);
        require(pici_gguf_parse(&same, &once, data, unknown.end, &err) && same.count == unknown.count);
        require(!with_length || known.count == unknown.count + (unknown.end < len));
        pici_gguf_free(&same);
    }
    if (with_length)
        check(&known, len);
    if (with_length)
        pici_gguf_free(&known);
    if (parsed)
        pici_gguf_free(&unknown);
    return 0;
}
