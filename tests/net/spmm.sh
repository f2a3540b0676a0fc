#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The example spmm: products on several ranks are those of one; what it refuses. Matrices of the SuiteSparse collection
# in $PICI_SUITESPARSE, or else in ../shared/data/suitesparse.
. tests/util/script

for ranks in 1 5 16; do
    check 0 "generated, $ranks ranks" "$build/spmm" -t $ranks -c 3 -r 1
    says "generated, $ranks ranks" 'field: .* Z is right'
done
check 0 "mostly zeros" "$build/spmm" -t 8 -c 8 -r 1 -z 95
check 2 "no such option" "$build/spmm" --what
check 2 "no ranks" "$build/spmm" -t 0
check 1 "no such file" "$build/spmm" "$tmp/none.mtx"
printf '%%%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 1\n' >"$tmp/short.mtx"
check 1 "fewer entries" "$build/spmm" "$tmp/short.mtx"
says "fewer entries" 'short.mtx: fewer entries than it says' "$err"
printf '%%%%MatrixMarket matrix coordinate pattern general\n3 4 1\n1 1\n' >"$tmp/flat.mtx"
check 1 "not square" "$build/spmm" "$tmp/flat.mtx"
says "not square" 'not a square matrix' "$err"
printf '%%%%MatrixMarket matrix coordinate pattern symmetric\n2 2 1\n2 1\n' >"$tmp/small.mtx"
check 0 "more ranks than rows" "$build/spmm" -t 5 "$tmp/small.mtx"

# What is known of these graphs: edges and messages by halving, 16 ranks, 4 a node.
data=${PICI_SUITESPARSE:-../shared/data/suitesparse}
for known in dwt_193:120:72 Journals:240:80; do
    name=${known%%:*} rest=${known#*:}
    if [ -e "$data/$name.mtx" ]; then
        check 0 "$name" "$build/spmm" -t 16 -r 1 "$data/$name.mtx"
        says "$name" "direct +${rest%:*} messages"
        says "$name" "halving +${rest#*:} messages"
    else
        echo "skip: no $data/$name.mtx (SuiteSparse Matrix Collection): its product not checked"
    fi
done
if [ -e "$data/bcsstk13.mtx" ]; then # 64 ranks, 4 a node; blocks between nodes too
    check 0 "bcsstk13, 64 ranks" "$build/spmm" -t 64 -r 1 -c 1 "$data/bcsstk13.mtx"
    says "bcsstk13, 64 ranks" 'direct +764 messages, +612 blocks'
    says "bcsstk13, 64 ranks" 'halving +384 messages, +335 blocks between nodes .least 279'
fi
for name in bcsstk13 ash292 cegb2802_pattern; do
    if [ -e "$data/$name.mtx" ]; then
        check 0 "$name" "$build/spmm" -t 16 -r 1 "$data/$name.mtx"
    else
        echo "skip: no $data/$name.mtx (SuiteSparse Matrix Collection): its product not checked"
    fi
done
finish
