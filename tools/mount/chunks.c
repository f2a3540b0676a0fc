/* SPDX-License-Identifier: BSD-3-Clause */
#include "mount/chunks.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS_FIRST = 64 };

struct chunk {
    struct chunk_key key;
    enum { MAKING, READY, FAILED } state; /* FAILED: has no bytes; the reason has been printed */
    unsigned users;                       /* threads that copy it, make it, or wait for it */
    uint8_t *bytes;
    size_t size;
    struct chunk *next;          /* in its bucket */
    struct chunk *older, *newer; /* in the order of their last use */
};

struct chunks {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a chunk is no longer MAKING */
    uint64_t most, kept, made;
    chunk_maker *make;
    void *context;
    struct chunk **bucket; /* [buckets], a power of two */
    size_t buckets, count;
    struct chunk *oldest, *newest;
};

static uint64_t hash(const struct chunk_key *key)
{
    uint64_t mixed = key->number;
    mixed = (mixed ^ key->tensor * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xff51afd7ed558ccd);
    mixed = (mixed ^ mixed >> 32 ^ key->file << 1 ^ key->swap) * UINT64_C(0xc4ceb9fe1a85ec53);
    return mixed ^ mixed >> 29;
}

static bool same(const struct chunk_key *left, const struct chunk_key *right)
{
    return left->number == right->number && left->tensor == right->tensor && left->file == right->file &&
           left->swap == right->swap;
}

struct chunks *chunks_new(uint64_t most, chunk_maker *make, void *context)
{
    struct chunks *const chunks = calloc(1, sizeof *chunks);
    struct chunk **const bucket = calloc(BUCKETS_FIRST, sizeof(struct chunk *));
    if (!chunks || !bucket) {
        free(chunks);
        free(bucket);
        return NULL;
    }
    *chunks = (struct chunks){.most = most, .make = make, .context = context, .bucket = bucket};
    chunks->buckets = BUCKETS_FIRST;
    pthread_mutex_init(&chunks->lock, NULL);
    pthread_cond_init(&chunks->changed, NULL);
    return chunks;
}

static struct chunk **bucket_of(struct chunks *chunks, const struct chunk_key *key)
{
    return &chunks->bucket[hash(key) & (chunks->buckets - 1)];
}

/* ---- The order of use. Callers of these functions hold the lock. */

static void take_out(struct chunks *chunks, struct chunk *chunk)
{
    *(chunk->older ? &chunk->older->newer : &chunks->oldest) = chunk->newer;
    *(chunk->newer ? &chunk->newer->older : &chunks->newest) = chunk->older;
}

static void put_newest(struct chunks *chunks, struct chunk *chunk)
{
    chunk->older = chunks->newest;
    chunk->newer = NULL;
    *(chunks->newest ? &chunks->newest->newer : &chunks->oldest) = chunk;
    chunks->newest = chunk;
}

/* The memory that a chunk takes. */
static uint64_t cost(const struct chunk *chunk)
{
    return chunk->size + sizeof *chunk;
}

static void drop(struct chunks *chunks, struct chunk *chunk)
{
    struct chunk **link = bucket_of(chunks, &chunk->key);
    while (*link != chunk)
        link = &(*link)->next;
    *link = chunk->next;
    take_out(chunks, chunk);
    chunks->kept -= cost(chunk);
    chunks->count--;
    free(chunk->bytes);
    free(chunk);
}

/* Drops unused chunks, least recently used first, until at most `most` bytes are left. The newest chunk stays at any
 * size, since most readers want its next bytes. */
static void shrink(struct chunks *chunks, uint64_t most)
{
    for (struct chunk *chunk = chunks->oldest, *newer; chunk != chunks->newest && chunks->kept > most; chunk = newer) {
        newer = chunk->newer;
        if (!chunk->users)
            drop(chunks, chunk);
    }
}

/* Doubles the number of buckets, if there is memory. */
static void spread(struct chunks *chunks)
{
    const size_t old_count = chunks->buckets;
    struct chunk **const old = chunks->bucket, **const wider = calloc(2 * old_count, sizeof(struct chunk *));
    if (!wider)
        return;
    chunks->bucket = wider;
    chunks->buckets = 2 * old_count;
    for (size_t i = 0; i < old_count; i++)
        for (struct chunk *chunk = old[i], *next; chunk; chunk = next) {
            struct chunk **const to = bucket_of(chunks, &chunk->key);
            next = chunk->next;
            chunk->next = *to;
            *to = chunk;
        }
    free(old);
}

