# SPDX-License-Identifier: BSD-3-Clause
# Benchmarks of collectives. Ranks are threads, or processes under mpirun if there is an MPI to link with: Open MPI, if
# it is one of several, since all of its algorithms can compete.

COLL_MPICC := $(or $(shell command -v mpicc.openmpi),$(shell command -v mpicc))
COLL_SRC := $(sort $(filter-out bench/coll_cuda.c,$(wildcard bench/coll*.c)))
COLL_CUDA_SRC = $(COLL_SRC) bench/coll_cuda.c
# bench_coll_emu is bench_coll_cuda over the emulator and the fake of NCCL: to see that it works, not how fast.
COLL_EMU = $(EMU_DIR)/tests/gpu/emu/deferred.o $(EMU_LIB_OBJ) $(EMU_OBJ)

$(MPIDIR)/obj/bench/%.o: private override CPPFLAGS += -DBENCH_MPI $(if $(BENCH_CUDA),-DBENCH_CUDA $(NCCL_INCLUDES))
$(MPIDIR)/bench_coll: $(call mpi_obj,$(COLL_SRC)) $(MPI_A) $(A)
	$(mpi_program)

$(MPIDIR)/bench_coll_cuda: $(call mpi_obj,$(COLL_CUDA_SRC)) $(MPI_A) $(NCCL_A) $(CUDA_A) $(A)
	$(call link,$(MPI_LINK),$(NCCL_LIBS) $(LIBS) -lm)

$(MPIDIR)/bench_coll_emu: $(call mpi_obj,$(COLL_CUDA_SRC)) $(COLL_EMU) $(MPI_A) $(A)
	$(call link,$(MPI_CXX) $(LINK_FLAGS) $(call wrap,main),$(LIBS) -lm)

ifneq ($(COLL_MPICC),)
# By a make of its own, for that MPI.
$(BUILD)/bench_coll $(BUILD)/bench_coll_cuda $(BUILD)/bench_coll_emu: FORCE
	+$(Q)$(MAKE) MPICC=$(COLL_MPICC) MPIDIR=$(COLL_DIR) $(COLL_DIR)/$(@F) $(COLL_ARGS)
	$(Q)ln -f $(COLL_DIR)/$(@F) $@

$(BUILD)/bench_coll: private COLL_DIR = $(BUILD)/bench-mpi
$(BUILD)/bench_coll: $(A)
$(BUILD)/bench_coll_cuda: private COLL_DIR = $(BUILD)/bench-cuda
$(BUILD)/bench_coll_cuda: private COLL_ARGS = BENCH_CUDA=1
$(BUILD)/bench_coll_cuda: $(NCCL_A) $(CUDA_A) $(A)
$(BUILD)/bench_coll_emu: private COLL_DIR = $(BUILD)/bench-emu
$(BUILD)/bench_coll_emu: private COLL_ARGS = BENCH_CUDA=1 NCCL_INCLUDES=-Itests/gpu/emu
$(BUILD)/bench_coll_emu: $(COLL_EMU) $(A)
else
coll = $(patsubst %.c,$(1)/%.o,$(filter-out bench/coll_mpi.c,$(2)))
$(NCCLDIR)/obj/bench/%.o $(EMU_DIR)/bench/%.o: private override CPPFLAGS += -DBENCH_CUDA
$(BUILD)/bench_coll: $(call coll,$(BUILD)/obj,$(COLL_SRC)) $(A)
	$(program)

$(BUILD)/bench_coll_cuda: $(call coll,$(NCCLDIR)/obj,$(COLL_CUDA_SRC)) $(NCCL_A) $(CUDA_A) $(A)
	$(call link,$(LINK),$(NCCL_LIBS) $(LIBS) -lm)

$(BUILD)/bench_coll_emu: private MORE_FLAGS = $(call wrap,main)
$(BUILD)/bench_coll_emu: $(call coll,$(EMU_DIR),$(COLL_CUDA_SRC)) $(COLL_EMU) $(A)
	$(emu_program)
endif

.PHONY: bench-coll bench-coll-cuda bench-coll-emu bench-net bench-volume bench-algorithms
bench-coll-cuda: $(BUILD)/bench_coll_cuda
bench-coll-emu: $(BUILD)/bench_coll_emu
bench-coll: $(BUILD)/bench_coll
	@$(BUILD)/bench_coll $(BENCH_ARGS)

# On four hosts behind slow links: the targets at 64 MiB a rank, then a range of sizes. Half an hour.
bench-net: $(BUILD)/bench_coll
	@bench/net with 4 200mbit bench/coll-net $(BUILD) $(BENCH_ARGS)

