/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TRY_STRING_H
#define TRY_STRING_H
#include <stddef.h>
void *memcpy(void *restrict, const void *restrict, size_t);
void *memmove(void *, const void *, size_t);
void *memset(void *, int, size_t);
int memcmp(const void *, const void *, size_t);
int strcmp(const char *, const char *);
#endif
