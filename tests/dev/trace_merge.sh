#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# tools/trace-merge, on traces written by hand.
. tests/util/script
set -e
merge=$PWD/tools/trace-merge
command -v python3 >/dev/null 2>&1 || skip_all "trace-merge: no python3"
cd "$tmp"

event() { # RANK ROW NAME TS DUR SEQUENCE
    printf ',\n{"name":"%s","ph":"X","pid":%d,"tid":%d,"ts":%s,"dur":%s,"args":{"sequence":%d}}' \
        "$3" "$1" "$2" "$4" "$5" "$6"
}

name() { # RANK
    printf '[{"name":"process_name","ph":"M","pid":%d,"tid":0,"args":{"name":"rank %d"}}' "$1" "$1"
}

# Two collectives on two hosts: rank 1's clock is 5000 microseconds ahead, and its end is missing.
{ name 0; event 0 0 send 1000.5 2 0; event 0 3 all-reduce 1000 10 0; event 0 3 all-reduce 1020 10 1; echo ']'; } >t.0
{ name 1; event 1 2 wait 6001 1 0; event 1 3 all-reduce 6000 10 0; event 1 3 all-reduce 6020.25 9.75 1; } >t.1

order() { # each event's rank, name and time, in the order of the file
    sed -n 's/.*"name":"\([a-z-]*\)","ph":"X","pid":\([0-9]*\).*"ts":\([0-9.]*\).*/\2 \1 \3;/p' "$1" | tr '\n' ' '
}

"$merge" t.1 t.0 >out
rank_0='0 all-reduce 0; 0 send 0.5; 0 all-reduce 20; '
[ "$(order out)" = "${rank_0}1 all-reduce 5000; 1 wait 5001; 1 all-reduce 5020.25; " ] || die "merged: $(order out)"
[ "$(grep -c process_name out)" = 2 ] || die "names of ranks"
python3 -c 'import json; json.load(open("out"))' || die "not JSON"
pass

"$merge" --align -o aligned t.0 t.1
aligned='0 all-reduce 0.0; 1 all-reduce 0.0; 0 send 0.5; 1 wait 1.0; 0 all-reduce 20.0; 1 all-reduce 20.25; '
[ "$(order aligned)" = "$aligned" ] || die "aligned: $(order aligned)"
pass

# cut in the middle of an event, as a full disk leaves it
head -c 300 t.0 >cut.0
"$merge" cut.0 >out
[ "$(order out)" = '0 all-reduce 0; 0 send 0.5; ' ] || die "cut: $(order out)"
pass

refuse() { # WHAT ARGS...
    what=$1
    shift
    if "$merge" "$@" >out 2>err; then
        die "accepted: $what"
    fi
    [ "$(wc -l <err)" = 1 ] && grep -q '^trace-merge: ' err || die "$what: $(cat err)"
    pass
}

echo '{"a":1}' >object
echo '[{"name":"x","ph":"X","pid":0,"ts":0}]' >foreign
{ name 2; echo ']'; } >idle
: >empty
printf '\377' >binary
refuse "a missing file" t.0 t.9
refuse "a rank twice" t.0 t.0
refuse "an object" object
refuse "another program's events" foreign
refuse "an empty file" empty
refuse "bytes" binary
refuse "its own input as output" -o t.0 t.0 t.1
refuse "nothing to align by" --align t.0 idle
"$merge" --help | grep >/dev/null PICI_TRACE || die "--help"
pass
finish
