#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# MPI programs without pici calls (tests/mpi/preload/), with and without the library of make pmpi preloaded, under each
# installed MPI. Checks their results, which of their calls were ours by the lines at the end, and error messages. And
# pici-preload.
#   tests/mpi/preload.sh                BUILD=DIR CC=cc; MPIS="openmpi mpich"
#   tests/mpi/preload.sh sanitized      the same with AddressSanitizer and UBSan in preload/, in the transport over MPI
#                                       and in the programs, by make check-preload-sanitized; the rest of libpici is as
#                                       it is. SCENARIOS: some of scenarios verbs later neighbors wrong bits fortran
. tests/util/script
sanitized=
[ -z "${SANITIZE:-}" ] ||
    skip_all "preloading a sanitizer build (make check-preload-sanitized has sanitizers for it)"
[ "${1:-}" != sanitized ] || sanitized=-sanitized
case $build in /*) here=$build ;; *) here=$PWD/$build ;; esac
all_of=$here/preload$sanitized # with a folder for each MPI
rm -rf "$all_of"
mkdir -p "$all_of"
trap 'kill 0' INT # those in the background too
all_scenarios='scenarios verbs later neighbors wrong bits fortran'
for part in ${SCENARIOS:=$all_scenarios}; do
    case " $all_scenarios " in *" $part "*) ;; *) die "SCENARIOS: no such $part" ;; esac
done

# With sanitizers their libraries come before the preloaded one, and what they say goes to files.
runtime='' flags='' usual=120 # seconds of a run of a program, at most
if [ -n "$sanitized" ]; then
    usual=400
    runtime=$($cc -print-file-name=libasan.so):
    flags="-g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
    export LSAN_OPTIONS=exitcode=0 UBSAN_OPTIONS=print_stacktrace=1
fi

ok() {
    pass "$mpi, $1"
}

fail() {
    failed=$((failed + 1))
    [ ! -e "$log" ] || tail -n 30 "$log"
    echo "FAIL $mpi, $1"
}

says() { # WHAT PATTERN: the output does
    if grep -q -e "$2" "$log"; then ok "$1"; else fail "$1: no line with $2"; fi
}

# launch RANKS COMMAND...: with $extra, words NAME=VALUE, in the ranks' environment; output in $log
launch() {
    ranks=$1
    shift
    # shellcheck disable=SC2086 # words
    set -- $mpirun -n "$ranks" env $extra "$@"
    timeout -k 5 "${LIMIT:-$usual}" "$@" >"$log" 2>&1 </dev/null
    status=$?
    grep -e 'runtime error:' -e 'ERROR: AddressSanitizer' "$log" >>"$dir/reported"
    return $status
}

# attempt WHAT RANKS PROGRAM [ARGUMENT] -- PATTERN...: it succeeds, and its output has a line for each pattern
attempt() {
    what=$1 ranks=$2 program=$3 argument=
    shift 3
    [ "$1" = -- ] || { argument=$1; shift; }
    shift
    # shellcheck disable=SC2086 # no word or one
    launch "$ranks" "$dir/$program" $argument
    case $? in
    0) ;;
    124 | 137)
        fail "$what: no end within ${LIMIT:-$usual} s"
        return
        ;;
    *)
        fail "$what"
        return
        ;;
    esac
    grep -q '[1-9][0-9]* passed' "$log" || { fail "$what: nothing passed"; return; }
    for pattern in "$@"; do
        grep -q "$pattern" "$log" || { fail "$what: no line with $pattern"; return; }
    done
    ok "$what"
}

# What sanitizers have said, in files of their own and in outputs. MPI leaves memory behind at its end. Leaks are ours
# if a function of the preloaded library was on the stack, except pmpi_by_mpi, in which MPI makes the program's call.
# (Without names, frames are of plugins that are gone.) MPI keeps the two keyvals of a process.
reports() {
    find "$dir" -name 'report.*' -exec grep -h -e 'runtime error:' -e 'ERROR: AddressSanitizer' {} + \
        >>"$dir/reported"
    find "$dir" -name 'report.*' -exec awk 'BEGIN { RS = "" }
        / leak of / && /_in [^\n]*libpici_pmpi/ && !/_create_keyval|_in pmpi_by_mpi/ { print; print "" }' {} + \
        >>"$dir/reported"
    leaks=$(find "$dir" -name 'report.*' -exec cat {} + | grep -c ' leak of ')
    if [ -s "$dir/reported" ]; then
        log=$dir/reported
        fail "sanitizers"
    elif [ "$leaks" = 0 ]; then
        fail "sanitizers: not even MPI leaks anything, so leaks are not looked for"
    else
        ok "sanitizers: no report but $leaks leaks without pici"
    fi
}

# The collectives of this MPI are those of the library, and those that docs/reference/mpi.md says are never pici's.
collectives() {
    command -v nm >/dev/null 2>&1 || return 0 # as said before
    of_mpi=$(ldd "$dir/calls" | sed -n 's/.* => \(.*\/libmpi\(ch\)\{0,1\}\.so[.0-9]*\) .*/\1/p')
    names='^MPI_I?(neighbor_)?(allgather|allreduce|alltoall|barrier|bcast|exscan|gather|reduce|scan|scatter)'
    never='^MPI_I?(neighbor_)?(alltoall[vw]?|barrier|exscan|gatherv?|reduce_local|scan|scatterv?)(_init)?(_c)?$'
    nm -D --defined-only "$library" | sed 's/.* //' | sort >"$dir/own_names"
    nm -D --defined-only "$of_mpi" | sed 's/.* //' | grep -iE "$names" | sort | comm -23 - "$dir/own_names" >"$log"
    if ! grep -qx MPI_Alltoallw "$log"; then
        fail "the collectives of $of_mpi"
    elif grep -viE "$never" "$log" >"$dir/forgotten"; then
        log=$dir/forgotten
        fail "a collective that is neither pici's nor said to be MPI's"
        log=$dir/output
    else
        ok "collectives"
    fi
}

