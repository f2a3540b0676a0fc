# SPDX-License-Identifier: BSD-3-Clause
"""pici.load(), of a file or a folder, and pici.save()."""
from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Optional, Union, overload

import numpy as np

from . import _looks
from ._arrays import Limit, Storage, readable
from ._dlpack import DLPackArray
from ._kwargs import Loading, Pack, Zeros
from ._streams import Path, is_path
from .deltas import SAFETENSORS, Held, arrays_of
from .errors import NoTensorError, about
from .file import File, create, encoded_name, loaded, spelled
from .folders import load_folder

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack

_VIEWS = "source.views"


@overload
def load(
    path: Union[Path, BinaryIO], *, to: Literal["numpy", "bits"] = ..., **options: Unpack[Loading]
) -> dict[str, Storage]:
    ...


@overload
def load(path: Union[Path, BinaryIO], *, to: Literal["torch"], **options: Unpack[Loading]) -> dict[str, torch.Tensor]:
    ...


@overload
def load(path: Union[Path, BinaryIO], *, to: Literal["dlpack"], **options: Unpack[Loading]) -> dict[str, DLPackArray]:
    ...


def load(
    path: Union[Path, BinaryIO],
    *,
    to: str = "numpy",
    names: Optional[Iterable[str]] = None,
    threads: int = 1,
    max_bytes: Limit = "auto",
) -> Any:
    """Read the tensors of a .pici file into a dict, each in its shape: model.load_state_dict(pici.load(p, to="torch")).
    Also reads, by their paths, .safetensors files, and folders: a checkpoint, or a compressed one (help(pici.folders)).
    For other files of tensors, the error names the call that reads them.

    to: "numpy", "torch", "bits" or "dlpack".
    names: the tensors to read; default all.
    threads, max_bytes: as for open(), but max_bytes is for all tensors together.
    """
    if is_path(path) and os.path.isdir(path):  # type: ignore[arg-type]
        return load_folder(path, to=to, names=names, threads=threads, max_bytes=max_bytes)  # type: ignore[arg-type]
    if is_path(path):
        name = os.fsdecode(path)  # type: ignore[arg-type]
        if _looks.is_safetensors(_looks.first_of(name)):
            return _of_safetensors(name, to, names)
    elif _looks.is_safetensors(_looks.first_in(path)):
        raise TypeError("a .safetensors file is read by its path, not from a file object: pass the path")
    with File(path, threads=threads, max_bytes=max_bytes) as f:
        if "delta.version" in f.attrs:
            raise ValueError(f"{f.path} is a delta: apply it with picitool apply, or read its XOR with open()")
        tensors = [f[name] for name in (f if names is None else names)]
        return loaded(tensors, to, f.max_bytes)


def _of_safetensors(path: str, to: str, names: Optional[Iterable[str]]) -> dict[str, Any]:
    wanted = None if names is None else list(names)
    with Held(path, 0, SAFETENSORS):  # which checks its header
        if wanted is None:
            return arrays_of(np.fromfile(path, np.uint8), to)
        found = arrays_of(np.memmap(path, np.uint8, "r"), to, set(wanted))
    for name in wanted:
        if name not in found:
            raise NoTensorError(f"no tensor {name!r} in {path}")
    return {name: found[name] for name in wanted}


def save(
    path: Union[Path, BinaryIO],
    tensors: Mapping[str, Any],
    *,
    format: str = "auto",
    threads: int = 1,
    zstd: int = 0,
    chunk_elements: int = 1 << 20,
    zeros: Zeros = "exact",
    pack: Pack = "none",
    attrs: Optional[Mapping[str, bytes]] = None,
    overwrite: bool = False,
) -> None:
    """Write arrays to a .pici file, by name. Options: as for create(). Torch tensors with the same memory, such as tied
    weights, are stored once, and share memory again after load()."""
    tied = _tied(tensors)
    if tied and not attrs:
        attrs = {_VIEWS: _table(tensors, tied)}
    elif tied and attrs and _VIEWS not in attrs:
        attrs = {**attrs, _VIEWS: _table(tensors, tied)}
    else:
        tied = {}
    with create(
        path,
        format=format,
        threads=threads,
        zstd=zstd,
        chunk_elements=chunk_elements,
        zeros=zeros,
        pack=pack,
        attrs=attrs,
        overwrite=overwrite,
    ) as w:
        for name, array in tensors.items():
            if name in tied:
                continue
            try:
                w.add(name, array)
            except (TypeError, ValueError, BufferError, RuntimeError, NotImplementedError) as e:
                raise about(e, f"tensor {name!r} of {w.path}") from e.__cause__


def _tied(tensors: Mapping[str, Any]) -> dict[str, str]:
    """Names of torch tensors with the memory of another one; with each, the first such name."""
    first: dict[Any, str] = {}
    tied = {}
    for name, x in tensors.items():
        if isinstance(x, np.ndarray) or not hasattr(x, "untyped_storage"):
            continue
        try:
            same = (x.data_ptr(), x.dtype, tuple(x.shape), x.stride(), x.is_conj(), x.is_neg())
            if x.data_ptr() and x.numel() and not x.requires_grad and type(x).__name__ in ("Tensor", "Parameter"):
                if first.setdefault(same, name) != name:
                    tied[name] = first[same]
        except (RuntimeError, NotImplementedError):
            continue  # it has no such memory: save() rejects it later
    return tied


def _table(tensors: Mapping[str, Any], tied: Mapping[str, str]) -> bytes:
    """The attribute that lists tied tensors as views of others (formats/attributes.md, "Views")."""
    numbers = {name: i for i, name in enumerate(n for n in tensors if n not in tied)}
    rows = []
    for name, of in sorted(tied.items(), key=lambda pair: numbers[pair[1]]):
        elements, d = readable(tensors[of])
        shape = elements.shape
        strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        word, key = spelled(d), encoded_name(name)
        text = key + b"\0" + word
        text += bytes(8 - len(text) % 8)
        row = struct.pack("<QQBBBBI", numbers[of], 0, d.code, len(shape), 0, len(word), len(key))
        rows.append(row + struct.pack(f"<{2 * len(shape)}Q", *shape, *strides) + text)
    return struct.pack("<Q", len(rows)) + b"".join(rows)
