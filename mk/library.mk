# SPDX-License-Identifier: BSD-3-Clause
# The libraries for the CPU: libpici_coll, collectives and what they choose by, and libpici, all else of lib/, which
# needs nothing of the other.

PUBLIC_H := $(sort $(wildcard include/pici/*.h include/pici/*.cuh))
# What libraries of their own are made of.
MPI_SRC := $(sort $(wildcard lib/transport/mpi*.c))
NCCL_SRC := $(sort $(wildcard lib/transport/nccl*.c))
ELSEWHERE := lib/coll/engine_cuda.c $(MPI_SRC) $(NCCL_SRC)
COLL_FOLDERS = schedule predict values coll transport
COLL_SRC := $(filter-out $(ELSEWHERE),$(sort $(wildcard $(COLL_FOLDERS:%=lib/%/*.c))))
PICI_SRC := $(filter-out $(COLL_SRC) $(ELSEWHERE),$(sort $(wildcard lib/*.c lib/*/*.c)))
# The kernels first, since these take longest.
PICI_OBJ := $(call obj,$(filter lib/cpu/%,$(PICI_SRC)) $(filter-out lib/cpu/%,$(PICI_SRC)))
COLL_OBJ := $(call obj,$(COLL_SRC))
ifneq ($(findstring darwin,$(MACHINE)),)
COLL_OBJ += $(BUILD)/obj/packaging/macos/linux_names.o
endif

PICI_A = $(BUILD)/libpici.a
COLL_A = $(BUILD)/libpici_coll.a
A = $(COLL_A) $(PICI_A)
PICI_SO = $(BUILD)/libpici.so
COLL_SO = $(BUILD)/libpici_coll.so
SO = $(COLL_SO) $(PICI_SO)

all: $(A) $(SO)

ifeq ($(ZFP),1)
$(BUILD)/obj/lib/values/zfp.o: private override CPPFLAGS += -DPICI_HAVE_ZFP
endif

ifeq ($(TLS),1)
$(BUILD)/obj/lib/transport/secure.o: private override CPPFLAGS += -DPICI_HAVE_TLS \
	$(shell $(PKG_CONFIG) --cflags openssl)
endif

$(PICI_A): $(PICI_OBJ)
	$(archive)

$(COLL_A): $(COLL_OBJ)
	$(archive)

# What a library exports: lib/NAME.map.
$(PICI_SO): $(PICI_OBJ)
	$(call link,$(LINK) $(call SHARED,libpici.so) $(call MAP,pici),$(PICI_LIBS))
	$(Q)ln -sf $(@F) $@.$(SOVERSION)

$(COLL_SO): $(COLL_OBJ) $(PICI_SO)
	$(call link,$(LINK) $(call SHARED,libpici_coll.so) $(BESIDE) $(call MAP,pici_coll),$(COLL_LIBS))
	$(Q)ln -sf $(@F) $@.$(SOVERSION)

$(PICI_SO): lib/pici.map
$(COLL_SO): lib/pici_coll.map mk/library.mk
