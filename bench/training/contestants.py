# SPDX-License-Identifier: BSD-3-Clause
"""The contestants: ways to average gradients among the ranks of DistributedDataParallel.

A contestant registers its communication hook, if it has one. torch and pici are imported only then.
"""
from typing import Any, Callable, NamedTuple


class Contestant(NamedTuple):
    name: str
    what: str  # for tables and pictures
    register: Callable[[Any], None]  # changes the DistributedDataParallel module
    pruned: float = 0  # the fraction of each layer's weights that is pruned before training
    backend: str = "gloo"  # of torch.distributed
    options: dict[str, Any] = {}  # of DistributedDataParallel
    outer: dict[str, Any] = {}  # of pici.torch.Outer, in place of DistributedDataParallel


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


def pack(how: str) -> Callable[[Any], None]:
    def register(ddp: Any) -> None:
        import pici.torch

        ddp.register_comm_hook(pici.torch.State(opts={"pack": how}), pici.torch.all_reduce_hook)

    return register


def bits(count: int) -> Callable[[Any], None]:
    def register(ddp: Any) -> None:
        import pici.torch

        ddp.register_comm_hook(pici.torch.QuantizeState(bits=count), pici.torch.quantize_hook)

    return register


def pruned_gradients(ddp: Any) -> None:
    """In each tensor, elements below a threshold become zero or the threshold, at random, so that their mean stays
    right (Ye et al., Accelerating CNN Training by Pruning Activation Gradients). 90% of a normal distribution is below
    the threshold.
    """
    import torch

    import pici.torch

    threshold = 1.645 * (torch.pi / 2) ** 0.5  # times the mean magnitude

    def hook(state: Any, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
        for gradient in bucket.gradients():
            limit = threshold * gradient.abs().mean()
            kept = torch.where(torch.rand_like(gradient) * limit < gradient.abs(), limit * gradient.sign(), 0)
            gradient.copy_(torch.where(gradient.abs() < limit, kept, gradient))
        return pici.torch.all_reduce_hook(None, bucket)

    ddp.register_comm_hook(None, hook)


def samo(ddp: Any) -> None:
    """Only the gradients of weights that were left, in one dense buffer, since all ranks know which these are (Singh,
    Bhatele: Exploiting Sparsity in Pruned Neural Networks to Optimize Large Model Training)."""
    import torch
    import torch.distributed as dist

    masks = {}
    for module in ddp.modules():
        for name, mask in module.named_buffers(recurse=False):
            if name.endswith("_mask"):
                masks[id(getattr(module, name[: -len("mask")] + "orig"))] = mask.view(-1) != 0
    places: dict[Any, torch.Tensor] = {}  # of remaining weights, by the parameters of a bucket

    def hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        parameters, buffer = bucket.parameters(), bucket.buffer()
        which = tuple(map(id, parameters))
        if which not in places:
            all_of = [masks.get(id(p), torch.ones(p.numel(), dtype=torch.bool)) for p in parameters]
            places[which] = torch.cat(all_of).nonzero().view(-1)
        left = buffer[places[which]].div_(dist.get_world_size())

        def deliver(future: Any) -> torch.Tensor:
            buffer[places[which]] = future.value()[0]
            return buffer

        return dist.all_reduce(left, async_op=True).get_future().then(deliver)

    ddp.register_comm_hook(None, hook)


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
        Contestant("pici-packed", "pici, all_reduce_hook, packed", pack("planes")),
        Contestant("pici-unpacked", "pici, all_reduce_hook, not packed", pack("none")),
        Contestant("pici-backend", "pici, the backend", nothing, backend="cpu:pici"),
        Contestant("gloo-pruned", "gloo, 90% pruned", nothing, pruned=0.9),
        Contestant("pici-pruned", "pici, all_reduce_hook, 90% pruned", lossless, pruned=0.9),
        Contestant("samo-pruned", "gloo, 90% pruned, the rest in one buffer", samo, pruned=0.9),
        Contestant("pici-pruned-gradients", "pici, all_reduce_hook, 90% of gradients pruned", pruned_gradients),
        Contestant("bits4", "pici, 4 bits", bits(4)),
        Contestant("outer", "pici, Outer, every 20 steps", nothing, outer={"inner_steps": 20}),
        Contestant("outer-bits", "pici, Outer, 4 bits", nothing, outer={"inner_steps": 20, "method": "bits"}),
        Contestant("outer-topk", "pici, Outer, top 5%", nothing, outer={"inner_steps": 20, "method": "topk"}),
        Contestant(
            "outer-topk-momentum",
            "pici, Outer, top 5%, momentum",
            nothing,
            outer={"inner_steps": 20, "method": "topk", "lr": 0.7, "momentum": 0.9},
        ),
        Contestant("outer-visible", "pici, Outer, visible", nothing, outer={"inner_steps": 20, "method": "visible"}),
        Contestant("outer-sparseloco", "pici, SparseLoCo", nothing, outer={"inner_steps": 20, "method": "sparseloco"}),
        Contestant("top1", "pici, top 1%", top(0.01)),
        Contestant("top0.1", "pici, top 0.1%", top(0.001)),
        Contestant("top1-plain", "pici, top 1%, no error feedback", top(0.01, False)),
        Contestant("top0.1-plain", "pici, top 0.1%, no error feedback", top(0.001, False)),
    ]
}

MAIN = ["gloo", "fp16", "powersgd-2", "pici", "gloo-pruned", "pici-pruned", "top1"]
