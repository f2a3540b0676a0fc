/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "mount/mounted.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "folder/folder.h"
#include "input/source.h"
#include "mount/chunks.h"
#include "mount/original.h"

enum { READERS_KEPT = 16 /* idle readers of a file */, COPY_PIECE = 1 << 18 };

/* A stored file. */
struct stored {
    char *path;
    struct input input; /* threads read from copies, since its position changes */
    struct original original;
    const struct folder_file *listed; /* NULL: a single file */
    bool is_copy;
    atomic_bool has_changed; /* after the opening; this has been reported */
    pthread_mutex_t lock;
    enum { UNCHECKED, GOOD, BAD } hash; /* of a copy */
    struct pici_reader *reader[READERS_KEPT];
    int readers;
};

struct mounted {
    struct folder folder;
    bool has_folder;
    struct stored *file; /* [files] */
    size_t files;
    struct mounted_node *node; /* [nodes] sorted by their paths */
    size_t nodes, node_room;
    char *alone; /* name of the only file */
    uint64_t bytes;
    struct chunks *chunks;
    atomic_bool was_short; /* of memory; this has been reported */
};

/* ---- Nodes ---- */

static int by_path(const void *left, const void *right)
{
    const struct mounted_node *const first = left, *const second = right;
    return strcmp(first->path, second->path);
}

size_t mounted_count(const struct mounted *mounted)
{
    return mounted->nodes;
}

const struct mounted_node *mounted_node(const struct mounted *mounted, size_t node)
{
    return &mounted->node[node];
}

uint64_t mounted_bytes(const struct mounted *mounted)
{
    return mounted->bytes;
}

/* Finds the node whose path is the first `size` bytes of `path`. False: none. */
static bool find_path(const struct mounted *mounted, const char *path, size_t size, size_t *node)
{
    size_t first = 0, above = mounted->nodes;
    while (first < above) {
        const size_t middle = first + (above - first) / 2;
        const char *const here = mounted->node[middle].path;
        int order = strncmp(here, path, size);
        if (!order)
            order = here[size] != 0;
        if (!order) {
            *node = middle;
            return true;
        }
        if (order < 0)
            first = middle + 1;
        else
            above = middle;
    }
    return false;
}

bool mounted_find(const struct mounted *mounted, size_t folder, const char *name, size_t *node)
{
    const char *const parent = mounted->node[folder].path;
    if (!mounted->node[folder].is_folder || !*name || strchr(name, '/'))
        return false;
    if (!*parent)
        return find_path(mounted, name, strlen(name), node);
    char *const path = folder_path(parent, name, "");
    const bool found = path && find_path(mounted, path, strlen(path), node);
    free(path);
    return found;
}

bool mounted_next(const struct mounted *mounted, size_t folder, size_t after, size_t *node, const char **name)
{
    const char *const parent = mounted->node[folder].path;
    const size_t size = strlen(parent);
    for (size_t i = after + 1; i < mounted->nodes && strncmp(mounted->node[i].path, parent, size) == 0; i++) {
        const char *const rest = mounted->node[i].path + size;
        if ((size && rest[0] != '/') || strchr(rest + (size != 0), '/'))
            continue;
        *node = i;
        *name = rest + (size != 0);
        return true;
    }
    return false;
}

size_t mounted_parent(const struct mounted *mounted, size_t node)
{
    size_t parent = 0;
    const char *const path = mounted->node[node].path, *const slash = strrchr(path, '/');
    if (slash)
        find_path(mounted, path, (size_t)(slash - path), &parent);
    return parent;
}

static void add_node(struct mounted *mounted, const char *path, bool is_folder, size_t file)
{
    const struct stored *const stored = is_folder ? NULL : &mounted->file[file];
    struct mounted_node *const node = &mounted->node[mounted->nodes++];
    *node = (struct mounted_node){.path = path, .is_folder = is_folder, .file = file};
    if (!stored)
        return;
    node->bytes = stored->is_copy ? stored->listed->original.bytes : stored->original.bytes;
    node->changed = stored->input.changed;
    mounted->bytes += node->bytes;
}

