#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# pici-run: what it tells the ranks, whose status it returns, what it does when a rank fails or a signal comes; training
# by its ranks gives what threads give.
set -u
build=${BUILD:-build}
run=$build/pici-run
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

ok() {
    passed=$((passed + 1))
}

fail() {
    failed=$((failed + 1))
    echo "FAIL $*"
}

# check STATUS WHAT COMMAND...: output to $tmp/out and $tmp/err
check() {
    want=$1 what=$2
    shift 2
    timeout 60 "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    status=$?
    if [ $status = "$want" ]; then ok; else fail "$what: exit status $status, not $want: $(head -c 500 "$tmp/err")"; fi
}

says() { # WHAT PATTERN FILE
    if grep -Eq -e "$2" "$3"; then ok; else fail "$1: no '$2' in: $(head -c 500 "$3")"; fi
}

silent() { # WHAT FILE
    if [ ! -s "$2" ]; then ok; else fail "$1: $(head -c 500 "$2")"; fi
}

# shellcheck disable=SC2016 # for the ranks' shells
{
    # What the ranks are told
    check 0 'the environment' "$run" -n 3 sh -c 'echo "$PICI_RANK/$PICI_RANKS $PICI_RENDEZVOUS $PICI_TOKEN $*"' \
        sh a 'b  c'
    sort "$tmp/out" >"$tmp/sorted"
    for rank in 0 1 2; do
        says 'the environment' "^$rank/3 127\.0\.0\.1:[0-9]+ [0-9a-f]{32} a b  c\$" "$tmp/sorted"
    done
    [ "$(cut -d' ' -f2,3 "$tmp/out" | sort -u | wc -l)" = 1 ] && ok || fail 'ranks differ in address or token'
    cut -d' ' -f3 "$tmp/out" | head -n 1 >"$tmp/token"
    check 0 'another run' "$run" -n 1 sh -c 'echo "$PICI_TOKEN"'
    cmp -s "$tmp/out" "$tmp/token" && fail 'two runs have the same token' || ok
    PICI_RANK=7 PICI_TOKEN=x check 0 'old variables' "$run" -n 1 sh -c 'echo "$PICI_RANK $PICI_TOKEN"'
    says 'old variables' '^0 [0-9a-f]{32}$' "$tmp/out"

    # Standard input is rank 0's
    printf 'line\n' | timeout 60 "$run" -n 3 sh -c 'read -r x && echo "$PICI_RANK $x"' >"$tmp/out" 2>"$tmp/err"
    [ $? = 1 ] && [ "$(cat "$tmp/out")" = '0 line' ] && ok || fail "standard input: $(cat "$tmp/out")"

    # Statuses
    check 0 'all is well' "$run" -n 4 true
    silent 'all is well' "$tmp/err"
    check 3 'a status' "$run" -n 3 sh -c '[ $PICI_RANK = 1 ] && exit 3; exec sleep 30'
    says 'a status' '^pici-run: rank 1 exited with status 3; the others are ended$' "$tmp/err"
    [ "$(wc -l <"$tmp/err")" = 1 ] && ok || fail "more than one line: $(cat "$tmp/err")"
    check 137 'a signal' "$run" -n 3 sh -c '[ $PICI_RANK = 2 ] && kill -9 $$; exec sleep 30'
    says 'a signal' '^pici-run: rank 2 was ended by signal 9 \(Killed\); the others are ended$' "$tmp/err"
    check 5 'the first of two' "$run" -n 2 sh -c '[ $PICI_RANK = 1 ] && exit 5; sleep 0.3; exit 6'
    check 3 'all are named' "$run" -v -n 3 sh -c '[ $PICI_RANK = 1 ] && exit 3; exec sleep 30'
    says 'all are named' '^pici-run: rank 0 was ended by signal 15 ' "$tmp/err"
    says 'all are named' '^pici-run: rank 2 was ended by signal 15 ' "$tmp/err"
    check 127 'no such command' "$run" -n 2 "$tmp/none"
    says 'no such command' '^pici-run: .*/none: No such file' "$tmp/err"
    : >"$tmp/not"
    check 126 'not a program' "$run" -n 2 "$tmp/not"

    # Those that do not end when they are told to
    start=$(date +%s)
    check 4 'a deaf rank' "$run" -n 2 sh -c '[ $PICI_RANK = 1 ] && exit 4; trap "" TERM; while :; do sleep 0.1; done'
    [ $(($(date +%s) - start)) -le 20 ] && ok || fail 'a deaf rank lives long'

    # Signals are passed on
    for signal in TERM INT HUP USR1; do
        env --default-signal=$signal "$run" -n 2 sh -c 'trap "echo got $PICI_RANK; exit 9" '$signal'
            echo ready >>"$0"; for i in $(seq 400); do sleep 0.05; done' "$tmp/ready.$signal" \
            >"$tmp/out" 2>"$tmp/err" </dev/null &
        pid=$!
        for _ in $(seq 100); do
            [ "$(cat "$tmp/ready.$signal" 2>/dev/null | wc -l)" = 2 ] && break
            sleep 0.05
        done
        kill -$signal $pid
        wait $pid
        status=$?
        [ $status = 9 ] && [ "$(sort "$tmp/out" | tr '\n' ' ')" = 'got 0 got 1 ' ] && ok ||
            fail "SIG$signal: exit status $status, $(cat "$tmp/out" "$tmp/err")"
    done
}

