#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# picitool refuses wrong usage, existing outputs, bad data and full disks: one line says why, and nothing is left
# behind.
. tests/cli/common

numbers 300 >n1200
{ npy 1 "'<f4'" False '(300,)'; cat n1200; } >a.npy
{ safetensors '{"a":{"dtype":"F32","shape":[300],"data_offsets":[0,1200]}}'; cat n1200; } >a.safetensors
"$tool" compress a.npy && "$tool" compress a.safetensors || fail "compress"

# ---- usage: 2, and a hint
for args in '' frob --frob compress 'compress -o x a b' 'compress --frob a.npy' 'compress -Q a.npy' 'compress --dtype' \
    'compress --dtype f99 n1200' 'compress -f zip a.npy' 'compress -T -1 a.npy' 'compress -T x a.npy' \
    'compress --zstd=0 a.npy' \
    'compress --type zip a.npy' 'inspect --compare=0 a.npy' 'inspect --compare=23 a.npy' 'report' \
    'report a b' 'compress --force=1 a.npy' 'compress --json a.npy' 'compress n1200' 'compress --dtype f32 a.npy' \
    'compress -' decompress 'decompress a.npy' 'test' 'list' 'list - -' 'inspect' 'inspect n1200' 'block' 'block frob' \
    'block encode' 'block encode n1200 x' 'block encode --dtype f32 n1200' 'block decode --max-size 1Q n1200 x' \
    'block decode --max-size -1 n1200 x' 'block decode --max-size 99999999999999999999 n1200 x' \
    'block decode --max-size 18446744073709551615K n1200 x' 'bench a b' 'bench --sparsity 101' 'bench --sparsity 1,,2' \
    'bench --size 0' 'bench --reps 0' 'bench --tensor x' 'bench --size 1M a.npy'; do
    # shellcheck disable=SC2086
    expect 2 "picitool $args" "$tool" $args
done
expect 2 "no format" "$tool" compress -f hybrids a.npy -o x.pici
says "no format" 'not one of auto, dense, bitmap, coo, hybrid' "$err"
absent "no format" x.pici
expect 2 "an option that is none" "$tool" compress --frob a.npy
says "an option that is none: hint" 'see picitool compress --help' "$err"
{ echo && verbs; } >verbs
while read -r verb; do
    # shellcheck disable=SC2086
    expect 0 "picitool $verb --help" "$tool" $verb --help
    says "picitool $verb --help" "Usage: picitool ${verb:-VERB}" "$out"
done <verbs
expect 0 "--version" "$tool" --version
says "--version" '^picitool [0-9]+\.[0-9]+\.[0-9]+$' "$out"

# ---- every verb that writes keeps existing files without --force
"$tool" block encode --dtype f32 n1200 a.blk
echo old >old
kept() { # WHAT COMMAND...: refused because of "old", which is not touched
    kept_what=$1
    shift
    expect 2 "$kept_what over what exists" "$@"
    says "$kept_what: hint" 'old: already exists; not overwritten: --force' "$err"
    [ "$(cat old)" = old ] && pass || fail "$kept_what: touched what exists"
}
kept compress "$tool" compress -o old a.npy
kept decompress "$tool" decompress -o old a.npy.pici
kept "block encode" "$tool" block encode --dtype f32 n1200 old
kept "block decode" "$tool" block decode a.blk old
kept report "$tool" report -o old a.npy
kept extract "$tool" extract -o old a.npy.pici
cp old old.png
cp old old.svg
for kind in png svg; do
    expect 2 "inspect --heatmap over what exists" "$tool" inspect --heatmap old.$kind a.npy
    [ "$(cat old.$kind)" = old ] && pass || fail "inspect --heatmap: touched what exists"
