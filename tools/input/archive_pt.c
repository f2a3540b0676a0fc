/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A .pt file as parts, and as views of its storages. */
#include "input/archive_cut.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "input/view_text.h"
#include "parse/pickle.h"
#include "term.h"
#include "view_format.h"

/* The storages of a .pt file while it is opened: entries PREFIX/data/KEY, sorted by name. */
struct storages {
    const struct zip_entry **entry; /* [count] */
    uint32_t *part;                 /* [count] the archive's part for each entry */
    size_t count;
    size_t prefix_size; /* length of PREFIX, from PREFIX/data.pkl */
};

/* Whether an entry is a storage as torch.save names them: PREFIX/data/NUMBER. */
static bool is_storage(const struct zip_entry *entry)
{
    const char *number = strrchr(entry->name, '/');
    return number && number - entry->name > 5 && memcmp(number - 5, "/data", 5) == 0 && number[1] &&
           strspn(number + 1, "0123456789") == strlen(number + 1);
}

/* The entry PREFIX/name with a PREFIX without slashes. NULL: none. */
static const struct zip_entry *find_entry(const struct zip *zip, const char *name)
{
    const size_t size = strlen(name);
    for (size_t i = 0; i < zip->count; i++) {
        const struct zip_entry *entry = &zip->entries[i];
        const size_t prefix = entry->name_size > size ? entry->name_size - size : 0;
        if (prefix && entry->name[prefix - 1] == '/' && !memchr(entry->name, '/', prefix - 1) &&
            memcmp(entry->name + prefix, name, size) == 0)
            return entry;
    }
    return NULL;
}

static int by_entry_name(const void *left, const void *right)
{
    return strcmp((*(const struct zip_entry *const *)left)->name, (*(const struct zip_entry *const *)right)->name);
}

/* The part of a tensor's storage, by its key; ARCHIVE_NONE: none. */
static uint32_t part_of_key(const struct archive *archive, const struct storages *storages, const char *prefix,
                            const struct torch_tensor *tensor)
{
    char name[512];
    struct zip_entry wanted = {.name = name};
    const struct zip_entry *key = &wanted;
    const size_t size = storages->prefix_size + 5 + tensor->storage_size;
    if (size >= sizeof name || !storages->count)
        return ARCHIVE_NONE;
    memcpy(name, prefix, storages->prefix_size);
    memcpy(name + storages->prefix_size, "data/", 5);
    memcpy(name + storages->prefix_size + 5, tensor->storage, tensor->storage_size);
    name[size] = 0;
    const struct zip_entry *const *found =
        bsearch(&key, storages->entry, storages->count, sizeof *storages->entry, by_entry_name);
    return found ? storages->part[*found - archive->zip.entries] : ARCHIVE_NONE;
}

/* Whether a tensor covers a whole storage of `bytes` bytes, in its order. */
static bool is_whole(const struct torch_tensor *tensor, uint64_t bytes)
{
    unsigned order[TORCH_MAX_RANK];
    return bytes == tensor->items * pici_dtype_width(tensor->dtype) * tensor->item_elements &&
           torch_is_dense(tensor, order);
}

/* For a tensor that covers its storage: whether the first index varies fastest, and the last one slowest. */
static bool is_reversed(const struct torch_tensor *tensor)
{
    unsigned order[TORCH_MAX_RANK];
    bool reversed = tensor->rank > 1 && torch_is_dense(tensor, order);
    for (unsigned i = 0; reversed && i < tensor->rank; i++)
        reversed = order[i] == tensor->rank - 1 - i;
    return reversed;
}

/* How well a tensor describes a storage. 2: by its shape. 1: by its shape, with the first index fastest. 0: not, since
 * shape or values differ. */
static int rank_of(const struct torch_tensor *tensor, uint64_t bytes)
{
    const bool as_is = is_whole(tensor, bytes) && !tensor->conjugate && !tensor->negative &&
                       tensor->rank + (tensor->item_elements > 1) <= PICI_RANK_MAX;
    if (!as_is)
        return 0;
    return tensor->row_major ? 2 : is_reversed(tensor);
}

