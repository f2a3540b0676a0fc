#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# find_package(pici): programs in C and C++ against an installation that was moved elsewhere, with the shared and the
# static libraries, and over MPI. Also missing components and versions. FetchContent: the libraries built from the
# sources by another project's CMake.
. tests/util/script
set -e
[ -z "${SANITIZE:-}" ] || skip_all "find_package(pici), with sanitizers"
command -v cmake >/dev/null 2>&1 || skip_all "find_package(pici): no cmake"
command -v "$cxx" >/dev/null 2>&1 || skip_all "find_package(pici): no $cxx"
moved="$tmp/a place to move to"

# MPI's library is added later.
with_mpi=
if command -v mpicc >/dev/null 2>&1; then
    with_mpi=mpi
    make_target mpi
fi
make_target DESTDIR="$tmp/root" PREFIX=/opt/pici MPIDIR="$tmp/none" CUDADIR="$tmp/none" NCCLDIR="$tmp/none" install
mv "$tmp/root/opt/pici" "$moved"
lib="$moved/lib"
! grep -r '/opt/pici\|@' "$lib/cmake" || die "an absolute path, or a variable that was not replaced"

version=$(sed -n 's/.*define PICI_VERSION "\(.*\)"/\1/p' include/pici/pici.h)
series=${version%.*}
mkdir "$tmp/consumer"
cat >"$tmp/consumer/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.12)
project(consumer C CXX)
enable_testing()
if(CASE STREQUAL "programs")
  find_package(pici ${SERIES} REQUIRED)
  foreach(one pici shared static)
    add_executable(c_${one} program.c)
    add_executable(cxx_${one} program.cc)
    target_link_libraries(c_${one} PRIVATE pici::${one})
    target_link_libraries(cxx_${one} PRIVATE pici::${one})
  endforeach()
  foreach(one coll coll_shared coll_static)
    add_executable(c_${one} collective.c)
    target_link_libraries(c_${one} PRIVATE pici::${one})
  endforeach()
  set_target_properties(c_pici PROPERTIES C_STANDARD 11 C_EXTENSIONS OFF)
  target_compile_options(c_pici PRIVATE -Wall -Wextra -Wpedantic -Werror)
  find_package(pici ${SERIES} REQUIRED) # again
  if(TARGET MPI::MPI_C OR TARGET CUDA::cudart)
    message(FATAL_ERROR "a component was looked for, and none was asked for")
  endif()
elseif(CASE STREQUAL "static")
  find_package(pici REQUIRED COMPONENTS coll)
  add_executable(alone program.c)
  target_link_libraries(alone PRIVATE pici::pici)
  add_executable(alone_coll collective.c)
  target_link_libraries(alone_coll PRIVATE pici::coll)
  if(TARGET pici::shared)
    message(FATAL_ERROR "there is no shared library")
  endif()
elseif(CASE STREQUAL "mpi")
  find_package(pici REQUIRED COMPONENTS mpi)
  add_executable(over_mpi mpi.c)
  target_link_libraries(over_mpi PRIVATE pici::mpi)
elseif(CASE STREQUAL "required")
  find_package(pici REQUIRED COMPONENTS mpi cuda)
elseif(CASE STREQUAL "optional")
  find_package(pici REQUIRED OPTIONAL_COMPONENTS mpi cuda nonsense)
  message(STATUS "found: ${pici_FOUND} ${pici_mpi_FOUND} ${pici_cuda_FOUND} ${pici_nonsense_FOUND}")
elseif(CASE STREQUAL "versions")
  foreach(asked IN LISTS WRONG)
    find_package(pici ${asked} QUIET)
    if(pici_FOUND)
      message(FATAL_ERROR "${asked} was asked for, and ${pici_VERSION} found")
    endif()
  endforeach()
  foreach(asked IN LISTS RIGHT)
    unset(pici_FOUND)
    find_package(pici ${asked} QUIET)
    if(NOT pici_FOUND)
      message(FATAL_ERROR "${asked} was asked for, and ${pici_CONSIDERED_VERSIONS} not found to be it")
    endif()
  endforeach()
endif()
CMAKE
cat >"$tmp/consumer/program.c" <<'C'
#include <pici/delta.h>
#include <pici/file.h>
#include <string.h>

int main(void)
{
    static float in[10000], out[10000];
    static unsigned char block[50000];
    struct pici_opts opts = PICI_OPTS_INIT;
    size_t len = 0;
    in[9999] = 1;
    opts.threads = 2; /* which the static library needs POSIX threads for */
    if (strcmp(pici_version(), PICI_VERSION) != 0)
        return 1;
    if (pici_compress(block, sizeof block, &len, in, 10000, PICI_F32, PICI_AUTO, &opts) != PICI_OK)
        return 2;
    return pici_apply(out, 10000, block, len, &opts) != PICI_OK || memcmp(in, out, sizeof in) != 0;
}
C
cp "$tmp/consumer/program.c" "$tmp/consumer/program.cc"
cat >"$tmp/consumer/collective.c" <<'C'
#include <pici/coll.h>

