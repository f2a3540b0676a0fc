#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Folders that have tensors more than once, in one shard or several: they are stored once, and every verb that reads
# the folder follows the references. References that lead nowhere, in circles or to something else are refused.
. tests/cli/common

if ! python3 -c 'import json' 2>/dev/null; then
    skip "no python3 to make shards with"
    finish
fi

cat >make.py <<'END'
# make.py FOLDER VARIANT: a.safetensors and below/b.safetensors, and in FOLDER.raw the elements of each tensor
import json, os, random, struct, sys

fixed = random.Random(5)
large, other, wide = fixed.randbytes(90000), fixed.randbytes(60000), fixed.randbytes(40000)
middle = bytearray(large)
middle[30001] ^= 1  # where no sample is taken
small = fixed.randbytes(4000)

def write(path, tensors):
    head, at = {}, 0
    for name, dtype, shape, data in tensors:
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(t[3] for t in tensors))
    for name, _, _, data in tensors:
        with open(f"{folder}.raw/{name}", "wb") as f:
            f.write(data)

folder, variant = sys.argv[1:]
os.makedirs(folder + "/below")
os.makedirs(folder + ".raw", exist_ok=True)
first = ("t", "BF16", [45000], large)
if variant == "gone":
    first = ("u", "BF16", [45000], large)
elif variant == "type":
    first = ("t", "F16", [45000], large)
elif variant == "short":
    first = ("t", "BF16", [44000], large[:88000])
a = [("other", "F32", [15000], other), first, ("small", "U8", [4000], small), ("none", "F32", [0, 2], b"")]
if variant == "plain":
    a[1] = ("t", "BF16", [45000], bytes(middle))
b = [("head", "BF16", [300, 150], large), ("middle", "BF16", [45000], bytes(middle)),
     ("same type", "F16", [45000], large), ("small", "U8", [4000], small), ("w", "F32", [100, 100], wide),
     ("w again", "F32", [10000], wide)]
if variant == "no head":
    b[0] = b[0][:3] + (bytes(90000),)
if variant == "own":  # all that is in the folder twice is in one file
    b = [t for t in b if t[0] in ("middle", "w", "w again")]
if variant == "circle":  # t is a reference to the tensor that refers to t elsewhere
    a.insert(0, ("0", "BF16", [45000], large))
write(folder + "/a.safetensors", a)
write(folder + "/below/b.safetensors", b)
with open(folder + "/config.json", "w") as f:
    f.write("{}\n")
END
cat >relist.py <<'END'
# relist.py FOLDER: the list of the folder as its .pici files are now
import os, sys

M = (1 << 64) - 1
P = 11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261

def rotate(x, n):
    return (x << n | x >> 64 - n) & M

def turn(v, x):
    return rotate((v + x * P[1]) & M, 31) * P[0] & M

def xxh64(data):
    at, n = 0, len(data)
    word = lambda size: int.from_bytes(data[at : at + size], "little")
    if n >= 32:
        v = [(P[0] + P[1]) & M, P[1], 0, -P[0] & M]
        while at + 32 <= n:
            for i in range(4):
                v[i] = turn(v[i], word(8))
                at += 8
        h = sum(rotate(x, r) for x, r in zip(v, (1, 7, 12, 18))) & M
        for x in v:
            h = ((h ^ turn(0, x)) * P[0] + P[3]) & M
    else:
        h = P[4]
    h = (h + n) & M
    while at + 8 <= n:
        h = (rotate(h ^ turn(0, word(8)), 27) * P[0] + P[3]) & M
        at += 8
    if at + 4 <= n:
        h = (rotate(h ^ word(4) * P[0] & M, 23) * P[1] + P[2]) & M
        at += 4
    while at < n:
        h = rotate(h ^ word(1) * P[4] & M, 11) * P[0] & M
        at += 1
    for shift, prime in (33, P[1]), (29, P[2]), (32, 1):
        h = (h ^ h >> shift) * prime & M
    return h

folder = sys.argv[1]
lines = open(folder + "/pici-folder").read().splitlines()[:-1]
for i, line in enumerate(lines):
    word = line.split(" ", 5)
    if word[0] == "shard":
        data = open(f"{folder}/{word[5]}.pici", "rb").read()
        lines[i] = " ".join(word[:3] + [str(len(data)), f"{xxh64(data):016x}", word[5]])
text = "".join(line + "\n" for line in lines)
with open(folder + "/pici-folder", "w") as f:
    f.write(text + f"end {xxh64(text.encode()):016x}\n")
END
cat >hurt.py <<'END'
# hurt.py FILE: a bit of the elements of w is another
import sys

