#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# picitool log: a folder of a base and deltas. A reader gets from any state to the newest, also from a folder that is
# copied in part. Each verb is killed 25 times, with PICI_TEST_FULL=1 500 times, and loses nothing.
. tests/cli/common

numbers 300 >n1200
for i in 1 2 3 4 5 6 7 8; do cat n1200; done >n9600
blob() { # LETTER: 1 MiB, of which some bytes depend on it
    npy 1 "'<u2'" False '(500000,)'
    { zeros 300000; cat n9600; tr '\001\002\003\004' "$1$1$1$1" <n9600; zeros 680800; }
}
for s in a b c d; do blob $s >$s.npy; done
cmp -s a.npy b.npy && fail "the states are alike" || pass

newest() { # WHAT FILE [LOG]: what a new reader of log gets
    rm -f probe
    expect 0 "$1" "$tool" log apply "${3:-log}" probe
    same "$1" "$2" probe
}

expect 0 init "$tool" log init log a.npy
newest "the first state" a.npy
expect 2 "init of a log" "$tool" log init log a.npy
expect 0 append "$tool" log append log a.npy b.npy
expect 0 append "$tool" log append log b.npy c.npy
expect 1 "append to an older state" "$tool" log append log b.npy d.npy
says "append to an older state" 'b.npy: is not the newest state of log' "$err"
newest "three states" c.npy
"$tool" log list log >"$out"
says list '^state 0: base-000000000.npy, 1000128 bytes$' "$out"
says list '^state 1 to 2: delta-000000002.pici, [0-9]* bytes$' "$out"
for s in a b c; do
    cp $s.npy reader
    expect 0 "from $s" "$tool" log apply log reader
    same "from $s" c.npy reader
done
cp d.npy reader
expect 1 "from no state" "$tool" log apply log reader
says "from no state" 'reader: is none of the states of log' "$err"
same "from no state" d.npy reader
expect 0 "from no state, --force" "$tool" log apply --force log reader
same "from no state, --force" c.npy reader

# ---- a base that is packed
npy 1 "'<f4'" False '(2400,)' >w.npy
cat n9600 >>w.npy
npy 1 "'<f4'" False '(2400,)' >x.npy
{ head -c 9000 n9600; head -c 600 n1200; } >>x.npy
cmp -s w.npy x.npy && fail "the states of the packed log are alike" || pass
expect 0 "init --pack" "$tool" log init -T 2 --pack planes packed w.npy
expect 0 "append to a packed base" "$tool" log append packed w.npy x.npy
"$tool" log list packed >"$out"
says "list of a packed base" '^state 0: base-000000000.npy.pici, [0-9]* bytes of 9728$' "$out"
[ ! -e packed/base-000000000.npy ] || fail "a packed base beside a whole one"
expect 0 "from a packed base" "$tool" log apply packed packed.npy
same "from a packed base" x.npy packed.npy
expect 0 "compact of a packed base" "$tool" log compact packed
[ "$(ls packed)" = "$(printf 'base-000000001.npy.pici\ndelta-000000001.pici\nmanifest')" ] ||
    [ "$(ls packed)" = "$(printf 'base-000000001.npy.pici\nmanifest')" ] || fail "after compact: $(ls packed)"
rm packed.npy
expect 0 "from a packed base, compacted" "$tool" log apply packed packed.npy
same "from a packed base, compacted" x.npy packed.npy
expect 2 "--pack of raw bytes" "$tool" log init --pack planes rawlog n1200
says "--pack of raw bytes" 'log init --pack is for .safetensors, .gguf and .npy files' "$err"
[ ! -e rawlog ] || fail "a log of raw bytes"

