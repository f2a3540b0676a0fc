/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Numbers and names of the library: constants of the headers, by their Python names. */
#include "_functions.h"
#include "_library.h"
#include "_plans.h"
#include "_objects.h"

/* algorithms() -> the names of enum pici_algorithm with their numbers. */
static PyObject *algorithms(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    PyObject *found = PyDict_New();
    const char *name;
    for (int i = 0; found && (name = lib.algorithm_name((enum pici_algorithm)i)) != NULL; i++) {
        PyObject *number = PyLong_FromLong(i);
        if (!number || PyDict_SetItemString(found, name, number)) {
            Py_DecRef(found);
            found = NULL;
        }
        Py_DecRef(number);
    }
    return found;
}

/* bound(format, dtype, count, small) -> bytes of the longest block, or of the longest small delta; 0: there is none. */
static PyObject *bound(PyObject *self, PyObject *args)
{
    (void)self;
    int format, dtype, small;
    uint64_t count;
    if (!PyArg_ParseTuple(args, "iiO&p", &format, &dtype, pici_py_u64, &count, &small))
        return NULL;
    return PyLong_FromSize_t(
        (small ? lib.diff_small_bound : lib.bound)((enum pici_format)format, (enum pici_dtype)dtype, count));
}

/* strerror(status) -> its message. */
static PyObject *words_of(PyObject *self, PyObject *status)
{
    (void)self;
    const long s = PyLong_AsLong(status);
    if (s == -1 && PyErr_Occurred())
        return NULL;
    return PyUnicode_FromString(lib.strerror((enum pici_status)s));
}

/* Numbers of the headers by their Python names, in dicts. */
static const struct {
    const char *dict, *word;
    int number;
} WORDS[] = {
    {"FORMATS", "dense", PICI_DENSE},
    {"FORMATS", "bitmap", PICI_BITMAP},
    {"FORMATS", "coo", PICI_COO},
    {"FORMATS", "hybrid", PICI_HYBRID},
    {"FORMATS", "packed", PICI_PACKED},
    {"FORMATS", "auto", PICI_AUTO},
    {"ZEROS", "exact", PICI_ZEROS_EXACT},
    {"ZEROS", "value", PICI_ZEROS_BY_VALUE},
    {"PACKINGS", "auto", PICI_PACKING_AUTO},
    {"PACKINGS", "none", PICI_PACKING_NONE},
    {"PACKINGS", "planes", PICI_PACKING_PLANES},
    {"BALANCES", "auto", PICI_BALANCE_AUTO},
    {"BALANCES", "on", PICI_BALANCE_ON},
    {"BALANCES", "off", PICI_BALANCE_OFF},
    {"PACK", "none", PICI_PACK_NONE},
    {"PACK", "planes", PICI_PACK_PLANES},
    {"PACK", "fast", PICI_PACK_FAST},
    {"SELECT", "bucket", PICI_SELECT_BUCKET},
    {"SELECT", "global", PICI_SELECT_GLOBAL},
    {"SELECT", "sampled", PICI_SELECT_SAMPLED},
    {"STREAM_FORMS", "sparse", PICI_STREAM_SPARSE},
    {"STREAM_FORMS", "dense", PICI_STREAM_DENSE},
    {"STREAM_FORMS", "shorter", PICI_STREAM_SHORTER},
    {"OPS", "sum", PICI_SUM},
    {"OPS", "avg", PICI_AVG},
    {"OPS", "min", PICI_MIN},
    {"OPS", "max", PICI_MAX},
    {"VALUE_CODECS", "exact", PICI_VALUES_EXACT},
    {"VALUE_CODECS", "cast", PICI_VALUES_CAST},
    {"VALUE_CODECS", "qsgd", PICI_VALUES_QSGD},
    {"VALUE_CODECS", "zfp", PICI_VALUES_ZFP},
    {"NORMS", "max", PICI_NORM_MAX},
    {"NORMS", "l2", PICI_NORM_L2},
    {"ROUNDINGS", "random", PICI_ROUND_RANDOM},
    {"ROUNDINGS", "nearest", PICI_ROUND_NEAREST},
};

static const struct {
    const char *name;
    int number;
} NUMBERS[] = {
    {"ALL_GATHER", PICI_ALL_GATHER},
    {"REDUCE_SCATTER", PICI_REDUCE_SCATTER},
    {"ALL_REDUCE", PICI_ALL_REDUCE},
    {"BROADCAST", PICI_BROADCAST},
    {"ALL_GATHERV", PICI_ALL_GATHERV},
    {"ALL_TO_ALLV", PICI_ALL_TO_ALLV},
    {"NEIGHBOR_ALL_GATHER", NEIGHBOR_ALL_GATHER},
    {"NEIGHBOR_ALL_GATHERV", NEIGHBOR_ALL_GATHERV},
    {"RANK_MAX", PICI_RANK_MAX},
    {"CHUNK_MAX", PICI_CHUNK_MAX},
    {"KEY_MAX", PICI_KEY_MAX},
    {"STATE_RAW", PICI_STATE_RAW},
    {"STATE_SAFETENSORS", PICI_STATE_SAFETENSORS},
    {"DELTA_AUTO", PICI_DELTA_AUTO},
    {"DELTA_SMALLEST", PICI_DELTA_SMALLEST},
    {"DELTA_FASTEST", PICI_DELTA_FASTEST},
};

/* Add a name to a dict of the module. Makes the dict if it is missing. */
static bool add_word(PyObject *module, const char *dict, const char *word, int number)
{
    PyObject *words = PyObject_HasAttrString(module, dict) ? PyObject_GetAttrString(module, dict) : PyDict_New();
    PyObject *value = PyLong_FromLong(number);
    const bool ok =
        words && value && !PyDict_SetItemString(words, word, value) && !PyObject_SetAttrString(module, dict, words);
    Py_DecRef(words);
    Py_DecRef(value);
    return ok;
}

bool pici_py_add_constants(PyObject *module)
{
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++)
        if (!add_word(module, WORDS[i].dict, WORDS[i].word, WORDS[i].number))
            return false;
    for (size_t i = 0; i < sizeof NUMBERS / sizeof *NUMBERS; i++)
        if (PyModule_AddIntConstant(module, NUMBERS[i].name, NUMBERS[i].number))
            return false;
    return true;
}

PyMethodDef pici_py_constant_functions[] = {
    {"algorithms", algorithms, METH_NOARGS, NULL},
    {"bound", bound, METH_VARARGS, NULL},
    {"strerror", words_of, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
