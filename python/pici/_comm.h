/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PICI_PYTHON_COMM_H
#define PICI_PYTHON_COMM_H

#include "_objects.h"

/* (driver, rank, ranks), of a communicator that the driver frees. On NULL an exception is set, and it is freed. */
PyObject *pici_py_driver(struct pici_comm *);

/* Begin to use the communicator of a driver, whose number no other has: 0, or what functions for comm.py return if it
 * is in use or closed; -1: it is no driver, and an exception is set. And end that. */
int pici_py_driver_enter(PyObject *capsule, struct pici_comm **, uint64_t *number);
void pici_py_driver_leave(PyObject *capsule);

#endif
