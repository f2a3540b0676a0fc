#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# picitool does not hold a whole file in memory: a sparse file of 1 GiB is compressed, tested, listed, extracted from
# and restored in 64 MiB of address space; with PICI_TEST_FULL=1, one of 20 GiB in the same space.
. tests/cli_common
if [ -n "${SANITIZE:-}" ]; then
    skip "memory of large files: a sanitizer needs address space of its own"
    finish
fi
gib=1
[ -z "${PICI_TEST_FULL:-}" ] || gib=20
limit=65536 # KiB

small() { # COMMAND...: in that much address space
    # shellcheck disable=SC2016
    sh -c 'ulimit -v "$0" && exec "$@"' $limit "$@"
}
small "$tool" --version >"$out" 2>"$err" || {
    skip "memory of large files: the tool alone does not fit, $(head -c 200 "$err")"
    finish
}
# shellcheck disable=SC2016
small sh -c 'x=$(head -c 80000000 /dev/zero | tr "\0" a)' 2>"$err" && fail "the limit is none" || pass

numbers 300 >n1200
truncate -s ${gib}G big || { skip "memory of large files: no room for a sparse file"; finish; }
for at in 0 1048576 500000001 $((gib * 1073741824 - 1200)); do
    dd if=n1200 of=big bs=1200 seek=$at oflag=seek_bytes conv=notrunc 2>"$err" || fail "dd: $(cat "$err")"
done
expect 0 compress small "$tool" compress --dtype f32 big
[ "$(wc -c <big.pici)" -lt $((gib * 100000)) ] && pass || fail "$gib GiB of zeros became $(wc -c <big.pici) bytes"
expect 0 test small "$tool" test big.pici
expect 0 list small "$tool" list big.pici
small "$tool" decompress --max-size none -o - big.pici 2>"$err" | cmp - big
judge 0 decompress $?
expect 0 extract small "$tool" extract --range $((gib * 268435456 - 300)): -o last big.pici
same extract n1200 last

# through pipes, where the length is not known; and with threads, for which the C library reserves address space
limit=$((limit * 4))
cat big | small "$tool" compress --dtype f32 -T 2 - 2>"$err" >pipe.pici
judge 0 "compress a pipe" $?
cat pipe.pici | small "$tool" decompress --max-size none -T 2 - 2>"$err" | cmp - big
judge 0 "decompress a pipe" $?
[ -n "${PICI_TEST_FULL:-}" ] || skip "20 GiB in bounded memory (PICI_TEST_FULL=1)"
finish
