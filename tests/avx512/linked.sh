#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Test the logic of the AVX-512 kernels on any CPU with AVX2. lib/cpu/avx512.inc is compiled for AVX2, with its
# intrinsics in plain C (tests/avx512/emulated*.h), and linked instead of the real one. make check-avx512 tests the
# instructions.
#   BUILD=DIR CC=... SANITIZE=... tests/avx512/linked.sh      after make test-programs
# QUICK=1: fewer inputs, as in check-avx512 and on other emulated CPUs.
set -eu
build=${BUILD:-build}
dir=$build/avx512-emulated
if [ "$(uname -m)" != x86_64 ] || ! grep -qw avx2 /proc/cpuinfo; then
    echo "skip: AVX-512 kernels with emulated instructions (needs an x86-64 with AVX2)"
    exit 77
fi
flags=$(grep -m 1 '^flags' /proc/cpuinfo)
natively=yes
for flag in avx512f avx512bw avx512vl avx512_vbmi2; do
    case " $flags " in *" $flag "*) ;; *) natively= ;; esac
done
if [ "$natively" ] && [ -z "${PICI_TEST_FULL:-}" ]; then
    echo "skip: AVX-512 kernels with emulated instructions: this CPU has those (PICI_TEST_FULL=1 runs it all the same)"
    exit 77
fi
rm -rf "$dir"
mkdir -p "$dir/cpu"

# Compile without AVX-512 as a target, and without its registers as operands: the compiler must not use it.
sed -e 's/avx512[a-z0-9]*,//g' -e 's/"+v"/"+m"/g' lib/cpu/avx512.inc >"$dir/cpu/avx512.inc"
if grep -n 'target.*avx512' "$dir/cpu/avx512.inc"; then
    echo "the target still has AVX-512"
    exit 1
fi

compile="${CC:-cc} -std=c11 -O0 -pthread -I$dir -Iinclude -Ilib -DPICI_BUILD"
[ -z "${SANITIZE:-}" ] || compile="$compile -fsanitize=$SANITIZE -fno-sanitize-recover=all"
for bits in 8 16 32 64; do
    $compile -mavx2 -mbmi -mbmi2 -mf16c -mpopcnt -Wno-psabi -include tests/avx512/emulated.h \
        -include tests/avx512/emulated_floats.h -c -o "$dir/avx512_$bits.o" "lib/cpu/avx512_$bits.c"
done
$compile '-D__builtin_cpu_supports(x)=1' -c -o "$dir/dispatch.o" lib/cpu/dispatch.c
libs=
[ "${ZFP:-0}" = 0 ] || libs=-lzfp
status=0
[ -z "${QUICK:-}" ] || export PICI_TEST_FEW=1
for program in kernels small values topk; do
    $compile -no-pie -o "$dir/plain_$program" "$build/obj/tests/plain/$program.o" "$dir"/*.o \
        "$build/obj/testing.a" "$build/libpici_coll.a" "$build/libpici.a" $libs -lm
    PICI_TEST_LAST=1 "$dir/plain_$program" || status=1
done
exit $status
