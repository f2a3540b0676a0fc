/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Delta files (formats/delta.md). The input is two bytes of choices, then text. It goes into the attributes, the small
 * deltas and the table of hashes of an otherwise valid .pici file, because valid hashes are hard to guess. Accepted
 * files must keep the rules, and the fuzzer applies their small deltas.
 *   first byte d3   the rest is the table of few changes of a delta of version 3
 *   first byte d4   the rest gives the changes between two states, and damage to the tensors of their delta of version
 *                   3, which the fuzzer then applies */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "pici/delta.h"
#include "pici/delta_file.h"
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

/* The input, consumed piece by piece. */
struct input {
    const uint8_t *p;
    size_t len;
};

/* The usual text, or text from the input: a byte of length and the text. */
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
    require(count == t.count && count && delta_small_name(t.dtype));
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

/* ---- version 3, made and applied */

enum { TENSORS = 4, STATE_BYTES = 4096 };

/* The tensors of a state, one after the other. */
struct tensors {
    uint8_t p[STATE_BYTES];
};

static const struct {
    const char *name;
    enum pici_dtype dtype;
    uint64_t count;
    size_t offset;
} layout[TENSORS] = {
    {"bf16", PICI_BF16, 900, 0}, {"f32", PICI_F32, 300, 1800}, {"u8", PICI_U8, 6, 3000}, {"f16", PICI_F16, 500, 3008}};

/* divisor: the number of ranks that share each tensor except the one of u8. 1: the state has all of it. */
static struct pici_state *state_of(const struct tensors *elements, uint64_t divisor)
{
    struct pici_state *s;
    require(pici_state_new(&s, "state", PICI_STATE_SAFETENSORS, NULL, 0, NULL, NULL) == PICI_OK);
    for (int i = 0; i < TENSORS; i++) {
        const uint64_t n = layout[i].count / (layout[i].dtype == PICI_U8 ? 1 : divisor), first = layout[i].count - n;
        struct pici_tensor t = PICI_TENSOR_INIT;
        t.name = layout[i].name;
        t.name_len = strlen(t.name);
        t.dtype = layout[i].dtype;
        t.rank = 1;
        t.shape = &layout[i].count;
        const uint8_t *const at = elements->p + layout[i].offset + (size_t)first * pici_dtype_width(t.dtype);
        require((divisor == 1 ? pici_state_add(s, &t, at, 0) : pici_state_add_part(s, &t, at, first, n)) == PICI_OK);
    }
    return s;
}

/* Change some elements. Four bytes give the tensor, the first element, a count of fours, and the number to add to
 * each. */
static void change(struct tensors *to, const uint8_t *how)
{
    const int i = how[0] % TENSORS;
    const size_t width = pici_dtype_width(layout[i].dtype);
    for (uint64_t k = 0; k < 4 * (uint64_t)how[2] + 1; k++)
        to->p[layout[i].offset + (how[1] * 4 + k) % layout[i].count * width] += how[3];
}

/* Write the delta once more with bytes of its tensors changed. Four bytes give the tensor, the byte, and its XOR. */
static int damaged(struct memory *to, const struct memory *from, const uint8_t *how, size_t size)
{
    static const char *const keys[] = {DELTA_VERSION, "source.type", DELTA_BASE,    DELTA_KIND,
                                       DELTA_DTYPE,   DELTA_SHAPE,   "source.dtype"};
    struct pici_reader *r;
    struct pici_writer *w;
    struct pici_attr attrs[8], found;
    uint64_t count;
    size_t n = 0;
    to->len = 0;
    require(pici_reader_open_memory(&r, from->p, from->len, NULL) == PICI_OK);
    for (int k = 0; k < 3; k++) {
        require(pici_reader_attr(r, PICI_FILE, keys[k], &found) == PICI_OK && found.key);
        attrs[n++] = found;
    }
    require(pici_writer_open(&w, append, to, attrs, n, NULL) == PICI_OK);
    require(pici_reader_count(r, &count) == PICI_OK);
    for (uint64_t i = 0; i < count; i++) {
        struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
        require(pici_reader_tensor(r, i, &t) == PICI_OK);
        const size_t bytes = (size_t)t.count * pici_dtype_width(t.dtype);
        uint8_t *const elements = memory(bytes);
        require(pici_reader_read_range(r, i, 0, t.count, elements) == PICI_OK);
        for (size_t k = 0; k + 4 <= size; k += 4)
            if (how[k] % count == i && bytes)
                elements[(how[k + 1] | (size_t)how[k + 2] << 8) % bytes] ^= how[k + 3];
        n = 0;
        for (int k = 3; k < 7; k++) {
            require(pici_reader_attr(r, i, keys[k], &found) == PICI_OK);
            if (found.key)
                attrs[n++] = found;
        }
        char name[64];
        require(t.name_len < sizeof name);
        memcpy(name, t.name, t.name_len);
        name[t.name_len] = 0;
        require(tensor(w, name, t.dtype, t.rank, t.shape, attrs, n, elements) == PICI_OK);
        free(elements);
    }
    const int fits = pici_writer_finish(w) == PICI_OK;
    pici_writer_close(w);
    pici_reader_close(r);
    return fits;
}

