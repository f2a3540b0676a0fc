/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages that a rank receives in the agreement rounds. The input:
 *   byte 0    Bit 0: the status agreement, not the call agreement. Bit 1: the word gets the right hash. Bit 2: the
 *             message is this rank's own message of the round, with edits. Bits 3, 4: 2 to 5 ranks. Bits 5, 6: the call
 *             is an all_reduce, a broadcast from rank 1, an all_gatherv, or an all_reduce of balanced owners
 *   the rest  the message; with bit 2 the edits: an offset and a byte to write there, each
 *
 * A rank makes a call and receives the message from each peer in every round. With 2 or 4 ranks, its data travel
 * with the call agreement. The peers send nothing else, so the call must end with an error and a message. Then the
 * fuzzer parses the message. A valid message must be written again as the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "coll/message.h"
#include "formats/ref.h"
#include "fuzz/peer.h"

struct greeter {
    struct peer peer;
    const uint8_t *message; /* or edits */
    size_t len;
    int flags, rounds, heard;
};

static void set_hash(uint8_t *message, size_t len)
{
    const uint64_t hash = len < 8 ? 0 : ref_xxh64(message, len - 8);
    for (size_t i = 0; len >= 8 && i < 8; i++)
        message[len - 8 + i] = (uint8_t)(hash >> 8 * i);
}

/* The message, in memory of its exact size. */
static uint8_t *make(const struct greeter *p, size_t *len)
{
    const int edited = p->flags & 4;
    *len = edited ? p->peer.sent_bytes : p->len;
    uint8_t *m = memory(*len);
    memcpy(m, edited ? p->peer.sent : p->message, *len);
    for (size_t i = 0; edited && *len && i + 1 < p->len; i += 2)
        m[p->message[i] % *len] = p->message[i + 1];
    if (p->flags & 2)
        set_hash(m, edited && *len > AGREE_BYTES && *len != AGREE_MOST ? AGREE_BYTES : *len);
    return m;
}

static void parse(const uint8_t *m, size_t len, enum msg_kind kind)
{
    struct msg_word w;
    uint8_t again[AGREE_MOST];
    const enum pici_status s = pici_msg_get_word(&w, m, len, kind);
    require(s == PICI_OK || s == PICI_E_CORRUPT || s == PICI_E_PEER);
    if (s == PICI_E_PEER)
        require(w.version != MSG_VERSION);
    if (s)
        return;
    const size_t said = pici_msg_put_word(again, &w);
    require((len == said || (len > said && w.prefix.blocks)) && w.prefix.kind == kind);
    require(said == AGREE_BYTES || (said == AGREE_MOST && kind == MSG_AGREE_CALL));
    require(memcmp(again, m, said) == 0);
}

/* ---- a transport whose peers send the call agreement and then disappear */

static enum pici_status greeter_test(void *context, void *request, int *done, size_t *bytes)
{
    struct greeter *p = context;
    *done = 1;
    if (request == &p->peer.sending)
        return PICI_OK;
    if (p->heard == p->rounds)
        return PICI_E_PEER;
    p->heard++;
    size_t len;
    uint8_t *m = make(p, &len);
    return peer_arrive(&p->peer, m, len, bytes);
}

static void call(struct greeter *p, int ranks)
{
    static const uint64_t counts[] = {7, 0, 3, 9, 1};
    enum { MANY = 5000 };
    float a[7] = {1, 0, -2}, b[7 + 0 + 3 + 9 + 1];
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    int32_t *many = memory(MANY * sizeof *many);
    struct pici_comm *comm;
    const struct pici_transport t = peer_transport(&p->peer, ranks, greeter_test);
    for (p->rounds = 0; 1 << p->rounds < ranks;)
        p->rounds++;
    require(pici_comm_transport(&comm, &t) == PICI_OK);
    const int kind = p->flags >> 5 & 3;
    memset(many, 0, MANY * sizeof *many);
    many[7] = many[9] = 1;
    opts.balance = PICI_BALANCE_ON;
    require((kind == 1   ? pici_broadcast(a, 7, PICI_F32, 1, comm, NULL)
             : kind == 2 ? pici_all_gatherv(a, 7, b, counts, NULL, PICI_F32, comm, NULL)
             : kind == 3 ? pici_all_reduce(many, many, MANY, PICI_I32, PICI_SUM, comm, &opts)
                         : pici_all_reduce(a, b, 7, PICI_F32, PICI_SUM, comm, NULL)) != PICI_OK);
    require(pici_comm_error(comm)[0]);
    pici_comm_free(comm);
    free(many);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (!len)
        return 0;
    struct greeter *p = memory(sizeof *p);
    p->message = data + 1;
    p->len = len - 1;
    p->flags = data[0];
    call(p, 2 + (data[0] >> 3 & 3));
    size_t bytes;
    uint8_t *m = make(p, &bytes);
    parse(m, bytes, data[0] & 1 ? MSG_AGREE_STATUS : MSG_AGREE_CALL);
    free(m);
    free(p);
    return 0;
}