/* Sets the tensor that names each storage: the first of those that describe it best. */
static bool match(struct archive *archive, const struct storages *storages, const char *prefix)
{
    char name[64];
    for (size_t i = 0; i < archive->torch.count; i++) {
        const struct torch_tensor *tensor = &archive->torch.tensors[i];
        const uint32_t number = archive->part_of[i] = part_of_key(archive, storages, prefix, tensor);
        if (number == ARCHIVE_NONE)
            continue;
        struct archive_part *part = &archive->part[number];
        const uint64_t item = pici_dtype_width(tensor->dtype) * tensor->item_elements;
        if (tensor->extent > part->bytes / item)
            return pici_parse_fail(&archive->error, part->offset, "tensor '%s' exceeds its storage",
                                   pici_parse_printable(name, sizeof name, tensor->name, tensor->name_size));
        if (part->tensor != ARCHIVE_NONE &&
            rank_of(tensor, part->bytes) <= rank_of(&archive->torch.tensors[part->tensor], part->bytes))
            continue;
        part->tensor = (uint32_t)i;
    }
    for (size_t i = 0; i < archive->parts; i++) {
        struct archive_part *part = &archive->part[i];
        const struct torch_tensor *tensor = part->tensor == ARCHIVE_NONE ? NULL : &archive->torch.tensors[part->tensor];
        part->whole = tensor && is_whole(tensor, part->bytes);
        part->unnamed = part->unnamed || (tensor && !rank_of(tensor, part->bytes));
        part->fortran = tensor && rank_of(tensor, part->bytes) == 1;
    }
    return true;
}

static void forget_names(struct archive *archive)
{
    torch_free(&archive->torch);
    for (size_t i = 0; i < archive->parts; i++) {
        archive->part[i].tensor = ARCHIVE_NONE;
        archive->part[i].unnamed = archive->part[i].kind == ARCHIVE_FILLER;
        archive->part[i].whole = archive->part[i].fortran = archive->part[i].viewed = false;
    }
}

/* ---- names */

/* Renames duplicates: adds a tilde and the lowest number from 2 that makes a new name. The first tensor keeps its name.
 * names [count], sorted: the names of tensors, and of storages named after their entries. */
static int rename_tensors(struct archive *archive, struct archive_name *names, size_t count)
{
    size_t capacity = 1, position = 0, twice = 0;
    char shown[64], other[64];
    for (size_t i = 1; i < count; i++)
        if (names[i].number < archive->torch.count && archive_same_name(&names[i], &names[i - 1]) == 0)
            capacity += names[i].size + ARCHIVE_NUMBER_ROOM;
    if (capacity == 1)
        return TOOL_OK;
    archive->renamed = malloc(capacity);
    if (!archive->renamed)
        return tool_nomem(archive->input->name, "the names of tensors");
    const struct archive_name *original = &names[0];
    uint64_t suffix = 2;
    for (size_t i = 1; i < count; i++) {
        const bool same = archive_same_name(&names[i], original) == 0;
        if (!same) {
            original = &names[i];
            suffix = 2;
        }
        if (!same || names[i].number >= archive->torch.count)
            continue;
        struct torch_tensor *tensor = &archive->torch.tensors[names[i].number];
        struct archive_name key = {archive->renamed + position, 0, 0};
        bool taken;
        memcpy(archive->renamed + position, original->text, original->size);
        do {
            key.size = original->size + (size_t)snprintf(archive->renamed + position + original->size,
                                                         ARCHIVE_NUMBER_ROOM, "~%" PRIu64, suffix++);
            taken = bsearch(&key, names, count, sizeof *names, archive_same_name) != NULL;
        } while (taken);
        if (key.size > PICI_NAME_MAX)
            return tool_bad(archive->input->name, "two tensors have the same name of %zu bytes, too long for a suffix",
                            original->size);
        if (!twice++)
            snprintf(shown, sizeof shown, "%s", pici_parse_printable(other, sizeof other, key.text, key.size));
        tensor->name = key.text;
        tensor->name_size = key.size;
        position += key.size + 1;
    }
    if (twice == 1)
        tool_warn(archive->input->name, "1 tensor has a duplicate name and is renamed, the first '%s'", shown);
    else
        tool_warn(archive->input->name, "%zu tensors have duplicate names and are renamed, the first '%s'", twice,
                  shown);
    return TOOL_OK;
}

