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
    const struct tool_options *options;
    struct input input;
    struct output output;
    uint8_t *from, *to; /* the whole input [size]; the output */
    size_t size;
};

/* Commits the output. start: when it was begun. */
static int done(struct job *job, bool restored, double start)
{
    const double seconds = term_now() - start;
    TRY(output_commit(&job->output));
    return result_done(NULL, job->options, job->options->args[0], &job->input, &job->output, restored, seconds);
}

static int encode(struct job *job)
{
    const struct tool_options *const options = job->options;
    const enum pici_dtype dtype = (enum pici_dtype)options->dtype;
    const size_t width = pici_dtype_width(dtype);
    TRY(output_open(&job->output, options->args[1], &job->input, options->force));
    TRY(input_slurp(&job->input, &job->from, &job->size));
    job->output.limit = input_limit(&job->input, options);
    const double start = term_now();
    const size_t count = job->size / width, leftover = job->size % width;
    if (leftover)
        return tool_bad_at(job->input.name, job->size - leftover, "%zu bytes left over: not a whole number of %s",
                           leftover, pici_dtype_name(dtype));
    if (options->format == PICI_PACKED && !pici_bound(PICI_PACKED, dtype, 0))
        return tool_usage(NULL, "--format packed: only for floats, not %s", pici_dtype_name(dtype));
    size_t block_size, capacity = pici_bound(options->format, dtype, count); /* 0: does not fit size_t */
    job->to = capacity ? malloc(capacity) : NULL;
    if (!job->to)
        return tool_nomem(job->input.name, "the block");
    struct pici_opts codec_options = PICI_OPTS_INIT;
    codec_options.threads = options->threads;
    codec_options.checksum = options->checksum;
    codec_options.zeros = options->zeros;
    codec_options.pack = options->pack;
    source_swap_raw(job->from, job->size, width);
    const enum pici_status status =
        pici_compress(job->to, capacity, &block_size, job->from, count, dtype, options->format, &codec_options);
    if (status)
        return tool_bad(job->input.name, "%s", pici_strerror(status));
    TRY(output_write(&job->output, job->to, block_size));
    return done(job, false, start);
}

/* Writes the elements of a valid block, piece by piece: memory does not grow with their number. */
static int decode(struct job *job)
{
    const struct tool_options *const options = job->options;
    struct pici_info info = PICI_INFO_INIT;
    TRY(input_slurp(&job->input, &job->from, &job->size));
    TRY(block_open(job->input.name, job->from, job->size, options, &info));
    TRY(output_open(&job->output, options->args[1], &job->input, options->force));
    if (!options->no_sparse)
        output_sparse(&job->output);
    TRY(output_claim(&job->output, job->input.name, block_bytes(&info)));
    const double start = term_now();
    const size_t width = pici_dtype_width(info.dtype);
    struct pici_opts codec_options = PICI_OPTS_INIT;
    codec_options.threads = options->threads;
    job->to = malloc(PIECE * width);
    if (!job->to)
        return tool_nomem(options->args[0], "a piece of the elements");
    for (uint64_t first = 0, count; first < info.count; first += count) {
        count = info.count - first < PIECE ? info.count - first : PIECE;
        const enum pici_status status =
            pici_decompress_range(job->to, first, (size_t)count, job->from, info.block_bytes, &codec_options);
        if (status)
            return tool_bad(options->args[0], "%s", pici_strerror(status));
        source_swap_raw(job->to, (size_t)count * width, width);
        TRY(output_write(&job->output, job->to, (size_t)count * width));
    }
    return done(job, true, start);
}

static int run(const struct tool_options *options, int (*work)(struct job *))
{
    struct job job = {.options = options, .output.fd = -1};
    TRY(input_open(&job.input, options->args[0]));
    const int status = work(&job);
    output_discard(&job.output);
    input_close(&job.input);
    free(job.from);
    free(job.to);
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
