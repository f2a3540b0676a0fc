#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Each verb that writes, with a system error at each call in turn that opens, writes, synchronizes, names or removes a
# file. Then again, killed before one of these calls; then again to its end. What there was before is there, or the
# whole of what is new. With PICI_TEST_FULL=1 each fault is followed by a kill before each of the calls.
. tests/cli/common
here=$PWD

# A preloaded library. FAULT=K: call K (from 0) fails with EIO. KILL=K: SIGKILL before call K. Either leaves its name in
# the file ./hit. Reads, and what goes to standard streams, do not count.
cat >fault.c <<'END'
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static long fault = -1, deadly = -1, calls;
static char hit[4096];
__attribute__((constructor)) static void start(void)
{
    const char *f = getenv("FAULT"), *k = getenv("KILL"), *at = getenv("HIT");
    fault = f ? atol(f) : -1;
    deadly = k ? atol(k) : -1;
    snprintf(hit, sizeof hit - 8, "%s", at ? at : "/dev/null");
}
static void leave(const char *path, const char *text)
{
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    syscall(SYS_write, fd, text, strlen(text));
    syscall(SYS_close, fd);
}
__attribute__((destructor)) static void end(void)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", calls);
    strcat(hit, ".calls");
    leave(hit, text);
}
static int fails(const char *name)
{
    const long at = calls++;
    if (at != fault && at != deadly)
        return 0;
    leave(hit, name);
    if (at == deadly)
        raise(SIGKILL);
    errno = EIO;
    return 1;
}
static int open_at(int dir, const char *path, int flags, va_list *rest)
{
    const mode_t mode = flags & O_CREAT ? va_arg(*rest, mode_t) : 0;
    return fails("open") ? -1 : (int)syscall(SYS_openat, dir, path, flags, mode);
}
#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...)                                                                         \
    {                                                                                                                  \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        const int fd = open_at(AT_FDCWD, path, flags, &rest);                                                          \
        va_end(rest);                                                                                                  \
        return fd;                                                                                                     \
    }
