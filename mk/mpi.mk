# SPDX-License-Identifier: BSD-3-Clause
# The transport over MPI, a library of its own, pici-tune, and the library to preload into MPI programs. MPIDIR holds
# the files for one MPI, so that several can live side by side: make mpi mpi-tests MPICC=mpicc.mpich MPIDIR=build/mpich

MPICC = mpicc
MPIDIR = $(BUILD)/mpi
MPI_A = $(MPIDIR)/libpici_mpi.a
MPI_SO = $(MPIDIR)/libpici_mpi.so
MPI_TUNE = $(MPIDIR)/pici-tune
MPI_CC = OMPI_CC='$(CC)' MPICH_CC='$(CC)' $(MPICC)
MPI_LINK = $(MPI_CC) $(LINK_FLAGS)
MPI_TESTS := $(patsubst tests/mpi/%.c,$(MPIDIR)/mpi_%,$(sort $(wildcard tests/mpi/*.c)))
MPI_EXAMPLES = $(MPIDIR)/train $(MPIDIR)/spmm
mpi_obj = $(patsubst %.c,$(MPIDIR)/obj/%.o,$(1))
mpi_program = $(call link,$(MPI_LINK) $(MORE_FLAGS),$(LIBS) -lm)

.PHONY: mpi mpi-tests mpi-examples
mpi: $(MPI_A) $(MPI_SO) $(MPI_TUNE)
mpi-tests: $(MPI_TESTS)
mpi-examples: $(MPI_EXAMPLES)

$(MPIDIR)/obj/flags: FORCE
	$(call stamp,$(MPI_CC) $(CPPFLAGS) $(CFLAGS) $(BASE) $(LDFLAGS) $(LIBS))

$(MPIDIR)/obj/%.o: %.c $(MPIDIR)/obj/flags
	$(call compile,MPI,$(MPI_CC) $(COMPILE_FLAGS) $(own_flags) $(if $(filter examples/%,$<),-DPICI_EXAMPLE_MPI))

$(MPI_A): $(call mpi_obj,$(MPI_SRC))
	$(archive)

# For programs that load it while they run, as the Python package does.
$(MPI_SO): $(call mpi_obj,$(MPI_SRC)) $(SO)
	$(call link,$(MPI_LINK) $(call SHARED,libpici_mpi.so))

# One of the tests counts what the library allocates.
$(MPIDIR)/mpi_coll: private MORE_FLAGS = $(COUNTED)
$(MPI_TESTS): $(MPIDIR)/mpi_%: $(MPIDIR)/obj/tests/mpi/%.o $(BUILD)/obj/testing.a $(MPI_A) $(A)
	$(mpi_program)

$(MPI_TUNE): $(call mpi_obj,tools/term.c $(sort $(wildcard tools/tune/*.c))) $(MPI_A) $(A)
	$(mpi_program)

$(MPI_EXAMPLES): $(MPIDIR)/%: $(MPIDIR)/obj/examples/%.o $(MPI_A) $(A)
	$(mpi_program)

# ---- a library to preload into MPI programs: MPI's names, over a libpici and a transport of its own, which nothing
# outside sees. The transport is compiled once more, with names that call PMPI_.

PMPI_OBJ = $(call mpi_obj,$(sort $(wildcard preload/*.c))) $(patsubst %.c,$(MPIDIR)/obj/pmpi/%.o,$(MPI_SRC))

.PHONY: pmpi check-preload-sanitized check-mpi4py check-apps
pmpi: $(MPIDIR)/obj/flags
	$(Q)mpi=$$(printf '%s\n' '#include <mpi.h>' '#if defined OPEN_MPI' 'pmpi openmpi' \
		'#elif defined MPICH || defined MPICH_VERSION || defined I_MPI_VERSION' 'pmpi mpich' '#endif' | \
		$(MPI_CC) -E -P -x c - | sed -n 's/^pmpi //p') && \
	{ [ -n "$$mpi" ] || { echo 'make pmpi: $(MPICC) is neither Open MPI nor a kind of MPICH' >&2; exit 1; }; } && \
	$(MAKE) $(MPIDIR)/libpici_pmpi-$$mpi.so

$(MPIDIR)/obj/pmpi/%.o: %.c $(MPIDIR)/obj/flags
	$(call compile,MPI,$(MPI_CC) $(COMPILE_FLAGS) $(own_flags) -D_POSIX_C_SOURCE=200809L -include preload/profiling.h)

# No rule for all of libpici_pmpi-*.so: which of them an MPI makes is for it to say.
$(MPIDIR)/libpici_pmpi-openmpi.so $(MPIDIR)/libpici_pmpi-mpich.so: $(PMPI_OBJ) $(A) preload/pmpi.map
	$(say) LD $@
	$(Q)$(MPI_LINK) -shared -Wl,-soname,$(@F) -Wl,--version-script=preload/pmpi.map -Wl,--as-needed \
		$(if $(SANITIZE),,-Wl,-z,defs) -o $@ $(PMPI_OBJ) $(A) $(LIBS) -ldl

check-preload-sanitized: $(A)
	@$(TEST_ENV) tests/mpi/preload.sh sanitized || [ $$? = 77 ]

# mpi4py's own tests, with all that can be pici's forced to be. Installs mpi4py in a folder of its own.
check-mpi4py: $(A)
	@$(TEST_ENV) PYTHON='$(or $(PYTHON),python3)' tests/mpi/mpi4py '$(BUILD)' || [ $$? = 77 ]

# That, and programs that distributions have as packages.
check-apps: check-mpi4py
	@$(TEST_ENV) tests/mpi/apps '$(BUILD)' || [ $$? = 77 ]
##
## MPI:
##   make mpi             $(MPIDIR)/libpici_mpi.a, .so and pici-tune through MPICC=mpicc; MPIDIR=$(BUILD)/mpi
##   make pmpi            $(MPIDIR)/libpici_pmpi-openmpi.so or -mpich.so, to preload into MPI programs; likewise
##   make check-mpi4py    mpi4py's own tests over pici; installs mpi4py from the network in $(BUILD) (minutes)
##   make check-apps      those tests, and LAMMPS and HPCC where they are installed: the same results as without pici
##   make check-preload-sanitized  the library of make pmpi and its programs with sanitizers (minutes). MPIS=openmpi:
##                        one of the two. SCENARIOS="verbs later": some of scenarios verbs later neighbors wrong bits
##                        fortran, which takes a minute or two