/* Sorts the nodes. Each must have a unique path and be in a folder. */
static int settle_nodes(struct mounted *mounted, const char *path)
{
    qsort(mounted->node, mounted->nodes, sizeof *mounted->node, by_path);
    for (size_t i = 1; i < mounted->nodes; i++) {
        if (strcmp(mounted->node[i - 1].path, mounted->node[i].path) == 0)
            return tool_bad(path, "%s is a file and a folder", mounted->node[i].path);
        if (!mounted->node[mounted_parent(mounted, i)].is_folder)
            return tool_bad(path, "%s is in a file", mounted->node[i].path);
    }
    return TOOL_OK;
}

/* ---- Stored files ---- */

/* Whether the file has changed since the opening. Reports it once. */
static bool has_changed(struct stored *stored)
{
    if (!atomic_load(&stored->has_changed) && input_is_unchanged(&stored->input))
        return false;
    if (!atomic_exchange(&stored->has_changed, true))
        tool_bad(stored->path, "has changed since it was mounted");
    return true;
}

/* A pici_read_at_fn for a stored file. */
static int read_stored(void *context, void *buffer, size_t size, uint64_t offset)
{
    struct input input = ((const struct stored *)context)->input;
    const int error = input_read_at(&input, buffer, size, offset);
    return has_changed(context) ? EIO : error;
}

/* Prints why the file cannot be read, unless the reason is a change, which has been reported, or a lack of memory,
 * which read_elements reports. */
static void tell_failure(const struct stored *stored, const struct pici_reader *reader, enum pici_status status)
{
    if (status == PICI_E_NOMEM || atomic_load(&stored->has_changed))
        return;
    const char *const reason = pici_reader_error(reader); /* accepts a NULL reader */
    tool_bad(stored->path, "%s", *reason ? reason : pici_strerror(status));
}

/* For original_open: the number of a shard's file. reading_follow has checked that the shard exists. */
static size_t shard_file(void *context, const char *shard)
{
    const struct mounted *const mounted = context;
    return (size_t)(folder_list_find(&mounted->folder.list, shard) - mounted->folder.list.file);
}

static int map(struct mounted *mounted, size_t number)
{
    struct stored *const stored = &mounted->file[number];
    struct reading reading = {0};
    if (!stored->input.regular)
        return tool_bad(stored->path, "is empty or not a regular file");
    struct input input = stored->input;
    int status = reading_open(&reading, &input, 1, true);
    if (!status) {
        if (mounted->has_folder)
            reading_in_folder(&reading, folder_shards(&mounted->folder), stored->listed->name);
        status = original_open(&stored->original, &reading, number, shard_file, mounted);
    }
    reading_close(&reading);
    TRY(status);
    if (stored->listed && stored->original.bytes != stored->listed->original.bytes)
        return tool_bad(stored->path, "gives %" PRIu64 " bytes, and " FOLDER_LIST_NAME " says %" PRIu64,
                        stored->original.bytes, stored->listed->original.bytes);
    return TOOL_OK;
}

/* Opens a file, and maps the bytes of its original, unless it is a copy. */
static int open_stored(struct mounted *mounted, size_t number, const char *path)
{
    struct stored *const stored = &mounted->file[number];
    pthread_mutex_init(&stored->lock, NULL);
    stored->input.fd = -1;
    stored->path = strdup(path);
    mounted->files = number + 1;
    if (!stored->path)
        return tool_nomem(path, "a path");
    TRY(input_open(&stored->input, stored->path));
    return stored->is_copy ? TOOL_OK : map(mounted, number);
}

static int make_room(struct mounted *mounted, const char *path, size_t files, size_t folders)
{
    mounted->file = calloc(files + 1, sizeof *mounted->file);
    mounted->node = calloc(files + folders + 1, sizeof *mounted->node);
    if (!mounted->file || !mounted->node)
        return tool_nomem(path, "the list of files");
    add_node(mounted, "", true, 0);
    return TOOL_OK;
}

static int open_folder(struct mounted *mounted, const char *path)
{
    TRY(folder_open(&mounted->folder, path));
    mounted->has_folder = true;
    TRY(folder_expect_made(&mounted->folder, false));
    const struct folder_list *const list = &mounted->folder.list;
    const struct folder_names *const below = &mounted->folder.below;
    TRY(make_room(mounted, path, list->files, below->count));
    for (size_t i = 0; i < below->count; i++)
        add_node(mounted, below->entry[i].name, true, 0);
    for (size_t i = 0; i < list->files; i++) {
        struct stored *const stored = &mounted->file[i];
        stored->listed = &list->file[i];
        stored->is_copy = stored->listed->kind == FOLDER_COPY;
        char *const from = folder_path(path, stored->listed->name, stored->is_copy ? "" : FOLDER_EXTENSION);
        const int status = from ? open_stored(mounted, i, from) : TOOL_BAD;
        free(from);
        TRY(status);
        add_node(mounted, stored->listed->name, false, i);
    }
    return settle_nodes(mounted, path);
}

