# SPDX-License-Identifier: BSD-3-Clause
"""The sentences of a page in Markdown, for tools/dev/readability and tools/dev/check-text."""
import re

LONG = 30  # words; more are too many
SENTENCE = re.compile(r"\S.*?(?:[.:;?!](?:\)|\*\*)?(?=\s+(?:[A-Z`*\[(]|pici))|\Z)", re.S)


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
