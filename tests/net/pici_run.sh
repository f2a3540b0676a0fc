#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# pici-run: what it tells the ranks, whose status it returns, what it does when a rank fails or a signal comes; training
# by its ranks gives what threads give.
. tests/util/script
run=$build/pici-run limit="timeout 60"

# shellcheck disable=SC2016 # for the ranks' shells
{
    # What the ranks are told
    check 0 'the environment' "$run" -n 3 sh -c 'echo "$PICI_RANK/$PICI_RANKS $PICI_RENDEZVOUS $PICI_TOKEN $*"' \
        sh a 'b  c'
    sort "$out" >"$tmp/sorted"
    for rank in 0 1 2; do
        says 'the environment' "^$rank/3 127\.0\.0\.1:[0-9]+ [0-9a-f]{32} a b  c\$" "$tmp/sorted"
    done
    [ "$(cut -d' ' -f2,3 "$out" | sort -u | wc -l)" = 1 ] && pass || fail 'ranks differ in address or token'
    cut -d' ' -f3 "$out" | head -n 1 >"$tmp/token"
    check 0 'another run' "$run" -n 1 sh -c 'echo "$PICI_TOKEN"'
    cmp -s "$out" "$tmp/token" && fail 'two runs have the same token' || pass
    PICI_RANK=7 PICI_TOKEN=x check 0 'old variables' "$run" -n 1 sh -c 'echo "$PICI_RANK $PICI_TOKEN"'
    says 'old variables' '^0 [0-9a-f]{32}$' "$out"

    # Standard input is rank 0's
    printf 'line\n' | timeout 60 "$run" -n 3 sh -c 'read -r x && echo "$PICI_RANK $x"' >"$out" 2>"$err"
    [ $? = 1 ] && [ "$(cat "$out")" = '0 line' ] && pass || fail "standard input: $(cat "$out")"

    # Statuses
    check 0 'all is well' "$run" -n 4 true
    is 'all is well' [ ! -s "$err" ]
    check 3 'a status' "$run" -n 3 sh -c '[ $PICI_RANK = 1 ] && exit 3; exec sleep 30'
    says 'a status' '^pici-run: rank 1 exited with status 3; the others are ended$' "$err"
    [ "$(wc -l <"$err")" = 1 ] && pass || fail "more than one line: $(cat "$err")"
    check 137 'a signal' "$run" -n 3 sh -c '[ $PICI_RANK = 2 ] && kill -9 $$; exec sleep 30'
    says 'a signal' '^pici-run: rank 2 was ended by signal 9 \(Killed\); the others are ended$' "$err"
    check 5 'the first of two' "$run" -n 2 sh -c '[ $PICI_RANK = 1 ] && exit 5; sleep 0.3; exit 6'
    check 3 'all are named' "$run" -v -n 3 sh -c '[ $PICI_RANK = 1 ] && exit 3; exec sleep 30'
    says 'all are named' '^pici-run: rank 0 was ended by signal 15 ' "$err"
    says 'all are named' '^pici-run: rank 2 was ended by signal 15 ' "$err"
    check 127 'no such command' "$run" -n 2 "$tmp/none"
    says 'no such command' '^pici-run: .*/none: No such file' "$err"
    : >"$tmp/not"
    check 126 'not a program' "$run" -n 2 "$tmp/not"

    # Those that do not end when they are told to
    start=$(date +%s)
    check 4 'a deaf rank' "$run" -n 2 sh -c '[ $PICI_RANK = 1 ] && exit 4; trap "" TERM; while :; do sleep 0.1; done'
    [ $(($(date +%s) - start)) -le 20 ] && pass || fail 'a deaf rank lives long'

    # Signals are passed on
    for signal in TERM INT HUP USR1; do
        env --default-signal=$signal "$run" -n 2 sh -c 'trap "echo got $PICI_RANK; exit 9" '$signal'
            echo ready >>"$0"; for i in $(seq 400); do sleep 0.05; done' "$tmp/ready.$signal" \
            >"$out" 2>"$err" </dev/null &
        pid=$!
        for _ in $(seq 100); do
            [ "$(cat "$tmp/ready.$signal" 2>/dev/null | wc -l)" = 2 ] && break
            sleep 0.05
        done
        kill -$signal $pid
        wait $pid
        status=$?
        [ $status = 9 ] && [ "$(sort "$out" | tr '\n' ' ')" = 'got 0 got 1 ' ] && pass ||
            fail "SIG$signal: exit status $status, $(cat "$out" "$err")"
    done
}

