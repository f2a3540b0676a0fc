/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Coded messages, in a call of two ranks with a lossy codec. The input:
 *   byte 0    Bits 0 to 2: codec and its parameters. Bits 3, 4: the collective. Bit 5: by doubling, not split. Bit 6:
 *             the messages are this rank's own, with edits. Bit 7: blocks have a checksum
 *   byte 1    elements, times 5
 *   the rest  the message behind its prefix; with bit 6 the edits: an offset and a byte to write there, each
 * The peer agrees to this rank's call, and sends the message wherever a data message is due. The call must end with
 * PICI_OK or with an error message, and write results and residuals only within their bounds. */
#include <stdlib.h>
#include <string.h>

#include "coll/message.h"
#include "fuzz/peer.h"

struct sender {
    struct peer peer;
    const uint8_t *input;
    size_t len;
    int edits;
};

/* The answer to the last message sent: the same word, poison, or data. */
static size_t answer(const struct sender *p, uint8_t *m)
{
    size_t len = p->peer.sent_bytes;
    memcpy(m, p->peer.sent, len);
    if (m[4] != MSG_CODED && m[4] != MSG_DATA)
        return len;
    if (!p->edits) {
        len = MSG_BYTES + p->len < PEER_ROOM ? MSG_BYTES + p->len : PEER_ROOM;
        memcpy(m + MSG_BYTES, p->input, len - MSG_BYTES);
    }
    for (size_t i = 0; p->edits && i + 1 < p->len; i += 2)
        m[p->input[i] % len] = p->input[i + 1];
    return len;
}

static enum pici_status sender_test(void *context, void *request, int *done, size_t *bytes)
{
    struct sender *p = context;
    *done = request == &p->peer.sending || p->peer.sent_bytes; /* otherwise there is nothing to answer yet */
    if (request == &p->peer.sending || !*done)
        return PICI_OK;
    uint8_t *m = memory(PEER_ROOM);
    const size_t len = answer(p, m);
    return peer_arrive(&p->peer, m, len, bytes);
}

static const struct {
    enum pici_dtype dtype;
    struct pici_values values;
} codecs[8] = {
#define VALUES(...)                                                                                                    \
    {                                                                                                                  \
        .size = sizeof(struct pici_values), __VA_ARGS__                                                                \
    }
    {PICI_F32, VALUES(.codec = PICI_VALUES_CAST)},
    {PICI_F64, VALUES(.codec = PICI_VALUES_CAST)},
    {PICI_F32, VALUES(.codec = PICI_VALUES_QSGD, .bits = 8, .bucket = 64)},
    {PICI_F64, VALUES(.codec = PICI_VALUES_QSGD, .bits = 4, .bucket = 128)},
    {PICI_F16, VALUES(.codec = PICI_VALUES_QSGD, .bits = 2, .bucket = 256, .phases = 1)},
    {PICI_F32, VALUES(.codec = PICI_VALUES_ZFP, .rate = 8)},
    {PICI_F64, VALUES(.codec = PICI_VALUES_ZFP, .tolerance = 0.01)},
    {PICI_F32, VALUES(.codec = PICI_VALUES_ZFP, .tolerance = 0.01, .nx = 5)},
};

static void call(struct sender *p, const uint8_t head[2])
{
    const enum pici_dtype dtype = codecs[head[0] & 7].dtype;
    const enum pici_collective kind = (enum pici_collective)(1 + (head[0] >> 3 & 3) % 3);
    const uint64_t count = 5 * (uint64_t)head[1];
    const size_t bytes = (size_t)count * pici_dtype_width(dtype),
                 sends = kind == PICI_REDUCE_SCATTER ? 2 * bytes : bytes,
                 receives = kind == PICI_ALL_GATHER ? 2 * bytes : bytes;
    uint8_t *send = memory(sends), *recv = memory(receives), *residual = memory(sends);
    struct pici_values values = codecs[head[0] & 7].values;
    struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
    struct pici_comm *comm;
    const struct pici_transport t = peer_transport(&p->peer, 2, sender_test);
    enum pici_status s;
    for (size_t i = 0; i < sends; i++)
        send[i] = (uint8_t)(i * i >> 3 ^ i * 151);
    memset(residual, 0, sends);
    values.residual = residual;
    o.values = &values;
    o.checksum = head[0] & 128 ? 1 : -1;
    o.algorithm = head[0] & 32 && kind == PICI_ALL_REDUCE ? PICI_ALGO_DOUBLING : PICI_ALGO_SPLIT;
    require(pici_comm_transport(&comm, &t) == PICI_OK);
    if (kind == PICI_ALL_GATHER)
        s = pici_all_gather(send, recv, count, dtype, comm, &o);
    else if (kind == PICI_REDUCE_SCATTER)
        s = pici_reduce_scatter(send, recv, count, dtype, PICI_SUM, comm, &o);
    else
        s = pici_all_reduce(send, recv, count, dtype, PICI_AVG, comm, &o);
    require(s == PICI_OK || s == PICI_E_CORRUPT || s == PICI_E_CHECKSUM || s == PICI_E_VERSION ||
            s == PICI_E_UNSUPPORTED);
    require(s == PICI_OK || (values.codec == PICI_VALUES_ZFP && s == PICI_E_UNSUPPORTED) || pici_comm_error(comm)[0]);
    pici_comm_free(comm);
    free(send);
    free(recv);
    free(residual);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len < 2)
        return 0;
    struct sender *p = memory(sizeof *p);
    p->input = data + 2;
    p->len = len - 2;
    p->edits = data[0] & 64;
    call(p, data);
    free(p);
    return 0;
}
