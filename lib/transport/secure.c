/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/secure.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef PICI_HAVE_TLS

#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>

enum { KEY_BYTES = 32, RECORD = 16384, HELLO = 0x16 /* the first byte that a client sends */ };

static const char key_label[] = "pici sockets, TLS 1.3: pre-shared key";
static const char token_label[] = "pici sockets, TLS 1.3: token";
static const char identity[] = "pici";
static const unsigned char suite[] = {0x13, 0x01}; /* TLS_AES_128_GCM_SHA256 */

struct secure_keys {
    SSL_CTX *context;
    unsigned char key[KEY_BYTES], token[KEY_BYTES];
};

struct secure {
    struct secure *next;
    int fd, accepts, begun, agreed; /* begun: the peer has begun TLS; agreed: data was exchanged */
    int complete;                   /* the handshake is complete */
    int reads;                      /* as pici_secure_reads */
    SSL *ssl;
    size_t staged; /* bytes of the record that the socket did not take */
    unsigned char record[RECORD];
};

/* ---- descriptors */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct secure *all;

struct secure *pici_secure_of(int fd)
{
    pthread_mutex_lock(&lock);
    struct secure *found = all;
    while (found && found->fd != fd)
        found = found->next;
    pthread_mutex_unlock(&lock);
    return found;
}

void pici_secure_close(int fd)
{
    struct secure **place = &all, *found;
    pthread_mutex_lock(&lock);
    while (*place && (*place)->fd != fd)
        place = &(*place)->next;
    found = *place;
    if (found)
        *place = found->next;
    pthread_mutex_unlock(&lock);
    if (found) {
        SSL_free(found->ssl);
        free(found);
    }
    close(fd);
}

/* ---- the socket as OpenSSL uses it: calls never wait and raise no signals */

static int bio_write(BIO *bio, const char *bytes, int count)
{
    const struct secure *secure = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    const ssize_t moved = send(secure->fd, bytes, (size_t)count, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        BIO_set_retry_write(bio);
    return (int)moved;
}

static int bio_read(BIO *bio, char *bytes, int count)
{
    const struct secure *secure = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    const ssize_t moved = recv(secure->fd, bytes, (size_t)count, MSG_DONTWAIT);
    if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        BIO_set_retry_read(bio);
    return (int)moved;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

/* Created once and never freed: connections outlive the keys. */
static BIO_METHOD *method;

static void make_method(void)
{
    method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "pici socket");
    if (method && (!BIO_meth_set_write(method, bio_write) || !BIO_meth_set_read(method, bio_read) ||
                   !BIO_meth_set_ctrl(method, bio_control))) {
        BIO_meth_free(method);
        method = NULL;
    }
}

/* OpenSSL reports a state. A call that completes the handshake and then fails has agreed on a key. */
static void notice(const SSL *ssl, int where, int value)
{
    struct secure *secure = BIO_get_data(SSL_get_rbio(ssl));
    (void)value;
    if (where & SSL_CB_HANDSHAKE_DONE)
        secure->complete = 1;
}

/* ---- the key */

static SSL_SESSION *session_of(SSL *ssl)
{
    const struct secure_keys *keys = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
    SSL_SESSION *session = SSL_SESSION_new();
    if (session && cipher && SSL_SESSION_set1_master_key(session, keys->key, KEY_BYTES) &&
        SSL_SESSION_set_cipher(session, cipher) && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
        return session;
    SSL_SESSION_free(session);
    return NULL;
}

static int use_session(SSL *ssl, const EVP_MD *digest, const unsigned char **id, size_t *bytes, SSL_SESSION **session)
{
    (void)digest;
    *session = session_of(ssl);
    *id = (const unsigned char *)identity;
    *bytes = sizeof identity - 1;
    return *session != NULL;
}

static int find_session(SSL *ssl, const unsigned char *id, size_t bytes, SSL_SESSION **session)
{
    *session = NULL;
    if (bytes == sizeof identity - 1 && memcmp(id, identity, bytes) == 0)
        *session = session_of(ssl);
    return 1;
}

static int derive(unsigned char key[KEY_BYTES], const char *label, const char *token)
{
    unsigned bytes = KEY_BYTES;
    return HMAC(EVP_sha256(), label, (int)strlen(label), (const unsigned char *)token, strlen(token), key, &bytes) &&
           bytes == KEY_BYTES;
}

static const char *use_files(SSL_CTX *context, const struct secure_files *files)
{
    if (!files->certificate || !files->key || !files->authority)
        return "PICI_SOCKET_TLS_CERT, PICI_SOCKET_TLS_KEY and PICI_SOCKET_TLS_CA: set all of them, or none";
    if (SSL_CTX_use_certificate_chain_file(context, files->certificate) != 1)
        return "PICI_SOCKET_TLS_CERT: no certificate in that file";
    if (SSL_CTX_use_PrivateKey_file(context, files->key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(context) != 1)
        return "PICI_SOCKET_TLS_KEY: no key of the certificate in that file";
    if (SSL_CTX_load_verify_locations(context, files->authority, NULL) != 1)
        return "PICI_SOCKET_TLS_CA: no certificates in that file";
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return NULL;
}

static int set_up(struct secure_keys *keys, const char *token)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    SSL_CTX *context = keys->context = SSL_CTX_new(TLS_method());
    if (pthread_once(&once, make_method) || !method || !context ||
        !SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) ||
        !SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") || !SSL_CTX_set_num_tickets(context, 0) ||
        !derive(keys->key, key_label, token) || !derive(keys->token, token_label, token))
        return 0;
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_app_data(context, keys);
    SSL_CTX_set_info_callback(context, notice);
    return 1;
}

struct secure_keys *pici_secure_keys(const char *token, const struct secure_files *files, enum pici_status *status,
                                     char *explanation, size_t bytes)
{
    struct secure_keys *keys = calloc(1, sizeof *keys);
    const char *wrong = NULL;
    *status = PICI_OK;
    if (!keys || !set_up(keys, token)) {
        *status = PICI_E_NOMEM;
        wrong = "PICI_SOCKET_TLS: no memory, or OpenSSL has no TLS 1.3";
    } else if (files->certificate || files->key || files->authority) {
        wrong = use_files(keys->context, files);
    } else {
        SSL_CTX_set_psk_use_session_callback(keys->context, use_session);
        SSL_CTX_set_psk_find_session_callback(keys->context, find_session);
    }
    if (!wrong)
        return keys;
    *status = *status ? *status : PICI_E_ARG;
    snprintf(explanation, bytes, "%s", wrong);
    pici_secure_keys_free(keys);
    return NULL;
}

void pici_secure_keys_free(struct secure_keys *keys)
{
    if (!keys)
        return;
    SSL_CTX_free(keys->context);
    OPENSSL_cleanse(keys, sizeof *keys);
    free(keys);
}

void pici_secure_token(const struct secure_keys *keys, char text[64])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < KEY_BYTES; i++) {
        text[2 * i] = digits[keys->token[i] >> 4];
        text[2 * i + 1] = digits[keys->token[i] & 15];
    }
}