symbols() { # only MPI's names go out, and none comes in that a preloaded library would answer
    command -v nm >/dev/null 2>&1 || { echo "skip: symbols of the preloaded library: no nm"; return; }
    if nm -D --defined-only "$library" | grep -v -E ' [TWA] (MPI_[A-Z]|mpi_[a-z]|ompi_[a-z_]*_f$)' >"$log"; then
        fail "other symbols than MPI's are exported"
    elif nm -D --undefined-only "$library" | grep -E ' (MPI_[A-Z][a-z]|pici_)' >"$log"; then
        fail "calls of MPI_ instead of PMPI_"
    elif [ "$(nm -D --defined-only "$library" |
        grep -c -E ' MPI_(Allreduce|Reduce(_scatter(_block)?)?|Allgatherv?|Bcast|Neighbor_allgatherv?)$')" != 9 ]; then
        fail "a function is not exported"
    else
        ok "symbols"
    fi
}

scenarios() { # RANKS: of calls.c
    extra=$all
    attempt "results" "$1" calls results -- 'MPI_Allreduce 64 of 64 calls, .* dense, .* sent, .* s$' \
        'MPI_Reduce_scatter_block 64 of 64 ' 'MPI_Reduce_scatter 64 of 64 ' 'MPI_Allgather 64 of 64 ' \
        'MPI_Reduce 0 of 1 calls; not ours: 1 small$'
    extra="$all PICI_PMPI_FUNCTIONS=reduce_scatter,allgather"
    attempt "functions switched off" 2 calls results -- 'MPI_Allreduce 0 of 64 calls; not ours: 64 switched off' \
        'MPI_Reduce_scatter_block 0 of 64 ' 'MPI_Reduce_scatter 64 of 64 ' 'MPI_Allgather 64 of 64 '
    extra=$all
    case $mpi in
    mpich) attempt "large counts" "$1" calls large -- 'MPI_Allreduce 1 of 1 ' 'MPI_Reduce_scatter_block 1 of 1 ' \
        'MPI_Reduce_scatter 1 of 1 ' 'MPI_Allgather 1 of 1 ' ;;
    *) attempt "large counts" "$1" calls large -- && grep -m 1 '^skip' "$log" ;;
    esac
    [ "$mpi" != mpich ] || attempt "results of three ranks" 3 calls results -- 'MPI_Allreduce 64 of 64 ' \
        'MPI_Reduce_scatter_block 64 of 64 ' 'MPI_Reduce_scatter 64 of 64 ' 'MPI_Allgather 64 of 64 '
    attempt "results of five ranks" 5 calls results -- 'MPI_Allreduce 64 of 64 ' 'MPI_Reduce_scatter_block 64 of 64 ' \
        'MPI_Reduce_scatter 64 of 64 ' 'MPI_Allgather 64 of 64 '
    attempt "types without arithmetic" "$1" calls odd_types -- 'MPI_Allgather 6 of 6 ' 'MPI_Allreduce 1 of 1 '
    attempt "wrapping, NaN, -0.0" "$1" calls corners -- 'MPI_Allreduce 4 of 4 '
    attempt "derived types" 3 calls derived -- 'MPI_Allgather 12 of 12 '
    attempt "pairs" "$1" calls pairs -- 'MPI_Allgather 1 of 1 '
    calls=8 types=1
    [ "$mpi" != openmpi ] || calls=9 types=2
    attempt "decisions" "$1" calls decisions -- \
        "MPI_Allreduce 0 of $calls calls; not ours: 2 small, 3 op, $types type, 1 intercommunicator, 1 one rank\$" \
        'MPI_Reduce_scatter 0 of 1 calls; not ours: 1 unequal counts$' 'MPI_Allgather 0 of 1 calls; not ours: 1 type$' \
        'MPI_Reduce 0 of 1 calls; not ours: 1 small$' \
        'MPI_Bcast 0 of 1 calls; not ours: 1 small$'
    n=1 init=
    [ "$mpi" != mpich ] || n=2 init=", 2 MPI_Neighbor_allgather_init, 2 MPI_Neighbor_allgatherv_init"
    small="0 of $n calls; not ours: $n small\$"
    attempt "small, and never ours" 2 calls never -- "MPI_Allgatherv $small" "MPI_Bcast $small" \
        "MPI_Iallreduce $small" "MPI_Ireduce_scatter $small" "MPI_Ireduce_scatter_block $small" \
        "MPI_Iallgather $small" "MPI_Iallgatherv $small" "MPI_Ireduce $small" "MPI_Ibcast $small" \
        "never ours: $n MPI_Ineighbor_allgather, $n MPI_Ineighbor_allgatherv$init\$"
    case $mpi in
    mpich) attempt "small and persistent" 2 calls never -- "MPI_Allreduce_init $small" \
        "MPI_Reduce_scatter_init $small" "MPI_Reduce_scatter_block_init $small" "MPI_Allgather_init $small" \
        "MPI_Allgatherv_init $small" \
        "MPI_Reduce_init $small" "MPI_Bcast_init $small" ;;
    esac
    attempt "threads" 2 calls threads -- 'MPI_Allreduce 40 of 40 '
    extra=$forced
    attempt "from the second call on" 2 calls twice -- 'MPI_Allreduce 2 of 3 calls.* not ours: 1 first$'
    attempt "1000 communicators" 2 calls communicators -- \
        'MPI_Allreduce 67 of 1092 calls.* not ours: 1021 first, 4 too many communicators$'
    extra="$forced PICI_PMPI_STATS=2 PICI_PMPI_AFTER=2"
    attempt "statistics of each rank" 2 calls twice -- 'pici: rank 0: MPI_Allreduce 1 of 3 ' \
        'pici: rank 1: MPI_Allreduce 1 of 3 calls.* 2 first$'
    extra="$preload PICI_PMPI_STATS=1 PICI_PMPI_MIN_BYTES=1000"
    attempt "one node" 2 calls twice -- 'MPI_Allreduce 0 of 3 calls; not ours: 3 one node$'
    extra="$forced PICI_PMPI_MIN_BYTES=8001"
    attempt "too small" 2 calls twice -- 'MPI_Allreduce 0 of 3 calls; not ours: 3 small$'
    extra="LD_PRELOAD=$dir/host.so:$preloaded PICI_PMPI_STATS=1 PICI_PMPI_MIN_BYTES=8000"
    attempt "several nodes" 2 calls twice -- 'MPI_Allreduce 2 of 3 calls'
    extra="LD_PRELOAD=$dir/host.so:$preloaded PICI_PMPI_STATS=1"
    attempt "several nodes, all else as by default" 2 calls limits -- \
        'MPI_Allreduce 1 of 4 calls.* not ours: 2 small, 1 first$'
    extra="$all PICI_PMPI=0"
    attempt "off" 2 calls twice --
    ! grep -q pici "$log" || fail "switched off, and says something"
}

