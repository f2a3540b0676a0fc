#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# picitool diff, apply, inspect --base: the same bytes come back, for files of every type, for several deltas and in
# place, whatever was added or removed. Another base is refused. A killed process leaves the old file or the new one.
. tests/cli/common

numbers 300 >n1200
cat n1200 n1200 n1200 n1200 n1200 n1200 n1200 n1200 >n9600
# the same with some bytes changed
awk 'BEGIN { for (i = 0; i < 40; i++) print i * 229 % 9600 }' >places
changed() { # FILE N: N bytes of it made x, from the header's end on
    cp "$1" changed.tmp
    skip_bytes=$(($(wc -c <"$1") - 9600))
    head -n "$2" places | while read -r at; do
        printf x | dd of=changed.tmp bs=1 seek=$((skip_bytes + at)) conv=notrunc 2>/dev/null
    done
    cat changed.tmp
}

# both FILE FILE [OPTION...]: there, and back with the reverse
both() {
    a=$1 b=$2
    shift 2
    what="$a to $b, $*"
    rm -f d.pici e.pici r.new r.old
    expect 0 "diff $what" "$tool" diff "$@" -o d.pici "$a" "$b"
    expect 0 "apply $what" "$tool" apply -o r.new "$a" d.pici
    same "$what" "$b" r.new
    expect 0 "diff back $what" "$tool" diff "$@" -o e.pici "$b" "$a"
    expect 0 "apply back $what" "$tool" apply -o r.old "$b" e.pici
    same "back $what" "$a" r.old
    expect 0 "test $what" "$tool" test d.pici
    expect 0 "there and back at once, $what" "$tool" apply --force -o r.old "$a" d.pici e.pici
    same "there and back at once, $what" "$a" r.old
}

# ---- raw, of every dtype, with bytes of an incomplete last element and without; of other lengths
changed n9600 40 >m9600
changed n9600 15 >k9600
for dtype in f32 f64 bf16 f8e4m3 i8 u16 i64; do
    both n9600 m9600 --dtype $dtype
done
{ cat n9600; printf abc; } >n9603
{ cat m9600; printf axc; } >m9603
both n9603 m9603 --dtype f32
both n9603 n9600 --dtype f32
both n9600 n1200 --dtype f32
both n9600 n9600 --dtype f32
printf ab >two.raw
both two.raw n9600 --dtype f32
for dtype in f32 f16 bf16 i16; do
    both n9600 m9600 --dtype $dtype --small
    both n9600 m9600 --dtype $dtype --fast
done
for format in dense bitmap coo hybrid; do
    both n9600 m9600 --dtype bf16 -f $format -T 2
done

# ---- .npy: byte orders, Fortran order, trailing bytes; another shape or type is another tensor
{ npy 1 "'<f4'" False '(40, 60)'; cat n9600; } >a.npy
{ npy 1 "'>f4'" False '(2400,)'; cat n9600; } >big.npy
{ npy 1 "'<f4'" True '(40, 60)'; cat n9600; } >f.npy
{ npy 1 "'<f4'" False '(60, 40)'; cat n9600; } >other.npy
{ cat a.npy; printf tail; } >tail.npy
for f in a big f; do
    changed $f.npy 30 >$f.2.npy
    both $f.npy $f.2.npy
done
"$tool" diff -o d.pici big.npy big.2.npy
"$tool" list --json d.pici | grep >/dev/null '"xor": *1' && pass || fail "a big-endian tensor is not XORed"
both a.npy other.npy
both a.npy f.npy
both a.npy big.npy
both a.npy tail.npy

