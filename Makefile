# SPDX-License-Identifier: BSD-3-Clause
#
# make help lists the targets. Everything made lies under $(BUILD), so that builds with other flags live side by side:
#     make BUILD=build/clang CC=clang
#     make BUILD=build/asan SANITIZE=address,undefined check
#
# Files are found by their names: lib/*.c and lib/*/*.c are the library, tools/*.c and tools/*/*.c the tool,
# tests/unit/*.c one Criterion program, tests/plain/*.c and examples/*.c a program each, fuzz/fuzz_*.c a fuzzer each,
# tests/mpi/*.c a program each for mpirun, tools/tune/*.c another, tools/run/*.c the one that starts ranks,
# tests/net/scale_coll.c one for a simulated network, lib/cuda/*.cu (with lib/coll/engine_cuda.c) the library for GPUs,
# tests/gpu/cuda_*.cu a program each for a GPU and for the emulator, tests/gpu/emu_*.cc a program each for the emulator
# alone, and tests/mpi/cuda.cu one for that and mpirun.

ifneq ($(filter deps,$(MAKECMDGOALS)),)

# What is installed decides what is built: with deps, all else waits for it and for a make of its own.
AFTER := $(filter-out deps,$(MAKECMDGOALS))
.PHONY: deps $(AFTER)
deps:
	@tools/dev/deps $(DEPS)
	$(if $(AFTER),@$(MAKE) --no-print-directory $(AFTER))
$(AFTER): deps
	@:

else

BUILD = build
PREFIX = /usr/local
LIBDIR = $(PREFIX)/lib
INCLUDEDIR = $(PREFIX)/include
BINDIR = $(PREFIX)/bin
MANDIR = $(PREFIX)/share/man
BASHDIR = $(PREFIX)/share/bash-completion/completions
ZSHDIR = $(PREFIX)/share/zsh/site-functions
FISHDIR = $(PREFIX)/share/fish/vendor_completions.d
MAGICDIR = $(PREFIX)/share/file/magic
PKGCONFIGDIR = $(LIBDIR)/pkgconfig
CMAKEDIR = $(LIBDIR)/cmake/pici
DESTDIR =

CFLAGS ?= -O2 -g
# GCC unrolls loops for s390x at -O3, and then takes minutes and gigabytes for the kernels.
CPU_CFLAGS := $(if $(filter s390x-%,$(shell $(CC) -dumpmachine 2>/dev/null)),-O2,-O3)
SANITIZE =
WERROR =
FUZZ_CC = clang
FUZZ_FLAGS = CFLAGS='-O1 -g' CPU_CFLAGS=
FUZZ_SECONDS = 60
PKG_CONFIG = pkg-config

have = $(shell $(PKG_CONFIG) --exists $(1) 2>/dev/null && echo 1)
ifndef ZSTD
ZSTD := $(or $(call have,libzstd),0)
endif
ifndef ZLIB
ZLIB := $(or $(call have,zlib),0)
endif

# The value codec ZFP, over libzfp 1.0 or later, which has no file for pkg-config: is there its header, and the library?
ifndef ZFP
ZFP := $(shell printf '%s\n' '\#include <zfp.h>' '\#if ZFP_VERSION_MAJOR < 1' '\#error' '\#endif' | \
	$(CC) $(CPPFLAGS) $(CFLAGS) -E - >/dev/null 2>&1 && \
	for f in libzfp.so libzfp.a; do [ -e "$$($(CC) $(CFLAGS) -print-file-name=$$f)" ] && echo 1 && exit; done || echo 0)
endif

VERSION := $(shell sed -n 's/.*define PICI_VERSION "\(.*\)"/\1/p' include/pici/pici.h)
SOVERSION = 0

MAKEFLAGS += --no-print-directory
Q = $(if $(filter 1,$(V)),,@)
say = @$(if $(filter 1,$(V))$(findstring s,$(firstword -$(MAKEFLAGS))),:,printf '  %-4s %s\n')

# ---- flags

WARN = -Wall -Wextra -Wshadow -Wpointer-arith -Wwrite-strings -Wstrict-prototypes -Wundef $(if $(WERROR),-Werror)
override CPPFLAGS += -Iinclude -Ilib -D_FILE_OFFSET_BITS=64
SANITIZE_FLAGS = $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer)
BASE = -std=c11 $(WARN) -pthread $(SANITIZE_FLAGS)
# No contraction: all ranks must predict the same times, whatever CPU each was compiled for (lib/predict/tune.c).
LIB_FLAGS = -ffp-contract=off -fPIC -fvisibility=hidden -Wmissing-prototypes -DPICI_BUILD
LINK_FLAGS = -pthread $(CFLAGS) $(if $(SANITIZE),-fsanitize=$(SANITIZE)) $(LDFLAGS)
LINK = $(CC) $(LINK_FLAGS)
LIBS ?=

ifeq ($(ZSTD),1)
override CPPFLAGS += -DPICI_HAVE_ZSTD $(shell $(PKG_CONFIG) --cflags libzstd)
LIBS += $(shell $(PKG_CONFIG) --libs libzstd)
endif

ifeq ($(ZFP),1)
$(BUILD)/obj/lib/values/zfp.o: override CPPFLAGS += -DPICI_HAVE_ZFP
LIBS += -lzfp
endif

# For the tool, not for the library: deflated .npz files and pictures.
TOOL_LIBS =
ifeq ($(ZLIB),1)
override CPPFLAGS += -DPICI_HAVE_ZLIB $(shell $(PKG_CONFIG) --cflags zlib)
TOOL_LIBS += $(shell $(PKG_CONFIG) --libs zlib)
endif

# ---- files

obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
PUBLIC_H := $(sort $(wildcard include/pici/*.h include/pici/*.cuh))
ELSEWHERE := lib/coll/engine_cuda.c $(wildcard lib/transport/mpi*.c lib/transport/nccl*.c)
LIB_OBJ := $(call obj,$(sort $(filter-out $(ELSEWHERE),$(wildcard lib/*.c lib/*/*.c))))
TUNE_MPI := $(patsubst %,tools/tune/%.c,pici-tune world calibrate points)
NOT_TOOL := tools/picitool.c $(TUNE_MPI) $(wildcard tools/run/*.c)
TOOL_OBJ := $(call obj,$(sort $(filter-out $(NOT_TOOL),$(wildcard tools/*.c tools/*/*.c))))
PLAIN := $(patsubst tests/plain/%.c,$(BUILD)/plain_%,$(sort $(wildcard tests/plain/*.c)))
UNIT_OBJ := $(call obj,$(sort $(wildcard tests/unit/*.c)))
TEST_OBJ := $(call obj,$(sort $(wildcard tests/util/*.c)) $(wildcard formats/ref*.c))
FUZZERS := $(patsubst fuzz/fuzz_%.c,%,$(sort $(wildcard fuzz/fuzz_*.c)))
EXAMPLES := $(patsubst examples/%.c,$(BUILD)/%,$(sort $(wildcard examples/*.c)))

A = $(BUILD)/libpici.a
SO = $(BUILD)/libpici.so
TOOL = $(if $(wildcard tools/picitool.c),$(BUILD)/picitool)
RUN = $(BUILD)/pici-run

.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: all FORCE
all: $(A) $(SO) $(TOOL) $(RUN)

# ---- compiling. A change of compiler or flags makes all anew.

$(BUILD)/obj/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(CPPFLAGS) $(CFLAGS) $(CPU_CFLAGS) $(BASE) $(LDFLAGS) $(LIBS)' | cmp -s - $@ || \
		echo '$(CC) $(CPPFLAGS) $(CFLAGS) $(CPU_CFLAGS) $(BASE) $(LDFLAGS) $(LIBS)' >$@

COMPILE_FLAGS = $(CPPFLAGS) $(BASE) $(CFLAGS) -MMD -MP
COMPILE = $(CC) $(COMPILE_FLAGS)

# x87 arithmetic rounds twice: doubles would be added wrongly, once in a thousand times or so.
I386_FLAGS := $(if $(filter i386-% i486-% i586-% i686-%,$(shell $(CC) -dumpmachine 2>/dev/null)),-msse2 -mfpmath=sse)

$(BUILD)/obj/lib/cpu/%.o: lib/cpu/%.c $(BUILD)/obj/flags
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(COMPILE) $(LIB_FLAGS) $(I386_FLAGS) $(CPU_CFLAGS) -c -o $@ $<

$(BUILD)/obj/lib/%.o: lib/%.c $(BUILD)/obj/flags
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(COMPILE) $(LIB_FLAGS) -c -o $@ $<

$(BUILD)/obj/tools/%.o: tools/%.c $(BUILD)/obj/flags
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -Itools -Wmissing-prototypes -c -o $@ $<

$(BUILD)/obj/%.o: %.c $(BUILD)/obj/flags
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -Itools -I. -c -o $@ $<

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)

# ---- the library and the tool

$(A): $(LIB_OBJ)
	$(say) AR $@
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(SO): $(LIB_OBJ) lib/pici.map
	$(say) LD $@
	$(Q)$(LINK) -shared -Wl,-soname,libpici.so.$(SOVERSION) -Wl,--version-script=lib/pici.map \
		$(if $(SANITIZE),,-Wl,-z,defs) -o $@ $(LIB_OBJ) $(LIBS)
	$(Q)ln -sf libpici.so $@.$(SOVERSION)

# The extension module of the Python package, for every CPython from 3.9 on. It is not linked with the library.
PYTHON_INCLUDE = $(shell $(or $(PYTHON),python3) -c 'import sysconfig; print(sysconfig.get_path("include"))')
$(BUILD)/obj/python/%.o: python/%.c $(BUILD)/obj/flags
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -fPIC -fvisibility=hidden -Wmissing-prototypes -isystem $(PYTHON_INCLUDE) -c -o $@ $<

$(BUILD)/_codec.abi3.so: $(patsubst %.c,$(BUILD)/obj/%.o,$(sort $(wildcard python/pici/*.c)))
	$(say) LD $@
	$(Q)$(LINK) -shared -o $@ $^

# What the tool is made of, for its tests too. It uses no value codec.
$(BUILD)/obj/tools.a: $(TOOL_OBJ)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(BUILD)/picitool: $(call obj,tools/picitool.c) $(BUILD)/obj/tools.a $(A)
	$(say) LD $@
	$(Q)$(LINK) -o $@ $^ $(TOOL_LIBS) $(filter-out -lzfp,$(LIBS)) -lm

$(RUN): $(call obj,tools/run/pici-run.c)
	$(say) LD $@
	$(Q)$(LINK) -o $@ $^

# ---- the transport over MPI, a library of its own. What is made for one MPI lies under MPIDIR, so that several live
# side by side: make mpi mpi-tests MPICC=mpicc.mpich MPIDIR=build/mpich

MPICC = mpicc
MPIDIR = $(BUILD)/mpi
MPI_A = $(MPIDIR)/libpici_mpi.a
MPI_SO = $(MPIDIR)/libpici_mpi.so
MPI_CC = OMPI_CC='$(CC)' MPICH_CC='$(CC)' $(MPICC)
MPI_LINK = $(MPI_CC) $(LINK_FLAGS)
MPI_TESTS := $(patsubst tests/mpi/%.c,$(MPIDIR)/mpi_%,$(sort $(wildcard tests/mpi/*.c)))

MPI_TUNE = $(MPIDIR)/pici-tune

.PHONY: mpi mpi-tests
mpi: $(MPI_A) $(MPI_SO) $(MPI_TUNE)
mpi-tests: $(MPI_TESTS)

$(MPIDIR)/obj/flags: FORCE
	@mkdir -p $(@D)
	@echo "$(MPI_CC) $(CPPFLAGS) $(CFLAGS) $(BASE) $(LDFLAGS) $(LIBS)" | cmp -s - $@ || \
		echo "$(MPI_CC) $(CPPFLAGS) $(CFLAGS) $(BASE) $(LDFLAGS) $(LIBS)" >$@

$(MPIDIR)/obj/%.o: %.c $(MPIDIR)/obj/flags
	$(say) MPI $<
	@mkdir -p $(@D)
	$(Q)$(MPI_CC) $(COMPILE_FLAGS) $(if $(filter lib/% preload/%,$<),$(LIB_FLAGS)) \
		$(if $(filter examples/%,$<),-DPICI_EXAMPLE_MPI) \
		-I. -c -o $@ $<

$(MPI_A): $(patsubst %.c,$(MPIDIR)/obj/%.o,$(sort $(wildcard lib/transport/mpi*.c)))
	$(say) AR $@
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# For programs that load it while they run, as the Python package does.
$(MPI_SO): $(patsubst %.c,$(MPIDIR)/obj/%.o,$(sort $(wildcard lib/transport/mpi*.c))) $(SO)
	$(say) LD $@
	$(Q)$(MPI_LINK) -shared -Wl,-soname,libpici_mpi.so.$(SOVERSION) $(if $(SANITIZE),,-Wl,-z,defs) -o $@ $^

$(MPI_TESTS): $(MPIDIR)/mpi_%: $(MPIDIR)/obj/tests/mpi/%.o $(BUILD)/obj/testing.a $(MPI_A) $(A)
	$(say) LD $@
	$(Q)$(MPI_LINK) $(WRAPPED) -o $@ $^ $(LIBS) -lm

# Some test programs count what the library allocates.
comma = ,
COUNTED = $(addprefix -Wl$(comma)--wrap=,malloc calloc realloc aligned_alloc free)
$(MPIDIR)/mpi_coll: private WRAPPED = $(COUNTED)

$(MPI_TUNE): $(patsubst %.c,$(MPIDIR)/obj/%.o,$(sort $(wildcard tools/tune/*.c))) $(MPI_A) $(A)
	$(say) LD $@
	$(Q)$(MPI_LINK) -o $@ $^ $(LIBS) -lm

-include $(shell find $(MPIDIR)/obj -name '*.d' 2>/dev/null)

# A library to preload into MPI programs: MPI's names, over a libpici and a transport of its own, which nothing outside
# sees. The transport is compiled once more, with names that call PMPI_.
PMPI_OBJ = $(patsubst %.c,$(MPIDIR)/obj/%.o,$(sort $(wildcard preload/*.c))) \
	$(patsubst %.c,$(MPIDIR)/obj/pmpi/%.o,$(sort $(wildcard lib/transport/mpi*.c)))

.PHONY: pmpi
pmpi: $(MPIDIR)/obj/flags
	$(Q)mpi=$$(printf '%s\n' '#include <mpi.h>' '#if defined OPEN_MPI' 'pmpi openmpi' \
		'#elif defined MPICH || defined MPICH_VERSION || defined I_MPI_VERSION' 'pmpi mpich' '#endif' | \
		$(MPI_CC) -E -P -x c - | sed -n 's/^pmpi //p') && \
	{ [ -n "$$mpi" ] || { echo 'make pmpi: $(MPICC) is neither Open MPI nor a kind of MPICH' >&2; exit 1; }; } && \
	$(MAKE) $(MPIDIR)/libpici_pmpi-$$mpi.so

$(MPIDIR)/obj/pmpi/%.o: %.c $(MPIDIR)/obj/flags
	$(say) MPI $<
	@mkdir -p $(@D)
	$(Q)$(MPI_CC) $(COMPILE_FLAGS) $(LIB_FLAGS) -D_POSIX_C_SOURCE=200809L -include preload/profiling.h -c -o $@ $<

# No rule for all of libpici_pmpi-*.so: which of them an MPI makes is for it to say.
$(MPIDIR)/libpici_pmpi-openmpi.so $(MPIDIR)/libpici_pmpi-mpich.so: $(PMPI_OBJ) $(A) preload/pmpi.map
	$(say) LD $@
	$(Q)$(MPI_LINK) -shared -Wl,-soname,$(@F) -Wl,--version-script=preload/pmpi.map -Wl,--as-needed \
		$(if $(SANITIZE),,-Wl,-z,defs) -o $@ $(PMPI_OBJ) $(A) $(LIBS) -ldl

# ---- ranks of a simulated network, by SimGrid's MPI. Its compiler compiles the library too: its header replaces clocks
# and sleeping, and also free, by a macro, unless told not to. Each rank loads a copy of its program, which is therefore
# stripped.

SMPIDIR = $(BUILD)/smpi
SMPI_PROGRAMS = $(addprefix $(SMPIDIR)/mpi/,scale_coll bench_coll neighbor_mpi)
.PHONY: scale-programs check-scale bench-scale
scale-programs:
	$(Q)$(MAKE) BUILD=$(SMPIDIR) CC=smpicc MPICC=smpicc SANITIZE= WERROR= ZSTD=0 ZLIB=0 ZFP=0 LDFLAGS=-s \
		CPPFLAGS='-DSMPI_NO_OVERRIDE_MALLOC -DPICI_SMPI' $(SMPI_PROGRAMS)

$(MPIDIR)/scale_coll: $(MPIDIR)/obj/tests/net/scale_coll.o $(BUILD)/obj/testing.a $(MPI_A) $(A)
	$(say) LD $@
	$(Q)$(MPI_LINK) -o $@ $^ $(LIBS) -lm

check-scale:
	@MAKE='$(MAKE)' tests/net/scale $(BUILD)/smpi-check

bench-scale: scale-programs
	@bench/scale $(SMPIDIR)/mpi/bench_coll $(SMPIDIR) $(BENCH_ARGS)

# ---- CUDA: kernels, a library of their own, through nvcc. The same sources are also compiled as C++ and run over an
# emulator of thread blocks, wherever there is a C++ compiler: $(BUILD)/emu_*.

NVCC = nvcc
CUDA_ARCHS = 80 90 100
CUDADIR = $(BUILD)/cuda
CUDA_A = $(CUDADIR)/libpici_cuda.a
CUDA_SRC := $(sort $(wildcard lib/cuda/*.cu))
CUDA_OBJ = $(CUDA_SRC:%.cu=$(CUDADIR)/obj/%.o) $(CUDADIR)/obj/lib/coll/engine_cuda.o
CUDA_HOME = $(abspath $(dir $(shell command -v $(lastword $(NVCC))))..)
CUDA_TESTS := $(patsubst tests/gpu/cuda_%.cu,$(CUDADIR)/cuda_%,$(sort $(wildcard tests/gpu/cuda_*.cu)))
# The tests and benchmarks may be built for fewer.
CUDA_TEST_ARCHS = $(CUDA_ARCHS)
nvcc_flags = -std=c++17 -O3 -g -Iinclude -Ilib -I. $(foreach a,$1,-gencode arch=compute_$(a),code=sm_$(a)) \
	-gencode arch=compute_$(lastword $1),code=compute_$(lastword $1) \
	-Xcompiler -Wall,-Wextra,-fPIC,-fvisibility=hidden $(if $(WERROR),-Werror all-warnings) -MMD -MP
NVCC_FLAGS = $(call nvcc_flags,$(CUDA_ARCHS))
NVCCFLAGS =

.PHONY: cuda cuda-tests check-cuda
cuda: $(CUDA_A)
cuda-tests: $(CUDA_TESTS) $(CUDADIR)/example

$(CUDADIR)/obj/flags: FORCE
	@mkdir -p $(@D)
	@echo "$(NVCC) $(NVCC_FLAGS) $(NVCCFLAGS) $(CUDA_TEST_ARCHS)" | cmp -s - $@ || \
		echo "$(NVCC) $(NVCC_FLAGS) $(NVCCFLAGS) $(CUDA_TEST_ARCHS)" >$@

$(CUDADIR)/obj/lib/%.o: lib/%.cu $(CUDADIR)/obj/flags
	$(say) NVCC $<
	@mkdir -p $(@D)
	$(Q)$(NVCC) $(NVCC_FLAGS) $(NVCCFLAGS) -DPICI_BUILD -c -o $@ $<

$(CUDADIR)/obj/%.o: %.cu $(CUDADIR)/obj/flags
	$(say) NVCC $<
	@mkdir -p $(@D)
	$(Q)$(NVCC) $(call nvcc_flags,$(CUDA_TEST_ARCHS)) $(NVCCFLAGS) -c -o $@ $<

$(CUDADIR)/obj/lib/coll/%.o: lib/coll/%.c $(BUILD)/obj/flags
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(COMPILE) $(LIB_FLAGS) -isystem $(CUDA_HOME)/include -c -o $@ $<

$(CUDA_A): $(CUDA_OBJ)
	$(say) AR $@
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# The example of docs/cuda.md.
$(CUDADIR)/example.cu: docs/cuda.md
	@mkdir -p $(@D)
	$(Q)awk '/^```cuda$$/ { on = 1; next } /^```$$/ { on = 0 } on' $< >$@

$(CUDADIR)/example: $(CUDADIR)/example.cu $(CUDA_A) $(A)
	$(say) NVCC $<
	$(Q)$(NVCC) $(filter-out -MMD -MP -Ilib -I.,$(NVCC_FLAGS)) $(NVCCFLAGS) -o $@ $^ $(LIBS)

$(CUDA_TESTS): $(CUDADIR)/%: $(CUDADIR)/obj/tests/gpu/%.o $(BUILD)/obj/testing.a $(CUDA_A) $(A)
	$(say) LD $@
	$(Q)$(NVCC) -o $@ $^ $(LIBS) -lm

-include $(shell find $(CUDADIR)/obj -name '*.d' 2>/dev/null)

# ---- the transport over NCCL, a library of its own. Headers and libraries of CUDA and NCCL: those of nvcc's toolkit.

NCCL_HOME = $(CUDA_HOME)
NCCLDIR = $(BUILD)/nccl
NCCL_A = $(NCCLDIR)/libpici_nccl.a
NCCL_INCLUDES = -isystem $(NCCL_HOME)/include -isystem $(CUDA_HOME)/include
NCCL_LIBS = -L$(NCCL_HOME)/lib -L$(NCCL_HOME)/lib64 -L$(CUDA_HOME)/lib64 -lnccl -lcudart -lstdc++

.PHONY: nccl nccl-tests
nccl: $(NCCL_A)
NCCL_TESTS := $(patsubst tests/gpu/%.c,$(NCCLDIR)/%,$(sort $(wildcard tests/gpu/nccl_*.c)))
nccl-tests: $(NCCL_TESTS) $(NCCLDIR)/example.o

$(NCCLDIR)/obj/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(COMPILE_FLAGS) $(NCCL_INCLUDES)' | cmp -s - $@ || echo '$(CC) $(COMPILE_FLAGS) $(NCCL_INCLUDES)' >$@

$(NCCLDIR)/obj/%.o: %.c $(NCCLDIR)/obj/flags
	$(say) NCCL $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(COMPILE_FLAGS) $(if $(filter lib/%,$<),$(LIB_FLAGS)) $(NCCL_INCLUDES) -c -o $@ $<

$(NCCL_A): $(patsubst %.c,$(NCCLDIR)/obj/%.o,$(sort $(wildcard lib/transport/nccl*.c)))
	$(say) AR $@
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# For programs that load it while they run, as the Python package does. With the engine for GPUs inside.
.PHONY: nccl-shared
nccl-shared: $(NCCLDIR)/libpici_nccl.so
NCCL_OBJ = $(patsubst %.c,$(NCCLDIR)/obj/%.o,$(sort $(wildcard lib/transport/nccl*.c)))
$(NCCLDIR)/libpici_nccl.so: $(NCCL_OBJ) $(CUDA_OBJ) $(SO)
	$(say) LD $@
	$(Q)$(LINK) -shared -Wl,-soname,libpici_nccl.so.$(SOVERSION) -Wl,-z,defs -o $@ $^ $(NCCL_LIBS)

# The example of docs/collectives.md.
$(NCCLDIR)/example.c: docs/collectives.md
	@mkdir -p $(@D)
	$(Q)awk '/^```nccl$$/ { on = 1; next } /^```$$/ { on = 0 } on' $< >$@

$(NCCLDIR)/example.o: $(NCCLDIR)/example.c
	$(say) CC $<
	$(Q)$(COMPILE) $(NCCL_INCLUDES) -c -o $@ $<

$(NCCL_TESTS): $(NCCLDIR)/%: $(NCCLDIR)/obj/tests/gpu/%.o $(NCCL_A) $(CUDA_A) $(A)
	$(say) LD $@
	$(Q)$(LINK) -o $@ $^ $(NCCL_LIBS) $(LIBS) -lm

-include $(shell find $(NCCLDIR)/obj -name '*.d' 2>/dev/null)

# A C++ compiler of the same make as CC, unless one is named.
ifeq ($(origin CXX),default)
CXX := $(shell printf '%s\n' '$(CC)' | \
	sed 's/clang$$/clang++/; s/clang-\([0-9]*\)$$/clang++-\1/; s/gcc/g++/; s/^cc$$/c++/')
endif
EMU_DIR = $(BUILD)/obj/emu
EMU_SELF := self streams
EMU_ALONE := $(EMU_SELF) mutant mutant_lib mutant_small deferred
EMU_SRC := $(filter-out $(EMU_ALONE:%=tests/gpu/emu/%.cc),$(sort $(wildcard tests/gpu/emu/*.cc)))
EMU_OBJ := $(EMU_SRC:tests/gpu/emu/%.cc=$(EMU_DIR)/%.o)
EMU_LIB_OBJ := $(CUDA_SRC:lib/cuda/%.cu=$(EMU_DIR)/lib_%.o) $(EMU_DIR)/lib_engine_cuda.o $(EMU_DIR)/lib_nccl.o \
	$(EMU_DIR)/lib_nccl_dense.o $(EMU_DIR)/lib_nccl_host.o
EMU_TESTS := $(patsubst tests/gpu/cuda_%.cu,$(BUILD)/emu_%,$(sort $(wildcard tests/gpu/cuda_*.cu)))
EMU_ONLY := $(patsubst tests/gpu/%.cc,$(BUILD)/%,$(sort $(wildcard tests/gpu/emu_*.cc)))
EMU_COMPILE = $(CXX) $(EMU_FLAGS)
EMU_FLAGS = -x c++ -std=c++17 $(filter-out -Wstrict-prototypes -Wshadow,$(WARN)) -Wno-unknown-pragmas -pthread \
	$(SANITIZE_FLAGS) $(CFLAGS) \
	-Itests/gpu/emu -Iinclude -Ilib -I. -MMD -MP

.PHONY: cuda-emu print-cxx
print-cxx:
	@echo '$(CXX)'

cuda-emu: $(EMU_SELF:%=$(BUILD)/emu_%) $(EMU_TESTS) $(EMU_ONLY)

$(EMU_DIR)/%.o: tests/gpu/emu/%.cc $(BUILD)/obj/flags
	$(say) CXX $<
	@mkdir -p $(@D)
	$(Q)$(EMU_COMPILE) -c -o $@ $<

$(EMU_DIR)/%.o: tests/gpu/emu/%.c $(BUILD)/obj/flags
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -Wmissing-prototypes -Itests/gpu/emu -c -o $@ $<

$(EMU_DIR)/lib_%.o: lib/cuda/%.cu $(BUILD)/obj/flags
	$(say) CXX $<
	@mkdir -p $(@D)
	$(Q)$(EMU_COMPILE) -c -o $@ $<

$(EMU_DIR)/lib_%.o: lib/coll/%.c $(BUILD)/obj/flags
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(COMPILE) $(LIB_FLAGS) -Itests/gpu/emu -c -o $@ $<

$(EMU_DIR)/lib_%.o: lib/transport/%.c $(BUILD)/obj/flags
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(COMPILE) $(LIB_FLAGS) -Itests/gpu/emu -c -o $@ $<

$(EMU_DIR)/test_%.o: tests/gpu/cuda_%.cu $(BUILD)/obj/flags
	$(say) CXX $<
	@mkdir -p $(@D)
	$(Q)$(EMU_COMPILE) -c -o $@ $<

$(EMU_DIR)/emu_%.o: tests/gpu/emu_%.cc $(BUILD)/obj/flags
	$(say) CXX $<
	@mkdir -p $(@D)
	$(Q)$(EMU_COMPILE) -c -o $@ $<

$(BUILD)/emu_streams: $(EMU_DIR)/streams_c.o
$(EMU_SELF:%=$(BUILD)/emu_%): $(BUILD)/emu_%: $(EMU_DIR)/%.o $(EMU_OBJ)
	$(say) LD $@
	$(Q)$(CXX) $(LINK_FLAGS) -o $@ $^

$(EMU_TESTS): $(BUILD)/emu_%: $(EMU_DIR)/test_%.o $(EMU_LIB_OBJ) $(EMU_OBJ) $(BUILD)/obj/testing.a $(A)
	$(say) LD $@
	$(Q)$(CXX) $(LINK_FLAGS) -o $@ $^ $(LIBS) -lm

$(EMU_ONLY): $(BUILD)/%: $(EMU_DIR)/%.o $(EMU_LIB_OBJ) $(EMU_OBJ) $(BUILD)/obj/testing.a $(A)
	$(say) LD $@
	$(Q)$(CXX) $(LINK_FLAGS) -o $@ $^ $(LIBS) -lm

# Collectives over MPI, on the emulator's memory: the MPI's compiler is told to be CXX.
MPI_CXX = OMPI_CC='$(CXX)' MPICH_CC='$(CXX)' $(MPICC)
.PHONY: mpi-cuda-emu
mpi-cuda-emu: $(MPIDIR)/mpi_cuda

$(MPIDIR)/obj/tests/mpi/cuda.o: tests/mpi/cuda.cu $(MPIDIR)/obj/flags
	$(say) MPI $<
	@mkdir -p $(@D)
	$(Q)$(MPI_CXX) $(EMU_FLAGS) -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX -c -o $@ $<

$(MPIDIR)/mpi_cuda: $(MPIDIR)/obj/tests/mpi/cuda.o $(EMU_LIB_OBJ) $(EMU_OBJ) $(BUILD)/obj/testing.a $(MPI_A) $(A)
	$(say) LD $@
	$(Q)$(MPI_CXX) $(LINK_FLAGS) -o $@ $^ $(LIBS) -lm

.PHONY: check-mutants
check-mutants: $(A) $(BUILD)/obj/testing.a $(UNIT_OBJ)
	@CC='$(CC)' CXX='$(CXX)' LIBS='$(LIBS)' tests/gpu/emu/mutants $(BUILD)
	@CC='$(CC)' tests/mutants $(BUILD)

# On a GPU if there is one, and else over the emulator.
check-cuda:
	@MAKE='$(MAKE)' BUILD='$(BUILD)' CC='$(CC)' NVCC='$(NVCC)' CUDADIR='$(CUDADIR)' tests/gpu/run

# A folder with all that check-cuda runs on a GPU, for a machine that has one and nothing else of this: made where there
# is nvcc, for one kind of GPU, without zstd and MPI.
.PHONY: gpu-kit
GPU_ARCH = 90
GPU_KIT = $(BUILD)/gpu-kit
gpu-kit:
	@MAKE='$(MAKE)' BUILD='$(GPU_KIT)/build' CC='$(CC)' NVCC='$(NVCC)' tests/gpu/run kit $(GPU_KIT)/pici-gpu $(GPU_ARCH)

# ---- examples and benchmarks

.PHONY: demo bench bench-peers bench-delta bench-coll bench-net
$(EXAMPLES): $(BUILD)/%: $(BUILD)/obj/examples/%.o $(A)
	$(say) LD $@
	$(Q)$(LINK) -o $@ $^ $(LIBS) -lm

# Examples for mpirun.
MPI_EXAMPLES = $(MPIDIR)/train $(MPIDIR)/spmm
.PHONY: mpi-examples
mpi-examples: $(MPI_EXAMPLES)
$(MPI_EXAMPLES): $(MPIDIR)/%: $(MPIDIR)/obj/examples/%.o $(MPI_A) $(A)
	$(say) LD $@
	$(Q)$(MPI_LINK) -o $@ $^ $(LIBS) -lm

# Each bench/NAME.c is a program; BENCH_ARGS goes to it. peers.c compares with other compressors and needs them.
BENCH_ARGS =
PEERS = libzstd liblz4 blosc
$(BUILD)/bench: $(BUILD)/obj/bench/bench.o $(A)
	$(say) LD $@
	$(Q)$(LINK) -o $@ $^ $(LIBS) -lm

$(BUILD)/delta_files: $(BUILD)/obj/bench/delta_files.o $(A)
	$(say) LD $@
	$(Q)$(LINK) -o $@ $^ $(LIBS) -lm

$(BUILD)/peers: $(BUILD)/obj/bench/peers.o $(A)
	$(say) LD $@
	$(Q)$(LINK) -o $@ $^ $(shell $(PKG_CONFIG) --libs $(PEERS)) $(LIBS) -lm

bench: $(BUILD)/bench
	@$(BUILD)/bench $(BENCH_ARGS)

$(BUILD)/delta_small: $(BUILD)/obj/bench/delta_small.o $(A)
	$(say) LD $@
	$(Q)$(LINK) -o $@ $^ $(LIBS) -lm

# Deltas in memory, and of files: 5 GiB below BUILD; small deltas beside zstd, xdelta3 and bsdiff; two checkpoints of
# train; the steps of finetune. WEIGHTS=FILE.safetensors: the weights for small deltas, which are then also made of
# weights without exact zeros. EXAMPLES_OF=FILE: what train and finetune learn from. Of all rows those of small deltas
# alone, with BENCH_ARGS=-z beside other programs: bench-delta-small.
WEIGHTS =
EXAMPLES_OF =
.PHONY: bench-delta-small
bench-delta: $(addprefix $(BUILD)/,bench delta_files delta_small picitool finetune train)
	@$(BUILD)/bench --delta $(BENCH_ARGS)
	@$(BUILD)/delta_files $(BUILD)/picitool $(BUILD)
	-@$(BUILD)/delta_small -u -r 5 -z $(WEIGHTS)
	-@$(if $(WEIGHTS),$(BUILD)/delta_small -u -r 5)
	@for s in 100 110; do $(BUILD)/train -m network -u 8192 -s $$s -t 2 -w $(BUILD)/weights-$$s.f32 $(EXAMPLES_OF) \
		>/dev/null || exit; done
	@$(BUILD)/delta_small -u -r 5 -z -c $(BUILD)/weights-100.f32 $(BUILD)/weights-110.f32
	@rm $(BUILD)/weights-100.f32 $(BUILD)/weights-110.f32
	@$(BUILD)/finetune -s 50 $(EXAMPLES_OF)

bench-delta-small: $(BUILD)/delta_small
	@$(BUILD)/delta_small $(BENCH_ARGS) $(WEIGHTS)

HAVE_PEERS := $(filter 3,$(words $(foreach p,$(PEERS),$(call have,$(p)))))
bench-peers: $(if $(HAVE_PEERS),$(BUILD)/peers)
	@$(if $(HAVE_PEERS),$(BUILD)/peers $(BENCH_ARGS),echo 'bench-peers needs $(PEERS) (make deps installs them)'; exit 1)

# Collectives. Ranks are threads, or processes under mpirun if there is an MPI to link with: Open MPI, if it is one of
# several, since all of its algorithms can compete.
COLL_MPICC := $(or $(shell command -v mpicc.openmpi),$(shell command -v mpicc))
COLL_SRC := $(sort $(filter-out bench/coll_cuda.c,$(wildcard bench/coll*.c)))
COLL_CUDA_SRC = $(COLL_SRC) bench/coll_cuda.c
$(MPIDIR)/obj/bench/%.o: private override CPPFLAGS += -DBENCH_MPI $(if $(BENCH_CUDA),-DBENCH_CUDA $(NCCL_INCLUDES))
$(MPIDIR)/bench_coll: $(COLL_SRC:%.c=$(MPIDIR)/obj/%.o) $(MPI_A) $(A)
	$(say) LD $@
	$(Q)$(MPI_LINK) -o $@ $^ $(LIBS) -lm

$(MPIDIR)/bench_coll_cuda: $(COLL_CUDA_SRC:%.c=$(MPIDIR)/obj/%.o) $(MPI_A) $(NCCL_A) $(CUDA_A) $(A)
	$(say) LD $@
	$(Q)$(MPI_LINK) -o $@ $^ $(NCCL_LIBS) $(LIBS) -lm

# The same over the emulator and the fake of NCCL: to see that it works, not how fast.
COLL_EMU = $(EMU_DIR)/deferred.o $(EMU_LIB_OBJ) $(EMU_OBJ)
$(MPIDIR)/bench_coll_emu: $(COLL_CUDA_SRC:%.c=$(MPIDIR)/obj/%.o) $(COLL_EMU) $(MPI_A) $(A)
	$(say) LD $@
	$(Q)$(MPI_CXX) $(LINK_FLAGS) -Wl,--wrap=main -o $@ $^ $(LIBS) -lm

ifneq ($(COLL_MPICC),)
coll = $(Q)$(MAKE) MPICC=$(COLL_MPICC) MPIDIR=$(BUILD)/$(1) $(BUILD)/$(1)/$(@F) $(2)
$(BUILD)/bench_coll: $(A) FORCE
	+$(call coll,bench-mpi)
	$(Q)ln -f $(BUILD)/bench-mpi/$(@F) $@

$(BUILD)/bench_coll_cuda: $(NCCL_A) $(CUDA_A) $(A) FORCE
	+$(call coll,bench-cuda,BENCH_CUDA=1)
	$(Q)ln -f $(BUILD)/bench-cuda/$(@F) $@

$(BUILD)/bench_coll_emu: $(COLL_EMU) $(A) FORCE
	+$(call coll,bench-emu,BENCH_CUDA=1 NCCL_INCLUDES=-Itests/gpu/emu)
	$(Q)ln -f $(BUILD)/bench-emu/$(@F) $@
else
coll = $(patsubst %.c,$(1)/%.o,$(filter-out bench/coll_mpi.c,$(2)))
$(BUILD)/bench_coll: $(call coll,$(BUILD)/obj,$(COLL_SRC)) $(A)
	$(say) LD $@
	$(Q)$(LINK) -o $@ $^ $(LIBS) -lm

$(NCCLDIR)/obj/bench/%.o $(EMU_DIR)/bench/%.o: private override CPPFLAGS += -DBENCH_CUDA -Itools -I.
$(BUILD)/bench_coll_cuda: $(call coll,$(NCCLDIR)/obj,$(COLL_CUDA_SRC)) $(NCCL_A) $(CUDA_A) $(A)
	$(say) LD $@
	$(Q)$(LINK) -o $@ $^ $(NCCL_LIBS) $(LIBS) -lm

$(EMU_DIR)/bench/%.o: bench/%.c $(BUILD)/obj/flags
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -Itests/gpu/emu -c -o $@ $<

$(BUILD)/bench_coll_emu: $(call coll,$(EMU_DIR),$(COLL_CUDA_SRC)) $(COLL_EMU) $(A)
	$(say) LD $@
	$(Q)$(CXX) $(LINK_FLAGS) -Wl,--wrap=main -o $@ $^ $(LIBS) -lm
endif

.PHONY: bench-coll-cuda bench-coll-emu
bench-coll-cuda: $(BUILD)/bench_coll_cuda
bench-coll-emu: $(BUILD)/bench_coll_emu

# On a GPU.
.PHONY: bench-cuda bench-cuda-program
$(BUILD)/bench_cuda: $(CUDADIR)/obj/bench/bench_cuda.o $(CUDA_A) $(A)
	$(say) LD $@
	$(Q)$(NVCC) -o $@ $^ -lcusparse $(LIBS) -lm

bench-cuda-program: $(BUILD)/bench_cuda
bench-cuda: $(BUILD)/bench_cuda
	@$(BUILD)/bench_cuda $(BENCH_ARGS)

bench-coll: $(BUILD)/bench_coll
	@$(BUILD)/bench_coll $(BENCH_ARGS)

# On four hosts behind slow links: the targets at 64 MiB a rank, then a range of sizes. Half an hour.
bench-net: $(BUILD)/bench_coll
	@bench/net with 4 200mbit bench/coll-net $(BUILD) $(BENCH_ARGS)

# Collectives of an MPI program that knows nothing of pici, beside MPI's own. Minutes.
$(MPIDIR)/bench_pmpi: $(MPIDIR)/obj/bench/pmpi.o
	$(say) LD $@
	$(Q)$(MPI_LINK) -o $@ $^

.PHONY: bench-pmpi bench-pmpi-program
bench-pmpi-program: $(A)
	$(Q)$(MAKE) MPICC=mpicc.openmpi MPIDIR=$(BUILD)/bench-mpi pmpi $(BUILD)/bench-mpi/bench_pmpi

bench-pmpi: bench-pmpi-program
	@bench/net with 4 200mbit bench/pmpi $(BUILD) $(BENCH_ARGS)

# Bytes that each algorithm sends, counted among threads.
.PHONY: bench-volume bench-algorithms
bench-volume: $(BUILD)/bench_coll
	@bench/volume $(BUILD)/bench_coll $(BUILD)/volume $(BENCH_ARGS)

# Neighbourhood all-gathers: what plans send and what the model predicts; then beside MPI_Neighbor_allgather of the MPIs
# here, on this machine, on rate-limited hosts, and on simulated networks.
.PHONY: bench-neighbor bench-neighbor-net bench-neighbor-scale
NEIGHBOR_MPI = $(MPIDIR)/neighbor_mpi
$(BUILD)/bench_neighbor: $(BUILD)/obj/bench/neighbor.o $(A)
	$(say) LD $@
	$(Q)$(LINK) -o $@ $^ $(LIBS) -lm

$(NEIGHBOR_MPI): $(MPIDIR)/obj/bench/neighbor_mpi.o $(MPI_A) $(A)
	$(say) LD $@
	$(Q)$(MPI_LINK) -o $@ $^ $(LIBS) -lm

bench-neighbor: $(BUILD)/bench_neighbor
	@$(BUILD)/bench_neighbor $(BENCH_ARGS)
	@for mpi in openmpi mpich; do \
		command -v mpicc.$$mpi >/dev/null || { echo "skip: no mpicc.$$mpi"; continue; }; \
		$(MAKE) -s MPIDIR=$(BUILD)/$$mpi MPICC=mpicc.$$mpi $(BUILD)/$$mpi/neighbor_mpi || exit 1; \
		printf '\n## %s, on this machine\n\n' $$mpi; \
		run="mpirun.$$mpi"; [ $$mpi = mpich ] || run="$$run --allow-run-as-root --oversubscribe --bind-to none"; \
		bench/neighbor-runs local "$$run" $(BUILD)/$$mpi/neighbor_mpi -b 65536 || exit 1; \
	done

bench-neighbor-net:
	$(Q)$(MAKE) -s MPIDIR=$(BUILD)/openmpi MPICC=mpicc.openmpi $(BUILD)/openmpi/neighbor_mpi
	@bench/neighbor-runs net $(BUILD)/openmpi/neighbor_mpi $(BENCH_ARGS)

bench-neighbor-scale: scale-programs
	@bench/neighbor-runs scale $(SMPIDIR)/mpi/neighbor_mpi $(BENCH_ARGS)

# All algorithms on hosts behind slow links, with several ranks a host and with one.
bench-algorithms: $(BUILD)/bench_coll
	@bench/coll-algorithms $(BUILD) $(BENCH_ARGS)

# Training on four hosts behind slow links. TORCH_PYTHON: an interpreter with torch; the package is installed beside the
# results, not into it.
.PHONY: bench-torch
TORCH_PYTHON = python3
bench-torch: $(SO)
	@rm -rf $(BUILD)/training/site
	@PICI_BUILD='$(abspath $(BUILD))' $(TORCH_PYTHON) -m pip install -q --no-index --no-build-isolation --no-deps \
		--target $(BUILD)/training/site ./python
	@PYTHONPATH=$(BUILD)/training/site $(TORCH_PYTHON) bench/training/run -o $(BUILD)/training $(BENCH_ARGS)

demo: $(BUILD)/demo $(BUILD)/picitool
	@$(BUILD)/demo $(BUILD)/picitool $(BUILD)/demo-files

# ---- tests. check installs nothing, runs what it can and names what it could not.

# What tests share, each taking what it needs.
$(BUILD)/obj/testing.a: $(TEST_OBJ)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

TEST_PARTS = $(BUILD)/obj/testing.a $(BUILD)/obj/tools.a $(A)
CRITERION := $(call have,criterion)
UNIT = $(if $(CRITERION),$(if $(UNIT_OBJ),$(BUILD)/tests))
XXHASH := $(call have,libxxhash)
$(UNIT_OBJ): private CPPFLAGS += $(if $(XXHASH),-DPICI_TEST_XXHASH)

.PHONY: check check-full check-portable check-avx512 check-python plain test-programs
$(PLAIN): $(BUILD)/plain_%: $(BUILD)/obj/tests/plain/%.o $(TEST_PARTS)
	$(say) LD $@
	$(Q)$(LINK) $(WRAPPED) -o $@ $^ $(TOOL_LIBS) $(LIBS) -lm

# One counts what the library allocates, the other has sockets take a few bytes at a time.
$(BUILD)/plain_calls: private WRAPPED = $(COUNTED)
$(BUILD)/plain_socket: private WRAPPED = -Wl,--wrap=sendmsg

# Criterion finds its tests by a section that position-independent executables relocate.
$(BUILD)/tests: $(UNIT_OBJ) $(TEST_PARTS)
	$(say) LD $@
	$(Q)$(LINK) -no-pie -o $@ $^ $(shell $(PKG_CONFIG) --libs criterion) $(if $(XXHASH),-lxxhash) $(TOOL_LIBS) \
		$(LIBS) -lm

plain: $(PLAIN)

test-programs: all $(PLAIN) $(UNIT) $(EXAMPLES)

TEST_ENV = BUILD='$(BUILD)' CC='$(CC)' MAKE='$(MAKE)' SANITIZE='$(SANITIZE)' ZSTD='$(ZSTD)' \
	ZLIB='$(ZLIB)' ZFP='$(ZFP)'

check: test-programs
	@$(TEST_ENV) tests/run $(BUILD)

check-full: test-programs
	@for isa in $(if $(filter aarch64,$(shell uname -m)),scalar neon,scalar avx2 avx512); do \
		echo "PICI_CPU=$$isa"; \
		PICI_CPU=$$isa PICI_TEST_FULL=1 $(TEST_ENV) tests/run $(BUILD) || exit 1; \
	done
	$(Q)$(MAKE) BUILD=$(BUILD)/asan SANITIZE=address,undefined check
	$(Q)$(MAKE) fuzz-replay check-portable check-avx512 check-mutants

# MPIS=openmpi: one of the two.
.PHONY: check-preload-sanitized
check-preload-sanitized: $(A)
	@$(TEST_ENV) tests/mpi/preload.sh sanitized || [ $$? = 77 ]

# PYTHON=python3: the interpreter, which needs NumPy; else one is looked for.
check-python: all
	@$(TEST_ENV) PICITOOL='$(BUILD)/picitool' tests/package/python.sh

# TORCH_PYTHON=python3: the interpreter, which needs torch. TORCH_TESTS='-k NAME': some of the tests.
.PHONY: check-torch check-torch-own
check-torch: all
	@$(TEST_ENV) TORCH_PYTHON='$(or $(TORCH_PYTHON),python3)' TORCH_TESTS='$(TORCH_TESTS)' tests/package/torch.sh || \
		[ $$? = 77 ]

# torch's own tests, from its wheel; they need the package expecttest.
check-torch-own: all
	@$(TEST_ENV) TORCH_PYTHON='$(or $(TORCH_PYTHON),python3)' TORCH_TESTS='$(TORCH_TESTS)' tests/package/torch.sh own || \
		[ $$? = 77 ]

# mpi4py's own tests, with all that can be pici's forced to be. Installs mpi4py in a folder of its own.
.PHONY: check-mpi4py
check-mpi4py: $(A)
	@$(TEST_ENV) PYTHON='$(or $(PYTHON),python3)' tests/mpi/mpi4py '$(BUILD)' || [ $$? = 77 ]

check-portable:
	@MAKE='$(MAKE)' tests/portable $(BUILD)/portable

check-avx512:
	@MAKE='$(MAKE)' tests/avx512/run $(BUILD)/avx512

# The figures of docs/predict.md anew.
.PHONY: figures
figures: $(BUILD)/picitool
	tools/dev/figures $(BUILD)/picitool

# The golden vectors anew. They are checked in, and change only with the format.
VECTORS = formats/vectors
.PHONY: vectors
vectors: $(BUILD)/genvectors $(BUILD)/gensmall $(BUILD)/genvalues $(if $(filter 1,$(ZFP)),$(BUILD)/genzfp)
	$(BUILD)/genvectors $(VECTORS)
	$(BUILD)/gensmall $(VECTORS)
	$(BUILD)/genvalues $(VECTORS)
	$(if $(filter 1,$(ZFP)),$(BUILD)/genzfp $(VECTORS))

$(BUILD)/genzfp: private GENLIBS = -lzfp -lm
$(addprefix $(BUILD)/,genvectors gensmall genvalues genzfp): $(BUILD)/%: \
		$(call obj,$(wildcard formats/ref*.c)) $(BUILD)/obj/formats/%.o
	$(say) LD $@
	$(Q)$(LINK) -o $@ $^ $(GENLIBS)

# ---- the codec as one file, and what it makes beside what the library makes

AMALGAMATION = $(BUILD)/amalgamation
AMALGAM_FROM := tools/dev/amalgamate LICENSE include/pici/pici.h include/pici/delta.h \
	$(sort $(wildcard lib/*.[ch] lib/codec/*.[ch] lib/cpu/*))

.PHONY: amalgamate amalgamation-test
amalgamate: $(AMALGAMATION)/pici.c
$(AMALGAMATION)/pici.c: $(AMALGAM_FROM)
	$(say) GEN $@
	$(Q)tools/dev/amalgamate --cc '$(CC)' $(@D)

# As its users compile it: not from our folder, and with none of our flags.
$(BUILD)/obj/amalgamation.o: $(AMALGAMATION)/pici.c $(BUILD)/obj/flags
	$(say) CC $<
	$(Q)$(CC) -std=c11 -O2 -pthread -Wall -Wextra $(if $(WERROR),-Werror) $(SANITIZE_FLAGS) -c -o $@ $<

$(BUILD)/obj/amalgamated.o: tests/package/amalgamated.c $(AMALGAMATION)/pici.c $(BUILD)/obj/flags
	$(say) CC $<
	$(Q)$(CC) -DAMALGAMATED -I$(AMALGAMATION) $(CFLAGS) $(BASE) -c -o $@ $<

$(BUILD)/amalgamated: $(BUILD)/obj/amalgamated.o $(BUILD)/obj/amalgamation.o
	$(say) LD $@
	$(Q)$(LINK) -o $@ $^

$(BUILD)/unamalgamated: $(BUILD)/obj/tests/package/amalgamated.o $(A)
	$(say) LD $@
	$(Q)$(LINK) -o $@ $^ $(LIBS) -lm

amalgamation-test: $(BUILD)/amalgamated $(BUILD)/unamalgamated

# ---- fuzzing

FUZZ_BIN := $(FUZZERS:%=$(BUILD)/fuzz_%)
REPLAY_BIN := $(FUZZERS:%=$(BUILD)/replay_%)

.PHONY: fuzz fuzz-replay fuzzers replayers
$(FUZZ_BIN): $(BUILD)/fuzz_%: $(BUILD)/obj/fuzz/fuzz_%.o $(TEST_PARTS)
	$(say) LD $@
	$(Q)$(LINK) -fsanitize=fuzzer -o $@ $^ $(TOOL_LIBS) $(LIBS) -lm

$(REPLAY_BIN): $(BUILD)/replay_%: $(BUILD)/obj/fuzz/fuzz_%.o $(BUILD)/obj/fuzz/replay.o $(TEST_PARTS)
	$(say) LD $@
	$(Q)$(LINK) -o $@ $^ $(TOOL_LIBS) $(LIBS) -lm

fuzzers: $(FUZZ_BIN)
replayers: $(REPLAY_BIN)

fuzz-replay:
	$(Q)$(MAKE) BUILD=$(BUILD)/replay $(FUZZ_FLAGS) SANITIZE=address,undefined replayers
	@fuzz/run replay $(BUILD)/replay $(FUZZERS)

fuzz:
	$(Q)if command -v $(FUZZ_CC) >/dev/null 2>&1; then \
		$(MAKE) BUILD=$(BUILD)/fuzz CC=$(FUZZ_CC) $(FUZZ_FLAGS) SANITIZE=address,undefined,fuzzer-no-link fuzzers && \
		FUZZ_SECONDS=$(FUZZ_SECONDS) fuzz/run fuzz $(BUILD)/fuzz $(FUZZERS); \
	else \
		echo 'fuzz: no $(FUZZ_CC), so no libFuzzer: replaying the corpus instead'; \
		$(MAKE) fuzz-replay; \
	fi

# ---- installing

# A page for each verb, out of the one that has them all.
VERBS := $(shell sed -n 's/^\.It Cm \([a-z]*\).*/\1/p' tools/picitool.1 | sort -u)
VERB_PAGES := $(VERBS:%=$(BUILD)/man/picitool-%.1)
.PHONY: man
man: $(VERB_PAGES)
$(BUILD)/man/picitool-%.1: tools/picitool.1 tools/dev/verb-man
	@mkdir -p $(@D)
	$(Q)awk -f tools/dev/verb-man -v verb=$* $< >$@

# A line of shell that writes a .pc file: library, description, what it requires, and requires when linked statically.
pc = sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@INCLUDEDIR@|$(INCLUDEDIR)|; s|@VERSION@|$(VERSION)|' \
	-e 's|@NAME@|$(1)|; s|@DESCRIPTION@|$(2)|; s|@REQUIRES@|$(3)|; s|@PRIVATE@|$(4)|' \
	-e 's|@LIBS_PRIVATE@|$(if $(filter pici,$(1)),$(if $(filter 1,$(ZFP)), -lzfp))|' \
	pici.pc.in >$(DESTDIR)$(PKGCONFIGDIR)/$(1).pc && chmod 644 $(DESTDIR)$(PKGCONFIGDIR)/$(1).pc

# The same for a file of find_package. It finds the headers from its own place.
space := $(subst ,, )
cmake = sed -e 's|@VERSION@|$(VERSION)|; s|@SOVERSION@|$(SOVERSION)|' \
	-e 's|@STATIC_LIBS@|$(subst $(space),;,$(strip $(LIBS)))|' \
	-e "s|@INCLUDE_FROM_HERE@|$$(realpath -ms --relative-to='$(CMAKEDIR)' '$(INCLUDEDIR)')|" \
	-e "s|@SIZEOF_VOID_P@|$$(echo __SIZEOF_POINTER__ | $(CC) -E -P -)|" \
	packaging/cmake/$(1).cmake.in >$(DESTDIR)$(CMAKEDIR)/$(1).cmake && chmod 644 $(DESTDIR)$(CMAKEDIR)/$(1).cmake

.PHONY: install uninstall
install: all man $(filter mpi pmpi cuda nccl,$(MAKECMDGOALS))
	install -d $(DESTDIR)$(LIBDIR) $(DESTDIR)$(INCLUDEDIR)/pici $(DESTDIR)$(BINDIR) $(DESTDIR)$(PKGCONFIGDIR) \
		$(DESTDIR)$(CMAKEDIR) $(DESTDIR)$(MANDIR)/man1 $(DESTDIR)$(BASHDIR) $(DESTDIR)$(ZSHDIR) \
		$(DESTDIR)$(FISHDIR) $(DESTDIR)$(MAGICDIR)
	install -m 644 $(A) $(DESTDIR)$(LIBDIR)/libpici.a
	install -m 755 $(SO) $(DESTDIR)$(LIBDIR)/libpici.so.$(VERSION)
	ln -sf libpici.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libpici.so.$(SOVERSION)
	ln -sf libpici.so.$(SOVERSION) $(DESTDIR)$(LIBDIR)/libpici.so
	install -m 644 $(PUBLIC_H) $(DESTDIR)$(INCLUDEDIR)/pici/
	$(call pc,pici,Lossless blocks for dense buffers that are mostly zero,,$(if $(filter 1,$(ZSTD)),libzstd))
	$(call cmake,pici-config)
	$(call cmake,pici-config-version)
	if [ -e $(MPI_A) ]; then \
		install -m 644 $(MPI_A) $(DESTDIR)$(LIBDIR)/libpici_mpi.a && \
		$(call pc,pici_mpi,Sparse collectives over MPI (link through mpicc),pici,); \
	fi
	if [ -e $(MPI_SO) ]; then \
		install -m 755 $(MPI_SO) $(DESTDIR)$(LIBDIR)/libpici_mpi.so.$(VERSION) && \
		ln -sf libpici_mpi.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libpici_mpi.so.$(SOVERSION); \
	fi
	if [ -e $(MPI_TUNE) ]; then \
		install -m 755 $(MPI_TUNE) $(DESTDIR)$(BINDIR)/pici-tune && \
		install -m 644 tools/tune/pici-tune.1 $(DESTDIR)$(MANDIR)/man1/; \
	fi
	for so in $(MPIDIR)/libpici_pmpi-*.so; do \
		if [ -e "$$so" ]; then \
			install -m 755 "$$so" $(DESTDIR)$(LIBDIR)/ && \
			sed -e 's|@VERSION@|$(VERSION)|' \
				-e "s|@LIBDIR@|$$(realpath -ms --relative-to='$(BINDIR)' '$(LIBDIR)')|" \
				preload/pici-preload >$(DESTDIR)$(BINDIR)/pici-preload && \
			chmod 755 $(DESTDIR)$(BINDIR)/pici-preload && \
			install -m 644 preload/pici-preload.1 $(DESTDIR)$(MANDIR)/man1/ || exit 1; \
		fi; \
	done
	if [ -e $(CUDA_A) ]; then \
		install -m 644 $(CUDA_A) $(DESTDIR)$(LIBDIR)/libpici_cuda.a && \
		$(call pc,pici_cuda,The codec on a GPU (link with the CUDA runtime),pici,); \
	fi
	if [ -e $(NCCL_A) ]; then \
		install -m 644 $(NCCL_A) $(DESTDIR)$(LIBDIR)/libpici_nccl.a && \
		$(call pc,pici_nccl,Sparse collectives over NCCL (link with NCCL and the CUDA runtime),pici_cuda,); \
	fi
	$(if $(TOOL),install -m 755 $(TOOL) $(DESTDIR)$(BINDIR)/picitool)
	install -m 755 $(RUN) $(DESTDIR)$(BINDIR)/pici-run
	install -m 644 tools/picitool.1 tools/run/pici-run.1 $(VERB_PAGES) $(DESTDIR)$(MANDIR)/man1/
	install -m 644 tools/completion/picitool.bash $(DESTDIR)$(BASHDIR)/picitool
	install -m 644 tools/completion/_picitool $(DESTDIR)$(ZSHDIR)/_picitool
	install -m 644 tools/completion/picitool.fish $(DESTDIR)$(FISHDIR)/picitool.fish
	install -m 644 tools/pici.magic $(DESTDIR)$(MAGICDIR)/pici

uninstall:
	rm -f $(DESTDIR)$(LIBDIR)/libpici.a $(DESTDIR)$(LIBDIR)/libpici.so $(DESTDIR)$(LIBDIR)/libpici.so.$(SOVERSION) \
		$(DESTDIR)$(LIBDIR)/libpici.so.$(VERSION) $(PUBLIC_H:include/%=$(DESTDIR)$(INCLUDEDIR)/%) \
		$(DESTDIR)$(LIBDIR)/libpici_mpi.a $(DESTDIR)$(PKGCONFIGDIR)/pici_mpi.pc \
		$(DESTDIR)$(LIBDIR)/libpici_mpi.so.$(SOVERSION) $(DESTDIR)$(LIBDIR)/libpici_mpi.so.$(VERSION) \
		$(DESTDIR)$(LIBDIR)/libpici_cuda.a $(DESTDIR)$(PKGCONFIGDIR)/pici_cuda.pc \
		$(DESTDIR)$(LIBDIR)/libpici_nccl.a $(DESTDIR)$(PKGCONFIGDIR)/pici_nccl.pc \
		$(DESTDIR)$(CMAKEDIR)/pici-config.cmake $(DESTDIR)$(CMAKEDIR)/pici-config-version.cmake \
		$(DESTDIR)$(PKGCONFIGDIR)/pici.pc $(DESTDIR)$(BINDIR)/picitool $(DESTDIR)$(MANDIR)/man1/picitool.1 \
		$(DESTDIR)$(BINDIR)/pici-tune $(DESTDIR)$(MANDIR)/man1/pici-tune.1 \
		$(DESTDIR)$(BINDIR)/pici-preload $(DESTDIR)$(MANDIR)/man1/pici-preload.1 \
		$(DESTDIR)$(LIBDIR)/libpici_pmpi-openmpi.so $(DESTDIR)$(LIBDIR)/libpici_pmpi-mpich.so \
		$(DESTDIR)$(BINDIR)/pici-run $(DESTDIR)$(MANDIR)/man1/pici-run.1 \
		$(VERBS:%=$(DESTDIR)$(MANDIR)/man1/picitool-%.1) $(DESTDIR)$(BASHDIR)/picitool $(DESTDIR)$(ZSHDIR)/_picitool \
		$(DESTDIR)$(FISHDIR)/picitool.fish $(DESTDIR)$(MAGICDIR)/pici
	-rmdir $(DESTDIR)$(INCLUDEDIR)/pici $(DESTDIR)$(CMAKEDIR) 2>/dev/null

# ---- packages for Debian and its descendants

.PHONY: deb check-deb
deb:
	@tools/dev/deb $(BUILD)/deb

check-deb:
	@tests/package/packages $(BUILD)/packages

# ---- wheels of the Python package for many Linux systems. WHEELS='x86_64 aarch64': for these machines.

WHEELS = x86_64 aarch64
.PHONY: wheels check-wheels
wheels:
	@tools/dev/wheels $(BUILD)/wheels $(WHEELS)

check-wheels: wheels
	@tests/package/wheels $(BUILD)/wheels $(WHEELS)

# ---- the rest

.PHONY: clean format lint help
format:
	@tools/dev/format
	@! command -v black >/dev/null || black --quiet python

lint:
	@CC='$(CC)' tools/dev/lint

clean:
	rm -rf $(BUILD)

help:
	@sed -n '/^## /,/^$$/s/^## \{0,1\}//p' Makefile

endif

## make                 $(BUILD)/picitool, pici-run, libpici.a, libpici.so
## make demo            a small network's real gradients to a .pici file and back; needs a C compiler and make only
## make deps            install what the tests need (Debian packages); DEPS='deb wheels': and check-deb, check-wheels
## make check           run what tests can run here, and name what cannot
## make check-python    the Python package (python/), as a wheel; a part of check
## make check-torch     pici.torch, by TORCH_PYTHON=python3, an interpreter that has torch; not a part of check
## make check-torch-own torch's own tests of torch.distributed, over the backend pici; needs expecttest too (minutes)
## make check-mpi4py    mpi4py's own tests over pici; installs mpi4py from the network in $(BUILD) (minutes)
## make check-preload-sanitized  the library of make pmpi and its programs with sanitizers (minutes)
## make check-full      every ISA level, sanitizers, corpora and the next two too
## make check-portable  plain tests for aarch64, s390x (big-endian) and i686, under qemu
## make check-scale     collectives among 16 ranks of simulated networks (SimGrid's smpicc)
## make check-avx512    plain tests where there is AVX-512: here, or else in an emulated machine (minutes)
## make fuzz            every fuzzer for FUZZ_SECONDS=60 (clang); fuzz-replay: the seed corpora only
## make bench           throughput beside memcpy; bench-peers: and beside other compressors
## make bench-delta     deltas: in memory beside memcpy, of files beside reading them
## make bench-coll      collectives among threads; bench-net: beside Open MPI's, on rate-limited hosts (root, 30 min)
## make bench-pmpi      MPI programs as they are, beside the best that Open MPI has (root, 10 min)
## make bench-torch     training by torch on rate-limited hosts, seconds to accuracy (root, 25 min; TORCH_PYTHON=)
## make bench-volume    bytes that each algorithm sends; bench-algorithms: all on rate-limited hosts (root, an hour)
## make bench-scale     collectives on simulated networks: RANKS=64 KINDS='switch fat-tree dragonfly uneven'
## make bench-neighbor  plans of neighbourhood all-gathers, and beside both MPIs; bench-neighbor-net: on rate-limited
##                      hosts (root, half an hour); bench-neighbor-scale: on simulated networks, RANKS=64 KINDS=fat-tree
## make vectors         write formats/vectors anew; make figures: the pictures of docs/predict.md
## make mpi             $(MPIDIR)/libpici_mpi.a, .so and pici-tune through MPICC=mpicc; MPIDIR=$(BUILD)/mpi
## make pmpi            $(MPIDIR)/libpici_pmpi-openmpi.so or -mpich.so, to preload into MPI programs; likewise
## make mpi-examples    $(MPIDIR)/train and spmm, for mpirun
## make cuda            $(CUDADIR)/libpici_cuda.a through NVCC=nvcc for CUDA_ARCHS='80 90 100'; CUDADIR=$(BUILD)/cuda
## make nccl            $(NCCLDIR)/libpici_nccl.a; NCCLDIR=$(BUILD)/nccl, NCCL_HOME=the CUDA toolkit; nccl-shared: .so
## make check-cuda      its tests and compute-sanitizer on a GPU, and a short benchmark; without one, the emulator's
## make gpu-kit         $(GPU_KIT)/pici-gpu, whose ./run tests and measures on a machine with a GPU; GPU_ARCH=90
## make check-mutants   device functions, kernels and collectives damaged in one place each: tests catch them all
## make bench-coll-cuda $(BUILD)/bench_coll_cuda, whose --cuda measures them on GPUs, beside NCCL's
## make bench-cuda      beside device copies, CUB and cuSPARSE, on a GPU
## make amalgamate      $(BUILD)/amalgamation/pici.c and pici.h: the codec for the CPU, to copy into another project
## make man             $(BUILD)/man, a manual page for each of picitool's verbs
## make deb             Debian packages in $(BUILD)/deb; check-deb: lintian, and try them in a chroot (root)
## make wheels          Python wheels for Linux (glibc 2.17 or later) in $(BUILD)/wheels, for WHEELS='x86_64 aarch64'
## make check-wheels    install and test them with the Pythons of an old and a new release of Debian (root)
## make install         DESTDIR= PREFIX=/usr/local; also libpici_mpi, _pmpi, _cuda and _nccl if made; uninstall
## make lint            formatting, cppcheck, include rules, headers alone; make format rewrites
## make clean
##
## Variables: BUILD=dir CC= CFLAGS= LDFLAGS= CPU_CFLAGS= (for lib/cpu) SANITIZE=address,undefined WERROR=1
##            ZSTD=0 ZLIB=0 ZFP=0 V=1
