/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport between threads, for a run under ThreadSanitizer too: traffic among all ranks; ranks that leave while
 * others send to them. Needs libc alone. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/thread.h"
#include "tests/util/transport.h"
#include "tests/util/util.h"

enum { RANKS = 5 };

static void expect(const char *what, int ranks)
{
    if (tally_count(!what))
        printf("FAIL %d ranks: %s\n", ranks, what);
}

struct job {
    struct pici_transport transport;
    struct traffic traffic;
    const char *(*work)(const struct pici_transport *, const struct traffic *);
    char wrong[200];
};

static void *run(void *arg)
{
    struct job *j = arg;
    const char *wrong = j->work(&j->transport, &j->traffic);
    snprintf(j->wrong, sizeof j->wrong, "%s", wrong ? wrong : "");
    j->transport.close(j->transport.context);
    return NULL;
}

static void among(int ranks, const struct traffic *traffic,
                  const char *(*work)(const struct pici_transport *, const struct traffic *))
{
    struct pici_transport transports[RANKS];
    struct job jobs[RANKS];
    pthread_t threads[RANKS];
    if (pici_transport_threads(transports, ranks))
        abort();
    for (int i = 0; i < ranks; i++) {
        jobs[i] = (struct job){.transport = transports[i], .traffic = *traffic, .work = work};
        if (pthread_create(&threads[i], NULL, run, &jobs[i]))
            abort();
    }
    for (int i = 0; i < ranks; i++) {
        pthread_join(threads[i], NULL);
        expect(jobs[i].wrong[0] ? jobs[i].wrong : NULL, ranks);
    }
}

/* Rank 0 gives up while all send to it and receive from it; its buffers are freed at once. Its peers hear why. */
static const char *deserted(const struct pici_transport *t, const struct traffic *f)
{
    const size_t bytes = f->longest;
    const int peer = t->rank ? 0 : 1;
    uint8_t *out = test_alloc(bytes), *in = test_alloc(bytes);
    void *request[2];
    const char *wrong = NULL;
    struct rng r = {f->seed + (uint64_t)t->rank};
    memset(out, t->rank, bytes);
    for (int i = 0; i < f->messages && !wrong; i++) {
        if (t->rank == 0 && i > (int)rng_below(&r, (uint64_t)f->messages)) {
            if (t->abandon(t->context, PICI_E_CORRUPT))
                wrong = "buffers in use";
            break;
        }
        enum pici_status s = t->send(t->context, peer, out, bytes, &request[0]);
        if (s && s != PICI_E_CORRUPT)
            wrong = "the status of a send";
        if (s)
            break;
        s = t->recv(t->context, peer, in, bytes, &request[1]);
        if (s)
            wrong = "the status of a receive";
        if (t->rank == 0)
            continue; /* those not waited for pile up */
        enum pici_status sent = finish(t, request[0], NULL), received = finish(t, request[1], NULL);
        if ((sent && sent != PICI_E_CORRUPT) || (received && received != PICI_E_CORRUPT))
            wrong = "the status of a request";
        if (sent || received)
            break;
    }
    if (t->rank == 0 && t->abandon(t->context, PICI_E_CORRUPT))
        wrong = "buffers in use";
    if (t->abandon(t->context, PICI_E_CORRUPT))
        wrong = "buffers in use";
    free(out);
    free(in);
    return wrong;
}

int main(void)
{
    for (int ranks = 1; ranks <= RANKS; ranks++) {
        among(ranks, &(struct traffic){.seed = (uint64_t)ranks, .messages = 60, .window = 3, .longest = 100000},
              exchange);
        among(ranks, &(struct traffic){.seed = (uint64_t)ranks, .messages = 5, .window = 2, .longest = 1 << 20},
              exchange);
        for (uint64_t seed = 1; seed <= 5; seed++)
            among(ranks,
                  &(struct traffic){.seed = seed, .messages = 40, .one_sided = 1, .window = 3, .longest = 100000},
                  exchange);
    }
    for (uint64_t seed = 0; seed < 100; seed++)
        among(2 + (int)seed % (RANKS - 1),
              &(struct traffic){.seed = seed, .messages = 20, .longest = seed % 3 ? 10000 : 200}, deserted);
    return tally_end();
}
