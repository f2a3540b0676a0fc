#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The training example: dense and sparse runs agree on any number of ranks; what it refuses, and how. The training and
# spmm (whose own test is spmm.sh) over MPI.
. tests/util/script

# run STATUS WHAT COMMAND...: output to $out and $err; a status of 1 comes with one line that says why
run() {
    check "$@"
    [ "$1" != 1 ] || is "$2: on stderr: $(head -c 500 "$err")" one_line
}

one_line() {
    [ "$(grep -c '^train: ' "$err")" = 1 ] && [ "$(wc -l <"$err")" = 1 ]
}

train() { # ARGUMENTS: a short training that must agree with itself
    run 0 "train $*" "$build/train" -s 8 -b 16 -u 64 "$@"
    says "train $*" 'The same bit for bit: 8 losses'
}

for ranks in 1 2 3 4 7; do
    train -t $ranks
    train -t $ranks -S -m network
done
train -m network -k 100
train -S -k 0.1 --seed 7
train -l hinge -t 3
train -l hinge -m network -S
for algorithm in ring recursive; do
    PICI_ALGORITHM=$algorithm train -t 5
    PICI_ALGORITHM=$algorithm PICI_FORMAT=coo PICI_SLICE_BYTES=16384 PICI_WINDOW=2 train -t 3 -S
done

# The gradients of the wide model are sparse enough to send a quarter at the most.
train -t 4
share=$(awk '$1 == "sparse" && NF > 5 { sub(/%/, "", $5); print int($5) }' "$out")
is "a wide model sends $share% of the dense bytes" [ "${share:-100}" -le 25 ]

# The formats have rows and columns of their own: blocks of the format or dense ones, and the bytes of the column.
is "rows of bitmap and hybrid, and no other blocks: $(cat "$out")" awk '
    $1 == "bitmap" && NF > 9 { bitmap = $4; other = $8 + $9; of_bitmap = $7 } $1 ~ /^[0-9]+$/ { p = $(NF - 1); h = $NF }
    $1 == "hybrid" && NF > 9 { hybrid = $4; other += $7 + $8; of_hybrid = $9 }
    END { exit !(of_bitmap > 0 && of_hybrid > 0 && other == 0 && hybrid < bitmap && p > 0 && p <= bitmap && h > 0 &&
        h <= hybrid) }' "$out"
is "train prints lines of more than 80 columns" awk 'length($0) > 80 { exit 1 }' "$out"

# All but the seconds is the same in every run.
for run in first second; do
    train -t 4
    sed '/^  \(dense\|sparse\|bitmap\|hybrid\) /s/ *[0-9.]* *[0-9.]*$//' "$out" >"$tmp/$run"
done
is "two runs print different things" cmp "$tmp/first" "$tmp/second"

for f in ../shared/data/libsvm/agaricus.txt.train ../shared/data/libsvm/angel_a9a_123d_train.libsvm; do
    if [ -e "$f" ]; then
        train "$f"
        train -m network "$f"
    else
        echo "skip no ${f##*/}: training on it"
    fi
done

# Gradient descent and coordinate ascent: dense or as streams, the gathered changes are the same; streams take a quarter
# of the bytes or fewer. The gap between an objective and its dual is never below 0, and closes. 7 ranks do not divide
# the 17500 examples.
descent() { # ARGUMENTS: a table of rows "LOSS WAY LOSS RIGHT% [GAP] MIB SECONDS SECONDS" in $out
    run 0 "train --descent $*" "$build/train" --descent "$@"
    says "train --descent $*" 'The same bit for bit: coordinates gathered dense, and as streams'
}
gap() { # LOSS
    awk -v loss="$1" '$1 == loss && $2 == "stream" && NF == 8 { print $5 }' "$out"
}
descent -t 7 -o 1 -s 20
is "streams of coordinates take fewer bytes: $(cat "$out")" awk '
    $2 == "dense" && NF == 8 { dense[$1] = $6 }
    $2 == "stream" && NF == 8 { n++; bad += $6 > dense[$1] / 4 } END { exit bad || n != 2 }' "$out"
for ranks in 1 3; do
    descent -t $ranks -o 1 -b 2000 -s 4
    few_logistic=$(gap logistic) few_hinge=$(gap hinge)
    descent -t $ranks -o 1 -b 2000 -s 40
    is "the gap of $ranks ranks: logistic $few_logistic, then $(gap logistic); hinge $few_hinge, then $(gap hinge)" \
        awk -v a="$few_logistic" -v b="$(gap logistic)" -v c="$few_hinge" -v d="$(gap hinge)" \
        'BEGIN { exit !(b > 0 && b < 0.75 * a && d > 0 && d < 0.75 * c) }'
done
for f in ../shared/data/libsvm/agaricus.txt.train ../shared/data/libsvm/angel_a9a_123d_train.libsvm; do
    if [ -e "$f" ]; then
        descent -o 1 -s 100 "$f"
    else
        echo "skip no ${f##*/}: coordinate ascent on it"
    fi
