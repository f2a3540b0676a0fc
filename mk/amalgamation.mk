# SPDX-License-Identifier: BSD-3-Clause
# The codec as one file, and what it makes beside what the library makes.

AMALGAMATION = $(BUILD)/amalgamation
AMALGAMATION_OPTIMIZATION ?= -O2
AMALGAM_FROM := tools/dev/amalgamate LICENSE include/pici/pici.h include/pici/delta.h \
	$(sort $(wildcard lib/*.[ch] lib/codec/*.[ch] lib/cpu/*))

.PHONY: amalgamate amalgamation-test
amalgamate: $(AMALGAMATION)/pici.c
amalgamation-test: $(BUILD)/amalgamated $(BUILD)/unamalgamated

$(AMALGAMATION)/pici.c: $(AMALGAM_FROM)
	$(say) GEN $@
	$(Q)tools/dev/amalgamate --cc '$(CC)' $(@D)

# As its users compile it: not from our folder, and with none of our flags.
$(BUILD)/obj/amalgamation.o: $(AMALGAMATION)/pici.c $(FLAGS_STAMP)
	$(call compile,CC,$(CC) -std=c11 $(AMALGAMATION_OPTIMIZATION) -pthread -Wall -Wextra $(if $(WERROR),-Werror) \
		$(SANITIZE_FLAGS))

$(BUILD)/obj/amalgamated.o: tests/package/amalgamated.c $(AMALGAMATION)/pici.c $(FLAGS_STAMP)
	$(call compile,CC,$(CC) -DAMALGAMATED -I$(AMALGAMATION) $(CFLAGS) $(BASE))

$(BUILD)/amalgamated: $(BUILD)/obj/amalgamated.o $(BUILD)/obj/amalgamation.o
	$(call link,$(LINK))

$(BUILD)/unamalgamated: $(BUILD)/obj/tests/package/amalgamated.o $(A)
	$(program)
##
## To use elsewhere:
##   make amalgamate      $(BUILD)/amalgamation/pici.c and pici.h: the codec for the CPU, to copy into another project
