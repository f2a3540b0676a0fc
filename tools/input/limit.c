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

struct limit limit_of(const struct tool_options *options, uint64_t input_bytes, uint64_t least)
{
    if (options->max_size.given)
        return (struct limit){options->max_size.bytes != UINT64_MAX, options->max_size.bytes, NULL};
    return (struct limit){true, larger(larger(default_most, least), times_factor(input_bytes)), NULL};
}

struct limit limit_of_stream(const struct tool_options *options, const uint64_t *read)
{
    struct limit limit = limit_of(options, 0, 0);
    if (!options->max_size.given)
        limit.read = read;
    return limit;
}

uint64_t limit_now(const struct limit *limit)
{
    if (!limit->limited)
        return UINT64_MAX;
    return limit->read ? larger(limit->most, times_factor(*limit->read)) : limit->most;
}

int limit_refused(const struct limit *limit, const char *file, uint64_t claimed)
{
    char text[TERM_TEXT];
    const uint64_t most = limit_now(limit);
    return tool_bad(file, "claims %" PRIu64 " bytes, more than the limit of %" PRIu64 " (%s)" LIMIT_RAISE, claimed,
                    most, term_bytes(text, most));
}

int limit_reached(const struct limit *limit, const char *file, uint64_t claimed)
{
    char text[TERM_TEXT], all[48] = "";
    const uint64_t most = limit_now(limit);
    if (claimed)
        snprintf(all, sizeof all, " of %" PRIu64 " bytes claimed", claimed);
    return tool_bad(file, "the limit of %" PRIu64 " bytes (%s)%s is reached" LIMIT_RAISE, most, term_bytes(text, most),
                    all);
}

enum pici_status limit_claimed(struct pici_reader *reader, uint64_t tensors, uint64_t *bytes)
{
    struct pici_attr head;
    uint64_t count = 0;
    enum pici_status status = pici_reader_attr(reader, PICI_FILE, ATTR_HEAD, &head);
    *bytes = !status && head.key ? head.len : 0;
    if (!status)
        status = pici_reader_count(reader, &count);
    for (uint64_t i = 0; !status && i < tensors && i < count; i++) {
        struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
        status = pici_reader_tensor(reader, i, &tensor);
        struct pici_attr attr = {0};
        if (!status)
            status = pici_reader_attr(reader, i, ATTR_DEFLATE, &attr);
        if (!status) {
            struct deflated deflated;
            uint64_t more = tensor.count * pici_dtype_width(tensor.dtype); /* below 2^63 by the format's rules */
            if (attr.key && deflated_parse(&deflated, attr.value, attr.len, more)) {
                more = deflated.bytes;
                *bytes -= deflated.header < *bytes ? deflated.header : *bytes;
            }
            *bytes = *bytes <= UINT64_MAX - more ? *bytes + more : UINT64_MAX;
        }
    }
    return status;
}
