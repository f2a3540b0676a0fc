/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writes the golden vectors of .pici files, files.txt (syntax: vectors/README.md), into the directory named by its
 * argument. Written from file.md alone; ref.c makes its blocks. It compresses by greedy copies, unlike the library. */
#include "gentext.h"
#include "ref.h"

static const char *const dtype_names[] = {"",   "f32", "f64", "f16", "bf16", "f8e4m3", "f8e5m2", "i8",
                                          "u8", "i16", "u16", "i32", "u32",  "i64",    "u64"};

struct bytes {
    uint8_t p[8192];
    size_t len;
};

static void put(struct bytes *to, const void *p, size_t n)
{
    if (n > sizeof to->p - to->len)
        fail("too long", "bytes");
    if (n)
        memcpy(to->p + to->len, p, n);
    to->len += n;
}

static void put_number(struct bytes *to, unsigned width, uint64_t v)
{
    uint8_t p[8];
    ref_put(p, width, v);
    put(to, p, width);
}

static void put_zeros(struct bytes *to, size_t multiple)
{
    while (to->len % multiple)
        put(to, "", 1);
}

/* Append text, or any bytes, with 1 to 8 zeros after them. The total is a multiple of 8. */
static void put_text(struct bytes *to, const void *p, size_t n)
{
    put(to, p, n);
    put(to, "", 1);
    put_zeros(to, 8);
}

/* ---- the parts of a file ---- */

struct attribute {
    const char *key;
    const void *value;
    size_t len;
};

struct tensor {
    const char *name;
    unsigned dtype, rank;
    uint64_t shape[3];
    unsigned format;
    uint64_t chunk_elements;
    struct attribute attributes[2]; /* in rising order, up to one without a key */
    int in_table;
};

struct made {
    uint8_t elements[4096]; /* in host order */
    uint64_t count;
};

static struct made made_of(const struct tensor *t, uint64_t number)
{
    struct made m = {.count = 1};
    const unsigned width = ref_width(t->dtype);
    for (unsigned i = 0; i < t->rank; i++)
        m.count *= t->shape[i];
    for (uint64_t i = 0; i < m.count; i++)
        ref_store(m.elements, i, width, (i + number) % 3 ? 0x3c40 + 8 * i + number : 0);
    return m;
}

static void put_attributes(struct bytes *to, const struct attribute *a, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        put_number(to, 4, strlen(a[i].key));
        put_number(to, 4, a[i].len);
        put_text(to, a[i].key, strlen(a[i].key));
        put_text(to, a[i].value, a[i].len);
    }
}

static size_t attributes_of(const struct tensor *t)
{
    return t->attributes[0].key ? 1 + (t->attributes[1].key != NULL) : 0;
}

static void put_description(struct bytes *to, const struct tensor *t)
{
    put_number(to, 1, t->dtype);
    put_number(to, 1, t->rank);
    put_number(to, 2, 0);
    put_number(to, 4, t->chunk_elements);
    put_number(to, 4, strlen(t->name));
    put_number(to, 4, attributes_of(t));
    for (unsigned i = 0; i < t->rank; i++)
        put_number(to, 8, t->shape[i]);
    put_text(to, t->name, strlen(t->name));
}

/* ---- compressing ---- */

static void put_length(struct bytes *to, size_t length)
{
    for (; length >= 255; length -= 255)
        put_number(to, 1, 255);
    put_number(to, 1, length);
}

static void put_sequence(struct bytes *to, const uint8_t *literals, size_t n, size_t distance, size_t copied)
{
    const size_t more = copied ? copied - 4 : 0;
    put_number(to, 1, (n < 15 ? n : 15) << 4 | (more < 15 ? more : 15));
    if (n >= 15)
        put_length(to, n - 15);
    put(to, literals, n);
    if (!copied)
        return;
    put_number(to, 2, distance);
    if (more >= 15)
        put_length(to, more - 15);
}

