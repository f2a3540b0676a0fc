#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The C programs that README.md shows compile without a warning, and run.
set -eu
root=$PWD
build=$(cd "${BUILD:-build}" && pwd)
cc=${CC:-cc}
libs=-pthread
[ "${ZSTD:-}" != 1 ] || libs="$libs -lzstd"
sanitize=${SANITIZE:+-fsanitize=$SANITIZE}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
awk '/^```c$/ { on = 1; n++; next } /^```$/ { on = 0 } on { print > "program" n ".c" }' "$root/README.md"
n=0
for f in program*.c; do
    # shellcheck disable=SC2086 # lists
    $cc -std=c11 -Wall -Wextra -Wshadow -Wpedantic -Werror $sanitize -I"$root/include" -o program "$f" "$build/libpici.a" \
        $libs
    ./program
    n=$((n + 1))
done
[ "$n" = 2 ] || { echo "README.md has $n programs, not 2"; exit 1; }
echo "$n passed"
