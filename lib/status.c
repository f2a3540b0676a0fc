/* SPDX-License-Identifier: BSD-3-Clause */
#include "format.h"
#include "pici/containers.h"

const char *pici_strerror(enum pici_status s)
{
    switch (s) {
    case PICI_OK: return "success";
    case PICI_E_ARG: return "invalid argument";
    case PICI_E_SPACE: return "output does not fit in its buffer";
    case PICI_E_UNSUPPORTED: return "not supported by this build or version";
    case PICI_E_CORRUPT: return "data breaks a rule of the format";
    case PICI_E_VERSION: return "unknown version of the format";
    case PICI_E_CHECKSUM: return "checksum does not match";
    case PICI_E_NOMEM: return "out of memory";
    case PICI_E_IO: return "input or output failed";
    case PICI_E_PEER: return "another rank failed";
    case PICI_E_TRANSPORT: return "the transport failed";
    case PICI_E_TIMEOUT: return "timed out";
    case PICI_E_DEVICE: return "the device failed";
    case PICI_E_BROKEN: return "communicator unusable after an earlier error";
    case PICI_E_SYNC: return "written, but perhaps not on the disk yet";
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
    static const char names[][8] = {"dense", "bitmap", "coo", "hybrid"};
    return f == PICI_AUTO ? "auto" : (unsigned)f <= PICI_HYBRID ? names[f] : NULL;
}

const char *pici_container_name(enum pici_container c)
{
#define WORD(name, word, payload, descriptor) word,
    static const char *const words[] = {PICI_CONTAINER_ROWS(WORD)};
#undef WORD
    return (unsigned)c < PICI_CONTAINERS ? words[c] : NULL;
}
