/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "parse/gguf.h"

/* A file that is written number by number. */
struct made {
    uint8_t bytes[2048];
    size_t size;
    bool big_endian;
};

static void number(struct made *file, unsigned width, uint64_t value)
{
    for (unsigned i = 0; i < width; i++)
        file->bytes[file->size++] = (uint8_t)(value >> 8 * (file->big_endian ? width - 1 - i : i));
}

static void text(struct made *file, const char *value)
{
    number(file, 8, strlen(value));
    memcpy(file->bytes + file->size, value, strlen(value));
    file->size += strlen(value);
}

static void begin(struct made *file, uint64_t version, uint64_t tensors, uint64_t keys)
{
    memcpy(file->bytes, "GGUF", 4);
    file->size = 4;
    number(file, 4, version);
    number(file, 8, tensors);
    number(file, 8, keys);
}

static void tensor(struct made *file, const char *name, unsigned rank, const uint64_t *shape, uint64_t type,
                   uint64_t offset)
{
    text(file, name);
    number(file, 4, rank);
    for (unsigned i = 0; i < rank; i++)
        number(file, 8, shape[i]);
    number(file, 4, type);
    number(file, 8, offset);
}

static void pad(struct made *file, size_t alignment)
{
    while (file->size % alignment)
        file->bytes[file->size++] = 0;
}

/* All of a header, as it asks for it, from memory of exactly so many bytes. */
static bool parse(struct gguf *output, const uint8_t *bytes, size_t size, uint64_t file_bytes,
                  struct parse_error *error)
{
    struct gguf_scan scan = {0};
    uint64_t need = 0;
    uint8_t *head = malloc(1);
    bool good;
    size_t have = 0;
    error->offset = UINT64_MAX;
    error->what[0] = 0;
    do {
        have = need < size ? (size_t)need : size;
        free(head);
        head = malloc(have + !have);
        memcpy(head, bytes, have);
        good = pici_gguf_header_bytes(&scan, &need, head, have, error);
    } while (good && need > have);
    good = good && pici_gguf_parse(output, &scan, head, file_bytes, error);
    free(head);
    cr_assert(good || (error->what[0] && (error->offset <= size || error->offset <= file_bytes)),
              "an error without words");
    return good;
}

/* Keys of all types, and four tensors: 96 bytes of floats and 288 of blocks. */
static void make_rich(struct made *file, uint64_t version)
{
    static const unsigned widths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    begin(file, version, 4, 15);
    for (unsigned type = 0; type < 13; type++) {
        text(file, "key");
        number(file, 4, type);
        number(file, widths[type], 1);
        if (type == 8)
            text(file, "a text");
        if (type == 9) { /* of strings */
            number(file, 4, 8);
            number(file, 8, 3);
            text(file, "");
            text(file, "two");
            text(file, "general.alignment");
        }
    }
    text(file, "numbers");
    number(file, 4, 9);
    number(file, 4, 5);
    number(file, 8, 2);
    number(file, 8, 77);
    text(file, "general.alignment");
    number(file, 4, 4);
    number(file, 4, 64);
    tensor(file, "blocks", 2, (uint64_t[]){256, 2}, 12, 128);
    tensor(file, "w", 3, (uint64_t[]){4, 2, 1}, 0, 0);
    tensor(file, "half", 1, (uint64_t[]){3}, 1, 32);
    tensor(file, "scalar", 0, NULL, 30, 64);
    pad(file, 64);
}

