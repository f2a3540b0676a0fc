/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Lossy codecs by name, and how far results with one are from exact ones. */
#define _GNU_SOURCE
#include <math.h>

#include "coll.h"
#include "common.h"

static const struct {
    const char *name;
    struct pici_values values;
} codecs[] = {
#define VALUES(...)                                                                                                    \
    {                                                                                                                  \
        .size = sizeof(struct pici_values), __VA_ARGS__                                                                \
    }
    {"exact", VALUES(.codec = PICI_VALUES_EXACT)},
    {"bf16", VALUES(.codec = PICI_VALUES_CAST, .cast = PICI_BF16)},
    {"f16", VALUES(.codec = PICI_VALUES_CAST, .cast = PICI_F16)},
    {"f32", VALUES(.codec = PICI_VALUES_CAST, .cast = PICI_F32)},
    {"q2", VALUES(.codec = PICI_VALUES_QSGD, .bits = 2)},
    {"q4", VALUES(.codec = PICI_VALUES_QSGD, .bits = 4)},
    {"q8", VALUES(.codec = PICI_VALUES_QSGD, .bits = 8)},
    {"zfp", VALUES(.codec = PICI_VALUES_ZFP)},
};

/* A number above 0; otherwise 0. */
static double number(const char *text, char **end)
{
    const double x = strtod(text, end);
    return *end == text || !(x > 0 && x < 1e300) ? 0 : x;
}

static int parse_one(struct bench_values *v, const char *word)
{
    const size_t name = strcspn(word, ":~@"), n = sizeof v->name;
    size_t i = 0;
    while (i < COUNT_OF(codecs) && !(strlen(codecs[i].name) == name && !strncmp(codecs[i].name, word, name)))
        i++;
    if (i == COUNT_OF(codecs) || strlen(word) >= n)
        return 0;
    v->values = codecs[i].values;
    snprintf(v->name, n, "%s", word);
    const int zfp = v->values.codec == PICI_VALUES_ZFP;
    char *rest = v->name + name;
    if (zfp && *rest == ':' && !(v->values.rate = number(rest + 1, &rest)))
        return 0;
    if (zfp && *rest == '~' && !(v->values.tolerance = number(rest + 1, &rest)))
        return 0;
    if (zfp && !(v->values.rate > 0 || v->values.tolerance > 0))
        return 0;
    if (!strcmp(rest, "@reduce") || !strcmp(rest, "@gather"))
        v->values.phases = rest[1] == 'r' ? 1 : 2;
    else if (*rest)
        return 0;
    return 1;
}

int values_parse(struct bench_values *list, int most, char *text)
{
    int n = 0;
    for (char *rest = text, *word; (word = strsep(&rest, ",")); n++)
        if (n == most || !parse_one(&list[n], word))
            return 0;
    return n;
}

static double element(enum pici_dtype dtype, const uint8_t *p, uint64_t i)
{
    float f;
    double d;
    if (dtype == PICI_F64) {
        memcpy(&d, p + 8 * i, sizeof d);
        return d;
    }
    memcpy(&f, p + 4 * i, sizeof f);
    return (double)f;
}

int values_differ(enum pici_dtype dtype, const uint8_t *got, const uint8_t *exact, uint64_t n, double sums[2])
{
    if (dtype != PICI_F32 && dtype != PICI_F64)
        return 0;
    for (uint64_t i = 0; i < n; i++) {
        const double x = element(dtype, exact, i), off = element(dtype, got, i) - x;
        sums[0] += off * off;
        sums[1] += x * x;
    }
    return 1;
}
