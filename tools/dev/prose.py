# SPDX-License-Identifier: BSD-3-Clause
"""The sentences of a page in Markdown, of a source's comments and of Python's docstrings, for tools/dev/readability and
tools/dev/check-text.
"""
import ast
import io
import pathlib
import re
import tokenize

LONG = 30  # words; more are too many
SENTENCE = re.compile(r"\S.*?(?:[.:;?!](?:\)|\*\*)?(?=\s+(?:[A-Z`*\[(]|pici))|\Z)", re.S)
# In a comment a sentence may begin with a name in small letters.
PLAIN = re.compile(
    r"\S.*?(?:(?<!\be\.g)(?<!\bi\.e)(?<!\bcf)(?<!\bvs)(?<!\betc)(?<!\.\.)[.?!]\)?(?=\s)|[.:;]\)?(?=\s+[A-Z`*\[(])|\Z)",
    re.S,
)
C_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*', re.S)
CELLS = re.compile(r"( *\S.*?) {2,}(\S.*)$")
ITEM = re.compile(r" *(?:[-*]|\d+\.) ")
C_NAMES = {".c", ".h", ".cc", ".cpp", ".cu", ".cuh", ".inc"}


def without(pattern, text, flags=0):
    """The text without what matches. Line numbers stay."""
    return re.sub(pattern, lambda m: "\n" * m[0].count("\n"), text, flags=flags | re.M)


def sentences(text):
    """Yield (line, sentence), without code blocks, tables, headings, comments and the targets of links."""
    text = without(r"^[ \t]*```.*?^[ \t]*```$|<!--.*?-->", text, re.S)
    text = without(r"^(?:\||#|    ).*$", text)
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text)
    start = 0
    for end in [m.end() for m in re.finditer(r"\n\s*\n|\n(?=[ \t]*(?:[-*]|\d+\.) )", text)] + [len(text)]:
        for m in SENTENCE.finditer(text[start:end].rstrip()):
            if len(m[0].split()) > 3:
                yield text.count("\n", 0, start + m.start()) + 1, " ".join(m[0].split())
        start = end


def language(path, text):
    """ "md", "c", "py", "sh" (comments after #), or None."""
    suffix = pathlib.Path(path).suffix
    if suffix == ".md":
        return "md"
    if suffix in C_NAMES:
        return "c"
    if suffix in (".py", ".pyi") or re.match(r"#!.*python", text):
        return "py"
    return "sh" if suffix in (".sh", ".mk", ".cmake") or text.startswith("#!") else None


def of_file(path, text):
    """Yield (line, sentence) of a page, or of a source's comments and docstrings."""
    kind = language(path, text)
    if kind == "md":
        yield from sentences(text)
    for first, lines in {"c": c_comments, "py": py_comments, "sh": sh_comments}.get(kind, lambda text: ())(text):
        yield from plain(first, lines)


def c_comments(text):
    """Yield (line, lines) for each comment, without stars and slashes."""
    open_line = 0  # of a comment of several lines with slashes
    lines = []
    for m in C_COMMENT.finditer(text):
        if m[0][0] != "/":
            continue
        first = text.count("\n", 0, m.start()) + 1
        if m[0].startswith("//"):
            if not lines or first != open_line + len(lines):
                if lines:
                    yield open_line, lines
                open_line, lines = first, []
            lines.append(m[0][2:].removeprefix(" "))
            continue
        rows = m[0][2:-2].split("\n")
        yield first, [rows[0].strip()] + [re.sub(r"^\s*\* ?|^   ?", "", row) for row in rows[1:]]
    if lines:
        yield open_line, lines


def hashes(found):
    """Yield (line, lines) of neighbouring comments from (line, column, text)."""
    lines, start, at = [], 0, 0
    for line, column, text in found:
        if lines and (line != start + len(lines) or column != at):
            yield start, lines
            lines = []
        if not lines:
            start, at = line, column
        lines.append(re.sub("^#+ ?", "", text))
    if lines:
        yield start, lines


def py_comments(text):
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    yield from hashes((*t.start, t.string) for t in tokens if t.type == tokenize.COMMENT)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            doc = ast.get_docstring(node)
            if doc:
                yield node.body[0].lineno, doc.split("\n")


def sh_comments(text):
    found = ((n, re.search(r"(?:^|\s)(#(?:[ #!].*)?$)", row)) for n, row in enumerate(text.split("\n"), 1))
    yield from hashes((n, m.start(1), m[1]) for n, m in found if m)


def paragraphs(first, lines):
    """Yield (line, paragraph) of plain text: a row of columns is one, an item of a list too. Code is left out."""
    open_line, words, before, column = 0, [], None, 0
    for number, line in enumerate(lines, first):
        line = line.rstrip()
        indent = len(line) - len(line.lstrip())
        row = CELLS.match(line)
        code = indent >= 4 and not row and (before is None or words and words[-1].endswith(":") and not column)
        fresh = before is None or row or ITEM.match(line) or code or indent < min(before, column or before)
        if (not line or fresh) and words:
            yield open_line, " ".join(words)
            words = []
        if not line or code:
            before, column = None, 0
            continue
        if fresh:
            open_line, column = number, row.start(2) if row else 0
        words.append(row[2] if row else line.strip())
        before = indent
    if words:
        yield open_line, " ".join(words)


def plain(first, lines):
    """Yield (line, sentence) of plain text that begins in line `first`. The line is the paragraph's."""
    for line, paragraph in paragraphs(first, lines):
        for m in PLAIN.finditer(paragraph):
            if len(m[0].split()) > 3 and "SPDX" not in m[0]:
                yield line, m[0]
