/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Communicators by a rendezvous over TCP on loopback: ranks that come in any order; the environment; unauthenticated
 * peers; ranks that are wrong in some way. Needs libc alone. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/util/coll.h"
#include "tests/util/expect.h"
#include "tests/util/socket.h"
#include "tests/util/util.h"
#include "transport/address.h"
#include "transport/greeting.h"
#include "transport/pending.h"

enum { WATCHDOG_S = 600 };

static char address[64];

/* An address where nobody listens. */
static const char *fresh_address(int v6)
{
    snprintf(address, sizeof address, v6 ? "[::1]:%d" : "127.0.0.1:%d", socket_port(v6));
    return address;
}

static void sum_rank(void *context, int rank)
{
    struct socket_team *t = context;
    int32_t x[100];
    for (int i = 0; i < 100; i++)
        x[i] = i + rank;
    t->status[rank] = pici_all_reduce(x, x, 100, PICI_I32, PICI_SUM, t->comm[rank], NULL);
    for (int i = 0; i < 100 && !t->status[rank]; i++)
        if (x[i] != i * t->p + t->p * (t->p - 1) / 2)
            t->status[rank] = PICI_E_CORRUPT;
    if (pici_comm_rank(t->comm[rank]) != rank || pici_comm_size(t->comm[rank]) != t->p)
        t->status[rank] = PICI_E_CORRUPT;
}

/* They meet and add. */
static void meets(struct socket_team *t, const char *what)
{
    socket_team_make(t);
    const int good = socket_team_all(t, PICI_OK, "");
    expect(good, what, t->p);
    if (good)
        coll_threads(t->p, sum_rank, t);
    expect(good && socket_team_all(t, PICI_OK, ""), what, t->p);
    socket_team_free(t);
}

static void refused(struct socket_team *t, enum pici_status s, const char *phrase, double most_seconds)
{
    socket_team_make(t);
    expect(socket_team_all(t, s, phrase), phrase, s);
    if (t->seconds > most_seconds)
        printf("%s: %.1f seconds\n", phrase, t->seconds);
    expect(t->seconds <= most_seconds, phrase, (long)t->seconds);
    socket_team_free(t);
}

static void team_at(struct socket_team *t, int p, const char *where, const char *token)
{
    socket_team_init(t, p);
    t->address = where;
    t->token = token;
}

static void good_ones(void)
{
    struct socket_team t;
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        team_at(&t, sizes[i], fresh_address(0), "a token");
        meets(&t, "a rendezvous");
        t.address = address;
        meets(&t, "another one at once at the same address");
    }
    team_at(&t, 3, fresh_address(0), "");
    meets(&t, "no token, on loopback");
    team_at(&t, 2, fresh_address(0), "0123456789012345678901234567890123456789012345678901234567890123");
    meets(&t, "the longest token");
    if (socket_port(1)) {
        team_at(&t, 3, fresh_address(1), "a token");
        meets(&t, "IPv6");
    } else
        printf("skip: no IPv6 here\n");
    char named[64];
    snprintf(named, sizeof named, "localhost:%d", socket_port(0));
    team_at(&t, 3, named, "");
    socket_team_make(&t);
    if (t.status[0] == PICI_E_ARG && strstr(t.words[0], "localhost"))
        printf("skip: localhost has no address here\n");
    else
        expect(socket_team_all(&t, PICI_OK, ""), "a name", 3);
    socket_team_free(&t);

    char ports[32];
    const int low = socket_port(0);
    snprintf(ports, sizeof ports, "%d-%d", low, low + 40);
    setenv("PICI_SOCKET_PORTS", ports, 1);
    setenv("PICI_SOCKET_IFNAME", "lo", 1);
    team_at(&t, 4, fresh_address(0), "x");
    meets(&t, "ports and an interface");
    unsetenv("PICI_SOCKET_PORTS");
    setenv("PICI_SOCKET_IFNAME", "none0", 1);
    setenv("PICI_TIMEOUT_MS", "700", 1);
    team_at(&t, 2, fresh_address(0), "x");
    socket_team_make(&t);
    for (int i = 0; i < 2; i++)
        expect(t.status[i] == PICI_E_ARG && strstr(t.words[i], "no network interface \"none0\""), t.words[i], i);
    unsetenv("PICI_SOCKET_IFNAME");
    struct pici_comm *alone;
    expect(pici_comm_rendezvous(&alone, "nowhere", 0, 1, "") == PICI_E_ARG, "one rank, and no address", 1);
    unsetenv("PICI_TIMEOUT_MS");
}