verbs() { # RANKS: of verbs.c
    extra=$all
    attempt "reduce" "$1" verbs reduce -- "MPI_Reduce $((24 * $1)) of $((24 * $1 + 1)) .*1 small\$"
    attempt "reduce, its sums" "$1" verbs same_sums -- "MPI_Reduce $1 of $(($1 + 1)) "
    attempt "broadcast" "$1" verbs broadcast -- "MPI_Bcast $((6 * $1)) of $((6 * $1)) "
    attempt "broadcast, derived types" "$1" verbs broadcast_derived -- "MPI_Bcast $1 of $1 "
    attempt "gathers of different lengths" 3 verbs gather_parts -- 'MPI_Allgatherv 6 of 6 '
    attempt "gathers of different lengths, derived types" 3 verbs gather_derived -- 'MPI_Allgatherv 2 of 2 '
    case $mpi in
    mpich) attempt "these with large counts" "$1" verbs large -- 'MPI_Reduce 1 of 2 ' 'MPI_Bcast 1 of 1 ' \
        'MPI_Allgatherv 1 of 1 ' ;;
    *) attempt "these with large counts" "$1" verbs large -- && grep -m 1 '^skip' "$log" ;;
    esac
    for codec in bf16 q8 ${zfp:+zfp:rate=16}; do
        extra="$all PICI_PMPI_LOSSY=$codec"
        attempt "sums that lose precision, $codec" 2 verbs lossy -- 'MPI_Allreduce 3 of 3 ' \
            "^pici: PICI_PMPI_LOSSY=$codec: sums of floats by MPI_Allreduce lose precision\$"
    done
    if [ "$zfp" ]; then
        localedef -i de_DE -f UTF-8 "$dir/de_DE.UTF-8" 2>/dev/null ||
            echo "skip: $mpi, a rate in a locale with a decimal comma: no localedef"
        extra="$all PICI_PMPI_LOSSY=zfp:rate=16.5 LOCPATH=$dir LC_ALL=de_DE.UTF-8"
        attempt "a rate with a decimal point, in any locale" 2 verbs lossy -- 'MPI_Allreduce 3 of 3 '
    fi
    extra="$all PICI_PMPI_LOSSY=zfp:rate=8"
    [ "$zfp" ] || attempt "a codec that the library lacks" 2 verbs broadcast -- \
        'pici: off: this library was built without the codec of PICI_PMPI_LOSSY=zfp:rate=8$' \
        'MPI_Bcast 0 of 12 calls; not ours: 12 off$'
    for codec in fp8 zfp:rate=99 ''; do
        extra="$all PICI_PMPI_LOSSY=$codec"
        attempt "an unknown codec" 2 verbs broadcast -- \
            'pici: off: environment variable PICI_PMPI_LOSSY is "' 'MPI_Bcast 0 of 12 calls; not ours: 12 off$'
    done
    extra="$all PICI_PMPI_FUNCTIONS=reduce,allgatherv"
    attempt "broadcasts switched off" 2 verbs broadcast -- 'MPI_Bcast 0 of 12 calls; not ours: 12 switched off$'
}

