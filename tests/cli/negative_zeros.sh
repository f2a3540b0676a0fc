#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# inspect and report count the negative zeros of float tensors, and say what compressing by value would save.
. tests/cli/common

repeat() { # TIMES: its input, so many times doubled
    cat >doubling
    repeat_n=$1
    while [ "$repeat_n" -gt 0 ]; do
        cat doubling doubling >doubled
        mv doubled doubling
        repeat_n=$((repeat_n - 1))
    done
    cat doubling
}

# 16 elements of a width: a nonzero, four of the given last byte, and zeros
pattern() { # WIDTH LAST-BYTE
    p_zeros=$(($1 - 1))
    for p_i in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
        zeros $p_zeros
        case $p_i in 0) byte 64 ;; 3 | 4 | 9 | 15) byte "$2" ;; *) byte 0 ;; esac
    done
}

value() { # KEY FILE: the last number of a key
    sed -n "s/.*\"$1\": \\([0-9.]*\\),*\$/\\1/p" "$2" | tail -n 1
}

# The sizes by value are those of a file that has zeros in their places.
for case in 'f32 4' 'f64 8' 'f16 2' 'bf16 2' 'f8e4m3 1' 'f8e5m2 1'; do
    # shellcheck disable=SC2086 # two words
    set -- $case
    pattern "$2" 128 | repeat 10 >"$1.raw"
    pattern "$2" 0 | repeat 10 >"$1.clean"
    "$tool" inspect --json --dtype "$1" "$1.raw" >with.json 2>"$err"
    judge 0 "inspect --json of $1" $?
    "$tool" inspect --json --dtype "$1" "$1.clean" >without.json
    [ "$(value count with.json)" = 4096 ] && pass || fail "$1: not 4096 negative zeros: $(cat with.json)"
    [ "$(value by_value_bytes with.json)" = "$(value auto without.json)" ] && pass ||
        fail "$1: $(value by_value_bytes with.json) bytes by value, not $(value auto without.json)"
    saved=$(($(value auto with.json) - $(value auto without.json)))
    [ $saved -gt 0 ] && [ "$(value saved_bytes with.json)" = $saved ] && pass ||
        fail "$1: does not save $(value saved_bytes with.json)"
    grep -q negative without.json && fail "$1: negative zeros where there are none" || pass
done

# For people, in a page, of every kind of file, and of a block
"$tool" inspect --dtype f32 f32.raw >"$out"
says inspect '^  -0\.0 +4096 of these$' "$out"
says inspect '4096 negative zeros keep their signs\. By value \(compress --zeros=value\) they$' "$out"
says inspect 'are plain zeros: [0-9.]+ KiB less, [0-9.]+% of the smallest blocks\.$' "$out"
awk '/negative zeros/ && length($0) > 80 { bad = 1 } END { exit bad }' "$out" && pass || fail "over 80 columns"
"$tool" inspect --dtype f32 f32.clean >"$out"
grep -q negative "$out" && fail "inspect: negative zeros where there are none" || pass
"$tool" inspect --json --dtype f32 f32.raw >raw.json
{ npy 1 "'<f4'" False '(128, 128)'; cat f32.raw; } >a.npy
"$tool" compress a.npy
"$tool" block encode --dtype f32 f32.raw a.blk
{ safetensors '{"w":{"dtype":"F32","shape":[16384],"data_offsets":[0,65536]},
"i":{"dtype":"I32","shape":[16384],"data_offsets":[65536,131072]}}'; cat f32.raw f32.raw; } >a.safetensors
for f in a.npy a.npy.pici a.blk a.safetensors; do
    "$tool" inspect --json $f >f.json 2>"$err"
    judge 0 "inspect --json $f" $?
    [ "$(value count f.json)" = 4096 ] && [ "$(value saved_bytes f.json)" = "$(value saved_bytes raw.json)" ] && pass ||
        fail "$f: $(value count f.json), $(value saved_bytes f.json)"
done
[ "$(grep -c '"negative_zeros"' f.json)" = 2 ] && pass || fail "a tensor of integers, or no total: $(cat f.json)"
"$tool" inspect a.safetensors >"$out"
says "inspect of several" '4096 negative zeros keep their signs' "$out"
expect 0 report "$tool" report a.safetensors
says report '<strong>4096 negative zeros</strong>' a.safetensors.html
says report '<td data-column="-0\.0">4096</td>' a.safetensors.html
says report '<td data-column="-0\.0">0</td>' a.safetensors.html
expect 0 "report without" "$tool" report --dtype i32 -o i32.html f32.raw
grep -q -e '-0\.0\|negative' i32.html && fail "report: negative zeros of integers" || pass

# The entropy bound: of each 16 elements one is a value, and of the 15 zeros four are negative.
value entropy_bound_bytes raw.json | awk '{
    bits = 1024 * log(16) + 15360 * log(16 / 15) + 4096 * log(15 / 4) + 11264 * log(15 / 11)
    off = $1 - 4 * 1024 - bits / log(2) / 8
    exit !(off < 0.001 && off > -0.001) }' && pass || fail "the entropy bound: $(value entropy_bound_bytes raw.json)"

# A .npy file with the other byte order: the sign is in the first byte.
{ npy 1 "'>f4'" False '(4,)'; byte 128 0 0 0 0 0 0 128 0 0 0 0 63 128 0 0; } >big.npy
"$tool" inspect --json big.npy >big.json
[ "$(value count big.json)" = 1 ] && pass || fail "big-endian: $(cat big.json)"

# The bits in which two files differ are no numbers: a changed sign is no negative zero.
pattern 4 64 | repeat 10 >base.raw
pattern 4 192 | repeat 10 >new.raw
"$tool" diff --dtype f32 -o d.pici base.raw new.raw && "$tool" inspect --json d.pici >delta.json 2>"$err" ||
    fail "a delta: $(cat "$err")"
says "a delta" '"nonzero": 4096' delta.json
grep -q negative delta.json && fail "a delta has no negative zeros" || pass

# What is said is what compress --zeros=value does.
if "$tool" compress --help | grep >/dev/null -e --zeros; then
    "$tool" compress -o exact.pici a.npy
    "$tool" compress --zeros=value -o value.pici a.npy
    [ $(($(wc -c <exact.pici) - $(wc -c <value.pici))) = "$(value saved_bytes raw.json)" ] && pass ||
        fail "--zeros=value saves $(($(wc -c <exact.pici) - $(wc -c <value.pici)))"
fi

clean "after all that"
finish
