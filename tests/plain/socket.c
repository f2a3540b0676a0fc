/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport over sockets: traffic, every collective among 1 to 16 ranks, peers that are cut, slow, too long or
 * killed. Needs libc alone. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bytes.h"
#include "tests/util/coll.h"
#include "tests/util/expect.h"
#include "tests/util/socket.h"
#include "transport/greeting.h"
#include "transport/socket.h"
#include "tests/util/transport.h"
#include "tests/util/util.h"

enum { WATCHDOG_S = 600, LENGTH = 8 };

/* ---- sockets that take a few bytes at a time, so that a length may be cut in two */

static int takes_few;
ssize_t __real_sendmsg(int, const struct msghdr *, int);
ssize_t __wrap_sendmsg(int, const struct msghdr *, int);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags)
{
    static _Thread_local unsigned turn;
    const size_t some = 1 + turn++ % 7;
    struct iovec first = {m->msg_iov->iov_base, m->msg_iov->iov_len < some ? m->msg_iov->iov_len : some};
    return __real_sendmsg(fd, takes_few ? &(struct msghdr){.msg_iov = &first, .msg_iovlen = 1} : m, flags);
}

/* ---- a rank that is killed. First of all, since processes that have threads had better not fork. */

enum { KILL_N = 300000, KILL_CALLS = 1000, VICTIM = 1 };