later() { # RANKS: of later.c. MPICH's ranks wait busily, each in two threads
    extra=$all
    attempt "without waiting" "$1" later results -- 'MPI_Iallreduce 16 of 17 .*1 before a blocking call$' \
        'MPI_Ireduce_scatter_block 16 of 16 ' 'MPI_Ireduce_scatter 16 of 16 ' 'MPI_Iallgather 16 of 16 ' \
        'MPI_Iallgatherv 16 of 16 ' 'MPI_Ireduce 16 of 16 ' 'MPI_Ibcast 16 of 16 '
    attempt "without waiting, many" "$1" later many -- 'MPI_Iallreduce 6 of 8 ' 'MPI_Ibcast 6 of 6 '
    attempt "without waiting, what is freed at once" "$1" later freed -- 'MPI_Ibcast 1 of 1 '
    attempt "without waiting, progress elsewhere" "$1" later progress -- 'MPI_Iallreduce 6 of 7 ' 'MPI_Ibcast 6 of 6 '
    attempt "without waiting, errors" "$1" later errors -- 'pici: rank 1: MPI_Iallreduce: ranks disagree on the count'
    attempt "without waiting, threads" 2 later threads -- 'MPI_Iallreduce 80 of 84 '
    case $mpi in
    mpich)
        attempt "without waiting, no threads" 2 later single -- 'MPI_Ibcast 0 of 16 calls; not ours: 16 no threads$'
        attempt "without waiting, large counts" 2 later large -- 'MPI_Iallreduce 1 of 2 ' 'MPI_Ibcast 1 of 1 '
        attempt "persistent" 2 later persistent -- 'MPI_Allreduce_init 1 of 1 ' 'MPI_Bcast_init 1 of 1 ' \
            'MPI_Reduce_scatter_block_init 1 of 1 ' 'MPI_Allgather_init 1 of 1 ' 'MPI_Reduce_scatter_init 1 of 1 ' \
            'MPI_Allgatherv_init 1 of 1 ' 'MPI_Reduce_init 1 of 1 '
        attempt "persistent, started in different orders" 3 later orders -- 'MPI_Allreduce 3 of 3 ' \
            'MPI_Iallreduce 3 of 3 ' 'MPI_Allreduce_init 4 of 4 ' 'MPI_Bcast_init 2 of 2 '
        attempt "persistent, more requests than communicators" 2 later limits -- \
            'MPI_Allreduce_init 58 of 68 calls.* not ours: 10 too many communicators$' 'MPI_Bcast_init 8 of 8 '
        extra="$all PICI_PMPI_COMMS=521"
        attempt "persistent, hundreds of requests" 2 later hundreds -- 'MPI_Allreduce_init 521 of 521 '
        extra="$all$left"
        attempt "persistent, errors" 2 later failed -- 'MPI_Allreduce_init 3 of 3 ' \
            'pici: rank 1: MPI_Allreduce_init: ranks disagree on the count'
        extra=
        attempt "persistent, started in different orders, by MPI" 3 later orders --
        attempt "persistent, many requests, by MPI" 2 later limits --
        ;;
    *)
        attempt "without waiting, no threads" "$1" later single -- 'MPI_Ibcast 16 of 16 '
        attempt "persistent" 2 later persistent -- && grep -m 1 '^skip' "$log"
        ;;
    esac
    extra="$all PICI_PMPI_FUNCTIONS=allreduce,iallreduce"
    attempt "without waiting, switched off" 2 later results -- 'MPI_Iallreduce 16 of 17 ' \
        'MPI_Ibcast 0 of 16 calls; not ours: 16 switched off$'
}