static int open_file(struct mounted *mounted, const char *path)
{
    const char *const slash = strrchr(path, '/'), *const base = slash ? slash + 1 : path;
    if (!tool_has_extension(base, FOLDER_EXTENSION))
        return tool_usage(path, "is not a folder, and does not end in .pici");
    mounted->alone = strdup(base);
    if (!mounted->alone)
        return tool_nomem(path, "a name");
    mounted->alone[strlen(base) - strlen(FOLDER_EXTENSION)] = 0;
    TRY(make_room(mounted, path, 1, 0));
    TRY(open_stored(mounted, 0, path));
    add_node(mounted, mounted->alone, false, 0);
    return TOOL_OK;
}

/* ---- Reading ---- */

static enum pici_status take_reader(struct pici_reader **taken, struct stored *stored, bool tell)
{
    struct pici_reader *reader = NULL;
    pthread_mutex_lock(&stored->lock);
    if (stored->readers)
        reader = stored->reader[--stored->readers];
    pthread_mutex_unlock(&stored->lock);
    const enum pici_status status =
        reader ? PICI_OK : pici_reader_open_at(&reader, read_stored, stored, stored->input.bytes, NULL);
    *taken = reader;
    if (!status)
        return PICI_OK;
    if (tell)
        tell_failure(stored, reader, status);
    pici_reader_close(reader);
    return status;
}

static void give_reader(struct stored *stored, struct pici_reader *reader)
{
    pthread_mutex_lock(&stored->lock);
    const bool kept = stored->readers < READERS_KEPT;
    if (kept)
        stored->reader[stored->readers++] = reader;
    pthread_mutex_unlock(&stored->lock);
    if (!kept)
        pici_reader_close(reader);
}

/* A chunk_maker that reads a chunk from its file. */
static int make_chunk(void *context, const struct chunk_key *key, void *bytes, size_t size, bool tell)
{
    struct stored *const stored = &((struct mounted *)context)->file[key->file];
    struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
    struct pici_reader *reader;
    enum pici_status status = take_reader(&reader, stored, tell);
    if (status)
        return status == PICI_E_NOMEM ? ENOMEM : EIO;
    status = pici_reader_tensor(reader, key->tensor, &tensor);
    const size_t width = status ? 1 : pici_dtype_width(tensor.dtype);
    if (!status)
        status = pici_reader_read_range(reader, key->tensor, key->number * tensor.chunk_elements, size / width, bytes);
    if (!status) {
        if (key->swap)
            source_swap(bytes, size, width);
        give_reader(stored, reader);
        return 0;
    }
    if (tell)
        tell_failure(stored, reader, status);
    pici_reader_close(reader);
    return status == PICI_E_NOMEM ? ENOMEM : EIO;
}

/* Copies `size` bytes of a part's elements, from byte `at`, from all chunks that have them. */
static int read_elements(struct mounted *mounted, const struct original_part *part, uint8_t *buffer, uint64_t at,
                         size_t size)
{
    const uint64_t chunk_bytes = (uint64_t)part->chunk_elements * part->width;
    for (size_t done = 0, step; done < size; done += step) {
        const uint64_t number = (at + done) / chunk_bytes, start = number * chunk_bytes;
        const size_t within = (size_t)(at + done - start);
        const size_t whole = (size_t)(part->bytes - start < chunk_bytes ? part->bytes - start : chunk_bytes);
        const struct chunk_key key = {part->file, part->tensor, number, part->swap};
        step = size - done < whole - within ? size - done : whole - within;
        const int error = chunks_read(mounted->chunks, &key, whole, buffer + done, within, step);
        if (error == ENOMEM && !atomic_exchange(&mounted->was_short, true))
            tool_nomem(mounted->file[part->file].path, "a chunk");
        if (error)
            return error;
    }
    return 0;
}

