/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Rings and the memory that ranks share. A model of two ranks that stream messages both ways, sleep and wake each other
 * as the transport does, and are killed at random. They are threads, for the thread sanitizer, or processes, killed by
 * SIGKILL. What a hostile peer stores in the memory or offers. Ranks with several connections. Needs libc alone. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/util/coll.h"
#include "tests/util/expect.h"
#include "tests/util/socket.h"
#include "tests/util/util.h"
#include "transport/pairs.h"
#include "transport/shared.h"

enum { WATCHDOG_S = 3000, MESSAGES = 1000000, ALL_MESSAGES = 100000000, LONGEST = 3 * RING_LEAST, STALLED_MS = 60000 };

/* ---- two ranks and their streams */

struct side {
    struct shared *shared;
    int fd;            /* its end of their socket, which it closes */
    uint64_t seed;     /* of what it sends; that of its peer has another last bit */
    uint64_t messages; /* that each of them sends */
    uint64_t killed;   /* after so many moves */
    uint64_t sent, received;
    const char *wrong;
};

/* The messages of a stream: mostly short, sometimes longer than a ring. */
struct source {
    struct rng rng;
    size_t bytes, offset; /* of this message; moved of it */
    uint8_t data[LONGEST];
};

static void next_message(struct source *source)
{
    source->bytes = 1 + rng_below(&source->rng, rng_below(&source->rng, 1000) ? 64 : LONGEST);
    source->offset = 0;
    const uint8_t first = (uint8_t)rng_next(&source->rng);
    for (size_t i = 0; i < source->bytes; i++)
        source->data[i] = (uint8_t)(first + i);
}

/* In one to three parts, as a message has a length and data. */
static int cut_up(struct rng *rng, uint8_t *data, size_t bytes, struct iovec part[3])
{
    int parts = 0;
    while (bytes) {
        const size_t step = parts == 2 ? bytes : 1 + rng_below(rng, bytes);
        part[parts++] = (struct iovec){data, step};
        data += step;
        bytes -= step;
    }
    return parts;
}

/* Returns whether something moved. */
static int send_some(struct side *side, struct source *out, struct rng *rng, int *over)
{
    struct iovec part[3];
    if (out->offset == out->bytes)
        next_message(out);
    const int parts = cut_up(rng, out->data + out->offset, out->bytes - out->offset, part);
    const ssize_t moved = pici_shared_send(side->shared, side->fd, part, parts);
    if (moved <= 0) {
        *over |= errno == EPIPE;
        if (errno != EPIPE && errno != EAGAIN)
            side->wrong = strerror(errno);
        return 0;
    }
    out->offset += (size_t)moved;
    side->sent += out->offset == out->bytes;
    return 1;
}

static int receive_some(struct side *side, struct source *in, uint8_t *got, struct rng *rng, int *ended)
{
    struct iovec part[3];
    if (in->offset == in->bytes)
        next_message(in);
    const int parts = cut_up(rng, got, in->bytes - in->offset, part);
    const ssize_t moved = pici_shared_recv(side->shared, side->fd, part, parts);
    if (moved <= 0) {
        *ended = moved == 0;
        if (moved < 0 && errno != EAGAIN)
            side->wrong = strerror(errno);
        return 0;
    }
    if (memcmp(got, in->data + in->offset, (size_t)moved) != 0)
        side->wrong = "other bytes than were sent";
    in->offset += (size_t)moved;
    side->received += in->offset == in->bytes;
    return 1;
}

/* Send and receive until all is done, the peer has ended and all that it sent is read, or this side is killed. */
static void run_side(struct side *side)
{
    struct source *out = test_alloc(sizeof *out), *in = test_alloc(sizeof *in);
    struct rng rng = {side->seed};
    uint8_t *got = test_alloc(LONGEST);
    int ended = 0, over = 0;
    out->rng = (struct rng){side->seed};
    in->rng = (struct rng){side->seed ^ 1};
    out->bytes = out->offset = in->bytes = in->offset = 0;
    for (uint64_t moves = 0; moves < side->killed && !side->wrong && !ended; moves++) {
        const int sends = side->sent < side->messages && !over, receives = side->received < side->messages;
        if (!sends && !receives)
            break;
        int moved = sends && send_some(side, out, &rng, &over);
        moved += receives && receive_some(side, in, got, &rng, &ended);
        if (moved || ended || (sends && over))
            continue;
        struct pollfd entry = {.fd = side->fd, .events = POLLIN};
        int ready = 1;
        if (!pici_shared_waits(side->shared, sends, receives))
            ready = poll(&entry, 1, STALLED_MS);
        (void)pici_shared_waits(side->shared, 0, 0);
        if (ready == 0)
            side->wrong = "nobody wakes it";
        pici_shared_hear(side->shared, side->fd);
    }
    close(side->fd);
    free(got);
    free(in);
    free(out);
}

