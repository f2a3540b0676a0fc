/* SPDX-License-Identifier: BSD-3-Clause */
#include "parse/torch_old.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse/pickle.h"
#include "parse/torch.h"

enum {
    FIRST_BYTES = 1 << 20, /* bytes read at first */
    VERSION = 1001,        /* the only version */
    KEY_MOST = 20,         /* digits of a storage's key, which is an address */
    NAME_ROOM = 32         /* bytes of an entry's name, with the digits */
};

struct file {
    pici_read_at_fn read_at;
    void *context;
    uint64_t file_bytes;
    uint8_t *bytes; /* [size] the first bytes of the file */
    size_t size;
    uint64_t position; /* all bytes before it have been parsed */
    struct parse_error *error;
};

/* A storage of tensors. */
struct storage {
    const struct torch_tensor *tensor; /* one of them */
    bool found;                        /* the file has it */
};

static bool fail(const struct file *file, const char *what)
{
    return pici_parse_fail(file->error, file->position, "%s", what);
}

bool torch_old_begins(const uint8_t *first, size_t size)
{
    static const uint8_t number[] = "\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8P\x19."; /* after the pickle's protocol */
    return size >= 2 + sizeof number - 1 && first[0] == 0x80 && memcmp(first + 2, number, sizeof number - 1) == 0;
}

static bool fetch(const struct file *file, void *target, size_t bytes, uint64_t offset)
{
    return !bytes || !file->read_at(file->context, target, bytes, offset) ||
           pici_parse_fail(file->error, offset, "cannot be read");
}

/* Doubles the number of the file's bytes in memory. False: it is all of the file, or at the limit, or an error. */
static bool read_more(struct file *file)
{
    uint64_t size = file->size ? 2 * (uint64_t)file->size : FIRST_BYTES;
    if (size > PICKLE_MAX_BYTES)
        size = PICKLE_MAX_BYTES;
    if (size > file->file_bytes)
        size = file->file_bytes;
    if (size == file->size)
        return false;
    uint8_t *bigger = realloc(file->bytes, (size_t)size);
    if (!bigger)
        return fail(file, "out of memory for the pickles");
    file->bytes = bigger;
    if (!fetch(file, bigger + file->size, (size_t)size - file->size, file->size))
        return false;
    file->size = (size_t)size;
    return true;
}

/* Parses the next pickle. May move the bytes of the pickles before it. */
static bool next_pickle(struct file *file, struct pickle *pickle)
{
    const size_t at = (size_t)file->position;
    while (!pickle_parse(pickle, file->bytes + at, file->size - at, at, file->error))
        if (!read_more(file))
            return false;
    file->position += pickle->size;
    return true;
}

/* Reads the pickles before the value: the number, the version, and the machine, which does not affect the format of
 * storages. */
static bool take_head(struct file *file)
{
    for (int i = 0; i < 3; i++) {
        struct pickle pickle;
        if (!next_pickle(file, &pickle))
            return false;
        const struct pickle_node *root = &pickle.nodes[pickle.root];
        const bool valid = i != 1 || (root->type == PICKLE_INT && root->is.number == VERSION);
        pickle_free(&pickle);
        if (!valid)
            return fail(file, "an unknown version of torch's old files");
    }
    return true;
}

static int by_key(const void *left, const void *right)
{
    const struct torch_tensor *first = ((const struct storage *)left)->tensor,
                              *second = ((const struct storage *)right)->tensor;
    if (first->storage_size != second->storage_size)
        return first->storage_size < second->storage_size ? -1 : 1;
    return memcmp(first->storage, second->storage, first->storage_size);
}

/* The storages of all tensors, without duplicates, sorted by key. NULL: no memory. */
static struct storage *storages_of(const struct torch *torch, size_t *count)
{
    struct storage *storages = malloc((torch->count + 1) * sizeof *storages);
    *count = 0;
    for (size_t i = 0; storages && i < torch->count; i++)
        storages[i] = (struct storage){&torch->tensors[i], false};
    if (storages && torch->count)
        qsort(storages, torch->count, sizeof *storages, by_key);
    for (size_t i = 0; storages && i < torch->count; i++)
        if (!*count || by_key(&storages[i], &storages[*count - 1]) != 0)
            storages[(*count)++] = storages[i];
    return storages;
}

