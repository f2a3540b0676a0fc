#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# A file of a kind that was not expected: the message says what it looks like and what to do. Extensions in capitals.
. tests/cli/common

numbers 300 >n1200
{ npy 1 "'<f4'" False '(300,)'; cat n1200; } >a.npy
{ safetensors '{"a":{"dtype":"F32","shape":[300],"data_offsets":[0,1200]}}'; cat n1200; } >a.safetensors
"$tool" compress a.npy || fail compress
"$tool" diff -o d.pici a.npy a.npy || fail diff

# ---- extensions in capitals
for name in A.NPY a.Npy; do
    cp a.npy $name
    expect 0 "compress $name" "$tool" compress $name
    expect 0 "list $name.pici" "$tool" list $name.pici
    says "list $name.pici" ': pici, from npy' "$out"
    mv $name.pici "${name%.*}.X.PICI"
    expect 0 "decompress ${name%.*}.X.PICI" "$tool" decompress "${name%.*}.X.PICI"
    same "decompress ${name%.*}.X.PICI" a.npy "${name%.*}.X"
    rm -f "${name%.*}.X"
done
cp a.safetensors M.SAFETENSORS
expect 0 "list M.SAFETENSORS" "$tool" list M.SAFETENSORS
expect 0 "compress M.SAFETENSORS" "$tool" compress M.SAFETENSORS
expect 0 "extract to .NPY" "$tool" extract -o E.NPY a.npy.pici
same "extract to .NPY" a.npy E.NPY
expect 0 "--heatmap of .PNG" "$tool" inspect --heatmap H.PNG a.npy
expect 0 "--heatmap of .Svg" "$tool" inspect --heatmap H.Svg a.npy
says "--heatmap of .Svg" '<svg' H.Svg
expect 1 "inspect X.PT" "$tool" inspect n1200.PT
cp n1200 n1200.PT
expect 1 "a .PT that is none" "$tool" inspect n1200.PT
cp n1200 'd.npy.BLK'
expect 1 "test d.npy.BLK" "$tool" test d.npy.BLK
grep -q 'not a .pici file' "$err" && fail "d.npy.BLK is not taken as a block: $(cat "$err")" || pass

# ---- what it looks like
entry() { # NAME: the local header of a zip entry
    printf 'PK\003\004'
    zeros 22
    le 2 "$(printf %s "$1" | wc -c)"
    le 2 0
    printf '%s....' "$1"
}
cp a.npy npy.bin
cp a.safetensors safetensors.bin
entry arr_0.npy >npz.bin
entry archive/data.pkl >torch.bin
entry notes.txt >zip.bin
{ printf '\211HDF\r\n\032\n'; zeros 500; } >hdf5.bin
{ printf 'GGUF\003\000\000\000'; zeros 500; } >gguf.bin
{ printf '\037\213\010\000'; zeros 500; } >gzip.bin
{ printf '\050\265\057\375'; zeros 500; } >zstd.bin
{ printf '\3757zXZ\000'; zeros 500; } >xz.bin
{ printf '\200\004\225\012\000\000\000'; zeros 500; } >pickle.bin
{ printf '\200\002\212\012l\374\234F\371 j\250P\031.'; zeros 500; } >old.bin
{ printf '\010\012\022\007pytorch\032\0052.1.0:'; zeros 500; } >onnx.bin
{ printf '\010\012:'; zeros 500; } >bare.bin
{ printf '\211PNG\r\n\032\n'; zeros 500; } >png.bin
{ printf '\377\330\377\340'; zeros 500; } >jpeg.bin
{ printf '\177ELF\002\001\001'; zeros 500; } >elf.bin
printf 'x,y\n1,2\n3,4\n' >csv.bin
printf 'A line of text.\n' >text.bin
cp a.npy.pici pici.bin
head -c 200 a.npy.pici >cut.bin
head -c 5 a.npy.pici >short.bin
cp d.pici delta.bin
"$tool" block encode --dtype f32 n1200 block.bin
looks() { # FILE PATTERN...: what compress says of it, from a file and from a pipe, and with another type
    looks_at=$1.bin looks_want=$2
    expect 2 "$looks_at" "$tool" compress -o x "$looks_at"
    says "$looks_at" "^picitool: $looks_at: looks like $looks_want" "$err"
    grep -q 'dtype' "$err" && fail "$looks_at: $(cat "$err")" || pass # its elements are not what is meant
    for looks_verb in list inspect report; do
        [ "$looks_verb" != list ] || continue # which takes all else as .pici files
        case $1 in pici | cut | short | delta | block) continue ;; esac
        expect 2 "$looks_verb $looks_at" "$tool" $looks_verb "$looks_at"
        says "$looks_verb $looks_at" "looks like $looks_want" "$err"
    done
    expect 1 "$looks_at as .npy" "$tool" compress --type safetensors -o x "$looks_at"
    case $1 in
    safetensors) ;;
    *) says "$looks_at as .safetensors" "; it looks like $looks_want" "$err" ;;
    esac
    absent "$looks_at" x
    expect 0 "$looks_at, as raw" "$tool" compress --dtype u8 -o x "$looks_at"
    rm -f x
}
looks zip 'a zip archive: torch or npz\? --type says which'
looks hdf5 'an HDF5 file: export its arrays'
looks gzip 'gzip data: unpack it first'
looks zstd 'zstd data: unpack it first'
looks xz 'xz data'
looks pickle 'a pickle'
expect 1 "old.bin" "$tool" compress -o x old.bin
says "old.bin" '^picitool: old.bin: offset 15: the pickle has the opcode 0x00' "$err"
expect 1 "old.bin as .npy" "$tool" compress --type npy -o x old.bin
says "old.bin as .npy" '; it looks like a file of torch.save before version 1.6' "$err"
looks onnx 'an ONNX model: export its initializers as \.safetensors or \.npy'
looks bare 'an ONNX model'
looks png 'a PNG picture'
looks jpeg 'a JPEG picture'
looks elf 'an ELF program'
looks csv 'text with columns, as CSV: export'
looks text 'text'
looks pici 'a \.pici file: picitool decompress restores it'
looks cut 'a \.pici file that is cut short or damaged: picitool test'
looks short 'the beginning of a \.pici file: it is cut short'
looks delta 'a delta of picitool: picitool apply'
looks block 'a bare block: picitool block decode'

