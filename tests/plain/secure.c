/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Encrypted rendezvous: collectives, what crosses the wire, bytes that are changed on the way, ranks with another token
 * or without encryption, unauthenticated peers, certificates. Needs libc alone, and the library OpenSSL. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/util/coll.h"
#include "tests/util/expect.h"
#include "tests/util/socket.h"
#include "tests/util/util.h"
#include "transport/secure.h"

enum { WATCHDOG_S = 300, RECORDED = 1 << 20, N = 50000 };

static char address[64];
static const char token[] = "the token of this test";

static const char *fresh_address(void)
{
    snprintf(address, sizeof address, "127.0.0.1:%d", socket_port(0));
    return address;
}

static void team_at(struct socket_team *t, int p, const char *where, const char *secret)
{
    socket_team_init(t, p);
    t->address = where;
    t->token = secret;
}

/* ---- good ones */

/* Short and long messages, sums and gathers. */
static void work(void *context, int rank)
{
    struct socket_team *t = context;
    struct pici_comm *comm = t->comm[rank];
    int32_t *x = calloc(N, sizeof *x), *all = calloc((size_t)N * (size_t)t->p, sizeof *all), few[3] = {rank, 1, 2};
    if (!x || !all)
        abort();
    for (int i = 0; i < N; i++)
        x[i] = i * 7 + rank;
    enum pici_status s = PICI_OK;
    for (int i = 0; i < 20 && !s; i++)
        s = pici_all_reduce(few, few, 3, PICI_I32, PICI_MAX, comm, NULL);
    if (!s)
        s = pici_all_gather(x, all, N, PICI_I32, comm, NULL);
    if (!s)
        s = pici_all_reduce(x, x, N, PICI_I32, PICI_SUM, comm, NULL);
    for (int i = 0; i < N && !s; i++) {
        if (x[i] != t->p * i * 7 + t->p * (t->p - 1) / 2)
            s = PICI_E_CORRUPT;
        for (int r = 0; r < t->p; r++)
            if (all[(size_t)r * N + (size_t)i] != i * 7 + r)
                s = PICI_E_CORRUPT;
    }
    t->status[rank] = !s && few[0] != t->p - 1 ? PICI_E_CORRUPT : s;
    free(x);
    free(all);
}

static void meets(struct socket_team *t, const char *what)
{
    socket_team_make(t);
    const int good = socket_team_all(t, PICI_OK, "");
    expect(good, what, t->p);
    if (good)
        coll_threads(t->p, work, t);
    expect(good && socket_team_all(t, PICI_OK, ""), what, t->p);
    socket_team_free(t);
}

static void good_ones(void)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    struct socket_team t;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        team_at(&t, sizes[i], fresh_address(), token);
        meets(&t, "an encrypted rendezvous");
        meets(&t, "another one at the same address");
    }
}

/* ---- what crosses the wire */

/* Passes bytes on between a rank and rank 0, and keeps them. flips: of the bytes to rank 0, counted from 1, one that is
 * changed; 0: none. single: so many bytes of each direction are sent one by one, with a pause after each. late: this
 * long nothing is passed on, ms. */
struct relay {
    int listener, to, flips, single, late;
    pthread_mutex_t lock;
    size_t recorded;
    uint8_t bytes[RECORDED];
};

static int pass(struct relay *r, int from, int to, int up, size_t *passed_on)
{
    uint8_t bytes[4096];
    const ssize_t n = recv(from, bytes, sizeof bytes, 0);
    if (n <= 0)
        return 0;
    for (ssize_t i = 0; i < n; i++, ++*passed_on) {
        if (r->recorded < RECORDED)
            r->bytes[r->recorded++] = bytes[i];
        if (up && r->flips && *passed_on + 1 == (size_t)r->flips)
            bytes[i] ^= 4;
    }
    const size_t before = *passed_on - (size_t)n, single = (size_t)r->single;
    for (ssize_t sent = 0, k; sent < n; sent += k) {
        const int one = before + (size_t)sent < single;
        if ((k = send(to, bytes + sent, one ? 1 : (size_t)(n - sent), MSG_NOSIGNAL)) <= 0)
            return 0;
        if (one)
            usleep(100);
    }
    return 1;
}

