#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The example of a transport of one's own, between processes.
. tests/util/script

run() { # STATUS PATTERN ARGUMENTS...
    want=$1 pattern=$2
    shift 2
    check "$want" "transport $*" timeout 60 "$build/transport" "$@"
    cat "$err" >>"$out"
    says "transport $*" "$pattern"
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
finish
