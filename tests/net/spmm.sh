#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The example spmm: products on several ranks are those of one; what it refuses. Matrices of the SuiteSparse collection
# in $PICI_SUITESPARSE, or else in ../shared/data/suitesparse.
set -u
build=${BUILD:-build}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

check() { # STATUS WHAT COMMAND...
    want=$1 what=$2
    shift 2
    "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    status=$?
    if [ $status = "$want" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $what: exit status $status, not $want: $(head -c 500 "$tmp/err")"
    fi
}

says() { # WHAT PATTERN FILE
    if grep -Eq -e "$2" "$3"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $1: no '$2' in: $(head -c 1000 "$3")"
    fi
}

for ranks in 1 5 16; do
    check 0 "generated, $ranks ranks" "$build/spmm" -t $ranks -c 3 -r 1
    says "generated, $ranks ranks" 'field: .* Z is right' "$tmp/out"
done
check 0 "mostly zeros" "$build/spmm" -t 8 -c 8 -r 1 -z 95
check 2 "no such option" "$build/spmm" --what
check 2 "no ranks" "$build/spmm" -t 0
check 1 "no such file" "$build/spmm" "$tmp/none.mtx"
printf '%%%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 1\n' >"$tmp/short.mtx"
check 1 "fewer entries" "$build/spmm" "$tmp/short.mtx"
says "fewer entries" 'short.mtx: fewer entries than it says' "$tmp/err"
printf '%%%%MatrixMarket matrix coordinate pattern general\n3 4 1\n1 1\n' >"$tmp/flat.mtx"
check 1 "not square" "$build/spmm" "$tmp/flat.mtx"
says "not square" 'not a square matrix' "$tmp/err"
printf '%%%%MatrixMarket matrix coordinate pattern symmetric\n2 2 1\n2 1\n' >"$tmp/small.mtx"
check 0 "more ranks than rows" "$build/spmm" -t 5 "$tmp/small.mtx"

# What is known of these graphs: edges and messages by halving, 16 ranks, 4 a node.
data=${PICI_SUITESPARSE:-../shared/data/suitesparse}
for known in dwt_193:120:72 Journals:240:80; do
    name=${known%%:*} rest=${known#*:}
    if [ -e "$data/$name.mtx" ]; then
        check 0 "$name" "$build/spmm" -t 16 -r 1 "$data/$name.mtx"
        says "$name" "direct +${rest%:*} messages" "$tmp/out"
        says "$name" "halving +${rest#*:} messages" "$tmp/out"
    else
        echo "skip: no $data/$name.mtx (SuiteSparse Matrix Collection): its product not checked"
    fi
done
if [ -e "$data/bcsstk13.mtx" ]; then # 64 ranks, 4 a node; blocks between nodes too
    check 0 "bcsstk13, 64 ranks" "$build/spmm" -t 64 -r 1 -c 1 "$data/bcsstk13.mtx"
    says "bcsstk13, 64 ranks" 'direct +764 messages, +612 blocks' "$tmp/out"
    says "bcsstk13, 64 ranks" 'halving +384 messages, +335 blocks between nodes .least 279' "$tmp/out"
fi
for name in bcsstk13 ash292 cegb2802_pattern; do
    if [ -e "$data/$name.mtx" ]; then
        check 0 "$name" "$build/spmm" -t 16 -r 1 "$data/$name.mtx"
    else
        echo "skip: no $data/$name.mtx (SuiteSparse Matrix Collection): its product not checked"
    fi
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
