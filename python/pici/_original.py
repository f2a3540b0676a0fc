# SPDX-License-Identifier: BSD-3-Clause
"""The original file of a .pici file, as picitool decompress restores it (picitool(1), "Attributes")."""
from __future__ import annotations

from collections.abc import Callable, Iterator

from .errors import CorruptError, UnsupportedError
from .file import File, Tensor

_PIECE = 1 << 24  # bytes


def kind(f: File) -> str:
    """The type of the original: "pt", "npy", "safetensors", "npz" or "raw"; "": it was not a file."""
    return f.attrs.get("source.type", b"").decode("ascii", "replace")


def _before(attrs: dict[str, bytes], rest: int, what: str) -> int:
    """The number of the head's `rest` bytes that precede a tensor."""
    text = attrs.get("source.before")
    if text is None:
        return rest
    if not text.isdigit() or len(text) > 19 or int(text) > rest:
        raise CorruptError(f"{what} has no valid attribute source.before")
    return int(text)


def stored_bytes(f: File) -> int:
    """The bytes of its elements."""
    return sum(t._storage_bytes(True) for t in f._all_stored())


def pieces(f: File, elements: Callable[[Tensor], Tensor] = lambda t: t) -> Iterator[bytes]:
    """The bytes of the original. elements: returns the tensor that has the elements of a tensor; files of a folder need
    it.
    """
    head, at = f.attrs.get("source.head", b""), 0
    for t in f._all_stored():
        attrs, what = t.attrs, f"{t.name!r} of {f.path}"
        if "source.deflate" in attrs:
            raise UnsupportedError(f"{what} is deflated in the original: picitool decompress restores it")
        before = _before(attrs, len(head) - at, what)
        yield head[at : at + before]
        at += before
        big = attrs.get("source.endian") == b"big"
        found = elements(t)
        step = max(1, _PIECE // found._d.itemsize)
        for first in range(0, found.size, step):
            n = min(step, found.size - first)
            run = found._elements(first, n, (n,)).view(found._d.storage)  # a number may have two parts
            yield run.astype(run.dtype.newbyteorder(">" if big else "<"), copy=False).tobytes()
    yield head[at:]
