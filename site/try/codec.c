/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The codec for a web page: functions with plain numbers over the amalgamation, and what the codec needs of a C
 * library (libc/). make site compiles both to WebAssembly. Addresses are offsets in the page's memory. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pici.h"

#define EXPORT(name) __attribute__((export_name(#name)))
#define PAGE ((size_t)65536)

/* ---- memory: it only grows. The page loads a new instance for a new file. */

extern unsigned char __heap_base;
static size_t used;

void *malloc(size_t size)
{
    if (used == 0)
        used = (size_t)&__heap_base;
    const size_t begin = (used + 63) & ~(size_t)63;
    if (size > ~(size_t)0 - begin - PAGE)
        return NULL;
    const size_t pages = (begin + size + PAGE - 1) / PAGE, now = __builtin_wasm_memory_size(0);
    if (pages > now && __builtin_wasm_memory_grow(0, pages - now) == (size_t)-1)
        return NULL;
    used = begin + size;
    return (void *)begin;
}

void free(void *p)
{
    (void)p;
}

void *calloc(size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes))
        return NULL;
    void *p = malloc(bytes);
    return p ? memset(p, 0, bytes) : NULL;
}

/* Copies what lies after the old allocation too, up to `size` bytes: malloc keeps no sizes. */
void *realloc(void *old, size_t size)
{
    void *p = malloc(size);
    return p && old ? memmove(p, old, size) : p;
}

/* ---- the rest of a C library. memcpy, memmove and memset become instructions (-mbulk-memory). */

void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
    return __builtin_memcpy(to, from, n);
}

void *memmove(void *to, const void *from, size_t n)
{
    return __builtin_memmove(to, from, n);
}

void *memset(void *to, int byte, size_t n)
{
    return __builtin_memset(to, byte, n);
}

int memcmp(const void *a, const void *b, size_t n)
{
    const unsigned char *p = a, *q = b;
    for (size_t i = 0; i < n; i++)
        if (p[i] != q[i])
            return p[i] < q[i] ? -1 : 1;
    return 0;
}

int strcmp(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return (unsigned char)*a - (unsigned char)*b;
}

char *getenv(const char *name)
{
    (void)name;
    return NULL;
}

long sysconf(int name)
{
    (void)name;
    return 1;
}

int sched_yield(void)
{
    return 0;
}

int pthread_attr_init(pthread_attr_t *attr)
{
    (void)attr;
    return 0;
}

int pthread_attr_setstacksize(pthread_attr_t *attr, size_t size)
{
    (void)attr, (void)size;
    return 0;
}

int pthread_attr_destroy(pthread_attr_t *attr)
{
    (void)attr;
    return 0;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg)
{
    (void)thread, (void)attr, (void)start, (void)arg;
    return 11; /* EAGAIN */
}

int pthread_join(pthread_t thread, void **result)
{
    (void)thread, (void)result;
    return 0;
}

/* ---- what the page calls */

EXPORT(room) void *room(size_t size)
{
    return malloc(size);
}

EXPORT(bound) size_t bound(int format, int dtype, size_t n)
{
    return pici_bound(format, dtype, n);
}

/* The block's size, or a status below 0. */
EXPORT(compress) long compress(void *block, size_t capacity, const void *src, size_t n, int dtype, int format, int pack)
{
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.pack = pack;
    size_t size;
    const enum pici_status s = pici_compress(block, capacity, &size, src, n, dtype, format, &opts);
    return s == PICI_OK ? (long)size : s;
}

/* 0 if the block's elements are the n of src; 1 if they are not; a status below 0. `out` has room for them. */
EXPORT(differs) int differs(void *out, const void *block, size_t size, const void *src, size_t n, size_t bytes)
{
    const enum pici_status s = pici_decompress(out, n, block, size, NULL);
    return s == PICI_OK ? memcmp(out, src, bytes) != 0 : s;
}

/* Five numbers for each container of a hybrid or packed block: tiles, nonzeros, bytes of positions, bytes of values,
 * and other bytes. The first row's other bytes are the header, the directory and padding. */
EXPORT(breakdown) int breakdown(double (*rows)[5], const void *block, size_t size)
{
    struct pici_breakdown of = PICI_BREAKDOWN_INIT;
    const enum pici_status s = pici_breakdown(&of, block, size);
    for (int i = 0; s == PICI_OK && i < PICI_CONTAINERS; i++) {
        rows[i][0] = of.tiles[i];
        rows[i][1] = of.nnz[i];
        rows[i][2] = of.position_bytes[i];
        rows[i][3] = of.value_bytes[i];
        rows[i][4] = i == 0 ? of.other_bytes : 0;
    }
    return s;
}

EXPORT(status_words) const char *status_words(int status)
{
    return pici_strerror(status);
}