Test(gguf, understands)
{
    struct gguf file;
    struct parse_error error;
    for (int which = 0; which < 4; which++) {
        struct made made = {.big_endian = which & 1};
        make_rich(&made, which & 2 ? 2 : 3);
        const uint64_t bytes = made.size + 128 + 288 + 5;
        cr_assert(parse(&file, made.bytes, made.size, bytes, &error), "%s", error.what);
        static const struct {
            const char *name, *type;
            enum pici_dtype dtype;
            uint64_t begin, end;
        } expected[] = {
            {"w", "F32", PICI_F32, 0, 32},          {"half", "F16", PICI_F16, 32, 38},
            {"padding", "u8", PICI_U8, 38, 64},     {"scalar", "BF16", PICI_BF16, 64, 66},
            {"padding.1", "u8", PICI_U8, 66, 128},  {"blocks", "Q4_K", PICI_U8, 128, 416},
            {"padding.2", "u8", PICI_U8, 416, 421},
        };
        cr_assert_eq(file.count, 7);
        cr_assert_eq(file.fillers, 3);
        cr_assert_eq(file.big_endian, made.big_endian);
        cr_assert(file.data_offset == made.size && file.end == bytes);
        for (size_t i = 0; i < 7; i++) {
            const struct gguf_tensor *const t = &file.tensors[i];
            char filler[GGUF_NAME_ROOM];
            cr_assert_str_eq(t->name ? t->name : pici_gguf_filler(&file, t->number, filler), expected[i].name);
            cr_assert_str_eq(t->source_dtype, expected[i].type);
            cr_assert_eq(t->dtype, expected[i].dtype);
            cr_assert_eq(t->begin, made.size + expected[i].begin);
            cr_assert_eq(t->end, made.size + expected[i].end);
        }
        cr_assert(file.tensors[0].rank == 3 && file.tensors[0].shape[0] == 1 && file.tensors[0].shape[2] == 4);
        cr_assert(file.tensors[3].rank == 0 && file.tensors[3].count == 1);
        cr_assert(file.tensors[5].rank == 2 && file.tensors[5].shape[0] == 2 && file.tensors[5].shape[1] == 144);
        pici_gguf_free(&file);
        cr_assert(parse(&file, made.bytes, made.size, UINT64_MAX, &error) && file.count == 6);
        pici_gguf_free(&file);
    }
}

Test(gguf, refuses)
{
    static const uint64_t one[] = {1, 1, 1, 1, 1}, block[] = {31, 2}, huge[] = {UINT64_C(1) << 62, 4},
                          blocks[] = {INT64_MAX / 256 * 256, 8};
    static const struct {
        const char *name;
        unsigned rank;
        const uint64_t *shape;
        uint64_t type, offset;
        const char *what;
    } bad[] = {
        {"a", 5, one, 0, 0, "5 dimensions; GGUF has at most 4"},
        {"a", 1, one, 4, 0, "a tensor of type 4, which is not known"},
        {"a", 1, one, 1000, 0, "a tensor of type 1000, which is not known"},
        {"a", 2, block, 8, 0, "a row of 31 elements is not whole blocks of Q8_0"},
        {"a", 0, NULL, 8, 0, "one element is not whole blocks of Q8_0"},
        {"a", 2, huge, 0, 0, "the size of a tensor overflows"},
        {"a", 2, blocks, 15, 0, "the size of a tensor overflows"},
        {"a", 1, one, 0, INT64_MAX, "tensor 'a' has an offset that overflows"},
        {"a", 1, one, 0, UINT64_MAX, "tensor 'a' has an offset that overflows"},
        {"a", 1, one, 0, 64, "the file ends 4 bytes before the last tensor does"},
        {"b", 1, one, 0, 8, "tensor 'b' occurs twice"},
        {"a", 1, one, 0, 2, "tensor 'a' overlaps another"},
        {"padding+++++++++++++++++", 1, one, 0, 8, "has a name reserved for bytes between tensors"},
    };
    struct gguf file;
    struct parse_error error;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct made made = {0};
        begin(&made, 3, 2, 0);
        tensor(&made, "b", 1, one, 0, 0);
        tensor(&made, bad[i].name, bad[i].rank, bad[i].shape, bad[i].type, bad[i].offset);
        pad(&made, 32);
        cr_assert_not(parse(&file, made.bytes, made.size, made.size + 64, &error), "%s", bad[i].what);
        cr_assert(strstr(error.what, bad[i].what), "%s, not %s", error.what, bad[i].what);
    }
}

