#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# picitool block encode and decode, and test and inspect of bare blocks.
. tests/cli/common

# By hand, as formats/block.md has it: 5 elements of u16, of which elements 1 and 4 are not zero.
byte 0 0 1 2 0 0 0 0 255 128 >five.raw
header() { # FORMAT DTYPE FLAGS COUNT NNZ INDEX VALUES
    printf PICI
    byte 1 "$1" "$2" "$3"
    le 8 "$4" && le 8 "$5" && le 8 "$6" && le 8 "$7" && zeros 8
}
{ header 0 10 0 5 5 48 48; cat five.raw; } >dense.blk
{ header 2 10 0 5 2 48 64; le 4 1; le 4 4; zeros 8; byte 1 2 255 128; } >coo.blk
# columns 1 and 4 have bit 0; the index is one entry, 0, and padding
{ header 1 10 0 5 2 560 576; zeros 8; le 8 1; zeros 16; le 8 1; zeros 472; zeros 16; byte 1 2 255 128; } >bitmap.blk
for format in dense coo bitmap; do
    expect 0 "encode $format" "$tool" block encode -f $format --dtype u16 five.raw x.blk
    same "encode $format" $format.blk x.blk
    expect 0 "decode $format" "$tool" block decode $format.blk x.raw
    same "decode $format" five.raw x.raw
    expect 0 "test $format" "$tool" test $format.blk
    expect 0 "inspect $format" "$tool" inspect $format.blk
    says "inspect $format" 'nonzero +2$' "$out"
    "$tool" block encode -f $format --dtype u16 - - <five.raw 2>"$err" | "$tool" block decode - - >x.raw 2>>"$err"
    judge 0 "pipes, $format" $?
    same "pipes, $format" five.raw x.raw
    rm -f x.blk x.raw
done

# The name of bitmap until version 0.3
expect 0 "encode pici" "$tool" block encode -f pici --dtype u16 five.raw x.blk
same "encode pici" bitmap.blk x.blk
rm -f x.blk

# every dtype and format, with a checksum and threads, of several tiles
numbers 300 >n1200
{ zeros 30000; cat n1200; zeros 7000; cat n1200 n1200; zeros 60000; } >long
for dtype in f32 f64 f16 bf16 f8e4m3 f8e5m2 i8 u8 i16 u16 i32 u32 i64 u64; do
    for format in auto dense bitmap coo hybrid; do
        expect 0 "encode $dtype $format" "$tool" block encode -f $format --dtype $dtype -T 2 --checksum long x.blk
        expect 0 "decode $dtype $format" "$tool" block decode -T 2 x.blk x.raw
        same "decode $dtype $format" long x.raw
        { head -c 60 x.blk; printf '\001'; tail -c +62 x.blk; } >y.blk
        cmp -s x.blk y.blk || expect 1 "test of $dtype $format with a byte changed" "$tool" test y.blk
        rm -f x.blk x.raw
    done
done

# no elements
: >none
expect 0 "encode nothing" "$tool" block encode --dtype f64 none none.blk
[ "$(wc -c <none.blk)" = 48 ] && pass || fail "a block of nothing is 48 bytes"
expect 0 "decode nothing" "$tool" block decode none.blk x.raw
same "decode nothing" none x.raw
rm x.raw

expect 1 "not whole elements" "$tool" block encode --dtype f64 five.raw x.blk
says "not whole elements" 'offset 8: 2 bytes' "$err"
absent "not whole elements" x.blk

# ---- 48 bytes that claim 2^60 zeros
header 2 1 0 0 0 48 48 | head -c 8 >bomb.blk
{ byte 0 0 0 0 0 0 0 16; le 8 0; le 8 48; le 8 48; zeros 8; } >>bomb.blk
{ head -c 7 bomb.blk; byte 1; tail -c +9 bomb.blk; } >bomb2.blk # their positions would be 64 bits wide
expect 0 "48 bytes may claim 2^60 zeros" "$tool" test bomb2.blk
expect 1 "decode of 2^60 zeros" "$tool" block decode bomb2.blk x.raw
says "decode of 2^60 zeros" 'offset 8: .*1152921504606846976 elements of f32.*--max-size' "$err"
absent "decode of 2^60 zeros" x.raw
expect 1 "decode of 2^60 zeros, --max-size 1T" "$tool" block decode --max-size 1T bomb2.blk x.raw
expect 1 "inspect of 2^60 zeros" "$tool" inspect bomb2.blk
expect 1 "the wrong index width" "$tool" test bomb.blk

# --max-size is exact, takes suffixes, and 1 GiB is the default
header 2 1 0 1024 0 48 48 >k4.blk
expect 0 "--max-size 4096" "$tool" block decode --max-size 4096 k4.blk x.raw
rm -f x.raw
expect 0 "--max-size 4K" "$tool" block decode --max-size 4K k4.blk x.raw
[ "$(wc -c <x.raw)" = 4096 ] && pass || fail "4096 bytes"
rm -f x.raw
expect 1 "--max-size 4095" "$tool" block decode --max-size 4095 k4.blk x.raw
absent "--max-size 4095" x.raw
expect 1 "--max-size 0" "$tool" block decode --max-size 0 k4.blk x.raw
header 2 1 0 268435457 0 48 48 >g1.blk
expect 1 "1 GiB and 4 bytes" "$tool" block decode g1.blk x.raw
absent "1 GiB and 4 bytes" x.raw

# ---- no block, or a broken one
for n in 0 3 4 47 48 60 576 579; do
    head -c $n pici.blk >cut.blk
    expect 1 "test of a block cut to $n bytes" "$tool" test cut.blk
    says "test of a block cut to $n bytes" 'offset [0-9]+: ' "$err"
    expect 1 "decode of a block cut to $n bytes" "$tool" block decode cut.blk x.raw
    absent "decode of a block cut to $n bytes" x.raw
done
{ cat pici.blk; printf x; } >cut.blk
expect 1 "decode of a block with a byte after it" "$tool" block decode cut.blk x.raw
{ header 1 10 0 5 2 560 576; zeros 8; le 8 1; zeros 16; le 8 1; zeros 472; zeros 16; byte 1 2 0 0; } >zero.blk
expect 1 "a stored zero" "$tool" test zero.blk
says "a stored zero" 'zero.blk: offset 578: tile 0: .*\(' "$err"
{ header 4 10 0 5 2 48 64; le 4 1; le 4 4; zeros 8; byte 1 2 255 128; } >unknown.blk
expect 1 "a block of a format to come" "$tool" block decode unknown.blk x.raw

clean "after all that"
finish