# ---- .safetensors: tensors added, removed, reshaped, of another type, in another order; names
st() { # BYTES-OF-W NAMES...: files of w and others of 1200 bytes each
    printf '"w":{"dtype":"BF16","shape":[%s],"data_offsets":[0,%s]}' $(($1 / 2)) "$1"
}
{ safetensors "{$(st 9600),\"gone\":{\"dtype\":\"F32\",\"shape\":[300],\"data_offsets\":[9600,10800]},
\"t\":{\"dtype\":\"F32\",\"shape\":[300],\"data_offsets\":[10800,12000]}}"
  cat n9600 n1200 n1200; } >a.safetensors
{ safetensors "{$(st 9600),\"t\":{\"dtype\":\"F32\",\"shape\":[30,10],\"data_offsets\":[9600,10800]},
\"delta.hashes\":{\"dtype\":\"U8\",\"shape\":[1200],\"data_offsets\":[10800,12000]}}"
  cat m9600 n1200 n1200; } >b.safetensors
{ safetensors "{\"t\":{\"dtype\":\"F32\",\"shape\":[30,10],\"data_offsets\":[0,1200]},
\"delta.hashes\":{\"dtype\":\"I8\",\"shape\":[1200],\"data_offsets\":[1200,2400]},
\"w\":{\"dtype\":\"BF16\",\"shape\":[4800],\"data_offsets\":[2400,12000]}}"
  head -c 1200 m9600; cat n1200 k9600; } >c.safetensors
safetensors '{}' >none.safetensors
both a.safetensors b.safetensors
both b.safetensors c.safetensors
both b.safetensors c.safetensors --small -T 2
both a.safetensors b.safetensors --fast --small
both a.safetensors none.safetensors
both a.safetensors a.safetensors
"$tool" diff -o ab.pici a.safetensors b.safetensors
"$tool" diff -o bc.pici b.safetensors c.safetensors
"$tool" list ab.pici >"$out"
says "list of a delta" '^ab.pici: delta, from safetensors' "$out"
says "list of a delta" '^1 xor, 0 small, 1 added, 1 replaced, 1 removed: gone$' "$out"
"$tool" list --json ab.pici | tr -d ' \n' >"$out"
says "list --json of a delta" '"delta":\{"xor":1,"small":0,"added":1,"replaced":1,"removed":\["gone"\]\}' "$out"
"$tool" inspect ab.pici >"$out"
says "inspect of a delta" '^ab.pici: delta' "$out"
expect 0 "a row" "$tool" apply -o row a.safetensors ab.pici bc.pici
same "a row" c.safetensors row
# the number of threads does not change a delta
"$tool" diff -T 3 -o ab3.pici a.safetensors b.safetensors
same "a delta by three threads" ab.pici ab3.pici
expect 0 "apply -T 3" "$tool" apply -T 3 -o row --force a.safetensors ab.pici bc.pici
same "apply -T 3" c.safetensors row
"$tool" apply -o - a.safetensors ab.pici | cmp -s - b.safetensors && pass || fail "apply to standard output"

# ---- a step of an optimizer in bf16: some weights of small exponents move to their neighbours
weights() { # STEP: 6000 weights
    awk -v step="$1" 'BEGIN {
        for (i = 0; i < 6000; i++)
            printf "\\%03o\\%03o", i * 7919 % 128 + (i % 12 < 5 && i * 31 % 2) * step, i % 12 < 5 ? 55 : 60
    }' >octal.tmp
    # shellcheck disable=SC2059
    printf "$(cat octal.tmp)"
}
for step in 0 1 2; do
    { npy 1 "'<u2'" False '(6000,)'; weights $step; } >w$step.npy
    { safetensors '{"w":{"dtype":"BF16","shape":[60,100],"data_offsets":[0,12000]},
"u":{"dtype":"U8","shape":[1200],"data_offsets":[12000,13200]}}'; weights $step; cat n1200; } >w$step.safetensors
done
both w0.safetensors w1.safetensors
"$tool" diff -o w01.pici w0.safetensors w1.safetensors
"$tool" diff -o w12.pici w1.safetensors w2.safetensors
"$tool" diff --fast -o f01.pici w0.safetensors w1.safetensors
"$tool" diff --fast -o f12.pici w1.safetensors w2.safetensors
"$tool" list w01.pici >"$out"
says "small deltas by default" '^0 xor, 1 small, 0 added, 0 replaced' "$out"
says "what small deltas lead to" '^w  *bf16  *\[60, 100\]  *6000 ' "$out"
"$tool" list f01.pici >"$out"
says "--fast" '^2 xor, 0 small' "$out"
"$tool" diff -T 3 -o w01.3.pici w0.safetensors w1.safetensors
same "small deltas by three threads" w01.pici w01.3.pici
for first in w01 f01; do
    for second in w12 f12; do
        expect 0 "$first, $second" "$tool" apply --force -o row w0.safetensors $first.pici $second.pici
        same "$first, $second" w2.safetensors row
    done