done
cp a.npy.pici before
expect 2 "compress over its default output" "$tool" compress a.npy
same "compress over its default output" before a.npy.pici
expect 2 "decompress over its default output" "$tool" decompress a.npy.pici
ln -s nowhere dangling
expect 2 "a dangling link" "$tool" compress -o dangling a.npy
expect 0 "--force" "$tool" compress --force -o old a.npy
same "--force" before old
chmod 666 old
chmod 640 a.npy
expect 0 "--force gives the input's mode" "$tool" compress --force -o old a.npy
[ "$(ls -l old | cut -c1-10)" = -rw-r----- ] && pass || fail "--force: mode $(ls -l old)"
chmod 644 a.npy
echo target >target
ln -s target link
expect 0 "--force onto a link" "$tool" compress --force -o link a.npy
same "--force onto a link" before link
[ ! -h link ] && [ "$(cat target)" = target ] && pass || fail "--force followed the link"
echo keep >forced
expect 1 "--force, but bad input" "$tool" decompress --force -o forced a.npy
[ "$(cat forced)" = keep ] && pass || fail "--force, but bad input: touched the output"

# ---- the input is not the output
expect 2 "compress onto itself" "$tool" compress --force -o a.npy a.npy
expect 2 "decompress onto itself" "$tool" decompress --force -o a.npy.pici a.npy.pici
ln a.npy hard
expect 2 "compress onto a hard link of it" "$tool" compress --force -o hard a.npy
ln -s a.npy soft
expect 2 "compress onto a link to it" "$tool" compress --force -o soft a.npy
ln -s a.npy soft.png
expect 2 "inspect --heatmap onto itself" "$tool" inspect --force --heatmap soft.png a.npy
expect 2 "report onto itself" "$tool" report --force -o a.npy a.npy
for name in p p.gif p.pngs - .png/x; do
    expect 2 "a picture of no known kind" "$tool" inspect --heatmap $name a.npy
    absent "a picture of no known kind" $name
done
"$tool" compress --type npy - <a.npy 1<>a.npy 2>"$err"
judge 2 "standard output that is standard input" $?

# ---- inputs that do not exist or are no files, outputs that cannot be written
expect 1 "no such file" "$tool" compress nofile.npy
expect 1 "a directory" "$tool" compress --dtype u8 .
expect 1 "a directory as output" "$tool" compress -o . a.npy
expect 1 "no such directory" "$tool" compress -o no/x a.npy
for verb in 'decompress -o x.out' test list inspect; do
    # shellcheck disable=SC2086
    expect 1 "$verb: no such file" "$tool" $verb no.pici
    # shellcheck disable=SC2086
    expect 1 "$verb: a directory" "$tool" $verb .
done
mkdir sealed && chmod 555 sealed
if [ "$(id -u)" = 0 ]; then
    skip "a directory that may not be written, a file that may not be read: root may"
else
    expect 1 "a directory that may not be written" "$tool" compress -o sealed/x a.npy
    cp a.npy secret.npy && chmod 0 secret.npy
    expect 1 "a file that may not be read" "$tool" compress secret.npy
fi
if [ -c /dev/full ]; then
    expect 1 "compress to a full device" "$tool" compress -o /dev/full a.npy
    expect 1 "decompress to a full device" "$tool" decompress -o /dev/full a.npy.pici
    expect 1 "block encode to a full device" "$tool" block encode --dtype f32 n1200 /dev/full
    expect 1 "block decode to a full device" "$tool" block decode a.blk /dev/full
    ln -s /dev/full full.png
    expect 1 "inspect --heatmap to a full device" "$tool" inspect --heatmap full.png a.npy
    expect 1 "report to a full device" "$tool" report -o /dev/full a.npy
    for args in 'compress -o - a.npy' 'decompress -o - a.npy.pici' 'list a.npy.pici' 'inspect --json a.npy' \
        'test a.npy.pici' --help; do
        # shellcheck disable=SC2086
        "$tool" $args >/dev/full 2>"$err"
        judge 1 "$args >/dev/full" $?
        says "$args >/dev/full" 'No space left' "$err"
    done
else
    skip "no /dev/full"
fi
"$tool" compress -o - a.npy >&- 2>"$err"
judge 1 "standard output closed" $?
"$tool" compress --type npy -o x.pici - <&- 2>"$err"
judge 1 "standard input closed" $?
absent "standard input closed" x.pici
"$tool" decompress -o - a.npy.pici | head -c 1 >/dev/null
(
    ulimit -f 1 # blocks of 512 bytes
    expect 1 "a limit on the size of files" "$tool" block encode -f dense --dtype u8 n1200 x.blk
    [ $failed = 0 ]
) && pass || fail "a limit on the size of files"
absent "a limit on the size of files" x.blk