static void *run_thread(void *side)
{
    run_side(side);
    return NULL;
}

static void connect_sides(struct side side[2], uint64_t messages, uint64_t seed)
{
    struct greeting_offer offer;
    int pair[2], fd;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        abort();
    struct shared *made = pici_shared_make(&offer, RING_LEAST, &fd), *opened = made ? pici_shared_open(&offer) : NULL;
    if (!made || !opened) {
        printf("no memory to share: %s\n", strerror(made ? errno : (int)offer.process));
        exit(1);
    }
    close(fd);
    for (int i = 0; i < 2; i++)
        side[i] = (struct side){.shared = i ? opened : made,
                                .fd = pair[i],
                                .seed = 2 * seed + (uint64_t)i,
                                .messages = messages,
                                .killed = UINT64_MAX};
}

static void disconnect(const struct side side[2])
{
    pici_shared_free(side[0].shared);
    pici_shared_free(side[1].shared);
}

/* Two threads; of three pairs one thread of two leaves early. What it sent whole arrives. Returns how many messages
 * were received. */
static uint64_t between_threads(uint64_t messages, struct rng *rng, uint64_t seed)
{
    struct side side[2];
    pthread_t thread[2];
    const uint64_t kind = rng_below(rng, 3);
    connect_sides(side, messages, seed);
    if (kind < 2)
        side[kind].killed = rng_below(rng, messages);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&thread[i], NULL, run_thread, &side[i]))
            abort();
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    int good = 1;
    for (int i = 0; i < 2; i++) {
        if (side[i].wrong)
            printf("side %d: %s\n", i, side[i].wrong);
        good &= !side[i].wrong && side[i].received <= side[1 - i].sent;
        if (side[i].killed == UINT64_MAX)
            good &= side[i].received == side[1 - i].sent;
        if (kind == 2)
            good &= side[i].received == messages;
    }
    expect(good, "streams between threads", (long)seed);
    disconnect(side);
    return side[0].received + side[1].received;
}

/* ---- processes */

static void dies(int signal)
{
    (void)signal;
    raise(SIGKILL);
}

/* Open what the parent offers over the socket, stream, and be killed at some time. */
static _Noreturn void be_killed(int fd, uint64_t seed, long microseconds)
{
    const struct itimerval soon = {.it_value = {.tv_usec = microseconds}};
    struct greeting_offer offer;
    struct side side = {.fd = fd, .seed = seed, .messages = UINT64_MAX, .killed = UINT64_MAX};
    if (recv(fd, &offer, sizeof offer, MSG_WAITALL) != sizeof offer || !(side.shared = pici_shared_open(&offer)))
        _exit(1);
    signal(SIGALRM, dies);
    setitimer(ITIMER_REAL, &soon, NULL);
    run_side(&side);
    printf("the killed rank: %s\n", side.wrong ? side.wrong : "has ended");
    _exit(1);
}

/* Two processes, of which one is killed at any time: the other gets a part of what was sent, and the end. */
static void between_processes(struct rng *rng, uint64_t seed)
{
    struct greeting_offer offer;
    int pair[2], made, status;
    const long microseconds = 1 + (long)rng_below(rng, 5000);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        abort();
    fflush(stdout);
    const pid_t child = fork();
    if (child < 0)
        abort();
    if (child == 0) {
        close(pair[0]);
        be_killed(pair[1], 2 * seed + 1, microseconds);
    }
    close(pair[1]);
    struct side side = {.shared = pici_shared_make(&offer, RING_LEAST, &made),
                        .fd = pair[0],
                        .seed = 2 * seed,
                        .messages = UINT64_MAX,
                        .killed = UINT64_MAX};
    if (!side.shared || send(side.fd, &offer, sizeof offer, 0) != sizeof offer)
        abort();
    run_side(&side);
    close(made);
    const int killed = waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (side.wrong)
        printf("the other rank: %s\n", side.wrong);
    expect(killed && !side.wrong, "a rank that is killed", (long)seed);
    pici_shared_free(side.shared);
}

