/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transport/meet.h"

enum { MAX_PORT = 65535 };

int pici_address_parse(const char *text, char host[ADDRESS_HOST], char port[ADDRESS_PORT])
{
    const char *colon = strrchr(text, ':');
    size_t len = colon ? (size_t)(colon - text) : 0, digits = colon ? strlen(colon + 1) : 0;
    if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
        text++;
        len -= 2;
    } else if (memchr(text, ':', len)) {
        return 0; /* which colon is it? */
    }
    if (!len || len >= ADDRESS_HOST || !digits || digits >= ADDRESS_PORT || strspn(colon + 1, "0123456789") != digits ||
        atoi(colon + 1) < 1 || atoi(colon + 1) > MAX_PORT)
        return 0;
    memcpy(host, text, len);
    host[len] = '\0';
    memcpy(port, colon + 1, digits + 1);
    return 1;
}

int pici_address_resolve(const char *host, const char *port, struct addrinfo **found)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    int failed = getaddrinfo(host, port, &hints, found);
    if (failed) {
        hints.ai_flags = AI_NUMERICSERV;
        failed = getaddrinfo(host, port, &hints, found);
    }
    return failed;
}

struct address pici_address_of(const struct addrinfo *info)
{
    struct address a = {.len = info->ai_addrlen};
    memcpy(&a.at, info->ai_addr, info->ai_addrlen);
    return a;
}

int pici_address_own(int fd, struct address *a)
{
    a->len = sizeof a->at;
    return getsockname(fd, (struct sockaddr *)&a->at, &a->len) == 0;
}

int pici_address_peer(int fd, struct address *a)
{
    a->len = sizeof a->at;
    return getpeername(fd, (struct sockaddr *)&a->at, &a->len) == 0;
}

int pici_address_interface(const char *name, int family, struct address *a)
{
    struct ifaddrs *all;
    int found = 0;
    if (getifaddrs(&all))
        return 0;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        const int is = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
        if (strcmp(i->ifa_name, name) != 0 || (is != AF_INET && is != AF_INET6) || (found && is != family))
            continue;
        a->len = is == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        memcpy(&a->at, i->ifa_addr, a->len);
        found = 1;
        if (is == family)
            break;
    }
    freeifaddrs(all);
    return found;
}

/* ---- places */

struct place pici_address_place(const struct address *a)
{
    struct place p = {0};
    if (a->at.ss_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, &a->at, sizeof v4);
        p.family = 4;
        p.port = ntohs(v4.sin_port);
        memcpy(p.address, &v4.sin_addr, 4);
    } else if (a->at.ss_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, &a->at, sizeof v6);
        p.family = 6;
        p.port = ntohs(v6.sin6_port);
        memcpy(p.address, &v6.sin6_addr, 16);
    }
    return p;
}

struct address pici_address_at(const struct place *p, const struct address *near)
{
    struct address a = {.len = p->family == 4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)};
    if (p->family == 4) {
        struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)p->port)};
        memcpy(&v4.sin_addr, p->address, 4);
        memcpy(&a.at, &v4, sizeof v4);
    } else {
        struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)p->port)}, link;
        memcpy(&v6.sin6_addr, p->address, 16);
        memcpy(&link, &near->at, sizeof link);
        if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr) && near->at.ss_family == AF_INET6)
            v6.sin6_scope_id = link.sin6_scope_id;
        memcpy(&a.at, &v6, sizeof v6);
    }
    return a;
}

void pici_address_words(const struct place *p, char words[ADDRESS_WORDS])
{
    char text[INET6_ADDRSTRLEN] = "?";
    (void)inet_ntop(p->family == 4 ? AF_INET : AF_INET6, p->address, text, sizeof text);
    snprintf(words, ADDRESS_WORDS, p->family == 4 ? "%s:%d" : "[%s]:%d", text, p->port);
}

/* ---- sockets */

/* Close a socket and keep errno. */
static int give_up(int fd)
{
    const int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return -1;
}

static void set_port(struct address *a, int port)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (a->at.ss_family == AF_INET) {
        memcpy(&v4, &a->at, sizeof v4);
        v4.sin_port = htons((uint16_t)port);
        memcpy(&a->at, &v4, sizeof v4);
    } else {
        memcpy(&v6, &a->at, sizeof v6);
        v6.sin6_port = htons((uint16_t)port);
        memcpy(&a->at, &v6, sizeof v6);
    }
}

static int listen_at(const struct address *at)
{
    const int fd = socket(at->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* or a port could not be used again until connections of an earlier run are forgotten */
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) ||
        bind(fd, (const struct sockaddr *)&at->at, at->len) || listen(fd, SOMAXCONN))
        return give_up(fd);
    return fd;
}

int pici_address_listen(struct address *at, const int ports[2], int start)
{
    const int n = ports[0] ? ports[1] - ports[0] + 1 : 1;
    int fd = -1;
    for (int i = 0; i < n && fd < 0; i++) {
        if (ports[0])
            set_port(at, ports[0] + (int)(((unsigned)start + (unsigned)i) % (unsigned)n));
        fd = listen_at(at);
        if (fd < 0 && errno != EADDRINUSE && errno != EACCES)
            break;
    }
    if (fd >= 0 && !pici_address_own(fd, at))
        return give_up(fd);
    return fd;
}

/* Two ends of one socket: where nobody listens, a connection to a port of this host may happen to come from that very
 * port. */
static int meets_itself(int fd)
{
    struct address own, peer;
    if (!pici_address_own(fd, &own) || !pici_address_peer(fd, &peer))
        return 0;
    const struct place a = pici_address_place(&own), b = pici_address_place(&peer);
    return a.port == b.port && memcmp(a.address, b.address, sizeof a.address) == 0;
}

int pici_address_connect(const struct address *to, int64_t deadline)
{
    const int fd = socket(to->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (const struct sockaddr *)&to->at, to->len)) {
        int error = errno;
        socklen_t len = sizeof error;
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        if (error != EINPROGRESS && error != EINTR)
            return give_up(fd);
        int ready = 0;
        while (ready <= 0) {
            const int left = pici_meet_left(deadline);
            ready = poll(&p, 1, left);
            if (ready < 0 && errno != EINTR)
                return give_up(fd);
            if (ready == 0 && left == 0) {
                errno = ETIMEDOUT;
                return give_up(fd);
            }
        }
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) || error) {
            errno = error;
            return give_up(fd);
        }
    }
    if (meets_itself(fd)) {
        errno = ECONNREFUSED;
        return give_up(fd);
    }
    return fd;
}
