#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# pici-tune: measures in seconds, and reads what it wrote; a program takes its file; files are merged; a report on a
# file with known answers; what it refuses.
. tests/util/script
no_threads_sanitizer MPI
find_mpi openmpi || exit 77
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # MPI leaks
make_target MPIDIR="$build/openmpi" MPICC="$mpicc" SANITIZE="${SANITIZE:-}" mpi mpi-examples
tune=$build/openmpi/pici-tune
core=$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/') # the first that this may run on

try() { # WANT COMMAND...: runs with this exit status
    want=$1
    shift
    check "$want" "$*" "$@"
}

ranks() { # N COMMAND...
    # shellcheck disable=SC2086 # a launcher and its options
    timeout "${LIMIT:-120}" $mpirun -n "$@"
}

sealed() { # FILE: put the right line end behind it
    echo 'end 0000000000000000' >>"$1"
    hash=$("$tune" --report "$1" 2>&1 | sed -n 's/.*its hash is \([0-9a-f]*\), not.*/\1/p')
    sed -i "s/^end .*/end $hash/" "$1"
}

# ---- measuring

short="--minutes 0.03 --max 64K --noise 100000"
# shellcheck disable=SC2086 # words
try 0 ranks 2 "$tune" $short --native -o "$tmp/2.tune"
is "progress" grep -q '^agreement among 2 ranks: ' "$out"
is "the variable" grep -q "export PICI_TUNE=$tmp/2.tune" "$out"
is "the shape" grep -q '^shape .*ranks 2 nodes 1 map 2 ' "$tmp/2.tune"
is "codec" grep -q '^codec f32 hybrid encode ' "$tmp/2.tune"
is "codec of packed blocks" grep -q '^codec f32 packed add ' "$tmp/2.tune"
is "thresholds" grep -qE '^threshold inter [0-9.e-]+ intra [0-9.e-]+ gather [0-9.e-]+ stream [0-9.e-]+$' "$tmp/2.tune"
is "thresholds are printed" grep -q '^dense from: .*; slices of streams ' "$out"
is "points" grep -q '^point all_gather f32 4096 ' "$tmp/2.tune"
is "sparse points" grep -q '^point .* ring sparse ' "$tmp/2.tune"
is "no two levels on one node" sh -c "! grep -q '^point .* nodes-' '$tmp/2.tune'"
is "points of the native collective" grep -q '^point .* native[^ ]* dense ' "$tmp/2.tune"
# shellcheck disable=SC2086 # words
try 0 ranks 4 "$tune" $short --nodes 0,1,0,1 -o "$tmp/4.tune"
is "nodes as told" grep -q '^shape .*ranks 4 nodes 2 map 2,2 ' "$tmp/4.tune"
is "a link between nodes" grep -q '^link inter .*node_beta ' "$tmp/4.tune"
# However busy the machine: with links that take no time, every prediction is wrong.
is "both links take time" awk '$1 == "link" { n += $6 > 0 } END { exit n != 2 }' "$tmp/4.tune"
is "two levels" grep -q '^point .* nodes-recursive ' "$tmp/4.tune"

# Over sockets, whose ranks share memory here; and over MPI inside nodes and sockets between.
for over in sockets levels; do
    # shellcheck disable=SC2086 # words
    try 0 ranks 4 "$tune" $short --over $over --nodes 0,0,1,1 -o "$tmp/$over.tune"
    is "transport, $over" grep -q "^made .* transport \"$over\" " "$tmp/$over.tune"
    is "a link inside nodes, $over" grep -q '^link intra ' "$tmp/$over.tune"
    is "a link between nodes, $over" grep -q '^link inter .*node_beta ' "$tmp/$over.tune"
    is "points, $over" grep -q '^point .* nodes-recursive ' "$tmp/$over.tune"
done
try 2 ranks 2 "$tune" $short --over pigeons -o "$tmp/x.tune"
is "words" grep -q 'mpi, sockets or levels' "$err"
try 2 ranks 2 "$tune" $short --over sockets --native -o "$tmp/x.tune"
is "words" grep -q "MPI's collectives" "$err"
try 1 ranks 2 env PICI_SOCKET_IFNAME=none0 "$tune" $short --over sockets -o "$tmp/x.tune"
is "words" grep -q 'no interface none0' "$err"

