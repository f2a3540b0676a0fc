#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The CUDA kernels without a GPU: compiled as C++ and run over an emulator of thread blocks, with the emulator's own
# tests; and the benchmark of collectives on a GPU's memory, over that and a fake of NCCL: its results are right.
set -u
make=${MAKE:-make} cc=${CC:-cc} build=${BUILD:-build}
case ${SANITIZE:-} in *thread*)
    echo "skip: the CUDA kernels' emulator under ThreadSanitizer, which does not know its fibers"
    exit 77
    ;;
esac
cxx=$("$make" -s BUILD="$build" CC="$cc" print-cxx)
if ! command -v "$cxx" >/dev/null 2>&1; then
    echo "skip: no C++ compiler ($cxx): nothing of the CUDA kernels compiled or run"
    exit 77
fi
"$make" -s -j"$(nproc)" BUILD="$build" CC="$cc" SANITIZE="${SANITIZE:-}" cuda-emu bench-coll-emu || exit 1
passed=0 failed=0
# With QUICK set, fewer inputs.
# shellcheck disable=SC2016 # for the other shell
printf '%s\n' "$build"/emu_* | xargs -P "$(nproc)" -I '{}' sh -c '
    log=$1/check/$(basename "$2").log
    case $2 in
    */emu_codec | */emu_coll* | */emu_nccl | */emu_reduce | */emu_values) quick=${4:+--quick} ;;
    *) quick= ;;
    esac
    timeout "$3" "$2" $quick >"$log" 2>&1 </dev/null
    echo $? >"$log.status"' sh "$build" '{}' "${LIMIT:-600}" "${QUICK:-}"
for program in "$build"/emu_*; do
    log=$build/check/$(basename "$program").log
    status=$(cat "$log.status")
    if [ "$status" = 0 ] && grep -q '^[1-9][0-9]* passed, 0 failed' "$log"; then
        passed=$((passed + $(sed -n 's/^\([0-9][0-9]*\) passed.*/\1/p' "$log" | tail -n 1)))
        echo "ok $(basename "$program"): $(tail -n 1 "$log")"
        grep '^skip:' "$log"
    else
        tail -n 40 "$log"
        echo "FAIL $(basename "$program"), exit status $status"
        failed=$((failed + 1))
    fi
done

bench() { # PATTERN COMMAND...: a few calls, in which each result is checked
    log=$build/check/bench_coll_emu.log pattern=$1
    shift
    if timeout "${LIMIT:-600}" "$@" -b 20K -n 1 --screen 8K --sparsity 0,99 >"$log" 2>&1 </dev/null &&
        grep -q '^# wrong elements: 0$' "$log" && grep -q "$pattern" "$log"; then
        passed=$((passed + 1))
    else
        tail -n 40 "$log"
        echo "FAIL $*: no '$pattern'"
        failed=$((failed + 1))
    fi
}

bench ' ncclReduceScatter .* 0  *- ' "$build/bench_coll_emu" --cuda -t 3
bench 'pici over threads$' "$build/bench_coll_emu" --cuda -t 2 --mpi none --pattern clustered -d bf16
bench 'pici over NCCL$' "$build/bench_coll_emu" --cuda=nccl -t 3 -d i32 -o max --algorithm ring,recursive
json=$build/check/bench_coll_emu.json
bench ' ncclAllReduce .* 0  *- ' "$build/bench_coll_emu" --cuda=nccl -t 2 -d f64 -o avg --json="$json"
if ! grep -q '"transport":"NCCL".*"encode_of_copy":[0-9].*"wrong":0' "$json"; then
    failed=$((failed + 1))
    echo "FAIL no NCCL in the records of bench_coll"
fi
if command -v mpirun.openmpi >/dev/null 2>&1; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # MPI leaks
    bench 'pici over MPI$' mpirun.openmpi --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -n 3 \
        "$build/bench_coll_emu" --cuda=mpi --mpi none
else
    echo "skip: no Open MPI: bench_coll --cuda=mpi not run"
fi
echo "skip: the CUDA kernels on a GPU: none was used, they ran over the emulator (make check-cuda)"
[ $failed = 0 ] || exit 1
echo "$passed passed"
