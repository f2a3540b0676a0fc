/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Delta files (formats/delta.md): the input, two bytes of choices and then text, goes into the attributes, the small
 * deltas and the table of hashes of a .pici file that is otherwise valid, as the hashes of that are hard to guess. What
 * is accepted must keep the rules, and its small deltas are applied. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "pici/delta.h"
#include "delta/delta.h"

struct memory {
    uint8_t p[1 << 16];
    size_t len;
};

static int append(void *to, const void *p, size_t n)
{
    struct memory *m = to;
    if (n > sizeof m->p - m->len)
        return 1;
    memcpy(m->p + m->len, p, n);
    m->len += n;
    return 0;
}

/* The input, from which pieces are taken. */
struct input {
    const uint8_t *p;
    size_t len;
};

/* Text that is "usual", or what the input has: a byte of length and the text. */
static struct pici_attr text(struct input *in, const char *key, const char *usual, int odd)
{
    struct pici_attr a = {key, usual, strlen(usual)};
    if (odd && in->len) {
        a.len = in->p[0] < in->len - 1 ? in->p[0] : in->len - 1;
        a.value = in->p + 1;
        in->p += 1 + a.len;
        in->len -= 1 + a.len;
    }
    return a;
}

static enum pici_status tensor(struct pici_writer *w, const char *name, enum pici_dtype dtype, unsigned rank,
                               const uint64_t *shape, const struct pici_attr *attrs, size_t n_attrs, const void *data)
{
    uint64_t count = 1;
    for (unsigned i = 0; i < rank; i++)
        count *= shape[i];
    struct pici_tensor t = PICI_TENSOR_INIT;
    t.name = name;
    t.name_len = strlen(name);
    t.dtype = dtype;
    t.rank = rank;
    t.shape = shape;
    t.attrs = attrs;
    t.n_attrs = n_attrs;
    enum pici_status s = pici_writer_tensor(w, &t);
    return s ? s : pici_writer_data(w, data, (size_t)count * pici_dtype_width(dtype));
}

enum { ELEMENTS = 6 };

/* A tensor of small deltas: usually one of 6 elements of bf16. */
static enum pici_status small_tensor(struct pici_writer *w, const char *name, unsigned more, struct input *in)
{
    static const uint16_t base[ELEMENTS] = {1, 2, 3, 4, 5, 6}, next[ELEMENTS] = {1, 3, 3, 5, 5, 0};
    static const uint8_t shape[16] = {2, 0, 0, 0, 0, 0, 0, 0, 3};
    uint8_t delta[256], two[512];
    size_t len;
    struct pici_attr attrs[3] = {{DELTA_KIND, "small", 5}, text(in, DELTA_DTYPE, "bf16", more & 8), {0}};
    attrs[2] = text(in, DELTA_SHAPE, "", more & 16);
    if (!(more & 16))
        attrs[2] = (struct pici_attr){DELTA_SHAPE, shape, sizeof shape};
    require(pici_diff_small(delta, sizeof delta, &len, base, next, ELEMENTS, PICI_BF16, PICI_AUTO, NULL) == PICI_OK);
    const struct pici_attr odd = text(in, "", "", more & 64);
    const int copies = more & 128 ? 2 : 1;
    uint64_t bytes = 0;
    for (int i = 0; i < copies; i++, bytes += len)
        memcpy(two + bytes, delta, len);
    for (size_t i = 0; i < odd.len && i < bytes; i++) /* changes to some bytes */
        two[i] ^= ((const uint8_t *)odd.value)[i];
    return tensor(w, name, PICI_U8, 1, &bytes, attrs, 3, two);
}

static int make(struct memory *m, unsigned choices, unsigned more, struct input *in)
{
    static const char *const kinds[] = {"xor", "added", "replaced"};
    static const char *const names[] = {"a", "b", "c"};
    const uint64_t shape[] = {choices & 64 ? 2 : 3, 2};
    uint64_t table[6] = {0};
    struct pici_writer *w;
    struct pici_attr attrs[3] = {text(in, DELTA_VERSION, more & 32 ? "2" : "1", choices & 1),
                                 text(in, "source.type", "raw", choices & 2), text(in, DELTA_REMOVED, "", choices & 4)};
    struct pici_attr kind[3];
    for (int i = 0; i < 3; i++)
        kind[i] = text(in, DELTA_KIND, kinds[i], choices >> (3 + i) & 1);
    if (choices & 128)
        memcpy(table, in->p, in->len < sizeof table ? in->len : sizeof table);
    enum pici_status s = pici_writer_open(&w, append, m, attrs, 3, NULL);
    for (int i = 0; i < 3 && !s; i++)
        s = more >> i & 1 ? small_tensor(w, names[i], more, in)
                          : tensor(w, names[i], PICI_U8, 0, NULL, &kind[i], 1, "");
    if (!s)
        s = tensor(w, DELTA_HASHES, PICI_U64, 2, shape, NULL, 0, table);
    if (!s)
        s = pici_writer_finish(w);
    pici_writer_close(w);
    return !s;
}

