#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# picitool on the zip files of torch.save: storages are tensors, and the same bytes come back.
. tests/cli/common

# entry NAME FILE: a local header and the file, padded to a multiple of 64 as torch.save does; adds it to the directory
directory=$tmp/logs/directory
: >"$directory"
entries=0
entry() {
    entry_at=$(wc -c <m.pt) entry_bytes=$(wc -c <"$2")
    entry_pad=$((64 - (entry_at + 30 + ${#1} + 4) % 64))
    { printf 'PK\003\004'; le 2 45; le 2 0; le 2 "${3:-0}"; le 4 0; le 4 0; le 4 "$entry_bytes"; le 4 "$entry_bytes"
      le 2 ${#1}; le 2 $((entry_pad + 4)); printf '%sFB' "$1"; le 2 $entry_pad; zeros $entry_pad; cat "$2"; } >>m.pt
    { printf 'PK\001\002'; le 2 0; le 2 45; le 2 0; le 2 "${3:-0}"; le 4 0; le 4 0
        le 4 "$entry_bytes"; le 4 "$entry_bytes"
      le 2 ${#1}; zeros 6; zeros 6; le 4 "$entry_at"; printf %s "$1"; } >>"$directory"
    entries=$((entries + 1))
}
end_zip() {
    end_at=$(wc -c <m.pt) end_bytes=$(wc -c <"$directory")
    cat "$directory" >>m.pt
    { printf 'PK\005\006'; zeros 4; le 2 $entries; le 2 $entries; le 4 "$end_bytes"; le 4 "$end_at"; le 2 0; } >>m.pt
}
numbers 300 >n1200
printf '\200\002}q\000.' >pickle
printf abc >three
: >none
: >m.pt
entry model/data.pkl pickle
entry model/data/0 n1200
entry model/data/1 three
entry model/data/12 none
entry model/version three
end_zip

for dtype in u8 f32 f64; do
    expect 0 "compress, $dtype" "$tool" compress --dtype $dtype -o m.$dtype.pici m.pt
    expect 0 "decompress, $dtype" "$tool" decompress -o back m.$dtype.pici
    same "$dtype" m.pt back
    expect 0 "test, $dtype" "$tool" test m.$dtype.pici
    rm back
done
expect 0 "u8 by default" "$tool" compress m.pt
same "u8 by default" m.u8.pici m.pt.pici
expect 0 "list of the .pt" "$tool" list --dtype f32 m.pt
says "list of the .pt" '^m\.pt: pt, ' "$out"
says "list of the .pt" '^model/data/0 +f32 +\[300\] ' "$out"
expect 0 "list" "$tool" list m.f32.pici
says "list" '^m\.f32\.pici: pici, from pt, ' "$out"
says "list" '^model/data/0 +f32 +\[300\] ' "$out"
says "list" '^model/data/1 +u8 +\[3\] ' "$out"
says "list" '^model/data/12 +f32 +\[0\] ' "$out"
expect 0 "inspect" "$tool" inspect --dtype f32 m.pt
says "inspect" 'm\.pt: pt, .*, 3 tensors, 303 elements' "$out"
grep -q zip "$out" && fail "inspect shows what is no tensor" || pass
expect 0 "extract" "$tool" extract -n model/data/0 -o x.raw m.f32.pici
same "extract" n1200 x.raw
expect 0 "bench" "$tool" bench -r 1 -f pici --dtype f32 m.pt
says "bench" 'tensor model/data/0: f32' "$out"
expect 0 "report" "$tool" report m.pt
cp m.pt other.dat
expect 0 "--type pt" "$tool" compress --type pt -o x.pici other.dat
same "--type pt" m.u8.pici x.pici
rm x.pici

# ---- refused
cat m.pt | "$tool" compress --type pt - >x.pici 2>"$err"
judge 2 "a pipe" $?
printf 'not a zip' >bad.pt
expect 1 "no zip" "$tool" compress -o y.pici bad.pt
says "no zip" 'bad\.pt: offset [0-9]+: not a zip file' "$err"
bytes=$(wc -c <m.pt)
n=1
while [ $n -lt "$bytes" ]; do
    head -c $n m.pt >cut.pt
    expect 1 "cut to $n bytes" "$tool" compress -o y.pici cut.pt
    absent "cut to $n bytes" y.pici
    n=$((n + 97))
done
: >m.pt
: >"$directory"
entries=0
entry model/data/0 n1200 8
end_zip
expect 1 "a storage that is no deflated data" "$tool" compress -o y.pici m.pt
: >m.pt
: >"$directory"
entries=0
entry model/data.pkl pickle
entry model/code.py n1200 8 # as TorchScript has them
entry model/data/0 n1200
end_zip
expect 0 "a compressed entry that is no storage" "$tool" compress --dtype f32 -o y.pici m.pt
expect 0 "a compressed entry that is no storage, back" "$tool" decompress -o back y.pici
same "a compressed entry that is no storage" m.pt back

# ---- what Python's zipfile writes, with zip64 fields
if command -v python3 >/dev/null 2>&1; then
    python3 - <<'END'
import zipfile
with zipfile.ZipFile("p.pt", "w") as z:
    for name, data in ("m/data.pkl", b"\x80\2}."), ("m/data/0", bytes(4096) + b"abcd"):
        with z.open(name, "w", force_zip64=True) as f:
            f.write(data)
END
    expect 0 "zip64" "$tool" compress --dtype f32 p.pt
    expect 0 "zip64 back" "$tool" decompress -o p.back p.pt.pici
    same "zip64" p.pt p.back
    [ "$(wc -c <p.pt.pici)" -lt 2500 ] && pass || fail "zip64: $(wc -c <p.pt.pici) bytes"
else
    skip "a zip file of another program: no python3"
fi

# ---- names, shapes and dtypes, from a pickle in the form that torch.save writes; nothing of it is run
if command -v python3 >/dev/null 2>&1; then
    cat >make.py <<'END'
import collections, zipfile
from torchfile import Call, f8, rebuild_parameter, run, save, tensor
numbers = open("n1200", "rb").read()
state = collections.OrderedDict()
state["embed.weight"] = tensor("Float", "0", 300, (30, 10), (10, 1))
state["head.weight"] = tensor("Float", "0", 300, (30, 10), (10, 1)) # tied
state["turned"] = tensor("Float", "1", 300, (10, 30), (1, 10))
state["channels"] = tensor("Float", "2", 300, (5, 3, 4, 5), (60, 1, 15, 3))
state["slice"] = tensor("Float", "3", 300, (4, 5), (10, 1), 20)
state["b16"] = tensor("BFloat16", "4", 600, (600,), (1,))
state["mask"] = tensor("Bool", "5", 1200, (40, 30), (30, 1))
state["z"] = tensor("ComplexFloat", "6", 150, (150,), (1,))
state["f8"] = tensor("Untyped", "7", 1200, (1200,), (1,), 0, f8)
state["scalar"] = tensor("Double", "8", 1, (), ())
storages = {str(i): numbers for i in range(8)} | {"8": numbers[:8], "9": numbers}
for protocol in 2, 4, 5:
    whole = {"model": state, "optimizer": {"state": {0: {"step": 1, "exp_avg": tensor("Half", "9", 600, (600,), (1,))}},
             "param_groups": [{"lr": 0.1, "betas": (0.9, 0.99), "params": [0]}]}, "epoch": 3}
    save(f"p{protocol}.pt", whole, storages, protocol)
save("alone.pt", Call(rebuild_parameter, tensor("Long", "0", 150, (150,), (1,)), True, collections.OrderedDict()),
     {"0": numbers})
save("big.pt", {"w": tensor("Float", "0", 300, (300,), (1,))}, {"0": numbers}, order="big")
save("evil.pt", [Call(run, "was-run"), tensor("Float", "0", 300, (300,), (1,))], {"0": numbers})
save("beyond.pt", {"w": tensor("Float", "0", 300, (301,), (1,))}, {"0": numbers})
save("twice.pt", {"a.b": tensor("Float", "0", 300, (300,), (1,)), "a": {"b": tensor("Float", "1", 300, (300,), (1,))}},
     {"0": numbers, "1": numbers})
save("wide.pt", {str(i): tensor("Double", "0", 1, (2**59 - 1,), (0,)) for i in range(5)}, {"0": numbers[:8]})
with zipfile.ZipFile("climbs.pt", "w") as z:
    z.writestr("../data.pkl", b"\x80\2}.")
END
    PYTHONPATH=$root/tests/cli python3 make.py 2>"$err" && pass || fail "make.py: $(tail -n 3 "$err")"
    for p in 2 4 5; do
        expect 0 "protocol $p: compress" "$tool" compress p$p.pt
        expect 0 "protocol $p: decompress" "$tool" decompress --force -o back p$p.pt.pici
        same "protocol $p" p$p.pt back
        rm -f back
        expect 0 "protocol $p: list" "$tool" list p$p.pt
        says "protocol $p: list" ', 11 tensors' "$out"
        says "protocol $p: list" '^model\.embed\.weight +f32 +\[30, 10\] +300 ' "$out"
        says "protocol $p: list" '^model\.head\.weight +f32 +\[30, 10\] from 0 of model\.embed\.weight +300 ' "$out"
        says "protocol $p: list" '^model\.turned +f32 +\[10, 30\] strides \[1, 10\] +300 ' "$out"
        says "protocol $p: list" '^model\.channels +f32 +\[5, 3, 4, 5\] strides \[60, 1, 15, 3\] +300 ' "$out"
        says "protocol $p: list" '^model\.slice +f32 +\[4, 5\] strides \[10, 1\] from 20 of its storage +20 ' "$out"
        says "protocol $p: list" '^model\.b16 +bf16 +\[600\] ' "$out"
        says "protocol $p: list" '^model\.mask +u8 bool +\[40, 30\] ' "$out"
        says "protocol $p: list" '^model\.z +f32 complex +\[150, 2\] ' "$out"
        says "protocol $p: list" '^model\.f8 +f8e4m3 +\[1200\] ' "$out"
        says "protocol $p: list" '^model\.scalar +f64 +\[\] +1 ' "$out"
        says "protocol $p: list" '^optimizer\.state\.0\.exp_avg +f16 +\[600\] ' "$out"
        expect 0 "protocol $p: list of the .pici" "$tool" list p$p.pt.pici
        says "protocol $p: list of the .pici" ', 11 tensors' "$out"
        says "protocol $p: list of the .pici" '^model\.embed\.weight +f32 +\[30, 10\] ' "$out"
        says "protocol $p: list of the .pici" '^model\.turned +f32 +\[10, 30\] F ' "$out"
        says "protocol $p: list of the .pici" '^model\.head\.weight +f32 .* from 0 of model\.embed\.weight ' "$out"
        says "protocol $p: list of the .pici" '^model\.channels +f32 +\[5, 3, 4, 5\] strides \[60, 1, 15, 3\] ' "$out"
        says "protocol $p: list of the .pici" \
            '^model\.slice +f32 +\[4, 5\] strides \[10, 1\] from 20 of its storage +20 +80 B +[0-9.]+ [A-Z]' "$out"
        grep -q '^zip' "$out" && fail "protocol $p: list of the .pici: a storage without a name" || pass
        says "protocol $p: list of the .pici" '^model\.mask +u8 bool +\[40, 30\] ' "$out"
    done
    expect 0 "inspect a view" "$tool" inspect -n model.channels p2.pt
    says "inspect a view" 'original +shape \[5, 3, 4, 5\] strides \[60, 1, 15, 3\]' "$out"
    says "inspect a view" 'dtype +f32  \(float32\)' "$out"
    expect 0 "inspect a view in a .pici" "$tool" inspect -n model.channels p2.pt.pici
    says "inspect a view in a .pici" 'original +shape \[5, 3, 4, 5\] strides \[60, 1, 15, 3\]' "$out"
    expect 0 "list, JSON" "$tool" list --json p2.pt
    python3 -c 'import json, sys
t = {x["name"]: x for x in json.load(open(sys.argv[1]))["tensors"]}
assert t["model.mask"]["source_dtype"] == "bool" and t["model.mask"]["shape"] == [40, 30]
assert t["model.slice"]["view"] == "strides [10, 1] from 20 of its storage"
assert "view" not in t["model.embed.weight"]' "$out" 2>"$err" && pass || fail "list, JSON: $(tail -n 1 "$err")"
    for f in alone big; do
        expect 0 "$f: compress" "$tool" compress $f.pt
        expect 0 "$f: decompress" "$tool" decompress --force -o back $f.pt.pici
        same "$f" $f.pt back
    done
    "$tool" list alone.pt >"$out"
    says "a parameter alone" '^data +i64 +\[150\] ' "$out"
    "$tool" list big.pt.pici >"$out"
    says "big-endian storages" '^w +f32 BE +\[300\] ' "$out"

    # ---- a pickle that would write a file is read, and not run
    for verb in list inspect compress; do
        expect 0 "$verb evil.pt" "$tool" $verb evil.pt
    done
    absent "nothing is run" was-run
    "$tool" list evil.pt >"$out"
    says "what is beside it is listed" '^1 +f32 +\[300\] ' "$out"

    expect 0 "tensors of more than 2^64 bytes together" "$tool" list wide.pt
    says "tensors of more than 2^64 bytes together" '^total .* 16\.0 EiB ' "$out"
    expect 0 "tensors of more than 2^64 bytes together, JSON" "$tool" list --json wide.pt
    says "tensors of more than 2^64 bytes together, JSON" '"bytes": ?18446744073709551615' "$out"

    # ---- pickles that are not as torch writes them: storages keep the names of their entries, and all bytes come back
    "$tool" compress beyond.pt >"$out" 2>"$err" && pass || fail "beyond: $(cat "$err")"
    [ "$(grep -c 'named after their entries' "$err")" = 1 ] && pass || fail "beyond: $(cat "$err")"
    expect 0 "beyond: decompress" "$tool" decompress --force -o back beyond.pt.pici
    same "beyond" beyond.pt back
    "$tool" list beyond.pt.pici >"$out"
    says "beyond" '^m/data/0 +u8 +\[1200\] ' "$out"
    # ---- of two tensors of one name, the second gets another
    "$tool" compress twice.pt 2>"$err" && pass || fail "twice: $(cat "$err")"
    says "twice" "warning: 1 tensor has a duplicate name and is renamed, the first 'a\.b~2'$" "$err"
    expect 0 "twice: decompress" "$tool" decompress --force -o back twice.pt.pici
    same "twice" twice.pt back
    "$tool" list twice.pt.pici >"$out"
    says "twice" '^a\.b +f32 +\[300\] ' "$out"
    says "twice" '^a\.b~2 +f32 +\[300\] ' "$out"

    # ---- every layout that strides can say, and the signs that torch keeps apart
    cat >layouts.py <<'END'
import itertools, math
from torchfile import save, save_old, tensor
numbers = open("n1200", "rb").read()
def bits(*args, **set): # as torch.save writes conj and neg: a seventh argument
    t = tensor(*args)
    t.args = (*t.args, set)
    return t
layouts = {
    "permuted": ((5, 3, 4, 5), (60, 1, 15, 3), 0), "slice": ((4, 5), (10, 1), 20), "rows": ((3, 10), (10, 1), 50),
    "expanded": ((7, 4), (0, 1), 9), "overlap": ((5, 6), (1, 2), 3), "scalar": ((), (), 299),
    "none": ((0, 3), (3, 1), 4), "columns": ((30,), (10,), 9), "one": ((1, 1), (999, 77), 5),
    "far": ((2, 2), (150, 149), 0)}
state = {n: tensor("Float", "0", 300, *layouts[n]) for n in layouts}
state["half"] = tensor("Half", "0", 600, (3, 2), (7, 100), 11) # as no torch saves it: of another width
z = {"conj": ((3, 4), (10, 2), 1), "neg": ((5,), (9,), 2), "both": ((2, 2), (1, 70), 0), "plain": ((150,), (1,), 0)}
state["conj"] = bits("ComplexFloat", "1", 150, *z["conj"], conj=True)
state["both"] = bits("ComplexFloat", "1", 150, *z["both"], conj=True, neg=True)
state["neg"] = bits("Float", "1", 300, *z["neg"], neg=True)
state["z"] = tensor("ComplexFloat", "1", 150, *z["plain"])
save("layouts.pt", state, {"0": numbers, "1": numbers})
state["z"] = tensor("ComplexFloat", "2", 150, *z["plain"])
save_old("old.pt", state, {"2": (150, numbers), "0": (300, numbers), "1": (150, numbers)})
def want(name, width, layout, conj=False, neg=False):
    (shape, strides, offset), out, part = layout, b"", min(width, 4)
    for at in itertools.product(*map(range, shape)):
        i = offset + sum(a * s for a, s in zip(at, strides))
        item = numbers[i * width : (i + 1) * width]
        for k in range(width // part):
            p = item[k * part : (k + 1) * part]
            out += bytes((*p[:-1], p[-1] ^ 0x80)) if neg != (conj and k == 1) else p
    assert len(out) == width * math.prod(shape)
    open(f"want.{name}", "wb").write(out)
for n, layout in layouts.items():
    want(n, 4, layout)
want("half", 2, ((3, 2), (7, 100), 11))
want("conj", 8, z["conj"], conj=True)
want("both", 8, z["both"], conj=True, neg=True)
want("neg", 4, z["neg"], neg=True)
want("z", 8, z["plain"])
END
    PYTHONPATH=$root/tests/cli python3 layouts.py 2>"$err" && pass || fail "layouts.py: $(tail -n 3 "$err")"
    expect 0 "layouts: compress" "$tool" compress layouts.pt
    expect 0 "layouts: decompress" "$tool" decompress --force -o back layouts.pt.pici
    same "layouts" layouts.pt back
    for n in permuted slice rows expanded overlap scalar none columns one far half conj both neg z; do
        expect 0 "$n: extract" "$tool" extract --force -n $n -o x.raw layouts.pt.pici
        same "$n" want.$n x.raw
    done
    expect 0 "a range of a view" "$tool" extract --force -n permuted --range 100:163 -o x.raw layouts.pt.pici
    tail -c +401 want.permuted | head -c 252 >want.range
    same "a range of a view" want.range x.raw
    expect 0 "a view as .npy" "$tool" extract --force -n conj -o x.npy layouts.pt.pici
    tail -c 96 x.npy >x.raw
    same "a view as .npy" want.conj x.raw
    says "a view as .npy" "'descr': '<c8', 'fortran_order': False, 'shape': \(3, 4\)" x.npy
    expect 1 "no such view" "$tool" extract -n permute layouts.pt.pici
    says "no such view" 'permuted' "$err"
    expect 1 "a view beyond --max-size" "$tool" extract --max-size 100 --force -n expanded -o x.raw layouts.pt.pici
    cat layouts.pt.pici | "$tool" list - >"$out" 2>"$err"
    judge 0 "list of a stream" $?
    says "list of a stream" '^permuted +f32 +\[5, 3, 4, 5\] strides \[60, 1, 15, 3\] +300 ' "$out"
    says "list of a stream" '^conj +f32 complex +\[3, 4, 2\] strides \[20, 4, 1\] from 2 of z conjugate ' "$out"

    # ---- files of torch before version 1.6, which are no zip files
    expect 0 "old: compress" "$tool" compress old.pt
    expect 0 "old: decompress" "$tool" decompress --force -o back old.pt.pici
    same "old" old.pt back
    for n in permuted slice rows expanded overlap scalar none columns one far half conj both neg z; do
        expect 0 "old, $n: extract" "$tool" extract --force -n $n -o x.raw old.pt.pici
        same "old, $n" want.$n x.raw
    done
    expect 0 "old: list" "$tool" list old.pt
    says "old: list" '^permuted +f32 +\[5, 3, 4, 5\] strides \[60, 1, 15, 3\] ' "$out"
    cp old.pt old.bin
    expect 0 "old, by its looks" "$tool" list old.bin
    says "old, by its looks" '^old\.bin: pt, ' "$out"
    bytes=$(wc -c <old.pt)
    n=1
    while [ $n -lt "$bytes" ]; do
        head -c $n old.pt >cut.pt
        expect 1 "old, cut to $n bytes" "$tool" compress -o no.pici cut.pt
        absent "old, cut to $n bytes" no.pici
        n=$((n + 97))
    done
    cat >old.py <<'END'
from torchfile import Stored, save_old, tensor
numbers = open("n1200", "rb").read()
w = {"w": tensor("Float", "7", 300, (300,), (1,))}
good = {"7": (300, numbers)}
save_old("longer.pt", w | {"texts": ["text" * 100] * 3000 + [str(i) * 300 for i in range(3000)]}, good)
open("longer.pt", "ab").write(b"after it")
module = Stored("Float", "7", 300)
module.id = ("module", "net", "net.py", "class Net: pass")
save_old("module.pt", [module, w], good)
save_old("version.pt", w, good, 1002)
save_old("long.pt", w, {"7": (2**61, numbers)})
save_old("unknown.pt", w, good | {"8": (300, numbers)})
save_old("two.pt", w, good, keys=["7", "7"])
save_old("up.pt", w, {"../7": (300, numbers)}, keys=["../7"])
save_old("nolist.pt", w, good, keys="7")
save_old("number.pt", w, good, keys=[7])
view = tensor("Float", "7", 300, (300,), (1,))
view.args[0].id += (("8", 0, 10),)
save_old("view.pt", {"w": view}, good)
END
    PYTHONPATH=$root/tests/cli python3 old.py 2>"$err" && pass || fail "old.py: $(tail -n 3 "$err")"
    for f in longer module; do # a pickle of more bytes than are read at first, and the class of a module
        expect 0 "old, $f: compress" "$tool" compress $f.pt
        expect 0 "old, $f: decompress" "$tool" decompress --force -o back $f.pt.pici
        same "old, $f" $f.pt back
        expect 0 "old, $f: list" "$tool" list $f.pt.pici
        says "old, $f: list" '^(1\.)?w +f32 +\[300\] ' "$out"
    done
    refused() { # FILE WORDS
        expect 1 "old, $1" "$tool" compress -o no.pici "$1.pt"
        says "old, $1" "^picitool: $1\.pt: offset [0-9]+: $2" "$err"
        absent "old, $1" no.pici
    }
    refused version "an unknown version of torch's old files"
    refused long 'a storage goes beyond the end of the file'
    refused unknown 'a storage occurs twice, or no tensor gives its dtype'
    refused two 'a storage occurs twice, or no tensor gives its dtype'
    refused up 'a storage occurs twice, or no tensor gives its dtype'
    refused nolist 'the keys of the storages are not a list'
    refused number 'the key of a storage is not as torch writes it'
    refused view "the pickle's tensor 'w' has a storage that is not as torch writes it"

    # ---- as other programs write such zip files again: deflated, or with zeros after them
    cat >again.py <<'END'
import zipfile
with zipfile.ZipFile("layouts.pt") as a:
    for name, level in ("deflated.pt", 6), ("fast.pt", 1):
        with zipfile.ZipFile(name, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as b:
            for e in a.infolist():
                b.writestr(e.filename, a.read(e))
open("padded.pt", "wb").write(open("layouts.pt", "rb").read() + bytes(4096))
END
    python3 again.py 2>"$err" && pass || fail "again.py: $(tail -n 3 "$err")"
    for f in deflated fast padded; do
        if [ "$f" != padded ] && [ "${ZLIB:-1}" != 1 ]; then
            skip "$f: a build without zlib"
            continue
        fi
        expect 0 "$f: list" "$tool" list $f.pt
        says "$f: list" '^permuted +f32 ' "$out"
        expect 0 "$f: compress" "$tool" compress $f.pt
        expect 0 "$f: decompress" "$tool" decompress --force -o back $f.pt.pici
        same "$f" $f.pt back
        for n in permuted half conj z; do
            expect 0 "$f: extract $n" "$tool" extract --force -n $n -o x.raw $f.pt.pici
            same "$f: $n" want.$n x.raw
        done
    done
    cp deflated.pt damaged.pt
    printf '\377' | dd of=damaged.pt bs=1 seek=$(($(wc -c <damaged.pt) / 2)) conv=notrunc 2>/dev/null
    "$tool" compress damaged.pt >"$out" 2>"$err" && "$tool" decompress --force -o back damaged.pt.pici 2>/dev/null
    [ ! -e damaged.pt.pici ] || same "damaged" damaged.pt back

    expect 1 "a name that climbs" "$tool" compress climbs.pt
    says "a name that climbs" 'leaves its folder' "$err"
    expect 2 "diff" "$tool" diff -o d.pici p2.pt p4.pt
    says "diff" 'diff does not support \.pt' "$err"
else
    skip "pickles of torch's form: no python3"
fi

clean "after all that"
finish
