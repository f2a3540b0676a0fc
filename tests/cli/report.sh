#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# picitool report, and inspect --compare: pages without references to other files, whatever the names of tensors;
# correct sizes.
. tests/cli/common

numbers 300 >n1200
{ safetensors '{"<script>alert(1)</script>":{"dtype":"F32","shape":[10,30],"data_offsets":[0,1200]},
"a \"b\" &amp; <!-- \u001b[31m é":{"dtype":"U8","shape":[3],"data_offsets":[1200,1203]},
"</svg></table><img src=x onerror=alert(2)>":{"dtype":"I64","shape":[0,7],"data_offsets":[1203,1203]}}'
    cat n1200; printf 'a\0b'; } >'m<b>.safetensors'
expect 0 report "$tool" report 'm<b>.safetensors'
mv 'm<b>.safetensors.html' m.html
"$tool" compress 'm<b>.safetensors'
expect 0 "report of a .pici file" "$tool" report -o p.html 'm<b>.safetensors.pici'
says "report of a .pici file" 'stored in this file' p.html
"$tool" report --type safetensors - <'m<b>.safetensors' >stream.html 2>"$err"
judge 0 "report of a stream" $?
expect 0 "report of raw elements" "$tool" report --dtype f32 -o raw.html n1200
expect 0 "report --tensor" "$tool" report -n "$(printf 'a "b" &amp; <!-- \033[31m é')" -o one.html 'm<b>.safetensors'
safetensors '{}' >empty.safetensors
expect 0 "report of no tensors" "$tool" report -o empty.html empty.safetensors
expect 1 "report of what is none" "$tool" report -o bad.html --type npy n1200
absent "report of what is none" bad.html
if command -v python3 >/dev/null 2>&1; then
    python3 - >"$out" 2>&1 <<'END'
import html.parser
void = {"meta", "br", "img", "link"}
names = ["<script>alert(1)</script>", 'a "b" &amp; <!-- \\x1b[31m é', "</svg></table><img src=x onerror=alert(2)>"]
class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.tags, self.cells, self.text = [], set(), [], ""
    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        for key, value in attrs:
            assert key not in ("src", "href", "srcset", "data", "action") and not key.startswith("on"), (tag, key)
            assert "://" not in (value or "") or (tag, key) == ("svg", "xmlns"), (tag, key, value)
        if tag == "td" and ("class", "name") in attrs:
            self.cells.append("")
        if tag not in void:
            self.open.append(tag)
    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)
    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()
    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] == "td" and self.cells:
            self.cells[-1] += data if len(self.cells[-1]) < 60 else ""
for name in "m", "p", "stream", "raw", "one", "empty":
    text = open(name + ".html", encoding="utf-8").read()
    page = Page()
    page.feed(text)
    page.close()
    assert not page.open and not page.tags & {"script", "img", "link", "iframe", "object", "b"}, (name, page.tags)
    assert "url(" not in text and "@import" not in text
    assert {"svg", "rect"} <= page.tags
    if name in "mp":
        assert all(n in page.text for n in names) and len(page.cells) == 3, name
        assert "m<b>.safetensors" in page.text
END
    [ $? = 0 ] && pass || fail "the pages: $(cat "$out")"
else
    skip "pages read by another program: no python3"
fi
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || :)
if [ -n "$browser" ]; then
    HOME=$tmp timeout 120 "$browser" --headless --no-sandbox --disable-gpu --dump-dom "file://$PWD/m.html" \
        >dom.html 2>"$err" || fail "the browser: $(tail -n 3 "$err")"
    says "in a browser" '&lt;script&gt;alert\(1\)&lt;/script&gt;' dom.html
    grep -qi '<script\|<img\|onerror=alert(2)>"' dom.html && fail "in a browser: a name became an element" || pass
    [ "$(grep -o '<td class="name">' dom.html | wc -l)" = 3 ] && pass || fail "in a browser: not three tensors"
else
    skip "the report in a browser: no chromium"
fi

# ---- inspect --compare
{ zeros 1000000; cat n1200; zeros 3000000; cat n1200 n1200; } >sparse
if "$tool" inspect --compare --dtype f32 --json sparse >c.json 2>"$err"; then
    pass
    expect 0 "--compare=19" "$tool" inspect --compare=19 --dtype f32 sparse
    says "--compare=19" '^  zstd -19 +[0-9.]+ [KM]?i?B +[0-9.]+% +[0-9.]+ GB/s +[0-9.]+ GB/s$' "$out"
    says "--compare=19" '^  pici ' "$out"
    "$tool" block encode --dtype f32 sparse sparse.blk # of one chunk
    expect 0 "--compare of a block" "$tool" inspect --compare sparse.blk
    expect 0 "--compare of nothing" "$tool" inspect --compare empty.safetensors
    if command -v python3 >/dev/null 2>&1; then
        python3 - "$(wc -c <sparse.blk)" >"$out" 2>&1 <<'END'
import json, sys
j = json.load(open("c.json"))
for part in j["tensors"][0], j["total"]:
    c = part["compare"]
    assert c["zstd_level"] == 3 and c["pici"]["bytes"] == part["blocks"]["auto"] == int(sys.argv[1])
    assert 100 < c["zstd"]["bytes"] < 100000
    assert all(c[k][s] > 0 for k in ("pici", "zstd") for s in ("compress_gb_per_second", "decompress_gb_per_second"))
END
        [ $? = 0 ] && pass || fail "--compare --json: $(cat "$out")"
    fi
    if command -v zstd >/dev/null 2>&1; then # the same library, of a file that is one chunk: a frame, and its checksum
        head -c 4000000 sparse >chunk
        "$tool" inspect --compare --dtype f32 --json chunk |
            sed -n '/"total"/,$s/.*"bytes": \([0-9]*\),*/\1/p' | tail -n 1 >ours
        zstd -q -3 --no-check -c chunk | wc -c >theirs
        [ $(($(cat ours) - $(cat theirs))) -lt 64 ] && [ $(($(cat theirs) - $(cat ours))) -lt 64 ] && pass ||
            fail "zstd -3 made $(cat theirs) bytes, --compare says $(cat ours)"
    fi
elif [ "${ZSTD:-}" = 1 ]; then
    fail "built with zstd: $(cat "$err")"
else
    says "a build without zstd says so" zstd "$err"
    skip "inspect --compare: a build without zstd"
fi

clean "after all that"
finish
