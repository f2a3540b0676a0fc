# SPDX-License-Identifier: BSD-3-Clause
"""The collectives of FSDP2, through its interface for custom collectives."""
from __future__ import annotations

import datetime
import importlib
from collections.abc import Callable, Sequence
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from .. import _dtypes
from .._calls import Op, Timeout
from .._values import Values, ValuesLike
from ..comm import Comm
from . import _cuda
from ._errors import codec_of, seeded
from ._group import communicator, log_call, profiled
from ._hooks import SUMMED, State

_NEWER = "pici.torch.fully_shard needs a newer torch; pici.torch.all_reduce_hook, for DDP, does not"
_API = "torch.distributed.fsdp._fully_shard._fsdp_api"


def _with_base(kind: type, *arguments: Any) -> Any:
    """A custom collective with torch's base class, if there is one: it has defaults for newer members. Imports the base
    class on demand: in some old versions of torch its package cannot be imported."""
    try:
        base = getattr(importlib.import_module(_API), kind.__name__)
    except (ImportError, AttributeError):
        return kind(*arguments)
    return type(kind.__name__, (kind, base), {})(*arguments)


def _has_fully_shard() -> bool:
    try:
        return hasattr(importlib.import_module("torch.distributed.fsdp"), "fully_shard")
    except Exception:  # torch 1.13 with Python 3.11: a ValueError
        return False


def _work_base() -> Any:
    return getattr(c10d, "Work", object)


class _Work(_work_base()):  # type: ignore[misc]
    """A call in flight, for FSDP."""

    def __init__(self, future: torch.futures.Future[Any]) -> None:
        super().__init__()
        self._future = future

    def wait(self, timeout: datetime.timedelta = datetime.timedelta(0)) -> bool:
        self._future.wait()
        return True

    def is_completed(self) -> bool:
        return bool(self._future.done())


def _run(
    name: str,
    group: dist.ProcessGroup,
    tensor: torch.Tensor,
    call: Callable[[Comm, Timeout], None],
    wait: bool,
    state: State,
) -> Any:
    """Make a call on the group's communicator: call(communicator, timeout). state: the timeout and statistics."""
    on_gpu = tensor.device.type == "cuda"
    c = _cuda.communicator(group, tensor.device) if on_gpu else communicator(group)

    def counted(comm: Comm) -> None:
        call(comm, c.timeout if state.timeout is None else state.timeout)
        log_call(name, tensor.numel(), comm.stats)
        for stats in (c.stats, state._stats):
            stats.add_call(comm.stats)

    future, _ = profiled(name, lambda: _cuda.submit(c, counted, tensor) if on_gpu else c.submit(counted))
    if not wait:
        return _Work(future)
    future.wait()
    return None


def _near(tensor: torch.Tensor) -> bool:
    """Whether the library can reach a tensor."""
    on_cpu = tensor.device.type == "cpu"
    return tensor.is_contiguous() and (on_cpu or (tensor.device.type == "cuda" and _cuda.enabled()))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The elements as the library gathers them: dtypes that it does not have as bytes."""
    try:
        known = _dtypes.named(tensor.dtype) not in _dtypes.OPAQUE
    except ValueError:
        known = False
    return tensor if known else tensor.view(torch.uint8)


def _summed(op: Any, *tensors: torch.Tensor) -> Optional[Op]:
    """The library's name of a gradient reduction. None: torch makes it."""
    names: dict[Any, Op] = {dist.ReduceOp.SUM: "sum", dist.ReduceOp.AVG: "avg"}
    ours = all(x.dtype in SUMMED and _near(x) for x in tensors)
    return names.get(getattr(op, "op", op)) if ours else None


class _Lossy:
    """A collective with a codec that has another seed in each call."""

    def __init__(self, state: Optional[State] = None, values: Optional[Values] = None) -> None:
        self._state = State() if state is None else state
        self._values = values
        self._calls = 0

    def _next_values(self) -> Optional[Values]:
        self._calls += 1
        return seeded(self._values, self._calls - 1)


class _Collective(_Lossy):
    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class AllGather(_Collective):
    """FSDP2's all-gather of parameters through pici."""

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> Optional[Any]:
        if not (_near(output_tensor) and _near(input_tensor)):
            return dist.all_gather_into_tensor(output_tensor, input_tensor, group=group, async_op=async_op)
        send, recv = _bits(input_tensor), _bits(output_tensor)

        def call(comm: Comm, timeout: Timeout) -> None:
            comm.all_gather(send, recv, timeout=timeout)

        return _run("all_gather", group, input_tensor, call, not async_op, self._state)


