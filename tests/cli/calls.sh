#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# No two files of tools/ call each other, directly or through other files. tsort(1) orders the object files of picitool
# by the symbols that they use of each other, and reports loops.
. tests/cli/common
objects=$root/${BUILD:-build}/obj/tools
case ${BUILD:-build} in /*) objects=$BUILD/obj/tools ;; esac
if ! command -v nm >/dev/null 2>&1 || ! command -v tsort >/dev/null 2>&1 || [ ! -d "$objects" ]; then
    skip "calls among the files of picitool: no nm, no tsort or no object files"
    finish
fi
# Object files whose sources are gone are left over from earlier builds.
for o in $(cd "$objects" && find . -name '*.o' | sed 's|^\./||; s|\.o$||'); do
    [ -f "$root/tools/$o.c" ] || continue
    nm -P "$objects/$o.o" | awk -v o="$o" '$2 ~ /^[TDBR]$/ { print o, $1 }' >>defined
    nm -P "$objects/$o.o" | awk -v o="$o" '$2 == "U" { print o, $1 }' >>used
done
[ "$(cut -d ' ' -f 1 defined | sort -u | wc -l)" -gt 30 ] && pass || fail "fewer than 30 object files have symbols"
awk 'NR == FNR { from[$2] = $1; next } $2 in from && from[$2] != $1 { print $1, from[$2] }' defined used |
    sort -u >calls
[ "$(wc -l <calls)" -gt 50 ] && pass || fail "fewer than 50 calls among the files"
tsort calls >"$out" 2>"$err"
[ ! -s "$err" ] && pass || fail "files that call each other: $(tr '\n' ' ' <"$err")"
finish
