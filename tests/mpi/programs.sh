#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The programs tests/mpi/*.c, and cuda.cu over an emulator of GPUs, under mpirun, with each MPI that is here: Open MPI
# at many numbers of ranks, and MPICH at few. Their ranks yield when they wait: MPICH's by
# tests/mpi/preload/yield.c. A program gets --full with PICI_TEST_FULL=1, and --quick where it would take forever.
. tests/util/script
no_threads_sanitizer MPI
# MPI leaks, as does a communicator that failed.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0:verify_asan_link_order=0"
full=${PICI_TEST_FULL:-}
all=$full
if [ -z "${SANITIZE:-}" ] && [ "$cc" != clang ]; then
    all=1
fi
log=$tmp/log

attempt() { # NAME RANKS PROGRAM [FLAG]
    # shellcheck disable=SC2086 # words
    if timeout "${LIMIT:-300}" $mpirun -n "$2" "$build/$1/$3" ${4:-} >"$log" 2>&1 </dev/null &&
        grep -q '[1-9][0-9]* passed' "$log"; then
        passed=$((passed + $(sed -n 's/^\([0-9][0-9]*\) passed.*/\1/p' "$log" | tail -n 1)))
        echo "ok $3, $1, $2 ranks: $(grep ' passed' "$log" | tail -n 1)"
        grep -i '^skip' "$log"
    else
        tail -n 40 "$log"
        fail "$3, $1, $2 ranks"
    fi
}

try() { # NAME RANKS [FLAG [EXCEPT]]
    for program in tests/mpi/*.c; do
        program=mpi_$(basename "$program" .c)
        [ "$program" = "${4:-}" ] || attempt "$1" "$2" "$program" "${3:-}"
    done
}

# On buffers in a GPU's memory, over the emulator of tests/gpu/emulator.sh; in the build that goes through everything.
emulated() { # NAME
    [ -z "$all" ] || ! command -v "$cxx" >/dev/null 2>&1 || ! compile "$1" mpi-cuda-emu && return
    for ranks in 1 2 3; do
        attempt "$1" "$ranks" mpi_cuda
    done
}

compile() { # NAME TARGET
    "$make" -s -j"$(nproc)" BUILD="$build" MPIDIR="$build/$1" MPICC="$mpicc" CC="$cc" SANITIZE="${SANITIZE:-}" "$2" \
        >"$log" 2>&1 && return
    cat "$log"
    fail "$1: $2 does not build"
    return 1
}

if find_mpi openmpi && compile openmpi mpi-tests; then
    for ranks in 2 3 ${all:+5}; do
        try openmpi "$ranks" ${full:+--full}
    done
    # What does not depend on the compiler: one build goes through more numbers of ranks, of which some are powers of
    # two, odd, or beyond 16.
    if [ "$all" ]; then
        for ranks in 1 4 7 8 12 17 ${full:+6 9 15}; do
            try openmpi "$ranks" --quick mpi_native # whose calls are the library's own, for any number
        done
        for ranks in 6 9 15; do # with PICI_TEST_FULL=1, above
            [ "$full" ] || attempt openmpi "$ranks" mpi_coll --quick
        done
        for ranks in ${full:+10 11 13 14 16}; do
            attempt openmpi "$ranks" mpi_neighbor --quick
        done
    fi
    emulated openmpi
fi
if find_mpi mpich && compile mpich mpi-tests; then
    for ranks in 1 2; do
        [ "$ranks$all" = 1 ] || try mpich "$ranks" ${full:+--full}
    done
    for ranks in ${all:+3 4}; do
        try mpich "$ranks" "${full:+--full}" mpi_native
    done
    # Which messages there are depends on the number of ranks and not on the MPI: Open MPI has gone through the others.
    for ranks in 5 8 17 ${full:+6 7 9 12 15}; do
        if [ "$full" ]; then
            try mpich "$ranks" --quick
        elif [ "$all" ]; then
            attempt mpich "$ranks" mpi_coll --quick
        fi
    done
    emulated mpich
fi
if [ -z "$all" ] || ! command -v "$cxx" >/dev/null 2>&1; then
    echo "skip: collectives over MPI on an emulated GPU's memory: no C++ compiler, or not this compiler's to test"
fi
echo "skip: an MPI that takes a GPU's memory: to the one here, the emulator's was ordinary memory"
finish