class ReduceScatter(_Collective):
    """FSDP2's reduce-scatter of gradients through pici, exactly or by a lossy codec."""

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> Optional[Any]:
        name = _summed(op, input_tensor, output_tensor)
        if name is None:
            return dist.reduce_scatter_tensor(output_tensor, input_tensor, op=op, group=group, async_op=async_op)
        known, values = name, self._next_values()

        def call(comm: Comm, timeout: Timeout) -> None:
            comm.reduce_scatter(input_tensor, output_tensor, known, timeout=timeout, values=values)

        return _run("reduce_scatter", group, input_tensor, call, not async_op, self._state)


class Replicas(_Lossy, dist.ProcessGroup):
    """The replicas of HSDP, as a process group with pici's all-reduce. torch has no other way to replace it."""

    def __init__(self, group: dist.ProcessGroup, state: State, values: Optional[Values]) -> None:
        _Lossy.__init__(self, state, values)
        dist.ProcessGroup.__init__(self, group.rank(), group.size())
        self.group = group

    def __eq__(self, other: object) -> bool:
        """torch also finds the group's data under this key."""
        return other is self or other is self.group

    def __hash__(self) -> int:
        return hash(self.group)

    def allreduce(self, tensors: list[torch.Tensor], options: Any) -> Any:
        name = _summed(options.reduceOp, *tensors)
        if name is None or len(tensors) != 1:
            return self.group.allreduce(tensors, options)
        known, values = name, self._next_values()

        def call(comm: Comm, timeout: Timeout) -> None:
            comm.all_reduce(tensors[0], tensors[0], known, timeout=timeout, values=values)

        return _run("all_reduce", self.group, tensors[0], call, False, self._state)


def _replace_replicas(module: Any, state: State, values: Optional[Values]) -> None:
    """Replace the all-reduce between the replicas of a module, if there are any, by pici's."""
    for parameters in getattr(module._get_fsdp_state(), "_fsdp_param_groups", ()):
        mesh: Any = getattr(parameters, "mesh_info", None)
        group = getattr(mesh, "replicate_process_group", None)
        if group is not None:
            group = group.group if isinstance(group, Replicas) else group
            mesh.replicate_process_group = Replicas(group, state, values)


def fully_shard(
    model: torch.nn.Module,
    *,
    bits: Optional[int] = None,
    values: Optional[ValuesLike] = None,
    timeout: Optional[Timeout] = None,
) -> State:
    """Let all FSDP2 modules of a model, made by torch.distributed.fsdp.fully_shard, gather parameters and reduce
    gradients through pici. On a mesh of two dimensions (HSDP), pici also makes the all-reduce between replicas.

        for layer in model.layers:
            torch.distributed.fsdp.fully_shard(layer)
        torch.distributed.fsdp.fully_shard(model)
        pici.torch.fully_shard(model)

    bits        round gradients to 2, 4 or 8 bits, up or down at random, unbiased; with replicas twice, in the
                reduce-scatter and in the all-reduce. None: exact. Parameters are always exact
    values      another lossy codec for gradients, as for pici.Comm.reduce_scatter: {"codec": "cast"}
    timeout     seconds or a timedelta, of each call; None: the group's

    Returns a State, whose stats() has the sums over all calls.

    torch still handles all else: CUDA tensors unless PICI_TORCH_CUDA=1, other dtypes, a pre-multiplied sum. A module
    with several groups of parameters (several meshes, by shard_placement_fn) keeps torch's collectives, since torch
    supports others only for modules with one group. Gradients with mostly zeros benefit; parameters are rarely zero.
    ValueError: the model has no such module, or only ones with several groups. RuntimeError: torch is too old; nothing
    has changed."""
    codec, state = codec_of(bits, values, False), State(timeout=timeout)
    modules = [m for m in model.modules() if hasattr(m, "_get_fsdp_state")]
    if not modules:
        if not _has_fully_shard():
            raise RuntimeError(f"torch {torch.__version__} has no torch.distributed.fsdp.fully_shard: {_NEWER}")
        raise ValueError("the model has no module that torch.distributed.fsdp.fully_shard was called with")
    setters = ("set_custom_all_gather", "set_custom_reduce_scatter")
    if not all(hasattr(m, s) for m in modules for s in setters):
        raise RuntimeError(f"FSDP of torch {torch.__version__} has no set_custom_all_gather: {_NEWER}")
    modules = [m for m in modules if len(getattr(m._get_fsdp_state(), "_fsdp_param_groups", ())) <= 1]
    if not modules:
        raise ValueError(
            "all FSDP2 modules of the model have several groups of parameters (several meshes, by shard_placement_fn): "
            "torch takes custom collectives for modules with one only"
        )
    all_gather, reduce_scatter = _with_base(AllGather, state), _with_base(ReduceScatter, state, codec)
    for m in modules:
        m.set_custom_all_gather(all_gather)
        m.set_custom_reduce_scatter(reduce_scatter)
        _replace_replicas(m, state, codec)
    return state
