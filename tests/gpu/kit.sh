#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The script that runs tests and benchmarks on a GPU in parts (tests/gpu/stages), with scripts instead of programs. The
# table and the JSON show passes, failures, hangs and missing programs, and nothing takes longer than its part. (With
# the emulator's programs: make gpu-rehearsal.)
. tests/util/script

check() { # WHAT COMMAND...
    what=$1
    shift
    "$@" >/dev/null 2>&1 && pass || { cat "$tmp/log"; die "$what"; }
}

program() { # NAME SCRIPT
    printf '#!/bin/sh\n%s\n' "$2" >"$tmp/kit/$1"
    chmod +x "$tmp/kit/$1"
}

stages() { # EXPECTED-STATUS ARGUMENTS
    expected=$1 status=0
    shift
    PATH="$tmp/bin:$PATH" LIMIT_PERCENT=${percent:-5} "$tmp/kit/run" --out "$tmp/out" "$@" >"$tmp/log" 2>&1 || status=$?
    rm -rf "$tmp/logs"
    ! tar xzf "$tmp/out/logs.tar.gz" -C "$tmp" 2>/dev/null || :
    [ $status = "$expected" ]
}

valid() {
    ! command -v python3 >/dev/null 2>&1 || python3 -m json.tool "$tmp/out/result.json"
}

not_running() { # PROCESS
    ! kill -0 "$1" 2>/dev/null
}

mkdir -p "$tmp/kit" "$tmp/bin"
cp tests/gpu/stages "$tmp/kit/run"
cp tests/gpu/summary.awk "$tmp/kit/"
for name in cuda_codec cuda_packed cuda_small cuda_reduce cuda_values cuda_coll cuda_coll_values nccl_link; do
    program $name 'echo "7 passed, 0 failed"'
done
program example 'echo "a \"block\""'
program bench_coll_cuda 'printf "[\n  {\"what\":\"ring\",\"speedup\":2},\n  {\"what\":\"tree\"}\n]\n"'
speed() { # DTYPE BYTES SPARSITY OPERATION BY US OF-FLOOR
    printf '{"dtype": "%s", "bytes": %s, "sparsity": %s, "operation": "%s", ' "$1" "$2" "$3" "$4"
    printf '"by": "%s", "us": %s, "of_floor": %s}\n' "$5" "$6" "$7"
}
over_nccl() { # SPARSITY NCCL-US TIMES-NCCL WIRE-RATIO
    printf '{"operation": "all-reduce", "ranks": 2, "dtype": "f32", "bytes": 67108864, "sparsity": %s, ' "$1"
    printf '"us": 10.0, "nccl_us": %s, "times_nccl": %s, "wire_ratio": %s}\n' "$2" "$3" "$4"
}
{
    speed f32 1073741824 0.5 compress pici 1.5 0.8512
    speed f32 1073741824 0.5 compress "CUB DeviceSelect values" 3.0 0.4
    speed f32 1073741824 0.5 compress "CUB DeviceSelect pairs" 4.5 0.3
    speed f32 1073741824 0.5 compress "cuSPARSE DenseToSparse CSR" 6.0 0.2
    speed f32 1073741824 0.99 scatter-add pici 2.0 0.5900
    speed f32 1073741824 0 decompress hybrid 9.0 0.7400
    speed bf16 1048576 0.9 compress pici 4.0 0.1
    speed bf16 1048576 0.9 compress "CUB DeviceSelect values" 3.0 0.4
    speed bf16 1048576 0.5 scatter-add pici 4.0 0.1
} >"$tmp/speeds"
{
    over_nccl 0.99 250.0 25.000 30.000
    over_nccl 0.999 95.0 9.500 30.000
    over_nccl 0.9 50.0 5.000 8.000
    over_nccl 0 9.4 0.940 1.000
} >"$tmp/fork"
program bench_cuda "case \$* in *' 1024 '*) cat $tmp/speeds ;; esac"
program nccl_fork "case \$* in *ranks*) ;; *) cat $tmp/fork ;; esac
echo '{\"args\": \"'\"\$*\"'\"}'; echo '9 passed, 0 failed'"
program python3 '[ $# = 2 ] || { shift; echo "{\"what\": \"torch\"}"; echo "5 passed, 0 failed"; }'
mv "$tmp/kit/python3" "$tmp/bin/python3"
for tool in compute-sanitizer ncu; do
    printf '#!/bin/sh\necho "$@"; exec sleep 0\n' >"$tmp/bin/$tool"
    chmod +x "$tmp/bin/$tool"
