/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Encrypted sockets. Two ends exchange data, and the fuzzer passes their bytes on. The input:
 *   byte 0    bits 0, 1: the mode. 0: the bytes to one end are edited. 1: that end has no peer, and gets the rest of
 *             the input. 2: it gets the edited bytes of an earlier connection. 3: the ends have different tokens.
 *             Bit 2: that end is the client. Bits 3, 4: how much data each end sends
 *   the rest  edits of 4 bytes, in order: what to do, a value, and the offset in the direction's bytes
 *
 * An end receives only what its peer sent, from the beginning and in order, and everything if no byte was edited. In
 * the other cases it receives nothing. After an error it receives nothing more. Once the connection is closed, it gets
 * the end or an error that the transport can name. Without OpenSSL, this does nothing. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "transport/secure.h"

enum { CLIENT, SERVER };
enum mode { EDITED, RAW, REPLAYED, STRANGERS };
enum { FLIP, CUT, INSERT, REPEAT, DROP, SPLIT, EDIT_KINDS };
enum { EDIT_BYTES = 4, CHUNK = 1024, ROOM = 1 << 17, QUIET = 3, HANDSHAKE = 0x16 };

struct end {
    int fd, middle, which; /* middle: the fuzzer's socket to this end */
    struct secure *secure;
    size_t sends, sent, expects, got;
    int ended; /* a receive has failed */
};

/* Bytes on their way to an end. */
struct way {
    const uint8_t *edits;
    size_t edits_bytes;
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
    way->read++;
    if (!drops && !way->cut)
        append(way, byte);
    return splits;
}

/* Returns whether something moved. */
static int pass_on(struct way *way, int middle, int peer_middle)
{
    uint8_t byte;
    int moved = 0;
    while (way->filled + 1024 < ROOM && recv(middle, &byte, 1, MSG_DONTWAIT) == 1) {
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

/* ---- connections */

/* to[which]: the way to an end. */
static void connect_ends(const struct secure_keys *client, const struct secure_keys *server, const size_t sends[2],
                         struct way to[2])
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
    for (int which = 0; which < 2; which++)
        finish(&ends[which]);
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
    finish(&end);
}

static const struct secure_keys *keys_of(const char *token)
{
    enum pici_status status;
    char words[200];
    const struct secure_keys *keys =
        pici_secure_keys(token, &(struct secure_files){NULL, NULL, NULL}, &status, words, sizeof words);
    require(keys || status == PICI_E_UNSUPPORTED);
    return keys;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const struct secure_keys *keys, *others;
    static const size_t some[4][2] = {{1, 1}, {100, 3}, {20000, 100}, {9, 40000}};
    if (!len)
        return 0;
    keys = keys ? keys : keys_of("a token");
    others = others ? others : keys_of("another token");
    if (!keys)
        return 0;
    const enum mode mode = data[0] & 3;
    const int which = data[0] & 4 ? CLIENT : SERVER;
    const size_t *sends = some[data[0] >> 3 & 3];
    struct way to[2] = {{.bytes = memory(ROOM)}, {.bytes = memory(ROOM)}};
    if (mode == RAW) {
        feed(keys, which, data + 1, len - 1);
    } else {
        to[which].edits = data + 1;
        to[which].edits_bytes = len - 1;
        connect_ends(keys, mode == STRANGERS ? others : keys, sends, to);
        if (mode == REPLAYED)
            feed(keys, which, to[which].bytes, to[which].filled);
    }
    free(to[0].bytes);
    free(to[1].bytes);
    return 0;
}