neighbors() { # of neighbors.c, on four ranks, with nodes of two where blocks are to be passed on
    direct="$all PICI_NEIGHBOR=direct" auto="$forced PICI_NEIGHBOR=auto"
    extra=$direct
    attempt "neighbours" 4 neighbors results -- 'MPI_Neighbor_allgather 91 of 91 calls, .* sent' \
        'MPI_Neighbor_allgatherv 65 of 65 calls, .* sent'
    extra="$all PICI_NEIGHBOR=halving LD_PRELOAD=$dir/nodes.so:$preloaded"
    attempt "neighbours that relay" 4 neighbors results -- 'MPI_Neighbor_allgather 91 of 91 ' \
        'MPI_Neighbor_allgatherv 65 of 65 '
    extra="$direct PICI_PMPI_FUNCTIONS=neighbor_allgatherv"
    attempt "neighbours of equal counts switched off" 4 neighbors results -- \
        'MPI_Neighbor_allgather 0 of 91 calls; not ours: 91 switched off' 'MPI_Neighbor_allgatherv 65 of 65 '
    extra=$direct
    attempt "neighbours, null buffers" 4 neighbors absent -- 'MPI_Neighbor_allgather 2 of 2 '
    attempt "neighbours, derived types" 4 neighbors types -- 'MPI_Neighbor_allgather 12 of 12 ' \
        'MPI_Neighbor_allgatherv 3 of 3 '
    case $mpi in
    mpich) attempt "neighbours, large counts" 4 neighbors large -- 'MPI_Neighbor_allgather 1 of 1 ' \
        'MPI_Neighbor_allgatherv 1 of 1 ' ;;
    *) attempt "neighbours, large counts" 4 neighbors large -- && grep -m 1 '^skip' "$log" ;;
    esac
    attempt "neighbours, decisions" 4 neighbors decisions -- "MPI_Neighbor_allgather 0 of 6 calls; not ours: 1 small, \
1 unequal counts, 1 one rank, 1 no topology, 1 few ranks, 1 few neighbours\$" \
        'MPI_Neighbor_allgatherv 2 of 14 calls.* not ours: 12 small$'
    extra="$direct PICI_PMPI_WAIT=1"
    LIMIT=6 launch 4 "$dir/neighbors" parts
    says "neighbours, counts that MPI forbids" \
        'in MPI_Neighbor_allgather; .*\. Do all ranks give the same count, as MPI demands?$'
    extra=$direct
    attempt "neighbours, overlapping buffers" 4 neighbors overlap -- 'MPI_Neighbor_allgather 0 of 1 calls.* 1 off$'
    attempt "neighbours, errors" 4 neighbors errors -- 'MPI_Neighbor_allgatherv: rank 0 sends another count' \
        'MPI_Neighbor_allgatherv 1 of 2 calls.* 1 off$'
    extra="$direct LD_PRELOAD=$dir/failing.so:$preloaded"
    attempt "neighbours, no memory" 4 neighbors memory -- 'pici: MPI_Neighbor_allgather: a rank has no memory for ' \
        'MPI_Neighbor_allgather 1 of 3 calls.* 2 off$'
    attempt "neighbours, unpacking" 4 neighbors unpacking -- \
        'pici: rank 1: MPI_Neighbor_allgather: MPI cannot unpack what was received$'
    extra="$direct LD_LIBRARY_PATH=$dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    attempt "neighbours, a GPU that comes later" 4 neighbors gpu -- 'pici: .*: a rank cannot take part: ' \
        'MPI_Neighbor_allgather 1 of 3 calls.* 2 off$'
    if [ "$mpi" = openmpi ] || [ -n "${PICI_TEST_FULL:-}" ]; then
        extra="$forced PICI_NEIGHBOR=direct" LIMIT=300
        attempt "neighbours, 1000 communicators" 3 neighbors communicators -- \
            'MPI_Neighbor_allgather 20 of 1020 calls.* 1000 first$'
        unset LIMIT
    else
        echo "skip: $mpi: 1000 communicators with neighbours, in a minute and a half (PICI_TEST_FULL=1 has them)"
    fi
    extra=$auto
    attempt "neighbours, eight ranks" 8 neighbors twice -- 'MPI_Neighbor_allgather 2 of 3 calls.* 1 first$'
    attempt "neighbours, eight ranks in a circle" 8 neighbors circle -- 'not ours: 3 few neighbours$'
    attempt "neighbours, few ranks" 4 neighbors twice -- 'MPI_Neighbor_allgather 0 of 3 calls; not ours: 3 few ranks$'
    extra="$all PICI_NEIGHBOR=off"
    attempt "neighbours, off" 4 neighbors twice -- 'not ours: 3 switched off$'
    extra="$all PICI_NEIGHBOR=ring"
    attempt "neighbours, an invalid variable" 4 neighbors twice -- \
        'pici: off: environment variable PICI_NEIGHBOR is "ring", which is not auto, direct, halving or off$' '3 off$'
    extra="$preload PICI_PMPI_STATS=1 PICI_PMPI_MIN_BYTES=1000 PICI_NEIGHBOR=direct"
    attempt "neighbours, one node" 4 neighbors twice -- 'MPI_Neighbor_allgather 0 of 3 calls; not ours: 3 one node$'
}