static void *run_relay(void *context)
{
    struct relay *r = context;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)r->to)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int down = accept(r->listener, NULL, NULL);
    int up = -1;
    for (int i = 0; i < 2000 && up < 0; i++) {
        up = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(up, (struct sockaddr *)&at, sizeof at)) {
            close(up);
            up = -1;
            usleep(2000);
        }
    }
    size_t passed_on[2] = {0, 0};
    const int at_once = r->single > 0;
    if (at_once)
        setsockopt(up, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
    if (r->late)
        usleep((useconds_t)r->late * 1000);
    for (int open = up >= 0; open;) {
        struct pollfd polls[2] = {{.fd = down, .events = POLLIN}, {.fd = up, .events = POLLIN}};
        if (poll(polls, 2, -1) < 0)
            break;
        if (polls[0].revents)
            open = pass(r, down, up, 1, &passed_on[0]);
        if (open && polls[1].revents)
            open = pass(r, up, down, 0, &passed_on[1]);
    }
    close(down);
    close(up);
    return NULL;
}

struct relay_how {
    int flips, single, late;
};

struct pair {
    const char *address[2];
    enum pici_status met[2], status[2];
    char words[2][512];
};

static void pair_rank(void *context, int rank)
{
    struct pair *x = context;
    struct pici_comm *comm;
    char *sent = calloc(N, 1), *got = calloc(2, N);
    if (!sent || !got)
        abort();
    for (int i = 0; i + 16 <= N; i += 16)
        memcpy(sent + i, "what is to be hid", 16);
    x->status[rank] = x->met[rank] = pici_comm_rendezvous(&comm, x->address[rank], rank, 2, token);
    snprintf(x->words[rank], sizeof x->words[rank], "%s", x->met[rank] ? pici_comm_error(NULL) : "");
    if (!x->met[rank]) {
        x->status[rank] = pici_all_gather(sent, got, N, PICI_U8, comm, NULL);
        snprintf(x->words[rank], sizeof x->words[rank], "%s", pici_comm_error(comm));
        if (!x->status[rank] && (memcmp(sent, got, N) != 0 || memcmp(sent, got + N, N) != 0))
            x->status[rank] = PICI_E_CORRUPT;
        pici_comm_free(comm);
    }
    free(sent);
    free(got);
}

/* how: of a relay, what is not 0. */
static void relayed(struct relay *r, struct pair *x, struct relay_how how)
{
    static char by_relay[64];
    struct sockaddr_in at = {.sin_family = AF_INET};
    const int port = socket_port(0);
    pthread_t thread;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons((uint16_t)port);
    memset(r, 0, sizeof *r);
    r->flips = how.flips;
    r->single = how.single;
    r->late = how.late;
    r->listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(r->listener, (struct sockaddr *)&at, sizeof at) || listen(r->listener, 8))
        abort();
    fresh_address();
    r->to = atoi(strrchr(address, ':') + 1);
    snprintf(by_relay, sizeof by_relay, "127.0.0.1:%d", port);
    *x = (struct pair){.address = {address, by_relay}};
    if (pthread_create(&thread, NULL, run_relay, r))
        abort();
    coll_threads(2, pair_rank, x);
    pthread_join(thread, NULL);
    close(r->listener);
}

static int holds(const struct relay *r, const char *text)
{
    return memmem(r->bytes, r->recorded, text, strlen(text)) != NULL;
}

