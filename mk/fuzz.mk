# SPDX-License-Identifier: BSD-3-Clause
# fuzz/fuzz_*.c, a fuzzer each, and a program that gives it the inputs that are checked in.

FUZZ_CC = clang
FUZZ_FLAGS = CFLAGS='-O1 -g' CPU_CFLAGS=
FUZZ_SECONDS = 60
FUZZERS := $(patsubst fuzz/fuzz_%.c,%,$(sort $(wildcard fuzz/fuzz_*.c)))
FUZZ_BIN := $(FUZZERS:%=$(BUILD)/fuzz_%)
REPLAY_BIN := $(FUZZERS:%=$(BUILD)/replay_%)

.PHONY: fuzz fuzz-replay fuzzers replayers
fuzzers: $(FUZZ_BIN)
replayers: $(REPLAY_BIN)

$(FUZZ_BIN) $(REPLAY_BIN): private MORE_LIBS = $(TOOL_LIBS)
$(FUZZ_BIN): private MORE_FLAGS = -fsanitize=fuzzer
$(FUZZ_BIN): $(BUILD)/fuzz_%: $(BUILD)/obj/fuzz/fuzz_%.o $(TEST_PARTS)
	$(program)

$(REPLAY_BIN): $(BUILD)/replay_%: $(BUILD)/obj/fuzz/fuzz_%.o $(BUILD)/obj/fuzz/replay.o $(TEST_PARTS)
	$(program)

ifeq ($(TLS),1)
$(BUILD)/obj/fuzz/fuzz_secure.o: private override CPPFLAGS += -DPICI_HAVE_TLS $(shell $(PKG_CONFIG) --cflags openssl)
endif

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
##   make fuzz            every fuzzer for FUZZ_SECONDS=60 (clang); fuzz-replay: the seed corpora only
