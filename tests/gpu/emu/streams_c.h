/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Host code in C over the emulated CUDA runtime. */
#ifndef PICI_TESTS_EMU_STREAMS_C_H
#define PICI_TESTS_EMU_STREAMS_C_H

#ifdef __cplusplus
extern "C" {
#endif

/* What there_and_back leaves out. */
enum { WAIT = 1, RECORD_LAST = 2, SYNCHRONIZE = 4, KEEP_SOURCE = 8, ALL_OF_IT = 15 };

/* Copy n words to the device in one stream, and back in another that waits for an event. Returns whether they are
 * right, or -1. */
int there_and_back(unsigned n, int what);

#ifdef __cplusplus
}
#endif

#endif
