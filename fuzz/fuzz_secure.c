/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Encrypted sockets. Two ends exchange data, and the fuzzer passes their bytes on. The input:
 *   byte 0    bits 0, 1: the mode. 0: the bytes to one end are edited. 1: that end has no peer, and gets the rest of
 *             the input. 2: it gets the edited bytes of an earlier connection. 3: the ends have different tokens, or
 *             that end does not trust its peer's certificate.
 *             Bit 2: that end is the client. Bits 3, 4: how much data each end sends. Bit 5: they have certificates
 *   the rest  edits of 4 bytes, in order: what to do, a value, and the offset in the direction's bytes
 *
 * An end receives only what its peer sent, from the beginning and in order, and everything if no byte was edited. In
 * the other cases it receives nothing. After an error it receives nothing more. Once the connection is closed, it gets
 * the end or an error that the transport can name. Without OpenSSL, this does nothing.
 *
 * The fuzzer compares the records that an end was sent with those that arrived. TLS protects every record that begins
 * with PROTECTED, and what the plain hellos before say:
 *   - If a hello has changed, no end receives data.
 *   - If a protected record has changed, its end receives no data from it on. If a whole record arrived instead, the
 *     end has failed before the connection is closed, with EBADMSG if the handshake was complete.
 *   - No other end reports EBADMSG. An end without a peer that it trusts sends nothing. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef PICI_HAVE_TLS
#include <openssl/pem.h>
#include <openssl/x509.h>
#endif

#include "fuzz/fuzz.h"
#include "transport/secure.h"

enum { CLIENT, SERVER };
enum mode { EDITED, RAW, REPLAYED, STRANGERS };
enum { FLIP, CUT, INSERT, REPEAT, DROP, SPLIT, EDIT_KINDS };
enum { EDIT_BYTES = 4, CHUNK = 1024, ROOM = 1 << 17, QUIET = 3 };
enum { UNPROTECTED = 0x14, HANDSHAKE = 0x16, PROTECTED = 0x17 }; /* first bytes of records */
enum { HEADER = 5, RECORD = 16384 };                             /* bytes; of the data in a record */

struct end {
    int fd, middle, which; /* middle: the fuzzer's socket to this end */
    struct secure *secure;
    size_t sends, sent, expects, got;
    int ended; /* a receive has failed, */
    int why;   /* with this errno; 0: the end */
};

/* Bytes on their way to an end. */
struct way {
    const uint8_t *edits;
    size_t edits_bytes;
    uint8_t *sent;  /* [ROOM] all that the sender has sent */
    uint8_t *bytes; /* [ROOM] all that went to the end, or waits for room in its socket */
    size_t filled, passed, read;
    int edited, cut;
};

static uint8_t pattern(int which, size_t i)
{
    return (uint8_t)(i * 7 + i / 251 + (size_t)which * 101);
}

