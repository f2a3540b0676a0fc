# SPDX-License-Identifier: BSD-3-Clause
"""Comments of headers and docstrings as Markdown.

Both are plain text: paragraphs, code, and lines in columns. Code is indented by four blanks, and has no columns but
comments after #. Columns are indented or follow a line that ends with a colon. They are apart by two blanks or more;
the lines that continue a row begin at its second column. A parameter is a line "name: meaning"; what continues it may
be indented.
"""
import html
import re
import textwrap

ROW = re.compile(r"( +)(\S.*?) {2,}(\S.*)$")
PARAMETER = re.compile(r"([a-z_]+(?:, [a-z_]+)*): (?=\S)")
NAME = re.compile(r"(?<![\w`])((?:pici|PICI)_\w+)")


def inline(text):
    """Escape what Markdown would take for markup, and set names of the library as code."""
    parts = re.split(r"(`[^`]*`)", NAME.sub(r"`\1`", text))
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"([*_\\|\[\]])", r"\\\1", html.escape(parts[i], quote=False))
    return "".join(parts)


def table(rows):
    lines = ["", "| | |", "|---|---|"]
    for name, meaning in rows:
        cell = name.replace("|", "\\|").replace("`", "")
        lines.append(f"| `{cell}` | {inline(meaning)} |")
    return lines + [""]


def indent_of(line):
    return len(line) - len(line.lstrip())


def end_of_code(lines, at):
    """Where the code that begins in a line ends; `at` if there is none."""
    end = at
    while end < len(lines):
        chunk = end
        while chunk < len(lines) and indent_of(lines[chunk]) >= 4 and lines[chunk].strip():
            row = ROW.match(lines[chunk])
            if row and not row[3].startswith("#"):
                return at if end == at else last
            chunk += 1
        if chunk == end:
            break
        last = chunk
        while chunk < len(lines) and not lines[chunk].strip():
            chunk += 1
        end = chunk
    return at if end == at else last


def markdown(text):
    out, rows, column, paragraph, skip = [], [], 0, [], 0

    def flush():
        nonlocal rows, paragraph
        if paragraph:
            out.extend([inline(" ".join(paragraph)), ""])
        if rows:
            out.extend(table(rows))
        rows, paragraph = [], []

    lines = [line.rstrip() for line in text.split("\n")]
    for number, line in enumerate(lines):
        if number < skip:
            continue
        indent = indent_of(line)
        row = ROW.match(line)
        code = not rows and (not paragraph or paragraph[-1].endswith(":")) and end_of_code(lines, number)
        if not line:
            flush()
        elif code and code > number:
            flush()
            skip = code
            out += ["```py", *textwrap.dedent("\n".join(lines[number:code])).split("\n"), "```", ""]
        elif rows and indent >= min(column, 24) and indent > 2:
            rows[-1][1] += " " + line.strip()
        elif row:
            if paragraph:
                flush()
            rows.append([row[2], row[3]])
            column = row.start(3)
        elif indent >= 4 and paragraph and not paragraph[-1].endswith(":"):
            paragraph.append(line.strip())
        elif indent >= 4:
            if paragraph:
                flush()
            rows.append([line.strip(), ""])
            column = indent + 4
        else:
            parameter = PARAMETER.match(line)
            if rows or parameter and paragraph and paragraph[-1].endswith("."):
                flush()
            if parameter and not paragraph:
                line = "`" + parameter[1].replace(", ", "`, `") + "`" + line[parameter.end(1) :]
            paragraph.append(line.strip())
    flush()
    return "\n".join(out).strip() + "\n"
