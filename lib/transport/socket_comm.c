/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Communicators over sockets that are connected: the ranks greet each other, make their communicators, and tell each
 * other whether that went well. So all return the same status, with the words of the same rank. */
#define _POSIX_C_SOURCE 200809L
#include "pici/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coll/settings.h"
#include "transport/greeting.h"
#include "transport/meet.h"
#include "transport/socket.h"

enum {
    GRACE_MS = 2000, /* that the others have, once one of them has failed */
    BOOT_BYTES = 36, /* of a boot's id */
    SLICE = 262144   /* bytes of a slice on one node */
};

/* What is the same on ranks of one node. The id of this boot tells hosts apart, also those that were copied from one
 * image, or have the same name. Two network namespaces of a host reach each other over a link like two hosts, which may
 * be slow: simulated networks are made of them, and containers have one each. So its inode is the other half. Where
 * there is no boot id (another system, no /proc), the host's name takes its place. */
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
    uint64_t slice_bytes;    /* 0: nobody has set it */
    int *fds;                /* [ranks] -1: there is nobody, or it cannot be used */
    int *node_of;            /* [ranks] */
    struct meet_side *sides; /* [ranks] */
    struct greeting *greetings;
    uint8_t *out, *in;           /* [ranks * VERDICT_BYTES], which is more than a greeting has */
    struct greeting_verdict own; /* the weightiest that this rank has found */
};

/* How likely a failure is the cause of others: what a rank found in its own arguments and memory is; that another rank
 * has closed its socket, or says nothing, may follow from it. */
static int weight(enum pici_status s)
{
    return s == PICI_OK ? 0 : s == PICI_E_TIMEOUT ? 1 : s == PICI_E_TRANSPORT ? 2 : s == PICI_E_PEER ? 3 : 4;
}

/* Note what is wrong. Of findings that weigh the same the first stays. */
static void find_fault(struct circle *c, enum pici_status s, const char *words)
{
    if (weight(s) <= weight(c->own.status))
        return;
    c->own.status = s;
    snprintf(c->own.words, sizeof c->own.words, "%.*s", (int)sizeof c->own.words - 1, words);
}

static int is_stream(int fd)
{
    int type = 0;
    socklen_t len = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_STREAM;
}

/* What is wrong with a socket that the caller gave: a status and words, or PICI_OK. */
static enum pici_status look_at_socket(const int *fds, int i, int rank, int ranks, char *words, size_t bytes)
{
    if (!is_stream(fds[i])) {
        snprintf(words, bytes, "fds[%d] (%d) is not a stream socket", i, fds[i]);
        return PICI_E_ARG;
    }
    for (int k = i + 1; k < ranks; k++)
        if (k != rank && fds[k] == fds[i]) {
            snprintf(words, bytes, "fds[%d] and fds[%d] are the same socket", i, k);
            return PICI_E_ARG;
        }
    return PICI_OK;
}

/* Tell everyone who this rank is, and hear who they are. */
static enum pici_status greet(struct circle *c, char host[GREETING_HOST])
{
    char words[VERDICT_WORDS];
    for (int i = 0; i < c->ranks; i++) {
        struct greeting g = pici_greeting(GREETING_MEET, c->rank, c->ranks, i);
        uint8_t *out = c->out + (size_t)i * VERDICT_BYTES, *in = c->in + (size_t)i * VERDICT_BYTES;
        memcpy(g.host, host, sizeof g.host);
        pici_greeting_put(out, &g);
        c->sides[i] = (struct meet_side){
            .fd = c->fds[i], .out = out, .in = in, .out_bytes = GREETING_BYTES, .in_bytes = GREETING_BYTES};
    }
    const enum pici_status s = pici_meet(c->sides, c->ranks, pici_meet_deadline(c->timeout_ms), GRACE_MS);
    if (s)
        return s;
    for (int i = 0; i < c->ranks; i++) {
        const struct meet_side *side = &c->sides[i];
        const struct greeting own = pici_greeting(GREETING_MEET, c->rank, c->ranks, i);
        if (c->fds[i] < 0)
            continue;
        if (side->status)
            continue;
        if (pici_greeting_get(&c->greetings[i], side->in)) {
            snprintf(words, sizeof words, "the socket for rank %d leads to something that is no rank", i);
            find_fault(c, PICI_E_PEER, words);
        } else if (pici_greeting_wrong(&c->greetings[i], &own, i, words, sizeof words))
            find_fault(c, PICI_E_PEER, words);
    }
    for (int i = 0; i < c->ranks; i++) { /* after the others, since what these found may be the cause */
        const struct meet_side *side = &c->sides[i];
        if (!side->status)
            continue;
        if (side->status == PICI_E_PEER)
            snprintf(words, sizeof words, "rank %d closed its connection before it said who it is", i);
        else if (side->status == PICI_E_TIMEOUT)
            snprintf(words, sizeof words, "rank %d did not say who it is", i);
        else
            snprintf(words, sizeof words, "the socket for rank %d: %s", i, strerror(side->error));
        find_fault(c, side->status, words);
    }
    return PICI_OK;
}

