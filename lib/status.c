/* SPDX-License-Identifier: BSD-3-Clause */
#include "format.h"
#include "pici/containers.h"

const char *pici_strerror(enum pici_status s)
{
    switch (s) {
    case PICI_OK: return "success";
    case PICI_E_ARG: return "invalid argument";
    case PICI_E_SPACE: return "output buffer too small";
    case PICI_E_UNSUPPORTED: return "not supported by this build or version";
    case PICI_E_CORRUPT: return "corrupt data: a rule of the format is broken";
    case PICI_E_VERSION: return "unsupported format version: update pici";
    case PICI_E_CHECKSUM: return "checksum mismatch: the data are damaged";
    case PICI_E_NOMEM: return "out of memory";
    case PICI_E_IO: return "I/O error";
    case PICI_E_PEER: return "another rank failed";
    case PICI_E_TRANSPORT: return "transport error";
    case PICI_E_TIMEOUT: return "timed out";
    case PICI_E_DEVICE: return "GPU error";
    case PICI_E_BROKEN: return "communicator unusable after an earlier error: create a new one";
    case PICI_E_SYNC: return "written, but not synced: a power failure may undo it";
    }
    return "unknown status";
}

const char *pici_version(void)
{
    return PICI_VERSION;
}

size_t pici_dtype_width(enum pici_dtype t)
{
    int w = fmt_width_log2((unsigned)t);
    return w < 0 ? 0 : (size_t)1 << w;
}

const char *pici_dtype_name(enum pici_dtype t)
{
    static const char names[][8] = {"f32", "f64", "f16", "bf16", "f8e4m3", "f8e5m2", "i8",
                                    "u8",  "i16", "u16", "i32",  "u32",    "i64",    "u64"};
    return pici_dtype_width(t) ? names[(int)t - DTYPE_FIRST] : NULL;
}

const char *pici_format_name(enum pici_format f)
{
    static const char names[][8] = {"dense", "bitmap", "coo", "hybrid", "packed"};
    if (f == PICI_AUTO)
        return "auto";
    return (unsigned)f <= PICI_PACKED ? names[f] : NULL;
}

const char *pici_container_name(enum pici_container c)
{
#define WORD(name, word, payload, descriptor) word,
    static const char *const words[] = {PICI_CONTAINER_ROWS(WORD)};
#undef WORD
    return (unsigned)c < PICI_CONTAINERS ? words[c] : NULL;
}
