/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Communicators over connected sockets. The ranks greet each other, make their communicators, and tell each other their
 * status. So all return the same status, with the error message of the same rank. */
#define _POSIX_C_SOURCE 200809L
#include "pici/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coll/settings.h"
#include "transport/greeting.h"
#include "transport/meet.h"
#include "transport/pairs.h"
#include "transport/secure.h"
#include "transport/socket.h"

enum {
    GRACE_MS = 2000, /* time that the other ranks have after one has failed */
    BOOT_BYTES = 36, /* of a boot id */
    SLICE = 262144   /* bytes of a slice on one node */
};
static const double GIGABIT = 1.25e8; /* bytes per second */

/* A key that is equal on ranks of one node. Its first half is the boot id, which differs even between hosts that have
 * the same image or name. Without one (another system, no /proc), the host's name replaces it. The second half is the
 * inode of the network namespace. Two namespaces of a host are like two hosts, whose link may be slow: containers have
 * one each, and simulated networks consist of them. */
static void find_host(char host[GREETING_HOST])
{
    struct stat net;
    char boot[BOOT_BYTES] = "";
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    const int known = fd >= 0 && read(fd, boot, sizeof boot) == (ssize_t)sizeof boot;
    if (fd >= 0)
        close(fd);
    memset(host, 0, GREETING_HOST);
    if (!known && gethostname(boot, sizeof boot - 1))
        snprintf(boot, sizeof boot, "?");
    if (stat("/proc/self/ns/net", &net))
        net.st_ino = 0;
    snprintf(host, GREETING_HOST, "%.*s %llx", (int)sizeof boot, boot, (unsigned long long)net.st_ino);
}

/* One rank's view of all while its communicator is made. */
struct circle {
    int rank, ranks, timeout_ms;
    uint64_t slice_bytes;             /* 0: not set */
    int assume_gigabit;               /* no setting gives the network's speed */
    int share, connections, ports[2]; /* as struct pairs has them */
    struct pair *pair;                /* [ranks] */
    int *fds;                         /* [ranks] -1: none, or unusable */
    int *node_of;                     /* [ranks] */
    struct meet_side *sides;          /* [ranks] */
    struct greeting *greetings;
    uint8_t *outgoing, *incoming; /* [ranks * VERDICT_BYTES], more than a greeting needs */
    struct greeting_verdict own;  /* the error of the greatest weight that this rank has found */
};

/* How likely an error is the cause of others. An error in a rank's own arguments or memory is a cause; a closed socket
 * or a silent peer may be its effect. */
static int weight(enum pici_status status)
{
    switch (status) {
    case PICI_OK: return 0;
    case PICI_E_TIMEOUT: return 1;
    case PICI_E_TRANSPORT: return 2;
    case PICI_E_PEER: return 3;
    default: return 4;
    }
}

/* Note an error. Among errors of equal weight, keep the first. */
static void find_fault(struct circle *circle, enum pici_status status, const char *explanation)
{
    if (weight(status) <= weight(circle->own.status))
        return;
    circle->own.status = status;
    snprintf(circle->own.text, sizeof circle->own.text, "%.*s", (int)sizeof circle->own.text - 1, explanation);
}