want = open("m.raw/w", "rb").read()[20000:20032]
data = bytearray(open(sys.argv[1], "rb").read())
at = data.index(want)
data[at] ^= 4
open(sys.argv[1], "wb").write(data)
END
size() { # FOLDER: of its files
    find "$1" -type f -exec cat {} + | wc -c
}

python3 make.py m twice
expect 0 "compress" "$tool" compress m
says "the list" '^pici-folder 3 compressed$' m.pici/pici-folder
# 90000 twice and 40000 once less
[ "$(size m.pici)" -lt $(($(size m) - 120000)) ] && pass || fail "stored: $(size m.pici) of $(size m) bytes"
expect 0 "compress, threads" "$tool" compress -T 3 -o threads m
expect 0 "the same at every number of threads" diff -r m.pici threads
expect 0 "decompress" "$tool" decompress -T 2 -o back m.pici
expect 0 "all bytes come back" diff -r m back
expect 0 "test" "$tool" test -q m.pici
expect 0 "list" "$tool" list m.pici
says "list" 'head +bf16 +\[300, 150\].*same as t of a.safetensors' "$out"
says "list, within a file" 'w again +f32 +\[10000\].*same as w$|w again.*same as w ' "$out"
says "list says how many" '2 tensors of .*: stored once' "$out"
expect 0 "list in JSON" "$tool" list -j m.pici
says "list in JSON" '"referred": ' "$out"
says "list in JSON" '"bytes": 130000' "$out"
expect 0 "inspect" "$tool" inspect m.pici
says "inspect says how many" '2 tensors of .*: stored once' "$out"
expect 0 "report" "$tool" report -o page.html m.pici/below/b.safetensors.pici
says "report says how many" '2 more tensors' page.html

for tensor in head t "w again" w middle "same type" small; do
    expect 0 "extract $tensor" "$tool" extract -n "$tensor" -o "e.raw" --force m.pici
    same "extract $tensor" "m.raw/$tensor" e.raw
done
expect 0 "extract a reference" "$tool" extract -n head -o head.npy m.pici
expect 0 "extract what it refers to" "$tool" extract -n t -o t.npy m.pici
tail -c 90000 head.npy >head.raw
tail -c 90000 t.npy >t.raw
same "the elements of a reference" head.raw t.raw
expect 0 "extract a range" "$tool" extract -n "w again" --range 5000:5100 -o range.raw m.pici
expect 0 "extract all of it" "$tool" extract -n w -o w.raw m.pici
dd if=w.raw bs=4 skip=5000 count=100 of=want.raw 2>/dev/null
same "a range of a reference" want.raw range.raw
expect 0 "extract all" "$tool" extract -o all.npz m.pici/a.safetensors.pici

# a shard alone, and old files
expect 1 "decompress one shard" "$tool" decompress -o x m.pici/below/b.safetensors.pici
says "why" "tensor head refers to tensor 't' of a.safetensors, which is in its folder only" "$err"
absent "a shard alone" x
expect 1 "extract from one shard" "$tool" extract -n head -o x m.pici/below/b.safetensors.pici
expect 0 "extract another tensor" "$tool" extract -n middle -o middle.raw m.pici/below/b.safetensors.pici
same "extract another tensor" m.raw/middle middle.raw
expect 0 "extract what refers to the same shard" "$tool" extract -n "w again" -o w2.raw m.pici/below/b.safetensors.pici
same "extract what refers to the same shard" "m.raw/w again" w2.raw
expect 0 "inspect what refers to the same shard" "$tool" inspect --tensor "w again" m.pici/below/b.safetensors.pici
says "inspect what refers to the same shard" '^ *name +w again$' "$out"
says "inspect what refers to the same shard" '^ *nonzero +10000' "$out"
expect 1 "inspect what refers to another" "$tool" inspect --tensor head m.pici/below/b.safetensors.pici
says "inspect what refers to another" "tensor head is the same as tensor 't' of a.safetensors: inspect that" "$err"
expect 0 "inspect another" "$tool" inspect --tensor middle m.pici/below/b.safetensors.pici
grep >/dev/null 'stored once' "$out" && fail "inspect another: speaks of references" || pass

