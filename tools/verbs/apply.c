/* SPDX-License-Identifier: BSD-3-Clause
 *
 * picitool apply: opens a base and a chain of deltas; pici_apply_deltas applies them. */
#include <stdlib.h>

#include "folder/folder.h"
#include "input/reading.h"
#include "input/tensors.h"
#include "output/result.h"
#include "pici/delta_file.h"
#include "term.h"
#include "verbs/folders.h"

struct step {
    struct input input;
    struct reading reading;
};

struct job {
    const struct tool_options *options;
    struct tensors base;
    struct pici_state *state; /* the base */
    struct step *step;        /* [steps] */
    int steps;
    struct pici_deltas *deltas;
    struct pici_deltas_info info;
    struct pici_perms perms; /* of the deltas and the base */
    struct output output;
};

static struct step *last(const struct job *job)
{
    return &job->step[job->steps - 1];
}

static int open_step(struct job *job, int i)
{
    struct step *const step = &job->step[i];
    const char *const path = job->options->args[1 + i];
    char reason[PICI_WHY_BYTES];
    bool is_delta;
    TRY(input_open(&step->input, path));
    if (!step->input.regular)
        return tool_bad(step->input.name, "is empty or not seekable: use a regular file");
    TRY(output_perms(&job->perms, step->input.name, step->input.fd));
    TRY(input_rest(&step->input, path, (size_t)i));
    TRY(reading_open(&step->reading, &step->input, job->options->threads, true));
    TRY(reading_is_delta(&step->reading, &is_delta));
    if (!is_delta)
        return tool_bad(step->input.name, "not a delta: picitool decompress is for other .pici files");
    return tool_failed(step->input.name, pici_deltas_add(job->deltas, step->reading.reader, step->input.name, reason),
                       reason);
}

/* Opens the base, with the type that the first delta names. */
static int open_base(struct job *job)
{
    struct tool_options options = {.type = (enum tool_type)job->info.type};
    if (options.type == TYPE_RAW)
        options.dtype = job->info.dtype;
    TRY(tensors_open(&job->base, job->options->args[0], &options));
    return tensors_state(&job->base, &job->state);
}

static void done(void *context, uint64_t bytes)
{
    progress_at(context, bytes, bytes);
}

static enum pici_status apply_deltas(struct output *output, struct pici_state *base, struct pici_deltas *deltas,
                                     const char *name, uint64_t bytes, const struct tool_options *options, char *reason)
{
    struct pici_apply_opts apply_options = PICI_APPLY_OPTS_INIT;
    struct progress progress;
    apply_options.threads = options->threads;
    apply_options.progress = done;
    apply_options.progress_ctx = &progress;
    progress_start(&progress, name, bytes);
    const enum pici_status status = pici_apply_deltas(output_put, output, base, deltas, &apply_options, reason);
    progress_end(&progress);
    return status;
}

/* Applies deltas to one file of a folder. */
static int apply_part(struct output *output, struct pici_state *base, struct pici_deltas *deltas, const char *name,
                      uint64_t bytes, const struct tool_options *options)
{
    char reason[PICI_WHY_BYTES];
    const enum pici_status status = apply_deltas(output, base, deltas, name, bytes, options, reason);
    return status == PICI_E_IO && output->error ? output_failed(output) : tool_failed(output->name, status, reason);
}

static int make(struct job *job)
{
    char reason[PICI_WHY_BYTES], other_reason[PICI_WHY_BYTES];
    int is_result = 0;
    const enum pici_status status = apply_deltas(&job->output, job->state, job->deltas, job->base.input.name,
                                                 job->base.input.bytes, job->options, reason);
    if (status == PICI_E_IO && job->output.error)
        return output_failed(&job->output);
    /* In place, a file that is not the base may be the result of an earlier run. */
    if (status == PICI_E_ARG && job->options->in_place &&
        !pici_deltas_is_result(job->deltas, job->state, &is_result, other_reason) && is_result)
        return TOOL_OK;
    if (status)
        return tool_failed(job->output.name, status, reason);
    return output_commit(&job->output);
}

static uint64_t delta_bytes(const struct job *job)
{
    uint64_t bytes = 0;
    for (int k = 0; k < job->steps; k++)
        bytes += job->step[k].input.bytes;
    return bytes;
}

static int apply(struct job *job)
{
    const char *path = job->options->in_place ? job->options->args[0] : job->options->out;
    for (int k = 0; k < job->steps; k++)
        if (input_is(&job->step[k].input, path))
            return tool_usage(path, "is one of the deltas");
    TRY(output_perms(&job->perms, path, job->base.input.fd));
    TRY(job->options->in_place
            ? output_open(&job->output, path, NULL, true)
            : output_open_as(&job->output, path, &job->base.input, &job->perms, job->options->force));
    if (!job->options->in_place)
        output_times(&job->output, &last(job)->input);
    if (!job->options->no_sparse)
        output_sparse(&job->output);
    const double start = term_now();
    job->output.limit = limit_of(job->options, delta_bytes(job), 2 * job->base.input.bytes);
    TRY(output_claim(&job->output, last(job)->input.name, job->info.bytes));
    TRY(make(job));
    if (job->output.fd < 0)
        result_print(last(job)->input.name, delta_bytes(job), &job->output, true, term_now() - start);
    return TOOL_OK;
}

static int open_and_apply(struct job *job)
{
    job->step = calloc((size_t)job->steps, sizeof *job->step);
    if (!job->step || pici_deltas_new(&job->deltas))
        return tool_nomem(job->options->args[0], "the list of deltas");
    for (int k = 0; k < job->steps; k++)
        TRY(open_step(job, k));
    const enum pici_status status = pici_deltas_get_info(job->deltas, &job->info);
    if (status)
        return reading_failed(&last(job)->reading, status);
    TRY(open_base(job));
    return apply(job);
}

int verb_apply(const struct tool_options *options)
{
    if (!options->out == !options->in_place)
        return tool_usage(NULL, "apply: needs either -o NEW or --in-place");
    for (int i = 0; i < options->nargs; i++)
        if (folder_is(options->args[i]))
            return apply_folders(options, apply_part);
    struct job job = {.options = options,
                      .steps = options->nargs - 1,
                      .output.fd = -1,
                      .base.input.fd = -1,
                      .info = PICI_DELTAS_INFO_INIT};
    const int status = open_and_apply(&job);
    output_discard(&job.output);
    pici_deltas_free(job.deltas);
    pici_state_free(job.state);
    for (int k = 0; job.step && k < job.steps; k++) {
        reading_close(&job.step[k].reading);
        input_close(&job.step[k].input);
    }
    tensors_close(&job.base);
    free(job.step);
    pici_perms_free(&job.perms);
    return status;
}
