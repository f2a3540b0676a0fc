/* SPDX-License-Identifier: BSD-3-Clause
 *
 * picitool apply: opens a base and deltas in a row, which pici_apply_deltas applies. */
#include <stdlib.h>

#include "folder/folder.h"
#include "input/reading.h"
#include "input/tensors.h"
#include "output/result.h"
#include "pici/delta_file.h"
#include "term.h"
#include "verbs/folders.h"

struct step {
    struct input in;
    struct reading r;
};

struct job {
    const struct tool_options *o;
    struct tensors base;
    struct pici_state *state; /* the base */
    struct step *step;        /* [steps] */
    int steps;
    struct pici_deltas *deltas;
    struct pici_deltas_info info;
    struct pici_perms perms; /* of the deltas and the base */
    struct output out;
};

static struct step *last(const struct job *j)
{
    return &j->step[j->steps - 1];
}

/* What a function says that it has failed by. */
static int failed(const char *name, enum pici_status status, const char *why)
{
    return status ? tool_bad(why[0] ? NULL : name, "%s", why[0] ? why : pici_strerror(status)) : TOOL_OK;
}

static int open_step(struct job *j, int i)
{
    struct step *const k = &j->step[i];
    const char *const path = j->o->args[1 + i];
    char why[PICI_WHY_BYTES];
    bool is;
    TRY(input_open(&k->in, path));
    if (!k->in.regular)
        return tool_bad(k->in.name, "empty, or not a file that can be read at random");
    TRY(output_perms(&j->perms, k->in.name, k->in.fd));
    TRY(input_rest(&k->in, path, (size_t)i));
    TRY(reading_open(&k->r, &k->in, j->o->threads, true));
    TRY(reading_is_delta(&k->r, &is));
    if (!is)
        return tool_bad(k->in.name, "not a delta: picitool decompress is for other .pici files");
    return failed(k->in.name, pici_deltas_add(j->deltas, k->r.reader, k->in.name, why), why);
}

/* Opens the base, as a file of the type that the first delta names. */
static int open_base(struct job *j)
{
    struct tool_options options = {.type = (enum tool_type)j->info.type};
    if (options.type == TYPE_RAW)
        options.dtype = j->info.dtype;
    TRY(tensors_open(&j->base, j->o->args[0], &options));
    return tensors_state(&j->base, &j->state);
}

static void done(void *context, uint64_t bytes)
{
    progress_at(context, bytes, bytes);
}

static enum pici_status apply_deltas(struct output *output, struct pici_state *base, struct pici_deltas *deltas,
                                     const char *name, uint64_t bytes, const struct tool_options *options, char *why)
{
    struct pici_apply_opts opts = PICI_APPLY_OPTS_INIT;
    struct progress progress;
    opts.threads = options->threads;
    opts.progress = done;
    opts.progress_ctx = &progress;
    progress_start(&progress, name, bytes);
    const enum pici_status status = pici_apply_deltas(output_put, output, base, deltas, &opts, why);
    progress_end(&progress);
    return status;
}

/* Of one file in a folder. */
static int apply_part(struct output *output, struct pici_state *base, struct pici_deltas *deltas, const char *name,
                      uint64_t bytes, const struct tool_options *options)
{
    char why[PICI_WHY_BYTES];
    const enum pici_status status = apply_deltas(output, base, deltas, name, bytes, options, why);
    return status == PICI_E_IO && output->error ? output_failed(output) : failed(output->name, status, why);
}

static int make(struct job *j)
{
    char why[PICI_WHY_BYTES], other[PICI_WHY_BYTES];
    int is = 0;
    const enum pici_status status =
        apply_deltas(&j->out, j->state, j->deltas, j->base.input.name, j->base.input.bytes, j->o, why);
    if (status == PICI_E_IO && j->out.error)
        return output_failed(&j->out);
    /* In place, what is not the base may be the result of an earlier run. */
    if (status == PICI_E_ARG && j->o->in_place && !pici_deltas_is_result(j->deltas, j->state, &is, other) && is)
        return TOOL_OK;
    if (status)
        return failed(j->out.name, status, why);
    return output_commit(&j->out);
}

static uint64_t delta_bytes(const struct job *j)
{
    uint64_t bytes = 0;
    for (int k = 0; k < j->steps; k++)
        bytes += j->step[k].in.bytes;
    return bytes;
}

static int apply(struct job *j)
{
    const char *path = j->o->in_place ? j->o->args[0] : j->o->out;
    for (int k = 0; k < j->steps; k++)
        if (input_is(&j->step[k].in, path))
            return tool_usage(path, "is one of the deltas");
    TRY(output_perms(&j->perms, path, j->base.input.fd));
    TRY(j->o->in_place ? output_open(&j->out, path, NULL, true)
                       : output_open_as(&j->out, path, &j->base.input, &j->perms, j->o->force));
    if (!j->o->no_sparse)
        output_sparse(&j->out);
    const double start = term_now();
    j->out.limit = limit_of(j->o, delta_bytes(j), 2 * j->base.input.bytes);
    TRY(output_claim(&j->out, last(j)->in.name, j->info.bytes));
    TRY(make(j));
    if (j->out.fd < 0)
        result_print(last(j)->in.name, delta_bytes(j), &j->out, true, term_now() - start);
    return TOOL_OK;
}

static int open_and_apply(struct job *j)
{
    j->step = calloc((size_t)j->steps, sizeof *j->step);
    if (!j->step || pici_deltas_new(&j->deltas))
        return tool_nomem(j->o->args[0], "the list of deltas");
    for (int k = 0; k < j->steps; k++)
        TRY(open_step(j, k));
    const enum pici_status status = pici_deltas_get_info(j->deltas, &j->info);
    if (status)
        return reading_failed(&last(j)->r, status);
    TRY(open_base(j));
    return apply(j);
}

int verb_apply(const struct tool_options *options)
{
    if (!options->out == !options->in_place)
        return tool_usage(NULL, "apply: needs either -o NEW or --in-place");
    for (int i = 0; i < options->nargs; i++)
        if (folder_is(options->args[i]))
            return apply_folders(options, apply_part);
    struct job j = {
        .o = options, .steps = options->nargs - 1, .out.fd = -1, .base.input.fd = -1, .info = PICI_DELTAS_INFO_INIT};
    const int status = open_and_apply(&j);
    output_discard(&j.out);
    pici_deltas_free(j.deltas);
    pici_state_free(j.state);
    for (int k = 0; j.step && k < j.steps; k++) {
        reading_close(&j.step[k].r);
        input_close(&j.step[k].in);
    }
    tensors_close(&j.base);
    free(j.step);
    pici_perms_free(&j.perms);
    return status;
}