/* One that comes late, and the first of all. */
static void late_rank(void *context, int rank)
{
    struct socket_team *t = context;
    if (rank == 0)
        usleep(300000);
    t->status[rank] = pici_comm_rendezvous(&t->comm[rank], t->address, rank, t->p, t->token);
}

static void late(void)
{
    struct socket_team t;
    team_at(&t, 3, fresh_address(0), "a token");
    coll_threads(3, late_rank, &t);
    expect(socket_team_all(&t, PICI_OK, ""), "rank 0 comes late", 3);
    socket_team_free(&t);
}

/* Everything from the environment; then, one after the other, what makes no sense in it. */
static void environment(void)
{
    struct pici_comm *comm;
    expect(pici_comm_rendezvous(&comm, NULL, 0, 0, NULL) == PICI_E_ARG && !comm &&
               strstr(pici_comm_error(NULL), "PICI_RANKS"),
           pici_comm_error(NULL), 0);
    setenv("PICI_RANKS", "1", 1);
    expect(pici_comm_rendezvous(&comm, NULL, 0, 0, NULL) == PICI_E_ARG && strstr(pici_comm_error(NULL), "PICI_RANK,"),
           pici_comm_error(NULL), 0);
    setenv("PICI_RANK", "0", 1);
    expect(pici_comm_rendezvous(&comm, NULL, 0, 0, NULL) == PICI_OK && pici_comm_size(comm) == 1, "one rank", 0);
    pici_comm_free(comm);
    setenv("PICI_RANKS", "2", 1);
    expect(pici_comm_rendezvous(&comm, NULL, 0, 0, NULL) == PICI_E_ARG &&
               strstr(pici_comm_error(NULL), "PICI_RENDEZVOUS"),
           pici_comm_error(NULL), 0);
    static const struct {
        const char *variable, *value;
    } wrong[] = {{"PICI_RANK", "-1"},
                 {"PICI_RANK", "one"},
                 {"PICI_RANKS", "0"},
                 {"PICI_RANKS", "2000000"},
                 {"PICI_RANK", "2"},
                 {"PICI_RENDEZVOUS", ""},
                 {"PICI_RENDEZVOUS", "127.0.0.1"},
                 {"PICI_RENDEZVOUS", "127.0.0.1:"},
                 {"PICI_RENDEZVOUS", ":80"},
                 {"PICI_RENDEZVOUS", "127.0.0.1:65536"},
                 {"PICI_RENDEZVOUS", "127.0.0.1:0"},
                 {"PICI_RENDEZVOUS", "127.0.0.1:80x"},
                 {"PICI_RENDEZVOUS", "::1:80"},
                 {"PICI_RENDEZVOUS", "[]:80"},
                 {"PICI_RENDEZVOUS", "0.0.0.0:29500"}, /* without a token */
                 {"PICI_SOCKET_PORTS", "9-8"},
                 {"PICI_SOCKET_IFNAME", ""},
                 {"PICI_TOKEN", "01234567890123456789012345678901234567890123456789012345678901234"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("PICI_RANK", "1", 1);
        setenv("PICI_RANKS", "2", 1);
        setenv("PICI_RENDEZVOUS", fresh_address(0), 1);
        setenv(wrong[i].variable, wrong[i].value, 1);
        const double begin = socket_seconds();
        const enum pici_status s = pici_comm_rendezvous(&comm, NULL, 0, 0, NULL);
        const char *words = pici_comm_error(NULL);
        const int token = strcmp(wrong[i].variable, "PICI_TOKEN") == 0;
        if (s != PICI_E_ARG || comm || !strstr(words, token ? "65 bytes" : wrong[i].value))
            printf("%s=%s: %s: %s\n", wrong[i].variable, wrong[i].value, pici_strerror(s), words);
        expect(s == PICI_E_ARG && !comm && strstr(words, token ? "65 bytes" : wrong[i].value), wrong[i].variable,
               (long)i);
        expect(socket_seconds() - begin < 2, "refused at once", (long)i);
        unsetenv(wrong[i].variable);
    }
    unsetenv("PICI_RANK");
    unsetenv("PICI_RENDEZVOUS");

    struct socket_team t;
    team_at(&t, 2, NULL, NULL);
    t.address = fresh_address(0);
    setenv("PICI_TOKEN", "from the environment", 1);
    setenv("PICI_RANKS", "2", 1);
    t.ranks[1] = 0;
    meets(&t, "ranks and token from the environment");
    unsetenv("PICI_TOKEN");
    unsetenv("PICI_RANKS");
    expect(pici_comm_rendezvous(NULL, "127.0.0.1:1", 0, 1, "") == PICI_E_ARG, "no place", 0);
    expect(pici_comm_rendezvous(&comm, "127.0.0.1:1", 2, 2, "") == PICI_E_ARG, "rank 2 of 2", 0);
}

/* ---- unauthenticated peers */

static int dial(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int tries = 0; tries < 2000; tries++) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0)
            return fd;
        if (fd >= 0)
            close(fd);
        usleep(2000);
    }
    return -1;
}

