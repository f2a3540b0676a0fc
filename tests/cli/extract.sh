#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# picitool extract: a tensor, or a range of its elements, as raw bytes or .npy.
. tests/cli/common

numbers 300 >n1200
{ zeros 3000000; cat n1200; zeros 1200000; cat n1200 n1200; zeros 7; } >long # five chunks of 2^20
"$tool" compress --dtype u8 -o long.pici long || fail compress
bytes=$(wc -c <long)

slice() { # WHAT RANGE FIRST N: the bytes of long from FIRST on
    expect 0 "$1" "$tool" extract --range "$2" -o x.raw --force long.pici
    tail -c +$(($3 + 1)) long | head -c "$4" >want.raw
    same "$1" want.raw x.raw
}
expect 0 "all of it" "$tool" extract -o all.raw long.pici
same "all of it" long all.raw
slice "the beginning" :100 0 100
slice "the end" 4203000: 4203000 $bytes
slice "all of it as a range" : 0 $bytes
slice "nothing" 7:7 7 0
slice "nothing, at the end" $bytes: $bytes 0
slice "within a chunk" 3000001:3000900 3000001 899
slice "a chunk" 2097152:3145728 2097152 1048576
slice "over three chunks" 1048575:3145730 1048575 2097155
slice "one element" 3000000:3000001 3000000 1
expect 0 "threads" "$tool" extract -T 0 --range 5: -o t.raw long.pici
tail -c +6 long >want.raw
same "threads" want.raw t.raw
"$tool" extract --range 3000000:3000003 long.pici >x.raw 2>"$err"
judge 0 "standard output by default" $?
head -c 3 n1200 >want.raw
same "standard output by default" want.raw x.raw

# a damaged chunk does not affect others
{ head -c 250 long.pici; printf '\377'; tail -c +252 long.pici; } >hurt.pici
cmp -s long.pici hurt.pici && fail "byte 250 was 255"
expect 1 "a damaged chunk" "$tool" extract --range :10 -o y.raw hurt.pici
absent "a damaged chunk" y.raw
expect 0 "another chunk" "$tool" extract --range 3000000:3000003 -o y.raw hurt.pici
same "another chunk" want.raw y.raw

# ---- .npy, and tensors by name
{ npy 1 "'<f4'" False '(15, 20)'; cat n1200; } >a.npy
{ npy 1 "'<f4'" True '(15, 20)'; cat n1200; } >f.npy
{ npy 1 "'<i2'" False '()'; printf 'ab'; } >s.npy
{ npy 1 "'<u8'" False '(150,)'; cat n1200; } >u.npy
for f in a f s u; do
    "$tool" compress $f.npy
    expect 0 "$f.npy" "$tool" extract -o back.npy --force $f.npy.pici
    same "$f.npy" $f.npy back.npy
done
# types that only .npy files have
many="[('first', '<f4'), ('second', '>i2', (3, 2)), ('third', [('x', '|S5'), ('y', '<M8[us]')]), ('fourth', '|b1')]"
{ npy 1 "'<M8[ns]'" False '(10, 15)'; cat n1200; } >M8.npy
{ npy 1 "'<m8[25s]'" True '(10, 15)'; cat n1200; } >m8.npy
{ npy 1 "'|S5'" False '(3, 80)'; cat n1200; } >S5.npy
{ npy 1 "'<U3'" True '(10, 10)'; cat n1200; } >U3.npy
{ npy 1 "'|V3'" False '(400,)'; cat n1200; } >V3.npy
{ npy 1 "'|S1'" False '(1200,)'; cat n1200; } >S1.npy
{ npy 1 "'<f16'" False '(75,)'; cat n1200; } >f16.npy
{ npy 1 "'>f12'" False '(100,)'; cat n1200; } >f12.npy
{ npy 1 "'<c32'" True '(5, 5)'; head -c 800 n1200; } >c32.npy
{ npy 1 "$many" False '(40,)'; cat n1200; } >many.npy
{ npy 3 "[('é', '<f4'), ('y', '>i2')]" False '(2, 100)'; cat n1200; } >utf8.npy
{ npy 1 "[('x', '<f4')]" False '()'; head -c 4 n1200; } >alone.npy
for f in M8 m8 S5 U3 V3 S1 f16 f12 c32 many utf8 alone; do
    "$tool" compress -q $f.npy
    expect 0 "$f" "$tool" extract -o back.npy --force $f.npy.pici
    same "$f" $f.npy back.npy