wrong() { # what is said, and what becomes of the calls
    extra=$all
    attempt "errors" 3 failures errors -- 'pici: rank 1: MPI_Allreduce: ranks disagree on the count' \
        'MPI_Allreduce 4 of 4 '
    if launch 2 "$dir/failures" fatal || grep -q 'still here' "$log"; then
        fail "an error is not fatal"
    else
        ok "errors are fatal by default"
    fi
    extra="$all LD_PRELOAD=$dir/failing.so:$preloaded$left"
    attempt "no memory" 3 failures memory -- 'pici: MPI_Allreduce: .*; MPI makes the calls of this communicator ' \
        'pici: rank 1: MPI_Allreduce: ' 'MPI_Allreduce 3 of 4 calls.* 1 off$'
    extra="$all LD_PRELOAD=$dir/failing.so:$preloaded"
    attempt "looking for libraries" 2 failures looks -- 'MPI_Allreduce 7 of 7 '
    attempt "unpacking" 2 failures unpacking -- 'pici: rank 1: MPI_Allgather: MPI cannot unpack what was received$'
    extra="$all PAUSE_MS=6000 PICI_TIMEOUT_MS=2000$left"
    attempt "a timeout" 2 failures paused -- 'pici: rank 0: MPI_Allreduce: .*no progress for 2000 ms'
    extra="$all PAUSE_MS=${PICI_TEST_FULL:+6}1000" # pici itself waits 60 s
    attempt "no timeout" 2 failures paused -- 'MPI_Allreduce 2 of 2 '
    extra=$all
    case $mpi in
    openmpi) attempt "the same buffer twice" 2 failures aliased -- 'MPI_Allreduce 1 of 1 ' ;;
    *) # an error, and other ranks do not wait for ever
        # MPI may end all ranks before one says that the communicator is MPI's, or before its own words are out. Then no
        # rank has said a thing: try again.
        for _ in 1 2 3; do
            status=0
            LIMIT=30 launch 2 "$dir/failures" aliased || status=$?
            [ ! -s "$log" ] || break
        done
        case $status in
        0 | 124) fail "the same buffer twice" ;;
        *) says "the same buffer twice" 'Buffers must not be aliased\|rank 1: invalid argument; MPI makes the calls' ;;
        esac
        ;;
    esac
    extra="$all PICI_TUNE=$dir/none"
    attempt "no communicator" 2 calls twice -- 'pici: off: no communicator: .*none' 'not ours: 3 off$'
    extra="$all PICI_TUNE=$dir/two.tune PICI_TUNE_VERBOSE=1 PICI_TUNE_HISTORY=1"
    attempt "with the history of densities" 2 failures dense -- '^pici: all_reduce f32, .*(counted)'
    extra="$all PICI_TUNE=$dir/two.tune PICI_TUNE_VERBOSE=1"
    attempt "without the history of densities" 2 failures dense -- '^pici: all_reduce f32, '
    ! grep -q '(counted)' "$log" || fail "an algorithm is chosen by densities of earlier calls"
    extra="$forced PICI_PMPI_AFTER=1k"
    attempt "an invalid variable" 2 calls twice -- \
        'pici: off: environment variable PICI_PMPI_AFTER is "1k", which is not a number$' 'not ours: 3 off$'
    extra="$all"
    attempt "different settings" 3 failures lonely -- 'pici: off: ranks have different ' 'not ours: 2 off$'
    extra="$all PICI_PMPI_WAIT=1"
    attempt "a late rank" 2 failures late -- \
        'pici: rank 0 has waited 1 s for other ranks in MPI_Allreduce; check that every host has LD_PRELOAD'
    # shellcheck disable=SC2016 # the ranks' variables
    LIMIT=4 launch 2 sh -c 'case ${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-}} in 1) unset LD_PRELOAD ;; esac; exec "$@"' \
        sh "$dir/calls" twice
    if grep -q 'check that every host has LD_PRELOAD' "$log" && ! grep -q passed "$log"; then
        ok "a rank without the library"
    else
        fail "a rank without the library"
    fi
    extra="$all LD_LIBRARY_PATH=$dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    attempt "a GPU that comes later" 2 failures gpu -- \
        'pici: MPI_Allreduce: .*; MPI makes the calls of this communicator ' 'MPI_Allreduce 1 of 3 calls.* 2 off$'
    extra="$all LD_PRELOAD=$dir/libcuda.so.1:$preloaded"
    attempt "a GPU" 2 calls twice -- 'pici: off: a rank uses a GPU' 'MPI_Allreduce 0 of 3 calls; not ours: 3 off$'
}

bits() { # RANKS
    extra="$forced PICI_PMPI_AFTER=0"
    attempt "the bits of pici_all_reduce" "$1" bits -- 'MPI_Allreduce 2 of 5 .*3 small$' \
        'MPI_Reduce_scatter_block 2 of 2 '
    extra=
    launch "$1" "$dir/bits"
    says "other bits without the library" 'bits differ'
}

