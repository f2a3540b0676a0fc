#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# picitool on tensor files that other programs wrote: what is valid comes back byte for byte, what is not is refused.
data=$PWD/../shared/data
. tests/cli/common
if [ ! -d "$data" ]; then
    skip "no ../shared/data: the .npy and .safetensors files of other programs"
    finish
fi

refused() { # FILE: not to be compressed or inspected, and to leave nothing
    expect 1 "refuse $1" "$tool" compress -o x.pici "$1"
    says "refuse $1: where and what" ": offset [0-9]+: [^ ]" "$err"
    absent "refuse $1" x.pici
    expect 1 "inspect refuses $1" "$tool" inspect "$1"
    [ ! -s "$out" ] && pass || fail "inspect of $1 printed something"
}

restored() { # FILE TYPE OPTION...
    file=$1 type=$2
    shift 2
    expect 0 "compress $file" "$tool" compress "$@" -o x.pici "$file"
    expect 0 "decompress $file" "$tool" decompress -o x.back x.pici
    same "$file" "$file" x.back
    expect 0 "test $file" "$tool" test x.pici
    expect 0 "list $file" "$tool" list x.pici
    expect 0 "inspect $file" "$tool" inspect "$file"
    cat "$file" | "$tool" compress --type "$type" "$@" - 2>"$err" | "$tool" decompress - >x.back 2>>"$err"
    judge 0 "pipes, $file" $?
    same "pipes, $file" "$file" x.back
    rm -f x.pici x.back
}

expected=$data/golden/safetensors/huggingface/EXPECTED.txt
for file in "$data"/golden/*/*/*.npy "$data"/golden/*/*/*.safetensors "$data"/nn/*.npy "$data"/nn/*.safetensors; do
    [ -e "$file" ] || continue
    name=${file##*/}
    case $file in
    *obj*arr*.npy | *ragged*.npy) verdict=reject ;;  # pickles
    */overflow.npy) verdict=reject ;;                # its header is cut
    *abuse*) verdict=reject ;;
    */huggingface/*) verdict=$(awk -v n="$name" '$1 == n { print $3 }' "$expected") ;;
    *) verdict=accept ;;
    esac
    case $verdict in
    accept) restored "$file" "${name##*.}" ;;
    reject*) refused "$file" ;;
    *) fail "$file: neither expected to be taken nor to be refused" ;;
    esac
done

for file in "$data"/nn/*.npy; do
    [ -e "$file" ] || continue
    for format in bitmap coo dense; do
        restored "$file" npy -f $format -T 2
    done
done
clean "after all that"
finish
