/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TRY_STDLIB_H
#define TRY_STDLIB_H
#include <stddef.h>
void *malloc(size_t);
void *calloc(size_t, size_t);
void *realloc(void *, size_t);
void free(void *);
char *getenv(const char *);
#endif
