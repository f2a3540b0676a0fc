#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Folders as people have them: one model.safetensors with its configuration, a LoRA adapter, a model of several parts in
# folders of their own, a distributed checkpoint of torch. All bytes come back, also through deltas. tests/cli/shards.sh
# has checkpoints in shards, and what is refused.
. tests/cli/common

# tensors SEED NAME...: a .safetensors file with tensors of these names, 300 floats each
numbers 300 >n1200
tensors() {
    t_seed=$1 t_text='' t_at=0
    shift
    for t_name in "$@"; do
        t_text="$t_text${t_text:+,}\"$t_name\":{\"dtype\":\"F32\",\"shape\":[300],"
        t_text="$t_text\"data_offsets\":[$t_at,$((t_at + 1200))]}"
        t_at=$((t_at + 1200))
    done
    safetensors "{$t_text}"
    for t_name in "$@"; do
        tr '\001\002\003' "$t_seed$t_seed$t_seed" <n1200
    done
}

alike() { # WHAT FOLDER FOLDER
    if diff -r "$2" "$3" >"$out" 2>&1; then pass; else fail "$1: $(head -c 300 "$out")"; fi
}

round() { # WHAT FOLDER
    for threads in 1 8; do
        rm -rf x.pici back
        expect 0 "$1: compress" "$tool" compress -T $threads -o x.pici "$2"
        expect 0 "$1: test" "$tool" test -T $threads x.pici
        expect 0 "$1: list" "$tool" list x.pici
        expect 0 "$1: list of the original" "$tool" list "$2"
        expect 0 "$1: decompress" "$tool" decompress -T $threads -o back x.pici
        alike "$1" "$2" back
        expect 0 "$1: again" "$tool" decompress --force -o back x.pici
        alike "$1: again" "$2" back
        expect 0 "$1: compressed again" "$tool" compress --force -o x.pici "$2"
    done
    clean "$1"
}

delta() { # WHAT BASE NEW
    rm -rf x.delta back now
    expect 0 "$1: diff" "$tool" diff -o x.delta "$2" "$3"
    expect 0 "$1: test" "$tool" test x.delta
    expect 0 "$1: apply" "$tool" apply -o back "$2" x.delta
    alike "$1" "$3" back
    cp -r "$2" now
    expect 0 "$1: in place" "$tool" apply -q --in-place now x.delta
    alike "$1: in place" "$3" now
    expect 0 "$1: in place again" "$tool" apply --in-place now x.delta
}

# ---- one file, an adapter
mkdir one lora
tensors a model.a model.b >one/model.safetensors
echo '{"layers": 2}' >one/config.json
tensors a base.lora_A base.lora_B >lora/adapter_model.safetensors
echo '{"r": 8}' >lora/adapter_config.json
round "one file" one
says "one file" 'shard [0-9]+ .* model.safetensors$' x.pici/pici-folder
says "one file" '^pici-folder 1 compressed$' x.pici/pici-folder
expect 0 "list of one file" "$tool" list x.pici
says "list of one file" '^x.pici: compressed in 1 shard, ' "$out"
round "an adapter" lora
cp -r one two
tensors b model.a model.c >two/model.safetensors
delta "one file" one two
expect 0 "what it removes" "$tool" list x.delta
says "what it removes" '1 added, .* 1 removed: model.b$' "$out"

