#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# picitool mount: a compressed folder and a single file are the originals, at random too; damage is EIO and a line; what
# is refused; signals and unmounting end it. What can only be seen through the kernel takes /dev/fuse.
. tests/cli/common

numbers 300 >n
mkdir -p m/sub/empty
{ zeros 600000; cat n n; zeros 600000; cat n; } >values
safetensors() { # NAME: a file of one tensor, of u8
    n_bytes=$(wc -c <values)
    n_head=$(printf '{"%s":{"dtype":"U8","shape":[%s],"data_offsets":[0,%s]}}' "$1" "$n_bytes" "$n_bytes")
    printf "\\$(printf %o ${#n_head})\\0\\0\\0\\0\\0\\0\\0%s" "$n_head"
    cat values
}
safetensors one >m/model.safetensors
safetensors two >m/sub/more.safetensors # the same elements: a reference
echo '{}' >m/config.json
: >m/none
"$tool" compress -q m || fail compress
cp m/model.safetensors one.safetensors
"$tool" compress -q one.safetensors || fail compress
mkdir at

# ---- refused, whether there is FUSE or not
if [ "${FUSE:-1}" = 0 ]; then
    expect 1 "without libfuse3" "$tool" mount m.pici at
    grep -q 'no libfuse3' "$err" || fail "without libfuse3: $(cat "$err")"
    skip "picitool mount: this build has no libfuse3"
    finish
fi
expect 2 "no place" "$tool" mount m.pici
expect 1 "a place that is not there" "$tool" mount m.pici nowhere
expect 1 "an input that is not there" "$tool" mount none.pici at
says "an input that is not there" '^picitool: none.pici: No such file or directory$' "$err"
expect 2 "a place that is a file" "$tool" mount m.pici n
expect 2 "a place inside" "$tool" mount m.pici m.pici/sub
expect 2 "a place around it" "$tool" mount m.pici .
expect 2 "a folder that is not compressed" "$tool" mount m at
expect 2 "a file that is not compressed" "$tool" mount n at
"$tool" compress -q --type raw --dtype u8 -o whole.pici values
head -c 500 whole.pici >cut.pici
expect 1 "a file that is cut" "$tool" mount cut.pici at
"$tool" diff -q --dtype u8 -o delta.pici values values
expect 1 "a delta" "$tool" mount delta.pici at
expect 2 "a cache of no number" "$tool" mount --cache many m.pici at
cp -r m.pici other.pici
sed -i 's/^shard 1/shard 2/' other.pici/pici-folder
expect 1 "a list that is changed" "$tool" mount other.pici at

# ---- through the kernel
mounted() { # OPTIONS... IN: runs it in the background, until it is mounted; false if it has ended before, as m_status
    : >"$out"
    # nohup, for one, ignores SIGHUP for all programs that it runs, and picitool would go on ignoring it
    env --default-signal=HUP "$tool" mount "$@" at >"$out" 2>"$err" </dev/null &
    m_pid=$!
    m_tries=0
    until grep -q ' until ' "$out"; do
        m_tries=$((m_tries + 1))
        if ! kill -0 "$m_pid" 2>/dev/null || [ $m_tries = 1000 ]; then
            wait "$m_pid"
            m_status=$?
            return 1
        fi
        sleep 0.02
    done
    # the line comes when the kernel has taken the mount: what is read now is answered
}
ended() { # WHAT STATUS: it has ended, with this exit status, and nothing is mounted
    e_tries=0
    while kill -0 "$m_pid" 2>/dev/null && [ $e_tries -lt 1000 ]; do
        e_tries=$((e_tries + 1))
        sleep 0.02
    done
    e_late=
    if kill -0 "$m_pid" 2>/dev/null; then
        e_late=", which it did not end by itself"
        fusermount3 -u -z at || umount -l at
        kill -KILL "$m_pid" 2>/dev/null
    fi
    wait "$m_pid"
    e_got=$?$e_late
    if [ "$e_got" = "$2" ] && [ -z "$(ls at)" ]; then pass; else fail "$1: exit status $e_got: $(cat "$err")"; fi
}
if ! [ -c /dev/fuse ] || ! mounted m.pici; then
    skip "picitool mount through the kernel: $(cat "$err" /dev/null | head -c 200)"
    finish
