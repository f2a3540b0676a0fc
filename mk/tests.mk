# SPDX-License-Identifier: BSD-3-Clause
# tests/unit/*.c, one program of Criterion's, and tests/plain/*.c, programs that need libc alone. check installs
# nothing, runs what it can and names what it could not.

PLAIN := $(patsubst tests/plain/%.c,$(BUILD)/plain_%,$(sort $(wildcard tests/plain/*.c)))
UNIT_OBJ := $(call obj,$(sort $(wildcard tests/unit/*.c)))
TEST_OBJ := $(call obj,$(sort $(wildcard tests/util/*.c)) $(wildcard formats/ref*.c) plugins/hdf5/chunk.c)
TEST_PARTS = $(BUILD)/obj/testing.a $(BUILD)/obj/tools.a $(A)
XXHASH := $(call have,libxxhash)
UNIT := $(if $(call have,criterion),$(BUILD)/tests)
COUNTED = $(call wrap,malloc calloc realloc aligned_alloc free)
# AGAIN: the command line that runs a test again, but for its name, with the variables of this one, in whose values
# there may be blanks.
VARIABLES = $(subst @@,\$(space),$(filter-out T=%,$(subst \$(space),@@,$(MAKEOVERRIDES))))
TEST_ENV = BUILD='$(BUILD)' CC='$(CC)' MAKE='$(MAKE)' SANITIZE='$(SANITIZE)' ZSTD='$(ZSTD)' \
	ZLIB='$(ZLIB)' ZFP='$(ZFP)' TLS='$(TLS)' FUSE='$(FUSE)' \
	AGAIN='make $(if $(VARIABLES),$(subst ','\'',$(VARIABLES)) )test'
T =

.PHONY: check check-quick test check-full check-portable check-avx512 plain examples test-programs
plain: $(PLAIN)
examples: $(EXAMPLES)
test-programs: all $(PLAIN) $(UNIT) $(EXAMPLES)

# What tests share, each taking what it needs.
$(BUILD)/obj/testing.a: $(TEST_OBJ)
	$(archive)

# Three count what the library allocates, or have some of it fail; the other has sockets take a few bytes at a time.
$(BUILD)/plain_calls $(BUILD)/plain_coll_memory $(BUILD)/plain_no_memory: private MORE_FLAGS = $(COUNTED)
$(BUILD)/plain_socket: private MORE_FLAGS = $(call wrap,sendmsg)
$(PLAIN): private MORE_LIBS = $(TOOL_LIBS)
$(PLAIN): $(BUILD)/plain_%: $(BUILD)/obj/tests/plain/%.o $(TEST_PARTS)
	$(program)

# Criterion finds its tests by a section that position-independent executables relocate.
$(UNIT_OBJ): private override CPPFLAGS += $(if $(XXHASH),-DPICI_TEST_XXHASH)
$(BUILD)/tests: private MORE_FLAGS = -no-pie
$(BUILD)/tests: private MORE_LIBS = $(shell $(PKG_CONFIG) --libs criterion) $(if $(XXHASH),-lxxhash) $(TOOL_LIBS)
$(BUILD)/tests: $(UNIT_OBJ) $(TEST_PARTS)
	$(program)

check: test-programs
	@$(TEST_ENV) tests/run $(BUILD)

check-quick: test-programs
	@$(TEST_ENV) tests/run $(BUILD) quick

test:
	@$(TEST_ENV) tests/run $(BUILD) only $(T)

check-full: test-programs
	@for isa in $(if $(filter aarch64,$(shell uname -m)),scalar neon,scalar avx2 avx512); do \
		echo "PICI_CPU=$$isa"; \
		PICI_CPU=$$isa PICI_TEST_FULL=1 $(TEST_ENV) tests/run $(BUILD) || exit 1; \
	done
	$(Q)$(MAKE) BUILD=$(BUILD)/asan SANITIZE=address,undefined check
	$(Q)$(MAKE) fuzz-replay check-portable check-avx512 check-mutants

check-portable:
	@MAKE='$(MAKE)' tests/portable $(BUILD)/portable

check-avx512:
	@MAKE='$(MAKE)' tests/avx512/run $(BUILD)/avx512
##
## Tests:
##   make check           run what tests can run here, and name what cannot
##   make check-quick     those that take little time: two minutes at the most
##   make test T=NAME     one suite, program or script, by a part of its name (tests/run BUILD list: the names)
##   make check-full      every ISA level, sanitizers, corpora, check-portable, check-avx512 and check-mutants too
##   make check-portable  plain tests for aarch64, s390x (big-endian) and i686, under qemu
##   make check-avx512    plain tests where there is AVX-512: here, or else in an emulated machine (minutes)