# ---- a folder that is copied in part
part() { # WHAT FILE STATE-AFTER: reader, from a.npy, of the folder log2
    cp a.npy reader
    expect 1 "$1" "$tool" log apply log2 reader
    says "$1" "log2/$2" "$err"
    same "$1" "$3" reader
}
cp -r log log2
rm log2/delta-000000002.pici
part "without the last delta" 'delta-000000002.pici: is not there yet' b.npy
rm -f probe
expect 1 "a new reader without the last delta" "$tool" log apply log2 probe
same "a new reader without the last delta" b.npy probe
head -c 300 log/delta-000000002.pici >log2/delta-000000002.pici
part "a part of the last delta" 'delta-000000002.pici: is incomplete or damaged' b.npy
cp log/delta-000000002.pici log2
expect 0 "the rest has come" "$tool" log apply log2 reader
same "the rest has come" c.npy reader
rm log2/delta-000000001.pici
part "without the first delta" 'delta-000000001.pici: is not there yet' a.npy
n=0 bytes=$(wc -c <log/manifest)
while [ $n -lt "$bytes" ]; do
    head -c $n log/manifest >log2/manifest
    cp a.npy reader
    expect 1 "a manifest cut to $n bytes" "$tool" log apply log2 reader
    same "a manifest cut to $n bytes" a.npy reader
    at=$(od -An -tu1 -j $n -N 1 log/manifest)
    { head -c $n log/manifest; byte $((at ^ 1)); tail -c +$((n + 2)) log/manifest; } >log2/manifest
    expect 1 "a manifest with byte $n changed" "$tool" log apply log2 reader
    n=$((n + 41))
done
rm log2/manifest
expect 1 "no manifest" "$tool" log apply log2 reader

# ---- a copy of an object store, whose names have hashes
stored() { # FOLDER: give its files the names that a store has
    while read -r kind number _ first_hash word _; do
        case $kind in
            base) plain=$(printf base-%09d "$number") rest=$word hash=$first_hash ;;
            packed) rest=$rest.pici hash=$first_hash ;;
            delta) plain=$(printf delta-%09d "$number") rest=.pici hash=$first_hash ;;
            *) continue ;;
        esac
        [ ! -e "$1/$plain$rest" ] || mv "$1/$plain$rest" "$1/$plain-$hash$rest"
    done <"$1/manifest"
}
for l in log packed; do
    rm -rf log3
    cp -r $l log3
    stored log3
    others=$(find log3 -type f ! -name '*-????????????????.*') # but for the manifest
    [ "$others" = log3/manifest ] && pass || fail "$others"
    [ $l = log ] && last=c.npy || last=x.npy
    newest "a copy of a store" $last log3
done
rm -rf log3
cp -r log log3
stored log3
echo other >log3/delta-000000002.pici
cp a.npy reader
expect 0 "a file beside that of the store" "$tool" log apply log3 reader
same "a file beside that of the store" c.npy reader
echo other >log3/delta-000000002-0000000000000000.pici
echo other >log3/delta-000000009-0123456789abcdef.pici
for f in delta-000000009-0123456789abcde.pici delta-000000009-0123456789ABCDEF.pici delta-9-0123456789abcdef.pici; do
    echo mine >log3/$f
done
expect 0 "append to a copy of a store" "$tool" log append log3 c.npy d.npy
newest "append to a copy of a store" d.npy log3
expect 0 "compact a copy of a store" "$tool" log compact log3
newest "compact a copy of a store" d.npy log3
ls log3 >"$out"
says "the base of a compacted copy" '^base-000000003.npy$' "$out"
grep -q '^base-000000000\|^delta-000000002-0000000000000000\|^delta-000000009-0123456789abcdef' "$out" &&
    fail "left in a compacted copy: $(cat "$out")" || pass
[ "$(cat log3/delta-000000009-0123456789abcde.pici log3/delta-000000009-0123456789ABCDEF.pici \
    log3/delta-9-0123456789abcdef.pici)" = "$(printf 'mine\nmine\nmine')" ] && pass || fail "compact has removed a file"

# ---- compact: old states are still known, and a reader of the old manifest is told
for f in base-7b.safetensors base-1.txt base-1 base-000000000.npy.orig base-0000000001.npy delta-1.pici \
    delta-000000009.pici.orig notes; do
    echo mine >log/$f
    echo log/$f >>users
done
for f in base-000000007.npy delta-000000009.pici .pici-1; do
    echo rest >log/$f
