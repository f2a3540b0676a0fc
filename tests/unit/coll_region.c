/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Sockets and NUMA domains by the files of a made-up machine, and plans by regions that the ranks give. */
#define _GNU_SOURCE
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "coll/region.h"
#include "tests/util/coll.h"
#include "tests/util/util.h"

/* ---- a machine */

enum { CPUS = 16 };

static char root[64];

static void put(const char *folder, const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "mkdir -p %s/%s", root, folder);
    cr_assert_eq(system(path), 0);
    snprintf(path, sizeof path, "%s/%s/%s", root, folder, name);
    FILE *file = fopen(path, "w");
    cr_assert(file);
    fputs(text, file);
    fclose(file);
}

/* 16 CPUs, two sockets, four domains, of which two have several ranges and one no CPUs. CPU 15 has no files. */
static void make(void)
{
    char folder[40], text[8];
    strcpy(root, "/tmp/pici_region_XXXXXX");
    cr_assert(mkdtemp(root));
    for (int cpu = 0; cpu < CPUS - 1; cpu++) {
        snprintf(folder, sizeof folder, "cpu/cpu%d/topology", cpu);
        snprintf(text, sizeof text, "%d\n", cpu % 8 < 4 ? 0 : 36);
        put(folder, "physical_package_id", text);
    }
    put("node/node0", "cpulist", "0-1,8\n");
    put("node/node1", "cpulist", "2-3,9-11\n");
    put("node/node2", "cpulist", "\n");
    put("node/node4", "cpulist", "4,5,6,7,12-14\n");
}

static void forget(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -r %s", root);
    cr_assert_eq(system(command), 0);
}

static int region_of(enum pici_level level, const char *cpus)
{
    unsigned char set[CPUS / 8] = {0};
    for (int i = 0; cpus[i]; i++) {
        const int cpu = cpus[i] <= '9' ? cpus[i] - '0' : cpus[i] - 'a' + 10;
        set[cpu / 8] |= (unsigned char)(1 << cpu % 8);
    }
    return pici_region_of(level, root, set, CPUS);
}

Test(coll_region, machine)
{
    static const struct {
        const char *cpus;
        int socket, numa;
    } want[] = {{"0", 0, 0},    {"8", 0, 0},  {"018", 0, 0},          {"08", 0, 0},       {"3", 0, 1},
                {"29ab", 0, 1}, {"4", 36, 4}, {"457", 36, 4},         {"4567cde", 36, 4}, {"13", 0, -1},
                {"34", -1, -1}, {"", -1, -1}, {"0123456789", -1, -1}, {"f", -1, -1},      {"ef", -1, -1}};
    make();
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        cr_expect_eq(region_of(PICI_LEVEL_SOCKET, want[i].cpus), want[i].socket, "CPUs %s: socket %d", want[i].cpus,
                     region_of(PICI_LEVEL_SOCKET, want[i].cpus));
        cr_expect_eq(region_of(PICI_LEVEL_NUMA, want[i].cpus), want[i].numa, "CPUs %s: domain %d", want[i].cpus,
                     region_of(PICI_LEVEL_NUMA, want[i].cpus));
    }
    put("node/node0", "cpulist", "0-x\n");
    put("cpu/cpu1/topology", "physical_package_id", "no\n");
    cr_expect_eq(region_of(PICI_LEVEL_NUMA, "1"), -1);
    cr_expect_eq(region_of(PICI_LEVEL_SOCKET, "1"), -1);
    put("node/node0", "cpulist", "-7-99999999999,3\n");
    cr_expect_eq(region_of(PICI_LEVEL_NUMA, "f"), 0);
    cr_expect_geq(pici_region_own(PICI_LEVEL_SOCKET), -1);
    cr_expect_geq(pici_region_own(PICI_LEVEL_NUMA), -1);
    forget();
}

/* ---- plans */

/* A complete graph of ranks on one node, or on two, dealt out to three regions. */
struct team {
    int p, nodes;
    enum pici_level level[2]; /* of rank 0, and of the others */
    struct pici_comm *comm[17];
    struct pici_neighbor_info info[17];
    enum pici_status status[17];
};

static void plan_rank(void *context, int rank)
{
    struct team *t = context;
    struct pici_neighbor_plan *plan = NULL;
    struct pici_neighbor_opts opts = PICI_NEIGHBOR_OPTS_INIT;
    int all[17], node_of[17];
    for (int i = 0; i < t->p; i++) {
        all[i] = i;
        node_of[i] = i * t->nodes / t->p;
    }
    opts.route = PICI_ROUTE_HALVING;
    opts.gain = 1;
    opts.level = t->level[rank > 0];
    opts.region = 100 * (rank % 3);
    t->status[rank] = pici_comm_set_nodes(t->comm[rank], node_of);
    if (!t->status[rank])
        t->status[rank] = pici_neighbor_plan_create(&plan, t->comm[rank], t->p, all, t->p, all, &opts);
    t->info[rank] = (struct pici_neighbor_info)PICI_NEIGHBOR_INFO_INIT;
    (void)pici_neighbor_plan_info(plan, &t->info[rank]);
    pici_neighbor_plan_free(plan);
}

static void run(struct team *t)
{
    cr_assert_eq(pici_comm_threads(t->comm, t->p), PICI_OK);
    coll_threads(t->p, plan_rank, t);
}

static void end(struct team *t)
{
    for (int r = 0; r < t->p; r++)
        pici_comm_free(t->comm[r]);
}

/* In a complete graph each block enters each region of its node once, if relays are worth it to all. By nodes alone,
 * each rank sends each other rank of its node a message. */
Test(coll_region, plans)
{
    for (int nodes = 1; nodes <= 2; nodes++)
        for (int p = 12; p <= 17; p++) {
            struct team by_region = {.p = p, .nodes = nodes, .level = {PICI_LEVEL_REGION, PICI_LEVEL_REGION}},
                        by_node = {.p = p, .nodes = nodes};
            run(&by_region);
            run(&by_node);
            for (int r = 0; r < p; r++) {
                const struct pici_neighbor_info *info = &by_region.info[r];
                cr_assert_eq(by_region.status[r], PICI_OK, "%s", pici_comm_error(by_region.comm[r]));
                cr_expect_eq(info->regions, 3u * (unsigned)nodes);
                cr_expect_geq(info->region_blocks, 2u * (unsigned)(p * nodes));
                cr_expect_leq(info->region_blocks, 3u * (unsigned)(p * nodes));
                cr_expect_lt(info->messages, by_node.info[r].messages);
                cr_expect_eq(by_node.info[r].regions, (unsigned)nodes);
                cr_expect_eq(by_node.info[r].region_messages, 0u);
                cr_expect_eq(info->hash, by_region.info[0].hash);
            }
            end(&by_region);
            end(&by_node);
        }
}

Test(coll_region, levels_that_differ)
{
    struct team t = {.p = 3, .nodes = 1, .level = {PICI_LEVEL_NUMA, PICI_LEVEL_NODE}};
    run(&t);
    for (int r = 0; r < t.p; r++) {
        cr_expect_eq(t.status[r], PICI_E_ARG);
        cr_expect(strstr(pici_comm_error(t.comm[r]), "option level"), "%s", pici_comm_error(t.comm[r]));
    }
    end(&t);
    t.level[0] = t.level[1] = (enum pici_level)(PICI_LEVEL_REGION + 1);
    run(&t);
    for (int r = 0; r < t.p; r++)
        cr_expect_eq(t.status[r], PICI_E_ARG);
    end(&t);
}
