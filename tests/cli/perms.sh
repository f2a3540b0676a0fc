#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Outputs of picitool permit no more than the files that they are made from; what is replaced keeps its permissions.
. tests/cli/common
umask 022

numbers 300 >n1200
{ npy 1 "'<f4'" False '(300,)'; cat n1200; } >a.npy
{ npy 1 "'<f4'" False '(300,)'; head -c 600 n1200; zeros 600; } >b.npy

mode() { # WHAT MODE FILE, the mode as ls has it
    mode_is=$(ls -ld "$3" | cut -c1-10)
    [ "$mode_is" = "$2" ] && pass || fail "$1: mode $mode_is, not $2"
}

for m in 600:-rw------- 640:-rw-r----- 644:-rw-r--r-- 666:-rw-rw-rw- 400:-r--------; do
    rm -f a.npy.pici out out.*
    chmod "${m%%:*}" a.npy
    want=${m#*:}
    expect 0 "compress ${m%%:*}" "$tool" compress a.npy
    mode "compress ${m%%:*}" "$want" a.npy.pici
    expect 0 "decompress ${m%%:*}" "$tool" decompress -o out a.npy.pici
    mode "decompress ${m%%:*}" "$want" out
    same "decompress ${m%%:*}" a.npy out
    expect 0 "extract ${m%%:*}" "$tool" extract -o out.x a.npy.pici
    mode "extract ${m%%:*}" "$want" out.x
    expect 0 "block encode ${m%%:*}" "$tool" block encode --dtype f32 a.npy out.blk
    mode "block encode ${m%%:*}" "$want" out.blk
    expect 0 "report ${m%%:*}" "$tool" report -o out.html a.npy
    mode "report ${m%%:*}" "$want" out.html
done
chmod 600 a.npy
"$tool" compress --type npy -o piped.pici - <a.npy 2>"$err" # standard input, which is the file
mode "compress of standard input" -rw------- piped.pici
cat a.npy | "$tool" compress --type npy -o pipe.pici - 2>"$err"
mode "compress of a pipe" -rw-r--r-- pipe.pici
chmod 4755 a.npy
expect 0 "compress of a setuid file" "$tool" compress --force -o setuid.pici a.npy
mode "compress of a setuid file" -rwxr-xr-x setuid.pici

# ---- of several files: what all permit
chmod 600 a.npy
expect 0 "diff" "$tool" diff -o d.pici a.npy b.npy
mode "diff of a secret base" -rw------- d.pici
expect 0 "diff" "$tool" diff -o e.pici b.npy a.npy
mode "diff of a secret result" -rw------- e.pici
chmod 644 a.npy
expect 0 "apply" "$tool" apply -o r.npy a.npy d.pici
mode "apply of a secret delta" -rw------- r.npy
chmod 644 d.pici
expect 0 "apply" "$tool" apply --force -o s.npy a.npy d.pici
mode "apply of what all may read" -rw-r--r-- s.npy

# ---- of a log: what its base and its deltas permit
chmod 640 a.npy
expect 0 "log init" "$tool" log init l a.npy
expect 0 "log apply" "$tool" log apply l t.npy
mode "log apply of a secret base" -rw-r----- t.npy
chmod 600 b.npy
expect 0 "log append" "$tool" log append l a.npy b.npy
expect 0 "log apply" "$tool" log apply l t.npy
mode "log apply to a file" -rw-r----- t.npy
expect 0 "log apply" "$tool" log apply l u.npy
same "log apply" b.npy u.npy
mode "log apply of a secret delta" -rw------- u.npy
mode "log append of a secret state" -rw------- l/delta-000000001.pici
chmod 644 b.npy
expect 0 "log append" "$tool" log append l b.npy a.npy
mode "log append of a state" -rw-r----- l/delta-000000002.pici
chmod 600 a.npy
expect 0 "log append" "$tool" log append l a.npy b.npy
mode "log append after a secret state" -rw------- l/delta-000000003.pici
chmod 644 l/base-000000000.npy
expect 0 "log compact" "$tool" log compact l
mode "log compact to a secret state" -rw------- l/base-000000003.npy
chmod 644 a.npy b.npy

# ---- what is replaced keeps what it has
for m in 600:-rw------- 640:-rw-r----- 664:-rw-rw-r--; do
    cp a.npy p.npy
    chmod "${m%%:*}" p.npy
    expect 0 "apply --in-place ${m%%:*}" "$tool" apply --in-place p.npy d.pici
    same "apply --in-place ${m%%:*}" b.npy p.npy
    mode "apply --in-place ${m%%:*}" "${m#*:}" p.npy
done
owner() { # WHAT OWNER:GROUP FILE
    # shellcheck disable=SC2012
    owner_is=$(ls -ln "$3" | awk '{ print $3 ":" $4 }')
    [ "$owner_is" = "$2" ] && pass || fail "$1: owner and group $owner_is, not $2"
}
cp a.npy p.npy
if chown 12345:23456 p.npy 2>"$err"; then
    chmod 640 p.npy
    expect 0 "apply --in-place, of another's file" "$tool" apply --in-place p.npy d.pici
    same "apply --in-place, of another's file" b.npy p.npy
    mode "apply --in-place, of another's file" -rw-r----- p.npy
    owner "apply --in-place, of another's file" 12345:23456 p.npy
    expect 0 "compress, of another's file" "$tool" compress p.npy
    mode "compress, of another's file" -rw-r----- p.npy.pici
    owner "compress, of another's file" 12345:23456 p.npy.pici
    expect 0 "decompress, of another's file" "$tool" decompress --force p.npy.pici
    owner "decompress, of another's file" 12345:23456 p.npy
else
    skip "owner and group of files: only root may set them"
fi

# ---- a folder that may be written, but not read
as_user() { # which may not be root
    if [ "$(id -u)" = 0 ]; then setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; else "$@"; fi
}
mkdir box whole
cp a.npy box/c.npy
cp "$tool" picitool
safetensors '{}' >whole/model.safetensors
chmod 644 a.npy whole/model.safetensors
chmod 755 . whole picitool
chmod 711 "$tmp"
[ "$(id -u)" != 0 ] && chmod 300 box || chmod 733 box
if as_user ./picitool --version >"$out" 2>"$err" && ! as_user ls box >"$out" 2>&1; then
    expect 0 "compress into a folder that may not be read" as_user ./picitool compress -o box/a.pici a.npy
    expect 0 "decompress into it" as_user ./picitool decompress -o box/a.npy box/a.pici
    same "decompress into it" a.npy box/a.npy
    expect 0 "a folder in it" as_user ./picitool compress -o box/whole.pici whole
    expect 0 "a folder in it, again" as_user ./picitool compress --force -o box/whole.pici whole
    expect 0 "a folder in it, back" as_user ./picitool decompress -o box/whole box/whole.pici
    same "a folder in it" whole/model.safetensors box/whole/model.safetensors
    chmod 700 box
    (cd box && clean "in a folder that may not be read")
else
    skip "a folder that may not be read: no user who may not"
fi
chmod 700 box

clean "after all that"
finish
