/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "transport/greeting.h"

#include <stdio.h>
#include <string.h>

#include "bytes.h"
#include "coll/message.h"

enum { MAGIC_BYTES = 8, MAX_PORT = 65535 };

static const char greeting_magic[MAGIC_BYTES + 1] = "PICIMEET", verdict_magic[MAGIC_BYTES + 1] = "PICISAYS",
                                               offer_magic[MAGIC_BYTES + 1] = "PICIPAIR";

enum {
    AT_VERSION = 8,
    AT_MESSAGES = 12,
    AT_KIND = 16,
    AT_RANK = 20,
    AT_RANKS = 24,
    AT_PEER = 28,
    AT_PLACE = 32,
    AT_TOKEN = 56,
    AT_HOST = 120,
    AT_REST = 184
};

enum { AT_STATUS = 8, AT_FINDER = 12, AT_TEXT = 16 };

enum {
    AT_OFFER = 8,
    AT_PROCESS = 12,
    AT_DESCRIPTOR = 16,
    AT_RING = 20,
    AT_DEVICE = 24,
    AT_INODE = 32,
    AT_CONNECTIONS = 40,
    AT_CONNECTIONS_PORT = 44,
    AT_CONNECTIONS_TOKEN = 48
};

enum { AT_FAMILY = 0, AT_PORT = 4, AT_ADDRESS = 8 };

/* ---- places */

void pici_place_put(uint8_t bytes[PLACE_BYTES], const struct place *place)
{
    store_le32(bytes + AT_FAMILY, (uint32_t)place->family);
    store_le32(bytes + AT_PORT, (uint32_t)place->port);
    memcpy(bytes + AT_ADDRESS, place->address, sizeof place->address);
}

enum pici_status pici_place_get(struct place *place, const uint8_t bytes[PLACE_BYTES])
{
    static const uint8_t zeros[PLACE_BYTES];
    const uint32_t family = load_le32(bytes + AT_FAMILY), port = load_le32(bytes + AT_PORT);
    if (memcmp(bytes, zeros, sizeof zeros) == 0) {
        *place = (struct place){0};
        return PICI_OK;
    }
    if ((family != 4 && family != 6) || port < 1 || port > MAX_PORT ||
        (family == 4 && memcmp(bytes + AT_ADDRESS + 4, zeros, 12) != 0))
        return PICI_E_CORRUPT;
    place->family = (int)family;
    place->port = (int)port;
    memcpy(place->address, bytes + AT_ADDRESS, sizeof place->address);
    return PICI_OK;
}

int pici_place_loopback(const struct place *place)
{
    static const uint8_t one[16] = {[15] = 1}, mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (place->family == 4)
        return place->address[0] == 127;
    if (place->family == 6 && memcmp(place->address, mapped, sizeof mapped) == 0)
        return place->address[12] == 127;
    return place->family == 6 && memcmp(place->address, one, sizeof one) == 0;
}

/* ---- greetings */

struct greeting pici_greeting(enum greeting_kind kind, int rank, int ranks, int peer)
{
    return (struct greeting){.version = GREETING_VERSION,
                             .messages = MSG_VERSION,
                             .kind = kind,
                             .rank = (uint32_t)rank,
                             .ranks = (uint32_t)ranks,
                             .peer = (uint32_t)peer};
}

void pici_greeting_put(uint8_t bytes[GREETING_BYTES], const struct greeting *greeting)
{
    memset(bytes, 0, GREETING_BYTES);
    memcpy(bytes, greeting_magic, MAGIC_BYTES);
    store_le32(bytes + AT_VERSION, greeting->version);
    store_le32(bytes + AT_MESSAGES, greeting->messages);
    store_le32(bytes + AT_KIND, (uint32_t)greeting->kind);
    store_le32(bytes + AT_RANK, greeting->rank);
    store_le32(bytes + AT_RANKS, greeting->ranks);
    store_le32(bytes + AT_PEER, greeting->peer);
    pici_place_put(bytes + AT_PLACE, &greeting->place);
    memcpy(bytes + AT_TOKEN, greeting->token, sizeof greeting->token);
    memcpy(bytes + AT_HOST, greeting->host, sizeof greeting->host);
}

