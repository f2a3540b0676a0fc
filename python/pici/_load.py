# SPDX-License-Identifier: BSD-3-Clause
"""pici.load(): the tensors of a file or of a folder."""
from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Optional, Union, overload

from ._arrays import Limit, Storage
from ._dlpack import DLPackArray
from ._streams import Path, is_path
from .file import File, loaded
from .folders import load_folder

if TYPE_CHECKING:
    import torch


@overload
def load(
    path: Union[Path, BinaryIO],
    *,
    to: Literal["numpy", "bits"] = ...,
    names: Optional[Iterable[str]] = ...,
    threads: int = ...,
    max_bytes: Limit = ...,
) -> dict[str, Storage]:
    ...


@overload
def load(
    path: Union[Path, BinaryIO],
    *,
    to: Literal["torch"],
    names: Optional[Iterable[str]] = ...,
    threads: int = ...,
    max_bytes: Limit = ...,
) -> dict[str, torch.Tensor]:
    ...


@overload
def load(
    path: Union[Path, BinaryIO],
    *,
    to: Literal["dlpack"],
    names: Optional[Iterable[str]] = ...,
    threads: int = ...,
    max_bytes: Limit = ...,
) -> dict[str, DLPackArray]:
    ...


def load(
    path: Union[Path, BinaryIO],
    *,
    to: str = "numpy",
    names: Optional[Iterable[str]] = None,
    threads: int = 1,
    max_bytes: Limit = "auto",
) -> Any:
    """Read the tensors of a .pici file to a dict, each in its shape: model.load_state_dict(pici.load(p, to="torch")).
    Also those of a folder: a checkpoint in shards, or what compress_folder() made of one (help(pici.folders)).

    to: "numpy", "torch", "bits" or "dlpack".
    names: those to read; default all.
    threads, max_bytes: as for open(), but max_bytes is for all tensors together.
    """
    if is_path(path) and os.path.isdir(path):  # type: ignore[arg-type]
        return load_folder(path, to=to, names=names, threads=threads, max_bytes=max_bytes)  # type: ignore[arg-type]
    with File(path, threads=threads, max_bytes=max_bytes) as f:
        if "delta.version" in f.attrs:
            raise ValueError(f"{f.path} is a delta: apply it with picitool apply, or read its XOR with open()")
        tensors = [f[name] for name in (f if names is None else names)]
        return loaded(tensors, to, f.max_bytes)