/* Makes the names of all tensors unique, also among storages named after their entries. */
static int settle_names(struct archive *archive)
{
    size_t count = archive->torch.count;
    struct archive_name *names = malloc((count + archive->parts + 1) * sizeof *names);
    if (!names)
        return tool_nomem(archive->input->name, "the names of tensors");
    for (size_t i = 0; i < count; i++)
        names[i] = (struct archive_name){archive->torch.tensors[i].name, archive->torch.tensors[i].name_size, i};
    for (size_t i = 0; i < archive->parts; i++) {
        const struct archive_part *part = &archive->part[i];
        if (part->unnamed || part->tensor != ARCHIVE_NONE)
            continue;
        names[count].text = archive_name(archive, part, &names[count].size);
        names[count].number = SIZE_MAX;
        count++;
    }
    if (count)
        qsort(names, count, sizeof *names, archive_by_name);
    const int status = count ? rename_tensors(archive, names, count) : TOOL_OK;
    free(names);
    return status;
}

/* ---- views */

struct view_of {
    uint32_t part, tensor;
};

static int by_part(const void *left, const void *right)
{
    const struct view_of *first = left, *second = right;
    return first->part != second->part ? (first->part > second->part) - (first->part < second->part)
                                       : (first->tensor > second->tensor) - (first->tensor < second->tensor);
}

static unsigned view_rank(const struct torch_tensor *tensor)
{
    return tensor->rank + (tensor->item_elements > 1);
}

static size_t view_bytes(const struct torch_tensor *tensor)
{
    return PICI_VIEW_FIXED + 16 * (size_t)view_rank(tensor) +
           ((tensor->name_size + 1 + strlen(tensor->source_dtype)) | 7) + 1;
}

/* Writes a view in the format of formats/attributes.md. */
static uint8_t *put_view(uint8_t *target, const struct torch_tensor *tensor, uint32_t part)
{
    const unsigned rank = view_rank(tensor);
    const size_t word_size = strlen(tensor->source_dtype);
    uint8_t *const end = target + view_bytes(tensor);
    memset(target, 0, (size_t)(end - target));
    store_le64(target + PICI_VIEW_TENSOR, part);
    store_le64(target + PICI_VIEW_OFFSET, tensor->items ? tensor->offset * tensor->item_elements : 0);
    target[PICI_VIEW_DTYPE] = (uint8_t)tensor->dtype;
    target[PICI_VIEW_RANK] = (uint8_t)rank;
    if (tensor->conjugate)
        target[PICI_VIEW_FLAGS] |= PICI_VIEW_CONJUGATE;
    if (tensor->negative)
        target[PICI_VIEW_FLAGS] |= PICI_VIEW_NEGATIVE;
    target[PICI_VIEW_WORD] = (uint8_t)word_size;
    store_le32(target + PICI_VIEW_NAME, (uint32_t)tensor->name_size);
    target += PICI_VIEW_FIXED;
    for (unsigned i = 0; i < tensor->rank; i++) {
        store_le64(target + 8 * (size_t)i, tensor->shape[i]);
        store_le64(target + 8 * ((size_t)rank + i),
                   tensor->items && tensor->shape[i] > 1 ? tensor->strides[i] * tensor->item_elements : 0);
    }
    if (rank > tensor->rank) {
        store_le64(target + 8 * (size_t)tensor->rank, tensor->item_elements);
        store_le64(target + 8 * ((size_t)rank + tensor->rank), 1);
    }
    target += 16 * (size_t)rank;
    memcpy(target, tensor->name, tensor->name_size);
    memcpy(target + tensor->name_size + 1, tensor->source_dtype, word_size);
    return end;
}

