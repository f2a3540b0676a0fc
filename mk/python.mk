# SPDX-License-Identifier: BSD-3-Clause
# The Python package: its extension module, for every CPython from 3.9 on, which opens the libraries itself; and its
# tests. PYTHON=python3: the interpreter, which needs NumPy; else make searches for one. TORCH_PYTHON: one that has
# torch, VLLM_PYTHON: one that has vLLM.

TORCH_PYTHON = python3
PYTHON_INCLUDE = $(shell $(or $(PYTHON),python3) -c 'import sysconfig; print(sysconfig.get_path("include"))')

# -ldl: where dlopen is, before glibc 2.34.
CODEC_LIBS := $(GIVEN_LIBS) -ldl

$(BUILD)/_codec.abi3.so: $(call obj,$(sort $(wildcard python/pici/*.c)))
	$(call link,$(LINK) -shared,$(CODEC_LIBS))

# libpici_cuda over the emulator, if there is a C++ compiler. It is made before the tests run, since one that runs at
# the same time makes the emulator too.
check check-python: $(if $(SANITIZE)$(findstring *.sh,$(EXCEPT)),,$(if $(shell command -v $(CXX)),cuda-emu-shared))

.PHONY: check-python check-torch check-torch-own check-vllm
check-python: all
	@$(TEST_ENV) PICITOOL='$(TOOL)' tests/package/python.sh

check-torch check-torch-own: all
	@$(TEST_ENV) PICITOOL='$(TOOL)' TORCH_PYTHON='$(TORCH_PYTHON)' TORCH_TESTS='$(TORCH_TESTS)' tests/package/torch.sh \
		$(if $(filter %-own,$@),own) || [ $$? = 77 ]

check-vllm: all
	@$(TEST_ENV) VLLM_PYTHON='$(VLLM_PYTHON)' VLLM_TESTS='$(VLLM_TESTS)' tests/package/vllm.sh || [ $$? = 77 ]
##
## Python:
##   make check-python    the Python package (python/), as a wheel; a part of check
##   make check-torch     pici.torch, by TORCH_PYTHON=python3, an interpreter that has torch; not a part of check.
##                        TORCH_TESTS='-k NAME': some of the tests
##   make check-torch-own torch's own tests of torch.distributed, from its wheel, over the backend pici; needs the
##                        package expecttest too (minutes)
##   make check-vllm      pici.vllm, by VLLM_PYTHON=python3, an interpreter that has vLLM; not a part of check (minutes)