done
[ $(($(wc -c <w01.pici) * 3)) -lt $(($(wc -c <f01.pici) * 2)) ] && pass ||
    fail "small deltas: $(wc -c <w01.pici) bytes, others $(wc -c <f01.pici)"
both w0.npy w1.npy --small # the base is u16: no floats
expect 0 "inspect --base" "$tool" inspect --base w0.safetensors w01.pici
says "inspect --base" '^w  *bf16  *\[60, 100\] small  *6000  *16.7%' "$out"
"$tool" inspect --json --base w0.safetensors w01.pici | tr -d ' \n' >"$out"
says "inspect --json --base" '"kind":"small",.*"changed":1000,.*"bound_bytes":[1-9]' "$out"
"$tool" inspect --json --base w0.safetensors f01.pici | tr -d ' \n' >"$out"
says "inspect --base of XOR" '"kind":"xor",.*"changed":1000,' "$out"
expect 1 "inspect --base, another" "$tool" inspect --base w1.safetensors w01.pici
says "inspect --base, another" "w1.safetensors: not the base of w01.pici: tensor 'w'" "$err"
expect 1 "inspect --base of no delta" "$tool" inspect --base w0.safetensors w1.safetensors

# the bound of floats of 8 and 4 bits, by the order of their values: many steps of one, from few values
narrow() { # STEP: 20000 bytes
    awk -v step="$1" 'BEGIN {
        for (i = 0; i < 20000; i++)
            printf "\\%03o", 64 + i * 7919 % 8 + (i * 31 % 97 < 9) * step
    }' >octal.tmp
    # shellcheck disable=SC2059
    printf "$(cat octal.tmp)"
}
for step in 0 1; do
    for dtype in F8_E4M3 U8; do
        { safetensors "{\"w\":{\"dtype\":\"$dtype\",\"shape\":[20000],\"data_offsets\":[0,20000]}}"; narrow $step; } \
            >$dtype.$step.safetensors
    done
done
for dtype in F8_E4M3 U8; do
    "$tool" diff -o $dtype.pici $dtype.0.safetensors $dtype.1.safetensors
    "$tool" inspect --json --base $dtype.0.safetensors $dtype.pici | tr -d ' \n' >"$out"
    says "inspect --base of $dtype" '"kind":"small",.*"changed":185[0-9],' "$out"
    sed 's/.*"stored_bytes":\([0-9]*\),"bound_bytes":\([0-9]*\).*/\1 \2/' "$out" | {
        read -r stored bound
        [ "$bound" -gt 0 ] && [ "$stored" -ge "$bound" ] && [ "$stored" -lt $((bound * 2)) ]
    } && pass || fail "the bound of $dtype: $(cat "$out")"
done

# ---- longer than a chunk
{ zeros 3000000; cat n9600; zeros 5000000; cat n9600; zeros 1000003; } >long
{ zeros 2999990; cat n9600; zeros 5000010; cat m9600; zeros 1000003; } >long2
both long long2 --dtype u8
both long long2 --dtype bf16 -T 2
both long long2 --dtype bf16 --small -T 2
if "$tool" compress --zstd -o z.pici a.npy 2>/dev/null; then
    both long long2 --dtype u8 --zstd
