/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include <pthread.h>

#include "coll.h"
#include "common.h"

/* Shared by the threads. */
struct meeting {
    pthread_barrier_t barrier;
    double (*slot)[WORLD_MOST]; /* one per rank */
    const void *shared;
};

struct thread_world {
    struct world world;
    struct meeting *meeting;
    world_body *body;
    const void *argument;
    int status;
};

static void barrier(struct world *w)
{
    pthread_barrier_wait(&((struct thread_world *)w)->meeting->barrier);
}

static void combine(struct world *w, double *v, int n, int greatest)
{
    struct meeting *m = ((struct thread_world *)w)->meeting;
    memcpy(m->slot[w->rank], v, (size_t)n * sizeof *v);
    barrier(w);
    for (int i = 0; i < n; i++) {
        v[i] = m->slot[0][i];
        for (int r = 1; r < w->ranks; r++) {
            const double x = m->slot[r][i];
            v[i] = !greatest ? v[i] + x : x > v[i] ? x : v[i];
        }
    }
    barrier(w);
}

static void sum(struct world *w, double *v, int n)
{
    combine(w, v, n, 0);
}

static void max(struct world *w, double *v, int n)
{
    combine(w, v, n, 1);
}

static void share(struct world *w, void *data, size_t bytes)
{
    struct meeting *m = ((struct thread_world *)w)->meeting;
    if (w->rank == 0)
        m->shared = data;
    barrier(w);
    if (w->rank)
        memcpy(data, m->shared, bytes);
    barrier(w);
}

static void *rank_main(void *arg)
{
    struct thread_world *t = arg;
    t->status = t->body(&t->world, t->argument);
    return NULL;
}

int world_threads(int ranks, int nodes, const int *node_of, world_body *body, const void *argument)
{
    struct meeting meeting;
    struct thread_world *const t = calloc((size_t)ranks, sizeof *t);
    struct pici_comm **const comms = calloc((size_t)ranks, sizeof *comms);
    pthread_t *const thread = calloc((size_t)ranks, sizeof *thread);
    meeting.slot = calloc((size_t)ranks, sizeof *meeting.slot);
    if (!t || !comms || !thread || !meeting.slot || pthread_barrier_init(&meeting.barrier, NULL, (unsigned)ranks))
        die("out of memory");
    if (pici_comm_threads(comms, ranks))
        die(pici_comm_error(NULL));
    for (int r = 0; r < ranks; r++) {
        int before = 0, all = 0;
        for (int q = 0; q < ranks; q++) {
            all += node_of[q] == node_of[r];
            before += q < r && node_of[q] == node_of[r];
        }
        if (pici_comm_set_nodes(comms[r], node_of))
            die("pici_comm_set_nodes");
        t[r] = (struct thread_world){
            {.rank = r,
             .ranks = ranks,
             .nodes = nodes,
             .orders = 1,
             .order = {{"-", r, comms[r]}},
             .node_of = node_of,
             .local = before,
             .locals = all,
             .library = "threads"},
            &meeting,
            body,
            argument,
            0,
        };
        t[r].world.barrier = barrier;
        t[r].world.sum = sum;
        t[r].world.max = max;
        t[r].world.share = share;
        if (r && pthread_create(&thread[r], NULL, rank_main, &t[r]))
            die("cannot start a thread");
    }
    rank_main(&t[0]);
    for (int r = 1; r < ranks; r++)
        pthread_join(thread[r], NULL);
    const int status = t[0].status;
    for (int r = 0; r < ranks; r++)
        pici_comm_free(t[r].world.order[0].comm);
    pthread_barrier_destroy(&meeting.barrier);
    free(meeting.slot);
    free(thread);
    free(comms);
    free(t);
    return status;
}
