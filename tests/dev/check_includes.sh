#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# tools/dev/check-includes on small trees: each kind of circle and each broken rule is found, and nothing else is.
set -eu
build=${BUILD:-build}
check=$PWD/tools/dev/check-includes
command -v python3 >/dev/null 2>&1 || { echo "skip: no python3: tools/dev/check-includes not tested"; exit 77; }
mkdir -p "$build"
tree=$(mktemp -d "$build/includes.XXXXXX")
trap 'rm -rf "$tree" "$tree.log"' EXIT
options=--no-table
passed=0

fresh() {
    rm -rf "$tree"
    mkdir -p "$tree/lib/codec" "$tree/lib/cpu" "$tree/lib/file" "$tree/tools/verbs"
}

put() { # FILE, with what standard input says
    cat >"$tree/$1"
}

fail() {
    cat "$tree.log"
    echo "FAIL $1"
    exit 1
}

keeps() { # WHAT: the tree has no fault
    "$check" ${options:+"$options"} "$tree" >"$tree.log" 2>&1 || fail "$1: a fault is reported where there is none"
    grep -q 'files keep the rules; no circle in' "$tree.log" || fail "$1: the result is not reported"
    passed=$((passed + 1))
}

breaks() { # WHAT LINES: the tree has exactly these faults
    ! "$check" ${options:+"$options"} "$tree" >"$tree.log" 2>&1 || fail "$1: not found"
    printf '%s\n' "$2" | cmp -s - "$tree.log" || fail "$1: other than expected:
$2"
    passed=$((passed + 1))
}

# ---- trees without a circle

fresh
put lib/codec/a.h <<'END'
int a_low(int), a_high(int);
extern const int a_table[2];
END
put lib/codec/a.c <<'END'
#include "codec/a.h"
int a_low(int x)
{
    return x;
}
const int a_table[2] = {1, 2};
END
put lib/codec/b.c <<'END'
#include "codec/a.h"
int a_high(int x)
{
    return a_low(x) + a_table[0];
}
END
keeps "one way"

# In a.c, what looks like a use of b.c's a_high.
put lib/codec/a.c <<'END'
#include "codec/a.h"
/* Not for
#include "codec/b.h"
 * a_high(1). */
static const char *text = "a_high(1)"; // a_high(1)
struct s {
    int a_high, (*f)(int);
};
int a_high(int);
int a_low(int a_high)
{
    struct s s = {.a_high = a_high, .f = a_low};
    return s.a_high + text[0] + '"' - a_high;
}
const int a_table[2] = {1, 2};
#define EACH(x) a_##x(1)
#define CALL(a_high) a_high(1)
END
keeps "what only looks like a use"

put lib/codec/a.c <<'END'
int a_low(const struct s *s)
{
    return s->a_high(1) + s->s.a_high;
}
const int a_table[2] = {1, 2};
END
keeps "a member"

put lib/codec/a.c <<'END'
int a_low(int x)
{
    int a_high = x;
    return a_high;
}
const int a_table[2] = {1, 2};
END
keeps "a local variable"

put lib/codec/a.c <<'END'
static int a_high(int x)
{
    return x;
}
int a_low(int x)
{
    return a_high(x);
}
const int a_table[2] = {1, 2};
END
keeps "a static function of the same name"

# A table in the unit whose functions it names, which others use: one way.
put lib/codec/c.c <<'END'
static int c_send(int x)
{
    return x;
}
int c_move(int x)
{
    return c_send(x);
}
const struct ops c_ops = {.send = c_send, .move = c_move};
END
put lib/codec/d.c <<'END'
int d(int x)
{
    return c_ops.send(x) + c_move(x);
}
END
keeps "a table of one's own functions"

# main() stands above the verbs that it lists, and these above the rest of its folder.
put tools/picitool.c <<'END'
const struct verb verbs[] = {{"list", verb_list}};
int main(void)
{
    return verbs[0].run();
}
END
put tools/verbs/list.c <<'END'
int verb_list(void)
{
    return show(1);
}
END
put tools/show.c <<'END'
int show(int x)
{
    return x;
}
END
keeps "a program above its rooms"

# ---- circles

