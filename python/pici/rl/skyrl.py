# SPDX-License-Identifier: BSD-3-Clause
"""compress_bytes() and decompress_bytes() for SkyRL's deltas: a block, and zstd over it.

    from skyrl.backends.skyrl_train.weight_sync import delta_payload
    delta_payload.compress_bytes = pici.rl.skyrl.compress_bytes
    delta_payload.decompress_bytes = pici.rl.skyrl.decompress_bytes

on the trainer and on all servers, before SkyRL imports delta_checkpoint. SkyRL compresses the XOR of the bytes of a
tensor, which is mostly zero. A block stores the positions of changes in fewer bytes than zstd does, and zstd then
shortens their bits. The old weights are not known here, so the result is larger than the small deltas of pici.vllm.

Names were read from NovaSky-AI/SkyRL at 05aa2781 (skyrl/backends/skyrl_train/weight_sync/delta_payload.py).
"""
from __future__ import annotations

import importlib
from typing import Any, Optional

import numpy as np

from ..codec import bound, compress, decompress, inspect
from ..errors import CorruptError

MAGIC = b"pici-xor"


def compress_bytes(data: bytes, level: int = 3) -> bytes:
    """Compress the XOR of a tensor's bytes, in which elements of two bytes change."""
    elements = np.frombuffer(data, np.uint8 if len(data) % 2 else np.uint16)
    block = compress(elements, checksum=True)
    body: bytes = _zstandard().ZstdCompressor(level=level).compress(block)
    return MAGIC + body


def decompress_bytes(data: bytes, expected_size: Optional[int] = None) -> bytes:
    """ValueError: damaged, or of another size."""
    if data[: len(MAGIC)] != MAGIC:
        raise ValueError("not what pici.rl.skyrl.compress_bytes() makes: the trainer compresses otherwise")
    zstandard = _zstandard()
    most = 0 if expected_size is None else max(bound(expected_size, "u8"), bound(expected_size // 2, "u16"))
    try:
        if expected_size is not None and zstandard.frame_content_size(data[len(MAGIC) :]) > most:
            raise ValueError(f"more than {expected_size} bytes were compressed")
        block = zstandard.ZstdDecompressor().decompress(data[len(MAGIC) :], max_output_size=most)
    except zstandard.ZstdError as e:
        raise CorruptError(f"zstd: {e}") from None
    info = inspect(block)
    if info.dtype not in ("u8", "u16"):
        raise ValueError(f"elements of {info.dtype}, which pici.rl.skyrl.compress_bytes() does not make")
    size = info.count * (2 if info.dtype == "u16" else 1)
    if expected_size is not None and size != expected_size:
        raise ValueError(f"Expected decompressed size {expected_size}, got {size}")
    return bytes(decompress(block, max_bytes=None if expected_size is not None else "auto").tobytes())


def _zstandard() -> Any:
    return importlib.import_module("zstandard")  # which SkyRL needs too
