# SPDX-License-Identifier: BSD-3-Clause
"""The dtypes of elements, and their names in NumPy, ml_dtypes, torch and DLPack.

The library has fourteen. This module stores other types as one of these: bool as u8, a complex number as two floats.
The library knows some types only by name, and stores them as bytes.
"""
from __future__ import annotations

import ast
import importlib
import re
from typing import Any, NamedTuple, Optional, Union

import numpy as np

#: values of dtype=: "bf16", "bfloat16", "torch.bfloat16", numpy.float32, a numpy.dtype, a torch.dtype
DTypeLike = Union[str, type, "np.dtype[Any]", Any]


class DType(NamedTuple):
    name: str
    code: int  # enum pici_dtype of the stored elements
    storage: np.dtype[Any]  # NumPy's type of the stored elements, or an unsigned integer of that width
    narrow: str  # "" if NumPy has the type; else its name in ml_dtypes and torch
    dlpack: tuple[int, int]  # DLDataTypeCode, bits
    parts: int = 1  # stored elements of one element: 2 for complex numbers
    only_numpy: Optional[np.dtype[Any]] = None  # times, text, structures, long doubles: the type

    @property
    def plain(self) -> bool:
        """Whether the type is fully known from an array of `storage`."""
        return not self.narrow and self.name in BY_NAME

    @property
    def itemsize(self) -> int:
        return self.parts * self.storage.itemsize


def _table() -> list[DType]:
    inexact, signed, unsigned, bfloat, e4m3fn, e5m2 = 2, 0, 1, 4, 10, 12
    rows = [
        ("f32", "float32", "", inexact),
        ("f64", "float64", "", inexact),
        ("f16", "float16", "", inexact),
        ("bf16", "uint16", "bfloat16", bfloat),
        ("f8e4m3", "uint8", "float8_e4m3fn", e4m3fn),
        ("f8e5m2", "uint8", "float8_e5m2", e5m2),
        ("i8", "int8", "", signed),
        ("u8", "uint8", "", unsigned),
        ("i16", "int16", "", signed),
        ("u16", "uint16", "", unsigned),
        ("i32", "int32", "", signed),
        ("u32", "uint32", "", unsigned),
        ("i64", "int64", "", signed),
        ("u64", "uint64", "", unsigned),
    ]
    return [
        DType(name, code, np.dtype(storage), narrow, (kind, 8 * np.dtype(storage).itemsize))
        for code, (name, storage, narrow, kind) in enumerate(rows, 1)
    ]


ALL = _table()
BY_NAME = {d.name: d for d in ALL}
BY_CODE = {d.code: d for d in ALL}

BOOL = DType("bool", BY_NAME["u8"].code, np.dtype("uint8"), "", (6, 8))
COMPLEX = [
    DType("complex64", BY_NAME["f32"].code, np.dtype("float32"), "", (5, 64), 2),
    DType("complex128", BY_NAME["f64"].code, np.dtype("float64"), "", (5, 128), 2),
]


def _bytes(name: str, narrow: str, dlpack: tuple[int, int]) -> DType:
    return DType(name, BY_NAME["u8"].code, np.dtype("uint8"), narrow, dlpack)


#: two in a byte; the byte is one element here, as in torch
F4 = _bytes("f4e2m1x2", "float4_e2m1fn_x2", (17, 4))
#: four in three bytes; here each byte is an element, since no other library has such arrays
F6 = [_bytes("f6e2m3", "", (15, 6)), _bytes("f6e3m2", "", (16, 6))]
COMPLEX32 = DType("complex32", BY_NAME["f16"].code, np.dtype("float16"), "", (5, 32), 2)
#: types without arithmetic
OPAQUE = [
    _bytes("f8e8m0", "float8_e8m0fnu", (14, 8)),
    _bytes("f8e4m3fnuz", "float8_e4m3fnuz", (11, 8)),
    _bytes("f8e5m2fnuz", "float8_e5m2fnuz", (13, 8)),
    F4,
    *F6,
    COMPLEX32,
]

BY_DLPACK = {d.dlpack: d for d in [*ALL, BOOL, *COMPLEX, *OPAQUE]}
#: by the name in NumPy or ml_dtypes
_BY_NUMPY = {
    **{d.narrow or d.storage.name: d for d in ALL},
    **{d.name: d for d in [BOOL, *COMPLEX, COMPLEX32]},
    **{d.narrow: d for d in OPAQUE if d.narrow},
}
_BY_OWN = {d.name: d for d in [*ALL, *OPAQUE]}
#: common names of weights with two e2m1 in a byte. Their scales are separate arrays
_BY_OWN.update({"mxfp4": F4, "nvfp4": F4})
#: NumPy's own types in native byte order: their arrays need no conversion
PLAIN = {d.storage: d for d in ALL if not d.narrow}
# torch's second names. Without "torch." they would be ambiguous: NumPy's "float" is float64.
_TORCH = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "cfloat": "complex64",
    "cdouble": "complex128",
}


