#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Several inputs, the options of zstd with a verb and without one, and the removal of inputs.
. tests/cli/common

numbers 300 >n1200
for name in a b c; do
    { npy 1 "'<f4'" False '(4096,)'; cat n1200; zeros 15184; } >$name.npy
done
{ safetensors '{"w":{"dtype":"F32","shape":[10,30],"data_offsets":[0,1200]},
"v":{"dtype":"U8","shape":[4000],"data_offsets":[1200,5200]}}'; cat n1200; zeros 4000; } >s.safetensors
cp a.npy 'name with blanks.npy'
cp a.npy ./-dash.npy
head -c 100 a.npy >cut.npy
mkdir kept && cp ./*.npy s.safetensors kept

# ---- several inputs, each with its own output; one that fails does not stop the others
expect 0 "compress several" "$tool" compress a.npy b.npy 'name with blanks.npy' s.safetensors
for name in a.npy b.npy 'name with blanks.npy' s.safetensors; do
    "$tool" decompress -o - "$name.pici" >restored
    same "compress several: $name" "$name" restored
done
expect 0 "compress several, of names that begin with a dash" "$tool" compress --force -- -dash.npy a.npy
[ -e ./-dash.npy.pici ] && pass || fail "--: no -dash.npy.pici"
rm -f ./*.pici
"$tool" compress a.npy cut.npy nofile.npy b.npy >"$out" 2>"$err"
[ $? = 1 ] && pass || fail "compress several, two bad: exit status"
[ "$(grep -c '^picitool: ' "$err")" = 2 ] && pass || fail "compress several, two bad: $(cat "$err")"
says "compress several, two bad" '^picitool: cut.npy: offset [0-9]+: ' "$err"
says "compress several, two bad" '^picitool: nofile.npy: ' "$err"
[ -e a.npy.pici ] && [ -e b.npy.pici ] && pass || fail "compress several, two bad: the good ones are missing"
absent "compress several, two bad" cut.npy.pici
cp a.npy.pici before
"$tool" compress c.npy a.npy s.safetensors >"$out" 2>"$err"
judge 2 "compress several, one of which exists" $?
same "compress several, one of which exists" before a.npy.pici
[ -e c.npy.pici ] && [ -e s.safetensors.pici ] && pass || fail "compress several, one of which exists: not the others"
rm -f ./*.npy s.safetensors
expect 0 "decompress several" "$tool" decompress a.npy.pici b.npy.pici c.npy.pici s.safetensors.pici
for name in a.npy b.npy c.npy s.safetensors; do
    same "decompress several: $name" kept/$name $name
done
rm -f a.npy c.npy
head -c 200 b.npy.pici >bad.npy.pici
"$tool" decompress a.npy.pici bad.npy.pici wrong.name c.npy.pici >"$out" 2>"$err"
[ $? = 2 ] && [ "$(wc -l <"$err")" = 2 ] && pass || fail "decompress several, two bad: $(cat "$err")"
same "decompress several, two bad" kept/a.npy a.npy
same "decompress several, two bad" kept/c.npy c.npy
absent "decompress several, two bad" bad.npy

# ---- the mode of each output is that of its input
chmod 600 a.npy && chmod 640 b.npy
rm -f a.npy.pici b.npy.pici
expect 0 "modes" "$tool" compress a.npy b.npy
# shellcheck disable=SC2012
[ "$(ls -l a.npy.pici b.npy.pici | cut -c 1-10 | tr '\n' ' ')" = '-rw------- -rw-r----- ' ] && pass ||
    fail "modes: $(ls -l a.npy.pici b.npy.pici)"

# ---- one output for several inputs
for args in 'compress -o x a.npy b.npy' 'decompress -o x a.npy.pici b.npy.pici' 'compress -o /dev/null a.npy b.npy' \
    '-o x a.npy b.npy' '-d -o x a.npy.pici b.npy.pici'; do
    # shellcheck disable=SC2086
    expect 2 "picitool $args" "$tool" $args
    says "picitool $args" ': -o (x|/dev/null) names one output for 2 inputs' "$err"
    absent "picitool $args" x
done
for args in 'compress -c a.npy b.npy' 'compress -o - a.npy b.npy' '-c a.npy b.npy'; do
    # shellcheck disable=SC2086
    expect 2 "picitool $args" "$tool" $args
    [ ! -s "$out" ] && pass || fail "picitool $args: wrote something"
done
"$tool" decompress -c a.npy.pici bad.npy.pici s.safetensors.pici >all 2>"$err"
judge 1 "decompress several to standard output" $?
tail -c "$(wc -c <s.safetensors)" all >end
head -c "$(wc -c <a.npy)" all >begin
same "decompress several to standard output: the first" a.npy begin
same "decompress several to standard output: the last" s.safetensors end
"$tool" -dc a.npy.pici - <b.npy.pici >all 2>"$err"
judge 0 "decompress several and standard input to standard output" $?
cat a.npy b.npy >want
same "decompress several and standard input to standard output" want all
expect 2 "standard input twice" "$tool" compress --type npy - -
expect 2 "-c and -o" "$tool" compress -c -o x a.npy
absent "-c and -o" x
expect 2 "-c and -o, without a verb" "$tool" -c -o x a.npy
cat a.npy | "$tool" compress --type npy --force b.npy - >piped.pici 2>"$err"
judge 0 "a file and standard input" $?
"$tool" decompress -c piped.pici >restored
same "a file and standard input" a.npy restored

# ---- list, inspect and test of several
expect 0 "list several" "$tool" list a.npy.pici s.safetensors.pici b.npy
for name in 'a.npy.pici: pici' 's.safetensors.pici: pici' 'b.npy: npy'; do
    says "list several" "^$name" "$out"
done
[ "$(grep -c '^$' "$out")" -ge 5 ] && pass || fail "list several: no empty lines between: $(cat "$out")"
expect 0 "inspect several" "$tool" inspect a.npy s.safetensors.pici
says "inspect several" '^a.npy' "$out"
says "inspect several" '^s.safetensors.pici' "$out"
"$tool" list a.npy nofile s.safetensors >"$out" 2>"$err"
judge 1 "list several, one bad" $?
says "list several, one bad" '^s.safetensors: ' "$out"
expect 2 "a picture of several" "$tool" inspect --png p.png a.npy b.npy
absent "a picture of several" p.png
"$tool" inspect --tensor w a.npy s.safetensors >"$out" 2>"$err"
judge 1 "inspect --tensor of several" $?
says "inspect --tensor of several" 's.safetensors' "$out"
for verb in list inspect; do
    expect 0 "$verb --json of one" "$tool" $verb --json a.npy
    cp "$out" $verb.one
    expect 0 "$verb --json of several" "$tool" $verb --json a.npy s.safetensors.pici
    cp "$out" $verb.all
    "$tool" $verb --json a.npy nofile cut.npy s.safetensors >$verb.bad 2>"$err"
    [ $? = 1 ] && [ "$(wc -l <"$err")" = 2 ] && pass || fail "$verb --json of bad files: $(cat "$err")"
    "$tool" $verb --json nofile cut.npy >$verb.none 2>"$err"
    [ $? = 1 ] && pass || fail "$verb --json of bad files only: exit status"
done
if command -v python3 >/dev/null 2>&1; then
    python3 - >"$out" 2>&1 <<'END'
import json
for verb in "list", "inspect":
    one, several, bad, none = (json.load(open(f"{verb}.{x}")) for x in ("one", "all", "bad", "none"))
    assert several[0] == one and several[0]["file"] == "a.npy", several
    assert [x["file"] for x in several] == ["a.npy", "s.safetensors.pici"]
    assert [x["file"] for x in bad] == ["a.npy", "nofile", "cut.npy", "s.safetensors"]
    assert bad[0] == one and "error" in bad[1] and "error" in bad[2] and bad[3]["tensors"], bad
    assert [set(x) for x in none] == [{"file", "error"}] * 2
END
    [ $? = 0 ] && pass || fail "JSON of several: $(cat "$out")"
else
    skip "JSON of several, read by another program: no python3"
fi

# ---- without a verb: what zstd does
rm -rf z && mkdir z && cp kept/a.npy kept/b.npy z
cd z || exit 1
expect 0 "picitool FILES" "$tool" a.npy b.npy
[ -e a.npy ] && [ -e b.npy.pici ] && pass || fail "picitool FILES: $(ls)"
expect 0 "picitool -t" "$tool" -t a.npy.pici b.npy.pici
says "picitool -t" '^b.npy.pici: ok$' "$out"
expect 0 "picitool -l" "$tool" -l a.npy.pici
says "picitool -l" '^a.npy.pici: pici' "$out"
expect 0 "picitool --list --json" "$tool" --list --json a.npy.pici
expect 2 "picitool -d, of what exists" "$tool" -d a.npy.pici
expect 0 "picitool -d -f" "$tool" -d -f a.npy.pici
expect 0 "picitool -df" "$tool" -df a.npy.pici b.npy.pici
same "picitool -df" ../kept/a.npy a.npy
expect 0 "picitool FILE -d" "$tool" a.npy.pici -d -o x
same "picitool FILE -d" a.npy x
expect 0 "picitool --decompress" "$tool" --decompress -k -f a.npy.pici
[ -e a.npy.pici ] && pass || fail "-k: the input is gone"
expect 0 "picitool -z -f" "$tool" -z -f -k a.npy
expect 0 "the last of -d and -z counts" "$tool" -d -z -f a.npy
"$tool" -d <a.npy.pici >y 2>"$err"
judge 0 "picitool -d, a filter" $?
same "picitool -d, a filter" a.npy y
"$tool" --type npy <a.npy >y 2>"$err"
judge 0 "picitool, a filter" $?
same "picitool, a filter" a.npy.pici y
"$tool" -dc - <a.npy.pici >y 2>"$err"
judge 0 "picitool -dc -" $?
expect 0 "picitool -dc FILE" "$tool" -dc a.npy.pici
same "picitool -dc FILE" a.npy "$out"
expect 0 "decompress -f" "$tool" decompress -f a.npy.pici
expect 0 "--dtype without a verb" "$tool" --dtype f32 -f -o raw.pici x
expect 2 "an option of another verb" "$tool" -d --dtype f32 a.npy.pici
says "an option of another verb" 'decompress: no option --dtype' "$err"
expect 2 "a level to decompress" "$tool" -d -19 a.npy.pici
expect 2 "no option" "$tool" -Q a.npy
says "no option" 'no option -Q; see picitool -d --help' "$err"
expect 2 "neither a verb nor a file" "$tool" compres a.npy
says "neither a verb nor a file" 'did you mean compress\?' "$err"
expect 2 "-f of compress" "$tool" compress -f a.npy
says "-f of compress" 'f is --format here, and a.npy is a file; --force overwrites' "$err"
expect 0 "-d --help" "$tool" -d --help
for letter in d z t l c k q v f T o; do
    says "-d --help" "^  -$letter, --" "$out"
done
cd ..

# ---- levels
if [ "${ZSTD:-}" = 1 ]; then
    "$tool" compress --zstd=19 -o want19 s.safetensors && "$tool" compress --zstd=1 -o want1 s.safetensors
    "$tool" compress -o want0 s.safetensors
    cmp -s want0 want19 && fail "zstd does not matter here" || pass
    n=0
    for args in '19 -19' '1 -1' '19 -k19' '19 -19k' '19 -fk19 -q' '1 -19 -1' '1 -1kf' '19 -1 --zstd=19'; do
        expect 0 "levels: $args" "$tool" ${args#* } -f -o level s.safetensors
        same "levels: $args" want"${args%% *}" level
        n=$((n + 1))
    done
    expect 0 "compress -19" "$tool" compress -19 --force -o level s.safetensors
    same "compress -19" want19 level
    expect 0 "compress FILE -9 -T 2" "$tool" compress s.safetensors -9 -T2 --force -o level
    expect 0 "diff -3" "$tool" diff -3 -o delta s.safetensors s.safetensors
else
    skip "levels: built without zstd"
fi
for args in '-0' '-k0'; do
    # shellcheck disable=SC2086
    expect 2 "level $args" "$tool" compress $args -o level2 a.npy
    absent "level $args" level2
done
expect 2 "a level for extract" "$tool" extract -3 a.npy.pici

# ---- -q and -v
rm -f ./*.pici
expect 0 "-v" "$tool" compress a.npy
"$tool" compress -v --force a.npy s.safetensors >"$out" 2>"$err"
[ $? = 0 ] && [ ! -s "$out" ] && pass || fail "-v: exit status or standard output"
says "-v: the line" '^a\.npy : [0-9.]+% \(16\.1 KiB -> [0-9.]+ (B|KiB), [0-9.]+ [kMGT]B/s\)  a\.npy\.pici$' "$err"
says "-v: a tensor" '^  w  f32 \[10, 30\]$' "$err"
says "-v: the sum" '^2 of 2 files : [0-9.]+% \(' "$err"
"$tool" decompress -v -o x a.npy.pici 2>"$err"
says "-v: the line of decompress" '^a\.npy\.pici : \([0-9.]+ (B|KiB) -> 16\.1 KiB, [0-9.]+ [kMGT]B/s\)  x$' "$err"
"$tool" test -v a.npy.pici >"$out" 2>"$err"
says "test -v" ' checked, ' "$err"
"$tool" decompress -v -c a.npy.pici 2>"$err" | cmp -s - a.npy && pass || fail "-v -c: other bytes"
says "-v -c" 'standard output$' "$err"
expect 0 "test -q" "$tool" test -q a.npy.pici
[ ! -s "$out" ] && pass || fail "test -q prints"
expect 1 "test -q of a bad file" "$tool" test -q cut.npy
"$tool" compress -qq nofile >"$out" 2>"$err"
[ $? = 1 ] && [ ! -s "$err" ] && pass || fail "-qq: $(cat "$err")"
"$tool" compress -q -q a.npy >"$out" 2>"$err"
[ $? = 2 ] && [ ! -s "$err" ] && pass || fail "-q -q: $(cat "$err")"
"$tool" list -j nofile a.npy >"$out" 2>"$err"
grep -q '"error": ' "$out" && pass || fail "no error in JSON"

# ---- an output that is larger than its input
head -c 20000 /dev/urandom >noise
"$tool" compress --dtype f32 -f dense noise >"$out" 2>"$err"
[ $? = 0 ] && pass || fail "noise: exit status"
says "noise" '^picitool: noise: warning: the output is larger than the input \(19\.5 KiB -> ' "$err"
"$tool" compress -q --dtype f32 -f dense --force noise 2>"$err"
[ ! -s "$err" ] && pass || fail "-q: warns: $(cat "$err")"
"$tool" block encode --dtype f32 noise noise.blk 2>"$err"
says "block encode of noise" 'warning: the output is larger' "$err"
"$tool" compress --force a.npy 2>"$err"
[ ! -s "$err" ] && pass || fail "warns of what became smaller: $(cat "$err")"

# ---- --rm
rm -rf r && mkdir r && cp kept/a.npy kept/b.npy kept/cut.npy kept/s.safetensors r
cd r || exit 1
expect 0 "--rm" "$tool" compress --rm a.npy
absent "--rm" a.npy
expect 0 "--rm of decompress" "$tool" decompress --rm a.npy.pici
same "--rm of decompress" ../kept/a.npy a.npy
absent "--rm of decompress" a.npy.pici
"$tool" compress --rm a.npy cut.npy b.npy 2>"$err"
judge 1 "--rm, one bad" $?
absent "--rm, one bad" a.npy
absent "--rm, one bad" b.npy
same "--rm, one bad" ../kept/cut.npy cut.npy
"$tool" -d a.npy.pici b.npy.pici 2>"$err"
there() { # WHAT FILE: the input is as it was
    same "$1: the input" ../kept/"$2" "$2"
}
expect 0 "--rm, then --keep" "$tool" compress --rm --keep --force a.npy
there "--rm, then --keep" a.npy
expect 2 "--rm, of an output that exists" "$tool" compress --rm a.npy
there "--rm, of an output that exists" a.npy
expect 2 "--rm to standard output" "$tool" compress --rm -c a.npy
there "--rm to standard output" a.npy
expect 2 "--rm to standard output" "$tool" --rm -o - a.npy
there "--rm to standard output" a.npy
expect 2 "--rm, by value" "$tool" compress --rm --zeros=value -o value.pici a.npy
there "--rm, by value" a.npy
absent "--rm, by value" value.pici
expect 1 "--rm to a device" "$tool" compress --rm -o /dev/null a.npy
says "--rm to a device" 'not removed: the output, /dev/null, is not a file' "$err"
there "--rm to a device" a.npy
[ ! -c /dev/full ] || expect 1 "--rm to a full device" "$tool" compress --rm -o /dev/full a.npy
there "--rm to a full device" a.npy
(
    ulimit -f 1 # blocks of 512 bytes
    expect 1 "--rm, an output that fails" "$tool" compress --rm -o full.pici -f dense a.npy
    [ $failed = 0 ]
) && pass || fail "--rm, an output that fails"
there "--rm, an output that fails" a.npy
absent "--rm, an output that fails" full.pici
expect 1 "--rm, no such directory" "$tool" compress --rm -o no/x a.npy
there "--rm, no such directory" a.npy
"$tool" compress --type npy --rm -o stdin.pici - <a.npy 2>"$err"
judge 0 "--rm of standard input" $?
there "--rm of standard input" a.npy
"$tool" compress --type npy --rm - <a.npy >stdin.pici 2>"$err"
judge 0 "--rm of standard input to standard output" $?
"$tool" -d --rm - <stdin.pici >stdin.npy 2>"$err"
judge 0 "--rm of standard input to standard output, back" $?
same "--rm of standard input to standard output, back" a.npy stdin.npy
cp stdin.pici two.pici
"$tool" compress -o two.PICI ../kept/b.npy
cp two.PICI two.kept
"$tool" decompress --force --rm two.pici two.PICI 2>"$err"
judge 2 "--rm, two inputs of one output" $?
says "--rm, two inputs of one output" 'two: is another output of this run' "$err"
absent "--rm, two inputs of one output" two.pici
same "--rm, two inputs of one output, the first" a.npy two
same "--rm, two inputs of one output, the second" two.kept two.PICI
rm -f two two.* stdin.npy
expect 2 "--rm onto itself" "$tool" compress --rm --force -o a.npy a.npy
there "--rm onto itself" a.npy
ln -s a.npy soft.npy
expect 1 "--rm of a symbolic link" "$tool" compress --rm soft.npy
says "--rm of a symbolic link" 'soft.npy: not removed: it is a symbolic link' "$err"
there "--rm of a symbolic link" a.npy
[ -h soft.npy ] && pass || fail "--rm of a symbolic link: it is gone"
"$tool" compress --force s.safetensors && cp s.safetensors.pici whole
at=$(($(wc -c <whole) / 3))
{ head -c $at whole; printf '\125\252\125'; tail -c +$((at + 4)) whole; } >hurt.pici
cp hurt.pici hurt
"$tool" decompress --keep-going --rm -o hurt.out hurt.pici 2>"$err"
[ $? = 1 ] && cmp -s hurt hurt.pici && pass || fail "--rm of a damaged file: it is gone"
mkfifo fifo
"$tool" compress --rm -o fifo s.safetensors 2>"$err" &
pid=$!
cat fifo >got
wait $pid
[ $? = 1 ] && pass || fail "--rm to a FIFO: exit status"
there "--rm to a FIFO" s.safetensors
if [ "$(id -u)" != 0 ]; then
    mkdir sealed && cp a.npy sealed && chmod 555 sealed
    expect 1 "--rm in a directory that may not be written" "$tool" compress --rm -o out.pici sealed/a.npy
    says "--rm in a directory that may not be written" 'not removed: ' "$err"
    chmod 755 sealed
else
    skip "--rm in a directory that may not be written: root may"
fi
clean "--rm"
cd ..

clean "after all that"
finish