/* Apply the small deltas of tensor i. */
static void apply(const struct delta *d, struct pici_reader *r, uint64_t i)
{
    struct delta_pieces pieces = {0};
    struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
    uint32_t dst[64] = {0};
    require(pici_delta_tensor(d, r, i, &t) == PICI_OK);
    uint64_t count = 1;
    for (unsigned k = 0; k < t.rank; k++)
        count *= t.shape[k];
    require(count == t.count && count && delta_has_small(t.dtype));
    require(pici_delta_pieces_begin(&pieces, r, i) == PICI_OK);
    const uint64_t n = t.count < DELTA_PIECE ? t.count : DELTA_PIECE;
    enum pici_status s = pici_delta_pieces_next(&pieces, t.dtype, n);
    if (!s && n * pici_dtype_width(t.dtype) <= sizeof dst)
        s = pici_apply_small(dst, n, pieces.delta, pieces.size, NULL);
    require(s || pieces.offset <= pieces.end);
    pici_delta_pieces_free(&pieces);
}

/* A delta of version 3 whose table of few changes is the input. */
static void few(const uint8_t *table, size_t len)
{
    static struct memory m;
    struct pici_writer *w;
    struct pici_reader *r;
    struct delta d;
    char err[PICI_WHY_BYTES];
    const uint8_t base[16] = {200, 1};
    const uint64_t bytes = len, hashes[2] = {3, 4}, shape[2] = {1, 2};
    const struct pici_attr attrs[3] = {
        {DELTA_VERSION, "3", 1}, {"source.type", "safetensors", 11}, {DELTA_BASE, base, sizeof base}};
    m.len = 0;
    require(pici_writer_open(&w, append, &m, attrs, 3, NULL) == PICI_OK);
    require(tensor(w, DELTA_FEW, PICI_U8, 1, &bytes, NULL, 0, table) == PICI_OK);
    require(tensor(w, DELTA_HASHES, PICI_U64, 2, shape, NULL, 0, hashes) == PICI_OK);
    require(pici_writer_finish(w) == PICI_OK);
    pici_writer_close(w);
    require(pici_reader_open_memory(&r, m.p, m.len, NULL) == PICI_OK);
    const enum pici_status s = pici_delta_open(&d, r, err);
    require(!s == !err[0]);
    for (size_t i = 0; !s && i < d.few_count; i++) {
        const struct delta_few *const entry = &d.few[i];
        require(entry->number < d.base_tensors && (!i || entry->number > d.few[i - 1].number));
        require(entry->changes && entry->offset < entry->end && entry->end <= len);
        for (unsigned width = 1; width <= 8; width *= 2) {
            /* at once, and in two pieces */
            uint8_t *whole = memory(40 * width), *parts = memory(40 * width);
            struct few_cursor one, two;
            memset(whole, 0, 40 * width);
            memset(parts, 0, 40 * width);
            pici_few_begin(&one, &d, entry);
            pici_few_begin(&two, &d, entry);
            const int good = pici_few_apply(&one, whole, 0, 40, width);
            if (pici_few_apply(&two, parts, 0, 7, width) && pici_few_apply(&two, parts + 7 * width, 7, 33, width))
                require(good && memcmp(whole, parts, 40 * width) == 0 && one.remaining == two.remaining);
            else
                require(!good);
            free(whole);
            free(parts);
        }
    }
    if (!s)
        pici_delta_close(&d);
    pici_reader_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len >= 2 && data[0] == 0xd3) {
        uint8_t *table = memory(len);
        memcpy(table, data + 1, len - 1);
        few(table, len - 1);
        free(table);
        return 0;
    }
    static struct memory m;
    struct pici_reader *r;
    struct delta d;
    char err[PICI_WHY_BYTES];
    struct pici_attr removed;
    const char *name;
    size_t at = 0, name_len, bytes = 0;
    bool is, good;
    if (len < 2)
        return 0;
    m.len = 0;
    struct input in = {data + 2, len - 2};
    if (!make(&m, data[0], data[1], &in))
        return 0;
    require(pici_reader_open_memory(&r, m.p, m.len, NULL) == PICI_OK);
    require(pici_delta_is(r, &is) == PICI_OK && is);
    const enum pici_status s = pici_delta_open(&d, r, err);
    require(!s == !err[0]);
    if (!s) {
        require(d.tensors == 3 && d.kinds[0] + d.kinds[1] + d.kinds[2] + d.kinds[3] == 3);
        for (int i = 0; i < 3; i++)
            require(d.kind[i] < DELTA_KINDS && (delta_needs_base(d.kind[i]) || !d.hash[i].base));
        for (unsigned i = 0; i < 3; i++)
            if (d.kind[i] == DELTA_SMALL)
                apply(&d, r, i);
        require(pici_reader_attr(r, PICI_FILE, DELTA_REMOVED, &removed) == PICI_OK);
        while (pici_delta_removed_next(&removed, &at, &name, &name_len, &good)) {
            require(name >= (const char *)removed.value &&
                    name + name_len <= (const char *)removed.value + removed.len);
            bytes += 4 + name_len;
            d.removed--;
        }
        require(good && bytes == removed.len && !d.removed);
        pici_delta_close(&d);
    }
    pici_reader_close(r);
    return 0;
}
