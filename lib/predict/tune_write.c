/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writing a tune file into memory. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict/number.h"
#include "predict/tune.h"
#include "schedule/registry.h"
#include "xxh64.h"

/* Text that grows. After a failed allocation at is NULL and nothing is added. */
struct text {
    char *at;
    size_t len, room;
};

static void put_bytes(struct text *t, const char *bytes, size_t n)
{
    if (!t->at)
        return;
    if (t->room - t->len < n) {
        const size_t room = (t->room + n) * 2;
        char *more = realloc(t->at, room);
        if (!more)
            free(t->at);
        t->at = more;
        t->room = room;
        if (!more)
            return;
    }
    memcpy(t->at + t->len, bytes, n);
    t->len += n;
}

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void
put(struct text *t, const char *format, ...)
{
    char some[512];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(some, sizeof some, format, args);
    va_end(args);
    put_bytes(t, some, n < (int)sizeof some ? (size_t)n : sizeof some - 1);
}

static void put_number(struct text *t, double x)
{
    char number[NUMBER_TEXT];
    pici_number_print(number, x < 0 ? -x : x);
    put(t, " %s%s", x < 0 ? "-" : "", number);
}

static void put_made(struct text *to, const struct tune *t)
{
    const char *const text[] = {t->pici, t->transport, t->library, t->cpu};
    static const char *const key[] = {"pici", "transport", "library", "cpu"};
    if (!t->date[0])
        return;
    put(to, "made %s", t->date);
    for (int i = 0; i < 4; i++)
        if (text[i][0])
            put(to, " %s \"%s\"", key[i], text[i]);
    put(to, "\n");
}

static void put_shape(struct text *to, const struct tune_shape *s)
{
    put(to, "shape ranks %d nodes %d map ", s->ranks, s->nodes.nodes);
    for (int i = 0; i < s->nodes.nodes; i++)
        put(to, "%s%d", i ? "," : "", s->nodes.begin[i + 1] - s->nodes.begin[i]);
    put(to, " cores %d\n", s->cores);
}

static void put_machine(struct text *to, const struct model_machine *m)
{
    static const char *const links[] = {"inter", "intra"}, *const works[] = {"count", "encode", "add", "decode"};
    for (int i = 0; i < POLICY_LINKS; i++) {
        put(to, "link %s alpha", links[i]);
        put_number(to, m->link[i].alpha);
        put(to, " beta");
        put_number(to, m->link[i].beta);
        if (i == POLICY_INTER) {
            put(to, " node_beta");
            put_number(to, m->node_beta);
        }
        put(to, "\n");
    }
    put(to, "agree");
    put_number(to, m->agree);
    put(to, " ranks %d\n", m->agree_ranks);
    for (int f = 0; f < MODEL_FORMATS; f++)
        for (int w = f == PICI_DENSE ? MODEL_COUNT : MODEL_ENCODE; w < MODEL_WORKS; w++) {
            const struct model_codec *c = &m->codec[f][w];
            put(to, "codec f32 %s %s", pici_format_name((enum pici_format)f), works[w]);
            put_number(to, c->empty);
            for (int i = 0; i < MODEL_POINTS; i++)
                put_number(to, c->more[i]);
            put(to, "\n");
        }
}

static void put_point(struct text *to, const struct tune *t, const struct tune_point *p)
{
    const struct schedule *schedule = pici_schedule(p->candidate.algorithm);
    const char *kind = pici_model_name(p->collective), *dtype = pici_dtype_name(p->dtype);
    const struct tune_shape *s = p->shape >= 0 && p->shape < t->shape_count ? &t->shapes[p->shape] : NULL;
    put(to, "point %s %s %" PRIu64, kind ? kind : "?", dtype ? dtype : "?", p->bytes);
    put_number(to, p->density);
    if (p->candidate.vendor)
        put(to, " vendor%s%s", p->vendor[0] ? ":" : "", p->vendor);
    else
        put(to, " %s", schedule ? schedule->name : "?");
    put(to, " %s", p->candidate.dense ? "dense" : "sparse");
    put_number(to, p->seconds);
    put_number(to, p->spread);
    put(to, " ranks %d nodes %d\n", s ? s->ranks : 0, s ? s->nodes.nodes : 0);
}

enum pici_status pici_tune_write(struct tune *t, uint8_t **out, size_t *len, char *why)
{
    struct text to = {.at = malloc(4096), .room = 4096};
    struct tune again;
    *out = NULL;
    *len = 0;
    put(&to, "pici-tune %d\n", TUNE_VERSION);
    put_made(&to, t);
    for (int i = 0; i < t->shape_count; i++)
        put_shape(&to, &t->shapes[i]);
    put_machine(&to, &t->machine);
    put(&to, "assume density");
    put_number(&to, t->density);
    put(&to, " correlation");
    put_number(&to, t->correlation);
    put(&to, "\n");
    for (size_t i = 0; i < t->point_count; i++)
        put_point(&to, t, &t->points[i]);
    if (!to.at) {
        snprintf(why, TUNE_WHY, "no memory");
        return PICI_E_NOMEM;
    }
    t->hash = pici_xxh64(to.at, to.len, 0);
    put(&to, "end %016" PRIx64 "\n", t->hash);
    if (!to.at) {
        snprintf(why, TUNE_WHY, "no memory");
        return PICI_E_NOMEM;
    }
    /* The reader has all rules. */
    enum pici_status s = pici_tune_read(&again, to.at, to.len, why);
    if (!s) {
        pici_tune_free(&again);
        *out = (uint8_t *)to.at;
        *len = to.len;
        return PICI_OK;
    }
    free(to.at);
    return s == PICI_E_NOMEM ? s : PICI_E_ARG;
}
