#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# picitool on a terminal: it asks before it overwrites, and says what it has made. In a pipe it does neither.
. tests/cli/common

command -v python3 >/dev/null 2>&1 || { skip "questions and results on a terminal: no python3"; finish; }

# on_terminal.py ANSWERS COMMAND [MEANWHILE]: run the shell's command on a new terminal. When it has asked a question,
# type the answers and then the end of the input. Print what the terminal shows. MEANWHILE: a command that runs before
# the answers are typed.
cat >on_terminal.py <<'END'
import os
import pty
import signal
import subprocess
import sys

answers, command, meanwhile = sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None
pid, fd = pty.fork()
if pid == 0:
    os.execvp("sh", ["sh", "-c", command])
signal.alarm(60)
shown, typed = b"", False
while True:
    if not typed and b"[y/N] " in shown:
        if meanwhile:
            subprocess.check_call(meanwhile, shell=True)
        os.write(fd, answers.encode() + b"\x04")
        typed = True
    try:
        data = os.read(fd, 65536)
    except OSError:  # EIO: nobody has the terminal open any more
        break
    if not data:
        break
    shown += data
sys.stdout.buffer.write(shown.replace(b"\r\n", b"\n"))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
END

numbers 300 >n1200
for name in a b; do
    { npy 1 "'<f4'" False '(4096,)'; cat n1200; zeros 15184; } >$name.npy
done
"$tool" compress a.npy && "$tool" compress b.npy || fail compress
cp a.npy.pici good
"$tool" block encode -q --dtype f32 n1200 a.blk
head -c 100 a.npy >cut.npy

# terminal WHAT STATUS ANSWERS COMMAND [MEANWHILE]: ANSWERS as printf takes them
terminal() {
    t_what=$1 t_status=$2 t_answers=$(printf "$3x")
    shift 3
    TERM=dumb python3 on_terminal.py "${t_answers%x}" "$@" >"$out" 2>&1
    t_is=$?
    [ $t_is = "$t_status" ] && pass || fail "$t_what: exit status $t_is, not $t_status: $(cat "$out")"
}

# ---- messages are written whole: a pipe of packets gives what one call wrote
cat >packets.py <<'END'
import os
import subprocess
import sys

pipe, end = os.pipe2(os.O_DIRECT)
with subprocess.Popen(sys.argv[1:], stderr=end, stdin=subprocess.DEVNULL):
    os.close(end)
    while packet := os.read(pipe, 65536):
        print(packet)
END
python3 packets.py "$tool" compress nofile.npy cut.npy a.npy >"$out"
[ "$(wc -l <"$out")" = 3 ] && pass || fail "three messages, not each in one piece: $(cat "$out")"
python3 packets.py "$tool" compress --force --verbose a.npy >"$out"
[ "$(grep -c "^b'.*.n'\$" "$out")" = "$(wc -l <"$out")" ] && pass ||
    fail "results, not each in one piece: $(cat "$out")"

# ---- questions
question='already exists; overwrite it\? \[y/N\] '
for answer in 'n\n' '\n' 'no\n' 'yep\n' 'x\n' ' y\n' 'nyes\n' 'yesyes\n' ''; do
    echo old >a.npy.pici
    terminal "no: '$answer'" 2 "$answer" "$tool compress a.npy"
    says "no: '$answer'" "picitool: a.npy.pici: $question" "$out"
    says "no: '$answer'" 'a.npy.pici: already exists; not overwritten' "$out"
    [ "$(cat a.npy.pici)" = old ] && pass || fail "no: '$answer': it is overwritten"
done
for answer in 'y\n' 'Y\n' 'yes\n' 'Yes\n'; do
    echo old >a.npy.pici
    terminal "yes: '$answer'" 0 "$answer" "$tool compress a.npy"
    says "yes: '$answer'" "$question" "$out"
    same "yes: '$answer'" good a.npy.pici
done
for args in 'compress --force a.npy' '-f a.npy' 'decompress -f a.npy.pici' '-df a.npy.pici'; do
    terminal "$args" 0 '' "$tool $args"
    grep -q 'overwrite it?' "$out" && fail "$args asks: $(cat "$out")" || pass
done
# every verb that writes
echo old >old
cp old old.png
for args in 'compress -o old a.npy' 'decompress -o old a.npy.pici' 'report -o old a.npy' 'extract -o old a.npy.pici' \
    'diff -o old a.npy b.npy' 'block encode --dtype f32 n1200 old' 'block decode a.blk old' \
    'inspect --png old.png a.npy'; do
    terminal "$args: no" 2 'n\n' "$tool $args"
    [ "$(cat old)" = old ] && [ "$(cat old.png)" = old ] && pass || fail "$args: overwritten without a yes"
    terminal "$args: yes" 0 'y\n' "$tool $args"
    cmp -s old old.png && fail "$args: not overwritten after a yes" || pass
    echo old >old
    cp old old.png
