/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "pici/file.h"
#include "tools/parse/pickle.h"
#include "tools/parse/torch.h"

/* A pickle in the making. */
struct made {
    uint8_t p[8192];
    size_t len;
};

static void raw(struct made *m, const char *bytes, size_t n)
{
    cr_assert_leq(m->len + n, sizeof m->p);
    memcpy(m->p + m->len, bytes, n);
    m->len += n;
}
#define OP(m, literal) raw(m, literal, sizeof(literal) - 1)

static void text(struct made *m, const char *s)
{
    const char head[5] = {'X', (char)strlen(s), 0, 0, 0};
    raw(m, head, 5);
    raw(m, s, strlen(s));
}

static void small(struct made *m, unsigned v)
{
    const char op[2] = {'K', (char)v};
    raw(m, op, 2);
}

static void tuple(struct made *m, unsigned n, const unsigned *v)
{
    OP(m, "(");
    for (unsigned i = 0; i < n; i++)
        small(m, v[i]);
    OP(m, "t");
}

/* The persistent id of a storage. */
static void storage(struct made *m, const char *class, const char *key, unsigned items)
{
    OP(m, "(");
    text(m, "storage");
    OP(m, "ctorch\n");
    raw(m, class, strlen(class));
    OP(m, "\n");
    text(m, key);
    text(m, "cpu");
    small(m, items);
    OP(m, "tQ");
}

/* A tensor as torch.save writes it; v3 has a dtype. */
static void tensor(struct made *m, const char *class, const char *key, unsigned items, unsigned offset, unsigned rank,
                   const unsigned *shape, const unsigned *strides, const char *dtype)
{
    if (dtype)
        OP(m, "ctorch._utils\n_rebuild_tensor_v3\n(");
    else
        OP(m, "ctorch._utils\n_rebuild_tensor_v2\n(");
    storage(m, class, key, items);
    small(m, offset);
    tuple(m, rank, shape);
    tuple(m, rank, strides);
    OP(m, "\x89"
          "ccollections\nOrderedDict\n)R");
    if (dtype) {
        OP(m, "ctorch\n");
        raw(m, dtype, strlen(dtype));
        OP(m, "\nN");
    }
    OP(m, "tR");
}

static bool parse(struct torch *t, const struct made *m, struct parse_error *err)
{
    uint8_t *exact = malloc(m->len + 1); /* so that a sanitizer knows the end; the names of storages point into it */
    memcpy(exact, m->p, m->len);
    *err = (struct parse_error){.offset = UINT64_MAX};
    const bool ok = torch_parse(t, exact, m->len, 100, err);
    cr_assert(ok || (err->offset >= 100 && err->offset <= 100 + m->len && err->what[0] && !t->tensors));
    if (ok) { /* storages are compared now, while they are there */
        for (size_t i = 0; i < t->count; i++) {
            const size_t at = (size_t)((const uint8_t *)t->tensors[i].storage - exact);
            t->tensors[i].storage = (const char *)m->p + at;
        }
    }
    free(exact);
    return ok;
}

static void is(const struct torch_tensor *t, const char *name, enum pici_dtype dtype, const char *word, unsigned rank)
{
    cr_assert_str_eq(t->name, name);
    cr_assert_eq(t->name_size, strlen(name));
    cr_assert_eq(t->dtype, dtype, "%s is %s", name, pici_dtype_name(t->dtype));
    cr_assert_str_eq(t->source_dtype, word);
    cr_assert_eq(t->rank, rank);
}

