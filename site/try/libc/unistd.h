/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TRY_UNISTD_H
#define TRY_UNISTD_H
#define _SC_NPROCESSORS_ONLN 0
long sysconf(int);
#endif
