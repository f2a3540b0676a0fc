/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A transport to a peer whose messages a fuzzer makes. It keeps the last message that was sent. */
#ifndef PICI_FUZZ_PEER_H
#define PICI_FUZZ_PEER_H

#include <string.h>

#include "fuzz/fuzz.h"
#include "pici/transport.h"

enum { PEER_ROOM = 1 << 16 };

/* The first member of a fuzzer's own context. */
struct peer {
    uint8_t sent[PEER_ROOM];
    size_t sent_bytes;
    struct {
        uint8_t *data;
        size_t cap;
    } due;
    int sending, receiving; /* addresses of requests */
};

static enum pici_status peer_send(void *context, int to, const void *data, size_t bytes, void **request)
{
    struct peer *p = context;
    (void)to;
    require(bytes <= PEER_ROOM);
    memcpy(p->sent, data, bytes);
    p->sent_bytes = bytes;
    *request = &p->sending;
    return PICI_OK;
}

static enum pici_status peer_recv(void *context, int from, void *data, size_t cap, void **request)
{
    struct peer *p = context;
    (void)from;
    p->due.data = data;
    p->due.cap = cap;
    *request = &p->receiving;
    return PICI_OK;
}

/* The end of a receive: message m of len bytes arrives, and is freed. */
static inline enum pici_status peer_arrive(struct peer *p, uint8_t *m, size_t len, size_t *bytes)
{
    const size_t cap = p->due.cap;
    memcpy(p->due.data, m, len > cap ? cap : len);
    free(m);
    if (bytes)
        *bytes = len;
    return len > cap ? PICI_E_CORRUPT : PICI_OK;
}

static int peer_abandon(void *context, enum pici_status why)
{
    (void)context;
    (void)why;
    return 0;
}

static void peer_close(void *context)
{
    (void)context;
}

static inline struct pici_transport peer_transport(struct peer *p, int ranks,
                                                   enum pici_status (*test)(void *, void *, int *, size_t *))
{
    struct pici_transport t = PICI_TRANSPORT_INIT;
    t.context = p;
    t.ranks = ranks;
    t.send = peer_send;
    t.recv = peer_recv;
    t.test = test;
    t.abandon = peer_abandon;
    t.close = peer_close;
    return t;
}

#endif
