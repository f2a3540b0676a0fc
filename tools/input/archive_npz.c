/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A .npz file as parts. */
#include "input/archive_cut.h"

#include <stdlib.h>
#include <string.h>

/* The arrays of a .npz while it is opened. */
struct arrays {
    struct cut cut;
    uint8_t *header; /* [NPY_MAX_HEADER_BYTES] */
};

static bool ends_in_npy(const struct zip_entry *e)
{
    return e->name_len > 4 && memcmp(e->name + e->name_len - 4, ".npy", 4) == 0;
}

/* Reads the .npy header of an entry. *is: it has one, and what follows it can be read as an array; else err says why
 * not. */
static int read_header(struct arrays *s, const struct zip_entry *e, struct npy *npy, bool *is)
{
    struct archive *a = s->cut.a;
    uint64_t need = NPY_PREFIX_BYTES;
    *is = false;
    if (!ends_in_npy(e) || e->bytes < need)
        return pici_parse_fail(&a->err, 0, "it is no .npy file"), TOOL_OK;
    if (e->method != ZIP_STORED && e->method != ZIP_DEFLATED)
        return pici_parse_fail(&a->err, 0, "method %u of compression is not read", e->method), TOOL_OK;
    if (!unzip_open(&a->unzip, e, input_read_at, a->in, &a->err))
        return archive_refuse(a);
    a->unzipping = true;
    if (!unzip_take(&a->unzip, s->header, (size_t)need))
        return archive_refuse(a);
    if (!pici_npy_header_bytes(&need, s->header, NPY_PREFIX_BYTES, &a->err))
        return TOOL_OK;
    if (need > e->bytes)
        return pici_parse_fail(&a->err, 0, "it ends inside its header"), TOOL_OK;
    if (!unzip_take(&a->unzip, s->header + NPY_PREFIX_BYTES, (size_t)need - NPY_PREFIX_BYTES))
        return archive_refuse(a);
    *is = pici_npy_parse(npy, s->header, (size_t)need, e->bytes, &a->err);
    if (*is && e->method == ZIP_DEFLATED && npy->trailing_bytes)
        *is = pici_parse_fail(&a->err, 0, "bytes follow its array");
    if (*is && need > ARCHIVE_HEAD_MOST - a->head_len)
        *is = pici_parse_fail(&a->err, 0, "the headers before it are too long");
    return TOOL_OK;
}

static int take_array(struct arrays *s, uint32_t number, const struct npy *npy, int level, uint32_t crc)
{
    struct archive *a = s->cut.a;
    const struct zip_entry *e = &a->zip.entries[number];
    const size_t header = (size_t)npy->data_offset;
    uint8_t *p = archive_more_head(a, header);
    if (!p)
        return tool_nomem(a->in->name, "the headers of the arrays");
    memcpy(p, s->header, header);
    a->head_len += header;
    s->cut.pending += header;
    s->cut.done = e->stored ? e->begin + header + npy->data_bytes : e->end;
    return cut_part(&s->cut, (struct archive_part){.at = e->stored ? e->begin + header : e->begin,
                                                   .bytes = npy->data_bytes,
                                                   .number = number,
                                                   .header = (uint32_t)header,
                                                   .tensor = ARCHIVE_NONE,
                                                   .kind = ARCHIVE_ARRAY,
                                                   .level = (uint8_t)level,
                                                   .crc = crc});
}

static int take_entry(struct arrays *s, uint32_t number)
{
    struct archive *a = s->cut.a;
    const struct zip_entry *e = &a->zip.entries[number];
    struct npy npy;
    bool is;
    uint32_t crc = 0;
    int level = 0;
    TRY(cut_gap(&s->cut, e->begin));
    if (e->begin == e->end)
        return TOOL_OK;
    const int status = read_header(s, e, &npy, &is);
    archive_stop_unzipping(a);
    TRY(status);
    TRY(cut_deflated(&s->cut, e, &level, &crc, &is));
    return is ? take_array(s, number, &npy, level, crc) : cut_kept(&s->cut, number);
}

/* Takes .npy from the names of arrays, or puts it back. */
static void shorten(struct archive *a, bool shorter)
{
    for (size_t i = 0; i < a->parts; i++) {
        if (a->part[i].kind != ARCHIVE_ARRAY)
            continue;
        struct zip_entry *e = &a->zip.entries[a->part[i].number];
        char *dot = a->zip.names + (e->name - a->zip.names) + e->name_len - (shorter ? 4 : 0);
        *dot = shorter ? 0 : '.';
        e->name_len = (size_t)(dot - e->name) + (shorter ? 0 : 4);
    }
}

/* Whether two parts with names have one name. */
static int find_duplicates(struct archive *a, bool *there)
{
    struct archive_name *names = malloc((a->parts + 1) * sizeof *names);
    size_t n = 0;
    *there = false;
    if (!names)
        return tool_nomem(a->in->name, "the names of tensors");
    for (size_t i = 0; i < a->parts; i++)
        if (!a->part[i].unnamed) {
            names[n].number = 0;
            names[n].p = archive_name(a, &a->part[i], &names[n].len);
            n++;
        }
    qsort(names, n, sizeof *names, archive_by_name);
    for (size_t i = 1; i < n && !*there; i++)
        *there = archive_by_name(&names[i - 1], &names[i]) == 0;
    free(names);
    return TOOL_OK;
}

static int name_arrays(struct archive *a)
{
    bool twice;
    shorten(a, true);
    TRY(find_duplicates(a, &twice));
    if (twice)
        shorten(a, false);
    return archive_number_unnamed(a);
}

static int take_arrays(struct arrays *s)
{
    struct archive *const a = s->cut.a;
    s->header = malloc(NPY_MAX_HEADER_BYTES);
    if (!s->header)
        return tool_nomem(a->in->name, "the headers of the arrays");
    for (size_t i = 0; i < a->zip.count; i++)
        TRY(take_entry(s, (uint32_t)i));
    TRY(cut_gap(&s->cut, a->in->bytes));
    TRY(name_arrays(a));
    cut_tell_kept(&s->cut);
    return TOOL_OK;
}

int archive_open_npz(struct archive *a, struct input *in, const struct limit *exact)
{
    struct arrays s = {.cut = {.a = a, .exact = exact}};
    TRY(cut_open(&s.cut, in, TYPE_NPZ));
    const int status = take_arrays(&s);
    free(s.header);
    if (status)
        archive_close(a);
    return status;
}