static void compress(struct bytes *to, const struct bytes *from)
{
    size_t literals = 0, at = 0;
    while (at + 12 <= from->len) {
        size_t best = 3, back = 0;
        for (size_t d = 1; d <= at; d++) {
            size_t n = 0;
            while (at + n < from->len - 5 && from->p[at + n] == from->p[at + n - d])
                n++;
            if (n > best) {
                best = n;
                back = d;
            }
        }
        if (back) {
            put_sequence(to, from->p + literals, at - literals, back, best);
            at += best;
            literals = at;
        } else {
            at++;
        }
    }
    put_sequence(to, from->p + literals, from->len - literals, 0, 0);
}

/* ---- the file ---- */

/* Append a record. Returns its header_hash. content_bytes: 0 unless the body is compressed. */
static uint64_t put_record(struct bytes *file, const char *kind, const struct bytes *body, size_t content_bytes)
{
    const size_t at = file->len;
    const int block = strcmp(kind, "BLCK") == 0;
    put(file, kind, 4);
    put_number(file, 4, content_bytes);
    put_number(file, 8, body->len);
    put_number(file, 8, block ? ref_get(body->p + 40, 8) : ref_xxh64(body->p, body->len));
    const uint64_t hash = ref_xxh64(file->p + at, 24);
    put_number(file, 8, hash);
    put(file, body->p, body->len);
    put_zeros(file, 16);
    return hash;
}

/* Append a chunk, and add its place to the index. */
static void put_chunk(struct bytes *file, struct bytes *index, const void *elements, uint64_t n, const struct tensor *t)
{
    struct bytes body = {.len = 0};
    size_t len;
    uint8_t *block = ref_encode(&len, elements, n, t->dtype, t->format, 1);
    if (!block)
        fail("does not encode", t->name);
    put(&body, block, len);
    free(block);
    put_number(index, 8, file->len);
    put_number(index, 8, put_record(file, "BLCK", &body, 0));
}

static void put_tensor(struct bytes *file, struct bytes *index, const struct tensor *t, uint64_t number)
{
    struct bytes body = {.len = 0};
    const struct made m = made_of(t, number);
    put_description(&body, t);
    const size_t described = body.len;
    put_attributes(&body, t->attributes, attributes_of(t));
    put_number(index, 8, file->len);
    put_number(index, 8, put_record(file, "TENS", &body, 0));
    put(index, body.p, described);
    for (uint64_t first = 0; first < m.count; first += t->chunk_elements)
        put_chunk(file, index, m.elements + first * ref_width(t->dtype),
                  m.count - first < t->chunk_elements ? m.count - first : t->chunk_elements, t);
}

/* Append the table of tensors [first, end). */
static void put_table(struct bytes *file, struct bytes *index, const struct tensor *t, size_t first, size_t end,
                      int compressed)
{
    struct bytes content = {.len = 0}, shorter = {.len = 0};
    for (size_t i = first; i < end; i++) {
        put_description(&content, &t[i]);
        put_attributes(&content, t[i].attributes, attributes_of(&t[i]));
    }
    if (compressed)
        compress(&shorter, &content);
    const struct bytes *const body = compressed ? &shorter : &content;
    const size_t content_bytes = compressed ? content.len : 0;
    if (compressed && shorter.len >= content.len)
        fail("does not get shorter", t[first].name);
    put_number(index, 8, file->len);
    put_number(index, 8, put_record(file, "TABL", body, content_bytes));
    put_number(index, 4, 0);
    put_number(index, 4, content_bytes);
    put_number(index, 8, body->len);
    put(index, body->p, body->len);
    put_zeros(index, 8);
    for (unsigned dtype = 1; dtype <= REF_U64; dtype++) {
        struct bytes all = {.len = 0};
        const struct tensor *one = NULL;
        for (size_t i = first; i < end; i++) {
            const struct made m = made_of(&t[i], i);
            if (t[i].dtype == dtype && m.count) {
                put(&all, m.elements, (size_t)m.count * ref_width(dtype));
                one = &t[i];
            }
        }
        if (one)
            put_chunk(file, index, all.p, all.len / ref_width(dtype), one);
    }
}

static void put_lines(const struct attribute *a, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        column = (size_t)fprintf(out, "attribute %s", a[i].key);
        put_bytes(a[i].value, a[i].len);
    }
}

