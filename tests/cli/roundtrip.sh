#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# picitool compress and decompress: the same bytes come back, from files and through pipes.
. tests/cli/common

# round FILE TYPE [OPTION...]: there and back, as files and through pipes
round() {
    file=$1 type=$2
    shift 2
    what="$file as $type, $*"
    rm -f r.pici r.back
    expect 0 "compress $what" "$tool" compress --type "$type" "$@" -o r.pici "$file"
    expect 0 "decompress $what" "$tool" decompress -o r.back r.pici
    same "$what" "$file" r.back
    expect 0 "test $what" "$tool" test r.pici
    cat "$file" | "$tool" compress --type "$type" "$@" - 2>"$err" | "$tool" decompress - >r.back 2>>"$err"
    judge 0 "pipes, $what" $?
    same "pipes, $what" "$file" r.back
    rm -f r.pici r.back
}

numbers 300 >n1200
cat n1200 n1200 n1200 n1200 n1200 n1200 n1200 n1200 >n9600

# ---- raw: every dtype, every length of an incomplete last element
for dtype in f32 f64 f16 bf16 f8e4m3 f8e5m2 i8 u8 i16 u16 i32 u32 i64 u64; do
    head -c 1003 n1200 >raw.bin
    round raw.bin raw --dtype $dtype
done
for n in 0 1 7 8 9 15; do
    head -c $n n1200 >raw.bin
    round raw.bin raw --dtype f64
done
for format in auto dense bitmap coo hybrid; do
    round n9600 raw --dtype f32 -f $format
done

# ---- .npy
for version in 1 2 3; do
    { npy $version "'<f4'" False '(300,)'; cat n1200; } >v$version.npy
    round v$version.npy npy
done
{ npy 1 "'<f4'" True '(20, 15)'; cat n1200; } >fortran.npy
{ npy 1 "'>f8'" False '(10, 15)'; cat n1200; } >big.npy
{ npy 1 "'>i2'" True '(10, 60)'; cat n1200; } >bigfortran.npy
{ npy 1 "'>c8'" False '(150,)'; cat n1200; } >complex.npy
{ npy 1 "'|b1'" False '(2, 3)'; byte 0 1 0 0 2 1; } >bool.npy
{ npy 1 "'>U3'" False '(2,)'; zeros 3; printf a; zeros 20; } >unicode.npy
{ npy 1 "'|S5'" False '(3,)'; printf 'hello\0\0\0\0\0world'; } >bytes.npy
{ npy 1 "'|V3'" False '(2,)'; printf 'a\0bc\0\0'; } >void.npy
{ npy 1 "'<f4'" False '()'; byte 0 0 128 63; } >scalar.npy
npy 1 "'<f4'" False '(0, 5)' >empty.npy
npy 1 "'>f8'" False '(3, 0, 1000000)' >emptywide.npy
{ npy 1 "'<f4'" False '(300,)'; cat n1200; printf 'and more'; } >trailing.npy
{ npy 1 "'>f4'" False '(300,)'; cat n1200; cat v1.npy; } >two.npy
{ npy 3 "[('é', '<f4'), ('y', '>i2')]" False '(2,)'; head -c 12 n1200; } >structure.npy
{ npy 1 "'<f4'" False "($(awk 'BEGIN { for (i = 0; i < 40; i++) printf "1, " }'))"; byte 1 2 3 4; } >rank40.npy
{ npy 1 "'<f4'" False '(300,)'; cat n1200; } | sed 's/, }/, }#by/;s/#by   /#by/' >comment.npy
for f in comment fortran big bigfortran complex bool unicode bytes void scalar empty emptywide \
    trailing two structure rank40; do
    round $f.npy npy
done