fi
is "a folder" diff -r m at
(cd m && find . | LC_ALL=C sort) >want
(cd at && find . | LC_ALL=C sort) >got
same "its names" want got
is "nothing is writable" test "$(find at -perm /222)" = ""
if (: >at/new) 2>/dev/null || (: >at/config.json) 2>/dev/null; then fail "it was written to"; else pass; fi
for from in 0 7 599990 600005 1199999; do
    dd if=m/sub/more.safetensors bs=1 skip=$from count=5000 of=want 2>/dev/null
    dd if=at/sub/more.safetensors bs=1 skip=$from count=5000 of=got 2>/dev/null
    same "from byte $from on" want got
done
kill -TERM "$m_pid"
ended "SIGTERM" 0

mounted --cache 1K -T 3 m.pici || fail "a small cache: not mounted"
for i in 1 2 3; do
    cmp m/model.safetensors at/model.safetensors >"cmp.$i" 2>&1 &
    pids="${pids:-} $!"
done
for pid in $pids; do
    is "several readers, and a cache of one chunk" wait "$pid"
done
kill -HUP "$m_pid"
ended "SIGHUP" 0

real=$tool
by_script() { # LINE: tool is a script of this line
    printf '#!/bin/sh\n%s\n' "$1" >script
    chmod +x script
    tool=$PWD/script
}
# SIGINT, which a shell ignores in the background, and which comes while a file is open
if env --default-signal=INT true 2>/dev/null; then
    by_script "exec env --default-signal=INT '$real' \"\$@\""
    mounted m.pici || fail "SIGINT: not mounted"
    exec 9<at/model.safetensors
    head -c 1000 <&9 >got
    kill -INT "$m_pid"
    ended "SIGINT with an open file" 0
    exec 9<&-
    tool=$real
else
    skip "picitool mount: SIGINT: env has no --default-signal"
fi

# ---- a signal that comes after libfuse looked for the end and before it waits
cat >late.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <semaphore.h>
#include <unistd.h>
int sem_wait(sem_t *semaphore)
{
    static int waited;
    int (*wait)(sem_t *) = (int (*)(sem_t *))dlsym(RTLD_NEXT, "sem_wait");
    if (!waited++)
        while (access("sent", F_OK) != 0)
            ; /* a call that would sleep could end by the signal */
    return wait(semaphore);
}
END
if [ -z "${SANITIZE:-}" ] && ${CC:-cc} -shared -fPIC -o late.so late.c -ldl 2>"$err"; then
    by_script "exec env LD_PRELOAD='$PWD/late.so' '$real' \"\$@\""
    mounted m.pici || fail "a late wait: not mounted: $(cat "$err")"
    kill -TERM "$m_pid"
    sleep 0.1 # the signal arrives
    : >sent
    ended "a late wait" 0
    tool=$real
else
    skip "picitool mount: a signal just before libfuse waits: $(head -n 1 "$err")"
fi

# ---- --memory: a cache of what it leaves; a bound that is smaller than a chunk
head -c 40000000 /dev/zero | tr '\0' x >long
"$tool" compress -q --type raw --dtype f64 -o long.pici long || fail "compress"
if [ -n "${SANITIZE:-}" ]; then
    skip "picitool mount --memory: a sanitizer needs memory of its own"
elif mounted --memory 40M -T 8 long.pici; then
    is "--memory" cmp long at/long
    kill -TERM "$m_pid"
    ended "--memory" 0
else
    fail "--memory: not mounted: $(cat "$err")"
fi
by_script "ulimit -s 1024; exec '$real' \"\$@\""
if [ -n "${SANITIZE:-}" ]; then
    :