struct crowd {
    int port, stop, connected;
    pthread_mutex_t lock;
};

static int stopped(struct crowd *c)
{
    pthread_mutex_lock(&c->lock);
    const int stop = c->stop;
    pthread_mutex_unlock(&c->lock);
    return stop;
}

/* Connect again and again: and say nothing, something else, half a greeting, or a greeting without the token. None is
 * answered. */
static void *impostor(void *arg)
{
    struct crowd *c = arg;
    enum { OPEN = 90 };
    int fds[OPEN], n = 0;
    uint8_t bytes[2 * GREETING_BYTES];
    struct greeting g = pici_greeting(GREETING_JOIN, 1, 3, 0);
    memset(bytes, 0, sizeof bytes);
    memcpy(g.token, "another", 7);
    pici_greeting_put(bytes, &g);
    while (!stopped(c)) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)c->port)};
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at)) {
            if (fd >= 0)
                close(fd);
            usleep(1000);
            continue;
        }
        c->connected++;
        if (n % 4 == 1)
            (void)!send(fd, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL);
        else if (n % 4)
            (void)!send(fd, bytes, n % 4 == 2 ? GREETING_BYTES / 2 : sizeof bytes, MSG_NOSIGNAL);
        if (n < OPEN)
            fds[n++] = fd;
        else
            close(fd);
    }
    uint8_t answer;
    int answered = 0;
    for (int i = 0; i < n; i++) {
        answered += recv(fds[i], &answer, 1, MSG_DONTWAIT) > 0;
        close(fds[i]);
    }
    c->connected = answered ? -answered : c->connected;
    return NULL;
}

static void crowded(void)
{
    struct socket_team t;
    struct crowd c = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread;
    team_at(&t, 3, fresh_address(0), "the token");
    c.port = atoi(strrchr(address, ':') + 1);
    if (pthread_create(&thread, NULL, impostor, &c))
        abort();
    coll_threads(3, late_rank, &t); /* rank 0 listens after a while */
    expect(socket_team_all(&t, PICI_OK, ""), "a rendezvous among unauthenticated peers", 3);
    usleep(20000);
    pthread_mutex_lock(&c.lock);
    c.stop = 1;
    pthread_mutex_unlock(&c.lock);
    pthread_join(thread, NULL);
    expect(c.connected >= 0, "unauthenticated peers that were answered", -c.connected);
    socket_team_free(&t);
}

/* Connects as fast as it can, says nothing, and resets the oldest of its connections. */
static void *flooder(void *arg)
{
    enum { HELD = 128 };
    struct crowd *c = arg;
    const struct linger reset = {.l_onoff = 1};
    int held[HELD], n = 0;
    for (int i = 0; !stopped(c); i = (i + 1) % HELD) {
        const int fd = dial(c->port);
        if (fd < 0) {
            usleep(1000);
            continue;
        }
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        if (n == HELD)
            close(held[i]);
        else
            n++;
        held[i] = fd;
    }
    while (n)
        close(held[--n]);
    return NULL;
}

