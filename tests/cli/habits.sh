#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Command lines of people who know zstd and other tools: options together, levels, folders file by file, standard input
# without a name, help, and missing files. Also the times and permissions of outputs.
. tests/cli/common

numbers 300 >n1200
{ npy 1 "'<f4'" False '(300,)'; cat n1200; } >a.npy
cp a.npy b.npy

# ---- standard input where no file is named
for verb in compress ''; do
    # shellcheck disable=SC2086
    "$tool" $verb <a.npy >x 2>"$err"
    judge 0 "'$verb' without a file" $?
    expect 0 "'$verb' without a file" "$tool" decompress --force -o back x
    same "'$verb' without a file" a.npy back
done
"$tool" -d <x >back 2>"$err"
judge 0 "-d without a file" $?
same "-d without a file" a.npy back
cat x | "$tool" decompress >back 2>"$err"
judge 0 "decompress of a pipe" $?
same "decompress of a pipe" a.npy back
for verb in test list inspect -t -l; do
    "$tool" $verb <x >"$out" 2>"$err"
    judge 0 "$verb without a file" $?
done
for verb in compress decompress test list inspect; do
    expect 2 "$verb without anything" "$tool" $verb # standard input is /dev/null
    says "$verb without anything" 'no input file given, and standard input is no file and no pipe' "$err"
done
expect 2 "nothing at all" "$tool"
says "nothing at all" 'needs a verb' "$err"
rm -f x back

# ---- names that are not there, or empty
for name in missing.npy ./missing sub/missing ''; do
    expect 1 "missing: $name" "$tool" "$name"
    says "missing: $name" "^picitool: .*: No such file or directory$" "$err"
done
expect 2 "neither a verb nor a file" "$tool" weights
says "neither a verb nor a file" '^picitool: weights: No such file or directory, and no verb; ' "$err"
expect 2 "a mistyped verb" "$tool" compres a.npy
says "a mistyped verb" 'no verb compres; did you mean compress\?' "$err"
for verb in "compress -o" "decompress -o" "extract -o" "-o"; do
    # shellcheck disable=SC2086
    expect 2 "$verb ''" "$tool" $verb '' a.npy
    says "$verb ''" 'the name after --output is empty' "$err"
done
expect 2 "--output-dir-flat ''" "$tool" --output-dir-flat '' a.npy
expect 2 "--png ''" "$tool" inspect --png '' a.npy
says "--png ''" 'the name after --png is empty' "$err"
"$tool" list <a.npy >"$out" 2>"$err"
judge 0 "list of standard input" $?
says "list of standard input" '^standard input: npy, ' "$out"

# ---- options together, levels, threads
expect 0 "compress" "$tool" a.npy
expect 0 "-T=2" "$tool" -f -T=2 a.npy
expect 0 "-dfT2" "$tool" -dfT2 a.npy.pici
same "-dfT2" a.npy b.npy
expect 0 "--no-progress" "$tool" --no-progress -f a.npy
expect 0 "--no-progress of a verb" "$tool" test --no-progress a.npy.pici
if [ "${ZSTD:-}" = 1 ]; then
    for level in -1 -19 '--ultra -22' '-22 --ultra' '--ultra -20' '-T2 --ultra -21'; do
        # shellcheck disable=SC2086
        expect 0 "$level" "$tool" -f $level a.npy
    done
    for level in -20 -22 -99 '--ultra -23'; do
        # shellcheck disable=SC2086
        "$tool" -f $level a.npy 2>"$err"
        [ $? = 0 ] && pass || fail "$level: $(cat "$err")"
        says "$level" 'warning: level [0-9]+ is too high; using (19|22)' "$err"
    done
    expect 0 "-f9" "$tool" -f9 a.npy
    expect 0 "-zf9" "$tool" -zf9 a.npy
    expect 2 "--zstd=23" "$tool" -f --zstd=23 a.npy
fi
expect 0 "-df" "$tool" -df a.npy.pici
expect 0 "-df9" "$tool" -df9 a.npy.pici # as zstd, which has no use for a level then
same "-df9" a.npy b.npy
for list in -lT0 -lq '-l -T2 --quiet'; do
    # shellcheck disable=SC2086
    expect 0 "$list" "$tool" $list a.npy.pici
    says "$list" '^total ' "$out"
done

# ---- folders file by file, and outputs in one folder
mkdir -p in/below/.hidden outs
cp a.npy in/one.npy
cp a.npy in/below/two.npy
cp a.npy in/below/.hidden/three.npy
echo notes >in/notes.txt
ln -s one.npy in/link.npy
expect 0 "-r" "$tool" -r in
[ "$(find in -name '*.pici' | sort | tr '\n' ' ')" = 'in/below/two.npy.pici in/one.npy.pici ' ] && pass ||
    fail "-r: $(find in -name '*.pici')"
