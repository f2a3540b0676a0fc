#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# pici for Python (make check-python): python/tests, against the package as pip installs it from a wheel made here,
# without a network; where there is no pip, against the source tree. With sanitizers the interpreter gets their runtime
# beforehand. PYTHON names the interpreter; without it the first of python3 and /usr/bin/python3 that has NumPy.
set -eu
tree=$PWD
build=$(cd "${BUILD:-build}" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
unset PYTHONPATH PICI_LIBRARY
[ -z "${PICITOOL:-}" ] || export PICITOOL="$build/picitool"

python=
for p in ${PYTHON:-python3 /usr/bin/python3}; do
    if "$p" -c 'import sys, numpy; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
        python=$p
        break
    fi
done
[ -n "$python" ] || { echo "skip: pici for Python: no python3 (3.9 or later) with NumPy${PYTHON:+: $PYTHON}"; exit 77; }

include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
[ -e "$include/Python.h" ] || { echo "skip: pici for Python: no $include/Python.h (python3-dev)"; exit 77; }

# run COMMAND...: with what the library needs loaded before
run() {
    "$@"
}

install() { # what pip makes of the tree, and only that
    site=$tmp/site
    PICI_BUILD="$build" "$python" -m pip wheel -q --no-index --no-build-isolation --no-deps -w "$tmp/dist" ./python &&
        "$python" -m pip install -q --no-index --no-deps --target "$site" "$tmp"/dist/*.whl || return 1
    case $(ls "$tmp/dist") in
        pici-[0-9]*-cp39-abi3-linux_*.whl) ;;
        *) echo "the wheel is called $(ls "$tmp/dist")"; return 1 ;;
    esac
    for f in pici/__init__.py pici/py.typed pici/_codec.pyi pici/torch/__init__.py pici/vllm/__init__.py \
        pici/rl/__init__.py         pici/libpici.so pici/libpici_coll.so pici/_codec.abi3.so LICENSE; do
        find "$site" -path "*/$f" | grep >/dev/null . || { echo "not in the wheel: $f"; return 1; }
    done
    export PYTHONPATH="$site"
    # What the package's page is made of; and the conda recipe is of this version.
    "$python" -m zipfile -e "$tmp"/dist/*.whl "$tmp/unpacked"
    for line in 'Description-Content-Type: text/markdown' 'Provides-Extra: s3' 'Provides-Extra: zarr' '# pici'; do
        grep -qxF "$line" "$tmp"/unpacked/pici-*.dist-info/METADATA || { echo "METADATA has no $line"; return 1; }
    done
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' python/pyproject.toml)
    grep -q "^  version: \"$version\"" packaging/conda/recipe.yaml || { echo "conda: another version"; return 1; }
    # After that build, one for the system's library has no library inside.
    PICI_SYSTEM=1 PICI_BUILD="$build" "$python" -m pip wheel -q --no-index --no-build-isolation --no-deps \
        -w "$tmp/system" ./python || return 1
    "$python" -m zipfile -l "$tmp"/system/*.whl >"$tmp/names"
    grep -q 'pici/_codec\.abi3\.so' "$tmp/names" || { echo "no _codec in the wheel for the system"; return 1; }
    ! grep -q 'pici/libpici.*\.so' "$tmp/names" || { echo "libpici in the wheel for the system"; return 1; }
}

from_tree() { # WHY
    echo "skip: pici for Python as a wheel: $1"
    "${MAKE:-make}" -s BUILD="${BUILD:-build}" PYTHON_INCLUDE="$include" "${BUILD:-build}/_codec.abi3.so" || exit 1
    mkdir "$tmp/tree"
    cp -r "$tree/python/pici" "$build/_codec.abi3.so" "$tmp/tree"
    mv "$tmp/tree/_codec.abi3.so" "$tmp/tree/pici"
    export PYTHONPATH="$tmp/tree" PICI_LIBRARY="$build/libpici.so"
}

case ${SANITIZE:-} in
    '')
        if ! "$python" -c 'import setuptools, pip' 2>/dev/null; then
            from_tree "$python has no pip or setuptools"
        elif ! "$python" -c 'import wheel' 2>/dev/null &&
            ! "$python" -c 'import setuptools.command.bdist_wheel' 2>/dev/null; then
            from_tree "$python has no wheel"
        else
            install || { echo "FAIL: no wheel, or not what it should be"; exit 1; }
        fi
        ;;
    *address*)
        from_tree "built with sanitizers"
        for name in "libclang_rt.asan-$(uname -m).so" libasan.so; do
            runtime=$("${CC:-cc}" -print-file-name="$name" 2>/dev/null || true)
            [ ! -e "$runtime" ] || break
        done
        [ -e "$runtime" ] || { echo "skip: pici for Python: no runtime of ${CC:-cc}'s address sanitizer"; exit 77; }
        # The interpreter itself leaks at its end, and a limit of memory is tested by asking for too much.
        export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0:allocator_may_return_null=1"
        run() {
            env LD_PRELOAD="$runtime" "$@"
        }
        ;;
    *)
        echo "skip: pici for Python: built with -fsanitize=$SANITIZE"
        exit 77
        ;;
esac

# The programs that README.md and the pages of docs/ for Python show.
for page in README.md python/README.md docs/tutorials/python.md docs/tutorials/first-weight-sync.md \
    docs/how-to/python-collectives.md docs/reference/streams.md; do
    awk '/^```python$/ { on = 1; next } /^```$/ { on = 0 } on' "$page" >"$tmp/page.py"
    [ -s "$tmp/page.py" ] || { echo "FAIL: $page shows no program"; exit 1; }
    (cd "$tmp" && run "$python" page.py)
done

# Collectives over MPI: the library for the MPI that mpi4py is of, if there is its compiler.
if [ -z "${SANITIZE:-}" ] && version=$("$python" -c 'from mpi4py import rc; rc.initialize = False
from mpi4py import MPI; print(MPI.Get_library_version())' 2>/dev/null); then
    case $version in *"Open MPI"*) name=openmpi ;; *) name=mpich ;; esac
    compiler=$(command -v "mpicc.$name" || command -v mpicc || true)
    if [ -n "$compiler" ]; then
        "${MAKE:-make}" -s BUILD="${BUILD:-build}" MPIDIR="${BUILD:-build}/$name" MPICC="$compiler" \
            "${BUILD:-build}/$name/libpici_mpi.so"
        export PICI_MPI_LIBRARY="$build/$name/libpici_mpi.so"
        PICI_MPIRUN=$(command -v "mpirun.$name" || command -v mpirun || true)
        export PICI_MPIRUN
    fi
fi

# The filter for HDF5, if there are its headers.
if [ -z "${SANITIZE:-}" ] && "${PKG_CONFIG:-pkg-config}" --exists hdf5 2>/dev/null; then
    "${MAKE:-make}" -s BUILD="${BUILD:-build}" hdf5
    export HDF5_PLUGIN_PATH="$build/hdf5"
fi

# Weights that a trainer keeps up to date on two servers: three processes.
run "$python" examples/weight_sync.py --weights 100000 --steps 3 >"$tmp/sync"
grep -q "had the trainer's very bits after each of 3 steps" "$tmp/sync" || { cat "$tmp/sync"; exit 1; }

# Tensors in a GPU's memory: over the emulator of one, if that was made (mk/python.mk).
if [ -z "${SANITIZE:-}" ] && [ -e "$build/emu/libpici_cuda.so" ]; then
    export PICI_CUDA_LIBRARY="$build/emu/libpici_cuda.so"
fi

run "$python" python/tests/run.py
