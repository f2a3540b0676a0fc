# SPDX-License-Identifier: BSD-3-Clause
"""Byte layouts as SVG, from the tables of the specifications themselves.

A table of formats/*.md whose first columns are `offset`, `size` and `field` is drawn in rows of 16 bytes. A field whose
size is not a number takes a row of its own. A table of `part` and `bytes` is drawn as a stack of parts.
"""
import html
import re

BYTE, ROW, LEFT, TOP, SPAN = 40, 44, 64, 26, 16
COLORS = ["#dbe9f6", "#e3f1dd", "#fbe8d3", "#efe0f2", "#fdf3c4", "#d9f0ee", "#f6dcdc", "#e6e6ea"]


def cells(line):
    return [c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def tables(text):
    """(number of the line of the heading, heading, rows) of each table."""
    lines, at, fence = text.split("\n"), 0, False
    while at < len(lines) - 1:
        fence ^= lines[at].startswith("```")
        if not fence and lines[at].startswith("|") and re.fullmatch(r"[|: -]+", lines[at + 1]):
            end = at + 2
            while end < len(lines) and lines[end].startswith("|"):
                end += 1
            yield at, cells(lines[at]), [cells(line) for line in lines[at + 2 : end]]
            at = end
        else:
            at += 1


def text_at(x, y, words, size=13, anchor="middle", fill="#222"):
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{fill}">{html.escape(words)}</text>'


def box(x, y, width, height, color):
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{color}" stroke="#555"/>'


def svg(width, height, title, parts):
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            f' font-family="sans-serif" role="img"><title>{html.escape(title)}</title>',
            f'<rect width="{width}" height="{height}" rx="8" fill="#fff"/>',
            *parts,
            "</svg>\n",
        ]
    )


def label(field, size):
    plain = re.sub(r"[`*]|\[([^]]*)\]\([^)]*\)", r"\1", field)
    return plain or ("0" if size else "")


def fits(words, width):
    return len(words) * 7.4 < width - 4


def bytes_svg(title, rows):
    """Fields in rows of 16 bytes. A field that crosses a row's end has a box in both."""
    parts, y, at, part_of_row = [], TOP, 0, False
    for i in range(SPAN):
        parts.append(text_at(LEFT + i * BYTE + BYTE / 2, 18, str(i), 11, fill="#666"))
    for number, (offset, size, field, *rest) in enumerate(rows):
        color = COLORS[number % len(COLORS)] if field else "#f3f3f3"
        words = label(field, size)
        if size.isdigit() and offset.isdigit():
            begin, left = int(offset), int(size)
            first = True
            while left:
                column = begin % SPAN
                here = min(left, SPAN - column)
                if column == 0 or not part_of_row:
                    parts.append(text_at(LEFT - 8, y + ROW / 2 + 4, str(begin), 12, "end", "#666"))
                part_of_row = True
                parts.append(box(LEFT + column * BYTE, y, here * BYTE, ROW, color))
                if first or here > 2:
                    x, narrow = LEFT + (column + here / 2) * BYTE, not fits(words, here * BYTE)
                    fit = max(3, int((here * BYTE - 2) / 5.4)) if narrow else len(words)
                    lines = [words[k : k + fit] for k in range(0, len(words), fit)][:3]
                    for k, line in enumerate(lines):
                        middle = y + ROW / 2 + 4 + (k - (len(lines) - 1) / 2) * 12
                        parts.append(text_at(x, middle, line, 9.5 if narrow else 13))
                begin, left, first = begin + here, left - here, False
                if begin % SPAN == 0:
                    y, part_of_row = y + ROW, False
            at = begin
        else:
            if part_of_row:
                y, part_of_row = y + ROW, False
            parts.append(text_at(LEFT - 8, y + ROW / 2 + 4, offset or "", 12, "end", "#666"))
            parts.append(box(LEFT, y, SPAN * BYTE, ROW, color))
            what = words or (rest[0] if rest else "")
            what = re.sub(r"[`*]|\[([^]]*)\]\([^)]*\)", r"\1", what)
            what = what if len(what) < 70 else what[:67] + "..."
            parts.append(text_at(LEFT + SPAN * BYTE / 2, y + ROW / 2 + 4, what + (f": {size} bytes" if size else "")))
            y += ROW
            at = None
    return svg(LEFT + SPAN * BYTE + 12, y + (ROW if part_of_row else 0) + 12, title, parts), at


def parts_svg(title, rows):
    parts, y, width = [], 12, SPAN * BYTE
    for number, (name, size, *rest) in enumerate(rows):
        parts.append(box(LEFT, y, width, 34, COLORS[number % len(COLORS)]))
        parts.append(text_at(LEFT + 12, y + 22, name, 13, "start"))
        parts.append(text_at(LEFT + width - 12, y + 22, size + (" bytes" if size.isdigit() else ""), 12, "end", "#555"))
        y += 34
    return svg(LEFT + width + 12, y + 12, title, parts)


def drawn(page, text):
    """The page with a figure above each table that is a layout, and {name: SVG} of the figures."""
    figures, lines = {}, text.split("\n")
    for at, head, rows in reversed(list(tables(text))):
        heading = next((line.lstrip("# ") for line in reversed(lines[:at]) if line.startswith("#")), page)
        if head[:3] == ["offset", "size", "field"]:
            figure = bytes_svg(f"{page}: {heading}", rows)[0]
        elif head[:2] == ["part", "bytes"]:
            figure = parts_svg(f"{page}: {heading}", rows)
        else:
            continue
        name = f"{page}-{at + 1}.svg"
        figures[name] = figure
        lines[at:at] = [f"![Byte layout: {heading.replace('`', '')}](layouts/{name})", ""]
    return "\n".join(lines), figures
