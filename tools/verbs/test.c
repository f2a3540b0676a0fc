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

/* Checks the rules of deltas, which takes random access, besides those of every file. */
static int test_delta(struct input *in)
{
    struct reading r;
    struct delta d = {0};
    bool is = false;
    int status = reading_open(&r, in, 1, true);
    if (status == TOOL_OK)
        status = reading_is_delta(&r, &is);
    if (status == TOOL_OK && is)
        status = reading_delta(&r, &d);
    pici_delta_close(&d);
    reading_close(&r);
    return status;
}

static int test_file(struct input *in, const struct tool_options *o)
{
    struct reading r;
    int status = reading_open(&r, in, o->threads, false);
    if (status == TOOL_OK) {
        enum pici_status s = pici_reader_verify(r.reader);
        if (s)
            status = reading_failed(&r, s);
    }
    reading_close(&r);
    return status == TOOL_OK && in->regular ? test_delta(in) : status;
}

static int test_block(struct input *in)
{
    uint8_t *block;
    size_t len;
    int status = input_slurp(in, &block, &len);
    if (status == TOOL_OK) {
        status = block_check(in->name, block, len);
        free(block);
    }
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
    int status = input_open(&in, path);
    if (status)
        return status;
    progress_start(&progress, path, in.bytes);
    in.progress = &progress;
    input_hash(&in);
    status = test_file(&in, o);
    progress_end(&progress);
    struct folder_sum is = folder_input_sum(&in);
    is.bytes = in.bytes; /* reading at random has moved the position */
    if (status == TOOL_OK)
        status = folder_match(path, &is, want);
    input_close(&in);
    return status;
}

static int test_part(void *ctx, size_t i)
{
    const struct tested *const t = ctx;
    const struct folder_file *const file = &t->f->list.file[i];
    const bool shard = file->kind == FOLDER_SHARD;
    struct folder_sum is;
    if (file->kind == FOLDER_SAME)
        return TOOL_OK;
    char *const path = folder_path(t->f->path, file->name, shard ? FOLDER_EXTENSION : "");
    int status = !path ? TOOL_BAD : shard ? test_shard(path, &t->o, &file->stored) : folder_copy(path, NULL, &is);
    if (status == TOOL_OK && !shard)
        status = folder_match(path, &is, &file->stored);
    free(path);
    return status;
}

static int test_folder(const char *path, const struct tool_options *o)
{
    struct folder f;
    uint64_t bytes = 0;
    int status = folder_open(&f, path);
    if (status)
        return status;
    const double start = term_now();
    struct tested t = {&f, *o};
    for (size_t i = 0; i < f.entries; i++)
        bytes += f.entry[i].bytes;
    if (f.made) {
        const unsigned at_a_time = jobs_at_a_time(f.list.files, tool_threads(o->threads), &t.o.threads);
        progress_all_start(path, bytes);
        status = jobs_run(f.list.files, at_a_time, true, test_part, &t);
        progress_all_end();
    } else {
        status = folder_check(&f, NULL);
    }
    if (status == TOOL_OK)
        test_good(path, bytes, start, o);
    folder_close(&f);
    return status;
}

static int test_one(const char *path, const struct tool_options *o)
{
    if (folder_is(path))
        return test_folder(path, o);
    struct input in;
    struct progress progress;
    enum reading_kind kind;
    int status = input_open(&in, path);
    if (status)
        return status;
    progress_start(&progress, in.name, in.bytes);
    in.progress = &progress;
    status = reading_kind(&in, path, &kind);
    if (status == TOOL_OK)
        status = kind == READING_BLOCK ? test_block(&in) : test_file(&in, o);
    progress_end(&progress);
    if (status == TOOL_OK)
        test_good(in.name, input_length(&in), progress.start, o);
    input_close(&in);
    return status;
}

int verb_test(const struct tool_options *o)
{
    int worst = TOOL_OK, status = results_check(o, "test");
    struct jsonout j = {.f = stdout};
    if (status)
        return status;
    if (o->json)
        jsonout_begin(&j, NULL, '[');
    for (int i = 0; i < o->nargs; i++) {
        status = test_one(o->args[i], o);
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
