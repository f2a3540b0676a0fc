/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 832 + 11 * TRACE_OWNERS, BUFFER = 64 << 10 }; /* the most bytes of an event; the bytes of a buffer */

/* The buffer always has room for one event: it is written when it is nearly full, and at a collective's end. */
struct trace {
    int fd, rank;
    enum pici_status status;
    size_t used;
    char buffer[BUFFER];
};

/* Only whole events are written, so the file ends with a whole event even if the process is killed. */
static void flush(struct trace *trace)
{
    const char *at = trace->buffer;
    while (trace->used && !trace->status) {
        ssize_t written = write(trace->fd, at, trace->used);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            trace->status = PICI_E_IO;
            break;
        }
        at += written;
        trace->used -= (size_t)written;
    }
    trace->used = 0;
}

/* Append to the current event. Numbers are printed as integers, since %f writes the locale's decimal point. */
#define PUT(t, ...) ((t)->used += (size_t)snprintf((t)->buffer + (t)->used, BUFFER - (t)->used, __VA_ARGS__))

/* Append a number >= 0 with this many decimals. */
static void put_decimal(struct trace *trace, double number, int decimals)
{
    uint64_t unit = 1;
    for (int i = 0; i < decimals; i++)
        unit *= 10;
    uint64_t total = number > 0 ? (uint64_t)(number * (double)unit + 0.5) : 0;
    PUT(trace, "%" PRIu64 ".%0*" PRIu64, total / unit, decimals, total % unit);
}

/* Append a number >= 0 of any size. */
static void put_number(struct trace *trace, double number)
{
    int exponent = 0;
    for (; number >= 10 && exponent < 400; exponent++)
        number /= 10;
    for (; number > 0 && number < 1; exponent--)
        number *= 10;
    put_decimal(trace, exponent < 400 ? number : 0, 6);
    PUT(trace, "e%d", exponent);
}

static void put_int(struct trace *trace, const char *key, int value)
{
    if (value >= 0)
        PUT(trace, ",\"%s\":%d", key, value);
}

/* The rows of a trace, which a viewer shows as threads. */
enum { SENDS, RECEIVES, WAITS, COLLECTIVES, ROWS };
static const char *const rows[ROWS] = {"sends", "receives", "waits", "collectives"};

static int row(const char *name)
{
    static const char *const events[] = {[SENDS] = "send", [RECEIVES] = "recv", [WAITS] = "wait"};
    int i = 0;
    while (i < COLLECTIVES && strcmp(name, events[i]) != 0)
        i++;
    return i;
}

enum pici_status pici_trace_open(struct trace **trace, const char *path, int rank)
{
    enum pici_status status = PICI_E_NOMEM;
    *trace = NULL;
    size_t capacity = strlen(path) + 16;
    char *name = malloc(capacity);
    struct trace *opened = malloc(sizeof *opened);
    if (!name || !opened)
        goto fail;
    snprintf(name, capacity, "%s.%d", path, rank);
    opened->fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (opened->fd < 0) {
        status = PICI_E_IO;
        goto fail;
    }
    free(name);
    opened->rank = rank;
    opened->status = PICI_OK;
    opened->used = 0;
    PUT(opened, "[{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"args\":{\"name\":\"rank %d\"}}", rank,
        rank);
    for (int i = 0; i < ROWS; i++)
        PUT(opened, ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}}", rank,
            i, rows[i]);
    *trace = opened;
    return PICI_OK;
fail:
    free(name);
    free(opened);
    return status;
}

struct trace_event pici_trace_event(const char *name, uint64_t sequence, double begin, double end)
{
    return (struct trace_event){.name = name,
                                .begin = begin,
                                .end = end,
                                .sequence = sequence,
                                .phase = -1,
                                .step = -1,
                                .slice = -1,
                                .peer = -1,
                                .inter = -1,
                                .format = -1,
                                .density = -1,
                                .extrapolated = -1};
}

void pici_trace_add(struct trace *trace, const struct trace_event *event)
{
    static const char *const phases[] = {"reduce-scatter", "all-gather"};
    if (!trace || trace->status)
        return;
    const int row_number = row(event->name);
    PUT(trace, ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":", event->name, trace->rank, row_number);
    put_decimal(trace, event->begin * 1e6, 3);
    PUT(trace, ",\"dur\":");
    put_decimal(trace, (event->end - event->begin) * 1e6, 3);
    PUT(trace, ",\"args\":{\"sequence\":%" PRIu64, event->sequence);
    if (event->phase == 0 || event->phase == 1)
        PUT(trace, ",\"phase\":\"%s\"", phases[event->phase]);
    put_int(trace, "step", event->step);
    put_int(trace, "slice", event->slice);
    put_int(trace, "peer", event->peer);
    put_int(trace, "inter", event->inter);
    if (event->format >= 0)
        PUT(trace, ",\"format\":\"%s\"", pici_format_name((enum pici_format)event->format));
    if (event->density >= 0) {
        PUT(trace, ",\"density\":");
        put_decimal(trace, event->density, 9);
        put_int(trace, "extrapolated", event->extrapolated);
    }
    if (event->choice) {
        PUT(trace, ",\"algorithm\":\"%s\",\"dense\":%d,\"predicted_us\":", event->choice, event->dense);
        put_decimal(trace, event->predicted * 1e6, 3);
    }
    if (event->dense_bytes || event->wire_bytes)
        PUT(trace, ",\"dense_bytes\":%" PRIu64 ",\"wire_bytes\":%" PRIu64, event->dense_bytes, event->wire_bytes);
    if (event->values)
        PUT(trace, ",\"values\":\"%s\"", event->values);
    if (event->events) {
        PUT(trace, ",\"events\":%" PRIu64 ",\"nonfinite\":%" PRIu64 ",\"lost\":", event->events, event->nonfinite);
        put_number(trace, event->lost);
    }
    if (event->blocks)
        PUT(trace, ",\"blocks\":%d,\"owners\":", event->blocks);
    for (int i = 0; i < event->blocks && i < TRACE_OWNERS; i++)
        PUT(trace, "%c%d", i ? ',' : '[', event->order[event->segments[i]]);
    if (event->blocks)
        PUT(trace, "]");
    for (int i = 0; i < PICI_CONTAINERS; i++)
        if (event->tiles[i])
            PUT(trace, ",\"%s\":%" PRIu64, pici_container_name((enum pici_container)i), event->tiles[i]);
    PUT(trace, "}}");
    if (BUFFER - trace->used < LINE || row_number == COLLECTIVES)
        flush(trace);
}

enum pici_status pici_trace_close(struct trace *trace)
{
    if (!trace)
        return PICI_OK;
    PUT(trace, "]\n");
    flush(trace);
    if (close(trace->fd) != 0)
        trace->status = PICI_E_IO;
    enum pici_status status = trace->status;
    free(trace);
    return status;
}
