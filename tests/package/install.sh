#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# make install into an empty root, then programs outside the tree against the installation: by pkg-config, shared and
# static, as C and as C++, with libpici alone and with libpici_coll. Also the shared libraries' exports and names, and
# uninstall, which leaves nothing.
. tests/util/script
set -e
[ -z "${SANITIZE:-}" ] || skip_all "installing a sanitizer build"
root=$tmp/root

install() {
    "$make" -s -j"$(nproc)" BUILD="$build" DESTDIR="$root" PREFIX=/usr/local "$1" >"$tmp/log" 2>&1 || {
        cat "$tmp/log"
        die "$1"
    }
}

install install
lib=$root/usr/local/lib
for f in lib/libpici.a lib/libpici.so lib/libpici.so.0 lib/pkgconfig/pici.pc lib/libpici_coll.a lib/libpici_coll.so \
    lib/libpici_coll.so.0 lib/pkgconfig/pici-coll.pc include/pici/pici.h include/pici/file.h \
    bin/pici-run share/man/man1/pici-run.1 include/pici/socket.h \
    bin/picitool share/man/man1/picitool.1 share/man/man1/picitool-compress.1 share/man/man1/picitool-block.1 \
    share/bash-completion/completions/picitool share/zsh/site-functions/_picitool \
    share/fish/vendor_completions.d/picitool.fish share/file/magic/pici lib/cmake/pici/pici-config.cmake \
    lib/cmake/pici/pici-config-version.cmake; do
    [ -e "$root/usr/local/$f" ] || die "not installed: $f"
done
[ "$("$root/usr/local/bin/picitool" --version | grep -c '[0-9]\.[0-9]')" = 1 ] || die "the installed picitool"
[ "$("$root/usr/local/bin/pici-run" --version | grep -c '[0-9]\.[0-9]')" = 1 ] || die "the installed pici-run"
pass "make install"

