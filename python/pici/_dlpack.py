# SPDX-License-Identifier: BSD-3-Clause
"""DLPack import and export for all dtypes; NumPy's own DLPack support has neither bf16 nor f8.

Import: an array keeps the capsule unchanged while it uses the memory; then the capsule's owner frees it. Export: NumPy
makes a capsule of unsigned integers, and this module sets the real type in it.
"""
from __future__ import annotations

import sys
from typing import Any, Optional

import numpy as np

from . import _codec, _dtypes

HOST = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost
READ_ONLY = 1  # a flag in versioned tensors


class _Holder:
    """Memory for NumPy. An array keeps a reference to this object, and so to the capsule."""

    def __init__(self, capsule: object, interface: dict[str, Any]) -> None:
        self.capsule = capsule
        self.__array_interface__ = interface


def plain(x: Any, written: bool = False) -> Any:
    """x itself; or the elements it stands for, if it is a lazy conjugate or negative of torch. torch's __dlpack__ would
    give the old signs. written: the caller writes to it, so a copy would be useless.
    """
    if not isinstance(x, getattr(sys.modules.get("torch"), "Tensor", ())):
        return x
    if hasattr(x, "__tensor_flatten__"):  # of a subclass, such as torchao's and DTensor
        parts = x.__tensor_flatten__()[0]
        raise TypeError(f"{type(x).__name__}, which is made of other tensors: pass these ({', '.join(parts)})")
    if not (x.is_conj() or x.is_neg()):
        return x
    if written:
        raise ValueError("a lazy conjugate or negative, which cannot be written to: pass another array")
    return x.resolve_conj().resolve_neg()


def imported(x: Any) -> tuple[np.ndarray[Any, Any], Optional[_dtypes.DType]]:
    """The elements of an object with __dlpack__, without a copy, and their dtype if it is supported. Elements of bf16,
    f8 and other types become unsigned integers.
    """
    device = int(x.__dlpack_device__()[0])
    if device not in HOST:
        raise BufferError(
            f"the elements are on a device (DLPack's type {device}): bring them to the host first, as with tensor.cpu()"
        )
    try:
        try:
            capsule = x.__dlpack__(max_version=(1, 1))
        except TypeError:  # older than DLPack 1.0: without versions
            capsule = x.__dlpack__()
    except RuntimeError as e:  # old versions of torch, where others raise BufferError
        raise BufferError(str(e)) from e
    address, code, bits, lanes, shape, strides, flags = _codec.dlpack_open(capsule)
    d = _dtypes.BY_DLPACK.get((code, bits))
    if lanes != (2 if d is _dtypes.F4 else 1) or (d is None and bits not in (8, 16, 32, 64)) or d in _dtypes.F6:
        raise BufferError(f"unsupported element type: {bits} bits, {lanes} lanes")
    item = bits * lanes // 8
    kind = (d.storage if d.plain or d.narrow else _dtypes.numpy_dtype(d)) if d else np.dtype(f"u{item}")
    if 0 in shape:
        return np.empty(shape, kind), d
    interface = {
        "version": 3,
        "shape": shape,
        "typestr": kind.str,
        "data": (address, bool(flags & READ_ONLY)),
        "strides": None if strides is None else tuple(s * item for s in strides),
    }
    return np.asarray(_Holder(capsule, interface)), d


class DLPackArray:
    """Elements for any consumer of DLPack, such as torch.from_dlpack, with their real dtype."""

    def __init__(self, elements: np.ndarray[Any, Any], dtype: _dtypes.DType) -> None:
        self._elements = elements
        self._dtype = dtype

    def __dlpack__(self, **wanted: Any) -> Any:
        capsule = self._elements.__dlpack__(**wanted)
        _codec.dlpack_retype(capsule, *self._dtype.dlpack, 2 if self._dtype is _dtypes.F4 else 1)
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._elements.__dlpack_device__()
