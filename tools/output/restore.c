/* SPDX-License-Identifier: BSD-3-Clause */
#include "output/restore.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "input/attrs.h"
#include "input/deflated.h"
#include "input/source.h"
#include "parse/unzip.h"

/* A tensor on its way. */
struct moved {
    struct restore *to;
    const struct pici_tensor_info *t;
    struct deflater *deflater; /* NULL: it is not deflated */
    struct deflated deflated;
    size_t before; /* bytes of the head that precede it, without the header below */
    size_t header; /* bytes of the head that are deflated with it */
    bool big;
    uint64_t lost; /* losses that had been reported before the tensor */
};

int restore_open(struct restore *to, struct reading *r, struct output *out)
{
    struct pici_attr head;
    *to = (struct restore){.r = r, .out = out};
    const uint64_t lost = r->lost;
    TRY(reading_attr(r, PICI_FILE, ATTR_HEAD, &head));
    to->head_lost = r->lost > lost;
    if (!head.key || !head.len)
        return TOOL_OK;
    to->head = malloc(head.len); /* attributes move when others are read */
    if (!to->head)
        return tool_nomem(r->in->name, "the head of the original file");
    memcpy(to->head, head.value, head.len);
    to->head_len = head.len;
    TRY(reading_attr(r, PICI_FILE, ATTR_TYPE, &head));
    for (int t = 0; head.key && t < TYPES; t++) {
        const char *name = tool_type_name((enum tool_type)t);
        to->in_parts |=
            tool_type_is_zip((enum tool_type)t) && head.len == strlen(name) && memcmp(head.value, name, head.len) == 0;
    }
    return TOOL_OK;
}

int restore_no_zlib(const char *file, const char *tensor)
{
    return tool_bad(
        file, "tensor %s was deflated, and this build has no zlib to deflate it again; extract gives the elements",
        tensor);
}

/* Prints what is wrong. With keep_going, counts it as a loss and continues. */
static int refuse(const struct moved *m, const char *what, const char *key)
{
    struct reading *r = m->to->r;
    tool_bad(r->in->name, "tensor %s %s%s", m->t->name, what, key);
    r->lost += r->keep_going;
    return r->keep_going ? TOOL_OK : TOOL_BAD;
}

static int bad_attr(const struct moved *m, const char *key)
{
    return refuse(m, "has no valid attribute ", key);
}

/* Bytes of the head that precede a tensor if its attribute is lost. In a zip file each tensor has a part of the head
 * before it, which is left for later; other types have all of it before the first tensor. */
static size_t before_unknown(const struct restore *to)
{
    return to->in_parts ? 0 : to->head_len - to->head_at;
}

/* Reads how much of the head precedes the tensor: all that is left, if nothing says so. */
static int find_before(struct moved *m)
{
    const struct restore *to = m->to;
    const size_t left = to->head_len - to->head_at;
    struct pici_attr a;
    char text[24];
    uint64_t n;
    const char *p = text;
    TRY(reading_attr(to->r, m->t->index, ATTR_BEFORE, &a));
    m->before = left;
    if (!a.key || to->head_lost)
        return TOOL_OK;
    m->before = before_unknown(to);
    if (a.len >= sizeof text)
        return bad_attr(m, ATTR_BEFORE);
    memcpy(text, a.value, a.len);
    text[a.len] = 0;
    if (!tool_parse_digits(&p, &n) || p != text + a.len)
        return bad_attr(m, ATTR_BEFORE);
    m->before = n < left ? (size_t)n : left;
    return n > left ? bad_attr(m, ATTR_BEFORE) : TOOL_OK;
}

