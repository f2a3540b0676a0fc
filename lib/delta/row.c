/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Rows of deltas. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "delta/apply.h"

enum pici_status pici_deltas_new(struct pici_deltas **deltas)
{
    if (!deltas)
        return PICI_E_ARG;
    *deltas = calloc(1, sizeof **deltas);
    return *deltas ? PICI_OK : PICI_E_NOMEM;
}

enum pici_status pici_deltas_add(struct pici_deltas *deltas, struct pici_reader *reader, const char *name, char *reason)
{
    char what[PICI_WHY_BYTES];
    bool is_delta = false;
    if (reason)
        reason[0] = 0;
    if (!deltas || !reader || !name)
        return PICI_E_ARG;
    struct step *const steps = realloc(deltas->steps, (deltas->count + 1) * sizeof *steps);
    if (steps)
        deltas->steps = steps;
    struct trail_step *const trail = realloc(deltas->trail, (deltas->count + 1) * sizeof *trail);
    if (trail)
        deltas->trail = trail;
    char *const copy = strdup(name);
    if (!steps || !trail || !copy) {
        free(copy);
        return pici_why(reason, PICI_E_NOMEM, name, "out of memory for the list of deltas");
    }
    struct step *const step = &deltas->steps[deltas->count++];
    *step = (struct step){.reader = reader, .name = copy};
    enum pici_status status = pici_delta_is(reader, &is_delta);
    if (!status && !is_delta)
        return pici_why(reason, PICI_E_CORRUPT, name, "not a delta");
    if (!status) {
        status = pici_delta_open(&step->delta, reader, what);
        if (status && what[0])
            return pici_why(reason, status, name, "%s", what);
    }
    if (status)
        return pici_why(reason, status, name, "%s", pici_reader_error(reader));
    if (!step->delta.partial)
        deltas->layout = deltas->count;
    return PICI_OK;
}

void pici_deltas_free(struct pici_deltas *deltas)
{
    if (!deltas)
        return;
    for (size_t step = 0; step < deltas->count; step++) {
        pici_delta_pieces_free(&deltas->steps[step].pieces);
        pici_delta_close(&deltas->steps[step].delta);
        free(deltas->steps[step].name);
        free(deltas->steps[step].sorted);
    }
    free(deltas->steps);
    free(deltas->trail);
    free(deltas);
}
