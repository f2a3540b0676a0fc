#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# make amalgamate: pici.c compiles by itself and without a warning, has the functions of pici.h and no other name, and
# makes the same blocks as the library, with each instruction set. tests/portable does the last on other machines.
set -eu
make=${MAKE:-make} cc=${CC:-cc} build=${BUILD:-build}
if [ -n "${SANITIZE:-}" ]; then
    echo "skip: the amalgamation, with sanitizers"
    exit 77
fi
command -v python3 >/dev/null 2>&1 || { echo "skip: the amalgamation: no python3"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0

ok() {
    passed=$((passed + 1))
    echo "ok $1"
}

fail() {
    echo "FAIL $1" >&2
    exit 1
}

rm -f "$build/obj/amalgamation.o" # so that its warnings show
"$make" -s BUILD="$build" CC="$cc" amalgamation-test >"$tmp/log" 2>&1 && ! grep -i warning "$tmp/log" || {
    cat "$tmp/log"
    fail "make amalgamation-test"
}
ok "compiled by itself, with $cc, -std=c11 -Wall -Wextra"
c=$build/amalgamation/pici.c h=$build/amalgamation/pici.h

if command -v nm >/dev/null 2>&1; then
    # Its text is preprocessed, so that comments do not count.
    printf '#include "%s/%s"\n' "$PWD" "$h" | "$cc" -E -P - | tr ';' '\n' |
        sed -n 's/.*\b\(pici_[a-z0-9_]*\)(.*/\1/p' | sort -u >"$tmp/declared"
    nm -g --defined-only "$build/obj/amalgamation.o" | awk '{ print $3 }' | sort -u >"$tmp/global"
    diff -u "$tmp/declared" "$tmp/global" || fail "the global names are not the functions of pici.h"
    ok "global names: $(wc -l <"$tmp/global"), those of pici.h"
else
    echo "skip: the global names of the amalgamation: no nm"
fi

cxx=$(printf '%s\n' "$cc" | sed 's/clang$/clang++/; s/clang-\([0-9]*\)$/clang++-\1/; s/gcc/g++/; s/^cc$/c++/')
if command -v "$cxx" >/dev/null 2>&1; then
    printf '#include "%s/%s"\n' "$PWD" "$h" |
        "$cxx" -x c++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only - ||
        fail "pici.h as C++"
    ok "pici.h as C++"
else
    echo "skip: the amalgamation's header as C++: no $cxx"
fi

# The text depends on the sources alone: not on the compiler, the locale or the folder.
for other in gcc clang; do
    command -v $other >/dev/null 2>&1 || { echo "skip: the amalgamation made with $other -E: no $other"; continue; }
    (cd "$tmp" && LC_ALL=C "$OLDPWD/tools/dev/amalgamate" --cc $other out) || fail "amalgamate --cc $other"
    cmp "$tmp/out/pici.c" "$c" && cmp "$tmp/out/pici.h" "$h" || fail "other text with $other -E"
    ok "the same text with $other -E"
done

isas=scalar
! grep -qw avx2 /proc/cpuinfo 2>/dev/null || isas="$isas avx2"
! grep -qw avx512_vbmi2 /proc/cpuinfo 2>/dev/null || isas="$isas avx512"
if [ "$(uname -m)" = x86_64 ]; then
    for isa in avx2 avx512; do
        nm "$build/obj/amalgamation.o" | grep -q " t ${isa}_8_unpack_" || fail "no kernels for $isa"
    done
    ok "kernels for AVX2 and AVX-512"
elif [ "$(uname -m)" = aarch64 ]; then
    isas="$isas neon"
    nm "$build/obj/amalgamation.o" | grep -q " t neon_8_unpack_" || fail "no kernels for NEON"
    ok "kernels for NEON"
fi
for isa in $isas; do
    PICI_CPU=$isa "$build/amalgamated" >"$tmp/amalgamated" || fail "$isa: the amalgamation"
    PICI_CPU=$isa "$build/unamalgamated" >"$tmp/library" || fail "$isa: the library"
    cmp "$tmp/amalgamated" "$tmp/library" || fail "$isa: other results than the library's"
    ok "$isa: $(wc -l <"$tmp/library") results, those of the library"
done
echo "$passed passed"
