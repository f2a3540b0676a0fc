# SPDX-License-Identifier: BSD-3-Clause
# examples/*.c, a program each.

EXAMPLES := $(patsubst examples/%.c,$(BUILD)/%,$(sort $(wildcard examples/*.c)))

$(EXAMPLES): $(BUILD)/%: $(BUILD)/obj/examples/%.o $(A)
	$(program)

.PHONY: demo
demo: $(BUILD)/demo $(TOOL)
	@$(BUILD)/demo $(TOOL) $(BUILD)/demo-files
##
## Examples:
##   make demo            a small network's real gradients to a .pici file and back; needs a C compiler and make only
##   make mpi-examples    $(MPIDIR)/train and spmm, for mpirun
