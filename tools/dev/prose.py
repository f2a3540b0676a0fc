# SPDX-License-Identifier: BSD-3-Clause
"""The sentences of pages in Markdown, and of comments and docstrings, for tools/dev/readability and
tools/dev/check-text.
"""
import ast
import io
import pathlib
import re
import tokenize

LONG = 30  # words; more are too many
SENTENCE = re.compile(r"\S.*?(?:[.:;?!](?:\)|\*\*)?(?=\s+(?:[A-Z`*\[(]|pici))|\Z)", re.S)
# In comments, a sentence may begin with a name in lower case.
PLAIN = re.compile(
    r"\S.*?(?:(?<!\be\.g)(?<!\bi\.e)(?<!\bcf)(?<!\bvs)(?<!\betc)(?<!\.\.)[.?!]\)?(?=\s)|[.:;]\)?(?=\s+[A-Z`*\[(])|\Z)",
    re.S,
)
# Strings and characters too, since comments in these are none.
C_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*', re.S)
ROW = re.compile(r" *\S.*? {2,}(\S.*)$")
ITEM = re.compile(r" *(?:[-*]|\d+\.) ")
SUFFIXES = {
    "md": {".md"},
    "c": {".c", ".h", ".cc", ".cpp", ".cu", ".cuh", ".inc"},
    "py": {".py", ".pyi"},
    "sh": {".sh", ".bash", ".mk", ".cmake"},
}
LICENCE = "SPDX-License-Identifier"


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
    """ "md", "c", "py" or "sh" (comments after #), or None: this module cannot find the prose of the file."""
    name = pathlib.Path(path)
    for kind, suffixes in SUFFIXES.items():
        if name.suffix in suffixes:
            return kind
    if re.match("#!.*python", text):
        return "py"
    return "sh" if text.startswith("#!") or name.name in ("Makefile", "CMakeLists.txt") else None


def of_file(path, text):
    """Yield (line, sentence) of a page, or of a source's comments and docstrings. Lines of sources are paragraphs'."""
    kind = language(path, text)
    if kind == "md":
        yield from sentences(text)
    found = {"c": c_comments, "py": py_comments, "sh": sh_comments}.get(kind, lambda _: ())(text)
    for first, lines in sorted(found):
        for line, paragraph in paragraphs(first, lines):
            for m in PLAIN.finditer(paragraph):
                if len(m[0].split()) > 3:
                    yield line, m[0]


def c_comments(text):
    """Yield (line, lines) for each comment, without stars and slashes."""
    slashes = []
    for m in C_COMMENT.finditer(text):
        line = text.count("\n", 0, m.start()) + 1
        if m[0].startswith("//"):
            slashes.append((line, m.start() - text.rfind("\n", 0, m.start()), m[0][2:]))
        elif m[0].startswith("/*"):
            rows = m[0][2:-2].split("\n")
            yield line, [rows[0].strip()] + [re.sub(r"^\s*\* ?|^   ?", "", row) for row in rows[1:]]
    yield from joined(slashes)


def joined(found):
    """Yield (line, lines) for comments of one line each: (line, column, text). Neighbours in a column are one."""
    lines, start, at = [], 0, 0
    for line, column, text in found:
        if lines and (line != start + len(lines) or column != at):
            yield start, lines
            lines = []
        if not lines:
            start, at = line, column
        lines.append(text.removeprefix(" "))
    if lines:
        yield start, lines


def py_comments(text):
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    yield from joined((*t.start, re.sub("^#+:?", "", t.string)) for t in tokens if t.type == tokenize.COMMENT)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            doc = ast.get_docstring(node)
            if doc:
                yield node.body[0].lineno, doc.split("\n")


def sh_comments(text):
    found = ((n, re.search(r"(?:^|\s)#+((?:[ !].*)?)$", row)) for n, row in enumerate(text.split("\n"), 1))
    yield from joined((n, m.start(1), m[1]) for n, m in found if m)


def paragraphs(first, lines):
    """Yield (line, paragraph) of plain text from line `first` on. A row of columns, a formula and an item of a list are
    one each. Code is left out.
    """
    begin, words, indent_before, column, listed = first, [], None, 0, None
    for number, line in enumerate(lines, first):
        line = "" if LICENCE in line else line.rstrip()
        indent = len(line) - len(line.lstrip())
        row = ROW.match(line)
        after_colon = bool(words) and words[-1].endswith(":") and not column
        code = indent >= 4 and not row and (indent_before is None or after_colon)
        if indent_before is not None and after_colon and indent > indent_before:
            listed = indent
        fresh = (
            indent_before is None
            or row
            or code
            or ITEM.match(line)
            or indent == listed
            or indent < min(indent_before, column or indent_before)
        )
        if words and (fresh or not line):
            yield begin, " ".join(words)
            words = []
        if not line or code:
            indent_before, column, listed = None, 0, None
            continue
        if fresh:
            begin, column = number, row.start(1) if row else 0
        words.append(row[1] if row else line.strip())
        indent_before = indent
    if words:
        yield begin, " ".join(words)
