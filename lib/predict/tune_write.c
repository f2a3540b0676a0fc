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

/* Text that grows. After a failed allocation, bytes is NULL and nothing is added. */
struct text {
    char *bytes;
    size_t size, capacity;
};

static void put_bytes(struct text *text, const char *bytes, size_t count)
{
    if (!text->bytes)
        return;
    if (text->capacity - text->size < count) {
        const size_t capacity = (text->capacity + count) * 2;
        char *more = realloc(text->bytes, capacity);
        if (!more)
            free(text->bytes);
        text->bytes = more;
        text->capacity = capacity;
        if (!more)
            return;
    }
    memcpy(text->bytes + text->size, bytes, count);
    text->size += count;
}

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void
put(struct text *text, const char *format, ...)
{
    char some[512];
    va_list arguments;
    va_start(arguments, format);
    const int printed = vsnprintf(some, sizeof some, format, arguments);
    va_end(arguments);
    put_bytes(text, some, printed < (int)sizeof some ? (size_t)printed : sizeof some - 1);
}

static void put_number(struct text *text, double value)
{
    char number[NUMBER_TEXT];
    pici_number_print(number, value < 0 ? -value : value);
    put(text, " %s%s", value < 0 ? "-" : "", number);
}

static void put_made(struct text *target, const struct tune *tune)
{
    const char *const text[] = {tune->pici, tune->transport, tune->library, tune->cpu};
    static const char *const key[] = {"pici", "transport", "library", "cpu"};
    if (!tune->date[0])
        return;
    put(target, "made %s", tune->date);
    for (int i = 0; i < 4; i++)
        if (text[i][0])
            put(target, " %s \"%s\"", key[i], text[i]);
    put(target, "\n");
}

static void put_shape(struct text *target, const struct tune_shape *shape)
{
    put(target, "shape ranks %d nodes %d map ", shape->ranks, shape->nodes.nodes);
    for (int i = 0; i < shape->nodes.nodes; i++)
        put(target, "%s%d", i ? "," : "", shape->nodes.begin[i + 1] - shape->nodes.begin[i]);
    put(target, " cores %d\n", shape->cores);
}

static void put_machine(struct text *target, const struct model_machine *machine)
{
    static const char *const links[] = {"inter", "intra"}, *const works[] = {"count", "encode", "add", "decode"};
    for (int i = 0; i < POLICY_LINKS; i++) {
        put(target, "link %s alpha", links[i]);
        put_number(target, machine->link[i].alpha);
        put(target, " beta");
        put_number(target, machine->link[i].beta);
        if (i == POLICY_INTER) {
            put(target, " node_beta");
            put_number(target, machine->node_beta);
        }
        put(target, "\n");
    }
    put(target, "agree");
    put_number(target, machine->agree);
    put(target, " ranks %d\n", machine->agree_ranks);
    const int formats = machine->packed_measured ? MODEL_FORMATS : PICI_PACKED; /* packed is the last */
    for (int format = 0; format < formats; format++)
        for (int work = format == PICI_DENSE ? MODEL_COUNT : MODEL_ENCODE; work < MODEL_WORKS; work++) {
            const struct model_codec *codec = &machine->codec[format][work];
            put(target, "codec f32 %s %s", pici_format_name((enum pici_format)format), works[work]);
            put_number(target, codec->empty);
            for (int i = 0; i < MODEL_POINTS; i++)
                put_number(target, codec->more[i]);
            put(target, "\n");
        }
}

static void put_thresholds(struct text *target, const struct tune_thresholds *thresholds)
{
    if (!thresholds->said)
        return;
    put(target, "threshold");
    for (int i = 0; i < TUNE_THRESHOLDS; i++)
        if (thresholds->said >> i & 1) {
            put(target, " %s", pici_tune_threshold_names[i]);
            put_number(target, (double)thresholds->at[i]);
        }
    put(target, "\n");
}

static void put_point(struct text *target, const struct tune *tune, const struct tune_point *point)
{
    const struct schedule *schedule = pici_schedule(point->candidate.algorithm);
    const char *kind = pici_model_name(point->collective);
    const char *dtype = pici_dtype_name(point->dtype);
    const struct tune_shape *shape =
        point->shape >= 0 && point->shape < tune->shape_count ? &tune->shapes[point->shape] : NULL;
    put(target, "point %s", kind ? kind : "?");
    put(target, " %s %" PRIu64, dtype ? dtype : "?", point->bytes);
    put_number(target, point->density);
    if (point->candidate.native)
        put(target, " native%s%s", point->native[0] ? ":" : "", point->native);
    else
        put(target, " %s", schedule ? schedule->name : "?");
    put(target, " %s", point->candidate.dense ? "dense" : "sparse");
    put_number(target, point->seconds);
    put_number(target, point->spread);
    if (shape)
        put(target, " ranks %d nodes %d\n", shape->ranks, shape->nodes.nodes);
    else
        put(target, " ranks 0 nodes 0\n");
}

enum pici_status pici_tune_write(struct tune *tune, uint8_t **output, size_t *size, char *reason)
{
    struct text target = {.bytes = malloc(4096), .capacity = 4096};
    struct tune again;
    *output = NULL;
    *size = 0;
    put(&target, "pici-tune %d\n", TUNE_VERSION);
    put_made(&target, tune);
    for (int i = 0; i < tune->shape_count; i++)
        put_shape(&target, &tune->shapes[i]);
    put_machine(&target, &tune->machine);
    put_thresholds(&target, &tune->thresholds);
    put(&target, "assume density");
    put_number(&target, tune->density);
    put(&target, " correlation");
    put_number(&target, tune->correlation);
    put(&target, "\n");
    for (size_t i = 0; i < tune->point_count; i++)
        put_point(&target, tune, &tune->points[i]);
    if (!target.bytes) {
        snprintf(reason, TUNE_WHY, "no memory");
        return PICI_E_NOMEM;
    }
    tune->hash = pici_xxh64(target.bytes, target.size, 0);
    put(&target, "end %016" PRIx64 "\n", tune->hash);
    if (!target.bytes) {
        snprintf(reason, TUNE_WHY, "no memory");
        return PICI_E_NOMEM;
    }
    /* The reader checks all rules. */
    enum pici_status status = pici_tune_read(&again, target.bytes, target.size, reason);
    if (!status) {
        pici_tune_free(&again);
        *output = (uint8_t *)target.bytes;
        *size = target.size;
        return PICI_OK;
    }
    free(target.bytes);
    return status == PICI_E_NOMEM ? status : PICI_E_ARG;
}
