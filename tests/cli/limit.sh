#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# A short file can describe very many elements. The output of picitool is limited, by default and by --max-size.
. tests/cli/common

raise='; --max-size BYTES raises it, --max-size none lifts it$'

refused() { # WHAT PATTERN COMMAND...: refused because of the limit, and nothing is left
    refused_what=$1 refused_pattern=$2
    shift 2
    expect 1 "$refused_what" "$@"
    says "$refused_what" "$refused_pattern$raise" "$err"
    absent "$refused_what" x
    clean "$refused_what"
}

feed=/dev/null
piped() { # WHAT STATUS BYTES ARGUMENTS...: as expect, from a pipe that gives $feed to a pipe that gets so many bytes
    piped_what=$1 piped_status=$2 piped_bytes=$3
    shift 3
    cat $feed | { "$tool" "$@" 2>"$err"; echo $? >status; } | wc -c >bytes
    judge "$piped_status" "$piped_what" "$(cat status)"
    [ "$(cat bytes)" = "$piped_bytes" ] && pass || fail "$piped_what: $(cat bytes) bytes, not $piped_bytes"
}

# ---- the default: 1 GiB or 1024 times the input, if zeros are written; by the index, before anything is written
claim=1153433600
truncate -s $claim big || { skip "limits: no room for a sparse file"; finish; }
"$tool" compress --dtype f32 big || fail compress
[ "$(wc -c <big.pici)" -lt 1000000 ] && pass || fail "a file of zeros is not short when compressed"
text="big\.pici: claims $claim bytes, more than the limit of 1073741824 \(1\.00 GiB\)"
refused "decompress" "$text" "$tool" decompress --no-sparse -o x big.pici
refused "extract" "$text" "$tool" extract --no-sparse -o x big.pici
piped "decompress to a pipe" 1 0 decompress -o - big.pici
says "decompress to a pipe" "$text$raise" "$err"
piped "extract to a pipe" 1 0 extract big.pici
says "extract to a pipe" "$text$raise" "$err"
piped "a range within the limit" 0 1048576 extract --range :262144 big.pici
printf old >y
expect 1 "an existing output" "$tool" decompress --no-sparse --force -o y big.pici
[ "$(cat y)" = old ] && pass || fail "an existing output: changed"
rm -f y
piped "none" 0 $claim decompress -o - --max-size none big.pici
piped "as much as needed" 0 $claim decompress -o - --max-size $claim big.pici
piped "a byte too few" 1 0 decompress -o - --max-size $((claim - 1)) big.pici
"$tool" decompress -o - - <big.pici >/dev/null 2>"$err"
judge 1 "decompress a file that is standard input" $?
# the length of a stream is not known: it is written up to the limit
feed=big.pici
piped "decompress a pipe" 1 1073741824 decompress -o - -
says "decompress a pipe" "standard output: the limit of 1073741824 bytes \(1\.00 GiB\) is reached$raise" "$err"
piped "decompress a pipe, none" 0 $claim decompress -o - --max-size none -
feed=/dev/null
# holes do not count
expect 0 "zeros as holes" "$tool" decompress -o x big.pici
[ "$(wc -c <x)" = $claim ] && pass || fail "zeros as holes: $(wc -c <x) bytes"
rm -f x

# the limit grows with the input: 2 MiB allow 2 GiB
head -c 2200000 /dev/urandom >noise
cat noise big >mixed
expect 0 "compress with noise" "$tool" compress --dtype f32 mixed
piped "1024 times the input" 0 $((claim + 2200000)) decompress -o - mixed.pici
feed=mixed.pici
piped "1024 times what was read" 0 $((claim + 2200000)) decompress -o - -
feed=/dev/null
rm -f mixed mixed.pici

# ---- apply: at least 2 times the base
printf abcd >small
expect 0 "diff" "$tool" diff --dtype f32 -o d.pici small big
refused "apply" "d\.pici: claims $claim bytes, more than the limit of 1073741824 \(1\.00 GiB\)" \
    "$tool" apply --no-sparse -o x small d.pici
piped "apply to a pipe" 1 0 apply -o - small d.pici
cp small base
expect 1 "apply in place" "$tool" apply --no-sparse --in-place base d.pici
same "apply in place" base small
truncate -s 640M half
expect 0 "diff of a base" "$tool" diff --dtype f32 -o h.pici half big
piped "2 times the base" 0 $claim apply -o - half h.pici
expect 1 "apply --max-size" "$tool" apply --max-size 1G --no-sparse -o x half h.pici
absent "apply --max-size" x
rm -f half h.pici

