# SPDX-License-Identifier: BSD-3-Clause
#
# make help lists the targets. Everything made lies under $(BUILD), so that builds with other flags live side by side:
#     make BUILD=build/clang CC=clang
#     make BUILD=build/asan SANITIZE=address,undefined check
#
# This file has the common parts: folders, compilers, flags, and the rules that compile and link a file. Each file of
# mk/ has one part, with its lines of make help. make finds sources by their names: lib/*.c and lib/*/*.c are the
# libraries, tools/*.c and tools/*/*.c the tool, tests/unit/*.c one program, tests/plain/*.c, examples/*.c,
# fuzz/fuzz_*.c and tests/mpi/*.c a program each.

ifneq ($(filter deps,$(MAKECMDGOALS)),)

# make builds what the installed packages allow. So with deps, all other targets wait for it, and for a second make.
AFTER := $(filter-out deps,$(MAKECMDGOALS))
.PHONY: deps $(AFTER)
deps:
	@tools/dev/deps $(DEPS)
	$(if $(AFTER),@$(MAKE) --no-print-directory $(AFTER))
$(AFTER): deps
	@:

else

BUILD = build
VERSION := $(shell sed -n 's/.*define PICI_VERSION "\(.*\)"/\1/p' include/pici/pici.h)
SOVERSION = 0

.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: all FORCE clean help
all:

# ---- what there is

PKG_CONFIG = pkg-config
have = $(shell $(PKG_CONFIG) --exists $(1) 2>/dev/null && echo 1)
ifndef ZSTD
ZSTD := $(or $(call have,libzstd),0)
endif
ifndef ZLIB
ZLIB := $(or $(call have,zlib),0)
endif
ifndef FUSE
FUSE := $(or $(call have,'fuse3 >= 3.12'),0)
endif

# The lossy codec ZFP, over libzfp 1.0 or later, which has no file for pkg-config: is there its header, and the library?
ifndef ZFP
ZFP := $(shell printf '%s\n' '\#include <zfp.h>' '\#if ZFP_VERSION_MAJOR < 1' '\#error' '\#endif' | \
	$(CC) $(CPPFLAGS) $(CFLAGS) -E - >/dev/null 2>&1 && \
	for f in libzfp.so libzfp.a; do [ -e "$$($(CC) $(CFLAGS) -print-file-name=$$f)" ] && echo 1 && exit; done || echo 0)
endif

# Encrypted sockets, over OpenSSL 1.1.1 or later.
ifndef TLS
TLS := $(or $(call have,'openssl >= 1.1.1'),0)
endif

# A C++ compiler of the same make as CC, unless one is named.
ifeq ($(origin CXX),default)
CXX := $(shell printf '%s\n' '$(CC)' | \
	sed 's/clang$$/clang++/; s/clang-\([0-9]*\)$$/clang++-\1/; s/gcc/g++/; s/^cc$$/c++/')
endif

# ---- flags

CFLAGS ?= -O2 -g
MACHINE := $(shell $(CC) -dumpmachine 2>/dev/null)
# GCC unrolls loops for s390x at -O3, and then takes minutes and gigabytes for the kernels. Where their variables are is
# a third of the time that the kernels take to compile, and hardly tells anything at -O3: functions and lines (-g1) do.
CPU_CFLAGS := $(if $(filter s390x-%,$(MACHINE)),-O2,-O3) $(if $(filter -g%,$(CFLAGS)),-g1)
# x87 arithmetic rounds twice: doubles would be added wrongly, once in a thousand times or so.
I386_FLAGS := $(if $(filter i386-% i486-% i586-% i686-%,$(MACHINE)),-msse2 -mfpmath=sse)
SANITIZE =
WERROR =
# More flags for the kernels of AVX2 and AVX-512, which clang instruments for minutes.
AVX_CFLAGS =

WARN = -Wall -Wextra -Wshadow -Wpointer-arith -Wwrite-strings -Wstrict-prototypes -Wundef $(if $(WERROR),-Werror)
override CPPFLAGS += -Iinclude -Ilib -D_FILE_OFFSET_BITS=64
SANITIZE_FLAGS = $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer)
# Debug information and messages name files by their paths in this tree, wherever it is.
PATHS = '-ffile-prefix-map=$(CURDIR)=.'
BASE = -std=c11 $(WARN) -pthread $(PATHS) $(SANITIZE_FLAGS)
COMPILE_FLAGS = $(CPPFLAGS) $(BASE) $(CFLAGS) -MMD -MP
COMPILE = $(CC) $(COMPILE_FLAGS)
LINK_FLAGS = -pthread $(CFLAGS) $(if $(SANITIZE),-fsanitize=$(SANITIZE)) $(LDFLAGS)
LINK = $(CC) $(LINK_FLAGS)
# A shared library, by the name that programs load it by. One with sanitizers has symbols of their runtime's.
SHARED = -shared -Wl,-soname,$(1).$(SOVERSION) $(if $(SANITIZE),,-Wl,-z,defs)
# Where a library looks for libpici before the system's folders. A program's own path does not hold for its libraries.
BESIDE = -Wl,-rpath,'$$ORIGIN'
MAP = -Wl,--version-script=lib/$(1).map
# macOS: exports follow from the visibility of functions alone.
ifneq ($(findstring darwin,$(MACHINE)),)
override CPPFLAGS += -include packaging/macos/linux_names.h
SHARED = -dynamiclib -Wl,-install_name,@rpath/$(1).$(SOVERSION)
BESIDE = -Wl,-rpath,@loader_path
MAP =
endif
# What libpici is linked with, what libpici_coll, and what programs that have both.
LIBS ?=
GIVEN_LIBS := $(LIBS)
PICI_LIBS := $(LIBS)
COLL_LIBS := $(LIBS)

