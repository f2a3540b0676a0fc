/* SPDX-License-Identifier: BSD-3-Clause */
#include "schedule/schedule.h"

#include <string.h>

enum { TILE = 4096, TILES_MIN = 64 /* segments of at least this many tiles begin at a tile */ };

/* ---- memory of a step */

size_t pici_schedule_step_bytes(const struct schedule_limits *limits)
{
    return (size_t)(limits->sends + limits->receives) *
           (sizeof(struct schedule_message) + (size_t)limits->segments * sizeof(int));
}

void pici_schedule_step_init(struct schedule_step *step, const struct schedule_limits *limits, void *memory)
{
    const int messages = limits->sends + limits->receives;
    struct schedule_message *list = memory;
    int *segments = (int *)(void *)(list + messages);
    memset(step, 0, sizeof *step);
    for (int i = 0; i < messages; i++)
        list[i].segments = segments + (size_t)i * (size_t)limits->segments;
    step->send = list;
    step->receive = list + limits->sends;
}

/* ---- segments and order */

/* Where segment i begins; i == p: where the last ends. */
static uint64_t cut(uint64_t n, int p, int i)
{
    uint64_t parts = (uint64_t)p, segment = (uint64_t)i;
    /* floor(i*n/p); i*n may not fit in 64 bits */
    uint64_t first = segment * (n / parts) + segment * (n % parts) / parts;
    return i < p && n / parts >= TILES_MIN * TILE ? first - first % TILE : first;
}

void pici_schedule_segment(uint64_t n, int p, int i, uint64_t *first, uint64_t *count)
{
    *first = cut(n, p, i);
    *count = cut(n, p, i + 1) - *first;
}

int pici_schedule_node(const struct schedule_nodes *nodes, int virtual_rank)
{
    int low = 0, high = nodes ? nodes->nodes : 1;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (nodes->begin[middle] <= virtual_rank)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void pici_schedule_segment_by_node(uint64_t n, const struct schedule_nodes *nodes, int virtual_rank, uint64_t *first,
                                   uint64_t *count)
{
    const int node = pici_schedule_node(nodes, virtual_rank), begin = nodes->begin[node];
    uint64_t of_node, within;
    pici_schedule_segment(n, nodes->nodes, node, first, &of_node);
    pici_schedule_segment(of_node, nodes->begin[node + 1] - begin, virtual_rank - begin, &within, count);
    *first += within;
}

void pici_schedule_order(const int *node_of, int p, int *order)
{
    int placed = 0;
    for (int r = 0; r < p; r++) {
        int seen = 0;
        while (seen < r && node_of[seen] != node_of[r])
            seen++;
        /* it was placed with its node's lowest rank */
        if (seen < r)
            continue;
        for (int other = r; other < p; other++)
            if (node_of[other] == node_of[r])
                order[placed++] = other;
    }
}