/* The number of a node is the lowest rank on it. */
static void find_nodes(struct circle *c, const char host[GREETING_HOST])
{
    memcpy(c->greetings[c->rank].host, host, GREETING_HOST);
    for (int i = 0; i < c->ranks; i++) {
        int k = 0;
        while (memcmp(c->greetings[k].host, c->greetings[i].host, GREETING_HOST) != 0)
            k++;
        c->node_of[i] = k;
    }
}

/* Tell everyone whether this rank can go on, and hear whether they can. The verdict becomes the weightiest of all; of
 * those that weigh the same, that of the lowest rank. Ranks that did not greet are told, but not listened to. */
static enum pici_status judge(struct circle *c)
{
    char words[VERDICT_WORDS];
    struct greeting_verdict worst = c->own;
    for (int i = 0; i < c->ranks; i++) {
        struct meet_side *side = &c->sides[i];
        const int deaf = side->status != PICI_OK || c->greetings[i].version != GREETING_VERSION;
        uint8_t *out = c->out + (size_t)i * VERDICT_BYTES, *in = c->in + (size_t)i * VERDICT_BYTES;
        pici_verdict_put(out, &c->own);
        *side = (struct meet_side){
            .fd = c->fds[i], .out = out, .in = in, .out_bytes = VERDICT_BYTES, .in_bytes = deaf ? 0 : VERDICT_BYTES};
    }
    const enum pici_status s = pici_meet(c->sides, c->ranks, pici_meet_deadline(c->timeout_ms), GRACE_MS);
    if (s)
        return s;
    for (int i = 0; i < c->ranks; i++) {
        const struct meet_side *side = &c->sides[i];
        struct greeting_verdict v;
        if (c->fds[i] < 0 || !side->in_bytes)
            continue;
        v.rank = (uint32_t)c->rank;
        if (side->status || pici_verdict_get(&v, side->in)) {
            snprintf(words, sizeof words,
                     side->status == PICI_E_PEER ? "rank %d closed its connection before the communicator was made"
                                                 : "rank %d did not say whether its communicator is made",
                     i);
            v = (struct greeting_verdict){.status = side->status ? side->status : PICI_E_CORRUPT,
                                          .rank = (uint32_t)c->rank};
            memcpy(v.words, words, sizeof v.words);
        }
        if (weight(v.status) > weight(worst.status) ||
            (v.status && weight(v.status) == weight(worst.status) && v.rank < worst.rank))
            worst = v;
    }
    c->own = worst;
    return PICI_OK;
}

static void circle_free(struct circle *c)
{
    free(c->fds);
    free(c->node_of);
    free(c->sides);
    free(c->greetings);
    free(c->out);
    free(c->in);
}

static int circle_init(struct circle *c, int rank, int ranks)
{
    const size_t n = (size_t)ranks;
    *c = (struct circle){.rank = rank, .ranks = ranks, .own.rank = (uint32_t)rank};
    c->fds = malloc(n * sizeof *c->fds);
    c->node_of = calloc(n, sizeof *c->node_of);
    c->sides = calloc(n, sizeof *c->sides);
    c->greetings = calloc(n, sizeof *c->greetings);
    c->out = calloc(n, VERDICT_BYTES);
    c->in = calloc(n, VERDICT_BYTES);
    if (c->fds && c->node_of && c->sides && c->greetings && c->out && c->in)
        return 1;
    circle_free(c);
    return 0;
}

