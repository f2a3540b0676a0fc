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

# ---- controls, of every string that another program may have written: what is printed has none but newlines
esc=$(byte 27)
evil="e${esc}[31m${esc}]0;t$(byte 7)$(byte 194 155)"

# tame WHAT STATUS COMMAND...: fails if the command exits otherwise, or prints a control or a hidden character
tame() {
    t_what=$1 t_want=$2
    shift 2
    "$@" >"$out" 2>"$err" </dev/null
    t_is=$?
    [ $t_is = "$t_want" ] && pass || fail "$t_what: exit status $t_is, not $t_want: $(head -c 300 "$err" | od -An -c)"
    cat "$out" "$err" >"$tmp/logs/both"
    if LC_ALL=C tr -d '\n\040-\377' <"$tmp/logs/both" | grep >/dev/null -a .; then
        fail "$t_what: prints controls: $(head -c 300 "$tmp/logs/both" | LC_ALL=C od -An -c)"
    else
        pass
    fi
    raw "$t_what" "$tmp/logs/both"
}

# a log, whose base has the extension of the file that it was made from
{ npy 1 "'|u1'" False '(3,)'; printf abc; } >"a.${esc}[31mX"
{ npy 1 "'|u1'" False '(3,)'; printf abd; } >"b.${esc}[31mX"
tame "log init" 0 "$tool" log init log "a.${esc}[31mX"
tame "log append" 0 "$tool" log append --type npy log "a.${esc}[31mX" "b.${esc}[31mX"
tame "log list" 0 "$tool" log list log
says "log list" '^state 0: base-000000000\.\\x1b\[31mX, ' "$out"
rm log/base*
tame "a log without its base" 1 "$tool" log apply log new
says "a log without its base" 'base-000000000\.\\x1b\[31mX: ' "$err"
tame "log compact" 1 "$tool" log compact log
{ printf 'pici-log 1\nfirst %s\n' "$evil"; tail -c 21 log/manifest; } >bad
mv bad log/manifest
tame "a manifest" 1 "$tool" log list log

# the index of a folder: names of tensors and of files
mkdir folder
one=model-00001-of-00001.safetensors
index=folder/model.safetensors.index.json
json=e'\u001b[31m\u0007\u009b\u202e'
{ safetensors '{"w'$json'":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'; printf a; } >folder/$one
echo '{"weight_map":{"w'$json'":"'$one'"}}' >$index
tame "list of a folder" 0 "$tool" list folder
tame "inspect of a folder" 0 "$tool" inspect folder
tame "compress of a folder" 0 "$tool" compress -v folder
tame "list of a compressed folder" 0 "$tool" list folder.pici
tame "test of a compressed folder" 0 "$tool" test -v folder.pici
for map in '"w":"x'$json'.safetensors"' '"v'$json'":"'$one'"' '"w'$json'":"x.safetensors"' \
    '"a'$json'":"'$one'","a'$json'":"'$one'"' '"a'$json'":3' '"a'$json'":"b"' "\"$evil\":\"$one\""; do
    echo '{"weight_map":{'"$map"'}}' >$index
    tame "the index $map" 0 "$tool" compress --force folder
    says "the index $map" 'index.json: warning: ' "$err"
    tame "list by the index $map" 0 "$tool" list folder
done
{ safetensors '{"v'$json'":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'; printf a; } >folder/$one
echo '{"weight_map":{"w'$json'":"'$one'"}}' >$index
tame "a tensor of another name" 0 "$tool" compress --force folder
says "a tensor of another name" "tensor 'we.x1b" "$err"
echo '{"weight_map":{"w'$json'":"x.safetensors"}}' >$index
tame "a tensor in no file" 1 "$tool" compress --force folder

