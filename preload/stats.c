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
    [EARLY] = "before a blocking call",
    [NO_PROGRESS] = "no threads",
    [LIMIT] = "too many communicators",
    [OFF] = "off",
};

static const char *const PASSED_NAME[PASSED] = {
    [INEIGHBOR_ALLGATHER] = "MPI_Ineighbor_allgather",
    [INEIGHBOR_ALLGATHERV] = "MPI_Ineighbor_allgatherv",
    [NEIGHBOR_ALLGATHER_INIT] = "MPI_Neighbor_allgather_init",
    [NEIGHBOR_ALLGATHERV_INIT] = "MPI_Neighbor_allgatherv_init",
};

static _Atomic uint64_t calls[FUNCTIONS][REASONS], passed[PASSED];
static _Atomic uint64_t dense_bytes[FUNCTIONS], sent_bytes[FUNCTIONS], packed_blocks[FUNCTIONS], nanoseconds[FUNCTIONS];

static void add(_Atomic uint64_t *to, uint64_t more)
{
    atomic_fetch_add_explicit(to, more, memory_order_relaxed);
}

void pmpi_count(enum function function, enum reason reason)
{
    add(&calls[function][reason], 1);
}

void pmpi_count_passed(enum passed which)
{
    add(&passed[which], 1);
}

void pmpi_count_ours(enum function function, const struct pici_coll_stats *stats, double seconds)
{
    add(&dense_bytes[function], stats->dense_bytes);
    add(&sent_bytes[function], stats->wire_bytes);
    add(&packed_blocks[function], stats->sends[PICI_PACKED]);
    add(&nanoseconds[function], (uint64_t)(seconds * 1e9));
}

/* A line that is printed in one call, so that lines of several ranks do not mix. */
struct line {
    char text[2048];
    size_t size;
};

__attribute__((format(printf, 2, 3))) static void append(struct line *line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int printed = vsnprintf(line->text + line->size, sizeof line->text - line->size, format, arguments);
    va_end(arguments);
    if (printed > 0)
        line->size =
            line->size + (size_t)printed < sizeof line->text ? line->size + (size_t)printed : sizeof line->text - 1;
}

static void begin(struct line *line, int rank)
{
    line->size = 0;
    append(line, "pici: ");
    if (rank >= 0)
        append(line, "rank %d: ", rank);
}

/* Append bytes in a unit that leaves two or three digits. */
static void append_bytes(struct line *line, uint64_t bytes)
{
    static const char *const UNIT[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double number = (double)bytes;
    int unit = 0;
    for (; number >= 999.5 && unit < 5; unit++)
        number /= 1000;
    append(line, unit && number < 9.95 ? "%.1f %s" : "%.0f %s", number, UNIT[unit]);
}

static void print_function(enum function function, int rank)
{
    struct line line;
    uint64_t all = 0;
    for (int reason = 0; reason < REASONS; reason++)
        all += calls[function][reason];
    if (!all)
        return;
    begin(&line, rank);
    append(&line, "%s %" PRIu64 " of %" PRIu64 " calls", pmpi_function_name(function), (uint64_t)calls[function][OURS],
           all);
    if (calls[function][OURS]) {
        append(&line, ", ");
        append_bytes(&line, dense_bytes[function]);
        append(&line, " dense, ");
        append_bytes(&line, sent_bytes[function]);
        append(&line, " sent, ");
        if (packed_blocks[function])
            append(&line, "%" PRIu64 " blocks packed, ", (uint64_t)packed_blocks[function]);
        append(&line, "%.2g s", (double)nanoseconds[function] / 1e9);
    }
    const char *before = "; not ours: ";
    for (int reason = OURS + 1; reason < REASONS; reason++)
        if (calls[function][reason]) {
            append(&line, "%s%" PRIu64 " %s", before, (uint64_t)calls[function][reason], REASON[reason]);
            before = ", ";
        }
    fprintf(stderr, "%s\n", line.text);
}

static void print_passed(int rank)
{
    struct line line;
    const char *before = "never ours: ";
    begin(&line, rank);
    const size_t empty = line.size;
    for (int which = 0; which < PASSED; which++)
        if (passed[which]) {
            append(&line, "%s%" PRIu64 " %s", before, (uint64_t)passed[which], PASSED_NAME[which]);
            before = ", ";
        }
    if (line.size > empty)
        fprintf(stderr, "%s\n", line.text);
}

void pmpi_print_stats(int rank)
{
    for (int function = 0; function < FUNCTIONS; function++)
        print_function((enum function)function, rank);
    print_passed(rank);
}
