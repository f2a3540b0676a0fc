# SPDX-License-Identifier: BSD-3-Clause
"""Sparse tensors: what the backend and the hooks do with them, and all_reduce_sparse()."""
from __future__ import annotations

from typing import Any, Optional

import torch
import torch.distributed as dist

from ..comm import Comm
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


def is_ours(x: torch.Tensor) -> bool:
    """Whether the library sums such a tensor. The same on all ranks, whatever each of them has in it."""
    return x.layout is torch.sparse_coo and x.device.type == "cpu" and x.sparse_dim() > 0


def reduce(comm: Comm, x: torch.Tensor, op: Any, options: dict[str, Any]) -> torch.Tensor:
    """All-reduce a tensor in place. It is coalesced then, and has no elements but nonzeros, or rows of them."""
    total = comm.all_reduce_sparse(x, op=op, **options)
    x.data = total  # whatever refers to the tensor has the sum now; nothing is copied
    return x


def all_reduce_sparse(
    tensor: torch.Tensor, group: Optional[dist.ProcessGroup] = None, op: Any = dist.ReduceOp.SUM, async_op: bool = False
) -> Any:
    """The sum of the sparse COO tensors of all ranks, in place, and return the tensor, which is coalesced then.

        pici.torch.all_reduce_sparse(embedding.weight.grad, op=torch.distributed.ReduceOp.AVG)

    group       whose ranks; None: the default one, of any backend
    op          SUM, AVG, MIN or MAX; the latter take what a tensor does not have for 0
    async_op    return a future of the tensor, which must not be used before its wait() returns

    The ranks may have another number of elements each, none too, in any order and with repetitions. They pass tensors
    of one shape and dtype, with the same number of dense dimensions."""
    if tensor.layout is not torch.sparse_coo:
        raise TypeError(f"a tensor of layout {tensor.layout}: pass a sparse COO one")
    if not is_ours(tensor):
        raise ValueError("pass a tensor in the host's memory that has a sparse dimension")
    word = OPS.get(op)
    if word is None:
        raise ValueError(f"op={op}: pass SUM, AVG, MIN or MAX")
    c = communicator(group)

    def call(comm: Comm) -> torch.Tensor:
        reduce(comm, tensor, word, {"timeout": c.timeout})
        log_call("all_reduce_sparse", tensor.numel(), comm.stats)
        c.stats.add_call(comm.stats)
        return tensor

    future, _ = profiled("all_reduce_sparse", lambda: c.submit(call))
    return native(future) if async_op else future.wait()
