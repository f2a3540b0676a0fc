#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Checkpoints in shards: folders of .safetensors files with their index, as one unit. Made of generated tensors, and of
# real ones where ../shared/data is. Whatever is wrong, or killed, nothing is lost and nothing but whole folders appear.
. tests/cli/common
data=$root/../shared/data/nn

if ! python3 -c 'import json' 2>/dev/null; then
    skip "no python3 to make shards with"
    finish
fi

# shards DIR N SEED [FILE.safetensors...]: tensors in N shards, in an order of their own for each N: 42 that are
# generated, or those of the files. Some of their bytes depend on SEED. With 2, one tensor has another name, and one
# another shape.
cat >make.py <<'END'
import json, os, random, struct, sys

def read(path):
    with open(path, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        at = f.tell()
        for name, t in head.items():
            if name != "__metadata__":
                f.seek(at + t["data_offsets"][0])
                yield name, t["dtype"], t["shape"], f.read(t["data_offsets"][1] - t["data_offsets"][0])

def write(path, tensors):
    head, at = {"__metadata__": {"format": "pt"}}, 0
    for name, dtype, shape, data in tensors:
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(t[3] for t in tensors))

def generated():
    fixed = random.Random(7)
    for i in range(40):
        n = fixed.randrange(200, 12000)
        dtype, width = [("BF16", 2), ("F32", 4), ("U8", 1)][i % 3]
        yield f"layer.{i}.w", dtype, [n], fixed.randbytes(n * width) if i % 2 else bytes(n * width)
    yield "empty", "F32", [0, 3], b""
    yield "scalar", "F64", [], struct.pack("<d", 1.5)

