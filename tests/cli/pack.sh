#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# compress --pack and block encode --pack: packed files are shorter and restore every byte; inspect says by how much.
. tests/cli/common

# 20000 elements of bf16 with exponents that are near one another
LC_ALL=C awk 'BEGIN {
    srand(3)
    for (i = 0; i < 20000; i++) printf "%c%c", 1 + int(rand() * 127), rand() < .5 ? 63 : 191
}' >weights.raw
size() { wc -c <"$1"; }

for pack in none planes fast; do
    expect 0 "compress --pack $pack" "$tool" compress -q -d bf16 --pack $pack -o $pack.pici weights.raw
    expect 0 "test of $pack" "$tool" test $pack.pici
    expect 0 "decompress of $pack" "$tool" decompress -q -o $pack.raw $pack.pici
    is "$pack restores every byte" cmp -s weights.raw $pack.raw
done
expect 0 "compress without --pack" "$tool" compress -q -d bf16 -o usual.pici weights.raw
is "--pack none is the default" cmp -s usual.pici none.pici
[ $(($(size planes.pici) * 100)) -lt $(($(size none.pici) * 70)) ] && pass || fail "planes: $(size planes.pici) bytes"
[ "$(size planes.pici)" -le "$(size fast.pici)" ] && pass || fail "fast: $(size fast.pici) bytes"
[ "$(size fast.pici)" -lt "$(size none.pici)" ] && pass || fail "fast: $(size fast.pici) bytes"

expect 0 "extract of a range" "$tool" extract -q --range 5000:5010 -o part.raw planes.pici
dd if=weights.raw of=want.raw bs=2 skip=5000 count=10 2>/dev/null
is "a range of a packed file" cmp -s want.raw part.raw

# bare blocks
for format in auto hybrid packed; do
    expect 0 "block encode, $format" "$tool" block encode -q -d bf16 -f $format --pack planes weights.raw $format.block
    expect 0 "block decode, $format" "$tool" block decode -q $format.block $format.raw
    is "the block of $format" cmp -s weights.raw $format.raw
done
is "hybrid, packed" cmp -s hybrid.block packed.block
is "auto, packed" cmp -s auto.block packed.block
expect 2 "packed integers" "$tool" block encode -q -d i16 -f packed weights.raw integers.block
expect 2 "an unknown --pack" "$tool" compress -q -d bf16 --pack all -o all.pici weights.raw
says "names the words" "none, planes, fast" "$err"

# inspect
expect 0 inspect "$tool" inspect -d bf16 weights.raw
says "inspect says what packing saves" 'Packed exponents .compress --pack planes.' "$out"
expect 0 "inspect in JSON" "$tool" inspect -j -d bf16 weights.raw
says "JSON too" '"packed_bytes"' "$out"
finish
