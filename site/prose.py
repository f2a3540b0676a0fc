# SPDX-License-Identifier: BSD-3-Clause
"""Comments of headers and docstrings as Markdown.

Both are plain text: paragraphs, and lines in columns that are indented or follow a line that ends with a colon. Columns
are apart by two blanks or more; the lines that continue a row begin at its second column. A parameter is a line "name:
meaning"; what continues it may be indented.
"""
import html
import re

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


def markdown(text):
    out, rows, column, paragraph = [], [], 0, []

    def flush():
        nonlocal rows, paragraph
        if paragraph:
            out.extend([inline(" ".join(paragraph)), ""])
        if rows:
            out.extend(table(rows))
        rows, paragraph = [], []

    for line in text.split("\n"):
        line = line.rstrip()
        indent = len(line) - len(line.lstrip())
        row = ROW.match(line)
        if not line:
            flush()
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
