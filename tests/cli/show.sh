#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The output of list, inspect, test and bench, for people and as JSON; pictures; and what differs on a terminal.
. tests/cli/common

numbers 300 >n1200
{ npy 1 "'>f4'" True '(15, 20)'; cat n1200; } >a.npy
{ safetensors '{"w":{"dtype":"F32","shape":[10,30],"data_offsets":[0,1200]},
"\"\\\u001b[31mé":{"dtype":"U8","shape":[3],"data_offsets":[1200,1203]},
"none":{"dtype":"I64","shape":[0,7],"data_offsets":[1203,1203]}}'; cat n1200; printf 'a\0b'; } >b.safetensors
"$tool" compress a.npy && "$tool" compress b.safetensors || fail compress
"$tool" block encode -f pici --dtype f32 n1200 c.blk
nonzero=$(od -An -v -tx4 -w4 n1200 | grep -vc ' 00000000')

# ---- for people
expect 0 list "$tool" list b.safetensors.pici
says list '^b\.safetensors\.pici: pici, from safetensors, .*, 3 tensors$' "$out"
says list '^w +f32 +\[10, 30\] +300 ' "$out"
says "list: controls are shown, not sent" '^"\\\\x1b\[31mé +u8 +\[3\] ' "$out"
grep -q "$(printf '\033')" "$out" && fail "list sends an escape" || pass
expect 0 "list of another file" "$tool" list b.safetensors
says "list of another file" '^b\.safetensors: safetensors, .*, 3 tensors$' "$out"
says "list of another file" '^w +f32 +\[10, 30\] +300 ' "$out"
expect 1 "list of what is neither" "$tool" list "$0"
expect 0 "list of a stream" sh -c 'cat b.safetensors.pici | "$0" list -' "$tool"
says "list of a stream" '^w +f32 +\[10, 30\] +300 ' "$out"
{ safetensors '{"e":{"dtype":"F8_E8M0","shape":[3],"data_offsets":[0,3]},
"f":{"dtype":"F4","shape":[2,3],"data_offsets":[3,6]},"g":{"dtype":"U8","shape":[3],"data_offsets":[6,9]},
"h":{"dtype":"F6_E2M3","shape":[2,1,4],"data_offsets":[9,15]}}'
  printf 123456789012345; } >names.safetensors
"$tool" compress -q names.safetensors
for f in names.safetensors names.safetensors.pici; do
    expect 0 "types by name, $f" "$tool" list $f
    says "types by name, $f" '^e +u8 F8_E8M0 +\[3\] ' "$out"
    says "types by name, $f" '^f +u8 F4 +\[3\] ' "$out"
    says "types by name, $f" '^g +u8 +\[3\] ' "$out"
    says "types by name, $f" '^h +u8 F6_E2M3 +\[2, 1, 3\] ' "$out"
done
expect 0 inspect "$tool" inspect a.npy
says inspect "nonzero +$nonzero$" "$out"
says inspect 'f32  \(>f4\), big-endian$' "$out"
says inspect '\[15, 20\], Fortran order$' "$out"
expect 0 "inspect a .pici" "$tool" inspect a.npy.pici
says "inspect a .pici" "nonzero +$nonzero$" "$out"
expect 0 "inspect raw" "$tool" inspect --dtype f32 n1200
says "inspect raw" "nonzero +$nonzero$" "$out"
expect 0 "inspect several" "$tool" inspect b.safetensors
says "inspect several" '^total ' "$out"
expect 0 "inspect a stream" sh -c 'cat b.safetensors.pici | "$0" inspect -' "$tool"
says "inspect a stream" '^total ' "$out"
expect 0 "inspect --tensor" "$tool" inspect --tensor w b.safetensors.pici
says "inspect --tensor" "nonzero +$nonzero$" "$out"
expect 1 "inspect --tensor, of none" "$tool" inspect --tensor x b.safetensors
LC_ALL=C expect 0 "inspect in ASCII" "$tool" inspect a.npy
LC_ALL=C grep -q '[^ -~]' "$out" && fail "inspect in ASCII is not" || pass
expect 0 bench "$tool" bench --size 64K --reps 3 --sparsity 0,99.5
[ "$(grep -c '^ *[0-9.]*% ' "$out")" = 10 ] && pass || fail "bench: not two times five lines"
expect 0 "bench of integers" "$tool" bench --size 64K --reps 1 --sparsity 0 -d i16
[ "$(grep -c '^ *[0-9.]*% ' "$out")" = 4 ] && pass || fail "bench of integers: not four lines"
expect 2 "packed integers" "$tool" bench --size 64K --reps 1 --sparsity 0 -d i16 -f packed
head -c 4096 /dev/zero >ints
expect 2 "packed integers of a file" "$tool" bench --reps 1 -f packed --dtype i16 ints
says "packed integers of a file" 'is of i16; packed blocks are of floats' "$err"
expect 0 "bench of a file" "$tool" bench --reps 1 -f pici a.npy
says "bench of a file" 'a.npy, tensor data: f32, 1.17 KiB' "$out"

