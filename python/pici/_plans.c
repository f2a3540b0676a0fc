/* SPDX-License-Identifier: BSD-3-Clause */
#include "_plans.h"

#include "_functions.h"

struct plan {
    struct pici_neighbor_plan *made;
    uint64_t driver; /* its number */
    size_t sources;
};

static const char PLAN[] = "pici.neighbors";

static void plan_free(PyObject *capsule)
{
    struct plan *plan = PyCapsule_GetPointer(capsule, PLAN);
    lib.neighbor_plan_free(plan->made);
    PyMem_Free(plan);
}

struct pici_neighbor_plan *pici_py_plan(PyObject *capsule, uint64_t driver, size_t *sources)
{
    const struct plan *plan = PyCapsule_GetPointer(capsule, PLAN);
    if (!plan)
        return NULL;
    if (plan->driver != driver) {
        PyErr_SetString(PyExc_ValueError, "the plan is of another communicator");
        return NULL;
    }
    *sources = plan->sources;
    return plan->made;
}

PyObject *pici_py_plan_new(struct pici_neighbor_plan *made, uint64_t driver, size_t sources)
{
    struct plan *plan = PyMem_Malloc(sizeof *plan);
    if (plan)
        *plan = (struct plan){made, driver, sources};
    PyObject *capsule = plan ? PyCapsule_New(plan, PLAN, plan_free) : PyErr_NoMemory();
    if (!capsule) {
        lib.neighbor_plan_free(made);
        PyMem_Free(plan);
    }
    return capsule;
}

/* neighbors_info(plan) -> (route, steps, edges, messages, inter_messages, most_messages, blocks, inter_blocks,
 * least_inter, widest, offloads, own_messages, own_blocks, hash, seconds, regions, region_messages, region_blocks). */
static PyObject *neighbors_info(PyObject *self, PyObject *capsule)
{
    (void)self;
    struct pici_neighbor_info info = PICI_NEIGHBOR_INFO_INIT;
    const struct plan *plan = PyCapsule_GetPointer(capsule, PLAN);
    if (!plan)
        return NULL;
    (void)lib.neighbor_plan_info(plan->made, &info); /* neither is null */
    typedef unsigned long long number;
    return Py_BuildValue("iiKKKKKKKKKKKKdKKK", (int)info.route, info.steps, (number)info.edges, (number)info.messages,
                         (number)info.inter_messages, (number)info.most_messages, (number)info.blocks,
                         (number)info.inter_blocks, (number)info.least_inter, (number)info.widest,
                         (number)info.offloads, (number)info.own_messages, (number)info.own_blocks, (number)info.hash,
                         info.seconds, (number)info.regions, (number)info.region_messages, (number)info.region_blocks);
}

PyMethodDef pici_py_neighbor_functions[] = {
    {"neighbors_info", neighbors_info, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