static int is_stream(int fd)
{
    int type = 0;
    socklen_t size = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

/* Check a socket from the caller. Returns PICI_OK, or a status with an explanation. */
static enum pici_status look_at_socket(const int *fds, int i, int rank, int ranks, char *explanation, size_t bytes)
{
    if (!is_stream(fds[i])) {
        snprintf(explanation, bytes, "fds[%d] (%d) is not a stream socket", i, fds[i]);
        return PICI_E_ARG;
    }
    for (int k = i + 1; k < ranks; k++)
        if (k != rank && fds[k] == fds[i]) {
            snprintf(explanation, bytes, "fds[%d] and fds[%d] are the same socket", i, k);
            return PICI_E_ARG;
        }
    return PICI_OK;
}

/* Send this rank's greeting to all ranks, and receive theirs. */
static enum pici_status greet(struct circle *circle, char host[GREETING_HOST])
{
    char explanation[VERDICT_TEXT];
    for (int i = 0; i < circle->ranks; i++) {
        struct greeting greeting = pici_greeting(GREETING_MEET, circle->rank, circle->ranks, i);
        uint8_t *output = circle->outgoing + (size_t)i * VERDICT_BYTES,
                *in = circle->incoming + (size_t)i * VERDICT_BYTES;
        memcpy(greeting.host, host, sizeof greeting.host);
        pici_greeting_put(output, &greeting);
        circle->sides[i] = (struct meet_side){.fd = circle->fds[i],
                                              .outgoing = output,
                                              .incoming = in,
                                              .out_bytes = GREETING_BYTES,
                                              .in_bytes = GREETING_BYTES};
    }
    const enum pici_status status =
        pici_meet(circle->sides, circle->ranks, pici_meet_deadline(circle->timeout_ms), GRACE_MS);
    if (status)
        return status;
    for (int i = 0; i < circle->ranks; i++) {
        const struct meet_side *side = &circle->sides[i];
        const struct greeting own = pici_greeting(GREETING_MEET, circle->rank, circle->ranks, i);
        if (circle->fds[i] < 0)
            continue;
        if (side->status)
            continue;
        if (pici_greeting_get(&circle->greetings[i], side->incoming)) {
            snprintf(explanation, sizeof explanation, "the peer on the socket for rank %d is not a pici rank", i);
            find_fault(circle, PICI_E_PEER, explanation);
        } else if (pici_greeting_wrong(&circle->greetings[i], &own, i, explanation, sizeof explanation))
            find_fault(circle, PICI_E_PEER, explanation);
    }
    for (int i = 0; i < circle->ranks; i++) { /* last: an error found above may be the cause */
        const struct meet_side *side = &circle->sides[i];
        if (!side->status)
            continue;
        if (side->status == PICI_E_PEER)
            snprintf(explanation, sizeof explanation, "rank %d closed its connection before its greeting", i);
        else if (side->status == PICI_E_TIMEOUT)
            snprintf(explanation, sizeof explanation, "timed out waiting for the greeting of rank %d", i);
        else
            snprintf(explanation, sizeof explanation, "the socket for rank %d: %s", i, strerror(side->error));
        find_fault(circle, side->status, explanation);
    }
    return PICI_OK;
}

/* The number of a node is the lowest rank on it. */
static void find_nodes(struct circle *circle, const char host[GREETING_HOST])
{
    memcpy(circle->greetings[circle->rank].host, host, GREETING_HOST);
    for (int i = 0; i < circle->ranks; i++) {
        int k = 0;
        while (memcmp(circle->greetings[k].host, circle->greetings[i].host, GREETING_HOST) != 0)
            k++;
        circle->node_of[i] = k;
    }
}

/* Exchange with all ranks whether they can go on. The verdict is the error of the greatest weight, of the lowest rank
 * that has it. This rank sends its verdict to ranks that did not greet, too, but does not read theirs. */
static enum pici_status judge(struct circle *circle)
{
    char explanation[VERDICT_TEXT];
    struct greeting_verdict worst = circle->own;
    for (int i = 0; i < circle->ranks; i++) {
        struct meet_side *side = &circle->sides[i];
        const int deaf = side->status != PICI_OK || circle->greetings[i].version != GREETING_VERSION;
        uint8_t *output = circle->outgoing + (size_t)i * VERDICT_BYTES,
                *in = circle->incoming + (size_t)i * VERDICT_BYTES;
        pici_verdict_put(output, &circle->own);
        *side = (struct meet_side){.fd = circle->fds[i],
                                   .outgoing = output,
                                   .incoming = in,
                                   .out_bytes = VERDICT_BYTES,
                                   .in_bytes = deaf ? 0 : VERDICT_BYTES};
    }
    const enum pici_status status =
        pici_meet(circle->sides, circle->ranks, pici_meet_deadline(circle->timeout_ms), GRACE_MS);
    if (status)
        return status;
    for (int i = 0; i < circle->ranks; i++) {
        const struct meet_side *side = &circle->sides[i];
        struct greeting_verdict verdict;
        if (circle->fds[i] < 0 || !side->in_bytes)
            continue;
        verdict.rank = (uint32_t)circle->rank;
        if (side->status || pici_verdict_get(&verdict, side->incoming)) {
            snprintf(explanation, sizeof explanation,
                     side->status == PICI_E_PEER
                         ? "rank %d closed its connection before it had created its communicator"
                         : "timed out waiting for rank %d to create its communicator",
                     i);
            verdict = (struct greeting_verdict){.status = side->status ? side->status : PICI_E_CORRUPT,
                                                .rank = (uint32_t)circle->rank};
            memcpy(verdict.text, explanation, sizeof verdict.text);
        }
        if (weight(verdict.status) > weight(worst.status) ||
            (verdict.status && weight(verdict.status) == weight(worst.status) && verdict.rank < worst.rank))
            worst = verdict;
    }
    circle->own = worst;
    return PICI_OK;
}

static void circle_free(struct circle *circle)
{
    free(circle->fds);
    free(circle->node_of);
    free(circle->sides);
    free(circle->greetings);
    free(circle->outgoing);
    free(circle->incoming);
    free(circle->pair);
}

static int circle_init(struct circle *circle, int rank, int ranks)
{
    const size_t count = (size_t)ranks;
    *circle = (struct circle){.rank = rank, .ranks = ranks, .own.rank = (uint32_t)rank};
    circle->fds = malloc(count * sizeof *circle->fds);
    circle->node_of = calloc(count, sizeof *circle->node_of);
    circle->sides = calloc(count, sizeof *circle->sides);
    circle->greetings = calloc(count, sizeof *circle->greetings);
    circle->outgoing = calloc(count, VERDICT_BYTES);
    circle->incoming = calloc(count, VERDICT_BYTES);
    circle->pair = calloc(count, sizeof *circle->pair);
    if (circle->fds && circle->node_of && circle->sides && circle->greetings && circle->outgoing && circle->incoming &&
        circle->pair)
        return 1;
    circle_free(circle);
    return 0;
}

/* Close the sockets, but not other files that the caller passed by mistake. */
static void close_all(const int *fds, int rank, int ranks)
{
    for (int i = 0; i < ranks; i++)
        if (i != rank && is_stream(fds[i]))
            pici_secure_close(fds[i]);
}

/* If all ranks share a node, messages go from cache to cache, so slices have the length of a cache, unless the
 * environment sets another. All ranks have the same node map, so they agree. If nothing gives the network's speed,
 * assume Gigabit Ethernet, over which packing messages pays. */
static void tune(const struct circle *circle, struct pici_comm *comm)
{
    struct pici_tune tuned = PICI_TUNE_INIT;
    int one = circle->slice_bytes == 0;
    for (int i = 0; i < circle->ranks; i++)
        one &= circle->node_of[i] == 0;
    if (one)
        tuned.slice_bytes = SLICE;
    if (circle->assume_gigabit)
        tuned.inter_bandwidth = GIGABIT;
    /* cannot fail: the communicator is new */
    (void)pici_comm_tune(comm, &tuned);
}

/* All ranks have a communicator: now each pair of ranks chooses the carrier of its messages. Getting less than
 * requested is no error; one line per process reports it. */
static void pair_up(const struct circle *circle, const struct pici_transport *transport)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    struct pairs pairs = {.fds = circle->fds,
                          .node_of = circle->node_of,
                          .rank = circle->rank,
                          .ranks = circle->ranks,
                          .timeout_ms = circle->timeout_ms,
                          .share = circle->share,
                          .connections = circle->connections,
                          .ports = {circle->ports[0], circle->ports[1]},
                          .pair = circle->pair};
    /* without memory, the transport finds the sockets shut down */
    if (pici_pairs(&pairs) == PICI_OK)
        for (int i = 0; i < circle->ranks; i++)
            pici_transport_sockets_pair(transport, i, &circle->pair[i]);
    if (pairs.failures && !atomic_flag_test_and_set(&said))
        fprintf(stderr, "pici: rank %d %s%s: messages go over one socket\n", circle->rank, pairs.explanation,
                pairs.failures > 1 ? ", and likewise with others" : "");
}