/* Appends an entry. Its `bytes` bytes begin at offset `begin`, after a header of `header` bytes. */
static void add_entry(struct zip *zip, const char *suffix, uint64_t begin, unsigned header, uint64_t bytes)
{
    char *name = zip->names + zip->count * NAME_ROOM;
    const int size = snprintf(name, NAME_ROOM, "old/data%s", suffix);
    zip->entries[zip->count++] = (struct zip_entry){.name = name,
                                                    .name_size = (size_t)size,
                                                    .stored = true,
                                                    .bytes = bytes,
                                                    .header = begin - header,
                                                    .begin = begin,
                                                    .end = begin + bytes};
}

/* Reads the storage of a key, at the position. */
static bool take_storage(struct file *file, struct zip *zip, const struct pickle *keys, uint32_t key,
                         struct storage *storages, size_t count)
{
    char text[1 + KEY_MOST + 1] = "/";
    if (pickle_type_of(keys, key) != PICKLE_TEXT || !keys->nodes[key].is.text.len ||
        keys->nodes[key].is.text.len > KEY_MOST)
        return fail(file, "the key of a storage is not as torch writes it");
    const size_t size = keys->nodes[key].is.text.len;
    memcpy(text + 1, keys->bytes + keys->nodes[key].is.text.start, size);
    const struct torch_tensor like = {.storage = text + 1, .storage_size = size};
    const struct storage wanted = {&like, false};
    struct storage *found = count ? bsearch(&wanted, storages, count, sizeof wanted, by_key) : NULL;
    if (strspn(text + 1, "0123456789") < size || !found || found->found)
        return fail(file, "a storage occurs twice, or no tensor gives its dtype");
    found->found = true;
    uint8_t items[8];
    uint64_t bytes, item_count = 0;
    if (file->file_bytes - file->position < sizeof items)
        return fail(file, "the file ends before its last storage");
    if (!fetch(file, items, sizeof items, file->position))
        return false;
    for (int i = 8; i-- > 0;)
        item_count = item_count << 8 | items[i];
    if (!parse_mul(&bytes, item_count, found->tensor->storage_item, file->file_bytes - file->position - sizeof items))
        return fail(file, "a storage goes beyond the end of the file");
    add_entry(zip, text, file->position + sizeof items, sizeof items, bytes);
    file->position += sizeof items + bytes;
    return true;
}

/* Reads all parts after the head. */
static bool take_entries(struct file *file, struct zip *zip, struct pickle *keys, struct torch *torch)
{
    struct pickle value;
    const uint64_t begin = file->position;
    if (!next_pickle(file, &value))
        return false;
    const size_t size = value.size;
    pickle_free(&value);
    if (!next_pickle(file, keys) || !torch_parse(torch, file->bytes + begin, size, begin, file->error))
        return false;
    if (pickle_type_of(keys, keys->root) != PICKLE_LIST)
        return fail(file, "the keys of the storages are not a list");
    size_t count, most = 1;
    for (uint32_t cell = keys->nodes[keys->root].first; cell != PICKLE_NO; cell = keys->cells[cell].next)
        most++;
    struct storage *storages = storages_of(torch, &count);
    zip->entries = malloc(most * sizeof *zip->entries);
    zip->names = malloc(most * NAME_ROOM);
    bool valid = (storages && zip->entries && zip->names) || fail(file, "out of memory for the list of storages");
    if (valid)
        add_entry(zip, ".pkl", begin, 0, size);
    for (uint32_t cell = keys->nodes[keys->root].first; valid && cell != PICKLE_NO; cell = keys->cells[cell].next)
        valid = take_storage(file, zip, keys, keys->cells[cell].value, storages, count);
    free(storages);
    return valid;
}

bool torch_old_open(struct zip *out, pici_read_at_fn read_at, void *context, uint64_t file_bytes,
                    struct parse_error *error)
{
    struct file file = {.read_at = read_at, .context = context, .file_bytes = file_bytes, .error = error};
    struct pickle keys = {0};
    struct torch torch = {0};
    *out = (struct zip){0};
    if (file_bytes > INT64_MAX || !file_bytes)
        return fail(&file, file_bytes ? "a file beyond 63 bits" : "the file is empty");
    const bool valid = read_more(&file) && take_head(&file) && take_entries(&file, out, &keys, &torch);
    pickle_free(&keys);
    torch_free(&torch);
    free(file.bytes);
    if (!valid)
        zip_free(out);
    return valid;
}
