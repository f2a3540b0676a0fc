/* SPDX-License-Identifier: BSD-3-Clause */
#include "folder/twins.h"

#include <stdlib.h>
#include <string.h>

enum { SAMPLE = 4096, PIECE = 1 << 20 };

/* An open shard. */
struct opened {
    const struct folder *folder;
    const struct folder_list *list;
    struct input input;
    size_t file;
    char *path; /* NULL: none is open */
};

static void close_file(struct opened *opened)
{
    if (opened->path)
        input_close(&opened->input);
    free(opened->path);
    opened->path = NULL;
}

static int open_file(struct opened *opened, size_t file)
{
    if (opened->path && opened->file == file)
        return TOOL_OK;
    close_file(opened);
    char *const path = folder_path(opened->folder->path, opened->list->file[file].name, "");
    if (!path)
        return TOOL_BAD;
    const int status = input_open(&opened->input, path);
    if (status) {
        free(path);
        return status;
    }
    opened->path = path;
    opened->file = file;
    return TOOL_OK;
}

static int read_at(struct opened *opened, const struct twin *twin, uint64_t from, uint8_t *buffer, size_t bytes)
{
    TRY(open_file(opened, twin->file));
    const int error = input_read_at(&opened->input, buffer, bytes, twin->offset + from);
    return error ? tool_bad_at(opened->path, twin->offset + from, "%s", strerror(error)) : TOOL_OK;
}

/* ---- lists of tensors that may be equal */

static int add(struct twins *twins, size_t *capacity, const struct tensor_at *tensor, size_t file, size_t number)
{
    if (twins->count == *capacity) {
        *capacity = 2 * *capacity + 64;
        struct twin *const bigger = realloc(twins->twin, *capacity * sizeof *bigger);
        if (!bigger)
            return TOOL_BAD;
        twins->twin = bigger;
    }
    char *const name = malloc(tensor->name_size + 1);
    if (!name)
        return TOOL_BAD;
    memcpy(name, tensor->name, tensor->name_size + 1);
    twins->twin[twins->count++] = (struct twin){.file = file,
                                                .number = number,
                                                .name = name,
                                                .name_size = tensor->name_size,
                                                .offset = tensor->offset,
                                                .bytes = tensor->bytes,
                                                .viewed = tensor->viewed,
                                                .dtype = tensor->dtype};
    return TOOL_OK;
}

/* Opens a shard. Compressing a file of torch.save prints its warnings. */
static int open_shard(struct tensors *tensors, const char *path, enum tool_type type)
{
    const struct tool_options options = {.type = type, .dtype = type == TYPE_RAW ? PICI_U8 : 0};
    tool_mute();
    const int status = tensors_open(tensors, path, &options);
    const char *const reason = tool_unmute();
    return status ? tool_bad(path, "%s", reason) : TOOL_OK;
}

/* Whether a tensor can be a twin. */
static bool may_be_twin(const struct tensor_at *tensor)
{
    return tensor->in_place && !tensor->filler && !tensor->unnamed && !tensor->big_endian &&
           tensor->bytes >= TWINS_BYTES_LEAST;
}

/* Adds the tensors of a shard that may have twins. */
static int add_shard(struct twins *twins, size_t *capacity, const struct folder *folder, const char *name, size_t file)
{
    struct tensors tensors;
    char *const path = folder_path(folder->path, name, "");
    int status = path ? open_shard(&tensors, path, folder_find(folder, name)->type) : TOOL_BAD;
    if (!status) {
        for (size_t i = 0; !status && i < tensors.count; i++)
            if (may_be_twin(&tensors.tensor[i]))
                status = add(twins, capacity, &tensors.tensor[i], file, i) ? tool_nomem(path, "the list of tensors")
                                                                           : TOOL_OK;
        tensors_close(&tensors);
    }
    free(path);
    return status;
}

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int by_place(const void *left, const void *right)
{
    const struct twin *const first = left, *const second = right;
    const int order = compare(first->file, second->file);
    return order ? order : compare(first->number, second->number);
}

/* By the content known so far, then tensors with views before others, then by place. */
static int by_content(const void *left, const void *right)
{
    const struct twin *const first = left, *const second = right;
    const uint64_t keys[][2] = {
        {first->bytes, second->bytes}, {(uint64_t)first->dtype, (uint64_t)second->dtype}, {first->hash, second->hash}};
    int order = 0;
    for (size_t i = 0; !order && i < sizeof keys / sizeof *keys; i++)
        order = compare(keys[i][0], keys[i][1]);
    if (!order && first->viewed != second->viewed)
        return first->viewed ? -1 : 1;
    return order ? order : by_place(left, right);
}

static bool alike(const struct twin *a, const struct twin *b)
{
    return a->bytes == b->bytes && a->dtype == b->dtype && a->hash == b->hash;
}

/* Keeps the tensors that equal another one by the content known so far, sorted by place. */
static void keep_alike(struct twins *twins)
{
    size_t kept = 0;
    if (!twins->count)
        return;
    qsort(twins->twin, twins->count, sizeof *twins->twin, by_content);
    for (size_t i = 0, end; i < twins->count; i = end) {
        for (end = i + 1; end < twins->count && alike(&twins->twin[i], &twins->twin[end]); end++)
            ;
        for (size_t k = i; k < end; k++)
            if (end - i > 1)
                twins->twin[kept++] = twins->twin[k];
            else
                free(twins->twin[k].name);
    }
    twins->count = kept;
    if (kept)
        qsort(twins->twin, kept, sizeof *twins->twin, by_place);
}