/* Apply a delta to parts of the base, and back. next: see apply_both. Some parts cannot be decoded alone. */
static void apply_to_parts(struct pici_deltas *row, struct tensors *base, const struct tensors *next)
{
    struct pici_state *const state = state_of(base, 3);
    const struct tensors before = *base;
    struct pici_update *update;
    char why[PICI_WHY_BYTES];
    const enum pici_status s = pici_update_new(&update, state, row, NULL, why);
    require(!s == !why[0] && memcmp(base, &before, sizeof before) == 0);
    require(!s || !next || s == PICI_E_UNSUPPORTED);
    if (!s) {
        require(pici_update_switch(update) == PICI_OK);
        for (int i = 0; i < TENSORS; i++) {
            const size_t width = pici_dtype_width(layout[i].dtype), all = (size_t)layout[i].count * width;
            const size_t from = width == 1 ? 0 : (size_t)(layout[i].count - layout[i].count / 3) * width;
            const uint8_t *const now = base->p + layout[i].offset;
            require(memcmp(now, before.p + layout[i].offset, from) == 0);
            require(!next || memcmp(now + from, next->p + layout[i].offset + from, all - from) == 0);
        }
        require(pici_update_switch(update) == PICI_OK && memcmp(base, &before, sizeof before) == 0);
        pici_update_free(update);
    }
    pici_state_free(state);
}

/* Apply a delta to base: to a new state, and in place and back. Both must do the same. next: the expected result, or
 * null if the delta was damaged. */
static void apply_both(const struct memory *delta, struct tensors *base, const struct tensors *next)
{
    static struct memory out;
    struct pici_state *const state = state_of(base, 1);
    const struct tensors before = *base;
    struct pici_reader *r;
    struct pici_deltas *row;
    struct pici_update *update;
    char why[PICI_WHY_BYTES];
    out.len = 0;
    require(pici_reader_open_memory(&r, delta->p, delta->len, NULL) == PICI_OK);
    require(pici_deltas_new(&row) == PICI_OK);
    enum pici_status s = pici_deltas_add(row, r, "delta", why);
    require(!s || !next);
    if (!s) {
        apply_to_parts(row, base, next);
        s = pici_apply_deltas(append, &out, state, row, NULL, why);
        require((!s || !next) && !s == !why[0] && memcmp(base, &before, sizeof before) == 0);
        const enum pici_status found = pici_update_new(&update, state, row, NULL, why);
        require(found == s && !s == !why[0] && memcmp(base, &before, sizeof before) == 0);
    }
    if (!s) {
        size_t from = 0;
        require(pici_update_switch(update) == PICI_OK);
        for (int i = 0; i < TENSORS; i++) {
            const size_t bytes = (size_t)layout[i].count * pici_dtype_width(layout[i].dtype);
            require(memcmp(base->p + layout[i].offset, out.p + from, bytes) == 0);
            from += bytes;
        }
        require(from == out.len && (!next || memcmp(base, next, sizeof *next) == 0));
        require(pici_update_switch(update) == PICI_OK && memcmp(base, &before, sizeof before) == 0);
        pici_update_free(update);
    }
    pici_deltas_free(row);
    pici_reader_close(r);
    pici_state_free(state);
}

/* data: whether to make small deltas, the number of changes, the changes, and the damage. */
static void made(const uint8_t *data, size_t len)
{
    static struct memory delta, other;
    struct tensors base = {{0}}, next;
    struct pici_diff_opts opts = PICI_DIFF_OPTS_INIT;
    char why[PICI_WHY_BYTES];
    if (len < 2 || len < 2 + 4 * (size_t)data[1])
        return;
    opts.choice = data[0] & 1 ? PICI_DELTA_SMALLEST : PICI_DELTA_AUTO;
    for (size_t i = 0; i < sizeof base.p; i++)
        base.p[i] = (uint8_t)(i % 2 ? 0x3c + i / 2 % 3 : i * 37);
    next = base;
    for (size_t i = 0; i < data[1]; i++)
        change(&next, data + 2 + 4 * i);
    struct pici_state *const from = state_of(&base, 1), *const to = state_of(&next, 1);
    delta.len = 0;
    require(pici_diff_states(append, &delta, from, to, &opts, why) == PICI_OK);
    pici_state_free(from);
    pici_state_free(to);
    const size_t used = 2 + 4 * (size_t)data[1];
    apply_both(&delta, &base, &next);
    if (len - used >= 4 && damaged(&other, &delta, data + used, len - used))
        apply_both(&other, &base, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len >= 2 && data[0] == 0xd4) {
        made(data + 1, len - 1);
        return 0;
    }
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
