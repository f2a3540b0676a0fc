#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# tools/dev/abi on a small library in a repository of its own: which commit is the last release, and which changes since
# then are found.
set -eu
build=${BUILD:-build}
abi=$PWD/tools/dev/abi
for program in abidiff git nm; do
    command -v $program >/dev/null 2>&1 || { echo "skip: no $program: tools/dev/abi not tested"; exit 77; }
done
mkdir -p "$build"
tree=$(cd "$(mktemp -d "$build/abi.XXXXXX")" && pwd)
trap 'rm -rf "$tree"' EXIT
unset MAKEFLAGS MAKELEVEL
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a
passed=0
mkdir -p "$tree/repository/include/pici" "$tree/repository/tools/dev"
cd "$tree/repository"
git init -q .
echo build >.gitignore
printf '#' >tools/dev/abi.suppr
printf 'build/%%.so: %%.c\n\t@mkdir -p build\n\t@%s -g -fPIC -shared -Iinclude -o $@ $<\n' "${CC:-cc}" >Makefile

header() { # VERSION [MEMBERS]
    cat >include/pici/pici.h <<END
#define PICI_VERSION "$1"
#include <stddef.h>
struct pici_opts {
    size_t size;
    ${2:-int threads;}
};
struct pici_state;
int pici_pack(const struct pici_opts *);
int pici_sum(int);
int pici_use(struct pici_state *);
END
}

private() { # MEMBERS: in a header with the base name of the public one
    mkdir -p lib && echo "struct pici_state { $1 };" >lib/pici.h
}

library() { # NAME FUNCTIONS
    printf '#include <pici/pici.h>\n%s\n' "$2" >"$1.c"
}

commit() {
    git add -A && git commit -qm "$1"
}

pack='#include "lib/pici.h"
int pici_use(struct pici_state *s) { return s->last; }
int pici_pack(const struct pici_opts *o) { return (int)o->size; }'
sum='int pici_sum(int x) { return x; }'

expect() { # WHAT STATUS WORDS [DIRECTORY]: what the libraries of the tree are found to be
    rm -rf build && make -s "build/libpici.so"
    [ ! -e libpici_coll.c ] || make -s "build/libpici_coll.so"
    status=0
    "$abi" build . >"$tree/log" 2>&1 || status=$?
    { [ $status = "$2" ] && grep -qE -- "$3" "$tree/log"; } || {
        cat "$tree/log"
        echo "FAIL $1: $status"
        exit 1
    }
    passed=$((passed + 1))
}

header 0.1.0
private 'int last;'
library libpici "$pack $sum"
commit "the first version"
expect "the first version" 77 'SKIPPED: no release before this one'
echo >>Makefile
commit "the last of 0.1.0"
last=$(git rev-parse --short HEAD)
header 0.2.0
expect "a version that is not committed" 0 "compatible with 0.1.0 .$last"
commit "0.2.0"
expect "the last commit of the version before" 0 "compatible with 0.1.0 .$last"

header 0.2.0 'int threads; int checksum;'
library libpici "$pack $sum int pici_more(void); int pici_more(void) { return 1; }"
commit "more"
expect "a member at the end and a function" 0 'compatible with 0.1.0'
private 'int first, last;'
expect "a member in the middle of a private type" 0 'compatible with 0.1.0'
header 0.2.0 'int checksum; int threads;'
expect "a member in the middle" 1 "offset changed from"
cat >tools/dev/abi.suppr <<'END'
[suppress_type]
name = pici_opts
END
expect "a member in the middle, as the list allows" 0 'compatible with 0.1.0'
header 0.2.0
expect "a list of what is as it was" 1 'pici_opts does not differ from that of 0.1.0: remove it'
printf '#' >tools/dev/abi.suppr
library libpici "$(echo "$pack $sum" | sed 's/int x/long x/g')"
sed -i 's/pici_sum(int)/pici_sum(long)/' include/pici/pici.h
expect "another parameter" 1 'type name changed'
header 0.2.0
library libpici "$pack"
expect "a function is missing" 1 'D.*pici_sum'
library libpici_coll "$sum"
expect "a function has moved" 0 'compatible with 0.1.0'
library libpici "$pack $sum"
expect "a function in both" 1 'exported by two libraries: pici_sum'

rm libpici_coll.c
commit "a release"
git commit -q --allow-empty -m "the next one"
git tag v0.1.5 HEAD^
expect "a tag" 0 "compatible with 0.2.0 .$(git rev-parse --short HEAD^)"
git tag v0.2.0
expect "the commit that has a tag" 0 "compatible with 0.2.0 .$(git rev-parse --short HEAD^)"
git clone -q --depth 1 "file://$PWD" "$tree/shallow"
cd "$tree/shallow"
expect "a shallow clone" 77 'SKIPPED: no release before this one in this repository, which is shallow'
echo "$passed passed"
