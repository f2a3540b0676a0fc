/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PICI_LIB_TRANSPORT_NCCL_HOST_H
#define PICI_LIB_TRANSPORT_NCCL_HOST_H

#include <stdint.h>

/* A hash that identifies this host, as in NCCL: of NCCL_HOSTID, or else of the host's name and boot id. */
uint64_t pici_nccl_host(void);

#endif