int main(void)
{
    struct pici_comm *comm;
    float x[1000] = {1, 0, 3};
    if (pici_comm_threads(&comm, 1) != PICI_OK)
        return 1;
    enum pici_status status = pici_all_reduce(x, x, 1000, PICI_F32, PICI_SUM, comm, NULL);
    pici_comm_free(comm);
    return status != PICI_OK || x[2] != 3 || !pici_strerror(status);
}
C
cat >"$tmp/consumer/mpi.c" <<'C'
#include <pici/mpi.h>

int main(int argc, char **argv)
{
    struct pici_comm *comm;
    MPI_Init(&argc, &argv);
    int wrong = pici_comm_mpi(&comm, MPI_COMM_SELF) != PICI_OK || pici_comm_size(comm) != 1;
    pici_comm_free(comm);
    MPI_Finalize();
    return wrong;
}
C

configure() { # CASE ARGUMENTS: in one folder, so that the compilers are looked at once
    of=$1
    shift
    CC=$cc CXX=$cxx cmake -S "$tmp/consumer" -B "$tmp/made" -DCMAKE_PREFIX_PATH="$moved" -DCASE="$of" "$@" \
        >"$tmp/$of.log" 2>&1
}

need() { # CASE ARGUMENTS
    configure "$@" || { cat "$tmp/$1.log"; die "cmake: $1"; }
}

made() { # CASE
    cmake --build "$tmp/made" >"$tmp/log" 2>&1 || { cat "$tmp/log"; die "cmake --build: $1"; }
}

need programs -DSERIES="$series"
made programs
for program in c_pici c_shared c_static cxx_pici cxx_shared cxx_static c_coll c_coll_shared c_coll_static; do
    "$tmp/made/$program" || die "$program: exit status $?"
    pass "$program"
done
if command -v readelf >/dev/null 2>&1; then
    readelf -d "$tmp/made/c_pici" | grep >/dev/null 'NEEDED.*\[libpici\.so\.0\]' ||
        die "pici::pici is not the shared library"
    ! readelf -d "$tmp/made/c_pici" | grep >/dev/null 'NEEDED.*libpici_coll' || die "pici::pici brings libpici_coll"
    readelf -d "$tmp/made/c_coll" | grep >/dev/null 'NEEDED.*\[libpici_coll\.so\.0\]' || die "pici::coll is not shared"
    for of in c_static c_coll_static; do
        ! readelf -d "$tmp/made/$of" | grep >/dev/null 'NEEDED.*libpici' || die "$of has a shared library"
    done
    pass "what is linked"
fi

need versions -DWRONG="${version%.*}.99;${version%%.*}.99;99" -DRIGHT="$version;$series"
pass "versions"

if configure required; then
    die "a missing component was found"
fi
says() { # CASE WORDS, on lines that cmake broke where it likes
    tr -s ' \n' ' ' <"$tmp/$1.log" | grep >/dev/null "$2" || { cat "$tmp/$1.log"; die "cmake does not say: $2"; }
}
says required 'component cuda: .*libpici_cuda.a is not installed (make cuda install)'
pass "a component that is required, and missing"
need optional
grep -q 'found: \(1\|TRUE\) FALSE FALSE FALSE' "$tmp/optional.log" && grep -q 'nonsense: there is no such component' \
    "$tmp/optional.log" || { cat "$tmp/optional.log"; die "optional components"; }
pass "components that are optional, and missing"

# The sources in another project, without optimization, which takes less time.
mkdir "$tmp/fetched"
cp "$tmp/consumer/program.c" "$tmp/consumer/collective.c" "$tmp/fetched/"
cat >"$tmp/fetched/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.18)
project(fetched C)
include(FetchContent)
FetchContent_Declare(pici SOURCE_DIR "${PICI}")
FetchContent_MakeAvailable(pici)
add_executable(codec program.c)
target_link_libraries(codec PRIVATE pici::pici)
add_executable(collective collective.c)
target_link_libraries(collective PRIVATE pici::coll)
if(TARGET picitool)
  message(FATAL_ERROR "the tool is built, and was not asked for")
endif()
CMAKE
CC=$cc cmake -S "$tmp/fetched" -B "$tmp/fetched/made" -DPICI="$PWD" -DCMAKE_BUILD_TYPE=Debug >"$tmp/log" 2>&1 &&
    cmake --build "$tmp/fetched/made" -j"$(nproc)" >>"$tmp/log" 2>&1 || { cat "$tmp/log"; die "FetchContent"; }
for program in codec collective; do
    "$tmp/fetched/made/$program" || die "$program, of fetched sources: exit status $?"
    pass "$program, of fetched sources"
done

if [ -n "$with_mpi" ]; then
    cp "$build/mpi/libpici_mpi.a" "$lib/"
    need mpi
    made mpi
    OMPI_MCA_btl=self OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$tmp/made/over_mpi" >"$tmp/log" 2>&1 ||
        { cat "$tmp/log"; die "the program over MPI"; }
    pass "pici::mpi"
else
    echo "skip: pici::mpi: no mpicc"
fi

# A static library alone, and one whose headers are gone.
rm "$lib"/libpici.so*
need static
made static
"$tmp/made/alone" && "$tmp/made/alone_coll" || die "with the static libraries alone: exit status $?"
pass "the static libraries alone"
rm -r "$moved/include"
if configure required; then
    die "pici was found without its headers"
fi
says required 'there is no .*/pici/pici.h'
pass "without headers"
finish
