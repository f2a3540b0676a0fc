# SPDX-License-Identifier: BSD-3-Clause
"""The page that tries a block, in a browser, with the files that site.js left: site_page.py PAGES TMP."""
import pathlib
import sys
import time

sys.path.insert(0, "site")
import browser  # noqa: E402

pages, tmp = map(pathlib.Path, sys.argv[1:])


def until(page, expression):
    """Waits, at most half a minute, for a JavaScript expression to hold."""
    for _ in range(300):
        if page.value(expression):
            return
        time.sleep(0.1)
    raise SystemExit(f"not so: {expression}; the page has: {page.value('document.body.innerText')}")


def says(text):
    return f"document.body.innerText.includes({text!r})"


path = browser.found()
if not path:
    sys.exit(77)
html = pages / "try.html"
text = (pages / "try.md").read_text(encoding="utf-8")
html.write_text("<!doctype html><meta charset='utf-8'>" + text, encoding="utf-8")
(tmp / "bad.npy").write_bytes(b"not an array")
with browser.Browser(path) as page:
    page.size(420, 900)
    page.open(html.as_uri())
    until(page, says("262,144 elements of f32"))
    until(page, "document.querySelectorAll('.pici-tiles').length === 1")
    page.choose_file("#pici-file", tmp / "a.npy")
    until(page, says("a.npy: 70,001 elements of f32, [70001]"))
    page.choose_file("#pici-file", tmp / "two.safetensors")
    until(page, says("a: 4 elements of f32, [2, 2]"))
    until(page, "!document.getElementById('pici-tensor').hidden")
    page.value("t = document.getElementById('pici-tensor'); t.value = 1; t.dispatchEvent(new Event('change'))")
    until(page, says("b: 4 elements of bf16, [4]"))
    page.choose_file("#pici-file", tmp / "bad.npy")
    until(page, says("neither a .npy nor a .safetensors file"))
    page.value("e = document.getElementById('pici-example'); e.selectedIndex = 3; e.dispatchEvent(new Event('change'))")
    until(page, says("weights, no zeros: 262,144"))
    sent = [e for e in page.events if e.get("method") == "Network.requestWillBeSent"]
    sent = [e["params"]["request"]["url"] for e in sent if not e["params"]["request"]["url"].startswith("file:")]
    if sent or page.errors():
        raise SystemExit(f"requests: {sent}; errors: {page.errors()}")
print("the page, in a browser: examples, files, an error; nothing sent")
