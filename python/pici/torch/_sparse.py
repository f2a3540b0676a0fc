# SPDX-License-Identifier: BSD-3-Clause
"""Sparse tensors in the backend and the hooks, and all_reduce_sparse().

There are two ways to sum rows of an embedding. Ranks gather the indices and then the values, as messages without
positions; or the list call (pici/stream.h) sums them, with messages that have a position for each element. All ranks
know all indices before they choose, and so make the same choice. The list call sums all other tensors."""
from __future__ import annotations

from typing import Any, Optional

import numpy as np
import torch
import torch.distributed as dist

from .._calls import Gathering
from .._sparse import coalesced
from ..comm import Comm
from ..errors import ArgumentError, PeerError
from ._group import communicator, log_call, native, profiled

#: the library's, by torch's
OPS: dict[Any, Any] = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
}
if hasattr(dist.ReduceOp, "AVG"):
    OPS[dist.ReduceOp.AVG] = "avg"

DTYPES = frozenset(
    getattr(torch, name)
    for name in (
        "float32 float64 float16 bfloat16 float8_e4m3fn float8_e5m2 int8 uint8 int16 uint16 int32 uint32 int64 uint64"
    ).split()
    if hasattr(torch, name)
)

_FLOATS = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
_ROW_BYTES = 64  # bytes of a row: shorter rows are not gathered, since their indices would be as long
_POSITIONS = 2.0  # time of a message with positions, relative to one without, which may be packed


def is_ours(x: torch.Tensor) -> bool:
    """Whether the library sums such a tensor. The same on all ranks, for any contents."""
    return x.layout is torch.sparse_coo and x.device.type == "cpu" and x.sparse_dim() > 0


def _is_gathered(x: torch.Tensor, op: Any, options: dict[str, Any]) -> bool:
    """Whether the rows of all ranks may be gathered. The same on all ranks."""
    if op not in ("sum", "avg") or x.dtype not in _FLOATS or x.sparse_dim() != 1 or "algorithm" in options:
        return False
    return bool(x.shape[1:].numel() * x.element_size() >= _ROW_BYTES)


def _added(indices: torch.Tensor, parts: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of parts, in order. Each part: the places of its rows in `indices`, and the rows."""
    total = torch.zeros((len(indices), *parts[0][1].shape[1:]), dtype=parts[0][1].dtype)
    for places, rows in parts:
        total.index_add_(0, places, rows)
    return indices, total


def _own(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's rows, each once."""
    indices, values = x._indices()[0], x._values().detach()
    if x.is_coalesced():
        return indices, values.contiguous()
    once, places = torch.unique(indices, return_inverse=True)
    return _added(once, [(places, values)])


def _sizes(comm: Comm, x: torch.Tensor, indices: torch.Tensor, timeout: dict[str, Any]) -> list[int]:
    """The number of rows of each rank. All ranks raise the error of an invalid tensor."""
    rows, width = x.shape[0], x.shape[1:].numel()
    bad = len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < rows
    table = comm.all_gather(np.array([[-1 if bad else len(indices), rows, width]]), **timeout).tolist()
    for rank, (count, its_rows, its_width) in enumerate(table):
        if count < 0:
            which = int(indices.min() if int(indices.min()) < 0 else indices.max()) if rank == comm.rank else None
            said = "an index" if which is None else f"index {which}"
            raise ArgumentError(f"rank {rank}: {said} of the sparse tensor is not from 0 to {its_rows - 1}")
        if [its_rows, its_width] != table[0][1:]:
            raise PeerError(
                f"rank {rank} passes a sparse tensor of {its_rows} rows of {its_width} elements, and rank 0 one of "
                f"{table[0][1]} rows of {table[0][2]}"
            )
    return [count for count, _, _ in table]


def _gathered(comm: Comm, x: torch.Tensor, op: Any, options: dict[str, Any]) -> torch.Tensor:
    """The sum of gathered rows, in the order of the ranks; or all_reduce_sparse(), if ranks share so many rows that its
    messages are shorter."""
    indices, values = _own(x)
    counts = _sizes(comm, x, indices, {name: options[name] for name in options if name == "timeout"})
    known = {name: value for name, value in options.items() if name in Gathering.__annotations__}
    narrow = torch.int32 if x.shape[0] < 1 << 31 else torch.int64
    every = comm.all_gatherv(indices.to(narrow), counts, **known).long()
    once, places = torch.unique(every, return_inverse=True)
    total, width = sum(counts), x.shape[1:].numel()
    if total > _POSITIONS * (total / comm.size + len(once)):
        return comm.all_reduce_sparse(x, op=op, **options)
    rows = comm.all_gatherv(values.reshape(-1), [n * width for n in counts], **known).view(total, *x.shape[1:])
    _, found = _added(once, [*zip(places.split(counts), rows.split(counts))])
    if op == "avg":
        found.div_(comm.size)
    return coalesced(once[None], found, tuple(x.shape))


def reduce(comm: Comm, x: torch.Tensor, op: Any, options: dict[str, Any]) -> torch.Tensor:
    """All-reduce a tensor in place, and coalesce it."""
    if _is_gathered(x, op, options):
        total = _gathered(comm, x, op, options)
    else:
        total = comm.all_reduce_sparse(x, op=op, **options)
    x.data = total  # all references to the tensor see the sum, without a copy
    return x


def all_reduce_sparse(
    tensor: torch.Tensor, group: Optional[dist.ProcessGroup] = None, op: Any = dist.ReduceOp.SUM, async_op: bool = False
) -> Any:
    """Sum the sparse COO tensors of all ranks, in place. Coalesces and returns the tensor.

        pici.torch.all_reduce_sparse(embedding.weight.grad, op=torch.distributed.ReduceOp.AVG)

    group       the ranks; None: the default group, of any backend
    op          SUM, AVG, MIN or MAX; MIN and MAX treat missing elements as 0
    async_op    return a future of the tensor; do not use the tensor before its wait() returns

    Each rank may have any number of elements, even none, in any order and with repetitions. All pass tensors of one
    shape and dtype, with the same number of dense dimensions."""
    if tensor.layout is not torch.sparse_coo:
        raise TypeError(f"a tensor of layout {tensor.layout}: pass a sparse COO one")
    if not is_ours(tensor):
        raise ValueError("pass a tensor in the host's memory that has a sparse dimension")
    word = OPS.get(op)
    if word is None:
        raise ValueError(f"op={op}: pass SUM, AVG, MIN or MAX")
    # before the call, which would break the group
    if tensor.dtype is torch.bool and word in ("sum", "avg"):
        raise TypeError(f"bool is not added, for op={op}: pass MAX (or), MIN (and)")
    if tensor.is_complex() and word in ("min", "max"):
        raise TypeError(f"complex numbers have no order, for op={op}: pass SUM or AVG")
    if tensor.dtype not in DTYPES | {torch.bool, torch.complex64, torch.complex128}:
        raise TypeError(f"all_reduce_sparse does not take {tensor.dtype}")
    c = communicator(group)

    def call(comm: Comm) -> torch.Tensor:
        reduce(comm, tensor, word, {"timeout": c.timeout})
        log_call("all_reduce_sparse", tensor.numel(), comm.stats)
        c.stats.add_call(comm.stats)
        return tensor

    future, _ = profiled("all_reduce_sparse", lambda: c.submit(call))
    return native(future) if async_op else future.wait()
