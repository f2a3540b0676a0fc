#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# picitool on GGUF files, in both byte orders and both versions, with gaps, from files and pipes. The same bytes come
# back, quantized blocks are unchanged, and malformed files are errors.
. tests/cli/common

big=
number() { # BYTES N
    if [ -z "$big" ]; then le "$1" "$2"; return; fi
    n_k=$1
    while [ "$n_k" -gt 0 ]; do
        n_k=$((n_k - 1))
        byte $(($2 >> 8 * n_k & 255))
    done
}
text() { # WORD
    number 8 ${#1}
    printf %s "$1"
}
tensor() { # NAME TYPE OFFSET DIMENSION...: fastest first
    t_type=$2 t_offset=$3
    text "$1"
    shift 3
    number 4 $#
    for t_dimension in "$@"; do number 8 "$t_dimension"; done
    number 4 "$t_type"
    number 8 "$t_offset"
}
header() { # VERSION TENSORS KEYS
    printf GGUF
    number 4 "$1"
    number 8 "$2"
    number 8 "$3"
}
aligned() { # FILE ALIGNMENT: with zeros up to it
    cat "$1"
    zeros $((($2 - $(wc -c <"$1") % $2) % $2))
}
# w: 20 rows of 30 f32; half: 5 f16; q: two rows of a block of Q8_0, which is 34 bytes; and bytes after all
numbers 600 >w
make() { # VERSION: a file on standard output
    {
        header "$1" 3 2
        text general.name; number 4 8; text tiny
        text tokens; number 4 9; number 4 8; number 8 2; text a; text bc
        tensor q 8 2432 32 2
        tensor w 0 0 30 20
        tensor half 1 2400 5
    } >front
    aligned front 32
    cat w
    printf 0123456789
    zeros 22
    printf '%068d' 0
    printf rest
}
round() { # FILE
    rm -f "$1.pici" "$1.back" piped
    expect 0 "$1: compress" "$tool" compress "$1"
    expect 0 "$1: test" "$tool" test "$1.pici"
    expect 0 "$1: decompress" "$tool" decompress -o "$1.back" "$1.pici"
    same "$1" "$1" "$1.back"
    "$tool" compress --type gguf - <"$1" >piped 2>"$err"
    "$tool" decompress - <piped 2>>"$err" | cmp -s - "$1" && pass || fail "$1: through pipes: $(head -c 300 "$err")"
}
make 3 >le.gguf
make 2 >two.gguf
big=1
make 3 >be.gguf
for f in le two be; do
    round $f.gguf
    expect 0 "$f: list" "$tool" list $f.gguf.pici
    says "$f: list" "^$f.gguf.pici: pici, from gguf, .*, 3 tensors" "$out"
    says "$f: blocks" '^q +u8 +\[2, 34\]' "$out"
    says "$f: a matrix" '^w +f32.* +\[20, 30\]' "$out"
    for verb in list inspect report; do
        expect 0 "$f: $verb" "$tool" $verb $f.gguf
    done
    expect 0 "$f: inspect of it" "$tool" inspect $f.gguf.pici
done
"$tool" list be.gguf >"$out"
says "big-endian" '^half +f16 BE' "$out"
expect 0 "extract" "$tool" extract --force -n w -o x.raw le.gguf.pici
same "extract" w x.raw
expect 0 "what is between tensors" "$tool" extract --force -n padding -o x.raw le.gguf.pici
[ "$(wc -c <x.raw)" = 22 ] && pass || fail "what is between tensors: $(wc -c <x.raw) bytes"
cp le.gguf other.dat
expect 0 "by its looks" "$tool" compress -o x.pici other.dat
same "by its looks" x.pici le.gguf.pici

# ---- deltas and logs
for f in le be; do
    { head -c 1000 $f.gguf; printf 123; tail -c +1004 $f.gguf; } >new.gguf
    expect 0 "$f: diff" "$tool" diff --force -o d.pici $f.gguf new.gguf
    expect 0 "$f: apply" "$tool" apply --force -o x.gguf $f.gguf d.pici
    same "$f: apply" new.gguf x.gguf
    expect 1 "$f: apply to another" "$tool" apply --force -o y.gguf new.gguf d.pici
    for pack in none planes; do
        rm -rf log x.gguf
        expect 0 "$f: log init --pack $pack" "$tool" log init --pack $pack log $f.gguf
        expect 0 "$f: log append" "$tool" log append log $f.gguf new.gguf
        expect 0 "$f: log apply" "$tool" log apply log x.gguf
        same "$f: log apply" new.gguf x.gguf
    done
done
expect 2 "of two types" "$tool" diff -o y.pici le.gguf w
expect 2 "a log of raw elements" "$tool" log init --pack planes none w
says "a log of raw elements" 'for \.safetensors, \.gguf and \.npy' "$err"

# ---- malformed ones
big=
refused() { # WHAT PATTERN: of bad.gguf
    expect 1 "$1" "$tool" compress -o y.pici bad.gguf
    says "$1" "bad.gguf: offset [0-9]*: $2" "$err"
    absent "$1" y.pici
    expect 1 "$1, from a pipe" "$tool" compress --type gguf -o y.pici - <bad.gguf
    expect 1 "$1, list" "$tool" list bad.gguf
    expect 1 "$1, diff" "$tool" diff -o y.pici bad.gguf bad.gguf
}
bad() { # TENSOR...: of 32 bytes of data
    { header 3 1 0; tensor "$@"; } >front
    { aligned front 32; zeros 32; } >bad.gguf
}
header 1 0 0 >bad.gguf
refused "version 1" 'version 1 of GGUF; versions 2 and 3 are read, and llama.cpp makes them from it'
bad a 0 0 9
refused "a tensor beyond the end" 'the file ends 4 bytes before the last tensor does'
bad a 99 0 1
refused "an unknown type" 'a tensor of type 99, which is not known'
{ header 3 0 1; text k; number 4 9; number 4 9; number 8 1; } >bad.gguf
refused "arrays of arrays" 'an array of arrays, which is not read'
bytes=$(wc -c <le.gguf)
for n in 5 23 30 100 200 $((bytes - 80)); do
    head -c "$n" le.gguf >bad.gguf
    expect 1 "cut to $n bytes" "$tool" compress -o y.pici bad.gguf
    absent "cut to $n bytes" y.pici
done
clean "after all that"

# ---- those that llama.cpp's own package writes
python=${GGUF_PYTHON:-python3}
if ! "$python" -c 'import gguf' 2>/dev/null; then
    skip "GGUF files of the package gguf: it is not installed (GGUF_PYTHON names a Python that has it)"
else
    "$python" - <<'END' 2>"$err" || fail "gguf: $(tail -n 1 "$err")"
import gguf, numpy as np
Q = gguf.GGMLQuantizationType
r = np.random.default_rng(1)
for name, end, alignment in ("lib-le", gguf.GGUFEndian.LITTLE, 0), ("lib-be", gguf.GGUFEndian.BIG, 0), \
        ("lib-64", gguf.GGUFEndian.LITTLE, 64):
    w = gguf.GGUFWriter(name + ".gguf", "llama", endianess=end)
    if alignment:
        w.add_custom_alignment(alignment)
    w.add_name("tiny")
    w.add_array("tokenizer.ggml.tokens", [f"token {i}" for i in range(5000)])
    w.add_array("tokenizer.ggml.scores", [i / 2 for i in range(5000)])
    w.add_bool("a.flag", True)
    for t in Q:
        block, size = gguf.GGML_QUANT_SIZES[t]
        w.add_tensor(t.name, r.integers(0, 255, (3, size), dtype=np.uint8), raw_dtype=t)
    w.add_tensor("odd", r.standard_normal((3, 7)).astype(np.float16))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
END
    for f in lib-le lib-be lib-64; do
        round $f.gguf
        expect 0 "$f: list" "$tool" list --json $f.gguf
        "$python" - $f.gguf "$out" <<'END' 2>"$err" && pass || fail "$f: $(tail -n 1 "$err")"
import gguf, json, sys
reader = gguf.GGUFReader(sys.argv[1] + ".back")
listed = {t["name"]: t for t in json.load(open(sys.argv[2]))["tensors"]}
assert len(listed) == len(reader.tensors)
for t in reader.tensors:
    shape = [int(n) for n in t.shape[::-1]]
    block, size = gguf.GGML_QUANT_SIZES[t.tensor_type]
    if block > 1:
        shape[-1] = shape[-1] // block * size
    assert listed[t.name]["shape"] == shape, (t.name, shape, listed[t.name])
    assert listed[t.name]["bytes"] == t.n_bytes, t.name
END
    done
fi
finish
