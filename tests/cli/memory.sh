#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# picitool does not hold a whole file in memory. In 64 MiB of address space it compresses, tests, lists, extracts from
# and restores a sparse file of 1 GiB, or of 20 GiB with PICI_TEST_FULL=1.
. tests/cli/common
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
# ---- --memory: as many threads as fit, or a failure that names it
data() { # KIB COMMAND...: with that much memory to write to
    # shellcheck disable=SC2016
    sh -c 'ulimit -d "$0" && exec "$@"' "$@"
}
head -c 134217728 big >some
"$tool" compress -T 8 --dtype f64 -o want some 2>"$err"
data 40960 "$tool" compress -T 8 --dtype f64 -o x.pici some 2>"$err" && fail "8 threads fit into 40 MiB" || pass
expect 0 "compress --memory" data 40960 "$tool" compress -T 8 --memory 40M --dtype f64 -o x.pici some
same "compress --memory" want x.pici
expect 0 "decompress --memory" data 40960 "$tool" decompress -T 8 --memory 40M -o back x.pici
same "decompress --memory" some back
expect 1 "too little --memory" "$tool" compress --memory 8M --dtype f64 -o y.pici some
says "too little --memory" 'out of memory for .*; --memory is 8388608 bytes' "$err"
absent "too little --memory" y.pici
expect 1 "too little --memory to decompress" "$tool" decompress --memory 8M -o y x.pici
says "too little --memory to decompress" '; --memory is 8388608 bytes' "$err"
absent "too little --memory to decompress" y
expect 2 "--memory 0" "$tool" test --memory 0 x.pici
rm -f some want back x.pici

# ---- a deflated .npz of 256 MiB, which is inflated, deflated again and compared
python=
for p in python3 /usr/bin/python3; do
    [ -n "$python" ] || ! "$p" -c 'import zlib' 2>/dev/null || python=$p
done
if [ -z "$python" ] || [ "${ZLIB:-}" != 1 ]; then
    skip "memory of a deflated .npz: no python3, or a build without zlib"
else
    "$python" - <<'END'
import zipfile
head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (67108864,), }".ljust(117) + b"\n"
with zipfile.ZipFile("z.npz", "w", zipfile.ZIP_DEFLATED) as f, f.open("w.npy", "w") as m:
    m.write(b"\x93NUMPY\x01\x00v\x00" + head)
    for i in range(256):
        m.write(bytes(500000) + bytes([1, 2, 3, i]) + bytes(548572))
END
    limit=65536
    expect 0 "compress a .npz" small "$tool" compress z.npz
    expect 0 "decompress a .npz" small "$tool" decompress -o z.back z.npz.pici
    same "decompress a .npz" z.npz z.back
fi

# ---- many tensors without elements: memory by what the header says of each, not by what it could say
awk 'BEGIN {
    for (i = 0; i < 100000; i++)
        printf "%s\"%d\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}", i ? "," : "{", i
    printf "}"
}' >header
{ le 8 "$(wc -c <header)"; cat header; } >many.safetensors
limit=131072
expect 0 "diff of many tensors" small "$tool" diff -o many.pici many.safetensors many.safetensors
limit=81920
expect 0 "apply to many tensors" small "$tool" apply -o many.out many.safetensors many.pici
same "apply to many tensors" many.safetensors many.out
limit=65536
expect 0 "list of many tensors" small "$tool" list many.safetensors
expect 0 "list of many tensors in a .pici file" small "$tool" list many.pici

# ---- a log of more deltas than a reader keeps open, of which the last 30 have 3 MiB each
cp n1200 state0
"$tool" log init long state0 || fail init
i=0
while [ $i -lt 230 ]; do
    i=$((i + 1))
    { [ $i -lt 201 ] || head -c 3000000 /dev/urandom; echo $i; } >state1
    "$tool" log append -d u8 long state0 state1 || fail "append $i"
    mv state1 state0
done
limit=65536
cp n1200 reader
expect 0 "a log of 230 deltas" small "$tool" log apply long reader
same "a log of 230 deltas" state0 reader

# ---- where there is not enough: says for what, and leaves nothing
"$tool" diff --dtype f32 -o long.pici header header || fail "diff"
for verb in "apply --force -o x many.safetensors many.pici" "diff --force -o x many.safetensors many.safetensors" \
    "apply --force -o x header long.pici" "compress --force -o x many.safetensors" \
    "decompress --force -o x big.pici"; do
    limit=5000 refused=0 done=0
    while [ $done = 0 ] && [ $limit -lt 1000000 ]; do
        limit=$((limit + limit / 10))
        small "$tool" --version >"$out" 2>"$err" || continue # the tool itself does not fit
        # shellcheck disable=SC2086
        if small "$tool" $verb >"$out" 2>"$err"; then
            done=1
        else
            refused=$((refused + 1))
            [ "$(grep -c '' "$err")" = 1 ] && grep -Eq '^picitool: .*out of memory for [a-z]' "$err" && pass ||
                fail "$verb, in $limit KiB: $(head -c 300 "$err")"
            absent "$verb, in $limit KiB" x
            clean "$verb, in $limit KiB"
        fi
        rm -f x
    done
    [ $done = 1 ] && [ $refused -gt 0 ] && pass || fail "$verb: refused $refused times, done $done"
done
[ -n "${PICI_TEST_FULL:-}" ] || skip "20 GiB in bounded memory (PICI_TEST_FULL=1)"
finish
