#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Folders with files of torch.save beside shards. Tensors that both have are stored once, and the files come back byte
# for byte. Other files, and damaged ones, are copied.
. tests/cli/common

if ! python3 -c 'import zipfile' 2>/dev/null; then
    skip "no python3 to make files with"
    finish
fi

cat >make.py <<'PY'
import json, os, random, struct, zipfile
from torchfile import save, save_old, tensor

fixed = random.Random(7)
a, b, c, d = (fixed.randbytes(40000) for _ in range(4))
os.makedirs("m/original")

def shard(path, tensors):
    head, at = {}, 0
    for name, data in tensors.items():
        head[name] = {"dtype": "BF16", "shape": [200, 100], "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(tensors.values()))

def bf16(key, shape=(200, 100), strides=(100, 1), offset=0):
    return tensor("BFloat16", key, 20000, shape, strides, offset)

shard("m/model.safetensors", {"a": a, "b": b, "embed": c})
# "tied" and "rows" are views of "tok"; the first index of "turned" is the fastest; "half" has the bytes of a
state = {"wa": bf16("0"), "wb": bf16("1"), "tok": bf16("2"), "tied": bf16("2"), "d": bf16("4"), "twin of d": bf16("5"),
         "rows": bf16("2", (3, 100), (100, 1), 500), "turned": bf16("6", (100, 200), (1, 100)),
         "half": tensor("Half", "3", 20000, (20000,), (1,))}
storages = {"0": a, "1": b, "6": b, "2": c, "3": a, "4": d, "5": d}
save("m/original/consolidated.00.pth", state, storages)
whole = open("m/original/consolidated.00.pth", "rb").read()
swapped = bytes(x for i in range(0, len(a), 2) for x in (a[i + 1], a[i]))
save("m/big.pt", {"a": bf16("0"), "b": bf16("1")}, {"0": a, "1": swapped}, order="big")
save("m/pressed.bin", {"a": bf16("0")}, {"0": a}, compression=zipfile.ZIP_DEFLATED)
open("m/damaged.pth", "wb").write(whole[:-100])
lost = bytearray(whole)
lost[lost.index(b"data.pkl") + 8] ^= 255  # a pickle that cannot be read: its storages have no names, and bytes
open("m/unread.pt", "wb").write(lost)
save_old("m/old.pt", {"a of old": bf16("94")}, {"94": (20000, a)})
open("m/tokens.bin", "wb").write(b)
open("m/none.bin", "wb").close()
with zipfile.ZipFile("m/other.bin", "w") as z:
    z.writestr("notes", b"no tensors")
for name, data in ("wa", a), ("tok", c), ("wb", b), ("d", d):
    open("want." + name, "wb").write(data)
PY
PYTHONPATH=$root/tests/cli python3 make.py 2>"$err" && pass || fail "make.py: $(tail -n 3 "$err")"

"$tool" compress m >"$out" 2>"$err"
[ $? = 0 ] && pass || fail "compress: $(cat "$err")"
says "damaged" 'm/damaged\.pth: warning: offset [0-9]+: not a zip file.*; it is copied unchanged$' "$err"
says "pressed" 'm/pressed\.bin: warning: it has compressed storages; it is copied unchanged$' "$err"
says "unread" 'm/unread\.pt: warning: .*; storages are named after their entries$' "$err"
[ "$(wc -l <"$err")" = 3 ] && pass || fail "compress: not 3 warnings, each once: $(cat "$err")"
list=m.pici/pici-folder
says "the list" '^pici-folder 3 compressed$' $list
for name in big.pt model.safetensors old.pt original/consolidated.00.pth unread.pt; do
    says "$name" "^shard .* $name\$" $list
done
for name in damaged.pth none.bin other.bin pressed.bin tokens.bin; do
    says "$name" "^file .* $name\$" $list
    same "$name" "m/$name" "m.pici/$name"
done

expect 0 "list" "$tool" list m.pici
says "list" '^wa +bf16 +\[200, 100\] same as a of model\.safetensors ' "$out"
says "list" '^wb +bf16 +\[200, 100\] same as b of model\.safetensors ' "$out"
says "list" '^a of old +bf16 +\[200, 100\] same as a of model\.safetensors ' "$out"
says "list" '^turned +bf16 +\[100, 200\] F same as b of model\.safetensors ' "$out"
says "list" '^embed +bf16 +\[200, 100\] same as tok of original/consolidated\.00\.pth ' "$out"
says "list, views stay" '^tied +bf16 +\[200, 100\] from 0 of tok ' "$out"
says "list" '^twin of d +bf16 .* same as d ' "$out"
says "list, another type" '^half +f16 +\[20000\] +20000 ' "$out"
says "list, big-endian" '^a +bf16 +\[200, 100\] +20000 .*' "$out"
says "how many" '^  9 tensors of .*: stored once' "$out"

expect 0 "decompress" "$tool" decompress -T 2 -o back m.pici
expect 0 "all bytes come back" diff -r m back
expect 0 "test" "$tool" test -q m.pici
"$tool" compress -q -T 3 -o threads m 2>"$err"
expect 0 "the same at every number of threads" diff -r m.pici threads
"$tool" extract -n tok -o tok.raw m.pici/original/consolidated.00.pth.pici 2>"$err"
same "a tensor of torch.save that a shard refers to" want.tok tok.raw
expect 0 "a tensor of the shard" "$tool" extract -n embed -o embed.raw m.pici
same "a tensor of the shard" want.tok embed.raw

# for 0.2, whose lists have no such files
"$tool" compress -q --file-version 1 -o old m 2>"$err"
says "for 0.2" '^pici-folder 2 compressed$' old/pici-folder
says "for 0.2" '^file .* original/consolidated\.00\.pth$' old/pici-folder
expect 0 "for 0.2, back" "$tool" decompress -o old.back old
expect 0 "all bytes of that come back" diff -r m old.back

# damaged where it is stored
for name in model.safetensors original/consolidated.00.pth; do
    rm -rf bad
    cp -r m.pici bad
    printf '\377\377\377\377' | dd of=bad/$name.pici bs=1 seek=30000 conv=notrunc 2>/dev/null
    expect 1 "$name, damaged" "$tool" decompress -T 1 -o x bad
    absent "$name, damaged" x
done
# ---- a file that changes while it is read is an error at once, not when the folder is restored
cat >moving.py <<'PY'
import os
from torchfile import save, tensor
os.mkdir("moving")
save("moving/x.pth", {"w": tensor("Float", "0", 1 << 24, (1 << 24,), (1,))}, {"0": bytes(1 << 26)})
PY
PYTHONPATH=$root/tests/cli python3 moving.py 2>"$err" && pass || fail "moving.py: $(tail -n 3 "$err")"
cp m/model.safetensors moving
(while touch moving/x.pth; do :; done) &
touching=$!
for _ in 1 2 3 4 5 6 7 8; do # the file may stay as it is for a while
    rm -rf moving.pici
    "$tool" compress -q moving >"$out" 2>"$err"
    status=$?
    [ $status = 0 ] || break
done
kill $touching
judge 1 "compress of a file that changes" $status
says "compress of a file that changes" 'moving/x.pth: has changed while it was read$' "$err"
absent "compress of a file that changes" moving.pici

clean "after all that"
finish
