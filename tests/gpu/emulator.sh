#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The CUDA kernels without a GPU, compiled as C++ and run over an emulator of thread blocks, with the emulator's own
# tests. Also the benchmark of collectives in GPU memory, over the emulator and a fake of NCCL: its results are right.
. tests/util/script
no_threads_sanitizer "the CUDA kernels' emulator, with its fibers,"
command -v "$cxx" >/dev/null 2>&1 || skip_all "no C++ compiler ($cxx): nothing of the CUDA kernels compiled or run"
make_target SANITIZE="${SANITIZE:-}" cuda-emu bench-coll-emu
# With QUICK set, fewer inputs.
# shellcheck disable=SC2016 # for the other shell
printf '%s\n' "$build"/emu_* | xargs -P "$(nproc)" -I '{}' sh -c '
    log=$5/$(basename "$2").log
    case $2 in
    */emu_codec | */emu_packed | */emu_coll* | */emu_nccl | */emu_nccl_order | */emu_neighbor | */emu_reduce | \
        */emu_values) quick=${4:+--quick} ;;
    *) quick= ;;
    esac
    timeout "$3" "$2" $quick >"$log" 2>&1 </dev/null
    echo $? >"$log.status"' sh "$build" '{}' "${LIMIT:-600}" "${QUICK:-}" "$tmp"
for program in "$build"/emu_*; do
    log=$tmp/$(basename "$program").log
    status=$(cat "$log.status")
    if [ "$status" = 0 ] && grep -q '^[1-9][0-9]* passed, 0 failed' "$log"; then
        passed=$((passed + $(sed -n 's/^\([0-9][0-9]*\) passed.*/\1/p' "$log" | tail -n 1)))
        echo "ok $(basename "$program"): $(tail -n 1 "$log")"
        grep '^skip:' "$log"
    else
        tail -n 40 "$log"
        fail "$(basename "$program"), exit status $status"
    fi
done

# Programs may be of a later standard, in which compilers warn of more.
check 0 "the device functions as C++20" "$cxx" -x c++ -std=c++2a -fsyntax-only -Wall -Wextra -Werror \
    -Wno-unknown-pragmas -Itests/gpu/emu -Iinclude -Ilib -I. lib/cuda/small.cu

check 0 "bench_cuda" timeout "${LIMIT:-600}" "$build/bench_cuda_emu" --size 8K --zeros 90 --times 1 --dtype bf16
says "bench_cuda" '^bf16 .* apply  *small delta '
check 2 "bench_cuda with no number" "$build/bench_cuda_emu" --zeros 1,x

bench() { # PATTERN COMMAND...: a few calls, in which each result is checked
    pattern=$1
    shift
    check 0 "$*" timeout "${LIMIT:-600}" "$@" -b 20K -n 1 --screen 8K --sparsity 0,99
    says "$*" '^# wrong elements: 0$'
    says "$*" "$pattern"
}

bench ' ncclReduceScatter .* 0  *- ' "$build/bench_coll_emu" --cuda -t 3
bench 'pici over threads$' "$build/bench_coll_emu" --cuda -t 2 --mpi none --pattern clustered -d bf16
bench 'pici over NCCL$' "$build/bench_coll_emu" --cuda=nccl -t 3 -d i32 -o max --algorithm ring,recursive
json=$tmp/bench_coll_emu.json
bench ' ncclAllReduce .* 0  *- ' "$build/bench_coll_emu" --cuda=nccl -t 2 -d f64 -o avg --json="$json"
says "records of bench_coll" '"transport":"NCCL".*"encode_of_copy":[0-9].*"wrong":0' "$json"
if find_mpi openmpi; then
    export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # MPI leaks
    # shellcheck disable=SC2086 # a launcher and its options
    bench 'pici over MPI$' $mpirun -n 3 "$build/bench_coll_emu" --cuda=mpi --mpi none
fi
echo "skip: the CUDA kernels on a GPU: none was used, they ran over the emulator (make check-cuda)"
finish
