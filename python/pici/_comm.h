/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PICI_PYTHON_COMM_H
#define PICI_PYTHON_COMM_H

#include "_objects.h"

/* (driver, rank, ranks), of a communicator that the driver frees. On NULL an exception is set, and it is freed. */
PyObject *pici_py_driver(struct pici_comm *);

#endif