/* All ranks take part in the same rounds, even after errors. */
static enum pici_status make(struct pici_comm **output, struct circle *circle)
{
    struct pici_transport transport;
    char host[GREETING_HOST];
    int kept = 0;
    find_host(host);
    enum pici_status status = greet(circle, host);
    if (!status && !circle->own.status) {
        find_nodes(circle, host);
        status = pici_transport_sockets(&transport, circle->fds, circle->node_of, circle->rank, circle->ranks);
        if (!status) {
            kept = 1; /* if this fails, the ranks still need the sockets for the verdict */
            pici_transport_sockets_keep(&transport, 1);
            status = pici_comm_transport(output, &transport);
            if (status)
                find_fault(circle, status, pici_comm_error(NULL));
            else
                tune(circle, *output);
            status = PICI_OK;
        }
    }
    if (status)
        find_fault(circle, status, "no memory for a communicator");
    status = judge(circle);
    if (status)
        find_fault(circle, status, "no memory for a communicator");
    if (kept)
        pici_transport_sockets_keep(&transport, 0);
    if (!circle->own.status) {
        pair_up(circle, &transport);
        return PICI_OK;
    }
    if (*output)
        pici_comm_free(*output);
    else if (kept)
        transport.close(transport.context);
    else
        close_all(circle->fds, circle->rank, circle->ranks);
    *output = NULL;
    return circle->own.status;
}

