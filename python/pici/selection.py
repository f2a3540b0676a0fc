# SPDX-License-Identifier: BSD-3-Clause
"""Top-k selection with error feedback: keep the largest elements of a gradient, and add the rest to the next gradient.

    residual = np.zeros_like(gradient)
    for step in range(steps):
        gradient = ...
        out, nnz = pici.topk(gradient, residual, select="global", density=0.01)
        block = pici.compress(out)

The arrays residual and velocity are the state of a selection. Start with zeros, and save them with the model. What
help(pici.codec) says of arrays, dtype, threads and `to` holds here too. Elements are f32, f64, f16 or bf16.
"""
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, Optional, overload

import numpy as np

from . import _arrays, _codec
from ._arrays import Storage
from ._dlpack import DLPackArray
from ._dtypes import BY_NAME, DType, DTypeLike
from ._kwargs import Select, Selecting
from ._ranges import u31, u32, u64
from .codec import Array
from .errors import ArgumentError, about, make

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack

_DTYPES = [BY_NAME[name] for name in ("f32", "f64", "f16", "bf16")]


def _number(value: float, what: str, ok: bool, range: str) -> float:
    if not ok:
        raise ValueError(f"{what} is {value}, not {range}")
    return value


def _opts(
    select: str,
    bucket: int,
    k: int,
    density: float,
    sample: float,
    rate: float,
    leak: float,
    momentum: float,
    seed: int,
    step: int,
    threads: int,
) -> _codec.TopkOpts:
    """The options of _codec.topk(), each in its range."""
    if select not in _codec.SELECT:
        raise ValueError(f"no select={select!r}: pass one of {', '.join(map(repr, _codec.SELECT))}")
    bucket = u32(bucket, "bucket")
    with np.errstate(over="ignore"):
        factors = float(np.float32(rate)), float(np.float32(leak)), float(np.float32(momentum))
    _number(rate, "rate", math.isfinite(factors[0]), "a finite float of 32 bits")
    _number(leak, "leak", 0 <= factors[1] <= 1, "from 0 to 1")
    _number(momentum, "momentum", 0 <= factors[2] < 1, "from 0 to less than 1")
    return (
        _codec.SELECT[select],
        bucket,
        int(_number(u32(k, "k"), "k", k <= bucket, f"from 1 to the {bucket} of bucket")),
        _number(density, "density", 0 < density <= 1, "above 0 and at most 1"),
        _number(sample, "sample", 0 <= sample <= 1, "from 0 to 1"),
        *factors,
        u64(seed, "seed"),
        u64(step, "step"),
        u31(threads, "threads"),
    )


def _written(x: Any, what: str, like: Storage, d: DType, dtype: Optional[DTypeLike]) -> Storage:
    """The memory of an array to write, which must be like the gradient."""
    try:
        array, _ = _arrays.writable(x, d, like.size, dtype, what)
    except (TypeError, ValueError, BufferError, RuntimeError, NotImplementedError) as e:
        raise e if what in str(e) else about(e, what) from e.__cause__
    if not array.flags.writeable:
        raise ValueError(f"{what} is read-only: pass an array that may be written to")
    return array


@overload
def topk(
    gradient: Any,
    residual: Any = ...,
    velocity: Any = ...,
    *,
    to: Literal["numpy", "bits"] = ...,
    out: None = ...,
    **options: Unpack[Selecting],
) -> tuple[Storage, int]:
    ...


@overload
def topk(
    gradient: Any,
    residual: Any = ...,
    velocity: Any = ...,
    *,
    to: Literal["torch"],
    out: None = ...,
    **options: Unpack[Selecting],
) -> tuple[torch.Tensor, int]:
    ...


@overload
def topk(
    gradient: Any,
    residual: Any = ...,
    velocity: Any = ...,
    *,
    to: Literal["dlpack"],
    out: None = ...,
    **options: Unpack[Selecting],
) -> tuple[DLPackArray, int]:
    ...


@overload
def topk(
    gradient: Any, residual: Any = ..., velocity: Any = ..., *, out: Array, **options: Unpack[Selecting]
) -> tuple[Array, int]:
    ...


def topk(
    gradient: Any,
    residual: Any = None,
    velocity: Any = None,
    *,
    select: Select = "bucket",
    bucket: int = 512,
    k: int = 4,
    density: float = 0.01,
    sample: float = 0.001,
    rate: float = 1.0,
    leak: float = 1.0,
    momentum: float = 0.0,
    seed: int = 0,
    step: int = 0,
    dtype: Optional[DTypeLike] = None,
    threads: int = 1,
    to: str = "numpy",
    out: Any = None,
) -> tuple[Any, int]:
    """Keep the largest elements of leak * residual + rate * gradient. Returns (out, number of kept elements). out has
    these elements in the gradient's shape, and +0 elsewhere. residual gets all others, and +0 where elements were kept.

    residual: an array like gradient, changed in place. None: elements that are not kept are lost.
    velocity: an array like gradient, changed in place; required if momentum is above 0, else not allowed. velocity =
        momentum * velocity + rate * gradient then replaces rate * gradient, and becomes +0 where elements are kept.
    select: "bucket": the k largest of each `bucket` consecutive elements. "global": the ceil(density * n) largest of
        all n. "sampled": about as many, by a threshold from a random sample, which takes the least time. Zeros are
        never kept; NaNs and infinities are larger than all other elements. Among equal magnitudes, the first are kept.
    sample, seed, step: for "sampled": the fraction of elements in the sample, and the seeds of its positions. Pass the
        number of the step.
    to: the type of a new out. out: an array like gradient for the result; may be gradient itself.
    """
    opts = _opts(select, bucket, k, density, sample, rate, leak, momentum, seed, step, threads)
    elements, d = _arrays.readable(gradient, dtype)
    if d not in _DTYPES:
        raise TypeError(f"the elements are {d.name}: top-k selection takes f32, f64, f16 and bf16")
    if (velocity is not None) != (opts[7] > 0):
        raise ValueError(f"momentum is {momentum}: pass a velocity if, and only if, it is above 0")
    deliver = _arrays.delivery(d, to) if out is None else None
    state = [
        None if x is None else _written(x, what, elements, d, dtype)
        for x, what in ((residual, "residual"), (velocity, "velocity"), (out, "out"))
    ]
    kept = state[2]
    if kept is None:
        kept = _arrays.empty(d, elements.size, None, threads)
    nnz = _codec.topk(kept, state[0], state[1], elements, d.code, opts)
    if isinstance(nnz, _codec.Failed):
        overlap = "gradient, residual, velocity and out overlap: only out and gradient may be the same array"
        raise make(nnz.status, overlap if nnz.status == ArgumentError.status else nnz.words)
    if deliver is None:
        return out, nnz
    return deliver(_arrays.shaped(kept, d, elements.shape)), nnz


def topk_warmup(step: int, steps_an_epoch: int) -> float:
    """The density at a step of the warm-up of deep gradient compression: 1/4 in the first epoch, then 1/16, 1/64 and
    1/256, and 0.001 from the fifth epoch on. With another final density d: max(d, topk_warmup(step, steps_an_epoch)).
    """
    return _codec.topk_warmup(u64(step, "step"), u64(steps_an_epoch, "steps_an_epoch"))