static void on_the_wire(void)
{
    struct relay *r = calloc(1, sizeof *r);
    struct pair x;
    if (!r)
        abort();
    unsetenv("PICI_SOCKET_TLS");
    relayed(r, &x, (struct relay_how){0});
    expect(!x.status[0] && !x.status[1] && holds(r, token) && holds(r, "what is to be") && holds(r, "PICIMEET"),
           "all can be read without encryption", 0);
    setenv("PICI_SOCKET_TLS", "1", 1);
    relayed(r, &x, (struct relay_how){0});
    expect(!x.status[0] && !x.status[1] && r->recorded > N, x.words[0], 0);
    expect(!holds(r, token) && !holds(r, "the token") && !holds(r, "what is to be") && !holds(r, "PICIMEET"),
           "something can be read in spite of encryption", 0);
    setenv("PICI_TIMEOUT_MS", "3000", 1);
    relayed(r, &x, (struct relay_how){.flips = 20000});
    expect(!x.met[0] && !x.met[1] && x.status[0] && x.status[1] && strstr(x.words[0], "changed on the way"), x.words[0],
           x.status[0]);
    setenv("PICI_TIMEOUT_MS", "400", 1);
    for (int flips = 5; flips < 500; flips += 240) { /* in the handshake and the greeting */
        relayed(r, &x, (struct relay_how){.flips = flips});
        expect(x.status[0] && x.status[1], "a changed byte of a greeting", flips);
    }
    unsetenv("PICI_TIMEOUT_MS");
    free(r);
}

/* A handshake whose records come in single bytes, and a rank that says nothing for a while. */
static void slow_peers(void)
{
    static const struct relay_how hows[] = {{.single = 3000}, {.late = 400}, {.single = 600, .late = 50}};
    struct relay *r = calloc(1, sizeof *r);
    struct pair x;
    if (!r)
        abort();
    for (size_t i = 0; i < sizeof hows / sizeof *hows; i++) {
        relayed(r, &x, hows[i]);
        expect(!x.status[0] && !x.status[1], x.words[0][0] ? x.words[0] : "a slow peer", (long)i);
    }
    free(r);
}

/* ---- ranks that do not fit */

static void other_token(void)
{
    struct socket_team t;
    setenv("PICI_TIMEOUT_MS", "1500", 1);
    team_at(&t, 3, fresh_address(), token);
    t.odd_token = "another token";
    socket_team_make(&t);
    expect(t.status[2] == PICI_E_PEER && strstr(t.words[2], "rejected the connection: check that the token"),
           t.words[2], t.status[2]);
    expect(t.status[0] == PICI_E_TIMEOUT && strstr(t.words[0], "waiting for rank 2 of 3; rejected ") &&
               strstr(t.words[0], "(bad token, or no PICI_SOCKET_TLS)"),
           t.words[0], t.status[0]);
    expect(t.status[1] == PICI_E_TIMEOUT && strstr(t.words[1], "waiting for rank 2"), t.words[1], t.status[1]);
    socket_team_free(&t);
    unsetenv("PICI_TIMEOUT_MS");
    team_at(&t, 2, fresh_address(), "");
    socket_team_make(&t);
    expect(socket_team_all(&t, PICI_E_ARG, "PICI_SOCKET_TLS needs a token"), "no token", 0);
    socket_team_free(&t);
}

/* Two processes, one of them without encryption. Before there are threads, since it forks. */
static void one_without(int plain)
{
    char words[512] = "";
    int pipes[2], status;
    struct pici_comm *comm;
    fresh_address();
    if (pipe(pipes))
        abort();
    setenv("PICI_TIMEOUT_MS", "1500", 1);
    const pid_t pid = fork();
    if (!pid) {
        if (plain)
            unsetenv("PICI_SOCKET_TLS");
        const enum pici_status s = pici_comm_rendezvous(&comm, address, 1, 2, token);
        (void)!write(pipes[1], pici_comm_error(NULL), strlen(pici_comm_error(NULL)));
        _exit(s);
    }
    close(pipes[1]);
    if (!plain)
        unsetenv("PICI_SOCKET_TLS");
    const enum pici_status s = pici_comm_rendezvous(&comm, address, 0, 2, token);
    const char *rejected = plain ? "(bad token, or no PICI_SOCKET_TLS)" : "(bad token)";
    expect(s == PICI_E_TIMEOUT && strstr(pici_comm_error(NULL), rejected), pici_comm_error(NULL), s);
    (void)!read(pipes[0], words, sizeof words - 1);
    close(pipes[0]);
    waitpid(pid, &status, 0);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == (uint8_t)PICI_E_PEER &&
               strstr(words, "check that the token and PICI_SOCKET_TLS are the same"),
           words, status);
    setenv("PICI_SOCKET_TLS", "1", 1);
    unsetenv("PICI_TIMEOUT_MS");
}

