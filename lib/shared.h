/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Marks the declaration of a function of libpici that libpici_coll calls too. libpici.so exports it under PICI_PRIVATE
 * (pici.map), for a libpici_coll.so of the same version: it is not part of the ABI. */
#ifndef PICI_LIB_SHARED_H
#define PICI_LIB_SHARED_H

#ifdef __GNUC__
#define PICI_SHARED __attribute__((visibility("default")))
#else
#define PICI_SHARED
#endif

#endif