/* However many connect, the deadline holds, and ranks are let in. */
static void flooded(void)
{
    enum { FLOODERS = 3 };
    struct socket_team t;
    struct crowd c = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[FLOODERS];
    team_at(&t, 1, fresh_address(0), "the token");
    t.ranks[0] = 2;
    c.port = atoi(strrchr(address, ':') + 1);
    for (int i = 0; i < FLOODERS; i++)
        if (pthread_create(&threads[i], NULL, flooder, &c))
            abort();
    setenv("PICI_TIMEOUT_MS", "800", 1);
    refused(&t, PICI_E_TIMEOUT, "timed out after 800 ms waiting for rank 1 of 2", 4);
    unsetenv("PICI_TIMEOUT_MS");
    team_at(&t, 4, address, "the token");
    coll_threads(4, late_rank, &t);
    expect(socket_team_all(&t, PICI_OK, ""), "a rendezvous in a flood", 4);
    pthread_mutex_lock(&c.lock);
    c.stop = 1;
    pthread_mutex_unlock(&c.lock);
    for (int i = 0; i < FLOODERS; i++)
        pthread_join(threads[i], NULL);
    socket_team_free(&t);
}

/* A listener that drops a connection of which it has read nothing, as rank 0 does in a crowd; then rank 0. */
static void *drop_one(void *comm)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1))};
    const int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    uint8_t byte;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) || bind(fd, (void *)&at, sizeof at) ||
        listen(fd, 1))
        abort();
    const int dropped = accept(fd, NULL, NULL);
    expect(recv(dropped, &byte, 1, MSG_PEEK) == 1, "a greeting that is not read", 0);
    close(dropped);
    close(fd);
    if (pici_comm_rendezvous(comm, address, 0, 2, "tk") != PICI_OK)
        printf("rank 0: %s\n", pici_comm_error(NULL));
    return NULL;
}

static void dropped(void)
{
    struct pici_comm *comm[2] = {NULL, NULL};
    pthread_t thread;
    fresh_address(0);
    if (pthread_create(&thread, NULL, drop_one, &comm[0]))
        abort();
    const enum pici_status s = pici_comm_rendezvous(&comm[1], address, 1, 2, "tk");
    expect(s == PICI_OK, s ? pici_comm_error(NULL) : "a rank that was dropped in a crowd", s);
    if (s) /* rank 0 still waits for it */
        exit(1);
    pthread_join(thread, NULL);
    expect(comm[0] != NULL, "rank 0 of a rank that was dropped", 0);
    pici_comm_free(comm[0]);
    pici_comm_free(comm[1]);
}

/* In a crowd: the oldest connection has said nothing when it is accepted, and greets before its place is taken. */
static void slow_in_a_crowd(void)
{
    static int crowd[PENDING + 1];
    static struct pending pending;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    struct greeting mine = pici_greeting(GREETING_JOIN, 1, 2, 0), theirs;
    uint8_t greeting[GREETING_BYTES];
    int fd = -1, listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, bytes) || listen(listener, PENDING + 1) ||
        getsockname(listener, (struct sockaddr *)&at, &bytes))
        abort();
    memcpy(mine.token, "tk", 2);
    pici_greeting_put(greeting, &mine);
    pici_pending_open(&pending, listener, mine.token, NULL);
    for (int i = 0; i <= PENDING; i++) {
        crowd[i] = socket(AF_INET, SOCK_STREAM, 0);
        if (crowd[i] < 0 || connect(crowd[i], (struct sockaddr *)&at, sizeof at))
            abort();
        if (i < PENDING - 1)
            continue;
        expect(!pici_pending_next(&pending, &fd, &theirs) == (i < PENDING), "a rank that greets late in a crowd", i);
        if (i < PENDING)
            expect(send(crowd[0], greeting, sizeof greeting, 0) == sizeof greeting, "a greeting is sent", i);
    }
    expect(fd >= 0 && theirs.rank == 1, "the rank of the late greeting", fd);
    close(fd);
    for (int i = 0; i <= PENDING; i++)
        close(crowd[i]);
    pici_pending_close(&pending);
}

/* ---- too few descriptors */

enum { FEW = 4 };

/* A process that joins as a rank, rank 0 with so many descriptors. What it is told goes to a pipe. */
static pid_t few_rank(int rank, rlim_t descriptors, int out)
{
    const pid_t pid = fork();
    if (pid)
        return pid;
    struct pici_comm *comm;
    const struct rlimit limit = {descriptors, descriptors};
    if (dup2(out, STDOUT_FILENO) != STDOUT_FILENO)
        _exit(100);
    for (int fd = 3; fd < 64; fd++)
        close(fd);
    if (rank == 0 && setrlimit(RLIMIT_NOFILE, &limit))
        _exit(100);
    const enum pici_status s = pici_comm_rendezvous(&comm, address, rank, FEW, "a token");
    const char *words = pici_comm_error(NULL);
    (void)!write(STDOUT_FILENO, words, strlen(words));
    _exit(s);
}

