#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The benchmark of the collectives: its results are right, its records are JSON, its plots are XML; what it refuses.
# Speed is not looked at.
. tests/util/script
no_threads_sanitizer bench_coll

says() { # PATTERN: in what the last command put out
    is "$check_what: no '$1' in: $(tail -n 20 "$out" "$err")" grep -q -e "$1" "$out" "$err"
}

make_target SANITIZE="${SANITIZE:-}" "$build/bench_coll"
bench=$build/bench_coll
small='-b 48K -e 200K -f 4 -n 1 --screen 64K --sparsity 0,90,99'

# shellcheck disable=SC2086 # a list of words
check 0 threads "$bench" $small -t 3 --algorithm ring,recursive --format auto,coo,hybrid,bitmap+coo \
    --pattern uniform,identical,clustered,block,zipf,front,ranked,smooth
says '^# wrong elements: 0$'
says ' pici ring hybrid  *99% '
says ' pici recursive bitmap+coo  *99% '
check 0 streams "$bench" -t 3 --stream -b 64K -n 1 --sparsity 99
says "^results are the dense call's$"
check 0 balance "$bench" -t 5 --balance -b 4M -n 1 --sparsity 99 --pattern uniform,front,ranked --algorithm recursive
says "^results are the dense call's$"
says ' front  *stream  .* [12]\.[3-9][0-9]$'
says ' front  *stream balanced  .* 1\.[01][0-9]$'
# shellcheck disable=SC2086
check 0 predictions "$bench" $small -t 3 --algorithm ring --predict ethernet-1g --json="$tmp/predicted.json"
says ' predicted   error '
says ' pici ring auto  *99% .* [+-][0-9.]*% '
says '^# predicted for ethernet-1g: [0-9]* entries, error [0-9.]*% in the median'
check 0 'predictions as JSON' grep -q '"predicted_s":[0-9]' "$tmp/predicted.json"
sed -n '/^pici-tune 1/,/^end /p' formats/tune.md >"$tmp/x.tune"
# shellcheck disable=SC2086
check 0 'predictions by a tune file' "$bench" $small -t 3 --algorithm ring --predict "$tmp/x.tune"
says '^# predicted for .*x.tune: [0-9]* entries'
check 2 'no such machine' "$bench" --predict nowhere
# shellcheck disable=SC2086
check 0 broadcast "$bench" $small -t 3 --collective broadcast --algorithm auto,split --predict ethernet-1g
says '^# wrong elements: 0$'
says ' pici split auto  *99% .* - '
# shellcheck disable=SC2086
check 0 all_gatherv "$bench" $small -t 3 --collective all_gatherv --algorithm auto,split --format auto,hybrid \
    --predict ethernet-1g
says '^# wrong elements: 0$'
says ' pici split hybrid  *99% .* - '
# shellcheck disable=SC2086
check 0 all_to_all "$bench" $small -t 3 --collective all_to_all --format auto,hybrid
says '^# wrong elements: 0$'
says ' pici auto hybrid  *99% '
# shellcheck disable=SC2086
check 0 'zeros with a sign' "$bench" $small -t 3 --zeros positive,negative
says '^# wrong elements: 0$'
says ' pici auto auto  *99% '
says ' pici auto auto  *99%- '
# shellcheck disable=SC2086
check 0 'lossy codecs' "$bench" $small -t 3 --algorithm ring,doubling --values exact,q4,q8@gather,bf16 \
    --json="$tmp/values.json"
says '^# wrong elements: 0$'
says ' pici doubling auto q4  *99% .*  error 0\.[0-9]*$'
says ' pici ring auto q8@gather  *99% .*  error 0\.0[0-9]*$'
check 0 'lossy codecs as JSON' grep -q '"values":"bf16","quantize_s":.*"error":0' "$tmp/values.json"
check 2 'a lossy codec that is none' "$bench" --values q3
check 2 'zfp without a rate' "$bench" --values zfp
# Each node of a ring sends all that a rank sends: 2 (p - 1) / p of the buffer.
check 0 'bytes by node' "$bench" -b 4M -n 1 -w 0 -t 4 --nodes 2 --by-node --algorithm all --screen 0 --sparsity 99
says '^#   node 1: 6\.0[01][0-9]* MiB left (150\.[01].*us; ranks 2,3$'
says ' pici ring dense .* 150\.[01][0-9]* *150\.[01]'
check 0 'uneven nodes' "$bench" -b 4M -n 1 -w 0 -t 4 --nodes 3,1 --by-node --sparsity 99 --collective all_reduce
says 'us; ranks 0,1,2$'
check 0 'one dense' "$bench" -b 48K -n 1 -t 3 --dense split --sparsity 99 --collective all_reduce
says ' pici split dense '
cp "$out" "$tmp/dense"
check 1 "no other dense" grep "ring dense" "$tmp/dense"
# shellcheck disable=SC2086
check 0 sockets "$bench" $small -t 3 --sockets --nodes 2,1 --algorithm ring,nodes-ring
says '^# wrong elements: 0$'
says '; sockets; '
says ' pici nodes-ring auto  *99% '
# shellcheck disable=SC2086
check 0 'sockets, by pici-run' "$build/pici-run" -n 3 "$bench" $small --json="$tmp/sockets.json"
says '^# wrong elements: 0$'
says '^# 3 ranks on 1 node; '
for o in avg min max; do
    check 0 "zeros with a sign, $o" "$bench" -b 20K -n 1 -w 0 -t 3 -d f16 -o $o --sparsity 50 --zeros negative
