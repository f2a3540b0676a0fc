#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Write the sources of the site for MkDocs.

    site/prepare.py [--picitool PICITOOL] [--wasm CODEC.WASM] [--html HTML/VERSION] OUT

OUT.yml becomes the configuration: mkdocs.yml with a page for each file of OUT. With --html, HTML/versions.json lists
the versions in HTML, for the menu of versions, and HTML/index.html leads to this one.

OUT gets README.md, docs/ and formats/ as they lie in the tree, so that links between pages hold, and files that these
link to. docs/reference/ is made: the C headers, the Python package, the help of picitool. try.md tries a block. Without
--picitool there is no help; without --wasm, try.md shows a message.
"""
import argparse
import base64
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import docstrings
import headers
import layouts

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
PAGES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md"]
FOLDERS = ["docs", "formats"]
LINK = re.compile(r"(!?\[(?:[^][]|\[[^]]*\])*\])\(([^)\s]+)\)")
SHOWN = {".svg", ".png", ".md"}  # the rest of what pages link to is shown as text


class Site:
    def __init__(self, out):
        self.out = out
        self.files = set()

    def write(self, path, text):
        path = self.out / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def target(self, page, link):
        """Where a link of a page leads on the site; None: to a folder, which the site does not have."""
        if re.match(r"[a-z]+:|#", link):
            return link
        path, _, anchor = link.partition("#")
        file = (ROOT / page).parent / path
        if file.is_dir():
            return None
        if not file.is_file():
            raise SystemExit(f"{page}: there is no {path}")
        relative = pathlib.Path(os.path.normpath(file)).relative_to(ROOT)
        if file.suffix in SHOWN:
            if file.suffix != ".md":
                self.files.add((relative, relative))
            elif str(relative) not in PAGES and relative.parts[0] not in FOLDERS:
                return None
            return link
        shown = pathlib.Path("source") / (str(relative) + ".txt")
        self.files.add((relative, shown))
        return "../" * (len(pathlib.Path(page).parts) - 1) + str(shown)

    def text(self, page, text):
        def link(m):
            to = self.target(page, m[2])
            return m[1][1:-1] if to is None else f"{m[1]}({to})"

        text = re.sub(r"\A<!-- .*? -->\n", "", text)  # MkDocs takes a title only from the first line
        parts = re.split(r"(^```.*?^```$)", text, flags=re.S | re.M)
        for i in range(0, len(parts), 2):
            parts[i] = LINK.sub(link, parts[i])
            # Python's Markdown begins a list only after an empty line, and nests one only by four spaces.
            parts[i] = re.sub(r"^ {2,3}(?=[-*] )", "    ", parts[i], flags=re.M)
            parts[i] = re.sub(r"^(?![-*|#]|\d+\. |\s|$)(.*\S.*)\n(?=[-*] |1\. )", r"\1\n\n", parts[i], flags=re.M)
        return "".join(parts)


def verbs(picitool):
    """The help of picitool, and of each of its verbs."""

    def told(*args):
        run = subprocess.run([picitool, *args, "--help"], capture_output=True, text=True, check=True)
        return f"```text\n{run.stdout.rstrip()}\n```\n"

    first = told()
    names = re.findall(r"^  ([a-z]+(?: [a-z]+)?)  +\w", first, re.M)
    if len(names) < 10:
        raise SystemExit("picitool --help lists hardly a verb")
    out = ["# picitool", "", "The output of `picitool --help` for each verb.", "", first]
    for name in names:
        out += [f"## {name}", "", told(*name.split())]
    return "\n".join(out)


# The tabs of the site: a name, and the folder or the pages in it.
TABS = [
    ("All pages", "docs/index.md"),
    ("Tutorials", "docs/tutorials"),
    ("How-to", "docs/how-to"),
    ("Reference", "docs/reference"),
    ("Explanation", ["docs/explanation", "docs/benchmarks.md"]),
    ("Formats", "formats"),
    ("Try a block", "try.md"),
    ("Developers", ["CONTRIBUTING.md", "docs/architecture.md", "docs/developers", "RELEASING.md", "SECURITY.md"]),
    ("News", "CHANGELOG.md"),
]


def below(out, folder, order):
    """The pages of a folder, those that docs/index.md names first in its order, then folders in it."""

    def key(path):
        page = path.relative_to(out).as_posix()
        return (path.name != "index.md", order.get(page, len(order)), page)

    entries = [p.relative_to(out).as_posix() for p in sorted(folder.glob("*.md"), key=key)]
    for inner in sorted(p for p in folder.iterdir() if p.is_dir()):
        pages = below(out, inner, order)
        entries += [{NAMES.get(inner.name, inner.name.capitalize()): pages}] if pages else []
    return entries


NAMES = {"c": "C"}


def navigation(out):
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    linked = ["docs/" + m[2].partition("#")[0] for m in LINK.finditer(index)]
    order = {page: i for i, page in reversed(list(enumerate(linked)))}
    found = [{"Home": "README.md"}]
    for name, places in TABS:
        if isinstance(places, str) and places.endswith(".md"):
            found.append({name: places})
            continue
        entries = []
        for place in [places] if isinstance(places, str) else places:
            if (out / place).is_dir():
                entries += below(out, out / place, order)
            elif (out / place).is_file():
                entries.append(place)
        found.append({name: entries})
    return found


def versions(html):
    """A menu of what lies in the folder, and the way to this version."""
    folder = html.parent
    names = {p.name for p in folder.iterdir() if p.is_dir()} if folder.is_dir() else set()
    names = sorted(names | {html.name}, reverse=True)
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"version": n, "title": n, "aliases": []} for n in names]
    (folder / "versions.json").write_text(json.dumps(rows) + "\n", encoding="utf-8")
    refresh = f'<!doctype html><meta http-equiv="refresh" content="0; url={html.name}/index.html">\n'
    (folder / "index.html").write_text(refresh, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picitool")
    parser.add_argument("--wasm", type=pathlib.Path)
    parser.add_argument("--html", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    options = parser.parse_args()
    shutil.rmtree(options.out, ignore_errors=True)
    site = Site(options.out)

    pages = [ROOT / p for p in PAGES] + [p for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.md"))]
    for path in pages:
        page = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8")
        if page.startswith("formats/"):
            text, figures = layouts.drawn(path.stem, text)
            for name, figure in figures.items():
                site.write(f"formats/layouts/{name}", figure)
            text = re.sub(r"(!\[[^]]*\])\((layouts/[^)]*)\)", r"\1{}(\2)", text)
        site.write(page, site.text(page, text).replace("]{}(layouts/", "](layouts/"))

    functions = 0
    index = ["# C headers", "", "Made from the comments of the headers.", "", "| header | functions |", "|---|---|"]
    for header in sorted((ROOT / "include/pici").glob("*.h")):
        if "PICI_API" not in header.read_text(encoding="utf-8"):
            continue  # for the library itself, or for device code
        text, names = headers.page(header, ROOT)
        functions += len(names)
        site.write(f"docs/reference/c/{header.stem}.md", text)
        links = ", ".join(f"[{n}]({header.stem}.md#{n})" for n in names)
        index.append(f"| [{header.name}]({header.stem}.md) | {links} |")
    site.write("docs/reference/c/index.md", "\n".join(index) + "\n")
    modules = docstrings.pages(ROOT / "python/pici")
    for name, text in modules.items():
        site.write(f"docs/reference/python/{name}.md", text)
    if options.picitool:
        site.write("docs/reference/picitool.md", verbs(options.picitool))

    for path in sorted((HERE / "try").glob("*.js")) + sorted((HERE / "try").glob("*.css")):
        site.write(f"try/{path.name}", path.read_text(encoding="utf-8"))
    code = base64.b64encode(options.wasm.read_bytes()).decode() if options.wasm else ""
    site.write("try/wasm.js", f'"use strict";\nconst PICI_WASM = "{code}";\n')
    site.write("try.md", (HERE / "try/try.md").read_text(encoding="utf-8"))

    for source, shown in sorted(site.files):
        (options.out / shown).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / source, options.out / shown)
    settings = (HERE / "mkdocs.yml").read_text(encoding="utf-8")
    nav = json.dumps(navigation(options.out), indent=1)
    options.out.with_suffix(".yml").write_text(f"{settings}nav: {nav}\n", encoding="utf-8")
    if options.html:
        versions(options.html)
    print(f"site: {len(pages)} pages, {functions} functions of C, {len(modules)} modules of Python")
    return 0


if __name__ == "__main__":
    sys.exit(main())