# what can be restored of a shard
keeps() { # LINES WHAT FILE WANT: --keep-going restores WANT of the file, and says as many lines
    rm -f x
    "$tool" decompress --keep-going -o x "$3" >"$out" 2>"$err"
    [ $? = 1 ] && pass || fail "--keep-going, $2: not exit status 1"
    same "--keep-going, $2" "$4" x
    [ "$(wc -l <"$err")" = "$1" ] && pass || fail "--keep-going, $2: not $1 lines: $(cat "$err")"
}
python3 make.py k "no head"
keeps 1 "a whole shard" m.pici/below/b.safetensors.pici k/below/b.safetensors
says "a whole shard" "tensor head refers to .* of a.safetensors, which is in its folder .*; set to zero$" "$err"
rm x
"$tool" decompress --keep-going --max-size 80K -o x m.pici/below/b.safetensors.pici 2>"$err"
says "--keep-going has a limit" "left out, more than --max-size" "$err"
rm -f x
python3 make.py own own
expect 0 "compress a shard that refers to itself" "$tool" compress own
own=own.pici/below/b.safetensors.pici
expect 0 "decompress a shard that refers to itself" "$tool" decompress -o x $own
same "decompress a shard that refers to itself" own/below/b.safetensors x
expect 1 "the same in a pipe" sh -c 'cat "$1" | "$0" decompress - >x' "$tool" $own
says "the same in a pipe" "tensor w again .* 'w' of this file, which is in a regular file only" "$err"
head -c -80000 own/below/b.safetensors >want.hurt
cp want.hurt want.cut
head -c 80000 /dev/zero >>want.hurt
{ cat m.raw/w && head -c 40000 /dev/zero; } >>want.cut
cp $own hurt.pici
python3 hurt.py hurt.pici
keeps 2 "damaged elements that are referred to" hurt.pici want.hurt
says "damaged elements that are referred to" "chunk 0 of tensor 'w' .*; set to zero$" "$err"
{ head -c -40 $own && head -c 40 /dev/zero; } >cut.pici
keeps 2 "a damaged index" cut.pici want.cut
says "a damaged index" "tensor w again refers .*, which cannot be found: the index is damaged; set to zero$" "$err"
rm -f x
expect 0 "compress for 0.2" "$tool" compress --file-version 1 -o old m
says "the list for 0.2" '^pici-folder 2 compressed$' old/pici-folder
expect 0 "decompress that" "$tool" decompress -o old.back old
expect 0 "all bytes come back of that" diff -r m old.back

# a list of version 2 for files with references; one of version 3 that has none is valid
sed 's/^pici-folder 3/pici-folder 2/' m.pici/pici-folder >list
cp -r m.pici bad && cp list bad/pici-folder && python3 relist.py bad
expect 1 "a list of version 2" "$tool" decompress -o x bad
says "a list of version 2" "which is in its folder only" "$err"
python3 make.py p plain
expect 0 "compress without twins in two files" "$tool" compress p
expect 0 "decompress without twins in two files" "$tool" decompress -o p.back p.pici
expect 0 "all bytes come back without twins in two files" diff -r p p.back
# "t" of a differs from "head" where no sample is taken, and is the same as "middle"
expect 0 "list without twins in two files" "$tool" list p.pici
says "which are the same" 'middle .*same as t of a.safetensors' "$out"
grep >/dev/null 'head .*same as' "$out" && fail "head is called a twin" || pass

# The output is checked before tensors are read.
if [ -r /proc/self/io ]; then
    sh -c '"$0" compress m; echo $?; cat /proc/$$/io' "$tool" >"$out" 2>"$err" </dev/null
    says "an output that exists" '^[12]$' "$out"
    read_bytes=$(sed -n 's/^rchar: //p' "$out")
    [ "$read_bytes" -lt 260000 ] && pass || fail "an output that exists: $read_bytes bytes are read before"
fi

# bad references: shard a of another folder
for variant in gone type short circle; do
    python3 make.py v.$variant $variant
    expect 0 "compress $variant" "$tool" compress v.$variant
    rm -rf bad x
    cp -r m.pici bad
    cp v.$variant.pici/a.safetensors.pici bad/
    sed -i "s|^shard .* a.safetensors\$|$(grep ' a.safetensors$' v.$variant.pici/pici-folder)|" bad/pici-folder
    python3 relist.py bad
    case $variant in
    gone) why='which is not there' ;;
    type | short) why='which has another type, or another number of elements' ;;
    circle) why='which is a reference itself' ;;
    esac
    for verb in "decompress -o x" "extract -n head -o x" "test -q"; do
        # shellcheck disable=SC2086 # words
        expect 1 "$verb, $variant" "$tool" $verb bad
        says "$verb, $variant" "tensor head refers to tensor 't' of a.safetensors, $why" "$err"
        absent "$verb, $variant" x
    done
done
rm -rf bad
cp -r m.pici bad
rm bad/a.safetensors.pici
sed -i '/ a.safetensors$/d' bad/pici-folder
python3 relist.py bad
expect 1 "no such shard" "$tool" decompress -o x bad
says "no such shard" "which is not a shard of the folder" "$err"
clean "after all that"
finish
