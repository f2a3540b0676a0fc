#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# tools/dev/check-text: long lines and phrases are found where they are, and nowhere else.
set -eu
build=${BUILD:-build}
command -v python3 >/dev/null 2>&1 || { echo "skip: no python3: tools/dev/check-text not tested"; exit 77; }
mkdir -p "$build"
tmp=$(mktemp -d "$build/text.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
passed=0

expect() { # WHAT CHECK FILE FAULTS: FILE has these faults ("" for none)
    status=0
    tools/dev/check-text "$2" "$tmp/$3" >"$tmp/out" 2>&1 || status=$?
    printf '%s' "$4" | sed "s|^|$tmp/$3:|" >"$tmp/want"
    [ ! -s "$tmp/want" ] || echo >>"$tmp/want"
    if [ $status = "$([ -z "$4" ] && echo 0 || echo 1)" ] && cmp -s "$tmp/want" "$tmp/out"; then
        passed=$((passed + 1))
    else
        diff -u "$tmp/want" "$tmp/out" || true
        echo "FAIL $1 (exit status $status)"
        exit 1
    fi
}

line() { # N: so many characters, of two bytes each
    printf "%$1s\n" | sed 's/ /é/g'
}

{ line 120; line 121; line 5; line 122; } >"$tmp/lines.c"
expect "long lines" columns lines.c '2: 121 columns, more than 120
4: 122 columns, more than 120'

{ echo "| $(line 130) |"; echo "[a page](https://example.com/$(line 120)), <https://example.com/$(line 120)>"; } \
    >"$tmp/table.md"
expect "tables and links" columns table.md ''
cp "$tmp/table.md" "$tmp/table.c"
expect "what is no Markdown" columns table.c '1: 134 columns, more than 120
2: 294 columns, more than 120'
echo "[$(line 120)](b)" >"$tmp/link.md"
expect "a link's text" columns link.md '1: 121 columns, more than 120'

cat >"$tmp/words.c" <<'END'
/* Waits in vain. */
Locks up;
enum deed { A };
 * stores past the
 * caches are
END
expect "phrases" words words.c '1: "in vain": say without success
2: "Locks up": say deadlock
3: "deed": say operation
4: "past the caches": say non-temporal'

printf '# stores past\n# the caches\n' >"$tmp/words.sh"
expect "a phrase in a script's comment" words words.sh '1: "past the caches": say non-temporal'

cat >"$tmp/glossary.md" <<'END'
| term | meaning | where | instead of |
|---|---|---|---|
| tile | 4096 elements | `formats/block.md` | |
| block | a header and more | `formats/block.md` | |
| quux | nothing | `formats/block.md` | |
| rank | a process | `formats/none.md` | |
| step | | `formats/block.md` | |
END
expect "a glossary" glossary glossary.md '4: "block" is not after "tile"
5: formats/block.md does not have "quux"
6: there is no file formats/none.md
7: not a term, its meaning, a file, and phrases or nothing'

cat >"$tmp/style.md" <<'END'
# What is a heading of which nothing is said

One two three four five six seven eight nine ten, one two three four five six seven eight nine ten, one two
three four five six seven eight nine ten.

- A sentence that takes the size as far
  as possible. It appears whole: say so!
- Its length is `that of` code.

| a table | whatever |
```
as far as code goes
```
[A link](whatever.md) leads on to [whatever](that-of.md).
END
expect "style" style style.md '6: "as far as": say if, or where
7: "appears whole": say is written atomically
7: "say so": say who reports what
14: "whatever": say for any, or regardless of'
sed -i 's/ten\.$/ten eleven./' "$tmp/style.md"
tools/dev/check-text style "$tmp/style.md" >"$tmp/out" && exit 1
grep -q 'style.md:3: 31 words, more than 30: One two' "$tmp/out" || { cat "$tmp/out"; exit 1; }
passed=$((passed + 1))

# Comments and docstrings: a sentence of 30 words passes, one of 31 does not.
many() { # N: so many words
    printf 'Word'
    for _ in $(seq 2 "$1"); do printf ' word'; done
}
begin='Word word word word word word word word word word word word ...'
{
    printf '/* %s.\n * %s, of which one. */\n' "$(many 30)" "$(many 29)"
    printf 'const char s[] = "/* %s";\n' "$(many 40)"
    printf 'int i; // %s\n       // %s\n' "$(many 16)" "$(many 15)"
    printf '/* A table:\n *   one    %s\n *          %s\n *   two    %s */\n' "$(many 15)" "$(many 16)" "$(many 30)"
    printf '/* Formulas:\n *   a = %s\n *   b = %s */\n' "$(many 20)" "$(many 20)"
} >"$tmp/style.c"
expect "style of a source in C" style style.c '1: 32 words, more than 30: '"$begin"'
1: "of which": say a second sentence
4: 31 words, more than 30: '"$begin"'
7: 31 words, more than 30: '"$begin"

{
    printf '"""%s.\n\n    code(%s)\n\n%s: %s.\n"""\n' "$(many 30)" "$(many 40)" name "$(many 30)"
    printf 'def f():\n    """Does so e.g. in %s.\n\n    %s."""\n' "$(many 27)" "$(many 31)"
    printf 'x = 1  #: %s\n# %s\n# %s\n' "$(many 31)" "$(many 10)" "$(many 21)"
} >"$tmp/style.py"
eg='Does so e.g. in Word word word word word word word word word...'
expect "style of a source in Python" style style.py "8: 31 words, more than 30: $eg
10: 31 words, more than 30: $begin
11: 31 words, more than 30: $begin
12: 31 words, more than 30: Word word word word word word word word word word Word word ..."

printf '#!/bin/sh\n# SPDX-License-Identifier: BSD-3-Clause\n# %s\nx=${#y} # %s\necho a# %s\n' \
    "$(many 30)" "$(many 31)" "$(many 31)" >"$tmp/style.sh"
expect "style of a script" style style.sh '4: 31 words, more than 30: '"$begin"
cp "$tmp/style.sh" "$tmp/style.txt"
sed -i 1d "$tmp/style.txt"
expect "style of what has no comments" style style.txt ''

echo 'invain deed_of indeed; past the cache, lock upper' >"$tmp/other.c"
expect "other words" words other.c ''
echo "$passed passed"