done
run 0 "processes with coordinate ascent" "$build/pici-run" -n 3 "$build/train" --descent -o 1 -s 10
says "processes with coordinate ascent" 'The same bit for bit: coordinates'
for bad in '-S' '-m network' '-k 1' '--values q4' '-l hinge'; do
    # shellcheck disable=SC2086
    run 2 "train --descent $bad" "$build/train" --descent $bad
done

# Files
for f in fuzz/corpus/libsvm/*; do
    run 1 "$f" "$build/train" "$f"
done
run 1 "no file" "$build/train" "$tmp/none"
says "no file" 'No such file' "$err"
run 1 "a directory" "$build/train" "$tmp"
awk 'BEGIN { for (i = 0; i < 60; i++) print i % 3, i % 7 + 1 ":1" }' >"$tmp/three"
run 1 "three classes" "$build/train" "$tmp/three"
awk 'BEGIN { for (i = 0; i < 60; i++) print i % 2, i % 7 + 1 ":1", 1000 * i + 100 ":1" }' >"$tmp/wide"
run 1 "too many weights" "$build/train" "$tmp/wide"
run 0 "many weights" "$build/train" -o 1 -s 2 "$tmp/wide"
awk 'BEGIN { for (i = 0; i < 60; i++) print i % 2, "1:3e38 2:3e38" }' >"$tmp/diverges"
run 1 "a loss that is not finite" "$build/train" "$tmp/diverges"
says "a loss that is not finite" 'not finite' "$err"

# Lossy codecs: what is sent differs, and all ranks have the same weights.
lossy='-s 20 -b 16 -m network -u 64 --topk 1 --values q4,bf16'
# shellcheck disable=SC2086 # a list of words
run 0 "train with lossy codecs" "$build/train" $lossy --curves "$tmp/curves.svg"
says "train with lossy codecs" 'All 4 ranks have the same weights after each run'
for name in dense topk q4 bf16 'topk[+]q4' 'topk[+]bf16'; do
    says "train with lossy codecs" "^  $name  *0\.[0-9]* "
    says "the curves of training" ">$name: [0-9.]*% right, " "$tmp/curves.svg"
done
is "values of 4 bits take a fifth of the bytes or more" \
    awk '$1 == "q4" && NF > 6 { fewer = $5 < 20 } END { exit !fewer }' "$out"
# shellcheck disable=SC2086
run 0 "processes with lossy codecs" "$build/pici-run" -n 4 "$build/train" $lossy
says "processes with lossy codecs" 'All 4 ranks have the same weights after each run'
for bad in 'q3' 'q4,' '' 'q4,q8,q2,bf16,f16' 'q4 -S'; do
    # shellcheck disable=SC2086
    run 2 "train --values $bad" "$build/train" -s 1 --values $bad
done

# Fine-tuning, with a second process and, where there is one, zstd
run 0 "finetune" "$build/finetune" -s 3 -u 64
says "finetune" 'The other process had the very bytes after each of 3 steps'
run 0 "finetune without zstd" env PATH=/nonexistent "$build/finetune" -s 1 -u 16
says "finetune without zstd" 'SKIPPED: no zstd'
command -v zstd >/dev/null 2>&1 || echo "skip finetune beside zstd --patch-from: no zstd"
for bad in '-s 0' '-u x' '-r 0' '-r 2' '-q' 'a b'; do
    # shellcheck disable=SC2086 # two words
    run 2 "finetune $bad" "$build/finetune" $bad
done
check 1 "finetune: no file" "$build/finetune" "$tmp/none"
says "finetune: no file" '^finetune: .*No such file' "$err"

# Usage
for bad in '-t 0' '-t 257' '-t 1.5' '-s -1' '-s 1e9' '-k 0' '-k 101' '-k nan' '-o 4' '-b x' '-r -1' '-u 0' '-l tree' \
    '--seed 1.5' '-m tree' '-q' '-t' 'a b'; do
    # shellcheck disable=SC2086 # two words
    run 2 "train $bad" "$build/train" $bad
done
run 0 "train --help" "$build/train" --help
says "train --help" '^usage: train'
PICI_ALGORITHM=tree run 1 "an environment variable that makes no sense" "$build/train"
says "an environment variable that makes no sense" 'PICI_ALGORITHM' "$err"
run 1 "a full disk" sh -c "exec '$build/train' -s 1 >/dev/full"

# The demonstration shows hybrid beside bitmap, and which of the formats AUTO takes.
if [ -n "${SANITIZE:-}" ]; then
    echo "skip make demo, with sanitizers"
else
    run 0 "demo" "$build/demo" "$build/picitool" "$tmp/demo"
    size='[0-9.]+ KiB( +[0-9.]+ \( *[0-9.]+\)){3}'
    says "demo: hybrid" "^   hybrid +$size"
    says "demo: bitmap" "^   bitmap +$size"
    says "demo: what AUTO takes" "^   (hybrid|bitmap|coo) +$size +AUTO$"
    is "demo prints lines of more than 80 columns" awk '/^3\. / { on = 1 } on && length($0) > 80 { exit 1 }' "$out"
fi

# Over MPI the same comes out as between as many threads.
if [ -n "${SANITIZE:-}" ]; then
    echo "skip the training over MPI, with sanitizers"
elif find_mpi openmpi; then
    make_target MPICC="$mpicc" MPIDIR="$build/openmpi" mpi-examples
    train -t 3
    grep bit "$out" >"$tmp/threads"
    # shellcheck disable=SC2086 # a launcher and its options, here and below
    run 0 "train, over MPI" $mpirun -n 3 "$build/openmpi/train" -s 8 -b 16 -u 64
    says "train, over MPI" "$(sed 's/[()]/./g' "$tmp/threads")"
    # Rounded values too: every loss and every byte, so the very picture. Seconds are in the table only.
    for model in network logistic; do
        lossy="-s 20 -b 16 -m $model -u 64 --topk 1 --values q4,bf16"
        # shellcheck disable=SC2086
        run 0 "$model with lossy codecs" "$build/train" -t 3 $lossy --curves "$tmp/threads.svg"
        # shellcheck disable=SC2086
        run 0 "$model with lossy codecs, over MPI" $mpirun -n 3 "$build/openmpi/train" $lossy --curves "$tmp/mpi.svg"
        says "$model with lossy codecs, over MPI" 'All 3 ranks have the same weights after each run'
        run 0 "the curves of $model, over MPI" cmp "$tmp/threads.svg" "$tmp/mpi.svg"
        says "the curves of $model" '>topk[+]q4: [0-9.]*% right, ' "$tmp/mpi.svg"
    done
    run 0 "descent" "$build/train" -t 3 --descent -o 1 -s 20 --curves "$tmp/threads.svg"
    # shellcheck disable=SC2086
    run 0 "descent, over MPI" $mpirun -n 3 "$build/openmpi/train" --descent -o 1 -s 20 --curves "$tmp/mpi.svg"
    says "descent, over MPI" 'The same bit for bit: coordinates'
    run 0 "the curves of descent, over MPI" cmp "$tmp/threads.svg" "$tmp/mpi.svg"
    for name in 'logistic gradient' 'hinge gradient' 'logistic stream' 'hinge stream'; do
        says "the curves of descent" ">$name: [0-9.]*% right, " "$tmp/mpi.svg"
    done
    # shellcheck disable=SC2086
    $mpirun -n 2 "$build/openmpi/train" "$tmp/none" >"$out" 2>"$err" </dev/null
    says "no file, over MPI" 'train: .*No such file' "$err"
fi

# spmm over each MPI. In the last run rank 0 has another Y than the others expect. It and rank 1 fail after the first
# route. Rank 2, which has no neighbour, must not begin the second one alone.
printf '%%%%MatrixMarket matrix coordinate pattern symmetric\n6 6 8\n1 1\n2 1\n2 2\n3 2\n3 3\n4 3\n5 5\n6 5\n' \
    >"$tmp/two.mtx"
for mpi in openmpi mpich; do
    if [ -n "${SANITIZE:-}" ]; then
        echo "skip spmm over $mpi, with sanitizers"
        continue
    fi
    find_mpi $mpi || continue
    spmm=$build/$mpi/spmm
    make_target MPICC="$mpicc" MPIDIR="$build/$mpi" "$spmm"
    for ranks in 1 3 5; do
        # shellcheck disable=SC2086 # a launcher and its options
        run 0 "spmm, $mpi, $ranks ranks" timeout 120 $mpirun -n $ranks "$spmm" -n 2 -c 3 -r 1
        says "spmm, $mpi, $ranks ranks" 'field: .* Z is right'
        "$build/spmm" -t $ranks -n 2 -c 3 -r 1 >"$tmp/threads"
        sed 's/,[^,]*$//' "$tmp/threads" >"$tmp/counts"
        sed 's/,[^,]*$//' "$out" >"$tmp/threads" # but for seconds
        run 0 "spmm, $mpi, $ranks ranks: messages and bytes as among threads" cmp "$tmp/counts" "$tmp/threads"
    done
    # shellcheck disable=SC2086
    timeout 60 $mpirun -n 1 "$spmm" -n 1 -r 1 -z 50 "$tmp/two.mtx" : -n 2 "$spmm" -n 1 -r 1 "$tmp/two.mtx" \
        >"$out" 2>"$err" </dev/null
    echo "exit status $?" >>"$err"
    says "spmm, $mpi: one rank's Y is another" '^exit status 1$' "$err"
    says "spmm, $mpi: one rank's Y is another" 'Z differs from the product of one rank' "$err"
done

finish
