# SPDX-License-Identifier: BSD-3-Clause
"""Read formats/vectors/*.txt; README.md there specifies their syntax."""
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]


def _words(name):
    for line in (TREE / "formats" / "vectors" / name).read_text().splitlines():
        for word in line.split():
            if word.startswith("#"):
                break
            yield word


def _octets(words):
    out = bytearray()
    for word in words:
        if word == ".":
            return bytes(out)
        digits, _, count = word.partition("*")
        out += bytes.fromhex(digits) * int(count or 1)
    raise ValueError("a byte string without an end")


def roundtrips():
    """A list of (case, dtype, n, dense, [(format, kind, block)])."""
    words = _words("roundtrip.txt")
    cases = []
    for word in words:
        if word == "case":
            name = next(words)
        elif word == "dense":
            cases.append((name, next(words), int(next(words)), _octets(words), []))
        elif word == "block":
            cases[-1][4].append((next(words), next(words), _octets(words)))
        else:
            raise ValueError(word)
    return cases


def verdicts():
    """A list of (case, rule, status, offset, tile or None, block)."""
    words = _words("verify.txt")
    cases = []
    for word in words:
        if word == "case":
            name = next(words)
        elif word == "fault":
            rule, status, offset, tile = (next(words) for _ in range(4))
        elif word == "block":
            cases.append((name, rule, status, int(offset), None if tile == "-" else int(tile), _octets(words)))
        else:
            raise ValueError(word)
    return cases