/* Sum vectors until a call fails. The victim is killed in its third. */
static _Noreturn void summing(const int *fds, int rank, int p, int report)
{
    struct pici_comm *comm;
    float *x = test_alloc(KILL_N * sizeof *x);
    char words[256] = "none";
    enum pici_status s = pici_comm_sockets(&comm, fds, rank, p);
    for (int call = 0; call < KILL_CALLS && !s; call++) {
        for (int i = 0; i < KILL_N; i++)
            x[i] = (float)(i % (3 + call));
        struct pici_request *request = NULL;
        int done = 0;
        s = pici_all_reduce_start(x, x, KILL_N, PICI_F32, PICI_SUM, comm, NULL, &request);
        for (int i = 0; i < 4 && rank == VICTIM && call == 2 && !s; i++)
            s = pici_test(&request, &done);
        if (rank == VICTIM && call == 2)
            raise(SIGKILL);
        if (!s)
            s = pici_wait(&request);
    }
    if (s)
        snprintf(words, sizeof words, "%s", pici_comm_error(comm));
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    dprintf(report, "%d %lld %s\n", (int)s, (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000, words);
    _exit(0);
}

/* All others learn of it at once, and its number. */
static void killed(int p)
{
    int fds[SOCKET_RANKS * SOCKET_RANKS], reports[2];
    pid_t pids[SOCKET_RANKS];
    char line[512];
    socket_pairs(fds, p);
    if (pipe(reports))
        abort();
    fflush(stdout);
    for (int rank = 0; rank < p; rank++) {
        pids[rank] = fork();
        if (pids[rank] < 0)
            abort();
        if (pids[rank])
            continue;
        alarm(60);
        for (int i = 0; i < p * p; i++)
            if (i / p != rank && i / p != i % p)
                close(fds[i]);
        summing(fds + (size_t)rank * (size_t)p, rank, p, reports[1]);
    }
    for (int i = 0; i < p * p; i++)
        if (i / p != i % p)
            close(fds[i]);
    close(reports[1]);
    int status, reported = 0;
    const int died = waitpid(pids[VICTIM], &status, 0) > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    const double begin = socket_seconds();
    FILE *f = fdopen(reports[0], "r");
    while (f && fgets(line, sizeof line, f)) {
        int s = 0;
        reported++;
        const int named = strstr(line, "rank 1 ") || strstr(line, "after rank 1 failed:");
        if (sscanf(line, "%d", &s) != 1 || s != PICI_E_PEER || !named)
            printf("%s", line);
        expect(s == PICI_E_PEER && named, "a killed rank is named", p);
    }
    const double took = socket_seconds() - begin;
    if (f)
        fclose(f);
    while (wait(&status) > 0)
        ;
    expect(died && reported == p - 1, "all others report a killed rank", reported);
    if (took > 5)
        printf("%.1f seconds\n", took);
    expect(took <= 5, "a killed rank is noticed at once", p);
}

/* Whether the call of a rank of two crossed nodes, as a child's exit status. Rank 1 may have a network of its own. */
enum { SAME_NODE, OTHER_NODE, NO_CALL, NO_NETWORK };

static int crosses(const int *fds, int rank, int apart)
{
    struct pici_coll_stats stats = PICI_COLL_STATS_INIT;
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    struct pici_comm *comm;
    float x[100] = {1};
    opts.stats = &stats;
    if (rank == 1 && apart && unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
        return NO_NETWORK;
    if (pici_comm_sockets(&comm, fds, rank, 2) || pici_all_reduce(x, x, 100, PICI_F32, PICI_SUM, comm, &opts))
        return NO_CALL;
    return stats.inter_bytes > 0 ? OTHER_NODE : SAME_NODE;
}

/* Ranks share a node if they share a network namespace. */
static void nodes(int apart)
{
    int fds[4], status[2];
    pid_t pids[2];
    socket_pairs(fds, 2);
    fflush(stdout);
    for (int rank = 0; rank < 2; rank++) {
        pids[rank] = fork();
        if (pids[rank] < 0)
            abort();
        if (pids[rank])
            continue;
        alarm(60);
        close(fds[rank ? 1 : 2]);
        _exit(crosses(fds + 2L * rank, rank, apart));
    }
    close(fds[1]);
    close(fds[2]);
    for (int rank = 0; rank < 2; rank++)
        if (waitpid(pids[rank], &status[rank], 0) < 0 || !WIFEXITED(status[rank]))
            status[rank] = -1;
    if (status[1] >= 0 && WEXITSTATUS(status[1]) == NO_NETWORK) {
        printf("skip: no network namespaces here\n");
        return;
    }
    for (int rank = 0; rank < 2; rank++)
        expect(status[rank] >= 0 && WEXITSTATUS(status[rank]) == (apart ? OTHER_NODE : SAME_NODE), "nodes", apart);
}

/* ---- the transport */

struct job {
    struct pici_transport t[SOCKET_RANKS];
    struct traffic traffic;
    char wrong[SOCKET_RANKS][200];
};

/* With `shares`, some pairs of ranks share memory, some have three connections, and the others their socket. */
static void make_transports(struct pici_transport *t, int p, int shares)
{
    static const int node_of[SOCKET_RANKS];
    int fds[SOCKET_RANKS * SOCKET_RANKS];
    socket_pairs(fds, p);
    for (int i = 0; i < p; i++)
        if (pici_transport_sockets(&t[i], fds + (size_t)i * (size_t)p, node_of, i, p))
            abort();
    for (int a = 0; a < p && shares; a++)
        for (int b = 0; b < a; b++)
            if ((a + b) % 4 == 3 || p == 2)
                socket_stripe(t, a, b, fds[a * p + b], fds[b * p + a]);
            else if ((a + b) % 4)
                socket_share(t, a, b);
}

static void traffic_rank(void *context, int rank)
{
    struct job *j = context;
    const char *wrong = exchange(&j->t[rank], &j->traffic);
    snprintf(j->wrong[rank], sizeof j->wrong[rank], "%s", wrong ? wrong : "");
    j->t[rank].close(j->t[rank].context);
}

static void traffic_among(int p, const struct traffic *traffic, int shares)
{
    struct job j = {.traffic = *traffic};
    make_transports(j.t, p, shares);
    coll_threads(p, traffic_rank, &j);
    for (int i = 0; i < p; i++) {
        if (j.wrong[i][0])
            printf("%s\n", j.wrong[i]);
        expect(!j.wrong[i][0], "traffic", p);
    }
}

/* A transport of two ranks whose peer is *fd, with which this test can do what it likes. */
static struct pici_transport opposite(int *fd)
{
    static const int node_of[2];
    struct pici_transport t;
    int pair[2], fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        abort();
    fds[0] = -1;
    fds[1] = pair[0];
    *fd = pair[1];
    if (pici_transport_sockets(&t, fds, node_of, 0, 2))
        abort();
    return t;
}

/* A peer is cut after each number of bytes of two messages. What was whole has arrived. */
static void cut(void)
{
    enum { FIRST = 40, SECOND = 3, ALL = 2 * LENGTH + FIRST + SECOND };
    uint8_t wire[ALL] = {0}, first[FIRST], second[SECOND];
    store_le64(wire, FIRST);
    memset(wire + LENGTH, 7, FIRST);
    store_le64(wire + LENGTH + FIRST, SECOND);
    memset(wire + 2 * LENGTH + FIRST, 9, SECOND);
    for (size_t n = 0; n <= ALL; n++) {
        int fd;
        void *one, *two;
        size_t got = 0;
        const struct pici_transport t = opposite(&fd);
        socket_say(fd, wire, n);
        close(fd);
        memset(first, 0, sizeof first);
        if (t.recv(t.context, 1, first, sizeof first, &one) || t.recv(t.context, 1, second, sizeof second, &two))
            abort();
        const enum pici_status a = finish(&t, one, &got), b = finish(&t, two, NULL);
        expect(a == (n >= LENGTH + FIRST ? PICI_OK : PICI_E_PEER) && (a || (got == FIRST && first[FIRST - 1] == 7)),
               "a message that is cut", (long)n);
        expect(b == (n == ALL ? PICI_OK : PICI_E_PEER), "the message behind one that is cut", (long)n);
        if (n < ALL)
            expect(strstr(t.error(t.context), "rank 1 closed its connection") != NULL, "its error message", (long)n);
        t.close(t.context);
    }
}

/* Bytes come one at a time. */
static void slow(void)
{
    enum { BYTES = 20 };
    int fd, done = 0;
    size_t got = 0;
    uint8_t wire[LENGTH + BYTES], data[BYTES + 1];
    void *request;
    const struct pici_transport t = opposite(&fd);
    store_le64(wire, BYTES);
    memset(wire + LENGTH, 5, BYTES);
    if (t.recv(t.context, 1, data, sizeof data, &request))
        abort();
    for (size_t i = 0; i < sizeof wire; i++) {
        const enum pici_status s = t.test(t.context, request, &done, &got);
        expect(s == PICI_OK && !done, "a message that is not whole", (long)i);
        socket_say(fd, wire + i, 1);
        t.wait(t.context, 1);
    }
    expect(finish(&t, request, &got) == PICI_OK && got == BYTES && data[BYTES - 1] == 5, "a slow peer", 0);
    t.close(t.context);
    uint8_t word[LENGTH];
    expect(recv(fd, word, sizeof word, MSG_WAITALL) == LENGTH && load_le64(word) == UINT64_C(1) << 63,
           "shutdown message", 0);
    expect(recv(fd, word, 1, 0) == 0, "the end", 0);
    close(fd);
}

/* The peer's first word; what the request ends with, and a phrase of the error message. */
static void hears(uint64_t word, enum pici_status want, const char *phrase)
{
    int fd;
    uint8_t wire[LENGTH], data[10];
    void *request;
    const struct pici_transport t = opposite(&fd);
    store_le64(wire, word);
    socket_say(fd, wire, sizeof wire);
    if (t.recv(t.context, 1, data, sizeof data, &request))
        abort();
    const enum pici_status s = finish(&t, request, NULL);
    if (s != want || !strstr(t.error(t.context), phrase))
        printf("%s: %s\n", pici_strerror(s), t.error(t.context));
    expect(s == want && strstr(t.error(t.context), phrase), phrase, s);
    expect(t.recv(t.context, 1, data, sizeof data, &request) == want, "a peer that is gone", s);
    expect(t.send(t.context, 1, data, sizeof data, &request) == want, "a peer that is gone", s);
    t.close(t.context);
    close(fd);
}

static uint64_t parting(uint32_t culprit, enum pici_status s)
{
    return UINT64_C(1) << 63 | (uint64_t)culprit << 32 | (uint32_t)s;
}

/* Whoever gives up while a message is half sent ends it, if the peer reads, and says why. */
static void *reads_all(void *arg)
{
    const int fd = *(int *)arg;
    uint8_t *all = test_alloc((size_t)4 << 20);
    size_t n = 0;
    ssize_t k;
    while ((k = recv(fd, all + n, ((size_t)4 << 20) - n, 0)) > 0)
        n += (size_t)k;
    const int good = n == (2 << 20) + 2 * LENGTH && load_le64(all) == 2 << 20 &&
                     load_le64(all + n - LENGTH) == parting(1, PICI_E_TIMEOUT);
    free(all);
    return good ? NULL : arg;
}

static void gives_up(void)
{
    int fd;
    void *request, *wrong;
    pthread_t reader;
    const struct pici_transport t = opposite(&fd);
    uint8_t *data = test_alloc((size_t)2 << 20);
    memset(data, 1, (size_t)2 << 20);
    if (t.send(t.context, 1, data, (size_t)2 << 20, &request))
        abort();
    if (pthread_create(&reader, NULL, reads_all, &fd))
        abort();
    expect(t.abandon(t.context, PICI_E_TIMEOUT) == 0, "buffers in use", 0);
    free(data);
    t.close(t.context);
    pthread_join(reader, &wrong);
    expect(!wrong, "a message half sent, and shutdown message", 0);
    close(fd);

    const struct pici_transport deaf = opposite(&fd); /* and if the peer does not read, it does not last */
    data = test_alloc((size_t)2 << 20);
    if (deaf.send(deaf.context, 1, data, (size_t)2 << 20, &request))
        abort();
    const double begin = socket_seconds();
    expect(deaf.abandon(deaf.context, PICI_E_TIMEOUT) == 0 && socket_seconds() - begin < 2, "a peer that is deaf", 0);
    free(data);
    deaf.close(deaf.context);
    close(fd);
}

/* Nothing moves: the rank sleeps. */
static void idle(void)
{
    int fd, done;
    uint8_t data[10];
    void *request;
    struct timespec before, after;
    const struct pici_transport t = opposite(&fd);
    if (t.recv(t.context, 1, data, sizeof data, &request))
        abort();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    for (const double end = socket_seconds() + 0.4; socket_seconds() < end;) {
        t.test(t.context, request, &done, NULL);
        t.wait(t.context, 100);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    const double cpu = (double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec);
    expect(cpu < 0.1, "milliseconds of a processor while nothing moved", (long)(cpu * 1e3));
    t.abandon(t.context, PICI_E_PEER);
    t.close(t.context);
    close(fd);
}

/* ---- collectives */

static void team_over_sockets(struct coll_team *team, int p)
{
    struct socket_team t;
    socket_team_init(&t, p);
    socket_pairs(t.fds, p);
    socket_team_make(&t);
    expect(socket_team_all(&t, PICI_OK, ""), "communicators", p);
    memset(team, 0, sizeof *team);
    team->p = p;
    memcpy(team->comm, t.comm, sizeof team->comm);
}

static void collectives(int p, struct rng *rng)
{
    struct coll_team team;
    const uint64_t up = (uint64_t)p;
    const uint64_t counts[] = {0, 1, up - 1, up + 1, 1000 + rng_below(rng, 1000), p <= 4 ? 100003 : 20011};
    team_over_sockets(&team, p);
    for (int kind = 0; kind < COLL_COLLECTIVES; kind++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            const enum pici_collective collective = coll_collectives[kind];
            struct coll_case c = {.collective = collective,
                                  .dtype = (enum pici_dtype)(PICI_F32 + rng_below(rng, PICI_U64)),
                                  .op = (enum pici_op)rng_below(rng, 4),
                                  .count = counts[i],
                                  .opts.algorithm =
                                      coll_algorithm(rng_below(rng, (uint64_t)coll_algorithms()), collective)};
            coll_case_options(&c, rng, p);
            const char *wrong = coll_team_check(&team, &c);
            if (wrong)
                printf("%s\n", wrong);
            expect(!wrong, "a collective", p);
        }
    coll_team_free(&team);
}

/* Calls in flight that move by tests alone: nobody waits. */
static void by_tests(void *context, int rank)
{
    enum { N = 60000, CALLS = 3 };
    struct socket_team *t = context;
    struct pici_request *request[CALLS] = {NULL};
    int32_t *x = test_alloc(CALLS * N * sizeof *x);
    const double end = socket_seconds() + 60;
    int done = 0;
    for (int i = 0; i < CALLS * N; i++)
        x[i] = i % 11 == 0 ? i + rank : 0;
    for (int i = 0; i < CALLS && !t->status[rank]; i++)
        t->status[rank] =
            pici_all_reduce_start(x + i * N, x + i * N, N, PICI_I32, PICI_SUM, t->comm[rank], NULL, &request[i]);
    while (done < CALLS && !t->status[rank] && socket_seconds() < end) {
        int ended;
        t->status[rank] = pici_test(&request[done], &ended);
        done += ended;
    }
    for (int i = 0; i < CALLS * N && !t->status[rank]; i++)
        if (x[i] != (i % 11 == 0 ? t->p * i + t->p * (t->p - 1) / 2 : 0))
            t->status[rank] = PICI_E_CORRUPT;
    if (done < CALLS && !t->status[rank])
        t->status[rank] = PICI_E_TIMEOUT;
    free(x);
}

static void tested(int p)
{
    struct socket_team t;
    socket_team_init(&t, p);
    socket_pairs(t.fds, p);
    socket_team_make(&t);
    coll_threads(p, by_tests, &t);
    expect(socket_team_all(&t, PICI_OK, ""), "calls that are tested", p);
    socket_team_free(&t);
}

/* A rank leaves while the others call; or gives up because of its own arguments. */
static void leaving(void *context, int rank)
{
    struct socket_team *t = context;
    enum { N = 50000 };
    int32_t *x = test_alloc(N * sizeof *x);
    memset(x, 1, N * sizeof *x);
    if (rank == 0) {
        pici_comm_free(t->comm[0]);
        t->comm[0] = NULL;
    } else {
        t->status[rank] = pici_all_reduce(x, x, N, PICI_I32, PICI_SUM, t->comm[rank], NULL);
        snprintf(t->words[rank], sizeof t->words[rank], "%s", pici_comm_error(t->comm[rank]));
    }
    free(x);
}

static void a_rank_leaves(int p)
{
    struct socket_team t;
    socket_team_init(&t, p);
    socket_pairs(t.fds, p);
    socket_team_make(&t);
    const double begin = socket_seconds();
    coll_threads(p, leaving, &t);
    for (int i = 1; i < p; i++) {
        const int named =
            strstr(t.words[i], "rank 0 has freed its communicator") || strstr(t.words[i], "after rank 0 failed");
        if (t.status[i] != PICI_E_PEER || !named)
            printf("rank %d: %s: %s\n", i, pici_strerror(t.status[i]), t.words[i]);
        expect(t.status[i] == PICI_E_PEER && named, "a rank that leaves", i);
    }
    expect(socket_seconds() - begin < 5, "noticed at once", p);
    socket_team_free(&t);
}

/* One rank makes another call than the others: all are told, with both ranks and what each said. */
struct other_call {
    struct socket_team team;
    int odd, how;
};

static const struct {
    const char *what, *says[2]; /* of the others, and of the odd one */
} other_calls[] = {{"ranks disagree on the op: ", {"sum on rank ", "max on rank "}},
                   {"ranks disagree on the count: ", {"3000 on rank ", "3001 on rank "}},
                   {"ranks disagree on the dtype: ", {"i32 on rank ", "f32 on rank "}},
                   {"ranks disagree on the algorithm: ", {"ring on rank ", "split on rank "}},
                   {"", {"calls all-reduce", "calls all-gather"}}};

static void calls_other(void *context, int rank)
{
    enum { N = 3000 };
    struct other_call *o = context;
    struct socket_team *t = &o->team;
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    const int how = rank == o->odd ? o->how : -1;
    int32_t *x = test_alloc((N + 1) * sizeof *x), *y = test_alloc((size_t)t->p * N * sizeof *y);
    memset(x, 1, (N + 1) * sizeof *x);
    opts.algorithm = how == 3 ? PICI_ALGO_SPLIT : PICI_ALGO_RING;
    if (how == 4)
        t->status[rank] = pici_all_gather(x, y, N, PICI_I32, t->comm[rank], &opts);
    else
        t->status[rank] = pici_all_reduce(x, x, how == 1 ? N + 1 : N, how == 2 ? PICI_F32 : PICI_I32,
                                          how == 0 ? PICI_MAX : PICI_SUM, t->comm[rank], &opts);
    snprintf(t->words[rank], sizeof t->words[rank], "%s", pici_comm_error(t->comm[rank]));
    free(x);
    free(y);
}

static void other_call(int p, int odd, int how)
{
    struct other_call o = {.odd = odd, .how = how};
    char named[32];
    socket_team_init(&o.team, p);
    socket_pairs(o.team.fds, p);
    socket_team_make(&o.team);
    const double begin = socket_seconds();
    coll_threads(p, calls_other, &o);
    snprintf(named, sizeof named, "rank %d", odd);
    for (int i = 0; i < p; i++) {
        const char *const words = o.team.words[i];
        const int good = strstr(words, other_calls[how].what) && strstr(words, other_calls[how].says[0]) &&
                         strstr(words, other_calls[how].says[1]) && strstr(words, named);
        expect(o.team.status[i] == PICI_E_PEER && good, words, i);
    }
    expect(socket_seconds() - begin < 5, "another call is noticed at once", how);
    socket_team_free(&o.team);
}

/* The last rank does not call: the others say that they wait for it. */
static void waits(void *context, int rank)
{
    struct socket_team *t = context;
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    int32_t x[100] = {0};
    opts.timeout_ms = 200;
    if (rank == t->p - 1)
        return;
    t->status[rank] = pici_all_reduce(x, x, 100, PICI_I32, PICI_SUM, t->comm[rank], &opts);
    snprintf(t->words[rank], sizeof t->words[rank], "%s", pici_comm_error(t->comm[rank]));
}

static void a_rank_is_silent(int p)
{
    struct socket_team t;
    char named[32];
    socket_team_init(&t, p);
    socket_pairs(t.fds, p);
    socket_team_make(&t);
    coll_threads(p, waits, &t);
    for (int i = 0; i < p - 1; i++) {
        const char *const first = strstr(t.words[i], "no progress for 200 ms: waiting for a message from ");
        snprintf(named, sizeof named, first ? "from rank %d" : "after rank %d failed", p - 1);
        expect(t.status[i] == PICI_E_TIMEOUT && strstr(t.words[i], named), t.words[i], i);
    }
    int32_t x[100] = {0};
    t.status[p - 1] = pici_all_reduce(x, x, 100, PICI_I32, PICI_SUM, t.comm[p - 1], NULL);
    expect(t.status[p - 1] == PICI_E_TIMEOUT && strstr(pici_comm_error(t.comm[p - 1]), "aborted"),
           pici_comm_error(t.comm[p - 1]), p - 1);
    socket_team_free(&t);
}

/* What ranks do that are there, over memory that they share or over their sockets. */
static void among_ranks(int shares)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 8, 16};
    struct rng rng = {1};
    setenv("PICI_SOCKET_SHARED", shares ? "1" : "0", 1);
    for (int p = 1; p <= 4; p++)
        traffic_among(p, &(struct traffic){.seed = (uint64_t)p, .messages = 30, .window = 3, .longest = 100000},
                      shares);
    takes_few = 1;
    traffic_among(3, &(struct traffic){.seed = 11, .messages = 20, .window = 3, .longest = 200}, shares);
    takes_few = 0;
    traffic_among(7, &(struct traffic){.seed = 7, .messages = 8, .window = 2, .longest = 30000}, shares);
    traffic_among(2, &(struct traffic){.seed = 9, .messages = 3, .window = 3, .each_bytes = (3 << 20) + 1}, shares);
    for (uint64_t seed = 1; seed <= 3; seed++)
        traffic_among(4, &(struct traffic){.seed = seed, .messages = 20, .one_sided = 1, .window = 3, .longest = 70000},
                      shares);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) /* each size in one of both ways, or in both */
        if (!test_few() || i % 2 == (unsigned)shares)
            collectives(sizes[i], &rng);
    tested(2);
    tested(4);
    a_rank_leaves(2);
    a_rank_leaves(5);
    a_rank_is_silent(2);
    a_rank_is_silent(3);
    for (int how = 0; how < (int)(sizeof other_calls / sizeof *other_calls); how++) {
        other_call(2, 1, how);
        other_call(5, 3, how);
    }
    unsetenv("PICI_SOCKET_SHARED");
}

int main(void)
{
    alarm(WATCHDOG_S); /* whoever hangs */
    setenv("PICI_SOCKET_SHARED", "0", 1);
    killed(2);
    killed(5);
    unsetenv("PICI_SOCKET_SHARED");
    killed(2);
    killed(5);
    nodes(0);
    nodes(1);
    among_ranks(0);
    among_ranks(1);
    cut();
    slow();
    hears(11, PICI_E_CORRUPT, "rank 1 sent a message of 11 bytes where 10 are the most");
    hears((UINT64_C(1) << 63) - 1, PICI_E_CORRUPT, "bytes where 10 are the most");
    hears(parting(1, PICI_OK), PICI_E_PEER, "rank 1 has freed its communicator");
    hears(parting(1, PICI_E_TIMEOUT), PICI_E_TIMEOUT, "rank 1 aborted");
    hears(parting(0, PICI_E_NOMEM), PICI_E_NOMEM, "rank 1 aborted after rank 0 failed");
    hears(parting(0x7fffffff, (enum pici_status) - 1000), PICI_E_CORRUPT, "rank 1 aborted");
    gives_up();
    idle();
    return tally_end();
}
