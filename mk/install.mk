# SPDX-License-Identifier: BSD-3-Clause
# Installing. The libraries for MPI, CUDA and NCCL too, if they have been made.

PREFIX = /usr/local
LIBDIR = $(PREFIX)/lib
INCLUDEDIR = $(PREFIX)/include
BINDIR = $(PREFIX)/bin
MANDIR = $(PREFIX)/share/man
BASHDIR = $(PREFIX)/share/bash-completion/completions
ZSHDIR = $(PREFIX)/share/zsh/site-functions
FISHDIR = $(PREFIX)/share/fish/vendor_completions.d
MAGICDIR = $(PREFIX)/share/file/magic
PKGCONFIGDIR = $(LIBDIR)/pkgconfig
CMAKEDIR = $(LIBDIR)/cmake/pici
DESTDIR =

# A line of shell that writes a .pc file: name (a dash for the library's underscore), description, what it requires;
# what it requires, and is linked with, when linked statically.
pc = sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@INCLUDEDIR@|$(INCLUDEDIR)|; s|@VERSION@|$(VERSION)|' \
	-e 's|@NAME@|$(1)|; s|@LIB@|$(subst -,_,$(1))|; s|@DESCRIPTION@|$(2)|; s|@REQUIRES@|$(3)|; s|@PRIVATE@|$(4)|' \
	-e 's|@LIBS_PRIVATE@|$(if $(5), $(5))|' \
	pici.pc.in >$(DESTDIR)$(PKGCONFIGDIR)/$(1).pc && chmod 644 $(DESTDIR)$(PKGCONFIGDIR)/$(1).pc

# The same for a file of find_package. It finds the headers from its own place.
cmake = sed -e 's|@VERSION@|$(VERSION)|; s|@SOVERSION@|$(SOVERSION)|' \
	-e 's|@PICI_LIBS@|$(subst $(space),;,$(strip $(PICI_LIBS)))|' \
	-e 's|@COLL_LIBS@|$(subst $(space),;,$(strip $(COLL_LIBS)))|' \
	-e "s|@INCLUDE_FROM_HERE@|$$(realpath -ms --relative-to='$(CMAKEDIR)' '$(INCLUDEDIR)')|" \
	-e "s|@SIZEOF_VOID_P@|$$(echo __SIZEOF_POINTER__ | $(CC) -E -P -)|" \
	packaging/cmake/$(1).cmake.in >$(DESTDIR)$(CMAKEDIR)/$(1).cmake && chmod 644 $(DESTDIR)$(CMAKEDIR)/$(1).cmake

# A line of shell that installs a static library with its .pc file, if it has been made: FILE and the arguments of pc.
with_pc = if [ -e $(1) ]; then install -m 644 $(1) $(DESTDIR)$(LIBDIR)/ && $(call pc,$(2),$(3),$(4),$(5),$(6)); fi
# The same for a shared library, with the link by which programs load it.
shared = if [ -e $(1) ]; then install -m 755 $(1) $(DESTDIR)$(LIBDIR)/$(notdir $(1)).$(VERSION) && \
	ln -sf $(notdir $(1)).$(VERSION) $(DESTDIR)$(LIBDIR)/$(notdir $(1)).$(SOVERSION); fi

DIRS = $(LIBDIR) $(INCLUDEDIR)/pici $(BINDIR) $(PKGCONFIGDIR) $(CMAKEDIR) $(MANDIR)/man1 $(BASHDIR) $(ZSHDIR) \
	$(FISHDIR) $(MAGICDIR)

