#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# pici.vllm with a real vLLM (make check-vllm): python/tests/with_vllm, against the package as pip installs it, by
# VLLM_PYTHON, which has vLLM, transformers and pip. VLLM_TESTS: options of the runner, such as -k NAME. Takes minutes.
# Not a part of make check, which names it as skipped, and tests pici.vllm over stand-ins of vLLM's classes.
set -eu
python=${VLLM_PYTHON:-}
[ -n "$python" ] || { echo "skip: pici.vllm: its tests need vLLM: make check-vllm VLLM_PYTHON=PATH"; exit 77; }
"$python" -c 'import importlib.util as u, sys; sys.exit(not (u.find_spec("vllm") and u.find_spec("transformers")))' ||
    { echo "skip: pici.vllm: $python has no vLLM, or no transformers"; exit 77; }
[ -z "${SANITIZE:-}" ] || { echo "skip: pici.vllm: built with -fsanitize=$SANITIZE"; exit 77; }
build=$(cd "${BUILD:-build}" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
unset PYTHONPATH PICI_LIBRARY
PICI_BUILD="$build" "$python" -m pip install -q --no-index --no-build-isolation --no-deps --target "$tmp/site" ./python
export PYTHONPATH="$tmp/site"
"$python" -c 'from importlib.metadata import version; print("vLLM", version("vllm"))'
# shellcheck disable=SC2086 # options
"$python" -W ignore python/tests/run.py python/tests/with_vllm ${VLLM_TESTS:-}
