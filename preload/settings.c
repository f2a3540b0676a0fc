/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "preload/settings.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pici/pici.h"

static const struct {
    const char *mpi, *word;
} FUNCTION[FUNCTIONS] = {
    [ALLREDUCE] = {"MPI_Allreduce", "allreduce"},
    [REDUCE_SCATTER_BLOCK] = {"MPI_Reduce_scatter_block", "reduce_scatter_block"},
    [REDUCE_SCATTER] = {"MPI_Reduce_scatter", "reduce_scatter"},
    [ALLGATHER] = {"MPI_Allgather", "allgather"},
    [ALLGATHERV] = {"MPI_Allgatherv", "allgatherv"},
    [REDUCE] = {"MPI_Reduce", "reduce"},
    [BCAST] = {"MPI_Bcast", "bcast"},
    [NEIGHBOR_ALLGATHER] = {"MPI_Neighbor_allgather", "neighbor_allgather"},
    [NEIGHBOR_ALLGATHERV] = {"MPI_Neighbor_allgatherv", "neighbor_allgatherv"},
    [IALLREDUCE] = {"MPI_Iallreduce", "iallreduce"},
    [IREDUCE_SCATTER_BLOCK] = {"MPI_Ireduce_scatter_block", "ireduce_scatter_block"},
    [IREDUCE_SCATTER] = {"MPI_Ireduce_scatter", "ireduce_scatter"},
    [IALLGATHER] = {"MPI_Iallgather", "iallgather"},
    [IALLGATHERV] = {"MPI_Iallgatherv", "iallgatherv"},
    [IREDUCE] = {"MPI_Ireduce", "ireduce"},
    [IBCAST] = {"MPI_Ibcast", "ibcast"},
    [ALLREDUCE_INIT] = {"MPI_Allreduce_init", "allreduce_init"},
    [REDUCE_SCATTER_BLOCK_INIT] = {"MPI_Reduce_scatter_block_init", "reduce_scatter_block_init"},
    [REDUCE_SCATTER_INIT] = {"MPI_Reduce_scatter_init", "reduce_scatter_init"},
    [ALLGATHER_INIT] = {"MPI_Allgather_init", "allgather_init"},
    [ALLGATHERV_INIT] = {"MPI_Allgatherv_init", "allgatherv_init"},
    [REDUCE_INIT] = {"MPI_Reduce_init", "reduce_init"},
    [BCAST_INIT] = {"MPI_Bcast_init", "bcast_init"},
};

static struct settings settings;

const char *pmpi_function_name(enum function function)
{
    return FUNCTION[function].mpi;
}

uint64_t pmpi_hash(uint64_t hash, const void *data, unsigned long bytes)
{
    const uint8_t *byte = data;
    for (unsigned long i = 0; i < bytes; i++)
        hash = (hash ^ byte[i]) * 0x100000001b3u;
    return hash;
}

static void invalid(const char *name, const char *text, const char *values)
{
    if (!settings.fault[0])
        snprintf(settings.fault, sizeof settings.fault, "environment variable %s is \"%.60s\", which is not %s", name,
                 text, values);
}

static uint64_t number(const char *name, uint64_t or_else, uint64_t most, const char *values)
{
    const char *text = getenv(name);
    char *end = NULL;
    if (!text)
        return or_else;
    errno = 0;
    const unsigned long long value = text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
    if (!end || *end || errno || value > most) {
        invalid(name, text, values);
        return or_else;
    }
    return value;
}

static unsigned functions(void)
{
    static const char name[] = "PICI_PMPI_FUNCTIONS";
    const char *text = getenv(name);
    unsigned bits = 0;
    if (!text)
        return (1u << FUNCTIONS) - 1;
    for (const char *cursor = text;; cursor++) {
        const size_t size = strcspn(cursor, ",");
        int function = 0;
        while (function < FUNCTIONS &&
               (strlen(FUNCTION[function].word) != size || memcmp(FUNCTION[function].word, cursor, size) != 0))
            function++;
        if (function == FUNCTIONS) {
            invalid(name, text, "a list, with commas, of functions as docs/reference/mpi.md names them");
            return (1u << FUNCTIONS) - 1;
        }
        bits |= 1u << function;
        cursor += size;
        if (!*cursor)
            return bits;
    }
}

