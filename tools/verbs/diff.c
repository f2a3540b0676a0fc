/* SPDX-License-Identifier: BSD-3-Clause
 *
 * picitool diff: the delta from one file to another, which pici_diff_states makes. */
#include "folder/folder.h"
#include "input/tensors.h"
#include "output/result.h"
#include "pici/delta_file.h"
#include "term.h"
#include "verbs/folders.h"

struct job {
    const struct tool_options *o;
    struct tensors base, next;
    struct pici_state *from, *to;
    struct pici_perms perms; /* of both files */
    struct output out;
};

static void done(void *ctx, uint64_t bytes)
{
    progress_at(ctx, bytes, bytes);
}

static int make_delta(struct output *out, struct pici_state *from, struct pici_state *to, const char *name,
                      uint64_t bytes, const struct tool_options *o)
{
    struct pici_diff_opts opts = tensors_diff_opts(o);
    struct progress progress;
    char why[PICI_WHY_BYTES];
    opts.progress = done;
    opts.progress_ctx = &progress;
    progress_start(&progress, name, bytes);
    const enum pici_status s = pici_diff_states(output_put, out, from, to, &opts, why);
    progress_end(&progress);
    if (s == PICI_E_IO && out->err)
        return output_failed(out);
    if (s)
        tool_bad(why[0] ? NULL : out->name, "%s", why[0] ? why : pici_strerror(s));
    return s == PICI_E_UNSUPPORTED ? TOOL_USAGE : s ? TOOL_BAD : TOOL_OK;
}

static int diff(struct job *j)
{
    const struct tool_options *const o = j->o;
    const struct input *const in = &j->next.in;
    TRY(tensors_open_pair(&j->base, &j->next, o->args, o));
    if (input_is(&j->base.in, o->out))
        return tool_usage(o->out, "is the base");
    TRY(output_perms(&j->perms, o->out, in->fd));
    TRY(output_perms(&j->perms, o->out, j->base.in.fd));
    TRY(output_open_as(&j->out, o->out, in, &j->perms, o->force));
    j->out.limit = limit_of(o, j->base.in.bytes + in->bytes, 0);
    const double start = term_now();
    TRY(tensors_state(&j->base, &j->from));
    TRY(tensors_state(&j->next, &j->to));
    TRY(make_delta(&j->out, j->from, j->to, in->name, in->bytes, o));
    const double seconds = term_now() - start;
    TRY(output_commit(&j->out));
    result_print(in->name, in->bytes, &j->out, false, seconds);
    return TOOL_OK;
}

int verb_diff(const struct tool_options *o)
{
    struct job j = {.o = o, .out.fd = -1, .base.in.fd = -1, .next.in.fd = -1};
    if (!o->out)
        return tool_usage(NULL, "diff: needs -o DELTA");
    if (folder_is(o->args[0]) || folder_is(o->args[1]))
        return diff_folders(o, make_delta);
    const int status = diff(&j);
    output_discard(&j.out);
    pici_state_free(j.from);
    pici_state_free(j.to);
    tensors_close(&j.next);
    tensors_close(&j.base);
    pici_perms_free(&j.perms);
    return status;
}