folder, count, seed, files = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
change = random.Random(seed)
tensors = [(f"{k}.{n}", d, s, b) for k, f in enumerate(files) for n, d, s, b in read(f)] or list(generated())
for i, (name, dtype, shape, data) in enumerate(tensors):
    data = bytearray(data)
    for _ in range(len(data) // 200 if seed else 0):
        data[change.randrange(len(data))] ^= 1 << change.randrange(2)
    tensors[i] = (name, dtype, shape, bytes(data))
if seed == 2:
    tensors[3] = ("renamed", *tensors[3][1:])
    tensors[5] = (*tensors[5][:2], [1, *tensors[5][2]], tensors[5][3])
random.Random(count).shuffle(tensors)
os.mkdir(folder)
where = {}
for k in range(count):
    name = f"model-{k + 1:05}-of-{count:05}.safetensors"
    part = tensors[k * len(tensors) // count : (k + 1) * len(tensors) // count]
    write(os.path.join(folder, name), part)
    where.update((t[0], name) for t in part)
index = {"metadata": {"total_size": sum(len(t[3]) for t in tensors)}, "weight_map": where}
for name, text in ("model.safetensors.index.json", json.dumps(index, indent=2)), ("config.json", '{"layers": 40}\n'):
    with open(os.path.join(folder, name), "w") as f:
        f.write(text)
with open(os.path.join(folder, "tokenizer.model"), "wb") as f:
    f.write(random.Random(1).randbytes(5000))
open(os.path.join(folder, ".gitattributes"), "w").close()
END
shards() {
    python3 make.py "$@" || fail "make.py $*"
}

alike() { # WHAT FOLDER FOLDER
    if diff -r "$2" "$3" >"$out" 2>&1; then pass; else fail "$1: $(head -c 300 "$out")"; fi
}

refused() { # STATUS WHAT PATTERN COMMAND...: and nothing is left
    r_status=$1 r_what=$2 r_pattern=$3
    shift 3
    ls -A >"$tmp/logs/before"
    expect "$r_status" "$r_what" "$@"
    says "$r_what" "$r_pattern" "$err"
    ls -A >"$tmp/logs/after"
    same "$r_what: what is left" "$tmp/logs/before" "$tmp/logs/after"
}

round() { # WHAT FOLDER
    for threads in 1 3 16; do
        rm -rf x.pici back
        expect 0 "$1: compress" "$tool" compress -T $threads -o x.pici "$2"
        expect 0 "$1: test" "$tool" test -T $threads x.pici
        says "$1: test" '^x.pici: ok$' "$out"
        expect 0 "$1: decompress" "$tool" decompress -T $threads -o back x.pici
        alike "$1: $threads threads" "$2" back
        if [ $threads = 1 ]; then cp -r x.pici first.pici; fi
        alike "$1: compressed with $threads threads" first.pici x.pici
    done
    rm -rf first.pici
    clean "$1"
}

shards a 8 0
round "8 shards" a
shards one 1 0
round "one shard" one
if [ -d "$data" ]; then
    shards real 8 0 "$data"/*.safetensors
    round "8 shards of real tensors" real
    rm -rf real
else
    skip "8 shards of real tensors: no ../shared/data"
fi

# ---- names, permissions, list, inspect
chmod 750 a
expect 0 "name" "$tool" a/
expect 0 "name" "$tool" -t a.pici/
[ "$(stat -c %a a.pici)" = 750 ] && pass || fail "permissions of the folder: $(stat -c %a a.pici)"
refused 2 "it exists" 'a.pici: already exists; not overwritten: --force overwrites it' "$tool" a
expect 0 "--force" "$tool" compress --force a
refused 2 "it exists" 'a: already exists; not overwritten: --force overwrites it' "$tool" -d a.pici
refused 2 "standard output" 'cannot go to standard output' "$tool" compress -c a
refused 2 "--rm" 'is a folder: --rm is for files' "$tool" compress --rm -o b a
refused 2 "--zeros" 'is a folder, which is restored exactly' "$tool" compress --zeros=value -o b a
refused 2 "--keep-going" '--keep-going is for the .pici files in it' "$tool" decompress --keep-going -o b a.pici
cp -r a.pici packed
refused 2 "no .pici" 'packed: does not end in .pici' "$tool" decompress packed/
rm -rf packed
refused 2 "compressed again" 'a.pici: is compressed: picitool decompress restores it' "$tool" compress a.pici
refused 2 "not compressed" 'a: is an uncompressed checkpoint' "$tool" decompress -o b a
for f in a a.pici; do
    expect 0 "list $f" "$tool" list $f
    says "list $f" "^$f: (checkpoint|compressed) in 8 shards, .* 42 tensors$" "$out"
    says "list $f" '^layer.39.w  bf16 ' "$out"
    expect 0 "list --json $f" "$tool" list --json $f
    python3 - "$out" <<'END' && pass || fail "list --json $f"
import json, sys
tensors = json.load(open(sys.argv[1]))["tensors"]
where = json.load(open("a/model.safetensors.index.json"))["weight_map"]
sys.exit({t["name"]: t["shard"] for t in tensors} != where)
END
    expect 0 "inspect $f" "$tool" inspect $f
    says "inspect $f" "^$f/model-00008-of-00008.safetensors" "$out"
    for name in layer.0.w layer.39.w scalar; do # in any of the shards
        expect 0 "inspect of $name of $f" "$tool" inspect --json --tensor $name $f
        python3 -c 'import json, sys; sys.exit([t["name"] for t in json.load(sys.stdin)["tensors"]] != sys.argv[1:])' \
            $name <"$out" && pass || fail "inspect of $name of $f: $(head -c 300 "$out")"
    done
    expect 0 "a picture of a tensor of $f" "$tool" inspect --force --tensor layer.1.w --svg picture.svg $f
    refused 1 "inspect of no tensor of $f" "$f: has no tensor layer.39.v; did you mean layer.39.w" \
        "$tool" inspect --tensor layer.39.v $f
    expect 0 "test $f" "$tool" test $f
done

# ---- what is replaced is a folder of this kind
mkdir other && echo 1 >other/notes
refused 2 "another folder" 'other: not replaced: it is not a checkpoint' "$tool" compress --force -o other a
mkdir other/sub
refused 2 "a folder with folders" 'other: not replaced: it (has folders|is not a checkpoint)' \
    "$tool" compress --force -o other a
echo 1 >file
refused 2 "a file" 'file: exists and is not a folder' "$tool" compress --force -o file a
rm file
ln -s a link
refused 2 "a link" 'link: exists and is not a folder' "$tool" decompress --force -o link a.pici
refused 1 "no place" 'nowhere: No such file' "$tool" compress -o nowhere/x a
same "another folder" other/notes other/notes
rm -rf other link

# ---- bad checkpoints
bad() { # WHAT PATTERN: of the folder b, which is then a copy of a again
    refused "${3:-1}" "$1" "$2" "$tool" compress -T 4 -o c b
    rm -rf b && cp -r a b
}
index=b/model.safetensors.index.json
cp -r a b

# stale WHAT PATTERN: of the folder b, which is then a copy of a again; a warning, and all bytes come back
stale() {
    "$tool" compress -T 4 -o c b >"$out" 2>"$err"
    judge_stale $? "$1"
    says "$1" "^picitool: $index: warning: is (out of date|not an index of shards): .*$2" "$err"
    [ "$(wc -l <"$err")" = 1 ] && pass || fail "$1: $(cat "$err")"
    expect 0 "$1: decompress" "$tool" decompress -o back2 c
    alike "$1" b back2
    rm -rf c back2 b
    cp -r a b
}
judge_stale() {
    [ "$1" = 0 ] && pass || fail "$2: exit status $1: $(cat "$err")"
}
rm b/model-00003-of-00008.safetensors
bad "a shard is missing" 'b/model-00003-of-00008.safetensors: is missing'
head -c 9000 a/model-00003-of-00008.safetensors >b/model-00003-of-00008.safetensors
bad "a shard is cut" 'b/model-00003-of-00008.safetensors: offset .*the file ends'
printf '\377' | dd of=b/model-00003-of-00008.safetensors bs=1 seek=20 conv=notrunc 2>"$err"
bad "a shard is damaged" 'b/model-00003-of-00008.safetensors: offset '
cp a/model-00001-of-00008.safetensors b/model-00003-of-00008.safetensors
stale "a tensor in two shards" "tensor '.*' is not in model-00003-of-00008.safetensors; it is kept unchanged"
sed -i 's/"layer.7.w"/"layer.7.x"/' $index
stale "a tensor of another name" "tensor 'layer.7.x' is not in model-"
sed -i 's/"layer.7.w": [^,]*,//' $index
stale "a tensor less" "tensor 'layer.7.w' is also in model-"
sed -i 's/"layer.7.w"/"layer.77.w": "model-00001-of-00008.safetensors", &/' $index
stale "a tensor that no shard has" "tensor 'layer.77.w' is not in model-00001-of-00008.safetensors"
sed -i 's/"layer.7.w"/"layer.8.w": "model-00001-of-00008.safetensors", &/' $index
stale "a tensor twice" "offset [0-9]+: tensor 'layer.8.w' occurs twice; it is kept unchanged"
sed -i 's|"model-00002-of|"../model-00002-of|' $index
stale "a shard in another folder" "'../model-00002-of-00008.safetensors' is not the name of a shard: it has a slash"
sed -i 's|"model-00002-of[^"]*"|".."|' $index
stale "a shard that is a folder" "'..' is not the name of a shard"
rm b/model-0000*
shards m 1 0
mv m/model-00001-of-00001.safetensors b/model.safetensors
stale "one file in place of all, with the index of before" "tensor '.*' is not in model-0000.-of-00008.safetensors"
long=$(printf '%0224d' 0).safetensors
mv b/model-00002-of-00008.safetensors "b/$long"
sed -i "s|model-00002-of-00008.safetensors|$long|" $index
bad "a name that is too long with .pici" "b: has $long, stored as .pici under a name of 241 bytes: rename it"
sed -i 's|weight_map|weights|' $index
stale "no map" "without 'weight_map'"
head -c 300 a/model.safetensors.index.json >$index
stale "a cut index" "offset 300: the JSON text ends"
rm b/*.safetensors
bad "no shards" 'model-0000.-of-00008.safetensors: is missing|is a directory without .safetensors or .distcp files'
rm b/config.json && ln -s ../nothing b/config.json
bad "a link to nothing" 'b/config.json: No such file'
rm b/config.json && ln -s ../a b/config.json
bad "a link to a folder" 'b/config.json: is a symbolic link to a folder'
mkfifo b/pipe
bad "a pipe" 'b/pipe: is not a regular file'
: >b/pici-folder
bad "an empty list" 'b/pici-folder: offset 0: not the list of a folder'
: >b/model-00003-of-00008.safetensors.pici
bad "a name that is taken" 'and also model-00003-of-00008.safetensors.pici, the name that its compressed file needs'
: >b/.pici-1
bad "a temporary file" 'b/.pici-1: temporary files begin so'
sed -i 's/"total_size": [0-9]*/"total_size": 7/' $index
expect 0 "another total_size" "$tool" compress -q -o c b
"$tool" compress --force -o c b 2>"$err"
says "another total_size" 'warning: model.safetensors.index.json says that the tensors have 7 bytes' "$err"
rm -rf b c

# ---- as a cache of downloads has it: links to files; and the folders of other programs
mkdir b && ln -s "$PWD"/a/* "$PWD"/a/.gitattributes b
mkdir b/.git && echo 1 >b/.git/HEAD
refused 2 "in place of a folder with folders" 'b: not replaced: it has folders that the new one lacks, such as .git;' \
    "$tool" decompress --force -o b a.pici
expect 0 "links" "$tool" compress -o c b
alike "links" a.pici c
rm -rf back
mkdir c/.cache
expect 0 "beside .cache" "$tool" decompress -o back c
alike "beside .cache" a back
rm -rf b c back

# ---- bad compressed folders: each file is cut, changed, left out
cp -r a.pici keep
for f in a.pici/* a.pici/.gitattributes; do
    n=${f#a.pici/}
    rm "$f"
    refused 1 "$n is missing" "is missing: (pici-folder names it|the folder has files)" "$tool" decompress -o c a.pici
    cp -r keep/. a.pici
    [ -s "$f" ] || continue
    size=$(wc -c <"$f")
    head -c $((size - 1)) "keep/$n" >"$f"
    refused 1 "$n is cut" "$n: " "$tool" decompress -o c a.pici
    at=$((size * 7 / 11))
    was=$(od -An -tu1 -j $at -N 1 "keep/$n")
    { head -c $at "keep/$n"; byte $((was ^ 1)); tail -c +$((at + 2)) "keep/$n"; } >"$f"
    refused 1 "$n is changed" "$n: " "$tool" decompress -T 8 -o c a.pici
    refused 1 "$n is changed: test" "$n: " "$tool" test -T 8 a.pici
    cp "keep/$n" "$f"
done
cp keep/model-00001-of-00008.safetensors.pici a.pici/more.pici
refused 1 "a file more" 'a.pici/more.pici: is not in pici-folder' "$tool" decompress -o c a.pici
rm a.pici/more.pici
shards d 8 1
expect 0 "another state" "$tool" compress -o d.pici d
cp d.pici/model-00002-of-00008.safetensors.pici a.pici
"$tool" decompress -o c a.pici 2>"$err" && fail "a shard of another state" || pass
absent "a shard of another state" c
rm -rf a.pici d.pici
mv keep a.pici

# ---- deltas, also between shardings: tensors are found by name
delta() { # WHAT BASE NEW [OPTION...]
    d_what=$1 d_base=$2 d_new=$3
    shift 3
    for threads in 1 5; do
        rm -rf x.delta back
        expect 0 "$d_what: diff" "$tool" diff -T $threads "$@" -o x.delta "$d_base" "$d_new"
        expect 0 "$d_what: test" "$tool" test -T $threads x.delta
        expect 0 "$d_what: apply" "$tool" apply -T $threads -o back "$d_base" x.delta
        alike "$d_what" "$d_new" back
        if [ $threads = 1 ]; then cp -r x.delta first.delta; fi
        alike "$d_what: with $threads threads" first.delta x.delta
    done
    rm -rf first.delta
}
shards e 5 2
shards one2 1 1
delta "8 to 8 shards" a d
if grep -aq 'delta\.base' x.delta/model-00002-of-00008.safetensors.pici; then pass; else fail "what does not change"; fi
refused 1 "another sharding" 'e: not the base of x.delta: has no model-00001-of-00008.safetensors' \
    "$tool" apply -o y e x.delta
delta "8 to 5 shards" a e
says "8 to 5 shards" '^same [0-9]+ [0-9a-f]{16} tokenizer.model$' x.delta/pici-folder
expect 0 "list" "$tool" list x.delta
says "list" '^x.delta: delta in 5 shards, .* 47 tensors$' "$out"
says "list" '^[0-9]+ xor, [0-9]+ small, 1 added, 1 replaced, 1 removed: layer.3.w$' "$out"
delta "5 to 8 shards" e a --fast
delta "one to 5 shards" one e --small
delta "5 shards to one" e one2
delta "no change" a a
for f in x.delta/*.safetensors.pici; do
    bytes=$(wc -c <"$f")
    if [ "$bytes" -lt 700 ]; then pass; else fail "no change: $f has $bytes bytes"; fi
done
if [ -d "$data" ]; then
    shards real 8 0 "$data"/*.safetensors
    shards real2 3 1 "$data"/*.safetensors
    delta "8 to 3 shards of real tensors" real real2
    delta "3 to 8 shards of real tensors" real2 real
fi

"$tool" diff -o x.delta --force a e
refused 2 "it exists" 'x.delta: already exists; not overwritten: --force overwrites it' "$tool" diff -o x.delta a e
refused 2 "onto the base" 'a: is the base' "$tool" diff --force -o a a e
refused 2 "onto the new one" 'e: is the input' "$tool" diff --force -o e a e
refused 2 "a file and a folder" 'a/config.json: is a file, and e is a folder' "$tool" diff -o y a/config.json e
refused 2 "a folder and a file" 'e/config.json: is a file, and a is a folder' "$tool" apply -o y a e/config.json
refused 2 "the base is compressed" 'a.pici: is compressed' "$tool" diff -o y a.pici e
refused 2 "the base is a delta" 'x.delta: is a delta: picitool apply applies it' "$tool" diff -o y x.delta e
refused 2 "no delta" 'a.pici: is compressed, not a delta' "$tool" apply -o y a a.pici
refused 2 "no delta" 'e: is an uncompressed checkpoint, not a delta' "$tool" apply -o y a e
refused 2 "two deltas" 'one delta at a time' "$tool" apply -o y a x.delta x.delta
refused 1 "decompress a delta" 'x.delta: is a delta: restore it with picitool apply' "$tool" decompress -o y x.delta
refused 2 "compress a delta" 'x.delta: is a delta' "$tool" compress -o y x.delta
refused 2 "onto the base" 'a: is the base: use --in-place' "$tool" apply --force -o a a x.delta
refused 1 "another base" "d: not the base of x.delta/.*: tensor '.*': its XXH64 is" "$tool" apply -o y d x.delta
refused 1 "another base in place" 'd: not the base of x.delta' "$tool" apply --in-place d x.delta
cp -r a b
echo 1 >b/tokenizer.model
refused 1 "another file" 'b/tokenizer.model: is the wrong file, or damaged: it has 2 bytes of XXH64' \
    "$tool" apply -o y b x.delta
rm b/tokenizer.model
refused 1 "a file less" 'b: not the base of x.delta: has no tokenizer.model' "$tool" apply -o y b x.delta
rm b/model-00004-of-00008.safetensors
refused 1 "a shard less" 'b/model-00004-of-00008.safetensors: is missing' "$tool" apply -o y b x.delta
rm -rf b
cp -r x.delta keep.delta
for f in x.delta/*; do
    n=${f#x.delta/}
    size=$(wc -c <"$f")
    at=$((size * 5 / 11))
    was=$(od -An -tu1 -j $at -N 1 "keep.delta/$n")
    { head -c $at "keep.delta/$n"; byte $((was ^ 1)); tail -c +$((at + 2)) "keep.delta/$n"; } >"$f"
    refused 1 "$n is changed" "$n: " "$tool" apply -o y a x.delta
    refused 1 "$n is changed: test" "$n: " "$tool" test x.delta
    refused 1 "$n is changed: test --json" "$n: " "$tool" test --json -T 4 x.delta
    says "$n is changed: test --json" '"error": *"[^"]' "$out"
    cp "keep.delta/$n" "$f"
done
cp x.delta/model-00001-of-00005.safetensors.pici x.delta/model-00002-of-00005.safetensors.pici
refused 1 "deltas are swapped" 'has another size than|is not the delta' "$tool" apply -o y a x.delta
rm -rf x.delta
mv keep.delta x.delta
cp -r a now
echo mine >now/notes.txt
"$tool" apply --in-place now x.delta 2>"$err"
says "in place" '^picitool: now/notes.txt: warning: is not in the result, and is removed$' "$err"
[ "$(grep -c warning "$err")" = 1 ] && pass || fail "in place: $(cat "$err")"
alike "in place" e now
expect 0 "in place again" "$tool" apply --in-place now x.delta
alike "in place again" e now
clean "deltas"

# ---- more shards than the process may have files open, also of one that all of them are in
few() { # COMMAND...
    # shellcheck disable=SC3045
    (ulimit -n 32 && exec "$@")
}
python3 - <<'END'
import json, os, struct
def checkpoint(folder, shards, step):
    os.mkdir(folder)
    where = {}
    for k, first in enumerate(range(0, 100, 100 // shards)):
        name, head, data = f"model-{k}.safetensors", {}, b""
        for t in range(first, first + 100 // shards):
            head[f"t{t}"] = {"dtype": "F32", "shape": [4], "data_offsets": [len(data), len(data) + 16]}
            data += struct.pack("<4f", t, step, 0, 0)
            where[f"t{t}"] = name
        text = json.dumps(head).encode()
        with open(f"{folder}/{name}", "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + data)
    with open(f"{folder}/model.safetensors.index.json", "w") as f:
        json.dump({"weight_map": where}, f)
checkpoint("many", 100, 0)
checkpoint("many2", 100, 1)
checkpoint("whole", 1, 2)
END
chmod 640 many/model-77.safetensors
for pair in "many many2" "many whole" "whole many2"; do
    base=${pair% *} next=${pair#* } mode=640
    [ $base = many ] || mode=644
    rm -rf x.delta back
    expect 0 "few descriptors: diff $pair" few "$tool" diff -T 2 -o x.delta $base $next
    expect 0 "few descriptors: test" few "$tool" test -T 2 x.delta
    expect 0 "few descriptors: list" few "$tool" list x.delta
    expect 0 "few descriptors: apply $pair" few "$tool" apply -T 2 -o back $base x.delta
    alike "few descriptors: $pair" $next back
    for f in x.delta/model-0.safetensors.pici back/model-0.safetensors; do
        is=$(stat -c %a $f)
        [ "$is" = $mode ] && pass || fail "$f: what all shards of $base permit is $mode, not $is"
    done
done
expect 0 "few descriptors: compress" few "$tool" compress -T 2 -o x.pici --force many
expect 0 "few descriptors: decompress" few "$tool" decompress -T 2 -o back --force x.pici
alike "few descriptors: compress" many back
rm -rf many many2 whole x.delta back

# ---- killed at any time: the folder that there was, or a whole new one; with the real tensors, where they are
points=20 i=0
[ -z "${PICI_TEST_FULL:-}" ] || points=200
base=a next=e
[ ! -d "$data" ] || base=real next=real2
rm -rf now new base.pici next.pici delta
expect 0 "what those killed start from" "$tool" compress -o base.pici $base
expect 0 "what those killed start from" "$tool" compress -o next.pici $next
expect 0 "what those killed start from" "$tool" diff -o delta $base $next

# made VERB WANT COMMAND...: the folder new is not there, or it is WANT
made() {
    m_verb=$1 m_want=$2
    shift 2
    rm -rf new
    [ $i -gt 0 ] && kill_at $i "$m_verb" "$@"
    if [ -e new ]; then
        was "$m_verb" after
    else
        [ $i = 0 ] || was "$m_verb" before
        timed "$m_verb" "$@"
    fi
    alike "$m_verb was killed" "$m_want" new
    rm -rf new .pici-*
}

# replaced VERB OLD WANT COMMAND...: the folder now is OLD, or it is WANT
replaced() {
    r_verb=$1 r_old=$2 r_want=$3
    shift 3
    rm -rf now
    cp -r "$r_old" now
    [ $i -gt 0 ] && kill_at $i "$r_verb" "$@"
    if diff -r "$r_old" now >"$out" 2>&1; then
        [ $i = 0 ] || was "$r_verb" before
        timed "$r_verb" "$@"
    else
        was "$r_verb" after
    fi
    alike "$r_verb was killed" "$r_want" now
    rm -rf .pici-*
}

while [ $i -le $points ]; do # the first time, 0, they are only timed
    made compress base.pici "$tool" compress -T 2 -o new $base
    made decompress $base "$tool" decompress -T 2 -o new base.pici
    made diff delta "$tool" diff -T 2 -o new $base $next
    made apply $next "$tool" apply -T 2 -o new $base delta
    replaced decompress-force $base $next "$tool" decompress --force -T 2 -o now next.pici
    replaced apply-in-place $base $next "$tool" apply --in-place -T 2 now delta
    i=$((i + 1))
done
kills_spread compress decompress diff apply decompress-force apply-in-place

# While one folder is exchanged for another, there always is one.
rm -rf now seen
cp -r a now
: >watching
while [ -e watching ]; do
    [ -e now ] || : >seen
done &
watcher=$!
for next in d e a d e a d e a d; do
    rm -rf x.pici
    "$tool" compress -q -o x.pici $next
    expect 0 "exchange" "$tool" decompress --force -o now x.pici
done
rm watching
wait $watcher
absent "no folder while it is exchanged" seen
alike "exchanged" d now

# Progress over all files together is one line, which ends with the run. Stopped in the middle, so that it takes more
# than a second on any machine.
if [ "${ZSTD:-}" = 1 ] && command -v script >/dev/null 2>&1; then
    python3 - <<'END'
import json, os, struct
os.mkdir("big")
where = {}
for k in range(3):
    where[f"t{k}"] = name = f"model-{k}.safetensors"
    text = json.dumps({f"t{k}": {"dtype": "U8", "shape": [3000000], "data_offsets": [0, 3000000]}}).encode()
    with open(f"big/{name}", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + os.urandom(3000000))
with open("big/model.safetensors.index.json", "w") as f:
    json.dump({"weight_map": where}, f)
END
    printf '%s compress -T 3 --zstd=19 -o big.pici big &\n' "$tool" >stop.sh
    # shellcheck disable=SC2016
    echo 'for k in 1 2; do sleep 0.1; kill -STOP $!; sleep 1.2; kill -CONT $!; done; wait $!' >>stop.sh
    TERM=xterm script -qec "sh stop.sh" /dev/null >"$out" 2>&1 </dev/null
    tr '\r' '\n' <"$out" >seen
    says "rate and time left of a folder" '^big  .* [KM]iB/s  [0-9]+%  [0-9]+ s left' seen
    grep 'model-' seen && fail "progress of one file of several" || pass
    says "the line is gone at the end" "^$(printf '\033')\[Kbig : .* -> .*big.pici" seen
    expect 0 "after progress" "$tool" test big.pici
    rm -rf big big.pici seen
else
    skip "progress over a folder: no zstd, and so nothing slow, or no script(1)"
fi

# A signal that can be caught leaves nothing behind.
i=0
while [ $i -lt 10 ]; do
    i=$((i + 1))
    rm -rf new
    "$tool" compress -T 4 -o new a >"$out" 2>"$err" &
    pid=$!
    left=$((i * 700))
    while [ $left -gt 0 ]; do
        left=$((left - 1))
    done
    kill -TERM $pid 2>/dev/null
    wait $pid 2>/dev/null
    clean "SIGTERM"
done
finish
