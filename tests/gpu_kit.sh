#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The script that runs tests and benchmarks on a GPU in stages (tests/gpu_stages), with scripts in place of programs:
# what passes, fails, hangs or is missing is in the table and in the JSON, and nothing takes longer than its stage.
set -u
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0

check() { # WHAT COMMAND...
    what=$1
    shift
    if "$@" >/dev/null 2>&1; then
        passed=$((passed + 1))
    else
        echo "FAIL $what"
        cat "$tmp/log"
        exit 1
    fi
}

program() { # NAME SCRIPT
    printf '#!/bin/sh\n%s\n' "$2" >"$tmp/kit/$1"
    chmod +x "$tmp/kit/$1"
}

stages() { # EXPECTED-STATUS ARGUMENTS
    expected=$1 status=0
    shift
    PATH="$tmp/bin:$PATH" STAGE_SECONDS=4 "$tmp/kit/run" --out "$tmp/out" "$@" >"$tmp/log" 2>&1 || status=$?
    [ $status = "$expected" ]
}

valid() {
    ! command -v python3 >/dev/null 2>&1 || python3 -m json.tool "$tmp/out/result.json"
}

mkdir -p "$tmp/kit" "$tmp/bin"
cp tests/gpu_stages "$tmp/kit/run"
for name in cuda_codec cuda_small cuda_reduce cuda_values cuda_coll cuda_coll_values nccl_link bench_coll_cuda; do
    program $name 'echo "7 passed, 0 failed"'
done
program example 'echo "a \"block\""'
program bench_cuda 'echo "{\"operation\": \"compress\", \"us\": 1.5}"'
program nccl_fork 'echo "{\"operation\": \"all-reduce\", \"args\": \"$*\"}"; echo "9 passed, 0 failed"'
for tool in compute-sanitizer ncu; do
    printf '#!/bin/sh\necho "$@"; exec sleep 0\n' >"$tmp/bin/$tool"
    chmod +x "$tmp/bin/$tool"
done
cat >"$tmp/bin/ncu" <<'END'
#!/bin/sh
echo '"ID","Kernel Name","Grid Size","Metric Name","Metric Unit","Metric Value"'
echo '"0","encode_kernel","(1, 1, 1)","dram__bytes_read.sum","byte","1,234"'
END

check "all stages" stages 0
check "a table" grep -q '^| right | cuda_codec --quick | ok | [0-9]* | 7 passed, 0 failed |$' "$tmp/log"
check "the number of programs" grep -q '^[0-9]* ok, 0 failed or late, 0 skipped' "$tmp/log"
check "each tool for each program" [ "$(grep -c '^| sanitize | .* | ok |' "$tmp/log")" = 24 ]
check "no report of errors of the API" grep -q 'report-api-errors no' "$tmp/out/logs/sanitize-memcheck-cuda_codec.log"
check "JSON" valid
check "speeds" grep -q '"us": 1.5' "$tmp/out/result.json"
check "NCCL among four" grep -q 'ranks 4' "$tmp/out/result.json"
check "counters" grep -q '"encode_kernel", "metric": "dram__bytes_read.sum", "unit": "byte", "value": "1234"' \
    "$tmp/out/result.json"

program cuda_reduce 'echo "3 passed, 1 failed"; echo "a \"reason\" with \\ in it" >&2; exit 1'
program cuda_coll 'sleep 60'
rm "$tmp/kit/nccl_link"
begin=$(date +%s)
check "a failure" stages 1 right
check "the failure's words" grep -q '^| right | cuda_reduce --quick | FAIL | [0-9]* | status 1: .*reason.* 3' "$tmp/log"
check "what hangs" grep -q '^| right | cuda_coll --quick | LATE ' "$tmp/log"
check "what no time is left for" grep -q '^| right | nccl_fork --quick | LATE ' "$tmp/log"
check "what is missing" grep -q '^| right | nccl_link | skip ' "$tmp/log"
check "JSON of a failure" valid
check "the stage's time" [ $(($(date +%s) - begin)) -lt 20 ]

for name in cuda_codec cuda_small cuda_reduce cuda_values cuda_coll cuda_coll_values; do
    program $name 'echo "skip: no CUDA device: nothing ran on a GPU"; exit 77'
done
check "no GPU" stages 77 right speed
check "which is said" grep -q 'NOTHING RAN ON A GPU' "$tmp/log"
check "no GPU in another stage" stages 77 all
check "in which nothing else runs" grep -q '^skip *bench_coll_cuda .* no GPU$' "$tmp/log"
check "an unknown stage" stages 2 wrong

# A library that is missing, until it is found where a wheel of Python has it.
for name in cuda_codec cuda_small cuda_reduce cuda_values cuda_coll cuda_coll_values nccl_link; do
    program $name 'echo "7 passed, 0 failed"'
done
cat >"$tmp/bin/ldd" <<'END'
#!/bin/sh
case $1:$LD_LIBRARY_PATH in
*nccl_link:*nvidia/nccl/lib*) echo "        libnccl.so.2 => /there (0x1)" ;;
*nccl_link:*) echo "        libnccl.so.2 => not found" ;;
esac
END
chmod +x "$tmp/bin/ldd"
check "a library that is missing" stages 0 right
check "its name" grep -q '^| right | nccl_link | skip | 0 | no library libnccl.so.2 |$' "$tmp/log"
mkdir -p "$tmp/site/nvidia/nccl/lib"
: >"$tmp/site/nvidia/nccl/lib/libnccl.so.2"
if command -v python3 >/dev/null 2>&1; then
    PYTHONPATH=$tmp/site
    export PYTHONPATH
    check "a library of a wheel" stages 0 right
    check "is found" grep -q '^| right | nccl_link | ok ' "$tmp/log"
fi
echo "$passed passed"
