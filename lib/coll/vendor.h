/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The vendor path: the transport library's own collective. */
#ifndef PICI_LIB_COLL_VENDOR_H
#define PICI_LIB_COLL_VENDOR_H

#include "coll/request.h"

extern const struct coll_path pici_path_vendor;

/* What this rank can do about the vendor's collective, as bits of enum call_can; and, after the ranks have agreed:
 * whether all can make it, and whether all want it if nothing else decides. */
uint32_t pici_vendor_can(const struct pici_request *);
int pici_vendor_allowed(const struct pici_request *);
int pici_vendor_asked(const struct pici_request *);

#endif
