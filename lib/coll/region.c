/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "coll/region.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

enum { UNKNOWN = -1, CPUS = 8192, DOMAINS = 1024, PATH = 512 };

static int has_cpu(const unsigned char *cpus, int count, long cpu)
{
    return cpu >= 0 && cpu < count && cpus[cpu / 8] >> cpu % 8 & 1;
}

/* The package that a CPU's file names. */
static int socket_of_cpu(const char *devices, int cpu)
{
    char path[PATH];
    int package = UNKNOWN;
    snprintf(path, sizeof path, "%s/cpu/cpu%d/topology/physical_package_id", devices, cpu);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%d", &package) != 1)
        package = UNKNOWN;
    if (file)
        fclose(file);
    return package;
}

static int socket_of(const char *devices, const unsigned char *cpus, int count)
{
    int socket = UNKNOWN;
    for (int cpu = 0; cpu < count; cpu++) {
        if (!has_cpu(cpus, count, cpu))
            continue;
        const int other = socket_of_cpu(devices, cpu);
        if (other < 0 || (socket != UNKNOWN && other != socket))
            return UNKNOWN;
        socket = other;
    }
    return socket;
}

/* How many CPUs of the set a domain has, by its list: ranges such as 0-3,8-11. */
static int shared_cpus(const char *devices, int domain, const unsigned char *cpus, int count)
{
    char path[PATH];
    long first, last;
    int shared = 0, separator = ',';
    snprintf(path, sizeof path, "%s/node/node%d/cpulist", devices, domain);
    FILE *file = fopen(path, "r");
    while (file && separator == ',' && fscanf(file, "%ld", &first) == 1) {
        last = first;
        separator = fgetc(file);
        if (separator == '-' && fscanf(file, "%ld", &last) == 1)
            separator = fgetc(file);
        for (long cpu = first < 0 ? 0 : first; cpu <= last && cpu < count; cpu++)
            shared += has_cpu(cpus, count, cpu);
    }
    if (file)
        fclose(file);
    return shared;
}

static int domain_of(const char *devices, const unsigned char *cpus, int count)
{
    int all = 0;
    for (int cpu = 0; cpu < count; cpu++)
        all += has_cpu(cpus, count, cpu);
    for (int domain = 0; domain < DOMAINS && all; domain++) {
        const int shared = shared_cpus(devices, domain, cpus, count);
        if (shared)
            return shared == all ? domain : UNKNOWN;
    }
    return UNKNOWN;
}

int pici_region_of(enum pici_level level, const char *devices, const unsigned char *cpus, int count)
{
    return level == PICI_LEVEL_SOCKET ? socket_of(devices, cpus, count) : domain_of(devices, cpus, count);
}

int pici_region_own(enum pici_level level)
{
#if defined __linux__
    cpu_set_t set[CPUS / CPU_SETSIZE];
    unsigned char cpus[CPUS / 8] = {0};
    memset(set, 0, sizeof set);
    if (sched_getaffinity(0, sizeof set, set))
        return UNKNOWN;
    for (int cpu = 0; cpu < CPUS; cpu++)
        if (CPU_ISSET_S((size_t)cpu, sizeof set, set))
            cpus[cpu / 8] |= (unsigned char)(1 << cpu % 8);
    return pici_region_of(level, "/sys/devices/system", cpus, CPUS);
#else
    (void)level;
    return UNKNOWN;
#endif
}
