/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The message path of neighbourhood all-gathers. Position 0 of four runs a call over a transport that takes other
 * ranks' messages from the input, and drops sent messages.
 *   byte 0    Bits 0 to 3: dtype. Bit 4: all_gatherv. Bit 5: halving, else direct. Bit 6: with the status agreement.
 *             Bit 7: with a lossy codec, byte 1 modulo 3, if it has the dtype
 *   byte 1    the graph: a seed of its edges
 *   byte 2    elements of a contribution, in units of 37
 *   the rest  messages, in the order in which they are received: 2 bytes, then the message. Of the 2 bytes, bits 0 to
 *             14 are the length; bit 15: the prefix is valid. The call must end for any input. After PICI_OK every slot
 *             was written by a block that pici_decompress takes, or by
 * arrays that the codec takes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "coll/neighbor.h"
#include "coll/request.h"

enum { RANKS = 4, MOST_SLOTS = 8 };

struct wire {
    const uint8_t *data;
    size_t left;
    struct pici_comm *comm;
};

/* A received message: its bytes in the input. */
struct message {
    size_t len;
};

static enum pici_status wire_send(void *context, int to, const void *data, size_t bytes, void **request)
{
    struct message *m = calloc(1, sizeof *m);
    (void)context;
    (void)to;
    (void)data;
    require(m != NULL);
    m->len = bytes;
    *request = m;
    return PICI_OK;
}

static enum pici_status wire_recv(void *context, int from, void *data, size_t cap, void **request)
{
    struct wire *w = context;
    struct message *m = calloc(1, sizeof *m);
    const struct pici_request *r = w->comm->head;
    int proper = 0;
    (void)from;
    require(m != NULL);
    if (w->left >= 2) {
        m->len = (size_t)(w->data[0] | (w->data[1] & 0x7f) << 8);
        proper = w->data[1] >> 7;
        w->data += 2;
        w->left -= 2;
    }
    m->len = m->len < w->left ? m->len : w->left;
    m->len = m->len < cap ? m->len : cap;
    if (m->len)
        memcpy(data, w->data, m->len);
    w->data += m->len;
    w->left -= m->len;
    if (proper && m->len >= MSG_BYTES && r->state == COLL_DATA) {
        const struct msg_prefix p = {.kind = r->call.opts.values.phases ? MSG_CODED : MSG_DATA,
                                     .dtype = (unsigned)r->call.args.dtype,
                                     .op = r->call.resolved.said.op,
                                     .algorithm = NEIGHBOR_ID,
                                     .sequence = r->sequence,
                                     .slice = (r->next_post.round * (uint64_t)r->call.resolved.layout.window +
                                               (uint64_t)r->next_post.slice_index) |
                                              (uint64_t)r->tag << 32,
                                     .step = (uint32_t)r->next_post.step,
                                     .blocks = (uint32_t)(r->posting.receives ? ((uint8_t *)data)[28] : 0)};
        pici_msg_put(data, &p);
    }
    *request = m;
    return PICI_OK;
}

static enum pici_status wire_test(void *context, void *request, int *done, size_t *bytes)
{
    struct message *m = request;
    (void)context;
    *done = 1;
    if (bytes)
        *bytes = m->len;
    free(m);
    return PICI_OK;
}

static int wire_abandon(void *context, enum pici_status why)
{
    (void)context;
    (void)why;
    return 0;
}

static void wire_close(void *context)
{
    (void)context;
}

/* Edges are bits of a hash. Everybody sends to rank 0, so that it receives something. */
static int edge(unsigned seed, int from, int to)
{
    return from != to && (to == 0 || (seed * 2654435761u >> (from * RANKS + to)) & 1);
}

static struct pici_values values_of(const uint8_t *data, enum pici_dtype dtype)
{
    struct pici_values values = PICI_VALUES_INIT, none = PICI_VALUES_INIT;
    struct values resolved;
    values.codec = (enum pici_value_codec)(PICI_VALUES_CAST + data[1] % 3);
    if (values.codec == PICI_VALUES_ZFP)
        values.rate = 8;
    const int usable = data[0] >> 7 && !pici_values_resolve(&resolved, &values, dtype, PICI_SUM);
    return usable ? values : none;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len < 3)
        return 0;
    struct wire w = {.data = data + 3, .left = len - 3};
    struct pici_transport t = PICI_TRANSPORT_INIT;
    struct pici_comm *comm = NULL;
    t.context = &w;
    t.ranks = RANKS;
    t.send = wire_send;
    t.recv = wire_recv;
    t.test = wire_test;
    t.abandon = wire_abandon;
    t.close = wire_close;
    require(pici_comm_transport(&comm, &t) == PICI_OK);
    w.comm = comm;

    static const int node_of[RANKS] = {0, 0, 1, 1};
    uint64_t rows[RANKS] = {0}, counts[MOST_SLOTS], displs[MOST_SLOTS];
    int slots[MOST_SLOTS], begin[RANKS + 1] = {0}, sources = 0;
    const enum pici_dtype dtype = (enum pici_dtype)(1 + (data[0] & 15) % 14);
    const size_t width = pici_dtype_width(dtype);
    const uint64_t n = data[2] * UINT64_C(37);
    require(pici_comm_set_nodes(comm, node_of) == PICI_OK);
    for (int i = 0; i < RANKS; i++) {
        for (int j = 0; j < RANKS; j++)
            rows[i] |= (uint64_t)edge(data[1], i, j) << j;
        for (int twice = 0; twice < 1 + (i == 2) && edge(data[1], i, 0); twice++) {
            slots[sources] = sources;
            counts[sources] = n - (data[0] & 16 ? (uint64_t)i * n / 8 : 0);
            displs[sources] = (uint64_t)sources * n;
            sources++;
        }
        begin[i + 1] = sources;
    }
    const struct neighbor_graph g = {RANKS, 1, rows, &comm->on_nodes, NULL};
    const enum pici_route route = data[0] & 32 ? PICI_ROUTE_HALVING : PICI_ROUTE_DIRECT;
    struct pici_neighbor_plan plan = {.comm = comm,
                                      .hash = 1,
                                      .route = route,
                                      .most_bytes = n * width,
                                      .sources = sources,
                                      .slot_begin = begin,
                                      .slots = slots,
                                      .bandwidth = {1, 1}};
    struct neighbor_route *own =
        route == PICI_ROUTE_HALVING ? pici_neighbor_halving(&g, 0, 0, 1) : pici_neighbor_direct(&g, 0);
    require(own != NULL);
    plan.routes[route] = own;
    plan.widest[route] = own->counts.widest;
    plan.blocks[route] = own->room_blocks;
    uint8_t *send = memory(n * width), *recv = memory((size_t)sources * n * width);
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    if (n)
        memset(send, 1, n * width);
    const struct pici_values values = values_of(data, dtype);
    opts.values = &values;
    opts.agree = data[0] >> 6 & 1;
    opts.slice_bytes = 1;
    opts.timeout_ms = 1;
    enum pici_status s = data[0] & 16 ? pici_neighbor_all_gatherv(send, n, recv, counts, displs, dtype, &plan, &opts)
                                      : pici_neighbor_all_gather(send, recv, n, dtype, &plan, &opts);
    require(s <= PICI_OK);
    require(s || n == 0 || len > 3); /* without input, nothing arrives */
    require(!s || pici_comm_error(comm)[0]);
    free(send);
    free(recv);
    pici_neighbor_free(own);
    pici_comm_free(comm);
    return 0;
}