# Collectives with packed messages over Open MPI, beside its own by its fastest algorithm for long messages, the ring.
# Fifteen minutes.
.PHONY: bench-packed-mpi
$(MPIDIR)/packed_coll: $(MPIDIR)/obj/bench/packed_coll.o $(MPI_A) $(A)
	$(mpi_program)

bench-packed-mpi: $(A)
	$(Q)$(MAKE) MPICC=mpicc.openmpi MPIDIR=$(BUILD)/bench-mpi $(BUILD)/bench-mpi/packed_coll
	@for link in 200mbit:25e6 1gbit:125e6; do bench/net with 4 $${link%:*} bench/net run 4 \
		-x PICI_INTER_BANDWIDTH=$${link#*:} --mca coll_tuned_use_dynamic_rules 1 \
		--mca coll_tuned_allreduce_algorithm 4 --mca coll_tuned_allgather_algorithm 4 \
		$(BUILD)/bench-mpi/packed_coll $(BENCH_ARGS); done

# Bytes that each algorithm sends, counted among threads.
bench-volume: $(BUILD)/bench_coll
	@bench/volume $(BUILD)/bench_coll $(BUILD)/volume $(BENCH_ARGS)

# All algorithms on hosts behind slow links, with several ranks a host and with one.
bench-algorithms: $(BUILD)/bench_coll
	@bench/coll-algorithms $(BUILD) $(BENCH_ARGS)

# ---- collectives of an MPI program that knows nothing of pici, beside MPI's own. Minutes.

.PHONY: bench-pmpi bench-pmpi-program
$(MPIDIR)/bench_pmpi: $(MPIDIR)/obj/bench/pmpi.o
	$(call link,$(MPI_LINK))

bench-pmpi-program: $(A)
	$(Q)$(MAKE) MPICC=mpicc.openmpi MPIDIR=$(BUILD)/bench-mpi pmpi $(BUILD)/bench-mpi/bench_pmpi

bench-pmpi: bench-pmpi-program
	@bench/net with 4 200mbit bench/pmpi $(BUILD) $(BENCH_ARGS)

# ---- neighbourhood all-gathers: what plans send and what the model predicts; then beside MPI_Neighbor_allgather of the
# MPIs here, on this machine, on rate-limited hosts, and on simulated networks.

.PHONY: bench-neighbor bench-neighbor-net bench-neighbor-scale
$(BUILD)/bench_neighbor: $(BUILD)/obj/bench/neighbor.o $(A)
	$(program)

$(MPIDIR)/neighbor_mpi: $(MPIDIR)/obj/bench/neighbor_mpi.o $(MPI_A) $(A)
	$(mpi_program)

bench-neighbor: $(BUILD)/bench_neighbor
	@$(BUILD)/bench_neighbor $(BENCH_ARGS)
	@for mpi in openmpi mpich; do \
		command -v mpicc.$$mpi >/dev/null || { echo "skip: no mpicc.$$mpi"; continue; }; \
		$(MAKE) -s MPIDIR=$(BUILD)/$$mpi MPICC=mpicc.$$mpi $(BUILD)/$$mpi/neighbor_mpi || exit 1; \
		printf '\n## %s, on this machine\n\n' $$mpi; \
		run="mpirun.$$mpi"; [ $$mpi = mpich ] || run="$$run --allow-run-as-root --oversubscribe --bind-to none"; \
		bench/neighbor-runs local "$$run" $(BUILD)/$$mpi/neighbor_mpi -b 65536 || exit 1; \
	done

bench-neighbor-net:
	$(Q)$(MAKE) -s MPIDIR=$(BUILD)/openmpi MPICC=mpicc.openmpi $(BUILD)/openmpi/neighbor_mpi
	@bench/neighbor-runs net $(BUILD)/openmpi/neighbor_mpi $(BENCH_ARGS)

bench-neighbor-scale: scale-programs
	@bench/neighbor-runs scale $(SMPIDIR)/mpi/neighbor_mpi $(BENCH_ARGS)
##   make bench-coll      collectives among threads; bench-net: beside Open MPI's, on rate-limited hosts (root, 30 min)
##   make bench-pmpi      MPI programs as they are, beside the best that Open MPI has (root, 10 min)
##   make bench-volume    bytes that each algorithm sends; bench-algorithms: all on rate-limited hosts (root, an hour)
##   make bench-neighbor  plans of neighbourhood all-gathers, and beside both MPIs; bench-neighbor-net: on rate-limited
##                        hosts (root, half an hour); bench-neighbor-scale: on simulated networks, RANKS=64
##                        KINDS=fat-tree
##   make bench-coll-cuda $(BUILD)/bench_coll_cuda, whose --cuda measures them on GPUs, beside NCCL's; bench-coll-emu:
##                        the same over the emulator, to see that it works
