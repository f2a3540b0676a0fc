#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What comes with picitool: hints in errors, completion in three shells, a manual page for each verb, magic for file(1).
. tests/cli/common

numbers 300 >n1200
{ safetensors '{"layer 1.weight":{"dtype":"F32","shape":[10,30],"data_offsets":[0,1200]},
"bias":{"dtype":"U8","shape":[3],"data_offsets":[1200,1203]},
"no\u000aline":{"dtype":"U8","shape":[0],"data_offsets":[1203,1203]}}'; cat n1200; printf 'a\0b'; } >m.safetensors
"$tool" compress m.safetensors || fail compress

# ---- did you mean
hint() { # STATUS MEANT ARGUMENTS...
    hint_status=$1 hint_meant=$2
    shift 2
    expect "$hint_status" "hint: $*" "$tool" "$@"
    if [ -n "$hint_meant" ]; then
        says "hint: $*" "; did you mean $hint_meant\\?" "$err"
    else
        grep -q 'did you mean' "$err" && fail "hint: $*: $(cat "$err")" || pass
    fi
}
hint 2 compress comress x
hint 2 compress compres x
hint 2 inspect insepct x
hint 2 block blok encode
hint 2 '' frobnicate
hint 2 '' x
hint 2 --tensor inspect --tnsor bias m.safetensors
hint 2 --force compress --froce m.safetensors
hint 2 --threads compress --thread5=2 m.safetensors
hint 2 '' compress --quux m.safetensors
hint 2 '' compress --force=1 m.safetensors
says "a value too many" '--force takes no value' "$err"
hint 2 bf16 block encode --dtype bf6 n1200 x
hint 2 hybrid compress -f hybird m.safetensors
hint 2 safetensors inspect --type safetensor m.safetensors
hint 1 bias inspect --tensor bais m.safetensors
hint 1 'layer 1.weight' inspect --tensor 'layer 1.wieght' m.safetensors.pici
hint 1 bias extract --tensor biass m.safetensors.pici
hint 1 bias bench --tensor bia m.safetensors
hint 1 '' extract --tensor nothing m.safetensors.pici

# ---- completion: the words that the tool offers
offers() { # WHAT WANTED-FIRST-COLUMN ARGUMENTS...
    offers_what=$1 offers_want=$2
    shift 2
    expect 0 "completion: $offers_what" "$tool" --complete "$@"
    offers_got=$(cut -f 1 "$out" | tr '\n' ' ')
    [ "$offers_got" = "$offers_want" ] && pass || fail "completion: $offers_what: '$offers_got', not '$offers_want'"
}
offers "verbs" "compress " com
offers "a verb of two words" "decode " block d
offers "options" "--type --threads --tensor " inspect --t
offers "formats" "bitmap " compress -f b
offers "dtypes" "f8e4m3 f8e5m2 " block encode --dtype f8
offers "types" "safetensors " compress --type s
offers "tensors of a .pici file" "layer 1.weight bias " extract m.safetensors.pici --tensor ''
offers "tensors of a .safetensors file" "bias " inspect m.safetensors -n b
offers "files" "" compress ''
offers "files, of an option" "" compress -o ''
offers "no such verb" "" frob -
offers "options without a verb" "--decompress " -d --dec
offers "the first option without a verb" "--rm --recursive " --r
offers "files without a verb" "" -d ''
offers "options after a file" "--rm " m.safetensors --rm
offers "tensors of no file" "" extract nofile n1200 --tensor ''
"$tool" --help >help
for verb in $("$tool" --complete '' | cut -f 1 | grep -v ^-); do
    says "completion: $verb" "^  $verb " help
done
"$tool" --complete compress -- | cut -f 1 | sort >offered
"$tool" compress --help | sed -n 's/^  .*\(--[a-z-]*\).*/\1/p' | sort >helped
same "completion: the options of --help" helped offered

# ---- completion: the shells
PATH=$(dirname "$tool"):$PATH
export PATH
if command -v bash >/dev/null 2>&1; then
    cat >try.bash <<'END'
. "$1/tools/completion/picitool.bash"
complete -p picitool || exit 1
try() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _picitool
    printf '%s|' "${COMPREPLY[@]}"
    echo
}
try picitool comp
try picitool extract m.safetensors.pici --tensor la
try picitool compress --f
try picitool compress ''
END
    expect 0 "bash" bash try.bash "$root"
    printf '%s\n' 'complete -o default -F _picitool picitool' 'compress|' 'layer\ 1.weight|' \
        '--format|--file-version|--force|' '|' >want
    same "bash" want "$out"
else
    skip "completion in bash: no bash"