/* ---- connections */

int pici_secure_begin(const struct secure_keys *keys, int fd, int accepts)
{
    if (!keys)
        return 1;
    struct secure *secure = calloc(1, sizeof *secure);
    SSL *ssl = secure ? SSL_new(keys->context) : NULL;
    BIO *bio = ssl ? BIO_new(method) : NULL;
    if (!bio) {
        SSL_free(ssl);
        free(secure);
        return 0;
    }
    BIO_set_data(bio, secure);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    if (accepts)
        SSL_set_accept_state(ssl);
    else
        SSL_set_connect_state(ssl);
    if (!accepts) /* without files there is no authority, so OpenSSL rejects a certificate in place of the key */
        SSL_set_verify(ssl, SSL_VERIFY_PEER, NULL);
    *secure = (struct secure){.fd = fd, .accepts = accepts, .ssl = ssl};
    pthread_mutex_lock(&lock);
    secure->next = all;
    all = secure;
    pthread_mutex_unlock(&lock);
    return 1;
}

/* A call returned moved <= 0. If it failed before both ends agreed on a key, the peer has another key or none: report a
 * closed connection. Do the same if the peer sent an alert. If the peer closed before they agreed, it may have dropped
 * this end in a crowd: report a reset. */
static ssize_t failed(struct secure *secure, int moved, int error, int *reads)
{
    const int why = SSL_get_error(secure->ssl, moved), reason = ERR_GET_REASON(ERR_peek_last_error());
    const int cut = why == SSL_ERROR_SSL && reason == SSL_R_UNEXPECTED_EOF_WHILE_READING;
    const int ended = why == SSL_ERROR_ZERO_RETURN || cut || (why == SSL_ERROR_SYSCALL && error == 0);
    ERR_clear_error();
    *reads = why == SSL_ERROR_WANT_READ;
    errno = EBADMSG;
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE)
        errno = EAGAIN;
    else if (ended && secure->agreed)
        return 0;
    else if (ended)
        errno = ECONNRESET;
    else if (why == SSL_ERROR_SYSCALL)
        errno = error;
    else if (!secure->complete || reason >= SSL_AD_REASON_OFFSET)
        return 0;
    return -1;
}