/* ---- what is left */

/* Mappings of such memory. */
static int count_mapped(void)
{
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        count += strstr(line, "/memfd:pici") != NULL;
    if (maps)
        fclose(maps);
    return count;
}

/* ---- a hostile peer */

/* Whatever the peer's numbers are: no more bytes move than there are, or it is noticed. */
static void random_numbers(struct rng *rng)
{
    enum { PLACES = RING_STATE / 4, ROUNDS = 20000, BYTES = 2 * RING_LEAST };
    uint32_t *state = aligned_alloc(RING_STATE, RING_STATE);
    uint8_t *bytes = test_alloc(RING_LEAST), *data = test_alloc(BYTES);
    if (!state)
        abort();
    memset(state, 0, RING_STATE);
    memset(data, 1, BYTES);
    struct ring writer = pici_ring(state, bytes, RING_LEAST), reader = pici_ring(state, bytes, RING_LEAST);
    int noticed = 0;
    for (int i = 0; i < ROUNDS; i++) {
        const struct iovec part = {data, rng_below(rng, BYTES)};
        int wakes = 0;
        if (rng_below(rng, 2)) /* somewhere, or a little further */
            state[rng_below(rng, PLACES)] = (uint32_t)rng_next(rng);
        else
            state[16 * rng_below(rng, 2)] += (uint32_t)rng_below(rng, BYTES);
        const int writes = rng_below(rng, 2) != 0;
        const int64_t moved =
            writes ? pici_ring_write(&writer, &part, 1, &wakes) : pici_ring_read(&reader, &part, 1, &wakes);
        noticed += moved < 0;
        if (moved > (int64_t)part.iov_len)
            expect(0, "more bytes than there are", i);
        if (moved < 0) { /* a transport gives the peer up; here it goes on with an empty ring */
            writer.moved = writer.other = reader.moved = reader.other = state[0] = state[16] = (uint32_t)rng_next(rng);
        }
    }
    expect(noticed > ROUNDS / 10, "numbers that cannot be", noticed);
    free(data);
    free(bytes);
    free(state);
}

static void refused(struct greeting_offer offer, int why, const char *what)
{
    errno = 0;
    struct shared *shared = pici_shared_open(&offer);
    const int error = errno;
    if (error != why)
        printf("%s: %s\n", what, strerror(error));
    expect(!shared && error == why, what, error);
    pici_shared_free(shared);
}

