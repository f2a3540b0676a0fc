/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A page has one thread: pthread_create fails, and the codec then works on the caller's thread. */
#ifndef TRY_PTHREAD_H
#define TRY_PTHREAD_H
#include <stddef.h>
typedef int pthread_t;
typedef int pthread_attr_t;
int pthread_attr_init(pthread_attr_t *);
int pthread_attr_setstacksize(pthread_attr_t *, size_t);
int pthread_attr_destroy(pthread_attr_t *);
int pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int pthread_join(pthread_t, void **);
#endif
