/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Count a program's calls of the allocator. The linker (--wrap) replaces the allocator's functions by these, for the
 * program and the static libraries, but not for shared ones. Include once a program. */
#ifndef PICI_TESTS_COUNTED_H
#define PICI_TESTS_COUNTED_H

#include <stddef.h>

static struct {
    int on; /* the call is being made */
    int allocations, frees;
} counted;

void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
void *__real_aligned_alloc(size_t, size_t);
void __real_free(void *);
void *__wrap_malloc(size_t);
void *__wrap_calloc(size_t, size_t);
void *__wrap_realloc(void *, size_t);
void *__wrap_aligned_alloc(size_t, size_t);
void __wrap_free(void *);

void *__wrap_malloc(size_t bytes)
{
    counted.allocations += counted.on;
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    counted.allocations += counted.on;
    return __real_calloc(n, bytes);
}

void *__wrap_realloc(void *p, size_t bytes)
{
    counted.allocations += counted.on;
    return __real_realloc(p, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    counted.allocations += counted.on;
    return __real_aligned_alloc(alignment, bytes);
}

void __wrap_free(void *p)
{
    counted.frees += counted.on && p;
    __real_free(p);
}

#endif
