# SPDX-License-Identifier: BSD-3-Clause
"""The reference of a public C header as Markdown: its comments, and each declaration with the comment above it."""
import re

import prose

COMMENT = re.compile(r"/\*(.*?)\*/", re.S)
FUNCTION = re.compile(r"PICI_API[^;{]*?\b(pici_\w+)\s*\(")
TYPE = re.compile(r"(?:typedef\s+)?(struct|enum|union)\s+(\w+)\s*\{")
FORWARD = re.compile(r"(struct|enum)\s+(\w+)\s*;")
DEFINE = re.compile(r"#define\s+(\w+)")


def words(comment):
    """A comment's text without its stars."""
    lines = comment.strip("\n").split("\n")
    out = [lines[0].strip()]
    for line in lines[1:]:
        out.append(re.sub(r"^ ?\*? ?", "", line.replace("\t", "    ")))
    return "\n".join(line.rstrip() for line in out).strip("\n *")


def end_of(text, at):
    """Where the declaration that begins at `at` ends."""
    if text.startswith("#", at):
        while True:
            end = text.find("\n", at)
            if end < 0 or text[end - 1] != "\\":
                return len(text) if end < 0 else end
            at = end + 1
    depth = 0
    while at < len(text):
        if text.startswith("/*", at):
            at = text.index("*/", at) + 2
            continue
        depth += (text[at] == "{") - (text[at] == "}")
        at += 1
        if depth == 0 and text[at - 1] == ";":
            return at
    raise ValueError("a declaration without an end")


def pieces(text):
    """(comment or "", declaration or "") in the order of the header."""
    at, comment = 0, ""
    while at < len(text):
        if text[at].isspace():
            if comment and text.startswith("\n\n", at):
                yield comment, ""
                comment = ""
            at += 1
        elif text.startswith("/*", at):
            if comment:
                yield comment, ""
            end = text.index("*/", at)
            comment, at = text[at + 2 : end], end + 2
        elif re.compile(r"#(?!define)|extern \"C\" \{|\}").match(text, at):
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        else:
            end = end_of(text, at)
            yield comment, text[at:end]
            comment, at = "", end


def name_of(declaration):
    for pattern, group in ((FUNCTION, 1), (TYPE, 2), (FORWARD, 2), (DEFINE, 1)):
        m = pattern.match(declaration)
        if m:
            return m[group]
    return ""


def page(path, root):
    """Markdown, and the names of the functions that it has."""
    text = path.read_text(encoding="utf-8")
    guard = re.search(r"#ifndef (\w+)\n#define \1\n", text)
    if not guard:
        raise ValueError(f"{path} has no include guard")
    name = path.relative_to(root / "include").as_posix()
    about = words(COMMENT.match(text)[1]).split("\n", 1)[1].strip("\n")
    body = re.sub(r"#if defined\(PICI_BUILD\).*?#endif\n", "", text[guard.end() :], flags=re.S)
    out, functions, last = [f"# {name}", "", prose.markdown(about), "```c\n#include <" + name + ">\n```", ""], [], ""
    for comment, declaration in pieces(body):
        of = name_of(declaration)
        # an initializer belongs to its struct, and a name that was to the one that is
        if of and not (declaration.startswith("#define") and not comment and last):
            out += [f"### {of} {{ #{of} }}", ""]
        if declaration:
            out += ["```c", declaration.replace("PICI_API ", ""), "```", ""]
        if comment and not comment.lstrip().startswith("SPDX"):
            out += [prose.markdown(words(comment))]
        if FUNCTION.match(declaration):
            functions.append(of)
        last = of
    return "\n".join(out), functions
