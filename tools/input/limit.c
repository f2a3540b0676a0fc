/* SPDX-License-Identifier: BSD-3-Clause */
#include "input/limit.h"

#include <inttypes.h>
#include <stdio.h>

#include "input/attrs.h"
#include "input/deflated.h"
#include "term.h"

static const uint64_t default_most = UINT64_C(1) << 30;

static uint64_t times_factor(uint64_t bytes)
{
    return bytes < UINT64_MAX / LIMIT_FACTOR ? bytes * LIMIT_FACTOR : UINT64_MAX;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

struct limit limit_of(const struct tool_options *o, uint64_t input_bytes, uint64_t least)
{
    if (o->max_size.given)
        return (struct limit){o->max_size.bytes != UINT64_MAX, o->max_size.bytes, NULL};
    return (struct limit){true, larger(larger(default_most, least), times_factor(input_bytes)), NULL};
}

struct limit limit_of_stream(const struct tool_options *o, const uint64_t *read)
{
    struct limit l = limit_of(o, 0, 0);
    if (!o->max_size.given)
        l.read = read;
    return l;
}

uint64_t limit_now(const struct limit *l)
{
    if (!l->is)
        return UINT64_MAX;
    return l->read ? larger(l->most, times_factor(*l->read)) : l->most;
}

int limit_refused(const struct limit *l, const char *file, uint64_t claimed)
{
    char text[TERM_TEXT];
    const uint64_t most = limit_now(l);
    return tool_bad(file, "claims %" PRIu64 " bytes, more than the limit of %" PRIu64 " (%s)" LIMIT_RAISE, claimed,
                    most, term_bytes(text, most));
}

int limit_reached(const struct limit *l, const char *file, uint64_t claimed)
{
    char text[TERM_TEXT], all[48] = "";
    const uint64_t most = limit_now(l);
    if (claimed)
        snprintf(all, sizeof all, " of %" PRIu64 " bytes claimed", claimed);
    return tool_bad(file, "the limit of %" PRIu64 " bytes (%s)%s is reached" LIMIT_RAISE, most, term_bytes(text, most),
                    all);
}

enum pici_status limit_claimed(struct pici_reader *r, uint64_t tensors, uint64_t *bytes)
{
    struct pici_attr head;
    uint64_t there = 0;
    enum pici_status s = pici_reader_attr(r, PICI_FILE, ATTR_HEAD, &head);
    *bytes = !s && head.key ? head.len : 0;
    if (!s)
        s = pici_reader_count(r, &there);
    for (uint64_t i = 0; !s && i < tensors && i < there; i++) {
        struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
        s = pici_reader_tensor(r, i, &t);
        struct pici_attr a = {0};
        if (!s)
            s = pici_reader_attr(r, i, ATTR_DEFLATE, &a);
        if (!s) {
            struct deflated d;
            uint64_t more = t.count * pici_dtype_width(t.dtype); /* below 2^63 by the format's rules */
            if (a.key && deflated_parse(&d, a.value, a.len, more)) {
                more = d.bytes;
                *bytes -= d.header < *bytes ? d.header : *bytes;
            }
            *bytes = *bytes <= UINT64_MAX - more ? *bytes + more : UINT64_MAX;
        }
    }
    return s;
}
