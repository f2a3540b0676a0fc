# SPDX-License-Identifier: BSD-3-Clause
# For those who change this: formatting, checks of the text, files that are checked in and made by programs.

.PHONY: format lint figures vectors hooks debug compile_commands.json
format:
	@tools/dev/format
	@! command -v black >/dev/null || { black --quiet python && \
		black --quiet --config python/pyproject.toml site tests/dev/site_page.py \
		tools/dev/benchmarks tools/dev/prose.py tools/dev/readability; }

lint:
	@CC='$(CC)' tools/dev/lint

# git formats and lints committed files.
hooks:
	git config core.hooksPath tools/dev/hooks

# For gdb. Its files are separate from other builds' files.
debug:
	$(Q)$(MAKE) BUILD=$(BUILD)/debug CFLAGS='-O0 -g3' CPU_CFLAGS= test-programs

# How each C file is compiled, for clangd and others: the commands that make would run.
compile_commands.json:
	$(Q)$(MAKE) -nB V=1 BUILD=$(BUILD) test-programs | tools/dev/compile-commands >$@.new && mv $@.new $@

# The figures of docs/explanation/predict.md and docs/benchmarks.md anew.
figures: $(TOOL)
	tools/dev/figures $(TOOL)
	tools/dev/benchmarks

# The golden vectors anew. They are checked in, and change only with the format.
VECTORS = formats/vectors
GENERATORS := $(addprefix $(BUILD)/,genvectors genpacked gensmall genvalues genfiles $(if $(filter 1,$(ZFP)),genzfp))
vectors: $(GENERATORS)
	$(foreach g,$(GENERATORS),$(g) $(VECTORS) &&) :

$(BUILD)/genzfp: private MORE_LIBS = -lzfp -lm
$(addprefix $(BUILD)/,genvectors genpacked gensmall genvalues genfiles genzfp): $(BUILD)/%: \
		$(call obj,$(wildcard formats/ref*.c)) $(BUILD)/obj/formats/%.o
	$(call link,$(LINK),$(MORE_LIBS))
##
## To change pici:
##   make format          format all sources; lint: formatting, cppcheck, include rules, headers alone
##   make hooks           have git do both with committed files
##   make debug           test-programs for gdb (-O0 -g3), in $(BUILD)/debug
##   make compile_commands.json   for clangd and other tools
##   make vectors         write formats/vectors anew; make figures: the pictures of docs/explanation/predict.md