done
{ npy 1 "'>M8[ns]'" False '(1,)'; byte 1 2 3 4 5 6 7 8; } >bigtime.npy
{ npy 1 "'<M8[ns]'" False '(1,)'; byte 8 7 6 5 4 3 2 1; } >want.npy
"$tool" compress -q bigtime.npy
expect 0 "big-endian times" "$tool" extract -o little.npy bigtime.npy.pici
same "big-endian times" want.npy little.npy
{ npy 1 "[('$(printf '\351')', '<f4')]" False '(300,)'; cat n1200; } >latin.npy
{ npy 3 "[('é', '<f4')]" False '(300,)'; cat n1200; } >want.npy
"$tool" compress -q latin.npy
expect 0 "a name in Latin-1" "$tool" extract -o back.npy --force latin.npy.pici
same "a name in Latin-1" want.npy back.npy
{ npy 1 "'<M8[ns]'" False '(7,)'; tail -c +25 n1200 | head -c 56; } >want.npy
expect 0 "a range of times" "$tool" extract --range 3:10 -o part.npy --force M8.npy.pici
same "a range of times" want.npy part.npy
{ npy 1 "'|u1'" False '(7,)'; tail -c +4 n1200 | head -c 7; } >want.npy
expect 0 "a range of texts is of their bytes" "$tool" extract --range 3:10 -o part.npy --force S5.npy.pici
same "a range of texts is of their bytes" want.npy part.npy
rm -f little.npy part.npy

{ npy 1 "'<f4'" False '(7,)'; tail -c +13 n1200 | head -c 28; } >want.npy
expect 0 "a range as .npy, in C order" "$tool" extract --range 3:10 -o part.npy a.npy.pici
same "a range as .npy, in C order" want.npy part.npy
rm part.npy
at=3 # the rows of Fortran order: each element 15 after the one before
{ npy 1 "'<f4'" False '(7,)'
  while [ $at -lt 10 ]; do tail -c +$((at * 60 + 1)) n1200 | head -c 4; at=$((at + 1)); done; } >want.npy
expect 0 "a range as .npy" "$tool" extract --range 3:10 -o part.npy f.npy.pici
same "a range as .npy" want.npy part.npy
{ npy 1 "'>f4'" False '(1,)'; byte 63 128 0 0; } >big.npy
{ npy 1 "'<f4'" False '(1,)'; byte 0 0 128 63; } >want.npy
"$tool" compress big.npy
expect 0 "big-endian" "$tool" extract -o little.npy big.npy.pici
same "big-endian elements become little-endian" want.npy little.npy

{ safetensors '{"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},
"é x":{"dtype":"U8","shape":[3],"data_offsets":[12,15]}}'
  head -c 15 n1200; } >t.safetensors
"$tool" compress t.safetensors
expect 0 "--tensor" "$tool" extract --tensor 'é x' -o x.bin t.safetensors.pici
tail -c 3 t.safetensors >want.raw
same "--tensor" want.raw x.bin
{ npy 1 "'|V2'" False '(2, 3)'; head -c 12 n1200; } >want.npy
expect 0 "bf16 as .npy" "$tool" extract --tensor w -o w.npy t.safetensors.pici
same "bf16 as .npy" want.npy w.npy

# ---- refused
for args in "--range 3 long.pici" "--range 5:4 long.pici" "--range a:b long.pici" "--range -1:4 long.pici" \
    "--range 1:2:3 long.pici" \
    "--range 1:18446744073709551616 long.pici" "t.safetensors.pici" "-" "" "long.pici long.pici"; do
    # shellcheck disable=SC2086
    expect 2 "extract $args" "$tool" extract -o z $args
    absent "extract $args" z
done
says "a pipe" 'unexpected operand' "$err"
cat long.pici | "$tool" extract -o z - 2>"$err"
judge 2 "a pipe" $?
says "a pipe" 'not a pipe' "$err"
cat long.pici | "$tool" cat - raw 2>"$err" >x.raw
judge 2 "cat, a pipe" $?
says "cat, a pipe" 'standard input: .*: reading a tensor needs a regular file, not a pipe' "$err"
for args in "--range 0:$((bytes + 1))" "--range $((bytes + 1)):" "--tensor x" ; do
    # shellcheck disable=SC2086
    expect 1 "extract $args" "$tool" extract -o z $args long.pici
    absent "extract $args" z
