/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The native path: the transport library's own collective. */
#ifndef PICI_LIB_COLL_NATIVE_H
#define PICI_LIB_COLL_NATIVE_H

#include "coll/request.h"

extern const struct coll_path pici_path_native;

/* This rank's abilities for the native collective, as bits of enum call_can. After the ranks have agreed: whether all
 * can make it, and whether all ask for it. */
uint32_t pici_native_can(const struct pici_request *);
int pici_native_allowed(const struct pici_request *);
int pici_native_asked(const struct pici_request *);

#endif