static int read_original(struct mounted *mounted, const struct original *original, uint8_t *buffer, uint64_t offset,
                         size_t size)
{
    for (size_t done = 0, step; done < size; done += step) {
        const uint64_t at = offset + done;
        const struct original_part *const part = original_find(original, at);
        const uint64_t within = at - part->start;
        const bool is_last = part + 1 == original->part + original->parts;
        const uint64_t end =
            within < part->bytes ? part->start + part->bytes : (is_last ? original->bytes : part[1].start);
        step = end - at < size - done ? (size_t)(end - at) : size - done;
        if (within < part->bytes) {
            const int error = read_elements(mounted, part, buffer + done, within, step);
            if (error)
                return error;
        } else {
            memcpy(buffer + done, original->head + part->head + (size_t)(within - part->bytes), step);
        }
    }
    return 0;
}

/* Checks the hash of a copy. Returns an exit status. */
static int check_copy(struct stored *stored, uint8_t *piece)
{
    struct folder_sum sum = {0};
    struct pici_xxh64 hash;
    pici_xxh64_init(&hash, 0);
    while (stored->input.regular && sum.bytes < stored->input.bytes) {
        const uint64_t left = stored->input.bytes - sum.bytes;
        const size_t step = left < COPY_PIECE ? (size_t)left : COPY_PIECE;
        const int error = read_stored(stored, piece, step, sum.bytes);
        if (error && !atomic_load(&stored->has_changed))
            tool_bad_at(stored->path, sum.bytes, "%s", strerror(error));
        if (error)
            return TOOL_BAD;
        pici_xxh64_update(&hash, piece, step);
        sum.bytes += step;
    }
    sum.hash = pici_xxh64_digest(&hash);
    return folder_match(stored->path, &sum, &stored->listed->original);
}

int mounted_start(struct mounted *mounted, size_t node)
{
    if (mounted->node[node].is_folder)
        return EISDIR;
    struct stored *const stored = &mounted->file[mounted->node[node].file];
    if (!stored->is_copy)
        return 0;
    uint8_t *const piece = malloc(COPY_PIECE);
    if (!piece)
        return ENOMEM;
    pthread_mutex_lock(&stored->lock);
    if (stored->hash == UNCHECKED)
        stored->hash = check_copy(stored, piece) ? BAD : GOOD;
    const bool is_bad = stored->hash == BAD;
    pthread_mutex_unlock(&stored->lock);
    free(piece);
    return is_bad ? EIO : 0;
}

int mounted_read(struct mounted *mounted, size_t node, void *buffer, uint64_t offset, size_t size, size_t *received)
{
    const struct mounted_node *const read = &mounted->node[node];
    *received = 0;
    if (read->is_folder)
        return EISDIR;
    if (offset >= read->bytes)
        return 0;
    struct stored *const stored = &mounted->file[read->file];
    *received = read->bytes - offset < size ? (size_t)(read->bytes - offset) : size;
    const int error = stored->is_copy ? read_stored(stored, buffer, *received, offset)
                                      : read_original(mounted, &stored->original, buffer, offset, *received);
    if (error)
        *received = 0;
    return error;
}

/* ---- Opening and closing ---- */

int mounted_open(struct mounted **opened, const char *path, uint64_t cache)
{
    struct mounted *const mounted = calloc(1, sizeof *mounted);
    *opened = NULL;
    if (!mounted)
        return tool_nomem(path, "the list of files");
    mounted->chunks = chunks_new(cache, make_chunk, mounted);
    int status = mounted->chunks ? TOOL_OK : tool_nomem(path, "the cache");
    if (!status)
        status = folder_is(path) ? open_folder(mounted, path) : open_file(mounted, path);
    if (status)
        mounted_close(mounted);
    else
        *opened = mounted;
    return status;
}

void mounted_close(struct mounted *mounted)
{
    if (!mounted)
        return;
    for (size_t i = 0; i < mounted->files; i++) {
        struct stored *const stored = &mounted->file[i];
        while (stored->readers)
            pici_reader_close(stored->reader[--stored->readers]);
        original_free(&stored->original);
        input_close(&stored->input);
        pthread_mutex_destroy(&stored->lock);
        free(stored->path);
    }
    chunks_free(mounted->chunks);
    if (mounted->has_folder)
        folder_close(&mounted->folder);
    free(mounted->alone);
    free(mounted->file);
    free(mounted->node);
    free(mounted);
}
