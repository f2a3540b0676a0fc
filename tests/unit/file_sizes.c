/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The sizes of the public structs of file.h: smaller than the first version is refused; larger is a newer caller. */
#include "tests/util/file.h"

#include <stddef.h>
#include <string.h>

enum { MORE = 24 }; /* bytes that a newer version has added */

/* A struct as a newer caller has it. */
#define NEWER(type)                                                                                                    \
    union {                                                                                                            \
        struct type s;                                                                                                 \
        unsigned char bytes[sizeof(struct type) + MORE];                                                               \
    }
#define SET_NEWER(u, type, init)                                                                                       \
    do {                                                                                                               \
        const struct type first = init;                                                                                \
        memset((u).bytes, 0, sizeof(u).bytes);                                                                         \
        (u).s = first;                                                                                                 \
        (u).s.size = sizeof(u).bytes;                                                                                  \
    } while (0)

static int all_zero(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return 0;
    return 1;
}

/* Each byte of the tail by itself. */
#define FOR_TAIL(i, u, type) for (size_t i = sizeof(struct type); i < sizeof(u).bytes; i++)

Test(file_sizes, writer_opts)
{
    NEWER(pici_writer_opts) o;
    struct sink k = {0}, want = {0};
    struct pici_writer *w;
    SET_NEWER(o, pici_writer_opts, PICI_WRITER_OPTS_INIT);
    o.s.chunk_elements = 50;
    enum pici_status s = pici_writer_open(&w, sink_write, &k, NULL, 0, &o.s);
    WRITE_OK(w, s);
    WRITE_OK(w, pici_writer_finish(w));
    pici_writer_close(w);
    write_items(&want, NULL, 0, NULL, 0, NULL, 0);
    cr_assert(k.len == want.len && memcmp(k.p, want.p, k.len) == 0);
    size_t written = k.len;
    FOR_TAIL(i, o, pici_writer_opts)
    {
        o.bytes[i] = 1;
        cr_assert_eq(pici_writer_open(&w, sink_write, &k, NULL, 0, &o.s), PICI_E_UNSUPPORTED, "byte %zu", i);
        cr_assert_str_not_empty(pici_writer_error(w));
        pici_writer_close(w);
        o.bytes[i] = 0;
    }
    for (size_t size = 0; size < offsetof(struct pici_writer_opts, zeros); size++) {
        o.s.size = size;
        cr_assert_eq(pici_writer_open(&w, sink_write, &k, NULL, 0, &o.s), PICI_E_ARG, "size %zu", size);
        cr_assert_str_not_empty(pici_writer_error(w));
        pici_writer_close(w);
    }
    cr_assert_eq(k.len, written);
    o.s.size = offsetof(struct pici_writer_opts, zeros); /* of 0.1.0; what is beyond is not read */
    o.s.zeros = (enum pici_zeros)77;
    cr_assert_eq(pici_writer_open(&w, sink_write, &k, NULL, 0, &o.s), PICI_OK);
    cr_assert_eq(pici_writer_finish(w), PICI_OK);
    pici_writer_close(w);
    cr_assert(k.len == 2 * written && memcmp(k.p + written, k.p, written) == 0);
    sink_free(&k);
    sink_free(&want);
}

/* A tensor that is refused leaves the writer as it was. */
Test(file_sizes, tensor)
{
    NEWER(pici_tensor) t;
    struct rng rng = {1};
    struct item it;
    struct sink k = {0}, want = {0};
    struct pici_writer *w;
    item_init(&it, "w", PICI_F32, PATTERN_30, &rng, DIMS(100));
    write_items(&want, &it, 1, NULL, 0, NULL, 0);
    SET_NEWER(t, pici_tensor, it.t);
    t.s.shape = it.shape;
    enum pici_status s = pici_writer_open(&w, sink_write, &k, NULL, 0, NULL);
    WRITE_OK(w, s);
    FOR_TAIL(i, t, pici_tensor)
    {
        t.bytes[i] = 1;
        cr_assert_eq(pici_writer_tensor(w, &t.s), PICI_E_UNSUPPORTED, "byte %zu", i);
        cr_assert_str_not_empty(pici_writer_error(w));
        t.bytes[i] = 0;
    }
    for (size_t size = 0; size < sizeof t.s; size++) {
        t.s.size = size;
        cr_assert_eq(pici_writer_tensor(w, &t.s), PICI_E_ARG, "size %zu", size);
        cr_assert_str_not_empty(pici_writer_error(w));
    }
    t.s.size = sizeof t.bytes;
    WRITE_OK(w, pici_writer_tensor(w, &t.s));
    WRITE_OK(w, pici_writer_data(w, it.data, it.bytes));
    WRITE_OK(w, pici_writer_finish(w));
    pici_writer_close(w);
    cr_assert(k.len == want.len && memcmp(k.p, want.p, k.len) == 0);
    sink_free(&k);
    sink_free(&want);
    item_free(&it);
}

