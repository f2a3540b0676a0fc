#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# pici.torch (make check-torch): python/tests/with_torch, against the package as pip installs it, by TORCH_PYTHON, which
# has torch. TORCH_TESTS: options of the runner, such as -k NAME. Not a part of make check, which names it as skipped.
# "own" as an argument: torch's own tests of torch.distributed, over the backend pici (make check-torch-own).
set -eu
python=${TORCH_PYTHON:-}
[ -n "$python" ] || { echo "skip: pici.torch: its tests need torch: make check-torch TORCH_PYTHON=PATH"; exit 77; }
"$python" -c 'import torch.distributed' 2>/dev/null || { echo "skip: pici.torch: $python has no torch"; exit 77; }
[ -z "${SANITIZE:-}" ] || { echo "skip: pici.torch: built with -fsanitize=$SANITIZE"; exit 77; }
build=$(cd "${BUILD:-build}" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
unset PYTHONPATH PICI_LIBRARY

can_make_wheels() {
    "$python" -c 'import setuptools.command.bdist_wheel, pip' 2>/dev/null || # of setuptools 70.1 or later
        "$python" -c 'import setuptools, wheel, pip' 2>/dev/null
} # pip last: it imports distutils, of which setuptools has its own

if can_make_wheels; then
    PICI_BUILD="$build" "$python" -m pip install -q --no-index --no-build-isolation --no-deps \
        --target "$tmp/site" ./python
    export PYTHONPATH="$tmp/site"
else
    echo "skip: pici.torch as a package: $python has no pip, no setuptools, or an old one without wheel"
    "${MAKE:-make}" -s BUILD="${BUILD:-build}" PYTHON="$python" "${BUILD:-build}/_codec.abi3.so"
    cp -r python/pici "$tmp" && cp "$build/_codec.abi3.so" "$tmp/pici"
    export PYTHONPATH="$tmp" PICI_LIBRARY="$build/libpici.so"
fi
"$python" -c 'import torch; print("torch", torch.__version__)'
# shellcheck disable=SC2086 # options
[ "${1:-}" != own ] || { "$python" -W ignore python/tests/with_torch/own.py ${TORCH_TESTS:-}; exit; }
# shellcheck disable=SC2086 # options
"$python" python/tests/run.py python/tests/with_torch ${TORCH_TESTS:-}