# the sizes that inspect predicts are those of the blocks
for format in dense bitmap coo hybrid; do
    "$tool" block encode -f $format --dtype f32 n1200 $format.blk
    "$tool" inspect --json c.blk >c.json
    says "size as $format" "\"$format\": $(wc -c <$format.blk),?$" c.json
done

# ---- JSON
expect 0 "list --json" "$tool" list --json b.safetensors.pici
cp "$out" list.json
expect 0 "inspect --json" "$tool" inspect --json b.safetensors
cp "$out" inspect.json
expect 0 "inspect --json, .pici" "$tool" inspect --json a.npy.pici
cp "$out" inspect2.json
head -c 100 a.npy.pici >cut.pici
"$tool" test --json a.npy.pici "$(printf 'no\n\377file')" cut.pici c.blk >test.json 2>"$err"
[ $? = 1 ] && pass || fail "test --json of a bad file: exit status"
expect 0 "bench --json" "$tool" bench --json --size 64K --reps 2 --sparsity 99.9
cp "$out" bench.json
if command -v python3 >/dev/null 2>&1; then
    python3 - "$nonzero" >"$out" 2>&1 <<'END'
import json, sys
nonzero = int(sys.argv[1])
l = json.load(open("list.json"))
assert l["source"] == "safetensors" and [t["name"] for t in l["tensors"]] == ["w", '"\\\x1b[31mé', "none"]
assert [t["shape"] for t in l["tensors"]] == [[10, 30], [3], [0, 7]] and l["total"]["bytes"] == 1203
i = json.load(open("inspect.json"))
assert [t["nonzero"] for t in i["tensors"]] == [nonzero, 2, 0] and i["total"]["elements"] == 303
assert i["tensors"][0]["density"] == nonzero / 300 and i["type"] == "safetensors"
p = json.load(open("inspect2.json"))["tensors"][0]
assert p["fortran_order"] and p["big_endian"] and p["source_dtype"] == ">f4" and p["stored_bytes"] > 0
t = json.load(open("test.json", encoding="utf-8"))
assert [x["ok"] for x in t] == [True, False, False, True] and t[1]["file"] == "no\n\ufffdfile"
assert "offset" in t[2]["error"] and "error" not in t[0]
b = json.load(open("bench.json"))
assert [r["format"] for r in b["results"]] == ["dense", "bitmap", "coo", "hybrid", "packed"] and b["bytes"] == 65536
assert all(v > 0 for r in b["results"] for v in r["gb_per_second"].values()) and b["results"][0]["sparsity"] == 0.999
END
    [ $? = 0 ] && pass || fail "JSON: $(cat "$out")"
else
    skip "JSON read by another program: no python3"
fi

# ---- pictures
expect 0 "--heatmap, PNG" "$tool" inspect --heatmap p.png b.safetensors.pici
expect 0 "--heatmap, SVG" "$tool" inspect --heatmap p.svg b.safetensors.pici
safetensors '{}' >empty.safetensors
expect 0 "--png and --svg" "$tool" inspect --png p1 --svg p2 b.safetensors.pici
expect 0 "--png is --heatmap's" cmp p1 p.png
expect 0 "--svg is --heatmap's" cmp p2 p.svg
expect 0 "a PNG of no tensors" "$tool" inspect --heatmap empty.png empty.safetensors
expect 0 "an SVG of no tensors" "$tool" inspect --heatmap empty.svg empty.safetensors
expect 0 "--heatmap and --json" "$tool" inspect --json --heatmap file.png a.npy
says "--heatmap and --json" '"nonzero": ' "$out"
if command -v python3 >/dev/null 2>&1; then
    python3 - >"$out" 2>&1 <<'END'
import struct, xml.dom.minidom, zlib
for name in "p", "empty", "file":
    data = open(name + ".png", "rb").read()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, pixels, kinds = 8, b"", []
    while at < len(data):
        n, kind = struct.unpack(">I4s", data[at:at + 8])
        body, crc = data[at + 8:at + 8 + n], struct.unpack(">I", data[at + 8 + n:at + 12 + n])[0]
        assert zlib.crc32(kind + body) == crc
        kinds.append(kind)
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
            assert (depth, colour) == (8, 3)
        if kind == b"PLTE":
            colours = n // 3
        if kind == b"IDAT":
            pixels += body
        at += 12 + n
    assert kinds == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    rows = zlib.decompress(pixels)
    assert len(rows) == height * (width + 1)
    assert all(rows[y * (width + 1)] == 0 for y in range(height)) and max(rows) < colours
