/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Plans of neighbourhood all-gathers as objects of Python: capsules. One may outlive its driver. */
#ifndef PICI_PYTHON_PLANS_H
#define PICI_PYTHON_PLANS_H

#include "_objects.h"

/* Calls on plans, in addition to enum pici_collective. */
enum { NEIGHBOR_ALL_GATHER = 64, NEIGHBOR_ALL_GATHERV };

/* A capsule of a plan with this number of sources, of the driver with this number. It frees the plan. On NULL an
 * exception is set, and the plan is freed. */
PyObject *pici_py_plan_new(struct pici_neighbor_plan *, uint64_t driver, size_t sources);

/* The plan in a capsule, and its number of sources. It must belong to the driver with this number. On NULL an exception
 * is set. */
struct pici_neighbor_plan *pici_py_plan(PyObject *capsule, uint64_t driver, size_t *sources);

#endif