/* ---- unauthenticated peers */

/* ---- parts of a record */

/* Pass on up to `most` bytes. */
static void pass_some(int from, int to, size_t most)
{
    char bytes[4096];
    ssize_t n;
    while (most && (n = recv(from, bytes, most < sizeof bytes ? most : sizeof bytes, MSG_DONTWAIT)) > 0) {
        socket_say(to, bytes, (size_t)n);
        most -= (size_t)n;
    }
}

/* While a part of a record is missing, nothing waits to be received. */
static void half_record(void)
{
    enum { BYTES = 1000 };
    static char sent[BYTES], received[BYTES];
    const struct secure_files files = {0};
    const struct iovec part = {sent, BYTES};
    int one[2], other[2];
    size_t there = 0;
    enum pici_status status;
    char explanation[200];
    struct secure_keys *keys = pici_secure_keys(token, &files, &status, explanation, sizeof explanation);
    if (!keys || socketpair(AF_UNIX, SOCK_STREAM, 0, one) || socketpair(AF_UNIX, SOCK_STREAM, 0, other) ||
        !pici_secure_begin(keys, one[0], 0) || !pici_secure_begin(keys, other[0], 1))
        abort();
    struct secure *const from = pici_secure_of(one[0]), *const to = pici_secure_of(other[0]);
    ssize_t n = -1;
    for (int i = 0; i < 50 && there < BYTES; i++) {
        if (n < 0)
            n = pici_secure_send(from, one[0], &part, 1);
        pass_some(one[1], other[1], SIZE_MAX);
        const ssize_t got = pici_secure_recv(to, other[0], received, there ? BYTES - there : 1);
        there += got > 0 ? (size_t)got : 0;
        if (there == 1)
            expect(pici_secure_waits(to), "the rest of a record waits", i);
        pass_some(other[1], one[1], SIZE_MAX);
    }
    expect(there == BYTES && !pici_secure_waits(to), "a whole record", (long)there);
    expect(pici_secure_send(from, one[0], &part, 1) == BYTES, "another record", 0);
    pass_some(one[1], other[1], BYTES / 2);
    expect(pici_secure_recv(to, other[0], received, BYTES) < 0 && errno == EAGAIN, "half of a record", errno);
    expect(!pici_secure_waits(to), "half of a record does not wait to be received", 0);
    pass_some(one[1], other[1], SIZE_MAX);
    expect(pici_secure_recv(to, other[0], received, BYTES) == BYTES, "both halves", 0);
    pici_secure_close(one[0]);
    pici_secure_close(other[0]);
    close(one[1]);
    close(other[1]);
    pici_secure_keys_free(keys);
}

struct crowd {
    int port, stop, connected, answered;
    pthread_mutex_t lock;
};

static int stopped(struct crowd *c)
{
    pthread_mutex_lock(&c->lock);
    const int stop = c->stop;
    pthread_mutex_unlock(&c->lock);
    return stop;
}

/* Connects again and again. It sends nothing, something else, half a hello of TLS, or an invalid handshake record. Or
 * it sends half a hello and leaves, or waits for a while before it sends something. */
