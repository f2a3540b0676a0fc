#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# picitool on .npz archives: arrays are tensors, and the same bytes come back, of deflated ones too.
. tests/cli/common

round() { # FILE: there and back
    rm -f "$1.pici" back
    expect 0 "$1: compress" "$tool" compress "$1"
    expect 0 "$1: test" "$tool" test "$1.pici"
    expect 0 "$1: decompress" "$tool" decompress -o back "$1.pici"
    same "$1" "$1" back
    "$tool" decompress -o - "$1.pici" 2>"$err" | cmp -s - "$1" && pass || fail "$1: to a pipe: $(head -c 300 "$err")"
}

kept() { # FILE PATTERN: the same for a file of which entries are kept, as a line on stderr says
    rm -f "$1.pici" back
    "$tool" compress "$1" >"$out" 2>"$err" && pass || fail "$1: compress: $(head -c 300 "$err")"
    says "$1: says what is kept" "$2" "$err"
    expect 0 "$1: decompress" "$tool" decompress -o back "$1.pici"
    same "$1" "$1" back
}

# ---- an archive by hand, stored, with CRC-32s of zero bytes
crc32() { # FILE: its CRC-32, as gzip has it
    gzip -c "$1" | tail -c 8 | head -c 4
}
entry() { # NAME FILE
    e_at=$(wc -c <hand.npz) e_bytes=$(wc -c <"$2")
    { printf 'PK\003\004'; le 2 20; zeros 8; crc32 "$2"; le 4 "$e_bytes"; le 4 "$e_bytes"; le 2 ${#1}; le 2 0
      printf %s "$1"; cat "$2"; } >>hand.npz
    { printf 'PK\001\002'; le 2 20; le 2 20; zeros 8; crc32 "$2"; le 4 "$e_bytes"; le 4 "$e_bytes"
      le 2 ${#1}; zeros 12; le 4 "$e_at"; printf %s "$1"; } >>directory
    entries=$((entries + 1))
}
end_zip() {
    e_at=$(wc -c <hand.npz) e_bytes=$(wc -c <directory)
    { cat directory; printf 'PK\005\006'; zeros 4; le 2 $entries; le 2 $entries; le 4 "$e_bytes"; le 4 "$e_at"
      le 2 7; printf comment; } >>hand.npz
}
new_zip() {
    : >hand.npz
    : >directory
    entries=0
}
numbers 600 >n2400
{ npy 1 "'<f4'" False "(20, 30)"; cat n2400; } >w.npy
{ npy 1 "'>f4'" True "(30, 20)"; cat n2400; } >be.npy
{ npy 2 "'|b1'" False "(2400,)"; cat n2400; } >bool.npy
{ npy 1 "'<c8'" False "(3, 100)"; cat n2400; } >z.npy
{ npy 1 "'<f4'" False "(0,)"; } >none.npy
{ npy 1 "'<f4'" False "(1,)"; printf 'abcdefgh'; } >tail.npy
{ npy 1 "'|O'" False "(2,)"; printf 'a pickle'; } >object.npy
new_zip
for name in w be bool z none tail; do
    entry $name.npy $name.npy
done
end_zip
round hand.npz
expect 0 list "$tool" list hand.npz
says list '^hand\.npz: npz, .*, 6 tensors' "$out"
says list '^w +f32 +\[20, 30\] ' "$out"
says list '^be +f32 BE +\[30, 20\] F ' "$out"
says list '^bool +u8 bool +\[2400\] ' "$out"
says list '^z +f32 complex +\[3, 100, 2\] ' "$out"
says list '^none +f32 +\[0\] ' "$out"
expect 0 "list of the .pici" "$tool" list hand.npz.pici
says "list of the .pici" '^hand\.npz\.pici: pici, from npz, .*, 6 tensors' "$out"
says "list of the .pici" '^be +f32 BE +\[30, 20\] F ' "$out"
says "list of the .pici" '^bool +u8 bool ' "$out"
expect 0 inspect "$tool" inspect hand.npz
says inspect '^w +f32 ' "$out"
expect 0 "inspect one" "$tool" inspect -n be hand.npz
says "inspect one" '>f4' "$out"
expect 0 report "$tool" report hand.npz
expect 0 bench "$tool" bench -r 1 -f pici -n w hand.npz
for name in w bool z; do
    expect 0 "extract $name" "$tool" extract --force -n $name -o x.npy hand.npz.pici
    { head -c 500 x.npy | tr -d '\0' | grep -ao "{.*}" | sed "s/, }/, }/"; } >x.text
    tail -c 2400 x.npy >x.data
    same "extract $name" n2400 x.data
done
says "extract gives complex numbers" "'<c8'.*\(3, 100\)" x.text
"$tool" extract --force -n bool -o x.npy hand.npz.pici
says "extract gives booleans" "'[|]b1'" x.npy
cp hand.npz other.dat
expect 0 "--type npz" "$tool" compress --type npz -o x.pici other.dat
same "--type npz" x.pici hand.npz.pici
rm x.pici

# ---- kept as they are: what is no array, or none that is read
new_zip
entry w.npy w.npy
entry o.npy object.npy
entry note.txt n2400
end_zip
kept hand.npz "2 of 3 entries are kept as they are, the first: 'o\.npy': an array of Python objects"
expect 0 "list of what is kept" "$tool" list hand.npz.pici
says "list of what is kept" '^o\.npy +u8 ' "$out"
says "list of what is kept" '^note\.txt +u8 +\[2400\] ' "$out"
says "list of what is kept" '^w +f32 ' "$out"

# one name twice without .npy: whole names
new_zip
entry w.npy w.npy
entry w n2400
end_zip
kept hand.npz "1 of 2 entries is kept"
"$tool" list hand.npz.pici >"$out"
says "whole names" '^w\.npy +f32 ' "$out"

# many bytes between the arrays are a tensor of their own
zeros 2000000 >gap
new_zip
cat gap >hand.npz
entry zip.npy w.npy
end_zip
round hand.npz
"$tool" list hand.npz.pici >"$out"
says "a filler is not listed" ', 1 tensor$' "$out"
says "the array keeps its name" '^zip +f32 ' "$out"
expect 0 "a filler is not what extract takes" "$tool" extract -o zip.raw hand.npz.pici
expect 0 "a filler has a name of its own" "$tool" extract -n zip+ -o filler.raw hand.npz.pici
[ "$(wc -c <filler.raw)" = 2000037 ] && pass || fail "a filler: $(wc -c <filler.raw) bytes"
[ "$(wc -c <hand.npz.pici)" -lt 5000 ] && pass || fail "zeros before the archive: $(wc -c <hand.npz.pici) bytes"

# ---- refused
cat hand.npz | "$tool" compress --type npz - >x.pici 2>"$err"
judge 2 "a pipe" $?
for name in ../w.npy /w.npy a/../../w.npy '..\w.npy'; do
    new_zip
    entry "$name" w.npy
    end_zip
    for verb in compress list inspect; do
        expect 1 "$verb $name" "$tool" $verb hand.npz
        says "$verb $name" 'leaves its folder' "$err"
    done
done
new_zip
entry w.npy w.npy
end_zip
cp hand.npz good.npz
{ head -c 2000 good.npz; byte 255; tail -c +2002 good.npz; } >bad.npz
expect 1 "a wrong CRC-32" "$tool" compress -o y.pici bad.npz
says "a wrong CRC-32" 'CRC-32' "$err"
absent "a wrong CRC-32" y.pici
bytes=$(wc -c <good.npz)
n=1
while [ $n -lt "$bytes" ]; do
    head -c $n good.npz >cut.npz
    expect 1 "cut to $n bytes" "$tool" compress -o y.pici cut.npz
    absent "cut to $n bytes" y.pici
    n=$((n + 131))
done
expect 2 "diff" "$tool" diff -o d.pici good.npz good.npz
says "diff" 'diff does not support \.npz' "$err"

# ---- deflated, by Python's zipfile
python=
for p in python3 /usr/bin/python3; do
    [ -n "$python" ] || ! "$p" -c 'import zlib' 2>/dev/null || python=$p
done
if [ -z "$python" ]; then
    skip "deflated archives: no python3"
    clean "after all that"
    finish
fi
"$python" - <<'END'
import zipfile
w, be, z = (open(n, "rb").read() for n in ("w.npy", "be.npy", "z.npy"))
def save(path, members, level=6, method=zipfile.ZIP_DEFLATED, stream=False):
    f = open(path, "wb")
    class Pipe: # without seeking: lengths are in descriptors after the data
        def write(self, b): return f.write(b)
        def flush(self): f.flush()
    with zipfile.ZipFile(Pipe() if stream else f, "w", method, compresslevel=level) as zf:
        for name, data in members:
            with zf.open(name, "w", force_zip64=True) as m:
                m.write(data)
    f.close()
for level in range(1, 10):
    save(f"level{level}.npz", [("w.npy", w), ("be.npy", be), ("z.npy", z)], level)
save("stream.npz", [("w.npy", w), ("be.npy", be)], stream=True)
save("tail.npz", [("w.npy", w + b"more"), ("z.npy", z)])
save("bz2.npz", [("w.npy", w)], 9, zipfile.ZIP_BZIP2)
head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (8000000,), }".ljust(117) + b"\n"
head = b"\x93NUMPY\x01\x00v\x00" + head
save("bomb.npz", [("w.npy", head + bytes(32000000))], 9)
with zipfile.ZipFile("other.npz", "w", zipfile.ZIP_DEFLATED) as zf: # valid data that zlib does not make: a flush inside
    import zlib
    class Flushing:
        def __init__(self): self.c = zlib.compressobj(6, zlib.DEFLATED, -15)
        def compress(self, b): return self.c.compress(b) + self.c.flush(zlib.Z_FULL_FLUSH)
        def flush(self): return self.c.flush()
    real = zipfile._get_compressor
    zipfile._get_compressor = lambda *a, **k: Flushing()
    zf.writestr("w.npy", w)
    zipfile._get_compressor = real
    zf.writestr("z.npy", z)
END
"$tool" compress -o x.pici level6.npz 2>"$err"
if [ "${ZLIB:-1}" != 1 ] || grep -q 'no zlib' "$err"; then
    says "a build without zlib says so" 'no zlib' "$err"
    [ "${ZLIB:-0}" = 0 ] && pass || fail "built with zlib: $(cat "$err")"
    skip "deflated archives: a build without zlib"
    finish
fi
for n in level1 level2 level3 level4 level5 level6 level7 level8 level9 stream; do
    round $n.npz
done
expect 0 "list of a deflated one" "$tool" list level6.npz
says "list of a deflated one" '^be +f32 BE +\[30, 20\] F ' "$out"
expect 0 "list of its .pici" "$tool" list level6.npz.pici
says "list of its .pici" '3 tensors' "$out"
expect 0 "extract of it" "$tool" extract --force -n w -o x.npy level6.npz.pici
tail -c 2400 x.npy >x.data
same "extract of it" n2400 x.data
expect 0 "-T 2" "$tool" decompress -T 2 --force -o back level9.npz.pici
same "-T 2" level9.npz back
length=$(wc -c <level9.npz)
expect 0 "a limit of its very length" "$tool" decompress --force --max-size "$length" -o back level9.npz.pici
expect 1 "a limit below it" "$tool" decompress --force --max-size $((length - 1)) -o back level9.npz.pici
kept other.npz "1 of 2 entries is kept unchanged: 'w\.npy': zlib [0-9.]* does not reproduce its deflated bytes"
expect 0 "inspect of what is kept" "$tool" inspect -n w.npy other.npz.pici
says "inspect of what is kept" 'compressed entry' "$out"
expect 0 "inspect of the archive" "$tool" inspect -n w other.npz
says "inspect of the archive" 'f32' "$out"
kept tail.npz "1 of 2 .*'w\.npy': bytes follow its array"
kept bz2.npz "'w\.npy': compression method 12 is not supported"

# ---- bombs, and archives whose parts contradict each other
expect 1 "a bomb" "$tool" compress --max-size 16M -o y.pici bomb.npz
says "a bomb" 'claims 32000128 bytes, more than the limit' "$err"
absent "a bomb" y.pici
expect 1 "a bomb, inspected" "$tool" inspect --max-size 16M bomb.npz
says "a bomb, inspected" 'claims 32000000 bytes, more than the limit' "$err"
expect 0 "no bomb" "$tool" compress bomb.npz
expect 0 "no bomb, back" "$tool" decompress --force -o back bomb.npz.pici
same "no bomb" bomb.npz back
"$python" - <<'END'
import re, struct
b = open("level6.npz", "rb").read()
def bad(path, at, v):
    open(path, "wb").write(b[:at] + v + b[at + len(v):])
d = b.index(b"PK\1\2")  # the directory's first entry: CRC at 16, lengths at 20 and 24
local = b.index(b"PK\3\4")
size, = struct.unpack("<I", b[d + 24:d + 28])
bad("crc.npz", d + 16, b"\1\2\3\4")
data = local + 30 + sum(struct.unpack("<HH", b[local + 26:local + 30]))
bad("data.npz", data + 40, bytes([b[data + 40] ^ 0xff]))
for name, n in ("more", size + 1), ("fewer", size - 1), ("claims", 0x7fffffff):
    c = b[:d + 24] + struct.pack("<I", n) + b[d + 28:]
    if b[local + 22:local + 26] == b"\xff\xff\xff\xff": # zip64 in the local header
        open(name + ".npz", "wb").write(c)
    else:
        open(name + ".npz", "wb").write(c[:local + 22] + struct.pack("<I", n) + c[local + 26:])
END
for n in crc data more fewer claims; do
    expect 1 "compress $n.npz" "$tool" compress $n.npz
    absent "$n" $n.npz.pici
done
for n in crc data claims; do
    expect 1 "inspect $n.npz" "$tool" inspect $n.npz
done

# ---- what NumPy itself writes and reads
numpy=
for p in python3 /usr/bin/python3; do
    [ -n "$numpy" ] || ! "$p" -c 'import numpy' 2>/dev/null || numpy=$p
done
if [ -z "$numpy" ]; then
    skip "what numpy.savez writes: no NumPy"
else
    "$numpy" - <<'END'
import numpy as np
r = np.random.default_rng(1)
w = np.where(r.random((300, 400)) < 0.05, r.standard_normal((300, 400)), 0).astype("f4")
many = dict(w=w, mask=w != 0, z=w[:9].astype("c8"), f=np.asfortranarray(w), i=np.arange(9), big=w.astype(">f8"),
            scalar=np.float64(3), empty=np.zeros((0, 4)), text=np.array(["a", "bc"]), **{"a/b": w[0], "\u00e9": w[1]})
np.savez("savez.npz", **many)
np.savez_compressed("compressed.npz", **many)
END
    for n in savez compressed; do
        round $n.npz
        expect 0 "$n: list" "$tool" list $n.npz.pici
        says "$n: list" '^mask +u8 bool +\[300, 400\] ' "$out"
        says "$n: list" '^a/b +f32 +\[400\] ' "$out"
        says "$n: list" ', 11 tensors' "$out"
        for name in mask z f; do
            "$tool" extract --force -n $name -o x.npy $n.npz.pici 2>"$err" &&
                "$numpy" -c 'import sys, numpy as n
a, b = n.load("x.npy"), n.load(sys.argv[1])[sys.argv[2]]
assert a.dtype == b.dtype and a.shape == b.shape and (a == b).all(), (a.dtype, a.shape)' $n.npz $name 2>"$err" &&
                pass || fail "$n: extract $name: $(tail -n 1 "$err")"
        done
    done
    [ "$(wc -c <savez.npz.pici)" -lt $(($(wc -c <savez.npz) / 4)) ] && pass || fail "savez.npz did not become short"
fi

# ---- archives of other programs
shared=$root/../shared/data
if [ -d "$shared" ]; then
    find "$shared" -name '*.npz' >list
    while read -r f; do
        cp "$f" real.npz
        chmod u+w real.npz
        "$tool" compress --force real.npz 2>"$err" && "$tool" decompress --force -o back real.npz.pici 2>>"$err" &&
            cmp -s back real.npz && pass || fail "$f: $(head -c 300 "$err")"
    done <list
else
    skip "archives of other programs: no ../shared/data"
fi

clean "after all that"
finish
