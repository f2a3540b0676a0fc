# SPDX-License-Identifier: BSD-3-Clause
"""The file that a .pici file was made of, as picitool decompress makes it (picitool(1), "Attributes")."""
from __future__ import annotations

import math
from collections.abc import Iterator

from . import _arrays
from ._dtypes import BY_CODE, BY_NAME
from .errors import CorruptError, UnsupportedError
from .file import File

_PIECE = 1 << 24  # bytes


def kind(f: File) -> str:
    """What the original was: "pt", "npy", "safetensors", "npz" or "raw"; "": it was no file."""
    return f.attrs.get("source.type", b"").decode("ascii", "replace")


def _before(attrs: dict[str, bytes], rest: int, what: str) -> int:
    """How many of the `rest` bytes of the head are before a tensor."""
    text = attrs.get("source.before")
    if text is None:
        return rest
    if not text.isdigit() or len(text) > 19 or int(text) > rest:
        raise CorruptError(f"{what} has no valid attribute source.before")
    return int(text)


def pieces(f: File) -> Iterator[bytes]:
    """The bytes of the original. LimitError if its elements take more than f.max_bytes."""
    head, at = f.attrs.get("source.head", b""), 0
    stored = [(BY_CODE[code], count) for code, count in f._all_stored()]
    _arrays.bounded(BY_NAME["u8"], sum(count * d.itemsize for d, count in stored), f.max_bytes)
    for index, (d, count) in enumerate(stored):
        attrs, what = f._attrs(index), f"tensor {index} of {f.path}"
        if "source.deflate" in attrs or "folder.same" in attrs:
            raise UnsupportedError(f"{what} is deflated in the original, or another's: picitool decompress restores it")
        before = _before(attrs, len(head) - at, what)
        yield head[at : at + before]
        at += before
        big = attrs.get("source.endian") == b"big"
        step = max(1, _PIECE // d.itemsize)
        for k in range(math.ceil(count / step)):
            run = f._stored(index, d.code, k * step, min(step, count - k * step)).elements
            yield run.astype(run.dtype.newbyteorder(">" if big else "<"), copy=False).tobytes()
    yield head[at:]
