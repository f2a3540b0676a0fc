/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Threads, for a run under ThreadSanitizer too: several callers at once, whose first calls choose the kernels, and
 * calls that start threads. All must give the bytes of one thread. Needs libc alone. */
#define _GNU_SOURCE /* pthread_attr_setstack */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pici/file.h>
#include <pici/pici.h>

#include "tests/util/util.h"

enum { CALLERS = 4, N = 700 * 4096 + 77, CHUNK = 100000 };

static uint16_t src[N];
static int passed, failed;

/* As large as in a program of threadprivate arrays. libc takes it from the stack of each thread, the library's too. */
static _Thread_local volatile unsigned char own[300 << 10];

static void *allocate(size_t bytes)
{
    void *p = malloc(bytes);
    if (!p)
        abort();
    return p;
}

static void expect(int holds, const char *what, enum pici_format format, int threads)
{
    if (holds)
        passed++;
    else {
        failed++;
        printf("FAIL %s, %s, %d threads\n", what, pici_format_name(format), threads);
    }
}

struct call {
    enum pici_format format;
    int threads;
    uint8_t *block;
    size_t len;
    uint16_t *decoded, *sum, *range;
    enum pici_status status[5];
};

enum { FIRST = 3 * 4096 + 5, RANGE = N - 2 * FIRST };

static void *work(void *arg)
{
    struct call *c = arg;
    const struct pici_opts opts = {sizeof opts, c->threads, 1, PICI_ZEROS_EXACT, 0, PICI_PACK_NONE, 0};
    const size_t cap = pici_bound(c->format, PICI_U16, N);
    c->block = allocate(cap);
    c->decoded = allocate(sizeof src);
    c->sum = allocate(sizeof src);
    c->range = allocate(RANGE * sizeof *src);
    memcpy(c->sum, src, sizeof src);
    c->status[0] = pici_compress(c->block, cap, &c->len, src, N, PICI_U16, c->format, &opts);
    c->status[1] = pici_decompress(c->decoded, N, c->block, c->len, &opts);
    c->status[2] = pici_scatter_add(c->sum, N, c->block, c->len, &opts);
    c->status[3] = pici_decompress_range(c->range, FIRST, RANGE, c->block, c->len, &opts);
    c->status[4] = pici_verify(c->block, c->len);
    return NULL;
}

static void check(const struct call *c, const struct call *one)
{
    for (int i = 0; i < 5; i++)
        expect(c->status[i] == PICI_OK, "status", c->format, c->threads);
    expect(c->len == one->len && memcmp(c->block, one->block, c->len) == 0, "block", c->format, c->threads);
    expect(memcmp(c->decoded, src, sizeof src) == 0, "decompress", c->format, c->threads);
    expect(memcmp(c->range, src + FIRST, RANGE * sizeof *src) == 0, "range", c->format, c->threads);
    int doubled = 1;
    for (size_t i = 0; i < N; i++)
        doubled &= c->sum[i] == (uint16_t)(2 * src[i]);
    expect(doubled, "scatter-add", c->format, c->threads);
}

static void discard(struct call *c)
{
    free(c->block);
    free(c->decoded);
    free(c->sum);
    free(c->range);
}

static void callers(void)
{
    static const enum pici_format formats[CALLERS] = {PICI_BITMAP, PICI_COO, PICI_BITMAP, PICI_AUTO};
    struct call calls[CALLERS];
    pthread_t threads[CALLERS];
    memset(calls, 0, sizeof calls);
    for (int i = 0; i < CALLERS; i++) {
        calls[i].format = formats[i];
        calls[i].threads = 1 + i % 2;
        if (pthread_create(&threads[i], NULL, work, &calls[i]))
            abort();
    }
    for (int i = 0; i < CALLERS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < CALLERS; i++)
        check(&calls[i], i == 2 ? &calls[0] : &calls[i]);
    for (int i = 0; i < CALLERS; i++)
        discard(&calls[i]);
}

static void threads_of_a_call(enum pici_format format)
{
    static const int counts[] = {2, 3, 8, 0};
    struct call one = {.format = format, .threads = 1};
    work(&one);
    check(&one, &one);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct call c = {.format = format, .threads = counts[i]};
        work(&c);
        check(&c, &one);
        discard(&c);
    }
    discard(&one);
}

/* ---- the stack of a call, which pici.h bounds */

