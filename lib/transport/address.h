/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Addresses of TCP: names to addresses, sockets that listen, and sockets that connect within a deadline. Functions that
 * return a socket return -1 on failure and set errno. */
#ifndef PICI_LIB_TRANSPORT_ADDRESS_H
#define PICI_LIB_TRANSPORT_ADDRESS_H

#include <netdb.h>
#include <sys/socket.h>

#include "transport/greeting.h"

enum { ADDRESS_HOST = 256, ADDRESS_PORT = 6, ADDRESS_TEXT = 64 };

struct address {
    struct sockaddr_storage storage;
    socklen_t size;
};

/* Split "HOST:PORT"; an IPv6 address is in brackets. Returns 0 for other text. */
int pici_address_parse(const char *text, char host[ADDRESS_HOST], char port[ADDRESS_PORT]);

/* Find the addresses of a host; the caller frees them by freeaddrinfo. Numeric addresses need no resolver. Returns
 * getaddrinfo's code. */
int pici_address_resolve(const char *host, const char *port, struct addrinfo **);

struct address pici_address_of(const struct addrinfo *);

/* Get the address of this end of a socket, or of its peer. Returns 0 on failure. */
int pici_address_own(int fd, struct address *);
int pici_address_peer(int fd, struct address *);

/* The address of a network interface of this host, of that family if it has one. Returns 0 if it has none. */
int pici_address_interface(const char *name, int family, struct address *);

/* An address as bytes, and back. A link-local IPv6 address takes its scope from `near`. */
struct place pici_address_place(const struct address *);
struct address pici_address_at(const struct place *, const struct address *near);

/* "10.0.0.1:29500" */
void pici_address_text(const struct place *, char address_text[ADDRESS_TEXT]);

/* Listen at an address; *address becomes the socket's. ports: the lowest and the highest port; the first free one is
 * used, from `start` on, cyclically. {0, 0}: use the port of the address, where 0 means any. */
int pici_address_listen(struct address *address, const int ports[2], int start);

/* errno is ETIMEDOUT at the deadline. */
int pici_address_connect(const struct address *, int64_t deadline);

#endif