/* Write a case, without its views. written: a writer makes these bytes from these tensors. */
static void put_case(const char *name, unsigned version, int written, int compressed,
                     const struct attribute *attributes, size_t n_attributes, const struct tensor *t, size_t n)
{
    static struct bytes file, index, meta, shorter;
    file.len = index.len = meta.len = shorter.len = 0;
    put(&file, "\x89PICI\r\n\x1a", 8);
    put_number(&file, 4, version);
    put_number(&file, 4, 0);
    put_number(&meta, 4, n_attributes);
    put_number(&meta, 4, 0);
    put_attributes(&meta, attributes, n_attributes);
    if (compressed)
        compress(&shorter, &meta);
    const int use = compressed && shorter.len < meta.len;
    put_number(&index, 8, n);
    put_number(&index, 8, put_record(&file, "META", use ? &shorter : &meta, use ? meta.len : 0));
    for (size_t i = 0, end; i < n; i = end) {
        end = i + 1;
        if (!t[i].in_table) {
            put_tensor(&file, &index, &t[i], i);
            continue;
        }
        while (end < n && t[end].in_table == t[i].in_table)
            end++;
        put_table(&file, &index, t, i, end, compressed);
    }
    const size_t at = file.len;
    const uint64_t hash = put_record(&file, "INDX", &index, 0);
    const size_t trailer = file.len;
    put_number(&file, 8, at);
    put_number(&file, 8, hash);
    put_number(&file, 8, ref_xxh64(file.p + trailer, 16));
    put(&file, "PICI.END", 8);

    fprintf(out, "case %s\n", name);
    column = (size_t)fprintf(out, "file %u %s", version, written ? "written" : "read");
    put_bytes(file.p, file.len);
    put_lines(attributes, n_attributes);
    for (size_t i = 0; i < n; i++) {
        const unsigned width = ref_width(t[i].dtype);
        const struct made m = made_of(&t[i], i);
        uint8_t stored[sizeof m.elements];
        fprintf(out, "tensor %s %s %s %" PRIu64 " %u", *t[i].name ? t[i].name : "-", dtype_names[t[i].dtype],
                t[i].format == REF_DENSE ? "dense" : "coo", t[i].chunk_elements, t[i].rank);
        for (unsigned k = 0; k < t[i].rank; k++)
            fprintf(out, " %" PRIu64, t[i].shape[k]);
        for (uint64_t k = 0; k < m.count; k++)
            ref_put(stored + k * width, width, ref_load(m.elements, k, width));
        column = 60;
        put_bytes(stored, (size_t)m.count * width);
        put_lines(t[i].attributes, attributes_of(&t[i]));
    }
}

/* Append a row of source.views, and its line. */
static void put_view(struct bytes *to, uint64_t tensor, uint64_t offset, unsigned flags, unsigned rank,
                     const uint64_t *shape, const uint64_t *strides, const char *name)
{
    static const char word[] = "float32";
    struct bytes texts = {.len = 0};
    put_number(to, 8, tensor);
    put_number(to, 8, offset);
    put_number(to, 1, REF_F32);
    put_number(to, 1, rank);
    put_number(to, 1, flags);
    put_number(to, 1, strlen(word));
    put_number(to, 4, strlen(name));
    for (unsigned i = 0; i < rank; i++)
        put_number(to, 8, shape[i]);
    for (unsigned i = 0; i < rank; i++)
        put_number(to, 8, strides[i]);
    put(&texts, name, strlen(name) + 1);
    put_text(&texts, word, strlen(word));
    put(to, texts.p, texts.len);
}

