#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Names that other files rely on: each tests/unit/SUITE.c has the suite SUITE alone (make test T=SUITE runs that file),
# and the files that tests/mutants damages are there.
. tests/util/script

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

for what in other_suites no_such_file; do
    found=$($what)
    is "$what: $found" [ -z "$found" ]
done
finish
