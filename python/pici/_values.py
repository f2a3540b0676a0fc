# SPDX-License-Identifier: BSD-3-Clause
"""Lossy codecs: the option values of collectives."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Optional, Union

from . import _buffers, _codec
from ._buffers import Buffer, Memory
from ._dtypes import DTypeLike
from ._gpu import Order

Codec = Literal["exact", "cast", "qsgd", "zfp"]


@dataclass(frozen=True)
class Values:
    """A lossy codec with its parameters. It rounds the elements of a collective's messages. None means a parameter's
    default. All parameters except residual must be the same on all ranks. docs/explanation/values.md describes the
    effect on results."""

    codec: Codec
    #: which messages: "reduce", messages that reduce; "gather", messages that gather results; or both
    phases: Literal["both", "reduce", "gather"] = "both"
    #: cast: "bf16" (default) or "f16" for f32, "f32" for f64
    cast: Optional[str] = None
    #: qsgd: of an element, 2, 4 or 8 (default)
    bits: Optional[int] = None
    #: qsgd: elements that share a scale: a power of two from 64 to 4096; 1024 by default
    bucket: Optional[int] = None
    #: qsgd: the scale: the greatest magnitude, or the 2-norm
    norm: Literal["max", "l2"] = "max"
    #: qsgd: "random" is unbiased; "nearest" has less error: use it with a residual
    rounding: Literal["random", "nearest"] = "random"
    #: qsgd: of random rounding
    seed: int = 0
    #: zfp: bits of an element, or the greatest absolute error of each encoding: one of the two
    rate: Optional[float] = None
    tolerance: Optional[float] = None
    #: zfp: elements of a row, rows of a plane; None: one dimension, or two
    nx: Optional[int] = None
    ny: Optional[int] = None
    #: an array of send's length and dtype; the call adds this rank's rounding errors to it
    residual: Any = None


ValuesLike = Union[Values, Mapping[str, Any]]


def _choice(name: str, value: Any, choices: dict[str, int]) -> int:
    code = choices.get(value)
    if code is None:
        raise ValueError(f"values: {name}={value!r}: pass one of {', '.join(repr(choice) for choice in choices)}")
    return code


def _whole(name: str, value: Optional[int], most: int) -> int:
    if value is None:
        return 0
    if isinstance(value, float) or not 0 <= value <= most:
        raise ValueError(f"values: {name} is {value}, not a whole number from 0 to {most}")
    return value


def _positive(name: str, value: Optional[float]) -> float:
    if value is None:
        return 0
    if not 0 < value < float("inf"):
        raise ValueError(f"values: {name} is {value}, not a number above 0")
    return value


def _checked(v: Values) -> _codec.Values:
    return _codec.values(
        codec=_choice("codec", v.codec, _codec.VALUE_CODECS),
        phases=_choice("phases", v.phases, {"both": 0, "reduce": 1, "gather": 2}),
        cast=0 if v.cast is None else _choice("cast", v.cast, {"bf16": 4, "f16": 3, "f32": 1}),
        bits=_whole("bits", v.bits, 2**31 - 1),
        norm=_choice("norm", v.norm, _codec.NORMS),
        rounding=_choice("rounding", v.rounding, _codec.ROUNDINGS),
        bucket=_whole("bucket", v.bucket, 2**32 - 1),
        seed=_whole("seed", v.seed, 2**64 - 1),
        rate=_positive("rate", v.rate),
        tolerance=_positive("tolerance", v.tolerance),
        nx=_whole("nx", v.nx, 2**32 - 1),
        ny=_whole("ny", v.ny, 2**32 - 1),
    )


def check(v: Values) -> None:
    """ValueError if a parameter is invalid for every use."""
    _checked(v)


def prepared(
    values: Optional[ValuesLike], send: Buffer, dtype: Optional[DTypeLike], on_gpu: Optional[Order]
) -> tuple[Optional[_codec.Values], Optional[Memory]]:
    """The lossy codec as _codec takes it, and its residual's memory."""
    if values is None:
        return None, None
    v = values if isinstance(values, Values) else Values(**values)
    codec = _checked(v)
    residual = None
    if v.residual is not None:
        residual = _buffers.written(v.residual, send, send.n, dtype, on_gpu, "residual")
    return codec, residual