done
# of several, each is asked about
cp a.npy c.npy
rm -f c.npy.pici
echo old >a.npy.pici
echo old >b.npy.pici
terminal "several" 2 'n\ny\n' "$tool compress a.npy b.npy c.npy"
[ "$(cat a.npy.pici)" = old ] && pass || fail "several: the first is overwritten"
same "several: the second" good b.npy.pici
same "several: the third" good c.npy.pici
# no question: -q, standard input or standard error that is no terminal, standard input that is an input
echo old >a.npy.pici
terminal "-q" 2 'y\n' "$tool compress -q a.npy"
grep -q 'overwrite it?' "$out" && fail "-q asks" || pass
terminal "standard input is a file" 2 'y\n' "$tool compress a.npy <n1200"
grep -q 'overwrite it?' "$out" && fail "standard input is a file, and it asks" || pass
terminal "standard error is a file" 2 'y\n' "$tool compress a.npy 2>log"
says "standard error is a file" 'already exists; not overwritten: --force overwrites it' log
terminal "standard input is an input" 2 'y\n' "$tool compress --dtype u8 -o a.npy.pici -"
grep -q 'overwrite it?' "$out" && fail "standard input is an input, and it asks" || pass
[ "$(cat a.npy.pici)" = old ] && pass || fail "overwritten without a question"
terminal "no file" 2 '' "$tool -d"
says "no file" 'no input file given, and standard input is a terminal' "$out"
# an input that changes before its output is complete is not removed
terminal "--rm of what has changed" 1 'y\n' "$tool compress --rm a.npy" "touch -d '1999-12-31 12:00' a.npy"
says "--rm of what has changed" 'a.npy: not removed: it has changed' "$out"
same "--rm of what has changed" a.npy b.npy
same "--rm of what has changed: the output" good a.npy.pici
terminal "--rm of another file of this name" 1 'y\n' "$tool compress --rm a.npy" \
    "mv a.npy moved; cp n1200 a.npy"
says "--rm of another file of this name" 'a.npy: not removed: it is not the file that was read' "$out"
same "--rm of another file of this name" n1200 a.npy
mv moved a.npy

# ---- results
rate='[0-9.]+ [kMGT]B/s'
size='[0-9.]+ (B|KiB)'
terminal "a result" 0 '' "$tool compress --force a.npy"
says "a result" "^a\\.npy : [0-9.]+% \\(16\\.1 KiB -> $size, $rate\\)  a\\.npy\\.pici" "$out"
[ "$(wc -l <"$out")" = 1 ] && pass || fail "a result: $(cat "$out")"
terminal "of decompress" 0 '' "$tool decompress --force -o x a.npy.pici"
says "of decompress" "^a\\.npy\\.pici : \\($size -> 16\\.1 KiB, $rate\\)  x" "$out"
terminal "of two" 0 '' "$tool compress --force a.npy b.npy"
says "of two" "^2 of 2 files : [0-9.]+% \\(32\\.2 KiB -> $size, $rate\\)" "$out"
[ "$(wc -l <"$out")" = 3 ] && pass || fail "of two: $(cat "$out")"
for args in 'diff -f pici -o x a.npy b.npy' 'extract -o x a.npy.pici' 'block encode --dtype f32 a.npy x' \
    'block decode a.blk x'; do
    rm -f x
    terminal "$args" 0 '' "$tool $args"
    says "$args" "$rate\\)  x" "$out"
done
"$tool" diff -f pici -o d.pici a.npy b.npy
rm -f x
terminal "apply" 0 '' "$tool apply -o x a.npy d.pici"
says "apply" "^d\\.pici : \\(.*$rate\\)  x" "$out"
terminal "-q" 0 '' "$tool compress -q --force a.npy"
[ ! -s "$out" ] && pass || fail "-q: $(cat "$out")"
terminal "to standard output" 0 '' "$tool compress -c a.npy >x"
[ ! -s "$out" ] && pass || fail "to standard output: $(cat "$out")"
expect 0 "in a pipe" "$tool" compress --force a.npy
[ ! -s "$err" ] && [ ! -s "$out" ] && pass || fail "in a pipe: $(cat "$err")"
head -c 20000 /dev/urandom >noise
terminal "noise" 0 '' "$tool compress --dtype u8 noise"
says "noise" 'noise: warning: the output is larger than the input' "$out"
terminal "a failure" 1 '' "$tool compress nofile.npy cut.npy"
grep -q 'B/s' "$out" && fail "a result of a failure: $(cat "$out")" || pass

clean "after all that"
finish
