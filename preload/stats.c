/* SPDX-License-Identifier: BSD-3-Clause */
#include "preload/stats.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

static const char *const REASON[REASONS] = {
    [OURS] = "",
    [SMALL] = "small",
    [OP] = "op",
    [TYPE] = "type",
    [COUNTS] = "unequal counts",
    [INTER] = "intercommunicator",
    [ONE_RANK] = "one rank",
    [ONE_NODE] = "one node",
    [NO_TOPOLOGY] = "no topology",
    [FEW_RANKS] = "few ranks",
    [FEW_NEIGHBORS] = "few neighbours",
    [SWITCHED_OFF] = "switched off",
    [FIRST] = "first",
    [LIMIT] = "too many communicators",
    [OFF] = "off",
};

static const char *const PASSED_NAME[PASSED] = {
    [ALLGATHERV] = "MPI_Allgatherv",
    [REDUCE] = "MPI_Reduce",
    [BCAST] = "MPI_Bcast",
    [IALLREDUCE] = "MPI_Iallreduce",
    [IREDUCE_SCATTER] = "MPI_Ireduce_scatter",
    [IREDUCE_SCATTER_BLOCK] = "MPI_Ireduce_scatter_block",
    [IALLGATHER] = "MPI_Iallgather",
    [IALLGATHERV] = "MPI_Iallgatherv",
    [IREDUCE] = "MPI_Ireduce",
    [IBCAST] = "MPI_Ibcast",
    [INEIGHBOR_ALLGATHER] = "MPI_Ineighbor_allgather",
    [INEIGHBOR_ALLGATHERV] = "MPI_Ineighbor_allgatherv",
    [BCAST_INIT] = "MPI_Bcast_init",
    [REDUCE_INIT] = "MPI_Reduce_init",
    [ALLREDUCE_INIT] = "MPI_Allreduce_init",
    [REDUCE_SCATTER_INIT] = "MPI_Reduce_scatter_init",
    [REDUCE_SCATTER_BLOCK_INIT] = "MPI_Reduce_scatter_block_init",
    [ALLGATHER_INIT] = "MPI_Allgather_init",
    [ALLGATHERV_INIT] = "MPI_Allgatherv_init",
    [NEIGHBOR_ALLGATHER_INIT] = "MPI_Neighbor_allgather_init",
    [NEIGHBOR_ALLGATHERV_INIT] = "MPI_Neighbor_allgatherv_init",
};

static _Atomic uint64_t calls[FUNCTIONS][REASONS], passed[PASSED];
static _Atomic uint64_t dense_bytes[FUNCTIONS], sent_bytes[FUNCTIONS], nanoseconds[FUNCTIONS];

static void add(_Atomic uint64_t *to, uint64_t n)
{
    atomic_fetch_add_explicit(to, n, memory_order_relaxed);
}

void pmpi_count(enum function f, enum reason why)
{
    add(&calls[f][why], 1);
}

void pmpi_count_passed(enum passed p)
{
    add(&passed[p], 1);
}

void pmpi_count_ours(enum function f, uint64_t dense, uint64_t sent, double seconds)
{
    add(&dense_bytes[f], dense);
    add(&sent_bytes[f], sent);
    add(&nanoseconds[f], (uint64_t)(seconds * 1e9));
}

/* A line that is printed at once, so that those of several ranks do not mix. */
struct line {
    char text[2048];
    size_t len;
};

__attribute__((format(printf, 2, 3))) static void append(struct line *l, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(l->text + l->len, sizeof l->text - l->len, format, arguments);
    va_end(arguments);
    if (n > 0)
        l->len = l->len + (size_t)n < sizeof l->text ? l->len + (size_t)n : sizeof l->text - 1;
}

static void begin(struct line *l, int rank)
{
    l->len = 0;
    append(l, "pici: ");
    if (rank >= 0)
        append(l, "rank %d: ", rank);
}

/* In a unit that leaves two or three digits. */
static void append_bytes(struct line *l, uint64_t bytes)
{
    static const char *const UNIT[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double n = (double)bytes;
    int unit = 0;
    for (; n >= 999.5 && unit < 5; unit++)
        n /= 1000;
    append(l, unit && n < 9.95 ? "%.1f %s" : "%.0f %s", n, UNIT[unit]);
}

static void print_function(enum function f, int rank)
{
    struct line l;
    uint64_t all = 0;
    for (int why = 0; why < REASONS; why++)
        all += calls[f][why];
    if (!all)
        return;
    begin(&l, rank);
    append(&l, "%s %" PRIu64 " of %" PRIu64 " calls", pmpi_function_name(f), (uint64_t)calls[f][OURS], all);
    if (calls[f][OURS]) {
        append(&l, ", ");
        append_bytes(&l, dense_bytes[f]);
        append(&l, " dense, ");
        append_bytes(&l, sent_bytes[f]);
        append(&l, " sent, %.2g s", (double)nanoseconds[f] / 1e9);
    }
    const char *before = "; not ours: ";
    for (int why = OURS + 1; why < REASONS; why++)
        if (calls[f][why]) {
            append(&l, "%s%" PRIu64 " %s", before, (uint64_t)calls[f][why], REASON[why]);
            before = ", ";
        }
    fprintf(stderr, "%s\n", l.text);
}

static void print_passed(int rank)
{
    struct line l;
    const char *before = "never ours: ";
    begin(&l, rank);
    const size_t empty = l.len;
    for (int p = 0; p < PASSED; p++)
        if (passed[p]) {
            append(&l, "%s%" PRIu64 " %s", before, (uint64_t)passed[p], PASSED_NAME[p]);
            before = ", ";
        }
    if (l.len > empty)
        fprintf(stderr, "%s\n", l.text);
}

void pmpi_print_stats(int rank)
{
    for (int f = 0; f < FUNCTIONS; f++)
        print_function((enum function)f, rank);
    print_passed(rank);
}
