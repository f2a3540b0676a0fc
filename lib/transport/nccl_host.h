/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PICI_LIB_TRANSPORT_NCCL_HOST_H
#define PICI_LIB_TRANSPORT_NCCL_HOST_H

#include <stdint.h>

/* A hash by which NCCL tells hosts apart: of NCCL_HOSTID, or else of the host's name and boot. */
uint64_t pici_nccl_host(void);

#endif