/* Finds the chunk with this key, or adds one without bytes. NULL: no memory. */
static struct chunk *find(struct chunks *chunks, const struct chunk_key *key)
{
    struct chunk *chunk = *bucket_of(chunks, key);
    while (chunk && !same(&chunk->key, key))
        chunk = chunk->next;
    if (chunk) {
        take_out(chunks, chunk);
        put_newest(chunks, chunk);
        return chunk;
    }
    chunk = calloc(1, sizeof *chunk);
    if (!chunk)
        return NULL;
    if (chunks->count >= chunks->buckets)
        spread(chunks);
    struct chunk **const bucket = bucket_of(chunks, key);
    *chunk = (struct chunk){.key = *key, .state = FAILED, .next = *bucket};
    *bucket = chunk;
    put_newest(chunks, chunk);
    chunks->count++;
    chunks->kept += cost(chunk);
    return chunk;
}

/* Makes a chunk, which is MAKING and in use. Releases the lock meanwhile. Returns 0 or an errno value. */
static int make(struct chunks *chunks, struct chunk *chunk, size_t size, bool tell)
{
    shrink(chunks, chunks->most > size ? chunks->most - size : 0);
    chunk->size = size;
    chunks->kept += size;
    pthread_mutex_unlock(&chunks->lock);
    uint8_t *const bytes = malloc(size ? size : 1);
    const int error = bytes ? chunks->make(chunks->context, &chunk->key, bytes, size, tell) : ENOMEM;
    pthread_mutex_lock(&chunks->lock);
    chunks->made++;
    chunk->state = error ? FAILED : READY;
    if (error) {
        free(bytes);
        chunks->kept -= size;
        chunk->size = 0;
    } else {
        chunk->bytes = bytes;
    }
    pthread_cond_broadcast(&chunks->changed);
    return error;
}

int chunks_read(struct chunks *chunks, const struct chunk_key *key, size_t chunk_bytes, void *buffer, size_t offset,
                size_t size)
{
    int error = 0;
    pthread_mutex_lock(&chunks->lock);
    const size_t count = chunks->count;
    struct chunk *const chunk = find(chunks, key);
    if (!chunk) {
        pthread_mutex_unlock(&chunks->lock);
        return ENOMEM;
    }
    const bool is_new = chunks->count > count;
    chunk->users++;
    while (chunk->state == MAKING)
        pthread_cond_wait(&chunks->changed, &chunks->lock);
    if (chunk->state == FAILED) {
        chunk->state = MAKING;
        error = make(chunks, chunk, chunk_bytes, is_new);
        if (error == ENOMEM) { /* retry with the memory of the others */
            shrink(chunks, 0);
            chunk->state = MAKING;
            error = make(chunks, chunk, chunk_bytes, is_new);
        }
    }
    if (!error && (offset > chunk->size || size > chunk->size - offset))
        error = EIO;
    if (!error) {
        pthread_mutex_unlock(&chunks->lock);
        memcpy(buffer, chunk->bytes + offset, size);
        pthread_mutex_lock(&chunks->lock);
    }
    chunk->users--;
    shrink(chunks, chunks->most);
    pthread_mutex_unlock(&chunks->lock);
    return error;
}

uint64_t chunks_kept(struct chunks *chunks)
{
    pthread_mutex_lock(&chunks->lock);
    const uint64_t kept = chunks->kept;
    pthread_mutex_unlock(&chunks->lock);
    return kept;
}

uint64_t chunks_made(struct chunks *chunks)
{
    pthread_mutex_lock(&chunks->lock);
    const uint64_t made = chunks->made;
    pthread_mutex_unlock(&chunks->lock);
    return made;
}

void chunks_free(struct chunks *chunks)
{
    if (!chunks)
        return;
    while (chunks->oldest)
        drop(chunks, chunks->oldest);
    pthread_cond_destroy(&chunks->changed);
    pthread_mutex_destroy(&chunks->lock);
    free(chunks->bucket);
    free(chunks);
}