/* Makes the table of views: the tensors that are not stored themselves. */
static int make_views(struct archive *archive)
{
    struct view_of *views = malloc((archive->torch.count + 1) * sizeof *views);
    size_t count = 0, bytes = PICI_VIEWS_HEADER;
    if (!views)
        return tool_nomem(archive->input->name, "the list of views");
    for (size_t i = 0; i < archive->torch.count; i++) {
        const struct torch_tensor *tensor = &archive->torch.tensors[i];
        const uint32_t part = archive->part_of[i];
        if (part == ARCHIVE_NONE || (archive->part[part].tensor == i && !archive->part[part].unnamed))
            continue;
        if (view_rank(tensor) > PICI_RANK_MAX) {
            char name[64];
            tool_warn(archive->input->name, "tensor '%s' has more than %u dimensions: its elements have no name",
                      pici_parse_printable(name, sizeof name, tensor->name, tensor->name_size), PICI_RANK_MAX);
            continue;
        }
        archive->part[part].viewed = true;
        views[count++] = (struct view_of){part, (uint32_t)i};
        bytes += view_bytes(tensor);
    }
    if (count) {
        qsort(views, count, sizeof *views, by_part);
        archive->views = malloc(bytes);
    }
    uint8_t *position = archive->views ? archive->views + PICI_VIEWS_HEADER : NULL;
    if (position)
        store_le64(archive->views, count);
    for (size_t i = 0; position && i < count; i++)
        position = put_view(position, &archive->torch.tensors[views[i].tensor], views[i].part);
    archive->views_size = position ? bytes : 0;
    free(views);
    return position || !count ? TOOL_OK : tool_nomem(archive->input->name, "the list of views");
}

/* Reads a whole entry. Does not check the CRC-32 of an uncompressed entry. */
static bool read_entry(struct archive *archive, const struct zip_entry *entry, void *target)
{
    if (entry->stored)
        return !entry->bytes || !input_read_at(archive->input, target, (size_t)entry->bytes, entry->begin) ||
               pici_parse_fail(&archive->error, entry->begin, "entry '%s' cannot be read", entry->name);
    if (!unzip_open(&archive->unzip, entry, input_read_at, archive->input, &archive->error))
        return false;
    const bool complete = unzip_take(&archive->unzip, target, (size_t)entry->bytes);
    unzip_close(&archive->unzip);
    return complete;
}

/* Reads the entry data.pkl into new memory. False, with archive->error set: it does not exist or cannot be read. */
static bool read_pickle(struct archive *archive, const struct zip_entry *entry)
{
    if (!entry)
        return pici_parse_fail(&archive->error, 0, "it has no entry data.pkl");
    if (entry->bytes > PICKLE_MAX_BYTES)
        return pici_parse_fail(&archive->error, entry->begin, "the pickle has %" PRIu64 " bytes, too many",
                               entry->bytes);
    archive->pickle = malloc((size_t)entry->bytes + 1);
    if (!archive->pickle)
        return pici_parse_fail(&archive->error, entry->begin, "out of memory for the pickle");
    if (!read_entry(archive, entry, archive->pickle))
        return false;
    return torch_parse(&archive->torch, archive->pickle, (size_t)entry->bytes, entry->begin, &archive->error);
}

static bool read_byte_order(struct archive *archive)
{
    const struct zip_entry *entry = find_entry(&archive->zip, "byteorder");
    char word[4] = "";
    if (entry && entry->bytes == 3 && !read_entry(archive, entry, word))
        return false;
    archive->big_endian = strcmp(word, "big") == 0;
    return true;
}

