#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# libpici, libpici_coll, picitool and the extension module of Python compile without a warning and link for macOS on
# aarch64, by zig cc: ZIG names the command, "zig" by default, or "python3 -m ziglang" of the package ziglang. Nothing
# is run.
. tests/util/script
[ -z "${SANITIZE:-}" ] || skip_all "aarch64-macos, with sanitizers"
zig=${ZIG:-zig}
# shellcheck disable=SC2086 # a command with its arguments
$zig version >/dev/null 2>&1 || skip_all "aarch64-macos: no zig (the package ziglang of PyPI; ZIG='python3 -m ziglang')"
ZIG_GLOBAL_CACHE_DIR=${ZIG_GLOBAL_CACHE_DIR:-$tmp/cache} ZIG_LOCAL_CACHE_DIR=${ZIG_LOCAL_CACHE_DIR:-$tmp/cache}
export ZIG_GLOBAL_CACHE_DIR ZIG_LOCAL_CACHE_DIR
zig_version=$($zig version)
zig="$zig cc -target aarch64-macos"
# Where ccache is in use, it keeps the objects. It takes zig for clang, which it is, of this version and target: the
# script that it runs has a new time in each test.
cc_zig=$zig
if [ -n "${CCACHE_BASEDIR:-}" ] && command -v ccache >/dev/null 2>&1; then
    printf '#!/bin/sh\nexec %s "$@"\n' "$zig" >"$tmp/clang" && chmod +x "$tmp/clang"
    export CCACHE_COMPILERCHECK="string:zig $zig_version aarch64-macos"
    cc_zig="ccache $tmp/clang"
fi
mkdir "$tmp/lib" "$tmp/coll" "$tmp/model" "$tmp/tools" "$tmp/python"

compile() { # FOLDER FLAGS FILES...: their objects, in that folder of $tmp
    c_folder=$tmp/$1 c_flags=$2
    shift 2
    printf '%s\n' "$@" | xargs -P 2 -n 4 sh -c '
        for file in "$@"; do
            '"$cc_zig"' -include packaging/macos/linux_names.h -std=c11 -O1 -fPIC -ffp-contract=off -Iinclude -Ilib \
                -D_FILE_OFFSET_BITS=64 -pthread -Wall -Wextra -Werror '"$c_flags"' \
                -c -o "'"$c_folder"'/$(echo "$file" | tr / _).o" "$file" || exit 255
        done' sh >"$out" 2>&1
    c_status=$?
    [ $c_status = 0 ] && pass || fail "$c_folder: $(grep -m 4 'error' "$out")"
}

library='-fvisibility=hidden -DPICI_BUILD'
sources() { # FILES: a line each
    printf '%s\n' "$@"
}
coll=$(sources lib/schedule/*.c lib/predict/*.c lib/values/*.c lib/coll/*.c lib/transport/*.c |
    grep -v '/mpi\|/nccl\|/engine_cuda\.c$')
# shellcheck disable=SC2046,SC2086 # lists
{
    compile lib "$library" $(sources lib/*.c lib/*/*.c | grep -v '^lib/\(schedule\|predict\|values\|coll\|transport\)/')
    compile coll "$library" $coll packaging/macos/linux_names.c
    compile tools '-Itools -I.' $(sources tools/*.c tools/*/*.c |
        grep -v '^tools/\(run\|tune/\(pici-tune\|world\|over\|calibrate\|points\|thresholds\)\)')
}
links() { # WHAT COMMAND...
    l_what=$1
    shift
    # shellcheck disable=SC2086
    if $zig "$@" >"$out" 2>&1; then pass "$l_what: $(file -b "$tmp/$l_what" | cut -c 1-60)"; else
        fail "$l_what: $(head -c 600 "$out")"
    fi
}
links libpici.dylib -shared -o "$tmp/libpici.dylib" "$tmp"/lib/*.o
links libpici_coll.dylib -shared -o "$tmp/libpici_coll.dylib" "$tmp"/coll/*.o "$tmp/libpici.dylib"
links picitool -o "$tmp/picitool" "$tmp"/tools/*.o "$tmp"/lib/*.o "$tmp"/coll/lib_schedule_*.o \
    "$tmp"/coll/lib_predict_*.o
include=$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))' 2>/dev/null)
if [ -e "$include/Python.h" ]; then
    compile python "-fvisibility=hidden -isystem $include" python/pici/*.c
    links _codec.abi3.so -shared -undefined dynamic_lookup -o "$tmp/_codec.abi3.so" "$tmp"/python/*.o
else
    skip "the extension module for aarch64-macos: no Python.h"
fi
finish