# Four ranks on one core, as one node and as four that share it. The lines of the codec have all of the sharing that the
# model does not add itself. So the second ones should have about four times as much. They are times: not asserted.
for nodes in 0,0,0,0 0,1,2,3; do
    # shellcheck disable=SC2086 # words
    try 0 ranks 4 taskset -c "$core" "$tune" $short --nodes $nodes -o "$tmp/core.tune"
    is "cores of a node" grep -q '^shape .* cores 1$' "$tmp/core.tune"
    awk -v nodes=$nodes '$1 == "codec" { sum += $5 } END { print "nodes " nodes ": " sum " ns" }' "$tmp/core.tune"
done

# ---- a program takes the file
try 0 ranks 2 -x PICI_TUNE="$tmp/2.tune" -x PICI_TUNE_VERBOSE=1 "$build/openmpi/train" -s 4 -b 16 -u 64
is "the choice is printed" grep -q 'pici: all_reduce f32, .* takes ' "$err"
try 0 ranks 2 -x PICI_TUNE_VERBOSE=1 "$build/openmpi/train" -s 4 -b 16 -u 64
is "no choice without a file" sh -c "! grep -q ' takes ' '$tmp/err'"

# With permission, also the native collective, where the file says that it is the fastest.
{
    echo 'pici-tune 1'
    echo 'shape ranks 2 nodes 1 map 2 cores 0'
    for bytes in 4096 1048576 16777216; do
        for algorithm in $(sed -n 's/^ *\.name = "\(.*\)",$/\1/p' lib/schedule/registry.c | sort -u); do
            echo "point all_reduce f32 $bytes 1 $algorithm sparse 1 0"
            echo "point all_reduce f32 $bytes 1 $algorithm dense 1 0"
        done
        echo "point all_reduce f32 $bytes 1 native dense 1e-9 0"
    done
} >"$tmp/native.tune"
sealed "$tmp/native.tune"
for permit in 0 1; do
    try 0 ranks 2 -x PICI_TUNE="$tmp/native.tune" -x PICI_TUNE_VERBOSE=1 -x PICI_NATIVE=$permit \
        "$build/openmpi/train" -s 4 -b 16 -u 64
    taken=$(grep -c ' takes native dense' "$err")
    is "the native collective, permitted: $permit, taken: $taken" [ $((taken > 0)) = $permit ]
done

# ---- merging
try 0 "$tune" --merge -o "$tmp/all.tune" "$tmp/2.tune" "$tmp/4.tune"
is "both shapes" [ "$(grep -c '^shape ' "$tmp/all.tune")" = 2 ]
is "all points" [ "$(cat "$tmp/2.tune" "$tmp/4.tune" | grep -c '^point ')" = "$(grep -c '^point ' "$tmp/all.tune")" ]
try 0 ranks 2 -x PICI_TUNE="$tmp/all.tune" -x PICI_TUNE_VERBOSE=1 "$build/openmpi/train" -s 4 -b 16 -u 64
is "a merged file" grep -q ' takes ' "$err"
try 1 "$tune" --merge -o "$tmp/twice.tune" "$tmp/2.tune" "$tmp/2.tune"
is "the same shape twice" [ ! -e "$tmp/twice.tune" ]