done
cat >"$tmp/bin/ncu" <<'END'
#!/bin/sh
echo '"ID","Kernel Name","Grid Size","Metric Name","Metric Unit","Metric Value"'
echo '"0","encode_kernel","(1, 1, 1)","dram__bytes_read.sum","byte","1,234"'
END

check "all parts" stages 0 first second sizes sanitize
check "no command that the script does not have" [ "$(grep -c 'not found' "$tmp/log")" = 0 ]
check "a table" grep -q '^| right | cuda_packed --quick | ok | [0-9]* | 7 passed, 0 failed |$' "$tmp/log"
check "which is a file, too" grep -q '^| right | cuda_packed --quick | ok |' "$tmp/out/table.md"
check "inputs that are shared" [ "$(grep -c '^| right | cuda_codec --quick --share ./6 | ok |' "$tmp/log")" = 6 ]
check "the number of programs" grep -q '^[0-9]* ok, 0 failed or late, 0 skipped, in [0-9]* s$' "$tmp/log"
check "two tools for each program" [ "$(grep -c '^| memory | .* | ok |' "$tmp/log")" = 10 ]
check "each tool for each program" [ "$(grep -c '^| sanitize | .* | ok |' "$tmp/log")" = 20 ]
check "no report of errors of the API" grep -q 'report-api-errors no' "$tmp/logs/sanitize-memcheck-cuda_codec.log"
check "torch" grep -q '^| torch | torch_first.py | ok | [0-9]* | 5 passed, 0 failed |$' "$tmp/log"
check "whose lines of JSON are kept" grep -q '^    {"what": "torch"}' "$tmp/out/result.json"
check "JSON" valid
check "speeds" grep -q '"us": 1.5' "$tmp/out/result.json"
check "speeds of collectives" grep -q '^    {"what":"tree"},\{0,1\}$' "$tmp/out/result.json"
beside='>= 1 x CUB, >= 1 x cuSPARSE'
check "a target that is met" grep -qxF \
    "| compress | pici | f32 | 1024 | 50 | 1.5 | 0.8512 | 2.00 | 4.00 |  |  | >= 0.8 of the floor, $beside | met |" \
    "$tmp/log"
check "another format's target" grep -qxF \
    '| decompress | hybrid | f32 | 1024 | 0 | 9.0 | 0.7400 |  |  |  |  | >= 0.75 of the floor | missed |' "$tmp/log"
check "a target that is missed" grep -qxF \
    '| scatter-add | pici | f32 | 1024 | 99 | 2.0 | 0.5900 |  |  |  |  | >= 0.6 of the floor | missed |' "$tmp/log"
check "slower than CUB" grep -qxF \
    '| compress | pici | bf16 | 1 | 90 | 4.0 | 0.1 | 0.75 |  |  |  | >= 1 x CUB | missed |' "$tmp/log"
check "no target" grep -qxF '| scatter-add | pici | bf16 | 1 | 50 | 4.0 | 0.1 |  |  |  |  |  |  |' "$tmp/log"
beside='>= 0.95 x NCCL, >= 21.00 x NCCL'
check "of the wire ratio" grep -qxF \
    "| all-reduce, 2 ranks |  | f32 | 64 | 99 | 10.0 |  |  |  | 25.000 | 30.000 | $beside | met |" "$tmp/log"
check "less than that, by a digit" grep -q \
    '^| all-reduce, 2 ranks |  | f32 | 64 | 99.9 .*>= 21.00 x NCCL | missed |$' "$tmp/log"
