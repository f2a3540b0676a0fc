/* SPDX-License-Identifier: BSD-3-Clause
 *
 * picitool diff: makes the delta between two files with pici_diff_states. */
#include "folder/folder.h"
#include "input/tensors.h"
#include "output/result.h"
#include "pici/delta_file.h"
#include "term.h"
#include "verbs/folders.h"

struct job {
    const struct tool_options *options;
    struct tensors base, next;
    struct pici_state *from, *to;
    struct pici_perms perms; /* of both files */
    struct output output;
};

static void done(void *context, uint64_t bytes)
{
    progress_at(context, bytes, bytes);
}

static int make_delta(struct output *output, struct pici_state *from, struct pici_state *to, const char *name,
                      uint64_t bytes, const struct tool_options *options)
{
    struct pici_diff_opts diff_options = tensors_diff_opts(options);
    struct progress progress;
    char reason[PICI_WHY_BYTES];
    diff_options.progress = done;
    diff_options.progress_ctx = &progress;
    progress_start(&progress, name, bytes);
    const enum pici_status status = pici_diff_states(output_put, output, from, to, &diff_options, reason);
    progress_end(&progress);
    if (status == PICI_E_IO && output->error)
        return output_failed(output);
    if (status)
        tool_failed(output->name, status, reason);
    if (status == PICI_E_UNSUPPORTED)
        return TOOL_USAGE;
    return status ? TOOL_BAD : TOOL_OK;
}

static int diff(struct job *job)
{
    const struct tool_options *const options = job->options;
    const struct input *const input = &job->next.input;
    TRY(tensors_open_pair(&job->base, &job->next, options->args, options));
    if (input_is(&job->base.input, options->out))
        return tool_usage(options->out, "is the base");
    TRY(output_perms(&job->perms, options->out, input->fd));
    TRY(output_perms(&job->perms, options->out, job->base.input.fd));
    TRY(output_open_as(&job->output, options->out, input, &job->perms, options->force));
    output_times(&job->output, input);
    job->output.limit = limit_of(options, job->base.input.bytes + input->bytes, 0);
    const double start = term_now();
    TRY(tensors_state(&job->base, &job->from));
    TRY(tensors_state(&job->next, &job->to));
    TRY(make_delta(&job->output, job->from, job->to, input->name, input->bytes, options));
    const double seconds = term_now() - start;
    TRY(output_commit(&job->output));
    result_print(input->name, input->bytes, &job->output, false, seconds);
    return TOOL_OK;
}

int verb_diff(const struct tool_options *options)
{
    struct job job = {.options = options, .output.fd = -1, .base.input.fd = -1, .next.input.fd = -1};
    if (!options->out)
        return tool_usage(NULL, "diff: needs -o DELTA");
    if (folder_is(options->args[0]) || folder_is(options->args[1]))
        return diff_folders(options, make_delta);
    const int status = diff(&job);
    output_discard(&job.output);
    pici_state_free(job.from);
    pici_state_free(job.to);
    tensors_close(&job.next);
    tensors_close(&job.base);
    pici_perms_free(&job.perms);
    return status;
}
