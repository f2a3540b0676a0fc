/* SPDX-License-Identifier: BSD-3-Clause */
#include "schedule/schedule.h"

#include <string.h>

enum { TILE = 4096, TILES_MIN = 64 /* segments of so many tiles or more begin at a tile */ };

/* ---- memory of a step */

size_t pici_schedule_step_bytes(const struct schedule_limits *l)
{
    return (size_t)(l->sends + l->receives) * (sizeof(struct schedule_message) + (size_t)l->segments * sizeof(int));
}

void pici_schedule_step_init(struct schedule_step *s, const struct schedule_limits *l, void *memory)
{
    const int messages = l->sends + l->receives;
    struct schedule_message *m = memory;
    int *segments = (int *)(void *)(m + messages);
    memset(s, 0, sizeof *s);
    for (int i = 0; i < messages; i++)
        m[i].segments = segments + (size_t)i * (size_t)l->segments;
    s->send = m;
    s->receive = m + l->sends;
}

/* ---- segments and order */

/* Where segment i begins; i == p: where the last ends. */
static uint64_t cut(uint64_t n, int p, int i)
{
    uint64_t parts = (uint64_t)p, at = (uint64_t)i;
    uint64_t first = at * (n / parts) + at * (n % parts) / parts; /* floor(i*n/p); i*n may not fit in 64 bits */
    return i < p && n / parts >= TILES_MIN * TILE ? first - first % TILE : first;
}

void pici_schedule_segment(uint64_t n, int p, int i, uint64_t *first, uint64_t *len)
{
    *first = cut(n, p, i);
    *len = cut(n, p, i + 1) - *first;
}

int pici_schedule_node(const struct schedule_nodes *n, int position)
{
    int low = 0, high = n ? n->nodes : 1;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (n->begin[middle] <= position)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void pici_schedule_segment_by_node(uint64_t n, const struct schedule_nodes *nodes, int position, uint64_t *first,
                                   uint64_t *len)
{
    const int node = pici_schedule_node(nodes, position), begin = nodes->begin[node];
    uint64_t all, within;
    pici_schedule_segment(n, nodes->nodes, node, first, &all);
    pici_schedule_segment(all, nodes->begin[node + 1] - begin, position - begin, &within, len);
    *first += within;
}

void pici_schedule_order(const int *node_of, int p, int *order)
{
    int at = 0;
    for (int r = 0; r < p; r++) {
        int seen = 0;
        while (seen < r && node_of[seen] != node_of[r])
            seen++;
        if (seen < r)
            continue; /* it was placed with its node's lowest rank */
        for (int q = r; q < p; q++)
            if (node_of[q] == node_of[r])
                order[at++] = q;
    }
}
