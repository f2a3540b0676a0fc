/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A .npz file as parts. */
#include "input/archive_cut.h"

#include <stdlib.h>
#include <string.h>

/* The state of opening a .npz file. */
struct arrays {
    struct cut cut;
    uint8_t *header; /* [NPY_MAX_HEADER_BYTES] */
};

static bool ends_in_npy(const struct zip_entry *entry)
{
    return entry->name_size > 4 && memcmp(entry->name + entry->name_size - 4, ".npy", 4) == 0;
}

/* Reads the .npy header of an entry. *is_array: the entry is a readable array; else archive->error has the reason. */
static int read_header(struct arrays *arrays, const struct zip_entry *entry, struct npy *npy, bool *is_array)
{
    struct archive *archive = arrays->cut.archive;
    uint64_t need = NPY_PREFIX_BYTES;
    *is_array = false;
    if (!ends_in_npy(entry) || entry->bytes < need)
        return pici_parse_fail(&archive->error, 0, "it is not a .npy file"), TOOL_OK;
    if (entry->method != ZIP_STORED && entry->method != ZIP_DEFLATED)
        return pici_parse_fail(&archive->error, 0, "compression method %u is not supported", entry->method), TOOL_OK;
    if (!unzip_open(&archive->unzip, entry, input_read_at, archive->input, &archive->error))
        return archive_refuse(archive);
    archive->unzipping = true;
    if (!unzip_take(&archive->unzip, arrays->header, (size_t)need))
        return archive_refuse(archive);
    if (!pici_npy_header_bytes(&need, arrays->header, NPY_PREFIX_BYTES, &archive->error))
        return TOOL_OK;
    if (need > entry->bytes)
        return pici_parse_fail(&archive->error, 0, "it ends inside its header"), TOOL_OK;
    if (!unzip_take(&archive->unzip, arrays->header + NPY_PREFIX_BYTES, (size_t)need - NPY_PREFIX_BYTES))
        return archive_refuse(archive);
    *is_array = pici_npy_parse(npy, arrays->header, (size_t)need, entry->bytes, &archive->error);
    if (*is_array && entry->method == ZIP_DEFLATED && npy->trailing_bytes)
        *is_array = pici_parse_fail(&archive->error, 0, "bytes follow its array");
    if (*is_array && need > ARCHIVE_HEAD_MOST - archive->head_size)
        *is_array = pici_parse_fail(&archive->error, 0, "the headers before it are too long");
    return TOOL_OK;
}

static int take_array(struct arrays *arrays, uint32_t number, const struct npy *npy, int level, uint32_t crc)
{
    struct archive *archive = arrays->cut.archive;
    const struct zip_entry *entry = &archive->zip.entries[number];
    const size_t header = (size_t)npy->data_offset;
    uint8_t *head_end = archive_more_head(archive, header);
    if (!head_end)
        return tool_nomem(archive->input->name, "the headers of the arrays");
    memcpy(head_end, arrays->header, header);
    archive->head_size += header;
    arrays->cut.pending += header;
    arrays->cut.done = entry->stored ? entry->begin + header + npy->data_bytes : entry->end;
    return cut_part(&arrays->cut, (struct archive_part){.offset = entry->stored ? entry->begin + header : entry->begin,
                                                        .bytes = npy->data_bytes,
                                                        .number = number,
                                                        .header = (uint32_t)header,
                                                        .tensor = ARCHIVE_NONE,
                                                        .kind = ARCHIVE_ARRAY,
                                                        .level = (uint8_t)level,
                                                        .crc = crc});
}

static int take_entry(struct arrays *arrays, uint32_t number)
{
    struct archive *archive = arrays->cut.archive;
    const struct zip_entry *entry = &archive->zip.entries[number];
    struct npy npy;
    bool is_array;
    uint32_t crc = 0;
    int level = 0;
    TRY(cut_gap(&arrays->cut, entry->begin));
    if (entry->begin == entry->end)
        return TOOL_OK;
    const int status = read_header(arrays, entry, &npy, &is_array);
    archive_stop_unzipping(archive);
    TRY(status);
    TRY(cut_deflated(&arrays->cut, entry, &level, &crc, &is_array));
    return is_array ? take_array(arrays, number, &npy, level, crc) : cut_kept(&arrays->cut, number);
}

/* Strips .npy from the names of arrays, or restores it. */
static void shorten(struct archive *archive, bool shorter)
{
    for (size_t i = 0; i < archive->parts; i++) {
        if (archive->part[i].kind != ARCHIVE_ARRAY)
            continue;
        struct zip_entry *entry = &archive->zip.entries[archive->part[i].number];
        char *dot = archive->zip.names + (entry->name - archive->zip.names) + entry->name_size - (shorter ? 4 : 0);
        *dot = shorter ? 0 : '.';
        entry->name_size = (size_t)(dot - entry->name) + (shorter ? 0 : 4);
    }
}

/* Whether two named parts have the same name. */
static int find_duplicates(struct archive *archive, bool *found)
{
    struct archive_name *names = malloc((archive->parts + 1) * sizeof *names);
    size_t count = 0;
    *found = false;
    if (!names)
        return tool_nomem(archive->input->name, "the names of tensors");
    for (size_t i = 0; i < archive->parts; i++)
        if (!archive->part[i].unnamed) {
            names[count].number = 0;
            names[count].text = archive_name(archive, &archive->part[i], &names[count].size);
            count++;
        }
    qsort(names, count, sizeof *names, archive_by_name);
    for (size_t i = 1; i < count && !*found; i++)
        *found = archive_by_name(&names[i - 1], &names[i]) == 0;
    free(names);
    return TOOL_OK;
}

static int name_arrays(struct archive *archive)
{
    bool twice;
    shorten(archive, true);
    TRY(find_duplicates(archive, &twice));
    if (twice)
        shorten(archive, false);
    return archive_number_unnamed(archive);
}

static int take_arrays(struct arrays *arrays)
{
    struct archive *const archive = arrays->cut.archive;
    arrays->header = malloc(NPY_MAX_HEADER_BYTES);
    if (!arrays->header)
        return tool_nomem(archive->input->name, "the headers of the arrays");
    for (size_t i = 0; i < archive->zip.count; i++)
        TRY(take_entry(arrays, (uint32_t)i));
    TRY(cut_gap(&arrays->cut, archive->input->bytes));
    TRY(name_arrays(archive));
    cut_tell_kept(&arrays->cut);
    return TOOL_OK;
}

int archive_open_npz(struct archive *archive, struct input *input, const struct limit *exact)
{
    struct arrays arrays = {.cut = {.archive = archive, .exact = exact}};
    TRY(cut_open(&arrays.cut, input, TYPE_NPZ));
    const int status = take_arrays(&arrays);
    free(arrays.header);
    if (status)
        archive_close(archive);
    return status;
}