static void make_end(struct end *end, const struct secure_keys *keys, int which, size_t sends, size_t expects)
{
    int pair[2];
    require(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    require(pici_secure_begin(keys, pair[0], which == SERVER));
    *end = (struct end){.fd = pair[0],
                        .middle = pair[1],
                        .which = which,
                        .secure = pici_secure_of(pair[0]),
                        .sends = sends,
                        .expects = expects};
    require(end->secure != NULL);
}

/* ---- an end */

/* Returns what recv returns; a failure leaves errno. */
static ssize_t hear(struct end *end)
{
    uint8_t chunk[CHUNK];
    const ssize_t n = pici_secure_recv(end->secure, end->fd, chunk, sizeof chunk);
    require(n <= (ssize_t)sizeof chunk);
    if (n > 0) {
        require(!end->ended && end->expects - end->got >= (size_t)n);
        for (ssize_t i = 0; i < n; i++)
            require(chunk[i] == pattern(1 - end->which, end->got++));
        return n;
    }
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return n;
    require(n == 0 || errno == EBADMSG || errno == ECONNRESET || errno == EPIPE);
    if (!end->ended)
        end->why = n ? errno : 0;
    end->ended = 1;
    return n;
}

static int say(struct end *end)
{
    static uint8_t data[ROOM];
    const size_t left = end->sends - end->sent, first = left < 8 ? left : 8;
    for (size_t i = 0; i < left; i++)
        data[i] = pattern(end->which, end->sent + i);
    const struct iovec parts[2] = {{data, first}, {data + first, left - first}};
    const ssize_t n = pici_secure_send(end->secure, end->fd, parts, 2);
    require(n <= (ssize_t)left);
    if (n < 0)
        require(errno == EAGAIN || errno == EBADMSG || errno == ECONNRESET || errno == EPIPE);
    end->sent += n > 0 ? (size_t)n : 0;
    return n > 0;
}

/* The client speaks first. Returns whether something moved. */
static int talk(struct end *end)
{
    int moved = 0;
    if (end->sent < end->sends && !end->ended && (end->which == CLIENT || end->got))
        moved = say(end);
    while (!end->ended && hear(end) > 0)
        moved = 1;
    return moved;
}

/* ---- between the ends */

static void append(struct way *way, uint8_t byte)
{
    if (way->filled < ROOM)
        way->bytes[way->filled++] = byte;
}

static size_t offset_of(const uint8_t *edit)
{
    return (size_t)edit[2] | (size_t)edit[3] << 8;
}

/* Take one byte of the sender. Returns whether to pass on the bytes before the next one first. */
static int take(struct way *way, uint8_t byte)
{
    const uint8_t byte_sent = byte;
    int drops = 0, splits = 0;
    for (size_t k = 0; k + EDIT_BYTES <= way->edits_bytes; k += EDIT_BYTES) {
        const uint8_t *edit = way->edits + k, value = edit[1];
        if (offset_of(edit) != way->read)
            continue;
        const int kind = edit[0] % EDIT_KINDS;
        way->edited |= kind != SPLIT && (kind != FLIP || value);
        if (kind == FLIP)
            byte ^= value;
        else if (kind == INSERT)
            append(way, value);
        else if (kind == REPEAT)
            for (size_t i = 0, n = way->filled, some = n < value ? n : value; i < some; i++)
                append(way, way->bytes[n - some + i]);
        drops |= kind == DROP;
        splits |= kind == SPLIT;
        way->cut |= kind == CUT;
    }
    way->sent[way->read++] = byte_sent;
    if (!drops && !way->cut)
        append(way, byte);
    return splits;
}

/* Returns whether something moved. */
static int pass_on(struct way *way, int middle, int peer_middle)
{
    uint8_t byte;
    int moved = 0;
    while (way->filled + 1024 < ROOM && way->read < ROOM && recv(middle, &byte, 1, MSG_DONTWAIT) == 1) {
        moved = 1;
        if (take(way, byte))
            break;
    }
    const size_t waits = way->filled - way->passed;
    const ssize_t n = waits ? send(peer_middle, way->bytes + way->passed, waits, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
    way->passed += n > 0 ? (size_t)n : 0;
    if (way->cut && way->passed == way->filled)
        shutdown(peer_middle, SHUT_WR);
    return moved || n > 0;
}

/* Close the connection. The end notices. */
static void finish(struct end *end)
{
    close(end->middle);
    ssize_t n;
    while ((n = hear(end)) > 0)
        ;
    require(n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK));
    require(hear(end) <= 0);
    pici_secure_close(end->fd);
    require(!pici_secure_of(end->fd));
}

/* ---- what changed on the way */

/* Returns the end of the record that begins there, or 0 if it is incomplete. */
static size_t record_end(const uint8_t *bytes, size_t count, size_t at)
{
    if (count - at < HEADER)
        return 0;
    const size_t end = at + HEADER + ((size_t)bytes[at + 3] << 8 | bytes[at + 4]);
    return end <= count ? end : 0;
}

/* Collect what the plain records at the beginning say, without their headers, which TLS does not protect. Returns where
 * the first other record begins. hello: [ROOM]. */
static size_t read_hello(const uint8_t *bytes, size_t count, uint8_t *hello, size_t *hello_bytes)
{
    size_t at = 0, end;
    for (*hello_bytes = 0; (end = record_end(bytes, count, at)) && bytes[at] >= UNPROTECTED && bytes[at] < PROTECTED;
         at = end) {
        if (bytes[at] != HANDSHAKE)
            continue;
        memcpy(hello + *hello_bytes, bytes + at + HEADER, end - at - HEADER);
        *hello_bytes += end - at - HEADER;
    }
    return at;
}

struct change {
    int hello;      /* a hello has changed */
    size_t records; /* so many protected records arrived before the first one that has changed; SIZE_MAX: none has */
    int whole;      /* a whole record arrived instead */
};

/* A plain record after the hello, which an end may ignore or obey, ends the comparison. */
static struct change compare(const struct way *way)
{
    static uint8_t hello[2][ROOM];
    const uint8_t *sent = way->sent, *came = way->bytes;
    size_t bytes[2], end, records = 0, of_sent = read_hello(sent, way->read, hello[0], &bytes[0]),
                          of_came = read_hello(came, way->passed, hello[1], &bytes[1]);
    const size_t least = bytes[0] < bytes[1] ? bytes[0] : bytes[1];
    if (memcmp(hello[0], hello[1], least) != 0 || bytes[1] > bytes[0])
        return (struct change){.hello = 1, .records = SIZE_MAX};
    if (bytes[1] < bytes[0])
        return (struct change){.records = record_end(came, way->passed, of_came) ? 0 : SIZE_MAX};
    for (; (end = record_end(came, way->passed, of_came)); of_came = end, records++) {
        const size_t next = record_end(sent, way->read, of_sent), count = end - of_came;
        if (came[of_came] >= UNPROTECTED && came[of_came] < PROTECTED)
            return (struct change){.records = SIZE_MAX};
        if (!next || next - of_sent != count || memcmp(sent + of_sent, came + of_came, count) != 0)
            return (struct change){.records = records, .whole = 1};
        of_sent = next;
    }
    const size_t rest = way->passed - of_came, had = way->read - of_sent;
    const int same = rest <= had && memcmp(sent + of_sent, came + of_came, rest) == 0;
    return (struct change){.records = same ? SIZE_MAX : records};
}

/* The number of protected records that each end sends in a handshake, [with certificates][sender]. */
static size_t handshake[2][2];

static void check(const struct end ends[2], int which, const struct way *way, int certified)
{
    const struct end *end = &ends[which];
    const struct change change = compare(way);
    require(ends[1 - which].why != EBADMSG && (way->edited || end->why != EBADMSG));
    if (change.hello)
        require(!ends[CLIENT].got && !ends[SERVER].got);
    if (change.records == SIZE_MAX)
        return;
    const size_t before = handshake[certified][1 - which], records = change.records;
    require(end->got <= (records > before ? (records - before) * RECORD : 0));
    if (change.whole)
        require(end->ended && (records < before || end->why == EBADMSG));
}

/* ---- connections */

/* to[which]: the way to an end. `edited` is the one whose way may have edits. */
static void connect_ends(const struct secure_keys *client, const struct secure_keys *server, const size_t sends[2],
                         struct way to[2], int edited, int certified)
{
    struct end ends[2];
    const int strangers = client != server;
    make_end(&ends[CLIENT], client, CLIENT, sends[CLIENT], strangers ? 0 : sends[SERVER]);
    make_end(&ends[SERVER], server, SERVER, sends[SERVER], strangers ? 0 : sends[CLIENT]);
    for (int quiet = 0; quiet < QUIET;) {
        int moved = talk(&ends[CLIENT]) + talk(&ends[SERVER]);
        for (int which = 0; which < 2; which++)
            moved += pass_on(&to[which], ends[1 - which].middle, ends[which].middle);
        quiet = moved ? 0 : quiet + 1;
    }
    if (!strangers && !to[0].edited && !to[1].edited)
        for (int which = 0; which < 2; which++)
            require(!ends[which].ended && ends[which].got == ends[which].expects);
    if (strangers)
        require(!ends[SERVER].sent && ((certified && edited == SERVER) || !ends[CLIENT].sent));
    else
        check(ends, edited, &to[edited], certified);
    for (int which = 0; which < 2; which++)
        finish(&ends[which]);
}

static void make_ways(struct way to[2])
{
    for (int which = 0; which < 2; which++)
        to[which] = (struct way){.sent = memory(ROOM), .bytes = memory(ROOM)};
}

static void free_ways(struct way to[2])
{
    for (int which = 0; which < 2; which++) {
        free(to[which].sent);
        free(to[which].bytes);
    }
}

/* Learn from a connection in which each end sends one record of data. */
static void count_handshake(const struct secure_keys *keys, int certified)
{
    static const size_t one[2] = {1, 1};
    struct way to[2];
    make_ways(to);
    connect_ends(keys, keys, one, to, SERVER, certified);
    for (int sender = 0; sender < 2; sender++) {
        const struct way *way = &to[1 - sender];
        for (size_t at = 0; at < way->read; at = record_end(way->sent, way->read, at)) {
            require(record_end(way->sent, way->read, at) > 0);
            handshake[certified][sender] += way->sent[at] == PROTECTED;
        }
        require(handshake[certified][sender]-- > 1);
    }
    free_ways(to);
}

/* One end without a peer that has a key. */
static void feed(const struct secure_keys *keys, int which, const uint8_t *bytes, size_t len)
{
    struct end end;
    size_t fed = 0;
    make_end(&end, keys, which, 100, 0);
    for (int quiet = 0; quiet < QUIET; quiet++) {
        talk(&end);
        const size_t some = len - fed < CHUNK ? len - fed : CHUNK;
        const ssize_t n = some ? send(end.middle, bytes + fed, some, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
        if (n <= 0)
            continue;
        fed += (size_t)n;
        quiet = 0;
    }
    uint8_t answer; /* a server answers nothing but a record of a handshake */
    if (which == SERVER && (!len || bytes[0] != HANDSHAKE))
        require(recv(end.middle, &answer, 1, MSG_DONTWAIT) <= 0);
    require(!end.sent && end.why != EBADMSG);
    finish(&end);
}

/* ---- keys */

/* files NULL: the token is the key. */
static const struct secure_keys *keys_of(const char *token, const struct secure_files *files)
{
    static const struct secure_files none;
    enum pici_status status;
    char words[200];
    const struct secure_keys *keys = pici_secure_keys(token, files ? files : &none, &status, words, sizeof words);
    require(keys || status == PICI_E_UNSUPPORTED);
    return keys;
}

/* trusting: has the certificate of `others`, and trusts the one of `keys`. */
struct keys {
    const struct secure_keys *keys, *others, *trusting;
};

#ifdef PICI_HAVE_TLS
enum { VALID_S = 10 * 365 * 86400, PATH = 256 };

/* Write a certificate, signed by itself, and its key. Its signatures have one length, so offsets stay the same. */
static void make_certificate(const char *certificate_path, const char *key_path)
{
    EVP_PKEY *key = NULL;
    EVP_PKEY_CTX *maker = EVP_PKEY_CTX_new_id(EVP_PKEY_ED25519, NULL);
    X509 *certificate = X509_new();
    require(maker && certificate && EVP_PKEY_keygen_init(maker) == 1 && EVP_PKEY_keygen(maker, &key) == 1);
    X509_NAME *name = X509_get_subject_name(certificate);
    require(X509_set_version(certificate, 2) && ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1) &&
            X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"rank", -1, -1, 0) &&
            X509_set_issuer_name(certificate, name) && X509_gmtime_adj(X509_getm_notBefore(certificate), -86400) &&
            X509_gmtime_adj(X509_getm_notAfter(certificate), VALID_S) && X509_set_pubkey(certificate, key) &&
            X509_sign(certificate, key, NULL) > 0);
    FILE *file = fopen(certificate_path, "w");
    require(file && PEM_write_X509(file, certificate) && fclose(file) == 0);
    file = fopen(key_path, "w");
    require(file && PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) && fclose(file) == 0);
    X509_free(certificate);
    EVP_PKEY_free(key);
    EVP_PKEY_CTX_free(maker);
}