# Usage
for bad in '' '-n' '-n 0 true' '-n x true' '-n 5000 true' '-n 2' '-q -n 2 true' 'true'; do
    # shellcheck disable=SC2086 # words
    check 2 "usage: $bad" "$run" $bad
    says "usage: $bad" 'usage: pici-run|option' "$err"
done
check 0 help "$run" --help
says help '^usage: pici-run' "$out"
check 0 version "$run" --version
says version '^pici-run [0-9]+\.[0-9]' "$out"
for option in ranks verbose help version; do
    says "--$option in the manual" "Fl Fl $option" tools/run/pici-run.1
done

# Ranks that are processes over sockets give what threads give.
check 0 'train, threads' "$build/train" -s 8 -b 16 -u 64 -t 3
grep bit "$out" >"$tmp/threads"
check 0 'train, sockets' "$run" -n 3 "$build/train" -s 8 -b 16 -u 64
says 'train, sockets' '^3 ranks \(sockets\)' "$out"
says 'train, sockets' "$(sed 's/[()]/./g' "$tmp/threads")" "$out"

# Whether ranks share memory, or a part of them, or not, they give the same; and say if they wanted to and could not.
trains() { # WHAT COMMAND...
    what=$1
    shift
    check 0 "$what" "$@"
    says "$what" "$(sed 's/[()]/./g' "$tmp/threads")" "$out"
}
if [ -e /proc/self/fd ]; then
    is 'memory is shared without a word' [ ! -s "$err" ]
    trains 'no memory is shared' env PICI_SOCKET_SHARED=0 "$run" -n 3 "$build/train" -s 8 -b 16 -u 64
    is 'no memory is shared, without a word' [ ! -s "$err" ]
    # shellcheck disable=SC2016 # for the ranks' shells
    trains 'two of three share memory' "$run" -n 3 sh -c \
        '[ $PICI_RANK != 1 ] || export PICI_SOCKET_SHARED=0; exec "$0" -s 8 -b 16 -u 64' "$build/train"
    is 'two of three, without a word' [ ! -s "$err" ]
    # shellcheck disable=SC2016 # for the ranks' shells
    trains 'no file may be long' "$run" -n 3 sh -c 'ulimit -f 100; exec "$0" -s 8 -b 16 -u 64' "$build/train"
    says 'no file may be long' '^pici: rank 0 shares no memory with rank 1: File too large, and likewise with others' \
        "$err"
    is 'a line for each rank' [ "$(wc -l <"$err")" = 3 ]
    trains 'several connections' env PICI_SOCKET_SHARED=0 PICI_SOCKET_STREAMS=3 "$run" -n 3 "$build/train" -s 8 -b 16 \
        -u 64
    is 'several connections, without a word' [ ! -s "$err" ]
else
    skip 'no /proc: memory is not shared'
fi
check 1 'train, no file' "$run" -n 3 "$build/train" "$tmp/none"
says 'train, no file' 'train: .*No such file' "$err"
check 2 'train, usage' "$run" -n 2 "$build/train" -q
PICI_RANKS=2 PICI_RANK=0 check 1 'train, no rendezvous' "$build/train"
says 'train, no rendezvous' 'train: .*PICI_RENDEZVOUS' "$err"

# The program of docs/tutorials/first-cluster.md
libs=-pthread
[ "${ZSTD:-}" != 1 ] || libs="$libs -lzstd"
[ "${ZFP:-}" != 1 ] || libs="$libs -lzfp"
[ "${TLS:-}" != 1 ] || libs="$libs -lssl -lcrypto"
awk '/^```sockets$/ { on = 1; next } /^```$/ { on = 0 } on' docs/tutorials/first-cluster.md >"$tmp/program.c"
# shellcheck disable=SC2086 # lists
check 0 'the program of the page compiles' ${CC:-cc} -std=c11 -Wall -Wextra -Wshadow -Wpedantic -Werror \
    ${SANITIZE:+-fsanitize=$SANITIZE} -Iinclude -o "$tmp/program" "$tmp/program.c" "$build/libpici_coll.a" \
    "$build/libpici.a" $libs -lm
check 0 'the program of the page' "$run" -n 3 "$tmp/program"
says 'the program of the page' '^3 ranks, sum 3$' "$out"
check 1 'the program of the page, alone' "$tmp/program"
says 'the program of the page, alone' 'PICI_RANKS.*pici-run' "$err"

finish
