/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The rules of the collectives in pici/coll.h. */
#ifndef PICI_LIB_COLL_ORDINARY_H
#define PICI_LIB_COLL_ORDINARY_H

#include "coll/rules.h"

/* Of a collective that there is. */
const struct call_rules *pici_ordinary_rules(enum pici_collective);

#endif