/* Rank 0 cannot accept all: it does not spin, and all ranks are told. Before there are threads, since it forks. */
static void few_descriptors(void)
{
    fresh_address(0);
    setenv("PICI_TIMEOUT_MS", "8000", 1);
    for (rlim_t descriptors = 5; descriptors < 8; descriptors++) {
        pid_t pids[FEW];
        int pipes[FEW][2];
        for (int i = 0; i < FEW; i++) {
            if (pipe(pipes[i]))
                abort();
            pids[i] = few_rank(i, descriptors, pipes[i][1]);
            close(pipes[i][1]);
        }
        for (int i = 0; i < FEW; i++) {
            char words[512] = "";
            int status;
            struct rusage usage;
            const pid_t ended = wait4(pids[i], &status, 0, &usage);
            const ssize_t n = read(pipes[i][0], words, sizeof words - 1);
            close(pipes[i][0]);
            expect(ended == pids[i] && n > 0 && WIFEXITED(status) && WEXITSTATUS(status) == (uint8_t)PICI_E_TRANSPORT &&
                       strstr(words, "rank 0: cannot accept another connection: Too many open files"),
                   words, i);
            const long seconds = (long)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec);
            expect(seconds < 2, "seconds of processor time without descriptors", seconds);
        }
    }
    unsetenv("PICI_TIMEOUT_MS");
}

/* What rank 0 says of others may come from anyone. */
static void printable_words(void)
{
    static const struct {
        const char *said, *shown;
    } words[] = {
        {"rank 1: \xc3\xa4 \xe2\x82\xac \xf0\x9f\x8d\x91", "rank 1: \xc3\xa4 \xe2\x82\xac \xf0\x9f\x8d\x91"},
        {"\x1b[31m\x7f\t", "?[31m??"},
        {"\xc2\x9b"
         "31m",
         "??31m"}, /* C1: CSI */
        {"a\xe2\x80\xae"
         "b",
         "a???b"},                         /* right-to-left override */
        {"\xed\xa0\x80\xc0\x8a", "?????"}, /* a surrogate, an overlong line feed */
        {"\xff\xc3", "??"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        uint8_t bytes[VERDICT_BYTES];
        struct greeting_verdict v = {.status = PICI_E_PEER}, back;
        snprintf(v.text, sizeof v.text, "%s", words[i].said);
        pici_verdict_put(bytes, &v);
        expect(pici_verdict_get(&back, bytes) == PICI_OK && strcmp(back.text, words[i].shown) == 0, back.text, (long)i);
    }
}

/* What one unauthenticated peer sends, and how its connection ends: without an answer; reset if what it said was not
 * all read. */
struct caller {
    int port, bytes, token;
    int ends, reset; /* out */
};

static void *calls(void *arg)
{
    struct caller *c = arg;
    uint8_t out[2 * GREETING_BYTES] = {0}, answer;
    struct greeting g = pici_greeting(GREETING_JOIN, 1, 2, 0);
    if (c->token)
        memcpy(g.token, "the tokem", 9);
    pici_greeting_put(out, &g);
    if (!c->token)
        out[0] ^= 1;
    const int fd = dial(c->port);
    if (fd < 0)
        return NULL;
    (void)!send(fd, out, (size_t)c->bytes, MSG_NOSIGNAL);
    const ssize_t n = recv(fd, &answer, 1, 0);
    c->ends = n <= 0;
    c->reset = n < 0 && errno == ECONNRESET;
    close(fd);
    return NULL;
}

/* Of unauthenticated peers no byte behind a greeting is read: the system resets a connection that is closed with bytes
 * unread. */
static void turned_away(void)
{
    struct socket_team t;
    enum { CALLERS = 3 };
    struct caller c[CALLERS] = {{.bytes = GREETING_BYTES, .token = 1},
                                {.bytes = GREETING_BYTES + 1, .token = 1},
                                {.bytes = GREETING_BYTES + 1, .token = 0}};
    pthread_t thread[CALLERS];
    team_at(&t, 1, fresh_address(0), "the token");
    t.ranks[0] = 2;
    for (int i = 0; i < CALLERS; i++) {
        c[i].port = atoi(strrchr(address, ':') + 1);
        if (pthread_create(&thread[i], NULL, calls, &c[i]))
            abort();
    }
    setenv("PICI_TIMEOUT_MS", "800", 1);
    refused(&t, PICI_E_TIMEOUT, "timed out after 800 ms waiting for rank 1 of 2; rejected 3 connections (bad token)",
            4);
    unsetenv("PICI_TIMEOUT_MS");
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(thread[i], NULL);
        expect(c[i].ends && c[i].reset == (c[i].bytes > GREETING_BYTES),
               "how an unauthenticated peer's connection ends", i);
    }
}