/* Whether functions need as much stack as in a release. */
#if !defined(SANITIZED) && defined(__x86_64__) && defined(__OPTIMIZE__)
enum { AS_RELEASED = 1 };
#else
enum { AS_RELEASED = 0 };
#endif

enum { STACK = 2 << 20, LIBC = 8 << 10, UNTOUCHED = 0xa5 };

static void *work_and_list(void *arg)
{
    struct call *c = arg;
    uint64_t count;
    uint32_t *const positions = allocate(N * sizeof *positions);
    uint16_t *const values = allocate(sizeof src);
    work(c);
    expect(pici_nonzeros(positions, 4, values, N, &count, c->block, c->len, 1, N - 1) == PICI_OK, "list", c->format, 1);
    free(positions);
    free(values);
    return NULL;
}

static void stack_of_calls(enum pici_format format)
{
    struct call c = {.format = format, .threads = 1};
    pthread_attr_t attr;
    pthread_t thread;
    size_t untouched = 0;
    unsigned char *const stack = aligned_alloc(1 << 16, STACK);
    if (!stack || pthread_attr_init(&attr) || pthread_attr_setstack(&attr, stack, STACK))
        abort();
    memset(stack, UNTOUCHED, STACK);
    if (pthread_create(&thread, &attr, work_and_list, &c))
        abort();
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
    while (stack[untouched] == UNTOUCHED)
        untouched++;
    expect(STACK - untouched <= (160 << 10) + sizeof own + LIBC, "stack", format, 1);
    discard(&c);
    free(stack);
}

/* A file in memory. */
struct sink {
    uint8_t *bytes;
    size_t len, cap;
};

static int take(void *ctx, const void *p, size_t n)
{
    struct sink *s = ctx;
    if (s->len + n > s->cap)
        abort();
    memcpy(s->bytes + s->len, p, n);
    s->len += n;
    return 0;
}

static void write_file(struct sink *s, int threads)
{
    const uint64_t shape[] = {N};
    struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    struct pici_tensor t = PICI_TENSOR_INIT;
    struct pici_writer *w;
    opts.threads = threads;
    opts.chunk_elements = CHUNK;
    t.name = "t";
    t.name_len = 1;
    t.dtype = PICI_U16;
    t.rank = 1;
    t.shape = shape;
    s->len = 0;
    s->cap = 2 * sizeof src;
    s->bytes = allocate(s->cap);
    enum pici_status status = pici_writer_open(&w, take, s, NULL, 0, &opts);
    if (status == PICI_OK)
        status = pici_writer_tensor(w, &t);
    if (status == PICI_OK)
        status = pici_writer_data(w, src, sizeof src);
    if (status == PICI_OK)
        status = pici_writer_finish(w);
    pici_writer_close(w);
    expect(status == PICI_OK, "write", PICI_AUTO, threads);
}

static void files(void)
{
    struct sink one, three;
    write_file(&one, 1);
    write_file(&three, 3);
    expect(one.len == three.len && memcmp(one.bytes, three.bytes, one.len) == 0, "file", PICI_AUTO, 3);

    struct pici_reader_opts opts = PICI_READER_OPTS_INIT;
    struct pici_reader *r;
    uint16_t *out = allocate(sizeof src);
    opts.threads = 3;
    enum pici_status status = pici_reader_open_memory(&r, three.bytes, three.len, &opts);
    if (status == PICI_OK)
        status = pici_reader_verify(r);
    if (status == PICI_OK)
        status = pici_reader_read_range(r, 0, 0, N, out);
    pici_reader_close(r);
    expect(status == PICI_OK, "read", PICI_AUTO, 3);
    expect(memcmp(out, src, sizeof src) == 0, "elements read", PICI_AUTO, 3);
    free(out);
    free(one.bytes);
    free(three.bytes);
}

int main(void)
{
    uint32_t random = 1;
    own[random] = 1;
    for (size_t i = 0; i < N; i++) {
        random = random * 1664525 + 1013904223;
        if (random >> 28 == 0 || i / 4096 % 5 == 3)
            src[i] = (uint16_t)(random >> 8 | 1);
    }
    callers();
    threads_of_a_call(PICI_BITMAP);
    threads_of_a_call(PICI_COO);
    threads_of_a_call(PICI_DENSE);
    if (AS_RELEASED) {
        stack_of_calls(PICI_BITMAP);
        stack_of_calls(PICI_COO);
        stack_of_calls(PICI_HYBRID);
        stack_of_calls(PICI_DENSE);
    }
    files();
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