done
expect 1 "what is no .pici file" "$tool" extract -o z a.npy
expect 2 "what exists" "$tool" extract -o t.raw long.pici
"$tool" extract --range :0 -o none.raw long.pici
[ -f none.raw ] && [ ! -s none.raw ] && pass || fail "no elements: an empty file"

clean "after all that"

# ---- all tensors, to an archive or a folder; and from folders
numbers 600 >n2400
{ safetensors '{"a.w":{"dtype":"F32","shape":[10,30],"data_offsets":[0,1200]},"b":{"dtype":"BOOL","shape":[4],
"data_offsets":[1200,1204]},"empty":{"dtype":"F64","shape":[0,2],"data_offsets":[1204,1204]},
"z":{"dtype":"I16","shape":[],"data_offsets":[1204,1206]}}'; cat n1200; printf '\1\0\0\1ab'; } >all.safetensors
expect 0 "all tensors" "$tool" compress all.safetensors
expect 0 "all tensors, .npz" "$tool" extract -o all.npz all.safetensors.pici
expect 0 "list of the archive" "$tool" list all.npz
says "list of the archive" '^all.npz: npz, .* 4 tensors$' "$out"
expect 0 "compress of the archive" "$tool" compress all.npz
expect 0 "the archive comes back" "$tool" decompress -o all2.npz all.npz.pici
same "the archive comes back" all.npz all2.npz
expect 0 "all tensors, a folder" "$tool" extract -o all/ all.safetensors.pici
[ "$(ls -A all | tr '\n' ' ')" = 'a.w.npy b.npy empty.npy z.npy ' ] && pass || fail "all, a folder: $(ls -A all)"
for name in a.w b empty z; do
    expect 0 "one: $name" "$tool" extract -n $name --force -o one.npy all.safetensors.pici
    same "one: $name" one.npy all/$name.npy
done
expect 2 "a folder that is there" "$tool" extract -o all/ all.safetensors.pici
expect 2 "a folder that is there, --force" "$tool" extract --force -o all/ all.safetensors.pici
says "a folder that is there, --force" 'all/?: not replaced: it is not a checkpoint' "$err"
expect 2 "an archive that is there" "$tool" extract -o all.npz all.safetensors.pici
expect 0 "one tensor, .npz" "$tool" extract -n b --force -o all.npz all.safetensors.pici
expect 0 "list of it" "$tool" list all.npz
says "list of it" ' 1 tensor$' "$out"
expect 1 "no such tensor, .npz" "$tool" extract -n c -o none.npz all.safetensors.pici
absent "no such tensor, .npz" none.npz
expect 2 "a range, .npz" "$tool" extract --range 0:1 -o none.npz all.safetensors.pici
expect 1 "a limit, .npz" "$tool" extract --max-size 100 -o none.npz all.safetensors.pici
absent "a limit, .npz" none.npz
if /usr/bin/python3 -c 'import numpy' 2>/dev/null; then
    "$tool" extract --force -o all.npz all.safetensors.pici
    /usr/bin/python3 - >"$out" 2>&1 <<'END'
import numpy as np, zipfile
z = np.load("all.npz")
assert sorted(z) == ["a.w", "b", "empty", "z"], list(z)
assert z["a.w"].shape == (10, 30) and z["a.w"].tobytes() == open("n1200", "rb").read()
assert z["b"].dtype == bool and z["b"].tolist() == [True, False, False, True]
assert z["empty"].shape == (0, 2) and z["z"].shape == ()
assert zipfile.ZipFile("all.npz").testzip() is None
END
    [ $? = 0 ] && pass || fail "NumPy reads the archive: $(cat "$out")"
else
    skip "an archive read by NumPy: no NumPy"
