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

int block_check(const char *name, const uint8_t *block, size_t size)
{
    struct pici_fault fault = PICI_FAULT_INIT;
    if (pici_verify_at(block, size, &fault) == PICI_OK)
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

int block_open(const char *name, const uint8_t *block, size_t size, const struct tool_options *options,
               struct pici_info *info)
{
    char text[TERM_TEXT];
    TRY(block_check(name, block, size));
    if (pici_inspect(info, block, size) != PICI_OK)
        return tool_bad(name, "not a block");
    const struct limit limit = limit_of(options, size, 0);
    const uint64_t most = limit_now(&limit);
    if (block_bytes(info) <= most)
        return TOOL_OK;
    return tool_bad_at(name, 8, "%" PRIu64 " elements of %s, more than the limit of %" PRIu64 " bytes (%s)" LIMIT_RAISE,
                       info->count, pici_dtype_name(info->dtype), most, term_bytes(text, most));
}

struct job {
    const struct tool_options *o;
    struct input in;
    struct output out;
    uint8_t *from, *to; /* the whole input, [len]; what is made of it */
    size_t len;
};

/* Commits the output, which was begun at that time. */
static int done(struct job *j, bool restored, double start)
{
    const double seconds = term_now() - start;
    TRY(output_commit(&j->out));
    return result_done(NULL, j->o, j->o->args[0], &j->in, &j->out, restored, seconds);
}

static int encode(struct job *j)
{
    const struct tool_options *const options = j->o;
    const enum pici_dtype dtype = (enum pici_dtype)options->dtype;
    const size_t width = pici_dtype_width(dtype);
    TRY(output_open(&j->out, options->args[1], &j->in, options->force));
    TRY(input_slurp(&j->in, &j->from, &j->len));
    j->out.limit = input_limit(&j->in, options);
    const double start = term_now();
    const size_t n = j->len / width, over = j->len % width;
    if (over)
        return tool_bad_at(j->in.name, j->len - over, "%zu bytes are left over: not a whole number of %s", over,
                           pici_dtype_name(dtype));
    size_t block_len, capacity = pici_bound(options->format, dtype, n); /* 0: does not fit size_t */
    j->to = capacity ? malloc(capacity) : NULL;
    if (!j->to)
        return tool_nomem(j->in.name, "the block");
    struct pici_opts codec_options = PICI_OPTS_INIT;
    codec_options.threads = options->threads;
    codec_options.checksum = options->checksum;
    codec_options.zeros = options->zeros;
    source_swap_raw(j->from, j->len, width);
    const enum pici_status status =
        pici_compress(j->to, capacity, &block_len, j->from, n, dtype, options->format, &codec_options);
    if (status)
        return tool_bad(j->in.name, "%s", pici_strerror(status));
    TRY(output_write(&j->out, j->to, block_len));
    return done(j, false, start);
}

/* Writes the elements of a valid block, piece by piece, so that memory does not grow with their number. */
static int decode(struct job *j)
{
    const struct tool_options *const options = j->o;
    struct pici_info info = PICI_INFO_INIT;
    TRY(input_slurp(&j->in, &j->from, &j->len));
    TRY(block_open(j->in.name, j->from, j->len, options, &info));
    TRY(output_open(&j->out, options->args[1], &j->in, options->force));
    if (!options->no_sparse)
        output_sparse(&j->out);
    TRY(output_claim(&j->out, j->in.name, block_bytes(&info)));
    const double start = term_now();
    const size_t width = pici_dtype_width(info.dtype);
    struct pici_opts codec_options = PICI_OPTS_INIT;
    codec_options.threads = options->threads;
    j->to = malloc(PIECE * width);
    if (!j->to)
        return tool_nomem(options->args[0], "a piece of the elements");
    for (uint64_t at = 0, n; at < info.count; at += n) {
        n = info.count - at < PIECE ? info.count - at : PIECE;
        const enum pici_status status =
            pici_decompress_range(j->to, at, (size_t)n, j->from, info.block_bytes, &codec_options);
        if (status)
            return tool_bad(options->args[0], "%s", pici_strerror(status));
        source_swap_raw(j->to, (size_t)n * width, width);
        TRY(output_write(&j->out, j->to, (size_t)n * width));
    }
    return done(j, true, start);
}

static int run(const struct tool_options *options, int (*work)(struct job *))
{
    struct job j = {.o = options, .out.fd = -1};
    TRY(input_open(&j.in, options->args[0]));
    const int status = work(&j);
    output_discard(&j.out);
    input_close(&j.in);
    free(j.from);
    free(j.to);
    return status;
}

int verb_block_encode(const struct tool_options *options)
{
    return options->dtype ? run(options, encode)
                          : tool_usage(NULL, "block encode: needs --dtype, the type of the elements");
}

int verb_block_decode(const struct tool_options *options)
{
    return run(options, decode);
}