static void put_views(void)
{
    static const struct tensor t[] = {{"zip", REF_F32, 1, {12}, REF_DENSE, 100, {{NULL, NULL, 0}}, 0}};
    static const uint64_t permuted[] = {3, 4}, by[] = {1, 3}, all[] = {12}, one[] = {1}, pairs[] = {2, 2},
                          over[] = {0, 1};
    struct bytes table = {.len = 0};
    put_number(&table, 8, 4);
    put_view(&table, 0, 0, 0, 2, permuted, by, "permuted");
    put_view(&table, 0, 0, 2, 1, all, one, "negative");
    put_view(&table, 0, 7, 1, 2, pairs, over, "conjugate");
    put_view(&table, 0, 11, 0, 0, NULL, NULL, "last");
    const struct attribute attributes[] = {{"source.unnamed", "zip", 3}, {"source.views", table.p, table.len}};
    put_case("views", 1, 1, 0, attributes, 2, t, 1);
    const struct made m = made_of(&t[0], 0);
    static const struct {
        const char *name;
        unsigned n, element[12], other_sign[12];
    } views[] = {{"permuted", 12, {0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11}, {0}},
                 {"negative", 12, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
                 {"conjugate", 4, {7, 8, 7, 8}, {0, 1, 0, 1}},
                 {"last", 1, {11}, {0}}};
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++) {
        uint8_t stored[48];
        for (unsigned k = 0; k < views[i].n; k++)
            ref_put(stored + 4 * (size_t)k, 4,
                    ref_load(m.elements, views[i].element[k], 4) ^ (uint64_t)views[i].other_sign[k] << 31);
        column = (size_t)fprintf(out, "view %s f32", views[i].name);
        put_bytes(stored, 4 * (size_t)views[i].n);
    }
}

int main(int argc, char **argv)
{
    static const struct attribute attributes[] = {{"a", "", 0}, {"source.type", "test", 4}};
    static const struct tensor plain[] = {
        {"w", REF_F32, 2, {3, 4}, REF_COO, 5, {{"k", "v", 1}, {"l", "12345678", 8}}, 0},
        {"scalar", REF_I64, 0, {0}, REF_COO, 5, {{NULL, NULL, 0}}, 0},
        {"none", REF_F16, 2, {0, 2}, REF_COO, 5, {{NULL, NULL, 0}}, 0}};
    static const struct tensor tables[] = {
        {"layers.0.weight", REF_F32, 2, {3, 2}, REF_DENSE, 9, {{"source.dtype", "complex64", 9}}, 1},
        {"layers.0.bias", REF_F32, 1, {3}, REF_DENSE, 9, {{NULL, NULL, 0}}, 1},
        {"layers.0.n", REF_I64, 0, {0}, REF_DENSE, 9, {{NULL, NULL, 0}}, 1},
        {"big", REF_U16, 1, {10}, REF_DENSE, 9, {{NULL, NULL, 0}}, 0},
        {"layers.1.weight", REF_F32, 2, {3, 2}, REF_DENSE, 9, {{"source.dtype", "complex64", 9}}, 2},
        {"layers.1.none", REF_F8E5M2, 3, {1, 0, 2}, REF_DENSE, 9, {{NULL, NULL, 0}}, 2},
        {"layers.1.mask", REF_U8, 1, {9}, REF_DENSE, 9, {{"source.dtype", "BOOL", 4}}, 2}};
    static const struct tensor one[] = {{"x", REF_BF16, 1, {2}, REF_DENSE, 9, {{NULL, NULL, 0}}, 1}};
    /* a body of 15 bytes with a content of 24 */
    static const struct tensor least[] = {{"", REF_U8, 0, {0}, REF_DENSE, 9, {{NULL, NULL, 0}}, 1}};
    if (argc != 2)
        fail("usage: genfiles DIRECTORY", argv[0]);
    open_file(argv[1], "files.txt", "genfiles.c");
    put_case("empty", 1, 1, 0, NULL, 0, NULL, 0);
    put_case("version-1", 1, 1, 0, attributes, 2, plain, 3);
    put_case("version-1-as-2", 2, 0, 0, attributes, 2, plain, 3);
    put_case("tables", 2, 0, 0, attributes, 2, tables, 7);
    put_case("tables-compressed", 2, 0, 1, attributes, 2, tables, 7);
    put_case("table-of-one", 2, 1, 0, NULL, 0, one, 1);
    put_case("table-compressed-least", 2, 1, 1, NULL, 0, least, 1);
    put_views();
    close_file("files.txt");
    return 0;
}