#define OPENAT(name)                                                                                                   \
    int name(int dir, const char *path, int flags, ...)                                                                \
    {                                                                                                                  \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        const int fd = open_at(dir, path, flags, &rest);                                                               \
        va_end(rest);                                                                                                  \
        return fd;                                                                                                     \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
ssize_t write(int fd, const void *p, size_t n)
{
    return fd > 2 && fails("write") ? -1 : (ssize_t)syscall(SYS_write, fd, p, n);
}
ssize_t pwrite64(int fd, const void *p, size_t n, off64_t at)
{
    return fails("write") ? -1 : (ssize_t)syscall(SYS_pwrite64, fd, p, n, at);
}
#define CALL(name, parameters, ...)                                                                                    \
    int name parameters                                                                                                \
    {                                                                                                                  \
        return fails(#name) ? -1 : (int)syscall(__VA_ARGS__);                                                          \
    }
CALL(fsync, (int fd), SYS_fsync, fd)
CALL(ftruncate64, (int fd, off64_t n), SYS_ftruncate, fd, n)
CALL(fchmod, (int fd, mode_t mode), SYS_fchmod, fd, mode)
CALL(mkdir, (const char *path, mode_t mode), SYS_mkdirat, AT_FDCWD, path, mode)
CALL(mkdirat, (int dir, const char *path, mode_t mode), SYS_mkdirat, dir, path, mode)
CALL(unlink, (const char *path), SYS_unlinkat, AT_FDCWD, path, 0)
CALL(rmdir, (const char *path), SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR)
CALL(unlinkat, (int dir, const char *path, int flags), SYS_unlinkat, dir, path, flags)
CALL(rename, (const char *a, const char *b), SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, 0)
CALL(renameat, (int i, const char *a, int k, const char *b), SYS_renameat2, i, a, k, b, 0)
CALL(renameat2, (int i, const char *a, int k, const char *b, unsigned how), SYS_renameat2, i, a, k, b, how)
CALL(linkat, (int i, const char *a, int k, const char *b, int how), SYS_linkat, i, a, k, b, how)
END
if [ -n "${SANITIZE:-}" ] || [ "$(getconf LONG_BIT)" != 64 ] ||
    ! ${CC:-cc} -shared -fPIC -o fault.so fault.c 2>"$err" ||
    ! LD_PRELOAD=./fault.so FAULT=0 HIT=$tmp/hit "$tool" compress -o /dev/null fault.c >"$out" 2>&1 &&
    [ ! -e "$tmp/hit" ]; then
    skip "errors of the system: no compiler for a library that makes them, or a sanitizer"
    finish
fi

with() { # "FAULT=K" or "KILL=K" or "", then the command: sets status, and hit to the call
    rm -f "$tmp/hit"
    w_how=$1
    shift
    # shellcheck disable=SC2086 # nothing, or one word
    { # without the shell's word on what is killed
        (cd now && exec env LD_PRELOAD="$here/fault.so" HIT="$tmp/hit" $w_how "$@") >"$out" 2>"$err" </dev/null
        status=$?
    } 2>"$tmp/logs/shell"
    hit=
    [ ! -e "$tmp/hit" ] || hit=$(cat "$tmp/hit")
}

restart() { # begin again with what there was
    rm -rf now
    cp -a old now
}

# which_is WHAT: sets state to old or new; whatever else there is, is a failure. The function
# "seen" says what users see there.
which_is() {
    (cd now && seen) >"$tmp/logs/is" 2>&1
    if cmp -s "$tmp/logs/is" "$tmp/logs/old"; then
        state=old
    elif cmp -s "$tmp/logs/is" "$tmp/logs/new"; then
        state=new
    else
        state=other
        fail "$1: neither what there was nor what is new: $(head -c 400 "$tmp/logs/is")"
    fi
}

# verb NAME COMMAND...: in the folder now, which is made of old each time.
verb() {
    v_name=$1 v_faults=0 v_kills=0 v_bad=$failed
    shift
    (cd old && seen) >"$tmp/logs/old" 2>&1
    restart
    with KILL=-1 "$@"
    [ "$status" = 0 ] || fail "$v_name: exit status $status: $(head -c 300 "$err")"
    v_calls=$(cat "$tmp/hit.calls")
    (cd now && seen) >"$tmp/logs/new" 2>&1
    cmp -s "$tmp/logs/old" "$tmp/logs/new" && fail "$v_name: does nothing"
    v_k=0
    while :; do
        restart
        with "FAULT=$v_k" "$@"
        [ -n "$hit" ] || break
        v_faults=$((v_faults + 1))
        which_is "$v_name, $hit fails (call $v_k)"
        case $status:$state:$hit in
        1:old:* | 0:new:*) ;;
        1:new:fsync | 1:new:unlink* | 1:new:rmdir | 1:new:open) ;; # done, but for the disk, or for what is left over
        *) fail "$v_name, $hit fails (call $v_k): status $status, and what is there is $state: $(head -c 300 "$err")" ;;
        esac
        [ "$status" = 0 ] || [ -s "$err" ] || fail "$v_name, $hit fails (call $v_k): says nothing"
        killed "$@"
        v_k=$((v_k + 1))
    done
    [ $v_faults -gt 3 ] || fail "$v_name: only $v_faults calls"
    [ $v_bad != $failed ] || pass
    echo "$v_name: $v_faults faults, $v_kills kills"
}

# killed COMMAND...: again, and killed before a call, or before each; then to its end
killed() {
    rm -rf kept
    cp -a now kept
    k_at=0 k_step=1
    if [ -z "${PICI_TEST_FULL:-}" ]; then
        k_at=$((v_k * 7 % (v_calls + 1))) k_step=1000
    fi
    while :; do
        rm -rf now
        cp -a kept now
        with "KILL=$k_at" "$@"
        [ -n "$hit" ] || break
        v_kills=$((v_kills + 1))
        which_is "$v_name, $v_k, killed before $hit (call $k_at)"
        k_at=$((k_at + k_step))
    done
    with KILL=-1 "$@"
    which_is "$v_name, $v_k, to its end"
    [ $state = new ] || fail "$v_name, $v_k, to its end: exit status $status: $(head -c 300 "$err")"
}

numbers 400 >n1600
blob() { # LETTER: 64 KiB, of which some bytes depend on it
    npy 1 "'<u2'" False '(32768,)'
    { zeros 30000; tr '\001\002\003\004' "$1$1$1$1" <n1600; zeros 33936; }
}
for s in a b c; do blob $s >$s.npy; done
shards() { # DIR LETTER: two tensors in two shards
    mkdir "$1"
    for k in 1 2; do
        {
            safetensors "{\"t$k\":{\"dtype\":\"U8\",\"shape\":[1600],\"data_offsets\":[0,1600]}}"
            tr '\001' "$2" <n1600
        } >"$1/model-$k.safetensors"
    done
    echo '{"weight_map":{"t1":"model-1.safetensors","t2":"model-2.safetensors"}}' >"$1/model.safetensors.index.json"
    echo '{}' >"$1/config.json"
}
shards sa a
shards sb b
expect 0 "a .pici file" "$tool" compress -o b.pici b.npy
expect 0 "a delta" "$tool" diff -o ab.pici a.npy b.npy
expect 0 "a compressed folder" "$tool" compress -o sb.pici sb
expect 0 "a delta of folders" "$tool" diff -o sab.pici sa sb
expect 0 "a log" "$tool" log init log0 a.npy
cp -r log0 log1
expect 0 "a log" "$tool" log append log1 a.npy b.npy
expect 0 "a log with a packed base" "$tool" log init --pack planes log1.packed a.npy
expect 0 "a log with a packed base" "$tool" log append log1.packed a.npy b.npy

