/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Between the parts of the emulated CUDA runtime: cuda_streams.cc has errors, devices, streams and events,
 * cuda_memory.cc has memory and copies. All but die() needs a struct call that is alive. */
#ifndef PICI_TESTS_EMU_CUDA_STATE_H
#define PICI_TESTS_EMU_CUDA_STATE_H

#include "cuda_runtime.h"

namespace emu {

/* While one lives, other threads wait. The outermost one first runs a few operations, and ends by shutting memory. */
class call {
  public:
    call();
    ~call();
    call(const call &) = delete;
};

/* Operations are queued; this thread is running one. */
bool deferred();
bool executing();

/* A failure that stays, with words for cudaGetErrorString, unless there was one before. Returns the one that stays. */
__attribute__((format(printf, 2, 3))) cudaError_t fault(cudaError_t, const char *format, ...);
/* The failure that stays: calls return it. None while nothing is deferred: then it waits to be asked for. */
cudaError_t sticky();
/* A call that did nothing: its error is this thread's last. */
cudaError_t refuse(cudaError_t);
[[noreturn]] __attribute__((format(printf, 1, 2))) void die(const char *format, ...);

struct operation {
    const char *what;
    std::function<bool()> run;
};

/* Put in a stream, or run at once. */
cudaError_t queue(cudaStream_t, const operation &);
/* Wait for a device, or a stream. False if that would take for ever; blocked() says by what. */
bool finish_device(int device);
bool finish_stream(cudaStream_t);
bool is_idle(cudaStream_t);
const char *blocked();

int current_device();

/* ---- cuda_memory.cc ---- */

/* When the outermost call ends, device memory is shut. What an operation then touches is opened until the next end;
 * whoever else touches it is told so, and faults. */
void watch_memory();
void shut_memory();

} // namespace emu

#endif
