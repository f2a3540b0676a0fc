# SPDX-License-Identifier: BSD-3-Clause
"""What is compared: ways to average gradients among the ranks of DistributedDataParallel.

A contestant registers its communication hook, if it has one. torch and pici are imported only when that is done.
"""
from typing import Any, Callable, NamedTuple


class Contestant(NamedTuple):
    name: str
    what: str  # for tables and pictures
    register: Callable[[Any], None]  # what is done with the DistributedDataParallel module
    pruned: float = 0  # the fraction of each layer's weights that is pruned before training
    backend: str = "gloo"  # of torch.distributed
    options: dict[str, Any] = {}  # of DistributedDataParallel


# torch's hook starts collectives in callbacks of others. Over gloo, callbacks of several buckets run in an order that
# differs among ranks, and the run fails or hangs. With the size given, all parameters here are one bucket.
ONE_BUCKET = {"bucket_cap_mb": 25}


def nothing(ddp: Any) -> None:
    pass


def fp16(ddp: Any) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)


def power_sgd(rank: int) -> Callable[[Any], None]:
    def register(ddp: Any) -> None:
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

        state = power.PowerSGDState(process_group=None, matrix_approximation_rank=rank, start_powerSGD_iter=10)
        ddp.register_comm_hook(state, power.powerSGD_hook)

    return register


def lossless(ddp: Any) -> None:
    import pici.torch

    ddp.register_comm_hook(None, pici.torch.all_reduce_hook)


def top(density: float, error_feedback: bool = True) -> Callable[[Any], None]:
    def register(ddp: Any) -> None:
        import pici.torch

        state = pici.torch.TopKState(density=density, error_feedback=error_feedback)
        ddp.register_comm_hook(state, pici.torch.topk_hook)

    return register


CONTESTANTS = {
    c.name: c
    for c in [
        Contestant("gloo", "gloo, dense", nothing),
        Contestant("fp16", "gloo, fp16_compress_hook", fp16),
        Contestant("powersgd-1", "gloo, powerSGD_hook, rank 1", power_sgd(1), options=ONE_BUCKET),
        Contestant("powersgd-2", "gloo, powerSGD_hook, rank 2", power_sgd(2), options=ONE_BUCKET),
        Contestant("powersgd-4", "gloo, powerSGD_hook, rank 4", power_sgd(4), options=ONE_BUCKET),
        Contestant("pici", "pici, all_reduce_hook", lossless),
        Contestant("pici-backend", "pici, the backend", nothing, backend="cpu:pici"),
        Contestant("gloo-pruned", "gloo, 90% pruned", nothing, pruned=0.9),
        Contestant("pici-pruned", "pici, all_reduce_hook, 90% pruned", lossless, pruned=0.9),
        Contestant("top1", "pici, top 1%", top(0.01)),
        Contestant("top0.1", "pici, top 0.1%", top(0.001)),
        Contestant("top1-plain", "pici, top 1%, no error feedback", top(0.01, False)),
        Contestant("top0.1-plain", "pici, top 0.1%, no error feedback", top(0.001, False)),
    ]
}

MAIN = ["gloo", "fp16", "powersgd-2", "pici", "gloo-pruned", "pici-pruned", "top1"]
