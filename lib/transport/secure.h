/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Connections that are encrypted, by TLS 1.3: with a key that both ends make of the token, or with certificates. A
 * connection is known by its descriptor, so what moves bytes need not be told whether it is encrypted: for descriptors
 * that are not, these functions are recv, sendmsg and close. */
#ifndef PICI_LIB_TRANSPORT_SECURE_H
#define PICI_LIB_TRANSPORT_SECURE_H

#include <sys/types.h>
#include <sys/uio.h>

#include "pici/coll.h"

struct secure;      /* an encrypted connection */
struct secure_keys; /* what both ends of one must have */

/* Paths of files, PEM, or all NULL. */
struct secure_files {
    const char *certificate, *key, *authority;
};

/* NULL: there are none, and the explanation [bytes] says why; of status PICI_E_UNSUPPORTED (built without OpenSSL),
 * PICI_E_ARG or PICI_E_NOMEM. With files both ends prove by certificates of that authority who they are. */
struct secure_keys *pici_secure_keys(const char *token, const struct secure_files *, enum pici_status *,
                                     char *explanation, size_t bytes);
void pici_secure_keys_free(struct secure_keys *);

/* What stands for the token inside an encrypted connection: a text of exactly 64 bytes, from which the token cannot be
 * computed. */
void pici_secure_token(const struct secure_keys *, char text[64]);

/* A connected socket is encrypted from now on; accepts: this end did not connect it. keys NULL: it stays as it is.
 * Neither sends nor waits. Returns 0 without memory. */
int pici_secure_begin(const struct secure_keys *, int fd, int accepts);

/* The connection of a descriptor; NULL: it is not encrypted. It lives until pici_secure_close. */
struct secure *pici_secure_of(int fd);

/* Close a descriptor, and what is kept of its connection. */
void pici_secure_close(int fd);

/* As recv and sendmsg with MSG_DONTWAIT and MSG_NOSIGNAL, but of a sendmsg that returned EAGAIN the first bytes must be
 * the same the next time. If the ends do not agree on a key, the connection is closed, as recv sees it; if it ends
 * before they do, errno is ECONNRESET. errno is EBADMSG where bytes were changed on the way. secure NULL: not
 * encrypted. */
ssize_t pici_secure_recv(struct secure *, int fd, void *, size_t);
ssize_t pici_secure_send(struct secure *, int fd, const struct iovec *parts, size_t count);

/* Whether bytes were taken from the socket and wait to be received: poll does not see them. */
int pici_secure_waits(const struct secure *);

/* Whether sending waits for bytes from the peer. */
int pici_secure_reads(const struct secure *);

#endif