Test(pickle, a_state_dict)
{
    struct made m = {.len = 0};
    struct torch t;
    struct parse_error err;
    unsigned order[TORCH_MAX_RANK];
    OP(&m, "\x80\x02"
           "ccollections\nOrderedDict\n)R(");
    text(&m, "fc.weight");
    tensor(&m, "FloatStorage", "0", 6, 0, 2, (unsigned[]){2, 3}, (unsigned[]){3, 1}, NULL);
    text(&m, "fc.t");
    tensor(&m, "FloatStorage", "0", 6, 0, 2, (unsigned[]){3, 2}, (unsigned[]){1, 3}, NULL);
    text(&m, "part");
    tensor(&m, "FloatStorage", "0", 6, 2, 1, (unsigned[]){4}, (unsigned[]){1}, NULL);
    text(&m, "z");
    tensor(&m, "ComplexDoubleStorage", "1", 1, 0, 0, NULL, NULL, NULL);
    text(&m, "mask");
    tensor(&m, "BoolStorage", "2", 0, 0, 1, (unsigned[]){0}, (unsigned[]){1}, NULL);
    text(&m, "f8");
    tensor(&m, "UntypedStorage", "3", 4, 0, 1, (unsigned[]){4}, (unsigned[]){1}, "float8_e5m2");
    OP(&m, "u.");
    cr_assert(parse(&t, &m, &err), "%s", err.what);
    cr_assert_eq(t.count, 6);
    is(&t.tensors[0], "fc.weight", PICI_F32, "float32", 2);
    cr_assert(t.tensors[0].row_major && t.tensors[0].items == 6 && t.tensors[0].extent == 6);
    cr_assert(t.tensors[0].storage_size == 1 && t.tensors[0].storage[0] == '0');
    is(&t.tensors[1], "fc.t", PICI_F32, "float32", 2);
    cr_assert(!t.tensors[1].row_major && torch_is_dense(&t.tensors[1], order));
    cr_assert(order[0] == 1 && order[1] == 0 && t.tensors[1].strides[1] == 3 && t.tensors[1].shape[0] == 3);
    is(&t.tensors[2], "part", PICI_F32, "float32", 1);
    cr_assert(t.tensors[2].offset == 2 && t.tensors[2].extent == 6 && !torch_is_dense(&t.tensors[2], order));
    is(&t.tensors[3], "z", PICI_F64, "complex128", 0);
    cr_assert(t.tensors[3].item_elements == 2 && t.tensors[3].items == 1);
    is(&t.tensors[4], "mask", PICI_U8, "bool", 1);
    cr_assert(t.tensors[4].items == 0 && t.tensors[4].extent == 0);
    is(&t.tensors[5], "f8", PICI_F8E5M2, "float8_e5m2", 1);
    torch_free(&t);
}

Test(pickle, names_are_paths)
{
    struct made m = {.len = 0};
    struct torch t;
    struct parse_error err;
    const unsigned one[] = {1};
    /* {"model": {"w": Parameter}, "state": {7: [t, t]}, "net": Module} with the same t twice */
    OP(&m, "\x80\x02}(");
    text(&m, "model");
    OP(&m, "}(");
    text(&m, "w");
    OP(&m, "ctorch._utils\n_rebuild_parameter\n(");
    tensor(&m, "HalfStorage", "0", 1, 0, 1, one, one, NULL);
    OP(&m, "\x88"
           "}tRu");
    text(&m, "state");
    OP(&m, "}(");
    small(&m, 7);
    OP(&m, "](");
    tensor(&m, "LongStorage", "1", 1, 0, 1, one, one, NULL);
    OP(&m, "q\x05h\x05"
           "eu");
    text(&m, "net");
    OP(&m, "cmine\nNet\n)\x81}(");
    text(&m, "_modules");
    OP(&m, "}(");
    text(&m, "fc");
    OP(&m, "cmine\nLinear\n)\x81}(");
    text(&m, "_parameters");
    OP(&m, "}(");
    text(&m, "bias");
    tensor(&m, "BFloat16Storage", "2", 1, 0, 1, one, one, NULL);
    OP(&m, "uubuubu.");
    cr_assert(parse(&t, &m, &err), "%s", err.what);
    cr_assert_eq(t.count, 4);
    is(&t.tensors[0], "model.w", PICI_F16, "float16", 1);
    is(&t.tensors[1], "state.7.0", PICI_I64, "int64", 1);
    is(&t.tensors[2], "state.7.1", PICI_I64, "int64", 1);
    is(&t.tensors[3], "net.fc.bias", PICI_BF16, "bfloat16", 1);
    torch_free(&t);
}

