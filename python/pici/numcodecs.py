# SPDX-License-Identifier: BSD-3-Clause
"""The codec "pici" for numcodecs: a compressor for arrays of Zarr version 2. Importing this module registers it. Where
the package pici is installed, numcodecs finds it by itself.

    z = zarr.create_array(store, shape=..., dtype="f4", zarr_format=2, compressors=pici.numcodecs.Pici())

numcodecs passes a compressor the elements of a chunk in memory order, or the bytes of an earlier filter. The codec
stores them as one block (formats/block.md). decode() returns the elements in little-endian byte order."""
from __future__ import annotations

from typing import Any

from numcodecs.abc import Codec
from numcodecs.compat import ensure_ndarray, ndarray_copy
from numcodecs.registry import register_codec

from . import _chunks
from ._kwargs import Pack
from .codec import decompress


class Pici(Codec):
    """Options: as for pici.zarr.PiciCodec.

    max_bytes: the most memory for a decoded chunk; "auto": 1 GiB, or 1024 times the chunk. The array's configuration
        does not store it."""

    codec_id = "pici"

    def __init__(
        self, format: str = "auto", pack: Pack = "planes", checksum: bool = True, max_bytes: Any = "auto"
    ) -> None:
        self.format = format
        self.pack = pack
        self.checksum = checksum
        self._max_bytes = max_bytes
        self._options().check()

    def _options(self) -> _chunks.Options:
        return _chunks.Options(self.format, self.pack, self.checksum)

    def get_config(self) -> dict[str, Any]:
        return {"id": self.codec_id, **self._options()._asdict()}

    def encode(self, buf: Any) -> bytes:
        elements = ensure_ndarray(buf).reshape(-1, order="A")
        stored = _chunks.like(elements.dtype) or elements.dtype
        return _chunks.encode(elements.view(stored.newbyteorder("<")), self._options())

    def decode(self, buf: Any, out: Any = None) -> Any:
        found = decompress(ensure_ndarray(buf), to="bits", max_bytes=self._max_bytes)
        return ndarray_copy(found.astype(found.dtype.newbyteorder("<"), copy=False), out)


register_codec(Pici)