done
expect 0 compact "$tool" log compact log
while read -r f; do
    [ "$(cat "$f" 2>"$err")" = mine ] && pass || fail "compact has removed $f"
    rm -f "$f"
done <users
absent "the base of an init that was killed" log/base-000000007.npy
absent "the delta of an append that was killed" log/delta-000000009.pici
absent "a temporary file" log/.pici-1
newest "after compact" c.npy
ls log >"$out"
says "the base" '^base-000000002.npy$' "$out"
absent "the old base" log/base-000000000.npy
cp a.npy reader
expect 0 "from a, after compact" "$tool" log apply log reader
same "from a, after compact" c.npy reader
expect 0 "compact, again" "$tool" log compact log
expect 0 "append after compact" "$tool" log append log c.npy d.npy
newest "append after compact" d.npy
expect 2 "log" "$tool" log
expect 2 "log with another verb" "$tool" log remove log

# ---- a row of more deltas than the process may have files open, as a log and by hand
few() { # COMMAND...
    # shellcheck disable=SC3045
    (ulimit -n 32 && exec "$@")
}
i=0
mkdir row
set --
state() { # N: the state of that number
    npy 1 "'<u4'" False '(4,)'
    le 4 "$1"
    zeros 12
}
state 0 >row/0.npy
expect 0 "a row: init" "$tool" log init rowlog row/0.npy
while [ $i -lt 40 ]; do
    state $((i + 1)) >row/$((i + 1)).npy
    expect 0 "a row: append" "$tool" log append rowlog row/$i.npy row/$((i + 1)).npy
    expect 0 "a row: diff" "$tool" diff -o row/$i.pici row/$i.npy row/$((i + 1)).npy
    set -- "$@" row/$i.pici
    i=$((i + 1))
done
expect 0 "a row: log apply" few "$tool" log apply rowlog row/new
same "a row: log apply" row/40.npy row/new
expect 0 "a row: apply" few "$tool" apply -o row/by-hand row/0.npy "$@"
same "a row: apply" row/40.npy row/by-hand
expect 0 "a row: log compact" few "$tool" log compact rowlog
rm row/new
expect 0 "a row: log apply" few "$tool" log apply rowlog row/new
same "a row: log apply after compact" row/40.npy row/new
set --

# ---- two inits of one folder: one of them makes it
i=0
while [ $i -lt 10 ]; do
    i=$((i + 1))
    rm -rf twice
    "$tool" log init twice a.npy >"$out" 2>"$err" &
    first=$!
    "$tool" log init twice b.npy >"$out" 2>"$err"
    status=$?
    wait $first
    both="$? $status" made=b
    [ "$both" != '0 2' ] || made=a
    [ "$both" = '0 2' ] || [ "$both" = '2 0' ] && pass || fail "two inits: they end with $both"
    rm -f probe
    expect 0 "two inits" "$tool" log apply twice probe
    same "two inits" $made.npy probe
done

: >x.pt
expect 2 "init of a .pt" "$tool" log init zip x.pt
says "init of a .pt" 'x\.pt: log is not for \.pt files' "$err"
absent "init of a .pt" zip
cp a.npy x.pt
expect 0 "init of a .pt as raw bytes" "$tool" log init -t raw zip x.pt
expect 0 "append to it" "$tool" log append -t raw -d u8 zip x.pt b.npy
rm -rf zip x.pt

# ---- readers, and copies by any means, while another process appends and compacts
rm -rf live
"$tool" log init live a.npy || fail "init"
: >writing
{
    i=0
    while [ $i -lt 25 ]; do
        for step in "a b" "b c" "c d" "d a"; do
            # shellcheck disable=SC2086
            set -- $step
            "$tool" log append live "$1.npy" "$2.npy" 2>>"$tmp/logs/writer"
            "$tool" log compact live 2>>"$tmp/logs/writer"
        done
        i=$((i + 1))
    done
    rm writing
} &
some_state() { # WHAT FILE: is one of a, b, c and d
    for s in a b c d; do
        ! cmp -s "$2" $s.npy || { pass; return; }
    done
    fail "$1: $2 is none of the states"
}
told=0
while [ -e writing ]; do
    for i in 1 2 3 4; do
        rm -f probe
        expect 0 "a new reader" "$tool" log apply live probe
        some_state "a new reader" probe
    done
    rm -rf copy
    cp -r live copy 2>"$err"
    cp b.npy probe
    for f in probe new; do
        if "$tool" log apply copy $f >"$out" 2>"$err"; then
            some_state "a reader of a copy" $f
        else
            told=$((told + 1))
            says "a reader of a copy" \
                "^picitool: (copy/.*: is (not there yet|incomplete)|copy/manifest: |$f: is none)" "$err"
            [ ! -e $f ] || some_state "a reader of a copy that lacks files" $f
        fi
    done
    rm -f new
