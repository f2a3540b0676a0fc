# SPDX-License-Identifier: BSD-3-Clause
# The library, lib/*.c and lib/*/*.c but for what other libraries are made of.

PUBLIC_H := $(sort $(wildcard include/pici/*.h include/pici/*.cuh))
MPI_SRC := $(sort $(wildcard lib/transport/mpi*.c))
NCCL_SRC := $(sort $(wildcard lib/transport/nccl*.c))
LIB_SRC := $(filter-out lib/coll/engine_cuda.c $(MPI_SRC) $(NCCL_SRC),$(sort $(wildcard lib/*.c lib/*/*.c)))
# The kernels first, since these take longest.
LIB_OBJ := $(call obj,$(filter lib/cpu/%,$(LIB_SRC)) $(filter-out lib/cpu/%,$(LIB_SRC)))

A = $(BUILD)/libpici.a
SO = $(BUILD)/libpici.so

all: $(A) $(SO)

ifeq ($(ZFP),1)
$(BUILD)/obj/lib/values/zfp.o: private override CPPFLAGS += -DPICI_HAVE_ZFP
endif

$(A): $(LIB_OBJ)
	$(archive)

$(SO): $(LIB_OBJ) lib/pici.map
	$(call link,$(LINK) $(call SHARED,libpici.so) -Wl$(comma)--version-script=lib/pici.map,$(LIBS))
	$(Q)ln -sf libpici.so $@.$(SOVERSION)