fortran() { # RANKS COMPILER
    extra=
    [ "$mpi" != openmpi ] || attempt "Fortran, wide integers" 1 wide --
    if ! command -v "$2" >/dev/null 2>&1 || ! command -v gfortran >/dev/null 2>&1; then
        echo "skip: $mpi, Fortran: no $2 or gfortran"
        return
    fi
    extra="$all PICI_NEIGHBOR=direct"
    for program in f77 mpi mpi_f08; do
        source=module.f90 handle=integer
        [ $program != f77 ] || source=f77.f
        request=integer
        [ $program != mpi_f08 ] || handle='type(MPI_Comm)' request='type(MPI_Request)'
        if ! (cd "$dir" && "$2" -cpp -DMODULE=$program -DHANDLE="$handle" -DREQUEST="$request" -std=legacy -w \
            -o "$program" "$tests/$source") >"$log" 2>&1; then
            fail "Fortran, $program: it does not compile"
            continue
        fi
        attempt "Fortran, $program" "$1" "$program" -- 'MPI_Allreduce 2 of 3 .*1 small$' \
            'MPI_Reduce_scatter_block 2 of 2 ' 'MPI_Reduce_scatter 2 of 2 ' 'MPI_Allgather 2 of 2 ' \
            'MPI_Neighbor_allgather 1 of 1 ' 'MPI_Neighbor_allgatherv 1 of 1 ' \
            'MPI_Reduce 1 of 2 .*1 small$' 'MPI_Bcast 1 of 2 .*1 small$' 'MPI_Allgatherv 1 of 2 .*1 small$' \
            'MPI_Iallreduce [01] of 1 ' 'MPI_Ireduce_scatter [01] of 1 ' 'MPI_Ireduce_scatter_block [01] of 1 ' \
            'MPI_Iallgather [01] of 1 ' 'MPI_Iallgatherv [01] of 1 ' 'MPI_Ireduce [01] of 1 ' 'MPI_Ibcast [01] of 1 ' \
            'never ours: 1 MPI_Ineighbor_allgather, 1 MPI_Ineighbor_allgatherv$'
    done
}

script() { # pici-preload: one program, and two behind a colon; with what was preloaded before
    export PICI_PMPI_LIBRARY="$library" PICI_PMPI_STATS=2 PICI_PMPI_INTRA=1 PICI_PMPI_MIN_BYTES=1000 PICI_X="a  b"
    many=
    [ "$mpi" != openmpi ] || many=--oversubscribe
    for between in '' ":${many:+ $many} -n 1 $dir/calls twice"; do
        # shellcheck disable=SC2086 # words
        LD_PRELOAD=$dir/host.so$yield timeout 60 preload/pici-preload "$run" $many -n 1 "$dir/calls" twice \
            ${between:-: $many -n 2 "$dir/calls" twice} >"$log" 2>&1 </dev/null
        if [ $? = 0 ] && grep -q 'rank 1: MPI_Allreduce 2 of 3' "$log"; then
            ok "pici-preload"
        else
            fail "pici-preload ${between:-with three ranks}"
        fi
    done
    preload/pici-preload --print "$run" -n 1 x : -n 2 y >"$log" 2>&1
    case $mpi in
    openmpi) want="$run -x LD_PRELOAD=$library .*-x PICI_X -n 1 x : -x LD_PRELOAD=$library .*-x PICI_X -n 2 y" ;;
    *) want="$run -genv LD_PRELOAD $library .*-genv PICI_X a  b .*-n 1 x : -n 2 y" ;;
    esac
    says "pici-preload --print" "^$want\$"
    unset PICI_PMPI_LIBRARY PICI_PMPI_STATS PICI_PMPI_INTRA PICI_PMPI_MIN_BYTES PICI_X
}

installed() { # the script and the library, in a tree of their own
    rm -rf "$dir/root"
    "$make" -s BUILD="$build" MPIDIR="$build/$mpi" CC="$cc" DESTDIR="$dir/root" PREFIX=/usr \
        LIBDIR=/usr/lib/some-machine CUDADIR="$dir/none" NCCLDIR="$dir/none" install >"$log" 2>&1
    "$dir/root/usr/bin/pici-preload" --print "$run" -n 1 x >"$log" 2>&1
    if grep -q "LD_PRELOAD[= ]$dir/root/usr/lib/some-machine/libpici_pmpi-$mpi.so" "$log" &&
        "$dir/root/usr/bin/pici-preload" --version | grep >/dev/null '^pici-preload [0-9]' &&
        [ -e "$dir/root/usr/share/man/man1/pici-preload.1" ]; then
        ok "installed"
    else
        fail "installed"
    fi
    rm -rf "$dir/root"
}

