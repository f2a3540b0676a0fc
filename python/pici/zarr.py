# SPDX-License-Identifier: BSD-3-Clause
"""The codec "pici" for Zarr version 3: a serializer from an array's chunk to bytes, also in shards. Importing this
module registers it. Where the package pici is installed, zarr finds it by itself.

    z = zarr.create_array(store, shape=(1000, 1000), chunks=(250, 250), dtype="f4",
                          serializer=pici.zarr.PiciCodec(), compressors=None)

The chunk is one block of the codec (formats/block.md). For numcodecs and Zarr version 2: pici.numcodecs."""
from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import numpy as np
from zarr.abc.codec import ArrayBytesCodec
from zarr.registry import register_codec

from . import _chunks
from ._kwargs import Pack

_NAME = "pici"


def _dtype_of(spec: Any) -> np.dtype[Any]:
    """NumPy's dtype of a chunk that zarr describes."""
    dtype = getattr(spec, "dtype", spec)
    found: np.dtype[Any] = dtype.to_native_dtype() if hasattr(dtype, "to_native_dtype") else np.dtype(dtype)
    return found


@dataclass(frozen=True)
class PiciCodec(ArrayBytesCodec):
    """The serializer of an array.

    format, checksum: as for pici.compress(), but checksum is on by default.
    pack: as for pici.compress(), but "planes" by default, which pici 0.2 cannot read."""

    format: str = "auto"
    pack: Pack = "planes"
    checksum: bool = True

    is_fixed_size = False

    def __post_init__(self) -> None:
        self._options().check()

    def _options(self) -> _chunks.Options:
        return _chunks.Options(self.format, self.pack, self.checksum)

    @classmethod
    def from_dict(cls, data: Any) -> PiciCodec:
        return cls(**data.get("configuration", {}))

    def to_dict(self) -> dict[str, Any]:
        return {"name": _NAME, "configuration": self._options()._asdict()}

    def validate(self, *, shape: Any, dtype: Any, chunk_grid: Any) -> None:
        _chunks.like(_dtype_of(dtype))

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
        raise NotImplementedError  # as codecs whose output may have any size do

    async def _encode_single(self, chunk_data: Any, chunk_spec: Any) -> Any:
        block = await asyncio.to_thread(_chunks.encode, chunk_data.as_numpy_array(), self._options())
        return chunk_spec.prototype.buffer.from_bytes(block)

    async def _decode_single(self, chunk_data: Any, chunk_spec: Any) -> Any:
        dtype = _dtype_of(chunk_spec)
        found = await asyncio.to_thread(_chunks.decode, chunk_data.as_numpy_array(), dtype, chunk_spec.shape)
        return chunk_spec.prototype.nd_buffer.from_ndarray_like(found)


register_codec(_NAME, PiciCodec)