# Usage
for bad in '' '-n' '-n 0 true' '-n x true' '-n 5000 true' '-n 2' '-q -n 2 true' 'true'; do
    # shellcheck disable=SC2086 # words
    check 2 "usage: $bad" "$run" $bad
    says "usage: $bad" 'usage: pici-run|option' "$tmp/err"
done
check 0 help "$run" --help
says help '^usage: pici-run' "$tmp/out"
check 0 version "$run" --version
says version '^pici-run [0-9]+\.[0-9]' "$tmp/out"
for option in ranks verbose help version; do
    says "--$option in the manual" "Fl Fl $option" tools/run/pici-run.1
done

# Ranks that are processes over sockets give what threads give.
check 0 'train, threads' "$build/train" -s 8 -b 16 -u 64 -t 3
grep bit "$tmp/out" >"$tmp/threads"
check 0 'train, sockets' "$run" -n 3 "$build/train" -s 8 -b 16 -u 64
says 'train, sockets' '^3 ranks \(sockets\)' "$tmp/out"
says 'train, sockets' "$(sed 's/[()]/./g' "$tmp/threads")" "$tmp/out"
check 1 'train, no file' "$run" -n 3 "$build/train" "$tmp/none"
says 'train, no file' 'train: .*No such file' "$tmp/err"
check 2 'train, usage' "$run" -n 2 "$build/train" -q
PICI_RANKS=2 PICI_RANK=0 check 1 'train, no rendezvous' "$build/train"
says 'train, no rendezvous' 'train: .*PICI_RENDEZVOUS' "$tmp/err"

# The program of docs/sockets.md
libs=-pthread
[ "${ZSTD:-}" != 1 ] || libs="$libs -lzstd"
[ "${ZFP:-}" != 1 ] || libs="$libs -lzfp"
awk '/^```sockets$/ { on = 1; next } /^```$/ { on = 0 } on' docs/sockets.md >"$tmp/program.c"
# shellcheck disable=SC2086 # lists
check 0 'the program of the page compiles' ${CC:-cc} -std=c11 -Wall -Wextra -Wshadow -Wpedantic -Werror \
    ${SANITIZE:+-fsanitize=$SANITIZE} -Iinclude -o "$tmp/program" "$tmp/program.c" "$build/libpici_coll.a" \
    "$build/libpici.a" $libs -lm
check 0 'the program of the page' "$run" -n 3 "$tmp/program"
says 'the program of the page' '^3 ranks, sum 3$' "$tmp/out"
check 1 'the program of the page, alone' "$tmp/program"
says 'the program of the page, alone' 'PICI_RANKS.*pici-run' "$tmp/err"

echo "$passed passed, $failed failed"
[ $failed = 0 ]
