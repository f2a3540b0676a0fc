#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Pictures of tensors show their matrices: the pixels of --heatmap, the cells of its SVG, the map on a terminal, and a
# report that fits in a narrow window.
. tests/cli/common

if ! command -v python3 >/dev/null 2>&1; then
    skip "pictures: no python3, which draws the tensors and reads the pictures"
    finish
fi

# ---- the tensors: nonzeros at known places
cat >tensors.py <<'END'
import struct
def save(name, shape, ones, fortran=False):
    n = 1
    for d in shape:
        n *= d
    data = bytearray(4 * n)
    for at in ones:
        i, strides = 0, []
        step = 1
        for d in (shape if fortran else shape[::-1]):
            strides.append(step)
            step *= d
        strides = strides if fortran else strides[::-1]
        for k, s in zip(at, strides):
            i += k * s
        data[4 * i:4 * i + 4] = struct.pack("<f", 1)
    head = "{'descr': '<f4', 'fortran_order': %s, 'shape': (%s,), }" % (fortran, ", ".join(map(str, shape)))
    head = head.ljust(117) + "\n"
    open(name, "wb").write(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + data)
END
cat >make.py <<'END'
import os
from tensors import save
diagonal = [(i, i) for i in range(64)]
lone = [(0, 0), (3, 499), (150, 77), (299, 0), (298, 498), (17, 250)]
for order in "CF":
    os.makedirs(order)
    save(order + "/diagonal.npy", (64, 64), diagonal, order == "F")
    save(order + "/lone.npy", (300, 500), lone, order == "F")
save("folded.npy", (4, 8, 16), [(1, 2, 3), (3, 7, 15)])
save("flat.npy", (1000,), [(0,), (255,), (256,), (999,)])
save("row.npy", (1, 70000), [(0, 69999)])
save("low.npy", (2, 40000), [(1, 39999)])
save("tall.npy", (40000, 3), [(39999, 2)])
END
python3 make.py || fail "no tensors"

# ---- PNG and SVG: the SVG says where the cells are, the PNG has their pixels
cat >pictures.py <<'END'
import re, struct, xml.dom.minidom, zlib
def png(name):
    data = open(name, "rb").read()
    at, pixels, chunks = 8, b"", 0
    while at < len(data):
        n, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + n]
        assert zlib.crc32(kind + body) == struct.unpack(">I", data[at + 8 + n:at + 12 + n])[0]
        if kind == b"IHDR":
            width, height = struct.unpack(">II", body[:8])
        if kind == b"PLTE":
            palette = [tuple(body[i:i + 3]) for i in range(0, n, 3)]
        if kind == b"IDAT":
            pixels += body
        at += 12 + n
    raw = zlib.decompress(pixels)
    assert len(raw) == height * (width + 1)
    rows = [raw[y * (width + 1) + 1:(y + 1) * (width + 1)] for y in range(height)]
    return [[palette[i] for i in row] for row in rows], len(pixels), width * height
class Svg:
    def __init__(self, name):
        page = xml.dom.minidom.parse(name)
        self.root = page.documentElement
        self.text = [(t.firstChild.data, t.getAttribute("text-anchor")) for t in page.getElementsByTagName("text")]
        self.cells, self.at = {}, None
        for g in page.getElementsByTagName("g"):
            if g.hasAttribute("transform"):
                self.at = [int(v) for v in re.findall(r"\d+", g.getAttribute("transform"))]
                for p in g.getElementsByTagName("path"):
                    for x, y, run in re.findall(r"M(\d+) (\d+)h(\d+)v1", p.getAttribute("d")):
                        for k in range(int(run)):
                            assert (int(y), int(x) + k) not in self.cells
                            self.cells[int(y), int(x) + k] = p.getAttribute("fill")
        self.high = 1 + max(y for y, x in self.cells)
        self.wide = 1 + max(x for y, x in self.cells)
    def says(self, text):
        assert any(t == text for t, _ in self.text), (text, self.text)
