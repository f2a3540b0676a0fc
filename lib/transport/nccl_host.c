/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "transport/nccl_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* FNV-1a. */
static uint64_t hash(uint64_t hashed, const char *text)
{
    for (; *text; text++)
        hashed = (hashed ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    return hashed;
}

uint64_t pici_nccl_host(void)
{
    char name[256] = "", boot[64] = "";
    uint64_t hashed = UINT64_C(0xcbf29ce484222325);
    const char *said = getenv("NCCL_HOSTID");
    if (said && said[0])
        return hash(hashed, said);
    gethostname(name, sizeof name - 1);
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file) {
        if (!fgets(boot, sizeof boot, file))
            boot[0] = '\0';
        fclose(file);
    }
    return hash(hash(hashed, name), boot);
}