ifeq ($(ZSTD),1)
override CPPFLAGS += -DPICI_HAVE_ZSTD $(shell $(PKG_CONFIG) --cflags libzstd)
ZSTD_LIBS := $(shell $(PKG_CONFIG) --libs libzstd)
PICI_LIBS += $(ZSTD_LIBS)
LIBS += $(ZSTD_LIBS)
endif
ifeq ($(ZFP),1)
COLL_LIBS += -lzfp
LIBS += -lzfp
endif
ifeq ($(TLS),1)
TLS_LIBS := $(shell $(PKG_CONFIG) --libs openssl)
COLL_LIBS += $(TLS_LIBS)
LIBS += $(TLS_LIBS)
endif
# For the tool, not for the libraries: deflated .npz files and pictures.
TOOL_LIBS =
ifeq ($(ZLIB),1)
override CPPFLAGS += -DPICI_HAVE_ZLIB $(shell $(PKG_CONFIG) --cflags zlib)
TOOL_LIBS += $(shell $(PKG_CONFIG) --libs zlib)
endif

# Additional flags for C files, by folder.
# No contraction: all ranks must predict the same times, even if compiled for different CPUs (lib/predict/tune.c).
FLAGS_lib = -ffp-contract=off -fPIC -fvisibility=hidden -Wmissing-prototypes -DPICI_BUILD \
	$(if $(filter lib/cpu/%,$<),$(I386_FLAGS) $(CPU_CFLAGS)) $(if $(filter lib/cpu/avx%,$<),$(AVX_CFLAGS))
FLAGS_preload = $(FLAGS_lib) -I.
FLAGS_python = -fPIC -fvisibility=hidden -Wmissing-prototypes -isystem $(PYTHON_INCLUDE)
FLAGS_tools = -Itools -I. -Wmissing-prototypes
FLAGS_plugins = -fPIC -fvisibility=hidden -Wmissing-prototypes -I.
FLAGS_others = -Itools -I.
own_flags = $(FLAGS_$(or $(filter lib preload python plugins tools,$(firstword $(subst /, ,$<))),others))

# ---- recipes

MAKEFLAGS += --no-print-directory
Q = $(if $(filter 1,$(V)),,@)
# What a command does. TOTAL: how many such commands there are.
TOTAL =
DONE :=
progress = $(if $(TOTAL),$(eval DONE += 1)printf '[%3d/$(TOTAL)] %-4s %s\n' $(words $(DONE)),printf '  %-4s %s\n')
say = @$(if $(filter 1,$(V))$(findstring s,$(firstword -$(MAKEFLAGS))),:,$(progress))
comma = ,
space := $(subst ,, )

# $(call stamp,TEXT): a file with that text, which is only written when the text is another one. What depends on it is
# made anew when compiler or flags change. With make -n too (+), so that it names what would be made.
stamp = $(call stamped,$(subst ','\'',$(1)))
define stamped
+@mkdir -p $(@D)
+@echo '$(1)' | cmp -s - $@ || echo '$(1)' >$@
endef

# $(call compile,WORD,COMMAND)
define compile
$(say) $(1) $<
@mkdir -p $(@D)
$(Q)$(2) -c -o $@ $<
endef

# A static library of all prerequisites.
define archive
$(say) AR $@
$(Q)rm -f $@ && $(AR) rcs $@ $^
endef

# $(call link,COMMAND,LIBRARIES): of all prerequisites that are linked. Programs mostly take $(program). MORE_FLAGS and
# MORE_LIBS are for single ones.
define link
$(say) LD $@
$(Q)$(1) -o $@ $(filter %.o %.a %.so,$^) $(2)
endef
program = $(call link,$(LINK) $(MORE_FLAGS),$(MORE_LIBS) $(LIBS) -lm)
# For the linker: the program's calls of these functions are calls of __wrap_FUNCTION.
wrap = $(1:%=-Wl$(comma)--wrap=%)

obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
FLAGS_STAMP = $(BUILD)/obj/flags
$(FLAGS_STAMP): FORCE
	$(call stamp,$(CC) $(CPPFLAGS) $(CFLAGS) $(CPU_CFLAGS) $(AVX_CFLAGS) $(BASE) $(LDFLAGS) $(LIBS))

$(BUILD)/obj/%.o: %.c $(FLAGS_STAMP)
	$(call compile,CC,$(COMPILE) $(own_flags))

# ---- the parts, each after what it uses

PARTS = library tool examples hdf5 python mpi cuda nccl tests fuzz emulator scale bench bench-coll amalgamation \
	install packages site dev
include $(PARTS:%=mk/%.mk)

-include $(shell find $(addsuffix /obj,$(BUILD) $(MPIDIR) $(CUDADIR) $(NCCLDIR)) -name '*.d' 2>/dev/null | sort -u)

clean:
	rm -rf $(BUILD)

help:
	@sed -n 's/^## \{0,1\}//p' Makefile $(PARTS:%=mk/%.mk)

endif

## To begin with:
##   make                 $(BUILD)/picitool, pici-run, libpici.a, libpici.so, libpici_coll.a, libpici_coll.so
##   make deps            install what the tests need (Debian packages); DEPS='deb wheels': and check-deb, check-wheels
##   make clean
##
## Variables: BUILD=dir CC= CFLAGS= LDFLAGS= CPU_CFLAGS= (for lib/cpu) AVX_CFLAGS= SANITIZE=address,undefined WERROR=1
##            ZSTD=0 ZLIB=0 ZFP=0 TLS=0 FUSE=0 V=1