fi
{ safetensors '{"a/b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'; printf a; } >slash.safetensors
expect 0 "a name with a slash" "$tool" compress slash.safetensors
expect 1 "a name with a slash" "$tool" extract -o slash/ slash.safetensors.pici
says "a name with a slash" "tensor 'a/b' cannot be a file of its name: it has a slash" "$err"
absent "a name with a slash" slash
expect 0 "a name with a slash, .npz" "$tool" extract -o slash.npz slash.safetensors.pici

mkdir shards
cp all.safetensors shards/one.safetensors
{ safetensors '{"more":{"dtype":"F32","shape":[600],"data_offsets":[0,2400]}}'; cat n2400; } >shards/two.safetensors
chmod 600 shards/two.safetensors
expect 0 "a folder" "$tool" compress shards
expect 0 "a tensor of a folder" "$tool" extract -n more -o more.raw shards.pici
same "a tensor of a folder" n2400 more.raw
expect 0 "all tensors of a folder" "$tool" extract -o shards.npz shards.pici
expect 0 "list of a folder's archive" "$tool" list shards.npz
says "list of a folder's archive" ' 5 tensors$' "$out"
[ "$(stat -c %a shards.npz)" = 600 ] && pass || fail "permissions of the archive: $(stat -c %a shards.npz)"
expect 0 "all tensors of a folder, to a folder" "$tool" extract -o shards2/ shards.pici
[ "$(stat -c %a shards2/more.npy)" = 600 ] && pass || fail "permissions of a file: $(stat -c %a shards2/more.npy)"
expect 1 "no tensor of a folder" "$tool" extract -n mor -o x shards.pici
says "no tensor of a folder" 'shards.pici: has no tensor mor' "$err"
expect 2 "a folder, and no tensor" "$tool" extract -o folder.raw shards.pici
says "a folder, and no tensor" 'is a folder: --tensor says which tensor' "$err"
absent "a folder, and no tensor" folder.raw
expect 2 "a folder that is not compressed" "$tool" extract -n more -o x.raw shards
clean "all tensors"

# ---- raw elements and ranges are in row-major order, whatever the order of the file
if ! command -v python3 >/dev/null 2>&1; then
    skip "tensors in Fortran order: no python3"
    finish
fi
cat >columns.py <<'END'
import itertools, math, zipfile
from torchfile import save, tensor, torch
class Complex32:
    def __reduce__(self):
        return "complex32"
Complex32.__module__ = "torch"
torch.complex32 = c32 = Complex32()
c32.__name__ = c32.__qualname__ = "complex32"
numbers = open("n2400", "rb").read() * 4
def rows(data, item, shape, swapped=1): # of a tensor whose first index is fastest; swapped: width of big-endian parts
    out, strides = b"", [math.prod(shape[:i]) for i in range(len(shape))]
    for at in itertools.product(*map(range, shape)):
        i = sum(a * s for a, s in zip(at, strides)) * item
        out += b"".join(data[k : k + swapped][::-1] for k in range(i, i + item, swapped))
    return out
arrays = { # descr, bytes of an item, of an element, shape
    "f4": ("'<f4'", 4, 4, (15, 20)), "cube": ("'<i2'", 2, 2, (5, 7, 9)), "big": ("'>f8'", 8, 8, (6, 4)),
    "byte": ("'|u1'", 1, 1, (3, 1, 40)), "flat": ("'<f4'", 4, 4, (1, 30)), "none": ("'<f4'", 4, 4, (4, 0)),
    "complex": ("'<c8'", 8, 4, (5, 6)), "pairs": ("'<c16'", 16, 8, (2, 2, 2)), "text": ("'<U3'", 12, 4, (7, 3)),
    "bytes": ("'|S5'", 5, 1, (4, 8)), "times": ("'<M8[s]'", 8, 8, (3, 5)), "bool": ("'|b1'", 1, 1, (2, 3)),
    "wide": ("'<f4'", 4, 4, (4, 2))}
with zipfile.ZipFile("columns.npz", "w") as z:
    for n, (descr, item, width, shape) in arrays.items():
        data = numbers[: item * math.prod(shape)]
        head = f"{{'descr': {descr}, 'fortran_order': True, 'shape': {shape}, }}".ljust(117) + "\n"
        npy = b"\x93NUMPY\x01\0v\0" + head.encode() + data
        z.writestr(n + ".npy", npy)
        open(n + ".npy", "wb").write(npy)
        open("want." + n, "wb").write(rows(data, item, shape, width if ">" in descr else 1))
