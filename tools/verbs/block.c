/* SPDX-License-Identifier: BSD-3-Clause */
#include "verbs/block.h"

#include <inttypes.h>
#include <stdlib.h>

#include "input/source.h"
#include "output/output.h"
#include "output/result.h"
#include "term.h"
#include "tool.h"

enum { PIECE = 1 << 20 }; /* elements decoded at a time */

int block_check(const char *name, const uint8_t *block, size_t len)
{
    struct pici_fault fault = PICI_FAULT_INIT;
    if (pici_verify_at(block, len, &fault) == PICI_OK)
        return TOOL_OK;
    if (fault.tile == PICI_NO_TILE)
        return tool_bad_at(name, fault.offset, "%s (%s)", pici_strerror(fault.status), fault.rule);
    return tool_bad_at(name, fault.offset, "tile %" PRIu64 ": %s (%s)", fault.tile, pici_strerror(fault.status),
                       fault.rule);
}

/* Bytes of the elements of a block; UINT64_MAX if the product overflows. */
static uint64_t block_bytes(const struct pici_info *info)
{
    const size_t width = pici_dtype_width(info->dtype);
    return info->count <= UINT64_MAX / width ? info->count * width : UINT64_MAX;
}

int block_within(const char *name, const struct pici_info *info, struct limit limit)
{
    char text[TERM_TEXT];
    const uint64_t most = limit_now(&limit);
    if (block_bytes(info) <= most)
        return TOOL_OK;
    return tool_bad_at(name, 8, "%" PRIu64 " elements of %s, more than the limit of %" PRIu64 " bytes (%s)" LIMIT_RAISE,
                       info->count, pici_dtype_name(info->dtype), most, term_bytes(text, most));
}

static int encode(const char *name, uint8_t *data, size_t len, struct output *out, const struct tool_options *o)
{
    enum pici_dtype dtype = (enum pici_dtype)o->dtype;
    size_t width = pici_dtype_width(dtype), block_len;
    if (len % width)
        return tool_bad_at(name, len - len % width, "%zu bytes are left over: not a whole number of %s", len % width,
                           pici_dtype_name(dtype));
    size_t cap = pici_bound(o->format, dtype, len / width); /* 0: does not fit size_t */
    uint8_t *block = cap ? malloc(cap) : NULL;
    if (!block)
        return tool_nomem(name, "the block");
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.threads = o->threads;
    opts.checksum = o->checksum;
    opts.zeros = o->zeros;
    source_swap_raw(data, len, width);
    enum pici_status s = pici_compress(block, cap, &block_len, data, len / width, dtype, o->format, &opts);
    int status = s ? tool_bad(name, "%s", pici_strerror(s)) : output_write(out, block, block_len);
    free(block);
    return status;
}

int verb_block_encode(const struct tool_options *o)
{
    struct input in;
    struct output out;
    uint8_t *data;
    size_t len;
    if (!o->dtype)
        return tool_usage(NULL, "block encode: needs --dtype, the type of the elements");
    int status = input_open(&in, o->args[0]);
    if (status)
        return status;
    status = output_open(&out, o->args[1], &in, o->force);
    if (status == TOOL_OK)
        status = input_slurp(&in, &data, &len);
    out.limit = input_limit(&in, o);
    const double start = term_now();
    if (status == TOOL_OK) {
        status = encode(in.name, data, len, &out, o);
        free(data);
    }
    const double seconds = term_now() - start;
    if (status == TOOL_OK)
        status = output_commit(&out);
    if (status == TOOL_OK)
        status = result_done(NULL, o, o->args[0], &in, &out, false, seconds);
    output_discard(&out);
    input_close(&in);
    return status;
}

/* Write the elements of a valid block, piece by piece, so that memory does not grow with their number. */
static int decode(const uint8_t *block, const struct pici_info *info, struct output *out, const struct tool_options *o)
{
    size_t width = pici_dtype_width(info->dtype);
    uint8_t *piece = malloc(PIECE * width);
    struct pici_opts opts = PICI_OPTS_INIT;
    opts.threads = o->threads;
    int status = piece ? TOOL_OK : tool_nomem(o->args[0], "a piece of the elements");
    for (uint64_t done = 0; status == TOOL_OK && done < info->count;) {
        size_t n = info->count - done < PIECE ? (size_t)(info->count - done) : PIECE;
        enum pici_status s = pici_decompress_range(piece, done, n, block, info->block_bytes, &opts);
        source_swap_raw(piece, n * width, width);
        status = s ? tool_bad(o->args[0], "%s", pici_strerror(s)) : output_write(out, piece, n * width);
        done += n;
    }
    free(piece);
    return status;
}

int verb_block_decode(const struct tool_options *o)
{
    struct input in;
    struct output out = {.fd = -1};
    uint8_t *block;
    size_t len;
    int status = input_open(&in, o->args[0]);
    if (status)
        return status;
    status = input_slurp(&in, &block, &len);
    if (status == TOOL_OK) {
        struct pici_info info = PICI_INFO_INIT;
        status = block_check(in.name, block, len);
        if (status == TOOL_OK && pici_inspect(&info, block, len) != PICI_OK)
            status = tool_bad(in.name, "not a block");
        if (status == TOOL_OK)
            status = block_within(in.name, &info, limit_of(o, len, 0));
        if (status == TOOL_OK)
            status = output_open(&out, o->args[1], &in, o->force);
        if (status == TOOL_OK && !o->no_sparse)
            output_sparse(&out);
        if (status == TOOL_OK)
            status = output_claim(&out, in.name, block_bytes(&info));
        const double start = term_now();
        if (status == TOOL_OK)
            status = decode(block, &info, &out, o);
        const double seconds = term_now() - start;
        if (status == TOOL_OK)
            status = output_commit(&out);
        if (status == TOOL_OK)
            status = result_done(NULL, o, o->args[0], &in, &out, true, seconds);
        output_discard(&out);
        free(block);
    }
    input_close(&in);
    return status;
}