# ---- what it looks like is what it is taken as, if its name says nothing
cp a.npy npy.ckpt
cp a.safetensors model
for f in npy.bin npy.ckpt safetensors.bin model gguf.bin; do
    expect 0 "$f" "$tool" compress -o x $f
    expect 0 "$f" "$tool" decompress -o back x
    same "$f" $f back
    for verb in list inspect report; do
        expect 0 "$verb $f" "$tool" $verb $f
    done
    cat $f | "$tool" compress >x2 2>"$err"
    judge 0 "a pipe of $f" $?
    same "a pipe of $f" x x2
    rm -f x x2 back $f.html
    expect 1 "$f as .npz" "$tool" compress --type npz -o x $f
done
expect 1 "torch.bin" "$tool" compress -o x torch.bin
says "torch.bin" 'torch.bin: offset [0-9]+: ' "$err"

# ---- what stands where another file should be
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff\nsize 12345\n' >lfs
printf '\n<!DOCTYPE html><title>404</title>' >html
printf '\357\273\277<HTML><head>' >html2
printf '{"error": "Repository not found"}' >json
printf '[\n {"error": 1}]' >json2
printf '<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>' >xml
stand_in() { # FILE PATTERN
    for stand_ext in safetensors npy npz pt pici bin; do
        cp "$1" "s.$stand_ext"
        for stand_verb in 'compress -o x' list inspect test 'decompress -o x' 'extract -o x' ''; do
            case $stand_verb$stand_ext in inspectpici | pici | 'compress -o xpici') continue ;; esac
            # shellcheck disable=SC2086
            expect 1 "$stand_verb s.$stand_ext of $1" "$tool" $stand_verb "s.$stand_ext"
            says "$stand_verb s.$stand_ext of $1" "^picitool: s.$stand_ext: is $2" "$err"
        done
    done
    absent "$1" x
    expect 0 "$1 as raw" "$tool" compress --dtype u8 -o x "s.bin"
    rm -f x
    mkdir "folder-$1"
    cp "$1" "folder-$1/model.safetensors"
    expect 1 "a folder with $1" "$tool" compress -o x "folder-$1"
    says "a folder with $1" "folder-$1/model.safetensors: is $2" "$err"
}
stand_in lfs 'a Git LFS pointer, not the file itself: git lfs pull fetches the file$'
stand_in html 'an HTML page, not the file itself: download it again'
stand_in html2 'an HTML page, not the file itself: download it again'
stand_in json "a JSON text, as a server's error, not a file of tensors: download it again"
stand_in json2 "a JSON text, as a server's error"
stand_in xml 'an XML text'
printf '{not JSON' >text.bin
looks text 'text'

expect 2 "nothing known" "$tool" compress -o x n1200
says "nothing known" 'unknown file type; use --dtype' "$err"
cp npz.bin archive.npy
expect 1 "a .npy that is a zip archive" "$tool" compress archive.npy
says "a .npy that is a zip archive" 'offset 0: .*; it looks like a zip archive' "$err"
expect 1 "a .npy that is short" "$tool" compress --type npy -o x cut.bin
cut -c 1-9 a.npy | head -n 1 >cut.npy
expect 1 "a .npy that is one" "$tool" compress cut.npy
grep -q 'looks like' "$err" && fail "a .npy looks like one: $(cat "$err")" || pass

# from a pipe, where only what has been read is known
cat torch.bin | "$tool" compress - >x 2>"$err"
says "a pipe of torch.save" 'standard input: .*: .pt cannot be read from a pipe, only from a file' "$err"
cat npz.bin | "$tool" compress --type npz - >x 2>"$err"
says "a pipe of .npz" 'standard input: .*: .npz cannot be read from a pipe, only from a file' "$err"
cat hdf5.bin | "$tool" compress --type npy - >x 2>"$err"
says "a pipe of HDF5 as .npy" 'standard input: offset 0: .*; it looks like an HDF5 file' "$err"

# ---- what reads .pici files
rm -f x
for verb in 'decompress -o x' test extract list; do
    for name in npy hdf5 zstd csv; do
        [ "$verb-$name" != list-npy ] || continue
        # shellcheck disable=SC2086
        expect 1 "$verb $name.bin" "$tool" $verb $name.bin
        says "$verb $name.bin" 'offset 0: .*; it looks like ' "$err"
    done
    absent "$verb" x
    # shellcheck disable=SC2086
    expect 1 "$verb n1200" "$tool" $verb n1200
    grep -q 'looks like' "$err" && fail "$verb n1200: $(cat "$err")" || pass
    # shellcheck disable=SC2086
    expect 1 "$verb cut.bin" "$tool" $verb cut.bin
    grep -q 'looks like' "$err" && fail "$verb cut.bin: $(cat "$err")" || pass
done
expect 1 "decompress a .npy" "$tool" decompress -o x npy.bin
says "decompress a .npy" 'it looks like a .npy file: picitool compress converts it to .pici' "$err"
cat zstd.bin | "$tool" decompress - >x 2>"$err"
judge 1 "a pipe of zstd data" $?
says "a pipe of zstd data" '; it looks like zstd data: unpack it first' "$err"

clean "after all that"
finish