/* A conjugate and a negative, as torch.save writes them, and what it makes of neither. */
Test(pickle, signs)
{
    static const struct {
        const char *class, *bits;
        size_t len;
        int ok, conjugate, negative;
    } cases[] = {
#define BITS(s) s, sizeof(s) - 1
        {"ComplexFloatStorage", BITS("}X\4\0\0\0conj\x88s"), 1, 1, 0},
        {"ComplexFloatStorage", BITS("}(X\4\0\0\0conj\x88X\3\0\0\0neg\x88u"), 1, 1, 1},
        {"FloatStorage", BITS("}X\3\0\0\0neg\x88s"), 1, 0, 1},
        {"FloatStorage", BITS("}X\3\0\0\0neg\x89s"), 1, 0, 0},
        {"FloatStorage", BITS("}(X\3\0\0\0neg\x88X\3\0\0\0neg\x89u"), 1, 0, 0},
        {"FloatStorage", BITS("N"), 1, 0, 0},
        {"FloatStorage", BITS("}X\4\0\0\0conj\x88s"), 1, 0, 0},
        {"IntStorage", BITS("}X\3\0\0\0neg\x88s"), 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct made m = {.len = 0};
        struct torch t;
        struct parse_error err;
        OP(&m, "\x80\x02"
               "ctorch._utils\n_rebuild_tensor_v2\n(");
        storage(&m, cases[i].class, "0", 3);
        small(&m, 0);
        tuple(&m, 1, (unsigned[]){3});
        tuple(&m, 1, (unsigned[]){1});
        OP(&m, "\x89"
               "ccollections\nOrderedDict\n)R");
        raw(&m, cases[i].bits, cases[i].len);
        OP(&m, "tR.");
        cr_assert_eq(parse(&t, &m, &err), cases[i].ok, "%zu: %s", i, err.what);
        if (!cases[i].ok)
            continue;
        cr_assert_eq(t.tensors[0].conjugate, cases[i].conjugate, "%zu", i);
        cr_assert_eq(t.tensors[0].negative, cases[i].negative, "%zu", i);
        torch_free(&t);
    }
}

/* A tensor that is made of others, as torchao's: each of them has its name. */
Test(pickle, parts_of_a_subclass)
{
    struct made m = {.len = 0};
    struct torch t;
    struct parse_error err;
    OP(&m, "\x80\x02}");
    text(&m, "0.weight");
    OP(&m, "ctorch._tensor\n_rebuild_from_type_v2\n("
           "ctorch._utils\n_rebuild_wrapper_subclass\n"
           "ctorchao\nInt8Tensor\n(ctorchao\nInt8Tensor\nctorch\nfloat32\n");
    tuple(&m, 2, (unsigned[]){2, 3});
    OP(&m, "t}(");
    text(&m, "qdata");
    tensor(&m, "CharStorage", "0", 6, 0, 2, (unsigned[]){2, 3}, (unsigned[]){3, 1}, NULL);
    text(&m, "scale");
    tensor(&m, "FloatStorage", "1", 2, 0, 2, (unsigned[]){2, 1}, (unsigned[]){1, 1}, NULL);
    text(&m, "block_size");
    tuple(&m, 2, (unsigned[]){1, 64});
    OP(&m, "utRs.");
    cr_assert(parse(&t, &m, &err), "%s", err.what);
    cr_assert_eq(t.count, 2);
    is(&t.tensors[0], "0.weight.qdata", PICI_I8, "int8", 2);
    is(&t.tensors[1], "0.weight.scale", PICI_F32, "float32", 2);
    torch_free(&t);
}

Test(pickle, one_tensor_alone)
{
    struct made m = {.len = 0};
    struct torch t;
    struct parse_error err;
    OP(&m, "\x80\x02");
    tensor(&m, "ByteStorage", "0", 9, 0, 1, (unsigned[]){9}, (unsigned[]){1}, NULL);
    OP(&m, ".");
    cr_assert(parse(&t, &m, &err), "%s", err.what);
    cr_assert_eq(t.count, 1);
    is(&t.tensors[0], "data", PICI_U8, "uint8", 1);
    torch_free(&t);
}

/* What could grow without end, or never end, does neither. */
Test(pickle, hostile_pickles)
{
    struct torch t;
    struct parse_error err;
    struct made m = {.len = 0};
    OP(&m, "\x80\x02]q\x00h\x00"
           "a."); /* a list that holds itself */
    cr_assert(parse(&t, &m, &err) && t.count == 0, "%s", err.what);
    torch_free(&t);
    m.len = 0;
    OP(&m, "\x80\x02]q\x00"); /* each list holds the one before it ten times: 10^60 places */
    for (int i = 0; i < 60; i++) {
        OP(&m, "](");
        for (int k = 0; k < 10; k++)
            OP(&m, "h\x00");
        OP(&m, "eq\x00");
    }
    OP(&m, ".");
    cr_assert(parse(&t, &m, &err) && t.count == 0, "%s", err.what);
    torch_free(&t);
    m.len = 0;
    OP(&m, "\x80\x02"); /* too deep */
    for (int i = 0; i < 200; i++)
        OP(&m, "]");
    for (int i = 1; i < 200; i++)
        OP(&m, "a");
    OP(&m, ".");
    cr_assert(!parse(&t, &m, &err) && strstr(err.what, "in one another"), "%s", err.what);
    m.len = 0;
    OP(&m, "\x80\x02Nr\xff\xff\xff\x7f."); /* an index of the memo that would take 8 GiB */
    cr_assert(!parse(&t, &m, &err) && strstr(err.what, "memo"), "%s", err.what);
    m.len = 0;
    OP(&m, "\x80\x02X\xff\xff\xff\xff"
           "abc."); /* a text of 4 GiB */
    cr_assert(!parse(&t, &m, &err) && strstr(err.what, "ends inside"), "%s", err.what);
    m.len = 0;
    OP(&m, "\x80\x02"); /* a shape whose product overflows */
    OP(&m, "ctorch._utils\n_rebuild_tensor_v2\n(");
    storage(&m, "FloatStorage", "0", 1);
    OP(&m, "K\x00\x8a\x07\xff\xff\xff\xff\xff\xff\x7f\x8a\x07\xff\xff\xff\xff\xff\xff\x7f\x86K\x01K\x01\x86\x89}tR.");
    cr_assert(!parse(&t, &m, &err) && strstr(err.what, "59 bits"), "%s", err.what);
}

/* Appends a text of n bytes. */
static size_t long_text(uint8_t *p, size_t n)
{
    p[0] = 'X';
    for (int i = 0; i < 4; i++)
        p[1 + i] = (uint8_t)(n >> 8 * i);
    memset(p + 5, 'k', n);
    return 5 + n;
}

/* Keys whose values are not tensors cost nothing, at any length and number. A path longer than a name may be is
 * rejected when it leads to a tensor. */
Test(pickle, long_keys, .timeout = 20)
{
    enum { KEY = 16 << 20, TIMES = 100000, ROOM = KEY + 4 * TIMES + 1000 };
    static const char *const values[] = {"N", "h\x01", "h\x02"}; /* None; a list; a Parameter of a number */
    uint8_t *p = malloc(ROOM);
    struct torch t;
    struct parse_error err;
    for (int i = 0; i < 3; i++) {
        struct made m = {.len = 0};
        OP(&m, "\x80\x02]q\x01"
               "0ctorch._utils\n_rebuild_parameter\n(K\x05tRq\x02"
               "0}(");
        memcpy(p, m.p, m.len);
        size_t len = m.len;
        len += long_text(p + len, KEY);
        memcpy(p + len, "q\x00N", 3);
        len += 3;
        const size_t width = strlen(values[i]);
        for (int k = 0; k < TIMES; k++) {
            memcpy(p + len, "h\x00", 2);
            memcpy(p + len + 2, values[i], width);
            len += 2 + width;
        }
        memcpy(p + len, "u.", 2);
        cr_assert(torch_parse(&t, p, len + 2, 0, &err), "%d: %s", i, err.what);
        cr_assert_eq(t.count, 0);
        torch_free(&t);
    }
    for (size_t n = PICI_NAME_MAX - 2; n <= PICI_NAME_MAX - 1; n++) { /* {"kkk...": {"b": tensor}} */
        struct made m = {.len = 0};
        memcpy(p, "\x80\x02}", 3);
        size_t len = 3;
        len += long_text(p + len, n);
        OP(&m, "}");
        text(&m, "b");
        tensor(&m, "ByteStorage", "0", 9, 0, 1, (unsigned[]){9}, (unsigned[]){1}, NULL);
        OP(&m, "ss.");
        memcpy(p + len, m.p, m.len);
        const bool ok = torch_parse(&t, p, len + m.len, 0, &err);
        cr_assert_eq(ok, n + 2 <= PICI_NAME_MAX);
        if (ok)
            cr_assert(t.count == 1 && t.tensors[0].name_size == n + 2 && strcmp(t.tensors[0].name + n, ".b") == 0);
        else
            cr_assert(strstr(err.what, "more than 1048576 bytes"), "%s", err.what);
        if (ok)
            torch_free(&t);
    }
    free(p);
}

/* Parameters of Parameters are walked once, however long the chain and however often it is there; one that is its own
 * argument ends. */
Test(pickle, chains_of_parameters, .timeout = 20)
{
    enum { LONG = 5000, TIMES = 200000 };
    uint8_t *p = malloc(4 * LONG + 2 * TIMES + 1000), *to = p;
    struct torch t;
    struct parse_error err;
    struct made m = {.len = 0};
    OP(&m, "\x80\x02"
           "ctorch._utils\n_rebuild_parameter\nq\x00"
           "0");
    tensor(&m, "ByteStorage", "0", 9, 0, 1, (unsigned[]){9}, (unsigned[]){1}, NULL);
    OP(&m, "q\x01"
           "0");
    memcpy(to, m.p, m.len);
    to += m.len;
    for (int i = 0; i < LONG; i++, to += 2)
        memcpy(to, "h\x00", 2);
    memcpy(to, "h\x01", 2);
    to += 2;
    for (int i = 0; i < LONG; i++, to += 2)
        memcpy(to, "\x85R", 2);
    memcpy(to,
           "q\x02"
           "0](",
           5);
    to += 5;
    for (int i = 0; i < TIMES; i++, to += 2)
        memcpy(to, "h\x02", 2);
    memcpy(to, "e.", 2);
    cr_assert(torch_parse(&t, p, (size_t)(to + 2 - p), 0, &err), "%s", err.what);
    cr_assert_eq(t.count, TIMES);
    cr_assert(strcmp(t.tensors[1].name, "1") == 0 && t.tensors[TIMES - 1].items == 9);
    torch_free(&t);
    free(p);
    m.len = 0;
    OP(&m, "\x80\x02"
           "ctorch._utils\n_rebuild_parameter\n]q\x00Rq\x01"
           "0h\x00h\x01"
           "a0](h\x01h\x01h\x00"
           "e.");
    cr_assert(parse(&t, &m, &err), "%s", err.what);
    cr_assert_eq(t.count, 0);
    torch_free(&t);
}

Test(pickle, refuses)
{
    static const struct {
        const char *p;
        size_t len;
        const char *why;
    } bad[] = {
#define BAD(literal, why) {literal, sizeof(literal) - 1, why}
        BAD("", "ends inside"),
        BAD("\x80\x02", "ends inside"),
        BAD("\x80\x02.", "takes more from its stack"),
        BAD("\x80\x01N.", "protocol"),
        BAD("\x80\x09N.", "protocol"),
        BAD("\x80\x02(N", "ends inside"),
        BAD("\x80\x02h\x00.", "does not exist"),
        BAD("\x80\x02t.", "lacks a mark"),
        BAD("\x80\x02}(Nu.", "key without a value"),
        BAD("\x80\x02N(NNu.", "not a container"),
        BAD("\x80\x02NNa.", "not a container"),
        BAD("\x80\x02NNb.", "no call"),
        BAD("\x80\x02NN\x93.", "not text"),
        BAD("\x80\x02"
            "cos\nsystem",
            "ends inside"),
        BAD("\x80\x02\x82\x01.", "0x82"),
        BAD("\x80\x02I1\n.", "0x49"),
        BAD("\x80\x02\x97.", "0x97"),
#undef BAD
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct pickle p;
        struct parse_error err = {.offset = UINT64_MAX};
        cr_assert(!pickle_parse(&p, (const uint8_t *)bad[i].p, bad[i].len, 0, &err), "number %zu", i);
        cr_assert(strstr(err.what, bad[i].why), "number %zu: %s", i, err.what);
        cr_assert(!p.nodes && !p.cells);
    }
}

/* Opcodes of protocol 4, and values. */
Test(pickle, reads_values)
{
    static const char bytes[] = "\x80\x04\x95\x10\0\0\0\0\0\0\0(\x8c\x01"
                                "a\x94h\x00\x8a\x01\xfeJ\xff\xff\xff\xff"
                                "G\0\0\0\0\0\0\0\0\x8f(K\x01\x90\x8c\x02os\x8c\x06system\x93\x8c\x02ls\x85R"
                                "\x8a\x09\0\0\0\0\0\0\0\0\x01t.";
    struct pickle p;
    struct parse_error err;
    cr_assert(pickle_parse(&p, (const uint8_t *)bytes, sizeof bytes - 1, 0, &err), "%s", err.what);
    static const enum pickle_type types[] = {PICKLE_TEXT,  PICKLE_TEXT, PICKLE_INT,  PICKLE_INT,
                                             PICKLE_FLOAT, PICKLE_SET,  PICKLE_CALL, PICKLE_BIG};
    for (unsigned i = 0; i < 8; i++)
        cr_assert_eq(pickle_type_of(&p, pickle_item(&p, p.root, i)), types[i], "item %u", i);
    cr_assert_eq(pickle_item(&p, p.root, 8), PICKLE_NO);
    cr_assert(pickle_is_text(&p, pickle_item(&p, p.root, 1), "a"));
    cr_assert_eq(p.nodes[pickle_item(&p, p.root, 2)].is.number, -2);
    cr_assert_eq(p.nodes[pickle_item(&p, p.root, 3)].is.number, -1);
    const struct pickle_node *call = &p.nodes[pickle_item(&p, p.root, 6)]; /* named, and not called */
    cr_assert(pickle_is_global(&p, call->is.call.function, "os", "system"));
    cr_assert(pickle_is_text(&p, pickle_item(&p, call->is.call.args, 0), "ls"));
    pickle_free(&p);
}
