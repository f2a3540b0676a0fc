/* SPDX-License-Identifier: BSD-3-Clause */
#include "input/view_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "parse/parse.h"
#include "term.h"

/* Returns where to append words to buffer, after a space unless it is empty. */
static char *next_words(char *buffer, size_t capacity, size_t *remaining)
{
    const size_t used = strlen(buffer), space = used && used + 1 < capacity;
    if (space)
        memcpy(buffer + used, " ", 2);
    *remaining = capacity - used - space;
    return buffer + used + space;
}

const char *view_text(char *buffer, size_t capacity, const struct view_words *words)
{
    char dims[240], of[128];
    size_t remaining;
    buffer[0] = 0;
    if (words->strides)
        snprintf(buffer, capacity, "strides %s", term_shape(dims, sizeof dims, words->strides, words->rank));
    if (words->is_part) {
        char *const next = next_words(buffer, capacity, &remaining);
        snprintf(next, remaining, "from %" PRIu64 " of %s", words->offset,
                 words->of ? pici_parse_printable(of, sizeof of, words->of, words->of_size) : "its storage");
    }
    if (words->conjugate || words->negative) {
        char *const next = next_words(buffer, capacity, &remaining);
        const char *const sign = words->negative ? "negative conjugate" : "conjugate";
        snprintf(next, remaining, "%s", words->conjugate ? sign : "negative");
    }
    return buffer;
}

static bool is_row_major(const struct pici_view *view)
{
    uint64_t stride = 1;
    bool matches = true;
    for (unsigned i = view->rank; view->count && i-- > 0; stride *= view->shape[i])
        matches = matches && (view->shape[i] == 1 || view->strides[i] == stride);
    return matches;
}

const char *view_text_of(char *buffer, size_t capacity, const struct pici_view *view,
                         const struct pici_tensor_info *stored, bool unnamed)
{
    const bool whole = view->stored_count == stored->count &&
                       view->count * pici_dtype_width(view->dtype) == stored->count * pici_dtype_width(stored->dtype);
    return view_text(buffer, capacity,
                     &(struct view_words){.rank = view->rank,
                                          .strides = is_row_major(view) ? NULL : view->strides,
                                          .is_part = !unnamed || !whole,
                                          .offset = view->offset,
                                          .of = unnamed ? NULL : stored->name,
                                          .of_size = stored->name_len,
                                          .conjugate = view->conjugate != 0,
                                          .negative = view->negative != 0});
}