static void *impostor(void *arg)
{
    static const uint8_t half_hello[] = {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3};
    uint8_t senseless[5 + 64] = {0x16, 3, 1, 0, 64};
    struct crowd *c = arg;
    enum { OPEN = 90, KINDS = 6 };
    enum { ALERT = 0x15 };
    int fds[OPEN], senseless_to[OPEN] = {0}, n = 0;
    for (int i = 5; i < (int)sizeof senseless; i++)
        senseless[i] = (uint8_t)(i * 97 + 11);
    while (!stopped(c)) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)c->port)};
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const int fd = socket(AF_INET, SOCK_STREAM, 0), kind = c->connected % KINDS;
        if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at)) {
            if (fd >= 0)
                close(fd);
            usleep(1000);
            continue;
        }
        c->connected++;
        if (kind == 1)
            (void)!send(fd, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL);
        else if (kind == 2 || kind == 4)
            (void)!send(fd, half_hello, sizeof half_hello, MSG_NOSIGNAL);
        else if (kind == 3 || (kind == 5 && !usleep(20000)))
            (void)!send(fd, senseless, sizeof senseless, MSG_NOSIGNAL);
        if (n < OPEN && kind != 4) {
            senseless_to[n] = kind == 3 || kind == 5;
            fds[n++] = fd;
        } else {
            close(fd);
        }
    }
    for (int i = 0; i < n; i++) {
        uint8_t answer; /* TLS itself refuses a whole record that has no sense */
        c->answered += recv(fds[i], &answer, 1, MSG_DONTWAIT) > 0 && !(senseless_to[i] && answer == ALERT);
        close(fds[i]);
    }
    return NULL;
}

static void late_rank(void *context, int i)
{
    struct socket_team *t = context;
    usleep(i ? 0 : 300000); /* rank 0 listens after a while */
    t->status[i] = pici_comm_rendezvous(&t->comm[i], t->address, i, t->p, t->token);
    snprintf(t->words[i], sizeof t->words[i], "%s", t->status[i] ? pici_comm_error(NULL) : "");
}

static void crowded(void)
{
    struct socket_team t;
    struct crowd c = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread;
    team_at(&t, 4, fresh_address(), token);
    c.port = atoi(strrchr(address, ':') + 1);
    if (pthread_create(&thread, NULL, impostor, &c))
        abort();
    coll_threads(4, late_rank, &t);
    expect(socket_team_all(&t, PICI_OK, ""), "an encrypted rendezvous among unauthenticated peers", 4);
    usleep(20000);
    pthread_mutex_lock(&c.lock);
    c.stop = 1;
    pthread_mutex_unlock(&c.lock);
    pthread_join(thread, NULL);
    expect(c.connected > 0 && !c.answered, "unauthenticated peers that were answered", c.answered);
    socket_team_free(&t);
}

/* ---- certificates */

static int shell(const char *folder, const char *command)
{
    char line[1024];
    snprintf(line, sizeof line, "cd '%s' && { %s; } >/dev/null 2>&1", folder, command);
    return system(line) == 0;
}

static void name_file(const char *variable, const char *folder, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    setenv(variable, path, 1);
}

/* Somebody at rank 0's address has a certificate, and not the token: a rank tells him nothing. */
static void stranger_with_certificate(const char *folder)
{
    char file[300], port[16];
    int silent[2]; /* what the stranger would say */
    struct pici_comm *comm;
    struct stat status;
    fresh_address();
    snprintf(port, sizeof port, "%s", strrchr(address, ':') + 1);
    if (pipe(silent))
        abort();
    const pid_t pid = fork();
    if (!pid) {
        if (chdir(folder) == 0 && freopen("heard", "w", stdout) && freopen("/dev/null", "w", stderr) &&
            dup2(silent[0], STDIN_FILENO) == STDIN_FILENO)
            execlp("openssl", "openssl", "s_server", "-accept", port, "-cert", "x.pem", "-key", "x.key", "-tls1_3",
                   "-naccept", "1", "-quiet", (char *)NULL);
        _exit(1);
    }
    setenv("PICI_TIMEOUT_MS", "20000", 1);
    const enum pici_status s = pici_comm_rendezvous(&comm, address, 1, 2, token);
    expect(s == PICI_E_PEER && strstr(pici_comm_error(NULL), "rejected the connection"), pici_comm_error(NULL), s);
    unsetenv("PICI_TIMEOUT_MS");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(silent[0]);
    close(silent[1]);
    snprintf(file, sizeof file, "%s/heard", folder);
    const long heard = stat(file, &status) == 0 ? (long)status.st_size : -1;
    expect(heard == 0, "what a stranger with a certificate has heard", heard);
}