enum pici_status pici_greeting_get(struct greeting *greeting, const uint8_t bytes[GREETING_BYTES])
{
    static const uint8_t zeros[GREETING_BYTES - AT_REST];
    const uint32_t kind = load_le32(bytes + AT_KIND);
    *greeting = (struct greeting){0};
    if (memcmp(bytes, greeting_magic, MAGIC_BYTES) != 0 || kind < GREETING_JOIN || kind > GREETING_MEET)
        return PICI_E_CORRUPT;
    greeting->version = load_le32(bytes + AT_VERSION);
    greeting->messages = load_le32(bytes + AT_MESSAGES);
    greeting->kind = (enum greeting_kind)kind;
    greeting->rank = load_le32(bytes + AT_RANK);
    greeting->ranks = load_le32(bytes + AT_RANKS);
    greeting->peer = load_le32(bytes + AT_PEER);
    memcpy(greeting->token, bytes + AT_TOKEN, sizeof greeting->token);
    if (greeting->version != GREETING_VERSION)
        return PICI_OK;
    memcpy(greeting->host, bytes + AT_HOST, sizeof greeting->host);
    if (memcmp(bytes + AT_REST, zeros, sizeof zeros) != 0)
        return PICI_E_CORRUPT;
    return pici_place_get(&greeting->place, bytes + AT_PLACE);
}

int pici_greeting_token(const char one[GREETING_TOKEN], const char other[GREETING_TOKEN])
{
    volatile unsigned differ = 0; /* volatile: the compiler must not leave the loop early */
    for (int i = 0; i < GREETING_TOKEN; i++)
        differ |= (unsigned)(unsigned char)(one[i] ^ other[i]);
    return differ == 0;
}

int pici_greeting_wrong(const struct greeting *greeting, const struct greeting *own, int sender, char *explanation,
                        size_t bytes)
{
    const unsigned long rank = greeting->rank, ranks = greeting->ranks, own_ranks = own->ranks;
    if (greeting->version != own->version || greeting->messages != own->messages)
        snprintf(explanation, bytes,
                 "rank %lu runs an incompatible version of pici: message version %lu.%lu, here %lu.%lu; install the "
                 "same version on all ranks",
                 rank, (unsigned long)greeting->version, (unsigned long)greeting->messages, (unsigned long)own->version,
                 (unsigned long)own->messages);
    else if (greeting->kind != own->kind)
        snprintf(explanation, bytes, "rank %lu is out of step with the rendezvous: restart all ranks", rank);
    else if (ranks != own_ranks)
        snprintf(explanation, bytes,
                 "rank %lu has world size %lu, rank %lu has %lu: pass the same number of ranks everywhere", rank, ranks,
                 (unsigned long)own->rank, own_ranks);
    else if (rank >= ranks)
        snprintf(explanation, bytes, "rank %lu out of range (world size %lu)", rank, ranks);
    else if (sender >= 0 && rank != (unsigned long)sender)
        snprintf(explanation, bytes, "the socket for rank %d is connected to rank %lu", sender, rank);
    else if (rank == own->rank)
        snprintf(explanation, bytes, "two processes claim rank %lu", rank);
    else if (greeting->peer != own->rank)
        snprintf(explanation, bytes, "the socket of rank %lu for rank %lu is connected to rank %lu", rank,
                 (unsigned long)greeting->peer, (unsigned long)own->rank);
    else
        return 0;
    return 1;
}

/* ---- verdicts */

void pici_verdict_put(uint8_t bytes[VERDICT_BYTES], const struct greeting_verdict *verdict)
{
    memset(bytes, 0, VERDICT_BYTES);
    memcpy(bytes, verdict_magic, MAGIC_BYTES);
    store_le32(bytes + AT_STATUS, (uint32_t)verdict->status);
    store_le32(bytes + AT_FINDER, verdict->rank);
    memcpy(bytes + AT_TEXT, verdict->text, strnlen(verdict->text, VERDICT_TEXT - 1));
}

