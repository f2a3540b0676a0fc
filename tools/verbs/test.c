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

static int check_delta(struct input *input, struct reading *reading, struct delta *delta)
{
    bool is_delta;
    TRY(reading_open(reading, input, 1, true));
    TRY(reading_is_delta(reading, &is_delta));
    return is_delta ? reading_delta(reading, delta) : TOOL_OK;
}

/* Checks the rules of deltas, by random access, in addition to the rules of every file. */
static int test_delta(struct input *input)
{
    struct reading reading;
    struct delta delta = {0};
    const int status = check_delta(input, &reading, &delta);
    pici_delta_close(&delta);
    reading_close(&reading);
    return status;
}

static int verify(struct input *input, struct reading *reading, const struct tool_options *options)
{
    TRY(reading_open(reading, input, options->threads, false));
    const enum pici_status status = pici_reader_verify(reading->reader);
    return status ? reading_failed(reading, status) : TOOL_OK;
}

static int test_file(struct input *input, const struct tool_options *options)
{
    struct reading reading;
    const int status = verify(input, &reading, options);
    reading_close(&reading);
    TRY(status);
    return input->regular ? test_delta(input) : TOOL_OK;
}

static int test_block(struct input *input)
{
    uint8_t *block;
    size_t size;
    TRY(input_slurp(input, &block, &size));
    const int status = block_check(input->name, block, size);
    free(block);
    return status;
}

/* Reports that a file or folder is good. */
static void test_good(const char *name, uint64_t checked, double start, const struct tool_options *options)
{
    if (term_talk() >= TERM_VERBOSE) {
        char bytes[TERM_TEXT], speed[TERM_TEXT];
        fprintf(stderr, "  %s checked, %s\n", term_bytes(bytes, checked),
                term_speed(speed, checked, term_now() - start));
    }
    if (!options->json && term_talk() >= TERM_NORMAL) {
        term_puts(stdout, name);
        fputs(": ", stdout);
        term_on(stdout, TERM_GREEN);
        fputs("ok", stdout);
        term_off(stdout);
        putchar('\n');
    }
}

/* A folder under test. */
struct tested {
    const struct folder *folder;
    struct tool_options options; /* with the threads for one file */
};

static int follow_all(struct reading *reading, struct input *input, const struct folder *folder, const char *shard)
{
    TRY(reading_open(reading, input, 1, true));
    reading_in_folder(reading, folder_shards(folder), shard);
    for (bool has_more = true; has_more;) {
        struct pici_tensor_info tensor;
        TRY(reading_next(reading, &tensor, &has_more));
        if (has_more)
            TRY(reading_follow(reading, &tensor));
    }
    return TOOL_OK;
}

/* Checks that the references of a shard lead to tensors. */
static int test_references(const char *path, const struct folder *folder, const char *shard)
{
    struct input input;
    struct reading reading;
    TRY(input_open(&input, path));
    const int status = follow_all(&reading, &input, folder, shard);
    reading_close(&reading);
    input_close(&input);
    return status;
}

/* Tests a shard that picitool made: the rules of its file, and its sum in the list. */
static int test_shard(const char *path, const struct tool_options *options, const struct folder_sum *want)
{
    struct input input;
    struct progress progress;
    TRY(input_open(&input, path));
    progress_start(&progress, path, input.bytes);
    input.progress = &progress;
    input_hash(&input);
    const int status = test_file(&input, options);
    progress_end(&progress);
    struct folder_sum sum = folder_input_sum(&input);
    sum.bytes = input.bytes; /* random access has moved the position */
    input_close(&input);
    TRY(status);
    return folder_match(path, &sum, want);
}

static int test_part(void *context, size_t i)
{
    const struct tested *const tested = context;
    const struct folder_file *const file = &tested->folder->list.file[i];
    const bool shard = file->kind == FOLDER_SHARD;
    if (file->kind == FOLDER_SAME)
        return TOOL_OK;
    char *const path = folder_path(tested->folder->path, file->name, shard ? FOLDER_EXTENSION : "");
    int status = TOOL_BAD;
    if (path)
        status = shard ? test_shard(path, &tested->options, &file->stored) : folder_copy_as(path, NULL, &file->stored);
    if (!status && shard && tested->folder->list.references)
        status = test_references(path, tested->folder, file->name);
    free(path);
    return status;
}

static int test_opened(struct folder *folder, const struct tool_options *options)
{
    const double start = term_now();
    struct tested tested = {folder, *options};
    uint64_t bytes = 0;
    for (size_t i = 0; i < folder->files.count; i++)
        bytes += folder->files.entry[i].bytes;
    if (folder->made) {
        const unsigned at_a_time =
            jobs_at_a_time(folder->list.files, tool_threads(options->threads), &tested.options.threads);
        progress_all_start(folder->path, bytes);
        const int status = jobs_run(folder->list.files, at_a_time, true, test_part, &tested);
        progress_all_end();
        TRY(status);
    } else {
        TRY(folder_check(folder, NULL, NULL, NULL));
    }
    test_good(folder->path, bytes, start, options);
    return TOOL_OK;
}

static int test_folder(const char *path, const struct tool_options *options)
{
    struct folder folder;
    TRY(folder_open(&folder, path));
    const int status = test_opened(&folder, options);
    folder_close(&folder);
    return status;
}

static int test_input(struct input *input, const char *path, const struct tool_options *options)
{
    enum reading_kind kind;
    TRY(reading_kind(input, path, &kind));
    return kind == READING_BLOCK ? test_block(input) : test_file(input, options);
}

static int test_one(const char *path, const struct tool_options *options)
{
    if (folder_is(path))
        return test_folder(path, options);
    struct input input;
    struct progress progress;
    TRY(input_open(&input, path));
    progress_start(&progress, input.name, input.bytes);
    input.progress = &progress;
    const int status = test_input(&input, path, options);
    progress_end(&progress);
    if (!status)
        test_good(input.name, input_length(&input), progress.start, options);
    input_close(&input);
    return status;
}

int verb_test(const struct tool_options *options)
{
    int worst = TOOL_OK;
    struct jsonout json = {.file = stdout};
    TRY(results_check(options, "test"));
    if (options->json)
        jsonout_begin(&json, NULL, '[');
    for (int i = 0; i < options->nargs; i++) {
        const int status = test_one(options->args[i], options);
        if (status > worst)
            worst = status;
        if (options->json) {
            jsonout_begin(&json, NULL, '{');
            jsonout_string(&json, "file", options->args[i]);
            jsonout_bool(&json, "ok", status == TOOL_OK);
            if (status)
                jsonout_string(&json, "error", tool_last_error());
            jsonout_end(&json, '}');
        }
    }
    if (options->json)
        jsonout_end(&json, ']');
    return worst;
}