enum pici_status pici_comm_sockets(struct pici_comm **output, const int *fds, int rank, int ranks)
{
    struct coll_settings settings;
    struct circle circle;
    char explanation[VERDICT_TEXT + 32];
    if (output)
        *output = NULL;
    if (!output || !fds || ranks < 1 || ranks > COLL_MAX_RANKS || rank < 0 || rank >= ranks) {
        snprintf(explanation, sizeof explanation, "rank %d out of range (world size %d)", rank, ranks);
        if (!output)
            snprintf(explanation, sizeof explanation, "the pointer to the new communicator is NULL");
        else if (!fds)
            snprintf(explanation, sizeof explanation, "no sockets");
        pici_comm_failed(explanation);
        if (fds && ranks >= 1 && ranks <= COLL_MAX_RANKS)
            close_all(fds, rank, ranks);
        return PICI_E_ARG;
    }
    if (!circle_init(&circle, rank, ranks)) {
        snprintf(explanation, sizeof explanation, "no memory for %d ranks", ranks);
        pici_comm_failed(explanation);
        close_all(fds, rank, ranks);
        return PICI_E_NOMEM;
    }
    circle.timeout_ms = 60000; /* until the settings are known */
    if (pici_settings_read(&settings, explanation, sizeof explanation))
        find_fault(&circle, PICI_E_ARG, explanation);
    else {
        circle.timeout_ms = settings.timeout_ms;
        circle.slice_bytes = settings.slice_bytes;
        circle.share = settings.shared;
        circle.connections = settings.connections;
        memcpy(circle.ports, settings.ports, sizeof circle.ports);
        circle.assume_gigabit = !(settings.known >> POLICY_INTER & 1) && !(settings.tune && settings.tune[0]);
    }
    for (int i = 0; i < ranks; i++) {
        const enum pici_status status =
            i == rank ? PICI_E_ARG : look_at_socket(fds, i, rank, ranks, explanation, sizeof explanation);
        circle.fds[i] = status ? -1 : fds[i];
        if (!status && pici_secure_of(fds[i])) /* the additional connections would not be encrypted */
            circle.connections = 1;
        if (status && i != rank)
            find_fault(&circle, status, explanation);
    }
    const enum pici_status status = make(output, &circle);
    if (status) {
        snprintf(explanation, sizeof explanation, "rank %lu: %s", (unsigned long)circle.own.rank, circle.own.text);
        pici_comm_failed(explanation);
    }
    circle_free(&circle);
    return status;
}