if command -v readelf >/dev/null 2>&1; then
    # Exactly the functions that its public headers mark PICI_API, without the private symbols of another library.
    exports() { # LIBRARY HEADERS...
        library=$1
        shift
        readelf -d "$lib/$library.so" | grep >/dev/null "SONAME.*\[$library\.so\.0\]" || die "soname of $library"
        # pici_mix is what pici_breakdown was called until version 0.3: of it the headers have a macro.
        { (cd include/pici && cat "$@"); [ $library != libpici ] || echo 'PICI_API int pici_mix('; } |
            sed -n '/PICI_API/{:more; /(/!{N; b more}; s/.*[^a-z0-9_]\(pici_[a-z0-9_]*\)(.*/\1/p}' |
            sort -u >"$tmp/declared"
        nm -D --with-symbol-versions --defined-only "$lib/$library.so" |
            awk '$2 != "A" && $3 !~ /PICI_PRIVATE/ { sub(/@.*/, "", $3); print $3 }' | sort -u >"$tmp/exported"
        diff -u "$tmp/declared" "$tmp/exported" || die "symbols that $library exports are not those of the headers"
        pass "$library exports $(wc -l <"$tmp/exported") symbols, those of the headers"
    }
    collectives="coll.h neighbor.h socket.h stream.h transport.h"
    others=
    for header in include/pici/*.h; do
        case " $collectives mpi.h cuda.h nccl.h " in *" ${header##*/} "*) ;; *) others="$others ${header##*/}" ;; esac
    done
    # shellcheck disable=SC2086 # lists
    exports libpici $others
    # shellcheck disable=SC2086
    exports libpici_coll $collectives
    # What libpici exports for libpici_coll, that one uses, and libpici uses nothing of that one.
    nm -D --with-symbol-versions "$lib/libpici.so" | sed -n 's/.* T \([a-z0-9_]*\)@@*PICI_PRIVATE$/\1/p' >"$tmp/given"
    nm -D --with-symbol-versions "$lib/libpici_coll.so" | sed -n 's/.* U \(.*\)@PICI_PRIVATE$/\1/p' >"$tmp/used"
    [ -s "$tmp/given" ] && diff -u "$tmp/given" "$tmp/used" || die "private symbols that libpici_coll does not use"
    ! readelf -d "$lib/libpici.so" | grep 'NEEDED.*pici' || die "libpici needs another library of ours"
    pass "$(wc -l <"$tmp/given") private symbols, all of which libpici_coll uses"
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
cat >"$tmp/collective.c" <<'C'
#include <pici/coll.h>
#include <stdio.h>

int main(void)
{
    struct pici_comm *comm;
    float x[1000] = {1, 0, 3};
    if (pici_comm_threads(&comm, 1) != PICI_OK)
        return 1;
    enum pici_status status = pici_all_reduce(x, x, 1000, PICI_F32, PICI_SUM, comm, NULL);
    pici_comm_free(comm);
    return status != PICI_OK || x[2] != 3 || printf("%s\n", pici_strerror(status)) < 0;
}
C

if command -v pkg-config >/dev/null 2>&1; then
    # For this shell alone: a make that saw other flags would make all anew.
    installed() { PKG_CONFIG_PATH="$lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root" pkg-config "$@"; }
    # The root moves our paths; a dependency's stay, if it is found in the system's.
    flags() { installed "$@" | sed "s|-I$root/usr/include|-I/usr/include|g; s|-L$root/usr/lib|-L/usr/lib|g"; }
    [ "$(installed --modversion pici)" = "$(sed -n 's/.*define PICI_VERSION "\(.*\)"/\1/p' include/pici/pici.h)" ] ||
        die "pkg-config --modversion"
    cd "$tmp"
    # shellcheck disable=SC2046 # flags are words
    $cc -std=c11 -Wall -Wextra -Wpedantic -Werror -o shared program.c $(flags --cflags --libs pici) ||
        die "shared link"
    LD_LIBRARY_PATH="$lib" ./shared >/dev/null || die "the program with the shared library"
    pass "C, shared"
    # shellcheck disable=SC2046
    $cc -std=c11 -Wall -Wextra -Wpedantic -Werror -o static program.c $(flags --cflags pici) "$lib/libpici.a" \
        $(flags --static --libs pici | tr ' ' '\n' | grep -v -x -e -lpici) || die "static link"
    ./static >/dev/null || die "the program with the static library"
    pass "C, static"
    ! readelf -d shared 2>/dev/null | grep 'NEEDED.*pici_coll' || die "libpici alone brings libpici_coll"
    # shellcheck disable=SC2046
    $cc -std=c11 -Wall -Wextra -Wpedantic -Werror -o shared collective.c $(flags --cflags --libs pici-coll) ||
        die "shared link with libpici_coll"
    LD_LIBRARY_PATH="$lib" ./shared >/dev/null || die "the program with the shared libpici_coll"
    # A program that calls nothing of libpici, by a linker that leaves out what is not needed, and by its own path.
    sed 's/ || printf.*;/;/' collective.c >alone.c
    # shellcheck disable=SC2046
    $cc -std=c11 -Wall -Wextra -Wpedantic -Werror -o alone alone.c -Wl,--as-needed -Wl,-rpath,"$lib" \
        $(flags --cflags --libs pici-coll) || die "shared link with libpici_coll alone"
    ! readelf -d alone 2>/dev/null | grep 'NEEDED.*libpici\.so' || die "the linker brings libpici"
    ./alone || die "the program with the shared libpici_coll, by its own path"
    # shellcheck disable=SC2046
    $cc -std=c11 -Wall -Wextra -Wpedantic -Werror -o static collective.c $(flags --cflags pici-coll) \
        "$lib/libpici_coll.a" "$lib/libpici.a" \
        $(flags --static --libs pici-coll | tr ' ' '\n' | grep -v -x -e -lpici -e -lpici_coll) || die "static link"
    ./static >/dev/null || die "the program with the static libpici_coll"
    pass "C, with libpici_coll, shared and static"
    cxx=$(printf '%s\n' "$cc" | sed 's/clang$/clang++/; s/clang-\([0-9]*\)$/clang++-\1/; s/gcc/g++/; s/^cc$/c++/')
    if command -v "$cxx" >/dev/null 2>&1; then
        # shellcheck disable=SC2046
        $cxx -Wall -Wextra -Wpedantic -Wshadow -Werror -o cxx program.cc $(flags --cflags --libs pici) || die "C++ link"
        LD_LIBRARY_PATH="$lib" ./cxx >/dev/null || die "the C++ program"
        pass "C++, shared"
    else
        echo "skip: C++: no $cxx"
    fi
    cd - >/dev/null

    # libpici_mpi, by its own .pc file and through mpicc; over one rank, which needs no mpirun
    if command -v mpicc >/dev/null 2>&1; then
        "$make" -s -j"$(nproc)" BUILD="$build" CC="$cc" mpi >"$tmp/log" 2>&1 || { cat "$tmp/log"; die "make mpi"; }
        install install
        "$root/usr/local/bin/pici-tune" --version | grep >/dev/null '[0-9]\.[0-9]' || die "the installed pici-tune"
        [ -e "$root/usr/local/share/man/man1/pici-tune.1" ] || die "the manual of pici-tune"
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
            die "MPI link"
        OMPI_MCA_btl=self OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 LD_LIBRARY_PATH="$lib" ./mpi \
            >"$tmp/log" 2>&1 || { cat "$tmp/log"; die "the program over MPI"; }
        cd - >/dev/null
        pass "C, MPI"
    else
        echo "skip: installing libpici_mpi: no mpicc"
    fi
else
    echo "skip: a program by pkg-config: no pkg-config"
fi

install uninstall
left=$(find "$root" -type f -o -type l | head)
[ -z "$left" ] || die "left by make uninstall: $left"
pass "make uninstall"
finish