.PHONY: install uninstall
install: all man $(filter mpi pmpi cuda nccl hdf5,$(MAKECMDGOALS))
	install -d $(addprefix $(DESTDIR),$(DIRS))
	install -m 644 $(PUBLIC_H) $(DESTDIR)$(INCLUDEDIR)/pici/
	$(call with_pc,$(PICI_A),pici,Lossless blocks for dense buffers that are mostly zero,,$(if $(ZSTD_LIBS),libzstd))
	$(call with_pc,$(COLL_A),pici-coll,Sparse collectives,pici,,$(filter -lzfp -lssl -lcrypto,$(COLL_LIBS)))
	$(call shared,$(PICI_SO))
	$(call shared,$(COLL_SO))
	for lib in libpici libpici_coll; do ln -sf $$lib.so.$(SOVERSION) $(DESTDIR)$(LIBDIR)/$$lib.so || exit 1; done
	$(call cmake,pici-config)
	$(call cmake,pici-config-version)
	$(call with_pc,$(MPI_A),pici_mpi,Sparse collectives over MPI (link through mpicc),pici-coll)
	$(call shared,$(MPI_SO))
	$(call with_pc,$(CUDA_A),pici_cuda,The codec on a GPU (link with the CUDA runtime),pici-coll)
	$(call with_pc,$(NCCL_A),pici_nccl,Sparse collectives over NCCL (link with NCCL and the CUDA runtime),pici_cuda)
	if [ -e $(H5_SO) ]; then \
		install -d $(DESTDIR)$(LIBDIR)/pici/hdf5 && install -m 755 $(H5_SO) $(DESTDIR)$(LIBDIR)/pici/hdf5/; \
	fi
	if [ -e $(MPI_TUNE) ]; then \
		install -m 755 $(MPI_TUNE) $(DESTDIR)$(BINDIR)/pici-tune && \
		install -m 644 tools/tune/pici-tune.1 $(DESTDIR)$(MANDIR)/man1/; \
	fi
	for so in $(MPIDIR)/libpici_pmpi-*.so; do \
		if [ -e "$$so" ]; then \
			install -m 755 "$$so" $(DESTDIR)$(LIBDIR)/ && \
			sed -e 's|@VERSION@|$(VERSION)|' \
				-e "s|@LIBDIR@|$$(realpath -ms --relative-to='$(BINDIR)' '$(LIBDIR)')|" \
				preload/pici-preload >$(DESTDIR)$(BINDIR)/pici-preload && \
			chmod 755 $(DESTDIR)$(BINDIR)/pici-preload && \
			install -m 644 preload/pici-preload.1 $(DESTDIR)$(MANDIR)/man1/ || exit 1; \
		fi; \
	done
	install -m 755 $(TOOL) $(RUN) $(DESTDIR)$(BINDIR)/
	install -m 644 tools/picitool.1 tools/run/pici-run.1 $(VERB_PAGES) $(DESTDIR)$(MANDIR)/man1/
	install -m 644 tools/completion/picitool.bash $(DESTDIR)$(BASHDIR)/picitool
	install -m 644 tools/completion/_picitool $(DESTDIR)$(ZSHDIR)/_picitool
	install -m 644 tools/completion/picitool.fish $(DESTDIR)$(FISHDIR)/picitool.fish
	install -m 644 tools/pici.magic $(DESTDIR)$(MAGICDIR)/pici

# All that may have been installed.
LIB_FILES = $(foreach l,pici pici_coll pici_mpi,$(addprefix lib$(l).,a so so.$(SOVERSION) so.$(VERSION))) \
	pici/hdf5/libpici_h5.so libpici_cuda.a libpici_nccl.a libpici_pmpi-openmpi.so libpici_pmpi-mpich.so
PROGRAMS = picitool pici-run pici-tune pici-preload
INSTALLED = $(LIB_FILES:%=$(LIBDIR)/%) $(PUBLIC_H:include/%=$(INCLUDEDIR)/%) $(PROGRAMS:%=$(BINDIR)/%) \
	$(patsubst %,$(PKGCONFIGDIR)/%.pc,pici pici-coll pici_mpi pici_cuda pici_nccl) \
	$(CMAKEDIR)/pici-config.cmake $(CMAKEDIR)/pici-config-version.cmake \
	$(patsubst %,$(MANDIR)/man1/%.1,$(PROGRAMS) $(VERBS:%=picitool-%)) \
	$(BASHDIR)/picitool $(ZSHDIR)/_picitool $(FISHDIR)/picitool.fish $(MAGICDIR)/pici

uninstall:
	rm -f $(addprefix $(DESTDIR),$(INSTALLED))
	-rmdir $(addprefix $(DESTDIR),$(LIBDIR)/pici/hdf5 $(LIBDIR)/pici $(INCLUDEDIR)/pici $(CMAKEDIR)) 2>/dev/null
##   make install         DESTDIR= PREFIX=/usr/local; also libpici_mpi, _pmpi, _cuda, _nccl and _h5 if made; uninstall
