# SPDX-License-Identifier: BSD-3-Clause
# picitool, and pici-run, which starts ranks on one host.

# Files of tools/tune/ that only pici-tune uses; mk/mpi.mk builds it.
TUNE_MPI := $(patsubst %,tools/tune/%.c,pici-tune world over calibrate points thresholds)
NOT_TOOL := tools/picitool.c $(TUNE_MPI) $(wildcard tools/run/*.c)
TOOL_OBJ := $(call obj,$(filter-out $(NOT_TOOL),$(sort $(wildcard tools/*.c tools/*/*.c))))
TOOL = $(BUILD)/picitool
RUN = $(BUILD)/pici-run

all: $(TOOL) $(RUN)

# What the tool is made of, for its tests too.
$(BUILD)/obj/tools.a: $(TOOL_OBJ)
	$(archive)

# Of libpici_coll it has the model of picitool predict alone.
$(BUILD)/obj/model.a: $(filter $(BUILD)/obj/lib/predict/% $(BUILD)/obj/lib/schedule/%,$(COLL_OBJ))
	$(archive)

# The verb mount alone needs libfuse3.
ifeq ($(FUSE),1)
$(BUILD)/obj/tools/verbs/mount.o: private override CPPFLAGS += -DPICI_HAVE_FUSE $(shell $(PKG_CONFIG) --cflags fuse3)
$(TOOL): private TOOL_LIBS += $(shell $(PKG_CONFIG) --libs fuse3)
endif

$(TOOL): $(call obj,tools/picitool.c) $(BUILD)/obj/tools.a $(BUILD)/obj/model.a $(PICI_A)
	$(call link,$(LINK),$(TOOL_LIBS) $(PICI_LIBS) -lm)

$(RUN): $(call obj,tools/run/pici-run.c)
	$(call link,$(LINK))

# A page for each verb, out of the one that has them all.
VERBS := $(shell sed -n 's/^\.It Cm \([a-z]*\).*/\1/p' tools/picitool.1 | sort -u)
VERB_PAGES := $(VERBS:%=$(BUILD)/man/picitool-%.1)
.PHONY: man
man: $(VERB_PAGES)
$(BUILD)/man/picitool-%.1: tools/picitool.1 tools/dev/verb-man
	@mkdir -p $(@D)
	$(Q)awk -f tools/dev/verb-man -v verb=$* $< >$@
##
## The tool:
##   make man             $(BUILD)/man, a manual page for each of picitool's verbs