elif mounted --memory 8M long.pici; then
    if cat at/long >got 2>got.err; then fail "8 MiB with chunks of 8 MiB"; else pass; fi
    is "ENOMEM" grep -qi 'cannot allocate memory' got.err
    is "a line says it" grep -q '^picitool: long.pici: out of memory for a chunk; --memory is 8388608 bytes$' "$err"
    kill -TERM "$m_pid"
    ended "little --memory" 0
else
    fail "little --memory: not mounted: $(cat "$err")"
fi
by_script "ulimit -s 8192; exec '$real' \"\$@\""
if [ -n "${SANITIZE:-}" ]; then
    :
elif mounted --memory 4M one.safetensors.pici; then
    fail "no memory for a thread: it says that it is mounted"
    kill -TERM "$m_pid" 2>/dev/null || :
    ended "no memory for a thread" 1
else
    tail -n 1 "$err" >got
    is "no memory for a thread" \
        grep -q '^picitool: one.safetensors.pici: out of memory for its threads; --memory is 4194304 bytes$' got
    is "no memory for a thread: its exit status" test "$m_status" = 1
    is "no memory for a thread: it says nothing of success" test ! -s "$out"
    is "no memory for a thread: nothing is mounted" test -z "$(ls at)"
fi
tool=$real
rm -f long long.pici

# ---- programs that map what they open
mounted m.pici || fail "for programs: not mounted"
python=
for p in "${MOUNT_PYTHON:-python3}" /usr/bin/python3; do
    [ -n "$python" ] || ! "$p" -c 'import numpy' 2>/dev/null || python=$p
done
maps() { # MODULE PROGRAM: Python, of which the program maps the file and compares; skipped where there is no module
    if [ -z "$python" ] || ! "$python" -c "import $1" 2>/dev/null; then
        skip "picitool mount: files by Python's $1: it is not installed (MOUNT_PYTHON names a Python that has it)"
        return
    fi
    if "$python" -c "$2" >got 2>&1; then pass; else fail "$1: $(cat got)"; fi
}
maps numpy '
import numpy
at, m = (numpy.memmap(d + "/sub/more.safetensors", "u1", "r") for d in ("at", "m"))
assert at.shape == m.shape and (at[::-997] == m[::-997]).all() and (at == m).all()'
maps safetensors.numpy '
from safetensors import safe_open
for d in "at", "m":
    with safe_open(d + "/model.safetensors", "numpy") as f:
        w = f.get_slice("one")[600000:602400]
    assert w.tobytes() == open("n", "rb").read() * 2, d'
maps torch '
import torch
at, m = (torch.from_file(d + "/model.safetensors", size=600000, dtype=torch.uint8) for d in ("at", "m"))
assert torch.equal(at, m)'
kill -TERM "$m_pid"
ended "after programs" 0

mounted one.safetensors.pici || fail "a file: not mounted"
is "the name of a file" test "$(ls at)" = one.safetensors
same "a file" one.safetensors at/one.safetensors
fusermount3 -u at || umount at
ended "an unmount" 0

# ---- damage
cp -r m.pici hurt.pici
size=$(wc -c <m.pici/model.safetensors.pici)
printf '\377\377\377' | dd of=hurt.pici/model.safetensors.pici bs=1 seek=$((size / 3)) conv=notrunc 2>/dev/null
printf '[]' | dd of=hurt.pici/config.json bs=1 conv=notrunc 2>/dev/null
if mounted hurt.pici; then
    if cat at/model.safetensors >got 2>got.err; then fail "damage is not seen"; else pass; fi
    is "EIO" grep -qi 'input/output error' got.err
    is "a line names file and tensor" grep -q "^picitool: hurt.pici/model.safetensors.pici: .*tensor 'one'" "$err"
    is "one line" test "$(wc -l <"$err")" = 1
    if cat at/config.json >got 2>got.err; then fail "a damaged copy is not seen"; else pass; fi
    is "a line for the copy" grep -q "^picitool: hurt.pici/config.json: " "$err"
    same "what is not damaged" m/none at/none
    kill -TERM "$m_pid"
    ended "after damage" 0
else
    fail "damage of a chunk keeps it from being mounted: $(cat "$err")"
fi
finish
