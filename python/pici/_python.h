/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Python.h, limited to the stable ABI of Python 3.9. */
#ifndef PICI_PYTHON_PYTHON_H
#define PICI_PYTHON_PYTHON_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

#endif