whole, turned = ((50, 12), (12, 1)), ((12, 50), (1, 12))
save("alone.pt", {"at": tensor("Float", "0", 600, *turned)}, {"0": numbers[:2400]})
save("beside.pt", {"a": tensor("Float", "0", 600, *whole), "at": tensor("Float", "0", 600, *turned)},
     {"0": numbers[:2400]})
save("complex.pt", {"z": tensor("ComplexFloat", "0", 300, (3, 100), (1, 3)),
                    "half": tensor("Untyped", "1", 2400, (6, 2, 50), (1, 6, 12), 0, c32)},
     {"0": numbers[:2400], "1": numbers[:2400]})
open("want.at", "wb").write(rows(numbers, 4, (12, 50)))
open("want.z", "wb").write(rows(numbers, 8, (3, 100)))
open("want.half", "wb").write(rows(numbers, 4, (6, 2, 50)))
with open("names", "w") as f:
    for n, (_, _, width, _) in arrays.items():
        print(n, width, "columns.npz", n, file=f)
        print(n, width, n + ".npy", "", file=f)
    print("at 4 alone.pt at\nat 4 beside.pt at\nz 4 complex.pt z\nhalf 2 complex.pt half", file=f)
END
PYTHONPATH=$root/tests/cli python3 columns.py 2>"$err" && pass || fail "columns.py: $(tail -n 3 "$err")"
for f in *.npy columns.npz alone.pt beside.pt complex.pt; do
    "$tool" compress -q --force "$f" || fail "compress $f"
done
"$tool" list alone.pt.pici complex.pt.pici >"$out"
says "a tensor that is its storage" '^at +f32 +\[12, 50\] F ' "$out"
says "complex32" '^half +f16 complex32 +\[6, 2, 50, 2\] F ' "$out"
while read -r want width file name; do
    what="$file $name" elements=$(($(wc -c <"want.$want") / width))
    expect 0 "$what" "$tool" extract ${name:+-n "$name"} --force -o x.raw "$file.pici"
    same "$what" "want.$want" x.raw
    if [ -n "$name" ]; then
        "$tool" cat "$file.pici" "$name" >x.raw 2>"$err"
        same "cat $what" "want.$want" x.raw
    fi
    for range in "0 $elements" "0 $((elements / 7))" "$((elements / 3)) $((elements / 3 + elements / 9))" \
        "$((elements / 5)) $elements" "$((elements / 2)) $((elements / 2))" \
        "$((elements * 4 / 5)) $((elements * 5 / 6))"; do
        first=${range% *} last=${range#* }
        set -- ${name:+-n "$name"} --range "$first:$last" --force "$file.pici"
        tail -c +$((first * width + 1)) "want.$want" | head -c $(((last - first) * width)) >want.part
        expect 0 "$what $first:$last" "$tool" extract -o x.raw "$@"
        same "$what $first:$last" want.part x.raw
        expect 0 "$what $first:$last, .npy" "$tool" extract -o x.npy "$@"
        tail -c +129 x.npy | cmp -s - want.part && pass || fail "$what $first:$last, .npy"
        says "$what $first:$last, .npy" "'fortran_order': False, 'shape': \\($((last - first)),\\)" x.npy
    done
done <names
expect 0 "the whole as .npy keeps its order" "$tool" extract -n at --force -o x.npy alone.pt.pici
says "the whole as .npy keeps its order" "'fortran_order': True, 'shape': \\(12, 50\\)" x.npy
tail -c 2400 x.npy | cmp -s - n2400 && pass || fail "the whole as .npy keeps its order"
expect 1 "a tensor in Fortran order, beyond --max-size" "$tool" extract --max-size 2399 -n at -o x alone.pt.pici
absent "a tensor in Fortran order, beyond --max-size" x
for f in alone beside; do
    set -- --range 4:7 -n at --force $f.pt.pici
    expect 0 "$f: a range reads what it spans" "$tool" extract --max-size 100 -o x "$@"
    tail -c +17 want.at | head -c 12 >want.part
    same "$f: a range reads what it spans" want.part x
    expect 1 "$f: a range beyond --max-size" "$tool" extract --max-size 99 -o x "$@"
done
clean "Fortran order"
finish