/* ---- ranks that are wrong */

/* A process that is not ours joins as rank 1 with such a greeting. Returns what it is answered. */
struct guest_of {
    struct greeting greeting;
    int port, leaves; /* it does not wait for an answer */
    struct greeting_verdict verdict;
    int answered;
};

static void *joins(void *arg)
{
    struct guest_of *g = arg;
    uint8_t out[GREETING_BYTES], in[VERDICT_BYTES];
    const int fd = dial(g->port);
    pici_greeting_put(out, &g->greeting);
    if (fd < 0)
        return NULL;
    (void)!send(fd, out, sizeof out, MSG_NOSIGNAL);
    if (!g->leaves)
        g->answered =
            recv(fd, in, sizeof in, MSG_WAITALL) == VERDICT_BYTES && pici_verdict_get(&g->verdict, in) == PICI_OK;
    close(fd);
    return NULL;
}

/* Ranks 0 and 2 are ours. */
static void with_guest(struct greeting greeting, const char *phrase)
{
    struct socket_team t;
    struct guest_of g = {.greeting = greeting};
    pthread_t thread;
    memcpy(g.greeting.token, "tk", 2);
    g.greeting.place = (struct place){.family = 4, .port = 1, .address = {127, 0, 0, 1}};
    team_at(&t, 2, fresh_address(0), "tk");
    t.rank[1] = 2;
    t.ranks[0] = t.ranks[1] = 3;
    g.port = atoi(strrchr(address, ':') + 1);
    if (pthread_create(&thread, NULL, joins, &g))
        abort();
    refused(&t, PICI_E_PEER, phrase, 10);
    pthread_join(thread, NULL);
    expect(g.answered && g.verdict.status == PICI_E_PEER && strstr(g.verdict.text, phrase), "it is told too",
           g.verdict.status);
}

/* A process joins as `rank` of p, and is gone at once or when it knows where the others are. `ours` ranks are there. */
static void goes(int ours, int rank, int p, int leaves, const char *phrase)
{
    struct socket_team t;
    struct guest_of g = {.greeting = pici_greeting(GREETING_JOIN, rank, p, 0), .leaves = leaves};
    pthread_t thread;
    memcpy(g.greeting.token, "tk", 2);
    g.greeting.place = (struct place){.family = 4, .port = 1, .address = {127, 0, 0, 1}};
    team_at(&t, ours, fresh_address(0), "tk");
    for (int i = 0; i < ours; i++)
        t.ranks[i] = p;
    g.port = atoi(strrchr(address, ':') + 1);
    if (pthread_create(&thread, NULL, joins, &g))
        abort();
    refused(&t, PICI_E_PEER, phrase, 6);
    pthread_join(thread, NULL);
    expect(g.answered == (!leaves), "whether it waited", leaves);
}