# ---- a report on made-up times: the ring always takes half of what recursive does, and a third of the native call's
made() { # the lines of such a file; the reader says what the hash at the end should be
    echo 'pici-tune 1'
    echo 'shape ranks 4 nodes 4 map 1,1,1,1 cores 0'
    echo 'link inter alpha 1e-5 beta 1e-8 node_beta 1e-8'
    echo 'link intra alpha 1e-5 beta 1e-8'
    for bytes in 1048576 2097152 4194304 8388608 16777216; do
        for density in 0.6 0.7 0.8 1; do # where all messages are dense
            awk -v b=$bytes -v d=$density 'BEGIN {
                t = b * 1.5e-8
                printf "point all_reduce f32 %d %s ring sparse %g 0\n", b, d, t
                printf "point all_reduce f32 %d %s recursive sparse %g 0\n", b, d, 2 * t
                if (d == 1) printf "point all_reduce f32 %d 1 native dense %g 0\n", b, 3 * t }'
        done
    done
}
made >"$tmp/made.tune"
sealed "$tmp/made.tune"
try 0 "$tune" --report "$tmp/made.tune"
row() { # RULE FASTEST MEAN WORST: of its row
    is "the report on: $1" awk -v rule="$1" -v f="$2%" -v m="$3%" -v w="$4%" '
        index($0, rule) == 1 { sub(rule, ""); good = $1 > 1 && $2 == f && $3 == m && $5 == w }
        END { exit !good }' "$out"
}
row 'this file' 100.0 0.0 0.0
row 'nearest measured call' 100.0 0.0 0.0
row 'AUTO without a file' 100.0 0.0 0.0
row 'always ring' 100.0 0.0 0.0
row "always the native collective" 0.0 200.0 200.0
is "the report on dense calls" grep -q 'call, of 12 by this file: mean 0.0%, 95% below 0.0%, worst 0.0%$' "$out"
# 1 MiB, which is held out: a dense call of 1 ms, where the file takes the ring, with 1048576 * 1.5e-8 s
sed '/^end /d; s/ 1048576 1 native dense .*/ 1048576 1 native dense 0.001 0/' "$tmp/made.tune" >"$tmp/dense.tune"
sealed "$tmp/dense.tune"
try 0 "$tune" --report "$tmp/dense.tune"
is "the report on a faster dense call" grep -q 'fastest dense call, of [1-9].* worst 1472.9%$' "$out"
sed '/^end /d; s/ ring / split /; s/ recursive / ring /' "$tmp/made.tune" >"$tmp/split.tune"
sealed "$tmp/split.tune"
try 0 "$tune" --report "$tmp/split.tune"
row 'this file' 100.0 0.0 0.0
row 'always ring' 0.0 100.0 100.0
try 1 "$tune" --report "$tmp/4.tune.missing"
is "a missing file" grep -q 'missing: No such file' "$err"
sed 's/^shape.*/shape/' "$tmp/made.tune" >"$tmp/bad.tune"
try 1 "$tune" --report "$tmp/bad.tune"
is "a damaged file" grep -q 'bad.tune: line 2: ' "$err"
printf 'pici-tune 1\nshape ranks 2 nodes 1 map 2 cores 2\n' >"$tmp/none.tune"
sealed "$tmp/none.tune"
try 1 "$tune" --report "$tmp/none.tune"
is "a file without points" grep -q 'too few' "$err"

# ---- what it refuses
refused() { # WORDS ARGUMENTS...: wrong usage
    words=$1
    shift
    try 2 "$tune" "$@"
    is "'$words': $*" grep -q -e "$words" "$err"
}
refused 'FILE is missing'
refused '--minutes takes' -o "$tmp/x" --minutes soon
refused '--minutes takes' -o "$tmp/x" --minutes -1
refused '--max takes' -o "$tmp/x" --max 64X
refused '--min is above' -o "$tmp/x" --min 1M --max 1K
refused '--noise takes' -o "$tmp/x" --noise 0
refused 'not options' -o "$tmp/x" word
refused 'two files or more' --merge -o "$tmp/x" "$tmp/2.tune"
refused 'one file' --report "$tmp/2.tune" "$tmp/4.tune"
refused 'unrecognized option' --slowly
try 1 "$tune" -o "$tmp/x"
is "one rank" grep -q 'mpirun -n RANKS' "$err"
try 1 ranks 2 "$tune" -o "$tmp/x" --nodes 0
is "too few nodes" grep -q -e '--nodes takes a number for each of 2 ranks' "$err"
is "no file of these" [ ! -e "$tmp/x" ]
# shellcheck disable=SC2086 # words
try 1 ranks 2 "$tune" $short -o "$tmp/no/such/folder/x"
is "no such folder" grep -q 'No such file' "$err"
try 0 "$tune" --help
is "help" grep -q '^usage: mpirun' "$out"
for option in $("$tune" --help | sed -n 's/^ *\(-o, \|-h, \)*--\([a-z]*\) .*/\2/p'); do
    is "--$option in the manual" grep -q -e "Fl Fl $option" tools/tune/pici-tune.1
done
try 0 "$tune" --version

finish
