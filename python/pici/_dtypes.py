# SPDX-License-Identifier: BSD-3-Clause
"""The fourteen dtypes, and their names in NumPy, ml_dtypes, torch and DLPack."""
from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import numpy as np


class DType(NamedTuple):
    name: str
    code: int  # enum pici_dtype
    storage: np.dtype[Any]  # NumPy's type; if NumPy has none, the unsigned integer of that width
    narrow: str  # "" if NumPy has the type; else its name in ml_dtypes and torch
    dlpack: tuple[int, int]  # DLDataTypeCode, bits


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
BY_DLPACK = {d.dlpack: d for d in ALL}
#: by the name in NumPy or ml_dtypes
BY_NUMPY = {d.narrow or d.storage.name: d for d in ALL}


def named(name: str) -> DType:
    try:
        return BY_NAME[name]
    except KeyError:
        raise ValueError(f"no dtype {name!r}: there are {', '.join(BY_NAME)}") from None


def numpy_dtype(d: DType) -> np.dtype[Any]:
    """The dtype of a NumPy array of it; for bf16 and f8, that of ml_dtypes."""
    if not d.narrow:
        return d.storage
    try:
        dtype: np.dtype[Any] = np.dtype(getattr(importlib.import_module("ml_dtypes"), d.narrow))
        return dtype
    except ImportError as e:
        raise ImportError(
            f"NumPy has no {d.name}: install ml_dtypes, or ask for to='bits' ({d.storage}), 'torch' or 'dlpack'"
        ) from e