else
    skip "diff --zstd: a build without it"
fi

# ---- another base, deltas in the wrong order: an error, and nothing is written
refused() { # WHAT PATTERN COMMAND...: status 1, and neither output nor temporary file
    refused_what=$1 refused_pattern=$2
    shift 2
    expect 1 "$refused_what" "$@"
    says "$refused_what" "$refused_pattern" "$err"
    absent "$refused_what" x
    clean "$refused_what"
}
cp a.safetensors damaged.safetensors
printf x | dd of=damaged.safetensors bs=1 seek=$(($(wc -c <a.safetensors) - 2500)) conv=notrunc 2>/dev/null
refused "a base with a byte changed" "tensor 'w': its XXH64 is" "$tool" apply -o x damaged.safetensors ab.pici
refused "the result as base" "tensor 'w': its XXH64 is" "$tool" apply -o x b.safetensors ab.pici
refused "another base of small deltas" "w2.safetensors: not the base of w01.pici: tensor 'w': its XXH64 is" \
    "$tool" apply -o x w2.safetensors w01.pici
refused "small deltas in the wrong order" 'not a delta of the result of w12.pici' \
    "$tool" apply -o x w1.safetensors w12.pici w01.pici
refused "a base without the tensor" "tensor 'w': the base has none" "$tool" apply -o x none.safetensors ab.pici
refused "a base of another type" 'a.npy: ' "$tool" apply -o x a.npy ab.pici
refused "the wrong order" 'not a delta of the result of bc.pici' "$tool" apply -o x b.safetensors bc.pici ab.pici
refused "twice" 'not a delta of the result of ab.pici' "$tool" apply -o x a.safetensors ab.pici ab.pici
"$tool" diff -o npy.pici a.npy a.2.npy
refused "a row of other types" 'a delta of type npy' "$tool" apply -o x a.safetensors ab.pici npy.pici
"$tool" compress -o plain.pici a.npy
refused "no delta" 'not a delta' "$tool" apply -o x a.npy plain.pici
refused "no .pici file" 'a.npy: offset' "$tool" apply -o x a.npy a.npy
refused "decompress" 'is a delta: restore it with picitool apply and its base' "$tool" decompress -o x ab.pici
"$tool" decompress -o x - <ab.pici 2>"$err"
judge 1 "decompress a stream" $?
expect 0 "what the base has more is no matter" "$tool" diff -o d.pici --force none.safetensors b.safetensors
expect 0 "what the base has more is no matter" "$tool" apply -o y a.safetensors d.pici
same "what the base has more is no matter" b.safetensors y

# ---- usage
echo old >old
for args in 'diff a.npy' 'diff a.npy a.2.npy' 'diff -o x a.npy' 'diff -o old a.npy a.2.npy' 'diff -o x n9600 m9600' \
    'diff -o x a.npy a.safetensors' 'diff --force -o a.npy a.npy a.2.npy' 'diff --force -o a.2.npy a.npy a.2.npy' \
    'apply a.npy' 'apply a.npy npy.pici' 'apply -o x --in-place a.npy npy.pici' 'apply -o old a.npy npy.pici' \
    'apply --force -o a.npy a.npy npy.pici' 'apply --force -o npy.pici a.npy npy.pici' \
    'apply -o x --dtype f32 a.npy npy.pici'; do
    # shellcheck disable=SC2086
    expect 2 "picitool $args" "$tool" $args
    absent "picitool $args" x
done
[ "$(cat old)" = old ] && pass || fail "touched what exists"
for verb in diff apply; do
    expect 0 "$verb --help" "$tool" $verb --help
    says "$verb --help" "Usage: picitool $verb" "$out"