static struct keys keys_of_certificates(void)
{
    char folder[] = "/tmp/pici_fuzz_XXXXXX", paths[4][PATH]; /* a certificate, its key, others' */
    static const char *const names[4] = {"rank.pem", "rank.key", "other.pem", "other.key"};
    struct keys keys;
    require(mkdtemp(folder) != NULL);
    for (int i = 0; i < 4; i++)
        snprintf(paths[i], sizeof paths[i], "%s/%s", folder, names[i]);
    make_certificate(paths[0], paths[1]);
    make_certificate(paths[2], paths[3]);
    keys.keys = keys_of("a token", &(struct secure_files){paths[0], paths[1], paths[0]});
    keys.others = keys_of("a token", &(struct secure_files){paths[2], paths[3], paths[2]});
    keys.trusting = keys_of("a token", &(struct secure_files){paths[2], paths[3], paths[0]});
    for (int i = 0; i < 4; i++)
        unlink(paths[i]);
    rmdir(folder);
    return keys;
}
#else
static struct keys keys_of_certificates(void)
{
    return (struct keys){NULL, NULL, NULL};
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct keys both[2]; /* of a token, and with certificates */
    static const size_t some[4][2] = {{1, 1}, {100, 3}, {20000, 100}, {9, 40000}};
    if (!len)
        return 0;
    if (!both[0].keys && (both[0].keys = keys_of("a token", NULL))) {
        both[0].others = both[0].trusting = keys_of("another token", NULL);
        both[1] = keys_of_certificates();
        for (int certified = 0; certified < 2; certified++)
            count_handshake(both[certified].keys, certified);
    }
    if (!both[0].keys)
        return 0;
    const enum mode mode = data[0] & 3;
    const int which = data[0] & 4 ? CLIENT : SERVER, certified = data[0] >> 5 & 1;
    const size_t *sends = some[data[0] >> 3 & 3];
    const struct keys *keys = &both[certified];
    if (mode == RAW) {
        feed(keys->keys, which, data + 1, len - 1);
        return 0;
    }
    struct way to[2];
    make_ways(to);
    to[which].edits = data + 1;
    to[which].edits_bytes = len - 1;
    const struct secure_keys *client = mode == STRANGERS && which == SERVER ? keys->trusting : keys->keys,
                             *server = mode == STRANGERS && which == CLIENT ? keys->others : keys->keys;
    connect_ends(client, server, sends, to, which, certified);
    if (mode == REPLAYED)
        feed(keys->keys, which, to[which].bytes, to[which].filled);
    free_ways(to);
    return 0;
}
