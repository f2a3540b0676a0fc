# SPDX-License-Identifier: BSD-3-Clause
"""Files of tensors of torch: load() for .pt files, and load_file() and save_file() with the arguments of
safetensors.torch."""
from __future__ import annotations

import io
import os
from collections.abc import Mapping
from typing import Any, BinaryIO, Optional, Union

import torch

import pici

from .. import _arrays, _looks, _original, _safe
from .._arrays import Limit
from .._dtypes import BY_NAME
from .._kwargs import Pack
from .._streams import Path, is_path
from ..errors import about


def load(
    f: Union[Path, BinaryIO],
    map_location: Any = None,
    *,
    weights_only: bool = True,
    threads: int = 1,
    max_bytes: Limit = "auto",
    **options: Any,
) -> Any:
    """Like torch.load(), for a .pt file, and for a .pici file that picitool compress made of one, with its dicts,
    numbers and shared storages. For other .pici files and .safetensors files, a dict of tensors; the latter by a path.

    map_location, weights_only, options: as for torch.load(), but the default is weights_only=True with any version of
        torch: False lets a file run code. mmap has no effect on a .pici file.
    threads, max_bytes: as for pici.load()."""
    told = {"map_location": map_location, "weights_only": weights_only, **options}
    first = _looks.first_of(os.fsdecode(f)) if is_path(f) else _looks.first_in(f)  # type: ignore[arg-type]
    if not _looks.is_pici(first) and not _looks.is_safetensors(first):
        return torch.load(f, **told)
    if _looks.is_pici(first):
        with pici.open(f, threads=threads, max_bytes=max_bytes) as opened:
            if _original.kind(opened) == "pt":
                _arrays.bounded(BY_NAME["u8"], _original.stored_bytes(opened), opened.max_bytes)
                original = io.BytesIO()
                for piece in _original.pieces(opened):
                    original.write(piece)
                original.seek(0)
                return torch.load(original, **{**told, "mmap": None} if "mmap" in told else told)
    if callable(map_location) or isinstance(map_location, Mapping):
        raise TypeError("map_location of a file that is no .pt is a device: pass 'cpu' or 'cuda:0'")
    return _placed(pici.load(f, to="torch", threads=threads, max_bytes=max_bytes), map_location)


def load_file(
    filename: Path, device: Any = "cpu", *, threads: int = 1, max_bytes: Limit = "auto"
) -> dict[str, torch.Tensor]:
    """All tensors of a .pici or .safetensors file, like safetensors.torch.load_file()."""
    return _placed(pici.load(filename, to="torch", threads=threads, max_bytes=max_bytes), device)


def _placed(tensors: dict[str, torch.Tensor], device: Any) -> dict[str, torch.Tensor]:
    if device is None or str(device) == "cpu":
        return tensors
    return {name: t.to(device) for name, t in tensors.items()}


def _on_host(name: str, tensor: torch.Tensor) -> torch.Tensor:
    try:
        return tensor.detach().cpu()
    except (RuntimeError, NotImplementedError) as e:
        raise about(e, f"tensor {name!r}") from e.__cause__


def save_file(
    tensors: Mapping[str, torch.Tensor],
    filename: Path,
    metadata: Optional[Mapping[str, str]] = None,
    *,
    threads: int = 1,
    zstd: int = 0,
    pack: Pack = "planes",
) -> None:
    """Write tensors to a .pici file, like safetensors.torch.save_file(). Copies tensors of a GPU to the host. Stores
    tied tensors several times instead of rejecting them; pici.save() stores them once."""
    held = {name: _on_host(name, t) if isinstance(t, torch.Tensor) else t for name, t in tensors.items()}
    _safe.save_file(held, filename, metadata, threads=threads, zstd=zstd, pack=pack)
