#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Ranks over sockets on three hosts, which are network namespaces (bench/net): they train, and agree. A rank that is
# killed, and a host whose link is cut, end all ranks, and the errors say which rank it was.
. tests/util/script
no_threads_sanitizer "ranks on several hosts"
BENCH_NET=t$(echo $$ | tail -c 6 | tr 0-9 a-j) # a network of its own
export BENCH_NET
export tmp build
job=

# shellcheck disable=SC2317 # called by the trap
clean() {
    [ -z "$job" ] || kill "$job" 2>/dev/null
    bench/net down >/dev/null 2>&1
    rm -rf "$tmp"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if ! bench/net up 3 none >"$tmp/out" 2>&1; then
    skip_all "no hosts: $(tail -n 1 "$tmp/out")"
fi

# Two ranks on each host, with an algorithm for which it counts which ranks share one
PICI_ALGORITHM=nodes-ring timeout 100 bench/net start 6 "$build/train" -o 2 -s 8 -b 16 >"$tmp/out" 2>&1 &&
    grep -q '^6 ranks (sockets)' "$tmp/out" && pass || fail "train on three hosts: $(tail -n 5 "$tmp/out")"

sent() { # bytes that the first host has sent
    ip netns exec "${BENCH_NET}1" cat /sys/class/net/eth0/statistics/tx_bytes
}

# begin: four ranks, two of them on the first host, train until something happens. Each leaves its process in pid.RANK,
# its words in err.RANK, and a line "RANK STATUS TIME" in ends.
begin() {
    rm -f "$tmp"/pid.* "$tmp"/err.*
    : >"$tmp/ends"
    first=$(sent)
    # shellcheck disable=SC2016 # for the ranks' shells
    bench/net start 4 sh -c '"$build/train" -o 2 -s 1000000 -b 16 >/dev/null 2>"$tmp/err.$PICI_RANK" &
        echo $! >"$tmp/pid.$PICI_RANK"; wait $!; echo "$PICI_RANK $? $(date +%s%N)" >>"$tmp/ends"' >"$tmp/out" 2>&1 &
    job=$!
    for _ in $(seq 300); do
        [ "$(sent)" -gt $((first + 500000)) ] && return
        sleep 0.1
    done
    fail "ranks that do not begin: $(cat "$tmp"/err.* | tail -n 3)"
}

# end WHAT MILLISECONDS RANKS: all ranks have ended by then; those of RANKS with an error
end() {
    for _ in $(seq 300); do
        [ "$(wc -l <"$tmp/ends")" = 4 ] && break
        sleep 0.1
    done
    for rank in $3; do
        status=$(sed -n "s/^$rank \([0-9]*\) .*/\1/p" "$tmp/ends") at=$(sed -n "s/^$rank .* //p" "$tmp/ends")
        [ -n "$at" ] || { fail "$1: rank $rank does not end"; continue; }
        took=$(((at - start) / 1000000))
        [ "$status" = 1 ] && [ $took -le "$2" ] && pass || fail "$1: rank $rank: status $status after $took ms"
        echo "$1: rank $rank after $took ms: $(tail -n 1 "$tmp/err.$rank")"
    done
    kill $job 2>/dev/null
    wait $job 2>/dev/null
    job=
}

names() { # WHAT RANKS PATTERN: in what these ranks said
    for rank in $2; do
        grep -Eq "$3" "$tmp/err.$rank" && pass || fail "$1: rank $rank says: $(tail -n 1 "$tmp/err.$rank")"
    done
}

begin
start=$(date +%s%N)
kill -KILL "$(cat "$tmp/pid.2")"
end 'a rank is killed' 5000 '0 1 3'
names 'a rank is killed' '0 1 3' '(rank 2 closed its connection|after rank 2 failed: )'

# The second host has rank 1 alone.
first=$(ip netns exec "${BENCH_NET}1" cat /sys/class/net/eth0/statistics/tx_bytes)
export PICI_TIMEOUT_MS=1000
begin
start=$(date +%s%N)
ip -n "${BENCH_NET}2" link set eth0 down
end 'a link is cut' 6000 '0 1 2 3'
names 'a link is cut' '1' 'timed out \(rank 1: no progress for 1000 ms: waiting .* rank [023]'
names 'a link is cut' '0 2 3' 'timed out \((exchange with )?rank [0-3]'
grep -Eq 'timed out \(.* rank ([023], )*1' "$tmp"/err.[023] && pass ||
    fail "a link is cut: nobody names rank 1: $(cat "$tmp"/err.*)"

finish