static void offers(void)
{
    struct greeting_offer offer, other;
    int fd, pipes[2];
    struct shared *made = pici_shared_make(&offer, 1 << 14, &fd);
    if (!made)
        abort();
    other = offer;
    other.inode++;
    refused(other, ESTALE, "another file");
    other = offer;
    other.ring_bytes *= 2;
    refused(other, ESTALE, "another size");
    other.ring_bytes = 3 << 12;
    refused(other, EINVAL, "a size that is no power of two");
    other.ring_bytes = UINT32_C(1) << 31;
    refused(other, EINVAL, "a size above all");
    other.ring_bytes = 0;
    refused(other, EINVAL, "no size");
    other = offer;
    other.descriptor = UINT32_MAX;
    refused(other, ENOENT, "no such descriptor");
    other.process = UINT32_MAX;
    refused(other, ENOENT, "no such process");
    other = offer;
    if (pipe(pipes))
        abort();
    other.descriptor = (uint32_t)pipes[0];
    refused(other, ESTALE, "a pipe");
    close(pipes[0]);
    close(pipes[1]);
    const int changes = memfd_create("pici", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct stat status;
    if (changes < 0 || ftruncate(changes, 4096 + 2 * (1 << 14)) || fstat(changes, &status))
        abort();
    other.descriptor = (uint32_t)changes;
    other.inode = status.st_ino;
    other.device = status.st_dev;
    refused(other, EPERM, "memory that may shrink");
    close(changes);
    expect(ftruncate(fd, 0) != 0, "its maker cannot shrink it", errno);
    struct shared *opened = pici_shared_open(&offer);
    expect(opened != NULL, "the right one", errno);
    refused(offer, EBUSY, "what somebody has opened");
    pici_shared_free(opened);
    pici_shared_free(made);
    close(fd);

    struct rlimit usual, low;
    if (getrlimit(RLIMIT_FSIZE, &usual))
        abort();
    low = usual;
    low.rlim_cur = 5000;
    if (setrlimit(RLIMIT_FSIZE, &low))
        abort();
    made = pici_shared_make(&offer, 1 << 14, &fd);
    setrlimit(RLIMIT_FSIZE, &usual);
    expect(!made && fd < 0 && offer.kind == OFFER_NOTHING && offer.process == EFBIG, "no file so long", 0);
}

/* Somebody else's numbers in one member of an offer, none of another process; or other bytes. */
static void spoil(uint8_t bytes[OFFER_BYTES], struct greeting_offer offer, struct rng *rng)
{
    static const uint32_t sizes[] = {0, 1, 3 << 12, 1 << 13, 1 << 24, UINT32_C(1) << 31, UINT32_MAX};
    const uint64_t which = rng_below(rng, 8);
    switch (which) {
    case 0: offer.kind = (enum offer_kind)rng_below(rng, 3); break;
    case 1: offer.descriptor = (uint32_t)rng_below(rng, 40); break;
    case 2: offer.ring_bytes = sizes[rng_below(rng, sizeof sizes / sizeof sizes[0])]; break;
    case 3: offer.inode ^= UINT64_C(1) << rng_below(rng, 64); break;
    case 4: offer.device ^= UINT64_C(1) << rng_below(rng, 64); break;
    case 5: offer.process = rng_below(rng, 2) ? 0 : UINT32_MAX; break;
    case 6: offer.port = offer.connections = (uint32_t)rng_next(rng); break;
    default: break;
    }
    pici_offer_put(bytes, &offer);
    if (which == 7) /* not an offer, or of an unknown kind */
        bytes[rng_below(rng, 12)] ^= (uint8_t)(1 + rng_below(rng, 255));
}

/* A rank whose only peer has sent this, before it asked: what it answers, whether both then share memory. */
static int agree_with(int rank, const uint8_t sent[OFFER_BYTES], size_t sent_bytes, uint8_t answer[OFFER_BYTES])
{
    static const int nodes[2] = {0, 0};
    int ends[2], fds[2] = {-1, -1};
    struct pair pair[2];
    struct pairs pairs = {
        .fds = fds, .node_of = nodes, .rank = rank, .ranks = 2, .timeout_ms = 200, .share = 1, .connections = 1};
    pairs.pair = pair;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        abort();
    fds[!rank] = ends[0];
    if (sent_bytes)
        socket_say(ends[1], sent, sent_bytes);
    const enum pici_status status = pici_pairs(&pairs);
    const int shares = pair[!rank].shared != NULL;
    expect(!pair[rank].shared && !pair[0].stripes && !pair[1].stripes && (!status || !shares), "pairs", status);
    memset(answer, 0, OFFER_BYTES);
    (void)!recv(ends[1], answer, OFFER_BYTES, MSG_DONTWAIT);
    pici_shared_free(pair[!rank].shared);
    close(ends[0]);
    close(ends[1]);
    return shares;
}

/* A peer whose offer or answer is wrong in a place, too short or empty. This rank has a socket, or none. It never keeps
 * anything, and its answer reports that. */
static void hostile_offers(struct rng *rng)
{
    enum { ROUNDS = 400 };
    uint8_t bytes[OFFER_BYTES], answer[OFFER_BYTES];
    struct greeting_offer offer, answered;
    int fd, shared = 0, refused_all = 0;
    const int open = socket_count_open(), mapped = count_mapped();
    for (int i = 0; i < ROUNDS; i++) {
        struct shared *made = pici_shared_make(&offer, RING_LEAST, &fd);
        if (!made)
            abort();
        pici_offer_put(bytes, &offer);
        const int good = i % 8 == 0;
        if (!good)
            spoil(bytes, offer, rng);
        const int shares = agree_with(1, bytes, OFFER_BYTES, answer);
        const int says = !pici_offer_get(&answered, answer) && answered.kind == OFFER_MEMORY;
        expect(shares == says, "an answer says whether memory is shared", i);
        if (good)
            expect(shares, "what is right is taken", i);
        shared += shares;
        refused_all += !shares;
        /* as the answer of a peer: any offer of memory means that it was taken */
        (void)agree_with(0, bytes, OFFER_BYTES, answer);
        pici_shared_free(made);
        close(fd);
    }
    for (int rank = 0; rank < 2; rank++)
        for (size_t sent = 0; sent < OFFER_BYTES; sent += OFFER_BYTES / 2)
            expect(!agree_with(rank, bytes, sent, answer), "an offer that does not come whole", (long)sent);
    expect(shared >= ROUNDS / 8 && refused_all > ROUNDS / 4, "offers that were refused", refused_all);
    expect(socket_count_open() == open, "descriptors after offers", socket_count_open() - open);
    expect(count_mapped() == mapped, "memory after offers", count_mapped() - mapped);
}

/* A peer that wakes without end keeps this rank busy for some reads at a time only. */
static void many_wakes(void)
{
    struct side side[2];
    char bytes[4096] = {0};
    int left = 0, ended;
    connect_sides(side, 0, 0);
    for (int i = 0; i < 8; i++)
        socket_say(side[1].fd, bytes, sizeof bytes);
    pici_shared_hear(side[0].shared, side[0].fd);
    expect(!ioctl(side[0].fd, FIONREAD, &left) && left > 0 && left < 8 * (int)sizeof bytes, "wake-ups that are left",
           left);
    shutdown(side[1].fd, SHUT_RDWR);
    const struct iovec part = {bytes, sizeof bytes};
    for (ended = 0; ended < 10000 && pici_shared_recv(side[0].shared, side[0].fd, &part, 1) != 0;)
        ended++;
    expect(ended > 1 && ended < 10000, "the end behind wake-ups", ended);
    close(side[0].fd);
    close(side[1].fd);
    disconnect(side);
}

/* A rank that only sends notices that its peer is gone, without waiting. */
static void lonely_sender(void)
{
    struct side side[2];
    char bytes[4096] = {0};
    const struct iovec part = {bytes, sizeof bytes};
    int calls = 0;
    connect_sides(side, 0, 0);
    while (pici_shared_send(side[0].shared, side[0].fd, &part, 1) > 0)
        ;
    expect(errno == EAGAIN, "a full ring", errno);
    close(side[1].fd);
    while (pici_shared_send(side[0].shared, side[0].fd, &part, 1) < 0 && errno == EAGAIN && calls < 10000)
        calls++;
    expect(errno == EPIPE && calls < 10000, "a sender whose peer is gone", calls);
    close(side[0].fd);
    disconnect(side);
}

static void sizes(void)
{
    for (int ranks = 2; ranks < 2000; ranks++) {
        const uint32_t bytes = pici_shared_ring_bytes(ranks);
        const uint64_t all = (uint64_t)bytes * (uint64_t)ranks * (uint64_t)(ranks - 1);
        if (bytes < RING_LEAST || bytes & (bytes - 1) || (bytes > RING_LEAST && all > UINT64_C(1) << 26))
            expect(0, "bytes of a ring", ranks);
    }
    expect(pici_shared_ring_bytes(4) >= 1 << 17, "bytes of a ring of 4", 4);
}

/* ---- more connections */

/* Ranks of one host are threads here, so both ends of a connection are open. */
static void several_connections(const char *shared, const char *ports, int more)
{
    enum { P = 4, PAIRS = P * (P - 1) / 2 };
    struct socket_team t;
    char address[32];
    struct rng rng = {1};
    const int before = socket_count_open();
    setenv("PICI_SOCKET_SHARED", shared, 1);
    setenv("PICI_SOCKET_STREAMS", "3", 1);
    if (ports)
        setenv("PICI_SOCKET_PORTS", ports, 1);
    snprintf(address, sizeof address, "127.0.0.1:%d", socket_port(0));
    socket_team_init(&t, P);
    t.address = address;
    t.token = "a token";
    socket_team_make(&t);
    expect(socket_team_all(&t, PICI_OK, ""), "several connections", P);
    const int opened = socket_count_open() - before;
    expect(opened == 2 * PAIRS * (1 + more), "their number", opened);
    struct coll_team team = {.p = P};
    memcpy(team.comm, t.comm, sizeof team.comm);
    for (int i = 0; i < 4; i++) {
        struct coll_case c = {.collective = PICI_ALL_REDUCE,
                              .dtype = PICI_F32,
                              .op = PICI_SUM,
                              .count = i ? 300000 : 7,
                              .opts.algorithm = PICI_ALGO_RING};
        coll_case_options(&c, &rng, P);
        const char *wrong = coll_team_check(&team, &c);
        if (wrong)
            printf("%s\n", wrong);
        expect(!wrong, "a collective over several connections", i);
    }
    socket_team_free(&t);
    expect(socket_count_open() == before, "connections that are left", socket_count_open() - before);
    unsetenv("PICI_SOCKET_PORTS");
    unsetenv("PICI_SOCKET_STREAMS");
    unsetenv("PICI_SOCKET_SHARED");
}

/* Too few descriptors for all of them: ranks use what there is, and each pair at least one. */
static void few_descriptors(void)
{
    enum { P = 4, PAIRS = P * (P - 1) / 2, BEFORE = 30 /* that a rendezvous needs */, ALL = 60 };
    struct rlimit limit, usual;
    struct rng rng = {2};
    char address[32];
    int between = 0;
    if (getrlimit(RLIMIT_NOFILE, &usual))
        abort();
    setenv("PICI_SOCKET_SHARED", "0", 1);
    setenv("PICI_SOCKET_STREAMS", "3", 1);
    for (int most = BEFORE; most <= ALL; most += 2) {
        struct socket_team t;
        const int before = socket_count_open();
        snprintf(address, sizeof address, "127.0.0.1:%d", socket_port(0));
        socket_team_init(&t, P);
        t.address = address;
        t.token = "a token";
        limit = usual;
        limit.rlim_cur = (rlim_t)(before + most);
        if (setrlimit(RLIMIT_NOFILE, &limit))
            abort();
        socket_team_make(&t);
        setrlimit(RLIMIT_NOFILE, &usual);
        expect(socket_team_all(&t, PICI_OK, ""), "descriptors", most);
        const int opened = socket_count_open() - before;
        between += opened > 2 * PAIRS && opened < 6 * PAIRS;
        expect(opened >= 2 * PAIRS && (most < ALL || opened == 6 * PAIRS), "connections", opened);
        struct coll_team team = {.p = P};
        struct coll_case c = {.collective = PICI_ALL_REDUCE, .dtype = PICI_F32, .op = PICI_SUM, .count = 70000};
        memcpy(team.comm, t.comm, sizeof team.comm);
        coll_case_options(&c, &rng, P);
        const char *wrong = coll_team_check(&team, &c);
        expect(!wrong, wrong ? wrong : "a collective with few descriptors", most);
        socket_team_free(&t);
        expect(socket_count_open() == before, "descriptors that are left", socket_count_open() - before);
    }
    expect(between > 0, "ranks that had descriptors for some connections", between);
    unsetenv("PICI_SOCKET_STREAMS");
    unsetenv("PICI_SOCKET_SHARED");
}

static int listen_here(struct sockaddr_in *here, int backlog)
{
    socklen_t bytes = sizeof *here;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *here = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0 || bind(fd, (struct sockaddr *)here, sizeof *here) || listen(fd, backlog) ||
        getsockname(fd, (struct sockaddr *)here, &bytes))
        abort();
    return fd;
}

