/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The memory that a reader and a writer keep for each tensor of a file. */
#define _GNU_SOURCE
#include "tests/util/file.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>

/* Bytes allocated at this time; 0 where the C library does not tell. */
static size_t allocated(void)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33) && !defined(SANITIZED)
    const struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
#else
    return 0;
#endif
}

enum { MANY = 1000000, MOST = 130 };

/* A million tensors without elements: what is kept of each, whichever way it is read, is less than what it takes in a
 * file of version 1. */
static void many_empty_tensors(unsigned version)
{
    struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    const uint64_t shape = 0;
    struct sink k = {0};
    struct pici_writer *w;
    struct pici_reader *r;
    struct pici_tensor t = PICI_TENSOR_INIT;
    char name[16];
    if (!allocated()) {
        printf("skip: memory of many tensors: no mallinfo2\n");
        return;
    }
    opts.version = version;
    size_t before = allocated();
    enum pici_status s = pici_writer_open(&w, sink_write, &k, NULL, 0, &opts);
    WRITE_OK(w, s);
    t.rank = 1;
    t.shape = &shape;
    t.name = name;
    for (int i = 0; i < MANY; i++) {
        t.name_len = (size_t)snprintf(name, sizeof name, "%d", i);
        s = pici_writer_tensor(w, &t);
        cr_assert_eq(s, PICI_OK);
    }
    WRITE_OK(w, pici_writer_finish(w));
    size_t kept = allocated() - before - malloc_usable_size(k.p);
    cr_assert_leq(kept, (size_t)MOST * MANY, "the writer keeps %zu bytes for %d tensors", kept, MANY);
    pici_writer_close(w);

    before = allocated();
    open_memory(&r, &k);
    kept = allocated() - before;
    cr_assert_leq(kept, (size_t)MOST * MANY, "at random: %zu bytes for %d tensors", kept, MANY);
    pici_reader_close(r);

    struct source from = {.p = k.p, .len = k.len};
    struct pici_tensor_info info = PICI_TENSOR_INFO_INIT;
    int more = 1;
    before = allocated();
    s = pici_reader_open_stream(&r, source_read, &from, NULL);
    while (!s && more)
        s = pici_reader_next(r, &info, &more);
    READ_OK(r, s);
    kept = allocated() - before;
    cr_assert_leq(kept, (size_t)MOST * MANY, "forward: %zu bytes for %d tensors", kept, MANY);
    cr_assert_eq(info.index, MANY - 1);
    pici_reader_close(r);
    sink_free(&k);
}

Test(file_memory, of_records, .timeout = 120)
{
    many_empty_tensors(1);
}

Test(file_memory, of_tables, .timeout = 120)
{
    many_empty_tensors(2);
}