Test(file_sizes, reader_opts)
{
    NEWER(pici_reader_opts) o;
    struct sink k = small_file(2, 0);
    struct pici_reader *r;
    SET_NEWER(o, pici_reader_opts, PICI_READER_OPTS_INIT);
    for (int forward = 0; forward < 2; forward++) {
        struct source from = {.p = k.p, .len = k.len};
        for (size_t i = sizeof(struct pici_reader_opts) - 1; i < sizeof o.bytes; i++) {
            enum pici_status want = PICI_OK;
            from.at = 0;
            if (i >= sizeof(struct pici_reader_opts)) {
                o.bytes[i] = 1;
                want = PICI_E_UNSUPPORTED;
            }
            enum pici_status s = forward ? pici_reader_open_stream(&r, source_read, &from, &o.s)
                                         : pici_reader_open_memory(&r, k.p, k.len, &o.s);
            cr_assert_eq(s, want, "byte %zu: %d", i, s);
            cr_assert_eq(pici_reader_error(r)[0] != 0, want != PICI_OK);
            pici_reader_close(r);
            if (want)
                o.bytes[i] = 0;
        }
    }
    for (size_t size = 0; size < sizeof o.s; size++) {
        o.s.size = size;
        cr_assert_eq(pici_reader_open_memory(&r, k.p, k.len, &o.s), PICI_E_ARG, "size %zu", size);
        cr_assert_str_not_empty(pici_reader_error(r));
        pici_reader_close(r);
    }
    sink_free(&k);
}

/* Every function that fills a tensor's info: what is beyond ours becomes zero, and the size stays the caller's. */
Test(file_sizes, tensor_info)
{
    NEWER(pici_tensor_info) t;
    struct pici_tensor_info want = PICI_TENSOR_INFO_INIT;
    struct sink k = small_file(2, 0);
    struct source from = {.p = k.p, .len = k.len};
    struct pici_reader *r, *f;
    int more;
    open_memory(&r, &k);
    enum pici_status s = pici_reader_open_stream(&f, source_read, &from, NULL);
    READ_OK(f, s);
    READ_OK(r, pici_reader_tensor(r, 0, &want));
    for (int how = 0; how < 4; how++) {
        SET_NEWER(t, pici_tensor_info, PICI_TENSOR_INFO_INIT);
        memset(t.bytes + sizeof t.s, 0xff, MORE);
        s = how == 0   ? pici_reader_tensor(r, 0, &t.s)
            : how == 1 ? pici_reader_find(r, "coo", 3, &t.s)
                       : pici_reader_next(how == 2 ? r : f, &t.s, &more);
        cr_assert_eq(s, PICI_OK, "%d: %d", how, s);
        cr_assert_eq(t.s.size, sizeof t.bytes);
        cr_assert_eq(t.s.count, want.count);
        cr_assert_eq(t.s.name_len, 3);
        cr_assert_eq(t.s.shape[0], want.shape[0]);
        cr_assert_eq(t.s.stored_bytes, how < 3 ? want.stored_bytes : 0);
        cr_assert(all_zero(t.bytes + sizeof t.s, MORE), "%d", how);
    }
    for (size_t size = 0; size < sizeof t.s; size++) { /* and nothing is passed over */
        t.s.size = size;
        cr_assert_eq(pici_reader_tensor(r, 0, &t.s), PICI_E_ARG);
        cr_assert_eq(pici_reader_find(r, "coo", 3, &t.s), PICI_E_ARG);
        cr_assert_eq(pici_reader_next(r, &t.s, &more), PICI_E_ARG);
        cr_assert_eq(pici_reader_next(f, &t.s, &more), PICI_E_ARG);
    }
    READ_OK(r, pici_reader_next(r, &want, &more));
    cr_assert(more && want.index == 1);
    READ_OK(f, pici_reader_next(f, &want, &more));
    cr_assert(more && want.index == 1);
    pici_reader_close(r);
    pici_reader_close(f);
    sink_free(&k);
}

Test(file_sizes, chunk_info)
{
    NEWER(pici_chunk_info) c;
    struct pici_chunk_info want = PICI_CHUNK_INFO_INIT;
    struct sink k = small_file(2, 0);
    struct pici_reader *r;
    open_memory(&r, &k);
    READ_OK(r, pici_reader_chunk(r, 0, 1, &want));
    SET_NEWER(c, pici_chunk_info, PICI_CHUNK_INFO_INIT);
    memset(c.bytes + sizeof c.s, 0xff, MORE);
    READ_OK(r, pici_reader_chunk(r, 0, 1, &c.s));
    cr_assert_eq(c.s.size, sizeof c.bytes);
    cr_assert_eq(c.s.offset, want.offset);
    cr_assert_eq(c.s.first, 50);
    cr_assert_eq(c.s.block.block_bytes, want.block.block_bytes);
    cr_assert(all_zero(c.bytes + sizeof c.s, MORE));
    for (size_t size = 0; size < sizeof c.s; size++) {
        c.s.size = size;
        cr_assert_eq(pici_reader_chunk(r, 0, 1, &c.s), PICI_E_ARG, "size %zu", size);
    }
    pici_reader_close(r);
    sink_free(&k);
}
