# SPDX-License-Identifier: BSD-3-Clause
"""Options that several functions, or several overloads of one, have in common: the types of their keyword arguments."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Optional, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._arrays import Limit
    from ._dtypes import DTypeLike

Zeros = Literal["exact", "value"]
Pack = Literal["none", "planes", "fast"]
Select = Literal["bucket", "global", "sampled"]


class Decoding(TypedDict, total=False):
    threads: int
    max_bytes: Limit


class DecodingAs(Decoding, total=False):
    dtype: Optional[DTypeLike]


class Loading(Decoding, total=False):
    names: Optional[Iterable[str]]


class Encoding(TypedDict, total=False):
    format: str
    dtype: Optional[DTypeLike]
    threads: int
    checksum: bool
    zeros: Zeros
    pack: Pack


class Selecting(TypedDict, total=False):
    select: Select
    bucket: int
    k: int
    density: float
    sample: float
    rate: float
    leak: float
    momentum: float
    seed: int
    step: int
    dtype: Optional[DTypeLike]
    threads: int


def only(function: str, known: Any, given: Any) -> None:
    """TypeError if options are given that are not in `known`, a TypedDict, as Python raises it."""
    if not given.keys() <= known.__optional_keys__:
        name = next(iter(given.keys() - known.__optional_keys__))
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