fresh
echo '#include "codec/b.h"' | put lib/codec/a.h
echo '#include "codec/a.h"' | put lib/codec/b.h
breaks "includes" "circle of units: lib/codec/a, lib/codec/b
    lib/codec/a -> lib/codec/b: lib/codec/a.h:1 includes lib/codec/b.h
    lib/codec/b -> lib/codec/a: lib/codec/b.h:1 includes lib/codec/a.h"

fresh
echo '#include "codec/b.h"' | put lib/codec/a.c
echo | put lib/codec/a.h
echo '#include "codec/c.h"' | put lib/codec/b.h
printf '\n#  include "codec/a.h"\n' | put lib/codec/c.h
breaks "includes, by way of a third and of the source file of a header" \
    "circle of units: lib/codec/a, lib/codec/b, lib/codec/c
    lib/codec/a -> lib/codec/b: lib/codec/a.c:1 includes lib/codec/b.h
    lib/codec/b -> lib/codec/c: lib/codec/b.h:1 includes lib/codec/c.h
    lib/codec/c -> lib/codec/a: lib/codec/c.h:2 includes lib/codec/a.h"

# Units whose functions are all declared in one header.
calls() { # TEXT of b.c
    fresh
    echo 'int a_more(int), b(int);' | put lib/codec/x.h
    put lib/codec/a.c <<'END'
#include "codec/x.h"
int a(int x)
{
    return b(x);
}

int a_more(int x)
{
    return x;
}
END
    printf '%s\n' "$1" | put lib/codec/b.c
}
both='circle of units: lib/codec/a, lib/codec/b
    lib/codec/a -> lib/codec/b: lib/codec/a.c:4 uses b of lib/codec/b.c
    lib/codec/b -> lib/codec/a: lib/codec/b.c'

calls '#include "codec/x.h"
int b(int x)
{
    return a_more(x);
}'
breaks "calls" "$both:4 uses a_more of lib/codec/a.c"

calls 'static const struct ops table = {
    .send = a_more,
};
int b(int x)
{
    return table.send(x);
}'
breaks "a function in another unit's table" "$both:2 uses a_more of lib/codec/a.c"

calls 'int b(int x)
{
    return run(&a_more, x);
}'
breaks "a function's address" "$both:3 uses a_more of lib/codec/a.c"

calls '#define MORE(x) a_more(x)
int b(int x)
{
    return MORE(x);
}'
breaks "a call by a macro" "$both:1 uses a_more of lib/codec/a.c"

