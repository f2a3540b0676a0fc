/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Connections encrypted by TLS 1.3, with a key that both ends derive from the token, or with certificates. The
 * descriptor identifies a connection, so callers need not know whether it is encrypted. For an unencrypted descriptor,
 * these functions are recv, sendmsg and close. */
#ifndef PICI_LIB_TRANSPORT_SECURE_H
#define PICI_LIB_TRANSPORT_SECURE_H

#include <sys/types.h>
#include <sys/uio.h>

#include "pici/coll.h"

struct secure;      /* an encrypted connection */
struct secure_keys; /* the keys that both ends must have */

/* Paths of PEM files, or all NULL. */
struct secure_files {
    const char *certificate, *key, *authority;
};

/* Make keys. With files, both ends authenticate by certificates of that authority. On failure returns NULL, and
 * explanation [bytes] describes the error. The status is PICI_E_UNSUPPORTED (built without OpenSSL), PICI_E_ARG or
 * PICI_E_NOMEM. */
struct secure_keys *pici_secure_keys(const char *token, const struct secure_files *, enum pici_status *,
                                     char *explanation, size_t bytes);
void pici_secure_keys_free(struct secure_keys *);

/* The token's substitute inside an encrypted connection: a text of exactly 64 bytes that does not reveal the token. */
void pici_secure_token(const struct secure_keys *, char text[64]);

/* Encrypt a connected socket from now on. accepts: the peer connected it. keys NULL: do nothing. Neither sends nor
 * waits. Returns 0 without memory. */
int pici_secure_begin(const struct secure_keys *, int fd, int accepts);

/* The connection of a descriptor; NULL: it is not encrypted. It lives until pici_secure_close. */
struct secure *pici_secure_of(int fd);

/* Close a descriptor, and free the state of its connection. */
void pici_secure_close(int fd);

/* As recv and sendmsg with MSG_DONTWAIT and MSG_NOSIGNAL. After a send fails with EAGAIN, the next one must begin with
 * the same bytes. If the ends do not agree on a key, the result is 0, as of a closed connection. If the connection ends
 * before they agree, errno is ECONNRESET. If bytes were changed on the way, errno is EBADMSG. secure NULL: not
 * encrypted. */
ssize_t pici_secure_recv(struct secure *, int fd, void *, size_t);
ssize_t pici_secure_send(struct secure *, int fd, const struct iovec *parts, size_t count);

/* The number of bytes of the next send that a record already has. The socket may have taken a part of it. */
size_t pici_secure_staged(const struct secure *);

/* Whether bytes already read from the socket wait to be received. poll does not see them. */
int pici_secure_waits(const struct secure *);

/* Whether sending waits for bytes from the peer. */
int pici_secure_reads(const struct secure *);

#endif
