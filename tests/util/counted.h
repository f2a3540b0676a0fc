/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Count a program's calls of the allocator, and have some of them fail. The linker (--wrap) replaces the allocator's
 * functions by these, for the program and the static libraries, but not for shared ones. Include once a program.
 * Before, define COUNTED_BY as _Thread_local if each thread counts its own calls. */
#ifndef PICI_TESTS_COUNTED_H
#define PICI_TESTS_COUNTED_H

#include <stddef.h>

#ifndef COUNTED_BY
#define COUNTED_BY
#endif

static COUNTED_BY struct {
    int on; /* the call is being made */
    int allocations, frees;
    int fail_from, fail_end; /* of the counted allocations, these fail */
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

/* Count an allocation. Returns whether it must fail. */
static inline int counted_fails(void)
{
    const int number = counted.allocations;
    counted.allocations += counted.on;
    return counted.on && number >= counted.fail_from && number < counted.fail_end;
}

void *__wrap_malloc(size_t bytes)
{
    return counted_fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    return counted_fails() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *p, size_t bytes)
{
    return counted_fails() ? NULL : __real_realloc(p, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return counted_fails() ? NULL : __real_aligned_alloc(alignment, bytes);
}

void __wrap_free(void *p)
{
    counted.frees += counted.on && p;
    __real_free(p);
}

#endif
