# SPDX-License-Identifier: BSD-3-Clause
# Ranks of a simulated network, by SimGrid's MPI. Its compiler compiles the library too: its header replaces clocks and
# sleeping, and also free, by a macro, unless told not to. Each rank loads a copy of its program, which is therefore
# stripped.

SMPIDIR = $(BUILD)/smpi
SMPI_PROGRAMS = $(addprefix $(SMPIDIR)/mpi/,scale_coll bench_coll neighbor_mpi)

.PHONY: scale-programs check-scale bench-scale
scale-programs:
	$(Q)$(MAKE) BUILD=$(SMPIDIR) CC=smpicc MPICC=smpicc SANITIZE= WERROR= ZSTD=0 ZLIB=0 ZFP=0 TLS=0 FUSE=0 LDFLAGS=-s \
		CPPFLAGS='-DSMPI_NO_OVERRIDE_MALLOC -DPICI_SMPI' $(SMPI_PROGRAMS)

$(MPIDIR)/scale_coll: $(MPIDIR)/obj/tests/net/scale_coll.o $(BUILD)/obj/testing.a $(MPI_A) $(A)
	$(mpi_program)

check-scale:
	@MAKE='$(MAKE)' tests/net/scale $(BUILD)/smpi-check

bench-scale: scale-programs
	@bench/scale $(SMPIDIR)/mpi/bench_coll $(SMPIDIR) $(BENCH_ARGS)
##
## Simulated networks:
##   make check-scale     collectives among 16 ranks of simulated networks (SimGrid's smpicc)
##   make bench-scale     collectives on simulated networks: RANKS=64 KINDS='switch fat-tree dragonfly uneven'
