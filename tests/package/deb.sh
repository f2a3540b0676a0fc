#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What packaging/debian says of the tree, without building packages (make check-deb does): versions, the list of
# symbols, and which package each installed file goes to.
. tests/util/script
set -e
debian=packaging/debian
[ -z "${SANITIZE:-}" ] || skip_all "Debian's packages, of a sanitizer build"

version=$(sed -n 's/.*define PICI_VERSION "\(.*\)"/\1/p' include/pici/pici.h)
packaged=$(sed -n '1s/^pici (\(.*\)-[^-]*) .*/\1/p' $debian/changelog)
[ "$version" = "$packaged" ] || die "$debian/changelog begins with $packaged, and pici.h has $version"
pass "version"

# make deb removes what OUT has from another run, and nothing else. It stops before it builds: no program is found.
mkdir "$tmp/bin" "$tmp/docs" "$tmp/made"
for program in dirname ls sed sh; do
    ln -s "$(command -v $program)" "$tmp/bin"
done
echo precious >"$tmp/docs/file"
touch "$tmp/made/.pici-deb"
made() { # OUT
    PATH="$tmp/bin" tools/dev/deb "$1" >"$tmp/log" 2>&1 && die "make deb without programs"
    return 0
}
for out in "$tmp/docs" "$tmp/docs/file"; do
    made "$out"
    grep -q "deb: $out is not a folder that this program made" "$tmp/log" || die "make deb takes $out"
done
[ "$(cat "$tmp/docs/file")" = precious ] || die "make deb removes files of others"
for out in "$tmp/made" "$tmp/new"; do
    made "$out"
    grep -q 'deb: no dpkg-buildpackage' "$tmp/log" || die "make deb refuses $out"
done
pass "folder of make deb"

if command -v nm >/dev/null 2>&1; then
    for of in libpici:libpici0 libpici_coll:libpici-coll0; do
        list=${of#*:}.symbols
        nm -D --with-symbol-versions --defined-only "$build/${of%:*}.so" | awk '{ sub(/@+/, "@", $3); print $3 }' |
            awk -F@ '$0 !~ /PICI_PRIVATE/ { print $1 "@" ($2 == "" ? $1 : $2) }' | LC_ALL=C sort -u >"$tmp/exported"
        sed -n 's/^ \([A-Za-z0-9_]*@[A-Z0-9_]*\) .*/\1/p' "$debian/$list" | LC_ALL=C sort -u >"$tmp/listed"
        diff "$tmp/listed" "$tmp/exported" >"$tmp/diff" || {
            sed -n "s/^> \(.*\)/    add to $list: \" \1 $version\"/p; s/^< /    remove from it: /p" "$tmp/diff"
            die "$debian/$list is not what the library exports"
        }
        pass "symbols: $(wc -l <"$tmp/listed") in $list"
    done
else
    echo "skip: the list of symbols: no nm"
fi

# As debian/rules installs.
"$make" -s BUILD="$build" CC="$cc" DESTDIR="$tmp/root" PREFIX=/usr LIBDIR=/usr/lib/some-machine \
    ZSHDIR=/usr/share/zsh/vendor-completions MPIDIR="$tmp/none" CUDADIR="$tmp/none" NCCLDIR="$tmp/none" \
    H5DIR="$tmp/none" install >"$tmp/log" 2>&1 || { cat "$tmp/log"; die "make install"; }
(cd "$tmp/root" && find . -type f -o -type l) | sed 's|^\./||' | sort >"$tmp/files"
sed -n 's/^Package: //p' $debian/control >"$tmp/packages"
for package in $(cat "$tmp/packages"); do
    [ -s "$debian/$package.install" ] || die "$package has no $debian/$package.install"
    grep -v '^#' "$debian/$package.install" >>"$tmp/patterns"
done
while read -r f; do
    n=0
    while read -r pattern; do
        # shellcheck disable=SC2254 # patterns
        case $f in $pattern | $pattern/*) n=$((n + 1)) ;; esac
    done <"$tmp/patterns"
    [ $n = 1 ] || die "$f is in $n packages"
done <"$tmp/files"
while read -r pattern; do
    found=
    while read -r f; do
        # shellcheck disable=SC2254
        case $f in $pattern | $pattern/*) found=1 ;; esac
    done <"$tmp/files"
    case $pattern in usr/lib/python3*) continue ;; esac # which setup.py installs
    [ -n "$found" ] || die "$pattern is not installed"
done <"$tmp/patterns"
pass "each of $(wc -l <"$tmp/files") files is in one of $(wc -l <"$tmp/packages") packages"

for f in $(cat $debian/*.docs $debian/*.examples | grep -v '^#'); do
    [ -e "$f" ] || die "there is no $f"
done
pass "documents and examples"
finish