done
wait
[ -s "$tmp/logs/writer" ] && fail "the writer: $(head -c 300 "$tmp/logs/writer")" || pass
expect 0 "a reader after all" "$tool" log apply live probe
same "a reader after all" a.npy probe
echo "a copy lacked files $told times"

# ---- killed at any time
at=d points=25 i=0
[ -z "${PICI_TEST_FULL:-}" ] || points=500
next_of() {
    case $1 in a) echo b ;; b) echo c ;; c) echo d ;; *) echo a ;; esac
}
compact_killed() { # POINT LOG VERB EXTENSION: it leads to $at before and after, and then has one base
    cp "$2/manifest" held
    kill_at "$1" "$3" "$tool" log compact "$2"
    newest "$3 was killed" $at.npy "$2"
    if cmp -s held "$2/manifest"; then
        was "$3" before
        timed "$3" "$tool" log compact "$2"
    else
        was "$3" after
        expect 0 "$3 again" "$tool" log compact "$2"
    fi
    newest "$3 again" $at.npy "$2"
    left=$(find "$2" -maxdepth 1 \( -name 'base-*' -o -name '.pici*' \) | sed 's|.*/base-[0-9]*||')
    [ "$left" = "$4" ] && pass || fail "$3 again: left $(ls -A "$2")"
}
rm -rf packed
expect 0 "init --pack" "$tool" log init --pack planes packed d.npy
timed append "$tool" log append log d.npy a.npy
timed append "$tool" log append log a.npy d.npy
cp a.npy reader
timed apply "$tool" log apply log reader
timed compact "$tool" log compact log
expect 0 "append to a packed base" "$tool" log append packed d.npy a.npy
expect 0 "append to a packed base" "$tool" log append packed a.npy d.npy
timed compact-packed "$tool" log compact packed
while [ $i -lt $points ]; do
    i=$((i + 1))
    next=$(next_of $at)
    kill_at $i append "$tool" log append log $at.npy $next.npy
    rm -f probe
    expect 0 "after append was killed" "$tool" log apply log probe
    if cmp -s probe $at.npy; then
        was append before
        timed append "$tool" log append log $at.npy $next.npy
    else
        was append after
        same "append was killed" $next.npy probe
    fi
    cp $at.npy reader
    kill_at $i apply "$tool" log apply log reader
    if cmp -s reader $at.npy; then
        was apply before
        timed apply "$tool" log apply log reader
    else
        was apply after
    fi
    same "apply was killed" $next.npy reader
    expect 0 "append to a packed base" "$tool" log append packed $at.npy $next.npy
    at=$next
    compact_killed $i log compact '.npy'
    compact_killed $i packed compact-packed '.npy.pici'
    rm -f .pici-*
done
kills_spread append apply compact compact-packed

# ---- a base that is nothing that log append takes
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n' >lfs.safetensors
expect 1 "init with a pointer of Git LFS" "$tool" log init none lfs.safetensors
says "init with a pointer of Git LFS" 'lfs.safetensors: is a Git LFS pointer, not the file itself' "$err"
{ printf 'PK\003\004'; zeros 22; le 2 16; le 2 0; printf 'archive/data.pkl....'; } >model.bin
expect 2 "init with a file of torch" "$tool" log init none model.bin
says "init with a file of torch" 'model.bin: log is not for .pt files' "$err"
absent "init with what cannot be appended to" none
finish
