/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PICI_PYTHON_COMM_H
#define PICI_PYTHON_COMM_H

#include "_objects.h"

/* (driver, rank, ranks) of a communicator, which the driver frees. On NULL an exception is set, and the communicator is
 * freed. */
PyObject *pici_py_driver(struct pici_comm *);

/* Begin to use the communicator of a driver, with its unique number: returns 0, or BUSY or CLOSED, which functions for
 * comm.py pass on. -1: it is not a driver, and an exception is set. And end that use. */
int pici_py_driver_enter(PyObject *capsule, struct pici_comm **, uint64_t *number);
void pici_py_driver_leave(PyObject *capsule);

#endif
