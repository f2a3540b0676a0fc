# SPDX-License-Identifier: BSD-3-Clause
# For those who change this: formatting, checks of the text, files that are checked in and made by programs.

.PHONY: format lint figures vectors
format:
	@tools/dev/format
	@! command -v black >/dev/null || black --quiet python

lint:
	@CC='$(CC)' tools/dev/lint

# The figures of docs/predict.md anew.
figures: $(TOOL)
	tools/dev/figures $(TOOL)

# The golden vectors anew. They are checked in, and change only with the format.
VECTORS = formats/vectors
GENERATORS := $(BUILD)/genvectors $(BUILD)/gensmall $(BUILD)/genvalues $(if $(filter 1,$(ZFP)),$(BUILD)/genzfp)
vectors: $(GENERATORS)
	$(foreach g,$(GENERATORS),$(g) $(VECTORS) &&) :

$(BUILD)/genzfp: private MORE_LIBS = -lzfp -lm
$(addprefix $(BUILD)/,genvectors gensmall genvalues genzfp): $(BUILD)/%: \
		$(call obj,$(wildcard formats/ref*.c)) $(BUILD)/obj/formats/%.o
	$(call link,$(LINK),$(MORE_LIBS))
##
## To change pici:
##   make format          rewrite what is not formatted; lint: formatting, cppcheck, include rules, headers alone
##   make vectors         write formats/vectors anew; make figures: the pictures of docs/predict.md
