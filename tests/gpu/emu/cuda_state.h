/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The interface between the parts of the emulated CUDA runtime: cuda_streams.cc has errors, devices, streams and
 * events; cuda_memory.cc has memory and copies. All functions but die() need an object of class call. */
#ifndef PICI_TESTS_EMU_CUDA_STATE_H
#define PICI_TESTS_EMU_CUDA_STATE_H

#include "cuda_runtime_api.h"

namespace emu {

/* While one exists, other threads wait. The outermost one first runs some operations, and at its end makes device
 * memory inaccessible. */
class call {
  public:
    call();
    ~call();
    call(const call &) = delete;
};

/* deferred: operations are queued. executing: this thread is running one. */
bool deferred();
bool executing();

/* Record a persistent failure and its description for cudaGetErrorString, unless there already is one. Returns the
 * persistent one. */
__attribute__((format(printf, 2, 3))) cudaError_t fault(cudaError_t, const char *format, ...);
/* The persistent failure, which calls return. cudaSuccess while operations are not deferred: then only
 * cudaGetLastError returns it. */
cudaError_t sticky();
/* The call did nothing: set this thread's last error. */
cudaError_t refuse(cudaError_t);
[[noreturn]] __attribute__((format(printf, 1, 2))) void die(const char *format, ...);

/* Would this call end a capture in another thread? Then that is recorded as a failure. */
bool ends_capture(const char *call);

struct operation {
    const char *what;
    std::function<bool()> run;
};

/* Put an operation into a stream, or run it if operations are not deferred. */
cudaError_t queue(cudaStream_t, const operation &);
/* Wait for a device. False if it is blocked for ever; blocked() tells by what. */
bool finish_device(int device);
bool is_idle(cudaStream_t);
const char *blocked();

int current_device();

/* ---- cuda_graphs.cc ---- */

/* Is this stream captured? */
bool captures(cudaStream_t);
/* Keep an operation for the graph of a stream that is; or end the capture, if that would take other streams in. */
cudaError_t capture(cudaStream_t, const operation &, bool forks);
/* End the capture of this stream; with null all that a thread that is not relaxed may end. Was there one? */
bool breaks_capture(cudaStream_t);

/* ---- cuda_memory.cc ---- */

/* Make device memory inaccessible when the outermost call ends. Memory that an operation accesses becomes accessible
 * until the next such end; any other access is reported and faults. */
void watch_memory();
void shut_memory();

} // namespace emu

#endif
