/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The example of a transport of one's own, by itself: traffic among processes, paired and one-sided; a peer that
 * leaves. Needs libc alone. */
int transport_main(int argc, char **argv);
#define main transport_main
#include "examples/transport.c"
#undef main

#include "tests/util/transport.h"
#include "tests/util/util.h"

static void expect(int holds, int ranks, const char *what)
{
    if (tally_count(holds))
        printf("FAIL %s, %d ranks\n", what, ranks);
}

/* Null if all is well, in a process of its own. */
typedef const char *job(const struct pici_transport *, const struct traffic *);

/* A rank of a job; returns its exit status. */
static int rank_of(job *part, const struct traffic *f, const int *fds, int rank, int ranks)
{
    struct pici_transport t;
    if (make_transport(&t, fds, rank, ranks))
        return 1;
    const char *wrong = part(&t, f);
    if (wrong)
        printf("rank %d: %s\n", rank, wrong);
    fflush(stdout);
    t.close(t.context);
    return wrong != NULL;
}

static void among(int ranks, job *part, const struct traffic *f, const char *what)
{
    int fds[MAX_RANKS][MAX_RANKS], good = 1;
    for (int a = 0; a < ranks; a++)
        for (int b = 0; b < a; b++) {
            int pair[2];
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
                abort();
            fds[a][b] = pair[0];
            fds[b][a] = pair[1];
        }
    fflush(stdout);
    for (int rank = 0; rank < ranks; rank++) {
        const pid_t pid = fork();
        if (pid < 0)
            abort();
        if (pid > 0)
            continue;
        for (int a = 0; a < ranks; a++)
            for (int b = 0; b < ranks; b++)
                if (a != b && a != rank)
                    close(fds[a][b]);
        _exit(rank_of(part, f, fds[rank], rank, ranks));
    }
    for (int a = 0; a < ranks; a++)
        for (int b = 0; b < ranks; b++)
            if (a != b)
                close(fds[a][b]);
    for (int rank = 0; rank < ranks; rank++) {
        int status;
        good &= wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    expect(good, ranks, what);
}

/* Rank 0 sends a message to each peer and leaves, without having received one. What it sent arrives; then it is
 * gone. */
static const char *one_leaves(const struct pici_transport *t, const struct traffic *f)
{
    static uint8_t bytes[1000];
    void *request;
    (void)f;
    if (t->rank == 0) {
        memset(bytes, 5, sizeof bytes);
        for (int to = 1; to < t->ranks; to++)
            if (t->send(t->context, to, bytes, sizeof bytes, &request) || finish(t, request, NULL))
                return "a send";
        return NULL;
    }
    size_t len = 0;
    if (t->recv(t->context, 0, bytes, sizeof bytes, &request) || finish(t, request, &len) || len != sizeof bytes ||
        bytes[0] != 5 || bytes[len - 1] != 5)
        return "a receive";
    return t->recv(t->context, 0, bytes, 1, &request) || finish(t, request, NULL) == PICI_E_PEER ? NULL : "not gone";
}

int main(void)
{
    static const int sizes[] = {1, 2, 3, 7};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int ranks = sizes[i];
        among(ranks, exchange, &(struct traffic){.seed = 1, .messages = 40, .window = 3, .longest = 100000}, "traffic");
        for (uint64_t seed = 1; seed <= 3; seed++)
            among(ranks, exchange,
                  &(struct traffic){.seed = seed, .messages = 40, .one_sided = 1, .window = 3, .longest = 100000},
                  "one-sided traffic");
        among(ranks, one_leaves, NULL, "a rank that leaves");
    }
    return tally_end();
}
