# SPDX-License-Identifier: BSD-3-Clause
# The GPU sources compiled as C++, over an emulator of thread blocks, the CUDA runtime and NCCL (tests/gpu/emu). Needs
# only a C++ compiler: tests/gpu/cuda_*.cu and emu_*.cc, $(BUILD)/emu_*.

EMU_DIR = $(BUILD)/obj/emu
EMU_SELF := self streams
EMU_ALONE := $(EMU_SELF) mutant mutant_lib mutant_packed mutant_small deferred
EMU_SRC := $(filter-out $(EMU_ALONE:%=tests/gpu/emu/%.cc),$(sort $(wildcard tests/gpu/emu/*.cc)))
EMU_OBJ := $(EMU_SRC:%.cc=$(EMU_DIR)/%.o)
EMU_LIB_OBJ := $(CUDA_SRC:%.cu=$(EMU_DIR)/%.o) $(patsubst %.c,$(EMU_DIR)/%.o,lib/coll/engine_cuda.c $(NCCL_SRC))
EMU_PARTS = $(EMU_LIB_OBJ) $(EMU_OBJ) $(BUILD)/obj/testing.a
EMU_TESTS := $(patsubst tests/gpu/cuda_%.cu,$(BUILD)/emu_%,$(sort $(wildcard tests/gpu/cuda_*.cu)))
EMU_ONLY := $(patsubst tests/gpu/%.cc,$(BUILD)/%,$(sort $(wildcard tests/gpu/emu_*.cc)))
EMU_FLAGS = -x c++ -std=c++17 -fPIC $(filter-out -Wstrict-prototypes -Wshadow,$(WARN)) -Wno-unknown-pragmas -pthread \
	$(SANITIZE_FLAGS) $(PATHS) $(CFLAGS) -Itests/gpu/emu -Iinclude -Ilib -I. -MMD -MP
emu_program = $(call link,$(CXX) $(LINK_FLAGS) $(MORE_FLAGS),$(LIBS) -lm)

# libpici_cuda over the emulator, for tests of the Python package: the host's memory stands for a GPU's.
EMU_SO = $(BUILD)/emu/libpici_cuda.so
EMU_SO_OBJ := $(filter-out %/fake_nccl.o,$(EMU_OBJ)) $(CUDA_SRC:%.cu=$(EMU_DIR)/%.o)
$(EMU_SO): $(EMU_SO_OBJ) $(SO)
	@mkdir -p $(@D)
	$(call link,$(CXX) $(LINK_FLAGS) $(call SHARED,libpici_cuda.so),-lm)

.PHONY: cuda-emu cuda-emu-shared print-cxx mpi-cuda-emu check-mutants
print-cxx:
	@echo '$(CXX)'

cuda-emu-shared: $(EMU_SO)
cuda-emu: $(EMU_SELF:%=$(BUILD)/emu_%) $(EMU_TESTS) $(EMU_ONLY) $(BUILD)/bench_cuda_emu

$(EMU_DIR)/%.o: %.cc $(FLAGS_STAMP)
	$(call compile,CXX,$(CXX) $(EMU_FLAGS))

$(EMU_DIR)/%.o: %.cu $(FLAGS_STAMP)
	$(call compile,CXX,$(CXX) $(EMU_FLAGS))

$(EMU_DIR)/%.o: %.c $(FLAGS_STAMP)
	$(call compile,CC,$(COMPILE) $(own_flags) -Itests/gpu/emu)

$(BUILD)/emu_streams: $(EMU_DIR)/tests/gpu/emu/streams_c.o
$(EMU_SELF:%=$(BUILD)/emu_%): $(BUILD)/emu_%: $(EMU_DIR)/tests/gpu/emu/%.o $(EMU_OBJ)
	$(emu_program)

$(EMU_TESTS): $(BUILD)/emu_%: $(EMU_DIR)/tests/gpu/cuda_%.o $(EMU_PARTS) $(A)
	$(emu_program)

$(EMU_ONLY): $(BUILD)/%: $(EMU_DIR)/tests/gpu/%.o $(EMU_PARTS) $(A)
	$(emu_program)

# The benchmark of the codec without what it is compared with: to see that it works, not how fast.
$(BUILD)/bench_cuda_emu: $(EMU_DIR)/bench/bench_cuda.o $(EMU_PARTS) $(A)
	$(emu_program)

# Collectives over MPI, on the emulator's memory: the MPI's compiler wrapper calls CXX.
MPI_CXX = OMPI_CC='$(CXX)' MPICH_CC='$(CXX)' $(MPICC)
mpi-cuda-emu: $(MPIDIR)/mpi_cuda

$(MPIDIR)/obj/%.o: %.cu $(MPIDIR)/obj/flags
	$(call compile,MPI,$(MPI_CXX) $(EMU_FLAGS) -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX)

$(MPIDIR)/mpi_cuda: $(MPIDIR)/obj/tests/mpi/cuda.o $(EMU_PARTS) $(MPI_A) $(A)
	$(call link,$(MPI_CXX) $(LINK_FLAGS),$(LIBS) -lm)

check-mutants: $(A) $(BUILD)/obj/testing.a $(UNIT_OBJ)
	@CC='$(CC)' CXX='$(CXX)' LIBS='$(LIBS)' tests/gpu/emu/mutants $(BUILD)
	@CC='$(CC)' tests/mutants $(BUILD)
##   make check-mutants   device functions, kernels and collectives damaged in one place each: tests catch them all