EMPTY = "#000004"
def check(name, high, wide, ones, per=(1, 1)):
    """Nonzeros, and nothing else, differ from empty cells; and the PNG has the same cells."""
    svg = Svg(name + ".svg")
    assert (svg.high, svg.wide) == (high, wide), (name, svg.high, svg.wide)
    cells = {(y // per[0], x // per[1]) for y, x in ones}
    seen = {at for at, colour in svg.cells.items() if colour != EMPTY}
    assert seen == cells, (name, seen ^ cells)
    rows, packed, pixels = png(name + ".png")
    x, y, cell_x, cell_y = svg.at
    assert cell_x >= 2 and cell_y >= 2
    for (r, c), colour in svg.cells.items():
        for dx, dy in (0, 0), (cell_x - 1, cell_y - 1):
            got = rows[y + r * cell_y + dy][x + c * cell_x + dx]
            assert (got == (0, 0, 4)) == (colour == EMPTY), (name, r, c, got)
            # not only another colour, but one that can be told from black
            assert got == (0, 0, 4) or sum(got) > 120, got
    ratio = wide * cell_x / (high * cell_y)
    assert 1 / 9 < ratio < 9, (name, ratio)
    return svg, packed, pixels
END
cat >check.py <<'END'
import sys
from pictures import *
diagonal = [(i, i) for i in range(64)]
lone = [(0, 0), (3, 499), (150, 77), (299, 0), (298, 498), (17, 250)]
for order in "CF":
    svg, packed, pixels = check(order + "/diagonal", 64, 64, diagonal)
    assert svg.at[2] == svg.at[3]
    for i in "0", "10", "60":
        assert {(i, "middle"), (i, "end")} <= set(svg.text), (i, svg.text) # along both axes
    assert sys.argv[1] != "1" or packed * 20 < pixels, (packed, pixels) # of a build with zlib
    svg, _, _ = check(order + "/lone", 150, 250, lone, (2, 2))
    svg.says("a cell: 2 x 2 elements")
    svg.says("200"), svg.says("400")
a, b = open("C/lone.png", "rb").read(), open("F/lone.png", "rb").read()
assert a == b # the same matrix, whatever its order in memory
svg, _, _ = check("folded", 32, 16, [(1 * 8 + 2, 3), (31, 15)])
svg.says("rows [4, 8], columns [16]")
svg, _, _ = check("flat", 4, 256, [(0, 0), (0, 255), (1, 0), (3, 999 - 768)])
svg.says("wrapped, 256 elements a row")
assert max(x for y, x in svg.cells if y == 3) == 999 - 768 # no cell beyond the end
svg, _, _ = check("row", 69, 256, [(69999 // 1024, 69999 % 1024)], (1, 4))
svg.says("wrapped, 1024 elements a row")
check("low", 2, 255, [(1, 39999)], (1, 157))
check("tall", 255, 3, [(39999, 2)], (157, 1))
END
for f in C/diagonal F/diagonal C/lone F/lone folded flat row low tall; do
    (cd "$(dirname $f)" && n=$(basename $f) && "$tool" inspect --png "$n.png" --svg "$n.svg" "$n.npy") >"$out" 2>"$err"
    judge 0 "inspect $f.npy" $?
done
python3 check.py "${ZLIB:-}" >"$out" 2>&1 &&
    pass || fail "pictures: $(cat "$out")"

# of a .pici file the same
"$tool" compress -o lone.npy.pici F/lone.npy
expect 0 "picture of a .pici file" "$tool" inspect --svg pici.svg lone.npy.pici
grep '^<path' F/lone.svg >one
grep '^<path' pici.svg >other
same "picture of a .pici file" one other

# many tensors: fewer cells each, and still each nonzero is seen
python3 - <<'END'
import json, struct
head, at = {}, 0
for i in range(300):
    head["t%d" % i] = {"dtype": "U8", "shape": [70, 90], "data_offsets": [at, at + 6300]}
    at += 6300
text = json.dumps(head).encode()
with open("many.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text)
    for i in range(300):
        data = bytearray(6300)
        data[i * 21] = 1
        f.write(data)
END
expect 0 "a picture of 300 tensors" "$tool" inspect --png many.png --svg many.svg many.safetensors
python3 - >"$out" 2>&1 <<'END'
import re
text = open("many.svg").read()
groups = re.findall(r'<g transform.*?</g>', text, re.S)
assert len(groups) == 300, len(groups)
assert all(g.count("<path") == 2 for g in groups)
END
[ $? = 0 ] && pass || fail "300 tensors: $(cat "$out")"

# ---- the map of a matrix, without colours
LC_ALL=C "$tool" inspect C/diagonal.npy >"$out" 2>"$err"
judge 0 "the map" $?
says "the map: columns" '^     0 +63$' "$out"
says "the map: rows" '^   0 @@\.+$|^   0 [@#%*+=-]+\.+$' "$out"
says "the map" 'matrix of 64 rows, down, and 64 columns, across$' "$out"
awk '/^ +[0-9]* *[.:=+*%#@-]+$/ && length($0) > 40 { sub(/^ *[0-9]* /, ""); if (match($0, /[^.]/) < last) bad = 1
    last = match($0, /[^.]/); n++ } END { exit !(n > 8 && !bad) }' "$out" && pass ||
    fail "the map: not a diagonal: $(cat "$out")"
"$tool" inspect folded.npy >"$out"
says "the map of three dimensions" 'matrix of 32 rows.*: rows \[4, 8\], columns \[16\]$' "$out"

# ---- the report in a window of 420 pixels
expect 0 "report" "$tool" report many.safetensors
cat >narrow.py <<'END'
import html.parser, re
class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.svgs, self.cells, self.figures, self.table, self.view = [], [], 0, "", ""
    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        if tag == "svg":
            self.svgs.append(int(a["width"]))
        if tag == "table":
            self.table = a.get("class", "")
        if tag == "td" and self.table == "tensors":
            self.cells.append(a)
        if tag == "meta" and a.get("name") == "viewport":
            self.view = a["content"]
        self.figures += tag == "figure"
        for width in re.findall(r"width:([0-9.]+)(px|em|rem)", a.get("style") or ""):
            raise AssertionError("a fixed width: %s" % (width,))
page = Page()
text = open("many.safetensors.html").read()
page.feed(text)
assert "width=device-width" in page.view
assert page.figures == 300 and len(page.svgs) == 301
assert max(page.svgs) <= 420 - 2 * 16, max(page.svgs) # what the window leaves beside the margins
style = text[text.index("<style>"):text.index("</style>")]
narrow = style[style.index("@media(max-width:64em)"):]
assert "attr(data-column)" in narrow and "display:flex" in narrow and "svg{display:block;max-width:100%" in style
for width in re.findall(r"min-width:([0-9.]+)rem", style):
    assert float(width) * 16 <= 240
for cell in page.cells: # each says which column it is, as a list has no head
    assert "data-column" in cell or cell.get("class") in ("name", "bars"), cell
END
python3 narrow.py >"$out" 2>&1 && pass || fail "the report in a narrow window: $(cat "$out")"

# What a browser says: a frame of each width tells how wide its page is.
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || :)
if [ -n "$browser" ]; then
    cat >script <<'END'
<script>
const fits = e => e.scrollWidth <= e.clientWidth ? " fits" : " scrolls"
parent.postMessage("page" + innerWidth + fits(document.documentElement) + ", table" + innerWidth +
    fits(document.querySelector(".wide")), "*")
</script>
END
    sed -e 's/<meta http-equiv[^>]*>//' -e '/<\/figure>/r script' -e '/<\/figure>/q' many.safetensors.html >framed.html
    cat >frames.html <<'END'
<p id="seen"></p><script>onmessage = e => seen.textContent += " " + e.data</script>
<iframe src="framed.html" width="420" height="800" frameborder="0"></iframe>
<iframe src="framed.html" width="320" height="800" frameborder="0"></iframe>
<iframe src="framed.html" width="1200" height="800" frameborder="0"></iframe>
END
    HOME=$tmp timeout 120 "$browser" --headless --no-sandbox --disable-gpu --virtual-time-budget=5000 --dump-dom \
        "file://$PWD/frames.html" >dom.html 2>"$err" || fail "the browser: $(tail -n 3 "$err")"
    for width in 320 420 1200; do
        says "in a window of $width pixels" "page$width fits, table$width fits" dom.html
    done
else
    skip "the report in a narrow window of a browser: no chromium"
fi

clean "after all that"
finish
