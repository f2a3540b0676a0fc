/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A filter of HDF5 whose chunks are blocks, as a plugin that libhdf5 loads by HDF5_PLUGIN_PATH. It is not linked with
 * libhdf5, since a process may have two (h5py's wheel brings its own). It calls the functions of the library that loads
 * it. Reading a chunk needs none of them. */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <H5PLextern.h>
#include <stdlib.h>

#include "plugins/hdf5/chunk.h"

/* Numbers from 256 to 511 are for testing: https://github.com/HDFGroup/hdf5_plugins. */
enum { FILTER_ID = 318 };

/* A dataset's parameters, which its file has. The first is the caller's, the others are set when it is created. */
enum {
    PARAM_PACK,   /* enum pici_pack; without it, PICI_PACK_PLANES */
    PARAM_LAYOUT, /* LAYOUT or LAYOUT_EXACT */
    PARAM_DTYPE,  /* enum pici_dtype, and BIG_ENDIAN_BIT */
    PARAM_BYTES,  /* of a chunk */
    PARAMS
};
/* LAYOUT_EXACT: no filter before this one changes the number of bytes. */
enum { LAYOUT = 1, LAYOUT_EXACT = 2, BIG_ENDIAN_BIT = 256, DEPTH = 32 };

/* The most bytes to decode, with room for earlier filters that make a chunk longer, such as fletcher32. */
#define ROOM(bytes) (2 * (size_t)(bytes) + 65536)
/* The least limit if no parameter gives a chunk's length. */
#define LEAST_LIMIT ((size_t)1 << 30)
enum { RATIO = 1024 };

/* Functions of libhdf5. */
#define FUNCTIONS(X)                                                                                                   \
    X(H5Pget_filter_by_id2)                                                                                            \
    X(H5Pmodify_filter)                                                                                                \
    X(H5Pget_chunk)                                                                                                    \
    X(H5Pget_nfilters)                                                                                                 \
    X(H5Pget_filter2)                                                                                                  \
    X(H5Tget_class)                                                                                                    \
    X(H5Tget_size)                                                                                                     \
    X(H5Tget_order)                                                                                                    \
    X(H5Tget_super)                                                                                                    \
    X(H5Tget_fields)                                                                                                   \
    X(H5Tget_nmembers)                                                                                                 \
    X(H5Tget_member_type)                                                                                              \
    X(H5Tclose)                                                                                                        \
    X(H5Epush2)
#define MEMBER(f) __typeof__(f) *f;
static struct {
    FUNCTIONS(MEMBER)
    const hid_t *error_class, *pipeline, *cannot; /* identifiers for errors */
} lib;

static bool lib_is_there(void)
{
#define AND_THERE(f) &&lib.f
    return true FUNCTIONS(AND_THERE);
}

/* Find the functions of the library that called the plugin: `caller` is an address in it. */
static void lib_find(const void *caller)
{
    Dl_info at;
    void *handle = dladdr(caller, &at) ? dlopen(at.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (!handle) /* libhdf5 is linked into the program */
        handle = dlopen(NULL, RTLD_LAZY);
    if (!handle)
        return;
    void *found;
#define FIND(f)                                                                                                        \
    found = dlsym(handle, #f);                                                                                         \
    *(void **)&lib.f = found;
    FUNCTIONS(FIND)
    lib.error_class = dlsym(handle, "H5E_ERR_CLS_g");
    lib.pipeline = dlsym(handle, "H5E_PLINE_g");
    lib.cannot = dlsym(handle, "H5E_CANTFILTER_g");
    /* the handle stays open: the library is in use as long as the plugin is */
}

/* Put words on HDF5's stack of errors, which it prints. */
static void report(const char *words)
{
    if (lib.H5Epush2 && lib.error_class && lib.pipeline && lib.cannot)
        lib.H5Epush2(H5E_DEFAULT, "filter.c", "pici", 0, *lib.error_class, *lib.pipeline, *lib.cannot, "pici: %s",
                     words);
}

/* ---- storage of a type's elements */

static struct chunk_kind bytes_kind(size_t size)
{
    enum pici_dtype dtype = PICI_U8;
    if (size % 8 == 0)
        dtype = PICI_U64;
    else if (size % 4 == 0)
        dtype = PICI_U32;
    else if (size % 2 == 0)
        dtype = PICI_U16;
    return (struct chunk_kind){dtype, false};
}

static struct chunk_kind float_kind(hid_t type, size_t size)
{
    size_t sign, exponent, exponent_bits, mantissa, mantissa_bits;
    struct chunk_kind kind = bytes_kind(size);
    if (lib.H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) < 0)
        return kind;
    static const struct {
        size_t size, exponent_bits;
        enum pici_dtype dtype;
    } floats[] = {{4, 8, PICI_F32}, {8, 11, PICI_F64}, {2, 5, PICI_F16}, {2, 8, PICI_BF16}};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        if (size == floats[i].size && exponent_bits == floats[i].exponent_bits &&
            mantissa_bits + exponent_bits + 1 == 8 * size)
            kind.dtype = floats[i].dtype;
    kind.big_endian = lib.H5Tget_order(type) == H5T_ORDER_BE;
    return kind;
}

static struct chunk_kind kind_of(hid_t type, int depth);

/* A structure whose members all have the same kind, such as a complex number, has that kind; other structures are
 * bytes. */
static struct chunk_kind members_kind(hid_t type, size_t size, int depth)
{
    const int members = lib.H5Tget_nmembers(type);
    struct chunk_kind kind = bytes_kind(size), first = kind;
    size_t total = 0;
    for (int i = 0; i < members; i++) {
        const hid_t member = lib.H5Tget_member_type(type, (unsigned)i);
        if (member < 0)
            return kind;
        const struct chunk_kind found = kind_of(member, depth);
        total += lib.H5Tget_size(member);
        lib.H5Tclose(member);
        if (i == 0)
            first = found;
        if (found.dtype != first.dtype || found.big_endian != first.big_endian)
            return kind;
    }
    return members > 0 && total == size ? first : kind;
}

static struct chunk_kind kind_of(hid_t type, int depth)
{
    const size_t size = lib.H5Tget_size(type);
    const H5T_class_t class = lib.H5Tget_class(type);
    if (class == H5T_FLOAT)
        return float_kind(type, size);
    if (class == H5T_COMPOUND && depth)
        return members_kind(type, size, depth - 1);
    if ((class == H5T_ARRAY || class == H5T_ENUM) && depth) {
        const hid_t super = lib.H5Tget_super(type);
        if (super >= 0) {
            const struct chunk_kind kind = kind_of(super, depth - 1);
            lib.H5Tclose(super);
            return kind;
        }
    }
    struct chunk_kind kind = class == H5T_STRING ? bytes_kind(1) : bytes_kind(size);
    if ((class == H5T_INTEGER || class == H5T_BITFIELD) && size == pici_dtype_width(kind.dtype))
        kind.big_endian = lib.H5Tget_order(type) == H5T_ORDER_BE;
    return kind;
}

/* ---- the filter */

/* Whether the filter gets a chunk's bytes unchanged, or only shuffled. */
static bool is_exact(hid_t plist)
{
    const int filters = lib.H5Pget_nfilters(plist);
    for (int i = 0; i < filters; i++) {
        unsigned flags;
        size_t none = 0;
        const H5Z_filter_t id = lib.H5Pget_filter2(plist, (unsigned)i, &flags, &none, NULL, 0, NULL, NULL);
        if (id != H5Z_FILTER_SHUFFLE)
            return id == FILTER_ID;
    }
    return false;
}

/* Called when a dataset is created: completes the parameters. */
static herr_t set_local(hid_t plist, hid_t type, hid_t space)
{
    (void)space;
    unsigned flags, params[PARAMS] = {PICI_PACK_PLANES};
    size_t given = PARAMS;
    hsize_t chunk[H5S_MAX_RANK];
    if (!lib_is_there()) {
        report("the functions of the HDF5 library were not found");
        return -1;
    }
    if (lib.H5Pget_filter_by_id2(plist, FILTER_ID, &flags, &given, params, 0, NULL, NULL) < 0)
        return -1;
    if (given == 0)
        params[PARAM_PACK] = PICI_PACK_PLANES;
    if (params[PARAM_PACK] != PICI_PACK_NONE && params[PARAM_PACK] != PICI_PACK_PLANES &&
        params[PARAM_PACK] != PICI_PACK_FAST) {
        report("the parameter is 0 (floats as they are), 1 (packed; default) or 3 (packed fast)");
        return -1;
    }
    const struct chunk_kind kind = kind_of(type, DEPTH);
    const int rank = lib.H5Pget_chunk(plist, H5S_MAX_RANK, chunk);
    hsize_t bytes = lib.H5Tget_size(type);
    for (int i = 0; i < rank && bytes <= UINT32_MAX; i++) /* libhdf5 refuses larger ones */
        bytes *= chunk[i];
    if (rank < 0 || bytes > UINT32_MAX)
        return -1;
    params[PARAM_LAYOUT] = is_exact(plist) ? LAYOUT_EXACT : LAYOUT;
    params[PARAM_DTYPE] = (unsigned)kind.dtype | (kind.big_endian ? BIG_ENDIAN_BIT : 0);
    params[PARAM_BYTES] = (unsigned)bytes;
    return lib.H5Pmodify_filter(plist, FILTER_ID, flags, PARAMS, params);
}

/* Encode, or with H5Z_FLAG_REVERSE decode, a chunk in *buf. Returns its new number of bytes; 0 on failure. */
static size_t filter(unsigned flags, size_t count, const unsigned params[], size_t bytes, size_t *room, void **buf)
{
    const bool decode = flags & H5Z_FLAG_REVERSE, exact = count >= PARAMS && params[PARAM_LAYOUT] == LAYOUT_EXACT;
    const bool complete = exact || (count >= PARAMS && params[PARAM_LAYOUT] == LAYOUT);
    const struct chunk_kind kind = {complete ? (enum pici_dtype)(params[PARAM_DTYPE] & ~BIG_ENDIAN_BIT) : PICI_U8,
                                    complete && params[PARAM_DTYPE] & BIG_ENDIAN_BIT};
    const size_t by_ratio = bytes < SIZE_MAX / RATIO ? bytes * RATIO : SIZE_MAX;
    size_t limit = by_ratio > LEAST_LIMIT ? by_ratio : LEAST_LIMIT;
    if (complete)
        limit = exact ? params[PARAM_BYTES] : ROOM(params[PARAM_BYTES]);
    const char *words = NULL;
    void *made;
    size_t size;
    enum pici_status s;
    if (decode)
        s = chunk_decode(&made, &size, *buf, bytes, limit, kind.big_endian);
    else
        s = chunk_encode(&made, &size, *buf, bytes, kind,
                         count > PARAM_PACK ? (enum pici_pack)params[PARAM_PACK] : PICI_PACK_PLANES);
    if (s)
        words = s == PICI_E_SPACE ? "the block has more bytes than the chunk" : pici_strerror(s);
    else if (!size || (decode && exact && size < params[PARAM_BYTES])) /* libhdf5 would read past the end */
        words = "the block has fewer bytes than the chunk";
    if (words) {
        report(words);
        free(made);
        return 0;
    }
    free(*buf);
    *buf = made;
    *room = size;
    return size;
}

H5PL_type_t H5PLget_plugin_type(void)
{
    return H5PL_TYPE_FILTER;
}

const void *H5PLget_plugin_info(void)
{
    static const H5Z_class2_t class = {H5Z_CLASS_T_VERS,        FILTER_ID, 1,         1,
                                       "pici: lossless blocks", NULL,      set_local, filter};
    lib_find(__builtin_return_address(0));
    return &class;
}