# ---- a signal removes unfinished outputs
mkdir sig
mkfifo pipe
default= # a shell has what it starts in the background ignore SIGQUIT
! env --default-signal true 2>/dev/null || default="env --default-signal"
for signal in TERM HUP ${default:+QUIT} USR1 USR2 ALRM XCPU PWR ABRT SYS; do
    if sh -c "kill -$signal \$\$" 2>/dev/null; then # inherited from whoever started this, as nohup does
        skip "SIG$signal, which is ignored here"
        continue
    fi
    $default "$tool" compress --type npy -o sig/x.pici pipe &
    pid=$!
    exec 3>pipe
    cat a.npy >&3
    for _ in 1 2 3 4 5 6 7 8 9 10; do # until it has begun
        [ -n "$(ls -A sig)" ] && break
        sleep 0.1
    done
    [ -n "$(ls -A sig)" ] && pass || fail "SIG$signal: the output was not begun within a second"
    kill -$signal $pid
    exec 3>&- # should it live, it comes to the end of its input
    wait $pid
    status=$?
    [ $status -gt 128 ] && pass || fail "SIG$signal: exit status $status"
    [ -z "$(ls -A sig)" ] && pass || fail "SIG$signal: left $(ls -A sig)"
done

# ---- an output FIFO that nobody reads: a signal ends the wait
mkfifo unread
for verb in "compress a.npy" "decompress a.npy.pici" "extract --tensor data a.npy.pici"; do
    # shellcheck disable=SC2086
    "$tool" $verb -o unread 2>"$err" &
    pid=$!
    sleep 0.2
    kill -TERM $pid
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        kill -0 $pid 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL $pid 2>/dev/null && fail "$verb to a FIFO without a reader: SIGTERM did not end it"
    wait $pid
    status=$?
    [ $status = 143 ] && pass || fail "$verb to a FIFO without a reader: exit status $status"
done

# ---- a name of a descriptor: what is there stays
{
    echo keep
    "$tool" compress --force -o /dev/stdout a.npy
    echo after
} >streamed
"$tool" compress -o expected a.npy
{ echo keep && cat expected && echo after; } >whole
same "-o /dev/stdout" streamed whole
ln -s /dev/fd/3 third
echo keep >streamed
"$tool" compress -o third a.npy 3>>streamed
{ echo keep && cat expected; } >whole
same "-o a link to /dev/fd/3" streamed whole

