# SPDX-License-Identifier: BSD-3-Clause
"""Compressed distributed checkpoints of torch (torch.distributed.checkpoint, torch 2.7 or later):

    dcp.save(state, storage_writer=pici.torch.checkpoint.Writer(folder))       # or dcp.async_save
    dcp.load(state, storage_reader=pici.torch.checkpoint.Reader(folder))

torch does the sharding, and the resharding when loading. For other writers, pass the extension:
FileSystemWriter(folder, _extensions=[pici.torch.checkpoint.Pici()]). Readers then need registry().

The bytes that torch writes for a tensor become a stream of frames; all numbers are little-endian:

    bytes                                                                        what
    8                                                                            "PICISTR1"
    for each frame: 4, then as many as these say, which are more than none       the length of a block, and the block
    4                                                                            0: the end

A block (formats/block.md) has at most 4 MiB of elements. The elements of all blocks, concatenated and little-endian,
are the bytes that torch wrote. Readers ignore bytes after the end. A writer stores 4 MiB in each block except the last
ones, with a checksum, and the bytes of an incomplete last element in a last block of u8. It takes the type from the
storage that torch names in the first 4096 bytes, or u8 without one. The type is a hint: each block has its own
dtype."""
from __future__ import annotations

import io
from typing import IO, Any, Optional, cast

import numpy as np
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint._extension import ExtensionRegistry, StreamTransformExtension

import pici

from .._dtypes import named
from .._kwargs import Pack
from ..codec import pack_code

_MAGIC = b"PICISTR1"
_FRAME = 1 << 22  # bytes; torch aligns elements to 64 in what it writes
_HINTS = (
    (b"BFloat16Storage", "bf16"),
    (b"HalfStorage", "f16"),
    (b"DoubleStorage", "f64"),
    (b"FloatStorage", "f32"),
    (b"LongStorage", "i64"),
    (b"IntStorage", "i32"),
)
_HINT_BYTES = 4096


def _hint(first: bytes) -> str:
    """The type of most elements of a stream, from its first bytes."""
    return next((dtype for word, dtype in _HINTS if word in first), "u8")


class _Out(io.RawIOBase):
    """A stream that compresses to another."""

    def __init__(self, to: IO[bytes], pack: Pack) -> None:
        self._to = to
        self._pack = pack
        self._rest = bytearray()
        self._dtype = ""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for at in range(0, len(view), _FRAME):
            self._rest += view[at : at + _FRAME]
            if len(self._rest) >= _FRAME:
                self._begin()
                self._frame(bytes(self._rest[:_FRAME]), self._dtype)
                del self._rest[:_FRAME]
        return len(view)

    def _begin(self) -> None:
        if not self._dtype:
            self._dtype = _hint(bytes(self._rest[:_HINT_BYTES]))
            self._to.write(_MAGIC)

    def _frame(self, data: bytes, dtype: str) -> None:
        elements = np.frombuffer(data, named(dtype).storage.newbyteorder("<"))
        block = pici.compress(elements, dtype=dtype, pack=self._pack, checksum=True)
        self._to.write(len(block).to_bytes(4, "little"))
        self._to.write(block)

    def close(self) -> None:
        if self.closed:
            return
        self._begin()
        even = len(self._rest) - len(self._rest) % named(self._dtype).itemsize
        for part, dtype in ((self._rest[:even], self._dtype), (self._rest[even:], "u8")):
            if part:
                self._frame(bytes(part), dtype)
        self._to.write(bytes(4))
        super().close()
        self._to.close()


class _In(io.RawIOBase):
    """A stream that decompresses another."""

    def __init__(self, of: IO[bytes]) -> None:
        self._of = of
        self._ready = memoryview(b"")
        self._ended = False
        if self._exactly(len(_MAGIC)) != _MAGIC:
            raise pici.CorruptError("the stream is not one of pici.torch.checkpoint")

    def readable(self) -> bool:
        return True

    def _exactly(self, n: int) -> bytes:
        found = bytearray()
        while len(found) < n:
            piece = self._of.read(n - len(found))
            if not piece:
                raise pici.CorruptError("the stream is cut")
            found += piece
        return bytes(found)

    def _frame(self) -> None:
        length = int.from_bytes(self._exactly(4), "little")
        if length == 0:
            self._ended = True
            return
        if length > pici.bound(_FRAME, "u8"):
            raise pici.CorruptError(f"a frame of {length} bytes")
        block = self._exactly(length)
        info = pici.inspect(block)
        if info.count * named(info.dtype).itemsize > _FRAME:
            raise pici.CorruptError(f"a frame of {info.count} elements of {info.dtype}")
        found = pici.decompress(block, to="bits")
        self._ready = found.astype(found.dtype.newbyteorder("<"), copy=False).view(np.uint8).data

    def readinto(self, room: Any) -> int:
        while not self._ready and not self._ended:
            self._frame()
        n = min(len(room), len(self._ready))
        memoryview(room)[:n] = self._ready[:n]
        self._ready = self._ready[n:]
        return n


class Pici(StreamTransformExtension):
    """The extension. pack: as for pici.compress(), but "planes" by default."""

    def __init__(self, pack: Pack = "planes") -> None:
        pack_code(pack)
        self._pack = pack

    @staticmethod
    def registry_name() -> str:
        return "stream.pici"

    @staticmethod
    def from_descriptor(version: str) -> Pici:
        if version.partition(".")[0] != "1":
            raise ValueError(f"the checkpoint was written by version {version!r} of {Pici.registry_name()}, not 1")
        return Pici()

    def get_descriptor(self) -> str:
        return f"{self.registry_name()}/1"

    def transform_to(self, output: IO[bytes]) -> IO[bytes]:
        return cast(IO[bytes], _Out(output, self._pack))

    def transform_from(self, input: IO[bytes]) -> IO[bytes]:
        return cast(IO[bytes], io.BufferedReader(_In(input)))


def registry() -> ExtensionRegistry:
    """torch's registry with this extension, for readers."""
    known = ExtensionRegistry()
    known.register(Pici)
    return known


class Writer(FileSystemWriter):
    """torch's FileSystemWriter with the extension. options: as for FileSystemWriter."""

    def __init__(self, path: Any, *, pack: Pack = "planes", **options: Any) -> None:
        super().__init__(path, _extensions=[Pici(pack)], **options)


class Reader(FileSystemReader):
    """torch's FileSystemReader with the extension. It also reads uncompressed checkpoints."""

    def __init__(self, path: Any, _extension_registry: Optional[ExtensionRegistry] = None) -> None:
        super().__init__(path, _extension_registry=_extension_registry or registry())
