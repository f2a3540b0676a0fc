#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# make install into an empty root, then a program outside the tree against what was installed: by pkg-config, shared and
# static, as C and as C++; what the shared library exports and calls itself; uninstall leaves nothing.
set -eu
make=${MAKE:-make} cc=${CC:-cc} build=${BUILD:-build}
if [ -n "${SANITIZE:-}" ]; then
    echo "skip: installing a sanitizer build"
    exit 77
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
root=$tmp/root
passed=0

ok() {
    passed=$((passed + 1))
    echo "ok $1"
}

fail() {
    echo "FAIL $1" >&2
    exit 1
}

install() {
    "$make" -s -j"$(nproc)" BUILD="$build" DESTDIR="$root" PREFIX=/usr/local "$1" >"$tmp/log" 2>&1 || {
        cat "$tmp/log"
        fail "$1"
    }
}

install install
lib=$root/usr/local/lib
for f in lib/libpici.a lib/libpici.so lib/libpici.so.0 lib/pkgconfig/pici.pc include/pici/pici.h include/pici/file.h \
    bin/pici-run share/man/man1/pici-run.1 include/pici/socket.h \
    bin/picitool share/man/man1/picitool.1 share/man/man1/picitool-compress.1 share/man/man1/picitool-block.1 \
    share/bash-completion/completions/picitool share/zsh/site-functions/_picitool \
    share/fish/vendor_completions.d/picitool.fish share/file/magic/pici lib/cmake/pici/pici-config.cmake \
    lib/cmake/pici/pici-config-version.cmake; do
    [ -e "$root/usr/local/$f" ] || fail "not installed: $f"
done
[ "$("$root/usr/local/bin/picitool" --version | grep -c '[0-9]\.[0-9]')" = 1 ] || fail "the installed picitool"
[ "$("$root/usr/local/bin/pici-run" --version | grep -c '[0-9]\.[0-9]')" = 1 ] || fail "the installed pici-run"
ok "make install"

if command -v readelf >/dev/null 2>&1; then
    readelf -d "$lib/libpici.so" | grep -q 'SONAME.*\[libpici\.so\.0\]' || fail "soname"
    ok "soname"

    # Exactly the functions that the public headers mark PICI_API: without mpi.h, cuda.h and nccl.h, whose functions are
    # in libraries of their own, and without the private symbols that such a library uses.
    find include/pici -name '*.h' ! -name mpi.h ! -name cuda.h ! -name nccl.h -exec cat {} + |
        sed -n '/PICI_API/{:more; /(/!{N; b more}; s/.*[^a-z0-9_]\(pici_[a-z0-9_]*\)(.*/\1/p}' |
        sort -u >"$tmp/declared"
    nm -D --with-symbol-versions --defined-only "$lib/libpici.so" |
        awk '$2 != "A" && $3 !~ /PICI_PRIVATE/ { sub(/@.*/, "", $3); print $3 }' | sort -u >"$tmp/exported"
    diff -u "$tmp/declared" "$tmp/exported" || fail "exported symbols are not those of the headers"
    ok "exports: $(wc -l <"$tmp/exported") symbols, those of the headers"
else
    echo "skip: soname and exports: no readelf"
fi

cat >"$tmp/program.c" <<'C'
#include <pici/file.h>
#include <pici/pici.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    static float in[10000], out[10000];
    static unsigned char block[50000];
    size_t len = 0;
    in[0] = 1;
    in[9999] = -2;
    if (strcmp(pici_version(), PICI_VERSION) != 0)
        return 1;
    if (pici_compress(block, sizeof block, &len, in, 10000, PICI_F32, PICI_AUTO, NULL) != PICI_OK)
        return 2;
    if (pici_decompress(out, 10000, block, len, NULL) != PICI_OK || memcmp(in, out, sizeof in) != 0)
        return 3;
    return printf("%s\n", pici_strerror(PICI_OK)) < 0;
}
C
cp "$tmp/program.c" "$tmp/program.cc"

