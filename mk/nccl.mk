# SPDX-License-Identifier: BSD-3-Clause
# The transport over NCCL, a library of its own. Headers and libraries of CUDA and NCCL come from nvcc's toolkit.

NCCL_HOME = $(CUDA_HOME)
NCCLDIR = $(BUILD)/nccl
NCCL_A = $(NCCLDIR)/libpici_nccl.a
NCCL_OBJ = $(NCCL_SRC:%.c=$(NCCLDIR)/obj/%.o)
NCCL_INCLUDES = -isystem $(NCCL_HOME)/include -isystem $(CUDA_HOME)/include
NCCL_LIBS = -L$(NCCL_HOME)/lib -L$(NCCL_HOME)/lib64 -L$(CUDA_HOME)/lib64 -lnccl -lcudart -lstdc++
NCCL_TESTS := $(patsubst tests/gpu/%.c,$(NCCLDIR)/%,$(sort $(wildcard tests/gpu/nccl_*.c)))

.PHONY: nccl nccl-tests nccl-shared
nccl: $(NCCL_A)
nccl-tests: $(NCCL_TESTS) $(NCCLDIR)/example.o
nccl-shared: $(NCCLDIR)/libpici_nccl.so

$(NCCLDIR)/obj/flags: FORCE
	$(call stamp,$(COMPILE) $(NCCL_INCLUDES))

$(NCCLDIR)/obj/%.o: %.c $(NCCLDIR)/obj/flags
	$(call compile,NCCL,$(COMPILE) $(own_flags) $(NCCL_INCLUDES))

$(NCCL_A): $(NCCL_OBJ)
	$(archive)

# For programs that load it while they run, as the Python package does. With the engine for GPUs inside.
$(NCCLDIR)/libpici_nccl.so: $(NCCL_OBJ) $(CUDA_OBJ) $(SO)
	$(call link,$(LINK) $(call SHARED,libpici_nccl.so),$(NCCL_LIBS))

# The example of docs/how-to/gpu-collectives.md.
$(NCCLDIR)/example.c: docs/how-to/gpu-collectives.md
	@mkdir -p $(@D)
	$(Q)awk '/^```nccl$$/ { on = 1; next } /^```$$/ { on = 0 } on' $< >$@

$(NCCLDIR)/example.o: $(NCCLDIR)/example.c
	$(call compile,CC,$(COMPILE) $(NCCL_INCLUDES))

$(NCCL_TESTS): $(NCCLDIR)/%: $(NCCLDIR)/obj/tests/gpu/%.o $(NCCL_A) $(CUDA_A) $(A)
	$(call link,$(LINK),$(NCCL_LIBS) $(LIBS) -lm)
##   make nccl            $(NCCLDIR)/libpici_nccl.a; NCCLDIR=$(BUILD)/nccl, NCCL_HOME=the CUDA toolkit; nccl-shared: .so