calls '#ifdef ONE
int b(int x) {
#else
int b(int y) {
#endif
    return 0;
}
MACRO(name, x; y)
enum e *later(void)
{
    return a_more(0);
}'
sed -i 's/return b(x)/return later() != 0/' "$tree/lib/codec/a.c"
breaks "a call after what a lexer may stumble over" "circle of units: lib/codec/a, lib/codec/b
    lib/codec/a -> lib/codec/b: lib/codec/a.c:4 uses later of lib/codec/b.c
    lib/codec/b -> lib/codec/a: lib/codec/b.c:11 uses a_more of lib/codec/a.c"

calls 'int b(int x)
{
    return c_value + x;
}'
put lib/codec/c.c <<'END'
int c_value = 1, (*c_call)(int) = a_more;
END
breaks "an object, and a third unit" "circle of units: lib/codec/a, lib/codec/b, lib/codec/c
    lib/codec/a -> lib/codec/b: lib/codec/a.c:4 uses b of lib/codec/b.c
    lib/codec/b -> lib/codec/c: lib/codec/b.c:3 uses c_value of lib/codec/c.c
    lib/codec/c -> lib/codec/a: lib/codec/c.c:1 uses a_more of lib/codec/a.c"

# One way by an include, the other way by a call.
fresh
echo 'int b(int);' | put lib/codec/a.h
put lib/codec/a.c <<'END'
#include "codec/a.h"
int a(int x)
{
    return b(x);
}
END
put lib/codec/b.c <<'END'
#include "codec/a.h"
int b(int x)
{
    return x;
}
END
breaks "an include one way, a call the other way" "circle of units: lib/codec/a, lib/codec/b
    lib/codec/a -> lib/codec/b: lib/codec/a.c:4 uses b of lib/codec/b.c
    lib/codec/b -> lib/codec/a: lib/codec/b.c:1 includes lib/codec/a.h"

echo '#include "codec/c.h"' | put lib/codec/b.c
echo 'int b(int x);' >>"$tree/lib/codec/b.c"
echo '#include "codec/a.h"' | put lib/codec/c.h
sed -i 's/return b/return c/' "$tree/lib/codec/a.c"
printf 'int c(int x)\n{\n    return b(x);\n}\n' | put lib/codec/d.c
printf '#include "codec/c.h"\nint b(int x)\n{\n    return x;\n}\n' | put lib/codec/b.c
breaks "calls there, includes back, by way of others" \
    "circle of units: lib/codec/a, lib/codec/b, lib/codec/c, lib/codec/d
    lib/codec/a -> lib/codec/d: lib/codec/a.c:4 uses c of lib/codec/d.c
    lib/codec/b -> lib/codec/c: lib/codec/b.c:1 includes lib/codec/c.h
    lib/codec/c -> lib/codec/a: lib/codec/c.h:1 includes lib/codec/a.h
    lib/codec/d -> lib/codec/b: lib/codec/d.c:3 uses b of lib/codec/b.c"

# ---- one header, several source files

parts() { # a.c calls b of a_part.c, which includes a.h
    fresh
    echo 'int b(int);' | put lib/codec/a.h
    printf '#include "codec/a.h"\nint a(int x)\n{\n    return b(x);\n}\n' | put lib/codec/a.c
    printf '#include "codec/a.h"\nint b(int x)\n{\n    return x;\n}\n' | put lib/codec/a_part.c
}
apart="circle of units: lib/codec/a, lib/codec/a_part
    lib/codec/a -> lib/codec/a_part: lib/codec/a.c:4 uses b of lib/codec/a_part.c
    lib/codec/a_part -> lib/codec/a: lib/codec/a_part.c:1 includes lib/codec/a.h"
parts
keeps "two source files of one header"

parts
echo '#include "codec/a_part.h"' | put lib/codec/a.c
printf 'int a(int x)\n{\n    (void)x;\n    return b(x);\n}\n' >>"$tree/lib/codec/a.c"
echo '#include "codec/a.h"' | put lib/codec/a_part.h
breaks "a part with a header of its own" "circle of units: lib/codec/a, lib/codec/a_part
    lib/codec/a -> lib/codec/a_part: lib/codec/a.c:1 includes lib/codec/a_part.h
    lib/codec/a_part -> lib/codec/a: lib/codec/a_part.c:1 includes lib/codec/a.h"

parts
echo 'int main(void) { return a(0); }' >>"$tree/lib/codec/a_part.c"
breaks "a program is no part" "$apart
circle of rooms: lib/codec, lib/codec/a_part.c
    lib/codec -> lib/codec/a_part.c: lib/codec/a.c:4 uses b of lib/codec/a_part.c
    lib/codec/a_part.c -> lib/codec: lib/codec/a_part.c:1 includes lib/codec/a.h"

parts
echo '#include "codec/b.h"' | put lib/codec/a_part.c
printf 'int b(int x)\n{\n    return x;\n}\n' >>"$tree/lib/codec/a_part.c"
echo '#include "codec/a.h"' | put lib/codec/b.h
breaks "a file that does not include the header is no part" \
    "circle of units: lib/codec/a, lib/codec/a_part, lib/codec/b
    lib/codec/a -> lib/codec/a_part: lib/codec/a.c:4 uses b of lib/codec/a_part.c
    lib/codec/a_part -> lib/codec/b: lib/codec/a_part.c:1 includes lib/codec/b.h
    lib/codec/b -> lib/codec/a: lib/codec/b.h:1 includes lib/codec/a.h"

parts
sed -i 's/return x/return a(x)/' "$tree/lib/codec/a_part.c"
breaks "calls inside a unit" "circle inside a unit: lib/codec/a, lib/codec/a_part
    lib/codec/a -> lib/codec/a_part: lib/codec/a.c:4 uses b of lib/codec/a_part.c
    lib/codec/a_part -> lib/codec/a: lib/codec/a_part.c:4 uses a of lib/codec/a.c"

# A part of the unit uses another unit, which includes its header.
parts
sed -i 's/return x/return c(x)/' "$tree/lib/codec/a_part.c"
printf '#include "codec/a.h"\nint c(int x)\n{\n    return x;\n}\n' | put lib/codec/c.c
breaks "a unit of several files in a circle" "circle of units: lib/codec/a, lib/codec/c
    lib/codec/a -> lib/codec/c: lib/codec/a_part.c:4 uses c of lib/codec/c.c
    lib/codec/c -> lib/codec/a: lib/codec/c.c:1 includes lib/codec/a.h"

# ---- Python

package() { # python/pici, in which a imports nothing
    fresh
    mkdir -p "$tree/python/pici/torch" "$tree/python/tests"
    for file in pici/__init__ pici/a pici/torch/__init__ tests/test_a; do echo | put "python/$file.py"; done
    echo | put python/pici/_ext.c
}
package
echo 'from .b import f' | put python/pici/__init__.py
printf 'import torch\nimport numpy.a\nfrom . import _ext\n' | put python/pici/a.py
printf 'import pici.a\nfrom pici import b\n' | put python/tests/test_a.py
printf 'from . import a\ndef f():\n    from .a import pici\n' | put python/pici/b.py
printf 'from ..a import b\n' | put python/pici/torch/__init__.py
keeps "imports one way, of torch itself too"

echo 'x = "from . import b" # import pici' >>"$tree/python/pici/a.py"
printf 'def g():\n    from .b import f\n' >>"$tree/python/pici/a.py"
breaks "modules that import each other" "circle of units: python/pici/a, python/pici/b
    python/pici/a -> python/pici/b: python/pici/a.py:6 imports python/pici/b.py
    python/pici/b -> python/pici/a: python/pici/b.py:1 imports python/pici/a.py"

package
echo 'from pici import torch' | put python/pici/a.py
echo 'from .. import a' | put python/pici/torch/_b.py
echo 'from . import _b' | put python/pici/torch/__init__.py
breaks "packages that import each other" \
    "circle of units: python/pici/a, python/pici/torch/__init__, python/pici/torch/_b
    python/pici/a -> python/pici/torch/__init__: python/pici/a.py:1 imports python/pici/torch/__init__.py
    python/pici/torch/__init__ -> python/pici/torch/_b: python/pici/torch/__init__.py:1 imports python/pici/torch/_b.py
    python/pici/torch/_b -> python/pici/a: python/pici/torch/_b.py:1 imports python/pici/a.py
circle of rooms: python/pici, python/pici/torch
    python/pici -> python/pici/torch: python/pici/a.py:1 imports python/pici/torch/__init__.py
    python/pici/torch -> python/pici: python/pici/torch/_b.py:1 imports python/pici/a.py"

# ---- templates and rooms

# A template, whose table has the name that a macro of the including file gives it.
fresh
put lib/cpu/table.inc <<'END'
const struct isa ISA_TABLE = {1};
END
put lib/cpu/wide.c <<'END'
#define ISA_TABLE isa_wide
#include "cpu/table.inc"
int wide(void)
{
    return choose();
}
END
put lib/cpu/choose.c <<'END'
int choose(void)
{
    return isa_wide.ok;
}
END
breaks "an object that a template defines" "circle of units: lib/cpu/choose, lib/cpu/wide
    lib/cpu/choose -> lib/cpu/wide: lib/cpu/choose.c:3 uses isa_wide of lib/cpu/wide.c
    lib/cpu/wide -> lib/cpu/choose: lib/cpu/wide.c:5 uses choose of lib/cpu/choose.c"

# Rooms whose units form no circle: codec/a calls file/b, file/c includes codec/d.
fresh
put lib/codec/a.c <<'END'
int a(void)
{
    return b();
}
END
put lib/file/b.c <<'END'
int b(void)
{
    return 0;
}
END
echo '#include "codec/d.h"' | put lib/file/c.c
echo | put lib/codec/d.h
breaks "rooms" "circle of rooms: lib/codec, lib/file
    lib/codec -> lib/file: lib/codec/a.c:3 uses b of lib/file/b.c
    lib/file -> lib/codec: lib/file/c.c:1 includes lib/codec/d.h"

# ---- functions that could be static

fresh
echo 'int a(int);' | put lib/codec/a.h
printf '#include "codec/a.h"\nint a(int x)\n{\n    return x;\n}\nint more(int x)\n{\n    return a(x);\n}\n' |
    put lib/codec/a.c
breaks "a function that a header declares for nobody" \
    "lib/codec/a.c:2: a can be static: nobody else uses it; lib/codec/a.h declares it"

printf '    static inline int twice(int x)\n{\n    return a(2 * x);\n}\n' >>"$tree/lib/codec/a.h"
keeps "one that the header uses"

echo 'int a(int);' | put lib/codec/a.h
mkdir -p "$tree/tests/unit"
printf 'int test(void)\n{\n    return a(1);\n}\n' | put tests/unit/a.c
keeps "one that a test uses"

rm "$tree/tests/unit/a.c"
mkdir -p "$tree/include/pici"
mv "$tree/lib/codec/a.h" "$tree/include/pici/a.h"
sed -i 's,codec/a,pici/a,' "$tree/lib/codec/a.c"
keeps "a public one"

# ---- the table

options=
table() { # ROW...: of the page
    mkdir -p "$tree/docs"
    {
        printf '# Page\n\n| `lib/codec/*` | `lib/file/*` |\n\n## Who may include whom\n\n'
        printf '| files | may include | because |\n|---|---|---|\n'
        printf '%s\n' "$@"
        printf '\n## More\n\n| `lib/codec/*` | `lib/file/*` |\n'
    } >"$tree/docs/architecture.md"
}
page=docs/architecture.md

fresh
echo '#include "file/file.h"' | put lib/codec/a.c
echo | put lib/file/file.h
table '| `lib/codec/*` | nothing of ours | |' '| `lib/file/*` | `include/pici/*` | a reason, and `code` |'
breaks "an include that no row allows" "lib/codec/a.c:1: may not include lib/file/file.h"

table '| `lib/codec/*` | `lib/{file,cpu}/file.{h,c}` | |' '| `lib/file/*` | nothing of ours | |'
breaks "what is allowed without need" "$page:9: nobody needs lib/file/file.c
$page:9: nobody needs lib/cpu/file.h
$page:9: nobody needs lib/cpu/file.c"

table '| `lib/{codec,file}/*` | `lib/file/*.h` | |'
keeps "several folders"

table '| `lib/codec/a.*` | nothing of ours | |' '| `lib/*/*` | `lib/file/*` | |'
breaks "the first row that fits" "lib/codec/a.c:1: may not include lib/file/file.h
$page:10: nobody needs lib/file/*"

table '| `lib/codec/*`, `lib/cpu/*` | `lib/file/*.h` | |' '| `lib/file/*` | nothing of ours | |'
breaks "a row without a file" "$page:9: no file is of lib/cpu/*"

table '| `lib/codec/*` | headers of `lib/file/*` | |' '| the rest of `lib/*/*` | nothing of ours | |' '| `lib/*` | |'
breaks "prose instead of patterns" "$page:9: files and what they may include are patterns in \`...\` with commas
$page:10: files and what they may include are patterns in \`...\` with commas
$page:11: files and what they may include are patterns in \`...\` with commas
$page:11: no file is of lib/*"

table '| `lib/codec/*` | `lib/file/*` | |'
breaks "a folder without a row" "lib/file/file.h: no row of $page covers this file"

table '| `lib/*/*` | nothing of ours | |'
echo '#include "none.h"' | put lib/codec/a.c
breaks "an include of nothing" "lib/codec/a.c:1: none.h is not a file of ours"

echo '#include "codec/a.h"' | put lib/codec/a_part.c
echo '#include "codec/a.h"' | put lib/codec/a.c
echo | put lib/codec/a.h
keeps "headers of one's own unit"

mv "$tree/lib/codec/a_part.c" "$tree/lib/codec/b.c"
breaks "those of another" "lib/codec/b.c:1: may not include lib/codec/a.h"

echo "$passed passed"
