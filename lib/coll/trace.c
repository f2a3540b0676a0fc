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
static void flush(struct trace *t)
{
    const char *at = t->buffer;
    while (t->used && !t->status) {
        ssize_t k = write(t->fd, at, t->used);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) {
            t->status = PICI_E_IO;
            break;
        }
        at += k;
        t->used -= (size_t)k;
    }
    t->used = 0;
}

/* Append to the current event. Numbers are printed as integers, since %f writes the locale's decimal point. */
#define PUT(t, ...) ((t)->used += (size_t)snprintf((t)->buffer + (t)->used, BUFFER - (t)->used, __VA_ARGS__))

/* Append a number >= 0 with so many decimals. */
static void put_decimal(struct trace *t, double x, int decimals)
{
    uint64_t unit = 1;
    for (int i = 0; i < decimals; i++)
        unit *= 10;
    uint64_t all = x > 0 ? (uint64_t)(x * (double)unit + 0.5) : 0;
    PUT(t, "%" PRIu64 ".%0*" PRIu64, all / unit, decimals, all % unit);
}

/* Append a number >= 0 of any size. */
static void put_number(struct trace *t, double x)
{
    int exponent = 0;
    for (; x >= 10 && exponent < 400; exponent++)
        x /= 10;
    for (; x > 0 && x < 1; exponent--)
        x *= 10;
    put_decimal(t, exponent < 400 ? x : 0, 6);
    PUT(t, "e%d", exponent);
}

static void put_int(struct trace *t, const char *key, int value)
{
    if (value >= 0)
        PUT(t, ",\"%s\":%d", key, value);
}

/* What a viewer shows as a thread. */
enum { SENDS, RECEIVES, WAITS, COLLECTIVES, ROWS };
static const char *const rows[ROWS] = {"sends", "receives", "waits", "collectives"};

static int row(const char *name)
{
    return strcmp(name, "send") == 0   ? SENDS
           : strcmp(name, "recv") == 0 ? RECEIVES
           : strcmp(name, "wait") == 0 ? WAITS
                                       : COLLECTIVES;
}

enum pici_status pici_trace_open(struct trace **trace, const char *path, int rank)
{
    enum pici_status s = PICI_E_NOMEM;
    *trace = NULL;
    size_t cap = strlen(path) + 16;
    char *name = malloc(cap);
    struct trace *t = malloc(sizeof *t);
    if (!name || !t)
        goto fail;
    snprintf(name, cap, "%s.%d", path, rank);
    t->fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (t->fd < 0) {
        s = PICI_E_IO;
        goto fail;
    }
    free(name);
    t->rank = rank;
    t->status = PICI_OK;
    t->used = 0;
    PUT(t, "[{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"args\":{\"name\":\"rank %d\"}}", rank,
        rank);
    for (int i = 0; i < ROWS; i++)
        PUT(t, ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}}", rank, i,
            rows[i]);
    *trace = t;
    return PICI_OK;
fail:
    free(name);
    free(t);
    return s;
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

void pici_trace_add(struct trace *t, const struct trace_event *e)
{
    static const char *const phases[] = {"reduce-scatter", "all-gather"};
    if (!t || t->status)
        return;
    const int tid = row(e->name);
    PUT(t, ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":", e->name, t->rank, tid);
    put_decimal(t, e->begin * 1e6, 3);
    PUT(t, ",\"dur\":");
    put_decimal(t, (e->end - e->begin) * 1e6, 3);
    PUT(t, ",\"args\":{\"sequence\":%" PRIu64, e->sequence);
    if (e->phase == 0 || e->phase == 1)
        PUT(t, ",\"phase\":\"%s\"", phases[e->phase]);
    put_int(t, "step", e->step);
    put_int(t, "slice", e->slice);
    put_int(t, "peer", e->peer);
    put_int(t, "inter", e->inter);
    if (e->format >= 0)
        PUT(t, ",\"format\":\"%s\"", pici_format_name((enum pici_format)e->format));
    if (e->density >= 0) {
        PUT(t, ",\"density\":");
        put_decimal(t, e->density, 9);
        put_int(t, "extrapolated", e->extrapolated);
    }
    if (e->choice) {
        PUT(t, ",\"algorithm\":\"%s\",\"dense\":%d,\"predicted_us\":", e->choice, e->dense);
        put_decimal(t, e->predicted * 1e6, 3);
    }
    if (e->dense_bytes || e->wire_bytes)
        PUT(t, ",\"dense_bytes\":%" PRIu64 ",\"wire_bytes\":%" PRIu64, e->dense_bytes, e->wire_bytes);
    if (e->values)
        PUT(t, ",\"values\":\"%s\"", e->values);
    if (e->events) {
        PUT(t, ",\"events\":%" PRIu64 ",\"nonfinite\":%" PRIu64 ",\"lost\":", e->events, e->nonfinite);
        put_number(t, e->lost);
    }
    if (e->blocks)
        PUT(t, ",\"blocks\":%d,\"owners\":", e->blocks);
    for (int i = 0; i < e->blocks && i < TRACE_OWNERS; i++)
        PUT(t, "%c%d", i ? ',' : '[', e->order[e->segments[i]]);
    if (e->blocks)
        PUT(t, "]");
    for (int i = 0; i < PICI_CONTAINERS; i++)
        if (e->tiles[i])
            PUT(t, ",\"%s\":%" PRIu64, pici_container_name((enum pici_container)i), e->tiles[i]);
    PUT(t, "}}");
    if (BUFFER - t->used < LINE || tid == COLLECTIVES)
        flush(t);
}

enum pici_status pici_trace_close(struct trace *t)
{
    if (!t)
        return PICI_OK;
    PUT(t, "]\n");
    flush(t);
    if (close(t->fd) != 0)
        t->status = PICI_E_IO;
    enum pici_status s = t->status;
    free(t);
    return s;
}