/* Reads the pickle, and names the storages after its tensors. */
static int name_storages(struct archive *archive, struct storages *storages)
{
    const struct zip_entry *entry = find_entry(&archive->zip, "data.pkl");
    bool readable = read_pickle(archive, entry) && read_byte_order(archive);
    if (readable) {
        storages->prefix_size = entry->name_size - strlen("data.pkl");
        archive->part_of = malloc((archive->torch.count + 1) * sizeof *archive->part_of);
        if (!archive->part_of)
            return tool_nomem(archive->input->name, "the names of tensors");
        if (storages->count)
            qsort(storages->entry, storages->count, sizeof *storages->entry, by_entry_name);
        readable = match(archive, storages, entry->name);
    }
    if (!readable) {
        forget_names(archive);
        tool_warn(archive->input->name, "offset %" PRIu64 ": %s; storages are named after their entries",
                  archive->error.offset, archive->error.what);
    }
    TRY(settle_names(archive));
    TRY(make_views(archive));
    return archive_number_unnamed(archive);
}

/* Adds entry `number`, a storage, as a part. */
static int take_storage(struct cut *cut, struct storages *storages, uint32_t number)
{
    struct archive *const archive = cut->archive;
    const struct zip_entry *entry = &archive->zip.entries[number];
    bool is_readable = entry->stored || (entry->method == ZIP_DEFLATED && unzip_inflates());
    uint32_t crc = 0;
    int level = 0;
    if (!is_readable && entry->method == ZIP_DEFLATED)
        pici_parse_fail(&archive->error, 0, "this build has no zlib");
    else if (!is_readable)
        pici_parse_fail(&archive->error, 0, "compression method %u is not supported", entry->method);
    TRY(cut_gap(cut, entry->begin));
    TRY(cut_deflated(cut, entry, &level, &crc, &is_readable));
    if (!is_readable)
        return cut_kept(cut, number);
    storages->entry[storages->count++] = entry;
    storages->part[number] = (uint32_t)archive->parts;
    cut->done = entry->end;
    return cut_part(cut, (struct archive_part){.offset = entry->begin,
                                               .bytes = entry->bytes,
                                               .number = number,
                                               .tensor = ARCHIVE_NONE,
                                               .kind = ARCHIVE_STORAGE,
                                               .level = (uint8_t)level,
                                               .crc = crc});
}

static int take_storages(struct cut *cut, struct storages *storages)
{
    struct archive *const archive = cut->archive;
    storages->entry = malloc((archive->zip.count + 1) * sizeof *storages->entry);
    storages->part = malloc((archive->zip.count + 1) * sizeof *storages->part);
    if (!storages->entry || !storages->part)
        return tool_nomem(archive->input->name, "the list of storages");
    for (size_t i = 0; i < archive->zip.count; i++)
        if (is_storage(&archive->zip.entries[i]))
            TRY(take_storage(cut, storages, (uint32_t)i));
    TRY(cut_gap(cut, archive->input->bytes));
    cut_tell_kept(cut);
    return name_storages(archive, storages);
}

int archive_open_pt(struct archive *archive, struct input *input, const struct limit *exact)
{
    struct cut cut = {.archive = archive, .exact = exact};
    struct storages storages = {0};
    TRY(cut_open(&cut, input, TYPE_PT));
    const int status = take_storages(&cut, &storages);
    free(storages.entry);
    free(storages.part);
    if (status)
        archive_close(archive);
    return status;
}

const char *archive_view(struct archive *archive, size_t index, char *buffer, size_t capacity)
{
    const struct torch_tensor *tensor = &archive->torch.tensors[index];
    const struct archive_part *stored =
        archive->part_of[index] == ARCHIVE_NONE ? NULL : &archive->part[archive->part_of[index]];
    const bool is_part = stored && stored->tensor != ARCHIVE_NONE && (stored->tensor != index || !stored->whole);
    const struct torch_tensor *after =
        is_part && stored->tensor != index ? &archive->torch.tensors[stored->tensor] : NULL;
    struct view_words words = {.rank = tensor->rank,
                               .strides = tensor->row_major ? NULL : tensor->strides,
                               .is_part = is_part,
                               .offset = tensor->offset,
                               .conjugate = tensor->conjugate,
                               .negative = tensor->negative};
    if (after) {
        words.of = after->name;
        words.of_size = after->name_size;
    }
    return view_text(buffer, capacity, &words);
}