if command -v pkg-config >/dev/null 2>&1; then
    # For this shell alone: a make that saw other flags would make all anew.
    installed() { PKG_CONFIG_PATH="$lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root" pkg-config "$@"; }
    # The root moves our paths; a dependency's stay, if it is found in the system's.
    flags() { installed "$@" | sed "s|-I$root/usr/include|-I/usr/include|g; s|-L$root/usr/lib|-L/usr/lib|g"; }
    [ "$(installed --modversion pici)" = "$(sed -n 's/.*define PICI_VERSION "\(.*\)"/\1/p' include/pici/pici.h)" ] ||
        fail "pkg-config --modversion"
    cd "$tmp"
    # shellcheck disable=SC2046 # flags are words
    $cc -std=c11 -Wall -Wextra -Wpedantic -Werror -o shared program.c $(flags --cflags --libs pici) ||
        fail "shared link"
    LD_LIBRARY_PATH="$lib" ./shared >/dev/null || fail "the program with the shared library"
    ok "C, shared"
    # shellcheck disable=SC2046
    $cc -std=c11 -Wall -Wextra -Wpedantic -Werror -o static program.c $(flags --cflags pici) "$lib/libpici.a" \
        $(flags --static --libs pici | tr ' ' '\n' | grep -v -x -e -lpici) || fail "static link"
    ./static >/dev/null || fail "the program with the static library"
    ok "C, static"
    cxx=$(printf '%s\n' "$cc" | sed 's/clang$/clang++/; s/clang-\([0-9]*\)$/clang++-\1/; s/gcc/g++/; s/^cc$/c++/')
    if command -v "$cxx" >/dev/null 2>&1; then
        # shellcheck disable=SC2046
        $cxx -Wall -Wextra -Wpedantic -Werror -o cxx program.cc $(flags --cflags --libs pici) || fail "C++ link"
        LD_LIBRARY_PATH="$lib" ./cxx >/dev/null || fail "the C++ program"
        ok "C++, shared"
    else
        echo "skip: C++: no $cxx"
    fi
    cd - >/dev/null

    # libpici_mpi, by its own .pc file and through mpicc; over one rank, which needs no mpirun
    if command -v mpicc >/dev/null 2>&1; then
        "$make" -s -j"$(nproc)" BUILD="$build" CC="$cc" mpi >"$tmp/log" 2>&1 || { cat "$tmp/log"; fail "make mpi"; }
        install install
        "$root/usr/local/bin/pici-tune" --version | grep -q '[0-9]\.[0-9]' || fail "the installed pici-tune"
        [ -e "$root/usr/local/share/man/man1/pici-tune.1" ] || fail "the manual of pici-tune"
        cat >"$tmp/mpi.c" <<'C'
#include <pici/mpi.h>

int main(int argc, char **argv)
{
    struct pici_comm *comm;
    MPI_Init(&argc, &argv);
    enum pici_status status = pici_comm_mpi(&comm, MPI_COMM_SELF);
    int wrong = status != PICI_OK || pici_comm_size(comm) != 1;
    pici_comm_free(comm);
    MPI_Finalize();
    return wrong;
}
C
        cd "$tmp"
        # shellcheck disable=SC2046
        OMPI_CC=$cc MPICH_CC=$cc mpicc -std=c11 -Wall -Wextra -Werror -o mpi mpi.c $(flags --cflags --libs pici_mpi) ||
            fail "MPI link"
        OMPI_MCA_btl=self OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 LD_LIBRARY_PATH="$lib" ./mpi \
            >"$tmp/log" 2>&1 || { cat "$tmp/log"; fail "the program over MPI"; }
        cd - >/dev/null
        ok "C, MPI"
    else
        echo "skip: installing libpici_mpi: no mpicc"
    fi
else
    echo "skip: a program by pkg-config: no pkg-config"
fi

install uninstall
left=$(find "$root" -type f -o -type l | head)
[ -z "$left" ] || fail "left by make uninstall: $left"
ok "make uninstall"
echo "$passed passed"
