/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Any bytes as a mounted .pici file: alone, and as a shard of a folder whose references lead to it; unchanged, and
 * with correct hashes. Data readable in large pieces must also be readable in small ones, with the same bytes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "fuzz/seal.h"
#include "mount/mounted.h"
#include "parse/folder_list.h"
#include "term.h"

enum { LARGE = 1 << 16, CACHE = 1 << 15, SPOTS = 8 };

static char folder[] = "/tmp/pici-fuzz-XXXXXX";
static char shard[sizeof folder + 16], list_path[sizeof folder + 16];

static void make_folder(void)
{
    require(mkdtemp(folder) != NULL);
    snprintf(shard, sizeof shard, "%s/x" FOLDER_EXTENSION, folder);
    snprintf(list_path, sizeof list_path, "%s/" FOLDER_LIST_NAME, folder);
}

static void remove_folder(void)
{
    unlink(shard);
    unlink(list_path);
    rmdir(folder);
}

static void write_file(const char *name, const void *bytes, size_t size)
{
    const int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    require(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    close(fd);
}

/* Read LARGE bytes at `from`, and the same bytes in pieces of uneven lengths. */
static void read_twice(struct mounted *mounted, size_t node, uint64_t from)
{
    static uint8_t at_once[LARGE], in_pieces[LARGE];
    size_t whole, got;
    if (mounted_start(mounted, node) || mounted_read(mounted, node, at_once, from, LARGE, &whole))
        return;
    for (size_t done = 0, step = 1; done < whole; done += got, step = step * 3 % 4099 + 1) {
        const size_t size = step < whole - done ? step : whole - done;
        require(mounted_read(mounted, node, in_pieces + done, from + done, size, &got) == 0 && got == size);
    }
    require(memcmp(at_once, in_pieces, whole) == 0);
}

/* Mount the path, and read at several places of the file x. Returns the length of the original, or UINT64_MAX if the
 * mount fails. */
static uint64_t try(const char *path)
{
    struct mounted *mounted;
    size_t node, found;
    const char *name;
    if (mounted_open(&mounted, path, CACHE))
        return UINT64_MAX;
    require(mounted_find(mounted, 0, "x", &node) && !mounted_find(mounted, 0, "y", &found));
    require(mounted_next(mounted, 0, 0, &found, &name) && found == node && strcmp(name, "x") == 0);
    const uint64_t bytes = mounted_node(mounted, node)->bytes;
    for (uint64_t i = 0; i < SPOTS; i++)
        read_twice(mounted, node, bytes / SPOTS * i);
    read_twice(mounted, node, bytes > 100 ? bytes - 100 : bytes);
    mounted_close(mounted);
    return bytes;
}

static void both(const uint8_t *data, size_t size)
{
    write_file(shard, data, size);
    const uint64_t bytes = try(shard);
    if (bytes == UINT64_MAX)
        return;
    struct folder_file file = {.name = "x", .kind = FOLDER_SHARD, .original.bytes = bytes, .stored.bytes = size};
    const struct folder_list list = {.references = true, .file = &file, .files = 1};
    size_t length;
    char *const text = folder_list_text(&list, &length);
    require(text != NULL);
    write_file(list_path, text, length);
    free(text);
    require(try(folder) == bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static int is_ready;
    if (!is_ready) {
        make_folder();
        atexit(remove_folder);
        term_set_talk(TERM_SILENT);
        is_ready = 1;
    }
    both(data, len);
    uint8_t *const copy = memory(len);
    if (len)
        memcpy(copy, data, len);
    seal(copy, len);
    both(copy, len);
    free(copy);
    return 0;
}
