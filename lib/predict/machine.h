/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Machines known by name, for predictions without a measurement. */
#ifndef PICI_LIB_PREDICT_MACHINE_H
#define PICI_LIB_PREDICT_MACHINE_H

#include "predict/model.h"

struct machine {
    const char *name;
    const char *what;     /* one line */
    const char *source;   /* where the numbers come from: sentences */
    int per_node;         /* ranks of a node by default */
    uint64_t slice_bytes; /* that suits it: larger than the default where messages take long to begin */
    struct model_machine model;
};

/* The machine of the constants in policy.c: Gigabit Ethernet between nodes, a core for each rank. */
extern const struct model_machine pici_model_machine;

/* The i-th machine; NULL after the last. */
const struct machine *pici_machine(int i);

/* NULL: there is none of this name. */
const struct machine *pici_machine_named(const char *name);

#endif