# ---- a model of several parts: the same names in several files
parts() { # SEED FOLDER
    mkdir -p "$2/unet" "$2/vae/fp16" "$2/scheduler" "$2/.cache/huggingface" "$2/empty/$1"
    tensors "$1" conv.w conv.b mid.w >"$2/unet/diffusion.safetensors"
    tensors b conv.w conv.b >"$2/vae/vae.safetensors"
    tensors "$1" conv.w >"$2/vae/fp16/vae.safetensors"
    echo '{"steps": 50}' >"$2/scheduler/config.json"
    echo '{}' >"$2/model_index.json"
    echo 1 >"$2/.cache/huggingface/lock"
    chmod 700 "$2/vae"
}
parts a pipe
rm -rf x.pici
expect 0 "hidden folders are left out" "$tool" compress -o x.pici pipe
absent "hidden folders are left out" x.pici/.cache
rm -r pipe/.cache
round "several parts" pipe
says "several parts" '^pici-folder 2 compressed$' x.pici/pici-folder
[ "$(stat -c %a x.pici/vae back/vae back/unet | tr '\n' ' ')" = "700 700 $(stat -c %a pipe/unet) " ] && pass ||
    fail "permissions of the folders below: $(stat -c %a x.pici/vae back/vae back/unet)"
mkdir -p back/mine/too
expect 0 "a folder without files" "$tool" decompress --force -o back x.pici
absent "a folder without files" back/mine
mkdir back/mine
echo 1 >back/mine/notes
expect 2 "a folder that the new one has not" "$tool" decompress --force -o back x.pici
says "a folder that the new one has not" 'back: not replaced: .* folders that the new one lacks, such as mine;' "$err"
[ -e back/mine/notes ] && pass || fail "a folder that the new one has not is gone"
rm -r back/mine
for name in pici-folder unet/diffusion.safetensors.pici "$(printf 'a\tb')"; do
    mkdir -p "odd/$name" odd/unet
    tensors a w >odd/unet/diffusion.safetensors
    expect 1 "a folder of that name: $name" "$tool" compress -o y odd
    says "a folder of that name: $name" '^picitool: odd' "$err"
    absent "a folder of that name: $name" y
    rm -r odd
done
mkdir x.pici/model_index.json.d x.pici/unet/diffusion.safetensors
expect 1 "a folder in place of a shard" "$tool" decompress -o y x.pici
says "a folder in place of a shard" 'x.pici/unet/diffusion.safetensors: is a folder: pici-folder names a file' "$err"
rmdir x.pici/model_index.json.d x.pici/unet/diffusion.safetensors
ln -s ../one back/linked
expect 1 "a link to a folder" "$tool" compress -o y back
says "a link to a folder" 'back/linked: is a symbolic link to a folder' "$err"
absent "a link to a folder" y
parts c pipe2
rm -r pipe2/.cache
tensors c more.w conv.w >pipe2/unet/diffusion.safetensors
find pipe pipe2 -exec touch -d '2019-02-03 04:05:06' {} +
find pipe2 -type d -exec touch -d '2020-02-03 04:05:06' {} +
touch -d '2021-02-03 04:05:06' pipe2/unet/diffusion.safetensors pipe2/empty/c
delta "several parts" pipe pipe2
for f in . unet unet/diffusion.safetensors vae/fp16 empty/c; do
    [ "$(stat -c %Y back/$f)" = "$(stat -c %Y pipe2/$f)" ] && pass || fail "the time of $f: $(stat -c %y back/$f)"
done
absent "a folder without files" back/empty/a
rm pipe2/scheduler/config.json
rmdir pipe2/scheduler
delta "several parts, and a file less" pipe pipe2
delta "one to several parts" one pipe

# what is damaged or missing, below
rm -rf x.pici
expect 0 "several parts" "$tool" compress -o x.pici pipe
f=x.pici/vae/vae.safetensors.pici
mv $f kept
expect 1 "a file is missing below" "$tool" decompress -o y x.pici
says "a file is missing below" 'x.pici/vae/vae.safetensors.pici: is missing: pici-folder names it' "$err"
{ head -c 300 kept; printf '\125'; tail -c +302 kept; } >$f
expect 1 "a file is damaged below" "$tool" decompress -o y x.pici
expect 1 "a file is damaged below" "$tool" test x.pici
mv kept $f
cp $f x.pici/unet
expect 1 "a file more below" "$tool" decompress -o y x.pici
says "a file more below" 'x.pici/unet/vae.safetensors.pici: is not in pici-folder' "$err"
rm x.pici/unet/vae.safetensors.pici
mv x.pici/vae elsewhere
ln -s ../elsewhere x.pici/vae
expect 1 "a folder below is a link" "$tool" decompress -o y x.pici
says "a folder below is a link" 'x.pici/vae: is a symbolic link to a folder' "$err"
absent "what is damaged below" y
rm -rf x.pici elsewhere

