# SPDX-License-Identifier: BSD-3-Clause
"""DLPack import and export for all dtypes; NumPy's own DLPack support has neither bf16 nor f8.

Import: the capsule is kept unchanged for as long as an array uses its memory; then its owner frees it. Export: NumPy
makes a capsule of unsigned integers, and the type in it is set to the real one.
"""
from __future__ import annotations

import ctypes
import sys
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any, Optional

import numpy as np

from . import _dtypes

HOST = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost
READ_ONLY = 1  # a flag in versioned tensors


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),  # in elements; null: row-major
        ("byte_offset", c_uint64),
    ]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    ]


# Prototypes of our own: setting argtypes on ctypes.pythonapi would change them for all users of it.
_is_valid = ctypes.PYFUNCTYPE(c_int, ctypes.py_object, c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(c_void_p, ctypes.py_object, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


def _open(capsule: object) -> tuple[_Tensor, int]:
    """The tensor in a capsule, and its flags."""
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        if versioned.major != 1:
            raise BufferError(f"DLPack of version {versioned.major}.{versioned.minor} is not known here")
        return versioned.tensor, versioned.flags
    if _is_valid(capsule, b"dltensor"):
        return _Tensor.from_address(_pointer(capsule, b"dltensor")), 0
    raise BufferError("not a DLPack capsule, or one that was used already")


class _Holder:
    """Memory for NumPy. An array keeps a reference to this object, and so to the capsule."""

    def __init__(self, capsule: object, interface: dict[str, Any]) -> None:
        self.capsule = capsule
        self.__array_interface__ = interface


def plain(x: Any, written: bool = False) -> Any:
    """x itself; or what it stands for, if it is a tensor of torch that is a lazy conjugate or negative, of which
    torch's __dlpack__ gives the old signs. written: it is written to, so that a copy is of no use."""
    if not isinstance(x, getattr(sys.modules.get("torch"), "Tensor", ())):
        return x
    if hasattr(x, "__tensor_flatten__"):  # of a subclass, as torchao's and DTensor
        parts = x.__tensor_flatten__()[0]
        raise TypeError(f"{type(x).__name__}, which is made of other tensors: pass these ({', '.join(parts)})")
    if not (x.is_conj() or x.is_neg()):
        return x
    if written:
        raise ValueError("a lazy conjugate or negative, which cannot be written to: pass another array")
    return x.resolve_conj().resolve_neg()


def imported(x: Any) -> tuple[np.ndarray[Any, Any], Optional[_dtypes.DType]]:
    """The elements of an object with __dlpack__, without a copy, and their dtype if it has a place here. Elements of
    other types, and of bf16 and f8, are given as unsigned integers."""
    device = int(x.__dlpack_device__()[0])
    if device not in HOST:
        raise BufferError(
            f"the elements are on a device (DLPack's type {device}): bring them to the host first, as with tensor.cpu()"
        )
    try:
        try:
            capsule = x.__dlpack__(max_version=(1, 1))
        except TypeError:  # from before DLPack 1.0, which has no versions
            capsule = x.__dlpack__()
    except RuntimeError as e:  # old versions of torch, where others raise BufferError
        raise BufferError(str(e)) from e
    t, flags = _open(capsule)
    d = _dtypes.BY_DLPACK.get((t.code, t.bits))
    if t.lanes != (2 if d is _dtypes.F4 else 1) or (d is None and t.bits not in (8, 16, 32, 64)) or d in _dtypes.F6:
        raise BufferError(f"unsupported element type: {t.bits} bits, {t.lanes} lanes")
    item = t.bits * t.lanes // 8
    kind = (d.storage if d.plain or d.narrow else _dtypes.numpy_dtype(d)) if d else np.dtype(f"u{item}")
    shape = tuple(t.shape[: t.ndim]) if t.ndim else ()
    if 0 in shape:
        return np.empty(shape, kind), d
    interface = {
        "version": 3,
        "shape": shape,
        "typestr": kind.str,
        "data": (t.data + t.byte_offset, bool(flags & READ_ONLY)),
        "strides": tuple(s * item for s in t.strides[: t.ndim]) if t.strides else None,
    }
    return np.asarray(_Holder(capsule, interface)), d


class DLPackArray:
    """Elements for any consumer of DLPack, such as torch.from_dlpack, with their real dtype."""

    def __init__(self, elements: np.ndarray[Any, Any], dtype: _dtypes.DType) -> None:
        self._elements = elements
        self._dtype = dtype

    def __dlpack__(self, **wanted: Any) -> Any:
        capsule = self._elements.__dlpack__(**wanted)
        t, _ = _open(capsule)
        t.code, t.bits = self._dtype.dlpack
        t.lanes = 2 if self._dtype is _dtypes.F4 else 1
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._elements.__dlpack_device__()
