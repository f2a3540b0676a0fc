#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The pages of the site: their links lead somewhere, every public function is in the reference, and the page that tries
# a block makes the library's blocks. MkDocs itself is not needed.
set -eu
build=$(cd "${BUILD:-build}" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0
die() { echo "$*" >&2; exit 1; }

site/prepare.py --picitool "$build/picitool" --html "$tmp/html/0.0.0" "$tmp/pages"
for f in $(sed -n 's/^PICI_API.*[ *]\(pici_[a-z0-9_]*\)(.*/\1/p' include/pici/*.h | sort -u); do
    grep -qrx "### $f { #$f }" "$tmp/pages/docs/reference/c" || die "no reference of $f"
done
n=$((n + 1))
for name in compress scatter_add DeltaLog Comm Comm.all_reduce all_reduce_hook topk load; do
    grep -qrE "^##+ $name \{" "$tmp/pages/docs/reference/python" || die "no reference of Python's $name"
done
n=$((n + 1))
grep -q '^## block encode$' "$tmp/pages/docs/reference/picitool.md" || die "no help of picitool block encode"
grep -q '"0.0.0"' "$tmp/html/versions.json" || die "no menu of versions"
n=$((n + 1))

# MkDocs names a page by its first line if this is a heading, else by the file.
first=$(find "$tmp/pages" -name '*.md' ! -name try.md -exec sed -sn '1{/^# /!F}' {} +)
[ -z "$first" ] || die "not a heading in the first line of $first"
python3 - <<'EOF'
import sys
sys.path.insert(0, "site")
import prose

text = prose.markdown("Does it.\n\nout: a buffer, the\n    result of it.\nto, by: types.\n\nUse:\n    call(x)")
want = "Does it.\n\n`out`: a buffer, the result of it.\n\n`to`, `by`: types.\n\nUse:\n"
assert text == want + "\n```py\ncall(x)\n```\n", text
text = prose.markdown("    for i in x:  # each\n        f(i)\n\n    g()\n\n    name   a row\n    other\nThe end.")
code, rest = "```py\nfor i in x:  # each\n    f(i)\n\ng()\n```\n", "| `name` | a row |\n| `other` |  |\n\nThe end.\n"
assert text.startswith(code) and text.endswith(rest) and "f(i)" not in text[len(code) :], text
EOF
n=$((n + 2))

! grep -rqE '^ {2,3}[-*] ' "$tmp/pages/docs" "$tmp/pages/formats" || die "a nested list is not indented by four spaces"
tools/dev/benchmarks --check || die "docs/benchmarks.md is not what its records give: make figures"
tools/dev/figures --check "$build/picitool" || die "the figures are not what picitool predicts: make figures"
n=$((n + 2))

# A page, a header or a specification that is wrong stops make site.
mkdir "$tmp/tree"
cp -R site docs formats include README.md CHANGELOG.md CONTRIBUTING.md RELEASING.md SECURITY.md "$tmp/tree"
cp -R --parents python/pici LICENSE "$tmp/tree"
for folder in .ci bench examples lib tools tests plugins mk preload packaging; do
    ln -s "$PWD/$folder" "$tmp/tree/$folder"
done
echo '[nowhere](nowhere.md)' >>"$tmp/tree/docs/index.md"
! "$tmp/tree/site/prepare.py" "$tmp/other" >"$tmp/log" 2>&1 || die "a link to nowhere is taken"
grep -q 'docs/index.md: there is no nowhere.md' "$tmp/log" || die "$(cat "$tmp/log")"
n=$((n + 1))

if [ ! -e "$build/site/codec.wasm" ] && ! { command -v clang && command -v wasm-ld; } >/dev/null 2>&1; then
    echo "skip: the page that tries a block: no clang with wasm-ld"
elif ! command -v node >/dev/null 2>&1; then
    echo "skip: the page that tries a block: no node"
else
    ${MAKE:-make} -s BUILD="$build" "$build/site/codec.wasm"
    site/prepare.py --picitool "$build/picitool" --wasm "$build/site/codec.wasm" "$tmp/pages" >/dev/null
    node tests/dev/site.js "$tmp/pages/try" "$build/picitool" "$tmp"
    n=$((n + 1))
    status=0
    python3 tests/dev/site_page.py "$tmp/pages" "$tmp" || status=$?
    case $status in
        0) n=$((n + 1)) ;;
        77) echo "skip: the page in a browser: no chromium" ;;
        *) exit 1 ;;
    esac
fi
echo "$n passed"