/* Whether the peer speaks TLS; otherwise it gets no answer. Returns 1 or 0, or -1 with recv's errno if nothing has come
 * yet. The caller must not read then: it could get bytes whose first one was not checked. */
static int speaks(struct secure *secure)
{
    unsigned char first;
    if (!secure->accepts || secure->begun)
        return 1;
    const ssize_t seen = recv(secure->fd, &first, 1, MSG_DONTWAIT | MSG_PEEK);
    secure->begun = seen == 1 && first == HELLO;
    return seen < 0 ? -1 : secure->begun;
}

ssize_t pici_secure_recv(struct secure *secure, int fd, void *bytes, size_t count)
{
    if (!secure)
        return recv(fd, bytes, count, MSG_DONTWAIT);
    const int spoken = speaks(secure);
    if (spoken <= 0)
        return spoken;
    ERR_clear_error();
    errno = 0;
    const int moved = SSL_read(secure->ssl, bytes, count < RECORD ? (int)count : RECORD);
    int reads;
    if (moved <= 0)
        return failed(secure, moved, errno, &reads);
    secure->agreed = 1;
    return moved;
}

static size_t fill_record(struct secure *secure, const struct iovec *parts, size_t count)
{
    size_t filled = 0;
    for (size_t i = 0; i < count && filled < RECORD; i++) {
        const size_t room = RECORD - filled, taken = parts[i].iov_len < room ? parts[i].iov_len : room;
        if (taken)
            memcpy(secure->record + filled, parts[i].iov_base, taken);
        filled += taken;
    }
    return filled;
}

/* A record holds as many bytes of the parts as fit. If the socket does not take a record, the next call sends it again
 * unchanged. */
ssize_t pici_secure_send(struct secure *secure, int fd, const struct iovec *parts, size_t count)
{
    if (!secure) {
        const struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = count};
        return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    if (!secure->staged)
        secure->staged = fill_record(secure, parts, count);
    ERR_clear_error();
    errno = 0;
    const int moved = SSL_write(secure->ssl, secure->record, (int)secure->staged);
    if (moved <= 0)
        return failed(secure, moved, errno, &secure->reads);
    secure->staged = 0;
    secure->reads = 0;
    secure->agreed = 1;
    return moved;
}

size_t pici_secure_staged(const struct secure *secure)
{
    return secure ? secure->staged : 0;
}

int pici_secure_waits(const struct secure *secure)
{
    return secure && SSL_pending(secure->ssl) > 0; /* SSL_has_pending counts parts of a record too */
}

int pici_secure_reads(const struct secure *secure)
{
    return secure && secure->reads;
}

#else

struct secure_keys *pici_secure_keys(const char *token, const struct secure_files *files, enum pici_status *status,
                                     char *explanation, size_t bytes)
{
    (void)token, (void)files;
    *status = PICI_E_UNSUPPORTED;
    snprintf(explanation, bytes, "PICI_SOCKET_TLS: this libpici_coll was built without OpenSSL");
    return NULL;
}

void pici_secure_keys_free(struct secure_keys *keys)
{
    (void)keys;
}

void pici_secure_token(const struct secure_keys *keys, char text[64])
{
    (void)keys;
    memset(text, 0, 64);
}

int pici_secure_begin(const struct secure_keys *keys, int fd, int accepts)
{
    (void)keys, (void)fd, (void)accepts;
    return 1;
}

struct secure *pici_secure_of(int fd)
{
    (void)fd;
    return NULL;
}

void pici_secure_close(int fd)
{
    close(fd);
}

ssize_t pici_secure_recv(struct secure *secure, int fd, void *bytes, size_t count)
{
    (void)secure;
    return recv(fd, bytes, count, MSG_DONTWAIT);
}

ssize_t pici_secure_send(struct secure *secure, int fd, const struct iovec *parts, size_t count)
{
    const struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = count};
    (void)secure;
    return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

size_t pici_secure_staged(const struct secure *secure)
{
    (void)secure;
    return 0;
}

int pici_secure_waits(const struct secure *secure)
{
    (void)secure;
    return 0;
}

int pici_secure_reads(const struct secure *secure)
{
    (void)secure;
    return 0;
}

#endif
