#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The CUDA kernels without a GPU: compiled as C++ and run over an emulator of thread blocks, with the emulator's own tests.
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
"$make" -s BUILD="$build" CC="$cc" SANITIZE="${SANITIZE:-}" cuda-emu || exit 1
passed=0 failed=0
for program in "$build"/emu_*; do
    log=$build/check/$(basename "$program").log
    status=0
    timeout "${LIMIT:-600}" "$program" >"$log" 2>&1 </dev/null || status=$?
    if [ $status = 0 ] && grep -q '^[1-9][0-9]* passed, 0 failed' "$log"; then
        passed=$((passed + $(sed -n 's/^\([0-9][0-9]*\) passed.*/\1/p' "$log" | tail -n 1)))
        echo "ok $(basename "$program"): $(tail -n 1 "$log")"
        grep '^skip:' "$log"
    else
        tail -n 40 "$log"
        echo "FAIL $(basename "$program"), exit status $status"
        failed=$((failed + 1))
    fi
done
echo "skip: the CUDA kernels on a GPU: none was used, they ran over the emulator (make check-cuda)"
[ $failed = 0 ] || exit 1
echo "$passed passed"