/* The length in bytes of the UTF-8 character at text. Returns 0 if it must not reach a terminal: a control (C1 controls
 * have two bytes), an invisible or reordering character, or invalid UTF-8. */
static int printable(const char *text)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* by length */
    const uint8_t first = (uint8_t)text[0];
    if (first < 0x80)
        return first >= ' ' && first != 0x7f;
    int bytes = 0;
    if (first >= 0xc2 && first < 0xe0)
        bytes = 2;
    else if (first >= 0xe0 && first < 0xf0)
        bytes = 3;
    else if (first >= 0xf0 && first < 0xf8)
        bytes = 4;
    uint32_t code = first & (0x7fU >> bytes);
    for (int i = 1; i < bytes; i++) {
        if (((uint8_t)text[i] & 0xc0) != 0x80) /* the terminating zero too */
            return 0;
        code = code << 6 | ((uint8_t)text[i] & 0x3f);
    }
    const int surrogate = code >= 0xd800 && code < 0xe000, format = code >= 0x2000 && code < 0x2070;
    if (code < least[bytes] || code < 0xa0 || surrogate || format || code == 0xfeff || code >= 0xe0000)
        return 0;
    return bytes;
}

enum pici_status pici_verdict_get(struct greeting_verdict *verdict, const uint8_t message[VERDICT_BYTES])
{
    *verdict = (struct greeting_verdict){.status = PICI_OK};
    if (memcmp(message, verdict_magic, MAGIC_BYTES) != 0 || message[VERDICT_BYTES - 1])
        return PICI_E_CORRUPT;
    verdict->status = pici_msg_status(load_le32(message + AT_STATUS));
    verdict->rank = load_le32(message + AT_FINDER);
    memcpy(verdict->text, message + AT_TEXT, sizeof verdict->text);
    for (char *cursor = verdict->text; *cursor;) {
        const int bytes = printable(cursor);
        if (bytes == 0)
            *cursor = '?';
        cursor += bytes ? bytes : 1;
    }
    return PICI_OK;
}

/* ---- offers */

void pici_offer_put(uint8_t bytes[OFFER_BYTES], const struct greeting_offer *offer)
{
    memset(bytes, 0, OFFER_BYTES);
    memcpy(bytes, offer_magic, MAGIC_BYTES);
    store_le32(bytes + AT_OFFER, (uint32_t)offer->kind);
    store_le32(bytes + AT_PROCESS, offer->process);
    store_le32(bytes + AT_DESCRIPTOR, offer->descriptor);
    store_le32(bytes + AT_RING, offer->ring_bytes);
    store_le64(bytes + AT_DEVICE, offer->device);
    store_le64(bytes + AT_INODE, offer->inode);
    store_le32(bytes + AT_CONNECTIONS, offer->connections);
    store_le32(bytes + AT_CONNECTIONS_PORT, offer->port);
    memcpy(bytes + AT_CONNECTIONS_TOKEN, offer->token, sizeof offer->token);
}

enum pici_status pici_offer_get(struct greeting_offer *offer, const uint8_t bytes[OFFER_BYTES])
{
    const uint32_t kind = load_le32(bytes + AT_OFFER);
    *offer = (struct greeting_offer){.kind = OFFER_NOTHING};
    if (memcmp(bytes, offer_magic, MAGIC_BYTES) != 0 || kind > OFFER_CONNECTIONS)
        return PICI_E_CORRUPT;
    offer->kind = (enum offer_kind)kind;
    offer->process = load_le32(bytes + AT_PROCESS);
    offer->descriptor = load_le32(bytes + AT_DESCRIPTOR);
    offer->ring_bytes = load_le32(bytes + AT_RING);
    offer->device = load_le64(bytes + AT_DEVICE);
    offer->inode = load_le64(bytes + AT_INODE);
    offer->connections = load_le32(bytes + AT_CONNECTIONS);
    offer->port = load_le32(bytes + AT_CONNECTIONS_PORT);
    memcpy(offer->token, bytes + AT_CONNECTIONS_TOKEN, sizeof offer->token);
    return PICI_OK;
}
