/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The functions of the extension module _codec for collectives. */
#ifndef PICI_PYTHON_COMM_H
#define PICI_PYTHON_COMM_H

#include "_objects.h"

/* Take the address of each function of pici/coll.h, address_of(name). On false an exception is set. */
bool pici_py_comm_bind(PyObject *address_of);

extern PyMethodDef pici_py_comm_functions[];

#endif
