#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The programs tests/mpi/*.c, and cuda.cu over an emulator of GPUs, under mpirun, with each MPI that is here: Open MPI
# at many numbers of ranks, and MPICH at few but for mpi_coll. Their ranks yield when they wait: MPICH's by
# tests/mpi/preload/yield.c. A program gets --full with PICI_TEST_FULL=1, and --quick where it would take forever.
set -u
make=${MAKE:-make} cc=${CC:-cc} build=${BUILD:-build}
case ${SANITIZE:-} in *thread*)
    echo "skip: MPI under ThreadSanitizer, which does not know what MPI does between processes"
    exit 77
    ;;
esac
if ! command -v mpirun >/dev/null 2>&1 && ! command -v mpiexec >/dev/null 2>&1; then
    echo "skip: no MPI (libopenmpi-dev openmpi-bin, libmpich-dev mpich): nothing over MPI built or run"
    exit 77
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# MPI leaks, as does a communicator that failed.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0:verify_asan_link_order=0"
full=${PICI_TEST_FULL:-}
all=$full
if [ -z "${SANITIZE:-}" ] && [ "$cc" != clang ]; then
    all=1
fi
passed=0 failed=0
log=$build/check/mpi.output
mkdir -p "$build/check"
yield=$(cd "$build/check" && pwd)/yield.so

# launch NAME RANKS PROGRAM [FLAG]: its output is in $log
launch() {
    name=$1 ranks=$2
    shift 2
    case $name in
    openmpi) set -- "$openmpi_run" --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -n "$ranks" "$@" ;;
    mpich) set -- "$mpich_run" -genv LD_PRELOAD "$yield" -n "$ranks" "$@" ;;
    esac
    timeout "${LIMIT:-300}" "$@" >"$log" 2>&1 </dev/null
}

attempt() { # NAME RANKS PROGRAM [FLAG]
    # shellcheck disable=SC2086 # no word or one
    if launch "$1" "$2" "$build/$1/$3" ${4:-} && grep -q '[1-9][0-9]* passed' "$log"; then
        passed=$((passed + $(sed -n 's/^\([0-9][0-9]*\) passed.*/\1/p' "$log" | tail -n 1)))
        echo "ok $3, $1, $2 ranks: $(grep ' passed' "$log" | tail -n 1)"
        grep -i '^skip' "$log"
    else
        failed=$((failed + 1))
        tail -n 40 "$log"
        echo "FAIL $3, $1, $2 ranks"
    fi
}

try() { # NAME RANKS [FLAG [EXCEPT]]
    for program in tests/mpi/*.c; do
        program=mpi_$(basename "$program" .c)
        [ "$program" = "${4:-}" ] || attempt "$1" "$2" "$program" "${3:-}"
    done
}

# On buffers in a GPU's memory, over the emulator of tests/gpu/emulator.sh; in the build that goes through everything.
emulated() { # NAME COMPILER
    [ -z "$all" ] || ! command -v "$cxx" >/dev/null 2>&1 || ! compile "$1" "$2" mpi-cuda-emu && return
    for ranks in 1 2 3; do
        attempt "$1" "$ranks" mpi_cuda
    done
}

compile() { # NAME COMPILER TARGET
    "$make" -s -j"$(nproc)" BUILD="$build" MPIDIR="$build/$1" MPICC="$2" CC="$cc" SANITIZE="${SANITIZE:-}" "$3" \
        >"$log" 2>&1 && return
    cat "$log"
    failed=$((failed + 1))
    echo "FAIL $1: $3 does not build"
    return 1
}

# Debian has both side by side, under these names; elsewhere there is one, with the plain names.
find_mpi() { # COMPILER LAUNCHER WORDS: prints "compiler launcher" of the MPI whose launcher's version has the words
    for suffix in "$1" ''; do
        run=mpirun${suffix:+.$suffix} compiler=mpicc${suffix:+.$suffix}
        if command -v "$run" >/dev/null 2>&1 && command -v "$compiler" >/dev/null 2>&1 &&
            "$run" --version 2>/dev/null | grep -q "$2"; then
            echo "$compiler $run"
            return
        fi
    done
}

found=$(find_mpi openmpi 'Open MPI')
openmpi_cc=${found% *} openmpi_run=${found#* }
found=$(find_mpi mpich HYDRA)
mpich_cc=${found% *} mpich_run=${found#* }
cxx=$("$make" -s BUILD="$build" CC="$cc" print-cxx)

if [ -z "$openmpi_cc" ]; then
    echo "skip: no Open MPI (libopenmpi-dev, openmpi-bin)"
elif compile openmpi "$openmpi_cc" mpi-tests; then
    for ranks in 2 3 5; do
        try openmpi "$ranks" ${full:+--full}
    done
    # What does not depend on the compiler: one build goes through more numbers of ranks, of which some are powers of
    # two, odd, or beyond 16.
    if [ "$all" ]; then
        for ranks in 1 4 7 8 12 17 ${full:+6 9 15}; do
            try openmpi "$ranks" --quick mpi_vendor # whose calls are the library's own, for any number
        done
        for ranks in 6 9 15; do # with PICI_TEST_FULL=1, above
            [ "$full" ] || attempt openmpi "$ranks" mpi_coll --quick
        done
        for ranks in ${full:+10 11 13 14 16}; do
            attempt openmpi "$ranks" mpi_neighbor --quick
        done
    fi
    emulated openmpi "$openmpi_cc"
fi
if [ -z "$mpich_cc" ]; then
    echo "skip: no MPICH (libmpich-dev, mpich)"
elif compile mpich "$mpich_cc" mpi-tests && $cc -shared -fPIC -o "$yield" tests/mpi/preload/yield.c; then
    for ranks in 1 2; do
        [ "$ranks$all" = 1 ] || try mpich "$ranks" ${full:+--full}
    done
    for ranks in ${all:+3 4}; do
        try mpich "$ranks" "${full:+--full}" mpi_vendor
    done
    for ranks in 5 6 7 8 9 12 15 17; do
        if [ "$full" ]; then
            try mpich "$ranks" --quick
        elif [ "$all" ]; then
            attempt mpich "$ranks" mpi_coll --quick
        fi
    done
    emulated mpich "$mpich_cc"
fi
if [ -z "$all" ] || ! command -v "$cxx" >/dev/null 2>&1; then
    echo "skip: collectives over MPI on an emulated GPU's memory: no C++ compiler, or not this compiler's to test"
fi
echo "skip: an MPI that takes a GPU's memory: to the one here, the emulator's was ordinary memory"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