expect 0 "-rt" "$tool" -t -r in
says "-rt" '^in/below/two.npy.pici: ok$' "$out"
expect 0 "-rl" "$tool" -lr in
rm in/one.npy in/below/two.npy
expect 0 "-dr" "$tool" -dr in
same "-dr" a.npy in/one.npy
same "-dr" a.npy in/below/two.npy
find in -name '*.pici' -exec rm {} +
expect 0 "-r --rm, and a file" "$tool" -r --rm in b.npy
absent "-r --rm" in/below/two.npy
[ -e in/notes.txt ] && [ -e b.npy.pici ] && pass || fail "-r --rm: $(find in)"
cp a.npy b.npy
expect 1 "-r of nothing" "$tool" -r outs
says "-r of nothing" 'no files are found in the folders' "$err"

# what cannot be looked at is reported, and does not keep the rest from being done
mkdir -p deep/z
cp a.npy deep/z/last.npy
(
    cd deep || exit
    for _ in $(seq 66); do
        mkdir a && cd -P a || exit
    done
)
expect 1 "-r of a folder that is too deep" "$tool" -r deep
says "-r of a folder that is too deep" 'deep/a/.*/a: folders are nested too deeply' "$err"
[ -e deep/z/last.npy.pici ] && pass || fail "-r of a folder that is too deep: the rest is not compressed"
name=$(printf '%0240d' 0)
mkdir -p long/z
cp a.npy long/z/last.npy
(
    cd long || exit
    for _ in $(seq 16); do
        mkdir "$name" && cd -P "$name" || exit
    done
    cp "$tmp/work/a.npy" "$name.npy"
)
expect 1 "-r of a path that is too long" "$tool" -r long
says "-r of a path that is too long" 'long/0.*\.npy: .' "$err"
[ -e long/z/last.npy.pici ] && pass || fail "-r of a path that is too long: the rest is not compressed"
if [ "$(id -u)" != 0 ]; then
    mkdir -p shut/a shut/b
    cp a.npy shut/a/x.npy
    cp a.npy shut/b/x.npy
    chmod 400 shut/a
    expect 1 "-r of a folder that may be listed alone" "$tool" -r shut
    says "-r of a folder that may be listed alone" 'shut/a/x.npy: ' "$err"
    [ -e shut/b/x.npy.pici ] && pass || fail "-r of a folder that may be listed alone: the rest is not compressed"
    chmod 700 shut/a
fi
expect 0 "--output-dir-flat" "$tool" --output-dir-flat outs a.npy ./b.npy
[ -e outs/a.npy.pici ] && [ -e outs/b.npy.pici ] && pass || fail "--output-dir-flat: $(ls outs)"
mkdir flat
expect 0 "-d --output-dir-flat" "$tool" -d --output-dir-flat flat outs/a.npy.pici outs/b.npy.pici
same "-d --output-dir-flat" a.npy flat/b.npy
expect 2 "-o and --output-dir-flat" "$tool" -o x --output-dir-flat flat a.npy
expect 1 "--output-dir-flat of no folder" "$tool" --output-dir-flat nowhere a.npy
cp a.npy in/b.npy
expect 2 "two of one name" "$tool" -f --output-dir-flat outs b.npy in/b.npy
says "two of one name" 'outs/b.npy.pici: is another output of this run' "$err"
mkdir -p whole/part other/part
safetensors '{}' >whole/part/model.safetensors
cp whole/part/model.safetensors other/part
expect 0 "--output-dir-flat of a folder" "$tool" compress --output-dir-flat outs whole/part/
[ -e outs/part.pici/pici-folder ] && pass || fail "--output-dir-flat of a folder: $(ls outs)"
absent "--output-dir-flat of a folder" whole/part.pici
expect 0 "-d --output-dir-flat of a folder" "$tool" decompress --output-dir-flat flat outs/part.pici
same "-d --output-dir-flat of a folder" whole/part/model.safetensors flat/part/model.safetensors
expect 2 "two folders of one name" "$tool" compress --force --output-dir-flat outs whole/part other/part
says "two folders of one name" 'outs/part.pici: is another output of this run' "$err"

# ---- help
expect 0 "help" "$tool" help
"$tool" --help >x
same "help" x "$out"
expect 0 "help compress" "$tool" help compress
"$tool" compress --help >x
same "help compress" x "$out"
expect 0 "help log init" "$tool" help log init
"$tool" log init --help >x
same "help log init" x "$out"
expect 0 "help log" "$tool" help log
"$tool" log --help >x
same "help log" x "$out"
expect 2 "help of nothing" "$tool" help compres
says "help of nothing" 'no verb compres' "$err"

