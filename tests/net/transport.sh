#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The example of a transport of one's own, between processes.
set -u
build=${BUILD:-build}
tmp=$(mktemp)
trap 'rm -f "$tmp"' EXIT
passed=0 failed=0

run() { # STATUS PATTERN ARGUMENTS...
    want=$1 pattern=$2
    shift 2
    timeout 60 "$build/transport" "$@" >"$tmp" 2>&1 </dev/null
    status=$?
    if [ $status = "$want" ] && grep -Eq -e "$pattern" "$tmp"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL transport $*: exit status $status, not $want, or no '$pattern' in: $(head -c 500 "$tmp")"
    fi
}

for ranks in 1 2 3 4 7 16; do
    for algorithm in ring recursive; do
        PICI_ALGORITHM=$algorithm run 0 "^$ranks processes" $ranks
    done
done
PICI_SLICE_BYTES=16384 PICI_WINDOW=3 PICI_CHECKSUM=1 run 0 '^4 processes'
PICI_FORMAT=dense run 0 '^4 processes'
PICI_WINDOW=none run 1 'rank [0-9]: .*PICI_WINDOW' 3
for bad in 0 17 -1 four 4x ''; do
    run 1 'usage' "$bad"
done
run 1 'usage' 2 2
echo "$passed passed, $failed failed"
[ $failed = 0 ]