# ---- --max-size counts bytes that are not holes, exactly, in files and in pipes
numbers 300 | tr '\0' x >n1200
truncate -s 1M hole
{ cat n1200; cat hole; cat n1200; } >m.raw
expect 0 "compress" "$tool" compress --dtype u8 m.raw
all=$(wc -c <m.raw)
piped "all bytes" 0 "$all" decompress --max-size "$all" -o - m.raw.pici
piped "one byte less" 1 0 decompress --max-size $((all - 1)) -o - m.raw.pici
expect 0 "all bytes, without holes" "$tool" decompress --no-sparse --max-size "$all" -o x m.raw.pici
rm -f x
refused "one byte less, without holes" "claims $all bytes, more than the limit of $((all - 1)) \(1\.00 MiB\)" \
    "$tool" decompress --no-sparse --max-size $((all - 1)) -o x m.raw.pici
truncate -s 1M try
if [ "$(stat -c %b try)" = 0 ]; then
    expect 0 "two blocks" "$tool" decompress --max-size 128K -o x m.raw.pici
    same "two blocks" m.raw x
    rm -f x
    refused "less than two blocks" "^picitool: x: the limit of 2047 bytes .* of $all bytes claimed is reached" \
        "$tool" decompress --max-size 2047 -o x m.raw.pici
    expect 1 "extract, less than two blocks" "$tool" extract --max-size 2047 -o x m.raw.pici
    absent "extract, less than two blocks" x
else
    skip "holes do not count: no holes here"
fi
for size in '' -1 nothing 1Q NONE; do
    expect 2 "--max-size '$size'" "$tool" decompress --max-size "$size" -o x m.raw.pici
done
expect 1 "--max-size 0" "$tool" decompress --max-size 0 -o x m.raw.pici
absent "--max-size 0" x

# without an index, the limit is found to be exceeded while writing
"$tool" compress --dtype u8 n1200
expect 1 "--keep-going" "$tool" decompress --keep-going --max-size 1199 -o x n1200.pici
absent "--keep-going" x
head -c $(($(wc -c <n1200.pici) - 1)) n1200.pici >cut.pici # no index: read forward
expect 1 "no index" "$tool" decompress --max-size 1199 -o x cut.pici
says "no index" 'the limit of 1199 bytes .* is reached' "$err"
absent "no index" x

# ---- the other verbs that write
refused "compress" '^picitool: x: the limit of 500 bytes \(500 B\) is reached' \
    "$tool" compress --dtype u8 --max-size 500 -o x n1200
expect 0 "compress, enough" "$tool" compress --dtype u8 --max-size 5K -o x n1200
rm -f x
refused "diff" 'the limit of 100 bytes .* is reached' "$tool" diff --dtype u8 --max-size 100 -o x small n1200
refused "block encode" 'the limit of 100 bytes .* is reached' "$tool" block encode --dtype u8 --max-size 100 n1200 x
expect 1 "inspect" "$tool" inspect --max-size $((all - 1)) m.raw.pici
says "inspect" "m\.raw\.pici: claims $all bytes, more than the limit of $((all - 1)) .*$raise" "$err"
expect 0 "inspect, enough" "$tool" inspect --max-size "$all" m.raw.pici
refused "report" "claims $all bytes, more than the limit of .*" "$tool" report --max-size $((all - 1)) -o x m.raw.pici
expect 0 "inspect has no limit of its own" "$tool" inspect big.pici

# ---- a short file whose elements are not zero
if [ "${ZSTD:-}" = 1 ]; then
    head -c 8388608 /dev/zero | tr '\0' x >xs
    expect 0 "compress with zstd" "$tool" compress --dtype u8 --zstd=9 xs
    [ "$(wc -c <xs.pici)" -lt 8192 ] && pass || fail "8 MiB of one byte are not short when compressed"
    refused "no zeros" "^picitool: x: the limit of 8388607 bytes .* of 8388608 bytes claimed is reached" \
        "$tool" decompress --max-size 8388607 -o x xs.pici
    expect 0 "no zeros, none" "$tool" decompress --max-size none -o x xs.pici
    same "no zeros, none" xs x
else
    skip "a short file of bytes that are not zero: a build without zstd"
fi
finish