refusals() {
    mpi=pici-preload
    for words in 'true -n 1|is not mpirun' 'no-such-program|there is no no-such-program' \
        '--what mpirun|unknown option'; do
        # shellcheck disable=SC2086 # words
        preload/pici-preload ${words%|*} >"$log" 2>&1
        if [ $? = 2 ] && grep -q "^pici-preload: .*${words#*|}" "$log"; then ok "$words"; else fail "$words"; fi
    done
    if preload/pici-preload --version | grep >/dev/null '^pici-preload [0-9]' &&
        preload/pici-preload --help | grep >/dev/null '^usage: '; then
        ok "--version, --help"
    else
        fail "--version, --help"
    fi
}

build_all() {
    library=$here/$mpi$sanitized/libpici_pmpi-$mpi.so
    export OMPI_CC="$cc" MPICH_CC="$cc"
    rm -f "$library"
    preloaded=$runtime$library$yield
    # shellcheck disable=SC2086 # flags
    "$make" -s BUILD="$build" MPIDIR="$build/$mpi$sanitized" MPICC="$mpicc${flags:+ $flags}" CC="$cc" WERROR=1 \
        pmpi mpi && [ -e "$library" ] || return
    for program in calls verbs later failures neighbors; do
        # shellcheck disable=SC2086 # flags
        "$mpicc" -O1 -Wall -Wextra -pthread $flags -o "$dir/$program" "$tests/$program.c" -ldl -lm || return
    done
    # shellcheck disable=SC2086 # flags
    "$mpicc" -O1 -Wall -Iinclude -pthread $flags -o "$dir/bits" "$tests/bits.c" \
        "$build/$mpi$sanitized/libpici_mpi.a" "$build/libpici_coll.a" "$build/libpici.a" ${zstd:+-lzstd} ${zfp:+-lzfp} \
        -lm || return
    if [ "$mpi" = openmpi ]; then # with the objects of the preloaded library, but for one
        objects=$(find "$build/$mpi$sanitized/obj/preload" "$build/$mpi$sanitized/obj/pmpi" -name '*.o' \
            ! -name fortran.o)
        # shellcheck disable=SC2086 # words
        "$mpicc" -O1 -Wall -Wextra -I. -Iinclude -Ilib -pthread $flags -include "$tests/wide.h" -o "$dir/wide" \
            "$tests/wide.c" preload/fortran.c $objects "$build/libpici_coll.a" "$build/libpici.a" ${zstd:+-lzstd} \
            ${zfp:+-lzfp} -ldl -lm || return
    fi
    for library_of in "$mpicc nodes" "$mpicc failing" "$cc host"; do
        ${library_of% *} -Wall -shared -fPIC -o "$dir/${library_of#* }.so" "$tests/${library_of#* }.c" || return
    done
    $cc -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$dir/libcuda.so.1" "$tests/driver.c" || return
    printf '%s\n' 'pici-tune 1' 'shape ranks 2 nodes 1 map 2 cores 2' 'end 77c3eca10125fd2c' >"$dir/two.tune"
}

tests=$PWD/tests/mpi/preload
zstd=
[ "${ZSTD:-}" != 1 ] || zstd=1
zfp=
[ "${ZFP:-}" != 1 ] || zfp=1
for mpi in openmpi mpich; do
    some=3 yield=
    dir=$all_of/$mpi log=$all_of/$mpi/output
    case " ${MPIS:-openmpi mpich} " in *" $mpi "*) ;; *) continue ;; esac
    find_mpi "$mpi" || continue
    run=${mpirun%% *}
    mkdir "$dir"
    [ "$mpi" = openmpi ] || some=2 yield=:$tmp/yield.so
    [ -z "$sanitized" ] || export ASAN_OPTIONS="verify_asan_link_order=0:fast_unwind_on_malloc=0:\
log_path=$dir/report:stack_trace_format=#%n_%p_%F_%L_(%m)"
    if ! build_all >"$log" 2>&1; then
        fail "does not build"
        continue
    fi
    # One MPI beside the other, since most of the time is spent starting and ending programs.
    {
        passed=0 failed=0
        preload="LD_PRELOAD=$preloaded"
        forced="$preload PICI_PMPI_STATS=1 PICI_PMPI_INTRA=1 PICI_PMPI_MIN_BYTES=1000"
        all="$forced PICI_PMPI_AFTER=0"
        left="${flags:+ ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0}" # what a message may still come for
        for part in $SCENARIOS; do
            case $part in
            neighbors | wrong) $part ;;
            bits) bits 5 ;;
            fortran) fortran 3 "mpif90${mpicc#mpicc}" ;;
            *) $part $some ;;
            esac
        done
        # The rest is of the script, and of a library that others may have.
        if [ -n "$sanitized" ]; then
            reports
        else
            symbols
            collectives
            script
            installed
        fi
        echo "$passed $failed" >"$dir/results"
    } >"$dir/said" 2>&1 &
done
wait
for said in "$all_of"/*/said; do
    [ -e "$said" ] || break
    cat "$said"
    read -r p f <"${said%/*}/results" || p=0 f=1
    passed=$((passed + p)) failed=$((failed + f))
done
dir=$all_of log=$all_of/output
[ -n "$sanitized" ] || refusals
finish
