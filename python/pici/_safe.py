# SPDX-License-Identifier: BSD-3-Clause
"""load_file(), save_file() and safe_open() with the arguments of the package safetensors: a script only changes one
import. pici.torch has the versions for torch. They read .pici and .safetensors files, and write .pici files, which
picitool decompress turns into .safetensors files."""
from __future__ import annotations

import json
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Optional, Union

import numpy as np

from . import _looks
from ._arrays import Limit, Storage
from ._kwargs import Pack
from ._load import load
from ._streams import Path
from .deltas import SAFETENSORS, WORDS, Held, arrays_of, check_utf8, safetensors_head, taken_array
from .errors import CorruptError, NoTensorError
from .file import File, Tensor, create

_F6_WORDS = {"f6e2m3": "F6_E2M3", "f6e3m2": "F6_E3M2"}
_FRAMEWORKS = {"np": "numpy", "numpy": "numpy", "pt": "torch", "torch": "torch", "pytorch": "torch"}


def load_file(filename: Path, *, threads: int = 1, max_bytes: Limit = "auto") -> dict[str, Storage]:
    """All tensors of a .pici or .safetensors file, as arrays, like safetensors.numpy.load_file(). For torch tensors,
    use pici.torch.load_file(). threads, max_bytes: as for load()."""
    return load(filename, threads=threads, max_bytes=max_bytes)


def save_file(
    tensor_dict: Mapping[str, Any],
    filename: Path,
    metadata: Optional[Mapping[str, str]] = None,
    *,
    threads: int = 1,
    zstd: int = 0,
    pack: Pack = "planes",
) -> None:
    """Write arrays to a .pici file, replacing an existing one, like safetensors.numpy.save_file(). picitool decompress
    turns it into a .safetensors file.

    metadata: strings by name, for safe_open(...).metadata().
    threads, zstd, pack: as for create(). Use pack="none" for readers with pici 0.2."""
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"metadata[{key!r}]: names and values are str, as in str(value)")
        check_utf8(key)
        check_utf8(value)
    taken = {name: taken_array(name, x) for name, x in tensor_dict.items()}
    order, head = safetensors_head(taken, metadata)
    attrs = {"source.type": b"safetensors", "source.head": head}
    with create(filename, threads=threads, zstd=zstd, pack=pack, attrs=attrs, overwrite=True) as w:
        for name in order:
            x, d = taken[name]
            x = x.astype(x.dtype.newbyteorder("="), copy=False)
            shape = x.shape if d.parts == 1 else x.shape[:-1]
            w.begin(name, shape, d.name, attrs={"source.dtype": WORDS[d].encode()})
            w._write(None, x, d)


class Slice:
    """A tensor of a file; indexing it reads a part. Made by safe_open.get_slice()."""

    def __init__(self, tensor: Union[Tensor, Any], word: str, to: str, device: Any) -> None:
        self._tensor = tensor
        self._word = word
        self._to = to
        self._device = device

    def get_shape(self) -> list[int]:
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        """The dtype as a .safetensors file spells it: "F32", "BF16"."""
        return self._word

    def __getitem__(self, key: Any) -> Any:
        """The elements that integers, slices and an ellipsis select. From a .pici file, reads only the chunks that
        leading integers and the first slice select."""
        if isinstance(self._tensor, Tensor):
            return _placed(self._tensor.part(key, self._to), self._device)
        return _placed(_own(self._tensor[key]), self._device)


def _own(found: Any) -> Any:
    """A copy of an array of NumPy of a mapped file. Torch tensors of one open .safetensors file share its memory, as
    with safetensors."""
    return np.array(found) if isinstance(found, np.ndarray) else found


def _word(tensor: Tensor) -> str:
    """The dtype as a .safetensors file spells it; else pici's name."""
    return WORDS.get(tensor._d, _F6_WORDS.get(tensor.dtype, tensor.dtype))


def _placed(tensor: Any, device: Any) -> Any:
    return tensor if device is None else tensor.to(device)


class safe_open:
    """A .pici or .safetensors file that reads tensors on demand, like safetensors.safe_open().

    framework: "np" or "numpy", "pt" or "torch".
    device: the device of torch tensors; "cpu" for arrays.
    threads, max_bytes: as for pici.open()."""

    def __init__(
        self, filename: Path, framework: str, device: Any = "cpu", *, threads: int = 1, max_bytes: Limit = "auto"
    ) -> None:
        if framework not in _FRAMEWORKS:
            raise ValueError(f"framework={framework!r}: pass one of {', '.join(_FRAMEWORKS)}")
        self._to = _FRAMEWORKS[framework]
        if self._to == "numpy" and str(device) != "cpu":
            raise ValueError(
                f"device={device!r}: arrays of NumPy are in the host's memory: pass 'cpu', or framework='pt'"
            )
        self._device = None if str(device) == "cpu" else device
        self._path = os.fsdecode(filename)
        self._words: dict[str, str] = {}
        self._mapped: Optional[dict[str, Any]] = None
        self._file: Optional[File] = None
        if not _looks.is_safetensors(_looks.first_of(self._path)):
            self._file = File(filename, threads=threads, max_bytes=max_bytes)
            self._head = self._file.attrs.get("source.head", b"") if self._is_safetensors(self._file) else b""
            return
        with Held(filename, 0, SAFETENSORS):  # which checks its header
            whole = np.memmap(self._path, np.uint8, "c")  # a caller may change its copy
            self._head = whole[: 8 + int.from_bytes(whole[:8].tobytes(), "little")].tobytes()
            self._mapped = arrays_of(whole, self._to)

    @staticmethod
    def _is_safetensors(f: File) -> bool:
        return f.attrs.get("source.type") == b"safetensors"

    def keys(self) -> list[str]:
        return list(self._open())

    def offset_keys(self) -> list[str]:
        """The names, in the order of the file."""
        return self.keys()

    def metadata(self) -> Optional[dict[str, str]]:
        """The metadata passed to save_file(), or of the .safetensors file; None if there is none."""
        found = self._json().get("__metadata__")
        if found is None:
            return None
        if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
            raise CorruptError(f"{self._path}: the metadata are no texts by name")
        return found

    def get_tensor(self, name: str) -> Any:
        found: Any = self._found(name)
        return _placed(_own(found) if self._mapped is not None else found.read(to=self._to), self._device)

    def get_slice(self, name: str) -> Slice:
        found = self._found(name)
        if isinstance(found, Tensor):
            return Slice(found, _word(found), self._to, self._device)
        return Slice(found, self._json()[name]["dtype"], self._to, self._device)

    def _json(self) -> dict[str, Any]:
        try:
            found = json.loads(self._head[8:]) if self._head else {}
        except (ValueError, RecursionError) as e:
            raise CorruptError(f"{self._path}: the head of the .safetensors file is no JSON: {e}") from None
        if not isinstance(found, dict):
            raise CorruptError(f"{self._path}: the head of the .safetensors file is no table")
        return found

    def _open(self) -> Mapping[str, Any]:
        found = self._mapped if self._mapped is not None else self._file
        if found is None:
            raise ValueError("the file is closed: read its tensors inside the with statement, or open it again")
        return found

    def _found(self, name: str) -> Any:
        tensors = self._open()
        if name not in tensors:
            raise NoTensorError(f"no tensor {name!r} in {self._path}: keys() has all names")
        return tensors[name]

    def __enter__(self) -> safe_open:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self._file is not None:
            self._file.close()
        self._file = self._mapped = None
