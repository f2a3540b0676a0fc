# SPDX-License-Identifier: BSD-3-Clause
# CUDA: kernels, lib/cuda/*.cu, with lib/coll/engine_cuda.c a library of their own, through nvcc. tests/gpu/cuda_*.cu
# are a program each, here and over the emulator (mk/emulator.mk).

NVCC = nvcc
NVCCFLAGS =
CUDA_ARCHS = 80 90 100
# The tests and benchmarks may be built for fewer.
CUDA_TEST_ARCHS = $(CUDA_ARCHS)
# Code that later kinds of GPUs compile when they load it, of the last kind; it takes more room than that for one kind.
CUDA_PTX = 1
CUDADIR = $(BUILD)/cuda
CUDA_A = $(CUDADIR)/libpici_cuda.a
CUDA_SRC := $(sort $(wildcard lib/cuda/*.cu))
CUDA_OBJ = $(CUDA_SRC:%.cu=$(CUDADIR)/obj/%.o) $(CUDADIR)/obj/lib/coll/engine_cuda.o
CUDA_HOME = $(abspath $(dir $(shell command -v $(lastword $(NVCC))))..)
CUDA_TESTS := $(patsubst tests/gpu/cuda_%.cu,$(CUDADIR)/cuda_%,$(sort $(wildcard tests/gpu/cuda_*.cu)))
nvcc_for = -std=c++17 -O3 -g -Iinclude $(foreach a,$1,-gencode arch=compute_$(a),code=sm_$(a)) \
	$(foreach a,$(if $(CUDA_PTX),$(lastword $1)),-gencode arch=compute_$(a),code=compute_$(a)) \
	-Xcompiler -Wall,-Wextra,-fPIC,-fvisibility=hidden $(if $(WERROR),-Werror all-warnings)
NVCC_FLAGS = -Ilib -I. -MMD -MP $(NVCCFLAGS)

.PHONY: cuda cuda-shared cuda-tests check-cuda gpu-kit gpu-rehearsal
cuda: $(CUDA_A)
cuda-tests: $(CUDA_TESTS) $(CUDADIR)/example

$(CUDADIR)/obj/flags: FORCE
	$(call stamp,$(NVCC) $(call nvcc_for,$(CUDA_ARCHS)) $(NVCC_FLAGS) $(CUDA_TEST_ARCHS))

$(CUDADIR)/obj/%.o: %.cu $(CUDADIR)/obj/flags
	$(call compile,NVCC,$(NVCC) $(if $(filter lib/%,$<),$(call nvcc_for,$(CUDA_ARCHS)) $(NVCC_FLAGS) -DPICI_BUILD,\
		$(call nvcc_for,$(CUDA_TEST_ARCHS)) $(NVCC_FLAGS)))

$(CUDADIR)/obj/%.o: %.c $(FLAGS_STAMP)
	$(call compile,CC,$(COMPILE) $(own_flags) -isystem $(CUDA_HOME)/include)

$(CUDA_A): $(CUDA_OBJ)
	$(archive)

# For programs that load it while they run, as the Python package does. The engine for collectives is in
# libpici_nccl.so.
cuda-shared: $(CUDADIR)/libpici_cuda.so
$(CUDADIR)/libpici_cuda.so: $(filter-out %/engine_cuda.o,$(CUDA_OBJ)) $(SO)
	$(call link,$(LINK) $(call SHARED,libpici_cuda.so),-L$(CUDA_HOME)/lib64 -lcudart -lstdc++)

# The example of docs/how-to/cuda-kernel.md.
$(CUDADIR)/example.cu: docs/how-to/cuda-kernel.md
	@mkdir -p $(@D)
	$(Q)awk '/^```cuda$$/ { on = 1; next } /^```$$/ { on = 0 } on' $< >$@

$(CUDADIR)/example: $(CUDADIR)/example.cu $(CUDA_A) $(A)
	$(call link,$(NVCC) $(call nvcc_for,$(CUDA_ARCHS)) $(NVCCFLAGS) $<,$(LIBS))

$(CUDA_TESTS): $(CUDADIR)/%: $(CUDADIR)/obj/tests/gpu/%.o $(BUILD)/obj/testing.a $(CUDA_A) $(A)
	$(call link,$(NVCC),$(LIBS) -lm)

# On a GPU if there is one, and else over the emulator.
check-cuda:
	@MAKE='$(MAKE)' BUILD='$(BUILD)' CC='$(CC)' NVCC='$(NVCC)' CUDADIR='$(CUDADIR)' tests/gpu/run

# A folder with all that check-cuda runs on a GPU, for a machine with a GPU and without the rest of this tree. It is
# made where nvcc is, for one kind of GPU, without zstd and MPI.
GPU_ARCH = 90
GPU_KIT = $(BUILD)/gpu-kit
gpu-kit:
	@MAKE='$(MAKE)' BUILD='$(GPU_KIT)/build' CC='$(CC)' NVCC='$(NVCC)' tests/gpu/run kit $(GPU_KIT)/pici-gpu $(GPU_ARCH)

gpu-rehearsal:
	@MAKE='$(MAKE)' BUILD='$(BUILD)' TORCH_PYTHON='$(TORCH_PYTHON)' tests/gpu/rehearsal $(BUILD)/gpu-rehearsal
##
## CUDA and NCCL:
##   make cuda            $(CUDADIR)/libpici_cuda.a through NVCC=nvcc for CUDA_ARCHS='80 90 100'; CUDADIR=$(BUILD)/cuda;
##                        cuda-shared: .so, without collectives
##   make check-cuda      its tests and compute-sanitizer on a GPU, and a short benchmark; without one, the emulator's
##   make gpu-kit         $(GPU_KIT)/pici-gpu.tar.xz, whose ./run tests and measures where a GPU is; GPU_ARCH=90
##   make gpu-rehearsal   that ./run over the emulator: all parts, and limits that are hit (minutes; TORCH_PYTHON=)
