#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# compress --pack and block encode --pack: packed files are shorter and restore every byte; inspect says by how much.
# compress packs by default, with the same bytes on every host.
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
is "--pack planes is the default" cmp -s usual.pici planes.pici
expect 0 "compress without vectors" env PICI_CPU=scalar "$tool" compress -q -d bf16 -o scalar.pici weights.raw
is "the default has the same bytes on every host" cmp -s usual.pici scalar.pici
expect 0 "compress by threads" "$tool" compress -q -d bf16 -T 3 -o threads.pici weights.raw
is "and at every number of threads" cmp -s usual.pici threads.pici
expect 0 "compress to hybrid" "$tool" compress -q -d bf16 -f hybrid -o hybrid.pici weights.raw
expect 0 "compress to hybrid, --pack none" "$tool" compress -q -d bf16 -f hybrid --pack none -o none2.pici weights.raw
is "a format that is asked for is not packed by default" cmp -s hybrid.pici none2.pici

# for picitool 0.2
version() { od -An -tu4 -j8 -N4 "$1" | tr -d ' '; }
expect 0 "compress for 0.2" "$tool" compress -q -d bf16 --file-version 1 -o old.pici weights.raw
[ "$(version old.pici)" = 1 ] && [ "$(version usual.pici)" = 2 ] && pass || fail "versions of files"
[ "$(size old.pici)" -ge 40000 ] && pass || fail "a file of version 1 is packed: $(size old.pici) bytes"
expect 0 "decompress of version 1" "$tool" decompress -q -o old.raw old.pici
is "version 1 restores every byte" cmp -s weights.raw old.raw
expect 2 "packed chunks in version 1" "$tool" compress -q -d bf16 --file-version 1 --pack fast -o x.pici weights.raw
expect 2 "a format of packed chunks in version 1" "$tool" compress -q -d bf16 --file-version 1 -f packed -o x.pici \
    weights.raw
expect 2 "version 3" "$tool" compress -q -d bf16 --file-version 3 -o x.pici weights.raw
absent "nothing is left" x.pici

# with zstd a chunk is as long as the shorter of both ways to make it: values that repeat gain from zstd alone
if [ "${ZSTD:-1}" != 0 ] && "$tool" compress -q -d bf16 -z1 --pack none -o zstd.pici weights.raw 2>/dev/null; then
    i=0
    while [ $i -lt 20 ]; do cat weights.raw; i=$((i + 1)); done | dd of=again.raw bs=65536 count=3 iflag=fullblock \
        2>/dev/null
    for raw in weights again; do
        for level in 1 19; do
            for pack in none planes; do
                expect 0 "$raw, zstd -$level, $pack" "$tool" compress -q -d bf16 -$level --pack $pack \
                    -o z$pack.pici $raw.raw
                expect 0 "decompress that" "$tool" decompress -q -o z.raw --force z$pack.pici
                is "$raw, zstd -$level, $pack restores every byte" cmp -s $raw.raw z.raw
            done
            expect 0 "$raw, packed without zstd" "$tool" compress -q -d bf16 -o z.pici --force $raw.raw
            [ "$(size zplanes.pici)" -le "$(size znone.pici)" ] && [ "$(size zplanes.pici)" -le "$(size z.pici)" ] &&
                pass || fail "$raw, -$level: packing makes it longer, $(size zplanes.pici) bytes"
            rm -f znone.pici zplanes.pici
        done
    done
else
    skip "a build without zstd: packing beside it"
fi

# f32 that was bf16: the lower halves of the mantissas are zero and are not stored
LC_ALL=C awk 'BEGIN {
    srand(3)
    for (i = 0; i < 20000; i++) printf "%c%c%c%c", 0, 0, 1 + int(rand() * 127), rand() < .5 ? 63 : 191
}' >wide.raw
expect 0 "compress f32 that was bf16" "$tool" compress -q -d f32 -o wide.pici wide.raw
[ $(($(size wide.pici) * 2)) -lt 80000 ] && pass || fail "f32 that was bf16: $(size wide.pici) of 80000 bytes"
[ $(($(size wide.pici) - $(size planes.pici))) -lt 400 ] && pass || fail "$(size wide.pici), not $(size planes.pici)"
expect 0 "decompress f32 that was bf16" "$tool" decompress -q -o wide.back wide.pici
is "f32 that was bf16 comes back" cmp -s wide.raw wide.back

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
