# SPDX-License-Identifier: BSD-3-Clause
# Benchmarks of the codec and of deltas: bench/NAME.c is a program. BENCH_ARGS goes to it.

BENCH_ARGS =
PEERS = libzstd liblz4 blosc
HAVE_PEERS := $(filter 3,$(words $(foreach p,$(PEERS),$(call have,$(p)))))
BENCHES := $(addprefix $(BUILD)/,bench delta_files delta_small packed packed_coll peers)

# Packed blocks beside memcpy.
$(BUILD)/packed $(BUILD)/packed_coll: private MORE_LIBS = -lm
bench-packed: $(BUILD)/packed
	@$(BUILD)/packed $(BENCH_ARGS)

# Collectives with packed messages, on four hosts behind slow links. Ten minutes.
bench-packed-coll: $(BUILD)/packed_coll
	@bench/net with 4 200mbit bench/net start 4 $(BUILD)/packed_coll $(BENCH_ARGS)
	@bench/net with 4 1gbit bench/net start 4 $(BUILD)/packed_coll $(BENCH_ARGS)

.PHONY: bench bench-packed bench-peers bench-weights bench-delta bench-delta-small bench-cuda bench-cuda-program
.PHONY: bench-torch bench-packed-coll

# The other compressors.
$(BUILD)/peers: private MORE_LIBS = $(shell $(PKG_CONFIG) --libs $(PEERS))
$(BENCHES): $(BUILD)/%: $(BUILD)/obj/bench/%.o $(A)
	$(program)

bench: $(BUILD)/bench
	@$(BUILD)/bench $(BENCH_ARGS)

# Then compressors from PyPI on dense weights, if bench-weights has installed them.
bench-peers: $(if $(HAVE_PEERS),$(BUILD)/peers) $(SO)
	@$(if $(HAVE_PEERS),$(BUILD)/peers $(BENCH_ARGS),echo 'bench-peers needs $(PEERS) (make deps installs them)'; exit 1)
	@$(if $(wildcard $(WEIGHTS_PYTHON)),$(WEIGHTS_PICI) && $(WEIGHTS_PYTHON) -W ignore bench/weights.py --files 0 \
		--folder $(BUILD),echo 'SKIPPED $(FLOAT_PEERS): not installed (make bench-weights installs them in $(BUILD))')

# Compare dense weights with packages of PyPI. They go to a virtual environment in BUILD, each by itself; make names and
# skips packages that do not install. zipnn brings torch.
FLOAT_PEERS = lmzip zipnn
WEIGHTS_PYTHON = $(BUILD)/weights/bin/python
WEIGHTS_PICI = PICI_BUILD='$(abspath $(BUILD))' $(WEIGHTS_PYTHON) -m pip install -q --no-index --no-build-isolation \
	--no-deps --force-reinstall ./python
bench-weights: $(SO)
	@test -x $(WEIGHTS_PYTHON) || python3 -m venv $(BUILD)/weights
	@$(WEIGHTS_PYTHON) -m pip install -q numpy setuptools wheel
	@for p in $(FLOAT_PEERS); do $(WEIGHTS_PYTHON) -m pip install -q $$p || echo "SKIPPED $$p: no install"; done
	@$(WEIGHTS_PICI)
	@$(WEIGHTS_PYTHON) -W ignore bench/weights.py --folder $(BUILD) $(BENCH_ARGS)

# Deltas in memory, and of files: 5 GiB below BUILD; small deltas beside zstd, xdelta3 and bsdiff; two checkpoints of
# train; the steps of finetune. WEIGHTS=FILE.safetensors: the weights for small deltas, which are then also made of
# weights without exact zeros. EXAMPLES_OF=FILE: what train and finetune learn from. bench-delta-small: only the rows of
# small deltas; with BENCH_ARGS=-z beside other programs.
WEIGHTS =
EXAMPLES_OF =
bench-delta: $(addprefix $(BUILD)/,bench delta_files delta_small picitool finetune train)
	@$(BUILD)/bench --delta $(BENCH_ARGS)
	@$(BUILD)/delta_files $(TOOL) $(BUILD)
	-@$(BUILD)/delta_small -u -r 5 -z $(WEIGHTS)
	-@$(if $(WEIGHTS),$(BUILD)/delta_small -u -r 5)
	@for s in 100 110; do $(BUILD)/train -m network -u 8192 -s $$s -t 2 -w $(BUILD)/weights-$$s.f32 $(EXAMPLES_OF) \
		>/dev/null || exit; done
	@$(BUILD)/delta_small -u -r 5 -z -c $(BUILD)/weights-100.f32 $(BUILD)/weights-110.f32
	@rm $(BUILD)/weights-100.f32 $(BUILD)/weights-110.f32
	@$(BUILD)/finetune -s 50 $(EXAMPLES_OF)

bench-delta-small: $(BUILD)/delta_small
	@$(BUILD)/delta_small $(BENCH_ARGS) $(WEIGHTS)

# On a GPU.
$(BUILD)/bench_cuda: $(CUDADIR)/obj/bench/bench_cuda.o $(CUDA_A) $(A)
	$(call link,$(NVCC),-lcusparse $(LIBS) -lm)

bench-cuda-program: $(BUILD)/bench_cuda
bench-cuda: $(BUILD)/bench_cuda
	@$(BUILD)/bench_cuda $(BENCH_ARGS)

# Training on four hosts behind slow links. The package is installed beside the results, not into the interpreter.
bench-torch: $(SO)
	@rm -rf $(BUILD)/training/site
	@PICI_BUILD='$(abspath $(BUILD))' $(TORCH_PYTHON) -m pip install -q --no-index --no-build-isolation --no-deps \
		--target $(BUILD)/training/site ./python
	@PYTHONPATH=$(BUILD)/training/site $(TORCH_PYTHON) bench/training/run -o $(BUILD)/training $(BENCH_ARGS)
##
## Benchmarks, which take BENCH_ARGS=:
##   make bench           throughput beside memcpy; bench-packed: packed blocks; bench-peers: and other compressors
##   make bench-weights   dense weights, in memory and as files of 1 GiB, beside zstd, lmz and zipnn (from PyPI)
##   make bench-packed-coll  collectives with packed messages, on four hosts behind slow links (root, 10 min);
##                        bench-packed-mpi: over Open MPI, beside its own
##   make bench-delta     deltas: in memory beside memcpy, of files beside reading them; bench-delta-small: in memory
##   make bench-torch     training by torch on rate-limited hosts, seconds to accuracy (root, 25 min; TORCH_PYTHON=)
##   make bench-cuda      beside device copies, CUB and cuSPARSE, on a GPU
