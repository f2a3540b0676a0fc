/* SPDX-License-Identifier: BSD-3-Clause */
#include "predict/neighbor.h"

/* Seconds from the begin of a message to its end, inside a node and between nodes. */
static const double LATENCY[2] = {2e-6, 20e-6};

/* The blocks of the busiest node of each step, summed over the steps, minus the blocks of the node that is busiest
 * overall. */
static double waits(const struct neighbor_route *route)
{
    const int nodes = route->nodes->nodes;
    double steps = 0, most = 0;
    for (int part = 0; part < NEIGHBOR_PARTS; part++) {
        uint32_t busiest = 0;
        for (int i = 0; i < 2 * nodes; i++) {
            const uint32_t blocks = route->part[part * nodes + i / 2][i % 2];
            busiest = blocks > busiest ? blocks : busiest;
        }
        steps += busiest;
    }
    for (int i = 0; i < 2 * nodes; i++) {
        double all = 0;
        for (int part = 0; part < NEIGHBOR_PARTS; part++)
            all += route->part[part * nodes + i / 2][i % 2];
        most = all > most ? all : most;
    }
    return steps - most;
}

double pici_neighbor_seconds(const struct neighbor_route *route, double bytes, double slices, const double bandwidth[2])
{
    const double wait = route->part ? waits(route) / slices * bytes / bandwidth[1] : 0;
    double most = 0;
    for (int node = 0; node < route->nodes->nodes && route->load; node++) {
        double sent = 0, received = 0;
        for (int i = route->nodes->begin[node]; i < route->nodes->begin[node + 1]; i++) {
            const struct neighbor_load *load = &route->load[i];
            for (int way = 0; way < 2; way++) {
                double seconds = 0;
                for (int link = 0; link < 2; link++)
                    seconds +=
                        load->messages[way][link] * LATENCY[link] + load->blocks[way][link] * bytes / bandwidth[link];
                most = seconds > most ? seconds : most;
            }
            sent += load->blocks[0][1] * bytes / bandwidth[1];
            received += load->blocks[1][1] * bytes / bandwidth[1];
        }
        most = sent > most ? sent : most;
        most = received > most ? received : most;
    }
    return most + wait;
}
