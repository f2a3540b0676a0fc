/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "folder/make.h"
#include "input/attrs.h"
#include "input/reading.h"
#include "output/restore.h"
#include "output/result.h"
#include "parse/unzip.h"
#include "term.h"
#include "tool.h"

static int copy(struct reading *r, struct output *out)
{
    struct restore to;
    struct progress p;
    int status = restore_open(&to, r, out);
    if (status)
        return status;
    progress_start(&p, r->in->name, r->in->bytes);
    for (bool more = true; status == TOOL_OK && more;) {
        struct pici_tensor_info t;
        status = reading_next(r, &t, &more);
        if (status == TOOL_OK && more) {
            result_tensor(t.name, t.dtype, t.shape, t.rank);
            status = restore_tensor(&to, &t, &p);
        }
    }
    if (status == TOOL_OK)
        status = restore_end(&to);
    progress_end(&p);
    restore_close(&to);
    return status;
}

/* The first tensor that was deflated, by the index; false if there is none. */
static bool is_deflated(struct pici_reader *reader, struct pici_tensor_info *t)
{
    uint64_t tensors = 0;
    struct pici_attr a = {0};
    enum pici_status s = pici_reader_count(reader, &tensors);
    for (uint64_t i = 0; !s && !a.key && i < tensors; i++) {
        *t = (struct pici_tensor_info)PICI_TENSOR_INFO_INIT;
        s = pici_reader_attr(reader, i, ATTR_DEFLATE, &a);
        if (!s && a.key)
            s = pici_reader_tensor(reader, i, t);
    }
    return !s && a.key;
}

/* Finds the length of the output by the index; 0: not known. Refuses what this build cannot deflate. A file that is
 * read forward is opened once more for that. Errors of the file are ignored here, since reading it will find them. */
static int look_ahead(const struct reading *r, uint64_t *bytes)
{
    struct input *in = r->in;
    const struct input was = *in;
    struct pici_reader *again = NULL;
    struct pici_tensor_info t;
    int status = TOOL_OK;
    *bytes = 0;
    if (!r->at_random && in->regular && pici_reader_open_at(&again, input_read_at, in, in->bytes, NULL) != PICI_OK) {
        pici_reader_close(again);
        again = NULL;
    }
    struct pici_reader *reader = r->at_random ? r->reader : again;
    if (reader && limit_claimed(reader, UINT64_MAX, bytes) != PICI_OK)
        *bytes = 0;
    if (reader && !r->keep_going && !unzip_inflates() && is_deflated(reader, &t))
        status = restore_no_zlib(in->name, t.name);
    pici_reader_close(again);
    *in = was;
    return status;
}

static int refuse_delta(const struct reading *r)
{
    bool is;
    int status = reading_is_delta(r, &is);
    return status == TOOL_OK && is ? tool_bad(r->in->name, "a delta, which needs its base: use picitool apply")
                                   : status;
}

/* Makes the name of the output: as given, or IN without .pici, or - for -. The caller frees it. */
static int output_name(const char *in, const struct tool_options *o, char **out)
{
    const bool stream = strcmp(in, "-") == 0;
    if (!o->out && !stream && !tool_has_extension(in, ".pici"))
        return tool_usage(in, "does not end in .pici: use -o OUT");
    *out = strdup(o->out ? o->out : in);
    if (!*out)
        return tool_nomem(in, "the output's name");
    if (!o->out && !stream)
        (*out)[strlen(in) - strlen(".pici")] = 0;
    return TOOL_OK;
}

/* shard: what the output must be, of a file in a folder; or NULL. */
static int decompress_file(const char *path, const char *out_path, const struct tool_options *o, struct results *sum,
                           const struct folder_file *shard)
{
    struct input in;
    struct output out;
    struct reading r;
    uint64_t claimed;
    double start = 0;
    int status = input_open(&in, path);
    if (status == TOOL_OK) {
        /* Read the header first, so that nothing is created for an input that is not a .pici file. */
        const struct limit limit = input_limit(&in, o);
        status = o->keep_going ? reading_salvage(&r, &in, o->threads, limit_now(&limit))
                               : reading_open(&r, &in, o->threads, false);
        if (status == TOOL_OK)
            status = refuse_delta(&r);
        if (status == TOOL_OK) {
            status = output_open(&out, out_path, &in, o->force);
            out.limit = limit;
            if (shard)
                output_hash(&out);
            start = term_now(); /* a question may have been asked before */
            if (status == TOOL_OK && !o->no_sparse)
                output_sparse(&out);
            if (status == TOOL_OK)
                status = look_ahead(&r, &claimed);
            if (status == TOOL_OK)
                status = output_claim(&out, in.name, claimed);
            if (status == TOOL_OK)
                status = copy(&r, &out);
            const double seconds = term_now() - start;
            if (status == TOOL_OK && shard) {
                const struct folder_sum is = folder_output_sum(&out);
                status = folder_match(path, &is, &shard->original);
            }
            if (status == TOOL_OK)
                status = output_commit(&out);
            if (status == TOOL_OK && r.lost)
                status = TOOL_BAD;
            if (status == TOOL_OK && !shard)
                status = result_done(sum, o, path, &in, &out, true, seconds);
            output_discard(&out);
        }
        reading_close(&r);
        input_close(&in);
    }
    return status;
}

/* Restores a file of a compressed folder. */
static int decompress_part(struct folder_make *m, struct folder_file *f)
{
    struct tool_options o = m->each;
    const bool shard = f->kind == FOLDER_SHARD;
    char *const from = folder_path(m->from->path, f->name, shard ? FOLDER_EXTENSION : "");
    char *const to = folder_path(m->to, f->name, "");
    struct folder_sum is;
    o.force = false;
    int status = !from || !to ? TOOL_BAD : shard ? decompress_file(from, to, &o, NULL, f) : folder_copy(from, to, &is);
    if (status == TOOL_OK && !shard)
        status = folder_match(from, &is, &f->original);
    free(from);
    free(to);
    return status;
}

static int decompress_folder(const char *path, const struct tool_options *o, void *sum)
{
    struct folder from;
    char *out = NULL;
    if (o->keep_going)
        return tool_usage(path, "is a folder: --keep-going is for the .pici files in it");
    int status = folder_refuse_options(path, o);
    if (status == TOOL_OK)
        status = folder_open(&from, path);
    if (status)
        return status;
    struct folder_make m = {.from = &from, .o = o, .list = from.list, .restored = true, .one = decompress_part};
    status = folder_expect_made(&from, false);
    char *const name = folder_output_name(path, ""); /* without slashes at its end */
    if (status == TOOL_OK)
        status = name ? output_name(name, o, &out) : TOOL_BAD;
    if (status == TOOL_OK)
        status = folder_make(&m, out, sum);
    free(name);
    free(out);
    folder_close(&from);
    return status;
}

static int decompress(const char *path, const struct tool_options *o, void *sum)
{
    char *out;
    if (folder_is(path))
        return decompress_folder(path, o, sum);
    int status = output_name(path, o, &out);
    if (status)
        return status;
    status = decompress_file(path, out, o, sum, NULL);
    free(out);
    return status;
}

int verb_decompress(const struct tool_options *o)
{
    struct results sum = {0};
    int status = results_check(o, "decompress");
    if (status)
        return status;
    status = results_each(o, decompress, &sum);
    results_print(&sum, o, true);
    return status;
}
