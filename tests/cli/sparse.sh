#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Blocks of zeros in restored files are holes: the same bytes in less space. Pipes and standard output get all zeros.
. tests/cli/common

space() { # FILE: bytes of the disk that it takes
    echo $(($(stat -c %b "$1") * $(stat -c %B "$1")))
}

truncate -s 1M try
[ "$(space try)" = 0 ] || { skip "holes: none on this file system"; finish; }

most=$((16 * 65536)) # a few blocks, however large the file system's are
sparse() { # WHAT FILE ORIGINAL: the same bytes in at most so much space, with a hole
    same "$1" "$3" "$2"
    [ "$(space "$2")" -le $most ] && pass || fail "$1: takes $(space "$2") bytes of $(wc -c <"$2")"
    if command -v python3 >/dev/null 2>&1; then
        python3 -c 'import os, sys
f = os.open(sys.argv[1], os.O_RDONLY)
sys.exit(os.lseek(f, 0, os.SEEK_HOLE) >= os.fstat(f).st_size)' "$2" && pass || fail "$1: SEEK_HOLE finds none"
    fi
}

zeros 1048576 >try
sync try
stores_zeros=1
[ "$(space try)" -ge 1048576 ] || { stores_zeros=0; skip "--no-sparse: this file system stores no zeros"; }

full() { # WHAT FILE ORIGINAL: the same bytes, all of them on the disk
    same "$1" "$3" "$2"
    [ $stores_zeros = 0 ] || [ "$(space "$2")" -ge "$(wc -c <"$2")" ] && pass ||
        fail "$1: takes only $(space "$2") bytes of $(wc -c <"$2")"
}

# Numbers, a hole of 1 MiB that begins and ends within blocks, numbers, a short hole, and zeros at the end.
numbers 600 | tr '\0' x >n2400
truncate -s 3M raw
for at in 0 1050000 1060000 2000000; do
    dd if=n2400 of=raw bs=2400 seek=$at oflag=seek_bytes conv=notrunc 2>"$err" || fail "dd: $(cat "$err")"
done
{ cat raw; printf abc; } >tail.raw # a tail that is not a whole element
truncate -s 2M zeros.raw
{ cat n2400; cat zeros.raw; } >end.raw
: >empty.raw
{ npy 1 "'<f4'" False '(786432,)'; cat raw; } >a.npy
{ npy 1 "'>f4'" False '(786432,)'; cat raw; } >be.npy
# elements that do not begin at a multiple of their width
{ safetensors '{"w":{"dtype":"F32","shape":[786432],"data_offsets":[0,3145728]}}  '; cat raw; } >s.safetensors
for file in raw tail.raw zeros.raw end.raw a.npy be.npy s.safetensors; do
    type=
    case $file in *raw) type='--dtype f32' ;; esac
    # shellcheck disable=SC2086
    expect 0 "compress $file" "$tool" compress $type -o p "$file"
    expect 0 "decompress $file" "$tool" decompress -o x p
    sparse "decompress $file" x "$file"
    rm -f x
    expect 0 "decompress $file, -T 2" "$tool" decompress -T 2 -o x p
    sparse "decompress $file, -T 2" x "$file"
    rm -f x
    "$tool" decompress -o x - <p 2>"$err"
    judge 0 "decompress $file from standard input" $?
    sparse "decompress $file from standard input" x "$file"
    rm -f x
    expect 0 "decompress $file, --no-sparse" "$tool" decompress --no-sparse -o x p
    full "decompress $file, --no-sparse" x "$file"
    rm -f x
    "$tool" decompress -o - p >x 2>"$err"
    judge 0 "decompress $file to standard output" $?
    full "decompress $file to standard output" x "$file"
    "$tool" decompress -o - p 2>"$err" | cmp - "$file"
    judge 0 "decompress $file to a pipe" $?
    rm -f x p
done

# ---- the other verbs that restore
"$tool" compress --dtype f32 raw && "$tool" compress a.npy && "$tool" compress s.safetensors || fail compress
expect 0 extract "$tool" extract -o x raw.pici
sparse extract x raw
expect 0 "extract, --no-sparse" "$tool" extract --no-sparse --force -o x raw.pici
full "extract, --no-sparse" x raw
expect 0 "extract, .npy" "$tool" extract -o x.npy a.npy.pici
sparse "extract, .npy" x.npy a.npy
expect 0 "extract a range" "$tool" extract --force --range 5:700000 -o x raw.pici
dd if=raw of=part bs=4 skip=5 count=699995 2>"$err"
sparse "extract a range" x part
cp --sparse=never raw old
printf y | dd of=old bs=1 seek=1050001 conv=notrunc 2>"$err"
expect 0 diff "$tool" diff --dtype f32 -o d.pici old raw
expect 0 apply "$tool" apply --force -o x old d.pici
sparse apply x raw
expect 0 "apply, --no-sparse" "$tool" apply --no-sparse --force -o x old d.pici
full "apply, --no-sparse" x raw
expect 0 "apply in place" "$tool" apply --in-place old d.pici
sparse "apply in place" old raw
expect 0 "block encode" "$tool" block encode --dtype f32 raw raw.blk
expect 0 "block decode" "$tool" block decode --force raw.blk x
sparse "block decode" x raw
expect 0 "block decode, --no-sparse" "$tool" block decode --no-sparse --force raw.blk x
full "block decode, --no-sparse" x raw
rm -f x