svg = xml.dom.minidom.parse("p.svg")
text = [t.firstChild.data for t in svg.getElementsByTagName("text")]
assert "w" in text and '"\\\\x1b[31mé' in text and any(t.startswith("66.7% u8 [3]") for t in text)
xml.dom.minidom.parse("empty.svg")
END
    [ $? = 0 ] && pass || fail "pictures: $(cat "$out")"
else
    skip "pictures read by another program: no python3"
fi

# ---- the manual names every option of every verb
if [ -r "$root/tools/picitool.1" ]; then
    verbs >verbs
    while read -r verb; do
        says "the manual: $verb" "^\.Cm $verb$" "$root/tools/picitool.1"
        # shellcheck disable=SC2086
        for option in $("$tool" $verb --help | sed -n 's/^  .*--\([a-z-]*\).*/\1/p'); do
            says "the manual: --$option" "Fl Fl $option( |$)" "$root/tools/picitool.1"
        done
    done <verbs
    if command -v mandoc >/dev/null 2>&1; then
        mandoc -Tlint -W warning "$root/tools/picitool.1" >"$out" 2>&1 && pass || fail "the manual: $(cat "$out")"
    else
        skip "the form of the manual: no mandoc"
    fi
else
    fail "no tools/picitool.1"
fi

# ---- a terminal
if command -v script >/dev/null 2>&1; then
    script -qec "$tool compress -o - a.npy" /dev/null >"$out" 2>&1 </dev/null
    [ $? = 2 ] && pass || fail "binary data to a terminal: not refused"
    says "binary data to a terminal" 'terminal' "$out"
    script -qec "$tool decompress -o /dev/tty a.npy.pici" /dev/null >"$out" 2>&1 </dev/null
    [ $? = 2 ] && pass || fail "binary data to /dev/tty: not refused"
    TERM=xterm script -qec "$tool inspect a.npy" /dev/null >"$out" 2>&1 </dev/null
    grep -q "$(printf '\033\\[48;')" "$out" && pass || fail "a map on a terminal has no colours"
    NO_COLOR=1 TERM=xterm script -qec "$tool inspect a.npy" /dev/null >"$out" 2>&1 </dev/null
    grep -q "$(printf '\033')" "$out" && fail "NO_COLOR, and colours all the same" || pass
    esc=$(printf '\033')
    for args in 'inspect b.safetensors' 'list b.safetensors.pici' 'test a.npy.pici' 'test cut.pici'; do
        TERM=xterm script -qec "$tool $args" /dev/null >"$out" 2>&1 </dev/null
        grep -q "$esc\\[[0-9;]*m" "$out" && pass || fail "$args on a terminal has no colours"
        NO_COLOR=1 TERM=xterm script -qec "$tool $args" /dev/null >"$out" 2>&1 </dev/null
        grep -q "$esc" "$out" && fail "$args: NO_COLOR, and colours all the same" || pass
        TERM=dumb script -qec "$tool $args" /dev/null >"$out" 2>&1 </dev/null
        grep -q "$esc" "$out" && fail "$args: TERM=dumb, and colours all the same" || pass
        # shellcheck disable=SC2086
        TERM=xterm "$tool" $args >"$out" 2>&1
        grep -q "$esc" "$out" && fail "$args: no terminal, and colours all the same" || pass
    done
    # progress appears after a second and is gone at the end
    { printf 'cat a.npy; sleep 1.3; head -c 20000000 /dev/zero'; } >slow.sh
    TERM=xterm script -qec "sh slow.sh | $tool compress --type npy -o slow.pici -" /dev/null >"$out" 2>&1 </dev/null
    grep -q 'standard input .*/s' "$out" && pass || fail "no progress on a terminal"
    says "progress is wiped before the result" "$esc\\[Kstandard input : " "$out"
    if [ "${ZSTD:-}" = 1 ]; then # of a file, whose end is known
        head -c 8500000 /dev/urandom >random
        # stop it in the middle, so that it takes a second on any machine
        printf '%s compress --dtype u8 --zstd=19 random &\n' "$tool" >stop.sh
        # shellcheck disable=SC2016
        echo 'sleep 0.1; kill -STOP $!; sleep 1.2; kill -CONT $!; wait $!' >>stop.sh
        TERM=xterm script -qec "sh stop.sh" /dev/null >"$out" 2>&1 </dev/null
        says "rate and time left on a terminal" 'random .* [KM]iB/s  [0-9]+%  [0-9]+ s left' "$out"
        rm -f random random.pici
    else
        skip "progress of a file: a build without zstd, and so without anything slow"
    fi
    sh slow.sh | "$tool" compress --type npy -o slow2.pici - 2>"$err"
    judge 0 "no progress in a pipe" $?
    same "with and without progress" slow.pici slow2.pici
else
    skip "what differs on a terminal: no script(1)"
fi

clean "after all that"
finish