static void read_route(void)
{
    static const char name[] = "PICI_NEIGHBOR";
    static const char *const WORD[] = {
        [PICI_ROUTE_AUTO] = "auto", [PICI_ROUTE_DIRECT] = "direct", [PICI_ROUTE_HALVING] = "halving"};
    const char *text = getenv(name);
    settings.neighbors = !text || strcmp(text, "off") != 0;
    for (int route = PICI_ROUTE_AUTO; text && settings.neighbors && route <= PICI_ROUTE_HALVING; route++)
        if (strcmp(text, WORD[route]) == 0) {
            settings.route = (enum pici_route)route;
            return;
        }
    if (text && settings.neighbors)
        invalid(name, text, "auto, direct, halving or off");
}

/* Read a decimal number, with a point in every locale of the program. Returns where it ends. */
static const char *decimal(const char *text, double *value)
{
    double digits = 0, unit = 1;
    for (int point = 0; (*text >= '0' && *text <= '9') || (*text == '.' && !point); text++) {
        if (*text == '.') {
            point = 1;
            continue;
        }
        digits = 10 * digits + (*text - '0');
        if (point)
            unit *= 10;
    }
    *value = digits / unit;
    return text;
}

/* Read zfp:rate=R, bf16 or q8. The rate must be possible for both widths of floats. */
static void read_lossy(void)
{
    static const char name[] = "PICI_PMPI_LOSSY", zfp[] = "zfp:rate=";
    const char *text = getenv(name);
    struct pici_values *values = &settings.values;
    *values = (struct pici_values)PICI_VALUES_INIT;
    settings.lossy = text;
    if (!text)
        return;
    if (strcmp(text, "bf16") == 0) {
        values->codec = PICI_VALUES_CAST;
        values->cast = PICI_BF16;
    } else if (strcmp(text, "q8") == 0) {
        values->codec = PICI_VALUES_QSGD;
        values->bits = 8;
    } else if (strncmp(text, zfp, sizeof zfp - 1) == 0) {
        values->codec = PICI_VALUES_ZFP;
        const char *const end = decimal(text + sizeof zfp - 1, &values->rate);
        if (*end || !(values->rate >= 3 && values->rate <= 32))
            invalid(name, text, "zfp:rate= and a number from 3 to 32");
    } else
        invalid(name, text, "zfp:rate= and a number, bf16 or q8");
}

/* Hash the variables of the library that must be the same on all ranks. */
static uint64_t hash_of_library(uint64_t hash)
{
    static const char *const NAME[] = {"PICI_ALGORITHM",    "PICI_SLICE_BYTES", "PICI_WINDOW", "PICI_TUNE",
                                       "PICI_TUNE_HISTORY", "PICI_NATIVE",      "PICI_VENDOR", "PICI_PMPI_LOSSY"};
    for (size_t i = 0; i < sizeof NAME / sizeof *NAME; i++) {
        const char *text = getenv(NAME[i]);
        hash = pmpi_hash(hash, &i, sizeof i);
        if (text)
            hash = pmpi_hash(hash, text, strlen(text));
    }
    return hash;
}

static void read_environment(void)
{
    struct settings *read = &settings;
    read->enabled = (int)number("PICI_PMPI", 1, 1, "0 or 1");
    read->intra = (int)number("PICI_PMPI_INTRA", 0, 1, "0 or 1");
    read->stats = (int)number("PICI_PMPI_STATS", 0, 2, "0, 1 or 2");
    read->comms = (int)number("PICI_PMPI_COMMS", 16, INT_MAX, "a number");
    read->wait_s = (int)number("PICI_PMPI_WAIT", 30, INT_MAX, "a number of seconds");
    read->min_bytes = number("PICI_PMPI_MIN_BYTES", 131072, UINT64_MAX, "a number of bytes");
    read->after = number("PICI_PMPI_AFTER", 1, UINT64_MAX, "a number");
    read->functions = functions();
    read_route();
    read_lossy();
    read->own_timeout = getenv("PICI_TIMEOUT_MS") != NULL;
    read->own_history = getenv("PICI_TUNE_HISTORY") != NULL;
    const uint64_t same[] = {(uint64_t)read->intra, read->functions,           read->min_bytes,
                             read->after,           (uint64_t)read->neighbors, (uint64_t)read->route};
    const char *version = pici_version();
    read->hash = hash_of_library(pmpi_hash(pmpi_hash(PMPI_HASH, same, sizeof same), version, strlen(version)));
}

const struct settings *pmpi_settings(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_environment);
    return &settings;
}