# the list of a folder that picitool made, and names in the folder
touch "folder.pici/$evil"
tame "a file with a name of controls" 1 "$tool" decompress -o back folder.pici
rm "folder.pici/$evil"
list=folder.pici/pici-folder
cp $list kept
for line in "file 1 0000000000000000 $evil" "$evil 1 2"; do
    { head -n 1 kept; echo "$line"; tail -n 1 kept; } >$list
    tame "the list $line" 1 "$tool" list folder.pici
    tame "decompress by the list $line" 1 "$tool" decompress -o back folder.pici
done

# tune files, of which words are quoted in errors
{ echo 'pici-tune 1'; echo "made 2026-11-22T20:10:00Z library \"$(byte 194 155)31m\" cpu \"x\" x"; } >a.tune
{ echo 'pici-tune 1'; echo "$evil"; } >b.tune
{ echo 'pici-tune 1'; echo "\"$(byte 194 155)31m$some\" 1"; } >c.tune
{ echo 'pici-tune 1'; echo "agree 1 ranks \"$(byte 194 155)31m$some\""; } >d.tune
pici_tune=$(dirname "$tool")/mpi/pici-tune
for tune in a b c d; do
    tame "tune file $tune" 1 "$tool" predict --tune $tune.tune
    cp $tune.tune "$evil.tune"
    tame "tune file $tune of another name" 1 "$tool" predict --tune "$evil.tune"
    [ ! -x "$pici_tune" ] || tame "pici-tune of $tune" 1 "$pici_tune" --report "$evil.tune"
done
says "a quoted word" '\\xc2\\x9b31m' "$err"

# other files: archives, text of a header, dtypes, and what is left of their names after they are compressed
if command -v python3 >/dev/null 2>&1; then
    python3 - <<'END'
import struct, zipfile, zlib
evil = "e\x1b[31m\x1b]0;t\x07\x9b\u202e"
def array(descr, data=b"abc", shape="(3,)"):
    head = "{'descr': %s, 'fortran_order': False, 'shape': %s, }\n" % (descr, shape)
    return b"\x93NUMPY\3\0" + struct.pack("<I", len(head.encode())) + head.encode() + data
with zipfile.ZipFile("e.npz", "w") as z:
    z.writestr(evil + ".npy", array("'|u1'"))
    z.writestr(evil, b"no array")
open("e.npy", "wb").write(array("[('%s', '|u1')]" % evil))
def text(s):
    return b"X" + struct.pack("<I", len(s.encode())) + s.encode()
store = b"(" + text("storage") + b"ctorch\nByteStorage\n" + text("0") + text("cpu") + b"K\3tQ"
for name, offset, shape, stride in ("whole", 0, 3, 1), ("view", 1, 2, 1):
    both = b""
    for n, (o, m) in (evil, (0, 3)), (evil + "2", (offset, shape)):
        both += text(n) + b"ctorch._utils\n_rebuild_tensor_v2\n(" + store
        both += b"K%c(K%ct(K\1t\x89ccollections\nOrderedDict\n)RtR" % (o, m)
    with zipfile.ZipFile("e-%s.pt" % name, "w") as z:
        z.writestr("a/data.pkl", b"\x80\2}(" + both + b"u.")
        z.writestr("a/data/0", b"abc")
        z.writestr("a/" + evil, b"x")
END
    for f in e.npz e.npy e-whole.pt e-view.pt; do
        for verb in list inspect; do
            "$tool" $verb $f >/dev/null 2>&1
            tame "$verb $f" $? "$tool" $verb $f
        done
        rm -f $f.pici
        "$tool" compress -q $f >/dev/null 2>&1
        is=$?
        tame "compress $f" $is "$tool" compress -v --force $f
        [ $is = 0 ] || continue
        for verb in list inspect "test -v" "inspect --tensor e${esc}"; do
            # shellcheck disable=SC2086 # words
            "$tool" $verb $f.pici >/dev/null 2>&1
            # shellcheck disable=SC2086
            tame "$verb $f.pici" $? "$tool" $verb $f.pici
        done
    done
else
    skip "archives with controls in their names: no python3"
fi

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