# elements of a big-endian file are swapped in the .pici file, so that every machine reads the same numbers
{ npy 1 "'>i4'" False '(2,)'; byte 0 0 0 5 1 2 3 4; } >be.npy
{ npy 1 "'<i4'" False '(2,)'; byte 5 0 0 0 4 3 2 1; } >le.npy
for f in be le; do
    "$tool" compress -o $f.pici $f.npy
    "$tool" inspect --json $f.pici | grep -v '"file\|source_dtype\|endian\|stored_bytes' >$f.json
done
same "both byte orders are the same numbers" be.json le.json
for f in be le; do # the block of 8 bytes is at the same place but for the header's attributes
    od -An -v -tx1 $f.pici | tr -d ' \n' | grep >/dev/null 0500000004030201 && pass || fail "$f: stored little-endian"
done

# ---- .safetensors
{ safetensors '{"a":{"dtype":"F32","shape":[10,30],"data_offsets":[0,1200]}}'; cat n1200; } >one.safetensors
{ safetensors '{"z":{"dtype":"BF16","shape":[2],"data_offsets":[16,20]},
"a":{"dtype":"F64","shape":[2,1],"data_offsets":[0,16]},
"":{"dtype":"I8","shape":[0,3],"data_offsets":[20,20]},
"é\u0000\n":{"dtype":"U8","shape":[],"data_offsets":[20,21]},"__metadata__":{"k":"v"}}   '
  head -c 21 n1200; } >several.safetensors
safetensors '{}' >none.safetensors
{ safetensors '{"__metadata__":null,"a":{"dtype":"U8","note":[{"x":null}],"shape":[3],"data_offsets":[0,3]}}'
  byte 1 2 3; } >more.safetensors
safetensors '    {}    ' >padded.safetensors
{ safetensors '{"b":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]},
"c":{"dtype":"C64","shape":[1],"data_offsets":[3,11]}}'
  head -c 11 n1200; } >bool.safetensors
for f in one several more none padded bool; do
    round $f.safetensors safetensors
done

# ---- the type, by name and by option
expect 0 "by name" "$tool" compress -o t1.pici v1.npy
expect 0 "by option" "$tool" compress --type npy -o t2.pici v1.npy
same "by name or option" t1.pici t2.pici
cp v1.npy v1.dat
expect 0 "no name to tell the type: its bytes do" "$tool" compress -o t0.pici v1.dat
same "no name to tell the type: its bytes do" t1.pici t0.pici
expect 0 "raw by option" "$tool" compress --type raw --dtype u8 -o t3.pici v1.npy
"$tool" decompress -o - t3.pici >back && same "npy as raw bytes" v1.npy back
"$tool" compress -o t4.pici --type npy - <v1.npy
same "standard input that is a file" t1.pici t4.pici

# ---- the names of outputs
mkdir d
cp v1.npy d/x.npy
expect 0 "default name" "$tool" compress d/x.npy
rm d/x.npy
expect 0 "default name back" "$tool" decompress d/x.npy.pici
same "default names" v1.npy d/x.npy
cp v1.npy ./-f
expect 0 "a name like an option" "$tool" compress --type npy -- -f
expect 0 "a name like an option, back" "$tool" decompress -o back.npy ./-f.pici
same "a name like an option" v1.npy back.npy
odd=$(printf 'a b\n\033[1m')
cp v1.npy "$odd.npy"
expect 0 "a name with controls" "$tool" compress "$odd.npy"
expect 0 "a name with controls, back" "$tool" decompress -o back2.npy "$odd.npy.pici"
same "a name with controls" v1.npy back2.npy

# ---- the same bytes at any thread count; and of what is longer than a chunk
{ zeros 3000000; cat n9600; zeros 5000000; cat n9600; zeros 1000003; } >long
"$tool" compress --dtype u8 -o long1.pici long
for threads in 0 2 3; do
    expect 0 "$threads threads" "$tool" compress --dtype u8 -T $threads -o long2.pici --force long
    same "$threads threads" long1.pici long2.pici
    expect 0 "$threads threads back" "$tool" decompress -T $threads --force -o long.back long1.pici
    same "$threads threads back" long long.back