# an index in a folder below
mkdir -p deep/original
tensors a w.a >deep/original/model-00001-of-00002.safetensors
tensors a w.b >deep/original/model-00002-of-00002.safetensors
echo '{"metadata":{"total_size":2400},"weight_map":{"w.a":"model-00001-of-00002.safetensors",
"w.b":"model-00002-of-00002.safetensors"}}' >deep/original/model.safetensors.index.json
round "an index below" deep
tensors a w.a >deep/original/model-00002-of-00002.safetensors
"$tool" compress -o y deep 2>"$err"
says "an old index below" 'index.json: warning: is out of date: tensor .w.b. is not in' "$err"
rm -r deep y

# ---- a distributed checkpoint of torch: of other files than .safetensors, the bytes are compressed
mkdir dcp
for i in 0 1; do
    { zeros 40000; cat n1200; zeros 40000; } >dcp/__${i}_0.distcp
done
: >dcp/__2_0.distcp
printf '\200\002' >dcp/.metadata
round "a distributed checkpoint" dcp
says "a distributed checkpoint" 'shard 81200 .* __0_0.distcp$' x.pici/pici-folder
[ "$(wc -c <x.pici/__0_0.distcp.pici)" -lt 8000 ] && pass || fail "a .distcp file is not compressed: $(ls -l x.pici)"
cp -r dcp dcp2
{ zeros 40001; cat n1200; zeros 39999; } >dcp2/__0_0.distcp
delta "distributed checkpoints" dcp dcp2

# ---- compress . writes beside the folder, not into it
(cd one && "$tool" compress . && ls -A) >"$out" 2>"$err"
judge 0 "compress ." $?
[ "$(cat "$out")" = "$(printf 'config.json\nmodel.safetensors')" ] && pass || fail "compress .: $(cat "$out")"
expect 0 "what compress . made" "$tool" decompress -o back3 one.pici
alike "what compress . made" one back3
(cd one.pici && "$tool" decompress --force -o ../back3 .) 2>"$err"
judge 0 "decompress ." $?
mkdir one/sub
(cd one/sub && "$tool" compress --force ..) 2>"$err"
judge 0 "compress .." $?
rmdir one/sub
for to in one/sub one/x.pici ./one/../one/y; do
    expect 2 "into the source: $to" "$tool" compress -o $to one
    says "into the source: $to" "$to: is inside the input folder: choose a path outside it" "$err"
    absent "into the source" $to
done
[ "$(ls -A one)" = "$(printf 'config.json\nmodel.safetensors')" ] && pass || fail "into the source: $(ls -A one)"

expect 2 "a delta into the base" "$tool" diff -o one/d one two
says "a delta into the base" 'one/d: is inside the input folder' "$err"
expect 0 "a delta" "$tool" diff --force -o x.delta one two
cp -r one with-delta
cp -r x.delta with-delta/delta
expect 2 "apply in place of a delta in the base" "$tool" apply --in-place with-delta with-delta/delta
[ -d with-delta/delta ] && pass || fail "apply in place removes the delta that it reads"
rm -r with-delta
expect 2 "a result into the base" "$tool" apply -o one/d one x.delta
expect 2 "a result into the delta" "$tool" apply -o x.delta/d one x.delta
absent "into the base" one/d

mkdir none
echo 1 >none/notes
expect 1 "nothing to compress" "$tool" compress none
says "nothing to compress" 'none: is a directory without .safetensors or .distcp files' "$err"
clean "all"
finish