#: types from a file that are safe for NumPy: some others, such as units divided by 0, end the process
_UNIT = r"(?:\[(?:[1-9][0-9]{0,8})?[A-Za-z]{1,9}(?:/[1-9][0-9]{0,8})?\])?"
_TYPE = re.compile(rf"[<>|=]?(?:[?]|[biufcSUV][0-9]{{1,9}}|[mM]8{_UNIT})")
_LITERAL_MOST = 10000  # bytes, as in numpy.load: longer text may be too deep for Python's parser


def _is_type(descr: Any) -> bool:
    """Whether all types in it are safe for NumPy."""
    if isinstance(descr, str):
        return _TYPE.fullmatch(descr) is not None
    if isinstance(descr, tuple):
        return bool(descr) and _is_type(descr[0])
    fields = descr if isinstance(descr, list) else [()]
    return all(isinstance(field, tuple) and len(field) in (2, 3) and _is_type(field[1]) for field in fields)


def of_literal(literal: bytes, stored: DType) -> Optional[DType]:
    """A type that only NumPy has, by the attribute source.npy (formats/attributes.md) of a tensor of `stored`. None: it
    is not such a type, or this NumPy does not have it."""
    if len(literal) > _LITERAL_MOST:
        return None
    try:
        descr = ast.literal_eval(literal.decode())
        if not _is_type(descr):
            return None
        to_dtype: Any = np.lib.format.descr_to_dtype
        dtype: np.dtype[Any] = to_dtype(descr)
    except (ValueError, SyntaxError, TypeError, LookupError, AttributeError, RecursionError, MemoryError):
        return None
    parts, rest = divmod(dtype.itemsize, stored.itemsize)
    storage = {"M": "i64", "m": "i64", "U": "u32"}.get(dtype.kind, "u8")
    if dtype.kind not in "MmUSV" and not (dtype.kind in "fc" and of_numpy(dtype) is None):
        return None
    if dtype.hasobject or dtype.subdtype or not parts or rest or storage != stored.name:
        return None
    if storage != "u8":
        dtype = dtype.newbyteorder("=")  # readers give elements in the host's order
    return stored._replace(name=str(dtype), parts=parts, only_numpy=dtype)


def of_numpy(dtype: np.dtype[Any]) -> Optional[DType]:
    """The dtype of an ndarray's elements, in either byte order; None if it is not supported."""
    return _BY_NUMPY.get(dtype.name)


def named(wanted: DTypeLike) -> DType:
    """The dtype that a caller names. Does not accept NumPy's short codes: "i8" is eight bits here, and eight bytes
    there.
    """
    name = wanted if isinstance(wanted, str) else str(wanted) if type(wanted).__module__ == "torch" else None
    if name is None:
        try:
            name = np.dtype(wanted).name
        except TypeError:
            raise TypeError(f"dtype={wanted!r} is no dtype: pass a name such as 'f32' or 'bfloat16'") from None
    of_torch = name[6:] if name.startswith("torch.") else ""
    full = _TORCH.get(of_torch, of_torch) or name
    d = _BY_NUMPY.get(full) or _BY_OWN.get(full)
    if d is None:
        names = ", ".join(f"{d.name} ({n})" if d.name != n else n for n, d in _BY_NUMPY.items())
        raise ValueError(f"no dtype {name!r}: pass one of {names}")
    return d


def numpy_dtype(d: DType) -> np.dtype[Any]:
    """The dtype of a NumPy array of it; for bf16 and f8, the dtype of ml_dtypes. If neither has it: integers of as many
    bytes.
    """
    if d.only_numpy is not None:
        return d.only_numpy
    if d is F4 or d in F6:
        return d.storage
    if d is COMPLEX32:
        return np.dtype("uint32")
    if not d.narrow:
        return d.storage if d.name in BY_NAME else np.dtype(d.name)
    try:
        dtype: np.dtype[Any] = np.dtype(getattr(importlib.import_module("ml_dtypes"), d.narrow))
        return dtype
    except ImportError as e:
        raise ImportError(
            f"NumPy has no {d.name}: install ml_dtypes, or ask for to='bits' ({d.storage}), 'torch' or 'dlpack'"
        ) from e