static int connect_here(const struct sockaddr_in *there, int flags)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    if (fd < 0 || (connect(fd, (const struct sockaddr *)there, sizeof *there) && errno != EINPROGRESS))
        abort();
    return fd;
}

/* Connect until the listener's queue is full, so that the system ignores more attempts. Returns 0 if it never does. */
static int fill_queue(const struct sockaddr_in *there, int fds[], int most)
{
    for (int i = 0; i < most; i++) {
        fds[i] = connect_here(there, SOCK_NONBLOCK);
        struct pollfd entry = {.fd = fds[i], .events = POLLOUT};
        if (poll(&entry, 1, 200) == 0)
            return i + 1;
    }
    return 0;
}

/* A rank agrees on two connections with a peer, which has sent these messages. Returns whether it has both, and what
 * it answered last. Whatever happens, the first connection stays open. */
static int agree_on_two(int rank, const struct greeting_offer *sent, int count, struct greeting_offer *answered)
{
    static const int nodes[2] = {0, 1};
    struct sockaddr_in here;
    int fds[2] = {-1, -1}, open = socket_count_open();
    struct pair pair[2];
    struct pairs pairs = {.fds = fds, .node_of = nodes, .rank = rank, .ranks = 2, .timeout_ms = 6000, .connections = 2};
    uint8_t bytes[OFFER_BYTES];
    const int listener = listen_here(&here, 1), peer = connect_here(&here, 0);
    fds[!rank] = accept(listener, NULL, NULL);
    for (int i = 0; i < count; i++) {
        pici_offer_put(bytes, &sent[i]);
        socket_say(peer, bytes, sizeof bytes);
    }
    pairs.pair = pair;
    expect(!pici_pairs(&pairs), "two connections", rank);
    const int both = pair[!rank].stripes != NULL;
    while (recv(peer, bytes, sizeof bytes, MSG_DONTWAIT) == (ssize_t)sizeof bytes)
        expect(!pici_offer_get(answered, bytes), "an answer", rank);
    expect(errno == EAGAIN && send(fds[!rank], "", 1, MSG_NOSIGNAL) == 1, "the first connection is open", errno);
    pici_stripes_free(pair[!rank].stripes);
    close(listener);
    close(peer);
    close(fds[!rank]);
    expect(socket_count_open() == open, "descriptors of two connections", socket_count_open() - open);
    return both;
}

