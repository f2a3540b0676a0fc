/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Python objects that the library writes to and reads from. */
#ifndef PICI_PYTHON_SINKS_H
#define PICI_PYTHON_SINKS_H

#include "_handles.h"

/* The target of the library's writes. */
struct sink {
    pici_write_fn write;
    void *context;
    struct memory room; /* if it is an array, */
    size_t at;          /* with this number of bytes written */
    bool too_long;      /* and it was too short */
};

/* Set the target: the handle of an output file, or a Sink of _streams.py. On false an exception is set. */
bool pici_py_stream(struct sink *, PyObject *);

/* The same; or an array, from its beginning on. The sink must not move. */
bool pici_py_sink(struct sink *, PyObject *);

/* A pici_read_at_fn whose context is a Source of _streams.py. */
int pici_py_read_at(void *source, void *p, size_t n, uint64_t offset);

#endif
