/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The functions of the extension module _codec, by file. */
#ifndef PICI_PYTHON_FUNCTIONS_H
#define PICI_PYTHON_FUNCTIONS_H

#include "_python.h"

extern PyMethodDef pici_py_library_functions[];
extern PyMethodDef pici_py_constant_functions[];
extern PyMethodDef pici_py_handle_functions[];
extern PyMethodDef pici_py_reader_functions[];
extern PyMethodDef pici_py_writer_functions[];
extern PyMethodDef pici_py_state_functions[];
extern PyMethodDef pici_py_log_functions[];
extern PyMethodDef pici_py_selection_functions[];
extern PyMethodDef pici_py_option_functions[];
extern PyMethodDef pici_py_comm_functions[];
extern PyMethodDef pici_py_sparse_functions[];
extern PyMethodDef pici_py_neighbor_functions[];
extern PyMethodDef pici_py_connect_functions[];
extern PyMethodDef pici_py_capsule_functions[];
extern PyMethodDef pici_py_system_functions[];

/* Add the constants to the module. On false an exception is set. */
bool pici_py_add_constants(PyObject *module);

#endif