fi
if command -v zsh >/dev/null 2>&1; then
    expect 0 "zsh: syntax" zsh -n "$root/tools/completion/_picitool"
    # what it would pass to zsh's own functions
    cat >try.zsh <<'END'
_describe() { print -r -- "$1: ${(Pj:|:)2}"; }
_files() { print files; }
words=(picitool "${@[2,-1]}") CURRENT=$#words
. $1/tools/completion/_picitool
END
    expect 0 "zsh" zsh -f try.zsh "$root" extract m.safetensors.pici --tensor layer
    [ "$(cat "$out")" = 'picitool: layer 1.weight:f32' ] && pass || fail "zsh: $(cat "$out")"
    expect 0 "zsh: files" zsh -f try.zsh "$root" compress ''
    [ "$(cat "$out")" = files ] && pass || fail "zsh: files: $(cat "$out")"
else
    skip "completion in zsh: no zsh"
fi
if command -v fish >/dev/null 2>&1; then
    HOME=$tmp XDG_CONFIG_HOME=$tmp XDG_DATA_HOME=$tmp
    export HOME XDG_CONFIG_HOME XDG_DATA_HOME
    expect 0 "fish: syntax" fish --no-execute "$root/tools/completion/picitool.fish"
    expect 0 "fish" fish --no-config -c "source '$root/tools/completion/picitool.fish'
complete -C 'picitool extract m.safetensors.pici --tensor bi'"
    says "fish" '^bias' "$out"
else
    skip "completion in fish: no fish"
fi

# ---- the manual: a page for each verb, with its options and no others
verbs=$(sed -n 's/^\.It Cm \([a-z]*\).*/\1/p' "$root/tools/picitool.1" | sort -u)
[ "$verbs" = "$("$tool" --complete '' | cut -f 1 | grep -v ^- | sort -u)" ] && pass || fail "the manual's verbs: $verbs"
for verb in $verbs; do
    expect 0 "the page of $verb" awk -f "$root/tools/dev/verb-man" -v verb="$verb" "$root/tools/picitool.1"
    cp "$out" "picitool-$verb.1"
    names=$verb
    [ "$verb" != block ] || names='block encode'
    # shellcheck disable=SC2086
    "$tool" $names --help | sed -n 's/^  .*--\([a-z-]*\).*/\1/p' >helped
    [ "$verb" != block ] || "$tool" block decode --help | sed -n 's/^  .*--\([a-z-]*\).*/\1/p' >>helped
    sort -u helped >want
    grep '^\.It Fl' "picitool-$verb.1" | sed 's/ , Fl Fl/\n.It Fl Fl/g' |
        sed -n 's/^\.It Fl Fl \([a-z-]*\).*/\1/p' | sort -u >documented
    same "the options of $verb" want documented
    if command -v mandoc >/dev/null 2>&1; then
        mandoc -T lint -W warning "picitool-$verb.1" >"$out" 2>&1 && pass ||
            fail "the form of the page of $verb: $(cat "$out")"
    else
        skip "the form of the page of $verb: no mandoc"
    fi
    if command -v groff >/dev/null 2>&1; then
        groff -ww -mandoc -T utf8 -z "picitool-$verb.1" 2>"$err" && [ ! -s "$err" ] && pass ||
            fail "groff of $verb: $(cat "$err")"
    else
        skip "groff of the page of $verb: no groff"
    fi
done

# ---- file(1)
if command -v file >/dev/null 2>&1; then
    kind() { # FILE WORDS
        kind_of=$(file -b -m "$root/tools/pici.magic" "$1")
        [ "$kind_of" = "$2" ] && pass || fail "file $1: '$kind_of', not '$2'"
    }
    "$tool" block encode -f coo --dtype f32 n1200 coo.blk
    "$tool" block encode -f hybrid --dtype i8 n1200 hybrid.blk
    nonzero=$(od -An -v -tx4 -w4 n1200 | grep -vc ' 00000000')
    bytes=$(od -An -v -tx1 -w1 n1200 | grep -vc ' 00')
    kind m.safetensors.pici 'pici tensors, version 2'
    kind coo.blk "pici block, version 1, coo, f32, 300 elements, $nonzero values"
    kind hybrid.blk "pici block, version 1, hybrid, i8, 1200 elements, $bytes values"
    printf 'PICImania' >text
    file -b -m "$root/tools/pici.magic" text | grep >/dev/null pici && fail "text is taken for a block" || pass
    [ "$(file -b --mime-type -m "$root/tools/pici.magic" m.safetensors.pici)" = application/x-pici ] && pass ||
        fail "the MIME type"
    expect 0 "the form of the magic" file -C -m "$root/tools/pici.magic"
else
    skip "what file(1) says: no file"
fi

clean "after all that"
finish