Test(gguf, refuses_keys)
{
    static const struct {
        uint64_t type, element, count;
        const char *what;
    } bad[] = {
        {13, 0, 0, "a value of type 13, which is not known"},
        {9, 9, 1, "an array of arrays, which is not read"},
        {9, 13, 1, "an array of a type that is not known"},
        {9, 8, UINT64_C(1) << 61, "elements of an array: a header above the limit"},
        {9, 10, 100000001, "100000001 elements of an array: a header above the limit"},
    };
    struct gguf file;
    struct parse_error error;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct made made = {0};
        begin(&made, 3, 0, 1);
        text(&made, "k");
        number(&made, 4, bad[i].type);
        number(&made, 4, bad[i].element);
        number(&made, 8, bad[i].count);
        cr_assert_not(parse(&file, made.bytes, made.size, UINT64_MAX, &error));
        cr_assert(strstr(error.what, bad[i].what), "%s, not %s", error.what, bad[i].what);
    }
    for (uint64_t alignment = 0; alignment < 7; alignment++) {
        static const uint64_t values[] = {32, 0, 3, 48, 1 << 21, 1, 1 << 20};
        struct made made = {0};
        begin(&made, 3, 0, 1);
        text(&made, "general.alignment");
        number(&made, 4, 4);
        number(&made, 4, values[alignment]);
        const bool good = alignment == 0 || alignment > 4;
        cr_assert_eq(parse(&file, made.bytes, made.size, made.size, &error), good);
        cr_assert(good || strstr(error.what, "not a power of two"));
        if (good)
            pici_gguf_free(&file);
    }
    struct made twice = {0};
    begin(&twice, 3, 0, 2);
    for (int i = 0; i < 2; i++) {
        text(&twice, "general.alignment");
        number(&twice, 4, 4);
        number(&twice, 4, 32);
    }
    cr_assert_not(parse(&file, twice.bytes, twice.size, twice.size, &error));
    cr_assert(strstr(error.what, "given twice"));
    static const uint64_t versions[] = {0, 1, 4, 65536};
    for (int i = 0; i < 4; i++) {
        struct made made = {0};
        begin(&made, versions[i], 0, 0);
        cr_assert_not(parse(&file, made.bytes, made.size, made.size, &error));
        cr_assert(strstr(error.what, "versions 2 and 3 are read"), "%s", error.what);
    }
    struct made many = {0};
    begin(&many, 3, UINT64_C(1) << 60, 0);
    cr_assert_not(parse(&file, many.bytes, many.size, UINT64_MAX, &error));
    cr_assert(strstr(error.what, "tensors: a header above the limit"), "%s", error.what);
}

/* A header asks for what it needs at least, and never for more than it has. */
Test(gguf, asks_for_no_more)
{
    struct made made = {0};
    struct gguf_scan scan = {0};
    struct parse_error error;
    make_rich(&made, 3);
    for (size_t size = 0; size <= made.size; size++) {
        uint64_t need;
        scan = (struct gguf_scan){0};
        cr_assert(pici_gguf_header_bytes(&scan, &need, made.bytes, size, &error), "%s", error.what);
        cr_assert(need <= made.size && (need > size) == (size < made.size), "%zu bytes", size);
    }
}

Test(gguf, truncated_at_every_byte)
{
    struct made made = {0};
    struct gguf file;
    struct parse_error error;
    make_rich(&made, 3);
    for (size_t size = 0; size < made.size; size++) {
        cr_assert_not(parse(&file, made.bytes, size, size, &error), "%zu bytes", size);
        cr_assert_eq(error.offset, size);
    }
    for (uint64_t bytes = made.size; bytes < made.size + 416; bytes++)
        cr_assert_not(parse(&file, made.bytes, made.size, bytes, &error));
    cr_assert(parse(&file, made.bytes, made.size, made.size + 416, &error));
    pici_gguf_free(&file);
}

Test(gguf, every_byte_changed)
{
    struct made made = {0};
    struct gguf file;
    struct parse_error error;
    make_rich(&made, 3);
    for (size_t i = 0; i < made.size; i++)
        for (int change = 0; change < 4; change++) {
            static const uint8_t changes[] = {1, 0x80, 0xff, 0x20};
            made.bytes[i] ^= changes[change];
            if (parse(&file, made.bytes, made.size, made.size + 416, &error)) {
                cr_assert_eq(file.end, made.size + 416);
                pici_gguf_free(&file);
            }
            made.bytes[i] ^= changes[change];
        }
}