static void certificates(void)
{
    char folder[] = "/tmp/pici_secure_XXXXXX";
    struct socket_team t;
    if (!mkdtemp(folder))
        abort();
    if (!shell(folder, "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=ca "
                       "-keyout ca.key -out ca.pem && "
                       "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=rank -keyout rank.key "
                       "-out rank.csr && openssl x509 -req -in rank.csr -CA ca.pem -CAkey ca.key -CAcreateserial "
                       "-days 2 -out rank.pem && "
                       "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=x "
                       "-keyout x.key -out x.pem")) {
        printf("skip: certificates: no openssl(1)\n");
    } else {
        stranger_with_certificate(folder);
        name_file("PICI_SOCKET_TLS_CERT", folder, "rank.pem");
        name_file("PICI_SOCKET_TLS_KEY", folder, "rank.key");
        team_at(&t, 2, fresh_address(), token);
        socket_team_make(&t);
        expect(socket_team_all(&t, PICI_E_ARG, "set all of them, or none"), "no authority", 0);
        name_file("PICI_SOCKET_TLS_CA", folder, "ca.pem");
        team_at(&t, 3, fresh_address(), token);
        meets(&t, "certificates");
        name_file("PICI_SOCKET_TLS_CA", folder, "x.pem");
        setenv("PICI_TIMEOUT_MS", "1500", 1);
        team_at(&t, 2, fresh_address(), token);
        socket_team_make(&t);
        expect(t.status[0] == PICI_E_TIMEOUT && t.status[1] == PICI_E_PEER, "another authority", t.status[1]);
        unsetenv("PICI_TIMEOUT_MS");
        name_file("PICI_SOCKET_TLS_KEY", folder, "x.key");
        team_at(&t, 2, fresh_address(), token);
        socket_team_make(&t);
        expect(socket_team_all(&t, PICI_E_ARG, "PICI_SOCKET_TLS_KEY: no key of the certificate"), "another key", 0);
    }
    unsetenv("PICI_SOCKET_TLS_CERT");
    unsetenv("PICI_SOCKET_TLS_KEY");
    unsetenv("PICI_SOCKET_TLS_CA");
    (void)shell(folder, "rm -f ./*");
    rmdir(folder);
}

int main(void)
{
    struct pici_comm *comm = NULL;
    alarm(WATCHDOG_S);
    unsetenv("PICI_TOKEN");
    setenv("PICI_SOCKET_SHARED", "0", 1); /* all goes over the sockets */
    setenv("PICI_SOCKET_TLS", "1", 1);
    const enum pici_status s = pici_comm_rendezvous(&comm, "127.0.0.1:1", 0, 1, token);
    if (s == PICI_E_UNSUPPORTED) {
        expect(strstr(pici_comm_error(NULL), "built without OpenSSL") != NULL, pici_comm_error(NULL), s);
        printf("skip: encrypted sockets: built without OpenSSL\n");
    } else {
        expect(s == PICI_OK, pici_comm_error(NULL), s);
        pici_comm_free(comm);
        one_without(1);
        one_without(0);
        good_ones();
        unsetenv("PICI_SOCKET_SHARED");
        good_ones();
        setenv("PICI_SOCKET_SHARED", "0", 1);
        half_record();
        on_the_wire();
        slow_peers();
        other_token();
        crowded();
        certificates();
    }
    return tally_end();
}