# ---- a file whose chunks are damaged: the zeros in their place are holes
at=$(($(wc -c <raw.pici) / 3))
{ head -c $at raw.pici; printf '\125\252\125\252'; tail -c +$((at + 5)) raw.pici; } >bad.pici
"$tool" decompress --keep-going -o x bad.pici 2>"$err"
[ $? = 1 ] && [ "$(wc -c <x)" = "$(wc -c <raw)" ] && pass || fail "--keep-going: $(cat "$err")"
[ "$(space x)" -le $most ] && pass || fail "--keep-going: takes $(space x) bytes"
rm -f x

# ---- outputs that are no file: written as they are
mkfifo fifo
cat fifo >got &
expect 0 "a FIFO" "$tool" decompress -o fifo raw.pici
wait $!
same "a FIFO" raw got
expect 0 "/dev/null" "$tool" decompress -o /dev/null raw.pici
{ printf before; "$tool" decompress -o - raw.pici; printf after; } >x 2>"$err"
{ printf before; cat raw; printf after; } >y
same "standard output that others write to" y x
printf before >x
"$tool" decompress -o - raw.pici >>x 2>"$err"
{ printf before; cat raw; } >y
same "appended to a file" y x
rm -f x y

# ---- very many zeros: they take no space, so that the limit is not reached
truncate -s 3G big
expect 0 "compress 3 GiB of zeros" "$tool" compress --dtype u8 -T 2 big
expect 0 "restore 3 GiB of zeros" "$tool" decompress -T 2 -o x big.pici
[ "$(wc -c <x)" = 3221225472 ] && [ "$(space x)" -le 65536 ] && pass || fail "3 GiB of zeros take $(space x) bytes"
rm -f x big

# A length that the file system, or the shell's limit, does not allow is an error before anything is decoded.
{ printf PICI; byte 1 2 1 0; byte 0 0 0 0 0 0 0 16; le 8 0; le 8 48; le 8 48; zeros 8; } >bomb.blk # f32, 2^60
{ head -c 7 bomb.blk; byte 1; tail -c +9 bomb.blk; } >bomb2.blk
expect 0 "2^60 zeros are a block" "$tool" test bomb2.blk
expect 1 "2^60 zeros" "$tool" block decode --max-size none bomb2.blk x
says "2^60 zeros" '^picitool: x: a file of 4611686018427387904 bytes: ' "$err"
absent "2^60 zeros" x
# shellcheck disable=SC2016
expect 1 "a limit of the shell" sh -c 'ulimit -f 4096 && exec "$0" "$@"' "$tool" decompress -o x big.pici
says "a limit of the shell" '^picitool: x: a file of 3221225472 bytes: ' "$err"
absent "a limit of the shell" x
clean "what could not be written"

# ---- other file systems
here=$PWD
for other in /dev/shm /tmp /var/tmp; do
    there=$(mktemp -d "$other/pici-test-XXXXXX" 2>/dev/null) || continue
    expect 0 "in $other" "$tool" decompress -o "$there/x" raw.pici
    same "in $other" raw "$there/x"
    truncate -s 1M "$there/try"
    [ "$(space "$there/try")" != 0 ] || sparse "in $other" "$there/x" raw
    rm -rf "$there"
done
cd "$here" || exit 1

# A file system without holes: a preloaded ftruncate(2) allocates what it adds. Zeros are then written, and count.
cat >full.c <<'END'
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
int ftruncate(int fd, off_t length)
{
    struct stat st;
    if (fstat(fd, &st) == 0 && length > st.st_size)
        return posix_fallocate(fd, st.st_size, length - st.st_size) ? -1 : 0;
    return (int)syscall(SYS_ftruncate, fd, length);
}
int ftruncate64(int fd, off_t length)
{
    return ftruncate(fd, length);
}
END
if [ -z "${SANITIZE:-}" ] && [ "$(getconf LONG_BIT)" = 64 ] &&
    ${CC:-cc} -shared -fPIC -o full.so full.c 2>"$err" && LD_PRELOAD=./full.so "$tool" --version >"$out" 2>"$err"; then
    expect 0 "no holes" env LD_PRELOAD=./full.so "$tool" decompress -o x raw.pici
    full "no holes" x raw
    rm -f x
    expect 1 "no holes: zeros count" env LD_PRELOAD=./full.so "$tool" decompress --max-size 2M -o x raw.pici
    says "no holes: zeros count" 'claims 3145728 bytes, more than the limit' "$err"
    absent "no holes: zeros count" x
else
    skip "a file system without holes: no compiler for one, or a sanitizer"
fi
clean "after all that"
finish
