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

enum { MANY = 1000000 };

/* A million tensors without elements: what is kept is less than the file, whichever way it is read. */
Test(file_memory, many_empty_tensors, .timeout = 120)
{
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
    size_t before = allocated();
    enum pici_status s = pici_writer_open(&w, sink_write, &k, NULL, 0, NULL);
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
    cr_assert_leq(kept, k.len, "the writer keeps %zu bytes for a file of %zu", kept, k.len);
    pici_writer_close(w);

    before = allocated();
    open_memory(&r, &k);
    kept = allocated() - before;
    cr_assert_leq(kept, k.len, "at random: %zu bytes for a file of %zu", kept, k.len);
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
    cr_assert_leq(kept, k.len, "forward: %zu bytes for a file of %zu", kept, k.len);
    cr_assert_eq(info.index, MANY - 1);
    pici_reader_close(r);
    sink_free(&k);
}