begin() { # FILE...: of which there are copies in old
    rm -rf old
    mkdir old
    [ $# = 0 ] || cp -r "$@" old
}
file() { # what there is of the output x
    if [ -e x ]; then cksum <x; else echo none; fi
}
folder() {
    find x -type f | sort | xargs cksum
}
log() { # what readers get, from the base and from the first state
    cp ../a.npy ../reader
    rm -f ../probe
    "$tool" log apply log ../probe && "$tool" log apply log ../reader && cksum <../probe && cksum <../reader
}

seen() { file; }
begin
verb compress "$tool" compress -T 1 -o x ../b.npy
verb decompress "$tool" decompress -T 1 -o x ../b.pici
verb extract "$tool" extract -o x ../b.pici --tensor data
verb report "$tool" report -o x ../b.npy
verb diff "$tool" diff -T 1 -o x ../a.npy ../b.npy
verb apply "$tool" apply -T 1 -o x ../a.npy ../ab.pici
seen() { # a delta that cannot be read leaves a reader at the state before it
    if cmp -s x ../a.npy; then echo none; else file; fi
}
verb "log apply, a new reader" "$tool" log apply -T 1 ../log1 x
seen() { file; }
begin a.npy
mv old/a.npy old/x
verb "compress --force" "$tool" compress -T 1 --force -o x ../b.npy
verb "decompress --force" "$tool" decompress -T 1 --force -o x ../b.pici
verb "apply --in-place" "$tool" apply -T 1 --in-place x ../ab.pici
verb "log apply" "$tool" log apply -T 1 ../log1 x

seen() { # the output, or else the input, which is removed once there is one
    if [ -e b.npy.pici ]; then cksum <b.npy.pici; else cksum <b.npy; fi
}
begin b.npy
verb "compress --rm" "$tool" compress -T 1 --rm -o b.npy.pici b.npy

seen() { log; }
begin
verb "log init" "$tool" log init log ../a.npy
verb "log init --pack" "$tool" log init --pack planes log ../a.npy
begin log0
mv old/log0 old/log
verb "log append" "$tool" log append log ../a.npy ../b.npy
begin log1
mv old/log1 old/log
seen() { log && "$tool" log list log | head -n 1; }
verb "log compact" "$tool" log compact -T 1 log
begin log1.packed
mv old/log1.packed old/log
verb "log compact of a packed base" "$tool" log compact -T 1 log

seen() { folder; }
begin
verb "compress a folder" "$tool" compress -T 1 -o x ../sb
verb "decompress a folder" "$tool" decompress -T 1 -o x ../sb.pici
verb "diff folders" "$tool" diff -T 1 -o x ../sa ../sb
verb "apply to a folder" "$tool" apply -T 1 -o x ../sa ../sab.pici
begin sa
mv old/sa old/x
verb "decompress a folder --force" "$tool" decompress -T 1 --force -o x ../sb.pici
verb "apply to a folder in place" "$tool" apply -T 1 --in-place x ../sab.pici

# ---- cat opens its file once, for any number of tensors
calls() { # COMMAND...: how many calls a command makes; one for each tensor is to write it
    LD_PRELOAD=./fault.so HIT=$tmp/hit "$@" >"$out" 2>"$err"
    cat "$tmp/hit.calls"
}
safetensors '{"w":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}' >cat.safetensors
printf 'abcd' >>cat.safetensors
"$tool" compress -o cat.pici cat.safetensors 2>"$err"
one=$(calls "$tool" cat cat.pici w) five=$(calls "$tool" cat cat.pici w w w w w)
[ "$(cat "$out")" = abcdabcdabcdabcdabcd ] && pass || fail "cat of five: $(cat "$out")"
[ "$five" = $((one + 4)) ] && pass || fail "cat of five makes $five calls, of one $one"
finish
