# SPDX-License-Identifier: BSD-3-Clause
# examples/*.c, a program each.

EXAMPLES := $(patsubst examples/%.c,$(BUILD)/%,$(sort $(wildcard examples/*.c)))
# Those that have communicators; the others need libpici alone.
COLL_EXAMPLES := $(addprefix $(BUILD)/,spmm train transport)

$(COLL_EXAMPLES): $(BUILD)/%: $(BUILD)/obj/examples/%.o $(A)
	$(program)

$(filter-out $(COLL_EXAMPLES),$(EXAMPLES)): $(BUILD)/%: $(BUILD)/obj/examples/%.o $(PICI_A)
	$(call link,$(LINK),$(PICI_LIBS) -lm)

# For those who try it first: by all cores, unless told otherwise by -j, and with the number of commands that a dry run
# counts.
.PHONY: demo demo-parts
CORES = $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
demo-parts: $(BUILD)/demo $(TOOL)
	@:
demo:
	@$(MAKE) $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(CORES)) demo-parts \
		TOTAL=$$($(MAKE) -n demo-parts | grep -c '^printf ')
	@$(BUILD)/demo $(TOOL) $(BUILD)/demo-files
##
## Examples:
##   make demo            a small network's real gradients to a .pici file and back; needs a C compiler and make only
##   make mpi-examples    $(MPIDIR)/train and spmm, for mpirun
