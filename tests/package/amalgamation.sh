#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# make amalgamate: pici.c compiles by itself and without a warning. It has the functions of pici.h and no other name,
# and makes the same blocks as the library, with each instruction set. tests/portable does the last on other machines.
. tests/util/script
set -e
[ -z "${SANITIZE:-}" ] || skip_all "the amalgamation, with sanitizers"
command -v python3 >/dev/null 2>&1 || skip_all "the amalgamation: no python3"

rm -f "$build/obj/amalgamation.o" # so that its warnings show
"$make" -s BUILD="$build" CC="$cc" amalgamation-test >"$tmp/log" 2>&1 && ! grep -i warning "$tmp/log" || {
    cat "$tmp/log"
    die "make amalgamation-test"
}
pass "compiled by itself, with $cc, -std=c11 -Wall -Wextra"
c=$build/amalgamation/pici.c h=$build/amalgamation/pici.h

if command -v nm >/dev/null 2>&1; then
    # Its text is preprocessed, so that comments do not count.
    printf '#include "%s/%s"\n' "$PWD" "$h" | "$cc" -E -P - | tr ';' '\n' |
        sed -n 's/.*\b\(pici_[a-z0-9_]*\)(.*/\1/p' | sort -u >"$tmp/declared"
    nm -g --defined-only "$build/obj/amalgamation.o" | awk '{ print $3 }' | sort -u >"$tmp/global"
    diff -u "$tmp/declared" "$tmp/global" || die "the global names are not the functions of pici.h"
    pass "global names: $(wc -l <"$tmp/global"), those of pici.h"
else
    echo "skip: the global names of the amalgamation: no nm"
fi

if command -v "$cxx" >/dev/null 2>&1; then
    printf '#include "%s/%s"\n' "$PWD" "$h" |
        "$cxx" -x c++ -std=c++11 -Wall -Wextra -Wpedantic -Wshadow -Werror -fsyntax-only - ||
        die "pici.h as C++"
    pass "pici.h as C++"
else
    echo "skip: the amalgamation's header as C++: no $cxx"
fi

# The text depends on the sources alone: not on the compiler, the locale or the folder. One other compiler tells.
for other in gcc clang; do
    [ "$other" != "$cc" ] || ! command -v gcc >/dev/null 2>&1 || ! command -v clang >/dev/null 2>&1 || continue
    command -v $other >/dev/null 2>&1 || { echo "skip: the amalgamation made with $other -E: no $other"; continue; }
    (cd "$tmp" && LC_ALL=C "$OLDPWD/tools/dev/amalgamate" --cc $other out) || die "amalgamate --cc $other"
    cmp "$tmp/out/pici.c" "$c" && cmp "$tmp/out/pici.h" "$h" || die "other text with $other -E"
    pass "the same text with $other -E"
done

isas=scalar
! grep -qw avx2 /proc/cpuinfo 2>/dev/null || isas="$isas avx2"
! grep -qw avx512_vbmi2 /proc/cpuinfo 2>/dev/null || isas="$isas avx512"
if [ "$(uname -m)" = x86_64 ]; then
    for isa in avx2 avx512; do
        nm "$build/obj/amalgamation.o" | grep >/dev/null " t ${isa}_8_unpack_" || die "no kernels for $isa"
    done
    pass "kernels for AVX2 and AVX-512"
elif [ "$(uname -m)" = aarch64 ]; then
    isas="$isas neon"
    nm "$build/obj/amalgamation.o" | grep >/dev/null " t neon_8_unpack_" || die "no kernels for NEON"
    pass "kernels for NEON"
fi
for isa in $isas; do
    PICI_CPU=$isa "$build/amalgamated" >"$tmp/amalgamated" || die "$isa: the amalgamation"
    PICI_CPU=$isa "$build/unamalgamated" >"$tmp/library" || die "$isa: the library"
    cmp "$tmp/amalgamated" "$tmp/library" || die "$isa: other results than the library's"
    pass "$isa: $(wc -l <"$tmp/library") results, those of the library"
done
finish