/* Reads whether the tensor is to be deflated. */
static int find_deflated(struct moved *m)
{
    struct restore *to = m->to;
    struct pici_attr a;
    TRY(reading_attr(to->r, m->t->index, ATTR_DEFLATE, &a));
    if (!a.key)
        return TOOL_OK;
    if (!deflated_parse(&m->deflated, a.value, a.len, m->t->count * pici_dtype_width(m->t->dtype)) ||
        (m->deflated.header > m->before && !to->head_lost && to->r->lost == m->lost))
        return bad_attr(m, ATTR_DEFLATE);
    if (!unzip_inflates())
        return to->r->keep_going ? refuse(m, "was deflated; this build has no zlib", ", and writes it as it is")
                                 : restore_no_zlib(to->r->in->name, m->t->name);
    m->header = m->deflated.header < m->before ? (size_t)m->deflated.header : m->before;
    m->before -= m->header;
    m->deflater = deflater_new((int)m->deflated.level);
    return m->deflater ? TOOL_OK : tool_nomem(to->r->in->name, "deflating a tensor");
}

static int put_head(struct restore *to, size_t bytes)
{
    const int status = bytes ? output_write(to->out, to->head + to->head_at, bytes) : TOOL_OK;
    to->head_at += bytes;
    return status;
}

static int put(struct moved *m, const void *p, size_t bytes, bool last)
{
    struct output *out = m->to->out;
    if (!m->deflater)
        return output_write(out, p, bytes);
    return deflater_put(m->deflater, p, bytes, last, output_put, out) ? output_failed(out) : TOOL_OK;
}

/* Checks the deflated data. What is lost of a damaged file changes them, and has been reported. */
static int check(const struct moved *m)
{
    struct reading *r = m->to->r;
    if (!m->deflater || m->to->head_lost || r->lost > m->lost ||
        (deflater_bytes(m->deflater) == m->deflated.bytes && deflater_crc(m->deflater) == m->deflated.crc))
        return TOOL_OK;
    tool_bad(r->in->name, "tensor %s: zlib %s does not make the deflated bytes of the original, as %s did%s",
             m->t->name, unzip_version(), m->deflated.version, r->keep_going ? "" : "; extract gives the elements");
    r->lost += r->keep_going;
    return r->keep_going ? TOOL_OK : TOOL_BAD;
}

static int move(struct moved *m, struct progress *progress)
{
    struct restore *to = m->to;
    struct reading *r = to->r;
    const size_t width = pici_dtype_width(m->t->dtype);
    TRY(put_head(to, m->before));
    if (m->deflater)
        TRY(put(m, to->head + to->head_at, m->header, false));
    to->head_at += m->header;
    for (uint64_t done = 0, n;;) {
        TRY(reading_piece(r, m->t, &done, &n));
        if (!n)
            break;
        if (m->big != source_host_is_big_endian())
            source_swap(r->piece, (size_t)n * width, width);
        TRY(put(m, r->piece, (size_t)n * width, false));
        progress_at(progress, r->in->at, to->out->at);
    }
    if (m->deflater)
        TRY(put(m, "", 0, true));
    return check(m);
}

/* Reads how the tensor was stored, and writes it. */
static int find_and_move(struct moved *m, struct progress *progress)
{
    struct reading *const r = m->to->r;
    bool attrs;
    TRY(reading_has_attrs(r, m->t->index,
                          m->to->in_parts ? "; taken as little-endian and not deflated, and what stood before it comes "
                                            "after it"
                                          : "; taken as little-endian",
                          &attrs));
    if (attrs) {
        TRY(reading_attr_is(r, m->t->index, ATTR_ENDIAN, "big", &m->big));
        TRY(find_before(m));
        TRY(find_deflated(m));
    }
    return move(m, progress);
}

int restore_tensor(struct restore *to, const struct pici_tensor_info *t, struct progress *progress)
{
    struct moved m = {.to = to, .t = t, .before = before_unknown(to), .lost = to->r->lost};
    const int status = find_and_move(&m, progress);
    deflater_free(m.deflater);
    return status;
}

int restore_end(struct restore *to)
{
    return put_head(to, to->head_len - to->head_at);
}

void restore_close(struct restore *to)
{
    free(to->head);
    to->head = NULL;
}
