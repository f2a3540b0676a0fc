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

/* By whether there are files in folders below, and by folder_list.delta. */
static const char *const heads[2][2] = {{"pici-folder 1 compressed\n", "pici-folder 1 delta\n"},
                                        {"pici-folder 2 compressed\n", "pici-folder 2 delta\n"}};

static bool has_folders(const struct folder_list *l)
{
    size_t i = 0;
    while (i < l->files && !strchr(l->file[i].name, '/'))
        i++;
    return i < l->files;
}

static const char *kind_name(enum folder_kind k)
{
    static const char *const names[FOLDER_KINDS] = {"file", "shard", "same"};
    return names[k];
}

static void print_line(char line[LINE], const struct folder_file *f, const char *name)
{
    int n = snprintf(line, LINE, "%s %" PRIu64 " %016" PRIx64, kind_name(f->kind), f->original.bytes, f->original.hash);
    if (f->kind == FOLDER_SHARD)
        n += snprintf(line + n, LINE - (size_t)n, " %" PRIu64 " %016" PRIx64, f->stored.bytes, f->stored.hash);
    snprintf(line + n, LINE - (size_t)n, " %s\n", name);
}

char *folder_list_text(const struct folder_list *l, size_t *size)
{
    char *text = NULL, line[LINE];
    FILE *const f = open_memstream(&text, size);
    if (!f)
        return NULL;
    fputs(heads[has_folders(l)][l->delta], f);
    for (size_t i = 0; i < l->files; i++) {
        print_line(line, &l->file[i], l->file[i].name);
        fputs(line, f);
    }
    fflush(f);
    fprintf(f, "end %016" PRIx64 "\n", pici_xxh64(text, *size, 0));
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

/* Reads a line of size bytes, a newline the last: scans it, prints what was read, and compares, so that a list has one
 * form. The newline becomes a NUL, which ends the name. */
static bool take_line(struct folder_file *f, char *text, size_t size)
{
    char line[LINE], again[LINE], kind[8];
    int at = 0;
    if (size >= LINE || memchr(text, 0, size))
        return false;
    memcpy(line, text, size);
    line[size] = 0;
    *f = (struct folder_file){.kind = FOLDER_COPY};
    if (sscanf(line, "%7s", kind) != 1)
        return false;
    while (f->kind < FOLDER_KINDS && strcmp(kind, kind_name(f->kind)) != 0)
        f->kind++;
    if (f->kind == FOLDER_KINDS)
        return false;
    if (sscanf(line, "%*s %" SCNu64 " %" SCNx64 "%n", &f->original.bytes, &f->original.hash, &at) != 2 || !at)
        return false;
    f->stored = f->original;
    if (f->kind == FOLDER_SHARD) {
        int more = 0;
        if (sscanf(line + at, " %" SCNu64 " %" SCNx64 "%n", &f->stored.bytes, &f->stored.hash, &more) != 2 || !more)
            return false;
        at += more;
    }
    if (line[at] != ' ' || (size_t)at + 2 >= size)
        return false;
    text[size - 1] = 0;
    f->name = text + at + 1;
    print_line(again, f, f->name);
    return strcmp(again, line) == 0;
}

static int by_name(const void *left, const void *right)
{
    const struct folder_file *x = left, *y = right;
    return strcmp(x->name, y->name);
}

const struct folder_file *folder_list_find(const struct folder_list *l, const char *name)
{
    const struct folder_file key = {.name = name};
    return l->files ? bsearch(&key, l->file, l->files, sizeof *l->file, by_name) : NULL;
}

/* Whether the names are such as folder_list wants them. */
static bool check_names(const struct folder_list *l, const char **why)
{
    char stored[SHARDS_NAME_MOST + sizeof FOLDER_EXTENSION];
    for (size_t i = 0; i < l->files; i++) {
        const struct folder_file *const f = &l->file[i];
        if (!shards_path_is_plain(f->name, strlen(f->name), why))
            return false;
        *why = i && by_name(&f[-1], f) >= 0             ? "it is there twice, or out of order"
               : strcmp(f->name, FOLDER_LIST_NAME) == 0 ? "it is that of the list"
               : f->kind == FOLDER_SAME && !l->delta    ? "there is no base"
                                                        : NULL;
        if (!*why && f->kind == FOLDER_SHARD) {
            snprintf(stored, sizeof stored, "%s" FOLDER_EXTENSION, f->name);
            *why = folder_list_find(l, stored) ? "another file has the name of its " FOLDER_EXTENSION " file" : NULL;
        }
        if (*why)
            return false;
    }
    return true;
}

bool folder_list_parse(struct folder_list *l, const char *text, size_t size, struct parse_error *error)
{
    char end[32];
    const char *why;
    *l = (struct folder_list){0};
    bool known = false, folders = false;
    size_t at = 0;
    for (int i = 0; !known && i < 4; i++) {
        at = strlen(heads[i / 2][i % 2]);
        folders = i / 2;
        l->delta = i % 2;
        known = size >= at + END && memcmp(text, heads[i / 2][i % 2], at) == 0;
    }
    if (!known)
        return pici_parse_fail(error, 0, "not the list of a folder, of a later version, or cut off");
    snprintf(end, sizeof end, "end %016" PRIx64 "\n", pici_xxh64(text, size - END, 0));
    if (memcmp(text + size - END, end, END) != 0)
        return pici_parse_fail(error, size - END, "the list is incomplete or damaged");
    const size_t most = size - END;
    size_t capacity = 1;
    for (size_t i = at; i < most; i++)
        capacity += text[i] == '\n';
    l->file = calloc(capacity, sizeof *l->file);
    l->text = malloc(most);
    if (!l->file || !l->text) {
        folder_list_free(l);
        return pici_parse_fail(error, 0, "out of memory for the list of files");
    }
    memcpy(l->text, text, most);
    while (at < most) {
        const char *const line_end = memchr(text + at, '\n', most - at);
        const size_t n = line_end ? (size_t)(line_end - text) - at + 1 : 0;
        if (!n || !take_line(&l->file[l->files], l->text + at, n)) {
            folder_list_free(l);
            return pici_parse_fail(error, at, "a malformed line of a file");
        }
        l->files++;
        at += n;
    }
    if (check_names(l, &why)) {
        if (has_folders(l) == folders)
            return true;
        why = folders ? "none is in a folder, and the version is 2" : "one is in a folder, and the version is 1";
    }
    folder_list_free(l);
    return pici_parse_fail(error, 0, "the name of a file is not valid: %s", why);
}

void folder_list_free(struct folder_list *l)
{
    free(l->file);
    free(l->text);
    *l = (struct folder_list){0};
}
