/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Any bytes as examples in LIBSVM's text format. Accepted examples keep the promises of the struct, and read back
 * from their printed form unchanged. Errors name a line that exists. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "examples/libsvm.h"

#define CHECK(x)                                                                                                       \
    do {                                                                                                               \
        if (!(x))                                                                                                      \
            abort();                                                                                                   \
    } while (0)

static void check(const struct libsvm *d)
{
    uint32_t features = 0;
    CHECK(d->rows > 0 && d->start[0] == 0);
    for (size_t r = 0; r < d->rows; r++) {
        CHECK(d->start[r] <= d->start[r + 1] && isfinite(d->label[r]));
        for (size_t i = d->start[r]; i < d->start[r + 1]; i++) {
            CHECK(i == d->start[r] || d->index[i - 1] < d->index[i]);
            CHECK(isfinite(d->value[i]));
            if (features <= d->index[i])
                features = d->index[i] + 1;
        }
    }
    CHECK(features == d->features && features <= LIBSVM_MAX_FEATURES);
}

static char *print(const struct libsvm *d, size_t *len)
{
    enum { NUMBER = 32 }; /* the most characters that a field can take */
    const size_t cap = (d->rows + d->start[d->rows]) * NUMBER;
    char *const text = malloc(cap);
    size_t n = 0;
    CHECK(text);
    for (size_t r = 0; r < d->rows; r++) {
        n += (size_t)snprintf(text + n, cap - n, "%s%.9g", r ? "\n" : "", (double)d->label[r]);
        for (size_t i = d->start[r]; i < d->start[r + 1]; i++)
            n += (size_t)snprintf(text + n, cap - n, " %llu:%.9g", d->index[i] + 1ULL, (double)d->value[i]);
    }
    *len = n;
    return text;
}

static void same(const struct libsvm *a, const struct libsvm *b)
{
    const size_t n = a->start[a->rows];
    CHECK(a->rows == b->rows && a->features == b->features);
    CHECK(memcmp(a->start, b->start, (a->rows + 1) * sizeof *a->start) == 0);
    CHECK(memcmp(a->label, b->label, a->rows * sizeof *a->label) == 0);
    CHECK(memcmp(a->index, b->index, n * sizeof *a->index) == 0);
    CHECK(memcmp(a->value, b->value, n * sizeof *a->value) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct libsvm d, again;
    struct libsvm_error err;
    size_t lines = 1;
    char *text = malloc(len); /* exact size, so that a sanitizer knows its end */
    if (!text && len)
        return 0;
    if (len)
        memcpy(text, data, len);
    for (size_t i = 0; i < len; i++)
        lines += text[i] == '\n';
    const bool ok = libsvm_parse(&d, text, len, &err);
    free(text);
    if (!ok) {
        CHECK(err.line <= lines && err.why && err.why[0] && !d.start);
        return 0;
    }
    check(&d);
    text = print(&d, &len);
    CHECK(libsvm_parse(&again, text, len, &err));
    same(&d, &again);
    free(text);
    libsvm_free(&d);
    libsvm_free(&again);
    return 0;
}
