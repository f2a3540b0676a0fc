/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>

#include "folder/folder.h"
#include "input/reading.h"
#include "jobs.h"
#include "output/result.h"
#include "show/jsonout.h"
#include "term.h"
#include "tool.h"
#include "verbs/block.h"

static int check_delta(struct input *in, struct reading *r, struct delta *d)
{
    bool is;
    TRY(reading_open(r, in, 1, true));
    TRY(reading_is_delta(r, &is));
    return is ? reading_delta(r, d) : TOOL_OK;
}

/* Checks the rules of deltas, which takes random access, besides those of every file. */
static int test_delta(struct input *in)
{
    struct reading r;
    struct delta d = {0};
    const int status = check_delta(in, &r, &d);
    pici_delta_close(&d);
    reading_close(&r);
    return status;
}

static int verify(struct input *in, struct reading *r, const struct tool_options *o)
{
    TRY(reading_open(r, in, o->threads, false));
    const enum pici_status s = pici_reader_verify(r->reader);
    return s ? reading_failed(r, s) : TOOL_OK;
}

static int test_file(struct input *in, const struct tool_options *o)
{
    struct reading r;
    const int status = verify(in, &r, o);
    reading_close(&r);
    TRY(status);
    return in->regular ? test_delta(in) : TOOL_OK;
}

static int test_block(struct input *in)
{
    uint8_t *block;
    size_t len;
    TRY(input_slurp(in, &block, &len));
    const int status = block_check(in->name, block, len);
    free(block);
    return status;
}

/* Says that a file or folder is good. */
static void test_good(const char *name, uint64_t checked, double start, const struct tool_options *o)
{
    if (term_talk() >= TERM_VERBOSE) {
        char bytes[TERM_TEXT], speed[TERM_TEXT];
        fprintf(stderr, "  %s checked, %s\n", term_bytes(bytes, checked),
                term_speed(speed, checked, term_now() - start));
    }
    if (!o->json && term_talk() >= TERM_NORMAL) {
        term_puts(stdout, name);
        fputs(": ", stdout);
        term_on(stdout, TERM_GREEN);
        fputs("ok", stdout);
        term_off(stdout);
        putchar('\n');
    }
}

/* A folder that is tested. */
struct tested {
    const struct folder *f;
    struct tool_options o; /* its threads: of one file */
};

/* Tests a shard that picitool made: the rules of its file, and that it is the file that the list names. */
static int test_shard(const char *path, const struct tool_options *o, const struct folder_sum *want)
{
    struct input in;
    struct progress progress;
    TRY(input_open(&in, path));
    progress_start(&progress, path, in.bytes);
    in.progress = &progress;
    input_hash(&in);
    const int status = test_file(&in, o);
    progress_end(&progress);
    struct folder_sum is = folder_input_sum(&in);
    is.bytes = in.bytes; /* reading at random has moved the position */
    input_close(&in);
    TRY(status);
    return folder_match(path, &is, want);
}

static int test_part(void *ctx, size_t i)
{
    const struct tested *const t = ctx;
    const struct folder_file *const file = &t->f->list.file[i];
    const bool shard = file->kind == FOLDER_SHARD;
    if (file->kind == FOLDER_SAME)
        return TOOL_OK;
    char *const path = folder_path(t->f->path, file->name, shard ? FOLDER_EXTENSION : "");
    const int status = !path   ? TOOL_BAD
                       : shard ? test_shard(path, &t->o, &file->stored)
                               : folder_copy_as(path, NULL, &file->stored);
    free(path);
    return status;
}

static int test_opened(struct folder *f, const struct tool_options *o)
{
    const double start = term_now();
    struct tested t = {f, *o};
    uint64_t bytes = 0;
    for (size_t i = 0; i < f->entries; i++)
        bytes += f->entry[i].bytes;
    if (f->made) {
        const unsigned at_a_time = jobs_at_a_time(f->list.files, tool_threads(o->threads), &t.o.threads);
        progress_all_start(f->path, bytes);
        const int status = jobs_run(f->list.files, at_a_time, true, test_part, &t);
        progress_all_end();
        TRY(status);
    } else {
        TRY(folder_check(f, NULL, NULL, NULL));
    }
    test_good(f->path, bytes, start, o);
    return TOOL_OK;
}

static int test_folder(const char *path, const struct tool_options *o)
{
    struct folder f;
    TRY(folder_open(&f, path));
    const int status = test_opened(&f, o);
    folder_close(&f);
    return status;
}

static int test_input(struct input *in, const char *path, const struct tool_options *o)
{
    enum reading_kind kind;
    TRY(reading_kind(in, path, &kind));
    return kind == READING_BLOCK ? test_block(in) : test_file(in, o);
}

static int test_one(const char *path, const struct tool_options *o)
{
    if (folder_is(path))
        return test_folder(path, o);
    struct input in;
    struct progress progress;
    TRY(input_open(&in, path));
    progress_start(&progress, in.name, in.bytes);
    in.progress = &progress;
    const int status = test_input(&in, path, o);
    progress_end(&progress);
    if (!status)
        test_good(in.name, input_length(&in), progress.start, o);
    input_close(&in);
    return status;
}

int verb_test(const struct tool_options *o)
{
    int worst = TOOL_OK;
    struct jsonout j = {.f = stdout};
    TRY(results_check(o, "test"));
    if (o->json)
        jsonout_begin(&j, NULL, '[');
    for (int i = 0; i < o->nargs; i++) {
        const int status = test_one(o->args[i], o);
        if (status > worst)
            worst = status;
        if (o->json) {
            jsonout_begin(&j, NULL, '{');
            jsonout_string(&j, "file", o->args[i]);
            jsonout_bool(&j, "ok", status == TOOL_OK);
            if (status)
                jsonout_string(&j, "error", tool_last_error());
            jsonout_end(&j, '}');
        }
    }
    if (o->json)
        jsonout_end(&j, ']');
    return worst;
}
