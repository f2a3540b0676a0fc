# SPDX-License-Identifier: BSD-3-Clause
"""Recognize files that a call cannot read, and suggest what to do."""
from __future__ import annotations

import json
from typing import Any, Optional

_FIRST = 512
_AGAIN = "download it again"

#: first bytes of files, their type, and what to do
_KINDS = (
    (b"version https://git-lfs.", "a Git LFS pointer, not the file itself: git lfs pull fetches the file"),
    (b"\x93NUMPY", "a .npy file: numpy.load() reads it"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file: h5py reads it"),
    (b"GGUF", "a GGUF file: picitool compress converts it to .pici"),
    (b"\x1f\x8b", "gzip data: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "zstd data: unpack it first"),
    (b"\x80\x02\x8a\x0al\xfc\x9c", "a .pt file of torch before 1.6: picitool compress converts it to .pici"),
)
_PAGES = (
    ((b"<!doctype html", b"<html", b"<head"), f"an HTML page, not the file itself: {_AGAIN}, and sign in if it asks"),
    ((b"<?xml",), f"an XML text, as a server's error, not the file itself: {_AGAIN}"),
)


def first_of(path: str) -> bytes:
    """The first bytes of a file; b"" if it cannot be read."""
    try:
        with open(path, "rb") as f:
            return f.read(_FIRST)
    except OSError:
        return b""


def first_in(file: Any) -> bytes:
    """The next bytes of a file object, which stays where it is; b"" if it cannot go back."""
    if not hasattr(file, "seekable") or not file.seekable() or not hasattr(file, "read"):
        return b""
    at = file.tell()
    try:
        first = file.read(_FIRST)
    finally:
        file.seek(at)
    return first if isinstance(first, bytes) else b""


def is_pici(first: bytes) -> bool:
    return first.startswith(b"\x89PICI")


def is_safetensors(first: bytes) -> bool:
    return first[4:9] == b"\0\0\0\0{"


def _is_json(first: bytes) -> bool:
    if first[:1] not in (b"{", b"["):
        return False
    try:
        json.loads(first)
    except ValueError as e:  # JSON cut in the middle is still JSON
        return len(first) == _FIRST and getattr(e, "pos", 0) > 0 and b'"' in first[:16]
    return True


def words(first: bytes) -> Optional[str]:
    """The type of a file with these first bytes, and what to do; None: unknown."""
    for magic, is_it in _KINDS:
        if first.startswith(magic):
            return is_it
    if first.startswith(b"PK\x03\x04"):
        end = 30 + int.from_bytes(first[26:28], "little")
        if first[30:end].endswith(b".npy"):
            return "an .npz file: numpy.load() reads it"
        if b"/" in first[30:end]:
            return "a file of torch.save: torch.load(path, weights_only=True) reads it"
        return "a zip archive: unpack it first"
    text = first.removeprefix(b"\xef\xbb\xbf").lstrip()
    for starts, is_it in _PAGES:
        if text.lower().startswith(starts):
            return is_it
    if _is_json(text):
        return f"a JSON text, as a server's error, not a file of tensors: {_AGAIN}"
    return "a .safetensors file: pici.load() reads it" if is_safetensors(first) else None


def stands_in(first: bytes) -> bool:
    """Whether a file stands in for another: a pointer of Git LFS, or a server's error page."""
    found = words(first) or ""
    return "not the file itself" in found or "not a file of tensors" in found
