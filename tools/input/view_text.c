/* SPDX-License-Identifier: BSD-3-Clause */
#include "input/view_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "parse/parse.h"
#include "term.h"

/* Appends words to buf, after a space unless it is empty. */
static char *next_words(char *buf, size_t cap, size_t *room)
{
    const size_t n = strlen(buf), space = n && n + 1 < cap;
    if (space)
        memcpy(buf + n, " ", 2);
    *room = cap - n - space;
    return buf + n + space;
}

const char *view_text(char *buf, size_t cap, const struct view_words *v)
{
    char dims[240], of[128];
    size_t room;
    buf[0] = 0;
    if (v->strides)
        snprintf(buf, cap, "strides %s", term_shape(dims, sizeof dims, v->strides, v->rank));
    if (v->is_part) {
        char *const p = next_words(buf, cap, &room);
        snprintf(p, room, "from %" PRIu64 " of %s", v->offset,
                 v->of ? pici_parse_printable(of, sizeof of, v->of, v->of_len) : "its storage");
    }
    if (v->conjugate || v->negative) {
        char *const p = next_words(buf, cap, &room);
        snprintf(p, room, "%s", !v->conjugate ? "negative" : v->negative ? "negative conjugate" : "conjugate");
    }
    return buf;
}

static bool is_row_major(const struct pici_view *v)
{
    uint64_t row = 1;
    bool is = true;
    for (unsigned i = v->rank; v->count && i-- > 0; row *= v->shape[i])
        is = is && (v->shape[i] == 1 || v->strides[i] == row);
    return is;
}

const char *view_text_of(char *buf, size_t cap, const struct pici_view *v, const struct pici_tensor_info *t,
                         bool unnamed)
{
    const bool whole =
        v->stored_count == t->count && v->count * pici_dtype_width(v->dtype) == t->count * pici_dtype_width(t->dtype);
    return view_text(buf, cap,
                     &(struct view_words){.rank = v->rank,
                                          .strides = is_row_major(v) ? NULL : v->strides,
                                          .is_part = !unnamed || !whole,
                                          .offset = v->offset,
                                          .of = t->name,
                                          .of_len = t->name_len,
                                          .conjugate = v->conjugate != 0,
                                          .negative = v->negative != 0});
}
