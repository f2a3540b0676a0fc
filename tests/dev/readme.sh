#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The C programs that README.md and the pages of docs/ for C show compile without a warning, and run. Parts of programs
# in other pages compile.
set -eu
root=$PWD
build=$(cd "${BUILD:-build}" && pwd)
cc=${CC:-cc}
libs=-pthread
[ "${ZSTD:-}" != 1 ] || libs="$libs -lzstd"
[ "${ZFP:-}" != 1 ] || libs="$libs -lzfp"
[ "${TLS:-}" != 1 ] || libs="$libs -lssl -lcrypto"
sanitize=${SANITIZE:+-fsanitize=$SANITIZE}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
programs() { # FILE: its programs to program1.c, program2.c, ...
    rm -f program*.c
    awk '/^```c$/ { on = 1; n++; next } /^```$/ { on = 0 } on { print > "program" n ".c" }' "$1"
}

compile() { # CC SOURCE LIBS...
    of=$1 source=$2
    shift 2
    # shellcheck disable=SC2086 # lists
    $of -std=c11 -Wall -Wextra -Wshadow -Wpedantic -Werror $sanitize -I"$root/include" -o program "$source" "$@" \
        "$build/libpici_coll.a" "$build/libpici.a" $libs
}

n=0
run_all() { # FILE HOW-MANY
    programs "$1"
    ran=0
    for f in program*.c; do
        ! grep -q MPI_Init "$f" || continue
        compile "$cc" "$f"
        ./program
        ran=$((ran + 1))
    done
    [ "$ran" = "$2" ] || { echo "$1 has $ran programs, not $2"; exit 1; }
    n=$((n + ran))
}
run_all "$root/docs/tutorials/c.md" 2
run_all "$root/docs/tutorials/c-deltas.md" 1
run_all "$root/docs/how-to/c-topk.md" 1
programs "$root/docs/how-to/c-mpi.md"
mv program1.c main.c
run_all "$root/README.md" 1
run_all "$root/docs/how-to/c-collectives.md" 1

# The variation for MPI, in docs/how-to/c-mpi.md, is a main for the program of docs/how-to/c-collectives.md.
if [ -n "$sanitize" ]; then
    echo "skip: the program over MPI, with sanitizers"
elif ! command -v mpicc.openmpi >/dev/null 2>&1; then
    echo "skip: the program over MPI: no mpicc.openmpi"
else
    sed '/^int main/,$d; s|<pici/coll.h>|<pici/mpi.h>|' program1.c | cat - main.c >mpi.c
    ${MAKE:-make} -s -C "$root" BUILD="$build" MPICC=mpicc.openmpi MPIDIR="$build/openmpi" mpi
    OMPI_CC=$cc compile mpicc.openmpi mpi.c "$build/openmpi/libpici_mpi.a"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    mpirun.openmpi --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -n 4 ./program
    n=$((n + 1))
fi

# What reference pages show of programs compiles in a function, after the headers and variables that are not shown.
fragment() { # PAGE HEADER DECLARATIONS
    programs "$root/$1"
    { printf '#include <pici/%s>\n%s\nvoid shown(void);\n' "$2" "$3"; grep '^#include' program1.c || true
        echo 'void shown(void) {'; grep -v '^#include' program1.c; echo '}'; } >fragment.c
    "$cc" -std=c11 -Wall -Wextra -Wshadow -Wpedantic -Werror -I"$root/include" -c -o fragment.o fragment.c
    n=$((n + 1))
}
comm='struct pici_comm *comm;'
fragment docs/explanation/values.md coll.h "$comm enum { n = 10 }; float gradient[n], lost[n], sum[n];"
fragment docs/reference/streams.md coll.h "$comm void use(uint64_t, const void *, const void *);"
fragment docs/reference/neighbor.md coll.h "$comm enum pici_status s; int sources, source[4], destinations,
    destination[4]; size_t count; float *send, *recv;"
fragment docs/reference/collectives.md socket.h "$comm struct pici_comm *inner[4], *outer; int local, rank, ranks;
    const char *address, *token;"
echo "$n passed"
