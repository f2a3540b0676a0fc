/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A pool of objects of one type, for requests: it reuses idle objects, and frees all together. One thread at a time may
 * use it. */
#ifndef PICI_LIB_TRANSPORT_POOL_H
#define PICI_LIB_TRANSPORT_POOL_H

#include <stdlib.h>
#include <string.h>

/* The first member of every object. */
struct pool_item {
    struct pool_item *older; /* in the list of all objects */
    struct pool_item *idle;  /* in the list of those not in use */
};

struct pool {
    struct pool_item *all, *idle; /* all: every object; idle: those not in use; newest first */
};

/* An object of this size, the same in every call; zero except for its item. NULL: no memory. */
static inline void *pool_take(struct pool *pool, size_t bytes)
{
    struct pool_item *item = pool->idle;
    if (item)
        pool->idle = item->idle;
    else {
        item = malloc(bytes);
        if (!item)
            return NULL;
        item->older = pool->all;
        pool->all = item;
    }
    memset(item + 1, 0, bytes - sizeof *item);
    return item;
}

static inline void pool_give(struct pool *pool, struct pool_item *item)
{
    item->idle = pool->idle;
    pool->idle = item;
}

/* Free all objects, in use or not. */
static inline void pool_free(struct pool *pool)
{
    for (struct pool_item *item = pool->all, *older; item; item = older) {
        older = item->older;
        free(item);
    }
    *pool = (struct pool){NULL, NULL};
}

#endif