/* Additional connections that a firewall drops, that never come, or that the peer could not accept. */
static void missing_connections(void)
{
    enum { MOST = 64 };
    struct sockaddr_in here, full;
    int queue[MOST];
    const int listener = listen_here(&here, 8), deaf = listen_here(&full, 0), queued = fill_queue(&full, queue, MOST);
    const struct greeting_offer yes = {.kind = OFFER_CONNECTIONS, .connections = 2},
                                no = {.kind = OFFER_NOTHING, .process = EMFILE};
    struct greeting_offer offer = yes, answer = {0};
    offer.port = ntohs(here.sin_port);
    expect(agree_on_two(1, (struct greeting_offer[]){offer, yes}, 2, &answer), "two connections", 1);
    expect(!agree_on_two(1, (struct greeting_offer[]){offer, no}, 2, &answer), "it accepted too few", 1);
    expect(answer.kind == OFFER_CONNECTIONS, "they were made", answer.kind);
    offer.port = ntohs(full.sin_port);
    expect(queued && !agree_on_two(1, &offer, 1, &answer), "a port that a firewall drops", queued);
    expect(answer.kind == OFFER_NOTHING && answer.process == ETIMEDOUT, "it was not made", answer.process);
    expect(!agree_on_two(0, &yes, 1, &answer), "it never comes", 0);
    expect(answer.kind == OFFER_NOTHING && answer.process == ETIMEDOUT, "it did not come", answer.process);
    close(listener);
    close(deaf);
    for (int i = 0; i < queued; i++)
        close(queue[i]);
}

int main(void)
{
    struct rng rng = {1};
    enum { ROUND = 20000, KILLED = 40, ALL_KILLED = 2000 };
    const uint64_t messages = test_full() ? ALL_MESSAGES : MESSAGES;
    uint64_t received = 0;
    alarm(WATCHDOG_S); /* whoever hangs */
    const int open = socket_count_open();
    for (int i = 0; i < (test_full() ? ALL_KILLED : KILLED); i++)
        between_processes(&rng, (uint64_t)i);
    for (uint64_t seed = 1; received < messages; seed++)
        received += between_threads(ROUND, &rng, seed);
    random_numbers(&rng);
    offers();
    hostile_offers(&rng);
    many_wakes();
    lonely_sender();
    sizes();
    char ports[32];
    const int low = socket_port(0);
    snprintf(ports, sizeof ports, "%d-%d", low, low + 40);
    several_connections("0", NULL, 2);
    several_connections("0", ports, 2);
    several_connections("1", NULL, 0); /* shared memory is better */
    few_descriptors();
    missing_connections();
    expect(socket_count_open() == open, "descriptors that are left", socket_count_open() - open);
    expect(count_mapped() == 0, "memory that is left", count_mapped());
    return tally_end();
}