done
round long raw --dtype u8
round long raw --dtype i64
{ npy 1 "'<f4'" False '(2000000,)'; head -c 8000000 long; } >long.npy
round long.npy npy -T 2 -f pici
{ cat v1.npy; cat long; } >longtail.npy # trailing bytes of a stream, longer than a chunk
round longtail.npy npy

# ---- zeros: by value, the signs of those of floats are not kept, and all other bits are
byte 0 0 0 128 0 0 0 0 0 0 128 127 1 0 0 128 0 0 0 128 0 0 0 128 128 >signed
byte 0 0 0 0 0 0 0 0 0 0 128 127 1 0 0 128 0 0 0 0 0 0 0 0 128 >plain # f32; f16 if its elements are read so
round signed raw --dtype f32 --zeros exact
round signed raw --dtype i32 --zeros value
for format in auto dense bitmap coo hybrid; do
    expect 0 "compress by value" "$tool" compress --force --dtype f32 --zeros=value -f $format -o v.pici signed
    expect 0 "decompress by value" "$tool" decompress --force -o v.back v.pici
    same "by value, as $format" plain v.back
    expect 0 "compress without signs" "$tool" compress --force --dtype f32 -f $format -o p.pici plain
    same "the file does not tell, as $format" p.pici v.pici
done
head -c 24 signed >s24
head -c 24 plain >p24
expect 0 "block encode by value" "$tool" block encode --dtype f32 --zeros value s24 s.blk
expect 0 "block encode without signs" "$tool" block encode --dtype f32 p24 p.blk
same "blocks by value" p.blk s.blk
expect 2 "no such zeros" "$tool" compress --force --zeros=values -o v.pici v1.npy
says "no such zeros" "not one of exact, value; did you mean value\?" "$err"

# ---- zstd
if "$tool" compress --zstd -o z.pici v1.npy 2>"$err"; then
    pass
    for level in '' =1 =19; do
        round long raw --dtype u8 --zstd$level
    done
    # elements that coo and pici do not make smaller, but that repeat
    awk 'BEGIN { for (i = 0; i < 20000; i++) printf "abcd" }' >repeat
    "$tool" compress --dtype f32 -o plain.pici repeat
    "$tool" compress --dtype f32 --zstd=9 -o zstd.pici repeat
    [ "$(wc -c <zstd.pici)" -lt $(($(wc -c <plain.pici) / 10)) ] && pass || fail "zstd makes repeats small"
elif [ "${ZSTD:-}" = 1 ]; then
    fail "built with zstd: $(cat "$err")"
else
    says "a build without zstd says so" zstd "$err"
    skip "compress --zstd: a build without it"
fi

# ---- a checkpoint of 48 small tensors, of random elements, does not grow; a partial read reads one shared chunk
safetensors "$(awk 'BEGIN {
    for (i = 0; i < 48; i++) {
        printf "%s\"model.layers.%d.%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%d,%d]}", i ? "," : "{",
            i / 4, i % 4 ? "part" i % 4 ".weight" : "norm.bias", "8,8", i * 256, (i + 1) * 256
    }
    printf "}"
}')" >small.safetensors
head -c $((48 * 256)) /dev/urandom >elements
cat elements >>small.safetensors
expect 0 "compress small tensors" "$tool" compress small.safetensors
[ "$(wc -c <small.safetensors.pici)" -le $(($(wc -c <small.safetensors) * 103 / 100)) ] && pass ||
    fail "$(wc -c <small.safetensors) bytes of small tensors became $(wc -c <small.safetensors.pici)"
expect 0 "decompress small tensors" "$tool" decompress -o small.back small.safetensors.pici
same "small tensors" small.safetensors small.back
name=model.layers.5.part3.weight
expect 0 "extract a small tensor" "$tool" extract -n $name --range 8:24 -o part small.safetensors.pici
tail -c +$((23 * 256 + 32 + 1)) elements | head -c 64 >want
same "extract a small tensor" want part

clean "after all that"
finish
