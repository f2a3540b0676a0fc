/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Tune files. The input is a file. If its first byte is '!', the rest is lines, and the fuzzer adds a first line and
 * a last line with the right hash. The reader must accept a file or return an error message. An accepted file must
 * be written and read again unchanged. The fuzzer also predicts calls by it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict/choose.h"
#include "formats/ref.h"
#include "fuzz/fuzz.h"

static uint8_t *make(const uint8_t *data, size_t len, size_t *out)
{
    static const char first[] = "pici-tune 1\n";
    const int sealed = len && data[0] == '!';
    const size_t n = sizeof first - 1;
    uint8_t *file = memory(len + 64);
    *out = len;
    if (!sealed) {
        if (len)
            memcpy(file, data, len);
        return file;
    }
    memcpy(file, first, n);
    memcpy(file + n, data + 1, len - 1);
    size_t at = n + len - 1;
    if (file[at - 1] != '\n')
        file[at++] = '\n';
    char end[32];
    snprintf(end, sizeof end, "end %016llx\n", (unsigned long long)ref_xxh64(file, at));
    memcpy(file + at, end, 21);
    *out = at + 21;
    return file;
}

static void same(const struct tune *a, const struct tune *b)
{
    require(memcmp(a->machine.link, b->machine.link, sizeof a->machine.link) == 0);
    require(memcmp(a->machine.codec, b->machine.codec, sizeof a->machine.codec) == 0);
    require(a->machine.node_beta == b->machine.node_beta && a->machine.agree == b->machine.agree);
    require(a->machine.agree_ranks == b->machine.agree_ranks && a->machine.cores == b->machine.cores);
    for (int i = 0; i < TUNE_THRESHOLDS; i++)
        require(pici_tune_threshold(a, (enum tune_threshold)i) == pici_tune_threshold(b, (enum tune_threshold)i));
    require(a->density == b->density && a->correlation == b->correlation);
    require(a->point_count == b->point_count && a->shape_count == b->shape_count);
    for (size_t i = 0; i < a->point_count; i++) {
        const struct tune_point *x = &a->points[i], *y = &b->points[i];
        require(pici_tune_order(x, y) == 0 && x->seconds == y->seconds && x->spread == y->spread);
        require(strcmp(x->native, y->native) == 0);
    }
}

/* Predict a call like a point, and one beside it. */
static void predict(struct tune *t, size_t i)
{
    const struct tune_point *p = &t->points[i];
    for (int beside = 0; beside < 2; beside++) {
        struct model_call call = pici_model_call;
        call.kind = p->collective;
        call.dtype = p->dtype;
        call.bytes = p->bytes * (beside ? 3 : 1);
        call.density = beside ? p->density / 2 : p->density;
        call.ranks = t->shapes[p->shape].ranks;
        call.nodes = &t->shapes[p->shape].nodes;
        call.threshold.gather = pici_tune_threshold(t, TUNE_GATHER);
        for (int link = 0; link < POLICY_LINKS; link++)
            call.threshold.reduce[link] = pici_tune_threshold(t, (enum tune_threshold)link);
        const double model = pici_model_seconds(&t->machine, &call, &p->candidate),
                     seconds = pici_tune_seconds(t, &call, &p->candidate);
        require(model < 0 ? seconds < 0 : seconds >= model / 4 * 0.999 && seconds <= model * 4 * 1.001);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    size_t bytes, again_bytes;
    uint8_t *file = make(data, len, &bytes), *written;
    struct tune t, again;
    char why[TUNE_WHY];
    const enum pici_status s = pici_tune_read(&t, file, bytes, why);
    require(s == PICI_OK || s == PICI_E_CORRUPT || s == PICI_E_VERSION);
    require(s == PICI_OK || (why[0] && !t.points && !t.shapes));
    free(file);
    if (s)
        return 0;
    const enum pici_status wrote = pici_tune_write(&t, &written, &again_bytes, why);
    if (wrote) { /* a file may be so long that the longer text of a writer exceeds the limit */
        require(strstr(why, "bytes") != NULL);
    } else {
        require(pici_tune_read(&again, written, again_bytes, why) == PICI_OK);
        require(again.hash == t.hash);
        same(&t, &again);
        pici_tune_free(&again);
        free(written);
    }
    for (size_t i = 0; i < t.point_count && i < 4; i++)
        predict(&t, i);
    pici_tune_free(&t);
    return 0;
}
