#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Names of tensors and of files may have characters that are invisible or that change the direction of writing. Every
# output of picitool escapes them.
. tests/cli/common

# all of U+0080 to U+009F, U+061C, U+200B to U+200F, U+202A to U+202E, U+2060 to U+2069, U+FEFF, U+E0001
hidden=$(
    for i in $(seq 128 159); do byte 194 "$i"; done
    byte 216 156
    for i in $(seq 139 143) $(seq 170 174); do byte 226 128 "$i"; done
    for i in $(seq 160 169); do byte 226 129 "$i"; done
    byte 239 187 191 243 160 128 129
)
some=$(byte 226 128 174)$(byte 226 129 166) # U+202E, U+2066

# raw WHAT FILE: fails if the file has one of these characters
raw() {
    if LC_ALL=C grep -q -a -e "$(printf '\302[\200-\237]')" -e "$(printf '\330\234')" \
        -e "$(printf '\342\200[\213-\217\250-\256]')" -e "$(printf '\342\201[\240-\257]')" \
        -e "$(printf '\357\273\277')" -e "$(printf '\363\240\200')" "$2"; then
        fail "$1: has some raw: $(head -c 200 "$2" | LC_ALL=C od -An -c)"
    else
        pass
    fi
}

numbers 300 >n1200
file="f${hidden}f.safetensors"
{ safetensors '{"w'"$hidden"'w":{"dtype":"F32","shape":[10,30],"data_offsets":[0,1200]},
"plain":{"dtype":"U8","shape":[3],"data_offsets":[1200,1203]}}'; cat n1200; printf 'a\0b'; } >"$file"
expect 0 compress "$tool" compress "$file"
expect 0 list "$tool" list "$file.pici"
says list '^f\\xc2\\x80.*\\xe2\\x80\\xae.*\\xe2\\x81\\xa6.*\\xf3\\xa0\\x80\\x81f\.safetensors\.pici: ' "$out"
says list '^w\\xc2\\x80.*\\xe2\\x80\\xae.*\\xe2\\x81\\xa6.*\\xf3\\xa0\\x80\\x81w ' "$out"
raw list "$out"
expect 0 "list of a .safetensors file" "$tool" list "$file"
raw "list of a .safetensors file" "$out"
expect 0 inspect "$tool" inspect "$file"
raw inspect "$out"
expect 0 "inspect of one tensor" "$tool" inspect --tensor "w${hidden}w" "$file"
says "inspect of one tensor" '\\xe2\\x80\\xae' "$out"
raw "inspect of one tensor" "$out"
expect 0 test "$tool" test "$file.pici"
raw test "$out"
expect 0 bench "$tool" bench --reps 1 --tensor "w${hidden}w" "$file"
raw bench "$out"

# JSON: escaped, and the same names when read
for verb in list inspect; do
    expect 0 "$verb --json" "$tool" $verb --json "$file.pici"
    says "$verb --json" '\\u0080.*\\u202e.*\\u2066.*\\ufeff\\udb40\\udc01' "$out"
    raw "$verb --json" "$out"
    cp "$out" $verb.json
done
if command -v python3 >/dev/null 2>&1; then
    python3 - "$hidden" >"$out" 2>&1 <<'END'
import json, sys
for name in "list", "inspect":
    v = json.load(open(name + ".json", encoding="ascii"))
    assert v["file"] == "f%sf.safetensors.pici" % sys.argv[1], v
    assert v["tensors"][0]["name"] == "w%sw" % sys.argv[1], v
END
    [ $? = 0 ] && pass || fail "JSON: $(cat "$out")"
else
    skip "JSON read by another program: no python3"
fi

# errors: of a file's name, of a tensor's, of a suggestion and of a removed tensor of a delta
expect 1 "no such file" "$tool" list "no$hidden"
says "no such file" '\\xe2\\x80\\xae' "$err"
raw "no such file" "$err"
expect 1 "did you mean" "$tool" inspect --tensor "wplai" "$file"
raw "did you mean" "$err"
{ safetensors '{"tensor'"$some"'":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'; printf a; } >near.safetensors
expect 1 "did you mean it" "$tool" inspect --tensor "tensor" near.safetensors
says "did you mean it" 'did you mean tensor\\xe2\\x80\\xae\\xe2\\x81\\xa6\?' "$err"
raw "did you mean it" "$err"
"$tool" compress near.safetensors
size=$(wc -c <near.safetensors.pici)
at=$((size - 1)) # in the trailer; and the chunk of the tensor, found by its name
{ head -c $at near.safetensors.pici; printf x; } >cut.pici
expect 1 "a damaged file" "$tool" test cut.pici
raw "a damaged file" "$err"
at=$(grep -a -b -o "tensor" near.safetensors.pici | tail -n 2 | head -n 1 | cut -d : -f 1)
{ head -c $((at + 20)) near.safetensors.pici; printf '\125\252\125'
    tail -c +$((at + 24)) near.safetensors.pici; } >bad.pici
"$tool" decompress --keep-going -o - bad.pici >/dev/null 2>"$err"
raw "a damaged tensor" "$err"
{ safetensors '{"other":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'; printf a; } >other.safetensors
expect 0 diff "$tool" diff -o d.pici near.safetensors other.safetensors
expect 0 "a removed tensor" "$tool" list d.pici
says "a removed tensor" 'removed: tensor\\xe2' "$out"
raw "a removed tensor" "$out"

# pages and pictures
expect 0 report "$tool" report -o page.html "$file"
says report '<title>f\\xc2\\x80.*\\xe2\\x80\\xae.*</title>' page.html
raw report page.html
expect 0 "an SVG" "$tool" inspect --svg p.svg "$file"
says "an SVG" '>f\\xc2\\x80' p.svg
raw "an SVG" p.svg

# completion offers only what can be shown as it is
expect 0 completion "$tool" --complete inspect "$file" --tensor ''
says completion '^plain	' "$out"
grep -q '^w' "$out" && fail "completion: offers $(cat "$out")" || pass
raw completion "$out"
expect 0 "completion from a .pici file" "$tool" --complete extract "$file.pici" --tensor ''
raw "completion from a .pici file" "$out"

if command -v script >/dev/null 2>&1; then
    { npy 1 "'|u1'" False '(20000000,)'; } >head.npy
    { printf 'cat head.npy; sleep 1.3; head -c 20000000 /dev/zero'; } >slow.sh
    mkfifo "p$some.npy"
    sh slow.sh >"p$some.npy" &
    TERM=xterm script -qec "'$tool' compress -o slow.pici 'p$some.npy'" /dev/null >"$out" 2>&1 </dev/null
    wait $!
    says progress 'p\\xe2\\x80\\xae' "$out"
    raw progress "$out"
else
    skip "progress on a terminal: no script(1)"
fi
clean "after all that"
finish
