#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# tests/run on a tree with tests of its own: which it chooses, what it says of each, how it ends.
. tests/util/script
unset EXCEPT TALLY AGAIN JOBS QUICK PICI_CPU PICI_TEST_FULL MAKEFLAGS

mkdir -p "$tmp/tests/cli" "$tmp/tests/unit" "$tmp/tests/plain" "$tmp/b"
cp tests/run "$tmp/tests/run"
cd "$tmp" || exit 1

program() { # FILE, whose lines are standard input
    { echo '#!/bin/sh' && cat; } >"$1" && chmod +x "$1"
}

run() { # STATUS ARGUMENTS...
    want=$1
    shift
    check "$want" "$*" tests/run b "$@"
}

says() { # PATTERN...: a line each
    for pattern; do
        is "no line $pattern in: $(cat "$out" "$err")" grep -qx -e "$pattern" "$out" "$err"
    done
}

echo 'Test(ring, one)' >tests/unit/ring.c
echo 'int no_test;' >tests/unit/helper.c
: >tests/plain/sums.c
program b/plain_sums <<'END'
echo '7 passed'
END
program b/tests <<'END'
echo "$*" >arguments
echo '[====] Synthesis: Tested: 3 | Passing: 3 | Failing: 0 | Crashing: 0'
END
program tests/cli/good.sh <<'END'
echo "skip: the moon"; echo '2 passed, 0 failed'; touch met.good
for i in $(seq 50); do [ ! -e met.other ] || exit 0; sleep 0.1; done; exit 1
END
program tests/cli/other.sh <<'END'
touch met.other; for i in $(seq 50); do [ ! -e met.good ] || exit 77; sleep 0.1; done; exit 1
END
# what make would build is there
program make <<'END'
echo "$*" >made
END
MAKE=$tmp/make
export MAKE

run 0 list
says plain/sums unit/ring cli/good.sh cli/other.sh
is "other names: $(cat out)" [ "$(wc -l <out)" = 4 ]

JOBS=2 TALLY=tally run 0
says ' *ok *plain/sums *7 passed, 0 failed, 0 skipped, . s' ' *ok *unit/ring *3 passed, 0 failed, .*' \
    ' *ok *cli/good.sh *2 passed, 0 failed, 1 skipped, .*' ' *skip *cli/other.sh *0 passed, 0 failed, 1 skipped, .*' \
    'make check: 12 passed, 0 failed, 2 skipped' '  - cli/good.sh: the moon' '  - cli/other.sh: skipped itself'
is "the tally" grep -qx '12 0 2' tally

rm met.*
EXCEPT='cli/o* unit/* good' run 1 # a pattern is of the whole name; what waits for the other ends
says '.*FAIL *cli/good.sh .*' ' *exit status 1, b/check/cli_good.sh.log; again: make BUILD=b test T=cli/good.sh' \
    '  - left out, as EXCEPT asks: cli/o\* unit/\* good' 'make check: 7 passed, 1 failed, 1 skipped'

echo theirs >b/check/kept.log # all may be running
run 0 only ring
[ -e b/check/kept.log ] || { failed=$((failed + 1)); echo "FAIL the logs of another run are gone"; }
[ -e b/test/unit_ring.log ] || { failed=$((failed + 1)); echo "FAIL no log in b/test: $(ls -R b)"; }
says "ran    b/tests --jobs 1 --filter 'ring/\*'" 'again: make BUILD=b test T=ring' 'make test: 3 passed, 0 failed, .*'
is "only what is needed is made: $(cat made)" grep -qx -e "-j[0-9]* BUILD=b b/tests" made
PICI_CPU=scalar AGAIN='make X=1 test' run 0 only plain_sums ring/one
says 'ran    b/plain_sums' "ran    b/tests --filter 'ring/one'" \
    "again: PICI_CPU=scalar make X=1 test T='plain_sums ring/one'"
run 2 only unit/rinng
says 'no test has "unit/rinng" in its name; like it are:' '  unit/ring'
run 2 only
run 2 other

program b/tests <<'END'
echo '[====] Synthesis: Tested: 0 | Passing: 0 | Failing: 0 | Crashing: 0'
END
run 1 only ring/none
says ' *FAIL *unit/ring/none .*' '    no such test, or no result'
program b/tests <<'END'
echo '[====] Synthesis: Tested: 3 | Passing: 1 | Failing: 2 | Crashing: 1'; exit 1
END
run 1 only ring
says ' *FAIL *unit/ring *1 passed, 2 failed, .*'
finish