# ---- exit statuses, as --help tells them
for verb in compress decompress test list inspect report extract cat diff apply 'block encode' 'block decode' \
    'log init' 'log append' 'log apply' 'log compact' 'log list' bench predict; do
    # shellcheck disable=SC2086
    "$tool" $verb --help >"$out"
    says "$verb --help" '^Exit status: 0 done, 1 bad data or I/O.*, 2 usage' "$out"
    # shellcheck disable=SC2086
    expect 2 "$verb of no option" "$tool" $verb --frob
    case $verb in
    'block encode') missing='--dtype f32 nofile nofile2' ;;
    'block decode' | diff | 'log init' | 'log apply') missing='nofile nofile2' ;;
    'log append') missing='nofile nofile2 nofile3' ;;
    apply) missing='--in-place nofile nofile2' ;;
    predict) continue ;;
    *) missing=nofile.pici ;;
    esac
    [ "$verb" != diff ] || missing="-o x.diff $missing"
    # shellcheck disable=SC2086
    expect 1 "$verb of no file" "$tool" $verb $missing
done
for verb in compress decompress; do
    "$tool" $verb --help >"$out"
    says "$verb: what exists" 'or the output exists\.$' "$out"
done
"$tool" decompress --help >"$out"
says "decompress: losses" 'or a loss with --keep-going' "$out"

# ---- cat: an original, or tensors by name
{ safetensors '{"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},
"v":{"dtype":"U8","shape":[4],"data_offsets":[16,20]}}'
  printf '0123456789abcdefwxyz'; } >cat.safetensors
expect 0 "compress" "$tool" compress -o cat.pici cat.safetensors
expect 0 "cat" "$tool" cat cat.pici
same "cat" cat.safetensors "$out"
expect 0 "cat of a pipe" sh -c '"$0" cat - <cat.pici' "$tool"
same "cat of a pipe" cat.safetensors "$out"
expect 0 "cat of tensors" "$tool" cat cat.pici v w v
[ "$(cat "$out")" = wxyz0123456789abcdefwxyz ] && pass || fail "cat of tensors: $(cat "$out")"
expect 0 "cat of a range" "$tool" cat --range 1:3 cat.pici v
[ "$(cat "$out")" = xy ] && pass || fail "cat of a range: $(cat "$out")"
expect 2 "cat of a range of nothing" "$tool" cat --range 1:3 cat.pici
expect 1 "cat of no tensor" "$tool" cat cat.pici v u
says "cat of no tensor" 'has no tensor u' "$err"
expect 1 "cat of a damaged file" "$tool" cat cat.safetensors
"$tool" --complete cat cat.pici '' >"$out"
says "completion of cat" '^w	f32$' "$out"

# ---- times and permissions
touch -d '2020-02-03 04:05:06' a.npy
chmod 640 a.npy
rm -f a.npy.pici back
: >a.npy.pici
chmod 666 a.npy.pici
expect 0 "-f" "$tool" -f a.npy
[ "$(stat -c '%a %Y' a.npy.pici)" = "640 $(stat -c %Y a.npy)" ] && pass || fail "-f: $(stat -c '%a %Y' a.npy.pici)"
: >back
chmod 666 back
expect 0 "-d -f" "$tool" -d -f -o back a.npy.pici
[ "$(stat -c '%a %Y' back)" = "640 $(stat -c %Y a.npy)" ] && pass || fail "-d -f: $(stat -c '%a %Y' back)"
mkdir -p tree/sub
cp -p a.npy tree/sub/config.npy
{ safetensors '{"w":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}'; printf 'a\0b'; } >tree/model.safetensors
touch -d '2021-02-03 04:05:06' tree/model.safetensors
touch -d '2022-02-03 04:05:06' tree/sub
touch -d '2023-02-03 04:05:06' tree
expect 0 "times of a folder" "$tool" compress -o tree2 tree
expect 0 "times of a folder" "$tool" decompress -o tree3 tree2
for f in . sub sub/config.npy model.safetensors; do
    [ "$(stat -c %Y tree3/$f)" = "$(stat -c %Y tree/$f)" ] && pass ||
        fail "the time of $f: $(stat -c %y tree3/$f), not $(stat -c %y tree/$f)"
done
cp a.npy b.npy
touch -d '2024-02-03 04:05:06' b.npy
expect 0 "the time of a delta" "$tool" diff -o b.delta a.npy b.npy
expect 0 "the time of a delta" "$tool" apply -o c.npy a.npy b.delta
for f in b.delta c.npy; do
    [ "$(stat -c %Y $f)" = "$(stat -c %Y b.npy)" ] && pass || fail "the time of $f: $(stat -c %y $f)"
done
clean "all"
finish
