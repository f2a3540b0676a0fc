/* SPDX-License-Identifier: BSD-3-Clause */
#include "_library.h"

#include <dlfcn.h>

#include "_functions.h"

struct library lib;

static PyObject *cannot_load(const char *what, const char *why)
{
    return PyErr_Format(PyExc_ImportError,
                        "pici: cannot load %s: %s. pip install brings one; PICI_LIBRARY=path/to/libpici.so names "
                        "another",
                        what, why);
}

/* The address of a function, stored to *function, a pointer to a function. */
static bool take(void *library, const char *name, void *function)
{
    (void)dlerror();
    void *address = dlsym(library, name);
    memcpy(function, &address, sizeof address);
    return address != NULL;
}

/* The first two numbers of the headers' version: the ABI's version. */
static void abi_of_headers(char *abi, size_t cap)
{
    int major, minor;
    (void)sscanf(PICI_VERSION, "%d.%d", &major, &minor);
    (void)snprintf(abi, cap, "%d.%d", major, minor);
}

/* load(path, collectives) -> the version of libpici. path: of libpici, as for dlopen(3); collectives: of libpici_coll,
 * which uses the loaded libpici. ImportError: one of them is missing or lacks a function, or libpici has another
 * version. libpici_coll does not report its version: another version is rejected only if it lacks a function, or calls
 * a function that libpici lacks. */
static PyObject *load(PyObject *self, PyObject *args)
{
    (void)self;
    const char *path, *collectives;
    __typeof__(&pici_version) version;
    struct library found;
    if (!PyArg_ParseTuple(args, "yy", &path, &collectives))
        return NULL;
    void *library = dlopen(path, RTLD_NOW);
    if (!library || !take(library, "pici_version", &version))
        return cannot_load("libpici", dlerror());
    char abi[32];
    abi_of_headers(abi, sizeof abi);
    const size_t n = strlen(abi);
    if (strncmp(version(), abi, n) != 0 || (version()[n] != '.' && version()[n]))
        return PyErr_Format(PyExc_ImportError, "pici: %s is version %s; this package is for %s", path, version(), abi);
#define TAKE(name) take(library, "pici_" #name, &found.name) &&
    if (!(PICI_FUNCTIONS(TAKE) true))
        return cannot_load("libpici", dlerror());
    library = dlopen(collectives, RTLD_NOW);
    if (!library || !(PICI_COLL_FUNCTIONS(TAKE) true))
        return cannot_load("libpici_coll", dlerror());
#undef TAKE
    lib = found;
    return PyUnicode_FromString(version());
}

PyMethodDef pici_py_library_functions[] = {
    {"load", load, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
