#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# picitool on the zip files of torch.save: storages are tensors, and the same bytes come back.
. tests/cli_common

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
expect 1 "a compressed storage" "$tool" compress -o y.pici m.pt
says "a compressed storage" "entry 'model/data/0' is compressed" "$err"
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

clean "after all that"
finish