done
: >empty
expect 1 "an empty base" "$tool" diff --dtype u8 -o x empty n1200
expect 1 "a base that is a pipe" "$tool" diff --type npy -o x - a.npy
if [ -c /dev/full ]; then
    expect 1 "diff to a full device" "$tool" diff -o /dev/full a.npy a.2.npy
    expect 1 "apply to a full device" "$tool" apply -o /dev/full a.npy npy.pici
else
    skip "no /dev/full"
fi

# ---- a delta cut or changed anywhere
damage() { # DELTA BASE RESULT
    bytes=$(wc -c <"$1")
    n=0
    while [ $n -lt "$bytes" ]; do
        head -c $n "$1" >cut.pici
        refused "$1 cut to $n bytes" cut.pici "$tool" apply -o x "$2" cut.pici
        at=$(od -An -tu1 -j $n -N 1 "$1")
        { head -c $n "$1"; byte $((at ^ 64)); tail -c +$((n + 2)) "$1"; } >bad.pici
        expect 1 "test of $1 with byte $n changed" "$tool" test bad.pici
        "$tool" apply -o x "$2" bad.pici >"$out" 2>"$err" # what is in no record that is used may be anything
        [ $? = 1 ] || { cmp -s x "$3" && rm x && pass || fail "$1 with byte $n changed"; }
        absent "$1 with byte $n changed" x
        n=$((n + 97))
    done
}
damage ab.pici a.safetensors b.safetensors
damage w01.pici w0.safetensors w1.safetensors

# ---- in place: applied once, however often it is run
cp a.safetensors p.safetensors
chmod 640 p.safetensors
expect 0 "in place" "$tool" apply --in-place p.safetensors ab.pici
same "in place" b.safetensors p.safetensors
[ "$(ls -l p.safetensors | cut -c1-10)" = -rw-r----- ] && pass || fail "in place: mode $(ls -l p.safetensors)"
mkdir blobs
cp a.safetensors blobs/hash
ln -s blobs/hash linked.safetensors
expect 0 "in place, a link" "$tool" apply --in-place linked.safetensors ab.pici
same "in place, a link" b.safetensors linked.safetensors
same "in place, what a link points to" a.safetensors blobs/hash
expect 0 "in place, again" "$tool" apply --in-place p.safetensors ab.pici
same "in place, again" b.safetensors p.safetensors
cp w0.safetensors q.safetensors
for again in "" ", again"; do
    expect 0 "small deltas in place$again" "$tool" apply --in-place q.safetensors w01.pici w12.pici
    same "small deltas in place$again" w2.safetensors q.safetensors
done
cp damaged.safetensors p.safetensors
expect 1 "in place, another base" "$tool" apply --in-place p.safetensors ab.pici
same "in place, another base" damaged.safetensors p.safetensors
cp ab.pici selfdelta.pici
expect 2 "to a delta of the row" "$tool" apply --force -o selfdelta.pici a.safetensors selfdelta.pici
clean "in place"

# ---- killed at any time: the old file or the new one, and the next run succeeds
{ npy 1 "'<u2'" False '(4509603,)'; cat long long; } >old.npy
{ npy 1 "'<u2'" False '(4509603,)'; cat long2 long2; } >new.npy
"$tool" diff -o on.pici old.npy new.npy || fail "diff of old and new"
points=25 i=0
[ -z "${PICI_TEST_FULL:-}" ] || points=500
cp old.npy k.npy
timed apply "$tool" apply --in-place k.npy on.pici
while [ $i -lt $points ]; do
    i=$((i + 1))
    cp old.npy k.npy
    kill_at $i apply "$tool" apply --in-place k.npy on.pici
    if cmp -s k.npy old.npy; then
        was apply before
        timed apply "$tool" apply --in-place k.npy on.pici
    else
        was apply after
    fi
    same "apply was killed" new.npy k.npy
    rm -f .pici-*
done
kills_spread apply

clean "after all that"
finish