/* ---- bytes */

static int hash_sample(struct opened *opened, struct twin *twin, uint8_t *buffer)
{
    struct pici_xxh64 hash;
    pici_xxh64_init(&hash, 0);
    const uint64_t at[] = {0, (twin->bytes - SAMPLE) / 2, twin->bytes - SAMPLE};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        TRY(read_at(opened, twin, at[i], buffer, SAMPLE));
        pici_xxh64_update(&hash, buffer, SAMPLE);
    }
    twin->hash = pici_xxh64_digest(&hash);
    return TOOL_OK;
}

static int hash_all(struct opened *opened, struct twin *twin, uint8_t *buffer)
{
    struct pici_xxh64 hash;
    pici_xxh64_init(&hash, 0);
    for (uint64_t done = 0; done < twin->bytes;) {
        const size_t step = twin->bytes - done < PIECE ? (size_t)(twin->bytes - done) : PIECE;
        TRY(read_at(opened, twin, done, buffer, step));
        pici_xxh64_update(&hash, buffer, step);
        done += step;
    }
    twin->hash = pici_xxh64_digest(&hash);
    return TOOL_OK;
}

/* Whether two twins with the same hash have the same bytes. */
static int same_bytes(struct opened opened[2], const struct twin *a, const struct twin *b, uint8_t *buffer, bool *same)
{
    *same = true;
    for (uint64_t done = 0; *same && done < a->bytes;) {
        const size_t step = a->bytes - done < PIECE ? (size_t)(a->bytes - done) : PIECE;
        TRY(read_at(&opened[0], a, done, buffer, step));
        TRY(read_at(&opened[1], b, done, buffer + PIECE, step));
        *same = memcmp(buffer, buffer + PIECE, step) == 0;
        done += step;
    }
    return TOOL_OK;
}

/* Sets `first` of all twins. A twin without views refers to the first one with its hash, if they have the same bytes.
 * Other twins are stored. */
static int find_first(struct twins *twins, struct opened opened[2], uint8_t *buffer)
{
    struct twin *const sorted = malloc((twins->count + 1) * sizeof *sorted);
    int status = sorted ? TOOL_OK : tool_nomem(opened->folder->path, "the list of tensors");
    for (size_t i = 0; !status && i < twins->count; i++) {
        sorted[i] = twins->twin[i];
        sorted[i].first = i; /* its index */
    }
    if (!status && twins->count)
        qsort(sorted, twins->count, sizeof *sorted, by_content);
    size_t first = 0;
    for (size_t i = 0; !status && i < twins->count; i++) {
        struct twin *const twin = &twins->twin[sorted[i].first];
        bool same = false;
        if (!i || !alike(&sorted[first], &sorted[i]))
            first = i;
        else if (!twin->viewed)
            status = same_bytes(opened, &sorted[first], &sorted[i], buffer, &same);
        twin->first = same ? sorted[first].first : sorted[i].first;
    }
    free(sorted);
    return status;
}

static int find(struct twins *twins, struct opened opened[2])
{
    const struct folder_list *const list = opened->list;
    size_t capacity = 0;
    uint8_t *const buffer = malloc(2 * PIECE);
    int status = buffer ? TOOL_OK : tool_nomem(opened->folder->path, "a piece of a tensor");
    for (size_t i = 0; !status && i < list->files; i++)
        if (list->file[i].kind == FOLDER_SHARD)
            status = add_shard(twins, &capacity, opened->folder, list->file[i].name, i);
    if (!status)
        keep_alike(twins);
    for (size_t i = 0; !status && i < twins->count; i++)
        status = hash_sample(opened, &twins->twin[i], buffer);
    if (!status)
        keep_alike(twins);
    for (size_t i = 0; !status && i < twins->count; i++)
        status = hash_all(opened, &twins->twin[i], buffer);
    if (!status)
        keep_alike(twins);
    if (!status)
        status = find_first(twins, opened, buffer);
    free(buffer);
    return status;
}

int twins_find(struct twins *twins, const struct folder *folder, const struct folder_list *list)
{
    struct opened opened[2] = {{.folder = folder, .list = list}, {.folder = folder, .list = list}};
    *twins = (struct twins){.count = 0};
    const int status = find(twins, opened);
    close_file(&opened[0]);
    close_file(&opened[1]);
    return status;
}

const struct twin *twins_at(const struct twins *twins, size_t file, size_t number)
{
    const struct twin wanted = {.file = file, .number = number};
    return twins->count ? bsearch(&wanted, twins->twin, twins->count, sizeof *twins->twin, by_place) : NULL;
}

bool twin_refers(const struct twins *twins, const struct twin *twin)
{
    return twin->first != (size_t)(twin - twins->twin);
}

void twins_free(struct twins *twins)
{
    for (size_t i = 0; i < twins->count; i++)
        free(twins->twin[i].name);
    free(twins->twin);
    *twins = (struct twins){.count = 0};
}
