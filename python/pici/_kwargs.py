# SPDX-License-Identifier: BSD-3-Clause
"""Options that several functions, or several overloads of one function, share: the types of their keyword arguments."""
from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Optional, TypedDict, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Unpack as Unpack

    from ._arrays import Limit
    from ._dtypes import DTypeLike
else:
    try:
        from typing import Unpack
    except ImportError:  # before Python 3.11

        class Unpack:
            """This lets typing.get_type_hints() find the name."""

            def __class_getitem__(cls, known: Any) -> Any:
                return Any


Function = TypeVar("Function", bound=Callable[..., Any])

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


def showing(known: Any) -> Callable[[Function], Function]:
    """For a function whose **options have the keys of a TypedDict: inspect.signature() and help() show each option,
    with its default.
    """

    def shown(function: Function) -> Function:
        signature = inspect.signature(function)
        *own, rest = signature.parameters.values()
        assert rest.kind is rest.VAR_KEYWORD
        for name, hint in known.__annotations__.items():
            default = "exact" if name == "zeros" else None
            hint = getattr(hint, "__forward_arg__", hint)
            own.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint))
        function.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
        return function

    return shown


def no_pickle(what: Any, instead: str) -> NoReturn:
    """Refuse to pickle an object. copy.copy() calls this too."""
    raise TypeError(f"a pici.{type(what).__name__} is not pickled: {instead}")


def only(function: str, known: Any, given: Any) -> None:
    """Raise Python's own TypeError for options that are not in `known`, a TypedDict."""
    if not given.keys() <= known.__optional_keys__:
        name = next(iter(given.keys() - known.__optional_keys__))
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
