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
    size_t size = colon ? (size_t)(colon - text) : 0;
    const size_t digits = colon ? strlen(colon + 1) : 0;
    if (size >= 2 && text[0] == '[' && text[size - 1] == ']') {
        text++;
        size -= 2;
    } else if (memchr(text, ':', size)) {
        return 0; /* an IPv6 address without brackets: which colon precedes the port? */
    }
    if (!size || size >= ADDRESS_HOST || !digits || digits >= ADDRESS_PORT ||
        strspn(colon + 1, "0123456789") != digits || atoi(colon + 1) < 1 || atoi(colon + 1) > MAX_PORT)
        return 0;
    memcpy(host, text, size);
    host[size] = '\0';
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
    struct address address = {.size = info->ai_addrlen};
    memcpy(&address.storage, info->ai_addr, info->ai_addrlen);
    return address;
}

int pici_address_own(int fd, struct address *address)
{
    address->size = sizeof address->storage;
    return getsockname(fd, (struct sockaddr *)&address->storage, &address->size) == 0;
}

int pici_address_peer(int fd, struct address *address)
{
    address->size = sizeof address->storage;
    return getpeername(fd, (struct sockaddr *)&address->storage, &address->size) == 0;
}

int pici_address_interface(const char *name, int family, struct address *address)
{
    struct ifaddrs *all;
    int found = 0;
    if (getifaddrs(&all))
        return 0;
    for (const struct ifaddrs *interface = all; interface; interface = interface->ifa_next) {
        const int found_family = interface->ifa_addr ? interface->ifa_addr->sa_family : AF_UNSPEC;
        if (strcmp(interface->ifa_name, name) != 0 || (found_family != AF_INET && found_family != AF_INET6) ||
            (found && found_family != family))
            continue;
        address->size = found_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        memcpy(&address->storage, interface->ifa_addr, address->size);
        found = 1;
        if (found_family == family)
            break;
    }
    freeifaddrs(all);
    return found;
}

/* ---- places */

struct place pici_address_place(const struct address *address)
{
    struct place place = {0};
    if (address->storage.ss_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, &address->storage, sizeof v4);
        place.family = 4;
        place.port = ntohs(v4.sin_port);
        memcpy(place.address, &v4.sin_addr, 4);
    } else if (address->storage.ss_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, &address->storage, sizeof v6);
        place.family = 6;
        place.port = ntohs(v6.sin6_port);
        memcpy(place.address, &v6.sin6_addr, 16);
    }
    return place;
}

struct address pici_address_at(const struct place *place, const struct address *near)
{
    struct address address = {.size = place->family == 4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)};
    if (place->family == 4) {
        struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)place->port)};
        memcpy(&v4.sin_addr, place->address, 4);
        memcpy(&address.storage, &v4, sizeof v4);
    } else {
        struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)place->port)}, link;
        memcpy(&v6.sin6_addr, place->address, 16);
        memcpy(&link, &near->storage, sizeof link);
        if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr) && near->storage.ss_family == AF_INET6)
            v6.sin6_scope_id = link.sin6_scope_id;
        memcpy(&address.storage, &v6, sizeof v6);
    }
    return address;
}

void pici_address_text(const struct place *place, char address_text[ADDRESS_TEXT])
{
    char text[INET6_ADDRSTRLEN] = "?";
    (void)inet_ntop(place->family == 4 ? AF_INET : AF_INET6, place->address, text, sizeof text);
    snprintf(address_text, ADDRESS_TEXT, place->family == 4 ? "%s:%d" : "[%s]:%d", text, place->port);
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

static void set_port(struct address *address, int port)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (address->storage.ss_family == AF_INET) {
        memcpy(&v4, &address->storage, sizeof v4);
        v4.sin_port = htons((uint16_t)port);
        memcpy(&address->storage, &v4, sizeof v4);
    } else {
        memcpy(&v6, &address->storage, sizeof v6);
        v6.sin6_port = htons((uint16_t)port);
        memcpy(&address->storage, &v6, sizeof v6);
    }
}

static int listen_at(const struct address *address)
{
    const int fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* without this, bind fails while connections of an earlier run are in TIME_WAIT */
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) ||
        bind(fd, (const struct sockaddr *)&address->storage, address->size) || listen(fd, SOMAXCONN))
        return give_up(fd);
    return fd;
}

int pici_address_listen(struct address *address, const int ports[2], int start)
{
    const int tries = ports[0] ? ports[1] - ports[0] + 1 : 1;
    int fd = -1;
    for (int i = 0; i < tries && fd < 0; i++) {
        if (ports[0])
            set_port(address, ports[0] + (int)(((unsigned)start + (unsigned)i) % (unsigned)tries));
        fd = listen_at(address);
        if (fd < 0 && errno != EADDRINUSE && errno != EACCES)
            break;
    }
    if (fd >= 0 && !pici_address_own(fd, address))
        return give_up(fd);
    return fd;
}

/* Whether a socket is connected to itself. If no process listens, the system may choose the target port as the source
 * port. */
static int meets_itself(int fd)
{
    struct address own, peer;
    if (!pici_address_own(fd, &own) || !pici_address_peer(fd, &peer))
        return 0;
    const struct place own_place = pici_address_place(&own), peer_place = pici_address_place(&peer);
    return own_place.port == peer_place.port &&
           memcmp(own_place.address, peer_place.address, sizeof own_place.address) == 0;
}

int pici_address_connect(const struct address *target, int64_t deadline)
{
    const int fd = socket(target->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (const struct sockaddr *)&target->storage, target->size)) {
        int error = errno;
        socklen_t size = sizeof error;
        struct pollfd poll_entry = {.fd = fd, .events = POLLOUT};
        if (error != EINPROGRESS && error != EINTR)
            return give_up(fd);
        int ready = 0;
        while (ready <= 0) {
            const int remaining = pici_meet_left(deadline);
            ready = poll(&poll_entry, 1, remaining);
            if (ready < 0 && errno != EINTR)
                return give_up(fd);
            if (ready == 0 && remaining == 0) {
                errno = ETIMEDOUT;
                return give_up(fd);
            }
        }
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) || error) {
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
