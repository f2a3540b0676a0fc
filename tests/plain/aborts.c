/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A rank gives up while it has messages to send, or to receive, over plain and encrypted sockets: the other rank learns
 * why. Needs libc alone, and the library OpenSSL for encrypted ones. */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/util/coll.h"
#include "tests/util/expect.h"
#include "tests/util/transport.h"
#include "tests/util/util.h"
#include "transport/secure.h"
#include "transport/socket.h"

enum { WATCHDOG_S = 300, MESSAGES = 200, MANY = 1000, ATTEMPTS = 20, LATE_US = 20000 };

/* Rank `sender` of two has messages for the other one, and rank 0 gives up. */
struct parting {
    int sender, messages, late, tcp; /* late: rank 1 does nothing for a while */
    size_t bytes;                    /* of a message */
    const struct secure_keys *keys;  /* NULL: not encrypted */
    struct pici_transport t[2];
    uint8_t *data[2];
    pthread_barrier_t posted;
    enum pici_status heard; /* what rank 1 learns */
    char words[200];
};

/* One message each way completes the handshake; the rank that connected speaks first. */
static void greet(const struct pici_transport *t, int rank)
{
    uint8_t byte = 0;
    for (int turn = 0; turn < 2; turn++) {
        void *request;
        if (turn == rank ? t->send(t->context, 1 - rank, "", 1, &request)
                         : t->recv(t->context, 1 - rank, &byte, 1, &request))
            abort();
        if (finish(t, request, NULL))
            abort();
    }
}

static void part_rank(void *context, int rank)
{
    struct parting *x = context;
    const struct pici_transport *t = &x->t[rank];
    enum pici_status s = PICI_OK;
    void *request;
    greet(t, rank);
    for (int i = 0; i < x->messages && rank == x->sender; i++)
        if (t->send(t->context, 1 - rank, x->data[rank], x->bytes, &request))
            abort();
    pthread_barrier_wait(&x->posted);
    if (rank == 0) {
        if (t->abandon(t->context, PICI_E_NOMEM))
            abort();
        return;
    }
    usleep(x->late ? LATE_US : 0);
    while (!s) {
        s = x->sender == rank ? t->send(t->context, 0, x->data[rank], x->bytes, &request)
                              : t->recv(t->context, 0, x->data[rank], x->bytes, &request);
        s = s ? s : finish(t, request, NULL);
    }
    x->heard = s;
    snprintf(x->words, sizeof x->words, "%s", t->error(t->context));
}

static void connect_two(int tcp, int fds[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    if (!tcp) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
            abort();
        return;
    }
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&at, &bytes) || connect(fds[0], (struct sockaddr *)&at, sizeof at) ||
        (fds[1] = accept(listener, NULL, NULL)) < 0)
        abort();
    close(listener);
}

/* Whether rank 1 learns why rank 0 gave up. */
static int learns(struct parting *x)
{
    static const int node_of[2];
    int fds[2];
    connect_two(x->tcp, fds);
    for (int i = 0; i < 2; i++) {
        const int row[2] = {i ? fds[1] : -1, i ? -1 : fds[0]};
        if (!pici_secure_begin(x->keys, fds[i], i) || pici_transport_sockets(&x->t[i], row, node_of, i, 2))
            abort();
        x->data[i] = test_alloc(x->bytes);
        memset(x->data[i], i, x->bytes);
    }
    if (pthread_barrier_init(&x->posted, NULL, 2))
        abort();
    coll_threads(2, part_rank, x);
    pthread_barrier_destroy(&x->posted);
    for (int i = 0; i < 2; i++) {
        x->t[i].close(x->t[i].context);
        free(x->data[i]);
    }
    if (x->heard == PICI_E_NOMEM && strcmp(x->words, "rank 0 aborted: out of memory") == 0)
        return 1;
    printf("rank %d sends %d messages of %zu bytes, %s, %s, rank 1 is %s: %s: %s\n", x->sender, x->messages, x->bytes,
           x->tcp ? "TCP" : "local", x->keys ? "encrypted" : "plain", x->late ? "late" : "in time",
           pici_strerror(x->heard), x->words);
    return 0;
}

static void all(const struct secure_keys *keys)
{
    static const size_t sizes[] = {1, 100, 5000, 16376, 16384, 20000, 65536, 1 << 18};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int which = 0; which < 8; which++) {
            struct parting x = {.keys = keys, .bytes = sizes[i], .messages = sizes[i] > 65536 ? MANY : MESSAGES};
            x.tcp = which & 1;
            x.late = which >> 1 & 1;
            x.sender = which >> 2 & 1;
            /* A rank that gives up waits 100 ms for its peer, which a busy machine may stop for longer. */
            int learnt = learns(&x);
            for (int k = 1; k < ATTEMPTS && !learnt; k++) {
                usleep((useconds_t)k * LATE_US);
                learnt = learns(&x);
            }
            expect(learnt, keys ? "encrypted" : "plain", (long)i * 8 + which);
        }
}

int main(void)
{
    enum pici_status status;
    char words[200];
    alarm(WATCHDOG_S);
    all(NULL);
    struct secure_keys *keys =
        pici_secure_keys("a token", &(struct secure_files){NULL, NULL, NULL}, &status, words, sizeof words);
    if (keys)
        all(keys);
    else if (status == PICI_E_UNSUPPORTED)
        printf("skip: encrypted sockets: built without OpenSSL\n");
    expect(keys || status == PICI_E_UNSUPPORTED, words, status);
    pici_secure_keys_free(keys);
    return tally_end();
}
