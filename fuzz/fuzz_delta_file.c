/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The metadata of deltas (formats/delta.md): the input, a byte of choices and then text, goes into the attributes and
 * the table of hashes of a .pici file that is otherwise valid, as the hashes of that are hard to guess. What is
 * accepted must keep the rules. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "tools/delta.h"

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

static enum pici_status tensor(struct pici_writer *w, const char *name, enum pici_dtype dtype, const uint64_t *shape,
                               const struct pici_attr *attr, const void *data)
{
    struct pici_tensor t = PICI_TENSOR_INIT;
    t.name = name;
    t.name_len = strlen(name);
    t.dtype = dtype;
    t.rank = shape ? 2 : 0;
    t.shape = shape;
    t.attrs = attr;
    t.n_attrs = attr != NULL;
    enum pici_status s = pici_writer_tensor(w, &t);
    return s ? s : pici_writer_data(w, data, pici_dtype_width(dtype) * (shape ? shape[0] * shape[1] : 1));
}

static int make(struct memory *m, unsigned choices, struct input *in)
{
    static const char *const kinds[] = {"xor", "added", "replaced"};
    static const char *const names[] = {"a", "b", "c"};
    const uint64_t shape[] = {choices & 64 ? 2 : 3, 2};
    uint64_t table[6] = {0};
    struct pici_writer *w;
    struct pici_attr attrs[3] = {text(in, DELTA_VERSION, "1", choices & 1), text(in, "source.type", "raw", choices & 2),
                                 text(in, DELTA_REMOVED, "", choices & 4)};
    struct pici_attr kind[3];
    for (int i = 0; i < 3; i++)
        kind[i] = text(in, DELTA_KIND, kinds[i], choices >> (3 + i) & 1);
    if (choices & 128)
        memcpy(table, in->p, in->len < sizeof table ? in->len : sizeof table);
    enum pici_status s = pici_writer_open(&w, append, m, attrs, 3, NULL);
    for (int i = 0; i < 3 && !s; i++)
        s = tensor(w, names[i], PICI_U8, NULL, &kind[i], "");
    if (!s)
        s = tensor(w, DELTA_HASHES, PICI_U64, shape, NULL, table);
    if (!s)
        s = pici_writer_finish(w);
    pici_writer_close(w);
    return !s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct memory m;
    struct pici_reader *r;
    struct delta d;
    struct parse_error err;
    struct pici_attr removed;
    const char *name;
    size_t at = 0, name_len, bytes = 0;
    bool is, good;
    if (!len)
        return 0;
    m.len = 0;
    struct input in = {data + 1, len - 1};
    if (!make(&m, data[0], &in))
        return 0;
    require(pici_reader_open_memory(&r, m.p, m.len, NULL) == PICI_OK);
    require(delta_is(r, &is) == PICI_OK && is);
    const enum pici_status s = delta_open(&d, r, &err);
    require(!s == !err.what[0]);
    if (!s) {
        require(d.tensors == 3 && d.kinds[0] + d.kinds[1] + d.kinds[2] == 3);
        for (int i = 0; i < 3; i++)
            require(d.kind[i] < DELTA_KINDS && (d.kind[i] == DELTA_XOR || !d.hash[i].base));
        require(pici_reader_attr(r, PICI_FILE, DELTA_REMOVED, &removed) == PICI_OK);
        while (delta_removed_next(&removed, &at, &name, &name_len, &good)) {
            require(name >= (const char *)removed.value &&
                    name + name_len <= (const char *)removed.value + removed.len);
            bytes += 4 + name_len;
            d.removed--;
        }
        require(good && bytes == removed.len && !d.removed);
        delta_close(&d);
    }
    pici_reader_close(r);
    return 0;
}
