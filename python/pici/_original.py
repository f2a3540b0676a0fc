# SPDX-License-Identifier: BSD-3-Clause
"""The file that a .pici file was made of, as picitool decompress makes it (picitool(1), "Attributes")."""
from __future__ import annotations

from collections.abc import Callable, Iterator

from .errors import CorruptError, UnsupportedError
from .file import File, Tensor

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


def stored_bytes(f: File) -> int:
    """How many bytes its elements take."""
    return sum(t._storage_bytes(True) for t in f._all_stored())


def pieces(f: File, elements: Callable[[Tensor], Tensor] = lambda t: t) -> Iterator[bytes]:
    """The bytes of the original. elements: which tensor has the elements of one, as the files of a folder need it."""
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
            run = found._elements(first, n, (n,))
            yield run.astype(run.dtype.newbyteorder(">" if big else "<"), copy=False).tobytes()
    yield head[at:]