check "less than that" grep -q '^| all-reduce, 2 ranks |  | f32 | 64 | 90 .*>= 5.60 x NCCL | missed |$' "$tmp/log"
check "slower than NCCL" grep -q '^| all-reduce, 2 ranks |  | f32 | 64 | 0 .*>= 0.95 x NCCL | missed |$' "$tmp/log"
check "how many targets" grep -qx 'targets: 2 met, 6 missed' "$tmp/log"
check "targets in the JSON" grep -q '"zeros_percent": 99, "target": ">= 0.6 of the floor", "verdict": "missed"}' \
    "$tmp/out/result.json"
check "NCCL among four" grep -q 'ranks 4' "$tmp/out/result.json"
check "counters" grep -q '"encode_kernel", "metric": "dram__bytes_read.sum", "unit": "byte", "value": "1234"' \
    "$tmp/out/result.json"

program cuda_reduce 'echo "FAIL a difference"; echo "3 passed, 1 failed"; echo "a \"reason\" with \\ in it" >&2; exit 1'
program cuda_coll "sleep 60; : >'$tmp/ended'"
program bench_cuda "cat $tmp/speeds; sleep 60"
program cuda_values 'echo "a \"reason\" with \\ in it" >&2; exit 1'
rm "$tmp/kit/nccl_link"
check "a failure" stages 1 right speed
check "the first difference" grep -q \
    '^| right | cuda_reduce --quick | FAIL | [0-9]* | status 1: FAIL a diff.* 3 p' "$tmp/log"
check "the failure's words" grep -q '^| right | cuda_values --quick | FAIL | [0-9]* | status 1: .*reason' "$tmp/log"
check "what hangs" grep -q '^| right | cuda_coll --quick | LATE ' "$tmp/log"
check "what had been measured by then" grep -q '"us": 1.5' "$tmp/out/result.json"
check "what is missing" grep -q '^| right | nccl_link | skip ' "$tmp/log"
check "JSON of a failure" valid
check "what hangs is killed" [ ! -e "$tmp/ended" ]
percent=0
check "no time at all" stages 1 speed
check "which is said" grep -q '^| speed | bench_cuda | LATE | 0 | no time was left' "$tmp/log"
percent=5

# A run that is stopped leaves what it had.
rm -rf "$tmp/out"
(PATH="$tmp/bin:$PATH" exec "$tmp/kit/run" --out "$tmp/out" speed) >"$tmp/log" 2>&1 &
stopped=$!
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    ! grep -qs '"us": 1.5' "$tmp/out/result.json" || break
    sleep 1
done
kill -9 $stopped
check "a run that is killed" grep -q '"us": 1.5' "$tmp/out/result.json"
check "leaves JSON that is whole" valid

# One that is asked to stop ends its programs, be it one or several side by side.
program cuda_coll "echo \$\$ >'$tmp/program'; exec sleep 60"
program bench_cuda "echo \$\$ >'$tmp/program'; exec sleep 60"
for part in right speed; do
    rm -rf "$tmp/out" "$tmp/program"
    (PATH="$tmp/bin:$PATH" exec "$tmp/kit/run" --out "$tmp/out" $part) >"$tmp/log" 2>&1 &
    stopped=$!
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        [ ! -s "$tmp/program" ] || break
        sleep 1
    done
    kill $stopped
    status=0
    wait $stopped || status=$?
    check "a run that is stopped" [ $status = 1 ]
    check "ends its program" not_running "$(cat "$tmp/program")"
    check "and leaves JSON" valid
done

for name in cuda_codec cuda_packed cuda_small cuda_reduce cuda_values cuda_coll cuda_coll_values; do
    program $name 'echo "skip: no CUDA device: nothing ran on a GPU"; exit 77'
done
check "no GPU" stages 77 right speed
check "which is said, too" grep -q 'NOTHING RAN ON A GPU' "$tmp/log"
check "no GPU in another stage" stages 77 all
check "in which nothing else passes" grep -q '"status": "skip"' "$tmp/out/result.json"
check "an unknown stage" stages 2 wrong

# A library that is missing, until it is found where a wheel of Python has it.
rm "$tmp/bin/python3"
for name in cuda_codec cuda_packed cuda_small cuda_reduce cuda_values cuda_coll cuda_coll_values nccl_link; do
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
finish