done
for t in f16 bf16 f64 i8 u64; do
    for o in sum avg min max; do
        check 0 "$t $o" "$bench" -b 20K -n 1 -w 0 -t 2 -d $t -o $o --sparsity 50
    done
done
# shellcheck disable=SC2086
check 0 json "$bench" $small -t 2 --format auto,dense+coo+hybrid --targets --json="$tmp/threads.json"
check 0 'formats in the json' grep -q '"format":"dense+coo+hybrid"' "$tmp/threads.json"
if command -v python3 >/dev/null 2>&1; then
    check 0 plot bench/plot -o "$tmp" "$tmp/threads.json"
    for f in speedup size; do
        check 0 "coll-$f.svg" python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$tmp/coll-$f.svg"
    done
    check 0 'bytes' env RANKS=4 NODES='4/2' SIZE=1M BUILD="$build" bench/volume "$bench" "$tmp/volume"
    says '^| 4 | 1% | [56]\.[0-9]* | 5\.[0-9]* |'
    says '^| 2 x 2 | 0\.1% |'
    says '^| 2 x 2 | dense | 15[01] |'
    for kind in switch fat-tree dragonfly uneven; do
        check 0 "platform, $kind" bench/sim platform $kind 64 "$tmp"
        check 0 "platform.xml, $kind" python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' \
            "$tmp/platform.xml"
        check 0 "hosts, $kind" awk '{ seen[$0] } END { for (h in seen) n++; exit !(NR == 64 && n == want) }' \
            want="$(bench/sim nodes $kind 64 | tr ',' '\n' | wc -l)" "$tmp/hosts"
    done
    check 1 'a fat tree of 48' bench/sim platform fat-tree 48 "$tmp"
    echo '[{}]' >"$tmp/bad.json"
    check 1 'plot of something else' bench/plot -o "$tmp" "$tmp/bad.json"
else
    echo "skip: no python3: plots not drawn"
fi
for bad in '-t 0' '-n 0' '-b x' '-f 1' '-d f33' '-o mul' '--sparsity 101' '--algorithm star' '--format zip' \
    '--zeros none' '--format auto+coo' '--format coo+' 'extra' '--nodes 0' '--nodes 5' '--nodes 2,1' '--nodes 4,1' \
    '--order far' --levels; do
    # shellcheck disable=SC2086
    check 2 "refuse $bad" "$bench" $bad
done
check 1 'no CUDA' "$bench" --cuda
says 'make bench-coll-cuda'
check 1 'no such file' "$bench" -b 4K -n 1 -t 2 --sparsity 0 --json="$tmp/none/x.json"

if find_mpi openmpi; then
    export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # MPI leaks
    # shellcheck disable=SC2086
    check 0 mpirun timeout 120 $mpirun -n 3 "$bench" $small --screen 0 --json="$tmp/mpi.json"
    says '^# wrong elements: 0$'
    says 'allreduce segmented_ring'
    # shellcheck disable=SC2086
    check 0 'mpirun, all_gatherv, all_to_all and broadcast' timeout 120 $mpirun -n 3 "$bench" $small --screen 0 \
        --collective all_gatherv,all_to_all,broadcast
    says '^# wrong elements: 0$'
    says 'allgatherv default' # Open MPI lets nobody force another
    says 'bcast binomial'
    for over in sockets levels; do
        # shellcheck disable=SC2086
        check 0 "mpirun, $over" timeout 120 $mpirun -n 3 "$bench" $small \
            --screen 0 --mpi default --collective all_reduce --$over
        says '^# wrong elements: 0$'
        says 'pici over .*sockets; cpu'
    done
fi

finish
