#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Names that other files rely on: each tests/unit/SUITE.c has the suite SUITE alone (make test T=SUITE runs that file),
# and the files that tests/mutants damages are there.
set -u
passed=0 failed=0

is() { # WHAT COMMAND...: it finds nothing
    what=$1
    shift
    if found=$("$@") && [ -z "$found" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAIL %s:\n%s\n' "$what" "$found"
    fi
}

other_suites() {
    awk 'match($0, /^ *(ParameterizedTest|Test|Theory)(Suite|Parameters)?\(/) {
        n = split(substr($0, RSTART + RLENGTH), words, /, */)
        suite = FILENAME
        gsub(/.*\/|\.c$/, "", suite)
        for (i = 1; i <= n && words[i] ~ /[ *)]/; i++)
            ; # the parameters that come before the suite
        if (words[i] != suite)
            print FILENAME ": " $0
    }' tests/unit/*.c
}

no_such_file() {
    sed -n 's/^mutate .* \([a-z_0-9/]*\.c\) \\$/\1/p' tests/mutants | sort -u | while read -r file; do
        [ -e "lib/$file" ] || echo "$file"
    done
}

is "a suite with another name than its file" other_suites
is "a file to be damaged that is not there" no_such_file
echo "$passed passed, $failed failed"
[ $failed = 0 ]
