/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* open_memstream */
#include "parse/folder_list.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse/shards.h"
#include "xxh64.h"

enum { END = 4 + 16 + 1, LINE = 128 + SHARDS_NAME_MOST };

/* Indexed by the version - 1 and by folder_list.delta. Version 2 added files in subfolders; 3, references. */
enum { VERSIONS = 3 };
static const char *const heads[VERSIONS][2] = {{"pici-folder 1 compressed\n", "pici-folder 1 delta\n"},
                                               {"pici-folder 2 compressed\n", "pici-folder 2 delta\n"},
                                               {"pici-folder 3 compressed\n", NULL}};

static bool has_folders(const struct folder_list *list)
{
    size_t i = 0;
    while (i < list->files && !strchr(list->file[i].name, '/'))
        i++;
    return i < list->files;
}

static const char *kind_name(enum folder_kind kind)
{
    static const char *const names[FOLDER_KINDS] = {"file", "shard", "same"};
    return names[kind];
}

static void print_line(char line[LINE], const struct folder_file *file, const char *name)
{
    int written = snprintf(line, LINE, "%s %" PRIu64 " %016" PRIx64, kind_name(file->kind), file->original.bytes,
                           file->original.hash);
    if (file->kind == FOLDER_SHARD)
        written += snprintf(line + written, LINE - (size_t)written, " %" PRIu64 " %016" PRIx64, file->stored.bytes,
                            file->stored.hash);
    snprintf(line + written, LINE - (size_t)written, " %s\n", name);
}

char *folder_list_text(const struct folder_list *list, size_t *size)
{
    char *text = NULL, line[LINE];
    FILE *const stream = open_memstream(&text, size);
    if (!stream)
        return NULL;
    fputs(list->references ? heads[VERSIONS - 1][0] : heads[has_folders(list)][list->delta], stream);
    for (size_t i = 0; i < list->files; i++) {
        print_line(line, &list->file[i], list->file[i].name);
        fputs(line, stream);
    }
    fflush(stream);
    fprintf(stream, "end %016" PRIx64 "\n", pici_xxh64(text, *size, 0));
    if (fclose(stream) == 0)
        return text;
    free(text);
    return NULL;
}

/* Reads a line of `size` bytes, including the newline: scans it, prints the result, and compares. So each list has only
 * one form. A NUL replaces the newline, and ends the name. */
static bool take_line(struct folder_file *file, char *text, size_t size)
{
    char line[LINE], again[LINE], kind[8];
    int used = 0;
    if (size >= LINE || memchr(text, 0, size))
        return false;
    memcpy(line, text, size);
    line[size] = 0;
    *file = (struct folder_file){.kind = FOLDER_COPY};
    if (sscanf(line, "%7s", kind) != 1)
        return false;
    while (file->kind < FOLDER_KINDS && strcmp(kind, kind_name(file->kind)) != 0)
        file->kind++;
    if (file->kind == FOLDER_KINDS)
        return false;
    if (sscanf(line, "%*s %" SCNu64 " %" SCNx64 "%n", &file->original.bytes, &file->original.hash, &used) != 2 || !used)
        return false;
    file->stored = file->original;
    if (file->kind == FOLDER_SHARD) {
        int more = 0;
        if (sscanf(line + used, " %" SCNu64 " %" SCNx64 "%n", &file->stored.bytes, &file->stored.hash, &more) != 2 ||
            !more)
            return false;
        used += more;
    }
    if (line[used] != ' ' || (size_t)used + 2 >= size)
        return false;
    text[size - 1] = 0;
    file->name = text + used + 1;
    print_line(again, file, file->name);
    return strcmp(again, line) == 0;
}

static int by_name(const void *left, const void *right)
{
    const struct folder_file *first = left, *second = right;
    return strcmp(first->name, second->name);
}

const struct folder_file *folder_list_find(const struct folder_list *list, const char *name)
{
    const struct folder_file key = {.name = name};
    return list->files ? bsearch(&key, list->file, list->files, sizeof *list->file, by_name) : NULL;
}

/* Checks the rules for names of struct folder_list. */
static bool check_names(const struct folder_list *list, const char **reason)
{
    char stored[SHARDS_NAME_MOST + sizeof FOLDER_EXTENSION];
    for (size_t i = 0; i < list->files; i++) {
        const struct folder_file *const file = &list->file[i];
        if (!shards_path_is_plain(file->name, strlen(file->name), reason))
            return false;
        *reason = NULL;
        if (i && by_name(&file[-1], file) >= 0)
            *reason = "it is a duplicate, or out of order";
        else if (strcmp(file->name, FOLDER_LIST_NAME) == 0)
            *reason = "it is the list's";
        else if (file->kind == FOLDER_SAME && !list->delta)
            *reason = "there is no base";
        if (!*reason && file->kind == FOLDER_SHARD) {
            snprintf(stored, sizeof stored, "%s" FOLDER_EXTENSION, file->name);
            *reason =
                folder_list_find(list, stored) ? "another file has the name of its " FOLDER_EXTENSION " file" : NULL;
        }
        if (*reason)
            return false;
    }
    return true;
}

bool folder_list_parse(struct folder_list *list, const char *text, size_t size, struct parse_error *error)
{
    char end[32];
    const char *reason;
    *list = (struct folder_list){0};
    bool known = false, folders = false;
    size_t position = 0;
    for (int i = 0; !known && i < 2 * VERSIONS - 1; i++) {
        position = strlen(heads[i / 2][i % 2]);
        folders = i / 2 == 1;
        list->references = i / 2 == VERSIONS - 1;
        list->delta = i % 2;
        known = size >= position + END && memcmp(text, heads[i / 2][i % 2], position) == 0;
    }
    if (!known)
        return pici_parse_fail(error, 0, "not the list of a folder, of a later version, or truncated");
    snprintf(end, sizeof end, "end %016" PRIx64 "\n", pici_xxh64(text, size - END, 0));
    if (memcmp(text + size - END, end, END) != 0)
        return pici_parse_fail(error, size - END, "the list is incomplete or damaged");
    const size_t most = size - END;
    size_t capacity = 1;
    for (size_t i = position; i < most; i++)
        capacity += text[i] == '\n';
    list->file = calloc(capacity, sizeof *list->file);
    list->text = malloc(most);
    if (!list->file || !list->text) {
        folder_list_free(list);
        return pici_parse_fail(error, 0, "out of memory for the list of files");
    }
    memcpy(list->text, text, most);
    while (position < most) {
        const char *const line_end = memchr(text + position, '\n', most - position);
        const size_t line_size = line_end ? (size_t)(line_end - text) - position + 1 : 0;
        if (!line_size || !take_line(&list->file[list->files], list->text + position, line_size)) {
            folder_list_free(list);
            return pici_parse_fail(error, position, "a malformed line of a file");
        }
        list->files++;
        position += line_size;
    }
    if (check_names(list, &reason)) {
        if (list->references || has_folders(list) == folders)
            return true;
        reason = folders ? "none is in a folder, and the version is 2" : "one is in a folder, and the version is 1";
    }
    folder_list_free(list);
    return pici_parse_fail(error, 0, "the name of a file is not valid: %s", reason);
}

void folder_list_free(struct folder_list *list)
{
    free(list->file);
    free(list->text);
    *list = (struct folder_list){0};
}
