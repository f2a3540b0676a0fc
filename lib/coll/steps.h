/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The steps path: the messages of a schedule. */
#ifndef PICI_LIB_COLL_STEPS_H
#define PICI_LIB_COLL_STEPS_H

#include "coll/request.h"

extern const struct coll_path pici_path_steps;

#endif