/* Close the sockets, but no file that the caller took for one. */
static void close_all(const int *fds, int rank, int ranks)
{
    for (int i = 0; i < ranks; i++)
        if (i != rank && is_stream(fds[i]))
            close(fds[i]);
}

/* Where all ranks share a node, messages are copied from cache to cache: then slices are as long as caches are, unless
 * the environment says otherwise. All ranks have the same node map. */
static void tune(const struct circle *c, struct pici_comm *comm)
{
    struct pici_tune t = PICI_TUNE_INIT;
    int one = c->slice_bytes == 0;
    for (int i = 0; i < c->ranks; i++)
        one &= c->node_of[i] == 0;
    t.slice_bytes = SLICE;
    if (one)
        (void)pici_comm_tune(comm, &t); /* cannot fail: the communicator is new */
}

/* All ranks go through the same rounds, whatever they find. */
static enum pici_status make(struct pici_comm **out, struct circle *c)
{
    struct pici_transport t;
    char host[GREETING_HOST];
    int kept = 0;
    find_host(host);
    enum pici_status s = greet(c, host);
    if (!s && !c->own.status) {
        find_nodes(c, host);
        s = pici_transport_sockets(&t, c->fds, c->node_of, c->rank, c->ranks);
        if (!s) {
            kept = 1; /* if this fails, the verdict still needs the sockets */
            pici_transport_sockets_keep(&t, 1);
            s = pici_comm_transport(out, &t);
            if (s)
                find_fault(c, s, pici_comm_error(NULL));
            else
                tune(c, *out);
            s = PICI_OK;
        }
    }
    if (s)
        find_fault(c, s, "no memory for a communicator");
    s = judge(c);
    if (s)
        find_fault(c, s, "no memory for a communicator");
    if (kept)
        pici_transport_sockets_keep(&t, 0);
    if (!c->own.status)
        return PICI_OK;
    if (*out)
        pici_comm_free(*out);
    else if (kept)
        t.close(t.context);
    else
        close_all(c->fds, c->rank, c->ranks);
    *out = NULL;
    return c->own.status;
}

enum pici_status pici_comm_sockets(struct pici_comm **out, const int *fds, int rank, int ranks)
{
    struct coll_settings settings;
    struct circle c;
    char words[VERDICT_WORDS + 32];
    if (out)
        *out = NULL;
    if (!out || !fds || ranks < 1 || ranks > COLL_MAX_RANKS || rank < 0 || rank >= ranks) {
        snprintf(words, sizeof words, "rank %d of %d", rank, ranks);
        pici_comm_failed(!out ? "no place for the communicator" : !fds ? "no sockets" : words);
        if (fds && ranks >= 1 && ranks <= COLL_MAX_RANKS)
            close_all(fds, rank, ranks);
        return PICI_E_ARG;
    }
    if (!circle_init(&c, rank, ranks)) {
        snprintf(words, sizeof words, "no memory for %d ranks", ranks);
        pici_comm_failed(words);
        close_all(fds, rank, ranks);
        return PICI_E_NOMEM;
    }
    c.timeout_ms = 60000; /* as long as the settings are not known */
    if (pici_settings_read(&settings, words, sizeof words))
        find_fault(&c, PICI_E_ARG, words);
    else {
        c.timeout_ms = settings.timeout_ms;
        c.slice_bytes = settings.slice_bytes;
    }
    for (int i = 0; i < ranks; i++) {
        const enum pici_status s = i == rank ? PICI_E_ARG : look_at_socket(fds, i, rank, ranks, words, sizeof words);
        c.fds[i] = s ? -1 : fds[i];
        if (s && i != rank)
            find_fault(&c, s, words);
    }
    const enum pici_status s = make(out, &c);
    if (s) {
        snprintf(words, sizeof words, "rank %lu: %s", (unsigned long)c.own.rank, c.own.words);
        pici_comm_failed(words);
    }
    circle_free(&c);
    return s;
}
