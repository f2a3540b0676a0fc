/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The CPU socket or NUMA domain of a process, by its affinity and what Linux says of CPUs in /sys. */
#ifndef PICI_LIB_COLL_REGION_H
#define PICI_LIB_COLL_REGION_H

#include "pici/neighbor.h"

/* The number of this thread's socket or domain (PICI_LEVEL_SOCKET, PICI_LEVEL_NUMA); -1: its CPUs are of several, or
 * not known. */
int pici_region_own(enum pici_level);

/* The same for a set of CPUs: bit i % 8 of cpus[i / 8] for each CPU i below count. devices: the folder
 * "/sys/devices/system". */
int pici_region_of(enum pici_level, const char *devices, const unsigned char *cpus, int count);

#endif