static void wrong_ones(void)
{
    struct socket_team t;
    struct greeting g = pici_greeting(GREETING_JOIN, 1, 3, 0);
    g.messages += 7;
    with_guest(g, "rank 1 runs an incompatible version of pici");
    g = pici_greeting(GREETING_JOIN, 1, 3, 0);
    g.version++;
    with_guest(g, "rank 1 runs an incompatible version of pici");
    with_guest(pici_greeting(GREETING_JOIN, 1, 2, 0), "rank 1 has world size 2, rank 0 has 3: ");
    with_guest(pici_greeting(GREETING_JOIN, 3, 3, 0), "rank 3 out of range (world size 3)");
    with_guest(pici_greeting(GREETING_LINK, 1, 3, 0), "rank 1 is out of step with the rendezvous");
    with_guest(pici_greeting(GREETING_JOIN, 0, 3, 0), "two processes claim rank 0");

    team_at(&t, 4, fresh_address(0), "tk"); /* 0, 1, 2 and again 2 */
    t.rank[3] = 2;
    refused(&t, PICI_E_PEER, "two processes claim rank 2: from 127.0.0.1:", 10);
    team_at(&t, 4, fresh_address(0), "tk"); /* the last one takes them for five */
    t.ranks[3] = 5;
    refused(&t, PICI_E_PEER, "rank 3 has world size 5, rank 0 has 4: ", 10);

    goes(1, 1, 3, 1, "rank 1 joined, but disconnected before all ranks had joined");
    goes(2, 2, 3, 0, "rank 2 closed its connection");

    setenv("PICI_TIMEOUT_MS", "800", 1);
    team_at(&t, 3, fresh_address(0), "tk");
    t.odd_token = "kt";
    socket_team_make(&t);
    expect(t.status[2] == PICI_E_PEER && strstr(t.words[2], "check that the token and PICI_SOCKET_TLS are the same"),
           t.words[2], t.status[2]);
    for (int i = 0; i < 2; i++)
        expect(
            t.status[i] == PICI_E_TIMEOUT &&
                strstr(t.words[i], "timed out after 800 ms waiting for rank 2 of 3; rejected 1 connection (bad token)"),
            t.words[i], t.status[i]);
    expect(t.seconds < 6, "a wrong token", (long)t.seconds);
    team_at(&t, 1, fresh_address(0), "tk"); /* nobody listens */
    t.rank[0] = 1;
    t.ranks[0] = 2;
    refused(&t, PICI_E_TIMEOUT, "connecting to rank 0 at 127.0.0.1:", 4);
    team_at(&t, 1, fresh_address(0), "tk"); /* nobody comes */
    t.ranks[0] = 12;
    refused(&t, PICI_E_TIMEOUT, "timed out after 800 ms waiting for ranks 1, 2, 3, 4, 5, 6, 7, 8 and 3 more of 12", 4);
    unsetenv("PICI_TIMEOUT_MS");

    const int fd = socket(AF_INET, SOCK_STREAM, 0); /* somebody else listens there */
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof at;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 1) ||
        getsockname(fd, (struct sockaddr *)&at, &len))
        abort();
    snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(at.sin_port));
    team_at(&t, 1, address, "tk");
    t.ranks[0] = 2;
    refused(&t, PICI_E_TRANSPORT, "cannot listen at 127.0.0.1:", 4);
    close(fd);
    team_at(&t, 1, "name.invalid:29500", "tk");
    t.ranks[0] = 2;
    socket_team_make(&t);
    expect(t.status[0] == PICI_E_ARG && strstr(t.words[0], "name.invalid"), t.words[0], t.status[0]);
}

/* ---- addresses */

static void addresses(void)
{
    static const struct {
        const char *text, *host, *port;
    } good[] = {{"node-1:29500", "node-1", "29500"},
                {"10.0.0.1:1", "10.0.0.1", "1"},
                {"[fe80::1%eth0]:65535", "fe80::1%eth0", "65535"},
                {"[::]:80", "::", "80"}};
    char host[ADDRESS_HOST], port[ADDRESS_PORT];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        expect(pici_address_parse(good[i].text, host, port) && strcmp(host, good[i].host) == 0 &&
                   strcmp(port, good[i].port) == 0,
               good[i].text, 0);
    static const struct {
        struct place place;
        const char *words;
        int loopback;
    } places[] = {{{4, 80, {127, 9, 0, 1}}, "127.9.0.1:80", 1},
                  {{4, 80, {10, 0, 0, 1}}, "10.0.0.1:80", 0},
                  {{6, 9, {[15] = 1}}, "[::1]:9", 1},
                  {{6, 9, {[15] = 2}}, "[::2]:9", 0},
                  {{6, 9, {[10] = 255, [11] = 255, [12] = 127}}, "[::ffff:127.0.0.0]:9", 1}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char words[ADDRESS_TEXT];
        const struct address none = {.size = 0}, a = pici_address_at(&places[i].place, &none);
        const struct place back = pici_address_place(&a);
        pici_address_text(&places[i].place, words);
        expect(strcmp(words, places[i].words) == 0 && pici_place_loopback(&back) == places[i].loopback &&
                   back.port == places[i].place.port && back.family == places[i].place.family,
               places[i].words, 0);
    }
}

int main(void)
{
    alarm(WATCHDOG_S); /* whoever hangs */
    few_descriptors();
    printable_words();
    addresses();
    environment();
    good_ones();
    late();
    crowded();
    flooded();
    dropped();
    slow_in_a_crowd();
    turned_away();
    wrong_ones();
    return tally_end();
}