# ---- bad data: 1, with an offset, and no output
bad() { # WHAT FILE OPTION...: compress refuses it
    bad_what=$1
    shift
    expect 1 "$bad_what" "$tool" compress -o x.pici "$@"
    says "$bad_what: where" 'offset [0-9]+: ' "$err"
    absent "$bad_what" x.pici
}
for file in a.npy a.safetensors; do
    bytes=$(wc -c <$file)
    n=0
    while [ $n -lt "$bytes" ]; do
        head -c $n $file >cut.${file#*.}
        bad "$file cut to $n bytes" cut.${file#*.}
        "$tool" compress --type ${file#*.} -o x.pici - <cut.${file#*.} 2>"$err"
        judge 1 "a stream of $file cut to $n bytes" $?
        absent "a stream of $file cut to $n bytes" x.pici
        n=$((n + 1 + n / 4))
    done
    head -c $((bytes - 1)) $file >cut.${file#*.}
    bad "$file without its last byte" cut.${file#*.}
    cat cut.${file#*.} | "$tool" compress --type ${file#*.} - >sunk 2>"$err"
    judge 1 "a pipe of $file without its last byte" $?
done
{ cat a.safetensors; printf x; } >long.safetensors
bad "bytes after .safetensors" long.safetensors
cat long.safetensors | "$tool" compress --type safetensors -o x.pici - 2>"$err"
judge 1 "bytes after .safetensors in a pipe" $?
absent "bytes after .safetensors in a pipe" x.pici
npy 1 "'|O'" False '(1,)' >object.npy
bad "a pickle" object.npy
{ npy 1 "'<f8'" False '(4611686018427387904, 4)'; cat n1200; } >huge.npy
bad "a shape beyond 64 bits" huge.npy
{ npy 1 "'<f4'" False '(1000000000000,)'; cat n1200; } >huge.npy
bad "a shape beyond the file" huge.npy
cat huge.npy | "$tool" compress --type npy -o x.pici - 2>"$err"
judge 1 "a shape beyond the stream" $?
{ byte 147; printf NUMPY; byte 2 0 255 255 255 127; cat n1200; } >huge.npy
bad "a header of 2 GB" huge.npy
{ le 8 99999999; cat n1200; } >huge.safetensors
bad "a header of 100 MB" huge.safetensors

# ---- a .pici file cut or changed anywhere
for file in a.npy.pici a.safetensors.pici; do
    bytes=$(wc -c <$file)
    n=0
    while [ $n -lt "$bytes" ]; do
        head -c $n $file >cut.pici
        expect 1 "test $file cut to $n bytes" "$tool" test cut.pici
        says "test $file cut to $n bytes: where" 'cut.pici: offset [0-9]+: ' "$err"
        expect 1 "decompress $file cut to $n bytes" "$tool" decompress -o x.out cut.pici
        absent "decompress $file cut to $n bytes" x.out
        "$tool" list cut.pici >"$out" 2>"$err"
        judge 1 "list $file cut to $n bytes" $?
        n=$((n + 41))
    done
    n=0
    while [ $n -lt "$bytes" ]; do
        at=$(od -An -tu1 -j $n -N 1 $file)
        { head -c $n $file; byte $((at ^ 64)); tail -c +$((n + 2)) $file; } >bad.pici
        expect 1 "test $file with byte $n changed" "$tool" test bad.pici
        expect 1 "decompress $file with byte $n changed" "$tool" decompress -o x.out bad.pici
        absent "decompress $file with byte $n changed" x.out
        n=$((n + 13))
    done
    { cat $file; printf x; } >bad.pici
    expect 1 "test $file with a byte after it" "$tool" test bad.pici
    expect 1 "decompress $file with a byte after it" "$tool" decompress -o x.out bad.pici
done
"$tool" test a.npy.pici bad.pici nofile a.safetensors.pici cut.pici >"$out" 2>"$err"
[ $? = 1 ] && [ "$(wc -l <"$out")" = 2 ] && [ "$(wc -l <"$err")" = 3 ] && pass ||
    fail "test of several files: a line each"
says "test of several files" '^a.safetensors.pici: ok$' "$out"

# ---- --keep-going restores the rest
at=$(($(wc -c <a.npy.pici) - 400)) # in the one chunk, which is before the index
{ head -c $at a.npy.pici; byte $(($(od -An -tu1 -j $at -N 1 a.npy.pici) ^ 4))
    tail -c +$((at + 2)) a.npy.pici; } >hurt.pici
expect 1 "test of a damaged chunk" "$tool" test hurt.pici
says "test of a damaged chunk" \
    "hurt.pici: offset [0-9]+: chunk 0 of tensor 'data' \(elements 0 to 299\): .* \(.*\)$" "$err"
expect 1 "--keep-going" "$tool" decompress --keep-going -o hurt.npy hurt.pici
says "--keep-going" "chunk 0 of tensor 'data' \(elements 0 to 299\): .*; set to zero$" "$err"
{ npy 1 "'<f4'" False '(300,)'; zeros 1200; } >zero.npy
same "--keep-going" zero.npy hurt.npy
cat hurt.pici | "$tool" decompress --keep-going - >hurt2.npy 2>"$err"
judge 1 "--keep-going of a pipe" $?
same "--keep-going of a pipe" zero.npy hurt2.npy
expect 0 "--keep-going, of a whole file" "$tool" decompress --keep-going -o whole.npy a.npy.pici
same "--keep-going, of a whole file" a.npy whole.npy

clean "after all that"
finish
